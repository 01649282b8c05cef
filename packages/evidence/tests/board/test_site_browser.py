"""The site in a real browser, from disk: two widths, keyboard, address, charts, two models, hostile names."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from made_board import make_board, make_run, static_rows

from browsing import a_browser, serious
from holdfast.stats.core.bootstrap import paired_change
from holdfast_evidence.board.add import add
from holdfast_evidence.board.entry import Dataset
from holdfast_evidence.board.site.build import build

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</script><script>alert(1)</script>",
           "' onmouseover='alert(1)", "{{7*7}}${7*7}", "javascript:alert(1)"]  # fmt: skip
META = """
[models."{name}"]
parameters = {size}
title = {title}
paper = "https://example.org/paper?a=1&b=2"
[models."{name}".speed]
images_per_second = {speed}
hardware = "a made-up machine"
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as found:
        yield found


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four models with sizes and speeds under static, one dominated by another; two under the others."""
    folder = tmp_path_factory.mktemp("browsed")
    models = {"python:good": (0.95, 40e6, 10), "python:small": (0.8, 2e6, 200), "python:poor": (0.3, 60e6, 5),
              "python:middle": (0.6, 20e6, 50)}  # fmt: skip
    rows, meta = [], ""
    for number, (name, (share, size, speed)) in enumerate(models.items()):
        rows += static_rows(name, photos=40, seed=number, share=share)
        meta += META.format(name=name, size=int(size), speed=float(speed), title=f'"{name[7:].capitalize()}"')
    (folder / "meta.toml").write_text(meta)
    make_board(folder / "others", folder / "work")
    board = folder / "board"
    add(make_run(folder / "run", rows), board, folder / "meta.toml")
    for path in (folder / "others").iterdir():
        if "-static-" not in path.name:
            shutil.copy(path, board)
    return board


@pytest.fixture(scope="module")
def site(board: Path) -> Path:
    return build(board, board.parent / "site").page.parent


class Opened:
    """A page and everything it complained about."""

    def __init__(self, browser: Any, address: str, width: int = 1400) -> None:
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.on(
            "console",
            lambda message: self.troubles.append(message.text) if message.type in ("error", "warning") else None,
        )
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()
        assert self.troubles == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []


def titles(page: Any) -> list[str]:
    """Of the first table that is shown, in the order of its rows."""
    rows = page.locator(".panel:not([hidden]) .group").first.locator("tbody tr:not([hidden]) th a")
    return list(rows.all_text_contents())


@pytest.mark.parametrize("width", [1400, 390])
def test_no_page_overflows_complains_or_reaches_out(browser: Any, site: Path, width: int) -> None:
    model = next((site / "models").glob("python-good*.html"))
    walked = next((site / "models").glob("python-first*dynamic*.html"))
    printed = next((site / "models").glob("swin-*.html"))
    with Opened(browser, (site / "index.html").as_uri(), width) as opened:
        page = opened.page
        for tab in page.evaluate("[...document.querySelectorAll('.datasets button')].map(one => one.dataset.tab)"):
            page.goto(f"{(site / 'index.html').as_uri()}#tab={tab}")
            page.wait_for_selector(f".panel[data-tab='{tab}']:not([hidden])")
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
        for path in (model, walked, printed, site / "compare.html"):
            page.goto(path.as_uri())
            if path.name == "compare.html":
                page.wait_for_selector(".listed tbody th")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name


def test_columns_sort_by_click_and_by_keyboard(browser: Any, site: Path) -> None:
    with Opened(browser, (site / "index.html").as_uri()) as opened:
        page = opened.page
        assert titles(page) == ["Good", "Small", "Middle", "Poor"]
        head = page.locator("th[data-key=parameters]").first
        head.locator("button").click()
        assert titles(page) == ["Small", "Middle", "Good", "Poor"]
        assert head.get_attribute("aria-sort") == "ascending"
        head.locator("button").press("Enter")
        assert titles(page) == ["Poor", "Good", "Middle", "Small"]
        assert head.get_attribute("aria-sort") == "descending"
        head.locator("button").press("ArrowLeft")
        assert page.evaluate("document.activeElement.closest('th').dataset.key") == "robustness_score"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        assert page.locator("thead .by").first.text_content() == "by score, background"
        ranks = page.locator(".panel:not([hidden]) td.rank").all_text_contents()
        assert len(ranks) == 4
        assert all(rank for rank in ranks)


def test_the_address_remembers_tab_order_and_filter(browser: Any, site: Path) -> None:
    with Opened(browser, (site / "index.html").as_uri()) as opened:
        page = opened.page
        page.locator("th[data-key=parameters] button").first.click()
        page.locator(".panel:not([hidden]) select[name=most]").select_option("25")
        page.locator(".panel:not([hidden]) input[name=q]").fill("m")
        assert titles(page) == ["Small", "Middle"]
        assert page.locator(".panel:not([hidden]) .count").text_content() == "2 of 4 entries"
        address = page.evaluate("location.href")  # page.url may be a moment behind
        page.goto("about:blank")
        page.goto(address)
        assert titles(page) == ["Small", "Middle"]
        assert page.locator("th[data-key=parameters]").first.get_attribute("aria-sort") == "ascending"
        page.locator("[role=tab][aria-selected=true]").first.focus()
        page.keyboard.press("ArrowRight")
        assert page.locator(".panel:not([hidden])").get_attribute("data-protocol") == "hard"
        assert page.evaluate("document.activeElement.textContent") == "Hard set"
        page.keyboard.press("End")
        assert page.locator(".panel:not([hidden])").get_attribute("data-protocol") == "dynamic"
        page.locator(".panel:not([hidden]) input[name=q]").fill("no one is called so")
        assert page.locator(".panel:not([hidden]) .none").is_visible()


def test_the_chart_has_intervals_and_the_front(browser: Any, site: Path) -> None:
    with Opened(browser, (site / "index.html").as_uri()) as opened:
        page = opened.page
        figure = page.locator(".panel:not([hidden]) .chart").first
        assert figure.locator("svg a").count() == 4
        assert figure.locator("svg a .reach").count() == 8
        figure.locator("select[name=x]").select_option("parameters")
        figure.locator("select[name=y]").select_option("mean_accuracy")
        front = figure.locator(".front").text_content()
        assert front.endswith("by the estimates: Small, Good.")
        assert figure.locator("svg a.on").count() == 2
        figure.locator("select[name=x]").select_option("speed on a made-up machine")
        assert figure.locator(".front").text_content().endswith("by the estimates: Small, Good.")
        page.locator(".panel:not([hidden]) input[name=q]").fill("middle")
        assert figure.locator("svg a").count() == 1


@pytest.mark.parametrize("width", [1400, 390])
def test_every_point_has_its_name_and_names_are_unbroken(browser: Any, tmp_path: Path, width: int) -> None:
    names = [f"python:resnet_variant_{number:02d}_strong" for number in range(14)]  # near each other, so names collide
    rows = [row for seed, name in enumerate(names) for row in static_rows(name, photos=12, seed=seed, share=0.8)]
    add(make_run(tmp_path / "run", rows), tmp_path / "board", None)
    page = build(tmp_path / "board", tmp_path / "site").page
    with Opened(browser, page.as_uri(), width) as opened:
        chart = opened.page.locator("figure.chart:visible").first
        drawn = chart.locator("text.who").all_inner_texts() or chart.locator("text.who").all_text_contents()
        nameless = [name for name in names if name in chart.locator(".front").inner_text().split("no room")[-1]]
        told = len(drawn) + (len(nameless) if "no room" in chart.locator(".front").inner_text() else 0)
        assert told == len(names) and (width < 700 or len(drawn) == len(names))
        heights = opened.page.evaluate(
            "[...document.querySelectorAll('.panel:not([hidden]) tbody th a')].map(a => a.getClientRects().length)"
        )
        assert set(heights[: len(names)]) == {1}


def test_a_dataset_whose_name_says_nothing_is_told_by_what_it_holds() -> None:
    assert Dataset(name="data", images=240, classes=12).title == "240 images of 12 classes"
    assert Dataset(name="data").title == "data" and Dataset(name="pets", images=240, classes=12).title == "pets"


@pytest.mark.parametrize("width", [1400, 390])
def test_two_chosen_models_are_compared_image_by_image(browser: Any, board: Path, site: Path, width: int) -> None:
    with Opened(browser, (site / "index.html").as_uri(), width) as opened:
        page = opened.page
        page.get_by_label("Compare Good").check()
        page.get_by_label("Compare Poor").check()
        page.locator(".chosen a").click()
        page.wait_for_selector(".compared tbody tr")
        tables = [pq.read_table(next(board.glob(f"python-{name}-*.parquet"))).to_pandas() for name in ("good", "poor")]
        good, poor = (table[table["condition"] == "grey"].sort_values("sample_id") for table in tables)
        wanted = paired_change(good["correct"], poor["correct"], good["source_id"])
        cells = page.locator(".compared tr[data-name=grey] td").all_text_contents()
        assert cells[0] == "40"
        assert cells[1:3] == [f"{100 * wanted[side]:.1f} %" for side in ("before", "after")]
        assert [int(cells[4]), int(cells[5])] == [wanted["lost"], wanted["gained"]]
        told = cells[3].replace("−", "-").replace("+", " ").replace("to", " ")
        reach = page.locator(".compared tr[data-name=grey] td .interval").text_content().replace("−", "-")
        low, high = (float(part) / 100 for part in reach.split(" to "))
        assert told.strip().startswith(f"{100 * wanted['estimate']:.1f}")
        assert (low, high) == pytest.approx((wanted["low"], wanted["high"]), abs=0.02)
        page.locator(".compared tr[data-name=grey] button").click()
        listed = page.locator(".listed tbody th").all_text_contents()
        both = good[good["correct"].to_numpy() & ~poor["correct"].to_numpy()]
        assert listed == list(both["sample_id"])
        said = page.locator(".listed tbody tr").first.locator("td").all_text_contents()
        assert said[0] in said[1]
        assert said[2].startswith("✗")
        again = page.evaluate("location.href")
        page.goto("about:blank")
        page.goto(again)
        page.wait_for_selector(".listed tbody th")
        assert page.locator(".listed tbody th").all_text_contents() == listed


def test_answers_that_cannot_be_read_are_told_of_while_they_are_chosen(browser: Any, site: Path) -> None:
    with Opened(browser, (site / "compare.html").as_uri()) as opened:
        page = opened.page
        page.wait_for_selector(".listed tbody th")
        page.evaluate(
            "() => { const { append } = document.head; window.held = [];"
            " document.head.append = (one) => held.push(() => append.call(document.head, one), one); }"
        )
        names = page.locator("select[name=b] option").evaluate_all("all => all.map(one => one.value)")
        lost, other = (name for name in names if name not in page.evaluate("location.hash"))
        page.locator("select[name=b]").select_option(lost)
        page.locator("select[name=b]").select_option(other)
        page.evaluate("() => { const [, one, go] = held; go(); window.lost = one; }")
        page.wait_for_selector(".listed tbody th")
        page.evaluate("() => lost.dispatchEvent(new Event('error'))")
        assert page.locator(".status").text_content() == ""


def test_hostile_names_are_text_everywhere(browser: Any, tmp_path: Path) -> None:
    rows = []
    for number, name in enumerate(HOSTILE[:3]):
        for row in static_rows(name, photos=9, seed=number):
            row["sample_id"] = row["source_id"] = f"{row['sample_id']}{HOSTILE[1]}"
            for column in ("label", "prediction", "prediction_restricted", "donor_label"):
                if row.get(column):
                    row[column] = HOSTILE[("dog", "fox", "whale").index(row[column]) + 3]
            rows.append(row | {"dataset": HOSTILE[0], "topk": [row["prediction"]]})
    add(make_run(tmp_path / "run", rows), tmp_path / "board")
    page_path = build(tmp_path / "board", tmp_path / "site", title=HOSTILE[2], printed=False).page
    with Opened(browser, page_path.as_uri()) as opened:
        page = opened.page
        assert sorted(titles(page)) == sorted(HOSTILE[:3])
        assert page.locator("h1").text_content() == HOSTILE[2]
        for path in sorted((tmp_path / "site" / "models").glob("*.html")):
            page.goto(path.as_uri())
            text = page.locator("main").text_content()
            assert all(name in text for name in HOSTILE[3:])
        page.goto((tmp_path / "site" / "compare.html").as_uri())
        page.wait_for_selector(".listed tbody th")
        assert HOSTILE[1] in page.locator("main").text_content()
        assert page.locator("main script, main img, [onerror], [onmouseover], a[href^=javascript]").count() == 0


def test_without_scripts_every_table_can_be_read(browser: Any, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    assert page.locator(".panel:visible").count() == page.locator(".panel").count() > 3
    assert page.locator(".panel").first.locator("tbody tr:visible").count() == 4
    context.close()


def test_axe_finds_nothing_serious(browser: Any, site: Path) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    for file in sorted(site.glob("*.html")):
        page.goto(file.as_uri())
        assert (file.name, serious(page)) == (file.name, [])
    page.close()


def test_paper_has_the_open_table_whole(browser: Any, site: Path) -> None:
    with Opened(browser, (site / "index.html").as_uri(), 718) as opened:  # A4 between its margins
        opened.page.emulate_media(media="print")
        assert opened.page.locator(".panel:visible").count() == 1
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 718
        box = opened.page.locator(".panel:visible .table").first
        assert box.evaluate("one => one.scrollWidth <= one.clientWidth + 1")


def test_many_datasets_long_names_and_nothing_known_of_the_models(browser: Any, tmp_path: Path) -> None:
    names = ["M" * 200, "\u05de\u05d5\u05d3\u05dc 123 (v2)"]
    for number in range(12):
        rows = [row | {"dataset": f"a-dataset-of-pictures-{number:02d}", "sample_id": f"{number}/{row['sample_id']}",
                       "source_id": f"{number}/{row['source_id']}"}
                for name in (names if number == 0 else [f"python:{number}"]) for row in
                static_rows(name, photos=6, seed=number + len(name))]  # fmt: skip
        add(make_run(tmp_path / f"run{number}", rows), tmp_path / "board")
    index = build(tmp_path / "board", tmp_path / "site", printed=False).page
    with Opened(browser, index.as_uri(), 390) as opened:
        page = opened.page
        tabs = page.locator(".datasets button")
        assert tabs.count() == 12
        assert len(set(tabs.evaluate_all("all => all.map(one => one.offsetTop)"))) == 1  # one line
        assert sorted(titles(page)) == sorted(names)
        assert page.locator(".panel:not([hidden]) select[name=most]").count() == 0  # no sizes to filter by
        assert page.locator(".panel:not([hidden]) th[data-key=speed]").count() == 0
        tabs.first.focus()
        page.keyboard.press("End")
        last = tabs.last.bounding_box()
        assert 0 <= last["x"] <= 390 - last["width"]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.goto((tmp_path / "site" / "compare.html").as_uri())
        page.wait_for_selector(".compared tbody th")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
