"""A page on which masks are drawn, and what its strokes should come to, computed without any of our code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from holdfast_people.web.services.mask_editing import take_in
from holdfast_people.web.services.server_state import ServerState
from web_server import Serving

HEIGHT, WIDTH = 120, 160
RADIUS = 8  # what the page begins with
MARGIN = 16  # screen pixels around an image that fits


def silent(step: str, done: int, total: int) -> None:
    pass


def scene(folder: Path, count: int = 3) -> Path:
    """PictureCache of a bright disc on a dark ground; ``folder/ball/0.png``."""
    for index in range(count):
        image = np.random.default_rng(index).integers(20, 60, (HEIGHT, WIDTH, 3), np.uint8)
        cv2.circle(image, (80, 60), 30, (60, 180, 240), -1)
        path = folder / "ball" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), image)
    return folder


def open_set(state: ServerState, tmp_path: Path, count: int = 3) -> int:
    """A set of masks of ``scene``, none of them drawn yet; PNGs go to ``tmp_path/masks``."""
    return take_in(
        state, str(scene(tmp_path / "data", count)), masks=tmp_path / "masks", guide="grabcut", progress=silent
    )


def stored(tmp_path: Path, name: str = "ball/0") -> np.ndarray:
    """The mask on the disk, by a reader that is not ours; empty if there is no file."""
    path = tmp_path / "masks" / f"{name}.png"
    if not path.exists():
        return np.zeros((HEIGHT, WIDTH), bool)
    found = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert found.dtype == np.uint8 and found.ndim == 2 and set(np.unique(found)) <= {0, 255}
    return found == 255


def stroke(*points: tuple[int, int], radius: int = RADIUS) -> np.ndarray:
    """All pixels within r² + r of a line from pixel to pixel, by its definition: the nearest point of each segment."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    mask = np.zeros((HEIGHT, WIDTH), bool)
    for (ax, ay), (bx, by) in zip(points, [*points[1:], points[-1]], strict=True):
        length = max((bx - ax) ** 2 + (by - ay) ** 2, 1)
        along = np.clip(((columns - ax) * (bx - ax) + (rows - ay) * (by - ay)) / length, 0, 1)
        apart = (columns - ax - along * (bx - ax)) ** 2 + (rows - ay - along * (by - ay)) ** 2
        mask |= apart <= radius**2 + radius + 1e-9
    return mask


class Artist:
    """A person with a browser on the annotate page."""

    def __init__(self, browser: Any, server: Serving, set_id: int, name: str = "Ann", **context: Any) -> None:
        options = {"viewport": {"width": 1400, "height": 900}} | context
        self.context = browser.new_context(**options)
        server.log_in(self.context, name=name)
        self.page = self.context.new_page()
        self.troubles: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on(
            "console", lambda said: self.troubles.append(said.text) if said.type in ("error", "warning") else None
        )
        self.url = f"{server.url}/annotate/{set_id}"

    def open(self, drawing: int) -> Artist:
        """Open an image by its number."""
        self.page.goto(f"{self.url}#{drawing}")
        self.ready(drawing)
        return self

    def ready(self, drawing: int) -> None:
        """Wait until an image can be drawn on."""
        self.page.wait_for_selector(f"#annotate[data-image='{drawing}']", state="attached")
        self.page.wait_for_selector("[data-part=busy]", state="hidden")

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where the middle of a pixel is on the screen while the whole image is shown."""
        box = self.page.locator("canvas[data-part=canvas]").bounding_box()
        assert box is not None
        scale = min((box["width"] - 2 * MARGIN) / WIDTH, (box["height"] - 2 * MARGIN) / HEIGHT)
        left, top = (box["width"] - WIDTH * scale) / 2, (box["height"] - HEIGHT * scale) / 2
        return box["x"] + left + (x + 0.5) * scale, box["y"] + top + (y + 0.5) * scale

    def drag(self, *points: tuple[int, int], steps: int = 1) -> None:
        """Press the mouse on the first pixel, pass the others, let continue the last."""
        self.page.mouse.move(*self.at(*points[0]))
        self.page.mouse.down()
        for point in points[1:]:
            self.page.mouse.move(*self.at(*point), steps=steps)
        self.page.mouse.up()

    def click(self, x: float, y: float) -> None:
        """Click on a pixel."""
        self.page.mouse.click(*self.at(x, y))

    def press(self, *keys: str) -> None:
        """Keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def tool(self, name: str) -> None:
        """Take a tool by a tap on its button, which becomes a click a moment later."""
        self.page.tap(f"[data-tool-button={name}]")
        self.page.wait_for_selector(f"#annotate[data-tool={name}]")

    def saved(self) -> None:
        """Wait until the server has everything, and the page says so."""
        self.page.wait_for_selector("#annotate[data-saved=true]", state="attached")
        self.page.wait_for_selector("#saving:text-is('saved')")

    def says(self) -> str:
        """The line that tells how saving goes."""
        return str(self.page.locator("#saving").inner_text())
