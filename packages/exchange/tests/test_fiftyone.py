"""Runs and datasets as folders that FiftyOne reads.

FiftyOne and its database are not dependencies. If a Python has them, its path in HOLDFAST_FIFTYONE_PYTHON lets the last
test read an export with the package itself.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from exported_run import HOSTILE, OWNER, make_run, rewritten
from holdfast.data import load_collection
from holdfast.data.images import decode_image
from holdfast.store import Run
from holdfast_evidence.export.subject import plain
from holdfast_exchange.export import export

PYTHON = os.environ.get("HOLDFAST_FIFTYONE_PYTHON", "")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fiftyone") / "out"
    notes = export(run.path, "fiftyone", out)
    assert notes[0] == "12 samples, 11 masks, 8 fields of answers"
    assert [note.partition(":")[0] for note in notes[1:]] == ["disc/broken"]
    return out


def _read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    metadata, samples = (json.loads((folder / f"{name}.json").read_text()) for name in ("metadata", "samples"))
    assert set(samples) == {"samples"}
    return metadata, samples["samples"]


def test_pictures_and_masks_are_files_of_the_folder(run: Run, folder: Path) -> None:
    spec = run.spec()
    known = {one.sample_id: one for one in load_collection(spec["data"], masks=spec["masks"]).samples}
    _, samples = _read(folder)
    assert len(samples) == 12
    for one in samples:
        sample = known[one["sample_id"]]
        pixels = sample.image.load()
        assert np.array_equal(decode_image((folder / one["filepath"]).read_bytes()), pixels)
        assert (one["metadata"]["height"], one["metadata"]["width"]) == pixels.shape[:2]
        assert one["metadata"]["size_bytes"] == (folder / one["filepath"]).stat().st_size
        assert one["ground_truth"]["label"] == sample.label
        assert ("mask" in one) == (sample.mask is not None)
        if sample.mask is not None:
            mask = cv2.imread(str(folder / one["mask"]["mask_path"]), cv2.IMREAD_UNCHANGED)
            assert np.array_equal(mask, sample.mask.load(*pixels.shape[:2]) * np.uint8(255))


def test_every_answer_is_there_with_its_confidence(run: Run, folder: Path) -> None:
    metadata, samples = _read(folder)
    fields = {(one["model"], one["condition"]): one["field"] for one in metadata["info"]["predictions"]}
    by_id = {one["sample_id"]: one for one in samples}
    rows = [row for row in run.rows().to_pylist() if row["status"] == "ok"]
    assert len(fields) == 8 and len(set(fields.values())) == 8
    for row in rows:
        told = by_id[row["sample_id"]][fields[row["model"], row["condition"]]]
        assert (told["label"], told["confidence"]) == (row["prediction"], row["confidence"])
        assert (told["correct"], told["restricted"]) == (row["correct"], row["prediction_restricted"])
    said = sum(field in one for one in samples for field in fields.values())
    assert said == len(rows) < 8 * 12  # no mask, no blurred background


def test_the_schema_tells_of_every_value(folder: Path) -> None:
    """FiftyOne refuses what its schema does not have: every name and the kind of every value."""
    kinds = {
        "String": str, "Int": int, "Float": float, "Boolean": bool, "ObjectId": dict, "List": list,
        "EmbeddedDocument": dict,
    }  # fmt: skip
    metadata, samples = _read(folder)

    def check(document: dict[str, Any], fields: list[dict[str, Any]]) -> None:
        known = {field["db_field"]: field for field in fields}
        assert len(known) == len(fields)
        for name, value in document.items():
            if name == "_cls":
                continue
            field = known[name]
            assert isinstance(value, kinds[field["ftype"].removeprefix("fiftyone.core.fields.").removesuffix("Field")])
            if field["embedded_doc_type"]:
                assert field["embedded_doc_type"].endswith(f".{value['_cls']}")
                check(value, field["fields"])

    for one in samples:
        check(one, metadata["sample_fields"])
    ids = Counter(
        value["_id"]["$oid"]
        for one in samples
        for value in (one, *one.values())
        if isinstance(value, dict) and "_id" in value
    )
    assert max(ids.values()) == 1 and all(len(one) == 24 for one in ids)


def test_an_export_made_twice_is_the_same(run: Run, folder: Path, tmp_path: Path) -> None:
    export(run.path, "fiftyone", tmp_path / "out")
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    assert len(files) == 12 + 11 + 2
    assert all((folder / path).read_bytes() == (tmp_path / "out" / path).read_bytes() for path in files)
    assert all(OWNER.encode() not in (folder / path).read_bytes() for path in files)


def test_hostile_names_become_no_fields_and_no_values(run: Run, tmp_path: Path) -> None:
    names = {"python:export_models:good": HOSTILE, "python:export_models:tilted": HOSTILE + "!"}
    other = rewritten(run, tmp_path / "hostile", {"model": names, "prediction": {"disc": "$oid"}})
    export(other.path, "fiftyone", tmp_path / "out")
    metadata, _ = _read(tmp_path / "out")
    fields = [one["field"] for one in metadata["info"]["predictions"]]
    assert len(set(fields)) == 8 and all(one.isidentifier() and not one.startswith("_") for one in fields)
    assert {one["model"] for one in metadata["info"]["predictions"]} == {plain(one) for one in names.values()}
    for text in ((tmp_path / "out" / name).read_text() for name in ("samples.json", "metadata.json")):
        json.loads(text, object_pairs_hook=_no_steering)


def _no_steering(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What begins with $ is a value of the database: only ids that we made may be."""
    for key, value in pairs:
        assert not key.startswith("$") or (key == "$oid" and len(pairs) == 1 and int(value, 16) >= 0)
    return dict(pairs)


def test_a_dataset_alone_has_no_answers(run: Run, tmp_path: Path) -> None:
    spec = run.spec()
    notes = export(spec["data"], "fiftyone", tmp_path / "out", masks=spec["masks"])
    assert notes[0] == "12 samples, 11 masks, 0 fields of answers"
    metadata, _ = _read(tmp_path / "out")
    assert metadata["info"]["predictions"] == [] and metadata["default_classes"] == ["cross", "disc", "square"]


_READ = """
import json, sys
import fiftyone as fo
found = fo.Dataset.from_dir(sys.argv[1], dataset_type=fo.types.FiftyOneDataset)
fields = [one["field"] for one in found.info["predictions"]]
print(json.dumps({
    "samples": len(found), "masks": found.count("mask"), "shape": found.first().mask.get_mask().shape,
    "answers": {one: found.count(one) for one in fields}, "classes": found.default_classes,
    "models": sorted({one["model"] for one in found.info["predictions"]}),
    "right": {one: found.count_values(f"{one}.correct").get(True, 0) for one in fields},
    "attributes": found.first()["attributes"],
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="HOLDFAST_FIFTYONE_PYTHON names no Python with FiftyOne and its database")
@pytest.mark.parametrize("hostile", [False, True])
def test_fiftyone_itself_reads_it(run: Run, tmp_path: Path, hostile: bool) -> None:
    name = HOSTILE if hostile else "python:export_models:good"
    given = rewritten(run, tmp_path / "given", {"model": {"python:export_models:good": name}})
    export(given.path, "fiftyone", tmp_path / "out")
    done = subprocess.run(
        [PYTHON, "-c", _READ, str(tmp_path / "out")], capture_output=True, text=True, check=True,
        env={**os.environ, "HOME": str(tmp_path), "FIFTYONE_DO_NOT_TRACK": "1"},
    )  # fmt: skip
    told = json.loads(done.stdout.splitlines()[-1])
    metadata, samples = _read(tmp_path / "out")
    assert (told["samples"], told["masks"], told["shape"]) == (12, 11, [48, 64])
    assert told["models"] == sorted([plain(name), "python:export_models:tilted"])
    assert told["classes"] == ["cross", "disc", "square"] and told["attributes"] == samples[0]["attributes"]
    for one in metadata["info"]["predictions"]:
        own = [sample[one["field"]] for sample in samples if one["field"] in sample]
        assert told["answers"][one["field"]] == len(own)
        assert told["right"][one["field"]] == sum(answer["correct"] for answer in own)


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export of a run of detectors whose answers are known."""
    import holdfast

    root = tmp_path_factory.mktemp("boxes")
    scenes = "diorama:test?n=4&objects=1..3&size=64"
    holdfast.evaluate(scenes, models=["known:perfect"], scenarios="original,grey", out=root / "run")
    export(root / "run", "fiftyone", root / "out")
    return root / "out"


def test_boxes_of_detectors_are_shares_of_their_pictures(boxed: Path) -> None:
    metadata, samples = _read(boxed)
    fields = {field["name"]: field for field in metadata["sample_fields"]}
    (grey,) = (name for name in fields if name.endswith("grey"))
    assert fields[grey]["embedded_doc_type"] == "fiftyone.core.labels.Detections"
    known = {sample.sample_id: sample for sample in load_collection("diorama:test?n=4&objects=1..3&size=64").samples}
    for one in samples:
        truth = [each for each in known[one["sample_id"]].objects.load(64, 64) if not each.problem]
        boxes = [each["bounding_box"] for each in one["objects"]["detections"]]
        x1, y1, x2, y2 = np.array([each.box for each in truth]).T / 64
        np.testing.assert_allclose(boxes, np.stack([x1, y1, x2 - x1, y2 - y1], 1), atol=1e-6)
        found = {tuple(np.round(each["bounding_box"], 5)) for each in one[grey]["detections"]}
        assert found == {tuple(np.round(box, 5)) for box, each in zip(boxes, truth, strict=True) if not each.crowd}, (
            "the perfect detector's boxes are the true ones"
        )
        assert all(0 <= each["confidence"] <= 1 for each in one[grey]["detections"])


READ_BOXES = """
import sys
import fiftyone as fo

dataset = fo.Dataset.from_dir(sys.argv[1], dataset_type=fo.types.FiftyOneDataset)
for sample in dataset:
    print(len(sample["objects"].detections), *(round(x, 3) for x in sample["objects"].detections[0].bounding_box))
dataset.delete()
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="HOLDFAST_FIFTYONE_PYTHON names no Python with FiftyOne and its database")
def test_fiftyone_itself_reads_boxes(boxed: Path) -> None:
    answer = subprocess.run(
        [PYTHON, "-c", READ_BOXES, str(boxed)], capture_output=True, text=True, check=True,
        env={**os.environ, "HOME": str(boxed.parent), "FIFTYONE_DO_NOT_TRACK": "1"},
    )  # fmt: skip
    lines = [line.split() for line in answer.stdout.strip().splitlines()[-4:]]
    _, samples = _read(boxed)
    assert [int(line[0]) for line in lines] == [len(one["objects"]["detections"]) for one in samples]


LIVE = """
import json, sys
import cv2, numpy as np
import fiftyone as fo
import holdfast

dataset = fo.Dataset()
for number in range(6):
    path = f"{sys.argv[1]}/{number}.png"
    cv2.imwrite(path, np.full((16, 16, 3), 200 - 160 * (number % 2), np.uint8))
    sample = fo.Sample(filepath=path, camera="AB"[number % 2])
    sample["ground_truth"] = fo.Classification(label="dark" if number % 2 else "light")
    if number == 0:
        sample["outline"] = fo.Segmentation(mask=np.eye(16, dtype=np.uint8))
    dataset.add_sample(sample)

def predict(images):
    return ["dark" if image.mean() < 100 else "light" for image in images]

asked = {"models": {"mean": predict}, "scenarios": "original,blur_background", "out": sys.argv[1] + "/run"}
run = holdfast.evaluate(dataset.limit(4), **asked)
print(json.dumps([run.accuracy()["n"].tolist(), run.run.samples()["attributes"].to_pylist()]))
dataset.delete()
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="HOLDFAST_FIFTYONE_PYTHON names no Python with FiftyOne and its database")
def test_a_view_of_fiftyone_is_data(tmp_path: Path) -> None:
    answer = subprocess.run(
        [PYTHON, "-c", LIVE, str(tmp_path)], capture_output=True, text=True, check=True,
        env={**os.environ, "HOME": str(tmp_path), "FIFTYONE_DO_NOT_TRACK": "1"},
    )  # fmt: skip
    counts, attributes = json.loads(answer.stdout.splitlines()[-1])
    assert counts == [4, 1]  # one image of the view has a mask, so one has a background
    assert [json.loads(each)["camera"] for each in attributes] == list("ABAB")
