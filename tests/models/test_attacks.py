"""Attacks stay within their radius as images, do what closed forms say, and hurt in the order they should."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.core.names import parse_name
from holdfast.core.types import LabelSpace
from holdfast.diorama.source import load as load_scenes
from holdfast.models import attacks, available, load_classifier
from holdfast.registry import scenarios
from holdfast.scenarios import parse_conditions

SIZE = 6
OWN: dict[str, dict[str, Any]] = {
    "fgsm": {},
    "pgd": {"steps": 6},
    "strong_attack": {"steps": 6, "decision_steps": 1},
    "decision_attack": {"steps": 1},
}


class Linear:
    """Three outputs, each a weighted sum of the pixels; any size is read through its upper left corner."""

    name, fingerprint, device, labels = "linear", "linear", "cpu", LabelSpace(("a", "b", "c"))

    def __init__(self, seed: int = 0) -> None:
        self.weights = torch.randn(3, 3 * SIZE * SIZE, generator=torch.Generator().manual_seed(seed))

    def logits(self, batch: torch.Tensor) -> torch.Tensor:
        return (batch[..., :SIZE, :SIZE].flatten(1) - 0.5) @ self.weights.T

    def predict(self, images: Sequence[np.ndarray]) -> np.ndarray:
        batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
        return self.logits(batch).softmax(1).numpy()


class Two(Linear):
    """The third output never wins."""

    def logits(self, batch: torch.Tensor) -> torch.Tensor:
        return super().logits(batch) - torch.tensor([0, 0, 1e4])


class Brightness:
    """A black box: light or dark, by the mean."""

    name, fingerprint, labels = "brightness", "brightness", LabelSpace(("dark", "light"))

    def predict(self, images: Sequence[np.ndarray]) -> np.ndarray:
        light = np.array([image.mean() > 127.5 for image in images])
        return np.stack([~light, light], 1).astype(np.float32)


def pictures_of(rng: np.random.Generator, count: int, size: tuple[int, int] = (SIZE, SIZE)) -> list[np.ndarray]:
    return [rng.integers(0, 256, (*size, 3), np.uint8) for _ in range(count)]


def run(name: str, model: Any, images: Sequence[np.ndarray], labels: Sequence[int], **parameters: Any) -> Any:
    members = parameters.pop("members", tuple((place,) for place in range(len(model.labels))))
    seeds = parameters.pop("seeds", range(len(images)))
    given_parameters = {"space": "all", **OWN[name], **parameters}
    function = getattr(attacks, name)
    return attacks.run_attack(function, model, images, labels, members, seeds=list(seeds), parameters=given_parameters)


def test_every_attack_is_a_condition_and_every_condition_an_attack() -> None:
    conditions = {condition.scenario: condition for condition in parse_conditions("attacks")}
    assert set(conditions) == set(OWN)
    for name, condition in conditions.items():
        assert condition.definition.attack == f"holdfast.models.attacks:{name}"
        assert set(condition.parameters) == {"eps", "space", *OWN[name]}
    assert not {one.scenario for one in parse_conditions("all")} & set(OWN)
    assert set(attacks.GRADIENT_FREE) <= set(scenarios)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["fgsm", "pgd", "strong_attack"]), st.floats(0.0, 0.2))
def test_no_value_moves_further_than_eps(seed: int, name: str, eps: float) -> None:
    rng = np.random.default_rng(seed)
    model = Linear(seed)
    images = [*pictures_of(rng, 3), *pictures_of(rng, 2, (9, 7))]
    images[0][:] = 255
    labels = rng.integers(0, 3, 5).tolist()
    before = [image.copy() for image in images]
    only = {"decision_steps": 0} if name == "strong_attack" else {}
    changed, probabilities = run(name, model, images, labels, eps=eps, **only)
    for image, copy, picture in zip(images, before, changed, strict=True):
        assert np.array_equal(image, copy)
        assert picture.dtype == np.uint8 and picture.shape == image.shape
        assert np.abs(picture.astype(int) - image.astype(int)).max() <= eps * 255 + 1e-4
    clean = [model.predict([image])[0].argmax() for image in images]
    for image, picture, label, answer in zip(images, changed, labels, clean, strict=True):
        assert answer == label or np.array_equal(image, picture), "what is wrong already needs no attack"
    for picture, row in zip(changed, probabilities, strict=True):
        assert np.allclose(model.predict([picture])[0], row, atol=1e-5)


def test_fgsm_on_a_linear_model_is_the_sign_of_its_gradient() -> None:
    model = Linear(3)
    images = pictures_of(np.random.default_rng(1), 8)
    clean = model.predict(images)
    labels = clean.argmax(1).tolist()
    changed, _ = run("fgsm", model, images, labels, eps=0.0201)
    for image, label, shares, picture in zip(images, labels, clean, changed, strict=True):
        # d cross-entropy / d pixels = Σ_k (p_k − 1[k = label]) w_k
        gradient = (shares - np.eye(3)[label]) @ model.weights.numpy()
        steps = 5 * np.sign(gradient).reshape(3, SIZE, SIZE).transpose(1, 2, 0)
        assert np.array_equal(picture, (image + steps).clip(0, 255))


def test_descent_reaches_the_best_of_a_linear_model() -> None:
    """With two classes the corner of the ball is the worst there is: if it does not fool the model, nothing does."""
    model = Two(5)
    images = pictures_of(np.random.default_rng(2), 40)
    labels = model.predict(images).argmax(1).tolist()
    fooled = []
    for image, label in zip(images, labels, strict=True):
        away = (model.weights[1 - label] - model.weights[label]).sign().view(3, SIZE, SIZE).permute(1, 2, 0).numpy()
        corner = (image + 8 * away).clip(0, 255).astype(np.uint8)
        fooled.append(int(model.predict([corner])[0].argmax()) != label)
    assert 0 < sum(fooled) < len(fooled)
    for name in ("pgd", "strong_attack"):
        only = {"decision_steps": 0} if name == "strong_attack" else {}
        _, probabilities = run(name, model, images, labels, eps=8 / 255, steps=30, **only)
        assert (probabilities.argmax(1) != labels).tolist() == fooled, name


@pytest.mark.parametrize("name", list(OWN))
def test_a_picture_does_not_depend_on_its_neighbours(name: str) -> None:
    model = Linear(7)
    images = pictures_of(np.random.default_rng(3), 4)
    labels = model.predict(images).argmax(1).tolist()
    state = torch.random.get_rng_state()
    together, _ = run(name, model, images, labels, eps=0.01)
    assert torch.equal(torch.random.get_rng_state(), state), "the global generator is left as it was"
    for place, image in enumerate(images):
        alone, _ = run(name, model, [image], [labels[place]], eps=0.01, seeds=[place])
        assert np.array_equal(alone[0], together[place])


def test_another_name_of_the_class_is_no_miss() -> None:
    """Outputs 0 and 1 both mean the class, so only output 2 can be the miss; in the dataset's space nothing can."""
    model = Linear(11)
    images = pictures_of(np.random.default_rng(4), 30)
    labels = [0] * 30
    members = ((0, 1),)
    _, probabilities = run("pgd", model, images, labels, eps=0.03, members=members, steps=20)
    missed = probabilities.argmax(1) == 2
    before = model.predict(images).argmax(1) == 2
    assert missed.sum() > before.sum()
    untouched, _ = run("pgd", model, images, labels, eps=0.03, members=members, space="dataset")
    assert all(np.abs(one.astype(int) - two).max() <= 7 for one, two in zip(images, untouched, strict=True))


def test_a_black_box_falls_to_its_decisions_alone() -> None:
    images = [np.full((4, 4, 3), value, np.uint8) for value in (124, 131, 90)]
    labels = [0, 1, 0]
    changed, probabilities = run("decision_attack", Brightness(), images, labels, eps=6 / 255, steps=10)
    assert (probabilities.argmax(1) != labels).tolist() == [True, True, False]
    assert all(np.abs(one.astype(int) - two).max() <= 6 for one, two in zip(images, changed, strict=True))
    attacks.check_attackable(Brightness(), "decision_attack")
    for name in ("fgsm", "pgd", "strong_attack"):
        with pytest.raises(UserError, match="brightness has none; decision_attack"):
            attacks.check_attackable(Brightness(), name)


def test_a_model_that_never_changes_its_mind_withstands_without_a_fuss() -> None:
    class Constant(Brightness):
        def predict(self, images: Sequence[np.ndarray]) -> np.ndarray:
            return np.tile(np.array([[1, 0]], np.float32), (len(images), 1))

    images = [np.full((4, 4, 3), 100, np.uint8)]
    changed, probabilities = run("decision_attack", Constant(), images, [0], eps=0.1)
    assert np.array_equal(changed[0], images[0]) and probabilities[0, 0] == 1


class Broken(Linear):
    """Gradients that are not numbers."""

    def logits(self, batch: torch.Tensor) -> torch.Tensor:
        return super().logits(batch) + 0 * (batch.flatten(1).sum(1, keepdim=True) * 0).sqrt()


def test_gradients_that_are_no_numbers_change_nothing() -> None:
    model = Broken(0)
    images = pictures_of(np.random.default_rng(5), 2)
    labels = model.predict(images).argmax(1).tolist()
    for name in ("fgsm", "pgd"):
        _, probabilities = run(name, model, images, labels, eps=0.05)
        assert np.isfinite(probabilities).all()


@pytest.fixture(scope="module")
def scenes() -> tuple[list[np.ndarray], list[str]]:
    collection = load_scenes(parse_name("diorama:test?n=24"))
    return [sample.image.load() for sample in collection.samples], [sample.label for sample in collection.samples]


def test_stronger_attacks_leave_less(scenes: tuple[list[np.ndarray], list[str]]) -> None:
    model = load_classifier("embedded:resnet_rho0", device="cpu")
    images, names = scenes
    labels = [model.labels.names.index(name) for name in names]
    inputs = [attacks.model_input(model, image) for image in images]
    right = {"clean": (attacks.answers(model, inputs).argmax(1) == labels).mean()}
    for name, own in (("fgsm", {}), ("pgd", {"steps": 10}), ("strong_attack", {"steps": 10, "decision_steps": 0})):
        _, probabilities = run(name, model, inputs, labels, eps=4 / 255, **own)
        right[name] = (probabilities.argmax(1) == labels).mean()
    starts = [run("pgd", model, inputs[:2], labels[:2], eps=4 / 255, steps=2, seeds=two)[0] for two in ((0, 1), (2, 3))]
    assert not np.array_equal(*starts), "descent starts at random"
    assert right["clean"] > right["fgsm"] > right["pgd"] >= right["strong_attack"], right


@pytest.mark.parametrize("name", ["embedded:resnet_rho0", *available("packaged")[-1:]])
def test_what_an_attack_starts_from_gets_the_answer_of_the_photo(name: str) -> None:
    """The last packaged model resizes and crops; none of it is done twice."""
    model = load_classifier(name, device="cpu")
    rng = np.random.default_rng(6)
    ramp = np.linspace(0, 200, 90)[None, :, None] * np.array([1, 0.6, 0.3])
    photo = (ramp + rng.normal(0, 20, (70, 90, 3))).clip(0, 255).astype(np.uint8)
    start = attacks.model_input(model, photo)
    assert start.shape == (*model.preprocessing.size, 3)  # type: ignore[attr-defined]
    assert np.allclose(attacks.answers(model, [start]), model.predict([photo]), atol=1e-4)
