"""Detectors on a board: a table of images, true objects and boxes, and the numbers that follow from it.

What was found is nowhere in the table: every box is held against the objects again when it is read.
"""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.names import WITHOUT_OBJECT, scenario_of
from holdfast.core.protocols import LEAST_SCORE, MOST_PREDICTIONS, box_overlaps, size_class
from holdfast.core.schema import DETECTIONS, IMAGES, OBJECTS, PREDICTIONS, plain_schema
from holdfast.core.types import ORIGINAL
from holdfast.pipeline.evaluate.detector_worker import KEY_COLUMNS
from holdfast.pipeline.evaluate.matching import best_threshold, boxes_of, is_right, judged
from holdfast.reports.objects.evidence import DetectorEvidence, detector_tables
from holdfast.scenarios import find_scenario
from holdfast.stats.core.answers import Answers, CountedEstimate, codes_of, from_table, keep
from holdfast.stats.effects.score_spread import Design, design_of, mean_accuracy
from holdfast.stats.objects.answers import DetectorAnswers, detector_answers
from holdfast.stats.objects.effects import per_image
from holdfast.store import Run

PICTURE, OBJECT, BOX = PARTS = ("picture", "object", "box")
CORNERS = ["x1", "y1", "x2", "y2"]
SCHEMA = pa.schema([*PREDICTIONS, *plain_schema(
    "what word, object_id text, x1 float, y1 float, x2 float, y2 float, area float, crowd flag, target flag, "
    "mask_made flag, score float, threshold float"
)])  # fmt: skip
"""A row per image, with the columns of the one table and the threshold; one per true object; one per box."""

BEST_F1 = "best F1 on originals"  # the setting of a threshold that follows from the boxes on the originals
REMOVING = ("object_removed", *WITHOUT_OBJECT)
_OBJECT = ["row_id", "object_id", "label", *CORNERS, "area", "crowd", "target", "mask_made", "status", "error"]
_BOX = ["row_id", "label", *CORNERS, "score"]
_SHIFT, _ALIKE = 0.01, 0.9  # pixels by which true boxes, and IoU from which on predicted boxes are the same
TOLERANCE = 0.01  # by which scores may differ when they are measured again
AP_SCORE = LEAST_SCORE + TOLERANCE  # AP counts boxes from here on: those below cannot be measured again for certain
_STATUSES = ("ok", "removed", "unknown_class", "invalid", "error", "skipped", "rejected")

Row = dict[str, Any]


def board_rows(run: Run, pictures: pa.Table) -> pa.Table:
    """Return the table of one detector: its images as published, then their objects and their boxes."""
    objects, images, boxes = detector_tables([run])
    known = dict(zip(images["row_id"].to_pylist(), images["threshold"].to_pylist(), strict=True))
    pictures = pictures.append_column(
        "threshold", pa.array([known.get(name) for name in pictures["row_id"].to_pylist()], pa.float32())
    )
    parts = [pictures]
    for table, columns, order in ((objects, _OBJECT, "object_id"), (boxes, _BOX, "score")):
        place = pc.index_in(_ids(table), value_set=_ids(pictures))
        own, at = table.filter(pc.is_valid(place)).select(columns), place.drop_null().to_numpy()
        second = own[order].to_numpy() if order == "object_id" else -own[order].to_numpy()
        parts.append(own.take(pa.array(np.lexsort([second, at]))))
    filled = []
    for what, part in zip(PARTS, parts, strict=True):
        columns = [
            pa.array([what] * len(part)) if name == "what" else
            part[name] if name in part.column_names else pa.nulls(len(part), kind)
            for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)
        ]  # fmt: skip
        filled.append(pa.table(columns, names=SCHEMA.names).cast(SCHEMA))
    return pa.concat_tables(filled)


def _ids(table: pa.Table) -> pa.Array:
    return table["row_id"].cast(pa.string()).combine_chunks()


def part_of(table: pa.Table, what: str) -> pa.Table:
    """Return the images, objects or boxes of a table."""
    return keep(table, "what", what)


def check_contents(rows: pa.Table, name: str) -> None:
    """Raise a UserError for objects and boxes that no run would write; images are checked as other rows are."""
    if rows["what"].null_count or set(codes_of(rows, "what")[1]) - set(PARTS):
        raise UserError(f"{name} has a row that is not an image, object or box")
    pictures, objects, boxes = (part_of(rows, what) for what in PARTS)
    for table, answered in ((objects, pictures), (boxes, keep(pictures, "status", "ok"))):
        if not pc.all(pc.is_in(_ids(table), value_set=_ids(answered)), min_count=0).as_py():
            raise UserError(f"{name} has objects or boxes of an image that it does not have, or that has no answer")
        if table["label"].null_count or any(table[corner].null_count for corner in CORNERS):
            raise UserError(f"{name} has an object or a box without a class or an edge")
    for column in (*CORNERS, "area"):
        if not np.isfinite(rows[column].drop_null().to_numpy()).all():
            raise UserError(f"{name} has a {column} that is not a number")
    keys = list(zip(objects["row_id"].to_pylist(), objects["object_id"].to_pylist(), strict=True))
    if len(set(keys)) < len(keys) or any(key[1] is None for key in keys):
        raise UserError(f"{name} has an object of an image twice, or one without an object_id")
    if set(codes_of(objects, "status")[1]) - set(_STATUSES) or objects["status"].null_count:
        raise UserError(f"{name} has an object with a status that there is not")
    if any(objects[flag].null_count for flag in ("crowd", "target", "area")):
        raise UserError(f"{name} has an object without crowd, target or area")
    scores = boxes["score"].to_numpy()
    if boxes["score"].null_count or (len(scores) and not LEAST_SCORE - 1e-6 <= scores.min() <= scores.max() <= 1):
        raise UserError(f"{name} has a box whose score is not a number between {LEAST_SCORE} and 1")
    if max(Counter(boxes["row_id"].to_pylist()).values(), default=0) > MOST_PREDICTIONS:
        raise UserError(f"{name} has more than {MOST_PREDICTIONS} boxes in an image")
    thresholds = pc.unique(keep(pictures, "status", "ok")["threshold"])
    if len(thresholds) != 1 or thresholds[0].as_py() is None:
        raise UserError(f"{name} has more or less than one threshold")
    if not 0 <= thresholds[0].as_py() <= 1:
        raise UserError(f"{name} has a threshold that is not between 0 and 1")


def threshold_of(rows: pa.Table) -> float:
    """Return the score from which on boxes count; the images with an answer have it."""
    return float(keep(part_of(rows, PICTURE), "status", "ok")["threshold"][0].as_py())


def by_picture(
    rows: pa.Table, *, least: float = 0.0, only: pa.Table | None = None
) -> dict[str, tuple[list[Row], list[Row]]]:
    """Return image → its objects and its boxes, the best first; ``least``: of the score, ``only``: images."""
    beside: dict[str, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    objects, boxes = part_of(rows, OBJECT).select(_OBJECT), part_of(rows, BOX).select(_BOX)
    boxes = boxes.filter(pc.greater_equal(boxes["score"], np.float32(least)))
    for place, table in enumerate((objects, boxes.sort_by([("score", "descending")]))):
        if only is not None:
            table = table.filter(pc.is_in(_ids(table), value_set=_ids(only)))
        for row in table.to_pylist():
            beside[row["row_id"]][place].append(row)
    return beside


_last: list[tuple[weakref.ref[pa.Table], DetectorEvidence, list[str]]] = []


def judged_rows(rows: pa.Table) -> tuple[DetectorEvidence, list[str]]:
    """Return what a detector answered, every box held against the objects, and images that are counted falsely.

    Those of the last table are kept.
    """
    if _last and _last[0][0]() is rows:
        return _last[0][1], _last[0][2]
    threshold = threshold_of(rows)
    beside = by_picture(rows, least=threshold)
    objects: list[Row] = []
    images: list[Row] = []
    wrong = []
    for row in part_of(rows, PICTURE).select([*KEY_COLUMNS, "status", "error", "correct"]).to_pylist():
        key = {name: row[name] for name in KEY_COLUMNS}
        truth, boxes = beside[row["row_id"]]
        answered, columns = judged(
            [key | each | {"size": size_class(each["area"])} for each in truth], boxes, threshold
        )
        if row["status"] != "ok":
            columns |= {"n_predictions": None, "false_alarms": None}
        elif is_right(answered, columns) != row["correct"]:
            wrong.append(row["sample_id"])
        objects += answered
        images.append(key | columns | {"status": row["status"], "error": row["error"]})
    said = part_of(rows, BOX)
    said = said.filter(pc.greater_equal(said["score"], np.float32(AP_SCORE)))
    evidence = DetectorEvidence([], detector_answers(
        pa.Table.from_pylist(objects, schema=OBJECTS), pa.Table.from_pylist(images, schema=IMAGES),
        said.select([name for name in DETECTIONS.names if name in said.column_names]),
    ))  # fmt: skip
    _last[:] = [(weakref.ref(rows), evidence, wrong)]
    return evidence, wrong


def settings(rows: pa.Table) -> dict[str, Any]:
    """Return the threshold, as a number if it is not the best on the originals, and classes the detector lacks."""
    pictures, threshold = part_of(rows, PICTURE), threshold_of(rows)
    originals = keep(keep(pictures, "condition", ORIGINAL), "status", "ok")
    best, _ = best_threshold(by_picture(rows, only=originals).values())
    stated = {"threshold": BEST_F1 if abs(best - threshold) < 1e-5 else round(threshold, 6)}
    lacking = codes_of(keep(part_of(rows, OBJECT), "status", "unknown_class"), "label")[1]
    return stated | ({"unknown_classes": lacking} if lacking else {})


def problems(rows: pa.Table) -> list[str]:
    """Return what the objects of a table show: some that come and go, classes left out in part, false counts."""
    objects = part_of(rows, OBJECT).select(["row_id", "object_id", "label", "crowd", "status"]).to_pylist()
    pictures = {row["row_id"]: row for row in
                part_of(rows, PICTURE).select(["row_id", "sample_id", "condition", "status"]).to_pylist()}  # fmt: skip
    shown: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    lacking: dict[str, set[bool]] = defaultdict(set)
    for row in objects:
        picture = pictures[row["row_id"]]
        shown[row["row_id"]].append((row["object_id"], row["label"], row["crowd"], row["status"] == "invalid"))
        if row["status"] == "removed" and scenario_of(picture["condition"]) not in REMOVING:
            return [f"says that an object of {picture['sample_id']} was taken out under {picture['condition']}"]
        if row["status"] in ("ok", "unknown_class"):
            lacking[row["label"]].add(row["status"] == "unknown_class")
    faults = [f"leaves out some objects of the class {label}" for label, kinds in lacking.items() if len(kinds) > 1]
    first: dict[str, list[tuple[Any, ...]]] = {}
    for row_id, picture in pictures.items():
        own = sorted(shown[row_id])
        if picture["status"] == "ok" and first.setdefault(picture["sample_id"], own) != own:
            faults.append(f"has other objects in {picture['sample_id']} under {picture['condition']} than elsewhere")
            break
    wrong = judged_rows(rows)[1]
    return faults + ([f"counts {wrong[0]} as right or wrong if its boxes say otherwise"] if wrong else [])


def truths(rows: pa.Table) -> dict[str, str]:
    """Return sample → its objects in one text: names, classes, boxes on the original."""
    originals = keep(keep(part_of(rows, PICTURE), "condition", ORIGINAL), "status", "ok")
    beside = by_picture(rows, least=2.0, only=originals)
    return {
        sample: "; ".join(
            f"{row['object_id']} {row['label']} {' '.join(f'{row[corner]:.1f}' for corner in CORNERS)}"
            for row in sorted(beside[row_id][0], key=lambda row: row["object_id"])
        )
        for sample, row_id in zip(originals["sample_id"].to_pylist(), originals["row_id"].to_pylist(), strict=True)
    }


def recalled(answers: DetectorAnswers) -> tuple[Answers, Design | None]:
    """Return the counted objects as answers, and the design of the conditions that change the background only."""
    rows = from_table(answers.as_classified())
    return rows, design_of(rows, background_conditions(rows.conditions), average="micro")


def background_conditions(names: list[str]) -> list[str]:
    """Return the conditions that leave every object as it is and change what is around."""
    known = {name: scenario_of(name) for name in names}
    return [name for name, scenario in known.items() if scenario in registry.scenarios
            and find_scenario(scenario).leaves == "foreground"]  # fmt: skip


def numbers(rows: pa.Table) -> list[tuple[str, CountedEstimate]]:
    """Return the scores of a detector, the most telling first."""
    evidence = judged_rows(rows)[0]
    answers = evidence.answers
    design = recalled(answers)[1]
    if design is None:
        raise UserError("an entry of a detector needs objects on originals and under a condition that keeps them")
    changed = answers.pictures[answers.pictures["condition"].isin(background_conditions(answers.conditions))]
    alarms = per_image(changed, "false_alarms", "value")
    frame = {str(row["condition"]): row for row in evidence.table.to_dict("records")}
    scores = [
        ("mean_recall", replace(mean_accuracy(design), n=int(frame[ORIGINAL]["objects"]))),
        ("recall", _taken(frame[ORIGINAL], "recall", "objects")),
        ("mean_false_alarms", _taken(alarms | {"n": len(changed)}, "value", "n")),
        ("false_alarms", _taken(frame[ORIGINAL], "false_alarms", "pictures")),
        ("ap", _taken(frame[ORIGINAL], "ap", "objects")),
        ("ap50", _taken(frame[ORIGINAL], "ap50", "objects")),
        ("background_effect", _taken(evidence.holds.iloc[0].to_dict(), "background_effect", "n")),
    ]
    for name in (name for name in answers.conditions if name != ORIGINAL):
        scores += [(f"{what}:{name}", _taken(frame[name], what, n)) for what, n in
                   (("recall", "objects"), ("false_alarms", "pictures"), ("ap", "objects"))]  # fmt: skip
    return [(name, estimate) for name, estimate in scores if np.isfinite(estimate.value) and estimate.n]


def _taken(row: Mapping[Any, Any], name: str, n: str) -> CountedEstimate:
    return CountedEstimate(float(row[name]), float(row[f"{name}_low"]), float(row[f"{name}_high"]), int(row[n]))


def difference(
    claimed: tuple[list[Row], list[Row]], measured: Mapping[str, Any], tolerance: float, threshold: float
) -> str:
    """Return what an entry says otherwise of an image's objects and boxes than what was measured here, or ""."""
    # A box just above LEAST_SCORE may be below it elsewhere, and AP leaves it out; one above the threshold counts.
    least = min(LEAST_SCORE + tolerance, threshold)
    truth = {row["object_id"]: row for row in measured["objects"]}
    for row in claimed[0]:
        other = truth.pop(row["object_id"], None)
        same = other is not None and all(row[name] == other[name] for name in ("label", "crowd", "target", "status"))
        if other is not None and same:
            same = np.abs(boxes_of([row]) - boxes_of([other])).max() <= _SHIFT
            same = same and np.isclose(row["area"], other["area"], rtol=1e-4, atol=_SHIFT)
        if not same:
            return f"object {row['object_id']} ({row['label']}, {row['status']}) is another here"
    if truth:
        return f"object {min(truth)} is here, and not in the entry"
    here = list(measured["detections"])
    for box in claimed[1]:
        overlaps = box_overlaps(boxes_of([box]), boxes_of(here))[0]
        alike = [at for at, other in enumerate(here) if other["label"] == box["label"] and overlaps[at] >= _ALIKE
                 and abs(other["score"] - box["score"]) <= tolerance]  # fmt: skip
        if alike:
            here.pop(max(alike, key=lambda at: overlaps[at]))
        elif box["score"] >= least:
            return f"a box of {box['label']} with a score of {box['score']:.4f} is not here"
    more = [box for box in here if box["score"] >= least]
    return f"a box of {more[0]['label']} with a score of {more[0]['score']:.4f} is not in the entry" if more else ""
