"""Check the options behind the ``?`` of a model's name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.names import Name, unknown

PREPROCESSING: Mapping[str, type] = {
    "size": str, "mean": str, "std": str, "crop": float, "interpolation": str, "crop_mode": str,
    "channels": str, "range": int,
}  # fmt: skip
"""Options that change how images are prepared: ``size=224`` or ``192/256`` (height/width), ``mean=0.5`` or
``0.485/0.456/0.406`` on a 0..1 scale, ``std`` likewise, ``crop=0.875`` (share of the resized image that is kept),
``interpolation=bilinear|bicubic``, ``crop_mode=center|squash|border`` (keep the middle, squeeze, or pad),
``channels=bgr`` (blue first: ``mean`` and ``std`` then too), ``range=255`` (``mean`` and ``std`` are on a 0..255 scale:
a network of Caffe's takes ``channels=bgr&range=255&mean=104/117/123&std=1``)."""


def numbers(text: str, *, option: str, counts: Sequence[int]) -> list[float]:
    """Parse ``0.5`` or ``0.485/0.456/0.406``. The separator is a slash because lists of models use commas."""
    try:
        values = [float(part) for part in re.split(r"[/,;]", text)]
    except ValueError:
        values = []
    if len(values) not in counts:
        expected = " or ".join(str(count) for count in counts)
        raise UserError(f"option {option}={text} should be {expected} number(s) separated by /")
    return values


def preprocessing_overrides(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``PREPROCESSING`` options as timm's data configuration spells them."""
    overrides: dict[str, Any] = {}
    if "size" in options:
        size = [int(number) for number in numbers(options["size"], option="size", counts=(1, 2))]
        if not all(1 <= side <= 4096 for side in size):
            raise UserError(f"option size={options['size']} must be between 1 and 4096")
        overrides["input_size"] = (3, size[0], size[-1])
    if options.get("range", 1) not in (1, 255):
        raise UserError(f"option range={options['range']} must be 1 or 255, the highest value of a pixel")
    if "range" in options and not {"mean", "std"} <= set(options):
        raise UserError("option range is the scale of mean and std: give both, for example range=255&mean=128&std=128")
    blue_first = options.get("channels") == "bgr"
    for option in ("mean", "std"):
        if option in options:
            values = numbers(options[option], option=option, counts=(1, 3)) * 3
            values = [value / options.get("range", 1) for value in values[:3]]
            overrides[option] = tuple(reversed(values) if blue_first else values)
    if "std" in overrides and min(overrides["std"]) <= 0:
        raise UserError(f"option std={options['std']} must be above 0")
    if "crop" in options:
        if not 0 < options["crop"] <= 1:
            raise UserError(f"option crop={options['crop']} must be above 0 and at most 1")
        overrides["crop_pct"] = options["crop"]
    choices = {
        "interpolation": ("bilinear", "bicubic", "nearest", "lanczos"), "crop_mode": ("center", "squash", "border"),
        "channels": ("rgb", "bgr"),
    }  # fmt: skip
    for option, known in choices.items():
        if option in options:
            if options[option] not in known:
                raise unknown(option, options[option], known)
            overrides[option] = options[option]
    return overrides


def existing_file(path: str, *, what: str) -> Path:
    """Return the path of a file that exists, or raise a UserError."""
    file = Path(path)
    if not file.is_file():
        raise UserError(f"there is no {what} at {path!r}")
    return file


def display_name(name: Name, body: str) -> str:
    """Return what results call a model: with options, without folders, so that moving a file changes nothing."""
    shown = [
        f"{option}={Path(name.text(option)).name if option == 'labels' else str(value).lower()}"
        for option, value in sorted(name.options.items())
    ]
    return f"{name.scheme}:{body}" + (f"?{'&'.join(shown)}" if shown else "")
