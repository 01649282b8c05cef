"""Shares of a known number of images, totals over classes, and figures that are ratios of others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil, floor

from holdfast.core.lazy import scipy_stats
from holdfast.stats.walks.fmr import recover_counts
from holdfast_evidence.printed_tables.printed import MEANS, SLACK, AuditFinding, Interval, Printed, PrintedNumber


def _sizes(table: Printed, n: int | None) -> list[int | None]:
    """Return the images of each row: from its column, else ``n``; a total has the sum of the others unless it says."""
    column = table.column("n")
    own = [int(figure.value) if (figure := table.figure(row, column)) else None for row in table.rows]
    sizes = [size or (None if table.is_total(row) or table.is_total(row, MEANS) else n) for row, size in enumerate(own)]
    parts = [size for row, size in enumerate(sizes) if not table.is_total(row) and not table.is_total(row, MEANS)]
    whole = sum(size for size in parts if size) if parts and all(parts) else None
    return [whole if table.is_total(row) and not own[row] else size for row, size in enumerate(sizes)]


ACCURACIES = frozenset(["accuracy", "acc", "accuracies", "top1", "top5", "top"])
NO_SHARE = frozenset(
    [
        "balanced",
        "macro",
        "mean",
        "average",
        "avg",
        "weighted",
        "std",
        "sd",
        "se",
        "stderr",
        "error",
        "ci",
        "low",
        "high",
        "lower",
        "upper",
        "drop",
        "change",
        "gain",
        "loss",
        "difference",
        "delta",
        "variance",
        "rank",
        "before",
        "after",
        "old",
        "new",
    ]
)
"""Words in the name of a column: an accuracy, and what is computed of accuracies but is none."""
TRAININGS = 10  # means of so many trainings at most are recognised as such
FEW_CELLS = 4
MOST = 0.75
ENOUGH_TOTALS = 2  # that are means of their classes, if nothing says how large the classes are
BY_CHANCE = 1e-6  # how likely values that are not shares may look like shares


def _named(table: Printed) -> list[str]:
    """Return the columns that are accuracies or validated shares by their names."""
    named = [*table.all_having("sa"), *table.all_having("vr")]
    for column in table.others:
        words = set(re.findall(r"[a-z]+\d*", column.lower()))
        if words & ACCURACIES and not words & NO_SHARE:
            named.append(column)
    return named


Cell = tuple[int, str]  # row, column


def _countable(table: Printed, sizes: list[int | None]) -> tuple[int, list[Cell]]:
    """Return cells that are shares of a row's images, and the number of trainings that they are means of.

    Accuracies are so by name. Other columns are only if nearly all of their cells are such shares, and would hardly
    be by chance.
    """
    named = _named(table)
    cells = [(row, column) for column in named for row in table.rows if sizes[row] and table.figure(row, column)]
    classes = [row for row in table.rows if sizes[row] and not table.is_total(row)]
    other = table.having("variance") or table.having("estimate") or table.having("before") or table.having("fmr")
    rest = [
        [(row, column) for row in classes if table.figure(row, column)]
        for column in table.others
        if column not in named and not other
    ]
    several = [_trainings(table, cells, sizes, 1.0), *(_trainings(table, group, sizes, 0.5) for group in rest)]
    runs = next((r for r in several if r > 1 and all(_fits(table, cell, sizes, r) for cell in cells)), 1)
    return runs, cells + [cell for group in rest if _look_so(table, group, sizes, runs) for cell in group]


def _trainings(table: Printed, cells: list[Cell], sizes: list[int | None], by_chance: float) -> int:
    """Return of how many trainings cells are means: several if they are shares of so many times the images only.

    Not if a figure that is not a share would be taken for one more often than ``by_chance``.
    """
    misses = [sum(not _fits(table, cell, sizes, runs) for cell in cells) for runs in range(1, TRAININGS + 1)]
    if len(cells) <= FEW_CELLS or misses[0] <= max(1, len(cells) / 5) or 0 not in misses:
        return 1
    runs = 1 + misses.index(0)
    return runs if _chance(table, cells, sizes, runs) <= by_chance else 1


def _fits(table: Printed, cell: Cell, sizes: list[int | None], runs: int = 1) -> bool:
    printed, size = table.figure(*cell), sizes[cell[0]]
    assert printed and size
    whole = 100 if table.percent(cell[1]) else 1
    return 0 <= printed.value <= whole and possible(printed, size * runs, percent=whole == 100)


def _look_so(table: Printed, cells: list[Cell], sizes: list[int | None], runs: int) -> bool:
    """Return whether most cells are shares of the images, more than chance would make so."""
    fits = sum(_fits(table, cell, sizes, runs) for cell in cells)
    if len(cells) < FEW_CELLS or fits < MOST * len(cells):
        return False
    chance = _chance(table, cells, sizes, runs)
    return float(scipy_stats.binom.sf(fits - 1, len(cells), chance)) < BY_CHANCE


def _chance(table: Printed, cells: list[Cell], sizes: list[int | None], runs: int) -> float:
    """Return how likely a figure that is not a share looks like one: what part of all figures are shares."""
    chances = [
        2 * printed.half * size * runs / (100 if table.percent(column) else 1)
        for row, column in cells
        if (printed := table.figure(row, column)) and (size := sizes[row])
    ]
    return min(1.0, sum(chances) / len(cells))


def whole_counts(table: Printed, n: int | None) -> Iterator[AuditFinding]:
    """Yield shares of n images that no whole number of them gives (GRIM)."""
    sizes = _sizes(table, n)
    impossible = set[int]()
    runs, cells = _countable(table, sizes)
    for row, column in sorted(cells, key=lambda cell: cell[0]):
        printed, size = table.figure(row, column), (sizes[row] or 0) * runs
        if not printed or _fits(table, (row, column), sizes, runs):
            continue
        impossible.add(row)
        unit = 100 if table.percent(column) else 1
        expected = f"{round(printed.value / unit * size) / size * unit:.{max(printed.decimals, 0)}f}"
        sentence = f"No whole number of {size} images is {printed.text}; the nearest is {expected}."
        yield table.slip("impossible_count", row, column, printed.text, expected, sentence)
    for row, number in enumerate(sizes):
        if number and row not in impossible and runs == 1:
            yield from _impossible_fmr(table, row, number)


def possible(printed: PrintedNumber, size: int, *, percent: bool) -> bool:
    """Return whether a number of images out of ``size`` rounds to the printed share."""
    span = printed.rounded * (size / (100 if percent else 1))
    return ceil(span.low - SLACK * size) <= floor(span.high + SLACK * size)


def _impossible_fmr(table: Printed, row: int, size: int) -> Iterator[AuditFinding]:
    """Yield an FMR that no whole counts give: right, validated, and right among the validated."""
    figures = {role: table.figure(row, table.column(role)) for role in ("sa", "vr", "fmr")}
    sa, vr, fmr = figures["sa"], figures["vr"], figures["fmr"]
    if not (sa and vr and fmr and table.percent(table.having("sa")[""])) or size > 20_000:
        return
    texts = [f"{figure.value:.{figure.decimals}f}" for figure in (sa, vr, fmr)]
    if not recover_counts(size, standard_accuracy=texts[0], validation_rate=texts[1], fmr=texts[2]):
        sentence = f"No whole numbers of {size} images give an FMR of {fmr.text} with SA {sa.text} and VR {vr.text}."
        yield table.slip("impossible_count", row, table.having("fmr")[""], fmr.text, "", sentence)


def totals(table: Printed, n: int | None) -> Iterator[AuditFinding]:
    """Yield totals that do not pool the images of their classes; the mean of the classes' values is another number."""
    rows = [row for row in table.rows if not table.is_total(row) and not table.is_total(row, MEANS)]
    sizes = _sizes(table, n)
    known = all(sizes[row] for row in rows)
    weights = [float(sizes[row] or 1) for row in rows]
    roles = {column: role for role in ("sa", "vr", "pa", "fmr") for column in table.all_having(role)}
    columns = roles | ({} if table.having("variance") else dict.fromkeys(_named(table), "share") | roles)
    for total in table.rows:
        if not table.is_total(total) or len(rows) < 2:
            continue
        pooled = {column: _pooled(table, rows, weights, column, columns[column]) for column in columns}
        fitting = {
            column
            for column, span in pooled.items()
            if span and (printed := table.figure(total, column)) and span.meets(printed.rounded)
        }
        for column in columns:
            printed, span = table.figure(total, column), pooled[column]
            values = [figure.rounded for row in rows if (figure := table.figure(row, column))]
            if not printed or span is None or len(values) < len(rows) or column in fitting:
                continue
            if not known and sum(columns[other] in ("sa", "vr", "share") for other in fitting) < ENOUGH_TOTALS:
                # Classes of unknown sizes: a total is anywhere between them.
                edges = Interval(min(value.low for value in values), max(value.high for value in values))
                if columns[column] != "fmr" and not edges.meets(printed.rounded):
                    sentence = f"The total {printed.text} is not between the values of the rows above."
                    yield table.slip("total_off", total, column, printed.text, "", sentence)
                continue
            mean = sum(values, Interval(0, 0)) * (1 / len(values))
            is_mean = mean.meets(printed.rounded)
            why = "is the mean of the rows above" if is_mean else "is neither pooled nor the mean of the rows above"
            expected = f"{span.middle:.{max(printed.decimals, 0)}f}"
            kind = "total_is_mean" if is_mean else "total_off"
            decimals = max(printed.decimals, 0)
            sentence = f"The total {printed.text} {why} ({mean.middle:.{decimals}f}); pooled it is {expected}."
            yield table.slip(kind, total, column, printed.text, expected, sentence)


def _pooled(table: Printed, rows: list[int], weights: list[float], column: str, role: str) -> Interval | None:
    """Return the value over all images, or None if the table does not say."""
    if role in ("sa", "vr", "share"):
        return _weighted([table.figure(row, column) for row in rows], weights)
    sa, vr = table.column("sa"), table.column("vr")
    if vr is None or (role == "fmr" and sa is None):
        return None
    survived, validated = Interval(0, 0), Interval(0, 0)
    for row, weight in zip(rows, weights, strict=True):
        rate, value = table.figure(row, vr), table.figure(row, column)
        if not (rate and value):
            return None
        standard = table.figure(row, sa) if role == "fmr" else None
        product = value.rounded.times(rate.rounded)
        if role == "fmr":
            if standard is None:
                return None
            product = product.times(standard.rounded)
        survived, validated = survived + product * weight, validated + rate.rounded * weight
    pooled = survived.over(validated)
    whole = _weighted([table.figure(row, sa) for row in rows], weights) if role == "fmr" else None
    return pooled.over(whole) if whole else pooled


def _weighted(figures: list[PrintedNumber | None], weights: list[float]) -> Interval | None:
    known = [figure.rounded * weight for figure, weight in zip(figures, weights, strict=True) if figure]
    return sum(known, Interval(0, 0)) * (1 / sum(weights)) if len(known) == len(weights) else None


def fmr_is_ratio(table: Printed, reference: Printed | None) -> Iterator[AuditFinding]:
    """Yield an FMR that is not PA / SA. Without SA, all pairs of a row must imply the same one."""
    pairs = {
        prefix: (table.having("pa")[prefix], fmr)
        for prefix, fmr in table.having("fmr").items()
        if prefix in table.having("pa")
    }
    standard = {row: _standard(table, row, reference) for row in table.rows}
    for pair in pairs.items():
        yield from _with_standard(table, pair, standard)
    for row in table.rows:
        if not standard[row] and len(pairs) > 1 and not table.is_total(row, MEANS):
            yield from _implied(table, row, pairs)


def _standard(table: Printed, row: int, reference: Printed | None) -> dict[str, Interval]:
    """Return prefix → SA of the row; from the one row of the reference with the same name if the table has none."""
    own = {
        prefix: number.rounded for prefix, column in table.having("sa").items() if (number := table.figure(row, column))
    }
    if own or reference is None:
        return own
    column = reference.column("sa")
    same = [other for other in reference.rows if table.keys(row) & reference.keys(other)]
    figure = reference.figure(same[0], column) if len(same) == 1 else None
    return {"": figure.rounded} if figure else {}


def _with_standard(
    table: Printed, pair: tuple[str, tuple[str, str]], standard: dict[int, dict[str, Interval]]
) -> Iterator[AuditFinding]:
    prefix, (pa, fmr) = pair
    ratios: dict[int, tuple[Interval, Interval]] = {}
    for row in table.rows:
        upper, printed = table.figure(row, pa), table.figure(row, fmr)
        lower = standard[row].get(prefix, standard[row].get(""))
        if upper and printed and lower and not table.is_mean_of_rows(row, fmr):
            ratios[row] = upper.rounded.over(lower), printed.rounded
    units = sorted((1.0, 100.0, 0.01, 1e4), key=lambda unit: unit != (100 if table.percent(fmr) else 1))
    unit = max(units, key=lambda unit: sum((ratio * unit).meets(printed) for ratio, printed in ratios.values()))
    for row, (ratio, span) in ratios.items():
        if (ratio * unit).meets(span):
            continue
        upper, own = table.figure(row, pa), table.figure(row, fmr)
        assert upper and own
        expected = f"{(ratio * unit).middle:.{max(own.decimals, 0)}f}"
        sentence = f"{own.text} is not {upper.text} divided by the standard accuracy; that is {expected}."
        yield table.slip("fmr_not_ratio", row, fmr, own.text, expected, sentence)


def _implied(table: Printed, row: int, pairs: dict[str, tuple[str, str]]) -> Iterator[AuditFinding]:
    implied: dict[str, Interval] = {}
    for pa, fmr in pairs.values():
        upper, printed = table.figure(row, pa), table.figure(row, fmr)
        if upper and printed and printed.value > 0:
            implied[fmr] = upper.rounded.over(printed.rounded) * (100 if table.percent(fmr) else 1)
    if _common(list(implied.values())) is not None or len(implied) < 2:
        return
    lone = [name for name in implied if _common([other for key, other in implied.items() if key != name]) is not None]
    if len(lone) == 1:
        fmr = lone[0]
        rest = _common([other for key, other in implied.items() if key != fmr])
        assert rest is not None
        text, own = table.columns[fmr][row], implied[fmr].middle
        sentence = f"{text} implies a standard accuracy of {own:.2f}, the row's other pairs {rest.middle:.2f}."
        yield table.slip("fmr_not_ratio", row, fmr, text, "", sentence)
        return
    span = ", ".join(f"{interval.middle:.2f}" for interval in implied.values())
    sentence = f"The row's pairs of PA and FMR imply different standard accuracies: {span}."
    yield table.slip("fmr_not_ratio", row, "FMR", "", "", sentence)


def _common(intervals: list[Interval]) -> Interval | None:
    shared: Interval | None = Interval(float("-inf"), float("inf"))
    for interval in intervals:
        shared = shared.both(interval) if shared else None
    return shared


def repeated_totals(table: Printed, reference: Printed | None) -> Iterator[AuditFinding]:
    """Yield rows that repeat the total of another table, which has other settings."""
    if reference is None:
        return
    shared = [role for role in ("sa", "pa", "vr", "fmr") if "" in table.having(role) and "" in reference.having(role)]
    for total in reference.rows:
        if not reference.is_total(total) or len(shared) < 2:
            continue
        for row in table.rows:
            ours = [table.figure(row, table.having(role)[""]) for role in shared]
            theirs = [reference.figure(total, reference.having(role)[""]) for role in shared]
            same = all(a and b and abs(a.value - b.value) < 1e-12 for a, b in zip(ours, theirs, strict=True))
            if same and not table.is_total(row):
                figures = ", ".join(figure.text for figure in ours if figure)
                sentence = (
                    f"{table.label(row)} prints the total of the reference table ({figures}): it was made with that "
                    "table's settings, whatever its own caption says."
                )
                yield table.slip("repeated_total", row, table.having(shared[0])[""], figures, "", sentence)
