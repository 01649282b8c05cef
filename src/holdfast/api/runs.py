"""Verbs whose outcome is a run: a table of rows, opened as ``Results``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from holdfast.api.options import listed, texts
from holdfast.engine import Executor
from holdfast.pipeline.ask.ask import AskSpec
from holdfast.pipeline.ask.ask import ask as _ask
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec
from holdfast.pipeline.evaluate.evaluate import evaluate as _evaluate
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.segment.segment import SegmentSpec
from holdfast.pipeline.segment.segment import segment as _segment
from holdfast.pipeline.telltale.detect import DetectSpec
from holdfast.pipeline.telltale.detect import detect as _detect
from holdfast.pipeline.train.train import TrainSpec
from holdfast.pipeline.train.train import train as _train
from holdfast.pipeline.walk.perturb import PerturbSpec, WalkOptions
from holdfast.pipeline.walk.perturb import perturb as _perturb
from holdfast.results import Results
from holdfast.store import workplace


def evaluate(
    data: str | Path,
    *,
    models: str | Iterable[str],
    out: str | Path,
    progress: Progress = silent,
    executor: Executor | None = None,
    **options: Any,
) -> Results:
    """Run models on images under every condition.

    Args:
        data: a folder, manifest, COCO file or ``scheme:name``.
        models: names of models.
        out: the run directory; one that is there is continued.
        progress: told how far it is.
        executor: where the work runs (``holdfast.engine.open_executor``); None: this machine.
        **options: the other fields of EvaluateSpec: scenarios, masks, labels, seed, batch_size, device, …
    """
    names = listed(models)
    spec = EvaluateSpec(str(data), models=names, **texts(options))
    with workplace(out, executor, whole=False) as (folder, workers):
        return Results(_evaluate(spec, folder, progress=progress, executor=workers)[0])


def perturb(
    data: str | Path,
    *,
    models: str | Iterable[str],
    generator: str,
    oracle: str,
    out: str | Path,
    progress: Progress = silent,
    executor: Executor | None = None,
    **options: Any,
) -> Results:
    """Push images against each model as far as an oracle still sees their class; ``Results.fmr`` says what came out.

    Args:
        data: a folder, manifest, COCO file or ``scheme:name``.
        models: names of the models under test.
        generator: what makes images of latents.
        oracle: who says how far.
        out: the run directory; one that is there is continued.
        progress: told how far it is.
        executor: where the work runs (``holdfast.engine.open_executor``); None: this machine.
        **options: the other fields of PerturbSpec (space, size, labels, keep_images, frames, …) and of WalkOptions
            (steps, step_size, gradient, loss, …).
    """
    names = listed(models)
    walk = WalkOptions(**{one.name: options.pop(one.name) for one in fields(WalkOptions) if one.name in options})
    spec = PerturbSpec(str(data), models=names, generator=generator, oracle=oracle, walk=walk, **texts(options))
    with workplace(out, executor) as (folder, workers):
        return Results(_perturb(spec, folder, progress=progress, executor=workers)[0])


def ask(
    data: str | Path,
    *,
    models: str | Iterable[str],
    out: str | Path,
    questions: str | Iterable[str] = ("two_way", "full_list"),
    progress: Progress = silent,
    **options: Any,
) -> Results:
    """Ask vision-language models what images show, and score classifiers on the same options.

    Args:
        data: a folder, manifest, COCO file or ``scheme:name``.
        models: names of models: ``vlm:``, ``vlm+http:`` and any classifier.
        out: the run directory; one that is there is continued.
        questions: ``two_way``, ``full_list``.
        progress: told how far it is.
        **options: the other fields of AskSpec: distractor, synonyms, template, letters, both_orders, labels, seed, …
    """
    names = listed(models)
    kinds = listed(questions)
    spec = AskSpec(str(data), models=names, questions=kinds, **texts(options))
    with workplace(out) as (folder, _):
        return Results(_ask(spec, folder, progress=progress)[0])


def train(
    data: str | Path,
    *,
    architectures: str | Iterable[str],
    out: str | Path,
    progress: Progress = silent,
    executor: Executor | None = None,
    **options: Any,
) -> Results:
    """Train classifiers within scenarios, fold by fold, and test them; ``Results.scores`` then has both parts.

    Args:
        data: a folder, manifest, COCO file or ``scheme:name``.
        architectures: networks by name: ``timm:resnet50``, ``torchvision:alexnet``, ….
        out: the run directory; one that is there is continued.
        progress: told how far it is.
        executor: where the work runs (``holdfast.engine.open_executor``); None: this machine.
        **options: the other fields of TrainSpec: masks, scenarios, folds, recipe, train_on, epochs, size, device, …
    """
    names = listed(architectures)
    spec = TrainSpec(str(data), architectures=names, **texts(options))
    with workplace(out, executor) as (folder, workers):
        return Results(_train(spec, folder, progress=progress, executor=workers)[0])


def segment(
    data: str | Path,
    *,
    out: str | Path,
    architectures: str | Iterable[str] = (),
    models: str | Iterable[str] = (),
    progress: Progress = silent,
    executor: Executor | None = None,
    **options: Any,
) -> Results:
    """Train segmenters within scenarios, or test those there are; ``Results.segments`` says what came out.

    Args:
        data: a folder, manifest, COCO file or ``scheme:name``, with masks.
        out: the run directory; one that is there is continued.
        architectures: networks to train: ``smp:FPN@resnet50``, ``torchvision:fcn_resnet50``, ``hf:upernet@vit``.
        models: or segmenters to test: ``embedded:unet``, ``smp:FPN@FOLDER``, ``hf:FOLDER``, ``torchvision:…``.
        progress: told how far it is.
        executor: where the work runs (``holdfast.engine.open_executor``); None: this machine.
        **options: the other fields of SegmentSpec: scenarios, folds, train_on, recipe, epochs, size, masks, labels, …
    """
    networks, given = listed(architectures), listed(models)
    spec = SegmentSpec(str(data), architectures=networks, models=given, **texts(options))
    with workplace(out, executor) as (folder, workers):
        return Results(_segment(spec, folder, progress=progress, executor=workers)[0])


def detect(data: str | Path, *, out: str | Path, progress: Progress = silent, **options: Any) -> Results:
    """Train networks to tell original, generated and random backgrounds apart; the run's ``report`` is the page.

    Args:
        data: a folder, manifest, COCO file or ``scheme:name``, with masks.
        out: the run directory; one that is there is continued.
        progress: told how far it is.
        **options: the other fields of DetectSpec: generator or generated, architectures, folds, recipe, device, …
    """
    from holdfast.report.trained.detection import build_detection

    options = texts(options)
    if "architectures" in options:
        options["architectures"] = listed(options["architectures"])
    with workplace(out) as (folder, _):
        run, _ = _detect(DetectSpec(str(data), **options), folder, progress=progress)
        build_detection([run], folder / "report")
    return Results(run)
