"""The length of a step: its share of the latent's scale, and short trials that choose it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint, seed_from
from holdfast.core.lazy import torch
from holdfast.core.numbers import percent
from holdfast.core.types import Collection, Image, Sample
from holdfast.data.labels import outcomes
from holdfast.pipeline.classifiers import Tested, proved
from holdfast.pipeline.specs import WalkOptions
from holdfast.pipeline.walk.resources import PerturbSpec, UnderTest, WalkSetting, seen, square
from holdfast.pipeline.walk.walk import WalkInput, WalkResult, walk_with
from holdfast.pipeline.walk.walk_step import Stepper

IMAGES = 6
"""Number of images in a trial, spread over the dataset."""
TRIALS = 6
FIRST_SHARE = 1 / 256
"""The first step that is tried, as a share of the latent's scale."""
FASTEST = 8.0
"""Largest factor between two trials."""


@dataclass(frozen=True)
class StepTrial:
    """What walks with one step came to, over all models."""

    step_size: float
    share: float  # of the latent's scale
    walks: int
    right: int  # originals that were classified correctly
    validated: int
    validated_right: int
    failed: int  # walks that met a wrong or rejected image, of those whose reconstruction was right and accepted
    started: int
    first_failure: float | None  # median step of that; None if half of the walks met none


def latent_scale(setting: WalkSetting, images: Sequence[Image]) -> float:
    """Return the standard deviation of the latents' values: what a step is to be compared with."""
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    with torch.inference_mode():
        latent = setting.generator.encode(pixels.to(getattr(setting.generator, "device", "cpu"))).float()
    return float(latent.std())


def spread_images(spec: PerturbSpec, setting: WalkSetting, samples: Sequence[Sample]) -> list[tuple[Sample, Image]]:
    """Return up to ``IMAGES`` readable images, spread over the dataset."""
    readable: list[tuple[Sample, Image]] = []
    for sample in samples[:: max(1, len(samples) // IMAGES)]:
        try:
            readable.append((sample, square(sample.image.load(max_pixels=spec.max_pixels), setting.size)))
        except SampleError:
            continue
    return readable[:IMAGES]


def calibrated(
    spec: PerturbSpec,
    setting: WalkSetting,
    tested: Sequence[Tested],
    collection: Collection,
    samples: Sequence[Sample],
    before: dict[str, Any],
) -> tuple[PerturbSpec, WalkSetting, dict[str, Any]]:
    """Return the specification and setting with a step, and what ``spec.json`` records about it.

    ``before`` is the specification of earlier walks in the same run: its step is kept if nothing else differs.
    """
    images = spread_images(spec, setting, samples)
    facts: dict[str, Any] = {"latent_scale": latent_scale(setting, [image for _, image in images]) if images else None}
    if spec.walk.step_size:
        kept = {name: before[name] for name in ("step_trials", "step_key") if name in before}
        return spec, setting, kept | facts
    others = {name: value for name, value in setting.parameters.items() if name != "step_size"}
    facts["step_key"] = fingerprint([others, sorted(model.fingerprint for model in tested)])
    if before.get("step_key") == facts["step_key"]:
        step, facts["step_trials"] = float(before["walk"]["step_size"]), before["step_trials"]
    else:
        if getattr(setting.oracle, "every", 0):
            raise UserError("--step-size auto needs an oracle that answers at once; people do not. Give a number.")
        if not images:
            raise UserError("--step-size auto needs images that can be read. Give a number.")
        for model in tested:
            proved(model.classifier, samples, spec.max_pixels)
        trials = step_trials(spec, setting, tested, collection, images, facts["latent_scale"])
        step = chosen(trials, spec.walk.steps).step_size
        facts["step_trials"] = sorted((asdict(trial) for trial in trials), key=lambda trial: trial["step_size"])
    parameters = setting.parameters | {"step_size": step}
    return replace(spec, walk=replace(spec.walk, step_size=step)), replace(setting, parameters=parameters), facts


def step_trials(
    spec: PerturbSpec,
    setting: WalkSetting,
    tested: Sequence[Tested],
    collection: Collection,
    images: Sequence[tuple[Sample, Image]],
    scale: float,
) -> list[StepTrial]:
    """Walk a few images with several steps until the median first failure is resolved by the budget of steps.

    A quarter of the step that was found and four times as much are tried, too: a page can then show what a step does.
    """
    least, goal, most = goals(spec.walk.steps)
    step, short, long = scale * FIRST_SHARE, 0.0, 0.0
    trials: list[StepTrial] = []
    while len(trials) < TRIALS:
        trials.append(trial := one_trial(spec, setting, tested, collection, images, step, scale))
        if not trial.started:
            raise UserError(
                f"--step-size auto finds no step: of {trial.walks} reconstructions of {setting.generator.name} none is "
                f"both classified correctly and accepted by {setting.oracle.name}. Use another generator or oracle, "
                "or give a number."
            )
        failure = trial.first_failure
        if failure is not None and least <= failure <= most:
            break
        factor = FASTEST if failure is None else min(max(failure / goal, 1 / FASTEST), FASTEST)
        if failure is None or failure > most:
            short = step
        else:
            long = step
        step = math.sqrt(short * long) if short and long else step * factor
    best = chosen(trials, spec.walk.steps).step_size
    beside = [step for step in (best / 4, best * 4) if all(abs(math.log2(t.step_size / step)) > 1 for t in trials)]
    return trials + [one_trial(spec, setting, tested, collection, images, step, scale) for step in beside]


def goals(budget: int) -> tuple[float, float, float]:
    """Return the range of the median first failure that a budget of steps resolves, with its aim in between."""
    least = min(3.0, budget)
    return least, max(budget / 4, least), max(budget / 2, least + 1)  # the median of an even number has a half


def chosen(trials: Sequence[StepTrial], budget: int) -> StepTrial:
    """Return the trial whose median first failure is nearest to the aim; the longest step if no walk failed."""
    failing = [trial for trial in trials if trial.first_failure]
    if not failing:
        return max(trials, key=lambda trial: trial.step_size)
    return min(failing, key=lambda trial: abs(math.log((trial.first_failure or 1) / goals(budget)[1])))


def one_trial(
    spec: PerturbSpec,
    setting: WalkSetting,
    tested: Sequence[Tested],
    collection: Collection,
    images: Sequence[tuple[Sample, Image]],
    step: float,
    scale: float,
) -> StepTrial:
    """Return what walks of these images against every model come to with one step."""
    options = replace(spec.walk, step_size=step, stop_when_fooled=False)
    classes = {name: place for place, name in enumerate(collection.classes)}
    right = validated = validated_right = 0
    failures: list[float] = []
    for model in tested:
        under = UnderTest(model.classifier, model.labels, setting.loss_space, options.view)
        stepper = Stepper(setting.generator, under, setting.oracle, options, setting.mask)
        walkers = [
            WalkInput(sample.sample_id, image, classes[sample.label], seed_from(spec.seed, sample.sample_id, "walk"))
            for sample, image in images
        ]
        labels = {sample.sample_id: sample.label for sample, _ in images}
        right += _right(model, [image for _, image in images], list(labels.values()), options.view)
        results = list(walk_with(stepper, walkers, frames=set(labels)))
        kept = [result for result in results if result.validated]
        validated += len(kept)
        validated_right += _right(
            model, [result.image for result in kept], [labels[result.key] for result in kept], options.view
        )
        met = [first_failure(result, labels[result.key]) for result in results]
        failures += [failure for failure in met if failure is not None]
    middle = median(failures) if failures else math.inf
    return StepTrial(
        step, step / scale if scale else math.nan, len(images) * len(tested), right, validated, validated_right,
        sum(math.isfinite(failure) for failure in failures), len(failures), middle if math.isfinite(middle) else None,
    )  # fmt: skip


def first_failure(result: WalkResult, label: str) -> float | None:
    """Return the first step whose image is classified wrongly or rejected, infinite if there is none.

    None: the reconstruction fails already, so this walk says nothing about the step.
    """
    failed = [frame.step for frame in result.frames if frame.prediction != label or not frame.accepted]
    if 0 in failed:
        return None
    return float(failed[0]) if failed else math.inf


def _right(model: Tested, images: Sequence[Image], labels: Sequence[str], view: str) -> int:
    """Return how many images a model classifies correctly among the dataset's classes."""
    if not images:
        return 0
    return sum(outcomes(seen(model.classifier, images, view), model.labels, labels)["correct_restricted"])


def step_notes(facts: dict[str, Any], walk: WalkOptions, walks: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences about the step: its share of the latent's scale, and what the walks say about it.

    ``walks`` has ``stop`` of each, and ``before`` and ``after``: whether the original and the kept image are classified
    correctly, None if that is unknown.
    """
    notes = []
    if facts.get("latent_scale"):
        notes.append(
            f"a step of {walk.step_size:.3g} is {percent(walk.step_size / facts['latent_scale'], 2)} of the latent's "
            f"scale ({facts['latent_scale']:.3g})"
        )
    early = sum(row["stop"] == "first_rejected" for row in walks)
    if facts.get("step_trials") or not walks or walk.steps < 2:
        return notes
    if 2 * early > len(walks):
        notes.append(
            f"{early} of {len(walks)} walks ended at their first step: the step is too long, or the oracle rejects "
            "what the generator reconstructs; --step-size auto finds a step"
        )
    elif (began := [row for row in walks if row["stop"] != "first_rejected"]) and not any(map(_failed, began)):
        notes.append(
            f"none of {len(began)} walks met a rejected or wrong image: the step is too short for {walk.steps} steps, "
            "or the model withstands them; --step-size auto finds a step"
        )
    return notes


def _failed(walk: dict[str, Any]) -> bool:
    """Return whether a walk met a rejected image, or one that is wrong although its original is right, or unknown."""
    return walk["stop"] != "budget" or walk["after"] is None or (not walk["after"] and walk["before"] is not False)
