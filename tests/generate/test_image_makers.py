from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.core.errors import SampleError, UserError
from holdfast.core.protocols import Inpainter, TextToImage
from holdfast.generators import load_image_maker
from holdfast.generators.embedded import EmbeddedImageMaker, load_parts, sample
from holdfast.generators.loading import noise
from tiny_diffusion import save_sdxl

PROMPTS = ["a fox in the snow", "a whale in the sea", "a fox"]
SEEDS = [3, 4, 2**40]


@pytest.fixture(params=["diffusers", "embedded"])
def maker(request: pytest.FixtureRequest, pipeline_folder: Path, embedded_folders: dict[str, Path]):
    if request.param == "diffusers":
        return load_image_maker(f"diffusers:{pipeline_folder}?steps=2&batch=2", device="cpu")
    folders = [embedded_folders[name] for name in ("text_to_image", "vqgan", "oracle")]
    return EmbeddedImageMaker("embedded:tiny", load_parts(*folders, device="cpu"))


def close(first: np.ndarray, second: np.ndarray) -> bool:
    """Equal but for a step of rounding in a few places: batches of another size compute in another order."""
    return bool((np.abs(first.astype(int) - second).max() <= 2) and (first != second).mean() < 0.05)


def scenes() -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    sizes = [(64, 64), (50, 90), (70, 64)]
    images = [rng.integers(0, 256, (*size, 3), np.uint8) for size in sizes]
    masks = [rng.random(size) < 0.3 for size in sizes]
    return images, masks


def test_an_image_depends_on_its_own_prompt_and_seed(maker) -> None:
    assert isinstance(maker, TextToImage) and maker.name and maker.fingerprint
    images = maker.generate(PROMPTS, SEEDS)
    assert [image.dtype for image in images] == [np.uint8] * 3
    assert all(image.ndim == 3 and image.shape[2] == 3 for image in images)
    assert close(images[2], maker.generate(PROMPTS[2:], SEEDS[2:])[0])
    assert close(images[1], maker.generate(PROMPTS[::-1], SEEDS[::-1])[1])
    other_seed, other_prompt = maker.generate([PROMPTS[0], PROMPTS[1]], [9, 3])
    assert not close(images[0], other_seed)
    assert (images[0] != other_prompt).any()
    assert maker.generate([], []) == []


def test_inpainting_keeps_the_foreground_bit_for_bit(maker) -> None:
    assert isinstance(maker, Inpainter)
    images, masks = scenes()
    before = [image.copy() for image in images]
    painted = maker.inpaint(PROMPTS, SEEDS, images, masks)
    for new, old, mask, copy in zip(painted, images, masks, before, strict=True):
        assert new.shape == old.shape and new.dtype == np.uint8
        np.testing.assert_array_equal(new[mask], old[mask])
        assert (new[~mask] != old[~mask]).any(axis=1).mean() > 0.9
        np.testing.assert_array_equal(old, copy)
    again = maker.inpaint(PROMPTS[:1], [SEEDS[0] + 1], images[:1], masks[:1])[0]
    assert (again[~masks[0]] != painted[0][~masks[0]]).any()


def test_inpainting_with_everything_kept_gives_the_image_back(maker) -> None:
    images, masks = scenes()
    whole = [np.ones_like(mask) for mask in masks]
    for new, old in zip(maker.inpaint(PROMPTS, SEEDS, images, whole), images, strict=True):
        np.testing.assert_array_equal(new, old)


def test_lists_must_pair_up(maker) -> None:
    images, masks = scenes()
    with pytest.raises(UserError, match="do not pair up"):
        maker.generate(PROMPTS, SEEDS[:2])
    with pytest.raises(UserError, match="expected equally many"):
        maker.inpaint(PROMPTS, SEEDS, images[:2], masks)
    with pytest.raises(SampleError, match="mask is"):
        maker.inpaint(PROMPTS, SEEDS, images, [mask[1:] for mask in masks])


def test_diffusers_is_the_librarys_pipeline(pipeline_folder: Path) -> None:
    import diffusers

    ours = load_image_maker(f"diffusers:{pipeline_folder}?steps=2&guidance=3", device="cpu").generate(PROMPTS[:1], [5])
    pipeline = diffusers.StableDiffusionPipeline.from_pretrained(pipeline_folder)
    pipeline.set_progress_bar_config(disable=True)
    theirs = pipeline(
        PROMPTS[0], num_inference_steps=2, guidance_scale=3, generator=torch.Generator().manual_seed(5)
    ).images[0]
    np.testing.assert_array_equal(ours[0], np.asarray(theirs))


def test_sdxl_with_its_two_text_towers(tmp_path: Path) -> None:
    pipeline = save_sdxl(tmp_path / "sdxl")
    maker = load_image_maker(f"diffusers:{tmp_path / 'sdxl'}?steps=2&size=64", device="cpu")
    image, other = maker.generate(PROMPTS[:2], SEEDS[:2])
    pipeline.set_progress_bar_config(disable=True)
    drawn = pipeline(
        PROMPTS[0], height=64, width=64, num_inference_steps=2, generator=torch.Generator().manual_seed(SEEDS[0])
    ).images[0]
    assert image.shape == (64, 64, 3) and close(image, np.asarray(drawn)) and not close(image, other)
    images, masks = scenes()
    painted = maker.inpaint(PROMPTS, SEEDS, images, masks)
    for new, old, mask in zip(painted, images, masks, strict=True):
        assert (new[mask] == old[mask]).all() and (new[~mask] != old[~mask]).any()


def test_options_change_images_and_fingerprint(pipeline_folder: Path) -> None:
    def made(options: str):
        return load_image_maker(f"diffusers:{pipeline_folder}?{options}", device="cpu")

    base, longer, batched = made("steps=1"), made("steps=2"), made("steps=1&batch=1")
    assert base.fingerprint != longer.fingerprint
    assert base.fingerprint == batched.fingerprint
    assert made("steps=1&size=48").generate(["a fox"], [0])[0].shape == (48, 48, 3)
    assert base.name == "diffusers:tiny?steps=1"


def test_unsafe_or_wrong_folders_are_refused(pipeline_folder: Path, tmp_path: Path) -> None:
    pickled = Path(shutil.copytree(pipeline_folder, tmp_path / "pickled"))
    (pickled / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    torch.save({}, pickled / "unet" / "diffusion_pytorch_model.bin")
    for name, sentence in [
        (f"diffusers:{pickled}", "cannot be loaded"),
        (f"diffusers:{tmp_path}", "cannot be loaded"),
        ("diffusers:nobody/nothing", "hub cannot be reached"),
        (f"diffusers:{pipeline_folder}?dtype=int8", "dtype"),
        (f"diffusers:{pipeline_folder}?stps=3", "did you mean steps"),
        (f"diffusers:{pipeline_folder}?steps=-1", "negative"),
        ("embedded:text_to_imgae", "did you mean text_to_image"),
    ]:
        with pytest.raises(UserError, match=sentence):
            load_image_maker(name, device="cpu")


def test_a_perfect_velocity_leads_to_the_latent(embedded_folders: dict[str, Path]) -> None:
    """A UNet that knows the target must end there, whatever the noise, with and without guidance."""
    folders = [embedded_folders[name] for name in ("text_to_image", "vqgan", "oracle")]
    parts = load_parts(*folders, device="cpu")
    target = torch.randn((2, 4, 16, 16), generator=torch.Generator().manual_seed(0))

    class Perfect:
        def __call__(self, channels, timesteps, **_):  # type: ignore[no-untyped-def]
            mixed, sigma = channels[:, :4], timesteps.view(-1, 1, 1, 1) / 1000
            return ((mixed - target.repeat(len(mixed) // 2, 1, 1, 1)) / sigma,)

    known = type(parts)(Perfect(), parts.scheduler, parts.text, parts.vqgan, parts.settings, "cpu")
    start = noise([1, 2], (4, 16, 16))
    for guidance in (1.0, 3.0):
        reached = sample(known, parts.text(["a fox", "a whale"]), start, torch.zeros(2, 5, 16, 16), 7, guidance)
        torch.testing.assert_close(reached, target, atol=1e-4, rtol=0)


def test_latents_are_scaled_and_back(embedded_folders: dict[str, Path]) -> None:
    folders = [embedded_folders[name] for name in ("text_to_image", "vqgan", "oracle")]
    parts = load_parts(*folders, device="cpu")
    images = torch.rand((1, 3, 64, 64), generator=torch.Generator().manual_seed(0))
    scaled = parts.latents(images)
    torch.testing.assert_close(scaled[:, 1] * 2, parts.vqgan.encode(images)[:, 1], atol=1e-5, rtol=0)
    torch.testing.assert_close(
        parts.pictures(scaled), parts.vqgan.decode(parts.vqgan.encode(images)), atol=1e-4, rtol=0
    )


def test_noise_follows_the_seed_alone() -> None:
    together = noise([5, 6], (3, 2))
    torch.testing.assert_close(together[1:], noise([6], (3, 2)), atol=0, rtol=0)
    assert (together[0] != together[1]).all()


def test_values_outside_the_range_are_black_and_white_and_never_wrap_round() -> None:
    from holdfast.generators.diffusers import _images

    batch = torch.tensor([-0.2, 0.0, 0.5, 1.0, 1.3]).view(1, 1, 1, 5).expand(1, 3, 1, 5)
    for answer in (batch, batch.permute(0, 2, 3, 1).numpy()):
        (image,) = _images(answer)
        assert image[0, :, 0].tolist() == [0, 0, 128, 255, 255]
    (dark,) = _images(torch.full((1, 3, 2, 2), float("nan")))
    assert not dark.any()
