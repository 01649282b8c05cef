"""``holdfast study augmentation``: do perturbed images, once made, help as training images?

One perturbed copy of each of some training images is made against a trained model. With images and copies, and a
squared ℓ2 distance between the answers to the two, that model trains on, and another is trained from scratch; a twin of
each has the images alone. All are tested: on images made again against each, on each other's, under static conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from holdfast import api
from holdfast.core.networks import resolve_device
from holdfast.data.images import decode_image, read_file
from holdfast.reports.page.tables import Column, ranged
from holdfast.reports.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import SHARE
from holdfast.store import read_table
from holdfast.training import augment
from holdfast.training.robust import normalised
from holdfast_studies.drawn import classifiers
from holdfast_studies.drawn.classifiers import FAMILIES, SIDE, DrawnPictures, Size, squeezed
from holdfast_studies.drawn.small_models import STUDIES, SmallModel, is_complete, write_model
from holdfast_studies.study import Setting, Study, StudyOptions, evaluate
from holdfast_studies.trained import trainings
from holdfast_studies.trained.statistics import mean_over_trainings
from holdfast_studies.walking import walks
from holdfast_studies.walking.transfer import swapped

CONTINUED = {"plain": "before", "continued": "after, images alone", "augmented": "after, with perturbed copies"}
SCRATCH = {"scratch": "from scratch, images alone", "scratch_copies": "from scratch, with perturbed copies"}
WORDS = CONTINUED | SCRATCH
RATE = 0.1  # share of the learning rate of training, if a model trains on: it should keep what it knows

Models = dict[str, dict[str, str]]
Pairs = tuple["torch.Tensor", "torch.Tensor"]


def run(options: StudyOptions) -> StudyResult:
    """Train the missing models, walk training images, train with the copies, walk again, and compare."""
    options.require(pairs=12, more_epochs=1, scratch_epochs=1, weight=0)
    options = trainings.settled(options)
    models: Models = {way: {} for way in WORDS}
    models["plain"] = trainings.trained_models(options, STUDIES["augmentation"])["plain"]
    for name, model in models["plain"].items():
        _trained_with_copies(options, models, name, model, start=name)
    for name in list(models["plain"]):
        first = name.replace("plain", "scratch")
        _train(options, first, None, _pairs(options, "", ""), copies=False)
        models["scratch"][first] = trainings.local_name(options.out / "models", first)
        _trained_with_copies(options, models, first, models["scratch"][first], start=None)
    results, rows = walks.walk(options, trainings.all_names(models), keep_images=True)
    groups = {WORDS[way]: group for way, group in trainings.by_training(rows, models).items()}
    scratch = {way: models[way] for way in SCRATCH}
    kinds = trainings.way_of(scratch, SCRATCH)
    swapped_findings = swapped(
        options, results, rows[rows["model"].isin(kinds)], trainings.all_names(scratch), kinds
    )  # fmt: skip
    new_models = {way: group for way, group in models.items() if way != "plain"}
    return StudyResult(
        title="Perturbed images as augmentation",
        question=(
            "Do perturbed images, once made, help as training images? One perturbed copy of each of "
            f"{options.settings['pairs']} training images was made against a plain model, which then trained on with "
            "images and copies and a squared ℓ2 distance between its answers to the two; a twin trained on as long "
            "with the images alone. Two more models were trained from scratch on these images, without and with "
            "copies, and each was shown the images made against the other. All were tested on images remade "
            f"against each, and under static conditions. {trainings.INTERVALS}"
        ),
        findings=[
            _continued({words: groups[words] for words in CONTINUED.values()}),
            _scratch({words: groups[words] for words in SCRATCH.values()}),
            *swapped_findings,
            _static(options, models),
            trainings.model_table(options, new_models, options.out / "models"),
        ],
        facts=trainings.facts(options, models, {"images with a copy": options.settings["pairs"]}),
    )


STUDY = Study(
    run,
    (
        Setting("pairs", 120, "training images that are walked, one copy each", 12),
        Setting("more_epochs", 20, "passes over the images and their copies, if a model trains on", 1),
        Setting("scratch_epochs", 60, "passes over them if it is trained from scratch", 1),
        Setting("weight", 1.0, "of the squared distance between the answers to an image and to its copy"),
        *trainings.training_settings(scenes=48, models=False),
    ),
)


def _trained_with_copies(options: StudyOptions, models: Models, name: str, model: str, *, start: str | None) -> None:
    """Train with copies made against a model, on from that model (and its twin without copies) or from scratch."""
    pairs = _pairs(options, name, model)
    way = name.rpartition("-seed")[0]
    for new_way in ("continued", "augmented") if start else ("scratch_copies",):
        new = name.replace(way, new_way)
        _train(options, new, start, pairs, copies=new_way != "continued")
        models[new_way][new] = trainings.local_name(options.out / "models", new)


def _pairs(options: StudyOptions, name: str, model: str) -> Pairs:
    """Return images with copies, (n, 2, side, side, 3) uint8, and classes; without a model the image is there twice."""
    settings = options.settings
    walked = {key: settings[key] for key in ("generator", "oracle", "steps", "step_size")}
    part = trainings.train_part(options, settings["pairs"])
    copies = {}
    if model:
        results = api.perturb(
            models=[model], keep_images=True, random_walk=False, **part, **walked,
            **options.run_options(f"copies-{name}"),
        )  # fmt: skip
        folder = results.path / "images"
        table = read_table(folder / "manifest.parquet").to_pandas()
        copies = {str(row.made_from): folder / str(row.path) for row in table.itertuples()}
    collection = trainings.train_images(options, settings["pairs"])
    images, labels = [], []
    for sample in collection.samples:
        image = sample.image.load()
        file = copies.get(sample.sample_id)
        images += [image, decode_image(read_file(file)) if file else image]
        labels.append(collection.classes.index(sample.label))
    small = squeezed(images, [0] * len(images), side=SIDE).images
    return torch.from_numpy(small.reshape(-1, 2, SIDE, SIDE, 3)), torch.tensor(labels)


def _train(options: StudyOptions, new: str, start: str | None, pairs: Pairs, *, copies: bool) -> None:
    """Train a model with or without the copies, on from another or from scratch, and write it, unless it is there."""
    from safetensors.torch import load_file

    settings, out = options.settings, options.out / "models"
    way, _, seed = new.rpartition("-seed")
    pictures = trainings.pictures_of(options) or DrawnPictures(options.out / "work" / "scenes")
    model = SmallModel(way, int(seed))
    facts = {
        "method": WORDS[way],
        "seed": options.seed,
        "data": pictures.about(settings["pairs"], SIDE, model.rho)["data"],
        "epochs": settings["more_epochs"] if start else settings["scratch_epochs"],
        "trained_on_pairs": settings["pairs"],
        **({"trained_with": settings["generator"], "weight": settings["weight"]} if copies else {}),
    }
    if is_complete(out / new, facts):
        return
    images, labels = pairs
    device, family = resolve_device(options.device), FAMILIES["resnet"]
    module = classifiers.seeded(family, int(seed), len(pictures.classes))
    if start:
        module.load_state_dict(load_file(trainings.folder_of(options) / start / "model.safetensors"))
    batch = min(settings["batch"], 64, len(labels))
    size = Size(len(labels), trainings.size_of(options).test, int(facts["epochs"]), batch, seconds=None)
    if not copies:
        images = images[:, :1].expand(-1, 2, -1, -1, -1)

    def loss(module: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return consistency_loss(module, batch, settings["weight"] if copies else 0.0)

    fitted = classifiers.fit_scenes(
        module, images.to(device), labels.to(device), size, prepared_pairs, loss,
        rate=(RATE if start else 1.0) * family.rate * 512 / batch, seed=options.seed, device=device,
    )  # fmt: skip
    write_model(model, fitted.model, facts, size.test, fitted.seconds, out=out, pictures=pictures)


def prepared_pairs(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Move the two images of each pair (n, 2, side, side, 3) alike; return all scenes, then all copies, normalised."""
    scenes, copies = (images[:, place].permute(0, 3, 1, 2).float() / 255 for place in (0, 1))
    grid = augment.move_grid(scenes, augment.Moves(rotation=12, zoom=0.15))
    return normalised(torch.cat([augment.move(scenes, grid), augment.move(copies, grid)])), labels


def consistency_loss(module: Any, batch: tuple[torch.Tensor, torch.Tensor], weight: float) -> dict[str, torch.Tensor]:
    """Return the cross-entropy of scenes and copies plus ``weight`` × the squared ℓ2 distance between their logits."""
    images, labels = batch
    logits = module(images).float()
    scenes, copies = logits.chunk(2)
    plain = torch.nn.functional.cross_entropy(logits, labels.repeat(2), label_smoothing=0.05)
    apart = (scenes - copies).square().sum(1).mean()
    right = (scenes.argmax(1) == labels).float().mean()
    return {"loss": plain + weight * apart, "apart": apart.detach(), "accuracy": right}


def _continued(groups: dict[str, list[pd.DataFrame]]) -> Finding:
    before, alone, after = groups.values()
    with_copies, with_images, by_copies = (
        trainings.changes(*pair) for pair in ((before, after), (before, alone), (alone, after))
    )
    sentences = [
        f"FMR, on images remade against each model, changes by {with_copies['fmr']} with the copies and by "
        f"{with_images['fmr']} with the images alone; the copies themselves account for {by_copies['fmr']}.",
        f"SA changes by {with_copies['standard_accuracy']} and VR by {with_copies['validation_rate']} with the copies.",
    ]
    frame = trainings.training_table(groups)
    caption = "FMR before and after training with perturbed copies"
    return trainings.walked("Walked again", sentences, frame, "Model", caption)


def _scratch(groups: dict[str, list[pd.DataFrame]]) -> Finding:
    change = trainings.changes(*groups.values())
    sentence = (
        f"Trained from scratch, copies change FMR by {change['fmr']}, accuracy on the originals by "
        f"{change['standard_accuracy']} and the validated share by {change['validation_rate']}."
    )
    frame = trainings.training_table(groups)
    caption = "FMR without and with perturbed copies, from scratch"
    return trainings.walked("Trained from scratch", [sentence], frame, "Model", caption)


def _static(options: StudyOptions, models: Mapping[str, Mapping[str, str]]) -> Finding:
    """Compare accuracy under each static condition, before and after."""
    results = evaluate(options, trainings.all_names(models), trainings.static_scenarios(options), "static")
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
            row |= mean_over_trainings(group).within(SHARE).row(way)
        rows.append(row | mean_over_trainings(values["augmented"] - values["plain"]).row("change"))
    with_copies, alone, scratch = (
        walks.in_points(mean_over_trainings(everything[way] - everything[base]))
        for way, base in (("augmented", "plain"), ("continued", "plain"), ("scratch_copies", "scratch"))
    )
    sentence = (
        f"Over all static conditions accuracy changes by {with_copies} with the copies and by {alone} with the images "
        f"alone; from scratch copies change it by {scratch}."
    )
    columns = [Column("condition", "Condition"), *(ranged(way, WORDS[way]) for way in models)]
    columns.append(ranged("change", "Change with the copies", "points"))
    caption = "Accuracy by static condition"
    return Finding("Under static conditions", [sentence], pd.DataFrame(rows), columns, caption=caption)
