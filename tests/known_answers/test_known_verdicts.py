"""Classifiers whose ways are known get the verdict they deserve: real pixels, the real pipeline, the public API."""

from __future__ import annotations

import re

import known_classifiers as known
import numpy as np
import pandas as pd
import pytest

import holdfast

CONDITIONS = "original,same_class_background,random_background,only_background,silhouette"


def verdicts_of(folder, data: str, *names: str, **options) -> pd.DataFrame:
    models = [f"python:known_classifiers:{name}" for name in names]
    run = holdfast.evaluate(data, models=models, out=folder, scenarios=CONDITIONS, batch_size=64, **options)
    assert set(run.run.rows(["status"])["status"].to_pylist()) == {"ok"}
    table = run.verdicts(outcome="restricted", resamples=2000)
    return table.set_index(table["model"].str.rpartition(":")[2])


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return verdicts_of(tmp_path_factory.mktemp("known"), known.TIED, "Frame", "Object", "Seams", "Constant")


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("Frame", "background"), ("Object", "foreground"), ("Seams", "undecided"), ("Constant", "undecided")],
)
def test_each_gets_its_verdict(verdicts: pd.DataFrame, name: str, verdict: str) -> None:
    assert verdicts.loc[name, "verdict"] == verdict, verdicts.loc[name, "sentence"]


def test_the_reader_of_backgrounds_follows_them_and_nothing_else(verdicts: pd.DataFrame) -> None:
    one = verdicts.loc["Frame"]
    assert min(one["original"], one["only_background"], one["captured"], one["background_effect"]) > 0.9
    assert one["random_background"] < 0.1
    assert abs(one["object_effect"]) < 0.03
    assert not one["paste_artefact"] and one["warnings"] == []


def test_the_frame_is_background(verdicts: pd.DataFrame) -> None:
    """Or the verdict above would be about something else."""
    coverage = known.rendered(known.TIED).coverage
    inner = slice(known.FRAME, -known.FRAME)
    coverage = coverage.astype(float) / 255
    of_object = coverage.sum() - coverage[:, inner, inner].sum()
    assert of_object / (len(coverage) * (known.SIZE**2 - (known.SIZE - 2 * known.FRAME) ** 2)) < 0.01


def test_the_reader_of_objects_does_not_see_backgrounds(verdicts: pd.DataFrame) -> None:
    one = verdicts.loc["Object"]
    assert one["original"] == one["same_class_background"] == one["random_background"] == pytest.approx(1)
    assert one["captured"] == one["background_effect"] == 0
    assert one["object_effect"] == pytest.approx(1)
    assert one["only_background_p"] == 1
    assert not one["paste_artefact"] and one["warnings"] == []


def test_only_the_detector_of_seams_is_a_paste_artefact(verdicts: pd.DataFrame) -> None:
    assert verdicts.index[verdicts["paste_artefact"]].tolist() == ["Seams"]
    one = verdicts.loc["Seams"]
    assert one["original"] > 0.95 and one["same_class_background"] < 0.15
    assert any("Paste artefact" in warning for warning in one["warnings"])
    assert one["sees"] == "open" and "guessing on pasted scenes" in one["small_print"]


def test_a_constant_answer_is_not_judged(verdicts: pd.DataFrame) -> None:
    assert re.match(r"No verdict: answers \w+ to 144 of 144 unchanged images", verdicts.loc["Constant", "sentence"])


def test_a_reader_of_outlines_is_not_called_background(tmp_path) -> None:
    one = verdicts_of(tmp_path, known.TIED, "Silhouette", limit=96).iloc[0]
    assert one["verdict"] != "background", one["sentence"]
    assert one["background_effect"] < 0.1 and one["object_effect_low"] > 0.75
    assert one["original"] > 0.85 and one["silhouette_excess_low"] > 0.05
    assert any("outline alone" in warning for warning in one["warnings"])


def test_where_backgrounds_tell_nothing_their_reader_is_undecided(tmp_path) -> None:
    """The same classifier on scenes at ρ = 0: whatever made it *background* above is gone."""
    one = verdicts_of(tmp_path, known.UNTIED, "Frame").iloc[0]
    assert one["verdict"] == "undecided" and "guessing" in one["sentence"]
    assert one["original"] < 0.2


def test_seams_are_seen_in_pixels() -> None:
    """The detector's slope is about 1 for painted edges and far lower for pasted ones."""
    scenes = known.rendered(known.TIED)
    painted, pasted = [], []
    for number, (image, coverage) in enumerate(zip(scenes.images, scenes.coverage, strict=True)):
        other = scenes.images[(number + 12) % len(scenes.images)]  # of the same class
        painted.append(known.blending(image, coverage))
        pasted.append(known.blending(np.where((coverage > 127)[..., None], image, other), coverage))
    assert np.median(painted) > 0.8 and np.median(pasted) < 0.35
