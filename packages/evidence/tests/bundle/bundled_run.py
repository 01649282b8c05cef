"""A small real run below someone's home folder, and archives of any kind made of its bundle."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast import api
from holdfast.store import Run
from holdfast_evidence.archive import MANIFEST
from holdfast_evidence.bundle import bundle
from shapes import make_photos

USER = "annabel-archer"

_MODEL = """
import numpy as np

class Colour:
    labels = ("cross", "disc", "square")
    name, fingerprint = "python:bundle_models:colour", "1"

    def predict(self, images):
        if any(int(i[0, 0].sum()) % 7 == 0 for i in images):
            raise OSError(f"cannot read {__file__} any more")
        strong = [[((i[..., c] > 180) & (np.delete(i, c, 2).max(2) < 90)).mean() for c in (2, 0, 1)] for i in images]
        scores = np.asarray(strong, np.float32) + 0.05
        return scores / scores.sum(1, keepdims=True)

colour = Colour()
"""


def make_run(folder: Path) -> Run:
    """Images under three conditions, below a user's name; one cannot be read, and the model fails on some."""
    home = folder / "home" / USER
    photos = make_photos(home / "my images")
    (photos / "images" / "disc" / "broken.png").write_bytes(b"no picture")
    modules = home / "modules"
    modules.mkdir()
    (modules / "bundle_models.py").write_text(_MODEL)
    sys.path.insert(0, str(modules))
    try:
        results = api.evaluate(
            photos / "images", masks=photos / "masks", models="python:bundle_models:colour", out=home / "first run",
            scenarios="original,blur_background,grey",
        )  # fmt: skip
    finally:
        sys.path.remove(str(modules))
    return results.run


def members_of(path: Path) -> dict[str, bytes]:
    """The members of an archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def small_bundle(run: Run, out: Path) -> dict[str, bytes]:
    """The members of a bundle without a report."""
    return members_of(bundle(run.path, out, report=False).path)


def with_manifest(
    members: Mapping[str, bytes], change: Callable[[dict[str, object]], object] = dict
) -> dict[str, bytes]:
    """Members with a manifest that fits them, so that nothing but what is inside them can be wrong."""
    told = json.loads(members[MANIFEST])
    others = {name: data for name, data in members.items() if name != MANIFEST}
    told["files"] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in others.items()
    }
    change(told)
    return {**others, MANIFEST: json.dumps(told).encode()}


def pack(members: Mapping[str, bytes], path: Path, **options: int) -> Path:
    """An archive of these members; options are attributes of each ZipInfo."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            about = zipfile.ZipInfo(name)
            about.external_attr = 0o100644 << 16
            for option, value in options.items():
                setattr(about, option, value)
            archive.writestr(about, data)
    return path
