"""A small real run whose images are PNG and JPEG, with camera data, broken, or without a mask."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
from PIL import Image

from holdfast import api
from holdfast.store import Run
from shapes import make_photos

OWNER = "annabel-archer"
HOSTILE = '"]}\n---\n# <script>alert(1)</script> | `x` {"$date": 0}: - &a *b !!python/object'

_MODELS = """
import numpy as np

class Colour:
    labels = ("cross", "disc", "square")

    def __init__(self, name, tilt):
        self.name, self.fingerprint, self.tilt = name, name, tilt

    def predict(self, images):
        strong = [[((i[..., c] > 180) & (np.delete(i, c, 2).max(2) < 90)).mean() for c in (2, 0, 1)] for i in images]
        scores = np.asarray(strong, np.float32) + 0.05
        scores[:, 0] += self.tilt
        return scores / scores.sum(1, keepdims=True)

good, tilted = Colour("python:export_models:good", 0), Colour("python:export_models:tilted", 0.2)
"""


def make_pictures(folder: Path) -> Path:
    """Twelve images of three classes: one JPEG, one with camera data, one that is broken, one without a mask."""
    photos = make_photos(folder)
    disc = photos / "images" / "disc"
    with Image.open(disc / "0.png") as picture:
        picture.save(disc / "0.jpg", quality=90)
    with Image.open(disc / "1.png") as picture:
        camera = Image.Exif()
        camera[0x0112], camera[0x010F] = 6, OWNER  # is on its side; the maker of the camera
        picture.transpose(Image.Transpose.ROTATE_90).save(disc / "1.jpg", quality=90, exif=camera)
    for name in ("0", "1"):
        (disc / f"{name}.png").unlink()
    (disc / "broken.png").write_bytes(b"no picture")
    (photos / "masks" / "cross" / "3.png").unlink()
    return photos


def make_run(folder: Path, scenarios: str = "original,blur_background,grey,random_background") -> Run:
    """Two models on the images, in a folder that bears a user's name."""
    home = folder / "home" / OWNER
    photos = make_pictures(home / "my images")
    modules = folder / "modules"
    modules.mkdir()
    (modules / "export_models.py").write_text(_MODELS)
    sys.path.insert(0, str(modules))
    try:
        results = api.evaluate(
            photos / "images", masks=photos / "masks", out=home / "first run", scenarios=scenarios,
            models="python:export_models:good,python:export_models:tilted",
        )  # fmt: skip
    finally:
        sys.path.remove(str(modules))
    return results.run


def rewritten(run: Run, out: Path, change: dict[str, dict[str, str]]) -> Run:
    """A copy of a run's table with other words: column → old → new; its images stay where they are."""
    rows = run.rows()
    for column, words in change.items():
        place = rows.schema.get_field_index(column)
        texts = [words.get(one, one) for one in rows[column].to_pylist()]
        rows = rows.set_column(place, rows.schema.field(place), pa.array(texts).dictionary_encode())
    other = Run(out)
    other.begin(run.spec())
    other.write_samples(run.samples())
    other.predictions.write(rows)
    return other
