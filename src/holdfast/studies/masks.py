"""``holdfast study masks``: how much do scores and verdicts depend on how good the masks are?

Benchmarks of backgrounds cut objects out with boxes, with GrabCut or by hand. Here the same pictures go through the
same conditions with one kind of mask after another, and every number is held against that of the exact masks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL, Image
from holdfast.pipeline.samples import DataSpec, read
from holdfast.report.page.words import listing
from holdfast.report.study import StudyResult, about_world
from holdfast.scenarios import parse_conditions
from holdfast.stats.core.reduce import Outcome
from holdfast.stats.effects.verdict import ONLY, RANDOM, SAME
from holdfast.studies import mask_kinds, masks_findings
from holdfast.studies.mask_kinds import EXACT, Kind
from holdfast.studies.mask_measures import Run
from holdfast.studies.masks_facts import gather
from holdfast.studies.study import Setting, Study, StudyOptions, model_names

if TYPE_CHECKING:
    import pandas as pd

DRAWN = "drawn"
KINDS = (
    "erode-0.03", "erode-0.05", "erode-0.1", "dilate-0.05", "dilate-0.1", "dilate-0.2", "box", "grabcut-box", "grabcut",
    "u2netp",
)  # fmt: skip
CONDITIONS = (
    ORIGINAL, "blur_background", "blur_object", "bright_background", "segmented", RANDOM, SAME, ONLY,
)  # fmt: skip
SHOWN = 4
"""Pictures that show what each kind of mask does."""

LEAST = 12
"""Pictures that must have a mask of a kind that is compared."""

SETTINGS = (
    Setting("data", DRAWN, "pictures with exact masks; drawn stands for scenes of the embedded world"),
    Setting("masks", "", "folder of the exact masks, where the data has none of its own"),
    Setting("labels", "", "label file: class → index of the models' outputs, where names do not tell"),
    Setting("models", ("embedded",), "names of models; embedded stands for all that come with Holdfast",
            ("embedded:resnet_rho0", "embedded:resnet_rho95_strong")),
    Setting("scenes", 240, "drawn scenes; of other data at most so many pictures", 24),
    Setting("context", 0.95, "how strongly class and background go together in drawn scenes, 0 to 1"),
    Setting("kinds", KINDS, "erode-SHARE and dilate-SHARE (of √area of the object), box, grabcut-box, mask makers",
            ("erode-0.1", "dilate-0.2", "box")),
    Setting("conditions", CONDITIONS, "what the pictures go through", (ORIGINAL, "segmented", RANDOM, SAME)),
    Setting("accuracy", "full", "right among all outputs of a model (full) or the dataset's classes (restricted)"),
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """The pictures: what masks are made for, and what is evaluated (with the truth, where it can be drawn)."""

    spec: DataSpec
    evaluated: str

    @property
    def known(self) -> bool:
        """Whether the true effect of the background is known."""
        return self.evaluated != self.spec.data


def run(options: StudyOptions) -> StudyResult:
    """Make the masks, evaluate with each kind, and say what came out."""
    settings = options.settings
    conditions = _check(settings)
    kinds, absent = mask_kinds.kinds_of(settings["kinds"])
    models = model_names(settings["models"])
    world = _world(options)
    samples = mask_kinds.samples_of(world.spec)
    for kind in kinds:
        folder = options.out / "masks" / kind.folder
        mask_kinds.write_kind(kind, samples, world.spec, folder, options.progress)
    others = {kind.name: _with_masks(options, world, kind) for kind in kinds}
    overlaps = mask_kinds.overlaps(samples, others, world.spec.max_pixels)
    kinds, useless = _usable(kinds, overlaps)
    runs = {kind.name: _evaluated(options, world, kind, models, conditions) for kind in (Kind(EXACT, EXACT), *kinds)}
    facts = gather(kinds, overlaps, runs, known=world.known)
    left_out = f" {listing(absent)}: not installed, so left out." if absent else ""
    left_out += f" {listing(useless)}: hardly a mask that could be used, so left out." if useless else ""
    return StudyResult(
        title="Masks",
        question=(
            "How much do scores and verdicts depend on the masks? The same pictures went through the same conditions "
            "with exact masks and with worse ones: eroded and dilated by a share of the object's size (√area), "
            "replaced by its box, cut out by GrabCut from that box (grabcut-box) or without help, and found by other "
            "mask makers. Differences are against exact masks, paired by picture; intervals are at the 95 % level."
        ),
        findings=masks_findings.findings(facts, _pictures(samples, others, kinds, world.spec.max_pixels)),
        facts=[(str(len(facts.models)), "models"), (str(len(kinds) + 1), "kinds of masks"),
               (str(len(samples)), "pictures")],
        note=(about_world(world.evaluated) + left_out).strip(),
        runs=[f"runs/{name}" for name in (EXACT, *(kind.folder for kind in kinds))],
    )  # fmt: skip


STUDY = Study(run, SETTINGS)


def _usable(kinds: Sequence[Kind], overlaps: pd.DataFrame) -> tuple[list[Kind], list[str]]:
    """The kinds with enough masks to compare, and the names of the others."""
    count = overlaps[overlaps["usable"]].groupby("kind").size()
    good = [kind for kind in kinds if count.get(kind.name, 0) >= LEAST]
    if not good:
        raise UserError(f"no kind of masks has {LEAST} that could be used: all are empty or cover the whole picture")
    return good, [kind.name for kind in kinds if kind not in good]


def _check(settings: Mapping[str, Any]) -> str:
    """The conditions as one text; raises UserError where a setting makes no sense."""
    if settings["scenes"] < LEAST or not 0 <= settings["context"] <= 1:
        raise UserError(f"scenes must be {LEAST} or more, and context a number from 0 to 1")
    if settings["accuracy"] not in get_args(Outcome):
        raise UserError(f"accuracy is {' or '.join(get_args(Outcome))}, not {settings['accuracy']!r}")
    text = ",".join(settings["conditions"])
    asked = {condition.name for condition in parse_conditions(text)}
    if missing := [name for name in (ORIGINAL, RANDOM, SAME) if name not in asked]:
        raise UserError(f"conditions lack {listing(missing)}: without them there is no background effect")
    return text


def _world(options: StudyOptions) -> World:
    settings = options.settings
    if settings["data"] != DRAWN:
        spec = DataSpec(settings["data"], settings["masks"] or None, limit=settings["scenes"], seed=options.seed)
        return World(spec, settings["data"])
    if settings["masks"]:
        raise UserError("drawn scenes have exact masks of their own; leave masks out, or name other data")
    scenes = f"test?n={settings['scenes']}&context={settings['context']:g}&seed={options.seed}"
    return World(DataSpec(f"diorama:{scenes}", seed=options.seed), f"diorama-rerendered:{scenes}")


def _with_masks(options: StudyOptions, world: World, kind: Kind) -> dict[str, Any]:
    """Sample id → the sample as a run with these masks sees it."""
    folder = str(options.out / "masks" / kind.folder)
    made = read(replace(world.spec, data=world.evaluated, masks=folder)).samples
    return {one.sample_id: one for one in made if one.condition == ORIGINAL}


def _evaluated(options: StudyOptions, world: World, kind: Kind, models: Sequence[str], conditions: str) -> Run:
    settings = options.settings
    exact = kind.name == EXACT
    results = api.evaluate(
        world.evaluated,
        models=models,
        out=options.out / "runs" / kind.folder,
        scenarios=conditions,
        masks=world.spec.masks if exact else str(options.out / "masks" / kind.folder),
        labels=settings["labels"] or None,
        limit=world.spec.limit,
        seed=options.seed,
        device=options.device,
        batch_size=64,
        progress=lambda stage, done, total: options.progress(f"{kind.name}: {stage}", done, total),
    )
    return Run(results, settings["accuracy"], options.seed)


def _pictures(
    samples: Sequence[Any], others: Mapping[str, Mapping[str, Any]], kinds: Sequence[Kind], max_pixels: int
) -> dict[str, Image]:
    """Kind → the same few pictures under its masks."""
    firsts = list({sample.label: sample for sample in reversed(samples)}.values())  # one a class
    chosen = list(mask_kinds.masked(firsts[:: max(1, len(firsts) // SHOWN)][:SHOWN], max_pixels))
    if not chosen:
        return {}
    shown = {EXACT: mask_kinds.sheet([(image, exact) for _, image, exact in chosen])}
    for kind in kinds:
        masks = [mask_kinds.mask_of(others[kind.name].get(sample.sample_id), image) for sample, image, _ in chosen]
        pairs = [
            (image, np.zeros(image.shape[:2], np.bool_) if mask is None else mask)
            for (_, image, _), mask in zip(chosen, masks, strict=True)
        ]
        shown[kind.name] = mask_kinds.sheet(pairs)
    return shown
