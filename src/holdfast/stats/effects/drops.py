"""What a condition costs: differences of accuracies, paired on the photo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import RESAMPLES, Codes, Floats, codes, deviations, interval
from holdfast.stats.core.cells import Average, cluster_of, ordered, summary
from holdfast.stats.core.reduce import Counts, Outcome, right_column

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_TEST_SHARE = 0.2
"""Share of the photos tested in each training run, where the folds do not show it (80/20 split)."""

_COLUMNS = ["model", "trained_on", "condition", "n", "original", "accuracy", "drop", "low", "high", "lost", "gained"]
_COLUMNS += ["p", "method"]


@dataclass(frozen=True)
class Effect:
    """A difference of two shares on the same photos, 0..1, with its 95 % interval.

    ``n`` photos; ``first`` and ``second`` the two shares; ``value`` = first − second; ``fell`` and ``rose``: photos
    (or clusters of them) for which the second was lower or higher; ``p``: exact McNemar.
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


_NOTHING = float("nan")
NO_EFFECT = Effect(0, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, 0, 0, _NOTHING)
"""Nothing was measured."""


def drops(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    resamples: int = RESAMPLES,
    seed: int = 0,
    clusters: Mapping[str, str] | None = None,
    test_share: float | None = None,
) -> pd.DataFrame:
    """Accuracy lost against the original, on the photos that have both.

    A row per model × trained_on × condition. Columns: ``n`` photos with both; ``original`` and ``accuracy`` on them;
    ``drop`` = original − accuracy with ``low`` and ``high`` (95 %); ``lost`` and ``gained``: photos answered rightly
    only before, only after; ``p``: exact McNemar (two-sided sign test on lost and gained); ``method``: how the
    interval was made.

    Args:
        counts: from ``reduce``.
        outcome: which answers count as right.
        average: macro (every class weighs the same) or micro.
        resamples: bootstrap resamples.
        seed: of the bootstrap.
        clusters: source_id → cluster for photos that are not independent: the prompt pair of generated images.
        test_share: share of the photos tested by each training run, for models trained on several folds or seeds;
            read off the folds where they do not overlap.
    """
    import pandas as pd

    column = right_column(outcome)
    rows = []
    for (model, trained_on), cells in counts.cells.groupby(["model", "trained_on"], observed=True):
        original = cells[cells["condition"] == ORIGINAL]
        for condition, changed in cells[cells["condition"] != ORIGINAL].groupby("condition", observed=True):
            effect = paired_effect(
                original, changed, column, average=average, resamples=resamples, seed=seed, clusters=clusters
            )
            if effect.n == 0:
                continue
            low, high, method = effect.low, effect.high, _method(changed, clusters)
            folds = sorted(set(original["fold"]) & set(changed["fold"]))
            if trained_on and len(folds) > 1:
                low, high = _over_folds(original, changed, column, average, folds, test_share)
                method = f"{len(folds)} trainings, Nadeau–Bengio"
            shares = (effect.n, effect.first, effect.second, effect.value, low, high)
            rows.append((model, trained_on, condition, *shares, effect.fell, effect.rose, effect.p, method))
    return ordered(counts, pd.DataFrame(rows, columns=_COLUMNS))


def unpaired_drops(
    counts: Counts,
    *,
    reference: str = ORIGINAL,
    outcome: Outcome = "full",
    average: Average = "macro",
    clusters: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Accuracy lost against a condition made of other photos: generated images against real ones.

    Columns: ``n_reference``, ``n``; ``reference`` and ``accuracy``; ``drop`` = reference − accuracy with ``low`` and
    ``high`` (95 %), Newcombe's hybrid of the two intervals of ``summary``: with (l₁, u₁) around p₁ and (l₂, u₂) around
    p₂, low = d − √((p₁ − l₁)² + (u₂ − p₂)²), high = d + √((u₁ − p₁)² + (p₂ − l₂)²). ``clusters`` (source_id → prompt
    pair) makes images of one prompt pair count as one cluster.
    """
    scores = summary(counts, outcome=outcome, average=average, clusters=clusters)
    scores = scores[["model", "trained_on", "condition", "n", "accuracy", "low", "high"]]
    before = scores[scores["condition"] == reference].drop(columns="condition")
    frame = scores[scores["condition"] != reference].merge(
        before, on=["model", "trained_on"], suffixes=("", "_reference")
    )
    frame["reference"] = frame["accuracy_reference"]
    frame["drop"] = frame["reference"] - frame["accuracy"]
    down = np.hypot(frame["reference"] - frame["low_reference"], frame["high"] - frame["accuracy"])
    up = np.hypot(frame["high_reference"] - frame["reference"], frame["accuracy"] - frame["low"])
    frame["low"], frame["high"] = frame["drop"] - down, frame["drop"] + up
    columns = ["model", "trained_on", "condition", "n_reference", "n", "reference", "accuracy", "drop", "low", "high"]
    return ordered(counts, frame[columns])


def paired_effect(
    first: pd.DataFrame,
    second: pd.DataFrame,
    column: str,
    *,
    second_column: str | None = None,
    average: Average = "macro",
    resamples: int = RESAMPLES,
    seed: int = 0,
    clusters: Mapping[str, str] | None = None,
) -> Effect:
    """The difference of two shares on the photos that both sets of cells have, of one model.

    A photo's share is ``column`` over ``n``, added up over its cells. The estimate is the mean of the photos'
    differences (micro) or the mean over classes of their means (macro). The interval is a cluster bootstrap over
    photos, two-way with the donors where there are any, with one imagined photo that fell and one that rose (weight
    1/m each, m the effective number of photos): Bonett and Price's adjustment, which keeps the interval honest when
    few or no photos changed, where a plain bootstrap says ± 0.

    Args:
        first: cells of one condition.
        second: cells of the other.
        column: what is counted.
        second_column: what is counted in ``second``, where it is something else.
        average: macro or micro.
        resamples: bootstrap resamples.
        seed: of the bootstrap.
        clusters: source_id → cluster.
    """
    paired = _pair(first, second, column, second_column or column, average)
    if paired is None:
        return NO_EFFECT
    size = 1 / float(np.square(paired.weight).sum())
    shrunk = paired.value * size / (size + 2)
    source = cluster_of(paired.source, clusters)
    strayed = deviations(
        paired.residual,
        source,
        paired.donor,
        extra=[(1 - shrunk) / size, (-1 - shrunk) / size],
        freedom=paired.freedom,
        resamples=resamples,
        seed=seed,
    )
    bounds = interval(shrunk + strayed * size / (size + 2))
    # the shrunk centre must not push the estimate itself out of its interval
    low, high = max(min(float(bounds[0]), paired.value), -1.0), min(max(float(bounds[1]), paired.value), 1.0)
    fell, rose = paired.changes(clusters)
    return Effect(
        len(paired.change), paired.first, paired.second, paired.value, low, high, fell, rose, mcnemar(fell, rose)
    )


def mcnemar(fell: int, rose: int) -> float:
    """Exact McNemar: two-sided binomial test that a photo that changed was as likely to fall as to rise."""
    from scipy.stats import binomtest

    return float(binomtest(fell, fell + rose).pvalue) if fell + rose else 1.0


def corrected_resampled_interval(
    differences: ArrayLike, *, test_share: float, level: float = 0.95
) -> tuple[float, float]:
    """The interval of a mean difference over training runs that share training photos (Nadeau and Bengio 2003).

    mean ± t(k − 1) · √((1/k + s/(1 − s)) · variance), k runs, s the share of photos tested in each: 1/k for k-fold
    cross-validation. The plain 1/k would pretend that the runs were independent.
    """
    from scipy.stats import t

    values = np.asarray(differences, np.float64)
    if len(values) < 2:
        raise UserError("an interval over training runs needs two runs or more")
    if not 0 < test_share < 1:
        raise UserError(f"test_share is the share of photos tested in each run, between 0 and 1; {test_share} is not")
    factor = 1 / len(values) + test_share / (1 - test_share)
    half = float(t.ppf((1 + level) / 2, len(values) - 1)) * float(np.sqrt(factor * values.var(ddof=1)))
    return float(values.mean()) - half, float(values.mean()) + half


@dataclass(frozen=True)
class _Paired:
    """Photos that two conditions share, and the residuals of their cells.

    ``weight`` (photos,): of each in the mean; ``freedom``: Satterthwaite's degrees of freedom, for classes of unlike
    sizes with a variance alike; ``change``: first − second by source_id. ``residual`` (cells,): weight ×
    ± (the cell's part of its photo's share − what the class has on average), so that the sum over a photo is the
    photo's deviation and the sum over a donor the donor's; ``source`` and ``donor`` (cells,).
    """

    first: float
    second: float
    value: float
    weight: Floats
    freedom: float
    change: pd.Series
    residual: Floats
    source: pd.Series
    donor: pd.Series | None

    def changes(self, clusters: Mapping[str, str] | None) -> tuple[int, int]:
        """How many photos, or clusters of them, fell and how many rose."""
        names = cluster_of(self.change.index.to_series(), clusters).to_numpy()
        signs = np.sign(self.change.groupby(names).sum().round(9))
        return int((signs > 0).sum()), int((signs < 0).sum())


def _pair(
    first: pd.DataFrame, second: pd.DataFrame, column: str, second_column: str, average: Average
) -> _Paired | None:
    """None where the two have no photo in common."""
    import pandas as pd

    text = {
        name: np.concatenate([first[name].to_numpy(object), second[name].to_numpy(object)])
        for name in ("source_id", "label", "donor_id")
    }
    fold = np.concatenate([first["fold"], second["fold"]]).astype(np.intp)
    n = np.concatenate([first["n"], second["n"]]).astype(float)
    hits = np.concatenate([first[column], second[second_column]]).astype(float)
    side = np.repeat([0, 1], [len(first), len(second)])
    photo, count = codes(codes(text["source_id"])[0] * np.intp(2**31) + fold)
    totals = np.stack([np.bincount(photo[side == one], n[side == one], count) for one in (0, 1)])
    both = np.asarray((totals > 0).all(axis=0))[photo]
    if not both.any():
        return None
    side, hits, n = side[both], hits[both], n[both]
    source, donor = pd.Series(text["source_id"][both]), pd.Series(text["donor_id"][both])
    total = totals[side, photo[both]]
    photo, count = codes(photo[both])
    share, part = hits / total, n / total
    shares = np.stack([np.bincount(photo[side == one], share[side == one], count) for one in (0, 1)])
    stratum = np.zeros(count, np.intp)
    if average == "macro":
        stratum[photo] = codes(text["label"][both])[0]
    sizes = np.bincount(stratum)
    weight = 1 / (sizes[stratum] * len(sizes))
    freedom = float((1 / sizes).sum() ** 2 / (1 / (sizes**2 * np.maximum(sizes - 1, 0.5))).sum())
    means = np.stack([np.bincount(stratum, one) / sizes for one in shares])
    # a class's only photo has no deviation from the class's mean: take the mean of all
    means[:, sizes == 1] = shares.mean(axis=1)[:, None]
    # n / (n − 1): deviations from a class's own mean are smaller than from the true one
    scale = weight * np.sqrt(sizes / np.maximum(sizes - 1, 1))[stratum]
    sign = np.where(side == 0, 1.0, -1.0)
    residual = scale[photo] * sign * (share - part * means[side, stratum[photo]])
    before, after = (float((one * weight).sum()) for one in shares)
    kept, residual = join_lent(residual, part, photo, donor.notna().to_numpy())
    change = pd.Series(shares[0] - shares[1]).groupby(source[np.unique(photo, return_index=True)[1]].to_numpy()).sum()
    lender = donor[kept].fillna("of " + source[kept]) if donor.notna().any() else None
    return _Paired(before, after, before - after, weight, freedom, change, residual[kept], source[kept], lender)


def join_lent(
    residual: Floats, part: Floats, photo: Codes, lent: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], Floats]:
    """Cells without a donor (originals) join those of the same photo that have one.

    So the sum over a donor holds whole differences, not only what the pasted scenes did. Returns which cells are
    left, and the residuals.
    """
    count = int(photo.max()) + 1
    parts = np.bincount(photo[lent], part[lent], count)
    alone = np.bincount(photo[~lent], residual[~lent], count)
    shared = np.divide(part, parts[photo], out=np.zeros_like(part), where=parts[photo] > 0)
    return lent | (parts[photo] == 0), residual + np.where(lent, alone[photo] * shared, 0.0)


def _over_folds(
    original: pd.DataFrame,
    changed: pd.DataFrame,
    column: str,
    average: Average,
    folds: list[int],
    test_share: float | None,
) -> tuple[float, float]:
    """Nadeau and Bengio's interval over the drops of the training runs."""
    differences, sizes = [], []
    for fold in folds:
        paired = _pair(original[original["fold"] == fold], changed[changed["fold"] == fold], column, column, average)
        if paired is not None:
            differences.append(paired.value)
            sizes.append(len(paired.change))
    photos = original.loc[original["fold"].isin(folds), "source_id"].nunique()
    disjoint = sum(sizes) <= photos
    share = test_share or (float(np.mean(sizes)) / photos if disjoint else DEFAULT_TEST_SHARE)
    return corrected_resampled_interval(differences, test_share=share)


def _method(changed: pd.DataFrame, clusters: Mapping[str, str] | None) -> str:
    kind = "photos" if clusters is None else "clusters"
    return f"bootstrap over {kind} and donors" if changed["donor_id"].notna().any() else f"bootstrap over {kind}"
