"""The section on latent walks in a real browser: two widths, interactive charts, hostile names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_walks import make_walks
from test_report_browser import HOSTILE, Opened, browser, make_interactive

from holdfast.reports import build

__all__ = ["browser"]  # the fixture


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("walk-pages")
    many = [{}, {"generator": "embedded:a-generator-with-a-long-name", "oracle": "clip:embedded"}]
    hostile = {"generator": HOSTILE[0], "oracle": HOSTILE[1], "first": HOSTILE[5]}
    runs = {
        "plain": make_walks(folder / "plain", options=many, frames=3),
        "hostile": make_walks(
            folder / "hostile",
            models={HOSTILE[2]: 0.7, HOSTILE[4]: 0.3},
            classes=HOSTILE,
            photos=2,
            options=[hostile, hostile | {"steps": 20}],
            kinship=[HOSTILE[7]],
            source="{}" + HOSTILE[1] + "{}",
        ),
    }
    return {name: build([run], folder / f"{name}-report", resamples=200) for name, run in runs.items()}


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_nothing_overflows_complains_or_reaches_out(
    browser: Any,
    pages: dict[str, Path],
    name: str,
    width: int,
) -> None:
    with Opened(browser, pages[name], width) as opened:
        page = opened.page
        page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        sizes = page.evaluate("[...document.querySelectorAll('.filmstrip img')].map(i => [i.naturalWidth, i.width])")
        assert sizes and all(natural > 0 and shown > 40 for natural, shown in sizes)
        for figure in page.locator("figure[data-chart]").all():
            make_interactive(figure)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.troubles == []
        assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []


def test_hostile_names_show_as_text(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["hostile"], 1400) as opened:
        page = opened.page
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        text = page.inner_text("main")
        for name in HOSTILE:
            assert name.replace("\u2028", "").split("<svg")[0] in text
        assert page.locator("main script, main [onerror], main [onload], main [onmouseover]").count() == 0
        assert page.locator("main img:not([src^='data:image/jpeg;base64,'], .chart > img)").count() == 0
        assert opened.troubles == []


def test_hostile_names_in_the_files_beside_the_page(pages: dict[str, Path]) -> None:
    folder = pages["hostile"].parent
    for path in (folder / "figures").glob("*.svg"):
        content = path.read_text(encoding="utf8")
        assert "<script" not in content and "<img" not in content
    cells = [cell for path in (folder / "tables").glob("*.csv") for cell in path.read_text(encoding="utf8").split(",")]
    assert any(cell.startswith("'=HYPERLINK") for cell in cells)
    assert not any(cell.startswith(("=", "@", "+")) for cell in cells)
