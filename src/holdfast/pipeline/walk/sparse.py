"""The sparse latent: which parts of it a walk moves, found by an L1 logistic regression on the ends of dense walks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.files import whole_file
from holdfast.core.fingerprint import array_sha256
from holdfast.core.fingerprint import generator as random_from
from holdfast.core.names import unknown
from holdfast.core.protocols import LatentGenerator
from holdfast.store import Run

LABELS = ("paper", "matched")
STRENGTH = 36.36  # the published strength of the penalty, read as 1/C: read as C it would hardly thin out anything
TEST_SHARE = 0.2
LARGEST_MASK = 1 << 28  # bytes of a mask file


@dataclass(frozen=True)
class SparseMask:
    """A mask over a generator's latent, and how it came about."""

    mask: NDArray[np.bool_]  # of the latent's shape without the images' axis; true if a walk may move
    facts: dict[str, Any]  # generator and its fingerprint, labels, strength, sparsity, test score, images, seed

    @property
    def fingerprint(self) -> str:
        """Return the hash of the mask alone."""
        return array_sha256(self.mask)

    def check(self, generator: LatentGenerator) -> None:
        """Raise a UserError if the mask belongs to another generator."""
        if self.facts.get("generator_fingerprint") != generator.fingerprint[:16]:
            raise UserError(
                f"the sparse mask was fitted to {self.facts.get('generator', 'another generator')}, "
                f"not to {generator.name} with these weights; fit one with holdfast perturb --find-sparse"
            )


def fit_sparse(
    run: Run, *, labels: str = "paper", strength: float = STRENGTH, model: str | None = None, seed: int = 0
) -> SparseMask:
    """Fit the mask to the latents that ``perturb --keep-latents`` left in a run."""
    # Class 0 are the encoder's outputs of the originals, class 1 the (quantised) latents at the ends of the validated
    # walks; with ``labels="matched"`` both are quantised, so that quantisation alone cannot distinguish them. Features
    # are standardised. Both ends of an image's walk are on the same side of the 80/20 split. ``labels``: ``paper`` or
    # ``matched``. ``strength``: of the L1 penalty, 1/C of scikit-learn's LogisticRegression. ``model``: only walks
    # against this model, if the run has several. ``seed``: of the split and of saga's order.
    if labels not in LABELS:
        raise unknown("way to label latents", labels, LABELS)
    if not strength > 0:
        raise UserError(f"the strength of the penalty must be above 0, not {strength:g}")
    parameters, ids = _walks(run, model)
    starts, ends, sources, shape = _latents(run, ids, matched=labels == "matched")
    mask, score = _fitted(starts, ends, sources, strength, seed)
    if not mask.any():
        raise UserError(
            f"with strength {strength:g} and {len(starts)} walks no dimension is left; a smaller --strength keeps more"
        )
    facts = {name: parameters[name] for name in ("generator", "generator_fingerprint", "size")} | {
        "labels": labels,
        "strength": strength,
        "C": 1 / strength,
        "images": len(starts),
        "dimensions": int(mask.size),
        "kept": int(mask.sum()),
        "sparsity": 1 - float(mask.mean()),
        "test_score": score,
        "seed": seed,
    }
    return SparseMask(mask.reshape(shape), facts)


def _walks(run: Run, model: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the parameters of the run's validated dense walks, and row id → source."""
    rows = run.rows(["row_id", "kind", "condition", "status", "model", "parameters", "source_id"]).to_pylist()
    walks = [
        row
        for row in rows
        if row["kind"] == "dynamic" and row["condition"] == "perturbed" and row["status"] == "ok"
        and (model is None or row["model"] == model)
        and not json.loads(row["parameters"]).get("sparse")
    ]  # fmt: skip
    if not walks:
        raise UserError(
            f"{run.path} has no validated walk" + (f" against {model}" if model else "") + " without a mask"
        )
    parameters = [json.loads(text) for text in {row["parameters"] for row in walks}]
    if len({(own["generator_fingerprint"], own["size"]) for own in parameters}) > 1:
        raise UserError(f"{run.path} has walks of several generators or sizes; a mask belongs to one")
    return parameters[0], {row["row_id"]: row["source_id"] for row in walks}


def _latents(
    run: Run, ids: dict[str, str], *, matched: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32], list[str], tuple[int, ...]]:
    """Return starts and ends, (walks, dimensions), their sources, and the latent's shape."""
    stored = run.details("latents").dataset().to_table(filter=pc.field("row_id").isin([*ids]))
    if not stored.num_rows:
        raise UserError(f"{run.path} holds no latents; run perturb with --keep-latents")
    latents = stored.sort_by("row_id")
    shape = tuple(latents["shape"][0].as_py())
    quantised = matched and not latents["start_quantised"].null_count
    columns = ("start_quantised" if quantised else "start", "end")
    starts, ends = (pc.list_flatten(latents[name]).to_numpy() for name in columns)
    if not starts.size == ends.size == len(latents) * np.prod(shape):
        raise UserError("the latents of the run differ in shape; a mask belongs to one")
    count = len(latents)
    return (
        starts.reshape(count, -1),
        ends.reshape(count, -1),
        [ids[name] for name in latents["row_id"].to_pylist()],
        shape,
    )


def _fitted(
    starts: NDArray[np.float32], ends: NDArray[np.float32], sources: list[str], strength: float, seed: int
) -> tuple[NDArray[np.bool_], float]:
    """Return the dimensions whose weight is not zero, and the accuracy on the test images."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    names = sorted(set(sources))
    order = random_from("sparse", seed).permutation(len(names))
    held = {names[place] for place in order[: max(1, round(TEST_SHARE * len(names)))]}
    tested = np.array([source in held for source in sources])
    if tested.all():
        raise UserError(f"{len(names)} images are too few to fit a mask to and to test it on")
    truth = np.concatenate([np.zeros(len(starts)), np.ones(len(ends))]).astype(int)
    both, tested = np.concatenate([starts, ends]), np.concatenate([tested, tested])
    scale = StandardScaler().fit(both[~tested])
    # l1_ratio=1 is the L1 penalty; the name of the penalty itself is deprecated.
    fit = LogisticRegression(l1_ratio=1.0, C=1 / strength, solver="saga", tol=1e-2, max_iter=500, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few more or fewer passes move the mask's edge only
        fit.fit(scale.transform(both[~tested]), truth[~tested])
    score = float(fit.score(scale.transform(both[tested]), truth[tested]))
    return np.asarray(fit.coef_[0] != 0), score


def write_mask(sparse: SparseMask, path: Path) -> None:
    """Write a mask as safetensors, its facts among the metadata."""
    from safetensors.numpy import save_file

    with whole_file(path, alone=True) as temporary:
        save_file({"mask": sparse.mask.astype(np.uint8)}, temporary, metadata={"holdfast": json.dumps(sparse.facts)})


def read_mask(path: Path) -> SparseMask:
    """Read a mask that ``write_mask`` wrote; raise a UserError for any other file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"there is no sparse mask {path}; holdfast perturb RUN --find-sparse FILE makes one")
    if path.stat().st_size > LARGEST_MASK:
        raise UserError(f"{path.name} is larger than any sparse mask")
    try:
        with safe_open(path, framework="numpy") as file:
            mask = np.asarray(file.get_tensor("mask"))
            facts = json.loads((file.metadata() or {})["holdfast"])
    except (SafetensorError, KeyError, ValueError, OSError, RecursionError) as error:
        raise UserError(f"{path.name} is not a mask of holdfast perturb --find-sparse: {error}") from error
    if not isinstance(facts, dict) or not mask.any():
        raise UserError(f"the sparse mask {path.name} lets nothing move: no walk could start")
    return SparseMask(mask.astype(bool), facts)


def overlap(mask: SparseMask, other: SparseMask) -> dict[str, float]:
    """Return how far two masks keep the same dimensions."""
    # ``jaccard`` is kept by both ÷ kept by either; ``by_chance`` what two random masks of the same sizes would have on
    # average, to which it is to be compared.
    if mask.mask.shape != other.mask.shape:
        raise UserError(f"the masks must be of the same latents, not of {mask.mask.shape} and {other.mask.shape}")
    first, second, all_of = int(mask.mask.sum()), int(other.mask.sum()), mask.mask.size
    both = int((mask.mask & other.mask).sum())
    expected = first * second / all_of
    return {
        "jaccard": both / (first + second - both),
        "by_chance": expected / (first + second - expected),
        "kept_first": first,
        "kept_second": second,
        "kept_by_both": both,
        "dimensions": all_of,
    }
