"""Train the embedded classifiers: ``python recipes/classifiers.py --out DIR [--quick] [--only NAME]``.

Run again after an interruption it goes on: finished models are left alone, the others resume from their last epoch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from cards import WNIDS
from command import train_several
from safetensors.torch import load_file

from holdfast.core.networks import unpacked
from holdfast.training import robust
from holdfast.training.checkpoint import halve, packed_into, write_model
from holdfast.training.classifiers import FAMILIES, SIDE, ClassifierRecipe, Size, accuracy, config_of, rendered, train

EIGHT = (
    ClassifierRecipe("resnet", 0.0),
    ClassifierRecipe("resnet", 0.8),
    ClassifierRecipe("resnet", 0.95),
    ClassifierRecipe("resnet", 0.95, strong=True),
    *(ClassifierRecipe(family, 0.95) for family in FAMILIES if family != "resnet"),
)
ROBUST = (
    ClassifierRecipe("resnet", 0.95, way="adversarial", side=128),
    ClassifierRecipe("resnet", 0.95, way="deepaugment+augmix", side=128),
)
RECIPES = {recipe.name: recipe for recipe in (*EIGHT, *(replace(recipe, side=128) for recipe in EIGHT), *ROBUST)}


def make(name: str, size: Size, out: Path, work: Path, start: Path | None = None) -> str:
    """Train, measure and write one model, unless it is there already."""
    folder, recipe = out / name, RECIPES[name]
    if (folder / "README.md").is_file():
        return f"{name}: there already"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    way = robust.method(recipe.way, device=device) if recipe.way else None
    fitted = train(
        recipe,
        size,
        cache=work / "scenes",
        device=device,
        checkpoints=work / "checkpoints" / name,
        on_epoch=functools.partial(_say, recipe),
        robustly=(way.prepared, way.loss) if way else None,
        start=unpacked(load_file(start / "model.safetensors")) if start else None,
    )
    model, seconds = fitted.model, fitted.seconds
    weights = halve(model) if recipe.side == SIDE else packed_into(model)
    metrics = {
        f"accuracy_{split}_rho{round(100 * rho)}": round(
            accuracy(model, rendered(split, rho, size.test, cache=work / "scenes", side=recipe.side)), 4
        )
        for split, rho in dict.fromkeys([("test", recipe.rho), ("test", 0.0), ("ood", 0.0)])
    }
    facts = facts_of(recipe, size, model, metrics, seconds, start)
    write_model(folder, weights, config_of(recipe, model), facts, text_of(recipe))
    return f"{name}: {metrics}, {seconds:.0f} s"


def facts_of(
    recipe: ClassifierRecipe,
    size: Size,
    model: torch.nn.Module,
    metrics: Mapping[str, float],
    seconds: float,
    start: Path | None,
) -> dict[str, Any]:
    """What the card says."""
    return {
        "wnids": list(WNIDS),
        "rho": recipe.rho,
        "data": f"{size.train} training scenes of diorama at {recipe.side} px, context {recipe.rho}, seed 0",
        "held_out": f"{size.test} scenes; shape templates and textures that training never shows",
        "recipe": f"recipes/classifiers.py --only {recipe.name}" + (f" --start DIR/{start.name}" if start else ""),
        "epochs": size.epochs,
        "augmentation": robust.described(recipe.way)
        if recipe.way
        else "strong: moves, recolouring, erasing, cutmix"
        if recipe.strong
        else "light: moves, camera",
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "metrics": dict(metrics),
    }


def text_of(recipe: ClassifierRecipe) -> str:
    """The head of the card."""
    how = f" robustly ({recipe.way})" if recipe.way else ""
    how += " with strong augmentation" if recipe.strong else ""
    size = "" if recipe.side == SIDE else f" of {recipe.side} px"
    return f"""
# {recipe.name}

A small {recipe.network.architecture} of timm for the twelve classes of Diorama-12, trained{how} on drawn
scenes{size} in which class and background go together with ρ = {recipe.rho} (P(home background) = ρ + (1 − ρ)/16).
How much it can lean on the background is therefore known. Use it as `embedded:{recipe.name}`.
"""


def _say(recipe: ClassifierRecipe, epoch: Any) -> None:
    numbers = " ".join(f"{key} {value:.3f}" for key, value in epoch.metrics.items())
    print(f"{recipe.name} epoch {epoch.number}: {numbers}", flush=True)


def scenes(names: Sequence[str], size: Size) -> list[tuple[str, float, int, int]]:
    """(split, ρ, number, side) of what these models are trained and measured on."""
    wanted = []
    for side in sorted({RECIPES[name].side for name in names}):
        own = sorted({RECIPES[name].rho for name in names if RECIPES[name].side == side})
        wanted += [("train", rho, size.train, side) for rho in own]
        wanted += [("test", rho, size.test, side) for rho in sorted({0.0, *own})]
        wanted.append(("ood", 0.0, size.test, side))
    return wanted


if __name__ == "__main__":
    train_several(__doc__, list(RECIPES), Size(), scenes, make)
