"""Verbs whose outcome is a run, opened as ``Results``, or images: scenarios, pools, masks, hard sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.api.verb import verb
from holdfast.data.inventory import Inventory
from holdfast.engine import Executor
from holdfast.pipeline.ask.ask import ask as _ask
from holdfast.pipeline.evaluate.evaluate import evaluate as _evaluate
from holdfast.pipeline.generate.generate import generate as _generate
from holdfast.pipeline.hard.failure_modes import gather, pictures_of
from holdfast.pipeline.hard.mine import Mined
from holdfast.pipeline.hard.mine import mine as _mine
from holdfast.pipeline.jobs.progress import Progress, Summary, in_notebook
from holdfast.pipeline.mask import make_masks
from holdfast.pipeline.samples import inventory
from holdfast.pipeline.segment.segment import segment as _segment
from holdfast.pipeline.specs import (
    AskSpec,
    EvaluateSpec,
    GenerateSpec,
    InventorySpec,
    MaskSpec,
    MineSpec,
    ModesSpec,
    PerturbSpec,
    SegmentSpec,
    SynthSpec,
    TelltaleSpec,
    TrainSpec,
)
from holdfast.pipeline.synth.synth import make_spec
from holdfast.pipeline.synth.synth import synth as _synth
from holdfast.pipeline.telltale import telltale as _telltale
from holdfast.pipeline.train.train import train as _train
from holdfast.pipeline.walk.perturb import perturb as _perturb
from holdfast.results import Results
from holdfast.stats.hard.failure_modes import measure
from holdfast.store import workplace


@verb(InventorySpec)
def data(spec: InventorySpec, *, progress: Progress = in_notebook) -> Inventory:
    """Return what a dataset holds, and what is wrong with it, gravest first; writes nothing."""
    return inventory(spec, progress)


@verb(SynthSpec, workers=1)
def synth(
    spec: SynthSpec, *, out: str | Path, progress: Progress = in_notebook, executor: Executor | None = None
) -> Summary:
    """Write scenario images, their masks and a manifest."""
    spec = make_spec(**vars(spec))
    with workplace(out, executor, whole=spec.verify or spec.review) as (folder, workers):
        return _synth(spec, folder, progress=progress, executor=workers)


@verb(GenerateSpec)
def generate(
    spec: GenerateSpec, *, out: str | Path, progress: Progress = in_notebook, executor: Executor | None = None
) -> Summary:
    """Make a pool of images, categories × nuisances; ``holdfast.evaluate(out, …)`` reads it."""
    with workplace(out, executor) as (folder, workers):
        return _generate(spec, folder, progress=progress, executor=workers)


@verb(MaskSpec, workers=1)
def mask(
    spec: MaskSpec, *, out: str | Path, progress: Progress = in_notebook, executor: Executor | None = None
) -> list[dict[str, Any]]:
    """Make masks for photos that have none; returns a row per mask, the least sure first."""
    with workplace(out, executor, whole=False) as (folder, workers):
        return make_masks(spec, folder, progress=progress, executor=workers)[1]


@verb(MineSpec)
def mine(
    spec: MineSpec, *, out: str | Path, progress: Progress = in_notebook, executor: Executor | None = None
) -> Mined:
    """Keep the images of a pool that many models fail together, publish them, and report how hard they are."""
    from holdfast.report.hard.mining import build

    with workplace(out, executor) as (folder, workers):
        mined = _mine(spec, folder, progress=progress, executor=workers)
        reads = ModesSpec()
        if _has_backgrounds(mined) and spec.oracle.startswith("clip:"):
            # An oracle with a text tower can say what surrounds the object where the prompt does not.
            reads = ModesSpec(words="prompts", oracle=spec.oracle, device=spec.device)
        why = measure(gather(mined.path, reads, progress=progress), seed=spec.seed)
        build(mined.path, pictures=pictures_of(mined.path), modes=why)
    return mined


def _has_backgrounds(mined: Mined) -> bool:
    values = mined.tables["rates_nuisance"]["value"].astype(str)
    return bool(values[values.str.startswith("background: ")].nunique() > 1)


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


@verb(TelltaleSpec, temporary=True)
def telltale(spec: TelltaleSpec, *, out: str | Path, progress: Progress = in_notebook) -> Results:
    """Train networks to tell original, generated and random backgrounds apart; ``report`` in the run is the page."""
    from holdfast.report.trained.detection import build_detection

    with workplace(out) as (folder, _):
        run, _ = _telltale(spec, folder, progress=progress)
        build_detection([run], folder / "report")
    return Results(run)
