"""``holdfast study generator-swap``: do models keep their order when something else makes the images?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.errors import UserError
from holdfast.report.page.tables import Column
from holdfast.report.page.words import listing, number, short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.stats.models.between import kendall
from holdfast.stats.walks.fmr import fmr_ranking
from holdfast.studies import walks
from holdfast.studies.study import Setting, Study, StudyOptions, dots_of, model_names, ranged, world_note

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
"""Generators for drawn scenes, each with a step that leaves room above and below: latents have unlike units."""
PAPER_STEP = 0.001
MODELS = (
    "embedded:resnet_rho0", "embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:convnext_rho95",
    "embedded:vit_rho95",
)  # fmt: skip


def run(options: StudyOptions) -> StudyResult:
    """Walk through every generator, rank the models, and compare the rankings."""
    settings = options.settings
    options.require(step_size=0)
    models = model_names(settings["models"], least=2)
    generators = generator_names(settings["generators"])
    sizes = {name: settings["step_size"] or STEP_SIZES.get(name, PAPER_STEP) for name in generators}
    _, rows = walks.walk(options, models, {name: {"generator": name, "step_size": sizes[name]} for name in generators})
    rows = rows.assign(generator=rows["way"], step_size=rows["way"].map(sizes))
    return StudyResult(
        title="Generator swap",
        question=(
            "Does the order of the models depend on what makes the images? Every scene walked against each model "
            f"through each generator, {settings['steps']} steps at most. Latents have unlike units, so step sizes are "
            "each generator's own, and FMR is compared between models, not between generators. Kendall's τ-b is 1 "
            "where two generators order the models alike and −1 where they reverse them; its interval is from "
            "resampled scenes. Intervals are at the 95 % level."
        ),
        findings=[_ranking(rows), _agreement(rows, options.seed)],
        facts={"models": len(models), "generators": len(generators), "scenes": rows["sample_id"].nunique()},
        note=world_note(options),
    )


STUDY = Study(
    run,
    (
        *walks.walk_settings(MODELS, 36, without=("generator",)),
        Setting("generators", (OFFLINE,), "what makes the images; offline stands for those that need no download",
                ("pixel:", "noise:", "rotate:", "embedded:vqgan")),
        Setting("step_size", 0.0, "for all generators; 0: for each its own, 0.001 where none is known"),
    ),
)  # fmt: skip


def generator_names(named: Sequence[str]) -> list[str]:
    """Return the named generators without repetition; ``offline`` stands for all of ``STEP_SIZES``."""
    written_out = [generator for name in named for generator in (STEP_SIZES if name == OFFLINE else [name])]
    names = list(dict.fromkeys(written_out))
    if len(names) < 2:
        raise UserError("this study compares generators: name two or more with --set generators=A,B")
    return names


def _ranking(rows: pd.DataFrame) -> Finding:
    frame = walks.family(rows, ["generator", "step_size", "model"])
    ranks: dict[tuple[str, str], str] = {}
    sentences = []
    for generator, own in rows.groupby("generator", sort=False):
        ranked = fmr_ranking(own).table
        ranks |= {(str(generator), row["model"]): row["rank"] for row in ranked.to_dict("records")}
        order = listing(list(ranked["model"]), 10) if len(ranked) else "none has an FMR"
        sentences.append(f"{generator}: by FMR, highest first, {order}.")
    pairs = zip(frame["generator"], frame["model"], strict=True)
    frame = frame.assign(rank=[ranks.get(pair, "") for pair in pairs])
    short = short_names(list(dict.fromkeys(frame["model"])))
    measures = walks.columns("standard_accuracy", "reconstruction", "validation_rate", "perturbed_accuracy", "fmr")
    columns = [
        Column("generator", "Generator"),
        Column("step_size", "Step", "number", digits=4),
        Column("model", "Model"),
        *measures,
        Column("rank", "Rank", hint="models that cannot be told apart share their ranks"),
        *walks.COUNTS,
    ]
    return Finding(
        "FMR and rank under each generator",
        sentences,
        frame,
        columns,
        chart=dots_of(
            frame.assign(name=frame["model"].map(short)), "fmr", line="name", row="generator", title="FMR = PA / SA"
        ),
        caption="FMR of the models under each generator",
    )


def _agreement(rows: pd.DataFrame, seed: int) -> Finding:
    import pandas as pd

    models, generators = (list(dict.fromkeys(rows[name])) for name in ("model", "generator"))
    pairs = itertools.product(generators, models)
    groups = [rows[(rows["generator"] == generator) & (rows["model"] == model)] for generator, model in pairs]
    # All generators and models share the resampled scenes, so that resampled orders belong together.
    measured, samples = walks.resampled(groups, "fmr", seed=seed)
    measured, samples = (values.reshape(-1, len(generators), len(models)) for values in (measured, samples))
    table = []
    for pair in itertools.combinations(range(len(generators)), 2):
        known = [i for i in range(len(models)) if np.isfinite(measured[0, list(pair), i]).all()]
        scores = [{models[i]: float(measured[0, place, i]) for i in known} for place in pair]
        first, second = (samples[:, place][:, known] for place in pair)
        result = kendall(*scores, first_samples=first, second_samples=second)
        table.append({"first": generators[pair[0]], "second": generators[pair[1]], **result})
    frame = pd.DataFrame(table).rename(columns={"low": "tau_low", "high": "tau_high", "n": "models"})
    ordered = frame[frame["tau"].notna()]
    sentence = "No two generators order the models at all."
    if len(ordered):
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
        ranged("tau", "Kendall's τ", "number", 2),
        Column("p", "p", "p"),
        Column("models", "Models", "integer"),
        Column("reason", "Why not"),
    ]
    return Finding("Do they agree on the order", [sentence], frame, columns, caption="Agreement between generators")
