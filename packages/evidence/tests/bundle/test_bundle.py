"""Runs as archives, and back."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from bundled_run import USER, make_run, members_of, pack, small_bundle, with_manifest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from holdfast import api, registry
from holdfast.core import schema
from holdfast.core.errors import UserError
from holdfast.pipeline.choosing import sources
from holdfast.pipeline.thumbnails import thumbnails
from holdfast.results import result_tables
from holdfast.store import Parts, Run
from holdfast.training.checkpoint import write_model
from holdfast_evidence import bundle as bundling
from holdfast_evidence import opening
from holdfast_evidence.bundle import bundle
from holdfast_evidence.export.columns import TABLES, in_words
from holdfast_evidence.export.private import clean_command, clean_values, cleaner
from holdfast_evidence.opening import open_bundle


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Run:
    results = api.perturb(
        "diorama:test?n=3&size=64", models="embedded:resnet_rho95", generator="pixel:",
        oracle="classifier:embedded:resnet_rho0", out=tmp_path_factory.mktemp("walks") / "walks", steps=2,
        step_size=0.02, keep_images=True, keep_latents=True, frames=1, device="cpu",
    )  # fmt: skip
    return results.run


@pytest.fixture(scope="module")
def archive(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(run.path, tmp_path_factory.mktemp("archive") / "result.zip").path


@pytest.fixture(scope="module")
def small(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without a report."""
    return bundle(run.path, tmp_path_factory.mktemp("small") / "small.zip", report=False).path


def _sorted(run: Run) -> list[dict[str, object]]:
    """The rows; what libraries say of errors may hold a path, which is cut."""
    rows = [{**row, "error": bool(row["error"])} for row in run.rows().to_pylist()]
    return sorted(rows, key=lambda row: row["row_id"])


def test_a_bundle_opens_as_the_same_run(run: Run, archive: Path, tmp_path: Path) -> None:
    opened = open_bundle(archive, tmp_path / "opened")
    there = Run.open(opened.path)
    assert len(there.rows()) > 30
    assert _sorted(there) == _sorted(run)
    assert there.samples().schema == schema.SAMPLES
    assert sorted(there.samples()["sample_id"].to_pylist()) == sorted(run.samples()["sample_id"].to_pylist())
    mine, theirs = (api.open_run(one.path).accuracy() for one in (run, there))
    pd.testing.assert_frame_equal(mine, theirs)
    gate = api.compare(run.path, there.path)
    assert (gate.conditions["difference"] == 0).all()
    assert not list(opened.path.rglob("*.html"))
    assert api.report([there.path], tmp_path / "page").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["opened", "page"]


def test_an_empty_archive_is_one_sentence(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(UserError, match=r"empty\.zip is an empty archive; holdfast share bundle makes one of a run"):
        open_bundle(tmp_path / "empty.zip", tmp_path / "opened")


def test_pages_of_a_bundle_are_never_unpacked(archive: Path, tmp_path: Path) -> None:
    members = members_of(archive) | {"report/x.html": b"<script>alert(1)</script>", "report/x.svg": b"<svg/>"}
    opened = open_bundle(pack(with_manifest(members), tmp_path / "stranger.zip"), tmp_path / "opened")
    suffixes = {path.suffix for path in opened.path.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".parquet"}
    page = api.report([opened.path], opened.path / "report")
    assert not list(opened.path.rglob("x.*")) and page.is_file()


def test_the_same_run_gives_the_same_bytes(run: Run, small: Path, tmp_path: Path) -> None:
    shuffled = Run(tmp_path / "other" / run.run_id)
    shutil.copytree(run.path, shuffled.path)
    rows = shuffled.rows()
    for path in shuffled.predictions.paths():
        path.unlink()
    for start in range(0, len(rows), 7):  # as after many interruptions
        shuffled.predictions.write(rows.slice(start, 7).take(list(range(min(7, len(rows) - start)))[::-1]))
    assert bundle(shuffled.path, tmp_path / "b.zip", report=False).path.read_bytes() == small.read_bytes()


def test_a_bundle_of_an_opened_bundle_has_the_same_tables(run: Run, small: Path, tmp_path: Path) -> None:
    first = members_of(small)
    open_bundle(small, tmp_path / run.run_id)
    again = small_bundle(Run.open(tmp_path / run.run_id), tmp_path / "b.zip")
    for name in ("predictions/part-00000.parquet", "samples.parquet", "tables/accuracy.csv", "environment.json"):
        assert again[name] == first[name]


def test_nothing_of_the_machine_or_its_user_is_in_it(run: Run, archive: Path) -> None:
    home = str(run.path.parent)
    assert USER in (run.path / "spec.json").read_text()
    members = members_of(archive)
    for name, data in members.items():
        texts = [data]
        if name.endswith(".parquet"):
            texts = [repr(pq.read_table(io.BytesIO(data)).to_pylist()).encode()]
        for text in texts:
            assert USER.encode() not in text, name
            assert home.encode() not in text, name
            assert str(Path.cwd()).encode() not in text, name
    spec = json.loads(members["spec.json"])
    assert spec["data"] == "images"
    assert spec["masks"] == "masks"
    assert any(USER in (row["error"] or "") for row in run.rows().to_pylist())
    rows = pq.read_table(io.BytesIO(members["predictions/part-00000.parquet"]))
    assert "OSError: cannot read bundle_models.py any more" in rows["error"].to_pylist()


def test_it_is_read_without_holdfast(run: Run, small: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(small, tmp_path / "plain")
    lines = (tmp_path / "plain" / "README.txt").read_text().splitlines()
    python = "\n".join(line.strip() for line in lines if line.startswith(("  import", "  rows", "  print")))
    done = subprocess.run([sys.executable, "-c", python], cwd=tmp_path / "plain", capture_output=True, text=True)
    assert "blur_background" in done.stdout, done.stderr
    start = next(place for place, line in enumerate(lines) if line.startswith("  select"))
    query = " ".join(line.strip() for line in lines[start : start + 2]).replace(
        "predictions/", f"{tmp_path}/plain/predictions/"
    )
    shares = {condition: share for _, condition, share in duckdb.sql(query).fetchall()}
    expected = pd.DataFrame(_sorted(run)).query("status == 'ok'").groupby("condition")["correct"].mean()
    assert shares == pytest.approx(expected.to_dict())
    table = list(csv.DictReader((tmp_path / "plain" / "tables" / "accuracy.csv").read_text().splitlines()))
    told = {row["condition"]: float(row["accuracy"]) for row in table}
    frame = api.open_run(run.path).accuracy()
    assert told == pytest.approx(dict(zip(frame["condition"], frame["accuracy"], strict=True)))


def test_large_tables_go_into_parts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "_ROWS", 7)
    members = small_bundle(run, tmp_path / "a.zip")
    parts = sorted(name for name in members if name.startswith("predictions/"))
    assert len(parts) == -(-len(run.rows()) // 7)
    ids = [pq.read_table(io.BytesIO(members[name]))["row_id"].to_pylist() for name in parts]
    assert list(itertools.chain(*ids)) == sorted(run.rows()["row_id"].to_pylist())
    assert _sorted(Run.open(open_bundle(tmp_path / "a.zip", tmp_path / "opened").path)) == _sorted(run)


def test_trained_models_travel_as_data(run: Run, tmp_path: Path) -> None:
    trained = tmp_path / "runs" / "trained"
    shutil.copytree(run.path, trained)
    folder = trained / "models" / "net" / "fold-0"
    weights = {"layer": torch.arange(6.0).view(2, 3)}
    write_model(folder, weights, {"architecture": "net", "from": f"/home/{USER}/start"}, {"seed": 0}, "A small net.")
    (folder / "checkpoint.pt").write_bytes(b"a pickle")
    (folder / "link.json").symlink_to("/etc/hostname")
    bundle(trained, tmp_path / "a.zip", report=False, models=True)
    opened = open_bundle(tmp_path / "a.zip", tmp_path / "opened").path / "models" / "net" / "fold-0"
    assert sorted(path.name for path in opened.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert torch.equal(load_file(opened / "model.safetensors")["layer"], weights["layer"])
    assert json.loads((opened / "config.json").read_text())["from"] == "start"


def test_every_column_of_every_table_is_explained() -> None:
    tables = {one for one in vars(schema).values() if isinstance(one, pa.Schema)}
    assert tables - {schema.KEY, schema.OUTCOME, schema.BOOKKEEPING} == {kind.schema for kind in TABLES}
    for kind in TABLES:
        assert list(kind.meanings) == kind.schema.names
    assert all(f"  {name} " in in_words() for name in schema.PREDICTIONS.names)


def test_every_task_has_tables_sections_and_a_name_on_the_hub() -> None:
    tasks = [registry.tasks.get(name) for name in registry.tasks]
    assert all(task.results and task.sections and task.calls and task.hub != "other" for task in tasks)
    assert all(result_tables(name) for name in (*registry.tasks, "walks"))


def test_walks_with_their_details_and_pictures(walks: Run, tmp_path: Path) -> None:
    made = bundle(walks.path, tmp_path / "walks.zip", pictures=True, report=False)
    opened = open_bundle(made.path, tmp_path / "opened")
    for name, kind in (("walks", schema.WALKS), ("frames", schema.FRAMES), ("latents", schema.LATENTS)):
        mine, theirs = (Parts(one / "details" / name, kind).rows().to_pylist() for one in (walks.path, opened.path))
        assert len(theirs) == len(mine) > 0
        assert sorted(map(repr, theirs)) == sorted(map(repr, mine))
    for pattern in ("frames/**/*.png", "images/**/*.png"):
        mine = {path.relative_to(walks.path): path.read_bytes() for path in walks.path.glob(pattern)}
        assert {path.relative_to(opened.path): path.read_bytes() for path in opened.path.glob(pattern)} == mine
    pd.testing.assert_frame_equal(
        api.open_run(opened.path).fmr(measures=True), api.open_run(walks.path).fmr(measures=True)
    )


def test_an_opened_run_reads_and_loads_nothing_by_its_senders_word(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = members_of(small)
    spec = json.loads(members["spec.json"])
    (tmp_path / "trap_model.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec |= {"models": ["python:trap_model:model"], "data": "/etc", "labels": "/etc/passwd"}
    pack(with_manifest({**members, "spec.json": json.dumps(spec).encode()}), tmp_path / "b.zip")
    opened = open_bundle(tmp_path / "b.zip", tmp_path / "opened")
    told = Run.open(opened.path).spec()
    assert not {"models", "data", "labels"} & set(told)
    assert told["as_sent"]["data"] == "/etc"
    assert not sources([Run.open(opened.path)])
    assert thumbnails(Run.open(opened.path), set(Run.open(opened.path).samples()["source_id"].to_pylist())) == {}
    assert not (tmp_path / "sprung").exists()


def test_photos_are_shown_where_the_reader_has_them(run: Run, small: Path, tmp_path: Path) -> None:
    photos = run.path.parent / "my images"
    without = open_bundle(small, tmp_path / "without")
    given = open_bundle(small, tmp_path / "given", data=str(photos / "images"), masks=str(photos / "masks"))
    photos_of = set(run.samples()["source_id"].drop_null().to_pylist())
    assert not thumbnails(Run.open(without.path), photos_of)
    assert len(thumbnails(Run.open(given.path), photos_of)) == 36


def test_older_tables_are_read_and_newer_ones_refused(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = members_of(small)
    name = "predictions/part-00000.parquet"
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(members[name])).drop(["donor_unmasked"]), sink)
    pack(with_manifest({**members, name: sink.getvalue()}), tmp_path / "old.zip")
    with pytest.raises(UserError, match="lacks donor_unmasked"):
        open_bundle(tmp_path / "old.zip", tmp_path / "refused")
    with monkeypatch.context() as later:
        later.setattr(opening, "SCHEMA_VERSION", 2)  # the column came with version 2
        opened = open_bundle(tmp_path / "old.zip", tmp_path / "opened")
    rows = Run.open(opened.path).rows()
    assert rows.schema == schema.PREDICTIONS
    assert rows["donor_unmasked"].null_count == len(rows) > 0


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("/home/ann/photos", "photos"),
        ("local-dir:/home/ann/models/last", "last"),
        ("coco:/home/ann/a.json?images=/data/ann pics", "a.json"),
        ("~/secret", "secret"),
        (r"C:\Users\ann\photos", "photos"),
        ("../../ann/photos", "photos"),
        ("could not read /home/ann/photos/cat/1.jpg: no such file", "photos/cat/1.jpg"),
        ("vlm+http://user:word@10.1.2.3:8000/v1#model", "#model"),
    ],
)
def test_paths_are_cut(text: str, cleaned: str) -> None:
    clean = cleaner(["/home/ann/photos"] if " read " in text else [text])
    assert cleaned in clean(text)
    assert "ann" not in clean(text).replace("ann pics", "")
    assert not any(part in clean(text) for part in ("word", "10.1", "/home", "Users"))


@pytest.mark.parametrize(
    "text", ["timm:resnet50.a1_in1k", "diorama:test?n=48", "and/or", "photos/cat/1", "hf:google/vit-base", "a / b / c"]
)
def test_what_is_no_path_stays(text: str) -> None:
    assert cleaner([text, "/home/ann/x"])(text) == text


def test_two_models_stay_two() -> None:
    names = ["local-dir:/home/ann/a/model", "local-dir:/home/ann/b/model"]
    clean = cleaner(names)
    assert len({clean(name) for name in names}) == 2
    assert clean_values({"models": names}, clean)["models"] == [clean(name) for name in names]
    command = clean_command(
        f"holdfast eval '/home/ann/my images' --models {','.join(names)}", cleaner([*names, "/home/ann/my images"])
    )
    assert command == "holdfast eval 'my images' --models local-dir:model,local-dir:model-2"


@given(st.lists(st.text("abc", min_size=1, max_size=3), min_size=2, max_size=6))
def test_no_folder_above_a_path_survives(parts: list[str]) -> None:
    path = "/secretfolder/" + "/".join(parts)
    clean = cleaner([path])
    assert "secretfolder" not in clean(f"no such file: {path}/picture.jpg, sorry")
    assert clean(path) in (parts[-1], "home")


@pytest.mark.parametrize("what", ["nothing", "no rows", "a folder"])
def test_what_is_no_run_is_refused(what: str, run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "a.zip"
    source.mkdir()
    if what == "no rows":
        (source / "spec.json").write_text("{}")
    if what == "a folder":
        source, target = run.path, tmp_path
    with pytest.raises(UserError):
        bundle(source, target)
    assert not (tmp_path / "a.zip").exists()
