"""What a finished walk leaves: rows of the one table, details, and files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import half_may_work, stop_or_sentence
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import array_sha256, fingerprint
from holdfast.core.names import parse_name
from holdfast.core.schema import FRAMES, LATENTS, PREDICTIONS, SCHEMA_VERSION, WALKS, row_id
from holdfast.core.seeds import seed_from
from holdfast.core.tasks import CLASSIFY
from holdfast.core.types import ORIGINAL, Image, Sample
from holdfast.data.labels import outcomes
from holdfast.data.writers import encode_image
from holdfast.pipeline.evaluate.models import Tested
from holdfast.pipeline.files import file_name
from holdfast.pipeline.samples import Prepared
from holdfast.pipeline.walk.distances import FeatureDistance, colour_shift
from holdfast.pipeline.walk.resources import PerturbSpec, WalkSetting
from holdfast.pipeline.walk.walk import WalkResult
from holdfast.pipeline.walk.walk_model import seen
from holdfast.store import Parts, Run

KIND = "dynamic"
RECONSTRUCTION, PERTURBED, RANDOM_WALK = "reconstruction", "perturbed", "random_walk"
WALK_CONDITIONS = (ORIGINAL, RECONSTRUCTION, PERTURBED)
"""The conditions of one walk; the random one is walked when its length is known."""

NOT_FINITE = "the walk met a number that is not finite before its first image was accepted"
NO_WALK = "there is no validated walk whose length it could have"


@dataclass(frozen=True)
class WalkTables:
    """The tables beside the one table, keyed by its row ids."""

    walks: Parts
    frames: Parts
    latents: Parts

    @classmethod
    def of(cls, run: Path) -> WalkTables:
        """Return the tables of a run directory."""
        folder = run / "details"
        return cls(Parts(folder / "walks", WALKS), Parts(folder / "frames", FRAMES), Parts(folder / "latents", LATENTS))

    def all(self) -> tuple[Parts, Parts, Parts]:
        """Return the three tables."""
        return self.walks, self.frames, self.latents


@dataclass
class FinishedWalk:
    """One sample that went its way against one model: a walk, or the reason why there is none."""

    sample: Sample
    original: Image | None = None
    walked: WalkResult | None = None
    error: str = ""
    status: str = "error"
    budget: int = 0


@dataclass
class _Written:
    rows: list[dict[str, Any]] = field(default_factory=list)
    walks: list[dict[str, Any]] = field(default_factory=list)
    frames: list[dict[str, Any]] = field(default_factory=list)
    latents: list[dict[str, Any]] = field(default_factory=list)


class WalkRecorder:
    """Names rows before they are there, and writes them when they are."""

    def __init__(
        self, spec: PerturbSpec, prepared: Prepared, setting: WalkSetting, run: Run, distance: FeatureDistance | None
    ) -> None:
        self.spec, self.prepared, self.setting, self.run = spec, prepared, setting, run
        self.details = WalkTables.of(run.path)
        self._distance = distance
        self.stored: set[str] = set()  # rows that are there; a walk makes several at once, perhaps some of them again

    def row_id(self, sample: Sample, condition: str, model: Tested) -> str:
        """Return the id of a row."""
        image = fingerprint([self.prepared.images[sample.sample_id], sample.label])
        return row_id(self._key(sample, condition, model), image=image, mask="", model=model.fingerprint)

    def seed(self, sample: Sample) -> int:
        """Return a walk's seed: the same for every model, so that all meet the same random directions."""
        return seed_from(self.spec.seed, sample.sample_id, "walk")

    def write(self, model: Tested, finished: Sequence[FinishedWalk], conditions: Sequence[str]) -> list[dict[str, Any]]:
        """Write what these leave and return their rows. The table itself comes last: its rows say what is done."""
        written = _Written()
        answers = self._answers(model, finished, conditions)
        apart = self._apart(finished)
        for walk in finished:
            walk_id = self._add(written, model, walk, conditions, answers)
            if walk.walked is not None and walk_id not in self.stored:
                self._add_details(
                    written, model, walk, walk_id, apart.get(walk.sample.sample_id), random=RANDOM_WALK in conditions
                )
        # Named after the table's rows: a walk that is walked twice need not be validated, or as long, both times.
        of = [row["row_id"] for row in written.rows]
        for parts, rows in zip(self.details.all(), (written.walks, written.frames, written.latents), strict=True):
            if rows:
                parts.write(pa.Table.from_pylist(rows, schema=parts.schema), of=of)
        self.run.predictions.write(pa.Table.from_pylist(written.rows, schema=PREDICTIONS))
        return written.rows

    def _key(self, sample: Sample, condition: str, model: Tested) -> dict[str, Any]:
        return {
            "task": CLASSIFY.name,
            "kind": KIND,
            "dataset": self.prepared.collection.name,
            "sample_id": sample.sample_id,
            "source_id": sample.source_id,
            "split": sample.split,
            "fold": sample.fold,
            "condition": condition,
            "variant": "",
            "parameters": self.setting.parameters_json(condition),
            "seed": self.spec.seed,
            "model": model.classifier.name,
            "trained_on": "",
            "protocol": CLASSIFY.protocol,
        }

    def _answers(
        self, model: Tested, finished: Sequence[FinishedWalk], conditions: Sequence[str]
    ) -> dict[tuple[str, str], dict[str, Any]]:
        """Return (sample_id, condition) → outcome columns, for every picture there is."""
        asked: list[tuple[str, str, str, Image]] = []
        for walk in finished:
            if walk.walked is not None and walk.original is not None:
                pictures = {ORIGINAL: walk.original, RECONSTRUCTION: walk.walked.reconstruction}
                if walk.walked.validated:
                    pictures |= dict.fromkeys((PERTURBED, RANDOM_WALK), walk.walked.image)
                asked += [
                    (walk.sample.sample_id, name, walk.sample.label, pictures[name])
                    for name in conditions
                    if name in pictures
                ]
        answers = _predicted(model, [image for *_, image in asked], [label for _, _, label, _ in asked])
        return {
            (sample_id, name): answer | {"image_sha256": array_sha256(image)}
            for (sample_id, name, _, image), answer in zip(asked, answers, strict=True)
        }

    def _add(
        self,
        written: _Written,
        model: Tested,
        walk: FinishedWalk,
        conditions: Sequence[str],
        answers: dict[tuple[str, str], dict[str, Any]],
    ) -> str:
        """Add the rows of one sample; return the id of the row that its walk belongs to."""
        walk_id = ""
        for condition in conditions:
            row = self._key(walk.sample, condition, model) | {
                "row_id": self.row_id(walk.sample, condition, model),
                "run_id": self.run.run_id,
                "schema_version": SCHEMA_VERSION,
                "label": walk.sample.label,
            }
            if walk.walked is None:
                row |= {"status": walk.status, "error": walk.error}
            else:
                row |= _outcome(walk.walked, condition, walk.sample.sample_id, answers)
                if condition != ORIGINAL:
                    row |= self._verdict(walk.walked, condition)
            if condition in (PERTURBED, RANDOM_WALK):
                walk_id = row["row_id"]
            if row["row_id"] not in self.stored:
                written.rows.append(row)
        return walk_id

    def _verdict(self, walked: WalkResult, condition: str) -> dict[str, Any]:
        if condition == RECONSTRUCTION:
            return {"oracle": self.setting.oracle.name, "oracle_accepted": walked.reconstruction_accepted}
        return {
            "oracle": self.setting.oracle.name,
            "oracle_accepted": walked.validated,
            "oracle_score": walked.score,
        }

    def _apart(self, finished: Sequence[FinishedWalk]) -> dict[str, float]:
        """Return sample_id → distance of original and kept image in the oracle's features, for validated walks."""
        pairs = [
            (walk.sample.sample_id, walk.original, walk.walked.image)
            for walk in finished
            if walk.original is not None and walk.walked is not None and walk.walked.validated
        ]
        if self._distance is None or not pairs:
            return {}
        ids, originals, images = zip(*pairs, strict=True)
        return dict(zip(ids, self._distance(originals, images), strict=True))

    def _add_details(
        self, written: _Written, model: Tested, walk: FinishedWalk, walk_id: str, apart: float | None, *, random: bool
    ) -> None:
        walked, original, kept = walk.walked, walk.original, ""
        assert walked is not None
        assert original is not None
        if self.spec.keep_images and walked.validated and not random:
            kept = f"{self._folder(model)}/{file_name(walk.sample)}.png"
            write_atomic(self.run.path / "images" / kept, encode_image(walked.image))
        written.walks.append(
            {
                "row_id": walk_id,
                "steps": walked.steps,
                "budget": walk.budget,
                "validated": walked.validated,
                "stop": walked.stop,
                "reconstruction_accepted": walked.reconstruction_accepted,
                "oracle_saw": walked.saw,
                "oracle_margin": walked.margin,
                "latent_distance": walked.latent_distance,
                "image_distance": walked.image_distance,
                "largest_change": walked.largest_change,
                "perceptual_distance": apart,
                "colour_shift": colour_shift(original, walked.image) if walked.validated else None,
                "image": kept,
            }
        )
        for frame in walked.frames:
            place = f"frames/{walk_id}/{frame.step:03d}.png"
            write_atomic(self.run.path / place, encode_image(frame.image))
            written.frames.append(
                {
                    "row_id": walk_id,
                    "step": frame.step,
                    "loss": frame.loss,
                    "probability": frame.probability,
                    "prediction": frame.prediction,
                    "oracle_score": frame.score,
                    "accepted": frame.accepted,
                    "image": place,
                }
            )
        if self.spec.keep_latents and walked.validated and not random:
            written.latents.append({"row_id": walk_id} | self._latent(walked))

    def _latent(self, walked: WalkResult) -> dict[str, Any]:
        """Return both ends of a walk; a generator that quantises gives the start in both forms."""
        import torch

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


def _predicted(model: Tested, images: Sequence[Image], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return each picture's outcome columns; a picture that the model fails on has a status instead."""
    if not images:
        return []
    try:
        columns = outcomes(seen(model.classifier, images), model.labels, labels)
    except Exception as error:
        # A model that fails on a batch must not take the rest of the run with it.
        if len(images) > 1 and half_may_work(error):
            half = len(images) // 2
            return _predicted(model, images[:half], labels[:half]) + _predicted(model, images[half:], labels[half:])
        return [{"status": "error", "error": stop_or_sentence(error)}]
    return [{name: values[index] for name, values in columns.items()} for index in range(len(images))]
