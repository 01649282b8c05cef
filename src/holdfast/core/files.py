"""Files that are whole or not there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = ".unfinished-"
"""How the name of a file begins until it is complete; what a killed process leaves can be told by it."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A new name beside ``path``: becomes ``path`` when the block ends well, is deleted when it does not.

    Makes the folders above it. The data is not forced to the disk: that would cost more than encoding an image, and
    guards against power cuts only.
    """
    temporary = path.with_name(f"{UNFINISHED}{uuid.uuid4().hex}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def clear_unfinished(folder: Path) -> None:
    """Delete what killed processes left below a folder."""
    for leftover in folder.rglob(f"{UNFINISHED}*"):
        leftover.unlink(missing_ok=True)
