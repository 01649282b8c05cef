"""Detectors on a board: what is counted follows from boxes and objects, and forged ones are found out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.results import Results
from holdfast_evidence.board.add import add
from holdfast_evidence.board.check import check
from holdfast_evidence.board.entry import entry_id, entry_json, read_entry
from holdfast_evidence.board.numbers import numbers, settings
from holdfast_evidence.board.objects import SCHEMA, check_contents, difference
from holdfast_evidence.board.site.build import build
from holdfast_evidence.board.table import packed, read_table, run_fingerprint
from holdfast_evidence.board.verify import verify

DATA, SCENE = "diorama:test?n=16&objects=0..3&context=0", "known:scene"
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("runs") / "known"
    scenarios = "original,blur_background,random_background,only_background,object_removed"
    return api.evaluate(DATA, models=f"known:perfect,{SCENE}", scenarios=scenarios, out=out, device="cpu")


@pytest.fixture(scope="module")
def board(run: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("boards") / "board"
    add(run.path, out)
    return out


def entry_of(board: Path, model: str) -> Path:
    return next(path for path in board.glob("*.json") if read_entry(path).model.name == model)


def forged(entry: Path, out: Path, change: Callable[[Rows], object]) -> Path:
    """A submission whose rows were changed, and everything that follows from the rows with them."""
    stated = read_entry(entry)
    rows = read_table(entry.with_suffix(".parquet"), stated).to_pylist()
    change(rows)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    data = packed(table)
    digest = hashlib.sha256(data).hexdigest()
    name = entry_id(stated.model.name, stated.dataset.name, "objects", digest)
    assert stated.table is not None
    assert stated.run is not None
    protocol = stated.protocol.model_copy(update={"settings": settings(table, "objects")})
    false = stated.model_copy(
        update={
            "id": name, "scores": numbers(table, "objects"), "protocol": protocol,
            "table": stated.table.model_copy(update={"sha256": digest, "rows": len(table)}),
            "run": stated.run.model_copy(update={"fingerprint": run_fingerprint(table)}),
        }
    )  # fmt: skip
    out.mkdir(exist_ok=True)
    (out / f"{name}.parquet").write_bytes(data)
    (out / f"{name}.json").write_text(entry_json(false))
    return out / f"{name}.json"


def test_scores_are_those_of_the_run_and_known_answers_come_out(run: Results, board: Path) -> None:
    assert check(board) == []
    perfect = {score.name: score.estimate for score in read_entry(entry_of(board, "known:perfect")).scores}
    assert (perfect["mean_recall"], perfect["recall"], perfect["ap"], perfect["mean_false_alarms"]) == (1, 1, 1, 0)
    entry = read_entry(entry_of(board, SCENE))
    scores = {score.name: score for score in entry.scores}
    # it calls objects by their class in their own surroundings only
    assert scores["recall"].estimate == 1
    assert scores["recall:random_background"].estimate == 0
    table = run.objects()
    for row in table[table["model"] == SCENE].to_dict("records"):
        end = "" if row["condition"] == "original" else f":{row['condition']}"
        for name in ("recall", "false_alarms", "ap"):
            score = scores.get(f"{name}{end}")
            if score is not None:
                assert (score.estimate, score.low, score.high) == pytest.approx(
                    (row[name], row[f"{name}_low"], row[f"{name}_high"]), abs=1e-9
                )
    kept = [scores[f"recall:{name}"].estimate for name in ("blur_background", "random_background")]
    assert scores["mean_recall"].estimate == pytest.approx(sum(kept) / 2)
    assert entry.protocol.settings["threshold"] == "best F1 on originals"


def drop_lost_objects(rows: Rows) -> None:
    pictures = {row["row_id"]: row for row in rows if row["what"] == "picture"}
    rows[:] = [row for row in rows if row["what"] != "object"
               or pictures[row["row_id"]]["condition"] != "random_background"]  # fmt: skip


def claim_right(rows: Rows) -> None:
    for row in rows:
        if row["what"] == "picture" and row["status"] == "ok":
            row["correct"] = True


def other_truth(rows: Rows) -> None:
    for row in rows:
        if row["what"] == "object":
            row |= {"x2": row["x2"] + 3}


def unknown(rows: Rows) -> None:
    pictures = {row["row_id"]: row for row in rows if row["what"] == "picture"}
    for row in rows:
        if row["what"] == "object" and pictures[row["row_id"]]["condition"] == "random_background":
            row["status"] = "unknown_class"


def removed(rows: Rows) -> None:
    next(row for row in rows if row["what"] == "object" and row["status"] == "ok")["status"] = "removed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop_lost_objects, "has other objects in"),
        (claim_right, "as right or wrong if its boxes say otherwise"),
        (other_truth, "but other entries have"),
        (unknown, "leaves out some objects of the class"),
        (removed, "was taken out under"),
    ],
)
def test_objects_that_are_not_the_datasets_are_found(
    change: Callable[[Rows], object], words: str, board: Path, tmp_path: Path
) -> None:
    problems = check([forged(entry_of(board, SCENE), tmp_path / "new", change)], against=board)
    assert any(words in str(problem) for problem in problems), problems


@pytest.mark.parametrize(
    ("what", "column", "value", "words"),
    [
        ("box", "x1", float("nan"), "has a x1 that is not a number"),
        ("box", "row_id", "nowhere", "of an image that it does not have"),
        ("box", "score", 0.001, "a box whose score is not a number between 0.01 and 1"),
        ("box", "score", 1.0005, "a box whose score is not a number between 0.01 and 1"),
        ("box", "score", float("nan"), "a box whose score is not a number between 0.01 and 1"),
        ("object", "label", None, "without a class or an edge"),
        ("object", "status", "fine", "a status that there is not"),
        ("picture", "threshold", 0.9, "more or less than one threshold"),
    ],
)
def test_rows_that_no_run_would_write_are_refused(
    what: str, column: str, value: Any, words: str, board: Path, tmp_path: Path
) -> None:
    entry = entry_of(board, SCENE)
    table = read_table(entry.with_suffix(".parquet"), read_entry(entry)).cast(SCHEMA)
    rows = table.to_pylist()
    next(row for row in rows if row["what"] == what and row["status"] in ("ok", None))[column] = value
    data = packed(pa.Table.from_pylist(rows, schema=SCHEMA))
    stated = read_entry(entry)
    assert stated.table is not None
    update = {"table": stated.table.model_copy(update={"sha256": hashlib.sha256(data).hexdigest()})}
    (tmp_path / entry.name).write_text(entry_json(stated.model_copy(update=update)))
    (tmp_path / entry.name).with_suffix(".parquet").write_bytes(data)
    assert words in str(check([tmp_path / entry.name])[0])


def test_boxes_that_verify_cannot_hold_on_to_count_for_nothing(board: Path) -> None:
    entry = entry_of(board, SCENE)
    table = read_table(entry.with_suffix(".parquet"), read_entry(entry)).cast(SCHEMA)
    rows = table.to_pylist()
    missed = [row for row in rows if row["what"] == "object" and row["status"] == "ok"]
    more = [row | {"what": "box", "score": 0.0195} for row in missed]  # a right box on every object
    forged = pa.Table.from_pylist(rows + more, schema=SCHEMA)
    assert numbers(forged, "objects") == numbers(table, "objects")
    for row in rows:
        row["threshold"] = -0.5 if row["threshold"] is not None else None
    with pytest.raises(UserError, match="threshold that is not between 0 and 1"):
        check_contents(pa.Table.from_pylist(rows, schema=SCHEMA), "entry")


def test_a_box_above_the_threshold_and_another_area_are_differences() -> None:
    corners = {"x1": 1.0, "y1": 1.0, "x2": 9.0, "y2": 9.0}
    truth = {"object_id": "a", "label": "fox", "crowd": False, "target": False, "status": "ok", "area": 64.0} | corners
    box = {"label": "fox", "score": 0.015} | corners
    here = {"objects": [truth], "detections": []}
    assert difference(([truth], [box]), here, 0.01, 0.3) == ""
    assert "is not here" in difference(([truth], [box]), here, 0.01, 0.012)
    assert "is not in the entry" in difference(([truth], []), here | {"detections": [box]}, 0.01, 0.012)
    assert "is another here" in difference(([truth | {"area": 640.0}], []), here, 0.01, 0.3)


def test_verify_measures_pictures_again_and_finds_forged_boxes(board: Path, tmp_path: Path) -> None:
    verified = verify(entry_of(board, SCENE), DATA, rows=12, seed=0, device="cpu")
    assert verified.agrees
    assert (verified.drawn, verified.other_ids) == (12, 0)

    def improve(rows: Rows) -> None:
        truth = {(row["row_id"], row["x1"], row["y1"]): row["label"] for row in rows if row["what"] == "object"}
        boxes = [row for row in rows if row["what"] == "box" and (row["row_id"], row["x1"], row["y1"]) in truth]
        for box in boxes:
            box["label"] = truth[box["row_id"], box["x1"], box["y1"]]
        pictures = {box["row_id"] for box in boxes}
        for row in rows:
            if row["what"] == "picture" and row["row_id"] in pictures:
                row["correct"] = True

    false = forged(entry_of(board, SCENE), tmp_path / "false", improve)
    assert check([false]) == []  # it agrees with itself
    caught = verify(false, DATA, rows=80, seed=0, device="cpu")
    assert not caught.agrees
    assert any("a box of" in row.why and "is not here" in row.why for row in caught.rows)


def test_the_site_shows_detectors(board: Path, tmp_path: Path) -> None:
    build(board, tmp_path / "site", printed=False)
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf8")
    assert "Recall, surroundings changed" in index
    assert 'data-rank-mean-recall="2"' in index  # a detector that goes by the scene comes second
    page = (tmp_path / "site" / "models" / f"{entry_of(board, SCENE).stem}.html").read_text(encoding="utf8")
    assert "False alarms per image" in page
    assert "On backgrounds from elsewhere it finds 0.0 of 100 objects" in page
