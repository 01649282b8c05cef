"""Two people on one image, and a server that is away: nothing is overwritten in silence, nothing is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotate_world import HEIGHT, WIDTH, Artist, open_set, stored, stroke

from holdfast_people import masks
from holdfast_people.web.services.server_state import ServeOptions, ServerState, open_server
from web_server import Serving, new_session, server_process, serving

FIRST, SECOND, THIRD = ((20, 30), (60, 30)), ((20, 90), (60, 90)), ((120, 20), (120, 100))


def history(state: ServerState, drawing: int = 1) -> list[tuple[str, np.ndarray]]:
    """Who drew which mask, oldest first."""
    with state.database.reading() as connection:
        numbers = [one.version for one in masks.list_versions(connection, drawing)]
        found = [masks.get_version(connection, drawing, number) for number in reversed(numbers)]
    return [(one.person, one.mask()) for one in found]


def test_two_browsers_on_one_image(browser: Any, server: Serving, tmp_path: Path) -> None:
    set_id = open_set(server.state, tmp_path)
    ann = Artist(browser, server, set_id, name="Ann").open(1)
    ben = Artist(browser, server, set_id, name="Ben").open(1)
    assert "Ann" in ben.page.locator("[data-part=message]").inner_text()
    ann.drag(*FIRST)
    ann.saved()
    ben.drag(*SECOND)
    dialog = ben.page.get_by_role("dialog")
    dialog.wait_for()
    assert "Ann saved a mask of this image" in dialog.inner_text()
    assert np.array_equal(stored(tmp_path), stroke(*FIRST)), "nothing is overwritten"
    # Closing the page decides nothing and loses nothing: the next visit shows both again.
    ben.page.goto("about:blank")
    ben.open(1)
    dialog.wait_for()
    only_yours, only_theirs = int(stroke(*SECOND).sum()), int(stroke(*FIRST).sum())
    assert f"{only_yours:,} pixels are only in yours, {only_theirs:,} only in theirs" in dialog.inner_text()
    dialog.get_by_role("button", name="Join both").click()
    ben.saved()
    both = stroke(*FIRST) | stroke(*SECOND)
    assert np.array_equal(stored(tmp_path), both)
    # Now Ann is the later one. She takes hers; Ben's is a version that can be had back.
    ann.drag(*THIRD)
    dialog = ann.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Take mine").click()
    ann.saved()
    mine = stroke(*FIRST) | stroke(*THIRD)
    assert np.array_equal(stored(tmp_path), mine)
    seen = history(server.state)
    assert [name for name, _ in seen] == ["Ann", "Ben", "Ann"]
    assert all(np.array_equal(mask, want) for (_, mask), want in zip(seen, [stroke(*FIRST), both, mine], strict=True))
    ann.press("c")
    said = ann.page.locator("[data-difference]")
    said.wait_for()
    added, removed = int((mine & ~both).sum()), int((both & ~mine).sum())
    assert said.inner_text() == f"{added:,} pixels only now, {removed:,} only then"
    ann.page.get_by_role("button", name="Go back to it").click()
    ann.saved()
    assert np.array_equal(stored(tmp_path), both)
    assert not [words for words in ann.troubles + ben.troubles if "409" not in words]


def test_join_keeps_what_both_changed(browser: Any, server: Serving, tmp_path: Path) -> None:
    set_id = open_set(server.state, tmp_path)
    ann = Artist(browser, server, set_id, name="Ann").open(1)
    ann.drag((20, 60), (140, 60))
    ann.saved()
    ben = Artist(browser, server, set_id, name="Ben").open(1)
    ann.press("e")
    ann.drag((20, 60), (60, 60))
    ann.saved()
    ben.drag(*THIRD)
    ben.page.get_by_role("dialog").get_by_role("button", name="Join both").click()
    ben.saved()
    expected = (stroke((20, 60), (140, 60)) & ~stroke((20, 60), (60, 60))) | stroke(*THIRD)
    assert np.array_equal(stored(tmp_path), expected), "what one erased does not come back with what the other drew"
    ann.press("b")
    ann.drag(*FIRST)
    ann.page.get_by_role("dialog").get_by_role("button", name="Take theirs").click()
    ann.page.wait_for_selector("#annotate[data-saved=true]", state="attached")
    assert np.array_equal(stored(tmp_path), expected)
    assert len(history(server.state)) == 2, "taking theirs saves nothing"


def test_the_next_person_gets_another_image(browser: Any, server: Serving, tmp_path: Path) -> None:
    set_id = open_set(server.state, tmp_path)
    for drawing, name in ((1, "Ann"), (2, "Ben")):
        artist = Artist(browser, server, set_id, name=name)
        artist.page.goto(artist.url)
        artist.ready(drawing)


def test_a_server_that_is_away(browser: Any, tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        set_id = open_set(server.state, tmp_path)
        artist = Artist(browser, server, set_id).open(1)
        port = int(server.url.rpartition(":")[2])
    artist.drag(*FIRST)
    artist.page.wait_for_selector("#saving.trouble")
    assert artist.says().startswith("not saved yet: the server cannot be reached")
    artist.drag(*SECOND)
    with serving(tmp_path / "state", port=port):
        artist.saved()
        assert np.array_equal(stored(tmp_path), stroke(*FIRST) | stroke(*SECOND))
    artist.drag(*THIRD)
    artist.page.wait_for_selector("#saving.trouble")
    artist.page.close()
    with serving(tmp_path / "state", port=port):
        artist.page = artist.context.new_page()
        artist.open(1)
        everything = stroke(*FIRST) | stroke(*SECOND) | stroke(*THIRD)
        artist.saved()
        assert np.array_equal(stored(tmp_path), everything)


def test_a_full_disk(browser: Any, server: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artist = Artist(browser, server, open_set(server.state, tmp_path)).open(1)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        artist.drag(*FIRST)
        artist.page.wait_for_selector("#saving.trouble")
        assert "the disk is full" in artist.says()
        assert not stored(tmp_path).any() and not history(server.state)
    artist.saved()
    assert np.array_equal(stored(tmp_path), stroke(*FIRST))
    assert not list((tmp_path / "masks").rglob(".unfinished*"))  # now that nothing is tried any more


def test_a_killed_server_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    import httpx

    from holdfast.data.writers import mask_rle

    state = open_server(ServeOptions(state=tmp_path / "state"))
    open_set(state, tmp_path)
    token = new_session(state)
    state.close()
    rng = np.random.default_rng(0)
    acknowledged = np.zeros((HEIGHT, WIDTH), bool)
    with server_process(tmp_path / "state") as server:
        with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {token}"}, trust_env=False) as client:
            version = 0
            for _ in range(20):
                mask = rng.random((HEIGHT, WIDTH)) < 0.5
                work = {"base": version, "height": HEIGHT, "width": WIDTH, "counts": mask_rle(mask), "editor": "one"}
                answer = client.put("/api/annotate/masks/1", json=work)
                version, acknowledged = answer.raise_for_status().json()["version"], mask
        server.kill()
    assert np.array_equal(stored(tmp_path), acknowledged)
    with serving(tmp_path / "state") as back:
        newest = back.client().get("/api/annotate/masks/1").json()
        assert newest["version"] == version == 20 and newest["mask"]["counts"] == mask_rle(acknowledged)
        assert np.array_equal(history(back.state)[-1][1], acknowledged)
