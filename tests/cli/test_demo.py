"""First contact, as the README promises it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from commands import run
from holdfast import demo
from holdfast.store import Run

SCENES, WALKS = 24, 4


@pytest.mark.timeout(900)  # it does what four commands and their reports do
def test_the_quick_demo_ends_in_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Less than what the quick one draws, walks and mines: as many parts, pages and numbers.
    monkeypatch.setattr(demo, "QUICK_SCENES", SCENES)
    monkeypatch.setattr(demo, "QUICK_WALKS", WALKS)
    monkeypatch.setattr(demo, "QUICK_POOL", 74)
    page = Path(run("demo", "--quick", "--out", tmp_path / "demo", "-q").stdout.strip())
    assert page == tmp_path / "demo" / "index.html"
    text = page.read_text(encoding="utf8")
    assert "Known-truth world; says nothing about photos." in text
    assert "loses this much accuracy when only the background changes" in text
    assert text.count("<article>") == 5 and text.count("<h1>") == 1 and "<main>" in text
    assert text.count("✗ wrong") == 3 and text.count("✓ right") == 1
    assert "Failed" in text or "Undecided" in text  # the gate between a fair model and one that reads backgrounds
    for name in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert (page.parent / html.unescape(name)).is_file(), name
    assert all(re.search(r'alt="[^"]+"', tag) for tag in re.findall("<img[^>]*>", text))
    report = tmp_path / "demo" / "scenes" / "report" / "index.html"
    assert "Known-truth world; says nothing about photos." in report.read_text(encoding="utf8")
    assert "foundation model-oriented robustness (FMR) of resnet_rho95" in text
    walked = Run.open(tmp_path / "demo" / "walks").rows(["condition", "kind"]).to_pandas()
    assert set(walked["kind"]) == {"dynamic"} and (walked["condition"] == "perturbed").sum() == 2 * WALKS
    rows = Run.open(tmp_path / "demo" / "scenes").rows(["status"]).to_pandas()
    assert len(rows) == SCENES * 18 * 8 and (rows["status"] == "ok").mean() > 0.99
    assert "is the robustness score of" in text and "trained live" in text
    trained = (tmp_path / "demo" / "trained" / "report" / "index.html").read_text(encoding="utf8")
    assert "39 trainings were made ahead" in trained
