"""Squared deviations, their variance, and the score made of it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, sqrt

from holdfast.core.lazy import scipy_stats
from holdfast_evidence.printed_tables.printed import AuditFinding, Interval, Printed, PrintedNumber

FEW_ROWS = 8  # fewer cannot distinguish cutting from rounding: each row rounds down anyway with probability one half
CONVINCING = 50  # times likelier if cut than if rounded: fewer than 1 in 50 rounded tables look so
ENOUGH_CELLS = 4  # fewer can agree on a wrong μ by chance
CLEARLY_APART = 0.005  # of two accuracies on originals, beyond what rounding allows


def variances(table: Printed) -> Iterator[AuditFinding]:
    """Yield variances that are not Σ squares / n; one that fits n − 1 only is named as that other formula.

    If fewer than half of the rows fit either formula, the column is the variance of something else.
    """
    slips: list[AuditFinding] = []
    rows = off = 0
    for row in table.rows:
        variance = _variance(table, row)
        if variance is None:
            continue
        rows += 1
        column, printed, total, count = variance
        expected = f"{total.middle / count:.{max(printed.decimals, 0)}f}"
        if (total * (1 / count)).meets(printed.cut_or_rounded):
            continue
        if count > 1 and (total * (1 / (count - 1))).meets(printed.cut_or_rounded):
            kind = "variance_n_minus_1"
            why = f"it divides the {count} squares by {count - 1}, not by {count}; that gives {expected}"
        else:
            off += 1
            kind, why = "variance_off", f"the {count} squares divided by {count} give {expected}"
        slips.append(table.slip(kind, row, column, printed.text, expected, f"Variance {printed.text}: {why}."))
    yield from slips if 2 * off <= rows else ()


def _variance(table: Printed, row: int) -> tuple[str, PrintedNumber, Interval, int] | None:
    """Return column, printed variance, sum of the row's squares in its unit, and their number; None without one."""
    columns = list(table.having("variance").values())
    printed = table.figure(row, columns[0]) if len(columns) == 1 else None
    cells = [figure for column in table.others if (figure := table.figure(row, column))]
    if printed is None or len(cells) < 2 or any(figure.value < 0 for figure in cells):
        return None
    low = sum(max(figure.rounded.low, 0.0) for figure in cells)
    total = Interval(low, sum(figure.rounded.high for figure in cells))
    # Squares in percent next to a variance that is a fraction, or both alike: whichever is nearer.
    mean = max(total.middle / len(cells), 1e-300)
    target = max(printed.value, printed.half)
    scale = min((1.0, 0.01), key=lambda figure: max(mean * figure / target, target / (mean * figure)))
    return columns[0], printed, total * scale, len(cells)


def cut_variances(table: Printed) -> Iterator[AuditFinding]:
    """Yield variances cut rather than rounded: judged over all rows, since the squares' own rounding blurs each one."""
    ratio, rows, should_have = 1.0, 0, []
    for row in table.rows:
        variance = _variance(table, row)
        if variance is None:
            continue
        _, printed, total, count = variance
        exact = [total.middle / divisor for divisor in (count, count - 1)]
        exact = [value for value in exact if Interval(value, value).meets(printed.cut_or_rounded)]
        if not exact:
            continue
        nearest = min(exact, key=lambda value: abs(value - printed.value))
        blur = (total.high - total.low) / (count - 1) / sqrt(12 * count)  # of a sum of uniform roundings
        ends = [printed.value + step * printed.half for step in (0, 2, -1, 1)]
        below = [float(scipy_stats.norm.cdf((nearest - end) / blur)) for end in ends]
        ratio *= (below[0] - below[1] + 1e-6) / (below[2] - below[3] + 1e-6)
        rows += 1
        if nearest > ends[3]:
            should_have.append((row, nearest, printed))
    if rows < FEW_ROWS or len(should_have) < 2 or ratio < CONVINCING:
        return
    row, value, printed = should_have[0]
    names = ", ".join(table.label(place) for place, _, _ in should_have)
    column = next(iter(table.having("variance").values()))
    sentence = (
        f"Variances look cut after {printed.decimals} decimals, not rounded: none of {rows} goes up, although those of "
        f"{names} should."
    )
    yield table.slip("variance_cut", row, column, printed.text, f"{value:.{printed.decimals}f}", sentence)


def scores(table: Printed) -> Iterator[AuditFinding]:
    """Yield scores that are not 1 − (σ²cross + σ²inner), variances side by side or in rows of one name and score."""
    columns = table.having("score")
    spread = [column for column, (_, role) in table.roles.items() if role == "variance" and column in table.numeric]
    if not columns or not spread:
        return
    column = next(iter(columns.values()))
    groups: dict[tuple[str, str], list[int]] = {}
    for row in table.rows:
        lone = (str(row), "") if len(spread) > 1 or not table.labels else None
        groups.setdefault(lone or (table.columns[table.labels[0]][row], table.columns[column][row]), []).append(row)
    slips, judged = [], 0
    for rows in groups.values():
        printed = table.figure(rows[0], column)
        parts = [figure for row in rows for name in spread if (figure := table.figure(row, name))]
        if printed is None or not parts:
            continue
        judged += 1
        total = sum((figure.cut_or_rounded for figure in parts), Interval(0, 0))
        score = Interval(1 - total.high, 1 - total.low)
        if not score.meets(printed.cut_or_rounded):
            expected = f"{1 - sum(figure.value for figure in parts):.{max(printed.decimals, 0)}f}"
            sum_text = " + ".join(figure.text for figure in parts)
            sentence = f"Score {printed.text} is not 1 − ({sum_text}) = {expected}."
            slips.append(table.slip("score_off", rows[0], column, printed.text, expected, sentence))
    yield from slips if 2 * len(slips) < judged else ()  # most are something else: a score of another kind


def against_accuracies(table: Printed, reference: Printed | None) -> Iterator[AuditFinding]:
    """Yield squares (C − μ)² that do not follow from the accuracies C of a second table with one μ for a model."""
    if reference is None or not table.having("variance") or not table.labels:
        return
    implied: dict[str, list[tuple[int, Interval]]] = {}
    for row in table.rows:
        model = table.columns[table.labels[0]][row].strip().lower()
        same = [other for other in reference.rows if model in reference.keys(other)]
        options = [_best_mu(table, row, reference, other) for other in same]
        best = max(options, key=lambda option: len(option[2]), default=None)
        if best is None or len(best[2]) < ENOUGH_CELLS or 2 * len(best[2]) <= len(table.others):
            continue
        other, mu, fitting = best
        implied.setdefault(table.columns[table.labels[0]][row], []).append((row, mu))
        for column in table.others:
            if column not in fitting:
                yield from _stray_cell(table, row, column, reference.figure(other, column), mu)
    for model, several in implied.items():
        for row, mu in several[1:]:
            # Most cells fit a μ other than the true one now and then: only a clear distance proves two.
            if max(mu.low - several[0][1].high, several[0][1].low - mu.high) > CLEARLY_APART:
                first = several[0][1].middle
                sentence = (
                    f"{model}: the squares of {table.label(several[0][0])} are around μ = {first:.4f}, those of "
                    f"{table.label(row)} around μ = {mu.middle:.4f}; the accuracy on originals is one number."
                )
                yield table.slip("two_mu", row, table.others[0], f"{mu.middle:.4f}", f"{first:.4f}", sentence)


def _best_mu(table: Printed, row: int, reference: Printed, other: int) -> tuple[int, Interval, set[str]]:
    """Return the μ (0..1) that the most cells allow, with those cells; some cell's edge is always among the best."""
    allowed: dict[str, list[Interval]] = {}
    for column in table.others:
        square, accuracy = table.figure(row, column), reference.figure(other, column)
        if square and accuracy:
            c, d = accuracy.rounded * (0.01 if reference.percent(column) else 1.0), _deviation(square, table)
            allowed[column] = [Interval(c.low + d.low, c.high + d.high), Interval(c.low - d.high, c.high - d.low)]
    points = {edge for options in allowed.values() for interval in options for edge in (interval.low, interval.high)}
    best, fitting = Interval(-inf, inf), set[str]()
    for point in sorted(edge for edge in points if 0 < edge <= 1):
        here = Interval(point, point)
        fits = {column: interval for column, options in allowed.items() for interval in options if interval.meets(here)}
        if len(fits) > len(fitting):
            fitting = set(fits)
            best = Interval(max(held.low for held in fits.values()), min(held.high for held in fits.values()))
    return other, best, fitting


def _deviation(square: PrintedNumber, table: Printed) -> Interval:
    """Return |C − μ| from its printed square, which may be a percentage, rounded or cut."""
    scale = 0.01 if table.squares_in_percent else 1.0
    span = square.cut_or_rounded * scale
    return Interval(sqrt(max(span.low, 0.0)), sqrt(max(span.high, 0.0)))


def _stray_cell(
    table: Printed, row: int, column: str, accuracy: PrintedNumber | None, mu: Interval
) -> Iterator[AuditFinding]:
    square = table.figure(row, column)
    if square is None or accuracy is None:
        return
    percent = table.squares_in_percent
    c = accuracy.value / (100 if accuracy.value > 1 else 1)
    expected = f"{(c - mu.middle) ** 2 * (100 if percent else 1):.{square.decimals}f}"
    half = accuracy.half / (100 if accuracy.value > 1 else 1)
    kind = "square_off"
    sentence = f"{square.text} is not the square of {accuracy.text} less the row's μ = {mu.middle:.4f}: {expected}."
    if _deviation(square, table).meets(Interval(c - half, c + half)):
        kind = "square_of_accuracy"
        sentence = (
            f"{square.text} is the square of the accuracy {accuracy.text} itself: μ was left at 0; around "
            f"μ = {mu.middle:.4f} it is {expected}."
        )
    yield table.slip(kind, row, column, square.text, expected, sentence)


def suspected_squares(table: Printed, reference: Printed | None) -> Iterator[AuditFinding]:
    """Yield, without the accuracies, squares that would mean an accuracy near zero if no one else loses anything.

    Such a cell is at least 50 %, twice the model's own other part, and twenty times every other row of its part.
    """
    kinds = table.labels[1:2]
    if reference is not None or not table.having("variance") or not kinds:
        return
    models, kind = table.columns[table.labels[0]], table.columns[kinds[0]]
    unit = 100 if table.squares_in_percent else 1
    for row in table.rows:
        alike = [other for other in table.rows if kind[other] == kind[row] and models[other] != models[row]]
        own = [other for other in table.rows if kind[other] != kind[row] and models[other] == models[row]]
        for column in table.others if len(alike) >= 3 and own else []:
            square = table.figure(row, column)
            around = [figure.value for other in alike if (figure := table.figure(other, column))]
            other_part = [figure.value for other in own if (figure := table.figure(other, column))]
            if square is None or not around or not other_part or square.value < 0.5 * unit:
                continue
            if square.value > 20 * max(around) and square.value > 2 * max(other_part):
                accuracy = sqrt(square.value / unit)
                sentence = (
                    f"{square.text} looks like the square of an accuracy of {accuracy:.2%} (μ left at 0): as a squared "
                    f"deviation it would mean a loss of {100 * accuracy:.0f} points where every other "
                    f"{kind[row]} row is within {100 * sqrt(max(around) / unit):.0f}."
                )
                yield table.slip("suspected_square", row, column, square.text, "", sentence)
