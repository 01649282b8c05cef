"""What notebooks and other programs call: the command line's verbs as functions.

```python
import holdfast
run = holdfast.evaluate("photos/", models=["timm:resnet50"], out="runs/first")
run.rows().to_pandas()
```
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from holdfast.core.names import split_list
from holdfast.core.places import shown as shown_path
from holdfast.data import load_collection
from holdfast.data.nuisances import KINDS
from holdfast.engine import Executor
from holdfast.models import load_classifier
from holdfast.pipeline.choosing import ChooseSpec, Chosen, choose_model
from holdfast.pipeline.detected.detect import DetectSpec
from holdfast.pipeline.detected.detect import detect as _detect
from holdfast.pipeline.dynamic.perturb import PerturbSpec, WalkOptions
from holdfast.pipeline.dynamic.perturb import perturb as _perturb
from holdfast.pipeline.evaluate import EvaluateSpec
from holdfast.pipeline.evaluate import evaluate as _evaluate
from holdfast.pipeline.explained.explain import Explained, ExplainSpec
from holdfast.pipeline.explained.explain import explain as _explain
from holdfast.pipeline.generated.generate import GenerateSpec
from holdfast.pipeline.generated.generate import generate as _generate
from holdfast.pipeline.hard.failure_modes import ModesSpec, gather, pictures_of
from holdfast.pipeline.hard.mine import Mined, MineSpec
from holdfast.pipeline.hard.mine import mine as _mine
from holdfast.pipeline.hard.remedy import Remedied, RemedySpec
from holdfast.pipeline.hard.remedy import remedy as _remedy
from holdfast.pipeline.mask import MaskSpec, make_masks
from holdfast.pipeline.progress import Progress, silent
from holdfast.pipeline.questions.ask import AskSpec
from holdfast.pipeline.questions.ask import ask as _ask
from holdfast.pipeline.segmented.segment import SegmentSpec
from holdfast.pipeline.segmented.segment import segment as _segment
from holdfast.pipeline.summary import Summary
from holdfast.pipeline.synth import make_spec
from holdfast.pipeline.synth import synth as _synth
from holdfast.pipeline.trained.train import TrainSpec
from holdfast.pipeline.trained.train import train as _train
from holdfast.results import Results, compare, open_run, report
from holdfast.scenarios import parse_conditions
from holdfast.stats.failure_modes import Modes
from holdfast.stats.failure_modes import measure as _measure_modes
from holdfast.stats.reduce import reduce
from holdfast.store import Run, delivered, fetched, in_store, workplace

__all__ = [
    "Results",
    "ask",
    "choose",
    "compare",
    "detect",
    "evaluate",
    "explain",
    "generate",
    "load_classifier",
    "load_collection",
    "mask",
    "mine",
    "modes",
    "open_run",
    "perturb",
    "remedy",
    "report",
    "segment",
    "synth",
    "train",
]


def choose(
    runs: Results | str | Path | Sequence[Results | str | Path],
    *,
    out: str | Path | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Chosen:
    """Which model to take for given conditions: ``Chosen.recommendation`` says it, ``Chosen.choice`` has the numbers.

    Args:
        runs: one or several run directories of one dataset.
        out: the folder of the page, its tables and ``choice.json``; by default ``choice`` in the first run.
        progress: told how far it is.
        **options: the fields of ChooseSpec: weights, accuracy_weight, limit_size, limit_time, speed, device, …
    """
    from holdfast.report.choice import build
    from holdfast.report.rows import join

    given = [runs] if isinstance(runs, (Results, str, Path)) else list(runs)
    opened = [one.run if isinstance(one, Results) else Run.open(one) for one in given]
    rows = join(opened).dataset
    counts = reduce(rows, order=[condition.name for condition in parse_conditions("all")])
    found = choose_model(counts, opened, ChooseSpec(**_texts(options)), progress=progress)
    where = opened[0].path / "choice" if out is None else out
    with delivered(where) as folder:
        page = build(found.choice, found.recommendation, opened, folder, settings=found.settings)
    return replace(found, page=in_store(where, folder, page))


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
    names = tuple(split_list(models) if isinstance(models, str) else models)
    spec = EvaluateSpec(str(data), models=names, **_texts(options))
    with workplace(out, executor) as (folder, workers):
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
    names = tuple(split_list(models) if isinstance(models, str) else models)
    walk = WalkOptions(**{one.name: options.pop(one.name) for one in fields(WalkOptions) if one.name in options})
    spec = PerturbSpec(str(data), models=names, generator=generator, oracle=oracle, walk=walk, **_texts(options))
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
    names = tuple(split_list(models) if isinstance(models, str) else models)
    kinds = tuple(split_list(questions) if isinstance(questions, str) else questions)
    spec = AskSpec(str(data), models=names, questions=kinds, **_texts(options))
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
    names = tuple(split_list(architectures) if isinstance(architectures, str) else architectures)
    spec = TrainSpec(str(data), architectures=names, **_texts(options))
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
    networks, given = (tuple(split_list(one) if isinstance(one, str) else one) for one in (architectures, models))
    spec = SegmentSpec(str(data), architectures=networks, models=given, **_texts(options))
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

    options = _texts(options)
    if isinstance(names := options.get("architectures", ()), str):
        options["architectures"] = split_list(names)
    if "architectures" in options:
        options["architectures"] = tuple(options["architectures"])
    with workplace(out) as (folder, _):
        run, _ = _detect(DetectSpec(str(data), **options), folder, progress=progress)
        build_detection([run], folder / "report")
    return Results(run)


def synth(
    data: str | Path,
    *,
    out: str | Path,
    progress: Progress = silent,
    executor: Executor | None = None,
    **options: Any,
) -> Summary:
    """Write scenario images, their masks and a manifest. ``options`` are the fields of SynthSpec."""
    spec = make_spec(data=str(data), **{"workers": 1} | _texts(options))
    with workplace(out, executor) as (folder, workers):
        return _synth(spec, folder, progress=progress, executor=workers)


def generate(
    generator: str,
    *,
    out: str | Path,
    kinds: str | Iterable[str] = KINDS,
    progress: Progress = silent,
    executor: Executor | None = None,
    **options: Any,
) -> Summary:
    """Make a pool of images, categories × nuisances; ``holdfast.evaluate(out, …)`` reads it.

    Args:
        generator: an image maker by name.
        out: the pool; one that is there is continued.
        kinds: background, texture, material, or some of them.
        progress: told how far it is.
        executor: where the work runs (``holdfast.engine.open_executor``); None: this machine.
        **options: the other fields of GenerateSpec: categories, nuisances, templates, per_pair, limit, seed, …
    """
    names = tuple(split_list(kinds) if isinstance(kinds, str) else kinds)
    with workplace(out, executor) as (folder, workers):
        return _generate(
            GenerateSpec(generator, kinds=names, **_texts(options)), folder, progress=progress, executor=workers
        )


def mask(
    data: str | Path,
    *,
    out: str | Path,
    annotator: str = "u2netp",
    progress: Progress = silent,
    executor: Executor | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Make masks for photos that have none; returns a row a mask, the least sure first."""
    spec = MaskSpec(str(data), annotator=annotator, **{"workers": 1} | _texts(options))
    with workplace(out, executor) as (folder, workers):
        return make_masks(spec, folder, progress=progress, executor=workers)[1]


def mine(
    pool: str | Path,
    *,
    surrogates: str | Iterable[str],
    targets: str | Iterable[str],
    oracle: str,
    out: str | Path,
    progress: Progress = silent,
    executor: Executor | None = None,
    **options: Any,
) -> Mined:
    """Keep the images of a pool that many models fail together, publish them, and report how hard they are for others.

    Args:
        pool: what ``generate`` made, or any dataset.
        surrogates: names of the models whose shared failures are kept.
        targets: names of the models that the set is tried on.
        oracle: who says whether an image shows its category.
        out: the hard set's folder.
        progress: told how far it is.
        executor: where the work runs (``holdfast.engine.open_executor``); None: this machine.
        **options: the other fields of MineSpec: at_least, use, cap_per_category, again, labels, seed, …
    """
    from holdfast.report.hard.mining import build

    first, second = (tuple(split_list(one) if isinstance(one, str) else one) for one in (surrogates, targets))
    spec = MineSpec(str(pool), first, second, oracle, **_texts(options))
    with workplace(out, executor) as (folder, workers):
        mined = _mine(spec, folder, progress=progress, executor=workers)
        # An oracle with a text tower can say what surrounds the object where the prompt does not.
        reads = {"words": "prompts", "oracle": oracle, "device": spec.device} if _reads(mined, oracle) else {}
        why = _measure_modes(gather(mined.path, ModesSpec(**reads), progress=progress), seed=spec.seed)
        build(mined.path, pictures=pictures_of(mined.path), modes=why)
    return mined


def _reads(mined: Mined, oracle: str) -> bool:
    rates = mined.tables["rates_nuisance"]["value"].astype(str)
    return oracle.startswith("clip:") and rates[rates.str.startswith("background: ")].nunique() > 1


def modes(
    runs: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    seed: int = 0,
    progress: Progress = silent,
    **options: Any,
) -> tuple[Path, list[Modes]]:
    """What explains the wrong answers of runs or hard sets: the path of the page, and what was measured of each.

    Args:
        runs: run directories, or folders that ``mine`` made; several are compared.
        out: the folder of the page; by default ``modes`` in the first.
        seed: of the shuffles behind "by chance".
        progress: told how far it is.
        **options: the fields of ModesSpec: words, oracle, outcome, labels, device.
    """
    from holdfast.report.hard.failure_modes import build

    spec = ModesSpec(**_texts(options))
    paths = [fetched(one) for one in runs]
    found = [_measure_modes(gather(path, spec, progress=progress), seed=seed) for path in paths]
    shown = [(one, pictures_of(path)) for one, path in zip(found, paths, strict=True)]
    where = out or paths[0] / "modes"
    with delivered(where) as folder:
        page = build(shown, folder)
    return in_store(where, folder, page), found


def explain(
    run: str | Path, *, out: str | Path | None = None, progress: Progress = silent, **options: Any
) -> Explained:
    """Where the models of a run look: maps, their share on the foreground, what it has to do with lost accuracy.

    Args:
        run: a run directory of ``evaluate``, ``train`` or ``segment`` with masks.
        out: the folder of the page; by default ``explain`` in the run.
        progress: told how far it is.
        **options: the fields of ExplainSpec: methods, limit, conditions, target, randomise, pictures, device, …
    """
    from holdfast.report.looking.looking import build_looking

    spec = ExplainSpec(**_texts(options))
    with workplace(run) as (folder, _):
        found = _explain(folder, spec, progress=progress)
        with delivered(out or folder / "explain") as page:
            build_looking(Run.open(folder), page, seed=spec.seed)
    return found


def remedy(hard: str | Path, *, model: str, out: str | Path, progress: Progress = silent, **options: Any) -> Remedied:
    """Fine-tune a model on easy images of a hard set's pool, and measure it before and after on everything else.

    Args:
        hard: what ``mine`` made.
        model: an ``embedded:``, ``local-dir:`` or ``timm:`` model.
        out: the run; its ``model`` folder is the new model, ``Remedied.name`` its name.
        progress: told how far it is.
        **options: the other fields of RemedySpec: originals, recipe, epochs, rate, limit, pool, labels, seed, …
    """
    from holdfast.report.hard.remedy import build

    spec = RemedySpec(str(hard), model, **_texts(options))
    with workplace(out) as (folder, _):
        done = _remedy(spec, folder, progress=progress)
        build(done.path, pictures=pictures_of(done.path / "runs" / "pool"))
    return done


def _texts(options: dict[str, Any]) -> dict[str, Any]:
    return {name: shown_path(value) if isinstance(value, Path) else value for name, value in options.items()}
