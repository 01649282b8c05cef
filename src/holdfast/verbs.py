"""Verbs of ``import holdfast`` whose code is above ``holdfast.api``: check, plan, track."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from holdfast.checking import check as _check
from holdfast.core.errors import errors_in_keywords
from holdfast.core.names import unknown
from holdfast.core.places import shown
from holdfast.exchange.tracking import check_tracker, record_run, report_of
from holdfast.exchange.tracking import track as _track
from holdfast.forecast import plan as plan
from holdfast.results import Results, open_run

R = TypeVar("R")


def hinted(function: Callable[..., R], options: type | None = None) -> Callable[..., R]:
    """Return the function with paths as text, and with an error that offers the nearest name for a wrong keyword."""
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    names = [parameter.name for parameter in parameters]
    for each in fields(options) if options else ():
        if each.name not in names:
            default = inspect.Parameter.empty if each.default is MISSING else each.default
            parameters.append(inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default,
                                                annotation=each.type))  # fmt: skip
    signature = inspect.Signature(parameters)

    @functools.wraps(function)
    @errors_in_keywords()
    def call(*args: Any, **values: Any) -> R:
        for name in values:
            if name not in signature.parameters:
                raise unknown(f"option of {function.__name__}", name, signature.parameters)
        texts = {name: shown(value) if isinstance(value, Path) and name != "out" else value
                 for name, value in values.items()}  # fmt: skip
        return function(*(shown(argument) if isinstance(argument, Path) else argument for argument in args), **texts)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def track(run: Results | str | Path, tracker: str, *, report: bool = True) -> str:
    """Record a run in an experiment tracker.

    Args:
        run: a run directory, or the run itself.
        tracker: mlflow, wandb or tensorboard; each follows its own settings (``WANDB_MODE`` …).
        report: whether the report is made and sent along.

    Returns:
        The place where the tracker shows it.

    Raises:
        UserError: The tracker is unknown or not installed.

    Examples:
        >>> bool(holdfast.track("run", "tensorboard", report=False))
        True
    """
    results = run if isinstance(run, Results) else open_run(run)
    check_tracker(tracker)
    return _track(tracker, record_run(results, report_of(results) if report else None))


check = hinted(_check)
