"""The walk on drawn scenes with the trained generator, model and oracle that Holdfast carries."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

from holdfast.core.protocols import LatentGenerator, Oracle
from holdfast.data import load_collection
from holdfast.data.labels import map_labels
from holdfast.generators import load_generator
from holdfast.models import load_classifier
from holdfast.oracle import load_oracle
from holdfast.pipeline.walk.walk import UnderTest, WalkInput, WalkOptions, WalkResult, walk

OPTIONS = WalkOptions(steps=3, step_size=0.3, batch_size=5)


@cache
def world() -> tuple[LatentGenerator, UnderTest, Oracle]:
    scenes = load_collection("diorama:test?n=12")
    classifier = load_classifier("embedded:resnet_rho95", device="cpu")
    oracle = load_oracle(
        "clip:embedded?min_score=0.96", classes=scenes.classes, keys=scenes.keys, load_classifier=load_classifier,
        map_labels=map_labels, device="cpu",
    )  # fmt: skip
    model = UnderTest(classifier, map_labels(scenes.classes, scenes.keys, classifier.labels))
    return load_generator("embedded:vqgan", device="cpu"), model, oracle


def scenes(count: int) -> list[WalkInput]:
    collection = load_collection(f"diorama:test?n={count}&size=64")
    return [
        WalkInput(sample.sample_id, sample.image.load(), collection.classes.index(sample.label), seed)
        for seed, sample in enumerate(collection.samples)
    ]


def walked(walkers: list[WalkInput], options: WalkOptions, **more: object) -> dict[str, WalkResult]:
    return {one.key: one for one in walk(walkers, *world(), options, **more)}  # type: ignore[arg-type]


def outcome(one: WalkResult) -> tuple[object, ...]:
    """Verdict, stop reason and the model's answer to the image that was kept."""
    model = world()[1]
    (probabilities,) = model.classifier.predict([one.image])
    return one.validated, one.stop, one.reconstruction_accepted, int(probabilities.argmax())


def agreement(count: int, sizes: tuple[int, ...], options: WalkOptions) -> tuple[float, set[str]]:
    walkers = scenes(count)
    first, *others = [walked(walkers, dataclasses.replace(options, batch_size=size)) for size in sizes]
    same = [outcome(first[key]) == outcome(other[key]) for other in others for key in first]
    return float(np.mean(same)), {one.stop for one in first.values()}


def test_the_batch_size_does_not_decide() -> None:
    share, stops = agreement(8, (1, 5), OPTIONS)
    assert share >= 0.99
    assert len(stops) > 1  # Otherwise there was nothing to disagree about.


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_batch_size_does_not_decide_on_many_scenes() -> None:
    share, _ = agreement(100, (1, 16), dataclasses.replace(OPTIONS, steps=6, step_size=0.1))
    assert share >= 0.99


def test_deterministic_walks_are_exact_whatever_the_company() -> None:
    options = dataclasses.replace(OPTIONS, steps=2, deterministic=True)
    walkers = scenes(4)
    together = walked(walkers[::-1], options, latents=True)
    for walker in walkers[:2]:
        (alone,) = walked([walker], options, latents=True).values()
        one = together[walker.key]
        np.testing.assert_array_equal(alone.image, one.image)
        np.testing.assert_array_equal(alone.latent_end, one.latent_end)
        assert (alone.score, alone.margin, alone.stop) == (one.score, one.margin, one.stop)


def test_the_walk_climbs_where_a_random_one_does_not() -> None:
    walkers = scenes(4)
    keys = [walker.key for walker in walkers]
    options = WalkOptions(steps=3, step_size=0.05, batch_size=4)
    up = walked(walkers, options, frames=keys)
    aside = walked(walkers, dataclasses.replace(options, direction="random"), frames=keys)
    gains = [one.frames[-1].loss - one.frames[0].loss for one in up.values()]
    drifts = [one.frames[-1].loss - one.frames[0].loss for one in aside.values()]
    assert np.mean(gains) > 0
    assert np.mean(gains) > 3 * abs(np.mean(drifts))


def test_half_precision_sees_what_full_precision_sees() -> None:
    walkers = scenes(4)
    options = WalkOptions(steps=1, step_size=0.02, batch_size=6)
    full, half = (walked(walkers, dataclasses.replace(options, precision=one)) for one in ("float32", "bfloat16"))
    for key, one in full.items():
        assert one.reconstruction_accepted == half[key].reconstruction_accepted
        assert np.abs(one.reconstruction.astype(int) - half[key].reconstruction).mean() < 2
