"""Who is related to whom, by names; cards say what is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.oracle import kinship
from holdfast.oracle.lineage import DRAWN, IMAGENET, lineages


@pytest.mark.parametrize(
    ("model", "family", "data"),
    [
        ("packaged:efficientnet_lite0", "efficientnet_lite", {IMAGENET}),
        ("timm:tf_efficientnet_lite2", "efficientnet_lite", {IMAGENET}),
        ("timm:vit_base_patch16_224.augreg_in21k_ft_in1k", "vit", {IMAGENET, "ImageNet-22k"}),
        ("torchvision:resnet50@IMAGENET1K_V2", "resnet", {IMAGENET}),
        ("clip:ViT-B-32@openai", "vit", {"OpenAI's 400 million image–text pairs"}),
        ("clip:RN50@openai", "resnet", {"OpenAI's 400 million image–text pairs"}),
        ("clip:ViT-H-14@laion2b_s32b_b79k", "vit", {"LAION image–text pairs"}),
        ("embedded:vit_rho95", "vit", {DRAWN}),
        ("clip:embedded", "convnext", {DRAWN}),
        ("torch:resnet18@best_imagenet1k.pth", "resnet", set()),
        ("python:mine:model", "", set()),
    ],
)
def test_what_a_name_says(model: str, family: str, data: set[str]) -> None:
    (one,) = lineages(model)
    assert (one.family, one.data) == (family, data)


def test_the_pet_study_of_the_issue() -> None:
    stranger = kinship("packaged:mobilenet_v2", "classifier:packaged:efficientnet_lite1", "tiny:taef2")
    assert len(stranger) == 1 and "trained on ImageNet-1k" in stranger[0]
    cousin = kinship("packaged:efficientnet_lite0", "classifier:packaged:efficientnet_lite2?min_score=0.2")
    assert len(cousin) == 2 and "one family, efficientnet_lite" in cousin[0]


def test_strangers_are_not_warned_of() -> None:
    assert kinship("timm:resnet50.a1_in1k", "clip:ViT-B-32@openai", "vqgan:folder") == []


def test_the_same_weights_are_one_warning() -> None:
    warnings = kinship("packaged:mobilenet_v2?name=mine", "classifier:packaged:mobilenet_v2?space=all")
    assert len(warnings) == 1 and "judged by itself" in warnings[0]


def test_every_member_of_an_ensemble_counts() -> None:
    warnings = kinship("embedded:resnet_rho95", "ensemble:clip:embedded+classifier:embedded:resnet_rho0?rule=unanimous")
    assert [one.count(DRAWN) for one in warnings] == [1, 0, 1]
    assert "clip:embedded" in warnings[0] and "one family, resnet" in warnings[1]


def test_a_model_that_was_trained_with_the_generator(tmp_path: Path) -> None:
    config = {"architecture": "resnet18", "holdfast": {"trained_with": ["embedded:vqgan"]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    warnings = kinship(f"local-dir:{tmp_path}", "clip:ViT-B-32@openai", "embedded:vqgan?quantiser=none")
    assert len(warnings) == 1 and "images of embedded:vqgan" in warnings[0]
    assert lineages(f"local-dir:{tmp_path}")[0].family == "resnet"
    assert kinship(f"local-dir:{tmp_path}", "clip:ViT-B-32@openai", "embedded:kl") == []
    assert kinship("timm:resnet50", "clip:RN101@openai", "vqgan:f", trained_with=["vqgan:f"])[-1].endswith(
        "test images."
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"holdfast": []}'])
def test_a_broken_card_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert lineages(f"local-dir:{tmp_path}")[0].trained_with == ()
