"""Libraries that take long to import are imported when they are first used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import holdfast

STATED = (
    "from holdfast.core.lazy import pd, torch; import sys; print([n for n in ('pandas', 'torch') if n in sys.modules])"
)


def test_a_library_is_imported_at_its_first_use() -> None:
    used = f"{STATED}; print(pd.DataFrame({{'a': [1]}}).shape, 'pandas' in sys.modules, hasattr(pd, 'nothing'))"
    done = subprocess.run([sys.executable, "-c", used], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "(1, 1) True False"]


def test_statistics_use_no_torch() -> None:
    files = list((Path(holdfast.__file__).parent / "stats").rglob("*.py"))
    assert len(files) > 20
    assert not [file for file in files if re.search(r"core\.lazy import .*\btorch\b", file.read_text(encoding="utf8"))]
