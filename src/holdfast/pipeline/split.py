"""A manifest with a stratified split and folds, which every verb reads as a collection."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.data import load_collection
from holdfast.data.images import FileImage
from holdfast.data.masks import FileMask
from holdfast.data.splits import stratified_folds, stratified_split
from holdfast.pipeline.jobs.summary import Summary
from holdfast.store import write_table
from holdfast.store.spreadsheets import write_csv


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
    """Split by source image, class by class, and write the manifest; returns how many samples each part has.

    What the reader could not use is added to ``summary``.
    """
    collection = load_collection(data, masks=masks)
    samples = stratified_split(collection.samples, test_fraction=test_fraction, seed=seed)
    if summary is not None:
        summary.add_problems(collection.problems)
    if folds:
        samples = stratified_folds(samples, folds=folds, seed=seed)
    rows, home = [], os.path.realpath(out.parent)
    for sample in samples:
        if not isinstance(sample.image, FileImage) or not isinstance(sample.mask, FileMask | None):
            raise UserError(f"{data} does not keep its images as files, so a manifest cannot point at them")
        rows.append(
            {
                "path": _relative(sample.image.path, home, out),
                "mask": _relative(sample.mask.path, home, out) if sample.mask else "",
                "sample_id": sample.sample_id,
                "source_id": sample.source_id,
                "label": sample.label,
                "kind": sample.kind,
                "condition": sample.condition,
                "variant": str(sample.attributes.get("variant", "")),
                "split": sample.split,
                "fold": sample.fold,
                "licence": sample.licence,
            }
        )
    table = pa.Table.from_pylist(rows)
    if out.suffix == ".parquet":
        write_table(out, table)
    else:
        write_csv(out, table)
    counts = Counter(sample.split for sample in samples)
    return dict(sorted(counts.items())) | ({"folds": folds} if folds else {})


def _relative(path: str | Path, home: str, manifest: Path) -> str:
    # Strings, not pathlib: with a folder of a million images this is most of the work.
    real = os.path.realpath(path)
    if not real.startswith(home.rstrip(os.sep) + os.sep):
        raise UserError(
            f"{manifest} must lie in a folder that holds every file of the dataset, as readers refuse paths that leave "
            f"its folder, and {path} is outside"
        )
    return real[len(home.rstrip(os.sep)) + 1 :].replace(os.sep, "/")
