"""Errors of the regression are those of images, not of cells."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from made_grid import counts_of

from holdfast.stats.regression.clusters import photo_rows
from holdfast.stats.regression.fit import cells_from_counts, fit

CLASSES, EACH = ["beagle", "boxer", "pug", "samoyed"], 10
CONDITIONS = ["original", "grey", "pasted"]


def answers(rng: np.random.Generator, boxer: float = 0.0, donors: int = 0) -> pd.DataFrame:
    """Two models on ten images per class: an image is easy or hard for both of them under all conditions."""
    rows = []
    hardness = rng.normal(0, 0.8, max(donors, 1))
    for label in CLASSES:
        for photo in range(EACH):
            ease = rng.normal(0.4 + boxer * (label == "boxer"), 1.0)
            for condition in CONDITIONS:
                donor = int(rng.integers(donors)) if donors and condition == "pasted" else -1
                for model in ("m0", "m1"):
                    score = ease + rng.normal(0, 0.4) - (hardness[donor] if donor >= 0 else 0)
                    rows.append(
                        {"model": model, "condition": condition, "label": label, "source_id": f"{label}{photo}",
                         "donor_id": f"d{donor}" if donor >= 0 else "", "n": 1.0, "right": float(score > 0)}
                    )  # fmt: skip
    return pd.DataFrame(rows)


def cells_of(photos: pd.DataFrame) -> pd.DataFrame:
    summed = photos.groupby(["model", "condition", "label"], sort=False)[["n", "right"]].sum().reset_index()
    return summed.assign(accuracy=summed["right"] / summed["n"])


def test_errors_are_those_of_statsmodels_with_clusters() -> None:
    photos = answers(np.random.default_rng(1))
    result = fit(cells_of(photos), photos=photos)
    design = pd.get_dummies(photos[["model", "condition", "label"]], dtype=float)
    design = design[["model_m1", "condition_grey", "condition_pasted", "label_boxer", "label_pug", "label_samoyed"]]
    codes = pd.factorize(photos["source_id"])[0]
    reference = sm.WLS(photos["right"], sm.add_constant(design), weights=1 / EACH).fit(
        cov_type="cluster", cov_kwds={"groups": codes, "use_correction": False}
    )
    groups = len(CLASSES) * EACH
    wanted = reference.bse.to_numpy() * np.sqrt(groups / (groups - 1))
    np.testing.assert_allclose(result.coefficients["standard_error"], wanted, rtol=1e-9)
    assert result.errors == "photo"


def test_estimates_stay_and_the_published_errors_stand_beside() -> None:
    photos = answers(np.random.default_rng(2), donors=6)
    plain, clustered = fit(cells_of(photos)), fit(cells_of(photos), photos=photos)
    np.testing.assert_array_equal(plain.coefficients["estimate"], clustered.coefficients["estimate"])
    for name in ("standard_error", "low", "high", "t", "p", "stars"):
        assert list(plain.coefficients[name]) == list(clustered.coefficients[f"published_{name}"])
    assert (plain.errors, clustered.errors) == ("published", "image and donor")
    assert plain.adjusted_r_squared == clustered.adjusted_r_squared


@pytest.mark.parametrize("donors", [0, 8])
def test_ten_photos_of_a_class_are_ten_and_not_sixty(donors: int) -> None:
    """No class differs in truth. The published intervals of a class miss that far too often, the clustered seldom."""
    rng = np.random.default_rng(3)
    hits = {"": 0, "published_": 0}
    for _ in range(200):
        photos = answers(rng, donors=donors)
        row = fit(cells_of(photos), photos=photos).coefficients.set_index("term").loc["class[boxer]"]
        for kind in hits:
            hits[kind] += row[f"{kind}low"] <= 0 <= row[f"{kind}high"]
    assert 0.92 <= hits[""] / 200 <= 0.99
    assert hits["published_"] / 200 < 0.7


def test_a_photo_that_lends_many_backgrounds_widens_the_interval_of_the_paste() -> None:
    photos = answers(np.random.default_rng(4), donors=3)
    alone = fit(cells_of(photos), photos=photos.assign(donor_id="")).coefficients.set_index("term")
    lent = fit(cells_of(photos), photos=photos).coefficients.set_index("term")
    term = "scenario[pasted]"
    assert lent.loc[term, "standard_error"] >= alone.loc[term, "standard_error"]
    width = [frame.loc[term, "high"] - frame.loc[term, "low"] for frame in (lent, alone)]
    assert width[0] > 1.5 * width[1]  # three donors are three


def test_rows_of_counts_make_the_cells_again() -> None:
    rng = np.random.default_rng(5)
    counts = counts_of((rng.random((60, 2, 3)) < 0.7).astype(float), classes=6)
    cells, photos = cells_from_counts(counts), photo_rows(counts)
    summed = photos.groupby(["model", "condition", "label"])[["n", "right"]].sum()
    found = (summed["right"] / summed["n"]).loc[
        list(cells[["model", "condition", "label"]].itertuples(index=False, name=None))
    ]
    np.testing.assert_allclose(found, cells["accuracy"])
    result = fit(cells, photos=photos)
    assert result.errors == "photo" and result.coefficients["low"].notna().all()
