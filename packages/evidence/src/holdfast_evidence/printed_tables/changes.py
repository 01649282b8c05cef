"""Changes between two columns: in points, as a share of what was there before, or as a factor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from math import inf

from holdfast_evidence.printed_tables.printed import ROLE_WORDS, AuditFinding, Interval, Printed, PrintedNumber

Form = Callable[[Interval, Interval], Interval]
"""(before, after) → the size of the change, without its sign."""
FACTORS = frozenset(("speedup", "factor", "ratio", "times"))
FEW_ROWS = 2  # More rows that no form fits mean something else than a change


def _size(value: Interval) -> Interval:
    inside = value.low <= 0 <= value.high
    return Interval(0.0 if inside else min(abs(value.low), abs(value.high)), max(abs(value.low), abs(value.high)))


def _relative(unit: float) -> Form:
    return lambda old, new: _size(new.over(old) + Interval(-1, -1)) * unit


def _of_the_new(unit: float) -> Form:
    return lambda old, new: _size(old.over(new) + Interval(-1, -1)) * unit


def _points(unit: float) -> Form:
    return lambda old, new: _size(new + old * -1) * unit


def _of_the_error(whole: float, unit: float) -> Form:
    def form(old: Interval, new: Interval) -> Interval:
        left = Interval(whole, whole) + old * -1
        return _size(new + old * -1).over(left) * unit if left.low > 0 else Interval(-inf, -inf)

    return form


RIGHT: tuple[Form, ...] = (
    _relative(100), _relative(1), _points(1), _points(100), _points(0.01),
    _of_the_error(100, 100), _of_the_error(1, 100), _of_the_error(100, 1), _of_the_error(1, 1),
)  # fmt: skip
WRONG: tuple[Form, ...] = (_of_the_new(100), _of_the_new(1))
AS_FACTOR: tuple[Form, ...] = (Interval.over, lambda old, new: new.over(old), *WRONG)


def changes(table: Printed) -> Iterator[AuditFinding]:
    """Yield changes that are not what the other cells of their column are: points, a share of the old, a factor."""
    for column in table.all_having("change"):
        pairs = _pairs(table, column)
        groups: dict[str, list[int]] = {}
        for row in table.rows if pairs else ():
            printed = table.figure(row, column)
            if printed and not table.is_mean_of_rows(row, column) and any(_ends(table, row, pair) for pair in pairs):
                groups.setdefault(re.sub(r"[\d\s.,+−–'-]", "", printed.text), []).append(row)
        for rows in groups.values():
            yield from _checked(table, column, pairs, rows)


def _pairs(table: Printed, column: str) -> list[tuple[str, str]]:
    """Return the columns before and after that a change may be of: those of its own name, or all."""
    named = [
        (before, after)
        for before, after in product(table.all_having("before"), table.all_having("after"))
        if _stem(before) == _stem(after)
    ] or list(product(table.all_having("before"), table.all_having("after")))
    return [pair for pair in named if _stem(column) and _stem(pair[0]) == _stem(column)] or named


def _stem(column: str) -> frozenset[str]:
    words = set(re.findall(r"[a-z0-9]+", column.lower()))
    return frozenset(words.difference(*(ROLE_WORDS[role] for role in ("before", "after", "change"))))


def _ends(table: Printed, row: int, pair: tuple[str, str]) -> tuple[PrintedNumber, PrintedNumber] | None:
    old, new = table.figure(row, pair[0]), table.figure(row, pair[1])
    return (old, new) if old and new and old.rounded.low > 0 and new.rounded.low > 0 else None


def _checked(table: Printed, column: str, pairs: list[tuple[str, str]], rows: list[int]) -> Iterator[AuditFinding]:
    """Check cells of one unit against the pair and the form that fit most of them."""
    name = set(re.findall(r"[a-z]+", column.lower()))
    factor = bool(name & FACTORS) or any(table.columns[column][row].strip()[-1] in "×x" for row in rows)
    right = (*RIGHT, *AS_FACTOR) if factor else RIGHT

    def fits(row: int, pair: tuple[str, str], form: Form) -> bool:
        printed, ends = table.figure(row, column), _ends(table, row, pair)
        return not ends or bool(printed and form(ends[0].rounded, ends[1].rounded).meets(printed.size))

    def fitting(choice: tuple[tuple[str, str], Form]) -> int:
        return sum(fits(row, *choice) for row in rows)

    pair, form = max(product(pairs, right), key=fitting)
    misses = [row for row in rows if not fits(row, pair, form)]
    known = {row: any(fits(row, pair, wrong) for wrong in WRONG) for row in misses}
    if 2 * len(misses) > len(rows) > FEW_ROWS:
        misses = [row for row in misses if known[row]] if 2 * sum(known.values()) > len(misses) else []
    for row in misses:
        printed, ends = table.figure(row, column), _ends(table, row, pair)
        assert printed and ends
        old, new = ends
        expected = f"{form(old.rounded, new.rounded).middle:.{max(printed.decimals, 0)}f}"
        why = f"divides by {new.text}" if known[row] else "is neither the difference nor a share of the old value"
        kind = "wrong_denominator" if known[row] else "change_off"
        sentence = f"{old.text} → {new.text} is a change of {expected}, not {printed.text}, which {why}."
        yield table.slip(kind, row, column, printed.text, expected, sentence)
