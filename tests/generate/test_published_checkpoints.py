"""Checkpoints as their authors publish them: ADM and Improved DDPM, StyleGAN-XL, Efficient-VDVAE, all tiny."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from holdfast.core.errors import UserError
from holdfast.generators import load_generator
from holdfast.generators.ddim import Ddim
from holdfast.generators.guided_unet import read
from holdfast.testing import check_generator

WIDTH, TIME = 32, 64


def residual(state: dict[str, torch.Tensor], prefix: str, inside: int, outside: int, *, scales: bool) -> None:
    """Add the tensors of a residual block under the published names."""
    state[f"{prefix}.in_layers.0.weight"], state[f"{prefix}.in_layers.0.bias"] = torch.rand(inside), torch.zeros(inside)
    state[f"{prefix}.in_layers.2.weight"] = torch.randn(outside, inside, 3, 3) / 20
    state[f"{prefix}.in_layers.2.bias"] = torch.zeros(outside)
    rows = 2 * outside if scales else outside
    state[f"{prefix}.emb_layers.1.weight"] = torch.randn(rows, TIME) / 10
    state[f"{prefix}.emb_layers.1.bias"] = torch.zeros(rows)
    state[f"{prefix}.out_layers.0.weight"] = torch.rand(outside)
    state[f"{prefix}.out_layers.0.bias"] = torch.zeros(outside)
    state[f"{prefix}.out_layers.3.weight"] = torch.randn(outside, outside, 3, 3) / 20
    state[f"{prefix}.out_layers.3.bias"] = torch.zeros(outside)
    if inside != outside:
        state[f"{prefix}.skip_connection.weight"] = torch.randn(outside, inside, 1, 1) / 5
        state[f"{prefix}.skip_connection.bias"] = torch.zeros(outside)


def attention(state: dict[str, torch.Tensor], prefix: str, width: int) -> None:
    state[f"{prefix}.norm.weight"], state[f"{prefix}.norm.bias"] = torch.rand(width), torch.zeros(width)
    state[f"{prefix}.qkv.weight"], state[f"{prefix}.qkv.bias"] = (
        torch.randn(3 * width, width, 1) / 5,
        torch.zeros(3 * width),
    )
    state[f"{prefix}.proj_out.weight"] = torch.randn(width, width, 1) / 5
    state[f"{prefix}.proj_out.bias"] = torch.zeros(width)


def checkpoint(*, adm: bool, classes: int = 0) -> dict[str, torch.Tensor]:
    """Return a state dict of two levels of one block each, 32 and 64 channels, attention in the lower one."""
    torch.manual_seed(3)
    state: dict[str, torch.Tensor] = {}
    for place, shape in ((0, (TIME, WIDTH)), (2, (TIME, TIME))):
        state[f"time_embed.{place}.weight"], state[f"time_embed.{place}.bias"] = (
            torch.randn(shape) / 6,
            torch.zeros(TIME),
        )
    if classes:
        state["label_emb.weight"] = torch.randn(classes, TIME)
    state["input_blocks.0.0.weight"], state["input_blocks.0.0.bias"] = (
        torch.randn(WIDTH, 3, 3, 3) / 5,
        torch.zeros(WIDTH),
    )
    residual(state, "input_blocks.1.0", 32, 32, scales=adm)
    if adm:
        residual(state, "input_blocks.2.0", 32, 32, scales=True)
    else:
        state["input_blocks.2.0.op.weight"], state["input_blocks.2.0.op.bias"] = (
            torch.randn(32, 32, 3, 3) / 20,
            torch.zeros(32),
        )
    residual(state, "input_blocks.3.0", 32, 64, scales=adm)
    attention(state, "input_blocks.3.1", 64)
    residual(state, "middle_block.0", 64, 64, scales=adm)
    attention(state, "middle_block.1", 64)
    residual(state, "middle_block.2", 64, 64, scales=adm)
    for place, inside, outside in ((0, 128, 64), (1, 96, 64), (2, 96, 32), (3, 64, 32)):
        residual(state, f"output_blocks.{place}.0", inside, outside, scales=adm)
    for place in (0, 1):
        attention(state, f"output_blocks.{place}.1", 64)
    if adm:
        residual(state, "output_blocks.1.2", 64, 64, scales=True)
    else:
        state["output_blocks.1.2.conv.weight"] = torch.randn(64, 64, 3, 3) / 20
        state["output_blocks.1.2.conv.bias"] = torch.zeros(64)
    state["out.0.weight"], state["out.0.bias"] = torch.rand(32), torch.zeros(32)
    state["out.2.weight"], state["out.2.bias"] = torch.randn(6, 32, 3, 3) / 10, torch.zeros(6)
    return state


class Written:
    """The published forward pass, written out again over the bare tensors."""

    def __init__(self, state: dict[str, torch.Tensor], heads: int, *, adm: bool) -> None:
        self.state, self.heads, self.adm = state, heads, adm

    def at(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        return self.state[f"{name}.weight"], self.state[f"{name}.bias"]

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return functional.group_norm(x, 32, *self.at(name), eps=1e-5)

    def res(self, name: str, x: torch.Tensor, emb: torch.Tensor, change: str = "") -> torch.Tensor:
        h = functional.silu(self.norm(f"{name}.in_layers.0", x))
        if change == "down":
            h, x = functional.avg_pool2d(h, 2), functional.avg_pool2d(x, 2)
        if change == "up":
            h, x = (t.repeat_interleave(2, 2).repeat_interleave(2, 3) for t in (h, x))
        h = functional.conv2d(h, *self.at(f"{name}.in_layers.2"), padding=1)
        extra = functional.linear(functional.silu(emb), *self.at(f"{name}.emb_layers.1"))[..., None, None]
        if self.adm:
            scale, shift = extra.chunk(2, 1)
            h = self.norm(f"{name}.out_layers.0", h) * (1 + scale) + shift
        else:
            h = self.norm(f"{name}.out_layers.0", h + extra)
        h = functional.conv2d(functional.silu(h), *self.at(f"{name}.out_layers.3"), padding=1)
        if f"{name}.skip_connection.weight" in self.state:
            x = functional.conv2d(x, *self.at(f"{name}.skip_connection"))
        return x + h

    def attend(self, name: str, x: torch.Tensor) -> torch.Tensor:
        n, c, height, width = x.shape
        flat = x.reshape(n, c, -1)
        qkv = functional.conv1d(self.norm(f"{name}.norm", flat), *self.at(f"{name}.qkv"))
        qkv = qkv.reshape(n * self.heads, -1, flat.shape[-1])
        q, k, v = qkv.split(c // self.heads, 1)
        scale = 1 / math.sqrt(math.sqrt(c // self.heads))
        weight = torch.einsum("bct,bcs->bts", q * scale, k * scale).softmax(-1)
        seen = torch.einsum("bts,bcs->bct", weight, v).reshape(n, c, -1)
        return (flat + functional.conv1d(seen, *self.at(f"{name}.proj_out"))).reshape(n, c, height, width)

    def __call__(self, x: torch.Tensor, time: torch.Tensor, label: int | None = None) -> torch.Tensor:
        rates = torch.exp(-math.log(10000) * torch.arange(16) / 16)
        angles = time[:, None].float() * rates
        emb = functional.linear(torch.cat([angles.cos(), angles.sin()], 1), *self.at("time_embed.0"))
        emb = functional.linear(functional.silu(emb), *self.at("time_embed.2"))
        if label is not None:
            emb = emb + self.state["label_emb.weight"][label]
        kept = [functional.conv2d(x, *self.at("input_blocks.0.0"), padding=1)]
        kept.append(self.res("input_blocks.1.0", kept[-1], emb))
        if self.adm:
            kept.append(self.res("input_blocks.2.0", kept[-1], emb, "down"))
        else:
            kept.append(functional.conv2d(kept[-1], *self.at("input_blocks.2.0.op"), stride=2, padding=1))
        kept.append(self.attend("input_blocks.3.1", self.res("input_blocks.3.0", kept[-1], emb)))
        h = self.attend("middle_block.1", self.res("middle_block.0", kept[-1], emb))
        h = self.res("middle_block.2", h, emb)
        for place in range(4):
            h = self.res(f"output_blocks.{place}.0", torch.cat([h, kept.pop()], 1), emb)
            if place < 2:
                h = self.attend(f"output_blocks.{place}.1", h)
            if place == 1 and self.adm:
                h = self.res("output_blocks.1.2", h, emb, "up")
            elif place == 1:
                h = h.repeat_interleave(2, 2).repeat_interleave(2, 3)
                h = functional.conv2d(h, *self.at("output_blocks.1.2.conv"), padding=1)
        return functional.conv2d(functional.silu(self.norm("out.0", h)), *self.at("out.2"), padding=1)


@pytest.mark.parametrize(("adm", "heads"), [(True, 0), (True, 2), (False, 0)])
def test_the_network_is_the_published_one(tmp_path: Path, adm: bool, heads: int) -> None:
    state = checkpoint(adm=adm, classes=5 if adm else 0)
    torch.save(state, tmp_path / "model.pt")
    unet = read(tmp_path / "model.pt", heads=heads)
    batch, time = torch.randn(2, 3, 16, 16), torch.tensor([3, 400])
    written = Written(state, heads or (1 if adm else 4), adm=adm)  # 64 channels are one head of an ADM
    labels = torch.tensor([2, 2]) if adm else None
    with torch.no_grad():
        expected = written(batch, time, 2 if adm else None)
        torch.testing.assert_close(unet(batch, time, labels).sample, expected, atol=1e-4, rtol=1e-4)


def test_a_walk_can_use_it(tmp_path: Path) -> None:
    state = checkpoint(adm=True, classes=5)
    state["out.2.weight"] /= 50  # random weights would make a chaotic flow, in which rounding errors grow
    torch.save(state, tmp_path / "adm.pt")
    generator = load_generator(f"ddim:{tmp_path / 'adm.pt'}?size=16&class=3", device="cpu")
    assert isinstance(generator, Ddim) and generator.size == 16 and generator.factor == 2
    check_generator(f"ddim:{tmp_path / 'adm.pt'}?size=16")
    save_file(checkpoint(adm=False), tmp_path / "iddpm.safetensors")
    name = f"ddim:{tmp_path / 'iddpm.safetensors'}?schedule=cosine&timesteps=4000&size=16"
    other = load_generator(name, device="cpu")
    latent = other.encode(torch.rand(2, 3, 16, 16)).requires_grad_()
    other.decode(latent).sum().backward()
    assert latent.grad is not None and latent.grad.isfinite().all()
    more = load_generator(f"{name}&heads=8", device="cpu")
    assert len({generator.fingerprint, other.fingerprint, more.fingerprint}) == 3


CODE = '''
import torch
from torch import nn

class StyleLike(nn.Module):
    """Mapping and synthesis with StyleGAN's interface."""
    z_dim, c_dim, img_resolution = 4, 3, 16

    def __init__(self):
        super().__init__()
        self.embed, self.style = nn.Linear(3, 4), nn.Linear(4, 6)
        self.paint = nn.Linear(6, 3 * 16 * 16)

    def mapping(self, z, c):
        return self.style(z + self.embed(c))[:, None].expand(-1, 2, -1)

    def synthesis(self, w, noise_mode="random"):
        return self.paint(w.mean(1)).view(-1, 3, 16, 16).tanh()

class VdvaeLike(nn.Module):
    """Encode and decode around a network of others."""
    size = 16

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 4, 4), nn.ConvTranspose2d(8, 3, 4, 4)

    def encode(self, batch):
        return self.down(batch * 2 - 1).flatten(1)

    def decode(self, latent):
        return self.up(latent.view(-1, 8, 4, 4)).sigmoid()

plain = object
'''


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "published_networks.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import published_networks

    return published_networks


def test_stylegan_weights_through_a_declared_class(networks, tmp_path: Path) -> None:
    network = networks.StyleLike()
    save_file(network.state_dict(), tmp_path / "stylegan_xl.safetensors")
    name = f"gan:published_networks:StyleLike@{tmp_path / 'stylegan_xl.safetensors'}"
    generator = load_generator(f"{name}?steps=3&class=1", device="cpu")
    assert generator.name == "gan:published_networks:StyleLike@stylegan_xl.safetensors?class=1&steps=3"
    torch.testing.assert_close(generator.pair.paint.weight, network.paint.weight)
    assert generator.encode(torch.rand(2, 3, 16, 16)).shape == (2, 2, 6)


def test_efficient_vdvae_training_files_give_their_averaged_weights(networks, tmp_path: Path) -> None:
    plain, averaged = networks.VdvaeLike(), networks.VdvaeLike()
    training = {"model_state_dict": plain.state_dict(), "optimizer_state_dict": {"state": {}}, "step": 7}
    wrapped = {f"module.{key}": value for key, value in averaged.state_dict().items()}
    torch.save(training | {"ema_model_state_dict": wrapped}, tmp_path / "vdvae.pth")
    generator = load_generator(f"python:published_networks:VdvaeLike@{tmp_path / 'vdvae.pth'}", device="cpu")
    batch = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(generator.encode(batch), averaged.encode(batch))
    torch.save(training, tmp_path / "other.pth")
    other = load_generator(f"python:published_networks:VdvaeLike@{tmp_path / 'other.pth'}", device="cpu")
    torch.testing.assert_close(other.encode(batch), plain.encode(batch))
    assert other.fingerprint != generator.fingerprint


class Trap:
    def __reduce__(self):
        return (Path.touch, (Path("trapped"),))


def test_nothing_but_tensors_is_unpickled(networks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"G_ema": Trap()}, "trap.pt")
    Path("trap.pkl").write_bytes(pickle.dumps({"G_ema": Trap()}))
    for name in (
        "ddim:trap.pt",
        "gan:published_networks:StyleLike@trap.pt",
        "gan:published_networks:StyleLike@trap.pkl",
    ):
        with pytest.raises(UserError, match="trap"):
            load_generator(name, device="cpu")
    assert not Path("trapped").exists()


def test_bad_files(networks, tmp_path: Path) -> None:
    state = checkpoint(adm=True)
    del state["middle_block.1.qkv.bias"]
    torch.save(state, tmp_path / "lacks.pt")
    torch.save({"a": torch.zeros(2)}, tmp_path / "other.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save(checkpoint(adm=True), tmp_path / "fits.pt")
    for name, sentence in (
        (f"ddim:{tmp_path / 'lacks.pt'}", "guided-diffusion's format"),
        (f"ddim:{tmp_path / 'other.pt'}", "guided-diffusion's format"),
        (f"ddim:{tmp_path / 'list.pt'}", "no state dict"),
        (f"ddim:{tmp_path / 'fits.pt'}?heads=7", "7 heads"),
        (f"ddim:{tmp_path / 'fits.pt'}?schedule=square", "linear or cosine"),
        (f"gan:published_networks:StyleLike@{tmp_path / 'other.pt'}", "does not fit"),
        ("gan:published_networks:StyleLike@nowhere.pt", "no weight file"),
    ):
        with pytest.raises(UserError, match=sentence):
            load_generator(name, device="cpu")
