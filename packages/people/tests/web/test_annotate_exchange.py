"""Masks from and to other programs' files, by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.data import load_collection
from holdfast_people import masks
from holdfast_people.database import open_database
from web_server import serving


def run(tmp_path: Path, photos: Path, *arguments: str, folder: str = "drawn") -> str:
    given = [
        "people",
        "annotate",
        str(photos / "images"),
        "--masks",
        str(tmp_path / folder),
        "--state",
        str(tmp_path / "state"),
    ]
    result = CliRunner().invoke(app, [*given, "--quiet", *arguments])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.output


def stored(folder: Path) -> dict[str, np.ndarray]:
    """By a reader that is not ours."""
    paths = sorted(folder.rglob("*.png"))
    return {
        path.relative_to(folder).with_suffix("").as_posix(): cv2.imread(str(path), cv2.IMREAD_UNCHANGED) > 0
        for path in paths
    }


@pytest.fixture
def truth(photos: Path) -> dict[str, np.ndarray]:
    """The masks that the images come with."""
    found = stored(photos / "masks")
    assert len(found) == 12 and all(mask.any() for mask in found.values())
    return found


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_there_and_back(tmp_path: Path, photos: Path, truth: dict[str, np.ndarray]) -> None:
    out = tmp_path / "out.json"
    assert "12 masks" in run(tmp_path, photos, "--export", str(out))  # the dataset's own
    bare = tmp_path / "bare"
    (photos / "images").rename(bare)  # the same images without masks next to them
    given = ["people", "annotate", str(bare), "--masks", str(tmp_path / "again"), "--state", str(tmp_path / "state")]
    result = CliRunner().invoke(app, [*given, "--quiet", "--import", str(out)])
    assert result.exit_code == 0 and "12 masks taken in, 0 were there already" in result.output
    assert same(stored(tmp_path / "again"), truth)
    result = CliRunner().invoke(app, [*given, "--quiet", "--import", str(out)])
    assert "0 masks taken in, 12 were there already" in result.output
    document = json.loads((tmp_path / "again" / "coco.json").read_text())
    assert len(document["images"]) == len(document["annotations"]) == 12
    samples = load_collection(str(bare), masks=tmp_path / "again").samples
    assert all(np.array_equal(one.mask.load(48, 64), truth[one.sample_id]) for one in samples if one.mask)


def test_an_import_is_a_new_version(tmp_path: Path, photos: Path, truth: dict[str, np.ndarray]) -> None:
    run(tmp_path, photos, "--export", str(tmp_path / "before.json"))
    document = json.loads((tmp_path / "before.json").read_text())
    (image,) = [one for one in document["images"] if one["file_name"] == "disc/0.png"]
    box = [[10, 10, 30, 10, 30, 20, 10, 20]]
    kept = {"id": 1, "image_id": image["id"], "category_id": 2, "segmentation": box}
    document["images"] += [{"id": 99, "file_name": "elsewhere/77.png", "height": 48, "width": 64}]
    document["images"] += [{"id": 98, "file_name": "square/1.png", "height": 5, "width": 5}]
    wrong = {"id": 2, "image_id": 98, "category_id": 3, "segmentation": [[0, 0, 4, 0, 4, 4]]}
    document["annotations"] = [kept, wrong]
    (tmp_path / "changed.json").write_text(json.dumps(document))
    said = run(tmp_path, photos, "--import", str(tmp_path / "changed.json"))
    assert "1 masks taken in" in said and "no image of the dataset is called elsewhere/77.png" in said
    assert "square/1: the mask is for an image of 5 × 5 pixels, this one has 64 × 48" in said
    expected = dict(truth)
    expected["disc/0"] = np.zeros((48, 64), bool)
    expected["disc/0"][10:20, 10:30] = True
    assert same(stored(tmp_path / "drawn"), expected), "images without an object in the file keep their masks"
    database = open_database(tmp_path / "state" / "people.sqlite")
    with database.reading() as connection:
        (drawing,) = [one for one in masks.drawings(connection, 1) if one.sample_id == "disc/0"]
        assert [one.how for one in masks.list_versions(connection, drawing.id)] == ["imported", "the dataset's own"]
        assert np.array_equal(masks.get_version(connection, drawing.id, 1).mask(), truth["disc/0"])
    database.close()


def test_administrators_export_from_the_page(tmp_path: Path, photos: Path) -> None:
    run(tmp_path, photos, "--export", str(tmp_path / "out.json"))
    with serving(tmp_path / "state") as server:
        url = "/api/annotate/sets/1/export"
        admin = server.client("admin")
        assert admin.get(url).content == (tmp_path / "out.json").read_bytes()
        assert server.client().get(url).status_code == 403


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--import", "nowhere.json"], "cannot be read"),
        (["--with", "u2netp"], "takes no box"),
        (["--masks", "images"], "choose another --masks"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(photos)
    given = ["people", "annotate", "images", "--state", str(tmp_path / "state"), "--quiet"]
    result = CliRunner().invoke(app, [*given, *arguments])
    assert result.exit_code != 0 and words in str(result.exception)
