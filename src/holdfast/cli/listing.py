"""Tables on the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from holdfast import registry
from holdfast.core.conditions import condition_name
from holdfast.registry import unknown
from holdfast.store import Run

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("scenarios", "models", "data", "masks", "generators", "image-makers", "oracles", "segmenters", "studies")


def print_listing(what: str) -> None:
    """One line each of the things of one of KINDS; without a word, of everything."""
    if what and what not in KINDS:
        raise unknown("list", what, KINDS)
    console = console_for_tables()
    for kind in [what] if what else KINDS:
        if not what:
            console.print(f"[bold]{kind}[/bold]")
        console.print(_scenarios() if kind == "scenarios" else _schemes(kind))


def _schemes(kind: str) -> Table:
    table = _lines(2)
    chosen = {
        "models": registry.models, "data": registry.data, "masks": registry.annotators,
        "generators": registry.generators, "image-makers": registry.image_makers, "oracles": registry.oracles,
        "segmenters": registry.segmenters, "studies": registry.studies,
    }[kind]  # fmt: skip
    for entry in chosen.entries():
        table.add_row(entry.name if kind in ("masks", "studies") else f"{entry.name}:", entry.summary)
    if kind == "models":
        from holdfast.models import available

        for vlm in registry.vlms.entries():
            table.add_row(f"{vlm.name}:", vlm.summary)
        for name in (*available("packaged"), *available("embedded")):
            table.add_row(name, "installed")
    if kind == "segmenters":
        from holdfast.models.embedded import installed

        for name in installed("segmenters"):
            table.add_row(f"embedded:{name}", "installed")
    return table


def _scenarios() -> Table:
    table = _lines(4)
    table.add_row("[bold]id", "[bold]leaves", "[bold]what it does", "[bold]variants")
    for name in registry.scenarios:
        scenario = registry.scenarios.get(name)
        variants = [*scenario.variants, *(["1 to 5"] if scenario.severities else [])]
        table.add_row(name, scenario.leaves, scenario.summary, ", ".join(variants))
    return table


def _lines(columns: int) -> Table:
    """One line an entry, cut at the terminal's edge."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(columns):
        table.add_column(no_wrap=True, overflow="ellipsis")
    return table


def console_for_tables() -> Console:
    """As wide as the terminal; wide enough for everything in a pipe."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def print_accuracy(run: Run) -> None:
    """Accuracy by condition and model; intervals and verdicts are the report's."""
    rows = run.rows(["condition", "variant", "model", "status", "correct", "correct_restricted"]).to_pandas()
    good = rows[rows["status"] == "ok"]
    if good.empty:
        return
    models = list(dict.fromkeys(good["model"]))
    table = Table(
        "condition", *models, box=None, pad_edge=False, title="accuracy: full argmax / among the dataset's classes"
    )
    means = good.groupby(["condition", "variant", "model"], observed=True)[["correct", "correct_restricted"]].mean()
    known = {name: place for place, name in enumerate(registry.scenarios)}
    named = set(zip(good["condition"], good["variant"], strict=True))
    for condition, variant in sorted(named, key=lambda one: (known.get(one[0], len(known)), one)):
        cells = []
        for model in models:
            key = (condition, variant, model)
            cells.append("{:.1%} / {:.1%}".format(*means.loc[key]) if key in means.index else "–")
        table.add_row(condition_name(condition, variant), *cells)
    console_for_tables().print(table)


def print_frame(frame: pd.DataFrame) -> None:
    """A table of numbers: shares with three digits, counts whole, nothing for what is missing."""
    table = Table(box=None, pad_edge=False)
    for name in frame.columns:
        table.add_column(str(name), justify="left" if frame[name].dtype.kind in "OSUT" else "right")
    for row in frame.itertuples(index=False):
        table.add_row(*(_cell(value) for value in row))
    console_for_tables().print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.0f}" if abs(value) >= 10 else f"{value:.3f}"
    return str(value)
