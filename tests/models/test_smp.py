"""``smp:`` segmenters: tiny ones made here by the library itself, and whatever is in assets/segmenters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import segmentation_models_pytorch as library
import torch

from holdfast import registry
from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import parse_name
from holdfast.core.protocols import Segmenter
from holdfast.diorama import CLASSES, draw_scene, render
from holdfast.models import local_dir
from holdfast.models.segmenters import torch_segmenter

ARGUMENTS = {
    "encoder_name": "tu-resnet18",
    "encoder_weights": None,
    "classes": 4,
    "channels": [8, 8, 16, 16],
    "layers": [1, 1, 1, 1],
}
SIZES = ((37, 53), (1, 1), (2, 300), (300, 2), (64, 64), (200, 300))


def saved(folder: Path, architecture: str = "Unet", **changes: object) -> Path:
    torch.manual_seed(1)
    decoder = {"decoder_channels": [16, 16, 8, 8, 8]} if architecture == "Unet" else {"decoder_channels": 16}
    model = getattr(library, architecture)(**{**ARGUMENTS, **decoder, **changes})
    model.save_pretrained(folder)
    return folder


def load(text: str) -> Segmenter:
    name = parse_name(text)
    segmenter = registry.segmenters.get(name.scheme)(name, device="cpu")
    assert isinstance(segmenter, Segmenter)
    return segmenter


def pictures() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, (*size, 3), np.uint8) for size in SIZES]


@pytest.mark.parametrize("architecture", ["Unet", "DeepLabV3Plus"])
def test_contract(tmp_path: Path, architecture: str) -> None:
    name = f"smp:{architecture}@{saved(tmp_path / 'folder', architecture)}"
    segmenter = load(name)
    assert load(name).fingerprint == segmenter.fingerprint
    assert segmenter.name == f"smp:{architecture}@folder"
    assert segmenter.labels.names == ("0", "1", "2", "3")
    images = pictures()
    before = [image.copy() for image in images]
    maps = segmenter.segment(images)
    assert [one.shape for one in maps] == list(SIZES)
    assert all(one.dtype == np.uint8 and one.max() < 4 for one in maps)
    assert all(np.array_equal(image, copy) for image, copy in zip(images, before, strict=True))
    for image, together in zip(images, maps, strict=True):
        alone = segmenter.segment([image])[0]
        assert (alone == together).mean() > 0.999  # a tie between two classes may fall either way
    assert segmenter.segment([]) == []
    with pytest.raises(SampleError, match="uint8"):
        segmenter.segment([images[0].astype(np.float32)])


def test_the_library_answers_the_same(tmp_path: Path) -> None:
    folder = saved(tmp_path / "folder")
    theirs = library.from_pretrained(folder).eval()
    image = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    batch = torch.from_numpy((np.float32(image) / 255 - mean) / std).permute(2, 0, 1)[None]
    with torch.inference_mode():
        expected = theirs(batch)[0].argmax(0).numpy()
    assert len(np.unique(expected)) > 1
    answer = load(f"smp:Unet@{folder}").segment([image])[0]
    assert (answer == expected).mean() > 0.999


def test_options_change_the_answer_and_the_fingerprint(tmp_path: Path) -> None:
    folder = saved(tmp_path / "folder")
    (tmp_path / "names.txt").write_text("background\ncat\ndog\nfox\n")
    plain = load(f"smp:Unet@{folder}")
    small = load(f"smp:Unet@{folder}?size=64&mean=0.5&std=0.25&labels={tmp_path / 'names.txt'}")
    assert small.labels.names == ("background", "cat", "dog", "fox")
    assert small.fingerprint != plain.fingerprint
    assert isinstance(small, torch_segmenter.TorchSegmenter)
    assert small.preparation == torch_segmenter.Preparation((64, 64), (0.5,) * 3, (0.25,) * 3)


def test_scores_are_resized_not_classes() -> None:
    """Two planes that cross halfway between two pixels: the edge is where interpolation says."""
    scores = np.float32([[[1, 0], [1, 0]], [[0, 1], [0, 1]]])
    assert torch_segmenter.class_map(scores, (4, 8)).tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]] * 4


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("smp:Unett@folder", "did you mean Unet"),
        ("smp:Unet", "smp:ARCHITECTURE@FOLDER"),
        ("smp:FPN@folder", "holds a Unet, not a FPN"),
        ("smp:Unet@nowhere", "no segmenter's configuration"),
        ("smp:Unet@folder?colour=3", "option"),
        ("smp:Unet@folder?labels=three.txt", "4 outputs"),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "folder")
    (tmp_path / "three.txt").write_text("a\nb\nc\n")
    with pytest.raises(UserError, match=sentence):
        load(name)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("{", "not JSON"),
        ("[1]", "how many classes"),
        ('{"classes": 9999}', "how many classes"),
        ("[" * 100_000, "not JSON"),
        (json.dumps({"_model_class": "Unet", **ARGUMENTS, "surprise": 1}), "does not fit"),
        (json.dumps({"_model_class": "Unet", **ARGUMENTS, "checkpoint_path": "x.pth"}), "checkpoint_path"),
        (json.dumps({"_model_class": "Unet", **ARGUMENTS, "encoder_name": "tu-hf-hub:a/b"}), "encoder_name"),
        (json.dumps({"_model_class": "Unet", **ARGUMENTS}), "not a checkpoint"),
    ],
)
def test_configurations_are_not_trusted(tmp_path: Path, config: str, sentence: str) -> None:
    folder = saved(tmp_path / "folder")
    (folder / "config.json").write_text(config)
    with pytest.raises(UserError, match=sentence):
        load(f"smp:Unet@{folder}")


def test_no_hub_is_asked_for_encoder_weights(tmp_path: Path) -> None:
    folder = saved(tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "encoder_weights": "imagenet"}))
    assert load(f"smp:Unet@{folder}").fingerprint


@pytest.mark.parametrize("name", local_dir.installed("segmenters"))
def test_carried_segmenters_do_what_their_card_says(name: str) -> None:
    segmenter = load(f"embedded:{name}")
    assert segmenter.labels.names == ("background", *CLASSES)
    folder = local_dir.ASSETS / "segmenters" / name
    facts = json.loads((folder / "config.json").read_text())["holdfast"]
    assert facts["sha256"] in (folder / "README.md").read_text()
    stated = facts["metrics"]["mean_iou_test_rho0"]
    assert stated >= 0.85
    assert (folder / "model.safetensors").stat().st_size <= 1_600_000
    # Seeds that the recipe's own held-out scenes do not use.
    drawn = [render(draw_scene(5_000_000 + index, split="test", label=CLASSES[index % 12])) for index in range(240)]
    maps = segmenter.segment([one.image for one in drawn])
    both, either = np.zeros(13), np.zeros(13)
    for index, (one, answer) in enumerate(zip(drawn, maps, strict=True)):
        truth = np.where(one.mask, index % 12 + 1, 0)
        for label in range(13):
            both[label] += ((truth == label) & (answer == label)).sum()
            either[label] += ((truth == label) | (answer == label)).sum()
    assert (both / either).mean() == pytest.approx(stated, abs=0.05)
