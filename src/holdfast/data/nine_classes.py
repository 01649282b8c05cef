"""The nine super-classes of ImageNet (Restricted ImageNet), as ``--labels nine`` asks for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.types import ClassKeys, Collection, Problem
from holdfast.data.labels import NINE, asks_for_nine, imagenet_space, normalised, read_label_file, unmatched_rows

RANGES = {
    "dog": (151, 268), "cat": (281, 285), "frog": (30, 32), "turtle": (33, 37), "bird": (80, 100),
    "primate": (365, 382), "fish": (389, 397), "crab": (118, 121), "insect": (300, 319),
}  # fmt: skip
"""Super-class → first and last of its ImageNet indices."""


def in_nine_classes(collection: Collection, labels: str | Path | None) -> Collection:
    """Return the collection in the nine super-classes if the label option asks for them, else as it is.

    A class is found by its own name (``dog``), by its WordNet id or ImageNet index, or by a name of an ImageNet class
    (``tabby``). Images of all other classes are left out, and a problem of the collection says how many.
    ``labels`` is ``nine``, or ``nine:FILE.csv``, a label file that says which ImageNet class each class is.
    """
    if not asks_for_nine(labels):
        return collection
    keys = dict(collection.keys)
    if file := str(labels).partition(":")[2]:
        given = read_label_file(file)
        for sentence in unmatched_rows(given, collection.classes):
            raise UserError(f"the label file {file!r}: {sentence}; fix or remove the row")
        keys |= given
    groups = {name: _super_class(name, keys.get(name, ClassKeys())) for name in collection.classes}
    samples = tuple(
        replace(sample, label=groups[sample.label]) for sample in collection.samples if groups.get(sample.label)
    )
    if not samples:
        shown = ", ".join(collection.classes[:5])
        raise UserError(
            f"none of the dataset's classes (such as {shown}) belongs to the nine "
            "super-classes of ImageNet; --labels nine wants folders named by WordNet ids or ImageNet's class names, or "
            "--labels nine:FILE.csv with the columns class and imagenet_index"
        )
    shown_classes = {sample.label for sample in samples}
    unseen = ", ".join(name for name in RANGES if name not in shown_classes)
    left = Counter(sample.label for sample in collection.samples if not groups.get(sample.label))
    problems = list(collection.problems)
    if left:
        example = next(iter(left))
        text = f"{left.total()} images of {len(left)} classes outside the nine are left out, such as {example}"
        problems.append(Problem(NINE, text))
    if unseen:
        problems.append(Problem(NINE, f"the dataset has no image of {unseen}"))
    return replace(
        collection,
        classes=tuple(RANGES),
        samples=samples,
        keys={
            name: ClassKeys(tuple(imagenet_space().wnids[first : last + 1]), tuple(range(first, last + 1)))
            for name, (first, last) in RANGES.items()
        },
        problems=tuple(problems),
    )


def _super_class(name: str, keys: ClassKeys) -> str:
    """Return the super-class of a class; empty if it has none, or where its names could mean several."""
    if normalised(name) in RANGES:
        return normalised(name)
    space = imagenet_space()
    indices = set(keys.imagenet_indices)
    indices |= {place for place, wnid in enumerate(space.wnids) if wnid == name or wnid in keys.wnids}
    if not indices:
        wanted = {normalised(text) for text in (name, *keys.labels)}
        for place, names in enumerate(space.names):
            if wanted & {normalised(synonym) for synonym in (names, *names.split(","))}:
                indices.add(place)
    groups = {
        next((group for group, (first, last) in RANGES.items() if first <= place <= last), "") for place in indices
    }
    return groups.pop() if len(groups) == 1 else ""
