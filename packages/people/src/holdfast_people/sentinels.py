"""Sentinels: images with known answers, as controls in a task and as two examples to learn from.

All are copies, made once, in the shapes of the images to judge and next to the database: what a browser could learn
of where an image comes from (its shape, its format, how long it takes to read) is then the same for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import generator
from holdfast.core.types import ORIGINAL, Collection, Image, Sample
from holdfast.core.votes import VoteQuestion
from holdfast.data.writers import encode_image
from holdfast.store import write_table

POSITIVE, NEGATIVE, TRAINING = "positive", "negative", "training"
DESTROYED = "destroyed"  # condition of a copy that no one should call natural
_TILES = 4
_FEW = 3  # of each role: fewer would be known by heart after two tasks


@dataclass(frozen=True)
class ChosenSentinel:
    """An image with a known answer: the class that is asked about, and whether it is right."""

    sample: Sample
    role: str
    asked: str
    right: bool


def choose(data: Collection, classes: Sequence[str], *, kind: str, each: int, seed: int) -> list[ChosenSentinel]:
    """Return two examples to learn from, then controls: right ones with their own class, wrong ones with another.

    Every image is used once. The classes asked are those of the images to judge: a question that only controls ask
    would give them away. A wrong class shares no word with the right one ("lizard" is not wrong for a green lizard).
    For naturalness nothing is asked of the class; the wrong ones are destroyed copies.
    """
    rng = generator(seed, "sentinels", data.name)
    spelled = {_plain(name): name for name in classes}
    originals = [sample for sample in data.samples if sample.condition == ORIGINAL] or list(data.samples)
    chosen: list[ChosenSentinel] = []
    wanted = {True: each + 1, False: each + 1}  # one of each is set aside to learn from
    for place in rng.permutation(len(originals)):
        sample = originals[place]
        asked = {True: spelled.get(_plain(sample.label), ""), False: _another(sample.label, classes, rng)}
        if kind == "naturalness":
            asked = dict.fromkeys(asked, sample.label)
        right = wanted[True] >= wanted[False]
        right = right if asked[right] and wanted[right] else not right
        if asked[right] and wanted[right]:
            wanted[right] -= 1
            chosen.append(ChosenSentinel(sample, POSITIVE if right else NEGATIVE, asked[right], right))
    counts = {right: each + 1 - left for right, left in wanted.items()}
    if not counts[True] and not set(spelled) & {_plain(name) for name in data.classes}:
        raise UserError(
            f"the control images show {_some(data.classes)}, and those to judge {_some(classes)}: they must be "
            "of the same classes (--sentinels)"
        )
    if min(counts.values()) < _FEW + 1:
        raise UserError(
            f"of the control images (--sentinels), less those that are judged themselves, {counts[True]} can be "
            f"asked with their own class and {counts[False]} with another; {_FEW + 1} of each are needed at least, "
            "and a person's every task uses up one of each: take a larger or another dataset for them"
        )
    first = [next(picture for picture in chosen if picture.right is right) for right in (True, False)]
    rest = [picture for picture in chosen if picture not in first]
    return [*(replace(picture, role=TRAINING) for picture in first), *rest]


def expected(questions: Sequence[VoteQuestion], *, right: bool) -> dict[str, list[str]]:
    """Return the answers that pass, per graded question: yes or no; of grades the upper ones, or the lower two."""
    passing: dict[str, list[str]] = {}
    for question in questions:
        if not question.graded:
            continue
        if set(question.answers) == {"yes", "no"}:
            passing[question.id] = ["yes" if right else "no"]
        else:
            lower = question.answers[:2] if len(question.answers) > 3 else question.answers[:1]
            passing[question.id] = [answer for answer in question.answers if (answer in lower) != right]
    return passing


def write_copies(
    chosen: Sequence[ChosenSentinel], shapes: Sequence[tuple[int, int]], folder: Path, *, kind: str, seed: int
) -> tuple[str, dict[str, ChosenSentinel], list[str]]:
    """Write copies, cropped to the nearest shape of those to judge; return dataset name, copies by id, troubles."""
    rng = generator(seed, "copies", str(len(chosen)))
    common = sorted(set(shapes))
    rows, copies, troubles = [], {}, []
    for number, picture in enumerate(chosen):
        try:
            image = picture.sample.image.load()
        except SampleError as error:
            troubles.append(f"{picture.sample.sample_id}: {error}")
            continue
        image = fitted(image, *_nearest(image, common))
        destroyed = kind == "naturalness" and not picture.right
        name = f"{number:05d}"
        write_atomic(folder / f"{name}.png", encode_image(destroy(image, rng) if destroyed else image))
        shown = {"path": f"{name}.png", "sample_id": name, "condition": DESTROYED if destroyed else ORIGINAL}
        sample = picture.sample
        rows.append(shown | {"label": sample.label, "copy_of": sample.sample_id, "licence": sample.licence})
        copies[name] = picture
    write_table(folder / "manifest.parquet", pa.Table.from_pylist(rows))
    return f"manifest:{(folder / 'manifest.parquet').resolve()}", copies, troubles


def fitted(image: Image, height: int, width: int) -> Image:
    """Return the middle of an image, cropped and resized to ``height`` × ``width``."""
    rows, columns = image.shape[:2]
    scale = min(rows / height, columns / width)
    tall, wide = max(round(height * scale), 1), max(round(width * scale), 1)
    top, left = (rows - tall) // 2, (columns - wide) // 2
    middle = np.ascontiguousarray(image[top : top + tall, left : left + wide])
    if (tall, wide) == (height, width):
        return middle
    way = cv2.INTER_AREA if scale > 1 else cv2.INTER_CUBIC
    return cv2.resize(middle, (width, height), interpolation=way).view(np.uint8)


def destroy(image: Image, rng: np.random.Generator) -> Image:
    """Return a copy that no one calls natural: sixteen shuffled tiles, every other one a negative."""
    height, width = image.shape[:2]
    rows, columns = (np.linspace(0, side, _TILES + 1).astype(int) for side in (height, width))
    order = rng.permutation(_TILES * _TILES)
    source = np.empty_like(order)
    source[order] = np.roll(order, 1)  # one ring through all places: no tile stays
    shuffled = image.copy()
    for place, origin in enumerate(source):
        (row, column), (from_row, from_column) = divmod(place, _TILES), divmod(int(origin), _TILES)
        tile = image[rows[from_row] : rows[from_row + 1], columns[from_column] : columns[from_column + 1]]
        target = shuffled[rows[row] : rows[row + 1], columns[column] : columns[column + 1]]
        if not target.size or not tile.size:  # an image of fewer than four pixels a side
            continue
        fit = cv2.resize(tile, (target.shape[1], target.shape[0]), interpolation=cv2.INTER_NEAREST)
        target[...] = 255 - fit if (row + column) % 2 else fit
    return shuffled


def _nearest(image: Image, shapes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the shape that crops least; among equal ones, the nearest in size."""
    height, width = image.shape[:2]

    def apart(shape: tuple[int, int]) -> tuple[float, float]:
        proportions = abs(np.log(shape[1] / shape[0]) - np.log(width / height))
        return round(float(proportions), 3), abs(np.log(shape[0] * shape[1]) - np.log(height * width))

    return min(shapes, key=apart)


def _another(label: str, classes: Sequence[str], rng: np.random.Generator) -> str:
    """Return a class that shares no word with the label; '' if there is none."""
    own = set(_plain(label).split())
    others = [name for name in classes if not own & set(_plain(name).split())]
    return str(rng.choice(others)) if others else ""


def _plain(name: str) -> str:
    return " ".join(re.split(r"[\W_]+", name.casefold())).strip()


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
