"""Shares of a known number of images, totals over classes, and figures that are ratios of others."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor

from holdfast.stats.audit.printed import MEANS, SLACK, AuditFinding, Interval, Printed, PrintedNumber
from holdfast.stats.walks.fmr import recover_counts


def _sizes(table: Printed, n: int | None) -> list[int | None]:
    """Return the images of each row: from its column, else ``n``; a total has the sum of the others unless it says."""
    column = table.column("n")
    own = [int(figure.value) if (figure := table.figure(row, column)) else None for row in table.rows]
    sizes = [size or (None if table.is_total(row) or table.is_total(row, MEANS) else n) for row, size in enumerate(own)]
    parts = [size for row, size in enumerate(sizes) if not table.is_total(row) and not table.is_total(row, MEANS)]
    whole = sum(size for size in parts if size) if parts and all(parts) else None
    return [whole if table.is_total(row) and not own[row] else size for row, size in enumerate(sizes)]


def _shares(table: Printed) -> list[str]:
    """Return the columns that are shares of a row's images."""
    named = [*table.having("sa").values(), *table.having("vr").values()]
    if table.having("variance") or table.having("estimate") or table.having("before") or table.having("fmr"):
        return named
    for column in table.others:
        values = [figure.value for row in table.rows if (figure := table.figure(row, column))]
        if values and min(values) >= 0 and max(values) <= 100:
            named.append(column)
    return named


def whole_counts(table: Printed, n: int | None) -> Iterator[AuditFinding]:
    """Yield shares of n images that no whole number of them gives (GRIM)."""
    for row, size in enumerate(_sizes(table, n)):
        if not size:
            continue
        impossible = False
        for column in _shares(table):
            printed = table.figure(row, column)
            if printed and not possible(printed, size, percent=table.percent(column)):
                impossible, unit = True, 100 if table.percent(column) else 1
                expected = f"{round(printed.value / unit * size) / size * unit:.{printed.decimals}f}"
                sentence = f"No whole number of {size} images is {printed.text}; the nearest is {expected}."
                yield table.slip("impossible_count", row, column, printed.text, expected, sentence)
        if not impossible:
            yield from _impossible_fmr(table, row, size)


def possible(printed: PrintedNumber, size: int, *, percent: bool) -> bool:
    """Return whether some whole count of ``size`` images prints so."""
    span = printed.rounded * (size / (100 if percent else 1))
    return ceil(span.low - SLACK * size) <= floor(span.high + SLACK * size)


def _impossible_fmr(table: Printed, row: int, size: int) -> Iterator[AuditFinding]:
    """Yield an FMR that no whole counts give: right, validated, and right among the validated."""
    figures = {role: table.figure(row, table.column(role)) for role in ("sa", "vr", "fmr")}
    sa, vr, fmr = figures["sa"], figures["vr"], figures["fmr"]
    if not (sa and vr and fmr and table.percent(table.having("fmr")[""])) or size > 20_000:
        return
    texts = [f"{figure.value:.{figure.decimals}f}" for figure in (sa, vr, fmr)]
    if not recover_counts(size, standard_accuracy=texts[0], validation_rate=texts[1], fmr=texts[2]):
        sentence = f"No whole numbers of {size} images give an FMR of {fmr.text} with SA {sa.text} and VR {vr.text}."
        yield table.slip("impossible_count", row, table.having("fmr")[""], fmr.text, "", sentence)


def totals(table: Printed, n: int | None) -> Iterator[AuditFinding]:
    """Yield totals that do not pool the images of their classes; the mean of the classes' values is another number."""
    rows = [row for row in table.rows if not table.is_total(row) and not table.is_total(row, MEANS)]
    sizes = _sizes(table, n)
    weights = [float(sizes[row] or 0) for row in rows]
    if not all(weights):
        weights = [1.0] * len(rows) if not table.having("n") else []
    roles = {column: role for role in ("sa", "vr", "pa", "fmr") for column in table.having(role).values()}
    columns = roles | ({} if table.having("variance") else dict.fromkeys(_shares(table), "share"))
    for total in table.rows:
        if not table.is_total(total) or len(rows) < 2 or not weights:
            continue
        for column in columns:
            printed = table.figure(total, column)
            values = [figure.rounded for row in rows if (figure := table.figure(row, column))]
            pooled = _pooled(table, rows, weights, column, columns[column])
            if not printed or pooled is None or len(values) < len(rows) or pooled.meets(printed.rounded):
                continue
            mean = sum(values, Interval(0, 0)) * (1 / len(values))
            is_mean = mean.meets(printed.rounded)
            why = "is the mean of the rows above" if is_mean else "is neither pooled nor the mean of the rows above"
            expected = f"{pooled.middle:.{printed.decimals}f}"
            kind = "total_is_mean" if is_mean else "total_off"
            sentence = f"The total {printed.text} {why} ({mean.middle:.{printed.decimals}f}); pooled it is {expected}."
            yield table.slip(kind, total, column, printed.text, expected, sentence)


def _pooled(table: Printed, rows: list[int], weights: list[float], column: str, role: str) -> Interval | None:
    """Return the value over all images, or None where the table does not tell it."""
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
    for row in table.rows:
        standard = _standard(table, row, reference)
        if standard:
            yield from _with_standard(table, row, pairs, standard)
        elif len(pairs) > 1:
            yield from _implied(table, row, pairs)


def _standard(table: Printed, row: int, reference: Printed | None) -> dict[str, Interval]:
    """Return prefix → SA of the row; from the one row of the reference with the same name where the table has none."""
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
    table: Printed, row: int, pairs: dict[str, tuple[str, str]], standard: dict[str, Interval]
) -> Iterator[AuditFinding]:
    for prefix, (pa, fmr) in pairs.items():
        upper, printed = table.figure(row, pa), table.figure(row, fmr)
        lower = standard.get(prefix, standard.get(""))
        if not (upper and printed and lower):
            continue
        ratio = upper.rounded.over(lower) * (100 if table.percent(fmr) else 1)
        if not ratio.meets(printed.rounded):
            expected = f"{ratio.middle:.{printed.decimals}f}"
            sentence = f"{printed.text} is not {upper.text} divided by the standard accuracy; that is {expected}."
            yield table.slip("fmr_not_ratio", row, fmr, printed.text, expected, sentence)


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
    """Yield rows that quote the total of another table: both must then have been made with the same settings."""
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


def wrong_denominator(table: Printed) -> Iterator[AuditFinding]:
    """Yield changes in percent that are not a share of what was there before."""
    before, after, change = (next(iter(table.having(role).values()), None) for role in ("before", "after", "change"))
    if not (before and after and change):
        return
    for row in table.rows:
        old, new, printed = table.figure(row, before), table.figure(row, after), table.figure(row, change)
        if not (old and new and printed) or old.rounded.low <= 0 or new.rounded.low <= 0:
            continue
        unit = 100 if table.percent(change) or "%" in printed.text else 1
        # |1 − new/old|, and its wrong sister |old/new − 1|.
        right, wrong = _distance(new.rounded.over(old.rounded), unit), _distance(old.rounded.over(new.rounded), unit)
        if right.meets(printed.size):
            continue
        expected = f"{right.middle:.{printed.decimals}f}"
        known = wrong.meets(printed.size)
        why = f"divides by {new.text}" if known else "is neither share of the two"
        kind = "wrong_denominator" if known else "change_off"
        sentence = f"{old.text} → {new.text} is a change of {expected}, not {printed.text}, which {why}."
        yield table.slip(kind, row, change, printed.text, expected, sentence)


def _distance(ratio: Interval, unit: float) -> Interval:
    low, high = sorted((abs(ratio.low - 1), abs(ratio.high - 1)))
    inside = ratio.low <= 1 <= ratio.high
    return Interval(0.0 if inside else low * unit, high * unit)
