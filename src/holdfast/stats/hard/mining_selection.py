"""Which images are kept: halves of the prompts, caps, and a control that is matched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.seeds import seed_from

if TYPE_CHECKING:
    import pandas as pd

CHOOSE, REPORT = "choose", "report"
"""The half of the prompts on which m and k are chosen, and the half that results are about."""

EXACTLY_ONE, FEWER = "one surrogate fails", "some but too few fail"
"""What makes an image a control."""


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

    Args:
        images: a row an image: category, nuisance, valid.
        hard: which are candidates.
        per_category: at most so many of a category; 0 for no limit.
        per_pair: at most so many of a category with one nuisance; 0 for no limit.
        balance: of every category that has any, as many as the scarcest of them has, counted after the caps.
        seed: of the draw.
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
    is a control twice; where several fit, ``draw_order`` decides.

    Args:
        images: a row an image: category, kind, nuisance, half.
        hard: which images want a control.
        failures: how many surrogates get each image wrong.
        candidates: which images may be one; hard ones and those that no surrogate fails are left out of them here.
        seed: of the draw.

    Returns:
        A row per matched hard image: ``hard``, ``control`` (ids), ``same_nuisance``, ``why`` (EXACTLY_ONE or FEWER).
    """
    import pandas as pd

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
