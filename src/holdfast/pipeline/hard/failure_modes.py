"""Failure modes of a run: its answers, what is known of its images, and backgrounds read by two towers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.lazy import pd
from holdfast.core.names import parse_name
from holdfast.core.types import ClassKeys, Sample
from holdfast.data.labels import class_keys
from holdfast.data.writers import encode_image
from holdfast.diorama import vocabulary
from holdfast.models import label_spaces
from holdfast.models.clip import Clip, image_embeddings, load_clip, text_embeddings
from holdfast.pipeline.generate.prompts import article, spoken
from holdfast.pipeline.hard.pool import embedded_facts
from holdfast.pipeline.hard.publish import read_hard_set
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.samples import read
from holdfast.pipeline.small_copies import small
from holdfast.pipeline.specs import ModesSpec as ModesSpec
from holdfast.pipeline.specs.images import OUTCOME_COLUMNS
from holdfast.pipeline.thumbnails import spec_of
from holdfast.stats.hard.failure_modes import FACTORS, ExplainedAnswers, asked_factors
from holdfast.store import Run

MAX_WORDS = 5_000
LEAST_SURE = 0.5
_AT_ONCE = 256


def gather(path: Path, spec: ModesSpec, *, progress: Progress = silent) -> ExplainedAnswers:
    """Return the answers of a run directory, or of a hard set (to its whole pool; the valid images are wanted)."""
    if bool(spec.words) != bool(spec.oracle):
        raise UserError("backgrounds are read with both: --words FILE and --oracle clip:NAME")
    hard = (path / "mining" / "selection.parquet").is_file()
    run = Run.open(path / "mining" / "run" if hard else path)
    answers = _mined(path, run) if hard else _evaluated(run, spec)
    return _with_backgrounds(answers, run, spec, progress) if spec.words else answers


def _mined(path: Path, run: Run) -> ExplainedAnswers:
    facts, images = read_hard_set(path)
    models = tuple(run.spec()["model_names"])
    factors = asked_factors(list(images["kind"]), list(images["nuisance"]), images.index)
    wanted = (images["set"] == "hard") & images["valid"]
    return ExplainedAnswers(
        path.name, images, images[list(models)], factors, models, wanted, _homes(run), {}, tuple(facts["targets"])
    )


def _evaluated(run: Run, spec: ModesSpec) -> ExplainedAnswers:
    right, answer = OUTCOME_COLUMNS[spec.outcome]
    samples = run.samples().to_pandas()
    samples = samples[samples["label"].notna()].set_index("sample_id")
    rows = run.rows(["sample_id", "model", "condition", "status", answer, right]).to_pandas()
    for name in ("model", "condition", answer):
        rows[name] = rows[name].astype(object)
    # An image as it is, not one that a scenario changed.
    rows = rows[
        (rows["status"] == "ok") & (rows["condition"] == rows["sample_id"].map(samples["condition"].astype(str)))
    ]
    if rows.empty:
        raise UserError(f"{run.path} has no answers to images as they are; evaluate with --scenarios original")
    # Right if the table says so: an alias is not an error.
    rows[answer] = np.where(
        rows[right], rows["sample_id"].map(samples["label"].astype(str)), rows[answer].fillna("no answer")
    )
    models = tuple(name for name in run.spec()["model_names"] if name in set(rows["model"]))
    said = rows.pivot(index="sample_id", columns="model", values=answer)[list(models)].dropna()
    facts = samples.loc[said.index]
    attributes = [json.loads(text) for text in facts["attributes"]]
    images = pd.DataFrame(
        {
            "prompt_id": [
                str(own.get("prompt_id") or source) for own, source in zip(attributes, facts["source_id"], strict=True)
            ],
            "category": facts["label"].astype(str).to_numpy(object),
            "kind": facts["condition"].astype(str).to_numpy(object),
            "nuisance": [str(own.get("nuisance", "")) for own in attributes],
            "prompt": [str(own.get("prompt", "")) for own in attributes],
        },
        index=said.index,
        dtype=object,
    )
    factors = asked_factors(list(images["kind"]), list(images["nuisance"]), images.index)
    for factor in FACTORS:  # drawn scenes know all of them, and so does a manifest with such columns
        stated = pd.Series([str(own.get(factor) or "") for own in attributes], images.index, dtype=object)
        factors[factor] = factors[factor].where(factors[factor] != "", stated)
    every = pd.Series(True, images.index)
    name = str(run.spec().get("dataset") or run.path.name)
    return ExplainedAnswers(name, images, said, factors, models, every, _homes(run), {})


def _homes(run: Run) -> dict[str, dict[tuple[str, str], str]]:
    """Return the pairs that each embedded model's training tied together; models without such ties are left out."""
    spec = run.spec()
    homes = {
        label: (
            vocabulary.home_background(label, "train"),
            vocabulary.home_texture(label, "train"),
            vocabulary.home_material(label),
        )
        for label in vocabulary.CLASSES
    }
    pairs = {(factor, label): home for label, own in homes.items() for factor, home in zip(FACTORS, own, strict=True)}
    models = zip(spec["models"], spec["model_names"], strict=True)
    return {name: pairs for text, name in models if embedded_facts(text).get("rho", 0) > 0}


def read_words(words: str) -> dict[str, str]:
    """Return backgrounds by name, as phrases of a caption."""
    if words == "diorama":
        return dict(vocabulary.BACKGROUNDS)
    file = Path(words)
    if not file.is_file():
        raise UserError(f"--words must be a file with a phrase a line, prompts or diorama, not {words}")
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf8").splitlines()]
    except UnicodeDecodeError as error:
        raise UserError(f"{file.name} is not text: {error.reason}") from error
    phrases = list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if not 2 <= len(phrases) <= MAX_WORDS:
        raise UserError(f"{file.name} has {len(phrases)} phrases; 2 to {MAX_WORDS} can be distinguished")
    beginning = re.compile(r"^(in|on|at|by|near|under|over|inside|with)\s+((a|an|the)\s+)?")
    return {beginning.sub("", phrase) or phrase: phrase for phrase in phrases}  # "in the snow" is called snow in tables


def _with_backgrounds(answers: ExplainedAnswers, run: Run, spec: ModesSpec, progress: Progress) -> ExplainedAnswers:
    """Return answers with backgrounds read by CLIP, if it is more sure than not and none was asked for."""
    name = parse_name(spec.oracle)
    if name.scheme != "clip":
        raise UserError("backgrounds are read by an image and a text tower: --oracle must be a clip:")
    texts = _texts_of(answers, spec, run)
    samples = [
        sample
        for sample in read(spec_of(run)).samples
        if sample.sample_id in answers.images.index and sample.label in texts
    ]
    clip = load_clip(name, device=spec.device)
    backgrounds: dict[str, str] = {}
    progress("read", 0, len(samples))
    for start in range(0, len(samples), _AT_ONCE):
        part = samples[start : start + _AT_ONCE]
        backgrounds |= _read(clip, part, texts)
        progress("read", min(start + _AT_ONCE, len(samples)), len(samples))
    seen = pd.Series(backgrounds, dtype=object).reindex(answers.images.index).fillna("")
    asked = answers.factors["background"]
    known = {value for own in texts.values() for value in own}
    both = asked.isin(list(known)) & (seen != "")
    reading = {
        "oracle": spec.oracle,
        "backgrounds": sorted(known),
        "images": len(seen),
        "read": int((seen != "").sum()),
        "asked": int(both.sum()),
        "agree": int((asked[both] == seen[both]).sum()),
    }
    factors = answers.factors.assign(background=asked.where(asked != "", seen))
    return replace(answers, factors=factors, reading=reading)


def _texts_of(answers: ExplainedAnswers, spec: ModesSpec, run: Run) -> dict[str, dict[str, str]]:
    """Return class → background → the text that says both."""
    if spec.words == "prompts":
        own = answers.images[answers.factors["background"] != ""]
        if "prompt" not in own or not own["prompt"].astype(bool).any():
            raise UserError("--words prompts needs a generated dataset whose prompts ask for backgrounds")
        said: dict[str, dict[str, str]] = {}
        for label, value, prompt in zip(own["category"], own["nuisance"], own["prompt"], strict=True):
            said.setdefault(str(label), {})[str(value)] = str(prompt)
        return {label: texts for label, texts in said.items() if len(texts) > 1}
    phrases = read_words(spec.words)
    keys = class_keys(read(spec_of(run)), spec.labels)
    names = {label: class_name(label, keys.get(label)) for label in dict.fromkeys(answers.images["category"])}
    return {
        label: {value: f"{article(name)} {name} {phrase}" for value, phrase in phrases.items()}
        for label, name in names.items()
    }


def _read(clip: Clip, samples: Sequence[Sample], texts: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the background of each image in which it is known, by sample_id."""
    backgrounds = {}
    for label, group in groupby(sorted(samples, key=lambda sample: sample.label), key=lambda sample: sample.label):
        own, images = [], []
        for sample in group:
            with suppress(SampleError):
                images.append(sample.image.load())
                own.append(sample.sample_id)
        if not own:
            continue
        # The class is the image's own in every text, so that it cannot decide between them.
        logits = clip.scale * image_embeddings(clip, images) @ text_embeddings(clip, list(texts[label].values())).T
        sure = np.exp(logits - logits.max(axis=1, keepdims=True))
        sure /= sure.sum(axis=1, keepdims=True)
        for sample_id, row in zip(own, sure, strict=True):
            backgrounds[sample_id] = list(texts[label])[int(row.argmax())] if row.max() >= LEAST_SURE else ""
    return backgrounds


def class_name(label: str, keys: ClassKeys | None) -> str:
    """Return a class in words; WordNet ids by ImageNet's list."""
    said = spoken(label, keys)
    if re.fullmatch(r"n\d{8}", said):
        space = label_spaces.imagenet()
        names = dict(zip(space.wnids, space.names, strict=True)) if space else {}
        if said not in names:
            raise UserError(f"there is no name for class {label!r}; give it one in a --labels file (label)")
        said = names[said].partition(",")[0]
    return said


def pictures_of(path: Path, *, size: int = 160) -> Callable[[Container[str]], dict[str, bytes]]:
    """Return a function from sample ids of a run or hard set to small JPEGs; missing images are left out."""

    def make(wanted: Container[str]) -> dict[str, bytes]:
        mined = path / "mining" / "run"
        spec = spec_of(Run.open(mined if mined.is_dir() else path))
        files: dict[str, bytes] = {}
        try:
            samples = read(spec).samples
        except UserError:
            return files
        for sample in samples:
            if sample.sample_id in wanted:
                with suppress(SampleError):
                    image = sample.image.load(max_pixels=spec.max_pixels)
                    files[sample.sample_id] = encode_image(small(image, size), format="jpeg", quality=85)
        return files

    return make
