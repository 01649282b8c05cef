"""``holdfast study adversarial-training``, ``greyscale`` and ``heads``: one way of training against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.numbers import p_value, percent
from holdfast.core.schema import WALKS
from holdfast.report.page.tables import Column
from holdfast.report.study import Finding, StudyResult
from holdfast.stats.models.trainings import trend
from holdfast.store import Parts
from holdfast.studies.study import Setting, Study, StudyOptions, evaluate
from holdfast.studies.trained import trainings
from holdfast.studies.walking import walks
from holdfast.studies.walking.transfer import side_by_side, swapped
from holdfast.training.robust import ADVERSARIAL_STEPS, RADIUS
from holdfast.training.small_models import HEADS, STUDIES, swin

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
    rows = results.rows(["row_id", "model"]).to_pandas().merge(shifts[shifts["validated"]], on="row_id")
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
    trained = trainings.trained_models(options, [f"heads{count}" for count in given])
    heads = sorted(given)
    models = {f"heads{count}": trained[f"heads{count}"] for count in heads}
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
        Setting("heads", tuple(map(str, HEADS)), "numbers of heads in every stage of a Swin", ("1", "4")),
        *trainings.training_settings(),
    ),
)


def _heads(options: StudyOptions) -> list[int]:
    """Return the numbers of heads in the order they were named."""
    names = options.settings["heads"]
    if not all(name.isdecimal() for name in names) or len(set(names)) < 2:
        raise UserError("heads are two or more whole numbers, for example --set heads=1,2,4")
    heads = list(dict.fromkeys(int(name) for name in names))
    for count in [] if trainings.is_own(options) else heads:
        swin(count)  # raises UserError for a number that does not divide the width
    return heads


def _response(heads: Sequence[int], groups: Mapping[str, Sequence[pd.DataFrame]], seed: int) -> Finding:
    frame = trainings.training_table(groups)
    frame["heads"], frame["line"] = list(heads), ""
    each = [trainings.training_estimate([rows], "fmr").value for group in groups.values() for rows in group]
    counts = np.repeat(np.array(heads, np.float64), [len(group) for group in groups.values()])
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
        [Column("heads", "Heads", "integer"), *walks.columns(), *walks.COUNTS],
        chart=lambda width: walks.curves(
            frame, width, line="line", x="heads", panels=PANELS, across="heads", few=True
        ),
        caption="FMR, SA and VR against the number of heads",
    )  # fmt: skip
