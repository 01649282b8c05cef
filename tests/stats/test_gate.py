import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_grid import counts_of
from made_rows import table
from scipy import stats
from scipy.optimize import minimize_scalar

from holdfast.core.errors import UserError
from holdfast.stats.core.reduce import reduce
from holdfast.stats.models.gate import check_floor, gate, more_photos
from holdfast.stats.models.noninferiority import (
    LEAST_DONORS,
    Differences,
    bounds,
    exact_p_values,
    of_photos,
    p_values,
    score,
    statistic,
)


def answers(old: np.ndarray, new: np.ndarray):
    """Counts of one image × condition table of answers each."""
    return counts_of(old[:, None]), counts_of(new[:, None])


def changed(n: int, better: int, worse: int) -> Differences:
    return of_photos(np.array([1.0] * better + [-1.0] * worse + [0.0] * (n - better - worse)))


def restricted_score(better: int, worse: int, n: int, null: float) -> float:
    """The same statistic from its definition: the likelihood maximised numerically under the hypothesis."""

    def loss(q: float) -> float:
        cells = ((better, q + null), (worse, q), (n - better - worse, 1 - 2 * q - null))
        return -sum(count * np.log(max(share, 1e-300)) for count, share in cells if count)

    q = minimize_scalar(loss, bounds=(max(0, -null), (1 - null) / 2), method="bounded", options={"xatol": 1e-12}).x
    return (better - worse - n * null) / np.sqrt(n * (2 * q + null - null**2))


@pytest.mark.parametrize(("better", "worse", "n", "null"), [(3, 9, 100, -0.02), (0, 4, 60, -0.1), (20, 11, 90, 0.05)])
def test_score_is_the_restricted_likelihood_score(better, worse, n, null):
    assert score(better, worse, n, null) == pytest.approx(restricted_score(better, worse, n, null), rel=1e-5)


def test_score_is_mcnemar_at_zero():
    assert score(10, 5, 100, 0) == pytest.approx(5 / np.sqrt(15))


@pytest.mark.parametrize("n", [12, 120, 1000])
def test_bounds_where_nothing_changed_cover_the_exact_ones_of_none_of_n(n):
    low, high = bounds(changed(n, 0, 0))
    exact = stats.binomtest(0, n, alternative="less").proportion_ci(0.95).high
    assert -low >= exact and high >= exact


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 80), st.integers(0, 80), st.integers(0, 80), st.floats(-0.9, 0.9))
def test_bounds_are_where_the_test_begins_to_reject(n, better, worse, null):
    better, worse = min(better, n), min(worse, max(0, n - better))
    differences = changed(n, better, worse)
    low, high = bounds(differences)
    assert -1 <= low <= differences.mean + 1e-9 and differences.mean - 1e-9 <= high <= 1
    mirrored = bounds(of_photos(-differences.photos))
    assert mirrored == pytest.approx((-high, -low), abs=1e-6)
    above, below = p_values(differences, null)
    if min(abs(null - low), abs(null - high)) > 1e-4:
        assert (low > null) == (above <= 0.05) and (high < null) == (below <= 0.05)


@pytest.mark.parametrize("photos", [[0.5] * 3 + [0] * 57, [1, -0.5] * 6 + [0] * 20, [-0.25] * 30 + [0] * 9])
def test_bounds_of_photos_with_several_rows_are_where_the_test_begins_to_reject(photos):
    differences = of_photos(np.array(photos, float))
    low, high = bounds(differences)
    for null in np.linspace(-0.4, 0.4, 41):
        above, below = p_values(differences, null)
        assert (low > null) == (above <= 0.05) and (high < null) == (below <= 0.05)


@pytest.mark.parametrize(("n", "tail"), [(12, 0.05), (36, 0.05), (36, 0.002)])
def test_bounds_cover_over_all_outcomes(n, tail):
    outcomes = [(b, c) for b in range(n + 1) for c in range(n + 1 - b)]
    ends = np.array([bounds(changed(n, b, c), tail=tail) for b, c in outcomes])
    better, worse = np.array(outcomes).T
    for changing in (0.02, 0.1, 0.3, 0.6, 0.95, 1.0):
        for gain in np.linspace(0, changing, 9):
            truth = 2 * gain - changing
            shares = [gain, changing - gain, 1 - changing]
            chance = stats.multinomial.pmf(np.stack([better, worse, n - better - worse], axis=1), n, shares)
            assert chance[ends[:, 0] > truth].sum() <= tail and chance[ends[:, 1] < truth].sum() <= tail


def test_bounds_do_not_know_the_margin():
    """34 of 36 images lost: no valid bound is beyond −80.7 (if none could be gained, −83.5)."""
    old, new = np.ones((36, 3)), np.ones((36, 3))
    old[34:, 0], new[:, 0] = 0, 0
    new[:3, 1], old[3:5, 1] = 0, 0
    rows = [gate(*answers(old, new), margin=margin).conditions for margin in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)]
    ends = [row[["low", "high"]].to_numpy() for row in rows]
    assert all((part == ends[0]).all() for part in ends)
    assert -0.835 < ends[0][0, 1] < -0.80 and ends[0][0, 0] < -34 / 36


def clustered_differences(rng: np.random.Generator, *, photos: int, rows: int, donors: int, loss: float):
    """Rows of images that are lost or gained together, by image and by donor; the mean is −loss."""
    photo, donor = np.repeat(np.arange(photos), rows), rng.integers(0, donors, photos * rows)
    shift = (rng.random(donors) < 0.3)[donor] * 0.2 - 0.06
    lost = rng.random(photos * rows) < loss + 0.1 + shift
    gained = ~lost & (rng.random(photos * rows) < 0.1 / (0.9 - loss - shift))
    value = (gained.astype(float) - lost) / rows
    differences = Differences.of(np.bincount(photo, value), photo, donor, value, np.full(len(photo), 1 / rows))
    return differences


@pytest.mark.parametrize(("rows", "donors"), [(1, 12), (1, 40), (3, 12)])
def test_bounds_cover_with_donors(rows, donors):
    rng = np.random.default_rng(0)
    ends = np.array(
        [bounds(clustered_differences(rng, photos=100, rows=rows, donors=donors, loss=0.1)) for _ in range(400)]
    )
    assert (ends[:, 0] > -0.1).mean() <= 0.06 and (ends[:, 1] < -0.1).mean() <= 0.06


def pass_rate(n: int, changing: float, truth: float, margin: float) -> tuple[float, float]:
    """Exact chance to pass and to fail (one condition), over all outcomes of n images."""
    gain, loss = (changing + truth) / 2, (changing - truth) / 2
    passed = failed = 0.0
    gains = stats.binom.pmf(np.arange(n + 1), n, gain)
    for better in np.flatnonzero(gains > 1e-6):
        losses = stats.binom.pmf(np.arange(n - better + 1), n - better, loss / (1 - gain))
        for worse in np.flatnonzero(losses > 1e-6):
            above, below = exact_p_values(int(better), int(worse), n, -margin)
            passed += gains[better] * losses[worse] * (above <= 0.05)
            failed += gains[better] * losses[worse] * (below <= 0.05)
    return passed, failed


@pytest.mark.parametrize(("n", "margin"), [(24, 0.05), (60, 0.05), (60, 0.02)])
@pytest.mark.parametrize("changing", [0, 0.01, 0.06])
def test_both_errors_at_the_margin_are_at_most_five_percent_over_all_outcomes(n, margin, changing):
    passed, failed = pass_rate(n, changing + margin, -margin, margin)
    assert passed <= 0.05 and failed <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("n", "margin"), [(120, 0.02), (120, 0.05), (300, 0.02)])
@pytest.mark.parametrize("changing", [0, 0.005, 0.02, 0.08, 0.25])
def test_both_errors_at_the_margin_at_length(n, margin, changing):
    passed, failed = pass_rate(n, changing + margin, -margin, margin)
    assert passed <= 0.05 and failed <= 0.05


def donor_counts(rng: np.random.Generator, donors: int, lost: float):
    rows = [
        {"model": "m", "condition": "random_background", "label": "x", "source_id": f"s{i:03}", "correct": True,
         "donor_id": f"d{rng.integers(donors)}", "donor_label": "y"}
        for i in range(200)
    ]  # fmt: skip
    worse = [row | {"correct": rng.random() >= lost} for row in rows]
    return reduce(table(rows)), reduce(table(worse))


def test_enough_donors_are_counted_in_words():
    result = gate(*donor_counts(np.random.default_rng(0), 5, 0.0), margin=0.3, conditions=["random_background"])
    assert result.sentence.endswith(
        "Images that got the same new background count together; the test errs in at most 5 %."
    )


def test_too_few_donors_are_refused_in_words():
    rng = np.random.default_rng(0)
    result = gate(*donor_counts(rng, 4, 0.0), conditions=["random_background"])
    assert result.verdict == "undecided"
    assert f"4 donors cannot carry a gate, give at least {LEAST_DONORS}" in result.conditions["sentence"].iloc[0]
    row = gate(*donor_counts(rng, 40, 0.0), conditions=["random_background"]).conditions.iloc[0]
    assert row["donors"] == 40 and "on 200 images with 40 donors" in row["sentence"] and row["verdict"] == "passed"
    assert gate(*donor_counts(rng, 40, 0.2), conditions=["random_background"]).verdict == "failed"


def test_false_pass_with_several_rows_a_photo():
    rng = np.random.default_rng(1)
    for n in (30, 150):
        old = rng.binomial(4, 0.8, (3000, n)) / 4
        new = np.minimum(1, rng.binomial(4, 0.75, (3000, n)) / 4)
        z = np.array([statistic(of_photos(row), -0.05) for row in new - old])
        assert (z >= stats.t.ppf(0.95, n - 1)).mean() <= 0.06


def test_power_where_the_new_model_is_as_good():
    passed, _ = pass_rate(600, 0.04, 0.0, 0.03)
    assert passed > 0.9


def test_verdicts_and_sentences():
    old = np.ones((400, 3))
    new = np.ones((400, 3))
    new[:40, 1] = 0  # ten points lost
    new[:10, 2] = 0  # 2.5 points lost: about the margin
    result = gate(*answers(old, new), margin=0.02)
    verdicts = dict(zip(result.conditions["condition"], result.conditions["verdict"], strict=True))
    assert verdicts == {"original": "passed", "c1": "failed", "c2": "undecided"}
    assert result.verdict == "failed" and result.sentence == "Failed: more than 2 points lost under c1."
    assert gate(*answers(old[:, [0]], new[:, [0]])).verdict == "passed"
    undecided = gate(*answers(old[:, [0, 2]], new[:, [0, 2]]))
    assert undecided.verdict == "undecided" and np.isnan(undecided.more_photos)  # 2.5 points are about the margin of 2
    assert "more images would decide" not in undecided.sentence
    assert "how many more would decide cannot be estimated" in undecided.conditions["sentence"].iloc[1]
    row = result.conditions.set_index("condition").loc["c1"]
    assert (row["better"], row["worse"], row["n"]) == (0, 40, 400) and row["difference"] == pytest.approx(-0.1)
    assert row["high"] < -0.02 and np.isnan(row["more_photos"])


def test_failing_is_corrected_over_conditions_passing_is_not():
    old, new = np.ones((300, 8)), np.ones((300, 8))
    new[:11, 0] = 0  # 3.7 points: p_fail just below .05 by itself
    alone = gate(*answers(old[:, [0]], new[:, [0]]))
    assert alone.verdict == "failed" and 0.005 < alone.conditions["p_fail"].iloc[0] < 0.05
    family = gate(*answers(old, new))
    assert family.conditions["p_fail"].iloc[0] == pytest.approx(8 * alone.conditions["p_fail"].iloc[0])
    assert family.conditions["verdict"].iloc[0] == "undecided"
    assert (family.conditions["verdict"].iloc[1:] == "passed").all()
    assert family.conditions["p_pass"].iloc[0] == pytest.approx(alone.conditions["p_pass"].iloc[0])


def test_an_undecided_condition_says_why():
    same = np.tile([1.0, 0, 1, 1, 0], 8)[:, None]
    alike = gate(*answers(same, same), margin=0.02).conditions["sentence"][0]
    assert "40 images without any change cannot exclude a loss of 2 points" in alike
    old, new = np.ones((300, 8)), np.ones((300, 8))
    new[:11, 0] = 0
    kept = gate(*answers(old, new)).conditions["sentence"].iloc[0]
    assert "alone it would have failed, but Holm's correction over all conditions asks for more" in kept


def test_a_comparison_says_who_is_better_on_what_and_what_to_do():
    def rows(model, right):
        return [
            {"model": model, "condition": name, "source_id": f"p{photo}", "label": "a",
             "correct": bool(hits[photo])}
            for name, hits in right.items() for photo in range(60)
        ]  # fmt: skip

    plain, half, most = np.ones(60), np.arange(60) < 30, np.arange(60) < 50
    tables = (
        rows("old", {"original": plain, "grey": half, "red": most}),
        rows("new", {"original": plain, "grey": most, "red": half}),
    )
    result = gate(*(reduce(table(part)) for part in tables))
    better, following = result.advice()
    assert better == (
        "new is better under grey, worse under red; elsewhere which is better is inconclusive (60 images)."
    )
    assert result.verdict == "failed" and following.startswith("Next: keep the old model")
    few = (
        np.arange(60) < 56
    )  # four images against none: the bound is above 0, but one of many conditions looks so by chance
    chance = gate(
        *(reduce(table(rows(name, {"grey": hits, "red": plain}))) for name, hits in (("old", few), ("new", plain)))
    )
    assert (chance.conditions["low"] > 0).any() and chance.advice()[0].startswith("Which of the two")
    alike = gate(*(reduce(table(rows(name, {"original": half}))) for name in ("old", "new")), margin=0.01)
    assert alike.advice()[0] == "Which of the two is better is inconclusive (60 images)."
    wide = gate(*(reduce(table(rows(name, {"original": half}))) for name in ("old", "new")), margin=0.2)
    assert wide.advice() == ["new is as good within the margin under original (60 images)."]
    assert alike.verdict == "undecided" and "more images in both runs" in repr(alike)
    widths = {len(row) for row in alike.rows()}
    assert widths == {7 if any(row[-1] for row in alike.conditions[["more_photos"]].notna().to_numpy()) else 6}


def test_more_photos_decide_in_eight_of_ten():
    differences = changed(200, 4, 3)
    fewest, most = more_photos(differences, margin=0.02)
    passed = [pass_rate(int(200 + more), 7 / 200, 1 / 200, 0.02)[0] for more in (fewest, most)]
    assert passed[0] < 0.8 < passed[1]  # the number that decides in 8 of 10 lies between
    assert np.isnan(more_photos(changed(100, 0, 2), margin=0.02)).all()  # just the margin: no number decides


def test_errors_of_the_old_model_on_other_photos_do_not_make_up_for_errors_of_the_new():
    old, new = np.ones((100, 1, 1)), np.ones((100, 1, 1))
    old[:30], new[30:60] = np.nan, np.nan  # each crashed on 30 images, on different ones
    errors = {("m00", "original"): 30}
    row = gate(counts_of(old, errors=errors), counts_of(new, errors=errors)).conditions.iloc[0]
    assert row["n"] == 70 and row["unanswered"] == 30 and row["worse"] == 30 and row["verdict"] == "failed"


def test_a_photo_that_the_old_model_got_wrong_is_not_lost_by_an_error():
    old, new = np.ones((100, 1, 1)), np.ones((100, 1, 1))
    old[:10], new[:10] = 0, np.nan
    row = gate(counts_of(old), counts_of(new, errors={("m00", "original"): 10})).conditions.iloc[0]
    assert row["unanswered"] == 10 and row["worse"] == 0 and row["old"] == row["new"] == 0.9


def test_one_failed_row_of_several_counts_as_one_row():
    old, new = np.full((50, 1, 1), 2.0), np.full((50, 1, 1), 2.0)
    new[:5] = 1
    rows = np.full((50, 1, 1), 2)
    fewer = np.where(np.arange(50)[:, None, None] < 5, 1, rows)
    after = counts_of(new, n=fewer, errors={("m00", "original"): 5})
    row = gate(counts_of(old, n=rows), after).conditions.iloc[0]
    assert row["unanswered"] == 5 and row["difference"] == pytest.approx(-0.05)


def test_a_model_that_fails_on_every_photo_fails():
    old = np.ones((60, 1, 2))
    half = np.ones((60, 1, 2))
    half[:, :, 1] = np.nan
    rows = gate(counts_of(old), counts_of(half, errors={("m00", "c1"): 60})).conditions.set_index("condition")
    assert rows.loc["c1", "verdict"] == "failed" and rows.loc["c1", "unanswered"] == 60
    nothing = counts_of(np.full((60, 1, 2), np.nan), errors={("m00", "original"): 60, ("m00", "c1"): 60})
    failed = gate(counts_of(old), nothing)
    assert failed.verdict == "failed" and "Every row of the new model is an error" in failed.sentence
    assert "the new model failed with an error on all 60 images" in failed.conditions["sentence"].iloc[0]


def test_an_error_of_the_new_model_is_no_way_through():
    old, new = np.ones((300, 2)), np.ones((300, 2))
    new[:30] = np.nan  # the new model crashed on the images
    crashed = counts_of(new[:, None], errors={("m00", "original"): 30})
    result = gate(counts_of(old[:, None]), crashed)
    rows = result.conditions.set_index("condition")
    assert rows.loc["original", "unanswered"] == 30 and rows.loc["original", "verdict"] == "failed"
    assert rows.loc["original", "new"] == pytest.approx(0.9) and rows.loc["original", "old"] == 1
    assert rows.loc["c1", "unanswered"] == 0 and rows.loc["c1", "n"] == 270  # merely not run on them
    assert "count as wrong" in rows.loc["original", "sentence"]


def test_conditions_and_models_have_to_meet():
    old, new = np.ones((200, 2)), np.ones((200, 1))
    result = gate(*answers(old, new))
    assert result.verdict == "undecided" and list(result.conditions["verdict"]) == ["passed", "undecided"]
    assert "no image was answered by both" in result.conditions["sentence"].iloc[1]
    assert result.sentence.startswith("Undecided: what both runs have passed. Not compared") and "c1" in result.sentence
    same = gate(*answers(np.ones((36, 2)), np.ones((36, 2))))
    assert "No answer differs there, but 36 images without any change" in same.sentence
    two = counts_of(np.ones((200, 2, 2)))
    with pytest.raises(UserError, match="several models"):
        gate(two, two)
    with pytest.raises(UserError, match="no model 'x'"):
        gate(two, two, old_model="m00", new_model="x")
    assert gate(two, two, old_model="m00", new_model="m01").verdict == "passed"
    rows = [{"model": "m", "condition": "original", "source_id": "other", "label": "x", "correct": True}]
    with pytest.raises(UserError, match="no image in common"):
        gate(counts_of(np.ones((9, 1, 1))), reduce(table(rows)))
    with pytest.raises(UserError, match="margin"):
        gate(two, two, margin=2)


def test_photos_are_paired_by_name_not_by_place():
    rows = [
        {"model": "m", "condition": "original", "source_id": f"s{i:03}", "label": "x", "correct": i % 3 > 0}
        for i in range(90)
    ]
    old = reduce(table(rows))
    new = reduce(table([row for row in reversed(rows) if row["source_id"] != "s007"]))
    result = gate(old, new)
    row = result.conditions.iloc[0]
    assert (row["better"], row["worse"], row["n"]) == (0, 0, 89)


@pytest.mark.parametrize(
    ("estimate", "low", "high", "expected"),
    [
        (0.85, 0.81, 0.9, "passed"),
        (0.85, 0.8, 0.9, "passed"),
        (0.85, 0.79, 0.9, "undecided"),
        (0.78, 0.74, 0.81, "undecided"),
        (0.7, 0.65, 0.79, "failed"),
        (0.9, float("nan"), float("nan"), "undecided"),
    ],
)
def test_floor_is_held_by_the_interval(estimate, low, high, expected):
    assert check_floor(estimate, low, high, 0.8) == expected
