"""The scenario ``specks``: bright specks on the background."""

from __future__ import annotations

from typing import Any

import numpy as np

import holdfast
from holdfast.core.types import Image, Mask
from holdfast.scenarios.base.definition import Parameter, severities


@holdfast.scenario(
    id="specks",
    summary="bright specks on the background",
    family="clutter",
    changes="background",
    parameters=(Parameter("density", 0.5, "specks per 1,000 pixels", 0.0, 100.0),),
    severities=severities("density", (0.25, 0.5, 1.0, 2.0, 4.0)),
)
def specks(image: Image, mask: Mask, *, rng: np.random.Generator, density: float, **_: Any) -> Image:
    speckled = image.copy()
    for y, x in rng.integers(0, mask.shape, (round(density * mask.size / 1000), 2)):
        speckled[y : y + 3, x : x + 3] = 240
    return speckled
