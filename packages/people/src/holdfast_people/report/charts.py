"""Figures of people's votes, and their charts: tidy frame and width in pixels → Vega-Lite specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.core.lazy import pd
from holdfast.core.votes import Votes, decide
from holdfast.reports.page import charts
from holdfast.reports.page.figures import COLOURS, Chart, Figure
from holdfast.reports.page.parts import Part
from holdfast.reports.page.words import plural

MOST_ROWS = 30  # Rows of one figure
DECISIONS = {"accepted": COLOURS[2], "undecided": "#b9bec9", "rejected": COLOURS[1]}


def _divided(frame: pd.DataFrame, width: int) -> Chart:
    """How many images got how large a share of yes, by what became of them."""
    present = [name for name in DECISIONS if name in set(frame.loc[frame["images"] > 0, "decision"])]
    names = list(dict.fromkeys(frame["yes"]))
    scale = {"domain": present, "range": [DECISIONS[name] for name in present]}
    legend = {"orient": "top", "title": None, "direction": "horizontal", "symbolType": "square"}
    colour = {"field": "decision", "type": "nominal", "scale": scale, "legend": legend}
    axis = {"labelAngle": 0, "ticks": False, "domain": False, "labelOverlap": True}
    x = charts.nominal("yes", names, title="people who say yes", axis=axis)
    y = {"field": "images", "type": "quantitative", "stack": "zero", "axis": {"title": "images", "tickMinStep": 1}}
    tips = [{"field": name} for name in ("yes", "decision", "images")]
    bars = charts.layer("bar", {"x": x, "y": y, "color": colour, "tooltip": tips}, opacity=1)
    return charts.chart_of(frame, width=width, height=220, autosize=charts.FIT, **bars)


def grades(frame: pd.DataFrame, width: int, *, rows: Sequence[str], steps: tuple[float, float]) -> Chart:
    """Mean ratings with intervals, a line per row."""
    y, _ = charts.row_axis(rows, width, 240)
    axis = {"title": "mean rating", "domain": False, "ticks": False, "tickMinStep": 1, "format": "d"}
    x = {"type": "quantitative", "scale": {"domain": list(steps), "nice": False, "clamp": True}, "axis": axis}
    tips = charts.tooltip({"row": "of"}, charts.INTERVAL | {"estimate": "mean"}, ".2f")
    ends = {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}}
    layers = [
        charts.layer("rule", ends, strokeWidth=1.7, color=COLOURS[0]),
        charts.dot_layer({"y": y, "x": x | {"field": "estimate"}, "tooltip": tips}, 64, color=COLOURS[0]),
    ]
    return charts.chart_of(frame, width=width, height={"step": 26}, autosize=charts.FIT, layer=layers)


def divided_figure(images: pd.DataFrame, votes: Votes) -> list[Part]:
    """Return how many images got how many yes; nothing if no one voted."""
    voted = images[images["votes"] > 0]
    if voted.empty:
        return []
    counts = voted.groupby(["yes", "votes", "decision"]).size().rename("images").reset_index()
    same = counts["votes"].nunique() == 1
    if same:  # a number that no image has is a gap, which shows where people part
        given = int(counts["votes"].iloc[0])
        absent = [yes for yes in range(given + 1) if yes not in set(counts["yes"])]
        gaps = [(yes, given, decide(yes, given, at_least=votes.at_least, of=votes.of), 0) for yes in absent]
        counts = pd.concat([counts, pd.DataFrame(gaps, columns=list(counts.columns))], ignore_index=True)
    counts = counts.sort_values(["yes", "votes"], ascending=True, kind="stable")
    pairs = zip(counts["yes"], counts["votes"], strict=True)
    named = [f"{yes}" if same else f"{yes} of {given}" for yes, given in pairs]
    unanimous = int(voted["share"].isin([0.0, 1.0]).sum())
    figure = Figure(
        "divided",
        "Images by how many people say yes" + (f", of {int(counts['votes'].iloc[0])}" if same else ""),
        f"Of {plural(len(voted), 'image')}, people are of one mind on {unanimous:,}.",
        lambda width: _divided(counts.assign(yes=named)[["yes", "images", "decision"]], width),
        f"Yes by the rule {votes.rule}; accepted from {votes.at_least} of {votes.of} on.",
    )
    return [figure]


def crowd_figure(table: pd.DataFrame) -> list[Part]:
    """Return control images passed and agreement with the others, by person; nothing if neither is known."""
    shown = table[table["sentinels"] + table["compared"] > 0].head(MOST_ROWS)
    if shown.empty:
        return []
    kinds = {
        "control images passed": ("sentinel_rate", "sentinel"),
        "agreement with the others": ("agreement", "agreement"),
    }
    marks = np.where(shown["by_chance"], " (chance?)", "")
    names = [f"person {person}{mark}" for person, mark in zip(shown["person"], marks, strict=True)]
    parts = [
        shown.assign(model=kind, row=names, estimate=shown[value], low=shown[f"{key}_low"], high=shown[f"{key}_high"])
        for kind, (value, key) in kinds.items()
    ]
    frame = pd.concat(parts, ignore_index=True).dropna(subset=["estimate"])
    more = f", the {MOST_ROWS} least reliable of {len(table)}" if len(table) > MOST_ROWS else ""
    title = f"Control images passed, and agreement with the others, by person{more}"
    finding = f"{len(table)} people; the answers of {int(table['by_chance'].sum())} look like chance."
    note = "Numbers stand for people; the export has no names."
    order: dict[str, Any] = {"models": list(kinds), "rows": names}
    return [charts.dot_figure("people", title, finding, frame, axis="share", domain=(0, 1), note=note, **order)]
