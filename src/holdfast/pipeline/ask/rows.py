"""From answers to rows of the one table and of ``details/answers``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.core.fingerprint import fingerprint
from holdfast.core.protocols import Refusal, VisionLanguageModel
from holdfast.core.schema import ANSWERS, PREDICTIONS, SCHEMA_VERSION, row_id
from holdfast.core.types import Collection, Sample
from holdfast.data.labels import outcomes
from holdfast.pipeline.ask.matching import Synonyms, is_refusal, read_answer
from holdfast.pipeline.ask.wording import FULL_LIST, AskSpec, Distractors, Question, best_of_class
from holdfast.pipeline.evaluate.worker import Tested
from holdfast.pipeline.samples import Prepared
from holdfast.store import Parts, Run

TASK = "question"
LONGEST = 2000
"""Characters of an answer that are kept and read."""


@dataclass(frozen=True)
class Asked:
    """A model that is asked: one that answers in words, or a classifier that is scored on the same options."""

    name: str
    fingerprint: str
    vlm: VisionLanguageModel | None = None
    classifier: Tested | None = None


def details(run: Path) -> Parts:
    """The table beside the one table, keyed by its row ids."""
    return Parts(run / "details" / "answers", ANSWERS)


class Recorder:
    """Names rows before they are there, and writes them when they are."""

    def __init__(
        self, spec: AskSpec, prepared: Prepared, run: Run, distractors: Distractors, synonyms: Synonyms
    ) -> None:
        self.spec, self.run, self.distractors, self.synonyms = spec, run, distractors, synonyms
        self.collection: Collection = prepared.collection
        self._images = prepared.images
        self._answers = details(run.path)

    def row_id(self, sample: Sample, protocol: str, model: Asked) -> str:
        """The name of a row. Synonyms are no part of it: they change how an answer is read, not the answer."""
        distractor = "" if protocol == FULL_LIST else self.distractors.fingerprint(sample)
        image = fingerprint([self._images[sample.sample_id], sample.label, list(self.collection.classes), distractor])
        return row_id(self._key(sample, protocol, model), image=image, mask="", model=model.fingerprint)

    def _key(self, sample: Sample, protocol: str, model: Asked) -> dict[str, Any]:
        return {
            "task": TASK,
            "kind": sample.kind,
            "dataset": self.collection.name,
            "sample_id": sample.sample_id,
            "source_id": sample.source_id,
            "split": sample.split,
            "fold": sample.fold,
            "condition": sample.condition,
            "variant": "as_stored",
            "parameters": self.spec.parameters(protocol),
            "seed": self.spec.seed,
            "model": model.name,
            "trained_on": "",
            "protocol": protocol,
        }

    def row(self, sample: Sample, protocol: str, model: Asked, **outcome: Any) -> dict[str, Any]:
        """A row with its outcome."""
        return (
            self._key(sample, protocol, model)
            | {"row_id": self.row_id(sample, protocol, model), "run_id": self.run.run_id}
            | {"schema_version": SCHEMA_VERSION, "label": sample.label}
            | outcome
        )

    def failed(self, sample: Sample, protocol: str, model: Asked, reason: object) -> dict[str, Any]:
        """A row without an answer."""
        return self.row(sample, protocol, model, status="error", error=str(reason)[:500])

    def answered(
        self, sample: Sample, asked: Question, model: Asked, answer: str, image_sha256: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Row and details of an answer in words."""
        kept = Refusal(answer[:LONGEST]) if isinstance(answer, Refusal) else answer[:LONGEST]
        outcome, detail = self._read(kept, asked.options, asked.place)
        row = self.row(
            sample, asked.protocol, model, status="ok", raw_text=str(kept), image_sha256=image_sha256, **outcome
        )
        return row, detail | _asked(row, asked)

    def scored(
        self, sample: Sample, asked: Question, model: Asked, scores: NDArray[np.float32], image_sha256: str
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Row and details of a classifier; ``scores``: its probabilities, (1, outputs)."""
        assert model.classifier is not None
        columns = outcomes(scores, model.classifier.labels, [sample.label])
        outcome = {name: values[0] for name, values in columns.items()}
        if outcome["status"] == "ok" and asked.protocol != FULL_LIST:
            outcome |= _of_two(scores, model.classifier, asked, sample.label)
        row = self.row(sample, asked.protocol, model, image_sha256=image_sha256, **outcome)
        if outcome["status"] != "ok":
            return row, None
        # The best of all outputs may be none of the options: the strict reading of a classifier's answer.
        detail = {
            "strict": outcome["correct"],
            "lenient": outcome["correct_restricted"],
            "matched": outcome["prediction_restricted"],
            "refusal": False,
            "unmatched": outcome["prediction_restricted"] is None,
        }
        return row, detail | _asked(row, asked)

    def write(self, rows: Sequence[dict[str, Any]], answers: Sequence[dict[str, Any]]) -> None:
        """Write rows and details. The table itself comes last: its rows say what is done."""
        if answers:
            self._answers.write(pa.Table.from_pylist(list(answers), schema=ANSWERS))
        if rows:
            self.run.predictions.write(pa.Table.from_pylist(list(rows), schema=PREDICTIONS))

    def clear(self) -> None:
        """Drop details whose row is not there: what a killed process leaves."""
        orphans = self._answers.stored_ids() - self.run.predictions.stored_ids()
        self._answers.drop_ids(orphans)

    def read_again(self, ids: set[str]) -> int:
        """Read stored answers once more where synonyms have changed since; returns how many now mean something else."""
        wanted = (pc.field("task") == TASK) & (pc.field("status") == "ok") & pc.field("raw_text").is_valid()
        rows = [
            row for row in self.run.predictions.dataset().to_table(filter=wanted).to_pylist() if row["row_id"] in ids
        ]
        told = {one["row_id"]: one for one in self._answers.rows().to_pylist()}
        changed, read_anew = [], []
        for row in rows:
            before = told.get(row["row_id"])
            if before is None:
                continue
            marked = before["refusal"] and not is_refusal(row["raw_text"])
            text = Refusal(row["raw_text"]) if marked else row["raw_text"]
            outcome, detail = self._read(text, before["options"], before["truth_place"])
            if before | detail != before:
                changed.append(row | outcome)
                read_anew.append(before | detail)
        if changed:
            ids = {row["row_id"] for row in changed}
            self.run.predictions.drop_ids(ids)
            self._answers.drop_ids(ids)
            self.write(changed, read_anew)
        return len(changed)

    def _read(self, answer: str, options: Sequence[str], place: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Outcome columns and details of an answer in words: strict as the full, lenient as the restricted one."""
        classes, letters = self.collection.classes, self.spec.letters
        reading = read_answer(answer, options, self.synonyms, classes=classes, letters=letters)
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


def _asked(row: dict[str, Any], asked: Question) -> dict[str, Any]:
    return {
        "row_id": row["row_id"],
        "options": list(asked.options),
        "truth_place": asked.place,
        "distractor": asked.distractor,
    }


def _of_two(scores: NDArray[np.float32], model: Tested, asked: Question, label: str) -> dict[str, Any]:
    """The outcome columns among the two options; a tie goes to the class that comes first in the dataset."""
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
