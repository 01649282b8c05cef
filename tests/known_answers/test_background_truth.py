"""The pasted background effect against the true one: scenes painted again on their donor's background."""

from __future__ import annotations

from pathlib import Path

import known_classifiers as known
import numpy as np
import pandas as pd
import pytest

import holdfast
from holdfast.core.errors import UserError
from holdfast.diorama import render
from holdfast.pipeline.evaluate.background_truth import RERENDERED, compare_pasted_with_true, rerendered

AGREED = ["model", "n", "clean", "pasted", "true", "pasted_effect", "true_effect", "bias", "bias_low", "bias_high"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("truth")


@pytest.fixture(scope="module")
def table(folder: Path) -> pd.DataFrame:
    models = [f"python:known_classifiers:{name}" for name in ("Frame", "Object", "Seams")]
    found = compare_pasted_with_true(models, n=known.SCENES, context=1, seed=0, out=folder)
    assert found.columns.tolist()[: len(AGREED)] == AGREED
    return found.set_index(found["model"].str.rpartition(":")[2])


def test_the_numbers_are_those_of_the_one_table(table: pd.DataFrame, folder: Path) -> None:
    rows = holdfast.open_run(folder).run.rows().to_pandas()
    for name, column in (("original", "clean"), ("random_background", "pasted"), (RERENDERED, "true")):
        for model, one in table.iterrows():
            chosen = rows[(rows["condition"] == name) & rows["model"].str.endswith(f":{model}")]
            assert len(chosen) == one["n"] == known.SCENES
            assert chosen["correct"].mean() == pytest.approx(one[column])
    assert np.allclose(table["bias"], table["pasted_effect"] - table["true_effect"])
    assert np.allclose(table["corrected_bias"], table["corrected_effect"] - table["true_effect"])
    assert (table["bias_low"] <= table["bias"]).all() and (table["bias"] <= table["bias_high"]).all()


def test_a_reader_of_objects_has_no_background_effect(table: pd.DataFrame) -> None:
    one = table.loc["Object"]
    assert one["pasted_effect"] == one["true_effect"] == one["bias"] == 0
    assert -0.03 < one["bias_low"] < 0 < one["bias_high"] < 0.03


def test_a_reader_of_backgrounds_loses_all_either_way(table: pd.DataFrame) -> None:
    one = table.loc["Frame"]
    assert min(one["pasted_effect"], one["true_effect"]) > 0.9
    assert abs(one["bias"]) < 0.04 and abs(one["corrected_bias"]) < 0.06


def test_a_detector_of_seams_makes_the_pasted_effect_wrong_and_the_corrected_one_right(table: pd.DataFrame) -> None:
    one = table.loc["Seams"]
    assert one["pasted_effect"] > 0.8 and abs(one["true_effect"]) < 0.05
    assert one["bias_low"] > 0.75
    assert abs(one["corrected_effect"]) < 0.05 and one["corrected_bias_low"] < 0 < one["corrected_bias_high"]


def test_painted_and_pasted_have_the_same_donor(table: pd.DataFrame, folder: Path) -> None:
    run = holdfast.open_run(folder)
    rows = run.rows(["source_id", "condition", "donor_id"]).to_pandas()
    pasted = rows[rows["condition"] == "random_background"].drop_duplicates().set_index("source_id")["donor_id"]
    samples = run.run.samples().to_pandas()
    painted = samples[samples["condition"] == RERENDERED].set_index("source_id")["attributes"]
    assert len(painted) == len(pasted) == known.SCENES
    assert all(f'"donor_id":"{pasted[source]}"' in painted[source] for source in painted.index)


def test_only_the_background_is_painted_anew() -> None:
    drawn = holdfast.load_collection("diorama:test?n=24&context=1")
    both = rerendered(drawn, seed=0)
    assert both.samples[:24] == drawn.samples and len(both) == 48
    by_id = {sample.sample_id: sample for sample in both.samples}
    for before, after in zip(both.samples[:24], both.samples[24:], strict=True):
        assert (after.source_id, after.label, after.condition) == (before.sample_id, before.label, RERENDERED)
        old, new = render(before.image.scene), render(after.image.scene)
        whole, free = old.coverage == 255, old.coverage == 0
        assert np.array_equal(old.coverage, new.coverage)
        assert np.array_equal(old.image[whole], new.image[whole])
        assert (old.image[free] != new.image[free]).any(axis=1).mean() > 0.5
        donor = by_id[after.attributes["donor_id"]]
        assert donor.label != before.label
        assert after.image.scene.background == donor.image.scene.background != before.image.scene.background


def test_embedded_models(tmp_path: Path) -> None:
    one = compare_pasted_with_true(["embedded:vit_rho95"], n=48, context=0.95, seed=5, out=tmp_path).iloc[0]
    assert one["n"] == 48 and one["clean"] > 0.8
    # trained at ρ = 0.95, it leans on backgrounds however they came there
    assert one["true_effect"] > 0.2 and one["pasted_effect"] > 0.2
    assert one["bias_low"] <= one["bias"] <= one["bias_high"]


def test_photos_cannot_be_painted_anew(photos: Path) -> None:
    collection = holdfast.load_collection(str(photos))
    with pytest.raises(UserError, match="only drawn scenes"):
        rerendered(collection, seed=0)
