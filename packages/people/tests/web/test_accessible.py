"""The pages of the server, as axe-core sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from annotate_world import Artist
from review_world import Reviewer, campaign

from browsing import serious
from web_server import Serving


def test_annotate_and_its_lists(artist: Artist) -> None:
    artist.open(1)
    assert serious(artist.page) == []
    for path in ("/", "/annotate", "/review"):
        artist.page.goto(artist.url.split("/annotate")[0] + path)
        assert (path, serious(artist.page)) == (path, [])


def test_review(browser: Any, server: Serving, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    server.log_in(context)
    person = Reviewer(context.new_page(), server.url, campaign(server.state, tmp_path), server.state)
    person.open()
    assert serious(person.page) == []
    person.examples()
    person.at("Image 1")
    assert serious(person.page) == []
