"""``--fast`` at its edges: no one lends a background, files of every kind, and classes with next to no probability."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from holdfast.core.errors import UserError
from holdfast.data.labels import LabelMap, outcomes
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.fast import answers
from shapes import CLASSES

KEY = ("model", "sample_id", "condition", "variant", "parameters")
LOOSE = ("confidence", "confidence_restricted", "probability_of_label")


@pytest.fixture
def network(tmp_path: Path) -> str:
    (tmp_path / "labels.txt").write_text("\n".join(CLASSES))
    return f"timm:test_resnet?pretrained=false&num_classes=3&seed=1&size=32&labels={tmp_path}/labels.txt"


def assert_same(spec: EvaluateSpec, tmp_path: Path) -> list[str]:
    """The same rows both ways; returns their statuses."""
    made = []
    for fast in (False, True):
        run, _ = evaluate(replace(spec, fast=fast), tmp_path / f"fast {fast}")
        made.append({tuple(row[name] for name in KEY): row for row in run.rows().to_pylist()})
    exact, quick = made
    assert exact.keys() == quick.keys()
    for key, row in exact.items():
        for name in row.keys() - {"row_id", "run_id", "image_sha256", *LOOSE}:
            assert row[name] == quick[key][name], (key, name)
        for name in LOOSE:
            assert row[name] is None or row[name] == pytest.approx(quick[key][name], abs=0.01)
    return [row["status"] for row in quick.values()]


def test_a_picture_that_nobody_lends_a_background_is_a_row(photos: Path, network: str, tmp_path: Path) -> None:
    (photos / "strangers").mkdir()
    for number in range(6):  # more than travel with an image
        (photos / f"strangers/{number}.png").write_bytes(b"broken")
    spec = EvaluateSpec(
        str(photos), models=(network,), scenarios="random_background", device="cpu",
        backgrounds=str(photos / "strangers"),
    )  # fmt: skip
    with pytest.raises(UserError, match="12 errors, the first: no image of another class"):
        assert_same(spec, tmp_path)


def test_files_of_every_kind(photos: Path, network: str, tmp_path: Path) -> None:
    folder, masks = photos / "images/disc", photos / "masks/disc"
    picture = PIL.Image.open(folder / "0.png").convert("RGB")
    mask = PIL.Image.open(masks / "0.png")
    for mode, ending in (("L", "png"), ("1", "png"), ("P", "png"), ("LA", "png"), ("CMYK", "jpg"), ("RGBA", "webp")):
        picture.convert(mode).save(folder / f"{mode}.{ending}")
        mask.save(masks / f"{mode}.png")
    turned = PIL.Image.Exif()
    turned[0x0112] = 6
    picture.save(folder / "turned.jpg", exif=turned)
    mask.transpose(PIL.Image.Transpose.ROTATE_270).save(masks / "turned.png")
    for name, size in (("line", (40, 1)), ("column", (1, 40)), ("tiny", (3, 2)), ("long", (90, 4))):
        picture.resize(size).save(folder / f"{name}.png")
        half = np.zeros(size[::-1], np.uint8)
        half.reshape(-1)[: half.size // 2] = 255
        PIL.Image.fromarray(half).save(masks / f"{name}.png")
    scenarios = "original,random_background,segmented,transparent"
    spec = EvaluateSpec(str(photos), models=(network,), scenarios=scenarios, device="cpu", matte=(9, 200, 30))
    assert set(assert_same(spec, tmp_path)) == {"ok"}


def test_shares_among_classes_that_are_next_to_impossible() -> None:
    labels = LabelMap(("a", "b"), ((0, 3), (1,)), ("a", "b", "other", "a"), "")
    scores = np.array([[1e-35, 3e-35, 1, 0], [0, 0, 1, 0], [1e-36, 3e-36, 1, 5e-36], [0, 2e-38, 1, 0]], np.float32)
    truth = np.zeros(4, np.int64)
    packed = answers.pack(torch.from_numpy(scores), answers.Groups.of(labels, "cpu"), torch.from_numpy(truth))
    made = answers.columns(packed.numpy(), labels, truth)["confidence_restricted"].to_pylist()
    assert made == pytest.approx(outcomes(scores, labels, ["a"] * 4)["confidence_restricted"], abs=1e-6)
    assert made == pytest.approx([0.75, 0, 6 / 9, 1], abs=1e-6)
