"""A model's accuracies on originals, across scenarios and within them, as sums over photos: what the score is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.core.grid import chosen
from holdfast.stats.core.reduce import Counts, Outcome, right_column

if TYPE_CHECKING:
    import pandas as pd

Average = Literal["macro", "micro"]
"""Every class counts alike, or every photo."""


@dataclass(frozen=True)
class Design:
    """A model's accuracies as weighted sums. Column 0 is the original; the others are (part, condition).

    Attributes:
        classes: (classes,) names.
        weighted: (classes, columns) Σ weight · right; summed over classes: accuracies.
        weights: (classes, columns) Σ weight · n; each column sums to 1.
        by_class: (classes,) accuracy of each class, mean over the cross conditions.
        sources: (sources,) names.
        influence: (sources, columns) what each source adds to an accuracy's deviation from the truth.
        class_influence: (sources, classes) the same for ``by_class``.
        columns: (columns,) part and condition.
        cross: columns of the cross part.
        inner: columns of the inner part.
    """

    classes: list[str]
    weighted: Floats
    weights: Floats
    by_class: Floats
    sources: list[str]
    influence: Floats
    class_influence: Floats
    columns: list[tuple[str, str]]
    cross: list[int]
    inner: list[int]

    @property
    def accuracy(self) -> Floats:
        """(columns,)."""
        return np.asarray(self.weighted.sum(axis=0))

    @property
    def mu(self) -> float:
        """Accuracy on originals."""
        return float(self.accuracy[0])


def score_cells(counts: Counts, conditions: Sequence[str] | None, outcome: Outcome) -> pd.DataFrame:
    """The cells that enter scores, with ``right``; conditions None: all but attacks."""
    cells = counts.distinct()
    text = {column: cells[column].astype(str) for column in ("model", "trained_on", "condition", "label")}
    cells = cells.assign(**text, right=cells[right_column(outcome)])
    if conditions is not None:
        return cells[cells["condition"].isin([ORIGINAL, *chosen(counts, conditions)])]
    return cells[~cells["condition"].isin(counts.attacks)]


def design_of(cells: pd.DataFrame, model: str, average: Average) -> Design:
    """Weights that make each accuracy a sum, and each source's influence on it."""
    rows = _parts(cells, model)
    key = ["part", "condition", "fold"]
    folds = rows.groupby(["part", "condition"])["fold"].transform("nunique")
    if average == "macro":
        shares = rows.groupby(key)["label"].transform("nunique")
        size = rows.groupby([*key, "label"])["n"].transform("sum")
    else:
        shares = rows.groupby(key)["model"].transform("nunique")  # one
        size = rows.groupby(key)["n"].transform("sum")
    weight = 1 / (folds * shares * size)
    # Around its own class a lone photo would seem noiseless: it is compared with the whole condition instead.
    # n / (n − 1) makes the sum of squared influences an unbiased variance.
    stratum = ["label"] if average == "macro" else []
    photos = rows.groupby("label" if stratum else "model")["source_id"].transform("nunique")
    whole = _ratio(rows, ["part", "condition"])
    expected = _ratio(rows, ["part", "condition", *stratum]).where(photos > 1, whole)
    noise = (rows["right"] - expected * rows["n"]) * np.sqrt(photos / (photos - 1).clip(lower=1))
    rows = rows.assign(weight=weight * rows["n"], weighted=weight * rows["right"], influence=weight * noise)
    per_class = rows.groupby(["part", "condition", "label"])["n"].transform("sum")
    rows["class_influence"] = noise / per_class
    columns = sorted(set(zip(rows["part"], rows["condition"], strict=True)), key=lambda c: (c[1] != ORIGINAL, c))
    classes, sources = sorted(rows["label"].unique()), sorted(rows["source_id"].unique())
    scenarios = [number for number, (part, name) in enumerate(columns) if part == "cross" and name != ORIGINAL]
    cross_rows = rows[(rows["part"] == "cross") & (rows["condition"] != ORIGINAL)]
    class_mean = _ratio_table(cross_rows).reindex(classes).mean(axis=1)
    per_source = cross_rows.pivot_table(index="source_id", columns="label", values="class_influence", aggfunc="sum")
    return Design(
        classes=classes,
        weighted=_pivot(rows, "label", "weighted", classes, columns),
        weights=_pivot(rows, "label", "weight", classes, columns),
        by_class=class_mean.to_numpy(np.float64),
        sources=sources,
        influence=_pivot(rows, "source_id", "influence", sources, columns),
        class_influence=per_source.reindex(index=sources, columns=classes).fillna(0).to_numpy(np.float64)
        / len(scenarios),
        columns=columns,
        cross=scenarios,
        inner=[number for number, (part, _) in enumerate(columns) if part == "inner"],
    )


def _parts(cells: pd.DataFrame, model: str) -> pd.DataFrame:
    """Rows of the cross and of the inner part; a model retrained on originals goes before the one delivered."""
    on_originals = ORIGINAL if (cells["trained_on"] == ORIGINAL).any() else ""
    inner = (cells["trained_on"] == cells["condition"]) & (cells["condition"] != ORIGINAL)
    cross = cells["trained_on"] == on_originals
    rows = cells[inner | cross].assign(part=np.where(cross[inner | cross], "cross", "inner"))
    tested = set(rows.loc[rows["part"] == "cross", "condition"])
    if ORIGINAL not in tested or len(tested) < 2:
        raise UserError(
            f"The robustness score of {model} needs the original and at least one scenario from a model that was "
            "trained on originals; evaluate those first."
        )
    return rows


def _ratio(rows: pd.DataFrame, key: list[str]) -> pd.Series[float]:
    groups = rows.groupby(key)
    return groups["right"].transform("sum") / groups["n"].transform("sum")


def _ratio_table(rows: pd.DataFrame) -> pd.DataFrame:
    sums = rows.groupby(["label", "condition"])[["right", "n"]].sum()
    return (sums["right"] / sums["n"]).unstack("condition")


def _pivot(rows: pd.DataFrame, index: str, value: str, names: list[str], columns: list[tuple[str, str]]) -> Floats:
    wide = rows.pivot_table(index=index, columns=["part", "condition"], values=value, aggfunc="sum")
    return wide.reindex(index=names)[columns].fillna(0).to_numpy(np.float64)
