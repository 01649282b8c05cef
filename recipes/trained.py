"""Pack the trainings that the demo shows: the answers of one fold of EX1 and EX2 in the drawn world.

    python recipes/trained.py --run DIR --out DIR [--device cuda --workers 12]

Trains what is not in the run yet (156 trainings, about 12 minutes on an H200), then packs the rows, the curves and the
jobs of the first fold as a run directory in one file. Networks, checkpoints and the pixels' hashes stay behind.
"""

from __future__ import annotations

import argparse
import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import holdfast
from holdfast.core.schema import CURVES
from holdfast.store import Parts

DATA = "diorama:train?n=1920&context=0.8"
NETWORKS = "embedded:resnet_rho95,embedded:mobilenet_rho95,embedded:vit_rho95"
FOLD = 0
LEFT_BEHIND = ("image_sha256", "topk")
FIRST = (1980, 1, 1, 0, 0, 0)
"""The date of every packed file, so that packing twice gives the same bytes."""


def main() -> None:
    """Train, choose, pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="where holdfast train writes")
    parser.add_argument("--out", type=Path, required=True, help="the folder for trained.zip")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--pack-only", action="store_true", help="the run is complete: train nothing")
    arguments = parser.parse_args()
    if not arguments.pack_only:
        holdfast.train(
            DATA,
            architectures=NETWORKS,
            scenarios="static",
            folds=4,
            size=64,
            recipe="fast",
            device=arguments.device,
            workers=arguments.workers,
            out=arguments.run,
        )
    run = holdfast.open_run(arguments.run).run
    rows = _of_fold(run.rows())
    rows = rows.take(pc.sort_indices(rows["row_id"]))
    for name in LEFT_BEHIND:
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.nulls(len(rows), rows.schema.field(place).type))
    known = pc.unique(rows["sample_id"].combine_chunks())
    samples = run.samples().filter(pc.is_in(run.samples()["sample_id"], known))
    environment = json.loads((arguments.run / "environment.json").read_text(encoding="utf-8"))
    environment.pop("command", None)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(arguments.out / "trained.zip", "w") as packed:
        for name, data in {
            "spec.json": (arguments.run / "spec.json").read_bytes(),
            "environment.json": json.dumps(environment, indent=2).encode(),
            "samples.parquet": _parquet(samples),
            "predictions/part-fold-0.parquet": _parquet(rows),
            "curves/part-fold-0.parquet": _parquet(_of_fold(Parts(arguments.run / "curves", CURVES).rows())),
            "jobs.parquet": _parquet(_of_fold(pq.read_table(arguments.run / "jobs.parquet"))),
        }.items():
            packed.writestr(zipfile.ZipInfo(name, FIRST), data)
    print(f"{len(rows)} rows, {(arguments.out / 'trained.zip').stat().st_size / 1e6:.1f} MB")


def _of_fold(table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(table["fold"], FOLD))


def _parquet(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd", compression_level=19)
    return stream.getvalue()


if __name__ == "__main__":
    main()
