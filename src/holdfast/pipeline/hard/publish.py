"""A hard set as a dataset folder: ImageNet-D's layout, our manifest, question files and a data card."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.lazy import pd
from holdfast.core.numbers import estimate, number, percent, span
from holdfast.core.protocols import Oracle
from holdfast.core.types import ClassKeys, Collection, Sample
from holdfast.data.images import decode_image
from holdfast.data.labels import class_keys, map_labels
from holdfast.data.readers.listed import read_rows
from holdfast.data.writers import manifest_cell, manifest_table, published_paths, remove_published, unchanged_file
from holdfast.pipeline.hard.pool import MeasuredPool
from holdfast.pipeline.hard.results import Mining, Selection
from holdfast.stats.hard.mining import share
from holdfast.store import read_json, read_table, write_json, write_table
from holdfast.store.run import write_csv, write_frame

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
            raise ValueError("summary.json is not a table of facts")
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


def publish(mining: Mining, tables: dict[str, pd.DataFrame], facts: dict[str, Any], out: Path) -> int:
    """Write the dataset folder and ``mining/``; return how many images it has."""
    # The old manifest goes first and the new one comes last, so that a folder with a manifest is whole. Images of an
    # earlier selection are deleted, other files are not.
    pool, selection = mining.pool, mining.selection
    chosen = selection.hard & (pool.images["valid"] | mining.spec.keep_rejected)
    samples = {sample.sample_id: sample for sample in pool.collection.samples if chosen.get(sample.sample_id, False)}
    contents = {row["sample_id"]: row["image_fingerprint"] for row in pool.run.samples().to_pylist()}
    keys = class_keys(pool.collection, mining.spec.labels)
    present = {sample.label for sample in samples.values()}
    paths = published_paths(samples)
    _remove_stale(out, set(paths.values()))
    rows: list[dict[str, Any]] = []
    tops: list[tuple[str, str]] = []
    for start in range(0, len(samples), _AT_ONCE):
        names = list(samples)[start : start + _AT_ONCE]
        files = [_file(samples[name], contents[name]) for name in names]
        for name, data in zip(names, files, strict=True):
            write_atomic(out / paths[name], data)
            rows.append(_row(samples[name], paths[name], data, pool, selection))
        tops += _top_two(mining.oracle, pool.collection, keys, present, files)
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
    manifest = manifest_table(rows, _FIRST, _LAST)
    generators, licences = (
        sorted({str(row.get(key) or "") for row in rows} - {""}) for key in ("generator", "licence")
    )
    facts |= {"published": len(rows), "generators": generators, "licences": licences}
    write_json(folder / "summary.json", facts)
    write_atomic(out / "DATACARD.md", data_card(manifest.to_pandas(), mining, tables, facts).encode())
    write_csv(out / "manifest.csv", manifest)
    write_table(out / MANIFEST, manifest)
    (folder / _BEGUN).unlink()
    return len(rows)


def _file(sample: Sample, content: str) -> bytes:
    """Return an image's file as it was classified; a drawn scene, which is not a file, as PNG."""
    try:
        data = unchanged_file(sample, content)
    except SampleError as error:
        raise UserError(f"{sample.sample_id}: the image cannot be read any more ({error})") from error
    if data is None:
        raise UserError(f"{sample.sample_id} has changed since it was classified; run the same command again")
    return data


def _remove_stale(out: Path, kept: set[str]) -> None:
    """Take back what an earlier selection published, or began to: until a manifest is whole, a list stands for it."""
    file, begun = out / MANIFEST, out / "mining" / _BEGUN
    old = {str(row.get("path", "")) for row in read_rows(file)} if file.is_file() else set()
    old |= set(read_json(begun).get("paths", ())) if begun.is_file() else set()
    write_json(begun, {"paths": sorted(old | kept)})
    file.unlink(missing_ok=True)
    (out / "manifest.csv").unlink(missing_ok=True)
    remove_published(out, old - kept)


def _row(sample: Sample, path: str, data: bytes, pool: MeasuredPool, selection: Selection) -> dict[str, Any]:
    own = pool.images.loc[sample.sample_id]
    attributes = {key: manifest_cell(value) for key, value in sample.attributes.items() if key not in (*_FIRST, *_LAST)}
    return {name: getattr(sample, name) for name in ("label", "sample_id", "source_id", "condition", "licence")} | {
        "path": path,
        "kind": "generated",
        **attributes,
        "published_sha256": bytes_sha256(data),
        "surrogates_failed": int(selection.failures[sample.sample_id]),
        "oracle_accepted": bool(own["valid"]),
        "oracle_saw": str(own["oracle_saw"]),
        "half": str(own["half"]),
        "set": "hard",
    }


def _top_two(
    oracle: Oracle, collection: Collection, keys: Mapping[str, ClassKeys], present: set[str], files: Sequence[bytes]
) -> list[tuple[str, str]]:
    """Return the oracle's two likeliest classes: its best wrong one may serve as a distractor."""
    # Among the classes of the hard set, as only these can be asked about; among all if it has but one. Empty for an
    # oracle that is not a classifier.
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
    lines: dict[str, list[Sequence[str]]] = {}
    for row, top in zip(rows, tops, strict=True):
        lines.setdefault(row["path"].partition("/")[0], [_QUESTIONS]).append([row["path"], row["label"], *top])
    for kind, own in lines.items():
        text = io.StringIO()
        csv.writer(text, delimiter="\t", lineterminator="\n").writerows(own)
        write_atomic(out / "questions" / f"{kind}.csv", text.getvalue().encode())
    for stale in (out / "questions").glob("*.csv"):
        if stale.stem not in lines:
            stale.unlink()


PEOPLE = (
    "adult", "baby", "boy", "bride", "child", "children", "clown", "crowd", "doctor", "elderly", "face", "farmer",
    "father", "female", "girl", "groom", "hand", "human", "kid", "king", "lady", "male", "man", "men", "monk",
    "mother", "nun", "nurse", "people", "person", "player", "police", "priest", "prince", "princess", "queen",
    "soldier", "student", "teacher", "toddler", "woman", "women", "worker",
)  # fmt: skip
CULTURES = (
    "aboriginal", "africa", "african", "american", "arab", "arabic", "asia", "asian", "brazilian", "british",
    "buddha", "buddhist", "caribbean", "cathedral", "chapel", "china", "chinese", "christian", "church", "european",
    "french", "german", "ghetto", "hijab", "hindu", "igloo", "india", "indian", "indigenous", "islamic", "italian",
    "japan", "japanese", "jewish", "kasbah", "kimono", "korean", "latin", "mexican", "monastery", "mosque", "muslim",
    "native", "pagoda", "persian", "pilgrim", "pub", "ramadan", "russian", "sari", "shrine", "slum", "sombrero",
    "souk", "spanish", "synagogue", "temple", "tribal", "turban", "turkish", "yurt",
)  # fmt: skip
"""Words that bring people or cultures into an image; a prompt with one of them, singular or plural, is counted."""


def data_card(manifest: pd.DataFrame, mining: Mining, tables: dict[str, pd.DataFrame], facts: dict[str, Any]) -> str:
    """Return the text of ``DATACARD.md``."""
    painted = facts["source"] == "prompt"
    origin, label = ("generated", "the category that the prompt asked for") if painted else ("changed", "their image's")
    sections = {
        "# Data card of a mined hard set": f"{len(manifest)} {origin} images of {manifest['label'].nunique()} "
        f"categories that {facts['choice']['words']} surrogate models get wrong, out of a pool of {facts['images']} "
        f"images of {facts['prompts']} prompts. The label is {label}. Surrogates: "
        f"{', '.join(facts['used'])}. Held-out targets: {', '.join(facts['targets'])}. Oracle: {facts['oracle']}.\n\n"
        + " ".join(facts["choice"]["rule"])
        + " These were chosen on the prompts whose `half` is `choose`; figures in `mining/report/index.html` are about "
        "the others (`report`), unless it says otherwise. The surrogates' own accuracy on this set is low because it "
        "was chosen so: it measures nothing.",
        "## Counts": _counts(manifest),
        "## Over-represented among the hard": _over(tables),
        "## Labels": _labels(tables, facts),
        "## People and cultures": _bias(mining.pool.images, mining.selection)
        if painted
        else "Not looked for: the pool has no prompts.",
        "## Licences and origin": _licences(facts),
        "## Uses": "For trying models that are neither surrogates nor related to them. Not a sample of any population: "
        "a low accuracy here says that a model shares failures with the surrogates, and means something only together "
        f"with its accuracy on the unmined pool and on the matched control. Made with seed {facts['seed']} by Holdfast "
        f"{facts['environment']['packages'].get('holdfast', '')}, {facts['environment']['time']}.",
    }
    if not painted:
        kept = ("## People and cultures", "## Licences and origin")
        sections |= {key: text.replace("prompt", "image") for key, text in sections.items() if key not in kept}
    return "\n\n".join(f"{heading}\n\n{text}" for heading, text in sections.items()) + "\n"


def _counts(manifest: pd.DataFrame) -> str:
    table = manifest.groupby(["label", "condition"]).size().unstack(fill_value=0)
    table["all"] = table.sum(axis=1)
    rows = [[name, *row] for name, row in zip(table.index, table.to_numpy().tolist(), strict=True)]
    text = _table(["category", *map(str, table.columns)], rows)
    if "nuisance" in manifest:
        counted = (manifest["condition"] + ": " + manifest["nuisance"].fillna("")).value_counts()
        text += "\n\n" + _table(["nuisance", "images"], [[name, int(count)] for name, count in counted.items()])
    return text


def _over(tables: dict[str, pd.DataFrame]) -> str:
    lines = []
    for name, what in (("rates_kind", "kind"), ("rates_nuisance", "nuisance"), ("rates_category", "category")):
        frame = tables[name]
        frame = frame[(frame["half"] == "both") & (frame["subset"] == "valid")]
        lines += [
            f"- {what} **{_plain(row['value'])}** is {row['stands_out']}-represented: {row['hard']} of {row['n']} "
            f"valid images are hard, {estimate(row['estimate'], row['low'], row['high'])}; that is "
            f"{number(100 * row['excess'], 1, sign=True)} points "
            f"({span(row['excess_low'], row['excess_high'], sign=True)}) against all others"
            for row in frame[frame["stands_out"] != ""].to_dict("records")
        ]
    head = (
        "A kind, nuisance or category stands out if its hard rate among valid images differs from the "
        "others', at a level of 5 % over all values of its sort together; intervals treat prompts, not images, as "
        "independent."
    )
    return head + "\n\n" + ("\n".join(lines) if lines else "None stands out.")


def _labels(tables: dict[str, pd.DataFrame], facts: dict[str, Any]) -> str:
    rows = [
        [row["set"], row["n"], percent(row["estimate"]), span(row["low"], row["high"])]
        for row in tables["validity"].to_dict("records")
        if row["n"]
    ]
    card = "\n".join(f"- {heading}: {text}" for heading, text in facts["oracle_card"])
    return (
        "No one looked at the images one by one: an oracle accepted or rejected each. Images that many models fail are "
        "wrong labels more often than others; the shares of accepted images (reporting half of the prompts):\n\n"
        + _table(["images", "n", "accepted", "95 % interval"], rows)
        + f"\n\nThe oracle:\n\n{card}"
        + "".join(f"\n\nWarning: {warning}" for warning in facts["warnings"])
    )


def _bias(pool: pd.DataFrame, selection: Selection) -> str:
    """Return how many prompts have a word of the lists, and how often their images are hard."""
    rows = []
    for what, words in (("people", PEOPLE), ("cultures", CULTURES)):
        for word in words:
            inside = mentions(pool["prompt"], word)
            if inside.any():
                rate = share(selection.shared[inside], pool.loc[inside, "prompt_id"])
                rate_text = estimate(rate["estimate"], rate["low"], rate["high"])
                rows.append([word, what, rate["prompts"], rate["n"], rate_text])
    searched = f"Prompts were searched for {len(PEOPLE)} words for people and {len(CULTURES)} for cultures."
    lists = (
        f"\n\nThe words for people: {', '.join(PEOPLE)}.\n\nThe words for cultures: {', '.join(CULTURES)}.\n\n"
        "A list of words finds no image that shows people unasked, and no stereotype."
    )
    if not rows:
        return f"{searched} None of them occurs." + lists
    other = share(selection.shared, pool["prompt_id"])
    return (
        f"{searched} These occur; {percent(other['estimate'])} of all images of the pool are shared failures. A "
        "generator's stereotypes are in its images of them, so a hard rate here may be its fault and not the "
        "models':\n\n" + _table(["word", "list", "prompts", "images of the pool", "shared failures"], rows) + lists
    )


def mentions(prompts: pd.Series, word: str) -> pd.Series:
    """Return which prompts have a word, singular or plural."""
    return prompts.str.contains(rf"\b{re.escape(word)}(?:s|es)?\b", case=False, regex=True)


def _licences(facts: dict[str, Any]) -> str:
    licences = ", ".join(map(_plain, facts["licences"])) or "not stated in the pool's manifest: ask its authors"
    if facts["source"] != "prompt":
        return (
            f"Licence of the images, as the pool's manifest states it: {licences}. What was done to each is in "
            "`manifest.csv`, with the SHA-256 of its file, which is checked whenever Holdfast reads it."
        )
    generators = ", ".join(map(_plain, facts["generators"])) or "not stated"
    if any(generator.startswith("embedded:") for generator in facts["generators"]):
        generators += " (Holdfast's own, like the words of its drawn world: Apache-2.0)"
    return (
        f"Generator: {generators}. Licence of the images, as the pool's manifest states it: {licences}. Prompts, seeds "
        "and the generator's fingerprint are in `manifest.csv` with every image, and the SHA-256 of its file, which "
        "is checked whenever Holdfast reads it. A generator's licence may bind what it made; words of categories and "
        "nuisances taken from lists of others keep the terms of those lists."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)


def _plain(cell: Any) -> str:
    """Return text that breaks no Markdown table and runs no HTML."""
    text = str(cell).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"\s+", " ", re.sub(r"([|\\`\[\]])", r"\\\1", text))
