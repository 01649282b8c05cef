"""``holdfast audit watch``: a series of runs of one model family; new images without labels against what was tested."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from holdfast.core.errors import HoldfastError, UserError, errors_in_keywords
from holdfast.core.files import whole_file
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.types import ORIGINAL, Sample
from holdfast.pipeline.classifiers import load_models
from holdfast.pipeline.evaluation_rows import EvaluationIds
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.samples import prepare, read
from holdfast.pipeline.thumbnails import spec_of
from holdfast.results import Results, open_run
from holdfast.scenarios import parse_conditions
from holdfast.store import Run, write_json, writing
from holdfast.store.parts import read_json
from holdfast_evidence.dossier.profile import CONDITIONS, PhotoProfile, profile, unlabelled
from holdfast_evidence.dossier.series_page import write_series_page
from holdfast_evidence.dossier.watching import LEAST_PHOTOS, PhotoValues, changes, placed, spent

SERIES = "series.json"
FORMAT = "holdfast-series"


@errors_in_keywords()
def watch(
    series: str | Path,
    run: str | Path | None = None,
    *,
    photos: str | Path | None = None,
    model: str | None = None,
    device: str = "auto",
    progress: Progress = silent,
) -> dict[str, Any]:
    """Add a run to a series, or hold new images against what was tested; return the series with its entries.

    What the series has already is not added again; ``entry`` is its number.

    Args:
        series: folder of the series; a new one begins with its first run, which all later ones are compared with.
        run: a run directory of eval to add.
        photos: new images, which need no labels: a folder, or a name of data.
        model: which model of the run, if it has several.
        device: where the model computes (``photos``).
        progress: called with the number of images done.
    """
    folder = Path(series)
    if run is not None and photos is not None:
        raise UserError("a run and --photos are two things to add: call watch once for each")
    if run is None and not (folder / SERIES).is_file():
        raise UserError(f"{series} is not a series yet: holdfast audit watch {series} RUN begins one")
    with writing(folder, SERIES, "index.html"):
        entries = _read(folder / SERIES)
        entry: dict[str, Any] = {"number": len(entries)}
        if run is not None:
            entry = _added(folder, entries, Path(run), model)
        elif photos is not None:
            entry = _checked(folder, entries, str(photos), device, progress)
        kept = {"format": FORMAT, "version": 1, "entries": entries}
        if "number" not in entry:  # else the series has it: a command that was killed before the page is given again
            entry = _link(entry, entries)
            entries.append(entry)
            write_json(folder / SERIES, kept)
            kept["entries"] = entries = _read(folder / SERIES)  # as every later page reads them
        missing = [
            entry["number"] for entry in entries if entry["kind"] == "run" and not _place(folder, entry).is_dir()
        ]
        page = write_series_page(entries, folder, missing)
    return kept | {"page": str(page), "missing": missing, "entry": entry["number"]}


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a series; a UserError if one was changed, taken out or moved since it was written."""
    if not path.is_file():
        return []
    held = read_json(path)
    entries = held.get("entries")
    if held.get("format") != FORMAT or not isinstance(entries, list):
        raise UserError(f"{path} is not a series of holdfast audit watch")
    before = ""
    for number, entry in enumerate(entries, start=1):
        own = {name: value for name, value in dict(entry).items() if name != "fingerprint"}
        if own.get("before") != before or entry.get("fingerprint") != fingerprint(own):
            raise UserError(
                f"{path}: entry {number} was changed, or one before it was taken out; a series is only added to, since "
                "its error over time counts every comparison"
            )
        before = entry["fingerprint"]
    return entries


def _link(entry: dict[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entry with number, time and the fingerprint of the one before; a clock set back is noted."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if entries and now < entries[-1]["time"]:
        entry["notes"].append(f"the clock was set back: entry {len(entries)} says {entries[-1]['time']}")
    entry |= {"number": len(entries) + 1, "time": now, "before": entries[-1]["fingerprint"] if entries else ""}
    return entry | {"fingerprint": fingerprint(entry)}


def _place(folder: Path, entry: Mapping[str, Any]) -> Path:
    return Path(os.path.normpath(folder / entry["run"]))


def _runs(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["kind"] == "run"]


def _added(folder: Path, entries: list[dict[str, Any]], path: Path, model: str | None) -> dict[str, Any]:
    """Return the entry of a run: what changed since the first run of the series; with its number if it is there."""
    results = open_run(path)
    name = _model(results, model)
    entry: dict[str, Any] = {
        "kind": "run", "run": os.path.relpath(path.resolve(), folder.resolve()), "model": name, "changes": [],
        "notes": [], "rows": _digest(results.run, name), "dataset": str(results.run.spec().get("dataset", "")),
    }  # fmt: skip
    for earlier in _runs(entries):
        if earlier["rows"] == entry["rows"]:
            if (earlier["run"], earlier["model"]) == (entry["run"], entry["model"]):
                return earlier
            raise UserError(f"{path} is in the series already, as number {earlier['number']}")
    new_photos = _photos(results.run)
    entry["photos"] = len({source for source, *_ in new_photos})
    trouble = results.counts.trouble
    failed = int(trouble.loc[(trouble["model"].astype(str) == name) & (trouble["status"] == "error"), "n"].sum())
    entry["notes"] += [f"{failed} answers failed: wrong if images are paired, not counted if they are new"] * bool(
        failed
    )
    if not entries:
        table = results.accuracy()
        own = table[table["model"] == name][["condition", "n", "accuracy", "low", "high"]]
        return entry | {"accuracy": own.to_dict("records"), "paired": True, "level": 0.0}
    first = entries[0]
    try:
        reference = open_run(_place(folder, first))
    except HoldfastError:
        raise UserError(
            f"the first run of the series is not at {_place(folder, first)} any more, and every other is compared with "
            "it: put it back"
        ) from None
    if _digest(reference.run, first["model"]) != first["rows"]:
        raise UserError(
            f"the first run of the series, {_place(folder, first)}, has other answers than when it was added"
        )
    old_photos = _photos(reference.run)
    common = old_photos & new_photos
    if not common and {key[2] for key in old_photos} & {key[2] for key in new_photos}:
        raise UserError(
            f"{path} has images of the first run under other names, masks or labels, so that they cannot be paired: "
            "evaluate the same data, or images that are all new"
        )
    cells, sources = results.counts.cells, {source for source, *_ in common}
    new = replace(results.counts, cells=cells[cells["source_id"].astype(str).isin(sources)] if common else cells)
    if common and len(common) < len(old_photos | new_photos):
        entry["notes"].append(f"{len(common)} images are those of the first run; only they are compared")
    number = len(_runs(entries))  # of this comparison; the first run is compared with nothing
    table = changes(reference.counts, new, first["model"], name, number=number, paired=bool(common))
    lacking = list(table.loc[table["n"] == 0, "condition"])
    more = [condition for condition in results.counts.conditions if condition not in reference.counts.conditions]
    if not len(table) or len(lacking) == len(table):
        raise UserError(f"{path} and the first run have no condition, or no class, in common: nothing can be compared")
    entry["notes"] += [f"not measured here: {', '.join(lacking)}"] * bool(lacking)
    entry["notes"] += [f"not in the first run, so not compared: {', '.join(more)}"] * bool(more)
    rows = [{key: None if value != value else value for key, value in row.items()} for row in table.to_dict("records")]
    return entry | {"changes": rows, "paired": bool(common), "level": spent(number)}


def _model(results: Results, model: str | None) -> str:
    if results.is_detection:
        raise UserError(
            f"{results.path} is a run of detectors; watch keeps series of classifiers, compare holds two runs"
        )
    if results.rounds:
        raise UserError(f"{results.path} stopped early, so its answers are not a fixed sample: add a run of eval")
    models = results.counts.models
    if model is None and len(models) == 1:
        return str(models[0])
    if model not in models:
        raise UserError(f"{results.path} has the models {', '.join(models) or 'none'}: name one with --model")
    return model


def _digest(run: Run, model: str) -> str:
    """Return a digest of a model's answers."""
    rows = run.rows(["row_id", "model", "prediction", "status"]).to_pandas()
    rows = rows[rows["model"].astype(str) == model].sort_values("row_id")
    return bytes_sha256(rows.to_csv(index=False).encode())


def _photos(run: Run) -> set[tuple[str, ...]]:
    """Return source, label, and the hashes of image and mask of every sample."""
    columns = ["source_id", "label", "image_fingerprint", "mask_fingerprint", "condition"]
    rows = run.samples().select(columns).to_pylist()
    return {tuple(str(row[name] or "") for name in columns[:4]) for row in rows if row["condition"] == ORIGINAL}


def _checked(
    folder: Path, entries: list[dict[str, Any]], photos: str, device: str, progress: Progress
) -> dict[str, Any]:
    """Return the entry of new images: whether they lie within what the last run of the series tested.

    If the last entry is of the same images, it is returned: they are one check, however often the command is given.
    """
    last = _runs(entries)[-1]
    samples = unlabelled(photos)
    try:
        results = open_run(_place(folder, last))
    except HoldfastError:
        raise UserError(f"run {last['number']} is not at {_place(folder, last)} any more: put it back") from None
    spec = replace(spec_of(results.run), device=device)
    collection = read(spec)
    models = load_models(spec, collection)
    position = next((at for at, each in enumerate(models) if each.classifier.name == last["model"]), None)
    if position is None:
        raise UserError(
            f"the model {last['model']} of run {last['number']} cannot be loaded again by {list(spec.models)}"
        )
    classifier = models[position].classifier
    originals = _as_tested(results, EvaluationIds(spec, prepare(spec, collection, progress), models), position, last)
    conditions = parse_conditions(CONDITIONS)
    options: dict[str, Any] = {"max_pixels": spec.max_pixels, "progress": progress}
    stored = folder / f"tested-{fingerprint([last['fingerprint'], classifier.fingerprint, CONDITIONS])[:16]}.npz"
    new = profile(classifier, samples, conditions, **options)
    tested = _load(stored) if stored.is_file() else None
    if tested is None:
        tested = profile(classifier, originals, conditions, **options)
        with whole_file(stored) as temporary, temporary.open("wb") as file:
            np.savez(file, **asdict(tested.values))
    number = sum(entry["kind"] == "photos" for entry in entries)
    if entries[-1]["kind"] == "photos":
        again = _of_photos(photos, last, tested, new, len(samples), number)
        if {**entries[-1], **again} == entries[-1]:
            return entries[-1]
    return _of_photos(photos, last, tested, new, len(samples), number + 1)


def _of_photos(
    photos: str, last: Mapping[str, Any], tested: PhotoProfile, new: PhotoProfile, samples: int, number: int
) -> dict[str, Any]:
    """Return the entry of the check of new images with this number."""
    answer, drifts = placed(tested.values, new.values, number=number)
    notes = []
    if new.unread:
        name, reason = next(iter(new.unread.items()))
        notes.append(f"{len(new.unread)} of {samples} images could not be read, such as {name}: {reason}")
    if not drifts:
        notes.append(f"fewer than {LEAST_PHOTOS} images on one side say nothing")
    if not new.layer:
        notes.append("the model shows no layers, so distances are those of its answers")
    return {
        "kind": "photos", "data": photos, "model": last["model"], "against": last["number"], "answer": answer,
        "photos": len(new.values.answer), "tested": len(tested.values.answer), "notes": notes,
        "drifts": [asdict(drift) for drift in drifts], "level": spent(number),
    }  # fmt: skip


def _as_tested(results: Results, ids: EvaluationIds, position: int, last: Mapping[str, Any]) -> list[Sample]:
    """Return the images that a run tested; a UserError if images, weights or settings are others now.

    A row's id holds the hash of its image, the weights and all settings.
    """
    rows = results.run.rows(["row_id", "model", "condition", "status"]).to_pandas().astype(str)
    rows = rows[(rows["model"] == last["model"]) & (rows["condition"] == ORIGINAL) & (rows["status"] == "ok")]
    stored, (original,) = set(rows["row_id"]), parse_conditions(ORIGINAL)
    samples = [sample for sample in ids.samples if sample.condition == ORIGINAL]
    tested = [sample for sample in samples if ids.of(sample, original, [position])[0] in stored]
    if len(tested) < len(stored):
        raise UserError(
            f"{len(stored) - len(tested)} of the {len(stored)} images that run {last['number']} tested, or the weights "
            f"of {last['model']}, or the settings, have changed since: add a run of eval with those of today first"
        )
    return tested


def _load(path: Path) -> PhotoProfile | None:
    """Return the stored profile of tested images; None if the file is damaged, so that it is made again."""
    try:
        with np.load(path, allow_pickle=False) as held:
            return PhotoProfile(PhotoValues(**held), "", {})
    except (OSError, EOFError, ValueError, TypeError, BadZipFile):
        return None
