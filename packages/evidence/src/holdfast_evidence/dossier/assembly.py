"""Write the dossier: chapters made from runs, maps to standards, and the seal that joins it to its bundles."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from holdfast.core.distribution import installed_version
from holdfast.core.errors import UserError
from holdfast.core.files import whole_folder
from holdfast.core.fingerprint import file_sha256
from holdfast.core.names import unknown
from holdfast.results import open_run
from holdfast.store import write_json
from holdfast_evidence.bundle import bundle
from holdfast_evidence.dossier.chapters import chapters
from holdfast_evidence.dossier.document import Chapter, Document, Grid, write_document
from holdfast_evidence.dossier.evidence import DossierEvidence, DossierRun, Fact

MAPS = ("iso-24029", "ai-act-15", "model-card", "neurips-checklist")
SEAL = "seal.json"
OTHER_VERBS = ("perturb", "ask", "segment", "generate", "detect")


def dossier(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    standards: Sequence[str] = (),
    votes: str | Path | None = None,
    title: str = "",
    pictures: bool = True,
) -> Path:
    """Write a dossier of runs of one dataset as PDF, HTML and Markdown, with their bundles; return the PDF's path.

    Args:
        runs: run directories.
        out: a new folder.
        standards: names of ``MAPS``, or TOML files of the user's own.
        votes: the export of a review, for the chapter on people's checks.
        title: of the document.
        pictures: whether images and charts are shown.
    """
    if not runs:
        raise UserError("a dossier needs a run directory at least")
    maps = [_read_map(name) for name in standards]
    opened = [open_run(run) for run in runs]
    for results in opened:
        if {*results.run.tasks(), "classify"} != {"classify"} or results.run.spec().get("verb") in OTHER_VERBS:
            raise UserError(f"a dossier is written of runs of eval of classifiers; report shows {results.path}")
    names = list(dict.fromkeys(str(results.run.spec().get("dataset", "data")) for results in opened))
    if len(names) > 1:
        raise UserError(f"a dossier is of one dataset, and these runs have {', '.join(names)}: write one for each")
    evidence = [DossierRun(results) for results in opened]
    with whole_folder(Path(out)) as folder:
        document = _written(evidence, folder, maps, votes=votes, title=title, pictures=pictures)
    return Path(out) / document.name


def _written(
    runs: Sequence[DossierRun],
    folder: Path,
    maps: Sequence[dict[str, Any]],
    *,
    votes: str | Path | None,
    title: str,
    pictures: bool,
) -> Path:
    """Write bundles, document and seal into a folder; return the document's path."""
    bundles = {}
    for number, run in enumerate(runs, start=1):
        archive = folder / (f"bundle-{number}.zip" if len(runs) > 1 else "bundle.zip")
        bundles[archive.name] = bundle(run.results.path, archive, report=False).sha256
    evidence = DossierEvidence(runs, folder, bundles, votes, pictures)
    parts, facts = chapters(evidence)
    parts += [_mapped(items, facts) for items in maps]
    moment = datetime.now(UTC).isoformat(timespec="minutes").replace("+00:00", " UTC")
    name = title or f"Robustness of {', '.join(evidence.models)} on {evidence.dataset}"
    line = f"Holdfast {installed_version()}, {moment}. Evidence, not a statement of conformity."
    document = Document(name, line, parts, keywords=list(bundles.values()))
    page = write_document(document, folder)
    files = {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
    write_json(folder / SEAL, {"format": "holdfast-dossier", "version": 1, "files": files, "bundles": bundles})
    return page


def check_seal(folder: str | Path) -> list[str]:
    """Return what is wrong with a dossier's folder: files that changed, or a PDF that belongs to other bundles."""
    place = Path(folder)
    try:
        seal = json.loads((place / SEAL).read_text(encoding="utf8"))
        files, bundles = dict(seal["files"]), dict(seal["bundles"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{place / SEAL} cannot be read as a dossier's seal: {error}") from None
    faults = [f"{name} is missing" for name in files if not (place / Path(name).name).is_file()]
    present = [name for name in files if (place / Path(name).name).is_file()]
    faults += [f"{name} was changed" for name in present if file_sha256(place / Path(name).name) != files[name]]
    if not bundles or "dossier.pdf" not in files:
        faults.append(f"{SEAL} does not name dossier.pdf and a bundle at least: it is not a whole seal")
    extra = sorted(path.name for path in place.iterdir() if path.is_file() and path.name not in (*files, SEAL))
    faults += [f"{name} is not part of the dossier" for name in extra]
    document = (place / "dossier.pdf").read_bytes() if (place / "dossier.pdf").is_file() else b""
    faults += [
        f"dossier.pdf does not carry the hash of {name}: they do not belong together"
        for name, digest in bundles.items()
        if str(digest).encode() not in document or files.get(name) != digest
    ]
    return faults


def _read_map(name: str) -> dict[str, Any]:
    """Return the map of a standard: one of ``MAPS``, or a TOML file."""
    if name in MAPS:
        text = (resources.files("holdfast_evidence.dossier") / "maps" / f"{name}.toml").read_text(encoding="utf8")
    elif Path(name).is_file():
        text = Path(name).read_text(encoding="utf8", errors="replace")
    else:
        raise unknown("map (or TOML file)", name, MAPS)
    try:
        items = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is not TOML: {error}") from None
    if not isinstance(items.get("item"), list) or not all(isinstance(item, dict) for item in items["item"]):
        raise UserError(f"{name} has no [[item]] with clause, asks and needs; see packages/evidence/docs/dossier.md")
    return {"title": str(items.get("title", Path(name).stem)), **items}


def _mapped(items: dict[str, Any], facts: dict[str, Fact]) -> Chapter:
    """Return the chapter that answers each item of a standard, or says why it cannot."""
    rows = []
    for item in items["item"]:
        needs = [str(need) for need in item.get("needs", ())]
        lacking = [need for need in needs if need not in facts]
        if not needs or lacking:
            answer = f"Not measured here, because {item.get('missing') or 'these runs have no ' + ', '.join(lacking)}."
        else:
            answer = " ".join(f"{facts[need].text} (chapter {facts[need].chapter})." for need in needs)
            answer += f" Partly: {item['partly']}." if item.get("partly") else ""
        rows.append([str(item.get("clause", "")), str(item.get("asks", "")), answer])
    grid = Grid("What is asked, and the evidence for it", ["Item", "Asks for", "Evidence"], rows)
    return Chapter(items["title"], [*([str(items["note"])] if items.get("note") else []), grid])
