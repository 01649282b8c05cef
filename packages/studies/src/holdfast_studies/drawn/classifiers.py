"""Small classifiers of drawn scenes, made the same way by the recipes of the embedded ones and by studies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.files import whole_file
from holdfast.core.lazy import torch
from holdfast.diorama import CLASSES, Split, draw_scene, render
from holdfast.training import augment
from holdfast.training.loop import Epoch, Fitted, Loss, TrainingOptions, decayed, fit, one_cycle
from holdfast.training.robust import MEAN, STD, normalised

CHUNK = 500
HELD_OUT = ("test", "ood")


@dataclass(frozen=True)
class Scenes:
    """Images (n, side, side, 3) uint8, masks (n, side, side) bool, labels (n,) as places in the list of classes."""

    images: NDArray[np.uint8]
    masks: NDArray[np.bool_]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DrawnPictures:
    """Drawn scenes, rendered if they are missing from the folder ``cache``."""

    cache: Path
    classes: tuple[str, ...] = CLASSES

    def scenes(self, split: Split, context: float, count: int) -> Scenes:
        """Return so many scenes of a split."""
        return rendered(split, context, count, cache=self.cache)

    def about(self, train: int, side: int, context: float) -> dict[str, Any]:
        """Return what the card of a model says about its training images."""
        return {"rho": context, "data": f"{train} training scenes of diorama at {side} px, context {context}"}


@dataclass(frozen=True)
class OwnPictures:
    """Images of a collection, split into ``train`` and ``test``; ``name`` is what cards call them."""

    name: str
    classes: tuple[str, ...]
    parts: Mapping[str, Scenes]

    def scenes(self, split: Split, context: float, count: int) -> Scenes:
        """Return all images of a split; context and number are those of drawn scenes."""
        del context, count
        return self.parts[split]

    def about(self, train: int, side: int, context: float) -> dict[str, Any]:
        """Return what the card of a model says about its training images."""
        del train, context
        return {"data": f"{len(self.parts['train'])} images of {self.name} at {side} px"}


def squeezed(images: Sequence[NDArray[np.uint8]], labels: Sequence[int], *, side: int) -> Scenes:
    """Return RGB images of any size as squares of one size, without masks."""
    small = [cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA) for image in images]
    none = np.zeros((len(small), side, side), np.bool_)
    return Scenes(np.stack(small).astype(np.uint8), none, np.array(labels, np.int64))


def rendered(split: Split, context: float, count: int, *, cache: Path, seed: int = 0, side: int = 64) -> Scenes:
    """Render scenes; at every context scene i has the same factors except the background, and classes take turns."""
    tasks = [(split, context, seed, start, min(start + CHUNK, count), side) for start in range(0, count, CHUNK)]
    folder = cache / f"{split}-{context}-{count}-{seed}-{side}"
    return Scenes(*drawn_once(folder, ("images", "masks", "labels"), _render, tasks, mmap_mode="r"))


def drawn_once(
    folder: Path, names: Sequence[str], draw: Callable[[Any], Sequence[NDArray[Any]]], tasks: Sequence[Any], **how: Any
) -> list[NDArray[Any]]:
    """Return the arrays of a folder by name, drawn in processes and stored if they are missing."""
    if not (folder / f"{names[-1]}.npy").is_file():
        if len(tasks) == 1:  # not worth starting processes
            parts = [draw(tasks[0])]
        else:
            with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), cv2.setNumThreads, (1,)) as pool:
                parts = list(pool.map(draw, tasks))
        folder.mkdir(parents=True, exist_ok=True)
        for name, arrays in zip(names, zip(*parts, strict=True), strict=True):
            with whole_file(folder / f"{name}.npy", alone=True) as temporary, temporary.open("wb") as file:
                np.save(file, np.concatenate(arrays))
    return [np.load(folder / f"{name}.npy", **how) for name in names]


def scene_seed(split: Split, seed: int, index: int) -> int:
    """Return the seed of a scene; training scenes of different seeds do not overlap."""
    return index if split in HELD_OUT else (1 + seed) * 10_000_000 + index


def _render(task: tuple[Split, float, int, int, int, int]) -> tuple[NDArray[Any], ...]:
    split, context, seed, start, stop, side = task
    images = np.empty((stop - start, side, side, 3), np.uint8)
    masks = np.empty((stop - start, side, side), np.bool_)
    labels = np.arange(start, stop) % len(CLASSES)
    for row, index in enumerate(range(start, stop)):
        scene = draw_scene(scene_seed(split, seed, index), split=split, context=context, label=CLASSES[labels[row]])
        drawn = render(scene, size=side)
        images[row], masks[row] = drawn.image, drawn.mask
    return images, masks, labels


SIDE = 64


@dataclass(frozen=True)
class NetworkFamily:
    """A small network of timm with its arguments and its learning rate."""

    architecture: str
    model_args: Mapping[str, Any]
    rate: float = 4e-3


FAMILIES = {
    "resnet": NetworkFamily(
        "resnet18",
        {
            "channels": [32, 48, 96, 128], "layers": [1, 2, 2, 1], "output_stride": 16,
            "stem_type": "deep", "stem_width": 16,
        },
    ),
    "mobilenet": NetworkFamily("mobilenetv2_050", {"output_stride": 16}),
    "convnext": NetworkFamily(
        "convnext_atto",
        {"dims": [32, 48, 96, 160], "depths": [2, 2, 4, 2], "output_stride": 16, "drop_path_rate": 0.05},
    ),
    "densenet": NetworkFamily("densenet121", {"growth_rate": 16, "block_config": [4, 6, 8, 6]}),
    "vit": NetworkFamily(
        "vit_tiny_patch16_224",
        {
            "img_size": SIDE, "patch_size": 8, "embed_dim": 112, "depth": 6, "num_heads": 4,
            "class_token": False, "global_pool": "avg", "drop_path_rate": 0.05,
        },
        rate=1.5e-3,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """Number of scenes and epochs, and time per model (``seconds``)."""

    # What does not fit into ``seconds`` is cut short with the learning rate brought down in time; None takes as long as
    # it takes, so that what is learned does not depend on the machine's speed.

    train: int = 60_000
    test: int = 4_800
    epochs: int = 40
    batch: int = 512
    seconds: float | None = 240.0


def untrained(family: NetworkFamily, classes: int = len(CLASSES)) -> Any:
    """Build the module of a family, with weights from torch's global generator."""
    import timm

    return timm.create_model(family.architecture, num_classes=classes, **family.model_args)


def seeded(family: NetworkFamily, seed: int, classes: int = len(CLASSES)) -> Any:
    """Build the module of a family, with weights drawn from a seed on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return untrained(family, classes)


def fit_scenes(
    model: Any,  # the module
    images: torch.Tensor,  # NHWC uint8, or with more axes behind the first
    labels: torch.Tensor,  # places in the list of classes
    size: Size,  # epochs, batch and time; ``size.train`` is not read
    prepared: Callable[[torch.Tensor, torch.Tensor], Any],  # from some images and their labels to a batch
    loss: Loss,  # of a batch
    *,
    rate: float,  # learning rate for batches of 512
    seed: int,  # of the training
    device: str,  # ``cpu`` or ``cuda``
    checkpoints: Path | None = None,  # folder to resume from and to write to
    on_epoch: Callable[[Epoch], None] | None = None,  # called after every epoch
) -> Fitted:
    """Train a module on scenes that are on the device, as all of our small classifiers are."""
    model = model.to(device, memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(decayed(model, 0.05), lr=rate * size.batch / 512, fused=device == "cuda")

    def batches(epoch: int) -> Iterator[Any]:
        for index in augment.shuffled(len(images), size.batch, device):
            yield prepared(images[index], labels[index])

    steps = len(images) // size.batch
    options = TrainingOptions(
        epochs=size.epochs,
        steps_per_epoch=steps,
        seed=seed,
        precision="bfloat16" if device == "cuda" else "float32",
        average=0.998 if size.epochs * steps > 2_000 else 0.99 if size.epochs * steps > 500 else 0.9,
        checkpoints=checkpoints,
        time_limit=size.seconds,
        finish_in_time=size.seconds is not None,
        on_cpu=device == "cpu",
    )
    return fit(model, batches, loss, optimiser, options, schedule=one_cycle, on_epoch=on_epoch)


def on_device(scenes: Scenes, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images NHWC uint8 and labels on a device."""
    return torch.from_numpy(np.array(scenes.images)).to(device), torch.from_numpy(np.array(scenes.labels)).to(device)


def accuracy(model: torch.nn.Module, scenes: Scenes) -> float:
    """Return the share of scenes whose class has the highest score, in single precision."""
    images, labels = on_device(scenes, str(next(model.parameters()).device))
    model.eval()
    right = 0
    with torch.inference_mode():
        for start in range(0, len(images), 500):
            batch = normalised(images[start : start + 500].permute(0, 3, 1, 2).float() / 255)
            right += int((model(batch).argmax(1) == labels[start : start + 500]).sum())
    return right / len(images)


def family_config(
    family: NetworkFamily, model: Any, *, rho: float, classes: Sequence[str] = CLASSES, side: int = SIDE
) -> dict[str, Any]:
    """Return the configuration for timm, which ``create_model("local-dir:FOLDER", pretrained=True)`` reads too."""
    tag = f"diorama12_rho{round(100 * rho)}" if tuple(classes) == CLASSES else "own"
    prepared = {"tag": tag, "custom_load": False, "input_size": [3, side, side]}
    prepared |= {"interpolation": "bilinear", "crop_pct": 1.0, "crop_mode": "squash", "mean": MEAN, "std": STD}
    kept = {key: model.pretrained_cfg[key] for key in ("first_conv", "classifier") if key in model.pretrained_cfg}
    return {
        "architecture": family.architecture,
        "num_classes": len(classes),
        "num_features": model.num_features,
        "global_pool": getattr(model, "global_pool", "avg") if family.architecture.startswith("vit") else "avg",
        "model_args": dict(family.model_args),
        "label_names": list(classes),
        "pretrained_cfg": prepared | kept | {"num_classes": len(classes)},
    }
