"""Agreement against statsmodels, scikit-learn and published worked examples."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from promises.trials_walks import raters
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats import inter_rater

from holdfast.core.errors import UserError
from holdfast.stats.people.agreement import agreement, cohen_kappa, fleiss_kappa, krippendorff_alpha, percent_agreement


def ratings(*raters: str) -> pd.DataFrame:
    """A rater a string, an item a character, '.' for missing."""
    return pd.DataFrame(
        {f"rater_{number}": [None if c == "." else c for c in one] for number, one in enumerate(raters)}
    )


# Krippendorff, "Computing Krippendorff's alpha-reliability" (2011), sections B and C; and the three-coder example
# of the encyclopaedia article on his alpha.
TWO_BINARY = ratings("0100000010", "1110010000")
FOUR_MISSING = ratings("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
THREE_MISSING = ratings(".....34121133.3", "1.213343.......", "..21344.21133.4")


def test_published_alphas() -> None:
    assert krippendorff_alpha(TWO_BINARY) == pytest.approx(0.095, abs=5e-4)
    assert krippendorff_alpha(FOUR_MISSING) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(THREE_MISSING) == pytest.approx(0.691, abs=5e-4)


def test_published_fleiss() -> None:
    # Fourteen raters, ten subjects, five categories; kappa 0.210.
    tally = [
        (0, 0, 0, 0, 14),
        (0, 2, 6, 4, 2),
        (0, 0, 3, 5, 6),
        (0, 3, 9, 2, 0),
        (2, 2, 8, 1, 1),
        (7, 7, 0, 0, 0),
        (3, 2, 6, 3, 0),
        (2, 5, 3, 2, 2),
        (6, 5, 2, 1, 0),
        (0, 2, 2, 3, 7),
    ]
    spread = pd.DataFrame([[c for c, count in enumerate(row) for _ in range(count)] for row in tally])
    assert fleiss_kappa(spread) == pytest.approx(0.210, abs=5e-4)
    assert fleiss_kappa(spread) == pytest.approx(inter_rater.fleiss_kappa(np.array(tally)))


random_ratings = st.integers(0, 10_000).map(np.random.default_rng).map(lambda rng: rng.integers(0, 3, (25, 4)))


@settings(max_examples=25, deadline=None)
@given(random_ratings)
def test_references(made: np.ndarray) -> None:
    frame = pd.DataFrame(made)
    tally, _ = inter_rater.aggregate_raters(made)
    assert fleiss_kappa(frame) == pytest.approx(inter_rater.fleiss_kappa(tally))
    pair = frame[[0, 1]]
    table = pd.crosstab(pd.Categorical(made[:, 0], [0, 1, 2]), pd.Categorical(made[:, 1], [0, 1, 2]), dropna=False)
    assert cohen_kappa(pair) == pytest.approx(inter_rater.cohens_kappa(table.to_numpy()).kappa)
    assert cohen_kappa(pair) == pytest.approx(cohen_kappa_score(made[:, 0], made[:, 1]))
    pairs = [(made[:, a] == made[:, b]).mean() for a in range(4) for b in range(a)]
    assert percent_agreement(frame) == pytest.approx(np.mean(pairs))
    # Without missing ratings, alpha is Fleiss' kappa with a small-sample term: 1 − α = (1 − κ)(1 − 1/N).
    assert 1 - krippendorff_alpha(frame) == pytest.approx((1 - fleiss_kappa(frame)) * (1 - 1 / made.size))


def test_table_with_intervals() -> None:
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 2, 200)
    frame = pd.DataFrame({f"r{k}": np.where(rng.random(200) < 0.85, truth, 1 - truth) for k in range(2)})
    got = agreement(frame).set_index("measure")
    reference = inter_rater.cohens_kappa(pd.crosstab(frame["r0"], frame["r1"]).to_numpy())
    row = got.loc["cohen_kappa"]
    assert (row["low"], row["high"]) == pytest.approx((reference.kappa_low, reference.kappa_upp), abs=0.03)
    assert (got["low"] <= got["estimate"]).all() and (got["estimate"] <= got["high"]).all()
    assert list(got["reason"]) == [""] * 4
    assert list(got["n"]) == [200] * 4


def test_what_cannot_be_computed_says_why() -> None:
    got = agreement(FOUR_MISSING).set_index("measure")
    assert "two raters" in got.loc["cohen_kappa", "reason"]
    assert "equally often" in got.loc["fleiss_kappa", "reason"]
    assert np.isnan(got.loc["fleiss_kappa", "estimate"])
    assert got.loc["krippendorff_alpha", "n"] == 11  # one item has a single rating
    same = agreement(ratings("aaaa", "aaaa")).set_index("measure")
    assert same.loc["percent_agreement", "estimate"] == 1
    assert "one category" in same.loc["cohen_kappa", "reason"]
    with pytest.raises(UserError, match="rated twice"):
        krippendorff_alpha(ratings("ab.", "..c"))


def test_full_agreement_of_few_items_leaves_disagreement_open() -> None:
    """Thirty items without a disagreement: one in eight may still be one (Clopper and Pearson: 11.6 %)."""
    found = agreement(ratings("ab" * 15, "ab" * 15, "ab" * 15)).set_index("measure")
    assert (found["estimate"].dropna() == 1).all() and (found["high"].dropna() == 1).all()
    share = found.loc["percent_agreement", "low"]
    assert 0.8 < share < 0.92
    assert found.loc["krippendorff_alpha", "low"] < share
    two = agreement(ratings("ab" * 5, "ab" * 4 + "aa")).set_index("measure")
    assert ((two["high"] - two["low"]) > 0.3).all()


@pytest.mark.parametrize(
    ("items", "people", "alpha", "share"), [(30, 3, 0.4, 0.9), (20, 2, 0.8, 0.5), (10, 3, 0.6, 0.5)]
)
def test_intervals_of_few_items_hold(items: int, people: int, alpha: float, share: float) -> None:
    counts = raters(np.random.default_rng(0), 150, items=items, people=people, alpha=alpha, share=share)
    assert counts["covers"][0] >= 0.89 * 150 and counts["wide"] == [150, 150]


def numbers(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.apply(pd.to_numeric)


def test_published_alphas_of_scales() -> None:
    # The same paper, section D: ordinal 0.815, interval 0.849.
    assert krippendorff_alpha(numbers(FOUR_MISSING), "ordinal") == pytest.approx(0.815, abs=5e-4)
    assert krippendorff_alpha(numbers(FOUR_MISSING), "interval") == pytest.approx(0.849, abs=5e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_interval_alpha_is_the_mean_squared_difference_within_over_that_overall(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(1, 6, (12, 4)).astype(float)
    table[rng.random(table.shape) < 0.2] = np.nan
    kept = [row[~np.isnan(row)] for row in table]
    kept = [row for row in kept if len(row) >= 2]
    everything = np.concatenate(kept)
    within = sum(((row[:, None] - row[None]) ** 2).sum() / (len(row) - 1) for row in kept) / len(everything)
    overall = ((everything[:, None] - everything[None]) ** 2).sum() / (len(everything) * (len(everything) - 1))
    assert krippendorff_alpha(pd.DataFrame(table), "interval") == pytest.approx(1 - within / overall)


def test_ordered_ratings_get_both_alphas_with_intervals() -> None:
    found = agreement(numbers(FOUR_MISSING), ordered=True).set_index("measure")
    for scale, value in (("ordinal", 0.815), ("interval", 0.849)):
        row = found.loc[f"krippendorff_alpha_{scale}"]
        assert row["estimate"] == pytest.approx(value, abs=5e-4)
        assert row["low"] < row["estimate"] <= row["high"]
