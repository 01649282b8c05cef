"""Limits on the size of the documentation: words and pages in all, lines of a page, lines of README and CHANGELOG."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from doc_blocks import PAGES, ROOT, name

WORDS = 60_000
PAGES_IN_ALL = 80
LINES = 150
LINES_OF = {"README.md": 120, "CHANGELOG.md": 120}


@pytest.fixture(scope="module")
def counting() -> ModuleType:
    spec = importlib.util.spec_from_file_location("counts", ROOT / "docs" / "counts.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["counts"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_the_documentation_keeps_its_limits(counting: ModuleType) -> None:
    size = counting.counts()["all"]
    assert size.words <= WORDS and size.pages <= PAGES_IN_ALL and size.longest <= LINES, size
    for page, limit in LINES_OF.items():
        assert len((ROOT / page).read_text(encoding="utf8").splitlines()) <= limit, page


def test_every_page_is_counted(counting: ModuleType) -> None:
    counted = {page.relative_to(ROOT).as_posix() for part in counting.PARTS.values() for one in part
               for page in ROOT.glob(one)}  # fmt: skip
    assert {name(page) for page in PAGES} <= counted


def test_words_pages_and_lines_are_counted_as_wc_does(counting: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# One\n\ntwo three\n")
    (tmp_path / "docs" / "deep" / "a.md").write_text("| a | b |\nc\n")
    found = counting.counts(tmp_path)
    assert found["docs/"] == counting.Counts(1, 6, 2, "docs/deep/a.md")
    assert found["all"] == counting.Counts(2, 10, 3, "README.md")
    assert found["packages/"].pages == 0
