"""One step of a walk for a whole batch: decode once, ask the oracle and the model, move every latent.

Nothing in a batch influences another image: losses are summed over images and each gradient is its own. The oracle
judges the image rounded to 8 bits, which is the one that is saved. The model climbs on the image as it was decoded: a
value that rounds up in one batch and down in another would turn the signs of small gradients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError, first_line
from holdfast.core.fingerprint import seed_from
from holdfast.core.lazy import torch
from holdfast.core.protocols import DifferentiableClassifier, LatentGenerator, Oracle, TensorOracle
from holdfast.generators.loading import noise
from holdfast.models.torch_classifier import as_pictures
from holdfast.pipeline.specs import WalkOptions
from holdfast.pipeline.walk.resources import UnderTest, check_gradients, losses, needs_gradients

State = dict[str, "torch.Tensor"]  # what a batch carries from step to step, first axis the images
LOG = logging.getLogger(__name__)
_SAME = 0.1  # relative distance of images and gradients that bfloat16 explains
_LOOKED_AT = ("latent", "original", "label")  # what of a state a look reads
_RECORDED_AFTER = 3  # looks at batches of one size
_SCORE = 2  # the oracle's, of the facts of a look
_MOMENTS = (0.9, 0.999)  # Adam's, as everywhere


@dataclass(frozen=True)
class BatchView:
    """A batch at one point of its walks."""

    levels: torch.Tensor  # the images, NCHW uint8
    loss: torch.Tensor  # (n,), the model's; gradients reach the latents
    # (8, n) float32: finite, accepted, the oracle's score, margin and place of what it saw, the loss, the model's
    # probability of the label and the place of its answer
    facts: torch.Tensor
    gradient: Callable[[], torch.Tensor]  # returns the gradient of the losses by the latents; once per view


class RecordedLook:
    """A look at batches of one size, and its gradient, as two CUDA graphs: two calls instead of thousands.

    The view that a call returns holds until the next call.
    """

    def __init__(self, look: Callable[..., BatchView], state: State) -> None:
        torch.cuda.empty_cache()  # graphs have memory of their own
        self._inputs = {name: state[name].detach().clone() for name in _LOOKED_AT}
        self._inputs["latent"].requires_grad_(state["latent"].requires_grad)
        self._graph, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            view = look(**self._inputs)
        slopes = torch.empty(0)
        if self._inputs["latent"].requires_grad:
            with torch.cuda.graph(backward, self._graph.pool(), capture_error_mode="thread_local"):
                slopes = view.gradient()

        def gradient() -> torch.Tensor:  # holds no view: those of other sizes are freed at once
            backward.replay()
            return slopes

        self._view = replace(view, loss=view.loss.detach(), gradient=gradient)
        for computed in (self._view.loss, self._view.facts, slopes):  # what a replay does not write is seen
            computed.fill_(torch.nan)

    def __call__(self, state: State) -> BatchView:
        """Return the view of a state."""
        with torch.no_grad():
            for name, tensor in self._inputs.items():
                tensor.copy_(state[name])
        self._graph.replay()
        return self._view


class Stepper:
    """Generator, model and oracle joined into steps."""

    def __init__(
        self,
        generator: LatentGenerator,
        model: UnderTest,
        oracle: Oracle,
        options: WalkOptions,
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        self.device = torch.device(getattr(generator, "device", "cpu"))
        self._generator, self._model, self.options = generator, model, options
        self.answers = model.answers
        self._judge, self.oracle_answers = _judging(oracle)
        self.every = int(getattr(oracle, "every", 0))  # steps between two questions to people; 0: every step is judged
        self._mask = None if mask is None else torch.from_numpy(np.ascontiguousarray(mask)).to(self.device)
        check_gradients(model.classifier, options)
        self._differentiates = needs_gradients(options)
        self._estimates = options.black_box > 0 and needs_gradients(replace(options, black_box=0))
        if self.device.type == "cuda":
            if self.device.index is not None:  # kernels of our own and recordings are for the current one
                torch.cuda.set_device(self.device)
            _channels_last(generator, model.classifier, oracle)
        fast = self.device.type == "cuda" and options.precision == "bfloat16" and find_spec("triton")
        self._steps: AbstractContextManager[Any] | None = None if fast else nullcontext()  # None: from the first look
        # A model that answers from this process's memory would make a GPU wait, which cannot be recorded.
        on_device = isinstance(oracle, TensorOracle) and isinstance(model.classifier, DifferentiableClassifier)
        self._records = bool(fast) and on_device and not self._estimates
        self._recorded: RecordedLook | None = None
        self._size, self._looks = 0, 0  # images of the newest batch, and looks at batches of that size

    def begin(self, images: Sequence[NDArray[np.uint8]], labels: Sequence[int], seeds: Sequence[int]) -> State:
        """Encode new images, never in bfloat16: the state of walks that have not begun."""
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous().to(self.device)
        truth = torch.tensor(labels, device=self.device)
        original = pixels.float() / 255
        with self.exact():
            if self.options.start == "fgsm":
                original = self._fgsm(original, truth)
            with torch.no_grad():
                # In 64, 32, 16 …: a GPU prepares kernels for each number of images that it meets.
                sizes = [1 << bit for bit in reversed(range(len(original).bit_length())) if len(original) >> bit & 1]
                parts = torch.split(original, sizes) if self.device.type == "cuda" else [original]
                try:
                    latent = self._encoded(parts)
                except torch.OutOfMemoryError:
                    if self._recorded is None:
                        raise
                    latent = None
                if latent is None:  # what a recording holds is needed here: the walk continues without one
                    self._recorded, self._records = None, False
                    torch.cuda.empty_cache()
                    latent = self._encoded(parts)
        if self._mask is not None and self._mask.shape != latent.shape[1:]:
            raise UserError(
                f"the latent mask has shape {tuple(self._mask.shape)}, the latents of {self._generator.name} "
                f"{tuple(latent.shape[1:])}; fit the mask with the same generator and size"
            )
        state = {"latent": latent, "start": latent, "original": original, "label": truth}
        state |= {"kept_latent": latent, "kept": pixels, "reconstruction": pixels}
        state["age"] = torch.zeros(len(latent), device=self.device)
        state["seed"] = torch.tensor([seed_from("walk", seed) >> 1 for seed in seeds])
        if self.options.gradient == "adam":
            state |= {"moment": torch.zeros_like(latent), "square": torch.zeros_like(latent)}
        if self.options.direction == "random":
            state["direction"] = self._directions(state["seed"], latent)
        return {name: tensor.clone() for name, tensor in state.items()}

    def _encoded(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat([self._generator.encode(part).detach().float() for part in parts]).to(self.device)

    def look(self, state: State) -> BatchView:
        """Decode, judge and score a batch; nothing waits for the device."""
        latent = state["latent"]
        if latent.ndim == 4 and self.device.type == "cuda":
            latent = latent.contiguous(memory_format=torch.channels_last)
        if self._steps is None:
            self._steps = self._fast_steps(latent[:1], state["original"][:1])
        state["latent"] = latent.detach().requires_grad_(self._differentiates)
        if len(latent) != self._size:
            self._size, self._looks, self._recorded = len(latent), 0, None
        self._looks += 1
        if self._recorded is not None:
            return self._recorded(state)
        with self.exact(), torch.set_grad_enabled(self._differentiates):
            if self._records and self._looks == _RECORDED_AFTER:
                return self._look_and_record(state)
            return self._looked(*(state[name] for name in _LOOKED_AT))

    def move(self, state: State, look: BatchView) -> None:
        """Move every latent one step; one whose gradient is not finite becomes NaN, which the next look reports."""
        latent = state["latent"]
        with self.exact():
            if self._differentiates:
                gradient = look.gradient()
            elif self._estimates:
                gradient = self._estimate(state)
            else:
                gradient = state["direction"]
        with torch.no_grad():
            if self._mask is not None:
                gradient = gradient * self._mask
            state["age"] += 1
            step = self._formed(gradient, state)
            if self.options.direction == "random":
                step = state["direction"] * _each(self._length(step), step)
            finite = gradient.flatten(1).isfinite().all(1)
            moved = latent.detach() + self.options.step_size * step
            state["latent"] = torch.where(_each(finite, moved), moved, torch.nan)

    @contextmanager
    def exact(self) -> Iterator[None]:
        """Set torch's switches for a step: no TF32 if float32 was asked for, fast kernels unless deterministic."""
        fixed, coarse = self.options.deterministic, self.options.precision == "bfloat16"
        tries = not fixed and not coarse  # all kernels; in bfloat16 that takes ten seconds and gains 2 %
        try:
            with torch.backends.cudnn.flags(enabled=True, benchmark=tries, deterministic=fixed, allow_tf32=coarse):
                yield
        except torch.OutOfMemoryError as error:
            size = 1 if fixed else self.options.batch_size
            raise UserError(
                f"a walk of {size} images at a time does not fit into the memory of {self.device}; try a --batch-size "
                "below that"
            ) from error

    def _looked(self, latent: torch.Tensor, original: torch.Tensor, label: torch.Tensor) -> BatchView:
        assert self._steps is not None
        with self._autocast(), self._steps:
            image = self._generator.decode(latent, original).float()
            with torch.no_grad():
                whole = (image.detach().clamp(0, 1) * 255).round()
                accepted, score, margin, saw = self._judge(whole / 255, label)
            scores = self._model.scores(image).to(self.device)
        loss = losses(scores.float(), label, self.options.loss)
        with torch.no_grad():
            finite = latent.flatten(1).isfinite().all(1) & image.flatten(1).isfinite().all(1)
            probability = scores.float().softmax(1).gather(1, label[:, None])[:, 0]
            columns = (finite, accepted, score, margin, saw, loss, probability, scores.argmax(1))
            facts = torch.stack([column.detach().float() for column in columns])

        def gradient() -> torch.Tensor:
            return torch.autograd.grad(loss.sum(), latent)[0]

        return BatchView(whole.nan_to_num().to(torch.uint8), loss, facts, gradient)

    def _look_and_record(self, state: State) -> BatchView:
        """Return the view of a state, and record looks for the next ones if that gives the same numbers."""
        known, trouble = self._looked(*(state[name] for name in _LOOKED_AT)), ""
        slopes = known.gradient() if self._differentiates else torch.zeros(0)
        known = replace(known, loss=known.loss.detach(), gradient=lambda: slopes)
        try:
            recorded = RecordedLook(self._looked, state)
            ours = recorded(state)
            pairs = [(known.loss, ours.loss), (known.facts[_SCORE], ours.facts[_SCORE])]
            _check_alike(*pairs, *([(slopes, ours.gradient())] if self._differentiates else []))
            self._recorded = recorded
        except Exception as error:  # a network that waits for the device, or memory for two
            trouble = first_line(error)
        if trouble:  # only now is free what the error held
            LOG.warning("the walk is slower than it could be: its steps cannot be recorded (%s)", trouble)
            self._records = False
            torch.cuda.empty_cache()
        return known

    def _fast_steps(self, latent: torch.Tensor, original: torch.Tensor) -> AbstractContextManager[Any]:
        """Return a context in which steps move fewer bytes, tried on one image; one without effect if it fails."""
        from holdfast.pipeline.walk.norms import FastSteps, WatchedSteps

        def decoded(mode: AbstractContextManager[Any]) -> list[torch.Tensor]:
            start = latent.detach().requires_grad_()
            with self.exact(), self._autocast(), mode, torch.enable_grad():
                image = self._generator.decode(start, original).float()
            return [image.detach(), *torch.autograd.grad(image.square().sum(), start)]

        watched = WatchedSteps()
        try:
            plain, steps = decoded(watched), FastSteps(watched)
            _check_alike(*zip(plain, decoded(steps), strict=True))
        except Exception as error:  # a generator without gradients; a GPU that these kernels were not tried on
            LOG.warning("the walk is slower than it could be: its kernels fail here (%s)", error)
            return nullcontext()
        return steps

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.options.precision == "bfloat16", cache_enabled=False
        )

    def _formed(self, gradient: torch.Tensor, state: State) -> torch.Tensor:
        """Return the gradient as a step of ``step_size`` 1."""
        form = self.options.gradient
        if form == "sign":
            return gradient.sign()
        if form == "normalised":
            return gradient / _each(self._length(gradient).clamp_min(torch.finfo(torch.float32).tiny), gradient)
        if form == "adam":
            first, second = _MOMENTS
            state["moment"] = first * state["moment"] + (1 - first) * gradient
            state["square"] = second * state["square"] + (1 - second) * gradient.square()
            age = _each(state["age"], gradient)
            mean, square = state["moment"] / (1 - first**age), state["square"] / (1 - second**age)
            return mean / (square.sqrt() + 1e-8)
        return gradient

    def _length(self, steps: torch.Tensor) -> torch.Tensor:
        """Return the root mean square over the dimensions that may move, (n,)."""
        count = steps[0].numel() if self._mask is None else max(int(self._mask.sum()), 1)
        return (steps.flatten(1).square().sum(1) / count).sqrt()

    def _directions(self, seeds: torch.Tensor, latent: torch.Tensor) -> torch.Tensor:
        """Return one random direction per image, of length 1: signs for the sign form, else normal."""
        drawn = noise([seed_from("direction", seed) for seed in seeds.tolist()], latent.shape[1:]).to(self.device)
        drawn = drawn.sign() if self.options.gradient == "sign" else drawn
        drawn = drawn if self._mask is None else drawn * self._mask
        return drawn / _each(self._length(drawn).clamp_min(1e-12), drawn)

    def _estimate(self, state: State) -> torch.Tensor:
        """Return the gradient estimated by differences of the loss along random probes, there and back."""
        latent, options = state["latent"], self.options
        total = torch.zeros_like(latent)
        keys = list(zip(state["seed"].tolist(), state["age"].long().tolist(), strict=True))
        with torch.no_grad():
            for probe in range(options.black_box):
                drawn = noise([seed_from("probe", *key, probe) for key in keys], latent.shape[1:]).to(self.device)
                if self._mask is not None:
                    drawn = drawn * self._mask
                ahead = self._loss_at(latent + options.probe_size * drawn, state)
                back = self._loss_at(latent - options.probe_size * drawn, state)
                total += _each(ahead - back, drawn) * drawn
        return total / (2 * options.probe_size * options.black_box)

    def _loss_at(self, latent: torch.Tensor, state: State) -> torch.Tensor:
        with self._autocast():
            image = self._generator.decode(latent, state["original"]).float()
            scores = self._model.scores(image).to(self.device)
        return losses(scores.float(), state["label"], self.options.loss)

    def _fgsm(self, original: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            pixels = original.detach().requires_grad_()
            loss = self._model.loss(pixels, labels.to(pixels.device), self.options.loss)
            (gradient,) = torch.autograd.grad(loss.sum(), pixels)
        return (original + self.options.fgsm_epsilon * gradient.sign()).clamp(0, 1)


def _each(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return one value per image, (n,), in a shape that broadcasts over each image."""
    return values.view(-1, *[1] * (like.ndim - 1))


def _check_alike(*pairs: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Raise ValueError where the second tensor of a pair is not the first one, up to what bfloat16 explains."""
    for known, ours in pairs:
        apart, size = (float(values.nan_to_num().norm()) for values in (ours - known, known))
        if apart > _SAME * size or bool((ours.isfinite() != known.isfinite()).any()):
            raise ValueError(f"its images or gradients are off by {apart:.2g} of {size:.2g}")


def _judging(oracle: Oracle) -> tuple[Callable[[Any, Any], tuple[Any, Any, Any, Any]], list[str]]:
    """Return the oracle as a function of batches, and the names of what it sees."""
    answers = list(getattr(oracle, "answers", oracle.classes))
    if isinstance(oracle, TensorOracle):
        return oracle.judge_batch, answers

    def judge(batch: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = oracle.judge(as_pictures(batch.nan_to_num()), [oracle.classes[place] for place in labels.tolist()])
        answers.extend(dict.fromkeys(verdict.saw for verdict in given if verdict.saw not in answers))
        columns = [(verdict.accepted, verdict.score, verdict.margin, answers.index(verdict.saw)) for verdict in given]
        return tuple(torch.tensor(column, device=labels.device) for column in zip(*columns, strict=True))

    return judge, answers  # type: ignore[return-value]


def _channels_last(*owners: object) -> None:
    """Change the memory layout of every network's weights to channels-last; values stay."""
    for owner in owners:
        parts = [*vars(owner).values()] if hasattr(owner, "__dict__") else []
        for part in [*parts, *(value for owner in parts for value in getattr(owner, "__dict__", {}).values())]:
            if isinstance(part, torch.nn.Module):
                part.to(memory_format=torch.channels_last)
