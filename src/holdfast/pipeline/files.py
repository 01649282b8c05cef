"""Files that verbs write: names made from names in the data, which no one has checked, and CSV."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.files import clear_leftovers, safe_part
from holdfast.core.fingerprint import fingerprint
from holdfast.core.places import address, stands_for
from holdfast.core.schema import plain_schema
from holdfast.core.types import Sample
from holdfast.data import load_collection
from holdfast.data.collection import stratified_folds, stratified_split
from holdfast.data.images import FileImage
from holdfast.data.masks import FileMask
from holdfast.pipeline.jobs.progress import Summary
from holdfast.store import write_table
from holdfast.store.run import write_csv


def file_name(sample: Sample) -> str:
    """Return ``class/stem`` with nothing in it that a file system or a path could misread."""
    name = sample.sample_id.removeprefix(f"{sample.label}/")
    if name == sample.sample_id:  # "a" of class "dog" must not meet "dog/a"
        name = f"{name}-{fingerprint(name)[:8]}"
    return "/".join([safe_part(sample.label), *(safe_part(part) for part in name.split("/"))])


IN_MEMORY = "data"
"""The folder below ``out`` where functions of Python store a dataset given in memory: ``manifest.parquet``, files."""


def check_apart(samples: Iterable[Sample], out: Path, *, option: str = "--out") -> None:
    """Raise a UserError if images of the collection are below ``out``: results would mix with them or replace them."""
    root, url = out.resolve(), stands_for(out)
    stored = root / IN_MEMORY / "images" if (root / IN_MEMORY / "manifest.parquet").is_file() else None
    paths = (getattr(sample.image, "path", None) for sample in samples)
    # Not Path.parent: of a million images that is most of the time.
    for folder in map(Path, {os.path.dirname(path) for path in paths if path}):  # noqa: PTH120
        folder_url = address(folder)
        inside = (
            bool(url) and f"{folder_url}/".startswith(f"{url}/")
            if folder_url
            else folder.resolve().is_relative_to(root)
        )
        if inside and not (stored and folder.resolve().is_relative_to(stored)):
            raise UserError(f"the images of the dataset are in {url or out} themselves; choose another {option}")


def write_split(
    data: str,
    out: Path,
    *,
    masks: str | None = None,
    test_fraction: float = 0.2,
    folds: int = 0,
    seed: int = 0,
    summary: Summary | None = None,
) -> dict[str, int]:
    """Split by source image, class by class, and write the manifest; returns how many samples each part has."""
    collection = load_collection(data, masks=masks)
    if summary is not None:
        summary.add_problems(collection.problems)
    samples = stratified_split(collection.samples, test_fraction=test_fraction, seed=seed)
    if folds:
        samples = stratified_folds(samples, folds=folds, seed=seed)
    home = os.path.realpath(out.parent)
    rows = (_manifest_row(sample, data, home, out) for sample in samples)
    pieces = iter(lambda: list(islice(rows, 20_000)), [])  # a million rows would be a gigabyte
    table = pa.RecordBatchReader.from_batches(_SPLIT, (pa.RecordBatch.from_pylist(some, _SPLIT) for some in pieces))
    clear_leftovers(out)
    if out.suffix == ".parquet":
        write_table(out, table)
    else:
        write_csv(out, table)
    counts = Counter(sample.split for sample in samples)
    return dict(sorted(counts.items())) | ({"folds": folds} if folds else {})


_SPLIT = plain_schema(
    "path text, mask text, sample_id text, source_id text, label text, kind text, condition text, variant text, "
    "split text, fold long, licence text"
)


def _manifest_row(sample: Sample, data: str, home: str, out: Path) -> dict[str, Any]:
    if not isinstance(sample.image, FileImage) or not isinstance(sample.mask, FileMask | None):
        raise UserError(f"{data} does not keep its images as files, so a manifest cannot point at them")
    return {
        "path": _relative(sample.image.path, home, out),
        "mask": _relative(sample.mask.path, home, out) if sample.mask else "",
        "variant": str(sample.attributes.get("variant", "")),
        **{name: getattr(sample, name) for name in _AS_IS},
    }


_AS_IS = [name for name in _SPLIT.names if name not in ("path", "mask", "variant")]


def _relative(path: str | Path, home: str, manifest: Path) -> str:
    # Strings, not pathlib: with a folder of a million images this is most of the work.
    real = os.path.realpath(path)
    if not real.startswith(home.rstrip(os.sep) + os.sep):
        raise UserError(
            f"{manifest} must be in a folder that holds every file of the dataset, as readers refuse paths that leave "
            f"its folder, and {path} is outside"
        )
    return real[len(home.rstrip(os.sep)) + 1 :].replace(os.sep, "/")
