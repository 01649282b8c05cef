"""A pool → the images that many models fail together, and what can honestly be said of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.engine import Executor
from holdfast.oracle import card
from holdfast.oracle.lineage import lineages
from holdfast.pipeline.files import check_apart
from holdfast.pipeline.hard.pool import MeasuredPool, MineSpec, check, measure, model_facts, without_answer
from holdfast.pipeline.hard.publish import check_out, publish
from holdfast.pipeline.hard.repainting import paint_again
from holdfast.pipeline.hard.results import MiningChoice, Selection, tables
from holdfast.pipeline.jobs.environment import environment
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.samples import DataSpec, read
from holdfast.stats.hard.mining import CHOOSE, REPORT, capped, matched_control, shared
from holdfast.stats.hard.mining_curve import choose_k, choose_m, fit_curve, stand_in_curve
from holdfast.store import write_json, writing

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MineSpec", "Mined", "mine"]

MINING = "mining"
"""The folder of a hard set that says how it was made."""


@dataclass(frozen=True)
class Mined:
    """What ``mine`` made."""

    path: Path  # the hard set's folder
    images: int  # how many it has
    facts: dict[str, Any]  # what ``mining/summary.json`` holds
    tables: dict[str, pd.DataFrame] = field(repr=False)  # by name, as in ``mining/results``
    warnings: list[str]


def mine(spec: MineSpec, out: Path, *, progress: Progress = silent, executor: Executor | None = None) -> Mined:
    """Classify a pool with every model, keep shared failures, measure what they are, and write the dataset folder."""
    warnings = check(spec)
    check_out(out)
    check_apart(read(DataSpec(spec.pool)).samples, out)
    folder = out / MINING
    with writing(out):
        write_json(folder / "spec.json", {"verb": "mine", **asdict(spec)})
        pool, oracle = measure(spec, spec.pool, folder, progress, limit=spec.limit, executor=executor)
        warnings += without_answer(pool.run) + _doubts(pool) + _partial_judge(spec, pool)
        choice = _choose(spec, pool)
        selection = select(spec, pool, choice)
        warnings += choice.warnings + _too_large(selection) + _few_controls(pool, selection)
        again, trouble = paint_again(spec, pool, selection, oracle, folder, progress, executor)
        warnings += trouble
        facts_of_models = model_facts(pool.models, (*spec.surrogates, *spec.targets))
        progress("results", 0, 1)
        result_tables = tables(pool, choice, selection, again, facts_of_models, seed=spec.seed)
        progress("results", 1, 1)
        facts = {
            "pool": spec.pool,
            "surrogates": list(pool.surrogates),
            "used": list(choice.used),
            "targets": list(pool.targets),
            "oracle": oracle.name,
            "oracle_card": card(oracle).rows(),
            "choice": choice.record(),
            "images": len(pool.images),
            "prompts": int(pool.images["prompt_id"].nunique()),
            "valid": int(pool.images["valid"].sum()),
            "unanswered": pool.unanswered,
            "shared": int(selection.shared.sum()),
            "hard": int(selection.hard.sum()),
            "hard_valid": int((selection.hard & pool.images["valid"]).sum()),
            "again": 0 if again is None else len(again.images),
            "outcome": spec.outcome,
            "seed": spec.seed,
            "warnings": warnings,
            "environment": environment(),
        }
        count = publish(spec, pool, choice, selection, oracle, result_tables, facts, out)
    return Mined(out, count, facts, result_tables, warnings)


def _choose(spec: MineSpec, pool: MeasuredPool) -> MiningChoice:
    """Choose k and m, on the choosing half of the prompts and without asking the targets."""
    half = pool.images["half"] == CHOOSE
    if not (pool.images["valid"] & ~half).any():
        raise UserError(
            f"the pool has {pool.images['prompt_id'].nunique()} prompts, and the half of them that results are about "
            "has no valid image; make a larger pool"
        )
    images, failed = pool.images[half], pool.failed[half]
    judged = images[images["valid"]]
    curve = stand_in_curve(judged, failed.loc[judged.index], pool.surrogates)
    fit = fit_curve(curve["k"], curve["estimate"])
    use = spec.use or max(choose_k(fit, len(pool.surrogates), fall=spec.least_fall), spec.at_least)
    used = pool.surrogates[:use]
    m, counts = choose_m(images, failed, used, least=spec.least_images)
    at_least = spec.at_least or m
    warnings = []
    left = int(counts.loc[counts["m"] == at_least, "valid"].sum())
    if left < spec.least_images:
        warnings.append(
            f"the choosing half of the prompts has {left} valid images that {at_least} of {use} surrogates fail, fewer "
            f"than the {spec.least_images} asked for: a larger pool would tell more"
        )
    return MiningChoice(used, at_least, curve, fit, counts, spec, warnings)


def select(spec: MineSpec, pool: MeasuredPool, choice: MiningChoice) -> Selection:
    """Return the hard images, and a control for each."""
    images = pool.images
    failures = pool.failed[list(choice.used)].sum(axis=1)
    hard = shared(pool.failed, choice.used, choice.at_least)
    if not hard.any():
        most = int(failures.max())
        raise UserError(
            f"no image of {len(images)} is failed by {choice.at_least} of the {len(choice.used)} surrogates "
            f"{', '.join(choice.used)} (the most that fail together is {most}); "
            + (f"--at-least {most} would leave some" if most >= 2 else "a larger or harder pool is needed")
        )
    if not spec.keep_rejected and not (hard & images["valid"]).any():
        raise UserError(
            f"the oracle accepts none of the {int(hard.sum())} images that the surrogates fail together: they are "
            "wrong labels, not hard images; --keep-rejected publishes them all the same"
        )
    kept = capped(
        images, hard, per_category=spec.cap_per_category, per_pair=spec.cap_per_pair, balance=spec.balance,
        seed=spec.seed,
    )  # fmt: skip
    every = ~hard
    control = matched_control(images, kept, failures, every, seed=spec.seed)
    valid = images["valid"]
    valid_control = matched_control(images, kept & valid, failures, every & valid, seed=spec.seed)
    return Selection(failures, hard, kept, control, valid_control)


def _doubts(pool: MeasuredPool) -> list[str]:
    """Return what a reader should know about the models before believing a hard set."""
    doubts = []
    wrong = pool.failed.mean()
    chance = 1 - 1 / max(len(pool.collection.classes), 2)
    for model in pool.surrogates:
        if wrong[model] == 1:
            doubts.append(
                f"the surrogate {model} gets every image wrong, so it sorts nothing out (with such surrogates the hard "
                "set would be everything): check its preprocessing and --labels"
            )
        elif wrong[model] >= chance:
            doubts.append(
                f"the surrogate {model} is right on {1 - wrong[model]:.1%} of the pool, no more than by chance"
            )
        elif wrong[model] == 0:
            doubts.append(
                f"the surrogate {model} gets no image wrong, so there is no failure that all surrogates share"
            )
    return doubts + [
        f"{model} and {other} give the same answer to every image: are they the same weights?"
        for model, other in combinations(pool.models, 2)
        if wrong[model] > 0 and (pool.said[model] == pool.said[other]).all()
    ]


def _partial_judge(spec: MineSpec, pool: MeasuredPool) -> list[str]:
    """Return a warning if the oracle helped to paint what it judges."""
    makers = {str(sample.attributes.get("generator", "")).partition(":")[0] for sample in pool.collection.samples}
    if "embedded" in makers and {lineage.model for lineage in lineages(spec.oracle)} == {"clip:embedded"}:
        return [
            "the embedded generator is told what to paint by the text tower of clip:embedded, so this oracle accepts "
            "its pictures more readily than a stranger would: take its validity as an upper bound, or let it vote with "
            "another (ensemble:clip:embedded+classifier:MODEL?rule=unanimous)"
        ]
    return []


def _too_large(selection: Selection) -> list[str]:
    if selection.shared.all():
        return [
            "every image of the pool is a shared failure, so the hard set is the pool and says nothing about mining"
        ]
    return []


def _few_controls(pool: MeasuredPool, selection: Selection) -> list[str]:
    """Return a warning if hard images of the reporting half have no control."""
    hard = pool.images.index[selection.hard & pool.images["valid"] & (pool.images["half"] == REPORT)]
    controlled = int(hard.isin(selection.valid_control["hard"]).sum())
    if controlled == len(hard):
        return []
    return [
        f"{controlled} of {len(hard)} valid hard images of the reporting half have a control: the pool has no other "
        "valid image of their category and kind that too few surrogates fail"
        + ("; the control is compared with those that have one" if controlled else "")
    ]
