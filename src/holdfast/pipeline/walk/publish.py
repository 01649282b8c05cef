"""A run's perturbed images with where they come from, and as a benchmark folder for others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.distribution import installed_version
from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import array_sha256, bytes_sha256
from holdfast.core.schema import plain_schema
from holdfast.data.images import decode_image, read_file
from holdfast.data.reading import InsideRoot
from holdfast.store import Run, write_json, write_table, writing
from holdfast.store.run import write_csv

MANIFEST = plain_schema(
    "path text, label text, sample_id text, source_id text, split text, fold int, condition text, made_from text, "
    "made_against text, generator text, oracle text, oracle_score float, steps int, seed long, parameters text, "
    "published_sha256 text, licence text"
)
"""``made_from``: the sample; ``made_against``: the model; ``parameters``: JSON; ``published_sha256``: of the file."""
CARD = "benchmark.json"
_CONDITION = "perturbed"


def provenance(run: Run) -> list[dict[str, Any]]:
    """Return a row of ``MANIFEST`` per kept image, paths below the run's ``images/``; check every file."""
    walks = {
        row["row_id"]: row
        for row in run.details("walks").rows(["row_id", "image", "steps"]).to_pylist()
        if row["image"]
    }
    licences = {row["sample_id"]: row["licence"] for row in run.samples().to_pylist()}
    inside = InsideRoot(run.path / "images")
    rows = []
    for row in run.rows().to_pylist():
        if row["row_id"] in walks and row["condition"] == _CONDITION:
            path, steps = (walks[row["row_id"]][name] for name in ("image", "steps"))
            parameters = json.loads(row["parameters"])
            rows.append(
                {name: row[name] for name in ("label", "source_id", "split", "fold", "condition", "parameters", "seed")}
                | {
                    "path": path,
                    "sample_id": f"{row['sample_id']}@{path.partition('/')[0]}",
                    "made_from": row["sample_id"],
                    "made_against": row["model"],
                    "generator": parameters["generator"],
                    "oracle": row["oracle"],
                    "oracle_score": row["oracle_score"],
                    "steps": steps,
                    "published_sha256": _checked(inside, path, row["image_sha256"]),
                    "licence": licences.get(row["sample_id"], ""),
                }
            )
    return sorted(rows, key=lambda row: str(row["path"]))


def _checked(inside: InsideRoot, path: str, pixels: str) -> str:
    """Return the file's hash; raise a UserError unless it holds the pixels that model and oracle saw."""
    try:
        data = read_file(inside.file(path))
        same = array_sha256(decode_image(data)) == pixels
    except SampleError as error:
        raise UserError(
            f"images/{path}: {error}; delete it if it is there, and run perturb again with --keep-images"
        ) from error
    if not same:
        raise UserError(
            f"images/{path} is not the image that was judged, it has changed since: delete it and run perturb again "
            "with --keep-images"
        )
    return bytes_sha256(data)


def write_manifest(rows: list[dict[str, Any]], folder: Path) -> None:
    """Write ``manifest.parquet`` and ``manifest.csv``, by which the data readers open a folder."""
    table = pa.Table.from_pylist(rows, schema=MANIFEST)
    write_table(folder / "manifest.parquet", table)
    write_csv(folder / "manifest.csv", table)


def publish(run: Run, out: Path) -> int:
    """Copy a run's validated images to ``out``, with manifest and card; return how many."""
    spec = run.spec()
    if spec.get("verb") != "perturb":
        raise UserError(f"{run.path} is not a run of holdfast perturb")
    rows = provenance(run)
    validated = run.rows(["condition", "status"]).to_pylist().count({"condition": _CONDITION, "status": "ok"})
    if not validated:
        raise UserError(f"{run.path} has no validated walk, so there is nothing to publish")
    if len(rows) < validated:
        raise UserError(
            f"{run.path} kept {len(rows)} of {validated} images; run the same command again with --keep-images"
        )
    if out.exists() and not (out / CARD).is_file() and any(out.iterdir()):
        raise UserError(f"{out} holds something else; name a new folder for --publish")
    several = len({row["path"].partition("/")[0] for row in rows}) > 1
    files = {}
    for row in rows:
        file = run.path / "images" / row["path"]
        folder, _, rest = row["path"].partition("/")
        label, _, name = rest.partition("/")
        row["path"] = f"{label}/{folder}/{name}" if several else rest
        files[row["path"]] = file
    if any(path.relative_to(out).as_posix() not in files for path in out.rglob("*.png")):
        raise UserError(f"{out} holds images that this run did not make; name a new folder for --publish")
    with writing(out, CARD):
        for path, file in files.items():
            write_atomic(out / path, file.read_bytes())
        write_manifest(rows, out)
        card = {
            "made_by": f"holdfast {installed_version()}",
            "dataset": spec["dataset"],
            "classes": spec["classes"],
            "images": len(rows),
            "made_against": sorted({row["made_against"] for row in rows}),
            "parameters": [json.loads(text) for text in sorted({row["parameters"] for row in rows})],
            "oracle_cards": spec.get("oracle_cards", []),
            "kinship": spec.get("kinship", []),
            "manifest_sha256": bytes_sha256((out / "manifest.parquet").read_bytes()),
        }
        write_json(out / CARD, card)
    return len(rows)
