"""``holdfast study telltale``: can a network distinguish original, generated and random backgrounds?

Every source image gives one image of each kind, so that neither the objects nor their number give a kind away, and all
renderings of an image, and the images that lend it a background, are on one side of a split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.types import DEFAULT_MAX_PIXELS, ORIGINAL, Collection, Image, ImageSource, Problem, Sample
from holdfast.data import load_collection
from holdfast.engine import core_count
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.generate.backgrounds import load_painter
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.painted import FOLDER, paint
from holdfast.pipeline.samples import hash_sample, read, render_conditions
from holdfast.pipeline.specs import TelltaleSpec as TelltaleSpec
from holdfast.pipeline.train import architectures
from holdfast.pipeline.train.plan import check, with_folds
from holdfast.pipeline.train.train import TrainingKind, TrainingWorker, train
from holdfast.scenarios import Condition, parse_conditions
from holdfast.stats.trained import CONTROL, GENERATED, KINDS, PASTED
from holdfast.store import Run


@dataclass(frozen=True)
class Pasted:
    """An image's object before a borrowed background, rendered when it is loaded."""

    sample: Sample
    condition: Condition  # which background is borrowed
    pool: DonorPool  # who lends; of the image's own fold, so that none is on both sides of a split
    seed: int
    identity: str  # hash of everything the image depends on
    # who lent the background, known once the image was loaded
    details: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def fingerprint(self) -> str:
        """Return the hash of what it is made from."""
        return self.identity

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        """Return HWC uint8 RGB; raise a SampleError if it cannot be made."""
        (rendering,) = render_conditions(
            self.sample, [self.condition], self.pool, seed=self.seed, max_pixels=max_pixels
        )
        if rendering.rendered is None:
            raise SampleError(rendering.error)
        self.details.update(rendering.rendered.details)
        return rendering.rendered.image


LEFT_OUT = "left out of all three kinds"


def telltale(spec: TelltaleSpec, out: Path, *, progress: Progress = silent) -> tuple[Run, Summary]:
    """Make the three kinds, train on them and test; rows whose label is the kind of the image."""
    if bool(spec.generator) == bool(spec.generated):
        which = "one of them, not both" if spec.generator else "one of them"
        raise UserError(
            "generated backgrounds are painted by --generator (holdfast ls image-makers) or are in --generated, a "
            f"folder that holdfast synth wrote: name {which}"
        )
    if spec.backgrounds:
        raise UserError(
            "telltale borrows backgrounds within each fold, so that no image is on both sides: no --backgrounds"
        )
    if spec.workers != 1:
        raise UserError("telltale must run in one process, because a generator is loaded once: leave --engine out")
    check(spec)
    for name in spec.architectures:  # what cannot be built is known before anything is painted
        size = spec.settled().size
        network = architectures.resolve(name, size=size, pretrained=spec.pretrained)
        architectures.build(network, len(KINDS), size, seed=spec.seed)
    kind = TrainingKind(
        "detect",
        architectures.resolve,
        architectures.build,
        TrainingWorker,
        partial(_read, out=out, progress=progress),
        paints=False,
    )
    return train(spec, out, progress=progress, kind=kind)


def _read(spec: TelltaleSpec, *, out: Path, progress: Progress) -> Collection:
    """Return the three kinds of every image that has all of them, with its fold, and the control."""
    collection = read(spec)
    photos = [sample for sample in collection.samples if sample.condition == ORIGINAL and sample.mask is not None]
    if not photos:
        raise UserError(
            f"random and generated backgrounds need masks, and none of the {len(collection)} images has one; --masks "
            "FOLDER names them, holdfast mask makes some"
        )
    with ThreadPoolExecutor(core_count()) as threads:
        hashed = list(zip(photos, threads.map(hash_sample, photos), strict=True))
    photos = [photo for photo, (_, _, problem) in hashed if not problem]  # others cannot be read
    images = {photo.sample_id: image for photo, (image, _, _) in hashed}
    masks = {photo.sample_id: mask for photo, (_, mask, _) in hashed}
    if spec.generated:
        generated, left_out = _given(spec.generated, photos)
    else:
        (condition,) = parse_conditions(GENERATED, feather=spec.feather)
        painter = load_painter(spec, collection, [condition])
        assert painter is not None, "the condition paints"
        painted, left_out = paint(
            photos, painter, condition, out / FOLDER, images=images, masks=masks, seed=spec.seed,
            max_pixels=spec.max_pixels, progress=progress,
        )  # fmt: skip
        generated = dict(painted)
    kept = [photo for photo in photos if photo.sample_id in generated]
    if not kept:
        why = "; ".join(f"{count} × {reason}" for reason, count in Counter(left_out.values()).most_common(3))
        raise UserError(f"no image has a generated background: {why}")
    problems = [Problem(name, f"{LEFT_OUT}: {reason}") for name, reason in left_out.items()]
    folded = with_folds(replace(collection, samples=tuple(kept)), spec)
    samples = _kinds(spec, folded.samples, generated, images, masks)
    return Collection(
        f"{collection.name} (three kinds)", KINDS, tuple(samples), problems=(*collection.problems, *problems)
    )


def _given(data: str, photos: Sequence[Sample]) -> tuple[dict[str, ImageSource], dict[str, str]]:
    """Return the generated images of a collection, by their source image."""
    generated = [sample for sample in load_collection(data).samples if sample.condition == GENERATED]
    if not generated:
        raise UserError(
            f"--generated {data} has no image that shows {GENERATED}; holdfast synth --scenarios writes some"
        )
    by_source = {sample.source_id: sample.image for sample in generated}
    pictures = {photo.sample_id: by_source[photo.source_id] for photo in photos if photo.source_id in by_source}
    if not pictures:
        raise UserError(f"--generated {data} shows none of these images: make it from the same DATA")
    missing = [photo.sample_id for photo in photos if photo.sample_id not in pictures]
    return pictures, dict.fromkeys(missing, "--generated has no image of it")


def _kinds(
    spec: TelltaleSpec,
    photos: Sequence[Sample],
    generated: Mapping[str, ImageSource],
    images: Mapping[str, str],
    masks: Mapping[str, str],
) -> list[Sample]:
    """Return each image in all three kinds, and the control: a background of the same class."""
    pools = {
        fold: DonorPool([photo for photo in photos if photo.fold == fold], max_pixels=spec.max_pixels)
        for fold in {photo.fold for photo in photos}
    }
    lenders = {fold: pool.fingerprint(images, masks) for fold, pool in pools.items()}
    pasted, control = (parse_conditions(name, feather=spec.feather)[0] for name in (PASTED, CONTROL))

    def paste(photo: Sample, condition: Condition) -> Pasted:
        about = [images[photo.sample_id], masks[photo.sample_id], photo.label, spec.seed, lenders[photo.fold]]
        identity = fingerprint([*about, condition.name, condition.parameters_json])
        return Pasted(photo, condition, pools[photo.fold], spec.seed, identity)

    samples = []
    for photo in photos:
        pictures: list[tuple[str, str, ImageSource]] = [
            (ORIGINAL, ORIGINAL, photo.image),
            (GENERATED, ORIGINAL, generated[photo.sample_id]),
            (PASTED, ORIGINAL, paste(photo, pasted)),
            (PASTED, CONTROL, paste(photo, control)),
        ]
        for label, shown, image in pictures:
            name = f"{photo.sample_id}#{label if shown == ORIGINAL else shown}"
            own: dict[str, Any] = {key: getattr(photo, key) for key in ("source_id", "split", "fold", "licence")}
            samples.append(Sample(name, label, image, condition=shown, attributes={"object": photo.label}, **own))
    return samples
