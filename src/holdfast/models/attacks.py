"""Adversarial attacks on a classifier, by foolbox: small changes made against one model and bounded in ℓ∞.

An attack works on the image as the model's network sees it: after the model's own resizing and cropping, before its
normalisation. So ``eps`` bounds every value the network is given, nothing is lost by resizing afterwards, and models
with inputs of different sizes are attacked at different sizes. The result is a uint8 image of that size, and the
model's answer is its answer to that very image. Black boxes, which resize out of sight, are attacked at the size of
the image.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.lazy import torch
from holdfast.core.protocols import Classifier, DifferentiableClassifier
from holdfast.core.types import Image
from holdfast.models.torch_classifier import ClassScores, TorchClassifier, as_batch, as_pictures, exact

GRADIENT_FREE = ("decision_attack",)
"""Attacks that only ask the model for its answers."""

_START_DRAWS = 50
"""Noise images that are tried for one that the model does not take for the class; each costs an answer."""


class Attack(Protocol):
    """A way to change images. ``parameters`` are those of the condition, without ``eps`` and ``space``."""

    def __call__(
        self, victim: Victim, batch: torch.Tensor, labels: torch.Tensor, *, eps: float, seeds: Sequence[int], **_: Any
    ) -> torch.Tensor:
        """Return a changed batch of the same shape for an RGB batch NCHW in 0..1 and the places of the true classes.

        Seed by seed, so that an image does not depend on its neighbours. What leaves the ball of radius ``eps`` is
        brought back by the caller.
        """


@dataclass(frozen=True)
class Victim:
    """The model as attacks see it."""

    # foolbox's model, from a batch NCHW in 0..1 to scores: for every class of the dataset that of its best output,
    # then, if all outputs compete, those of the others.
    model: Any

    def right(self, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return which images the model still gets right."""
        with torch.no_grad():
            scores = self.model(batch)
        held: torch.Tensor = (scores.argmax(1) == labels) & scores.isfinite().all(1)
        return held


def run_attack(
    attack: Attack,  # one of this module, or another package's
    classifier: Classifier,  # the model under attack
    inputs: Sequence[Image],  # what ``model_input`` made of the images
    labels: Sequence[int],  # the place of each image's class in ``members``
    members: Sequence[Sequence[int]],  # for each class of the dataset the outputs that mean it
    *,
    seeds: Sequence[int],  # one an image
    # ``eps`` (0..1; rounded down to whole steps of 1/255), ``space`` and the attack's own.
    parameters: Mapping[str, Any],
) -> tuple[list[Image], NDArray[np.float32]]:
    """Attack images of one shape or several; images that the model gets wrong anyway are not changed.

    Returns the changed images, none further than ``eps`` from its input in any value, and the model's probabilities
    for them, (n, outputs).
    """
    own = dict(parameters)
    levels = math.floor(float(own.pop("eps")) * 255 + 1e-6)
    victim = _victim(classifier, members, str(own.pop("space", "all")))
    pictures: list[Image] = [np.empty(0, np.uint8)] * len(inputs)
    for places in _by_shape(inputs):
        before = torch.from_numpy(np.stack([inputs[place] for place in places])).permute(0, 3, 1, 2)
        batch = (before.float() / 255).to(_device(classifier))
        truth = torch.tensor([labels[place] for place in places], device=batch.device)
        alone = [seeds[place] for place in places]
        with exact():
            changed, right = batch.clone(), victim.right(batch, truth).nonzero()[:, 0]
            if levels and len(right):
                chosen = [alone[place] for place in right.tolist()]
                changed[right] = attack(victim, batch[right], truth[right], eps=levels / 255, seeds=chosen, **own)
        rounded = _rounded(changed, before, levels).permute(0, 2, 3, 1).numpy()
        for place, picture in zip(places, rounded, strict=True):
            pictures[place] = np.ascontiguousarray(picture)
    return pictures, answers(classifier, pictures)


def model_input(classifier: Classifier, image: Image) -> Image:
    """Return the image as the network sees it, HWC uint8 RGB; for a black box, the image itself.

    Reference preprocessing rounds to uint8 after resizing in nearly every family, so that this loses nothing.
    """
    if not isinstance(classifier, TorchClassifier):
        return image
    classifier.check_clear()
    prepared = classifier.prepare(image)
    if prepared.ndim != 3 or prepared.shape[0] != 3:
        raise SampleError(f"attacks need a model that sees RGB, not an input of shape {tuple(prepared.shape)}")
    normalisation = (classifier.preprocessing.mean, classifier.preprocessing.std)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in normalisation)
    picture: Image = ((prepared * std + mean) * 255).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
    return np.ascontiguousarray(picture)


def answers(classifier: Classifier, pictures: Sequence[Image]) -> NDArray[np.float32]:
    """Return probabilities, (n, outputs), for images as ``model_input`` makes them, without preprocessing again."""
    if not isinstance(classifier, DifferentiableClassifier):
        return classifier.predict(pictures)
    rows = np.empty((len(pictures), len(classifier.labels)), np.float32)
    for places in _by_shape(pictures):
        batch = as_batch([pictures[place] for place in places], _device(classifier))
        with torch.inference_mode(), exact():
            rows[places] = classifier.logits(batch).float().softmax(1).cpu()
    return rows


def check_attackable(classifier: Classifier, attack: str) -> None:
    """Raise a UserError for a model without gradients and an attack that needs them."""
    if attack not in GRADIENT_FREE and not isinstance(classifier, DifferentiableClassifier):
        raise UserError(
            f"{attack} needs gradients, and {classifier.name} has none; {' and '.join(GRADIENT_FREE)} needs only "
            "the model's answers"
        )


def fgsm(
    victim: Victim, batch: torch.Tensor, labels: torch.Tensor, *, eps: float, seeds: Sequence[int]
) -> torch.Tensor:
    """Take one step of the gradient's sign."""
    del seeds
    return _fixed(_foolbox().attacks.LinfFastGradientAttack(), victim, batch, labels, eps)


def pgd(
    victim: Victim, batch: torch.Tensor, labels: torch.Tensor, *, eps: float, seeds: Sequence[int], steps: int
) -> torch.Tensor:
    """Take many small steps up the cross-entropy from a random start."""
    return _fixed(_descent(batch, eps, seeds, steps, margin=False), victim, batch, labels, eps)


def strong_attack(
    victim: Victim,
    batch: torch.Tensor,
    labels: torch.Tensor,
    *,
    eps: float,
    seeds: Sequence[int],
    steps: int,
    decision_steps: int,
) -> torch.Tensor:
    """Run four attacks one after the other, each on the images that are still right.

    As in AutoAttack: descent on the cross-entropy and on the margin, a search for the smallest change that suffices,
    and an attack that needs no gradient, for models whose gradients mislead.
    """
    foolbox = _foolbox()

    def climb_margin(part: torch.Tensor, truth: torch.Tensor, seeds: Sequence[int]) -> torch.Tensor:
        return _fixed(_descent(part, eps, seeds, steps, margin=True), victim, part, truth, eps)

    def smallest_change(part: torch.Tensor, truth: torch.Tensor, seeds: Sequence[int]) -> torch.Tensor:
        return _to_radius(_fixed(foolbox.attacks.LInfFMNAttack(steps=steps), victim, part, truth, eps), part, eps)

    turns: list[Callable[..., torch.Tensor]] = [
        lambda *given: pgd(victim, *given[:2], eps=eps, seeds=given[2], steps=steps), climb_margin, smallest_change
    ]  # fmt: skip
    if decision_steps:
        turns.append(lambda *given: decision_attack(victim, *given[:2], eps=eps, seeds=given[2], steps=decision_steps))
    levels = round(eps * 255)
    before = (batch * 255).round().to("cpu", torch.uint8)
    worst = batch.clone()
    for turn in turns:
        # Judged as images: what rounding undoes has not succeeded.
        pictures = (_rounded(worst, before, levels).float() / 255).to(worst.device)
        left = victim.right(pictures, labels).nonzero()[:, 0]
        if not len(left):
            break
        worst[left] = turn(batch[left], labels[left], [seeds[place] for place in left.tolist()])
    return worst


def decision_attack(
    victim: Victim, batch: torch.Tensor, labels: torch.Tensor, *, eps: float, seeds: Sequence[int], steps: int
) -> torch.Tensor:
    """Run HopSkipJump, which walks along the boundary of the model's decision, one image at a time.

    foolbox normalises this attack's steps over the batch, so only single images keep to themselves.
    """
    foolbox = _foolbox()

    values = batch[0].numel()
    base: Any = foolbox.attacks.HopSkipJumpAttack

    class Walk(base):  # type: ignore[misc]
        def select_delta(self, originals: Any, distances: Any, step: int) -> Any:
            # Probes of about two levels a value: foolbox's own are so small that rounding to uint8 undoes them.
            return distances * 0 + 2 / 255 * math.sqrt(values)

    start = foolbox.attacks.LinearSearchBlendedUniformNoiseAttack(directions=_START_DRAWS, steps=50)
    # The boundary to a thousandth of the way, which is finer than a level.
    attack = Walk(init_attack=start, steps=steps, constraint="linf", gamma=values**2 / 1000)
    changed = batch.clone()
    forked = [batch.device] if batch.device.type == "cuda" else []  # whose global generators foolbox uses
    for place, seed in enumerate(seeds):
        single = slice(place, place + 1)
        with torch.random.fork_rng(forked), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*failed to draw sufficient random")
            torch.manual_seed(seed % 2**63)
            try:
                attacked = _fixed(attack, victim, batch[single], labels[single], eps)
                changed[single] = _to_radius(attacked, batch[single], eps)
            except (ValueError, AssertionError):
                # foolbox's way to say that no noise, or nothing on the boundary, fools the model: it has withstood.
                continue
    return changed


def _descent(batch: torch.Tensor, eps: float, seeds: Sequence[int], steps: int, *, margin: bool) -> Any:
    """Return foolbox's projected gradient descent with a random start that each image draws for itself."""
    import eagerpy

    foolbox = _foolbox()
    best_other_classes = foolbox.attacks.carlini_wagner.best_other_classes

    shape = tuple(batch.shape[1:])
    noise = torch.stack(
        [torch.rand(shape, generator=torch.Generator().manual_seed(seed % 2**63)) * 2 - 1 for seed in seeds]
    ).to(batch.device)

    base: Any = foolbox.attacks.LinfProjectedGradientDescentAttack

    class Descent(base):  # type: ignore[misc]
        def get_random_start(self, x0: Any, epsilon: float) -> Any:
            return x0 + epsilon * eagerpy.astensor(noise)

        def get_loss_fn(self, model: Any, labels: Any) -> Any:
            if not margin:
                return super().get_loss_fn(model, labels)

            def loss(inputs: Any) -> Any:
                scores, rows = model(inputs), range(len(inputs))
                return (scores[rows, best_other_classes(scores, labels)] - scores[rows, labels]).sum()

            return loss

    # Two and a half times the radius in all, so that a walk can cross the ball and turn.
    return Descent(rel_stepsize=2.5 / steps, steps=steps, random_start=True)


def _fixed(attack: Any, victim: Victim, batch: torch.Tensor, labels: torch.Tensor, eps: float) -> torch.Tensor:
    """Run a foolbox attack within a radius; a change that is not finite counts as no change."""
    clipped: torch.Tensor = attack(victim.model, batch, labels, epsilons=eps)[1]
    return torch.where(clipped.isfinite(), clipped, batch).detach()


def _to_radius(attacked: torch.Tensor, batch: torch.Tensor, eps: float) -> torch.Tensor:
    """Extend a smallest change to the radius: it ends on the decision's boundary, where rounding may undo it."""
    change = attacked - batch
    largest = change.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-12)
    return (batch + change * (eps / largest).clamp(min=1, max=1e6)).clamp(0, 1)


def _rounded(changed: torch.Tensor, before: torch.Tensor, levels: int) -> torch.Tensor:
    """Return uint8 images that differ by at most so many levels from the originals."""
    start = before.to(torch.int16)
    after = (changed.detach().cpu() * 255).round().to(torch.int16)
    return torch.minimum(torch.maximum(after, start - levels), start + levels).clamp(0, 255).to(torch.uint8)


def _victim(classifier: Classifier, members: Sequence[Sequence[int]], space: str) -> Victim:
    foolbox = _foolbox()
    grouped = ClassScores(members, len(classifier.labels), space, _device(classifier))

    class Grouped(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            if isinstance(classifier, DifferentiableClassifier):
                return grouped(classifier.logits(batch))
            return grouped(torch.from_numpy(classifier.predict(as_pictures(batch))).to(batch.device))

    return Victim(foolbox.PyTorchModel(Grouped().eval(), bounds=(0, 1), device=_device(classifier)))


def _by_shape(pictures: Sequence[Image]) -> list[list[int]]:
    shapes: dict[tuple[int, ...], list[int]] = {}
    for place, picture in enumerate(pictures):
        shapes.setdefault(picture.shape, []).append(place)
    return list(shapes.values())


def _device(classifier: Classifier) -> str:
    return str(getattr(classifier, "device", "cpu"))


def _foolbox() -> Any:
    """Return the library; a warning at its import, about a SciPy name, is hidden."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import foolbox
    return foolbox
