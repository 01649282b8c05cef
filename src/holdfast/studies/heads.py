"""``holdfast study heads``: does the number of attention heads change how far a model can be led astray?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.errors import UserError
from holdfast.report.page.tables import Column
from holdfast.report.page.words import p_value
from holdfast.report.study import Finding, StudyResult
from holdfast.studies import small_training, trained
from holdfast.studies.dynamic import curves, images_of, in_points, tidy, walk_all
from holdfast.studies.seeds import trend
from holdfast.studies.study import Setting, Study, StudyOptions

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = (
    Setting("heads", tuple(str(count) for count in small_training.HEADS), "numbers of heads in every stage of a Swin",
            ("1", "4")),
    *trained.settings(),
)  # fmt: skip


def run(options: StudyOptions) -> StudyResult:
    """Train what is missing, walk, and say what came out."""
    heads = _heads(options.settings["heads"])
    models = trained.models_of(options, [f"heads{count}" for count in heads])
    walks = images_of(walk_all(options, [{}], trained.all_of(models)))
    groups = trained.by_training(walks, models)
    return StudyResult(
        title="Attention heads",
        question=(
            "Does the number of attention heads change how far a model can be led astray? Small Swins, alike in depth, "
            "width and number of weights but for the tables of relative positions, were trained on the same scenes. "
            f"{trained.INTERVALS}"
        ),
        findings=[_finding(heads, groups, options.seed), trained.every_model(options, models)],
        facts=[(str(len(trained.all_of(models))), "models"), (str(options.settings["scenes"]), "test scenes")],
        note=trained.note(options),
        runs=["runs/walks"],
    )


STUDY = Study(run, SETTINGS)


def _heads(names: Sequence[str]) -> list[int]:
    if not all(name.isdecimal() for name in names) or len(set(names)) < 2:
        raise UserError("heads are two or more whole numbers, for example --set heads=1,2,4")
    heads = sorted({int(name) for name in names})
    for count in heads:
        small_training.swin(count)
    return heads


def _finding(heads: Sequence[int], groups: Mapping[str, Sequence[pd.DataFrame]], seed: int) -> Finding:
    frame = trained.family_table(groups)
    frame["heads"], frame["line"] = list(heads), ""
    alone = [trained.estimate([one], "fmr").value for group in groups.values() for one in group]
    counts = np.repeat(np.array(heads, np.float64), [len(group) for group in groups.values()])
    first, *_, last = groups.values()
    sentences = [
        f"From {heads[0]} to {heads[-1]} heads FMR changes by {in_points(trained.difference(first, last, 'fmr'))} and "
        f"accuracy by {in_points(trained.difference(first, last, 'standard_accuracy'))}."
    ]
    if not np.isnan(alone).any():
        found = trend(counts, np.array(alone), seed=seed)
        sentences.append(
            f"In {100 * found.concordant:.0f} % of the pairs of models with unlike numbers of heads the one with more "
            f"has the higher FMR (permutation p {p_value(found.p)}, one-sided; Spearman's ρ {found.spearman:.2f})."
        )
    drawn = tidy(frame, line="line", x="heads", measures=("fmr", "standard_accuracy", "validation_rate"))
    panels = {"fmr": ("FMR", True), "standard_accuracy": ("SA", True), "validation_rate": ("VR", True)}
    return Finding(
        "FMR against heads",
        sentences,
        frame.drop(columns=["training", "line"]),
        [Column("heads", "Heads", "integer"), *trained.COLUMNS, *trained.COUNTS],
        chart=lambda width: curves(
            drawn, width, lines=[""], panels=panels, across="heads", logarithmic=True, marks=True
        ),
        caption="FMR, SA and VR against the number of heads",
    )
