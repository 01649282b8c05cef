from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from holdfast.core.errors import UserError
from holdfast.core.schema import PREDICTIONS
from holdfast.store import Parts, Run, other_data, unmixed, writing

ROWS = pa.schema([("row_id", pa.string()), ("status", pa.dictionary(pa.int32(), pa.string())), ("value", pa.int32())])


def rows(*ids: str, status: str = "ok") -> pa.Table:
    return pa.Table.from_pylist([{"row_id": one, "status": status, "value": len(one)} for one in ids], schema=ROWS)


def test_parts_grow_and_know_what_is_done(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts", ROWS)
    assert parts.stored_ids() == set()
    parts.write(rows("a", "b"))
    parts.write(rows("c", status="error"))
    assert parts.stored_ids() == {"a", "b", "c"}
    assert parts.rows(["value"]).num_columns == 1
    assert parts.drop(pc.field("status") == "error") == 1
    assert parts.stored_ids() == {"a", "b"}


def test_the_same_rows_written_again_are_there_once(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts", ROWS)
    parts.write(rows("a", "b", "c"))
    parts.write(rows("c", "a", "b", status="error"))  # in any order: the last word counts
    assert len(parts.paths()) == 1
    assert parts.rows()["status"].to_pylist() == ["error"] * 3
    assert parts.drop_ids(["b", "c"]) == 2
    parts.write(rows("b"))
    parts.write(rows("c", "b"))  # another set of rows is another part
    assert sorted(parts.rows()["row_id"].to_pylist()) == ["a", "b", "b", "c"]
    parts.write(rows("a", "b", "c"))  # what was left of them in their old place is replaced
    assert sorted(parts.rows()["row_id"].to_pylist()) == ["a", "b", "b", "b", "c", "c"]


def test_rows_may_be_named_by_more_than_their_id(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts", ROWS, key=("row_id", "status"))
    for status in ("ok", "error", "ok"):
        parts.write(rows("a", "b", status=status))
    assert sorted(parts.rows()["status"].to_pylist()) == ["error", "error", "ok", "ok"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts", ROWS)
    parts.write(rows("a"))
    with pytest.raises(pa.ArrowInvalid):
        parts.write(pa.table({"row_id": ["b"], "status": ["ok"], "value": ["not a number"]}))
    assert parts.stored_ids() == {"a"}
    assert len(list((tmp_path / "parts").iterdir())) == 1


def test_unfinished_files_are_cleared_and_not_read(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "predictions", ROWS)
    parts.write(rows("a"))
    (tmp_path / "predictions" / ".unfinished-123").write_bytes(b"half a file")
    half = tmp_path / "predictions" / "deeper" / ".unfinished-456"  # a checkpoint is a folder
    half.mkdir(parents=True)
    (half / "weights.safetensors").write_bytes(b"half")
    assert parts.stored_ids() == {"a"}
    with writing(tmp_path):
        assert not list(tmp_path.rglob(".unfinished-*"))


def test_only_one_process_writes(tmp_path: Path) -> None:
    code = f"""
import pathlib, sys
from holdfast.store import writing
with writing(pathlib.Path({str(tmp_path)!r})):
    print("held", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another process"), writing(tmp_path):
            pass
        holder.kill()
    with writing(tmp_path):  # the lock died with its process
        pass


def test_an_unwritable_place_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write"), writing(tmp_path / "file" / "run"):
        pass


def test_a_run_refuses_to_mix(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.begin({"dataset": "pets", "models": ["a"]}, same=("dataset",))
    run.begin({"dataset": "pets", "models": ["a", "b"]}, same=("dataset",))
    assert Run.open(tmp_path).spec()["models"] == ["a", "b"]
    with pytest.raises(UserError, match="dataset is 'pets', not 'cars'"):
        run.begin({"dataset": "cars"}, same=("dataset",))


def test_opening_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run directory"):
        Run.open(tmp_path)
    for content in ("{", "[1]", "7", "[" * 100_000):
        (tmp_path / "spec.json").write_text(content)
        with pytest.raises(UserError, match="not JSON"):
            Run.open(tmp_path).spec()


def test_an_empty_run_has_an_empty_table(tmp_path: Path) -> None:
    assert Run(tmp_path).rows().schema == PREDICTIONS
    assert Run(tmp_path).samples().num_rows == 0


def test_runs_of_other_data_never_share_a_folder(tmp_path: Path) -> None:
    """Two folders called pets: the second goes next to the first, and finds its own place again."""
    first, second = (tmp_path / side / "pets" for side in "ab")
    folder = tmp_path / "checks" / "pets"
    assert unmixed(folder, str(first), "*/spec.json") == folder
    for data, place in ((first, folder), (second, folder.with_name("pets-2"))):
        (place / "model").mkdir(parents=True)
        (place / "model" / "spec.json").write_text(json.dumps({"data": str(data)}))
        assert unmixed(folder, str(data), "*/spec.json") == place
    assert other_data(folder, str(second), "*/spec.json") == [str(first)] and not other_data(folder, f"{first}/")
