"""First contact, as the README promises it."""

from __future__ import annotations

import html
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from commands import HOLDFAST, run
from holdfast import api, demo, demo_parts
from holdfast.pipeline.thumbnails import thumbnails
from holdfast.store import Run

SCENES, WALKS = 24, 4


@pytest.mark.timeout(900)  # it does what four commands and their reports do
def test_the_quick_demo_ends_in_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Less than what the quick one draws, walks and mines: as many parts, pages and numbers.
    monkeypatch.setattr(demo, "QUICK", replace(demo.QUICK, scenes=SCENES, walks=WALKS, pool=111, trained=48))
    page = Path(run("demo", "--quick", "--out", tmp_path / "demo", "-q").stdout.strip())
    assert page == tmp_path / "demo" / "index.html"
    text = page.read_text(encoding="utf8")
    assert "Drawn scenes: the truth is known there, and photographs may differ." in text
    assert "loses this much accuracy when only the background changes" in text
    assert (
        text.count("<article>") == 6
        and "holdfast check packaged:efficientnet_lite0 photos/" in text
        and text.count("<h1>") == 1
        and "<main>" in text
    )
    assert text.count("✗ wrong") == 3 and text.count("✓ right") == 1
    assert "Failed" in text or "Undecided" in text  # the gate between a fair model and one that reads backgrounds
    titles = ["Does it see the object", "May the new model", "How much is left", "Which images", "Which network"]
    assert [text.index(title) for title in titles] == sorted(text.index(title) for title in titles)
    for name in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert (page.parent / html.unescape(name)).is_file(), name
    assert all(re.search(r'alt="[^"]+"', tag) for tag in re.findall("<img[^>]*>", text))
    report = tmp_path / "demo" / "scenes" / "report" / "index.html"
    assert "Drawn scenes: the truth is known there, and photographs may differ." in report.read_text(encoding="utf8")
    assert "of its accuracy is left to resnet_rho95" in text and "foundation model-oriented robustness, FMR" in text
    assert demo.GUIDE.is_file() and "Every kind of model" in text
    assert text.count('class="truth"') == 8 and re.search(r"\d of 8 intervals hold it", text)
    gate = (tmp_path / "demo" / "gate" / "index.html").read_text(encoding="utf8")
    assert "†" not in gate, "images without their object have no right prediction"
    assert "<h1>May vit_rho95 replace resnet_rho0?</h1>" in gate and re.search(r">\s*(Failed|Undecided)\b", gate)
    assert "left out; holdfast demo without --quick" in text and "but the photographs" not in text
    walked = Run.open(tmp_path / "demo" / "walks").rows(["condition", "kind"]).to_pandas()
    assert set(walked["kind"]) == {"dynamic"} and (walked["condition"] == "perturbed").sum() == 2 * WALKS
    rows = Run.open(tmp_path / "demo" / "scenes").rows(["status"]).to_pandas()
    assert len(rows) == SCENES * 19 * 8 and (rows["status"] == "ok").mean() > 0.99
    assert "is the robustness score of" in text
    trained = (tmp_path / "demo" / "trained" / "report" / "index.html").read_text(encoding="utf8")
    assert "39 trainings were made ahead" in trained


def test_the_hero_is_a_photo_with_a_sure_mask_on_another_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = api.evaluate(
        "diorama:test?n=24&context=0.95&size=64", models="embedded:vit_rho95",
        scenarios=["original", "green", "random_background"], out=tmp_path / "run",
    )  # fmt: skip
    model, pictures = demo._flips(results, tmp_path)
    assert model == "embedded:vit_rho95" and [picture.right for picture in pictures][:2] == [True, False]
    assert pictures[1].caption.startswith("random background")
    rows = results.rows(["sample_id", "condition", "correct", "donor_id"]).to_pylist()
    good = {row["sample_id"] for row in rows if row["condition"] == "original" and row["correct"]}
    lost = [row for row in rows if row["condition"] == "random_background" and not row["correct"]]
    lost = [row for row in lost if row["sample_id"] in good]
    kept = lost[-1]
    doubtful = {row["sample_id"] for row in rows} - {kept["sample_id"], kept["donor_id"]}
    monkeypatch.setattr(demo, "doubtful_masks", lambda _: doubtful)
    (tmp_path / "other").mkdir()
    demo._flips(results, tmp_path / "other")
    shown = (tmp_path / "other" / "front" / "0.jpg").read_bytes()
    data = f"{results.run.spec()['data']}&size=420"
    source = thumbnails(results.run, {kept["sample_id"]}, size=420, data=data)
    assert shown == source[kept["sample_id"], "original"]  # drawn larger than the models see it
    assert cv2.imdecode(np.frombuffer(shown, np.uint8), 1).shape == (420, 420, 3)


def test_axes_of_cards_have_round_numbers_around_all_values() -> None:
    def card(*ends: tuple[float, float, float], reference: float = 0.0) -> demo_parts.PartCard:
        bars = [demo_parts.Bar("", *values) for values in ends]
        return demo_parts.PartCard("", "", "", "", "", Path(), bars, "", reference=reference)

    assert demo._ticks(card((0.3, 0.11, 0.58))) == [0, 0.2, 0.4, 0.6]
    assert demo._ticks(card((0.83, 0.55, 1.13), reference=1.0)) == [0.4, 0.6, 0.8, 1.0, 1.2]
    assert demo._ticks(card((-0.6, -0.77, -0.43))) == [-0.8, -0.6, -0.4, -0.2, 0]
    assert demo._ticks(card((0.9, 0.637, 1.0), reference=1.0)) == [0.6, 0.7, 0.8, 0.9, 1.0]
    assert demo._ticks(card((0.0, 0.0, 0.0))) == [0, 0.01]


def _started(out: Path) -> subprocess.Popen[str]:
    words = [*HOLDFAST, "demo", "--quick", "--out", str(out)]
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - ignored where tests run behind an `&`
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heard)


def _end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code and what was printed, after all processes that it started have ended."""
    _, printed = process.communicate(timeout=120)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return process.returncode, printed
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    pytest.fail("a part continues after its command has ended")


@pytest.mark.timeout(200)
def test_a_part_that_fails_ends_the_demo_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "front").mkdir()
    (tmp_path / "front" / ".lock").touch()  # a demo that was interrupted: its folder is its own
    (tmp_path / "pool").write_text("not a folder")
    code, printed = _end(_started(tmp_path))
    assert code != 0 and "pool" in printed and "Traceback" not in printed
    assert not (tmp_path / "index.html").exists()


@pytest.mark.timeout(200)
def test_ctrl_c_ends_every_part(tmp_path: Path) -> None:
    process = _started(tmp_path)
    while not (tmp_path / "scenes" / "spec.json").exists() or not (tmp_path / "pool").exists():  # both have begun
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    code, printed = _end(process)
    assert code == 130 and "Traceback" not in printed
    assert not (tmp_path / "index.html").exists()
