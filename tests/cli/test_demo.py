"""First contact, as the README promises it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.store import Run


def test_the_quick_demo_ends_in_a_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "demo", "--quick", "--out", str(tmp_path / "demo"), "-q"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    page = Path(result.stdout.strip())
    assert page == tmp_path / "demo" / "index.html"
    text = page.read_text(encoding="utf8")
    assert "Known-truth world; says nothing about photos." in text
    assert "embedded:resnet_rho0: Foreground" in text or "embedded:resnet_rho0: Undecided" in text
    report = tmp_path / "demo" / "scenes" / "report" / "index.html"
    assert "Known-truth world; says nothing about photos." in report.read_text(encoding="utf8")
    assert "embedded:resnet_rho95: FMR " in text
    walked = Run.open(tmp_path / "demo" / "walks").rows(["condition", "kind"]).to_pandas()
    assert set(walked["kind"]) == {"dynamic"} and (walked["condition"] == "perturbed").sum() == 2 * 12
    rows = Run.open(tmp_path / "demo" / "scenes").rows(["status"]).to_pandas()
    assert len(rows) == 48 * 18 * 8 and (rows["status"] == "ok").mean() > 0.99
