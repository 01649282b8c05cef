"""The study of detectors, rehearsed: two tiny detectors trained, evaluated through the real pipeline and reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast import api
from holdfast.core.errors import UserError
from holdfast_studies.study import run_study
from holdfast_studies.trained import detectors

SMALLER = ["train=16", "batch=8", "scenes=12"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("detectors")
    run_study("detectors", out, assignments=SMALLER, quick=True, device="cpu")
    return out


def test_what_it_leaves(finished: Path) -> None:
    names = sorted(folder.name for folder in (finished / "models").iterdir())
    assert names == ["boxes-rho000-seed0", "boxes-rho100-seed0"]
    text = (finished / "report" / "index.html").read_text(encoding="utf8")
    assert "Drawn scenes: the truth is known there, and photographs may differ." in text and "A rehearsal" in text
    response = pd.read_parquet(finished / "results" / "the-response-to-the-dose.parquet")
    assert list(response["rho"]) == [0, 1]
    for name in detectors.MEASURES:
        assert (response[f"{name}_low"] <= response[name]).all() and (response[name] <= response[f"{name}_high"]).all()


def test_the_numbers_are_those_of_the_runs(finished: Path) -> None:
    models = pd.read_parquet(finished / "results" / "every-detector.parquet").set_index("model")
    rows = api.open_run(finished / "runs" / "context-100").objects(precision=False, resamples=50)
    original = rows[rows["condition"] == "original"].set_index("model")
    np.testing.assert_allclose(models["recall_home"], original.loc[models.index, "recall"])


def test_trained_detectors_are_loaded_by_name_and_refused_in_a_sentence(finished: Path, tmp_path: Path) -> None:
    name = f"local-dir:{finished / 'models' / 'boxes-rho000-seed0'}?task=detect"
    run = api.evaluate(
        "diorama:test?n=2&objects=1..2&size=128", models=[name], scenarios="original", out=tmp_path / "run"
    )
    assert run.is_detection and len(run.boxes.pictures) == 2
    with pytest.raises(UserError, match="not a folder of a small detector"):
        api.evaluate(
            "diorama:test?n=2&objects=1", models=[f"local-dir:{tmp_path}?task=detect"], scenarios="original",
            out=tmp_path / "other",
        )  # fmt: skip


def test_doses_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two or more numbers"):
        run_study("detectors", tmp_path / "nowhere", assignments=["rhos=0.5"], quick=True)
