"""What a model makes of images without labels: its own features, its confidence, and answers that turn."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.places import place
from holdfast.core.protocols import Classifier
from holdfast.core.types import ORIGINAL, Image, Sample
from holdfast.data import load_collection
from holdfast.pipeline.classifiers import modules_of
from holdfast.pipeline.donors import DonorPool, images_below
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.samples import over_matte, render_conditions
from holdfast.scenarios import Condition
from holdfast.stats.core.bootstrap import Floats
from holdfast_evidence.dossier.watching import PhotoValues

CONDITIONS = "gaussian_noise@2,gaussian_blur@2,brightness@2,contrast@2"
"""Mild changes that need no mask: images without labels have none."""

_TOGETHER = 8  # images that are rendered at a time


@dataclass(frozen=True)
class PhotoProfile:
    """What a model makes of the images that could be read, and why others could not."""

    values: PhotoValues
    layer: str  # whose input the features are; empty if they are the model's answers
    unread: dict[str, str]


def unlabelled(data: str) -> list[Sample]:
    """Return all images below a folder, in class folders or not, or those of any other data source."""
    folder = place(data)
    if folder.is_dir() and not (folder / "images").is_dir():
        return [Sample(str(name), "", image) for name, image in images_below("photos", data).items()]
    return list(load_collection(data).samples)


class _Head:
    """Asks a model and keeps what goes into its last layer, pooled over places; of others, the logs of its answers."""

    def __init__(self, classifier: Classifier, image: Image) -> None:
        self._classifier = classifier
        self._inputs: list[Floats] = []
        layers = {
            name: layer
            for network in modules_of(classifier)
            for name, layer in network.named_modules()
            if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d))
        }
        called: list[str] = []
        handles = [
            layer.register_forward_pre_hook(lambda *_, name=name: called.append(name)) for name, layer in layers.items()
        ]
        classifier.predict([image])
        for handle in handles:
            handle.remove()
        self.layer = called[-1] if called else ""
        self._handle = layers[self.layer].register_forward_pre_hook(self._keep) if called else None

    def _keep(self, _: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        value = inputs[0].detach().float()
        places = tuple(range(2, value.ndim)) if value.ndim == 4 else tuple(range(1, value.ndim - 1))
        self._inputs.append((value.mean(places) if places else value).cpu().numpy())

    def ask(self, images: Sequence[Image]) -> tuple[Floats, Floats]:
        """Return probabilities and features, a row per image."""
        self._inputs.clear()
        answers = np.asarray(self._classifier.predict(images), np.float64)
        features = np.concatenate(self._inputs) if self._inputs else np.empty((0, 0))
        if len(features) != len(answers):  # no network, or one that sees an image in several parts
            self.layer = ""
            return answers, np.log(np.maximum(answers, 1e-6)) - np.log(np.maximum(answers, 1e-6)).mean(1, keepdims=True)
        return answers, features

    def close(self) -> None:
        """Leave the model as it was."""
        if self._handle is not None:
            self._handle.remove()


def profile(
    classifier: Classifier, samples: Sequence[Sample], conditions: Sequence[Condition], *, seed: int = 0,
    max_pixels: int, progress: Progress = silent,
) -> PhotoProfile:  # fmt: skip
    """Ask a model about images as they are and under conditions that need no mask."""
    pool, asked = DonorPool([], max_pixels=max_pixels), [Condition(ORIGINAL), *conditions]
    rows: list[tuple[Floats, ...]] = []
    unread: dict[str, str] = {}
    head = _Head(classifier, np.full((64, 64, 3), 128, np.uint8))
    with closing(head):
        for start in range(0, len(samples), _TOGETHER):
            images: list[Image] = []
            for sample in samples[start : start + _TOGETHER]:
                bare = replace(sample, mask=None)
                renderings = list(render_conditions(bare, asked, pool, seed=seed, max_pixels=max_pixels))
                pictures = [over_matte(part.rendered.image, (255, 255, 255)) for part in renderings if part.rendered]
                if len(pictures) == len(asked):
                    images += pictures
                else:
                    unread[sample.sample_id] = next(part.error for part in renderings if part.rendered is None)
            if images:
                answers, features = head.ask(images)
                best = answers.argmax(axis=1).reshape(-1, len(asked))
                sure = answers[:: len(asked)].max(axis=1)
                rows.append((features[:: len(asked)], best[:, 0], sure, (best[:, 1:] != best[:, :1]).mean(axis=1)))
            progress("images", min(start + _TOGETHER, len(samples)), len(samples))
    if not rows:
        reason = next(iter(unread.values()), "there are none")
        raise UserError(f"none of the {len(samples)} images could be read: {reason}")
    return PhotoProfile(PhotoValues(*(np.concatenate(parts) for parts in zip(*rows, strict=True))), head.layer, unread)
