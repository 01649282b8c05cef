"""Figures that a paper prints twice, and sentences that quote its tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast_evidence.printed_tables.printed import AuditFinding, Interval, Printed, PrintedNumber, figure

COLUMNS = ("text", "value", "table", "how")
_CALL = re.compile(r"^\s*(\w+)\s*\(([^()]*)\)\s*$")


def printed_twice(table: Printed, others: Sequence[Printed]) -> Iterator[AuditFinding]:
    """Yield cells whose row and column have the same names in another table, and whose figures cannot be one number."""
    for other in others:
        shared = [column for column in table.numeric if column in other.numeric and column not in table.labels]
        labels = [column for column in table.labels if column in other.labels]
        for row in table.rows:
            same = [
                entry for entry in other.rows
                if labels and all(_name(table, column, row) == _name(other, column, entry) for column in labels)
            ]  # fmt: skip
            if len(same) != 1:
                continue
            for column in shared:
                ours, theirs = table.figure(row, column), other.figure(same[0], column)
                if ours and theirs and not _same(ours.cut_or_rounded, theirs):
                    sentence = f"{ours.text} here, {theirs.text} in {other.name}."
                    yield table.slip("printed_twice", row, column, ours.text, theirs.text, sentence)


def _name(table: Printed, column: str, row: int) -> str:
    return table.columns[column][row].strip().lower()


def _same(ours: Interval, theirs: PrintedNumber) -> bool:
    """Return whether both may be one number, also if one is in percent and the other a fraction."""
    return any(ours.meets(theirs.cut_or_rounded * scale) for scale in (1.0, 100.0, 0.01))


def check_claims(claims: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> list[AuditFinding]:
    """Return the claims that do not follow from their tables.

    ``claims``: columns ``text`` (the sentence), ``value`` (as printed in it), ``table`` (a name in ``tables``) and
    ``how``: ``cell(ROW; COLUMN)``, ``mean(COLUMN)``, ``min``, ``max`` or ``sum``, each with ``; LABEL=VALUE`` to choose
    rows, ``difference(ROW; ROW; COLUMN)`` or ``ratio(ROW; ROW; COLUMN)``, of any two cells with
    ``(ROW; COLUMN; ROW; COLUMN)``. A row is called by its first name, or by all of them. ``tables``: name → table.
    """
    missing = [column for column in COLUMNS if column not in claims]
    if missing:
        raise UserError(f"The claims have no column {', '.join(missing)}; needed are {', '.join(COLUMNS)}.")
    printed = {name: Printed.of(frame, name) for name, frame in tables.items()}
    slips = []
    for place in range(len(claims)):
        text, value, name, how = (str(claims[column].iloc[place]).strip() for column in COLUMNS)
        where = f"claim {place + 1}"
        if name not in printed:
            raise UserError(f"{where}: there is no table {name!r}; given are {', '.join(printed) or 'none'}.")
        stated = figure(value)
        if stated is None:
            raise UserError(f"{where}: {value!r} is not a number.")
        derived = _derive(printed[name], how, where)
        if not _same(derived, stated):
            expected = f"{derived.middle:.{max(stated.decimals, 0)}f}"
            sentence = f"“{text}” says {value}; {how} of {name} is {expected}."
            slips.append(AuditFinding("claim_off", where, value, expected, sentence))
    return slips


_WAYS = ("cell", "mean", "sum", "min", "max", "difference", "ratio")


def _derive(table: Printed, how: str, where: str) -> Interval:
    call = _CALL.match(how)
    if not call or call[1] not in _WAYS:
        raise UserError(f"{where}: {how!r} is none of {', '.join(f'{name}(…)' for name in _WAYS)}.")
    way, arguments = call[1], [part.strip() for part in call[2].split(";")]
    try:
        if way in ("cell", "difference", "ratio"):
            figures = [_figure(table, _row(table, row), column) for row, column in _cells(way, arguments)]
            if way == "cell":
                return figures[0]
            return figures[0] + figures[1] * -1 if way == "difference" else figures[0].over(figures[1])
        values = _chosen(table, arguments)
        if way in ("min", "max"):
            extreme = min if way == "min" else max
            return Interval(extreme(value.low for value in values), extreme(value.high for value in values))
        return sum(values, Interval(0, 0)) * (1 / len(values) if way == "mean" else 1)
    except (LookupError, ValueError) as error:
        raise UserError(f"{where}: {how}: {error.args[0] if error.args else error}.") from None


def _cells(way: str, arguments: list[str]) -> list[tuple[str, str]]:
    """Return the (row, column) that a claim names."""
    if len(arguments) == (2 if way == "cell" else 3):
        *rows, column = arguments
        return [(row, column) for row in rows]
    if way != "cell" and len(arguments) == 4:
        return [(arguments[0], arguments[1]), (arguments[2], arguments[3])]
    words = "a row and a column" if way == "cell" else "two rows and a column, or ROW; COLUMN; ROW; COLUMN"
    raise ValueError(f"{way} takes {words}")


def _figure(table: Printed, row: int, column: str) -> Interval:
    if column not in table.columns:
        raise LookupError(f"{table.name} has no column {column!r}")
    printed = table.figure(row, column)
    if printed is None:
        raise LookupError(f"there is no number in {table.place(row, column)}")
    return printed.rounded


def _row(table: Printed, name: str) -> int:
    first = [row for row in table.rows if table.labels and table.columns[table.labels[0]][row].strip() == name]
    rows = first or [row for row in table.rows if name.lower() in {*table.keys(row), table.label(row).lower()}]
    if len(rows) != 1:
        raise LookupError(f"{len(rows)} rows of {table.name} are called {name!r}")
    return rows[0]


def _chosen(table: Printed, arguments: list[str]) -> list[Interval]:
    """Return the figures of a column, in the rows that LABEL=VALUE chooses."""
    column, *filters = arguments
    rows = [row for row in table.rows if not table.is_total(row)]
    for text in filters:
        label, _, value = (part.strip() for part in text.partition("="))
        if label not in table.columns:
            raise LookupError(f"{table.name} has no column {label!r}")
        rows = [row for row in rows if _name(table, label, row) == value.lower()]
    if not rows:
        raise LookupError("no row is chosen")
    return [_figure(table, row, column) for row in rows]
