"""The pasted and the true background effect as a study."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from holdfast.core.errors import UserError
from holdfast_studies.study import run_study


def test_it_reports_the_bias_of_every_model(tmp_path: Path) -> None:
    said = ["scenes=24", "models=embedded:resnet_rho95"]
    page = run_study("background-truth", tmp_path, assignments=said, quick=True, device="cpu")
    frame = pd.read_parquet(tmp_path / "results" / "how-far-pasting-is-from-the-truth.parquet")
    assert list(frame["model"]) == ["embedded:resnet_rho95"]
    assert list(frame["n"]) == [24]
    assert frame["bias"][0] == pytest.approx(frame["pasted_effect"][0] - frame["true_effect"][0])
    text = page.read_text(encoding="utf8")
    assert "Drawn scenes: the truth is known there, and photographs may differ." in text
    assert "embedded:resnet_rho95" in text


def test_too_few_scenes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="24 or more"):
        run_study("background-truth", tmp_path, assignments=["scenes=2"], device="cpu")
