"""The tables that eval and train print when they end: a line per condition, with parameters if it has several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.cli.listing import print_accuracy, print_recall
from holdfast.cli.runs import _print_trained
from holdfast.core.schema import PREDICTIONS, SCHEMA_VERSION
from holdfast.results import Results
from holdfast.store import Run
from made_detections import Planted, detector_run, made_detections

WEAK, STRONG = '{"sigma":3}', '{"sigma":30}'


def classifier_run(path: Path, right: dict[tuple[str, str, str], int]) -> Run:
    """Return a run of ten images: how many answers are right, by condition, parameters and what was trained on."""
    rows: list[dict[str, Any]] = [
        {"row_id": f"{condition}{parameters}{trained_on}{photo}", "sample_id": f"p{photo}", "source_id": f"p{photo}",
         "task": "classify", "kind": "static", "dataset": "made", "split": "", "fold": -1, "seed": 0,
         "protocol": "argmax", "status": "ok", "schema_version": SCHEMA_VERSION, "run_id": "made", "variant": "paper",
         "condition": condition, "parameters": parameters, "trained_on": trained_on, "model": "m", "label": "cat",
         "correct": photo < count, "correct_restricted": photo < count}
        for (condition, parameters, trained_on), count in right.items()
        for photo in range(10)
    ]  # fmt: skip
    run = Run(path)
    run.begin({"verb": "evaluate", "dataset": "made", "classes": ["cat"], "models": ["m"], "seed": 0})
    run.predictions.write(pa.Table.from_pylist(rows, PREDICTIONS))
    return run


def lines_of(text: str) -> dict[str, str]:
    """Return the figures of each line by its condition's name; two spaces or more lie between columns."""
    return {line.split("  ")[0].strip(): line.split("  ", 1)[1].strip() for line in text.splitlines() if "  " in line}


def test_eval_does_not_pool_conditions_that_differ_in_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = {("original", "{}", ""): 10, ("grey", "{}", ""): 7}
    print_accuracy(classifier_run(tmp_path / "one", right | {("blur_background", WEAK, ""): 8}))
    assert lines_of(capsys.readouterr().out)["blur_background"] == "80.0 % / 80.0 %"
    strengths = {("blur_background", STRONG, ""): 2, ("blur_background", WEAK, ""): 8}
    print_accuracy(classifier_run(tmp_path / "two", right | strengths))
    said = capsys.readouterr().out
    figures = lines_of(said)
    assert figures["grey"] == "70.0 % / 70.0 %"
    assert figures[f"blur_background {WEAK}"] == "80.0 % / 80.0 %"
    assert figures[f"blur_background {STRONG}"] == "20.0 % / 20.0 %"
    assert "10 images each" in said


def test_train_does_not_pool_them_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = {("original", "{}", "original"): 10}
    for parameters, across, within in ((WEAK, 8, 9), (STRONG, 2, 5)):
        right |= {("blur_background", parameters, "original"): across}
        right |= {("blur_background", parameters, f"blur_background {parameters}"): within}
    _print_trained(classifier_run(tmp_path / "run", right))
    figures = lines_of(capsys.readouterr().out)
    assert figures["original"] == "100.0 % / –"
    assert figures[f"blur_background {WEAK}"] == "80.0 % / 90.0 %"
    assert figures[f"blur_background {STRONG}"] == "20.0 % / 50.0 %"


def test_recall_of_detectors_is_not_pooled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = made_detections({"original": Planted(recall=1, alarms=0)})
    strengths = [
        [
            pa.Table.from_pylist(
                [row | {"parameters": parameters, "row_id": row["row_id"] + parameters} for row in table.to_pylist()],
                table.schema,
            )
            for table in made_detections({"blur_background": Planted(recall=recall, alarms=0)})
        ]
        for parameters, recall in ((WEAK, 1), (STRONG, 0))
    ]
    print_recall(detector_run(tmp_path / "run", original, *map(tuple, strengths)))
    figures = lines_of(capsys.readouterr().out)
    assert figures["original"] == "100.0 % / 0.00"
    assert figures[f"blur_background {WEAK}"] == "100.0 % / 0.00"
    assert figures[f"blur_background {STRONG}"] == "0.0 % / 0.00"


def test_a_printed_run_names_every_condition(tmp_path: Path) -> None:
    right = {("original", "{}", ""): 10, ("blur_background", WEAK, ""): 8, ("blur_background", STRONG, ""): 2}
    said = str(Results(classifier_run(tmp_path / "run", right)))
    assert f"conditions: original, blur_background {STRONG}, blur_background {WEAK}" in said
