"""The section on automatic masks shows the least sure ones with their outlines."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

import holdfast
from holdfast.pipeline.thumbnails import thumbnails
from holdfast.reports.static.made_masks import OUTLINE, least_sure, outlined


def test_the_least_sure_masks_are_shown_first_and_outlined(photos: Path, toy_models: str, tmp_path: Path) -> None:
    made = holdfast.mask(photos / "images", annotator="threshold", out=tmp_path / "masks", quiet=True)
    options = {"models": f"{toy_models}:colour", "scenarios": "original", "quiet": True}
    run = holdfast.evaluate(photos / "images", masks=tmp_path / "masks", out=tmp_path / "run", **options).run
    (section,) = least_sure([run], thumbnails)
    tiles = section.parts[0].photos[0].tiles
    doubtful = sum(row["confidence"] < 0.5 for row in made)
    assert len(tiles) == 8 and f"12 masks made automatically, {doubtful} of them doubtful" in section.lead[0]
    assert [tile.caption for tile in tiles] == [
        f"{row['sample_id']}, confidence {row['confidence']:.2f}" for row in made[:8]
    ]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(tiles[0].picture)))).astype(int)
    assert (np.abs(pixels - OUTLINE).sum(axis=2) < 150).sum() > 20
    own = holdfast.evaluate(photos, out=tmp_path / "own", **options).run
    assert least_sure([own], thumbnails) == []  # exact masks of the dataset are not judged
    assert outlined(b"no image", tmp_path / "none.png") == b"no image"
