"""The latent walks of one or several runs: rows paired by image, details of the walks, and the frames kept of some."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from holdfast.core.errors import UserError
from holdfast.core.schema import FRAMES, WALKS
from holdfast.report.page.words import short_names
from holdfast.report.static.rows import Rows
from holdfast.stats.walks.walk_rows import COLUMNS, DYNAMIC, PERTURBED, fmr_of_walks, paired
from holdfast.store import Run
from holdfast.store.parts import Parts

if TYPE_CHECKING:
    import pandas as pd

SPACES = {"dataset": "the dataset's classes", "all": "all outputs of the model"}


@dataclass(frozen=True)
class Walked:
    """All walks of a report.

    Attributes:
        runs: those that hold walks.
        images: a row per setting × model × image: the columns of ``walk_rows.paired``, ``row_id`` and predictions of
            the perturbed row, and the columns of ``core.schema.WALKS``; ``walk`` is the setting's number from 1.
        settings: the parameters of every setting, in the order of their numbers.
        rows: the dynamic rows behind them.
        folders: of the runs by row id, for the walks whose frames were kept.
        frames: columns of ``core.schema.FRAMES``.
    """

    runs: Sequence[Run]
    images: pd.DataFrame
    settings: list[dict[str, Any]]
    rows: pa.Table
    frames: pd.DataFrame
    folders: dict[str, Path]

    @cached_property
    def models(self) -> list[str]:
        """Highest FMR first, those without one last."""
        pooled = self.family[(self.family["label"] == "") & (self.family["measure"] == "fmr")]
        means = pooled.groupby("model")["estimate"].mean()
        return [str(name) for name in means.sort_values(ascending=False, kind="stable", na_position="last").index]

    @cached_property
    def short(self) -> dict[str, str]:
        """Model → a name that fits beside a chart."""
        return short_names(self.models)

    def row(self, model: str, walk: int) -> str:
        """How a chart calls a model under a setting."""
        return f"{self.short[model]} · walk {walk}" if self.several else self.short[model]

    @property
    def several(self) -> bool:
        """Whether there is more than one setting."""
        return len(self.settings) > 1

    @cached_property
    def order(self) -> list[tuple[str, int]]:
        """(model, walk) in the order of charts and tables."""
        there = set(self.images[["model", "walk"]].itertuples(index=False, name=None))
        numbers = range(1, len(self.settings) + 1)
        return [(model, walk) for model in self.models for walk in numbers if (model, walk) in there]

    @cached_property
    def family(self) -> pd.DataFrame:
        """``stats.walks.fmr.fmr`` of every setting, behind ``walk``; right answers in each walk's own label space."""
        return families(self.images)


def families(images: pd.DataFrame) -> pd.DataFrame:
    """The FMR family of every setting, behind its number ``walk``."""
    number = dict(zip(images["parameters"], images["walk"], strict=True))
    table = fmr_of_walks(images)
    table.insert(0, "walk", table["parameters"].map(number))
    return table


def walked(rows: Rows) -> Walked | None:
    """The walks among the rows; None where no walk ended."""
    table = rows.dataset.to_table(
        columns=[*COLUMNS, "row_id", "prediction", "prediction_restricted", "oracle_score", "image_sha256"],
        filter=ds.field("kind") == DYNAMIC,
    )
    runs = [run for run in rows.runs if run.predictions.dataset().count_rows(filter=ds.field("kind") == DYNAMIC)]
    try:
        images = paired(table)
    except ValueError as error:  # parameters that are no JSON
        raise UserError(f"the walks of {', '.join(run.run_id for run in runs)} cannot be read: {error}") from error
    if images.empty:
        return None
    # Sorted, because the table's files have random names: a walk keeps its number when a report is made again.
    settings = sorted(set(images["parameters"]))
    images["walk"] = images["parameters"].map({text: number for number, text in enumerate(settings, 1)})
    ends = table.filter(pc.field("condition") == PERTURBED).to_pandas()
    for column in ("model", "parameters", "prediction", "prediction_restricted"):
        ends[column] = ends[column].astype(object)
    key = ["model", "sample_id", "parameters"]
    kept = ends[[*key, "row_id", "prediction", "prediction_restricted", "oracle_score"]]
    images = images.merge(kept.drop_duplicates(key), on=key, how="left")
    walks = pa.concat_tables([Parts(run.path / "details" / "walks", WALKS).rows() for run in runs]).to_pandas()
    walks["stop"] = walks["stop"].astype(object)
    images = images.merge(walks.drop_duplicates("row_id"), on="row_id", how="left", suffixes=("", "_walk"))
    frames, folders = _frames(runs)
    return Walked(runs, images, [json.loads(text) for text in settings], table, frames, folders)


def _frames(runs: Sequence[Run]) -> tuple[pd.DataFrame, dict[str, Path]]:
    folders: dict[str, Path] = {}
    tables = []
    for run in runs:
        table = Parts(run.path / "details" / "frames", FRAMES).rows()
        new = {identifier: run.path for identifier in table["row_id"].to_pylist() if identifier not in folders}
        tables.append(table.filter(pc.field("row_id").isin(pa.array(list(new), pa.string()))))
        folders |= new
    frames = pa.concat_tables(tables).to_pandas()
    frames["prediction"] = frames["prediction"].astype(object)
    return frames, folders


def other_space(one: Walked) -> pd.DataFrame:
    """The FMR family of every setting in both label spaces, behind ``counted`` (``dataset`` or ``all``)."""
    import pandas as pd

    number = dict(zip(one.images["parameters"], one.images["walk"], strict=True))
    found = []
    for space in SPACES:
        images = paired(one.rows, space=space)
        table = families(images.assign(walk=images["parameters"].map(number)))
        found.append(table.assign(counted=space))
    return pd.concat(found, ignore_index=True)
