"""Every latent generator of the registry keeps the contract; the contract finds generators that do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.generators import load_generator
from holdfast.testing import check_generator


def names(scheme: str, request: pytest.FixtureRequest) -> list[str]:
    """A loadable name or more of each scheme."""
    if scheme in ("vqgan", "kl", "tiny", "ddim", "hvae"):
        return [f"{scheme}:{request.getfixturevalue(f'{scheme}_folder')}"]
    if scheme in ("gan", "python"):
        module = request.getfixturevalue("python_generators")
        return [f"gan:{module}:StyleGan?steps=5"] if scheme == "gan" else [f"python:{module}:Halves"]
    if scheme == "embedded":
        return ["embedded:vqgan", "embedded:tiny", "embedded:ddim?steps=1"]
    return [f"{scheme}:"]


@pytest.mark.parametrize("scheme", list(registry.generators))
def test_every_generator_keeps_the_contract(scheme: str, request: pytest.FixtureRequest) -> None:
    for name in names(scheme, request):
        check_generator(name)


def test_options_keep_the_contract(vqgan_folder: Path, ddim_folder: Path, python_generators: str) -> None:
    for name in (
        f"vqgan:{vqgan_folder}?quantise=none",
        f"ddim:{ddim_folder}?strength=0.6&steps=2",
        f"gan:{python_generators}:Conditional?steps=3&class=2",
        f"gan:{python_generators}:Conditional?steps=3",
        "noise:?scale=0.1",
    ):
        check_generator(name)


class Broken:
    name = "broken:"
    fingerprint = "0"

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.factor = 4 if fault == "refuses nothing" else 1
        self.calls = 0

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        if (batch.ndim != 4 or batch.shape[1] != 3) and self.fault != "refuses nothing":
            raise UserError("no")
        self.calls += 1
        if self.fault == "mixes":
            return batch - batch.mean(0)
        if self.fault == "drifts":
            return batch + 0.01 * self.calls
        if self.fault == "writes":
            batch.mul_(0.5)
        return batch.clone()

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        image = {
            "detached": lambda: latent.detach().clamp(0, 1),
            "range": lambda: latent * 2 - 1,
            "shape": lambda: latent[..., ::2].clamp(0, 1),
            "shares gradients": lambda: (latent + 0.01 * (latent.roll(1, 0) - latent.roll(1, 0).detach())).clamp(0, 1),
            "not finite": lambda: latent / 0,
        }.get(self.fault, lambda: latent.clamp(0, 1))()
        return image


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("mixes", "alone gets another latent"),
        ("drifts", "same images get another latent"),
        ("writes", "changes its input"),
        ("detached", "do not reach the latent"),
        ("range", "in 0..1"),
        ("shape", "shape"),
        ("shares gradients", "latents of its neighbours"),
        ("not finite", "finite"),
        ("refuses nothing", "should refuse"),
    ],
)
def test_check_generator_finds_faults(fault: str, sentence: str) -> None:
    check_generator(Broken(""))
    with pytest.raises(AssertionError, match=sentence):
        check_generator(Broken(fault))


def test_check_generator_finds_a_quantiser_that_wanders() -> None:
    generator = Broken("")
    generator.quantise = lambda latent: latent + 1  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="quantising twice"):
        check_generator(generator)


def test_fingerprints_tell_generators_apart(
    vqgan_folder: Path, ddim_folder: Path, kl_folder: Path, tiny_folder: Path, hvae_folder: Path, python_generators: str
) -> None:
    every = [
        f"vqgan:{vqgan_folder}", f"vqgan:{vqgan_folder}?quantise=none", f"kl:{kl_folder}", f"tiny:{tiny_folder}",
        f"ddim:{ddim_folder}", f"ddim:{ddim_folder}?steps=2", f"ddim:{ddim_folder}?strength=0.5", f"hvae:{hvae_folder}",
        "pixel:", "noise:", "noise:?scale=0.5", "rotate:", f"gan:{python_generators}:StyleGan",
        f"gan:{python_generators}:StyleGan?steps=7", f"python:{python_generators}:Halves",
    ]  # fmt: skip
    loaded = [load_generator(name, device="cpu") for name in every]
    assert len({one.fingerprint for one in loaded}) == len(every)
    assert len({one.name for one in loaded}) == len(every)
    assert not any(str(vqgan_folder.parent) in one.name for one in loaded)  # names show no folders of this machine


def test_mistakes_in_names_are_one_sentence(ddim_folder: Path, python_generators: str, hvae_folder: Path) -> None:
    for name, sentence in [
        ("pixel:x", "takes no name"),
        ("pixel:?scale=1", "no option"),
        ("noise:?scale=much", "is not a float"),
        (f"python:{python_generators}:No one", "no attribute"),
        (f"python:{python_generators}", "reads python:MODULE:ATTRIBUTE"),
        (f"python:{python_generators}:nothing", "is not a factory"),
        (f"python:{python_generators}:StyleGan", "has no encode and decode"),
        (f"gan:{python_generators}:Halves", "has no mapping and synthesis"),
        ("gan:no_such_module:x", "no module"),
        (f"gan:{python_generators}:Conditional?class=5", "5 classes"),
        (f"ddim:{ddim_folder}?strength=0", "strength"),
        (f"ddim:{ddim_folder}?class=1", "knows no classes"),
        (f"ddim:{ddim_folder}?schedule=curly", "linear or cosine"),
        (f"kl:{ddim_folder / 'unet'}", "holds a model of class UNet2DModel, not AutoencoderKL; choose the scheme"),
        (f"tiny:{ddim_folder / 'unet'}", "holds a model of class UNet2DModel, not AutoencoderTiny"),
        (f"hvae:{ddim_folder}", "lacks config.json"),
        (f"hvae:{hvae_folder / 'nowhere'}", "reads a folder"),
        ("kl:nobody/nothing", "hub cannot be reached"),
        ("tiny:nobody/nothing", "hub cannot be reached"),
        ("ddim:nobody/nothing", "hub cannot be reached"),
        ("embedded:tony", "did you mean tiny"),
    ]:
        with pytest.raises(UserError, match=sentence):
            load_generator(name, device="cpu")
