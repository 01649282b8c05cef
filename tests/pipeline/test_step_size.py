"""The step of a walk: its share of the latent's scale, and trials that choose it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow.compute as pc
import pytest

import holdfast
from commands import run
from holdfast.pipeline.walk.calibration import StepTrial, chosen, goals

WALK = (
    "perturb", "diorama:test?n=4&size=32", "--models", "embedded:resnet_rho0", "--generator", "pixel:", "--oracle",
    "classifier:embedded:resnet_rho95", "--steps", "8", "--no-random-walk", "--device", "cpu", "--quiet",
)  # fmt: skip


def spec_of(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "spec.json").read_text())
    return found


def test_auto_finds_a_step_that_the_budget_resolves_and_keeps_it(tmp_path: Path) -> None:
    out = tmp_path / "run"
    said = run(*WALK, "--step-size", "auto", "--out", out).stdout
    spec = spec_of(out)
    trials, step = spec["step_trials"], spec["walk"]["step_size"]  # type: ignore[index]
    assert isinstance(trials, list) and step in [trial["step_size"] for trial in trials]
    (own,) = [trial for trial in trials if trial["step_size"] == step]
    assert goals(8)[0] <= own["first_failure"] <= goals(8)[2]
    assert all(trial["share"] == pytest.approx(trial["step_size"] / spec["latent_scale"]) for trial in trials)
    rows = holdfast.open_run(out).run.rows()
    perturbed = rows.filter(pc.equal(rows["condition"], "perturbed"))
    assert {json.loads(text)["step_size"] for text in perturbed["parameters"].to_pylist()} == {step}
    assert "of the latent's scale" in said
    run("report", out, "--out", tmp_path / "page")
    shown = "".join(path.read_text() for path in (tmp_path / "page").rglob("*.html"))
    assert "Trials of the step" in shown and "FMR over the size of a step" in shown
    run(*WALK, "--step-size", "auto", "--out", out)
    assert spec_of(out)["step_trials"] == trials and holdfast.open_run(out).run.rows().num_rows == rows.num_rows


def test_trials_are_what_walks_with_their_step_come_to(tmp_path: Path) -> None:
    """An ordinary run with the step of a trial validates as many images, and as many of them are right."""
    run(*WALK, "--step-size", "auto", "--out", tmp_path / "auto")
    for trial in spec_of(tmp_path / "auto")["step_trials"]:  # type: ignore[attr-defined]
        out = tmp_path / f"{trial['step_size']}"
        run(*WALK, "--step-size", repr(trial["step_size"]), "--out", out)
        rows = holdfast.open_run(out).run.rows().to_pandas()
        walked = rows[rows["condition"] == "perturbed"]
        fine = walked[walked["status"] == "ok"]
        assert (len(walked), len(fine), fine["correct_restricted"].sum()) == (
            trial["walks"], trial["validated"], trial["validated_right"],
        )  # fmt: skip


def test_a_step_that_is_too_long_is_said_to_be(tmp_path: Path) -> None:
    said = run(*WALK, "--step-size", "5", "--out", tmp_path / "run").stdout
    assert "ended at their first step" in said and "--step-size auto" in said


def test_a_step_that_is_too_short_is_said_to_be(tmp_path: Path) -> None:
    """Of the walks that began: the oracle rejects the reconstruction of one image. Not if the model fails."""
    said = run(*WALK, "--step-size", "0.000001", "--out", tmp_path / "run").stdout
    assert "none of 3 walks met a rejected or wrong image" in said and "--step-size auto" in said
    assert "none of" not in run(*WALK, "--step-size", "0.1", "--out", tmp_path / "longer").stdout


@pytest.mark.parametrize("text", ["0", "-1", "nan", "fast"])
def test_a_step_is_a_number_above_0_or_auto(tmp_path: Path, text: str) -> None:
    failed = run(*WALK, f"--step-size={text}", "--out", tmp_path / "run", code=2)
    assert f"--step-size {text}: expected a number above 0, or auto" in failed.stderr
    assert not (tmp_path / "run").exists()


def test_a_small_budget_has_a_range_that_a_median_can_meet() -> None:
    for budget in (2, 5, 8, 50):
        least, aim, most = goals(budget)
        assert least <= aim <= most and most - least >= 1


def test_the_trial_nearest_to_the_aim_is_chosen() -> None:
    def trial(step: float, failure: float | None) -> StepTrial:
        return StepTrial(step, math.nan, 6, 6, 6, 3, 4, 6, failure)

    trials = [trial(0.1, None), trial(0.4, 30.0), trial(0.9, 11.0), trial(2.0, 1.0)]
    assert chosen(trials, 50).step_size == 0.9
    assert chosen([trials[0], trial(0.7, None)], 50).step_size == 0.7
