"""Parity of exported models on images: float32, int8, and three runtimes; the figures of docs/results.md.

``python benchmarks/parity_pets.py PETS12 MOBILENET.tflite OUT`` writes the exported files and a run per pair.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import holdfast
from holdfast.models.runtimes.exported import sidecar

ORIGINAL = "packaged:efficientnet_lite0"
EVERY, MOST = 4, 64
"""Images that calibrate the quantised model: every fourth. They are among the tested ones, which favours it."""


class Photos(CalibrationDataReader):
    """Hands the images over as the network sees them."""

    def __init__(self, model: str, entry: str, photos: Path) -> None:
        classifier = holdfast.load_classifier(model, device="cpu")
        samples = holdfast.load_collection(str(photos)).samples[::EVERY][:MOST]
        self.left: Iterator[Any] = ({entry: classifier.prepare(sample.image.load())[None]} for sample in samples)

    def get_next(self) -> Any:
        """Return the next input, None behind the last one."""
        return next(self.left, None)


def export(file: Path) -> None:
    """Write the original as ONNX, and its sidecar."""
    network = holdfast.load_classifier(ORIGINAL, device="cpu")
    example = torch.zeros(2, 3, *network.preprocessing.size)
    shapes = ({0: torch.export.Dim("n")},)
    torch.onnx.export(network.module, (example,), dynamic_shapes=shapes, dynamo=True, external_data=False).save(
        str(file)
    )
    sidecar(f"onnx:{file}", ORIGINAL)


def quantise(file: Path, small: Path, photos: Path) -> None:
    """Write a file in int8: weights per channel, activations by their range on some images."""
    model, plain = onnx.load(file), small.with_suffix(".plain")
    del model.graph.value_info[:]  # shapes that the quantiser would find contradicting
    onnx.save(model, plain)
    quant_pre_process(str(plain), str(plain), skip_symbolic_shape=True)
    reader = Photos(f"onnx:{file}", model.graph.input[0].name, photos)
    kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
    quantize_static(str(plain), str(small), reader, quant_format=QuantFormat.QDQ, **kinds)
    shutil.copy(f"{file}.holdfast.toml", f"{small}.holdfast.toml")


def main(pets: Path, tflite: Path, out: Path) -> None:
    """Make the files, and print the sentence of every pair."""
    out.mkdir(parents=True, exist_ok=True)
    file, small, lite = out / "lite0.onnx", out / "lite0.int8.onnx", out / "mobilenet.tflite"
    export(file)
    quantise(file, small, pets / "images")
    shutil.copy(tflite, lite)
    sidecar(f"litert:{lite}?labels=imagenet")
    pairs = {
        "int8": (ORIGINAL, f"onnx:{small}"), "float32": (ORIGINAL, f"onnx:{file}"),
        "openvino": (ORIGINAL, f"openvino:{file}"), "litert": (f"litert:{lite}", f"openvino:{lite}"),
    }  # fmt: skip
    options = {"masks": pets / "masks", "labels": pets / "imagenet_index.csv", "scenarios": "static", "margin": 0.05}
    for name, (old, new) in pairs.items():
        answer = holdfast.parity(old, new, pets / "images", out=out / name, **options)
        print(name, answer.result.sentence, answer.result.conditions.to_string(), sep="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
