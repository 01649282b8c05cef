"""Evaluate images in rounds, so that a command can stop as soon as its question is answered.

A round is a small dataset of its own: its images lend their backgrounds to each other, each one once within its class
and once to another class. So no background is shared by two answers, rounds share nothing at all, and what is known
after a round depends on its images alone. docs/statistics/sample-size.md says why that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast import registry
from holdfast.core.fingerprint import generator
from holdfast.core.schema import CLASSIFY
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.pipeline.classifiers import EvaluateSpec, load_models
from holdfast.pipeline.donors import AssignedDonors
from holdfast.pipeline.evaluate.classes import ClassEvaluating
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.samples import prepare, samples_table
from holdfast.scenarios import parse_conditions
from holdfast.stats.effects.verdict import NEEDED
from holdfast.store import Run, writing

LEAST_PER_CLASS = 3
"""Images of a class in a round: two would swap their backgrounds, and their answers would not be independent."""

PHOTOS = 24  # images of a round at least, but for the first one, if classes have that many


@dataclass(frozen=True)
class Rounds:
    """Which images are asked in which round: every round holds each class equally often."""

    blocks: tuple[tuple[Sample, ...], ...]  # the images of each round
    classes: int  # number of classes
    smallest: str  # the class that ends the rounds, because it has no more images
    unused: int  # images that no round can use

    def place(self) -> dict[str, tuple[int, str]]:
        """Return for each image the number of its round and its class."""
        return {
            sample.source_id: (number, sample.label) for number, block in enumerate(self.blocks) for sample in block
        }


def plan_rounds(collection: Collection, seed: int) -> Rounds:
    """Return the images of a dataset in random rounds; they depend on the seed and the images' names."""
    rng = generator(seed, "rounds", *sorted(collection.classes))
    by_class: dict[str, list[Sample]] = {}
    for sample in sorted(collection.samples, key=lambda sample: sample.sample_id):
        if sample.condition == ORIGINAL:
            by_class.setdefault(sample.label, []).append(sample)
    for label in sorted(by_class):
        by_class[label] = [by_class[label][place] for place in rng.permutation(len(by_class[label]))]
    smallest = min(sorted(by_class), key=lambda label: len(by_class[label]))
    each = max(LEAST_PER_CLASS, -(-PHOTOS // len(by_class)))
    fewest = len(by_class[smallest])
    # The first round is small, for a first word in seconds; the last one takes what is too few for one of its own.
    starts = [0, *(start for start in range(LEAST_PER_CLASS, fewest, each) if fewest - start >= LEAST_PER_CLASS)]
    blocks = tuple(
        tuple(sample for label in sorted(by_class) for sample in by_class[label][start:end])
        for start, end in zip(starts, [*starts[1:], fewest], strict=True)
    )
    if len(by_class) < 2 or fewest < LEAST_PER_CLASS:
        blocks = ()
    total = sum(map(len, by_class.values()))
    return Rounds(blocks, len(by_class), smallest, total - sum(map(len, blocks)))


def lent_once(samples: Sequence[Sample], *, seed: int, max_pixels: int) -> AssignedDonors:
    """Return the donors of one round: each image lends its background once within its class, and once to another class.

    If an image cannot be read, a donor is drawn as in any other pool.
    """
    rng = generator(seed, "lent once", *(sample.sample_id for sample in samples))
    lenders = {
        (sample.sample_id, same_class): samples[place]
        for same_class, places in ((True, _within_class(samples)), (False, _across_classes(samples, rng)))
        for sample, place in zip(samples, places, strict=True)
        if place >= 0
    }
    return AssignedDonors(samples, lenders, max_pixels=max_pixels)


def _within_class(samples: Sequence[Sample]) -> list[int]:
    """Return for each image the place of the next one of its class, in a circle; −1 for an image alone in its class."""
    places: dict[str, list[int]] = {}
    for place, sample in enumerate(samples):
        places.setdefault(sample.label, []).append(place)
    lender = [-1] * len(samples)
    for own in places.values():
        for place, following in zip(own, [*own[1:], own[0]], strict=True):
            lender[place] = following if following != place else -1
    return lender


def _across_classes(samples: Sequence[Sample], rng: np.random.Generator) -> list[int]:
    """Return a random permutation in which no one borrows from the own class; −1 if there is no such donor left."""
    labels = [sample.label for sample in samples]
    lender = rng.permutation(len(samples)).tolist()
    for place in range(len(samples)):
        if labels[lender[place]] != labels[place]:
            continue
        for other in rng.permutation(len(samples)).tolist():
            fits = labels[lender[other]] != labels[place] and labels[lender[place]] != labels[other]
            if fits:
                lender[place], lender[other] = lender[other], lender[place]
                break
    return [donor if labels[donor] != labels[place] else -1 for place, donor in enumerate(lender)]


class Round(ClassEvaluating):
    """The rows of one round; ``asked``: the images of this and earlier rounds, which ``spec.json`` lists."""

    asked: list[list[str]]

    def facts(self) -> dict[str, Any]:
        """Return the rounds."""
        return {"rounds": self.asked}


def evaluate_rounds(
    spec: EvaluateSpec,
    out: Path,
    collection: Collection,  # the dataset
    rounds: Rounds,  # its images in rounds
    *,
    with_masks: Callable[[Sequence[Sample]], Sequence[Sample]],  # returns a round's images with masks
    progress: Progress = silent,
) -> Iterator[tuple[Run, Summary]]:
    """Yield the run after each round: the originals and both pasted scenes of its images, as far as not stored yet."""
    spec = replace(spec, scenarios=",".join(NEEDED), fast=False)
    conditions, task = parse_conditions(spec.scenarios), registry.tasks.get(CLASSIFY)
    run, summary = Run(out), Summary()
    tables: list[pa.Table] = []
    with writing(out):
        tested = load_models(spec, collection)
        asked: list[list[str]] = []
        for photos in rounds.blocks:
            asked.append([sample.source_id for sample in photos])
            block = replace(collection, samples=tuple(with_masks(photos)), problems=())
            prepared = prepare(spec, block, progress)
            pool = lent_once(block.samples, seed=spec.seed, max_pixels=spec.max_pixels)
            lenders = pool.fingerprint(prepared.images, prepared.masks)
            prepared = replace(prepared, pool=pool, pool_fingerprint=lenders)
            work = Round(task, spec, collection, conditions, run, progress=progress, summary=summary)
            work.tested, work.prepared, work.asked = tested, prepared, list(asked)
            work.begin()
            tables.append(samples_table(prepared))
            run.write_samples(pa.concat_tables(tables).unify_dictionaries())
            work.make_rows()
            yield run, summary
