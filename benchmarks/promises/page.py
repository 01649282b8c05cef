"""Writes docs/statistics/promises.csv, a row per promise; the site has a page of it, a line per sentence."""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path

from promises.promise import Measured, Promise

COLUMNS = ["page", "sentence", "data", "measured", "error", "draws", "low", "high"]

HEAD = """\
# Promises

Every coverage and error rate on these pages is measured on simulated data whose truth is known
(`benchmarks/promises`). The table has the lowest and the highest measured rate over the simulated settings.
[promises.csv](promises.csv) has every setting with its number of draws, the promised range, and the error (half of the
95 % interval).

- `make promises` redraws every rate and fails if a rate is outside its range by more than its
  error. An interrupted run resumes; rates of changed code are redrawn. It takes about half an hour on one core.
- `make test` draws a seeded part.
- `python -m promises --only NAME` redraws some rates.

{outside}

| promise | measured | settings |
|---|---|---|
"""
PAGE = '| <a id="{page}"></a>**[{page}]({page}.md)** | | |\n'

Row = dict[str, str]


def rows(promises: list[Promise], rates: dict[str, Measured], old: list[Row]) -> list[Row]:
    """Return a row per promise: as measured now, or as the table had it."""
    known = {_key(row): row for row in old}
    made = []
    for promise in sorted(promises, key=lambda promise: promise.page):
        row = {"page": promise.page, "sentence": promise.statement, "data": promise.setting}
        limits = {"low": f"{promise.low:g}", "high": f"{promise.high:g}"}
        if rate := rates.get(promise.name):
            row |= {"measured": f"{rate.rate:.4f}", "error": f"{rate.error:.4f}", "draws": str(rate.tries)}
        else:
            row |= {name: known.get(_key(row), {}).get(name, "") for name in ("measured", "error", "draws")}
        made.append(row | limits)
    return made


def _key(row: Row) -> tuple[str, str, str]:
    return row["page"], row["sentence"], row["data"]


def read(path: Path) -> list[Row]:
    """Return the rows of the table, or none if it does not exist."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(folder: Path, table: list[Row]) -> None:
    """Write the table."""
    with (folder / "promises.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def outside(row: Row) -> bool:
    """Return whether a measured rate is outside its range by more than its error."""
    rate, error = float(row["measured"]), float(row["error"])
    return not float(row["low"]) - error <= rate <= float(row["high"]) + error


def page(table: list[Row]) -> str:
    """Return the page as Markdown."""
    drawn = [row for row in table if row["measured"]]
    count, missing = sum(map(outside, drawn)), len(table) - len(drawn)
    said = (
        f"{count} of {len(drawn)} rates are outside their range."
        if count
        else f"All {len(drawn)} rates are in their ranges, or outside by less than this error."
    )
    parts = [HEAD.format(outside=said + (f" {missing} are not drawn yet." if missing else ""))]
    for name, promises in groupby(table, key=lambda row: row["page"]):
        parts.append(PAGE.format(page=name))
        for sentence, group in groupby(promises, key=lambda row: row["sentence"]):
            parts.append(f"| {sentence.strip('| ').replace(' | ', ', ')} | {_line(list(group))}\n")
    return "".join(parts)


def _line(group: list[Row]) -> str:
    drawn = [float(row["measured"]) for row in group if row["measured"]]
    digits = 2 if max([*drawn, *(float(row["high"]) for row in group)]) < 0.01 else 1
    ends = [f"{100 * rate:.{digits}f}" for rate in (min(drawn), max(drawn))] if drawn else ["not drawn yet"]
    shown = "–".join(dict.fromkeys(ends)) + (" %" if drawn else "")
    mark = " **outside**" if any(outside(row) for row in group if row["measured"]) else ""
    return f"{shown}{mark} | {len(group)} |"
