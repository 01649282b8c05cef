"""Detectors whose answers follow from the pixels: the numbers and the verdict say what they do."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.results import Results

NAMES = ["known:perfect", "known:texture", "known:scene", "known:shift?pixels=40"]
CONDITIONS = "original,blur_background,same_class_background,random_background,only_background"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return holdfast.evaluate(
        "diorama:test?n=36&objects=1..3&size=64", models=NAMES, scenarios=CONDITIONS,
        out=tmp_path_factory.mktemp("known") / "run",
    )  # fmt: skip


def test_numbers_of_detectors_that_are_known(run: Results) -> None:
    rows = run.objects(resamples=100).set_index(["model", "condition"])
    perfect, texture, scene, shifted = (rows.loc[name] for name in NAMES)
    kept = ["original", "blur_background", "random_background"]
    assert perfect.loc[kept, "recall"].eq(1).all() and perfect["false_alarms"].eq(0).all()
    assert perfect.loc["original", "ap"] == pytest.approx(1)
    assert (
        perfect.loc["random_background", "recall_drop_low"] < 0 < perfect.loc["random_background", "recall_drop_high"]
    )
    assert texture.loc["random_background", "recall_drop"] == 1 and texture.loc["only_background", "still_seen"] == 1
    assert scene.loc["blur_background", "recall"] == 0 and scene.loc["blur_background", "wrong_class"] == 1
    assert scene.loc["blur_background", "wrong_class_change_low"] > 0.8
    assert shifted.loc["original", "recall"] == 0 and shifted.loc["original", "ap50"] < 0.1


def test_the_verdict_on_the_perfect_one(run: Results) -> None:
    rows = run.verdicts(resamples=100).set_index("model")
    assert rows.loc["known:perfect", "headline"] == "Sees the object, and does not rely on the background"
    # it loses everything as soon as anything is pasted, so pasted scenes cannot say what the background does
    assert rows.loc["known:texture", "verdict"] == "undecided"
    assert any("Paste artefact" in text for text in rows.loc["known:texture", "warnings"])


def test_the_gate_between_them(run: Results) -> None:
    worse = holdfast.compare(run, run, old_model="known:perfect", new_model="known:texture")
    assert worse.verdict == "failed" and "recall lost under" in worse.sentence
    table = holdfast.compare(run, run, old_model="known:perfect", new_model="known:perfect", margin=0.1).conditions
    assert table["verdict"].eq("passed").all()
