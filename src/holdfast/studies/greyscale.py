"""``holdfast study greyscale``: is a model that sees no colour harder to lead astray?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import api
from holdfast.core.schema import WALKS
from holdfast.report.page.tables import Column
from holdfast.report.study import Finding, StudyResult
from holdfast.store import Parts
from holdfast.studies import trainings, walks
from holdfast.studies.study import Study, StudyOptions, dots_of, world_note
from holdfast.studies.transfer import side_by_side, swapped
from holdfast.training.small_models import STUDIES

if TYPE_CHECKING:
    import pandas as pd

WORDS = {"plain": "in colour", "grey": "in grey"}


def run(options: StudyOptions) -> StudyResult:
    """Train the missing models, walk, and compare."""
    options = trainings.settled(options)
    models = trainings.trained_models(options, STUDIES["greyscale"])
    names, kinds = trainings.all_names(models), trainings.way_of(models, WORDS)
    results, rows = walks.walk(options, names, keep_images=True)
    groups = {WORDS[way]: group for way, group in trainings.by_training(rows, models).items()}
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
        note=world_note(options),
    )


STUDY = Study(run, trainings.training_settings())


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
    return Finding(
        "With and without colour",
        sentences,
        frame,
        [Column("training", "Trained"), *walks.columns(), *walks.COUNTS, shift],
        chart=dots_of(frame.assign(measure="FMR"), "fmr", line="measure", row="training", title="FMR"),
        caption="FMR of models trained in colour and in grey",
    )
