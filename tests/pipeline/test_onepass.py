"""``--fast`` against the standard evaluator: the same rows, nearly the same answers, and never one for the other."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.compute as pc
import pytest

from holdfast.core.errors import HoldfastError, UserError
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.fast import device_pass, networks, tuning
from holdfast.scenarios import parse_conditions
from holdfast.store import Run
from shapes import CLASSES, draw

LOOSE = ("confidence", "confidence_restricted", "probability_of_label")
ANSWERS = ("prediction", "correct", "prediction_restricted", "correct_restricted", "topk")
OTHERS = ("row_id", "run_id", "image_sha256")


def by_key(run: Run) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = run.rows().to_pylist()
    found = {
        tuple(row[name] for name in ("model", "sample_id", "condition", "variant", "parameters")): row for row in rows
    }
    assert len(found) == len(rows)
    return found


def assert_alike(exact: Run, fast: Run, *, agree: float = 1.0) -> None:
    """Everything but answers is equal; answers are in that share of the rows, and probabilities are close."""
    first, second = by_key(exact), by_key(fast)
    assert first.keys() == second.keys()
    same = []
    for key, row in first.items():
        other = second[key]
        for name in row.keys() - {*LOOSE, *ANSWERS, *OTHERS}:
            assert row[name] == other[name], (key, name)
        same.append(row["prediction"] == other["prediction"])
        for name in LOOSE:
            assert (row[name] is None) == (other[name] is None)
            assert row[name] is None or row[name] == pytest.approx(other[name], abs=0.02), (key, name)
    assert np.mean(same) >= agree


@pytest.fixture
def labels(tmp_path: Path) -> str:
    (tmp_path / "labels.txt").write_text("\n".join(CLASSES))
    return str(tmp_path / "labels.txt")


@pytest.fixture
def network(labels: str) -> str:
    return f"timm:test_resnet?pretrained=false&num_classes=3&seed=1&size=32&labels={labels}"


@pytest.fixture
def trouble(photos: Path) -> Path:
    """Images of several sizes, and some that cannot be used, in as many ways as there are."""
    for place, (height, width) in enumerate([(48, 64), (48, 64), (70, 50), (50, 900), (90, 120)]):
        image, mask = draw("disc", 10 + place)
        size = (width, height)
        cv2.imwrite(str(photos / f"images/disc/size{place}.png"), cv2.resize(image, size))
        shape = cv2.resize(mask, size, interpolation=cv2.INTER_NEAREST)
        cv2.imwrite(str(photos / f"masks/disc/size{place}.png"), shape)
    images, masks = photos / "images" / "square", photos / "masks" / "square"
    image, mask = draw("square", 20)
    for name in ("unmasked", "nothing", "everything", "other", "cut"):
        cv2.imwrite(str(images / f"{name}.png"), image)
    cv2.imwrite(str(masks / "nothing.png"), np.zeros_like(mask))
    cv2.imwrite(str(masks / "everything.png"), np.full_like(mask, 255))
    cv2.imwrite(str(masks / "other.png"), mask[:40])
    (masks / "cut.png").write_bytes((masks / "0.png").read_bytes()[:60])
    (images / "broken.png").write_bytes(b"this is no picture")
    (images / "empty.png").write_bytes(b"")
    return photos


def test_rows_are_those_of_the_ordinary_way_whatever_the_files_are(
    trouble: Path, network: str, toy_models: str, tmp_path: Path
) -> None:
    models = (f"{toy_models}:colour", network)
    exact = EvaluateSpec(str(trouble), models=models, scenarios="all", device="cpu", matte=(10, 20, 30), batch_size=7)
    ordinary, _ = evaluate(exact, tmp_path / "exact")
    fast, summary = evaluate(replace(exact, fast=True), tmp_path / "fast")
    assert_alike(ordinary, fast, agree=0.99)
    assert {row["status"] for row in by_key(fast).values()} == {"ok", "error", "skipped"}
    # The notes and the row ids say which rows the standard evaluator made: those are exact.
    first, second = by_key(ordinary), by_key(fast)
    renamed = [key for key, row in first.items() if row["row_id"] != second[key]["row_id"]]
    assert {key[0] for key in renamed} == {key[0] for key in first if "test_resnet" in key[0]}
    assert {key[2] for key in renamed} == {one.scenario for one in parse_conditions("static")}
    assert all(second[key]["image_sha256"] is None for key in renamed)
    assert any("colour cannot use --fast" in note for note in summary.notes)
    assert any("13 conditions in one pass" in note for note in summary.notes)


def test_answers_of_trained_models_agree_and_processes_change_nothing(tmp_path: Path) -> None:
    spec = EvaluateSpec(
        "diorama:test?n=24", models=("embedded:resnet_rho95", "embedded:vit_rho95"), scenarios="static", device="cpu"
    )
    ordinary, _ = evaluate(spec, tmp_path / "exact")
    fast, summary = evaluate(replace(spec, fast=True), tmp_path / "fast")
    assert summary.rows == 24 * 13 * 2 and not summary.trouble
    assert_alike(ordinary, fast, agree=0.99)
    several, _ = evaluate(replace(spec, fast=True, workers=2, batch_size=50), tmp_path / "several")
    first, second = by_key(fast), by_key(several)
    assert first.keys() == second.keys()
    assert all(row["row_id"] == second[key]["row_id"] for key, row in first.items())
    assert all(row["topk"] == second[key]["topk"] for key, row in first.items())


def test_a_run_that_was_cut_short_is_continued(photos: Path, network: str, labels: str, tmp_path: Path) -> None:
    second = f"timm:test_vit?pretrained=false&num_classes=3&seed=1&size=96&labels={labels}"
    spec = EvaluateSpec(str(photos), models=(network, second), scenarios="static", device="cpu", fast=True)
    whole, _ = evaluate(spec, tmp_path / "whole")
    run, _ = evaluate(replace(spec, models=(network,), scenarios="original,grey,random_background"), tmp_path / "run")
    # A third of what is there is lost again: single rows, not whole samples or conditions.
    lost = run.rows(["row_id"])["row_id"].to_pylist()[::3]
    run.predictions.drop(pc.field("row_id").isin(lost))
    run, summary = evaluate(spec, tmp_path / "run")
    assert summary.already == 12 * 3 - len(lost)
    assert summary.rows == 12 * 13 * 2 - summary.already
    first, again = by_key(whole), by_key(run)
    assert first.keys() == again.keys()
    assert all(row["row_id"] == again[key]["row_id"] for key, row in first.items())
    assert all(row["prediction"] == again[key]["prediction"] for key, row in first.items())
    _, nothing = evaluate(spec, tmp_path / "run")
    assert (nothing.rows, nothing.already) == (0, 12 * 13 * 2)


def test_a_changed_mask_replaces_its_rows(photos: Path, network: str, tmp_path: Path) -> None:
    spec = EvaluateSpec(str(photos), models=(network,), scenarios="original,segmented", device="cpu", fast=True)
    evaluate(spec, tmp_path / "run")
    cv2.imwrite(str(photos / "masks/disc/0.png"), draw("disc", 1)[1])
    run, summary = evaluate(spec, tmp_path / "run")
    assert (summary.rows, summary.already) == (1, 23)
    assert Counter(row["condition"] for row in by_key(run).values()) == {"original": 12, "segmented": 12}


@pytest.mark.parametrize("first", [True, False])
def test_fast_and_exact_answers_do_not_mix(photos: Path, network: str, tmp_path: Path, first: bool) -> None:
    spec = EvaluateSpec(str(photos), models=(network,), scenarios="original", device="cpu", fast=first)
    run, _ = evaluate(spec, tmp_path / "run")
    before = run.rows().to_pylist()
    with pytest.raises(UserError, match="do not mix"):
        evaluate(replace(spec, fast=not first), tmp_path / "run")
    assert run.rows().to_pylist() == before


def test_who_lends_a_background_is_the_same_where_the_first_ones_cannot_be_read(
    photos: Path, network: str, tmp_path: Path
) -> None:
    for label in ("disc", "square"):  # ten of eleven donors of a cross
        for index in range(8):
            if (label, index) != ("disc", 3):
                (photos / f"images/{label}/{index}.png").write_bytes(b"broken")
    spec = EvaluateSpec(str(photos), models=(network,), scenarios="random_background", device="cpu")
    ordinary, _ = evaluate(spec, tmp_path / "exact")
    fast, _ = evaluate(replace(spec, fast=True), tmp_path / "fast")
    assert_alike(ordinary, fast)
    lenders = {row["donor_id"] for row in by_key(fast).values() if row["label"] == "cross"}
    assert len(lenders) == 1 and "disc/3" in str(lenders)


def test_images_that_are_renderings_already_are_taken_as_they_are(photos: Path, network: str, tmp_path: Path) -> None:
    from holdfast.pipeline.synth.synth import SynthSpec, synth

    synth(SynthSpec(str(photos), scenarios="grey,random_background", workers=1), tmp_path / "made")
    spec = EvaluateSpec(str(tmp_path / "made"), models=(network,), scenarios="all", device="cpu")
    ordinary, _ = evaluate(spec, tmp_path / "exact")
    fast, _ = evaluate(replace(spec, fast=True), tmp_path / "fast")
    assert_alike(ordinary, fast, agree=0.99)


def test_what_cannot_be_compiled_still_answers() -> None:
    import torch

    from holdfast.models import load_classifier
    from holdfast.models.torch_classifier import TorchClassifier

    classifier = load_classifier("embedded:resnet_rho0", device="cpu")
    assert isinstance(classifier, TorchClassifier)
    network = networks.build(classifier, 2)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert tuning.compile_network(network)
    assert network.call is network.module
    assert network.probabilities(network.blank(2)).shape == (2, 12)


def killed(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_writer_that_is_killed_ends_the_run_with_a_sentence(photos: Path, network: str, tmp_path: Path) -> None:
    spec = EvaluateSpec(str(photos), models=(network,), scenarios="original", device="cpu", fast=True, workers=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_pass, "TableMaker", lambda *_, **__: killed)
        with pytest.raises(HoldfastError, match="process that writes rows was killed"):
            evaluate(spec, tmp_path / "run")
    run, summary = evaluate(replace(spec, workers=1), tmp_path / "run")
    assert summary.rows == len(by_key(run)) == 12


def test_hashing_ends_with_a_model_that_does_not_exist(tmp_path: Path) -> None:
    # Files are hashed in a thread while networks are loaded; it must not continue for a command that has failed.
    seen: list[int] = []

    def slow(step: str, done: int, total: int) -> None:
        if step == "hash":
            seen.append(done)
            time.sleep(0.02)

    spec = EvaluateSpec("diorama:test?n=600", models=("timm:resnet_18000",), device="cpu", fast=True)
    with pytest.raises(UserError, match="resnet_18000"):
        evaluate(spec, tmp_path / "run", progress=slow)
    before = len(seen)
    time.sleep(0.3)
    assert len(seen) <= before + 2 < 600
