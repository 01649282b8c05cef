"""Read, filter and hash samples, and render them under conditions."""

from __future__ import annotations

import json
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from holdfast.core.errors import RejectedError, SampleError, UserError
from holdfast.core.fingerprint import canonical_json, fingerprint, generator
from holdfast.core.names import condition_name
from holdfast.core.places import address
from holdfast.core.schema import SAMPLES
from holdfast.core.types import ORIGINAL, Collection, Image, Rendered, Sample
from holdfast.data import load_collection
from holdfast.data.collection import box_data, with_attributes
from holdfast.data.findings import Survey, short_digest, two_classes
from holdfast.data.inventory import Inventory, take_inventory
from holdfast.data.labels import asks_for_nine, read_label_file, unmatched_rows
from holdfast.data.native import NativeImage
from holdfast.data.nine_classes import in_nine_classes
from holdfast.data.reading import collection_name
from holdfast.engine import ahead, core_count
from holdfast.pipeline.donors import DonorPool, SampleContext, load_sample, make_pool
from holdfast.pipeline.generate.tools import load_tools
from holdfast.pipeline.jobs.progress import Progress, Summary, environment, silent, with_progress
from holdfast.pipeline.metadata import find_ties
from holdfast.pipeline.specs import DataSpec as DataSpec
from holdfast.pipeline.specs import InventorySpec
from holdfast.pipeline.specs import PaintSpec as PaintSpec
from holdfast.scenarios import PAPER, Condition, Scenario, render
from holdfast.scenarios.base.rendering import mask_missing
from holdfast.store import Run

if TYPE_CHECKING:
    from holdfast.pipeline.generate.backgrounds import Painter

_STORE_THREADS = 32
_AHEAD = 128  # groups of samples that are hashed before they are asked for
_TABLE_ROWS = 20_000  # rows that are held as Python objects at a time


@dataclass(frozen=True)
class Prepared:
    """A collection with the hashes of its images and masks, and the pool of donors."""

    collection: Collection
    images: Mapping[str, str]
    masks: Mapping[str, str]
    problems: dict[str, str]
    pool: DonorPool
    pool_fingerprint: str

    def lent(self, definition: Scenario) -> str:
        """Return the hash of what a scenario takes apart from the image: donors, and networks that the user gave."""
        donors = self.pool_fingerprint if definition.donor else ""
        tools = self.pool.tools.identity(definition) if self.pool.tools else ""
        return fingerprint([donors, tools]) if tools else donors

    def for_workers(self) -> Prepared:
        """Return what rendering needs, without what grows with the dataset: a shard brings its own samples."""
        collection = replace(self.collection, samples=(), problems=())
        return Prepared(collection, {}, {}, {}, self.pool, self.pool_fingerprint)


def read(spec: DataSpec) -> Collection:
    """Read the collection and keep the wanted split."""
    collection = in_nine_classes(load_collection(_with_boxes(spec), masks=spec.masks), getattr(spec, "labels", None))
    folder = getattr(spec, "images", None) or spec.data
    if getattr(spec, "boxes", None) and Path(folder).is_dir():  # named after the images, not after the list of boxes
        collection = replace(collection, name=collection_name(Path(folder)))
    if getattr(spec, "attributes", None):
        collection = with_attributes(collection, spec.attributes)  # type: ignore[attr-defined]
    samples = [s for s in collection.samples if not spec.split or s.split == spec.split]
    if not samples:
        splits = sorted({s.split for s in collection.samples if s.split})
        known = f"its splits are {', '.join(splits)}" if splits else "it has no splits"
        raise UserError(f"{spec.data} has no images in split {spec.split!r}; {known}")
    empty = [s for s in collection.empty if not spec.split or s.split == spec.split]
    empty = empty[: -(-spec.limit * len(empty) // len(samples))] if spec.limit else empty
    samples = evenly(samples, spec.limit) if spec.limit else samples
    if getattr(spec, "depth", "8") == "native":
        samples = [replace(sample, image=NativeImage(sample.image)) for sample in samples]
    return replace(collection, samples=tuple(samples), empty=tuple(empty))


def _with_boxes(spec: DataSpec) -> str:
    """Return the name of the data with the options ``--boxes`` and ``--images``, if the verb has them."""
    boxes, images = getattr(spec, "boxes", None), getattr(spec, "images", None)
    if boxes is None and images is None:
        return spec.data
    if boxes is not None:
        return box_data(boxes, images or spec.data)
    if "images=" in spec.data:
        raise UserError(f"{spec.data} names the folder of its images; leave --images out")
    return f"{spec.data}{'&' if '?' in spec.data else '?'}images={quote(str(images), safe='/')}"


def inventory(spec: InventorySpec, progress: Progress = silent) -> Inventory:
    """Return what a dataset holds and what is wrong with it; every image and mask is read once."""
    collection = read(DataSpec(spec.data, masks=spec.masks, split=spec.split, limit=spec.limit))
    if asks_for_nine(spec.labels):
        collection, rows = in_nine_classes(collection, spec.labels), []
    else:
        rows = unmatched_rows(read_label_file(spec.labels), collection.classes) if spec.labels else []
    if spec.attributes:
        collection = with_attributes(collection, spec.attributes)
    held = take_inventory(collection, label_rows=rows, max_pixels=spec.max_pixels, progress=progress)
    if not spec.ties:
        return held
    return replace(held, findings=(*held.findings, *find_ties(collection, spec.max_pixels, progress)))


def prepare(spec: DataSpec, collection: Collection, progress: Progress) -> Prepared:
    """Hash every image and mask, which finds unreadable files early, and make the pool of donors."""
    samples = collection.samples
    pool = make_pool(samples, spec.backgrounds, max_pixels=spec.max_pixels)
    pool.tools = load_tools(spec)
    lent = pool.samples if spec.backgrounds else []
    places = _places(samples)
    images, masks = Hashes(_places(chain(samples, lent)) if lent else places), Hashes(places)
    problems: dict[str, str] = {}
    # A store takes longer to begin an answer than to send it; a disk does not.
    remote = any(address(getattr(sample.image, "path", "")) for sample in islice(chain(samples, lent), 1))
    with (
        ThreadPoolExecutor(_STORE_THREADS if remote else 2 * core_count()) as threads,
        closing(_hashed(threads, chain(samples, lent), together=1 if remote else 16)) as hashed,
    ):
        shown = with_progress(hashed, progress, "hash", len(samples) + len(lent))
        for done, (sample, (image, mask, problem)) in enumerate(shown, start=1):
            images.put(sample.sample_id, image)
            if done <= len(samples):
                masks.put(sample.sample_id, mask)
                if problem:
                    problems[sample.sample_id] = problem
    return Prepared(collection, images, masks, problems, pool, pool.fingerprint(images, masks))


def _hashed(
    threads: ThreadPoolExecutor, samples: Iterable[Sample], *, together: int
) -> Generator[tuple[Sample, tuple[str, str, str]], None, None]:
    """Yield each sample with its hashes; ``together``: how many a thread hashes at a time."""
    rest = iter(samples)
    groups = iter(lambda: list(islice(rest, together)), [])
    for hashed in ahead(threads, lambda group: [(sample, hash_sample(sample)) for sample in group], groups, _AHEAD):
        yield from hashed


def _places(samples: Iterable[Sample]) -> dict[str, int]:
    return {name: place for place, name in enumerate(dict.fromkeys(sample.sample_id for sample in samples))}


_NO_HASH = bytes(32)


class Hashes(Mapping[str, str]):
    """Maps names to SHA-256 in hex, held in 32 bytes each; other strings are held as they are."""

    # ``places``: name → number, which several mappings may share. A name without a hash maps to an empty string.

    def __init__(self, places: Mapping[str, int]) -> None:
        self._places, self._digests = places, bytearray(32 * len(places))
        self._others: dict[int, str] = {}

    def put(self, name: str, value: str) -> None:
        """Set the hash of one of the names."""
        place = self._places[name]
        try:
            digest = bytes.fromhex(value)
        except ValueError:
            digest = b""
        self._others.pop(place, None)
        whole = len(digest) == 32 and digest != _NO_HASH and digest.hex() == value
        self._digests[32 * place : 32 * place + 32] = digest if whole else _NO_HASH
        if value and not whole:
            self._others[place] = value

    def __getitem__(self, name: str) -> str:
        place = self._places[name]
        digest = self._digests[32 * place : 32 * place + 32]
        return self._others.get(place, "") if digest == _NO_HASH else digest.hex()

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def hash_sample(sample: Sample) -> tuple[str, str, str]:
    """Return the hashes of image and mask, and why one of them cannot be read, or ''."""
    try:
        image = sample.image.fingerprint()
    except SampleError as error:
        return "", "", str(error)
    try:
        return image, sample.mask.fingerprint() if sample.mask else "", ""
    except SampleError as error:
        return image, "", str(error)


def evenly(samples: Sequence[Sample], limit: int) -> list[Sample]:
    """Return the samples of ``limit`` sources, the first of each class in turn; renderings stay with their source."""
    sources: dict[str, list[str]] = {}
    for sample in samples:
        ids = sources.setdefault(sample.label, [])
        if sample.source_id not in ids[-1:]:
            ids.append(sample.source_id)
    turns = [(turn, label, source) for label, ids in sources.items() for turn, source in enumerate(dict.fromkeys(ids))]
    kept = {source for _, _, source in sorted(turns)[:limit]}
    return [sample for sample in samples if sample.source_id in kept]


def samples_table(prepared: Prepared) -> pa.Table:
    """Return the samples with their fingerprints, and what the reader could not use."""
    return sample_batches(prepared).read_all().unify_dictionaries()


def sample_batches(prepared: Prepared) -> pa.RecordBatchReader:
    """Return the same in batches: rows as Python objects take ten times the memory of a table."""
    samples = prepared.collection.samples
    own = ("sample_id", "source_id", "label", "split", "fold", "kind", "condition", "licence")
    readable = (
        {name: getattr(s, name) for name in own}
        | {
            "image_fingerprint": prepared.images[s.sample_id],
            "mask_fingerprint": prepared.masks[s.sample_id],
            "problem": prepared.problems.get(s.sample_id, ""),
            "attributes": canonical_json(dict(s.attributes)),
        }
        for s in samples
    )
    unread = ({"sample_id": p.sample_id, "problem": p.message} for p in prepared.collection.problems)
    rows = chain(readable, unread)
    parts = iter(lambda: list(islice(rows, _TABLE_ROWS)), [])
    batches = (pa.RecordBatch.from_pylist(part, schema=SAMPLES) for part in parts)
    return pa.RecordBatchReader.from_batches(SAMPLES, batches)


def recorded_spec(spec: DataSpec, verb: str, collection: Collection, **facts: Any) -> dict[str, Any]:
    """Return what ``spec.json`` says about a command; ``facts``: entries apart from the options, or instead of them."""
    about = {"verb": verb, "dataset": collection.name, "classes": collection.classes}
    recorded: dict[str, Any] = json.loads(json.dumps(asdict(spec) | about | facts))  # as it will be read again
    return recorded


def begin_run(
    run: Run, recorded: Mapping[str, Any], prepared: Prepared, summary: Summary, *, same: tuple[str, ...]
) -> None:
    """Record the command, the machine and the samples; count what the reader could not use as trouble."""
    run.begin(recorded, same=same)
    run.write_environment(environment())
    run.write_samples(sample_batches(prepared))
    summary.add_problems(prepared.collection.problems)
    survey = Survey(prepared.collection)  # of equal files, from hashes that are known already
    for sample in prepared.collection.samples:
        digest = prepared.images[sample.sample_id]
        survey.digests += short_digest(digest.encode()) if digest else bytes(16)
    if names := list(two_classes(survey.same_bytes())):
        text = f"the same image is under two classes {len(names)} time(s), first {names[0]}"
        summary.notes.append(f"{text}; holdfast data check lists them all")


def stored_conditions(samples: Sequence[Sample]) -> set[str]:
    """Return the conditions that a collection holds as images."""
    return {sample.condition for sample in samples} - {ORIGINAL}


def applicable(sample: Sample, conditions: Sequence[Condition], stored: Container[str]) -> list[Condition]:
    """Return the conditions to make from a sample."""
    # An image that is a rendering already (a scenario folder, a generated image) is taken as it is where its condition
    # or the original is wanted; ``fog@3`` means that severity of a stored fog, ``fog`` all of them. Conditions that the
    # collection holds as images (``stored``) are not made a second time from its originals.
    if sample.condition == ORIGINAL:
        return [condition for condition in conditions if condition.scenario not in stored]
    variant = sample.attributes.get("variant")  # None if the folder does not say: any variant will do
    for condition in conditions:
        same = condition.scenario == sample.condition and (variant is None or condition.variant in (PAPER, variant))
        if same or condition.scenario == ORIGINAL:
            return [Condition(ORIGINAL)]
    return []


def check_applicable(samples: Sequence[Sample], conditions: Sequence[Condition]) -> None:
    """Raise a UserError if none of the images has, or can be given, any of the conditions."""
    stored = stored_conditions(samples)
    if any(applicable(sample, conditions, stored) for sample in samples):
        return
    held = dict.fromkeys((sample.condition, stored_variant(sample)) for sample in samples)
    names = [condition_name(scenario, variant) for scenario, variant in held]
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    asked = ", ".join(condition.name for condition in conditions[:6])
    raise UserError(
        f"these images are renderings already, none of them under {asked}; they are {', '.join(names[:6])}{more}, and "
        "--scenarios original takes them as they are"
    )


def stored_variant(sample: Sample) -> str:
    """Return the variant that a rendering's reader gives it; ``as_stored`` for the paper's or an unknown one."""
    variant = str(sample.attributes.get("variant", PAPER))
    return "as_stored" if variant == PAPER else variant


@dataclass(frozen=True)
class Rendering:
    """One condition of one sample: the image, or why there is none."""

    condition: Condition
    rendered: Rendered | None
    # the column ``status``: ok, error, skipped (there is no mask), rejected (left out by a stated filter), or pending
    # (people have to say whether it is used)
    status: str = "ok"
    error: str = ""
    moved: bool = False  # whether the foreground is elsewhere than in the source
    details: Mapping[str, Any] = field(default_factory=dict)  # of a rejected image


def render_conditions(
    sample: Sample,
    conditions: Sequence[Condition],
    pool: DonorPool,
    *,
    seed: int,
    max_pixels: int,
    painter: Painter | None = None,
) -> Iterator[Rendering]:
    """Decode a sample once, then yield one rendering per condition; conditions that paint need the painter."""
    try:
        borrows = any(condition.definition.donor for condition in conditions)
        image, mask, no_mask = pool.load(sample) if borrows else load_sample(sample, max_pixels)
    except SampleError as error:
        yield from (Rendering(condition, None, "error", str(error)) for condition in conditions)
        return
    context = SampleContext(sample, pool, seed, painter.paint if painter else None)
    for condition in conditions:
        if mask is None and condition.definition.needs_mask:
            reason = no_mask or mask_missing(condition.scenario)
            yield Rendering(condition, None, "error" if no_mask else "skipped", reason)
            continue
        rng = generator(seed, sample.sample_id, condition.scenario, condition.variant, condition.parameters_json)
        reason = doubt = ""
        try:
            rendered = render(condition, image, mask, rng=rng, context=context)
            if painter is not None and condition.definition.paints:
                rendered, reason = painter.judge(rendered, sample)
                doubt = painter.doubt(rendered.details, reason)
        except SampleError as error:
            yield Rendering(condition, None, "rejected" if isinstance(error, RejectedError) else "error", str(error))
            continue
        if reason and not doubt:
            yield Rendering(condition, None, "rejected", reason, details=rendered.details)
        else:
            yield Rendering(condition, rendered, "pending" if doubt else "ok", doubt, rendered.mask is not mask)


def over_matte(image: Image, matte: tuple[int, int, int], sample: Sample | None = None) -> Image:
    """Return an RGBA image over a flat colour, an RGB image as it is, and a native one of a sample as 8-bit RGB."""
    if sample is not None and isinstance(sample.image, NativeImage):
        return sample.image.for_models(image)
    if image.shape[2] == 3:
        return image
    alpha = image[..., 3:].astype(np.uint16)
    blended = (image[..., :3] * alpha + np.array(matte, np.uint16) * (255 - alpha) + 127) // 255
    return blended.astype(np.uint8)
