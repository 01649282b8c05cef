"""``holdfast study detectors``: do detectors lose more objects, the more their training tied classes to backgrounds?

As ``study dose``, with recall in the place of accuracy: small detectors, alike in everything else, are trained at
several doses on drawn scenes of one to five objects, and tested on the same scenes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.networks import resolve_device
from holdfast.core.numbers import MINUS, p_value
from holdfast.core.types import ORIGINAL
from holdfast.diorama import CLASSES
from holdfast.diorama.vocabulary import KEYS
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.reports.study import Finding, StudyResult
from holdfast.results import Results
from holdfast.stats.core.bootstrap import Floats
from holdfast_studies.study import Setting, Study, StudyOptions, dots_of, long_form
from holdfast_studies.trained.dose import by_dose, doses_of, growth_of, model_rows

SAME, RANDOM, ONLY = "same_class_background", "random_background", "only_background"
MEASURES = {
    "background_effect": "Recall lost, backgrounds pasted",
    "true_effect": "Recall lost, scenes redrawn",
    "imagined": "Objects reported on empty backgrounds, per image",
}


@dataclass(frozen=True)
class DosedDetector:
    """A detector of the study: the dose and the seed of its training."""

    rho: float
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder and in the results."""
        return f"boxes-rho{round(100 * self.rho):03d}-seed{self.seed}"


Measured = Mapping[DosedDetector, Mapping[str, Floats]]
"""Detector → measure → values (scenes,) whose mean is the measure."""


def run(options: StudyOptions) -> StudyResult:
    """Train the missing detectors, evaluate, and compare doses."""
    settings = options.settings
    rhos = doses_of(options)
    options.require(scenes=12, seeds=1, epochs=1, batch=2)
    if settings["train"] < settings["batch"]:
        raise UserError("train, the number of training scenes, must be at least one batch")
    models = [DosedDetector(rho, options.seed + seed) for rho in rhos for seed in range(settings["seeds"])]
    for number, model in enumerate(models):
        options.progress("trainings", number, len(models))
        _train(options, model)
    options.progress("trainings", len(models), len(models))
    home = _evaluated(options, models, 1.0, f"{ORIGINAL},{SAME},{RANDOM},{ONLY}")
    anywhere = _evaluated(options, models, 0.0, ORIGINAL)
    measured = _measures(models, home, anywhere)
    return StudyResult(
        title="Dose and response of detectors",
        question=(
            "Do detectors lose more objects, the more their training tied classes to backgrounds? Small detectors, "
            "alike in everything else, were trained on drawn scenes of one to five objects in which class and "
            "background go together with ρ, and tested on the same held-out scenes. Intervals are at the 95 % level, "
            "for other trainings and other scenes; each scene weighs the same."
        ),
        findings=[_response(rhos, measured, options.seed), _every_model(options, measured, home, anywhere)],
        facts={"doses": len(rhos), "detectors": len(models), "test scenes": settings["scenes"]},
    )


STUDY = Study(
    run,
    (
        Setting("rhos", (0.0, 0.5, 0.8, 0.95, 1.0), "doses: how strongly class and background go together", (0.0, 1.0)),
        Setting("scenes", 240, "test scenes", 12),
        Setting("seeds", 2, "trainings of each dose", 1),
        Setting("train", 20_000, "training scenes", 48),
        Setting("epochs", 20, "passes over the training scenes", 1),
        Setting("batch", 128, "scenes per training step", 16),
    ),
)


def _train(options: StudyOptions, model: DosedDetector) -> None:
    """Train a detector into the study's folder, unless it is there."""
    from holdfast.training.checkpoint import halve, write_model
    from holdfast_studies.drawn.detectors import CHANNELS, MOST, SIDE, DetectorAmount, train

    folder = options.out / "models" / model.name
    if (folder / "README.md").is_file():
        return
    settings = options.settings
    amount = DetectorAmount(train=settings["train"], epochs=settings["epochs"], batch=settings["batch"])
    device = str(resolve_device(options.device))
    network, seconds = train(model.rho, amount, options.out / "work", device, seed=model.seed, say=lambda _: None)
    facts = {
        "label_names": list(CLASSES),
        "wnids": [KEYS[label].wnids[0] for label in CLASSES],
        "input_size": [SIDE, SIDE],
        "rho": model.rho,
        "seed": model.seed,
        "data": f"{amount.train} drawn scenes of 1 to {MOST} objects, context {model.rho}",
        "epochs": amount.epochs,
        "seconds": round(seconds, 1),
        "device": device,
    }
    text = f"# {model.name}\n\nA small detector of drawn scenes, trained by `holdfast study detectors`."
    write_model(folder, halve(network), {"channels": list(CHANNELS)}, facts, text)


def _evaluated(options: StudyOptions, models: Sequence[DosedDetector], context: float, conditions: str) -> Results:
    folder = options.out / "models"
    return api.evaluate(
        f"diorama:test?n={options.settings['scenes']}&objects=1..4&context={context}&seed={options.seed}&size=128",
        models=[f"local-dir:{folder / model.name}?task=detect&name={model.name}" for model in models],
        scenarios=conditions,
        **options.run_options(f"context-{round(100 * context):03d}"),
    )


def _measures(models: Sequence[DosedDetector], home: Results, anywhere: Results) -> Measured:
    """Return each measure of every detector by scene, on the scenes that all have."""
    at_home, elsewhere = _recalls(home), _recalls(anywhere)
    pictures = home.boxes.pictures
    alone = pictures[pictures["condition"] == ONLY].set_index(["model", "sample_id"])["n_predictions"]
    measured = {}
    for model in models:
        pasted = (at_home[model.name, SAME] - at_home[model.name, RANDOM]).dropna()
        drawn = (at_home[model.name, ORIGINAL] - elsewhere[model.name, ORIGINAL]).dropna()
        measured[model] = {"background_effect": pasted, "true_effect": drawn, "imagined": alone[model.name]}
    shared = {
        name: sorted(set.intersection(*(set(values[name].index) for values in measured.values()))) for name in MEASURES
    }
    return {
        model: {name: values[name].loc[shared[name]].to_numpy(np.float64) for name in MEASURES}
        for model, values in measured.items()
    }


def _recalls(results: Results) -> pd.DataFrame:
    """Return the share of found objects by scene (rows), model and condition (columns)."""
    counted = results.boxes.counted
    hits = counted.assign(hit=counted["found"].astype(float))
    return hits.pivot_table(index="sample_id", columns=["model", "condition"], values="hit", aggfunc="mean")


def _response(rhos: Sequence[float], measured: Measured, seed: int) -> Finding:
    rows, sentences = by_dose(rhos, measured, list(MEASURES)), []
    for measure, title in MEASURES.items():
        growth, words = growth_of(measured, measure, seed, "detectors")
        scale, unit = (1, "") if measure == "imagined" else (100, " points")
        ends = [f"{scale * row[measure]:.2f}".replace("-", MINUS) for row in (rows[0], rows[-1])]
        sentences.append(
            f"{title}: from {ends[0]} at ρ = {rhos[0]:g} to {ends[1]}{unit} at ρ = {rhos[-1]:g}; {words} (permutation "
            f"p {p_value(growth.p)})."
        )
    how = (
        "Pasted: recall on backgrounds of the objects' own class less that on backgrounds of another. Redrawn: "
        "recall on scenes in which every object is at home less that on the same scenes with any background."
    )
    frame = pd.DataFrame(rows)
    names = {"background_effect": "backgrounds pasted", "true_effect": "scenes redrawn"}
    drawn = long_form(frame.assign(row=[f"ρ = {rho:g}" for rho in rhos]), names, "row")
    columns = [
        Column("rho", "ρ", "number", digits=2),
        ranged("background_effect", MEASURES["background_effect"], "points"),
        ranged("true_effect", MEASURES["true_effect"], "points"),
        ranged("imagined", MEASURES["imagined"], "number", 2),
    ]
    return Finding(
        "The response to the dose", [*sentences, how], frame, columns, caption="Recall lost against ρ",
        chart=dots_of(drawn, line="measure", row="row", title="points of recall lost", zero=True),
    )  # fmt: skip


def _every_model(options: StudyOptions, measured: Measured, home: Results, anywhere: Results) -> Finding:
    frame = model_rows(options, measured)
    for place, (key, results) in enumerate({"home": home, "anywhere": anywhere}.items()):
        numbers = results.objects(precision=False, resamples=200)
        own = numbers[numbers["condition"] == ORIGINAL].set_index("model")
        for column, values in (("alarms", own["false_alarms"]), ("recall", own["recall"])):
            frame.insert(3 + 2 * place, f"{column}_{key}", frame["model"].map(values).astype(float))
    columns = [
        Column("model", "Detector"),
        *plain("percent", recall_home="Recall at home", recall_anywhere="Recall anywhere"),
        Column("alarms_anywhere", "False alarms anywhere", "number", digits=2),
        *plain("points", background_effect="Lost, pasted", true_effect="Lost, redrawn"),
        *plain("integer", epochs="Epochs", seconds="Seconds"),
        Column("device", "Trained on"),
    ]
    sentence = f"{len(frame)} detectors; each was trained on {frame['data'][0]} or its like."
    return Finding("Every detector", [sentence], frame, columns)
