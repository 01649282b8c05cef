"""Dynamic evaluation: images pushed along a generator's latent space against a model, as far as an oracle agrees.

At every point of a walk the latent is decoded once. The oracle judges that image, rounded to 8 bits so that what is
judged is what is saved; the model's loss on the same image, not rounded, gives the next step. The newest accepted
image is kept.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.protocols import LatentGenerator, Oracle
from holdfast.core.types import Image
from holdfast.oracle.human import UNDECIDED
from holdfast.pipeline.specs import WalkOptions as WalkOptions
from holdfast.pipeline.walk.resources import UnderTest as UnderTest
from holdfast.pipeline.walk.walk_step import BatchView, State, Stepper

PENDING = "pending"
"""Why a walk stopped that waits for people; it is walked again, in the same way, when they have voted."""
STOPS = ("budget", "rejected", "first_rejected", "fooled", "not_finite")


@dataclass(frozen=True)
class WalkInput:
    """An image that is to walk."""

    key: str  # whatever distinguishes it from others
    image: Image  # HWC uint8 RGB, of the generator's working size; all of one size
    label: int  # place of its class among the dataset's
    seed: int = 0  # of its random numbers, so that its neighbours do not matter
    steps: int | None = None  # a budget of its own, 0 or more; None: that of the options


@dataclass(frozen=True)
class Frame:
    """One point of a walk; step 0 is the reconstruction."""

    # ``probability`` of the label and ``prediction`` are the model's, before rounding; ``score`` is the oracle's.

    step: int
    image: Image
    loss: float
    probability: float
    prediction: str
    score: float
    accepted: bool


@dataclass(frozen=True)
class WalkResult:
    """Where a walk came to."""

    key: str
    validated: bool  # whether the oracle accepted any image that counts
    steps: int  # behind the image that was kept
    stop: str  # why it ended: ``budget``, ``rejected``, ``first_rejected``, ``fooled`` or ``not_finite``
    image: Image  # the newest accepted one, the original if there is none
    reconstruction: Image  # the image without a step
    reconstruction_accepted: bool  # whether the oracle accepts that
    score: float  # the oracle's of the image that was kept, else of the last it judged; ``margin`` likewise
    margin: float
    saw: str  # what the oracle took the last image it judged for
    latent_distance: float  # root mean square between the start and the latent that was kept, 0 if none was
    image_distance: float  # root mean square, 0..1, between reconstruction and kept image, 0 if none was
    largest_change: float  # the same for the channel of a pixel that changed most
    frames: tuple[Frame, ...] = ()  # if asked for, the walk from step 0 to the last image that was judged
    # if asked for, the encoder's latent; ``latent_end`` that of the kept image
    latent_start: NDArray[np.float32] | None = None
    latent_end: NDArray[np.float32] | None = None
    seconds: float = 0.0  # of its steps: those of each batch, shared by who walked in it
    # if people judge in rounds, the images that they have not decided about, with their steps; the walk then stopped
    # for being ``pending``
    asking: tuple[tuple[int, Image], ...] = ()


class _Facts(NamedTuple):
    """What one look found out about one image; the order of ``BatchView.facts``."""

    finite: float
    accepted: float
    score: float
    margin: float
    saw: float
    loss: float
    probability: float
    prediction: float


@dataclass
class _Slot:
    """A place in the batch and who walks there."""

    walker: WalkInput
    budget: int
    step: int = 0
    kept_at: int | None = None
    kept: _Facts | None = None
    last: _Facts | None = None
    reconstruction_accepted: bool = False
    frames: list[Frame] = field(default_factory=list)
    seconds: float = 0.0
    asking: list[tuple[int, Image]] = field(default_factory=list)


def walk(
    walkers: Iterable[WalkInput],  # read as places get free
    generator: LatentGenerator,
    model: UnderTest,  # climbs the loss of this one
    oracle: Oracle,  # says how far; one that judges tensors saves copies
    options: WalkOptions,
    *,
    mask: NDArray[np.bool_] | None = None,  # of a latent's shape, true on the dimensions that may move
    frames: Collection[str] = (),  # the keys whose walks are recorded image by image
    latents: bool = False,  # whether results carry the latents at both ends
) -> Iterator[WalkResult]:
    """Walk every image; results come in the order in which walks end."""
    # Who has finished leaves the batch and the next walker takes the place, so that the batch stays full.
    return walk_with(Stepper(generator, model, oracle, options, mask), walkers, frames=frames, latents=latents)


def walk_with(
    stepper: Stepper, walkers: Iterable[WalkInput], *, frames: Collection[str] = (), latents: bool = False
) -> Iterator[WalkResult]:
    """Walk with a stepper that joins generator, model and oracle already."""
    waiting, options = iter(walkers), stepper.options
    size = 1 if options.deterministic else options.batch_size
    slots: list[_Slot | None] = [None] * size
    state: State = {}
    while True:
        began = time.perf_counter()
        slots, state = _refilled(slots, state, waiting, stepper, options)
        if not any(slots):
            return
        look = stepper.look(state)
        arriving = _arriving(look)
        before = state["latent"].detach()
        if any(slot is not None and slot.step < slot.budget for slot in slots):
            stepper.move(state, look)
        facts = [_Facts(*column) for column in arriving()]
        seconds = (time.perf_counter() - began) / sum(slot is not None for slot in slots)
        keeps, ends = [False] * len(slots), {}
        for place, slot in enumerate(slots):
            if slot is None:
                continue
            slot.seconds += seconds
            keeps[place], stop = _decide(slot, facts[place], options, stepper.every)
            if stepper.every and stepper.oracle_answers[int(facts[place].saw)] == UNDECIDED:
                keeps[place] = False
                if not _is_between(slot, stepper.every):
                    slot.asking.append((slot.step, _image(look.levels[place])))
                    # About the reconstruction people are asked, too, but unless it counts the walk continues meanwhile.
                    stop = PENDING if slot.step or options.first == "reconstruction" else stop
            if stop and slot.asking and stop != "not_finite":
                stop = PENDING
            if stop:
                ends[place] = stop
            if slot.walker.key in frames:
                image, own = _image(look.levels[place]), facts[place]
                answer, accepted = stepper.answers[int(own.prediction)], bool(own.accepted and own.finite)
                slot.frames.append(Frame(slot.step, image, own.loss, own.probability, answer, own.score, accepted))
        _keep(state, look, before, keeps, [slot is not None and slot.step == 0 for slot in slots])
        # A look that no one moved on from still holds everything that its gradient would need.
        del look, arriving, before
        yield from _finished(slots, ends, state, stepper, latents)
        for place, slot in enumerate(slots):
            if place in ends:
                slots[place] = None
            elif slot is not None:
                slot.step += 1


def _is_between(slot: _Slot, every: int) -> bool:
    """Return whether people are not asked about this step: they are about each ``every``-th one and the last."""
    return bool(every) and bool(slot.step % every) and slot.step < slot.budget


def _decide(slot: _Slot, facts: _Facts, options: WalkOptions, every: int = 0) -> tuple[bool, str]:
    """Return whether this image is kept, and why the walk ends ('' if it continues)."""
    accepted, finite = bool(facts.accepted), bool(facts.finite)
    slot.last = facts
    if _is_between(slot, every):
        return False, "" if finite else "not_finite"
    if slot.step == 0:
        slot.reconstruction_accepted = accepted and finite
    if not finite:
        return False, "not_finite"
    if slot.step > 0 or options.first == "reconstruction":
        if not accepted:
            return False, "first_rejected" if slot.kept is None else "rejected"
        slot.kept, slot.kept_at = facts, slot.step
        if options.stop_when_fooled and int(facts.prediction) != slot.walker.label:
            return True, "fooled"
    return slot.kept is facts, "budget" if slot.step >= slot.budget else ""


def _refilled(
    slots: list[_Slot | None], state: State, waiting: Iterator[WalkInput], stepper: Stepper, options: WalkOptions
) -> tuple[list[_Slot | None], State]:
    """Return the batch with new walks in free places; without new ones it shrinks."""
    free = [place for place, slot in enumerate(slots) if slot is None]
    new = list(itertools.islice(waiting, len(free)))
    if not new:
        if free and state:
            held = [place for place, slot in enumerate(slots) if slot is not None]
            if stepper.device.type == "cuda" and 2 * len(held) > len(slots):
                return slots, state  # cuDNN takes a second to prepare its kernels for another number of images
            return [slots[place] for place in held], {name: tensor[held] for name, tensor in state.items()}
        return slots, state
    shape = tuple(state["kept"].shape[-2:]) if state else new[0].image.shape[:2]
    for walker in new:
        if walker.image.shape != (*shape, 3) or walker.image.dtype != np.uint8:
            raise UserError(
                f"all images of a walk are RGB of one size, here {shape[0]} × {shape[1]}; {walker.key} has shape "
                f"{walker.image.shape}"
            )
    begun = stepper.begin(
        [walker.image for walker in new], [walker.label for walker in new], [walker.seed for walker in new]
    )
    if not state:
        # A batch that is not full from the start has no more walkers to come.
        slots, free = [None] * len(new), list(range(len(new)))
        state = begun
    else:
        for name, tensor in begun.items():
            taken = torch.tensor(free[: len(new)], device=tensor.device)
            state[name] = state[name].detach().index_copy(0, taken, tensor)
    for place, walker in zip(free, new, strict=False):
        slots[place] = _Slot(walker, options.steps if walker.steps is None else walker.steps)
    return slots, state


def _arriving(look: BatchView) -> Callable[[], list[list[float]]]:
    """Return a function that waits for the facts of a view, which are copied while the device continues."""
    if look.facts.device.type != "cuda":
        return look.facts.T.tolist
    buffer = torch.empty(look.facts.shape, pin_memory=True)
    buffer.copy_(look.facts, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def wait() -> list[list[float]]:
        copied.synchronize()
        rows: list[list[float]] = buffer.T.tolist()
        return rows

    return wait


def _keep(state: State, look: BatchView, latent: object, keeps: list[bool], begins: list[bool]) -> None:
    assert isinstance(latent, torch.Tensor)
    device = latent.device
    kept, begun = (torch.tensor(flags).to(device, non_blocking=True) for flags in (keeps, begins))
    picture = (-1, 1, 1, 1)
    state["kept"] = torch.where(kept.view(picture), look.levels, state["kept"])
    state["reconstruction"] = torch.where(begun.view(picture), look.levels, state["reconstruction"])
    state["kept_latent"] = torch.where(kept.view(-1, *[1] * (latent.ndim - 1)), latent, state["kept_latent"])


def _finished(
    slots: list[_Slot | None], ends: dict[int, str], state: State, stepper: Stepper, latents: bool
) -> Iterator[WalkResult]:
    for place, stop in ends.items():
        slot = slots[place]
        assert slot is not None and slot.last is not None
        verdict = slot.kept or slot.last
        image, reconstruction = _image(state["kept"][place]), _image(state["reconstruction"][place])
        change = np.abs(image.astype(np.int16) - reconstruction) / 255
        start, end = (state[name][place].cpu().numpy() for name in ("start", "kept_latent"))
        validated = slot.kept is not None
        yield WalkResult(
            key=slot.walker.key,
            validated=validated,
            steps=slot.kept_at or 0,
            stop=stop,
            image=image,
            reconstruction=reconstruction,
            reconstruction_accepted=slot.reconstruction_accepted,
            score=verdict.score,
            margin=verdict.margin,
            saw=stepper.oracle_answers[int(slot.last.saw)],
            latent_distance=float(np.sqrt(np.mean((end - start).astype(np.float64) ** 2))),
            image_distance=float(np.sqrt(np.mean(change**2))) if validated else 0.0,
            largest_change=float(change.max()) if validated else 0.0,
            frames=tuple(slot.frames),
            latent_start=start if latents else None,
            latent_end=end if latents else None,
            seconds=slot.seconds,
            asking=tuple(slot.asking),
        )


def _image(levels: object) -> Image:
    assert isinstance(levels, torch.Tensor)
    return np.ascontiguousarray(levels.permute(1, 2, 0).cpu().numpy())
