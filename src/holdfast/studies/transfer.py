"""``holdfast study transfer``: images made against one model, shown to all the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.report.page.charts import density
from holdfast.report.page.tables import Column
from holdfast.report.page.words import percent, short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import interval, resampled_sums
from holdfast.studies import dynamic
from holdfast.studies.seeds import Estimate
from holdfast.studies.study import Setting, Study, StudyOptions

if TYPE_CHECKING:
    import pandas as pd

UNMOVED = "no step taken"

SETTINGS = (
    *dynamic.walk_settings(
        models=(
            "embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:convnext_rho95", "embedded:vit_rho95",
        ),
        scenes=96,
        steps=10,
        step_size=0.03,
    ),
    Setting("second", "", "folder of a second training of the first model, with another seed"),
)  # fmt: skip


def run(options: StudyOptions) -> StudyResult:
    """Make images against every model, and show them to every model."""
    settings = options.settings
    models = dynamic.models_of(settings)
    twin = f"local-dir:{settings['second']}" if settings["second"] else ""
    models = dynamic.models_of({"models": [models[0], *([twin] if twin else []), *models[1:]]}, least=2)
    results, walks = dynamic.walk_ways(options, {"": {}}, models, keep_images=True)
    if not walks["validated"].any():
        raise UserError(
            "the oracle accepted no image, so there is none to show; try a smaller step_size or another oracle"
        )
    shown = api.evaluate(
        f"manifest:{results.path / 'images' / 'manifest.parquet'}",
        models=models,
        scenarios="original",
        out=options.out / "runs" / "shown",
        seed=options.seed,
        device=options.device,
        progress=options.progress,
    )
    models = dynamic.called(models)
    answers = _answers(shown, walks)
    cells = _cells(walks, answers, models)
    twins = (models[0], models[1]) if twin else None
    return StudyResult(
        title="Transfer",
        question=(
            "Do images that were made against one model deceive the others, or that one only? Every scene walked "
            "against each model; the images that the oracle accepted were shown to all models. FMR of a cell is "
            "the accuracy of the tested model on the images made against another, over its accuracy on the originals. "
            f"The row “{UNMOVED}” has what the generator alone costs. Intervals are at the 95 % level."
            + ("" if twin else " A second training of one architecture was not given (--set second=FOLDER).")
        ),
        findings=[_matrix(cells, models), _own(walks, answers, models, twins, options.seed)],
        facts=[(str(len(models)), "models"), (str(settings["scenes"]), "test scenes")],
        note=dynamic.note(options),
        runs=["runs/walks", "runs/shown"],
    )


STUDY = Study(run, SETTINGS)


def _answers(shown: api.Results, walks: pd.DataFrame) -> pd.DataFrame:
    """made_against, tested, sample_id (of the scene), right: a row per validated image and model."""
    told = {row["sample_id"]: json.loads(row["attributes"]) for row in shown.run.samples().to_pylist()}
    rows = shown.rows(["sample_id", "model", "status", "correct"]).to_pandas()
    current = set(walks["parameters"])
    counts = [told[name]["parameters"] in current for name in rows["sample_id"]]
    rows = rows[np.array(counts) & (rows["status"].astype(str) == "ok")]
    frame = rows.assign(
        made_against=[told[name]["made_against"] for name in rows["sample_id"]],
        tested=rows["model"].astype(str),
        sample_id=[told[name]["made_from"] for name in rows["sample_id"]],
        right=rows["correct"].astype(bool),
    )
    known = frame.merge(walks.loc[walks["validated"], ["model", "sample_id"]].rename(columns={"model": "made_against"}))
    found: pd.DataFrame = known[["made_against", "tested", "sample_id", "right"]]
    return found


def crossed(walks: pd.DataFrame, answers: pd.DataFrame, against: str, tested: str) -> pd.DataFrame:
    """The scenes as the tested model saw them in their originals, and as images made against another model."""
    made = walks.loc[walks["model"] == against, ["sample_id", "source_id", "validated"]]
    originals = walks.loc[walks["model"] == tested, ["sample_id", "right_original", "right_reconstruction"]]
    seen = answers[(answers["made_against"] == against) & (answers["tested"] == tested)]
    seen = seen[["sample_id", "right"]].rename(columns={"right": "right_perturbed"})
    frame = made.merge(originals, on="sample_id").merge(seen, on="sample_id", how="left")
    right = frame["right_perturbed"].astype("boolean")
    # An image that could not be shown is as good as not made.
    return frame.assign(
        right_perturbed=right,
        validated=frame["validated"] & right.notna(),
        right_random_walk=None,
        model=tested,
        label="",
    )


def _cells(walks: pd.DataFrame, answers: pd.DataFrame, models: list[str]) -> pd.DataFrame:
    import pandas as pd

    made = []
    for against in models:
        for tested in models:
            one = dynamic.family(crossed(walks, answers, against, tested), ["model"])
            made.append(one.assign(made_against=against, tested=tested))
    frame = pd.concat(made, ignore_index=True)
    names = ["made_against", "tested"]
    measures = [f"{name}{end}" for name in dynamic.MEASURES for end in ("", "_low", "_high")]
    return frame[[*names, *measures, "n", "validated", "survived"]]


def _matrix(cells: pd.DataFrame, models: list[str]) -> Finding:
    import pandas as pd

    short = short_names(models)
    accuracy = pd.DataFrame(
        {
            "row": [short[name] for name in cells["made_against"]],
            "column": [short[name] for name in cells["tested"]],
            "estimate": cells["perturbed_accuracy"],
            "n": cells["validated"],
        }
    )
    alone = cells[cells["made_against"] == cells["tested"]]
    unmoved = pd.DataFrame({"row": UNMOVED, "column": alone["tested"].map(short), "estimate": alone["reconstruction"]})
    drawn = pd.concat([accuracy, unmoved.assign(n=alone["n"])]).dropna()
    sentences = []
    for name, own in zip(alone["tested"], alone["fmr"], strict=True):
        others = cells.loc[(cells["tested"] == name) & (cells["made_against"] != name), "fmr"]
        sentences.append(
            f"{name}: FMR {percent(own)} on images made against it, {percent(others.min())} to {percent(others.max())} "
            "on images made against others."
        )
    measures = dynamic.columns("standard_accuracy", "reconstruction", "perturbed_accuracy", "fmr")
    return Finding(
        "Made against one, shown to all",
        sentences,
        cells,
        [Column("made_against", "Made against"), Column("tested", "Tested on"), *measures, *dynamic.COUNTS],
        chart=lambda width: density(
            drawn, width, rows=[*short.values(), UNMOVED], columns=list(short.values())
        ),
        caption="Accuracy of the tested model (columns) on images made against another (rows)",
    )  # fmt: skip


def _own(
    walks: pd.DataFrame, answers: pd.DataFrame, models: list[str], twins: tuple[str, str] | None, seed: int
) -> Finding:
    """The cells by how model and images are related, each a mean over cells, with differences."""
    import pandas as pd

    pairs = [(against, tested) for against in models for tested in models]
    groups = [crossed(walks, answers, *pair) for pair in pairs]
    tables = np.stack([dynamic.counts_of(group) for group in dynamic.shared_images(groups)], axis=1)
    sums = resampled_sums(tables.reshape(len(tables), -1), np.arange(len(tables)), seed=seed)
    drawn = dynamic.measured(sums.reshape(len(sums), len(pairs), -1), "fmr")
    found = dynamic.measured(tables.sum(axis=0)[None], "fmr")
    kinds = {
        "own": [against == tested for against, tested in pairs],
        "second training": [
            bool(twins) and against != tested and {against, tested} == set(twins or ()) for against, tested in pairs
        ],
    }
    kinds["other"] = [not (own or second) for own, second in zip(*kinds.values(), strict=True)]
    chosen = {kind: np.flatnonzero(flags) for kind, flags in kinds.items() if any(flags)}

    def mean(kind: str) -> tuple[float, Any]:
        places = chosen[kind]
        return float(np.nanmean(found[0, places])), np.nanmean(drawn[:, places], axis=1)

    rows, sentences = [], []
    for kind in chosen:
        value, samples = mean(kind)
        low, high = (float(end) for end in interval(samples))
        row: dict[str, Any] = {
            "images": kind,
            "cells": len(chosen[kind]),
            "fmr": value,
            "fmr_low": low,
            "fmr_high": high,
        }
        if kind != "own":
            own, own_samples = mean("own")
            more = Estimate(value - own, *(float(end) for end in interval(samples - own_samples)))
            row |= {"more": more.value, "more_low": more.low, "more_high": more.high}
            words = {"second training": "its own second training", "other": "another model"}[kind]
            sentences.append(
                f"On images made against {words} FMR differs by {dynamic.in_points(more)} from that on images made "
                "against the model itself (means over models)."
            )
        rows.append(row)
    if not twins:
        sentences.append("A second training of one architecture was not given (--set second=FOLDER), so it is missing.")
    columns = [
        Column("images", "Images made against"),
        Column("cells", "Cells", "integer"),
        Column("fmr", "FMR, mean", "percent", "fmr_low", "fmr_high"),
        Column("more", "more than own", "points", "more_low", "more_high"),
    ]
    return Finding("Own images and those of others", sentences, pd.DataFrame(rows), columns)
