"""The walk against one written out by hand, and what must hold of any walk."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from walk_reference import Walk
from walk_world import (
    CLASSES,
    PIXELS,
    BlackBox,
    LinearClassifier,
    LinearGenerator,
    LinearOracle,
    PhotoOracle,
    judged_model,
    made_walkers,
)

from holdfast.core.errors import UserError
from holdfast.core.types import LabelSpace
from holdfast.models.torch_classifier import Preprocessing, TorchClassifier
from holdfast.pipeline.walk.resources import seen
from holdfast.pipeline.walk.walk import STOPS, WalkInput, WalkOptions, WalkResult, walk
from holdfast.pipeline.walk.walk_step import Stepper, _check_alike

OPTIONS = st.builds(
    WalkOptions,
    steps=st.integers(1, 6),
    step_size=st.sampled_from([1 / 16, 1 / 64]),
    gradient=st.sampled_from(["sign", "normalised", "raw", "adam"]),
    loss=st.sampled_from(["cross_entropy", "margin"]),
    first=st.sampled_from(["step", "reconstruction"]),
    start=st.sampled_from(["clean", "fgsm"]),
    stop_when_fooled=st.booleans(),
    batch_size=st.integers(1, 5),
)
LENIENT = LinearOracle(0, 0.0)


def by_key(results: list[WalkResult]) -> dict[str, WalkResult]:
    found = {one.key: one for one in results}
    assert len(found) == len(results)
    return found


@settings(max_examples=120, deadline=None)
@given(options=OPTIONS, seed=st.integers(0, 999), count=st.integers(1, 7), least=st.sampled_from([0.1, 0.3, 0.4]))
def test_every_walk_is_the_one_written_out_by_hand(options: WalkOptions, seed: int, count: int, least: float) -> None:
    generator, model, oracle = LinearGenerator(seed), LinearClassifier(seed), LinearOracle(seed + 1, least)
    walkers = made_walkers(seed, count, (None, 0, 3))
    found = by_key(list(walk(walkers, generator, judged_model(model), oracle, options)))
    reference = Walk(generator, model, oracle, options)
    assert set(found) == {walker.key for walker in walkers}
    for walker in walkers:
        ours, expected = found[walker.key], reference(walker)
        for name in ("validated", "steps", "stop", "reconstruction_accepted"):
            assert getattr(ours, name) == expected[name], (name, walker)
        np.testing.assert_array_equal(ours.reconstruction, expected["reconstruction"])
        # Sums of the sign form are exact; elsewhere a value may round the other way.
        tolerance = 0 if options.gradient == "sign" else 1
        assert np.abs(ours.image.astype(int) - expected["image"]).max() <= tolerance
        assert ours.latent_distance == pytest.approx(expected["latent_distance"], rel=1e-4, abs=1e-7)


def test_the_reference_meets_every_way_to_stop() -> None:
    # Otherwise the comparison above would compare less than it says.
    seen = set()
    for seed in range(40):
        options = WalkOptions(steps=4, step_size=1 / 16, stop_when_fooled=seed % 2 == 0)
        parts = LinearGenerator(seed), LinearClassifier(seed), LinearOracle(seed + 1, 0.3)
        seen |= {Walk(*parts, options)(walker)["stop"] for walker in made_walkers(seed, 4)}
    assert seen == set(STOPS) - {"not_finite"}


@given(space=st.sampled_from(["dataset", "all"]), seed=st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_the_label_space_decides_who_competes(space: str, seed: int) -> None:
    model = LinearClassifier(seed, ("two", "tench", "three", "one"))
    batch = torch.rand(3, 3, 2, 2, generator=torch.Generator().manual_seed(seed))
    scores = judged_model(model, space).scores(batch)
    raw = model.logits(batch)
    wanted = raw[:, [3, 0, 2, 1]] if space == "all" else raw[:, [3, 0, 2]]
    torch.testing.assert_close(scores, wanted)
    assert judged_model(model, space).answers == ((*CLASSES, "tench") if space == "all" else CLASSES)
    truth = torch.tensor([0, 1, 2])
    margin = judged_model(model, space).loss(batch, truth, "margin")
    for row in range(3):
        own = scores[row, truth[row]]
        rest = torch.cat([scores[row, : truth[row]], scores[row, truth[row] + 1 :]])
        assert margin[row] == pytest.approx(float(rest.max() - own), rel=1e-5, abs=1e-6)


def test_the_image_that_is_saved_is_the_one_that_was_judged() -> None:
    oracle = LinearOracle(3, 0.3)
    walkers = made_walkers(3, 20)
    options = WalkOptions(steps=5, step_size=0.02)
    results = list(walk(walkers, LinearGenerator(3), judged_model(LinearClassifier(3)), oracle, options))
    labels = {walker.key: walker.label for walker in walkers}
    kept = [one for one in results if one.validated]
    assert len(kept) > 5
    for one in kept:
        (verdict,) = oracle.judge([one.image], [CLASSES[labels[one.key]]])
        assert verdict.accepted
        assert verdict.score == pytest.approx(one.score, abs=1e-6)
        assert verdict.margin == pytest.approx(one.margin, abs=1e-6)
        change = np.abs(one.image.astype(float) - one.reconstruction) / 255
        assert one.image_distance == pytest.approx(np.sqrt((change**2).mean()))
        assert one.largest_change == pytest.approx(change.max())


def test_an_oracle_for_photos_gives_the_same_walks() -> None:
    oracle, options = LinearOracle(5, 0.3), WalkOptions(steps=4, step_size=0.05, batch_size=4)
    walkers = made_walkers(5, 9)
    parts = LinearGenerator(5), judged_model(LinearClassifier(5))
    tensors = by_key(list(walk(walkers, *parts, oracle, options)))
    photos = by_key(list(walk(walkers, *parts, PhotoOracle(oracle), options)))
    for key, one in tensors.items():
        assert (one.stop, one.steps, one.saw) == (photos[key].stop, photos[key].steps, photos[key].saw)
        np.testing.assert_array_equal(one.image, photos[key].image)


@pytest.mark.parametrize("gradient", ["sign", "normalised", "raw", "adam"])
def test_a_random_walk_is_as_long_as_the_walk_up_the_loss(gradient: str) -> None:
    generator, model = LinearGenerator(1), judged_model(LinearClassifier(1))
    options = WalkOptions(steps=1, step_size=0.01, gradient=gradient)
    walkers = made_walkers(1, 6)
    up = by_key(list(walk(walkers, generator, model, LENIENT, options, latents=True)))
    aside = dataclasses.replace(options, direction="random")
    drawn = by_key(list(walk(walkers, generator, model, LENIENT, aside, latents=True)))
    alone = by_key(list(walk(walkers[2:3], generator, model, LENIENT, aside, latents=True)))
    ways = []
    for key, one in up.items():
        assert drawn[key].latent_distance == pytest.approx(one.latent_distance, rel=1e-5)
        ways.append((drawn[key].latent_end - drawn[key].latent_start) / drawn[key].latent_distance)
    # Each its own way, by its own seed; a different one from the loss's.
    assert np.linalg.matrix_rank(np.stack(ways), tol=1e-3) == len(ways)
    np.testing.assert_allclose(alone[walkers[2].key].latent_end, drawn[walkers[2].key].latent_end, atol=1e-7)


def test_a_random_walk_goes_straight_and_needs_no_gradients() -> None:
    options = WalkOptions(steps=4, step_size=0.01, direction="random")
    model = judged_model(BlackBox(LinearClassifier(1)))
    for one in walk(made_walkers(1, 3), LinearGenerator(1), model, LENIENT, options):
        assert one.latent_distance == pytest.approx(4 * 0.01, rel=1e-5)


def test_a_mask_freezes_all_other_dimensions() -> None:
    mask = np.zeros(PIXELS, bool)
    mask[[1, 4, 9]] = True
    for gradient in ("sign", "normalised", "raw", "adam"):
        for direction in ("loss", "random"):
            options = WalkOptions(steps=3, step_size=0.01, gradient=gradient, direction=direction)
            results = list(
                walk(made_walkers(2, 4), LinearGenerator(2), judged_model(LinearClassifier(2)), LENIENT, options,
                     mask=mask, latents=True)
            )  # fmt: skip
            for one in results:
                assert one.latent_start is not None
                moved = one.latent_end - one.latent_start
                assert (moved[~mask] == 0).all()
                assert (moved[mask] != 0).all()
    with pytest.raises(UserError, match="latent mask"):
        list(walk(made_walkers(2, 1), LinearGenerator(2), judged_model(LinearClassifier(2)), LENIENT, WalkOptions(),
                  mask=np.ones(3, bool)))  # fmt: skip


class Poisoned(LinearGenerator):
    """Images whose first value is above 0.7 have NaN in their gradients, or in themselves."""

    def __init__(self, seed: int, where: str) -> None:
        super().__init__(seed)
        self.where = where

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        image = super().decode(latent, original)
        bad = latent.detach()[:, :1, None, None] > 0.7
        if self.where == "gradient":
            # The root of zero is zero and its slope is not finite.
            whole = 1 - bad.float()
            return image + (image * 0 + whole).sqrt() - whole
        return torch.where(bad, torch.nan, image)


@pytest.mark.parametrize("where", ["gradient", "image"])
def test_a_walk_ends_where_it_is_not_finite_and_its_neighbours_do_not_notice(where: str) -> None:
    walkers = made_walkers(4, 6)
    walkers[2].image[0, 0, 0] = 250
    options = WalkOptions(steps=3, step_size=1 / 64, batch_size=6)
    sound = by_key(list(walk(walkers, LinearGenerator(4), judged_model(LinearClassifier(4)), LENIENT, options)))
    results = by_key(list(walk(walkers, Poisoned(4, where), judged_model(LinearClassifier(4)), LENIENT, options)))
    bad = results.pop(walkers[2].key)
    assert (bad.stop, bad.validated, bad.steps) == ("not_finite", False, 0)
    np.testing.assert_array_equal(bad.image, walkers[2].image)
    assert bad.reconstruction_accepted == (where == "gradient")
    for key, one in results.items():
        np.testing.assert_array_equal(one.image, sound[key].image)
        assert one.stop == "budget"


def test_what_was_kept_before_a_walk_became_infinite_stays() -> None:
    # A step up the loss of a model that wants the first value bright crosses 0.7 on its way.
    model = LinearClassifier(0)
    model.weights[:] = 0
    model.weights[1, 0] = 5
    generator = Poisoned(0, "image")
    generator.mixing = np.eye(PIXELS, dtype=np.float32)
    image = np.full((2, 2, 3), 170, np.uint8)  # 170 / 256 is 0.664
    options = WalkOptions(steps=9, step_size=1 / 64)
    (one,) = walk([WalkInput("a", image, 0)], generator, judged_model(model), LENIENT, options)
    assert (one.stop, one.steps, one.validated) == ("not_finite", 2, True)
    assert int(one.image[0, 0, 0]) == round((170 / 256 + 2 / 64) * 255)


class Bowl:
    """A black box that is surest of class one where an image is the same as its target."""

    name, fingerprint = "bowl", "bowl"
    labels = LinearClassifier(0).labels

    def __init__(self, target: np.ndarray) -> None:
        self.target = target

    def predict(self, images: list[np.ndarray]) -> np.ndarray:
        batch = np.stack(images) / 255
        ours = np.exp(-4 * ((batch - self.target) ** 2).sum((1, 2, 3)))
        return np.stack([ours, (1 - ours) / 2, (1 - ours) / 2], axis=1).astype(np.float32)


def test_probes_find_the_way_up_a_black_box() -> None:
    generator = LinearGenerator(0)
    generator.mixing = np.eye(PIXELS, dtype=np.float32)
    target = np.full((2, 2, 3), 0.45)
    model = judged_model(Bowl(target))  # type: ignore[arg-type]
    walkers = made_walkers(6, 4)
    walkers = [dataclasses.replace(one, label=0) for one in walkers]
    options = WalkOptions(steps=3, step_size=0.02, gradient="normalised", black_box=40, probe_size=0.05)
    results = by_key(list(walk(walkers, generator, model, LENIENT, options, latents=True)))
    for walker in walkers:
        one = results[walker.key]
        away = (walker.image / 255 - target).transpose(2, 0, 1).ravel()
        moved = one.latent_end - one.latent_start
        assert moved @ away / np.linalg.norm(moved) / np.linalg.norm(away) > 0.8
    again = by_key(list(walk(walkers[::-1], generator, model, LENIENT, dataclasses.replace(options, batch_size=1))))
    for key, one in results.items():
        np.testing.assert_array_equal(one.image, again[key].image)


def test_an_estimate_comes_near_the_gradient() -> None:
    generator, model = LinearGenerator(8), judged_model(LinearClassifier(8))
    walkers = made_walkers(8, 3)
    given_ = [one.image for one in walkers], [one.label for one in walkers], [0, 1, 2]
    exact = Stepper(generator, model, LENIENT, WalkOptions())
    state = exact.begin(*given_)
    (gradient,) = torch.autograd.grad(exact.look(state).loss.sum(), state["latent"])
    probing = Stepper(generator, model, LENIENT, WalkOptions(black_box=300, probe_size=0.05))
    estimate = probing._estimate(probing.begin(*given_))
    assert torch.nn.functional.cosine_similarity(estimate, gradient).min() > 0.9
    torch.testing.assert_close(estimate.norm(dim=1), gradient.norm(dim=1), rtol=0.3, atol=0)


def test_a_model_without_gradients_is_told_of_the_black_box_walk() -> None:
    model = judged_model(BlackBox(LinearClassifier(0)))
    with pytest.raises(UserError, match="--black-box"):
        walk([], LinearGenerator(0), model, LENIENT, WalkOptions())
    with pytest.raises(UserError, match="FGSM"):
        walk([], LinearGenerator(0), model, LENIENT, WalkOptions(black_box=4, start="fgsm"))


def test_frames_tell_the_walk() -> None:
    walkers = made_walkers(9, 4)
    oracle, model = LinearOracle(10, 0.3), LinearClassifier(9)
    options = WalkOptions(steps=6, step_size=0.05, batch_size=2)
    wanted = {walkers[0].key, walkers[3].key}
    for one in walk(walkers, LinearGenerator(9), judged_model(model), oracle, options, frames=wanted):
        assert bool(one.frames) == (one.key in wanted)
        if not one.frames:
            continue
        last = one.frames[-1]
        assert [frame.step for frame in one.frames] == list(range(len(one.frames)))
        np.testing.assert_array_equal(one.frames[0].image, one.reconstruction)
        assert one.frames[0].accepted == one.reconstruction_accepted
        assert last.accepted == (one.stop == "budget")
        if one.validated:
            np.testing.assert_array_equal(one.frames[one.steps].image, one.image)
        label = next(walker.label for walker in walkers if walker.key == one.key)
        for frame in one.frames:
            (probabilities,) = model.predict([frame.image])
            assert frame.probability == pytest.approx(float(probabilities[label]), abs=0.02)
            assert frame.loss == pytest.approx(-np.log(frame.probability), rel=1e-4, abs=1e-5)
            if np.ptp(np.sort(probabilities)[-2:]) > 0.05:
                assert frame.prediction == CLASSES[probabilities.argmax()]


def test_walkers_are_read_as_places_get_free() -> None:
    taken = []

    def source() -> object:
        for walker in made_walkers(11, 9):
            taken.append(walker.key)
            yield walker

    results = walk(source(), LinearGenerator(11), judged_model(LinearClassifier(11)), LENIENT,
                   WalkOptions(steps=2, batch_size=3))  # fmt: skip
    next(results)
    assert len(taken) == 3
    assert len(list(results)) == 8


def test_no_walkers_no_walks() -> None:
    assert list(walk([], LinearGenerator(0), judged_model(LinearClassifier(0)), LENIENT, WalkOptions())) == []


@pytest.mark.parametrize(
    "wrong",
    [{"gradient": "sgin"}, {"steps": 0}, {"step_size": float("nan")}, {"batch_size": 0}, {"black_box": -1},
     {"precision": "half"}, {"probe_size": 0.0}],
)  # fmt: skip
def test_wrong_options_are_answered_in_a_sentence(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError):
        WalkOptions(**wrong)  # type: ignore[arg-type]


def test_images_of_two_sizes_are_refused() -> None:
    walkers = [*made_walkers(0, 1), WalkInput("large", np.zeros((4, 4, 3), np.uint8), 0)]
    with pytest.raises(UserError, match="large"):
        list(walk(walkers, LinearGenerator(0), judged_model(LinearClassifier(0)), LENIENT, WalkOptions()))


def test_a_model_that_crops_photos_is_asked_about_what_its_predict_keeps_or_about_all_of_it() -> None:
    """Its ``predict`` zooms in, which only its transform knows."""
    from torchvision.transforms.v2 import CenterCrop, Compose, Resize, ToDtype, ToImage

    torch.manual_seed(0)
    zoom = Compose([ToImage(), Resize(48), CenterCrop(32), ToDtype(torch.float32, scale=True)])
    view = Preprocessing(zoom, (32, 32), (0.0,) * 3, (1.0,) * 3, crops_centre=True, description={})
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 3))
    model = TorchClassifier("zooming", module, LabelSpace(("a", "b", "c")), view, architecture="x", device="cpu")
    images = list(np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8))
    batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        shown = model.logits(batch).softmax(1).numpy()
    np.testing.assert_allclose(seen(model, images, "whole"), shown, atol=1e-6)
    kept = model.logits(batch[..., 5:26, 5:26]).softmax(1).detach().numpy()
    np.testing.assert_allclose(seen(model, images), kept, atol=1e-6)
    assert np.abs(model.predict(images) - shown).max() > 0.01


def test_recorded_numbers_are_refused_where_they_are_others() -> None:
    known = torch.tensor([1.0, 2.0, torch.nan])
    _check_alike((known, known + 0.01), (torch.zeros(2), torch.zeros(2)))
    for other in ([1.0, 3.0, torch.nan], [1.0, 2.0, 3.0], [1.0, torch.nan, torch.nan], [0.0, 0.0, torch.nan]):
        with pytest.raises(ValueError, match="are off by"):
            _check_alike((known, torch.tensor(other)))
