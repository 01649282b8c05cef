"""The metrics of ``holdfast study metrics``: each from a run, or the sentence that says why it is missing."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import seed_from
from holdfast.core.protocols import DifferentiableClassifier
from holdfast.core.types import ORIGINAL
from holdfast.models import load_classifier
from holdfast.pipeline.hard.pool import MineSpec, measure
from holdfast.reports.page.tables import Kind
from holdfast.reports.page.words import short_names
from holdfast.results import background_conditions, static_conditions
from holdfast.stats.core.bootstrap import RESAMPLES, Floats, ratio
from holdfast.stats.models.ranks import LEAST_MODELS, MetricValues
from holdfast_studies.study import DRAWN, StudyOptions, collection_of, evaluate, images_of, is_drawn, model_names
from holdfast_studies.trained.trainings import right_answers
from holdfast_studies.walking import walks

SAME, RANDOM = "same_class_background", "random_background"
POOL = Path(__file__).parents[1] / "assets" / "pool" / "pool.zip"
ITSELF = "models"
OTHER = {
    "Any background": "diorama:test?context=0",
    "New backgrounds": "diorama:ood?context=0",
    "Half the size": "diorama:test?context=0.95&size=32",
}
"""Drawn scenes of other kinds; the ood split has backgrounds that training never showed."""


@dataclass(frozen=True)
class Metric:
    """A number per model, from parts that can be resampled."""

    key: str  # in tables
    title: str  # on the page
    what: str  # its meaning in a few words
    data: str  # which images; metrics of the same data are resampled together
    clusters: Sequence[str]  # (images,) what is resampled as a whole: the scene, the image or the prompt
    parts: Floats  # (images, models, parts); ``value`` takes their sums over images
    value: Callable[[Floats], Floats]  # (…, models, parts) → (…, models), NaN if there is none
    more_is_better: bool = True  # whether a robust model has more of it
    kind: Kind = "percent"  # how it is shown


@dataclass(frozen=True)
class MetricModels:
    """The models under test: as named, as results call them, and those without gradients."""

    asked: list[str]
    names: list[str]
    opaque: list[str]


def share(sums: Floats) -> Floats:
    """Return the value of a metric whose parts are (1, a value), or a count and the hits among them."""
    return ratio(sums[..., 1], sums[..., 0])


def counted(values: Floats) -> Floats:
    """Return the parts that ``share`` takes, (images, models, 2), of values (images, models)."""
    return np.stack([np.ones_like(values), values], axis=-1)


def corrected_score(sums: Floats) -> Floats:
    """Return 1 − the cross part of the robustness score, without the sampling noise that squaring adds.

    The parts are 1, the differences from the original under each condition, and their squares: the mean square distance
    d̄² is lessened by its own variance, s²/n. It equals the mean of ``cross_part_pseudo_values``.
    """
    n = sums[..., :1]
    mean, square = np.split(ratio(sums[..., 1:], np.broadcast_to(n, sums[..., 1:].shape)), 2, axis=-1)
    noise = ratio(square - mean**2, np.broadcast_to(n - 1, mean.shape))
    return np.asarray(1 - (mean**2 - noise).mean(-1))


def resample(metrics: Sequence[Metric], *, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, MetricValues]:
    """Return every metric with resamples of its images; metrics of the same data share the resamples."""
    values: dict[str, MetricValues] = {}
    for data in dict.fromkeys(metric.data for metric in metrics):
        own = [metric for metric in metrics if metric.data == data]
        places = {name: place for place, name in enumerate(sorted({name for m in own for name in m.clusters}))}
        rng = np.random.default_rng(seed_from("metrics", seed, data))
        drawn = rng.multinomial(len(places), np.full(len(places), 1 / len(places)), size=resamples)
        for metric in own:
            at = [places[name] for name in metric.clusters]
            images, models, parts = metric.parts.shape
            sums = drawn[:, at].astype(np.float64) @ metric.parts.reshape(images, -1)
            resampled = metric.value(sums.reshape(resamples, models, parts))
            measured = metric.value(metric.parts.sum(axis=0))
            values[metric.key] = MetricValues(measured, resampled, metric.more_is_better)
    return values


def load_models(options: StudyOptions, *, least: int = LEAST_MODELS) -> MetricModels:
    """Load the models by name, and see which have gradients."""
    asked = model_names(options.settings["models"], least=least)
    classes = collection_of(options).classes
    loaded = [load_classifier(name, device="cpu", classes=classes) for name in asked]
    opaque = [model.name for model in loaded if not isinstance(model, DifferentiableClassifier)]
    return MetricModels(asked, [model.name for model in loaded], opaque)


def _answers(
    results: api.Results, models: MetricModels, conditions: Sequence[str], least: int = 0
) -> tuple[list[str], Floats]:
    """Return the images that every model answered under all conditions, and right (images, models, conditions)."""
    answers = right_answers(results, models.names, conditions, least=least)
    return answers.scenes, answers.right.transpose(2, 0, 1)


def _changed(results: api.Results) -> list[str]:
    return [name for name in results.counts.conditions if name != ORIGINAL]


def static(options: StudyOptions, models: MetricModels) -> tuple[list[Metric], dict[str, str]]:
    """Measure clean accuracy, robustness score and background effect; return them, and title → why one is missing."""
    samples = collection_of(options).samples
    masked = sum(sample.mask is not None for sample in samples)
    scenarios = f"static,{SAME}" if masked > 1 else ORIGINAL
    results = evaluate(options, models.asked, scenarios, "static", least=2)
    names, right = _answers(results, models, [ORIGINAL], least=2)
    what = "right on the images as they are"
    metrics = [Metric("clean", "Clean accuracy", what, "", names, counted(right[:, :, 0]), share)]
    if masked < 2:
        why = f"{masked} of {len(samples)} images have a mask; --set masks=FOLDER names some"
        return metrics, {"Robustness score": why, "Background effect": why}
    missing = {}
    scores = _scores(results, models)
    if not scores:
        missing["Robustness score"] = "fewer than two images have an answer under every static condition"
    names, right = _answers(results, models, [SAME, RANDOM])
    if len(names) < 2:
        missing["Background effect"] = "fewer than two images could be given a background of the same class"
        return [*metrics, *scores], missing
    effect = Metric(
        "background", "Background effect",
        "accuracy on another background of the same class less that on one of another class", "", names,
        counted(right[:, :, 0] - right[:, :, 1]), share, more_is_better=False, kind="points",
    )  # fmt: skip
    return [*metrics, *scores, effect], missing


def _scores(results: api.Results, models: MetricModels) -> list[Metric]:
    """Return the robustness score over the static conditions, and over those of them that leave the object alone."""
    counts, metrics = results.counts, []
    for key, title, conditions, which in (
        ("score", "Robustness score", static_conditions(counts), "static conditions"),
        ("background_score", "Background score", background_conditions(counts),
         "conditions that leave the object as it is"),
    ):  # fmt: skip
        scored = [name for name in conditions if name not in (ORIGINAL, *counts.same_images)]
        names, right = _answers(results, models, [ORIGINAL, *scored])
        if len(names) < 2 or not scored:
            return []
        moved = right[:, :, 1:] - right[:, :, :1]
        parts = np.concatenate([np.ones_like(moved[:, :, :1]), moved, moved**2], axis=2)
        what = f"1 less the mean square distance from the original, over {len(scored)} {which} (cross part)"
        metrics.append(Metric(key, title, what, "", names, parts, corrected_score, kind="number"))
    return metrics


def corruptions(options: StudyOptions, models: MetricModels) -> Metric:
    """Measure the mean error over the corruptions and severities."""
    severities = [f"{severity:g}" for severity in options.settings["severities"]]
    scenarios = ",".join(f"corruptions@{severity}" for severity in severities)
    results = evaluate(options, models.asked, scenarios, "corruptions", count="corrupted", least=2)
    conditions = _changed(results)
    names, right = _answers(results, models, conditions, least=2)
    what = f"mean error under {len(conditions)} corruptions (19 kinds, severities {', '.join(severities)})"
    error = counted(1 - right.mean(axis=2))
    return Metric("corruption", "Corruption error", what, "", names, error, share, more_is_better=False)


def attack(options: StudyOptions, models: MetricModels) -> Metric | str:
    """Measure accuracy on images made against each model."""
    if models.opaque:
        return f"{', '.join(models.opaque)} has no gradients to follow"
    name = options.settings["attack"]
    results = evaluate(options, models.asked, name, "attack", count="attacked", least=2)
    names, right = _answers(results, models, _changed(results))
    if len(names) < 2:
        return f"fewer than two images were attacked against every model; see {results.path}"
    bound = "ℓ∞ 4/255, 20 steps" if name == "pgd" else name
    what = f"right on images made against the model ({bound})"
    return Metric("pgd", "PGD accuracy", what, "", names, counted(right.mean(axis=2)), share)


def _judges(options: StudyOptions) -> dict[str, Any]:
    """Return generator and oracle: those that were named, or the embedded ones for drawn scenes."""
    usual = {"generator": "embedded:vqgan", "oracle": "clip:embedded"} if is_drawn(options) else {}
    return {name: options.settings[name] or usual.get(name, "") for name in ("generator", "oracle")}


def fmr(options: StudyOptions, models: MetricModels) -> Metric | str:
    """Measure FMR of latent walks."""
    settings, judges = options.settings, _judges(options)
    if not all(judges.values()):
        return "walks need a generator and an oracle for these images (--set generator=… --set oracle=…)"
    if models.opaque:
        return f"{', '.join(models.opaque)} has no gradients to walk along"
    results = api.perturb(
        models=models.asked, random_walk=False, space="all", oracle_space="dataset", steps=settings["steps"],
        step_size=settings["step_size"], **judges, **images_of(options, "walked", least=2),
        **options.run_options("walks"),
    )  # fmt: skip
    rows = walks.walk_rows(results)
    by_model = {name: group.set_index("source_id").sort_index() for name, group in rows.groupby("model", sort=False)}
    if set(models.names) - set(by_model):
        return f"not every model was walked against; see {results.path}"
    both = sorted(set.intersection(*(set(by_model[name].index) for name in models.names)))
    if len(both) < 2:
        return f"fewer than two images were walked against every model; see {results.path}"
    parts = np.stack([walks.counts_of(by_model[name].loc[both]) for name in models.names], axis=1)
    what = (
        f"accuracy after a walk of at most {settings['steps']} steps in the latent of {judges['generator']}, over that "
        "before"
    )
    return Metric("fmr", "FMR", what, "", both, parts, lambda sums: walks.measured(sums, "fmr"))


def hard_set(options: StudyOptions, models: MetricModels) -> Metric | str:
    """Measure accuracy on a pool's valid images that half of the surrogates fail, the model itself not among them."""
    settings, oracle = options.settings, _judges(options)["oracle"]
    pool = settings["pool"]
    if not (pool or is_drawn(options)) or not oracle:
        return "mining needs a pool of generated images and an oracle for these classes (--set pool=… --set oracle=…)"
    if not pool:
        pool = str(options.out / "work" / "pool")
        with zipfile.ZipFile(POOL) as packed:
            packed.extractall(pool)
    named = [name for name in settings["surrogates"] if name != ITSELF]
    extra = [name for name in named if name not in models.asked]
    spec = MineSpec(
        pool, tuple(models.asked), tuple(extra), oracle, labels=settings["labels"] or None, device=options.device,
        seed=options.seed,
    )  # fmt: skip
    folder = options.out / "runs" / "pool"
    measured, _ = measure(spec, pool, folder, options.progress, limit=settings["pool_images"])
    result_name = dict(zip((*models.asked, *extra), measured.models, strict=True))
    judges = [*(models.names if ITSELF in settings["surrogates"] else []), *(result_name[name] for name in named)]
    valid = measured.images["valid"].to_numpy(bool)
    parts = np.stack([own_hard_set(measured.failed, judges, name, valid) for name in models.names], axis=1)
    if not parts[:, :, 0].sum():
        return "no valid image of the pool is failed by half of the surrogates"
    who = "the surrogates other than itself" if named else "the other models"
    what = f"right on valid images of a pool that at least half of {who} fail"
    return Metric("hard", "Hard-set accuracy", what, "pool", list(measured.images["prompt_id"]), parts, share)


def own_hard_set(failed: Any, judges: Sequence[str], model: str, valid: Any) -> Floats:
    """Return (images, 2): whether an image is in the model's hard set, and whether the model is right on it as well."""
    others = [name for name in dict.fromkeys(judges) if name != model]
    if len(others) < 2:
        raise UserError("a shared failure takes two surrogates other than the model itself; --set surrogates=A,B,C")
    inside = valid & (2 * failed[others].sum(axis=1).to_numpy() >= len(others))
    return np.column_stack([inside, inside & ~failed[model].to_numpy(bool)]).astype(np.float64)


def other_data(options: StudyOptions, models: MetricModels) -> list[Metric]:
    """Measure accuracy on each of the other data."""
    settings = options.settings
    metrics = []
    for place, (title, source) in enumerate(_other_sources(options, settings).items(), start=1):
        results = api.evaluate(
            source, models=models.asked, scenarios=ORIGINAL, batch_size=64, limit=settings["other_scenes"],
            labels=settings["labels"] or None, **options.run_options(f"other-{place}"),
        )  # fmt: skip
        names, right = _answers(results, models, results.counts.conditions, least=2)
        metrics.append(Metric(f"other {place}", title, source, source, names, counted(right.mean(axis=2)), share))
    return metrics


def _other_sources(options: StudyOptions, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return title → data."""
    named = [name for name in dict.fromkeys(settings["other"]) if name != DRAWN]
    folders = [name if ":" in name else Path(name).name for name in named]
    titles = short_names(folders if len(set(folders)) == len(named) else named).values()
    sources = dict(zip(titles, named, strict=True))
    if DRAWN in settings["other"] and is_drawn(options):
        # Another seed: no scene of theirs is one of those that the metrics were measured on.
        size = f"n={settings['other_scenes']}&seed={options.seed + 1}"
        sources |= {title: f"{source}&{size}" for title, source in OTHER.items()}
    return sources
