"""Accuracies and their intervals, against statsmodels and simulations with known truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from made_rows import table
from statsmodels.stats.proportion import proportion_confint

from holdfast.core.errors import UserError
from holdfast.stats.core.cells import accuracy, design_effect, stratified, summary, wilson
from holdfast.stats.core.reduce import reduce


def rows(answers: dict[str, list[bool]], *, condition: str = "original", **more: object) -> list[dict[str, object]]:
    return [
        {"model": "m", "condition": condition, "label": label, "source_id": f"{label}/{i}", "correct": right, **more}
        for label, rights in answers.items()
        for i, right in enumerate(rights)
    ]


def test_wilson_is_that_of_statsmodels() -> None:
    n, right = np.meshgrid(np.array([1, 2, 7, 50, 1300]), np.linspace(0, 1, 9))
    right = np.round(right * n)
    for level in (0.8, 0.95, 0.999):
        low, high = wilson(right, n, level)
        theirs = proportion_confint(right.ravel(), n.ravel(), alpha=1 - level, method="wilson")
        np.testing.assert_allclose(low.ravel(), theirs[0], atol=1e-12)
        np.testing.assert_allclose(high.ravel(), theirs[1], atol=1e-12)
    assert np.isnan(wilson(0, 0)).all()
    with pytest.raises(UserError, match="level"):
        wilson(1, 2, 95)


def test_macro_interval_keeps_a_width_at_the_ends() -> None:
    n = np.full(12, 10)
    low, high = stratified(n, n)
    assert 0.95 < low < 0.98
    assert high == 1
    assert stratified(0 * n, n) == pytest.approx((1 - high, 1 - low))
    constant = np.where(np.arange(12) == 3, 10, 0)
    low, high = stratified(constant, n)
    assert low < 1 / 12 < high


def test_accuracy_counts() -> None:
    frame = accuracy(reduce(table(rows({"cat": [True] * 3 + [False], "dog": [True] * 2}))))
    assert frame[["label", "n", "right", "accuracy"]].to_numpy().tolist() == [["cat", 4, 3, 0.75], ["dog", 2, 2, 1.0]]
    low, high = proportion_confint(3, 4, method="wilson")
    assert frame.loc[0, ["low", "high"]].tolist() == pytest.approx([low, high])


def test_outcomes_differ() -> None:
    made = rows({"cat": [False] * 4}, correct_restricted=True)
    counts = reduce(table(made))
    assert accuracy(counts, outcome="full")["accuracy"].item() == 0
    assert accuracy(counts, outcome="restricted")["accuracy"].item() == 1


def test_summary_averages_and_finds_the_worst() -> None:
    answers = {"cat": [True] * 9 + [False], "dog": [True] * 10 + [False] * 20, "fox": [True] * 5}
    counts = reduce(table(rows(answers)))
    macro, micro = (summary(counts, average=average).iloc[0] for average in ("macro", "micro"))
    assert macro["accuracy"] == pytest.approx((0.9 + 1 / 3 + 1) / 3)
    assert micro["accuracy"] == pytest.approx(24 / 45)
    assert (micro["low"], micro["high"]) == pytest.approx(proportion_confint(24, 45, method="wilson"))
    assert (macro["worst_class"], macro["worst_class_accuracy"]) == ("dog", pytest.approx(1 / 3))
    # the worst of three was picked by looking: Bonferroni
    theirs = proportion_confint(10, 30, alpha=0.05 / 3, method="beta")
    assert (macro["worst_class_low"], macro["worst_class_high"]) == pytest.approx(theirs)
    assert macro["worst_group"] == ""


def test_worst_group_is_class_on_background_class() -> None:
    made = []
    for donor, rights in (("sea", [False] * 5 + [True]), ("lawn", [True] * 6), ("moon", [False] * 2)):
        made += [
            row | {"source_id": f"{row['source_id']}{donor}"}
            for row in rows({"cat": rights}, condition="random_background", donor_label=donor, donor_id=donor)
        ]
    worst = summary(reduce(table(made))).iloc[0]
    # two images on the moon are too few to call it the worst
    assert (worst["worst_group"], worst["worst_group_donor"], worst["worst_group_n"]) == ("cat", "sea", 6)
    assert worst["worst_group_accuracy"] == pytest.approx(1 / 6)


def repeated(rng: np.random.Generator, photos: int, copies: int) -> pd.DataFrame:
    """Images whose own difficulty all of their rows share; mean accuracy 0.7."""
    easy = rng.beta(1.4, 0.6, photos)
    right = rng.random((photos, copies)) < easy[:, None]
    return pd.DataFrame(
        {
            "label": "a",
            "source_id": np.repeat([f"s{i}" for i in range(photos)], copies),
            "donor_id": None,
            "n": 1,
            "right": right.ravel().astype(int),
        }
    )


def test_repeated_photos_do_not_count_as_new_ones() -> None:
    rng = np.random.default_rng(14)
    covered, naive = 0, 0
    for _ in range(1000):
        frame = repeated(rng, 80, 4)
        share = frame["right"].mean()
        size = len(frame) / design_effect(frame, "right", by_class=False)
        low, high = wilson(share * size, size)
        covered += low <= 0.7 <= high
        low, high = wilson(share * 320, 320)
        naive += low <= 0.7 <= high
    assert 0.93 <= covered / 1000 <= 0.97
    assert naive / 1000 < 0.9


def test_repeated_rows_widen_both_tables() -> None:
    answers = {"cat": [True, False] * 10, "dog": [True] * 20}
    once = rows(answers)
    thrice = [row | {"sample_id": f"{row['source_id']}{copy}"} for row in once for copy in range(3)]
    ours, theirs = reduce(table(thrice)), reduce(table(once))
    pd.testing.assert_series_equal(accuracy(ours)["low"], accuracy(theirs)["low"], rtol=0.1)
    for average in ("macro", "micro"):
        wide, plain = (summary(counts, average=average) for counts in (ours, theirs))
        assert wide["low"].item() == pytest.approx(plain["low"].item(), abs=0.02)


def test_prompt_pairs_are_clusters() -> None:
    counts = reduce(table(rows({"cat": [True, True, False, False] * 10})))
    pairs = {f"cat/{i}": f"pair {i // 2}" for i in range(40)}
    plain, clustered = summary(counts), summary(counts, clusters=pairs)
    assert clustered["low"].item() < plain["low"].item() - 0.03
    with pytest.raises(UserError, match="cat/39"):
        summary(counts, clusters={key: value for key, value in pairs.items() if key != "cat/39"})


def test_conditions_come_in_the_order_asked_for() -> None:
    made = [row for name in ("grey", "original", "blur") for row in rows({"cat": [True]}, condition=name)]
    frame = summary(reduce(table(made), order=["grey", "blur"]))
    assert frame["condition"].tolist() == ["original", "grey", "blur"]
