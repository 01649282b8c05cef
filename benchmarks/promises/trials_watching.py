"""Trials of ``holdfast audit watch``: unchanged series, and new images at the edge of what was tested."""

from __future__ import annotations

import numpy as np

from holdfast.stats.models.gate import PairedPhotos
from holdfast.stats.models.noninferiority import Differences
from holdfast_evidence.dossier.watching import PhotoValues, changes, paired_change, placed, spent
from promises.promise import Counted, tally
from promises.worlds import clustered, counts_of, two_models


def series_of_checkpoints(
    rng: np.random.Generator, draws: int, *, runs: int, conditions: int, photos: int = 120, **world: float
) -> Counted:
    """Checkpoints that are as good as the first, on the same images: is any of them ever called worse, or better?"""
    rows = []
    for _ in range(draws):
        words = set()
        for number in range(1, runs + 1):
            for _ in range(conditions):
                photo, donor, (old, new) = two_models(rng, photos, loss=0.0, **world)
                each = len(photo) / photos
                value = (new - old) / each
                differences = Differences(np.bincount(photo, value), photo, donor, value, np.full(len(photo), 1 / each))
                row = paired_change(PairedPhotos(differences, 0.8, 0.8, 0), spent(number) / conditions)
                words |= {"worse"} if row["high"] < 0 else {"better"} if row["low"] > 0 else set()
        rows.append({"worse": "worse" in words, "better": "better" in words})
    return tally(rows)


def changed_one_way(rng: np.random.Generator, draws: int, *, photos: int, share: float, conditions: int) -> Counted:
    """A share of images becomes wrong and none right: do the lower ends of the first comparison hold together?"""
    rows = []
    for _ in range(draws):
        lows = []
        for _ in range(conditions):
            value = -(rng.random(photos) < share).astype(float)
            own = np.arange(photos)
            differences = Differences(value, own, np.full(photos, -1), value, np.ones(photos))
            lows.append(paired_change(PairedPhotos(differences, 0.8, 0.8, 0), spent(1) / conditions)["low"])
        rows.append({"covers": max(lows) <= -share})
    return tally(rows)


def series_of_months(
    rng: np.random.Generator, draws: int, *, runs: int, conditions: int, photos: int, accuracy: float, classes: int = 6
) -> Counted:
    """The same model on new images of the same kind, again and again, against the first ones."""
    rows, logit = [], np.full((1, conditions), np.log(accuracy / (1 - accuracy)))
    for _ in range(draws):
        first = counts_of(clustered(logit, photos, 1.0, rng), classes=classes)
        tables = [
            changes(first, counts_of(clustered(logit, photos, 1.0, rng), classes=classes), "m00", "m00", number=number,
                    paired=False)
            for number in range(1, runs + 1)
        ]  # fmt: skip
        rows.append({word: any((table["change"] == word).any() for table in tables) for word in ("worse", "better")})
    return tally(rows)


CENTRES = 1.5 * np.random.default_rng(3).standard_normal((8, 32))


def new_photos(
    rng: np.random.Generator, draws: int, *, photos: int, shift: float = 0.0, confidence: float = 0.9,
    turned: float = 0.02, checks: int = 1, balanced: bool = False,
) -> Counted:  # fmt: skip
    """New images of eight classes whose features, confidences or turned answers are where the settings say."""

    def side(moved: float, sure: float, turns: float) -> PhotoValues:
        kind = np.arange(photos) % len(CENTRES) if balanced else rng.integers(len(CENTRES), size=photos)
        features = CENTRES[kind] + rng.standard_normal((photos, 32))
        features[:, 0] += moved
        return PhotoValues(
            features, kind, rng.beta(8 * sure, 8 * (1 - sure), photos), rng.binomial(4, turns, photos) / 4
        )

    rows = []
    for _ in range(draws):
        tested = side(0.0, 0.9, 0.02)
        seed = int(rng.integers(1 << 30))
        answers = [placed(tested, side(shift, confidence, turned), number=number + 1, seed=seed)[0]
                   for number in range(checks)]  # fmt: skip
        rows.append({"within": answers[0] == "within", "outside": "outside" in answers})
    return tally(rows)
