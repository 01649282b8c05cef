import numpy as np
import pytest
import statsmodels.api as sm
from made_grid import clustered, counts_of, grid_of
from made_rows import table

from holdfast.core.errors import UserError
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.interaction import interaction, interaction_of

# Models differ, scenarios differ, but in log odds every model loses the same.
ADDITIVE = np.array([1.2, 0.6])[:, None] + np.array([0.0, -0.5, -1.5])[None, :]


def direct_gee(counts, covariance: str, structure: object):
    """The same model by statsmodels' own iteration, on a row per answer."""
    cells = counts.cells.loc[counts.cells.index.repeat(counts.cells["n"])]
    first = cells.groupby(level=0).cumcount()
    right = (first < cells["right"]).astype(float).to_numpy()
    model, condition = cells["model"].to_numpy(), cells["condition"].to_numpy()
    columns = [
        ((model == m) & (condition == c)).astype(float) for m in counts.models for c in counts.conditions
    ]  # a parameter per cell: the contrasts below are the same as those of any other coding
    fitted = sm.GEE(
        right, np.column_stack(columns), groups=cells["source_id"].to_numpy(), family=sm.families.Binomial(),
        cov_struct=structure,
    ).fit(cov_type=covariance, ctol=1e-10, maxiter=200)  # fmt: skip
    return fitted


def contrasts(models: int, conditions: int) -> np.ndarray:
    rows = []
    for m in range(1, models):
        for c in range(1, conditions):
            row = np.zeros((models, conditions))
            row[m, 0], row[m, c], row[0, 0], row[0, c] = 1, -1, -1, 1
            rows.append(row.reshape(-1))
    return np.array(rows)


@pytest.mark.parametrize("structure", [sm.cov_struct.Independence(), sm.cov_struct.Exchangeable()])
def test_agrees_with_statsmodels_gee(structure):
    counts = counts_of(clustered(ADDITIVE, 60, 1.0, np.random.default_rng(0)))
    ours = interaction(counts)
    direct = direct_gee(counts, "bias_reduced", structure)
    matrix = contrasts(2, 3)
    terms = matrix @ direct.params
    wald = terms @ np.linalg.solve(matrix @ direct.cov_params() @ matrix.T, terms)
    assert ours.method == "gee" and ours.df == (2, 58)
    # with the same cells for every image, any working correlation solves for the same accuracies
    assert ours.pairs["odds_ratio"].to_numpy() == pytest.approx(np.exp(terms), rel=1e-6)
    if isinstance(structure, sm.cov_struct.Independence):
        assert ours.statistic == pytest.approx(wald * 60 * (60 - 2) / (2 * (60 - 1) ** 2), rel=1e-6)


def test_agrees_with_statsmodels_gee_with_gaps_and_several_rows():
    rng = np.random.default_rng(3)
    n = rng.integers(1, 4, (50, 2, 3))
    right = rng.binomial(n, 0.6).astype(float)
    right[rng.random(right.shape) < 0.1] = np.nan
    counts = counts_of(right, n=n)
    ours = interaction(counts)
    direct = direct_gee(counts, "bias_reduced", sm.cov_struct.Independence())
    matrix = contrasts(2, 3)
    terms = matrix @ direct.params
    wald = terms @ np.linalg.solve(matrix @ direct.cov_params() @ matrix.T, terms)
    photos = ours.photos
    assert ours.statistic == pytest.approx(wald * photos * (photos - 2) / (2 * (photos - 1) ** 2), rel=1e-6)


def test_differences_of_drops_are_paired_t_tests():
    right = clustered(ADDITIVE, 80, 1.0, np.random.default_rng(1))
    result = interaction(counts_of(right))
    drop = right[:, :, :1] - right[:, :, 1:]
    difference = drop[:, 0] - drop[:, 1]
    rows = result.pairs.set_index("condition")
    for column, name in enumerate(["c1", "c2"]):
        values = difference[:, column]
        half = 1.990450 * values.std(ddof=0) / np.sqrt(79) * np.sqrt(80 / 79)  # Mancl–DeRouen: S/(S − 1) more
        assert rows.loc[name, "difference"] == pytest.approx(values.mean())
        assert rows.loc[name, "high"] - values.mean() == pytest.approx(half, rel=1e-4)
        assert rows.loc[name, "drop_first"] == pytest.approx(drop[:, 0, column].mean())
    assert set(result.drops["model"]) == {"m00", "m01"} and len(result.drops) == 4
    assert (result.pairs["p_holm"] >= result.pairs["p"]).all()


def rejections(
    logits: np.ndarray, photos: int, repetitions: int, method: str, *, seed: int, resamples: int = 400
) -> float:
    rng = np.random.default_rng(seed)
    rejected = 0
    for _ in range(repetitions):
        laid = grid_of(clustered(logits, photos, 1.0, rng))
        result = interaction_of(
            laid, reference_condition="original", resamples=resamples, seed=int(rng.integers(1 << 30))
        )
        assert result.method == method
        rejected += result.p < 0.05
    return rejected / repetitions


def test_power():
    logits = ADDITIVE.copy()
    logits[1, 2] -= 1.0
    assert rejections(logits, 250, 60, "gee", seed=4) > 0.9
    logits = np.stack([np.full(2, 60.0), np.array([1.0, 0.0])], axis=1)
    assert rejections(logits, 150, 60, "bootstrap", seed=5) > 0.9


def test_says_why_it_resamples():
    right = clustered(ADDITIVE, 60, 1.0, np.random.default_rng(0))
    right[:, 0, 2] = 0
    result = interaction(counts_of(right))
    assert result.method == "bootstrap" and "0 or 100 %" in result.explanation and "accuracies" in result.explanation
    assert np.isnan(result.pairs.set_index("condition").loc["c2", "odds_ratio"]) and result.p < 0.05
    assert result.pairs[["difference", "low", "high", "p", "p_holm"]].notna().all(axis=None)
    few = interaction(counts_of(clustered(0 * ADDITIVE, 9, 0.5, np.random.default_rng(2))))
    assert few.method == "bootstrap" and "too few" in few.explanation and "log odds" in few.explanation


def test_identical_models_do_not_differ():
    right = clustered(ADDITIVE[:1], 60, 1.0, np.random.default_rng(0)).repeat(2, axis=1)
    for answers in (right, np.where(np.arange(3) == 2, 0.0, right)):
        result = interaction(counts_of(answers))
        assert result.p == 1 and (result.pairs["difference"] == 0).all() and (result.pairs["p"] == 1).all()
        assert (result.pairs["low"] < 0).all() and (result.pairs["high"] > 0).all()


def test_certain_difference_is_found():
    right = np.ones((30, 2, 2))
    right[:, 1, 1] = 0
    result = interaction(counts_of(right))
    assert result.p < 0.001 and result.pairs["difference"].iloc[0] == -1 and result.pairs["p"].iloc[0] < 1e-6
    three = interaction(counts_of(right[:3]))
    assert three.p > 0.05 and three.pairs["p"].iloc[0] == 0.25  # three images cannot prove anything


def test_reasons_instead_of_crashes():
    right = clustered(ADDITIVE, 20, 1.0, np.random.default_rng(0))
    assert "one model" in interaction(counts_of(right[:, :1])).reason
    assert "no condition other than" in interaction(counts_of(right[:, :, :1])).reason
    assert "one image" in interaction(counts_of(right[:1])).reason
    with pytest.raises(UserError, match="Drops need the condition"):
        interaction(counts_of(right), reference_condition="nothing")
    absent = right.copy()
    absent[:, 1, 2] = np.nan  # one model never saw the last condition: the others still count
    assert list(interaction(counts_of(absent)).pairs["condition"]) == ["c1"]


def test_leaves_out_conditions_without_the_object():
    rows = [
        {"model": model, "condition": condition, "source_id": f"s{photo}", "label": "x",
         "correct": bool((photo * 7 + len(condition) * 3 + len(model)) % 5 > 1)}
        for model in ("a", "bb") for condition in ("original", "red", "only_background") for photo in range(40)
    ]  # fmt: skip
    counts = reduce(table(rows))
    assert set(interaction(counts).pairs["condition"]) == {"red"}
    assert set(interaction(counts, conditions=["only_background"]).pairs["condition"]) == {"only_background"}


def test_shared_donors_make_differences_of_drops_less_sure() -> None:
    """Two models, one of which fails on a third of twelve donors; the same answers, with and without donors known."""
    rng = np.random.default_rng(4)
    donor = np.stack([np.full(120, -1), rng.integers(0, 12, 120)], axis=1)
    right = np.ones((120, 2, 2))
    right[:, 1, 1] = donor[:, 1] > 3
    right[rng.random(right.shape) < 0.1] = 0
    blind, aware = (interaction(counts_of(right, donor=known)) for known in (None, donor))
    assert aware.p > blind.p and "and 12 donors" in aware.explanation
    ours, theirs = ((table["high"] - table["low"]).iloc[0] for table in (aware.pairs, blind.pairs))
    assert ours > 1.5 * theirs
