"""``holdfast study generator-swap``: do models keep their order when something else makes the images?"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.errors import UserError
from holdfast.report.page.charts import dots
from holdfast.report.page.tables import Column
from holdfast.report.page.words import listing, number, short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.stats.models.between import kendall
from holdfast.stats.walks.fmr_ranking import fmr_ranking
from holdfast.studies import dynamic
from holdfast.studies.study import Setting, Study, StudyOptions

if TYPE_CHECKING:
    import pandas as pd

OFFLINE = "offline"
STEP_SIZES = {
    "embedded:vqgan": 0.03,
    "embedded:tiny": 0.01,
    "embedded:ddim?steps=2": 0.01,
    "pixel:": 0.002,
    "noise:": 0.002,
    "rotate:": 0.1,
}
"""Generators for drawn scenes, and a step of each that leaves room above and below: latents have unlike units."""

PAPER_STEP = 0.001

SETTINGS = (
    *dynamic.walk_settings(
        models=(
            "embedded:resnet_rho0", "embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:convnext_rho95",
            "embedded:vit_rho95",
        ),
        scenes=36,
        steps=10,
        leave=("generator",),
    ),
    Setting("generators", (OFFLINE,), "what makes the images; offline stands for those that need no download",
            ("pixel:", "noise:", "rotate:", "embedded:vqgan")),
    Setting("step_size", 0.0, "for all generators; 0: for each its own, 0.001 where none is known"),
)  # fmt: skip


def run(options: StudyOptions) -> StudyResult:
    """Walk through every generator, rank the models, and compare the rankings."""
    settings = options.settings
    if settings["step_size"] < 0:
        raise UserError("step_size must be 0 or more")
    models = dynamic.models_of(settings, least=2)
    generators = generators_of(settings["generators"])
    sizes = {name: settings["step_size"] or STEP_SIZES.get(name, PAPER_STEP) for name in generators}
    ways = {name: {"generator": name, "step_size": size} for name, size in sizes.items()}
    _, walks = dynamic.walk_ways(options, ways, models)
    models = dynamic.called(models)
    walks = walks.assign(generator=walks["way"], step_size=walks["way"].map(sizes))
    return StudyResult(
        title="Generator swap",
        question=(
            "Does the order of the models depend on what makes the images? Every scene walked against each model "
            f"through each generator, {settings['steps']} steps at most. Latents have unlike units, so step sizes are "
            "each generator's own, and FMR is compared between models, not between generators. Kendall's τ-b is 1 "
            "where two generators order the models alike and −1 where they reverse them; its interval is from "
            "resampled scenes. Intervals are at the 95 % level."
        ),
        findings=[_ranking(walks, models, generators), _agreement(walks, models, generators, options.seed)],
        facts=[(str(len(models)), "models"), (str(len(generators)), "generators"), (str(settings["scenes"]), "scenes")],
        note=dynamic.note(options),
        runs=["runs/walks"],
    )


STUDY = Study(run, SETTINGS)


def generators_of(named: tuple[str, ...]) -> list[str]:
    """The generators that were named; ``offline`` stands for all of ``STEP_SIZES``."""
    found = list(dict.fromkeys(name for one in named for name in (STEP_SIZES if one == OFFLINE else [one])))
    if len(found) < 2:
        raise UserError("this study compares generators: name two or more with --set generators=A,B")
    return found


def _ranking(walks: pd.DataFrame, models: list[str], generators: list[str]) -> Finding:
    frame = dynamic.family(walks, ["generator", "step_size", "model"])
    ranks: dict[tuple[str, str], str] = {}
    sentences = []
    for generator in generators:
        own = fmr_ranking(walks[walks["generator"] == generator]).table
        ranks |= {(generator, row["model"]): row["rank"] for row in own.to_dict("records")}
        order = listing(list(own["model"]), 10) if len(own) else "none has an FMR"
        sentences.append(f"{generator}: by FMR, highest first, {order}.")
    pairs = zip(frame["generator"], frame["model"], strict=True)
    frame = frame.assign(rank=[ranks.get(pair, "") for pair in pairs])
    short = short_names(models)
    drawn = dynamic.compared(
        frame.assign(name=frame["model"].map(short)), models="name", row="generator", measure="fmr"
    )
    measures = dynamic.columns("standard_accuracy", "reconstruction", "validation_rate", "perturbed_accuracy", "fmr")
    rank = Column("rank", "Rank", hint="models that cannot be told apart share their ranks")
    return Finding(
        "FMR and rank under each generator",
        sentences,
        frame,
        [
            Column("generator", "Generator"),
            Column("step_size", "Step", "number", digits=4),
            Column("model", "Model"),
            *measures,
            rank,
            *dynamic.COUNTS,
        ],
        chart=lambda width: dots(
            drawn, width, models=list(short.values()), rows=generators, title="FMR = PA / SA"
        ),
        caption="FMR of the models under each generator",
    )  # fmt: skip


def _agreement(walks: pd.DataFrame, models: list[str], generators: list[str], seed: int) -> Finding:
    import pandas as pd

    # All generators and models draw the same scenes, so that resampled orders belong together.
    groups = [
        walks[(walks["generator"] == generator) & (walks["model"] == model)]
        for generator in generators
        for model in models
    ]
    drawn = dynamic.resampled(groups, "fmr", seed=seed).reshape(-1, len(generators), len(models))
    whole = np.stack([dynamic.counts_of(group).sum(axis=0) for group in dynamic.shared_images(groups)])
    found = dynamic.measured(whole, "fmr").reshape(len(generators), len(models))
    rows = []
    for one, other in itertools.combinations(range(len(generators)), 2):
        known = [i for i in range(len(models)) if np.isfinite(found[[one, other], i]).all()]
        scores = [{models[i]: float(found[place, i]) for i in known} for place in (one, other)]
        samples = [drawn[:, place][:, known] for place in (one, other)]
        result = kendall(*scores, first_samples=samples[0], second_samples=samples[1])
        rows.append({"first": generators[one], "second": generators[other], **result})
    frame = pd.DataFrame(rows).rename(columns={"low": "tau_low", "high": "tau_high", "n": "models"})
    ordered = frame[frame["tau"].notna()]
    if ordered.empty:
        sentence = "No two generators order the models at all."
    else:
        by_tau = ordered.sort_values("tau", kind="stable")
        least, most = by_tau.iloc[0], by_tau.iloc[-1]
        sentence = (
            f"τ lies between {number(least['tau'])} ({least['first']} and {least['second']}) and "
            f"{number(most['tau'])} ({most['first']} and {most['second']}), "
            f"{number(ordered['tau'].mean())} on average; "
            f"for {int((ordered['tau_low'] > 0).sum())} of {len(ordered)} pairs the interval lies above 0."
        )
    columns = [
        Column("first", "Generator"),
        Column("second", "Another"),
        Column("tau", "Kendall's τ", "number", "tau_low", "tau_high", digits=2),
        Column("p", "p", "p"),
        Column("models", "Models", "integer"),
        Column("reason", "Why not"),
    ]
    return Finding("Do they agree on the order", [sentence], frame, columns, caption="Agreement between generators")
