"""``holdfast study realism``: precision, recall and neighbours against brute force, and a rehearsal of the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast.core.errors import UserError
from holdfast_studies.prompt_measures import coverage, nearest, precision_recall
from holdfast_studies.realism import read_looks
from holdfast_studies.study import run_study


def features(count: int, shift: float, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(count, 3)) + shift).astype(np.float32)


def test_precision_and_recall_are_those_of_a_plain_count() -> None:
    real, made, k = features(40, 0, 1), features(30, 1.0, 2), 3

    def radius(points: np.ndarray, at: int) -> float:
        return sorted(np.linalg.norm(points - points[at], axis=1))[k]

    inside = [any(np.linalg.norm(point - real[at]) <= radius(real, at) for at in range(len(real))) for point in made]
    found = [any(np.linalg.norm(point - made[at]) <= radius(made, at) for at in range(len(made))) for point in real]
    assert precision_recall(real, made, k) == pytest.approx((np.mean(inside), np.mean(found)))
    near = [np.linalg.norm(made - real[at], axis=1).min() <= radius(real, at) for at in range(len(real))]
    assert coverage(real, made, k) == pytest.approx(np.mean(near))
    assert precision_recall(real, real, k) == (1.0, 1.0)
    assert precision_recall(real, real[:1].repeat(30, 0), k)[1] < 0.2  # one image again and again covers nothing


def test_the_nearest_neighbour_is_not_the_picture_itself() -> None:
    points = features(12, 0, 4)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    place, cosine = nearest(points, points, itself=True)
    assert (place != np.arange(12)).all() and (cosine < 1).all()
    assert (nearest(points, points)[0] == np.arange(12)).all()


def test_a_rehearsal_finds_that_a_pool_is_not_itself(tmp_path: Path) -> None:
    page = run_study("realism", tmp_path / "a", quick=True, device="cpu")
    table = pd.read_csv(tmp_path / "a" / "results" / "how-real-the-images-are.csv")
    assert len(table) == 2 and table["fid"].notna().all() and table["precision"].between(0, 1).all()
    shown = pd.read_csv(tmp_path / "a" / "results" / "what-the-images-show-unasked.csv")
    assert (shown["low"] <= shown["share"]).all() and (shown["share"] <= shown["high"]).all()
    assert (shown["surely"] <= shown["perhaps"]).all()
    text = page.read_text()
    assert "clip:embedded" in text and "Nearest neighbours" in text and "data:image/png;base64" in text
    # The same images as pool and reference: nothing is between them, and everything is a copy.
    same = ("data=diorama:test?n=24&context=0.95", "looks=-")
    run_study("realism", tmp_path / "b", quick=True, device="cpu", assignments=same)
    own = pd.read_csv(tmp_path / "b" / "results" / "how-real-the-images-are.csv").iloc[0]
    assert own["fid"] == pytest.approx(0, abs=1e-3) and own["precision"] == own["recall"] == 1 and table["fid"][0] > 1
    near = pd.read_csv(tmp_path / "b" / "results" / "nearest-neighbours.csv")
    assert near["cosine"].to_numpy() == pytest.approx(1, abs=1e-5)


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="NAME=TEXT"):
        read_looks(["people=a person"])
    with pytest.raises(UserError, match="clip:NAME"):
        run_study("realism", tmp_path / "a", quick=True, assignments=["features=timm:resnet50"])
    with pytest.raises(UserError, match="needs 12"):
        run_study("realism", tmp_path / "b", quick=True, device="cpu", assignments=["data=diorama:test?n=6"])
