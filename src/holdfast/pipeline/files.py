"""Names of files made from names in the data, which nobody has checked."""

from __future__ import annotations

import re

from holdfast.core.fingerprint import fingerprint
from holdfast.core.types import Sample


def file_name(sample: Sample) -> str:
    """``class/stem`` with nothing in it that a file system or a path could misread."""
    name = sample.sample_id.removeprefix(f"{sample.label}/")
    return "/".join([_safe(sample.label), *(_safe(part) for part in name.split("/"))])


def _safe(part: str) -> str:
    clean = re.sub(r"[^\w ()+,=-]", "_", part).strip() or "_"
    # Two names that differ only in what was replaced must not meet in one file.
    return clean if clean == part and len(part) <= 120 else f"{clean[:100]}-{fingerprint(part)[:8]}"
