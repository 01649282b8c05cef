"""Images of a page in a real browser: opened large, walked through by keys, shared by address, filtered; A4 print."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
from made_runs import make_run
from playwright.sync_api import expect

from browsing import a_browser, serious
from holdfast.reports import build
from holdfast.reports.page.tables import Column, Table, as_csv, as_latex, model_column
from holdfast.store import Run

SHOWN = ["original", "same_class_background", "random_background", "grey"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer")
    run = make_run(folder / "run", photos=3, conditions=SHOWN)
    jpeg = cv2.imencode(".jpg", np.full((64, 64, 3), 90, np.uint8))[1].tobytes()

    def pictures(
        _: Run, source_ids: Collection[str], *, size: int = 160, only: Collection[str] = ()
    ) -> dict[tuple[str, str], bytes]:
        return {(source, condition): jpeg for source in source_ids for condition in SHOWN}

    return build([run], folder / "report", resamples=50, pictures=pictures)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as opened:
        yield opened


@pytest.mark.parametrize(("width", "dark"), [(1400, "light"), (390, "dark")])
def test_an_image_opens_and_keys_lead_on(browser: Any, page: Path, width: int, dark: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=dark, offline=True)
    opened = context.new_page()
    troubles: list[str] = []
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.goto(f"{page.as_uri()}#gallery")
    tiles = opened.locator("#gallery .tile")
    tiles.first.locator("img").press("Enter")
    viewer = opened.locator("#viewer")
    assert viewer.is_visible() and "original" in viewer.locator("h2").inner_text()
    assert viewer.locator(".confidence").count() == viewer.locator(".answers li").count() > 0
    assert viewer.locator(".others li").count() == len(SHOWN)
    opened.keyboard.press("ArrowRight")
    assert "original" not in viewer.locator("h2").inner_text() and "#image=gallery-2" in opened.url
    photo = viewer.locator("h2").inner_text()
    opened.keyboard.press("ArrowDown")
    assert viewer.locator("h2").inner_text() != photo
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert not serious(opened)
    shared = opened.url
    opened.keyboard.press("Escape")
    expect(opened).not_to_have_url(re.compile("#image"))  # once the dialog has told the page that it is closed
    assert not viewer.is_visible()
    again = context.new_page()
    again.goto(shared)
    assert again.locator("#viewer").is_visible()
    assert not troubles
    context.close()


def test_a_gallery_is_filtered_by_class_condition_model_and_outcome(browser: Any, page: Path) -> None:
    opened = browser.new_page()
    opened.goto(f"{page.as_uri()}#gallery")
    form = opened.locator("#gallery .filters")
    form.locator("[name=condition]").select_option("random background")
    seen = opened.locator("#gallery .tile:visible")
    assert {tile.get_attribute("data-caption") for tile in seen.all()} == {"random background"}
    form.locator("[name=prediction]").select_option("wrong")
    form.locator("[name=model]").select_option("second")
    for tile in seen.all():
        assert tile.locator("li.wrong[data-who=second]").count() == 1
    assert form.locator("output").inner_text().startswith(f"{seen.count()} of ")
    form.locator("[name=confidence]").select_option("90 % or more")
    percents = [
        int(tile.locator("li.wrong[data-who=second] .confidence").text_content().split()[0]) for tile in seen.all()
    ]
    few = seen.count()
    form.locator("[name=confidence]").select_option("")
    assert all(percent >= 90 for percent in percents) and few < seen.count()
    form.locator("[name=prediction]").select_option("")
    label = form.locator("[name=class] option").nth(1).get_attribute("value")
    form.locator("[name=class]").select_option(label)
    assert {photo.get_attribute("data-label") for photo in opened.locator("#gallery .photo:visible").all()} == {label}
    opened.close()


def test_print_is_a4_with_a_section_per_page(browser: Any, page: Path) -> None:
    opened = browser.new_page()
    opened.goto(page.as_uri())
    opened.emulate_media(media="print")
    second = opened.locator("main > section").nth(1)
    assert second.evaluate("element => getComputedStyle(element).breakBefore") == "page"
    assert opened.locator("button.copy:visible").count() == 0
    opened.close()


def test_csv_leaves_out_columns_without_a_value() -> None:
    frame = pd.DataFrame(
        {"model": ["a", "b"], "nothing": [np.nan, np.nan], "some": [np.nan, 0.5], "none": [None, None]}
    )
    assert as_csv(frame) == "model,some\na,\nb,0.5\n"
    assert as_csv(frame.iloc[:0]) == "model,nothing,some,none\n"


def test_latex_names_the_only_model_and_leaves_out_what_is_empty() -> None:
    import pandas as pd

    frame = pd.DataFrame({"model": ["one"], "accuracy": [0.5], "nothing": [float("nan")]})
    columns = [model_column({"one": "one"}), Column("accuracy", "Accuracy", "percent"), Column("nothing", "Nothing")]
    table = Table("t", "T", frame, columns)
    assert [column.title for column in table.heads] == ["Accuracy"]
    assert "Model & Accuracy" in as_latex(table) and "Nothing" not in as_latex(table)
