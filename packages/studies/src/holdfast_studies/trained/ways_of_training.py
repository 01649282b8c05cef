"""``holdfast study adversarial-training``, ``greyscale``, ``heads``, ``robust-training``: ways of training compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.numbers import number, p_value, percent, span
from holdfast.core.schema import WALKS
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.reports.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import SHARE, Estimate, Floats, resampled_sums
from holdfast.stats.models.ranks import kendall_of
from holdfast.store import Parts
from holdfast.training import robust
from holdfast.training.robust import ADVERSARIAL_STEPS, RADIUS
from holdfast_studies import study
from holdfast_studies.drawn import small_models
from holdfast_studies.drawn.small_models import HEADS, ROBUST, STUDIES
from holdfast_studies.study import Setting, Study, StudyOptions, evaluate
from holdfast_studies.trained import trainings
from holdfast_studies.trained.statistics import cross_part_pseudo_values, mean_over_trainings, trend
from holdfast_studies.trained.trainings import TRAINED, RightAnswers
from holdfast_studies.walking import walks
from holdfast_studies.walking.transfer import side_by_side, swapped

ADVERSARIAL_WORDS = {"plain": "plain", "adversarial": "PGD-trained"}

ATTACK = f"pgd?eps={RADIUS}&space=dataset"


def run_adversarial(options: StudyOptions) -> StudyResult:
    """Train the missing models, walk, swap the images, and compare."""
    options = trainings.settled(options)
    models = trainings.trained_models(options, STUDIES["adversarial-training"])
    names = trainings.all_names(models)
    results, rows = walks.walk(options, names, keep_images=True)
    groups = {ADVERSARIAL_WORDS[way]: group for way, group in trainings.by_training(rows, models).items()}
    attack = evaluate(options, names, f"original,{ATTACK}", "attack").rows(["model", "kind", "correct"]).to_pandas()
    right = attack[attack["kind"].astype(str) == "attack"].groupby(attack["model"].astype(str))["correct"].mean()
    attacked = {ADVERSARIAL_WORDS[way]: float(right.reindex(list(group)).mean()) for way, group in models.items()}
    findings = [_against_themselves(groups, attacked)]
    findings += swapped(options, results, rows, names, trainings.way_of(models, ADVERSARIAL_WORDS))
    return StudyResult(
        title="Adversarial training",
        question=(
            f"Does training against small changes (PGD, ℓ∞ {RADIUS:g}, {ADVERSARIAL_STEPS} steps) help against changes "
            "as large as the oracle allows? Models were trained plainly and adversarially on the same images "
            f"and walked, and the images made against one kind were shown to the other. {trainings.INTERVALS}"
        ),
        findings=[*findings, trainings.model_table(options, models)],
        facts=trainings.facts(options, models),
    )


ADVERSARIAL_STUDY = Study(run_adversarial, trainings.training_settings())


def _against_themselves(groups: dict[str, list[pd.DataFrame]], attacked: Mapping[str, float]) -> Finding:
    frame = trainings.training_table(groups)
    frame["attacked"] = [attacked[way] for way in groups]
    change = trainings.changes(*groups.values())
    sentences = [
        f"Adversarial training changes FMR by {change['fmr']}, the validated share by {change['validation_rate']} and "
        f"accuracy on the scenes themselves by {change['standard_accuracy']}.",
        f"Under the attack it was trained against (PGD, 20 steps) it is right on {percent(attacked['PGD-trained'])} of "
        f"the scenes, the plain one on {percent(attacked['plain'])}.",
    ]
    under_attack = Column("attacked", "Accuracy under PGD", "percent")
    caption = "FMR of plain and PGD-trained models"
    return trainings.walked("Walked against themselves", sentences, frame, "Trained", caption, under_attack)


GREYSCALE_WORDS = {"plain": "in colour", "grey": "in grey"}


def run_greyscale(options: StudyOptions) -> StudyResult:
    """Train the missing models, walk, and compare."""
    options = trainings.settled(options)
    models = trainings.trained_models(options, STUDIES["greyscale"])
    names, kinds = trainings.all_names(models), trainings.way_of(models, GREYSCALE_WORDS)
    results, rows = walks.walk(options, names, keep_images=True)
    groups = {GREYSCALE_WORDS[way]: group for way, group in trainings.by_training(rows, models).items()}
    return StudyResult(
        title="Greyscale",
        question=(
            "Is a model that sees no colour harder to lead astray? Models were trained on the same images in "
            "colour and in grey; the step to grey is part of the model, so that both are walked through the same "
            "generator and judged by the same oracle, in colour. The images made against one kind were shown to the "
            f"other. {trainings.INTERVALS}"
        ),
        findings=[
            _comparison(groups, _colour_shift(results)),
            *swapped(options, results, rows, names, kinds),
            side_by_side(options, results, rows, kinds),
            trainings.model_table(options, models),
        ],
        facts=trainings.facts(options, models),
    )


GREYSCALE_STUDY = Study(run_greyscale, trainings.training_settings())


def _colour_shift(results: api.Results) -> pd.Series:
    """Return by model how far its validated walks changed the colours, on average."""
    shifts = Parts(results.path / "details" / "walks", WALKS).rows(["row_id", "colour_shift", "validated"]).to_pandas()
    rows = results.rows(["row_id", "model"]).merge(shifts[shifts["validated"]], on="row_id")
    rows = rows.sort_values("row_id")  # the sum of a column depends on its order, in the last digits
    means: pd.Series = rows.groupby(rows["model"].astype(str))["colour_shift"].mean()
    return means


def _comparison(groups: dict[str, list[pd.DataFrame]], shifts: pd.Series) -> Finding:
    frame = trainings.training_table(groups)
    frame["colour_shift"] = [
        float(shifts.reindex([str(rows["model"].iloc[0]) for rows in group]).mean()) for group in groups.values()
    ]
    change = trainings.changes(*groups.values())
    sentences = [
        f"Without colour FMR changes by {change['fmr']}, accuracy on the scenes themselves by "
        f"{change['standard_accuracy']} and the validated share by {change['validation_rate']}.",
        "The colour shift is the mean CIE76 difference between scene and perturbed image, over validated walks: a "
        "walk against a model without colour finds nothing in colour as such.",
    ]
    shift = Column("colour_shift", "Colour shift", "number", digits=2)
    caption = "FMR of models trained in colour and in grey"
    return trainings.walked("With and without colour", sentences, frame, "Trained", caption, shift)


PANELS = {"fmr": ("FMR", True), "standard_accuracy": ("SA", True), "validation_rate": ("VR", True)}


def run_heads(options: StudyOptions) -> StudyResult:
    """Train the missing models, walk, and compare."""
    options = trainings.settled(options)
    given = _heads(options)
    ways = {text: f"heads{text.replace('/', '-')}" for text in given}
    trained = trainings.trained_models(options, list(ways.values()))
    heads = sorted(given, key=_mean_heads)
    models = {ways[text]: trained[ways[text]] for text in heads}
    _, rows = walks.walk(options, trainings.all_names(models))
    groups = trainings.by_training(rows, models)
    return StudyResult(
        title="Attention heads",
        question=(
            "Does the number of attention heads change how far a model can be led astray? Small Swins, alike in depth, "
            "width and number of weights but for the tables of relative positions, were trained on the same images "
            "(or your own models were taken). "
            f"{trainings.INTERVALS}"
        ),
        findings=[_response(heads, groups, options.seed), trainings.model_table(options, models)],
        facts=trainings.facts(options, models),
    )


HEADS_STUDY = Study(
    run_heads,
    (
        Setting(
            "heads", tuple(map(str, HEADS)), "heads in every stage of a Swin, or stage by stage (1/2/4/8)", ("1", "4")
        ),
        *trainings.training_settings(),
    ),
)


def _heads(options: StudyOptions) -> list[str]:
    """Return the numbers of heads, for all stages or stage by stage, in the order they were named."""
    names = list(dict.fromkeys(options.settings["heads"]))
    if len(names) < 2:
        raise UserError("heads: expected two or more, for example --set heads=1,2,4 or --set heads=1/2/4/8,2/4/8/16")
    for text in names:
        heads = small_models.heads_of(text)
        if not trainings.is_own(options):
            small_models.swin(heads)  # raises UserError for a number that does not divide the width
    return names


def _mean_heads(text: str) -> float:
    return float(np.mean(small_models.heads_of(text)))


def _response(heads: Sequence[str], groups: Mapping[str, Sequence[pd.DataFrame]], seed: int) -> Finding:
    frame = trainings.training_table(groups)
    frame["heads"], frame["line"], frame["stages"] = [_mean_heads(text) for text in heads], "", list(heads)
    each = [trainings.training_estimate([rows], "fmr").value for group in groups.values() for rows in group]
    counts = np.repeat(frame["heads"].to_numpy(np.float64), [len(group) for group in groups.values()])
    first, *_, last = groups.values()
    change = trainings.changes(first, last)
    sentences = [
        f"From {heads[0]} to {heads[-1]} heads FMR changes by {change['fmr']} and accuracy by "
        f"{change['standard_accuracy']}."
    ]
    if not np.isnan(each).any():
        growth = trend(counts, np.array(each), seed=seed)
        sentences.append(
            f"In {percent(growth.concordant, 0)} of the pairs of models with unlike numbers of heads the one with more "
            f"has the higher FMR (permutation p {p_value(growth.p)}, one-sided; Spearman's ρ {growth.spearman:.2f})."
        )
    return Finding(
        "FMR against heads",
        sentences,
        frame.drop(columns=["training", "line"]),
        [Column("stages", "Heads"), *walks.columns(), *walks.COUNTS],
        chart=lambda width: walks.curves(
            frame, width, line="line", x="heads", panels=PANELS, across="heads", few=True
        ),
        caption="FMR, SA and VR against the number of heads",
    )  # fmt: skip


NAMES = {
    "adversarial": "PGD", "augmix": "AugMix-like", "deepaugment": "DeepAugment-like", "ant": "ANT-like",
    "dat": "DAT-like", "deepaugment+augmix": "DeepAug+AM-like", "ant+stylised": "ANT+SIN-like",
}  # fmt: skip
"""Names of ways of training on the page, if they differ."""
TITLES = {"static": "SA*, static accuracy", "score": "Robustness score", "fmr": "FMR", "standard_accuracy": "SA"}
"""Measures by which models can be put in order."""

Models = Mapping[str, Mapping[str, str]]
"""Way of training, or name of a model of others → short name → the model's name."""


def run_robust(options: StudyOptions) -> StudyResult:
    """Train the missing models, test statically and dynamically, and compare the two orders."""
    options = trainings.settled(options)
    models = _models(options)
    names = trainings.all_names(models)
    asked = str(options.settings["static"])
    scenarios = trainings.static_scenarios(options) if asked == "static" else f"original,{asked}"
    results = study.evaluate(options, names, scenarios, "static")
    shown = [name for group in models.values() for name in group]
    answers = trainings.right_answers(results, shown, every_condition=asked != "static")
    _, rows = walks.walk(options, names)
    groups = trainings.by_training(rows, models)
    frame = _frame(models, answers, groups)
    own = {way: group for way, group in models.items() if way in options.settings["ways"]}
    generator, warnings = options.settings["generator"], []
    if "dat" in models and generator == options.settings["latent_training"]:
        warnings = [f"The DAT-like models were trained with images of {generator}, the generator that makes the walks."]
    return StudyResult(
        title="Robust training",
        question=(
            "Do models that hold under static conditions hold under walks? One small architecture was trained in "
            "several ways on the same scenes for as many steps, and each model was tested under static conditions "
            f"({asked}; their mean accuracy is SA*) and by walks as far as the oracle agrees. Ways called ‘-like’ are "
            "small versions of published ones; "
            f"the study's page in the documentation says what they leave out. {trainings.INTERVALS}"
        ),
        findings=[
            _both(frame, warnings),
            _orders(frame, models, answers, groups, options.seed),
            *([trainings.model_table(options, own)] if own else []),
        ],
        facts={"ways of training": len(models), **trainings.facts(options, models)},
    )


ROBUST_STUDY = Study(
    run_robust,
    (
        Setting("models", (TRAINED,), "trained stands for our small ones, of each way; others by name, a hub's too"),
        Setting("ways", ROBUST, "which ways of training"),
        Setting(
            "static",
            "corruptions@3",
            "the static half: ImageNet-C's corruptions as in the paper, static for the "
            "scenarios of XIMAGENET-12, or any other list of scenarios",
            "gaussian_noise@3,contrast@3",
        ),
        Setting("latent_training", robust.GENERATOR, "generator whose latent the DAT-like training moves in", "pixel:"),
        *trainings.training_settings(models=False),
    ),
)


def _models(options: StudyOptions) -> dict[str, dict[str, str]]:
    wanted = options.settings["models"]
    ways = list(dict.fromkeys(options.settings["ways"]))
    for way in ways:
        robust.described(way)
    others = [name for name in wanted if name != TRAINED]
    if len(others) + (TRAINED in wanted) * len(ways) < 2:
        raise UserError("an order needs two ways of training or more, for example --set ways=plain,augmix")
    models = {}
    if TRAINED in wanted:
        models = trainings.trained_models(options, ways, generator=options.settings["latent_training"])
    others = study.model_names(others, least=0)
    for name, shown in zip(others, study.result_names(options, others), strict=True):
        models[shown] = {shown: name}
    return models


def _frame(models: Models, answers: RightAnswers, groups: Mapping[str, Sequence[pd.DataFrame]]) -> pd.DataFrame:
    """Return a row per way of training: the measures of walks, static accuracy and score."""
    rows: list[dict[str, Any]] = []
    for group in models.values():
        right = np.stack([answers.with_original(name) for name in group])
        cross = mean_over_trainings(cross_part_pseudo_values(right))
        score = Estimate(1 - cross.value, 1 - cross.high, 1 - cross.low)
        rows.append(mean_over_trainings(right[:, 1:].mean(axis=1)).within(SHARE).row("static") | score.row("score"))
    frame = pd.concat([trainings.training_table(groups), pd.DataFrame(rows)], axis=1)
    frame["what"] = [
        robust.described(str(way)) if set(str(way).split("+")) <= set(robust.METHODS) else "a model of others"
        for way in frame["training"]
    ]
    frame["training"] = [NAMES.get(str(way), str(way)) for way in frame["training"]]
    return frame


def _both(frame: pd.DataFrame, warnings: Sequence[str]) -> Finding:

    best = {
        words: frame["training"].iloc[int(np.nanargmax(frame[name].to_numpy(np.float64)))]
        for name, words in (("static", "under static conditions"), ("fmr", "in FMR"))
        if frame[name].notna().any()
    }
    sentence = " and ".join(f"{words} {way} is highest" for words, way in best.items())
    shown = {name: TITLES[name] for name in ("fmr", "static")}
    drawn = study.long_form(frame.sort_values("fmr", ascending=False), shown, "training")
    columns = [
        Column("training", "Training"),
        Column("what", "What it does"),
        *walks.columns(),
        ranged("static", TITLES["static"]),
        ranged("score", TITLES["score"], "number", 4,
               hint="1 less the mean square distance from the original, without its sampling noise"),
        *walks.COUNTS,
    ]  # fmt: skip
    return Finding(
        "Static and dynamic",
        [f"Of {len(frame)} ways, {sentence}.", *warnings],
        frame,
        columns,
        chart=study.dots_of(drawn, line="measure", row="training", title="FMR, and accuracy"),
        caption="Static and dynamic robustness by way of training",
    )


def _orders(
    frame: pd.DataFrame, models: Models, answers: RightAnswers, groups: Mapping[str, Sequence[pd.DataFrame]], seed: int
) -> Finding:
    """Compare orders by Kendall's τ, with an interval from resampling the scenes of both."""
    drawn = _resampled(models, answers, groups, seed)
    rows = []
    for pair in (("static", "fmr"), ("score", "fmr"), ("standard_accuracy", "fmr"), ("static", "score")):
        tau = kendall_of(*((frame[name].to_numpy(np.float64), drawn[name]) for name in pair))
        rows.append({"first": TITLES[pair[0]], "second": TITLES[pair[1]], **tau})
    top = rows[0]
    sentence = (
        f"The order by accuracy under static conditions and the order by FMR agree with Kendall's τ = "
        f"{number(float(top['tau']), 2)} ({span(float(top['low']), float(top['high']), 2, 1)}), over {top['n']} ways."
        if not top["reason"]
        else f"There is no τ: {top['reason']}"
    )
    columns = [
        *plain("text", first="One order", second="The other"),
        Column("tau", "Kendall's τ", "number", "low", "high", digits=2),
        Column("p", "p", "p"),
        Column("n", "Ways", "integer"),
        Column("reason", "Why there is none"),
    ]
    note = "Intervals of τ are over scenes, which both orders share; not over other trainings."
    return Finding("Do the orders agree", [sentence, note], pd.DataFrame(rows), columns)


def _resampled(
    models: Models, answers: RightAnswers, groups: Mapping[str, Sequence[pd.DataFrame]], seed: int
) -> dict[str, Floats]:
    """Return each measure by way of training in resamples of scenes that all measures share, (resamples, ways)."""
    walked = [str(name) for name in next(iter(groups.values()))[0]["source_id"]]
    both = [name for name in walked if name in set(answers.scenes)]
    if len(both) < 2:
        raise UserError("fewer than two scenes have both walks and static answers; look at the errors of the runs")
    keep = np.array([name in set(both) for name in walked])
    counts = np.stack([walks.counts_of(rows)[keep] for group in groups.values() for rows in group])
    static = answers.on(both)
    right = np.stack([static.with_original(name) for group in models.values() for name in group])
    flat = np.concatenate([counts, right.transpose(0, 2, 1)], axis=2)
    names, scenes, width = flat.shape
    sums = resampled_sums(flat.transpose(1, 0, 2).reshape(scenes, -1), np.arange(scenes), seed=seed)
    walk_sums, accuracy = np.split(sums.reshape(-1, names, width), [counts.shape[2]], axis=2)
    accuracy = accuracy / scenes
    ends = np.cumsum([len(group) for group in models.values()])[:-1]

    def by_way(values: Floats) -> Floats:
        return np.stack([part.mean(axis=1) for part in np.split(values, ends, axis=1)], axis=1)

    return {
        "fmr": by_way(walks.measured(walk_sums, "fmr")),
        "standard_accuracy": by_way(walks.measured(walk_sums, "standard_accuracy")),
        "static": by_way(accuracy[..., 1:].mean(-1)),
        "score": by_way(1 - np.square(accuracy[..., 1:] - accuracy[..., :1]).mean(-1)),
    }
