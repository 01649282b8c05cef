"""Conditions that change colour or brightness.

Hues are OpenCV's for 8 bits: 0..179, two degrees a step. For brightness the paper names ``addWeighted`` and unsharp
masking and gives no numbers. Ours: gain 1.4, then unsharp masking by half the difference to a 5 × 5 blur, in one
saturating sum: 1.4·(1.5·image − 0.5·blur). The released code, ``addWeighted(image, 1.5, blur, 0.9, 1.9)``, adds the
blur instead of subtracting it: no sharpening, and overexposed at 2.4 times the brightness. It has the background only,
and the σ of its blur is not stated; OpenCV's for 9 × 9 is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask
from holdfast.scenarios.base.compositing import full_scale
from holdfast.scenarios.base.definition import Parameter, Scenario, scenario

HUES = 180


@scenario(
    id="grey",
    summary="background in greyscale",
    family="colour",
    group="static",
    aliases=("image_grey", "image_gray", "gray", "greyscale", "grayscale"),
    native="rgb",
    changes="background",
)
def grey(image: Image, mask: Mask, **_: Any) -> Image:
    """Make all three channels luma (0.299 R + 0.587 G + 0.114 B). The released code has no such scenario."""
    return cast(Image, cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB))


def _in_one_colour(channel: int, hues: tuple[range, ...]) -> Callable[..., Any]:
    """Return the body of ``red``, ``green`` and ``blue``: keep a channel, or draw one of the hues."""
    keep = tuple(0xFFFF if index == channel else 0 for index in range(4))
    choices = [hue for group in hues for hue in group]

    def single(image: Image, mask: Mask, *, rng: np.random.Generator, method: str, **_: Any) -> Any:
        """Keep a single channel (paper), or give all pixels one random hue (released).

        The released red is drawn from 0..29 and 150..180. OpenCV's hue ends at 179: 180 overflows to the hue 0, and
        that is what it gives here, too.
        """
        if method == "channel":
            return cv2.bitwise_and(image, cast(Any, keep))  # OpenCV takes a colour for an image, saturated
        hue = choices[int(rng.integers(len(choices)))] % HUES
        return _with_hue(image, np.full(256, hue, np.uint8)), {"hue": hue}

    return single


def _with_hue(image: Image, table: NDArray[np.uint8]) -> Image:
    """Return the whole image with every hue replaced by a table of 256; saturation and value stay."""
    if image.dtype != np.uint8:  # OpenCV has hues of 16 bits as floats only, in degrees
        top = np.float32(np.iinfo(image.dtype).max)
        real: Any = cv2.cvtColor(image.astype(np.float32) / top, cv2.COLOR_RGB2HSV)
        step = np.floor(real[..., 0] / 2).astype(np.uint8)
        real[..., 0] = 2 * (table[step] + real[..., 0] / 2 - step)
        return cast(Image, np.rint(cv2.cvtColor(real, cv2.COLOR_HSV2RGB) * top).astype(image.dtype))
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
        native="rgb",
        changes="background",
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


@scenario(
    id="rainbow",
    summary="background hue turned by a random angle",
    family="colour",
    group="static",
    aliases=("image_rainbow",),
    native="rgb",
    changes="background",
    parameters=(
        Parameter("shift_low", 30, "smallest shift, in steps of two degrees", minimum=0, maximum=179),
        Parameter("shift_high", 150, "largest shift, in steps of two degrees", minimum=0, maximum=179),
        Parameter("wrap", HUES, "180 turns the whole circle; 256 wraps in eight bits first", choices=(HUES, 256)),
    ),
    variants={"released": {"shift_low": 0, "shift_high": 90, "wrap": 256}},
    severities={
        severity: {"shift_low": shift, "shift_high": shift}
        for severity, shift in enumerate((9, 22, 45, 68, 90), start=1)
    },
)
def rainbow(
    image: Image, mask: Mask, *, rng: np.random.Generator, shift_low: int, shift_high: int, wrap: int, **_: Any
) -> tuple[Image, dict[str, int]]:
    """Shift all hues by one random number between the two ends, both included.

    The paper gives no range; ours keeps at least 60 degrees away from the true hue on either side. The released code
    draws 0..90 and adds in uint8: a sum over 255 starts again at 0 before the remainder by 180 is taken, so hues
    from 166 up come out wrong by 76 steps.
    """
    shift = draw_shift(rng, shift_low, shift_high)
    return _with_hue(image, ((np.arange(256) + shift) % wrap % HUES).astype(np.uint8)), {"shift": shift}


GAIN = 1.4
SHARPEN = 0.5
BRIGHTNESS = (
    Parameter("image_weight", GAIN * (1 + SHARPEN), "weight of the image in the sum", minimum=-20, maximum=20),
    Parameter("blur_weight", -GAIN * SHARPEN, "weight of its blurred copy (below 0 sharpens)", minimum=-20, maximum=20),
    Parameter("offset", 0.0, "added to every channel", minimum=-255, maximum=255),
    Parameter("radius", 2, "blur kernel of 2·radius + 1 pixels", minimum=1, maximum=500),
)
_DECLARED: dict[str, Any] = {
    "family": "light", "group": "static", "native": "bands", "parameters": BRIGHTNESS, "shared": True,
    "severities": {
        severity: {"image_weight": gain * (1 + SHARPEN), "blur_weight": -gain * SHARPEN}
        for severity, gain in enumerate((1.1, 1.2, 1.4, 1.7, 2.1), start=1)
    },
}  # fmt: skip


def brighten(image: Image, image_weight: float, blur_weight: float, offset: float, radius: int) -> Image:
    """Return image_weight·image + blur_weight·blur + offset of the whole image, rounded, clipped to its scale."""
    blurred = cv2.GaussianBlur(image, (2 * radius + 1, 2 * radius + 1), 0)
    top = full_scale(image)
    bright = cv2.addWeighted(image, image_weight, blurred, blur_weight, offset * top / 255, dst=blurred)
    return cast(Image, bright if top == 255 else np.minimum(bright, image.dtype.type(top)))


def _brightened(image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, **settings: Any) -> Image:
    """Overexpose the whole image."""
    key = tuple(settings[parameter.name] for parameter in BRIGHTNESS)
    return cast(Image, context.memo(("bright", *key), lambda: brighten(image, **settings)))


bright_background = scenario(
    id="bright_background", summary="brighter and sharper outside the mask", changes="background",
    aliases=("bright_bg", "brightness_background"),
    variants={"released": {"image_weight": 1.5, "blur_weight": 0.9, "offset": 1.9, "radius": 4}}, **_DECLARED,
)(_brightened)  # fmt: skip
bright_object = scenario(
    id="bright_object", summary="brighter and sharper inside the mask", changes="object",
    aliases=("bright_foreground", "brightness_object"), **_DECLARED,
)(_brightened)  # fmt: skip
