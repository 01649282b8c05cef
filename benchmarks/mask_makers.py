"""Overlap of mask makers with exact masks, by the guidance they get; the figures of docs/masks.md.

``python benchmarks/mask_makers.py PETS12 OUT.csv 2``: images in ``images/CLASS/``, masks in ``masks/CLASS/``, here
every second one. Writes the overlap (intersection over union) of every image and prints means with 95 % intervals
(bootstrap over images), and by how much each differs from u2netp on the same images.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
from scipy.stats import bootstrap

from holdfast.annotate import load_annotator, load_guided

ALONE = "nobody: u2netp"
LOOSE = 10  # pixels by which the box of inside-outside guidance is larger than the object, as its authors have it


def box_of(mask: np.ndarray, loose: int = 0) -> tuple[float, float, float, float]:
    """Return the box of a mask, larger by some pixels, within the image."""
    columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    height, width = mask.shape
    return (
        float(max(columns[0] - loose, 0)), float(max(rows[0] - loose, 0)),
        float(min(columns[-1] + loose, width - 1)), float(min(rows[-1] + loose, height - 1)),
    )  # fmt: skip


def innermost(mask: np.ndarray) -> tuple[float, float]:
    """Return the point of a mask that is farthest from its edge."""
    distance = cv2.distanceTransform(np.pad(mask, 1).astype(np.uint8), cv2.DIST_L2, 5)[1:-1, 1:-1]
    row, column = np.unravel_index(int(distance.argmax()), mask.shape)
    return float(column), float(row)


def corners(mask: np.ndarray) -> list[tuple[float, float]]:
    """Return the corners of the loose box, without those that are on the object at the image's edge."""
    x0, y0, x1, y1 = box_of(mask, LOOSE)
    return [(x, y) for x in (x0, x1) for y in (y0, y1) if not mask[int(y), int(x)]]


def masks_of(image: np.ndarray, truth: np.ndarray, makers: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of each maker with its guidance, and its mask."""
    salient = makers["u2netp"].propose(image).mask
    yield ALONE, salient
    yield "nobody: grabcut", makers["grabcut alone"].propose(image).mask
    point = innermost(truth)
    guidance: dict[str, dict[str, Any]] = {
        "point": {"inside": [point]},
        "true box": {"box": box_of(truth)},
        "inside-outside points": {"inside": [point], "outside": corners(truth)},
        "inside-outside points, loose box": {
            "box": box_of(truth, LOOSE), "inside": [point], "outside": corners(truth),
        },
    }  # fmt: skip
    for name in ("grabcut", "sam:mobile"):
        embedding = makers[name].embed(image)
        for words, given in guidance.items():
            if name == "grabcut" and "box" not in given:
                continue  # without a box it takes nearly the whole image for one
            yield f"{words}: {name}", makers[name].guided(embedding, **given).mask
    led = salient
    if salient.any() and min(np.ptp(np.nonzero(salient), axis=1)) >= 3:
        led = makers["sam:mobile"].guided(embedding, box=box_of(salient), inside=[innermost(salient)]).mask
    yield "nobody: sam:mobile led by u2netp's box and point", led
    yield "nobody: u2netp or sam:mobile led by it (union)", led | salient


def main(pets: Path, out: Path, every: int = 1) -> None:
    """Measure every image, write the overlaps, print the table."""
    makers = {name: load_guided(name) for name in ("grabcut", "sam:mobile")}
    makers |= {"u2netp": load_annotator("u2netp"), "grabcut alone": load_annotator("grabcut")}
    rows = []
    for file in sorted((pets / "images").glob("*/*"))[::every]:
        image = cv2.cvtColor(cv2.imread(str(file)), cv2.COLOR_BGR2RGB)
        matching = next((pets / "masks" / file.parent.name).glob(f"{file.stem}.*"))
        truth = cv2.imread(str(matching), cv2.IMREAD_GRAYSCALE) > 127
        for name, mask in masks_of(image, truth, makers):
            overlap = (mask & truth).sum() / (mask | truth).sum()
            rows.append({"photo": file.stem, "guidance": name, "overlap": overlap})
        pd.DataFrame(rows).to_csv(out, index=False)
    overlaps = pd.DataFrame(rows).pivot(index="photo", columns="guidance", values="overlap")
    for name in overlaps:
        print(f"{name:55} {interval(overlaps[name])}; less u2netp {interval(overlaps[name] - overlaps[ALONE])}")


def interval(values: pd.Series) -> str:
    """Return the mean with its 95 % interval over images."""
    if not values.any():
        return "0"
    ends = bootstrap((values.to_numpy(),), np.mean, rng=0).confidence_interval
    return f"{values.mean():.3f} ({ends.low:.3f} to {ends.high:.3f})"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
