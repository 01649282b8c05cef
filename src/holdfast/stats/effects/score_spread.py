"""A model's accuracies on originals, across conditions and within them; how far they spread, and how sure that is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import Answers, CountedEstimate
from holdfast.stats.core.bootstrap import (
    RESAMPLES,
    Codes,
    Floats,
    Z,
    codes,
    donor_noise,
    resampled_sums,
    stratum_weights,
    sums,
    t_quantile,
    two_way_sums,
)
from holdfast.stats.core.cells import Average, wilson_at
from holdfast.stats.effects.spread_interval import spread_interval

Components = Literal["cross_inner", "scenario_class", "scenario_class_variance"]
"""The equations' two parts, or those of the paper's earlier version: as standard deviations, or as variances."""

Part = Literal["cross", "inner"]


@dataclass(frozen=True)
class Design:
    """A model's accuracies as weighted sums. Column 0 is the original; the others are (part, condition)."""

    answers: Answers  # the cells that count
    column: Codes  # (cells,) the column of each
    columns: list[tuple[Part, str]]  # part and condition of each column
    cross: list[int]  # columns of the cross part
    inner: list[int]  # columns of the inner part
    weight: Floats  # (cells,) of each cell's right answers in its column's accuracy
    noise: Floats  # (cells,) right answers − those expected, scaled so that sums of squares are unbiased variances
    present: Codes  # codes of the images
    photo: Codes  # (cells,) into ``present``
    stratum: Codes  # (images,) each image's class, all 0 if every image weighs the same

    @property
    def photos(self) -> int:
        """Return the number of images."""
        return len(self.present)

    @cached_property
    def classes(self) -> list[str]:
        """Return the names of the classes that have answers."""
        return [self.answers.labels[at] for at in np.unique(self.answers.label)]

    @cached_property
    def accuracy(self) -> Floats:
        """Return the accuracies, (columns,)."""
        return sums(self.column, self.weight * self.answers.right, len(self.columns))

    @cached_property
    def influence(self) -> Floats:
        """Return what each image adds to an accuracy's deviation from the truth, (images, columns)."""
        shape = (self.photos, len(self.columns))
        cell = self.photo * np.intp(shape[1]) + self.column
        return sums(cell, self.weight * self.noise, shape[0] * shape[1]).reshape(shape)

    @cached_property
    def donor_influence(self) -> Floats | None:
        """Return what donors add to the deviations beyond what their images do, (rows, columns); None without any."""
        lent = np.flatnonzero(self.answers.donor >= 0)
        if not len(lent):
            return None
        values = (self.weight * self.noise)[lent]
        return donor_noise(values, self.photo[lent], self.answers.donor[lent], self.column[lent], len(self.columns))

    def by_class(self, values: Floats) -> Floats:
        """Return sums of what cells hold per class and column, (classes, columns)."""
        label, count = codes(self.answers.label)
        shape = (count, len(self.columns))
        return sums(label * np.intp(shape[1]) + self.column, values, shape[0] * shape[1]).reshape(shape)

    @cached_property
    def class_accuracy(self) -> Floats:
        """Return each class's accuracy, (classes,): the mean over the cross conditions."""
        n, right = (self.by_class(values)[:, self.cross] for values in (self.answers.n, self.answers.right))
        share = np.divide(right, n, out=np.zeros_like(n), where=n > 0)
        return np.asarray(share.sum(axis=1) / (n > 0).sum(axis=1))

    @cached_property
    def class_influence(self) -> Floats:
        """Return what each image adds to the deviation of ``class_accuracy``, (images, classes)."""
        label, count = codes(self.answers.label)
        n = self.by_class(self.answers.n)[label, self.column]
        crossed = np.isin(self.column, self.cross)
        cell = (self.photo * np.intp(count) + label)[crossed]
        summed = sums(cell, (self.noise / n)[crossed], self.photos * count)
        return np.asarray(summed.reshape(self.photos, count) / len(self.cross))


def design_of(answers: Answers, conditions: Collection[str], *, average: Average = "macro") -> Design | None:
    """Return the design of the original and these conditions, of which repeated images count once.

    A model retrained on originals goes before the one delivered. None if the original or every condition is missing.
    """
    counted = np.array([name == ORIGINAL or (name in conditions and name not in answers.same_images) for name in
                        answers.conditions], bool)  # fmt: skip
    answers = answers.part(counted[answers.condition])
    base = ORIGINAL if answers.on(ORIGINAL).any() else ""
    trained = np.array([*(answers.trained.index(name) if name in answers.trained else -2 for name in
                          answers.conditions)], np.intp)  # fmt: skip
    original = answers.under(ORIGINAL)
    cross = answers.on(base)
    inner = (answers.trained_on == trained[answers.condition]) & ~original
    answers, original, cross = (answers.part(cross | inner), original[cross | inner], cross[cross | inner])
    # the original first, then the cross part, then the inner one, conditions by name
    kinds = len(answers.conditions)
    keys, column = np.unique(
        np.where(cross, 0, kinds + 1) + np.where(original, 0, answers.condition + 1), return_inverse=True
    )
    if len(keys) < 2 or keys[0] != 0 or keys[1] > kinds:
        return None
    names: list[tuple[Part, str]] = [("cross", ORIGINAL)]
    names += [
        ("cross" if key <= kinds else "inner", answers.conditions[(key - 1) % (kinds + 1)]) for key in keys[1:].tolist()
    ]
    places = {part: [at for at, (own, _) in enumerate(names) if at and own == part] for part in ("cross", "inner")}
    weight, noise = _weights(answers, column, len(keys), average)
    present, photo = np.unique(answers.source, return_inverse=True)
    stratum = np.zeros(len(present), np.intp)
    if average == "macro":
        stratum[photo] = codes(answers.label)[0]
    return Design(answers, column, names, places["cross"], places["inner"], weight, noise, present, photo, stratum)


def _weights(answers: Answers, column: Codes, columns: int, average: Average) -> tuple[Floats, Floats]:
    """Return the weights that make each accuracy a sum of right answers, and each cell's noise.

    With folds an accuracy is the mean of the folds'. Around its own class a class's only image would seem noiseless: it
    is compared with the whole condition instead. n / (n − 1) makes sums of squared influences unbiased variances.
    """
    label, classes = codes(answers.label) if average == "macro" else (np.zeros(len(column), np.intp), 1)
    fold, folds = codes(answers.fold)
    run = column * np.intp(folds) + fold
    size = sums(run * np.intp(classes) + label, answers.n, columns * folds * classes)
    shares = (size.reshape(columns * folds, classes) > 0).sum(axis=1)
    runs = (shares.reshape(columns, folds) > 0).sum(axis=1)
    weight = 1 / (runs[column] * shares[run] * size[run * np.intp(classes) + label])
    _, owner = np.divmod(np.unique(answers.source * np.intp(classes) + label), classes)
    photos = np.bincount(owner, minlength=classes)[label]
    cell = column * np.intp(classes) + label
    n, right = (sums(cell, values, columns * classes) for values in (answers.n, answers.right))
    whole = right.reshape(columns, classes).sum(axis=1) / n.reshape(columns, classes).sum(axis=1)
    expected = np.where(photos > 1, right[cell] / n[cell], whole[column])
    noise = (answers.right - expected * answers.n) * np.sqrt(photos / np.maximum(photos - 1, 1))
    return weight, noise


class Spread:
    """Deviations from the accuracy on originals, scaled so that their sum of squares is what the score subtracts.

    ``parts``: which of them; by default those that there are. ``components``: the second part of ``scenario_class`` and
    ``scenario_class_variance`` is over classes; ``scenario_class`` takes norms in place of sums of squares.
    """

    def __init__(
        self,
        design: Design,
        *,
        parts: Sequence[Part] = ("cross", "inner"),
        ddof: int = 0,
        signed: bool = False,
        components: Components = "cross_inner",
        leave: str | None = None,
    ) -> None:
        if components not in get_args(Components):
            raise UserError(f"components must be {', '.join(get_args(Components))}, not {components!r}")
        self.design, self.signed, self.by_class = design, signed, components != "cross_inner"
        self.norms = components == "scenario_class"
        self.with_classes = self.by_class and "inner" in parts
        columns = {"cross": design.cross, "inner": [] if self.by_class else design.inner}
        self.blocks = [columns[part] for part in parts if columns[part]]
        self.split = len(self.blocks[0]) if self.blocks else 0
        deviations = self._deviations(leave)
        if min(len(block) for block in deviations) <= ddof:
            raise UserError(f"A robustness score with ddof={ddof} needs at least {ddof + 1} conditions in each part.")
        self.scale: Floats = np.concatenate([np.full(len(block), (len(block) - ddof) ** -0.5) for block in deviations])
        self.deviations: Floats = np.concatenate(deviations) * self.scale
        names = ("scenario", "class") if self.by_class else ("cross", "inner")
        self.parts = "+".join(names[: len(deviations)])

    def _deviations(self, leave: str | None) -> list[Floats]:
        design = self.design
        accuracy, keep = design.accuracy, np.array([name != leave for name in design.classes])
        if leave is not None:
            rows, right = (design.by_class(design.weight * values)[keep].sum(axis=0) for values in
                           (design.answers.n, design.answers.right))  # fmt: skip
            accuracy = np.where(rows > 0, right / np.where(rows > 0, rows, 1), np.nan)
        deviations = [accuracy[block] - accuracy[0] for block in self.blocks]
        if self.with_classes:
            deviations.append(design.class_accuracy[keep] - design.class_accuracy[keep].mean())
        return deviations

    @cached_property
    def influence(self) -> Floats:
        """Return what each image adds to the noise of each deviation, (images, deviations)."""
        design = self.design
        blocks = [design.influence[:, block] - design.influence[:, :1] for block in self.blocks]
        if self.with_classes:
            blocks.append(design.class_influence - design.class_influence.mean(axis=1, keepdims=True))
        return np.asarray(np.concatenate(blocks, axis=1) * self.scale)

    @cached_property
    def size(self) -> float:
        """Return the effective number of images."""
        return 1 / float(np.square(stratum_weights(self.design.stratum)[0]).sum())

    @cached_property
    def contributions(self) -> list[Floats]:
        """Return what clusters add to the noise of the deviations, (clusters, deviations): of images, and of donors.

        For every condition one imagined image that fell and one that rose (Bonett and Price's adjustment), so that
        noise does not vanish if hardly any image changed; stretched by t over normal for few images.
        """
        width, size = sum(len(block) for block in self.blocks), self.size
        drop = (self.deviations / self.scale)[:width] * size / (size + 2)
        imagined = np.zeros((2 * width, len(self.deviations)))
        place = np.arange(width)
        for row, end in ((place, 1.0), (width + place, -1.0)):
            imagined[row, place] = (end - drop) / size * self.scale[:width]
        stretch = t_quantile(stratum_weights(self.design.stratum)[1]) / Z * size / (size + 2)
        parts = [np.concatenate([self.influence, imagined]) * stretch]
        if self.design.donor_influence is not None and self.blocks:
            lent = np.concatenate([self.design.donor_influence[:, block] for block in self.blocks], axis=1)
            parts.append(np.pad(lent, ((0, 0), (0, len(self.deviations) - width))) * self.scale)
        return parts

    @property
    def covariance(self) -> Floats:
        """Return the covariance of the deviations' noise."""
        return np.asarray(sum(part.T @ part for part in self.contributions))

    @property
    def plain(self) -> float:
        """Return the spread as defined."""
        return float(self.value(self.deviations))

    def value(self, deviations: Floats) -> Floats:
        """Return the spread of deviations, (…, deviations)."""
        cross, inner = deviations[..., : self.split], deviations[..., self.split :]
        if self.signed:
            cross, inner = np.minimum(cross, 0), inner if self.by_class else np.minimum(inner, 0)
        squares = np.stack([(cross**2).sum(axis=-1), (inner**2).sum(axis=-1)])
        return np.asarray((np.sqrt(squares) if self.norms else squares).sum(axis=0))

    def resampled(self, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
        """Return the noise of the deviations in resamples of images and of donors, (resamples, deviations)."""
        photos, donors = self.contributions[0], self.contributions[1] if len(self.contributions) > 1 else None
        return np.asarray(two_way_sums(photos, donors, resamples=resamples, seed=seed) - photos.sum(axis=0))

    def estimate(self, resamples: int = RESAMPLES, seed: int = 0) -> CountedEstimate:
        """Return the spread with its interval.

        Its upper end is never below what would still be likely had no image changed at all: a share of
        1 − 0.025^(1/photos) of images under every condition.
        """
        half = 0.5 / self.size * self.scale
        reached = float(self.value(self.deviations + np.where(self.deviations > 0, half, -half)))
        low, high = spread_interval(
            self.deviations, self.resampled(resamples, seed), self.covariance, self.value, reached=reached,
            quadratic=not (self.signed or self.norms),
        )  # fmt: skip
        unseen = float(self.value(-self.scale * (1 - 0.025 ** (1 / self.size))))
        high = min(max(high, unseen), float(self.value(-self.scale)))
        return CountedEstimate(self.plain, min(low, high), high, self.design.photos)

    def variance(self, part: Part) -> float:
        """Return the spread of one part as a variance; NaN if there is none."""
        own = np.zeros_like(self.deviations)
        where = slice(self.split) if part == "cross" else slice(self.split, None)
        own[where] = self.deviations[where]
        if not own[where].size:
            return float("nan")
        return float(self.value(own)) ** (2 if self.norms else 1)

    def debiased(self, resamples: int = RESAMPLES, seed: int = 0) -> float:
        """Return the spread less its sampling noise.

        E[d̂²] = d² + Var(d̂), so the variances go; one-sided squares have no such closed form, and the mean excess of
        the resamples goes instead.
        """
        if self.signed:
            noise = resampled_sums(self.influence, self.design.present, resamples=resamples, seed=seed)
            return float(2 * self.value(self.deviations) - self.value(self.deviations + noise).mean())
        excess = self.deviations**2 - (self.influence**2).sum(axis=0)
        parts = np.array([excess[: self.split].sum(), excess[self.split :].sum()])
        return float(np.sqrt(np.maximum(parts, 0)).sum() if self.norms else parts.sum())


def mean_accuracy(design: Design) -> CountedEstimate:
    """Return the mean over the cross conditions, with Wilson's interval on the effective number of images."""
    value = float(design.accuracy[design.cross].mean())
    variance = float((design.influence[:, design.cross].mean(axis=1) ** 2).sum())
    size = np.array(value * (1 - value) / variance if variance > 1e-15 else design.photos)
    low, high = wilson_at(value * size, size, Z)
    return CountedEstimate(value, float(low), float(high), design.photos)


def score_influence(design: Design) -> dict[str, Floats]:
    """Return what each image adds to the deviation of three measures from the truth, (images,), to first order."""
    moved = design.influence[:, :1]
    score = np.zeros(len(moved))
    for part in (design.cross, design.inner):
        if part:
            gap = design.accuracy[part] - design.accuracy[0]
            score -= 2 * ((design.influence[:, part] - moved) @ gap) / len(part)
    return {
        "robustness_score": score,
        "accuracy": design.influence[:, 0],
        "mean_accuracy": design.influence[:, design.cross].mean(axis=1),
    }
