"""Export a run or a dataset in the format of another tool, as a new folder."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.exchange.archive import whole_folder
from holdfast.exchange.fiftyone import write_fiftyone
from holdfast.exchange.huggingface import write_huggingface
from holdfast.exchange.model_index import Scores, write_model_index
from holdfast.exchange.question_tasks import write_inspect, write_lmms
from holdfast.exchange.subject import is_run, open_subject
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.registry import unknown

FORMATS = ("huggingface", "fiftyone", "model-index", "inspect-ai", "lmms-eval")


def export(
    given: str | Path,
    to: str,
    out: str | Path,
    *,
    data: str = "",
    masks: str = "",
    images: bool = True,
    scores: Scores | None = None,
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
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    if to in ("fiftyone", "inspect-ai", "lmms-eval") and not images:
        raise UserError(f"{to} shows images: an export to it cannot leave them out")
    if to == "model-index" and not is_run(given):
        raise UserError(f"model-index is about models: it is made of a run, and {given} is not one")
    with whole_folder(Path(out)) as folder:
        subject = open_subject(given, data=data, masks=masks, images=images and to != "model-index", progress=progress)
        if to == "huggingface":
            return write_huggingface(subject, folder, progress)
        if to == "fiftyone":
            return write_fiftyone(subject, folder, progress)
        if to == "inspect-ai":
            return write_inspect(subject, folder, progress)
        if to == "lmms-eval":
            return write_lmms(subject, folder, progress)
        return write_model_index(subject, folder, scores)
