"""Images with generated backgrounds that are painted once per run and kept, so that networks can be trained on them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import fingerprint
from holdfast.core.types import DEFAULT_MAX_PIXELS, ORIGINAL, Collection, Image, Problem, Sample
from holdfast.data.images import FileImage
from holdfast.data.writers import encode_image
from holdfast.engine import core_count
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.generate.backgrounds import Painter, load_painter
from holdfast.pipeline.jobs.progress import Progress, Summary
from holdfast.pipeline.samples import hash_sample, render_conditions, stored_conditions
from holdfast.pipeline.small_copies import RECORDED, keep_thumbnail, painted_id
from holdfast.scenarios import Condition
from holdfast.store import read_json

AHEAD = 32  # images that are painted for before the first of them is written
FOLDER = "painted"  # of a run, with the images and what is known of each


@dataclass(frozen=True)
class Painted:
    """An image with generated surroundings, kept as PNG in the run: painting it again would cost too much."""

    file: Path
    identity: str

    @property
    def details(self) -> dict[str, Any]:
        """Return what is known of the image: prompt, generator and seed; nothing of one from an earlier version."""
        record = self.file.with_suffix(".json")
        return read_json(record) if record.is_file() else {}

    def fingerprint(self) -> str:
        """Return the hash of what it is made from."""
        return self.identity

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        """Return HWC uint8 RGB."""
        return FileImage(self.file).load(max_pixels=max_pixels)


def paint(
    samples: Sequence[Sample],  # images with masks
    painter: Painter,  # what paints, and whether it is used
    condition: Condition,  # ``generated_background`` with its parameters
    folder: Path,  # where images, and the verdicts of those that a stated filter left out, are kept
    *,
    images: Mapping[str, str],  # hashes of the images by ``sample_id``
    masks: Mapping[str, str],  # hashes of their masks
    seed: int,
    max_pixels: int,  # larger images are refused
    progress: Progress,
) -> tuple[dict[str, Painted], dict[str, str]]:
    """Return generated surroundings for images, painted once per run, and why others have none, by ``sample_id``."""
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
        files = {sample.sample_id: folder / f"{identities[sample.sample_id]}.png" for sample in part}
        missing = [
            sample
            for sample in part
            if not files[sample.sample_id].is_file() and not _rejection(files[sample.sample_id].with_suffix(".json"))
        ]
        painter.prepare([(sample, [condition]) for sample in missing], max_pixels)
        for place, sample in enumerate(part):
            progress("paint", start + place, len(samples))
            identity = identities[sample.sample_id]
            verdict = folder / f"{identity}.json"
            reason = _rejection(verdict)
            if sample in missing:
                (rendering,) = render_conditions(
                    sample, [condition], pool, seed=seed, max_pixels=max_pixels, painter=painter
                )
                if rendering.rendered is not None:
                    details = {name: rendering.rendered.details.get(name) for name in RECORDED}
                    write_atomic(verdict, json.dumps(details, ensure_ascii=False).encode())
                    write_atomic(folder / f"{identity}.png", encode_image(rendering.rendered.image))
                else:
                    reason = rendering.error
                    if rendering.status == "rejected":  # an error may be gone the next time
                        write_atomic(verdict, json.dumps({"rejected": reason}).encode())
            if reason:
                left_out[sample.sample_id] = reason
            else:
                painted[sample.sample_id] = Painted(folder / f"{identity}.png", identity)
    progress("paint", len(samples), len(samples))
    return painted, left_out


def _rejection(verdict: Path) -> str:
    """Return why an image was rejected, empty if no file says so."""
    return str(read_json(verdict).get("rejected", "")) if verdict.is_file() else ""


def with_generated(
    spec: Any,
    collection: Collection,
    conditions: Sequence[Condition],
    run: Path,
    *,
    summary: Summary,
    progress: Progress,
) -> tuple[Collection, dict[str, Any]]:
    """Return the collection with a painted copy of each image, stored in the run, and what to record of it.

    ``conditions``: of the command; nothing happens unless one of them paints and the collection holds no such images.
    Images that a filter turns down become problems.
    """
    stored = stored_conditions(collection.samples)
    painting = [each for each in conditions if each.definition.paints and each.scenario not in stored]
    painter = load_painter(spec, collection, painting)
    if painter is None:
        return collection, {}
    if len(painting) > 1:
        raise UserError(f"{painting[0].scenario} is asked for in {len(painting)} variants; train on one of them")
    (condition,) = painting
    photos = [sample for sample in collection.samples if sample.condition == ORIGINAL and sample.mask is not None]
    with ThreadPoolExecutor(core_count()) as threads:
        hashed = list(zip(photos, threads.map(hash_sample, photos), strict=True))
    photos = [photo for photo, (_, _, problem) in hashed if not problem]
    painter.unread(photos, summary)
    painted, left_out = paint(
        photos, painter, condition, (run / FOLDER).absolute(), seed=spec.seed, max_pixels=spec.max_pixels,
        images={photo.sample_id: image for photo, (image, _, _) in hashed},
        masks={photo.sample_id: mask for photo, (_, mask, _) in hashed}, progress=progress,
    )  # fmt: skip
    if not painted:
        why = "; ".join(f"{count} × {reason}" for reason, count in Counter(left_out.values()).most_common(3))
        raise UserError(f"no image has a generated background: {why or 'none has a mask'}")
    added = []
    for photo in photos:
        if (image := painted.get(photo.sample_id)) is not None:
            keep_thumbnail(run, photo, condition, image.load(max_pixels=spec.max_pixels), image.details)
            added.append(
                replace(photo, sample_id=painted_id(photo), image=image, condition=condition.scenario, attributes={})
            )
    problems = [Problem(name, f"{condition.scenario}: {reason}") for name, reason in left_out.items()]
    whole = replace(collection, samples=(*collection.samples, *added), problems=(*collection.problems, *problems))
    return whole, {"painter": painter.record()}
