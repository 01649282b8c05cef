"""Ratios: FMR against the accuracies it is made of, and changes in percent."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.stats.audit.printed import AuditFinding, Interval, Printed


def fmr_is_ratio(table: Printed, reference: Printed | None) -> Iterator[AuditFinding]:
    """FMR = PA / SA. Without SA, all pairs of a row must imply the same one."""
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
    """Prefix → SA of the row; from the one row of the reference with the same name where the table has none."""
    own = {
        prefix: number.rounded for prefix, column in table.having("sa").items() if (number := table.figure(row, column))
    }
    if own or reference is None:
        return own
    column = reference.having("sa").get("")
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
    """A row that quotes the total of another table: the two must then have been made with the same settings."""
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
    """A change in percent is a share of what was there before."""
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
