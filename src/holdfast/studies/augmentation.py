"""``holdfast study augmentation``: do perturbed images, once made, help as training images?

One perturbed copy of each of some training scenes is made against a trained model. The model then trains on with the
scenes and their copies, its answers to the two held together (squared ℓ2), and is tested again: dynamically, on images
made anew against it, and under static conditions. A twin trains on as long with the scenes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.data import load_collection
from holdfast.data.images import decode_image, read_file
from holdfast.diorama import CLASSES
from holdfast.models.torch_classifier import resolve_device
from holdfast.report.page.charts import dots
from holdfast.report.page.tables import Column
from holdfast.report.study import Finding, StudyResult
from holdfast.studies import small_training, trained
from holdfast.studies.dose import answers_of
from holdfast.studies.dynamic import compared, images_of, in_points, scenes_of, walk_all
from holdfast.studies.seeds import over_seeds_and_scenes
from holdfast.studies.several import is_there
from holdfast.studies.small_training import RHO
from holdfast.studies.study import Setting, Study, StudyOptions
from holdfast.training import augment, classifiers
from holdfast.training.classifiers import FAMILIES, Size, normalised

if TYPE_CHECKING:
    import pandas as pd
    import torch

WORDS = {"plain": "before", "continued": "after, scenes alone", "augmented": "after, with perturbed copies"}
RATE = 0.1
"""Of the learning rate of training: the model is to keep what it knows."""

SETTINGS = (
    Setting("pairs", 120, "training scenes that are walked, one copy each", 12),
    Setting("more_epochs", 20, "passes over the scenes and their copies", 1),
    Setting("weight", 1.0, "of the squared distance between the answers to a scene and to its copy"),
    *trained.settings(scenes=48),
)


def run(options: StudyOptions) -> StudyResult:
    """Train what is missing, walk training scenes, train on, walk again, and say what came out."""
    if options.settings["pairs"] < 12 or options.settings["more_epochs"] < 1 or options.settings["weight"] < 0:
        raise UserError("pairs must be 12 or more, more_epochs 1 or more, and weight not below 0")
    before = trained.models_of(options, small_training.STUDIES["augmentation"])["plain"]
    models = {"plain": before, "continued": {}, "augmented": {}}
    for name, model in before.items():
        pairs = _pairs(options, name, model)
        for way, copies in (("continued", False), ("augmented", True)):
            new = name.replace("plain", way)
            _train_on(options, name, new, pairs, copies=copies)
            models[way][new] = trained.named(options.out / "models", new)
    results = walk_all(options, [{}], trained.all_of(models))
    groups = {WORDS[way]: found for way, found in trained.by_training(images_of(results), models).items()}
    made = {way: group for way, group in models.items() if way != "plain"}
    return StudyResult(
        title="Perturbed images as augmentation",
        question=(
            "Do perturbed images, once made, help as training images? One perturbed copy of each of "
            f"{options.settings['pairs']} training scenes was made against a plain model, which then trained on with "
            "scenes and copies and a squared ℓ2 distance between its answers to the two; a twin trained on as long "
            "with the scenes alone. All were tested again on images made anew against each, and under static "
            f"conditions. {trained.INTERVALS}"
        ),
        findings=[
            _dynamic(groups),
            _static(options, models),
            trained.every_model(options, made, options.out / "models"),
        ],
        facts=[
            (str(len(trained.all_of(models))), "models"),
            (str(options.settings["pairs"]), "scenes with a copy"),
            (str(options.settings["scenes"]), "test scenes"),
        ],
        note=trained.note(options),
        runs=["runs/walks", "runs/static", *(f"runs/copies-{name}" for name in before)],
    )  # fmt: skip


STUDY = Study(run, SETTINGS)


def _pairs(options: StudyOptions, name: str, model: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, 2, side, side, 3) uint8, scenes and their copies, and their classes; where a walk failed, the scene twice."""
    import torch

    settings = options.settings
    data = f"diorama:train?n={settings['pairs']}&context={RHO:g}&seed={options.seed}"
    results = api.perturb(
        data, models=[model], generator=settings["generator"], oracle=settings["oracle"], steps=settings["steps"],
        step_size=settings["step_size"], out=options.out / "runs" / f"copies-{name}", keep_images=True,
        random_walk=False, seed=options.seed, device=options.device, progress=options.progress,
    )  # fmt: skip
    files = _files(results.path / "images")
    scenes, labels = [], []
    for sample in load_collection(data).samples:
        image = sample.image.load()
        file = files.get(sample.sample_id)
        scenes.append(np.stack([image, decode_image(read_file(file)) if file else image]))
        labels.append(CLASSES.index(sample.label))
    return torch.from_numpy(np.stack(scenes)), torch.tensor(labels)


def _files(folder: Path) -> dict[str, Path]:
    """Scene → file of its copy."""
    import pandas as pd

    made = pd.read_parquet(folder / "manifest.parquet", columns=["made_from", "path"])
    return {str(scene): folder / str(path) for scene, path in zip(made["made_from"], made["path"], strict=True)}


def _train_on(
    options: StudyOptions, old: str, new: str, pairs: tuple[torch.Tensor, torch.Tensor], *, copies: bool
) -> None:
    """Train a model on, with or without the copies, and write it; nothing where it is there."""
    settings, out = options.settings, options.out / "models"
    asked = {
        "method": WORDS["augmented" if copies else "continued"],
        "seed": options.seed,
        "data": f"{settings['pairs']} training scenes of diorama, context {RHO}",
        "epochs": settings["more_epochs"],
        **({"trained_with": settings["generator"], "weight": settings["weight"]} if copies else {}),
    }
    if is_there(out / new, asked):
        return
    device, family = resolve_device(options.device), FAMILIES["resnet"]
    model = _loaded(trained.folder_of(options) / old, family)
    batch = min(settings["batch"], 64, settings["pairs"])
    size = Size(settings["pairs"], trained.size_of(options).test, settings["more_epochs"], batch, seconds=None)
    if not copies:
        pairs = (pairs[0][:, :1].expand(-1, 2, -1, -1, -1), pairs[1])

    def loss(module: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return consistent(module, batch, settings["weight"] if copies else 0.0)

    fitted = classifiers.fit_scenes(
        model, pairs[0].to(device), pairs[1].to(device), size, both_moved, loss,
        rate=RATE * family.rate * 512 / batch, seed=options.seed, device=device,
    )  # fmt: skip
    small_training.write(
        new, fitted.model, family, asked, size, fitted.seconds, out=out, work=options.out / "work"
    )  # fmt: skip


def _loaded(folder: Path, family: classifiers.Family) -> Any:
    from safetensors.torch import load_file

    model = classifiers.untrained(family)
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model


def both_moved(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scenes and copies (n, 2, side, side, 3), each pair moved alike → all scenes, then all copies, normalised."""
    import torch

    scenes, copies = (images[:, place].permute(0, 3, 1, 2).float() / 255 for place in (0, 1))
    grid = augment.move_grid(scenes, augment.Moves(rotation=12, zoom=0.15))
    return normalised(torch.cat([augment.move(scenes, grid), augment.move(copies, grid)])), labels


def consistent(module: Any, batch: tuple[torch.Tensor, torch.Tensor], weight: float) -> dict[str, torch.Tensor]:
    """Cross-entropy of scenes and copies, and the squared ℓ2 distance between the logits of the two."""
    import torch

    images, labels = batch
    logits = module(images).float()
    scenes, copies = logits.chunk(2)
    plain = torch.nn.functional.cross_entropy(logits, labels.repeat(2), label_smoothing=0.05)
    apart = (scenes - copies).square().sum(1).mean()
    right = (scenes.argmax(1) == labels).float().mean()
    return {"loss": plain + weight * apart, "apart": apart.detach(), "accuracy": right}


def _dynamic(groups: dict[str, list[pd.DataFrame]]) -> Finding:
    frame = trained.family_table(groups)
    before, alone, after = groups.values()
    sentences = [
        "FMR, on images made anew against each model, changes by "
        f"{in_points(trained.difference(before, after, 'fmr'))} with the copies and by "
        f"{in_points(trained.difference(before, alone, 'fmr'))} with the scenes alone; the copies themselves account "
        f"for {in_points(trained.difference(alone, after, 'fmr'))}.",
        "SA changes by "
        f"{in_points(trained.difference(before, after, 'standard_accuracy'))} and VR by "
        f"{in_points(trained.difference(before, after, 'validation_rate'))} with the copies.",
    ]  # fmt: skip
    return Finding(
        "Walked again",
        sentences,
        frame,
        [Column("training", "Model"), *trained.COLUMNS, *trained.COUNTS],
        chart=lambda width: dots(
            compared(frame.assign(measure="FMR"), models="measure", row="training", measure="fmr"), width,
            models=["FMR"], rows=list(frame["training"]), title="FMR",
        ),
        caption="FMR before and after training with perturbed copies",
    )  # fmt: skip


def _static(options: StudyOptions, models: Mapping[str, Mapping[str, str]]) -> Finding:
    """Accuracy under each static condition, before and after."""
    import pandas as pd

    results = api.evaluate(
        scenes_of(options), models=trained.all_of(models), out=options.out / "runs" / "static", scenarios="static",
        seed=options.seed, device=options.device, batch_size=64, progress=options.progress,
    )  # fmt: skip
    answers = answers_of(results, [name for group in models.values() for name in group])
    right = {
        way: np.stack([answers.right[answers.models.index(name)] for name in group]) for way, group in models.items()
    }
    rows = []
    for place, condition in enumerate([*answers.conditions, "all conditions"]):
        row: dict[str, Any] = {"condition": condition}
        values = {
            way: one.mean(axis=1) if place == len(answers.conditions) else one[:, place] for way, one in right.items()
        }
        for way, group in values.items():
            found = over_seeds_and_scenes(group)
            row |= {way: found.value, f"{way}_low": max(found.low, 0.0), f"{way}_high": min(found.high, 1.0)}
        change = over_seeds_and_scenes(values["augmented"] - values["plain"])
        rows.append(row | {"change": change.value, "change_low": change.low, "change_high": change.high})
    frame = pd.DataFrame(rows)
    whole = over_seeds_and_scenes((right["augmented"] - right["plain"]).mean(axis=1))
    alone = over_seeds_and_scenes((right["continued"] - right["plain"]).mean(axis=1))
    sentence = (
        f"Over all static conditions accuracy changes by {in_points(whole)} with the copies and by {in_points(alone)} "
        "with the scenes alone."
    )
    columns = [Column("condition", "Condition")]
    columns += [Column(way, WORDS[way], "percent", f"{way}_low", f"{way}_high") for way in models]
    columns.append(Column("change", "Change with the copies", "points", "change_low", "change_high"))
    return Finding("Under static conditions", [sentence], frame, columns, caption="Accuracy by static condition")
