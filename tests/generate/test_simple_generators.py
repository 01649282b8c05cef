"""Generators without weights, against plain arithmetic and OpenCV."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.generators import load_generator


def smooth(height: int = 48, width: int = 64) -> torch.Tensor:
    """An image without edges, so that two ways to interpolate agree."""
    rows, columns = torch.meshgrid(torch.linspace(0, 3, height), torch.linspace(0, 4, width), indexing="ij")
    waves = [0.5 + 0.4 * torch.sin(rows * a + columns * b) for a, b in ((1, 2), (2, 0.5), (0.3, 1))]
    return torch.stack(waves)[None]


def test_pixel_and_noise_are_what_they_say() -> None:
    batch = torch.rand((2, 3, 5, 7), generator=torch.Generator().manual_seed(0))
    pixel = load_generator("pixel:", device="cpu")
    assert torch.equal(pixel.decode(pixel.encode(batch)), batch)
    assert torch.equal(pixel.decode(batch + 0.5), (batch + 0.5).clamp(max=1))
    noise = load_generator("noise:?scale=0.5", device="cpu")
    latent = noise.encode(batch)
    assert not latent.any()
    assert torch.equal(noise.decode(latent, batch), batch)
    torch.testing.assert_close(noise.decode(latent - 0.2, batch), (batch - 0.1).clamp(min=0))
    for scheme in ("noise:", "rotate:"):
        with pytest.raises(UserError, match="needs the original"):
            load_generator(scheme, device="cpu").decode(latent)


def test_a_zero_latent_leaves_the_image_alone() -> None:
    rotate = load_generator("rotate:", device="cpu")
    batch = torch.rand((2, 3, 33, 47), generator=torch.Generator().manual_seed(0))
    latent = rotate.encode(batch)
    assert latent.shape == (2, 4) and not latent.any()
    torch.testing.assert_close(rotate.decode(latent, batch), batch, atol=1e-4, rtol=0)


@given(turn=st.floats(-0.2, 0.2), right=st.floats(-0.1, 0.1), down=st.floats(-0.1, 0.1), doublings=st.floats(-0.2, 0.2))
@settings(deadline=None, max_examples=40)
def test_moves_are_opencvs(turn: float, right: float, down: float, doublings: float) -> None:
    image = smooth()
    height, width = image.shape[-2:]
    rotate = load_generator("rotate:", device="cpu")
    ours = rotate.decode(torch.tensor([[turn, right, down, doublings]]), image)[0].permute(1, 2, 0).numpy()
    # OpenCV turns against the clock for positive degrees and puts pixel centres on whole numbers.
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -180 * turn, 2.0**doublings)
    matrix[:, 2] += (right * width, down * height)
    pixels = np.ascontiguousarray(image[0].permute(1, 2, 0).numpy())
    theirs = cv2.warpAffine(pixels, matrix, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    inner = slice(12, -12)  # both mirror beyond the edges, but by half a pixel differently
    assert np.abs(ours - theirs)[inner, inner].mean() < 5e-3
    assert np.abs(ours - theirs)[inner, inner].max() < 0.03


def test_gradients_turn_the_image() -> None:
    """Climbing towards a turned copy finds the angle."""
    rotate = load_generator("rotate:", device="cpu")
    image = smooth()
    wanted = rotate.decode(torch.tensor([[0.05, 0.02, -0.03, 0.1]]), image)
    latent = rotate.encode(image).requires_grad_()
    optimiser = torch.optim.Adam([latent], lr=0.01)
    for _ in range(120):
        optimiser.zero_grad()
        (rotate.decode(latent, image) - wanted).square().sum().backward()
        optimiser.step()
    torch.testing.assert_close(latent.detach()[0], torch.tensor([0.05, 0.02, -0.03, 0.1]), atol=5e-3, rtol=0)


def test_kl_is_the_librarys_mean_scaled(kl_folder) -> None:  # type: ignore[no-untyped-def]
    import diffusers

    ours = load_generator(f"kl:{kl_folder}", device="cpu")
    batch = torch.rand((2, 3, 16, 24), generator=torch.Generator().manual_seed(0))
    reference = diffusers.AutoencoderKL.from_pretrained(kl_folder).eval()
    with torch.no_grad():
        mean = reference.encode(batch * 2 - 1).latent_dist.mode()
        expected = (reference.decode(mean).sample / 2 + 0.5).clamp(0, 1)
    latent = ours.encode(batch)
    torch.testing.assert_close(latent, (mean - 0.25) * 0.5)
    torch.testing.assert_close(ours.decode(latent), expected, atol=1e-5, rtol=1e-4)


def test_python_takes_objects_classes_and_originals(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "several_generators.py").write_text(
        "class Keeper:\n"
        "    factor, size, fingerprint = 3, 9, 'mine'\n"
        "    def __init__(self, device='?'):\n        self.device = device\n"
        "    def encode(self, batch):\n        return batch.mean((2, 3))\n"
        "    def decode(self, latent, original):\n        return original * latent[:, :, None, None]\n"
        "    def quantise(self, latent):\n        return latent.round()\n"
        "ready = Keeper()\n"
    )
    monkeypatch.chdir(tmp_path)
    batch = torch.ones((2, 3, 9, 9)) / 2
    for name in ("Keeper", "ready"):
        ours = load_generator(f"python:several_generators:{name}", device="cpu")
        torch.testing.assert_close(ours.decode(ours.encode(batch), batch), batch / 2)
        assert (ours.factor, ours.size) == (3, 9)  # type: ignore[attr-defined]
        assert torch.equal(ours.quantise(torch.tensor([0.6])), torch.tensor([1.0]))  # type: ignore[attr-defined]
    made = load_generator("python:several_generators:Keeper", device="cpu")
    assert made._target.device == "cpu"  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="9 × 9"):
        ours.encode(torch.ones((1, 3, 12, 12)))
