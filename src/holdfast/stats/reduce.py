"""Rows → counts. Every statistic starts here, and nothing after it sees raw rows.

DuckDB streams the rows, so that tables larger than memory reduce, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa
import pyarrow.dataset as ds

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

BINS = 1000
"""Equal steps of confidence, 0..1. Answers within one step stand in random order: an AUROC is met to 1e-3, an area
under risk–coverage of a hundred answers, many of them surer than 0.999, to about 5e-3."""

Outcome = Literal["full", "restricted"]
"""Right over all outputs of the model, or among the dataset's classes only."""


@dataclass(frozen=True)
class Counts:
    """What is left of the rows.

    Attributes:
        cells: a row per model × trained_on × condition × label × source × donor × fold with ``n`` and how many were
            ``right`` (full) and ``right_restricted``; ``captured``: answered with the donor's class, and
            ``captured_before``: how many of the same photos' originals were.
        confidence: a row per model × trained_on × condition × bin: ``n``, ``right``, and sums: ``confidence``,
            ``brier``.
        confusion: a row per model × trained_on × condition × label × prediction: ``n`` (among the dataset's classes).
        trouble: a row per model × condition × status × error: ``n``, and one ``example``.
        same_images: condition → an earlier condition whose images are all identical to its own.
        models: in the order of the rows' keys.
        conditions: in the order in which they were asked for, the original first.
        classes: sorted.
        attacks: the conditions whose pictures were made against each model; averages, scores and regressions leave
            them out unless asked, because no two models saw the same pictures.
    """

    cells: pd.DataFrame
    confidence: pd.DataFrame
    confusion: pd.DataFrame
    trouble: pd.DataFrame
    same_images: dict[str, str]
    models: list[str]
    conditions: list[str]
    classes: list[str]
    attacks: tuple[str, ...] = ()

    def distinct(self) -> pd.DataFrame:
        """The cells without conditions that repeat another's images: those count once in scores and regressions."""
        return self.cells[~self.cells["condition"].isin(list(self.same_images))]


def reduce(rows: pa.Table | ds.Dataset, *, order: list[str] | None = None) -> Counts:
    """Count.

    Args:
        rows: the one table, or a part of it (any columns beyond those counted are ignored).
        order: condition names in the order wanted; others follow in alphabetical order.
    """
    import duckdb

    with duckdb.connect() as database:
        database.execute("set preserve_insertion_order = false")
        database.register("rows", rows)
        database.execute(_NAMED)
        return _counts(database, order or [])


# A condition's name: its id, its variant unless it is the paper's, its parameters where the table has several.
_NAMED = """
    create temp table several as
        select condition, variant, true as many from rows where task = 'classify'
        group by all having count(distinct parameters) > 1;
    create temp view named as
        select rows.*, cast(rows.condition as varchar)
            || case when rows.variant in ('paper', 'as_stored', '') then '' else '@' || rows.variant end
            || case when several.many then ' ' || rows.parameters else '' end as name
        from rows left join several using (condition, variant) where task = 'classify'
"""


def _counts(database: duckdb.DuckDBPyConnection, order: list[str]) -> Counts:
    cells = database.execute(
        """
        with originals as (
            select model, trained_on, source_id, fold, min(prediction_restricted) as answer
            from named where name = ? and status = 'ok' group by all)
        select n.model, n.trained_on, n.kind, n.name as condition, n.label, n.source_id, n.donor_id, n.donor_label,
            n.fold,
            count(*)::int as n,
            sum(n.correct::int)::int as "right",
            sum(n.correct_restricted::int)::int as right_restricted,
            sum(coalesce(n.prediction_restricted = n.donor_label, false)::int)::int as captured,
            sum(coalesce(o.answer = n.donor_label, false)::int)::int as captured_before
        from named n left join originals o using (model, trained_on, source_id, fold)
        where n.status = 'ok' group by all order by all""",
        [ORIGINAL],
    ).df()
    confidence = database.execute(
        """
        select model, trained_on, name as condition, least(floor(confidence * $bins), $bins - 1)::int as bin,
            count(*)::int as n, sum(correct::int)::int as "right", sum(confidence)::double as confidence,
            sum((confidence - correct::int) ** 2)::double as brier
        from named where status = 'ok' and confidence is not null group by all order by all""",
        {"bins": BINS},
    ).df()
    confusion = database.execute(
        """
        select model, trained_on, name as condition, label, prediction_restricted as prediction, count(*)::int as n
        from named where status = 'ok' group by all order by all"""
    ).df()
    trouble = database.execute(
        """
        select model, name as condition, status, error, count(*)::int as n, min(sample_id) as example
        from named where status <> 'ok' group by all order by n desc, model, condition, error"""
    ).df()
    for frame in (cells, confidence, confusion):
        for column in ("model", "trained_on", "kind", "condition", "label", "donor_label", "prediction"):
            if column in frame:
                frame[column] = frame[column].astype("category")
    names = [name for (name,) in database.execute("select distinct name from named").fetchall()]
    known = {name: position for position, name in enumerate(order)}
    conditions = sorted(names, key=lambda name: (name != ORIGINAL, known.get(name, len(known)), name))
    return Counts(
        cells,
        confidence,
        confusion,
        trouble,
        _same_images(database, conditions),
        sorted(cells["model"].astype(str).unique()),
        conditions,
        sorted(cells["label"].astype(str).unique()),
        tuple(
            name
            for (name,) in database.execute(
                "select distinct name from named where kind = 'attack' order by name"
            ).fetchall()
        ),
    )


def _same_images(database: duckdb.DuckDBPyConnection, conditions: list[str]) -> dict[str, str]:
    """Conditions whose images are all identical to those of one earlier in the list."""
    digests = database.execute(
        """
        select name, bit_xor(hash(source_id, image_sha256)), count(*) from
            (select distinct name, source_id, image_sha256 from named where status = 'ok' and image_sha256 is not null)
        group by all"""
    ).fetchall()
    content = {name: (digest, count) for name, digest, count in digests}
    first: dict[object, str] = {}
    same: dict[str, str] = {}
    for name in conditions:
        if name in content and content[name] in first:
            same[name] = first[content[name]]
        elif name in content:
            first[content[name]] = name
    return same


def right_column(outcome: Outcome) -> str:
    """The column of ``cells`` that counts this kind of right answer."""
    if outcome not in get_args(Outcome):
        raise UserError(f"an outcome is {' or '.join(get_args(Outcome))}, not {outcome!r}")
    return "right" if outcome == "full" else "right_restricted"
