"""Holdfast's scenarios and accuracies behind MAITE's protocols ``Augmentation`` and ``Metric`` (image classification).

Typing is structural: nothing here imports the package ``maite``. A picture's mask is its metadata's ``mask``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import generator
from holdfast.core.types import DEFAULT_MAX_PIXELS, ORIGINAL, Sample
from holdfast.data.images import ArrayImage
from holdfast.data.masks import ArrayMask
from holdfast.data.readers.maite import from_channels_first
from holdfast.pipeline.donors import SampleContext, make_pool
from holdfast.results import Results
from holdfast.scenarios import parse_conditions, render
from holdfast.stats.core.cells import stratified


class ScenarioAugmentation:
    """A scenario as a MAITE ``Augmentation``: ``ScenarioAugmentation("blur_background@3")``.

    Donors of backgrounds are the other pictures of the batch. Items with the same ``id`` get the same picture.
    """

    def __init__(self, scenario: str, *, seed: int = 0) -> None:
        conditions = parse_conditions(scenario)
        if len(conditions) != 1:
            raise UserError(f"an augmentation is one scenario; {scenario!r} names {len(conditions)}")
        (self._condition,) = conditions
        self._seed = seed
        self.metadata = {"id": f"holdfast {self._condition.name}"}

    def __call__(self, batch: tuple[Sequence[Any], Sequence[Any], Sequence[Any]], /) -> tuple[Any, Any, Any]:
        """Return pictures (C, H, W) under the scenario, with the targets as they are and the condition's name."""
        pictures, targets, metadata = batch
        samples = []
        for picture, target, facts in zip(pictures, targets, metadata, strict=True):
            mask = facts.get("mask")
            samples.append(
                Sample(
                    str(facts["id"]),
                    str(int(np.asarray(target).argmax())),
                    ArrayImage(from_channels_first(picture)),
                    None if mask is None else ArrayMask(np.asarray(mask, np.bool_)),
                )
            )
        pool = make_pool(samples, None, max_pixels=DEFAULT_MAX_PIXELS)
        pictures = []
        for sample in samples:
            image = sample.image.load()
            mask = sample.mask.load(*image.shape[:2]) if sample.mask else None
            rng = generator("maite", self._condition.name, self._seed, sample.sample_id)
            context = SampleContext(sample, pool, self._seed)
            picture = render(self._condition, image, mask, rng=rng, context=context).image
            pictures.append(np.ascontiguousarray(ArrayImage(picture).load().transpose(2, 0, 1)))
        return pictures, targets, [{**facts, "condition": self._condition.name} for facts in metadata]


class AccuracyMetric:
    """Accuracy over classes with its 95 % interval as a MAITE ``Metric``: as ``Results.accuracy`` has it."""

    def __init__(self) -> None:
        self.metadata = {"id": "holdfast accuracy"}
        self.reset()

    def reset(self) -> None:
        """Forget all predictions."""
        self._right: dict[int, list[bool]] = {}

    def update(self, pred_batch: Sequence[Any], target_batch: Sequence[Any], metadata_batch: Sequence[Any], /) -> None:
        """Add predictions; the largest score is the answer."""
        for answer, target in zip(pred_batch, target_batch, strict=True):
            label = int(np.asarray(target).argmax())
            self._right.setdefault(label, []).append(int(np.asarray(answer).argmax()) == label)

    def compute(self) -> dict[str, float]:
        """Return ``accuracy``, ``low``, ``high`` and ``n``."""
        if not self._right:
            raise UserError("there are no predictions yet: call update first")
        right, sizes = zip(*((sum(own), len(own)) for own in self._right.values()), strict=True)
        low, high = stratified(right, sizes)
        accuracy = float(np.mean(np.divide(right, sizes)))
        return {"accuracy": accuracy, "low": low, "high": high, "n": float(sum(sizes))}


def metric_result(results: Results, model: str, condition: str = ORIGINAL) -> Mapping[str, float]:
    """Return a run's accuracy in the form of ``AccuracyMetric.compute``."""
    table = results.accuracy()
    rows = table[(table["model"] == model) & (table["condition"] == condition)]
    if rows.empty:
        raise UserError(f"the run has no accuracy of {model} under {condition}")
    row = rows.iloc[0]
    return {key: float(row[key]) for key in ("accuracy", "low", "high", "n")}
