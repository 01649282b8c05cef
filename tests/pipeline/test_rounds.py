"""Rounds: who is asked when, who lends to whom, and that a stopped check continues."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from holdfast.check_rounds import decision_chances, parse_budget
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import array_sha256
from holdfast.core.types import Collection, Sample
from holdfast.data import load_collection
from holdfast.pipeline.evaluate.rounds import evaluate_rounds, lent_once, plan_rounds
from holdfast.pipeline.samples import over_matte, render_conditions
from holdfast.pipeline.specs import EvaluateSpec
from holdfast.pipeline.thumbnails import _pool
from holdfast.scenarios import parse_conditions
from holdfast.stats.effects.verdict import NEEDED
from holdfast.store import Run


def collection(**counts: int) -> Collection:
    """A dataset of names: nothing is decoded."""
    drawn = load_collection("diorama:test?n=1").samples[0]
    samples = [Sample(f"{label}/{place}", label, drawn.image) for label, n in counts.items() for place in range(n)]
    return Collection("made", tuple(counts), tuple(samples))


def test_every_round_holds_each_class_equally_often() -> None:
    photos = collection(cat=20, dog=24, fox=21)
    rounds = plan_rounds(photos, seed=0)
    assert [len(block) for block in rounds.blocks] == [9, 24, 27]  # the last one has what is left of the cats
    for block in rounds.blocks:
        assert len(set(Counter(sample.label for sample in block).values())) == 1
    names = [sample.sample_id for block in rounds.blocks for sample in block]
    assert len(names) == len(set(names)) == 60 and rounds.unused == 5 and rounds.smallest == "cat"
    assert rounds == plan_rounds(collection(fox=21, cat=20, dog=24), seed=0)
    assert rounds != plan_rounds(photos, seed=1)
    assert rounds.place()[rounds.blocks[1][0].source_id] == (1, rounds.blocks[1][0].label)


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [
        ({"cat": 10, "dog": 10}, [6, 14]),
        ({"cat": 60, "dog": 4}, [8]),  # the small class ends the rounds
        ({f"class{number}": 7 for number in range(40)}, [120, 160]),
        ({"cat": 60, "dog": 2}, []),
        ({"cat": 60}, []),
    ],
)
def test_small_uneven_and_many_classes(counts: dict[str, int], sizes: list[int]) -> None:
    rounds = plan_rounds(collection(**counts), seed=0)
    assert [len(block) for block in rounds.blocks] == sizes
    assert rounds.unused == sum(counts.values()) - sum(sizes)


@pytest.mark.parametrize("counts", [{"a": 3, "b": 3}, {"a": 8, "b": 8, "c": 8}, {"a": 12, "b": 6, "c": 6}])
def test_every_photo_lends_once_within_its_class_and_once_to_another(counts: dict[str, int]) -> None:
    samples = collection(**counts).samples
    for seed in range(20):
        pool = lent_once(samples, seed=seed, max_pixels=10**6)
        for same_class in (True, False):
            rng = np.random.default_rng(0)
            lenders = [next(iter(pool.candidates(sample, rng, same_class=same_class))) for sample in samples]
            assert Counter(Counter(lender.sample_id for lender in lenders).values()) == {1: len(samples)}
            for sample, lender in zip(samples, lenders, strict=True):
                assert (sample.label == lender.label) is same_class and sample.sample_id != lender.sample_id


def test_rows_of_a_round_stay_when_the_next_is_asked_and_a_stopped_run_goes_on(tmp_path: Path) -> None:
    spec = EvaluateSpec("diorama:test?n=72", models=("embedded:resnet_rho0",))
    drawn = load_collection(spec.data)
    rounds = plan_rounds(drawn, spec.seed)
    assert len(rounds.blocks) > 1

    def go(out: Path, count: int) -> tuple[list[tuple[int, int]], dict[str, tuple[str, str]]]:
        steps = zip(range(count), evaluate_rounds(spec, out, drawn, rounds, with_masks=list), strict=False)
        made = [(summary.rows, summary.already) for _, (_, summary) in steps]
        rows = Run(out).rows(["row_id", "sample_id", "donor_id", "condition", "prediction"]).to_pylist()
        assert {row["condition"] for row in rows} == set(NEEDED)
        assert set(Run(out).samples()["sample_id"].to_pylist()) == {row["sample_id"] for row in rows}
        return made, {row["row_id"]: (row["donor_id"], row["prediction"]) for row in rows}

    _, first = go(tmp_path / "stopped", 1)
    made, both = go(tmp_path / "stopped", 2)
    assert made[0] == (0, len(first))
    assert first.items() <= both.items() and both == go(tmp_path / "whole", 2)[1]
    lent = Counter(donor for donor, _ in both.values() if donor)
    assert set(lent.values()) == {2}  # once within the class, once to another


@pytest.mark.parametrize(
    ("text", "answers", "seconds"),
    [
        ("300", 300, np.inf),
        ("10min", np.inf, 600),
        ("90s", np.inf, 90),
        ("5@0.002", 2500, np.inf),
        ("", np.inf, np.inf),
    ],
)
def test_budgets(text: str, answers: float, seconds: float) -> None:
    budget = parse_budget(text)
    assert (budget.answers, budget.seconds) == (answers, seconds)


@pytest.mark.parametrize("text", ["0", "-3", "5h", "5@0", "many", "1e9999", "5@-1"])
def test_what_is_no_budget_is_a_sentence(text: str) -> None:
    with pytest.raises(UserError, match="is not a budget; write 300"):
        parse_budget(text)


def test_pictures_of_a_report_show_the_donors_that_the_model_saw(tmp_path: Path) -> None:
    spec = EvaluateSpec("diorama:test?n=36", models=("embedded:resnet_rho0",))
    drawn = load_collection(spec.data)
    rounds = plan_rounds(drawn, spec.seed)
    ((run, _),) = evaluate_rounds(spec, tmp_path, drawn, rounds, with_masks=list)
    rows = run.rows(["sample_id", "condition", "image_sha256"]).to_pylist()
    pool = _pool(run, drawn, spec)
    samples = {sample.sample_id: sample for sample in drawn.samples}
    conditions = parse_conditions(",".join(NEEDED))
    for sample_id in {row["sample_id"] for row in rows}:
        shown = {
            rendering.condition.scenario: array_sha256(over_matte(rendering.rendered.image, spec.matte))
            for rendering in render_conditions(
                samples[sample_id], conditions, pool, seed=spec.seed, max_pixels=spec.max_pixels
            )
        }
        assert shown == {row["condition"]: row["image_sha256"] for row in rows if row["sample_id"] == sample_id}


def test_a_plan_says_how_likely_a_decision_is() -> None:
    photos = collection(cat=120, dog=120)
    whole, small = decision_chances(photos), decision_chances(photos, budget="150")
    assert whole[0].startswith("at most 240 images in 11 rounds, 720 answers")
    assert small[0].startswith("at most 30 images in 2 rounds, 90 answers")
    clear = next(line for line in whole if line.startswith(" 30 points"))
    assert "relies on the background in 100 % of cases" in clear and "does not in   0 %" in clear
    for refused in ("9", "10min"):
        with pytest.raises(UserError, match="budget"):
            decision_chances(photos, budget=refused)
