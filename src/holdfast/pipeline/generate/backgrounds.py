"""New backgrounds to order: the generator, the prompts and the oracle behind the scenario ``generated_background``."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import HoldfastError, SampleError, UserError, first_line, raise_machine_trouble
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import bytes_sha256, fingerprint, generator, seed_from
from holdfast.core.networks import resolve_device
from holdfast.core.protocols import Inpainter, Oracle, TextToImage
from holdfast.core.types import ClassKeys, Collection, Image, Mask, Rendered, Sample
from holdfast.core.votes import Tally, read_votes
from holdfast.data.labels import class_keys
from holdfast.generators import load_image_maker
from holdfast.pipeline.classifiers import load_judge
from holdfast.pipeline.donors import load_sample
from holdfast.pipeline.generate.prompts import Prompts, check_spoken, prompts_for, spoken
from holdfast.pipeline.generate.tools import check_tools
from holdfast.pipeline.jobs.progress import Summary
from holdfast.scenarios import Condition
from holdfast.scenarios.background import cover, generated_background, why_not
from holdfast.store import Parts, write_table
from holdfast.store.run import write_csv

AT_ONCE = 8  # images a call on a GPU. A processor gains little by it, and one at a time the order cannot change a bit.
NOT_RECOGNISED = "not recognised: the oracle no longer sees the object's class"


@dataclass(frozen=True)
class BackgroundRequest:
    """What is asked of the generator for one sample."""

    prompt: str
    background: str
    seed: int


class Painter:
    """One generator, loaded once, and whether what it paints is used."""

    def __init__(
        self,
        maker: TextToImage,
        prompts: Prompts,
        oracle: Oracle | None = None,
        *,
        keys: Mapping[str, ClassKeys] | None = None,
        seed: int = 0,
        at_once: int = 1,
        review_margin: float | None = None,
    ) -> None:
        self.maker, self.prompts, self.oracle = maker, prompts, oracle
        self.at_once, self.review_margin, self.inpaints = at_once, review_margin, _inpaints(maker)
        self._keys, self._seed = keys or {}, seed
        self._ahead: dict[str, Image] = {}
        self._lock = threading.Lock()

    def request(self, sample: Sample) -> BackgroundRequest:
        """Return prompt and seed of a sample; every prompt of a sample starts from the same noise."""
        rng = generator(self._seed, sample.sample_id, "prompt")
        prompt, background = self.prompts.of(sample, spoken(sample.label, self._keys.get(sample.label)), rng)
        # 53 bits, so that every reader of JSON keeps the number whole
        seed = seed_from(self._seed, sample.sample_id, "generated_background") >> 11
        return BackgroundRequest(prompt, background, seed)

    def identity(self, sample: Sample) -> str:
        """Return the hash of everything a sample's image depends on other than image, mask and condition."""
        judge = self.oracle.fingerprint if self.oracle else ""
        asked = self.request(sample)
        doubts = [] if self.review_margin is None else [self.review_margin]
        return fingerprint([self.maker.fingerprint, self.inpaints, asked.prompt, asked.seed, judge, *doubts])

    def record(self) -> dict[str, Any]:
        """Return what a run records about the painter, as JSON."""
        return {
            "generator": self.maker.name,
            "generator_fingerprint": self.maker.fingerprint,
            "way": "inpainting" if self.inpaints else "pasted over an image made from text",
            "prompts": self.prompts.table(),
            "oracle": self.oracle.name if self.oracle else "",
        }

    def unread(self, samples: Sequence[Sample], summary: Summary) -> None:
        """Note in the summary which words of which prompts the generator does not read, if it can say so."""
        first: dict[str, tuple[str, int]] = {}
        for sample in samples:
            prompt = self.request(sample).prompt
            named, count = first.get(prompt, (sample.sample_id, 0))
            first[prompt] = (named, count + 1)
        for (prompt, (named, count)), words in zip(first.items(), self._cut(list(first)), strict=True):
            if words:
                summary.add(named, f"of the prompt {prompt[:40]!r}…, the generator does not read: {words}", count)

    def _cut(self, prompts: list[str]) -> list[str]:
        cut_words = getattr(self.maker, "cut_words", None)
        if cut_words is None:
            return [""] * len(prompts)
        with self._lock:  # tokenizers keep state, too: counting words would take the padding from a prompt being read
            return list(cut_words(prompts))

    def prepare(self, wanted: Sequence[tuple[Sample, Sequence[Condition]]], max_pixels: int) -> None:
        """Paint for several samples at once, if the machine gains by it; ``paint`` then has them ready."""
        self._ahead = {}
        if self.at_once == 1:
            return
        loaded = []
        for sample, conditions in wanted:
            try:
                image, mask, _ = load_sample(sample, max_pixels)
            except SampleError:
                continue  # said where the sample is rendered
            usable = mask is not None and mask.any() and not mask.all()
            if mask is not None and usable and any(_fits(mask, condition) for condition in conditions):
                loaded.append((sample, image, mask))
        for start in range(0, len(loaded), self.at_once):
            part = loaded[start : start + self.at_once]
            try:
                pictures = self._make(part, attempt=0)
            except SampleError:
                continue  # one by one, then, to find the image it fails on
            self._ahead |= {sample.sample_id: picture for (sample, _, _), picture in zip(part, pictures, strict=True)}

    def paint(self, sample: Sample, image: Image, mask: Mask) -> Rendered:
        """Return new surroundings of a sample's size, with what was asked for; raise a SampleError without any."""
        for attempt in (0, 1):
            ready = self._ahead.get(sample.sample_id) if attempt == 0 else None
            picture = ready if ready is not None else self._make([(sample, image, mask)], attempt=attempt)[0]
            background = picture[~mask]  # one flat colour is what a safety checker or broken numbers leave
            if len(background) < 2 or np.ptp(background, axis=0).any():
                return Rendered(picture, mask, self._facts(sample, attempt))
        raise SampleError("the generator made a blank background, and another with the next seed")

    def judge(self, rendered: Rendered, sample: Sample) -> tuple[Rendered, str]:
        """Return the image with the oracle's verdict among its details, and why it is not used, or ''."""
        if self.oracle is None:
            return rendered, ""
        with self._lock:
            verdict = self.oracle.judge([rendered.image], [sample.label])[0]
        said = {
            "oracle": self.oracle.name,
            "oracle_accepted": verdict.accepted,
            "oracle_score": verdict.score if np.isfinite(verdict.score) else None,
            "oracle_margin": verdict.margin if np.isfinite(verdict.margin) else None,
            "oracle_saw": verdict.saw,
        }
        details = {**rendered.details, **said}
        # People say why; a model's reason would be another for every image.
        why = verdict.reason if hasattr(self.oracle, "knows") else NOT_RECOGNISED
        return Rendered(rendered.image, rendered.mask, details), "" if verdict.accepted else why

    def doubt(self, details: Mapping[str, Any], reason: str) -> str:
        """Return why people should look at an image (the oracle rejects it, or accepts it narrowly), or ''."""
        if self.review_margin is None or "oracle_margin" not in details:
            return ""
        margin = details["oracle_margin"]
        close = margin is None or margin < self.review_margin
        return reason or (f"accepted by a margin below {self.review_margin:g}" if close else "")

    def _facts(self, sample: Sample, attempt: int) -> dict[str, Any]:
        asked = self.request(sample)
        return {
            "prompt": asked.prompt,
            "cut_words": self._cut([asked.prompt])[0] or None,
            "asked_background": asked.background or None,
            "generator": self.maker.name,
            "generator_fingerprint": self.maker.fingerprint,
            "image_seed": asked.seed + attempt,
            "attempt": attempt,
        }

    def _make(self, wanted: Sequence[tuple[Sample, Image, Mask]], *, attempt: int) -> list[Image]:
        asked = [self.request(sample) for sample, _, _ in wanted]
        prompts, seeds = [request.prompt for request in asked], [request.seed + attempt for request in asked]
        images, masks = [image for _, image, _ in wanted], [mask for _, _, mask in wanted]
        try:
            with self._lock:  # pipelines keep state between steps
                if self.inpaints:
                    return cast(Inpainter, self.maker).inpaint(prompts, seeds, images, masks)
                pictures = self.maker.generate(prompts, seeds)
        except HoldfastError:
            raise
        except Exception as error:  # of a library, about one image
            raise_machine_trouble(error)
            raise SampleError(f"the generator failed: {type(error).__name__}: {first_line(error)}") from error
        return [cover(picture, *mask.shape) for picture, mask in zip(pictures, masks, strict=True)]


def load_painter(spec: Any, collection: Collection, conditions: Sequence[Condition]) -> Painter | None:
    """Return the painter for these conditions, or None if none of them paints; ``spec`` has PaintSpec's options."""
    check_tools(spec, conditions)
    painting = [condition.scenario for condition in conditions if condition.definition.paints]
    if not painting:
        given = next((name for name in ("generator", "prompts", "oracle") if getattr(spec, name)), None)
        if given:
            raise UserError(f"--{given} is for generated_background, which --scenarios does not name")
        return None
    if not spec.generator:
        raise UserError(
            f"{painting[0]} needs something that paints: --generator diffusers:NAME-OR-FOLDER, or embedded: for drawn "
            "scenes (holdfast ls image-makers)"
        )
    keys = class_keys(collection, spec.labels)
    prompts = prompts_for(spec.generator, spec.prompts, collection.classes)
    for label in collection.classes:
        check_spoken(prompts, label, keys.get(label))
    oracle = load_judge(spec.oracle, collection, labels=spec.labels, device=spec.device) if spec.oracle else None
    maker = load_image_maker(spec.generator, device=spec.device)
    at_once = 1 if resolve_device(spec.device) == "cpu" else AT_ONCE
    margin = getattr(spec, "review_margin", None) if getattr(spec, "review", False) else None
    return Painter(maker, prompts, oracle, keys=keys, seed=spec.seed, at_once=at_once, review_margin=margin)


def _inpaints(maker: TextToImage) -> bool:
    """Return whether a maker paints around an object; if not, the object is pasted over its image."""
    if not isinstance(maker, Inpainter):
        return False
    try:
        maker.inpaint([], [], [], [])
    except UserError:
        maker.generate([], [])  # one that can do neither says so
        return False
    return True


def _fits(mask: Mask, condition: Condition) -> bool:
    """Return whether a condition would paint around this object."""
    if condition.definition is not generated_background:
        return condition.definition.paints
    limits = {name: cast(float, condition.parameters[name]) for name in ("min_share", "max_border")}
    return not why_not(mask, **limits)


REVIEW = "review"  # the folder of images that people look at, a dataset of its own


_SHOWN = [
    "path", "label", "sample_id", "source_id", "kind", "condition", "licence", "prompt", "asked_background",
    "generator", "generator_fingerprint", "image_seed", "oracle", "oracle_accepted", "oracle_score", "oracle_margin",
    "oracle_saw", "published_sha256",
]  # fmt: skip


_ASKED = (pc.field("status") == "pending") | pc.field("people_votes").is_valid()  # rows of images that went to people


def check_review(*, oracle: str, shards: bool, margin: float) -> None:
    """Raise a UserError if --review is not possible."""
    if not oracle:
        raise UserError("--review is about images that an oracle doubts; name one: --oracle O (holdfast ls oracles)")
    if shards:
        raise UserError("--review moves single images, which tar and Parquet files do not allow: --format png or jpeg")
    if not -1 <= margin <= 1:
        raise UserError(f"--review-margin must be a number from -1 to 1, not {margin}")


def settle(out: Path, parts: Parts, votes: str | None, summary: Summary) -> None:
    """Apply people's votes to pending images, then list what people are to look at."""
    # An accepted image takes its place among the others, its row becomes ``ok``; the row of a rejected one says so.
    # What no one judged, or too few, stays pending. Files are written before rows: after a crash the same is done
    # again. ``parts``: its rows. ``votes``: what ``holdfast people review --export`` wrote, or None. ``summary``: gets
    # what is left.
    rows = parts.dataset().to_table(filter=_ASKED).to_pylist()
    if votes is not None and rows:
        decided = _decide(rows, votes)
        for row in decided.values():
            _place(out, row)
        parts.drop_ids(list(decided))
        if decided:
            parts.write(pa.Table.from_pylist(list(decided.values()), schema=parts.schema))
        rows = [decided.get(row["row_id"], row) for row in rows]
    for row in rows:
        if row["status"] == "pending":
            hint = f"people may look at it: holdfast people review {out / REVIEW}"
            summary.add(row["sample_id"], f"pending: {row['error']}; {hint}")
        elif row["status"] == "rejected":
            summary.add(row["sample_id"], "rejected: people do not accept it")
    if rows:
        _list(out / REVIEW, rows)


def _decide(rows: list[dict[str, Any]], votes: str) -> dict[str, dict[str, Any]]:
    """Return the rows that people's verdicts change, with their new values, by id."""
    tallies = {(tally.sha256, tally.asked): tally for tally in read_votes(votes).tallies() if tally.sha256}
    met = [(row, tallies[key]) for row in rows if (key := (row["sha256"], row["label"])) in tallies]
    if not met:
        raise UserError(f"the votes at {votes} are about none of the {len(rows)} images that went to people")
    decided = {row["row_id"]: _decided(row, tally) for row, tally in met if tally.decision != "undecided"}
    before = {row["row_id"]: row for row in rows}
    return {image_id: row for image_id, row in decided.items() if row != before[image_id]}


def _place(out: Path, row: dict[str, Any]) -> None:
    """Move an accepted image to the others; remove what an earlier vote had put there."""
    if row["status"] != "ok":
        (out / row["path"]).unlink(missing_ok=True)
        return
    picture = (out / REVIEW / row["path"]).read_bytes()
    if bytes_sha256(picture) != row["sha256"]:
        raise UserError(
            f"{out / REVIEW / row['path']} has changed since it was painted, so votes on it are void: paint it again"
        )
    write_atomic(out / row["path"], picture)


def _decided(row: dict[str, Any], tally: Tally) -> dict[str, Any]:
    said = {"people_votes": tally.votes, "people_yes": tally.yes}
    if tally.decision == "accepted":
        return row | said | {"status": "ok", "error": None}
    return row | said | {"status": "rejected", "error": f"{tally.yes} of {tally.votes} people accept it"}


def _list(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write the manifest of what went to people, decided or not, so that ``holdfast people review`` opens it."""
    named = [{**row, "condition": row["scenario"], "published_sha256": row["sha256"]} for row in rows]
    table = pa.table({name: [row[name] for row in named] for name in _SHOWN}).sort_by("sample_id")
    write_csv(folder / "manifest.csv", table)
    write_table(folder / "manifest.parquet", table)
