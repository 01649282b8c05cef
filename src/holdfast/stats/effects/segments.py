"""How well models segment: pixels and boundaries summed over photos first, ratios after that.

Intersections and unions of a class are summed over all photos, as torchmetrics' ``JaccardIndex`` and a confusion matrix
do it, so that large objects count more than small ones and a class that one photo lacks is no special case. (The mean
of each photo's own IoU, which is another number, is not what stands here.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from holdfast.core.lazy import pd
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import named_conditions
from holdfast.stats.core.bootstrap import NO_ESTIMATE, RESAMPLES, Codes, Floats, codes, estimated
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
    """Return a row per photo, model, condition and class: keys of the one table and counts of the details.

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
    """Return the measures per model × trained_on × condition, with intervals (``level``) from resampled photos.

    Columns: ``n`` pictures; ``miou``, ``pixel_accuracy`` and ``boundary_f`` (docs/statistics/segmentation.md);
    ``drop``: mIoU of the same photos' originals (of a model that was trained on originals, or not here) minus this,
    paired by photo; NaN for originals and without them.
    """
    rows = []
    for key, group in frame.groupby(KEYS, sort=False):
        row = dict(zip(KEYS, key, strict=True)) | {"n": group["row_id"].nunique()}
        classes = sorted(group["class"].unique())
        wide = _wide(group, classes)
        sums = _resampled(*wide, resamples, seed)
        whole, drawn = _measures(wide[0].sum(0)[None], len(classes)), _measures(sums, len(classes))
        for name, value, others in zip(MEASURES, whole, drawn, strict=True):
            row |= estimated(value[0], others, level=level).row(name)
        rows.append(row | _drop(frame, group, (str(row["model"]), str(row["trained_on"])), resamples, seed, level))
    return pd.DataFrame(rows)


def segments_by_group(
    frame: pd.DataFrame, values: Mapping[str, str], *, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Return ``segments`` of each group of photos, the worst first; ``values``: source_id → group, a column ``value``.

    Intervals hold for all groups of a model and condition together (Bonferroni); they are missing in a group that has
    one photo of each class.
    """
    group = frame["source_id"].astype(str).map(values).fillna(UNKNOWN)
    names = sorted(group.unique())
    drawn, level = max(resamples, IN_TAIL * len(names)), simultaneous(len(names))
    tables = [
        segments(frame[group == name], resamples=drawn, seed=seed, level=level).assign(value=name) for name in names
    ]
    table = pd.concat(tables, ignore_index=True).sort_values("miou", kind="stable", ignore_index=True)
    for name in (*MEASURES, "drop"):  # a single photo a class has no spread, so nothing is known of the interval
        ends = [f"{name}_low", f"{name}_high"]
        table.loc[table[ends[0]] == table[ends[1]], ends] = np.nan
    return table


MEASURES = ("miou", "pixel_accuracy", "boundary_f")


def by_class(frame: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return the measures per model × trained_on × condition × class.

    Columns: ``n`` pictures that show it, ``iou``, ``pixel_accuracy`` (the share of its true pixels that are found) and
    ``boundary_f``, each with its 95 % interval from resampled photos; ``boundary_precision``, ``boundary_recall``.
    """
    rows = []
    for key, group in frame.groupby(KEYS, sort=False):
        classes = sorted(group["class"].unique())
        wide = _wide(group, classes)
        shape = (-1, len(classes), len(COUNTS))
        whole = _ratios(wide[0].sum(0).reshape(shape))
        drawn = _ratios(_resampled(*wide, resamples, seed).reshape(shape))
        seen = group[group["truth"] > 0]["class"].value_counts()
        for place, name in enumerate(classes):
            row = dict(zip(KEYS, key, strict=True)) | {"class": name, "n": int(seen.get(name, 0))}
            for measure, values in drawn.items():
                estimate = estimated(whole[measure][0, place], values[:, place]).row(measure)
                ranged = measure in ("iou", "pixel_accuracy", "boundary_f")
                row |= estimate if ranged else {measure: estimate[measure]}
            rows.append(row)
    return pd.DataFrame(rows)


def cells_from_segments(frame: pd.DataFrame) -> pd.DataFrame:
    """Return IoU (0..1, as ``accuracy``) and ``n`` photos per model × condition × class, for a regression.

    The background is left out: it is in every photo and says little about the class. A model that was trained within
    each scenario takes part as one model beside the one that was trained on originals; see ``experiments``.
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
    """Return the rows with one name for each way of training: the model's own where it was trained on originals.

    Where there are such rows, those that were trained within their scenario are ``NAME, trained within``, and the
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


def _wide(group: pd.DataFrame, classes: Sequence[str]) -> tuple[Floats, Codes, Codes]:
    """Return a row per measured picture with every class's counts side by side, its photo, and its label."""
    rows, count = codes(group["row_id"])
    place = group["class"].map({name: at for at, name in enumerate(classes)}).to_numpy()
    table = np.zeros((count, len(classes), len(COUNTS)))
    table[rows, place] = group[list(COUNTS)].to_numpy(np.float64)
    photos, labels = np.zeros((2, count), np.intp)
    photos[rows], labels[rows] = codes(group["source_id"])[0], codes(group["label"])[0]
    return table.reshape(count, -1), photos, labels


def _resampled(table: Floats, photos: Codes, labels: Codes, resamples: int, seed: int) -> Floats:
    """Return sums of each column in resamples of the photos of each class, (resamples, columns).

    How many photos a class has is a choice of whoever made the dataset, and a resample without any would put its IoU
    at 0; so classes are resampled one by one. From the n photos of a class n − 1 are drawn and weigh n / (n − 1) each
    (Rao and Wu, 1988), or the spread of classes with few photos would come out too small; one alone has none.
    Backgrounds that several photos share are not resampled.
    """
    drawn_sums = np.zeros((resamples, table.shape[1]))
    for label in np.unique(labels):
        here = labels == label
        number, count = codes(photos[here])
        grouped = np.stack([np.bincount(number, column, count) for column in table[here].T], axis=1)
        if count == 1:
            drawn_sums += grouped
            continue
        rng = np.random.default_rng([seed, int(label)])
        step = max(1, _DRAWN // count)
        for start in range(0, resamples, step):
            part = drawn_sums[start : start + step]
            weights = rng.multinomial(count - 1, np.full(count, 1 / count), size=len(part))
            part += weights @ grouped * (count / (count - 1))
    return drawn_sums


_DRAWN = 5_000_000  # weights at a time


def _ratios(sums: Floats) -> dict[str, Floats]:
    """Return the measures of classes from sums, (…, 8); NaN where there is nothing to divide by."""
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


def _measures(sums: Floats, classes: int) -> tuple[Floats, Floats, Floats]:
    """Return mIoU, pixel accuracy and boundary F of each row of sums, (rows, classes × 8)."""
    table = sums.reshape(len(sums), classes, len(COUNTS))
    ratios = _ratios(table)
    right, pixels = table[..., 0].sum(1), table[..., 2].sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = right / pixels
    return _mean(ratios["iou"]), accuracy, _mean(ratios["boundary_f"])


def _mean(values: Floats) -> Floats:
    """Return the mean along the last axis without NaN; NaN where there is nothing else."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0).sum(-1) / known.sum(-1))


def _drop(
    frame: pd.DataFrame, group: pd.DataFrame, key: tuple[str, str], resamples: int, seed: int, level: float
) -> dict[str, float]:
    """Return how much lower the mIoU is than that of the same photos' originals, resampled together."""
    model, trained_on = key
    same = (frame["model"] == model) & (frame["condition"] == ORIGINAL)
    before = frame[same & frame["trained_on"].isin(["" if trained_on == "" else ORIGINAL])]
    shared = set(before["source_id"]) & set(group["source_id"])
    if group["condition"].iloc[0] == ORIGINAL or not shared:
        return NO_ESTIMATE.row("drop")
    both = pd.concat([before[before["source_id"].isin(shared)], group[group["source_id"].isin(shared)]])
    classes = sorted(both["class"].unique())
    table, photos, labels = _wide(both, classes)
    first = codes(both["row_id"])[0][: int(before["source_id"].isin(shared).sum())]
    originals = np.zeros(len(table), np.bool_)
    originals[first] = True
    paired = np.concatenate([table * originals[:, None], table * ~originals[:, None]], axis=1)
    sums = _resampled(paired, photos, labels, resamples, seed)

    def lost(sums: Floats) -> Floats:
        half = sums.shape[1] // 2
        return _measures(sums[:, :half], len(classes))[0] - _measures(sums[:, half:], len(classes))[0]

    return estimated(lost(paired.sum(0)[None])[0], lost(sums), level=level).row("drop")
