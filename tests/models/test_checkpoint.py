from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torchvision

from holdfast.core.errors import UserError
from holdfast.models import label_spaces, load_classifier


@pytest.fixture
def module() -> torch.nn.Module:
    torch.manual_seed(3)
    return timm.create_model("test_resnet", num_classes=4).eval()


def expected(module: torch.nn.Module, photo: np.ndarray) -> np.ndarray:
    import PIL.Image

    config = timm.data.resolve_model_data_config(module)
    with torch.inference_mode():
        batch = timm.data.create_transform(**config)(PIL.Image.fromarray(photo))[None]
        return module(batch).softmax(1).numpy()


def prefixed(state: dict, prefix: str) -> dict:
    return {prefix + key: value for key, value in state.items()}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3, "args": argparse.Namespace(lr=0.1)},
        lambda state: {"model": prefixed(state, "module."), "optimizer": {"lr": 1.0}},
        lambda state: {"state_dict": prefixed(state, "model._orig_mod.")},
        lambda state: {key: value for key, value in state.items() if "num_batches_tracked" not in key},
    ],
)
def test_torch_files_in_their_usual_wrappings(wrap, module, photo: np.ndarray, tmp_path: Path) -> None:
    torch.save(wrap(module.state_dict()), tmp_path / "best.pth")
    classifier = load_classifier(f"torch:timm/test_resnet@{tmp_path / 'best.pth'}", device="cpu")
    assert classifier.name == "torch:timm/test_resnet@best.pth"
    assert classifier.labels.names == ("0", "1", "2", "3")
    np.testing.assert_allclose(classifier.predict([photo]), expected(module, photo), atol=1e-6)


def test_safetensors_with_classes_in_their_metadata(module, photo: np.ndarray, tmp_path: Path) -> None:
    folder = tmp_path / "user@host"
    folder.mkdir()
    file = folder / "best.safetensors"
    safetensors.torch.save_file(module.state_dict(), file, {"classes": json.dumps(["cat", "dog", "fox", "owl"])})
    classifier = load_classifier(f"torch:test_resnet@{file}", device="cpu")
    assert classifier.labels.names == ("cat", "dog", "fox", "owl")
    np.testing.assert_allclose(classifier.predict([photo]), expected(module, photo), atol=1e-6)


def test_an_architecture_that_only_torchvision_has_is_taken_from_there(tmp_path: Path) -> None:
    import torchvision

    net = torchvision.models.squeezenet1_1(weights=None, num_classes=3)
    torch.save(net.state_dict(), tmp_path / "own.pth")
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    name = f"torch:squeezenet1_1@{tmp_path / 'own.pth'}?labels={tmp_path / 'names.txt'}"
    assert load_classifier(name, device="cpu").labels.names == ("a", "b", "c")


def test_labels_beside_the_file_and_by_option(module, tmp_path: Path) -> None:
    file = tmp_path / "best.safetensors"
    safetensors.torch.save_file(module.state_dict(), file)
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\n")
    (tmp_path / "other.txt").write_text("w\nx\ny\nz\n")
    assert load_classifier(f"torch:test_resnet@{file}", device="cpu").labels.names == tuple("abcd")
    option = f"torch:test_resnet@{file}?labels={tmp_path / 'other.txt'}"
    assert load_classifier(option, device="cpu").labels.names == tuple("wxyz")
    assert load_classifier(option, device="cpu").name == "torch:test_resnet@best.safetensors?labels=other.txt"
    (tmp_path / "labels.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match="4 outputs, but the model's own list names 2"):
        load_classifier(f"torch:test_resnet@{file}", device="cpu")
    safetensors.torch.save_file(module.state_dict(), file, {"classes": "cat, dog"})
    with pytest.raises(UserError, match="must be a JSON list"):
        load_classifier(f"torch:test_resnet@{file}", device="cpu")


def test_a_thousand_outputs_are_imagenet(tmp_path: Path) -> None:
    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "a.pth")
    assert load_classifier(f"torch:test_resnet@{tmp_path / 'a.pth'}", device="cpu").labels == label_spaces.imagenet()


@pytest.mark.parametrize("architecture", ["squeezenet1_1", "mobilenet_v3_small", "googlenet"])
def test_torchvision_architectures(architecture: str, photo: np.ndarray, tmp_path: Path) -> None:
    extra = {"aux_logits": False, "init_weights": False} if architecture == "googlenet" else {}
    module = torchvision.models.get_model(architecture, num_classes=3, **extra).eval()
    torch.save(module.state_dict(), tmp_path / "a.pt")
    classifier = load_classifier(f"torch:torchvision/{architecture}@{tmp_path / 'a.pt'}", device="cpu")
    with torch.inference_mode():
        reference = module(classifier.prepare(photo)[None]).softmax(1).numpy()
    np.testing.assert_allclose(classifier.predict([photo]), reference, atol=1e-6)
    assert len(classifier.labels) == 3


def test_another_architecture_is_named_with_its_keys(module, tmp_path: Path) -> None:
    torch.save(module.state_dict(), tmp_path / "a.pth")
    with pytest.raises(
        UserError, match=r"a\.pth is not a checkpoint of timm/test_vit: it misses .* and \d+ more"
    ) as caught:
        load_classifier(f"torch:test_vit@{tmp_path / 'a.pth'}", device="cpu")
    assert len(str(caught.value)) < 400
    state = module.state_dict()
    state["conv1.0.weight"] = torch.zeros(1, 2, 3)
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(UserError, match=r"has other shapes for conv1\.0\.weight"):
        load_classifier(f"torch:test_resnet@{tmp_path / 'a.pth'}", device="cpu")


def test_code_in_a_pickle_is_refused_and_not_run(module, tmp_path: Path) -> None:
    class Code:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    torch.save({"state_dict": module.state_dict(), "callback": Code()}, tmp_path / "evil.pth")
    with pytest.raises(UserError, match=r"evil\.pth holds Python objects other than tensors"):
        load_classifier(f"torch:test_resnet@{tmp_path / 'evil.pth'}", device="cpu")
    torch.save(module, tmp_path / "whole.pth")
    with pytest.raises(UserError, match="state_dict"):
        load_classifier(f"torch:test_resnet@{tmp_path / 'whole.pth'}", device="cpu")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut off", b"\x80\x02}q\x00"])
@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
def test_files_that_are_no_checkpoints(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name} (is not a|holds no)"):
        load_classifier(f"torch:test_resnet@{tmp_path / name}", device="cpu")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("torch:resnet18", "torch:ARCHITECTURE@FILE"),
        ("torch:resnet18@nowhere.pth", "no checkpoint at 'nowhere.pth'"),
        ("torch:jax/resnet18@{file}", "timm/ and torchvision/"),
        ("torch:resnet1B@{file}", "did you mean"),
        ("torch:test_resnet@{file}?label=x", "did you mean labels"),
    ],
)
def test_mistakes_are_sentences(name: str, sentence: str, module, tmp_path: Path) -> None:
    torch.save(module.state_dict(), tmp_path / "a.pth")
    with pytest.raises(UserError, match=sentence):
        load_classifier(name.format(file=tmp_path / "a.pth"), device="cpu")


@pytest.mark.filterwarnings("ignore:.*jit.*deprecated")
def test_torchscript_is_named_with_what_to_do(tmp_path: Path) -> None:
    torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "scripted.pt")
    with pytest.raises(UserError, match=r"TorchScript archive.*export the model to ONNX"):
        load_classifier(f"torch:resnet18@{tmp_path / 'scripted.pt'}")
    with pytest.raises(UserError, match=r"for 'best.pth' write torch:ARCHITECTURE@best.pth"):
        load_classifier("best.pth")


def test_no_state_dict_inside(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "a.pth")
    with pytest.raises(UserError, match="holds no state dict"):
        load_classifier(f"torch:test_resnet@{tmp_path / 'a.pth'}", device="cpu")


SHARED = Path(__file__).parents[2].parent / "shared"
SQUEEZENET = SHARED / "weights" / "squeezenet" / "squeezenet1_1_caffe_fp16_statedict.pt"


@pytest.mark.skipif(not SQUEEZENET.is_file(), reason="needs SqueezeNet's weights and the pets12 images in ../shared")
def test_a_network_of_another_framework_through_its_declared_preprocessing() -> None:
    """Caffe's SqueezeNet takes BGR 0..255 minus 104, 117, 123."""
    import csv

    import PIL.Image

    state = {key: value.float() for key, value in torch.load(SQUEEZENET, weights_only=True).items()}
    options = "channels=bgr&range=255&mean=104/117/123&std=1"
    classifier = load_classifier(f"torch:torchvision/squeezenet1_1@{SQUEEZENET}?{options}", device="cpu")
    pets = SHARED / "photos" / "pets12"
    with (pets / "imagenet_index.csv").open() as lines:
        index = {row["class"]: int(row["imagenet_index"]) for row in csv.DictReader(lines)}
    files = sorted((pets / "images").glob("*/*.jpg"))[::3]
    images = [np.asarray(PIL.Image.open(file).convert("RGB")) for file in files]
    answers = classifier.predict(images)
    right = sum(int(answer.argmax()) == index[file.parent.name] for answer, file in zip(answers, files, strict=True))
    assert right >= 33  # of 40; all 120 give 105
    network = torchvision.models.squeezenet1_1()
    network.load_state_dict(state)
    view = torchvision.transforms.Compose([torchvision.transforms.Resize(256), torchvision.transforms.CenterCrop(224)])
    for image, answer in zip(images[:3], answers[:3], strict=True):
        blue_first = np.asarray(view(PIL.Image.fromarray(image)), np.float32)[..., ::-1] - [104, 117, 123]
        with torch.inference_mode():
            batch = torch.from_numpy(blue_first.astype(np.float32).transpose(2, 0, 1).copy())[None]
            np.testing.assert_allclose(answer, network.eval()(batch).softmax(1)[0].numpy(), atol=1e-4)
