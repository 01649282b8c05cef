"""A hard set as a dataset folder: ImageNet-D's layout, our manifest, question files and a data card."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import bytes_sha256, canonical_json, fingerprint
from holdfast.core.protocols import Oracle
from holdfast.core.types import ClassKeys, Collection, Sample
from holdfast.data.images import decode_image
from holdfast.data.labels import class_keys, map_labels
from holdfast.data.readers.manifest import read_rows
from holdfast.data.reading import InsideRoot
from holdfast.data.writers import encode_image
from holdfast.pipeline.files import safe_part
from holdfast.pipeline.hard.data_card import data_card
from holdfast.pipeline.hard.pool import MeasuredPool, MineSpec
from holdfast.pipeline.hard.results import MiningChoice, Selection
from holdfast.store import read_json, read_table, write_json, write_table
from holdfast.store.spreadsheets import write_csv, write_frame

if TYPE_CHECKING:
    import pandas as pd

_FACTS = {"pool": str, "oracle": str, "used": list, "targets": list, "generators": list}
_ANSWERS = ("prompt_id", "category", "kind", "nuisance", "prompt", "half", "valid")
_SELECTED = ("surrogates_failed", "set")


def read_hard_set(folder: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return ``summary.json``, and one row per image of the pool by sample_id: every model's answer and its set."""
    mining = folder / "mining"
    try:
        facts = json.loads((mining / "summary.json").read_text(encoding="utf8"))
        answers, selection = (
            read_table(mining / f"{name}.parquet").to_pandas().set_index("sample_id")
            for name in ("answers", "selection")
        )
        if not isinstance(facts, dict):
            raise ValueError("summary.json is no table of facts")
        wrong = [name for name, kind in _FACTS.items() if not isinstance(facts.get(name), kind)]
        wrong += [name for name in _ANSWERS if name not in answers]
        images = answers.join(selection[list(_SELECTED)])
        if wrong:
            raise KeyError(wrong[0])
    except (OSError, ValueError, KeyError) as error:
        why = "" if isinstance(error, OSError) else f" ({str(error).partition('.')[0]})"
        raise UserError(
            f"{folder} is not a hard set, or not a whole one{why}; make one of a pool first: holdfast mine POOL … "
            "--out HARD"
        ) from error
    return facts, images


MANIFEST = "manifest.parquet"
_BEGUN = "begun.json"
_FIRST = ("path", "label", "sample_id", "source_id", "kind", "condition", "licence")
_LAST = ("surrogates_failed", "oracle_accepted", "oracle_saw", "half", "set")
_AT_ONCE = 64
_QUESTIONS = ("image_dir", "gt_category", "top1_pred_cate", "top2_pred_cate")


def check_out(out: Path) -> None:
    """Raise a UserError if a folder holds anything but a hard set of ours."""
    if not out.exists() or (out.is_dir() and all(entry.name.startswith(".") for entry in out.iterdir())):
        return
    try:
        verb = json.loads((out / "mining" / "spec.json").read_text(encoding="utf8")).get("verb")
    except (OSError, ValueError, AttributeError):
        verb = None
    if verb != "mine":
        raise UserError(f"{out} holds something else; name a new folder for --out")


def publish(
    spec: MineSpec,
    pool: MeasuredPool,
    choice: MiningChoice,
    selection: Selection,
    oracle: Oracle,
    tables: dict[str, pd.DataFrame],
    facts: dict[str, Any],
    out: Path,
) -> int:
    """Write the dataset folder and ``mining/``; returns how many images it has.

    The old manifest goes first and the new one comes last, so that a folder with a manifest is whole. Images of an
    earlier selection are deleted, other files are not.
    """
    chosen = selection.hard & (pool.images["valid"] | spec.keep_rejected)
    samples = {sample.sample_id: sample for sample in pool.collection.samples if chosen.get(sample.sample_id, False)}
    contents = {row["sample_id"]: row["image_fingerprint"] for row in pool.run.samples().to_pylist()}
    keys = class_keys(pool.collection, spec.labels)
    present = {sample.label for sample in samples.values()}
    paths = _paths(samples)
    _remove_stale(out, set(paths.values()))
    rows: list[dict[str, Any]] = []
    tops: list[tuple[str, str]] = []
    names = list(samples)
    for start in range(0, len(names), _AT_ONCE):
        part = names[start : start + _AT_ONCE]
        files = [_file(samples[name], contents[name]) for name in part]
        for name, data in zip(part, files, strict=True):
            write_atomic(out / paths[name], data)
            rows.append(_row(samples[name], paths[name], data, pool, selection))
        tops += _top_two(oracle, pool.collection, keys, present, files)
    _write_questions(rows, tops, out)
    # In the manifest, too, which is what a reader of the folder opens first.
    rows = [
        row | {key: name for key, name in zip(_QUESTIONS[2:], top, strict=True) if name}
        for row, top in zip(rows, tops, strict=True)
    ]
    folder = out / "mining"
    for name, frame in tables.items():
        write_frame(folder / "results", name, frame)
    write_table(folder / "selection.parquet", pa.Table.from_pandas(selection.table(pool.images), preserve_index=False))
    said = pool.said.join(pool.images).rename_axis("sample_id").reset_index()
    write_table(folder / "answers.parquet", pa.Table.from_pandas(said, preserve_index=False))
    manifest = _manifest(rows)
    facts |= {"published": len(rows), "generators": _stated(rows, "generator"), "licences": _stated(rows, "licence")}
    write_json(folder / "summary.json", facts)
    write_atomic(out / "DATACARD.md", data_card(manifest.to_pandas(), pool.images, selection, tables, facts).encode())
    _write_manifest(manifest, out)
    (folder / _BEGUN).unlink()
    return len(rows)


def _file(sample: Sample, content: str) -> bytes:
    """Return an image's file as it was classified; a drawn scene, which is no file, as PNG."""
    try:
        if hasattr(sample.image, "read"):
            data: bytes = sample.image.read()
            unchanged = bytes_sha256(data) == content
        else:
            data = encode_image(sample.image.load())
            unchanged = sample.image.fingerprint() == content
    except SampleError as error:
        raise UserError(f"{sample.sample_id}: the image cannot be read any more ({error})") from error
    if not unchanged:
        raise UserError(f"{sample.sample_id} has changed since it was classified; run the same command again")
    return data


def _paths(samples: dict[str, Sample]) -> dict[str, str]:
    """Return ``kind/category/id.png`` for every image, with nothing in it that a file system could misread."""
    paths: dict[str, str] = {}
    taken: set[str] = set()
    for name, sample in samples.items():
        own = "/".join(safe_part(part) for part in (sample.condition, sample.label, name.rpartition("/")[2]))
        own += f"-{fingerprint(name)[:8]}" if own in taken else ""
        taken.add(own)
        paths[name] = own + (Path(str(getattr(sample.image, "path", ""))).suffix.lower() or ".png")
    return paths


def _remove_stale(out: Path, kept: set[str]) -> None:
    """Take back what an earlier selection published, or began to: until a manifest is whole, a list stands for it."""
    file, begun = out / MANIFEST, out / "mining" / _BEGUN
    old = {str(row.get("path", "")) for row in read_rows(file)} if file.is_file() else set()
    old |= set(read_json(begun).get("paths", ())) if begun.is_file() else set()
    write_json(begun, {"paths": sorted(old | kept)})
    file.unlink(missing_ok=True)
    (out / "manifest.csv").unlink(missing_ok=True)
    inside = InsideRoot(out)
    for path in old - kept:
        with suppress(SampleError):  # no longer there, or a list that somebody changed leads elsewhere
            stale = Path(inside.file(path))
            stale.unlink()
            for folder in (stale.parent, stale.parent.parent):
                if folder != out.resolve() and not any(folder.iterdir()):
                    folder.rmdir()


def _row(sample: Sample, path: str, data: bytes, pool: MeasuredPool, selection: Selection) -> dict[str, Any]:
    own = pool.images.loc[sample.sample_id]
    return {
        "path": path,
        "label": sample.label,
        "sample_id": sample.sample_id,
        "source_id": sample.source_id,
        "kind": "generated",
        "condition": sample.condition,
        "licence": sample.licence,
        **{key: _cell(value) for key, value in sample.attributes.items() if key not in (*_FIRST, *_LAST)},
        "published_sha256": bytes_sha256(data),
        "surrogates_failed": int(selection.failures[sample.sample_id]),
        "oracle_accepted": bool(own["valid"]),
        "oracle_saw": str(own["oracle_saw"]),
        "half": str(own["half"]),
        "set": "hard",
    }


def _cell(value: Any) -> Any:
    """Return a value that fits into a cell: lists and tables as JSON."""
    return value if value is None or isinstance(value, (str, int, float)) else canonical_json(value)


def _manifest(rows: Sequence[dict[str, Any]]) -> pa.Table:
    between = dict.fromkeys(key for row in rows for key in row if key not in (*_FIRST, *_LAST))
    return pa.table({key: [row.get(key) for row in rows] for key in (*_FIRST, *between, *_LAST)})


def _write_manifest(table: pa.Table, out: Path) -> None:
    write_csv(out / "manifest.csv", table)
    write_table(out / MANIFEST, table)


def _stated(rows: Sequence[dict[str, Any]], key: str) -> list[str]:
    return sorted({str(row.get(key) or "") for row in rows} - {""})


def _top_two(
    oracle: Oracle, collection: Collection, keys: Mapping[str, ClassKeys], present: set[str], files: Sequence[bytes]
) -> list[tuple[str, str]]:
    """Return the oracle's two likeliest classes: its best wrong one may serve as a distractor.

    Among the classes that are ``there`` in the hard set, as only these can be asked about; among all where it has but
    one. Empty for an oracle that is no classifier.
    """
    first = getattr(oracle, "members", (oracle,))[0]
    classifier = getattr(first, "classifier", None)
    if classifier is None:
        return [("", "")] * len(files)
    names = classifier.labels.names
    if classifier.name.startswith("clip:"):  # asked for the dataset's classes, in their order
        members: Sequence[Sequence[int]] = [[place] for place in range(len(names))]
    else:
        members = map_labels(collection.classes, keys, classifier.labels).members
    scores = classifier.predict([decode_image(data) for data in files])
    best = np.stack([scores[:, list(own)].max(axis=1) for own in members], axis=1)
    if len(present) > 1:
        best[:, [name not in present for name in collection.classes]] = -np.inf
    order = np.argsort(-best, axis=1, kind="stable")[:, :2]
    return [(collection.classes[row[0]], collection.classes[row[-1]]) for row in order]


def _write_questions(rows: Sequence[dict[str, Any]], tops: Sequence[tuple[str, str]], out: Path) -> None:
    """Write ``questions/<kind>.csv``, tab separated; delete those of kinds without images."""
    texts: dict[str, io.StringIO] = {}
    for row, top in zip(rows, tops, strict=True):
        kind = row["path"].partition("/")[0]
        if kind not in texts:
            texts[kind] = io.StringIO()
            csv.writer(texts[kind], delimiter="\t", lineterminator="\n").writerow(_QUESTIONS)
        csv.writer(texts[kind], delimiter="\t", lineterminator="\n").writerow([row["path"], row["label"], *top])
    for kind, text in texts.items():
        write_atomic(out / "questions" / f"{kind}.csv", text.getvalue().encode())
    for stale in (out / "questions").glob("*.csv"):
        if stale.stem not in texts:
            stale.unlink()
