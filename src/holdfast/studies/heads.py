"""``holdfast study heads``: does the number of attention heads change how far a model can be led astray?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.errors import UserError
from holdfast.report.page.tables import Column
from holdfast.report.page.words import p_value
from holdfast.report.study import Finding, StudyResult
from holdfast.stats.models.trainings import trend
from holdfast.studies import trainings, walks
from holdfast.studies.study import Setting, Study, StudyOptions, world_note
from holdfast.training.small_models import HEADS, swin

if TYPE_CHECKING:
    import pandas as pd

PANELS = {"fmr": ("FMR", True), "standard_accuracy": ("SA", True), "validation_rate": ("VR", True)}


def run(options: StudyOptions) -> StudyResult:
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
        findings=[
            _response(heads, groups, options.seed),
            trainings.model_table(options, models),
        ],
        facts=trainings.facts(options, models),
        note=world_note(options),
    )


STUDY = Study(
    run,
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
            f"In {100 * growth.concordant:.0f} % of the pairs of models with unlike numbers of heads the one with more "
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
