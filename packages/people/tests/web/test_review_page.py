"""The review page in a real browser: by key and by tap, forth and back, with the server and without it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from review_world import SMALL, Reviewer, answer_sheet, campaign, counts, standing
from sqlalchemy import func, select

from holdfast_people.tables import votes
from holdfast_people.web.services.server_state import ServeOptions, ServerState, open_server
from web_server import Serving, server_process, serving

YES = {"recognisable": "yes", "usable": "yes"}
NO = {"recognisable": "no", "usable": "no"}


def reviewer(browser: Any, server: Serving, campaign_id: int, **context: Any) -> Reviewer:
    opened = browser.new_context(**({"viewport": {"width": 1400, "height": 900}} | context))
    server.log_in(opened)
    return Reviewer(opened.new_page(), server.url, campaign_id, server.state)


def all_votes(state: ServerState) -> int:
    with state.database.reading() as connection:
        return int(connection.scalar(select(func.count()).select_from(votes)) or 0)


def test_a_whole_task_by_keys(browser: Any, server: Serving, tmp_path: Path) -> None:
    began = time.monotonic()
    one = reviewer(browser, server, campaign(server.state, tmp_path))
    one.open()
    one.examples()
    one.at("Image 1")
    one.fetched(3)
    ahead = [request for request in one.requests if request.startswith("/media/places/")]
    assert len(ahead) == 3, "the first image and the next two"
    tokens = [one.judge(number) for number in range(1, 9)]
    one.state("review")
    assert counts(server.state).count((1, 0)) == 4, "nothing counts before the set is sent"
    one.press("Enter")
    assert one.state("finished", "discarded") == "finished"
    cast = standing(server.state)
    roles = answer_sheet(server.state)
    assert [vote["token"] for vote in cast] == tokens
    assert [vote["answers"] for vote in cast] == [YES if roles[token][1] else NO for token in tokens]
    elapsed = time.monotonic() - began
    assert all(vote["seconds"] > 0 for vote in cast) and sum(vote["seconds"] for vote in cast) < elapsed
    assert sorted(counts(server.state)) == [(0, 0)] * 8 + [(0, 1)] * 4
    assert one.page.get_by_text("Your answers are counted.").is_visible() and not one.troubles
    # The next set has other images; after it, and one more, this person has seen all twelve.
    for _ in range(2):
        one.page.get_by_role("button", name="Another set", exact=True).click()
        one.examples()
        for number in range(1, 9):
            one.judge(number)
        one.state("review")
        one.page.get_by_role("button", name="Send the set").click()
        one.state("finished")
    one.page.get_by_role("button", name="Another set", exact=True).click()
    one.state("nothing")
    assert one.page.get_by_text("You have had all images that are left; they wait for others.").is_visible()
    assert sorted(counts(server.state)) == [(0, 1)] * 12
    one.page.goto(f"{server.url}/review")
    assert one.page.get_by_text("You have finished 3 sets.").is_visible()


def test_by_tap_on_a_phone_and_the_way_back(browser: Any, server: Serving, tmp_path: Path) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    one = reviewer(browser, server, campaign(server.state, tmp_path, kind="oracle"), **phone)
    page = one.page
    one.open()
    one.state("intro")
    page.get_by_role("button", name="Begin").tap()
    for number, answer in ((1, "No"), (2, "No")):  # the first is wrong, and the page says so
        one.at(f"Example {number}")
        page.get_by_role("button", name=answer).tap()
        page.get_by_text("Not quite." if number == 1 else "That is right.").wait_for()
        page.get_by_role("button", name="Continue").tap()
    tokens = []
    for number in range(1, 9):
        tokens.append(one.at(f"Image {number}"))
        box = page.get_by_role("button", name="Yes").bounding_box()
        assert box["height"] >= 48 and box["width"] >= 120 and box["y"] + box["height"] <= 844
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("button", name="Yes" if answer_sheet(server.state)[tokens[-1]][1] else "No").tap()
        if number == 3:  # changes their mind about the second image, forth and back
            one.at("Image 4")
            page.get_by_role("button", name="The image before").tap()
            one.at("Image 3")
            page.get_by_role("button", name="The image before").tap()
            one.at("Image 2")
            assert (
                page.get_by_role("button", name="Yes", pressed=True).count()
                + page.get_by_role("button", name="No", pressed=True).count()
                == 1
            )
            page.get_by_role("button", name="The next image").tap()
            one.at("Image 3")
            page.get_by_role("button", name="The next image").tap()
    one.state("review")
    page.get_by_role("button", name="Back to the images").tap()
    one.at("Image 8")
    assert page.get_by_role("button", name="The next image").is_enabled()
    # The answer about an image that is shown once: changing it costs nothing else.
    roles = answer_sheet(server.state)
    with server.state.database.reading() as connection:
        from holdfast_people.tables import places

        twice = set(connection.scalars(select(places.c.repeats).where(places.c.repeats.is_not(None))))
        ids = dict(connection.execute(select(places.c.token, places.c.id)).all())
    once = next(n for n, token in enumerate(tokens) if roles[token][0] == "judge" and ids[token] not in twice)
    for number in range(7, once, -1):
        page.get_by_role("button", name="The image before").tap()
        one.at(f"Image {number}")
    page.get_by_role("button", name="No").tap()
    for number in range(once + 2, 9):
        one.at(f"Image {number}")
        page.get_by_role("button", name="The next image").tap()
    one.state("review")
    page.get_by_role("button", name="Send the set").tap()
    assert one.state("finished", "discarded") == "finished"
    cast = {vote["token"]: vote for vote in standing(server.state)}
    assert cast[tokens[once]]["answers"] == {"shows": "no"} and all_votes(server.state) == 9
    assert [cast[token]["answers"]["shows"] == "yes" for token in tokens] == [
        roles[token][1] and token != tokens[once] for token in tokens
    ]
    assert not one.troubles


def test_a_failed_control_discards_the_set_and_others_get_its_pictures(
    browser: Any, server: Serving, tmp_path: Path
) -> None:
    number = campaign(server.state, tmp_path, each=2, settings=replace(SMALL, people_per_image=1, images_per_task=10))
    careless, careful = reviewer(browser, server, number), reviewer(browser, server, number)
    careless.open()
    careless.examples()
    roles = {}
    for place in range(1, 11):
        token = careless.at(f"Image {place}")
        roles = answer_sheet(server.state)
        careless.judge(place, lie=roles[token][0] == "negative")
    careless.state("review")
    careful.open()
    careful.state("nothing")
    assert careful.page.get_by_text("some may come back later").is_visible()
    careless.press("Enter")
    assert careless.state("finished", "discarded") == "discarded"
    said = careless.page.locator("[data-show=discarded]").inner_text()
    assert "could not be counted" in said and "control images" in said
    assert not any(word in said.lower() for word in ("negative", "positive", "disc", "square", "cross", "image 1"))
    assert counts(server.state) == [(0, 0)] * 6
    careless.page.get_by_text("Try another set").click()
    careless.state("nothing")
    careful.open()
    careful.examples()
    for place in range(1, 11):
        careful.judge(place)
    careful.state("review")
    careful.press("Enter")
    careful.state("finished")
    assert counts(server.state) == [(0, 1)] * 6
    careful.page.get_by_role("button", name="Another set", exact=True).click()
    careful.page.get_by_text("All images of this campaign have been judged.").wait_for()
    assert not careless.troubles and not careful.troubles


def test_two_people_at_once(browser: Any, server: Serving, tmp_path: Path) -> None:
    number = campaign(server.state, tmp_path, settings=replace(SMALL, people_per_image=1))
    both = [reviewer(browser, server, number) for _ in range(2)]
    for one in both:
        one.open()
        one.examples()
    for place in range(1, 9):
        for one in both:
            one.judge(place)
    for one in both:
        one.state("review")
        one.press("Enter")
        one.state("finished")
    judged = [vote for vote in standing(server.state) if vote["role"] == "judge"]
    assert len(judged) == 8 and len({vote["item_id"] for vote in judged}) == 8, "no one got what the other had"
    assert sorted(counts(server.state)) == [(0, 0)] * 4 + [(0, 1)] * 8


def test_a_naturalness_campaign_by_number_keys(browser: Any, server: Serving, tmp_path: Path) -> None:
    one = reviewer(browser, server, campaign(server.state, tmp_path, kind="naturalness"))
    one.open()
    one.examples(yes="4", no="1", questions=1)
    for place in range(1, 9):
        token = one.at(f"Image {place}")
        role, natural = answer_sheet(server.state)[token]
        # Two answers to one image may be a step apart.
        one.press(("3" if role == "repeat" else "4") if natural else "2")
    one.state("review")
    one.press("Enter")
    assert one.state("finished", "discarded") == "finished"
    assert {vote["answers"]["natural"] for vote in standing(server.state)} == {"2", "3", "4"}


def test_time_runs_out(browser: Any, tmp_path: Path) -> None:
    shift = [0.0]
    with serving(tmp_path / "state", clock=lambda: time.time() + shift[0]) as server:
        number = campaign(server.state, tmp_path, each=2, settings=replace(SMALL, people_per_image=1, minutes=30))
        one = reviewer(browser, server, number)
        one.open()
        one.examples()
        first = [one.judge(place) for place in (1, 2)]
        one.at("Image 3")
        shift[0] = 1900.0
        # The vote comes too late; the images are still wanted, so the set is opened again and the vote sent again.
        third = one.judge(3)
        one.at("Image 4")
        one.page.wait_for_function("() => document.getElementById('saving').textContent === 'saved'")
        fourth = one.judge(4)
        one.at("Image 5")
        one.page.wait_for_function("() => document.getElementById('saving').textContent === 'saved'")
        assert [vote["token"] for vote in standing(server.state)] == [*first, third, fourth]
        # Once more, and now someone else has taken them.
        shift[0] = 4000.0
        other = server.client()
        assert other.post(f"/api/review/campaigns/{number}/task").json()["task"] is not None
        # The page's timers stand still, as on a machine that is too busy for them: its move from image 5 to 6 waits.
        one.page.clock.install()
        one.page.clock.pause_at(time.time() + 3600)
        one.judge(5)
        one.state("expired")
        assert one.page.get_by_text("The time for this set is over").is_visible()
        assert len(standing(server.state)) == 4
        one.page.get_by_text("Begin a new set").click()
        assert one.state("intro", "nothing") == "intro"
        one.page.clock.resume()
        one.page.clock.run_for(1000)
        assert one.state("intro", "picture") == "intro"


@pytest.mark.slow
def test_a_killed_server_loses_nothing_and_counts_nothing_twice(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    state = open_server(ServeOptions(state=folder))
    try:
        number = campaign(state, tmp_path)
        with server_process(folder) as first:
            port = int(first.url.rpartition(":")[2])
            context = browser.new_context()
            page = context.new_page()
            page.goto(first.link)
            page.get_by_role("textbox").fill("Ada")
            page.get_by_role("button").last.click()
            one = Reviewer(page, first.url, number, state)
            one.open()
            one.examples()
            tokens = [one.judge(place) for place in (1, 2)]
            one.at("Image 3")
            page.wait_for_function("() => document.getElementById('saving').textContent === 'saved'")
            one.fetched(5)
            first.kill()
            tokens += [one.judge(place) for place in (3, 4)]  # the next two images are there already
            one.at("Image 5")
            page.wait_for_function("() => document.getElementById('saving').textContent.startsWith('not saved yet')")
            assert all_votes(state) == 2
        with server_process(folder, port=port) as second:
            page.evaluate("() => dispatchEvent(new Event('online'))")  # else it tries again after a growing pause
            page.wait_for_function("() => document.getElementById('saving').textContent === 'saved'")
            assert all_votes(state) == 4
            second.kill()
            tokens.append(one.judge(5))
            page.wait_for_function("() => document.getElementById('saving').textContent.startsWith('not saved yet')")
            page.goto("about:blank")
        with server_process(folder, port=port) as third:
            one.open()  # what this browser kept is sent, and the set continues behind it
            tokens += [one.judge(place) for place in (6, 7, 8)]
            one.state("review")
            page.wait_for_function("() => document.getElementById('saving').textContent === 'saved'")
            third.kill()
            one.press("Enter")
            page.wait_for_function("() => document.getElementById('saving').textContent.startsWith('not saved yet')")
            page.goto("about:blank")
        with server_process(folder, port=port):
            one.open()  # the set was to be sent, and is; the page says how it ended
            assert one.state("finished", "discarded") == "finished"
        cast = standing(state)
        assert [vote["token"] for vote in cast] == tokens and len(set(tokens)) == 8
        assert all_votes(state) == 8
        assert sorted(counts(state)) == [(0, 0)] * 8 + [(0, 1)] * 4
    finally:
        state.close()
