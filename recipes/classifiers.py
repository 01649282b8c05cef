"""Train the embedded classifiers: ``python recipes/classifiers.py --out DIR [--quick] [--only NAME]``.

Run again after an interruption it goes on: finished models are left alone, the others resume from their last epoch.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from cards import WNIDS

from holdfast.training.classifiers import FAMILIES, Recipe, Size, accuracy, config_of, train
from holdfast.training.saving import halve, write_model
from holdfast.training.scenes import rendered

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("resnet", 0.0),
        Recipe("resnet", 0.8),
        Recipe("resnet", 0.95),
        Recipe("resnet", 0.95, strong=True),
        *(Recipe(family, 0.95) for family in FAMILIES if family != "resnet"),
    )
}
QUICK = Size(train=480, test=120, epochs=2, batch=32, seconds=15)


def make(name: str, size: Size, out: Path, work: Path) -> str:
    """Train, measure and write one model, unless it is there already."""
    folder, recipe = out / name, RECIPES[name]
    if (folder / "README.md").is_file():
        return f"{name}: there already"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    fitted = train(
        recipe,
        size,
        cache=work / "scenes",
        device=device,
        checkpoints=work / "checkpoints" / name,
        on_epoch=functools.partial(_say, recipe),
    )
    model, seconds = fitted.model, fitted.seconds
    weights = halve(model)
    metrics = {
        f"accuracy_{split}_rho{round(100 * rho)}": round(
            accuracy(model, rendered(split, rho, size.test, cache=work / "scenes")), 4
        )
        for split, rho in dict.fromkeys([("test", recipe.rho), ("test", 0.0), ("ood", 0.0)])
    }
    write_model(
        folder, weights, config_of(recipe, model), facts_of(recipe, size, model, metrics, seconds), text_of(recipe)
    )
    return f"{name}: {metrics}, {seconds:.0f} s"


def facts_of(
    recipe: Recipe, size: Size, model: torch.nn.Module, metrics: Mapping[str, float], seconds: float
) -> dict[str, Any]:
    """What the card says."""
    return {
        "wnids": list(WNIDS),
        "rho": recipe.rho,
        "data": f"{size.train} training scenes of diorama at 64 px, context {recipe.rho}, seed 0",
        "held_out": f"{size.test} scenes; shape templates and textures that training never shows",
        "recipe": f"recipes/classifiers.py --only {recipe.name}",
        "epochs": size.epochs,
        "augmentation": "strong: moves, recolouring, erasing, cutmix" if recipe.strong else "light: moves, camera",
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "metrics": dict(metrics),
    }


def text_of(recipe: Recipe) -> str:
    """The head of the card."""
    how = " with strong augmentation" if recipe.strong else ""
    return f"""
# {recipe.name}

A small {FAMILIES[recipe.family].architecture} of timm for the twelve classes of Diorama-12, trained{how} on drawn
scenes in which class and background go together with ρ = {recipe.rho} (P(home background) = ρ + (1 − ρ)/16). How much
it can lean on the background is therefore known. Use it as `embedded:{recipe.name}`.
"""


def _say(recipe: Recipe, epoch: Any) -> None:
    numbers = " ".join(f"{key} {value:.3f}" for key, value in epoch.metrics.items())
    print(f"{recipe.name} epoch {epoch.number}: {numbers}", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    parser.add_argument("--work", type=Path, help="folder for scenes and checkpoints (OUT-work)")
    parser.add_argument("--only", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--jobs", type=int, default=1, help="models trained at a time")
    parser.add_argument("--seconds", type=float, help="for each model")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--train", type=int, help="training scenes")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works")
    asked = parser.parse_args()
    size = QUICK if asked.quick else Size()
    given = {key: getattr(asked, key) for key in ("seconds", "epochs", "train") if getattr(asked, key) is not None}
    size = Size(**(vars(size) | given))
    work = asked.work or asked.out.with_name(f"{asked.out.name}-work")
    began = time.monotonic()
    for rho in {RECIPES[name].rho for name in asked.only}:
        rendered("train", rho, size.train, cache=work / "scenes")
        rendered("test", rho, size.test, cache=work / "scenes")
    for split in ("test", "ood"):
        rendered(split, 0.0, size.test, cache=work / "scenes")
    print(f"scenes: {time.monotonic() - began:.0f} s", flush=True)
    task = functools.partial(make, size=size, out=asked.out, work=work)
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        for line in pool.map(task, asked.only):
            print(line, flush=True)
    print(f"all: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
