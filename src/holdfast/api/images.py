"""Verbs whose outcome is images: scenarios, pools, masks, hard sets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.api.options import listed, texts
from holdfast.data.nuisances import KINDS
from holdfast.engine import Executor
from holdfast.pipeline.generate.generate import GenerateSpec
from holdfast.pipeline.generate.generate import generate as _generate
from holdfast.pipeline.hard.failure_modes import ModesSpec, gather, pictures_of
from holdfast.pipeline.hard.mine import Mined, MineSpec
from holdfast.pipeline.hard.mine import mine as _mine
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.mask import MaskSpec, make_masks
from holdfast.pipeline.synth.synth import make_spec
from holdfast.pipeline.synth.synth import synth as _synth
from holdfast.stats.hard.failure_modes import measure
from holdfast.store import workplace


def synth(
    data: str | Path,
    *,
    out: str | Path,
    progress: Progress = silent,
    executor: Executor | None = None,
    **options: Any,
) -> Summary:
    """Write scenario images, their masks and a manifest. ``options`` are the fields of SynthSpec."""
    spec = make_spec(data=str(data), **{"workers": 1} | texts(options))
    with workplace(out, executor, whole=spec.verify or spec.review) as (folder, workers):
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
    names = listed(kinds)
    with workplace(out, executor) as (folder, workers):
        return _generate(
            GenerateSpec(generator, kinds=names, **texts(options)), folder, progress=progress, executor=workers
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
    spec = MaskSpec(str(data), annotator=annotator, **{"workers": 1} | texts(options))
    with workplace(out, executor, whole=False) as (folder, workers):
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

    first, second = listed(surrogates), listed(targets)
    spec = MineSpec(str(pool), first, second, oracle, **texts(options))
    with workplace(out, executor) as (folder, workers):
        mined = _mine(spec, folder, progress=progress, executor=workers)
        # An oracle with a text tower can say what surrounds the object where the prompt does not.
        reads = {"words": "prompts", "oracle": oracle, "device": spec.device} if _reads(mined, oracle) else {}
        why = measure(gather(mined.path, ModesSpec(**reads), progress=progress), seed=spec.seed)
        build(mined.path, pictures=pictures_of(mined.path), modes=why)
    return mined


def _reads(mined: Mined, oracle: str) -> bool:
    rates = mined.tables["rates_nuisance"]["value"].astype(str)
    return oracle.startswith("clip:") and rates[rates.str.startswith("background: ")].nunique() > 1
