"""Mask makers: objects that find the mask of an image's object."""

from __future__ import annotations

from holdfast.core.errors import UserError
from holdfast.core.names import parse_name
from holdfast.core.protocols import Annotator, GuidedAnnotator
from holdfast.registry import annotators

GUIDED = ("grabcut", "sam:mobile", "sam:NAME-OR-FOLDER")  # the mask makers of our own that take guidance


def load_annotator(text: str) -> Annotator:
    """Load a mask maker by a name such as ``u2netp``, ``grabcut?margin=0.1&iterations=5`` or ``sam:FOLDER``."""
    name = parse_name(text, tagged=False)
    annotator: Annotator = annotators.get(name.scheme or name.name)(name)
    return annotator


def load_guided(text: str) -> GuidedAnnotator:
    """Load a mask maker by name; raise UserError if a person cannot guide it with a box and points."""
    annotator = load_annotator(text)
    if not isinstance(annotator, GuidedAnnotator):
        raise UserError(f"the mask maker {text!r} takes no box and no points; these do: {', '.join(GUIDED)}")
    return annotator
