"""Results of a campaign in a real database against what its simulated people really did."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from crowd import NOW, careful, hire, make_pool, open_campaign, work
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import array_sha256, bytes_sha256
from holdfast.core.votes import read_votes
from holdfast.data import load_collection
from holdfast_people.export import export_campaign
from holdfast_people.results import campaign_votes
from holdfast_people.tables import votes as votes_table

YES = {"recognisable": "yes", "usable": "no"}
NO = {"recognisable": "no", "usable": "no"}


def is_good(sample_id: str) -> bool:
    return "forest" not in sample_id


def verdict(sample_id: str) -> dict[str, str]:
    return YES if is_good(sample_id) else NO


def careless(person: int, sample_id: str, asked: str) -> dict[str, str]:
    return {"recognisable": "yes", "usable": "yes"}


@pytest.fixture
def campaign(tmp_path: Path):
    pool = make_pool(tmp_path / "pool")
    database, shelf, campaign_id = open_campaign(tmp_path, pool)
    crowd = hire(database, ["Ada Lovelace", "Blaise", "Cleo", "Dora", "Emil", "Fritz", "Gerda"])
    outcomes = {person: work(database, campaign_id, person, careful(verdict)) for person in crowd[:3]}
    outcomes[crowd[3]] = work(database, campaign_id, crowd[3], careless)
    outcomes |= {person: work(database, campaign_id, person, careful(verdict)) for person in crowd[4:]}
    yield pool, database, shelf, campaign_id, outcomes
    database.close()


def test_images_that_nobody_has_voted_on_are_undecided(tmp_path: Path) -> None:
    pool = make_pool(tmp_path / "pool")
    database, shelf, campaign_id = open_campaign(tmp_path, pool)
    person, *_ = hire(database, ["Ada Lovelace"])
    work(database, campaign_id, person, careful(verdict), tasks=1)
    done = export_campaign(database, shelf, campaign_id, tmp_path / "out", now=NOW + 1000)
    database.close()
    images = len(load_collection(str(pool)).samples)
    seen = pd.read_csv(tmp_path / "out" / "results" / "images.csv")["sample_id"].nunique()
    assert 0 < seen < images and done.accepted + done.rejected + done.undecided == images


def test_every_vote_and_the_accepted_set(campaign, tmp_path: Path) -> None:
    pool, database, shelf, campaign_id, outcomes = campaign
    out = tmp_path / "out"
    done = export_campaign(database, shelf, campaign_id, out, now=NOW + 1000)
    samples = {sample.sample_id: sample for sample in load_collection(str(pool)).samples}
    good = {name for name in samples if is_good(name)}
    assert (done.accepted, done.rejected, done.undecided) == (len(good), len(samples) - len(good), 0)

    votes = read_votes(out)
    frame = votes.table.to_pandas()
    with database.reading() as connection:
        assert frame["vote"].nunique() == len(connection.execute(votes_table.select()).all())
    assert len(frame) == 2 * frame["vote"].nunique()  # two questions
    assert "Ada" not in (out / "votes.csv").read_text()
    counted = frame[frame["counts"]]
    assert set(counted["role"]) == {"judge"} and set(counted["task_status"]) == {"finished"}
    assert (counted.groupby(["sample_id", "question"])["person"].nunique() == 5).all()
    assert not counted.duplicated(["sample_id", "question", "person"]).any()
    discarded = frame[frame["task_status"] == "discarded"]
    assert set(discarded["task_reason"]) == {"negative"} and discarded["person"].nunique() == 1
    assert discarded["task"].nunique() == sum(one.status == "discarded" for own in outcomes.values() for one in own)
    for row in frame.drop_duplicates("sample_id").to_dict("records"):
        if row["sample_id"] in samples:
            image = samples[row["sample_id"]].image
            assert row["sha256"] == image.fingerprint()
            assert row["pixels_sha256"] == array_sha256(image.load())
            assert row["source_id"] == samples[row["sample_id"]].attributes["prompt_id"]
    negatives = frame[(frame["role"] == "negative") & (frame["question"] == "usable")]
    assert set(negatives["expected"]) == {"no"}
    assert frame["voted_at"].min() >= pd.Timestamp(NOW, unit="s", tz="UTC")

    accepted = load_collection(str(out / "accepted"))
    assert {sample.sample_id for sample in accepted.samples} == good
    for sample in accepted.samples:
        assert sample.image.read() == samples[sample.sample_id].image.read()
        assert sample.attributes["people_yes"] == 5
        assert {name: sample.attributes[name] for name in ("nuisance", "prompt")} == {
            name: samples[sample.sample_id].attributes[name] for name in ("nuisance", "prompt")
        }
    table = pq.read_table(out / "results" / "acceptance.parquet").to_pandas()
    by = table[table["by"] == "nuisance"].set_index("value")["estimate"]
    assert by.to_dict() == {"background: beach": 1, "background: forest": 0, "texture: striped": 1}
    people = pd.read_csv(out / "results" / "people.csv")
    assert people.iloc[0]["discarded"] == 3 and people.iloc[0]["sentinel_rate"] == pytest.approx(0.5)


def test_again_brings_the_folder_up_to_date(campaign, tmp_path: Path) -> None:
    pool, database, shelf, campaign_id, _ = campaign
    out = tmp_path / "out"
    export_campaign(database, shelf, campaign_id, out, now=NOW + 1000)
    first = {path: path.read_bytes() for path in (out / "accepted").rglob("*") if path.is_file()}
    export_campaign(database, shelf, campaign_id, out, now=NOW + 1000)
    assert first == {path: path.read_bytes() for path in (out / "accepted").rglob("*") if path.is_file()}
    # A file that another export accepted goes away; a stranger's stays.
    stale = out / "accepted" / "background" / "cup" / "forest-0.png"
    stale.write_bytes(b"no longer accepted")
    (out / "accepted" / "mine.txt").write_text("keep")
    begun = out / "accepted" / "begun.json"
    begun.write_text(json.dumps({"paths": ["background/cup/forest-0.png", "../../pool/manifest.parquet"]}))
    export_campaign(database, shelf, campaign_id, out, now=NOW + 1000)
    assert not stale.exists() and not begun.exists() and (out / "accepted" / "mine.txt").exists()
    assert (pool / "manifest.parquet").is_file()


def test_an_image_that_has_changed_is_said_and_left_out(campaign, tmp_path: Path) -> None:
    pool, database, shelf, campaign_id, _ = campaign
    (pool / "background" / "cup" / "beach-0.png").write_bytes(b"gone bad")
    done = export_campaign(database, shelf, campaign_id, tmp_path / "out", now=NOW + 1000)
    assert len(done.problems) == 1 and "beach-0" in done.problems[0]
    accepted = load_collection(str(tmp_path / "out" / "accepted"))
    assert len(accepted.samples) == done.accepted - 1


def test_a_folder_of_something_else_is_refused(campaign, tmp_path: Path) -> None:
    pool, database, shelf, campaign_id, _ = campaign
    before = bytes_sha256((pool / "manifest.parquet").read_bytes())
    with pytest.raises(UserError, match="holds something else"):
        export_campaign(database, shelf, campaign_id, pool, now=NOW)
    assert bytes_sha256((pool / "manifest.parquet").read_bytes()) == before


def test_answers_given_again_supersede(tmp_path: Path) -> None:
    import uuid

    from holdfast_people.assignment import next_task
    from holdfast_people.voting import cast

    database, shelf, campaign_id = open_campaign(tmp_path, make_pool(tmp_path / "pool"))
    person, *_ = hire(database, ["Ada"])
    with database.writing() as connection:
        task = next_task(connection, campaign_id, person, now=NOW)
    for answer in (NO, YES):
        with database.writing() as connection:
            cast(
                connection, place_token=task.places[0].token, person_id=person, key=uuid.uuid4().hex, answers=answer,
                seconds=1.0, now=NOW + 1,
            )  # fmt: skip
    frame = campaign_votes(database, shelf, campaign_id, now=NOW + 2).table.to_pandas()
    assert list(frame["superseded"]) == [True, True, False, False]
    assert set(frame["task_status"]) == {"open"} and not frame["counts"].any()
    late = campaign_votes(database, shelf, campaign_id, now=NOW + 10_000, hashes=False).table.to_pandas()
    assert set(late["task_status"]) == {"expired"} and set(late["sha256"]) == {""}
    database.close()


def test_nobody_has_voted(tmp_path: Path) -> None:
    database, shelf, campaign_id = open_campaign(tmp_path, make_pool(tmp_path / "pool"))
    with pytest.raises(UserError, match="has no votes yet"):
        export_campaign(database, shelf, campaign_id, tmp_path / "out", now=NOW)
    database.close()


def test_postgresql_gives_the_same_rows(tmp_path: Path, postgres_url: str) -> None:
    pool = make_pool(tmp_path / "pool", per_pair=2)
    tables = []
    for number, where in enumerate(("", postgres_url)):
        folder = tmp_path / str(number)
        folder.mkdir()
        database, shelf, campaign_id = open_campaign(folder, pool, where=where, people_per_image=3, at_least=2)
        for person in hire(database, ["a", "b", "c", "d"]):
            work(database, campaign_id, person, careful(verdict))
        frame = campaign_votes(database, shelf, campaign_id, now=NOW + 1000).table.to_pandas()
        tables.append(frame[frame["counts"]].sort_values(["sample_id", "question", "answer"], kind="stable"))
        database.close()
    columns = [
        "campaign",
        "sample_id",
        "source_id",
        "label",
        "asked",
        "nuisance",
        "pixels_sha256",
        "question",
        "answer",
    ]
    pd.testing.assert_frame_equal(*(one[columns].reset_index(drop=True) for one in tables), check_dtype=False)


def test_images_of_a_tar_file_are_named_by_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    with tarfile.open(tmp_path / "pool" / "shard-0.tar", "w") as tar:
        for number in range(6):
            pixels = np.full((12, 16, 3), 30 * number, np.uint8)
            kind = ".png" if number % 2 else ".jpg"
            for suffix, data in ((kind, cv2.imencode(kind, pixels)[1].tobytes()), (".cls", b"0")):
                member = tarfile.TarInfo(f"{number:03d}{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    (tmp_path / "pool" / "classes.txt").write_text("cup\n")
    reference = f"webdataset:{tmp_path / 'pool'}?classes={tmp_path / 'pool' / 'classes.txt'}"
    database, shelf, campaign_id = open_campaign(tmp_path, reference, people_per_image=1, at_least=1)
    person, *_ = hire(database, ["Ada"])
    work(database, campaign_id, person, careful(lambda _: YES))
    done = export_campaign(database, shelf, campaign_id, tmp_path / "out", now=NOW + 1000)
    database.close()
    paths = [sample.image.path for sample in load_collection(str(tmp_path / "out" / "accepted")).samples]
    assert done.accepted == 6 and sorted(Path(path).suffix for path in paths) == [".jpeg"] * 3 + [".png"] * 3
