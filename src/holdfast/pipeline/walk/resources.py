"""What a walk needs besides images: models, generator, oracle, label spaces and working size, loaded and checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.core.names import parse_name
from holdfast.core.protocols import LatentGenerator, Oracle
from holdfast.core.types import ORIGINAL, Collection, Image
from holdfast.data.labels import class_keys, map_labels
from holdfast.generate import load_generator
from holdfast.models import load_classifier
from holdfast.oracle import kinship, load_oracle
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, load_models
from holdfast.pipeline.samples import read
from holdfast.pipeline.specs import PerturbSpec as PerturbSpec
from holdfast.pipeline.walk.sparse import read_mask
from holdfast.pipeline.walk.walk_model import check_gradients

LARGEST_DEFAULT = 256
"""Pixels a side where neither --size nor the generator says."""

_SPEED_ONLY = ("batch_size", "deterministic", "compile")
"""Options of a walk that change its result by rounding at most, so that they are no part of a row's name."""


@dataclass(frozen=True)
class WalkSetting:
    """Generator and oracle, loaded and checked.

    Attributes:
        generator: what makes images of latents.
        oracle: who judges them.
        size: pixels a side of every image on its way.
        mask: which parts of the latent may move; None for all.
        parameters: everything that the result of a walk depends on besides image, model and seed.
        loss_space: of the model's loss.
    """

    generator: LatentGenerator
    oracle: Oracle
    size: int
    mask: NDArray[np.bool_] | None
    parameters: dict[str, Any]
    loss_space: str

    def parameters_json(self, condition: str) -> str:
        """Return a row's column ``parameters``; the original depends on nothing but the size."""
        return canonical_json({"size": self.size} if condition == ORIGINAL else self.parameters)


def read_originals(spec: PerturbSpec) -> Collection:
    """Read the collection without its stored renderings, unless it has nothing else."""
    collection = read(spec)
    originals = tuple(sample for sample in collection.samples if sample.condition == ORIGINAL)
    return replace(collection, samples=originals) if originals else collection


def load_tested(spec: PerturbSpec, collection: Collection) -> list[Tested]:
    """Load the models under test; raise a UserError for one that needs gradients and has none."""
    if not spec.models:
        raise UserError("no model was named; --models a,b lists them (holdfast ls models)")
    tested = load_models(
        EvaluateSpec(
            spec.data, models=spec.models, labels=spec.labels, device=spec.device, batch_size=spec.walk.batch_size
        ),
        collection,
    )
    for model in tested:
        check_gradients(model.classifier, spec.walk)
    return tested


def load_setting(spec: PerturbSpec, collection: Collection) -> WalkSetting:
    """Load generator and oracle; raise a UserError if they do not fit together."""
    if not spec.generator:
        raise UserError("no generator was named; --generator G names one (holdfast ls generators)")
    if not spec.oracle:
        raise UserError("no oracle was named; --oracle O names one (holdfast ls oracles)")
    keys = class_keys(collection, spec.labels)
    name, oracle_space = _oracle_name(spec)
    oracle = load_oracle(
        name, classes=collection.classes, keys=keys, load_classifier=load_classifier, map_labels=map_labels,
        device=spec.device,
    )  # fmt: skip
    if hasattr(oracle, "knows"):
        raise UserError(
            f"{spec.oracle} cannot judge images that a walk is yet to make; walk with a model as oracle, let people "
            "review its images, and correct FMR by their votes: holdfast report RUN --votes VOTES"
        )
    generator = load_generator(spec.generator, device=spec.device)
    size = _working_size(spec, generator, collection)
    sparse = read_mask(Path(spec.sparse)) if spec.sparse else None
    if sparse is not None:
        sparse.check(generator)
    loss_space = spec.loss_space or spec.space
    walk = {name: value for name, value in asdict(spec.walk).items() if name not in _SPEED_ONLY}
    parameters = walk | {
        "size": size,
        "generator": generator.name,
        "generator_fingerprint": generator.fingerprint[:16],
        "oracle": oracle.name,
        "oracle_fingerprint": oracle.fingerprint[:16],
        "space": spec.space,
        "loss_space": loss_space,
        "oracle_space": oracle_space,
        "sparse": sparse.fingerprint[:16] if sparse else "",
    }
    return WalkSetting(generator, oracle, size, sparse.mask if sparse else None, parameters, loss_space)


def kin_warnings(spec: PerturbSpec) -> list[str]:
    """Return a sentence for each thing that a model, the oracle and the generator have in common."""
    sentences = [sentence for model in spec.models for sentence in kinship(model, spec.oracle, spec.generator)]
    return list(dict.fromkeys(sentences))


def _oracle_name(spec: PerturbSpec) -> tuple[str, str]:
    """Return the oracle's name with its label space, and that space."""
    stated = parse_name(spec.oracle, tagged=False).options.get("space")
    if stated is not None:
        if spec.oracle_space and spec.oracle_space != stated:
            raise UserError(
                f"--oracle says space={stated} and --oracle-space {spec.oracle_space}; leave one of them out"
            )
        return spec.oracle, str(stated)
    wanted = spec.oracle_space or spec.space
    # Only what differs from every oracle's default is said: oracles of other packages need not know the option.
    suffix = "" if wanted == "dataset" else ("&" if "?" in spec.oracle else "?") + "space=all"
    return spec.oracle + suffix, wanted


def _working_size(spec: PerturbSpec, generator: LatentGenerator, collection: Collection) -> int:
    own, factor = getattr(generator, "size", None), getattr(generator, "factor", 1)
    if own is not None:
        if spec.size not in (0, own):
            raise UserError(f"{generator.name} works at {own} pixels a side and at no other; leave --size away")
        return int(own)
    if spec.size < 0 or spec.size % factor:
        raise UserError(f"--size {spec.size} is not divisible by {factor}, as {generator.name} needs it")
    size = spec.size or min(_first_side(spec, collection), LARGEST_DEFAULT) // factor * factor
    if not size:
        raise UserError(f"the images are smaller than {generator.name} can take ({factor} pixels); set --size")
    return int(size)


def _first_side(spec: PerturbSpec, collection: Collection) -> int:
    """Return the short side of the first image that can be read."""
    for sample in collection.samples:
        try:
            return int(min(sample.image.load(max_pixels=spec.max_pixels).shape[:2]))
        except SampleError:
            continue
    raise UserError(f"no image of {spec.data} can be read")


def square(image: Image, size: int) -> Image:
    """Return the middle square of an image, as large as fits, resized to ``size`` pixels per side."""
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = image[top : top + side, left : left + side]
    if side == size:
        return np.ascontiguousarray(middle)
    way = cv2.INTER_AREA if side > size else cv2.INTER_CUBIC
    resized: Image = cv2.resize(np.ascontiguousarray(middle), (size, size), interpolation=way).view(np.uint8)
    return resized
