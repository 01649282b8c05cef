"""Label spaces: which outputs of a model mean which class of a dataset, and the outcome of a prediction."""

from __future__ import annotations

import csv
import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import nearest, unknown
from holdfast.core.places import place
from holdfast.core.types import ClassKeys, Collection, LabelSpace

MOST_CLASSES = 50_000  # outputs of a classifier; what has more is something else
IMAGENET_OUTPUTS = 1000
NINE = "nine"
TOPK = 5
NOT_PROBABILITIES = "the model's scores are not probabilities (NaN or infinite)"
_KEY_COLUMNS = ("imagenet_index", "wnid", "label")


@dataclass(frozen=True, slots=True)
class LabelMap:
    """A dataset's classes in a model's outputs."""

    classes: tuple[str, ...]  # the dataset's class names
    # for each class the indices of its outputs, ascending; no output has two classes.
    members: tuple[tuple[int, ...], ...]
    # for each output the name that results show: its class, else its own name, made unique with its index if that
    # name is also a class's.
    outputs: tuple[str, ...]
    fingerprint: str  # of all that


def read_label_file(path: str | Path) -> dict[str, ClassKeys]:
    """Return keys by class from a CSV with ``class`` and one or more of ``imagenet_index``, ``wnid``, ``label``.

    Several rows of one class are aliases of each other.
    """
    if not isinstance(path, str | Path):
        raise UserError(
            f"labels are a CSV file (first line class,imagenet_index, then a line per class), not a "
            f"{type(path).__name__}; write them into one and give its path"
        )
    file = place(path)
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            rows = list(csv.DictReader(opened, strict=True, restkey=""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"the label file {str(path)!r} cannot be read: {reason}") from error
    columns = {column.strip() for column in rows[0] if column} if rows else set()
    if "class" not in columns or not columns <= {"class", *_KEY_COLUMNS} or len(columns) < 2:
        shown = f"not {', '.join(sorted(columns))}" if columns else "but there are no rows"
        raise UserError(
            f"the label file {file.name} needs the columns class and one or more of {', '.join(_KEY_COLUMNS)}, {shown}"
        )
    classes: dict[str, dict[str, list[str]]] = {}
    for line, raw in enumerate(rows, start=2):
        row = {(column or "").strip(): (value or "").strip() for column, value in raw.items() if column}
        if not row["class"] or "" in raw:
            problem = "has no class" if not row["class"] else "has more fields than the header"
            raise UserError(f"line {line} of the label file {file.name} {problem}")
        keys = classes.setdefault(row["class"], {column: [] for column in _KEY_COLUMNS})
        for column in _KEY_COLUMNS:
            value = row.get(column, "")
            if value and value not in keys[column]:
                is_index = value.isdecimal() and int(value) < IMAGENET_OUTPUTS
                if column == "imagenet_index" and not is_index:
                    raise UserError(
                        f"line {line} of the label file {file.name}: {value!r} is not an index from 0 to 999"
                    )
                if column == "wnid" and not re.fullmatch(r"n\d{8}", value):
                    problem = f"{value!r} is not a WordNet id such as n01440764"
                    raise UserError(f"line {line} of the label file {file.name}: {problem}")
                keys[column].append(value)
    return {
        name: ClassKeys(
            tuple(keys["wnid"]), tuple(int(index) for index in keys["imagenet_index"]), tuple(keys["label"]), True
        )
        for name, keys in classes.items()
    }


def unmatched_rows(given: Iterable[str], classes: Sequence[str]) -> list[str]:
    """Return a sentence, with the nearest name, for each class of a label file that the dataset does not have.

    If every class has its own row, the others are of no interest: one file may serve many parts of a dataset.
    """
    given = list(given)
    if set(classes) <= set(given):
        return []
    return [str(unknown("class of the dataset", name, classes)) for name in given if name not in classes]


@functools.cache
def imagenet_space() -> LabelSpace:
    """Return the thousand outputs of ImageNet-1k in order."""
    from timm.data import ImageNetInfo

    info = ImageNetInfo("imagenet-1k")
    return LabelSpace(tuple(info.label_descriptions()), tuple(info.label_names()))


def asks_for_nine(labels: str | Path | None) -> bool:
    """Return whether a label option names the nine super-classes of ImageNet instead of a file."""
    return labels is not None and str(labels).partition(":")[0] == NINE


def class_keys(collection: Collection, label_file: str | Path | None) -> dict[str, ClassKeys]:
    """Return the keys of a collection's classes: its own, or those of a label file if it has the class.

    A collection that was read in the nine super-classes has their keys already.
    Raises UserError: the file has a class that the collection does not have, and lacks one that it has.
    """
    if asks_for_nine(label_file):
        if len(collection.classes) != 9 or not all(name in collection.keys for name in collection.classes):
            raise UserError(f"--labels {label_file}: the nine super-classes cannot be used here; give a label file")
        return dict(collection.keys)
    given = read_label_file(label_file) if label_file else {}
    for sentence in unmatched_rows(given, collection.classes):
        raise UserError(f"the label file {str(label_file)!r}: {sentence}; fix or remove the row")
    return {**collection.keys, **given}


def normalised(name: str) -> str:
    """Return a name in one spelling: case, underscores, hyphens and runs of spaces do not matter."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


class _Outputs:
    """A label space with lookup tables."""

    def __init__(self, space: LabelSpace) -> None:
        self.space = space
        self.by_wnid = {wnid: index for index, wnid in enumerate(space.wnids)}
        self.by_name: dict[str, set[int]] = {}
        for index, name in enumerate(space.names):
            for synonym in {name, *name.split(",")}:
                self.by_name.setdefault(normalised(synonym), set()).add(index)
        self.is_unnamed = all(name == str(index) for index, name in enumerate(space.names))
        self.is_imagenet = len(space) == IMAGENET_OUTPUTS and (bool(space.wnids) or self.is_unnamed)

    def shown(self, index: int) -> str:
        return f"{index} ({self.space.names[index]})"

    def nearest(self, name: str) -> list[str]:
        """Return the outputs whose names have this word (cat: tabby cat), else those that are spelt most like it."""
        word = normalised(name)
        worded = [key for key in self.by_name if "," not in key and f" {word} " in f" {key} "]
        keys = sorted(worded, key=lambda key: (not key.endswith(word), min(self.by_name[key])))[:3]
        keys = keys or nearest(word, self.by_name)
        return list(dict.fromkeys(self.space.names[min(self.by_name[key])] for key in keys))

    def hint(self, name: str) -> str:
        """Return what may help if no output is called so."""
        if self.is_unnamed:
            if len(self.space) in (IMAGENET_OUTPUTS, IMAGENET_OUTPUTS + 1):
                return f"its {len(self.space)} outputs have no names; if they are ImageNet's: MODEL?labels=imagenet"
            return (
                f"its {len(self.space)} outputs have no names: write one a line, in their order, and give the file as "
                "MODEL?labels=names.txt"
                + ("; if it is a detector: MODEL?decode=yolox and --boxes" if len(self.space) > MOST_CLASSES else "")
            )
        if close := self.nearest(name):
            return f"nearest: {'; '.join(close)}"
        several = ", …" if len(self.space) > 3 else ""
        return f"its {len(self.space)} outputs are called {', '.join(self.space.names[:3])}{several}"


def map_labels(
    classes: Sequence[str], keys: Mapping[str, ClassKeys], space: LabelSpace, *, some: bool = False
) -> LabelMap:
    """Return which outputs mean which class: by its keys if they apply to this space, else by its name.

    With ``some``, classes without an output are allowed as long as one class has some.

    WordNet ids and ImageNet-1k's indices apply if the space knows its own ids, indices also if it is
    ImageNet-1k's. A name matches an output's whole name or any of its comma-separated synonyms, or is itself a WordNet
    id.
    Raises UserError: a class that cannot be found (with the nearest names), that could mean several outputs, whose keys
    contradict each other, or that shares an output with another class.
    """
    if not classes:
        raise UserError("the dataset has no classes; put its images in a folder per class or give --labels")
    outputs = _Outputs(space)
    members: list[tuple[int, ...]] = []
    lost: list[str] = []
    for name in classes:
        indices = _by_keys(name, keys.get(name, ClassKeys()), outputs) or _by_name(name, outputs)
        members.append(tuple(sorted(indices)))
        if not indices:
            lost.append(name)
    if lost and not (some and len(lost) < len(classes)):
        raise _unmappable(lost, outputs, len(classes))
    owner: dict[int, str] = {}
    for name, own in zip(classes, members, strict=True):
        for index in own:
            if index in owner:
                raise UserError(f"the classes {owner[index]!r} and {name!r} both claim output {outputs.shown(index)}")
            owner[index] = name
    counts = Counter([*classes, *space.names])
    names = tuple(
        owner[index] if index in owner else (name if counts[name] == 1 else f"{name} [{index}]")
        for index, name in enumerate(space.names)
    )
    identity = fingerprint({"classes": classes, "members": members, "outputs": space.names})
    return LabelMap(tuple(classes), tuple(members), names, identity)


def _by_keys(name: str, keys: ClassKeys, outputs: _Outputs) -> set[int]:
    """Return the outputs of explicit keys; empty if none applies, so that the name decides."""
    wnids = {wnid: outputs.by_wnid.get(wnid) for wnid in keys.wnids} if outputs.by_wnid else {}
    by_wnid = {index for index in wnids.values() if index is not None}
    by_index = set(keys.imagenet_indices) if outputs.is_imagenet else set()
    if keys.imagenet_indices and outputs.by_wnid and not outputs.is_imagenet:  # other spaces number them otherwise
        listed = (imagenet_space().wnids[index] for index in keys.imagenet_indices)
        by_index = {outputs.by_wnid[wnid] for wnid in listed if wnid in outputs.by_wnid}
    if len(by_wnid) == len(by_index) and by_wnid != by_index:
        raise UserError(
            f"the keys of class {name!r} contradict each other: {', '.join(keys.wnids)} is output "
            f"{sorted(by_wnid)}, not {sorted(by_index)}"
        )
    outputs_of_keys = by_wnid | by_index
    missing = [wnid for wnid, index in wnids.items() if index is None]
    for label in keys.labels:
        candidates = outputs.by_name.get(normalised(label), set())
        if not candidates:
            missing.append(label)
        elif len(candidates) == 1:
            outputs_of_keys |= candidates
        elif not candidates & outputs_of_keys:
            raise _ambiguous(name, label, candidates, outputs)
    if missing and (outputs_of_keys or (keys.required and keys.labels)):
        hint = outputs.hint(missing[0])
        raise UserError(f"class {name!r} lists {missing[0]!r}, which is not an output of the model; {hint}")
    return outputs_of_keys


def _by_name(name: str, outputs: _Outputs) -> set[int]:
    if name in outputs.by_wnid:
        return {outputs.by_wnid[name]}
    candidates = outputs.by_name.get(normalised(name), set())
    if len(candidates) > 1:
        raise _ambiguous(name, name, candidates, outputs)
    return candidates


def _ambiguous(name: str, label: str, candidates: set[int], outputs: _Outputs) -> UserError:
    choices = " or ".join(outputs.shown(index) for index in sorted(candidates))
    by = "imagenet_index or wnid" if outputs.is_imagenet else "label, in full"
    detail = f", label {label!r}," if label != name else ""
    return UserError(f"class {name!r}{detail} could be output {choices}; say which in a --labels file ({by})")


def _unmappable(lost: Sequence[str], outputs: _Outputs, classes: int) -> UserError:
    column = "imagenet_index" if outputs.is_imagenet else "label"
    file = (
        f"; say which output it is in a --labels file (first line class,{column}, then {lost[0]},…), or name all "
        "outputs in ?labels=names.txt"
    )
    named = ", ".join(map(repr, lost[:5])) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
    what = f"class {named} is" if len(lost) == 1 else f"the classes {named} are"
    hint = outputs.hint(lost[0])
    if len(lost) > 1 and not outputs.is_unnamed:
        close = {name: [_synonym(output, name) for output in outputs.nearest(name)] for name in lost[:5]}
        texts = [f"for {name!r} {' or '.join(names) or 'none'}" for name, names in close.items()]
        hint = f"nearest: {', '.join(texts)}" if any(close.values()) else hint
    if len(outputs.space) < classes and not outputs.is_unnamed:
        hint += f"; that is fewer than the {classes} classes of the images: is the list of its names too short?"
        file = ""
    return UserError(f"{what} no output of the model; {hint}{'' if outputs.is_unnamed else file}")


def _synonym(output: str, name: str) -> str:
    """Return the first of an output's comma-separated names that has the word, else the first of all."""
    synonyms = [part.strip() for part in output.split(",")]
    return next((part for part in synonyms if normalised(name) in normalised(part).split()), synonyms[0])


def outcomes(probabilities: NDArray[np.float32], label_map: LabelMap, labels: Sequence[str]) -> dict[str, list[Any]]:
    """Return the outcome columns of the table, one value per row of the scores.

    Full argmax: the best of all outputs; its class, else its own name. Restricted argmax: the best of the dataset's
    classes, a class scoring as its best output does, so that having many aliases is no advantage.
    ``confidence`` is the best output's probability. ``confidence_restricted`` and ``probability_of_label`` add up the
    outputs of a class; the former divides by the sum over all classes. ``topk`` holds up to 5 names, each class once at
    the place of its best output, nothing with probability 0.

    A row of zeros is a model without an answer: no prediction, not correct. If no class has any probability,
    there is no restricted prediction. Rows that are not probabilities (NaN) get status ``error`` and nulls.
    Rows of ``probabilities`` (n, outputs) sum to 1.
    """
    count = len(label_map.outputs)
    if probabilities.ndim != 2 or probabilities.shape != (len(labels), count):
        raise UserError(f"the model answered with shape {probabilities.shape}, expected {(len(labels), count)}")
    position = {name: index for index, name in enumerate(label_map.classes)}
    strange = next((label for label in labels if label not in position), None)
    if strange is not None:
        raise unknown("class of the dataset", strange, label_map.classes)
    if not len(labels):
        return {column: [] for column in _COLUMNS}
    truth = np.array([position[label] for label in labels])
    usable = (probabilities.min(axis=1) >= 0) & (probabilities.max(axis=1) <= 1.001)
    scores = np.where(usable[:, None], probabilities, np.float32(0)) if not usable.all() else probabilities
    columns = _columns(scores, label_map, truth)
    columns["label"] = list(labels)
    columns["status"] = ["ok" if fine else "error" for fine in usable]
    columns["error"] = [None if fine else NOT_PROBABILITIES for fine in usable]
    for row in np.flatnonzero(~usable):
        for column in _COLUMNS:
            if column not in ("label", "status", "error"):
                columns[column][row] = None
    return {column: columns[column] for column in _COLUMNS}


_COLUMNS = (
    "label", "prediction", "correct", "prediction_restricted", "correct_restricted", "confidence",
    "confidence_restricted", "probability_of_label", "topk", "status", "error",
)  # fmt: skip


def _columns(scores: NDArray[np.float32], label_map: LabelMap, truth: NDArray[Any]) -> dict[str, list[Any]]:
    rows = np.arange(len(scores))
    names = np.array(label_map.outputs, dtype=object)
    owner = np.full(len(names), -1)
    for position, own in enumerate(label_map.members):
        owner[list(own)] = position
    best = scores.argmax(axis=1)
    confidence = scores[rows, best]
    answered = confidence > 0

    # Outputs in the order of their classes, so that one reduction a row gives every class.
    order = np.concatenate([np.array(own) for own in label_map.members])
    starts = np.cumsum([0, *(len(own) for own in label_map.members[:-1])])
    grouped = scores[:, order]
    best_of_class = np.maximum.reduceat(grouped, starts, axis=1)
    sum_of_class = np.add.reduceat(grouped, starts, axis=1, dtype=np.float64)
    restricted = best_of_class.argmax(axis=1)
    total = sum_of_class.sum(axis=1)
    within = best_of_class[rows, restricted] > 0
    share = np.divide(sum_of_class[rows, restricted], total, out=np.zeros(len(rows)), where=within)
    class_names = np.array(label_map.classes, dtype=object)
    return {
        "prediction": [name if held else None for name, held in zip(names[best], answered, strict=True)],
        "correct": (answered & (owner[best] == truth)).tolist(),
        "prediction_restricted": [
            name if held else None for name, held in zip(class_names[restricted], within, strict=True)
        ],
        "correct_restricted": (within & (restricted == truth)).tolist(),
        "confidence": confidence.tolist(),
        "confidence_restricted": share.tolist(),
        "probability_of_label": sum_of_class[rows, truth].tolist(),
        "topk": _topk(scores, label_map, names),
    }


def _topk(scores: NDArray[np.float32], label_map: LabelMap, names: NDArray[Any]) -> list[list[str]]:
    """Return names of the best outputs, best first, ties by index; of a class's aliases only the best one."""
    scores = scores.copy()
    rows = np.arange(len(scores))
    for own in label_map.members:
        if len(own) > 1:
            columns = np.array(own)
            aliases = scores[:, columns]
            best = aliases.argmax(axis=1)
            scores[:, columns] = 0
            scores[rows, columns[best]] = aliases[rows, best]
    kept = min(TOPK, scores.shape[1])
    top = np.sort(np.argpartition(scores, -kept, axis=1)[:, -kept:], axis=1)
    last = np.take_along_axis(scores, top, axis=1).min(axis=1)
    # If more are level with the last than there is room for, a partition takes any of them.
    for row in np.flatnonzero((last > 0) & ((scores >= last[:, None]).sum(axis=1) > kept)):
        top[row] = np.sort(np.argsort(-scores[row], kind="stable")[:kept])
    values = np.take_along_axis(scores, top, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    top, values = np.take_along_axis(top, order, axis=1), np.take_along_axis(values, order, axis=1)
    lists: list[list[str]] = names[top].tolist()
    positive = (values > 0).sum(axis=1).tolist()
    return [numbers[:number] for numbers, number in zip(lists, positive, strict=True)]
