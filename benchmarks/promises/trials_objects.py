"""Detectors with known recall and average precision: do the intervals of their changes cover?"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from holdfast.stats.objects.answers import DetectorAnswers
from holdfast.stats.objects.effects import Precision, change_per_image, object_effect, per_image
from holdfast.stats.objects.gate import ALARMS, RECALL, object_gate
from holdfast.stats.objects.matching import MatchTable, PredictedBoxes, TrueBoxes, match
from holdfast.stats.objects.precision import average_precision
from promises.promise import Counted, tally

LENT_OUT = -1
"""As many donors as images: each lends its background to others."""


def recall_drop(
    rng: np.random.Generator,
    draws: int,
    *,
    photos: int,
    before: float,
    after: float,
    alike: float = 0.4,
    donors: int = 0,
    lent: float = 0.3,
) -> Counted:
    """The recall that is lost: each object has a luck, and is found where it is below the chance.

    ``alike``: share of objects that have their image's luck; ``lent``: share whose luck under the condition is the
    donor's. All lucks are uniform, so that the chances are the truth.
    """
    rows = []
    for _ in range(draws):
        photo = np.repeat(np.arange(photos), rng.integers(1, 6, photos))
        luck = np.where(rng.random(len(photo)) < alike, rng.random(photos)[photo], rng.random(len(photo)))
        later = np.where(rng.random(len(photo)) < 0.5, luck, rng.random(len(photo)))
        donor = rng.integers(0, donors, photos)[photo] if donors else np.full(len(photo), -1)
        if donors:
            later = np.where(rng.random(len(photo)) < lent, rng.random(donors)[donor], later)
        names = {"sample_id": photo.astype(str), "source_id": photo.astype(str), "label": "a"}
        frame = pd.DataFrame(names | {"object_id": np.arange(len(photo)).astype(str)})
        first = frame.assign(found=luck < before, donor_id=None)
        second = frame.assign(found=later < after, donor_id=donor.astype(str) if donors else None)
        effect = object_effect(first, second, "found", resamples=500, seed=int(rng.integers(1 << 30)))
        rows.append({"covers": effect.low <= before - after <= effect.high})
    return tally(rows)


def counted(
    rng: np.random.Generator, draws: int, *, images: int, mean: float, donors: int = 0, alike: float = 0.0
) -> Counted:
    """False alarms per image in the original and under a condition; backgrounds differ in how many they raise.

    ``donors``: backgrounds that images share under the condition, ``LENT_OUT``: the images lend theirs to each other;
    ``alike``: the variance of a background's rate over its squared mean.
    """
    rows = []
    names = np.arange(images).astype(str)
    for _ in range(draws):
        own = rng.gamma(1 / alike, alike, images) if alike else np.ones(images)
        frame = pd.DataFrame({"source_id": names, "sample_id": names, "donor_id": None})
        before = frame.assign(false_alarms=rng.poisson(mean * own))
        donor = rng.integers(0, donors if donors > 0 else images, images) if donors else np.arange(images)
        lent = rng.gamma(1 / alike, alike, images)[donor] if alike else np.ones(images)
        after = frame.assign(false_alarms=rng.poisson(mean * lent), donor_id=donor.astype(str) if donors else None)
        level = per_image(after, "false_alarms", "value")
        change = change_per_image(before, after, "false_alarms", "value", "c")
        rows.append(
            {
                "covers": level["value_low"] <= mean <= level["value_high"],
                "change_covers": change["value_change_low"] <= 0 <= change["value_change_high"],
            }
        )
    return tally(rows)


def gate_bounds(
    rng: np.random.Generator, draws: int, *, photos: int, before: float, loss: float, alarms: float, more: float,
    donors: int = 0,
) -> Counted:  # fmt: skip
    """A detector that finds ``loss`` less of the objects and raises ``more`` false alarms per image: the gate's bounds.

    ``donors``: backgrounds that images share; each detector has its own trouble with some of them.
    """
    rows = []
    for _ in range(draws):
        image = np.repeat(np.arange(photos), rng.integers(1, 5, photos))
        donor = rng.integers(0, donors, photos) if donors else np.full(photos, -1)
        photo, thing = np.sqrt(0.3) * rng.standard_normal(photos), np.sqrt(0.2) * rng.standard_normal(len(image))
        own = rng.gamma(2, 0.5, photos)
        old, new = (
            _detector(rng, image, donor, (photo[image] + thing, own), recall, mean)
            for recall, mean in ((before, alarms), (before - loss, alarms + more))
        )
        table = object_gate(old, new).conditions.set_index("measure")
        row = {}
        for measure, truth in ((RECALL, -loss), (ALARMS, more)):
            low, high = table.loc[measure, ["low", "high"]].astype(float)
            row |= {f"{measure} low": low <= truth, f"{measure} high": truth <= high}
        row["inside"] = bool(-1 <= table.loc[RECALL, "low"] <= table.loc[RECALL, "high"] <= 1)
        rows.append(row)
    return tally(rows)


def _detector(
    rng: np.random.Generator, image: np.ndarray, donor: np.ndarray, shared: tuple[np.ndarray, np.ndarray],
    recall: float, alarms: float,
) -> DetectorAnswers:  # fmt: skip
    """Return what a detector answered to images; ``shared``: the luck of the objects and the rates of the images."""
    luck, rate = shared
    lent = int(donor.max()) + 1
    part = np.sqrt(0.2 if lent else 0.0)
    hard = part * rng.standard_normal(lent)[donor[image]] if lent else 0.0
    found = norm.cdf(luck + hard + np.sqrt(0.5 - part**2) * rng.standard_normal(len(image))) < recall
    busy = rate * rng.gamma(4, 0.25, lent)[donor] if lent else rate
    names = np.arange(len(donor)).astype(str)
    lenders = donor.astype(str) if lent else np.full(len(donor), None, object)
    frame = pd.DataFrame({"model": "m", "condition": "c", "sample_id": names, "source_id": names, "donor_id": lenders})
    objects = frame.iloc[image].assign(
        object_id=np.arange(len(image)).astype(str), found=found, status="ok", crowd=False, asked=True, target=True
    )
    none = np.zeros(0, np.intp)
    return DetectorAnswers(
        frame.assign(false_alarms=rng.poisson(alarms * busy)), objects.reset_index(drop=True),
        frame.iloc[:0].assign(status=""), none, none, np.zeros((0, 4)), np.zeros(0), ["a"],
    )  # fmt: skip


def precision_change(
    rng: np.random.Generator, draws: int, *, photos: int, recall: float, alarms: float, donors: int = 0
) -> Counted:
    """AP in the original and under a condition in which other objects are found; the truth is that of many images.

    ``donors``: backgrounds that images share under the condition, ``LENT_OUT``: the images lend theirs to each other.
    """
    truth = [_truth(0.9, 0.5), _truth(recall, alarms)]
    none = np.full(photos, -1)
    rows = []
    for _ in range(draws):
        donor = rng.integers(0, donors if donors > 0 else photos, photos) if donors else none
        tables = _scenes(rng, photos, (0.9, 0.5, none), (recall, alarms, donor))
        seed = int(rng.integers(1 << 30))
        first, second = (
            Precision.from_table(table, np.arange(photos), lender, photos, seed)
            for table, lender in zip(tables, (none, donor), strict=True)
        )
        row = second.numbers() | second.changes(first, "c")
        rows.append(
            {
                "covers": row["ap_low"] <= truth[1] <= row["ap_high"],
                "change_covers": row["ap_change_low"] <= truth[1] - truth[0] <= row["ap_change_high"],
            }
        )
    return tally(rows)


@cache
def _truth(recall: float, alarms: float) -> float:
    none = np.full(20_000, -1)
    samples = [_scenes(np.random.default_rng(seed), 20_000, (recall, alarms, none))[0] for seed in range(8)]
    return float(np.mean([average_precision(table, ("all",)).mean() for table in samples]))


def _scenes(rng: np.random.Generator, photos: int, *conditions: tuple[float, float, np.ndarray]) -> list[MatchTable]:
    """Return the matches of the same images under each condition: one to four objects of three classes each.

    A condition is the chance of an object, the false alarms per image, and each image's donor: three tenths
    of the latent variance are the background's, and donors differ in how many false alarms they raise.
    """
    image = np.repeat(np.arange(photos), rng.integers(1, 5, photos))
    label = rng.integers(0, 3, len(image))
    corner, side = rng.uniform(0, 300, (len(image), 2)), rng.uniform(30, 120, (len(image), 2))
    corners = np.concatenate([corner, corner + side], axis=1)
    truth = TrueBoxes(image, label, corners, side.prod(axis=1), np.zeros(len(image), bool))
    photo, thing = rng.standard_normal(photos)[image], rng.standard_normal(len(image))
    tables = []
    for recall, alarms, donor in conditions:
        behind, rate = rng.standard_normal(photos), np.full(photos, alarms)
        if donor.max() >= 0:
            behind = rng.standard_normal(int(donor.max()) + 1)[donor]
            rate = alarms * rng.gamma(2, 0.5, int(donor.max()) + 1)[donor]
        luck = np.sqrt(0.2) * photo + np.sqrt(0.3) * behind[image] + np.sqrt(0.5) * thing
        hit = np.flatnonzero(norm.cdf(luck) < recall)
        moved = corners[hit] + rng.normal(0, 0.06, (len(hit), 4)) * np.tile(side[hit], 2)
        where = np.repeat(np.arange(photos), rng.poisson(rate))
        other = rng.uniform(400, 600, (len(where), 2))
        said: dict[str, Any] = {
            "image": np.append(image[hit], where),
            "label": np.append(label[hit], rng.integers(0, 3, len(where))),
            "corners": np.concatenate([moved, np.concatenate([other, other + 30], axis=1)]),
            "score": np.append(rng.beta(5, 2, len(hit)), rng.beta(2, 3, len(where))),
        }
        tables.append(match(truth, PredictedBoxes(**said), classes=3, sizes=("all",)))
    return tables
