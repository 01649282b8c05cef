"""``holdfast study start``: walks that begin at the image itself, and walks that begin at an FGSM image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.report.page.tables import Column
from holdfast.report.page.words import percent, short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.studies import walks
from holdfast.studies.study import Setting, Study, StudyOptions, dots_of, model_names, world_note

if TYPE_CHECKING:
    import pandas as pd

STARTS = {"clean": "clean image", "fgsm": "FGSM image"}
MODELS = ("embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:vit_rho95")


def run(options: StudyOptions) -> StudyResult:
    """Walk from both starts, and compare image by image."""
    epsilon = options.settings["epsilon"]
    if not 0 < epsilon < 1:
        raise UserError("epsilon must be a number between 0 and 1")
    ways = {words: {"start": start} for start, words in STARTS.items()}
    _, rows = walks.walk(options, model_names(options.settings["models"]), ways, fgsm_epsilon=epsilon)
    return StudyResult(
        title="Clean and FGSM start",
        question=(
            f"Does it matter where a walk begins? Every scene walked twice against each model: from the image itself, "
            f"and from the image after one step of FGSM (ε = {epsilon:g}) against the same model. SA is "
            "the accuracy on the originals, which both have in common; the accuracy before the first step is that on "
            "what the generator makes of the start. Intervals are at the 95 % level, differences paired by scene."
        ),
        findings=[_each_start(rows), _differences(rows)],
        facts=[(str(rows["model"].nunique()), "models"), (str(rows["sample_id"].nunique()), "test scenes")],
        note=world_note(options),
    )


STUDY = Study(
    run,
    (*walks.walk_settings(MODELS, 96, step_size=0.03), Setting("epsilon", 0.003, "of FGSM, 0 to 1")),
)


def _each_start(rows: pd.DataFrame) -> Finding:
    frame = walks.family(rows, ["model", "way"])
    shown = frame.assign(name=frame["model"].map(short_names(list(dict.fromkeys(frame["model"])))))
    known = shown.dropna(subset="fmr").sort_values("fmr", kind="stable").to_dict("records")
    sentence = "No walk has an FMR: the oracle accepted none of the images, or no original was right."
    if known:
        worst, best = known[0], known[-1]
        sentence = (
            f"FMR lies between {percent(worst['fmr'])} ({worst['name']}, {worst['way']}) and {percent(best['fmr'])} "
            f"({best['name']}, {best['way']})."
        )
    return Finding(
        "Each start by itself",
        [sentence],
        frame,
        [Column("model", "Model"), Column("way", "Start"), *walks.columns(*walks.MEASURES), *walks.COUNTS],
        chart=dots_of(shown, "fmr", line="way", row="name", title="FMR = PA / SA"),
        caption="FMR by start",
    )


def _differences(rows: pd.DataFrame) -> Finding:
    import pandas as pd

    table, sentences = [], []
    compared = [name for name in walks.MEASURES if name != "standard_accuracy"]
    for model, own in rows.groupby("model", sort=False):
        clean, attacked = (own[own["way"] == words] for words in STARTS.values())
        row: dict[str, Any] = {"model": model}
        for measure in compared:
            change = walks.difference(clean, attacked, measure)
            row |= change.row(measure)
            if measure == "fmr":
                sentences.append(f"{model}: an FGSM start moves FMR by {walks.in_points(change)}.")
        table.append(row)
    title = "FGSM start less clean start"
    columns = [Column("model", "Model"), *walks.columns(*compared, kind="points")]
    return Finding(title, sentences, pd.DataFrame(table), columns, caption=title)
