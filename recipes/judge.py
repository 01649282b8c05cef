"""Train a classifier that reads class, background, texture and material off drawn scenes and has seen nothing else.

    python recipes/judge.py --side 128 --out DIR [--minutes 0.7] [--quick]

It shares nothing with the oracle or with a generator, so it can say what a generator paints. It is no embedded model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import captioned_scenes
import captions
import numpy as np
import torch
import torch.nn.functional as functional
from captioned_scenes import HELD_OUT, TRAIN, CaptionedScenes
from command import add_side, one_model, say_epoch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from holdfast.training import TrainingOptions, fit, one_cycle
from holdfast.training.checkpoint import halve
from oracle import augmented, middles

WIDTHS = {"channels": [48, 96, 160, 224], "layers": [1, 2, 2, 1], "stem_type": "deep", "stem_width": 32}


def build(*, quick: bool) -> Any:
    """Return a ResNet of timm with an output for every value of every factor."""
    import timm

    widths = {**WIDTHS, "channels": [16, 16, 32, 32]} if quick else WIDTHS
    return timm.create_model("resnet18", num_classes=sum(map(len, captions.FACTORS.values())), **widths)


def by_factor(logits: torch.Tensor) -> list[torch.Tensor]:
    """Logits of each factor's values."""
    return list(logits.split([len(values) for values in captions.FACTORS.values()], 1))


class SceneClassifier:
    """What the classifier says of images."""

    def __init__(self, model: Any, device: str) -> None:
        self.model, self.device = model.float().eval().to(device), device

    def seen(self, images: list[NDArray[np.uint8]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Features before the last layer, and logits."""
        features, logits = [], []
        with torch.inference_mode():
            for start in range(0, len(images), 256):
                batch = torch.from_numpy(np.stack(images[start : start + 256])).to(self.device)
                maps = self.model.forward_features(batch.permute(0, 3, 1, 2).float() / 127.5 - 1)
                features.append(self.model.forward_head(maps, pre_logits=True))
                logits.append(self.model.forward_head(maps))
        return torch.cat(features), torch.cat(logits)

    def shares(self, images: list[NDArray[np.uint8]], factors: NDArray[np.int64]) -> dict[str, float]:
        """How often each factor is read as it was asked for."""
        answers = [part.argmax(1).cpu().numpy() for part in by_factor(self.seen(images)[1])]
        return {
            factor: float((answer == factors[:, at]).mean())
            for at, (factor, answer) in enumerate(zip(captions.FACTORS, answers, strict=True))
        }

    def distance(self, images: list[NDArray[np.uint8]], others: list[NDArray[np.uint8]]) -> float:
        """Fréchet distance of two sets in its features."""
        return frechet(self.seen(images)[0], self.seen(others)[0])


def frechet(one: torch.Tensor, other: torch.Tensor) -> float:
    """Distance of two Gaussians that have the features' means and covariances."""
    one, other = one.double().cpu(), other.double().cpu()
    spreads = torch.cov(one.T), torch.cov(other.T)
    mixed = torch.linalg.eigvals(spreads[0] @ spreads[1]).real.clamp(min=0).sqrt().sum()
    apart = (one.mean(0) - other.mean(0)).square().sum()
    return float(apart + spreads[0].trace() + spreads[1].trace() - 2 * mixed)


def load_judge(folder: Path, device: str) -> SceneClassifier:
    """Return the classifier of a folder."""
    model = build(quick=json.loads((folder / "card.json").read_text())["quick"])
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return SceneClassifier(model, device)


def train(arguments: argparse.Namespace, scenes: CaptionedScenes, device: str) -> Any:
    """Return the trained classifier."""
    torch.manual_seed(0)
    model = build(quick=arguments.quick).to(device, memory_format=torch.channels_last)
    images, centres, factors = (
        one.to(device)
        for one in (torch.from_numpy(scenes.images), middles(scenes.masks), torch.from_numpy(scenes.factors))
    )
    batch = 64 if arguments.quick else 512
    steps = len(scenes) // batch

    def batches(epoch: int) -> Iterator[torch.Tensor]:
        return iter(torch.randperm(len(scenes))[: steps * batch].view(steps, batch))

    def losses(module: Any, rows: torch.Tensor) -> dict[str, Any]:
        with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
            seen = augmented(images[rows], centres[rows]) * 2 - 1
        answers = by_factor(module(seen.contiguous(memory_format=torch.channels_last)).float())
        parts = {
            factor: functional.cross_entropy(answer, factors[rows, at], label_smoothing=0.02)
            for at, (factor, answer) in enumerate(zip(captions.FACTORS, answers, strict=True))
        }
        return {"loss": sum(parts.values()), **parts}

    options = TrainingOptions(
        epochs=2 if arguments.quick else 30,
        steps_per_epoch=steps,
        precision="float32" if device == "cpu" else "bfloat16",
        average=0.9 if arguments.quick else 0.99,
        time_limit=60 * arguments.minutes,
        finish_in_time=True,
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    return fit(model, batches, losses, optimiser, options, schedule=one_cycle, on_epoch=say_epoch).model


def main() -> None:
    """Render, train, save, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_side(parser)
    arguments = one_model(parser, minutes=0.7)
    clean = {"cache": arguments.cache, "camera_noise": False, "side": arguments.side}
    scenes = captioned_scenes.rendered(arguments.scenes, seed=TRAIN, **clean)
    held_out = captioned_scenes.rendered(arguments.scenes // 40, seed=HELD_OUT, **clean)
    model = train(arguments, scenes, arguments.device)
    folder = arguments.out / "judge"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(halve(model), folder / "model.safetensors")
    metrics = SceneClassifier(model, arguments.device).shares(list(held_out.images), held_out.factors)
    (folder / "card.json").write_text(json.dumps({"quick": arguments.quick, "metrics": metrics}, indent=1) + "\n")
    print(json.dumps(metrics), flush=True)


if __name__ == "__main__":
    main()
