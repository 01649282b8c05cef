"""``holdfast study start``: walks that begin at the image itself, and walks that begin at an FGSM image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.report.page.charts import dots
from holdfast.report.page.tables import Column
from holdfast.report.page.words import percent, short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.studies import dynamic
from holdfast.studies.study import Setting, Study, StudyOptions

if TYPE_CHECKING:
    import pandas as pd

WORDS = {"clean": "clean image", "fgsm": "FGSM image"}

SETTINGS = (
    *dynamic.walk_settings(
        models=("embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:vit_rho95"),
        scenes=96,
        steps=10,
        step_size=0.03,
    ),
    Setting("epsilon", 0.003, "of FGSM, 0 to 1"),
)


def run(options: StudyOptions) -> StudyResult:
    """Walk from both starts, and compare image by image."""
    settings = options.settings
    if not 0 < settings["epsilon"] < 1:
        raise UserError("epsilon must be a number between 0 and 1")
    models = dynamic.models_of(settings)
    ways = {words: {"start": start} for start, words in WORDS.items()}
    _, walks = dynamic.walk_ways(options, ways, models, fgsm_epsilon=settings["epsilon"])
    models = dynamic.called(models)
    return StudyResult(
        title="Clean and FGSM start",
        question=(
            f"Does it matter where a walk begins? Every scene walked twice against each model: from the image itself, "
            f"and from the image after one step of FGSM (ε = {settings['epsilon']:g}) against the same model. SA is "
            "the accuracy on the originals, which both have in common; the accuracy before the first step is that on "
            "what the generator makes of the start. Intervals are at the 95 % level, differences paired by scene."
        ),
        findings=[_family(walks, models), _differences(walks, models)],
        facts=[(str(len(models)), "models"), (str(settings["scenes"]), "test scenes")],
        note=dynamic.note(options),
        runs=["runs/walks"],
    )


STUDY = Study(run, SETTINGS)


def _family(walks: pd.DataFrame, models: list[str]) -> Finding:
    frame = dynamic.family(walks, ["model", "way"])
    short = short_names(models)
    shown = frame.assign(name=frame["model"].map(short))
    known = shown.dropna(subset="fmr").sort_values("fmr", kind="stable").to_dict("records")
    sentence = "No walk has an FMR: the oracle accepted none of the images, or no original was right."
    if known:
        worst, best = known[0], known[-1]
        sentence = (
            f"FMR lies between {percent(worst['fmr'])} ({worst['name']}, {worst['way']}) and {percent(best['fmr'])} "
            f"({best['name']}, {best['way']})."
        )
    drawn = dynamic.compared(shown, models="way", row="name", measure="fmr")
    measures = dynamic.columns(*dynamic.MEASURES)
    return Finding(
        "Each start by itself",
        [sentence],
        shown.drop(columns="name"),
        [Column("model", "Model"), Column("way", "Start"), *measures, *dynamic.COUNTS],
        chart=lambda width: dots(
            drawn, width, models=list(WORDS.values()), rows=list(short.values()), title="FMR = PA / SA"
        ),
        caption="FMR by start",
    )


def _differences(walks: pd.DataFrame, models: list[str]) -> Finding:
    import pandas as pd

    rows, sentences = [], []
    compared = [name for name in dynamic.MEASURES if name != "standard_accuracy"]
    for model in models:
        mine = walks[walks["model"] == model]
        clean, attacked = (mine[mine["way"] == words] for words in WORDS.values())
        row: dict[str, Any] = {"model": model}
        for measure in compared:
            found = dynamic.difference(clean, attacked, measure)
            row |= {measure: found.value, f"{measure}_low": found.low, f"{measure}_high": found.high}
            if measure == "fmr":
                sentences.append(f"{model}: an FGSM start moves FMR by {dynamic.in_points(found)}.")
        rows.append(row)
    columns = [Column("model", "Model")]
    columns += [Column(name, dynamic.MEASURES[name], "points", f"{name}_low", f"{name}_high") for name in compared]
    return Finding(
        "FGSM start less clean start", sentences, pd.DataFrame(rows), columns, caption="FGSM start less clean start"
    )
