"""Hash many row ids that share most of their text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any

from holdfast.core.fingerprint import canonical_json
from holdfast.core.schema import KEY, SCHEMA_VERSION

OPEN = ("image", "model", "sample_id", "source_id", "mask", "fingerprint")
"""The places of a ``row_template``, in the order in which they are filled."""

quoted = encode_basestring
"""Return a string as canonical JSON spells it; templates are filled with quoted strings."""


def template(value: Any, open_places: Sequence[str]) -> str:
    """Return the canonical JSON of a value as a %-template.

    Args:
        value: holds the string ``place(name)`` wherever a string is still open.
        open_places: the names, in the order in which canonical JSON has them.
    """
    pieces = re.split(r'"\\u0000(\w+)\\u0000"', canonical_json(value))
    assert tuple(pieces[1::2]) == tuple(open_places), "canonical JSON is sorted"
    return "%s".join(piece.replace("%", "%%") for piece in pieces[::2])


def place(name: str) -> str:
    """Return the string that marks an open place of a template."""
    return f"\0{name}\0"


def row_template(key: Mapping[str, Any]) -> str:
    """Return the text whose hash is ``core.schema.row_id``, with the places ``OPEN``.

    Filling and hashing it takes a tenth of the time of ``row_id``.
    The key's own ``sample_id``, ``source_id`` and ``model`` are not used.
    """
    named = {name: place(name) if name in OPEN else key[name] for name in KEY.names}
    whole = {"key": named, "image": place("image"), "mask": place("mask"), "model": place("fingerprint")}
    return template(whole | {"schema": SCHEMA_VERSION}, OPEN)


def hashed(text: str) -> str:
    """Return the row id of a filled template: 32 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
