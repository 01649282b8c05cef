"""Answers as rows: in words, or the scores of a classifier among the same options."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.core.protocols import Refusal
from holdfast.core.schema import ANSWERS, PREDICTIONS
from holdfast.core.types import Collection
from holdfast.pipeline.ask.wording import FULL_LIST, AskSpec, Question, Synonyms, best_of_class, is_refusal, read_answer
from holdfast.pipeline.classifiers import Tested
from holdfast.pipeline.jobs.plan import Scope
from holdfast.pipeline.jobs.rows import Row, outcome_rows
from holdfast.store import Run

LONGEST = 2000  # characters of an answer that are kept and read


class AnswerReader:
    """Turns answers into outcome columns and details."""

    def __init__(self, spec: AskSpec, collection: Collection, synonyms: Synonyms) -> None:
        self._letters, self._classes, self._synonyms = spec.letters, collection.classes, synonyms

    def in_words(self, asked: Question, answer: str) -> Row:
        """Return the outcome of an answer in words, with its details."""
        kept = Refusal(answer[:LONGEST]) if isinstance(answer, Refusal) else answer[:LONGEST]
        outcome, detail = self._read(kept, asked.options, asked.place)
        return outcome | {"status": "ok", "raw_text": str(kept), "answers": [detail | _question(asked)]}

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
        return outcome | {"answers": [detail | _question(asked)]}

    def read_again(self, run: Run, scope: Scope) -> int:
        """Read stored answers once more if synonyms have changed since; return how many now mean something else."""
        wanted = scope.rows & (pc.field("status") == "ok") & pc.field("raw_text").is_valid()
        answers = run.details("answers")
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
        outcome = {"prediction": reading.strict, "correct": strict}
        outcome |= {"prediction_restricted": reading.lenient, "correct_restricted": lenient}
        detail = {"strict": strict, "lenient": lenient, "matched": reading.lenient}
        return outcome, detail | {"refusal": reading.refusal, "unmatched": reading.unmatched}


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
