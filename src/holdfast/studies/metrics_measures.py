"""What the study of metrics measures: each metric from a run, or the sentence that says why there is none."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import holdfast
from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.protocols import DifferentiableClassifier
from holdfast.core.types import ORIGINAL
from holdfast.models import load_classifier
from holdfast.pipeline.hard.pool import MineSpec, measure
from holdfast.pipeline.samples import DataSpec, read
from holdfast.report.page.words import short_names
from holdfast.results import background_conditions, static_conditions
from holdfast.stats.core.bootstrap import Floats
from holdfast.studies import dynamic
from holdfast.studies.metrics_agreement import Metric, corrected_score, share
from holdfast.studies.study import StudyOptions

SAME, RANDOM = "same_class_background", "random_background"
POOL = Path(holdfast.__file__).parent / "assets" / "pool" / "pool.zip"
DRAWN, ITSELF = "drawn", "models"
OTHER = {
    "Any background": "diorama:test?context=0",
    "New backgrounds": "diorama:ood?context=0",
    "Half the size": "diorama:test?context=0.95&size=32",
}
"""Drawn scenes of other kinds; the ood split has backgrounds that training never showed."""


@dataclass(frozen=True)
class Models:
    """The models under test.

    Attributes:
        asked: as they were named.
        names: as results call them, in the same order.
        opaque: those without gradients.
    """

    asked: list[str]
    names: list[str]
    opaque: list[str]


def is_drawn(settings: Mapping[str, Any]) -> bool:
    """Whether the images are drawn scenes, which the embedded generator, oracle and pool belong to."""
    return str(settings["data"] or "diorama:").startswith("diorama:")


def load_models(options: StudyOptions, *, least: int) -> Models:
    """The models by name; ``local-dir:FOLDER/*`` stands for every model in a folder, and ``embedded`` for ours."""
    named: list[str] = []
    for one in options.settings["models"]:
        if one.startswith("local-dir:") and one.endswith("/*"):
            folder = Path(one.removeprefix("local-dir:")[:-2])
            inside = sorted(file.parent for file in folder.glob("*/model.safetensors"))
            if not inside:
                raise UserError(f"{folder} has no folder with a model.safetensors")
            named += [f"local-dir:{model}" for model in inside]
        else:
            named.append(one)
    asked = dynamic.models_of({"models": named}, least=least)
    classes = read(DataSpec(_data(options, "scenes"), limit=1)).classes
    loaded = [load_classifier(name, device="cpu", classes=classes) for name in asked]
    return Models(
        asked,
        [model.name for model in loaded],
        [model.name for model in loaded if not isinstance(model, DifferentiableClassifier)],
    )


def _data(options: StudyOptions, count: str) -> str:
    settings = options.settings
    if settings["data"]:
        return str(settings["data"])
    return f"diorama:test?n={settings[count]}&context={settings['context']:g}&seed={options.seed}"


def _images(options: StudyOptions, count: str) -> dict[str, Any]:
    """Which images, as options of ``evaluate`` and ``perturb``."""
    settings = options.settings
    chosen: dict[str, Any] = {"data": _data(options, count), "labels": settings["labels"] or None}
    if settings["data"]:
        chosen |= {"limit": settings[count], "masks": settings["masks"] or None}
    return chosen | {"seed": options.seed, "device": options.device, "progress": options.progress}


def _evaluated(options: StudyOptions, models: Models, count: str, folder: str, scenarios: str) -> api.Results:
    return api.evaluate(
        models=models.asked, out=options.out / "runs" / folder, scenarios=scenarios, batch_size=64,
        **_images(options, count),
    )  # fmt: skip


def answered(results: api.Results, models: Sequence[str], conditions: Sequence[str]) -> tuple[list[str], Floats]:
    """The images that every model answered under all these conditions, and (images, models, conditions) right, 0..1."""
    cells = results.counts.cells
    kinds = [cells["source_id"].astype(str), cells["model"].astype(str), cells["condition"].astype(str)]
    right = (cells["right"] / cells["n"]).groupby(kinds).mean().unstack(["model", "condition"])
    wanted = [(model, condition) for model in models for condition in conditions]
    whole = right.reindex(columns=wanted).dropna().sort_index()
    answers = whole.to_numpy(np.float64).reshape(len(whole), len(models), len(conditions))
    return [str(name) for name in whole.index], answers


def counted(values: Floats) -> Floats:
    """(images, models) → (images, models, 2) for ``share``: a one, and the value."""
    return np.stack([np.ones_like(values), values], axis=-1)


def static(options: StudyOptions, models: Models) -> tuple[list[Metric], dict[str, str]]:
    """Clean accuracy, the robustness score and the background effect."""
    collection = read(DataSpec(_data(options, "scenes"), masks=options.settings["masks"] or None))
    masked = sum(sample.mask is not None for sample in collection.samples)
    results = _evaluated(options, models, "scenes", "static", f"static,{SAME}" if masked > 1 else ORIGINAL)
    names, right = answered(results, models.names, [ORIGINAL])
    if len(names) < 2:
        raise UserError(f"{results.path} has fewer than two images that every model answered; look at its errors")
    metrics = [Metric("clean", "Clean accuracy", "right on the images as they are", "", names,
                      counted(right[:, :, 0]), share)]  # fmt: skip
    why = f"{masked} of {len(collection.samples)} images have a mask; --set masks=FOLDER names some"
    if masked < 2:
        return metrics, {"Robustness score": why, "Background effect": why}
    metrics += (scores := _scores(results, models.names))
    left_out = {}
    if not scores:
        left_out["Robustness score"] = "fewer than two images have an answer under every static condition"
    names, right = answered(results, models.names, [SAME, RANDOM])
    if len(names) > 1:
        what = "accuracy on another background of the same class less that on one of another class"
        effect = counted(right[:, :, 0] - right[:, :, 1])
        metrics.append(Metric("background", "Background effect", what, "", names, effect, share, more_is_better=False,
                              kind="points"))  # fmt: skip
    else:
        left_out["Background effect"] = "fewer than two images could be given a background of the same class"
    return metrics, left_out


def _scores(results: api.Results, models: Sequence[str]) -> list[Metric]:
    """The robustness score over the static conditions, and over those of them that leave the object as it is."""
    counts, made = results.counts, []
    for key, title, conditions, which in (
        ("score", "Robustness score", static_conditions(counts), "static conditions"),
        (
            "background_score",
            "Background score",
            background_conditions(counts),
            "conditions that leave the object as it is",
        ),
    ):
        scored = [one for one in conditions if one not in (ORIGINAL, *counts.same_images)]
        names, right = answered(results, models, [ORIGINAL, *scored])
        if len(names) < 2 or not scored:
            return []
        moved = right[:, :, 1:] - right[:, :, :1]
        parts = np.concatenate([np.ones_like(moved[:, :, :1]), moved, moved**2], axis=2)
        what = f"1 less the mean square distance from the original, over {len(scored)} {which} (cross part)"
        made.append(Metric(key, title, what, "", names, parts, corrected_score, kind="number"))
    return made


def corruptions(options: StudyOptions, models: Models) -> Metric:
    """The mean error over the corruptions and severities."""
    severities = [f"{severity:g}" for severity in options.settings["severities"]]
    results = _evaluated(
        options, models, "corrupted", "corruptions", ",".join(f"corruptions@{one}" for one in severities)
    )  # fmt: skip
    conditions = [one for one in results.counts.conditions if one != ORIGINAL]
    names, right = answered(results, models.names, conditions)
    if len(names) < 2:
        raise UserError(f"{results.path} has fewer than two images that every model answered; look at its errors")
    what = f"mean error under {len(conditions)} corruptions (19 kinds, severities {', '.join(severities)})"
    return Metric("corruption", "Corruption error", what, "", names, counted(1 - right.mean(axis=2)), share,
                  more_is_better=False)  # fmt: skip


def attack(options: StudyOptions, models: Models) -> Metric | str:
    """Accuracy on images made against each model."""
    if models.opaque:
        return f"{', '.join(models.opaque)} has no gradients to follow"
    name = options.settings["attack"]
    results = _evaluated(options, models, "attacked", "attack", name)
    names, right = answered(results, models.names, [one for one in results.counts.conditions if one != ORIGINAL])
    if len(names) < 2:
        return f"fewer than two images were attacked against every model; see {results.path}"
    bound = "ℓ∞ 4/255, 20 steps" if name == "pgd" else name
    return Metric("pgd", "PGD accuracy", f"right on images made against the model ({bound})", "", names,
                  counted(right.mean(axis=2)), share)  # fmt: skip


def walks(options: StudyOptions, models: Models) -> Metric | str:
    """FMR of latent walks."""
    settings, drawn = options.settings, is_drawn(options.settings)
    generator = settings["generator"] or ("embedded:vqgan" if drawn else "")
    oracle = settings["oracle"] or ("clip:embedded" if drawn else "")
    if not generator or not oracle:
        return "walks need a generator and an oracle for these images (--set generator=… --set oracle=…)"
    if models.opaque:
        return f"{', '.join(models.opaque)} has no gradients to walk along"
    results = api.perturb(
        models=models.asked, out=options.out / "runs" / "walks", generator=generator, oracle=oracle, random_walk=False,
        space="all", oracle_space="dataset", steps=settings["steps"], step_size=settings["step_size"],
        **_images(options, "walked"),
    )  # fmt: skip
    found = dynamic.images_of(results)
    by_model = {name: group.set_index("source_id").sort_index() for name, group in found.groupby("model", sort=False)}
    if set(models.names) - set(by_model):
        return f"not every model was walked against; see {results.path}"
    both = sorted(set.intersection(*(set(by_model[name].index) for name in models.names)))
    if len(both) < 2:
        return f"fewer than two images were walked against every model; see {results.path}"
    parts = np.stack([dynamic.counts_of(by_model[name].loc[both]) for name in models.names], axis=1)
    what = f"accuracy after a walk of at most {settings['steps']} steps in the latent of {generator}, over that before"
    return Metric("fmr", "FMR", what, "", both, parts, lambda sums: dynamic.measured(sums, "fmr"))


def hard_set(options: StudyOptions, models: Models) -> Metric | str:
    """Accuracy on the valid images of a pool that at least half of the other surrogates fail.

    A model has no say in the set it is judged on. So, where the models choose for each other, each has its own.
    """
    settings, drawn = options.settings, is_drawn(options.settings)
    pool, oracle = settings["pool"], settings["oracle"] or ("clip:embedded" if drawn else "")
    if not (pool or drawn) or not oracle:
        return "mining needs a pool of generated images and an oracle for these classes (--set pool=… --set oracle=…)"
    if not pool:
        pool = str(options.out / "work" / "pool")
        with zipfile.ZipFile(POOL) as packed:
            packed.extractall(pool)
    named = [name for name in settings["surrogates"] if name != ITSELF]
    extra = [name for name in named if name not in models.asked]
    spec = MineSpec(pool, tuple(models.asked), tuple(extra), oracle, labels=settings["labels"] or None,
                    device=options.device, seed=options.seed)  # fmt: skip
    measured, _ = measure(
        spec, pool, options.out / "runs" / "pool", options.progress, limit=settings["pool_images"]
    )  # fmt: skip
    places = dict(zip((*models.asked, *extra), measured.models, strict=True))
    judges = [*(models.names if ITSELF in settings["surrogates"] else []), *(places[name] for name in named)]
    valid = measured.images["valid"].to_numpy(bool)
    parts = np.stack([_own_set(measured.failed, judges, name, valid) for name in models.names], axis=1)
    if not parts[:, :, 0].sum():
        return "no valid image of the pool is failed by half of the surrogates"
    who = "the other models" if not named else "the surrogates other than itself"
    return Metric("hard", "Hard-set accuracy", f"right on valid images of a pool that at least half of {who} fail",
                  "pool", list(measured.images["prompt_id"]), parts, share)  # fmt: skip


def _own_set(failed: Any, judges: Sequence[str], model: str, valid: Any) -> Floats:
    """(images, 2) whether an image is in the model's hard set, and whether the model is right on it as well."""
    others = [name for name in dict.fromkeys(judges) if name != model]
    if len(others) < 2:
        raise UserError("a shared failure takes two surrogates besides the model itself; --set surrogates=A,B,C")
    inside = valid & (2 * failed[others].sum(axis=1).to_numpy() >= len(others))
    return np.column_stack([inside, inside & ~failed[model].to_numpy(bool)]).astype(np.float64)


def others(options: StudyOptions, models: Models) -> list[Metric]:
    """Accuracy on each of the other data."""
    settings = options.settings
    named = [one for one in dict.fromkeys(settings["other"]) if one != DRAWN]
    folders = [one if ":" in one else Path(one).name for one in named]
    titles = list(short_names(folders if len(set(folders)) == len(named) else named).values())
    sources = dict(zip(titles, named, strict=True))
    if DRAWN in settings["other"] and is_drawn(settings):
        # Another seed: no scene of theirs is one of those that the metrics were measured on.
        size = f"n={settings['other_scenes']}&seed={options.seed + 1}"
        sources |= {title: f"{source}&{size}" for title, source in OTHER.items()}
    metrics = []
    for place, (title, source) in enumerate(sources.items(), start=1):
        results = api.evaluate(
            source, models=models.asked, out=options.out / "runs" / f"other-{place}", scenarios=ORIGINAL,
            batch_size=64, limit=settings["other_scenes"], labels=settings["labels"] or None, seed=options.seed,
            device=options.device, progress=options.progress,
        )  # fmt: skip
        names, right = answered(results, models.names, results.counts.conditions)
        if len(names) < 2:
            raise UserError(f"{results.path} has fewer than two images that every model answered; look at its errors")
        metrics.append(Metric(f"other {place}", title, source, source, names, counted(right.mean(axis=2)), share))
    return metrics
