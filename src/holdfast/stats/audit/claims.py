"""Figures that a paper prints twice, and sentences that quote its tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.core.errors import UserError
from holdfast.stats.audit.printed import AuditFinding, Interval, Printed, PrintedNumber, figure

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("text", "value", "table", "how")
_CALL = re.compile(r"^\s*(\w+)\s*\(([^()]*)\)\s*$")


def printed_twice(table: Printed, others: Sequence[Printed]) -> Iterator[AuditFinding]:
    """Yield cells whose row and column have the same names in another table, and whose figures cannot be one number."""
    for other in others:
        shared = [column for column in table.numeric if column in other.numeric and column not in table.labels]
        for row in table.rows:
            same = [entry for entry in other.rows if _names_agree(table, row, other, entry)]
            if len(same) != 1:
                continue
            for column in shared:
                ours, theirs = table.figure(row, column), other.figure(same[0], column)
                if ours and theirs and not _one_number(ours, theirs):
                    sentence = f"{ours.text} here, {theirs.text} in {other.name}."
                    yield AuditFinding("printed_twice", table.place(row, column), ours.text, theirs.text, sentence)


def _names_agree(table: Printed, row: int, other: Printed, entry: int) -> bool:
    """Rows are the same where every label column that both tables have agrees, and there is one."""
    shared = [column for column in table.labels if column in other.labels]
    pairs = [(table.columns[column][row].strip().lower(), other.columns[column][entry].strip().lower())
             for column in shared]  # fmt: skip
    return bool(pairs) and all(ours == theirs for ours, theirs in pairs)


def _one_number(ours: PrintedNumber, theirs: PrintedNumber) -> bool:
    """Return whether both may be one number, also where one table prints percent and the other fractions."""
    return any(ours.cut_or_rounded.meets(theirs.cut_or_rounded * scale) for scale in (1.0, 100.0, 0.01))


def check_claims(claims: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> list[AuditFinding]:
    """Return the claims that do not follow from their tables.

    ``claims``: columns ``text`` (the sentence), ``value`` (as printed in it), ``table`` (a name in ``tables``) and
    ``how``: ``cell(ROW; COLUMN)``, ``mean(COLUMN)``, ``min``, ``max`` or ``sum``, each with ``; LABEL=VALUE`` to choose
    rows, ``difference(ROW; ROW; COLUMN)`` or ``ratio(ROW; ROW; COLUMN)``. ``tables``: name → printed table.
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
        if not any((derived * scale).meets(stated.cut_or_rounded) for scale in (1.0, 100.0, 0.01)):
            expected = f"{derived.middle:.{max(stated.decimals, 0)}f}"
            sentence = f"“{text}” says {value}; {how} of {name} is {expected}."
            slips.append(AuditFinding("claim_off", where, value, expected, sentence))
    return slips


def _derive(table: Printed, how: str, where: str) -> Interval:
    call = _CALL.match(how)
    known: dict[str, Callable[[Printed, list[str]], Interval]] = {
        "cell": _cell, "mean": _mean, "sum": _sum, "min": _least, "max": _largest, "difference": _difference,
        "ratio": _ratio,
    }  # fmt: skip
    if not call or call[1] not in known:
        raise UserError(f"{where}: {how!r} is none of {', '.join(f'{name}(…)' for name in known)}.")
    try:
        return known[call[1]](table, [part.strip() for part in call[2].split(";")])
    except (LookupError, ValueError) as error:
        raise UserError(f"{where}: {how}: {error.args[0] if error.args else error}.") from None


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
        rows = [row for row in rows if table.columns[label][row].strip().lower() == value.lower()]
    if not rows:
        raise LookupError("no row is chosen")
    return [_figure(table, row, column) for row in rows]


def _cell(table: Printed, arguments: list[str]) -> Interval:
    row, column = arguments
    return _figure(table, _row(table, row), column)


def _sum(table: Printed, arguments: list[str]) -> Interval:
    return sum(_chosen(table, arguments), Interval(0, 0))


def _mean(table: Printed, arguments: list[str]) -> Interval:
    values = _chosen(table, arguments)
    return sum(values, Interval(0, 0)) * (1 / len(values))


def _least(table: Printed, arguments: list[str]) -> Interval:
    values = _chosen(table, arguments)
    return Interval(min(value.low for value in values), min(value.high for value in values))


def _largest(table: Printed, arguments: list[str]) -> Interval:
    values = _chosen(table, arguments)
    return Interval(max(value.low for value in values), max(value.high for value in values))


def _difference(table: Printed, arguments: list[str]) -> Interval:
    first, second, column = arguments
    return _figure(table, _row(table, first), column) + _figure(table, _row(table, second), column) * -1


def _ratio(table: Printed, arguments: list[str]) -> Interval:
    first, second, column = arguments
    return _figure(table, _row(table, first), column).over(_figure(table, _row(table, second), column))
