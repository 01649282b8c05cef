"""Accuracies with intervals: per class, over all classes, the worst class and the worst group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_special
from holdfast.stats.core.answers import Answers, CountedEstimate, from_counts, numbered_column
from holdfast.stats.core.bootstrap import (
    NO_ESTIMATE,
    Codes,
    Estimate,
    Floats,
    Z,
    codes,
    lenders,
    others_share,
    ratio,
    sums,
)
from holdfast.stats.core.reduce import Counts, Outcome

Average = Literal["macro", "micro"]  # Every class weighs the same, or every image does

KEYS = ["model", "trained_on", "condition"]

GROUP_MINIMUM = 5  # Images a group (class × class of the background) needs before it can be called the worst


def wilson(right: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return Wilson's score interval of a share, element by element; NaN if ``n`` is 0.

    (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n) with p = right / n. Counts may be fractional: an effective
    number of images.
    """
    return wilson_at(np.asarray(right, np.float64), np.asarray(n, np.float64), _quantile(level))


def wilson_at(hits: Floats, total: Floats, z: Floats | float) -> tuple[Floats, Floats]:
    """Return Wilson's interval for a given quantile."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share = hits / total
        centre = (share + z**2 / (2 * total)) / (1 + z**2 / total)
        half = z * np.sqrt(share * (1 - share) / total + z**2 / (4 * total**2)) / (1 + z**2 / total)
    # at 0 and at n the bound is exactly 0 and 1; rounding must not leave it at 1e-17
    low = np.where(hits == 0, 0.0, np.clip(centre - half, 0, 1))
    high = np.where(hits == total, 1.0, np.clip(centre + half, 0, 1))
    return np.where(total > 0, low, np.nan), np.where(total > 0, high, np.nan)


def exact(right: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return Clopper and Pearson's interval of a share, element by element: it covers at least as often as it says."""
    hits, total, tail = np.asarray(right, np.float64), np.asarray(n, np.float64), (1 - level) / 2
    low = scipy_special.betaincinv(np.maximum(hits, 0.5), total - hits + 1, tail)
    high = scipy_special.betaincinv(hits + 1, np.maximum(total - hits, 0.5), 1 - tail)
    return np.where(hits > 0, low, 0.0), np.where(hits < total, high, 1.0)


def stratified(right: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of a mean of class accuracies (macro accuracy), one count per class.

    Wilson's interval on an effective number of images, with a quantile of t, because a few small classes may make up
    most of the variance (docs/statistics/accuracy.md). It keeps a width with all classes at 0 % or 100 %.
    """
    low, high = stratified_rows(np.asarray(right, np.float64)[None, :], np.asarray(n, np.float64)[None, :], level)
    return float(low[0]), float(high[0])


def stratified_rows(right: Floats, n: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return ``stratified`` of many means at once, (means, classes); classes with ``n`` 0 are left out."""
    has_rows = n > 0
    classes = has_rows.sum(axis=1)
    pseudo = (_quantile(level) ** 2 / classes)[:, None]
    larger = np.where(has_rows, n + pseudo, 1.0)
    share = np.where(has_rows, (right + pseudo / 2) / larger, 0.0)
    variances = share * (1 - share) / np.maximum(larger - 1, larger / 2)
    freedom = variances.sum(axis=1) ** 2 / (variances**2 / np.maximum(n - 1, 0.5)).sum(axis=1)
    mean = share.sum(axis=1) / classes
    effective = mean * (1 - mean) / (variances.sum(axis=1) / classes**2)
    plain = np.divide(right, n, out=np.zeros_like(n), where=has_rows).sum(axis=1) / classes
    return wilson_at(plain * effective, effective, scipy_special.stdtrit(freedom, (1 + level) / 2))


def share_of(right: float, n: float) -> Estimate:
    """Return a share with Wilson's interval; NaN if ``n`` is 0."""
    low, high = wilson(right, n)
    return Estimate(right / n if n else float("nan"), float(low), float(high))


def newcombe(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> tuple[Floats, Floats, Floats]:
    """Return first − second of two independent estimates (value, low, high) with Newcombe's hybrid interval.

    low = d − √((p₁ − l₁)² + (u₂ − p₂)²), high = d + √((u₁ − p₁)² + (p₂ − l₂)²). If the two share images or prompts
    the true interval is narrower.
    """
    (value, low, high), (other, other_low, other_high) = (np.asarray(ends, np.float64) for ends in (first, second))
    apart = value - other
    return apart, apart - np.hypot(value - low, other_high - other), apart + np.hypot(high - value, other - other_low)


@dataclass(frozen=True)
class ClassAccuracies:
    """Accuracies of every condition and class, (conditions, classes); NaN if ``n`` is 0."""

    conditions: list[str]
    classes: list[str]
    n: Floats
    accuracy: Floats
    low: Floats
    high: Floats


def class_accuracies(answers: Answers) -> ClassAccuracies:
    """Return the accuracies of one training, with Wilson's interval: of an effective number if images repeat."""
    shape = (len(answers.conditions), len(answers.labels))
    cell = answers.condition * np.intp(shape[1]) + answers.label
    size = shape[0] * shape[1]
    n, right = sums(cell, answers.n, size), sums(cell, answers.right, size)
    effect = design_effects(answers.right, answers.n, cell, size, source=answers.source)
    low, high = wilson_at(right / effect, n / effect, Z)
    return ClassAccuracies(
        answers.conditions, answers.labels, *(table.reshape(shape) for table in (n, ratio(right, n), low, high))
    )


def accuracy(counts: Counts, *, outcome: Outcome = "full") -> pd.DataFrame:
    """Return ``n``, ``right`` and the accuracy with its interval per model × trained_on × condition × class.

    Intervals are Wilson's; if an image has several rows, that of the smaller, effective number n / (design effect).
    """
    rows: list[tuple[object, ...]] = []
    for model in counts.models:
        answers = from_counts(counts, model, outcome=outcome)
        for trained_on in answers.trained:
            table = class_accuracies(answers.part(answers.on(trained_on)))
            for at in zip(*np.nonzero(table.n), strict=True):
                n, share = int(table.n[at]), float(table.accuracy[at])
                numbers = n, round(share * n), share, float(table.low[at]), float(table.high[at])
                rows.append((model, trained_on, answers.conditions[at[0]], answers.labels[at[1]], *numbers))
    columns = [*KEYS, "label", "n", "right", "accuracy", "low", "high"]
    return ordered(counts, pd.DataFrame(rows, columns=columns))


@dataclass(frozen=True)
class _Groups:
    """Right answers per group (trained_on × condition) and class, and the accuracies of the groups."""

    keys: list[tuple[str, str]]
    n: Floats
    right: Floats
    value: Floats
    low: Floats
    high: Floats

    def accuracy(self, at: int) -> CountedEstimate:
        """Return the accuracy of a group."""
        value, low, high = (float(values[at]) for values in (self.value, self.low, self.high))
        return CountedEstimate(value, low, high, int(self.n[at].sum()))


def accuracies(answers: Answers, *, average: Average = "macro") -> dict[tuple[str, str], CountedEstimate]:
    """Return (trained_on, condition) → accuracy."""
    groups = _accuracies(answers, *_group(answers), average)
    return {key: groups.accuracy(at) for at, key in enumerate(groups.keys)}


def pooled_accuracy(
    answers: Answers, *, average: Average = "macro", level: float = 0.95, cluster: Codes | None = None
) -> CountedEstimate:
    """Return the accuracy over all cells; NaN if there are none. ``cluster``: (cells,) clusters of images."""
    if not len(answers.n):
        return CountedEstimate(float("nan"), float("nan"), float("nan"), 0)
    group = np.zeros(len(answers.n), np.intp)
    return _accuracies(answers, group, [("", "")], average, cluster, level).accuracy(0)


def pooled_influence(answers: Answers) -> Floats:
    """Return what each image adds to the deviation of ``pooled_accuracy`` from the truth, (sources,)."""
    classes = len(answers.labels)
    n, right = (sums(answers.label, values, classes) for values in (answers.n, answers.right))
    share = right / np.maximum(n, 1)
    noise = (answers.right - share[answers.label] * answers.n) / (n[answers.label] * (n > 0).sum())
    return sums(answers.source, noise, len(answers.sources))


def _group(answers: Answers) -> tuple[Codes, list[tuple[str, str]]]:
    width = len(answers.conditions)
    present, group = np.unique(answers.trained_on * np.intp(width) + answers.condition, return_inverse=True)
    return group, [(answers.trained[at // width], answers.conditions[at % width]) for at in present.tolist()]


def _accuracies(
    answers: Answers,
    group: Codes,
    keys: list[tuple[str, str]],
    average: Average,
    cluster: Codes | None = None,
    level: float = 0.95,
) -> _Groups:
    count, classes = len(keys), len(answers.labels)
    cell = group * np.intp(classes) + answers.label
    n, right = (sums(cell, values, count * classes).reshape(count, classes) for values in (answers.n, answers.right))
    stratum = (answers.label, classes) if average == "macro" else None
    effect = design_effects(
        answers.right, answers.n, group, count, stratum=stratum, source=answers.source, donor=answers.donor,
        cluster=cluster,
    )  # fmt: skip
    if average == "macro":
        has_rows = n > 0
        share = np.divide(right, n, out=np.zeros_like(n), where=has_rows)
        value = share.sum(axis=1) / has_rows.sum(axis=1)
        low, high = stratified_rows(right / effect[:, None], n / effect[:, None], level)
    else:
        value = right.sum(axis=1) / n.sum(axis=1)
        low, high = wilson_at(right.sum(axis=1) / effect, n.sum(axis=1) / effect, _quantile(level))
    return _Groups(keys, n, right, value, low, high)


def summary(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    clusters: Mapping[str, str] | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Return the accuracy per model × trained_on × condition.

    Columns: ``n`` rows; ``accuracy`` with ``low`` and ``high`` (``level``), stratified (macro) or Wilson's (micro), on
    n / (design effect) if rows depend on each other; ``worst_class`` with its accuracy and a simultaneous interval,
    because the worst was picked by looking; ``worst_group`` and ``worst_group_donor``: class and background class with
    the lowest accuracy among those with ≥ 5 images. ``clusters``: source_id → cluster, for images that are not
    independent; by default, those of the counts.
    """
    clusters = counts.clusters if clusters is None else clusters
    rows = []
    for model in counts.models:
        answers = from_counts(counts, model, outcome=outcome)
        if not len(answers.n):
            continue
        group, keys = _group(answers)
        cluster = None if clusters is None else cluster_codes(answers.sources, clusters)[answers.source]
        groups = _accuracies(answers, group, keys, average, cluster, level)
        photo = answers.source if cluster is None else cluster
        for at, (trained_on, condition) in enumerate(keys):
            row: dict[str, object] = {"model": model, "trained_on": trained_on, "condition": condition}
            own = groups.accuracy(at)
            row |= {"n": own.n, "accuracy": own.value, "low": own.low, "high": own.high}
            rows.append(row | _worst_class(answers, group == at, photo) | _worst_group(answers, group == at, photo))
    return ordered(counts, pd.DataFrame(rows))


def design_effects(
    right: Floats,
    n: Floats,
    group: Codes,
    groups: int,
    *,
    source: Codes,
    stratum: tuple[Codes, int] | None = None,
    donor: Codes | None = None,
    cluster: Codes | None = None,
) -> Floats:
    """Return how many times larger each group's variance is than that of as many independent rows; at least 1.

    The cluster variance (two-way over image and donor, as in ``bootstrap.two_way``) over the binomial one. If the
    binomial variance is 0 (all right or all wrong), the number of rows per image, which is the most it could be.
    ``stratum``: classes around whose accuracies answers vary, and how many there are; None: around the group's.
    ``cluster``: (cells,) clusters of images, in place of the images themselves.
    """
    number, count = stratum or (np.zeros(len(n), np.intp), 1)
    cell = group * np.intp(count) + number
    rows, hits = (sums(cell, values, groups * count) for values in (n, right))
    share = np.divide(hits, rows, out=np.zeros_like(rows), where=rows > 0)
    residual = right - share[cell] * n
    expected = (rows * share * (1 - share)).reshape(groups, count).sum(axis=1)
    total = rows.reshape(groups, count).sum(axis=1)
    photo = source if cluster is None else cluster
    variance, photos = _squares(residual, group, groups, photo)
    few = photos / np.maximum(photos - 1.0, 1.0)
    lent = np.zeros(len(n), bool) if donor is None else donor >= 0
    has_donors = np.bincount(group, lent, groups) > 0
    if donor is not None and has_donors.any():
        lender = lenders(donor, source)
        assert lender is not None
        key = codes(group * (np.intp(lender.max()) + 1) + lender)[0]
        part = sums(key, n, int(key.max()) + 1)[key] / total[group]
        over_lenders, _ = _squares(residual / others_share(part), group, groups, lender)
        over_cells, _ = _squares(residual, group, groups, photo * (np.intp(lender.max()) + 1) + lender)
        both = np.maximum(variance + over_lenders - over_cells, np.minimum(variance, over_lenders))
        variance = np.where(has_donors, both, variance)
        # Σ over cells of share · n / total is Σ over lenders of share²
        freedom = np.maximum(1 / np.maximum(np.bincount(group, part * n / total[group], groups), 1e-9) - 1, 1.0)
        few_donors = np.square(scipy_special.stdtrit(np.minimum(freedom, np.maximum(photos - 1, 1)), 0.975) / Z)
        few = np.where(has_donors, few_donors, few)
    ratio = np.divide(variance * few, expected, out=np.ones(groups), where=expected > 0)
    per_photo = np.divide(total, photos, out=np.ones(groups), where=photos > 0)
    effect = np.where(expected > 0, np.maximum(ratio, 1.0), per_photo)
    alone = (total == photos) & ~has_donors if cluster is None else np.zeros(groups, bool)
    return np.where(alone, 1.0, effect)


def _squares(values: Floats, group: Codes, groups: int, cluster: Codes) -> tuple[Floats, Codes]:
    """Return Σ over each group's clusters of (sum of the cluster's values)², and how many clusters each group has."""
    width = np.intp(cluster.max(initial=0)) + 1
    number, count = codes(group * width + cluster)
    owner = np.zeros(count, np.intp)
    owner[number] = group
    return sums(owner, sums(number, values, count) ** 2, groups), np.bincount(owner, minlength=groups)


def design_effect(rows: pd.DataFrame, column: str, *, by_class: bool, donors: bool = True) -> float:
    """Return the design effect of a frame of cells: ``design_effects`` of one group."""
    label, labels = numbered_column(rows, "label")
    effects = design_effects(
        rows[column].to_numpy(np.float64),
        rows["n"].to_numpy(np.float64),
        np.zeros(len(rows), np.intp),
        1,
        source=numbered_column(rows, "source_id")[0],
        stratum=(label, len(labels)) if by_class else None,
        donor=numbered_column(rows, "donor_id")[0] if donors else None,
    )
    return float(effects[0])


def cluster_codes(sources: list[str], clusters: Mapping[str, str]) -> Codes:
    """Return the cluster of each image, as codes."""
    missing = [source for source in sources if source not in clusters]
    if missing:
        raise UserError(f"clusters has no entry for the image {missing[0]!r}; name one for each")
    return codes(np.array([clusters[source] for source in sources], object))[0]


def ordered(counts: Counts, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with keys as text, sorted by model and then by condition in the order asked for."""
    for key in [*KEYS, "label"]:
        if key in frame:
            frame[key] = frame[key].astype(str)
    if frame.empty:
        return frame
    position = {condition: number for number, condition in enumerate(counts.conditions)}
    by = [key for key in ("model", "trained_on", "condition", "label") if key in frame]
    frame = frame.sort_values(by, key=lambda key: key.map(position) if key.name == "condition" else key)
    return frame.reset_index(drop=True)


def _quantile(level: float) -> float:
    if not 0 < level < 1:
        raise UserError(f"the confidence level must be between 0 and 1, not {level}")
    return float(scipy_special.ndtri((1 + level) / 2))


def _worst_class(answers: Answers, own: NDArray[np.bool_], photo: Codes) -> dict[str, object]:
    classes, number = np.unique(answers.label[own], return_inverse=True)
    n, right = (sums(number, values[own], len(classes)) for values in (answers.n, answers.right))
    worst, accuracy = _worst(right, n, _photos(number, photo[own], len(classes)))
    return {"worst_class": answers.labels[classes[worst]], **accuracy.row("worst_class_accuracy", "worst_class_")}


def _worst_group(answers: Answers, own: NDArray[np.bool_], photo: Codes) -> dict[str, object]:
    own = own & (answers.donor_label >= 0)
    width = len(answers.donor_labels)
    key, number = np.unique(answers.label[own] * np.intp(max(width, 1)) + answers.donor_label[own], return_inverse=True)
    n, right = (sums(number, values[own], len(key)) for values in (answers.n, answers.right))
    enough = n >= GROUP_MINIMUM
    names, count, accuracy = ("", ""), 0, NO_ESTIMATE
    if enough.any():
        worst, accuracy = _worst(right[enough], n[enough], _photos(number, photo[own], len(key))[enough])
        label, donor = divmod(int(key[enough][worst]), width)
        names, count = (answers.labels[label], answers.donor_labels[donor]), int(n[enough][worst])
    group = {"worst_group": names[0], "worst_group_donor": names[1], "worst_group_n": count}
    return group | accuracy.row("worst_group_accuracy", "worst_group_")


def _photos(number: Codes, photo: Codes, count: int) -> Floats:
    """Return how many different images each group has."""
    width = np.intp(photo.max(initial=0)) + 1
    return np.bincount(np.unique(number * width + photo) // width, minlength=count).astype(np.float64)


def _worst(right: Floats, n: Floats, photos: Floats) -> tuple[int, Estimate]:
    """Return the place of the least accuracy (among equals of the most images), and it with a simultaneous interval.

    Several rows of an image count as one.
    """
    worst = int(np.lexsort((-n, right / n))[0])
    size = min(n[worst], photos[worst])
    ends = exact(right[worst] / n[worst] * size, size, 1 - 0.05 / len(n))
    return worst, Estimate(float(right[worst] / n[worst]), *map(float, ends))
