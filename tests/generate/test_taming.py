"""Original VQGAN checkpoints: converted exactly, read without running anything in them."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest
import torch
import torch.nn.functional as functional

from holdfast.core.errors import UserError
from holdfast.core.weights import read_weights
from holdfast.generators import load_generator
from holdfast.generators.autoencoders import load_taming

CHANNELS, MULTIPLES, LAYERS, LATENT, CODES, WIDTH = 32, (1, 1, 2), 2, 8, 24, 6
"""A small one: attention where the grid is coarsest, as at resolution 16 of the published one."""


def norm(state: dict[str, torch.Tensor], key: str, hidden: torch.Tensor) -> torch.Tensor:
    return functional.group_norm(hidden, 32, state[f"{key}.weight"], state[f"{key}.bias"], 1e-6)


def convolve(state: dict[str, torch.Tensor], key: str, hidden: torch.Tensor, **options: int) -> torch.Tensor:
    weight = state[f"{key}.weight"]
    options = {"padding": weight.shape[-1] // 2, **options}
    return functional.conv2d(hidden, weight, state[f"{key}.bias"], **options)


def residual(state: dict[str, torch.Tensor], key: str, hidden: torch.Tensor) -> torch.Tensor:
    answer = convolve(state, f"{key}.conv1", functional.silu(norm(state, f"{key}.norm1", hidden)))
    answer = convolve(state, f"{key}.conv2", functional.silu(norm(state, f"{key}.norm2", answer)))
    if f"{key}.nin_shortcut.weight" in state:
        hidden = convolve(state, f"{key}.nin_shortcut", hidden)
    return hidden + answer


def attention(state: dict[str, torch.Tensor], key: str, hidden: torch.Tensor) -> torch.Tensor:
    normed = norm(state, f"{key}.norm", hidden)
    query, keys, value = (convolve(state, f"{key}.{one}", normed).flatten(2) for one in "qkv")
    weights = torch.softmax(query.transpose(1, 2) @ keys / query.shape[1] ** 0.5, 2)  # queries × keys
    return hidden + convolve(state, f"{key}.proj_out", (value @ weights.transpose(1, 2)).view_as(hidden))


def middle(state: dict[str, torch.Tensor], key: str, hidden: torch.Tensor) -> torch.Tensor:
    hidden = attention(state, f"{key}.attn_1", residual(state, f"{key}.block_1", hidden))
    return residual(state, f"{key}.block_2", hidden)


def reference_encode(state: dict[str, torch.Tensor], image: torch.Tensor) -> torch.Tensor:
    """taming-transformers' forward pass, written from its description."""
    hidden = convolve(state, "encoder.conv_in", image)
    for level in range(len(MULTIPLES)):
        for at in range(LAYERS):
            hidden = residual(state, f"encoder.down.{level}.block.{at}", hidden)
            if level == len(MULTIPLES) - 1:
                hidden = attention(state, f"encoder.down.{level}.attn.{at}", hidden)
        if level != len(MULTIPLES) - 1:
            hidden = functional.pad(hidden, (0, 1, 0, 1))
            hidden = convolve(state, f"encoder.down.{level}.downsample.conv", hidden, stride=2, padding=0)
    hidden = functional.silu(norm(state, "encoder.norm_out", middle(state, "encoder.mid", hidden)))
    return convolve(state, "quant_conv", convolve(state, "encoder.conv_out", hidden))


def reference_decode(state: dict[str, torch.Tensor], latent: torch.Tensor) -> torch.Tensor:
    codes = state["quantize.embedding.weight"]
    distances = (latent.permute(0, 2, 3, 1)[..., None, :] - codes).square().sum(-1)
    hidden = codes[distances.argmin(-1)].permute(0, 3, 1, 2)
    hidden = convolve(state, "decoder.conv_in", convolve(state, "post_quant_conv", hidden))
    hidden = middle(state, "decoder.mid", hidden)
    for level in reversed(range(len(MULTIPLES))):
        for at in range(LAYERS + 1):
            hidden = residual(state, f"decoder.up.{level}.block.{at}", hidden)
            if level == len(MULTIPLES) - 1:
                hidden = attention(state, f"decoder.up.{level}.attn.{at}", hidden)
        if level:
            hidden = functional.interpolate(hidden, scale_factor=2.0, mode="nearest")
            hidden = convolve(state, f"decoder.up.{level}.upsample.conv", hidden)
    return convolve(state, "decoder.conv_out", functional.silu(norm(state, "decoder.norm_out", hidden)))


def random_state() -> dict[str, torch.Tensor]:
    """Weights by taming's names."""
    random = torch.Generator().manual_seed(0)
    state: dict[str, torch.Tensor] = {}

    def convolution(key: str, before: int, after: int, kernel: int) -> None:
        scale = (before * kernel**2) ** -0.5
        state[f"{key}.weight"] = scale * torch.randn((after, before, kernel, kernel), generator=random)
        state[f"{key}.bias"] = 0.1 * torch.randn(after, generator=random)

    def normalisation(key: str, width: int) -> None:
        state[f"{key}.weight"] = 1 + 0.1 * torch.randn(width, generator=random)
        state[f"{key}.bias"] = 0.1 * torch.randn(width, generator=random)

    def block(key: str, before: int, after: int) -> None:
        normalisation(f"{key}.norm1", before)
        convolution(f"{key}.conv1", before, after, 3)
        normalisation(f"{key}.norm2", after)
        convolution(f"{key}.conv2", after, after, 3)
        if before != after:
            convolution(f"{key}.nin_shortcut", before, after, 1)

    def attentive(key: str, width: int) -> None:
        normalisation(f"{key}.norm", width)
        for one in ("q", "k", "v", "proj_out"):
            convolution(f"{key}.{one}", width, width, 1)

    def mid(key: str, width: int) -> None:
        block(f"{key}.block_1", width, width)
        attentive(f"{key}.attn_1", width)
        block(f"{key}.block_2", width, width)

    widths, last = [CHANNELS * one for one in MULTIPLES], len(MULTIPLES) - 1
    convolution("encoder.conv_in", 3, CHANNELS, 3)
    before = CHANNELS
    for level, width in enumerate(widths):
        for at in range(LAYERS):
            block(f"encoder.down.{level}.block.{at}", before, width)
            before = width
            if level == last:
                attentive(f"encoder.down.{level}.attn.{at}", width)
        if level != last:
            convolution(f"encoder.down.{level}.downsample.conv", width, width, 3)
    mid("encoder.mid", widths[-1])
    normalisation("encoder.norm_out", widths[-1])
    convolution("encoder.conv_out", widths[-1], LATENT, 3)
    convolution("quant_conv", LATENT, WIDTH, 1)
    state["quantize.embedding.weight"] = torch.randn((CODES, WIDTH), generator=random)
    convolution("post_quant_conv", WIDTH, LATENT, 1)
    convolution("decoder.conv_in", LATENT, widths[-1], 3)
    mid("decoder.mid", widths[-1])
    before = widths[-1]
    for level, width in reversed(list(enumerate(widths))):
        for at in range(LAYERS + 1):
            block(f"decoder.up.{level}.block.{at}", before, width)
            before = width
            if level == last:
                attentive(f"decoder.up.{level}.attn.{at}", width)
        if level:
            convolution(f"decoder.up.{level}.upsample.conv", width, width, 3)
    normalisation("decoder.norm_out", widths[0])
    convolution("decoder.conv_out", widths[0], 3, 3)
    return state


RAN: list[str] = []


def ran(*_: object) -> Settings:
    RAN.append("code of the checkpoint")
    return Settings()


class ModelCheckpoint:
    """Stands for pytorch-lightning's; its pickle would call ``ran``."""

    def __reduce__(self) -> tuple[object, ...]:
        return ran, ("argument",), {"a state": 1}


class Settings:
    def __init__(self) -> None:
        self.depth = 3


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Like the published file: the training's own classes and objects next to the weights."""
    content = {
        "epoch": 9,
        "global_step": 123456,
        "callbacks": {ModelCheckpoint: {"best_model_path": "logs/x.ckpt"}, "instance": ModelCheckpoint()},
        "hyper_parameters": Settings(),
        "state_dict": {**random_state(), "loss.discriminator.weight": torch.ones(3)},
    }
    file = tmp_path / "last.ckpt"
    torch.save(content, file)
    return file


def test_the_published_format_gives_the_published_pictures(checkpoint: Path) -> None:
    ours = load_generator(f"vqgan:{checkpoint}", device="cpu")
    assert ours.name == "vqgan:last.ckpt"
    assert ours.factor == 4  # type: ignore[attr-defined]
    image = torch.rand((2, 3, 32, 24), generator=torch.Generator().manual_seed(1))
    state = random_state()
    latent = ours.encode(image)
    assert latent.shape == (2, WIDTH, 8, 6)
    torch.testing.assert_close(latent, reference_encode(state, image * 2 - 1), atol=2e-4, rtol=1e-3)
    expected = (reference_decode(state, latent) / 2 + 0.5).clamp(0, 1)
    assert float(expected.std()) > 0.02
    torch.testing.assert_close(ours.decode(latent), expected, atol=2e-4, rtol=1e-3)


def test_the_published_size_is_built_from_its_shapes() -> None:
    """ch 128, multiples 1, 1, 2, 2, 4: the configuration of vqgan_imagenet_f16_16384, without its weights."""
    import diffusers

    from holdfast.generators import autoencoders

    names = {
        f"encoder.down.{level}.block.{at}.conv1.weight": torch.empty((128 * one, 1, 1, 1), device="meta")
        for level, one in enumerate((1, 1, 2, 2, 4))
        for at in range(2)
    }
    for at in range(3):
        names[f"decoder.up.4.attn.{at}.q.weight"] = torch.empty(1, device="meta")
    names["encoder.down.4.attn.0.q.weight"] = torch.empty(1, device="meta")
    names["encoder.conv_out.weight"] = torch.empty((256, 512, 3, 3), device="meta")
    names["quantize.embedding.weight"] = torch.empty((16384, 256), device="meta")
    with torch.device("meta"):
        model = autoencoders._build(names)
    assert isinstance(model, diffusers.VQModel)
    parts = (model.decoder, model.post_quant_conv, model.quantize)
    assert round(sum(one.numel() for part in parts for one in part.parameters()) / 1e6, 1) == 46.7  # as published
    assert 2 ** (len(model.config.block_out_channels) - 1) == 16


def test_nothing_in_a_checkpoint_runs(checkpoint: Path) -> None:
    RAN.clear()
    assert set(random_state()) < set(read_weights(checkpoint)[0])
    assert not RAN
    torch.load(checkpoint, weights_only=False)  # the trap is real: the ordinary reader falls into it
    assert RAN


def test_what_would_call_the_system_is_refused(tmp_path: Path) -> None:
    import os

    class Shell:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {tmp_path / 'was-here'}",)

    file = tmp_path / "evil.ckpt"
    torch.save({"state_dict": random_state(), "callbacks": Shell()}, file)
    with pytest.raises(UserError, match="can run code"):
        load_generator(f"vqgan:{file}", device="cpu")
    plain = tmp_path / "plain.ckpt"
    plain.write_bytes(pickle.dumps(Shell()))
    with pytest.raises(UserError, match="not a checkpoint"):
        load_generator(f"vqgan:{plain}", device="cpu")
    assert not (tmp_path / "was-here").exists()


def test_a_builtin_is_an_empty_object(tmp_path: Path) -> None:
    class Evaluated:
        def __reduce__(self) -> tuple[object, ...]:
            return eval, (f"open({str(tmp_path / 'was-here')!r}, 'w')",)

    file = tmp_path / "evil.ckpt"
    torch.save({"state_dict": random_state(), "extra": Evaluated()}, file)
    load_taming(file)
    assert not (tmp_path / "was-here").exists()


def test_other_files_get_one_sentence(tmp_path: Path, checkpoint: Path) -> None:
    other = tmp_path / "resnet.ckpt"
    torch.save({"state_dict": {"fc.weight": torch.ones(2, 2)}}, other)
    numbers = tmp_path / "numbers.ckpt"
    torch.save([1, 2, 3], numbers)
    state = random_state()
    del state["decoder.mid.block_1.conv1.weight"]
    part = tmp_path / "part.ckpt"
    torch.save({"state_dict": state}, part)
    broken = tmp_path / "broken.ckpt"
    broken.write_bytes(checkpoint.read_bytes()[:5000])
    empty = tmp_path / "empty.ckpt"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("nothing", "")
    for file, sentence in [
        (other, "expected its names of an encoder"),
        (numbers, "holds no state dict"),
        (part, "not a VQGAN that can be used"),
        (broken, "not a file of weights"),
        (empty, "not a checkpoint"),
    ]:
        with pytest.raises(UserError, match=sentence):
            load_generator(f"vqgan:{file}", device="cpu")
