"""Regression tables with the wrong column, percentages with the wrong denominator."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.stats.audit.printed import AuditFinding, Interval, Printed


def t_in_p(table: Printed) -> Iterator[AuditFinding]:
    """A p column that holds t = estimate / standard error, and a t column that does not."""
    from scipy.stats import norm

    columns = {role: table.having(role).get("") for role in ("estimate", "se", "t", "p")}
    for row in table.rows:
        estimate, error = table.figure(row, columns["estimate"]), table.figure(row, columns["se"])
        t, p = table.figure(row, columns["t"]), table.figure(row, columns["p"])
        ratio = None
        if estimate and error and error.value > 0:
            size = Interval(max(abs(estimate.value) - estimate.half, 0.0), abs(estimate.value) + estimate.half)
            ratio = size.over(error.rounded)
        if p and columns["p"]:
            size = Interval(abs(p.value) - p.half, abs(p.value) + p.half)
            # With few degrees of freedom p is larger than the normal's, never smaller.
            too_small = ratio is not None and p.rounded.high < 2 * float(norm.sf(ratio.high)) - 1e-9
            is_t = ratio is not None and ratio.meets(size)
            if p.rounded.low > 1 or p.rounded.high < 0 or (is_t and too_small):
                expected = f"{2 * float(norm.sf(ratio.middle)):.2g}" if ratio else ""
                why = "is estimate / standard error" if is_t else "is no probability"
                sentence = f"{p.text} in the p column {why}: a t-value" + (
                    f"; p is about {expected}." if ratio else "."
                )
                yield AuditFinding("t_in_p", table.place(row, columns["p"]), p.text, expected, sentence)
        if t and ratio and columns["t"]:
            size = Interval(abs(t.value) - t.half, abs(t.value) + t.half)
            if not ratio.meets(size):
                expected = f"{ratio.middle:.{max(t.decimals, 0)}f}"
                sentence = f"t = {t.text} is not estimate / standard error = {expected}."
                yield AuditFinding("t_off", table.place(row, columns["t"]), t.text, expected, sentence)


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
        size = Interval(abs(printed.value) - printed.half, abs(printed.value) + printed.half)
        # |1 − new/old|, and its wrong sister |old/new − 1|.
        right, wrong = _distance(new.rounded.over(old.rounded), unit), _distance(old.rounded.over(new.rounded), unit)
        if right.meets(size):
            continue
        expected = f"{right.middle:.{printed.decimals}f}"
        known = wrong.meets(size)
        why = f"divides by {new.text}" if known else "is neither share of the two"
        yield AuditFinding(
            "wrong_denominator" if known else "change_off",
            table.place(row, change),
            printed.text,
            expected,
            f"{old.text} → {new.text} is a change of {expected}, not {printed.text}, which {why}.",
        )


def _distance(ratio: Interval, unit: float) -> Interval:
    low, high = sorted((abs(ratio.low - 1), abs(ratio.high - 1)))
    inside = ratio.low <= 1 <= ratio.high
    return Interval(0.0 if inside else low * unit, high * unit)
