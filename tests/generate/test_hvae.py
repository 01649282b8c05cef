"""``hvae:``: a small hierarchical VAE, trained here for seconds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.core.errors import UserError
from holdfast.generators import load_generator
from holdfast.generators.hvae import MixtureNet, parse_blocks


def pictures(count: int, seed: int) -> torch.Tensor:
    """Coloured squares on coloured ground, 16 px."""
    random = torch.Generator().manual_seed(seed)
    colours = torch.rand((2, count, 3, 1, 1), generator=random)
    corner = torch.randint(0, 9, (2, count, 1, 1, 1), generator=random)
    at = torch.arange(16)
    rows, columns = at.view(1, 1, 16, 1) - corner[0], at.view(1, 1, 1, 16) - corner[1]
    inside = (rows >= 0) & (rows < 8) & (columns >= 0) & (columns < 8)
    return torch.where(inside, colours[0], colours[1].expand(-1, -1, 16, 16))


def psnr(made: torch.Tensor, wanted: torch.Tensor) -> float:
    return -10 * float((made - wanted).square().mean().log10())


def test_a_trained_one_reconstructs_through_its_latent(fresh_hvae: Any, hvae_writer: Any, tmp_path: Path) -> None:
    optimiser = torch.optim.Adam(fresh_hvae.parameters(), lr=3e-3)
    divergences = []
    for step in range(110):
        batch = pictures(16, step)
        _, made, divergence = fresh_hvae.infer(batch, sample=True)
        loss = (made - batch).square().sum((1, 2, 3)).mean() + 0.02 * divergence.mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(fresh_hvae.parameters(), 10)
        optimiser.step()
        divergences.append(float(divergence.detach().min()))
    assert min(divergences) >= 0  # a Kullback-Leibler divergence is never negative
    hvae_writer(tmp_path / "squares", fresh_hvae)
    ours = load_generator(f"hvae:{tmp_path / 'squares'}", device="cpu")
    held_out = pictures(16, 1_000_000)
    with torch.no_grad():
        latent = ours.encode(held_out)
        made = ours.decode(latent)
        # The way down from the stored latents is the way down of inference.
        torch.testing.assert_close(made, fresh_hvae.eval().infer(held_out)[1].clamp(0, 1), atol=1e-5, rtol=0)
        changed = ours.decode(latent + 0.1)
    flat = psnr(held_out.mean((2, 3), keepdim=True).expand_as(held_out), held_out)
    assert psnr(made, held_out) > flat + 3
    assert 0 < float((changed - made).abs().mean()) < 0.3
    assert latent.shape == (16, 4 * (1 + 2 * 16 + 2 * 64 + 256))


def test_the_divergence_is_torchs(fresh_hvae: Any) -> None:
    """The first group alone, against torch.distributions."""
    from torch.distributions import Normal, kl_divergence

    image = pictures(3, 0)
    with torch.no_grad():
        for one in fresh_hvae.parameters():
            one.add_(0.02 * torch.randn_like(one))
        seen = fresh_hvae.encoder((image * 255 + fresh_hvae.config.shift) * fresh_hvae.config.scale)
        total = torch.zeros(3)
        states = fresh_hvae.decoder.states()
        for block in fresh_hvae.decoder.dec_blocks:
            hidden = block.begin(states, image)
            mean, spread = block.enc(torch.cat([hidden, seen[block.base]], 1)).chunk(2, 1)
            prior_mean, prior_spread, more = block.believe(hidden)
            both = Normal(mean, spread.exp()), Normal(prior_mean, prior_spread.exp())
            total += kl_divergence(*both).sum((1, 2, 3))
            states[block.base] = block.end(hidden, more, mean)
        torch.testing.assert_close(fresh_hvae.infer(image)[2], total, atol=1e-3, rtol=1e-4)


def test_the_mixtures_mean(fresh_hvae: Any) -> None:
    """One pixel by hand: two logistics; green leans on red, blue on both."""
    net = MixtureNet(fresh_hvae.config)
    answer = torch.zeros((1, 20, 1, 1))
    answer[0, :2, 0, 0] = torch.tensor([0.0, 0.0])  # weights: a half each
    numbers = answer[0, 2:, 0, 0].view(3, 6)  # a colour: two means, two log scales, two pulls
    numbers[0, :2] = torch.tensor([0.2, 0.6])
    numbers[1, :2] = torch.tensor([0.1, 0.1])
    numbers[0, 4:] = 20.0  # tanh → 1: green gets all of red
    numbers[2, :2] = torch.tensor([-0.3, -0.1])
    numbers[1, 4:] = -20.0  # blue loses all of red
    net.out_conv = torch.nn.Identity()
    made = net(answer)[0, :, 0, 0]
    torch.testing.assert_close(made, torch.tensor([0.4, 0.5, -0.6]))


def test_block_strings() -> None:
    assert parse_blocks("32x2,32d2,16") == [(32, "x", 0), (32, "x", 0), (32, "d", 2), (16, "x", 0)]
    assert parse_blocks("1x1,4m1") == [(1, "x", 0), (4, "m", 1)]
    for wrong in ("x", "4m", "ax2", "4x-1", "0x1", ""):
        if wrong == "4m":
            assert parse_blocks(wrong) == [(4, "m", 1)]
            continue
        with pytest.raises(ValueError, match=r"block|int"):
            parse_blocks(wrong)


def test_mistakes_in_the_folder(hvae_folder: Path, tmp_path: Path) -> None:
    def changed(**changes: Any) -> Path:
        folder = tmp_path / "-".join(changes)
        shutil.copytree(hvae_folder, folder)
        said = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(said | changes))
        return folder

    for folder in (changed(width=32), changed(colour="red"), changed(dec_blocks="1y1"), changed(zdim="many")):
        with pytest.raises(UserError, match="cannot be built"):
            load_generator(f"hvae:{folder}", device="cpu")
    huge = changed(no_bias_above=8, width=10_000_000)  # costs nothing: the weights that are there do not fit it
    with pytest.raises(UserError, match="cannot be built"):
        load_generator(f"hvae:{huge}", device="cpu")
    (huge / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"lacks model\.safetensors"):
        load_generator(f"hvae:{huge}", device="cpu")
    ours = load_generator(f"hvae:{hvae_folder}", device="cpu")
    with pytest.raises(UserError, match="16 × 16"):
        ours.encode(torch.zeros((1, 3, 32, 32)))
