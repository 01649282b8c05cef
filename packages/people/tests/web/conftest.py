"""What the tests of pages share: a browser, a server over an empty folder, someone who draws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from annotate_world import Artist, open_set

from browsing import a_browser
from web_server import Serving, serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as found:
        yield found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path / "state") as found:
        yield found


@pytest.fixture
def artist(browser: Any, server: Serving, tmp_path: Path) -> Iterator[Artist]:
    one = Artist(browser, server, open_set(server.state, tmp_path)).open(1)
    yield one
    assert not one.troubles
    one.context.close()
