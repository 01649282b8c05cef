"""Fine-tuning of a classifier on images of some classes, and what is left of it: a folder that is a model's name."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.names import Name, parse_name
from holdfast.core.types import Sample
from holdfast.data.labels import LabelMap
from holdfast.engine import core_count
from holdfast.models import load_classifier
from holdfast.models.local_dir import read_asset, read_config
from holdfast.models.options import untagged
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.specs.training import RemedyRecipe
from holdfast.store import read_json
from holdfast.training import augment
from holdfast.training.checkpoint import DRAWN_WORLD, write_model
from holdfast.training.loop import Epoch, TrainingOptions, constant, fit, one_cycle

if TYPE_CHECKING:
    import torch

    from holdfast.pipeline.jobs.progress import Progress

SCHEMES = ("embedded", "local-dir", "timm")
"""Models that a folder of timm's can hold."""

WEIGHTS = "model"
"""The folder of a remedied model, below the run."""


def trainable(text: str, *, device: str) -> tuple[TorchClassifier, dict[str, Any]]:
    """Return a classifier and the configuration that rebuilds it as timm writes it."""
    name = parse_name(text)
    if name.scheme not in SCHEMES:
        raise UserError(
            f"remedy trains {', '.join(f'{scheme}:' for scheme in SCHEMES)} models, and {text} is none of them"
        )
    classifier = load_classifier(text, device=device)
    assert isinstance(classifier, TorchClassifier)
    if name.scheme == "timm":
        return classifier, _timm_config(name, classifier)
    if name.scheme == "embedded":
        plain = Name(name.scheme, name.name, name.tag, {})
        return classifier, dict(read_asset("classifiers", plain).config)
    config = read_config(Path(untagged(name)) / "config.json")
    return classifier, {key: value for key, value in config.items() if key != "holdfast"}


def _timm_config(name: Name, classifier: TorchClassifier) -> dict[str, Any]:
    from timm.data import resolve_data_config

    module: Any = classifier.module
    known = classifier.labels.wnids  # ImageNet's outputs are named by their number
    return {
        "architecture": name.name,
        "num_classes": len(classifier.labels),
        "num_features": int(module.num_features),
        "model_args": {},
        "pretrained_cfg": {**resolve_data_config(pretrained_cfg=module.pretrained_cfg), "custom_load": False},
        **({} if known else {"label_names": list(classifier.labels.names)}),
    }


def fine_tune(
    classifier: TorchClassifier,  # whose weights to start from and whose preparation to use
    samples: Sequence[Sample],  # what to train on
    label_map: LabelMap,  # which outputs mean which class; an image's loss is that of all outputs of its class together
    recipe: RemedyRecipe,
    *,
    seed: int,  # of order and augmentation
    max_pixels: int,  # larger images are refused
    checkpoints: Path,  # folder to resume from and to write to
    progress: Progress,
) -> tuple[torch.nn.Module, list[dict[str, float]]]:
    """Return a trained copy of the classifier's module on the CPU, and its history."""
    import torch
    from timm.layers import freeze_batch_norm_2d, unfreeze_batch_norm_2d

    # Few images would replace what batch norms know of many: the paper's small steps alone then cost accuracy.
    module = freeze_batch_norm_2d(copy.deepcopy(classifier.module).requires_grad_(True))
    belongs = np.zeros((len(label_map.classes), len(classifier.labels)), bool)
    for place, outputs in enumerate(label_map.members):
        belongs[place, list(outputs)] = True
    owners = torch.from_numpy(belongs)
    places = {name: place for place, name in enumerate(label_map.classes)}
    targets = torch.tensor([places[sample.label] for sample in samples])
    moves = augment.Moves() if recipe.moves else augment.Moves(rotation=0, zoom=0, shift=0)
    size = min(recipe.batch_size, len(samples))

    def batches(epoch: int) -> Iterator[Any]:
        with ThreadPoolExecutor(core_count()) as threads:
            for index in augment.shuffled(len(samples), size, "cpu"):
                chosen = [samples[place] for place in index.tolist()]
                pictures = threads.map(
                    lambda sample: classifier.prepare(sample.image.load(max_pixels=max_pixels)), chosen
                )
                batch = torch.stack(list(pictures))
                yield augment.move(batch, augment.move_grid(batch, moves)), owners[targets[index]]

    def on_epoch(epoch: Epoch) -> None:
        progress("train", epoch.number + 1, recipe.epochs)

    options = TrainingOptions(
        epochs=recipe.epochs, steps_per_epoch=len(samples) // size, seed=seed, checkpoints=checkpoints,
        on_cpu=classifier.device == "cpu",
    )  # fmt: skip
    progress("train", 0, recipe.epochs)
    fitted = fit(
        module, batches, _loss, _optimiser(module, recipe), options, schedule=one_cycle if recipe.cycle else constant,
        on_epoch=on_epoch,
    )  # fmt: skip
    return unfreeze_batch_norm_2d(fitted.model.cpu()).eval(), [dict(row) for row in fitted.history]


def _loss(module: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    logits = module(batch[0]).float()
    own = batch[1].to(logits.device)
    likely = logits.log_softmax(1).masked_fill(~own, float("-inf")).logsumexp(1)
    right = own.gather(1, logits.argmax(1, keepdim=True)).float().mean()
    return {"loss": -likely.mean(), "accuracy": right}


def _optimiser(module: torch.nn.Module, recipe: RemedyRecipe) -> torch.optim.Optimizer:
    import torch

    if recipe.optimiser == "sgd":
        return torch.optim.SGD(module.parameters(), lr=recipe.rate, momentum=0.9)
    return torch.optim.AdamW(module.parameters(), lr=recipe.rate, weight_decay=0.01)


def save(
    folder: Path, module: torch.nn.Module, config: Mapping[str, Any], facts: Mapping[str, Any], *, drawn: bool
) -> None:
    """Write the folder that ``local-dir:`` reads, with a card and weights in single precision."""
    weights = {name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}
    text = f"# {facts['name']}\n\n{facts['model']}, fine-tuned on generated images that other models get right."
    write_model(folder, weights, config, facts, text, note=DRAWN_WORLD if drawn else "")


def trained_as(folder: Path, asked: Mapping[str, Any]) -> bool:
    """Return whether the folder holds the finished model of the very same training."""
    if not all((folder / name).is_file() for name in ("README.md", "config.json")):
        return False
    facts = read_json(folder / "config.json").get("holdfast", {})
    return bool(facts.get("asked") == json.loads(json.dumps(asked)))


def described(recipe: RemedyRecipe) -> dict[str, Any]:
    """Return the recipe as JSON."""
    return asdict(recipe)
