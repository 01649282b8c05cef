"""Files that verbs write: names made from names in the data, which nobody has checked, and CSV."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.files import safe_part as safe_part
from holdfast.core.fingerprint import fingerprint
from holdfast.core.places import address, stands_for
from holdfast.core.types import Sample


def file_name(sample: Sample) -> str:
    """Return ``class/stem`` with nothing in it that a file system or a path could misread."""
    name = sample.sample_id.removeprefix(f"{sample.label}/")
    if name == sample.sample_id:  # "a" of class "dog" must not meet "dog/a"
        name = f"{name}-{fingerprint(name)[:8]}"
    return "/".join([safe_part(sample.label), *(safe_part(part) for part in name.split("/"))])


def check_apart(samples: Iterable[Sample], out: Path, *, option: str = "--out") -> None:
    """Raise a UserError if images of the collection lie below ``out``: results would mix with them or replace them."""
    root, url = out.resolve(), stands_for(out)
    paths = (getattr(sample.image, "path", None) for sample in samples)
    # Not Path.parent: of a million images that is most of the time.
    for folder in map(Path, {os.path.dirname(path) for path in paths if path}):  # noqa: PTH120
        folder_url = address(folder)
        inside = (
            bool(url) and f"{folder_url}/".startswith(f"{url}/")
            if folder_url
            else folder.resolve().is_relative_to(root)
        )
        if inside:
            raise UserError(f"the images of the dataset lie in {url or out} themselves; choose another {option}")
