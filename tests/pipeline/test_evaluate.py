from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from holdfast.core.errors import UserError
from holdfast.core.schema import PREDICTIONS
from holdfast.pipeline.classifiers import Unloaded, know_models, load_models
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.samples import read
from holdfast.pipeline.specs import parse_matte
from holdfast.scenarios import parse_conditions
from holdfast.store import Run

Table = Callable[..., list[dict[str, object]]]


@pytest.fixture
def spec(photos: Path, toy_models: str) -> EvaluateSpec:
    return EvaluateSpec(str(photos), models=(f"{toy_models}:colour",), scenarios="all", batch_size=7)


@pytest.mark.parametrize("inside", ["", "images"])
def test_a_run_is_not_written_among_the_photos(spec: EvaluateSpec, photos: Path, inside: str) -> None:
    before = sorted(photos.rglob("*"))
    with pytest.raises(UserError, match="choose another --out"):
        evaluate(spec, photos / inside)
    assert sorted(photos.rglob("*")) == before


def test_every_sample_condition_and_model_has_its_row(spec: EvaluateSpec, tmp_path: Path) -> None:
    both = replace(spec, models=(*spec.models, spec.models[0].replace("colour", "second")))
    run, summary = evaluate(both, tmp_path / "run")
    table = run.rows()
    assert table.schema == PREDICTIONS
    rows = table.to_pylist()
    assert summary.rows == len(rows) == 12 * 18 * 2
    assert len({row["row_id"] for row in rows}) == len(rows)
    assert Counter(row["status"] for row in rows) == {"ok": len(rows)}
    keys = Counter((row["sample_id"], row["condition"], row["model"]) for row in rows)
    assert len(keys) == len(rows)
    originals = [row for row in rows if row["condition"] == "original"]
    assert all(row["correct"] for row in originals)
    donors = {row["condition"] for row in rows if row["donor_id"]}
    assert donors == {"random_background", "same_class_background"}
    for row in rows:
        if row["condition"] == "random_background":
            assert row["donor_label"] != row["label"]
        if row["condition"] == "same_class_background":
            assert row["donor_label"] == row["label"] and row["donor_id"] != row["sample_id"]


def test_models_asked_by_two_threads_answer_as_in_turns(tmp_path: Path) -> None:
    scenes, models = "diorama:test?n=12", ("embedded:resnet_rho0", "embedded:vit_rho95")
    tables = []
    for device in ("cpu", "cpu:0"):  # any other device than cpu works asynchronously
        spec = EvaluateSpec(scenes, models=models, scenarios="original,segmented", device=device, batch_size=5)
        rows = evaluate(spec, tmp_path / device.replace(":", "-"))[0].rows().to_pylist()
        tables.append({row["row_id"]: row | {"run_id": ""} for row in rows})
    assert len(tables[0]) == 48 and tables[0] == tables[1]


def test_a_finished_run_has_nothing_left_to_do_and_a_new_model_costs_only_itself(
    spec: EvaluateSpec, tmp_path: Path
) -> None:
    run, _ = evaluate(spec, tmp_path / "run")
    before = {row["row_id"] for row in run.rows(["row_id"]).to_pylist()}
    _, again = evaluate(spec, tmp_path / "run")
    assert (again.rows, again.already) == (0, 12 * 18)
    more = replace(spec, models=(*spec.models, spec.models[0].replace("colour", "second")))
    run, added = evaluate(more, tmp_path / "run")
    assert (added.rows, added.already) == (12 * 18, 12 * 18)
    assert before < {row["row_id"] for row in run.rows(["row_id"]).to_pylist()}


@pytest.mark.parametrize("change", [{"batch_size": 1}, {"workers": 2}, {"batch_size": 500}])
def test_batches_and_workers_do_not_change_the_table(
    spec: EvaluateSpec, tmp_path: Path, table_of: Table, change: dict[str, int]
) -> None:
    one, _ = evaluate(spec, tmp_path / "one")
    other, _ = evaluate(replace(spec, **change), tmp_path / "other")
    assert table_of(one) == table_of(other)


def test_workers_load_the_models_and_their_sizes_are_recorded_all_the_same() -> None:
    """Reports and choose read sizes from spec.json; with several workers it had none."""
    spec = EvaluateSpec("diorama:test?n=2", models=("embedded:resnet_rho0",), scenarios="original", device="cpu")
    collection = read(spec)
    (loaded,) = load_models(spec, collection)
    (known,) = know_models(spec, collection, parse_conditions("original"))
    assert isinstance(known.classifier, Unloaded) and known.parameters == loaded.parameters > 0


def test_the_folder_may_move_and_the_ids_stay(spec: EvaluateSpec, tmp_path: Path, photos: Path) -> None:
    evaluate(spec, tmp_path / "run")
    moved = tmp_path / "elsewhere" / "photos"
    moved.parent.mkdir()
    photos.rename(moved)
    _, summary = evaluate(replace(spec, data=str(moved)), tmp_path / "run")
    assert summary.rows == 0


def test_a_changed_image_is_measured_again(spec: EvaluateSpec, tmp_path: Path, photos: Path) -> None:
    only = replace(spec, scenarios="original,grey")
    evaluate(only, tmp_path / "run")
    path = photos / "images" / "disc" / "0.png"
    cv2.imwrite(str(path), 255 - cv2.imread(str(path)))
    _, summary = evaluate(only, tmp_path / "run")
    assert summary.rows == 2


def test_seeds_change_donors_and_nothing_else(spec: EvaluateSpec, tmp_path: Path) -> None:
    hashes = []
    for seed in (0, 1):
        run, _ = evaluate(replace(spec, seed=seed), tmp_path / str(seed))
        rows = run.rows().to_pylist()
        hashes.append({(row["sample_id"], row["condition"]): row["image_sha256"] for row in rows})
    changed = {
        condition
        for (_, condition) in hashes[0]
        if any(
            hashes[0][sample, condition] != hashes[1][sample, condition] for sample, c in hashes[0] if c == condition
        )
    }
    assert {"random_background"} <= changed
    assert not changed & {"original", "grey", "red", "blur_background", "segmented", "silhouette"}


def test_trouble_with_an_image_is_a_row(spec: EvaluateSpec, tmp_path: Path, photos: Path) -> None:
    images, masks = photos / "images" / "disc", photos / "masks" / "disc"
    (images / "0.png").write_bytes((images / "0.png").read_bytes()[:200])
    (images / "1.png").write_bytes(b"")
    (images / "words.jpg").write_text("I am not an image")
    cv2.imwrite(str(masks / "2.png"), np.zeros((9, 9), np.uint8))
    cv2.imwrite(str(masks / "3.png"), np.zeros((48, 64), np.uint8))
    full = photos / "masks" / "cross" / "0.png"
    cv2.imwrite(str(full), np.full((48, 64), 255, np.uint8))
    (photos / "masks" / "cross" / "1.png").unlink()
    run, summary = evaluate(spec, tmp_path / "run")
    rows = run.rows().to_pylist()
    assert len(rows) == 13 * 18
    status = {(row["sample_id"], row["condition"]): (row["status"], row["error"]) for row in rows}
    for broken in ("disc/0", "disc/1", "disc/words"):
        assert status[broken, "original"][0] == status[broken, "grey"][0] == "error", broken
    assert status["disc/2", "original"][0] == "ok"
    assert status["disc/2", "grey"][0] == "error" and "9" in status["disc/2", "grey"][1]
    assert status["disc/3", "grey"][0] == "error" and "empty" in status["disc/3", "grey"][1]
    assert status["cross/0", "grey"][0] == "error"
    assert status["cross/1", "grey"] == ("skipped", "grey needs a mask and this image has none")
    assert summary.notes[0].startswith("2 of 13 images have no mask, so 17 of 18 conditions are skipped for them")
    assert evaluate(spec, tmp_path / "run")[1].notes[0] == summary.notes[0], "said again where nothing is left to do"
    assert status["cross/1", "original"][0] == "ok"
    assert sum(summary.trouble.values()) >= 3 * 18
    assert all(row["correct"] is None and row["error"] for row in rows if row["status"] != "ok")


def test_a_bomb_is_refused_before_it_is_decoded(spec: EvaluateSpec, tmp_path: Path, photos: Path) -> None:
    with pytest.raises(UserError, match=r"12 errors, the first: .*--max-pixels"):
        evaluate(replace(spec, scenarios="original", max_pixels=48 * 64 - 1), tmp_path / "run")
    errors = {row["error"] for row in Run(tmp_path / "run").rows().to_pylist()}
    assert len(errors) == 1 and "--max-pixels" in errors.pop()


def test_a_model_that_fails_on_some_images_keeps_the_others(
    spec: EvaluateSpec, tmp_path: Path, toy_models: str
) -> None:
    run, summary = evaluate(replace(spec, models=(f"{toy_models}:broken",), batch_size=64), tmp_path / "run")
    status = Counter(row["status"] for row in run.rows().to_pylist())
    assert status["ok"] > 0 and status["error"] > 0
    assert any("too red" in message for message in summary.trouble)


def test_errors_are_tried_again_on_request(spec: EvaluateSpec, tmp_path: Path, photos: Path) -> None:
    whole = (photos / "masks" / "disc" / "0.png").read_bytes()
    (photos / "masks" / "disc" / "0.png").write_bytes(whole[:60])
    run, _ = evaluate(spec, tmp_path / "run")
    errors = [row for row in run.rows().to_pylist() if row["status"] == "error"]
    assert errors and {row["sample_id"] for row in errors} == {"disc/0"}
    _, untouched = evaluate(spec, tmp_path / "run")
    assert untouched.rows == 0
    _, retried = evaluate(replace(spec, retry_errors=True), tmp_path / "run")
    assert retried.rows == len(errors)


def test_an_unexpected_accuracy_stops_before_the_scenarios(spec: EvaluateSpec, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"12 of 12 originals .* check its preprocessing"):
        evaluate(replace(spec, expect_accuracy=0.3), tmp_path / "off")
    assert {row["condition"] for row in Run(tmp_path / "off").rows().to_pylist()} == {"original"}
    _, summary = evaluate(replace(spec, expect_accuracy=0.95), tmp_path / "fine")
    assert summary.rows == 12 * 18


def test_another_dataset_does_not_mix_in(spec: EvaluateSpec, tmp_path: Path, photos: Path) -> None:
    evaluate(replace(spec, scenarios="original"), tmp_path / "run")
    (photos / "images" / "disc").rename(photos / "images" / "ring")
    (photos / "masks" / "disc").rename(photos / "masks" / "ring")
    with pytest.raises(UserError, match=r"ring|classes"):
        evaluate(replace(spec, scenarios="original"), tmp_path / "run")


def test_backgrounds_from_a_folder(spec: EvaluateSpec, tmp_path: Path) -> None:
    (tmp_path / "walls" / "deep").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "walls" / "deep" / "brick.png"), np.full((30, 30, 3), 90, np.uint8))
    wall = replace(spec, scenarios="random_background", backgrounds=str(tmp_path / "walls"))
    run, _ = evaluate(wall, tmp_path / "run")
    assert {row["donor_id"] for row in run.rows().to_pylist()} == {"backgrounds/deep/brick.png"}
    with pytest.raises(UserError, match="not a folder"):
        evaluate(replace(spec, backgrounds=str(tmp_path / "nowhere")), tmp_path / "run2")


def test_two_models_of_one_name_are_refused(spec: EvaluateSpec, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="share the name"):
        evaluate(replace(spec, models=(spec.models[0], spec.models[0])), tmp_path / "run")


def test_an_unmappable_class_is_named(spec: EvaluateSpec, tmp_path: Path, photos: Path) -> None:
    (photos / "images" / "disc").rename(photos / "images" / "dics")
    with pytest.raises(UserError, match=r"dics.*disc"):
        evaluate(spec, tmp_path / "run")


def test_matte() -> None:
    assert parse_matte("white") == (255, 255, 255)
    assert parse_matte("1,2,3") == (1, 2, 3)
    for wrong in ("1,2", "red", "1,2,300"):
        with pytest.raises(UserError, match="matte"):
            parse_matte(wrong)


def test_limit_sees_every_class(spec: EvaluateSpec, tmp_path: Path) -> None:
    run, _ = evaluate(replace(spec, limit=4, scenarios="original"), tmp_path / "run")
    assert Counter(row["label"] for row in run.rows().to_pylist()) == {"cross": 2, "disc": 1, "square": 1}
