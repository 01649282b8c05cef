"""Another colour for the background; the object keeps its own.

Hues are OpenCV's for 8 bits: 0..179, two degrees a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask, Rendered
from holdfast.scenarios.base.compositing import composite
from holdfast.scenarios.base.definition import Parameter, Scenario, Value, scenario

HUES = 180


@scenario(
    id="grey",
    summary="background in greyscale",
    family="colour",
    group="static",
    aliases=("image_grey", "image_gray", "gray", "greyscale", "grayscale"),
    leaves="foreground",
)
def grey(image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, feather: float) -> Image:
    """Make all three channels luma (0.299 R + 0.587 G + 0.114 B). The released code has no such scenario."""
    luma = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    plain = cast(Image, cv2.cvtColor(luma, cv2.COLOR_GRAY2RGB))
    return composite(image, plain, mask, feather=feather, context=context, reuse=True)


def _in_one_colour(channel: int, hues: tuple[range, ...]) -> Callable[..., Rendered | Image]:
    """Return the body of ``red``, ``green`` and ``blue``: keep a channel, or draw one of the hues."""
    keep = tuple(255 if index == channel else 0 for index in range(4))
    choices = [hue for group in hues for hue in group]

    def single(
        image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, method: str, feather: float
    ) -> Rendered | Image:
        """Keep a single channel of the background (paper), or give it one random hue (released).

        The released red is drawn from 0..29 and 150..180. OpenCV's hue ends at 179: 180 overflows to the hue 0, and
        that is what it gives here, too.
        """
        if method == "channel":
            kept = cast(Image, cv2.bitwise_and(image, cast(Any, keep)))  # OpenCV takes a colour for an image
            return composite(image, kept, mask, feather=feather, context=context, reuse=True)
        hue = choices[int(rng.integers(len(choices)))] % HUES
        tinted = _with_hue(image, np.full(256, hue, np.uint8))
        return Rendered(
            composite(image, tinted, mask, feather=feather, context=context, reuse=True), mask, {"hue": hue}
        )

    return single


def _with_hue(image: Image, table: NDArray[np.uint8]) -> Image:
    """Return the whole image with every hue replaced by a table of 256; saturation and value stay."""
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    hue = cv2.extractChannel(hsv, 0)
    cv2.LUT(hue, table, hue)  # in place: a fresh array costs more than the work
    cv2.insertChannel(hue, hsv, 0)
    return cast(Image, cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))


def _single_colour(name: str, channel: int, *hues: range) -> Scenario:
    letter = name[0]
    return scenario(
        id=name,
        summary=f"background keeps its {name} channel only",
        family="colour",
        group="static",
        aliases=(f"image_{letter}", letter, f"{name}_background"),
        leaves="foreground",
        parameters=(
            Parameter("method", "channel", "channel: the other two are 0; hue: one random hue", choices=METHODS),
        ),
        variants={"released": {"method": "hue"}},
    )(_in_one_colour(channel, hues))


METHODS = ("channel", "hue")
red = _single_colour("red", 0, range(0, 30), range(150, 181))
green = _single_colour("green", 1, range(30, 90))
blue = _single_colour("blue", 2, range(90, 150))


def draw_shift(rng: np.random.Generator, one_end: int, other_end: int) -> int:
    """Return a random shift between the two ends, both included."""
    low, high = sorted((one_end, other_end))
    return int(rng.integers(low, high + 1))


RAINBOW_SEVERITIES: dict[int, dict[str, Value]] = {
    severity: {"shift_low": shift, "shift_high": shift} for severity, shift in enumerate((9, 22, 45, 68, 90), start=1)
}


@scenario(
    id="rainbow",
    summary="background hue turned by a random angle",
    family="colour",
    group="static",
    aliases=("image_rainbow",),
    leaves="foreground",
    parameters=(
        Parameter("shift_low", 30, "smallest shift, in steps of two degrees", minimum=0, maximum=179),
        Parameter("shift_high", 150, "largest shift, in steps of two degrees", minimum=0, maximum=179),
        Parameter("wrap", HUES, "180 turns the whole circle; 256 wraps in eight bits first", choices=(HUES, 256)),
    ),
    variants={"released": {"shift_low": 0, "shift_high": 90, "wrap": 256}},
    severities=RAINBOW_SEVERITIES,
)
def rainbow(
    image: Image,
    mask: Mask,
    *,
    rng: np.random.Generator,
    context: Context,
    shift_low: int,
    shift_high: int,
    wrap: int,
    feather: float,
) -> Rendered:
    """Shift all hues of the background by one random number between the two ends, both included.

    The paper gives no range; ours keeps at least 60 degrees away from the true hue on either side. The released code
    draws 0..90 and adds in uint8: a sum over 255 starts again at 0 before the remainder by 180 is taken, so hues
    from 166 up come out wrong by 76 steps.
    """
    shift = draw_shift(rng, shift_low, shift_high)
    table = ((np.arange(256) + shift) % wrap % HUES).astype(np.uint8)
    turned = _with_hue(image, table)
    return Rendered(
        composite(image, turned, mask, feather=feather, context=context, reuse=True), mask, {"shift": shift}
    )
