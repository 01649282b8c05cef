"""Generators of answers whose truth is known, with what is awkward in real collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from holdfast.stats.core.answers import Answers
from holdfast.stats.core.grid import AnswerGrid
from holdfast.stats.core.reduce import Counts

ALIKE = 0.97  # correlation of the latent answers to an image and to its near-copy


@dataclass(frozen=True)
class World:
    """Answers of one model, and the true drops of its conditions: the mean over classes, and over images."""

    answers: Answers
    macro: np.ndarray
    micro: np.ndarray
    base: tuple[float, float]  # true accuracy on originals, macro and micro


def answers_world(
    rng: np.random.Generator,
    drops: Sequence[float],
    *,
    photos: int = 120,
    classes: int = 12,
    sizes: Sequence[int] = (),
    base: float = 0.85,
    slope: float = 0.0,
    renderings: int = 1,
    alike: float = 0.5,
    donors: int = 0,
    donor_share: float = 0.25,
    pasted: int = 1,
    uneven: bool = False,
    missing: float = 0.0,
    copies: float = 0.0,
) -> World:
    """Return answers with accuracy ``base`` on originals and ``base`` − drop under each condition, on average.

    Args:
        rng: random numbers.
        drops: of the conditions; the last ones are pasted if there are donors.
        photos: number of images, spread over the classes.
        classes: number of classes.
        sizes: images of each class, in place of the two above.
        base: accuracy on originals.
        slope: drops of the classes reach from 1 − slope to 1 + slope times the mean drop.
        renderings: images per image and condition.
        alike: correlation of the latent answers to one image.
        donors: backgrounds that images of the pasted conditions share; a hard one is hard under all of them.
        donor_share: part of the pasted conditions' latent variance that is the donor's.
        pasted: number of pasted conditions.
        uneven: some donors are used far more than others (see ``lenders``).
        missing: share of images that lack the conditions (no mask), twice as many in the last class as on average.
        copies: share of images that are near-copies of another image of their class.
    """
    label = np.repeat(np.arange(len(sizes)), sizes) if len(sizes) else np.arange(photos) % classes
    photos, classes, count = len(label), int(label.max()) + 1, len(drops)
    factor = 1 + slope * np.linspace(-1, 1, classes)
    chance = base - np.outer(factor, [*drops, 0.0])  # (classes, conditions), the original behind the others
    shared = np.sqrt(alike) * rng.standard_normal(photos)
    lacks = rng.random(photos) < 2 * missing * label / max(classes - 1, 1)
    original = _originals_of_copies(rng, label, copies)
    hard = np.sqrt(donor_share) * rng.standard_normal(donors)
    parts = []
    for column in range(count + 1):
        for _ in range(renderings if column < count else 1):
            own, lender = np.sqrt(1 - alike) * rng.standard_normal(photos), np.full(photos, -1)
            if donors and count - pasted <= column < count:
                lender = lenders(rng, donors, photos, uneven)
                own = own * np.sqrt((1 - donor_share - alike) / (1 - alike)) + hard[lender]
            latent = shared + own
            copied = ALIKE * latent[original] + np.sqrt(1 - ALIKE**2) * rng.standard_normal(photos)
            latent = np.where(original == np.arange(photos), latent, copied)
            kept = np.flatnonzero(~lacks) if column < count else np.arange(photos)
            right = (latent < norm.ppf(chance[label, column])).astype(np.float64)
            parts.append((np.full(len(kept), column), kept, right[kept], lender[kept]))
    condition, source, hits, donor = (np.concatenate(column) for column in zip(*parts, strict=True))
    nothing = np.zeros(len(hits))
    answers = Answers(
        conditions=[*(f"c{number:02}" for number in range(count)), "original"], condition=condition, trained=[""],
        trained_on=np.zeros(len(hits), np.intp), labels=[f"class{number:02}" for number in range(classes)],
        label=label[source], sources=[f"image{number:05}" for number in range(photos)], source=source, donor=donor,
        donor_labels=[], donor_label=np.full(len(hits), -1), fold=np.full(len(hits), -1), n=np.ones(len(hits)),
        right=hits, right_restricted=hits, captured=nothing, captured_before=nothing,
        given=np.zeros((1, count + 1, classes)), same_images=frozenset(),
    )  # fmt: skip
    by_class = chance[:, -1:] - chance[:, :-1]
    micro = by_class[label[~lacks]].mean(axis=0) if (~lacks).any() else by_class.mean(axis=0)
    return World(answers, by_class.mean(axis=0), micro, (float(chance[:, -1].mean()), float(chance[label, -1].mean())))


def lenders(rng: np.random.Generator, donors: int, photos: int, uneven: bool = False) -> np.ndarray:
    """Return a donor for each image; uneven: the k-th is used 1/k as often as the first."""
    weight = 1 / np.arange(1, donors + 1) if uneven else np.ones(donors)
    return rng.choice(donors, photos, p=weight / weight.sum())


def _originals_of_copies(rng: np.random.Generator, label: np.ndarray, copies: float) -> np.ndarray:
    """Return for each image the image whose answers it nearly shares: mostly itself."""
    original = np.arange(len(label))
    for name in np.unique(label) if copies else ():
        own = np.flatnonzero(label == name)
        some = rng.permutation(own)
        count = round(copies * len(own))
        if 0 < count < len(own):
            original[some[:count]] = rng.choice(some[count:], count)
    return original


def two_models(
    rng: np.random.Generator,
    photos: int,
    *,
    donors: int = 0,
    renderings: int = 1,
    accuracy: float = 0.8,
    loss: float = 0.05,
    alike: float = 0.4,
    spread: float = 0.4,
    uneven: bool = False,
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return image and donor of each image, and the right answers of an old model and of one worse by ``loss``.

    Args:
        rng: random numbers.
        photos: number of images.
        donors: backgrounds that images share; each model has its own trouble with some of them.
        renderings: images per image.
        accuracy: of the old model.
        loss: what the new one loses, in accuracy.
        alike: correlation of the two models' latent answers to one image.
        spread: root of the donors' part of the latent variance.
        uneven: some donors are used far more than others.
    """
    spread = spread if donors else 0.0
    photo = np.repeat(np.arange(photos), renderings)
    donor = lenders(rng, donors, len(photo), uneven) if donors else np.full(len(photo), -1)
    shared = np.sqrt(alike) * rng.standard_normal(photos)[photo]
    answers = []
    for chance in (accuracy, accuracy - loss):
        own = np.sqrt(1 - alike - spread**2) * rng.standard_normal(len(photo))
        hard = spread * rng.standard_normal(donors)[donor] if donors else 0.0
        answers.append((shared + hard + own < norm.ppf(chance)).astype(float))
    return photo, donor, answers


def two_counts(rng: np.random.Generator, photos: int, **options: Any) -> tuple[Counts, Counts]:
    """Return the same as counts."""
    photo, donor, (old, new) = two_models(rng, photos, **options)
    return _cells(photo, donor, old.astype(int)), _cells(photo, donor, new.astype(int))


def _cells(photo: np.ndarray, donor: np.ndarray, right: np.ndarray) -> Counts:
    condition = "random_background" if donor.max() >= 0 else "original"
    names = np.array([f"s{number:05}" for number in range(int(photo.max()) + 1)], object)
    cells = pd.DataFrame(
        {
            "model": "m", "trained_on": "", "kind": "static", "condition": condition, "label": "x",
            "source_id": names[photo], "donor_id": None, "fold": -1, "n": 1, "right": right, "right_restricted": right,
        }
    )  # fmt: skip
    if donor.max() >= 0:
        cells["donor_id"] = np.array([f"d{number:04}" for number in range(int(donor.max()) + 1)], object)[donor]
    trouble = pd.DataFrame(columns=["model", "condition", "status", "error", "n", "example"])
    return Counts(cells, pd.DataFrame(), pd.DataFrame(), trouble, {}, ["m"], [condition], ["x"])


def counts_of(
    right: np.ndarray,
    *,
    classes: int = 1,
    n: np.ndarray | None = None,
    errors: dict | None = None,
    donor: np.ndarray | None = None,
) -> Counts:
    """Return counts of ``right`` (images, models, conditions), NaN for no answer; image s has class s mod ``classes``.

    Models are ``m00`` …, conditions ``original``, ``c1`` …; ``errors`` maps (model, condition) to failed rows;
    ``donor``: (images, conditions) the donor of each image, −1 for none.
    """
    photos, models, conditions = right.shape
    s, m, c = (index.reshape(-1) for index in np.indices(right.shape))
    names = ["original", *(f"c{i}" for i in range(1, conditions))]
    rows = np.ones(right.shape, int) if n is None else n
    answered = ~np.isnan(right.reshape(-1))
    hits = np.nan_to_num(right).astype(int).reshape(-1)
    cells = pd.DataFrame(
        {
            "model": np.array([f"m{i:02}" for i in range(models)], object)[m],
            "trained_on": "",
            "kind": "static",
            "condition": np.array(names, object)[c],
            "label": np.array([f"class{i}" for i in range(classes)], object)[s % classes],
            "source_id": np.array([f"image{i:05}" for i in range(photos)], object)[s],
            "n": rows.reshape(-1),
            "right": hits,
            "right_restricted": hits,
        }
    )
    if donor is not None:
        known = np.array([None, *(f"donor{i:03}" for i in range(int(donor.max()) + 1))], object)
        cells["donor_id"] = known[donor[s, c] + 1]
    cells = cells[answered].reset_index(drop=True)
    trouble = pd.DataFrame(
        [(model, condition, "error", "broken", count, "x") for (model, condition), count in (errors or {}).items()],
        columns=["model", "condition", "status", "error", "n", "example"],
    )
    empty = pd.DataFrame()
    return Counts(
        cells, empty, empty, trouble, {}, sorted(cells["model"].unique()), names, sorted(cells["label"].unique())
    )


def grid_of(right: np.ndarray, *, classes: int = 1) -> AnswerGrid:
    """Return the same as a grid, without the way through tables."""
    photos, models, conditions = right.shape
    names = ["original", *(f"c{i}" for i in range(1, conditions))]
    n = (~np.isnan(right)).astype(float)
    sources = np.array([f"image{i:05}" for i in range(photos)], object)
    return AnswerGrid(
        np.nan_to_num(right), n, np.arange(photos) % classes, sources, [f"m{i:02}" for i in range(models)], names
    )


def pasted_models(
    rng: np.random.Generator,
    logits: np.ndarray,
    photos: int,
    *,
    donors: int,
    uneven: bool = False,
    photo: float = 0.35,
    donor: float = 0.2,
    own: float = 0.1,
) -> tuple[np.ndarray, np.ndarray]:
    """Return right answers (images, models, conditions) and donors (images, conditions), −1 for the first condition.

    All other conditions are pasted on the same donors. Parts of the latent variance: ``photo`` of the image for all
    models, ``donor`` of the donor for all models, ``own`` of the donor for each model by itself; every cell keeps the
    chance that ``logits`` (models, conditions) give.
    """
    models, conditions = logits.shape
    lender = np.stack([lenders(rng, donors, photos, uneven) for _ in range(conditions)], axis=1)
    lender[:, 0] = -1
    hard = np.sqrt(donor) * rng.normal(size=(donors, 1)) + np.sqrt(own) * rng.normal(size=(donors, models))
    plain = np.sqrt(donor + own) * rng.normal(size=(photos, models, conditions))
    behind = np.where(lender[:, None, :] >= 0, np.moveaxis(hard[lender], 1, 2), plain)
    noise = np.sqrt(1 - photo - donor - own) * rng.normal(size=(photos, models, conditions))
    latent = np.sqrt(photo) * rng.normal(size=(photos, 1, 1)) + behind + noise
    return (norm.cdf(latent) < 1 / (1 + np.exp(-logits))).astype(float), lender


def clustered(logits: np.ndarray, photos: int, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Return right answers (images, models, conditions): ``logits`` (models, conditions) plus an effect of each image.

    Image effects move along the quantiles of the answers, so that every cell keeps its own marginal probability: the
    answers share a normal copula with correlation spread²/(1 + spread²).
    """
    shared = spread * rng.normal(size=(photos, 1, 1)) + rng.normal(size=(photos, *logits.shape))
    return (norm.cdf(shared / np.sqrt(1 + spread**2)) < 1 / (1 + np.exp(-logits))).astype(float)
