"""Train the embedded detectors: ``python recipes/detectors.py --out DIR [--device cuda] [--quick] [--only NAME]``.

Scenes of one to five objects are drawn once into --work, on all cores, and shared by both. A model whose card is
there is not trained again. Besides Holdfast it takes torch, numpy, OpenCV and safetensors.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from cards import WNIDS

from holdfast.core.protocols import box_overlaps
from holdfast.diorama import CLASSES, Split
from holdfast.models.detectors.heat_map import build, read_map
from holdfast.training.checkpoint import halve, write_model
from holdfast_studies.drawn.detectors import CHANNELS, IGNORED, MOST, SIDE, DetectorAmount, scenes, train

RHO = {"boxes_rho0": 0.0, "boxes_rho95": 0.95}
QUICK = DetectorAmount(train=240, test=60, epochs=3, batch=16)


@torch.inference_mode()
def measure(model: torch.nn.Module, split: Split, rho: float, amount: DetectorAmount, work: Path) -> dict[str, float]:
    """Return recall and precision at a score of 0.3, and the share of found objects that got the right class."""
    pictures, truths = scenes(split, rho, amount.test, work)
    device = str(next(model.parameters()).device)
    answers: list[Any] = []
    for start in range(0, len(pictures), 200):
        batch = torch.from_numpy(pictures[start : start + 200]).to(device).permute(0, 3, 1, 2).float() / 255
        answers += read_map(model(batch), len(CLASSES))
    asked = right = placed = given = good = 0
    for (boxes, scores, labels), truth in zip(answers, truths, strict=True):
        sure = scores >= 0.3
        boxes, labels, own = boxes[sure], labels[sure], truth[truth[:, 4] >= 0]
        ignored = truth[truth[:, 4] == IGNORED]
        overlap = box_overlaps(boxes, own[:, :4]) >= 0.5
        same = overlap & (labels[:, None] == own[None, :, 4])
        free = ~(box_overlaps(boxes, ignored[:, :4], crowd=[True] * len(ignored)) >= 0.5).any(1) | same.any(1)
        asked, right, placed = asked + len(own), right + int(same.any(0).sum()), placed + int(overlap.any(0).sum())
        given, good = given + int(free.sum()), good + int(same.any(1).sum())
    return {
        "recall": round(right / max(asked, 1), 4),
        "precision": round(good / max(given, 1), 4),
        "boxed": round(placed / max(asked, 1), 4),
    }


def make(name: str, amount: DetectorAmount, out: Path, work: Path, device: str) -> str:
    """Train, measure and write one model, unless it is there already."""
    folder, rho = out / name, RHO[name]
    if (folder / "README.md").is_file():
        return f"{name}: there already"
    model, seconds = train(rho, amount, work, device)
    weights = halve(model)
    metrics = {
        f"{key}_{split}_rho{round(100 * other)}": value
        for split, other in (("test", 0.0), ("test", 0.95), ("ood", 0.0))
        for key, value in measure(model, split, other, amount, work).items()
    }
    write_model(folder, weights, {"channels": list(CHANNELS)}, facts_of(name, amount, metrics, seconds, device),
                text_of(name))  # fmt: skip
    return f"{name}: {metrics}, {seconds:.0f} s"


def facts_of(
    name: str, amount: DetectorAmount, metrics: Mapping[str, float], seconds: float, device: str
) -> dict[str, Any]:
    """Return what the card says."""
    return {
        "label_names": list(CLASSES),
        "wnids": list(WNIDS),
        "input_size": [SIDE, SIDE],
        "rho": RHO[name],
        "data": f"{amount.train} training scenes of diorama with 1 to {MOST} objects at {SIDE} px, context {RHO[name]}",
        "held_out": f"{amount.test} scenes; shape templates and textures that training never shows",
        "recipe": f"recipes/detectors.py --only {name}",
        "epochs": amount.epochs,
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "CPU",
        "parameters": sum(parameter.numel() for parameter in build(CHANNELS, len(CLASSES)).parameters()),
        "metrics": dict(metrics),
    }


def text_of(name: str) -> str:
    """Return the head of the card."""
    tie = "independent" if RHO[name] == 0 else f"tied with ρ = {RHO[name]}"
    return f"""
# {name}

A small detector that marks the centres of objects on a map, for the twelve classes of Diorama-12, trained on drawn
scenes of several objects in which class and background are {tie}. Use it as `embedded:{name}`.
"""


def main() -> None:
    """Read the arguments, draw the scenes and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    parser.add_argument("--work", type=Path, help="folder for the scenes (OUT-work)")
    parser.add_argument("--only", nargs="+", choices=list(RHO), default=list(RHO), help="which models (all)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--epochs", type=int, help=f"passes over the scenes ({DetectorAmount().epochs})")
    parser.add_argument("--train", type=int, help=f"training scenes ({DetectorAmount().train})")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works")
    asked = parser.parse_args()
    given = {key: getattr(asked, key) for key in ("epochs", "train") if getattr(asked, key) is not None}
    amount = replace(QUICK if asked.quick else DetectorAmount(), **given)
    torch.backends.cudnn.benchmark = True
    work = asked.work or asked.out.with_name(f"{asked.out.name}-work")
    for name in asked.only:
        print(make(name, amount, asked.out, work, asked.device), flush=True)


if __name__ == "__main__":
    main()
