"""What another kind of mask does to every number, paired over the same images and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from holdfast.core.types import ORIGINAL
from holdfast.pipeline.evaluate.background_truth import RERENDERED
from holdfast.results import Results, background_conditions, static_conditions
from holdfast.stats.core.bootstrap import NO_ESTIMATE, RESAMPLES, Estimate, Floats, interval
from holdfast.stats.core.reduce import Counts, Outcome, right_column
from holdfast.stats.effects.drops import paired_effect
from holdfast.stats.effects.verdict import RANDOM, SAME
from holdfast.stats.models.between import common
from holdfast.stats.models.ranks import kendall_of
from holdfast_studies.degraded import EXACT, FAMILIES, MaskKind

SCORES = {"score": "Robustness score", "cross_background": "Cross part, background changed"}
"""The published score, 1 less its cross part over the static conditions; and the cross part over those conditions that
leave the object as it is."""
_JOIN = "\x1f"


@dataclass(frozen=True)
class MaskRun:
    """The run with one kind of masks, and which answers count as right in it."""

    results: Results
    outcome: Outcome
    seed: int

    @property
    def counts(self) -> Counts:
        """Return the reduced rows."""
        return self.results.counts

    def cells(self, condition: str, model: str = "") -> pd.DataFrame:
        """Return the cells of a condition, of one model or of all."""
        cells = self.counts.cells
        cells = cells[cells["condition"].astype(str) == condition]
        return cells[cells["model"].astype(str) == model] if model else cells

    @property
    def scored(self) -> dict[str, list[str]]:
        """Return score of ``SCORES`` → its conditions, without the original."""
        repeated = {ORIGINAL, *self.counts.same_images}
        return {
            name: [condition for condition in conditions(self.counts) if condition not in repeated]
            for name, conditions in (("score", static_conditions), ("cross_background", background_conditions))
        }

    def difference(self, first: pd.DataFrame, second: pd.DataFrame) -> Estimate:
        """Return accuracy of the first cells less that of the second, on the images that both have."""
        return paired_effect(first, second, right_column(self.outcome), resamples=RESAMPLES, seed=self.seed).estimate

    def difference_of_two(self, plus: Sequence[pd.DataFrame], minus: Sequence[pd.DataFrame]) -> Estimate:
        """Return the difference of two differences, on the images that all four groups of cells have."""
        shared = set.intersection(*(set(cells["source_id"]) for cells in (*plus, *minus)))
        sides = [pd.concat([cells[cells["source_id"].isin(shared)] for cells in side]) for side in (plus, minus)]
        return Estimate(*(2 * value for value in self.difference(*sides)))

    def effect_change(self, exact: MaskRun, model: str = "") -> Estimate:
        """Return the background effect under these masks less that under exact ones; without a model, over all."""
        plus = [self.cells(SAME, model), exact.cells(RANDOM, model)]
        return self.difference_of_two(plus, [self.cells(RANDOM, model), exact.cells(SAME, model)])

    def effect_bias(self, model: str = "") -> Estimate:
        """Return the background effect less the true one: scenes as drawn less the same on the donor's background."""
        plus = [self.cells(SAME, model), self.cells(RERENDERED, model)]
        return self.difference_of_two(plus, [self.cells(RANDOM, model), self.cells(ORIGINAL, model)])

    def true_effect(self, model: str) -> Estimate:
        """Return the accuracy lost by truly painting another background; no mask plays a part."""
        return self.difference(self.cells(ORIGINAL, model), self.cells(RERENDERED, model))


@dataclass(frozen=True)
class ScoreChanges:
    """Scores and rankings under other masks, compared with exact ones."""

    values: dict[str, dict[str, float]]  # score → model → value under these masks
    change: dict[str, Estimate]  # score → value less that under exact masks, mean over models
    by_model: dict[str, dict[str, Estimate]]  # score → model → the same of one model
    # ranking (``effect``, ``cross_background``, ``truth``) → Kendall's τ-b with exact masks; ``truth``: of the effect
    # with the true one.
    tau: dict[str, dict[str, float | int | str]]


def score_changes(run: MaskRun, exact: MaskRun) -> ScoreChanges:
    """Compare scores and rankings on images that all models answered with both kinds of masks, resampled together."""
    accuracy, resampled = _accuracies(run, exact)
    scored = run.scored
    names = (*scored, "effect")
    measured, drawn = ({name: _measure(table, name, scored) for name in names} for table in (accuracy, resampled))
    models = exact.counts.models
    half = len(models)
    change, by_model, values = {}, {}, {}
    for name in scored:
        moved = drawn[name][:, :half] - drawn[name][:, half:]
        gap = measured[name][0, :half] - measured[name][0, half:]
        values[name] = dict(zip(models, measured[name][0, :half].tolist(), strict=True))
        change[name] = _centred(float(gap.mean()), moved.mean(axis=1))
        by_model[name] = {model: _centred(float(gap[i]), moved[:, i]) for i, model in enumerate(models)}
    these, exact_masks = slice(half), slice(half, None)  # columns
    tau = {
        name: kendall_of(*((measured[name][0, side], drawn[name][:, side]) for side in (these, exact_masks)))
        for name in ("effect", "cross_background")
    }
    if RERENDERED in accuracy:
        truth = [table[ORIGINAL] - table[RERENDERED] for table in (accuracy, resampled)]
        effect = (measured["effect"][0, these], drawn["effect"][:, these])
        tau["truth"] = kendall_of(effect, (truth[0][0, these], truth[1][:, these]))
    return ScoreChanges(values, change, by_model, tau)


def _accuracies(run: MaskRun, exact: MaskRun) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return condition → accuracy (1, 2 × models), these masks first, and that of resamples (n, 2 × models)."""
    conditions = [name for name in exact.counts.conditions if name in run.counts.conditions]
    cells = [
        side.counts.cells.assign(model=f"{place}{_JOIN}" + side.counts.cells["model"].astype(str))
        for place, side in enumerate((run, exact))
    ]
    both = replace(exact.counts, cells=pd.concat(cells, ignore_index=True), conditions=conditions)
    shared = common(both, outcome=run.outcome, conditions=conditions, resamples=RESAMPLES, seed=run.seed)
    at = [shared.models.index(f"{place}{_JOIN}{model}") for place in (0, 1) for model in exact.counts.models]
    return tuple(
        {name: table[:, at, i] for i, name in enumerate(shared.conditions)}
        for table in (shared.accuracy[None], shared.resampled)
    )  # type: ignore[return-value]


def _measure(accuracy: Mapping[str, Floats], name: str, scored: Mapping[str, Sequence[str]]) -> Floats:
    """Return a score or the background effect, (samples, 2 × models)."""
    if name == "effect":
        return accuracy[SAME] - accuracy[RANDOM]
    conditions = [condition for condition in scored[name] if condition in accuracy]
    squares = [np.square(accuracy[condition] - accuracy[ORIGINAL]) for condition in conditions]
    cross = np.asarray(np.mean(squares, axis=0))
    return 1 - cross if name == "score" else cross


def _centred(value: float, moved: Floats) -> Estimate:
    low, high = interval(moved - moved.mean())
    return Estimate(value, value + float(low), value + float(high))


@dataclass(frozen=True)
class MaskMeasures:
    """Everything the findings are made of; kinds are in order of their IoU, exact masks first."""

    masks: pd.DataFrame  # a row per kind: kind, family, iou with ends, lost, added, unusable
    effects: pd.DataFrame  # a row per kind × model: the verdict's numbers, change, bias, scores
    means: pd.DataFrame  # a row per kind: the same, mean over models
    conditions: pd.DataFrame  # a row per kind × condition: cost and change, mean over models
    truths: dict[str, Estimate]  # model → the true background effect, if it is known
    scores: dict[str, ScoreChanges]  # kind → rankings and scores compared with exact masks
    models: list[str]  # in the order of the runs

    @property
    def kinds(self) -> list[str]:
        """Return all kinds but the exact one, best first."""
        return [name for name in self.masks["kind"] if name != EXACT]

    @property
    def families(self) -> list[str]:
        """Return the families of these kinds, in the order of ``FAMILIES``."""
        return [name for name in FAMILIES if name in set(self.masks["family"])]


def measure_kinds(
    kinds: Sequence[MaskKind], overlaps: pd.DataFrame, runs: Mapping[str, MaskRun], *, known: bool
) -> MaskMeasures:
    """Measure every run against that of the exact masks; ``known``: whether the true effect is known."""
    exact = runs[EXACT]
    models = list(exact.counts.models)
    masks = _masks(kinds, overlaps)
    ordered = {name: runs[name] for name in masks["kind"] if name in runs}
    scores = {name: score_changes(run, exact) for name, run in ordered.items()}
    effects: list[dict[str, Any]] = []
    means: list[dict[str, Any]] = []
    conditions: list[dict[str, Any]] = []
    for name, run in ordered.items():
        verdicts = run.results.verdicts(outcome=run.outcome)  # as a report of the run would say
        row_of = {row["model"]: row for row in verdicts.to_dict("records")}
        for model in models:
            own = row_of[model]
            effect = Estimate(*(own[f"background_effect{end}"] for end in ("", "_low", "_high")))
            row = {"kind": name, "model": model, "n": own["n"], "verdict": own["verdict"], **effect.row("effect")}
            effects.append(row | _compared(run, exact, scores[name], known, model))
        effect = run.difference(run.cells(SAME), run.cells(RANDOM))
        means.append({"kind": name, **effect.row("effect"), **_compared(run, exact, scores[name], known)})
        conditions += [{"kind": name, **row} for row in _conditions(run, exact)]

    def described(rows: list[dict[str, Any]]) -> pd.DataFrame:
        return pd.DataFrame(rows).merge(masks[["kind", "family", "iou"]], on="kind", how="left")

    truths = {model: exact.true_effect(model) for model in models} if known else {}
    return MaskMeasures(masks, described(effects), described(means), described(conditions), truths, scores, models)


def _masks(kinds: Sequence[MaskKind], overlaps: pd.DataFrame) -> pd.DataFrame:
    rows = [{"kind": EXACT, "family": EXACT, "iou": 1.0, "iou_low": np.nan, "iou_high": np.nan, "median": 1.0}
            | {"lost": 0.0, "added": 0.0, "unusable": 0, "n": overlaps["source_id"].nunique()}]  # fmt: skip
    for kind in kinds:
        own = overlaps[overlaps["kind"] == kind.name]
        half = 1.96 * float(own["iou"].std(ddof=1)) / np.sqrt(max(len(own), 1))
        mean = float(own["iou"].mean())
        rows.append(
            {"kind": kind.name, "family": kind.family, **Estimate(mean, mean - half, mean + half).row("iou")}
            | {"median": float(own["iou"].median()), "lost": float(own["lost"].mean())}
            | {"added": float(own["added"].mean()), "unusable": int((~own["usable"]).sum()), "n": len(own)}
        )
    return pd.DataFrame(rows).sort_values("iou", ascending=False, kind="stable", ignore_index=True)


def _compared(run: MaskRun, exact: MaskRun, scores: ScoreChanges, known: bool, model: str = "") -> dict[str, Any]:
    """Return how far a kind of masks moves effect and scores of a model, or without one of all of them on average."""
    row = (NO_ESTIMATE if run is exact else run.effect_change(exact, model)).row("change")
    if known:
        row |= run.effect_bias(model).row("bias")
    for name in SCORES:
        values, change = scores.values[name], scores.by_model[name][model] if model else scores.change[name]
        row |= {name: values[model] if model else float(np.mean(list(values.values())))}
        row |= (NO_ESTIMATE if run is exact else change).row(f"{name}_change")
    return row


def _conditions(run: MaskRun, exact: MaskRun) -> list[dict[str, Any]]:
    """Return what each condition costs, and its accuracy less that under exact masks."""
    originals = run.cells(ORIGINAL)
    rows = []
    for name in run.counts.conditions:
        if name in (ORIGINAL, RERENDERED):
            continue
        cost = run.difference(originals, run.cells(name))
        change = NO_ESTIMATE if run is exact else run.difference(run.cells(name), exact.cells(name))
        rows.append({"condition": name, **cost.row("cost"), **change.row("change")})
    return rows
