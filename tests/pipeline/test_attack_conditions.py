"""Attacks as conditions of eval: rows in the one table, resumed like the others, and out of every average."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core.errors import UserError
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.stats.core.grid import grid
from holdfast.stats.effects.score import scores

SCENES = "diorama:test?n=12"
SPEC = EvaluateSpec(
    SCENES, models=("embedded:resnet_rho0",), scenarios="original,grey,fgsm?eps=0.02,pgd?steps=4", device="cpu"
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> holdfast.Results:
    run, _ = evaluate(SPEC, tmp_path_factory.mktemp("attacked") / "run")
    return holdfast.Results(run)


def rows_of(run: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["sample_id"], row["condition"]): row for row in run.rows().to_pylist()}


def test_static_and_attacked_rows_stand_in_one_table(results: holdfast.Results) -> None:
    rows = rows_of(results)
    assert len(rows) == 12 * 4 and {row["status"] for row in rows.values()} == {"ok"}
    kinds = {(row["condition"], row["kind"]) for row in rows.values()}
    assert kinds == {("original", "static"), ("grey", "static"), ("fgsm", "attack"), ("pgd", "attack")}
    right = {name: sum(row["correct"] for (_, one), row in rows.items() if one == name) for _, name in rows}
    assert right["original"] > right["pgd"], right
    hashes = {row["image_sha256"] for row in rows.values()}
    assert len(hashes) == len(rows), "every condition showed another image, and the attacked ones are hashed"


def test_a_finished_run_is_not_attacked_again_and_a_new_radius_adds_rows(tmp_path: Path) -> None:
    spec = replace(SPEC, scenarios="fgsm?eps=0.02", limit=4)
    _, first = evaluate(spec, tmp_path / "run")
    run, again = evaluate(spec, tmp_path / "run")
    assert (first.rows, again.rows, again.already) == (4, 0, 4)
    before = set(run.rows(["row_id"])["row_id"].to_pylist())
    run, more = evaluate(replace(spec, scenarios="fgsm?eps=0.01"), tmp_path / "run")
    assert more.rows == 4 and before < set(run.rows(["row_id"])["row_id"].to_pylist())
    other, _ = evaluate(replace(spec, seed=1), tmp_path / "other")
    assert not before & set(other.rows(["row_id"])["row_id"].to_pylist())


@pytest.mark.parametrize("change", [{"batch_size": 5}, {"workers": 2}])
def test_batches_and_workers_do_not_change_what_attacks_find(
    results: holdfast.Results, tmp_path: Path, change: dict[str, int]
) -> None:
    run, _ = evaluate(replace(SPEC, **change), tmp_path / "run")
    one, other = rows_of(results), rows_of(run)
    assert {key: row["row_id"] for key, row in one.items()} == {key: row["row_id"] for key, row in other.items()}
    # The sign of a gradient near zero is a matter of rounding, which differs between batch sizes.
    same = [row["prediction"] == other[key]["prediction"] for key, row in one.items()]
    assert sum(same) >= len(same) - 1


def test_attacks_are_shown_but_enter_no_average(results: holdfast.Results, tmp_path: Path) -> None:
    counts = results.counts
    assert counts.attacks == ("fgsm", "pgd")
    assert set(results.accuracy()["condition"]) == {"original", "grey", "fgsm", "pgd"}
    assert grid(counts).conditions == ["original", "grey"]
    assert grid(counts, conditions=["original", "pgd"]).conditions == ["original", "pgd"]
    plain, _ = evaluate(replace(SPEC, scenarios="original,grey"), tmp_path / "plain")
    without = scores(holdfast.Results(plain).counts, resamples=50)
    assert scores(counts, resamples=50)["score"].tolist() == without["score"].tolist()
    assert results.scores(resamples=50)["score"].tolist() == without["score"].tolist()


def test_the_report_shows_attacks(results: holdfast.Results, tmp_path: Path) -> None:
    alone, _ = evaluate(replace(SPEC, scenarios="original,fgsm?eps=0.02"), tmp_path / "run")
    for number, run in enumerate((results, holdfast.Results(alone))):
        out = tmp_path / str(number)
        page = run.report(out, resamples=50).read_text(encoding="utf-8")
        assert "no score, ranking or regression counts them" in page
        assert "fgsm" in (out / "tables" / "accuracy_by_scenario.csv").read_text(encoding="utf-8")


def test_a_model_without_gradients_is_said_before_anything_is_computed(
    photos: Path, toy_models: str, tmp_path: Path
) -> None:
    spec = EvaluateSpec(str(photos), models=(f"{toy_models}:colour",), scenarios="original,pgd", limit=2)
    with pytest.raises(UserError, match="colour has none; decision_attack needs only"):
        evaluate(spec, tmp_path / "run")
    assert not (tmp_path / "run" / "predictions").exists()
    run, _ = evaluate(replace(spec, scenarios="original,decision_attack?steps=1&eps=0.5"), tmp_path / "run")
    rows = run.rows().to_pylist()
    assert {row["status"] for row in rows} == {"ok"} and len(rows) == 4


def test_synth_has_no_model_to_attack(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pgd is made against a model"):
        holdfast.synth(photos, out=tmp_path / "synth", scenarios="grey,pgd")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fgsm?eps=0.003", "eps of fgsm is at least 0.0039"),
        ("pgd?steps=0", "steps of pgd is at least 1"),
        ("pgd?space=half", "space of pgd is one of"),
        ("attacks?eps=0.1", "parameters for a group"),
    ],
)
def test_what_cannot_be_asked_for(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        holdfast.parse_conditions(text)
