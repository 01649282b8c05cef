"""The annotate page when answers come in an unlucky order; each order is made, none is waited for."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from annotate_world import HEIGHT, WIDTH, Artist, stored, stroke

from browsing import ANSWERS, Held, acted
from holdfast.data.writers import mask_rle
from web_server import Serving

THEIRS = stroke((20, 20), (60, 20))


def shown(artist: Artist) -> str:
    return str(artist.page.locator("#annotate").get_attribute("data-image"))


def somebody_saves(server: Serving) -> None:
    """A mask of image 1, by another person."""
    work = {"base": 0, "height": HEIGHT, "width": WIDTH, "counts": mask_rle(THEIRS)}
    server.client(name="Ben").put("/api/annotate/masks/1", json=work).raise_for_status()


def test_a_stroke_stays_on_its_image_and_whole(artist: Artist, tmp_path: Path) -> None:
    page = artist.page
    # A rough mask arrives while the brush is down.
    rough = Held(page, "**/rough")
    page.evaluate(ANSWERS)
    artist.press("r")
    artist.drag((45, 25), (115, 95))
    question = rough.next()
    artist.press("b")
    page.mouse.move(*artist.at(30, 40))
    page.mouse.down()
    page.mouse.move(*artist.at(90, 71))
    question.continue_()
    acted(page, "/rough")
    page.mouse.move(*artist.at(100, 20))
    page.mouse.up()
    artist.saved()
    assert np.array_equal(stored(tmp_path), stroke((30, 40), (90, 71), (100, 20)))
    artist.press("Control+z")
    artist.page.wait_for_selector("[data-do=undo]:disabled")
    artist.saved()
    assert not stored(tmp_path).any(), "the stroke is the only step"
    # Another image is opened while the brush is down.
    page.mouse.move(*artist.at(30, 40))
    page.mouse.down()
    page.mouse.move(*artist.at(90, 71))
    artist.press("PageDown")
    artist.ready(2)
    page.mouse.move(*artist.at(100, 20))
    page.mouse.up()
    assert page.locator("[data-do=undo]").is_disabled(), "nothing was drawn on the second image"
    artist.saved()
    assert np.array_equal(stored(tmp_path), stroke((30, 40), (90, 71)))
    assert not stored(tmp_path, "ball/1").any()


@pytest.mark.slow
def test_the_image_that_was_chosen_last_is_shown(artist: Artist) -> None:
    page = artist.page
    page.wait_for_selector("[data-part=list] ol [aria-current]")
    page.evaluate(ANSWERS)
    following = Held(page, "**/next?*")
    artist.press("n")
    question = following.next()
    page.locator("[data-part=list] ol button").last.click()
    artist.ready(3)
    question.continue_()
    acted(page, "/next")
    assert page.evaluate("() => location.hash") == "#3"
    # The same where an image could not be opened and is tried again after a while.
    page.clock.install()
    page.clock.pause_at(time.time() + 3600)
    images = Held(page, "**/api/annotate/masks/*")
    page.evaluate("() => { location.hash = '#1'; }")
    images.next().abort()
    page.wait_for_selector("[data-part=message]:has-text('could not be opened')")
    page.evaluate("() => { location.hash = '#2'; }")
    second = images.next()
    page.clock.run_for(5000)
    images.stop()
    second.continue_()
    page.wait_for_selector("#annotate[data-image='1'], #annotate[data-image='2']", state="attached")
    assert shown(artist) == "2"
    artist.troubles.clear()  # the browser's own line about the request that failed


@pytest.mark.slow
def test_a_decision_is_asked_for_on_its_own_image_and_once(artist: Artist, server: Serving, tmp_path: Path) -> None:
    page = artist.page
    dialog = page.get_by_role("dialog")
    page.evaluate(ANSWERS)
    somebody_saves(server)
    versions = Held(page, "**/versions/*")
    artist.drag((30, 90), (90, 91))
    question = versions.next()  # about their mask, which is to be shown next to this one
    images = Held(page, "**/api/annotate/masks/2", "GET")
    artist.press("n")
    opening = images.next()
    question.continue_()
    acted(page, "/versions/")
    assert not dialog.is_visible()
    opening.continue_()
    artist.ready(2)
    images.stop()
    assert not dialog.is_visible()
    artist.drag((30, 30), (90, 31))
    artist.saved()
    versions.stop()
    # Back on the first image; a second stroke is on its way when they decide.
    page.evaluate("() => { location.hash = '#1'; }")
    artist.ready(1)
    dialog.get_by_role("button", name="Take mine").wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    puts = Held(page, "**/api/annotate/masks/1", "PUT")
    artist.drag((30, 100), (90, 101))
    first = puts.next()
    artist.drag((30, 110), (90, 111))
    first.continue_()
    dialog.get_by_role("button", name="Take theirs").wait_for()
    second = puts.next()
    dialog.get_by_role("button", name="Take theirs").click()
    page.wait_for_selector("#annotate[data-saved=true]", state="attached")
    page.evaluate("() => { window.answers = []; }")
    second.continue_()
    acted(page, "/masks/1")
    page.wait_for_selector("#saving", state="hidden")
    puts.stop()
    assert not dialog.is_visible(), "they have decided"
    artist.press("Shift+D")
    artist.saved()
    assert np.array_equal(stored(tmp_path), THEIRS)
    artist.troubles = [words for words in artist.troubles if "409" not in words]


@pytest.mark.slow
def test_comparing_ends_when_it_is_ended(artist: Artist, server: Serving) -> None:
    page = artist.page
    page.wait_for_selector("[data-part=list] ol [aria-current]")
    page.evaluate(ANSWERS)
    counts = Held(page, "**/api/annotate/sets/1")
    artist.drag((30, 40), (90, 71))
    artist.saved()
    counts.next().continue_()
    acted(page, "/sets/1")
    artist.press("Shift+D")
    artist.saved()
    early = counts.next()
    answer = early.fetch()
    artist.drag((30, 90), (90, 91))
    artist.saved()
    counts.next().continue_()
    acted(page, "/sets/1", 2)
    early.fulfill(response=answer)
    acted(page, "/sets/1", 3)
    assert page.locator("[data-progress]").inner_text() == "0 of 3 done", "the newest count is the last word"
    versions = Held(page, "**/versions/*")
    artist.press("c")
    question = versions.next()
    artist.press("Escape")
    question.continue_()
    acted(page, "/versions/")
    assert page.locator("[data-part=comparing]").is_hidden()
    assert page.locator("[data-do=compare]").get_attribute("aria-pressed") == "false"


def test_images_that_are_opened_again_before_their_masks_arrived(artist: Artist, tmp_path: Path) -> None:
    """The questions for two masks overtake the strokes' saves, and are answered after them."""
    page = artist.page
    first, second = ((30, 40), (90, 71)), ((20, 90), (60, 90))
    puts = Held(page, "**/api/annotate/masks/*", "PUT")
    artist.drag(*first)
    save = puts.next()
    page.evaluate("() => { location.hash = '#2'; }")
    artist.ready(2)
    artist.drag(*second)
    images = Held(page, "**/api/annotate/masks/1", "GET")
    page.evaluate("() => { location.hash = '#1'; }")
    question = images.next()
    answer = question.fetch()  # without the stroke
    save.continue_()
    puts.next().continue_()
    page.wait_for_selector("#saving:text-is('saved')")
    question.fulfill(response=answer)
    artist.ready(1)
    for held in (puts, images):
        held.stop()
    artist.drag((30, 100), (90, 101))
    artist.saved()
    assert not page.get_by_role("dialog").is_visible(), "no one is in conflict with themselves"
    assert np.array_equal(stored(tmp_path), stroke(*first) | stroke((30, 100), (90, 101)))
    assert np.array_equal(stored(tmp_path, "ball/1"), stroke(*second))
