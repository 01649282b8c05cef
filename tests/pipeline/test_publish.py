"""Kept images with provenance, and the benchmark folder made of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import pyarrow.parquet as pq
import pytest

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import bytes_sha256
from holdfast.data import load_collection
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.specs import PerturbSpec, WalkOptions
from holdfast.pipeline.walk.perturb import perturb
from holdfast.pipeline.walk.publish import publish
from holdfast.store import Run

SCENES, MODEL, SECOND = 4, "embedded:resnet_rho0", "embedded:resnet_rho95"
SPEC = PerturbSpec(
    f"diorama:test?n={SCENES}",
    models=(MODEL, SECOND),
    generator="pixel:",
    oracle="clip:embedded",
    random_walk=False,
    walk=WalkOptions(steps=2, step_size=0.004),
)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return perturb(replace(SPEC, keep_images=True), tmp_path_factory.mktemp("walked") / "run")[0].path


@pytest.fixture
def run(walked: Path, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(walked, tmp_path / "run"))


def test_a_benchmark_that_eval_reads_and_whose_hashes_are_checked(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "benchmark"
    assert publish(run, out) == 2 * SCENES
    rows = pq.read_table(out / "manifest.parquet").to_pylist()
    card = json.loads((out / "benchmark.json").read_text())
    assert card["images"] == len(rows) == 2 * SCENES and card["made_against"] == [MODEL, SECOND]
    assert card["manifest_sha256"] == bytes_sha256((out / "manifest.parquet").read_bytes())
    for row in rows:
        assert row["path"].split("/")[0] == row["label"]
        assert row["published_sha256"] == bytes_sha256((out / row["path"]).read_bytes())
        assert (row["generator"], row["seed"], row["steps"]) == ("pixel:", 0, 2)
        assert row["source_id"] == row["made_from"] and json.loads(row["parameters"])["step_size"] == 0.004
    # Every image is answered there as it was in the run.
    answered = {
        (row["model"], row["image_sha256"]): row["prediction"]
        for row in run.rows().to_pylist()
        if row["condition"] == "perturbed"
    }
    tested, summary = evaluate(EvaluateSpec(str(out), models=(MODEL,), scenarios="original"), tmp_path / "eval")
    found = tested.rows().to_pylist()
    assert len(found) == 2 * SCENES and not summary.trouble
    assert {row["condition"] for row in found} == {"perturbed"} and {row["kind"] for row in found} == {"static"}
    for row in found:
        if (MODEL, row["image_sha256"]) in answered:
            assert row["prediction"] == answered[MODEL, row["image_sha256"]]
    assert sum((MODEL, row["image_sha256"]) in answered for row in found) >= SCENES
    # One byte of a pixel later, the file is refused.
    path = out / rows[0]["path"]
    image = cv2.imread(str(path))
    image[0, 0, 0] ^= 1
    cv2.imwrite(str(path), image)
    changed = next(one for one in load_collection(str(out)).samples if one.sample_id == rows[0]["sample_id"])
    with pytest.raises(SampleError, match="changed since it was published"):
        changed.image.load()
    tested, summary = evaluate(EvaluateSpec(str(out), models=(MODEL,), scenarios="original"), tmp_path / "again")
    assert sum(summary.trouble.values()) == 1 and "changed since it was published" in next(iter(summary.trouble))


def test_kept_images_can_be_read_where_they_lie(run: Run) -> None:
    collection = load_collection(str(run.path / "images"))
    assert len(collection) == 2 * SCENES and not collection.problems
    assert {sample.condition for sample in collection.samples} == {"perturbed"}
    assert {sample.attributes["made_against"] for sample in collection.samples} == {MODEL, SECOND}


def test_what_cannot_be_published_is_a_sentence(run: Run, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "letters.txt").write_text("mine")
    with pytest.raises(UserError, match="holds something else"):
        publish(run, full)
    assert publish(run, tmp_path / "new") == publish(run, tmp_path / "new")  # its own folder may be written again
    stale = next((tmp_path / "new").rglob("*.png"))
    stale.rename(stale.with_name("of another run.png"))
    with pytest.raises(UserError, match="images that this run did not make"):
        publish(run, tmp_path / "new")
    kept = sorted((run.path / "images").rglob("*.png"))
    cv2.imwrite(str(kept[0]), cv2.imread(str(kept[0])) // 2)
    with pytest.raises(UserError, match="is not the image that was judged"):
        publish(run, tmp_path / "other")
    kept[0].unlink()
    with pytest.raises(UserError, match="--keep-images"):
        publish(run, tmp_path / "other")
    perturb(replace(SPEC, keep_images=True), run.path)  # which makes it again
    assert publish(run, tmp_path / "other") == 2 * SCENES
    plain, _ = perturb(replace(SPEC, models=(MODEL,)), tmp_path / "plain")
    with pytest.raises(UserError, match=f"kept 0 of {SCENES} images.*--keep-images"):
        publish(plain, tmp_path / "third")
    rejecting = replace(SPEC, models=(MODEL,), oracle="clip:embedded?min_score=1", keep_images=True)
    nothing, _ = perturb(rejecting, tmp_path / "nothing")
    with pytest.raises(UserError, match="no validated walk"):
        publish(nothing, tmp_path / "fourth")
