"""The batched corruptions against OpenCV's and Pillow's, image by image, with the same random numbers."""

import numpy as np
import pytest
import torch

from holdfast.core.types import CORRUPTIONS, SPARE_CORRUPTIONS
from holdfast.diorama import CLASSES, draw_scene
from holdfast.diorama import render as draw
from holdfast.scenarios import parse_conditions, render
from holdfast.scenarios.corruptions.declaring import scale_of
from holdfast.scenarios.tensors import render_batch
from holdfast.scenarios.tensors.corruptions import Draws, corrupt
from holdfast.testing.scenario import MemoryContext

ALL = parse_conditions(",".join(f"{name}@{level}" for name in CORRUPTIONS + SPARE_CORRUPTIONS for level in range(1, 6)))
FAR = (
    {"jpeg_compression": (0.05, 0.35)} | dict.fromkeys(["snow", "spatter"], (0.002, 0.02)) | {"pixelate": (0.005, 0.2)}
)
"""Largest share of values that differ by more than one, and largest mean difference; elsewhere 0.0005 and 0.2."""


class SameDraws:
    """The numbers that the one-by-one path draws, in its order."""

    def __init__(self, count, reach):
        self.generators = [np.random.default_rng(seed) for seed in range(count)]
        self.reach, self.offsets = reach, []

    def scalars(self, draw):
        return [draw(rng) for rng in self.generators]

    def field(self, draw, shape):
        fields = np.stack([draw(rng) for rng in self.generators]).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(fields, 3, 1)) if len(shape) == 3 else fields)

    def normal(self, *shape):
        number = np.float32 if len(shape) == 3 else np.float64
        return self.field(lambda rng: rng.standard_normal(shape, number), shape)

    def uniform(self, *shape):
        if self.reach:  # frosted glass draws whole offsets, down and across at once
            if not self.offsets:
                pairs = [rng.integers(-self.reach, self.reach, (2, *shape)) for rng in self.generators]
                self.offsets = [np.stack(part) for part in zip(*pairs, strict=True)]
            return torch.from_numpy((self.offsets.pop(0) + self.reach + 0.5) / (2 * self.reach))
        number = np.float32 if len(shape) == 3 else np.float64
        return self.field(lambda rng: rng.random(shape, number), shape)

    def poisson(self, rates):
        pictures = [rate.permute(1, 2, 0).numpy() for rate in rates]
        counts = [rng.poisson(picture) for rng, picture in zip(self.generators, pictures, strict=True)]
        return torch.from_numpy(np.stack(counts).astype(np.float32)).permute(0, 3, 1, 2)


def scenes(height, width):
    return [
        draw(draw_scene(n, split="train", label=CLASSES[n]), max(height, width)).image[:height, :width] for n in (1, 4)
    ]


def batch_of(images):
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()


OTHER_SIZES = [(condition, size) for condition in ALL[2::5] for size in ((300, 331), (64, 96))]


@pytest.mark.parametrize(
    ("condition", "size"),
    [*((condition, (224, 256)) for condition in ALL), *OTHER_SIZES],
    ids=lambda part: getattr(part, "name", None),
)
def test_pictures_agree(condition, size):
    images = scenes(*size)
    pairs = list(enumerate(images))
    expected = np.stack(
        [
            render(condition, image, None, rng=np.random.default_rng(n), context=MemoryContext()).image
            for n, image in pairs
        ]
    )
    reach = 0
    if condition.scenario == "glass_blur":
        reach = max(1, round(condition.parameters["reach"] * scale_of(*expected.shape[1:3])))
    got = corrupt(condition, batch_of(images), SameDraws(len(images), reach)).permute(0, 2, 3, 1).numpy()
    assert got.shape == expected.shape and got.dtype == np.uint8
    apart = np.abs(got.astype(int) - expected)
    share, mean = FAR.get(condition.scenario, (0.0005, 0.2))
    assert (apart > 1).mean() <= share and apart.mean() <= mean, ((apart > 1).mean(), apart.mean(), apart.max())


def test_pictures_depend_on_their_own_key_alone():
    conditions = parse_conditions("gaussian_noise,shot_noise,glass_blur,snow,fog,elastic_transform,frost")
    images = batch_of(scenes(64, 64))
    masks = torch.zeros((2, 64, 64), dtype=torch.bool)
    both = render_batch(conditions, images, masks, sample_ids=["a", "b"], seed=3)
    alone = render_batch(conditions, images[1:], masks[1:], sample_ids=["b"], seed=3)
    other = render_batch(conditions, images[1:], masks[1:], sample_ids=["c"], seed=3)
    for condition in conditions:
        assert torch.equal(both[condition][1:], alone[condition])
        assert not torch.equal(other[condition], alone[condition])


def test_fields_have_their_distribution():
    (condition,) = parse_conditions("gaussian_noise")
    draws = Draws(condition, ["a", "b", "c"], 0, torch.device("cpu"))
    normal, uniform = draws.normal(200, 200, 3), draws.uniform(300, 300)
    assert normal.shape == (3, 3, 200, 200) and uniform.shape == (3, 300, 300)
    assert (
        abs(normal.mean()) < 0.01
        and abs(normal.std() - 1) < 0.01
        and abs((normal > 1.96).float().mean() - 0.025) < 0.002
    )
    assert abs(np.corrcoef(normal.flatten(1).numpy()) - np.eye(3)).max() < 0.02
    assert uniform.min() >= 0 and uniform.max() <= 1 and abs(uniform.var() - 1 / 12) < 0.001
    counts = draws.poisson(torch.full((3, 3, 100, 100), 4.0))
    assert abs(counts.mean() - 4) < 0.05 and abs(counts.var() - 4) < 0.1
