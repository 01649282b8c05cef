"""Write a COCO file of a folder of images with masks: one object an image, its box and its exact mask.

    python benchmarks/boxes_of_masks.py photos/pets12 pets.json --cats egyptian_mau,persian,siamese

Images are in ``images/CLASS/``, masks in ``masks/CLASS/`` under the same name. Classes named by ``--cats`` become
"cat", the others "dog".
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import cv2
import numpy as np

NAMES = ("cat", "dog")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cats", default="")
    options = parser.parse_args()
    images, objects = [], []
    for number, file in enumerate(sorted((options.folder / "images").glob("*/*"))):
        matching = next((options.folder / "masks" / file.parent.name).glob(f"{file.stem}.*"))
        mask = cv2.imread(str(matching), cv2.IMREAD_GRAYSCALE) > 0
        columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
        flat = np.concatenate([[False], mask.T.reshape(-1), [False]]).astype(np.int8)
        edges = np.flatnonzero(np.diff(flat))
        runs = np.diff(np.concatenate([[0], edges, [mask.size]])).tolist()
        box = [columns[0], rows[0], columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0]]
        name = str(file.relative_to(options.folder / "images"))
        images.append({"id": number, "file_name": name, "height": mask.shape[0], "width": mask.shape[1]})
        species = "cat" if file.parent.name in options.cats.split(",") else "dog"
        objects.append(
            {
                "id": number, "image_id": number, "category_id": NAMES.index(species) + 1,
                "bbox": [int(side) for side in box], "area": int(mask.sum()), "iscrowd": 0,
                "segmentation": {"size": list(mask.shape), "counts": runs},
            }
        )  # fmt: skip
    categories = [{"id": place + 1, "name": name} for place, name in enumerate(NAMES)]
    options.out.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))


if __name__ == "__main__":
    main()
