"""``tiny:``: diffusers' AutoencoderTiny and the original files of TAESD and TAEF2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
import torch.nn.functional as functional

from holdfast.core.errors import UserError
from holdfast.generators import load_generator

SHARED = Path(__file__).parents[2].parent / "shared"


def test_the_librarys_model(tiny_folder: Path) -> None:
    import diffusers

    ours = load_generator(f"tiny:{tiny_folder}", device="cpu")
    images = torch.rand((2, 3, 16, 24), generator=torch.Generator().manual_seed(0))
    reference = diffusers.AutoencoderTiny.from_pretrained(tiny_folder).eval()
    with torch.no_grad():
        latent = reference.encode(images * 2 - 1).latents
        expected = (reference.decode(latent).sample / 2 + 0.5).clamp(0, 1)
    torch.testing.assert_close(ours.encode(images), latent)
    torch.testing.assert_close(ours.decode(latent), expected)
    assert latent.shape == (2, 4, 4, 6)


def random_files(folder: Path, *, width: int, latent: int, branch: int) -> dict[str, dict[str, torch.Tensor]]:
    """Weights by position in TAESD's chains; ``branch`` is the inner width of TAEF2's, 0 for TAESD."""
    random = torch.Generator().manual_seed(0)

    def convolution(before: int, after: int, kernel: int = 3, *, biased: bool = True) -> dict[str, torch.Tensor]:
        made = {"weight": torch.randn((after, before, kernel, kernel), generator=random) * (before * kernel**2) ** -0.5}
        return made | ({"bias": 0.1 * torch.randn(after, generator=random)} if biased else {})

    def block(*, lowest: bool = False) -> dict[str, torch.Tensor]:
        parts = {f"conv.{at}": convolution(width, width) for at in (0, 2, 4)}
        if lowest and branch:
            parts |= {
                "pool.0": convolution(width, branch, 1, biased=False),
                "pool.1": {
                    "weight": torch.rand(branch, generator=random),
                    "bias": torch.rand(branch, generator=random),
                },
                "pool.3": convolution(branch, width, 1, biased=False),
            }
        return {f"{part}.{key}": one for part, weights in parts.items() for key, one in weights.items()}

    def narrow() -> dict[str, torch.Tensor]:
        return convolution(width, width, biased=False)

    encoder = {
        0: convolution(3, width),
        1: block(),
        2: narrow(),
        6: narrow(),
        10: narrow(),
        14: convolution(width, latent),
    }
    encoder |= {at: block(lowest=at > 10) for at in (3, 4, 5, 7, 8, 9, 11, 12, 13)}
    decoder = {1: convolution(latent, width), 7: narrow(), 12: narrow(), 17: narrow(), 19: convolution(width, 3)}
    decoder |= {at: block(lowest=at < 6) for at in (3, 4, 5, 8, 9, 10, 13, 14, 15, 18)}
    files = {}
    for name, chain in (("encoder", encoder), ("decoder", decoder)):
        files[name] = {f"{at}.{key}": one for at, weights in chain.items() for key, one in weights.items()}
        torch.save(files[name], folder / f"{name}.pth")
    return files


def follow(state: dict[str, torch.Tensor], hidden: torch.Tensor, *, encoding: bool) -> torch.Tensor:
    """The chain as its description reads, position by position."""
    strided, enlarged, activated = ((2, 6, 10), (), ()) if encoding else ((), (7, 12, 17), (1,))
    for at in range(20):
        here = {key.partition(".")[2]: one for key, one in state.items() if key.partition(".")[0] == str(at)}
        if not here:
            continue
        if "weight" in here:
            if at in enlarged:
                hidden = hidden.repeat_interleave(2, 2).repeat_interleave(2, 3)
            stride = 2 if at in strided else 1
            hidden = functional.conv2d(hidden, here["weight"], here.get("bias"), stride=stride, padding=1)
            hidden = hidden.relu() if at in activated else hidden
            continue
        if "pool.0.weight" in here:
            inner = functional.conv2d(hidden, here["pool.0.weight"])
            inner = functional.group_norm(inner, 4, here["pool.1.weight"], here["pool.1.bias"]).relu()
            hidden = hidden + functional.conv2d(inner, here["pool.3.weight"])
        answer = hidden
        for part in (0, 2, 4):
            answer = functional.conv2d(answer, here[f"conv.{part}.weight"], here[f"conv.{part}.bias"], padding=1)
            answer = answer.relu() if part < 4 else answer
        hidden = (hidden + answer).relu()
    return hidden


@pytest.mark.parametrize(("latent", "branch"), [(4, 0), (6, 12)], ids=["taesd", "taef2"])
def test_original_files_are_the_chain_they_describe(tmp_path: Path, latent: int, branch: int) -> None:
    files = random_files(tmp_path, width=8, latent=latent, branch=branch)
    ours = load_generator(f"tiny:{tmp_path}", device="cpu")
    images = torch.rand((2, 3, 16, 24), generator=torch.Generator().manual_seed(1))
    expected = follow(files["encoder"], images, encoding=True)
    assert expected.shape == (2, latent, 2, 3)
    torch.testing.assert_close(ours.encode(images), expected, atol=1e-4, rtol=1e-4)
    image = follow(files["decoder"], 3 * torch.tanh(expected / 3), encoding=False).clamp(0, 1)
    assert float(image.std()) > 0.01
    torch.testing.assert_close(ours.decode(expected), image, atol=1e-4, rtol=1e-4)


def test_broken_folders_get_one_sentence(tmp_path: Path) -> None:
    random_files(tmp_path, width=8, latent=4, branch=0)
    (tmp_path / "decoder.pth").unlink()
    with pytest.raises(UserError, match="lacks decoder"):
        load_generator(f"tiny:{tmp_path}", device="cpu")
    torch.save({"1.weight": torch.ones(2)}, tmp_path / "decoder.pth")
    with pytest.raises(UserError, match="holds no TAESD"):
        load_generator(f"tiny:{tmp_path}", device="cpu")
    torch.save([1], tmp_path / "decoder.pth")
    with pytest.raises(UserError, match="no tensors by name"):
        load_generator(f"tiny:{tmp_path}", device="cpu")
    torch.save({"x": Path("an object")}, tmp_path / "decoder.pth")
    with pytest.raises(UserError, match="no tensors by name"):
        load_generator(f"tiny:{tmp_path}", device="cpu")
    (tmp_path / "decoder.pth").write_bytes(b"nothing")
    with pytest.raises(UserError, match="is not a file of weights"):
        load_generator(f"tiny:{tmp_path}", device="cpu")


@pytest.mark.skipif(not (SHARED / "weights" / "taef2").is_dir(), reason="the TAEF2 weights are not on this machine")
def test_taef2_reconstructs_a_photo() -> None:
    ours = load_generator(f"tiny:{SHARED / 'weights' / 'taef2'}", device="cpu")
    assert ours.factor == 8  # type: ignore[attr-defined]
    file = sorted((SHARED / "photos" / "pets12" / "images").rglob("*.jpg"))[0]
    photo = PIL.Image.open(file).convert("RGB").resize((224, 224), PIL.Image.Resampling.LANCZOS)
    image = torch.from_numpy(np.array(photo)).permute(2, 0, 1)[None].float() / 255
    with torch.no_grad():
        latent = ours.encode(image)
        made = ours.decode(latent)
    assert latent.shape == (1, 32, 28, 28)
    assert -10 * float((made - image).square().mean().log10()) > 28


def test_the_embedded_one_reconstructs_scenes() -> None:
    from holdfast.diorama import draw_scene, render

    scenes = [render(draw_scene(seed, split="test"), size=64).image for seed in range(8)]
    batch = torch.stack([torch.from_numpy(one) for one in scenes]).permute(0, 3, 1, 2).float() / 255
    generator = load_generator("embedded:tiny", device="cpu")
    with torch.no_grad():
        made = generator.decode(generator.encode(batch))
    # Scenes with camera noise; 25.2 without, says the card.
    assert float((-10 * (made - batch).square().mean((1, 2, 3)).log10()).mean()) > 23
