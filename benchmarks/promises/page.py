"""Writes docs/statistics/promises.md."""

from __future__ import annotations

from itertools import groupby

from promises.promise import Measured, Promise

HEAD = """\
# Promises

Every rate that these pages state, measured on simulated data whose truth is known. `make promises` draws all of it
again over all cores ({minutes:.0f} minutes of one core), writes this page, and fails where a rate lies outside its
range by more than its error; `make test` draws a seeded part. The register is `benchmarks/promises/register.py`: a row
has the sentence, the generator with its settings, the number of draws and the range. Counts are kept in
`build/promises` with a fingerprint of the code that they are of (the trial, and the statistics that it calls): an
interrupted run goes on, and counts of changed code are drawn again. This page is of the code with the fingerprint
`{code}`; `python -m promises --page` prints that of the code at hand.

An error is half of the 95 % interval of the measured rate: what the number of draws leaves open. {outside}
"""


def page(promises: list[Promise], rates: dict[str, Measured], minutes: float, code: str) -> str:
    """Return the page as Markdown."""
    count = sum(promise.name in rates and not rates[promise.name].keeps(promise) for promise in promises)
    outside = (
        f"{count} of {len(rates)} rates lie outside."
        if count
        else f"All {len(rates)} lie within their ranges, or beyond them by less than this error."
    )
    parts = [HEAD.format(minutes=minutes, outside=outside, code=code)]
    for name, own in groupby(sorted(promises, key=lambda promise: promise.page), key=lambda promise: promise.page):
        parts.append(f"\n## [{name}]({name}.md)\n")
        for statement, group in groupby(own, key=lambda promise: promise.statement):
            parts.append(f"\n> {statement}\n\n| data | measured | range | draws |\n|---|---|---|---|\n")
            parts.extend(_row(promise, rates.get(promise.name)) for promise in group)
    return "".join(parts)


def _row(promise: Promise, rate: Measured | None) -> str:
    if rate is None:
        return f"| {promise.setting} | not drawn yet | | |\n"
    kept = "" if rate.keeps(promise) else " **outside**"
    digits = 2 if max(rate.rate, promise.high) < 0.01 else 1
    shown = f"{100 * rate.rate:.{digits}f} ± {100 * rate.error:.{digits}f} %"
    span = f"{100 * promise.low:g}–{100 * promise.high:g} %" if promise.low else f"at most {100 * promise.high:g} %"
    if promise.high == 1:
        span = f"at least {100 * promise.low:g} %"
    return f"| {promise.setting} | {shown}{kept} | {span} | {rate.tries:,} |\n"
