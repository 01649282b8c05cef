"""Runs and datasets as folders of the Hugging Face ``datasets`` library."""

from __future__ import annotations

import csv
import shutil
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest
from huggingface_hub import DatasetCard

from commands import run as command
from exported_run import HOSTILE, OWNER, make_pictures, make_run, rewritten
from holdfast.core.errors import UserError
from holdfast.core.schema import PREDICTIONS
from holdfast.data import load_collection
from holdfast.store import Run
from holdfast_evidence.export.subject import markdown, plain
from holdfast_exchange import huggingface
from holdfast_exchange.export import EXPORTS, board_scores, export

Load = Callable[..., datasets.DatasetDict]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("huggingface") / "out"
    export(run.path, "huggingface", out)
    return out


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)

    def read(folder: Path, name: str | None = None) -> datasets.DatasetDict:
        return datasets.load_dataset(str(folder), name, cache_dir=str(tmp_path / "cache"))

    return read


def test_the_table_is_read_as_it_was_written(run: Run, folder: Path, load: Load) -> None:
    found = load(folder)
    assert list(found) == ["test"]
    rows = sorted(found["test"].to_list(), key=lambda row: row["row_id"])
    wanted = sorted(run.rows().to_pylist(), key=lambda row: row["row_id"])
    assert list(rows[0]) == PREDICTIONS.names
    assert rows == wanted
    kinds = found["test"].features
    assert (
        kinds["fold"].dtype == "int32" and kinds["confidence"].dtype == "float32" and kinds["model"].dtype == "string"
    )
    assert kinds["topk"].feature.dtype == "string"


def test_pictures_are_those_that_the_models_saw(run: Run, folder: Path, load: Load) -> None:
    found = load(folder, "images")["test"]
    spec = run.spec()
    samples = {one.sample_id: one for one in load_collection(spec["data"], masks=spec["masks"]).samples}
    assert found.features["label"].names == ["cross", "disc", "square"]
    assert len(found) == 12
    for row in found:
        sample = samples[row["sample_id"]]
        pixels = sample.image.load()
        assert row["label"] == found.features["label"].str2int(sample.label)
        assert np.array_equal(np.asarray(row["image"]), pixels)
        if sample.mask is None:
            assert row["sample_id"] == "cross/3" and row["mask"] is None
        else:
            assert np.array_equal(np.asarray(row["mask"]), sample.mask.load(*pixels.shape[:2]) * np.uint8(255))


def test_stored_files_travel_unless_they_tell_of_a_camera(run: Run, folder: Path, load: Load) -> None:
    found = load(folder, "images")["test"].cast_column("image", datasets.Image(decode=False))
    data = {row["sample_id"]: row["image"]["bytes"] for row in found}
    photos = Path(run.spec()["data"])
    assert data["disc/0"] == (photos / "disc" / "0.jpg").read_bytes()
    assert OWNER.encode() in (photos / "disc" / "1.jpg").read_bytes()
    assert data["disc/1"].startswith(b"\x89PNG") and OWNER.encode() not in data["disc/1"]


def test_nothing_says_where_the_run_lay(folder: Path) -> None:
    for path in folder.rglob("*"):
        assert not path.is_file() or OWNER.encode() not in path.read_bytes(), path
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == ["README.md", "images/test-00000.parquet", "predictions/test-00000.parquet"]


def test_the_card_counts_what_is_there(run: Run, folder: Path) -> None:
    card = DatasetCard.load(folder / "README.md")
    told = card.data.to_dict()
    rows = len(run.rows())
    assert told["license"] == "unknown" and told["size_categories"] == ["n<1K"]
    assert [one["config_name"] for one in told["configs"]] == ["predictions", "images"]
    assert [one["splits"][0]["num_examples"] for one in told["dataset_info"]] == [rows, 12]
    files = {one: sum(path.stat().st_size for path in (folder / one).iterdir()) for one in ("predictions", "images")}
    assert {one["config_name"]: one["download_size"] for one in told["dataset_info"]} == files
    for words in (f"{rows} rows", "12 images of 3 classes, 11 of them with a mask", "`image_sha256`", "fingerprint `"):
        assert words in card.text
    assert f"| python:export_models:good | {rows // 2} |" in card.text


def test_a_wrong_count_in_the_card_would_be_noticed(folder: Path, tmp_path: Path, load: Load) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    card = tmp_path / "copy" / "README.md"
    card.write_text(card.read_text().replace("num_examples: 12\n", "num_examples: 13\n"))
    with pytest.raises(datasets.exceptions.NonMatchingSplitsSizesError, match="num_examples=13"):
        load(tmp_path / "copy", "images")


def test_a_dataset_without_a_run(tmp_path: Path, load: Load) -> None:
    photos = make_pictures(tmp_path / "photos")
    with (photos / "list.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label", "mask", "split", "licence"])
        for label in ("cross", "square"):
            for number in range(3):
                writer.writerow(
                    [f"images/{label}/{number}.png", label, f"masks/{label}/{number}.png", "val", "CC BY 4.0"]
                )
    notes = export(photos / "list.csv", "huggingface", tmp_path / "out")
    assert notes == ["6 images"]
    found = load(tmp_path / "out")["test"]
    assert Counter(found["licence"]) == {"CC BY 4.0": 6} and set(found["split"]) == {"val"}
    card = DatasetCard.load(tmp_path / "out" / "README.md")
    assert card.data["license"] == "cc-by-4.0" and "| CC BY 4.0 | 6 |" in card.text
    assert not (tmp_path / "out" / "predictions").exists()


def test_a_broken_picture_is_left_out_and_named(tmp_path: Path, load: Load) -> None:
    photos = make_pictures(tmp_path / "photos")
    notes = export(photos / "images", "huggingface", tmp_path / "out", masks=str(photos / "masks"))
    assert notes[0] == "12 images" and len(notes) == 2 and notes[1].startswith("disc/broken: ")
    assert "disc/broken" not in load(tmp_path / "out")["test"]["sample_id"]
    assert "1 could not be read whole; the first: disc/broken" in (tmp_path / "out" / "README.md").read_text()


def test_hostile_words_stay_words(run: Run, tmp_path: Path, load: Load) -> None:
    words = {"disc": HOSTILE, "python:export_models:good": HOSTILE}
    other = rewritten(run, tmp_path / "hostile", {"model": words, "label": words, "dataset": {"my images": HOSTILE}})
    export(other.path, "huggingface", tmp_path / "out", images=False)
    text = (tmp_path / "out" / "README.md").read_text()
    card = DatasetCard(text)
    assert "<script>" not in card.text and "\n# \\<" not in card.text
    assert [line for line in card.text.splitlines() if line.startswith("# ")] == ["# hostile"]
    assert HOSTILE.replace("\n", " ") in load(tmp_path / "out")["test"]["model"]
    assert card.data["dataset_info"][0]["config_name"] == "predictions"


def test_hostile_classes_stay_classes(tmp_path: Path, load: Load) -> None:
    photos = make_pictures(tmp_path / "photos")
    with (photos / "list.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [
                ["path", "label"],
                ["images/cross/0.png", HOSTILE],
                ["images/disc/2.png", "no"],
                ["images/square/0.png", "0"],
            ]
        )
    export(photos / "list.csv", "huggingface", tmp_path / "out")
    names = load(tmp_path / "out")["test"].features["label"].names
    assert sorted(names) == sorted([plain(HOSTILE), "no", "0"])


def test_classes_that_look_alike_are_one(tmp_path: Path, load: Load) -> None:
    photos = make_pictures(tmp_path / "photos")
    with (photos / "list.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [["path", "label"], ["images/cross/0.png", "a\u202eb"], ["images/disc/2.png", "a\u202db"]]
        )
    export(photos / "list.csv", "huggingface", tmp_path / "out")
    assert load(tmp_path / "out")["test"]["label"] == [0, 0]


def test_large_exports_are_several_files(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Load) -> None:
    monkeypatch.setattr(huggingface, "_ROWS", 30)
    monkeypatch.setattr(huggingface, "_BYTES", 20_000)
    export(run.path, "huggingface", tmp_path / "out")
    files = [path.parent.name for path in (tmp_path / "out").rglob("*.parquet")]
    assert files.count("predictions") == -(-len(run.rows()) // 30) > 1 and files.count("images") > 1
    found = load(tmp_path / "out")["test"]
    assert sorted(found["row_id"]) == sorted(run.rows()["row_id"].to_pylist())
    assert len(set(load(tmp_path / "out", "images")["test"]["sample_id"])) == 12


def test_nothing_is_asked_of_the_network(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("someone is called")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for to in EXPORTS:
        export(run.path, to, tmp_path / to, scores=board_scores)
        assert list((tmp_path / to).iterdir())


def test_markdown_shows_a_text_and_nothing_else() -> None:
    assert markdown("a|b <i> [x](y) `c`\n# d") == "a&#124;b &lt;i&gt; &#91;x&#93;(y) &#96;c&#96; &#35; d"
    assert plain("a\u202eb\x1b[31m\tc") == "a\ufffdb\ufffd[31m c"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["RUN", "--to", "hugingface"], "did you mean huggingface?"),
        (["RUN", "--to", "fiftyone", "--no-images"], "cannot leave them out"),
        (["DATA", "--to", "model-index"], "is not one"),
        (["DATA", "--to", "huggingface", "--no-images"], "nothing to export"),
        (["DATA", "--to", "huggingface", "--data", "x"], "is not a run"),
        (["nowhere", "--to", "huggingface"], "does not exist"),
        (["EMPTY", "--to", "huggingface"], "has no rows yet"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, tmp_path: Path, words: list[str], sentence: str) -> None:
    empty = Run(tmp_path / "empty")
    empty.begin(run.spec())
    known = {"RUN": str(run.path), "DATA": run.spec()["data"], "EMPTY": str(empty.path)}
    done = command("share", "export", *(known.get(word, word) for word in words), "--out", tmp_path / "out", code=2)
    assert sentence in done.stderr and done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


def test_what_is_there_is_not_written_over(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    done = command("share", "export", run.path, "--to", "huggingface", "--out", tmp_path / "out", code=2)
    assert "is there already" in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine.txt"]
    below = tmp_path / "out" / "mine.txt" / "deeper"
    assert (
        "cannot write to" in command("share", "export", run.path, "--to", "huggingface", "--out", below, code=2).stderr
    )
    (tmp_path / "out" / "mine.txt").unlink()
    done = command("share", "export", run.path, "--to", "huggingface", "--out", tmp_path / "out", "--quiet")
    assert f"{len(run.rows())} predictions, 12 images; " in done.stdout


def _listed(photos: Path, sample: dict[str, str]) -> list[str]:
    """A line of a list in which one image has another class."""
    identity = sample["sample_id"]
    moved = identity == "cross/0"
    path = photos / "other" / "0.png" if moved else next(photos.glob(f"{identity}.*"))
    return [path.relative_to(photos).as_posix(), "other" if moved else sample["label"], identity]


def test_pictures_that_are_gone_or_changed(tmp_path: Path) -> None:
    run = make_run(tmp_path, "original")
    photos = Path(run.spec()["data"])
    one = photos / "cross" / "0.png"
    data = one.read_bytes()
    one.write_bytes((photos / "cross" / "1.png").read_bytes())
    with pytest.raises(UserError, match=r"cross/0 .* has changed; data= says where"):
        export(run.path, "huggingface", tmp_path / "out")
    one.unlink()
    with pytest.raises(UserError, match=r"1 of 13 images .* are gone .*\(first: cross/0\)"):
        export(run.path, "fiftyone", tmp_path / "out")
    one.write_bytes(data)
    (photos / "other").mkdir()
    shutil.move(one, photos / "other" / "0.png")
    with (photos / "list.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [["path", "label", "sample_id"], *(_listed(photos, sample) for sample in run.samples().to_pylist())]
        )
    with pytest.raises(UserError, match=r"cross/0 .* is not what .* label has changed"):
        export(run.path, "huggingface", tmp_path / "out", data=str(photos / "list.csv"))
    (photos / "list.csv").unlink()
    shutil.move(photos / "other" / "0.png", one)
    (photos / "other").rmdir()
    moved = photos.parent.rename(tmp_path / "moved")
    with pytest.raises(UserError, match=r"cannot be read any more .* images=False leaves them out"):
        export(run.path, "fiftyone", tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".unfinished-*"))
    notes = export(
        run.path, "huggingface", tmp_path / "out", data=str(moved / "images"), masks=str(moved / "masks")
    )  # fmt: skip
    assert "12 images" in notes[0]
    assert export(run.path, "huggingface", tmp_path / "table", images=False) == [f"{len(run.rows())} predictions"]
