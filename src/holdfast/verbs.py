"""Verbs of ``import holdfast`` whose code stands above ``holdfast.api``: check, plan, bundle, export, track, verify."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.board.entry import PROTOCOLS
from holdfast.board.numbers import numbers, settings
from holdfast.board.table import by_setting, published, rows_of_protocol
from holdfast.board.verify import verify as _verify
from holdfast.check import check as _check
from holdfast.core.errors import UserError, errors_in_keywords
from holdfast.core.names import unknown
from holdfast.core.places import shown
from holdfast.exchange.archive import whole_folder
from holdfast.exchange.bundle import bundle as _bundle
from holdfast.exchange.fiftyone import write_fiftyone
from holdfast.exchange.huggingface import write_huggingface
from holdfast.exchange.model_index import ModelResults, ModelScore, Scores, write_model_index
from holdfast.exchange.question_tasks import write_inspect, write_lmms
from holdfast.exchange.subject import is_run, open_subject
from holdfast.exchange.tracking import check_tracker, record_run, report_of
from holdfast.exchange.tracking import track as _track
from holdfast.forecast import plan as plan
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.specs import RerunOptions
from holdfast.results import Results, open_run

if TYPE_CHECKING:
    import pyarrow as pa

EXPORTS: dict[str, Callable[..., list[str]]] = {
    "huggingface": write_huggingface,
    "fiftyone": write_fiftyone,
    "model-index": write_model_index,
    "inspect-ai": write_inspect,
    "lmms-eval": write_lmms,
}
"""Format → the function that writes it."""

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


def board_scores(rows: pa.Table) -> Iterator[ModelResults]:
    """Yield the numbers of one model's rows, digit for digit as the board has them."""
    for name, version in PROTOCOLS.items():
        own = rows_of_protocol(rows, name)
        for part in by_setting(own) if name == "dynamic" else [own]:
            table = published(part)
            try:
                scores = [ModelScore(**score.model_dump()) for score in numbers(table, name)]
            except UserError:
                continue  # these rows do not have what the protocol takes
            yield ModelResults(name, scores, {"protocol": name, "version": version, **settings(table, name)})


@hinted
def export(
    given: str | Path,
    to: str,
    out: str | Path,
    *,
    data: str = "",
    masks: str = "",
    images: bool = True,
    scores: Scores = board_scores,
    progress: Progress = silent,
) -> list[str]:
    """Write a run or a dataset for another tool and return notes for the user; the folder is complete or absent.

    Nothing is uploaded and nothing is fetched. Paths of this machine are left out of every text.

    Args:
        given: a run directory, or a dataset as every verb takes it.
        to: huggingface, fiftyone, model-index, inspect-ai or lmms-eval.
        out: a folder that is not there yet, or an empty one.
        data: where the run's images are now, if not where they were.
        masks: a folder of masks that bear the samples' names.
        images: whether images and masks go along; always, to FiftyOne, and never, to model-index.
        scores: what gives the numbers of one model's classified rows; the board's, for the same digits.
        progress: told how far it is.
    """
    if to not in EXPORTS:
        raise unknown("format", to, EXPORTS)
    if to in ("fiftyone", "inspect-ai", "lmms-eval") and not images:
        raise UserError(f"{to} shows images: an export to it cannot leave them out")
    if to == "model-index" and not is_run(given):
        raise UserError(f"model-index is about models: it is made of a run, and {given} is not one")
    with whole_folder(Path(out)) as folder:
        subject = open_subject(given, data=data, masks=masks, images=images and to != "model-index", progress=progress)
        return EXPORTS[to](subject, folder, scores if to == "model-index" else progress)


def track(run: Results | str | Path, tracker: str, *, report: bool = True) -> str:
    """Tell an experiment tracker of a run, and return where it is to be seen.

    Args:
        run: a run directory, or the run itself.
        tracker: mlflow, wandb or tensorboard; each follows its own settings (``WANDB_MODE`` …).
        report: whether the report is made and sent along.
    """
    results = run if isinstance(run, Results) else open_run(run)
    check_tracker(tracker)
    return _track(tracker, record_run(results, report_of(results) if report else None))


check = hinted(_check)
bundle = hinted(_bundle)
verify = hinted(_verify, RerunOptions)
