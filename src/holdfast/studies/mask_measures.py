"""What another kind of mask does to every number, paired over the same pictures and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.types import ORIGINAL
from holdfast.pipeline.evaluate.background_truth import RERENDERED
from holdfast.results import Results, background_conditions, static_conditions
from holdfast.stats.core.bootstrap import RESAMPLES, Floats, interval
from holdfast.stats.core.reduce import Counts, Outcome, right_column
from holdfast.stats.effects.drops import paired_effect
from holdfast.stats.effects.verdict import RANDOM, SAME
from holdfast.stats.models.between import common, kendall
from holdfast.stats.models.trainings import Estimate

if TYPE_CHECKING:
    import pandas as pd

NOTHING = Estimate(float("nan"), float("nan"), float("nan"))
_JOIN = "\x1f"


@dataclass(frozen=True)
class Run:
    """The run of one kind of masks, and which answers count as right in it."""

    results: Results
    outcome: Outcome
    seed: int

    @property
    def counts(self) -> Counts:
        """Reduced."""
        return self.results.counts

    def cells(self, condition: str, model: str = "") -> pd.DataFrame:
        """Of a condition and one model, or all."""
        cells = self.counts.cells
        cells = cells[cells["condition"].astype(str) == condition]
        return cells[cells["model"].astype(str) == model] if model else cells

    @property
    def scored(self) -> dict[str, list[str]]:
        """What the published score is over, and those of them that leave the object as it is; no original."""
        repeated = {ORIGINAL, *self.counts.same_images}
        return {
            name: [one for one in chosen(self.counts) if one not in repeated]
            for name, chosen in (("score", static_conditions), ("cross_background", background_conditions))
        }


def effect_change(run: Run, exact: Run, model: str = "") -> Estimate:
    """The background effect under other masks less that under exact ones; of the mean over models without one."""
    plus = [run.cells(SAME, model), exact.cells(RANDOM, model)]
    return doubled(plus, [run.cells(RANDOM, model), exact.cells(SAME, model)], run)


def effect_bias(run: Run, model: str = "") -> Estimate:
    """The background effect less the true one: each scene as drawn less the same painted on the donor's background."""
    plus = [run.cells(SAME, model), run.cells(RERENDERED, model)]
    return doubled(plus, [run.cells(RANDOM, model), run.cells(ORIGINAL, model)], run)


def true_effect(run: Run, model: str = "") -> Estimate:
    """The accuracy lost by truly painting another background; no mask plays a part."""
    return difference(run.cells(ORIGINAL, model), run.cells(RERENDERED, model), run)


def accuracy_change(run: Run, exact: Run, condition: str, model: str = "") -> Estimate:
    """Accuracy under other masks less that under exact ones: a condition's cost, the other way round."""
    return difference(run.cells(condition, model), exact.cells(condition, model), run)


def difference(first: pd.DataFrame, second: pd.DataFrame, run: Run) -> Estimate:
    """First less second on the pictures that both have."""
    found = paired_effect(first, second, right_column(run.outcome), resamples=RESAMPLES, seed=run.seed)
    return Estimate(found.value, found.low, found.high) if found.n else NOTHING


def doubled(plus: Sequence[pd.DataFrame], minus: Sequence[pd.DataFrame], run: Run) -> Estimate:
    """The difference of two differences, on the pictures that all four have.

    Half of it is the difference of two shares: a picture's share is the mean over its cells on either side.
    """
    import pandas as pd

    shared = set.intersection(*(set(cells["source_id"]) for cells in (*plus, *minus)))
    sides = [pd.concat([cells[cells["source_id"].isin(shared)] for cells in side]) for side in (plus, minus)]
    half = difference(sides[0], sides[1], run)
    return Estimate(*(2 * value for value in half))


@dataclass(frozen=True)
class Orders:
    """Scores under other masks against exact ones.

    Attributes:
        values: measure → model → value under these masks.
        change: measure → value less that under exact masks, mean over models.
        by_model: measure → model → the same of one model.
        tau: ranking (``effect``, ``cross_background``, ``truth``) → Kendall's τ-b with exact masks; ``truth``: of the
            effect with the true one.
    """

    values: dict[str, dict[str, float]]
    change: dict[str, Estimate]
    by_model: dict[str, dict[str, Estimate]]
    tau: dict[str, dict[str, float | int | str]]


def orders(run: Run, exact: Run) -> Orders:
    """Scores and rankings from accuracies on the pictures that all models answered under both kinds of masks.

    Pictures are resampled together for both. Resampled scores are centred first: squaring adds noise to every one.
    """
    measured, resampled = _accuracies(run, exact)
    scored = run.scored
    names = (*scored, "effect")
    found, drawn = ({one: _measure(table, one, scored) for one in names} for table in (measured, resampled))
    models = exact.counts.models
    half = len(models)
    change, by_model, values = {}, {}, {}
    for name in scored:
        moved = drawn[name][:, :half] - drawn[name][:, half:]
        gap = found[name][0, :half] - found[name][0, half:]
        values[name] = dict(zip(models, found[name][0, :half].tolist(), strict=True))
        change[name] = _centred(float(gap.mean()), moved.mean(axis=1))
        by_model[name] = {model: _centred(float(gap[i]), moved[:, i]) for i, model in enumerate(models)}
    tau = {name: _tau(models, found[name], drawn[name]) for name in ("effect", "cross_background")}
    if RERENDERED in measured:
        truth = [table[ORIGINAL] - table[RERENDERED] for table in (measured, resampled)]
        pair = [
            np.concatenate([one["effect"][:, :half], true[:, :half]], axis=1)
            for one, true in zip((found, drawn), truth, strict=True)
        ]
        tau["truth"] = _tau(models, *pair)
    return Orders(values, change, by_model, tau)


def _accuracies(run: Run, exact: Run) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Condition → accuracy (1, 2 × models), these masks first; and the same of resamples, (resamples, 2 × models)."""
    import pandas as pd

    conditions = [name for name in exact.counts.conditions if name in run.counts.conditions]
    cells = [
        one.counts.cells.assign(model=f"{place}{_JOIN}" + one.counts.cells["model"].astype(str))
        for place, one in enumerate((run, exact))
    ]
    both = replace(exact.counts, cells=pd.concat(cells, ignore_index=True), conditions=conditions)
    shared = common(both, outcome=run.outcome, conditions=conditions, resamples=RESAMPLES, seed=run.seed)
    names = [f"{place}{_JOIN}{model}" for place in (0, 1) for model in exact.counts.models]
    at = [shared.models.index(name) for name in names]
    return tuple(
        {name: table[:, at, i] for i, name in enumerate(shared.conditions)}
        for table in (shared.accuracy[None], shared.resampled)
    )  # type: ignore[return-value]


def _measure(accuracy: Mapping[str, Floats], name: str, scored: Mapping[str, Sequence[str]]) -> Floats:
    """(samples, 2 × models) of a measure."""
    if name == "effect":
        return accuracy[SAME] - accuracy[RANDOM]
    squares = [np.square(accuracy[one] - accuracy[ORIGINAL]) for one in scored[name] if one in accuracy]
    cross = np.asarray(np.mean(squares, axis=0))
    return 1 - cross if name == "score" else cross


def _centred(value: float, moved: Floats) -> Estimate:
    low, high = interval(moved - moved.mean())
    return Estimate(value, value + float(low), value + float(high))


def _tau(models: Sequence[str], found: Floats, drawn: Floats) -> dict[str, float | int | str]:
    half = len(models)
    first, second = (dict(zip(models, part.tolist(), strict=True)) for part in (found[0, :half], found[0, half:]))
    return kendall(first, second, first_samples=drawn[:, :half], second_samples=drawn[:, half:])
