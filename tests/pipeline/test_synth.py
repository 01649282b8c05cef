from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import bytes_sha256
from holdfast.data import load_collection
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.synth.synth import SynthSpec, make_spec, synth


@pytest.fixture
def spec(photos: Path) -> SynthSpec:
    return SynthSpec(str(photos), scenarios="static", workers=1)


def manifest(out: Path) -> list[dict[str, str]]:
    with (out / "manifest.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_manifest_tells_everything(spec: SynthSpec, tmp_path: Path) -> None:
    out = tmp_path / "out"
    summary = synth(spec, out)
    rows = manifest(out)
    assert summary.rows == len(rows) == 12 * 13
    assert Counter(row["scenario"] for row in rows) == dict.fromkeys({row["scenario"] for row in rows}, 12)
    for row in rows:
        data = (out / row["path"]).read_bytes()
        assert bytes_sha256(data) == row["sha256"]
        assert (out / row["mask_path"]).is_file()
        assert json.loads(row["parameters"]) is not None and row["variant"] == "paper" and row["seed"] == "0"
        assert bool(row["donor_id"]) == (row["scenario"] == "random_background")
    transparent = next(row for row in rows if row["scenario"] == "transparent")
    assert cv2.imread(str(out / transparent["path"]), cv2.IMREAD_UNCHANGED).shape[2] == 4


def test_disk_equals_memory(spec: SynthSpec, tmp_path: Path, toy_models: str) -> None:
    """The written images, read back and evaluated, give the pixels and answers of the run in memory."""
    out = tmp_path / "out"
    synth(replace(spec, scenarios="all"), out)
    model = (f"{toy_models}:colour",)
    memory, _ = evaluate(EvaluateSpec(spec.data, models=model, scenarios="all"), tmp_path / "memory")
    disk, _ = evaluate(EvaluateSpec(str(out), models=model, scenarios="original"), tmp_path / "disk")
    columns = ("image_sha256", "prediction", "confidence", "correct", "label", "status")

    def facts(run: object) -> dict[tuple[str, str], list[object]]:
        rows = run.rows().to_pylist()  # type: ignore[attr-defined]
        return {(row["source_id"], row["condition"]): [row[name] for name in columns] for row in rows}

    assert len(facts(memory)) == 12 * 18
    assert facts(memory) == facts(disk)


def test_two_workers_write_the_same_bytes(spec: SynthSpec, tmp_path: Path) -> None:
    synth(spec, tmp_path / "one")
    synth(replace(spec, workers=2), tmp_path / "two")
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.png"))
    assert len(files) == 12 * 14
    for path in [*files, Path("manifest.csv"), Path("coco/grey.json")]:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path


def test_rerunning_does_only_what_is_missing(spec: SynthSpec, tmp_path: Path) -> None:
    out = tmp_path / "out"
    synth(replace(spec, scenarios="grey"), out)
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("grey/**/*.png")}
    summary = synth(replace(spec, scenarios="grey,red"), out)
    assert (summary.rows, summary.already) == (12, 12)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("grey/**/*.png")} == stamps
    assert len(manifest(out)) == 24


def test_verify_finds_and_mends_what_changed(spec: SynthSpec, tmp_path: Path) -> None:
    out = tmp_path / "out"
    only = replace(spec, scenarios="grey,random_background@moved")
    synth(only, out)
    damaged, gone = out / "grey/disc/0.png", out / "grey/cross/1.png"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-9])
    gone.unlink()
    mask = next((out / "masks" / "original").rglob("square/2.png"))
    mask.write_bytes(whole)
    assert synth(only, out).rows == 0
    summary = synth(replace(only, verify=True), out)
    assert summary.rows >= 3
    assert damaged.read_bytes() == whole and gone.is_file() and mask.read_bytes() != whole
    assert synth(replace(only, verify=True), out).rows == 0


def test_a_moved_object_has_its_own_mask(spec: SynthSpec, tmp_path: Path) -> None:
    out = tmp_path / "out"
    synth(replace(spec, scenarios="grey,random_background@moved"), out)
    masks = {
        row["scenario"] + row["variant"]: row["mask_path"] for row in manifest(out) if row["source_id"] == "disc/0"
    }
    assert masks["greypaper"] != masks["random_backgroundmoved"]
    moved = cv2.imread(str(out / masks["random_backgroundmoved"]), cv2.IMREAD_GRAYSCALE)
    assert moved.any() and not np.array_equal(moved, cv2.imread(str(out / masks["greypaper"]), cv2.IMREAD_GRAYSCALE))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_coco_files_open_in_pycocotools(spec: SynthSpec, tmp_path: Path, photos: Path) -> None:
    from pycocotools.coco import COCO

    out = tmp_path / "out"
    synth(replace(spec, scenarios="grey"), out)
    coco = COCO(str(out / "coco" / "grey.json"))
    assert len(coco.imgs) == 12 and {category["name"] for category in coco.cats.values()} == {"cross", "disc", "square"}
    for annotation in coco.anns.values():
        name = coco.imgs[annotation["image_id"]]["file_name"]
        original = photos / "masks" / Path(name).relative_to("grey")
        assert np.array_equal(coco.annToMask(annotation) > 0, cv2.imread(str(original), 0) > 127)


def test_jpeg_keeps_transparent_as_png(spec: SynthSpec, tmp_path: Path) -> None:
    out = tmp_path / "out"
    synth(replace(spec, scenarios="grey,transparent", format="jpeg", quality=80), out)
    assert {Path(row["path"]).suffix for row in manifest(out) if row["scenario"] == "grey"} == {".jpg"}
    assert {Path(row["path"]).suffix for row in manifest(out) if row["scenario"] == "transparent"} == {".png"}
    with pytest.raises(UserError, match="--format jpeg"):
        synth(replace(spec, scenarios="grey"), out)


def test_the_ximagenet12_layout_reads_back(spec: SynthSpec, tmp_path: Path) -> None:
    out = tmp_path / "out"
    synth(replace(spec, layout="ximagenet12"), out)
    assert {"image", "image_r", "combine", "segmented_image", "standard_masks"} <= {path.name for path in out.iterdir()}
    collection = load_collection(f"ximagenet12:{out}")
    conditions = Counter(sample.condition for sample in collection.samples)
    assert len(conditions) == 13 and set(conditions.values()) == {12}


@pytest.mark.parametrize("format", ["webdataset", "parquet"])
def test_shards(spec: SynthSpec, tmp_path: Path, format: str) -> None:
    out = tmp_path / "out"
    only = replace(spec, scenarios="grey,transparent", format=format)  # type: ignore[arg-type]
    assert synth(only, out).rows == 24
    shard = next(out.glob("shard-*.tar" if format == "webdataset" else "data-*.parquet"))
    assert synth(replace(only, verify=True), out).rows == 0
    shard.unlink()
    assert synth(replace(only, verify=True), out).rows == 24
    shard = next(out.glob("shard-*.tar" if format == "webdataset" else "data-*.parquet"))
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    assert synth(replace(only, verify=True), out).rows == 24
    if format == "webdataset":
        collection = load_collection(f"webdataset:{next(out.glob('shard-*.tar'))}")
        assert Counter(sample.label for sample in collection.samples) == {"cross": 8, "disc": 8, "square": 8}


def test_names_cannot_leave_the_folder(spec: SynthSpec, tmp_path: Path, photos: Path) -> None:
    image = photos / "images" / "disc" / "0.png"
    rows = [("images/disc/0.png", "../../escape", "x/../../y"), (str(image.relative_to(photos)), "a/b", "a:b<script>")]
    with (photos / "list.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "sample_id"])
        writer.writerows(rows)
    out = tmp_path / "deep" / "out"
    synth(replace(spec, data=str(photos / "list.csv"), scenarios="original"), out)
    written = list((tmp_path / "deep").rglob("original/**/*.png"))
    assert len(written) == 2 and all(out / "original" in path.parents for path in written)
    assert not list(tmp_path.glob("escape*"))


@pytest.mark.parametrize(
    "wrong", [{"format": "gif"}, {"layout": "tree"}, {"quality": 101}, {"layout": "ximagenet12", "format": "parquet"}]
)
def test_wrong_options(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError):
        make_spec(data="x", **wrong)


def test_a_damaged_record_of_what_was_asked_is_a_sentence(spec: SynthSpec, tmp_path: Path) -> None:
    synth(replace(spec, scenarios="original"), tmp_path / "out")
    record = tmp_path / "out" / "spec.json"
    record.write_bytes(b"\xff" + record.read_bytes()[1:])
    with pytest.raises(UserError, match=r"spec\.json is not JSON of a specification"):
        synth(replace(spec, scenarios="original"), tmp_path / "out")
