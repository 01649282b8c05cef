"""Train the embedded classifiers: ``python recipes/classifiers.py --out DIR [--quick] [--only NAME]``.

Run again after an interruption it goes on: finished models are left alone, the others resume from their last epoch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from cards import WNIDS
from command import train_several

from holdfast.training.checkpoint import halve, write_model
from holdfast.training.classifiers import FAMILIES, ClassifierRecipe, Size, accuracy, config_of, rendered, train

RECIPES = {
    recipe.name: recipe
    for recipe in (
        ClassifierRecipe("resnet", 0.0),
        ClassifierRecipe("resnet", 0.8),
        ClassifierRecipe("resnet", 0.95),
        ClassifierRecipe("resnet", 0.95, strong=True),
        *(ClassifierRecipe(family, 0.95) for family in FAMILIES if family != "resnet"),
    )
}


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
    recipe: ClassifierRecipe, size: Size, model: torch.nn.Module, metrics: Mapping[str, float], seconds: float
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


def text_of(recipe: ClassifierRecipe) -> str:
    """The head of the card."""
    how = " with strong augmentation" if recipe.strong else ""
    return f"""
# {recipe.name}

A small {FAMILIES[recipe.family].architecture} of timm for the twelve classes of Diorama-12, trained{how} on drawn
scenes in which class and background go together with ρ = {recipe.rho} (P(home background) = ρ + (1 − ρ)/16). How much
it can lean on the background is therefore known. Use it as `embedded:{recipe.name}`.
"""


def _say(recipe: ClassifierRecipe, epoch: Any) -> None:
    numbers = " ".join(f"{key} {value:.3f}" for key, value in epoch.metrics.items())
    print(f"{recipe.name} epoch {epoch.number}: {numbers}", flush=True)


def scenes(names: Sequence[str], size: Size) -> list[tuple[str, float, int]]:
    """(split, ρ, number) of what these models are trained and measured on."""
    own = sorted({RECIPES[name].rho for name in names})
    trained = [("train", rho, size.train) for rho in own]
    tested = [("test", rho, size.test) for rho in sorted({0.0, *own})]
    return [*trained, *tested, ("ood", 0.0, size.test)]


if __name__ == "__main__":
    train_several(__doc__, list(RECIPES), Size(), scenes, make)
