"""Every method against what can be worked out by hand, by brute force, or by another library."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.attribution import (
    ExplainedNetwork,
    gradcam,
    integrated_gradients,
    look,
    occlusion,
    of_classifier,
    of_segmenter,
    overlay,
    parse_methods,
    randomised,
    rank_correlation,
    shuffled,
    stages,
    structural_similarity,
)
from holdfast.attribution.layers import find_layer, grid_of
from holdfast.attribution.methods import make_baseline, signed
from holdfast.core.errors import UserError
from holdfast.core.names import parse_name
from holdfast.models import load_classifier
from holdfast.models.segmenters.smp import load_embedded
from holdfast.models.segmenters.torch_segmenter import prepared_image


def seeded(build):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return build().eval().requires_grad_(False)


def network_of(module: nn.Module) -> ExplainedNetwork:
    def score(batch: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return module(batch).gather(1, targets[:, None])[:, 0]

    return ExplainedNetwork("hand-made", score, module=module)


def pictures(count: int, side: int = 16) -> torch.Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def small_cnn() -> nn.Module:
    layers = [nn.Conv2d(3, 6, 3, padding=1, stride=2), nn.ReLU(inplace=True), nn.Conv2d(6, 5, 3, padding=1), nn.ReLU()]
    return seeded(lambda: nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 4)))


def test_integrated_gradients_of_a_linear_model_are_in_closed_form() -> None:
    module = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4)))
    batch, targets = pictures(3), torch.tensor([0, 2, 3])
    for kind in ("mean", "black", "blur"):
        found = signed(network_of(module), batch, [targets], steps=7, baseline=kind)
        weight = module[1].weight[targets].view(3, 3, 16, 16)
        expected = weight * (batch - make_baseline(batch, kind))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    positive = integrated_gradients(network_of(module), batch, [targets], steps=7, baseline="blur")
    torch.testing.assert_close(positive, expected.sum(1).clamp_min(0), atol=1e-5, rtol=1e-4)


def test_integrated_gradients_are_complete() -> None:
    network, batch, targets = network_of(small_cnn()), pictures(4), torch.tensor([0, 1, 2, 3])
    found = signed(network, batch, [targets], steps=128, baseline="mean")
    gained = network.score(batch, targets) - network.score(make_baseline(batch, "mean"), targets)
    torch.testing.assert_close(found.sum((1, 2, 3)), gained, atol=2e-3, rtol=0.02)


def test_gradcam_against_a_formula_and_captum() -> None:
    """After global average pooling and a linear layer the weights are those of the layer over the number of places."""
    module, batch, targets = small_cnn(), pictures(3), torch.tensor([1, 0, 3])
    network = network_of(module)
    assert find_layer(network, batch[:1], [targets[:1]]) == "3"
    features = module[:4](batch)  # 8 × 8 places
    weights = module[6].weight[targets] / 64
    coarse = torch.einsum("nc,nchw->nhw", weights, features).clamp_min(0)
    expected = nn.functional.interpolate(coarse[:, None], (16, 16), mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(gradcam(network, batch, [targets]), expected, atol=1e-6, rtol=1e-4)

    from captum.attr import LayerGradCam

    theirs = LayerGradCam(network.score, module[3]).attribute(
        batch.clone().requires_grad_(), additional_forward_args=(targets,), relu_attributions=True
    )
    torch.testing.assert_close(coarse, theirs[:, 0].detach(), atol=1e-6, rtol=1e-4)
    earlier = gradcam(network, batch, [targets], layer="0")
    assert earlier.shape == expected.shape and not torch.allclose(earlier, expected)


def test_occlusion_against_brute_force() -> None:
    network, batch, targets = network_of(small_cnn()), pictures(2), torch.tensor([1, 2])
    found = occlusion(network, batch, [targets], window=5, stride=3, baseline="grey")
    starts = [0, 3, 6, 9, 12]  # the last is cut off at the edge
    whole = network.score(batch, targets)
    lost, covered = torch.zeros(2, 16, 16), torch.zeros(16, 16)
    for top in starts:
        for left in starts:
            copy = batch.clone()
            copy[:, :, top : top + 5, left : left + 5] = 0.5
            change = (whole - network.score(copy, targets)).detach()
            lost[:, top : top + 5, left : left + 5] += change[:, None, None]
            covered[top : top + 5, left : left + 5] += 1
    torch.testing.assert_close(found, (lost / covered).clamp_min(0), atol=1e-5, rtol=1e-4)


class Tokens(nn.Module):
    """Patches, a class token before them, one attention layer; answers from the class token alone."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 2, 8))
        self.norm1 = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm2 = nn.LayerNorm(8)
        self.head = nn.Linear(8, 4)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(batch).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(batch), -1, -1), tokens], 1)
        own = self.norm1(tokens)
        tokens = tokens + self.attention(own, own, own, need_weights=False)[0]
        return self.head(self.norm2(tokens)[:, 0])


def test_tokens_become_a_grid_without_those_that_stand_for_no_place() -> None:
    module = seeded(Tokens)
    network, batch, targets = network_of(module), pictures(2), torch.tensor([0, 3])
    # After the last attention only the class token counts: the search must go back to before it.
    assert find_layer(network, batch[:1], [targets[:1]]) == "norm1"
    grid = grid_of(torch.zeros(2, 18, 8), (16, 16), module)
    assert grid is not None and (grid.layout, grid.height, grid.width, grid.prefix) == ("tokens", 4, 4, 2)
    tokens = torch.arange(18.0).view(1, 18, 1)
    assert grid.features(tokens)[0, 0].tolist() == torch.arange(2.0, 18.0).view(4, 4).tolist()
    maps = gradcam(network, batch, [targets])
    assert maps.shape == (2, 16, 16) and bool((maps >= 0).all()) and bool(maps.sum() > 0)


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [
        ((1, 512, 7, 7), (224, 224), ("channels_first", 7, 7)),
        ((1, 7, 7, 768), (224, 224), ("channels_last", 7, 7)),
        ((1, 64, 4, 8), (64, 128), ("channels_first", 4, 8)),
        ((1, 197, 768), (224, 224), ("tokens", 14, 14)),
        ((1, 261, 384), (224, 224), ("tokens", 16, 16)),
        ((1, 32, 96), (64, 128), ("tokens", 4, 8)),
        ((1, 512, 1, 1), (224, 224), None),
        ((1, 1000), (224, 224), None),
        ((1, 12, 197, 197), (224, 224), None),
    ],
)
def test_layouts(shape: tuple[int, ...], size: tuple[int, int], expected: tuple[str, int, int] | None) -> None:
    grid = grid_of(torch.zeros(shape), size, nn.Identity())
    if len(shape) == 4 and shape[2] == 197:
        assert grid is None or grid.height == 197  # attention maps: their modules are never watched
        return
    assert (None if grid is None else (grid.layout, grid.height, grid.width)) == expected


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("resnet_rho95", "layer4"),
        ("convnext_rho95", "norm_pre"),
        ("densenet_rho95", "features.transition2"),  # its last grid, 2 × 2, says too little
        ("mobilenet_rho95", "bn2"),
        ("vit_rho95", "norm"),
    ],
)
def test_layers_of_real_networks(name: str, layer: str) -> None:
    network = of_classifier(load_classifier(f"embedded:{name}", device="cpu"))
    batch, targets = pictures(1, 64), torch.tensor([2])
    found = find_layer(network, batch, [targets])
    if name != "densenet_rho95":
        assert found == layer
    maps = gradcam(network, batch, [targets], layer=found)
    assert maps.shape == (1, 64, 64) and bool(maps.isfinite().all())


def test_swin_and_transformers() -> None:
    import timm
    from transformers import ViTConfig, ViTForImageClassification

    swin = seeded(lambda: timm.create_model("swin_tiny_patch4_window7_224", img_size=64, window_size=4, embed_dim=16,
                                            depths=(1, 1), num_heads=(2, 2), num_classes=4))  # fmt: skip
    network = network_of(swin)
    maps = gradcam(network, pictures(1, 64), [torch.tensor([1])])
    assert maps.shape == (1, 64, 64) and float(maps.max()) > 0
    config = ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32,
                       patch_size=8, num_labels=4)  # fmt: skip
    model = seeded(lambda: ViTForImageClassification(config))

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.model(pixel_values=batch).logits

    network, batch, targets = network_of(Logits()), pictures(1, 32), [torch.tensor([1])]
    assert "norm" in find_layer(network, batch, targets)
    assert gradcam(network, batch, targets).shape == (1, 32, 32)


def test_segmenters_look_from_their_encoder() -> None:
    segmenter = load_embedded(parse_name("embedded:unet"), device="cpu")
    network = of_segmenter(segmenter)
    batch = pictures(1, 64)
    regions = torch.zeros(1, 64, 64)
    regions[:, :20, :20] = 1
    targets = [torch.tensor([3]), regions]
    planes = segmenter.logits(batch)[0, 3]
    assert float(network.score(batch, *targets)) == pytest.approx(float(planes[:20, :20].mean()), abs=1e-5)
    assert find_layer(network, batch, targets).startswith("encoder")
    assert gradcam(network, batch, targets).shape == (1, 64, 64)
    assert bool((integrated_gradients(network, batch, targets, steps=4) >= 0).all())
    noise = (pictures(1, 64)[0].permute(1, 2, 0).numpy() * 255).astype(np.uint8)
    again = torch.from_numpy(segmenter.shown(noise)).permute(2, 0, 1)[None].float() / 255
    direct = segmenter._scores(prepared_image(noise, segmenter.preparation)[None])
    np.testing.assert_allclose(segmenter.logits(again).numpy(), direct, atol=1e-3)


def test_shuffled_weights_change_maps_and_come_back() -> None:
    module, batch, targets = small_cnn(), pictures(2), [torch.tensor([0, 1])]
    network = network_of(module)
    before = gradcam(network, batch, targets)
    weights = shuffled(module, seed=1)
    for own, other in zip(module.parameters(), weights, strict=True):
        torch.testing.assert_close(own.flatten().sort().values, other.flatten().sort().values)
    with randomised(module, weights):
        during = gradcam(network, batch, targets)
    torch.testing.assert_close(gradcam(network, batch, targets), before)
    assert not torch.allclose(before, during)
    with pytest.raises(RuntimeError), randomised(module, weights):
        raise RuntimeError
    torch.testing.assert_close(gradcam(network, batch, targets), before)


class WithAside(nn.Module):
    """Two layers that matter, a scale of the whole, and a head next to them that comes last and does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.aside = nn.Linear(5, 2)
        self.last = nn.Linear(5, 4)
        self.first = nn.Conv2d(3, 5, 3)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        features = self.first(batch * self.scale).relu().mean((2, 3))
        answer = self.last(features)
        self.aside(features)
        return answer


def test_a_cascade_goes_from_the_answer_down() -> None:
    module, batch, targets = seeded(WithAside), pictures(2), [torch.tensor([0, 1])]
    network = network_of(module)
    names = [name for name, _ in module.named_parameters()]
    found = [{names[place] for place in stage} for stage in stages(network, batch, targets)]
    last, first = {"last.weight", "last.bias"}, {"first.weight", "first.bias"}
    assert found == [last, last, last | first, set(names), set(names)]  # the rest goes with the whole
    weights, own = shuffled(module, seed=1), [one.clone() for one in module.parameters()]
    with randomised(module, weights, stages(network, batch, targets)[0]):
        changed = {name for name, now, was in zip(names, module.parameters(), own, strict=True) if not now.equal(was)}
    assert changed == last
    vit = load_classifier("embedded:vit_rho95", device="cpu")
    known = of_classifier(vit)
    assert known.module is not None
    names = [name for name, _ in known.module.named_parameters()]
    depths = stages(known, pictures(1, 64), [torch.tensor([2])])
    assert {names[place] for place in depths[0]} == {"head.weight", "head.bias"}
    assert all(one < other for one, other in itertools.pairwise(depths))
    late = {names[place] for place in depths[-1] - depths[-2]}
    assert {"pos_embed", "patch_embed.proj.weight"} <= late and not any("blocks.3" in name for name in late)


@pytest.mark.parametrize("kind", ["tokens", "channels_last", "segmenter"])
def test_gradcam_where_tokens_or_pixels_are_scored_against_captum(kind: str) -> None:
    """captum's gradients and activations of the layer, made into a grid by hand."""
    from captum._utils.gradient import compute_layer_gradients_and_eval

    batch, targets = pictures(2, 64), [torch.tensor([1, 2])]
    if kind == "segmenter":
        network = of_segmenter(load_embedded(parse_name("embedded:unet"), device="cpu"))
        region = torch.zeros(2, 64, 64)
        region[:, 8:40, 20:50] = 1
        targets.append(region)
    elif kind == "tokens":
        network = of_classifier(load_classifier("embedded:vit_rho95", device="cpu"))
    else:
        import timm

        options = {"img_size": 64, "window_size": 4, "embed_dim": 16, "depths": (1, 1), "num_heads": (2, 2)}
        network = network_of(
            seeded(lambda: timm.create_model("swin_tiny_patch4_window7_224", num_classes=4, **options))
        )
    assert network.module is not None
    name = find_layer(network, batch[:1], [one[:1] for one in targets])
    layer = network.module.get_submodule(name)
    slopes, features = (
        found[0].detach()
        for found in compute_layer_gradients_and_eval(
            network.score, layer, batch.clone().requires_grad_(), additional_forward_args=tuple(targets)
        )[:2]
    )
    if kind == "tokens":
        side = int(features.shape[1] ** 0.5)
        prefix = features.shape[1] - side * side
        slopes, features = (one[:, prefix:].unflatten(1, (side, side)) for one in (slopes, features))
    if kind != "segmenter":
        slopes, features = slopes.permute(0, 3, 1, 2), features.permute(0, 3, 1, 2)
    coarse = torch.einsum("nchw,nc->nhw", features, slopes.mean((2, 3))).clamp_min(0)
    expected = nn.functional.interpolate(coarse[:, None], (64, 64), mode="bilinear", align_corners=False)[:, 0]
    assert float(expected.max()) > 0
    torch.testing.assert_close(gradcam(network, batch, targets, layer=name), expected, atol=1e-6, rtol=1e-3)


def test_measures() -> None:
    heat = np.zeros((4, 4), np.float32)
    heat[0, 0], heat[3, 3] = 3, 1
    mask = np.zeros((4, 4), bool)
    mask[:2, :2] = True
    found = look(heat, mask)
    assert found is not None
    assert (found.share, found.area, found.ratio, found.hit) == (0.75, 0.25, 3.0, True)
    assert look(np.zeros((4, 4), np.float32), mask) is None
    assert look(np.full((4, 4), np.nan, np.float32), mask) is None
    flat = look(np.ones((4, 4), np.float32), mask)
    assert flat is not None and flat.ratio == 1 and not flat.hit
    one, other = (np.random.default_rng(seed).random((32, 32)).astype(np.float32) for seed in (0, 1))
    from scipy.stats import spearmanr

    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other, axis=None).statistic, abs=1e-9)
    assert rank_correlation(one, np.ones_like(one)) == 0
    assert structural_similarity(one, 5 * one) == pytest.approx(1, abs=1e-5)
    assert structural_similarity(one, other) < 0.5


def test_an_overlay_shows_heat_and_outline() -> None:
    picture = np.full((40, 60, 3), 90, np.uint8)
    heat, mask = np.zeros((40, 60), np.float32), np.zeros((40, 60), bool)
    heat[5:10, 40:50] = 1
    mask[10:30, 10:30] = True
    made = overlay(picture, heat, mask, side=60)
    assert made.shape == (40, 60, 3) and made.dtype == np.uint8
    assert np.ptp(made[7, 45].astype(int)) > 40
    assert np.ptp(made[35, 5].astype(int)) < 10
    assert made[10:30, 10].max() > 200  # white on the edge


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gradcm", "gradcam"),
        ("gradcam?layr=3", "layer"),
        ("occlusion?window=0", "whole number"),
        ("integrated_gradients?baseline=pink", "baseline"),
        ("", "no method"),
    ],
)
def test_mistyped_methods(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_methods(text)


def test_what_cannot_be_explained_says_why() -> None:
    class Box:
        name, fingerprint = "box", "1"
        labels = None

        def predict(self, images):
            return np.stack([[one.mean() / 255, 1 - one.mean() / 255] for one in images]).astype(np.float32)

    network = of_classifier(Box())
    batch, targets = pictures(2), [torch.tensor([0, 1])]
    maps = occlusion(network, batch, targets, baseline="black")
    assert maps.shape == (2, 16, 16) and bool((maps[0] > 0).any()) and not bool((maps[1] > 0).any())
    for method in parse_methods("gradcam,integrated_gradients"):
        with pytest.raises(UserError, match="occlusion"):
            method.check(network)
        with pytest.raises(UserError, match="occlusion"):
            method(network, batch, targets)
    real = network_of(small_cnn())
    with pytest.raises(UserError, match="layer of hand-made"):
        find_layer(real, batch[:1], [targets[0][:1]], "layer9")
    with pytest.raises(UserError, match="no grid"):
        gradcam(real, batch, targets, layer="6")
    with pytest.raises(UserError, match="window"):
        occlusion(real, batch, targets, window=40)
