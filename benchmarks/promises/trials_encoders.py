"""Simulations of what embeddings follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.stats.effects.embedding import variance_shares
from promises.promise import Counted, tally


def crossed(
    rng: np.random.Generator, objects: int, backgrounds: int, parts: Sequence[float], *, width: int = 32
) -> np.ndarray:
    """Return embeddings, (objects, backgrounds, width), with true variances of object, background and the rest."""
    shapes = ((objects, 1, width), (1, backgrounds, width), (objects, backgrounds, width))
    return sum(np.sqrt(part / width) * rng.standard_normal(shape) for part, shape in zip(parts, shapes, strict=True))


def embedding_shares(
    rng: np.random.Generator, draws: int, *, objects: int, backgrounds: int, parts: Sequence[float], width: int
) -> Counted:
    """Do the intervals hold the true shares? Does one that leaves out nothing claim a background that moves nothing?"""
    total, rows = sum(parts), []
    truth = {name: part / total for name, part in zip(("object", "background", "residual"), parts, strict=True)}
    truth["part"] = parts[1] / (parts[0] + parts[1])
    for _ in range(draws):
        shares = variance_shares(crossed(rng, objects, backgrounds, parts, width=width))
        rows += [{"covers": share.low <= truth[name] <= share.high} for name, share in shares.items()]
        rows.append({"claims": shares["background"].low > 0})
    return tally(rows)
