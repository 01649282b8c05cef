"""Mask makers."""

from __future__ import annotations

from holdfast.core.names import parse_name
from holdfast.core.protocols import Annotator
from holdfast.registry import annotators


def load_annotator(text: str) -> Annotator:
    """The mask maker of a name such as ``u2netp`` or ``grabcut?margin=0.1&iterations=5``."""
    name = parse_name(text, tagged=False)
    annotator: Annotator = annotators.get(name.scheme or name.name)(name)
    return annotator
