"""What a finished walk leaves: rows of the one table, details, distances to the eye, and files."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import array_sha256, fingerprint
from holdfast.core.lazy import torch
from holdfast.core.names import parse_name
from holdfast.core.protocols import Oracle
from holdfast.core.schema import WALK_TIMES, WALKS, end_picture, original_picture
from holdfast.core.types import ORIGINAL, Image, Sample
from holdfast.data.writers import encode_image
from holdfast.models.torch_classifier import as_batch
from holdfast.pipeline.classifiers import Tested
from holdfast.pipeline.files import file_name
from holdfast.pipeline.jobs.plan import Job
from holdfast.pipeline.jobs.rows import Row, answer_each, answered, outcome_rows, sample_key
from holdfast.pipeline.walk.resources import PerturbSpec, WalkSetting, seen
from holdfast.pipeline.walk.walk import PENDING, Frame, WalkResult
from holdfast.store import write_json

FeatureDistance = Callable[[Sequence[Image], Sequence[Image]], list[float]]


def colour_shift(first_image: Image, other: Image) -> float:
    """Return the mean CIE76 difference between two images of one size; 2.3 is just noticeable."""
    first, second = (cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2LAB) for image in (first_image, other))
    return float(np.linalg.norm(first - second, axis=2).mean())


def feature_distance(oracle: Oracle, size: int) -> FeatureDistance | None:
    """Return a function for distances in an oracle's features, 0..2; None if it has no network."""
    # LPIPS without its fitted weights: at the last convolution of each resolution (of a transformer, its last norm over
    # tokens, too) one less the cosine of the two feature vectors, averaged over places and then over layers. Of an
    # ensemble the first member looks.
    members = getattr(oracle, "members", None)
    classifier = getattr(members[0] if members else oracle, "classifier", None)
    module = getattr(classifier, "_module", None)
    if classifier is None or not isinstance(module, torch.nn.Module):
        return None
    chosen = _last_maps(module, classifier, size)
    if not chosen:
        return None

    def features(images: Sequence[Image]) -> list[torch.Tensor]:
        caught: dict[int, torch.Tensor] = {}

        def catch(place: int, layer: Any, inputs: Any, output: torch.Tensor) -> None:
            # Convolutions answer NCHW, norms over tokens (images, tokens, channels).
            caught[place] = output if output.ndim == 4 else output.transpose(1, 2)

        hooks = [layer.register_forward_hook(partial(catch, place)) for place, layer in enumerate(chosen)]
        try:
            with torch.no_grad():
                classifier.logits(as_batch(images, classifier.device))
        finally:
            for hook in hooks:
                hook.remove()
        return [torch.nn.functional.normalize(caught[place].float(), dim=1) for place in range(len(chosen))]

    def distances(first: Sequence[Image], second: Sequence[Image]) -> list[float]:
        if not first:
            return []
        pairs = zip(features(first), features(second), strict=True)
        apart = [(1 - (feature * other).sum(1)).flatten(1).mean(1) for feature, other in pairs]
        mean: list[float] = torch.stack(apart).mean(0).clamp(min=0).tolist()
        return mean

    return distances


def _last_maps(module: Any, classifier: Any, size: int) -> list[Any]:
    """Return the layers whose output is the last of its resolution, found with one grey image."""
    last: dict[tuple[int, ...], Any] = {}

    def note(layer: Any, inputs: Any, output: Any) -> None:
        # One value a channel, which is what pooling leaves, is not a map.
        if output.ndim == 4 and output.shape[-1] > 1 and isinstance(layer, torch.nn.Conv2d):
            last[tuple(output.shape[-2:])] = layer
        elif output.ndim == 3 and output.shape[1] > 1 and isinstance(layer, torch.nn.LayerNorm):
            last[tuple(output.shape[1:2])] = layer

    leaves = [layer for layer in module.modules() if isinstance(layer, torch.nn.Conv2d | torch.nn.LayerNorm)]
    hooks = [layer.register_forward_hook(note) for layer in leaves]
    try:
        with torch.no_grad():
            classifier.logits(torch.full((1, 3, size, size), 0.5, device=classifier.device))
    finally:
        for hook in hooks:
            hook.remove()
    return list(last.values())


KIND = "dynamic"
RECONSTRUCTION, PERTURBED, RANDOM_WALK = "reconstruction", "perturbed", "random_walk"
WALK_CONDITIONS = (ORIGINAL, RECONSTRUCTION, PERTURBED)
"""The conditions of one walk; the random one is walked when its length is known."""

PEOPLE, NEXT_ROUND = "people", "next"
"""Folders of a run: images that people judge, and those of the round that is being made."""
NOT_FINITE = "the walk met a number that is not finite before its first image was accepted"
NO_WALK = "there is no validated walk whose length it could have"
_AS_WALKED = [name for name in WALKS.names if name in WalkResult.__dataclass_fields__]
"""Columns of ``WALKS`` that a ``WalkResult`` has by the same name."""


@dataclass(frozen=True)
class PlannedWalk:
    """One sample that walks against one model."""

    model: int  # its place in the specification
    sample: Sample
    # how many steps it may go at most; None: as many as the options say. A baseline has no walk without them
    steps: int | None = None
    baseline: bool = False  # whether it is a random walk, as long as the walk before


WalkJob = Job[PlannedWalk, str]  # A walk and the conditions whose rows are missing


@dataclass
class FinishedWalk:
    """A walk that has come to its end, or the reason why there is none."""

    job: WalkJob
    original: Image | None = None
    walked: WalkResult | None = None
    error: str = ""
    status: str = "error"
    budget: int = 0

    @property
    def sample(self) -> Sample:
        """Return what was walked."""
        return self.job.item.sample


def walk_key(
    spec: PerturbSpec, dataset: str, setting: WalkSetting, sample: Sample, condition: str, model: Tested
) -> dict[str, Any]:
    """Return the key columns of one row."""
    return sample_key(
        sample, kind=KIND, dataset=dataset, condition=condition, variant="",
        parameters=setting.parameters_json(condition), seed=spec.seed, model=model.classifier.name,
    )  # fmt: skip


@dataclass(frozen=True)
class WalkRecorder:
    """Turns finished walks into rows with their details, and writes images."""

    spec: PerturbSpec
    dataset: str
    setting: WalkSetting
    run: Path
    distance: FeatureDistance | None
    pictured: Container[str] = ()

    def rows(self, model: Tested, finished: Sequence[FinishedWalk]) -> Iterator[Row]:
        """Yield the missing rows of these walks."""
        answers = self._answers(model, finished)
        # How long each walk took; random walks are baselines and do not count.
        seconds = {
            row_id: round(walk.walked.seconds, 6)
            for walk in finished
            if walk.walked is not None
            for condition, row_id in zip(walk.job.parts, walk.job.ids, strict=True)
            if condition == PERTURBED
        }
        if seconds:
            write_json(self.run / WALK_TIMES / f"{fingerprint(sorted(seconds))[:16]}.json", seconds)
        apart, oracle = self._apart(finished), self.setting.oracle.name
        for walk in finished:
            sample = walk.sample
            waiting = self._ask_people(model, walk)
            for condition, row_id in zip(walk.job.parts, walk.job.ids, strict=True):
                row = walk_key(self.spec, self.dataset, self.setting, sample, condition, model)
                row |= {"row_id": row_id, "label": sample.label}
                if walk.walked is None:
                    yield row | {"status": walk.status, "error": walk.error}
                    continue
                if waiting and condition != ORIGINAL:
                    yield row | {"status": PENDING, "error": waiting}
                    continue
                row |= _outcome(walk.walked, condition, sample.sample_id, answers)
                if condition == RECONSTRUCTION:
                    row |= {"oracle": oracle, "oracle_accepted": walk.walked.reconstruction_accepted}
                elif condition != ORIGINAL:
                    row |= {"oracle": oracle, "oracle_accepted": walk.walked.validated}
                    row["oracle_score"] = walk.walked.score
                if condition == PERTURBED and sample.sample_id in self.pictured:
                    assert walk.walked is not None and walk.original is not None
                    write_atomic(self.run / original_picture(walk.sample.sample_id), encode_image(walk.original))
                    if walk.walked.validated:
                        write_atomic(self.run / end_picture(row_id), encode_image(walk.walked.image))
                if condition in (PERTURBED, RANDOM_WALK):
                    row |= self._details(model, walk, row_id, apart.get(sample.sample_id))
                yield row

    def _ask_people(self, model: Tested, walk: FinishedWalk) -> str:
        """Write the images that people have to judge before a walk continues, and return what it waits for."""
        if walk.walked is None or walk.walked.stop != PENDING:
            return ""
        people = self.run / PEOPLE
        for step, image in walk.walked.asking:
            name = (
                f"{walk.sample.label}/{self._folder(model)}-{file_name(walk.sample).replace('/', '-')}-{step:03d}.png"
            )
            if not any(people.glob(f"*/{glob.escape(name)}")):
                write_atomic(people / NEXT_ROUND / name, encode_image(image))
        return f"people are asked about step {walk.walked.asking[-1][0]}"

    def _answers(self, model: Tested, finished: Sequence[FinishedWalk]) -> dict[tuple[str, str], Row]:
        """Return (sample_id, condition) → outcome columns, for every image there is."""
        asked: list[tuple[Sample, str, Image]] = []
        for walk in finished:
            if walk.walked is not None and walk.original is not None:
                pictures = {ORIGINAL: walk.original, RECONSTRUCTION: walk.walked.reconstruction}
                if walk.walked.validated:
                    pictures |= dict.fromkeys((PERTURBED, RANDOM_WALK), walk.walked.image)
                # A walk that is rejected at once has the answer to the original.
                conditions = (RANDOM_WALK,) if walk.job.item.baseline else WALK_CONDITIONS
                asked += [(walk.sample, name, pictures[name]) for name in conditions if name in pictures]

        def ask(part: Sequence[tuple[Sample, str, Image]]) -> list[Row]:
            probabilities = seen(model.classifier, [image for _, _, image in part], self.spec.walk.view)
            return outcome_rows(probabilities, model.labels, [sample.label for sample, _, _ in part])

        answers = {}
        for (sample, name, image), answer in zip(asked, answer_each(ask, asked), strict=True):
            answers[sample.sample_id, name] = answered(answer) | {"image_sha256": array_sha256(image)}
        return answers

    def _apart(self, finished: Sequence[FinishedWalk]) -> dict[str, float]:
        """Return sample_id → distance of original and kept image in the oracle's features, for validated walks."""
        pairs = [
            (walk.sample.sample_id, walk.original, walk.walked.image)
            for walk in finished
            if walk.original is not None and walk.walked is not None and walk.walked.validated
        ]
        if self.distance is None or not pairs:
            return {}
        ids, originals, images = zip(*pairs, strict=True)
        return dict(zip(ids, self.distance(originals, images), strict=True))

    def _details(self, model: Tested, walk: FinishedWalk, walk_id: str, apart: float | None) -> dict[str, list[Row]]:
        """Return the rows of a walk in the tables next to, by the table's name; write its images."""
        walked, original, kept = walk.walked, walk.original, ""
        assert walked is not None
        assert original is not None
        keeps = walked.validated and not walk.job.item.baseline
        if self.spec.keep_images and keeps:
            kept = f"{self._folder(model)}/{file_name(walk.sample)}.png"
            write_atomic(self.run / "images" / kept, encode_image(walked.image))
        row = {name: getattr(walked, name) for name in _AS_WALKED} | {
            "row_id": walk_id,
            "budget": walk.budget,
            "oracle_saw": walked.saw,
            "oracle_margin": walked.margin,
            "perceptual_distance": apart,
            "colour_shift": colour_shift(original, walked.image) if walked.validated else None,
            "image": kept,
        }
        frames = [self._frame(frame, walk_id) for frame in walked.frames]
        latents = [{"row_id": walk_id} | self._latent(walked)] if self.spec.keep_latents and keeps else []
        return {"walks": [row], "frames": frames, "latents": latents}

    def _frame(self, frame: Frame, walk_id: str) -> Row:
        """Write the image of one step; return its row."""
        place = f"frames/{walk_id}/{frame.step:03d}.png"
        write_atomic(self.run / place, encode_image(frame.image))
        same = {name: getattr(frame, name) for name in ("step", "loss", "probability", "prediction", "accepted")}
        return same | {"row_id": walk_id, "oracle_score": frame.score, "image": place}

    def _latent(self, walked: WalkResult) -> dict[str, Any]:
        """Return both ends of a walk; a generator that quantises gives the start in both forms."""
        assert walked.latent_start is not None
        assert walked.latent_end is not None
        start, end, quantised = walked.latent_start, walked.latent_end, None
        quantise = getattr(self.setting.generator, "quantise", None)
        if quantise is not None and parse_name(self.spec.generator).options.get("quantise") != "none":
            with torch.no_grad():
                codes = quantise(torch.from_numpy(start[None])), quantise(torch.from_numpy(end[None]))
            quantised, end = (code[0].float().cpu().numpy() for code in codes)
        return {
            "shape": list(start.shape),
            "start": start.ravel(),
            "start_quantised": None if quantised is None else quantised.ravel(),
            "end": end.ravel(),
        }

    def _folder(self, model: Tested) -> str:
        """Return a folder's name for a model under this setting; two settings of one run have two folders."""
        name = model.classifier.name
        clean = re.sub(r"[^\w-]+", "_", name)[:80].strip("_")
        return f"{clean}-{fingerprint([name, model.fingerprint, self.setting.parameters])[:8]}"


def _outcome(
    walked: WalkResult, condition: str, sample_id: str, answers: dict[tuple[str, str], dict[str, Any]]
) -> dict[str, Any]:
    """Return a row's outcome columns; a walk that was rejected at once has those of the original."""
    if condition in (ORIGINAL, RECONSTRUCTION) or walked.validated:
        return answers[sample_id, condition]
    if walked.stop == "not_finite":
        return {"status": "error", "error": NOT_FINITE}
    standing = answers.get((sample_id, ORIGINAL), {})
    if standing.get("status") == "error":
        return standing
    return standing | {"status": "rejected", "error": f"the oracle saw {walked.saw or 'nothing'} after the first step"}
