"""The dose study, rehearsed: two tiny models trained, evaluated through the real pipeline and reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast import api
from holdfast.core.errors import UserError
from holdfast_studies.drawn import small_models
from holdfast_studies.drawn.classifiers import Size
from holdfast_studies.study import run_study
from holdfast_studies.trained import dose
from holdfast_studies.trained.statistics import cross_part_pseudo_values
from holdfast_studies.trained.trainings import right_answers

SMALLER = ["train=48", "batch=24"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dose")
    run_study("dose", out, assignments=SMALLER, quick=True, device="cpu")
    return out


def test_what_it_leaves(finished: Path) -> None:
    assert sorted(folder.name for folder in (finished / "models").iterdir()) == ["rho000-seed0", "rho100-seed0"]
    assert sorted(folder.name for folder in (finished / "runs").iterdir()) == ["context-000", "context-100"]
    text = (finished / "report" / "index.html").read_text(encoding="utf8")
    assert "Drawn scenes: the truth is known there, and photographs may differ." in text
    assert "A rehearsal" in text
    response = pd.read_parquet(finished / "results" / "the-response-to-the-dose.parquet")
    assert list(response["rho"]) == [0, 1]
    assert (response["background_effect_low"] <= response["background_effect"]).all()
    assert len(pd.read_parquet(finished / "results" / "is-it-monotone.parquet")) == len(dose.MEASURES)


def test_the_numbers_are_those_of_the_runs(finished: Path) -> None:
    """Against the tables of the runs themselves, by another way than the study's arrays."""
    models = pd.read_parquet(finished / "results" / "every-model.parquet").set_index("model")
    home = api.open_run(finished / "runs" / "context-100")
    anywhere = api.open_run(finished / "runs" / "context-000")
    accuracy = {
        (run, row.model, row.condition): row.accuracy
        for run, results in (("home", home), ("anywhere", anywhere))
        for row in results.accuracy(average="micro").itertuples()
    }
    for name, row in models.iterrows():
        pasted = accuracy["home", name, "same_class_background"] - accuracy["home", name, "random_background"]
        true = accuracy["home", name, "original"] - accuracy["anywhere", name, "original"]
        assert row["background_effect"] == pytest.approx(pasted)
        assert row["true_effect"] == pytest.approx(true)
    # The score's own cross part is the plain one; the study's is its jackknife.
    plain = home.scores(average="micro", resamples=100).set_index("model")["variance_cross"]
    answers = right_answers(home, list(models.index))
    for name in models.index:
        right = np.stack([answers.of(name, one) for one in ("original", *answers.scored)])
        means = right.mean(axis=1)
        assert np.square(means[1:] - means[0]).mean() == pytest.approx(plain[name])
        assert models["cross_part"][name] == pytest.approx(cross_part_pseudo_values(right[None]).mean())


def test_a_second_call_trains_and_evaluates_nothing(finished: Path) -> None:
    def files() -> dict[Path, int]:
        return {
            file: file.stat().st_mtime_ns
            for kind in ("models", "runs")
            for file in (finished / kind).rglob("*")
            if file.suffix in (".safetensors", ".parquet") and file.name != "samples.parquet"
        }

    before = files()
    run_study("dose", finished, assignments=SMALLER, quick=True, device="cpu")
    assert files() == before


def test_models_made_elsewhere_are_taken_and_others_refused(finished: Path, tmp_path: Path) -> None:
    wanted = small_models.dose_models((0.0, 1.0), 1)
    size = Size(train=48, test=24, epochs=1, batch=24, seconds=None)
    shutil.copytree(finished / "models", tmp_path / "models")
    told: list[tuple[int, int]] = []
    small_models.train_all(
        wanted, size, out=tmp_path / "models", work=tmp_path / "work", device="cpu",
        progress=lambda step, done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(2, 2)]
    assert not (tmp_path / "work").exists()
    longer = Size(train=48, test=24, epochs=2, batch=24, seconds=None)
    with pytest.raises(UserError, match="trained otherwise"):
        small_models.train_all(wanted, longer, out=tmp_path / "models", work=tmp_path / "work", device="cpu")


def test_a_training_follows_from_its_seed(finished: Path, tmp_path: Path) -> None:
    size = Size(train=48, test=24, epochs=1, batch=24, seconds=None)
    work = tmp_path / "work"
    shutil.copytree(finished / "work" / "scenes", work / "scenes")
    for seed in (0, 1):
        small_models.train_one(
            small_models.SmallModel("rho000", seed, 0.0), size, out=tmp_path / "models", work=work, device="cpu"
        )  # fmt: skip

    def hash_of(folder: Path) -> str:
        return str(json.loads((folder / "config.json").read_text())["holdfast"]["sha256"])

    assert hash_of(tmp_path / "models" / "rho000-seed0") == hash_of(finished / "models" / "rho000-seed0")
    assert hash_of(tmp_path / "models" / "rho000-seed1") != hash_of(finished / "models" / "rho000-seed0")


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("rhos=0.5", "two or more"),
        ("rhos=0,2", "0 to 1"),
        ("rhos=0.5,0.501", "a hundredth"),
        ("scenes=3", "scenes must be"),
        ("train=2", "at least one batch"),
    ],
)
def test_settings_that_make_no_study(said: str, answer: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=answer):
        run_study("dose", tmp_path, assignments=[said], quick=True, device="cpu")
