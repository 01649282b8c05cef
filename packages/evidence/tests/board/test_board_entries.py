"""Runs become entries, and entries are checked."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from made_board import CLASSES, hard_rows, make_board, make_run, retable, rewrite, static_rows, trained_rows, walk_rows
from threadpoolctl import threadpool_info, threadpool_limits

from holdfast.core.errors import UserError
from holdfast.store import Run
from holdfast_evidence.board.add import add
from holdfast_evidence.board.check import check
from holdfast_evidence.board.entry import dataset_sha256, entry_json, read_entry
from holdfast_evidence.board.numbers import numbers, read_table
from holdfast_evidence.board.site.build import build


def test_a_run_becomes_entries_that_check_finds_nothing_wrong_with(tmp_path: Path) -> None:
    paths = make_board(tmp_path / "board", tmp_path)
    assert len(paths) == 6
    assert check(tmp_path / "board") == []
    for path in paths:
        entry = read_entry(path)
        assert entry.id == path.stem
        assert entry.scores == numbers(read_table(path.with_suffix(".parquet"), entry), entry.protocol.name)
        assert entry_json(entry) == path.read_text(encoding="utf8")
        assert (entry.dataset.images, entry.dataset.classes) == (30 if entry.protocol.name == "static" else 24, 3)
        assert entry.run is not None
        assert entry.run.holdfast == "0.1.0"


def test_matrices_are_multiplied_in_one_thread_while_entries_are_checked(tmp_path: Path) -> None:
    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    add(make_run(tmp_path / "run", static_rows("python:m")), tmp_path / "board")
    seen: list[set[int]] = []
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        assert 1 not in before
        assert check(tmp_path / "board", keep=lambda entry, table: seen.append(threads())) == []
        assert threads() == before
    assert 1 in seen[0]


def test_the_same_run_elsewhere_gives_the_same_bytes(tmp_path: Path) -> None:
    rows = static_rows("python:m")
    first = add(make_run(tmp_path / "a", rows), tmp_path / "one")[0]
    second = add(make_run(tmp_path / "b", rows[::-1]), tmp_path / "two")[0]
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    assert first.with_suffix(".parquet").read_bytes() == second.with_suffix(".parquet").read_bytes()


def test_trained_models_have_both_parts_and_walks_an_entry_a_setting(tmp_path: Path) -> None:
    trained = read_entry(add(make_run(tmp_path / "a", trained_rows("python:m"), verb="train"), tmp_path / "one")[0])
    assert trained.protocol.settings["trained_on"] == ["original", "blur_object", "grey"]
    assert {"variance_cross", "variance_inner"} <= {score.name for score in trained.scores}
    rows = walk_rows("python:m", steps=5) + [
        row for row in walk_rows("python:m", steps=9, seed=1) if row["condition"] != "original"
    ]
    walks = [read_entry(path) for path in add(make_run(tmp_path / "b", rows), tmp_path / "two")]
    assert sorted(one.protocol.settings["steps"] for one in walks) == [5, 9]
    assert all(one.table is not None and one.table.rows == 72 for one in walks)
    assert check(tmp_path / "one") == check(tmp_path / "two") == []


def test_heads_are_counted_stage_by_stage_or_as_meta_says(tmp_path: Path) -> None:
    names = ("embedded:vit_rho95", "python:other")
    run = make_run(tmp_path / "run", [row for name in names for row in static_rows(name)])
    meta = tmp_path / "meta.toml"
    meta.write_text('[models."python:other"]\nheads = "1/2/4/8"\n')
    entries = {one.model.name: one for one in map(read_entry, add(run, tmp_path / "board", meta))}
    assert {name: entries[name].model.heads for name in names} == {"embedded:vit_rho95": "4", "python:other": "1/2/4/8"}
    build(tmp_path / "board", tmp_path / "site", printed=False)
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf8")
    assert 'data-key="heads" data-v="1/2/4/8"' in page and 'data-key="heads" data-v="4"' in page


def test_meta_says_what_rows_do_not(tmp_path: Path) -> None:
    rows = static_rows("python:a") + static_rows("embedded:resnet_rho0", seed=1)
    run = make_run(tmp_path / "run", rows)
    meta = tmp_path / "meta.toml"
    meta.write_text(
        'code = "https://example.org/code"\n[models."python:a"]\ntitle = "A <b>bold</b> model"\nparameters = 12\n'
        '[models."python:a".speed]\nimages_per_second = 90.5\nhardware = "a laptop, one core"\nbatch = 8\n'
    )
    entries = {one.model.name: one for one in map(read_entry, add(run, tmp_path / "board", meta))}
    told, counted = entries["python:a"], entries["embedded:resnet_rho0"]
    assert (told.model.title, told.model.parameters, told.model.input_size) == ("A <b>bold</b> model", 12, None)
    assert told.speed is not None
    assert told.speed.hardware == "a laptop, one core"
    assert (counted.model.parameters, counted.model.input_size, counted.speed) == (672_604, 64, None)
    assert counted.model.heads == ""
    assert counted.model.code == "https://example.org/code"
    assert check(tmp_path / "board") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('title = "one"', "one title for several"),
        ('heads = "many"', "heads"),
        ('[models."python:c"]\ntitle = "x"', "speaks of 'python:c'"),
        ("models = 3", "models is something else"),
        ('code = "http://example.org"', "code"),
        ('paper = "javascript:alert(1)"', "paper"),
        ("accuracy = 1.0", "accuracy"),
        ('[speed]\nimages_per_second = 9.0', "hardware"),
        ('[speed]\nimages_per_second = nan\nhardware = "x"', "images_per_second"),
        ("note = 3", "note"),
        ("not toml", "not TOML"),
    ],
)  # fmt: skip
def test_a_bad_meta_is_a_sentence_and_nothing_is_written(tmp_path: Path, text: str, words: str) -> None:
    run = make_run(tmp_path / "run", static_rows("python:a") + static_rows("python:b"))
    (tmp_path / "meta.toml").write_text(text)
    with pytest.raises(UserError, match=words):
        add(run, tmp_path / "board", tmp_path / "meta.toml")
    assert not (tmp_path / "board").exists()


def test_an_addition_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", static_rows("python:a") + static_rows("python:b"))
    (first,) = add(run, tmp_path / "board", models=["python:a"])
    before = first.read_bytes()
    modified = first.stat().st_mtime_ns
    same, second = add(run, tmp_path / "board")
    assert same == first and "python-b" in second.name and first.read_bytes() == before
    assert first.stat().st_mtime_ns == modified


def test_a_run_is_added_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", static_rows("python:a"))
    add(run, tmp_path / "board")
    there = {path.name: path.read_bytes() for path in (tmp_path / "board").iterdir()}
    add(run, tmp_path / "board")
    (tmp_path / "meta.toml").write_text('title = "Another name"')
    with pytest.raises(
        UserError, match=r"has this submission already: \S+\.json has the same table and says something"
    ):
        add(run, tmp_path / "board", tmp_path / "meta.toml")
    assert {path.name: path.read_bytes() for path in (tmp_path / "board").iterdir()} == there


def test_some_models_of_a_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", static_rows("python:a") + static_rows("python:b"))
    assert len(add(run, tmp_path / "board", models=["python:b"])) == 1
    with pytest.raises(UserError, match="no rows of 'python:c'"):
        add(run, tmp_path / "board", models=["python:c"])


@pytest.mark.parametrize("case", ["only originals", "no samples", "no run"])
def test_runs_without_an_entry_are_a_sentence(tmp_path: Path, case: str) -> None:
    rows = [row for row in static_rows("python:a") if row["condition"] == "original" or case != "only originals"]
    run = make_run(tmp_path / "run", rows)
    if case == "no samples":
        (run / "samples.parquet").unlink()
    if case == "no run":
        (run / "spec.json").unlink()
    words = {"only originals": "nothing for a board", "no samples": "no samples.parquet", "no run": "not a run"}[case]
    with pytest.raises(UserError, match=words):
        add(run, tmp_path / "board")
    assert not (tmp_path / "board").exists()


def test_the_dataset_hash_is_of_contents_in_any_order(tmp_path: Path) -> None:
    samples = Run(make_run(tmp_path / "run", static_rows("python:a"))).samples()
    backwards = samples.take(list(range(len(samples)))[::-1])
    assert dataset_sha256(samples) == dataset_sha256(backwards)
    for column in ("label", "image_fingerprint", "mask_fingerprint", "sample_id"):
        values = samples[column].to_pylist()
        values[0] = CLASSES[1] if column == "label" else "another"
        index = samples.schema.get_field_index(column)
        field = samples.schema.field(column)
        import pyarrow as pa

        other = samples.set_column(index, field, pa.array(values, pa.string()).cast(field.type))
        assert dataset_sha256(other) != dataset_sha256(samples)


def test_a_table_keeps_no_folder_and_no_long_text(tmp_path: Path) -> None:
    rows = static_rows("python:a")
    rows[3] |= {"status": "error", "error": "e" * 900, "correct": None, "correct_restricted": None}
    path = add(make_run(tmp_path / "secret-name", rows), tmp_path / "board")[0]
    table = pq.read_table(path.with_suffix(".parquet"))
    assert set(table["run_id"].to_pylist()) == {""}
    assert max(len(one or "") for one in table["error"].to_pylist()) == 200
    assert b"secret-name" not in path.read_bytes() + path.with_suffix(".parquet").read_bytes()


def test_numbers_that_are_not_the_tables_are_found(tmp_path: Path) -> None:
    path = make_board(tmp_path / "board", tmp_path, models=["python:a"])[0]

    def better(told: dict) -> None:  # type: ignore[type-arg]
        told["scores"][0]["estimate"] += 1e-6

    rewrite(path, better)
    (problem,) = check(tmp_path / "board")
    assert "robustness_score (estimate)" in problem.message
    assert problem.file == path.name


def test_a_submission_is_checked_against_the_board_it_joins(tmp_path: Path) -> None:
    board, mine = tmp_path / "board", tmp_path / "mine"
    make_board(board, tmp_path)
    rows = static_rows("python:third", seed=9)
    path = add(make_run(tmp_path / "third", rows), mine)[0]
    assert check([path, path.with_suffix(".parquet")], against=board) == []
    assert check([path.with_suffix(".parquet")], against=board) == []
    again = next(iter(sorted(board.glob("*static*.json"))))
    copied = [(mine / again.name), (mine / again.name).with_suffix(".parquet")]
    copied[0].write_bytes(again.read_bytes())
    copied[1].write_bytes(again.with_suffix(".parquet").read_bytes())
    messages = [problem.message for problem in check([copied[0]], against=board)]
    assert any("the same table" in one for one in messages)
    # the files of a pull request are in the board itself
    assert check([again], against=board) == []


def test_the_list_of_datasets_goes(tmp_path: Path) -> None:
    board = tmp_path / "board"
    path = add(make_run(tmp_path / "run", static_rows("python:a")), board)[0]
    digest = read_entry(path).dataset.sha256
    listed = board / "datasets.json"
    listed.write_text(json.dumps({digest: {"name": "made", "images": 30, "classes": 3}}))
    assert check(board) == []
    listed.write_text(json.dumps({digest: {"name": "made", "images": 29, "classes": 3}}))
    assert any("30 images, and the dataset has 29" in problem.message for problem in check(board))
    listed.write_text(json.dumps({"0" * 64: {"name": "made", "images": 30, "classes": 3}}))
    assert any("datasets.json does not have" in problem.message for problem in check(board))
    listed.write_text(json.dumps({digest: {"name": "made"}}))
    with pytest.raises(UserError, match="hash → name, images, classes"):
        check(board)


def test_entries_of_one_dataset_agree_on_it(tmp_path: Path) -> None:
    board = tmp_path / "board"
    add(make_run(tmp_path / "a", static_rows("python:a")), board)
    second = add(make_run(tmp_path / "b", static_rows("python:b", seed=1)), board)[0]
    rewrite(second, lambda told: told["dataset"].update(classes=4))
    assert [problem.message for problem in check(board)] == [
        "says that classes of its dataset is 4, and it is 3",
    ]


def test_leaving_out_hard_pictures_is_found(tmp_path: Path) -> None:
    board = tmp_path / "board"
    path = add(make_run(tmp_path / "a", static_rows("python:a")), board)[0]
    new = retable(path, lambda table: table.filter([one != "photos/004" for one in table["sample_id"].to_pylist()]))
    assert any("29 of the dataset's 30 images" in problem.message for problem in check(new))
    wrong = [
        not (condition == "grey" and not right)
        for condition, right in zip(*(pq.read_table(new.with_suffix(".parquet"))[one].to_pylist()
                                      for one in ("condition", "correct")), strict=True)
    ]  # fmt: skip
    newer = retable(new, lambda table: table.filter(wrong))
    assert any("images under grey" in problem.message for problem in check(newer))


def test_a_hard_run_beside_a_static_one_gives_both(tmp_path: Path) -> None:
    paths = add(make_run(tmp_path / "a", hard_rows("python:a", photos=24)), tmp_path / "board")
    assert [read_entry(path).protocol.name for path in paths] == ["hard"]
