"""Networks of the user's own code: loaded, walked, explained and trained; the LeNet and PreActResNet of the docs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

import holdfast
from holdfast.core.errors import UserError
from holdfast.models import load_classifier
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.train import architectures

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
MORE = """
from torch import nn


class Holder:
    labels = ["cat", "dog"]
    preprocessing = {"size": 8, "mean": (0.5, 0.4, 0.3), "std": 0.25}

    def __init__(self):
        self.module = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))

    def predict(self, images):
        raise AssertionError("the network is asked")


class Closed:
    labels = ["cat", "dog"]

    def __init__(self):
        self.module = nn.Linear(2, 2)

    def predict(self, images):
        return [[0.25, 0.75] for image in images]


class Misspelled(Holder):
    preprocessing = {"pixels": 8}


def text(num_classes=2):
    return "no network"


def broken(num_classes, width):
    raise ValueError("width is odd")


model = Holder().module
pair = nn.Conv2d(3, 4, 1)
"""


@pytest.fixture(scope="module", autouse=True)
def networks(tmp_path_factory: pytest.TempPathFactory):
    """A working directory with ``own_networks.py``, the file of the docs, and ``more_networks.py``."""
    folder = tmp_path_factory.mktemp("code")
    block = PAGE.read_text(encoding="utf8").split('```python title="networks.py"\n')[1].split("```")[0]
    other = PAGE.parents[1] / "examples" / "networks.py"
    (folder / "own_networks.py").write_text(f"{block}\n\n{other.read_text(encoding='utf8')}")
    (folder / "more_networks.py").write_text(MORE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [str(folder), *sys.path])
        yield folder


def test_a_class_and_a_function_are_trained_walked_and_explained(tmp_path: Path) -> None:
    names = ("python:own_networks:LeNet", "python:own_networks:preact_resnet?width=4&blocks=1")
    trained = holdfast.train(
        "diorama:train?n=48", architectures=names, scenarios="original", train_on="original", folds=1, epochs=1,
        size=32, batch_size=16, device="cpu", out=tmp_path / "trained",
    )  # fmt: skip
    rows = trained.rows().to_pandas()
    assert set(rows["status"].astype(str)) == {"ok"} and set(rows["model"].astype(str)) == set(names)
    files = {file.parts[-4]: file for file in (tmp_path / "trained").rglob("model.safetensors")}
    assert len(files) == 2
    config = json.loads(next(iter(files.values())).with_name("config.json").read_text())
    assert config["library"] == "python" and config["pretrained_cfg"]["input_size"] == [3, 32, 32]
    loaded = [f"{name.partition('?')[0]}@{file}" for name, file in zip(names, sorted(files.values()), strict=True)]
    for name in loaded:
        model = load_classifier(name, device="cpu")
        assert isinstance(model, TorchClassifier) and len(model.labels) == 12
        with pytest.raises(UserError, match="whose code is yours; name both: python:own_networks"):
            load_classifier(f"local-dir:{Path(name.partition('@')[2]).parent}")
    walked = holdfast.perturb(
        "diorama:test?n=4", models=[f"{name}&name=m{place}" if "?" in name else f"{name}?name=m{place}" for place, name
        in enumerate(loaded)], generator="pixel:", oracle="classifier:embedded:resnet_rho95", steps=2,
        device="cpu", out=tmp_path / "walks",
    )  # fmt: skip
    kinds = walked.rows(["model", "status"]).to_pandas()
    assert set(kinds["status"].astype(str)) == {"ok"} and set(kinds["model"].astype(str)) == {"m0", "m1"}
    answered = holdfast.evaluate(
        "diorama:test?n=2", models=[f"{loaded[1]}?name=m"], scenarios="original", device="cpu", out=tmp_path / "run"
    )
    holdfast.explain(answered.path, methods=["gradcam"], device="cpu")
    shares = pq.read_table(answered.path / "results" / "attributions.parquet").to_pylist()
    assert shares and {str(row["method"]).partition("?")[0] for row in shares} == {"gradcam"}


def test_gradients_pass_and_pictures_are_prepared_as_the_object_says() -> None:
    model = load_classifier("python:more_networks:Holder", device="cpu")
    assert isinstance(model, TorchClassifier) and model.labels.names == ("cat", "dog")
    assert model.preprocessing.size == (8, 8) and model.preprocessing.mean == (0.5, 0.4, 0.3)
    photo = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    batch = torch.from_numpy(photo).permute(2, 0, 1)[None].float() / 255
    prepared = (batch - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / 0.25
    expected = model.module(prepared).softmax(1).detach().numpy()
    np.testing.assert_allclose(model.predict([photo]), expected, atol=1e-6)
    batch.requires_grad_()
    model.logits(batch).sum().backward()
    assert batch.grad is not None and batch.grad.abs().sum() > 0
    other = load_classifier("python:more_networks:Holder?size=8&mean=0&std=1", device="cpu")
    assert other.fingerprint != model.fingerprint


def test_an_object_is_a_network_or_a_black_box() -> None:
    network = load_classifier("python:more_networks:model?size=8", device="cpu")
    assert isinstance(network, TorchClassifier) and network.labels.names == ("0", "1")
    closed = load_classifier("python:more_networks:Closed")
    assert not isinstance(closed, TorchClassifier)
    assert closed.predict([np.zeros((4, 4, 3), np.uint8)]).tolist() == [[0.25, 0.75]]


def test_training_goes_on_from_weights_and_follows_the_code(networks: Path, tmp_path: Path) -> None:
    plain = architectures.resolve("python:own_networks:LeNet", size=32)
    first = architectures.build(plain, 3, 32, seed=0)
    assert torch.equal(first.classifier[4].weight, architectures.build(plain, 3, 32, seed=0).classifier[4].weight)
    save_file(first.state_dict(), tmp_path / "lenet.safetensors", metadata={"classes": '["a", "b", "c"]'})
    name = f"python:own_networks:LeNet@{tmp_path / 'lenet.safetensors'}?size=32"
    assert load_classifier(name, device="cpu").labels.names == ("a", "b", "c")
    with pytest.raises(UserError, match="names weights; begin with them by --pretrained, or name python:own_networks"):
        architectures.resolve(name.partition("?")[0], size=32)
    before = (networks / "own_networks.py").read_text()
    (networks / "own_networks.py").write_text(before + "\n# changed\n")
    assert architectures.resolve("python:own_networks:LeNet", size=32).fingerprint != plain.fingerprint
    (networks / "own_networks.py").write_text(before)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("python:more_networks:model", "say how images reach it: \\?size=224"),
        ("python:more_networks:model?size=9", r"does not take a batch of shape \(1, 3, 9, 9\)"),
        ("python:more_networks:pair?size=8", "should answer with logits, .images, classes., not with"),
        ("python:more_networks:model@nothing.pt?size=8", "holds its own weights"),
        ("python:more_networks:text?size=8", "should return a torch.nn.Module, not str"),
        ("python:more_networks:broken?size=8&width=3", "cannot be built"),
        ("python:more_networks:Misspelled", "should be a dictionary with size, mean"),
        ("python:own_networks:LeNet@nothing.pt?size=8", "there is no checkpoint at 'nothing.pt'"),
        ("python:more_networks:model?size=8&colour=1", "no option of python: is called 'colour'"),
    ],
)
def test_bad_input(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_classifier(name, device="cpu")


def test_what_cannot_be_trained() -> None:
    with pytest.raises(UserError, match="builds no network; train takes a class"):
        architectures.resolve("python:more_networks:model", size=32)
    with pytest.raises(UserError, match="has no weights to begin with"):
        architectures.resolve("python:own_networks:LeNet?pretrained=true", size=32)
