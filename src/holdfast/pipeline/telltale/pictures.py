"""The three kinds of picture of one photo, as images of a collection that are made when they are looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import SampleError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import fingerprint
from holdfast.core.types import DEFAULT_MAX_PIXELS, Image, Sample
from holdfast.data.images import FileImage
from holdfast.data.writers import encode_image
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.generate.backgrounds import Painter
from holdfast.pipeline.jobs.progress import Progress
from holdfast.pipeline.samples import render_conditions
from holdfast.scenarios import Condition

AHEAD = 32
"""Photos that are painted for before the first of them is written."""


@dataclass(frozen=True)
class Pasted:
    """A photo's object before a borrowed background, rendered when it is loaded.

    Attributes:
        sample: the photo.
        condition: which background is borrowed.
        pool: who lends; the photo's own fold, so that no photo is on both sides of a split.
        seed: of the rendering.
        identity: hash of everything the picture depends on.
        details: who lent the background, known once the picture was loaded.
    """

    sample: Sample
    condition: Condition
    pool: DonorPool
    seed: int
    identity: str
    details: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def fingerprint(self) -> str:
        """Of what it is made from."""
        return self.identity

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        """HWC uint8 RGB; SampleError where it cannot be made."""
        (rendering,) = render_conditions(
            self.sample, [self.condition], self.pool, seed=self.seed, max_pixels=max_pixels
        )
        if rendering.rendered is None:
            raise SampleError(rendering.error)
        self.details.update(rendering.rendered.details)
        return rendering.rendered.image


@dataclass(frozen=True)
class Painted:
    """A photo with generated surroundings, kept as PNG in the run: painting it again would cost too much."""

    file: Path
    identity: str

    def fingerprint(self) -> str:
        """Of what it is made from."""
        return self.identity

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        """HWC uint8 RGB."""
        return FileImage(self.file).load(max_pixels=max_pixels)


def paint(
    samples: Sequence[Sample],
    painter: Painter,
    condition: Condition,
    folder: Path,
    *,
    images: Mapping[str, str],
    masks: Mapping[str, str],
    seed: int,
    max_pixels: int,
    progress: Progress,
) -> tuple[dict[str, Painted], dict[str, str]]:
    """Return generated surroundings for photos, painted once per run, and why others have none, by ``sample_id``.

    Args:
        samples: photos with masks.
        painter: what paints, and whether it is used.
        condition: ``generated_background`` with its parameters.
        folder: where pictures, and the verdicts of those that a stated filter left out, are kept.
        images: hashes of the photos by ``sample_id``.
        masks: hashes of their masks.
        seed: of everything random.
        max_pixels: larger photos are refused.
        progress: told how far it is.
    """
    painted: dict[str, Painted] = {}
    left_out: dict[str, str] = {}
    pool = DonorPool([], max_pixels=max_pixels)
    identities = {
        sample.sample_id: fingerprint(
            [images[sample.sample_id], masks[sample.sample_id], condition.parameters_json, painter.identity(sample)]
        )
        for sample in samples
    }
    for start in range(0, len(samples), AHEAD):
        part = samples[start : start + AHEAD]
        missing = [sample for sample in part if not _known(folder, identities[sample.sample_id])]
        painter.prepare([(sample, [condition]) for sample in missing], max_pixels)
        for place, sample in enumerate(part):
            progress("paint", start + place, len(samples))
            identity = identities[sample.sample_id]
            reason = _reason(folder, identity)
            if sample in missing:
                (rendering,) = render_conditions(
                    sample, [condition], pool, seed=seed, max_pixels=max_pixels, painter=painter
                )
                if rendering.rendered is not None:
                    write_atomic(folder / f"{identity}.png", encode_image(rendering.rendered.image))
                else:
                    reason = rendering.error
                    if rendering.rejected:  # an error may be gone the next time
                        write_atomic(folder / f"{identity}.json", json.dumps({"rejected": reason}).encode())
            if reason:
                left_out[sample.sample_id] = reason
            else:
                painted[sample.sample_id] = Painted(folder / f"{identity}.png", identity)
    progress("paint", len(samples), len(samples))
    return painted, left_out


def _known(folder: Path, identity: str) -> bool:
    return (folder / f"{identity}.png").is_file() or (folder / f"{identity}.json").is_file()


def _reason(folder: Path, identity: str) -> str:
    file = folder / f"{identity}.json"
    return str(json.loads(file.read_text(encoding="utf8"))["rejected"]) if file.is_file() else ""
