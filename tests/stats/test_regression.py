import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from made_grid import counts_of
from made_rows import table
from scipy import stats
from statsmodels.stats.outliers_influence import variance_inflation_factor

from holdfast.core.errors import UserError
from holdfast.stats.core.reduce import reduce
from holdfast.stats.regression.clusters import normality
from holdfast.stats.regression.fit import MOST_CLASSES, cells_from_counts, fit, stars

# Figure 9 of XIMAGENET-12 as printed: term, estimate, standard error.
FIGURE_9 = """
Intercept 0.8642 0.02238
model[EfficientNetB3] -0.006667 0.01445
model[DenseNet121] 0.05000 0.01445
model[MobileNetV2] 0.04000 0.01445
model[ResNet50] 0.03444 0.01445
scenario[blur_background] -0.04250 0.01938
scenario[blur_object] -0.07000 0.01938
scenario[image_g] -0.1257 0.01938
scenario[image_b] -0.09850 0.01938
scenario[image_grey] -0.06517 0.01938
scenario[image_r] -0.08700 0.01938
scenario[random_background] -0.7078 0.01938
scenario[segmented_image] -0.3012 0.01938
class[1] 0.1340 0.02238
class[2] -0.04867 0.02238
class[3] 0.04000 0.02238
class[4] 0.1004 0.02238
class[5] 0.1333 0.02238
class[6] 0.07667 0.02238
class[7] 0.01044 0.02238
class[8] 0.09067 0.02238
class[9] 0.09933 0.02238
class[10] 0.1651 0.02238
class[11] -0.02244 0.02238
"""
PRINTED = {line.split()[0]: line.split()[1:] for line in FIGURE_9.strip().splitlines()}
# s = 0.1062 is printed; only 0.10615 … 0.10618 also rounds to every printed standard error.
DEVIATION = 0.10616


def levels(factor: str, first: str) -> list[str]:
    return [first, *(name.split("[")[1][:-1] for name in PRINTED if name.startswith(factor + "["))]


@pytest.fixture(scope="module")
def figure_9() -> pd.DataFrame:
    """A balanced 5 × 9 × 12 design with the printed estimates, and residuals orthogonal to it."""
    models, scenarios, classes = levels("model", "EfficientNetB0"), levels("scenario", "original"), levels("class", "0")
    index = pd.MultiIndex.from_product([models, scenarios, classes], names=["model", "condition", "label"])
    cells = index.to_frame(index=False)
    effect = {name: float(values[0]) for name, values in PRINTED.items()}
    mean = np.full(len(cells), effect["Intercept"])
    for column, factor in (("model", "model"), ("condition", "scenario"), ("label", "class")):
        mean += cells[column].map(lambda level, factor=factor: effect.get(f"{factor}[{level}]", 0.0)).to_numpy()
    noise = np.random.default_rng(9).normal(size=(5, 9, 12))
    main = noise.mean((1, 2), keepdims=True) + noise.mean((0, 2), keepdims=True) + noise.mean((0, 1), keepdims=True)
    noise = (noise - main + 2 * noise.mean()).reshape(-1)
    return cells.assign(accuracy=mean + noise * DEVIATION * np.sqrt(516 / (noise**2).sum()))


def step(printed: str) -> float:
    """Half a unit of the last printed digit."""
    return 0.5 * 10.0 ** -len(printed.split(".")[1])


def test_golden_figure_9(figure_9):
    result = fit(figure_9, references={"model": "EfficientNetB0", "condition": "original", "label": "0"})
    assert (result.n, result.degrees_of_freedom, result.reason) == (540, 516, "")
    assert round(result.sy_x, 4) == 0.1062
    assert list(result.coefficients["term"]) == list(PRINTED)
    quantile = stats.t.ppf(0.975, 516)
    for row in result.coefficients.to_dict("records"):
        estimate, error = (float(value) for value in PRINTED[row["term"]])
        wiggle, error_wiggle = (step(value) for value in PRINTED[row["term"]])
        assert abs(row["estimate"] - estimate) <= wiggle
        assert abs(row["standard_error"] - error) <= error_wiggle, row
        # what the figure's interval, t and p can be, given the printed digits of estimate and error
        assert abs(row["low"] - (estimate - quantile * error)) <= wiggle + quantile * error_wiggle
        assert abs(row["high"] - (estimate + quantile * error)) <= wiggle + quantile * error_wiggle
        smallest, largest = sorted(
            ((abs(estimate) - wiggle) / (error + error_wiggle), (abs(estimate) + wiggle) / (error - error_wiggle))
        )
        assert smallest <= abs(row["t"]) <= largest and np.sign(row["t"]) == np.sign(estimate)
        assert 2 * stats.t.sf(largest, 516) <= row["p"] <= 2 * stats.t.sf(smallest, 516)
    printed_stars = dict(zip(result.coefficients["term"], result.coefficients["stars"], strict=True))
    assert printed_stars["model[EfficientNetB3]"] == "ns"
    assert printed_stars["model[DenseNet121]"] == "***"
    assert printed_stars["model[ResNet50]"] == "*"
    assert printed_stars["scenario[random_background]"] == "****"


def test_golden_reference_and_cell_outside(figure_9):
    result = fit(figure_9, references={"model": "ResNet50"})
    first = result.coefficients.iloc[0]
    assert first["term"] == "Intercept" and round(first["estimate"], 4) == 0.8986
    assert len(result.coefficients) == 24 and "model[EfficientNetB0]" in set(result.coefficients["term"])
    outside = result.outside.set_index(["model", "condition", "label"])["fitted"]
    assert round(outside["DenseNet121", "original", "10"], 3) == 1.079
    assert ((outside < 0) | (outside > 1)).all()
    assert len(outside) == ((result.residuals["fitted"] > 1) | (result.residuals["fitted"] < 0)).sum()
    # fitted values do not depend on the reference
    other = fit(figure_9, references={"label": "7", "condition": "image_g"})
    assert np.allclose(other.residuals["fitted"], result.residuals["fitted"])


def test_summary_numbers_agree_with_statsmodels(figure_9):
    unbalanced = figure_9.drop(index=[3, 77, 200, 201])
    result = fit(unbalanced)
    dummies = pd.concat(
        [pd.get_dummies(unbalanced[column].astype(pd.CategoricalDtype(unbalanced[column].unique())), drop_first=True)
         for column in ("model", "condition", "label")], axis=1)  # fmt: skip
    design = sm.add_constant(dummies.astype(float).to_numpy())
    direct = sm.OLS(unbalanced["accuracy"].to_numpy(), design).fit()
    assert np.allclose(result.coefficients["estimate"], direct.params)
    assert np.allclose(result.coefficients["standard_error"], direct.bse)
    assert np.allclose(result.coefficients[["low", "high"]], direct.conf_int())
    assert np.allclose(result.coefficients["p"], direct.pvalues)
    assert np.isclose(result.adjusted_r_squared, direct.rsquared_adj) and np.isclose(result.r_squared, direct.rsquared)
    assert np.isclose(result.sy_x, np.sqrt(direct.mse_resid)) and np.isclose(result.sum_of_squares, direct.ssr)
    assert np.isclose(result.rmse, np.sqrt(direct.ssr / direct.nobs))
    assert np.allclose(result.variance_inflation["vif"], [variance_inflation_factor(design, i) for i in range(1, 24)])
    correlation = direct.cov_params() / np.outer(direct.bse, direct.bse)
    assert np.allclose(result.parameter_correlation, correlation)
    assert any("4 of 540 cells are empty" in note for note in result.notes)
    # AICc differs from statsmodels' AIC by the likelihood's constant, the variance as a parameter and the correction
    n, k = 536, 25
    aic = direct.aic - n * (1 + np.log(2 * np.pi)) + 2
    assert np.isclose(result.aicc, aic + 2 * k * (k + 1) / (n - k - 1))


def test_residual_table_and_normality(figure_9):
    result = fit(figure_9)
    residual = result.residuals["residual"].to_numpy()
    assert np.allclose(result.residuals["absolute"], np.abs(residual))
    assert np.allclose(result.residuals["fitted"] + residual, figure_9["accuracy"])
    order = np.argsort(residual)
    expected = stats.norm.ppf((np.arange(540) + 0.5) / 540, scale=result.sy_x)
    assert np.allclose(result.residuals["quantile"].to_numpy()[order], expected)
    assert list(result.residuals["order"]) == list(range(1, 541))
    assert list(result.normality["passed"]) == [True] * 4
    skewed = normality(np.random.default_rng(0).exponential(size=300))
    assert list(skewed["passed"]) == [False] * 4
    few = normality(np.arange(5.0))
    assert few["p"].isna().all() and few["reason"].str.contains("at least 8").all()
    many = normality(np.random.default_rng(0).normal(size=6000)).set_index("test")
    assert "5000" in many.loc["Shapiro–Wilk", "reason"] and many.drop(index="Shapiro–Wilk")["p"].notna().all()


def test_many_classes_are_absorbed_exactly():
    rng = np.random.default_rng(4)
    names = [f"k{i}" for i in range(MOST_CLASSES + 20)]
    index = pd.MultiIndex.from_product(
        [["a", "b"], ["original", "x", "y"], names], names=["model", "condition", "label"]
    )
    cells = index.to_frame(index=False).assign(accuracy=rng.random(len(index)))
    cells = cells.drop(index=[0, 5, 400])
    result = fit(cells)
    dummies = pd.get_dummies(cells, columns=["model", "condition", "label"], drop_first=True).astype(float)
    direct = sm.OLS(cells["accuracy"], sm.add_constant(dummies.drop(columns="accuracy"))).fit()
    wanted = ["model_b", "condition_x", "condition_y"]
    assert list(result.coefficients["term"]) == ["model[b]", "scenario[x]", "scenario[y]"]
    assert np.allclose(result.coefficients["estimate"], direct.params[wanted])
    assert np.allclose(result.coefficients["standard_error"], direct.bse[wanted])
    assert np.allclose(result.coefficients["p"], direct.pvalues[wanted])
    assert np.allclose(result.residuals["residual"], direct.resid) and np.isclose(result.r_squared, direct.rsquared)
    assert result.degrees_of_freedom == direct.df_resid
    design = sm.add_constant(dummies.drop(columns="accuracy"))
    position = [list(design.columns).index(name) for name in wanted]
    expected = [variance_inflation_factor(design.to_numpy(), i) for i in position]
    assert np.allclose(result.variance_inflation["vif"], expected)
    assert any("120 classes" in note for note in result.notes)


def test_poisson_ratios_agree_with_truth_and_statsmodels():
    rng = np.random.default_rng(1)
    index = pd.MultiIndex.from_product(
        [["a", "b"], ["original", "x"], list("pqrstu")], names=["model", "condition", "label"]
    )
    cells = index.to_frame(index=False)
    mean = 0.8 * np.where(cells["model"] == "b", 0.75, 1) * np.where(cells["condition"] == "x", 0.5, 1)
    cells["n"] = 4000
    cells["accuracy"] = rng.binomial(4000, mean) / 4000
    result = fit(cells, family="poisson")
    ratio = np.exp(result.coefficients.set_index("term")["estimate"])
    assert ratio["model[b]"] == pytest.approx(0.75, abs=0.01) and ratio["scenario[x]"] == pytest.approx(0.5, abs=0.01)
    dummies = pd.get_dummies(cells[["model", "condition", "label"]], drop_first=True).astype(float)
    direct = sm.GLM(
        cells["accuracy"] * 4000, sm.add_constant(dummies), family=sm.families.Poisson(), exposure=cells["n"]
    )
    direct = direct.fit(cov_type="HC1")
    assert np.allclose(result.coefficients["standard_error"], direct.bse)
    assert "times the accuracy of original (0.4" in result.sentences[2]
    assert fit(cells.drop(columns="n"), family="poisson").coefficients["estimate"].to_numpy() == pytest.approx(
        direct.params.to_numpy(), abs=1e-6
    )
    never = fit(cells.assign(accuracy=np.where(cells["label"] == "q", 0.0, cells["accuracy"])), family="poisson")
    assert "q is never right" in never.reason


def grid_cells(models, scenarios, classes, accuracy) -> pd.DataFrame:
    index = pd.MultiIndex.from_product([models, scenarios, classes], names=["model", "condition", "label"])
    cells = index.to_frame(index=False)
    return cells.assign(accuracy=accuracy(len(cells)))


def noise(n: int) -> np.ndarray:
    return np.random.default_rng(2).random(n)


def test_degenerate_designs_give_reasons():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one_model = fit(grid_cells(["a"], ["original", "x", "y"], list("pqr"), noise))
        assert one_model.reason == "" and any("one model only (a)" in note for note in one_model.notes)
        one_class = fit(grid_cells(["a", "b"], ["original", "x", "y"], ["p"], noise))
        assert one_class.reason == "" and any("one class only" in note for note in one_class.notes)
        assert "nothing to compare" in fit(grid_cells(["a"], ["original"], ["p"], noise)).reason
        assert "cannot carry" in fit(grid_cells(["a", "b"], ["original"], ["p"], noise)).reason
        apart = pd.concat(
            [grid_cells(["a"], ["original"], list("pq"), noise), grid_cells(["b"], ["x"], list("rs"), noise)]
        )
        assert "never meet" in fit(apart).reason
        assert "no cell" in fit(grid_cells(["a"], ["original"], ["p"], lambda n: np.full(n, np.nan))).reason
        constant = fit(grid_cells(["a", "b"], ["original", "x"], list("pqr"), np.ones))
        assert constant.sum_of_squares == 0 and any("perfect" in note for note in constant.notes)
        assert constant.coefficients["p"].isna().all() and set(constant.coefficients["stars"]) == {""}
        additive = grid_cells(["a", "b"], ["original", "x"], list("pqr"), np.zeros)
        additive["accuracy"] = 0.5 + 0.2 * (additive["model"] == "b") - 0.1 * (additive["condition"] == "x")
        perfect = fit(additive)
        assert perfect.coefficients["estimate"].iloc[1] == pytest.approx(0.2) and perfect.r_squared == 1
        assert perfect.normality["reason"].str.contains("all the same").all()
        assert fit(grid_cells(["a", "b"], ["x", "y"], list("pqr"), noise)).references["condition"] == "x"
    with pytest.raises(UserError, match=r"is called .c.; known: a, b"):
        fit(grid_cells(["a", "b"], ["x"], list("pqr"), noise), references={"model": "c"})
    with pytest.raises(UserError, match="No factor"):
        fit(grid_cells(["a", "b"], ["x"], list("pqr"), noise), references={"colour": "c"})


def test_sentences_say_what_the_numbers_say(figure_9):
    result = fit(figure_9)
    sentence = dict(zip(result.coefficients["term"], result.sentences, strict=True))
    assert sentence["Intercept"] == "EfficientNetB0 on 0 under original is fitted at 86.4 %."
    assert (
        sentence["scenario[random_background]"] == "random_background: −70.8 points against original (−74.6 to −67.0)."
    )
    assert sentence["model[EfficientNetB3]"].endswith(", may be chance.")


@pytest.mark.parametrize(
    ("p", "expected"), [(0.2, "ns"), (0.05, "ns"), (0.049, "*"), (0.009, "**"), (0.0009, "***"), (0, "****")]
)
def test_stars(p, expected):
    assert stars(p) == expected


def test_cells_from_counts_leaves_out_repeated_and_objectless_conditions():
    rows = [
        {"model": model, "condition": condition, "source_id": f"s{photo}", "label": "xy"[photo % 2],
         "correct": bool((photo + len(condition)) % 3), "image_sha256": f"{digest}{photo}"}
        for condition, digest in (("original", "o"), ("red", "r"), ("green", "r"), ("only_background", "b"))
        for photo in range(4)
        for model in ("m", "k")
    ]  # fmt: skip
    cells = cells_from_counts(reduce(table(rows)))
    assert list(dict.fromkeys(cells["condition"])) == ["original", "green"]
    one = cells[(cells["model"] == "k") & (cells["condition"] == "original") & (cells["label"] == "x")].iloc[0]
    assert (one["n"], one["accuracy"]) == (2, 1.0)
    named = cells_from_counts(reduce(table(rows)), conditions=["original", "only_background"])
    assert set(named["condition"]) == {"original", "only_background"}


def test_counts_to_regression_end_to_end():
    rng = np.random.default_rng(5)
    right = (rng.random((120, 2, 3)) < np.array([[0.9, 0.8, 0.4], [0.8, 0.7, 0.3]])).astype(float)
    result = fit(cells_from_counts(counts_of(right, classes=6)))
    estimate = result.coefficients.set_index("term")["estimate"]
    assert estimate["scenario[c2]"] == pytest.approx((right[..., 2] - right[..., 0]).mean())
    assert estimate["model[m01]"] == pytest.approx((right[:, 1] - right[:, 0]).mean())
