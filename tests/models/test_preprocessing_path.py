"""A network asked for gradients sees the images that its own ``predict`` shows it, however its transform is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch import nn
from torchvision import transforms
from torchvision.transforms import v2

import holdfast
from holdfast.core.errors import UserError
from holdfast.models import live, load_classifier, load_segmenter, proof
from holdfast.models.attacks import answers, model_input
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.models.transformers import preprocessing
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.explain.explain import explain
from holdfast.pipeline.fast import networks
from holdfast.pipeline.specs import ExplainSpec, PerturbSpec, WalkOptions
from holdfast.pipeline.walk.perturb import perturb
from holdfast.pipeline.walk.resources import crop_of, seen

COLOURS = {"airship": (60, 80, 190), "dog": (70, 170, 70), "fox": (190, 80, 60)}  # words that clip:embedded knows
MEAN = torch.tensor([104.0, 117.0, 123.0]).view(3, 1, 1)  # of blue, green and red, on a scale of 255


def _photo(label: str, number: int, height: int = 40, width: int = 56) -> np.ndarray:
    rng = np.random.default_rng([list(COLOURS).index(label), number])
    noise = rng.normal(0, 25, (height, width, 3))
    return np.clip(np.array(COLOURS[label]) + noise, 0, 255).astype(np.uint8)


PHOTOS = {"images": [_photo(label, n) for label in COLOURS for n in range(4)],
          "labels": [label for label in COLOURS for _ in range(4)]}  # fmt: skip


class _Caffe(nn.Module):
    """Knows colours by the mean of blue, green and red on a scale of 255, less the mean of its training."""

    def __init__(self) -> None:
        super().__init__()
        known = torch.tensor([list(reversed(colour)) for colour in COLOURS.values()], dtype=torch.float32)
        self.known = nn.Parameter(known - MEAN.view(3))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        means: torch.Tensor = batch.mean((2, 3))
        return -((means[:, None] - self.known) ** 2).sum(2) / 2000


class _BlueFirst(nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image[[2, 1, 0]].float() - MEAN


def _plain(image: PIL.Image.Image) -> torch.Tensor:
    pixels = np.asarray(image.resize((32, 32)), np.float32)[:, :, ::-1]
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy()) - MEAN


_ENTER = [transforms.Resize((32, 32)), transforms.ToTensor()]
FORMS: dict[str, Callable[..., torch.Tensor]] = {
    "a lambda in a chain": transforms.Compose([*_ENTER, transforms.Lambda(lambda x: x[[2, 1, 0]] * 255 - MEAN)]),
    "a function": _plain,
    "chains in a chain": transforms.Compose(
        [transforms.Compose(_ENTER), transforms.Compose([transforms.Lambda(lambda x: x.flip(0) * 255),
                                                         transforms.Normalize(MEAN.flatten().tolist(), (1, 1, 1))])]
    ),
    "modules": nn.Sequential(transforms.Resize((32, 32)), v2.PILToTensor(), _BlueFirst()),
    "a lambda": lambda image: transforms.functional.to_tensor(image.resize((32, 32))).flip(0) * 255 - MEAN,
}  # fmt: skip


def _loaded(transform: Any, network: nn.Module | None = None) -> TorchClassifier:
    name = live.keep(network or _Caffe(), "colours", transform=transform, labels=list(COLOURS))
    model = load_classifier(name, device="cpu")
    assert isinstance(model, TorchClassifier)
    return model


@pytest.mark.parametrize("form", FORMS)
def test_a_network_answers_directly_as_its_predict_does(form: str) -> None:
    model = _loaded(FORMS[form])
    own = model.predict(PHOTOS["images"])
    assert (own.argmax(1) == np.repeat([0, 1, 2], 4)).all()
    direct = answers(model, [model_input(model, image) for image in PHOTOS["images"]])
    np.testing.assert_allclose(direct, own, atol=2e-3)
    agreement = proof.prove(model, PHOTOS["images"])
    assert agreement is not None and agreement.same == agreement.close == 12


@pytest.mark.parametrize("form", FORMS)
def test_walks_and_attacks_of_a_network_see_what_evaluate_sees(form: str, tmp_path: Path) -> None:
    run = holdfast.evaluate(
        PHOTOS, models={"colours": _Caffe()}, transform=FORMS[form], scenarios="original,fgsm?eps=0.004",
        device="cpu", out=tmp_path / "run",
    )  # fmt: skip
    rows = run.rows(["condition", "correct"]).to_pylist()
    assert sum(row["correct"] for row in rows if row["condition"] == "original") == 12
    assert sum(row["correct"] for row in rows if row["condition"] == "fgsm") == 12
    walks = holdfast.perturb(
        PHOTOS, models={"colours": _Caffe()}, transform=FORMS[form], generator="pixel:", device="cpu",
        oracle="clip:embedded", steps=1, step_size=0.001, random_walk=False, out=tmp_path / "walks",
    )  # fmt: skip
    original = [row for row in walks.rows().to_pylist() if row["condition"] == "original"]
    assert len(original) == 12 and all(row["correct"] for row in original)


def test_what_cannot_be_followed_is_evaluated_and_refused_for_gradients(tmp_path: Path) -> None:
    def standardised(image: PIL.Image.Image) -> torch.Tensor:
        tensor = transforms.functional.to_tensor(image.resize((32, 32)))
        return (tensor - tensor.mean()) / (tensor.std() + 1e-3)

    grey = transforms.Compose([transforms.Grayscale(3), *_ENTER])
    gamma = transforms.Compose([*_ENTER, transforms.Lambda(torch.sqrt)])
    for transform, why in ((standardised, "."), (grey, "mixes the channels"), (gamma, "not on a straight line")):
        model = _loaded(transform)
        assert model.predict(PHOTOS["images"]).shape == (12, 3)
        with pytest.raises(UserError, match=f"transform= of colours cannot be followed .*{why}"):
            proof.prove(model, PHOTOS["images"])
    with pytest.raises(UserError, match="transform= of colours cannot be followed"):
        holdfast.perturb(PHOTOS, models={"colours": _Caffe()}, transform=grey, generator="pixel:", steps=1,
                         oracle="clip:embedded", device="cpu", out=tmp_path / "walks")  # fmt: skip


def test_a_transform_of_training_is_refused() -> None:
    with pytest.raises(UserError, match=r"transform= of colours returns something else .* without random augmentation"):
        _loaded(transforms.Compose([transforms.RandomHorizontalFlip(), *_ENTER]))


def test_a_transform_that_keeps_the_size_of_an_image_resizes_nothing() -> None:
    checks = nn.Sequential(nn.MaxPool2d(2), nn.BatchNorm2d(3), nn.AdaptiveMaxPool2d(1), nn.Flatten()).eval()
    model = _loaded(transforms.ToTensor(), checks)
    agreement = proof.prove(model, PHOTOS["images"])
    assert agreement is not None and agreement.most < 1e-4
    batch = torch.rand(1, 3, 20, 24, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.logits(batch), checks(batch))


def test_an_image_processor_that_turns_channels_round_is_followed() -> None:
    from transformers import MobileViTImageProcessor

    processor = MobileViTImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, do_flip_channel_order=True
    )
    way = preprocessing(processor)
    assert way.channels == "bgr" and not way.unclear
    prepared = processor(images=PIL.Image.fromarray(PHOTOS["images"][0]), return_tensors="pt")["pixel_values"][0]
    torch.testing.assert_close(way.transform(PIL.Image.fromarray(PHOTOS["images"][0])).flip(0), prepared)


def _misled(model: Any, **change: Any) -> Any:
    """Return a classifier that prepares images as another one does, and takes their colours for something else."""
    transform = model.preprocessing.transform
    preprocessing = dataclasses.replace(model.preprocessing, **change)
    assert preprocessing.transform is transform
    return TorchClassifier(model.name, model.module, model.labels, preprocessing, architecture="x", device="cpu")


@pytest.mark.parametrize("change", [{"mean": (0.3, 0.3, 0.3)}, {"std": (0.5, 0.5, 0.5)}, {"std": (0.1, 0.2, 0.3)}])
def test_a_network_that_sees_something_else_is_refused(change: dict[str, Any]) -> None:
    model = load_classifier("embedded:resnet_rho0", device="cpu")
    photos = [sample.image.load() for sample in holdfast.load_collection("diorama:test?n=6&size=64").samples]
    agreement = proof.prove(model, photos)
    assert agreement is not None and agreement.same == 6 and "6 of 6 originals" in agreement.sentence
    with pytest.raises(UserError, match=r"disagrees with its own predict.*\?mean=…&std=…"):
        proof.prove(_misled(model, **change), photos)
    fast = networks.build(model, 4)  # type: ignore[arg-type]
    assert networks.prove(fast, model, photos)  # type: ignore[arg-type]
    wrong = networks.build(_misled(model, **change), 4)
    with pytest.raises(UserError, match="disagrees with its own predict"):
        networks.prove(wrong, model, photos)  # type: ignore[arg-type]


def test_a_segmenter_is_proved_pixel_by_pixel() -> None:
    segmenter: Any = load_segmenter("embedded:unet", device="cpu")
    photos = [sample.image.load() for sample in holdfast.load_collection("diorama:test?n=4&size=64").samples]
    agreement = proof.prove_segmenter(segmenter, photos)
    assert agreement is not None and agreement.close == 4
    right = segmenter.logits
    segmenter.logits = lambda batch: right(batch * 0.2)
    with pytest.raises(UserError, match="of the pixels of an original"):
        proof.prove_segmenter(segmenter, photos)


def test_eval_perturb_explain_and_the_fast_pass_note_the_agreement(tmp_path: Path) -> None:
    def noted(summary: Any) -> int:
        return sum("gives the predictions of predict on 4 of 4 originals" in note for note in summary.notes)

    spec = EvaluateSpec("diorama:test?n=4", models=("embedded:resnet_rho0",), device="cpu")
    for more in ({"scenarios": "original,fgsm?eps=0.01"}, {"scenarios": "original", "fast": True}):
        run, summary = evaluate(dataclasses.replace(spec, **more), tmp_path / str(len(list(tmp_path.iterdir()))))
        assert noted(summary) == 1, (more, summary.notes)
    assert noted(explain(run.path, ExplainSpec(methods="gradcam", device="cpu")).summary) == 1
    walks = PerturbSpec(
        "diorama:test?n=4", models=("embedded:resnet_rho0",), generator="pixel:", oracle="clip:embedded", device="cpu",
        walk=WalkOptions(steps=1),
    )  # fmt: skip
    assert noted(perturb(walks, tmp_path / "walks")[1]) == 2  # of the model and of the oracle


def test_workers_make_the_proof_as_well(tmp_path: Path) -> None:
    spec = EvaluateSpec("diorama:test?n=8", models=("embedded:resnet_rho0",), scenarios="fgsm?eps=0.01", workers=2)
    _, summary = evaluate(dataclasses.replace(spec, device="cpu"), tmp_path / "run")
    assert any("gives the predictions of predict on" in note for note in summary.notes)


@pytest.mark.parametrize("size", [48, 96, 100, 256, 300])
def test_the_middle_that_a_transform_keeps_is_measured(size: int) -> None:
    def kept(*steps: Any) -> Any:
        return crop_of(_loaded(transforms.Compose([*steps, transforms.ToTensor()])), size)

    near = round(size * 224 / 256)
    height, width = kept(transforms.Resize(256), transforms.CenterCrop(224))
    assert abs(height - near) <= 1 and abs(width - near) <= 1
    height, width = kept(transforms.Resize(64), transforms.CenterCrop((32, 48)))
    assert abs(height - size / 2) <= 1 and abs(width - size * 0.75) <= 1
    for steps in (
        [transforms.Resize((32, 32))],
        [transforms.Resize(40)],
        [transforms.Resize(40), transforms.Pad(8)],
        [],
    ):
        assert kept(*steps) is None, steps
    model = load_classifier("embedded:resnet_rho0", device="cpu")
    measured = _misled(model, geometry=None)  # as a transform of which only the function is known
    assert crop_of(measured, size) == crop_of(model, size)


@pytest.mark.parametrize("form", ["lambda", "modules"])
def test_a_walk_shows_the_middle_that_predict_keeps(form: str) -> None:
    framed = [np.full((64, 64, 3), COLOURS["airship"], np.uint8) for _ in PHOTOS["images"]]
    for image, photo in zip(framed, PHOTOS["images"], strict=True):
        image[12:52, 12:52] = photo[:40, :40]
    keep = [transforms.Resize(64), transforms.CenterCrop(32)]
    turn = transforms.Lambda(lambda x: x[[2, 1, 0]] * 255 - MEAN)
    transform: Any = transforms.Compose([*keep, transforms.ToTensor(), turn])
    if form == "modules":
        transform = nn.Sequential(*keep, v2.PILToTensor(), _BlueFirst())
    model = _loaded(transform)
    own = model.predict(framed)
    assert (own.argmax(1) == np.repeat([0, 1, 2], 4)).all()
    np.testing.assert_allclose(seen(model, framed), own, atol=0.02)
    assert np.abs(seen(model, framed, "whole") - own).max() > 0.2
