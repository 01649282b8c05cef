"""``holdfast study robust-training``: do models that hold under static conditions hold under walks?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.registry import unknown
from holdfast.report.page.charts import dots
from holdfast.report.page.tables import Column
from holdfast.report.page.words import number, span
from holdfast.report.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import Floats, resampled_sums
from holdfast.stats.models.between import kendall
from holdfast.studies import small_training, trained
from holdfast.studies.dose import Answers, answers_of
from holdfast.studies.dynamic import called, compared, counts_of, images_of, measured, scenes_of
from holdfast.studies.seeds import over_seeds_and_scenes, pseudo_values
from holdfast.studies.study import Setting, Study, StudyOptions
from holdfast.training import robust

if TYPE_CHECKING:
    import pandas as pd

TRAINED = "trained"

SETTINGS = (
    Setting("models", (TRAINED,), "trained stands for our small ones, one of each way; others by name, a hub's too"),
    Setting("data", "", "images for models of others, with masks beside them; empty: drawn scenes"),
    Setting("ways", small_training.ROBUST, "which ways of training"),
    Setting("latent_training", robust.GENERATOR, "generator whose latent the DAT-like training moves in", "pixel:"),
    *trained.settings(),
)
NAMES = {
    "adversarial": "PGD",
    "augmix": "AugMix-like",
    "deepaugment": "DeepAugment-like",
    "ant": "ANT-like",
    "dat": "DAT-like",
}
"""What a page calls the ways of training that are not called as they are."""
TITLES = {
    "static": "Accuracy, static conditions",
    "score": "Robustness score",
    "fmr": "FMR",
    "standard_accuracy": "SA",
}
"""Measures by which models can be put in order."""


def run(options: StudyOptions) -> StudyResult:
    """Train what is missing, test statically and dynamically, and compare the two orders."""
    models = _models(options)
    names = trained.all_of(models)
    answers = _static(options, models)
    walks = images_of(_walked(options, names))
    groups = trained.by_training(walks, models)
    frame = _frame(models, answers, groups)
    own = {way: group for way, group in models.items() if way in robust.METHODS}
    return StudyResult(
        title="Robust training",
        question=(
            "Do models that hold under static conditions hold under walks? One small architecture was trained in "
            "several ways on the same scenes for as many steps, and each model was tested under the static conditions "
            "and by walks as far as the oracle agrees. Ways called ‘-like’ are small versions of published ones; "
            f"the study's page in the documentation says what they leave out. {trained.INTERVALS}"
        ),
        findings=[
            _both(frame, _kin(options, models)),
            _orders(frame, models, answers, groups, options.seed),
            *([trained.every_model(options, own)] if own else []),
        ],
        facts=[
            (str(len(models)), "ways of training"),
            (str(len(names)), "models"),
            (str(options.settings["scenes"]), "test scenes"),
        ],
        note=trained.note(options),
        runs=["runs/static", "runs/walks"],
    )


STUDY = Study(run, SETTINGS)


def _models(options: StudyOptions) -> dict[str, dict[str, str]]:
    """Way or public model → short name → the model's name."""
    wanted = options.settings["models"]
    ways = list(dict.fromkeys(options.settings["ways"]))
    for way in ways:
        if way not in robust.METHODS:
            raise unknown("way of training", way, robust.METHODS)
    others = [name for name in wanted if name != TRAINED]
    if len(others) + (TRAINED in wanted) * len(ways) < 2:
        raise UserError("an order needs two ways of training or more, for example --set ways=plain,augmix")
    models = {}
    if TRAINED in wanted:
        models = trained.models_of(options, ways, generator=options.settings["latent_training"])
    for name, shown in zip(others, called(others), strict=True):
        models[shown] = {shown: name}
    return models


def _images(options: StudyOptions) -> dict[str, Any]:
    """Which images, as options of ``evaluate`` and ``perturb``."""
    settings = options.settings
    data = {"data": settings["data"], "limit": settings["scenes"]} if settings["data"] else {"data": scenes_of(options)}
    return data | {"seed": options.seed, "device": options.device, "progress": options.progress}


def _walked(options: StudyOptions, names: Sequence[str]) -> api.Results:
    chosen = {name: options.settings[name] for name in ("generator", "oracle", "steps", "step_size")}
    out = options.out / "runs" / "walks"
    return api.perturb(models=names, out=out, random_walk=False, **_images(options), **chosen)


def _static(options: StudyOptions, models: Mapping[str, Mapping[str, str]]) -> Answers:
    out = options.out / "runs" / "static"
    results = api.evaluate(
        models=trained.all_of(models), out=out, scenarios="static", batch_size=64, **_images(options)
    )  # fmt: skip
    return answers_of(results, [name for group in models.values() for name in group])


def _of(answers: Answers, names: Sequence[str]) -> Floats:
    """(trainings, conditions, scenes), the original first and only those of the score."""
    return np.stack([[answers.of(name, one) for one in (ORIGINAL, *answers.scored)] for name in names])


def _frame(
    models: Mapping[str, Mapping[str, str]], answers: Answers, groups: Mapping[str, Sequence[pd.DataFrame]]
) -> pd.DataFrame:
    frame = trained.family_table(groups)
    rows: list[dict[str, Any]] = []
    for group in models.values():
        right = _of(answers, list(group))
        static = over_seeds_and_scenes(right[:, 1:].mean(axis=1))
        cross = over_seeds_and_scenes(pseudo_values(right))
        rows.append(
            {"static": static.value, "static_low": max(static.low, 0.0), "static_high": min(static.high, 1.0)}
            | {"score": 1 - cross.value, "score_low": 1 - cross.high, "score_high": 1 - cross.low}
        )
    for key in rows[0]:
        frame[key] = [row[key] for row in rows]
    frame["what"] = [robust.METHODS.get(str(way), "a model of others") for way in frame["training"]]
    frame["training"] = [NAMES.get(str(way), str(way)) for way in frame["training"]]
    return frame


def _kin(options: StudyOptions, models: Mapping[str, Any]) -> list[str]:
    """A warning where a way of training has seen what the walks are made with."""
    generator = options.settings["generator"]
    if "dat" not in models or generator != options.settings["latent_training"]:
        return []
    return [f"The DAT-like models were trained with images of {generator}, the generator that makes the walks."]


def _both(frame: pd.DataFrame, warnings: Sequence[str]) -> Finding:
    best = {
        words: frame["training"].iloc[int(np.nanargmax(frame[name].to_numpy(np.float64)))]
        for name, words in (("static", "under static conditions"), ("fmr", "in FMR"))
        if frame[name].notna().any()
    }
    sentence = " and ".join(f"{words} {way} is highest" for words, way in best.items())
    order = list(frame.sort_values("fmr", ascending=False)["training"])
    columns = [
        Column("training", "Training"),
        Column("what", "What it does"),
        *trained.COLUMNS,
        Column("static", TITLES["static"], "percent", "static_low", "static_high"),
        Column("score", TITLES["score"], "number", "score_low", "score_high", digits=4,
               hint="1 less the mean square distance from the original, without its sampling noise"),
        *trained.COUNTS,
    ]  # fmt: skip
    chart_frame = _stacked(frame)
    return Finding(
        "Static and dynamic",
        [f"Of {len(frame)} ways, {sentence}.", *warnings],
        frame,
        columns,
        chart=lambda width: dots(
            chart_frame, width, models=["FMR", TITLES["static"]], rows=order, title="FMR, and accuracy",
        ),
        caption="Static and dynamic robustness by way of training",
    )  # fmt: skip


def _stacked(frame: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(
        compared(frame.assign(measure=title), models="measure", row="training", measure=name)
        for name, title in (("fmr", "FMR"), ("static", TITLES["static"]))
    )


def _orders(
    frame: pd.DataFrame,
    models: Mapping[str, Mapping[str, str]],
    answers: Answers,
    groups: Mapping[str, Sequence[pd.DataFrame]],
    seed: int,
) -> Finding:
    """Kendall's τ between the orders, with an interval over scenes that both were resampled by."""
    import pandas as pd

    drawn = _resampled(models, answers, groups, seed)
    ways = list(frame["training"])
    rows = []
    for first, second in (("static", "fmr"), ("score", "fmr"), ("standard_accuracy", "fmr"), ("static", "score")):
        scores = [{way: float(value) for way, value in zip(ways, frame[name], strict=True)} for name in (first, second)]
        known = [way for way in ways if all(np.isfinite(one[way]) for one in scores)]
        places = [ways.index(way) for way in known]
        found = kendall(
            {way: scores[0][way] for way in known}, {way: scores[1][way] for way in known},
            first_samples=drawn[first][:, places], second_samples=drawn[second][:, places],
        )  # fmt: skip
        rows.append({"first": TITLES[first], "second": TITLES[second], **found})
    table = pd.DataFrame(rows)
    top = rows[0]
    sentence = (
        f"The order by accuracy under static conditions and the order by FMR agree with Kendall's τ = "
        f"{number(float(top['tau']), 2)} ({span(float(top['low']), float(top['high']), 2, 1)}), over {top['n']} ways."
        if not top["reason"]
        else f"There is no τ: {top['reason']}"
    )
    columns = [
        Column("first", "One order"), Column("second", "The other"),
        Column("tau", "Kendall's τ", "number", "low", "high", digits=2), Column("p", "p", "p"),
        Column("n", "Ways", "integer"), Column("reason", "Why there is none"),
    ]  # fmt: skip
    return Finding(
        "Do the orders agree",
        [sentence, "Intervals of τ are over scenes, which both orders share; not over other trainings."],
        table,
        columns,
    )


def _resampled(
    models: Mapping[str, Mapping[str, str]], answers: Answers, groups: Mapping[str, Sequence[pd.DataFrame]], seed: int
) -> dict[str, Floats]:
    """(resamples, ways) of each measure, on scenes drawn once for all of them."""
    walked = [str(name) for name in next(iter(groups.values()))[0]["source_id"]]
    both = [name for name in walked if name in set(answers.scenes)]
    if len(both) < 2:
        raise UserError("fewer than two scenes have both walks and static answers; look at the errors of the runs")
    static = answers.on(both)
    keep = np.array([name in set(both) for name in walked])
    counts = np.stack([counts_of(one)[keep] for group in groups.values() for one in group])
    right = _of(static, [name for group in models.values() for name in group])
    flat = np.concatenate([counts, right.transpose(0, 2, 1)], axis=2)
    names, scenes, width = flat.shape
    sums = resampled_sums(flat.transpose(1, 0, 2).reshape(scenes, -1), np.arange(scenes), seed=seed)
    walks, accuracy = np.split(sums.reshape(-1, names, width), [counts.shape[2]], axis=2)
    accuracy = accuracy / scenes
    cross = np.square(accuracy[..., 1:] - accuracy[..., :1]).mean(-1)
    ends = np.cumsum([len(group) for group in models.values()])[:-1]

    def by_way(values: Floats) -> Floats:
        return np.stack([part.mean(axis=1) for part in np.split(values, ends, axis=1)], axis=1)

    return {
        "fmr": by_way(measured(walks, "fmr")),
        "standard_accuracy": by_way(measured(walks, "standard_accuracy")),
        "static": by_way(accuracy[..., 1:].mean(-1)),
        "score": by_way(1 - cross),
    }
