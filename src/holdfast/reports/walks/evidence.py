"""The latent walks of one or several runs, and the FMR family of measures as a wide table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from holdfast.core.errors import UserError
from holdfast.core.files import stored_object
from holdfast.core.lazy import pd
from holdfast.core.schema import FRAMES, WALK_TIMES, WALKS
from holdfast.reports.page.evidence import ReportRows, details
from holdfast.reports.page.parts import Section
from holdfast.reports.page.sections import ReportEvidence, ReportSection
from holdfast.reports.page.tables import CLASS, Column, model_column, plain
from holdfast.reports.page.words import short_names
from holdfast.stats.walks.walk_rows import COLUMNS, DYNAMIC, PERTURBED, fmr_of_walks, paired
from holdfast.store import Run
from holdfast.store.parts import Parts

SPACES = {"dataset": "the dataset's classes", "all": "all outputs of the model"}


@dataclass(frozen=True)
class ReportWalks:
    """All walks of a report.

    ``images``: a row per setting × model × image: the columns of ``walk_rows.paired``, ``row_id`` and predictions of
    the perturbed row, and the columns of ``core.schema.WALKS``; ``walk`` is the setting's number from 1.
    """

    runs: Sequence[Run]  # those that hold walks
    images: pd.DataFrame
    settings: list[dict[str, Any]]  # the parameters of every setting, in the order of their numbers
    rows: pa.Table  # the dynamic rows behind them
    frames: pd.DataFrame  # the kept steps, with the columns of ``core.schema.FRAMES``
    folders: dict[str, Path]  # the run's folder by row id, for walks whose steps were kept

    @cached_property
    def models(self) -> list[str]:
        """Models, the highest FMR first, those without one last."""
        pooled = self.family[(self.family["label"] == "") & (self.family["measure"] == "fmr")]
        means = pooled.groupby("model")["estimate"].mean()
        return [str(name) for name in means.sort_values(ascending=False, kind="stable", na_position="last").index]

    @cached_property
    def short(self) -> dict[str, str]:
        """Names of models that fit next to a chart."""
        return short_names(self.models)

    def row(self, model: str, walk: int) -> str:
        """Return the name of a model under a setting, for charts and tables."""
        return f"{self.short[model]} · walk {walk}" if self.several else self.short[model]

    @property
    def several(self) -> bool:
        """Whether there is more than one setting."""
        return len(self.settings) > 1

    @cached_property
    def order(self) -> list[tuple[str, int]]:
        """(model, walk) pairs in the order of charts and tables."""
        present = set(self.images[["model", "walk"]].itertuples(index=False, name=None))
        numbers = range(1, len(self.settings) + 1)
        return [(model, walk) for model in self.models for walk in numbers if (model, walk) in present]

    @cached_property
    def family(self) -> pd.DataFrame:
        """The FMR family of every setting; right answers count in each walk's own label space."""
        return families(self.images)


def families(images: pd.DataFrame) -> pd.DataFrame:
    """Return the FMR family of every setting, with its number in ``walk``."""
    number = dict(zip(images["parameters"], images["walk"], strict=True))
    table = fmr_of_walks(images)
    table.insert(0, "walk", table["parameters"].map(number))
    return table


def read_walks(rows: ReportRows) -> ReportWalks | None:
    """Return the walks among the rows; None if no walk ended."""
    table = rows.photos(
        [*COLUMNS, "row_id", "prediction", "prediction_restricted", "oracle_score", "image_sha256"],
        ds.field("kind") == DYNAMIC,
    )
    runs = rows.runs_with(ds.field("kind") == DYNAMIC)
    try:
        images = paired(table)
    except ValueError as error:  # the parameters are not JSON
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
    walks = details(runs, "walks", WALKS).to_pandas()
    walks["stop"] = walks["stop"].astype(object)
    images = images.merge(walks.drop_duplicates("row_id"), on="row_id", how="left", suffixes=("", "_walk"))
    images["seconds"] = images["row_id"].map(_times(runs)).astype("float64")
    frames, folders = _frames(runs)
    return ReportWalks(runs, images, [stored_object(text, "parameters") for text in settings], table, frames, folders)


def _times(runs: Sequence[Run]) -> dict[str, float]:
    """Return seconds by row id, for runs that recorded them; a file that is damaged counts as not there."""
    times: dict[str, float] = {}
    for file in (file for run in runs for file in sorted((run.path / WALK_TIMES).glob("*.json"))):
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            times |= {str(row_id): float(seconds) for row_id, seconds in stored.items()}
        except (ValueError, AttributeError, TypeError, OSError, RecursionError):
            continue
    return times


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


def both_spaces(walks: ReportWalks) -> pd.DataFrame:
    """Return the FMR family of every setting in both label spaces, with ``counted`` (``dataset`` or ``all``)."""
    number = dict(zip(walks.images["parameters"], walks.images["walk"], strict=True))
    tables = []
    for space in SPACES:
        images = paired(walks.rows, space=space)
        table = families(images.assign(walk=images["parameters"].map(number)))
        tables.append(table.assign(counted=space))
    return pd.concat(tables, ignore_index=True)


def wide(walks: ReportWalks, family: pd.DataFrame) -> pd.DataFrame:
    """Return a row per model × walk × class: a column per measure, its interval (``_from``, ``_to``), the counts."""
    records = []
    for (model, walk, label), group in family.groupby(["model", "walk", "label"], observed=True, sort=False):
        by = {row["measure"]: row for row in group.to_dict("records")}
        record: dict[str, Any] = {
            "model": model,
            "walk": walk,
            "label": label,
            "n": by["standard_accuracy"]["n"],
            "right": by["standard_accuracy"]["numerator"],
            "validated": by["validation_rate"]["numerator"],
            "right_validated": by["perturbed_accuracy"]["numerator"],
            "reason": by["fmr"]["reason"],
        }
        for measure, row in by.items():
            record |= {measure: row["estimate"], f"{measure}_from": row["low"], f"{measure}_to": row["high"]}
        records.append(record)
    frame = pd.DataFrame(records)
    place = {pair: position for position, pair in enumerate(walks.order)}
    frame["place"] = [place[pair] for pair in zip(frame["model"], frame["walk"], strict=True)]
    frame = frame.sort_values(["place", "label"], kind="stable", ignore_index=True)
    return frame.drop(columns="place")


def first_columns(walks: ReportWalks, *, label: bool = False) -> list[Column]:
    """Return the columns that say what a row is about."""
    columns = [model_column(walks.short)]
    if walks.several:
        columns.append(Column("walk", "Walk", "integer"))
    return [*columns, CLASS] if label else columns


def share(key: str, title: str, hint: str = "") -> Column:
    """Return the column of a measure of ``wide`` with its interval."""
    return Column(key, title, "percent", f"{key}_from", f"{key}_to", hint=hint)


COUNTS = [
    *plain("integer", n="Images", right="right on the original"),
    Column("validated", "validated", "integer", hint="images whose counterfactual the oracle accepted"),
    Column("right_validated", "of those right", "integer", hint="right on the counterfactual"),
]
FAMILY = [
    share("standard_accuracy", "SA", "accuracy on the originals"),
    share("validation_rate", "VR", "share of images that the oracle accepted"),
    share("perturbed_accuracy", "PA", "accuracy on the accepted counterfactuals"),
    share("fmr", "FMR", "PA / SA"),
]
VARIANTS = [
    share("fmr_low", "FMR_low", "all rejected images wrong"),
    share("fmr_high", "FMR_high", "all rejected images right"),
    share("fmr_algorithm1", "FMR_algorithm1", "rejected images count as their originals did"),
    share("fmr_matched", "FMR_matched", "PA over SA of the same accepted images"),
]


def walks_of(report: ReportEvidence) -> ReportWalks | None:
    """Return the walks of a report; None if no walk ended."""
    return read_walks(report.rows)


def walk_section(
    build: Callable[[ReportEvidence, ReportWalks], Section],
    applies: Callable[[ReportEvidence], bool] = lambda _: True,
) -> ReportSection:
    """Return a section of reports that have a walk that ended."""

    def built(report: ReportEvidence) -> list[Section]:
        walks = report.once(walks_of)
        return [] if walks is None else [build(report, walks)]

    return ReportSection(built, lambda report: "walks" in report.tasks and applies(report))
