"""``?adapt=batchnorm``: what is fitted, and that rows depend on the images of a condition and on nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import holdfast
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.models import load_classifier
from holdfast.models.adaptation import AdaptedClassifier
from shapes import CLASSES, make_photos

CODE = """
import torch
from torch import nn

torch.manual_seed(0)
labels = ["cross", "disc", "square"]

def network(num_classes=3):
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, num_classes))
    net.labels = labels
    net.preprocessing = {"size": 32}
    return net

normed = network()

def labels_of(images):
    return [[1.0, 0.0, 0.0]] * len(images)

plain = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
plain.labels, plain.preprocessing = labels, {"size": 32}
"""
NAME = "python:normed_networks:normed"
OPTIONS = {"scenarios": "original,grey,fog@3", "device": "cpu"}


@pytest.fixture(scope="module", autouse=True)
def networks(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("networks")
    (folder / "normed_networks.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("shapes") / "photos", 5)


def answers(results: holdfast.Results) -> pd.DataFrame:
    rows = results.rows().to_pandas()
    assert (rows["status"] == "ok").all(), set(rows["error"])
    columns = ["row_id", "model", "sample_id", "condition", "probability_of_label"]
    return rows[columns].astype({"model": str, "condition": str}).sort_values("row_id", ignore_index=True)


@pytest.fixture(scope="module")
def first(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    out = tmp_path_factory.mktemp("run") / "first"
    models = [NAME, f"{NAME}?adapt=batchnorm&adapt_images=8"]
    return answers(holdfast.evaluate(photos, models=models, out=out, **OPTIONS))


def test_rows_do_not_depend_on_batches_or_on_where_a_run_stopped(
    photos: Path, first: pd.DataFrame, tmp_path: Path
) -> None:
    model = f"{NAME}?adapt=batchnorm&adapt_images=8"
    own = first[first["model"] == model].reset_index(drop=True)
    assert len(own) == 15 * 3
    small = answers(holdfast.evaluate(photos, models=[model], out=tmp_path / "small", batch_size=2, **OPTIONS))
    pd.testing.assert_frame_equal(small, own, atol=1e-6)
    # Half of a run, then the rest of it: what is left is fitted to the same images.
    holdfast.evaluate(photos, models=[model], out=tmp_path / "half", scenarios="grey", device="cpu")
    run = holdfast.open_run(tmp_path / "half").run
    parts = sorted((run.path / "predictions").glob("part-*.parquet"))
    parts[0].unlink()
    rest = answers(holdfast.evaluate(photos, models=[model], out=tmp_path / "half", **OPTIONS))
    pd.testing.assert_frame_equal(rest, own, atol=1e-6)
    apart = answers(holdfast.evaluate(photos, models=[model], out=tmp_path / "apart", workers=2, **OPTIONS))
    pd.testing.assert_frame_equal(apart, own, atol=1e-6)


def test_every_condition_is_fitted_by_itself(photos: Path, first: pd.DataFrame, tmp_path: Path) -> None:
    plain = first[first["model"] == NAME].set_index(["condition", "sample_id"])["probability_of_label"]
    own = first[first["model"] != NAME].set_index(["condition", "sample_id"])["probability_of_label"]
    assert set(first["row_id"]).__len__() == 90
    for condition in ("original", "grey", "fog@3"):
        assert not np.allclose(plain[condition], own[condition])
    # Other images in the dataset are other images to fit to, so its rows are others, too; the plain model's are not.
    fewer = answers(
        holdfast.evaluate(photos, models=sorted(set(first["model"])), out=tmp_path / "fewer", limit=9, **OPTIONS)
    )
    kept = set(fewer["row_id"]) & set(first["row_id"])
    assert set(first[first["row_id"].isin(kept)]["model"]) == {NAME}


def test_the_published_formula() -> None:
    name = f"{NAME}?adapt=batchnorm&adapt_images=4&adapt_prior=12"
    model = load_classifier(name, device="cpu")
    assert isinstance(model, AdaptedClassifier) and model.name == name
    rng = np.random.default_rng(0)
    batch = [model.prepare(rng.integers(0, 256, (40, 40, 3), np.uint8)) for _ in range(4)]
    before = load_classifier(NAME, device="cpu")
    model.fit("noise", batch)
    model.use("noise")
    with torch.no_grad():
        seen = before.module[0](torch.stack(batch))
    mean = 12 / 16 * 0.0 + 4 / 16 * seen.mean((0, 2, 3))
    variance = 12 / 16 * 1.0 + 4 / 16 * seen.var((0, 2, 3), correction=0)
    torch.testing.assert_close(model._module[1].running_mean, mean)
    torch.testing.assert_close(model._module[1].running_var, variance)
    # Without a prior the network answers as it does in training mode, on those images.
    forgetful = load_classifier(f"{NAME}?adapt=batchnorm&adapt_prior=0", device="cpu")
    forgetful.fit("noise", batch)
    forgetful.use("noise")
    with torch.no_grad():
        expected = before.module.train()(torch.stack(batch)).softmax(1).numpy()
    np.testing.assert_allclose(forgetful.predict_prepared(batch), expected, atol=1e-5)
    assert len({model.fingerprint, forgetful.fingerprint, before.fingerprint}) == 3


def test_live_networks_and_embedded_ones(photos: Path, tmp_path: Path) -> None:
    import normed_networks

    see = lambda image: torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1) / 255  # noqa: E731
    results = holdfast.evaluate(
        photos, models={"mine?adapt=batchnorm": normed_networks.network()}, transform=see, class_names=list(CLASSES),
        scenarios="original", out=tmp_path / "run", device="cpu",
    )  # fmt: skip
    assert set(results.rows().to_pandas()["model"]) == {"mine?adapt=batchnorm"}
    for name in ("embedded:resnet_rho0", "timm:test_resnet?pretrained=false"):
        assert isinstance(
            load_classifier(f"{name}{'&' if '?' in name else '?'}adapt=batchnorm", device="cpu"), AdaptedClassifier
        )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("python:normed_networks:plain?adapt=batchnorm", "has no batch normalisation"),
        ("python:normed_networks:labels_of?adapt=batchnorm", "not a PyTorch network that shows its layers"),
        (f"{NAME}?adapt=batchnrm", "batchnorm"),
        (f"{NAME}?adapt_prior=3", "needs adapt=batchnorm"),
        (f"{NAME}?adapt=batchnorm&adapt_images=1", "from 2 to 1024"),
        (f"{NAME}?adapt=batchnorm&adapt_prior=-1", "0 or more"),
    ],
)
def test_bad_options(name: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load_classifier(name, device="cpu", classes=CLASSES)


def test_verbs_without_conditions_refuse_it(photos: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["perturb", str(photos), "--models", f"{NAME}?adapt=batchnorm", "--generator", "pixel:", "--oracle",
              f"classifier:{NAME}", "--out", str(tmp_path / "walks")],
    )  # fmt: skip
    assert result.exit_code != 0 and "adapt=batchnorm" in str(result.exception)
