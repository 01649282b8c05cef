"""Drops per family of scenarios, and groups of models known from their names or given."""

from __future__ import annotations

import numpy as np
import pytest
from made_grid import clustered, counts_of
from scipy import stats

from holdfast.core.errors import UserError
from holdfast.stats.effects.families import EVERY, architecture, family_drops, group_models

FAMILIES = {"c1": "blur", "c2": "blur", "c3": "colour"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("timm:resnet50.a1_in1k", "CNN"),
        ("embedded:densenet_rho95", "CNN"),
        ("torchvision:vgg16", "CNN"),
        ("timm:convnext_tiny", "CNN"),
        ("clip:RN50@openai", "CNN"),
        ("smp:deeplabv3plus@resnet50", "CNN"),
        ("timm:mobilenetv3_large_100", "CNN"),
        ("timm:inception_v3", "CNN"),
        ("timm:vit_base_patch16_224", "transformer"),
        ("timm:swin_tiny_patch4_window7_224", "transformer"),
        ("clip:ViT-B-32@openai", "transformer"),
        ("hf:upernet@swin", "transformer"),
        ("embedded:vit_rho95", "transformer"),
        ("timm:deit_small_patch16_224", "transformer"),
        ("python:mine.py:Net", ""),
    ],
)
def test_architectures_are_known_from_names(name: str, kind: str) -> None:
    assert architecture(name) == kind


def test_a_familys_drop_is_the_mean_over_its_scenarios() -> None:
    rng = np.random.default_rng(1)
    right = clustered(np.array([[2.0, 1.0, 0.0, 1.5], [1.0, 1.0, 1.0, -1.0]]), 400, 1.0, rng)
    lost = family_drops(counts_of(right), FAMILIES, average="micro", resamples=400)
    rate = right.mean(axis=0)
    row = lost.models.set_index(["model", "family"])
    assert row.loc[("m00", "blur"), "drop"] == pytest.approx(rate[0, 0] - rate[0, 1:3].mean())
    both = [rate[0, 0] - rate[0, 1:3].mean(), rate[0, 0] - rate[0, 3]]
    assert row.loc[("m00", EVERY), "drop"] == pytest.approx(np.mean(both))
    assert row.loc[("m01", "colour"), "p_holm"] < 0.01 < row.loc[("m01", "blur"), "p_holm"]
    assert lost.groups.empty and lost.unknown == ["m00", "m01"]


def test_groups_have_an_interval_for_other_photos_and_one_for_other_models() -> None:
    rng = np.random.default_rng(2)
    logits = np.array([[2.0, 1.6, 1.6, 1.6]] * 3 + [[2.0, 0.2, 0.0, 0.1], [2.0, 0.0, 0.3, 0.2]])
    lost = family_drops(
        counts_of(clustered(logits, 300, 1.0, rng), classes=3), FAMILIES,
        groups={"steady": ["m0[012]"], "shaken": ["m03", "m04"]}, resamples=400,
    )  # fmt: skip
    apart = lost.contrasts.set_index("family").loc[EVERY]
    assert (apart["first"], apart["second"]) == ("steady", "shaken") and apart["high"] < 0 and apart["p"] < 0.01
    drops = lost.models[lost.models["family"] == EVERY].set_index("model")["drop"]
    theirs = stats.ttest_ind(drops[["m00", "m01", "m02"]], drops[["m03", "m04"]], equal_var=False).confidence_interval()
    assert (apart["models_low"], apart["models_high"]) == pytest.approx((theirs.low, theirs.high))
    group = lost.groups.set_index(["group", "family"]).loc[("steady", EVERY)]
    assert group["models"] == 3 and group["low"] < group["drop"] < group["high"]


def test_what_cannot_be_grouped_is_said() -> None:
    with pytest.raises(UserError, match="No model is called"):
        group_models(["a", "b"], {"x": ["c*"]})
    with pytest.raises(UserError, match="in two groups"):
        group_models(["a", "b"], {"x": ["a"], "y": ["*"]})
    counts = counts_of(np.ones((4, 1, 1)))
    assert "Originals" in family_drops(counts, FAMILIES).reason
