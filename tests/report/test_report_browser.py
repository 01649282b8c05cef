"""The page in a real browser: two widths, keyboard, interactive charts, hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run

from browsing import ARGUMENTS, CHROMIUM, chromium, serious
from holdfast.reports import build

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}${7*7}",
    "javascript:alert(1)",
    "</script><script>alert(1)</script>",
    "' onmouseover='alert(1)",
    "=HYPERLINK(1)",
    "\u2028<svg/onload=alert(1)>",
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium() as kind:
        profile = tmp_path_factory.mktemp("profile")
        context = kind.launch_persistent_context(
            profile, executable_path=CHROMIUM, args=ARGUMENTS, headless=True, offline=True
        )
        yield context
        context.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    plain = make_run(folder / "plain", photos=6)
    hostile = make_run(
        folder / "hostile",
        models=HOSTILE[:3],
        classes=HOSTILE,
        photos=2,
        dataset=HOSTILE[0],
        source="{}" + HOSTILE[1] + "{}",
    )
    failed = make_run(
        folder / "failed", models=HOSTILE[:2], classes=HOSTILE, photos=1, status="error", error=HOSTILE[4]
    )
    runs = {"plain": plain, "hostile": hostile, "failed": failed}
    return {name: build([run], folder / f"{name}-report", resamples=200) for name, run in runs.items()}


class Opened:
    """A page and everything it complained about."""

    def __init__(self, browser: Any, path: Path, width: int) -> None:
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page()
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.on(
            "console",
            lambda message: self.troubles.append(message.text) if message.type in ("error", "warning") else None,
        )
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()


def make_interactive(figure: Any) -> None:
    """Press a figure's button and wait until its chart is there and can be taken back."""
    figure.locator("button.interactive").click()
    figure.locator("button.interactive", has_text="Back to the still figure").wait_for()
    figure.locator(".live svg.marks").wait_for()


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", ["plain", "hostile", "failed"])
def test_nothing_overflows_complains_or_reaches_out(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    with Opened(browser, pages[name], width) as opened:
        page = opened.page
        page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        visible = page.evaluate(
            "[...document.querySelectorAll('.chart')].map("
            "c => ['.wide', '.narrow'].map(name => getComputedStyle(c.querySelector(name)).display !== 'none'))"
        )
        # The first screen has its chart next to the images, so there it is the narrow one on a desk, too.
        assert all(one == [width > 700 and place > 0, width < 700 or place == 0] for place, one in enumerate(visible))
        assert opened.troubles == []
        assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []
        assert len([url for url in opened.requests if url.startswith("file:")]) == 1


@pytest.mark.parametrize("width", [1400, 390])
def test_every_figure_becomes_interactive_and_goes_back(browser: Any, pages: dict[str, Path], width: int) -> None:
    with Opened(browser, pages["plain"], width) as opened:
        page = opened.page
        page.evaluate("for (const part of document.querySelectorAll('main details')) part.open = true")
        count = page.locator("figure[data-chart]").count()
        assert count >= 8
        for number in range(count):
            figure = page.locator("figure[data-chart]").nth(number)
            button = figure.locator("button.interactive")
            make_interactive(figure)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            button.click()
            assert figure.locator("img.wide, img.narrow").count() == 2
        # Twice at once is once: the second press finds a chart that is being made.
        page.evaluate(
            "() => { const before = vegaEmbed; window.embedded = 0;"
            " window.vegaEmbed = (...given) => { embedded++; return before(...given); }; }"
        )
        button.evaluate("button => { button.click(); button.click(); }")
        figure.locator("button.interactive", has_text="Back to the still figure").wait_for()
        assert page.evaluate("embedded") == 1
        button.click()
        assert figure.locator("img.wide, img.narrow").count() == 2
        assert opened.troubles == []


def test_hostile_names_show_as_text(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["hostile"], 1400) as opened:
        page = opened.page
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        text = page.inner_text("main")
        for name in HOSTILE:
            assert name.replace("\u2028", "").split("<svg")[0] in text
        assert page.locator("main script, main [onerror], main [onload], main [onmouseover]").count() == 0
        assert page.locator("main img:not(.chart > img)").count() == 0  # names asked for images, and there are none
        assert page.locator("a[href^='javascript']").count() == 0
        for figure in page.locator("figure[data-chart]").all():
            make_interactive(figure)
        marks = page.locator(".live svg text").all_text_contents()
        assert any("<script>" in mark for mark in marks)
        assert page.locator("main script, main [onerror]").count() == 0
        assert opened.troubles == []


def test_hostile_names_in_the_files_beside_the_page(pages: dict[str, Path]) -> None:
    folder = pages["hostile"].parent
    for path in (folder / "figures").glob("*.svg"):
        content = path.read_text(encoding="utf8")
        assert "<script" not in content and "<img" not in content
    cells = [cell for path in (folder / "tables").glob("*.csv") for cell in path.read_text(encoding="utf8").split(",")]
    assert any(cell.startswith("'=HYPERLINK") for cell in cells)
    assert not any(cell.startswith(("=", "@", "+")) for cell in cells)


def test_the_keyboard_reaches_the_report_and_sorts_its_tables(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["plain"], 1400) as opened:
        page = opened.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
        page.keyboard.press("Enter")
        page.wait_for_selector("#content:focus")
        assert page.evaluate("document.querySelector('#scores details').open") is False
        page.locator("nav a[href='#scores']").press("Enter")
        page.wait_for_selector("#scores details[open]")  # the page's policy forbids the eval of wait_for_function
        head = page.locator("#scores th", has_text="Originals").first
        head.locator("button").focus()
        rows = "[...document.querySelectorAll('#scores table')[0].tBodies[0].rows]"
        values = f"{rows}.map(row => Number(row.cells[3].dataset.sort))"
        page.keyboard.press("Enter")
        rising = page.evaluate(values)
        assert head.get_attribute("aria-sort") == "ascending" and rising == sorted(rising)
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "descending" and page.evaluate(values) == sorted(rising, reverse=True)


@pytest.mark.parametrize("width", [1400, 390])
def test_axe_finds_nothing_serious(browser: Any, pages: dict[str, Path], width: int) -> None:
    opened = Opened(browser, pages["plain"], width)
    assert serious(opened.page) == []
    opened.page.close()


def test_on_paper_the_wide_figures_are_printed_and_no_buttons(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["plain"], 390) as opened:
        opened.page.emulate_media(media="print")
        assert opened.page.locator("img.wide").first.is_visible()
        assert not opened.page.locator("img.narrow").first.is_visible()
        assert not opened.page.locator("button.interactive").first.is_visible()
        assert not opened.page.locator("nav").is_visible()
