"""``holdfast study prompts``: its measures against other ways to the same numbers, and a rehearsal of the whole."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.linalg import sqrtm

from holdfast import api
from holdfast.core.errors import UserError
from holdfast_studies.prompt_measures import (
    clip_scores,
    diversity,
    frechet_distance,
    kernel_distance,
    seam,
    seam_against,
)
from holdfast_studies.study import run_study


def features(count: int, shift: float, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(count, 6)) + shift).astype(np.float32)


def test_fid_is_the_distance_of_two_normal_distributions() -> None:
    real, made = features(60, 0, 1).astype(np.float64), features(50, 0.4, 2).astype(np.float64)
    first, second = np.cov(real.T), np.cov(made.T)
    expected = np.square(real.mean(0) - made.mean(0)).sum() + np.trace(first + second - 2 * sqrtm(first @ second).real)
    assert frechet_distance(real.astype(np.float32), made.astype(np.float32)) == pytest.approx(expected, rel=1e-4)
    assert frechet_distance(features(60, 0, 1), features(60, 0, 1)) == pytest.approx(0, abs=1e-6)


def test_kid_is_the_unbiased_discrepancy_under_a_cubic_kernel() -> None:
    real, made = features(40, 0, 1), features(30, 0.4, 2)
    first, second = real[:30].astype(np.float64), made.astype(np.float64)

    def kernel(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return (one @ other.T / 6 + 1) ** 3

    n = 30
    own = [(kernel(one, one).sum() - np.trace(kernel(one, one))) / (n * (n - 1)) for one in (first, second)]
    expected = own[0] + own[1] - 2 * kernel(first, second).mean()
    assert kernel_distance(real, made) == pytest.approx(expected, rel=1e-5)
    before = torch.get_rng_state()
    assert kernel_distance(real, made) == kernel_distance(real, made)
    assert torch.equal(torch.get_rng_state(), before)


def test_diversity_is_the_mean_over_pairs_of_a_class() -> None:
    rows = features(7, 0, 3)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    groups = ["a", "a", "a", "b", "b", "b", "lonely"]
    pairs = [[1 - rows[i] @ rows[j] for i in own for j in own if i < j] for own in ([0, 1, 2], [3, 4, 5])]
    assert diversity(rows, groups) == pytest.approx(np.mean([np.mean(pair) for pair in pairs]), rel=1e-5)
    assert np.isnan(diversity(rows, list("abcdefg")))


def test_clip_scores_are_cosines_and_never_negative() -> None:
    rows = np.eye(3, dtype=np.float32)
    towards = np.stack([rows[0], -rows[1], (rows[2] + rows[0]) / np.sqrt(2)]).astype(np.float32)
    assert clip_scores(rows, towards) == pytest.approx([100, 0, 100 / np.sqrt(2)])


def test_a_seam_is_seen_where_a_picture_was_pasted_and_not_where_it_was_not() -> None:
    rng = np.random.default_rng(0)
    smooth = cv2.GaussianBlur(rng.integers(0, 256, (96, 96, 3), np.uint8), (0, 0), 3)
    mask = np.zeros((96, 96), bool)
    mask[30:66, 30:66] = True
    pasted = np.where(mask[..., None], smooth, np.clip(smooth.astype(int) + 60, 0, 255)).astype(np.uint8)
    assert 0.7 < seam(smooth, mask) < 1.4 < 3 < seam(pasted, mask)
    assert seam_against(smooth, smooth, mask) == 1
    assert seam_against(pasted, smooth, mask) == pytest.approx(seam(pasted, mask) / seam(smooth, mask))
    flat = np.zeros((96, 96, 3), np.uint8)
    assert np.isnan(seam(flat, mask)) and np.isnan(seam_against(smooth, flat, mask))


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prompts")
    run_study("prompts", out, quick=True, device="cpu")
    return out


def table(out: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(out / "results" / f"{name}.parquet")


@pytest.mark.slow
def test_the_drops_are_those_of_the_runs(rehearsal: Path) -> None:
    found = table(rehearsal, "what-each-strategy-costs").set_index(["strategy", "model"])
    originals = api.open_run(rehearsal / "runs" / "originals").run.rows().to_pandas()
    assert len(found) == 4
    for (strategy, model), row in found.iterrows():
        painted = pd.concat(
            api.open_run(rehearsal / "runs" / f"{strategy}-{seed}").run.rows().to_pandas() for seed in (0, 1)
        )
        after = painted[painted["model"] == model].groupby("source_id")["correct"].mean()
        before = originals[originals["model"] == model].set_index("source_id")["correct"].astype(float).loc[after.index]
        assert row["drop"] == pytest.approx((before - after).mean())
        assert row["drop_low"] <= row["drop"] <= row["drop_high"] and row["scenes"] == len(after)


@pytest.mark.slow
def test_the_page_has_the_prompts_the_pictures_and_what_it_measured_with(rehearsal: Path) -> None:
    page = (rehearsal / "report" / "index.html").read_text(encoding="utf8")
    assert "Drawn scenes: the truth is known" in page and "image and text towers of clip:embedded" in " ".join(
        page.split()
    )
    said = table(rehearsal, "the-words-and-the-images").set_index("strategy")
    assert said.loc["plain", "prompt"] == "{a class}" and said.loc["other", "examples"] in page
    looks = table(rehearsal, "how-the-images-look").set_index("strategy")
    assert {"fid", "kid", "clip_score", "seam", "recognised"} <= set(looks.columns)
    # Where nothing was asked there is nothing to see; what was asked is one of sixteen, and seen more often than that.
    assert np.isnan(looks.loc["plain", "background_seen"]) and looks.loc["other", "background_seen"] > 0.3
    assert page.count("data:image") >= 9


@pytest.mark.slow
def test_a_finished_study_makes_its_page_again_without_painting(rehearsal: Path) -> None:
    stamps = {path: path.stat().st_mtime_ns for path in (rehearsal / "work").rglob("*.png")}
    asked = table(rehearsal, "what-each-strategy-costs")
    run_study("prompts", rehearsal, quick=True, device="cpu")
    assert {path: path.stat().st_mtime_ns for path in (rehearsal / "work").rglob("*.png")} == stamps
    pd.testing.assert_frame_equal(table(rehearsal, "what-each-strategy-costs"), asked)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("seeds=0", "seeds must be 1"),
        ("oracle=classifier:embedded:resnet_rho0", "must be a clip:"),
        ("strategies=magazine", "no prompt strategy is called 'magazine'"),
        ("scenes=6", "scenes must be 12"),
        ("prompts=nowhere.toml", "is not a file"),
    ],
)
def test_wrong_settings(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        run_study("prompts", tmp_path, assignments=[setting], quick=True, device="cpu")
