"""Drawing masks in a real browser: what is on the disk afterwards is what was drawn, pixel by pixel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from annotate_world import HEIGHT, RADIUS, WIDTH, Artist, open_set, stored, stroke

from holdfast.data import load_collection
from web_server import Serving, serving


def test_brush_and_eraser(artist: Artist, tmp_path: Path) -> None:
    artist.drag((30, 40), (90, 71), (100, 20))
    artist.saved()
    drawn = stroke((30, 40), (90, 71), (100, 20))
    assert np.array_equal(stored(tmp_path), drawn)
    artist.press("e", "[", "[")
    artist.drag((60, 10), (60, 110))
    artist.saved()
    erased = drawn & ~stroke((60, 10), (60, 110), radius=RADIUS - 2)
    assert np.array_equal(stored(tmp_path), erased) and erased.sum() < drawn.sum()
    # What eval would read is the same, and so is the COCO file, once the server has stopped or a pause has passed.
    (sample,) = [s for s in load_collection(str(tmp_path / "data"), masks=tmp_path / "masks").samples if s.mask]
    assert sample.sample_id == "ball/0" and sample.mask is not None
    assert np.array_equal(sample.mask.load(HEIGHT, WIDTH), erased)


def test_many_small_moves_are_one_stroke(artist: Artist, tmp_path: Path) -> None:
    artist.drag((20, 60), (140, 60), steps=40)
    artist.saved()
    assert np.array_equal(stored(tmp_path), stroke((20, 60), (140, 60)))
    artist.press("Control+z")
    artist.page.wait_for_selector("[data-do=undo]:disabled")
    artist.saved()
    assert not stored(tmp_path).any(), "the whole stroke is one step"


def test_strokes_beyond_the_border(artist: Artist, tmp_path: Path) -> None:
    artist.drag((2, 2), (-3, 50), (4, 117))
    artist.saved()
    assert np.array_equal(stored(tmp_path), stroke((2, 2), (-3, 50), (4, 117)))


def test_polygon_fill_grow_shrink_undo_redo(artist: Artist, tmp_path: Path) -> None:
    artist.press("p")
    for corner in ((20, 20), (60, 20), (60, 80)):
        artist.click(corner[0] - 0.5, corner[1] - 0.5)  # corners of pixels
    artist.press("Enter")
    artist.saved()
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    triangle = (columns < 60) & (rows > 20) & ((rows - 20) * 40 < (columns - 20) * 60)
    assert np.array_equal(stored(tmp_path), triangle)
    for corner in ((90, 30), (130, 30), (130, 70), (90, 70), (90, 30)):  # closed at its first corner
        artist.click(corner[0] - 0.5, corner[1] - 0.5)
    artist.press("x")
    for corner in ((100, 40), (120, 40), (120, 60), (100, 60)):
        artist.click(corner[0] - 0.5, corner[1] - 0.5)
    artist.page.get_by_role("button", name="Close").click()
    artist.saved()
    ring = triangle.copy()
    ring[30:70, 90:130] = True
    ring[40:60, 100:120] = False
    assert np.array_equal(stored(tmp_path), ring)
    artist.press("x", "f")
    artist.click(110, 50)
    artist.saved()
    filled = ring.copy()
    filled[40:60, 100:120] = True
    assert np.array_equal(stored(tmp_path), filled)
    artist.press(".", ".", ",")
    artist.saved()
    cross = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
    grown = cv2.erode(cv2.dilate(filled.astype(np.uint8), cross, iterations=2), cross)
    assert np.array_equal(stored(tmp_path), grown.astype(bool))
    artist.press("Control+z", "Control+z", "Control+z", "Control+z")
    artist.saved()
    assert np.array_equal(stored(tmp_path), ring)
    artist.press("Control+y", "Control+Shift+z")
    artist.saved()
    assert np.array_equal(stored(tmp_path), cv2.dilate(filled.astype(np.uint8), cross).astype(bool))


def test_zoomed_and_moved(artist: Artist, tmp_path: Path) -> None:
    x, y = artist.at(80, 60)
    artist.page.mouse.move(x, y)
    artist.page.mouse.wheel(0, -500)
    artist.page.keyboard.down("Space")
    artist.page.mouse.down()
    artist.page.mouse.move(x + 60, y + 30)
    artist.page.mouse.up()
    artist.page.keyboard.up("Space")
    assert not stored(tmp_path).any(), "moving the image draws nothing"
    # The wheel kept the pixel under the mouse in its place, and the hand took it along.
    artist.page.mouse.click(x + 60, y + 30)
    artist.saved()
    assert np.array_equal(stored(tmp_path), stroke((80, 60)))
    artist.press("0")
    artist.drag((20, 20), (20, 30))
    artist.saved()
    assert np.array_equal(stored(tmp_path), stroke((80, 60)) | stroke((20, 20), (20, 30)))


def test_box_and_a_click_give_a_rough_mask(artist: Artist, tmp_path: Path) -> None:
    truth = cv2.circle(np.zeros((HEIGHT, WIDTH), np.uint8), (80, 60), 30, 1, -1).astype(bool)
    artist.drag((10, 10), (20, 20))  # replaced by the rough mask, back after one undo
    artist.saved()
    scribble = stored(tmp_path)
    artist.press("r")
    artist.drag((45, 25), (115, 95))
    artist.page.wait_for_selector("[data-part=message]:has-text('Rough mask')")
    artist.click(80, 60)
    artist.page.wait_for_selector("[data-part=busy]", state="hidden")
    artist.saved()
    rough = stored(tmp_path)
    assert (rough & truth).sum() / (rough | truth).sum() > 0.9
    artist.press("Control+z")
    artist.saved()
    assert np.array_equal(stored(tmp_path), scribble), "box and click are one step"
    artist.page.locator("[data-part=mode]").select_option("add")
    artist.press("i")
    artist.page.mouse.move(*artist.at(80, 60))
    artist.page.mouse.down()
    artist.page.mouse.up()
    artist.page.wait_for_selector("[data-part=busy]", state="hidden")
    artist.page.wait_for_selector("[data-part=message]:has-text('Rough mask')")
    artist.saved()
    both = stored(tmp_path)
    assert (both & scribble).sum() == scribble.sum() and both.sum() > scribble.sum()


def test_everything_by_keys(artist: Artist, tmp_path: Path) -> None:
    artist.press("b", "0", "Shift+ArrowRight")  # the cursor begins in the middle
    artist.press("Enter", *["Shift+ArrowDown"] * 5, "Enter")
    artist.saved()
    assert np.array_equal(stored(tmp_path), stroke((81, 60), (81, 65)))
    artist.press("f", *["ArrowLeft"] * 20, "Enter")
    artist.saved()
    assert stored(tmp_path).all()
    artist.press("z", "d")
    artist.ready(2)
    assert np.array_equal(stored(tmp_path), stroke((81, 60), (81, 65)))
    artist.press("PageUp")  # the list shows unfinished images, and the first is done
    artist.ready(3)
    artist.press("?")
    assert artist.page.get_by_role("heading", name="Drawing a mask").is_visible()
    artist.press("Escape")
    artist.page.wait_for_selector("dialog[open]", state="detached")  # a browser closes it when it has time
    artist.press("/")
    artist.page.wait_for_selector("input[type=search]:focus")
    artist.page.keyboard.type("ball/0")
    artist.page.wait_for_selector("[data-range]:text-is('no image is like that')")
    artist.page.locator("select[name=show]").select_option("done")
    artist.page.wait_for_selector("[data-range]:text-is('1–1 of 1')")
    assert "1 of 3 done" in artist.page.locator("[data-progress]").inner_text()


def test_touch_on_a_small_screen(browser: Any, server: Serving, tmp_path: Path) -> None:
    set_id = open_set(server.state, tmp_path)
    phone = Artist(browser, server, set_id, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    phone.open(1)
    assert phone.page.evaluate("() => document.documentElement.scrollWidth") <= 390
    session = phone.context.new_cdp_session(phone.page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        places = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    touch("touchStart", phone.at(40, 30))
    touch("touchMove", phone.at(100, 90))
    touch("touchEnd")
    phone.saved()
    drawn = stored(tmp_path)
    assert np.array_equal(drawn, stroke((40, 30), (100, 90)))
    # Two fingers pull the image apart around its middle, and draw nothing.
    (left, middle), (right, _) = phone.at(60, 60), phone.at(100, 60)
    touch("touchStart", (left, middle))
    touch("touchStart", (left, middle), (right, middle))
    for step in range(1, 5):
        touch("touchMove", (left - 10 * step, middle), (right + 10 * step, middle))
    touch("touchEnd")
    assert np.array_equal(stored(tmp_path), drawn)
    with phone.page.expect_response(lambda answer: answer.request.method == "PUT"):
        phone.page.touchscreen.tap((left + right) / 2, middle)
    phone.saved()
    assert np.array_equal(stored(tmp_path), drawn | stroke((80, 60)))
    phone.page.get_by_role("button", name="Images").tap()
    phone.page.locator("[data-part=list] ol li").first.wait_for()
    assert not phone.troubles
    phone.context.close()


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own
def test_coco_beside_the_masks(browser: Any, tmp_path: Path) -> None:
    from pycocotools import mask as coco

    with serving(tmp_path / "state") as server:
        artist = Artist(browser, server, open_set(server.state, tmp_path)).open(2)
        artist.drag((30, 40), (90, 71))
        artist.saved()
        artist.context.close()
    document = json.loads((tmp_path / "masks" / "coco.json").read_text())
    assert [image["file_name"] for image in document["images"]] == ["ball/1.png"]
    (annotation,) = document["annotations"]
    assert np.array_equal(coco.decode(annotation["segmentation"]).astype(bool), stroke((30, 40), (90, 71)))
