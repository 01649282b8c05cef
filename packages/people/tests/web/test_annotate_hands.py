"""What hands do on the annotate page besides drawing: pinch, press twice, use other keyboards and small screens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from annotate_world import Artist, open_set, scene, silent, stored, stroke

from browsing import Held
from holdfast_people.web.services.mask_editing import take_in
from web_server import Serving, serving

ASKED = """() => {
    const before = window.fetch;
    window.asked = 0;
    window.fetch = (url, options) => { window.asked += url.includes("/next"); return before(url, options); };
}"""
"""Run in a page: from then on ``asked`` says how often it asked for the next image."""


@pytest.fixture
def phone(browser: Any, server: Serving, tmp_path: Path) -> Iterator[Artist]:
    small = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    one = Artist(browser, server, open_set(server.state, tmp_path), **small).open(1)
    yield one
    assert not one.troubles
    one.context.close()


def test_a_pinch_is_no_tap(phone: Artist, tmp_path: Path) -> None:
    session = phone.context.new_cdp_session(phone.page)
    asked: list[str] = []
    phone.page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/rough") else None)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        places = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    for tool in ("inside", "fill", "polygon"):
        phone.tool(tool)
        (left, middle), (right, _) = phone.at(60, 60), phone.at(100, 60)
        for _ in range(3):  # three corners would be a polygon
            touch("touchStart", (left, middle))
            touch("touchStart", (left, middle), (right, middle))
            touch("touchMove", (left, middle + 9), (right, middle - 9))
            touch("touchEnd")
            left, middle = left + 20, middle + 30
        if tool == "polygon":
            phone.page.keyboard.press("Enter")
        assert not asked and phone.page.locator("[data-do=undo]").is_disabled(), tool
    # A tap still is one, and the only step.
    phone.page.keyboard.press("0")
    phone.tool("fill")
    phone.page.touchscreen.tap(*phone.at(10, 10))
    phone.saved()
    assert stored(tmp_path).all()
    phone.page.tap("[data-do=undo]")
    phone.page.wait_for_selector("[data-do=undo]:disabled")


def test_the_list_on_a_phone_opens_and_closes(phone: Artist, tmp_path: Path) -> None:
    images = phone.page.locator("[data-part=list]")
    phone.page.get_by_role("button", name="Images").tap()
    images.wait_for()
    phone.page.get_by_role("button", name="Close").tap()
    images.wait_for(state="hidden")
    phone.page.get_by_role("button", name="Images").tap()
    images.wait_for()  # a tap is a click a moment later
    phone.page.keyboard.press("Escape")
    images.wait_for(state="hidden")
    # What is next to it closes it, and draws nothing.
    phone.page.get_by_role("button", name="Images").tap()
    images.wait_for()
    phone.page.touchscreen.tap(385, 400)
    images.wait_for(state="hidden")
    assert phone.page.locator("[data-do=undo]").is_disabled() and not stored(tmp_path).any()
    # What the narrow head has no room for is there.
    phone.page.get_by_role("button", name="Images").tap()
    images.get_by_role("button", name="Next unfinished").tap()
    phone.ready(2)
    images.wait_for(state="hidden")


def test_keys_after_a_click_on_a_button_are_the_pictures(artist: Artist, tmp_path: Path) -> None:
    artist.page.get_by_role("button", name="Brush").click()
    x, y = artist.at(80, 60)
    artist.page.mouse.move(x, y)
    artist.page.keyboard.down("Space")
    artist.page.mouse.down()
    artist.page.mouse.move(x + 60, y + 30)
    artist.page.mouse.up()
    artist.page.keyboard.up("Space")
    assert artist.page.locator("[data-do=undo]").is_disabled(), "Space and drag moves the image, whatever was clicked"
    artist.press("0", "Shift+ArrowRight", "Enter", "Enter")
    artist.saved()
    assert np.array_equal(stored(tmp_path), stroke((81, 60)))
    # Someone without a mouse stays where they are.
    grow = artist.page.locator("[data-do=grow]")
    grow.focus()
    artist.press("Enter")
    assert grow.evaluate("button => button === document.activeElement")


def test_the_list_by_keys(artist: Artist, tmp_path: Path) -> None:
    focused = artist.page.locator("[data-part=list] ol button:focus")
    artist.page.wait_for_selector("[data-part=list] ol [aria-current]")
    artist.press("l")
    assert focused.get_attribute("data-id") == "1"
    artist.press("l")
    assert focused.count() == 0
    artist.press("l", "Tab", "Enter")
    artist.ready(2)
    artist.press("Enter", "Enter")  # which are the image's again
    artist.saved()
    assert np.array_equal(stored(tmp_path, "ball/1"), stroke((80, 60)))


def test_brackets_of_other_keyboards(artist: Artist) -> None:
    """Option-5 on a Mac, AltGr-8 on Windows: that is how Germans type [."""
    size = artist.page.locator("[data-part=diameter]")
    before = size.inner_text()
    for held in ({"altKey": True}, {"altKey": True, "ctrlKey": True, "modifierAltGraph": True}):
        for key in ("[", "]"):
            artist.page.evaluate(
                "event => document.body.dispatchEvent(new KeyboardEvent('keydown', event))",
                {"key": key, "bubbles": True, **held},
            )
            assert (size.inner_text() == before) == (key == "]")


def test_done_twice_is_done_once(artist: Artist) -> None:
    saves = Held(artist.page, "**/api/annotate/masks/1", "PUT")
    artist.page.evaluate(ASKED)
    artist.press("d")
    first = saves.next()
    artist.page.evaluate("""() => {
        const before = window.fetch;
        window.fetch = async (url, options) => {
            if (url.includes("/next")) {
                window.fetch = before;
                document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "d", bubbles: true}));
            }
            return before(url, options);
        };
    }""")
    first.continue_()
    artist.ready(2)
    saves.next().continue_()  # the next image is there before the second save's answer
    artist.saved()
    assert artist.page.evaluate("() => asked") == 1, "no image is passed over"


def test_work_after_done_is_not_left_behind(browser: Any, tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        artist = Artist(browser, server, open_set(server.state, tmp_path)).open(1)
        port = int(server.url.rpartition(":")[2])
    artist.page.evaluate(ASKED)
    artist.press("d")
    artist.page.wait_for_selector("#saving.trouble")
    artist.drag((30, 40), (90, 71))
    with serving(tmp_path / "state", port=port):
        artist.saved()
        assert artist.page.evaluate("() => asked") == 0, "they continued drawing here"
        assert np.array_equal(stored(tmp_path), stroke((30, 40), (90, 71)))


def test_comparing_while_the_server_is_away(artist: Artist) -> None:
    artist.drag((30, 40), (90, 71))
    artist.saved()
    artist.press("Shift+D")
    artist.saved()
    artist.drag((30, 90), (90, 91))
    artist.saved()
    artist.press("c")
    choice = artist.page.locator("[data-part=comparing] select")
    choice.wait_for()
    artist.page.route("**/versions/*", lambda route: route.abort())
    choice.evaluate("select => select.dispatchEvent(new Event('change'))")
    artist.page.wait_for_selector("[data-part=message]:has-text('server cannot be reached')")
    artist.page.get_by_role("button", name="Go back to it").press("Enter")
    assert artist.page.evaluate("document.activeElement.tagName") == "CANVAS", "the focus is not lost with the button"
    artist.saved()
    artist.troubles = [words for words in artist.troubles if "ERR_FAILED" not in words]


@pytest.mark.parametrize("again", [True, False])
def test_a_decision_that_was_left_at_another_server(browser: Any, tmp_path: Path, again: bool) -> None:
    """Two masks wait for a decision; then the same address has the same images again, or others."""
    with serving(tmp_path / "first") as server:
        set_id = open_set(server.state, tmp_path)
        ann, ben = (Artist(browser, server, set_id, name=name).open(1) for name in ("Ann", "Ben"))
        ann.drag((30, 40), (90, 71))
        ann.saved()
        ben.drag((30, 100), (90, 101))
        ben.page.get_by_role("dialog").wait_for()
        ben.page.goto("about:blank")
        port = int(server.url.rpartition(":")[2])
    with serving(tmp_path / "second", port=port) as server:
        data, name = (tmp_path / "data", "ball/0.png") if again else (tmp_path / "other", "round/ball/0.png")
        scene(data / Path(name).parent.parent)
        take_in(server.state, str(data), masks=tmp_path / "new", guide="grabcut", progress=silent)
        server.session(name="Ann")
        server.log_in(ben.context, name="Ben")
        ben.troubles.clear()
        ben.open(1)
        if again:
            ben.saved()  # there is nothing to decide any more
        ben.press("d")
        ben.ready(2)
        assert not ben.troubles
        kept = cv2.imread(str(tmp_path / "new" / name), cv2.IMREAD_UNCHANGED) == 255
        assert np.array_equal(kept, stroke((30, 100), (90, 101)) if again else np.zeros_like(kept))
