"""Declare a measurement before it is made, and say how a run differs from what was declared."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.distribution import installed_version
from holdfast.core.errors import UserError
from holdfast.core.files import clear_leftovers
from holdfast.core.fingerprint import fingerprint
from holdfast.core.hooks import BegunRun, Hook
from holdfast.core.names import condition_name, scenario_of, unknown
from holdfast.core.types import ORIGINAL
from holdfast.pipeline.classifiers import EvaluateSpec, load_models
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.samples import Prepared, prepare, read
from holdfast.scenarios import parse_conditions
from holdfast.stats.models.power import detectable
from holdfast.store import Run, write_json
from holdfast.store.foreign import is_steering

FORMAT = "holdfast-declaration"
RULES = ("background", "every-condition")
ATTACHED = "protocol.json"
"""File of a run directory: the declaration under which its rows were made, and what was found then."""

SETTINGS = ("backgrounds", "feather", "matte", "max_pixels", "depth", "fill", "generator", "fast", "search")
"""What changes images or answers apart from data, models and conditions, and has to be as declared."""

DISCORDANT = 0.1
"""Share of images whose answer turns, assumed because nothing is measured yet; the command says so."""


@dataclass(frozen=True)
class DeclaredProtocol:
    """What is going to be measured, and how it will be decided."""

    data: str
    models: tuple[str, ...]
    scenarios: str = "all"
    question: str = "Does the model see the object, or rely on everything around it?"
    masks: str | None = None
    labels: str | None = None
    backgrounds: str | None = None
    split: str = ""
    limit: int = 0
    seed: int = 0
    outcome: str = "full"
    rule: str = "background"  # what decides: the background effect, or the drop under every condition
    margin: float = 0.05  # of accuracy, 0..1
    power: float = 0.8
    feather: float = EvaluateSpec.feather
    matte: tuple[int, ...] = EvaluateSpec.matte
    max_pixels: int = EvaluateSpec.max_pixels
    depth: str = EvaluateSpec.depth
    fill: str = EvaluateSpec.fill
    generator: str = EvaluateSpec.generator
    fast: bool = EvaluateSpec.fast
    search: bool = EvaluateSpec.search

    def evaluation(self) -> EvaluateSpec:
        """Return the evaluation that this protocol asks for."""
        shared = {field.name for field in fields(EvaluateSpec)} & asdict(self).keys()
        return EvaluateSpec(**{name: getattr(self, name) for name in shared})


def read_protocol(path: str | Path) -> DeclaredProtocol:
    """Return the protocol of a TOML file; a UserError names what is wrong in it."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as TOML: {error}") from None
    if isinstance(values.get("scenarios"), list) and all(isinstance(name, str) for name in values["scenarios"]):
        values["scenarios"] = ",".join(values["scenarios"])
    if isinstance(values.get("models"), str):
        values["models"] = [values["models"]]
    _check_protocol(values, str(path))
    values |= {name: tuple(values[name]) for name in ("models", "matte") if name in values}
    return DeclaredProtocol(**values)


def _check_protocol(values: Mapping[str, Any], path: str) -> None:
    """Raise a UserError that names the first entry of a protocol that is unknown, missing or of the wrong kind."""
    known = {field.name: field.default for field in fields(DeclaredProtocol)}
    for name in values:
        if name not in known:
            raise unknown(f"entry of {path}", name, known)
    for name in ("data", "models"):
        if not values.get(name):
            raise UserError(f"{path} names no {name}: a protocol has at least data and models")
    for name, value in values.items():
        usual = known[name]
        if name == "models":
            is_right, kind = isinstance(value, list) and all(isinstance(text, str) for text in value), "a list of texts"
        elif isinstance(usual, tuple):
            is_right, kind = isinstance(value, list) and [type(part) for part in value] == [int] * 3, "three numbers"
        elif isinstance(usual, bool):
            is_right, kind = isinstance(value, bool), "true or false"
        elif isinstance(usual, int):
            is_right, kind = type(value) is int, "a whole number"
        elif isinstance(usual, float):
            is_right, kind = type(value) in (int, float), "a number"
        else:
            is_right, kind = isinstance(value, str) or (usual is None and value is None), "a text"
            kind = "a text or a list of texts" if name == "scenarios" else kind
        if isinstance(value, str) and is_steering(value):
            raise UserError(f"{path}: {name} has a control character in it")
        if not is_right:
            raise UserError(f"{path}: {name} is {kind}, and here it is {str(value)[:80]!r}")
    if not all(0 < values.get(name, 0.5) < 1 for name in ("margin", "power")):
        raise UserError(f"{path}: margin and power are numbers between 0 and 1, such as 0.05 and 0.8")
    for name, choices in (("rule", RULES), ("outcome", ("full", "restricted"))):
        if values.get(name, choices[0]) not in choices:
            raise unknown(f"{name} in {path}", str(values[name]), choices)


def declare(
    protocol: str | Path, out: str | Path, *, key: str | Path | None = None, progress: Progress = silent
) -> dict[str, Any]:
    """Write and return a declaration: the protocol with time, hash of the data, fingerprints of the models, and power.

    ``key``: a PEM file with a private Ed25519 key that signs it. An existing file is never replaced.
    """
    if Path(out).exists():
        raise UserError(f"{out} is there already: a declaration is not changed afterwards; choose another --out")
    asked = read_protocol(protocol)
    spec = asked.evaluation()
    collection = read(spec)
    prepared = prepare(spec, collection, progress)
    photos = len({sample.source_id for sample in collection.samples})
    declaration: dict[str, Any] = {
        "format": FORMAT,
        "version": 1,
        "holdfast": installed_version(),
        "declared": datetime.now(UTC).isoformat(timespec="seconds"),
        "protocol": asdict(asked) | {"models": list(asked.models), "matte": list(asked.matte)},
        "data": {"name": collection.name, "photos": photos, "sha256": _data_hash(prepared)},
        "models": {model.classifier.name: model.fingerprint for model in load_models(spec, collection)},
        "conditions": [condition.name for condition in parse_conditions(spec.scenarios)],
        "detectable": detectable(photos, discordant_share=DISCORDANT, power=asked.power) if photos else None,
    }
    declaration["fingerprint"] = fingerprint(declaration)
    if key is not None:
        declaration |= _signature(declaration["fingerprint"], Path(key))
    clear_leftovers(out)
    write_json(Path(out), declaration)
    return declaration


def read_declaration(path: str | Path) -> dict[str, Any]:
    """Return a declaration; a UserError if the file is none, or was changed after it was written."""
    try:
        declaration = json.loads(Path(path).read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as a declaration: {error}") from None
    if not isinstance(declaration, dict) or declaration.get("format") != FORMAT:
        raise UserError(f"{path} is not a declaration; holdfast audit declare PROTOCOL.toml --out FILE.json writes one")
    _check_shape(declaration, str(path))
    if faults := integrity(declaration):
        raise UserError(f"{path}: {faults[0]}")
    return declaration


def _check_shape(declaration: Mapping[str, Any], path: str) -> None:
    """Raise a UserError if parts of a declaration are of another kind than ``declare`` writes."""
    parts = {"protocol": dict, "data": dict, "models": dict, "conditions": list}
    wrong = [name for name, kind in parts.items() if not isinstance(declaration.get(name), kind)]
    if wrong or not all(isinstance(name, str) for name in declaration["conditions"]):
        raise UserError(f"{path} has no readable {wrong[0] if wrong else 'conditions'}: it was changed or damaged")
    if type(declaration["data"].get("photos")) is not int:
        raise UserError(f"{path} does not say how many images were declared: it was changed or damaged")
    _check_protocol(declaration["protocol"], path)
    try:
        fingerprint(declaration)
    except ValueError as error:
        raise UserError(f"{path} has a number that is none: {error}") from None


def integrity(declaration: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the declaration itself: its hash, its signature, its time."""
    own = {name: declaration[name] for name in declaration if name not in ("fingerprint", "signature", "public_key")}
    faults = []
    if fingerprint(own) != declaration.get("fingerprint"):
        faults.append("the declaration was changed after it was written: its contents do not have its fingerprint")
    if "signature" in declaration and not _signed(declaration):
        faults.append("the declaration's signature does not belong to its fingerprint and key")
    if _time(declaration.get("declared")) is None:
        faults.append("the declaration has no readable time")
    return faults


class DeclarationHook(Hook):
    """Attaches the declaration that a run follows, from ``--protocol`` or an earlier command with its ``--out``."""

    def on_run_begin(self, run: BegunRun) -> None:
        """Record what is about to be measured."""
        if getattr(run.spec, "protocol", None) is not None or (run.path / ATTACHED).is_file():
            run.notes.append(attach(Run(run.path), run.spec, run.data, run.models))


DECLARATION = DeclarationHook()


def attach(run: Run, spec: EvaluateSpec, prepared: Prepared, models: Mapping[str, str]) -> str:
    """Store a declaration with what a run is about to measure; say whether that is confirmatory.

    Without ``spec.protocol``, the declaration is that of the run. What deviated once continues to deviate.
    """
    stored = attached(run)
    declaration = read_declaration(spec.protocol) if spec.protocol is not None else (stored or {})["declaration"]
    conditions = [condition.name for condition in parse_conditions(spec.scenarios, feather=spec.feather)]
    if stored and stored["declaration"].get("fingerprint") != declaration.get("fingerprint"):
        raise UserError(f"{run.path} was begun under another declaration; choose another --out")
    record = stored or {
        "declaration": declaration,
        "attached": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows_before": run.predictions.dataset().count_rows() if run.predictions.paths() else 0,
    }
    before, own = stored or {}, {name: _plain(getattr(spec, name)) for name in SETTINGS}
    other = {name for name in _other_settings(before) if name in before.get("settings", {})}
    other_data = "data" in before and before["data"] != {"sha256": declaration.get("data", {}).get("sha256")}
    record |= {
        "data": before["data"] if other_data else {"sha256": _data_hash(prepared)},
        "models": before.get("models", {}) | dict(models),
        "conditions": sorted({*before.get("conditions", ()), *conditions}),
        "seed": spec.seed,
        "settings": own | {name: before["settings"][name] for name in other},
    }
    write_json(run.path / ATTACHED, record)
    faults = deviations(record)
    return f"exploratory, not confirmatory: {'; '.join(faults)}" if faults else "confirmatory so far: as declared"


def attached(run: Run) -> dict[str, Any] | None:
    """Return the record that ``attach`` stored, None if a run has none; an empty one if it cannot be read."""
    path = run.path / ATTACHED
    if not path.is_file():
        return None
    parts = {"declaration": dict, "data": dict, "models": dict, "conditions": list, "settings": dict, "renamed": dict}
    try:
        record = json.loads(path.read_text(encoding="utf8"))
        if not all(isinstance(record.get(name, kind()), kind) for name, kind in parts.items()):
            raise UserError(f"{path} is damaged")
        _check_shape(record["declaration"], str(path))
        if not all(isinstance(name, str) for name in record.get("conditions", ())):
            raise UserError(f"{path} is damaged")
    except (UserError, ValueError, RecursionError, AttributeError, KeyError):
        return {"declaration": {"fingerprint": "", "protocol": {}}}
    return dict(record)


def deviations(record: Mapping[str, Any]) -> list[str]:
    """Return every way in which what was measured differs from what was declared."""
    declaration = record["declaration"]
    faults = integrity(declaration)
    declared, begun = _time(declaration.get("declared")), _time(record.get("attached"))
    if declared is None or begun is None or begun < declared:
        faults.append("the run began before the time of the declaration, or a clock was set back")
    if record.get("rows_before"):
        faults.append(f"{record['rows_before']} answers were there before the declaration was attached")
    if record.get("data", {}).get("sha256") != declaration.get("data", {}).get("sha256"):
        faults.append("the data are not those that were declared: images, masks or labels differ")
    models, measured = _declared_models(record), record.get("models", {})
    faults += [f"{name} was declared and not measured" for name in models if name not in measured]
    faults += [f"{name} was measured and not declared" for name in measured if name not in models]
    changed = [name for name in models if name in measured and models[name] != measured[name]]
    faults += [f"{name} has other weights, preprocessing or labels than declared" for name in changed]
    asked, seen = set(declaration.get("conditions", ())), set(record.get("conditions", ()))
    faults += [f"the condition {name} was declared and not measured" for name in sorted(asked - seen)]
    faults += [f"the condition {name} was measured and not declared" for name in sorted(seen - asked)]
    if record.get("seed") != declaration.get("protocol", {}).get("seed"):
        faults.append("the seed is not the declared one")
    if "settings" not in record:
        return [*faults, "the settings of the run were not recorded"]
    return faults + [f"{name} is {value!r}, not as declared" for name, value in _other_settings(record).items()]


def _declared_models(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared models by the names that they have in the rows; a bundle cuts paths to their last names."""
    renamed = record.get("renamed", {})
    return {renamed.get(name, name): digest for name, digest in record["declaration"].get("models", {}).items()}


def _other_settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a record that are not those of its declaration."""
    declared = record.get("declaration", {}).get("protocol", {})
    usual = {name: _plain(getattr(EvaluateSpec, name)) for name in SETTINGS}
    settings = record.get("settings", {})
    return {name: settings.get(name) for name in SETTINGS if settings.get(name) != declared.get(name, usual[name])}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def row_deviations(run: Run, record: Mapping[str, Any]) -> list[str]:
    """Return how the stored answers differ from what was declared: others than declared, or of fewer images."""
    declaration = record["declaration"]
    columns = ["model", "condition", "variant", "parameters", "status", "source_id"]
    rows = run.rows(columns)
    rows = pa.table({name: pc.fill_null(rows[name].cast(pa.string()), "") for name in columns})
    samples = run.samples()
    originals = pc.equal(samples["condition"].cast(pa.string()), ORIGINAL)
    sources = pc.unique(samples.filter(originals)["source_id"])
    without = len(pc.unique(samples["source_id"])) - len(sources)  # images of which only renderings are stored
    given = set(pc.unique(samples["condition"].cast(pa.string())).to_pylist()) - {ORIGINAL}
    photos: dict[tuple[str, str], int] = {}
    settings: dict[str, set[str]] = {}
    for row in rows.filter(pc.is_in(rows["status"], pa.array(["ok", "skipped", "rejected"]))).group_by(
        ["model", "condition", "variant"]
    ).aggregate([("source_id", "count_distinct"), ("parameters", "distinct")]).to_pylist():  # fmt: skip
        name = condition_name(row["condition"], row["variant"])
        photos[row["model"], name] = row["source_id_count_distinct"]
        settings.setdefault(name, set()).update(row["parameters_distinct"])
    models, conditions = _declared_models(record), list(declaration.get("conditions", ()))
    expected = declaration.get("data", {}).get("photos", 0) - without
    answering = dict.fromkeys(model for model, _ in photos)
    faults = [f"there are answers of {model}, which was not declared" for model in answering if model not in models]
    rendered = {name: values for name, values in settings.items() if scenario_of(name) not in given}
    faults += [
        f"there are answers under {name}, which was not declared" if name not in conditions
        else f"there are answers under {name} with settings that were not declared"
        for name, values in rendered.items() if len(values) > conditions.count(name)
    ]  # fmt: skip
    for model in models:
        asked = [ORIGINAL] if declaration.get("protocol", {}).get("search") else dict.fromkeys(conditions)
        few = [f"{name} ({photos.get((model, name), 0)} of {expected})" for name in asked
               if photos.get((model, name), 0) < expected]  # fmt: skip
        more = f" and {len(few) - 3} more conditions" if len(few) > 3 else ""
        faults += [f"{model} answered fewer images than declared under {', '.join(few[:3])}{more}"] if few else []
    return faults


def _data_hash(prepared: Prepared) -> str:
    samples = prepared.collection.samples
    rows = [[s.sample_id, s.label, prepared.images[s.sample_id], prepared.masks.get(s.sample_id, "")] for s in samples]
    return fingerprint(sorted([text or "" for text in row] for row in rows))


def _time(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _signature(digest: str, key: Path) -> dict[str, str]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{key} is not a private key in a PEM file without a password: {error}") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise UserError(f"{key} holds another kind of key; openssl genpkey -algorithm ed25519 makes one")
    raw = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return {"signature": private.sign(digest.encode()).hex(), "public_key": raw.hex()}


def _signed(declaration: Mapping[str, Any]) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(declaration["public_key"]))
        key.verify(bytes.fromhex(declaration["signature"]), declaration["fingerprint"].encode())
    except (InvalidSignature, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True
