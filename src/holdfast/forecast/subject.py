"""What a command is about, counted without running it: images, conditions, models, rows, and what its cost follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.names import split_list
from holdfast.core.types import Collection
from holdfast.engine import core_count
from holdfast.forecast.trial import text
from holdfast.pipeline.samples import DataSpec, applicable, read, stored_conditions
from holdfast.pipeline.synth.files import SHARD_FORMATS
from holdfast.registry import unknown
from holdfast.scenarios import parse_conditions

Amounts = dict[str, float]


@dataclass(frozen=True)
class Subject:
    """The full command in numbers.

    Attributes:
        units: what ``--limit`` counts, all of them.
        unit: their name.
        images: pictures that are read, or made where the verb makes them.
        conditions: that each is put under, 1 where there are none.
        models: that look at it, 1 where none is named.
        work: from units and options to the amounts that cost follows.
        rows: of the table, where they can be counted before; else None.
        part: units whose rows go into one file, 0 where that is not known.
        first: units of the smallest trial.
        grain: units that are worked on at once: larger trials are multiples of it.
        variants: options that trials change in turn, to tell the prices of different kinds of work apart.
        notes: what is assumed, a sentence each.
    """

    units: int
    unit: str
    images: int
    conditions: int = 1
    models: int = 1
    work: Callable[[int, Mapping[str, Any]], Amounts] = lambda units, _: {"images": units}
    rows: int | None = None
    part: int = 0
    first: int = 4
    grain: int = 1
    variants: tuple[Mapping[str, Any], ...] = field(default=({},))
    notes: tuple[str, ...] = ()


def subject(verb: str, options: Mapping[str, Any]) -> Subject:
    """Count a command.

    Args:
        verb: one of ``VERBS``.
        options: those of its command line, by the names of its parameters; defaults may be left out.

    Raises:
        UserError: there is no trial of such a verb, or nothing to count.
    """
    if verb not in VERBS:
        raise unknown("verb that can be planned", verb, VERBS)
    return VERBS[verb](options)


def _spec(options: Mapping[str, Any]) -> DataSpec:
    names = {one.name for one in fields(DataSpec)}
    kept = {key: value for key, value in options.items() if key in names and value is not None}
    if not kept.get("data"):
        raise UserError("name the data to plan for")
    return DataSpec(**_plainly(kept))


def _plainly(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers as they are, everything else as text."""
    return {key: value if isinstance(value, int) else text(value) for key, value in values.items()}


def _sources(collection: Collection) -> int:
    return len({sample.source_id for sample in collection.samples})


def _names(options: Mapping[str, Any], option: str) -> list[str]:
    return split_list(text(options.get(option) or ""))


def _rendered(options: Mapping[str, Any], *, scenarios: str, models: int) -> Subject:
    """A row a picture, condition and model, which can be counted."""
    collection = read(_spec(options))
    conditions = parse_conditions(
        text(options.get("scenarios") or scenarios), feather=float(options.get("feather", 0.0))
    )
    stored = stored_conditions(collection.samples)
    renderings = sum(len(applicable(sample, conditions, stored)) for sample in collection.samples)
    return Subject(
        units=_sources(collection), unit="source images", images=len(collection.samples),
        conditions=len(conditions), models=models, rows=renderings * models,
    )  # fmt: skip


def _synth(options: Mapping[str, Any]) -> Subject:
    found = _rendered(options, scenarios="static", models=1)
    workers = int(options.get("workers") or core_count())
    shards = text(options.get("format") or "png") in SHARD_FORMATS
    part = 64 if shards else max(1, min(32, found.units // (4 * workers)), found.units // 2000)
    return replace(found, part=part)


def _eval(options: Mapping[str, Any]) -> Subject:
    found = _rendered(options, scenarios="all", models=max(1, len(_names(options, "models"))))
    few = 4 * int(options.get("batch_size") or 32) // max(1, found.conditions)
    return replace(found, part=max(8, found.units // 500, few))


def _plain(options: Mapping[str, Any]) -> Subject:
    """``mask`` and ``ask``: cost follows images."""
    collection = read(_spec(options))
    models = max(1, len(_names(options, "models")))
    return Subject(_sources(collection), "source images", len(collection.samples), models=models)


def _perturb(options: Mapping[str, Any]) -> Subject:
    if not options.get("out"):
        raise UserError("say where the run goes: --out RUN")
    collection = read(_spec(options))
    batch = 1 if options.get("deterministic") else int(options.get("batch_size") or 16)
    return Subject(
        _sources(collection), "source images", len(collection.samples), models=len(_names(options, "models")) or 1,
        first=batch, grain=batch,
        notes=("walks are as long in the trial as in the run: --stop-when-fooled ends some of them early",)
        if options.get("stop_when_fooled") else (),
    )  # fmt: skip


def _generate(options: Mapping[str, Any]) -> Subject:
    from holdfast.pipeline.generate.plan import GenerateSpec, plan

    names = {one.name for one in fields(GenerateSpec)} - {"kinds"}
    kept = {key: value for key, value in options.items() if key in names and value is not None}
    if "generator" not in kept:
        raise UserError("say what makes the images: --generator")
    if kinds := _names(options, "kinds"):
        count = len(plan(GenerateSpec(**_plainly(kept), kinds=tuple(kinds))).requests)
    else:
        count = len(plan(GenerateSpec(**_plainly(kept))).requests)
    batch = int(options.get("batch_size") or 16)
    return Subject(count, "images", count, first=batch, grain=batch)


def _mine(options: Mapping[str, Any]) -> Subject:
    collection = read(DataSpec(str(options["pool"]), limit=int(options.get("limit") or 0)))
    models = len(_names(options, "surrogates")) + len(_names(options, "targets"))
    return Subject(
        _sources(collection), "prompts", len(collection.samples), models=models, first=96,
        notes=("as large a share of the prompts is taken to be hard as in the trials; those are painted --again",),
    )  # fmt: skip


def _trained(options: Mapping[str, Any], *, verb: str) -> Subject:
    """``train``, ``segment`` and ``detect``: jobs of networks × conditions × folds, each with its epochs."""
    from holdfast.pipeline.train.recipes import find

    networks = _names(options, "architectures") or ["timm:resnet50"] * (verb == "detect")
    collection = read(_spec(options))
    units, images = _sources(collection), len(collection.samples)
    scenarios = parse_conditions(text(options.get("scenarios") or "static")) if verb != "detect" else [None]
    if not networks:  # segment --models: tested as they are
        models = max(1, len(_names(options, "models")))
        return Subject(units, "source images", images, conditions=len(scenarios), models=models)
    folds = int(options.get("folds") or (5 if verb == "detect" else 12))
    epochs = find(text(options.get("recipe") or "fast"), epochs=int(options.get("epochs") or 0)).epochs
    few, fewer = min(folds, 2), min(folds, 3)
    trainings = len(networks) * (len(scenarios) if text(options.get("train_on") or "each") == "each" else 1)

    def work(units: int, changed: Mapping[str, Any]) -> Amounts:
        now, long = int(changed.get("folds", folds)), int(changed.get("epochs", epochs))
        shares = now - 1 if now > 1 else float(options.get("train_split") or 0.8)
        amounts = {"images": float(units), "trained": units * shares * long * trainings}
        return amounts | ({"jobs": float(now * trainings)} if folds > few else {})

    variants: list[dict[str, int]] = [{"folds": few, "epochs": 1}, {"folds": few, "epochs": min(epochs, 3)}]
    variants += [{"folds": fewer, "epochs": 1}] if folds > few else []
    notes = [
        f"trials have at most {fewer} of {folds} folds and {min(epochs, 3)} of {epochs} epochs; the run is counted up "
        "from jobs, pictures trained on and images"
    ]
    if options.get("early_stopping"):
        notes.append("--early-stopping is not counted on: every job is taken to train all its epochs")
    return Subject(
        units, "source images", images, conditions=len(scenarios), models=len(networks), work=work,
        first=max(6 * len(collection.classes), 8), variants=tuple(variants), notes=tuple(notes),
    )  # fmt: skip


VERBS: Mapping[str, Callable[[Mapping[str, Any]], Subject]] = {
    "eval": _eval,
    "synth": _synth,
    "perturb": _perturb,
    "generate": _generate,
    "mine": _mine,
    "mask": _plain,
    "ask": _plain,
    "train": lambda options: _trained(options, verb="train"),
    "segment": lambda options: _trained(options, verb="segment"),
    "detect": lambda options: _trained(options, verb="detect"),
}
"""Verb → how it is counted."""
