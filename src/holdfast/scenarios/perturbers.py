"""Perturbers of NRTK as scenarios, ``nrtk:NAME?parameter=value``, if the package nrtk is installed.

Every perturber keeps NRTK's names and defaults of its parameters. A list reads ``0.1;0;0``, and nothing at all is
for None. The seed is drawn from the row's own random generator, so it is not a parameter.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import re
from typing import Any

import numpy as np

from holdfast import registry
from holdfast.core.errors import SampleError, UserError, missing_extra
from holdfast.core.types import Image, Mask, Rendered
from holdfast.scenarios.base.definition import Parameter, Value, scenario

SCHEME = "nrtk"

_MODULES = (
    "photometric.blur",
    "photometric.enhance",
    "photometric.noise",
    "environment",
    "geometric.random",
    "optical",
)
_PIXELS_MOVE = ("random_crop", "random_translation", "radial_distortion")  # the mask goes with them
_UNSET = ("seed", "is_static")
_STRENGTHS: dict[str, tuple[str, tuple[Value, ...]]] = {
    "average_blur": ("ksize", (3, 5, 7, 11, 15)),
    "gaussian_blur": ("ksize", (3, 7, 11, 15, 21)),
    "median_blur": ("ksize", (3, 5, 7, 9, 11)),
    "brightness": ("factor", (1.2, 1.4, 1.6, 1.8, 2.0)),
    "color": ("factor", (0.8, 0.6, 0.4, 0.2, 0.0)),
    "contrast": ("factor", (0.8, 0.65, 0.5, 0.35, 0.2)),
    "sharpness": ("factor", (0.8, 0.6, 0.4, 0.2, 0.0)),
    "gaussian_noise": ("var", (0.005, 0.01, 0.02, 0.04, 0.08)),
    "speckle_noise": ("var", (0.02, 0.05, 0.1, 0.2, 0.4)),
    **dict.fromkeys(
        ("salt_noise", "pepper_noise", "salt_and_pepper_noise"), ("amount", (0.01, 0.02, 0.04, 0.08, 0.16))
    ),
    "haze": ("factor", (0.2, 0.4, 0.7, 1.0, 1.5)),
    "radial_distortion": ("k", ("0.05;0;0", "0.1;0;0", "0.2;0;0", "0.3;0;0", "0.4;0;0")),
}
"""Perturber → parameter and its values at severities 1 to 5. NRTK has no severities; these are Holdfast's."""


def register_perturbers() -> None:
    """Register the perturbers that this installation of nrtk can run; UserError if it is not installed."""
    if any(name.startswith(f"{SCHEME}:") for name in registry.scenarios):
        return
    try:
        modules = [importlib.import_module(f"nrtk.impls.perturb_image.{module}") for module in _MODULES]
    except ModuleNotFoundError as error:
        raise UserError(missing_extra(error) or f"nrtk cannot be imported: {error}") from error
    major, minor, patch, *_ = (*map(int, re.findall(r"\d+", importlib.metadata.version("nrtk"))), 0, 0)
    for perturber in (getattr(module, name) for module in modules for name in module.__all__):
        if inspect.isclass(perturber):
            _register(perturber, version=10_000 * major + 100 * minor + patch)


def perturbers_installed() -> bool:
    """Return whether the package nrtk is installed."""
    return importlib.util.find_spec("nrtk") is not None


def check_parameters(name: str, parameters: dict[str, Value]) -> None:
    """Raise UserError if a perturber refuses its parameters."""
    try:
        _made(registry.scenarios.get(name).function.perturber, parameters, None)
    except (TypeError, ValueError) as error:
        raise UserError(f"NRTK refuses the parameters of {name}: {str(error).rstrip('.')}") from error


def _register(perturber: Any, *, version: int) -> None:
    """Register one class of NRTK under its name without the ending, in lower case."""
    short = re.sub(r"(?<!^)(?=[A-Z])", "_", perturber.__name__.removesuffix("Perturber")).lower()
    defaults = {name: each.default for name, each in inspect.signature(perturber).parameters.items()}
    seeded, moves = "seed" in defaults, short in _PIXELS_MOVE

    def perturbed(image: Image, mask: Mask | None, *, rng: np.random.Generator, context: Any, **values: Any) -> Any:
        seed = int(rng.integers(2**31)) if seeded else None
        try:
            picture = _made(perturber, values, seed)(image=image)[0]
            if mask is not None and moves:
                black = {"color_fill": "0;0;0"} if "color_fill" in values else {}
                painted = np.repeat(mask[..., None].astype(np.uint8) * np.uint8(255), 3, axis=2)
                mask = _made(perturber, {**values, **black}, seed)(image=painted)[0][..., 0] >= 128
        except ValueError as error:
            raise SampleError(f"{SCHEME}:{short} refuses this image: {error}") from error
        return Rendered(np.ascontiguousarray(picture), None if mask is None else np.ascontiguousarray(mask))

    perturbed.perturber = perturber  # type: ignore[attr-defined]
    strength, values = _STRENGTHS.get(short, ("", ()))
    scenario(
        id=f"{SCHEME}:{short}",
        summary=f"{(perturber.__doc__ or short).strip().splitlines()[0].rstrip('.')} (NRTK)",
        family=SCHEME,
        composites=False,
        needs_mask=False,
        aliases=(f"{SCHEME}:{perturber.__name__}",),
        parameters=tuple(
            Parameter(name, _written(value), "see NRTK") for name, value in defaults.items() if name not in _UNSET
        ),
        severities={place: {strength: value} for place, value in enumerate(values, start=1)},
        version=version,
    )(perturbed)


def _made(perturber: Any, values: dict[str, Value], seed: int | None) -> Any:
    """Return the perturber with its parameters as NRTK takes them, and the seed if it takes one."""
    defaults = {name: each.default for name, each in inspect.signature(perturber).parameters.items()}
    given = {name: _read(value) if _is_list(defaults[name]) else value for name, value in values.items()}
    return perturber(**given, **({"seed": seed} if "seed" in defaults else {}))


def _is_list(default: object) -> bool:
    return default is None or isinstance(default, list | tuple)


def _written(default: Any) -> Value:
    """Return a default as a parameter's value: a list as ``0;0;0``, None as nothing."""
    text = ";".join(map(str, default or ())) if _is_list(default) else default
    assert isinstance(text, bool | int | float | str)
    return text


def _read(text: object) -> list[float] | None:
    """Return the numbers of ``0.1;0;0``, None for nothing; whole numbers stay whole."""
    numbers = [float(part) for part in str(text).split(";")] if text != "" else None
    return numbers and [int(number) if number.is_integer() else number for number in numbers]
