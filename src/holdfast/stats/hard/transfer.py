"""What predicts whether a hard set transfers to a model: agreement with the surrogates, kinship, accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from holdfast.core.lazy import pd
from holdfast.stats.core.bootstrap import Floats

PROPERTIES = {
    "failures": "the target's failure rate on the whole pool",
    "agreement": "mean agreement (κ) of its failures with the surrogates'",
    "kin": "share of the surrogates that are of its family",
    "surrogate_failures": "mean failure rate of the surrogates",
    "surrogates": "number of surrogates",
}
FEWEST_TARGETS = 4
"""A fit on fewer other models says nothing about a new one."""
LARGEST_SET = 4
FEWEST_IMAGES = 5


def transfer_cases(failed: pd.DataFrame, mined_from: pd.Series, families: pd.Series) -> pd.DataFrame:
    """Return a row per model (``target``) and set of 2 to 4 other models as surrogates.

    Args:
        failed: a row per image, a column per model: whether it fails.
        mined_from: per image, whether the hard set is looked for there (true) or the properties are measured (false):
            if both were of the same images, agreement would predict transfer by definition.
        families: per model its architecture family, "" if it is not known.

    Returns:
        ``target``, ``n`` images that all surrogates fail, ``failed`` share of these that the target fails, and the
        columns of ``PROPERTIES``. Sets with fewer than five images are left out.
    """
    models = list(failed.columns)
    inside = mined_from.reindex(failed.index).to_numpy(bool)
    known, asked = failed.to_numpy(bool)[~inside], failed.to_numpy(bool)[inside]
    rate = known.mean(axis=0) if len(known) else np.full(len(models), np.nan)
    kappa = _kappas(known)
    family = [str(families.get(model, "")) for model in models]
    rows = []
    for target, name in enumerate(models):
        others = [place for place in range(len(models)) if place != target]
        for size in range(2, min(LARGEST_SET, len(others)) + 1):
            for chosen in combinations(others, size):
                hard = asked[:, chosen].all(axis=1)
                if (n := int(hard.sum())) < FEWEST_IMAGES:
                    continue
                kin = float(np.mean([bool(family[target]) and family[target] == family[place] for place in chosen]))
                rows.append(
                    (name, n, float(asked[hard, target].mean()), rate[target], kappa[target, chosen].mean(), kin,
                     rate[list(chosen)].mean(), float(size))
                )  # fmt: skip
    return pd.DataFrame(rows, columns=["target", "n", "failed", *PROPERTIES])


def _kappas(failed: np.ndarray) -> Floats:
    """Return Cohen's κ of failures for every pair of models; 0 if a model always or never fails."""
    values = failed.astype(np.float64)
    rate = values.mean(axis=0) if len(values) else np.zeros(values.shape[1])
    both = values.T @ values / max(len(values), 1)
    agreed = 1 - rate[:, None] - rate[None, :] + 2 * both
    chance = rate[:, None] * rate[None, :] + (1 - rate[:, None]) * (1 - rate[None, :])
    kappa: Floats = np.divide(agreed - chance, 1 - chance, out=np.zeros_like(agreed), where=chance < 1 - 1e-12)
    return kappa


def transfer_predictors(cases: pd.DataFrame) -> pd.DataFrame:
    """Return how well properties predict the failure rate of a model that the fit has not seen.

    Every target is left out in turn; a linear fit on the others predicts its failure rate on each mined set, clipped
    to 0..1. A row per property, one for all together, and one (``none``) for the mean of the other targets.

    Args:
        cases: of ``transfer_cases``.

    Returns:
        ``property``, ``meaning``, ``targets``, ``error`` (mean absolute error over targets, each counted once), ``low``
        and ``high`` (95 % t-interval over targets), ``gain`` (error of ``none`` minus this one) with ``gain_low`` and
        ``gain_high``, and ``slope`` (change of the failure rate per unit, in the fit on all targets); no row if there
        are fewer than four targets.
    """
    columns = ["property", "meaning", "targets", "error", "low", "high", "gain", "gain_low", "gain_high", "slope"]
    names = list(dict.fromkeys(cases["target"]))
    if len(names) < FEWEST_TARGETS:
        return pd.DataFrame(columns=columns)
    base = _errors(cases, names, [])
    rows = [
        {"property": "none", "meaning": "the mean of the other models", "targets": len(names)} | _mean(base, "error")
    ]
    for name, chosen in [*((each, [each]) for each in PROPERTIES), ("all", list(PROPERTIES))]:
        if len(chosen) == 1 and cases[name].nunique() < 2:
            continue
        errors = _errors(cases, names, chosen)
        slope = float(_fit(cases, chosen)[1]) if len(chosen) == 1 else float("nan")
        row = {"property": name, "meaning": PROPERTIES.get(name, "all of these"), "targets": len(names), "slope": slope}
        rows.append(row | _mean(errors, "error") | _mean(base - errors, "gain"))
    table = pd.DataFrame(rows).rename(columns={"error_low": "low", "error_high": "high"})
    return table.reindex(columns=columns)


def _errors(cases: pd.DataFrame, names: Sequence[str], chosen: Sequence[str]) -> Floats:
    """Return each target's mean absolute error by a fit on the other targets."""
    errors = []
    for name in names:
        own = cases[cases["target"] == name]
        fit = _fit(cases[cases["target"] != name], chosen)
        predicted = np.clip(_design(own, chosen) @ fit, 0, 1)
        errors.append(np.average(np.abs(predicted - own["failed"].to_numpy(float)), weights=own["n"]))
    return np.array(errors)


def _design(cases: pd.DataFrame, chosen: Sequence[str]) -> Floats:
    return np.column_stack([np.ones(len(cases)), *(cases[name].to_numpy(float) for name in chosen)])


def _fit(cases: pd.DataFrame, chosen: Sequence[str]) -> Floats:
    """Return coefficients of least squares: every target has the same weight, its sets by their images."""
    weights = cases["n"] / cases.groupby("target")["n"].transform("sum")
    root = np.sqrt(weights.to_numpy(float))[:, None]
    outcome = cases["failed"].to_numpy(float)[:, None]
    fit: Floats = np.linalg.lstsq(_design(cases, chosen) * root, outcome * root, rcond=None)[0][:, 0]
    return fit


def _mean(values: Floats, name: str) -> dict[str, float]:
    """Return the mean with its 95 % t-interval."""
    from scipy import stats

    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    middle = float(values.mean())
    least = 0.0 if name == "error" else -np.inf
    return {name: middle, f"{name}_low": max(middle - half, least), f"{name}_high": middle + half}
