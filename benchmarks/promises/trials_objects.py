"""Detectors with known recall and average precision: do the intervals of their changes cover?"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from holdfast.stats.objects.effects import object_effect
from holdfast.stats.objects.matching import MatchTable, PredictedBoxes, TrueBoxes, match
from holdfast.stats.objects.precision import average_precision, change_interval, resampled_precision
from promises.promise import Counted, tally


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

    ``alike``: share of objects that have their photo's luck; ``lent``: share whose luck under the condition is the
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


def precision_change(rng: np.random.Generator, draws: int, *, photos: int, recall: float, alarms: float) -> Counted:
    """AP in the original and under a condition in which other objects are found; the truth is that of many photos."""
    truth = [_truth(0.9, 0.5), _truth(recall, alarms)]
    rows = []
    for _ in range(draws):
        tables = _scenes(rng, photos, (0.9, 0.5), (recall, alarms))
        values = [average_precision(table, ("all",)).mean() for table in tables]
        seed = int(rng.integers(1 << 30))
        first, second = (resampled_precision(table, photos, seed=seed)[:, 0] for table in tables)
        low, high = change_interval(values[1], second, photos)
        change_low, change_high = change_interval(values[1] - values[0], second - first, photos)
        rows.append(
            {"covers": low <= truth[1] <= high, "change_covers": change_low <= truth[1] - truth[0] <= change_high}
        )
    return tally(rows)


@cache
def _truth(recall: float, alarms: float) -> float:
    samples = [_scenes(np.random.default_rng(seed), 20_000, (recall, alarms))[0] for seed in range(8)]
    return float(np.mean([average_precision(table, ("all",)).mean() for table in samples]))


def _scenes(rng: np.random.Generator, photos: int, *conditions: tuple[float, float]) -> list[MatchTable]:
    """Return the matches of the same photos under each condition: one to four objects of three classes each."""
    image = np.repeat(np.arange(photos), rng.integers(1, 5, photos))
    label = rng.integers(0, 3, len(image))
    corner, side = rng.uniform(0, 300, (len(image), 2)), rng.uniform(30, 120, (len(image), 2))
    corners = np.concatenate([corner, corner + side], axis=1)
    truth = TrueBoxes(image, label, corners, side.prod(axis=1), np.zeros(len(image), bool))
    luck = np.where(rng.random(len(image)) < 0.3, rng.random(photos)[image], rng.random(len(image)))
    tables = []
    for recall, alarms in conditions:
        hit = np.flatnonzero(luck < recall)
        moved = corners[hit] + rng.normal(0, 0.06, (len(hit), 4)) * np.tile(side[hit], 2)
        count = rng.poisson(alarms, photos)
        where = np.repeat(np.arange(photos), count)
        other = rng.uniform(400, 600, (len(where), 2))
        said: dict[str, Any] = {
            "image": np.append(image[hit], where),
            "label": np.append(label[hit], rng.integers(0, 3, len(where))),
            "corners": np.concatenate([moved, np.concatenate([other, other + 30], axis=1)]),
            "score": np.append(rng.beta(5, 2, len(hit)), rng.beta(2, 3, len(where))),
        }
        tables.append(match(truth, PredictedBoxes(**said), classes=3, sizes=("all",)))
    return tables
