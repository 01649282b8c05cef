"""The walk of ``perturb`` in batches against a plain loop, with the models of the drawn world on the CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from common import Row, best_of

from holdfast.data import load_collection
from holdfast.data.labels import map_labels
from holdfast.generators import load_generator
from holdfast.models import load_classifier
from holdfast.oracle import load_oracle
from holdfast.pipeline.walk.walk import UnderTest, WalkInput, WalkOptions, walk

OPTIONS = WalkOptions(steps=5, step_size=0.05, batch_size=8)


def rows() -> Iterator[Row]:
    walkers, generator, model, oracle = drawn_world(8, device="cpu")
    # Every walk to its end, so that all three make the same number of steps.
    oracle = Accepting(oracle)

    def batched() -> None:
        assert {one.steps for one in walk(walkers, generator, model, oracle, OPTIONS)} == {OPTIONS.steps}

    def plain() -> None:
        for walker in walkers:
            plain_walk(walker, generator, model, oracle, OPTIONS)

    one_at_a_time = dataclasses.replace(OPTIONS, deterministic=True)
    ours, script, single = best_of(
        batched, plain, lambda: list(walk(walkers, generator, model, oracle, one_at_a_time)), repeats=3
    )
    threads = torch.get_num_threads()
    yield Row(f"walk, drawn scenes, {OPTIONS.steps} steps ({threads} threads)", len(walkers) / ours, "images/s")
    yield Row("walk: against a plain loop", script / ours, at_least=2)
    yield Row("walk: against itself one image at a time", single / ours)


def drawn_world(count: int, device: str) -> tuple[list[WalkInput], Any, UnderTest, Any]:
    """Scenes, and the generator, model and oracle that were trained on such."""
    collection = load_collection(f"diorama:test?n={count}&size=64")
    classifier = load_classifier("embedded:resnet_rho95", device=device)
    oracle = load_oracle(
        "clip:embedded", classes=collection.classes, keys=collection.keys, load_classifier=load_classifier,
        map_labels=map_labels, device=device,
    )  # fmt: skip
    model = UnderTest(classifier, map_labels(collection.classes, collection.keys, classifier.labels))
    walkers = [
        WalkInput(sample.sample_id, sample.image.load(), collection.classes.index(sample.label), seed)
        for seed, sample in enumerate(collection.samples)
    ]
    return walkers, load_generator("embedded:vqgan", device=device), model, oracle


class Accepting:
    """An oracle that does all its work and then accepts."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.name, self.fingerprint, self.classes = inner.name, inner.fingerprint, inner.classes
        self.answers, self.judge, self.device = inner.answers, inner.judge, inner.device
        self.classifier = inner.classifier

    def judge_batch(self, batch: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        accepted, *rest = self.inner.judge_batch(batch, labels)
        return torch.ones_like(accepted), *rest


def plain_walk(walker: WalkInput, generator: Any, model: UnderTest, oracle: Any, options: WalkOptions) -> int:
    """What one writes in an afternoon: an image at a time, ``backward``, the moved latent decoded for the oracle."""
    networks = [generator.module, model.classifier._module]  # type: ignore[attr-defined]
    for network in networks:
        network.requires_grad_(True)
    device = generator.device
    image = torch.from_numpy(walker.image).permute(2, 0, 1)[None].to(device).float() / 255
    label = torch.tensor([walker.label], device=device)
    with torch.no_grad():
        latent = generator.encode(image)
    step = 0
    while step < options.steps:
        latent = latent.detach().requires_grad_(True)
        model.loss(generator.decode(latent, image), label).sum().backward()
        latent = latent + options.step_size * latent.grad.sign()  # type: ignore[union-attr]
        with torch.no_grad():
            accepted = oracle.judge_batch(generator.decode(latent, image), label)[0]
        if not accepted.item():
            break
        step += 1
    for network in networks:
        network.requires_grad_(False)
        network.zero_grad(set_to_none=True)
    return step
