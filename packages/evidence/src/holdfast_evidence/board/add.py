"""Make board entries of a run: one per model, dataset and protocol, with numbers recomputed from the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, ValidationError

from holdfast.core.distribution import installed_version
from holdfast.core.errors import HoldfastError, UserError
from holdfast.core.files import read_toml, whole_file
from holdfast.core.schema import DETECT, SCHEMA_VERSION
from holdfast.core.types import ORIGINAL
from holdfast.pipeline import choosing
from holdfast.stats.core.answers import coded, equals, keep
from holdfast.store import Run
from holdfast_evidence.board import table as tables
from holdfast_evidence.board.entry import (
    PROTOCOLS,
    Dataset,
    Entry,
    EntryPart,
    EntryRun,
    EntryTable,
    Heads,
    Link,
    Model,
    Name,
    Parameters,
    Protocol,
    Speed,
    Words,
    dataset_sha256,
    entry_id,
    entry_json,
    in_words,
    read_entry,
)
from holdfast_evidence.board.numbers import numbers, settings
from holdfast_evidence.board.objects import board_rows

WHITE = [255, 255, 255]


class Meta(EntryPart):
    """A model in its submitter's words. Numbers that can be counted from the model may be left out."""

    title: Name | None = None
    parameters: Parameters | None = None
    input_size: Annotated[int, Field(ge=1, le=100_000)] | None = None
    heads: Heads = ""
    paper: Link = ""
    code: Link = ""
    note: Words = ""
    speed: Speed | None = None


def read_meta(path: str | Path | None, models: list[str]) -> dict[str, Meta]:
    """Return model → what the file says of it: ``[models."NAME"]`` if there are several, else the file itself.

    What is above the tables goes for all of them; a title is one model's.
    """
    content = read_toml(path, "--meta") if path is not None else {}
    tables = content.pop("models", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UserError('--meta has [models."NAME"] tables, and models is something else there')
    strange = sorted(set(tables) - set(models))
    if strange:
        raise UserError(f"--meta speaks of {strange[0]!r}; the models of this run are {', '.join(models[:8])}")
    if "title" in content and len(models) > 1:
        raise UserError('--meta has one title for several models; give each its own below [models."NAME"]')
    try:
        return {model: Meta.model_validate({**content, **tables.get(model, {})}) for model in models}
    except ValidationError as error:
        raise UserError(f"--meta, {in_words(error)}") from None


def add(
    run: str | Path,
    out: str | Path,
    meta: str | Path | None = None,
    *,
    models: Sequence[str] | None = None,
    device: str = "cpu",
) -> list[Path]:
    """Write the entries of a run, ``ID.json`` and ``ID.parquet`` each, and return the JSON files.

    A run of ``eval`` or ``train`` gives a static entry a model if it has originals and static conditions, and a hard
    one if it has generated images; a run of ``perturb`` a dynamic one a model and setting. Nothing is written
    unless all of it can be. ``meta`` is TOML with what only the submitter knows; see ``Meta``.
    """
    opened = Run.open(run)
    rows = opened.rows()
    known = coded(rows["model"])[1]
    wanted = list(models) if models else known
    for model in wanted:
        if model not in known:
            raise UserError(f"{run} has no rows of {model!r}; its models are {', '.join(known[:8])}")
    details = read_meta(meta, wanted)
    dataset = _dataset(opened, rows)
    entries: list[tuple[Entry, bytes]] = []
    for model in wanted:
        protocols = _protocols(keep(rows, "model", model))
        if protocols:
            facts = _model(opened, model, details[model], device)
            entries += [_entry(opened, facts, dataset, name, part, details[model]) for name, part in protocols]
    if not entries:
        raise UserError(
            f"{run} has nothing for a board: it takes originals with static scenarios (of classifiers or "
            "detectors), generated images, or walks"
        )
    return _write(entries, Path(out))


def _protocols(rows: pa.Table) -> list[tuple[str, pa.Table]]:
    """Return the protocols that one model's rows allow, each with its rows; dynamic once per setting."""
    protocols: list[tuple[str, pa.Table]] = []
    for name in PROTOCOLS:
        own = tables.rows_of_protocol(rows, name)
        if name == "dynamic" and len(own):
            protocols += [(name, part) for part in tables.by_setting(own)]
            continue
        conditions = coded(own["condition"])[1]
        if name == "hard" and conditions:
            protocols.append((name, own))
        if name in ("static", "objects") and ORIGINAL in conditions and len(conditions) > 1:
            protocols.append((name, own))
    return protocols


def _dataset(run: Run, rows: pa.Table) -> Dataset:
    samples = run.samples()
    if not len(samples):
        raise UserError(f"{run.path} has no samples.parquet: the dataset of these rows is not known any more")
    real = samples.filter(pc.is_valid(samples["label"]))  # without what the reader could make nothing of
    classes = run.spec().get("classes") or coded(real["label"])[1]
    names = coded(rows["dataset"])[1]
    if len(names) != 1:
        raise UserError(f"{run.path} has rows of {len(names)} datasets; an entry is about one")
    return Dataset(
        name=names[0], sha256=dataset_sha256(samples), images=len(coded(real["sample_id"])[1]), classes=len(classes)
    )


def _entry(run: Run, model: Model, dataset: Dataset, protocol: str, rows: pa.Table, meta: Meta) -> tuple[Entry, bytes]:
    table = tables.published(rows)
    if protocol == "objects":
        table = board_rows(run, table)
        if len(table) > tables.MAX_ROWS:
            raise UserError(f"{run.path} has {len(table):,} images, objects and boxes of {model.name}; a board takes "
                            f"{tables.MAX_ROWS:,}: evaluate fewer images (--limit)")  # fmt: skip
    data = tables.packed(table)
    digest = hashlib.sha256(data).hexdigest()
    stated: dict[str, Any] = settings(table, protocol)
    matte = run.spec().get("matte", WHITE)
    if matte != WHITE:  # behind transparent images; the rows do not say it
        stated["matte"] = ",".join(str(level) for level in matte)
    if run.spec().get("fill"):  # the kind of network that took objects out of backgrounds
        stated["fill"] = str(run.spec()["fill"]).partition(":")[0]
    # --fast hashes no image that it makes
    if run.spec().get("fast") and _unhashed(tables.pictures_of(table)):
        stated["fast"] = True
    try:
        made_by = str(run.environment()["packages"]["holdfast"])
    except (KeyError, TypeError):
        made_by = installed_version()
    try:
        entry = Entry(
            kind="measured",
            id=entry_id(model.name, dataset.name, protocol, digest),
            model=model,
            dataset=dataset,
            protocol=Protocol(name=protocol, version=PROTOCOLS[protocol], settings=stated),  # type: ignore[arg-type]
            scores=numbers(table, protocol),
            speed=meta.speed,
            table=EntryTable(sha256=digest, rows=len(table), schema_version=SCHEMA_VERSION),
            run=EntryRun(fingerprint=tables.run_fingerprint(table), holdfast=made_by),
        )
    except ValidationError as error:
        raise UserError(f"this run makes no entry: {in_words(error)}") from None
    return entry, data


def _unhashed(pictures: pa.Table) -> bool:
    """Return whether some answered image has no hash."""
    return bool(equals(pictures, "status", "ok")[pictures["image_sha256"].is_null().to_numpy()].any())


def _model(run: Run, name: str, meta: Meta, device: str) -> Model:
    """Return what is known of a model; parameters, input size and heads are counted if it can be loaded here."""
    parameters, size, heads = meta.parameters, meta.input_size, meta.heads
    if parameters is None:
        parameters = run.spec().get("model_parameters", {}).get(name)
    text = choosing.sources([run]).get(name, "")
    if text and (parameters is None or size is None or not heads) and run.spec().get("task") != DETECT:
        try:
            counted, side, counted_heads = choosing.architecture_facts(
                text, classes=run.spec().get("classes"), device=device
            )
        except (HoldfastError, OSError, ImportError, RuntimeError, ValueError):
            counted, side, counted_heads = None, None, ""  # an entry without them is an entry, too
        parameters, size = counted if parameters is None else parameters, side if size is None else size
        heads = heads or counted_heads
    about = meta.model_dump(include={"paper", "code", "note"})
    return Model(name=name, title=meta.title or name, parameters=parameters, input_size=size, heads=heads, **about)


def _write(entries: list[tuple[Entry, bytes]], out: Path) -> list[Path]:
    """Write the entries that are not there yet: a command that a full disk or a kill has cut short can be repeated."""
    known = {path: read_entry(path) for path in sorted(out.glob("*.json")) if path.name != "datasets.json"}
    paths = [out / f"{entry.id}.json" for entry, _ in entries]
    for path, (entry, _) in zip(paths, entries, strict=True):
        for other, existing in known.items():
            if existing.table == entry.table and (other != path or entry_json(existing) != entry_json(entry)):
                raise UserError(
                    f"{out} has this submission already: {other.name} has the same table and says something else of "
                    "the model. Delete it to replace it"
                )
    for path, (entry, data) in zip(paths, entries, strict=True):
        if path in known and path.with_suffix(".parquet").is_file():
            continue
        with whole_file(out / f"{entry.id}.parquet", alone=True) as temporary:
            temporary.write_bytes(data)
        with whole_file(path, alone=True) as temporary:
            temporary.write_text(entry_json(entry), encoding="utf8")
    return paths
