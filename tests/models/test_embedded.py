"""``embedded:``: tiny models made here, and whatever is in assets/."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.core.networks import packed, unpacked
from holdfast.diorama import CLASSES, draw_scene, render
from holdfast.diorama.vocabulary import KEYS
from holdfast.models import available, load_classifier, local_dir
from holdfast.testing.classifier import check_classifier

PREPARED = {
    "input_size": [3, 64, 64],
    "interpolation": "bilinear",
    "crop_pct": 1.0,
    "crop_mode": "squash",
    "mean": [0.5, 0.5, 0.5],
    "std": [0.25, 0.25, 0.25],
    "num_classes": 3,
    "first_conv": "conv1",
    "classifier": "fc",
}
SCENES = 240


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of assets with one tiny classifier of three classes, ``small``."""
    from safetensors.torch import save

    arguments = {"channels": [8, 8, 16, 16], "layers": [1, 1, 1, 1], "stem_width": 8}
    config = {"architecture": "resnet18", "num_classes": 3, "model_args": arguments, "label_names": ["a", "b", "c"]}
    config["pretrained_cfg"] = PREPARED
    torch.manual_seed(0)
    state = {key: value.half() if value.is_floating_point() else value for key, value in _module(config).items()}
    folder = tmp_path / "assets" / "classifiers" / "small"
    folder.mkdir(parents=True)
    weights = save(state)
    facts = {"sha256": hashlib.sha256(weights).hexdigest(), "wnids": ["n1", "n2", "n3"]}
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text(json.dumps({**config, "holdfast": facts}))
    monkeypatch.setattr(local_dir, "ASSETS", tmp_path / "assets")
    return tmp_path / "assets"


def _module(config: dict) -> dict[str, torch.Tensor]:
    return local_dir.build(config).state_dict()


def test_contract(assets: Path) -> None:
    check_classifier("embedded:small")
    classifier = load_classifier("embedded:small", device="cpu")
    assert classifier.name == "embedded:small"
    assert classifier.labels.names == ("a", "b", "c")
    assert classifier.labels.wnids == ("n1", "n2", "n3")
    assert available("embedded") == ["embedded:small"]


def test_timm_reads_the_same_folder(assets: Path, photo: np.ndarray) -> None:
    """An independent reader: timm's own loader for local folders, and the resize by hand."""
    import timm
    from PIL import Image

    theirs = timm.create_model(f"local-dir:{assets / 'classifiers' / 'small'}", pretrained=True).eval()
    small = np.asarray(Image.fromarray(photo).resize((64, 64), Image.Resampling.BILINEAR), np.float32) / 255
    batch = torch.from_numpy((small - 0.5) / 0.25).permute(2, 0, 1)[None].float()
    with torch.inference_mode():
        expected = theirs(batch).softmax(1).numpy()
    answer = load_classifier("embedded:small", device="cpu").predict([photo])
    np.testing.assert_allclose(answer, expected, atol=2e-5)


def test_other_weights_are_refused(assets: Path) -> None:
    file = assets / "classifiers" / "small" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match="not those of its card"):
        load_classifier("embedded:small")


@pytest.mark.parametrize("name", ["smal", "../classifiers/small", "small@best", ""])
def test_only_listed_names(assets: Path, name: str) -> None:
    with pytest.raises(UserError, match="no embedded model"):
        load_classifier(f"embedded:{name}")


def test_no_options(assets: Path) -> None:
    with pytest.raises(UserError, match="size"):
        load_classifier("embedded:small?size=32")


def facts(kind: str, name: str) -> dict:
    folder = local_dir.ASSETS / kind / name
    config = json.loads((folder / "config.json").read_text())
    assert (folder / "README.md").read_text().count(config["holdfast"]["sha256"]) == 1, "the card states the hash"
    return config["holdfast"]


@functools.cache
def held_out(rho: float) -> list[np.ndarray]:
    """Scenes of the classes in turn, with seeds that the recipe's own held-out scenes do not use."""
    pairs = [(CLASSES[index % len(CLASSES)], 5_000_000 + index) for index in range(SCENES)]
    return [render(draw_scene(seed, split="test", context=rho, label=label)).image for label, seed in pairs]


@pytest.mark.parametrize("name", local_dir.installed("classifiers128"))
def test_classifiers_of_128_px(name: str) -> None:
    told = facts("classifiers128", name)
    classifier = load_classifier(f"embedded:{name}", device="cpu")
    assert classifier.labels.names == CLASSES
    assert told["parameters"] == sum(parameter.numel() for parameter in classifier.module.parameters())  # type: ignore[attr-defined]
    images = [
        render(draw_scene(5_000_000 + index, split="test", context=told["rho"], label=CLASSES[index % 12]), 128).image
        for index in range(48)
    ]
    right = np.mean(classifier.predict(images).argmax(1) == np.arange(48) % 12)
    stated = told["metrics"][f"accuracy_test_rho{round(100 * told['rho'])}"]
    assert right == pytest.approx(stated, abs=4 * max(0.03, np.sqrt(stated * (1 - stated) / 48)))


def test_packed_weights_come_back_within_half_a_step() -> None:
    weights = {"kernel": torch.randn(6, 4, 3, 3), "bias": torch.randn(6), "count": torch.tensor(7)}
    small = packed(weights)
    assert small["kernel"].dtype == torch.int8
    again = unpacked(small)
    assert set(again) == set(weights) and again["count"] == 7
    step = weights["kernel"].flatten(1).abs().amax(1) / 127
    assert ((again["kernel"] - weights["kernel"]).flatten(1).abs() <= 0.51 * step[:, None]).all()


@pytest.mark.parametrize("name", local_dir.installed())
class TestCarried:
    """The models that are really there."""

    def test_contract(self, name: str) -> None:
        check_classifier(f"embedded:{name}")
        labels = load_classifier(f"embedded:{name}", device="cpu").labels
        assert labels.names == CLASSES
        assert labels.wnids == tuple(KEYS[label].wnids[0] for label in CLASSES)

    def test_card(self, name: str) -> None:
        told = facts("classifiers", name)
        asset = local_dir.read_asset("classifiers", Name("embedded", name))
        module = local_dir.build(asset.config)
        assert told["parameters"] == sum(parameter.numel() for parameter in module.parameters())
        assert 300_000 <= told["parameters"] <= 1_500_000
        assert {tensor.dtype for tensor in asset.weights.values() if tensor.is_floating_point()} == {torch.float16}
        assert told["metrics"][f"accuracy_test_rho{round(100 * told['rho'])}"] >= 0.95

    def test_accuracy_is_what_the_card_says(self, name: str) -> None:
        told = facts("classifiers", name)
        classifier = load_classifier(f"embedded:{name}", device="cpu")
        for rho in {told["rho"], 0.0}:
            answers = classifier.predict(held_out(rho)).argmax(1)
            right = np.mean(answers == np.arange(SCENES) % len(CLASSES))
            stated = told["metrics"][f"accuracy_test_rho{round(100 * rho)}"]
            # Four standard errors of a share of 240.
            tolerance = 4 * max(0.01, np.sqrt(stated * (1 - stated) / SCENES))
            assert right == pytest.approx(stated, abs=tolerance), f"ρ = {rho}"
