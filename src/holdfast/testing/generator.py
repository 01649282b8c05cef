"""``check_generator``: the contract suite of latent generators."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.protocols import LatentGenerator
from holdfast.testing.classifier import loaded_twice

if TYPE_CHECKING:
    import torch

TOLERANCE = 1e-4
_SIDE = 32


def check_generator(generator: LatentGenerator | str, *, device: str = "cpu") -> None:
    """Raise AssertionError with a sentence if a generator, or that of a name, breaks the contract.

    Checked: shapes and range, the inputs left alone, the same answer every time and in every batch, finite gradients
    that reach the latent and stay within their image, a clear refusal of other shapes, what ``quantise`` promises; a
    name loads twice with one fingerprint.
    """
    import torch

    if isinstance(generator, str):
        from holdfast.generators import load_generator

        generator = loaded_twice(load_generator, generator, device)
    assert isinstance(generator, LatentGenerator), "a generator has name, fingerprint, encode and decode"
    assert generator.name and generator.fingerprint, "name and fingerprint may not be empty"
    batch = _batch(_side(generator))
    before = batch.clone()
    with torch.no_grad():
        latent = generator.encode(batch).cpu()
        image = generator.decode(latent.clone(), batch).cpu()
    assert torch.equal(batch, before), "encode or decode changes its input"
    assert len(latent) == len(batch), f"the latent's first axis has {len(latent)} entries for {len(batch)} images"
    assert latent.isfinite().all(), "the latent is finite"
    assert image.shape == batch.shape, f"the image has shape {tuple(image.shape)} where {tuple(batch.shape)} went in"
    assert image.isfinite().all(), "the image is finite"
    assert float(image.min()) >= 0 and float(image.max()) <= 1, "the image is in 0..1"
    _check_batches(generator, batch, latent, image)
    _check_gradients(generator, batch, latent)
    _check_refusals(generator)
    if hasattr(generator, "quantise"):
        _check_quantiser(generator, batch, latent)


def _check_batches(generator: LatentGenerator, batch: torch.Tensor, latent: torch.Tensor, image: torch.Tensor) -> None:
    import torch

    with torch.no_grad():
        assert torch.equal(generator.encode(batch).cpu(), latent), "the same images get another latent"
        assert torch.equal(generator.decode(latent, batch).cpu(), image), "the same latent gets another image"
        for index in range(len(batch)):
            single = slice(index, index + 1)
            alone = generator.encode(batch[single]).cpu()
            # The mean over an image's own numbers: a rounding that tips one code over is no influence of a neighbour.
            assert _apart(alone, latent[single]) < TOLERANCE, f"image {index} alone gets another latent than in a batch"
            shown = generator.decode(latent[single], batch[single]).cpu()
            assert _apart(shown, image[single]) < TOLERANCE, f"latent {index} alone gets another image than in a batch"


def _check_gradients(generator: LatentGenerator, batch: torch.Tensor, latent: torch.Tensor) -> None:
    import torch

    moved = latent.clone().requires_grad_()
    weights = torch.rand(batch.shape[1:], generator=torch.Generator().manual_seed(1))
    answer = generator.decode(moved, batch).cpu()
    assert answer.requires_grad, "gradients of the image do not reach the latent"
    (gradient,) = torch.autograd.grad((answer[0] * weights).sum(), moved)
    assert gradient.isfinite().all(), "gradients of the image are not finite"
    assert (gradient[0] != 0).any(), "gradients of the image do not reach the latent"
    assert not (gradient[1:] != 0).any(), "an image has gradients in the latents of its neighbours"


def _check_refusals(generator: LatentGenerator) -> None:
    import torch

    factor, size = getattr(generator, "factor", 1), getattr(generator, "size", None)
    side = _side(generator)
    wrong = [torch.zeros((1, 1, side, side)), torch.zeros((3, side, side))]
    if factor > 1 or size is not None:
        wrong.append(torch.zeros((1, 3, side + 1, side)))
    for batch in wrong:
        try:
            generator.encode(batch)
        except UserError:
            continue
        raise AssertionError(f"encode should refuse a batch {tuple(batch.shape)} with a UserError")


def _check_quantiser(generator: Any, batch: torch.Tensor, latent: torch.Tensor) -> None:
    import torch

    with torch.no_grad():
        codes = generator.quantise(latent).cpu()
        assert codes.shape == latent.shape, "quantise keeps the latent's shape"
        assert _apart(generator.quantise(codes).cpu(), codes) < TOLERANCE, "quantising twice is quantising once"
        decoded = generator.decode(codes, batch).cpu()
    assert decoded.isfinite().all(), "quantised latents make finite images"


def _side(generator: Any) -> int:
    """Return a side that the generator takes: its own, or the next above 32 that its factor divides."""
    factor, size = getattr(generator, "factor", 1), getattr(generator, "size", None)
    assert isinstance(factor, int) and factor >= 1, "factor is a whole number of pixels"
    assert size is None or (isinstance(size, int) and size >= 1), "size is a number of pixels or None"
    return int(size) if size is not None else factor * math.ceil(_SIDE / factor)


def _batch(side: int) -> torch.Tensor:
    """Return three images: noise over slopes, one of them dark, one bright."""
    import torch

    noise = torch.rand((3, 3, side, side), generator=torch.Generator().manual_seed(20))
    slope = torch.linspace(0, 1, side)[None, None, None] * torch.linspace(0.2, 1, side)[None, None, :, None]
    levels = torch.tensor([0.5, 0.2, 0.9])[:, None, None, None]
    return (0.6 * slope + 0.2 * noise + 0.4 * (levels - 0.4)).clamp(0, 1)


def _apart(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().mean())
