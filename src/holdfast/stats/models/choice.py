"""Which model to take for given conditions: weighted accuracy with its uncertainty, next to size and speed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.names import unknown
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import RESAMPLES, SHARE, Floats
from holdfast.stats.core.cells import Average
from holdfast.stats.core.grid import chosen, judged, own_cells
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.models.between import Common, common
from holdfast.stats.models.power import range_of
from holdfast.stats.models.ranks import clearly_better, simultaneous_widths

POWER_QUANTILE = 0.8416  # Of the normal: a difference that stays as observed is then found four times in five

FACTORS = (2.0, 0.5)
LEVEL = 0.95  # of all bounds


@dataclass(frozen=True)
class ModelCost:
    """What a model takes; None if it is not known, and then ``reason`` says why."""

    parameters: int | None = None  # numbers that were learned
    bytes: int | None = None  # of its weights
    milliseconds: float | None = None  # an image, the median of repeats; ``fast`` and ``slow`` are their quartiles
    fast: float | None = None
    slow: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Weight:
    """What was asked for by one name: a weight, shared evenly by the conditions that the name stands for."""

    name: str
    weight: float
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class ModelChoice:
    """What to take.

    ``models``: a row per model, best first: ``accuracy``; ``best``: the share of resamples in which it is the best of
    those that hold the limits; ``difference`` to the best with simultaneous bounds; ``told_apart`` from it; its costs;
    ``eligible`` and ``why_not``; ``front_time`` and ``front_size``: whether no other model is at least as accurate for
    at most that cost, with the share of resamples. ``weights``: a row per weighted condition: ``asked`` (by which
    name), ``weight``, ``n``. ``more_photos``: between how many and how many images would distinguish the first two;
    None if they are, or if these images do not say.
    """

    models: pd.DataFrame
    conditions: pd.DataFrame  # a row per model × weighted condition: ``accuracy``
    weights: pd.DataFrame
    sensitivity: pd.DataFrame  # a row per name and factor: which model is best then
    best: str  # the highest weighted accuracy within the limits; empty if no model holds them
    together: tuple[str, ...]  # the best and those that the images do not separate from it
    photos: int  # that all models answered
    more_photos: tuple[int, int] | None
    dropped: int  # images that some model answered and another did not: they count for none

    @property
    def decided(self) -> bool:
        """Return whether accuracy alone decides."""
        return len(self.together) == 1


def weigh(
    asked: Mapping[str, float],
    counts: Counts,
    members: Mapping[str, Sequence[str]],
    *,
    accuracy_weight: float | None = None,
) -> list[Weight]:
    """Return what each name stands for in a table.

    ``asked``: weight by name: a condition of the table, or a name of ``members``. Without any, every condition that
    keeps the object weighs the same. ``members``: name of a scenario, family or group → its conditions in the table.
    ``accuracy_weight``: of the originals; 1 by default, also if other conditions are weighted.
    """
    if accuracy_weight is not None and ORIGINAL in asked:
        raise UserError("--accuracy-weight is the weight of the originals, and --weights names original, too: give one")
    wanted = dict(asked) or dict.fromkeys(chosen(counts, None), 1.0)
    if ORIGINAL in counts.conditions and (asked or accuracy_weight is not None) and ORIGINAL not in asked:
        wanted = {ORIGINAL: 1.0 if accuracy_weight is None else accuracy_weight} | {
            name: weight for name, weight in wanted.items() if name != ORIGINAL
        }
    weights: list[Weight] = []
    taken: dict[str, str] = {}
    for name, weight in wanted.items():
        if not 0 <= weight < math.inf:
            raise UserError(f"a weight is a number from 0 on, which {name}={weight:g} is not")
        conditions = (name,) if name in counts.conditions else tuple(members.get(name, ()))
        if not conditions:
            raise unknown("condition, family or group of these runs", name, {*counts.conditions, *members})
        for condition in conditions:
            if condition in taken:
                raise UserError(f"{condition} is weighted twice, by {taken[condition]} and by {name}: name it once")
            taken[condition] = name
        weights.append(Weight(name, float(weight), conditions))
    kept = [entry for entry in weights if entry.weight > 0]
    if not kept:
        raise UserError("all weights are 0: nothing is left to choose by")
    return kept


def choose(
    counts: Counts,
    weights: Sequence[Weight],
    *,
    costs: Mapping[str, ModelCost] | None = None,
    limit_bytes: float | None = None,
    limit_milliseconds: float | None = None,
    outcome: Outcome = "full",
    average: Average = "macro",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> ModelChoice:
    """Return the models by weighted accuracy Σ w_c a_c / Σ w_c on the images that all of them answered.

    All models share the resampled images, so differences are paired. Bounds of differences and "distinguished" hold for
    all pairs together (max-t). A model whose size or time is unknown does not hold a limit on it: no one knows.
    """
    names = [name for weight in weights for name in weight.conditions]
    shared = common(counts, outcome=outcome, average=average, conditions=names, resamples=resamples, seed=seed)
    _check_shared(counts, shared, names)
    accuracy, moved = _weighted(shared, _vector(weights, shared))
    table = _table(shared, accuracy, moved, costs or {})
    table["eligible"], table["why_not"] = _within(table, limit_bytes, limit_milliseconds)
    within = table["eligible"].to_numpy(bool)
    best, together, more = _best(shared, accuracy, moved, within)
    table["best"] = _share_best(accuracy + moved, within)
    for what, column in (("time", "milliseconds"), ("size", "bytes")):
        on, share = front(table["accuracy"].to_numpy(float), accuracy + moved, table[column].to_numpy(float))
        table[f"front_{what}"], table[f"front_{what}_share"] = on, share
    _add_differences(table, accuracy, moved, shared.photos, best)
    ordered = table.sort_values(["eligible", "accuracy"], ascending=False, kind="stable", ignore_index=True)
    answered = int(own_cells(counts, names)["source_id"].nunique())
    return ModelChoice(
        ordered,
        _by_condition(shared),
        _shown_weights(weights, shared),
        _sensitivity(weights, shared, within, best),
        shared.models[best] if best >= 0 else "",
        tuple(shared.models[weight] for weight in together),
        shared.photos,
        more,
        answered - shared.photos,
    )


def _check_shared(counts: Counts, shared: Common, names: Sequence[str]) -> None:
    if not shared.models:
        raise UserError("there is no model with answers under the weighted conditions: evaluate first")
    for name in names:
        if name in shared.conditions:
            continue
        cells = own_cells(counts, [name])
        silent = sorted(set(shared.models) - set(cells["model"].astype(str)))
        who = f"{', '.join(silent[:4])} gave none" if silent else "they answered different images"
        raise UserError(
            f"no image under {name} was answered by every model ({who}): give {name} the weight 0, or leave out the run"
        )


def _vector(weights: Sequence[Weight], shared: Common) -> Floats:
    """Return weights of the conditions, adding up to 1."""
    share = {name: entry.weight / len(entry.conditions) for entry in weights for name in entry.conditions}
    vector = np.array([share[name] for name in shared.conditions])
    return np.asarray(vector / vector.sum())


def _weighted(shared: Common, vector: Floats) -> tuple[Floats, Floats]:
    """Return weighted accuracies (models,), and how they move in resamples (resamples, models)."""
    accuracy = shared.accuracy @ vector
    return accuracy, shared.resampled @ vector - accuracy


def _table(shared: Common, accuracy: Floats, moved: Floats, costs: Mapping[str, ModelCost]) -> pd.DataFrame:
    low, high, _ = judged(accuracy, moved, shared.photos, possible=SHARE)
    frame = pd.DataFrame({"model": shared.models, "accuracy": accuracy})
    frame["low"], frame["high"] = low, high
    known = [asdict(costs.get(name, ModelCost(reason="not measured"))) for name in shared.models]
    numbers = ("parameters", "bytes", "milliseconds", "fast", "slow")
    return frame.join(pd.DataFrame(known).astype(dict.fromkeys(numbers, float))[[*numbers, "reason"]])


def _within(
    table: pd.DataFrame, limit_bytes: float | None, limit_milliseconds: float | None
) -> tuple[list[bool], list[str]]:
    """Return which models hold the limits, and why not."""
    reasons = []
    for row in table.to_dict("records"):
        why = []
        for what, column, limit in (("size", "bytes", limit_bytes), ("time", "milliseconds", limit_milliseconds)):
            if limit is not None and math.isnan(row[column]):
                why.append(f"{what} unknown")
            elif limit is not None and row[column] > limit:
                why.append(f"{what} above the limit")
        reasons.append(", ".join(why))
    return [not reason for reason in reasons], reasons


def _best(
    shared: Common, accuracy: Floats, moved: Floats, within: NDArray[np.bool_]
) -> tuple[int, list[int], tuple[int, int] | None]:
    """Return the best within limits (−1: none), those not distinguished from it, and images to separate the two."""
    places = np.flatnonzero(within)
    if not len(places):
        return -1, [], None
    order = places[np.argsort(-accuracy[places], kind="stable")]
    best = int(order[0])
    better = clearly_better(accuracy, moved, shared.photos)
    together = [int(place) for place in order if not better[best, place]]
    if len(together) < 2:
        return best, together, None
    second = together[1]
    difference = float(accuracy[best] - accuracy[second])
    spread = float((moved[:, best] - moved[:, second]).std())
    half = float(simultaneous_widths(moved)[best, second])
    if difference <= 1e-12 or spread <= 1e-12:
        return best, together, None
    return best, together, range_of(shared.photos, difference / spread, half / spread + POWER_QUANTILE)


def _share_best(resampled: Floats, within: NDArray[np.bool_]) -> Floats:
    """Return in which share of resamples each model is the best within the limits; equals share it."""
    eligible = np.where(within, resampled, -np.inf)
    first = (eligible >= eligible.max(axis=1, keepdims=True) - 1e-12) & within
    counts = np.maximum(first.sum(axis=1, keepdims=True), 1)
    return np.asarray((first / counts).mean(axis=0))


def front(accuracy: Floats, resampled: Floats, cost: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Return who is on the Pareto front: no other model is at least as accurate for at most that cost.

    By the estimates (models,), and in which share of resamples; NaN if the cost is unknown.
    """
    known = ~np.isnan(cost)
    share = np.full(len(accuracy), np.nan)
    on = np.zeros(len(accuracy), bool)
    for place in np.flatnonzero(known):
        others = np.flatnonzero(known & (cost <= cost[place]))
        others = others[others != place]
        cheaper = cost[others] < cost[place]
        ahead = resampled[:, others] - resampled[:, [place]]
        beaten = (ahead > 1e-12) | (cheaper & (ahead >= -1e-12))
        share[place] = float((~beaten.any(axis=1)).mean())
        gap = accuracy[others] - accuracy[place]
        on[place] = not ((gap > 1e-12) | (cheaper & (gap >= -1e-12))).any()
    return on, share


def _add_differences(table: pd.DataFrame, accuracy: Floats, moved: Floats, photos: int, best: int) -> None:
    """Add differences to the best, with bounds that hold for all pairs together."""
    models = len(accuracy)
    table["difference"] = accuracy - accuracy[best] if best >= 0 else np.nan
    half = np.full(models, np.nan)
    if best >= 0 and models > 1:
        widths = simultaneous_widths(moved)[best]
        # If no image moves a difference, the exact bound for images that all agree.
        exact = 1 - ((1 - LEVEL) / (models * (models - 1))) ** (1 / max(photos, 1))
        half = np.where(widths > 0, widths, exact)
    if best >= 0:
        half[best] = 0.0
    table["difference_low"] = np.clip(table["difference"] - half, -1, 1)
    table["difference_high"] = np.clip(table["difference"] + half, -1, 1)
    better = clearly_better(accuracy, moved, photos)
    table["told_apart"] = better[best] | better[:, best] if best >= 0 else False


def _by_condition(shared: Common) -> pd.DataFrame:
    rows = [
        {"model": model, "condition": condition, "accuracy": float(shared.accuracy[at, to]), "n": int(shared.n[to])}
        for at, model in enumerate(shared.models)
        for to, condition in enumerate(shared.conditions)
    ]
    return pd.DataFrame(rows)


def _shown_weights(weights: Sequence[Weight], shared: Common) -> pd.DataFrame:
    by = {name: entry.name for entry in weights for name in entry.conditions}
    vector = _vector(weights, shared)
    rows = [
        {"condition": name, "asked": by[name], "weight": float(share), "n": int(n)}
        for name, share, n in zip(shared.conditions, vector, shared.n, strict=True)
    ]
    return pd.DataFrame(rows)


def _sensitivity(weights: Sequence[Weight], shared: Common, within: NDArray[np.bool_], base: int) -> pd.DataFrame:
    """Return the best model when one weight is doubled or halved."""
    columns = ["name", "factor", "best", "accuracy", "share", "together", "changed"]
    rows = []
    for entry in weights if len(weights) > 1 and base >= 0 else ():
        for factor in FACTORS:
            changed = [replace(w, weight=w.weight * factor) if w is entry else w for w in weights]
            accuracy, moved = _weighted(shared, _vector(changed, shared))
            best, together, _ = _best(shared, accuracy, moved, within)
            share, names = _share_best(accuracy + moved, within)[best], [shared.models[place] for place in together]
            values = (shared.models[best], float(accuracy[best]), float(share), ", ".join(names), best != base)
            rows.append((entry.name, factor, *values))
    return pd.DataFrame(rows, columns=columns)
