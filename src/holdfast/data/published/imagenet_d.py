"""The ImageNet-D folder layout: ``<nuisance>/<category>/<id>.png`` and ``questions/<nuisance>.csv``."""

from __future__ import annotations

import csv
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.core.types import Collection, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import FileImage, PublishedImage
from holdfast.data.nuisances import KINDS as NUISANCES
from holdfast.data.readers.manifest import read_rows, sample_fields

_QUESTION_COLUMNS = ("gt_category", "top1_pred_cate", "top2_pred_cate")


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``imagenet-d:DIR``.

    An image is of kind ``generated``; its condition is the kind of nuisance, its id ``nuisance/category/stem``, its
    attributes what ``questions/<nuisance>.csv`` says about it. A ``manifest.parquet`` or ``manifest.csv`` beside them
    (as ``holdfast mine`` writes it) adds its own: the nuisance, the prompt, and the hash that a file must have.
    Option: ``mask_format`` (of masks given by hand).
    """
    options = reading.text_options(name, ())
    root = reading.existing(name.name, "the folder")
    present = [nuisance for nuisance in NUISANCES if (root / nuisance).is_dir()]
    if not present:
        raise UserError(f"{str(root)!r} is not in the ImageNet-D layout: it has none of {', '.join(NUISANCES)}")
    problems: list[Problem] = []
    facts = _manifest(root)
    samples: list[Sample] = []
    categories: set[str] = set()
    for nuisance in present:
        questions = _questions(root / "questions" / f"{nuisance}.csv", problems)
        for category in reading.visible_folders(root / nuisance):
            entries = []
            for sample_id, path in reading.images_below(root, f"{nuisance}/{category}", problems):
                file = path.removeprefix(f"{root}/")
                asked, known = questions.get(file, {}), facts.get(file, {})
                entries.append(_sample(sample_id, category, nuisance, path, asked, known))
            categories |= {sample.label for sample in entries} or {category}
            samples += entries
    return reading.finish_folder(
        root, samples, problems, classes=sorted(categories), masks=masks, format=options["mask_format"]
    )


def _sample(
    sample_id: str, category: str, nuisance: str, path: str, asked: dict[str, Any], facts: dict[str, Any]
) -> Sample:
    """Return a sample with what its folders, the question file and the manifest say.

    The category is the manifest's: a folder cannot bear every name.
    """
    fields = sample_fields({"label": category} | facts)
    hashed = facts.get("published_sha256")
    fields |= {"kind": "generated", "condition": nuisance}
    fields["attributes"] = fields["attributes"] | asked
    return Sample(sample_id, image=PublishedImage(path, str(hashed)) if hashed else FileImage(path), **fields)


def _manifest(root: Path) -> dict[str, dict[str, Any]]:
    """Return the manifest's rows by ``nuisance/category/file``, where there is a manifest."""
    for name in ("manifest.parquet", "manifest.csv"):
        if (root / name).is_file():
            return {str(row["path"]): row for row in read_rows(root / name) if "path" in row}
    return {}


def matches(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    folders = set(reading.visible_folders(root)) - {"mining"}
    nuisances = folders & set(NUISANCES)
    return folders == set(NUISANCES) or (bool(nuisances) and folders == nuisances | {"questions"})


def _questions(file: Path, problems: list[Problem]) -> dict[str, dict[str, Any]]:
    """Return the question file's rows by ``nuisance/category/file``; an unreadable file is a problem."""
    if not file.is_file():
        return {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, delimiter="\t")
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        problems.append(Problem(f"questions/{file.name}", f"the question file cannot be read: {error}"))
        return {}
    if "image_dir" not in (reader.fieldnames or ()):
        problems.append(Problem(f"questions/{file.name}", "the question file has no column image_dir"))
        return {}
    return {
        "/".join(PurePosixPath(str(row["image_dir"])).parts[-3:]): {
            column: row[column] for column in _QUESTION_COLUMNS if row.get(column)
        }
        for row in rows
    }
