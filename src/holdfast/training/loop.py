"""The training loop: any module and any loss, on any device; killed runs resume."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError, MachineError, UserError, out_of_memory
from holdfast.core.fingerprint import seed_from
from holdfast.core.lazy import torch
from holdfast.training import checkpoint

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch.optim.swa_utils import AveragedModel


def constant(done: float) -> float:
    """Return the full learning rate throughout."""
    return 1.0


def one_cycle(done: float, *, warmup: float = 0.15, start: float = 0.04) -> float:
    """Return a rate that rises from ``start`` to 1 during ``warmup`` and then falls to 0, both along a cosine."""
    if done < warmup:
        return start + (1 - start) * (1 - math.cos(math.pi * done / warmup)) / 2
    return (1 + math.cos(math.pi * min(1.0, (done - warmup) / (1 - warmup)))) / 2


def decayed(module: torch.nn.Module, decay: float) -> list[dict[str, Any]]:
    """Return a module's parameters as groups of an optimiser: norms and biases are not decayed."""
    weights = [parameter for parameter in module.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in module.parameters() if parameter.ndim <= 1]
    return [{"params": weights, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


def pieces_of(batch: Any, count: int) -> Iterable[tuple[Any, float]]:
    """Yield the parts of a batch, each with its share of the batch."""
    if count == 1:
        return [(batch, 1.0)]
    whole = length(batch)
    edges = [whole * place // count for place in range(count + 1)]
    return [(_cut(batch, slice(low, high)), (high - low) / whole) for low, high in itertools.pairwise(edges)]


def length(batch: Any) -> int:
    """Return the number of images in a batch; 1 if it cannot be cut."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.ndim else 1
    members = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (tuple, list)) else ()
    return max((length(member) for member in members), default=1)


def _cut(batch: Any, part: slice) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch[part] if batch.ndim else batch
    if isinstance(batch, Mapping):
        return {name: _cut(member, part) for name, member in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(_cut(member, part) for member in batch)
    return batch


def averaging(averaged: AveragedModel, model: torch.nn.Module, keep: float) -> Callable[[], None]:
    """Return a function that moves the averaged weights and buffers towards the model; they keep a share ``keep``."""
    # The first call takes the model as it is. ``AveragedModel.update_parameters`` does the same and makes the host wait
    # for the device each time.

    def members(module: torch.nn.Module, *, floats: bool) -> list[torch.Tensor]:
        every = itertools.chain(module.parameters(), module.buffers())
        return [tensor.detach() for tensor in every if tensor.is_floating_point() == floats]

    pairs = [(members(averaged.module, floats=floats), members(model, floats=floats)) for floats in (True, False)]
    numbers, counts = pairs

    def update() -> None:
        begun = bool(averaged.n_averaged > 0)  # is on the CPU
        if begun:
            torch._foreach_lerp_(*numbers, 1 - keep)
        else:
            torch._foreach_copy_(*numbers)
        if counts[0]:  # of batches, in batch norms
            torch._foreach_copy_(*counts)
        averaged.n_averaged += 1

    return update


LOOK_EVERY = 50
"""Steps between two looks at the loss: each look waits for the device, and doing so every step would idle it."""
SMALLEST = 2  # images of the smallest piece of a batch: batch norms need two


class DivergedError(HoldfastError):
    """The loss is no longer finite. The last checkpoint is from before."""


class TooLargeError(MachineError):
    """Memory runs out even with the smallest pieces of a batch."""


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How long and how to train."""

    epochs: int  # how many there are; after each one the checkpoint is written
    steps_per_epoch: int  # batches taken of each epoch's stream
    seed: int = 0  # every epoch's random numbers follow from it and the epoch alone: a resumed run sees the same ones
    precision: str = "float32"  # ``float32``, or ``bfloat16`` for the layers that bear it
    # how much of the averaged weights each step keeps (0.999, say); None trains without averaging
    average: float | None = None
    clip: float | None = 1.0  # largest norm of all gradients together; None leaves them
    checkpoints: Path | None = None  # folder to resume from and to write to; None keeps nothing
    # seconds for this call. It ends before, with the last whole epoch saved; calling again continues
    time_limit: float | None = None
    # bring the learning rate down by the time limit if the epochs would not fit, so that the run is complete when
    # time is up. What such a run learns depends on the machine's speed
    finish_in_time: bool = False
    on_cpu: bool = False  # leave other devices alone
    # compile forward and backward of the steps; the module itself, which evaluation uses, stays as it is
    compile: bool = False


@dataclass(frozen=True, slots=True)
class Epoch:
    """One finished epoch, for the callback. ``model`` is the averaged one if there is one, in evaluation mode."""

    # ``history`` holds the rows of the epochs before it, those of earlier calls as well.

    number: int
    metrics: Mapping[str, float]
    model: torch.nn.Module
    history: Sequence[Mapping[str, float]] = ()


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of training."""

    model: torch.nn.Module  # the trained module (averaged if asked for), in evaluation mode, on its device
    # one row of numbers an epoch; ``pieces`` says into how many a batch was cut if memory ran out
    history: tuple[Mapping[str, float], ...]
    complete: bool  # whether it came to its end; False after a time limit that only paused it
    seconds: float  # spent in training, earlier calls included


Batches = Callable[[int], Iterable[Any]]  # from the number of an epoch to its stream of batches

Loss = Callable[[Any, Any], Mapping[str, Any]]
"""From the module and a batch to scalar tensors by name; ``loss`` is minimised, all are averaged into the history."""


def fit(
    model: torch.nn.Module,  # on any device; it is moved
    # called once an epoch. Random numbers drawn from torch's global generator inside are reproducible
    batches: Batches,
    loss: Loss,  # called with the module (under autocast if precision asks for it) and a batch moved to its device
    optimiser: torch.optim.Optimizer,  # over the module's parameters; its learning rates are the full ones
    options: TrainingOptions,  # see there
    *,
    # from the share of training done, 0..1, to a factor of the learning rates
    schedule: Callable[[float], float] = constant,
    # called after every epoch; what it returns joins the epoch's row of the history
    on_epoch: Callable[[Epoch], Mapping[str, float] | None] | None = None,
    # whether training ends early, asked before every epoch with the history so far
    stop: Callable[[Sequence[Mapping[str, float]]], bool] | None = None,
) -> Fitted:
    """Train a module in place."""
    # If memory runs out, batches (tensors, or tuples, lists and dictionaries of them) are cut into pieces whose
    # gradients add up: the same step, but for batch norms, which then see fewer images at once.
    run = _Run(model, optimiser, options, schedule)
    run.resume()
    with run.writer:
        while run.epochs_done < options.epochs and not run.ended_early:
            if stop is not None and run.history and stop(run.history):
                break
            if run.epoch_would_be_late():
                return run.fitted(complete=False)
            totals = run.epoch(batches, loss)
            if totals is None:
                return run.fitted(complete=False)
            run.close_epoch(totals, on_epoch)
    return run.fitted(complete=True)


class _Run:
    """The state of one call of ``fit``."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimiser: torch.optim.Optimizer,
        options: TrainingOptions,
        schedule: Callable[[float], float],
    ) -> None:
        from torch.optim.swa_utils import AveragedModel

        self.started = time.monotonic()
        self.options, self.schedule = options, schedule
        self.rates = [group["lr"] for group in optimiser.param_groups]
        self.accelerator = _accelerator(options)
        self.model, self.optimiser = self.accelerator.prepare(model, optimiser)
        # Without the autocast that accelerate puts around forward: ``step`` has its own, and copies must not share it.
        self.plain: torch.nn.Module = self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
        self.averaged = AveragedModel(self.plain, use_buffers=True) if options.average is not None else None
        self.average: Callable[[], None] = lambda: None
        if self.averaged is not None and options.average is not None:
            self.average = averaging(self.averaged, self.plain, options.average)
        self.stepped = self.model
        if options.compile:
            torch.compiler.reset()  # else, after a few trainings in one process, it would give up without a word
            self.stepped = torch.compile(self.plain, dynamic=False)
        self.writer = checkpoint.CheckpointWriter()
        self.history: list[dict[str, float]] = []
        self.seconds_before = self.resumed_at = 0.0
        self.ended_early, self.pieces = False, 1

    @property
    def epochs_done(self) -> int:
        return len(self.history)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def resume(self) -> None:
        """Load the newest checkpoint of the folder, if there is one of the same training."""
        newest = checkpoint.newest(self.options.checkpoints) if self.options.checkpoints else None
        if newest is None:
            return
        asked = _identity(self.options)
        other = {key: value for key, value in newest.progress["asked"].items() if asked.get(key) != value}
        if other:
            was = ", ".join(f"{key} {value}" for key, value in other.items())
            raise UserError(f"the checkpoint is of another training ({was}); choose another folder or delete it")
        try:
            self.plain.load_state_dict(dict(newest.weights))
            if self.averaged is not None:
                self.averaged.load_state_dict(dict(newest.average))
            self.optimiser.load_state_dict(dict(newest.optimiser))
        except (RuntimeError, ValueError, KeyError) as error:
            raise UserError("the checkpoint is of another model; choose another folder or delete it") from error
        self.history = [dict(row) for row in newest.progress["history"]]
        self.seconds_before = newest.progress["seconds"]
        self.ended_early = newest.progress["ended_early"]
        self.pieces = int(self.history[-1].get("pieces", 1)) if self.history else 1
        self.resumed_at = self.epochs_done / self.options.epochs

    def epoch_would_be_late(self) -> bool:
        """Return whether the next epoch, if as slow as the slowest so far, ends after the time limit."""
        limit = None if self.options.finish_in_time else self.options.time_limit
        slowest = max((row["seconds"] for row in self.history), default=0.0)
        return limit is not None and self.elapsed + slowest > limit

    def share_done(self, step: int) -> float:
        """Return the share of training that is done, 0..1: by steps, or by the clock if it must finish in time."""
        by_steps = (self.epochs_done + step / self.options.steps_per_epoch) / self.options.epochs
        if self.options.time_limit is None or not self.options.finish_in_time:
            return by_steps
        by_time = self.resumed_at + (1 - self.resumed_at) * self.elapsed / self.options.time_limit
        return min(1.0, max(by_steps, by_time))

    def epoch(self, batches: Batches, loss: Loss) -> dict[str, Any] | None:
        """Train one epoch and return its mean losses; None if the time limit came first."""
        began = time.monotonic()
        totals: dict[str, Any] = {}
        taken = 0
        devices = list(range(torch.cuda.device_count())) if self.accelerator.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed_from("training", self.options.seed, self.epochs_done) % 2**63)
            self.model.train()
            for batch in itertools.islice(batches(self.epochs_done), self.options.steps_per_epoch):
                self.step(batch, loss, totals, self.share_done(taken))
                taken += 1
                if taken % LOOK_EVERY == 0:
                    self.stop_if_diverged(totals)
                if self.options.time_limit is not None and self.elapsed >= self.options.time_limit:
                    if not self.options.finish_in_time:
                        return None
                    self.ended_early = True
                    break
        if not taken:
            raise UserError(f"epoch {self.epochs_done} has no batches; give the training more images")
        self.stop_if_diverged(totals)
        means = {name: float(total) / taken for name, total in totals.items()}
        cut = {"pieces": float(self.pieces)} if self.pieces > 1 else {}
        return {**means, **cut, "seconds": time.monotonic() - began}

    def step(self, batch: Any, loss: Loss, totals: dict[str, Any], done: float) -> None:
        """Train on one batch: loss, gradients, weights, averaged weights."""
        from accelerate.utils import send_to_device

        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.schedule(done)
        batch = send_to_device(batch, self.accelerator.device)
        losses = self.gradients(batch, loss)
        while losses is None:
            self.halve(batch)
            losses = self.gradients(batch, loss)
        if self.options.clip is not None:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.options.clip)
        self.optimiser.step()
        self.average()
        for name, value in losses.items():
            totals[name] = totals.get(name, 0.0) + value

    def gradients(self, batch: Any, loss: Loss) -> dict[str, Any] | None:
        """Compute the gradients of a batch, piece by piece, and return its mean losses; None when memory ran out."""
        # The caller tries again only after this frame has let go of what it held.
        self.optimiser.zero_grad(set_to_none=True)
        means: dict[str, Any] = {}
        try:
            for piece, share in pieces_of(batch, self.pieces):
                with self.accelerator.autocast():
                    losses = loss(self.stepped, piece)
                self.accelerator.backward(losses["loss"] * share if self.pieces > 1 else losses["loss"])
                for name, value in losses.items():
                    means[name] = means.get(name, 0.0) + value.detach() * share
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            return None
        return means

    def halve(self, batch: Any) -> None:
        """Cut batches into twice as many pieces; raise TooLargeError where they would be too small."""
        self.optimiser.zero_grad(set_to_none=True)
        if self.accelerator.device.type == "cuda":
            torch.cuda.empty_cache()
        images = length(batch)
        if images // (2 * self.pieces) < SMALLEST:
            raise TooLargeError(
                f"memory runs out on {self.accelerator.device} with {-(-images // self.pieces)} images at once; train "
                "with smaller images, a smaller architecture or fewer jobs side by side"
            )
        self.pieces *= 2

    def stop_if_diverged(self, totals: Mapping[str, Any]) -> None:
        """Raise DivergedError once the sum of the losses is not finite."""
        if not math.isfinite(float(totals["loss"])):
            raise DivergedError(
                f"the loss became {float(totals['loss'])} in epoch {self.epochs_done}; lower the learning rate, clip "
                "gradients or train in float32. The checkpoint before it is sound"
            )

    def close_epoch(
        self, row: dict[str, float], on_epoch: Callable[[Epoch], Mapping[str, float] | None] | None
    ) -> None:
        """Call the callback, extend the history and start to write the checkpoint while the next epoch trains."""
        self.writer.wait()  # the callback may clear away what only the checkpoint before the last still needed
        if on_epoch is not None:
            row |= on_epoch(Epoch(self.epochs_done, row, self.result(), tuple(self.history))) or {}
        self.history.append(row)
        if self.options.checkpoints is None:
            return
        progress = {
            "asked": _identity(self.options),
            "epochs_done": self.epochs_done,
            "ended_early": self.ended_early,
            "history": self.history,
            "seconds": self.seconds_before + self.elapsed,
        }
        average = self.averaged.state_dict() if self.averaged is not None else {}
        state = checkpoint.Checkpoint(self.plain.state_dict(), average, self.optimiser.state_dict(), progress)
        self.writer.save(self.options.checkpoints, state)

    def result(self) -> torch.nn.Module:
        """Return the trained module, in evaluation mode."""
        return (self.averaged.module if self.averaged is not None else self.plain).eval()

    def fitted(self, *, complete: bool) -> Fitted:
        """Return the result of ``fit``."""
        return Fitted(self.result(), tuple(self.history), complete, self.seconds_before + self.elapsed)


def _accelerator(options: TrainingOptions) -> Accelerator:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    kinds = {"float32": "no", "bfloat16": "bf16"}
    if options.precision not in kinds:
        raise UserError(f"precision must be {' or '.join(kinds)}, not {options.precision!r}")
    # It remembers the precision of the first training in a process and refuses another.
    AcceleratorState._reset_state()
    return Accelerator(mixed_precision=kinds[options.precision], cpu=options.on_cpu)


def _identity(options: TrainingOptions) -> dict[str, Any]:
    """Return the options that must not change between a run and its continuation."""
    may_change = ("checkpoints", "time_limit", "finish_in_time", "on_cpu", "compile")
    return {key: value for key, value in dataclasses.asdict(options).items() if key not in may_change}
