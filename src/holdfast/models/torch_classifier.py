"""A classifier around any PyTorch module, with the preprocessing it was trained for."""

from __future__ import annotations

import itertools
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from holdfast.core.errors import MachineError, SampleError, UserError, out_of_memory
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import torch
from holdfast.core.networks import fuse, resolve_device, weights_sha256
from holdfast.core.types import Image, LabelSpace
from holdfast.models import probing

MAX_ASPECT = 16
CPU_PIXELS = 8 * 224 * 224  # At once on a CPU: the activations of more are handed back to the system layer by layer
"""Models that crop the centre look at images narrower than 1:16 through their middle 1:16 part: resizing the short
side of a 1 × 5000 image to 256 would otherwise make 300 million pixels that the crop then throws away."""

SAME = 1e-4  # of the largest logit: fused layers add in another order, which changes about 1e-6


@dataclass(frozen=True, slots=True)
class Geometry:
    """Which part of an image a model sees and how it is resized, as data."""

    resize: int | tuple[int, int]  # length of the short side, or height and width
    crop: tuple[int, int]  # height and width of the middle that is kept
    interpolation: str  # Pillow's filter: bilinear, bicubic, lanczos or nearest


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How a family of models prepares images."""

    transform: Callable[[PIL.Image.Image], torch.Tensor]  # RGB image → float CHW tensor, normalised
    size: tuple[int, int]  # height and width the model expects
    mean: tuple[float, ...]  # per channel, on a 0..1 scale; std likewise
    std: tuple[float, ...]
    crops_centre: bool  # whether the short side is resized and the middle kept
    description: Mapping[str, Any]  # JSON that changes whenever the result could; part of the model's fingerprint
    # the transform but for the mean and the deviation, if it is nothing else; None if it is more.
    geometry: Geometry | None = None
    channels: str = "rgb"  # bgr: the model takes what ``transform`` returns with its channels turned round
    unclear: str = ""  # why mean and std are unknown, so that only ``transform`` leads to the network; usually empty


def picture(image: Image, *, crops_centre: bool) -> PIL.Image.Image:
    """Return the image for Pillow; an extreme aspect is cut to the middle if the edges would be cropped anyway."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or image.size == 0:
        raise SampleError(f"models see RGB images (height, width, 3) of uint8, not {image.shape} of {image.dtype}")
    height, width = image.shape[:2]
    if crops_centre and max(height, width) > MAX_ASPECT * min(height, width):
        kept = MAX_ASPECT * min(height, width)
        top, left = max(0, height - kept) // 2, max(0, width - kept) // 2
        image = image[top : top + kept, left : left + kept]
    return PIL.Image.fromarray(np.ascontiguousarray(image))


_EXACT = threading.Lock()
_within: list[Any] = []  # threads within ``exact``: first what sets the switches back, then None for each of them


@contextmanager
def exact() -> Iterator[None]:
    """Compute without TF32 convolutions: they would make answers depend on the batch by more than 1e-4."""
    # The switches belong to all threads: the first that comes sets them, and the last that goes sets them back.
    with _EXACT:
        if not _within:
            flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
            flags.__enter__()
            _within.append(flags)
        _within.append(None)
    try:
        yield
    finally:
        with _EXACT:
            _within.pop()
            if len(_within) == 1:
                _within.pop().__exit__(None, None, None)


def in_parts(model: Any, batch: Any, ask: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield what ``ask`` answers to each part of a batch; if memory runs out, the model's batch size is halved."""
    while len(batch):
        some, answer = batch[: model.batch_size], None
        try:
            answer = ask(some)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
        if answer is not None:
            yield answer
            batch = batch[len(some) :]
            continue
        if len(some) == 1:
            where = f"{model.name} runs out of memory on {model.device}"
            raise MachineError(f"{where} with a single image; try --device cpu")
        model.batch_size = len(some) // 2
        if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()


class TorchClassifier:
    """A ``StagedClassifier`` around a module that maps a normalised batch to logits, (n, labels)."""

    def __init__(
        self,
        name: str,
        module: torch.nn.Module,
        labels: LabelSpace,
        preprocessing: Preprocessing,
        *,
        architecture: str,
        device: str = "auto",
        batch_size: int = 64,
    ) -> None:
        self.name = name
        self.labels = labels
        self.fingerprint = fingerprint(
            {
                "architecture": architecture,
                "weights": weights_sha256(module),
                "preprocessing": preprocessing.description,
                "labels": labels,
            }
        )
        self.independent = False  # whether outputs are scores of labels that go together, not shares of one class
        self.embeds = False  # whether outputs are an embedding, which ``predict`` returns as it is
        self.batch_size = batch_size
        self.device = resolve_device(device)
        self.preprocessing = preprocessing
        module = blue_first(module) if preprocessing.channels == "bgr" else module
        self._module = module.float().eval().requires_grad_(False).to(self.device)
        self._answering: torch.nn.Module | None = None  # what computes answers, after ``fuse_layers``
        self._mean = torch.tensor(preprocessing.mean, device=self.device).view(-1, 1, 1)
        self._std = torch.tensor(preprocessing.std, device=self.device).view(-1, 1, 1)
        self._sizes: dict[tuple[int, int], tuple[int, int]] = {}
        self._kept: dict[int, tuple[int, int] | None] = {}

    @property
    def module(self) -> torch.nn.Module:
        """Return the module that computes the logits of a prepared batch; train a copy, not this one."""
        return self._module

    def fuse_layers(self) -> bool:
        """Answer with fused layers from now on and return True, if this is a CPU and answers stay the same."""
        if self._answering is None:
            self._answering = self._fused() or self._module
        return self._answering is not self._module

    def _fused(self) -> torch.nn.Module | None:
        norms = any(isinstance(layer, torch.nn.BatchNorm2d) for layer in self._module.modules())
        if not (norms and self.device.startswith("cpu")):
            return None
        pictures = torch.rand(2, 3, *self.preprocessing.size, generator=torch.Generator().manual_seed(0))
        # Control flow that depends on values, outputs that are not tensors, a torch without oneDNN.
        with suppress(Exception), torch.inference_mode():
            fused, pictures = fuse(self._module, "cpu"), (pictures - self._mean) / self._std
            expected = self._module(pictures)
            if (fused(pictures) - expected).abs().max() <= SAME * expected.abs().max():
                return fused
        return None

    def prepare(self, image: Image) -> torch.Tensor:
        """Prepare an RGB image of any size: the normalised CHW tensor, on the CPU."""
        return self.preprocessing.transform(picture(image, crops_centre=self.preprocessing.crops_centre))

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels), rows in the order of the images."""
        if self.device == "cpu" or len(images) < 2:
            return self._in_batches(images, self.prepare)
        count = torch.get_num_threads()  # the device need not wait for one core
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as threads:
            return self.predict_prepared(list(threads.map(self.prepare, images)))

    def predict_prepared(self, prepared: Sequence[torch.Tensor]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels), for what ``prepare`` returned."""
        return self._in_batches(prepared, lambda tensor: tensor)

    def logits(self, batch: torch.Tensor) -> torch.Tensor:
        """Return logits, (n, labels), of an RGB batch NCHW in 0..1; gradients reach the batch.

        Another size than the model's is resized, bilinearly with antialiasing; nothing is cropped. Raises a UserError
        if the way from pixels to the network is known to the transform alone.
        """
        self.check_clear()
        batch = batch.to(self.device)
        size = self.size_of(*batch.shape[-2:])
        if tuple(batch.shape[-2:]) != size:
            batch = torch.nn.functional.interpolate(
                batch, size=size, mode="bilinear", align_corners=False, antialias=True
            )
        logits: torch.Tensor = self._module((batch - self._mean) / self._std)
        return logits

    def check_clear(self) -> None:
        """Raise a UserError if nothing but the transform knows how pixels reach the network."""
        if self.preprocessing.unclear:
            raise UserError(
                f"{ways_in(self)} of {self.name} cannot be followed from pixels to the network: "
                f"{self.preprocessing.unclear}. Attacks, walks and gradients need one factor and one offset per "
                "channel: let the network do the rest, or give the model as a function of images"
            )

    def size_of(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width that the network gets of an image of this size."""
        if self.preprocessing.geometry is not None:
            return self.preprocessing.size
        if (height, width) not in self._sizes:  # some transforms keep the aspect of an image, or its size
            self._sizes[height, width] = probing.size_after(self.preprocessing.transform, height, width)
        return self._sizes[height, width]

    def kept_of(self, size: int) -> tuple[int, int] | None:
        """Return height and width of the middle that ``predict`` keeps of a square image, or None if it keeps all."""
        how = self.preprocessing
        side = how.geometry.resize if how.geometry is not None else 0
        if how.unclear or not isinstance(side, int):
            return None
        if how.geometry is not None:
            height, width = (min(size, round(size * kept / side)) for kept in how.geometry.crop)
            return None if (height, width) == (size, size) else (height, width)
        if size not in self._kept:
            # The transform of a model of BGR has its channels turned round: what it returns is red first.
            self._kept[size] = probing.kept_of(how.transform, probing.Colours(how.mean, how.std), size)
        return self._kept[size]

    def _in_batches(self, items: Sequence[Any], prepare: Callable[[Any], torch.Tensor]) -> NDArray[np.float32]:
        rows = np.empty((len(items), len(self.labels)), np.float32)
        done = 0
        few = max(1, CPU_PIXELS // math.prod(self.preprocessing.size)) if self.device == "cpu" else len(items)
        while done < len(items):
            prepared = [prepare(item) for item in items[done : done + min(self.batch_size, few)]]
            # Some processors keep the aspect of an image, so neighbours may differ in shape.
            for _, alike in itertools.groupby(prepared, key=lambda tensor: tensor.shape):
                for answer in in_parts(self, list(alike), self._probabilities):
                    rows[done : done + len(answer)] = answer
                    done += len(answer)
        return rows

    def _probabilities(self, batch: list[torch.Tensor]) -> NDArray[np.float32]:
        with torch.inference_mode(), exact():
            network = self._module if self._answering is None else self._answering
            logits = network(torch.stack(batch).to(self.device))
            if logits.ndim != 2 or logits.shape[1] != len(self.labels):
                raise UserError(
                    f"{self.name} answers with shape {tuple(logits.shape)}, which is not {len(self.labels)} labels"
                )
            scores = logits.float()
            shares = scores if self.embeds else scores.sigmoid() if self.independent else scores.softmax(1)
            probabilities: NDArray[np.float32] = shares.cpu().numpy()
        return probabilities


def ways_in(model: object) -> str:
    """Return the parameter that says how images reach a model's network."""
    description = getattr(getattr(model, "preprocessing", None), "description", {})
    if "transform" in description:
        return "transform="
    return "the image processor" if description.get("library") == "transformers" else "?mean=…&std=…&channels=…"


def picked(model: Any, output: str) -> torch.nn.Module:
    """Return a module that gives the scores which another one returns under a key or an attribute."""

    class Picked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.model(batch)[output]
            return scores

    return Picked()


def blue_first(model: Any) -> torch.nn.Module:
    """Return a module that takes RGB batches and hands them to a model of BGR."""
    import torch

    class BlueFirst(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.model(batch.flip(1))
            return scores

    return BlueFirst()


class ClassScores:
    """Groups a classifier's outputs by class of the dataset: a class scores as its best output does.

    ``others`` are the outputs of no class; they compete only if the space is ``all``.
    """

    def __init__(self, members: Sequence[Sequence[int]], outputs: int, space: str, device: str) -> None:
        claimed, widest = {output for own in members for output in own}, max(len(own) for own in members)
        self.others = [output for output in range(outputs) if output not in claimed and space == "all"]
        # Every class as wide as the widest, its first output repeated, which changes no maximum.
        self._best_of = torch.tensor([[*own, *[own[0]] * (widest - len(own))] for own in members], device=device)
        self._others = torch.tensor(self.others, dtype=torch.long, device=device)

    def __call__(self, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes, then those of the others, from scores (n, outputs)."""
        return torch.cat([scores[:, self._best_of].amax(2), scores[:, self._others]], dim=1)


def as_batch(pictures: Sequence[Image], device: str = "cpu") -> torch.Tensor:
    """Return images of one size, HWC uint8, as a batch NCHW in 0..1."""
    # A tensor: by a number, a GPU would multiply with its rounded inverse.
    most = torch.full((), 255.0, device=device)
    return torch.from_numpy(np.stack(pictures)).to(device).permute(0, 3, 1, 2).float() / most


def as_pictures(batch: torch.Tensor) -> list[NDArray[np.uint8]]:
    """Return a batch NCHW in 0..1 as images, HWC uint8."""
    pictures = (batch.detach().clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    return list(np.ascontiguousarray(pictures))
