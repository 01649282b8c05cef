"""``holdfast study ximagenet12``: the experiments of XIMAGENET-12 in the drawn world, and what its paper shows of them.

EX1 (trained on originals), EX2 (trained within each scenario), EX3 (segmentation), where the models look, and three
kinds of background distinguished. Each part is a run of its own, made here or beforehand on another machine. Its
sections are those of the report, each with what it is the counterpart of in the paper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.names import unknown
from holdfast.core.types import ORIGINAL
from holdfast.reports.attribution.section import read_looks
from holdfast.reports.page.parts import Section
from holdfast.reports.study import Finding, StudyResult, about_world
from holdfast.results import Results
from holdfast.scenarios import parse_conditions
from holdfast_studies import ximagenet12_page as page
from holdfast_studies.study import DRAWN, Setting, Study, StudyOptions
from holdfast_studies.telltale import study_telltale

CLASSIFY, SEGMENT, LOOK, DETECT = "classify", "segment", "look", "detect"
PARTS = {
    CLASSIFY: ("trained", "train", "scenes"),
    SEGMENT: ("segmented", "segment", "segment_scenes"),
    LOOK: ("looked", "train", "scenes"),
    DETECT: ("detected", "detect", "detect_scenes"),
}
"""Part → the name of its run (and of the setting for one made beforehand), its verb, and the setting of its scenes."""
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
PAINTED = "generated_background"


def run(options: StudyOptions) -> StudyResult:
    """Make the runs that are missing, and put their sections on one page."""
    settings = options.settings
    _check(options)
    shown = {CLASSIFY: page.classified, SEGMENT: page.segmented, LOOK: page.looked, DETECT: page.detected}
    runs = {part: _run_of(options, part) for part in PARTS if part in settings["parts"]}
    sections: list[Section] = []
    for part, results in runs.items():
        first, *others = shown[part](results, options.seed)
        sections += [replace(first, lead=[*first.lead, *page.unfinished(results)]), *others]
    data = {str(results.run.spec().get("data", "")) for results in runs.values()}
    findings: list[Finding | Section] = [*page.in_order(sections), page.cost(runs)]
    return StudyResult(
        title="The experiments of XIMAGENET-12",
        question=page.QUESTION,
        findings=findings,
        facts=page.facts(runs),
        note=min(about_world(source) for source in data),
        runs=[results.run.run_id for results in runs.values()],
    )


STUDY = Study(
    run,
    (
        Setting("data", "", "images to train and test on: a folder, a manifest or scheme:name; empty: drawn scenes"),
        Setting("masks", "", "folder of their masks, if the data has none of its own"),
        Setting("parts", tuple(PARTS), "what is done and shown"),
        Setting("architectures", EMBEDDED, "classifiers, from scratch", ("timm:test_resnet", "timm:test_vit")),
        Setting("segmenters", SEGMENTERS, "segmenters, from scratch", (TINY_SEGMENTER,)),
        Setting("detectors", DETECTORS, "networks that distinguish kinds of background", ("timm:test_resnet",)),
        Setting(
            "scenarios",
            f"static,{PAINTED}",
            f"conditions; {PAINTED} is painted by the generator, once per part",
            f"{ORIGINAL},grey,random_background,{PAINTED}",
        ),
        Setting("folds", 4, "of cross-validation; 12, as in the paper, take 3.7 times as long", 2),
        Setting("scenes", 1920, "to train and test classifiers on, a multiple of 12", 48),
        Setting("segment_scenes", 960, "to train and test segmenters on, a multiple of 12", 24),
        Setting("detect_scenes", 480, "to make three kinds of image of, a multiple of 12", 72),
        Setting("context", 0.8, "how strongly class and background go together, 0 to 1"),
        Setting("size", 64, "pixels of the square images"),
        Setting("recipe", "fast", "of every training: fast or paper"),
        Setting("epochs", 0, "of every training; 0: as the recipe says", 1),
        Setting("generator", "embedded:text_to_image", "what paints backgrounds", "embedded:text_to_image?steps=2"),
        Setting("maps", 48, "scenes whose attribution maps are made", 6),
        Setting("methods", "gradcam,integrated_gradients", "of attribution", "gradcam"),
        Setting("workers", 1, "trainings side by side"),
        Setting("trained", "", f"{MADE}: holdfast train, within scenarios"),
        Setting("segmented", "", f"{MADE}: holdfast segment --architectures"),
        Setting("looked", "", f"{MADE}: holdfast train --train-on original, with its models"),
        Setting("detected", "", f"{MADE}: holdfast study telltale"),
    ),
)


def _check(options: StudyOptions) -> None:
    settings = options.settings
    for part in settings["parts"]:
        if part not in PARTS:
            raise unknown("part of this study", part, PARTS)
    options.require(folds=2, scenes=24, segment_scenes=24, detect_scenes=24, maps=2)
    if not 0 <= settings["context"] <= 1:
        raise UserError("context must be a share from 0 to 1")
    scenarios = [condition.scenario for condition in parse_conditions(settings["scenarios"])]
    if ORIGINAL not in scenarios or len(scenarios) < 2:
        raise UserError(f"scenarios must have {ORIGINAL} and another one: the score is about what changes from there")
    generator, data = settings["generator"], settings["data"]
    if PAINTED in scenarios and data not in ("", DRAWN) and generator.startswith("embedded:"):
        raise UserError(
            f"generator {generator} paints drawn scenes only, and data is {data}: set generator=diffusers:NAME, or "
            "scenarios=static to leave generated backgrounds out"
        )


def _common(options: StudyOptions, scenes: str) -> dict[str, Any]:
    """Return the options of all trainings."""
    settings = options.settings
    drawn = f"&seed={options.seed}" if options.seed else ""
    images: dict[str, Any] = {"data": f"diorama:train?n={settings[scenes]}&context={settings['context']:g}{drawn}"}
    if settings["data"] not in ("", DRAWN):
        images = {"data": settings["data"], "masks": settings["masks"] or None, "limit": settings[scenes]}
    return images | {
        "folds": settings["folds"],
        "recipe": settings["recipe"],
        "epochs": settings["epochs"],
        "size": settings["size"],
        "seed": options.seed,
        "device": options.device,
        "progress": options.progress,
    }


def _run_of(options: StudyOptions, part: str) -> Results:
    """Open the run of a part if one was made beforehand, else make it."""
    settings = options.settings
    name, verb, scenes = PARTS[part]
    if settings[name]:
        results = _given(settings[name], name, verb)
    else:
        common = _common(options, scenes) | {"out": options.out / "runs" / name}
        networks = {"architectures": settings["architectures"], "scenarios": settings["scenarios"]}
        if any(condition.definition.paints for condition in parse_conditions(settings["scenarios"])):
            networks["generator"] = settings["generator"]
        if part == CLASSIFY:
            results = api.train(**common, **networks, workers=settings["workers"])
        elif part == SEGMENT:
            networks["architectures"] = settings["segmenters"]
            results = api.segment(**common, **networks, workers=settings["workers"])
        elif part == LOOK:  # each network is trained once on originals, and its model is kept
            split = {"folds": 1, "train_split": 1 - 1 / settings["folds"]}
            results = api.train(**common | split, **networks, train_on=ORIGINAL)
        else:
            results = study_telltale(
                **common, architectures=settings["detectors"], generator=settings["generator"]
            )  # fmt: skip
    if part == LOOK and (not settings[name] or read_looks([results.run]) is None):  # maps made beforehand stay
        api.explain(
            results.path, methods=settings["methods"], limit=settings["maps"], randomise=True, device=options.device,
            seed=options.seed, progress=options.progress,
        )  # fmt: skip
    return results


_CALLED = {"detect": "study telltale"}  # runs keep the verb's first name


def _given(folder: str, setting: str, verb: str) -> Results:
    """Open a run that was made beforehand; raise UserError for a run of another kind."""
    results = api.open_run(folder)
    spec = results.run.spec()
    if spec.get("verb") != verb or not spec.get("architectures"):
        wanted, stated = (_CALLED.get(name, name) for name in (verb, str(spec.get("verb"))))
        kind = "given models" if spec.get("verb") == verb else f"holdfast {stated}"
        raise UserError(f"{folder} is a run of {kind}; {setting} takes one of holdfast {wanted} that trained networks")
    if not results.run.predictions.dataset().count_rows():
        raise UserError(f"{folder} has no rows yet; the command that began it continues with it")
    return results
