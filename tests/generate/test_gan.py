"""``gan:``: inversion in w+."""

from __future__ import annotations

import importlib

import pytest
import torch

from holdfast.core.errors import UserError
from holdfast.generators import load_generator
from holdfast.generators.gan import Gan


def test_its_own_pictures_are_found_again(python_generators: str) -> None:
    generator = load_generator(f"gan:{python_generators}:StyleGan?steps=300", device="cpu")
    assert isinstance(generator, Gan)
    assert generator.size == 16
    with torch.no_grad():
        w = generator.pair.mapping(torch.randn((3, 8), generator=torch.Generator().manual_seed(5)))
        wanted = (generator.pair.synthesis(w, noise_mode="const") / 2 + 0.5).clamp(0, 1)
    latent = generator.encode(wanted)
    assert latent.shape == (3, 3, 12)
    made = generator.decode(latent)
    mean = generator.decode(torch.zeros_like(latent))
    error, at_the_mean = ((one - wanted).square().mean((1, 2, 3)) for one in (made, mean))
    assert (error < 0.02 * at_the_mean).all()
    assert (-10 * error.log10() > 35).all()


def test_more_steps_are_never_worse_than_none(python_generators: str) -> None:
    """Also for images it cannot make, and inside inference mode."""
    wanted = torch.rand((2, 3, 16, 16), generator=torch.Generator().manual_seed(0))
    none = load_generator(f"gan:{python_generators}:StyleGan?steps=0", device="cpu")
    some = load_generator(f"gan:{python_generators}:StyleGan?steps=20&rate=5", device="cpu")
    with torch.inference_mode():
        assert not none.encode(wanted).any()
        for generator in (none, some):
            assert generator.encode(wanted).isfinite().all()
        before = (none.decode(none.encode(wanted)) - wanted).square().mean((1, 2, 3))
        after = (some.decode(some.encode(wanted)) - wanted).square().mean((1, 2, 3))
    assert (after <= before * 1.2).all()


def test_mean_and_spread_are_those_of_w(python_generators: str) -> None:
    generator = load_generator(f"gan:{python_generators}:StyleGan?steps=0", device="cpu")
    assert isinstance(generator, Gan)
    with torch.no_grad():
        w = generator.pair.mapping(torch.randn((20_000, 8), generator=torch.Generator().manual_seed(1)))
        expected = generator.pair.synthesis(w.mean(0, keepdim=True), noise_mode="const") / 2 + 0.5
    torch.testing.assert_close(generator.decode(torch.zeros((1, 3, 12))), expected.clamp(0, 1), atol=0.03, rtol=0)
    assert float(generator._spread) == pytest.approx(float((w - w.mean(0)).square().mean().sqrt()), rel=0.05)


def test_classes_move_the_mean(python_generators: str) -> None:
    importlib.import_module(python_generators)
    means = [
        load_generator(f"gan:{python_generators}:Conditional?steps=0{more}", device="cpu")._mean.mean()  # type: ignore[attr-defined]
        for more in ("&class=0", "&class=4", "")
    ]
    assert float(means[1] - means[0]) == pytest.approx(4, abs=1e-4)
    assert float(means[2] - means[0]) == pytest.approx(2, abs=0.05)


def test_another_size_is_refused(python_generators: str) -> None:
    generator = load_generator(f"gan:{python_generators}:StyleGan", device="cpu")
    with pytest.raises(UserError, match="16 × 16"):
        generator.encode(torch.zeros((1, 3, 32, 32)))
    generator.size = None  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="synthesis makes images"):
        generator.encode(torch.zeros((1, 3, 32, 32)))
