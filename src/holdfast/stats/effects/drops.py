"""What a condition costs: differences of accuracies, paired on the image; of images with several labels, each label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.schema import MULTILABEL
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import Answers, from_counts, numbered_column
from holdfast.stats.core.bootstrap import (
    CHANGE,
    RESAMPLES,
    Codes,
    Estimate,
    Floats,
    adjusted_mean,
    codes,
    join_lent,
    lenders,
    mcnemar,
    stratum_weights,
    sums,
    t_quantile,
)
from holdfast.stats.core.cells import Average, cluster_codes, ordered
from holdfast.stats.core.reduce import Counts, Outcome, reduce

DEFAULT_TEST_SHARE = 0.2
"""Share of the images tested in each training run, if the folds do not show it (80/20 split)."""

_COLUMNS = ["model", "trained_on", "condition", "n", "original", "accuracy", "drop", "low", "high", "lost", "gained"]
_COLUMNS += ["p", "method", "wide_class"]


@dataclass(frozen=True)
class Effect:
    """A difference of two shares on the same images, 0..1, with its 95 % interval.

    ``n`` images; ``first`` and ``second`` the two shares; ``value`` = first − second; ``fell`` and ``rose``: images
    (or clusters of them) for which the second was lower or higher; ``p``: exact McNemar; ``wide_class``: the class that
    makes up most of a macro average's variance, as its code, −1 if none does.
    """

    n: int
    first: float
    second: float
    value: float
    low: float
    high: float
    fell: int
    rose: int
    p: float
    wide_class: int = -1

    @property
    def estimate(self) -> Estimate:
        """Return the difference with its interval."""
        return Estimate(self.value, self.low, self.high)


_NOTHING = float("nan")
NO_EFFECT = Effect(0, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, 0, 0, _NOTHING)  # Nothing was measured


def drops(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    resamples: int = RESAMPLES,
    seed: int = 0,
    clusters: Mapping[str, str] | None = None,
    test_share: float | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Return the accuracy lost against the original, on the images that have both.

    A row per model × trained_on × condition. Columns: ``n`` images with both; ``original`` and ``accuracy`` on them;
    ``drop`` = original − accuracy with ``low`` and ``high`` (``level``); ``lost`` and ``gained``: images answered
    rightly only before, only after; ``p``: exact McNemar (two-sided sign test on lost and gained); ``method``: how the
    interval was made; ``wide_class``: the class without which it would be far narrower, '' if there is none.

    ``clusters``: source_id → cluster for images that are not independent: the prompt pair of generated images; by
    default, those of the counts.
    ``test_share``: share of the images tested by each training run, for models trained on several folds or seeds; read
    off the folds if they do not overlap.
    """
    kind = "images" if clusters is None else "clusters"
    clusters = counts.clusters if clusters is None else clusters
    rows = []
    for model in counts.models:
        answers = from_counts(counts, model, outcome=outcome)
        cluster = None if clusters is None else cluster_codes(answers.sources, clusters)
        for trained_on in answers.trained:
            own = answers.part(answers.on(trained_on))
            for condition in [name for name in answers.conditions if name != ORIGINAL]:
                before, after = own.under(ORIGINAL), own.under(condition)
                cells = pair(own, before, after)
                effect = effect_of(cells, average=average, resamples=resamples, seed=seed, cluster=cluster, level=level)
                if effect.n == 0:
                    continue
                low, high = effect.low, effect.high
                donors = " and donors" if (own.donor[after] >= 0).any() else ""
                method = f"bootstrap over {kind}{donors}"
                folds = np.intersect1d(own.fold[before], own.fold[after])
                if trained_on and len(folds) > 1:
                    low, high = _over_folds(own, before, after, average, folds, test_share, level)
                    method = f"{len(folds)} trainings, Nadeau–Bengio"
                shares = (effect.n, effect.first, effect.second, effect.value, low, high)
                wide = own.labels[effect.wide_class] if effect.wide_class >= 0 else ""
                rows.append((model, trained_on, condition, *shares, effect.fell, effect.rose, effect.p, method, wide))
    return ordered(counts, pd.DataFrame(rows, columns=_COLUMNS))


@dataclass(frozen=True)
class Pairs:
    """Cells of two sides, codes each (−1: no donor): what a paired difference is computed from."""

    side: Codes
    source: Codes
    fold: Codes
    label: Codes
    donor: Codes
    n: Floats
    hits: Floats

    def part(self, where: NDArray[np.bool_]) -> Pairs:
        """Return some of the cells."""
        return Pairs(*(getattr(self, name)[where] for name in self.__dataclass_fields__))


def pair(
    answers: Answers, first: NDArray[np.bool_], second: NDArray[np.bool_], hits: tuple[Floats, Floats] | None = None
) -> Pairs:
    """Return cells of the first and of the second side; ``hits``: what is counted on each, right answers by default."""
    own = np.concatenate([np.flatnonzero(first), np.flatnonzero(second)])
    side = np.repeat([0, 1], [int(first.sum()), int(second.sum())])
    ours, theirs = hits or (answers.right, answers.right)
    return Pairs(
        side, answers.source[own], answers.fold[own], answers.label[own], answers.donor[own], answers.n[own],
        np.where(side == 0, ours[own], theirs[own]),
    )  # fmt: skip


def paired_effect(
    first: pd.DataFrame,
    second: pd.DataFrame,
    column: str,
    *,
    average: Average = "macro",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Effect:
    """Return the difference of two shares on the images that both frames of cells have, of one model."""
    names = ["source_id", "fold", "label", "donor_id", "n", column]
    both = pd.concat([frame[names].astype(dict.fromkeys(names[:4], object)) for frame in (first, second)])
    source, label, donor = (numbered_column(both, name)[0] for name in ("source_id", "label", "donor_id"))
    side = np.repeat([0, 1], [len(first), len(second)])
    n, hits = both["n"].to_numpy(np.float64), both[column].to_numpy(np.float64)
    cells = Pairs(side, source, both["fold"].to_numpy(np.intp), label, donor, n, hits)
    return effect_of(cells, average=average, resamples=resamples, seed=seed)


def effect_of(
    cells: Pairs,
    *,
    average: Average = "macro",
    resamples: int = RESAMPLES,
    seed: int = 0,
    cluster: Codes | None = None,
    level: float = 0.95,
) -> Effect:
    """Return the difference of the two sides on the images that have both.

    The mean of the images' differences (micro) or the mean over classes of their means (macro). The interval is a
    cluster bootstrap over images, two-way with the donors if there are any, with one imagined image that fell and
    one that rose: Bonett and Price's adjustment, which keeps it honest when few or no images changed. ``cluster``:
    (sources,) the cluster of each image, if images are not independent.
    """
    paired = _paired(cells, average)
    if paired is None:
        return NO_EFFECT
    size = 1 / float(np.square(paired.weight).sum())
    source, owner = (own if cluster is None else cluster[own] for own in (paired.source, paired.owner))
    mean = adjusted_mean(
        paired.value, size, paired.residual, source, paired.donor, freedom=paired.freedom, level=level,
        resamples=resamples, seed=seed,
    ).within(CHANGE)  # fmt: skip
    signs = np.sign(np.bincount(owner, paired.change).round(9))
    fell, rose = int((signs > 0).sum()), int((signs < 0).sum())
    return Effect(
        len(np.unique(paired.owner)), paired.first, paired.second, *mean, fell, rose, float(mcnemar(fell, rose)),
        paired.wide_class,
    )  # fmt: skip


def corrected_resampled_interval(
    differences: ArrayLike, *, test_share: float, level: float = 0.95
) -> tuple[float, float]:
    """Return the interval of a mean difference over training runs that share training images (Nadeau and Bengio 2003).

    mean ± t(k − 1) · √((1/k + s/(1 − s)) · variance), k runs, s the share of images tested in each: 1/k for k-fold
    cross-validation. The plain 1/k would pretend that the runs were independent.
    """
    values = np.asarray(differences, np.float64)
    if len(values) < 2:
        raise UserError("an interval over training runs needs two runs or more")
    if not 0 < test_share < 1:
        raise UserError(f"test_share is the share of images tested in each run, between 0 and 1; {test_share} is not")
    factor = 1 / len(values) + test_share / (1 - test_share)
    half = t_quantile(len(values) - 1, (1 + level) / 2) * float(np.sqrt(factor * values.var(ddof=1)))
    return float(values.mean()) - half, float(values.mean()) + half


@dataclass(frozen=True)
class _Paired:
    """Images that two sides share, and the residuals of their cells.

    ``weight`` (images,): of each in the mean; ``freedom``: Satterthwaite's degrees of freedom, for classes of unlike
    sizes with a variance alike; ``change`` (images,): first − second; ``owner`` (images,): the source.
    ``residual`` (cells,): weight × ± (the cell's part of its image's share − what the class has on average), so that
    the sum over an image is the image's deviation and the sum over a donor the donor's; ``source``, ``donor`` (cells,).
    ``wide_class``: see ``Effect``.
    """

    first: float
    second: float
    value: float
    weight: Floats
    freedom: float
    change: Floats
    owner: Codes
    residual: Floats
    source: Codes
    donor: Codes | None
    wide_class: int


def _paired(cells: Pairs, average: Average) -> _Paired | None:
    """Return None if the two sides have no image in common."""
    if not len(cells.n):
        return None
    fold, folds = codes(cells.fold)
    photo, count = codes(cells.source * np.intp(folds) + fold)
    totals = np.bincount(cells.side * np.intp(count) + photo, cells.n, 2 * count).reshape(2, count)
    both = np.asarray((totals > 0).all(axis=0))[photo]
    if not both.any():
        return None
    total = totals[cells.side, photo][both]
    cells, (photo, count) = cells.part(both), codes(photo[both])
    share, part = cells.hits / total, cells.n / total
    shares = np.bincount(cells.side * np.intp(count) + photo, share, 2 * count).reshape(2, count)
    stratum, owner = np.zeros(count, np.intp), np.zeros(count, np.intp)
    owner[photo] = cells.source
    if average == "macro":
        stratum[photo] = codes(cells.label)[0]
    sizes = np.bincount(stratum)
    weight, freedom = stratum_weights(stratum)
    means = np.stack([np.bincount(stratum, values) / sizes for values in shares])
    # a class's only image has no deviation from the class's mean: take the mean of all
    means[:, sizes == 1] = shares.mean(axis=1)[:, None]
    # n / (n − 1): deviations from a class's own mean are smaller than from the true one
    scale = weight * np.sqrt(sizes / np.maximum(sizes - 1, 1))[stratum]
    sign = np.where(cells.side == 0, 1.0, -1.0)
    residual = scale[photo] * sign * (share - part * means[cells.side, stratum[photo]])
    variances, labels = sums(stratum, sums(photo, residual, count) ** 2, len(sizes)), np.unique(cells.label)
    most = len(variances) == len(labels) >= 3 and 2 * variances.max() > variances.sum()
    wide = int(labels[variances.argmax()]) if most else -1
    before, after = (float((values * weight).sum()) for values in shares)
    lent = cells.donor >= 0
    kept, residual = join_lent(residual, part, photo, lent)
    lender = lenders(cells.donor, cells.source)
    return _Paired(
        before, after, before - after, weight, freedom, shares[0] - shares[1], owner, residual[kept],
        cells.source[kept], None if lender is None else lender[kept], wide,
    )  # fmt: skip


def _over_folds(
    answers: Answers,
    before: NDArray[np.bool_],
    after: NDArray[np.bool_],
    average: Average,
    folds: Codes,
    test_share: float | None,
    level: float,
) -> tuple[float, float]:
    """Return Nadeau and Bengio's interval over the drops of the training runs."""
    differences, sizes = [], []
    for fold in folds:
        own = answers.fold == fold
        paired = _paired(pair(answers, before & own, after & own), average)
        if paired is not None:
            differences.append(paired.value)
            sizes.append(len(paired.change))
    photos = len(np.unique(answers.source[before & np.isin(answers.fold, folds)]))
    disjoint = sum(sizes) <= photos
    share = test_share or (float(np.mean(sizes)) / photos if disjoint else DEFAULT_TEST_SHARE)
    return corrected_resampled_interval(differences, test_share=share, level=level)


LABEL_COLUMNS = [
    "task", "kind", "sample_id", "source_id", "fold", "condition", "variant", "parameters", "model", "trained_on",
    "label", "donor_id", "donor_label", "prediction_restricted", "correct", "correct_restricted", "confidence",
    "status", "error", "image_sha256",
]  # fmt: skip
_LABELS = ["label", "model", "condition", "n", "original", "accuracy", "drop", "low", "high", "recall", "alarms"]


def label_drops(rows: pa.Table, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return a row per label × model × condition: what the condition costs the label, paired by image.

    ``original`` and ``accuracy`` are means of the share of yes if images have the label and of no if they have
    not; ``drop`` with ``low`` and ``high``, which hold for all labels together (Bonferroni); ``recall``: share of yes
    if the label is there; ``alarms``: share of yes if it is not.
    """
    # Rows of one label are a classification in two classes, so the statistics of classifiers are asked, label by label.
    asked = pc.replace_substring_regex(rows["sample_id"].cast(pa.string()), ".*#", "")
    labels = sorted(asked.unique().to_pylist())
    tables = []
    for label in labels:
        counts = reduce(rows.filter(pc.equal(asked, label)), task=MULTILABEL)
        table = drops(counts, resamples=resamples, seed=seed, level=1 - 0.05 / len(labels)).assign(label=label)
        cells = counts.cells.assign(present=counts.cells["label"].astype(str) == label)
        hits = cells.astype({"model": str, "condition": str}).groupby(["model", "condition", "present"])[["n", "right"]]
        right = (summed := hits.sum())["right"] / summed["n"]
        for column, present in (("recall", True), ("alarms", False)):
            share = [right.get((row.model, row.condition, present)) for row in table.itertuples()]
            table[column] = [None if each is None else each if present else 1 - each for each in share]
        tables.append(table)
    return pd.concat(tables, ignore_index=True)[_LABELS] if tables else pd.DataFrame(columns=_LABELS)
