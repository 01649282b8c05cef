"""Keys and ids of a question's rows, and how an answer becomes a row and its details."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.core.fingerprint import fingerprint
from holdfast.core.protocols import Refusal, VisionLanguageModel
from holdfast.core.schema import ANSWERS, PREDICTIONS, row_id
from holdfast.core.tasks import QUESTION
from holdfast.core.types import Collection, Sample
from holdfast.pipeline.ask.wording import (
    FULL_LIST,
    AskSpec,
    Distractors,
    Question,
    Synonyms,
    best_of_class,
    is_refusal,
    protocols,
    read_answer,
)
from holdfast.pipeline.classifiers import Tested
from holdfast.pipeline.jobs.plan import Job, Scope
from holdfast.pipeline.jobs.rows import Row, outcome_rows, sample_key
from holdfast.pipeline.samples import Prepared
from holdfast.store import Parts, Run

LONGEST = 2000
"""Characters of an answer that are kept and read."""

Part = tuple[str, int]
"""A protocol, and the position of a model in the command's list."""

AskJob = Job[Sample, Part]


@dataclass(frozen=True)
class Asked:
    """A model that is asked: one that answers in words, or a classifier that is scored on the same options."""

    name: str
    fingerprint: str
    vlm: VisionLanguageModel | None = None
    classifier: Tested | None = None


def details(run: Path) -> Parts:
    """Return the table of answers of a run, keyed by the row ids of the one table."""
    return Parts(run / "details" / QUESTION.details, ANSWERS)


class AskJobs:
    """Every sample with its protocols × models."""

    def __init__(self, spec: AskSpec, samples: Sequence[Sample], models: int) -> None:
        self._spec, self._samples, self._models = spec, samples, models

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[AskJob]:
        positions = range(self._models)
        for sample in self._samples:
            names = protocols(self._spec, sample)
            yield Job(sample, [(protocol, position) for protocol in names for position in positions])

    def scope(self, models: Sequence[str]) -> Scope:
        """Return the stored rows that the command answers for."""
        rows = (pc.field("task") == QUESTION.name) & pc.field("model").isin(list(models))
        asked = {(sample.sample_id, name) for sample in self._samples for name in protocols(self._spec, sample)}
        return Scope(rows, ("sample_id", "protocol"), lambda row: (row["sample_id"], row["protocol"]) in asked)


def row_key(spec: AskSpec, dataset: str, sample: Sample, protocol: str, model: str) -> dict[str, Any]:
    """Return the key columns of one row."""
    return sample_key(
        sample, task=QUESTION.name, dataset=dataset, condition=sample.condition, variant="as_stored",
        parameters=spec.parameters(protocol), seed=spec.seed, model=model, protocol=protocol,
    )  # fmt: skip


def ask_ids(
    spec: AskSpec, prepared: Prepared, models: Sequence[Asked], distractors: Distractors
) -> Callable[[AskJob], list[str]]:
    """Return a function from a job to its row ids. Synonyms are no part of them: they change only the reading."""
    dataset, classes = prepared.collection.name, list(prepared.collection.classes)

    def ids(job: AskJob) -> list[str]:
        sample, row_ids = job.item, []
        for protocol, position in job.parts:
            distractor = "" if protocol == FULL_LIST else distractors.fingerprint(sample)
            image = fingerprint([prepared.images[sample.sample_id], sample.label, classes, distractor])
            model = models[position]
            key = row_key(spec, dataset, sample, protocol, model.name)
            row_ids.append(row_id(key, image=image, mask="", model=model.fingerprint))
        return row_ids

    return ids


class AnswerReader:
    """Turns answers into outcome columns and details."""

    def __init__(self, spec: AskSpec, collection: Collection, synonyms: Synonyms) -> None:
        self._letters, self._classes, self._synonyms = spec.letters, collection.classes, synonyms

    def in_words(self, asked: Question, answer: str) -> Row:
        """Return the outcome of an answer in words, with its details."""
        kept = Refusal(answer[:LONGEST]) if isinstance(answer, Refusal) else answer[:LONGEST]
        outcome, detail = self._read(kept, asked.options, asked.place)
        return outcome | {"status": "ok", "raw_text": str(kept), QUESTION.details: [detail | _question(asked)]}

    def scored(self, asked: Question, scores: NDArray[np.float32], model: Tested, label: str) -> Row:
        """Return the outcome of a classifier, with its details; ``scores``: its probabilities, (1, outputs)."""
        (outcome,) = outcome_rows(scores, model.labels, [label])
        if outcome["status"] != "ok":
            return outcome
        if asked.protocol != FULL_LIST:
            outcome |= _of_two(scores, model, asked, label)
        # The best of all outputs may be none of the options: that is the strict reading of a classifier's answer.
        detail = {
            "strict": outcome["correct"],
            "lenient": outcome["correct_restricted"],
            "matched": outcome["prediction_restricted"],
            "refusal": False,
            "unmatched": outcome["prediction_restricted"] is None,
        }
        return outcome | {QUESTION.details: [detail | _question(asked)]}

    def read_again(self, run: Run, scope: Scope) -> int:
        """Read stored answers once more where synonyms have changed since; return how many now mean something else."""
        wanted = scope.rows & (pc.field("status") == "ok") & pc.field("raw_text").is_valid()
        answers = details(run.path)
        before_by_id = {detail["row_id"]: detail for detail in answers.rows().to_pylist()}
        changed, changed_details = [], []
        for row in filter(scope.covers, run.predictions.dataset().to_table(filter=wanted).to_pylist()):
            before = before_by_id.get(row["row_id"])
            if before is None:
                continue
            marked = before["refusal"] and not is_refusal(row["raw_text"])
            text = Refusal(row["raw_text"]) if marked else row["raw_text"]
            outcome, detail = self._read(text, before["options"], before["truth_place"])
            if before | detail != before:
                changed.append(row | outcome)
                changed_details.append(before | detail)
        if changed:
            ids = {row["row_id"] for row in changed}
            run.predictions.drop_ids(ids)
            answers.drop_ids(ids)
            answers.write(pa.Table.from_pylist(changed_details, schema=ANSWERS))
            run.predictions.write(pa.Table.from_pylist(changed, schema=PREDICTIONS))
        return len(changed)

    def _read(self, answer: str, options: Sequence[str], place: int) -> tuple[Row, Row]:
        """Return outcome columns (strict as the full, lenient as the restricted answer) and details."""
        reading = read_answer(answer, options, self._synonyms, classes=self._classes, letters=self._letters)
        truth = options[place - 1]
        strict, lenient = reading.strict == truth, reading.lenient == truth
        outcome = {
            "prediction": reading.strict,
            "correct": strict,
            "prediction_restricted": reading.lenient,
            "correct_restricted": lenient,
        }
        detail = {
            "strict": strict,
            "lenient": lenient,
            "matched": reading.lenient,
            "refusal": reading.refusal,
            "unmatched": reading.unmatched,
        }
        return outcome, detail


def _question(asked: Question) -> Row:
    return {"options": list(asked.options), "truth_place": asked.place, "distractor": asked.distractor}


def _of_two(scores: NDArray[np.float32], model: Tested, asked: Question, label: str) -> Row:
    """Return the outcome columns among the two options; a tie goes to the class that comes first in the dataset."""
    classes = model.labels.classes
    best = best_of_class(scores, model.labels)[0]
    pair = sorted((classes.index(option) for option in asked.options), key=lambda place: (-best[place], place))
    sums = {classes[place]: float(scores[0, list(model.labels.members[place])].sum()) for place in pair}
    total = sum(sums.values())
    chosen = classes[pair[0]] if best[pair[0]] > 0 else None
    share = sums[chosen] / total if chosen else 0.0
    return {
        "prediction": chosen,
        "correct": chosen == label,
        "prediction_restricted": chosen,
        "correct_restricted": chosen == label,
        "confidence": share,
        "confidence_restricted": share,
        "probability_of_label": sums[label] / total if total else 0.0,
    }
