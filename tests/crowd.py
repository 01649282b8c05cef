"""A campaign in a real database, and simulated people who answer it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import insert, select

from holdfast.core.fingerprint import bytes_sha256
from holdfast.data import load_collection
from holdfast_people.assignment import image_of_place, next_task
from holdfast_people.campaigns import Sentinel, Settings, create_campaign
from holdfast_people.database import Database, open_database
from holdfast_people.sources import Shelf, add_source
from holdfast_people.tables import images, people
from holdfast_people.voting import Outcome, cast, finish

NOW = 1_700_000_000.0
CLASSES = ("cup", "lamp", "shoe")
NUISANCES = (("background", "beach"), ("background", "forest"), ("texture", "striped"))

Answer = Callable[[int, str, str], dict[str, str]]
"""Person, sample_id, class asked → answers."""


def picture(*key: int) -> bytes:
    pixels = np.random.default_rng(list(key)).integers(0, 256, (12, 16, 3), np.uint8)
    return cv2.imencode(".png", pixels)[1].tobytes()


def make_pool(folder: Path, per_pair: int = 4, **more: str) -> Path:
    """Generated images in the pool's columns: a class with a nuisance is a prompt of ``per_pair`` images."""
    rows = []
    for number, (label, (kind, nuisance), repeat) in enumerate(itertools.product(CLASSES, NUISANCES, range(per_pair))):
        data = picture(1, number)
        path = f"{kind}/{label}/{nuisance}-{repeat}.png"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        rows.append(
            {
                "path": path, "label": label, "sample_id": path.removesuffix(".png"),
                "source_id": f"{label} {nuisance}",
                "kind": "generated", "condition": kind, "nuisance": nuisance, "prompt": f"a {label}, {nuisance}",
                "prompt_id": f"{label}-{nuisance}", "repeat": repeat, "seed": repeat, "generator": "made:up",
                "published_sha256": bytes_sha256(data), "licence": "CC0", **more,
            }
        )  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), folder / "manifest.parquet")
    return folder


def make_controls(folder: Path, each: int = 12) -> Path:
    rows = []
    for number in range(2 * each):
        (folder / f"{number:03d}.png").parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03d}.png").write_bytes(picture(2, number))
        rows.append({"path": f"{number:03d}.png", "label": CLASSES[number % 3], "sample_id": f"control {number}"})
    pq.write_table(pa.Table.from_pylist(rows), folder / "manifest.parquet")
    return folder


EXPECTED = {
    "quality": ({"recognisable": ["yes"], "usable": ["yes"]}, {"recognisable": ["no"], "usable": ["no"]}),
    "oracle": ({"shows": ["yes"]}, {"shows": ["no"]}),
    "naturalness": ({"natural": ["3", "4", "5"]}, {"natural": ["1", "2"]}),
}


def open_campaign(
    folder: Path, pool: Path | str, *, kind: str = "quality", where: str | Path = "", **settings: object
) -> tuple[Database, Shelf, int]:
    """A campaign over a pool, with controls: even ones are positive, odd ones negative."""
    database = open_database(where or folder / "people.sqlite")
    controls = make_controls(folder / "controls")
    with database.writing() as connection:
        source = add_source(
            connection, name="pool", reference=str(pool), collection=load_collection(str(pool)), now=NOW
        )
        known = add_source(
            connection, name="controls", reference=str(controls), collection=load_collection(str(controls)), now=NOW
        )
        ids = connection.execute(select(images.c.id, images.c.source_id, images.c.label).order_by(images.c.id)).all()
        sentinels = [
            Sentinel(
                row.id,
                ("positive", "negative")[place % 2],
                row.label if place % 2 == 0 else next(name for name in CLASSES if name != row.label),
                EXPECTED[kind][place % 2],
            )
            for place, row in enumerate(row for row in ids if row.source_id == known)
        ]
        campaign_id = create_campaign(
            connection,
            name=f"{kind} of a pool",
            kind=kind,
            source_id=source,
            image_ids=[row.id for row in ids if row.source_id == source],
            sentinels=sentinels,
            settings=Settings(**({"people_per_image": 5, "at_least": 3, "images_per_task": 12} | settings)),
            now=NOW,
        )
    return database, Shelf(database), campaign_id


def careful(verdict: Callable[[str], dict[str, str]], kind: str = "quality") -> Answer:
    """A person who answers controls rightly, and the pool by its verdict."""

    def answer(_: int, sample_id: str, asked: str) -> dict[str, str]:
        if sample_id.startswith("control "):
            right = EXPECTED[kind][int(sample_id.removeprefix("control ")) % 2]
            return {question: answers[0] for question, answers in right.items()}
        return verdict(sample_id)

    return answer


def work(
    database: Database, campaign_id: int, person: int, answer: Answer, *, now: float = NOW, tasks: int = 100
) -> list[Outcome]:
    """Let one person do their tasks, as many as there are for them."""
    outcomes = []
    for turn in range(tasks):
        with database.writing() as connection:
            task = next_task(connection, campaign_id, person, now=now + turn)
        if task is None:
            break
        for position, place in enumerate(task.places):
            with database.writing() as connection:
                image_id = image_of_place(connection, place.token, person)
                sample_id = connection.scalar(select(images.c.sample_id).where(images.c.id == image_id))
                cast(
                    connection, place_token=place.token, person_id=person, key=uuid.uuid4().hex,
                    answers=answer(person, sample_id, place.asked), seconds=2.0 + position % 3, now=now + turn + 0.5,
                )  # fmt: skip
        with database.writing() as connection:
            outcomes.append(finish(connection, task_token=task.token, person_id=person, now=now + turn + 0.9))
    return outcomes


def hire(database: Database, names: Sequence[str]) -> list[int]:
    with database.writing() as connection:
        return [
            connection.execute(
                insert(people).values(name=name, role="member", created_at=NOW).returning(people.c.id)
            ).scalar_one()
            for name in names
        ]
