"""What a condition does to a detector: recall, wrong classes, false alarms, predictions and average precision.

Each is paired: the same objects, or the same images, under the condition and in the original. Images are independent,
objects of one image are not, and neither are images with one donor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.lazy import pd
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import numbered_column
from holdfast.stats.core.bootstrap import (
    CHANGE,
    NO_ESTIMATE,
    RESAMPLES,
    SHARE,
    Codes,
    Estimate,
    Floats,
    codes,
    estimated,
    left_out,
    resampled_sums,
    shared_donors,
)
from holdfast.stats.core.cells import design_effects, wilson
from holdfast.stats.core.counted import mean_change, mean_count
from holdfast.stats.effects.drops import Effect, Pairs, effect_of
from holdfast.stats.objects.answers import DetectorAnswers
from holdfast.stats.objects.matching import SIZES, MatchTable
from holdfast.stats.objects.precision import (
    MEASURES,
    average_precision,
    change_interval,
    precision_influence,
    resampled_precision,
)

KEYS = ["model", "condition"]
SCORE_BINS = 10


def object_effect(
    first: pd.DataFrame, second: pd.DataFrame, column: str, *, resamples: int = RESAMPLES, seed: int = 0
) -> Effect:
    """Return the difference of a share on the objects that both frames have, first − second.

    Every object weighs the same. Resampled are images, and donors if there are some.
    """
    both = pd.concat([first, second], ignore_index=True)
    name = both["sample_id"].astype(str) + "\0" + both["object_id"].astype(str)
    thing, photo = (codes(values.to_numpy(object))[0] for values in (name, both["source_id"]))
    cluster = np.zeros(int(thing.max(initial=-1)) + 1, np.intp)
    cluster[thing] = photo
    cells = Pairs(
        np.repeat([0, 1], [len(first), len(second)]), thing, np.zeros(len(both), np.intp),
        numbered_column(both, "label")[0], numbered_column(both, "donor_id")[0], np.ones(len(both)),
        both[column].to_numpy(np.float64),
    )  # fmt: skip
    return effect_of(cells, average="micro", resamples=resamples, seed=seed, cluster=cluster)


def objects_under_conditions(
    answers: DetectorAnswers, *, resamples: int = RESAMPLES, seed: int = 0, precision: bool = True
) -> pd.DataFrame:
    """Return a row per model × condition: every number with ``…_low`` and ``…_high`` (95 %).

    ``recall``: objects found at the frozen threshold; ``wrong_class``: objects in whose place another class was seen;
    ``still_seen``: objects taken out of the image that were found all the same; ``false_alarms`` and ``predictions``
    per image; ``ap``, ``ap50``, ``ap75``, and by size; ``ece`` of scores. Against the original, on what both have:
    ``recall_drop``, ``lost``, ``gained``, ``…_change``, ``predictions_ratio``; ``ap_hides``: the interval of AP's
    change holds zero, that of recall's does not. ``precision``: whether average precision and calibration are wanted,
    which take longest.
    """
    options: dict[str, Any] = {"resamples": resamples, "seed": seed}
    rows = []
    for model in answers.models:
        own = answers.counted[answers.counted["model"] == model]
        pictures = answers.pictures[answers.pictures["model"] == model]
        before, before_pictures = (frame[frame["condition"] == ORIGINAL] for frame in (own, pictures))
        reference = Precision.of(answers, model, ORIGINAL, seed) if precision else None
        for condition in [name for name in answers.conditions if name in set(pictures["condition"])]:
            after, shown = (frame[frame["condition"] == condition] for frame in (own, pictures))
            row: dict[str, object] = {"model": model, "condition": condition}
            row |= {"pictures": len(shown), "photos": shown["source_id"].nunique(), "objects": len(after)}
            row |= _share(after, "found", "recall") | _share(after, "wrong_class", "wrong_class")
            row |= _still_seen(answers, model, condition) | _fit(after)
            for column, name in (("false_alarms", "false_alarms"), ("n_predictions", "predictions")):
                row |= per_image(shown, column, name)
                row |= change_per_image(before_pictures, shown, column, name, condition)
            row |= _drops(before, after, condition, **options)
            if reference is not None:
                table = reference if condition == ORIGINAL else Precision.of(answers, model, condition, seed)
                row |= table.numbers() | table.changes(reference, condition) | table.calibration(shown, **options)
            rows.append(row)
    frame = pd.DataFrame(rows)
    if precision and len(frame):
        holds_zero = {
            name: (frame[f"{name}_low"] <= 0) & (frame[f"{name}_high"] >= 0) for name in ("ap_change", "recall_drop")
        }
        frame["ap_hides"] = holds_zero["ap_change"] & ~holds_zero["recall_drop"] & frame["recall_drop"].notna()
    return frame


def _share(objects: pd.DataFrame, column: str, name: str) -> dict[str, float]:
    """Return a share of objects, with Wilson's interval for as many independent objects as these are worth."""
    n = len(objects)
    if not n:
        return NO_ESTIMATE.row(name)
    hits = objects[column].to_numpy(np.float64)
    photo, donor = _owners(objects)
    effect = design_effects(hits, np.ones(n), np.zeros(n, np.intp), 1, source=photo, donor=donor)[0]
    return Estimate(float(hits.mean()), *map(float, wilson(hits.sum() / effect, n / effect))).row(name)


def regions_found(frame: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return the recall of segmented objects per model × trained_on × condition, as for boxes.

    An object is what the truth has of a class in an image; it is found if the answer overlaps it by half or more
    (IoU). Columns: ``objects``; ``recall``, and ``recall_drop`` against the same objects' originals (of a model that
    was trained on originals, or not here), with ``…_low`` and ``…_high``; ``lost``, ``gained``.

    ``frame``: from ``stats.effects.segments.measured``.
    """
    shown = frame[(frame["class"] != "background") & (frame["truth"] > 0)]
    shown = shown.assign(found=2 * shown["intersection"] >= shown["union"], object_id=shown["class"])
    rows = []
    for (model, trained_on, condition), own in shown.groupby(["model", "trained_on", "condition"], sort=False):
        base = shown["trained_on"] == ("" if trained_on == "" else ORIGINAL)
        before = shown[(shown["model"] == model) & (shown["condition"] == ORIGINAL) & base]
        row: dict[str, object] = {"model": model, "trained_on": trained_on, "condition": condition, "objects": len(own)}
        row |= _share(own, "found", "recall")
        row |= _drops(before, own, str(condition), columns=("found",), resamples=resamples, seed=seed)
        rows.append(row)
    return pd.DataFrame(rows)


def _fit(objects: pd.DataFrame) -> dict[str, float]:
    """Return how well found objects were outlined, on average: by box, and by mask if there are masks."""
    hits = objects[objects["found"].astype(bool)]
    return {
        name: float(hits[name].astype(float).mean()) if name in hits and len(hits) else np.nan
        for name in ("iou", "mask_iou")
    }


def _still_seen(answers: DetectorAnswers, model: str, condition: str) -> dict[str, float]:
    objects = answers.objects
    gone = objects[(objects["model"] == model) & (objects["condition"] == condition) & (objects["status"] == "removed")]
    return {"removed": len(gone), **_share(gone[~gone["crowd"]], "found", "still_seen")}


def _drops(
    before: pd.DataFrame,
    after: pd.DataFrame,
    condition: str,
    *,
    columns: tuple[str, ...] = ("found", "wrong_class"),
    resamples: int,
    seed: int,
) -> dict[str, float]:
    """Return the recall that is lost and the wrong classes that are added, on the objects that both have."""
    numbers: dict[str, float] = {"lost": 0, "gained": 0, "recall_drop_p": np.nan, "compared": 0}
    names = {"found": ("recall_drop", 1), "wrong_class": ("wrong_class_change", -1)}
    for column in columns:
        name, sign = names[column]
        numbers |= NO_ESTIMATE.row(name)
        if condition == ORIGINAL or before.empty or after.empty:
            continue
        effect = object_effect(before, after, column, resamples=resamples, seed=seed)
        drop = effect.estimate
        numbers |= (drop if sign > 0 else Estimate(-drop.value, -drop.high, -drop.low)).row(name)
        if column == "found":
            shares = [
                frame["found"].astype(float).groupby([frame["sample_id"], frame["object_id"]]).mean()
                for frame in (before, after)
            ]
            change = (shares[0] - shares[1]).dropna()  # of the objects that both have
            numbers |= {"lost": int((change > 0).sum()), "gained": int((change < 0).sum())}
            numbers |= {"recall_drop_p": effect.p, "compared": len(change)}
    return numbers


def per_image(pictures: pd.DataFrame, column: str, name: str) -> dict[str, float]:
    """Return a mean per image with its interval."""
    return mean_count(pictures[column], *_owners(pictures)).row(name)


def change_per_image(
    before: pd.DataFrame, after: pd.DataFrame, column: str, name: str, condition: str
) -> dict[str, float]:
    """Return after − before per image on the samples that both have, and after over before for predictions."""
    first = before.groupby("sample_id")[column].mean()
    shared = after[after["sample_id"].isin(first.index)]
    if condition == ORIGINAL or shared.empty:
        return NO_ESTIMATE.row(f"{name}_change") | {f"{name}_ratio": np.nan}
    earlier, later = shared["sample_id"].map(first).to_numpy(np.float64), shared[column].to_numpy(np.float64)
    change = mean_change(later - earlier, *_owners(shared)).row(f"{name}_change")
    return change | {f"{name}_ratio": later.mean() / earlier.mean() if earlier.any() else np.nan}


def _owners(frame: pd.DataFrame) -> tuple[Codes, Codes]:
    """Return the image of each row, and its donor (−1: none)."""
    return codes(frame["source_id"].to_numpy(object))[0], numbered_column(frame, "donor_id")[0]


@dataclass(frozen=True)
class Precision:
    """Average precision of a model under a condition, whole and in resamples of images.

    owner, donor: (images,) codes of the source image and of the donor, −1 if there is none; ``influence``: what each
    image adds to the deviation of ``MEASURES``.
    """

    table: MatchTable
    owner: Codes
    donor: Codes
    values: dict[str, float]
    drawn: Floats
    influence: Floats
    sources: int
    seed: int

    @classmethod
    def of(cls, answers: DetectorAnswers, model: str, condition: str, seed: int) -> Precision:
        """Return it of a model under a condition."""
        table = answers.matched(model, condition, sizes=tuple(SIZES))
        return cls.from_table(table, *answers.owners(model, condition), len(answers.sources), seed)

    @classmethod
    def from_table(cls, table: MatchTable, owner: Codes, donor: Codes, sources: int, seed: int) -> Precision:
        """Return it of a table whose images are places in ``owner``; ``sources``: the number of images of the run."""
        numbers = average_precision(table).numbers()
        drawn = resampled_precision(table, sources, owner=owner, seed=seed)
        return cls(table, owner, donor, numbers, drawn, precision_influence(table, len(owner)), sources, seed)

    def numbers(self) -> dict[str, float]:
        """Return average precision and its intervals."""
        named: dict[str, float] = dict(self.values)
        photos = len(np.unique(self.owner))
        for place, name in enumerate(MEASURES):
            shared = shared_donors(self.influence[:, place], self.owner, self.donor)
            named |= change_interval(self.values[name], self.drawn[:, place], photos, shared).within(SHARE).row(name)
        return named

    def changes(self, reference: Precision, condition: str = "") -> dict[str, float]:
        """Return how far it is from the reference on the images that both have; nothing of originals by themselves."""
        named: dict[str, float] = {}
        both = self._beside(reference)
        if condition == ORIGINAL or both is None:
            for name in MEASURES:
                named |= NO_ESTIMATE.row(f"{name}_change")
            return named
        first, second = both
        photos = np.unique(second.owner)
        most = min(len(first.drawn), len(second.drawn))
        influence = np.concatenate([-first.influence, second.influence])
        owner, donor = np.append(first.owner, second.owner), np.append(first.donor, second.donor)
        for place, name in enumerate(MEASURES):
            change = second.values[name] - first.values[name]
            drawn = second.drawn[:most, place] - first.drawn[:most, place]
            ends = change_interval(change, drawn, len(photos), shared_donors(influence[:, place], owner, donor))
            named |= ends.within(CHANGE).row(f"{name}_change")
        return named

    def _beside(self, reference: Precision) -> tuple[Precision, Precision] | None:
        """Return the reference and this on the images that both have; None if there are none."""
        photos = np.intersect1d(self.owner, reference.owner)
        return (reference._among(photos), self._among(photos)) if len(photos) else None

    def _among(self, photos: Codes) -> Precision:
        kept = np.isin(self.owner, photos)
        if kept.all():
            return self
        place = np.flatnonzero(kept)
        table = self.table.among(place)
        return Precision.from_table(table, self.owner[kept], self.donor[kept], self.sources, self.seed)

    def calibration(self, pictures: pd.DataFrame, *, resamples: int, seed: int) -> dict[str, float]:
        """Return ECE over the predictions at the threshold, and their number."""
        sums = self._bins(float(pictures["threshold"].max()))
        if not sums.any():
            return NO_ESTIMATE.row("ece") | {"scored": 0}
        kept = sums.any(axis=1)  # images with predictions
        sums, owner, donor = sums[kept], self.owner[kept], self.donor[kept]
        value = float(_calibration_error(sums.sum(axis=0)[None])[0])
        drawn = _calibration_error(resampled_sums(sums, owner, resamples=resamples, seed=seed))
        shared = shared_donors(left_out(_calibration_error, sums), owner, donor)
        # squares of noise add to every resample once more than to the truth: move by as much
        moved = (drawn - float(np.nanmean(drawn))) * shared.factor
        _, low, high = estimated(value, value + moved)
        error = Estimate(value, min(low, value), max(high, value)).within(SHARE)
        return error.row("ece") | {"scored": int(sums[:, :SCORE_BINS].sum())}

    def _bins(self, threshold: float) -> Floats:
        """Return per image and bin of score: predictions, right ones, and the sum of their scores; side by side."""
        right, chosen = _right(self.table, threshold)
        score = self.table.score[chosen]
        cell = self.table.image[chosen] * SCORE_BINS + np.minimum((score * SCORE_BINS).astype(np.intp), SCORE_BINS - 1)
        size = len(self.owner) * SCORE_BINS
        parts = [np.bincount(cell, values, size) for values in (np.ones(len(score)), right[chosen], score)]
        return np.concatenate([part.reshape(-1, SCORE_BINS) for part in parts], axis=1)


def precision_between(
    old: DetectorAnswers, new: DetectorAnswers, old_model: str, new_model: str, condition: str, *, seed: int = 0
) -> dict[str, float] | None:
    """Return average precision of two models on the images that both answered; None if there are no such images.

    Keys: ``old``, ``new``, ``change``, ``low`` and ``high``.
    """
    sides = []
    for answers, model in ((old, old_model), (new, new_model)):
        table = answers.matched(model, condition, sizes=tuple(SIZES))
        owner, donor = answers.owners(model, condition)
        sides.append((table, np.asarray(answers.sources, object)[owner], donor))
    names = np.unique(np.concatenate([owner for _, owner, _ in sides]).astype(str))
    first, second = (
        Precision.from_table(table, np.searchsorted(names, owner.astype(str)), donor, len(names), seed)
        for table, owner, donor in sides
    )
    both = second._beside(first)
    if both is None:
        return None
    row = second.changes(first)
    ends = {end: row[f"ap_change_{end}"] for end in ("low", "high")}
    return {"old": both[0].values["ap"], "new": both[1].values["ap"], "change": row["ap_change"], **ends}


def _right(table: MatchTable, threshold: float) -> tuple[Floats, Codes]:
    """Return which predictions met an object at an overlap of one half, and the places of those that count."""
    state = np.zeros(len(table.image), np.int8)
    state[table.near] = table.met[:, 0, 0]
    # thresholds are stored in 32 bits, scores too
    return (state == 1).astype(np.float64), np.flatnonzero((state != 2) & (table.score >= threshold - 1e-7))


def _calibration_error(sums: Floats) -> Floats:
    n, right, score = (sums[:, place : place + SCORE_BINS] for place in range(0, 3 * SCORE_BINS, SCORE_BINS))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(right - score).sum(axis=1) / n.sum(axis=1))


def score_reliability(answers: DetectorAnswers, model: str, condition: str) -> pd.DataFrame:
    """Return how often predictions are right by their score, in ten bins that are not empty.

    Columns: mean ``score``, the share that is ``right`` with ``low`` and ``high``, ``n``. Predictions at the frozen
    threshold; on crowds they count as neither right nor wrong.
    """
    table = answers.matched(model, condition)
    pictures = answers.pictures.iloc[answers.span(model, condition)]
    right, chosen = _right(table, float(pictures["threshold"].max()) if len(pictures) else 0.0)
    place = np.minimum((table.score[chosen] * SCORE_BINS).astype(np.intp), SCORE_BINS - 1)
    n, hits, score = (
        np.bincount(place, values, SCORE_BINS) for values in (np.ones(len(chosen)), right[chosen], table.score[chosen])
    )
    owner, donor = (own[table.image[chosen]] for own in answers.owners(model, condition))
    effect = design_effects(right[chosen], np.ones(len(chosen)), place, SCORE_BINS, source=codes(owner)[0], donor=donor)
    low, high = wilson(hits / effect, n / effect)
    with np.errstate(invalid="ignore"):
        frame = pd.DataFrame({"score": score / n, "right": hits / n, "low": low, "high": high, "n": n.astype(int)})
    return frame[frame["n"] > 0].reset_index(drop=True)
