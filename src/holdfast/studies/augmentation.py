"""``holdfast study augmentation``: do perturbed images, once made, help as training images?

One perturbed copy of each of some training scenes is made against a trained model. The model then trains on with the
scenes and their copies, with a squared ℓ2 distance between its answers to the two, and is tested again: dynamically, on
images made anew against it, and under static conditions. A twin trains on as long with the scenes alone.
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
from holdfast.report.page.tables import Column
from holdfast.report.study import Finding, StudyResult
from holdfast.stats.models.trainings import mean_over_trainings
from holdfast.studies import trainings, walks
from holdfast.studies.study import Setting, Study, StudyOptions, dots_of, evaluate, ranged, world_note
from holdfast.training import augment, classifiers
from holdfast.training.classifiers import FAMILIES, Size, normalised
from holdfast.training.small_models import RHO, STUDIES, SmallModel, is_complete, write_model

if TYPE_CHECKING:
    import pandas as pd
    import torch

WORDS = {"plain": "before", "continued": "after, scenes alone", "augmented": "after, with perturbed copies"}
RATE = 0.1
"""Share of the learning rate of training: the model should keep what it knows."""


def run(options: StudyOptions) -> StudyResult:
    """Train the missing models, walk training scenes, train on, walk again, and compare."""
    if options.settings["pairs"] < 12 or options.settings["more_epochs"] < 1 or options.settings["weight"] < 0:
        raise UserError("pairs must be 12 or more, more_epochs 1 or more, and weight not below 0")
    before = trainings.trained_models(options, STUDIES["augmentation"])["plain"]
    models: dict[str, dict[str, str]] = {"plain": before, "continued": {}, "augmented": {}}
    for name, model in before.items():
        pairs = _pairs(options, name, model)
        for way in ("continued", "augmented"):
            new = name.replace("plain", way)
            _train_on(options, name, new, pairs, copies=way == "augmented")
            models[way][new] = trainings.local_name(options.out / "models", new)
    _, rows = walks.walk(options, trainings.all_names(models))
    groups = {WORDS[way]: group for way, group in trainings.by_training(rows, models).items()}
    new_models = {way: group for way, group in models.items() if way != "plain"}
    return StudyResult(
        title="Perturbed images as augmentation",
        question=(
            "Do perturbed images, once made, help as training images? One perturbed copy of each of "
            f"{options.settings['pairs']} training scenes was made against a plain model, which then trained on with "
            "scenes and copies and a squared ℓ2 distance between its answers to the two; a twin trained on as long "
            "with the scenes alone. All were tested again on images made anew against each, and under static "
            f"conditions. {trainings.INTERVALS}"
        ),
        findings=[
            _dynamic(groups),
            _static(options, models),
            trainings.model_table(options.out / "models", new_models),
        ],
        facts=trainings.facts(options, models, (str(options.settings["pairs"]), "scenes with a copy")),
        note=world_note(options),
    )


STUDY = Study(
    run,
    (
        Setting("pairs", 120, "training scenes that are walked, one copy each", 12),
        Setting("more_epochs", 20, "passes over the scenes and their copies", 1),
        Setting("weight", 1.0, "of the squared distance between the answers to a scene and to its copy"),
        *trainings.training_settings(scenes=48),
    ),
)


def _pairs(options: StudyOptions, name: str, model: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scenes with copies, (n, 2, side, side, 3) uint8, and classes; a failed walk leaves the scene twice."""
    import torch

    settings = options.settings
    data = f"diorama:train?n={settings['pairs']}&context={RHO:g}&seed={options.seed}"
    walked = {key: settings[key] for key in ("generator", "oracle", "steps", "step_size")}
    results = api.perturb(
        data, models=[model], keep_images=True, random_walk=False, **walked, **options.run_options(f"copies-{name}")
    )
    copies = _copies(results.path / "images")
    scenes, labels = [], []
    for sample in load_collection(data).samples:
        image = sample.image.load()
        file = copies.get(sample.sample_id)
        scenes.append(np.stack([image, decode_image(read_file(file)) if file else image]))
        labels.append(CLASSES.index(sample.label))
    return torch.from_numpy(np.stack(scenes)), torch.tensor(labels)


def _copies(folder: Path) -> dict[str, Path]:
    """Return scene → file of its perturbed copy."""
    import pandas as pd

    table = pd.read_parquet(folder / "manifest.parquet", columns=["made_from", "path"])
    return {str(scene): folder / str(path) for scene, path in zip(table["made_from"], table["path"], strict=True)}


def _train_on(
    options: StudyOptions, old: str, new: str, pairs: tuple[torch.Tensor, torch.Tensor], *, copies: bool
) -> None:
    """Train a model on, with or without the copies, and write it, unless it is complete already."""
    from safetensors.torch import load_file

    settings, out = options.settings, options.out / "models"
    facts = {
        "method": WORDS["augmented" if copies else "continued"],
        "seed": options.seed,
        "data": f"{settings['pairs']} training scenes of diorama, context {RHO}",
        "epochs": settings["more_epochs"],
        **({"trained_with": settings["generator"], "weight": settings["weight"]} if copies else {}),
    }
    if is_complete(out / new, facts):
        return
    device, family = resolve_device(options.device), FAMILIES["resnet"]
    model = classifiers.untrained(family)
    model.load_state_dict(load_file(trainings.folder_of(options) / old / "model.safetensors"))
    batch = min(settings["batch"], 64, settings["pairs"])
    size = Size(settings["pairs"], trainings.size_of(options).test, settings["more_epochs"], batch, seconds=None)
    images, labels = pairs
    if not copies:
        images = images[:, :1].expand(-1, 2, -1, -1, -1)

    def loss(module: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return consistency_loss(module, batch, settings["weight"] if copies else 0.0)

    fitted = classifiers.fit_scenes(
        model, images.to(device), labels.to(device), size, prepared_pairs, loss,
        rate=RATE * family.rate * 512 / batch, seed=options.seed, device=device,
    )  # fmt: skip
    way, _, seed = new.rpartition("-seed")
    write_model(
        SmallModel(way, int(seed)), fitted.model, facts, size.test, fitted.seconds, out=out, work=options.out / "work"
    )


def prepared_pairs(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Move the two images of each pair (n, 2, side, side, 3) alike; return all scenes, then all copies, normalised."""
    import torch

    scenes, copies = (images[:, place].permute(0, 3, 1, 2).float() / 255 for place in (0, 1))
    grid = augment.move_grid(scenes, augment.Moves(rotation=12, zoom=0.15))
    return normalised(torch.cat([augment.move(scenes, grid), augment.move(copies, grid)])), labels


def consistency_loss(module: Any, batch: tuple[torch.Tensor, torch.Tensor], weight: float) -> dict[str, torch.Tensor]:
    """Return the cross-entropy of scenes and copies plus ``weight`` × the squared ℓ2 distance between their logits."""
    import torch

    images, labels = batch
    logits = module(images).float()
    scenes, copies = logits.chunk(2)
    plain = torch.nn.functional.cross_entropy(logits, labels.repeat(2), label_smoothing=0.05)
    apart = (scenes - copies).square().sum(1).mean()
    right = (scenes.argmax(1) == labels).float().mean()
    return {"loss": plain + weight * apart, "apart": apart.detach(), "accuracy": right}


def _dynamic(groups: dict[str, list[pd.DataFrame]]) -> Finding:
    frame = trainings.training_table(groups)
    before, alone, after = groups.values()
    with_copies, with_scenes, by_copies = (
        trainings.changes(*pair) for pair in ((before, after), (before, alone), (alone, after))
    )
    sentences = [
        f"FMR, on images made anew against each model, changes by {with_copies['fmr']} with the copies and by "
        f"{with_scenes['fmr']} with the scenes alone; the copies themselves account for {by_copies['fmr']}.",
        f"SA changes by {with_copies['standard_accuracy']} and VR by {with_copies['validation_rate']} with the copies.",
    ]
    return Finding(
        "Walked again",
        sentences,
        frame,
        [Column("training", "Model"), *walks.columns(), *walks.COUNTS],
        chart=dots_of(frame.assign(measure="FMR"), "fmr", line="measure", row="training", title="FMR"),
        caption="FMR before and after training with perturbed copies",
    )


def _static(options: StudyOptions, models: Mapping[str, Mapping[str, str]]) -> Finding:
    """Compare accuracy under each static condition, before and after."""
    import pandas as pd

    results = evaluate(options, trainings.all_names(models), "static", "static")
    answers = trainings.right_answers(results, [name for group in models.values() for name in group])
    right = {
        way: np.stack([answers.right[answers.models.index(name)] for name in group]) for way, group in models.items()
    }
    everything = {way: values.mean(axis=1) for way, values in right.items()}
    rows = []
    for place, condition in enumerate([*answers.conditions, "all conditions"]):
        row: dict[str, Any] = {"condition": condition}
        whole = place == len(answers.conditions)
        values = everything if whole else {way: each[:, place] for way, each in right.items()}
        for way, group in values.items():
            row |= mean_over_trainings(group).clipped().row(way)
        rows.append(row | mean_over_trainings(values["augmented"] - values["plain"]).row("change"))
    with_copies, alone = (
        mean_over_trainings(everything[way] - everything["plain"]) for way in ("augmented", "continued")
    )
    sentence = (
        f"Over all static conditions accuracy changes by {walks.in_points(with_copies)} with the copies and by "
        f"{walks.in_points(alone)} with the scenes alone."
    )
    columns = [Column("condition", "Condition"), *(ranged(way, WORDS[way]) for way in models)]
    columns.append(ranged("change", "Change with the copies", "points"))
    caption = "Accuracy by static condition"
    return Finding("Under static conditions", [sentence], pd.DataFrame(rows), columns, caption=caption)
