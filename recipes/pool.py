"""Pack the pool that the demo mines: every prompt of Diorama-12 painted twice by the embedded text-to-image model.

    python recipes/pool.py --pool DIR --out DIR

Paints what is not in the pool yet (``holdfast generate``, a quarter of an hour on two cores), then packs the images as
JPEG next to their manifest, in one file: what came out of the generator loses a little, and is 2.5 times smaller.
"""

from __future__ import annotations

import argparse
import csv
import io
import zipfile
from pathlib import Path

import cv2

import holdfast
from holdfast.core.fingerprint import bytes_sha256

QUALITY = [cv2.IMWRITE_JPEG_QUALITY, 95, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
FIRST = (1980, 1, 1, 0, 0, 0)
"""The date of every packed file, so that packing twice gives the same bytes."""


def main() -> None:
    """Paint, encode, pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=Path, required=True, help="where holdfast generate paints")
    parser.add_argument("--out", type=Path, required=True, help="the folder for pool.zip")
    arguments = parser.parse_args()
    holdfast.generate("embedded:", out=arguments.pool, per_pair=2)
    with (arguments.pool / "manifest.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    arguments.out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(arguments.out / "pool.zip", "w") as packed:
        for row in rows:
            encoded = cv2.imencode(".jpg", cv2.imread(str(arguments.pool / row["path"])), QUALITY)[1].tobytes()
            row["path"] = str(Path(row["path"]).with_suffix(".jpg"))
            row["published_sha256"] = bytes_sha256(encoded)
            packed.writestr(zipfile.ZipInfo(row["path"], FIRST), encoded)
        table = io.StringIO()
        writer = csv.DictWriter(table, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        packed.writestr(zipfile.ZipInfo("manifest.csv", FIRST), table.getvalue(), zipfile.ZIP_DEFLATED)
    print(f"{len(rows)} images, {(arguments.out / 'pool.zip').stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
