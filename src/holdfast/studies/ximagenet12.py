"""``holdfast study ximagenet12``: the experiments of XIMAGENET-12 in the drawn world, and what its paper shows of them.

EX1 (trained on originals), EX2 (trained within each scenario), EX3 (segmentation), where the models look, and three
kinds of background told apart. Each part is a run of its own, made here or beforehand on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.registry import unknown
from holdfast.report.attribution.section import read_looks
from holdfast.report.page.parts import Section
from holdfast.report.study import Finding, StudyResult, about_world
from holdfast.results import Results
from holdfast.scenarios import parse_conditions
from holdfast.studies import ximagenet12_page as page
from holdfast.studies.study import Setting, Study, StudyOptions

CLASSIFY, SEGMENT, LOOK, DETECT = "classify", "segment", "look", "detect"
PARTS = (CLASSIFY, SEGMENT, LOOK, DETECT)
EMBEDDED = ("embedded:resnet_rho95", "embedded:mobilenet_rho95", "embedded:vit_rho95")
SEGMENTERS = (
    "smp:DeepLabV3Plus@resnet50",
    "smp:UPerNet@tu-swin_tiny_patch4_window7_224",
    "smp:DPT@tu-vit_small_patch16_224?patch_size=8",
)
DETECTORS = ("timm:resnet50", "timm:densenet121", "timm:mobilenetv3_large_100")
"""The families that the paper prints figures of."""

TINY_SEGMENTER = "smp:FPN@tu-resnet18?channels=8/8/16/16&layers=1/1/1/1&decoder_segmentation_channels=32"
MADE = "folder of a run that was made beforehand"

SETTINGS = (
    Setting("parts", PARTS, "what is done and shown"),
    Setting("architectures", EMBEDDED, "classifiers, from scratch", ("timm:test_resnet", "timm:test_vit")),
    Setting("segmenters", SEGMENTERS, "segmenters, from scratch", (TINY_SEGMENTER,)),
    Setting("detectors", DETECTORS, "networks that tell kinds of background apart", ("timm:test_resnet",)),
    Setting("scenarios", "static", "conditions", f"{ORIGINAL},grey,random_background"),
    Setting("folds", 4, "of cross-validation; 12, as in the paper, take 3.7 times as long", 2),
    Setting("scenes", 1920, "to train and test classifiers on, a multiple of 12", 48),
    Setting("segment_scenes", 960, "to train and test segmenters on, a multiple of 12", 24),
    Setting("detect_scenes", 480, "to make three kinds of picture of, a multiple of 12", 72),
    Setting("context", 0.8, "how strongly class and background go together, 0 to 1"),
    Setting("size", 64, "pixels of the square pictures"),
    Setting("recipe", "fast", "of every training: fast or paper"),
    Setting("epochs", 0, "of every training; 0: as the recipe says", 1),
    Setting("generator", "embedded:text_to_image", "what paints backgrounds", "embedded:text_to_image?steps=2"),
    Setting("maps", 48, "scenes whose attribution maps are made", 6),
    Setting("methods", "gradcam,integrated_gradients", "of attribution", "gradcam"),
    Setting("workers", 1, "trainings side by side"),
    Setting("trained", "", f"{MADE}: holdfast train, within scenarios"),
    Setting("segmented", "", f"{MADE}: holdfast segment --architectures"),
    Setting("looked", "", f"{MADE}: holdfast train --train-on original, with its models"),
    Setting("detected", "", f"{MADE}: holdfast detect"),
)


def run(options: StudyOptions) -> StudyResult:
    """Make the runs that are not there, and put what came out on one page."""
    settings = options.settings
    _check(settings)
    ways: dict[str, tuple[Callable[[StudyOptions], Results], Callable[[Results, int], list[Section]]]] = {
        CLASSIFY: (_trained, page.classified),
        SEGMENT: (_segmented, page.segmented),
        LOOK: (_looked, page.looked),
        DETECT: (_detected, page.detected),
    }
    runs = {part: make(options) for part, (make, _) in ways.items() if part in settings["parts"]}
    sections = [section for part, made in runs.items() for section in _told(made, ways[part][1](made, options.seed))]
    data = {str(made.run.spec().get("data", "")) for made in runs.values()}
    findings: list[Finding | Section] = [*page.in_order(sections), page.cost(runs)]
    return StudyResult(
        title="The experiments of XIMAGENET-12",
        question=page.QUESTION,
        findings=findings,
        facts=page.facts(runs),
        note=min(about_world(one) for one in data),
        runs=[made.run.run_id for made in runs.values()],
    )


STUDY = Study(run, SETTINGS)


def _told(made: Results, sections: list[Section]) -> list[Section]:
    """The sections of a run; where it is not finished, the first of them says so."""
    first = sections[0]
    return [replace(first, lead=[*first.lead, *page.unfinished(made)]), *sections[1:]]


def _check(settings: Mapping[str, Any]) -> None:
    for part in settings["parts"]:
        if part not in PARTS:
            raise unknown("part of this study", part, PARTS)
    for name, least in (("folds", 2), ("scenes", 24), ("segment_scenes", 24), ("detect_scenes", 24), ("maps", 2)):
        if settings[name] < least:
            raise UserError(f"{name} must be {least} or more")
    if not 0 <= settings["context"] <= 1:
        raise UserError("context is a share from 0 to 1")
    scenarios = [one.scenario for one in parse_conditions(settings["scenarios"])]
    if ORIGINAL not in scenarios or len(scenarios) < 2:
        raise UserError(f"scenarios must have {ORIGINAL} and another one: the score is about what changes from there")


def _common(options: StudyOptions, scenes: str) -> dict[str, Any]:
    """What all trainings are asked for."""
    settings = options.settings
    drawn = f"&seed={options.seed}" if options.seed else ""
    return {
        "data": f"diorama:train?n={settings[scenes]}&context={settings['context']:g}{drawn}",
        "folds": settings["folds"],
        "recipe": settings["recipe"],
        "epochs": settings["epochs"],
        "size": settings["size"],
        "seed": options.seed,
        "device": options.device,
        "progress": options.progress,
    }


def _trained(options: StudyOptions) -> Results:
    """EX1 and EX2."""
    settings = options.settings
    if settings["trained"]:
        return _given(settings["trained"], "trained", "train")
    return api.train(
        **_common(options, "scenes"),
        architectures=settings["architectures"],
        scenarios=settings["scenarios"],
        workers=settings["workers"],
        out=options.out / "runs" / "trained",
    )


def _segmented(options: StudyOptions) -> Results:
    """EX3."""
    settings = options.settings
    if settings["segmented"]:
        return _given(settings["segmented"], "segmented", "segment")
    return api.segment(
        **_common(options, "segment_scenes"),
        architectures=settings["segmenters"],
        scenarios=settings["scenarios"],
        workers=settings["workers"],
        out=options.out / "runs" / "segmented",
    )


def _looked(options: StudyOptions) -> Results:
    """One training of each network on originals, whose model is kept and explained."""
    settings = options.settings
    if settings["looked"]:
        found = _given(settings["looked"], "looked", "train")
    else:
        split = {"folds": 1, "train_split": 1 - 1 / settings["folds"]}
        found = api.train(
            **_common(options, "scenes") | split,
            architectures=settings["architectures"],
            scenarios=settings["scenarios"],
            train_on=ORIGINAL,
            out=options.out / "runs" / "looked",
        )
    there = read_looks([found.run])
    if not settings["looked"] or there is None:  # maps that were made beforehand are taken as they are
        api.explain(
            found.path,
            methods=settings["methods"],
            limit=settings["maps"],
            randomise=True,
            device=options.device,
            seed=options.seed,
            progress=options.progress,
        )
    return found


def _detected(options: StudyOptions) -> Results:
    """Three kinds of background."""
    settings = options.settings
    if settings["detected"]:
        return _given(settings["detected"], "detected", "detect")
    return api.detect(
        **_common(options, "detect_scenes"),
        architectures=settings["detectors"],
        generator=settings["generator"],
        out=options.out / "runs" / "detected",
    )


def _given(folder: str, setting: str, verb: str) -> Results:
    """A run that was made beforehand; one of something else is refused."""
    results = api.open_run(folder)
    spec = results.run.spec()
    if spec.get("verb") != verb or not spec.get("architectures"):
        was = "given models" if spec.get("verb") == verb else f"holdfast {spec.get('verb')}"
        raise UserError(f"{folder} is a run of {was}; {setting} takes one of holdfast {verb} that trained networks")
    if not results.run.predictions.dataset().count_rows():
        raise UserError(f"{folder} has no rows yet; the command that began it goes on with it")
    return results
