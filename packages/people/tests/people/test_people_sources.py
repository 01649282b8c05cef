from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from holdfast.core.errors import SampleError, UserError
from holdfast.data import load_collection
from holdfast_people.database import Database
from holdfast_people.sources import Shelf, absolute_reference, add_source, list_sources
from holdfast_people.tables import images


def rows(database: Database) -> dict[str, tuple[int, str, dict[str, object]]]:
    with database.reading() as connection:
        found = connection.execute(select(images)).all()
    return {row.sample_id: (row.id, row.label, row.attributes) for row in found}


def test_adding_again_keeps_numbers_and_brings_facts_up_to_date(database: Database, photos: Path) -> None:
    collection = load_collection(str(photos))
    with database.writing() as connection:
        first = add_source(connection, name="photos", reference=str(photos), collection=collection, now=1.0)
    before = rows(database)
    assert {key: label for key, (_, label, _) in before.items()} == {s.sample_id: s.label for s in collection.samples}
    changed = replace(collection.samples[0], attributes={"nuisance": "beach"})
    more = replace(collection, samples=(changed, *collection.samples[1:], replace(changed, sample_id="new")))
    with database.writing() as connection:
        assert add_source(connection, name="other", reference=str(photos), collection=more, now=2.0) == first
        assert [source["name"] for source in list_sources(connection)] == ["photos"]
    after = rows(database)
    assert {key: value[0] for key, value in after.items() if key != "new"} == {k: v[0] for k, v in before.items()}
    assert after[changed.sample_id][2] == after["new"][2] == {"nuisance": "beach"}


def test_two_who_add_the_same_source_get_the_same(database: Database, photos: Path) -> None:
    collection = load_collection(str(photos))

    def add(_: int) -> int:
        with database.writing() as connection:
            return add_source(connection, name="photos", reference=str(photos), collection=collection, now=1.0)

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(add, range(8)))) == 1
    assert len(rows(database)) == len(collection)


def test_paths_are_stored_absolute(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    assert absolute_reference("photos") == str(photos)
    assert absolute_reference("folder:photos") == f"folder:{photos}"
    assert absolute_reference("folder:photos?mask_format=grey") == f"folder:{photos}?mask_format=grey"
    assert absolute_reference("diorama:test?n=48") == "diorama:test?n=48"


def test_the_shelf_finds_the_sample_behind_a_number(database: Database, photos: Path) -> None:
    with database.writing() as connection:
        add_source(connection, name="p", reference=str(photos), collection=load_collection(str(photos)), now=1.0)
    numbers = {number: key for key, (number, _, _) in rows(database).items()}
    shelf = Shelf(database)
    with ThreadPoolExecutor(8) as threads:  # all meet the same source at once
        found = list(threads.map(shelf.sample, numbers))
    assert [sample.sample_id for sample in found] == list(numbers.values())
    assert found[0].image.load().shape == (48, 64, 3)
    for unknown in (0, -1, 10**6, 2**70):
        with pytest.raises(UserError, match="there is no image"):
            shelf.sample(unknown)


def test_the_shelf_sees_what_came_later(database: Database, photos: Path) -> None:
    with database.writing() as connection:
        add_source(connection, name="p", reference=str(photos), collection=load_collection(str(photos)), now=1.0)
    shelf = Shelf(database)
    one = next(iter(rows(database).values()))[0]
    shelf.sample(one)
    os.link(photos / "images/cross/0.png", photos / "images/cross/later.png")
    with database.writing() as connection:
        add_source(connection, name="p", reference=str(photos), collection=load_collection(str(photos)), now=2.0)
    later = next(number for key, (number, _, _) in rows(database).items() if "later" in key)
    assert shelf.sample(later).label == "cross"
    (photos / "images/cross/later.png").unlink()
    with pytest.raises(SampleError, match="no longer has"):
        Shelf(database).sample(later)
