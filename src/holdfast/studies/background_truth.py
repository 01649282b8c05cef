"""``holdfast study background-truth``: how far pasting is from the truth, where the truth can be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import UserError
from holdfast.models import available
from holdfast.models.torch_classifier import resolve_device
from holdfast.pipeline.evaluate.background_truth import compare_pasted_with_true
from holdfast.report.page.charts import dots
from holdfast.report.page.tables import Column
from holdfast.report.page.words import MINUS
from holdfast.report.study import DRAWN_WORLD, Finding, StudyResult
from holdfast.studies.study import Setting, Study, StudyOptions

if TYPE_CHECKING:
    import pandas as pd

EMBEDDED = "embedded"

SETTINGS = (
    Setting("models", (EMBEDDED,), "names of models; embedded stands for all that come with Holdfast",
            ("embedded:resnet_rho0", "embedded:resnet_rho95")),
    Setting("scenes", 960, "test scenes", 48),
    Setting("context", 0.95, "how strongly class and background go together in the test scenes, 0 to 1"),
)  # fmt: skip


def run(options: StudyOptions) -> StudyResult:
    """Evaluate, compare, and say what came out."""
    settings = options.settings
    if settings["scenes"] < 24 or not 0 <= settings["context"] <= 1:
        raise UserError("scenes must be 24 or more, and context a number from 0 to 1")
    models = [name for one in settings["models"] for name in (available(one) if one == EMBEDDED else [one])]
    frame = compare_pasted_with_true(
        models,
        n=settings["scenes"],
        context=settings["context"],
        seed=options.seed,
        out=options.out / "runs" / "scenes",
        device=resolve_device(options.device),
        progress=options.progress,
    )
    return StudyResult(
        title="Pasted and true background effect",
        question=(
            "How far is the pasted estimate of the background's effect from the true one? Each scene was tested as "
            "drawn, with another scene's background pasted behind the object, and with that same background truly "
            "drawn behind it; for the correction also with a background of its own class pasted. Intervals are at the "
            "95 % level, paired by scene."
        ),
        findings=[_finding(frame)],
        facts=[(str(len(frame)), "models"), (str(settings["scenes"]), "test scenes")],
        note=DRAWN_WORLD + (" A rehearsal, with too few scenes to say anything." if options.quick else ""),
        runs=["runs/scenes"],
    )


STUDY = Study(run, SETTINGS)


def _finding(frame: pd.DataFrame) -> Finding:
    import pandas as pd

    estimates = {"bias": "pasted", "corrected_bias": "pasted, less pasting itself"}
    biases = pd.concat(
        pd.DataFrame(
            {
                "model": title,
                "row": frame["model"],
                "estimate": frame[name],
                "low": frame[f"{name}_low"],
                "high": frame[f"{name}_high"],
                "solid": True,
            }
        )
        for name, title in estimates.items()
    )
    sentences = []
    for name, text in (
        ("bias", "The pasted estimate"),
        ("corrected_bias", "Corrected by the same class's background, it"),
    ):
        worst = frame.iloc[int(frame[name].abs().argmax())]
        off = int(((frame[f"{name}_low"] > 0) | (frame[f"{name}_high"] < 0)).sum())
        number = f"{100 * worst[name]:+.1f}".replace("-", MINUS)
        sentences.append(
            f"{text} is up to {number} points from the truth ({worst['model']}); for {off} of {len(frame)} models "
            "the interval of the difference leaves out zero."
        )
    columns = [
        Column("model", "Model"),
        Column("clean", "As drawn", "percent"),
        Column("pasted", "Pasted", "percent"),
        Column("true", "Truly drawn", "percent"),
        Column("pasted_effect", "Pasted effect", "points"),
        Column("true_effect", "True effect", "points"),
        Column("bias", "Pasted less true", "points", "bias_low", "bias_high"),
        Column("corrected_effect", "Corrected effect", "points", hint="same class's background less another class's"),
        Column("corrected_bias", "Corrected less true", "points", "corrected_bias_low", "corrected_bias_high"),
    ]
    return Finding(
        "How far pasting is from the truth",
        sentences,
        frame,
        columns,
        chart=lambda width: dots(
            biases, width, models=list(estimates.values()), rows=list(frame["model"]),
            title="estimated less true effect, points", zero=True,
        ),
        caption="Estimated background effect less the true one",
    )  # fmt: skip
