"""What embeddings follow: shares of their variance over crossed objects and backgrounds, and nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.lazy import pd
from holdfast.stats.core.bootstrap import SHARE, Estimate, Floats, adjusted_mean, t_quantile

COLUMNS = ["row_id", "model", "source_id", "donor_id", "status"]
FEWEST = 3  # objects, and backgrounds: the jackknife leaves one out
_SHUFFLES = 100
_BLOCK = 4_000_000  # similarities that are computed at a time


def embeddings(rows: pa.Table, vectors: pa.Table, *, seed: int = 0) -> pd.DataFrame:
    """Return what the embeddings of each model follow, a row per model.

    Args:
        rows: rows of the task ``embed`` in the one table, with ``COLUMNS``.
        vectors: ``details/embeddings``.
        seed: of the shuffles behind ``background_chance`` and ``object_chance``.

    Returns:
        ``object``, ``background`` and ``residual`` (shares of the variance), ``part`` (the background's part of what
        object and background explain), ``nearest_background`` and ``nearest_object`` (images whose nearest other
        image shares it), each with the ends of its interval; ``…_chance``; the numbers of objects and backgrounds;
        ``reason``, if there is no estimate.
    """
    table = rows.to_pandas()
    table = table[table["status"].astype(str) == "ok"].astype({"model": str})
    places = pd.Series(np.arange(len(vectors)), index=vectors["row_id"].to_pandas())
    values = vectors["values"].combine_chunks()
    result = []
    for model, own in table.groupby("model", sort=True):
        cells = own.drop_duplicates(["source_id", "donor_id"])
        present = cells.assign(place=places.reindex(cells["row_id"]).to_numpy()).pivot(
            index="source_id", columns="donor_id", values="place"
        )
        present = present.loc[:, present.notna().mean() >= 0.5].dropna()
        result.append({"model": model, "objects": len(present), "backgrounds": present.shape[1]})
        if min(present.shape) < FEWEST:
            result[-1]["reason"] = f"needs {FEWEST} objects on each of {FEWEST} backgrounds, or more"
            continue
        chosen = values.take(pa.array(present.to_numpy(np.int64).reshape(-1)))
        cube = np.asarray(chosen.flatten(), np.float64).reshape(*present.shape, -1)
        result[-1] |= {"width": cube.shape[-1], "reason": ""} | _followed(cube, seed)
    return pd.DataFrame(result)


def _followed(cube: Floats, seed: int) -> dict[str, Any]:
    """Return the shares and neighbours of embeddings, (objects, backgrounds, width)."""
    cube = cube / np.maximum(np.linalg.norm(cube, axis=-1, keepdims=True), 1e-12)
    row: dict[str, Any] = _neighbours(cube, seed)
    cube = cube - cube.mean((0, 1))
    if np.square(cube).sum() < 1e-9 * len(cube):
        return {"reason": "the embedding is the same for every image"}
    for name, share in variance_shares(cube).items():
        row |= Estimate(min(max(share.value, 0.0), 1.0), share.low, share.high).within(SHARE).row(name)
    rng = np.random.default_rng(seed)
    for name, turned in (("background", cube), ("object", cube.swapaxes(0, 1))):
        orders = (np.argsort(rng.random(turned.shape[:2]), axis=1) for _ in range(_SHUFFLES))
        shuffled = [_components(np.take_along_axis(turned, order[:, :, None], 1)) for order in orders]
        row[f"{name}_chance"] = max(float(np.quantile([each[1] / each.sum() for each in shuffled], 0.95)), 0.0)
    return row


def _sums(cube: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return squares per cell, of row means, of column means and of the grand mean."""
    rows, columns = cube.mean(1), cube.mean(0)
    cells, lengths = np.square(cube).sum(-1), [np.square(each).sum(-1) for each in (rows, columns, rows.mean(0))]
    return cells, lengths[0], lengths[1], lengths[2]


def _estimated(total: Any, rows: Any, columns: Any, grand: Any, n: int, m: int) -> Floats:
    """Return the unbiased variance components (object, background, residual) from sums of squares."""
    own, ground = m * (rows - n * grand), n * (columns - m * grand)
    residual = (total - n * m * grand - own - ground) / ((n - 1) * (m - 1))
    return np.stack([(own / (n - 1) - residual) / m, (ground / (m - 1) - residual) / n, residual])


def _components(cube: Floats) -> Floats:
    cells, rows, columns, grand = _sums(cube)
    return _estimated(cells.sum(), rows.sum(), columns.sum(), grand, *cube.shape[:2])


def _without_each(cube: Floats) -> Floats:
    """Return the components without each object in turn, (3, objects)."""
    n, m = cube.shape[:2]
    cells, rows, columns, grand = _sums(cube)
    means = cube.mean(1)
    crossed = np.einsum("ijk,jk->i", cube, cube.mean(0))
    left = (n * n * columns.sum() - 2 * n * crossed + cells.sum(1)) / (n - 1) ** 2
    middle = (n * n * grand - 2 * n * (means @ means.mean(0)) + rows) / (n - 1) ** 2
    return _estimated(cells.sum() - cells.sum(1), rows.sum() - rows, left, middle, n - 1, m)


def _part(own: Any, ground: Any) -> Any:
    """Return the background's part of what object and background explain together; 0 if that is nothing."""
    total = np.asarray(own + ground, np.float64)
    return np.divide(ground, total, out=np.zeros_like(total), where=total > 0)


_SHARES: Mapping[str, Callable[[Floats], Any]] = {
    "object": lambda parts: parts[0] / parts.sum(0),
    "background": lambda parts: parts[1] / parts.sum(0),
    "residual": lambda parts: parts[2] / parts.sum(0),
    "part": lambda parts: _part(*np.maximum(parts[:2], 0)),
}


def variance_shares(cube: Floats) -> dict[str, Estimate]:
    """Return shares of the variance of embeddings, (objects, backgrounds, width), with 95 % intervals.

    The two-way decomposition y = mean + object + background + residual with unbiased components, summed over the
    dimensions. Intervals are those of the two-way jackknife: the variance over objects left out one by one + that over
    backgrounds, Satterthwaite's degrees of freedom, in log odds unless 0 or 1 is near.
    """
    parts, objects = _components(cube), _without_each(cube)
    backgrounds = _without_each(cube.swapaxes(0, 1))[[1, 0, 2]]
    return {name: _jackknifed(share(parts), share(objects), share(backgrounds)) for name, share in _SHARES.items()}


def _jackknifed(value: float, *without: Floats) -> Estimate:
    spread = [float(np.square(each - each.mean()).sum()) * (len(each) - 1) / len(each) for each in without]
    spent = sum(part**2 / (len(each) - 1) for part, each in zip(spread, without, strict=True))
    if not spent > 0:
        return Estimate(float(value), float(value), float(value))
    reach = t_quantile(sum(spread) ** 2 / spent) * sum(spread) ** 0.5
    if reach >= min(value, 1 - value):
        return Estimate(float(value), float(value - reach), float(value + reach))
    odds, stretched = np.log(value / (1 - value)), reach / (value * (1 - value))
    low, high = (float(1 / (1 + np.exp(-odds + sign * stretched))) for sign in (1, -1))
    return Estimate(float(value), low, high)


def _neighbours(cube: Floats, seed: int) -> dict[str, float]:
    """Return how often the nearest other image (cosine) shares the background, and how often the object.

    By chance: what shuffling the backgrounds of each object, or the objects of each background, leaves on average.
    """
    n, m = cube.shape[:2]
    nearest = nearest_images(cube.reshape(n * m, -1))
    owner, ground = (each.reshape(-1) for each in np.indices((n, m)))
    shares = {"background": ground[nearest] == ground, "object": owner[nearest] == owner}
    chance = {"background": (~shares["object"]).mean() / m, "object": (~shares["background"]).mean() / n}
    row: dict[str, float] = {}
    for name, same in shares.items():
        mean = float(same.mean())
        estimate = adjusted_mean(mean, n, (same - mean) / same.size, owner, ground, seed=seed).within(SHARE)
        row |= estimate.row(f"nearest_{name}") | {f"nearest_{name}_chance": float(chance[name])}
    return row


def nearest_images(vectors: Floats) -> NDArray[np.intp]:
    """Return the place of the vector with the largest cosine to each, itself aside."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    nearest = np.empty(len(unit), np.intp)
    step = max(1, _BLOCK // len(unit))
    for start in range(0, len(unit), step):
        similar = unit[start : start + step] @ unit.T
        similar[np.arange(len(similar)), start + np.arange(len(similar))] = -np.inf
        nearest[start : start + step] = similar.argmax(1)
    return nearest
