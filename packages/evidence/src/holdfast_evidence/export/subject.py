"""What is exported: a run with its table, or a dataset; its images, and texts that are safe to publish."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import json_object
from holdfast.core.places import place
from holdfast.core.schema import DETECT, PREDICTIONS
from holdfast.core.types import DEFAULT_MAX_PIXELS, Collection, Sample
from holdfast.data import load_collection
from holdfast.data.images import open_header
from holdfast.data.native import is_native_only
from holdfast.data.writers import encode_image, encode_mask
from holdfast.engine import core_count
from holdfast.pipeline.evaluate.matching import as_detectors_see
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.samples import read
from holdfast.pipeline.specs import EvaluateSpec
from holdfast.reports.page.writer import templates
from holdfast.store import Run, read_json
from holdfast.store.foreign import is_steering
from holdfast_evidence.export.private import Clean, cleaner, texts_in

TEMPLATES = Path(__file__).parent / "templates"  # texts that are written next to the data
_DATA_VERBS = ("synth", "generate")  # they leave a spec.json, too, and what they make are images
_CLEANED = ("dataset", "sample_id", "source_id", "donor_id", "parameters", "model", "oracle", "error")
_AT_ONCE = 64
_ENDINGS = {"JPEG": ".jpg", "PNG": ".png"}

# A file travels as it is stored if nothing is in it but the image: no camera, place, author or comment.
_HARMLESS = frozenset(
    {"jfif", "jfif_version", "jfif_density", "jfif_unit", "dpi", "progressive", "progression", "adobe",
     "adobe_transform", "icc_profile", "gamma", "srgb", "interlace", "chromaticity", "aspect"}
)  # fmt: skip


@dataclass(frozen=True)
class ExportSubject:
    """What is exported."""

    name: str  # of the run's folder, or of the dataset
    dataset: str  # its name
    classes: tuple[str, ...]  # in the dataset's order
    rows: pa.Table | None  # the one table, without paths of this machine; none of a dataset
    samples: tuple[Sample, ...]  # whose images go along
    licences: dict[str, int]  # as the samples state them, with how many do; "" if they state none
    run: Run | None = None  # the run, if it is one
    holdfast: str = ""  # the version that made the run
    created: str = ""  # when the run was made, as it says itself
    max_pixels: int = DEFAULT_MAX_PIXELS  # larger images are left out


@dataclass(frozen=True)
class ExportedPicture:
    """One sample's image as a file's bytes, and its mask as an 8-bit PNG of 0 and 255 (empty without a mask)."""

    sample: Sample
    image: bytes
    suffix: str
    mask: bytes
    height: int
    width: int


def is_run(given: str | Path) -> bool:
    """Return whether a folder is a run, and not images that a verb made."""
    path = place(given) / "spec.json"
    return path.is_file() and json_object(path).get("verb") not in _DATA_VERBS


def open_subject(
    given: str | Path, *, data: str = "", masks: str = "", images: bool = True, progress: Progress = silent
) -> ExportSubject:
    """Open a run or a dataset for export; a UserError if the run's images are gone or have changed.

    ``data``: where they are now; ``masks``: a folder of masks that bear the samples' names.
    """
    if is_run(given):
        return _of_run(Run.open(given), data=data, masks=masks, images=images, progress=progress)
    if data:
        raise UserError(f"--data says where the images of a run are now, and {given} is not a run")
    if not images:
        raise UserError(f"{given} is not a run, so without its images there is nothing to export")
    collection = load_collection(str(given), masks=masks or None)
    samples = collection.samples
    clean = cleaner([], _folders([sample.sample_id for sample in samples]))
    samples = tuple(_renamed(sample, clean) for sample in samples)
    licences = dict(Counter(plain(sample.licence) for sample in samples))
    name = plain(collection.name)
    return ExportSubject(name, name, _distinct(collection.classes), None, samples, licences)


def pictures(subject: ExportSubject, left_out: list[str], progress: Progress = silent) -> Iterator[ExportedPicture]:
    """Yield the images in order, with few in memory; unreadable ones are named in ``left_out``."""
    samples = subject.samples
    with ThreadPoolExecutor(core_count()) as threads:
        progress("images", 0, len(samples))
        for start in range(0, len(samples), _AT_ONCE):
            some = samples[start : start + _AT_ONCE]
            for sample, (image, problem) in zip(
                some, threads.map(lambda job: _picture(job, subject.max_pixels), some), strict=True
            ):
                if problem:
                    left_out.append(f"{sample.sample_id}: {problem}")
                if image is not None:
                    yield image
            progress("images", start + len(some), len(samples))


def plain(text: object) -> str:
    """Return a text on one line without characters that steer a terminal or turn the direction of text."""
    valid = str(text).encode("utf8", "replace").decode()
    if valid.isprintable():
        return valid
    spaced = valid.translate({ord("\n"): " ", ord("\t"): " "})
    return "".join("\N{REPLACEMENT CHARACTER}" if is_steering(character) else character for character in spaced)


def markdown(text: object) -> str:
    """Return a stranger's text for Markdown: shown as it is, never as a tag, link, cell or heading."""
    return re.sub(r"[\\`*\[\]|~#!]", lambda match: f"&#{ord(match.group())};", html.escape(plain(text)))


def rendered(template: str, **values: Any) -> str:
    """Return the text of a template of this folder; the filter ``markdown`` makes a stranger's text safe in it."""
    environment = templates(TEMPLATES)
    environment.filters["markdown"] = markdown
    return environment.get_template(template).render(values).rstrip() + "\n"


def slug(text: str, most: int = 60) -> str:
    """Return a text as a non-empty name of letters, digits and underscores; two texts may get the same name."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:most] or "x"


def _picture(sample: Sample, max_pixels: int) -> tuple[ExportedPicture | None, str]:
    """Return the image, and what was wrong with it or its mask."""
    try:
        image = sample.image.load(max_pixels=max_pixels)
        read = getattr(sample.image, "read", None)
        stored: bytes = read() if read is not None else b""
        header = open_header(stored) if stored and not is_native_only(stored) else None
        data, suffix = encode_image(image), ".png"
        if header is not None and header.mode == "RGB" and set(header.info) <= _HARMLESS and header.format in _ENDINGS:
            data, suffix = stored, _ENDINGS[header.format]  # byte for byte
    except SampleError as error:
        return None, plain(error)
    height, width = image.shape[:2]
    mask, problem = b"", ""
    if sample.mask is not None:
        try:
            mask = encode_mask(sample.mask.load(height, width))
        except SampleError as error:
            problem = f"the mask is left out: {plain(error)}"
    return ExportedPicture(sample, data, suffix, mask, height, width), problem


def _of_run(run: Run, *, data: str, masks: str, images: bool, progress: Progress) -> ExportSubject:
    rows, spec, samples = run.rows(), run.spec(), run.samples()
    if not len(rows):
        raise UserError(f"{run.path} has no rows yet; let the run finish, or export its images by their own name")
    chosen = _pictured(run, spec, samples, data=data, masks=masks, progress=progress) if images else []
    texts = texts_in(spec)
    for name in ("model", "parameters", "oracle"):
        texts += [text for text in pc.unique(rows[name].cast(pa.string())).to_pylist() if text]
    clean = cleaner(texts, {str(run.path.resolve()), *_folders(samples["sample_id"].to_pylist())})
    used = samples.filter(pc.is_valid(samples["label"]))
    labels = [label for label in pc.unique(used["label"].cast(pa.string())).to_pylist() if label is not None]
    table = _plain_rows(rows, clean)
    recorded = run.path / "environment.json"
    environment = read_json(recorded) if recorded.is_file() else {}
    return ExportSubject(
        name=plain(run.run_id),
        dataset=", ".join(sorted(name for name in pc.unique(table["dataset"]).to_pylist() if name)),
        classes=_distinct([*(spec.get("classes") or ()), *sorted(labels)]),
        rows=table,
        samples=tuple(_renamed(sample, clean) for sample in chosen),
        licences=dict(Counter(plain(licence or "") for licence in used["licence"].to_pylist())),
        run=run,
        holdfast=plain((environment.get("packages") or {}).get("holdfast") or ""),
        created=plain(environment.get("time") or ""),
        max_pixels=int(spec.get("max_pixels", DEFAULT_MAX_PIXELS)),
    )


def _pictured(
    run: Run, spec: dict[str, Any], samples: pa.Table, *, data: str, masks: str, progress: Progress
) -> list[Sample]:
    """Return the run's samples with their images, after checking that these are the ones that were measured."""
    ways = "--data says where they are now, --no-images leaves them out"
    where = data or spec.get("data") or ""
    if not where:
        raise UserError(f"{run.path} does not say where its images are; {ways}")
    try:
        collection = _collection(spec, str(where), masks or spec.get("masks") or None)
    except UserError as error:
        raise UserError(f"the images of {run.path} cannot be read any more ({error}); {ways}") from None
    known = {sample.sample_id: sample for sample in collection.samples}
    wanted = samples.filter(pc.not_equal(samples["image_fingerprint"].fill_null(""), "")).to_pylist()
    gone = [row["sample_id"] for row in wanted if row["sample_id"] not in known]
    if gone:
        raise UserError(
            f"{len(gone)} of {len(wanted)} images of {run.path} are gone from {where} (first: {gone[0]}); {ways}"
        )

    def fingerprints(row: dict[str, Any]) -> tuple[str, str, str]:
        sample, image, mask = known[row["sample_id"]], "", ""
        with suppress(SampleError):
            image = sample.image.fingerprint()
            mask = sample.mask.fingerprint() if sample.mask else ""
        return image, mask, sample.label

    with ThreadPoolExecutor(2 * core_count()) as threads:
        progress("hash", 0, len(wanted))
        for done, (row, shown) in enumerate(zip(wanted, threads.map(fingerprints, wanted), strict=True), start=1):
            if shown != (row["image_fingerprint"], row["mask_fingerprint"] or "", row["label"]):
                raise UserError(
                    f"{row['sample_id']} in {where} is not what {run.path} measured: its image, mask or label has "
                    f"changed; {ways}"
                )
            progress("hash", done, len(wanted))
    return [known[row["sample_id"]] for row in wanted]


def _collection(spec: dict[str, Any], where: str, masks: str | None) -> Collection:
    """Return the images of a run, of detectors with their boxes."""
    if spec.get("task") != DETECT:
        return load_collection(where, masks=masks)
    boxes = {name: spec[name] for name in ("boxes", "images", "box_masks") if spec.get(name)}
    asked = EvaluateSpec(where, masks=masks, **boxes)
    return as_detectors_see(asked, read(asked))


def _plain_rows(rows: pa.Table, clean: Clean) -> pa.Table:
    """Return the table without what its texts say of this machine; dictionary columns stay dictionaries."""
    rows = rows.unify_dictionaries()
    columns = []
    for field in PREDICTIONS:
        column = rows[field.name]
        if pa.types.is_dictionary(field.type) or pa.types.is_string(field.type):
            coded = column.combine_chunks()
            coded = coded if pa.types.is_dictionary(coded.type) else coded.dictionary_encode()
            words = coded.dictionary.to_pylist()
            words = [clean(word) for word in words] if field.name in _CLEANED else words
            words = words if field.name in ("raw_text", "parameters") else [plain(word) for word in words]
            place = {word: number for number, word in enumerate(dict.fromkeys(words))}
            numbers = pa.array([place[word] for word in words], pa.int32()).take(coded.indices)
            column = pa.DictionaryArray.from_arrays(numbers, pa.array(list(place), pa.string())).cast(field.type)
        columns.append(column)
    return pa.table(columns, schema=PREDICTIONS)


def _renamed(sample: Sample, clean: Clean) -> Sample:
    """Return a sample under the names that the rows have."""
    return replace(
        sample, sample_id=plain(clean(sample.sample_id)), source_id=plain(clean(sample.source_id)),
        label=plain(sample.label), licence=plain(sample.licence),
    )  # fmt: skip


def _distinct(classes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(plain(name) for name in classes))


def _folders(ids: Sequence[str]) -> set[str]:
    return {str(Path(sample).parent) for sample in ids if sample and sample.startswith("/")}
