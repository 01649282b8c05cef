"""``holdfast study metrics``: its statistics against references, and a rehearsal against its own runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import kendalltau, spearmanr

import holdfast
from holdfast import api
from holdfast.core.errors import UserError
from holdfast.stats.models.ranks import (
    MetricValues,
    correlate,
    correlates_more,
    mean_correlation,
    mean_of,
    spearman,
)
from holdfast_studies.metric_measures import (
    Metric,
    corrected_score,
    counted,
    load_models,
    own_hard_set,
    resample,
    share,
)
from holdfast_studies.metrics import STUDY
from holdfast_studies.study import StudyOptions, chosen, run_study
from holdfast_studies.trained.statistics import cross_part_pseudo_values

FEW = ["corrupted=3", "attacked=6", "walked=4", "pool_images=24", "other_scenes=12"]


def exact(*values: float, more_is_better: bool = True) -> MetricValues:
    """A metric without sampling noise."""
    found = np.array(values, np.float64)
    return MetricValues(found, np.tile(found, (400, 1)), more_is_better)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=4, max_size=12))
def test_rank_correlations_are_those_of_scipy(pairs: list[tuple[int, int]]) -> None:
    one, other = np.array(pairs, np.float64).T
    found = correlate(exact(*one), exact(*other))
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        assert found["reason"] and np.isnan(found["spearman"])
        return
    assert found["spearman"] == pytest.approx(spearmanr(one, other).statistic)
    assert found["tau"] == pytest.approx(kendalltau(one, other).statistic)
    assert -1 <= found["low"] <= found["spearman"] <= found["high"] <= 1
    assert found["images_low"] == found["images_high"] == pytest.approx(found["spearman"])
    assert found["n"] == len(pairs)


def test_more_is_better_of_both() -> None:
    error, accuracy = exact(0.1, 0.4, 0.2, 0.3, 0.5, more_is_better=False), exact(0.9, 0.6, 0.8, 0.7, 0.5)
    found = correlate(error, accuracy)
    assert found["spearman"] == pytest.approx(1) and found["p"] == pytest.approx(2 / 120)
    assert found["low"] < 0.9, "five models in one order are not certain to be in one order"


def test_a_model_without_a_value_is_left_out() -> None:
    one, other = exact(1, 2, 3, 4, np.nan), exact(2, 1, 4, 3, 9)
    assert correlate(one, other)["n"] == 4
    assert correlate(one, other)["spearman"] == pytest.approx(spearmanr([1, 2, 3, 4], [2, 1, 4, 3]).statistic)
    assert "3 models have both" in correlate(exact(1, 2, 3, np.nan), exact(1, 2, 3, 4))["reason"]


def test_one_model_left_out_at_a_time() -> None:
    found = correlate(exact(1, 2, 3, 4, 9), exact(4, 3, 2, 1, 9))
    assert (found["least"], found["most"]) == (pytest.approx(-1), pytest.approx(0.2))


@pytest.mark.parametrize(("models", "truth"), [(8, 0.79), (16, 0.0)])
def test_intervals_hold_the_truth_of_simulated_models(models: int, truth: float) -> None:
    rng = np.random.default_rng(0)
    pearson, held = 2 * np.sin(np.pi * truth / 6), 0
    for _ in range(80):
        one = rng.normal(size=models)
        other = pearson * one + np.sqrt(1 - pearson**2) * rng.normal(size=models)
        found = correlate(exact(*one), exact(*other))
        held += found["low"] <= truth <= found["high"]
    assert held / 80 > 0.89


def test_resamples_of_images_vary_as_theory_says() -> None:
    rng = np.random.default_rng(1)
    right = (rng.random((300, 4)) < np.array([0.9, 0.8, 0.6, 0.5])).astype(np.float64)
    scenes = [f"scene {i}" for i in range(300)]
    same = [Metric(key, key, "", "a", scenes, counted(right), share) for key in ("one", "two")]
    part = Metric("part", "part", "", "a", scenes[:60], counted(right[:60]), share)
    apart = Metric("apart", "apart", "", "b", scenes, counted(right), share)
    values = resample([*same, part, apart], seed=3)
    np.testing.assert_array_equal(values["one"].resampled, values["two"].resampled)
    assert np.abs(values["one"].resampled - values["apart"].resampled).max() > 0.01
    p = right.mean(axis=0)
    np.testing.assert_allclose(values["one"].measured, p)
    np.testing.assert_allclose(values["one"].resampled.std(axis=0), np.sqrt(p * (1 - p) / 300), rtol=0.08)
    assert values["one"].reliability() > 0.95 > values["part"].reliability()
    both = mean_of([values["one"], values["apart"]])
    np.testing.assert_allclose(both.resampled.std(axis=0), np.sqrt(p * (1 - p) / 600), rtol=0.08)


def test_the_score_is_that_of_pseudo_values() -> None:
    rng = np.random.default_rng(2)
    right = (rng.random((3, 5, 40)) < 0.7).astype(np.float64)  # models, conditions, scenes
    moved = (right[:, 1:] - right[:, :1]).transpose(2, 0, 1)
    parts = np.concatenate([np.ones_like(moved[:, :, :1]), moved, moved**2], axis=2)
    np.testing.assert_allclose(corrected_score(parts.sum(axis=0)), 1 - cross_part_pseudo_values(right).mean(axis=1))


def test_a_mean_of_correlations_and_a_difference_of_two() -> None:
    rng = np.random.default_rng(4)
    one, two, three = (exact(*rng.normal(size=7)) for _ in range(3))
    rhos = [spearmanr(a.measured, b.measured).statistic for a, b in ((one, two), (one, three), (two, three))]
    mean, low, high = mean_correlation({"one": one, "two": two, "three": three})
    assert mean == pytest.approx(np.mean(rhos)) and low < mean < high
    more, low, high = correlates_more(one, two, three)
    assert more == pytest.approx(rhos[1] - rhos[2]) and low < more < high
    assert np.isnan(spearman(np.ones((1, 5)), np.arange(5.0)[None])[0])
    same = exact(*range(5))  # all resamples have one order, which five models do not settle
    mean, low, high = mean_correlation({"one": same, "two": same})
    assert (mean, high) == (1, 1) and low < 0.9
    more, low, high = correlates_more(same, same, exact(1, 0, 2, 4, 3))
    assert more == 0 and np.isnan(low) and np.isnan(high)


def test_no_model_has_a_say_in_its_own_hard_set() -> None:
    rng = np.random.default_rng(5)
    failed = pd.DataFrame(rng.random((200, 5)) < 0.4, columns=list("abcde"))
    valid = rng.random(200) < 0.8
    before = own_hard_set(failed, list("abcde"), "a", valid)
    after = own_hard_set(failed.assign(a=~failed["a"]), list("abcde"), "a", valid)
    np.testing.assert_array_equal(before[:, 0], after[:, 0])
    np.testing.assert_array_equal(before[:, 1] + after[:, 1], before[:, 0])
    assert 0 < before[:, 0].sum() < 200 and not before[~valid].any()
    common = [own_hard_set(failed, list("cde"), name, valid)[:, 0] for name in "ab"]
    np.testing.assert_array_equal(*common)
    with pytest.raises(UserError, match="two surrogates other than"):
        own_hard_set(failed, list("ab"), "a", valid)


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("metrics")
    run_study("metrics", out, quick=True, device="cpu", assignments=FEW)
    return out


def table(out: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(out / "results" / f"{name}.parquet")


def accuracy(out: Path, run: str, *conditions: str) -> pd.Series:
    rows = api.open_run(out / "runs" / run).run.rows(["model", "condition", "correct", "status"]).to_pandas()
    assert (rows["status"] == "ok").all()
    rows["model"] = rows["model"].astype(str).str.removeprefix("embedded:")
    chosen = rows[rows["condition"].isin(conditions)] if conditions else rows
    return chosen.groupby("model")["correct"].mean()


@pytest.mark.slow
def test_the_values_are_those_of_the_runs(rehearsal: Path) -> None:
    found = table(rehearsal, "every-model").set_index("model")
    for column, expected in {
        "clean": accuracy(rehearsal, "static", "original"),
        "background": accuracy(rehearsal, "static", "same_class_background")
        - accuracy(rehearsal, "static", "random_background"),
        "corruption": 1 - accuracy(rehearsal, "corruptions"),
        "pgd": accuracy(rehearsal, "attack"),
        "other_2": accuracy(rehearsal, "other-2"),
    }.items():
        np.testing.assert_allclose(found[column], expected[found.index].astype(float), err_msg=column)
    walks = api.open_run(rehearsal / "runs" / "walks").fmr(measures=True)
    fmr = walks[(walks["label"] == "") & (walks["measure"] == "fmr")].set_index("model")["estimate"]
    np.testing.assert_allclose(found["fmr"], fmr[[f"embedded:{name}" for name in found.index]].astype(float))
    static = api.open_run(rehearsal / "runs" / "static")
    for column, over in (("score", "static"), ("background_score", "background")):
        debiased = static.scores(over=over, average="micro").set_index("model")["debiased"]
        np.testing.assert_allclose(found[column], debiased[[f"embedded:{name}" for name in found.index]], atol=1e-9)
    measured = table(rehearsal, "what-was-measured").set_index("metric")
    assert len(measured) == 8 + 3 and not measured["what"].str.startswith("left out").any()


@pytest.mark.slow
def test_the_correlations_are_those_of_the_values(rehearsal: Path) -> None:
    values = table(rehearsal, "every-model")
    pairs = table(rehearsal, "metrics-against-each-other").set_index(["first", "second"])
    assert len(pairs) == 28
    row = pairs.loc[("Corruption error", "Hard-set accuracy")]
    assert row["spearman"] == pytest.approx(-spearmanr(values["corruption"], values["hard"]).statistic)
    other = table(rehearsal, "metrics-and-accuracy-on-other-data").set_index(["first", "second"])
    assert len(other) == 8 * 4
    mean = values[["other_1", "other_2", "other_3"]].mean(axis=1)
    row = other.loc[("Hard-set accuracy", "Mean of these")]
    assert row["spearman"] == pytest.approx(spearmanr(values["hard"], mean).statistic)
    page = (rehearsal / "report" / "index.html").read_text(encoding="utf8")
    assert "Drawn scenes: the truth is known" in page and "A rehearsal" in page and "No model has a say" in page


@pytest.mark.slow
def test_what_own_images_do_not_allow_is_left_out_and_said(tmp_path: Path) -> None:
    for place, sample in enumerate(api.load_collection("diorama:test?n=24").samples):
        file = tmp_path / ("photos" if place < 12 else "others") / sample.label / f"{place}.png"
        file.parent.mkdir(parents=True)
        Image.fromarray(sample.image.load()).save(file)
    asked = {"data": tmp_path / "photos", "other": tmp_path / "others", "generator": "", "corrupted": 2, "attacked": 4}
    said = [f"{key}={value}" for key, value in asked.items()]
    run_study("metrics", tmp_path / "out", quick=True, device="cpu", assignments=said)
    what = table(tmp_path / "out", "what-was-measured").set_index("metric")["what"]
    assert list(what.index[:4]) == ["Clean accuracy", "Corruption error", "PGD accuracy", "others"]
    for title, why in {
        "Robustness score": "0 of 12 images have a mask",
        "Background effect": "0 of 12 images have a mask",
        "FMR": "walks need a generator",
        "Hard-set accuracy": "mining needs a pool",
    }.items():
        assert why in what[title]
    page = (tmp_path / "out" / "report" / "index.html").read_text(encoding="utf8")
    assert "Drawn scenes: the truth is known" not in page and "FMR was left out" in page


def test_every_model_of_a_folder(tmp_path: Path) -> None:
    assets = Path(holdfast.__file__).parent / "assets" / "classifiers"
    for name in ("resnet_rho0", "resnet_rho80"):
        shutil.copytree(assets / name, tmp_path / name)
    said = [f"models=local-dir:{tmp_path}/*,embedded:vit_rho95"]
    options = StudyOptions(tmp_path, chosen("metrics", STUDY.settings, said, quick=True))
    models = load_models(options, least=3)
    assert models.names == ["local-dir:resnet_rho0", "local-dir:resnet_rho80", "embedded:vit_rho95"]
    assert models.asked[0] == f"local-dir:{tmp_path}/resnet_rho0" and not models.opaque


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("models=embedded:vit_rho95,embedded:resnet_rho0", "name 4 or more"),
        ("models=local-dir:nowhere/*", "nowhere has no folder"),
        ("severities=0,6", "severities are whole numbers"),
        ("context=2", "context must be"),
        ("walked=1", "walked must be 2"),
        ("surrogates=embedded:vit_rho95", "two surrogates or more"),
    ],
)
def test_wrong_settings(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        run_study("metrics", tmp_path, assignments=[setting], quick=True, device="cpu")
    assert not (tmp_path / "study.json").exists()
