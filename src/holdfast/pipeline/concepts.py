"""Attributes of the backgrounds that a run pasted in: colour, light and texture of their pixels, and metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.lazy import pd
from holdfast.core.types import Image, Sample
from holdfast.engine import core_count
from holdfast.pipeline.donors import load_sample, make_pool
from holdfast.pipeline.metadata import background_pixels
from holdfast.pipeline.samples import read
from holdfast.pipeline.thumbnails import spec_of
from holdfast.stats.effects.concepts import CONDITION
from holdfast.store import Run

HUES = {"red": (330, 20), "brown or yellow": (20, 70), "green": (70, 170), "blue": (170, 260), "purple": (260, 330)}
MOSTLY, SOME = 0.4, 0.3  # share of the pixels that makes a background green, and one that shows grass
DARK, BRIGHT = 0.35, 0.7  # mean value of the pixels
SMOOTH = 0.02  # mean change to the neighbours, on a scale of 0 to 1, below which a pixel is smooth


def pixel_concepts(image: Image, background: NDArray[np.bool_]) -> dict[str, float]:
    """Return name → 1 or 0: what the background pixels of an image look like.

    Grass is green with texture; sky is blue or nearly white and smooth in the upper half; water is blue in the lower
    half; sand is bright, brown or yellow, and pale in the lower half.
    """
    hue, saturation, value = cv2.split(cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2HSV))
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32) / 255
    change = cv2.blur(np.hypot(*(cv2.Sobel(grey, cv2.CV_32F, x, 1 - x, ksize=3) / 8 for x in (1, 0))), (5, 5))
    coloured = (saturation > 0.2) & (value > 0.15)
    seen = {
        name: coloured & ((hue >= low) & (hue < high) if low < high else (hue >= low) | (hue < high))
        for name, (low, high) in HUES.items()
    }
    upper = np.zeros(background.shape, np.bool_)
    upper[: len(upper) // 2] = True

    def share(pixels: NDArray[np.bool_], part: NDArray[np.bool_] = background) -> float:
        return float((pixels & background & part).sum() / max((background & part).sum(), 1))

    light, smooth = float(value[background].mean()), change < SMOOTH
    pale = (value > 0.8) & (saturation < 0.15)
    marks = {name: share(pixels) >= MOSTLY for name, pixels in seen.items()} | {
        "grey": share(~coloured) >= MOSTLY, "dark": light < DARK, "bright": light > BRIGHT,
        "smooth": share(smooth) >= 0.6, "textured": share(~smooth) >= 0.6,
        "grass": share(seen["green"] & ~smooth) >= SOME,
        "sky": share((seen["blue"] | pale) & smooth, upper) >= 0.5,
        "water": share(seen["blue"], ~upper) >= 0.5,
        "sand": share(seen["brown or yellow"] & (value > 0.5) & (saturation < 0.6), ~upper) >= 0.5,
    }  # fmt: skip
    return {name: float(has) for name, has in marks.items()}


def _of_sample(sample: Sample, max_pixels: int) -> dict[str, float]:
    try:
        image, mask, _ = load_sample(sample, max_pixels)
    except SampleError:
        return {}
    small, background = background_pixels(image, mask)
    return pixel_concepts(small, background) if background.sum() >= 16 else {}


def concepts_of(runs: Sequence[Run], groups: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Return a row per donor of ``random_background`` and a column per attribute: 1, 0, or NaN if it is unknown.

    Args:
        runs: the runs, whose data must be at hand.
        groups: attribute → source_id → value, as ``groups_of`` returns them: columns ``ATTRIBUTE: VALUE``.
    """
    rows: dict[str, dict[str, float]] = {}
    for run in runs:
        lent = run.rows(["condition", "donor_id"]).to_pandas()
        donors = set(lent.loc[lent["condition"].astype(str) == CONDITION, "donor_id"].dropna().astype(str))
        if not donors:
            continue
        spec = spec_of(run)
        pool = make_pool(read(spec).samples, spec.backgrounds, max_pixels=spec.max_pixels)
        lenders = [sample for sample in pool.samples if sample.sample_id in donors]
        with ThreadPoolExecutor(core_count()) as threads:
            each = threads.map(partial(_of_sample, max_pixels=spec.max_pixels), lenders)
            rows |= {lender.sample_id: seen for lender, seen in zip(lenders, each, strict=True)}
        for name, values in groups.items():
            for lender in lenders:
                own = values.get(lender.source_id)
                stated = {f"{name}: {value}": float(own == value) for value in set(values.values())}
                rows[lender.sample_id] |= stated if own is not None else {}
    if not rows:
        raise UserError(f"--concepts needs answers under {CONDITION}: run eval with --scenarios original,{CONDITION}")
    return pd.DataFrame.from_dict(rows, orient="index").astype(float)
