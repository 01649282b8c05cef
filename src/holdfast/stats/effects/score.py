"""The robustness score of XIMAGENET-12: one minus the spread of accuracies around the accuracy on originals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_stats
from holdfast.core.numbers import percent
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import Answers, from_counts
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.cells import Average
from holdfast.stats.core.grid import chosen
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.score_spread import Components, Design, Part, Spread, design_of

WHOLE = ""  # The condition of a whole part's row in ``score_parts``

PART_COLUMNS = ["model", "part", "condition", "accuracy", "deviation", "squared", "low", "high"]


@dataclass(frozen=True)
class RobustnessScore:
    """A robustness score and its parts.

    ``variance_inner``: the same of models trained and tested within scenario i (over classes for ``scenario_class``);
    None when there are none: the score is then that of the cross part alone.
    """

    score: float  # 1 − (variance_cross + variance_inner), with standard deviations for ``scenario_class``
    variance_cross: float  # Σ(C(i) − μ)² / (n − ddof) of models trained on originals and tested on scenario i
    variance_inner: float | None
    squared_cross: dict[str, float]  # scenario → (C(i) − μ)²; 0 for a gain when only losses count
    squared_inner: dict[str, float]  # scenario (or class) → the same


def robustness_score(
    cross: Mapping[str, float],
    inner: Mapping[str, float] | None = None,
    *,
    mu_cross: float | Mapping[str, float],
    mu_inner: float | Mapping[str, float] | None = None,
    ddof: int = 0,
    signed: bool = False,
    components: Components = "cross_inner",
) -> RobustnessScore:
    """Return S = 1 − (σ²cross + σ²inner), σ² = Σ(C(i) − μ)² / (n − ddof).

    ``cross``: scenario → accuracy 0..1, trained on originals. ``inner``: scenario → accuracy 0..1, trained and tested
    within the scenario; for ``scenario_class`` class → accuracy. None: the score comes from the cross part only.
    ``mu_cross``: accuracy on originals, 0..1; a mapping gives each scenario its own (to repeat published slips).
    ``mu_inner``: the same for the inner part. Left out: ``mu_cross``; for ``scenario_class`` the mean of ``inner``.
    ``ddof``: 0 as in the paper's equations, 1 as in its printed numbers. ``signed``: count losses only; as published, a
    gain over μ lowers the score like a loss. ``components``: ``scenario_class`` is the paper's earlier S = 1 − (σe +
    σi), standard deviations over scenarios and over classes; ``scenario_class_variance`` reads these σ as variances.
    There ``signed`` concerns the scenarios only: a class has nothing to lose against.
    """
    by_class, norms = components != "cross_inner", components == "scenario_class"
    squared_cross = _squares(cross, mu_cross, signed)
    variance_cross = _variance(squared_cross, ddof)
    if inner is None:
        loss = np.sqrt(variance_cross) if norms else variance_cross
        return RobustnessScore(1 - float(loss), variance_cross, None, squared_cross, {})
    if mu_inner is None:
        mu_inner = float(np.mean(list(inner.values()))) if by_class else mu_cross
    squared_inner = _squares(inner, mu_inner, signed and not by_class)
    variance_inner = _variance(squared_inner, ddof)
    parts = np.array([variance_cross, variance_inner])
    loss = np.sqrt(parts).sum() if norms else parts.sum()
    return RobustnessScore(1 - float(loss), variance_cross, variance_inner, squared_cross, squared_inner)


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
    """Return the score of every model, a row each.

    Rows trained on '' (as delivered) or 'original' make the cross part, rows trained on the scenario they are tested on
    the inner part; with folds, an accuracy is the mean of the folds'. Columns: ``score``; ``debiased``: without the
    sampling noise that squaring adds; ``low``, ``high``: 95 % interval of the true score; ``stability_low``,
    ``stability_high``: range of ``score`` when one class is left out, ``stability_class``: the class that moves it
    most; ``normality_w``, ``normality_p``: Shapiro–Wilk of the scenario accuracies; ``warning``: '' or why the score
    does not mean robustness here. A model without the original or without a scenario has only its warning; if no
    model has a score that is a UserError. ``conditions``: None: all but the original and attacks.
    """
    rows: list[dict[str, Any]] = []
    without = []
    for model in counts.models:
        design = _design(counts, model, conditions, outcome, average)
        try:
            if design is None:
                raise UserError(_INCOMPLETE.format(model=model))
            options: dict[str, Any] = {"ddof": ddof, "signed": signed, "components": components}
            spread = Spread(design, **options)
        except UserError as error:
            without.append((model, error))
            continue
        warnings = [_warning(counts, model, design), _unlike_photos(design.answers)]
        stability = _stability(spread, [Spread(design, **options, leave=name).plain for name in design.classes])
        row = {"model": model, **_row(spread, resamples, seed), **stability}
        rows.append(row | {"warning": "; ".join(filter(None, warnings))})
    if without and not rows:
        raise without[0][1]
    # a model that was not tested under enough conditions does not take the others' scores away
    untested = "has no score: it was not tested under enough conditions"
    rows += [{"model": model, "warning": untested} for model, _ in without]
    return pd.DataFrame(rows, columns=_COLUMNS)


_INCOMPLETE = (
    "The robustness score of {model} needs the original and at least one scenario from a model that was trained on "
    "originals; evaluate those first."
)
_COLUMNS = [
    "model", "score", "debiased", "low", "high", "variance_cross", "variance_inner", "accuracy_original",
    "n_conditions", "n", "stability_low", "stability_high", "stability_class", "normality_w", "normality_p", "parts",
    "warning",
]  # fmt: skip


def _design(
    counts: Counts, model: str, conditions: Sequence[str] | None, outcome: Outcome, average: Average
) -> Design | None:
    """Return the design of a model; conditions None: all but attacks."""
    names = chosen(counts, conditions) if conditions is not None else counts.conditions
    attacks = counts.attacks if conditions is None else ()
    wanted = {ORIGINAL, *names} - {*attacks}
    return design_of(from_counts(counts, model, outcome=outcome), wanted, average=average)


def _row(spread: Spread, resamples: int, seed: int) -> dict[str, Any]:
    design, estimate = spread.design, spread.estimate(resamples, seed)
    scenarios = design.accuracy[design.cross]
    normal: Any = scipy_stats.shapiro(scenarios) if len(scenarios) > 2 and np.ptp(scenarios) >= 1e-12 else None
    return {
        "score": 1 - estimate.value,
        "debiased": 1 - spread.debiased(resamples, seed),
        "low": 1 - estimate.high,
        "high": 1 - estimate.low,
        "variance_cross": spread.variance("cross"),
        "variance_inner": spread.variance("inner"),
        "accuracy_original": float(design.accuracy[0]),
        "n_conditions": len(design.cross),
        "n": design.photos,
        "normality_w": normal.statistic if normal else np.nan,
        "normality_p": normal.pvalue if normal else np.nan,
        "parts": spread.parts,
    }


def _stability(spread: Spread, without: list[float]) -> dict[str, Any]:
    """Return the range of the score without each class in turn."""
    classes = spread.design.classes
    if len(classes) < 2:
        return {"stability_low": np.nan, "stability_high": np.nan, "stability_class": ""}
    left_out = 1 - np.array(without)
    moved = int(np.nanargmax(np.abs(left_out - (1 - spread.plain))))
    return {
        "stability_low": float(np.nanmin(left_out)),
        "stability_high": float(np.nanmax(left_out)),
        "stability_class": classes[moved],
    }


def _warning(counts: Counts, model: str, design: Design) -> str:
    """Return why a high score would say nothing about robustness."""
    answers = counts.confusion[counts.confusion["model"].astype(str) == model]
    reasons = []
    if len(answers):
        share = answers.groupby("prediction", observed=True)["n"].sum() / answers["n"].sum()
        if share.max() >= 0.99:
            reasons.append(
                f"answers {share.idxmax()} to {percent(share.max(), 0)} of the images: a constant classifier scores 1"
            )
    error = float(np.sqrt((design.influence[:, 0] ** 2).sum()))
    chance, mu = 1 / len(design.classes), float(design.accuracy[0])
    if len(design.classes) > 1 and mu - 1.96 * error <= chance + 1e-9:
        guessing = f"is not above chance ({percent(chance)}): there is nothing to lose"
        reasons.append(f"accuracy on originals, {percent(mu)}, {guessing}")
    return "; ".join(reasons)


def _unlike_photos(answers: Answers) -> str:
    """Return a warning if conditions were tested on other images than the originals, else ''."""
    plain = answers.on("") | answers.on(ORIGINAL)
    photos = {name: np.unique(answers.source[plain & answers.under(name)]) for name in answers.conditions}
    whole = photos[ORIGINAL]
    unlike = {name: len(np.setxor1d(whole, own)) for name, own in photos.items() if len(own)}
    worst = max(unlike, key=lambda name: unlike[name])
    if not unlike[worst]:
        return ""
    return (
        f"was not tested on the same images under every condition ({len(np.intersect1d(photos[worst], whole))} of "
        f"{len(whole)} originals under {worst}): part of the spread is that of the images"
    )


def score_parts(
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
    """Return what each condition adds to the score: a row per model × part × condition, and one (WHOLE) per part.

    ``squared``: (C(i) − μ)², 0 for a gain when only losses count, with ``low`` and ``high``; for a whole part what the
    score subtracts for it, with an interval made like the score's. The inner part of ``scenario_class`` has a row per
    class. Models without a score are left out. Options as of ``scores``.
    """
    rows: list[dict[str, Any]] = []
    options: dict[str, Any] = {"ddof": ddof, "signed": signed, "components": components}
    parts: tuple[Part, ...] = ("cross", "inner")
    for model in counts.models:
        design = _design(counts, model, conditions, outcome, average)
        try:
            spreads = (
                {}
                if design is None
                else {
                    part: Spread(design, **options, parts=[part])
                    for part in parts
                    if part == "cross" or design.inner or components != "cross_inner"
                }
            )
        except UserError:  # fewer conditions than the divisor needs: ``scores`` says so
            continue
        for part, spread in spreads.items():
            rows += [{"model": model, "part": part, **row} for row in _part_rows(spread, resamples, seed)]
    return pd.DataFrame(rows, columns=PART_COLUMNS)


def _part_rows(spread: Spread, resamples: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row per deviation of a spread of one part, and one for the whole."""
    design = spread.design
    noise = spread.resampled(resamples, seed) / spread.scale
    places = [place for block in spread.blocks for place in block]
    names = [design.columns[place][1] for place in places] or design.classes
    accuracies = design.accuracy[places] if places else design.class_accuracy
    losses_only = spread.signed and bool(places)
    deviations = spread.deviations / spread.scale
    for number, (name, accuracy, deviation) in enumerate(zip(names, accuracies, deviations, strict=True)):
        ends = deviation + np.quantile(noise[:, number], [0.025, 0.975])
        counted, ends = (min(deviation, 0.0), np.minimum(ends, 0)) if losses_only else (deviation, ends)
        low = 0.0 if ends[0] <= 0 <= ends[1] else float((ends**2).min())  # 0 is the least a square may be
        row = {"accuracy": float(accuracy), "deviation": float(deviation), "squared": float(counted**2)}
        yield {"condition": name, **row, "low": min(low, row["squared"]),
               "high": max(float((ends**2).max()), row["squared"])}  # fmt: skip
    whole = spread.estimate(resamples, seed)
    yield {"condition": WHOLE, "squared": whole.value, "low": whole.low, "high": whole.high}
