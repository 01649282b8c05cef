"""Write ``model-index``, the block of a model card in which the hub looks for results, one card per model.

``OUT/MODEL/README.md`` is a whole card; its metadata can also be merged into a card that is there already.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import fingerprint
from holdfast.core.schema import CLASSIFY, DETECT, MULTILABEL
from holdfast.results import Results
from holdfast_evidence.export.private import free_name
from holdfast_evidence.export.subject import ExportSubject, rendered, slug

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

LEVEL = 0.95
SPLIT = "test"

_TASKS = {
    "image-classification": "Image classification",
    "image-segmentation": "Image segmentation",
    "visual-question-answering": "Visual question answering",
    "object-detection": "Object detection",
}

_WORDS = {
    "robustness_score_background": "robustness score over conditions that leave the object as it is",
    "accuracy_restricted": "accuracy among the dataset's classes",
    "mean_accuracy": "mean accuracy over the static conditions",
    "background_effect": "accuracy with backgrounds of the same class minus that with random ones",
    "fmr": "FMR",
    "fmr_low": "FMR, lower bound",
    "fmr_high": "FMR, upper bound",
    "fmr_matched": "FMR, matched",
    "reconstruction": "accuracy on reconstructions",
    "random_walk": "accuracy on random walks",
    "false_alarms": "false alarms per image",
    "ap": "AP",
    "ap50": "AP50",
    "mean_iou": "mean IoU",
    "boundary_f": "boundary F",
}


@dataclass(frozen=True)
class ModelScore:
    """A number with its 95 % interval; shares are 0..1, and an unknown bound is None.

    ``name`` is such as ``robustness_score``, ``accuracy`` or ``accuracy:CONDITION``; ``n`` counts the rows.
    """

    name: str
    estimate: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class ModelResults:
    """The results of one model in one protocol."""

    protocol: str  # its name, which distinguishes the results of one model
    scores: Sequence[ModelScore]  # the numbers, the most telling first
    settings: Mapping[str, Any] = field(default_factory=dict)  # how it was measured, JSON values
    task: str = "image-classification"  # one of the hub's


Scores = Callable[[pa.Table], Iterable[ModelResults]]  # rows of one model → what it reached


def write_model_index(subject: ExportSubject, folder: Path, scores: Scores | None = None) -> list[str]:
    """Write a card per model and return notes for the user."""
    assert subject.rows is not None and subject.run is not None
    rows = subject.rows
    models = sorted(pc.unique(rows["model"]).to_pylist())
    others = _of_other_tasks(subject)
    taken: set[str] = set()
    empty = []
    written = 0
    for model in models:
        own = rows.filter(pc.equal(rows["model"], model))
        measured = [*(scores(own) if scores is not None else ()), *others.get(model, ())]
        results = [
            result
            for number, part in enumerate(measured)
            for result in _results(subject, part, own, _config(measured, number))
        ]
        if not results:
            empty.append(f"{model} has no numbers: a score takes originals and at least one static scenario")
            continue
        write_atomic(
            folder / free_name(slug(model), taken, ignore_case=True) / "README.md",
            _card(subject, model, measured, results, own).encode(),
        )
        written += 1
    if not written:
        raise UserError(
            f"{subject.run.path} has no numbers for a model card: they take originals with static scenarios, generated "
            "images, walks, segments, boxes or questions"
        )
    return [f"{written} model cards", *empty]


def _config(measured: Sequence[ModelResults], number: int) -> str:
    """Return the protocol, with a number if a model has several results of it, which the hub would merge."""
    name = measured[number].protocol
    before = sum(part.protocol == name for part in measured[:number])
    return f"{name}-{before + 1}" if before else name


def _results(subject: ExportSubject, part: ModelResults, rows: pa.Table, config: str) -> list[EvalResult]:
    from huggingface_hub import EvalResult

    args = {"run": _fingerprint(rows), "holdfast": subject.holdfast or None, **part.settings}
    # in the form that the hub takes for a dataset
    identifier = re.sub(r"[^\w.-]+", "-", subject.dataset, flags=re.ASCII).strip("-.")[:96] or "dataset"
    return [
        EvalResult(
            task_type=part.task,
            task_name=_TASKS.get(part.task, part.task),
            dataset_type=identifier,
            dataset_name=subject.dataset,
            dataset_config=config,
            dataset_split=SPLIT,
            dataset_args={name: value for name, value in args.items() if value is not None},
            metric_type=score.name.partition(":")[0],
            metric_name=_in_words(score.name),
            metric_value=score.estimate,
            metric_args=_interval(score),
        )
        for score in part.scores
        if math.isfinite(score.estimate)
    ]


def _interval(score: ModelScore) -> dict[str, Any]:
    ends = {"low": score.low, "high": score.high}
    known: dict[str, Any] = {name: end for name, end in ends.items() if end is not None and math.isfinite(end)}
    known |= {"level": LEVEL} if known else {}
    return known | ({"n": score.n} if score.n is not None else {})


def _in_words(name: str) -> str:
    measure, _, condition = name.partition(":")
    measure = _WORDS.get(measure, measure.replace("_", " "))
    return f"{measure} under {condition}" if condition else measure


def _fingerprint(rows: pa.Table) -> str:
    return fingerprint(sorted(rows["row_id"].to_pylist()))


def _card(
    subject: ExportSubject, model: str, measured: Sequence[ModelResults], results: Sequence[EvalResult], rows: pa.Table
) -> str:
    from huggingface_hub import ModelCardData

    tasks = list(dict.fromkeys(part.task for part in measured))
    data = ModelCardData(
        model_name=model, eval_results=list(results), tags=["robustness", "holdfast"],
        pipeline_tag=tasks[0] if len(tasks) == 1 else None,
    )  # fmt: skip
    named = [(_config(measured, number), part.scores) for number, part in enumerate(measured)]
    protocols = {
        name: [
            (_in_words(score.name), score.estimate, _interval(score), score.n)
            for score in scores
            if math.isfinite(score.estimate)
        ]
        for name, scores in named
    }
    return rendered(
        "model_card.md.j2", subject=subject, model=model, metadata=data.to_yaml(), rows=rows, protocols=protocols,
        fingerprint=_fingerprint(rows),
    )  # fmt: skip


def _of_other_tasks(subject: ExportSubject) -> dict[str, list[ModelResults]]:
    """Return the results of models that were asked for segments, for boxes or in words."""
    assert subject.rows is not None and subject.run is not None
    tasks = set(pc.unique(subject.rows["task"]).to_pylist())
    opened = Results(subject.run)
    raw = subject.run.rows(["model"])["model"].cast(pa.string()).to_pylist()
    names = dict(zip(raw, subject.rows["model"].to_pylist(), strict=True))  # as they are asked to others
    measured: dict[str, list[ModelResults]] = {}

    def score(row: Mapping[Any, Any], name: str, column: str, counted: str = "n") -> ModelScore:
        return ModelScore(name, row[column], row[f"{column}_low"], row[f"{column}_high"], int(row[counted]))

    if "segment" in tasks:
        for model, group in opened.segments().groupby("model", observed=True):
            scores = []
            for row in group.to_dict("records"):
                where = str(row["condition"]) + (f", trained on {row['trained_on']}" if row["trained_on"] else "")
                scores += [score(row, f"mean_iou:{where}", "miou")]
                scores += [score(row, f"{name}:{where}", name) for name in ("pixel_accuracy", "boundary_f")]
            part = ModelResults("segments", scores, task="image-segmentation")
            measured.setdefault(names[str(model)], []).append(part)
    if "detect" in tasks:
        counts = {"recall": "objects", "false_alarms": "pictures", "ap": "objects", "ap50": "objects"}
        for model, group in opened.objects().groupby("model"):
            rows = group.to_dict("records")
            scores = [score(row, f"{name}:{row['condition']}", name, n) for row in rows for name, n in counts.items()]
            measured.setdefault(names[str(model)], []).append(ModelResults("boxes", scores, task="object-detection"))
    if "question" in tasks:
        for row in opened.questions().to_dict("records"):
            scores = [score(row, f"accuracy:{name} reading", name) for name in ("lenient", "strict")]
            part = ModelResults(str(row["kind"]), scores, {"choices": row["choices"]}, task="visual-question-answering")
            measured.setdefault(names[str(row["model"])], []).append(part)
    if opened.task.evaluation and opened.task.name not in (CLASSIFY, DETECT, MULTILABEL):
        for model, group in opened.accuracy().groupby("model"):
            scores = [
                ModelScore(f"success:{row['condition']}", row["accuracy"], row["low"], row["high"], int(row["n"]))
                for row in group.to_dict("records")
            ]
            part = ModelResults(opened.task.name, scores, task=opened.task.hub)
            measured.setdefault(names[str(model)], []).append(part)
    return measured
