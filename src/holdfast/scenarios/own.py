"""Scenarios from the user's own modules: ``python:MODULE:FUNCTION``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.scenarios.base.definition import PAPER, Parameter, Scenario

SCHEME = "python"
_GIVEN = ("image", "mask", "rng", "context")
"""Arguments that a function may ask for; every other one is a parameter of the scenario."""


def register_own(name: str) -> Scenario:
    """Register the scenario ``python:MODULE:FUNCTION``; its rows depend on the source of the module.

    Args:
        name: ``MODULE:FUNCTION``: a function ``(image)`` or ``(image, mask)``, or what ``holdfast.scenario`` made.

    Returns:
        The scenario, called ``python:MODULE:FUNCTION``.

    Raises:
        UserError: if there is no such function, or if its arguments do not fit.
    """
    id = f"{SCHEME}:{name}"
    target, identity = registry.find_attribute(Name(SCHEME, name))
    source = identity.rpartition(" ")[2][:16]
    definition = (
        replace(target, id=id, aliases=(), source=source) if isinstance(target, Scenario) else _made(id, target, source)
    )
    if id in registry.scenarios:
        registry.scenarios.remove(id)
    registry.scenarios.register(id, definition, summary=definition.summary)
    return definition


def _made(id: str, function: Callable[..., Any], source: str) -> Scenario:
    """Return the scenario of a plain function; its keyword arguments with a default are the parameters."""
    if not callable(function) or isinstance(function, type):
        raise UserError(f"{id} is a {type(function).__name__}; expected a function that takes an image")
    known = inspect.signature(function).parameters.values()
    named = [each for each in known if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    takes = [each.name for each in named if each.name in _GIVEN]
    settings = [each for each in named if each.name not in _GIVEN]
    if "image" not in takes:
        raise UserError(f"{id} takes no argument called image; expected FUNCTION(image) or FUNCTION(image, mask)")
    for each in settings:
        if type(each.default) not in (bool, int, float, str):
            raise UserError(f"{each.name} of {id} needs a default: a number, a word, True or False")

    def call(image: Any, mask: Any, *, rng: Any, context: Any, **values: Any) -> Any:
        given = {"image": image, "mask": mask, "rng": rng, "context": context}
        return function(**{name: given[name] for name in takes}, **values)

    lines = (inspect.getdoc(function) or f"{function.__name__}, a function of the user").splitlines()
    return Scenario(
        id=id, function=call, summary=lines[0], family="own", needs_mask="mask" in takes,
        parameters=tuple(Parameter(each.name, each.default, "see the function") for each in settings),
        variants={PAPER: {}}, source=source,
    )  # fmt: skip
