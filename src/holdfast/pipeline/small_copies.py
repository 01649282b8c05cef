"""Small copies of painted images that a run keeps, and what each was painted from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import cv2

from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import fingerprint
from holdfast.core.types import Image, Sample
from holdfast.data.writers import encode_image
from holdfast.scenarios import Condition

THUMBNAIL = 160  # pixels of the longer side
RECORDED = ("prompt", "asked_background", "generator", "image_seed")  # what is kept of a painted image


def keep_thumbnail(
    run: Path, sample: Sample, condition: Condition, image: Image, details: Mapping[str, Any] | None = None
) -> None:
    """Write a small JPEG for the report, which should not have to load a generator, and what it was painted from."""
    path = thumbnail_path(run, sample.sample_id, condition)
    write_atomic(path, encode_image(small(image), format="jpeg", quality=80))
    known = {name: details.get(name) for name in RECORDED} if details else {}
    about = {"sample_id": sample.sample_id, "label": sample.label, "condition": condition.name} | known
    write_atomic(path.with_suffix(".json"), json.dumps(about, ensure_ascii=False).encode())


def painted_id(sample: Sample) -> str:
    """Return the file name of an image with a generated background."""
    return f"{sample.sample_id}#generated_background"


def thumbnail_path(run: Path, sample_id: str, condition: Condition) -> Path:
    """Return the file of the small image of a condition that paints."""
    name = fingerprint([sample_id, condition.name, condition.parameters_json])[:32]
    return run / "generated" / f"{name}.jpg"


def small(image: Image, size: int = THUMBNAIL) -> Image:
    """Return an RGB image whose longer side has at most so many pixels."""
    scale = size / max(image.shape[:2])
    if scale >= 1:
        return image
    shape = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    return cast(Image, cv2.resize(image, shape, interpolation=cv2.INTER_AREA))
