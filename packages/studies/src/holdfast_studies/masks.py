"""``holdfast study masks``: how much do scores and verdicts depend on how good the masks are?

Benchmarks of backgrounds cut objects out with boxes, with GrabCut or by hand. Here the same images go through the
same conditions with one kind of mask after another, and every number is compared with that of the exact masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import cv2
import numpy as np
import pandas as pd

from holdfast import api
from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.types import ORIGINAL, Image, Mask, Sample
from holdfast.data.writers import encode_mask
from holdfast.pipeline.files import file_name
from holdfast.pipeline.jobs.progress import Progress
from holdfast.pipeline.samples import DataSpec, read
from holdfast.reports.page.words import listing
from holdfast.reports.study import StudyResult
from holdfast.scenarios import parse_conditions
from holdfast.stats.core.reduce import Outcome
from holdfast.stats.effects.verdict import ONLY, RANDOM, SAME
from holdfast_studies import study
from holdfast_studies.degraded import EXACT, MaskKind, degraded, kinds_of
from holdfast_studies.mask_findings import findings
from holdfast_studies.mask_measures import MaskRun, measure_kinds
from holdfast_studies.study import DRAWN, EMBEDDED, Setting, Study, StudyOptions

KINDS = (
    "erode-0.03", "erode-0.05", "erode-0.1", "dilate-0.05", "dilate-0.1", "dilate-0.2", "box", "grabcut-box", "grabcut",
    "u2netp",
)  # fmt: skip
CONDITIONS = (ORIGINAL, "blur_background", "blur_object", "bright_background", "segmented", RANDOM, SAME, ONLY)
SHOWN = 4  # images that show what each kind of mask does
LEAST = 12  # images that must have a usable mask of a kind that is compared


def run(options: StudyOptions) -> StudyResult:
    """Make the masks, evaluate with each kind, and compare."""
    settings = options.settings
    conditions = _check(options)
    kinds, absent = kinds_of(settings["kinds"])
    models = study.model_names(settings["models"])
    images = study.images_of(options, least=LEAST)
    spec = DataSpec(images["data"], images.get("masks"), limit=images.get("limit", 0), seed=options.seed)
    # Drawn scenes can be painted again on another background, so that the true effect is known.
    known = settings["data"] in ("", DRAWN)
    evaluated = spec.data.replace("diorama:", "diorama-rerendered:") if known else spec.data
    samples = samples_of(spec)
    others = {}
    for kind in kinds:
        folder = options.out / "masks" / kind.folder
        write_masks(kind, samples, spec, folder, options.progress)
        masked = read(replace(spec, data=evaluated, masks=str(folder))).samples
        others[kind.name] = {sample.sample_id: sample for sample in masked if sample.condition == ORIGINAL}
    overlap_rows = overlaps(samples, others, spec.max_pixels)
    count = overlap_rows[overlap_rows["usable"]].groupby("kind").size()
    useless = [kind.name for kind in kinds if count.get(kind.name, 0) < LEAST]
    kinds = [kind for kind in kinds if kind.name not in useless]
    if not kinds:
        raise UserError(f"no kind of masks has {LEAST} that could be used: all are empty or cover the whole image")
    runs = {
        kind.name: _evaluated(options, replace(spec, data=evaluated), kind, models, conditions)
        for kind in (MaskKind(EXACT, EXACT), *kinds)
    }
    measures = measure_kinds(kinds, overlap_rows, runs, known=known)
    left_out = [f"{listing(absent)}: not installed, so left out."] if absent else []
    left_out += [f"{listing(useless)}: hardly a mask that could be used, so left out."] if useless else []
    return StudyResult(
        title="Masks",
        question=(
            "How much do scores and verdicts depend on the masks? The same images went through the same conditions "
            "with exact masks and with worse ones: eroded and dilated by a share of the object's size (√area), "
            "replaced by its box, cut out by GrabCut from that box (grabcut-box) or without help, and found by other "
            "mask makers. Differences are against exact masks, paired by image; intervals are at the 95 % level."
        ),
        findings=findings(measures, _pictures(samples, others, kinds, spec.max_pixels)),
        facts={"models": len(measures.models), "kinds of masks": len(kinds) + 1, "images": len(samples)},
        note=" ".join(part for part in (study.world_note(options), *left_out) if part),
        runs=[f"runs/{name}" for name in (EXACT, *(kind.folder for kind in kinds))],
    )


STUDY = Study(
    run,
    (
        *study.subject((EMBEDDED,), 240, quick=("embedded:resnet_rho0", "embedded:resnet_rho95_strong"),
                       quick_scenes=24, without=("generator", "oracle")),
        Setting("kinds", KINDS, "erode-SHARE and dilate-SHARE (of √area of the object), box, grabcut-box, mask makers",
                ("erode-0.1", "dilate-0.2", "box")),
        Setting("conditions", CONDITIONS, "what the images go through", (ORIGINAL, "segmented", RANDOM, SAME)),
        Setting("accuracy", "full", "right among all outputs of a model (full) or the dataset's classes (restricted)"),
    ),
)  # fmt: skip


def _check(options: StudyOptions) -> str:
    """Return the conditions as one text; raise UserError if a setting makes no sense."""
    settings = options.settings
    if settings["accuracy"] not in get_args(Outcome):
        raise UserError(f"accuracy must be {' or '.join(get_args(Outcome))}, not {settings['accuracy']!r}")
    text = ",".join(settings["conditions"])
    asked = {condition.name for condition in parse_conditions(text)}
    if missing := [name for name in (ORIGINAL, RANDOM, SAME) if name not in asked]:
        raise UserError(f"conditions lack {listing(missing)}: without them there is no background effect")
    return text


def _evaluated(
    options: StudyOptions, spec: DataSpec, kind: MaskKind, models: Sequence[str], conditions: str
) -> MaskRun:
    settings = options.settings
    common = options.run_options(kind.folder)
    common["progress"] = lambda stage, done, total: options.progress(f"{kind.name}: {stage}", done, total)
    results = api.evaluate(
        spec.data,
        models=models,
        scenarios=conditions,
        masks=spec.masks if kind.name == EXACT else str(options.out / "masks" / kind.folder),
        labels=settings["labels"] or None,
        limit=spec.limit,
        batch_size=64,
        **common,
    )
    return MaskRun(results, settings["accuracy"], options.seed)


def _pictures(
    samples: Sequence[Sample], others: Mapping[str, Mapping[str, Sample]], kinds: Sequence[MaskKind], max_pixels: int
) -> dict[str, Image]:
    """Return kind → the same few images under its masks."""
    firsts = list({sample.label: sample for sample in reversed(samples)}.values())  # one per class
    examples = list(masked(firsts[:: max(1, len(firsts) // SHOWN)][:SHOWN], max_pixels))
    if not examples:
        return {}
    shown = {"photos": sheet([(image, np.ones(image.shape[:2], np.bool_)) for _, image, _ in examples])}
    shown[EXACT] = sheet([(image, exact) for _, image, exact in examples])
    for kind in kinds:
        masks = [mask_of(others[kind.name].get(sample.sample_id), image) for sample, image, _ in examples]
        pairs: list[Any] = [
            (image, np.zeros(image.shape[:2], np.bool_) if mask is None else mask)
            for (_, image, _), mask in zip(examples, masks, strict=True)
        ]
        shown[kind.name] = sheet(pairs)
    return shown


def samples_of(spec: DataSpec) -> list[Sample]:
    """Return the original images that have an exact mask."""
    samples = [sample for sample in read(spec).samples if sample.mask is not None and sample.condition == ORIGINAL]
    if not samples:
        raise UserError(f"{spec.data} has no masks to compare others with; name a folder of them: --set masks=FOLDER")
    return samples


def write_masks(kind: MaskKind, samples: Sequence[Sample], spec: DataSpec, folder: Path, progress: Progress) -> None:
    """Write the masks of a kind, and the list by which readers find them, unless they are complete already."""
    if not kind.is_made_from_exact:
        api.mask(
            spec.data, out=folder, annotator=kind.name, masks=spec.masks, limit=spec.limit, seed=spec.seed,
            progress=progress,
        )  # fmt: skip
        return
    if (folder / "masks.csv").is_file():
        return
    rows = []
    for done, sample in enumerate(samples):
        progress(f"mask {kind.name}", done, len(samples))
        path = f"{file_name(sample)}.png"
        try:
            image = sample.image.load(max_pixels=spec.max_pixels)
            assert sample.mask is not None
            mask = degraded(kind, image, sample.mask.load(*image.shape[:2]))
        except SampleError:  # the run reports it
            continue
        write_atomic(folder / path, encode_mask(mask))
        rows.append([path, sample.sample_id, "ok"])
    table = pd.DataFrame(rows, columns=["path", "sample_id", "status"])
    write_atomic(folder / "masks.csv", table.to_csv(index=False, lineterminator="\r\n").encode())


def overlaps(samples: Sequence[Sample], others: Mapping[str, Mapping[str, Sample]], max_pixels: int) -> pd.DataFrame:
    """Compare each mask with the exact one: kind, source_id, iou, lost, added, usable.

    ``lost`` is the share of the object that the mask leaves out; ``added`` the background it takes in, as a share of
    the object's area; ``usable``: neither empty nor the whole image.
    ``others`` leads from kind to sample id to the same image with that kind's mask.
    """
    rows = []
    for sample, image, exact in masked(samples, max_pixels):
        for kind, masked_samples in others.items():
            mask = mask_of(masked_samples.get(sample.sample_id), image)
            if mask is None:
                mask = np.zeros_like(exact)
            both, area = int((mask & exact).sum()), max(int(exact.sum()), 1)
            rows.append(
                {"kind": kind, "source_id": sample.source_id, "iou": both / max(int((mask | exact).sum()), 1)}
                | {"lost": 1 - both / area, "added": (int(mask.sum()) - both) / area}
                | {"usable": bool(mask.any() and not mask.all())}
            )
    return pd.DataFrame(rows)


def masked(samples: Sequence[Sample], max_pixels: int) -> Iterator[tuple[Sample, Image, Mask]]:
    """Yield each sample with its image and its exact mask; those that cannot be read are left out."""
    for sample in samples:
        try:
            image = sample.image.load(max_pixels=max_pixels)
        except SampleError:
            continue
        exact = mask_of(sample, image)
        if exact is not None and exact.any():
            yield sample, image, exact


def mask_of(sample: Sample | None, image: Image) -> Mask | None:
    """Return the sample's mask for this image, or None if there is none that can be read."""
    if sample is None or sample.mask is None:
        return None
    try:
        return sample.mask.load(*image.shape[:2])
    except SampleError:
        return None


def sheet(pictures: Sequence[tuple[Image, Mask]], side: int = 120) -> Image:
    """Return images two by two, each cut to a square; the background of the mask is nearly white."""
    shown = []
    for image, mask in pictures:
        height, width = image.shape[:2]
        faded = np.where(mask[..., None], image, 255 - (255 - image.astype(np.uint16)) // 6).astype(np.uint8)
        least = min(height, width)
        top, left = (height - least) // 2, (width - least) // 2
        square = np.ascontiguousarray(faded[top : top + least, left : left + least])
        rough = cv2.INTER_AREA if least > side else cv2.INTER_NEAREST
        shown.append(np.asarray(cv2.resize(square, (side, side), interpolation=rough), np.uint8))
    shown += [np.full((side, side, 3), 255, np.uint8)] * (-len(shown) % 2)
    return np.concatenate([np.concatenate(shown[place : place + 2], axis=1) for place in range(0, len(shown), 2)])
