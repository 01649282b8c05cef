"""What a walk needs apart from images, loaded and checked: models under test, generator, oracle, label spaces, size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.core.lazy import torch
from holdfast.core.names import parse_name, unknown
from holdfast.core.protocols import Classifier, DifferentiableClassifier, LatentGenerator, Oracle
from holdfast.core.types import ORIGINAL, Collection, Image
from holdfast.data.labels import LabelMap
from holdfast.generators import load_generator
from holdfast.models.torch_classifier import ClassScores, TorchClassifier, as_batch, as_pictures
from holdfast.oracle import kinship
from holdfast.oracle.loading import WITHOUT_HUB
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, load_judge, load_models
from holdfast.pipeline.samples import read
from holdfast.pipeline.specs import PerturbSpec as PerturbSpec
from holdfast.pipeline.specs import WalkOptions
from holdfast.pipeline.specs.images import SPACES
from holdfast.pipeline.walk.sparse import read_mask

_BATCH = 64


def crop_of(classifier: Classifier, size: int, view: str = "model") -> tuple[int, int] | None:
    """Return height and width of the middle that ``predict`` keeps of a square image, or None if it keeps all of it.

    ``size``: pixels a side of the image. With ``view="whole"`` the model sees the whole image at its input size.
    """
    if view == "whole" or not isinstance(classifier, TorchClassifier):
        return None  # a black box is asked through its own ``predict``
    return classifier.kept_of(size)


def middle(batch: torch.Tensor, crop: tuple[int, int] | None) -> torch.Tensor:
    """Return the middle of images NCHW, or all of them without a crop."""
    if crop is None:
        return batch
    top, left = ((whole - kept) // 2 for whole, kept in zip(batch.shape[-2:], crop, strict=True))
    return batch[..., top : top + crop[0], left : left + crop[1]]


def seen(classifier: Classifier, images: Sequence[Image], view: str = "model") -> NDArray[np.float32]:
    """Return probabilities, (n, labels), of square RGB images of one size as a walk sees them."""
    # The step's gradient and the final prediction must be of one view: an image made against one and tested in the
    # other looks far more harmless than it is.
    if not isinstance(classifier, DifferentiableClassifier):
        return classifier.predict(images)
    crop = crop_of(classifier, min(images[0].shape[:2]), view) if len(images) else None
    with torch.inference_mode():
        answers = [
            classifier.logits(middle(as_batch(images[start : start + _BATCH]), crop))
            for start in range(0, len(images), _BATCH)
        ]
        probabilities: NDArray[np.float32] = torch.cat(answers).float().softmax(1).cpu().numpy()
    return probabilities


def view_notes(tested: Sequence[Tested], size: int, view: str) -> list[str]:
    """Return a sentence for each model that does not see the whole image, or that sees more of it than in ``eval``."""
    notes = []
    for model in tested:
        name, usual = model.classifier.name, crop_of(model.classifier, size)
        if usual and view == "model":
            notes.append(f"{name} sees the middle {usual[0]} × {usual[1]} of {size} × {size} pixels, as in eval")
        elif usual:
            notes.append(f"{name} sees all {size} × {size} pixels; eval shows it the middle {usual[0]} × {usual[1]}")
    return notes


def needs_gradients(options: WalkOptions) -> bool:
    """Return whether a step differentiates the loss."""
    # A random direction needs no gradient if the form of the step, ``sign`` or ``normalised``, fixes its length.
    return not options.black_box and (options.direction == "loss" or options.gradient in ("raw", "adam"))


def check_gradients(classifier: Classifier, options: WalkOptions) -> None:
    """Raise a UserError if a walk needs gradients and the model has none."""
    if isinstance(classifier, DifferentiableClassifier):
        return
    if needs_gradients(options):
        raise UserError(
            f"the walk needs gradients, and {classifier.name} has none; --black-box 50 estimates them from its "
            "answers to 50 random changes per step, there and back"
        )
    if options.start == "fgsm":
        raise UserError(f"an FGSM start needs gradients, and {classifier.name} has none; use --start clean")


class UnderTest:
    """A classifier whose outputs compete class by class: a class scores as its best output does."""

    # ``space`` says which outputs compete in the loss: those of the dataset's classes (``dataset``) or ``all``.
    # ``answers`` names them: the dataset's classes, then, with ``all``, the outputs that belong to no class.

    def __init__(
        self, classifier: Classifier, label_map: LabelMap, space: str = "dataset", view: str = "whole"
    ) -> None:
        if space not in SPACES:
            raise unknown("label space", space, SPACES)
        self.classifier = classifier
        self.space, self.view = space, view
        self.differentiable = isinstance(classifier, DifferentiableClassifier)
        device = getattr(classifier, "device", "cpu") if self.differentiable else "cpu"
        self._grouped = ClassScores(label_map.members, len(label_map.outputs), space, device)
        self.answers = (*label_map.classes, *(label_map.outputs[output] for output in self._grouped.others))

    def scores(self, batch: torch.Tensor) -> torch.Tensor:
        """Return logits, or a black box's log-probabilities, (n, answers), of an RGB tensor NCHW in 0..1."""
        if isinstance(self.classifier, DifferentiableClassifier):
            crop = crop_of(self.classifier, min(batch.shape[-2:]), self.view)
            return self._grouped(self.classifier.logits(middle(batch, crop)).float())
        probabilities = self.classifier.predict(as_pictures(batch))
        return self._grouped(torch.from_numpy(np.log(np.maximum(probabilities, 1e-12))).float())

    def loss(self, batch: torch.Tensor, labels: torch.Tensor, kind: str = "cross_entropy") -> torch.Tensor:
        """Return the loss of each image, (n,); ``labels`` are places of the true classes."""
        return losses(self.scores(batch), labels, kind)


def losses(scores: torch.Tensor, labels: torch.Tensor, kind: str) -> torch.Tensor:
    """Return per image the cross-entropy, or by how much the best other answer leads, from scores (n, answers)."""
    if kind == "cross_entropy":
        return torch.nn.functional.cross_entropy(scores, labels, reduction="none")
    own = scores.gather(1, labels[:, None])
    if scores.shape[1] == 1:
        return -own[:, 0]
    return scores.scatter(1, labels[:, None], -torch.inf).amax(1) - own[:, 0]


LARGEST_DEFAULT = 256  # pixels a side if neither --size nor the generator says

_SPEED_ONLY = ("batch_size", "deterministic")
"""Options of a walk that change its result by rounding at most, so that they are not part of a row's name."""


@dataclass(frozen=True)
class WalkSetting:
    """Generator and oracle, loaded and checked."""

    generator: LatentGenerator
    oracle: Oracle  # who judges them
    size: int  # pixels a side of every image on its way
    mask: NDArray[np.bool_] | None  # which parts of the latent may move; None for all
    parameters: dict[str, Any]  # everything that the result of a walk depends on other than image, model and seed
    loss_space: str  # of the model's loss

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
        raise UserError(f"no oracle was named; --oracle O names one (holdfast ls oracles), such as {WITHOUT_HUB}")
    name, oracle_space = _oracle_name(spec)
    oracle = load_judge(name, collection, labels=spec.labels, device=spec.device)
    if getattr(oracle, "every", 0):
        if not spec.walk.deterministic:
            raise UserError(
                "people judge exact pixels, which have to come out alike in the next round: --deterministic"
            )
        if spec.random_walk and spec.walk.direction != "random":
            raise UserError("people would have to judge the random walks, too: add --no-random-walk")
    elif hasattr(oracle, "knows"):
        raise UserError(
            f"{spec.oracle} cannot judge images that a walk is yet to make; ask people in rounds "
            f"({spec.oracle}?every=10), or walk with a model as oracle and correct FMR by their votes: "
            "holdfast report RUN --votes VOTES"
        )
    generator = load_generator(spec.generator, device=spec.device)
    size = _working_size(spec, generator, collection)
    sparse = read_mask(Path(spec.sparse)) if spec.sparse else None
    if sparse is not None:
        sparse.check(generator)
    loss_space = spec.loss_space or spec.space
    walk = {name: value for name, value in asdict(spec.walk).items() if name not in _SPEED_ONLY}
    if walk["view"] == "model":
        del walk["view"]  # part of the row id of models that crop, see ``perturb``
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
    raise UserError(f"no image of {spec.data} can be read; holdfast data check says why")


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
