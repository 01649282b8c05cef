"""Campaigns made of what a user names: the pool, its control images, the sentences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from holdfast.core.errors import UserError
from holdfast.core.types import Collection, Sample
from holdfast.data import load_collection
from holdfast.pipeline.generate.generate import GenerateSpec, generate
from holdfast.pipeline.specs import PerturbSpec, WalkOptions
from holdfast.pipeline.synth.synth import make_spec, synth
from holdfast.pipeline.walk.perturb import perturb
from holdfast_people import sentinels
from holdfast_people.campaigns import KINDS, Settings, get_campaign
from holdfast_people.database import Database, open_database
from holdfast_people.making import CampaignSpec, OpenedCampaign, make_campaign
from holdfast_people.sources import Shelf, open_pool
from holdfast_people.tables import images, items
from shapes import draw

SCENES = 12


class Painter:
    """Makes noise of any prompt."""

    name = "noise:"
    fingerprint = "0"

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[np.ndarray]:
        return [np.random.default_rng(seed).integers(1, 256, (8, 12, 3), np.uint8) for seed in seeds]


def shapes(folder: Path, indices: range, size: tuple[int, int] = (48, 64), labels: str = "cross disc square") -> Path:
    for label in labels.split():
        for index in indices:
            path = folder / label / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), draw(label, index, *size)[0])
    return folder


@pytest.fixture
def database(tmp_path: Path) -> Database:
    opened = open_database(tmp_path / "people.sqlite")
    yield opened
    opened.close()


def made(database: Database, tmp_path: Path, **options: object) -> tuple[OpenedCampaign, list[dict[str, object]]]:
    spec = CampaignSpec(**options)  # type: ignore[arg-type]
    found = make_campaign(database, spec, tmp_path / "state", now=1.0)
    with database.reading() as connection:
        query = select(items, images.c.sample_id, images.c.label).join(images).order_by(items.c.id)
        rows = connection.execute(query.where(items.c.campaign_id == found.campaign_id)).mappings()
        return found, [dict(row) for row in rows]


def test_controls_are_asked_as_the_judged_are_and_look_like_them(database: Database, tmp_path: Path) -> None:
    pool = shapes(tmp_path / "pool", range(4), (40, 60))
    shapes(pool, range(10, 12), (64, 40))
    known = shapes(tmp_path / "known", range(20, 30), (120, 130))
    found, rows = made(database, tmp_path, pool=str(pool), sentinels=str(known))
    by_role = {role: [row for row in rows if row["role"] == role] for role in {str(row["role"]) for row in rows}}
    assert len(by_role["judge"]) == 18 and all(row["asked"] == row["label"] for row in by_role["judge"])
    # 18 images, 16 a task: two tasks a person, and three that may fail
    assert len(by_role["positive"]) == len(by_role["negative"]) == 5 and len(by_role["training"]) == 2
    for row in by_role["positive"]:
        assert row["asked"] == row["label"] and row["expected"] == {"recognisable": ["yes"], "usable": ["yes"]}
    for row in by_role["negative"]:
        assert row["asked"] != row["label"] and row["expected"] == {"recognisable": ["no"], "usable": ["no"]}
    assert {row["asked"] for row in rows} == {"cross", "disc", "square"}
    assert [row["asked"] == row["label"] for row in by_role["training"]] == [True, False]
    shelf = Shelf(database)
    pictures = {row["image_id"]: shelf.sample(int(str(row["image_id"]))).image.load() for row in rows}
    judged = {pictures[row["image_id"]].shape for row in by_role["judge"]}
    assert judged == {(40, 60, 3), (64, 40, 3)} and {picture.shape for picture in pictures.values()} == judged
    # Every image is another one: no one meets one twice.
    assert len({picture.tobytes() for picture in pictures.values()}) == len(rows)
    with database.reading() as connection:
        assert get_campaign(connection, found.campaign_id).settings == Settings()
    assert found.sentences == ("18 images to judge; controls: 5 with their own answer, 5 asked with another class",)


def test_a_campaign_that_is_there_is_continued(database: Database, tmp_path: Path) -> None:
    pool, known = shapes(tmp_path / "pool", range(2)), shapes(tmp_path / "known", range(20, 30))
    first, rows = made(database, tmp_path, pool=str(pool), sentinels=str(known), name="mine")
    again, same = made(
        database, tmp_path, pool=str(pool), name="mine", settings=Settings(people_per_image=3, at_least=1)
    )
    assert first.campaign_id == again.campaign_id and rows == same
    assert "continues as it was opened" in again.sentences[0]
    with pytest.raises(UserError, match="'mine' is of the kind quality, not oracle"):
        made(database, tmp_path, pool=str(pool), name="mine", kind="oracle")
    other = shapes(tmp_path / "elsewhere" / "pool", range(2))
    with pytest.raises(UserError, match=r"'mine' is about other images \(.*pool\); give another --name"):
        made(database, tmp_path, pool=str(other), sentinels=str(known), name="mine")


def test_what_generate_and_synth_wrote_is_a_pool(database: Database, tmp_path: Path) -> None:
    """Their folders have a spec.json, as runs have, and images."""
    generate(GenerateSpec(generator="embedded:", kinds=("background",), limit=3), tmp_path / "pool", maker=Painter())
    assert json.loads((tmp_path / "pool" / "spec.json").read_text())["verb"] == "generate"
    found, rows = made(database, tmp_path, pool=str(tmp_path / "pool"), sentinels="diorama:test?n=24")
    assert found.name == "pool, quality" and sum(row["role"] == "judge" for row in rows) == 3
    photos = shapes(tmp_path / "photos", range(2))
    synth(make_spec(data=str(photos), scenarios="original", workers=1), tmp_path / "made")
    pool = open_pool(str(tmp_path / "made"), only="accepted", folder=tmp_path / "pools")
    assert len(pool.collection) == 6 and not pool.walked
    (run := tmp_path / "run").mkdir()
    (run / "spec.json").write_text('{"verb": "eval"}')
    with pytest.raises(UserError, match="is a run, which has no images"):
        open_pool(str(run), only="accepted", folder=tmp_path / "pools")


def test_a_limit_is_even_over_classes_and_by_chance_within_one(database: Database, tmp_path: Path) -> None:
    """The images of a dynamic evaluation are in the order of the models; the first ones would be all of one."""
    pool, known = shapes(tmp_path / "pool", range(20)), shapes(tmp_path / "known", range(30, 40))
    chosen = []
    for seed in (0, 0, 1):
        settings = Settings(rule="", seed=seed)
        name = f"campaign {len(chosen)}"
        _, rows = made(database, tmp_path, pool=str(pool), sentinels=str(known), limit=12, settings=settings, name=name)
        chosen.append({str(row["sample_id"]) for row in rows if row["role"] == "judge"})
    assert all(sum(one.startswith(label) for one in chosen[0]) == 4 for label in ("cross", "disc", "square"))
    assert chosen[0] == chosen[1] != chosen[2]
    assert any(int(one.rpartition("/")[2]) >= 10 for one in chosen[0])


def test_what_is_missing_is_said(database: Database, tmp_path: Path) -> None:
    pool, known = shapes(tmp_path / "pool", range(2)), shapes(tmp_path / "known", range(20, 23))
    with pytest.raises(UserError, match=r"--sentinels 'diorama:test\?n=48'"):
        made(database, tmp_path, pool=str(pool))
    with pytest.raises(UserError, match=r"show lizard, .*, and those to judge cross, disc, square"):
        made(database, tmp_path, pool=str(pool), sentinels="diorama:test?n=24")
    with pytest.raises(UserError, match="4 of each are needed"):
        made(database, tmp_path, pool=str(pool), sentinels=str(shapes(tmp_path / "few", range(40, 41))))
    with pytest.raises(UserError, match="should name questions that were asked"):
        made(database, tmp_path, pool=str(pool), sentinels=str(known), settings=Settings(rule="pretty"))
    for stop, said in (("when-decided", "means of ratings need all votes"), ("soon", "never or when-decided")):
        with pytest.raises(UserError, match=said):
            made(database, tmp_path, pool=str(pool), sentinels=str(known), kind="naturalness",
                 settings=Settings(rule="", stop=stop))  # fmt: skip
    with pytest.raises(UserError, match="needed at least"):  # the pool's own images are not controls
        made(database, tmp_path, pool=str(pool), sentinels=str(pool))
    (pool / "disc" / "0.png").write_bytes(b"no image")
    found, rows = made(database, tmp_path, pool=str(pool), sentinels=str(known))
    assert sum(row["role"] == "judge" for row in rows) == 5
    assert any("left out: disc/0: the file is not an image" in sentence for sentence in found.sentences)
    assert any("after 3 of them controls come again" in sentence for sentence in found.sentences)


def test_a_wrong_class_shares_no_word_with_the_right_one() -> None:
    source = load_collection("diorama:test?n=2").samples[0].image
    names = ("lizard", "green_lizard", "car wheel")
    samples = tuple(Sample(f"{name}/{number}", name, source) for name in names for number in range(20))
    chosen = sentinels.choose(Collection("known", names, samples), names, kind="quality", each=25, seed=0)
    wrong = {(one.sample.label, one.asked) for one in chosen if not one.right}
    assert wrong == {
        ("lizard", "car wheel"), ("green_lizard", "car wheel"), ("car wheel", "lizard"), ("car wheel", "green_lizard"),
    }  # fmt: skip
    assert len({one.sample.sample_id for one in chosen}) == len(chosen)


def test_expected_answers_are_among_those_offered() -> None:
    for questions in KINDS.values():
        for right in (True, False):
            expected = sentinels.expected(questions, right=right)
            assert set(expected) == {question.id for question in questions if question.graded}
            other = sentinels.expected(questions, right=not right)
            for question in (question for question in questions if question.graded):
                assert sorted([*expected[question.id], *other[question.id]]) == sorted(question.answers)
    assert sentinels.expected(KINDS["naturalness"], right=False) == {"natural": ["1", "2"]}


@given(st.integers(4, 40), st.integers(4, 40), st.integers(0, 99))
def test_a_destroyed_copy_has_no_part_where_it_was(rows: int, columns: int, seed: int) -> None:
    image = np.arange(rows * 4 * columns * 4 * 3, dtype=np.uint32)
    image = (image.reshape(rows * 4, columns * 4, 3) * 2654435761 >> 24).astype(np.uint8) // 2  # all below 128
    made = sentinels.destroy(image, np.random.default_rng(seed))

    def tiles(picture: np.ndarray) -> list[bytes]:
        return [
            picture[r * rows : (r + 1) * rows, c * columns : (c + 1) * columns].tobytes()
            for r in range(4)
            for c in range(4)
        ]

    before, after = tiles(image), tiles(made)
    turned = [
        tile if (place // 4 + place % 4) % 2 == 0 else bytes(255 - b for b in tile) for place, tile in enumerate(after)
    ]
    assert sorted(turned) == sorted(before)
    assert all(one != other for one, other in zip(turned, before, strict=True))


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = PerturbSpec(
        f"diorama:test?n={SCENES}", models=("embedded:resnet_rho0",), generator="pixel:",
        oracle="clip:embedded?min_score=0.9", random_walk=False, keep_images=True, frames=SCENES,
        walk=WalkOptions(steps=4, step_size=0.06),
    )  # fmt: skip
    return perturb(spec, tmp_path_factory.mktemp("walked") / "run")[0].path


def test_images_of_a_dynamic_evaluation(database: Database, tmp_path: Path, walked: Path) -> None:
    pools = {
        only: open_pool(str(walked), only=only, folder=tmp_path / "pools") for only in ("accepted", "rejected", "all")
    }
    accepted, rejected = pools["accepted"].collection, pools["rejected"].collection
    assert len(accepted) and len(rejected)
    assert len(pools["all"].collection) == len(accepted) + len(rejected)
    for one in (*accepted.samples, *rejected.samples):
        assert one.image.load().shape == (64, 64, 3)
        assert one.attributes["made_against"] == "embedded:resnet_rho0" and one.attributes["made_from"] == one.source_id
    assert {one.attributes["oracle_accepted"] for one in accepted.samples} == {True}
    assert {one.attributes["oracle_accepted"] for one in rejected.samples} == {False}
    assert all(one.attributes["oracle_score"] < 0.9 for one in rejected.samples)

    settings = Settings(rule="", images_per_task=6, most_failures=1)
    found, rows = made(database, tmp_path, pool=str(walked), only="rejected", settings=replace(settings, repeats=1))
    assert found.name == "run, oracle, rejected"
    controls = [row for row in rows if row["role"] != "judge"]
    assert {row["label"] for row in controls} and all(
        row["expected"] in ({"shows": ["yes"]}, {"shows": ["no"]}) for row in controls
    )

    found, rows = made(database, tmp_path, pool=str(walked), kind="naturalness", settings=settings)
    shelf = Shelf(database)
    originals = {one.sample_id: one.image.load() for one in load_collection(f"diorama:test?n={SCENES}").samples}
    for row in rows:
        if row["role"] != "judge":
            copy = shelf.sample(int(str(row["image_id"])))
            same = np.array_equal(copy.image.load(), originals[copy.attributes["copy_of"]])
            assert same == ("5" in row["expected"]["natural"]) == (copy.condition == "original")  # type: ignore[index]
    with pytest.raises(UserError, match="--keep-images"):
        (bare := tmp_path / "bare").mkdir()
        (bare / "spec.json").write_text('{"verb": "perturb", "data": "diorama:test?n=12"}')
        open_pool(str(bare), only="accepted", folder=tmp_path / "pools")
