"""Variance of embeddings over crossed objects and backgrounds, against independent computations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from promises.trials_encoders import crossed

from holdfast.stats.effects.embedding import (
    _components,
    _part,
    _without_each,
    embeddings,
    nearest_images,
    variance_shares,
)


def table(cube: np.ndarray, **columns: object) -> tuple[pa.Table, pa.Table]:
    n, m, width = cube.shape
    ids = [f"r{i}-{j}" for i in range(n) for j in range(m)]
    rows = {"row_id": ids, "model": "features:a", "status": "ok", **columns}
    rows |= {
        "source_id": [f"s{i}" for i in range(n) for _ in range(m)],
        "donor_id": [f"b{j}" for _ in range(n) for j in range(m)],
    }
    vectors = pa.table({"row_id": ids[::-1], "values": [each.tolist() for each in cube.reshape(n * m, width)[::-1]]})
    return pa.Table.from_pandas(pd.DataFrame(rows)), vectors


def test_components_are_those_of_the_analysis_of_variance() -> None:
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    rng = np.random.default_rng(0)
    cube = crossed(rng, 7, 5, (0.5, 0.3, 0.2), width=2)
    expected = np.zeros(3)
    for column in range(2):
        i, j = np.indices((7, 5)).reshape(2, -1)
        frame = pd.DataFrame({"y": cube[:, :, column].reshape(-1), "a": i, "b": j})
        squares = anova_lm(smf.ols("y ~ C(a) + C(b)", frame).fit())["mean_sq"]
        rest = squares["Residual"]
        expected += [(squares["C(a)"] - rest) / 5, (squares["C(b)"] - rest) / 7, rest]
    np.testing.assert_allclose(_components(cube), expected)


def test_leaving_out_is_recomputing() -> None:
    cube = crossed(np.random.default_rng(1), 6, 4, (0.5, 0.3, 0.2), width=9)
    left = _without_each(cube)
    turned = _without_each(cube.swapaxes(0, 1))[[1, 0, 2]]
    for place in range(4):
        np.testing.assert_allclose(left[:, place], _components(np.delete(cube, place, 0)))
        np.testing.assert_allclose(turned[:, place], _components(np.delete(cube, place, 1)))


def test_components_are_unbiased_also_without_an_effect() -> None:
    rng = np.random.default_rng(2)
    means = np.mean([_components(crossed(rng, 8, 5, (0.6, 0.0, 0.4), width=16)) for _ in range(400)], axis=0)
    np.testing.assert_allclose(means, [0.6, 0.0, 0.4], atol=0.01)


def test_nearest_images_are_those_of_scikit_learn() -> None:
    from sklearn.neighbors import NearestNeighbors

    vectors = np.random.default_rng(3).normal(size=(50, 6))
    expected = NearestNeighbors(n_neighbors=2, metric="cosine").fit(vectors).kneighbors(vectors)[1][:, 1]
    assert np.array_equal(nearest_images(vectors), expected)


def test_the_table_of_an_encoder_that_sees_backgrounds_only() -> None:
    cube = np.repeat(np.random.default_rng(4).normal(size=(1, 6, 12)), 10, axis=0)
    row = embeddings(*table(cube)).iloc[0]
    assert (row["objects"], row["backgrounds"], row["width"], row["reason"]) == (10, 6, 12, "")
    assert row["background"] == pytest.approx(1) and row["object"] == pytest.approx(0)
    assert row["nearest_background"] == 1 and row["nearest_background_chance"] == pytest.approx(1 / 6)
    assert row["background_chance"] < 0.2


def test_chance_is_what_shuffled_backgrounds_leave() -> None:
    rng = np.random.default_rng(5)
    cube = crossed(rng, 12, 6, (0.1, 0.3, 0.6), width=8)
    row = embeddings(*table(cube)).iloc[0]
    unit = cube / np.linalg.norm(cube, axis=-1, keepdims=True)
    nearest = nearest_images(unit.reshape(72, -1))
    shares, variances = [], []
    for _ in range(300):
        label = np.stack([rng.permutation(6) for _ in range(12)])
        shares.append((label.reshape(-1)[nearest] == label.reshape(-1)).mean())
        parts = _components(np.take_along_axis(unit, label[:, :, None], 1))
        variances.append(parts[1] / parts.sum())
    assert row["nearest_background_chance"] == pytest.approx(np.mean(shares), abs=0.01)
    assert row["background_chance"] == pytest.approx(np.quantile(variances, 0.95), abs=0.006)


def test_incomplete_and_useless_embeddings() -> None:
    cube = crossed(np.random.default_rng(6), 9, 5, (0.5, 0.3, 0.2), width=8)
    status = ["ok"] * 45
    status[7] = "error"  # an object without one background is left out; a background of few objects as well
    for place in range(3, 40, 5):
        status[place] = "error"
    row = embeddings(*table(cube, status=status)).iloc[0]
    assert (row["objects"], row["backgrounds"]) == (8, 4)
    kept = variance_shares(np.delete(np.delete(cube / np.linalg.norm(cube, axis=-1, keepdims=True), 1, 0), 3, 1))
    assert row["background"] == pytest.approx(kept["background"].value)
    assert embeddings(*table(cube[:2])).iloc[0]["reason"].startswith("needs 3 objects on each of 3 backgrounds")
    assert "the same for every image" in embeddings(*table(np.ones((4, 4, 3)))).iloc[0]["reason"]


def test_the_background_has_no_part_in_an_explanation_of_nothing() -> None:
    assert _part(np.zeros(()), np.zeros(())) == 0
    assert _part(np.array([3.0, 0.0]), np.array([1.0, 0.0])).tolist() == [0.25, 0.0]
