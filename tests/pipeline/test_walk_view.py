"""What a model sees of an image in a walk: what ``predict`` shows it, or all of it."""

from __future__ import annotations

import numpy as np
import PIL.Image
import pytest
import torch

from holdfast.core.types import LabelSpace
from holdfast.data.labels import LabelMap
from holdfast.models.torch_classifier import Geometry, Preprocessing, TorchClassifier, as_batch
from holdfast.pipeline.walk.resources import UnderTest, crop_of, seen

CLASSES = ("dark", "bright")


class Brightness(torch.nn.Module):
    """Is what it sees bright?"""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(20.0))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        lightness = batch.mean((1, 2, 3)) - 0.5
        return torch.stack([-self.weight * lightness, self.weight * lightness], 1)


def cropping() -> TorchClassifier:
    """A classifier that resizes to 64 pixels and keeps the middle 32."""

    def prepared(picture: PIL.Image.Image) -> torch.Tensor:
        small = np.asarray(picture.resize((64, 64), PIL.Image.Resampling.BILINEAR), np.float32)[16:48, 16:48] / 255
        return torch.from_numpy(small).permute(2, 0, 1).contiguous()

    how = Preprocessing(
        prepared, (32, 32), (0.0,) * 3, (1.0,) * 3, True, {"of": "this test"}, Geometry(64, (32, 32), "bilinear")
    )
    return TorchClassifier("middle", Brightness(), LabelSpace(CLASSES), how, architecture="brightness", device="cpu")


def framed(size: int) -> np.ndarray:
    """A bright square, half as wide as the image, on black."""
    image = np.zeros((size, size, 3), np.uint8)
    image[size // 4 : 3 * size // 4, size // 4 : 3 * size // 4] = 255
    return image


@pytest.mark.parametrize("size", [32, 64, 96])
def test_a_walk_shows_a_model_what_predict_shows_it(size: int) -> None:
    model, image = cropping(), framed(size)
    own = model.predict([image])
    assert own[0].argmax() == 1
    assert np.abs(seen(model, [image]) - own).max() < 0.01
    assert seen(model, [image], "whole")[0].argmax() == 0
    assert crop_of(model, size) == (size // 2, size // 2) and crop_of(model, size, "whole") is None


def test_gradients_are_of_what_the_model_sees() -> None:
    model, labels = cropping(), LabelMap(CLASSES, ((0,), (1,)), CLASSES, "two")
    slopes = {}
    for view in ("model", "whole"):
        batch = as_batch([framed(64)]).requires_grad_()
        UnderTest(model, labels, "dataset", view).loss(batch, torch.tensor([0])).sum().backward()
        assert batch.grad is not None
        slopes[view] = (batch.grad.abs().sum((0, 1)) > 0).numpy()
    assert slopes["whole"].all()
    assert slopes["model"][16:48, 16:48].all() and slopes["model"].sum() == 32 * 32
