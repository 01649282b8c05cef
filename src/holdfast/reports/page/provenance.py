"""Two sections of every report: errors and skipped images, and what was run."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import percent
from holdfast.reports.page.evidence import Evidence
from holdfast.reports.page.parts import Code, Heading, Section, Text
from holdfast.reports.page.sections import NO_FAILURE, ReportEvidence, ReportSection
from holdfast.reports.page.tables import CONDITION, Column, Table, plain
from holdfast.reports.page.words import listing, plural
from holdfast.store import Run

_REJECTED = "rejected"


def trouble(evidence: Evidence, runs: Sequence[Run], *, ended: int = 0) -> Section:
    """Return the section on rows without an answer, by reason.

    ``ended`` counts the walks that were rejected at their first image: those are outcomes, not errors.
    """
    section = Section("errors", "Errors and skipped images")
    every = evidence.counts.trouble
    frame, filtered = (every[every["status"] != _REJECTED], every[every["status"] == _REJECTED])
    answered = int(evidence.counts.cells["n"].sum()) if len(evidence.counts.cells) else 0
    missing = int(frame["n"].sum()) if len(frame) else 0
    total = answered + missing
    if not total:
        section.lead = [] if len(filtered) else ["There are no rows at all."]
    elif not missing:
        section.lead = [f"All {total:,} rows have an answer; none was skipped and none failed."]
    else:
        first = frame.iloc[0]
        section.lead = [
            f"{missing:,} of {total:,} rows ({percent(missing / total)}) have no answer; they count in no statistic. "
            f"The most common reason, {first['n']:,} times: {first['status']}, “{first['error'] or 'no reason given'}”."
        ]
        columns = [
            *plain("text", error="Reason", status="Status", model="Model"),
            CONDITION,
            Column("n", "Rows", "integer"),
            Column("example", "For example"),
        ]
        section.parts.append(Table("errors", "Rows without an answer, by reason", frame.fillna(""), columns))
    if len(filtered):
        _add_rejected(section, evidence, filtered)
    if ended:
        section.lead.append(
            f"{plural(ended, 'row')} more: walks that the oracle rejected at the first image, and the random walks "
            "that these lack. Those are outcomes, and are with the walks."
        )
    problems = [
        {"run": run.run_id, "sample_id": row["sample_id"], "problem": row["problem"]}
        for run in runs
        for row in run.samples().select(["sample_id", "problem"]).to_pylist()
        if row["problem"]
    ]
    if problems:
        columns = [*plain("text", sample_id="Image", problem="Problem", run="Run")]
        caption = "Images that could not be used"
        section.lead.append(f"{plural(len(problems), 'image')} could not be used when the run was planned.")
        section.parts.append(
            Table("unusable_images", caption, pd.DataFrame(problems), columns, folded=len(problems) > 10)
        )
    return section


def _add_rejected(section: Section, evidence: Evidence, filtered: pd.DataFrame) -> None:
    """Add the painted images that the filter rejected; they are the same for every model, so they count once."""
    by_model = filtered.groupby(["condition", "error", "model"], as_index=False).agg({"n": "sum", "example": "min"})
    pictures = by_model.groupby(["condition", "error"], as_index=False).agg({"n": "max", "example": "min"})
    cells = evidence.counts.cells
    used = cells[cells["condition"].isin(list(pictures["condition"]))].groupby("model", observed=True)["n"].sum()
    left_out = int(pictures["n"].sum())
    reasons = [f"{row['n']:,} {row['error']}" for row in pictures.to_dict("records")]
    section.lead.append(
        f"{left_out:,} of {left_out + int(used.max() if len(used) else 0):,} images with a generated background were "
        f"rejected by the filter and count in no statistic ({'; '.join(reasons)}). What is reported of that condition "
        "is about the others."
    )
    columns = [
        CONDITION,
        Column("error", "Reason"),
        Column("n", "Images", "integer"),
        Column("example", "For example"),
    ]
    section.parts.append(Table("rejected", "Images rejected by the filter, by reason", pictures, columns))


def what_was_run(evidence: Evidence, runs: Sequence[Run], settings: dict[str, Any], *options: str) -> Section:
    """Return the section with the specification, versions, hashes and command of each run."""
    section = Section("run", "What was run")
    section.lead = [
        f"{plural(len(runs), 'run')}: {listing([run.run_id for run in runs], 8)}. The commands below repeat what was "
        "done; the same specification, images, masks, seed and weights give the same rows. This report took "
        + ", ".join(f"{name} = {value}" for name, value in settings.items())
        + "."
    ]
    for run in runs:
        spec, machine = run.spec(), run.environment()
        if len(runs) > 1:
            section.parts.append(Heading(run.run_id))
        section.parts.append(_facts(run, spec, machine, f"run_{runs.index(run) + 1}"))
        if machine.get("command"):
            section.parts.append(Code(f"To repeat {run.run_id}", str(machine["command"])))
        section.parts.append(
            Code(f"Specification of {run.run_id}", json.dumps(_shortened(spec), indent=1, ensure_ascii=False))
        )
    command = shlex.join(["holdfast", "report", *(str(run.path) for run in runs), *options, "--out", "DIR"])
    section.parts.append(Code("To make this report again", command))
    section.parts.append(Text(["Intervals are at the 95 % level. Rows of one image never count as independent."]))
    return section


_FAST = (
    "fast (--fast): images made in batches on the device and not hashed, networks in bfloat16 on a GPU; "
    "probabilities may differ from exact ones, answers if two classes are nearly tied"
)


def _facts(run: Run, spec: dict[str, Any], machine: dict[str, Any], name: str) -> Table:
    packages = machine.get("packages") or {}
    rows = [
        ("Data", spec.get("data")),
        ("Dataset", spec.get("dataset")),
        ("Models", ", ".join(map(str, spec.get("models") or []))),
        ("Scenarios", spec.get("scenarios")),
        ("Seed", spec.get("seed")),
        ("Device", spec.get("device")),
        ("Answers", _FAST if spec.get("fast") else ""),
        ("When", machine.get("time")),
        ("Python", machine.get("python")),
        ("Platform", machine.get("platform")),
        ("GPU", machine.get("gpu") or "none"),
        ("Libraries", ", ".join(f"{package} {version}" for package, version in packages.items())),
        ("SHA-256 of the specification", _sha256(run.path / "spec.json")),
        ("SHA-256 of the sample list", _sha256(run.path / "samples.parquet")),
        ("SHA-256 of the row ids", _rows_digest(run)),
    ]
    frame = pd.DataFrame(
        [(key, str(value)) for key, value in rows if value not in (None, "")], columns=["what", "value"]
    )
    caption = f"The run {run.run_id}"
    return Table(name, caption, frame, [*plain("text", what="What", value="Value")])


def _shortened(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the specification with long lists cut."""
    return {
        key: [*value[:20], f"… {len(value) - 20:,} more"] if isinstance(value, list) and len(value) > 20 else value
        for key, value in spec.items()
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _rows_digest(run: Run) -> str:
    """Return a digest of all row ids; equal digests mean that the same things were measured."""
    digest = hashlib.sha256()
    for identifier in sorted(run.predictions.stored_ids()):
        digest.update(identifier.encode())
    return digest.hexdigest()


def _errors(report: ReportEvidence) -> list[Section]:
    ended = report.rows.dataset.count_rows(filter=NO_FAILURE)
    section = trouble(report.whole, report.runs, ended=ended)
    if not report.has_classified:
        section.lead = section.lead[1:]  # it is about classified rows; other tasks show their own
    return [section] if section.lead else []


ERRORS = ReportSection(_errors)
RUN = ReportSection(lambda report: what_was_run(report.whole, report.runs, report.settings))
