"""A real browser for tests of any room, or a reason why there is none; in CI there has to be one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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
