"""Encoders: every family by name, against the network itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from test_black_boxes import save_exported
from test_clip import save_hf_clip

import holdfast
from holdfast.core.errors import SampleError, UserError
from holdfast.models import load_classifier
from holdfast.models.encoders import features, load_encoder

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
PATCHES = {"image_size": 32, "patch_size": 8}


def by_module(photo: np.ndarray, encoder: Any, module: Any) -> np.ndarray:
    with torch.inference_mode():
        return np.asarray(module(encoder.prepare(photo)[None]))


def test_the_embedding_of_a_classifier_is_what_its_head_reads(photo: np.ndarray) -> None:
    for name in ("embedded:resnet_rho0", "embedded:vit_rho95", "packaged:mobilenet_v2"):
        encoder, classifier = load_encoder(f"features:{name}", device="cpu"), load_classifier(name, device="cpu")
        head = [layer for layer in classifier.module.modules() if isinstance(layer, torch.nn.Linear)][-1]
        embedding = encoder.predict([photo, photo[:, ::-1]])
        assert embedding.shape == (2, head.in_features)
        with torch.inference_mode():
            probabilities = head(torch.from_numpy(embedding)).softmax(1).numpy()
        np.testing.assert_allclose(probabilities, classifier.predict([photo, photo[:, ::-1]]), atol=1e-5)
        assert encoder.fingerprint != classifier.fingerprint and encoder.name == f"features:{name}"


def test_timm_without_classes(photo: np.ndarray) -> None:
    encoder = load_encoder("features:timm:resnet18?pretrained=false&seed=3&name=mine", device="cpu")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        module = timm.create_model("resnet18", pretrained=False, num_classes=0).eval()
    np.testing.assert_allclose(encoder.predict([photo]), by_module(photo, encoder, module), atol=1e-4)
    assert encoder.name == "mine"


def test_dino_and_siglip_of_transformers(photo: np.ndarray, tmp_path: Path) -> None:
    import transformers

    torch.manual_seed(0)
    dino = transformers.Dinov2Model(transformers.Dinov2Config(**SMALL, **PATCHES)).eval()
    dino.save_pretrained(tmp_path / "dino")
    size = {"height": 32, "width": 32}
    transformers.BitImageProcessor(size={"shortest_edge": 32}, crop_size=size).save_pretrained(tmp_path / "dino")
    encoder = load_encoder(f"features:hf:{tmp_path / 'dino'}", device="cpu")
    expected = by_module(photo, encoder, lambda batch: dino(pixel_values=batch).pooler_output)
    np.testing.assert_allclose(encoder.predict([photo]), expected, atol=1e-4)

    config = transformers.SiglipConfig(text_config={**SMALL, "vocab_size": 30}, vision_config={**SMALL, **PATCHES})
    siglip = transformers.SiglipModel(config).eval()
    siglip.save_pretrained(tmp_path / "siglip")
    transformers.SiglipImageProcessor(size=size).save_pretrained(tmp_path / "siglip")
    encoder = load_encoder(f"features:hf:{tmp_path / 'siglip'}", device="cpu")
    expected = by_module(photo, encoder, lambda batch: siglip.vision_model(pixel_values=batch).pooler_output)
    np.testing.assert_allclose(encoder.predict([photo]), expected, atol=1e-4)

    clip = load_encoder(f"features:hf:{save_hf_clip(tmp_path / 'clip')}", device="cpu")
    assert clip.predict([photo]).shape == (1, 8)  # the space that images share with texts


def test_onnx_files_networks_and_callables_return_the_embedding_themselves(photo: np.ndarray, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    save_exported(module, tmp_path / "net.onnx")
    name = f"features:onnx:{tmp_path / 'net.onnx'}?mean=0&std=1"
    encoder = load_encoder(name, device="cpu")
    pixels = torch.from_numpy(encoder.prepare(photo))[None]
    with torch.inference_mode():
        np.testing.assert_allclose(encoder.predict([photo]), module(pixels).numpy(), atol=1e-4)

    def colour(images: list[np.ndarray]) -> list[np.ndarray]:
        return [image.mean((0, 1)) for image in images]

    live = load_encoder(features(colour), device="cpu")
    np.testing.assert_allclose(live.predict([photo]), [photo.mean((0, 1))], rtol=1e-5)
    network = features(module, "net", transform=torchvision.transforms.ToTensor())
    assert load_encoder(network, device="cpu").predict([photo]).shape == (1, 5)


def test_mistakes_are_sentences(photo: np.ndarray) -> None:
    with pytest.raises(UserError, match="expected features: before a model's name"):
        load_encoder("features:resnet50")
    with pytest.raises(UserError, match="returns embeddings, not classes; use it with holdfast eval alone"):
        load_classifier("features:timm:resnet18")
    with pytest.raises(UserError, match="takes a network or a callable on images, not int"):
        features(3)
    flat = load_encoder(features(lambda images: np.zeros(len(images)), "flat"))
    with pytest.raises(SampleError, match=r"expected an array \(1, width\), got shape \(1,\)"):
        flat.predict([photo])
    with pytest.raises(UserError, match="return embeddings and embedded:vit_rho95 do not"):
        holdfast.evaluate("diorama:test?n=4", ["features:embedded:vit_rho95", "embedded:vit_rho95"], quiet=True)
    with pytest.raises(
        UserError, match=r"scenarios= grey: encoders need the same backgrounds.*shared_background\?count"
    ):
        holdfast.evaluate("diorama:test?n=4", ["features:embedded:vit_rho95"], scenarios="grey", quiet=True)
    with pytest.raises(UserError, match="count is a whole number from 1 to 100, not 0"):
        holdfast.parse_conditions("shared_background?count=0")


def test_backgrounds_that_the_data_does_not_have_are_rows_with_a_reason(tmp_path: Path) -> None:
    run = holdfast.evaluate(
        "diorama:test?n=4", "features:embedded:vit_rho95", scenarios="shared_background?count=5", out=tmp_path,
        quiet=True,
    )  # fmt: skip
    failed = run.rows(["status", "error"]).to_pandas().query("status == 'error'")
    assert len(failed) == 4 and "there is no background 5, the data has 4 images" in failed["error"].iloc[0]
    row = run.embedding().iloc[0]
    assert (row["objects"], row["backgrounds"]) == (4, 4)
