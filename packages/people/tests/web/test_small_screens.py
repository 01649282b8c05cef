"""Review and annotate on small screens: what is told, how large the image is, and what stays on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
from annotate_world import Artist, silent
from review_world import Reviewer, campaign
from sqlalchemy import insert, update

from holdfast_people.campaigns import usual_minutes
from holdfast_people.tables import people, tasks, votes
from holdfast_people.web.services.mask_editing import take_in
from web_server import Serving

LONG = "n02099601_golden_retriever/IMG_20230401-edited"


def test_review_on_a_phone(browser: Any, server: Serving, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    server.log_in(context)
    campaign_id = campaign(server.state, tmp_path)
    with server.state.database.writing() as connection:
        connection.execute(insert(people).values(name="Dr Grey", role="admin", created_at=0.0))
    person = Reviewer(context.new_page(), server.url, campaign_id, server.state)
    person.open()
    person.state("intro")
    about = person.page.locator(".about").inner_text()
    assert "Dr Grey" in about and "to test vision models" in about and "2 taps an image" in about
    assert person.page.locator(".top").bounding_box()["height"] <= 52
    person.examples()
    person.at("Image 1")
    assert not person.page.locator(".top").is_visible()
    figure = person.page.locator("figure").bounding_box()
    assert figure["height"] > 0.6 * 844 and figure["width"] > 0.9 * 390
    person.page.set_viewport_size({"width": 390, "height": 420})  # lower than the page, so that it scrolls
    person.page.evaluate("scrollTo(0, 500)")
    assert person.page.evaluate("scrollY") > 0
    person.judge(1)
    person.at("Image 2")
    assert person.page.evaluate("scrollY") == 0
    person.page.get_by_role("link", name="Leave").tap()
    person.page.get_by_text("You have begun a set.").wait_for()


def test_the_time_of_others_is_told_once_there_are_some(browser: Any, server: Serving, tmp_path: Path) -> None:
    context = browser.new_context()
    server.log_in(context)
    campaign_id = campaign(server.state, tmp_path)
    person = Reviewer(context.new_page(), server.url, campaign_id, server.state)
    person.open()
    person.examples()
    for number in range(1, 9):
        person.judge(number)
    person.state("review")
    with server.state.database.writing() as connection:
        connection.execute(update(votes).values(seconds=15.0))  # eight images: two minutes
        assert usual_minutes(connection, campaign_id, least=1) is None  # nothing was sent yet
        connection.execute(update(tasks).values(status="finished"))
        assert usual_minutes(connection, campaign_id) is None
        assert usual_minutes(connection, campaign_id, least=1) == (2, 2)


def test_long_names_leave_done_on_the_screen(browser: Any, server: Serving, tmp_path: Path) -> None:
    path = tmp_path / "data" / f"{LONG}{'-again' * 20}.png"
    path.parent.mkdir(parents=True)
    cv2.imwrite(str(path), np.full((120, 160, 3), 90, np.uint8))
    set_id = take_in(server.state, str(tmp_path / "data"), masks=tmp_path / "m", guide="grabcut", progress=silent)
    artist = Artist(browser, server, set_id).open(1)
    for width in (1400, 1100, 900, 720, 390, 320):
        artist.page.set_viewport_size({"width": width, "height": 844})
        for name in ("finish", "later"):
            box = artist.page.locator(f"header [data-do={name}]").bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width, (width, name, box)
        assert artist.page.locator(".stage canvas").bounding_box()["width"] <= width
        assert artist.page.evaluate("document.documentElement.scrollWidth") <= width
    assert LONG in artist.page.locator(".title").get_attribute("title")
