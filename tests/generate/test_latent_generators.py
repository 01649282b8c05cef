from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from holdfast.core.errors import UserError
from holdfast.core.protocols import LatentGenerator
from holdfast.generators import load_generator
from holdfast.generators.autoencoders import Codes


def batch(count: int = 2, side: int = 64) -> torch.Tensor:
    return torch.rand((count, 3, side, side), generator=torch.Generator().manual_seed(0))


def test_vqgan_is_the_librarys_model(vqgan_folder: Path) -> None:
    import diffusers

    ours = load_generator(f"vqgan:{vqgan_folder}", device="cpu")
    assert isinstance(ours, LatentGenerator)
    assert ours.name == "vqgan:codes"
    images = batch()
    latent = ours.encode(images)
    assert latent.shape == (2, 4, 16, 16)
    reference = diffusers.VQModel.from_pretrained(vqgan_folder).eval()
    with torch.no_grad():
        expected = (reference(images * 2 - 1).sample / 2 + 0.5).clamp(0, 1)
    torch.testing.assert_close(ours.decode(latent), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.decode(latent[1:]), expected[1:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("dimensions", [4, 16])  # found by a tree, and by all distances
def test_the_nearest_code_is_the_nearest(dimensions: int) -> None:
    random = torch.Generator().manual_seed(0)
    book, cells = (torch.randn(count, dimensions, generator=random) for count in (500, 200))
    apart = (cells[:, None].double() - book[None].double()).square().sum(2)
    assert torch.equal(Codes(book).nearest(cells), book[apart.argmin(1)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(Codes(book).nearest(cells), book[apart.argmin(1)])
    broken = cells.clone()
    broken[3] = torch.nan  # a walk that has left all numbers stays an image of some code, and the others theirs
    assert torch.equal(Codes(book).nearest(broken)[4:], book[apart.argmin(1)][4:])


@pytest.mark.parametrize("dimensions", [3, 9])
def test_of_codes_as_near_the_first_is_taken(dimensions: int) -> None:
    random = torch.Generator().manual_seed(1)
    book = torch.randint(-2, 3, (400, dimensions), generator=random).float()  # some of them twice
    cells = torch.randint(-5, 6, (300, dimensions), generator=random).float() / 2  # many half-way between two codes
    apart = (cells[:, None].double() - book[None].double()).square().sum(2)
    several = (apart == apart.min(1, keepdim=True).values).sum(1)
    assert (several > 1).sum() > 30
    assert torch.equal(Codes(book).nearest(cells), book[apart.argmin(1)])
    assert torch.equal(Codes(book[:1]).nearest(cells), book[:1].expand(300, -1))


def test_tree_and_all_distances_agree_far_from_small_codes_too() -> None:
    random = torch.Generator().manual_seed(2)
    book = torch.randn(2000, 4, generator=random)
    for scale, away in ((1e-3, 0.0), (1.0, 0.0), (1.0, 30.0), (1e-3, 1.0)):
        codes = Codes(book * scale)
        cells = torch.randn(500, 4, generator=random) * scale + away
        by_tree, by_all = codes.nearest(cells), codes.book[codes._first(cells)]
        exact, other = ((cells.double() - one.double()).square().sum(1) for one in (by_tree, by_all))
        apart = (cells[:, None].double() - codes.book[None].double()).square().sum(2).min(1).values
        assert torch.equal(exact, apart)
        # All distances are float32: of two codes that differ in its last digits it may take either.
        assert ((other - apart) <= 1e-5 * scale * (away + scale)).all()
        assert (by_tree == by_all).all(1).double().mean() >= 0.99


def test_decode_quantises_and_gradients_pass_straight_through(vqgan_folder: Path) -> None:
    ours = load_generator(f"vqgan:{vqgan_folder}", device="cpu")
    codes = ours.module.quantize.embedding.weight  # type: ignore[attr-defined]
    on_grid = codes[torch.arange(256) % 32].view(1, 16, 16, 4).permute(0, 3, 1, 2).contiguous()
    near = (on_grid + 1e-3).requires_grad_()
    image = ours.decode(near)
    torch.testing.assert_close(image, ours.decode(on_grid), atol=1e-5, rtol=0)
    image.square().sum().backward()
    assert near.grad is not None and near.grad.isfinite().all() and (near.grad != 0).any()
    # As if the decoder had been asked for the codes themselves.
    direct = on_grid.clone().requires_grad_()
    through = ours.module.decode(direct, force_not_quantize=True).sample  # type: ignore[attr-defined]
    (through / 2 + 0.5).clamp(0, 1).square().sum().backward()
    torch.testing.assert_close(near.grad, direct.grad, atol=1e-4, rtol=1e-3)


def test_the_quantiser_can_be_left_out_and_asked_alone(vqgan_folder: Path) -> None:
    through = load_generator(f"vqgan:{vqgan_folder}", device="cpu")
    without = load_generator(f"vqgan:{vqgan_folder}?quantise=none", device="cpu")
    latent = through.encode(batch())
    codes = through.quantise(latent)  # type: ignore[attr-defined]
    book = through.module.quantize.embedding.weight  # type: ignore[attr-defined]
    distances = (codes.permute(0, 2, 3, 1)[..., None, :] - book).square().sum(-1)
    wanted = (latent.permute(0, 2, 3, 1)[..., None, :] - book).square().sum(-1)
    assert float(distances.min(-1).values.max()) < 1e-8
    assert torch.equal(distances.argmin(-1), wanted.argmin(-1))
    torch.testing.assert_close(without.decode(codes), through.decode(latent), atol=1e-5, rtol=0)
    assert float((without.decode(latent) - through.decode(latent)).abs().max()) > 1e-3
    with pytest.raises(UserError, match="did you mean straight_through"):
        load_generator(f"vqgan:{vqgan_folder}?quantise=straight", device="cpu")


def test_gradients_reach_the_image(vqgan_folder: Path) -> None:
    ours = load_generator(f"vqgan:{vqgan_folder}", device="cpu")
    images = batch(1).requires_grad_()
    ours.decode(ours.encode(images)).sum().backward()
    assert images.grad is not None and (images.grad != 0).any()
    assert not any(one.requires_grad for one in ours.module.parameters())  # type: ignore[attr-defined]


def test_fingerprint_follows_the_weights(vqgan_folder: Path, tmp_path: Path) -> None:
    import diffusers

    def of(folder: Path) -> str:
        return load_generator(f"vqgan:{folder}", device="cpu").fingerprint

    copy = Path(shutil.copytree(vqgan_folder, tmp_path / "elsewhere"))
    assert of(copy) == of(vqgan_folder)
    model = diffusers.VQModel.from_pretrained(copy)
    with torch.no_grad():
        model.quantize.embedding.weight[0, 0] += 1
    model.save_pretrained(copy)
    assert of(copy) != of(vqgan_folder)


def test_mistakes_are_one_sentence(vqgan_folder: Path, tmp_path: Path) -> None:
    pickled = Path(shutil.copytree(vqgan_folder, tmp_path / "pickled"))
    (pickled / "diffusion_pytorch_model.safetensors").unlink()
    torch.save({}, pickled / "diffusion_pytorch_model.bin")
    empty = tmp_path / "empty"
    empty.mkdir()
    for name, sentence in [
        (f"vqgan:{pickled}", "cannot be loaded|is not a VQModel"),
        (f"vqgan:{empty}", "cannot be loaded|is not a VQModel"),
        ("vqgan:nobody/nothing", "hub cannot be reached"),
        ("vqgna:x", "did you mean vqgan"),
        (str(tmp_path / "x"), "scheme:name"),
        (f"vqgan:{vqgan_folder}?steps=3", "no option"),
        ("embedded:vqgna", "did you mean vqgan"),
    ]:
        with pytest.raises(UserError, match=sentence):
            load_generator(name, device="cpu")


def test_sides_must_fit_the_grid(vqgan_folder: Path) -> None:
    ours = load_generator(f"vqgan:{vqgan_folder}", device="cpu")
    assert ours.encode(batch(1, 32)).shape == (1, 4, 8, 8)
    with pytest.raises(UserError, match="divisible by 4"):
        ours.encode(batch(1, 30))
