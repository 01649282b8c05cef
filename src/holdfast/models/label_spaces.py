"""Label spaces of models: which output is which class; outputs turned into probabilities."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import UserError
from holdfast.core.types import LabelSpace
from holdfast.models.options import existing_file

IMAGENET_OUTPUTS = 1000


@functools.cache
def imagenet(outputs: int = IMAGENET_OUTPUTS) -> LabelSpace | None:
    """Return the ImageNet label space with this many outputs (1k, 12k, 21k and its variants), or None.

    1,001 outputs are TensorFlow's: the thousand behind one for the background.
    """
    if outputs == IMAGENET_OUTPUTS:
        with suppress(OSError, KeyError):  # another version of timm
            return _thousand()
    from timm.data import ImageNetInfo, infer_imagenet_subset

    if outputs == IMAGENET_OUTPUTS + 1:
        thousand = imagenet()
        assert thousand is not None
        return LabelSpace(("background", *thousand.names), ("", *thousand.wnids))
    subset = infer_imagenet_subset({"num_classes": outputs})
    if subset is None:
        return None
    info = ImageNetInfo(subset)
    return LabelSpace(tuple(info.label_descriptions()), tuple(info.label_names()))


def _thousand() -> LabelSpace:
    """Return ImageNet-1k's labels from timm's files: importing timm for them takes a second."""
    folder = Path(str(getattr(find_spec("timm"), "origin", ""))).parent / "data" / "_info"
    lines = (folder / "imagenet_synset_to_lemma.txt").read_text(encoding="utf-8").splitlines()
    wnids = (folder / "imagenet_synsets.txt").read_text(encoding="utf-8").splitlines()
    lemmas = dict(csv.reader(lines, delimiter="\t"))
    return LabelSpace(tuple(lemmas[wnid] for wnid in wnids), tuple(wnids))


def named(names: Sequence[str]) -> LabelSpace:
    """Return a space of these names; if they are ImageNet-1k's in its order, with their WordNet ids."""
    space = LabelSpace(tuple(names))
    if len(space) not in (IMAGENET_OUTPUTS, IMAGENET_OUTPUTS + 1):
        return space
    reference = imagenet(len(space))
    assert reference is not None
    # Spellings differ between libraries ("crane bird"), so most names have to agree rather than all.
    agreeing = sum(bool(_words(name) & _words(known)) for name, known in zip(space.names, reference.names, strict=True))
    return LabelSpace(space.names, reference.wnids) if agreeing >= 0.9 * IMAGENET_OUTPUTS else space


def _words(name: str) -> set[str]:
    return {part.strip().casefold().replace("_", " ") for part in name.split(",")}


def numbered(outputs: int) -> LabelSpace:
    """Return a space whose outputs are called "0", "1" and so on."""
    return LabelSpace(tuple(str(index) for index in range(outputs)))


def from_json(text: str, file_name: str) -> LabelSpace:
    """Return the space named in the metadata of a weight file, a JSON list."""
    try:
        names = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise UserError(f"the metadata 'classes' of {file_name} must be a JSON list of names")
    return named(names)


def from_option(option: str | None, outputs: int, otherwise: LabelSpace | None) -> LabelSpace:
    """Return the space of ``?labels=`` (a file with one name per line, or ``imagenet``), else the model's own.

    ``otherwise`` is what the model says of itself, None if it says nothing.
    """
    if option == "imagenet":
        space = imagenet(outputs)
        if space is None:
            raise UserError(f"labels=imagenet needs 1000 outputs, or those of another ImageNet; it has {outputs}")
        return space
    if option is not None:
        space = named(read_names(option))
    else:
        space = otherwise if otherwise is not None else numbered(outputs)
    if len(space) != outputs:
        origin = f"the label file {option!r}" if option is not None else "the model's own list"
        raise UserError(f"the model has {outputs} outputs, but {origin} names {len(space)}: give as many names")
    return space


def read_names(path: str) -> list[str]:
    """Read one name per line; empty lines at the end do not count."""
    file = existing_file(path, what="label file")
    try:
        names = [line.strip() for line in file.read_text(encoding="utf-8-sig").rstrip().splitlines()]
    except UnicodeDecodeError as error:
        raise UserError(f"the label file {path!r} is not UTF-8 text with one name a line") from error
    if not names or not all(names):
        raise UserError(f"the label file {path!r} should hold one name a line and no empty lines")
    return names


OUTPUTS = ("auto", "logits", "probabilities")


def probabilities(
    answer: ArrayLike, *, images: int, labels: int, outputs: str, name: str, independent: bool = False
) -> NDArray[np.float32]:
    """Return scores, (n, labels), as probabilities.

    Each row is judged on its own, so that the batch does not matter. ``auto`` takes a row that is non-negative and
    sums to 1 (within 1e-3) as it is and softmaxes any other. ``independent``: scores of labels that go together;
    logits get the logistic function, others are 0..1. Rows with NaN stay NaN: they are that image's trouble.
    Raises UserError: the shape does not fit, or independent scores of ``auto`` leave 0..1, so that no one knows what
    those within mean; no other image would change that.
    """
    try:
        scores = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{name} should answer with an array of numbers, one row per image") from error
    if scores.ndim > 2 and scores.size == images * labels:
        scores = scores.reshape(images, labels)
    if scores.shape != (images, labels):
        raise UserError(f"{name} answered with shape {scores.shape}, expected {(images, labels)}")
    # A logit of −inf rules an output out; +inf leaves nothing to compare and is reported as NaN is.
    scores = np.where((scores < np.inf).all(axis=1, keepdims=True), scores, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = scores.sum(axis=1, keepdims=True)
        exponential = np.exp(scores - scores.max(axis=1, keepdims=True))
        softmax = exponential / exponential.sum(axis=1, keepdims=True)
        positive = scores.min(axis=1, keepdims=True) >= 0
        if independent:
            within = positive & (scores.max(axis=1, keepdims=True) <= 1)
            if outputs == "auto" and not (within | np.isnan(scores)).all():
                raise UserError(
                    f"{name} answers with scores outside 0..1: say what they are, ?outputs=logits after its name, or "
                    "an attribute outputs = 'logits' of an object"
                )
            rows = 1 / (1 + np.exp(-scores)) if outputs == "logits" else np.where(within, scores, np.nan)
        elif outputs == "probabilities":
            rows = np.where(positive, scores / total, np.nan)
        elif outputs == "logits":
            rows = softmax
        else:
            rows = np.where(positive & (np.abs(total - 1) < 1e-3), scores / total, softmax)
    return np.asarray(rows, np.float32)
