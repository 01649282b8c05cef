"""Functions made from specs: the keyword arguments of a verb are the fields of its spec."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

from holdfast.api import live
from holdfast.core.errors import UserError, errors_in_keywords, missing_extra
from holdfast.core.names import unknown
from holdfast.core.options import Declared, Option, Spec, make, options_of
from holdfast.core.verbs import Verb
from holdfast.pipeline.jobs.progress import QUIET, printed, quietable
from holdfast.registry import resolved

R = TypeVar("R")
POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
HELP = {
    "out": "The folder to write; an existing run is continued.",
    "progress": "Called with the name of a step, how much of it is done, and its total; by default printed on stderr.",
    "quiet": "Print neither progress nor notes.",
    "executor": "Where the work runs (``holdfast.engine.open_executor``); None: this machine.",
    "transform": "For networks given as objects: turns a PIL image into the tensor that they take.",
    "class_names": "For models given as objects: the names of their outputs, in order, or imagenet.",
}
"""Arguments that are not options of a spec and mean the same everywhere."""

_RAISES = "Raises:\n    UserError: An option has an invalid value, or an input is missing or cannot be read."
_TEMPORARY = {"out": f"{HELP['out']} None: a temporary folder, and a line says where."}


def verb(
    spec: type[Spec],
    *,
    about: Mapping[str, str] | None = None,
    temporary: bool = False,
    objects: bool = True,
    **defaults: Any,
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator for a function of a spec: callers give the spec's options as keyword arguments.

    The first field comes first, by position, then the models if they are required. A ready spec may be given as
    ``spec=`` instead.

    Args:
        spec: its fields become arguments.
        about: name → help of the function's other arguments, in addition to ``HELP``.
        objects: whether models may be given as objects, with ``transform=`` and ``class_names=``.
        temporary: whether ``out`` may be left out; the run then is in a temporary folder.
        **defaults: values that replace the spec's own defaults.
    """
    options = options_of(spec)

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        _, *own = inspect.signature(function).parameters.values()
        given = [_parameter(field, defaults.get(name, field.default)) for name, field in options.items()]
        if not any(parameter.kind is POSITIONAL for parameter in own):
            given[0] = given[0].replace(kind=POSITIONAL)
            given = [item.replace(kind=POSITIONAL) if _required_models(item) else item for item in given]
        if temporary:
            own = [item.replace(default=None) if item.name == "out" else item for item in own]
        own.append(QUIET)
        if "models" in options and objects:
            own += [inspect.Parameter(name, KEYWORD, default=None, annotation=Any) for name in live.ARGUMENTS]
        parameters = sorted([*own, *given], key=lambda item: (item.kind, item.default is not item.empty))
        signature = inspect.Signature(parameters, return_annotation=inspect.signature(function).return_annotation)

        @quietable
        @functools.wraps(function)
        @errors_in_keywords()
        def call(*args: Any, **values: Any) -> R:
            if "spec" in values:
                return _run(function, values.pop("spec"), *args, **values)
            for name in values:
                if name not in signature.parameters:
                    raise unknown(f"option of {function.__name__}", name, signature.parameters)
            with ExitStack() as stack:
                if temporary and values.get("out") is None:
                    values["out"] = stack.enter_context(live.temporary_folder())
                if not objects:
                    live.check_names(values.get("models") or (), function.__name__)
                bound = live.with_names(signature.bind(*args, **values).arguments)
                asked = defaults | {name: value for name, value in bound.items() if name in options}
                rest = {name: value for name, value in bound.items() if name not in options}
                return _run(function, make(spec, asked, verb=function.__name__), **rest)

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__doc__ = _documented(
            function,
            signature,
            {name: field.option for name, field in options.items()},
            HELP | (_TEMPORARY if temporary else {}) | dict(about or {}),
        )
        return call

    return decorate


_DEFAULTS = {"progress": printed, "executor": None}
"""Arguments that a command always gives, and Python may leave out."""


def function_of(declared: Verb) -> Callable[..., Any] | None:
    """Return the function of a verb for ``import holdfast``; None if it has none."""
    if declared.function is None:
        return None
    function = resolved(declared.function)
    if declared.spec is None or declared.command is not None:
        return function
    signature = inspect.signature(function)
    takes = signature.parameters
    parameters = [each.replace(default=_DEFAULTS.get(name, each.default)) for name, each in takes.items()]

    @functools.wraps(function)
    def call(spec: Spec, **values: Any) -> Any:
        return function(spec, **{name: value for name, value in (_DEFAULTS | values).items() if name in takes})

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return verb(declared.spec, about=declared.about)(call)


def _required_models(parameter: inspect.Parameter) -> bool:
    return parameter.name == "models" and parameter.default is parameter.empty


def _run(function: Callable[..., R], *args: Any, **values: Any) -> R:
    """Call a verb; a package of an extra that is missing becomes a UserError that names the extra."""
    try:
        return function(*args, **values)
    except ModuleNotFoundError as error:
        if sentence := missing_extra(error):
            raise UserError(sentence) from error
        raise


def _parameter(declared: Declared, default: Any) -> inspect.Parameter:
    annotation = declared.type
    if declared.name in ("data", "models"):
        annotation = Any  # a name, several, or live objects: see ``live``
    elif declared.is_list:
        annotation = str | Sequence[str]
    elif declared.option.is_path or declared.option.argument:
        annotation = declared.type | Path
    value = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(declared.name, KEYWORD, default=value, annotation=annotation)


def _documented(
    function: Callable[..., Any], signature: inspect.Signature, options: Mapping[str, Option], about: Mapping[str, str]
) -> str:
    """Return the docstring with the help of every argument before its own ``Returns:`` and ``Examples:``."""
    summary, *own = re.split(r"\n\n(?=Returns:|Examples:)", inspect.cleandoc(function.__doc__ or ""))
    lines = [summary, "", "Args:"]
    for name in signature.parameters:
        words = options[name].help if name in options else about[name]
        if name in options and options[name].choices:
            words += f" One of {', '.join(options[name].choices)}."
        lines.append(f"    {name}: {words}")
    returns = [part for part in own if part.startswith("Returns:")]
    rest = [part for part in own if part not in returns]
    return "\n\n".join(["\n".join(lines), *returns, _RAISES, *rest]) + "\n"
