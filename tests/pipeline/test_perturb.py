"""Dynamic runs on the drawn world: rows, resuming, baselines, and everything that can go wrong with one."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import array_sha256
from holdfast.core.schema import PREDICTIONS, WALK_TIMES, end_picture, original_picture
from holdfast.data import load_collection
from holdfast.models import load_classifier
from holdfast.pipeline.specs import PerturbSpec, WalkOptions
from holdfast.pipeline.walk.perturb import perturb
from holdfast.pipeline.walk.recording import colour_shift, feature_distance
from holdfast.pipeline.walk.resources import square
from holdfast.stats.walks.walk_rows import fmr_of_rows
from holdfast.store import Run

SCENES, MODEL, SECOND = 6, "embedded:resnet_rho0", "embedded:resnet_rho95"
SPEC = PerturbSpec(
    f"diorama:test?n={SCENES}",
    models=(MODEL,),
    generator="pixel:",
    oracle="clip:embedded",
    walk=WalkOptions(steps=3, step_size=0.006, batch_size=4),
)

GENERATORS = '''
import torch

class Nothing:
    """Lets no change through."""
    factor, fingerprint = 8, "nothing"
    def encode(self, batch):
        return torch.zeros(len(batch), 2)
    def decode(self, latent, original):
        return original + 0 * latent.sum()

class Small(Nothing):
    size, fingerprint = 32, "small"

class Bottomless(Nothing):
    """Its slope at the start is infinite."""
    fingerprint = "bottomless"
    def decode(self, latent, original):
        return original + latent.abs().sqrt().sum(1)[:, None, None, None]
'''


@pytest.fixture
def toy_generators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "generators"
    folder.mkdir()
    (folder / "toy_generators.py").write_text(GENERATORS)
    monkeypatch.syspath_prepend(str(folder))
    return "python:toy_generators"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    spec = replace(SPEC, models=(MODEL, SECOND), keep_images=True, frames=2)
    return perturb(spec, tmp_path_factory.mktemp("finished") / "run")[0]


def by_condition(run: Run, condition: str) -> dict[tuple[str, str], dict[str, Any]]:
    rows = run.rows().to_pylist()
    return {(row["model"], row["sample_id"]): row for row in rows if row["condition"] == condition}


def test_every_image_has_its_rows_and_every_walk_its_details(finished: Run) -> None:
    table = finished.rows()
    assert table.schema == PREDICTIONS
    rows = table.to_pylist()
    assert len({row["row_id"] for row in rows}) == len(rows) == 4 * 2 * SCENES
    assert Counter(row["condition"] for row in rows) == dict.fromkeys(
        ("original", "reconstruction", "perturbed", "random_walk"), 2 * SCENES
    )
    assert {row["kind"] for row in rows} == {"dynamic"}
    assert {row["parameters"] for row in rows if row["condition"] == "original"} == {'{"size":64}'}
    (setting,) = {row["parameters"] for row in rows if row["condition"] != "original"}
    assert json.loads(setting) == finished.spec()["parameters"]
    assert json.loads(setting)["step_size"] == 0.006 and "batch_size" not in json.loads(setting)
    walks = {row["row_id"]: row for row in finished.details("walks").rows().to_pylist()}
    assert set(walks) == {row["row_id"] for row in rows if row["condition"] in ("perturbed", "random_walk")}
    for row in rows:
        if row["condition"] == "perturbed":
            walk = walks[row["row_id"]]
            assert (row["status"] == "ok") == walk["validated"] == row["oracle_accepted"]
            assert walk["largest_change"] <= 3 * 0.006 + 0.5 / 255
            assert 0 < walk["perceptual_distance"] < 2 and 0 < walk["colour_shift"] < 10


def test_answers_are_those_of_the_model_to_the_pictures_that_were_kept(finished: Run) -> None:
    collection = load_collection(SPEC.data)
    classifier = load_classifier(MODEL)
    originals, perturbed = by_condition(finished, "original"), by_condition(finished, "perturbed")
    walks = {row["row_id"]: row["image"] for row in finished.details("walks").rows().to_pylist()}
    for sample in collection.samples:
        before, after = originals[MODEL, sample.sample_id], perturbed[MODEL, sample.sample_id]
        image = sample.image.load()
        assert before["image_sha256"] == array_sha256(image)
        kept = cv2.imread(str(finished.path / "images" / walks[after["row_id"]]))[..., ::-1]
        assert after["image_sha256"] == array_sha256(np.ascontiguousarray(kept))
        for row, picture in ((before, image), (after, np.ascontiguousarray(kept))):
            scores = classifier.predict([picture])[0]
            assert row["prediction"] == classifier.labels.names[int(scores.argmax())]
            assert row["confidence"] == pytest.approx(float(scores.max()), abs=1e-4)
        # A step of a sign moves no channel of a pixel further, and the walk had three.
        assert np.abs(kept.astype(int) - image).max() <= 255 * 0.018 + 0.5


def test_fmr_is_what_counting_by_hand_gives(finished: Run) -> None:
    table = fmr_of_rows(finished.rows())
    for model in (MODEL, SECOND):
        original, perturbed = by_condition(finished, "original"), by_condition(finished, "perturbed")
        random = by_condition(finished, "random_walk")
        mine = [key for key in original if key[0] == model]
        right = sum(original[key]["correct_restricted"] for key in mine)
        valid = [key for key in mine if perturbed[key]["status"] == "ok"]
        survived = sum(perturbed[key]["correct_restricted"] for key in valid)
        found = table[(table["model"] == model) & (table["label"] == "")].set_index("measure")
        assert (found.loc["fmr", "numerator"], found.loc["fmr", "denominator"]) == (survived, len(valid))
        assert found.loc["fmr", "estimate"] == pytest.approx((survived / len(valid)) / (right / len(mine)))
        walked = [key for key in mine if random[key]["status"] == "ok"]
        assert found.loc["random_walk", "numerator"] == sum(random[key]["correct_restricted"] for key in walked)
    assert set(table["space"]) == {"dataset"} and set(table["generator"]) == {"pixel:"}


def test_the_random_walk_is_as_long_as_the_walk(finished: Run) -> None:
    walks = {row["row_id"]: row for row in finished.details("walks").rows().to_pylist()}
    perturbed, random = by_condition(finished, "perturbed"), by_condition(finished, "random_walk")
    for key, row in random.items():
        budget = walks[perturbed[key]["row_id"]]["steps"]
        assert row["status"] in ("ok", "rejected") and walks[row["row_id"]]["budget"] == budget
        assert walks[row["row_id"]]["image"] == ""


def test_pictures_and_times_are_kept_for_the_report(finished: Run) -> None:
    samples = finished.samples().to_pylist()
    spread = [sample["sample_id"] for sample in samples][:: max(1, len(samples) // 4)][:4]
    assert all((finished.path / original_picture(name)).is_file() for name in spread)
    rows = finished.rows(["row_id", "sample_id", "condition", "status", "image_sha256"]).to_pylist()
    ends = [row for row in rows if row["condition"] == "perturbed" and row["status"] == "ok"]
    for row in ends:
        file = finished.path / end_picture(row["row_id"])
        assert file.is_file() == (row["sample_id"] in spread)
        if file.is_file():
            image = cv2.cvtColor(cv2.imread(str(file)), cv2.COLOR_BGR2RGB)
            assert array_sha256(image) == row["image_sha256"]
    times = {}
    for file in (finished.path / WALK_TIMES).iterdir():
        times |= json.loads(file.read_text())
    assert set(times) == {row["row_id"] for row in rows if row["condition"] == "perturbed"} and min(times.values()) > 0


def test_frames_show_the_first_walks_from_the_reconstruction_on(finished: Run) -> None:
    details = finished.details
    frames = details("frames").rows().to_pylist()
    first = [sample.sample_id for sample in load_collection(SPEC.data).samples[:2]]
    perturbed, originals = by_condition(finished, "perturbed"), by_condition(finished, "original")
    assert {frame["row_id"] for frame in frames} == {
        perturbed[model, one]["row_id"] for model in (MODEL, SECOND) for one in first
    }
    for model in (MODEL, SECOND):
        for one in first:
            mine = [frame for frame in frames if frame["row_id"] == perturbed[model, one]["row_id"]]
            assert [frame["step"] for frame in mine] == list(range(len(mine))) and len(mine) >= 2
            picture = cv2.imread(str(finished.path / mine[0]["image"]))[..., ::-1]
            assert array_sha256(np.ascontiguousarray(picture)) == originals[model, one]["image_sha256"]
            assert mine[-1]["loss"] > mine[0]["loss"]


def test_relations_and_the_oracles_card_are_recorded(finished: Run) -> None:
    spec = finished.spec()
    assert any("both trained on" in sentence for sentence in spec["kinship"])
    assert ["Oracle", "clip:embedded?template=an image of a {class}"] in spec["oracle_cards"][0]


def test_another_oracle_leaves_the_card_and_the_warnings_of_the_first(tmp_path: Path) -> None:
    perturb(replace(SPEC, oracle=f"classifier:{MODEL}"), tmp_path / "run")
    for _ in range(2):
        run, _ = perturb(SPEC, tmp_path / "run")
    oracles = [dict(card)["Oracle"] for card in run.spec()["oracle_cards"]]
    assert oracles == [f"classifier:{MODEL}", "clip:embedded?template=an image of a {class}"]
    told = run.spec()["kinship"]
    assert any("is judged by itself" in sentence for sentence in told) and len(set(told)) == len(told)


def test_a_finished_run_has_nothing_left_and_a_model_costs_only_itself(tmp_path: Path) -> None:
    _, first = perturb(SPEC, tmp_path / "run")
    _, again = perturb(SPEC, tmp_path / "run")
    assert (first.rows, again.rows, again.already) == (4 * SCENES, 0, 4 * SCENES)
    run, more = perturb(replace(SPEC, models=(MODEL, SECOND), random_walk=False), tmp_path / "run")
    assert (more.rows, more.already) == (3 * SCENES, 3 * SCENES)
    # Another setting is next to the first; the originals are the same rows.
    _, other = perturb(replace(SPEC, walk=replace(SPEC.walk, steps=2)), tmp_path / "run")
    assert (other.rows, other.already) == (3 * SCENES, SCENES)
    ids = run.rows(["row_id"])["row_id"].to_pylist()
    assert len(ids) == len(set(ids)) == (4 + 3 + 3) * SCENES
    table = fmr_of_rows(run.rows())
    assert len(table["parameters"].unique()) == 2


def assert_same(one: Run, other: Run) -> None:
    """Keys, answers, statuses and images exactly; scores but for the rounding of other batches."""
    tables = [{row["row_id"]: row for row in run.rows().to_pylist()} for run in (one, other)]
    assert set(tables[0]) == set(tables[1])
    for name, row in tables[0].items():
        for column, value in row.items():
            if column != "run_id":
                twin = tables[1][name][column]
                assert twin == (pytest.approx(value, abs=1e-4) if isinstance(value, float) else value), column


@pytest.mark.slow
def test_kill_9_and_run_again(tmp_path: Path) -> None:
    walk = replace(SPEC.walk, steps=6, batch_size=1, deterministic=True)
    spec, out = replace(SPEC, data="diorama:test?n=6", walk=walk), tmp_path / "run"
    words = [sys.executable, "-m", "holdfast.cli.main", "perturb", spec.data, "--models", MODEL, "--deterministic"]
    words += ["--generator", "pixel:", "--oracle", "clip:embedded", "--steps", "6", "--step-size", "0.006"]
    with subprocess.Popen([*words, "--batch-size", "1", "--out", str(out), "-q"]) as process:
        while not list((out / "predictions").glob("part-*")):
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    kept = Run.open(out).rows(["row_id"])["row_id"].to_pylist()
    run, summary = perturb(spec, out)
    assert 0 < len(kept) < 6 * 4 and (summary.already, summary.rows) == (len(kept), 6 * 4 - len(kept))
    assert_same(run, perturb(spec, tmp_path / "whole")[0])


def test_details_without_a_row_are_made_again_and_none_is_there_twice(tmp_path: Path) -> None:
    """Killed between the details and the table, which is written last."""
    run, _ = perturb(SPEC, tmp_path / "run")
    before = Run.open(shutil.copytree(run.path, tmp_path / "before"))
    for part in run.predictions.paths():
        part.unlink()
    run, _ = perturb(SPEC, tmp_path / "run")
    assert_same(run, before)
    ids = run.details("walks").rows(["row_id"])["row_id"].to_pylist()
    assert len(ids) == len(set(ids)) == 2 * SCENES


def test_what_was_not_kept_at_first_is_walked_again(tmp_path: Path) -> None:
    run, _ = perturb(SPEC, tmp_path / "run")
    before = Run.open(shutil.copytree(run.path, tmp_path / "before"))
    run, summary = perturb(replace(SPEC, keep_images=True, keep_latents=True, frames=1), tmp_path / "run")
    assert summary.rows == SCENES
    assert_same(run, before)
    details = run.details
    assert details("latents").rows().num_rows == SCENES and details("frames").rows().num_rows >= 2
    ids = details("walks").rows(["row_id"])["row_id"].to_pylist()
    assert len(ids) == len(set(ids)) == 2 * SCENES


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """Six drawn scenes as files, one of them damaged, one wide."""
    folder = tmp_path / "scenes"
    for place, sample in enumerate(load_collection(SPEC.data).samples):
        image = sample.image.load()
        if place == 1:
            image = np.pad(image, ((0, 0), (20, 20), (0, 0)))
        path = folder / sample.label / f"{place}.png"
        path.parent.mkdir(parents=True)
        cv2.imwrite(str(path), image[..., ::-1])
        if place == 0:
            path.write_bytes(path.read_bytes()[:300])
    return folder


def test_trouble_with_an_image_is_rows_and_a_changed_one_is_walked_again(scenes: Path, tmp_path: Path) -> None:
    spec = replace(SPEC, data=str(scenes), size=64)
    run, summary = perturb(spec, tmp_path / "run")
    rows = run.rows().to_pylist()
    assert len(rows) == 4 * SCENES and sum(summary.trouble.values()) == 3
    broken = {row["condition"]: row["status"] for row in rows if row["status"] not in ("ok", "rejected")}
    assert broken == {"original": "error", "reconstruction": "error", "perturbed": "error", "random_walk": "skipped"}
    assert fmr_of_rows(run.rows())["n"].max() == SCENES - 1
    wide = next(one for one in load_collection(str(scenes)).samples if one.image.load().shape[1] > 64)
    row = by_condition(run, "original")[MODEL, wide.sample_id]
    assert row["image_sha256"] == array_sha256(np.ascontiguousarray(wide.image.load()[:, 20:-20]))
    path = next(scenes.rglob("2.png"))
    cv2.imwrite(str(path), cv2.imread(str(path))[:, ::-1])
    run, again = perturb(spec, tmp_path / "run")
    assert (again.rows, run.rows().num_rows) == (4, 4 * SCENES)


def test_an_oracle_that_rejects_everything(tmp_path: Path) -> None:
    run, summary = perturb(replace(SPEC, oracle="clip:embedded?min_score=1"), tmp_path / "run")
    assert not summary.trouble
    original, perturbed = by_condition(run, "original"), by_condition(run, "perturbed")
    for key, row in perturbed.items():
        assert row["status"] == "rejected" and row["oracle_accepted"] is False
        for column in ("prediction", "confidence", "image_sha256"):
            assert row[column] == original[key][column]  # the original is kept
    assert {row["status"] for row in by_condition(run, "random_walk").values()} == {"skipped"}
    found = fmr_of_rows(run.rows()).query("label == ''").set_index("measure")
    assert found.loc["validation_rate", "estimate"] == 0
    assert found.loc["fmr", "reason"] == "the oracle accepted no image" and np.isnan(found.loc["fmr", "estimate"])
    assert "random_walk" not in found.index
    stops = run.details("walks").rows(["stop"])["stop"].to_pylist()
    assert stops == ["first_rejected"] * SCENES


def test_numbers_that_are_not_finite_end_the_walk_and_are_a_row(toy_generators: str, tmp_path: Path) -> None:
    run, summary = perturb(replace(SPEC, generator=f"{toy_generators}:Bottomless"), tmp_path / "run")
    rows = by_condition(run, "perturbed").values()
    assert {row["status"] for row in rows} == {"error"} and all("not finite" in row["error"] for row in rows)
    assert sum(summary.trouble.values()) == SCENES
    assert {row["status"] for row in by_condition(run, "reconstruction").values()} == {"ok"}
    with pytest.raises(UserError, match="no finished walk"):
        fmr_of_rows(run.rows())


def test_a_model_without_gradients_names_the_black_box_walk(photos: Path, toy_models: str, tmp_path: Path) -> None:
    spec = replace(
        SPEC, data=str(photos), models=(f"{toy_models}:colour",), oracle=f"classifier:{toy_models}:second", limit=3
    )
    with pytest.raises(UserError, match="--black-box"):
        perturb(spec, tmp_path / "run")
    run, _ = perturb(replace(spec, walk=replace(SPEC.walk, black_box=2, steps=1)), tmp_path / "run")
    rows = run.rows().to_pylist()
    assert len(rows) == 12 and {row["status"] for row in rows} == {"ok"}
    assert json.loads(rows[0]["parameters"])["size"] == 48


def test_a_model_that_fails_on_a_picture_is_a_row_and_can_be_tried_again(
    photos: Path, toy_models: str, tmp_path: Path
) -> None:
    spec = replace(
        SPEC,
        data=str(photos),
        models=(f"{toy_models}:broken",),
        oracle=f"classifier:{toy_models}:colour",
        walk=replace(SPEC.walk, direction="random", steps=1),
    )
    run, first = perturb(spec, tmp_path / "run")
    rows = run.rows().to_pylist()
    middles = {one.sample_id: square(one.image.load(), 48) for one in load_collection(str(photos)).samples}
    red = {name for name, image in middles.items() if image[..., 0].mean() > 127}
    assert 0 < len(red) < 12 and len(rows) == 3 * 12 == first.rows  # a random walk has no random baseline
    assert {row["sample_id"] for row in rows if row["status"] == "error"} == red
    assert all("too red" in row["error"] for row in rows if row["status"] == "error")
    _, again = perturb(spec, tmp_path / "run")
    _, retried = perturb(replace(spec, retry_errors=True), tmp_path / "run")
    assert (again.rows, retried.rows) == (0, 3 * len(red))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"models": ()}, "--models"),
        ({"generator": ""}, "--generator"),
        ({"oracle": ""}, "--oracle"),
        ({"generator": "TOY:Nothing", "size": 60}, "not divisible by 8"),
        ({"generator": "TOY:Small", "size": 64}, "32 pixels a side and at no other"),
        ({"space": "everything"}, "no choice of --space is called"),
        ({"oracle": "clip:embedded?space=all", "oracle_space": "dataset"}, "leave one of them out"),
        ({"sparse": "no-such-mask"}, "no sparse mask"),
        ({"data": "PHOTOS"}, "cross"),  # a class that neither the model nor the oracle has a name for
    ],
)
def test_a_mistake_is_a_sentence(
    change: dict[str, Any], said: str, toy_generators: str, photos: Path, tmp_path: Path
) -> None:
    filled = {
        name: value.replace("TOY", toy_generators).replace("PHOTOS", str(photos)) if isinstance(value, str) else value
        for name, value in change.items()
    }
    with pytest.raises(UserError, match=said):
        perturb(replace(SPEC, **filled), tmp_path / "run")


def test_a_class_the_oracle_has_no_name_for(photos: Path, toy_models: str, tmp_path: Path) -> None:
    spec = replace(SPEC, data=str(photos), models=(f"{toy_models}:colour",), walk=replace(SPEC.walk, black_box=1))
    with pytest.raises(UserError, match="cross"):
        perturb(spec, tmp_path / "run")


def test_label_spaces_go_together_and_can_be_set_apart(tmp_path: Path) -> None:
    oracle = f"classifier:{SECOND}"
    spec = replace(SPEC, oracle=oracle, limit=2, random_walk=False, space="all")
    told = perturb(spec, tmp_path / "one")[0].spec()["parameters"]
    assert [told[name] for name in ("space", "loss_space", "oracle_space")] == ["all"] * 3
    assert told["oracle"].endswith("space=all")
    told = perturb(replace(spec, loss_space="dataset", oracle_space="dataset"), tmp_path / "two")[0].spec()[
        "parameters"
    ]
    assert [told[name] for name in ("space", "loss_space", "oracle_space")] == ["all", "dataset", "dataset"]
    assert "space" not in told["oracle"]


def test_square_keeps_the_middle() -> None:
    image = np.zeros((40, 100, 3), np.uint8)
    image[:, 30:70] = 200
    assert (square(image, 40) == 200).all() and (square(image, 16) == 200).all()
    assert square(image.transpose(1, 0, 2), 64).shape == (64, 64, 3)


def test_distances_of_known_pictures() -> None:
    grey, white = np.full((32, 32, 3), 119, np.uint8), np.full((32, 32, 3), 255, np.uint8)
    assert colour_shift(white, white) == 0
    # Lightness of sRGB 119 is 50.03, of white 100: published conversions.
    assert colour_shift(white, grey) == pytest.approx(49.97, abs=0.3)

    class Judge:
        classifier = load_classifier(MODEL)

    distance = feature_distance(Judge(), 32)  # type: ignore[arg-type]
    assert distance is not None
    rng = np.random.default_rng(0)
    scene = load_collection(SPEC.data).samples[0].image.load()[:32, :32]
    slightly = np.clip(scene + rng.integers(-4, 5, scene.shape), 0, 255).astype(np.uint8)
    noise = rng.integers(0, 256, scene.shape, np.uint8)
    same, near, far = distance([scene] * 3, [scene, slightly, noise])
    assert same == pytest.approx(0, abs=1e-5) and 0 < near < far < 2
    assert distance([scene], [noise]) == pytest.approx([far], abs=1e-4)
    assert feature_distance(object(), 32) is None  # type: ignore[arg-type]
