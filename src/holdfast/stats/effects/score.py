"""The robustness score of XIMAGENET-12: one minus the spread of accuracies around the accuracy on originals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdfast.core.errors import UserError
from holdfast.stats.core.bootstrap import RESAMPLES, Floats, resampled_sums
from holdfast.stats.core.grid import unlike_photos
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.score_design import Average, Design, design_of, score_cells
from holdfast.stats.effects.score_interval import spread_interval

if TYPE_CHECKING:
    import pandas as pd

Components = Literal["cross_inner", "scenario_class"]
"""The equations' two parts, or those of the paper's earlier version."""


@dataclass(frozen=True)
class Score:
    """A robustness score and its parts.

    Attributes:
        score: 1 − (variance_cross + variance_inner), or with standard deviations for ``scenario_class``.
        variance_cross: Σ(C(i) − μ)² / (n − ddof) of models trained on originals and tested on scenario i.
        variance_inner: the same of models trained and tested within scenario i (over classes for
            ``scenario_class``); None when there are none: the score is then that of the cross part alone.
        squared_cross: scenario → (C(i) − μ)²; 0 for a gain when only losses count.
        squared_inner: scenario (or class) → the same.
    """

    score: float
    variance_cross: float
    variance_inner: float | None
    squared_cross: dict[str, float]
    squared_inner: dict[str, float]


def robustness_score(
    cross: Mapping[str, float],
    inner: Mapping[str, float] | None = None,
    *,
    mu_cross: float | Mapping[str, float],
    mu_inner: float | Mapping[str, float] | None = None,
    ddof: int = 0,
    signed: bool = False,
    components: Components = "cross_inner",
) -> Score:
    """S = 1 − (σ²cross + σ²inner), σ² = Σ(C(i) − μ)² / (n − ddof).

    Args:
        cross: scenario → accuracy 0..1, trained on originals.
        inner: scenario → accuracy 0..1, trained and tested within the scenario; for ``scenario_class`` class →
            accuracy. None: the score comes from the cross part only.
        mu_cross: accuracy on originals, 0..1; a mapping gives each scenario its own (to repeat published slips).
        mu_inner: the same for the inner part. Left out: ``mu_cross``; for ``scenario_class`` the mean of ``inner``.
        ddof: 0 as in the paper's equations, 1 as in its printed numbers.
        signed: count losses only; as published, a gain over μ lowers the score like a loss.
        components: ``scenario_class`` is the paper's earlier S = 1 − (σe + σi), standard deviations over scenarios
            and over classes. There ``signed`` concerns the scenarios only: a class has nothing to lose against.
    """
    by_class = components == "scenario_class"
    squared_cross = _squares(cross, mu_cross, signed)
    variance_cross = _variance(squared_cross, ddof)
    if inner is None:
        loss = np.sqrt(variance_cross) if by_class else variance_cross
        return Score(1 - float(loss), variance_cross, None, squared_cross, {})
    if mu_inner is None:
        mu_inner = float(np.mean(list(inner.values()))) if by_class else mu_cross
    squared_inner = _squares(inner, mu_inner, signed and not by_class)
    variance_inner = _variance(squared_inner, ddof)
    parts = np.array([variance_cross, variance_inner])
    loss = np.sqrt(parts).sum() if by_class else parts.sum()
    return Score(1 - float(loss), variance_cross, variance_inner, squared_cross, squared_inner)


def _squares(accuracies: Mapping[str, float], mu: float | Mapping[str, float], signed: bool) -> dict[str, float]:
    deviations = {name: value - (mu[name] if isinstance(mu, Mapping) else mu) for name, value in accuracies.items()}
    return {name: (min(value, 0.0) if signed else value) ** 2 for name, value in deviations.items()}


def _variance(squares: Mapping[str, float], ddof: int) -> float:
    if len(squares) <= ddof:
        raise UserError(
            f"A robustness score with ddof={ddof} needs at least {ddof + 1} accuracies; give more scenarios."
        )
    return float(sum(squares.values())) / (len(squares) - ddof)


def scores(
    counts: Counts,
    *,
    conditions: Sequence[str] | None = None,
    outcome: Outcome = "full",
    average: Average = "macro",
    ddof: int = 0,
    signed: bool = False,
    components: Components = "cross_inner",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """The score of every model, a row each.

    Rows trained on '' (as delivered) or 'original' make the cross part, rows trained on the scenario they are tested
    on the inner part; with folds, an accuracy is the mean of the folds'. Conditions whose images repeat another's
    count once.

    Columns: ``score`` as defined; ``debiased``: without the sampling noise that squaring adds (it may exceed 1 when
    nothing is lost); ``low``, ``high``: 95 % interval of the true score, clustered on source; ``variance_cross``,
    ``variance_inner``; ``accuracy_original`` (μ); ``n_conditions``, ``n`` (photos); ``stability_low``,
    ``stability_high``: range of ``score`` when one class is left out, ``stability_class``: the class that moves it
    most; ``normality_w``, ``normality_p``: Shapiro–Wilk of the scenario accuracies; ``parts``: 'cross' or
    'cross+inner' ('scenario+class'); ``warning``: '' or why the score does not mean robustness here. A model without
    the original or without a scenario has only its warning; where no model has a score that is a UserError.

    Args:
        counts: of the runs.
        conditions: that enter the score; None: all but the original and attacks.
        outcome: which right answers count.
        average: accuracy with equal weight per class or per photo.
        ddof: see ``robustness_score``.
        signed: see ``robustness_score``.
        components: see ``robustness_score``.
        resamples: of whole sources.
        seed: of the resampling.
    """
    import pandas as pd

    cells = score_cells(counts, conditions, outcome)
    found, without = [], []
    for model in counts.models:
        own = cells[cells["model"] == model]
        try:
            design = design_of(own, model, average)
            spread = _Spread(design, ddof, signed, components)
        except UserError as error:
            without.append((model, error))
            continue
        epsilon = resampled_sums(spread.influence, design.sources, resamples=resamples, seed=seed)
        warnings = [_warning(counts, model, design), unlike_photos(own)]
        found.append({"model": model, **_row(design, spread, epsilon), "warning": "; ".join(filter(None, warnings))})
    if without and not found:
        raise without[0][1]
    # a model that was not tested under enough conditions does not take the others' scores away
    untested = "has no score: it was not tested under enough conditions"
    return pd.DataFrame(found + [{"model": model, "warning": untested} for model, _ in without])


def _row(design: Design, spread: _Spread, epsilon: Floats) -> dict[str, Any]:
    low, high = spread_interval(spread.deviations, epsilon, spread.covariance, spread.value)
    return {
        "score": 1 - spread.plain,
        "debiased": 1 - spread.debiased(epsilon),
        "low": 1 - high,
        "high": 1 - low,
        "variance_cross": spread.variance("cross"),
        "variance_inner": spread.variance("inner"),
        "accuracy_original": design.mu,
        "n_conditions": len(design.cross),
        "n": len(design.sources),
        **_stability(spread),
        **_normality(design.accuracy[design.cross]),
        "parts": spread.parts,
    }


def _stability(spread: _Spread) -> dict[str, Any]:
    """The score without each class in turn."""
    classes = spread.design.classes
    if len(classes) < 2:
        return {"stability_low": np.nan, "stability_high": np.nan, "stability_class": ""}
    left_out = 1 - np.array([spread.without(name).plain for name in classes])
    moved = int(np.nanargmax(np.abs(left_out - (1 - spread.plain))))
    return {
        "stability_low": float(np.nanmin(left_out)),
        "stability_high": float(np.nanmax(left_out)),
        "stability_class": classes[moved],
    }


class _Spread:
    """Deviations scaled so that the score subtracts their sum of squares (or their two norms)."""

    def __init__(
        self, design: Design, ddof: int, signed: bool, components: Components, *, leave: str | None = None
    ) -> None:
        self.design, self.ddof, self.signed, self.components = design, ddof, signed, components
        self.by_class, self.split = components == "scenario_class", len(design.cross)
        keep = np.array([name != leave for name in design.classes])
        weights = design.weights[keep].sum(axis=0)
        accuracy = np.where(weights > 0, design.weighted[keep].sum(axis=0) / np.where(weights > 0, weights, 1), np.nan)
        blocks = [accuracy[design.cross] - accuracy[0]]
        if self.by_class:
            blocks.append(design.by_class[keep] - design.by_class[keep].mean())
        elif design.inner:
            blocks.append(accuracy[design.inner] - accuracy[0])
        if min(len(deviations) for deviations in blocks) <= ddof:
            raise UserError(f"A robustness score with ddof={ddof} needs at least {ddof + 1} conditions in each part.")
        self.scale: Floats = np.concatenate([np.full(len(block), (len(block) - ddof) ** -0.5) for block in blocks])
        self.deviations: Floats = np.concatenate(blocks) * self.scale
        second = "scenario+class" if self.by_class else "cross+inner"
        self.parts = second if len(blocks) == 2 else "cross"

    def without(self, name: str) -> _Spread:
        """The same with a class left out."""
        return _Spread(self.design, self.ddof, self.signed, self.components, leave=name)

    @cached_property
    def influence(self) -> Floats:
        """(sources, deviations) what each source adds to the noise of each deviation."""
        design, original = self.design, self.design.influence[:, :1]
        blocks = [design.influence[:, design.cross] - original]
        if self.by_class:
            blocks.append(design.class_influence - design.class_influence.mean(axis=1, keepdims=True))
        elif design.inner:
            blocks.append(design.influence[:, design.inner] - original)
        return np.asarray(np.concatenate(blocks, axis=1) * self.scale)

    @property
    def covariance(self) -> Floats:
        return np.asarray(self.influence.T @ self.influence)

    @property
    def plain(self) -> float:
        return float(self.value(self.deviations))

    def value(self, deviations: Floats) -> Floats:
        cross, inner = deviations[..., : self.split], deviations[..., self.split :]
        if self.signed:
            cross, inner = np.minimum(cross, 0), inner if self.by_class else np.minimum(inner, 0)
        squares = np.stack([(cross**2).sum(axis=-1), (inner**2).sum(axis=-1)])
        return np.asarray((np.sqrt(squares) if self.by_class else squares).sum(axis=0))

    def variance(self, part: Literal["cross", "inner"]) -> float:
        part_only = np.zeros_like(self.deviations)
        where = slice(self.split) if part == "cross" else slice(self.split, None)
        part_only[where] = self.deviations[where]
        if not part_only[where].size:
            return float("nan")
        return float(self.value(part_only)) ** (2 if self.by_class else 1)

    def debiased(self, epsilon: Floats) -> float:
        """The spread less its sampling noise.

        E[d̂²] = d² + Var(d̂), so the trace of the covariance goes; one-sided squares have no such closed form, and
        the mean excess of the resamples goes instead.
        """
        if self.signed:
            return float(2 * self.value(self.deviations) - self.value(self.deviations + epsilon).mean())
        excess = self.deviations**2 - np.diag(self.covariance)
        sums = np.array([excess[: self.split].sum(), excess[self.split :].sum()])
        return float(np.sqrt(np.maximum(sums, 0)).sum() if self.by_class else sums.sum())


def _normality(accuracies: Floats) -> dict[str, float]:
    from scipy.stats import shapiro

    if len(accuracies) < 3 or np.ptp(accuracies) < 1e-12:
        return {"normality_w": np.nan, "normality_p": np.nan}
    test: Any = shapiro(accuracies)
    return {"normality_w": float(test.statistic), "normality_p": float(test.pvalue)}


def _warning(counts: Counts, model: str, design: Design) -> str:
    """Why a high score would say nothing about robustness."""
    answers = counts.confusion[counts.confusion["model"].astype(str) == model]
    found = []
    if len(answers):
        share = answers.groupby("prediction", observed=True)["n"].sum() / answers["n"].sum()
        if share.max() >= 0.99:
            found.append(f"answers {share.idxmax()} to {share.max():.0%} of the images: a constant classifier scores 1")
    error = float(np.sqrt((design.influence[:, 0] ** 2).sum()))
    chance = 1 / len(design.classes)
    if len(design.classes) > 1 and design.mu - 1.96 * error <= chance:
        guessing = f"is not above chance ({chance:.1%}): there is nothing to lose"
        found.append(f"accuracy on originals, {design.mu:.1%}, {guessing}")
    return "; ".join(found)
