"""``holdfast study adversarial-training``: does training against small changes help against large ones?

Plain and PGD-trained models are walked, and the images made against one are shown to the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.report.page.tables import Column
from holdfast.report.page.words import percent
from holdfast.report.study import Finding, StudyResult
from holdfast.studies import trainings, walks
from holdfast.studies.study import Study, StudyOptions, dots_of, evaluate, world_note
from holdfast.studies.transfer import swapped
from holdfast.training.robust import ADVERSARIAL_STEPS, RADIUS
from holdfast.training.small_models import STUDIES

if TYPE_CHECKING:
    import pandas as pd

WORDS = {"plain": "plain", "adversarial": "PGD-trained"}
ATTACK = f"pgd?eps={RADIUS}&space=dataset"


def run(options: StudyOptions) -> StudyResult:
    """Train the missing models, walk, swap the images, and compare."""
    options = trainings.settled(options)
    models = trainings.trained_models(options, STUDIES["adversarial-training"])
    names = trainings.all_names(models)
    results, rows = walks.walk(options, names, keep_images=True)
    groups = {WORDS[way]: group for way, group in trainings.by_training(rows, models).items()}
    findings = [_against_themselves(groups, _attacked(options, models))]
    findings += swapped(options, results, rows, names, trainings.way_of(models, WORDS))
    return StudyResult(
        title="Adversarial training",
        question=(
            f"Does training against small changes (PGD, ℓ∞ {RADIUS:g}, {ADVERSARIAL_STEPS} steps) help against changes "
            "as large as the oracle allows? Models were trained plainly and adversarially on the same images "
            f"and walked, and the images made against one kind were shown to the other. {trainings.INTERVALS}"
        ),
        findings=[*findings, trainings.model_table(options, models)],
        facts=trainings.facts(options, models),
        note=world_note(options),
    )


STUDY = Study(run, trainings.training_settings())


def _attacked(options: StudyOptions, models: Mapping[str, Mapping[str, str]]) -> dict[str, float]:
    """Return by way of training the accuracy under the attack that one way was trained against."""
    results = evaluate(options, trainings.all_names(models), f"original,{ATTACK}", "attack")
    rows = results.rows(["model", "kind", "correct"]).to_pandas()
    right = rows[rows["kind"].astype(str) == "attack"].groupby(rows["model"].astype(str))["correct"].mean()
    return {WORDS[way]: float(right.reindex(list(group)).mean()) for way, group in models.items()}


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
    return Finding(
        "Walked against themselves",
        sentences,
        frame,
        [Column("training", "Trained"), *walks.columns(), *walks.COUNTS, under_attack],
        chart=dots_of(frame.assign(measure="FMR"), "fmr", line="measure", row="training", title="FMR"),
        caption="FMR of plain and PGD-trained models",
    )
