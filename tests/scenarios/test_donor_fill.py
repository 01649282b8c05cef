"""Objects of donors are painted over only if the network of --fill takes the image."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.core.types import Donor
from holdfast.scenarios.background import donor_background


@pytest.mark.parametrize(("bands", "kind", "asked"), [(3, np.uint8, True), (3, np.uint16, False), (4, np.uint8, False)])
def test_other_depths_and_bands_are_tiled(bands: int, kind: type, asked: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 200, (40, 40, bands)).astype(kind)
    mask = np.zeros((40, 40), bool)
    mask[10:20, 10:20] = True
    pictures: list[np.ndarray] = []

    def fill(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
        pictures.append(image)
        return np.zeros_like(image)

    background, facts = donor_background(Donor("d", "b", pixels, mask), fill)
    assert bool(pictures) == asked == (not background.any())
    assert background.dtype == kind and background.shape == pixels.shape and not facts["donor_unmasked"]
