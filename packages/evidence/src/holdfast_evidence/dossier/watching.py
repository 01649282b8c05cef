"""A series of runs against its first one, and new images without labels against tested ones, over unbounded time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import pd
from holdfast.stats.core.bootstrap import Floats, t_quantile
from holdfast.stats.core.cells import newcombe, summary
from holdfast.stats.core.grid import own_cells
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.models.gate import PairedPhotos, paired_conditions
from holdfast.stats.models.noninferiority import LEAST_DONORS, bounds

ALARMS = 0.05  # chance of any false alarm in a series, however long it gets
WITHIN = 0.03  # level of each test for "within": tested images are both a sample and the yardstick, 5 % allows for it
TOLERANCE = 0.1  # a drift up to this much counts as none
LEAST_PHOTOS = 30  # of either side; with fewer, nothing is said about new images
NEIGHBOURS = 5

Change = Literal["worse", "better", "no change shown", "not compared"]
Place = Literal["within", "outside", "cannot say"]


def spent(number: int) -> float:
    """Return the chance of a false alarm that the n-th comparison may use: 0.05 · 6/(π n)², which add up to 0.05."""
    return ALARMS * 6 / (math.pi * number) ** 2


def changes(
    old: Counts, new: Counts, old_model: str, new_model: str, *, number: int, paired: bool, outcome: Outcome = "full"
) -> pd.DataFrame:
    """Return what changed from a series' first run to its n-th later one: a row per condition of the first.

    ``difference`` is new − old; all ``low`` of a series hold together in 95 %, and so do all ``high``. ``paired``: both
    runs have the same images; else accuracies are means over classes that both have, of independent images.
    """
    names = [name for name in old.conditions if name in set(own_cells(old)["condition"].astype(str))]
    tail = spent(number) / max(sum(name in new.conditions for name in names), 1)
    if paired:
        pairs = paired_conditions(old, new, 0.0, old_model, new_model, outcome, names)
        rows = [{"condition": name} | paired_change(pairs.get(name), tail) for name in names]
    else:
        rows = _unpaired(old, new, (old_model, new_model), names, outcome, tail)
    for row in rows:
        change: Change = "worse" if row["high"] < 0 else "better" if row["low"] > 0 else "no change shown"
        row["change"] = change if row["n"] else "not compared"
    return pd.DataFrame(rows, columns=["condition", "n", "old", "new", "difference", "low", "high", "change"])


def paired_change(pairs: PairedPhotos | None, tail: float) -> dict[str, Any]:
    """Return a condition's row: the release gate's bounds, at this comparison's part of the error."""
    if pairs is None:
        return {"n": 0} | dict.fromkeys(("old", "new", "difference", "low", "high"), math.nan)
    low, high = bounds(pairs.differences, tail=tail)
    sides = {"old": pairs.old, "new": pairs.new, "difference": pairs.differences.mean}
    return {"n": len(pairs.differences.photos), **sides, "low": low, "high": high}


def _unpaired(
    old: Counts, new: Counts, models: tuple[str, str], names: list[str], outcome: Outcome, tail: float
) -> list[dict[str, Any]]:
    cells = [own_cells(counts, [name for name in names if name in counts.conditions]) for counts in (old, new)]
    cells = [frame[frame["model"].astype(str) == model] for frame, model in zip(cells, models, strict=True)]
    rows = []
    for name in names:
        sides = [frame[frame["condition"].astype(str) == name] for frame in cells]
        shared = set(sides[0]["label"].astype(str)) & set(sides[1]["label"].astype(str))
        sides = [frame[frame["label"].astype(str).isin(shared)] for frame in sides]
        donors = [frame["donor_id"].dropna().nunique() if "donor_id" in frame else 0 for frame in sides]
        row = {"condition": name, **paired_change(None, tail)}
        if shared:
            ends = [
                summary(replace(counts, cells=frame, models=[model], conditions=[name], classes=sorted(shared)),
                        outcome=outcome, level=1 - 2 * tail)[["accuracy", "low", "high"]].iloc[0].to_list()
                for counts, frame, model in zip((old, new), sides, models, strict=True)
            ]  # fmt: skip
            value, low, high = (float(end) for end in newcombe(ends[1], ends[0]))
            if any(0 < count < LEAST_DONORS for count in donors):
                low, high = -1.0, 1.0
            row |= {"n": sides[1]["source_id"].nunique(), "old": ends[0][0], "new": ends[1][0]}
            row |= {"difference": value, "low": low, "high": high}
        rows.append(row)
    return rows


@dataclass(frozen=True)
class PhotoValues:
    """What a model makes of images, a row or element each."""

    features: Floats
    answer: NDArray[np.intp]
    confidence: Floats
    turned: Floats  # share of mild changes under which the answer is another


@dataclass(frozen=True)
class Drift:
    """How far new images are from tested ones in one measure: ``by`` with one-sided bounds at 3 % and for alarms."""

    measure: str
    tested: float
    new: float
    by: float
    low: float
    high: float
    surely: float  # the least distance from 0 that holds over all checks of the series, 0 if none does


def distances(tested: PhotoValues, new: PhotoValues, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Return how far each tested and each new image is from its nearest tested ones: 1 − cosine, a mean over five.

    A tested image is held against all others. A new one is held against all but one, drawn from the tested images with
    its answer, so that both have as many images of their own kind to be near to.
    """
    rng = np.random.default_rng(seed)
    units = [side.features / np.maximum(np.linalg.norm(side.features, axis=1, keepdims=True), 1e-12)
             for side in (tested, new)]  # fmt: skip
    alike = {answer: np.flatnonzero(tested.answer == answer) for answer in np.unique(tested.answer)}
    whole = np.arange(len(tested.answer))
    left_out = whole, np.array([rng.choice(alike.get(answer, whole)) for answer in new.answer])
    near = [[_near(units[0] @ row, place) for row, place in zip(*side, strict=True)]
            for side in zip(units, left_out, strict=True)]  # fmt: skip
    return np.array(near[0]), np.array(near[1])


def _near(cosines: Floats, left_out: int) -> float:
    cosines[left_out] = -1.0
    return 1 - float(np.partition(cosines, -NEIGHBOURS)[-NEIGHBOURS:].mean())


def farther(tested: Floats, new: Floats, alarm: float) -> Drift:
    """Return how much more often than in one half of all pairs a new image's value is the larger (DeLong's error)."""
    parts = _above(new, tested), 1 - _above(tested, new)
    errors = [(part.var(ddof=1) + 1 / (4 * len(part))) / len(part) for part in parts]
    return _drift("distance", 0.5, float(parts[0].mean()), errors, parts, alarm)


def _above(values: Floats, others: Floats) -> Floats:
    """Return the share of the others that each value is larger than; equal ones count half."""
    ranked = np.sort(others)
    places = np.searchsorted(ranked, values, "left") + np.searchsorted(ranked, values, "right")
    return np.asarray(places / (2 * len(ranked)))


def shifted(measure: str, tested: Floats, new: Floats, alarm: float) -> Drift:
    """Return the difference of two means of values in 0..1, with an error that one image at 0 and one at 1 widen."""
    errors = [np.append(side, (0.0, 1.0)).var(ddof=1) / len(side) for side in (tested, new)]
    return _drift(measure, float(tested.mean()), float(new.mean()), errors, (tested, new), alarm)


def _drift(
    measure: str, tested: float, new: float, errors: Sequence[float], sides: Sequence[Floats], alarm: float
) -> Drift:
    error = math.sqrt(sum(errors))
    freedom = error**4 / sum(part**2 / (len(side) - 1) for part, side in zip(errors, sides, strict=True))
    reach, sure = (t_quantile(freedom, 1 - tail) * error for tail in (WITHIN, alarm))
    return Drift(measure, tested, new, new - tested, new - tested - reach, new - tested + reach,
                 max(abs(new - tested) - sure, 0.0))  # fmt: skip


def placed(tested: PhotoValues, new: PhotoValues, *, number: int, seed: int = 0) -> tuple[Place, list[Drift]]:
    """Return whether new images lie within what was tested, and how far from it in each measure.

    Within: every measure lies inside the tolerance (all have to, so none is corrected). Outside: one lies beyond
    it, at the level that the n-th check of a series may spend. Nearer and fewer turned answers are no drift outwards.
    """
    if min(len(tested.answer), len(new.answer)) < LEAST_PHOTOS:
        return "cannot say", []
    alarm = spent(number) / 5  # sides: farther; more or less confident, more or fewer turned answers
    drifts = [
        farther(*distances(tested, new, seed=seed), alarm),
        shifted("confidence", tested.confidence, new.confidence, alarm),
        shifted("turned", tested.turned, new.turned, alarm),
    ]
    if any(drift.surely > TOLERANCE for drift in drifts if drift.measure != "distance" or drift.by > 0):
        return "outside", drifts
    inside = [drift.high < TOLERANCE and (drift.measure == "distance" or drift.low > -TOLERANCE) for drift in drifts]
    return ("within" if all(inside) else "cannot say"), drifts
