"""``holdfast study transfer``: images made against one model, shown to all the others."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.numbers import percent
from holdfast.core.types import ORIGINAL
from holdfast.data.images import decode_image, read_file
from holdfast.reports.page.charts import density
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.reports.page.words import short_names
from holdfast.reports.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import estimated
from holdfast.stats.walks.walk_rows import PERTURBED
from holdfast.store import read_table
from holdfast_studies.study import Setting, Study, StudyOptions, collection_of, model_names
from holdfast_studies.walking import walks

UNMOVED = "no step taken"
NO_SECOND = "A second training of one architecture was not given (--set second=FOLDER)"
MODELS = ("embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:convnext_rho95", "embedded:vit_rho95")


def run(options: StudyOptions) -> StudyResult:
    """Make images against every model, and show them to every model."""
    settings = options.settings
    first, *others = model_names(settings["models"])
    second = [f"local-dir:{settings['second']}"] if settings["second"] else []
    models = model_names([first, *second, *others], least=2)
    results, rows = walks.walk(options, models, keep_images=True)
    if not rows["validated"].any():
        raise UserError(
            "the oracle accepted no image, so there is none to show; try a smaller step_size or another oracle"
        )
    answers = shown_images(options, results, rows, models, "shown")
    names = list(dict.fromkeys(rows["model"]))
    return StudyResult(
        title="Transfer",
        question=(
            "Do images that were made against one model deceive the others, or that one only? Every scene walked "
            "against each model; the images that the oracle accepted were shown to all models. FMR of a cell is "
            "the accuracy of the tested model on the images made against another, over its accuracy on the originals. "
            f"The row “{UNMOVED}” has what the generator alone costs. Intervals are at the 95 % level."
            + ("" if second else f" {NO_SECOND}.")
        ),
        findings=[_matrix(rows, answers, names), _own_and_others(rows, answers, names, bool(second), options.seed)],
        facts={"models": len(models), "test scenes": rows["sample_id"].nunique()},
    )


STUDY = Study(
    run,
    (
        *walks.walk_settings(MODELS, 96, step_size=0.03),
        Setting("second", "", "folder of a second training of the first model, with another seed"),
    ),
)


def shown_images(
    options: StudyOptions, results: api.Results, rows: pd.DataFrame, models: list[str], folder: str
) -> pd.DataFrame:
    """Show the images that walks left to models: made_against, tested, sample_id (of the scene) and right."""
    shown = api.evaluate(
        f"manifest:{results.path / 'images' / 'manifest.parquet'}",
        models=models,
        scenarios="original",
        labels=options.settings.get("labels") or None,
        **options.run_options(folder),
    )
    origins = {row["sample_id"]: json.loads(row["attributes"]) for row in shown.run.samples().to_pylist()}
    answers = shown.rows(["sample_id", "model", "status", "correct"]).to_pandas()
    current = set(rows["parameters"])
    counts = np.array([origins[name]["parameters"] in current for name in answers["sample_id"]], bool)
    answers = answers[counts & (answers["status"].astype(str) == "ok")]
    frame = answers.assign(
        made_against=[origins[name]["made_against"] for name in answers["sample_id"]],
        tested=answers["model"].astype(str),
        sample_id=[origins[name]["made_from"] for name in answers["sample_id"]],
        right=answers["correct"].astype(bool),
    )
    valid = rows.loc[rows["validated"], ["model", "sample_id"]].rename(columns={"model": "made_against"})
    known: pd.DataFrame = frame.merge(valid)[["made_against", "tested", "sample_id", "right"]]
    return known


def crossed(rows: pd.DataFrame, answers: pd.DataFrame, against: str, tested: str) -> pd.DataFrame:
    """Return walks with the tested model's answers to the originals and to the images made against another model."""
    made_images = rows.loc[rows["model"] == against, ["sample_id", "source_id", "validated"]]
    originals = rows.loc[rows["model"] == tested, ["sample_id", "right_original", "right_reconstruction"]]
    seen = answers[(answers["made_against"] == against) & (answers["tested"] == tested)]
    seen = seen[["sample_id", "right"]].rename(columns={"right": "right_perturbed"})
    frame = made_images.merge(originals, on="sample_id").merge(seen, on="sample_id", how="left")
    right = frame["right_perturbed"].astype("boolean")
    # An image that could not be shown counts as not made.
    return frame.assign(
        right_perturbed=right,
        validated=frame["validated"] & right.notna(),
        right_random_walk=None,
        model=tested,
        label="",
    )


ITSELF = "itself"


def swapped(
    options: StudyOptions, results: api.Results, rows: pd.DataFrame, models: list[str], way_of: Mapping[str, str]
) -> list[Finding]:
    """Show the images made against models of one kind to those of the other, and compare; nothing without images."""
    if not rows["validated"].any():
        return []
    answers = shown_images(options, results, rows, models, "swapped")
    groups = []
    for maker, tested in itertools.product(way_of, way_of):
        shown_to = way_of[tested] if way_of[tested] != way_of[maker] else f"{way_of[tested]}, another training"
        pair = crossed(rows, answers, maker, tested)
        groups.append(pair.assign(made_against=way_of[maker], tested_on=ITSELF if maker == tested else shown_to))
    frame = walks.family(pd.concat(groups, ignore_index=True), ["made_against", "tested_on"])
    kinds = list(dict.fromkeys(way_of.values()))
    sentences = []
    for maker, other in itertools.permutations(kinds, 2):
        at = frame[frame["made_against"] == maker].set_index("tested_on")["perturbed_accuracy"]
        sentences.append(
            f"Of images made against {maker} models, {percent(at[ITSELF])} are recognised by the model they were made "
            f"against and {percent(at[other])} by {other} ones."
        )
    sentences.append(
        "SA is that of the tested models, VR the share of images that the walk left. Intervals are over images, with "
        "the pairs of models of one row together."
    )
    columns = [*plain("text", made_against="Made against", tested_on="Tested on")]
    columns += [*walks.columns(), *walks.COUNTS]
    caption = "Images made against one kind, shown to others"
    return [Finding("Images swapped", sentences, frame, columns, caption=caption)]


def side_by_side(
    options: StudyOptions, results: api.Results, rows: pd.DataFrame, way_of: Mapping[str, str], *, most: int = 3
) -> Finding:
    """Return rows of images: an original, and what walks against each kind of model left of it, with predictions."""
    folder = results.path / "images"
    table = read_table(folder / "manifest.parquet").to_pandas()
    files = {(str(row.made_from), str(row.made_against)): folder / str(row.path) for row in table.itertuples()}
    first = {kind: name for name, kind in reversed(list(way_of.items()))}  # the first model of each kind
    valid = rows[rows["validated"]]
    by_model = {kind: set(valid.loc[valid["model"] == name, "sample_id"]) for kind, name in first.items()}
    both = sorted(set.intersection(*by_model.values()))[:most]
    originals = {sample.sample_id: sample for sample in collection_of(options).samples if sample.sample_id in both}
    predicted = _predictions(results, rows)
    pictures = {}
    for name in both:
        seen = ", ".join(f"{predicted[name, model, ORIGINAL]} ({kind})" for kind, model in first.items())
        pictures[f"{name} ({originals[name].label})"] = {
            f"original, predicted {seen}": originals[name].image.load()
        } | {
            f"made against: {kind}, predicted {predicted[name, model, PERTURBED]}": decode_image(
                read_file(files[name, model])
            )
            for kind, model in first.items()
        }
    sentence = (
        "Originals, and the results of walks against each kind of model that the oracle accepted. The model "
        "that an image was made against predicts what is under it."
    )
    if not pictures:
        sentence = "There is no original of which every kind of model left an accepted image."
    return Finding("Side by side", [sentence], rows=pictures)


def _predictions(results: api.Results, rows: pd.DataFrame) -> dict[tuple[str, str, str], str]:
    """Return (sample_id, model, condition) → prediction for originals and the walked images of ``rows``."""
    columns = ["sample_id", "model", "condition", "parameters", "prediction_restricted"]
    answers = results.rows(columns).astype(str)
    walked = (answers["condition"] == PERTURBED) & answers["parameters"].isin(set(rows["parameters"]))
    kept = answers[walked | (answers["condition"] == ORIGINAL)]
    keys = zip(*(kept[name].tolist() for name in ("sample_id", "model", "condition")), strict=True)
    return dict(zip(keys, kept["prediction_restricted"].tolist(), strict=True))


def _matrix(rows: pd.DataFrame, answers: pd.DataFrame, models: list[str]) -> Finding:
    cells = pd.concat(
        [
            walks.family(crossed(rows, answers, *pair), ["model"]).assign(made_against=pair[0], tested=pair[1])
            for pair in itertools.product(models, models)
        ],
        ignore_index=True,
    )
    measures = [f"{name}{end}" for name in walks.MEASURES for end in ("", "_low", "_high")]
    cells = cells[["made_against", "tested", *measures, "n", "validated", "survived"]]
    short = short_names(models)
    drawn = pd.DataFrame(
        {"row": cells["made_against"].map(short), "column": cells["tested"].map(short)}
        | {"estimate": cells["perturbed_accuracy"], "n": cells["validated"]}
    )
    alone = cells[cells["made_against"] == cells["tested"]]
    unmoved = pd.DataFrame({"row": UNMOVED, "column": alone["tested"].map(short), "estimate": alone["reconstruction"]})
    drawn = pd.concat([drawn, unmoved.assign(n=alone["n"])]).dropna()
    sentences = []
    for name, own in zip(alone["tested"], alone["fmr"], strict=True):
        others = cells.loc[(cells["tested"] == name) & (cells["made_against"] != name), "fmr"]
        sentences.append(
            f"{name}: FMR {percent(own)} on images made against it, {percent(others.min())} to {percent(others.max())} "
            "on images made against others."
        )
    shown = walks.columns("standard_accuracy", "reconstruction", "perturbed_accuracy", "fmr")
    return Finding(
        "Made against one, shown to all",
        sentences,
        cells,
        [*plain("text", made_against="Made against", tested="Tested on"), *shown, *walks.COUNTS],
        chart=lambda width: density(drawn, width, rows=[*short.values(), UNMOVED], columns=list(short.values())),
        caption="Accuracy of the tested model (columns) on images made against another (rows)",
    )


def _own_and_others(
    rows: pd.DataFrame, answers: pd.DataFrame, models: list[str], has_second: bool, seed: int
) -> Finding:
    """Average FMR over the cells of one kind: own images, those of a second training, those of other models."""
    pairs = list(itertools.product(models, models))
    measured, samples = walks.resampled([crossed(rows, answers, *pair) for pair in pairs], "fmr", seed=seed)
    twins = set(models[:2]) if has_second else set()
    kinds = ["own" if len(set(pair)) == 1 else "second training" if set(pair) == twins else "other" for pair in pairs]

    def mean(kind: str) -> tuple[float, Any]:
        places = [place for place, own_kind in enumerate(kinds) if own_kind == kind]
        return float(np.nanmean(measured[places])), np.nanmean(samples[:, places], axis=1)

    own, own_samples = mean("own")
    table, sentences = [], []
    for kind in ("own", "second training", "other"):
        if kind not in kinds:
            continue
        value, drawn = mean(kind)
        row: dict[str, Any] = {"images": kind, "cells": kinds.count(kind), **estimated(value, drawn).row("fmr")}
        if kind != "own":
            more = estimated(value - own, drawn - own_samples)
            row |= more.row("more")
            words = {"second training": "its own second training", "other": "another model"}[kind]
            sentences.append(
                f"On images made against {words} FMR differs by {walks.in_points(more)} from that on images made "
                "against the model itself (means over models)."
            )
        table.append(row)
    if not has_second:
        sentences.append(f"{NO_SECOND}, so it is missing.")
    columns = [
        Column("images", "Images made against"),
        Column("cells", "Cells", "integer"),
        ranged("fmr", "FMR, mean"),
        ranged("more", "more than own", "points"),
    ]
    return Finding("Own images and those of others", sentences, pd.DataFrame(table), columns)
