"""Entries measured again: honest ones agree, forged ones do not, and nothing is believed that can be checked."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from typer.testing import CliRunner

from holdfast import api
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.core.schema import PREDICTIONS
from holdfast.pipeline.jobs.progress import silent
from holdfast.pipeline.specs import RerunOptions
from holdfast_evidence.board import rerun
from holdfast_evidence.board.add import add
from holdfast_evidence.board.check import check
from holdfast_evidence.board.entry import Score, entry_id, entry_json, read_entry
from holdfast_evidence.board.numbers import numbers
from holdfast_evidence.board.rerun import harmless_generator, harmless_model, harmless_oracle
from holdfast_evidence.board.table import packed, read_table, run_fingerprint
from holdfast_evidence.board.verify import _difference, chance_to_find, stratified, upper_bound, verify, write_rows

DATA, MODEL = "diorama:test?n=36", "embedded:resnet_rho95"
SCENARIOS = "original,blur_background,random_background,same_class_background,silhouette"
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    api.evaluate(DATA, models=MODEL, scenarios=SCENARIOS, out=folder / "run", device="cpu")
    return add(folder / "run", folder / "board")[0]


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dynamic")
    api.perturb(
        "diorama:test?n=6", models=MODEL, generator="pixel:", oracle="classifier:embedded:resnet_rho0",
        out=folder / "run", steps=2, step_size=0.006, device="cpu",
    )  # fmt: skip
    return add(folder / "run", folder / "board")[0]


def forged(entry: Path, out: Path, change: Callable[[Rows], Rows | None]) -> Path:
    """A submission whose rows were changed, and everything that follows from the rows changed with them."""
    told = read_entry(entry)
    rows = read_table(entry.with_suffix(".parquet"), told).to_pylist()
    table = pa.Table.from_pylist(change(rows) or rows, schema=PREDICTIONS)
    data = packed(table)
    digest = hashlib.sha256(data).hexdigest()
    name = entry_id(told.model.name, told.dataset.name, told.protocol.name, digest)
    assert told.table is not None
    assert told.run is not None
    scores: list[Score] = numbers(table, told.protocol.name)
    false = told.model_copy(
        update={
            "id": name, "scores": scores,
            "table": told.table.model_copy(update={"sha256": digest, "rows": len(table)}),
            "run": told.run.model_copy(update={"fingerprint": run_fingerprint(table)}),
        }
    )  # fmt: skip
    out.mkdir(exist_ok=True)
    (out / f"{name}.parquet").write_bytes(data)
    (out / f"{name}.json").write_text(entry_json(false))
    return out / f"{name}.json"


def improve(row: dict[str, Any]) -> None:
    """As a forger would who knows the table: a wrong answer becomes right in every column."""
    label = row["label"]
    row |= {
        "prediction": label, "correct": True, "prediction_restricted": label, "correct_restricted": True,
        "probability_of_label": row["confidence"], "topk": [label],
    }  # fmt: skip


def test_an_honest_entry_agrees(static: Path, tmp_path: Path) -> None:
    found = verify(static, DATA, rows=60, seed=0, device="cpu")
    assert found.agrees
    assert (found.wrong, found.drawn, found.of, found.total) == (0, 60, 180, 180)
    assert all(row.same_pixels and row.same_id and not row.why for row in found.rows)
    assert set(Counter(row.condition for row in found.rows).values()) == {12}
    assert len({(row.sample_id, row.condition) for row in found.rows}) == 60
    assert found.at_most == pytest.approx(1 - 0.05 ** (1 / 60))
    found.rows.append(replace(found.rows[0], sample_id="=1+1"))
    write_rows(found, tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["agrees"] for row in rows] == ["True"] * 61
    assert rows[-1]["sample_id"] == "'=1+1"  # a stranger's name is not a formula
    # a seed that no one knew beforehand, each time another
    one, other = (verify(static, DATA, rows=3, device="cpu") for _ in range(2))
    assert one.seed != other.seed
    assert [f"--seed {found.seed}" in found.sentences()[1] for found in (one, other)] == [True, True]


def test_an_entry_of_fast_answers_says_so_and_is_measured_exactly(tmp_path: Path) -> None:
    scenarios = "original,grey,silhouette"
    api.evaluate("diorama:test?n=12", models=MODEL, scenarios=scenarios, out=tmp_path / "run", device="cpu", fast=True)
    (path,) = add(tmp_path / "run", tmp_path / "board")
    entry = read_entry(path)
    assert entry.protocol.settings["fast"] is True
    assert not check([path])
    found = verify(path, "diorama:test?n=12", rows=36, device="cpu")
    assert found.agrees
    assert all(row.same_id for row in found.rows)
    assert {row.condition for row in found.rows if row.same_pixels is None} == {"original", "grey"}
    assert any("--fast" in sentence for sentence in found.sentences())


def test_five_per_cent_of_forged_answers_are_caught(static: Path, tmp_path: Path) -> None:
    def change(rows: Rows) -> None:
        wrong = [row for row in rows if not row["correct"]]
        assert len(wrong) >= 9
        for row in wrong[:9]:  # of 180
            improve(row)

    false = forged(static, tmp_path / "board", change)
    assert check([false]) == []  # nothing in the files themselves tells
    found = verify(false, DATA, rows=120, seed=0, device="cpu")
    assert not found.agrees
    assert 0 < found.wrong <= 9
    assert all("here" in row.why and row.same_pixels for row in found.rows if not row.agrees)
    assert found.at_most > found.wrong / 120
    everything = verify(false, DATA, rows=10_000, allow=0.05, device="cpu")
    assert (everything.wrong, everything.drawn) == (9, 180)
    assert everything.agrees
    assert not replace(everything, allow=0.04).agrees


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rows: [row for row in rows if row["sample_id"] != rows[0]["sample_id"]], "of the dataset's 36 images"),
        (lambda rows: rows[0].update(label="fox", prediction="fox"), "two labels|not its label"),
        (lambda rows: rows[0].update(correct_restricted=None), "without correct_restricted"),
    ],
)
def test_what_the_files_themselves_show_is_refused_first(
    change: Callable[[Rows], Rows | None], sentence: str, static: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        verify(forged(static, tmp_path / "board", change), DATA, rows=1, device="cpu")


def test_labels_and_rows_that_the_data_does_not_have(static: Path, tmp_path: Path) -> None:
    first = "test/airship/made-up"

    def rename(rows: Rows) -> None:
        before = rows[0]["sample_id"]
        for row in rows:
            if row["sample_id"] == before:
                row |= {"sample_id": first, "source_id": first}

    found = verify(forged(static, tmp_path / "a", rename), DATA, rows=5, device="cpu")
    assert not found.agrees
    assert "5 rows are of nothing that the data has" in found.problems[0]
    assert "5 rows are missing" in found.problems[1]

    def relabel(rows: Rows) -> None:
        for row in rows:
            if row["sample_id"] == rows[0]["sample_id"]:
                row |= {"label": "fox" if row["label"] != "fox" else "dog"}
                same = row["prediction_restricted"] == row["label"]
                row |= {"correct_restricted": same, "correct": same}

    found = verify(forged(static, tmp_path / "b", relabel), DATA, rows=5, device="cpu")
    assert not found.agrees
    assert "5 rows have another label than the dataset" in found.problems[0]


def test_other_data_is_refused(static: Path, dynamic: Path) -> None:
    with pytest.raises(UserError, match="not the data of the entry"):
        verify(static, "diorama:test?n=24", device="cpu")
    with pytest.raises(UserError, match="not the data of the entry"):
        verify(static, "diorama:ood?n=36", device="cpu")
    with pytest.raises(UserError, match="not the data of the entry"):
        verify(dynamic, "diorama:test?n=12", device="cpu")


def test_another_model_under_the_entrys_name_is_found_out(static: Path) -> None:
    found = verify(static, DATA, rows=20, model="embedded:resnet_rho0", device="cpu")
    assert not found.agrees
    assert not any(row.same_id for row in found.rows)
    assert any("weights" in sentence for sentence in found.sentences())


def test_rows_of_another_name_need_a_flag(static: Path, tmp_path: Path) -> None:
    """Answers that agree are not enough: the ids say whose weights they are."""

    def rename(rows: Rows) -> None:
        for row in rows:
            row["row_id"] = hashlib.sha256(row["row_id"].encode()).hexdigest()[:32]

    entry = forged(static, tmp_path / "board", rename)
    words = ["share", "verify", str(entry), "--data", DATA, "--rows", "60", "--seed", "0", "--device", "cpu", "-q"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 1
    assert "60 of 60 rows have another id here" in refused.output and "--renamed allows it" in refused.output
    accepted = CliRunner().invoke(app, [*words, "--renamed"])
    assert accepted.exit_code == 0
    assert ": agrees." in accepted.output and "60 of 60 rows have another id here" in accepted.output


def test_the_chance_to_find_forged_rows_is_stated(static: Path) -> None:
    assert chance_to_find(0.01, 200, 4320) == pytest.approx(0.87, abs=0.005)
    assert chance_to_find(0.01, 50, 50) == 1
    stated = verify(static, DATA, rows=18, seed=0, device="cpu").sentences()[2]
    # two of 180 rows are forged: neither is drawn in 162/180 · 161/179 of the draws
    assert stated == "If 1 % of all 180 rows were forged, such a draw would find one of them with a chance of 19 %."


def test_walks_are_walked_again(dynamic: Path, tmp_path: Path) -> None:
    found = verify(dynamic, "diorama:test?n=6", rows=12, device="cpu")
    assert found.agrees, found.sentences()
    assert (found.unit, found.drawn, found.of) == ("walks", 3, 6)
    assert Counter(row.condition for row in found.rows) == {
        "original": 3, "reconstruction": 3, "perturbed": 3, "random_walk": 3
    }  # fmt: skip

    def flip(rows: Rows) -> None:
        for row in rows:
            if row["condition"] == "perturbed" and row["status"] == "ok":
                row |= {"status": "rejected"}

    found = verify(forged(dynamic, tmp_path / "board", flip), "diorama:test?n=6", rows=12, device="cpu")
    assert not found.agrees
    assert any("status is rejected, here ok" in row.why for row in found.rows)


def test_hard_sets_are_evaluated_again(photos: Path, toy_models: str, tmp_path: Path) -> None:
    lines = ["path,label,kind,condition"]
    for number, path in enumerate(sorted((photos / "images").rglob("*.png"))):
        kind = "background" if number % 2 else "texture"
        lines.append(f"{path.relative_to(photos)},{path.parent.name},generated,{kind}")
    manifest = photos / "hard.csv"
    manifest.write_text("\n".join(lines) + "\n")
    api.evaluate(manifest, models=f"{toy_models}:colour", scenarios="original", out=tmp_path / "run")
    (entry,) = add(tmp_path / "run", tmp_path / "board")
    assert read_entry(entry).protocol.name == "hard"
    found = verify(entry, str(manifest), model=f"{toy_models}:colour", rows=8)
    assert found.agrees, found.sentences()
    assert Counter(row.condition for row in found.rows) == {"background": 4, "texture": 4}
    assert all(row.same_id for row in found.rows)

    def worsen(rows: Rows) -> None:
        for row in rows:
            row |= {"prediction": "cross", "correct": row["label"] == "cross", "topk": ["cross"]}
            row["probability_of_label"] = row["confidence"]

    assert not verify(forged(entry, tmp_path / "false", worsen), str(manifest), model=f"{toy_models}:colour").agrees
    (photos / "images" / "disc" / "0.png").write_bytes((photos / "images" / "disc" / "1.png").read_bytes())
    with pytest.raises(UserError, match="not the data"):
        verify(entry, str(manifest), model=f"{toy_models}:colour")


def test_answers_that_are_there_twice_under_another_fold(static: Path, tmp_path: Path) -> None:
    """All of them true, and the accuracy is not."""

    def repeat(rows: Rows) -> Rows:
        right = [row for row in rows if row["correct"]]
        return rows + [{**row, "row_id": row["row_id"][::-1], "fold": 7} for row in right]

    false = forged(static, tmp_path / "board", repeat)
    assert check([false]) == []
    found = verify(false, DATA, rows=10_000, device="cpu")
    assert found.wrong == 0
    assert not found.agrees
    assert any("rows are there twice" in problem for problem in found.problems)
    assert any("another fold than the dataset" in problem for problem in found.problems)


def test_photos_that_are_not_the_datasets(static: Path, tmp_path: Path) -> None:
    def rename(rows: Rows) -> None:
        for row in rows:
            row["source_id"] = f"other {row['source_id']}"

    found = verify(forged(static, tmp_path / "board", rename), DATA, rows=1, device="cpu")
    assert not found.agrees
    assert "180 rows have another source image than the dataset" in found.problems[0]


NAMES = {
    "timm:resnet50.a1_in1k": True, "torchvision:resnet50@IMAGENET1K_V2": True, "hf:google/vit-base-patch16-224": True,
    "clip:ViT-B-32@openai": True, "clip:hf/openai/clip-vit-base-patch32": True, "embedded:resnet_rho95": True,
    "timm:resnet18?pretrained=false&seed=3": True, "clip:embedded?template=an image of a {class}": True,
    "timm:resnet50?labels=imagenet": True,
    # code next to the weights, or weights that are pickles
    "python:os:system": False, "timm:hf-hub:somebody/model": False, "clip:hf-hub:somebody/model": False,
    "torch:resnet18@/etc/passwd": False, "onnx:x.onnx": False, "local-dir:/etc": False, "vlm+python:os:system": False,
    # files of this machine
    "clip:local-dir:/etc": False, "clip:ViT-B-32@/etc/passwd": False, "clip:hf//etc": False, "clip:hf/../x": False,
    "timm:resnet18?labels=/etc/passwd": False, "torchvision:resnet50?labels=names.txt": False, "hf:/etc": False,
    "clip:embedded?ensemble=/etc/passwd": False, "clip:embedded?template=/etc": False, "hf:folder": False,
    "hf:a/b": False, "clip:hf/folder": False, "clip:ViT-B-32@folder": False, "a name": False, "timm:x?y": False,
}  # fmt: skip


@pytest.mark.parametrize(("name", "followed"), NAMES.items())
def test_names_that_a_stranger_may_say(
    name: str, followed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert harmless_model(name) is followed
    assert harmless_oracle(f"classifier:{name}") is followed
    assert harmless_oracle(f"ensemble:clip:embedded+classifier:{name}") is followed
    assert harmless_generator("vqgan:folder") is False


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"generator": "python:os:system"}, "--generator"),
        ({"generator": "hvae:/etc"}, "--generator"),
        ({"generator": "vqgan:/etc/passwd"}, "--generator"),
        ({"oracle": "human:/etc"}, "--oracle"),
        ({"oracle": "classifier:torch:resnet18@/etc/passwd"}, "--oracle"),
        ({"steps": "many"}, "in a way that there is not"),
    ],
)
def test_walks_that_a_stranger_set(told: dict[str, Any], sentence: str, dynamic: Path, tmp_path: Path) -> None:
    def change(rows: Rows) -> None:
        for row in rows:
            if row["condition"] != "original":
                row["parameters"] = canonical_json(json.loads(row["parameters"]) | told)

    path = forged(dynamic, tmp_path / "board", change)
    entry = read_entry(path)
    rows = read_table(path.with_suffix(".parquet"), entry).to_pylist()
    with pytest.raises(UserError, match=sentence):
        rerun.walked(entry, rows, RerunOptions("diorama:test?n=6", device="cpu"), set(), tmp_path / "walks", silent)


@pytest.mark.parametrize("name", ["python:os:system", "clip:hf-hub:somebody/model"])
def test_a_strangers_word_runs_no_code_and_reads_no_file(name: str, static: Path, tmp_path: Path) -> None:
    told = json.loads(static.read_text())
    rows = read_table(static.with_suffix(".parquet"), read_entry(static)).to_pylist()
    data = packed(pa.Table.from_pylist([{**row, "model": name} for row in rows], schema=PREDICTIONS))
    digest = hashlib.sha256(data).hexdigest()
    told["model"]["name"], told["table"]["sha256"] = name, digest
    told["id"] = entry_id(name, told["dataset"]["name"], "static", digest)
    (tmp_path / f"{told['id']}.parquet").write_bytes(data)
    path = tmp_path / f"{told['id']}.json"
    path.write_text(json.dumps(told))
    assert check([path]) == []
    with pytest.raises(UserError, match="--model"):
        verify(path, DATA, device="cpu")
    assert verify(path, DATA, rows=5, model=MODEL, device="cpu").wrong == 0


def test_the_command_line(static: Path, tmp_path: Path) -> None:
    command = ["share", "verify", str(static), "--rows", "10", "--seed", "7", "--device", "cpu", "-q"]
    done = CliRunner().invoke(app, [*command, "--data", DATA, "--out", str(tmp_path / "rows.csv")])
    assert done.exit_code == 0, done.output
    assert "0 of 10 rows drawn at random (--seed 7) disagree" in done.output
    assert (tmp_path / "rows.csv").is_file()
    done = CliRunner().invoke(app, [*command, "--data", DATA, "--model", "embedded:resnet_rho0"])
    assert done.exit_code == 1
    assert "disagrees" in done.output


ROW = {
    "status": "ok", "label": "dog", "prediction": "dog", "correct": True, "prediction_restricted": "dog",
    "correct_restricted": True, "confidence": 0.501, "confidence_restricted": 0.501, "probability_of_label": 0.501,
    "topk": ["dog", "fox"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "found", "agrees"),
    [
        ({}, {}, True),
        ({}, {"confidence": 0.505}, True),
        ({}, {"confidence": 0.52}, False),
        ({}, {"probability_of_label": None}, False),
        ({"status": "error"}, {}, False),
        # a tie that last digits decide
        ({}, {"prediction": "fox", "correct": False, "probability_of_label": 0.498, "topk": ["fox", "dog"]}, True),
        # the same answer, and the entry says that it is right if it is not
        ({"prediction": "fox", "prediction_restricted": "fox"}, {"prediction": "fox", "correct": False}, False),
        # a tie the other way round, and one that cannot be
        ({"prediction": "fox", "correct": False}, {}, True),
        ({"prediction": "fox", "correct": False, "confidence": 0.7}, {"confidence": 0.7}, False),
        ({"prediction": "cat", "correct": False}, {}, False),
        # the model has no output of this name
        ({"probability_of_label": None}, {"prediction": "fox", "correct": False, "probability_of_label": None}, False),
        # no tie: the true class is far behind
        (
            {"confidence": 0.9, "probability_of_label": 0.05},
            {"prediction": "fox", "correct": False, "confidence": 0.9, "probability_of_label": 0.05},
            False,
        ),
    ],
)
def test_what_the_tolerance_lets_pass(told: dict[str, Any], found: dict[str, Any], agrees: bool) -> None:
    assert (not _difference({**ROW, **told}, {**ROW, **found}, 0.01)) == agrees


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=80), st.integers(1, 60), st.integers(0, 3))
def test_drawing_is_proportional_without_repeats(groups: list[str], count: int, seed: int) -> None:
    drawn = stratified(groups, count, seed)
    assert len(set(drawn)) == len(drawn)
    there = Counter(groups)
    assert len(drawn) == min(count, len(groups))
    taken = Counter(groups[place] for place in drawn)
    for group, size in there.items():
        assert abs(taken[group] - len(drawn) * size / len(groups)) < 1
    assert stratified(groups, count, seed) == drawn


@pytest.mark.parametrize("sizes", [[16] * 13, [170, *[2] * 20], [6] * 20 + [1] * 40])
@pytest.mark.parametrize("spread", [True, False])
def test_as_many_false_rows_as_the_bound_says_are_missed_once_in_twenty(sizes: list[int], spread: bool) -> None:
    """Wherever they are: in every group, or together where a share rounded down by rule would look least."""
    groups = [f"{number:02d}" for number, size in enumerate(sizes) for _ in range(size)]
    false = int(upper_bound(0, 40) * len(groups)) + 1
    step = len(groups) // false if spread else 1
    places = set(range(0, false * step, step))
    missed = sum(places.isdisjoint(stratified(groups, 40, seed)) for seed in range(1500))
    assert missed <= binom.ppf(0.9999, 1500, 0.05)


@pytest.mark.parametrize(("wrong", "drawn"), [(0, 200), (0, 12), (3, 200), (40, 50)])
def test_the_bound_is_where_such_a_sample_becomes_improbable(wrong: int, drawn: int) -> None:
    bound = upper_bound(wrong, drawn)
    assert binom.cdf(wrong, drawn, bound) == pytest.approx(0.05)
    assert upper_bound(drawn, drawn) == 1


def test_a_folder_stands_for_its_only_entry(static: Path, tmp_path: Path) -> None:
    assert verify(static.parent, DATA, rows=1, device="cpu").entry.id == static.stem
    with pytest.raises(UserError, match="0 measured entries"):
        verify(tmp_path, DATA)


def test_bad_use(static: Path, tmp_path: Path) -> None:
    for path in (static.with_suffix(".parquet"), tmp_path / "none.json"):
        with pytest.raises(UserError, match="not an entry"):
            verify(path, DATA)
    with pytest.raises(UserError, match="--tolerance"):
        verify(static, DATA, tolerance=3)
