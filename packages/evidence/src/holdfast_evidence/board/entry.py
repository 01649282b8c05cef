"""An entry of the board: one JSON file, next to its per-sample table if it was measured.

``ID.json`` and ``ID.parquet``. Whatever is read here was written by strangers: every text has a length, every number
is finite, every link is https, and fields no one knows are refused.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Literal, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import STEERING, ZERO_WIDTH
from holdfast.store.foreign import parse_foreign_json

ENTRY_VERSION: Literal[1] = 1
MAX_BYTES = 1 << 20

PROTOCOLS = {"static": 1, "hard": 1, "dynamic": 1, "objects": 1}
"""Protocol → its version: raised when a number would come out differently from the same rows."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=rf"^[^{STEERING}{ZERO_WIDTH}\t\n]*$")]
Words = Annotated[str, StringConstraints(max_length=2000, pattern=rf"^[^{STEERING}]*$")]
Link = Annotated[str, StringConstraints(max_length=500, pattern=r"^(https://[^\s\"'<>]+)?$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,119}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Parameters = Annotated[int, Field(ge=0, le=10**15)]
Count = Annotated[int, Field(ge=1, le=10**15)]
Heads = Annotated[str, StringConstraints(pattern=r"^(\d{1,4}(/\d{1,4}){0,63})?$")]


class EntryPart(BaseModel):
    """Refuses unknown fields and values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Model(EntryPart):
    """The model. ``name`` is how Holdfast loads it, ``title`` how people call it."""

    name: Name
    title: Name
    parameters: Parameters | None = None
    input_size: Annotated[int, Field(ge=1, le=100_000)] | None = None
    heads: Heads = ""  # attention heads, stage by stage: 3/6/12/24
    paper: Link = ""
    code: Link = ""
    note: Words = ""


class Speed(EntryPart):
    """Images per second on stated hardware."""

    images_per_second: Annotated[Finite, Field(gt=0)]
    hardware: Name
    batch: Count | None = None


NAMELESS = {
    "data", "dataset", "datasets", "image", "images", "img", "original", "originals", "photo", "photos", "picture",
    "pictures",
}  # fmt: skip
"""Names of folders that say nothing about the images inside."""


class Dataset(EntryPart):
    """The images. ``sha256`` is of their ids, pixels, masks and labels; empty for a printed table without it."""

    name: Name
    sha256: Digest | Literal[""] = ""
    images: Count | None = None
    classes: Count | None = None

    @property
    def title(self) -> str:
        """The name as readers see it; of a folder called "data" it says nothing, so there it is what is inside."""
        if self.name.lower() in NAMELESS and self.images and self.classes:
            return f"{self.images:,} images of {self.classes:,} classes"
        return self.name


class Protocol(EntryPart):
    """How it was measured; entries are compared only if all of this is equal."""

    name: Literal["static", "hard", "dynamic", "objects"]
    version: Count = 1
    settings: Annotated[dict[Name, Words | int | Finite | bool | list[Words] | None], Field(max_length=100)] = {}


class Score(EntryPart):
    """One number with its interval at the 95 % level; printed numbers have none. Shares are 0..1."""

    name: Name
    estimate: Finite
    low: Finite | None = None
    high: Finite | None = None
    n: Count | None = None


class EntryTable(EntryPart):
    """The per-sample table next to the entry."""

    sha256: Digest
    rows: Count
    schema_version: Count


class EntryRun(EntryPart):
    """The run behind a measured entry."""

    fingerprint: Digest
    holdfast: Name


class Source(EntryPart):
    """Where a printed number comes from."""

    title: Name
    where: Name
    link: Link = ""


class Entry(EntryPart):
    """One model, one dataset, one protocol. ``slips`` are what is wrong with printed numbers, in sentences."""

    entry_version: Literal[1] = ENTRY_VERSION
    kind: Literal["measured", "printed"]
    id: Identifier
    model: Model
    dataset: Dataset
    protocol: Protocol
    scores: Annotated[list[Score], Field(min_length=1, max_length=500)]
    speed: Speed | None = None
    table: EntryTable | None = None
    run: EntryRun | None = None
    source: Source | None = None
    slips: Annotated[list[Words], Field(max_length=100)] = []

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind == "measured" and (self.table is None or self.run is None or not self.dataset.sha256):
            raise ValueError("a measured entry needs its table, its run and its dataset's hash")
        if self.kind == "printed" and self.source is None:
            raise ValueError("a printed entry needs its source")
        if len({score.name for score in self.scores}) != len(self.scores):
            raise ValueError("a score is there twice")
        return self


def dataset_sha256(samples: pa.Table) -> str:
    """Return the hash of a dataset: of the ids, labels, pixels and masks of its samples, in any order."""
    columns = ("sample_id", "label", "image_fingerprint", "mask_fingerprint")
    rows = zip(*(samples[name].to_pylist() for name in columns), strict=True)
    return fingerprint(sorted([text or "" for text in row] for row in rows))


def entry_id(model: str, dataset: str, protocol: str, digest: str) -> str:
    """Return the id of an entry: its subject, and the beginning of its table's hash (or of a printed entry's text)."""
    words = "-".join(re.sub(r"[^a-z0-9._]+", "-", part.lower()).strip("-._")[:40] for part in (model, dataset))
    return f"{words.strip('-._') or 'entry'}-{protocol}-{digest[:12]}"


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """Read a small plain text file that a stranger wrote; a UserError if it is a link, too large or not UTF-8."""
    try:
        if path.is_symlink():
            raise UserError(f"{path.name} is a link: an entry is a plain file")
        if not path.is_file():
            raise UserError(f"there is no file {path.name}")
        if path.stat().st_size > most:
            raise UserError(f"{path.name} is larger than {most} bytes: that is not an entry")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} cannot be read: {error}") from error


def read_entry(path: Path) -> Entry:
    """Read an entry; a UserError if the file is none."""
    return parse_entry(read_text(path), path.name)


def parse_entry(text: str, name: str) -> Entry:
    """Return the entry of a JSON text."""
    value = parse_foreign_json(text, name)
    try:
        return Entry.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise UserError(f"{name} is not an entry: {in_words(error)}") from None


def in_words(error: ValidationError) -> str:
    """Return pydantic's first finding and its place, without patterns; names in it are escaped."""
    first = error.errors()[0]
    place = ascii(".".join(str(part) for part in first["loc"]))[1:-1][:100]
    known = {"string_pattern_mismatch": "this has characters or a form that are not taken"}
    return f"{place}{': ' if place else ''}{known.get(first['type'], first['msg'].removeprefix('Value error, '))}"


def entry_json(entry: Entry) -> str:
    """Return the JSON of an entry in its one spelling, so that files can be compared line by line."""
    return json.dumps(entry.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
