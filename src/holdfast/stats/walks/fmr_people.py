"""FMR corrected for what the oracle accepted and people do not confirm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.votes import Votes
from holdfast.stats.core.bootstrap import (
    NO_ESTIMATE,
    RESAMPLES,
    Estimate,
    Floats,
    codes,
    estimated,
    ratio,
    resampled_sums,
)
from holdfast.stats.walks.fmr import NO_IMAGES, NONE_RIGHT, NONE_VALIDATED, fmr
from holdfast.stats.walks.walk_rows import COLUMNS as WALK_COLUMNS
from holdfast.stats.walks.walk_rows import PERTURBED, SETTING, paired

COLUMNS = [*WALK_COLUMNS, "image_sha256"]  # What ``judged_walks`` reads

MEASURES = ("false_accepts", "validation_rate", "perturbed_accuracy", "fmr")
NONE_CONFIRMED = "people confirm none of the accepted images"
_UNJUDGED = {
    1: "people judged no accepted image that the model gets right",
    0: "people judged no accepted image that the model gets wrong",
}
_ORIGINAL, _N, _VALID, _WEIGHT, _CONFIRMED = 0, 1, slice(2, 4), slice(4, 6), slice(6, 8)


def judged_walks(rows: pa.Table, votes: Votes) -> pd.DataFrame:
    """Return ``walk_rows.paired`` with ``confirmed``: whether people confirm the image the oracle accepted.

    An image is known by its pixels, so the votes may be on the run's own images or on a published copy. Missing if
    the oracle rejected, no one judged, or too few did. Ratings, which say nothing about what an image shows, are a
    UserError.
    """
    if all(question.is_rating for question in votes.questions):
        raise UserError(
            f"the votes of {votes.campaign!r} rate images and do not say what they show; FMR is corrected by votes of "
            "holdfast people review RUN --kind oracle"
        )
    walks = paired(rows.select(WALK_COLUMNS))
    key = ["model", "sample_id", "parameters"]
    ends = rows.select([*key, "condition", "status", "image_sha256"]).to_pandas()
    ends = ends[(ends["condition"] == PERTURBED) & (ends["status"] == "ok")]
    for column in key:
        ends[column] = ends[column].astype(str)
    walks = walks.merge(ends[[*key, "image_sha256"]].drop_duplicates(key), on=key, how="left")
    decided = {
        (tally.pixels_sha256, tally.asked): float(tally.decision == "accepted")
        for tally in votes.tallies()
        if tally.decision != "undecided" and tally.pixels_sha256
    }
    walks["confirmed"] = [
        decided.get((image, label), np.nan) if valid else np.nan
        for image, label, valid in zip(walks["image_sha256"], walks["label"], walks["validated"], strict=True)
    ]
    return walks


def fmr_corrected(walks: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return VR, PA and FMR with accepted images that people do not confirm counted as not validated.

    A row per setting × model × class ('' pooled) × measure (``false_accepts`` and the three): ``by_oracle``, the value
    with all accepted images; ``estimate`` with its interval; ``n`` images, ``validated`` by the oracle, ``judged`` of
    these by people, ``confirmed`` of those. The formulas are in docs/statistics/fmr.md. If people judged a
    sample, each judged image is weighted by how many accepted images of its class there are to one judged one.
    Intervals resample source images; if all judged images agree, the share that people confirm is drawn from its
    Jeffreys distribution.
    """
    if not walks["confirmed"].notna().any():
        raise UserError(
            "these votes are about none of the run's accepted images; holdfast people review RUN asks for some"
        )
    setting = [name for name in SETTING if name in walks]
    table: list[dict[str, Any]] = []
    for key, group in walks.groupby([*setting, "model"], observed=True, sort=False):
        names = dict(zip([*setting, "model"], key, strict=True))
        plainly = fmr(group).set_index(["label", "measure"])["estimate"]
        parts = [("", group), *group.groupby("label", observed=True)]
        for label, part in parts:
            for row in _measures(part, resamples, seed):
                plain = plainly.get((label, row["measure"]), np.nan)
                table.append({**names, "label": label, "by_oracle": plain, **row})
    frame = pd.DataFrame(table)
    first = [*setting, "model", "label", "measure", "by_oracle", "estimate", "low", "high"]
    return frame[[*first, "n", "validated", "judged", "confirmed", "reason"]]


def _measures(rows: pd.DataFrame, resamples: int, seed: int) -> list[dict[str, Any]]:
    sums, clusters = _sums(rows), rows["source_id"].astype(str)
    total = sums.sum(axis=0, keepdims=True)
    judged = rows["confirmed"].notna()
    counts = {"n": len(rows), "validated": int(rows["validated"].sum()), "judged": int(judged.sum())}
    counts["confirmed"] = int(rows["confirmed"].sum())
    reason = _why_not(total[0])
    shares = _shares(total)
    point = {name: float(values[0]) for name, values in _values(total, shares).items()}
    if not reason and point["fmr"] != point["fmr"]:
        reason = NONE_CONFIRMED
    drawn: dict[str, Floats] = {}
    if not reason:
        resampled = resampled_sums(sums, clusters, resamples=resamples, seed=seed)
        again = np.where(np.isnan(_shares(resampled)), shares, _shares(resampled))
        again = _with_spread(again, rows, shares[0], seed)
        drawn = _values(resampled, again)
    table = []
    for measure in MEASURES:
        value, low, high = NO_ESTIMATE if reason else estimated(point[measure], drawn[measure])
        estimate = Estimate(value, min(low, value), max(high, value))
        table.append({"measure": measure, **estimate.row("estimate", ""), **counts, "reason": reason})
    return table


def _sums(rows: pd.DataFrame) -> Floats:
    """Return per image: right original, 1; by right and wrong: accepted, weight if judged, weight if confirmed."""
    valid = rows["validated"].to_numpy(bool)
    right = rows["right_perturbed"].astype("boolean").fillna(False).to_numpy(bool)
    confirmed = rows["confirmed"].to_numpy(float)
    judged = valid & ~np.isnan(confirmed)
    number, count = codes(rows["label"].astype(str).to_numpy())
    accepted, seen = (np.bincount(number, values, count) for values in (valid, judged))
    weight = judged * (accepted / np.maximum(seen, 1))[number]  # the accepted images of its class for a judged one
    kinds = np.stack([right, ~right], axis=1)
    weighted = kinds * weight[:, None]
    original, confirmed = rows["right_original"].to_numpy(float), np.nan_to_num(confirmed)[:, None]
    return np.column_stack([original, np.ones(len(rows)), kinds & valid[:, None], weighted, weighted * confirmed])


def _shares(sums: Floats) -> Floats:
    """Return the share of judged images that people confirm, (…, 2): of those the model gets right, and wrong."""
    return ratio(sums[:, _CONFIRMED], sums[:, _WEIGHT])


def _values(sums: Floats, shares: Floats) -> dict[str, Floats]:
    accepted = sums[:, _VALID]
    kept = np.where(accepted > 0, accepted * shares, 0.0)  # nothing accepted: nothing to confirm, judged or not
    both, n = kept.sum(axis=1), sums[:, _N]
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = kept[:, 0] / both
        return {
            "false_accepts": 1 - both / accepted.sum(axis=1),
            "validation_rate": both / n,
            "perturbed_accuracy": accuracy,
            "fmr": accuracy / (sums[:, _ORIGINAL] / n),
        }


def _with_spread(shares: Floats, rows: pd.DataFrame, point: Floats, seed: int) -> Floats:
    """Return draws of q if all judged images of a kind agree, which resampling cannot vary."""
    rng = np.random.default_rng([seed, 1])
    shares = shares.copy()
    for column, right in enumerate((1, 0)):
        if point[column] in (0.0, 1.0):
            own = rows["confirmed"].notna() & (rows["right_perturbed"].astype("boolean").fillna(False) == right)
            photos = rows.loc[own, "source_id"].nunique()
            confirmed = photos * float(point[column])
            shares[:, column] = rng.beta(confirmed + 0.5, photos - confirmed + 0.5, len(shares))
    return shares


def _why_not(total: Floats) -> str:
    if not total[_N]:
        return NO_IMAGES
    if not total[_VALID].any():
        return NONE_VALIDATED
    if not total[_ORIGINAL]:
        return NONE_RIGHT
    for right, accepted, weight in zip((1, 0), total[_VALID], total[_WEIGHT], strict=True):
        if accepted and not weight:
            return _UNJUDGED[right]
    return ""
