"""How much of ``eval`` is not the detector; average precision of 100,000 objects under 13 conditions."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, photographs

from holdfast.stats.objects.matching import PredictedBoxes, TrueBoxes, match
from holdfast.stats.objects.precision import average_precision, resampled_precision

OBJECTS, PHOTOS, CLASSES, GUESSES, CONDITIONS = 100_000, 13_700, 80, 100, 13
"""As in COCO: seven objects an image, 80 classes, a hundred predictions an image."""


def rows() -> Iterator[Row]:
    yield Row("eval, SSDLite: processor time outside the network", 100 * outside_network(), "%", at_most=10)
    spent = interval = 0.0
    for condition in range(CONDITIONS):
        truth, predicted = made_scene(condition)
        start = time.perf_counter()
        table = match(truth, predicted, classes=CLASSES)
        average_precision(table)
        spent += time.perf_counter() - start
        start = time.perf_counter()
        resampled_precision(table, PHOTOS)
        interval += time.perf_counter() - start
    yield Row("AP, AP50, AP75, AP by size: 100,000 objects × 13 conditions, 18 million boxes", spent, "s", at_most=60)
    yield Row("intervals of AP: 100,000 objects × 13 conditions", interval, "s", at_most=60)


def outside_network(photos: int = 48) -> float:
    """Return the share of processor time, in one thread, with random weights: 130 boxes and more an image."""
    import torch
    from safetensors.torch import save_file
    from torchvision.models.detection import ssd, ssdlite320_mobilenet_v3_large

    from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate

    torch.set_num_threads(1)
    torch.manual_seed(0)
    spent, forward = [0.0], ssd.SSD.forward

    def timed(self: Any, *given: Any, **options: Any) -> Any:
        start = time.thread_time()
        answer = forward(self, *given, **options)
        spent[0] += time.thread_time() - start
        return answer

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "data", photos)
        (folder / "labels.txt").write_text("day\nnight\n")
        network = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
        save_file(network.state_dict(), folder / "network.safetensors")
        model = f"torchvision:ssdlite320_mobilenet_v3_large@{folder}/network.safetensors?labels={folder}/labels.txt"
        ssd.SSD.forward = timed
        for limit in (2, 0):  # the first one imports and warms up
            spent[0], start = 0.0, time.process_time()
            options: dict[str, Any] = {"models": (model,), "scenarios": "static", "threshold": 0.3, "device": "cpu"}
            evaluate(EvaluateSpec(str(folder / "data"), limit=limit, **options), folder / f"run{limit}")
            total = time.process_time() - start
        ssd.SSD.forward = forward
    return (total - spent[0]) / total


def made_scene(seed: int) -> tuple[TrueBoxes, PredictedBoxes]:
    """Return objects and predictions: a few near each object, the others anywhere."""
    rng = np.random.default_rng(seed)
    image, label = np.sort(rng.integers(0, PHOTOS, OBJECTS)), rng.integers(0, CLASSES, OBJECTS)
    corner, side = rng.uniform(0, 500, (OBJECTS, 2)), np.exp(rng.uniform(2, 5.5, (OBJECTS, 2)))
    corners = np.concatenate([corner, corner + side], axis=1)
    truth = TrueBoxes(image, label, corners, side.prod(axis=1), rng.random(OBJECTS) < 0.01)
    near = np.repeat(np.arange(OBJECTS), 4)
    others = PHOTOS * GUESSES - len(near)
    other_corner, other_side = rng.uniform(0, 500, (others, 2)), np.exp(rng.uniform(2, 5.5, (others, 2)))
    moved = corners[near] + rng.normal(0, 0.08, (len(near), 4)) * np.tile(side[near], 2)
    return truth, PredictedBoxes(
        np.append(image[near], rng.integers(0, PHOTOS, others)),
        np.append(label[near], rng.integers(0, CLASSES, others)),
        np.concatenate([moved, np.concatenate([other_corner, other_corner + other_side], axis=1)]),
        np.append(rng.random(len(near)), rng.random(others) ** 3),
    )
