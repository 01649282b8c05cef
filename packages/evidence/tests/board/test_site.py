"""The site of a board without a browser: what is written, what is refused, where numbers come from."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from made_board import MODELS, make_board, make_run, rewrite, static_rows, walk_rows
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.core.files import hearing
from holdfast_evidence.board.add import add
from holdfast_evidence.board.entry import (
    Dataset,
    Entry,
    Model,
    Protocol,
    Score,
    Source,
    entry_id,
    entry_json,
    read_entry,
)
from holdfast_evidence.board.printed import printed_entries
from holdfast_evidence.board.site import measure
from holdfast_evidence.board.site.build import build, key_of, recall_all


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("boards")
    make_board(folder / "board", folder / "work")
    return folder / "board"


@pytest.fixture(scope="module")
def site(board: Path) -> Path:
    build(board, board.parent / "site", title="A board")
    return board.parent / "site"


def text_of(page: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.read_text(encoding="utf8")))


def test_every_entry_has_a_row_a_page_and_its_files(board: Path, site: Path) -> None:
    index = (site / "index.html").read_text(encoding="utf8")
    entries = [read_entry(path) for path in board.glob("*.json")]
    assert len(entries) == 6
    for entry in entries:
        assert f'data-id="{entry.id}"' in index
        assert (site / "models" / f"{entry.id}.html").is_file()
        assert json.loads((site / "downloads" / f"{entry.id}.json").read_text()) == json.loads(entry_json(entry))
        copied = (site / "downloads" / f"{entry.id}.parquet").read_bytes()
        assert copied == (board / f"{entry.id}.parquet").read_bytes()
    for word in ("Static", "Hard set", "Dynamic"):
        assert f">{word}</button>" in index
    for entry in printed_entries():
        assert f'data-id="{entry.id}"' in index


def test_a_model_page_shows_the_scores_with_intervals_and_where_they_come_from(board: Path, site: Path) -> None:
    for path in board.glob("*.json"):
        entry = read_entry(path)
        text = text_of(site / "models" / f"{entry.id}.html")
        for score in entry.scores:
            if score.name in ("accuracy", "fmr", "accuracy:grey", "accuracy:texture"):
                low, high = (f"{100 * bound:.1f}" for bound in (score.low or 0, score.high or 0))
                assert f"{100 * score.estimate:.1f} %" in text
                assert f"{low} to {high}" in text
        assert entry.dataset.sha256 in text
        assert entry.run is not None
        assert entry.run.fingerprint in text
        for name in ("dog", "fox", "whale"):
            assert name in text


def test_columns_are_called_what_they_are_and_explained(board: Path, site: Path) -> None:
    index = (site / "index.html").read_text(encoding="utf8")
    heads = dict(re.findall(r'<th class="number" scope="col" data-key="(\w+)"[^>]*>([^<]*)<', index))
    assert heads["mean_accuracy"] == "Mean accuracy on changed images"
    assert heads["standard_accuracy"] == "Accuracy on originals"
    static = index[index.index('id="panel-static') :]
    assert re.search(r'data-key="accuracy"[^>]*>Accuracy on originals', static)
    hard = index[index.index('id="panel-hard') :]
    assert re.search(r'data-key="accuracy"[^>]*>Accuracy<', hard)
    assert re.search("(first by|first rank by) mean accuracy on changed images", index)
    assert "<dt>Mean accuracy on changed images</dt><dd>the mean of the accuracies under the static" in index
    page = next((site / "models").glob("python-first*static*.html")).read_text(encoding="utf8")
    assert "Mean accuracy on changed images" in page
    for name in re.findall(r'aria-labelledby="(\w+)"', page):  # every table has a name
        assert f'id="{name}"' in page
    assert page.count("<table") == len(re.findall(r"<table[^>]*aria-labelledby|<caption>", page))


def test_downloads_hold_the_same_numbers_in_three_formats(board: Path, site: Path) -> None:
    groups = sorted(path.stem for path in (site / "data").glob("static-*.js"))
    assert len(groups) == 1
    rows = json.loads((site / "downloads" / f"{groups[0]}.json").read_text(encoding="utf8"))
    table = pq.read_table(site / "downloads" / f"{groups[0]}.parquet").to_pylist()
    assert rows == table
    read = list(csv.DictReader(io.StringIO((site / "downloads" / f"{groups[0]}.csv").read_text(encoding="utf8"))))
    assert [float(row["estimate"]) for row in read] == [row["estimate"] for row in rows]
    scores = {(row["entry"], row["score"]): row["estimate"] for row in rows}
    for path in board.glob("*-static-*.json"):
        entry = read_entry(path)
        assert all(scores[entry.id, score.name] == score.estimate for score in entry.scores)


def test_a_wrong_entry_is_refused_with_its_sentence_and_nothing_is_written(board: Path, tmp_path: Path) -> None:
    copy, out = shutil.copytree(board, tmp_path / "board"), tmp_path / "site"
    bad = next(iter(sorted(copy.glob("*static*.json"))))
    rewrite(bad, lambda told: told["scores"][0].update(estimate=0.999))
    with pytest.raises(UserError, match=r"robustness_score \(estimate\) is 0.999, and its table gives"):
        build(copy, out)
    assert not out.exists()
    built = build(copy, out, skip_bad=True, printed=False)
    assert built.measured == 5
    index = (out / "index.html").read_text(encoding="utf8")
    assert f'data-id="{bad.stem}"' not in index
    assert "1 file was left out" in text_of(out / "index.html")


def test_the_same_run_twice_and_two_labels_are_found_across_processes(tmp_path: Path) -> None:
    board = tmp_path / "board"
    names = [f"python:model-{number:02d}" for number in range(21)]  # one more than a process is handed at a time
    rows = [row for number, name in enumerate(names) for row in static_rows(name, photos=6, seed=number)]
    first = add(make_run(tmp_path / "first", rows), board)[0]
    add(make_run(tmp_path / "again", static_rows(names[0], photos=6, seed=99)), board)
    other = static_rows("python:other", photos=6)
    for row in other:
        row.update(label="whale", correct=row["prediction"] == "whale")
        row.update(correct_restricted=row["correct"])
    relabelled = add(make_run(tmp_path / "other", other), board)[0]
    known = read_entry(first).dataset.sha256
    rewrite(relabelled, lambda told: told["dataset"].update(sha256=known))
    built = build(board, tmp_path / "site", skip_bad=True, printed=False, workers=2)
    said = sorted(one.message for one in built.refused)
    assert len(said) == 2
    assert re.fullmatch(r"is the same run as python-model-00-.*: rows of the same ids", said[0])
    assert re.fullmatch(r"labels photos/\d+ whale, but other entries have (dog|fox)", said[1])
    assert built.measured == 21


def test_a_site_goes_to_its_own_folder_only(board: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(UserError, match="is not a site of a board"):
        build(board, tmp_path / "thesis")
    with pytest.raises(UserError, match="is in the board"):
        build(board, board / "site")
    with pytest.raises(UserError, match="is not a folder"):
        build(tmp_path / "nowhere", tmp_path / "site")


def test_files_of_a_site_are_never_seen_half_written_and_a_killed_build_is_repeated(
    board: Path, tmp_path: Path
) -> None:
    out, heard = tmp_path / "begun", []
    out.mkdir()
    (out / "board.css").write_text("")  # the first file of a build that was killed then
    (out / ".unfinished-1").write_text("")
    with hearing(heard.append):
        build(board, out, workers=1)
    files = {str(path) for path in out.rglob("*") if path.is_file() and not path.name.startswith(".")}
    assert len(files) > 10 and files <= set(heard)


def test_what_was_measured_before_is_recalled_until_anything_changes(board: Path, tmp_path: Path) -> None:
    first = build(board, tmp_path / "one", cache=tmp_path / "cache")
    kept = {path.name for path in (tmp_path / "cache").iterdir()}
    assert len(kept) == first.measured == 6
    build(board, tmp_path / "two", cache=tmp_path / "cache")
    assert {path.name for path in (tmp_path / "cache").iterdir()} == kept
    pages = [{path.relative_to(tmp_path / one): path.read_bytes() for path in (tmp_path / one).rglob("*.*")}
             for one in ("one", "two")]  # fmt: skip
    assert pages[0] == pages[1]
    file = next(iter(sorted(board.glob("*.json"))))
    key = key_of(file)
    copy = Path(shutil.copytree(board, tmp_path / "board"))
    (copy / "datasets.json").write_text("{}")
    assert key_of(copy / file.name) != key


def test_what_is_kept_bears_the_keys_of_the_files_as_they_were_before_reading(board: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(board, tmp_path / "board"))
    files = sorted(copy.glob("*.json"))
    recalled, keys = recall_all(tmp_path / "cache", files)
    assert recalled == {}
    assert keys == {file: key_of(file) for file in files}
    build(copy, tmp_path / "one", cache=tmp_path / "cache")
    assert {f"{key}.json" for key in keys.values()} == {path.name for path in (tmp_path / "cache").iterdir()}
    files[0].write_text(files[0].read_text() + " ")
    recalled, keys = recall_all(tmp_path / "cache", files)
    assert list(recalled) == files[1:]
    assert list(keys) == files[:1]


def test_texts_that_a_spreadsheet_would_run_are_quoted_and_numbers_are_not() -> None:
    row: dict[str, object] = dict.fromkeys(measure.SCHEMA.names) | {
        "entry": "plain", "title": "=1+1", "model": 'a, "b"', "paper": " @x", "estimate": -0.1 + 0.3, "n": 7,
    }  # fmt: skip
    rows = [row, row | {"title": "plain", "paper": "", "estimate": -2.0}]
    read = list(csv.DictReader(io.StringIO(measure.as_csv(rows).decode())))
    assert [one["title"] for one in read] == ["'=1+1", "plain"]
    assert [one["paper"] for one in read] == ["' @x", ""]
    assert [one["model"] for one in read] == ['a, "b"'] * 2
    assert [float(one["estimate"]) for one in read] == [-0.1 + 0.3, -2.0]
    assert read[0]["n"] == "7"
    assert read[0]["low"] == read[0]["code"] == ""


def test_printed_numbers_stand_beside_measured_ones_where_the_protocol_is_the_same(tmp_path: Path) -> None:
    rows = [row for number, model in enumerate(MODELS) for row in walk_rows(model, seed=number)]
    paths = add(make_run(tmp_path / "run", rows), tmp_path / "board")
    measured = read_entry(paths[0])
    kept = {name: measured.protocol.settings[name] for name in ("generator", "oracle", "steps")}
    for name, settings in (("Same", kept), ("Longer", kept | {"steps": 50})):
        entry = Entry(
            kind="printed", id=entry_id(name, "made", "dynamic", name.encode().hex() + "0" * 12),
            model=Model(name=name, title=name), dataset=Dataset(name="made"),
            protocol=Protocol(name="dynamic", settings=settings), scores=[Score(name="fmr", estimate=0.5)],
            source=Source(title="A paper", where="Table 1"), slips=["It should be 0.6."],
        )  # fmt: skip
        (tmp_path / "board" / f"{entry.id}.json").write_text(entry_json(entry), encoding="utf8")
    build(tmp_path / "board", tmp_path / "site", printed=False)
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf8")
    groups = re.findall(r'<section class="group".*?</section>', index, flags=re.DOTALL)
    assert len(groups) == 2
    assert all(f'data-id="{path.stem}"' in groups[0] for path in paths)
    assert "same-made-dynamic" in groups[0]
    assert "longer-made-dynamic" not in groups[0]
    assert "longer-made-dynamic" in groups[1]
    for group in groups:  # both sides say why
        assert "They differ in steps: 50 for Longer, 5 for" in group
    assert "It should be 0.6." in groups[0]


def test_ranks_are_shared_where_models_are_not_told_apart(tmp_path: Path) -> None:
    rows = [
        row
        for number, (model, share) in enumerate((("python:a", 0.9), ("python:b", 0.9), ("python:c", 0.2)))
        for row in static_rows(model, photos=60, seed=number, share=share)
    ]
    add(make_run(tmp_path / "run", rows), tmp_path / "board")
    build(tmp_path / "board", tmp_path / "site", printed=False)
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf8")
    ranks = dict(re.findall(r'data-id="python-(\w).*?data-rank-mean-accuracy="([^"]*)"', index, flags=re.DOTALL))
    assert ranks == {"a": "1–2", "b": "1–2", "c": "3"}


def test_the_command_says_what_it_made_and_what_is_wrong(board: Path, tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["board", "build", str(board), "--out", str(tmp_path / "site"), "--title", "Ours"])
    assert said.exit_code == 0, said.output
    assert "6 measured entries, 62 printed" in said.output
    assert "<title>Ours</title>" in (tmp_path / "site" / "index.html").read_text(encoding="utf8")


@pytest.mark.slow
def test_full_reports_are_made_of_the_tables(board: Path, tmp_path: Path) -> None:
    build(board, tmp_path / "site", reports=True, printed=False)
    made = sorted(path.parent.name for path in (tmp_path / "site" / "reports").glob("*/index.html"))
    assert made == sorted(path.stem for path in board.glob("*.json") if "-dynamic-" not in path.name)
    page = next(path for path in (tmp_path / "site" / "models").glob("*static*.html"))
    assert f"../reports/{page.stem}/index.html" in page.read_text(encoding="utf8")


@pytest.mark.slow
def test_several_processes_of_the_command_write_the_same_site(board: Path, tmp_path: Path) -> None:
    build(board, tmp_path / "one", workers=1)
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    words = [holdfast, "board", "build", str(board), "--out", str(tmp_path / "several"), "--workers", "2"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    one, several = (
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "one", tmp_path / "several")
    )
    assert len(one) > 10 and one == several
