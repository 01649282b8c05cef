"""How well models segment: pixels and boundaries summed over images first, ratios after that.

Intersections and unions of a class are summed over all images, as torchmetrics' ``JaccardIndex`` and a confusion matrix
do it, so that large objects count more than small ones and a class that one image lacks is no special case. (The mean
of each image's own IoU is another number.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from holdfast.core.lazy import pd
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import named_conditions, numbered_column
from holdfast.stats.core.bootstrap import (
    CHANGE,
    NO_ESTIMATE,
    RESAMPLES,
    SHARE,
    Codes,
    Estimate,
    Floats,
    Range,
    codes,
    deviations,
    estimated,
    join_lent,
    left_out,
    lenders,
    stratum_weights,
    sums,
    unseen,
)
from holdfast.stats.effects.families import IN_TAIL, UNKNOWN, simultaneous

SEGMENT = "segment"  # The task of such rows in the one table

BACKGROUND = "background"
COLUMNS = [
    "row_id", "task", "model", "trained_on", "fold", "condition", "variant", "parameters", "sample_id", "source_id",
    "label", "donor_id", "image_sha256", "correct", "status", "error",
]  # fmt: skip
"""Of the one table, that ``measured`` needs."""

COUNTS = (
    "intersection", "union", "truth", "predicted", "truth_boundary", "truth_boundary_met", "predicted_boundary",
    "predicted_boundary_met",
)  # fmt: skip
KEYS = ["model", "trained_on", "condition"]


def measured(rows: pa.Table, details: pa.Table) -> pd.DataFrame:
    """Return a row per image, model, condition and class: keys of the one table and counts of the details.

    ``condition`` is its name as in ``core.reduce``. A class that neither the truth nor the answer has is not listed.
    """
    frame = segmented(rows)
    counts: pd.DataFrame = details.to_pandas()
    counts["class"] = counts["class"].astype(str)
    good = frame[frame["status"] == "ok"]
    return good.merge(counts.drop_duplicates(["row_id", "class"]), on="row_id", how="inner").reset_index(drop=True)


def segmented(rows: pa.Table) -> pd.DataFrame:
    """Return the segmented rows, with their conditions named."""
    frame: pd.DataFrame = rows.select(COLUMNS).to_pandas()
    for column in ("task", "model", "trained_on", "condition", "variant", "parameters", "label", "status"):
        frame[column] = frame[column].astype(object).fillna("").astype(str)
    frame = frame[frame["task"] == SEGMENT].reset_index(drop=True)
    return frame.assign(condition=named_conditions(frame))


def segments(frame: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0, level: float = 0.95) -> pd.DataFrame:
    """Return the measures per model × trained_on × condition, with intervals (``level``) from resampled images.

    Columns: ``n`` images; ``miou``, ``pixel_accuracy`` and ``boundary_f`` (docs/statistics/tasks.md);
    ``drop``: mIoU of the same images' originals (of a model that was trained on originals, or not here) minus this,
    paired by image; NaN for originals and without them.
    """
    rows = []
    for key, group in frame.groupby(KEYS, sort=False):
        row = dict(zip(KEYS, key, strict=True)) | {"n": group["row_id"].nunique()}
        classes = sorted(group["class"].unique())
        cells, options = _cells(group, classes), DrawOptions(resamples, seed, level)
        for name in MEASURES:
            row |= cells.estimate(partial(_measure, name=name, classes=len(classes)), SHARE, options).row(name)
        rows.append(row | _drop(frame, group, (str(row["model"]), str(row["trained_on"])), options))
    return pd.DataFrame(rows)


def segments_by_group(
    frame: pd.DataFrame, values: Mapping[str, str], *, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Return ``segments`` of each group of images, the worst first; ``values``: source_id → group, a column ``value``.

    Intervals hold for all groups of a model and condition together (Bonferroni).
    """
    group = frame["source_id"].astype(str).map(values).fillna(UNKNOWN)
    names = sorted(group.unique())
    drawn, level = max(resamples, IN_TAIL * len(names)), simultaneous(len(names))
    tables = [
        segments(frame[group == name], resamples=drawn, seed=seed, level=level).assign(value=name) for name in names
    ]
    return pd.concat(tables, ignore_index=True).sort_values("miou", kind="stable", ignore_index=True)


MEASURES = ("miou", "pixel_accuracy", "boundary_f")


def by_class(frame: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return the measures per model × trained_on × condition × class.

    Columns: ``n`` images that show it, ``iou``, ``pixel_accuracy`` (the share of its true pixels that are found) and
    ``boundary_f``, each with its 95 % interval from resampled images; ``boundary_precision``, ``boundary_recall``.
    """
    rows = []
    for key, group in frame.groupby(KEYS, sort=False):
        classes = sorted(group["class"].unique())
        cells = _cells(group, classes)
        seen = group[group["truth"] > 0]["class"].value_counts()
        for place, name in enumerate(classes):
            row = dict(zip(KEYS, key, strict=True)) | {"class": name, "n": int(seen.get(name, 0))}
            for measure in ("iou", "pixel_accuracy", "boundary_f"):
                own = partial(_of_class, place=place, name=measure, classes=len(classes))
                row |= cells.estimate(own, SHARE, DrawOptions(resamples, seed)).row(measure)
            ratios = _ratios(cells.counts.sum(0).reshape(len(classes), -1)[place])
            row |= {name: float(ratios[name]) for name in ("boundary_precision", "boundary_recall")}
            rows.append(row)
    return pd.DataFrame(rows)


def cells_from_segments(frame: pd.DataFrame) -> pd.DataFrame:
    """Return IoU (0..1, as ``accuracy``) and ``n`` images per model × condition × class, for a regression.

    The background is left out: it is in every image and says little about the class. A model that was trained within
    each scenario takes part as one model next to the one that was trained on originals; see ``experiments``.
    """
    chosen = experiments(frame)
    chosen = chosen[chosen["class"] != BACKGROUND]
    shown = chosen.assign(photos=chosen["truth"] > 0)
    summed = shown.groupby(["model", "condition", "class"], sort=False)[["intersection", "union", "photos"]].sum()
    summed = summed.reset_index().rename(columns={"class": "label", "photos": "n"})
    summed = summed[summed["n"] > 0]
    summed["accuracy"] = summed["intersection"] / summed["union"]
    order = {ORIGINAL: 0}
    summed = summed.sort_values(
        ["model", "condition", "label"], key=lambda column: column.map(lambda value: (order.get(value, 1), value)),
        ignore_index=True,
    )  # fmt: skip
    return summed[["model", "condition", "label", "accuracy", "n"]]


def experiments(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with one name for each way of training: the model's own if it was trained on originals.

    If there are such rows, those that were trained within their scenario are ``NAME, trained within``, and the
    originals stand for both. Models trained on one scenario and tested on another name it.
    """
    plain = frame["trained_on"].isin(["", ORIGINAL])
    within = ~plain & (frame["trained_on"] == frame["condition"])
    other = ~plain & ~within
    crossed = set(frame.loc[plain & (frame["condition"] != ORIGINAL), "model"])
    suffix = frame["model"].isin(crossed).map({True: WITHIN, False: ""})
    inner = frame[within].assign(model=(frame["model"] + suffix)[within])
    twice = plain & (frame["condition"] == ORIGINAL) & frame["model"].isin(crossed & set(frame.loc[within, "model"]))
    copies = frame[twice].assign(model=frame["model"][twice] + WITHIN)
    rest = frame[other].assign(model=(frame["model"] + " trained on " + frame["trained_on"])[other])
    return pd.concat([frame[plain], copies, inner, rest], ignore_index=True)


WITHIN = ", trained within"


class DrawOptions(NamedTuple):
    """How intervals are drawn."""

    resamples: int = RESAMPLES
    seed: int = 0
    level: float = 0.95


@dataclass(frozen=True)
class _Cells:
    """Measured images: ``counts`` of every class side by side, and codes of image, label, donor and side of each."""

    counts: Floats
    photo: Codes
    label: Codes
    donor: Codes
    side: Codes  # the original, or the condition

    def estimate(self, statistic: Callable[[Floats], Floats], possible: Range, draws: DrawOptions) -> Estimate:
        """Return a statistic of sums with its interval: what each image adds, resampled by image and donor.

        How many images a class has is a choice of the dataset's author, so deviations are taken from the class's
        mean; those of classes with one image, from the mean of all such classes.
        """
        value = float(statistic(self.counts.sum(axis=0)[None])[0])
        if not np.isfinite(value):
            return NO_ESTIMATE
        stratum, strata = codes(self.label * np.intp(2) + self.side)
        sizes = np.bincount(stratum)
        alone = sizes[stratum] == 1  # without it, its class is gone
        moved = left_out(statistic, self.counts)
        moved = np.where(alone, left_out(statistic, self.counts, 1.0), moved) if alone.any() else moved
        stratum[alone], sizes = strata + self.side[alone], np.append(sizes, np.bincount(self.side[alone], minlength=2))
        means = sums(stratum, moved, strata + 2) / np.maximum(sizes, 1)
        few = np.sqrt(sizes / np.maximum(sizes - 1, 1))
        residual = (moved - np.where(sizes > 1, means, 0.0)[stratum]) * few[stratum]
        kept, residual = join_lent(residual, np.ones(len(residual)), self.photo, self.donor >= 0)
        photo, lender = self.photo[kept], lenders(self.donor, self.photo)
        lender = None if lender is None else lender[kept]
        freedom = stratum_weights(stratum)[1]
        strayed = deviations(residual[kept], photo, lender, freedom=freedom, resamples=draws.resamples, seed=draws.seed)
        if strayed.std() <= 1e-9:
            strayed = float(unseen(len(np.unique(photo)), draws.level)) * np.array([-1.0, 1.0])
        return estimated(value, value + strayed, level=draws.level).within(possible)


def _cells(group: pd.DataFrame, classes: Sequence[str], original: ArrayLike = False) -> _Cells:
    """Return the measured images of a frame; ``original``: (rows,) whether a row is of the first side."""
    rows, count = codes(group["row_id"])
    place = group["class"].map({name: at for at, name in enumerate(classes)}).to_numpy()
    table = np.zeros((count, len(classes), len(COUNTS)))
    table[rows, place] = group[list(COUNTS)].to_numpy(np.float64)
    about = np.zeros((4, count), np.intp)
    side = np.broadcast_to(np.asarray(original, np.intp), len(group))
    about[:, rows] = np.stack(
        [*(codes(group[name])[0] for name in ("source_id", "label")), numbered_column(group, "donor_id")[0], side]
    )
    return _Cells(table.reshape(count, -1), *about)


def _ratios(sums: Floats) -> dict[str, Floats]:
    """Return the measures of classes from sums, (…, 8); NaN if there is nothing to divide by."""
    both, either, truth, _, edge, edge_met, said, said_met = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision, recall = said_met / said, edge_met / edge
        # A boundary that only one of the two has is missed, not undefined.
        precision = np.where((said == 0) & (edge > 0), 0.0, precision)
        recall = np.where((edge == 0) & (said > 0), 0.0, recall)
        together = 2 * precision * recall / (precision + recall)
        return {
            "iou": both / either,
            "pixel_accuracy": both / truth,
            "boundary_f": np.where(precision + recall == 0, 0.0, together),
            "boundary_precision": precision,
            "boundary_recall": recall,
        }


def _of_class(sums: Floats, place: int, name: str, classes: int) -> Floats:
    """Return a measure of one class of each row of sums, (rows, classes × 8)."""
    return _ratios(sums.reshape(len(sums), classes, len(COUNTS))[:, place])[name]


def _measure(sums: Floats, name: str, classes: int) -> Floats:
    """Return a measure of all classes of each row of sums, (rows, classes × 8)."""
    table = sums.reshape(len(sums), classes, len(COUNTS))
    if name == "pixel_accuracy":
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(table[..., 0].sum(1) / table[..., 2].sum(1))
    return _mean(_ratios(table)["iou" if name == "miou" else name])


def _mean(values: Floats) -> Floats:
    """Return the mean along the last axis without NaN; NaN if there is nothing else."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0).sum(-1) / known.sum(-1))


def _drop(frame: pd.DataFrame, group: pd.DataFrame, key: tuple[str, str], options: DrawOptions) -> dict[str, float]:
    """Return how much lower the mIoU is than that of the same images' originals, resampled together."""
    model, trained_on = key
    same = (frame["model"] == model) & (frame["condition"] == ORIGINAL)
    before = frame[same & frame["trained_on"].isin(["" if trained_on == "" else ORIGINAL])]
    shared = set(before["source_id"]) & set(group["source_id"])
    if group["condition"].iloc[0] == ORIGINAL or not shared:
        return NO_ESTIMATE.row("drop")
    both = pd.concat([before[before["source_id"].isin(shared)], group[group["source_id"].isin(shared)]])
    classes = sorted(both["class"].unique())
    cells = _cells(both, classes, np.arange(len(both)) < before["source_id"].isin(shared).sum())
    first = (cells.side == 1)[:, None]
    paired = replace(cells, counts=np.concatenate([cells.counts * first, cells.counts * ~first], axis=1))

    def lost(sums: Floats) -> Floats:
        half = sums.shape[1] // 2
        return _measure(sums[:, :half], "miou", len(classes)) - _measure(sums[:, half:], "miou", len(classes))

    return paired.estimate(lost, CHANGE, options).row("drop")


def overlaps(rows: pa.Table, details: pa.Table) -> pa.Table:
    """Return rows of the one table with the mean IoU of the classes that each image truly has, background aside.

    The column is ``overlap``; it is 0 for rows without an answer.
    """
    counts: pd.DataFrame = details.select(["row_id", "class", "intersection", "union", "truth"]).to_pandas()
    counts = counts[(counts["class"].astype(str) != BACKGROUND) & (counts["truth"] > 0)]
    mean = (counts["intersection"] / counts["union"]).groupby(counts["row_id"]).mean()
    overlap = mean.reindex(rows["row_id"].to_pylist()).fillna(0.0).to_numpy(np.float64)
    return rows.append_column("overlap", pa.array(overlap))
