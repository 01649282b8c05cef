"""Row ids, tables and summaries of every verb that resumes, held to ``golden.json``.

Every verb runs twice on twelve drawn scenes through the command line: the second time makes nothing. Ids, statuses,
answers and table layouts must not change; floating-point columns and pixels are left to other tests, since their last
digits differ between machines. ``HOLDFAST_FREEZE=write`` writes the file again: only for a wanted change of the table.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frozen_models import Painter
from typer.testing import CliRunner

from holdfast import registry
from holdfast.cli.main import app

GOLDEN = Path(__file__).with_name("golden.json")
SCENES = "diorama:test?n=12&size=48"
FOLDED = "diorama:test?n=24&size=48"  # two of each class: two folds need them
TINT = "python:frozen_models"

COMMANDS: dict[str, tuple[str, ...]] = {
    "eval": (
        "eval", SCENES, "--models", f"{TINT}:steady,{TINT}:faulty,embedded:resnet_rho0",
        "--scenarios", "static", "--batch-size", "5", "--device", "cpu",
    ),
    "eval --fast": (
        "eval", SCENES, "--models", f"embedded:resnet_rho0,{TINT}:steady", "--fast", "--workers", "1",
        "--scenarios", "original,grey,random_background,fog@3", "--device", "cpu",
    ),
    "synth": ("synth", SCENES, "--scenarios", "original,grey,random_background", "--seed", "3"),
    "mask": ("mask", SCENES, "--with", "threshold", "--workers", "1"),
    "perturb": (
        "perturb", SCENES, "--models", "embedded:resnet_rho0", "--generator", "pixel:", "--steps", "2",
        "--oracle", "classifier:embedded:resnet_rho95", "--step-size", "0.02", "--device", "cpu", "--deterministic",
        "--frames", "2", "--keep-images",
    ),
    "ask": (
        "ask", SCENES, "--models", f"{TINT}:steady,{TINT}:faulty,vlm+{TINT}:talker", "--distractor", f"{TINT}:other",
        "--both-orders", "--batch-size", "4", "--device", "cpu",
    ),
    "segment": (
        "segment", SCENES, "--models", "embedded:unet", "--scenarios", "original,grey", "--size", "64",
        "--device", "cpu",
    ),
    "segment, trained": (
        "segment", FOLDED, "--architectures", "smp:FPN@tu-resnet18?channels=8/8/16/16&layers=1/1/1/1",
        "--scenarios", "original", "--folds", "2", "--epochs", "1", "--size", "32", "--batch-size", "4",
        "--device", "cpu",
    ),
    "train": (
        "train", FOLDED, "--architectures", "timm:test_resnet", "--scenarios", "original,grey", "--folds", "2",
        "--epochs", "1", "--size", "32", "--batch-size", "4", "--device", "cpu",
    ),
    "generate": (
        "generate", "--generator", "frozen:", "--categories", "diorama", "--nuisances", "diorama", "--limit", "12",
        "--device", "cpu",
    ),
    "mine": (
        "mine", SCENES, "--surrogates", f"{TINT}:steady,{TINT}:other", "--targets", f"{TINT}:third",
        "--oracle", "classifier:embedded:resnet_rho0", "--at-least", "2", "--batch-size", "4", "--device", "cpu",
    ),
}  # fmt: skip

MEASURED = {"seconds", "made_at", "run_id", "image_sha256", "sha256", "topk", "class_balance", "attributes"}
"""Columns that differ from machine to machine or from run to run."""

ANSWERS = {"prediction", "prediction_restricted", "correct", "correct_restricted", "best_epoch", "oracle_accepted"}
"""Columns that are left out, too, where a network was trained or walked against a moment ago."""

UNSTABLE = {"train", "segment", "segment, trained", "perturb"}

GROUPS = ("condition", "model", "trained_on", "protocol", "status")


@pytest.fixture(scope="module", autouse=True)
def painter() -> Iterator[None]:
    """Make the frozen image maker known by name."""
    registry.image_makers.register("frozen", lambda name, device: Painter(), summary="for this test")
    yield
    registry.image_makers.remove("frozen")


def digest(values: list[Any]) -> str:
    """Return sixteen hex digits of a list."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def tables(folder: Path) -> dict[str, pa.Table]:
    """Read every table below a folder: the parts of one folder are one table."""
    paths: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.parquet")):
        table = path.parent if path.name.startswith("part-") else path
        if table.parent.name == "results":  # statistics of mine
            continue
        paths.setdefault(table.relative_to(folder).as_posix(), []).append(path)
    return {name: pa.concat_tables([pq.read_table(path) for path in parts]) for name, parts in paths.items()}


def exact(field: pa.Field) -> bool:
    """Whether two machines agree on a column."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) or pa.types.is_list(field.type) else field.type
    return not pa.types.is_floating(kind) and field.name not in MEASURED


def described(table: pa.Table, *, unstable: bool) -> dict[str, Any]:
    """Return the golden words on a table: columns, row count, and per group the count, the ids and the contents."""
    names = [field.name for field in table.schema if exact(field) and not (unstable and field.name in ANSWERS)]
    if unstable and not set(names) & {"condition", "model"}:  # details: pixels counted, steps walked
        names = [name for name in names if name in ("row_id", "class", "step", "method", "target")]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in table.select(names).to_pylist():
        groups.setdefault(" | ".join(str(row.get(name) or "") for name in GROUPS), []).append(row)
    return {
        "columns": digest([[field.name, str(field.type)] for field in table.schema]),
        "rows": table.num_rows,
        "groups": {
            group: f"{len(rows)} rows, ids {digest(sorted(str(row.get('row_id')) for row in rows))}, contents "
            + digest(sorted(json.dumps(row, sort_keys=True, default=str) for row in rows))
            for group, rows in sorted(groups.items())
        },
    }


def run(verb: str, out: Path) -> tuple[str, str]:
    """Run a verb; return the figures of its summary: rows made and stored before, and rows per kind of trouble."""
    result = CliRunner().invoke(app, [*COMMANDS[verb], "--out", str(out), "--quiet"])
    assert result.exit_code == 0, result.output
    summary = re.search(r"^(\d+) [^,\n]*(?:, (\d+) errors?)?, (\d+) ", result.output, re.MULTILINE)
    made, errors, already = (int(figure or 0) for figure in summary.groups()) if summary else (0, 0, 0)
    trouble = re.findall(r"^ *(\d+) ×", result.output, re.MULTILINE)
    return f"{made + errors} {already}" if summary else "", " ".join(trouble)


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_verb_makes_the_same_rows_and_makes_none_twice(verb: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    summary = run(verb, out)
    made = {name: described(table, unstable=verb in UNSTABLE) for name, table in tables(out).items()}
    resumed = run(verb, out)
    assert {name: described(table, unstable=verb in UNSTABLE) for name, table in tables(out).items()} == made
    frozen = {"summary": [*summary], "resumed": [*resumed], "tables": made}
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("HOLDFAST_FREEZE") == "write":
        GOLDEN.write_text(json.dumps(golden | {verb: frozen}, indent=1, sort_keys=True) + "\n")
        return
    assert frozen == golden[verb]
