"""Which images a pool is to have (categories × nuisances × templates → prompts), and the pool on disk."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import fingerprint, seed_from
from holdfast.core.names import parse_name
from holdfast.core.schema import plain_schema
from holdfast.data.labels import read_label_file
from holdfast.data.nuisances import (
    KINDS,
    PHOTO_TEMPLATES,
    Category,
    Nuisance,
    fill,
    read_categories,
    read_nuisances,
    read_templates,
    with_labels,
)
from holdfast.diorama import vocabulary
from holdfast.diorama.words import CATEGORY, DRAWN, WORDS, check_said, paintable
from holdfast.pipeline.specs import GenerateSpec as GenerateSpec
from holdfast.store import Parts, write_table
from holdfast.store.run import table_csv, write_csv

DIORAMA = "diorama"
DIORAMA_TEMPLATES: Mapping[str, str] = {
    "background": "a {category} {nuisance}",
    "texture": "a {nuisance} {category}",
    "material": "a {category} {nuisance}",
}
"""The captions of drawn scenes, less what is not asked for."""

Listed = TypeVar("Listed", Category, Nuisance)

_SEEDS = 2**31  # what every tool's seed field takes, so that an image can be made again anywhere


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """One image to make; ``repeat`` counts the images of its prompt."""

    prompt: str
    category: str
    nuisance_kind: str
    nuisance: str
    repeat: int = 0

    @property
    def prompt_id(self) -> str:
        """Return 16 hex digits that name the prompt, whatever makes the image."""
        return fingerprint([self.prompt, self.category, self.nuisance_kind, self.nuisance])[:16]

    @property
    def place(self) -> str:
        """Return where in the lists the request comes from, for messages."""
        return f"{self.nuisance_kind} {self.nuisance}, {self.category}"

    def seed(self, base: int = 0) -> int:
        """Return the seed of this image's noise."""
        return seed_from("generate", base, self.prompt_id, self.repeat) % _SEEDS


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """The images of a pool in the order they are made, its categories, and what was left out: (where, why)."""

    requests: tuple[ImageRequest, ...]
    categories: tuple[Category, ...]
    templates: Mapping[str, str]
    problems: tuple[tuple[str, str], ...]


def plan_prompts(spec: GenerateSpec) -> GenerationPlan:
    """Read the lists and put the prompts together."""
    if not spec.kinds:
        raise UserError(f"name a kind of nuisance: --kinds {','.join(KINDS)}")
    problems: list[tuple[str, str]] = []
    categories = list(_once(_categories(spec), "category", problems))
    nuisances = [nuisance for nuisance in _once(_nuisances(spec), "nuisance", problems) if nuisance.kind in spec.kinds]
    drawn = parse_name(spec.generator).scheme in DRAWN
    if drawn:
        nuisances = _paintable(nuisances, spec.generator)
        nuisances = list(_once(nuisances, "nuisance", problems))
        for category in categories:
            paintable(spec.generator, CATEGORY, category.name)
    lacking = [kind for kind in spec.kinds if kind not in {nuisance.kind for nuisance in nuisances}]
    if lacking:
        raise UserError(f"the nuisances have no {lacking[0]}; choose others with --kinds")
    templates = dict(DIORAMA_TEMPLATES if drawn or spec.nuisances == DIORAMA else PHOTO_TEMPLATES)
    if spec.templates:
        templates |= read_templates(spec.templates)
    prompts: dict[str, ImageRequest] = {}
    for category, nuisance in itertools.product(categories, nuisances):
        text = fill(templates[nuisance.kind], category.name, nuisance.words)
        if drawn:
            check_said(spec.generator, text, {CATEGORY: category.name, nuisance.kind: nuisance.name})
        request = ImageRequest(text, category.name, nuisance.kind, nuisance.name)
        if text in prompts:
            kept = prompts[text]
            problems.append((request.place, f"the prompt {text!r} is asked for twice; kept for {kept.place}"))
        else:
            prompts[text] = request
    return GenerationPlan(tuple(_in_turn(prompts.values(), spec)), tuple(categories), templates, tuple(problems))


def _is_drawn(spec: GenerateSpec, place: str) -> bool:
    return place == DIORAMA or (not place and parse_name(spec.generator).scheme in DRAWN)


def _paintable(nuisances: Iterable[Nuisance], generator: str) -> list[Nuisance]:
    """Return the nuisances by the names and in the phrases of the drawn world."""
    return [
        Nuisance(nuisance.kind, *paintable(generator, nuisance.kind, nuisance.name, nuisance.words))
        for nuisance in nuisances
    ]


def _categories(spec: GenerateSpec) -> list[Category]:
    if _is_drawn(spec, spec.categories):
        categories = [Category(name, vocabulary.KEYS[name]) for name in vocabulary.CLASSES]
    elif not spec.categories:
        raise UserError(
            "say what the images should show: --categories FILE (only embedded: and diorama: know their own)"
        )
    else:
        categories = read_categories(spec.categories)
    return with_labels(categories, spec.labels) if spec.labels else categories


def _nuisances(spec: GenerateSpec) -> list[Nuisance]:
    if _is_drawn(spec, spec.nuisances):
        return [
            Nuisance(kind, name, words)
            for kind in KINDS
            for name, words in WORDS[kind].items()
            if name not in vocabulary.UNSEEN_BACKGROUNDS
        ]
    if not spec.nuisances:
        raise UserError("say what the images vary: --nuisances FILE (only embedded: and diorama: know their own)")
    return read_nuisances(spec.nuisances)


def _once(listed: Iterable[Listed], what: str, problems: list[tuple[str, str]]) -> Iterator[Listed]:
    seen = set()
    for item in listed:
        key = (getattr(item, "kind", ""), item.name)
        if key in seen:
            problems.append((item.name, f"the {what} {item.name!r} is listed twice; one is kept"))
        else:
            seen.add(key)
            yield item


def _in_turn(prompts: Iterable[ImageRequest], spec: GenerateSpec) -> list[ImageRequest]:
    """Yield every repeat of every prompt; categories and kinds take turns."""
    # So a pool that is cut short, by ``limit`` or by a kill, is even over both; and a higher limit only adds to it.
    groups: dict[tuple[str, str], list[ImageRequest]] = {}
    for prompt in prompts:
        groups.setdefault((prompt.nuisance_kind, prompt.category), []).append(prompt)
    shuffled = [
        sorted(group, key=lambda request: request.prompt_id) for group in groups.values()
    ]  # ids are as good as random
    turns = [request for turn in itertools.zip_longest(*shuffled) for request in turn if request is not None]
    repeated = [dataclasses.replace(request, repeat=repeat) for repeat in range(spec.per_pair) for request in turns]
    return repeated[: spec.limit] if spec.limit else repeated


def label_rows(categories: Sequence[Category]) -> list[dict[str, str]]:
    """Return the rows of a label file, one per alias of a category."""
    return [
        {"class": category.name, "imagenet_index": str(index), "wnid": wnid, "label": label}
        for category in categories
        for index, wnid, label in itertools.zip_longest(
            category.keys.imagenet_indices, category.keys.wnids, category.keys.labels, fillvalue=""
        )
    ]


MANIFEST = plain_schema(
    "path text, label text, sample_id text, source_id text, kind text, condition text, nuisance text, prompt text, "
    "prompt_id text, repeat int, seed long, generator text, generator_fingerprint text, height int, width int, "
    "seconds float, made_at text, attempt int, cut_words text, published_sha256 text, licence text"
)
"""``label``: the category; ``source_id``: the prompt: images of one prompt are one cluster; ``kind``: generated;
``condition``: background | texture | material; ``prompt_id``: of the prompt's text, category and nuisance;
``repeat``: which of the prompt's images; ``seconds``: its share of its batch's time; ``made_at``: UTC;
``attempt``: 1 if the first image was unusable; ``cut_words``: of the prompt, which the generator did not read;
``published_sha256``: of the file."""
POOL_ROWS = pa.schema([*MANIFEST, ("status", pa.string()), ("error", pa.string()), ("row_id", pa.string())])


class GeneratedPool:
    """The folder that ``generate`` writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = Parts(folder / "manifest", POOL_ROWS)

    def drop_lost(self) -> None:
        """Forget images whose file is gone, with their failed attempts: they are made again."""
        rows = self.parts.rows(["row_id", "prompt_id", "repeat", "status", "path"]).to_pylist()
        lost = {
            (row["prompt_id"], row["repeat"])
            for row in rows
            if row["status"] == "ok" and not (self.folder / row["path"]).is_file()
        }
        self.parts.drop_ids([row["row_id"] for row in rows if (row["prompt_id"], row["repeat"]) in lost])

    def finish(self, categories: Sequence[Category]) -> None:
        """Write the manifest, the list of failures, and the label file if the categories have keys."""
        table = self.parts.rows().sort_by([("sample_id", "ascending"), ("attempt", "ascending")])
        is_ok = pc.equal(table["status"], "ok")
        images = table.filter(is_ok).select(MANIFEST.names)
        write_table(self.folder / "manifest.parquet", images)
        write_csv(self.folder / "manifest.csv", images)
        failed = table.filter(pc.invert(is_ok)).drop_columns(["row_id", "path", "height", "width", "published_sha256"])
        if failed.num_rows:
            write_atomic(self.folder / "failed.csv", table_csv(failed))
        else:
            (self.folder / "failed.csv").unlink(missing_ok=True)
        labels = label_rows(self._with_earlier(categories))
        if labels:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(labels[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(labels)
            write_atomic(self.folder / "labels.csv", text.getvalue().encode())

    def _with_earlier(self, categories: Sequence[Category]) -> list[Category]:
        """Return the categories and those of earlier lists, whose images are still there."""
        file = self.folder / "labels.csv"
        keys = read_label_file(file) if file.is_file() else {}
        now = {category.name for category in categories}
        return [*(Category(name, class_keys) for name, class_keys in keys.items() if name not in now), *categories]
