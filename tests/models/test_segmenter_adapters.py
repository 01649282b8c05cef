"""``torchvision:`` and ``hf:`` segmenters from folders: the library's own answers, names of classes, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from holdfast.core.errors import UserError
from holdfast.core.protocols import Segmenter
from holdfast.models import load_segmenter
from holdfast.models.segmenters import torchvision_segmenters

NAMES = ("background", "cat", "dog")
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def picture(size: int = 64) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (size, size, 3), np.uint8)


def batch_of(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy((np.float32(image) / 255 - MEAN) / STD).permute(2, 0, 1)[None]


def segformer(folder: Path) -> Path:
    torch.manual_seed(2)
    config = transformers.SegformerConfig(
        num_labels=3, hidden_sizes=[8, 8, 16, 16], decoder_hidden_size=8, depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 1, 1], id2label=dict(enumerate(NAMES)),
    )  # fmt: skip
    transformers.SegformerForSemanticSegmentation(config).save_pretrained(folder)
    transformers.SegformerImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


def test_a_folder_of_transformers_answers_as_the_library_does(tmp_path: Path) -> None:
    folder = segformer(tmp_path / "with@sign")
    segmenter = load_segmenter(f"hf:{folder}", device="cpu")
    assert isinstance(segmenter, Segmenter) and segmenter.labels.names == NAMES
    assert load_segmenter(f"hf:{folder}?name=mine", device="cpu").name == "mine"
    theirs = transformers.SegformerForSemanticSegmentation.from_pretrained(folder).eval()
    with torch.inference_mode():
        logits = theirs(pixel_values=batch_of(picture())).logits
        expected = torch.nn.functional.interpolate(logits, (64, 64), mode="bilinear")[0].argmax(0).numpy()
    assert len(np.unique(expected)) > 1
    assert (segmenter.segment([picture()])[0] == expected).mean() > 0.995


def lraspp(folder: Path, **changes: object) -> Path:
    torch.manual_seed(0)
    module = torchvision_segmenters.build("lraspp_mobilenet_v3_large", 3)
    folder.mkdir()
    save_file(module.state_dict(), folder / "model.safetensors")
    facts = {"label_names": list(NAMES), "input_size": [64, 64]}
    config = {**torchvision_segmenters.config_of("lraspp_mobilenet_v3_large", 3), "holdfast": facts, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_folder_of_torchvision_answers_as_the_library_does(tmp_path: Path) -> None:
    folder = lraspp(tmp_path / "trained")
    segmenter = load_segmenter(f"torchvision:lraspp_mobilenet_v3_large@{folder}", device="cpu")
    assert segmenter.labels.names == NAMES and segmenter.name == "torchvision:lraspp_mobilenet_v3_large@trained"
    torch.manual_seed(0)
    theirs = torchvision_segmenters.build("lraspp_mobilenet_v3_large", 3).eval()
    with torch.inference_mode():
        expected = theirs(batch_of(picture()))["out"][0].argmax(0).numpy()
    assert (segmenter.segment([picture()])[0] == expected).mean() > 0.995


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("torchvision:fcn_resnet50@trained", "holds a lraspp_mobilenet_v3_large"),
        ("torchvision:lraspp_mobilenet_v4@trained", "did you mean"),
        ("torchvision:lraspp_mobilenet_v3_large@nowhere/at/all", "no segmenter's configuration"),
        ("torchvision:lraspp_mobilenet_v3_large@COCO_V9", "set of weights"),
        ("hf:empty", "is not a model of transformers"),
        ("hf:greedy", "pretrained backbone"),
        ("hf:half", "no trained segmenter"),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    lraspp(tmp_path / "trained")
    (tmp_path / "empty").mkdir()
    half = segformer(tmp_path / "half")
    greedy = segformer(tmp_path / "greedy")
    config = json.loads((greedy / "config.json").read_text())
    (greedy / "config.json").write_text(json.dumps(config | {"use_pretrained_backbone": True}))
    weights = transformers.SegformerForSemanticSegmentation.from_pretrained(half).state_dict()
    save_file({key: one for key, one in weights.items() if "classifier" not in key}, half / "model.safetensors")
    with pytest.raises(UserError, match=sentence):
        load_segmenter(name, device="cpu")
