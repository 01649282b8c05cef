"""Verbs whose outcome is a run: a table of rows, opened as ``Results``."""

from __future__ import annotations

from pathlib import Path

from holdfast.api.verb import verb
from holdfast.engine import Executor
from holdfast.pipeline.ask.ask import ask as _ask
from holdfast.pipeline.evaluate.evaluate import evaluate as _evaluate
from holdfast.pipeline.jobs.progress import Progress, in_notebook
from holdfast.pipeline.segment.segment import segment as _segment
from holdfast.pipeline.specs import AskSpec, DetectSpec, EvaluateSpec, PerturbSpec, SegmentSpec, TrainSpec
from holdfast.pipeline.telltale.detect import detect as _detect
from holdfast.pipeline.train.train import train as _train
from holdfast.pipeline.walk.perturb import perturb as _perturb
from holdfast.results import Results
from holdfast.store import workplace


@verb(EvaluateSpec, temporary=True)
def evaluate(
    spec: EvaluateSpec, *, out: str | Path, progress: Progress = in_notebook, executor: Executor | None = None
) -> Results:
    """Run models on images under every condition."""
    with workplace(out, executor, whole=False) as (folder, workers):
        return Results(_evaluate(spec, folder, progress=progress, executor=workers)[0])


@verb(PerturbSpec, temporary=True)
def perturb(
    spec: PerturbSpec, *, out: str | Path, progress: Progress = in_notebook, executor: Executor | None = None
) -> Results:
    """Push images against each model as far as an oracle still sees their class; ``Results.fmr`` has the outcome."""
    with workplace(out, executor) as (folder, workers):
        return Results(_perturb(spec, folder, progress=progress, executor=workers)[0])


@verb(AskSpec, temporary=True)
def ask(spec: AskSpec, *, out: str | Path, progress: Progress = in_notebook) -> Results:
    """Ask vision-language models what images show, and score classifiers on the same options."""
    with workplace(out) as (folder, _):
        return Results(_ask(spec, folder, progress=progress)[0])


@verb(TrainSpec, temporary=True)
def train(
    spec: TrainSpec, *, out: str | Path, progress: Progress = in_notebook, executor: Executor | None = None
) -> Results:
    """Train classifiers within scenarios, fold by fold, and test them; ``Results.scores`` then has both parts."""
    with workplace(out, executor) as (folder, workers):
        return Results(_train(spec, folder, progress=progress, executor=workers)[0])


@verb(SegmentSpec, temporary=True)
def segment(
    spec: SegmentSpec, *, out: str | Path, progress: Progress = in_notebook, executor: Executor | None = None
) -> Results:
    """Train segmenters within scenarios, or test existing ones; ``Results.segments`` has the outcome."""
    with workplace(out, executor) as (folder, workers):
        return Results(_segment(spec, folder, progress=progress, executor=workers)[0])


@verb(DetectSpec, temporary=True)
def detect(spec: DetectSpec, *, out: str | Path, progress: Progress = in_notebook) -> Results:
    """Train networks to tell original, generated and random backgrounds apart; ``report`` in the run is the page."""
    from holdfast.report.trained.detection import build_detection

    with workplace(out) as (folder, _):
        run, _ = _detect(spec, folder, progress=progress)
        build_detection([run], folder / "report")
    return Results(run)
