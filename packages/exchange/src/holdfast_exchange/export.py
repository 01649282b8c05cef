"""Write a run or a dataset in the format of another tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import UserError
from holdfast.core.files import whole_folder
from holdfast.core.names import unknown
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.verbs import hinted
from holdfast_evidence.board.entry import PROTOCOLS
from holdfast_evidence.board.numbers import numbers, settings
from holdfast_evidence.board.table import by_setting, published, rows_of_protocol
from holdfast_evidence.export.subject import is_run, open_subject
from holdfast_exchange.fiftyone import write_fiftyone
from holdfast_exchange.huggingface import write_huggingface
from holdfast_exchange.model_index import ModelResults, ModelScore, Scores, write_model_index
from holdfast_exchange.question_tasks import write_inspect, write_lmms

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
        progress: called with how far it is.
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
