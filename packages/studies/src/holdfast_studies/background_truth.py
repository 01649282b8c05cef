"""``holdfast study background-truth``: how far pasting is from the truth, if the truth can be drawn."""

from __future__ import annotations

import pandas as pd

from holdfast.core.errors import UserError
from holdfast.core.networks import resolve_device
from holdfast.core.numbers import number
from holdfast.pipeline.evaluate.background_truth import compare_pasted_with_true
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.reports.study import Finding, StudyResult
from holdfast_studies import study
from holdfast_studies.study import EMBEDDED, Study, StudyOptions


def run(options: StudyOptions) -> StudyResult:
    """Evaluate every scene as drawn, with a pasted and with a truly drawn background, and compare."""
    settings = options.settings
    if settings["scenes"] < 24 or not 0 <= settings["context"] <= 1:
        raise UserError("scenes must be 24 or more, and context a number from 0 to 1")
    frame = compare_pasted_with_true(
        study.model_names(settings["models"]),
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
        findings=[_bias(frame)],
        facts={"models": len(frame), "test scenes": settings["scenes"]},
    )


STUDY = Study(
    run,
    study.subject(
        (EMBEDDED,), 960, quick=("embedded:resnet_rho0", "embedded:resnet_rho95"), quick_scenes=48,
        without=("data", "masks", "labels", "generator", "oracle"),
    ),
)  # fmt: skip


def _bias(frame: pd.DataFrame) -> Finding:
    drawn = study.long_form(frame, {"bias": "pasted", "corrected_bias": "pasted, less pasting itself"}, "model")
    sentences = []
    for name, text in (
        ("bias", "The pasted estimate"),
        ("corrected_bias", "Corrected by the same class's background, it"),
    ):
        worst = study.farthest(frame, name)
        error = number(100 * worst[name], 1, sign=True)
        sentences.append(
            f"{text} is up to {error} points from the truth ({worst['model']}); for "
            f"{study.is_clear(frame, name).sum()} of {len(frame)} models the interval of the difference leaves out "
            "zero."
        )
    columns = [
        Column("model", "Model"),
        *plain("percent", clean="As drawn", pasted="Pasted", true="Truly drawn"),
        *plain("points", pasted_effect="Pasted effect", true_effect="True effect"),
        ranged("bias", "Pasted less true", "points"),
        Column("corrected_effect", "Corrected effect", "points", hint="same class's background less another class's"),
        ranged("corrected_bias", "Corrected less true", "points"),
    ]
    return Finding(
        "How far pasting is from the truth",
        sentences,
        frame,
        columns,
        chart=study.dots_of(drawn, line="measure", row="model", title="estimated less true effect, points", zero=True),
        caption="Estimated background effect less the true one",
    )
