"""Verbs whose outcome is a run or images, and verbs that read runs: why models fail, where they look, which to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.api import live
from holdfast.api.detectors import compare_detectors
from holdfast.api.verb import verb
from holdfast.core.errors import UserError
from holdfast.core.names import condition_words, speaks_python, without_object
from holdfast.core.tasks import check_supported
from holdfast.data import load_collection
from holdfast.data.inventory import Inventory
from holdfast.engine import Executor
from holdfast.pipeline import specs
from holdfast.pipeline.ask.ask import ask as _ask
from holdfast.pipeline.choosing import Chosen, choose_model, sources
from holdfast.pipeline.evaluate.evaluate import evaluate as _evaluate
from holdfast.pipeline.explain.explain import Explained
from holdfast.pipeline.explain.explain import explain as _explain
from holdfast.pipeline.generate.generate import generate as _generate
from holdfast.pipeline.hard.failure_modes import gather, pictures_of
from holdfast.pipeline.hard.mine import Mined
from holdfast.pipeline.hard.mine import mine as _mine
from holdfast.pipeline.hard.remedy import Remedied
from holdfast.pipeline.hard.remedy import remedy as _remedy
from holdfast.pipeline.jobs.progress import Progress, Summary, printed, quietable
from holdfast.pipeline.mask import make_masks
from holdfast.pipeline.metadata import slice_of
from holdfast.pipeline.samples import inventory
from holdfast.pipeline.segment.segment import segment as _segment
from holdfast.pipeline.synth.synth import make_spec
from holdfast.pipeline.synth.synth import synth as _synth
from holdfast.pipeline.train.train import train as _train
from holdfast.pipeline.walk.perturb import perturb as _perturb
from holdfast.results import Results, open_run
from holdfast.scenarios import parse_conditions
from holdfast.stats.core.reduce import Outcome
from holdfast.stats.hard.failure_modes import Modes, measure
from holdfast.store import Run, delivered, fetched, in_store, workplace

if TYPE_CHECKING:
    import pandas as pd

    from holdfast.stats.models.gate import Gate
    from holdfast.stats.models.parity import Parity


@verb(specs.InventorySpec)
def data_check(spec: specs.InventorySpec, *, progress: Progress = printed) -> Inventory:
    """Return what a dataset holds, and what is wrong with it, gravest first; writes nothing.

    Returns:
        The inventory: counts per class, and the problems found.

    Examples:
        >>> holdfast.data_check("diorama:test?n=12").images
        12
    """
    return inventory(spec, progress)


@verb(specs.SynthSpec, workers=1)
def synth(
    spec: specs.SynthSpec, *, out: str | Path, progress: Progress = printed, executor: Executor | None = None
) -> Summary:
    """Write scenario images, their masks and a manifest.

    Returns:
        How many images were written, and what went wrong.

    Examples:
        >>> done = holdfast.synth("diorama:test?n=12", scenarios="original,grey", out="images", quiet=True)
        >>> done.rows
        24
    """
    spec = make_spec(**vars(spec))
    with workplace(out, executor, whole=spec.verify or spec.review) as (folder, workers):
        return _synth(spec, folder, progress=progress, executor=workers)


@verb(specs.GenerateSpec)
def generate(
    spec: specs.GenerateSpec, *, out: str | Path, progress: Progress = printed, executor: Executor | None = None
) -> Summary:
    """Make a pool of images, categories × nuisances; ``holdfast.evaluate(out, …)`` reads it.

    Returns:
        How many images were made, and what went wrong.

    Examples:
        >>> holdfast.generate("diorama:", limit=240, out="pool", quiet=True).rows
        240
    """
    with workplace(out, executor) as (folder, workers):
        return _generate(spec, folder, progress=progress, executor=workers)


@verb(specs.MaskSpec, workers=1)
def mask(
    spec: specs.MaskSpec, *, out: str | Path, progress: Progress = printed, executor: Executor | None = None
) -> list[dict[str, Any]]:
    """Make masks for images, with ``keep`` only for those without.

    Returns:
        A row per mask, the least confident first.

    Examples:
        >>> rows = holdfast.mask("diorama:test?n=12", annotator="threshold", out="masks", quiet=True)
        >>> len(rows)
        12
    """
    with workplace(out, executor, whole=False) as (folder, workers):
        return make_masks(spec, folder, progress=progress, executor=workers)[1]


@verb(specs.MineSpec)
def mine(
    spec: specs.MineSpec, *, out: str | Path, progress: Progress = printed, executor: Executor | None = None
) -> Mined:
    """Keep the images of a pool that many models fail together, publish them, and report how hard they are.

    Returns:
        The folder of the hard set, and the tables of its report.

    Examples:
        >>> models = "embedded:resnet_rho95,embedded:vit_rho95"
        >>> mined = holdfast.mine("pool", surrogates=models, targets="embedded:densenet_rho95", at_least=2,
        ...                       use=2, again=0, oracle="clip:embedded", out="hard", quiet=True)
        >>> sorted(mined.tables)
        [...]
    """
    from holdfast.reports.hard.mining import build

    with workplace(out, executor) as (folder, workers):
        mined = _mine(spec, folder, progress=progress, executor=workers)
        reads = specs.ModesSpec()
        values = mined.tables["rates_nuisance"]["value"].astype(str)
        has_backgrounds = values[values.str.startswith("background: ")].nunique() > 1
        if has_backgrounds and spec.oracle.startswith("clip:"):
            # An oracle with a text tower can say what surrounds the object if the prompt does not.
            reads = specs.ModesSpec(words="prompts", oracle=spec.oracle, device=spec.device)
        why = measure(gather(mined.path, reads, progress=progress), seed=spec.seed)
        build(mined.path, pictures=pictures_of(mined.path), modes=why)
    return mined


@verb(specs.EvaluateSpec, temporary=True)
def evaluate(
    spec: specs.EvaluateSpec, *, out: str | Path, progress: Progress = printed, executor: Executor | None = None
) -> Results:
    """Run models on images under every condition.

    Returns:
        The run and its statistics.

    Examples:
        >>> run = holdfast.evaluate("diorama:test?n=12", "embedded:resnet_rho95",
        ...                         scenarios="original,grey", out="run", quiet=True)
        >>> run.rows().num_rows
        24
    """
    with workplace(out, executor, whole=False) as (folder, workers):
        return Results(_evaluate(spec, folder, progress=progress, executor=workers)[0])


@verb(specs.PerturbSpec, temporary=True)
def perturb(
    spec: specs.PerturbSpec, *, out: str | Path, progress: Progress = printed, executor: Executor | None = None
) -> Results:
    """Push images against each model as far as an oracle still sees their class; ``Results.fmr`` has the outcome.

    Returns:
        The run; its method ``fmr`` has the outcome.

    Examples:
        >>> walks = holdfast.perturb("diorama:test?n=12", models="embedded:resnet_rho95", generator="embedded:vqgan",
        ...                          oracle="clip:embedded", steps=1, limit=1, out="walks", quiet=True)
        >>> walks.rows().num_rows > 0
        True
    """
    with workplace(out, executor) as (folder, workers):
        return Results(_perturb(spec, folder, progress=progress, executor=workers)[0])


@verb(specs.AskSpec, temporary=True)
def ask(spec: specs.AskSpec, *, out: str | Path, progress: Progress = printed) -> Results:
    """Ask vision-language models what images show, and score classifiers on the same options.

    Returns:
        The run and its statistics.

    Examples:
        >>> asked = holdfast.ask("diorama:test?n=12", "embedded:resnet_rho95", questions="full_list", out="asked",
        ...                      quiet=True)
        >>> asked.rows().num_rows > 0
        True
    """
    with workplace(out) as (folder, _):
        return Results(_ask(spec, folder, progress=progress)[0])


@verb(specs.TrainSpec, temporary=True)
def train(
    spec: specs.TrainSpec, *, out: str | Path, progress: Progress = printed, executor: Executor | None = None
) -> Results:
    """Train classifiers within scenarios, fold by fold, and test them; ``Results.scores`` then has both parts.

    Returns:
        The run; its method ``scores`` has both parts of the score.

    Examples:
        >>> run = holdfast.train("diorama:test?n=48", architectures="embedded:resnet_rho95", scenarios="original",
        ...                      folds=1, epochs=1, validation=0, size=32, out="trained", quiet=True)
        >>> run.rows().num_rows > 0
        True
    """
    with workplace(out, executor) as (folder, workers):
        return Results(_train(spec, folder, progress=progress, executor=workers)[0])


@verb(specs.SegmentSpec, temporary=True, objects=False)
def segment(
    spec: specs.SegmentSpec, *, out: str | Path, progress: Progress = printed, executor: Executor | None = None
) -> Results:
    """Train segmenters within scenarios, or test existing ones; ``Results.segments`` has the outcome.

    Returns:
        The run; its method ``segments`` has the outcome.

    Examples:
        >>> run = holdfast.segment("diorama:test?n=12", models="embedded:unet", scenarios="original", limit=2,
        ...                        out="segmented", quiet=True)
        >>> run.rows().num_rows
        2
    """
    with workplace(out, executor) as (folder, workers):
        return Results(_segment(spec, folder, progress=progress, executor=workers)[0])


@verb(
    specs.ChooseSpec,
    about={
        "runs": "One or several run directories of one dataset.",
        "out": "The folder of the page, its tables and ``choice.json``; by default ``choice`` in the first run.",
    },
)
def choose(
    spec: specs.ChooseSpec,
    runs: Results | str | Path | Sequence[Results | str | Path],
    *,
    out: str | Path | None = None,
    progress: Progress = printed,
) -> Chosen:
    """Choose a model for given conditions: ``Chosen.recommendation`` in words, ``Chosen.choice`` in numbers.

    Returns:
        The recommendation in words, the numbers behind it and the page.

    Examples:
        >>> chosen = holdfast.choose("run", speed="none", resamples=100, quiet=True)
        >>> len(chosen.choice.models)
        1
    """
    from holdfast.reports.choice import build
    from holdfast.reports.page.evidence import join_runs

    given = [runs] if isinstance(runs, (Results, str, Path)) else list(runs)
    opened = [run.run if isinstance(run, Results) else Run.open(run) for run in given]
    counts = join_runs(opened).counts(order=[condition.name for condition in parse_conditions("all")])
    counts = slice_of(counts, opened, spec.slice, spec.attributes)
    chosen = choose_model(counts, opened, spec, progress=progress)
    where = opened[0].path / "choice" if out is None else out
    with delivered(where) as folder:
        page = build(chosen.choice, chosen.recommendation, opened, folder, settings=chosen.settings)
    return replace(chosen, page=in_store(where, folder, page))


@verb(
    specs.ModesSpec,
    about={
        "runs": "Run directories, or folders that ``mine`` made; several are compared.",
        "out": "The folder of the page; by default ``modes`` in the first.",
        "seed": 'Seed of the shuffles behind "by chance".',
    },
)
def mine_modes(
    spec: specs.ModesSpec,
    runs: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    seed: int = 0,
    progress: Progress = printed,
) -> tuple[Path, list[Modes]]:
    """Measure what explains the wrong answers of runs or hard sets.

    Returns:
        The page, and what was measured of each run.

    Examples:
        >>> page, measured = holdfast.mine_modes("run", quiet=True)
        >>> len(measured)
        1
    """
    from holdfast.reports.hard.failure_modes import build

    paths = [fetched(place) for place in ([runs] if isinstance(runs, (str, Path)) else runs)]
    measured = [measure(gather(path, spec, progress=progress), seed=seed) for path in paths]
    shown = [(each, pictures_of(path)) for each, path in zip(measured, paths, strict=True)]
    where = out or paths[0] / "modes"
    with delivered(where) as folder:
        page = build(shown, folder)
    return in_store(where, folder, page), measured


@verb(
    specs.ExplainSpec,
    about={
        "run": "A run directory of ``evaluate``, ``train`` or ``segment`` with masks.",
        "out": "The folder of the page; by default ``explain`` in the run.",
    },
)
def explain(
    spec: specs.ExplainSpec, run: str | Path, *, out: str | Path | None = None, progress: Progress = printed
) -> Explained:
    """Measure where the models of a run look: maps, their share on the foreground, and lost accuracy.

    Returns:
        The maps, their shares and the accuracies.

    Examples:
        >>> explained = holdfast.explain("run", limit=1, out="looking", quiet=True)
        >>> type(explained).__name__
        'Explained'
    """
    from holdfast.reports.attribution.section import build_looking

    with workplace(run) as (folder, _):
        explained = _explain(folder, spec, progress=progress)
        with delivered(out or folder / "explain") as page:
            build_looking(Run.open(folder), page, seed=spec.seed)
    return explained


@verb(
    specs.RemedySpec,
    about={
        "out": "The run; its ``model`` folder is the new model, ``Remedied.name`` its name.",
    },
)
def mine_remedy(spec: specs.RemedySpec, *, out: str | Path, progress: Progress = printed) -> Remedied:
    """Fine-tune a model on easy images of a hard set's pool, and measure it before and after on everything else.

    Returns:
        The name of the new model, and its accuracies before and after.

    Examples:
        >>> done = holdfast.mine_remedy("hard", model="embedded:densenet_rho95", epochs=1, out="remedy", quiet=True)
        >>> (done.path / "model").is_dir()
        True
    """
    from holdfast.reports.hard.remedy import build

    with workplace(out) as (folder, _):
        done = _remedy(spec, folder, progress=progress)
        build(done.path, pictures=pictures_of(done.path / "runs" / "pool"))
    return done


@speaks_python
def compare(
    old: Results | str | Path,
    new: Results | str | Path,
    *,
    margin: float = 0.02,
    sequential: bool = False,
    **options: Any,
) -> Gate:
    """Test whether a new model is no worse than an old one under any condition.

    The statistic is the mean success of the runs' task (``Task.outcome``), such as accuracy; for detectors, recall
    and false alarms.

    Args:
        old: Run of the old model.
        new: Run of the new model, on the same images.
        margin: Largest loss that is still accepted, 0..1.
        sequential: Images may be added and the test repeated until it decides (``stats.effects.sequential``).
        options: Of ``stats.models.gate.gate``, or of ``api.detectors.compare_detectors``.

    Returns:
        The decision and its sentence, with a row per condition.

    Raises:
        UserError: The runs have different tasks, or a run stopped early and ``sequential`` is False.

    Examples:
        >>> gate = holdfast.compare("run", "run")
        >>> gate.sentence
        'This is one run compared with itself. ...'
    """
    from holdfast.stats.effects.sequential import sequential_gate
    from holdfast.stats.models.gate import gate

    first, second = (run if isinstance(run, Results) else open_run(run) for run in (old, new))
    if first.task.name != second.task.name:
        raise UserError(
            f"{first.path} is about {first.task.title} and {second.path} about {second.task.title}: compare runs of "
            "one task"
        )
    if sequential:
        check_supported(first.task, {"rounds": "--sequential"})
    if first.is_detection:
        result, notes = compare_detectors(first, second, margin=margin, **options)
        return replace(result, notes=(*notes, *_pairing(first, second)))
    plans = [next(iter(run.rounds.values()), []) for run in (first, second)]
    if not sequential:
        if any(plans):
            raise UserError(
                "a run that stopped early is compared with --sequential: other intervals do not hold for it"
            )
        result = gate(first.counts, second.counts, margin=margin, **options)
        result = replace(result, notes=(
            *_pairing(first, second), *_without_object(first, options.get("conditions")),
            *_no_better_than_guessing(result, first, second),
        ))  # fmt: skip
        if first.path.resolve() == second.path.resolve() and options.get("old_model") == options.get("new_model"):
            return replace(result, sentence=f"This is one run compared with itself. {result.sentence}")
        return result
    common = min(map(len, plans))
    in_rounds = common > 0 and plans[0][:common] == plans[1][:common]
    return sequential_gate(first.counts, second.counts, margin=margin, in_rounds=in_rounds, **options)


def _pairing(old: Results, new: Results) -> tuple[str, ...]:
    """Return sentences on images that only one run has, and on masks that differ."""
    columns = ["source_id", "mask_fingerprint"]
    masks = [dict(zip(*(run.run.samples()[name].to_pylist() for name in columns), strict=True)) for run in (old, new)]
    both = masks[0].keys() & masks[1].keys()
    notes = [
        f"{len(own) - len(both):,} of {len(own):,} images of the {which} run have no partner in the other, and do not "
        "count." for which, own in zip(("old", "new"), masks, strict=True) if len(own) > len(both)
    ]  # fmt: skip
    if other := sum(masks[0][name] != masks[1][name] for name in both):
        notes.append(f"The masks of {other:,} images differ between the runs: part of any change may come from them.")
    return tuple(notes)


def _no_better_than_guessing(gate: Gate, old: Results, new: Results) -> list[str]:
    """Return a sentence on each compared model that no verdict can rest on, since it fails on unchanged images."""
    reasons = [run.broken().get(model) for run, model in zip((old, new), gate.models, strict=True)]
    return [
        f"Take care: there is no verdict on the {which} model ({model}: {reason}), so this comparison says little "
        "about it; check the names of its outputs and its preprocessing (docs/my-model.md)."
        for which, model, reason in zip(("old", "new"), gate.models, reasons, strict=True) if reason
    ]  # fmt: skip


def _without_object(run: Results, conditions: Sequence[str] | None) -> list[str]:
    """Return a sentence on the conditions that a comparison leaves out, unless it was asked for some by name."""
    left = [condition_words(name) for name in run.counts.conditions if without_object(name)]
    if not left or conditions:
        return []
    return [f"Left out: {', '.join(left)}, which do not show the object; --conditions compares them, too."]


@dataclass(frozen=True)
class ParityAnswer:
    """The outcome of ``parity``: what was measured, the run, and the page."""

    result: Parity
    results: Results
    costs: pd.DataFrame  # size and speed, a row per model
    notes: tuple[str, ...]  # what the models do differently before they look
    page: Path

    def __repr__(self) -> str:
        return "\n".join([self.result.sentence, *self.notes, str(self.page)])


@quietable
def parity(
    old: Any,
    new: Any,
    data: Any,
    *,
    out: str | Path | None = None,
    margin: float = 0.02,
    outcome: Outcome = "full",
    device: str = "auto",
    progress: Progress = printed,
    **options: Any,
) -> ParityAnswer:
    """Test whether an exported model is still the same one, also under the conditions.

    Args:
        old: name of the original, or the model itself.
        new: name of the exported model, or the model itself.
        data: a folder with a folder per class, any other data source, or a dataset in memory.
        out: the run directory, whose ``parity`` is the page; an existing run is continued. None: a temporary folder.
        margin: difference of accuracies that still counts as equal, 0..1.
        outcome: compare answers over all outputs (full), or among the dataset's classes (restricted).
        device: where the models run.
        progress: called with the name of a step, how much of it is done, and its total; by default printed.
        quiet: print neither progress nor notes.
        options: further options of ``evaluate``: scenarios, masks, labels, limit, seed, transform, class_names …

    Returns:
        The test's result, the run of both models, their sizes and times, and the page.

    Raises:
        UserError: A model or the data cannot be loaded, or an option has an invalid value.

    Examples:
        >>> same = holdfast.parity("embedded:resnet_rho95", "embedded:vit_rho95", "diorama:test?n=12",
        ...                        scenarios="original", out="parity", quiet=True)
        >>> same.page.exists()
        True
    """
    from holdfast.pipeline.choosing import check_comparable, costs
    from holdfast.pipeline.thumbnails import thumbnails
    from holdfast.reports.parity import build

    if not 0 < margin < 1:
        raise UserError(f"the margin must be a share of accuracy between 0 and 1, not {margin}")
    if not out:
        asked: dict[str, Any] = {"margin": margin, "outcome": outcome, "device": device, "progress": progress}
        with live.temporary_folder() as temporary:
            return parity(old, new, data, out=temporary, **asked, **options)
    given = {name: options.pop(name) for name in live.ARGUMENTS if name in options}
    if live.is_name(data):
        classes: tuple[str, ...] = ()
    else:
        data, classes = live.write_data(data, Path(out), given.get("class_names") or ())
    names = live.pair_names(old, new, classes, **given)
    spec = {"models": names, "device": device, **options}
    known = load_collection(str(data)).classes
    notes = check_comparable(*names, classes=known, outcome=outcome, device=device)
    results = evaluate(data, out=out, progress=progress, **spec)
    texts = sources([results.run])
    models = (results.run.spec()["model_names"][0], results.run.spec()["model_names"][1])
    result = results.parity(*models, margin=margin, outcome=outcome)
    table = costs({name: texts[name] for name in models}, classes=known, device=device, progress=progress)
    where = Path(out) / "parity"
    with delivered(where) as folder:
        page = build(result, results.run, folder, models=models, costs=table, notes=notes, outcome=outcome,
                     pictures=thumbnails)  # fmt: skip
    return ParityAnswer(result, results, table, tuple(notes), in_store(where, folder, page))
