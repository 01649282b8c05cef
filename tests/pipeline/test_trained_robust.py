"""``holdfast train --robust``: AugMix, ANT, stylisation, DeepAugment and their unions, on any images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import holdfast
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.models import load_classifier
from holdfast.training import robust
from shapes import make_photos

SMALL = {"scenarios": "original", "train_on": "original", "folds": 1, "size": 32, "epochs": 2, "batch_size": 8,
         "device": "cpu", "architectures": ("timm:test_resnet",)}  # fmt: skip


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("shapes") / "photos", 8)


def trained(run: Path) -> Path:
    return run / "models" / "timm-test_resnet" / "original" / "fold-0"


def test_every_way_trains_another_network_that_loads(photos: Path, tmp_path: Path) -> None:
    heads = {}
    for way in ("", "augmix", "ant", "stylised", "deepaugment", "deepaugment+augmix", "ant+stylised", "adversarial"):
        run = tmp_path / (way or "plain")
        holdfast.train(photos, robust=way, out=run, **SMALL)
        state = load_file(trained(run) / "model.safetensors")
        assert not any(name.startswith(("classifier.", "companion.")) for name in state), "the network alone is kept"
        heads[way] = next(tensor for name, tensor in state.items() if name.endswith("fc.weight"))
        answer = load_classifier(f"local-dir:{trained(run)}", device="cpu").predict([np.zeros((32, 32, 3), np.uint8)])
        assert answer.shape == (1, 3) and np.isfinite(answer).all()
        facts = json.loads((trained(run) / "config.json").read_text())["holdfast"]
        assert facts["recipe"]["robust"] == way
    names = list(heads)
    same = [(a, b) for a in names for b in names if a < b and torch.equal(heads[a], heads[b])]
    assert not same, f"trained alike: {same}"


def test_on_the_command_line(photos: Path, tmp_path: Path) -> None:
    def train(*more: str) -> str:
        result = CliRunner().invoke(
            app, ["train", str(photos), "--architectures", "timm:test_resnet", "--scenarios", "original", "--folds",
                  "1", "--size", "32", "--epochs", "1", "--batch-size", "8", "--out", str(tmp_path / "run"), *more],
        )  # fmt: skip
        return result.output + str(result.exception or "")

    assert "one of adversarial, augmix, ant, dat at most" in train("--robust", "augmix+ant")
    assert "augmix" in train("--robust", "augmx")
    assert "--balance sampling works" in train("--robust", "augmix", "--balance", "weights")
    assert "study greyscale" in train("--robust", "grey")
    assert not (tmp_path / "run" / "predictions").exists()
    train("--robust", "augmix")
    assert len(holdfast.open_run(tmp_path / "run").run.rows()) > 0


def test_a_union_does_both() -> None:
    images = torch.rand(8, 3, 32, 32)
    start = lambda batch, labels: (batch, torch.nn.functional.one_hot(labels, 2).float())  # noqa: E731
    torch.manual_seed(0)
    way = robust.method("deepaugment+augmix", device="cpu", start=start, normalise=lambda batch: batch)
    views, targets = way.prepared(images, torch.tensor([0, 1] * 4))
    assert views.shape == (8, 3, 3, 32, 32) and targets.shape == (8, 2)
    assert not torch.allclose(views[:4, 0], images[:4]) and torch.allclose(views[4:, 0], images[4:])
    assert not torch.allclose(views[4:, 1], images[4:])
    with pytest.raises(UserError, match="names each way once"):
        robust.method("ant+ant", device="cpu")
