"""Whatever strangers send is refused with one sentence, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_board import make_run, rehash, retable, rewrite, static_rows, walk_rows

from holdfast.core.errors import UserError
from holdfast_evidence.board.add import add
from holdfast_evidence.board.check import check
from holdfast_evidence.board.entry import MAX_BYTES, parse_entry, read_entry


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """An entry that is fine, in a board of its own."""
    return add(make_run(tmp_path / "run", static_rows("python:a", photos=12)), tmp_path / "board")[0]


def _message(place: Path) -> str:
    """The one problem, in one line."""
    before = {path: path.read_bytes() for path in place.parent.iterdir() if path.is_file() and not path.is_symlink()}
    found = check(place.parent)
    assert {path: path.read_bytes() for path in before} == before, "check wrote something"
    assert found
    assert all("\n" not in str(problem) for problem in found)
    return " | ".join(str(problem) for problem in found)


def _set(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(told: dict[str, Any]) -> None:
        place: Any = told
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set("scores", 0, "estimate", value=float("nan")), "NaN is not a number"),
        (_set("scores", 0, "high", value=float("inf")), "Infinity is not a number"),
        (_set("scores", 0, "estimate", value="0.9"), "not an entry"),
        (_set("scores", 0, "name", value="best"), "other scores than its table"),
        (_set("scores", value=[]), "not an entry"),
        (_set("scores", value=[{"name": "a", "estimate": 1.0}] * 501), "not an entry"),
        (_set("id", value="../../etc/passwd"), "not an entry"),
        (_set("id", value="another"), "not its file's name"),
        (_set("model", "name", value="two\nlines"), "not an entry"),
        (_set("model", "title", value="\x1b[31mred"), "not an entry"),
        (_set("model", "title", value="turned \u202e round"), "not an entry"),
        (_set("model", "title", value="tw\u200bin"), "not an entry"),
        (_set("dataset", "name", value="pho\u2060tos"), "not an entry"),
        (_set("model", "title", value="left \u200e mark"), "not an entry"),
        (_set("model", "title", value="x" * 201), "not an entry"),
        (_set("model", "note", value="bell\x07"), "not an entry"),
        (_set("model", "paper", value="javascript:alert(1)"), "not an entry"),
        (_set("model", "paper", value="https://example.org/\"><script>"), "not an entry"),
        (_set("model", "code", value="file:///etc/passwd"), "not an entry"),
        (_set("model", "name", value="python:b"), "rows of another model"),
        (_set("dataset", "name", value="other"), "rows of another dataset"),
        (_set("dataset", "images", value=11), "12 images, and the dataset has 11"),
        (_set("dataset", "images", value=10**6), "12 of the dataset's 1000000"),
        (_set("dataset", "sha256", value=""), "not an entry"),
        (_set("protocol", "name", value="../static"), "not an entry"),
        (_set("protocol", "version", value=2), "follows version 2"),
        (_set("protocol", "settings", "conditions", value=["original"]), "settings that its table does not have"),
        (_set("table", value=None), "not an entry"),
        (_set("table", "sha256", value="0" * 64), "its hash is another"),
        (_set("table", "rows", value=5), "has 72 rows, and its entry says 5"),
        (_set("run", "fingerprint", value="1" * 64), "fingerprint that is not its table's"),
        (_set("kind", value="printed"), "not an entry"),
        (_set("surprise", value=1), "not an entry"),
        (_set("entry_version", value=9), "not an entry"),
        (_set("model", "\x1b[31mred\n", value=1), r"model.\x1b[31mred\n: "),
        (_set("model", "parameters", value=10**400), "not an entry"),
        (_set("scores", 0, "n", value=10**400), "not an entry"),
        (_set("protocol", "settings", "matte", value="\x1b[31m"), "not an entry"),
        (_set("protocol", "settings", "conditions", value=["turned \u202e"]), "not an entry"),
        (_set("protocol", "settings", value={f"k{number}": 1 for number in range(101)}), "not an entry"),
        (_set("speed", value={"images_per_second": 1e400, "hardware": "x"}), "Infinity is not a number"),
    ],
)  # fmt: skip
def test_a_hostile_entry_is_refused(entry: Path, change: Callable[[dict[str, Any]], None], words: str) -> None:
    rewrite(entry, change)
    assert words in _message(entry)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{" + " " * MAX_BYTES + "}", "larger than"),
        ('{"id": "a", "id": "b"}', "a key is there twice"),
        ('{"scores": 1e999}', "not finite"),
        ("[]", "not an entry"),
        ("null", "not an entry"),
        ('"\\ud800"', "not an entry"),
        ("1" * 10_000, "not JSON"),
    ],
)
def test_json_that_is_no_entry_is_refused(entry: Path, text: str, words: str) -> None:
    entry.write_text(text)
    assert words in _message(entry)


def test_bytes_that_are_no_text_are_refused(entry: Path) -> None:
    entry.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in _message(entry)


def test_html_in_names_is_text(tmp_path: Path) -> None:
    board = tmp_path / "board"
    said = {"label": "<b>x</b>", "prediction": "<b>x</b>", "prediction_restricted": "<b>x</b>", "topk": ["<b>x</b>"]}
    rows = [
        row | said | {"correct": True, "correct_restricted": True}
        for row in static_rows("python:<script>alert(1)</script>")
    ]
    add(make_run(tmp_path / "run", rows), board)
    assert check(board) == []


def _column(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    """Another value in the first row."""

    def change(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        values[0] = value(values) if callable(value) else value
        field = table.schema.field(name)
        array = pa.array(values, pa.string() if pa.types.is_dictionary(field.type) else field.type)
        return table.set_column(table.schema.get_field_index(name), field, array.cast(field.type))

    return change


def _relabelled(table: pa.Table) -> pa.Table:
    for name in ("label", "prediction", "prediction_restricted"):
        table = _column(name, "nobody")(table)
    return _column("topk", ["nobody"])(table)


def _surer(table: pa.Table) -> pa.Table:
    """Every answer more probable than the class that it is counted for."""
    return table.set_column(
        table.schema.get_field_index("confidence"), "confidence", pa.array([0.9] * len(table), "f4")
    )


def _nulls(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    """A column of another type."""
    return lambda table: table.set_column(table.schema.get_field_index(name), name, pa.nulls(len(table), kind))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_column("confidence", float("nan")), "not a number between 0 and 1"),
        (_column("confidence", float("inf")), "not a number between 0 and 1"),
        (_column("probability_of_label", -3.0), "not a number between 0 and 1"),
        (_column("row_id", lambda values: values[1]), "a row_id twice"),
        (_column("row_id", None), "a row_id twice"),
        (_column("label", "nobody"), "counts an answer as right"),
        (_relabelled, "two labels"),
        (_column("source_id", "elsewhere"), "two source images"),
        (_column("condition", "super_easy"), "super_easy, which is not known"),
        (_column("condition", None), "a row without condition"),
        (_column("fold", None), "a row without fold"),
        (_column("model", "python:b"), "rows of another model"),
        (_column("kind", "dynamic"), "not of the static protocol"),
        (_column("task", "segment"), "not of the static protocol"),
        (_column("correct", None), "without correct"),
        (_column("prediction_restricted", "nobody"), "counts an answer as right"),
        (_column("schema_version", 7), "another version of the table"),
        (_column("error", "\x1b]0;title\x07"), "control character"),
        (_column("error", "turned \u202e round"), "control character"),
        (_column("topk", ["\x1b[31m"]), "control character in its topk"),
        (_column("topk", ["x" * 5000]), "5000 characters"),
        (_column("topk", ["nobody", "dog"]), "not the first of its topk"),
        (_column("topk", []), "not the first of its topk"),
        (_column("topk", None), "not the first of its topk"),
        (_surer, "more probable than its own class"),
        (_column("prediction", "nobody"), "counts an answer as right"),
        (_column("correct", lambda values: not values[0]), "counts an answer as right"),
        (_column("sample_id", "x" * 5000), "5000 characters"),
        (lambda table: pa.concat_tables([table, _column("row_id", "f" * 32)(table.slice(0, 1))]), "an answer twice"),
        (lambda table: table.drop_columns(["topk"]), "differs in topk"),
        (lambda table: table.append_column("extra", pa.array([b"x" * 10] * len(table))), "differs in extra"),
        (lambda table: table.select(table.column_names[::-1]), "in another order"),
        (_nulls("seed", pa.string()), "seed is string"),
        (_nulls("topk", pa.list_(pa.list_(pa.string()))), "topk is"),
        (_nulls("correct", pa.int8()), "correct is int8"),
    ],
)  # fmt: skip
def test_a_hostile_table_is_refused(entry: Path, change: Callable[[pa.Table], pa.Table], words: str) -> None:
    assert words in _message(retable(entry, change))


def test_more_images_than_the_dataset_has_are_refused(entry: Path) -> None:
    def more(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows += [row | {"sample_id": f"new/{number}", "source_id": f"new/{number}", "row_id": f"{number:032d}"}
                 for number, row in enumerate(rows[:6])]  # fmt: skip
        return pa.Table.from_pylist(rows, schema=table.schema)

    assert "has rows of 18 images, and the dataset has 12" in _message(retable(entry, more))


def test_a_table_that_is_no_parquet_is_refused(entry: Path) -> None:
    table = entry.with_suffix(".parquet")
    for data in (b"", b"PAR1" * 10, table.read_bytes()[:-7], b"\x00" * 4096):
        table.write_bytes(data)
        entry = rehash(entry)
        table = entry.with_suffix(".parquet")
        assert "not a Parquet file" in _message(entry)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 0.999), value=st.integers(0, 255))
def test_a_changed_byte_is_found_or_refused(entry: Path, place: float, value: int) -> None:
    """With a hash to match: whatever Parquet makes of it is a sentence or the same numbers, never a crash."""
    board = entry.parent
    path = next(board.glob("*.json"))
    kept = path.with_suffix(".parquet").read_bytes()
    data = bytearray(kept)
    data[int(place * len(data))] = value
    path.with_suffix(".parquet").write_bytes(bytes(data))
    for problem in check(rehash(path)):
        assert "\n" not in str(problem)
    path = next(board.glob("*.json"))
    path.with_suffix(".parquet").write_bytes(kept)
    rehash(path)


def test_a_bomb_is_refused_before_it_unpacks(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million equal rows pack to nothing."""
    from holdfast_evidence.board import table as tables

    def many(table: pa.Table) -> pa.Table:
        return pa.concat_tables([table] * 200).combine_chunks()

    bomb = retable(entry, many, compression="zstd")
    monkeypatch.setattr(tables, "MAX_ROWS", 10_000)
    read = []
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: read.append(1))
    assert "unpacks to more" in _message(bomb)
    assert not read


def test_one_long_text_in_many_rows_stays_one(entry: Path) -> None:
    """A dictionary of one 20 MB text under 20,000 rows would be 400 GB of texts."""

    def heavy(table: pa.Table) -> pa.Table:
        rows = pa.concat_tables([table] * 300).combine_chunks()
        text = pa.DictionaryArray.from_arrays(pa.array([0] * len(rows), pa.int32()), pa.array(["x" * 20_000_000]))
        return rows.set_column(rows.schema.get_field_index("raw_text"), "raw_text", text)

    assert "a row_id twice" in _message(retable(entry, heavy))


def test_one_row_that_unpacks_to_a_gigabyte_is_refused(entry: Path) -> None:
    def long(table: pa.Table) -> pa.Table:
        return _column("error", "x" * 100_000_000)(table)

    bomb = retable(entry, long, compression="zstd")
    assert bomb.with_suffix(".parquet").stat().st_size < 1 << 20
    assert "unpacks to more" in _message(bomb)


@pytest.mark.parametrize("column", ["row_id", "sample_id", "label"])
def test_a_dictionary_with_a_word_twice_hides_nothing(entry: Path, column: str) -> None:
    """Two codes for one word: anyone who counts codes would count one thing twice."""

    def doubled(table: pa.Table) -> pa.Table:
        words = table[column].to_pylist()
        words[1] = words[0] if column == "row_id" else words[1]
        array = pa.DictionaryArray.from_arrays(pa.array(range(len(words)), pa.int32()), pa.array(words, pa.string()))
        return table.set_column(table.schema.get_field_index(column), column, array)

    new = retable(entry, doubled)
    if column == "row_id":
        assert "a row_id twice" in _message(new)
    else:
        assert check(new) == []


def test_links_folders_and_strange_files_are_refused(entry: Path) -> None:
    board = entry.parent
    (board / "link.json").symlink_to("/etc/passwd")
    (board / "deep").mkdir()
    (board / "script.sh").write_text("true")
    (board / "UPPER.json").write_text("{}")
    (board / "alone.parquet").write_bytes(b"")
    found = {problem.file: problem.message for problem in check(board)}
    assert "plain files" in found["link.json"]
    assert "is a folder; a board has files only" in found["deep"]
    assert "not a file of an entry" in found["script.sh"]
    assert "not a file of an entry" in found["UPPER.json"]
    assert "without its entry" in found["alone.parquet"]
    assert len(found) == 5


def test_a_table_that_is_a_link_or_missing_is_refused(entry: Path, tmp_path: Path) -> None:
    table = entry.with_suffix(".parquet")
    elsewhere = tmp_path / "elsewhere.parquet"
    table.rename(elsewhere)
    assert "is missing" in _message(entry)
    table.symlink_to(elsewhere)
    assert "is a link" in _message(entry)
    with pytest.raises(UserError, match="is a link"):
        link = tmp_path / "l.json"
        link.symlink_to(entry)
        read_entry(link)


def test_the_same_submission_twice_is_refused(entry: Path, tmp_path: Path) -> None:
    """Under another title, and with another answer: the run's rows are the same."""

    def other(table: pa.Table) -> pa.Table:
        return _column("confidence", 0.5)(table)

    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (entry, entry.with_suffix(".parquet")):
        (copy / path.name).write_bytes(path.read_bytes())
    assert "the same submission" in " ".join(map(str, check(copy, against=entry.parent)))
    changed = retable(copy / entry.name, other)
    rewrite(changed, _set("model", "title", value="Mine"))
    assert "is the same run as" in " ".join(map(str, check(changed, against=entry.parent)))


def _rows(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[pa.Table], pa.Table]:
    """Every row changed."""
    return lambda table: pa.Table.from_pylist([row | change(row) for row in table.to_pylist()], schema=table.schema)


def test_the_same_submission_under_another_model_is_refused(entry: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (entry, entry.with_suffix(".parquet")):
        (copy / path.name).write_bytes(path.read_bytes())
    mine = retable(copy / entry.name, _rows(lambda _: {"model": "python:mine"}))
    rewrite(mine, _set("model", "name", value="python:mine"))
    assert "is the same run as" in " ".join(map(str, check(rehash(mine), against=entry.parent)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: {} if row["correct"] else {"status": "error"}, "has no answer in"),
        (lambda row: {} if row["correct"] or row["condition"] != "original" else {"status": "skipped"}, "no answer in"),
        (lambda row: {} if row["correct"] or row["condition"] == "original" else {"status": "skipped"}, "answers for"),
        (lambda row: {"image_sha256": "0" * 64} if row["condition"] in ("original", "grey") else {}, "repeat others"),
        (lambda row: {"label": "fox", "correct": row["prediction"] == "fox",
                      "correct_restricted": row["prediction"] == "fox"}, "but other entries have"),
    ],
)  # fmt: skip
def test_what_is_left_out_of_the_numbers_is_found(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], words: str
) -> None:
    """A model would be perfect whose wrong answers are called errors, or whose bad conditions are called repeats."""
    board, mine = tmp_path / "board", tmp_path / "mine"
    honest = add(make_run(tmp_path / "run", static_rows("python:a", photos=30, share=0.5)), board)[0]
    rows = [row | change(row) for row in static_rows("python:b", photos=30, share=0.5)]
    path = add(make_run(tmp_path / "forged", rows), mine)[0]
    known = read_entry(honest).dataset
    rewrite(path, lambda told: told["dataset"].update(sha256=known.sha256))
    assert words in " ".join(map(str, check(mine, against=board)))


def test_a_few_errors_are_taken(tmp_path: Path) -> None:
    rows = static_rows("python:a", photos=30)
    rows[7] |= {"status": "error", "correct": None, "correct_restricted": None}
    add(make_run(tmp_path / "run", rows), tmp_path / "board")
    assert check(tmp_path / "board") == []


def test_a_submission_does_not_bring_the_list_of_datasets(entry: Path, tmp_path: Path) -> None:
    (tmp_path / "datasets.json").write_text("{}")
    found = check([tmp_path / "datasets.json"], against=entry.parent)
    assert "not a submission's" in " ".join(map(str, found))


def test_a_bomb_that_lies_about_its_size_is_refused_before_it_unpacks(
    entry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory says few bytes, the pages hold many."""

    def long(table: pa.Table) -> pa.Table:
        return _column("error", "x" * 100_000_000)(table)

    path = retable(entry, long, compression="zstd").with_suffix(".parquet")
    told = pq.read_metadata(path).row_group(0)
    data, sizes = path.read_bytes(), {told.total_byte_size}
    sizes |= {told.column(number).total_uncompressed_size for number in range(told.num_columns)}
    for size in sizes:
        if size > 1_000_000:
            data = data.replace(_varint(size), _varint(20, len(_varint(size))))
    path.write_bytes(data)
    assert pq.read_metadata(path).row_group(0).total_byte_size == 20
    read = []
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: read.append(1))
    assert "unpacks to more" in _message(rehash(path.with_suffix(".json")))
    assert not read


def _varint(value: int, width: int = 0) -> bytes:
    """As Parquet's directory writes a number, padded to some bytes."""
    value, found = value << 1, []
    while value or len(found) < width:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found[:-1], found[-1] & 127])


def test_a_printed_entry_brings_no_table(entry: Path) -> None:
    rewrite(entry, lambda told: told.update(kind="printed", source={"title": "p", "where": "Table 1"}))
    assert "is printed, and yet" in _message(entry)


def test_walks_with_hostile_parameters_are_refused(tmp_path: Path) -> None:
    path = add(make_run(tmp_path / "run", walk_rows("python:a")), tmp_path / "board")[0]
    for text in ("[1]", "{", "[" * 3000):

        def change(table: pa.Table, text: str = text) -> pa.Table:
            rows = [row | ({"parameters": text} if row["condition"] != "original" else {}) for row in table.to_pylist()]
            return pa.Table.from_pylist(rows, schema=table.schema)

        path = retable(path, change)
        assert "expected a JSON object" in _message(path)


def test_bad_use_is_a_user_error(tmp_path: Path) -> None:
    for places, against in (([], None), ([tmp_path / "nothing"], None), ([tmp_path], tmp_path / "nothing")):
        with pytest.raises(UserError):
            check(places, against=against)
    assert check(tmp_path) == []


_KEYS = st.sampled_from(["kind", "id", "model", "dataset", "protocol", "scores", "table", "run", "x"])
_LEAVES = st.none() | st.booleans() | st.floats() | st.text()


@settings(max_examples=60, deadline=None)
@given(st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(_KEYS, inner), max_leaves=20))
def test_any_json_is_an_entry_or_a_sentence(value: Any) -> None:
    with pytest.raises(UserError):
        parse_entry(json.dumps(value), "x.json")
