"""What a command will work on, counted without running it: images, conditions, models, rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.options import make, options_of
from holdfast.core.types import Collection
from holdfast.engine import core_count
from holdfast.forecast.trial import text
from holdfast.pipeline import specs
from holdfast.pipeline.donors import make_pool
from holdfast.pipeline.samples import applicable, read, stored_conditions
from holdfast.pipeline.synth.files import SHARD_FORMATS
from holdfast.scenarios import parse_conditions
from holdfast.stats.models.power import donor_advice

Amounts = dict[str, float]


@dataclass(frozen=True)
class Workload:
    """A command in numbers."""

    units: int  # how many of what ``--limit`` counts
    unit: str  # the name of those
    images: int  # images that are read, or made if the verb makes them
    conditions: int = 1  # conditions per image, 1 if there are none
    models: int = 1  # models per image, 1 if none is named
    # from units and options to the amounts that decide the cost
    work: Callable[[int, Mapping[str, Any]], Amounts] = lambda units, _: {"images": units}
    rows: int | None = None  # rows of the table; None if they cannot be counted beforehand
    part: int = 0  # units whose rows go into one file, 0 if that is not known
    first: int = 4  # units of the smallest trial
    grain: int = 1  # units that are worked on at once; larger trials are multiples of it
    # options that trials change in turn, to measure the prices of different kinds of work apart
    variants: tuple[Mapping[str, Any], ...] = field(default=({},))
    notes: tuple[str, ...] = ()  # what is assumed, a sentence each


def workload(verb: str, options: Mapping[str, Any]) -> Workload:
    """Count what a command will work on."""
    declared = registry.verbs.get(verb)
    if declared.workload is None or declared.spec is None:
        raise UserError(f"holdfast plan cannot forecast {verb}: it declares no workload (docs/adding/verb.md)")
    count, known = registry.resolved(declared.workload), options_of(declared.spec)
    # Engine options and `workers` are not the spec's; lists are typed with commas.
    given = {name: text(value) if isinstance(value, (list, tuple)) else value for name, value in options.items()
             if name in known and name != "workers"}  # fmt: skip
    load: Workload = count(make(declared.spec, given, verb=verb), options)
    return load


def _images(spec: specs.DataSpec, **counts: Any) -> tuple[Workload, Collection]:
    collection = read(spec)
    sources = len({sample.source_id for sample in collection.samples})
    return Workload(sources, "source images", len(collection.samples), **counts), collection


def _rendered(spec: specs.EvaluateSpec | specs.SynthSpec, models: int) -> Workload:
    """Count a row per image, condition and model."""
    load, collection = _images(spec)
    conditions = parse_conditions(spec.scenarios, feather=spec.feather)
    stored = stored_conditions(collection.samples)
    renderings = bare = skipped = 0
    for sample in collection.samples:
        wanted = applicable(sample, conditions, stored)
        renderings += len(wanted)
        if sample.mask is None and (without := sum(condition.definition.needs_mask for condition in wanted)):
            bare, skipped = bare + 1, skipped + without
    pasted = any(condition.definition.donor == "other_class" for condition in conditions)
    notes = _about_donors(spec, collection, load.units) if pasted else ()
    if bare:
        rows = f"{bare:,} of {load.images:,} images have no mask: {skipped * models:,} rows will be skipped"
        notes = (*notes, f"{rows}; holdfast mask makes the missing ones")
    return replace(load, conditions=len(conditions), models=models, rows=renderings * models, notes=notes)


def _about_donors(spec: specs.DataSpec, collection: Collection, photos: int) -> tuple[str, ...]:
    """Return a note where too many images would share too few backgrounds; each image draws its own by chance."""
    pool = len(make_pool(collection.samples, spec.backgrounds, max_pixels=spec.max_pixels).samples)
    advice = donor_advice(photos, round(pool * (1 - (1 - 1 / pool) ** photos)))
    return (f"{advice}: --backgrounds FOLDER lends others",) if advice else ()


def synthesised(spec: specs.SynthSpec, options: Mapping[str, Any]) -> Workload:
    """Count the images of a ``synth``."""
    load = _rendered(spec, 1)
    workers = int(options.get("workers") or core_count())
    if spec.format in SHARD_FORMATS:
        return replace(load, part=64)
    return replace(load, part=max(1, min(32, load.units // (4 * workers)), load.units // 2000))


def evaluated(spec: specs.EvaluateSpec, options: Mapping[str, Any]) -> Workload:
    """Count the rows of an ``eval``."""
    load = _rendered(spec, max(1, len(spec.models)))
    few = 4 * spec.batch_size // max(1, load.conditions)
    return replace(load, part=max(8, load.units // 500, few))


def perturbed(spec: specs.PerturbSpec, options: Mapping[str, Any]) -> Workload:
    """Count the images that walks start from."""
    if not options.get("out"):
        raise UserError("say where the run goes: --out RUN")
    batch = 1 if spec.walk.deterministic else spec.walk.batch_size
    note = "walks are as long in the trial as in the run: --stop-when-fooled ends some of them early"
    notes = (note,) if spec.walk.stop_when_fooled else ()
    return _images(spec, models=len(spec.models) or 1, first=batch, grain=batch, notes=notes)[0]


def generated(spec: specs.GenerateSpec, options: Mapping[str, Any]) -> Workload:
    """Count the images of a pool."""
    from holdfast.pipeline.generate.plan import plan_prompts

    count = len(plan_prompts(spec).requests)
    return Workload(count, "images", count, first=spec.batch_size, grain=spec.batch_size)


def masked(spec: specs.MaskSpec, options: Mapping[str, Any]) -> Workload:
    """Count the images that masks are made for."""
    return _images(spec)[0]


def asked(spec: specs.AskSpec, options: Mapping[str, Any]) -> Workload:
    """Count the images that models are asked about."""
    return _images(spec, models=max(1, len(spec.models)))[0]


def mined(spec: specs.MineSpec, options: Mapping[str, Any]) -> Workload:
    """Count the prompts of a pool that is mined."""
    load, _ = _images(
        specs.DataSpec(spec.pool, limit=spec.limit), models=len(spec.surrogates) + len(spec.targets), first=96
    )
    note = "as large a share of the prompts is taken to be hard as in the trials; those are painted --again"
    return replace(load, unit="prompts", notes=(note,))


def trained(spec: specs.TrainSpec, options: Mapping[str, Any]) -> Workload:
    """Count jobs of networks × conditions × folds, each with its epochs, for the verbs that train."""
    load, collection = _images(spec)
    conditions = 1 if isinstance(spec, specs.TelltaleSpec) else len(parse_conditions(spec.scenarios))
    networks, folds = spec.architectures, spec.folds
    if isinstance(spec, specs.SegmentSpec) and not networks:  # existing models are only tested
        return replace(load, conditions=conditions, models=max(1, len(spec.models)))
    epochs = spec.settled().epochs
    few, fewer = min(folds, 2), min(folds, 3)
    each = spec.train_on == "each" or isinstance(spec, specs.TelltaleSpec)
    trainings = len(networks) * (conditions if each else 1)

    def work(units: int, changed: Mapping[str, Any]) -> Amounts:
        now, long = int(changed.get("folds", folds)), int(changed.get("epochs", epochs))
        shares = now - 1 if now > 1 else spec.train_split
        amounts = {"images": float(units), "trained": units * shares * long * trainings}
        return amounts | ({"jobs": float(now * trainings)} if folds > few else {})

    variants: list[dict[str, int]] = [{"folds": few, "epochs": 1}, {"folds": few, "epochs": min(epochs, 3)}]
    variants += [{"folds": fewer, "epochs": 1}] if folds > few else []
    notes = [
        f"trials have at most {fewer} of {folds} folds and {min(epochs, 3)} of {epochs} epochs; the run is counted up "
        "from jobs, training images and generated images"
    ]
    if spec.early_stopping:
        notes.append("--early-stopping is not counted on: every job is taken to train all its epochs")
    return replace(
        load, conditions=conditions, models=len(networks), work=work, first=max(6 * len(collection.classes), 8),
        variants=tuple(variants), notes=tuple(notes),
    )  # fmt: skip
