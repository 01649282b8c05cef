"""Where models look: the share of attribution on the foreground, and what it has to do with lost accuracy.

A share is only read together with the share of the area: a map that is the same everywhere has that one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.lazy import pd, scipy_sparse, scipy_stats
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import named_conditions, numbered_column
from holdfast.stats.core.bootstrap import (
    CHANGE,
    COUNT,
    NO_ESTIMATE,
    RESAMPLES,
    SHARE,
    Codes,
    Estimate,
    Floats,
    codes,
    deviations,
    drawn_weights,
    estimated,
    lenders,
    unseen,
)

COLUMNS = [
    "row_id", "sample_id", "source_id", "condition", "variant", "parameters", "model", "trained_on", "label", "correct",
    "prediction", "donor_id",
]  # fmt: skip
"""Of the one table, what is needed here."""

FEWEST = 4  # Cells below which no correlation is stated
CELLS_AT_ONCE = 2_000_000  # Cells times resamples that are ranked together
ALIKE = 0.5  # Rank correlation with the maps of a network that knows nothing, from which on maps did not change enough

_OF = ["method", "target", "model", "trained_on"]
_TEXT = [*_OF, "target_class", "layer", "status", "condition", "variant", "parameters", "label", "prediction"]


def looks(rows: pa.Table, attributions: pa.Table) -> pd.DataFrame:
    """Return the rows of ``details/attributions`` with those of the one table that they explain.

    ``condition`` is the name as in ``reduce``: with its variant unless that is the paper's, and its parameters if
    there are several.
    """
    frame: pd.DataFrame = attributions.to_pandas().merge(rows.select(COLUMNS).to_pandas(), on="row_id")
    for column in _TEXT:
        frame[column] = frame[column].astype(object)
    frame = frame.assign(condition=named_conditions(frame)).drop(columns=["variant", "parameters"])
    # Rows are stored in the order in which they were made, which a stopped command changes.
    frame = frame.sort_values([*_OF, "condition", "row_id"], ignore_index=True)
    return frame.sort_values("condition", key=lambda names: names != ORIGINAL, kind="stable", ignore_index=True)


def shares(frame: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return the share of attribution on the object: a row per method × target × model × trained_on × condition.

    Columns: ``n`` maps and ``photos``; ``share`` on the foreground, ``area`` of it, ``ratio`` = Σ share / Σ area,
    ``hits`` (how often the maximum is on the foreground) and ``change`` against the same images' originals, with 95 %
    intervals over images; ``empty``: maps of zeros.
    """
    rows = []
    for key, group in frame.groupby([*_OF, "condition"], sort=False):
        row: dict[str, Any] = dict(zip([*_OF, "condition"], key, strict=True))
        fine = group[group["status"] == "ok"]
        row |= {"n": len(fine), "photos": fine["source_id"].nunique(), "empty": int((group["status"] == "empty").sum())}
        if len(fine):
            share, area, hit = (fine[name].to_numpy(np.float64) for name in ("share", "area", "hit"))
            ones = np.ones(len(fine))
            sources = fine["source_id"].to_numpy()
            options: dict[str, Any] = {"resamples": resamples, "seed": seed}
            options["donor"] = numbered_column(fine, "donor_id")[0]
            mean = ratio_of_sums(share, ones, sources, **options).within(SHARE)
            row |= {"area": float(area.mean()), **mean.row("share", "")}
            row |= ratio_of_sums(share, area, sources, **options).within(COUNT).row("ratio")
            row |= ratio_of_sums(hit, ones, sources, **options).within(SHARE).row("hits")
            row |= _change(frame, key, fine, resamples=resamples, seed=seed).within(CHANGE).row("change")
        rows.append(row)
    return pd.DataFrame(rows)


def ratio_of_sums(
    top: Floats, bottom: Floats, clusters: np.ndarray, *, resamples: int, seed: int, donor: Codes | None = None
) -> Estimate:
    """Return Σ top / Σ bottom with its 95 % interval, by a bootstrap of its linear part over whole clusters.

    ``donor``: of each row, −1 for none; if rows share donors, the bootstrap is two-way.
    """
    value, (cluster, count) = float(top.sum() / bottom.sum()), codes(clusters)
    if count < 2:
        return Estimate(value, float("nan"), float("nan"))
    lender = None if donor is None else lenders(donor, cluster)
    strayed = deviations((top - value * bottom) / bottom.sum(), cluster, lender, resamples=resamples, seed=seed)
    if strayed.std() <= 1e-12:  # all agree
        strayed = float(unseen(count)) * np.array([-1.0, 1.0])
    return estimated(value, value + strayed)


def _change(frame: pd.DataFrame, key: tuple[Any, ...], fine: pd.DataFrame, **options: Any) -> Estimate:
    """Return the mean change of share against the original, on the images that have both."""
    same = (frame[_OF] == list(key[:-1])).all(axis=1)
    before = frame[same & (frame["condition"] == ORIGINAL) & (frame["status"] == "ok")]
    reference = before.groupby("source_id")["share"].mean()
    paired = fine[fine["source_id"].isin(reference.index)]
    if key[-1] == ORIGINAL or paired.empty:
        return NO_ESTIMATE
    donor = numbered_column(paired, "donor_id")[0]
    change = paired["share"].to_numpy(np.float64) - paired["source_id"].map(reference).to_numpy(np.float64)
    return ratio_of_sums(change, np.ones(len(change)), paired["source_id"].to_numpy(), donor=donor, **options)


def correlations(frame: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return Spearman's correlation of the share on the foreground with the accuracy lost, per method × target.

    ``over`` says what a dot is: ``conditions`` (the share there against the drop there), ``classes`` and ``models``
    (the share on originals against the mean drop) or ``images`` (the share on the original against the loss). ``rho``
    has a 95 % percentile interval over images; fewer than 4 dots, or dots that do not differ, have none.
    """
    rows = []
    usable = frame[(frame["status"] == "ok") & frame["correct"].notna()]
    for (method, target), group in usable.groupby(["method", "target"], sort=False):
        paired = _paired(group)
        for over, keys, column in (
            ("conditions", ["model", "trained_on", "condition"], "share"),
            ("classes", ["model", "trained_on", "label"], "share_original"),
            ("models", ["model", "trained_on"], "share_original"),
            ("images", ["model", "trained_on", "condition", "source_id"], "share_original"),
        ):
            spearman = _spearman(paired, keys, column, resamples=resamples, seed=seed)
            rows.append({"method": method, "target": target, "over": over} | spearman)
    return pd.DataFrame(rows, columns=["method", "target", "over", "n", "photos", "rho", "low", "high"])


def drops_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy lost under each condition on the explained images."""
    usable = frame[(frame["status"] == "ok") & frame["correct"].notna()]
    paired = _paired(usable)
    means = paired.groupby(["model", "trained_on", "condition"])["drop"].mean()
    return means.rename("drop").reset_index()


def _paired(group: pd.DataFrame) -> pd.DataFrame:
    """Return images under changed conditions next to their originals: ``share``, ``share_original``, ``drop``."""
    keys = ["model", "trained_on", "source_id"]
    numbers = group.assign(right=group["correct"].astype(float))
    before = numbers[numbers["condition"] == ORIGINAL].groupby(keys, as_index=False)[["share", "right"]].mean()
    after = numbers[numbers["condition"] != ORIGINAL]
    paired = after.merge(before, on=keys, suffixes=("", "_original"))
    return paired.assign(drop=paired["right_original"] - paired["right"])


def _spearman(paired: pd.DataFrame, keys: list[str], column: str, *, resamples: int, seed: int) -> dict[str, Any]:
    if paired.empty:
        return {"n": 0, "photos": 0, **NO_ESTIMATE.row("rho", "")}
    cell = paired.groupby(keys, sort=True).ngroup().to_numpy()
    photo, photos = codes(paired["source_id"].to_numpy())
    share, drop = paired[column].to_numpy(np.float64), paired["drop"].to_numpy(np.float64)
    count = int(cell.max()) + 1
    estimate = NO_ESTIMATE
    # Sums by image and cell, sparse: most images are in few cells.
    sums = [
        scipy_sparse.csr_array((values, (photo, cell)), shape=(photos, count))
        for values in (np.ones(len(cell)), share, drop)
    ]
    whole = float(_rhos(sums, np.ones((1, photos)))[0])
    if count >= FEWEST and photos > 1 and np.isfinite(whole):
        blocks = np.array_split(drawn_weights(photos, resamples, seed).T, -(-resamples * count // CELLS_AT_ONCE))
        drawn = np.concatenate([_rhos(sums, weights.astype(np.float64)) for weights in blocks])
        estimate = estimated(whole, drawn) if np.isfinite(drawn).any() else NO_ESTIMATE
    return {"n": count, "photos": photos, **estimate.row("rho", "")}


def _rhos(sums: list[Any], weights: Floats) -> Floats:
    """Return Spearman's correlation of the cells' means, for every row of weights of the images.

    Cells that were not drawn are left out, others count once: they are ranked behind all that are there, and then
    weigh nothing.
    """
    total, first, second = (weights @ sums_of for sums_of in sums)
    has_photos = total > 0
    known = has_photos.sum(axis=1, keepdims=True)
    ranks = []
    with np.errstate(invalid="ignore", divide="ignore"):
        for value in (first, second):
            rank = scipy_stats.rankdata(np.where(has_photos, (value / total).round(12), np.inf), axis=1)
            mean = np.where(has_photos, rank, 0).sum(axis=1, keepdims=True) / known
            ranks.append(np.where(has_photos, rank - mean, 0))
        first_ranks, two = ranks
        scale = np.sqrt((first_ranks**2).sum(axis=1) * (two**2).sum(axis=1))
        rhos = (first_ranks * two).sum(axis=1) / scale
    return np.where((scale > 0) & (known[:, 0] >= FEWEST - 1), rhos, np.nan)


def sanity(frame: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return how alike maps are to those of the same network with shuffled weights, per method × target × model.

    ``rank_correlation`` with its 95 % interval over images, ``structural_similarity``, ``share_randomised`` next to
    ``share``; ``changed``: whether the mean correlation is below 0.5; ``zero``: maps of the shuffled network that are
    zero everywhere, which correlate with nothing.
    """
    fine = frame[(frame["status"] == "ok") & frame["rank_correlation"].notna()]
    rows = []
    for key, group in fine.groupby(_OF, sort=False):
        alike, sources = group["rank_correlation"].to_numpy(np.float64), group["source_id"].to_numpy()
        mean = ratio_of_sums(alike, np.ones(len(alike)), sources, resamples=resamples, seed=seed)
        rows.append(
            dict(zip(_OF, key, strict=True))
            | {"n": len(group), **mean.row("rank_correlation", "")}
            | {name: float(group[name].mean()) for name in ("structural_similarity", "share", "share_randomised")}
            | {"changed": mean.value < ALIKE, "zero": int((alike == 0).sum())}
        )
    return pd.DataFrame(rows)


def cascades(frame: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return how alike maps stay as weights are shuffled from the last layer down, a row per ``stage`` as well.

    Per method × target × model: ``rank_correlation`` with its 95 % interval over images, ``structural_similarity``,
    ``zero`` (maps of zeros) and ``n`` maps. The last stage has all weights shuffled. Empty if none was asked for.
    """
    columns = [*_OF, "stage", "n", "rank_correlation", "low", "high", "structural_similarity", "zero"]
    rows = []
    if "cascade" in frame:
        fine = frame[(frame["status"] == "ok") & frame["cascade"].notna()]
        for key, group in fine.groupby(_OF, sort=False):
            alike, similar = (np.stack([np.asarray(values, np.float64) for values in group[name]]) for name in (
                "cascade", "cascade_similarity"
            ))  # fmt: skip
            sources = group["source_id"].to_numpy()
            for stage in range(alike.shape[1]):
                ratio = ratio_of_sums(alike[:, stage], np.ones(len(group)), sources, resamples=resamples, seed=seed)
                rows.append(
                    dict(zip(_OF, key, strict=True))
                    | {"stage": stage, "n": len(group), "structural_similarity": float(similar[:, stage].mean())}
                    | {"zero": int((alike[:, stage] == 0).sum())}
                    | ratio.row("rank_correlation", "")
                )
    return pd.DataFrame(rows, columns=columns)
