"""Part of the section on looking: maps as the weights are shuffled from the last layer down (Adebayo and others)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.report.page import charts
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import Heading, Part, ShownFigure, ShownTable, Text
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import listing
from holdfast.stats.effects.attributions import ALIKE

if TYPE_CHECKING:
    import pandas as pd

STAGES = ("the last layer", "the last quarter", "the last half", "the last three quarters", "all layers")
"""What is shuffled, in the order of ``explain.DEPTHS``."""

AXIS = "rank correlation of the maps"


def stage_name(stage: int) -> str:
    """In words."""
    return STAGES[stage]


def cascade_parts(table: pd.DataFrame, short: Mapping[str, str], method_name: Callable[[str], str]) -> list[Part]:
    """Return a figure per method and the table of cascades; empty where no cascade was asked for."""
    if table.empty:
        return []
    parts: list[Part] = [Heading("From the last layer down")]
    for place, ((method, _), group) in enumerate(table.groupby(["method", "target"], sort=False)):
        tidy = group.assign(
            model=group["model"].map(short), row=group["stage"].map(stage_name), estimate=group["rank_correlation"]
        )
        names = list(dict.fromkeys(tidy["model"]))
        parts.append(Text([f"By {method_name(str(method))}: {_finding(tidy, names)}"]))
        drawn = tidy[["model", "row", "estimate", "low", "high"]]
        parts.append(ShownFigure(Figure(
            f"looking_cascade_{place + 1}",
            f"Maps by {method_name(str(method))} as ever more layers are shuffled",
            _finding(tidy, names),
            lambda width, drawn=drawn, names=names: charts.dots(  # type: ignore[misc]
                drawn, width, models=names, rows=list(STAGES), title=AXIS, numbers=True
            ),
            "1 is the same map; near 0 nothing is left of it. With 95 % intervals over photos.",
        )))  # fmt: skip
    columns = [
        Column("model", "Model", show=lambda name: short.get(name, name)),
        Column("method", "Method", show=method_name),
        Column("stage", "Shuffled", show=stage_name),
        Column("n", "Maps", "integer"),
        Column("rank_correlation", "Rank correlation", "number", "low", "high", digits=2),
        Column("structural_similarity", "SSIM", "number", digits=2),
        Column("zero", "Zero maps", "integer", hint="of the shuffled network: they correlate with nothing"),
    ]
    kept = [one for one in columns if one.key != "method" or table[one.key].nunique() > 1]
    note = (
        "Of originals. A method that shows what was learned changes with the last layers already; one that stays the "
        "same until the first are shuffled shows what those see, edges above all."
    )
    whole = Table("looking_cascade", "Maps by depth of the shuffled layers", table, kept, note, folded=len(table) > 12)
    return [*parts, ShownTable(whole)]


def _finding(tidy: pd.DataFrame, names: list[str]) -> str:
    """From which depth on each model's maps are others."""
    by_stage: dict[str, list[str]] = {}
    never = []
    for name in names:
        own = tidy[tidy["model"] == name].sort_values("stage")
        below = own[own["rank_correlation"] < ALIKE]
        if below.empty:
            never.append(name)
        else:
            by_stage.setdefault(stage_name(int(below["stage"].iloc[0])), []).append(name)
    said = [f"with {stage} shuffled for {listing(who, 6)}" for stage, who in by_stage.items()]
    first = f"The mean rank correlation falls below {ALIKE:g} {'; '.join(said)}." if said else ""
    last = f" It stays above for {listing(never, 6)}: these maps should not be read." if never else ""
    return (first + last).strip()
