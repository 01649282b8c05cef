"""What changed since the last run replaces the old rows, and no one's own files are written over."""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import cv2
import pytest

from holdfast.core.errors import UserError
from holdfast.data import load_collection
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.classifiers import load_models
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.files import write_split
from holdfast.pipeline.mask import MaskSpec, make_masks
from holdfast.pipeline.samples import read
from holdfast.pipeline.synth.synth import SynthSpec, synth


@pytest.fixture
def spec(photos: Path, toy_models: str) -> EvaluateSpec:
    return EvaluateSpec(str(photos), models=(f"{toy_models}:colour",), scenarios="all", batch_size=7)


def invert(path: Path) -> None:
    cv2.imwrite(str(path), 255 - cv2.imread(str(path), cv2.IMREAD_GRAYSCALE))


def manifest(folder: Path, label: str) -> Path:
    rows = [{"path": f"images/{c}/{n}.png", "label": c} for c in ("cross", "disc", "square") for n in range(4)]
    rows[0]["label"] = label
    with (folder / "list.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["path", "label"])
        writer.writeheader()
        writer.writerows(rows)
    return folder / "list.csv"


def same_as_fresh(spec: EvaluateSpec, used: Path, tmp_path: Path, table_of: object) -> bool:
    fresh, _ = evaluate(spec, tmp_path / "fresh")
    again, _ = evaluate(spec, used)
    return table_of(fresh) == table_of(again)  # type: ignore[operator]


@pytest.mark.parametrize("first", [{"limit": 6}, {"matte": (0, 0, 0)}, {"masks": "other"}])
def test_a_run_that_was_begun_otherwise_ends_in_the_same_table(
    spec: EvaluateSpec, tmp_path: Path, photos: Path, table_of: object, first: dict[str, object]
) -> None:
    if "masks" in first:  # a tree that lacks all but one mask: skipped rows, which the next run replaces
        (tmp_path / "other" / "disc").mkdir(parents=True)
        shutil.copy(photos / "masks" / "disc" / "0.png", tmp_path / "other" / "disc")
        first = {"masks": str(tmp_path / "other")}
    evaluate(replace(spec, **first), tmp_path / "used")  # type: ignore[arg-type]
    assert same_as_fresh(spec, tmp_path / "used", tmp_path, table_of)


def test_a_donors_changed_mask_changes_the_scenes_that_borrow_from_it(
    spec: EvaluateSpec, tmp_path: Path, photos: Path, table_of: object
) -> None:
    only = replace(spec, scenarios="random_background,grey")
    evaluate(only, tmp_path / "used")
    invert(photos / "masks" / "disc" / "0.png")
    assert same_as_fresh(only, tmp_path / "used", tmp_path, table_of)


def test_a_corrected_label_is_measured_again(
    spec: EvaluateSpec, tmp_path: Path, photos: Path, table_of: object
) -> None:
    only = replace(spec, data=str(manifest(photos, "disc")), scenarios="original")
    run, _ = evaluate(only, tmp_path / "used")
    assert sum(row["correct"] for row in run.rows().to_pylist()) == 11
    manifest(photos, "cross")
    assert same_as_fresh(only, tmp_path / "used", tmp_path, table_of)


def test_other_models_and_conditions_keep_their_rows(spec: EvaluateSpec, tmp_path: Path, photos: Path) -> None:
    evaluate(replace(spec, scenarios="grey,red"), tmp_path / "run")
    invert(photos / "masks" / "disc" / "0.png")
    second = spec.models[0].replace("colour", "second")
    run, _ = evaluate(replace(spec, scenarios="grey", models=(second,)), tmp_path / "run")
    assert run.rows().num_rows == 36
    run, summary = evaluate(replace(spec, scenarios="grey"), tmp_path / "run")
    assert (summary.rows, run.rows().num_rows) == (1, 36)


@pytest.mark.parametrize("format", ["png", "webdataset", "parquet"])
def test_synth_replaces_what_changed(tmp_path: Path, photos: Path, format: str) -> None:
    spec = SynthSpec(str(photos), scenarios="segmented,random_background", workers=1, format=format)  # type: ignore[arg-type]
    out = tmp_path / "out"
    synth(spec, out)
    invert(photos / "masks" / "disc" / "0.png")
    assert synth(replace(spec, seed=1), out).rows == 24
    with (out / "manifest.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len({row["sample_id"] for row in rows}) == 24 and {row["seed"] for row in rows} == {"1"}
    assert synth(replace(spec, seed=1, verify=True), out).rows == 0
    if format == "webdataset":
        assert len(load_collection(str(out))) == 24 and not load_collection(str(out)).problems


def test_a_shard_that_nothing_records_is_cleared_away(tmp_path: Path, photos: Path) -> None:
    spec = SynthSpec(str(photos), scenarios="grey", workers=1, format="webdataset")
    synth(spec, tmp_path / "out")
    shard = tmp_path / "out" / "shard-000000.tar"
    (tmp_path / "out" / "shard-000007.tar").write_bytes(shard.read_bytes())  # written, then killed
    synth(spec, tmp_path / "out")
    assert list((tmp_path / "out").glob("*.tar")) == [shard]


def test_a_larger_limit_mends_what_was_refused(tmp_path: Path, photos: Path) -> None:
    spec = SynthSpec(str(photos), scenarios="grey", workers=1, max_pixels=10)
    with pytest.raises(UserError, match=r"no image could be made: 12 errors, the first: .*above --max-pixels 10"):
        synth(spec, tmp_path / "out")
    assert not synth(replace(spec, max_pixels=10_000), tmp_path / "out").trouble


@pytest.mark.filterwarnings("ignore")
def test_the_datasets_library_opens_the_folder(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import load_dataset

    synth(SynthSpec(str(photos), scenarios="grey,transparent", workers=1, format="parquet"), tmp_path / "out")
    opened = load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))["train"]
    assert len(opened) == 24 and opened[0]["image"].size == (64, 48)


def test_our_coco_files_find_their_images(tmp_path: Path, photos: Path) -> None:
    synth(SynthSpec(str(photos), scenarios="grey", workers=1), tmp_path / "out")
    collection = load_collection(str(tmp_path / "out" / "coco" / "grey.json"))
    assert len(collection) == 12 and not collection.problems


def test_stored_variants_stay_apart(spec: EvaluateSpec, tmp_path: Path) -> None:
    synth(SynthSpec(spec.data, scenarios="red,red@released", workers=1), tmp_path / "out")
    run, _ = evaluate(replace(spec, data=str(tmp_path / "out")), tmp_path / "run")
    assert Counter(row["variant"] for row in run.rows().to_pylist()) == {"as_stored": 12, "released": 12}


def test_a_split_keeps_what_a_rendering_is(tmp_path: Path, photos: Path) -> None:
    synth(SynthSpec(str(photos), scenarios="original,red@released", workers=1), tmp_path / "out")
    write_split(str(tmp_path / "out"), tmp_path / "out" / "split.csv")
    samples = load_collection(str(tmp_path / "out" / "split.csv")).samples
    assert Counter((s.condition, s.attributes.get("variant")) for s in samples) == {
        ("original", "paper"): 12,
        ("red", "released"): 12,
    }


def test_masks_are_found_whatever_the_images_are_called(tmp_path: Path, photos: Path) -> None:
    """Ids need not be file names: dots, quotes, splits above the classes, two suffixes of one stem."""
    data = tmp_path / "data"
    for name in ("train/disc/my.photo 1.png", "train/disc/<b>it's 100% ü.png", "test/disc/a.png", "test/disc/a.bmp"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(data / name), cv2.imread(str(photos / "images" / "disc" / "0.png")))
    make_masks(MaskSpec(str(data), annotator="threshold", workers=1), tmp_path / "masks")
    samples = load_collection(str(data), masks=tmp_path / "masks").samples
    assert len(samples) == 4 and len({str(sample.mask) for sample in samples}) == 4
    assert all(sample.mask is not None and sample.mask.load(48, 64).any() for sample in samples)


def test_another_mask_maker_replaces_the_masks_and_what_is_said_of_them(tmp_path: Path, photos: Path) -> None:
    out, spec = tmp_path / "masks", MaskSpec(str(photos), workers=1)
    first = replace(spec, annotator="threshold")
    make_masks(first, out)
    before = {path: path.read_bytes() for path in out.rglob("*.png")}
    make_masks(replace(spec, annotator="grabcut?margin=0.4"), out)
    assert {path: path.read_bytes() for path in out.rglob("*.png")} != before
    summary, _ = make_masks(first, out)
    assert summary.rows == 12 and {path: path.read_bytes() for path in out.rglob("*.png")} == before


def test_nobodys_files_are_written_over(tmp_path: Path, photos: Path) -> None:
    before = {path: path.read_bytes() for path in photos.rglob("*.png")}
    spec = MaskSpec(str(photos), annotator="threshold", workers=1)
    for out in (photos, photos / "images", photos / "masks"):
        with pytest.raises(UserError, match="choose another --out"):
            make_masks(spec, out)
    with pytest.raises(UserError, match="choose another --out"):
        synth(SynthSpec(str(photos), scenarios="grey", workers=1), photos)
    assert {path: path.read_bytes() for path in photos.rglob("*.png")} == before
    bare = MaskSpec(f"folder:{photos / 'images'}", annotator="threshold", workers=1)
    (photos / "masks").rename(tmp_path / "hand-made")
    make_masks(bare, photos / "masks")
    assert make_masks(bare, photos / "masks")[0].rows == 0  # ours to continue with


def test_same_class_donors_come_from_the_dataset_beside_given_backgrounds(
    spec: EvaluateSpec, tmp_path: Path, photos: Path
) -> None:
    (tmp_path / "scenes").mkdir()
    cv2.imwrite(str(tmp_path / "scenes" / "a.png"), cv2.imread(str(photos / "images" / "disc" / "0.png"))[::2])
    both = replace(
        spec, scenarios="random_background,same_class_background", backgrounds=str(tmp_path / "scenes"), workers=2
    )
    run, _ = evaluate(both, tmp_path / "run")
    facts = Counter(
        (row["status"], row["condition"], row["donor_id"] == "backgrounds/a.png", row["donor_unmasked"])
        for row in run.rows().to_pylist()
    )
    assert facts == {
        ("ok", "random_background", True, True): 12,
        ("ok", "same_class_background", False, False): 12,
    }


def test_the_batch_size_reaches_the_model(spec: EvaluateSpec) -> None:
    name = "timm:test_resnet?pretrained=false&num_classes=3&labels=" + str(Path(spec.data).parent / "names.txt")
    (Path(spec.data).parent / "names.txt").write_text("cross\ndisc\nsquare\n")
    wanted = replace(spec, models=(name,), batch_size=200)
    (tested,) = load_models(wanted, read(wanted))
    assert isinstance(tested.classifier, TorchClassifier) and tested.classifier.batch_size == 200
