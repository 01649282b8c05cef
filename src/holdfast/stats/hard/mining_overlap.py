"""Do models fail on the same images, because they are related, and still when a prompt is painted again?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.lazy import pd
from holdfast.stats.core.bootstrap import (
    NO_ESTIMATE,
    RESAMPLES,
    Floats,
    codes,
    estimated,
    interval,
    ratio,
    resampled_sums,
)
from holdfast.stats.hard.mining import share

PERMUTATIONS = 5_000  # Of models, to judge a difference; all of them if there are no more


def overlap(
    images: pd.DataFrame, failed: pd.DataFrame, models: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Return for every two models how far they fail on the same images.

    ``both``, ``either`` images; ``jaccard`` = both / either; ``by_chance``: what it would be if they failed
    independently; ``second_given_first``, ``first_given_second``; ``kappa``: Cohen's κ of right and wrong. Intervals
    from resampled prompts; NaN if a value is not defined (a model that never fails).
    """
    rows = []
    for first, second in combinations(models, 2):
        table = _cells(failed[first].to_numpy(bool), failed[second].to_numpy(bool))
        total = table.sum(axis=0, keepdims=True)
        drawn = resampled_sums(table, images["prompt_id"].to_numpy(), resamples=resamples, seed=seed)
        both, first_only, second_only = (float(value) for value in total[0, :3])
        p, q = (both + first_only) / total.sum(), (both + second_only) / total.sum()
        either = int(both + first_only + second_only)
        row: dict[str, Any] = {"first": first, "second": second, "both": int(both), "either": either}
        for name, statistic in (("jaccard", _jaccard), ("kappa", _kappa)):
            row |= estimated(statistic(total)[0], statistic(drawn)).row(name)
        row["by_chance"] = p * q / (p + q - p * q) if p + q > 0 else np.nan
        row["second_given_first"] = both / (both + first_only) if both + first_only else np.nan
        row["first_given_second"] = both / (both + second_only) if both + second_only else np.nan
        rows.append(row)
    return pd.DataFrame(rows)


def _cells(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> Floats:
    """Return (images, 4): both fail, only the first, only the second, neither."""
    return np.stack([first & second, first & ~second, ~first & second, ~first & ~second], axis=1).astype(np.float64)


def _jaccard(sums: Floats) -> Floats:
    return ratio(sums[:, 0], sums[:, :3].sum(axis=1))


def _kappa(sums: Floats) -> Floats:
    total = sums.sum(axis=1)
    first, second = (sums[:, 0] + sums[:, 1]) / total, (sums[:, 0] + sums[:, 2]) / total
    chance = first * second + (1 - first) * (1 - second)
    agreed = (sums[:, 0] + sums[:, 3]) / total
    known = 1 - chance > 1e-12
    return np.asarray(np.divide(agreed - chance, 1 - chance, out=np.full(len(sums), np.nan), where=known))


def by_kin(
    images: pd.DataFrame,
    failed: pd.DataFrame,
    surrogates: Sequence[str],
    targets: Sequence[str],
    facts: pd.DataFrame,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return whether a surrogate and a target agree more (κ of failures) if they have something in common.

    A row per fact: mean κ of the pairs that share it (``same``) and of the others (``different``); ``estimate`` = same
    − different with an interval from resampled prompts (so for these models); ``p``: share of permutations of the fact
    over the models with a difference at least as large either way, which is the question for other models. ``facts``:
    index model, a column per fact; empty text for unknown.
    """
    pairs = [(surrogate, target) for surrogate in surrogates for target in targets]
    tables = np.concatenate(
        [_cells(failed[surrogate].to_numpy(bool), failed[target].to_numpy(bool)) for surrogate, target in pairs], axis=1
    )
    drawn = resampled_sums(tables, images["prompt_id"].to_numpy(), resamples=resamples, seed=seed)
    drawn = drawn.reshape(len(drawn), len(pairs), 4)
    kappas = np.stack([_kappa(drawn[:, place]) for place in range(len(pairs))], axis=1)
    observed = np.array([_kappa(part.sum(axis=0, keepdims=True))[0] for part in np.split(tables, len(pairs), axis=1)])
    models = [*surrogates, *targets]
    rows = []
    for fact in facts.columns:
        value_of = {model: str(facts.at[model, fact]) for model in models}
        known = np.array([bool(value_of[surrogate] and value_of[target]) for surrogate, target in pairs]) & np.isfinite(
            observed
        )
        alike = np.array([value_of[surrogate] == value_of[target] for surrogate, target in pairs])
        same, different = known & alike, known & ~alike
        row: dict[str, Any] = {"fact": fact, "pairs_same": int(same.sum()), "pairs_different": int(different.sum())}
        row |= {"same": _mean(observed[same]), "different": _mean(observed[different])}
        reason = "" if same.any() and different.any() else "all pairs are alike" if same.any() else "no pair shares it"
        row |= {"estimate": row["same"] - row["different"], "low": np.nan, "high": np.nan, "p": np.nan}
        if not reason:
            row["low"], row["high"] = interval(kappas[:, same].mean(axis=1) - kappas[:, different].mean(axis=1))
            row["p"] = _permutation_p(value_of, models, pairs, observed, known, seed)
        rows.append(row | {"reason": reason})
    return pd.DataFrame(rows)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _permutation_p(
    value_of: dict[str, str],
    models: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    observed: Floats,
    known: NDArray[np.bool_],
    seed: int,
) -> float:
    """Return p of permuting facts over models: pairs that share a model are not independent."""
    values, _ = codes([value_of[model] for model in models])
    place = {model: number for number, model in enumerate(models)}
    ends = np.array([(place[surrogate], place[target]) for surrogate, target in pairs])[known]
    kappa = observed[known]

    def gap(order: NDArray[np.intp]) -> float:
        alike = order[ends[:, 0]] == order[ends[:, 1]]
        if alike.all() or not alike.any():
            return float("nan")
        return float(kappa[alike].mean() - kappa[~alike].mean())

    if factorial(len(models)) <= PERMUTATIONS:
        orders = [np.array(order) for order in permutations(values)]
    else:
        rng = np.random.default_rng(seed)
        orders = [values, *(rng.permutation(values) for _ in range(PERMUTATIONS - 1))]
    gaps = np.array([gap(order) for order in orders])
    gaps = gaps[np.isfinite(gaps)]
    return float((np.abs(gaps) >= abs(gap(values)) - 1e-12).mean())


def persistence(
    pool: pd.DataFrame, hard: pd.DataFrame, again: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Any]:
    """Return what of a failure is the prompt's, and what was luck of the seed.

    Each frame has ``prompt_id`` and ``failed``: the unmined pool, the mined images, and new images of their prompts.
    ``estimate``: share of the new images that fail, with ``low`` and ``high``; ``pool`` and ``mined``: the shares
    before; ``lasting`` = (estimate − pool) / (mined − pool): 1 if failing belongs to the prompt, 0 if it was
    luck alone, with interval from resampled prompts.
    """
    shares = {name: share(frame["failed"], frame["prompt_id"]) for name, frame in (("pool", pool), ("mined", hard))}
    row = share(again["failed"], again["prompt_id"]) | {name: share_of["estimate"] for name, share_of in shares.items()}
    parts = []
    for place, frame in enumerate((pool, hard, again)):
        columns = np.zeros((len(frame), 6))
        columns[:, 2 * place] = frame["failed"]
        columns[:, 2 * place + 1] = 1
        parts.append(columns)
    table = np.concatenate(parts)
    prompts = np.concatenate([frame["prompt_id"].to_numpy(object) for frame in (pool, hard, again)])
    value = _lasting(table.sum(axis=0, keepdims=True))[0]
    nothing = np.full(resamples, np.nan)
    drawn = _lasting(resampled_sums(table, prompts, resamples=resamples, seed=seed)) if np.isfinite(value) else nothing
    return row | estimated(value, drawn).row("lasting")


def _lasting(sums: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        pool, mined, again = (sums[:, place] / sums[:, place + 1] for place in (0, 2, 4))
        value = (again - pool) / (mined - pool)
    return np.where(np.isfinite(value) & (mined > pool), value, np.nan)


def intraclass(failed: ArrayLike, prompts: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, float]:
    """Return how alike the images of one prompt are in failing: the intraclass correlation.

    ρ = (B − W) / (B + (n₀ − 1) W), B and W the mean squares between and within prompts, n₀ = (N − Σ nᵢ²/N)/(G − 1). 0:
    luck of the seed; 1: a prompt fails always or never. ``estimate``, ``low``, ``high`` (resampled prompts); NaN if
    no prompt has two images.
    """
    hits = np.asarray(failed, np.float64)
    number, count = codes(prompts)
    sizes = np.bincount(number, minlength=count).astype(np.float64)
    sums = np.bincount(number, hits, count)
    # Sums over prompts: 1, n, n², Σx (= Σx² for 0 and 1), (Σx)²/n.
    table = np.stack([np.ones(count), sizes, sizes**2, sums, sums**2 / sizes], axis=1)
    value = _correlation(table.sum(axis=0, keepdims=True))[0]
    if not np.isfinite(value):
        return NO_ESTIMATE.row("estimate", "")
    drawn = resampled_sums(table, np.arange(count), resamples=resamples, seed=seed)
    return estimated(value, _correlation(drawn)).row("estimate", "")


def _correlation(sums: Floats) -> Floats:
    groups, total, squares, hits, between = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        within = (hits - between) / (total - groups)
        among = (between - hits**2 / total) / (groups - 1)
        size = (total - squares / total) / (groups - 1)
        return np.asarray((among - within) / (among + (size - 1) * within))
