"""Measure the embedded classifiers and segmenters again: ``python recipes/measure.py --cache DIR``.

For when the renderer changed and the weights did not: the cards then say what the models do on today's scenes, and
which version of the renderer they were trained on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.files import write_atomic
from holdfast.core.names import parse_name
from holdfast.diorama import CLASSES, RENDERER_VERSION
from holdfast.models import load_classifier, local_dir
from holdfast.models.segmenters import smp
from holdfast.training.checkpoint import card
from holdfast_studies.drawn.classifiers import Scenes, rendered

SCENES = 4800
BATCH = 200


def main() -> None:
    """Every folder of classifiers and segmenters: metrics measured, card written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder for the scenes")
    parser.add_argument("--scenes", type=int, default=SCENES)
    asked = parser.parse_args()

    def scenes(split: str, rho: float) -> Scenes:
        return rendered(split, rho, asked.scenes, cache=asked.cache)

    for folder in sorted(local_dir.ASSETS.glob("classifiers/*")):
        classifier = load_classifier(f"embedded:{folder.name}")
        places = [classifier.labels.names.index(label) for label in CLASSES]
        rho = json.loads((folder / "config.json").read_text())["holdfast"]["rho"]
        metrics = {}
        for split, context in dict.fromkeys([("test", rho), ("test", 0.0), ("ood", 0.0)]):
            shown = scenes(split, context)
            answers = np.concatenate([classifier.predict(part)[:, places].argmax(1) for part in batches(shown)])
            metrics[f"accuracy_{split}_rho{round(100 * context)}"] = round(float((answers == shown.labels).mean()), 4)
        rewrite(folder, metrics, asked.scenes)
    for folder in sorted(local_dir.ASSETS.glob("segmenters/*")):
        segmenter = smp.load_embedded(parse_name(f"embedded:{folder.name}"), device="auto")
        metrics = {}
        for split in ("test", "ood"):
            shown = scenes(split, 0.0)
            maps = [np.stack(segmenter.segment(part)) for part in batches(shown)]
            metrics[f"mean_iou_{split}_rho0"] = round(mean_iou(np.concatenate(maps), shown), 4)
        rewrite(folder, metrics, asked.scenes)


def batches(scenes: Scenes) -> list[list[NDArray[np.uint8]]]:
    """Return the images, a few at a time."""
    return [list(scenes.images[start : start + BATCH]) for start in range(0, len(scenes), BATCH)]


def mean_iou(maps: NDArray[np.uint8], scenes: Scenes) -> float:
    """Over background (0) and the classes (1 to 12), all pixels of all scenes pooled."""
    truth = np.where(scenes.masks, scenes.labels[:, None, None] + 1, 0)
    count = len(CLASSES) + 1
    confusion = np.bincount((truth * count + maps).ravel(), minlength=count**2).reshape(count, count)
    both = confusion.diagonal()
    return float((both / (confusion.sum(0) + confusion.sum(1) - both)).mean())


def rewrite(folder: Path, metrics: dict[str, float], scenes: int) -> None:
    """Write the metrics into config.json and the card; its text stays."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    facts = config["holdfast"]
    facts.setdefault("trained_with_renderer", facts.get("measured_with_renderer", 1))
    facts |= {"metrics": metrics, "measured_with_renderer": RENDERER_VERSION}
    facts["held_out"] = f"{scenes} scenes; shape templates and textures that training never shows"
    text = (folder / "README.md").read_text().partition("\nKnown-truth world")[0]
    write_atomic(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    write_atomic(folder / "README.md", card(text, facts).encode())
    print(folder.name, metrics, flush=True)


if __name__ == "__main__":
    main()
