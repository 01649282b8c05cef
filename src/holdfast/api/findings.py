"""Verbs that read runs: why models fail, where they look, which to take, how to mend one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.api.verb import verb
from holdfast.pipeline.choosing import Chosen, choose_model
from holdfast.pipeline.explain.explain import Explained
from holdfast.pipeline.explain.explain import explain as _explain
from holdfast.pipeline.hard.failure_modes import gather, pictures_of
from holdfast.pipeline.hard.remedy import Remedied
from holdfast.pipeline.hard.remedy import remedy as _remedy
from holdfast.pipeline.jobs.progress import Progress, in_notebook
from holdfast.pipeline.specs import ChooseSpec, ExplainSpec, ModesSpec, RemedySpec
from holdfast.results import Results
from holdfast.scenarios import parse_conditions
from holdfast.stats.core.reduce import reduce
from holdfast.stats.hard.failure_modes import Modes, measure
from holdfast.store import Run, delivered, fetched, in_store, workplace


@verb(
    ChooseSpec,
    about={
        "runs": "One or several run directories of one dataset.",
        "out": "The folder of the page, its tables and ``choice.json``; by default ``choice`` in the first run.",
    },
)
def choose(
    spec: ChooseSpec,
    runs: Results | str | Path | Sequence[Results | str | Path],
    *,
    out: str | Path | None = None,
    progress: Progress = in_notebook,
) -> Chosen:
    """Choose a model for given conditions: ``Chosen.recommendation`` in words, ``Chosen.choice`` in numbers."""
    from holdfast.report.choice import build
    from holdfast.report.page.rows import join_runs

    given = [runs] if isinstance(runs, (Results, str, Path)) else list(runs)
    opened = [run.run if isinstance(run, Results) else Run.open(run) for run in given]
    counts = reduce(join_runs(opened).dataset, order=[condition.name for condition in parse_conditions("all")])
    chosen = choose_model(counts, opened, spec, progress=progress)
    where = opened[0].path / "choice" if out is None else out
    with delivered(where) as folder:
        page = build(chosen.choice, chosen.recommendation, opened, folder, settings=chosen.settings)
    return replace(chosen, page=in_store(where, folder, page))


@verb(
    ModesSpec,
    about={
        "runs": "Run directories, or folders that ``mine`` made; several are compared.",
        "out": "The folder of the page; by default ``modes`` in the first.",
        "seed": 'Seed of the shuffles behind "by chance".',
    },
)
def modes(
    spec: ModesSpec,
    runs: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    seed: int = 0,
    progress: Progress = in_notebook,
) -> tuple[Path, list[Modes]]:
    """Say what explains the wrong answers of runs or hard sets; returns the page, and what was measured of each."""
    from holdfast.report.hard.failure_modes import build

    paths = [fetched(place) for place in ([runs] if isinstance(runs, (str, Path)) else runs)]
    measured = [measure(gather(path, spec, progress=progress), seed=seed) for path in paths]
    shown = [(each, pictures_of(path)) for each, path in zip(measured, paths, strict=True)]
    where = out or paths[0] / "modes"
    with delivered(where) as folder:
        page = build(shown, folder)
    return in_store(where, folder, page), measured


@verb(
    ExplainSpec,
    about={
        "run": "A run directory of ``evaluate``, ``train`` or ``segment`` with masks.",
        "out": "The folder of the page; by default ``explain`` in the run.",
    },
)
def explain(
    spec: ExplainSpec, run: str | Path, *, out: str | Path | None = None, progress: Progress = in_notebook
) -> Explained:
    """Measure where the models of a run look: maps, their share on the foreground, and lost accuracy."""
    from holdfast.report.attribution.section import build_looking

    with workplace(run) as (folder, _):
        explained = _explain(folder, spec, progress=progress)
        with delivered(out or folder / "explain") as page:
            build_looking(Run.open(folder), page, seed=spec.seed)
    return explained


@verb(
    RemedySpec,
    about={
        "out": "The run; its ``model`` folder is the new model, ``Remedied.name`` its name.",
    },
)
def remedy(spec: RemedySpec, *, out: str | Path, progress: Progress = in_notebook) -> Remedied:
    """Fine-tune a model on easy images of a hard set's pool, and measure it before and after on everything else."""
    from holdfast.report.hard.remedy import build

    with workplace(out) as (folder, _):
        done = _remedy(spec, folder, progress=progress)
        build(done.path, pictures=pictures_of(done.path / "runs" / "pool"))
    return done
