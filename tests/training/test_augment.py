"""Augmentation moves images and class maps together and keeps ranges and targets."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from holdfast.training import augment

_SPEC = importlib.util.spec_from_file_location(
    "strong_augment", Path(__file__).parents[2] / "recipes" / "strong_augment.py"
)
assert _SPEC is not None and _SPEC.loader is not None
strong_augment = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(strong_augment)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def picture_batch(count: int = 16) -> torch.Tensor:
    return torch.rand(count, 3, 24, 32)


def test_shuffled_batches_cover_an_epoch_once() -> None:
    batches = list(augment.shuffled(23, 5, "cpu"))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5]
    indices = torch.cat(batches).tolist()
    assert len(set(indices)) == 20 and indices != sorted(indices)


def test_no_moves_change_nothing() -> None:
    images = picture_batch()
    grid = augment.move_grid(images, augment.Moves(rotation=0, zoom=0, shift=0, flip=False))
    torch.testing.assert_close(augment.move(images, grid), images, atol=1e-5, rtol=0)


def test_flips_mirror_about_half_of_the_images() -> None:
    images = picture_batch(64)
    moved = augment.move(images, augment.move_grid(images, augment.Moves(rotation=0, zoom=0, shift=0)))
    mirrored = (moved - images.flip(-1)).abs().amax((1, 2, 3)) < 1e-4
    kept = (moved - images).abs().amax((1, 2, 3)) < 1e-4
    assert bool((mirrored ^ kept).all())
    assert 16 <= int(mirrored.sum()) <= 48


def test_class_maps_move_with_their_images() -> None:
    maps = torch.zeros(32, 1, 64, 64)
    maps[:, :, 20:40, 25:50] = 7
    grid = augment.move_grid(maps, augment.Moves(rotation=25, zoom=0.3, shift=0.2))
    image = augment.move(maps / 7, grid)
    moved = augment.move(maps, grid, nearest=True)
    assert set(moved.unique().tolist()) == {0.0, 7.0}
    disagree = (image > 0.5) != (moved > 3)
    assert float(disagree.float().mean()) < 0.01
    assert float((moved != maps).float().mean()) > 0.02


def test_zoom_keeps_within_its_range() -> None:
    maps = torch.zeros(200, 1, 64, 64)
    maps[:, :, 24:40, 24:40] = 1
    moved = augment.move(maps, augment.move_grid(maps, augment.Moves(rotation=0, zoom=0.2, shift=0)))
    area = moved.sum((1, 2, 3)) / 256
    assert 0.6 < float(area.min()) < 0.8 and 1.25 < float(area.max()) < 1.55


@pytest.mark.parametrize("change", [augment.camera, strong_augment.recolour, strong_augment.erase])
def test_pixels_stay_in_range_and_change(change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    images = picture_batch(64)
    changed = change(images)
    assert changed.shape == images.shape
    assert float(changed.min()) >= 0 and float(changed.max()) <= 1
    assert float((changed != images).float().mean()) > 0.02


def test_recolouring_keeps_grey_grey() -> None:
    grey = torch.rand(64, 1, 8, 8).expand(-1, 3, -1, -1)
    changed = strong_augment.recolour(grey)
    torch.testing.assert_close(changed, changed.mean(1, keepdim=True).expand(-1, 3, -1, -1), atol=1e-5, rtol=0)


def test_cutmix_mixes_targets_by_pixels() -> None:
    labels = torch.arange(50) % 5
    images = labels.float().view(-1, 1, 1, 1).expand(-1, 3, 40, 40)
    targets = torch.nn.functional.one_hot(labels, 5).float()
    mixed, shares = strong_augment.cutmix(images, targets)
    counted = torch.stack([(mixed[:, 0] == label).float().mean((1, 2)) for label in range(5)], 1)
    torch.testing.assert_close(counted, shares)
    assert bool((shares.max(1).values < 1).any())
