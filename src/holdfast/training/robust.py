"""Ways to train a small classifier robustly: what each does to a batch, and its loss.

Ours are small versions of published methods ("like"): the idea at 64 pixels, on one batch of a small network. All
start from the same scenes, moved about and photographed alike; if a method changes images, half of a batch stays as
it is, unless the method says otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.names import unknown
from holdfast.diorama import CLASSES
from holdfast.generators import load_generator
from holdfast.training import augment
from holdfast.training.loop import Loss

Pair = tuple["torch.Tensor", "torch.Tensor"]

RADIUS = 0.03  # how far adversarial training lets a value of the image (0..1) move
ADVERSARIAL_STEPS = 5
NOISE = 0.15  # root mean square of adversarial noise, 0..1
LATENT_STEP = 0.3
"""How far an adversarial example moves every number of a VQGAN's latent, whose spread is between 1 and 2."""
CONSISTENCY = 12.0  # weight of AugMix's consistency, as published
GENERATOR = "embedded:vqgan"


MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def cross_entropy(module: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return loss and accuracy of a normalised batch with its targets, (n, classes)."""
    logits = module(batch[0])
    value = torch.nn.functional.cross_entropy(logits.float(), batch[1], label_smoothing=0.05)
    return {"loss": value, "accuracy": (logits.argmax(1) == batch[1].argmax(1)).float().mean()}


def normalised(batch: torch.Tensor) -> torch.Tensor:
    """Normalise a batch of 0..1 as the models expect it."""
    moved = (batch - _channels(MEAN, batch.device)) / _channels(STD, batch.device)
    return moved.contiguous(memory_format=torch.channels_last)


@functools.cache  # a copy to the device in every step would make the host wait for it
def _channels(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, device=device).view(-1, 1, 1)


@dataclass(frozen=True)
class RobustMethod:
    """A way to train."""

    prepared: Callable[[torch.Tensor, torch.Tensor], Any]  # NHWC uint8 images and labels → a batch
    loss: Loss = cross_entropy  # of module and batch
    # makes what is trained against the classifier; the module is then a ``ModuleDict`` of ``classifier`` and
    # ``companion``
    companion: Callable[[], torch.nn.Module] | None = None


METHODS = {
    "plain": "nothing but the scenes, moved about",
    "adversarial": "PGD, ℓ∞ 0.03: every image moved against the network",
    "augmix": "AugMix-like: mixtures of chains of operations, and the same answer for all views",
    "deepaugment": "DeepAugment-like: images through a network with disturbed weights",
    "ant": "ANT-like: noise of a small network that is trained against the classifier",
    "stylised": "stylised: texture and colours of one image, outlines of another",
    "dat": "DAT-like: adversarial examples in the latent of a VQGAN",
    "grey": "without colour",
}
"""What each is, in a few words."""


_LOSSES = ("adversarial", "augmix", "ant", "dat")  # ways that change the loss; a union has one of them at most


def described(name: str) -> str:
    """Return what a way to train, or a union such as ``ant+stylised``, does; raise a UserError for an unknown one."""
    parts = name.split("+")
    for part in parts:
        if part not in METHODS:
            raise unknown("way to train", part, METHODS)
    losses = [part for part in parts if part in _LOSSES]
    if len(set(parts)) < len(parts) or len(losses) > 1:
        raise UserError(
            f"{name!r} cannot be trained: a union names each way once, and one of {', '.join(_LOSSES)} at most"
        )
    return "; and ".join(METHODS[part] for part in parts)


def method(
    name: str,  # of ``METHODS``, or several joined by ``+``
    *,
    device: str,  # where ``dat`` keeps its generator
    generator: str = GENERATOR,  # the one of ``dat``
    classes: int = len(CLASSES),  # how many there are
    # images and labels → a batch NCHW in 0..1 and targets (n, classes); None: NHWC uint8 images, ``moved``
    start: Callable[[torch.Tensor, torch.Tensor], Pair] | None = None,
    normalise: Callable[[torch.Tensor], torch.Tensor] = normalised,  # a batch in 0..1 → what the network takes
) -> RobustMethod:
    """Return a way to train by name, or the union of several (``deepaugment+augmix``)."""
    described(name)
    begin = start or functools.partial(moved, classes=classes)
    changes: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "grey": augment.grey,
        "stylised": lambda batch: half(batch, augment.stylised),
        "deepaugment": lambda batch: half(batch, augment.through_perturbed_network),
    }
    wanted = [changes[part] for part in name.split("+") if part in changes]

    def changed(images: torch.Tensor, labels: torch.Tensor) -> Pair:
        batch, targets = begin(images, labels)
        for change in wanted:
            batch = change(batch)
        return batch, targets

    way = next((part for part in name.split("+") if part in _LOSSES), "plain")
    if way == "augmix":
        return RobustMethod(functools.partial(_three_views, start=changed, normalise=normalise), _same_answers)
    if way == "ant":
        return RobustMethod(changed, functools.partial(_against_noise, normalise=normalise), noise_maker)
    if way in ("adversarial", "dat"):
        latent_generator = load_generator(generator, device=device) if way == "dat" else None

        def loss(module: Any, batch: Pair) -> dict[str, torch.Tensor]:
            if latent_generator is None:
                examples = adversarial_examples(module, *batch, normalise=normalise)
            else:
                examples = _latent_examples(module, batch, latent_generator, normalise)
            return cross_entropy(module, (normalise(examples), batch[1]))

        return RobustMethod(changed, loss)

    def prepared(images: torch.Tensor, labels: torch.Tensor) -> Pair:
        batch, targets = changed(images, labels)
        return normalise(batch), targets

    return RobustMethod(prepared)


def moved(images: torch.Tensor, labels: torch.Tensor, classes: int = len(CLASSES)) -> Pair:
    """Return the batch of every method, NCHW in 0..1, moved and with camera noise, and targets (n, classes)."""
    batch = images.permute(0, 3, 1, 2).float() / 255
    batch = augment.move(batch, augment.move_grid(batch, augment.Moves(rotation=12, zoom=0.15)))
    return augment.camera(batch), torch.nn.functional.one_hot(labels, classes).float()


def half(batch: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Change the first half of a batch."""
    count = len(batch) // 2
    return torch.cat([change(batch[:count]), batch[count:]])


def adversarial_examples(
    module: Any,
    batch: torch.Tensor,
    targets: torch.Tensor,
    *,
    radius: float = RADIUS,
    steps: int = ADVERSARIAL_STEPS,
    normalise: Callable[[torch.Tensor], torch.Tensor] = normalised,
) -> torch.Tensor:
    """Return adversarial examples, NCHW in 0..1: projected gradient descent in ℓ∞ from a random start."""
    # The network answers as it would in use; its running means and its gradients are left alone.
    change = (torch.rand_like(batch) * 2 - 1) * radius
    training = module.training
    module.eval()
    for _ in range(steps):
        change.requires_grad_(True)
        gradient = _gradient(module, normalise((batch + change).clamp(0, 1)), targets, change)
        change = (change.detach() + 2.5 * radius / steps * gradient.sign()).clamp(-radius, radius)
    module.train(training)
    return (batch + change).clamp(0, 1)


def _gradient(module: Any, images: torch.Tensor, targets: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    loss = torch.nn.functional.cross_entropy(module(images).float(), targets)
    return torch.autograd.grad(loss, of)[0].detach()


def _three_views(images: torch.Tensor, labels: torch.Tensor, start: Any, normalise: Any) -> Pair:
    """Return the batch and two mixtures of it, (n, 3 views, channels, height, width)."""
    batch, targets = start(images, labels)
    views = (batch, augment.mixed_chains(batch), augment.mixed_chains(batch))
    return torch.stack([normalise(view) for view in views], 1), targets


def _same_answers(module: Any, batch: Pair) -> dict[str, torch.Tensor]:
    """Return the cross-entropy of the first view plus the Jensen–Shannon divergence of the answers to all three."""
    functional = torch.nn.functional
    views = batch[0].transpose(0, 1).flatten(0, 1) if batch[0].ndim == 5 else batch[0]
    logits = module(views).float()
    first = logits[: len(batch[1])]
    answers = logits.softmax(1).view(3, -1, logits.shape[1])
    middle = answers.mean(0).clamp(1e-7, 1).log()
    apart = torch.stack([functional.kl_div(middle, answer, reduction="batchmean") for answer in answers]).mean()
    plain = functional.cross_entropy(first, batch[1], label_smoothing=0.05)
    right = (first.argmax(1) == batch[1].argmax(1)).float().mean()
    return {"loss": plain + CONSISTENCY * apart, "accuracy": right, "apart": apart}


def noise_maker() -> torch.nn.Module:
    """Return a network that turns white noise into local noise: every pixel depends on its neighbours."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 1), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 3, 1),
    )  # fmt: skip


def _against_noise(
    module: Any, batch: Pair, normalise: Callable[[torch.Tensor], torch.Tensor] = normalised
) -> dict[str, torch.Tensor]:
    """Return one loss for both networks: its gradient reaches the noise with the opposite sign."""

    def noisy(images: torch.Tensor) -> torch.Tensor:
        noise: torch.Tensor = module["companion"](torch.randn_like(images)).float()
        noise = noise - noise.mean((2, 3), keepdim=True)  # else it would only tint the image
        level = noise.square().mean((1, 2, 3), keepdim=True).sqrt().clamp(min=1e-6)
        noise = noise / level * NOISE * torch.rand_like(level)
        return (images + (2 * noise.detach() - noise)).clamp(0, 1)

    return cross_entropy(module["classifier"], (normalise(half(batch[0], noisy)), batch[1]))


def with_companion(network: Any, companion: Any) -> Any:
    """Return a module that answers as the network does and keeps next to it what is trained against it."""

    class NetworkAndCompanion(torch.nn.ModuleDict):
        """Answers as its classifier."""

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            """Return the classifier's logits."""
            logits: torch.Tensor = self["classifier"](batch)
            return logits

    return NetworkAndCompanion({"classifier": network, "companion": companion})


def without_companion(module: Any) -> Any:
    """Return the network of ``with_companion``; any other module as it is."""
    is_pair = isinstance(module, torch.nn.ModuleDict) and "companion" in module
    return module["classifier"] if is_pair else module


def _latent_examples(
    module: Any, batch: Pair, generator: Any, normalise: Callable[[torch.Tensor], torch.Tensor] = normalised
) -> torch.Tensor:
    """Encode half of the batch, move it one step against the network, and decode it through the codes."""
    images, targets = batch
    count = len(images) // 2
    with torch.no_grad():
        latent = generator.encode(images[:count]).float()
    latent.requires_grad_(True)
    training = module.training
    module.eval()
    gradient = _gradient(module, normalise(generator.decode(latent, images[:count]).float()), targets[:count], latent)
    module.train(training)
    with torch.no_grad():
        examples = generator.decode(latent + LATENT_STEP * gradient.sign(), images[:count]).float()
    return torch.cat([examples, images[count:]])
