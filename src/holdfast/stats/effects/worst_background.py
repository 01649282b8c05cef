"""Accuracy on the worst of several backgrounds, and the backgrounds that fool most objects.

The worst of k falls with k by chance alone. The control is the worst of k backgrounds of the object's own class; the
effect is the control's accuracy minus that on backgrounds of other classes, paired on the image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import pd, scipy_special
from holdfast.core.measures import Measure, MeasureColumn
from holdfast.core.names import SWEEPS
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import (
    CHANGE,
    RESAMPLES,
    SHARE,
    Codes,
    Estimate,
    Floats,
    adjusted_mean,
    cluster_freedom,
    codes,
    stratum_weights,
    t_quantile,
)
from holdfast.stats.core.cells import Average, share_of
from holdfast.stats.core.reduce import Outcome

OTHER, SAME = SWEEPS
READS = ("model", "sample_id", "source_id", "fold", "label", "condition", "donor_id", "donor_label", "status",
         "correct", "correct_restricted")  # fmt: skip


@dataclass(frozen=True)
class Arm:
    """Answers on several backgrounds, a place each: the image, the donor, and whether it is right."""

    image: Codes
    donor: Codes
    right: NDArray[np.bool_]
    images: int

    def worst_of(self, k: int, weights: Floats) -> tuple[Floats, float, float]:
        """Return each image's share of sets of k backgrounds on which it is always right, and what donors add.

        The share is exact: of an image that is right on r of n backgrounds, C(r, k) / C(n, k). Donors add a variance
        and leave degrees of freedom: the jackknife over donors, each image's mean taken out, less what single answers
        add (two-way clusters; Cameron, Gelbach and Miller 2011).
        """
        size = np.bincount(self.image, minlength=self.images)
        hits = np.bincount(self.image, self.right, self.images)
        comb = scipy_special.comb
        value = np.asarray(comb(hits, k) / comb(size, k), np.float64)
        fewer = np.minimum(k, size - 1)
        without = comb(hits[self.image] - self.right, fewer[self.image]) / comb(size - 1, fewer)[self.image]
        moved = without - (np.bincount(self.image, without, self.images) / size)[self.image]
        moved *= weights[self.image]
        added = np.square(np.bincount(self.donor, moved)).sum() - np.square(moved).sum()
        return value, max(0.0, float(added)), cluster_freedom(self.donor)


def worst_background(
    rows: pd.DataFrame,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return accuracy on the worst of k backgrounds, k = 1 … K, a row per model and k.

    Columns: ``n`` images; ``original``: their accuracy; ``other``, ``same``: accuracy on the worst of k backgrounds of
    other classes and of the own class; ``effect`` = same − other; each with ``_low`` and ``_high``. K is the most that
    nine in ten images have on both sides; the others are left out. Backgrounds are drawn again, too, in the intervals.
    """
    table = []
    for model, units, (other, same) in _arms(rows, outcome):
        mean = _Mean(units, average, {"resamples": resamples, "seed": seed})
        sizes = np.minimum(*(np.bincount(arm.image) for arm in (other, same)))
        for k in range(1, int(sizes.min()) + 1):
            row = {"model": model, "backgrounds": k, "n": units["source_id"].nunique()}
            sides = {"other": other.worst_of(k, mean.weights), "same": same.worst_of(k, mean.weights)}
            for name, (value, noise, freedom) in sides.items():  # a share p as the difference 2p − 1
                twice = mean(2 * value - 1, 4 * noise, freedom)
                row |= Estimate(*((end + 1) / 2 for end in twice)).within(SHARE).row(name)
            noise, freedom = sum(side[1] for side in sides.values()), min(side[2] for side in sides.values())
            effect = mean(sides["same"][0] - sides["other"][0], noise, freedom)
            table.append(
                row | effect.within(CHANGE).row("effect") | {"original": mean.of(units["original"].to_numpy())}
            )
    return pd.DataFrame(table, columns=[column.name for column in WORST.columns])


class _Mean:
    """Means of values from −1 to 1 over images or classes; intervals are over images, widened by donors."""

    def __init__(self, units: pd.DataFrame, average: Average, settings: dict[str, int]) -> None:
        labels = codes(units["label"])[0]
        self._stratum = labels if average == "macro" else np.zeros_like(labels)
        self._sizes = np.bincount(self._stratum)
        self.weights, self._freedom = stratum_weights(self._stratum)
        self._sources, self._settings = units["source_id"].to_numpy(), settings

    def of(self, values: Floats) -> float:
        known = np.isfinite(values)
        if not known.any():
            return float("nan")
        return float((values[known] * self.weights[known]).sum() / (1 if known.all() else self.weights[known].sum()))

    def __call__(self, values: Floats, noise: float, freedom: float) -> Estimate:
        mean = self.of(values)
        means = np.bincount(self._stratum, values) / self._sizes
        means[self._sizes == 1] = mean  # a class's only image has no deviation from the class's mean
        scale = np.sqrt(self._sizes / np.maximum(self._sizes - 1, 1))
        residuals = self.weights * ((values - means[self._stratum]) * scale[self._stratum])
        size = 1 / float(np.square(self.weights).sum())
        alone = adjusted_mean(mean, size, residuals, self._sources, freedom=self._freedom, **self._settings)
        more = t_quantile(freedom) * np.sqrt(noise)
        low, high = (float(np.hypot(end - mean, more)) for end in alone[1:])
        return Estimate(mean, mean - low, mean + high)


def fooling_backgrounds(
    rows: pd.DataFrame, *, outcome: Outcome = "full", resamples: int = 10 * RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Return the backgrounds of other classes, for each model those that fool most objects first.

    Columns: ``donor_id``, ``donor_label``; ``n`` objects that are right as they are; ``fooled``: share of these that
    are wrong on it; ``excess``: that share minus the same objects' on the other backgrounds, with ``_low`` and
    ``_high``, which hold for all backgrounds of a model together, so that the worst of them may be read like any other.
    """
    table = []
    for model, units, (other, _) in _arms(rows, outcome):
        known = units["original"].to_numpy() > 0
        size = np.bincount(other.image, minlength=len(units))
        wrong = ~other.right
        failures = np.bincount(other.image, wrong, len(units))
        rest = (failures[other.image] - wrong) / np.maximum(size[other.image] - 1, 1)
        names = units.attrs["donors"]
        for donor in range(len(names)):
            own = (other.donor == donor) & (known & (size > 1))[other.image]
            if not own.any():
                continue
            more = wrong[own] - rest[own]
            mean, count = float(more.mean()), int(own.sum())
            excess = adjusted_mean(
                mean, count, (more - mean) / count, units["source_id"].to_numpy()[other.image[own]],
                level=1 - 0.05 / len(names), resamples=resamples, seed=seed,
            )  # fmt: skip
            row = {"model": model, "donor_id": names[donor][0], "donor_label": names[donor][1], "n": count}
            row |= share_of(float(wrong[own].sum()), count).row("fooled") | excess.within(CHANGE).row("excess")
            table.append(row)
    frame = pd.DataFrame(table, columns=[column.name for column in FOOLING.columns])
    return frame.sort_values(["model", "excess"], ascending=[True, False], kind="stable")


def _arms(rows: pd.DataFrame, outcome: Outcome) -> Iterator[tuple[str, pd.DataFrame, tuple[Arm, Arm]]]:
    """Yield each model with its images (``label``, ``source_id``, ``original``) and the answers of both sides."""
    column = "correct" if outcome == "full" else "correct_restricted"
    rows = rows[(rows["status"] == "ok") & rows["condition"].isin([*SWEEPS, ORIGINAL])]
    unit = [f"{sample}|{fold}" for sample, fold in zip(rows["sample_id"], rows["fold"], strict=True)]
    rows = rows.assign(right=rows[column].astype(float) > 0, unit=unit)
    for model, own in rows.groupby("model", observed=True, sort=True):
        count = own.groupby(["unit", "condition"], observed=True).size().unstack(fill_value=0)
        if not set(SWEEPS) <= set(count.columns):
            continue
        least = count[[*SWEEPS]].min(axis=1)
        least = least[least > 0]  # images without a mask, or without donors, have no such rows
        if least.empty:
            continue
        most = np.sort(least.to_numpy())[len(least) // 10]
        if most < 1:
            continue
        units = own.drop_duplicates("unit").set_index("unit")[["label", "source_id"]].sort_index()
        units = units[least.reindex(units.index, fill_value=0) >= most]
        original = own[own["condition"] == ORIGINAL].groupby("unit")["right"].mean()
        units["original"] = original.reindex(units.index) if len(original) else float("nan")
        arms = []
        for side in (SAME, OTHER):
            part = own[(own["condition"] == side) & own["unit"].isin(units.index)].sort_values(["unit", "donor_id"])
            donor = codes(part["donor_id"].astype(str))[0]
            arms.append(Arm(units.index.get_indexer(part["unit"]), donor, part["right"].to_numpy(bool), len(units)))
        named = part.drop_duplicates("donor_id").sort_values("donor_id")  # of the other classes, the last side
        units.attrs["donors"] = list(zip(named["donor_id"].astype(str), named["donor_label"].astype(str), strict=True))
        yield str(model), units, (arms[1], arms[0])


_MODEL = MeasureColumn("model", "Name of the model.")


def _estimate(name: str, meaning: str, shown: str) -> tuple[MeasureColumn, ...]:
    low, high = f"{name}_low", f"{name}_high"
    return (
        MeasureColumn(name, meaning, shown, low, high),  # type: ignore[arg-type]
        MeasureColumn(low, "Lower end of its interval.", shown),  # type: ignore[arg-type]
        MeasureColumn(high, "Upper end of its interval.", shown),  # type: ignore[arg-type]
    )


WORST = Measure(
    "How often is each model right on the worst of several backgrounds?",
    worst_background,
    READS,
    (
        _MODEL,
        MeasureColumn("backgrounds", "k, the number of backgrounds of which the worst counts.", "integer"),
        MeasureColumn("n", "Number of images.", "integer"),
        MeasureColumn("original", "Accuracy on the originals of these images.", "percent"),
        *_estimate("other", "Accuracy on the worst of k backgrounds of other classes.", "percent"),
        *_estimate("same", "The control: accuracy on the worst of k backgrounds of the own class.", "percent"),
        *_estimate("effect", "Control minus accuracy: what the class of the background costs.", "points"),
    ),
)
FOOLING = Measure(
    "Which backgrounds fool most objects?",
    fooling_backgrounds,
    READS,
    (
        _MODEL,
        MeasureColumn("donor_id", "Image that lends the background."),
        MeasureColumn("donor_label", "Its class."),
        MeasureColumn("n", "Number of objects that are right as they are.", "integer"),
        *_estimate("fooled", "Share of these that are wrong on this background.", "percent"),
        *_estimate("excess", "That share minus the same objects' on the other backgrounds.", "points"),
    ),
)
