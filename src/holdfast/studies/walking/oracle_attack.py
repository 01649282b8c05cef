"""``holdfast study oracle-attack``: the oracle itself led astray step by step, beside classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import seed_from
from holdfast.core.numbers import percent
from holdfast.core.protocols import DifferentiableClassifier, LatentGenerator
from holdfast.core.types import Collection
from holdfast.data.labels import map_labels
from holdfast.generate import load_generator
from holdfast.models import load_classifier
from holdfast.pipeline.walk.resources import LARGEST_DEFAULT, square
from holdfast.pipeline.walk.walk import UnderTest
from holdfast.report.page.tables import Column, ranged
from holdfast.report.page.words import short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import Floats, interval, resampled_sums
from holdfast.studies import study
from holdfast.studies.study import Setting, Study, StudyOptions
from holdfast.studies.walking import walks

BATCH = 24
MEASURES = ("target_loss", "true", "target")
PANELS = {
    "target_loss": ("Loss towards the target", False),
    "true": ("p(true class)", True),
    "target": ("p(target)", True),
}
MODELS = ("embedded:resnet_rho95_strong", "embedded:resnet_rho95")


def run(options: StudyOptions) -> StudyResult:
    """Lead the oracle and the classifiers towards a wrong class, and record every step."""
    settings = options.settings
    if settings["steps"] < 1 or not 0 < settings["step_size"] < 1:
        raise UserError("steps must be 1 or more, and step_size a number between 0 and 1")
    study.images_of(options)  # checks the settings
    collection = study.collection_of(options)
    generator = load_generator(settings["generator"], device=options.device)
    victims = _victims(collection, options)
    targets = targets_of(collection, options.seed)
    curves = {}
    for place, (name, victim) in enumerate(victims.items()):
        options.progress("attack", place, len(victims))
        curves[name] = _led(collection, targets, generator, victim, options)
    options.progress("attack", len(victims), len(victims))
    reach = settings["steps"] * settings["step_size"]
    return StudyResult(
        title="The oracle under attack",
        question=(
            "How easily is the oracle itself led astray? Every scene was given a wrong class as target, and moved by "
            f"the sign of the gradient towards it, {settings['steps']} steps of {settings['step_size']:g} in the "
            f"latent of {settings['generator']} (no value changes by more than {reach:g}), once against the oracle and "
            "once against each classifier. Lines are means over scenes, bands their 95 % intervals."
        ),
        findings=[_curves(_frame(curves, options.seed)), _ends(curves)],
        facts={"networks": len(curves), "test scenes": len(collection), "steps": settings["steps"]},
    )


STUDY = Study(
    run,
    (
        *walks.walk_settings(MODELS, 96, steps=30, step_size=0.001, without=("generator",)),
        Setting("generator", "pixel:", "whose latent is moved; pixel: is an attack bounded by steps × step size"),
    ),
)


def _victims(collection: Collection, options: StudyOptions) -> dict[str, UnderTest]:
    """Return the oracle's network and the classifiers by name; raise UserError where one has no gradients."""
    name = options.settings["oracle"]
    judge = getattr(study.oracle_of(options, name, collection), "classifier", None)
    if not isinstance(judge, DifferentiableClassifier):
        raise UserError(f"{name} has no gradients to be attacked by; name a clip: or a classifier: oracle")
    networks = {f"{name} (oracle)": judge}
    for name in study.model_names(options.settings["models"]):
        model = load_classifier(name, device=options.device, classes=collection.classes)
        if not isinstance(model, DifferentiableClassifier):
            raise UserError(f"{model.name} has no gradients to be attacked by")
        networks[model.name] = model
    return {
        name: UnderTest(network, map_labels(collection.classes, collection.keys, network.labels))
        for name, network in networks.items()
    }


def targets_of(collection: Collection, seed: int) -> NDArray[np.int64]:
    """Return a wrong class for each sample, the same for every network."""
    count = len(collection.classes)
    turns = [1 + seed_from(seed, sample.sample_id, "target") % (count - 1) for sample in collection.samples]
    return np.asarray((_true_classes(collection) + np.array(turns, np.int64)) % count)


def _true_classes(collection: Collection) -> NDArray[np.int64]:
    return np.array([collection.classes.index(sample.label) for sample in collection.samples], np.int64)


def _led(
    collection: Collection,
    targets: NDArray[np.int64],
    generator: LatentGenerator,
    victim: UnderTest,
    options: StudyOptions,
) -> Floats:
    """Return (scenes, steps + 1, 3): loss towards the target, p(true), p(target)."""
    size = getattr(generator, "size", None)
    if not size:
        factor = getattr(generator, "factor", 1)
        size = min(*collection.samples[0].image.load().shape[:2], LARGEST_DEFAULT) // factor * factor
    device = torch.device(getattr(generator, "device", "cpu"))
    truth = _true_classes(collection)
    steps, step_size = options.settings["steps"], options.settings["step_size"]
    curves = []
    for start in range(0, len(collection), BATCH):
        part = slice(start, start + BATCH)
        images = np.stack([square(sample.image.load(), size) for sample in collection.samples[part]])
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().float().to(device) / 255
        labels = [torch.from_numpy(places[part]).to(device) for places in (truth, targets)]
        curves.append(led_astray(pixels, labels[0], labels[1], generator, victim, steps=steps, step_size=step_size))
    return np.concatenate(curves)


def led_astray(
    pixels: torch.Tensor,  # RGB NCHW in 0..1
    truth: torch.Tensor,  # indices of the true classes
    target: torch.Tensor,  # indices of the targets
    generator: LatentGenerator,  # whose latent moves
    victim: UnderTest,  # the network
    *,
    steps: int,  # number of steps; step 0 is the reconstruction
    step_size: float,  # of the latent
) -> Floats:
    """Descend the loss towards a target by the gradient's sign; return ``MEASURES``, (images, steps + 1, 3)."""
    with torch.no_grad():
        latent = generator.encode(pixels)
    rows = []
    for step in range(steps + 1):
        latent = latent.detach().requires_grad_()
        scores = victim.scores(generator.decode(latent, pixels).clamp(0, 1)).float()
        loss = torch.nn.functional.cross_entropy(scores, target, reduction="none")
        shares = scores.detach().softmax(1)
        own, aim = (shares.gather(1, places[:, None])[:, 0] for places in (truth, target))
        rows.append(torch.stack([loss.detach(), own, aim], dim=1).double().cpu().numpy())
        if step < steps:
            (gradient,) = torch.autograd.grad(loss.sum(), latent)
            latent = latent - step_size * gradient.sign()
    return np.stack(rows, axis=1)


def _frame(curves: dict[str, Floats], seed: int) -> pd.DataFrame:
    """Return network, step and each measure with its interval."""
    frames = []
    for name, values in curves.items():
        scenes, steps, width = values.shape
        sums = resampled_sums(values.reshape(scenes, -1), np.arange(scenes), seed=seed)
        low, high = (end.reshape(steps, width) for end in interval(sums / scenes))
        mean = values.mean(axis=0)
        columns: dict[str, Any] = {"network": name, "step": np.arange(steps)}
        for place, measure in enumerate(MEASURES):
            values_of = {"": mean, "_low": low, "_high": high}
            columns |= {f"{measure}{end}": array[:, place] for end, array in values_of.items()}
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def _curves(frame: pd.DataFrame) -> Finding:
    sentences = []
    for name, own in frame.groupby("network", sort=False):
        first, last = own.iloc[0], own.iloc[-1]
        sentences.append(
            f"{name}: p(true class) goes from {percent(first['true'])} to {percent(last['true'])}, p(target) from "
            f"{percent(first['target'])} to {percent(last['target'])}."
        )
    drawn = frame.assign(line=frame["network"].map(short_names(list(dict.fromkeys(frame["network"])), 40)))
    columns = [
        Column("network", "Network"),
        Column("step", "Step", "integer"),
        ranged("target_loss", "Loss towards the target", "number"),
        ranged("true", "p(true class)"),
        ranged("target", "p(target)"),
    ]
    return Finding(
        "Step by step",
        sentences,
        frame,
        columns,
        chart=lambda width: walks.curves(drawn, width, line="line", x="step", panels=PANELS, across="step"),
        caption="Loss towards the target, p(true class) and p(target) by step",
    )


def _ends(curves: dict[str, Floats]) -> Finding:
    """Count the scenes that end as the target, and the step at which the target overtakes the true class."""
    rows, sentences = [], []
    for name, values in curves.items():
        ahead = values[:, :, 2] > values[:, :, 1]
        overtaken = ahead.any(axis=1)
        steps = ahead.argmax(axis=1)[overtaken]
        middle = float(np.median(steps)) if overtaken.mean() > 0.5 else float("nan")
        led = float(ahead[:, -1].mean())
        rows.append({"network": name, "scenes": len(values), "led": led, "median_step": middle})
        sentences.append(
            f"{name}: at the end the target is likelier than the true class in {percent(led)} of the scenes."
        )
    columns = [
        Column("network", "Network"),
        Column("scenes", "Scenes", "integer"),
        Column("led", "Target ahead at the end", "percent"),
        Column("median_step", "First step with the target ahead, median", "number", digits=0),
    ]
    return Finding("How many were led astray", sentences, pd.DataFrame(rows), columns)
