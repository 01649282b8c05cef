"""Declare a measurement before it is made, and say how a run differs from what was declared."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import unknown
from holdfast.pipeline.classifiers import EvaluateSpec, load_models
from holdfast.pipeline.jobs.progress import Progress, silent, version
from holdfast.pipeline.samples import Prepared, prepare, read
from holdfast.scenarios import parse_conditions
from holdfast.stats.models.power import detectable
from holdfast.store import Run, write_json

FORMAT = "holdfast-declaration"
RULES = ("background", "every-condition")
ATTACHED = "protocol.json"
"""File of a run directory: the declaration under which its rows were made, and what was found then."""

DISCORDANT = 0.1
"""Share of photos whose answer turns, assumed because nothing is measured yet; the command says so."""


@dataclass(frozen=True)
class DeclaredProtocol:
    """What is going to be measured, and how it will be decided."""

    data: str
    models: tuple[str, ...]
    scenarios: str = "all"
    question: str = "Does the model see the object, or lean on everything around it?"
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
    known = {field.name: field for field in fields(DeclaredProtocol)}
    for name in values:
        if name not in known:
            raise unknown(f"entry of {path}", name, known)
    for name in ("data", "models"):
        if not values.get(name):
            raise UserError(f"{path} names no {name}: a protocol has at least data and models")
    values["models"] = tuple(values["models"]) if isinstance(values["models"], list) else (str(values["models"]),)
    values["scenarios"] = ",".join(given) if isinstance(given := values.get("scenarios", "all"), list) else str(given)
    margin, power = values.get("margin", 0.05), values.get("power", 0.8)
    if not all(isinstance(number, (int, float)) and 0 < number < 1 for number in (margin, power)):
        raise UserError(f"{path}: margin and power are numbers between 0 and 1, such as 0.05 and 0.8")
    if values.get("rule", "background") not in RULES:
        raise unknown(f"rule in {path}", str(values["rule"]), RULES)
    return DeclaredProtocol(**values)


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
        "holdfast": version("holdfast"),
        "declared": datetime.now(UTC).isoformat(timespec="seconds"),
        "protocol": asdict(asked) | {"models": list(asked.models)},
        "data": {"name": collection.name, "photos": photos, "sha256": _data_hash(prepared)},
        "models": {model.classifier.name: model.fingerprint for model in load_models(spec, collection)},
        "conditions": [condition.name for condition in parse_conditions(spec.scenarios)],
        "detectable": detectable(photos, discordant_share=DISCORDANT, power=asked.power) if photos else None,
    }
    declaration["fingerprint"] = fingerprint(declaration)
    if key is not None:
        declaration |= _signature(declaration["fingerprint"], Path(key))
    write_json(Path(out), declaration)
    return declaration


def read_declaration(path: str | Path) -> dict[str, Any]:
    """Return a declaration; a UserError where the file is none, or was changed after it was written."""
    try:
        declaration = json.loads(Path(path).read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as a declaration: {error}") from None
    if not isinstance(declaration, dict) or declaration.get("format") != FORMAT:
        raise UserError(f"{path} is no declaration; holdfast declare PROTOCOL.toml --out FILE.json writes one")
    if faults := integrity(declaration):
        raise UserError(f"{path}: {faults[0]}")
    return declaration


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


def attach(run: Run, spec: EvaluateSpec, prepared: Prepared, models: Mapping[str, str]) -> str:
    """Store a declaration with what a run is about to measure; say whether that is confirmatory."""
    assert spec.protocol is not None
    declaration = read_declaration(spec.protocol)
    conditions = [condition.name for condition in parse_conditions(spec.scenarios, feather=spec.feather)]
    stored = attached(run)
    if stored and stored["declaration"]["fingerprint"] != declaration["fingerprint"]:
        raise UserError(f"{run.path} was begun under another declaration; choose another --out")
    record = stored or {
        "declaration": declaration,
        "attached": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows_before": run.predictions.dataset().count_rows() if run.predictions.paths() else 0,
    }
    record |= {
        "data": {"sha256": _data_hash(prepared)},
        "models": (stored or {}).get("models", {}) | dict(models),
        "conditions": sorted({*(stored or {}).get("conditions", ()), *conditions}),
        "seed": spec.seed,
    }
    write_json(run.path / ATTACHED, record)
    faults = deviations(record)
    return f"exploratory, not confirmatory: {'; '.join(faults)}" if faults else "confirmatory so far: as declared"


def attached(run: Run) -> dict[str, Any] | None:
    """Return the record that ``attach`` stored; None where a run has none that can be read."""
    path = run.path / ATTACHED
    try:
        record = json.loads(path.read_text(encoding="utf8")) if path.is_file() else None
    except (ValueError, RecursionError):
        record = {"declaration": {"fingerprint": "", "protocol": {}}}
    return record if isinstance(record, dict) and isinstance(record.get("declaration"), dict) else None


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
    models, measured = declaration.get("models", {}), record.get("models", {})
    faults += [f"{name} was declared and not measured" for name in models if name not in measured]
    faults += [f"{name} was measured and not declared" for name in measured if name not in models]
    changed = [name for name in models if name in measured and models[name] != measured[name]]
    faults += [f"{name} has other weights, preprocessing or labels than declared" for name in changed]
    asked, seen = set(declaration.get("conditions", ())), set(record.get("conditions", ()))
    faults += [f"the condition {name} was declared and not measured" for name in sorted(asked - seen)]
    faults += [f"the condition {name} was measured and not declared" for name in sorted(seen - asked)]
    if record.get("seed") != declaration.get("protocol", {}).get("seed"):
        faults.append("the seed is not the declared one")
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
        raise UserError(f"{key} is no private key in a PEM file without a password: {error}") from None
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
