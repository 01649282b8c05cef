"""Compare two runs of detectors: recall and false alarms at one operating point, and average precision over all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.names import condition_words, without_object
from holdfast.core.numbers import QUANTITIES, span
from holdfast.core.protocols import LEAST_SCORE
from holdfast.core.schema import IMAGES, OBJECTS

if TYPE_CHECKING:
    from holdfast.results import Results
    from holdfast.stats.models.gate import Gate
    from holdfast.stats.objects.answers import DetectorAnswers

OWN = "own"


def compare_detectors(
    old: Results, new: Results, *, threshold: float | str | None = None, **options: Any
) -> tuple[Gate, list[str]]:
    """Return the gate of two detectors whose boxes count from one score on, and notes on it.

    ``threshold``: by default the old model's; ``"own"``: each model's, as tuned on its own originals. Other options are
    those of ``stats.objects.gate.object_gate``.
    """
    from holdfast.stats.objects.gate import object_gate, only_model

    names = [only_model(run.boxes, options.get(f"{which}_model"), which) for which, run in (("old", old), ("new", new))]
    tuned = [_threshold_of(run.boxes, name) for run, name in zip((old, new), names, strict=True)]
    score = tuned[0] if threshold is None else _checked(threshold)
    boxes, notes = [old.boxes, new.boxes], []
    if threshold == OWN:
        if tuned[0] != tuned[1]:
            notes.append(
                f"Each model has its own threshold (old {tuned[0]:g}, new {tuned[1]:g}), so these are two operating "
                "points; without --threshold own both have the old model's."
            )
    elif score is not None:
        boxes = [
            answers if own == score else _judged_at(run, name, score)
            for answers, own, run, name in zip(boxes, tuned, (old, new), names, strict=True)
        ]
        whose = "the old model's threshold" if threshold is None else "as --threshold says"
        notes.append(f"Boxes of both models count from a score of {score:g} on, {whose}.")
    return object_gate(*boxes, **options), notes + _precision(boxes, names, options.get("conditions"))


def _checked(threshold: float | str) -> float | None:
    """Return a threshold that was given, None if each model has its own."""
    if threshold == OWN:
        return None
    try:
        score = float(threshold)
    except ValueError:
        score = float("nan")
    if not LEAST_SCORE <= score <= 1:
        raise UserError(
            f"--threshold {threshold}: expected a score from {LEAST_SCORE:g} (below it none is stored) to 1, or {OWN!r}"
        )
    return score


def _threshold_of(answers: DetectorAnswers, model: str) -> float | None:
    """Return the threshold of a model in its run; None if it answered nothing."""
    known = answers.pictures.loc[answers.pictures["model"] == model, "threshold"].dropna()
    return float(known.iloc[0]) if len(known) else None


def _judged_at(run: Results, model: str, threshold: float) -> DetectorAnswers:
    """Return a model's stored answers, judged at another threshold; nothing is written."""
    from holdfast.pipeline.evaluate.detection import stored_answers
    from holdfast.pipeline.evaluate.matching import judged
    from holdfast.reports.objects.evidence import detector_tables
    from holdfast.stats.objects.answers import detector_answers

    objects, images, detections = detector_tables([run.run])
    rows: dict[str, list[Any]] = {"objects": [], "images": []}
    for image, own, predictions in stored_answers(run.run, pc.field("model") == model):
        answered, columns = judged(own, predictions, threshold)
        rows["objects"] += answered
        rows["images"].append(image | columns)
    ids = pa.array([image["row_id"] for image in rows["images"]], pa.string())
    again = []
    for table, name, schema in ((objects, "objects", OBJECTS), (images, "images", IMAGES)):
        kept = table.filter(pc.invert(pc.is_in(table["row_id"].cast(pa.string()), ids))).cast(schema)
        again.append(pa.concat_tables([pa.Table.from_pylist(rows[name], schema), kept]))
    known = set(run.boxes.pictures["row_id"]) | set(run.boxes.failed["row_id"])
    return detector_answers(again[0], again[1], detections, row_ids=known)


def _precision(boxes: Sequence[DetectorAnswers], models: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """Return a line per condition on average precision, which ranks all scores and so has no threshold."""
    from holdfast.stats.objects.effects import precision_between

    unit, lines = QUANTITIES["ap"], []
    names = [name for name in boxes[0].conditions if name in boxes[1].conditions and not without_object(name)]
    for name in [name for name in names if wanted is None or name in wanted]:
        row = precision_between(boxes[0], boxes[1], models[0], models[1], name)
        if row is None:
            continue
        lines.append(
            f"AP (at no threshold) under {condition_words(name)}: {unit.value(row['old'])} before, "
            f"{unit.value(row['new'])} now, {unit.changed(row['change'])} "
            f"({span(row['low'], row['high'], sign=True)})."
        )
    return lines
