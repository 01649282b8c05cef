"""``holdfast study greyscale``: is a model that sees no colour harder to lead astray?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import api
from holdfast.core.schema import WALKS
from holdfast.report.page.charts import dots
from holdfast.report.page.tables import Column
from holdfast.report.study import Finding, StudyResult
from holdfast.store import Parts
from holdfast.studies import small_training, trained
from holdfast.studies.dynamic import compared, images_of, in_points, walk_all
from holdfast.studies.study import Study, StudyOptions

if TYPE_CHECKING:
    import pandas as pd

WORDS = {"plain": "in colour", "grey": "in grey"}

SETTINGS = trained.settings()


def run(options: StudyOptions) -> StudyResult:
    """Train what is missing, walk, and say what came out."""
    models = trained.models_of(options, small_training.STUDIES["greyscale"])
    results = walk_all(options, [{}], trained.all_of(models))
    groups = {
        WORDS[way]: found for way, found in trained.by_training(images_of(results), models).items()
    }  # fmt: skip
    return StudyResult(
        title="Greyscale",
        question=(
            "Is a model that sees no colour harder to lead astray? Small ResNets were trained on the same scenes in "
            "colour and in grey; the step to grey is part of the model, so that both are walked through the same "
            f"generator and judged by the same oracle, in colour. {trained.INTERVALS}"
        ),
        findings=[_finding(groups, _colour_shift(results)), trained.every_model(options, models)],
        facts=[(str(len(trained.all_of(models))), "models"), (str(options.settings["scenes"]), "test scenes")],
        note=trained.note(options),
        runs=["runs/walks"],
    )


STUDY = Study(run, SETTINGS)


def _colour_shift(results: api.Results) -> pd.Series:
    """By model: how far its validated walks changed the colours."""
    walks = Parts(results.path / "details" / "walks", WALKS).rows(["row_id", "colour_shift", "validated"]).to_pandas()
    rows = results.rows(["row_id", "model"]).to_pandas()
    joined = rows.merge(walks[walks["validated"]], on="row_id")
    shifts: pd.Series = joined.groupby(joined["model"].astype(str))["colour_shift"].mean()
    return shifts


def _finding(groups: dict[str, list[pd.DataFrame]], shifts: pd.Series) -> Finding:
    frame = trained.family_table(groups)
    frame["colour_shift"] = [
        float(shifts.reindex([str(one["model"].iloc[0]) for one in group]).mean()) for group in groups.values()
    ]
    colour, grey = groups.values()
    sentences = [
        f"Without colour FMR changes by {in_points(trained.difference(colour, grey, 'fmr'))}, accuracy on the scenes "
        f"themselves by {in_points(trained.difference(colour, grey, 'standard_accuracy'))} and the validated share by "
        f"{in_points(trained.difference(colour, grey, 'validation_rate'))}.",
        "The colour shift is the mean CIE76 difference between scene and perturbed image, over validated walks: a "
        "walk against a model without colour finds nothing in colour as such.",
    ]
    columns = [Column("training", "Trained"), *trained.COLUMNS, *trained.COUNTS]
    columns.append(Column("colour_shift", "Colour shift", "number", digits=2))
    return Finding(
        "With and without colour",
        sentences,
        frame,
        columns,
        chart=lambda width: dots(
            compared(frame.assign(measure="FMR"), models="measure", row="training", measure="fmr"), width,
            models=["FMR"], rows=list(frame["training"]), title="FMR",
        ),
        caption="FMR of models trained in colour and in grey",
    )  # fmt: skip
