"""``holdfast study dose``: does what is measured grow with what training did?

In the drawn world it is known how strongly class and background went together in training: that is the dose. Models
alike in everything else are trained at several doses and several seeds, and tested on the same scenes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from holdfast import api, registry
from holdfast.core.errors import UserError
from holdfast.core.numbers import MINUS, p_value, percent, span
from holdfast.core.types import ORIGINAL
from holdfast.reports.page.charts import dot_layer, layer, records, rule_at, tooltip
from holdfast.reports.page.figures import COLOURS, MUTED, WIDE, Chart
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.reports.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import Floats
from holdfast_studies.drawn.small_models import DOSE_SEEDS, DOSE_SIZE, DOSES, SmallModel, dose_models, facts_of
from holdfast_studies.study import ENDS, Setting, Study, StudyOptions, long_form
from holdfast_studies.trained import trainings
from holdfast_studies.trained.statistics import Trend, cross_part_pseudo_values, mean_over_trainings, trend
from holdfast_studies.trained.trainings import RightAnswers, right_answers

RANDOM, SAME, ONLY = "random_background", "same_class_background", "only_background"
CONDITIONS = f"static,{SAME},{ONLY}"
MEASURES = {
    "background_effect": "Background effect, pasted",
    "true_effect": "Background effect, true",
    "cross_background": "Cross part, background changed",
    "cross_part": "Cross part, all static conditions",
}
"""All on scenes in which every object is before its home background. The first three should grow with ρ. The last
one is that of the published score: it includes conditions that blur or brighten the object, by which a model that reads
the background loses less."""

Measured = Mapping[SmallModel, Mapping[str, Floats]]  # model → measure → values (scenes,) whose mean is the measure


def run(options: StudyOptions) -> StudyResult:
    """Train the missing models, evaluate, and compare doses."""
    settings = options.settings
    rhos = doses_of(options)
    options.require(scenes=24)
    models = dose_models(rhos, settings["seeds"], first=options.seed)
    trainings.train_for(options, models, trainings.size_of(options, DOSE_SIZE))
    anywhere, at_home = (_answers(options, models, context) for context in (0.0, 1.0))
    own = {0.0: anywhere, 1.0: at_home}
    for rho in set(rhos) - set(own):
        own[rho] = _answers(options, [model for model in models if model.rho == rho], rho)
    both = [name for name in anywhere.scenes if name in set(at_home.scenes)]
    measured = {model: _measures(model.name, anywhere.on(both), at_home.on(both)) for model in models}
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
            _accuracies(rhos, models, anywhere, at_home, own),
            _every_model(options, measured),
        ],
        facts={"doses": len(rhos), "models": len(models), "test scenes": settings["scenes"]},
    )


def doses_of(options: StudyOptions) -> list[float]:
    """Return the doses of a study in rising order, after a check."""
    rhos = sorted(set(options.settings["rhos"]))
    if len(rhos) < 2 or not 0 <= rhos[0] <= rhos[-1] <= 1:
        raise UserError("rhos are two or more numbers from 0 to 1, for example --set rhos=0,0.5,1")
    if len({round(100 * rho) for rho in rhos}) < len(rhos):
        raise UserError("rhos must differ by a hundredth or more")
    return rhos


STUDY = Study(
    run,
    (
        Setting("rhos", DOSES, "doses: how strongly class and background go together, 0 to 1", (0.0, 1.0)),
        Setting("scenes", 480, "test scenes", 24),
        *trainings.size_settings(DOSE_SIZE, DOSE_SEEDS, train=240),
    ),
)


def _answers(options: StudyOptions, models: Sequence[SmallModel], context: float) -> RightAnswers:
    """Evaluate models on the test scenes at one context."""
    folder = options.out / "models"
    results = api.evaluate(
        f"diorama:test?n={options.settings['scenes']}&context={context}&seed={options.seed}",
        models=[trainings.local_name(folder, model.name) for model in models],
        scenarios=CONDITIONS,
        batch_size=64,
        **options.run_options(f"context-{round(100 * context):03d}"),
    )
    return right_answers(results, [model.name for model in models])


def _measures(model: str, anywhere: RightAnswers, at_home: RightAnswers) -> dict[str, Floats]:
    """Return each measure of one model by scene, (scenes,).

    The pasted effect is ``same_class_background`` less ``random_background``: pasting itself cancels. The true one
    is every object at home less the same objects anywhere, each scene drawn again and nothing pasted.
    """
    background = [name for name in at_home.scored if registry.scenarios.get(name).leaves == "foreground"]
    cross = {"cross_background": background, "cross_part": at_home.scored}
    return {
        "background_effect": at_home.of(model, SAME) - at_home.of(model, RANDOM),
        "true_effect": at_home.of(model, ORIGINAL) - anywhere.of(model, ORIGINAL),
    } | {
        name: np.asarray(cross_part_pseudo_values(at_home.with_original(model, conditions)[None])[0])
        for name, conditions in cross.items()
    }


def stacked(measured: Mapping[Any, Mapping[str, Floats]], rho: float, measure: str) -> Floats:
    """Return a measure of the trainings of one dose, (trainings, scenes)."""
    return np.stack([values[measure] for model, values in measured.items() if model.rho == rho])


def by_dose(
    rhos: Sequence[float], measured: Mapping[Any, Mapping[str, Floats]], measures: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a row per dose: every measure, a mean over trainings and scenes with its interval."""
    rows = []
    for rho in rhos:
        row: dict[str, Any] = {"rho": rho}
        for measure in measures:
            row |= mean_over_trainings(stacked(measured, rho, measure)).row(measure)
        rows.append(row)
    return rows


def growth_of(measured: Mapping[Any, Mapping[str, Floats]], measure: str, seed: int, what: str) -> tuple[Trend, str]:
    """Return whether a measure grows with the dose, and that in words; ``what`` was trained."""
    doses = np.array([model.rho for model in measured])
    growth = trend(doses, np.array([float(values[measure].mean()) for values in measured.values()]), seed=seed)
    return growth, (
        f"in {percent(growth.concordant, 0)} of the pairs of {what} with unlike ρ the one with the higher ρ has more"
    )


def model_rows(options: StudyOptions, measured: Mapping[Any, Mapping[str, Floats]]) -> pd.DataFrame:
    """Return a row per trained model: its dose and seed, the mean of every measure, and what its card says."""
    rows = []
    for model, measures in measured.items():
        facts = facts_of(options.out / "models" / model.name)
        row = {"model": model.name, "rho": model.rho, "seed": model.seed}
        row |= {name: float(values.mean()) for name, values in measures.items()}
        rows.append(row | {key: facts.get(key) for key in ("data", "epochs", "seconds", "device", "sha256")})
    return pd.DataFrame(rows)


def _is_score(measure: str) -> bool:
    return measure.startswith("cross")


def _shown(name: str, *, with_interval: bool) -> Column:
    kind, digits = ("number", 5) if _is_score(name) else ("points", 1)
    if with_interval:
        return ranged(name, MEASURES[name], kind, digits)  # type: ignore[arg-type]
    return Column(name, MEASURES[name], kind, digits=digits)  # type: ignore[arg-type]


def _response(rhos: Sequence[float], measured: Measured) -> Finding:
    rows = by_dose(rhos, measured, list(MEASURES))
    frame = pd.DataFrame(rows)
    frame.insert(1, "p_home", frame["rho"] + (1 - frame["rho"]) / 16)
    first, last = rows[0], rows[-1]
    sentence = (
        f"From ρ = {rhos[0]:g} to ρ = {rhos[-1]:g} the pasted background effect goes from "
        f"{span(first['background_effect'], last['background_effect'])} points, the true one from "
        f"{span(first['true_effect'], last['true_effect'])}, and the cross part of the score over "
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
            {"rho": model.rho, "seed": model.seed, "measure": measure, "value": float(values[measure].mean())}
            for model, values in measured.items()
            for measure in MEASURES
        ]
    )
    columns = [Column("rho", "ρ", "number", digits=2), Column("p_home", "P(home background)", "percent")]
    return Finding(
        "The response to the dose",
        [sentence, how],
        frame,
        [*columns, *(_shown(name, with_interval=True) for name in MEASURES)],
        chart=lambda width: dose_chart(frame, dots, width),
        caption="Background effect and cross part of the score against ρ",
    )


def _monotone(rhos: Sequence[float], measured: Measured, seed: int) -> Finding:
    rows, sentences = [], []
    for measure, title in MEASURES.items():
        growth, words = growth_of(measured, measure, seed, "models")
        steps = [
            (mean_over_trainings(stacked(measured, high, measure) - stacked(measured, low, measure)), low, high)
            for low, high in itertools.pairwise(rhos)
        ]
        smallest, low, high = min(steps, key=lambda step: step[0].value)
        down = sum(step.value < 0 for step, _, _ in steps)
        rows.append(
            {"measure": title, **growth._asdict(), "steps": len(steps), "steps_down": down}
            | {"smallest_step_at": f"{low:g} to {high:g}", **smallest.row("smallest_step")}
        )
        verdict = "grows with every step of ρ" if not down else f"falls in {down} of {len(steps)} steps of ρ"
        scale, unit, digits = (1, "", 5) if _is_score(measure) else (100, " points", 1)
        size, below, above = (f"{scale * value:.{digits}f}".replace("-", MINUS) for value in smallest)
        sentences.append(
            f"{title}: {verdict} ({words}, permutation p {p_value(growth.p)}); the smallest step, from ρ = {low:g} to "
            f"{high:g}, is {size}{unit} ({below} to {above})."
        )
    columns = [
        Column("measure", "Measure"),
        Column("spearman", "Spearman's ρ with the dose", "number", digits=3),
        Column("concordant", "Concordant pairs", "percent", hint="Jonckheere and Terpstra's statistic as a share"),
        Column("p", "p", "p", hint="one-sided, over permutations of the models"),
        Column("steps_down", "Steps down", "integer"),
        Column("smallest_step_at", "Smallest step, from ρ to ρ"),
        ranged("smallest_step", "Its size", "number", 5),
    ]
    return Finding("Is it monotone", sentences, pd.DataFrame(rows), columns, caption="Trend over ρ")


def _accuracies(
    rhos: Sequence[float],
    models: Sequence[SmallModel],
    anywhere: RightAnswers,
    at_home: RightAnswers,
    own: Mapping[float, RightAnswers],
) -> Finding:
    columns = {
        "own": ("Scenes like those of training", None, ORIGINAL),
        "anywhere": ("Any background", anywhere, ORIGINAL),
        "at_home": ("Home background", at_home, ORIGINAL),
        "same_class": ("… pasted from the same class", at_home, SAME),
        "random": ("… pasted from another class", at_home, RANDOM),
        "only": ("… without the object", at_home, ONLY),
    }
    rows = []
    for rho in rhos:
        names = [model.name for model in models if model.rho == rho]
        row: dict[str, Any] = {"rho": rho}
        for key, (_, answers, condition) in columns.items():
            right = np.stack([(answers or own[rho]).of(name, condition) for name in names])
            row |= {name: min(max(value, 0.0), 1.0) for name, value in mean_over_trainings(right).row(key).items()}
        effect = np.stack([own[rho].of(name, SAME) - own[rho].of(name, RANDOM) for name in names])
        rows.append(row | mean_over_trainings(effect).row("own_effect"))
    low, high = rows[0], rows[-1]
    sentence = (
        f"Without the object, models of ρ = {rhos[0]:g} are right on {percent(low['only'], 0)} of the home scenes and "
        f"those of ρ = {rhos[-1]:g} on {percent(high['only'], 0)}; on objects before any background they are right on "
        f"{percent(low['anywhere'])} and {percent(high['anywhere'])}."
    )
    shown = [Column("rho", "ρ", "number", digits=2), *(ranged(key, title) for key, (title, _, _) in columns.items())]
    shown.append(ranged("own_effect", "Pasted effect on scenes like those of training", "points"))
    caption = "Accuracy by ρ of training and kind of test scene"
    return Finding("Accuracy", [sentence], pd.DataFrame(rows), shown, caption=caption)


def _every_model(options: StudyOptions, measured: Measured) -> Finding:
    frame = model_rows(options, measured)
    columns = [
        Column("model", "Model"),
        *(_shown(name, with_interval=False) for name in MEASURES),
        *plain("integer", epochs="Epochs", seconds="Seconds"),
        Column("device", "Trained on"),
        Column("sha256", "Weights", show=lambda text: text[:12]),
    ]
    sentence = f"{len(frame)} models; each was trained on {frame['data'][0]} or its like."
    return Finding("Every model", [sentence], frame, columns)


def dose_chart(frame: pd.DataFrame, dots: pd.DataFrame, width: int) -> Chart:
    """Return a panel per measure: means with intervals joined by a line, and a dot for every training."""
    means = long_form(frame, {name: name for name in MEASURES}, "rho")
    columns = 2 if width >= WIDE else 1
    panels = [_panel(name, title, (width - columns * 74) // columns) for name, title in MEASURES.items()]
    data = {"means": records(_labelled(means), 6), "dots": records(_labelled(dots), 6)}
    return {"datasets": data, "concat": panels, "columns": columns, "spacing": 24}


def _labelled(frame: pd.DataFrame) -> pd.DataFrame:
    # Doses are close together near 1, so the axis shows them as names in order, not as numbers on a scale.
    return frame.sort_values("rho", kind="stable").assign(dose=[f"{rho:g}" for rho in sorted(frame["rho"])])


def _panel(name: str, title: str, inner: int) -> Chart:
    points = not _is_score(name)
    x = {"field": "dose", "type": "ordinal", "sort": None, "title": "ρ of training", "axis": {"labelAngle": 0}}
    # The first doses do a hundredth of what the last one does: evenly up to ``even``, by powers of ten beyond.
    even = 0.01 if points else 0.0005
    ticks = (0.01, 0.03, 0.1, 0.3, 0.8) if points else (0.001, 0.01, 0.1, 0.4)
    axis: Chart = {"domain": False, "ticks": False, "values": [*(-value for value in reversed(ticks)), 0, *ticks]}
    axis |= {"labelOverlap": False, "labelExpr": f"format({100 if points else 1} * datum.value, '~g')"}
    scale = {"type": "symlog", "constant": even, "nice": False}
    y = {"type": "quantitative", "title": "points" if points else None, "axis": axis, "scale": scale}
    at_value = {"x": x, "y": y | {"field": "value"}}
    at_ends = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}

    how = ".1%" if points else ".4f"
    each = at_value | {"tooltip": tooltip({"seed": "seed"}, {"value": "value"}, how)}
    mean = at_value | {"tooltip": tooltip({"dose": "ρ"}, ENDS | {"value": "mean"}, how)}
    only = {"transform": [{"filter": {"field": "measure", "equal": name}}]}
    dots = {"data": {"name": "dots"}} | only | dot_layer(each, 24, opacity=0.7, color=MUTED, xOffset=9)
    means = [
        layer("rule", at_ends, strokeWidth=2, color=COLOURS[0]),
        layer("line", at_value, strokeWidth=1.5, opacity=0.5, color=COLOURS[0]),
        dot_layer(mean, 60, color=COLOURS[0]),
    ]
    layers = [rule_at(0, "y"), dots, *({"data": {"name": "means"}} | only | marks for marks in means)]
    return {"title": {"text": title, "fontSize": 12}, "width": inner, "height": 210, "layer": layers}
