"""A real browser for tests of any room, or a reason why there is none; in CI there has to be one."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's handle on the browsers: ``.launch`` and ``.launch_persistent_context``."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if CHROMIUM is None or sync_playwright is None:
        reason = "there is no chromium, or no playwright, to open the page with"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        yield playwright.chromium


@contextmanager
def a_browser() -> Iterator[Any]:
    """A browser that closes at the end."""
    with chromium() as kind:
        browser = kind.launch(executable_path=CHROMIUM, args=ARGUMENTS, headless=True)
        yield browser
        browser.close()


class Held:
    """Requests of a page that wait until the test lets them go: ``.next().continue_()``, or ``.fulfill`` them."""

    def __init__(self, page: Any, pattern: str, method: str = "") -> None:
        self.page, self.pattern, self.method = page, pattern, method
        self.waiting: list[Any] = []
        page.route(pattern, self._hold)

    def _hold(self, route: Any) -> None:
        if self.method in ("", route.request.method):
            self.waiting.append(route)
        else:
            route.fallback()

    def next(self) -> Any:
        """The one that has waited longest; comes back when there is one."""
        for _ in range(6000):
            if self.waiting:
                return self.waiting.pop(0)
            self.page.wait_for_timeout(10)
        raise AssertionError(f"no one asked for {self.pattern}")

    def stop(self) -> None:
        """Hold nothing any more."""
        self.page.unroute(self.pattern, self._hold)
        for route in self.waiting:
            route.continue_()


ANSWERS = """() => {
    const text = Response.prototype.text;
    window.answers = [];
    Response.prototype.text = async function () {
        const words = await text.call(this);
        setTimeout(() => window.answers.push(this.url)); // after what the page does with it at once
        return words;
    };
}"""
"""Run in a page: from then on ``window.answers`` has the addresses of all answers that it has read and acted upon."""


def acted(page: Any, part: str, times: int = 1) -> None:
    """Wait until the page has read so many answers of addresses with this part and done what it does at once."""
    page.wait_for_function(
        "([part, times]) => window.answers.filter(one => one.includes(part)).length >= times", arg=[part, times]
    )


def serious(page: Any) -> list[str]:
    """The findings of axe-core on an open page that it calls serious or critical: rule, and the first place."""
    source = importlib.util.find_spec("axe_playwright_python")
    assert source is not None and source.submodule_search_locations
    page.evaluate((Path(source.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf8"))
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{rule['id']}: {node['target'][0]} {node['failureSummary'].splitlines()[-1].strip()}"
        for rule in found if rule["impact"] in ("serious", "critical") for node in rule["nodes"][:2]
    ]  # fmt: skip
