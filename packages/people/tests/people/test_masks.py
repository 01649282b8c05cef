"""Versions of masks in both databases, and the PNGs that must agree with them."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.core.types import Collection, Sample
from holdfast.data import load_collection
from holdfast.data.images import ArrayImage
from holdfast.data.masks import ArrayMask
from holdfast.pipeline.files import file_name
from holdfast_people import identity, mask_exchange, mask_sets, masks
from holdfast_people.database import Database, open_database
from holdfast_people.sources import add_source

SIZE = (12, 16)


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*SIZE, 3), np.uint8)


def a_mask(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(SIZE) < 0.5


def samples(*names: str) -> list[Sample]:
    return [Sample(name, "ball", ArrayImage(image(number))) for number, name in enumerate(names)]


def take_in(database: Database, folder: Path, found: list[Sample], now: float = 1.0) -> int:
    with database.writing() as connection:
        collection = Collection("balls", ("ball",), tuple(found))
        source = add_source(connection, name="balls", reference="balls", collection=collection, now=now)
    return mask_sets.open_set(
        database, source_id=source, samples=found, folder=folder, guide="grabcut", name_file=file_name, now=now,
        progress=lambda *_: None,
    )  # fmt: skip


def person(database: Database, name: str) -> int:
    with database.writing() as connection:
        _, token = identity.invite(connection, note=name, now=1.0)
        session = identity.open_invitation(connection, token, name=name, now=1.0)
        found = identity.person_of_session(connection, session, now=1.0)
    assert found is not None
    return found.id


def save(
    database: Database, mask: np.ndarray, who: int, base: int, *, now: float = 2.0, done: bool = False, editor: str = ""
) -> masks.Version | masks.Conflict:
    with database.writing() as connection:
        return masks.save(
            connection, 1, base=base, mask=mask, person_id=who, done=done, how="drawn", editor=editor, now=now
        )


def newest(database: Database) -> masks.Version:
    with database.reading() as connection:
        return masks.get_version(connection, 1, masks.get_drawing(connection, 1).version)


def on_disk(path: Path) -> np.ndarray:
    return np.asarray(cv2.imread(str(path), cv2.IMREAD_UNCHANGED) == 255)


def test_the_later_one_is_told(database: Database, tmp_path: Path) -> None:
    take_in(database, tmp_path / "masks", samples("ball/a"))
    ann, ben = person(database, "Ann"), person(database, "Ben")
    first = save(database, a_mask(1), ann, 0)
    assert isinstance(first, masks.Version) and first.version == 1 and first.person == "Ann"
    conflict = save(database, a_mask(2), ben, 0)
    assert isinstance(conflict, masks.Conflict) and np.array_equal(conflict.newest.mask(), a_mask(1))
    assert np.array_equal(on_disk(tmp_path / "masks/ball/a.png"), a_mask(1))
    # The same mask again is not a conflict: its first answer may have been lost, or both drew the same.
    again = save(database, a_mask(1), ann, 0)
    assert isinstance(again, masks.Version) and again.version == 1
    second = save(database, a_mask(2), ben, 1, done=True)
    assert isinstance(second, masks.Version) and (second.version, second.base, second.done) == (2, 1, True)
    assert np.array_equal(on_disk(tmp_path / "masks/ball/a.png"), a_mask(2))


def test_a_page_is_no_stranger_to_itself(database: Database, tmp_path: Path) -> None:
    take_in(database, tmp_path / "masks", samples("ball/a"))
    ann, ben = person(database, "Ann"), person(database, "Ben")
    save(database, a_mask(1), ann, 0, editor="page")  # the answer is lost, and the page draws on
    assert isinstance(save(database, a_mask(2), ann, 0, editor="page"), masks.Version)
    assert isinstance(save(database, a_mask(3), ann, 0, editor="another page"), masks.Conflict)
    assert isinstance(save(database, a_mask(4), ben, 2, editor="his"), masks.Version)
    assert isinstance(save(database, a_mask(5), ann, 2, editor="page"), masks.Conflict), "Ben came between"


def test_autosaves_are_one_version(database: Database, tmp_path: Path) -> None:
    take_in(database, tmp_path / "masks", samples("ball/a"))
    ann, ben = person(database, "Ann"), person(database, "Ben")

    def versions() -> list[tuple[int, int, str]]:
        with database.reading() as connection:
            rows = masks.list_versions(connection, 1)
        return [(row.version, row.base, row.person) for row in rows]

    for number in range(4):
        save(database, a_mask(number), ann, number, now=10.0 + number)
    assert versions() == [(4, 0, "Ann")]
    with database.reading() as connection, pytest.raises(UserError, match="no version 2"):
        masks.get_version(connection, 1, 2)
    save(database, a_mask(5), ben, 4, now=20.0)
    save(database, a_mask(6), ann, 5, now=21.0)
    save(database, a_mask(7), ann, 6, now=21.0 + masks.COLLAPSE_S + 1)
    assert versions() == [(7, 6, "Ann"), (6, 5, "Ann"), (5, 4, "Ben"), (4, 0, "Ann")], "a long pause ends a version"
    save(database, a_mask(8), ann, 7, done=True, now=700.0)
    save(database, a_mask(9), ann, 8, now=701.0)
    assert versions()[0] == (9, 8, "Ann"), "what was done is kept"


def test_changes_from_outside_become_versions(database: Database, tmp_path: Path) -> None:
    set_id = take_in(database, tmp_path / "masks", samples("ball/a", "ball/b"))
    ann = person(database, "Ann")
    save(database, a_mask(1), ann, 0, done=True)
    path = tmp_path / "masks/ball/a.png"
    cv2.imwrite(str(path), a_mask(2).astype(np.uint8) * 255)
    conflict = save(database, a_mask(3), ann, 1)
    assert isinstance(conflict, masks.Conflict) and conflict.newest.how == "changed outside"
    assert np.array_equal(conflict.newest.mask(), a_mask(2)) and np.array_equal(on_disk(path), a_mask(2))
    path.unlink()
    mask_sets.reconcile(database, set_id, now=3.0)
    assert np.array_equal(on_disk(path), a_mask(2)), "a file that is gone is written again"
    for data in (b"no picture", cv2.imencode(".png", np.zeros((3, 3), np.uint8))[1].tobytes()):
        path.write_bytes(data)
        mask_sets.reconcile(database, set_id, now=4.0)
        assert np.array_equal(on_disk(path), a_mask(2)) and newest(database).version == 2
        assert path.with_name("a.png.unreadable").read_bytes() == data, "what is not ours is put aside, not replaced"
    cv2.imwrite(str(path), a_mask(2).astype(np.uint8) * 255, [cv2.IMWRITE_PNG_COMPRESSION, 9])
    mask_sets.reconcile(database, set_id, now=5.0)
    assert newest(database).version == 2, "the same mask in other bytes is not a new version"
    with database.reading() as connection:
        assert mask_exchange.count_statuses(connection, set_id) == {
            "new": 1, "automatic": 0, "draft": 1, "done": 0, "all": 2, "doubtful": 0,
        }  # fmt: skip


class Crash(BaseException):
    """What kill -9 looks like from inside."""


def test_a_crash_between_file_and_database(database: Database, tmp_path: Path) -> None:
    set_id = take_in(database, tmp_path / "masks", samples("ball/a"))
    ann = person(database, "Ann")
    save(database, a_mask(1), ann, 0)
    with pytest.raises(Crash), database.writing() as connection:
        masks.save(connection, 1, base=1, mask=a_mask(2), person_id=ann, done=False, how="drawn", editor="p", now=3.0)
        raise Crash
    assert newest(database).version == 1 and np.array_equal(on_disk(tmp_path / "masks/ball/a.png"), a_mask(2))
    mask_sets.reconcile(database, set_id, now=4.0)
    assert np.array_equal(newest(database).mask(), a_mask(2))
    again = save(database, a_mask(2), ann, 1, editor="p")  # the browser, which got no answer, sends it once more
    assert isinstance(again, masks.Version) and np.array_equal(newest(database).mask(), a_mask(2))
    assert np.array_equal(on_disk(tmp_path / "masks/ball/a.png"), a_mask(2))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=12))
def test_nobody_is_overwritten_unseen(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, int, int, bool]]
) -> None:
    """Anyone who saves has seen the newest version, or gets it back; file and database agree after every step."""
    folder = tmp_path_factory.mktemp("moves")
    database = open_database(folder / "people.sqlite")
    take_in(database, folder / "masks", samples("ball/a"))
    people = [person(database, "Ann"), person(database, "Ben")]
    seen = [0, 0]
    now, current = 10.0, None
    for who, seed, pause, done in moves:
        now += 400.0 * pause
        result = save(database, a_mask(seed), people[who], seen[who], now=now, done=done, editor=f"page{who}")
        if isinstance(result, masks.Conflict):
            assert current is not None and np.array_equal(result.newest.mask(), current)
            assert result.newest.version != seen[who] and result.newest.person_id != people[who]
            seen[who] = result.newest.version
        else:
            current = a_mask(seed)
            seen[who] = result.version
        assert current is not None and np.array_equal(newest(database).mask(), current)
        assert np.array_equal(on_disk(folder / "masks/ball/a.png"), current)
    database.close()


def test_masks_that_are_there(database: Database, tmp_path: Path) -> None:
    folder = tmp_path / "masks"
    (folder / "ball").mkdir(parents=True)
    cv2.imwrite(str(folder / "ball/a.png"), a_mask(1).astype(np.uint8) * 255)
    cv2.imwrite(str(folder / "ball/b.bmp"), a_mask(2).astype(np.uint8) * 255)
    (folder / "ball/broken.png").write_bytes(b"no picture")
    found = samples("ball/a", "ball/b", "ball/c", "ball/d", "ball/broken")
    found[2] = replace(found[2], mask=ArrayMask(a_mask(3)))
    set_id = take_in(database, folder, found)
    with database.reading() as connection:
        rows = {drawing.sample_id: drawing for drawing in masks.drawings(connection, set_id)}
        how = {name: masks.list_versions(connection, one.id)[0].how for name, one in rows.items() if one.version}
        order = [one.sample_id for one in mask_exchange.list_images(connection, set_id, person_id=1)[1]]
    assert how == {"ball/a": "found in the folder", "ball/b": "found in the folder", "ball/c": "the dataset's own"}
    assert order == ["ball/d", "ball/broken", "ball/a", "ball/b", "ball/c"], "those without a mask come first"
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        assert np.array_equal(on_disk(folder / f"ball/{name}.png"), a_mask(seed))
    with database.writing() as connection:
        masks.save(
            connection, rows["ball/broken"].id, base=0, mask=a_mask(4), person_id=None, done=True, how="drawn", now=3.0
        )
    assert (folder / "ball/broken.png.unreadable").read_bytes() == b"no picture"
    before = [path.stat().st_mtime_ns for path in sorted(folder.rglob("*.png"))]
    assert take_in(database, folder, found, now=9.0) == set_id, "opening again changes nothing"
    assert [path.stat().st_mtime_ns for path in sorted(folder.rglob("*.png"))] == before


def test_what_holdfast_mask_made_comes_doubtful_first(tmp_path: Path, photos: Path) -> None:
    from holdfast.pipeline.mask import MaskSpec, make_masks

    out = tmp_path / "masks"
    make_masks(MaskSpec(str(photos / "images"), annotator="threshold", workers=1), out)
    with (out / "masks.csv").open(newline="") as stream:
        sure = {row["sample_id"]: float(row["confidence"]) for row in csv.DictReader(stream)}
    database = open_database(tmp_path / "people.sqlite")
    set_id = take_in(database, out, list(load_collection(str(photos / "images")).samples))
    with database.reading() as connection:
        total, listed = mask_exchange.list_images(connection, set_id, person_id=1, limit=100)
        assert total == 12 and [one.sample_id for one in listed] == sorted(sure, key=lambda name: sure[name])
        assert [one.confidence for one in listed] == sorted(sure.values())
        walked = [mask_exchange.neighbour(connection, set_id, None, person_id=1, show="all")]
        while len(walked) < 13:
            walked.append(mask_exchange.neighbour(connection, set_id, walked[-1], person_id=1, show="all"))
        assert walked[:12] == [one.id for one in listed] and walked[12] == walked[0], "the list is a ring"
        back = mask_exchange.neighbour(connection, set_id, walked[0], person_id=1, show="all", backwards=True)
        assert back == walked[11]
        doubtful = mask_exchange.list_images(connection, set_id, person_id=1, show="doubtful", limit=100)[1]
        assert {one.sample_id for one in doubtful} == {name for name, value in sure.items() if value < 0.5}
        assert mask_exchange.list_images(connection, set_id, person_id=1, show="mine")[0] == 0
        assert mask_exchange.list_images(connection, set_id, person_id=1, label="disc", text="SC/1")[0] == 1
        assert mask_exchange.list_images(connection, set_id, person_id=1, text="%")[0] == 0
    database.close()


@pytest.mark.parametrize(
    "names", [("a", "ball/a"), ("x/../../a", "/etc/a"), ("ball/a.jpg", "ball/a.png"), ("dog: 1?",)]
)
def test_eval_finds_what_was_drawn_whatever_the_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    from holdfast.data.reading import attach_masks

    database = open_database(tmp_path / "people.sqlite")
    folder = tmp_path / "deep" / "masks"
    found = samples(*names)
    set_id = take_in(database, folder, found)
    with database.writing() as connection:
        for seed, drawing in enumerate(masks.drawings(connection, set_id)):
            assert drawing.file.resolve().is_relative_to(folder)
            masks.save(connection, drawing.id, base=0, mask=a_mask(seed), person_id=None, done=True, how="x", now=2.0)
    for seed, sample in enumerate(attach_masks(found, folder)):
        assert sample.mask is not None and np.array_equal(sample.mask.load(*SIZE), a_mask(seed))
    assert {path.parts[0] for path in (p.relative_to(tmp_path) for p in tmp_path.rglob("*.png"))} == {"deep"}
    database.close()
