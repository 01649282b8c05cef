"""openvino:, litert: and the sidecar; what is refused, and why."""

from __future__ import annotations

import csv
from pathlib import Path

import cv2
import numpy as np
import pytest
from test_black_boxes import onnx_by_hand, softmax
from test_model_contract import save_onnx
from tiny_tflite import WEIGHTS, save_tflite

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.models import load_classifier
from holdfast.models.runtimes.exported import read_sidecar, sidecar

SHARED = Path(__file__).parents[2].parent / "shared"
MOBILENET = SHARED / "weights" / "mobilenet_v2_int8" / "mobilenet_v2_1.0_224_quant.tflite"
STATED = "size=8&mean=0.5&std=0.25"


def test_openvino_answers_as_onnxruntime(photo: np.ndarray, tmp_path: Path) -> None:
    file = save_onnx(tmp_path / "net.onnx")
    first, second = (load_classifier(f"{scheme}:{file}", device="cpu") for scheme in ("onnx", "openvino"))
    np.testing.assert_allclose(second.predict([photo, photo[::-1]]), first.predict([photo, photo[::-1]]), atol=1e-5)
    assert first.fingerprint != second.fingerprint


def test_a_model_that_onnxruntime_quantised_answers_nearly_the_same(photo: np.ndarray, tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    file, small = save_onnx(tmp_path / "net.onnx"), tmp_path / "net.int8.onnx"
    quantize_dynamic(file, small, weight_type=QuantType.QInt8)
    first, second = (load_classifier(f"onnx:{each}", device="cpu").predict([photo]) for each in (file, small))
    assert 0 < np.abs(first - second).max() < 0.05
    assert first.argmax() == second.argmax()


@pytest.mark.parametrize(("dtype", "step", "zero"), [("float32", 0.0, 0), ("int8", 1 / 32, -3)])
def test_litert_takes_floats_and_quantised_numbers(
    dtype: str, step: float, zero: int, photo: np.ndarray, tmp_path: Path
) -> None:
    file = save_tflite(tmp_path / "net.tflite", dtype, step=step, zero=zero)
    pixels = onnx_by_hand(photo, 8, mean=0.5, std=0.25)
    if dtype == "int8":
        pixels = (np.clip(np.rint(pixels / step) + zero, -128, 127) - zero) * step
    answer = load_classifier(f"litert:{file}?mean=0.5&std=0.25", device="cpu").predict([photo, photo])
    np.testing.assert_allclose(answer, [softmax(WEIGHTS @ pixels.reshape(-1))] * 2, atol=1e-4)


@pytest.mark.parametrize("scheme", ["onnx", "litert"])
def test_a_mean_for_a_file_that_takes_bytes_is_refused(scheme: str, tmp_path: Path) -> None:
    if scheme == "onnx":
        file = save_onnx(tmp_path / "net.onnx", kind=2)
    else:
        file = save_tflite(tmp_path / "net.tflite", "uint8", step=1 / 255, zero=0)
    for stated in ("mean=0.5&std=0.25", "range=255&mean=128&std=127", "std=0.5"):
        with pytest.raises(UserError, match="takes bytes, which are plain pixels, but the name states"):
            load_classifier(f"{scheme}:{file}?{stated}", device="cpu")
    load_classifier(f"{scheme}:{file}?mean=0&std=1", device="cpu")


@pytest.mark.slow
@pytest.mark.skipif(not MOBILENET.is_file(), reason="needs the quantised MobileNetV2 and pets12 in ../shared")
def test_a_real_quantised_model_names_the_pets() -> None:
    model = load_classifier(f"litert:{MOBILENET}?labels=imagenet", device="cpu")
    assert len(model.labels) == 1001
    photos = SHARED / "photos" / "pets12"
    right = 0
    for row in csv.DictReader((photos / "imagenet_index.csv").open()):
        images = [cv2.imread(str(file))[..., ::-1] for file in sorted((photos / "images" / row["class"]).iterdir())]
        right += int((model.predict(images).argmax(1) == int(row["imagenet_index"]) + 1).sum())
    assert right == 104  # as its card says


def test_a_declared_file_needs_no_options(photo: np.ndarray, labels_file: Path, tmp_path: Path) -> None:
    file = save_onnx(tmp_path / "net.onnx")
    stated = f"onnx:{file}?{STATED}&crop=1&crop_mode=squash&outputs=logits&labels={labels_file}"
    before = load_classifier(stated, device="cpu")
    assert sidecar(stated) == tmp_path / "net.onnx.holdfast.toml"
    after = load_classifier(f"onnx:{file}", device="cpu")
    assert after.fingerprint == before.fingerprint
    assert after.labels.names == ("cat", "dog", "fox", "red panda")
    np.testing.assert_array_equal(after.predict([photo]), before.predict([photo]))
    np.testing.assert_allclose(
        load_classifier(f"openvino:{file}", device="cpu").predict([photo]), after.predict([photo]), atol=1e-5
    )
    assert load_classifier(f"onnx:{file}?mean=0", device="cpu").fingerprint != after.fingerprint  # the name wins


def test_an_exported_model_of_blue_first(photo: np.ndarray, tmp_path: Path) -> None:
    file = save_onnx(tmp_path / "net.onnx")
    blue = f"onnx:{file}?channels=bgr&range=255&mean=104/117/123&std=1"
    usual = f"onnx:{file}?range=255&mean=104/117/123&std=1"
    before = load_classifier(blue, device="cpu")
    expected = load_classifier(usual, device="cpu").predict([np.ascontiguousarray(photo[..., ::-1])])
    np.testing.assert_allclose(before.predict([photo]), expected, atol=1e-5)
    sidecar(blue)
    after = load_classifier(f"onnx:{file}", device="cpu")
    assert after.fingerprint == before.fingerprint
    np.testing.assert_array_equal(after.predict([photo]), before.predict([photo]))
    # What the name says neither turns nor scales what the file next to it has stated.
    red = load_classifier(f"onnx:{file}?channels=rgb", device="cpu").preprocessing.description
    assert red["mean"] == after.preprocessing.description["mean"]
    own = load_classifier(f"onnx:{file}?mean=0.5&std=0.5", device="cpu").preprocessing.description
    assert own["mean"] == own["std"] == (0.5,) * 3


def test_a_sidecar_is_copied_from_the_model_that_was_exported(tmp_path: Path) -> None:
    import torch

    network = load_classifier("embedded:resnet_rho0", device="cpu")
    side = network.preprocessing.size[0]
    file = tmp_path / "resnet.onnx"
    torch.onnx.export(network.module, (torch.zeros(1, 3, side, side),), dynamo=True, verbose=False).save(str(file))
    sidecar(f"onnx:{file}", "embedded:resnet_rho0")
    exported = load_classifier(f"onnx:{file}", device="cpu")
    assert canonical_json(exported.preprocessing.description) == canonical_json(network.preprocessing.description)
    assert exported.labels.names == network.labels.names
    image = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    np.testing.assert_allclose(exported.predict([image]), network.predict([image]), atol=1e-4)


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("size = [16, 16]", 1, "takes images of 8/8, so size=16/16 of net.onnx.holdfast.toml"),
        ('labels = ["a", "b"]', 1, "has 4 outputs, but net.onnx.holdfast.toml names 2"),
        ("mean = [0.5, 0.5, 0.5]", 2, "takes bytes, which are plain pixels, but net.onnx.holdfast.toml"),
        ("colour = 1", 1, "cannot be used: .*colour"),
        ("size = ", 1, "cannot be used"),
        ('outputs = "logit"', 1, "did you mean logits"),
        ('crop_mode = "middle"', 1, "cannot be used: .*crop_mode"),
        ("labels = 4", 1, "labels must be a list of names"),
    ],
)
def test_a_sidecar_that_contradicts_the_file_is_a_sentence(text: str, kind: int, sentence: str, tmp_path: Path) -> None:
    file = save_onnx(tmp_path / "net.onnx", kind=kind)
    (tmp_path / "net.onnx.holdfast.toml").write_text(text)
    with pytest.raises(UserError, match=sentence):
        load_classifier(f"onnx:{file}", device="cpu")
    assert read_sidecar(tmp_path / "other.onnx") == ({}, None)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("torchscript:{file}", "torch.jit.load runs it"),
        ("torch-export:{file}", "torch.export.load runs it"),
        ("aotinductor:{file}", "aoti_load_package runs it"),
        ("tensorrt:{file}", "NVIDIA GPU|package tensorrt|not an engine"),
        ("litert:{file}", "not a model with one input that LiteRT can load"),
        ("openvino:{file}", "reads .xml, .onnx and .tflite files"),
        ("onnx:{onnx}?provider=warp", "no provider 'warp'; it has .*cpu"),
        ("openvino:{onnx}?provider=warp", "no device 'warp' on this machine; it has .*cpu"),
    ],
)
def test_what_cannot_be_loaded_is_a_sentence(name: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"no model" * 9)
    text = name.format(file=tmp_path / "model.pt", onnx=save_onnx(tmp_path / "net.onnx"))
    with pytest.raises(UserError, match=sentence):
        load_classifier(text, device="cpu")
