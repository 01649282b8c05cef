"""``holdfast study start``, ``step-size``, ``generator-swap``: where walks begin, their steps, who makes the images."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd

from holdfast.core.errors import UserError
from holdfast.core.numbers import number, percent
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.reports.page.words import listing
from holdfast.reports.study import Finding, StudyResult
from holdfast.stats.models.ranks import kendall_of
from holdfast.stats.walks.fmr import fmr_ranking
from holdfast_studies.study import Setting, Study, StudyOptions, dots_of, model_names, shortened
from holdfast_studies.walking import walks

STARTS = {"clean": "clean image", "fgsm": "FGSM image"}

START_MODELS = ("embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:vit_rho95")


def run_start(options: StudyOptions) -> StudyResult:
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
        facts={"models": rows["model"].nunique(), "test scenes": rows["sample_id"].nunique()},
    )


START_STUDY = Study(
    run_start, (*walks.walk_settings(START_MODELS, 96, step_size=0.03), Setting("epsilon", 0.003, "of FGSM, 0 to 1"))
)


def _each_start(rows: pd.DataFrame) -> Finding:
    frame = walks.family(rows, ["model", "way"])
    shown = frame.assign(name=shortened(frame["model"]))
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
        [*plain("text", model="Model", way="Start"), *walks.columns(*walks.MEASURES), *walks.COUNTS],
        chart=dots_of(shown, "fmr", line="way", row="name", title="FMR = PA / SA"),
        caption="FMR by start",
    )


def _differences(rows: pd.DataFrame) -> Finding:
    table: list[dict[str, Any]] = []
    sentences = []
    compared = [name for name in walks.MEASURES if name != "standard_accuracy"]
    for model, own in rows.groupby("model", sort=False):
        clean, attacked = (own[own["way"] == words] for words in STARTS.values())
        table.append({"model": model} | walks.differences(clean, attacked, compared))
        sentences.append(f"{model}: an FGSM start moves FMR by {walks.in_points(walks.change_of(table[-1], 'fmr'))}.")
    title = "FGSM start less clean start"
    columns = [Column("model", "Model"), *walks.columns(*compared, kind="points")]
    return Finding(title, sentences, pd.DataFrame(table), columns, caption=title)


PANELS = {
    "validation_rate": ("VR: validated share", True),
    "perturbed_accuracy": ("PA: accuracy on validated images", True),
    "fmr": ("FMR = PA / SA", True),
}


def run_step_size(options: StudyOptions) -> StudyResult:
    """Walk with every step size, and show what it does."""
    settings = options.settings
    sizes = sorted(set(settings["step_sizes"]))
    if len({f"{size:g}" for size in sizes}) < max(2, len(sizes)) or not all(
        np.isfinite(size) and size > 0 for size in sizes
    ):
        raise UserError("step_sizes must be two or more numbers above 0")
    ways = {f"{size:g}": {"step_size": size} for size in sizes}
    _, rows = walks.walk(options, model_names(settings["models"]), ways)
    rows = rows.assign(step_size=rows["way"].astype(float))
    return StudyResult(
        title="Step size",
        question=(
            "How does the size of a step change what is measured? The first image already contains one step, so a "
            f"large step may be rejected at once; a small one may not get anywhere in {settings['steps']} steps. Every "
            "scene walked against each model with each size. Intervals are at the 95 % level."
        ),
        findings=[_response(rows, sizes)],
        facts={"models": rows["model"].nunique(), "step sizes": len(sizes), "test scenes": rows["sample_id"].nunique()},
    )


STEP_SIZE_STUDY = Study(
    run_step_size,
    (
        *walks.walk_settings(("embedded:resnet_rho95", "embedded:vit_rho95"), 48),
        Setting("step_sizes", (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3), "in units of the latent", (0.001, 0.1)),
    ),
)


def _response(rows: pd.DataFrame, sizes: list[float]) -> Finding:
    frame = walks.family(rows, ["model", "step_size"])
    sentences = []
    for model, own in rows.groupby("model", sort=False):
        ends = frame[frame["model"] == model].set_index("step_size").loc[[sizes[0], sizes[-1]]]
        first, last = (own[own["step_size"] == size] for size in (sizes[0], sizes[-1]))
        rate, ratio = (walks.difference(first, last, name) for name in ("validation_rate", "fmr"))
        validated, survived = (
            " to ".join(percent(value) for value in ends[name]) for name in ("validation_rate", "fmr")
        )
        sentences.append(
            f"{model}: from a step of {sizes[0]:g} to one of {sizes[-1]:g}, VR goes from {validated} "
            f"({walks.in_points(rate)}) and FMR from {survived} ({walks.in_points(ratio)})."
        )
    drawn = frame.assign(line=shortened(frame["model"]))
    step = Column("step_size", "Step", "number", digits=4)
    return Finding(
        "What the step size does",
        sentences,
        frame,
        [Column("model", "Model"), step, *walks.columns(), *walks.BOUNDS, *walks.COUNTS],
        chart=lambda width: walks.curves(
            drawn, width, line="line", x="step_size", panels=PANELS, across="step size", few=True
        ),
        caption="VR, PA and FMR against the step size",
    )


OFFLINE = "offline"
STEP_SIZES = {
    "embedded:vqgan": 0.03, "embedded:tiny": 0.01, "embedded:ddim?steps=2": 0.01, "pixel:": 0.002,
    "noise:": 0.002, "rotate:": 0.1,
}  # fmt: skip
"""Generators for drawn scenes, each with a step that leaves room above and below: latents have unlike units."""
PAPER_STEP = 0.001
MODELS = (
    "embedded:resnet_rho0", "embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:convnext_rho95",
    "embedded:vit_rho95",
)  # fmt: skip


def run_generator_swap(options: StudyOptions) -> StudyResult:
    """Walk through every generator, rank the models, and compare the rankings."""
    settings = options.settings
    options.require(step_size=0)
    models = model_names(settings["models"], least=2)
    named = settings["generators"]
    generators = list(dict.fromkeys(each for name in named for each in (STEP_SIZES if name == OFFLINE else [name])))
    if len(generators) < 2:
        raise UserError("this study compares generators: name two or more with --set generators=A,B")
    sizes = {name: settings["step_size"] or STEP_SIZES.get(name, PAPER_STEP) for name in generators}
    _, rows = walks.walk(options, models, {name: {"generator": name, "step_size": sizes[name]} for name in generators})
    rows = rows.assign(generator=rows["way"], step_size=rows["way"].map(sizes))
    return StudyResult(
        title="Generator swap",
        question=(
            "Does the order of the models depend on what makes the images? Every scene walked against each model "
            f"through each generator, {settings['steps']} steps at most. Latents have unlike units, so step sizes are "
            "each generator's own, and FMR is compared between models, not between generators. Kendall's τ-b is 1 "
            "if two generators order the models alike and −1 if they reverse them; its interval is from "
            "resampled scenes. Intervals are at the 95 % level."
        ),
        findings=[_ranking(rows), _agreement(rows, options.seed)],
        facts={"models": len(models), "generators": len(generators), "scenes": rows["sample_id"].nunique()},
    )


GENERATOR_SWAP_STUDY = Study(
    run_generator_swap,
    (
        *walks.walk_settings(MODELS, 36, without=("generator",)),
        Setting("generators", (OFFLINE,), "what makes the images; offline stands for those that need no download",
                ("pixel:", "noise:", "rotate:", "embedded:vqgan")),
        Setting("step_size", 0.0, "for all generators; 0: for each its own, 0.001 if none is known"),
    ),
)  # fmt: skip


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
    measures = walks.columns("standard_accuracy", "reconstruction", "validation_rate", "perturbed_accuracy", "fmr")
    columns = [
        Column("generator", "Generator"),
        Column("step_size", "Step", "number", digits=4),
        Column("model", "Model"),
        *measures,
        Column("rank", "Rank", hint="models that cannot be distinguished share a rank"),
        *walks.COUNTS,
    ]
    return Finding(
        "FMR and rank under each generator",
        sentences,
        frame,
        columns,
        chart=dots_of(
            frame.assign(name=shortened(frame["model"])), "fmr", line="name", row="generator", title="FMR = PA / SA"
        ),
        caption="FMR of the models under each generator",
    )


def _agreement(rows: pd.DataFrame, seed: int) -> Finding:
    models, generators = (list(dict.fromkeys(rows[name])) for name in ("model", "generator"))
    pairs = itertools.product(generators, models)
    groups = [rows[(rows["generator"] == generator) & (rows["model"] == model)] for generator, model in pairs]
    # All generators and models share the resampled scenes, so that resampled orders belong together.
    measured, samples = walks.resampled(groups, "fmr", seed=seed)
    measured, samples = (values.reshape(-1, len(generators), len(models)) for values in (measured, samples))
    table = []
    for pair in itertools.combinations(range(len(generators)), 2):
        result = kendall_of(*((measured[0, place], samples[:, place]) for place in pair))
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
        *plain("text", first="Generator", second="Another"),
        ranged("tau", "Kendall's τ", "number", 2),
        Column("p", "p", "p"),
        Column("models", "Models", "integer"),
        Column("reason", "Why not"),
    ]
    return Finding("Do they agree on the order", [sentence], frame, columns, caption="Agreement between generators")
