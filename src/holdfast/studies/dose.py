"""``holdfast study dose``: does what is measured grow with what training did?

In the drawn world it is known how strongly class and background went together in training: that is the dose. Models
alike in everything else are trained at several doses and several seeds, and tested on the same scenes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast import api, registry
from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.models.torch_classifier import resolve_device
from holdfast.report.page.tables import Column
from holdfast.report.page.words import MINUS, p_value
from holdfast.report.study import DRAWN_WORLD, Finding, StudyResult
from holdfast.results import static_conditions
from holdfast.studies import dose_training, several
from holdfast.studies.dose_chart import dose_chart
from holdfast.studies.dose_training import Dose
from holdfast.studies.seeds import Estimate, over_seeds_and_scenes, pseudo_values, trend
from holdfast.studies.study import Setting, Study, StudyOptions
from holdfast.training.classifiers import Size

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

RANDOM, SAME, ONLY = "random_background", "same_class_background", "only_background"
CONDITIONS = f"static,{SAME},{ONLY}"
MEASURES = {
    "background_effect": "Background effect, pasted",
    "true_effect": "Background effect, true",
    "cross_background": "Cross part, background changed",
    "cross_part": "Cross part, all static conditions",
}
"""All on the scenes in which every object stands before its home background. The first three should grow with ρ. The
last one is the published score's: conditions that blur or brighten the object count in it, and whoever reads the
background loses less by them."""

SETTINGS = (
    Setting("rhos", dose_training.RHOS, "doses: how strongly class and background go together, 0 to 1", (0.0, 1.0)),
    Setting("seeds", dose_training.SEEDS, "trainings a dose", 1),
    Setting("scenes", 480, "test scenes", 24),
    Setting("train", dose_training.SIZE.train, "training scenes", 240),
    Setting("epochs", dose_training.SIZE.epochs, "passes over the training scenes", 1),
    Setting("batch", dose_training.SIZE.batch, "scenes a training step", 24),
)


@dataclass(frozen=True)
class Answers:
    """Right answers of one run: (models, conditions, scenes), 0..1; ``scored`` are the conditions of the score."""

    models: list[str]
    conditions: list[str]
    scenes: list[str]
    scored: list[str]
    right: Floats

    def on(self, scenes: Sequence[str]) -> Answers:
        """On some of the scenes, in their order."""
        places = {name: place for place, name in enumerate(self.scenes)}
        return replace(self, scenes=list(scenes), right=self.right[:, :, [places[name] for name in scenes]])

    def of(self, model: str, condition: str) -> Floats:
        """(scenes,)."""
        return np.asarray(self.right[self.models.index(model), self.conditions.index(condition)])

    def cross(self, model: str, conditions: Sequence[str]) -> Floats:
        """Pseudo-values of the cross part of the score over some conditions, (scenes,)."""
        return np.asarray(pseudo_values(np.stack([self.of(model, one) for one in (ORIGINAL, *conditions)])[None])[0])


def run(options: StudyOptions) -> StudyResult:
    """Train what is missing, evaluate, and say what came out."""
    settings = options.settings
    rhos = sorted(set(settings["rhos"]))
    _check(rhos, settings)
    doses = dose_training.doses(rhos, settings["seeds"], first=options.seed)
    device = resolve_device(options.device)
    size = Size(
        train=settings["train"],
        test=dose_training.SIZE.test if not options.quick else settings["scenes"],
        epochs=settings["epochs"],
        batch=settings["batch"],
        seconds=None,
    )
    models = options.out / "models"
    dose_training.train_all(
        doses, size, out=models, work=options.out / "work", device=device, progress=options.progress
    )
    anywhere, at_home = (_answers(options, doses, context) for context in (0.0, 1.0))
    own = {
        rho: at_home
        if rho == 1
        else anywhere
        if rho == 0
        else _answers(options, [d for d in doses if d.rho == rho], rho)
        for rho in rhos
    }
    both = [name for name in anywhere.scenes if name in set(at_home.scenes)]
    measured = {dose: _measures(dose.name, anywhere.on(both), at_home.on(both)) for dose in doses}
    return StudyResult(
        title="Dose and response",
        question=(
            "Does what Holdfast measures grow with what training did? Small ResNets, alike in everything else, were "
            "trained on drawn scenes in which class and background go together with ρ, P(home background) = ρ + "
            f"(1 {MINUS} ρ)/16, and tested on the same held-out scenes. Intervals are at the 95 % level, for other "
            "trainings and other scenes; the trainings of one ρ share their training scenes."
        ),
        findings=[
            _response(rhos, measured),
            _monotone(rhos, measured, options.seed),
            _accuracies(rhos, doses, anywhere, at_home, own),
            _every_model(doses, measured, models),
        ],
        facts=[(str(len(rhos)), "doses"), (str(len(doses)), "models"), (str(settings["scenes"]), "test scenes")],
        note=DRAWN_WORLD + (" A rehearsal: models this small learn nothing." if options.quick else ""),
        runs=[f"runs/{folder.name}" for folder in sorted((options.out / "runs").iterdir())],
    )


STUDY = Study(run, SETTINGS)


def _check(rhos: Sequence[float], settings: Mapping[str, Any]) -> None:
    if len(rhos) < 2 or not 0 <= rhos[0] <= rhos[-1] <= 1:
        raise UserError("rhos are two or more numbers from 0 to 1, for example --set rhos=0,0.5,1")
    if len({round(100 * rho) for rho in rhos}) < len(rhos):
        raise UserError("rhos must differ by a hundredth or more")
    for name, least in (("seeds", 1), ("scenes", 24), ("epochs", 1), ("batch", 2)):
        if settings[name] < least:
            raise UserError(f"{name} must be {least} or more")
    if settings["train"] < settings["batch"]:
        raise UserError("train, the number of training scenes, must be at least one batch")


def _answers(options: StudyOptions, doses: Sequence[Dose], context: float) -> Answers:
    """Evaluate models on the test scenes at one context."""
    seed, scenes = options.seed, options.settings["scenes"]
    results = api.evaluate(
        f"diorama:test?n={scenes}&context={context}&seed={seed}",
        models=[f"local-dir:{options.out / 'models' / dose.name}?name={dose.name}" for dose in doses],
        out=options.out / "runs" / f"context-{round(100 * context):03d}",
        scenarios=CONDITIONS,
        seed=seed,
        device=options.device,
        batch_size=64,
        progress=options.progress,
    )
    return answers_of(results, [dose.name for dose in doses])


def answers_of(results: api.Results, models: Sequence[str]) -> Answers:
    """The rows of a run as an array; scenes that lack an answer anywhere are left out."""
    counts = results.counts
    conditions = list(counts.conditions)
    scored = [name for name in static_conditions(counts) if name not in (ORIGINAL, *counts.same_images)]
    cells = counts.cells
    shares = (cells["right"] / cells["n"]).groupby(
        [cells["source_id"], cells["model"].astype(str), cells["condition"].astype(str)]
    )
    table = shares.mean().unstack(["model", "condition"])
    wanted = [(model, condition) for model in models for condition in conditions]
    whole = table.reindex(columns=wanted).dropna().sort_index()
    if len(whole) < 2:
        raise UserError(f"{results.path} has fewer than two scenes with an answer from every model; look at its errors")
    right = whole.to_numpy(np.float64).T.reshape(len(models), len(conditions), len(whole))
    return Answers(list(models), conditions, [str(name) for name in whole.index], scored, right)


def _measures(model: str, anywhere: Answers, at_home: Answers) -> dict[str, Floats]:
    """Each measure of one model, (scenes,), so that its mean is the measure.

    The pasted effect is ``same_class_background`` less ``random_background``: pasting itself cancels. The true one
    is every object at home less the same objects anywhere, each scene drawn anew and nothing pasted.
    """
    background = [name for name in at_home.scored if registry.scenarios.get(name).leaves == "foreground"]
    return {
        "background_effect": at_home.of(model, SAME) - at_home.of(model, RANDOM),
        "true_effect": at_home.of(model, ORIGINAL) - anywhere.of(model, ORIGINAL),
        "cross_background": at_home.cross(model, background),
        "cross_part": at_home.cross(model, at_home.scored),
    }


def _stack(measured: Mapping[Dose, Mapping[str, Floats]], rho: float, measure: str) -> Floats:
    """(trainings, scenes)."""
    return np.stack([values[measure] for dose, values in measured.items() if dose.rho == rho])


def _response(rhos: Sequence[float], measured: Mapping[Dose, Mapping[str, Floats]]) -> Finding:
    import pandas as pd

    rows = []
    for rho in rhos:
        row: dict[str, Any] = {"rho": rho, "p_home": rho + (1 - rho) / 16}
        for measure in MEASURES:
            row |= _interval(measure, over_seeds_and_scenes(_stack(measured, rho, measure)))
        rows.append(row)
    frame = pd.DataFrame(rows)
    first, last = rows[0], rows[-1]
    sentence = (
        f"From ρ = {rhos[0]:g} to ρ = {rhos[-1]:g} the pasted background effect goes from "
        f"{100 * first['background_effect']:.1f} to {100 * last['background_effect']:.1f} points, the true one from "
        f"{100 * first['true_effect']:.1f} to {100 * last['true_effect']:.1f}, and the cross part of the score over "
        "the conditions that change the background from "
        f"{first['cross_background']:.5f} to {last['cross_background']:.5f}."
    ).replace("-", MINUS)
    how = (
        "Pasted: accuracy on another background of the same class less that on a background of another class. True: "
        "every object before its home background less the same scenes drawn with any background. Each dot is one "
        "training, the bar the interval of their mean; axes are logarithmic but near 0. The published score is over "
        "all static conditions, those that blur or brighten the object among them, by which a model that reads the "
        "background loses less."
    )
    dots = pd.DataFrame(
        [
            {"rho": dose.rho, "seed": dose.seed, "measure": measure, "value": float(values[measure].mean())}
            for dose, values in measured.items()
            for measure in MEASURES
        ]
    )
    columns = [
        Column("rho", "ρ", "number", digits=2),
        Column("p_home", "P(home background)", "percent"),
        *(
            Column(name, title, "number" if _is_score(name) else "points", f"{name}_low", f"{name}_high",
                   digits=5 if _is_score(name) else 1)
            for name, title in MEASURES.items()
        ),
    ]  # fmt: skip
    return Finding(
        "The response to the dose",
        [sentence, how],
        frame,
        columns,
        chart=lambda width: dose_chart(frame, dots, MEASURES, width),
        caption="Background effect and cross part of the score against ρ",
    )


def _is_score(measure: str) -> bool:
    return measure.startswith("cross")


def _interval(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _monotone(rhos: Sequence[float], measured: Mapping[Dose, Mapping[str, Floats]], seed: int) -> Finding:
    import pandas as pd

    rows, sentences = [], []
    dose_of = np.array([dose.rho for dose in measured])
    for measure, title in MEASURES.items():
        values = np.array([float(one[measure].mean()) for one in measured.values()])
        found = trend(dose_of, values, seed=seed)
        steps = [
            (over_seeds_and_scenes(_stack(measured, high, measure) - _stack(measured, low, measure)), low, high)
            for low, high in itertools.pairwise(rhos)
        ]
        smallest, low, high = min(steps, key=lambda step: step[0].value)
        down = sum(step.value < 0 for step, _, _ in steps)
        rows.append(
            {"measure": title, "spearman": found.spearman, "concordant": found.concordant, "p": found.p}
            | {"steps": len(steps), "steps_down": down, "smallest_step_at": f"{low:g} to {high:g}"}
            | _interval("smallest_step", smallest)
        )
        verdict = "grows with every step of ρ" if not down else f"falls in {down} of {len(steps)} steps of ρ"
        scale, unit, digits = (1, "", 5) if _is_score(measure) else (100, " points", 1)
        size, below, above = (f"{scale * value:.{digits}f}".replace("-", MINUS) for value in smallest)
        sentences.append(
            f"{title}: {verdict} (in {100 * found.concordant:.0f} % of the pairs of models with unlike ρ the one with "
            f"the higher ρ has more, permutation p {p_value(found.p)}); the smallest step, from ρ = {low:g} to "
            f"{high:g}, is {size}{unit} ({below} to {above})."
        )
    columns = [
        Column("measure", "Measure"),
        Column("spearman", "Spearman's ρ with the dose", "number", digits=3),
        Column("concordant", "Concordant pairs", "percent", hint="Jonckheere and Terpstra's statistic as a share"),
        Column("p", "p", "p", hint="one-sided, over permutations of the models"),
        Column("steps_down", "Steps down", "integer"),
        Column("smallest_step_at", "Smallest step, from ρ to ρ"),
        Column("smallest_step", "Its size", "number", "smallest_step_low", "smallest_step_high", digits=5),
    ]
    return Finding("Is it monotone", sentences, pd.DataFrame(rows), columns, caption="Trend over ρ")


def _accuracies(
    rhos: Sequence[float], doses: Sequence[Dose], anywhere: Answers, at_home: Answers, own: Mapping[float, Answers]
) -> Finding:
    import pandas as pd

    rows = []
    for rho in rhos:
        names = [dose.name for dose in doses if dose.rho == rho]
        columns = {
            "own": (own[rho], ORIGINAL),
            "anywhere": (anywhere, ORIGINAL),
            "at_home": (at_home, ORIGINAL),
            "same_class": (at_home, SAME),
            "random": (at_home, RANDOM),
            "only": (at_home, ONLY),
        }
        row: dict[str, Any] = {"rho": rho}
        for key, (answers, condition) in columns.items():
            right = np.stack([answers.of(name, condition) for name in names])
            row |= {
                name: min(max(value, 0.0), 1.0) for name, value in _interval(key, over_seeds_and_scenes(right)).items()
            }
        effect = np.stack([own[rho].of(name, SAME) - own[rho].of(name, RANDOM) for name in names])
        rows.append(row | _interval("own_effect", over_seeds_and_scenes(effect)))
    titles = {
        "own": "Scenes like those of training",
        "anywhere": "Any background",
        "at_home": "Home background",
        "same_class": "… pasted from the same class",
        "random": "… pasted from another class",
        "only": "… without the object",
    }
    shown = [Column("rho", "ρ", "number", digits=2)]
    shown += [Column(key, title, "percent", f"{key}_low", f"{key}_high") for key, title in titles.items()]
    shown.append(
        Column("own_effect", "Pasted effect on scenes like those of training", "points", "own_effect_low",
               "own_effect_high")
    )  # fmt: skip
    low, high = rows[0], rows[-1]
    sentence = (
        f"Without the object, models of ρ = {rhos[0]:g} are right on {100 * low['only']:.0f} % of the home scenes and "
        f"those of ρ = {rhos[-1]:g} on {100 * high['only']:.0f} %; on objects before any background they are right on "
        f"{100 * low['anywhere']:.1f} % and {100 * high['anywhere']:.1f} %."
    )
    return Finding(
        "Accuracy", [sentence], pd.DataFrame(rows), shown, caption="Accuracy by ρ of training and kind of test scene"
    )


def _every_model(doses: Sequence[Dose], measured: Mapping[Dose, Mapping[str, Floats]], models: Path) -> Finding:
    frame = _model_frame(doses, measured, models)
    columns = [
        Column("model", "Model"),
        *(
            Column(name, title, "number" if _is_score(name) else "points", digits=5 if _is_score(name) else 1)
            for name, title in MEASURES.items()
        ),
        Column("epochs", "Epochs", "integer"),
        Column("seconds", "Seconds", "integer"),
        Column("device", "Trained on"),
        Column("sha256", "Weights", show=lambda text: text[:12]),
    ]
    return Finding(
        "Every model", [f"{len(frame)} models; each was trained on {frame['data'][0]} or its like."], frame, columns
    )


def _model_frame(doses: Sequence[Dose], measured: Mapping[Dose, Mapping[str, Floats]], models: Path) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for dose in doses:
        facts = several.facts_of(models / dose.name)
        row = {"model": dose.name, "rho": dose.rho, "seed": dose.seed}
        row |= {name: float(values.mean()) for name, values in measured[dose].items()}
        rows.append(row | {key: facts.get(key) for key in ("data", "epochs", "seconds", "device", "sha256")})
    return pd.DataFrame(rows)
