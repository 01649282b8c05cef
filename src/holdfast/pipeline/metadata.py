"""What users know of their images: groups of a run's images, and ties to the label before any model is asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import split_list
from holdfast.core.numbers import percent
from holdfast.core.types import ORIGINAL, Collection, Image, Mask, Sample
from holdfast.data.findings import EXAMPLES, DataFinding
from holdfast.data.readers.listed import AttributeTable
from holdfast.engine import core_count
from holdfast.pipeline.jobs.progress import Progress, with_progress
from holdfast.stats.core.reduce import Counts
from holdfast.stats.effects.families import FOLD, MOST_VALUES, UNKNOWN, grouped, in_group
from holdfast.stats.regression.ties import ties
from holdfast.store import Run

BACKGROUND = "background cluster"
_SIDE = 64  # pixels of the longer side of an image whose background is described
_MOST_CLUSTERS = 12
_NO_FOLD = -1  # of a sample without one
_COLUMNS = ("split", "fold", "licence")
"""Columns of the samples that serve as attributes, unless the dataset has attributes of these names."""


def attribute_values(runs: Sequence[Run], name: str, file: str | Path | None = None) -> dict[str, str]:
    """Return source_id → value of an attribute, or of split, fold or licence; UserError if no sample has it."""
    table = None if file is None else AttributeTable(file)
    values: dict[str, str] = {}
    known: set[str] = set()
    for run in runs:
        samples = run.samples().select(["sample_id", "source_id", "attributes", *_COLUMNS])
        for row in samples.to_pylist():
            sample, source = row["sample_id"], row["source_id"]
            stated = {column: row[column] for column in _COLUMNS if row[column] not in (None, "", _NO_FOLD)}
            own = stated | (json.loads(row["attributes"]) if row["attributes"] else {})
            own |= table.of(sample, source or "") if table else {}
            known |= own.keys()
            if own.get(name) is not None:
                values[source] = str(own[name])
    if not values:
        names = ", ".join(sorted(known)) or "none; a manifest's further columns are attributes, and those of a CSV"
        raise UserError(f"no sample of these runs has an attribute {name!r}; there is {names}")
    return values


def groups_of(runs: Sequence[Run], names: Sequence[str], file: str | Path | None) -> dict[str, dict[str, str]]:
    """Return attribute → source_id → group, for ``report --by``; numbers are cut into quarters."""
    if file is not None and not names:
        raise UserError("--attributes has no effect without --by: name the attributes to show")
    stated = {name: attribute_values(runs, name, file) for name in names}
    groups = {name: own if name == FOLD else grouped(own) for name, own in stated.items()}
    for name, values in groups.items():
        different = len(set(values.values()))
        if different > MOST_VALUES:
            raise UserError(f"{name} has {different} different values, more than {MOST_VALUES}: too many for groups")
    return groups


def slice_of(counts: Counts, runs: Sequence[Run], text: str, file: str | Path | None) -> Counts:
    """Return the counts of the images with attributes such as ``camera=B,line=2``; all images for an empty text."""
    if file is not None and not text:
        raise UserError("--attributes has no effect without --for: name the images, such as --for camera=B")
    sources = counts.cells["source_id"].astype(str)
    chosen = np.ones(len(sources), np.bool_)
    for part in split_list(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise UserError(f"--for must have the form attribute=value, such as camera=B, not {part!r}")
        values = attribute_values(runs, name, file)
        if value not in values.values():
            raise UserError(f"no image has {name}={value}; there is {', '.join(sorted(set(values.values()))[:12])}")
        chosen &= (sources.map(values) == value).to_numpy()
    if not chosen.any():
        raise UserError(f"no image has all of {text}: choose other values")
    return in_group(counts, chosen) if text else counts


def find_ties(collection: Collection, max_pixels: int, progress: Progress) -> list[DataFinding]:
    """Return a finding for each attribute, and for the background, that goes with the label, closest first."""
    photos = list({sample.source_id: sample for sample in collection.samples if sample.condition == ORIGINAL}.values())
    labels = [photo.label for photo in photos]
    columns = attribute_columns(photos)
    clusters = background_clusters(photos, len(set(labels)), max_pixels, progress)
    if clusters:
        columns[BACKGROUND] = clusters
    tied = ties(labels, columns)
    return [
        _finding(row, _examples(labels, columns[row["attribute"]])) for row in tied[tied["tied"]].to_dict("records")
    ]


def _finding(row: Mapping[Any, Any], examples: tuple[str, ...]) -> DataFinding:
    name = row["attribute"]
    cluster = "images with alike backgrounds share labels" if name == BACKGROUND else f"{name} goes with the label"
    sentence = (
        f"{cluster} (Cramér's V {row['v']:.2f}, p {row['p_holm']:.2g} corrected): alone it predicts the label of "
        f"{percent(row['readable'], 0)} of {row['n']:,} images, and the commonest that of {percent(row['chance'], 0)}"
    )
    advice = (
        "A model could read it instead of the object: add images that break the tie, or hold results against it "
        "(eval with scenarios that change the background; report --by)."
    )
    return DataFinding("tie", int(row["n"]), sentence, advice, examples)


def _examples(labels: Sequence[str], values: Sequence[str]) -> tuple[str, ...]:
    sizes = Counter(values)
    pairs = Counter(zip(values, labels, strict=True)).most_common(EXAMPLES)
    return tuple(f"{value} → {label} ({count} of {sizes[value]})" for (value, label), count in pairs)


def attribute_columns(photos: Sequence[Sample]) -> dict[str, list[str]]:
    """Return attribute → its group for each image, of attributes with few groups that are not the label itself."""
    names = dict.fromkeys(name for photo in photos for name in photo.attributes)
    columns: dict[str, list[str]] = {}
    for name in names:
        values = {photo.source_id: photo.attributes.get(name) for photo in photos}
        known = {source: value for source, value in values.items() if isinstance(value, (str, int, float))}
        if not known or all(photo.attributes.get(name) == photo.label for photo in photos):
            continue
        groups = grouped(known)
        if 2 <= len(set(groups.values())) <= min(MOST_VALUES, len(photos) // 2):
            columns[name] = [groups.get(photo.source_id, UNKNOWN) for photo in photos]
    return columns


def background_clusters(photos: Sequence[Sample], classes: int, max_pixels: int, progress: Progress) -> list[str]:
    """Return the cluster of each image by the colours of its background (k-means); none for fewer than 20 images."""
    from scipy.cluster.vq import kmeans2

    with ThreadPoolExecutor(core_count()) as threads:
        colours_of = threads.map(partial(_background, max_pixels=max_pixels), photos)
        described = list(with_progress(colours_of, progress, "backgrounds", len(photos)))
    seen = [colours for colours in described if colours is not None]
    if len(seen) < 20:
        return []
    points = np.stack(seen)
    points = (points - points.mean(axis=0)) / np.maximum(points.std(axis=0), 1e-6)
    number = min(max(classes, 2), _MOST_CLUSTERS, len(points) // 10, len(np.unique(points.round(6), axis=0)))
    if number < 2:
        return []
    _, cluster = kmeans2(points, number, iter=50, minit="++", rng=np.random.default_rng(0))
    places = iter(cluster.tolist())
    return [UNKNOWN if colours is None else f"background {next(places) + 1}" for colours in described]


def _background(sample: Sample, max_pixels: int) -> NDArray[np.float64] | None:
    try:
        image = sample.image.load(max_pixels=max_pixels)
        mask = sample.mask.load(*image.shape[:2]) if sample.mask is not None else None
    except SampleError:
        return None
    return background_colours(image, mask)


def background_colours(image: Image, mask: Mask | None) -> NDArray[np.float64] | None:
    """Return mean and spread of the background's colours (CIELAB): outside the mask, or the frame of the image."""
    small, around = background_pixels(image, mask)
    if around.sum() < 16:
        return None
    colours = cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)[around].astype(np.float64)
    return np.concatenate([colours.mean(axis=0), colours.std(axis=0)])


def background_pixels(image: Image, mask: Mask | None) -> tuple[Image, NDArray[np.bool_]]:
    """Return a small copy of an image, and which of its pixels are background: outside the mask, or in the frame."""
    scale = _SIDE / max(image.shape[:2])
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    small = cv2.resize(np.ascontiguousarray(image[..., :3]), size, interpolation=cv2.INTER_AREA)
    if mask is None:
        around = np.ones(small.shape[:2], np.bool_)
        edge = max(1, min(small.shape[:2]) // 8)
        around[edge:-edge, edge:-edge] = False
    else:
        # Any share of the object counts, and a little more: its colour bleeds, and so would its class.
        covered = cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0
        around = cv2.dilate(covered.astype(np.uint8), np.ones((5, 5), np.uint8)) == 0
    return np.asarray(small, np.uint8), around
