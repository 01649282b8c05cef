"""Declarations of scenarios: parameters, variants, and the part that stays unchanged."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.protocols import Context
from holdfast.core.types import ORIGINAL, Image, Mask, Rendered
from holdfast.scenarios.base.compositing import composite

Value = bool | int | float | str
Leaves = Literal["foreground", "background", "nothing", "everything"]
Group = Literal["static", "diagnostic", "industrial", "corruptions", "attacks", "objects", "worst_background", ""]

PAPER = "paper"
"""The variant that every scenario has: its defaults."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A named setting of a scenario; all its values have the type of the default."""

    name: str
    default: Value
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Value, ...] = ()

    def checked(self, value: object, *, of: str) -> Value:
        """Return the value in this parameter's type; UserError for a wrong type or a value out of range."""
        wanted = type(self.default)
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted or (isinstance(value, float) and not math.isfinite(value)):
            words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
            raise UserError(f"{self.name} of {of} is {words[wanted]}, not {value!r}")
        assert isinstance(value, bool | int | float | str)
        if self.choices and value not in self.choices:
            raise UserError(f"{self.name} of {of} is one of {', '.join(map(str, self.choices))}, not {value!r}")
        if isinstance(value, int | float):
            if self.minimum is not None and value < self.minimum:
                raise UserError(f"{self.name} of {of} is at least {self.minimum:g}, not {value:g}")
            if self.maximum is not None and value > self.maximum:
                raise UserError(f"{self.name} of {of} is at most {self.maximum:g}, not {value:g}")
        return value


FEATHER = Parameter("feather", 0.0, "width of the soft edge in pixels (0: hard)", minimum=0, maximum=200)
DRAW = Parameter("draw", 1, "number of the background, from 1", minimum=1, maximum=100)
"""Of scenarios that lend each object many backgrounds: ``@draw_3`` is the third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A registered scenario; calling it runs the bare function, without the checks of ``render``."""

    id: str
    function: Callable[..., Rendered | Image]
    summary: str
    family: str
    # ``static``, ``diagnostic``, ``industrial``, ``corruptions``, ``attacks``, ``objects``,
    # ``worst_background`` or empty for one that is only used by name.
    group: Group = ""
    aliases: tuple[str, ...] = ()
    needs_mask: bool = True
    leaves: Leaves = "nothing"  # The part that comes out bit-identical; ``everything`` means the image itself
    # Parameters and the one value of each under which that promise holds.
    leaves_while: Mapping[str, Value] = field(default_factory=dict)
    # Must be set if the function calls ``context.donor``: row ids then include the donor pool.
    donor: Literal["", "other_class", "same_class", "shared"] = ""
    counts: str = ""  # A parameter that numbers renderings: ``?count=N`` in a name means each of 1 to N
    # Images of other than 8 bits and three bands that it takes: none, RGB of any depth, or any depth and bands.
    native: Literal["", "rgb", "bands"] = ""
    paints: bool = False  # Whether it asks the context for new surroundings, which takes ``--generator``
    # The network of the user's that it asks the context for: ``style`` needs ``--stylist``, ``fill`` takes ``--fill``.
    tool: Literal["", "style", "fill"] = ""
    parameters: tuple[Parameter, ...] = ()  # With their defaults, which are the variant ``paper``
    # Name → parameters that differ from the defaults.
    variants: Mapping[str, Mapping[str, Value]] = field(default_factory=lambda: {PAPER: {}})
    # 1..5 → parameters that differ from the defaults; empty if nothing has a natural strength.
    severities: Mapping[int, Mapping[str, Value]] = field(default_factory=dict)
    # ``module:function`` that changes the image against each model at its input (see
    # ``holdfast.models.attacks.Attack``); empty for scenarios, which know no model.
    attack: str = ""
    version: int = 1  # Goes up when the same parameters give another image
    source: str = ""  # Hash of the module for ``python:`` scenarios, whose authors count no versions

    def __call__(
        self, image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, **parameters: Any
    ) -> Rendered | Image:
        """Run the function with the defaults for parameters that are not given."""
        return self.function(image, mask, rng=rng, context=context, **{**self.defaults, **parameters})

    @property
    def defaults(self) -> dict[str, Value]:
        """Return the values of all parameters in the variant ``paper``."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    def promise(self, parameters: Mapping[str, Value]) -> Leaves:
        """Return which part stays bit-identical under these parameters."""
        held = all(parameters.get(name, value) == value for name, value in self.leaves_while.items())
        return self.leaves if held else "nothing"


def scenario(
    *,
    id: str,
    summary: str,
    family: str,
    composites: bool = True,
    changes: Literal["", "background", "object"] = "",
    shared: bool = False,
    parameters: tuple[Parameter, ...] = (),
    variants: Mapping[str, Mapping[str, Value]] | None = None,
    leaves_while: Mapping[str, Value] | None = None,
    **declared: Any,
) -> Callable[[Callable[..., Any]], Scenario]:
    """Register a function ``(image, mask, *, rng, context, **parameters)`` as a scenario.

    Args:
        id: The name in tables and on the command line.
        summary: One line for ``holdfast ls``.
        family: The kind of change: a name for weights of ``choose``; reports count only the static group by family.
        composites: Whether it joins two images along the mask's edge; it then takes ``feather``, too, and what it
            promises holds with feather 0.
        changes: Which part the function changes: it then returns the whole image changed (or that and details), of
            which this part is taken; the rest is the image's.
        shared: Whether that image is kept for other conditions (``context.memo``), so that it must be copied.
        parameters: What can be set.
        variants: In addition to ``paper``.
        leaves_while: See Scenario.
        **declared: Every other field of Scenario.

    Returns:
        A decorator that returns the registered scenario.

    Raises:
        UserError: The id is registered already.

    Examples:
        >>> @holdfast.scenario(id="dim", summary="half as bright", family="light", changes="background")
        ... def dim(image, mask, **_):
        ...     return image // 2
    """

    def register(function: Callable[..., Any]) -> Scenario:
        held: dict[str, Value] = {FEATHER.name: 0.0} if composites else {}
        if changes:
            declared["leaves"] = "foreground" if changes == "background" else "background"
        definition = Scenario(
            id=id,
            function=_joined(function, changes == "background", shared) if changes else function,
            summary=summary,
            family=family,
            parameters=(*parameters, FEATHER) if composites else parameters,
            variants={PAPER: {}, **(variants or {})},
            leaves_while={**held, **(leaves_while or {})},
            **declared,
        )
        _check_declaration(definition)
        _register(definition, f"{function.__module__}:{function.__qualname__}")
        return definition

    return register


def _joined(function: Callable[..., Any], behind: bool, shared: bool) -> Callable[..., Rendered]:
    """Return a function that takes the background (``behind``) or the object from the image of ``function``."""

    @functools.wraps(function)
    def joined(image: Image, mask: Mask, *, context: Context, feather: float, **settings: Any) -> Rendered:
        answer = function(image, mask, context=context, **settings)
        changed, details = answer if isinstance(answer, tuple) else (answer, {})
        inside, outside = (image, changed) if behind else (changed, image)
        reuse = behind and not shared
        return Rendered(composite(inside, outside, mask, feather=feather, context=context, reuse=reuse), mask, details)

    return joined


def severities(name: str, values: Sequence[Value]) -> dict[int, dict[str, Value]]:
    """Return the five severities of one parameter."""
    return {severity: {name: value} for severity, value in enumerate(values, start=1)}


def _check_declaration(definition: Scenario) -> None:
    """Fail at import if a declaration contradicts itself."""
    known = {parameter.name: parameter for parameter in definition.parameters}
    if len(known) != len(definition.parameters) or "version" in known:
        raise UserError(f"scenario {definition.id!r} must declare each parameter once, and none called 'version'")
    for overrides in [definition.defaults, *definition.variants.values(), *definition.severities.values()]:
        for name, value in overrides.items():
            if name not in known:
                raise UserError(f"scenario {definition.id!r} sets {name!r}, which is none of its parameters")
            known[name].checked(value, of=definition.id)
    if definition.leaves in ("foreground", "background") and not definition.needs_mask:
        raise UserError(f"scenario {definition.id!r} promises to leave the {definition.leaves} and needs no mask")
    if definition.severities and sorted(definition.severities) != [1, 2, 3, 4, 5]:
        raise UserError(f"scenario {definition.id!r} must have the severities 1 to 5")


def _register(definition: Scenario, lazy: str) -> None:
    """Add the scenario to the registry; it replaces an entry point that names this very function."""
    try:
        registry.scenarios.register(definition.id, definition, summary=definition.summary, aliases=definition.aliases)
    except UserError:
        if {entry.name: entry.target for entry in registry.scenarios.entries()}.get(definition.id) != lazy:
            raise
        registry.scenarios.remove(definition.id)
        registry.scenarios.register(definition.id, definition, summary=definition.summary, aliases=definition.aliases)


@scenario(
    id=ORIGINAL,
    summary="the image as it is",
    family="original",
    group="static",
    aliases=("image", "clean", "normal"),
    composites=False,
    needs_mask=False,
    leaves="everything",
    native="bands",
)
def original(image: Image, mask: Mask, **_: Any) -> Image:
    """Return the same array."""
    return image
