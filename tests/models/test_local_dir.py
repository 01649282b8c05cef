"""Classifiers in a folder as timm saves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch

from holdfast.core.errors import UserError
from holdfast.models import load_classifier


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(3)
    model = timm.create_model("test_resnet", num_classes=3)
    timm.models.save_for_hf(
        model, str(tmp_path / "model"), model_config={"label_names": ["a", "b", "c"]}, safe_serialization=True
    )
    return tmp_path / "model"


def changed(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def test_it_answers_as_timm_does(saved: Path) -> None:
    classifier = load_classifier(f"local-dir:{saved}", device="cpu")
    assert (classifier.name, classifier.labels.names) == ("local-dir:model", ("a", "b", "c"))
    images = [np.random.default_rng(0).integers(0, 256, (160, 160, 3), np.uint8)]
    reference = timm.create_model(f"local-dir:{saved}", pretrained=True).eval()
    prepare = timm.data.create_transform(**timm.data.resolve_model_data_config(reference), is_training=False)
    from PIL import Image

    with torch.inference_mode():
        expected = reference(prepare(Image.fromarray(images[0]))[None]).softmax(1).numpy()
    assert classifier.predict(images) == pytest.approx(expected, abs=1e-5)


def test_a_folder_with_an_at_sign_is_one(saved: Path) -> None:
    moved = saved.rename(saved.with_name("epoch@7"))
    assert load_classifier(f"local-dir:{moved}?name=seventh", device="cpu").name == "seventh"


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ({"architecture": "test_resnt"}, "did you mean test_resnet"),
        ({"architecture": "hf-hub:someone/else"}, "not an architecture"),
        ({"pretrained_cfg": {"input_size": [3, 1_000_000, 1_000_000]}}, "at most 4096"),
        ({"model_args": {"checkpoint_path": "x.pth"}}, "checkpoint_path"),
        ({"model_args": {"no_such_argument": 1}}, "cannot build"),
        ({"model_args": {"stem_width": 8}}, "is not a checkpoint"),
        ({"num_classes": 5, "label_names": None}, "is not a checkpoint"),
        ({"label_names": ["a"]}, "names 1"),
        ({"num_classes": "many"}, "not a configuration"),
        ({"pretrained_cfg": 3}, "not a configuration"),
    ],
)
def test_configurations_that_do_not_fit(saved: Path, values: dict[str, Any], answer: str) -> None:
    changed(saved, **values)
    with pytest.raises(UserError, match=answer):
        load_classifier(f"local-dir:{saved}", device="cpu")


def test_files_that_are_missing_or_broken(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "other")
    with pytest.raises(UserError, match="no file of weights"):
        load_classifier(f"local-dir:{saved}", device="cpu")
    for broken in ("{", "[" * 100_000):
        (saved / "config.json").write_text(broken)
        with pytest.raises(UserError, match="not a configuration"):
            load_classifier(f"local-dir:{saved}", device="cpu")
    with pytest.raises(UserError, match="there is no configuration"):
        load_classifier(f"local-dir:{saved / 'nowhere'}", device="cpu")
