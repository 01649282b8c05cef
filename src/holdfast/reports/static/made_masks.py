"""The section on automatic masks: those to look at first."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from holdfast.core.types import ORIGINAL
from holdfast.data.reading import DOUBTFUL, made_masks
from holdfast.reports.page.parts import Gallery, Notice, Photo, RunPictures, Section, pictures_of, tile
from holdfast.reports.page.sections import ReportSection
from holdfast.reports.page.words import plural
from holdfast.store import Run

SHOWN = 8
OUTLINE = (255, 214, 0)
MEASURED = (
    "On 120 images with exact masks, masks of u2netp overlap the exact ones by 0.76 on average (intersection over "
    "union), one in ten by less than 0.5, and the confidence shows few of these: look at the outlines yourself."
)


def least_sure(runs: Sequence[Run], pictures: RunPictures | None) -> list[Section]:
    """Return the automatic masks with the lowest confidence, outlined on their images; nothing without such masks."""
    folders = dict.fromkeys(str(run.spec().get("masks") or "") for run in runs)
    rows = sorted(
        (row["confidence"], row["sample_id"], Path(folder) / row["path"])
        for folder in folders if folder for row in made_masks(Path(folder))
    )  # fmt: skip
    asked = {name for run in runs for name in run.samples()["sample_id"].to_pylist()}
    rows = [row for row in rows if row[1] in asked]
    if not rows:
        return []
    doubtful = sum(confidence < DOUBTFUL for confidence, _, _ in rows)
    lead = f"{plural(len(rows), 'mask')} made automatically, {doubtful} of them doubtful (confidence below {DOUBTFUL})."
    images = pictures_of(pictures, runs, {name for _, name, _ in rows[:SHOWN]}, only=[ORIGINAL])
    tiles = [
        tile(f"{name}, confidence {confidence:.2f}", outlined(images.get((name, ORIGINAL), b""), file), [])
        for confidence, name, file in rows[:SHOWN]
    ]
    parts: list[Any] = [Gallery([Photo("", "", "", tiles)])]
    if not images:
        parts = [Notice("The images: the dataset is not at hand.")]
    return [Section("masks", "The least sure masks", lead=[f"{lead} {MEASURED}"], parts=parts)]


def outlined(jpeg: bytes, mask: Path) -> bytes:
    """Return a JPEG with the outline of a mask; as it is if either cannot be read."""
    try:
        with PillowImage.open(io.BytesIO(jpeg), formats=["JPEG"]) as opened:
            image = np.array(opened.convert("RGB"))
        with PillowImage.open(mask, formats=["PNG"]) as opened:
            small = opened.convert("L").resize((image.shape[1], image.shape[0]), PillowImage.Resampling.BILINEAR)
    except (OSError, ValueError):
        return jpeg
    inside = np.pad(np.asarray(small) > 127, 1, mode="edge")
    inner = inside[:-2, 1:-1] & inside[2:, 1:-1] & inside[1:-1, :-2] & inside[1:-1, 2:]
    image[inside[1:-1, 1:-1] & ~inner] = OUTLINE
    file = io.BytesIO()
    PillowImage.fromarray(image).save(file, "JPEG", quality=85)
    return file.getvalue()


MASKS = ReportSection(lambda report: least_sure(report.runs, report.pictures), lambda report: report.is_static)
