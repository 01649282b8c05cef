"""Simulated answers of one model with known accuracies, for coverage of intervals: no tables, no files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm

from holdfast.stats.core.answers import Answers


def simulated_answers(
    rng: np.random.Generator,
    drops: Sequence[float],
    *,
    photos: int,
    classes: int = 12,
    base: float = 0.85,
    renderings: int = 1,
    alike: float = 0.5,
    donors: int = 0,
) -> Answers:
    """Return answers with accuracy ``base`` on originals and ``base`` − drop under each condition.

    Args:
        rng: random numbers.
        drops: of the conditions; the last one is pasted where there are donors.
        photos: number of photos, spread over the classes.
        classes: number of classes.
        base: accuracy on originals.
        renderings: images per photo and condition.
        alike: correlation of the latent answers to one photo.
        donors: backgrounds that the last condition's photos share, a fourth of its latent variance.
    """
    count = len(drops)
    names = [f"c{number:02}" for number in range(count)]
    photo = np.arange(photos)
    shared = np.sqrt(alike) * rng.standard_normal(photos)
    condition, right, donor = [], [], []
    for column, accuracy in enumerate([*(base - drop for drop in drops), base]):  # "original" sorts behind
        for _ in range(renderings if column < count else 1):
            own, lender = np.sqrt(1 - alike) * rng.standard_normal(photos), np.full(photos, -1)
            if donors and column == count - 1:
                lender = rng.integers(0, donors, photos)
                own = np.sqrt((0.75 - alike) / (1 - alike)) * own + 0.5 * rng.standard_normal(donors)[lender]
            condition.append(np.full(photos, column))
            right.append((shared + own < norm.ppf(accuracy)).astype(np.float64))
            donor.append(lender)
    size = len(condition) * photos
    source = np.tile(photo, len(condition))
    hits, nothing = np.concatenate(right), np.zeros(size)
    return Answers(
        conditions=[*names, "original"], condition=np.concatenate(condition), trained=[""],
        trained_on=np.zeros(size, np.intp), labels=[f"class{number:02}" for number in range(classes)],
        label=source % classes, sources=[f"photo{number:05}" for number in photo], source=source,
        donor=np.concatenate(donor), donor_labels=[], donor_label=np.full(size, -1), fold=np.full(size, -1),
        n=np.ones(size), right=hits, right_restricted=hits, captured=nothing, captured_before=nothing,
        given=np.zeros((1, count + 1, classes)), same_images=frozenset(),
    )  # fmt: skip
