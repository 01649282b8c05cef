"""``synth --review``: what the oracle doubts waits for people, and only their verdict moves it."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tiny_pipelines import save_pipeline

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import array_sha256
from holdfast.data import load_collection
from holdfast.pipeline.synth.synth import SynthSpec, make_spec, synth
from made_votes import make_votes

# The object keeps its colour bit for bit, so this oracle knows the class; how sure it is depends on the image.
ORACLE = """
import numpy as np
COLOURS = ((40, 40, 220), (220, 40, 40), (40, 220, 40))
def unsure(images):
    rows = []
    for image in images:
        seen = [int((image == np.array(colour, np.uint8)).all(2).sum()) for colour in COLOURS]
        truth = int(np.argmax(seen))
        kind = int(image[0, 0].sum()) % 3
        row = np.full(3, (0.05, 0.45, 0.05)[kind] / 2)
        row[truth] = (0.95, 0.55, 0.05)[kind]
        row[(truth + 1) % 3] += (0, 0, 0.9)[kind]
        rows.append(row)
    return np.array(rows, np.float32).reshape(-1, 3)
unsure.labels = ("cross", "disc", "square")
"""


@pytest.fixture
def spec(photos: Path, tmp_path: Path, toy_models: str) -> SynthSpec:
    (tmp_path / "modules" / "unsure_oracle.py").write_text(ORACLE)
    pipeline = save_pipeline(tmp_path / "pipeline", "inpaint")
    return make_spec(
        data=str(photos), scenarios="original,generated_background", workers=1, device="cpu", review=True,
        generator=f"diffusers:{pipeline}?steps=2&size=32", oracle="classifier:python:unsure_oracle:unsure",
        review_margin=0.5,
    )  # fmt: skip


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def rows_of(out: Path) -> dict[str, dict[str, str]]:
    with (out / "manifest.csv").open(newline="") as file:
        return {row["source_id"]: row for row in csv.DictReader(file) if row["scenario"] == "generated_background"}


def files_of(out: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in out.rglob("*.png")}


def votes_about(folder: Path, out: Path, accept: set[str], judged: set[str]) -> Path:
    """Five people's votes on some images of a dataset, as an export has them."""
    given = []
    for sample in load_collection(str(folder)).samples:
        if sample.source_id in judged:
            for person in range(5):
                said = "yes" if sample.source_id in accept else "no"
                given.append(
                    {
                        "sample_id": sample.sample_id, "person": person, "label": sample.label, "asked": sample.label,
                        "sha256": sample.image.fingerprint(), "pixels_sha256": array_sha256(sample.image.load()),
                        "answers": {"shows": said},
                    }
                )  # fmt: skip
    out.mkdir(exist_ok=True)
    pq.write_table(make_votes(given).to_arrow(), out / "votes.parquet")
    return out


def again(spec: SynthSpec, **changes: object) -> SynthSpec:
    return make_spec(**(asdict(spec) | changes))


def test_doubted_pictures_wait_and_people_decide(spec: SynthSpec, out: Path, tmp_path: Path) -> None:
    summary = synth(spec, out)
    before = rows_of(out)
    pending = {name for name, row in before.items() if row["status"] == "pending"}
    rejected = {name for name in pending if before[name]["oracle_accepted"] == "false"}
    close = pending - rejected
    sure = set(before) - pending
    assert rejected and close and sure  # the toy oracle has all three kinds among twelve images
    assert all(float(before[name]["oracle_margin"]) < 0.5 for name in close)
    assert all(before[name]["status"] == "ok" and float(before[name]["oracle_margin"]) >= 0.5 for name in sure)
    assert sum(count for text, count in summary.trouble.items() if text.startswith("pending: ")) == len(pending)
    waiting = load_collection(str(out / "review"))
    assert {sample.source_id for sample in waiting.samples} == pending and not waiting.problems
    assert {sample.condition for sample in waiting.samples} == {"generated_background"}
    placed = load_collection(str(out))
    assert {one.source_id for one in placed.samples if one.condition == "generated_background"} == sure

    left, *judged = sorted(pending)
    accepted = set(judged[::2])
    votes = votes_about(out / "review", tmp_path / "votes", accepted, set(judged))
    files = files_of(out)
    summary = synth(again(spec, review=False, review_votes=str(votes)), out)
    assert summary.rows == 0  # nothing is painted or rendered again
    with pytest.raises(UserError, match=r"--review-margin 0\.5; give the same"):  # all would be painted again
        synth(again(spec, review_margin=0.2, review_votes=str(votes)), out)
    after = rows_of(out)
    assert {name for name, row in after.items() if row["status"] == "ok"} == sure | accepted
    assert {name for name, row in after.items() if row["status"] == "rejected"} == set(judged) - accepted
    assert after[left]["status"] == "pending" and after[left]["people_votes"] == ""
    assert all(after[name] == before[name] for name in sure)
    for name in accepted:
        assert (out / after[name]["path"]).read_bytes() == (out / "review" / after[name]["path"]).read_bytes()
        assert (after[name]["people_yes"], after[name]["error"]) == ("5", "")
    assert all(after[name]["error"] == "0 of 5 people accept it" for name in set(judged) - accepted)
    new = {path: time for path, time in files_of(out).items() if files.get(path) != time}
    assert {Path(path) for path in new} == {out / after[name]["path"] for name in accepted}
    # The list that people judged stays whole, so that their campaign can still be exported.
    assert {sample.source_id for sample in load_collection(str(out / "review")).samples} == pending
    assert synth(again(spec, review_votes=str(votes)), out).rows == 0 and rows_of(out) == after
    # A later export, in which people have changed their mind.
    synth(again(spec, review_votes=str(votes_about(out / "review", votes, set(), set(judged)))), out)
    assert {name for name, row in rows_of(out).items() if row["status"] == "ok"} == sure
    assert not any((out / after[name]["path"]).exists() for name in accepted)


def test_people_as_the_oracle(spec: SynthSpec, out: Path, tmp_path: Path) -> None:
    """The generator paints the same again, so votes on the first images are votes on the second."""
    synth(spec, out)
    pending = {name for name, row in rows_of(out).items() if row["status"] == "pending"}
    accepted = set(sorted(pending)[::2])
    votes = votes_about(out / "review", tmp_path / "votes", accepted, pending)
    second = tmp_path / "second"
    synth(again(spec, review=False, oracle=f"human:{votes}"), second)
    rows = rows_of(second)
    assert {name for name, row in rows.items() if row["status"] == "ok"} == accepted
    for name, row in rows.items():
        if name in pending - accepted:
            assert (row["status"], row["error"]) == ("rejected", "0 of 5 people accept it, 3 of 5 have to")
        elif name not in pending:
            assert (row["status"], row["error"]) == ("rejected", "no one judged this image")


def test_mistakes(spec: SynthSpec, out: Path, tmp_path: Path) -> None:
    for change, match in (
        ({"oracle": ""}, "name one: --oracle"),
        ({"format": "webdataset"}, "--format png"),
        ({"review_margin": 2.0}, "from -1 to 1"),
    ):
        with pytest.raises(UserError, match=match):
            again(spec, **change)
    synth(spec, out)
    strange = tmp_path / "strange"
    strange.mkdir()
    other = make_votes([{"sample_id": "elsewhere", "person": n, "answers": {"shows": "yes"}} for n in range(5)])
    pq.write_table(other.to_arrow(), strange / "votes.parquet")
    with pytest.raises(UserError, match="about none of the"):
        synth(again(spec, review_votes=str(strange)), out)
