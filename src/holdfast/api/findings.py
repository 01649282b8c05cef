"""Verbs that draw something from what is there: why models fail, where they look, which to take, how to mend one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.api.options import texts
from holdfast.pipeline.choosing import ChooseSpec, Chosen, choose_model
from holdfast.pipeline.explain.explain import Explained, ExplainSpec
from holdfast.pipeline.explain.explain import explain as _explain
from holdfast.pipeline.hard.failure_modes import ModesSpec, gather, pictures_of
from holdfast.pipeline.hard.remedy import Remedied, RemedySpec
from holdfast.pipeline.hard.remedy import remedy as _remedy
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.results import Results
from holdfast.scenarios import parse_conditions
from holdfast.stats.core.reduce import reduce
from holdfast.stats.hard.failure_modes import Modes, measure
from holdfast.store import Run, delivered, fetched, in_store, workplace


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
    from holdfast.report.page.rows import join_runs

    given = [runs] if isinstance(runs, (Results, str, Path)) else list(runs)
    opened = [one.run if isinstance(one, Results) else Run.open(one) for one in given]
    rows = join_runs(opened).dataset
    counts = reduce(rows, order=[condition.name for condition in parse_conditions("all")])
    found = choose_model(counts, opened, ChooseSpec(**texts(options)), progress=progress)
    where = opened[0].path / "choice" if out is None else out
    with delivered(where) as folder:
        page = build(found.choice, found.recommendation, opened, folder, settings=found.settings)
    return replace(found, page=in_store(where, folder, page))


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

    spec = ModesSpec(**texts(options))
    paths = [fetched(one) for one in runs]
    found = [measure(gather(path, spec, progress=progress), seed=seed) for path in paths]
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
    from holdfast.report.attribution.section import build_looking

    spec = ExplainSpec(**texts(options))
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

    spec = RemedySpec(str(hard), model, **texts(options))
    with workplace(out) as (folder, _):
        done = _remedy(spec, folder, progress=progress)
        build(done.path, pictures=pictures_of(done.path / "runs" / "pool"))
    return done
