"""Classifiers that read only the background, or only the object: attribution must be where they read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from known_classifiers import TIED, frame_features, frame_forest, rendered

import holdfast
from holdfast import api
from holdfast.attribution import ExplainedNetwork, gradcam, integrated_gradients, look, occlusion
from holdfast.diorama import CLASSES

CHOSEN = slice(0, 240, 24)


class FrameScores:
    """Reads only the outer frame of the image; says how sure it is."""

    labels = CLASSES

    def predict(self, images: list[np.ndarray]) -> np.ndarray:
        return frame_forest().predict_proba(frame_features(np.stack(images))).astype(np.float32)


class Reader(torch.nn.Module):
    """A random network of two convolutions, without biases, so that what is covered before them leaves nothing."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.features = torch.nn.Sequential(
                torch.nn.Conv2d(3, 16, 3, padding=1, stride=2, bias=False), torch.nn.ReLU(),
                torch.nn.Conv2d(16, 16, 3, padding=1, stride=2, bias=False), torch.nn.ReLU(),
            )  # fmt: skip
        self.requires_grad_(False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.features(batch).mean((2, 3))


def reading(module: Reader) -> ExplainedNetwork:
    """Its score is of what the given windows leave of an image: the object, or all else."""

    def score(batch: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
        return module(batch * windows[:, None]).sum(1)

    return ExplainedNetwork("reader", score, module=module)


@pytest.mark.parametrize("reads", ["object", "background"])
@pytest.mark.parametrize("method", [gradcam, integrated_gradients, occlusion])
def test_maps_lie_where_a_classifier_reads(reads: str, method) -> None:
    scenes = rendered(TIED)
    batch = torch.from_numpy(scenes.images[CHOSEN]).permute(0, 3, 1, 2).float() / 255
    masks = scenes.coverage[CHOSEN] > 127
    windows = torch.from_numpy(masks if reads == "object" else ~masks).float()
    options = {"gradcam": {"layer": "features.3"}, "occlusion": {"window": 8, "stride": 8, "baseline": "black"}}
    named = {"integrated_gradients": {"baseline": "black", "steps": 8}} | options
    maps = method(reading(Reader()), batch, [windows], **named[method.__name__]).numpy()
    found = [look(heat, mask) for heat, mask in zip(maps, masks, strict=True)]
    shares, areas = (np.array([getattr(one, name) for one in found if one is not None]) for name in ("share", "area"))
    assert len(shares) == len(masks)
    if method is integrated_gradients:  # pixel by pixel, so exactly
        np.testing.assert_allclose(shares, 1.0 if reads == "object" else 0.0, atol=1e-6)
    elif reads == "object":
        assert (shares > 1.25 * areas).all(), (shares, areas)
    else:
        assert (shares < 0.8 * areas).all(), (shares, areas)


def test_classifiers_that_only_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: a forest that reads the outer frame, and one that knows the objects by heart, both black boxes."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    models = ["python:test_known_looks:FrameScores", "python:known_classifiers:Object"]
    run = tmp_path / "run"
    holdfast.evaluate(TIED, models=models, out=run, scenarios="original,random_background", limit=24)
    found = api.explain(run, methods="occlusion?window=8&stride=8&baseline=black", limit=24, pictures=0)
    shares = found.shares[found.shares["condition"] == "original"].set_index("model")
    frame, object_ = (shares.loc[model] for model in models)
    assert frame["ratio"] < 0.6 < 1.5 < object_["ratio"], shares
    assert frame["high"] < object_["low"]
    assert object_["hits"] > frame["hits"] + 0.4
