"""Mined sets: how hard they are, where their images come from, which images are kept, and their matched control.

Everything here reads two frames with the same index, a row per image: ``images`` (prompt_id, category, kind, nuisance,
valid) and ``failed`` (a column per model, true if it is wrong).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import seed_from
from holdfast.core.lazy import pd
from holdfast.stats.core.bootstrap import NO_ESTIMATE, Estimate, codes, sums
from holdfast.stats.core.cells import newcombe, wilson


def shared(failed: pd.DataFrame, surrogates: Sequence[str], at_least: int) -> pd.Series:
    """Return which images at least so many of the surrogates get wrong."""
    if not 1 <= at_least <= len(surrogates):
        raise UserError(f"at_least must be between 1 and the number of surrogates ({len(surrogates)}), not {at_least}")
    return failed[list(surrogates)].sum(axis=1) >= at_least


def share(hits: ArrayLike, clusters: ArrayLike, *, level: float = 0.95) -> dict[str, Any]:
    """Return a share of images with its interval: ``n``, ``prompts``, ``estimate``, ``low``, ``high``.

    Wilson's interval on the effective number n / D. D = (cluster variance) / (binomial variance), at least 1, is how
    much less images of one prompt count than images of as many prompts; if all are hits or none, the number
    of images per prompt: the most it could be. So a share of 0 or 1 keeps a width, if a bootstrap would have none.
    """
    hit = np.asarray(hits, np.float64)
    if not len(hit):
        return {"n": 0, "prompts": 0, **NO_ESTIMATE.row("estimate", "")}
    number, count = codes(clusters)
    mean = float(hit.mean())
    expected = len(hit) * mean * (1 - mean)
    effect = len(hit) / count
    if expected > 0:
        effect = float(np.square(sums(number, hit - mean, count)).sum()) * count / max(count - 1, 1) / expected
    size = len(hit) / max(effect, 1.0)
    estimate = Estimate(mean, *map(float, wilson(mean * size, size, level)))
    return {"n": len(hit), "prompts": count, **estimate.row("estimate", "")}


def difference(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> Estimate:
    """Return first − second of two rows of ``share`` with Newcombe's hybrid interval, as for independent shares.

    A hard set and its pool share images, and a hard set and its control share prompts; both make the true interval
    narrower, so this one is rather too wide.
    """
    ends = ([row[name] for name in ("estimate", "low", "high")] for row in (first, second))
    return Estimate(*map(float, newcombe(*ends)))


def accuracies(
    images: pd.DataFrame, failed: pd.DataFrame, sets: Mapping[str, pd.Series], models: Sequence[str]
) -> pd.DataFrame:
    """Return the accuracy of each model on each set of images."""
    rows = [
        {"model": model, "set": name} | share(~failed.loc[inside, model], images.loc[inside, "prompt_id"])
        for model in models
        for name, inside in sets.items()
    ]
    return pd.DataFrame(rows)


def drops(accuracy: pd.DataFrame, *, of: str = "hard", against: Sequence[str] = ("pool", "control")) -> pd.DataFrame:
    """Return what each model loses on one set against others: model, against, estimate, low, high.

    Positive if the model is less accurate on ``of``. Takes the table of ``accuracies``.
    """
    cells = {(row["model"], row["set"]): row for row in accuracy.to_dict("records")}
    rows = [
        {"model": model, "against": other} | difference(cells[model, other], cells[model, of]).row("estimate", "")
        for model in dict.fromkeys(accuracy["model"])
        for other in against
        if (model, other) in cells
    ]
    return pd.DataFrame(rows, columns=["model", "against", "estimate", "low", "high"])


def rates(images: pd.DataFrame, hard: pd.Series, by: str) -> pd.DataFrame:
    """Return the hard rate of every value of a column (kind, nuisance, category), the highest first.

    Columns: ``value``; ``n`` images of the pool, ``prompts``, ``hard`` of them; ``estimate`` = hard / n with its
    interval; ``excess``: that less the rate of all other images, with an interval at level 1 − 0.05/V, because V
    values are looked at; ``stands_out``: over, under, or '' if that interval holds 0.
    """
    values = sorted(set(images[by]))
    strict = 1 - 0.05 / max(len(values), 1)
    rows = []
    for value in values:
        inside = images[by] == value
        own = share(hard[inside], images.loc[inside, "prompt_id"])
        row: dict[str, Any] = {"value": value, "hard": int(hard[inside].sum())} | own
        excess = NO_ESTIMATE
        if not inside.all():
            both = [share(hard[part], images.loc[part, "prompt_id"], level=strict) for part in (inside, ~inside)]
            excess = difference(*both)
        stands_out = "over" if excess.low > 0 else "under" if excess.high < 0 else ""
        rows.append(row | excess.row("excess") | {"stands_out": stands_out})
    columns = ["value", "n", "prompts", "hard", "estimate", "low", "high", "excess", "excess_low", "excess_high"]
    frame = pd.DataFrame(rows, columns=[*columns, "stands_out"])
    return frame.sort_values(["estimate", "value"], ascending=[False, True]).reset_index(drop=True)


def validity(images: pd.DataFrame, groups: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Return the share of images that the oracle accepts in each group: ``set``, and the columns of ``share``."""
    return pd.DataFrame(
        [
            {"set": name} | share(images.loc[inside, "valid"], images.loc[inside, "prompt_id"])
            for name, inside in groups.items()
        ]
    )


CHOOSE, REPORT = "choose", "report"
"""The half of the prompts on which m and k are chosen, and the half that results are about."""

EXACTLY_ONE, FEWER = "one surrogate fails", "some but too few fail"  # What makes an image a control


def half_of(prompt_id: str, *, seed: int = 0) -> str:
    """Return the half a prompt belongs to, by its hash: all its images are on one side."""
    return REPORT if seed_from("half", seed, prompt_id) % 2 else CHOOSE


def draw_order(sample_ids: Sequence[str], *, seed: int = 0) -> list[int]:
    """Return a random number per image, by its hash, that does not depend on the other images."""
    return [seed_from("draw", seed, sample_id) for sample_id in sample_ids]


def capped(
    images: pd.DataFrame,
    hard: pd.Series,
    *,
    per_category: int = 0,
    per_pair: int = 0,
    balance: bool = False,
    seed: int = 0,
) -> pd.Series:
    """Return which of the hard images are kept: valid ones first, then by ``draw_order``.

    ``images``: a row per image: category, nuisance, valid. ``per_category``: at most so many of a category; 0 for no
    limit. ``per_pair``: at most so many of a category with one nuisance; 0 for no limit. ``balance``: of every category
    that has any, as many as the scarcest of them has, counted after the caps.
    """
    line = images[hard].assign(turn=draw_order(list(images.index[hard]), seed=seed))
    line = line.sort_values(["valid", "turn"], ascending=[False, True])
    if per_pair:
        line = line[line.groupby(["category", "kind", "nuisance"]).cumcount() < per_pair]
    if per_category:
        line = line[line.groupby("category").cumcount() < per_category]
    if balance and len(line):
        line = line[line.groupby("category").cumcount() < line.groupby("category").size().min()]
    return hard & images.index.isin(line.index)


def matched_control(
    images: pd.DataFrame, hard: pd.Series, failures: pd.Series, candidates: pd.Series, *, seed: int = 0
) -> pd.DataFrame:
    """Return for every hard image another that is not hard and as alike as the pool allows.

    A control has the same category, kind of nuisance and half. First those with the same nuisance that exactly one
    surrogate fails, then any nuisance of the kind, then those that more than one but too few surrogates fail. No image
    is a control twice; if several fit, ``draw_order`` decides. Columns: ``hard``, ``control`` (ids),
    ``same_nuisance``, ``why`` (EXACTLY_ONE or FEWER).
    """
    turn = pd.Series(draw_order(list(images.index), seed=seed), images.index)
    wanting = list(turn[hard].sort_values().index)
    free = candidates & ~hard & (failures >= 1)
    near, wide = ["category", "kind", "half", "nuisance"], ["category", "kind", "half"]
    matches = []
    for keys, why in ((near, EXACTLY_ONE), (wide, EXACTLY_ONE), (near, FEWER), (wide, FEWER)):
        chosen = free & ((failures == 1) if why == EXACTLY_ONE else (failures > 1))
        line = images[chosen].assign(turn=turn[chosen]).sort_values("turn")
        queues = {key: list(group.index) for key, group in line.groupby(keys)}
        rest = []
        for name, key in zip(wanting, images.loc[wanting, keys].itertuples(index=False, name=None), strict=True):
            queue = queues.get(key)
            if not queue:
                rest.append(name)
                continue
            control = queue.pop(0)
            free[control] = False
            same = str(images.at[control, "nuisance"]) == str(images.at[name, "nuisance"])
            matches.append({"hard": name, "control": control, "same_nuisance": same, "why": why})
        wanting = rest
    return pd.DataFrame(matches, columns=["hard", "control", "same_nuisance", "why"])
