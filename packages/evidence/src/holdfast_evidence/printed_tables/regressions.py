"""Checks of regression tables: p against t, ends of intervals, stars, signs.

Degrees of freedom, the level of intervals and the meaning of stars are rarely printed. Each check looks for the one
choice that fits most rows, and reports the rows that do not fit it; it keeps silent if fewer than three quarters do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import scipy_stats
from holdfast_evidence.printed_tables.printed import SLACK, AuditFinding, Interval, Printed

DEGREES = np.r_[1:201, np.geomspace(202, 1e6, 860)]
"""Degrees of freedom that a table may have; beyond 200 in steps of 1 %, which change no printed p."""
STARS = (
    (0.05, 0.01, 0.001, 0.0001),
    (0.1, 0.05, 0.01, 0.001),
    (0.05, 0.01, 0.005, 0.001),
)  # What one to four stars mean, by convention
LIMITS = (0.1, 0.05, 0.01, 0.005, 0.001, 0.0001)
"""Of which any may be what a star means, if all rows agree."""
ASYMMETRY = 2.0  # of the squares that rounding alone gives
MOST = 0.75
FEWEST = 4  # Rows that a choice must be fitted to before a row that misses it is called a slip
_STARRED = re.compile(r"(\*+)\s*$")
_BOUND = re.compile(r"^\s*([<‹≤>›≥])\s*=?\s*(.+)$")

Choice = TypeVar("Choice")


def regression_slips(table: Printed) -> Iterator[AuditFinding]:
    """Yield what is wrong in a table of estimates with standard errors, t, p, intervals or stars."""
    yield from _signs(table)
    yield from _probabilities(table)
    yield from _intervals(table)
    yield from _stars(table)


def t_in_p(table: Printed) -> Iterator[AuditFinding]:
    """Yield cells of a p column that hold t = estimate / standard error, and of a t column that do not."""
    columns = {role: table.column(role) for role in ("estimate", "se", "t", "p")}
    for row in table.rows:
        estimate, error, t, p = (table.figure(row, column) for column in columns.values())
        ratio = estimate.size.over(error.rounded) if estimate and error and error.value > 0 else None
        if p and columns["p"] and _holds_t(table, row):
            expected = f"{2 * float(scipy_stats.norm.sf(ratio.middle)):.2g}" if ratio else ""
            why = "is estimate / standard error" if ratio and ratio.meets(p.size) else "is not a probability"
            about = f"; p is about {expected}." if ratio else "."
            sentence = f"{p.text} in the p column {why}: a t-value{about}"
            yield table.slip("t_in_p", row, columns["p"], p.text, expected, sentence)
        if t and ratio and columns["t"] and not ratio.meets(t.size):
            expected = f"{ratio.middle:.{max(t.decimals, 0)}f}"
            sentence = f"t = {t.text} is not estimate / standard error = {expected}."
            yield table.slip("t_off", row, columns["t"], t.text, expected, sentence)


def _holds_t(table: Printed, row: int) -> bool:
    """Return whether a cell of the p column is not a probability, or is the t-value and too small for its p."""
    p, size = table.figure(row, table.column("p")), _t_size(table, row)
    if not p:
        return False
    if p.rounded.low > 1 or p.rounded.high < 0:
        return True
    if not size or not size.meets(p.size):
        return False
    # With few degrees of freedom p is larger than the normal's, never smaller; a one-sided p is half of it.
    tail = float(scipy_stats.norm.sf(size.high))
    one_sided = Interval(tail, float(scipy_stats.t.sf(size.low, 1)))
    return p.rounded.high < tail * (2 - 1e-9) and not p.rounded.meets(one_sided)


def probability(table: Printed, row: int) -> Interval | None:
    """Return the p that a cell may stand for; "<.0001" stands for 0 to 0.0001."""
    column = table.column("p") or next((name for name, (_, role) in table.roles.items() if role == "p"), None)
    if column is None:
        return None
    text = table.columns[column][row]
    if bound := _BOUND.match(text):
        limit = table.number(bound[2])
        below = bound[1] in "<‹≤"
        return None if limit is None else Interval(0.0, limit.value) if below else Interval(limit.value, 1.0)
    printed = table.figure(row, column)
    return None if printed is None else Interval(max(printed.rounded.low, 0.0), printed.rounded.high)


def _t_size(table: Printed, row: int) -> Interval | None:
    """Return |t| of a row, from its column or as |estimate| / standard error."""
    printed = table.figure(row, table.column("t"))
    if printed:
        return printed.size
    estimate, error = (table.figure(row, table.column(role)) for role in ("estimate", "se"))
    if not (estimate and error) or error.rounded.low <= 0:
        return None
    return estimate.size.over(error.rounded)


def _best_choice(
    rows: Sequence[int], choices: Sequence[Choice], fits: Callable[[int, Choice], bool]
) -> tuple[Choice, list[int]] | None:
    """Return the choice that fits most rows and the rows that it does not fit; None if too few fit any."""
    if len(rows) < FEWEST:
        return None
    misses = {place: [row for row in rows if not fits(row, choice)] for place, choice in enumerate(choices)}
    best = min(misses, key=lambda place: len(misses[place]))
    fitting = len(rows) - len(misses[best])
    return (choices[best], misses[best]) if fitting >= max(MOST * len(rows), FEWEST - 1) else None


def _probabilities(table: Printed) -> Iterator[AuditFinding]:
    """Check that p is the two-sided tail of t with one number of degrees of freedom for the whole table."""
    column = next((name for name, (_, role) in table.roles.items() if role == "p"), None)
    if column is None:
        return
    pairs = {row: (_t_size(table, row), probability(table, row)) for row in table.rows}
    printed = {row: (size, p) for row, (size, p) in pairs.items() if size and p}

    def tail(row: int, df: float) -> Interval:
        size, _ = printed[row]
        return Interval(float(2 * scipy_stats.t.sf(size.high, df)), float(2 * scipy_stats.t.sf(size.low, df)))

    own = table.column("df")
    cells = {row: cell for row in printed if own and (cell := table.figure(row, own)) and cell.value > 0}
    stated = {row: cell.value for row, cell in cells.items()}
    fractions = max((cell.decimals for cell in cells.values()), default=0) > 0  # Welch's are, and rounded
    rows = [row for row in printed if row not in stated]
    fitting: dict[int, NDArray[np.bool_]] = {}
    for row in rows:
        size, p = printed[row]
        low, high = 2 * scipy_stats.t.sf(size.high, DEGREES), 2 * scipy_stats.t.sf(size.low, DEGREES)
        fitting[row] = np.logical_and(low <= p.high + SLACK, high >= p.low - SLACK)
    wrong = {}
    for row, df in stated.items():
        half = cells[row].half if fractions else 0.0
        if not Interval(tail(row, df + half).low, tail(row, df - half).high).meets(printed[row][1]):
            wrong[row] = df
    chosen = _best_choice(rows, range(len(DEGREES)), lambda row, place: bool(fitting[row][place]))
    if chosen is not None and table.column("estimate"):
        wrong |= dict.fromkeys(chosen[1], float(DEGREES[chosen[0]]))
    else:  # too few rows, or tests with degrees of freedom each: what none of them explain is still wrong
        possible = {row: Interval(tail(row, DEGREES[-1]).low, tail(row, 1).high) for row in rows}
        off = [row for row in rows if not possible[row].meets(printed[row][1])]
        one_sided = [_one_sided(table, rows, printed, side) for side in (1, -1)]
        wrong |= {} if min(one_sided) < len(off) else dict.fromkeys(off, float(DEGREES[-1]))
    for row, df in sorted(wrong.items()):
        text = table.columns[column][row]
        if _holds_t(table, row):
            continue  # which another check names
        expected = f"{tail(row, df).middle:.2g}"
        sentence = f"p = {text} does not follow from t = {printed[row][0].middle:.3g}; that gives about {expected}."
        yield table.slip("p_off", row, column, text, expected, sentence)


def _one_sided(table: Printed, rows: Sequence[int], printed: dict[int, tuple[Interval, Interval]], side: int) -> int:
    """Return how many p are no one-sided tail of their t, whatever the degrees of freedom."""
    misses = 0
    for row in rows:
        size, p = printed[row]
        signed = table.figure(row, table.column("t")) or table.figure(row, table.column("estimate"))
        tails = [float(scipy_stats.t.sf(size.high, DEGREES[-1])), float(scipy_stats.t.sf(size.low, 1))]
        positive = signed is not None and signed.value * side >= 0
        misses += not (Interval(*tails) if positive else Interval(1 - tails[1], 1 - tails[0])).meets(p)
    return misses


def _signs(table: Printed) -> Iterator[AuditFinding]:
    """Yield estimates whose t has the other sign, if signs of t are printed at all."""
    estimates, ts = table.column("estimate"), table.column("t")
    if not (estimates and ts):
        return
    pairs = {row: (table.figure(row, estimates), table.figure(row, ts)) for row in table.rows}
    signed = any(t and t.value < 0 for _, t in pairs.values())
    for row, (estimate, t) in pairs.items():
        if not signed or not estimate or not t or estimate.value * t.value >= 0:
            continue
        if abs(estimate.value) > estimate.half and abs(t.value) > t.half:
            sentence = f"The estimate {estimate.text} and its t = {t.text} have different signs."
            yield table.slip("sign_off", row, estimates, estimate.text, "", sentence)


def _intervals(table: Printed) -> Iterator[AuditFinding]:
    """Yield intervals without their estimate; and, of a regression, ends that are not estimate ± factor × error."""
    lows, highs = table.column("low"), table.column("high")
    estimates, errors = table.column("estimate"), table.column("se")
    if not (lows and highs):
        return
    value_column = _inside(table, lows, highs)
    centred: dict[int, tuple[Interval, Interval]] = {}  # row → factors that the lower and the upper end allow
    outside, judged = [], 0
    for row in table.rows:
        low, high, value = (table.figure(row, column) for column in (lows, highs, value_column))
        if not (low and high and value):
            continue
        judged += 1
        if value.rounded.high < low.rounded.low or value.rounded.low > high.rounded.high:
            sentence = f"{value.text} is outside its own interval, {low.text} to {high.text}."
            outside.append(table.slip("outside_interval", row, value_column or lows, value.text, "", sentence))
            continue
        error = table.figure(row, errors)
        if value_column == estimates and error and error.rounded.low > 0:
            below = Interval(value.rounded.low - low.rounded.high, value.rounded.high - low.rounded.low)
            above = Interval(high.rounded.low - value.rounded.high, high.rounded.high - value.rounded.low)
            centred[row] = (below.over(error.rounded), above.over(error.rounded))
    if 2 * len(outside) > judged:
        return  # the interval is of something that is not printed
    yield from outside
    yield from _ends(table, centred, (lows, highs), estimates, errors)


def _inside(table: Printed, lows: str, highs: str) -> str | None:
    """Return the column whose values most often are between the ends: they may be those of an odds ratio."""
    known = [
        column for role in ("estimate", "sa", "pa", "vr", "fmr") for column in table.all_having(role)
    ] + table.others

    def inside(column: str) -> int:
        figures = [[table.figure(row, name) for name in (lows, column, highs)] for row in table.rows]
        return sum(bool(a and b and c and a.value <= b.value <= c.value) for a, b, c in figures)

    return max(known + table.others, key=inside, default=None)


def _ends(
    table: Printed,
    centred: dict[int, tuple[Interval, Interval]],
    columns: tuple[str, str],
    estimates: str | None,
    errors: str | None,
) -> Iterator[AuditFinding]:
    """Find the factor that fits most ends, and report the ends that it does not fit."""
    ends = [(row, side) for row in centred for side in (0, 1)]
    candidates = sorted({edge for row in centred for factor in centred[row] for edge in (factor.low, factor.high)})
    candidates = [edge for edge in candidates if 0 < edge < inf]

    def fits(place: int, factor: float) -> bool:
        row, side = ends[place]
        return centred[row][side].meets(Interval(factor, factor))

    chosen = _best_choice(range(len(ends)), candidates, fits) if candidates else None
    if chosen and not _symmetric(table, set(centred) - {ends[place][0] for place in chosen[1]}, columns, estimates):
        return  # a bootstrap's ends, which rounding hides in most rows
    for place in chosen[1] if chosen else ():
        row, side = ends[place]
        estimate, error = table.figure(row, estimates), table.figure(row, errors)
        end = table.figure(row, columns[side])
        assert chosen and estimate and error and end
        expected = f"{estimate.value + (-1, 1)[side] * chosen[0] * error.value:.{max(end.decimals, 0)}f}"
        sentence = (
            f"{end.text} is not {estimate.text} {'−+'[side]} {chosen[0]:.3g} × {error.text} = {expected}, "
            "as the table's other ends are."
        )
        yield table.slip("interval_off", row, columns[side], end.text, expected, sentence)


def _symmetric(table: Printed, rows: set[int], columns: tuple[str, str], estimates: str | None) -> bool:
    """Return whether the ends are as far from their estimate as each other, but for what rounding does."""
    total = expected = 0.0
    for row in rows:
        low, high, value = (table.figure(row, column) for column in (*columns, estimates))
        if low and high and value:
            total += (low.value + high.value - 2 * value.value) ** 2
            expected += (low.half**2 + high.half**2 + 4 * value.half**2) / 3
    return len(rows) > 2 and total <= ASYMMETRY * expected


def _stars(table: Printed) -> Iterator[AuditFinding]:
    """Yield stars that do not go with their p by the usual convention that fits the table best."""
    column = next((name for name, (_, role) in table.roles.items() if role == "stars"), None)
    estimates = table.column("estimate")
    source = column or estimates
    if source is None:
        return
    marks = {row: len(match[1]) if (match := _STARRED.search(table.columns[source][row])) else 0 for row in table.rows}
    if not any(marks.values()):
        return
    known = {row: p for row in table.rows if (p := probability(table, row)) is not None and not _holds_t(table, row)}

    def fits(row: int, limits: Sequence[float]) -> bool:
        count = marks[row]
        above = limits[count] if count < len(limits) else 0.0
        below = limits[count - 1] if 0 < count <= len(limits) else 1.0
        return known[row].meets(Interval(above, below))

    most = max(marks.values())
    conventions = [limits[:most] for limits in STARS]
    if any(all(fits(row, limits) for row in known) for limits in combinations(LIMITS, most)):
        return  # another convention
    chosen = _best_choice(list(known), conventions, fits)
    for row in chosen[1] if chosen else ():
        text = "*" * marks[row] or "no star"
        expected = "*" * sum(known[row].high <= limit for limit in chosen[0]) if chosen else ""
        sentence = f"{text} does not go with its p; by the table's own convention it is {expected or 'no star'}."
        yield table.slip("stars_off", row, source, text, expected, sentence)
