"""The tables of a bundle, what their columns mean, and the texts that explain them to readers without Holdfast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.core import schema
from holdfast_evidence.export.subject import rendered


@dataclass(frozen=True)
class TableKind:
    """One kind of table."""

    place: str  # a folder of part files, or one file
    schema: pa.Schema  # its columns
    about: str  # what a row is
    json: tuple[str, ...] = ()  # columns that hold JSON
    files: tuple[str, ...] = ()  # columns that name a file below the folder given, ``''`` for the run's own

    @property
    def meanings(self) -> Mapping[str, str]:
        """Return column → what it says, in words."""
        return schema.MEANINGS[self.place.rpartition("/")[2].removesuffix(".parquet")]

    @property
    def is_folder(self) -> bool:
        """Return whether the table is a folder of parts."""
        return not self.place.endswith(".parquet")


TABLES = (
    TableKind("predictions", schema.PREDICTIONS, "The one table: a row for each image, condition and model.",
              json=("parameters",)),
    TableKind("samples.parquet", schema.SAMPLES, "A row for each image of the dataset.", json=("attributes",)),
    TableKind("details/walks", schema.WALKS, "A row for each latent walk.", files=("image",)),
    TableKind("details/frames", schema.FRAMES, "A row for each step of the walks that were kept step by step.",
              files=("image",)),
    TableKind("details/latents", schema.LATENTS, "A row for each validated walk whose latents were kept."),
    TableKind("details/answers", schema.ANSWERS, "A row for each question that a model was asked."),
    TableKind("details/segments", schema.SEGMENTS, "A row for each class in a segmented image."),
    TableKind("details/embeddings", schema.EMBEDDINGS, "The vector of each image that an encoder saw."),
    TableKind("details/attributions", schema.ATTRIBUTIONS, "A row for each map of where a model looked.",
              files=("picture",)),
    TableKind("details/objects", schema.OBJECTS, "A row for each true object under each condition and detector.",
              json=("parameters",)),
    TableKind("details/images", schema.IMAGES, "A row for each image that a detector was shown.",
              json=("parameters",)),
    TableKind("details/detections", schema.DETECTIONS, "A row for each prediction of a detector, at any score.",
              json=("parameters",)),
    TableKind("jobs.parquet", schema.JOBS, "A row for each training of the run.", json=("class_balance",)),
    TableKind("curves", schema.CURVES, "A row for each epoch and split of the trainings."),
)  # fmt: skip


def in_words() -> str:
    """Return what every column of every table means, for people who have nothing but the files."""
    lines = ["The tables and their columns", ""]
    for kind in TABLES:
        lines += [kind.place + ("/part-*.parquet" if kind.is_folder else ""), f"  {kind.about}", ""]
        width = max(len(name) for name in kind.meanings)
        for field in kind.schema:
            is_word = pa.types.is_dictionary(field.type) or pa.types.is_string(field.type)
            what = "text" if is_word else str(field.type)
            lines.append(f"  {field.name:<{width}}  {kind.meanings[field.name]} ({what})")
        lines.append("")
    return "\n".join(lines)


_WORDS = {
    "predictions": "rows of the one table",
    "samples": "images of the dataset",
    "jobs": "trainings",
    "pictures": "pictures",
    "models": "trained models",
}


def readme(spec: Mapping[str, Any], counts: Mapping[str, int], name: str, *, report: bool) -> str:
    """Return README.txt: what the files are, how to read them with and without Holdfast, and whose they are."""
    title = f"Results of the run {name!r}: what vision models rely on"
    held = [(number, _WORDS.get(what, f"rows of {what}")) for what, number in sorted(counts.items())]
    about = {what: spec.get(what, "") for what in ("verb", "dataset", "seed")}
    return rendered("readme.txt.j2", title=title, held=held, report=report, **about)
