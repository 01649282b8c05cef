"""``ddim:``: up and down the model's own flow."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.generators import load_generator
from holdfast.generators.ddim import FLOOR, Ddim, levels

SPREAD = 0.4
"""Standard deviation of the pixels in the world that the exact model below knows."""


class Exact(diffusers.UNet2DModel):
    """The best possible answer where every pixel is drawn from N(0, SPREAD²): linear, so that all is known."""

    says, kept = "epsilon", diffusers.DDPMScheduler().alphas_cumprod

    def forward(self, sample: torch.Tensor, timestep: torch.Tensor, **_: Any) -> Any:
        kept = self.kept[timestep].view(-1, 1, 1, 1)
        clean = sample * kept.sqrt() * SPREAD**2 / (kept * SPREAD**2 + 1 - kept)
        noise = (sample - kept.sqrt() * clean) / (1 - kept).sqrt()
        velocity = kept.sqrt() * noise - (1 - kept).sqrt() * clean
        answer = {"epsilon": noise, "sample": clean, "v_prediction": velocity}[self.says]
        return diffusers.models.unets.unet_2d.UNet2DOutput(sample=torch.cat([answer, torch.full_like(answer, 7)], 1))


def exact(says: str = "epsilon", **options: Any) -> Ddim:
    unet = Exact(
        block_out_channels=(8, 8), down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2,
        norm_num_groups=4, out_channels=6,
    )  # fmt: skip
    unet.says = says
    return Ddim("exact", unet, diffusers.DDPMScheduler(prediction_type=says), device="cpu", **options)


def images(count: int = 2, side: int = 16) -> torch.Tensor:
    return torch.rand((count, 3, side, side), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("says", ["epsilon", "sample", "v_prediction"])
def test_the_way_down_is_ddims_and_the_way_up_its_reverse(says: str) -> None:
    """A step from noise level to noise level multiplies by what the closed form says; six channels, three count."""
    generator = exact(says, strength=0.5, steps=4)
    times, _, _ = levels(Exact.kept, 0.5, 4)
    factor = 1.0
    for above, below in zip(times[:0:-1], times[-2::-1], strict=True):
        high, low = float(Exact.kept[above]), float(Exact.kept[below])
        clean = high**0.5 * SPREAD**2 / (high * SPREAD**2 + 1 - high)
        noise = (1 - high**0.5 * clean) / (1 - high) ** 0.5
        factor *= low**0.5 * clean + (1 - low) ** 0.5 * noise
    first = float(Exact.kept[times[0]]) ** 0.5
    batch = images()
    latent = generator.encode(batch)
    torch.testing.assert_close(latent, (batch * 2 - 1) * first / factor, atol=0, rtol=0.01)
    torch.testing.assert_close(generator.decode(latent), batch, atol=3e-3, rtol=0)
    # Far up, the image looks like noise of the known spread: the flow keeps the distribution, not only the way back.
    wide = SPREAD * torch.randn((4, 3, 64, 64), generator=torch.Generator().manual_seed(3))
    up = exact(says, strength=0.9, steps=40).encode(wide / 2 + 0.5)
    top = float(Exact.kept[levels(Exact.kept, 0.9, 40)[0][-1]])
    assert float(up.std()) == pytest.approx((top * SPREAD**2 + 1 - top) ** 0.5, rel=0.05)


def test_reconstruction_with_a_network(ddim_folder: Path) -> None:
    generator = load_generator(f"ddim:{ddim_folder}", device="cpu")
    batch = images()
    with torch.no_grad():
        latent = generator.encode(batch)
        made = generator.decode(latent)
    assert float((latent - (batch * 2 - 1)).abs().mean()) > 0.02  # it went somewhere
    assert -10 * float((made - batch).square().mean().log10()) > 50


def test_a_learned_variance_is_left_aside(make_unet: Callable[..., Any]) -> None:
    three, six = make_unet(), make_unet(out_channels=6)
    state = three.state_dict()
    for key in ("conv_out.weight", "conv_out.bias"):
        state[key] = torch.cat([state[key], torch.randn_like(state[key])])
    six.load_state_dict(state)
    scheduler = diffusers.DDPMScheduler()
    ours, theirs = (Ddim("x", unet, scheduler, device="cpu") for unet in (three, six))
    torch.testing.assert_close(ours.encode(images()), theirs.encode(images()), atol=1e-5, rtol=1e-5)


def test_classes(make_unet: Callable[..., Any]) -> None:
    def loaded(class_label: int | None) -> Ddim:
        return Ddim(
            "x", make_unet(num_class_embeds=4), diffusers.DDPMScheduler(), device="cpu", class_label=class_label
        )

    latent = torch.randn((2, 3, 16, 16), generator=torch.Generator().manual_seed(0))
    answers = [loaded(at).decode(latent) for at in (0, 1, None)]
    assert len({float(one.sum()) for one in answers}) == 3
    unet = make_unet(num_class_embeds=4)
    with torch.no_grad():  # every class the mean of all: then asking for one is asking for none
        unet.class_embedding.weight[:] = unet.class_embedding.weight.mean(0, keepdim=True).clone()
    mean = Ddim("x", unet, diffusers.DDPMScheduler(), device="cpu", class_label=3).decode(latent)
    torch.testing.assert_close(mean, answers[2])
    assert len({loaded(at).fingerprint for at in (0, 1, None)}) == 3
    with pytest.raises(UserError, match="4 classes"):
        loaded(4)


@given(
    strength=st.floats(0.01, 1.0),
    steps=st.integers(1, 20),
    schedule=st.sampled_from(["linear", "scaled_linear", "squaredcos_cap_v2"]),
)
@settings(deadline=None, max_examples=60)
def test_levels_go_up_from_nearly_clean_to_the_strength(strength: float, steps: int, schedule: str) -> None:
    kept = diffusers.DDPMScheduler(beta_schedule=schedule).alphas_cumprod
    times, signal, noise = levels(kept, strength, steps)
    assert 2 <= len(times) <= steps + 1
    assert times == sorted(set(times))
    assert times[-1] == max(1, round(strength * 1000) - 1)
    assert noise[0] / signal[0] <= max(2 * FLOOR, noise[-1] / signal[-1] / 1.2)
    for one, other in zip(signal, noise, strict=True):
        assert one**2 + other**2 == pytest.approx(1)


def test_where_the_parts_may_lie(ddim_folder: Path, tmp_path: Path) -> None:
    """As parts of a pipeline, or together in one folder as in the first of them, or without a scheduler."""
    whole = load_generator(f"ddim:{ddim_folder}", device="cpu")
    flat = Path(shutil.copytree(ddim_folder / "unet", tmp_path / "flat"))
    shutil.copy(ddim_folder / "scheduler" / "scheduler_config.json", flat)
    assert load_generator(f"ddim:{flat}", device="cpu").fingerprint == whole.fingerprint
    (flat / "scheduler_config.json").unlink()
    cosine = load_generator(f"ddim:{flat}?schedule=cosine", device="cpu")
    linear = load_generator(f"ddim:{flat}?schedule=linear", device="cpu")
    for said in ("", "{", '{"_class_name": "CMStochasticIterativeScheduler", "sigma_max": 80}'):
        if said:
            (flat / "scheduler_config.json").write_text(said)
        with pytest.raises(UserError, match="no scheduler"):
            load_generator(f"ddim:{flat}", device="cpu")
    assert cosine.fingerprint == whole.fingerprint != linear.fingerprint


def test_mistakes(make_unet: Callable[..., Any], ddim_folder: Path, tmp_path: Path) -> None:
    scheduler = diffusers.DDPMScheduler()
    with pytest.raises(UserError, match="something else than RGB pixels"):
        Ddim("x", make_unet(in_channels=4, out_channels=4), scheduler, device="cpu")
    with pytest.raises(UserError, match="something else than a class"):
        Ddim("x", make_unet(class_embed_type="timestep"), scheduler, device="cpu")
    generator = load_generator(f"ddim:{ddim_folder}", device="cpu")
    with pytest.raises(UserError, match="16 × 16"):
        generator.encode(images(1, 32))
    free = Ddim("x", make_unet(sample_size=None), scheduler, device="cpu")
    assert free.encode(images(1, 8)).shape == (1, 3, 8, 8)
    with pytest.raises(UserError, match="divisible by 2"):
        free.encode(images(1, 9))
    damaged = Path(shutil.copytree(ddim_folder, tmp_path / "damaged"))
    (damaged / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="damaged"):
        load_generator(f"ddim:{damaged}", device="cpu")


def test_the_embedded_one_reconstructs_scenes() -> None:
    from holdfast.diorama import draw_scene, render

    scenes = [render(draw_scene(seed, split="test"), size=64).image for seed in range(2)]
    batch = torch.stack([torch.from_numpy(one) for one in scenes]).permute(0, 3, 1, 2).float() / 255
    generator = load_generator("embedded:ddim", device="cpu")
    with torch.no_grad():
        made = generator.decode(generator.encode(batch))
    assert (-10 * (made - batch).square().mean((1, 2, 3)).log10() > 26).all()
