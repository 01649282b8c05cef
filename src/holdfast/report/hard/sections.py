"""Sections of a mined set's page: luck, where hard images come from, more surrogates, overlap of failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.report.hard import charts
from holdfast.report.page.charts import dots
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import Heading, Notice, Part, Section, ShownFigure, ShownTable
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import estimate, listing, number, p_value, percent, plural, span

if TYPE_CHECKING:
    import pandas as pd

    from holdfast.report.hard.mining import Evidence

MOST_NUISANCES = 24
"""In the chart; the table has them all."""


def luck(evidence: Evidence) -> Section:
    """What of a failure is the prompt's, and what was luck of the seed."""
    section = Section("luck", "Prompt or luck")
    frame = evidence.at("persistence", half="report")
    alike = evidence.tables["luck"]
    if frame.empty:
        section.parts = [Notice("The hard prompts were not painted anew, so this cannot be told.")]
    else:
        row = frame[(frame["what"] == "shared failure") & (frame["subset"] == "valid")].iloc[0]
        section.lead = [
            f"Painted anew with other seeds, {estimate(row['estimate'], row['low'], row['high'])} of "
            f"{plural(int(row['n']), 'valid image')} of {plural(int(row['prompts']), 'hard prompt')} are shared "
            f"failures again, against {percent(row['pool'])} of the whole pool: of what mining added, "
            f"{estimate(row['lasting'], row['lasting_low'], row['lasting_high'], 0)} belongs to the prompts, the rest "
            "was luck of the seed."
        ]
        columns = [
            Column("what", "Failure of", show=lambda value: evidence.short.get(value, value)),
            Column("subset", "Images"),
            Column("pool", "Pool", "percent"),
            Column("mined", "Hard set", "percent"),
            Column("estimate", "Painted anew", "percent", "low", "high"),
            Column("lasting", "Lasting", "percent", "lasting_low", "lasting_high", hint="1: the prompt's; 0: luck"),
            Column("n", "New images", "integer"),
            Column("prompts", "Prompts", "integer"),
        ]
        section.parts = [ShownTable(Table("persistence", "Failures before and after painting anew", frame, columns))]
    columns = [
        Column("what", "What", show=lambda value: evidence.short.get(value, value)),
        Column("estimate", "Correlation within a prompt", "number", "low", "high", digits=2),
    ]
    note = "Between images of one prompt in the pool: 0 is luck of the seed, 1 a prompt that always or never fails."
    section.parts.append(ShownTable(Table("luck", "How alike images of one prompt are", alike, columns, note)))
    return section


def where(evidence: Evidence) -> Section:
    """Hard rates by kind of nuisance, nuisance and category."""
    section = Section("where", "Where hard images come from")
    parts: list[Part] = []
    for factor, title in (("kind", "kind of nuisance"), ("category", "category"), ("nuisance", "nuisance")):
        frame = evidence.at(f"rates_{factor}", half="report", subset="valid")
        over = [
            f"{row['value']} ({percent(row['estimate'])})"
            for row in frame[frame["stands_out"] == "over"].to_dict("records")
        ]
        first, last = frame.iloc[0], frame.iloc[-1]
        section.lead.append(
            f"By {title}, from {first['value']} ({percent(first['estimate'])} of its valid images are hard) to "
            f"{last['value']} ({percent(last['estimate'])}); "
            + (
                f"over-represented: {listing(over, 6)}."
                if over
                else "none is over-represented beyond what chance explains."
            )
        )
        parts += [Heading(f"By {title}"), ShownFigure(_rates_figure(frame, factor, title))]
        columns = [
            Column("value", title.capitalize()),
            Column("n", "Valid images", "integer"),
            Column("prompts", "Prompts", "integer"),
            Column("hard", "Hard", "integer"),
            Column("estimate", "Hard rate", "percent", "low", "high"),
            Column("excess", "Against all others", "points", "excess_low", "excess_high", hint="simultaneous interval"),
            Column("stands_out", "Stands out"),
        ]
        parts.append(ShownTable(Table(f"rates_{factor}", f"Hard rate by {title}", frame, columns, folded=True)))
    section.parts = parts
    return section


def _rates_figure(frame: pd.DataFrame, factor: str, title: str) -> Figure:
    shown = frame.head(MOST_NUISANCES)
    tidy = shown.assign(model="hard rate", row=shown["value"], solid=shown["stands_out"] != "")
    rows = list(shown["value"])
    cut = f"; the {MOST_NUISANCES} with the highest rates of {len(frame)}" if len(frame) > len(shown) else ""
    return Figure(
        f"rates_{factor}",
        f"Share of valid images that are shared failures, by {title}{cut}",
        "; ".join(f"{row['value']} {percent(row['estimate'])}" for row in shown.head(8).to_dict("records")),
        lambda width: dots(
            tidy[["model", "row", "estimate", "low", "high", "solid"]],
            width,
            models=["hard rate"],
            rows=rows,
            title="hard rate",
        ),
        "Hollow: not told apart from all others.",
    )


def surrogates_added(evidence: Evidence) -> Section:
    """Accuracy against the number of surrogates, and each surrogate left out."""
    short, facts = evidence.short, evidence.facts
    section = Section("surrogates", "One surrogate more, one less")
    curve, subsets, fits = (evidence.tables[name] for name in ("curve", "curve_subsets", "curve_fit"))
    ends = {
        target: rows.sort_values("k").iloc[[0, -1]]
        for target, rows in curve.dropna(subset=["estimate"]).groupby("target")
    }
    told = [
        f"{short[str(target)]} from {percent(two.iloc[0]['estimate'])} with one to {percent(two.iloc[1]['estimate'])} "
        f"with {int(two.iloc[1]['k'])}"
        for target, two in ends.items()
    ]
    section.lead = [
        f"Mean accuracy on valid images that 1, 2, … surrogates all fail, over every subset of "
        f"{len(facts['surrogates'])}: {'; '.join(told)}. The mean over subsets is the mean over all orders "
        "in which surrogates can be added."
    ]
    section.lead += [
        f"The fitted curve a + b·exp(−c·k) of {short[row['target']]} "
        + (
            f"levels off at a = {estimate(row['floor'], row['floor_low'], row['floor_high'])}."
            if row["floor"] > 0
            else "is still falling: with these surrogates there is no sign of a floor above 0."
        )
        for row in fits.to_dict("records")
    ]
    models = [short[target] for target in facts["targets"]]
    fitted = _fitted(evidence)
    named, dotted = (frame.assign(model=frame["target"].map(short)) for frame in (curve, subsets))
    section.parts = [
        ShownFigure(
            Figure(
                "curve",
                "Accuracy of held-out targets by the number of surrogates that all fail",
                "; ".join(told) or "no subset leaves an image",
                lambda width: charts.curve(
                    named[["model", "k", "estimate", "low", "high"]].dropna(),
                    dotted[["model", "k", "accuracy"]].dropna(),
                    fitted,
                    width,
                    models=models,
                ),
                "A faint dot is one subset of the surrogates; large marks are means with their interval from resampled "
                "prompts; dashed, the fitted curve.",
            )
        ),
        ShownTable(Table("curve", "By number of surrogates", named, _curve_columns(), folded=True)),
        *_left_out(evidence),
    ]
    return section


def _fitted(evidence: Evidence) -> pd.DataFrame:
    """The fitted curves, drawn finely."""
    import pandas as pd

    k = np.linspace(1, max(len(evidence.facts["surrogates"]), 2), 40)
    parts = [
        pd.DataFrame({"model": evidence.short[row["target"]], "k": k, "fitted": _curve(row, k)})
        for row in evidence.tables["curve_fit"].to_dict("records")
    ]
    return pd.concat(parts) if parts else pd.DataFrame(columns=["model", "k", "fitted"])


def _curve(row: dict[Any, Any], k: Any) -> Any:
    return row["floor"] + row["fall"] * np.exp(-row["rate"] * k)


def _curve_columns() -> list[Column]:
    return [
        Column("model", "Target"),
        Column("k", "k", "integer"),
        Column("subsets", "Subsets", "integer"),
        Column("images", "Images, mean", "number"),
        Column("estimate", "Accuracy", "percent", "low", "high"),
        Column("spread", "Spread over subsets", "points"),
        Column("lowest", "Lowest", "percent"),
        Column("highest", "Highest", "percent"),
        Column("fitted", "Fitted", "percent"),
    ]


def _left_out(evidence: Evidence) -> list[Part]:
    short = evidence.short
    frame = evidence.tables["leave_one_out"].copy()
    frame["left_out"] = [short.get(one, "none") for one in frame["left_out"]]
    frame["model"] = frame["model"].map(short)
    columns = [
        Column("left_out", "Left out"),
        Column("model", "Model"),
        Column("role", "Role"),
        Column("n", "Images", "integer"),
        Column("estimate", "Accuracy", "percent", "low", "high"),
        Column("jaccard", "Overlap with the set of all", "percent"),
    ]
    note = "Where m was all of the surrogates, it is all of those that are left."
    return [
        Heading("Each surrogate left out"),
        ShownTable(
            Table("leave_one_out", "The set that the other surrogates leave, valid images", frame, columns, note)
        ),
    ]


def _overlap_columns(short: dict[str, str]) -> list[Column]:
    return [
        Column("first", "First", show=lambda value: short[value]),
        Column("second", "Second", show=lambda value: short[value]),
        Column("both", "Both fail", "integer"),
        Column("either", "Either", "integer"),
        Column("jaccard", "Overlap", "percent", "jaccard_low", "jaccard_high"),
        Column("by_chance", "By chance", "percent"),
        Column("second_given_first", "Second, where the first fails", "percent"),
        Column("first_given_second", "First, where the second fails", "percent"),
        Column("kappa", "κ", "number", "kappa_low", "kappa_high", digits=2),
    ]


_KIN = (
    Column("fact", "In common"),
    Column("pairs_same", "Pairs that share it", "integer"),
    Column("same", "Mean κ", "number", digits=2),
    Column("pairs_different", "Other pairs", "integer"),
    Column("different", "Mean κ of those", "number", digits=2),
    Column("estimate", "Difference", "number", "low", "high", digits=2),
    Column("p", "p over models", "p"),
    Column("reason", "Remark"),
)


def overlap_of_failures(evidence: Evidence) -> Section:
    """Whether models fail on the same images, and whether kin do more."""
    import pandas as pd

    short, facts = evidence.short, evidence.facts
    section = Section("overlap", "Do models fail on the same images")
    frame = evidence.tables["overlap"]
    most = frame.sort_values("jaccard", ascending=False).iloc[0]
    section.lead = [
        f"Of the valid images that {short[most['first']]} or {short[most['second']]} fails, both fail "
        f"{estimate(most['jaccard'], most['jaccard_low'], most['jaccard_high'])}: the largest overlap of two models; "
        f"by chance it would be {percent(most['by_chance'])}."
    ]
    section.lead += [_kin_sentence(row) for row in evidence.tables["kin"].to_dict("records")]
    models = [short[model] for model in (*facts["surrogates"], *facts["targets"])]
    cells = pd.concat(
        [
            pd.DataFrame(
                {"row": frame[one].map(short), "column": frame[other].map(short), "estimate": frame["jaccard"]}
            )
            for one, other in (("first", "second"), ("second", "first"))
        ]
    )
    cells["shown"] = [f"{100 * value:.0f}" if value == value else "–" for value in cells["estimate"]]
    section.parts = [
        ShownFigure(
            Figure(
                "overlap",
                "Overlap of failures (Jaccard, per cent), valid images",
                f"from {percent(frame['jaccard'].min())} to {percent(frame['jaccard'].max())}",
                lambda width: charts.overlap(cells, width, models=models),
                "Of the images that one of two models fails, the share that both fail.",
            )
        ),
        ShownTable(Table("overlap", "Every two models", frame, _overlap_columns(short), folded=True)),
        ShownTable(
            Table(
                "kin",
                "Agreement of surrogates and targets (κ of failures), where they have something in common",
                evidence.tables["kin"],
                _KIN,
                "The interval is for these models and other prompts; p deals the fact anew to the models.",
            )
        ),
    ]
    return section


def _kin_sentence(row: dict[Any, Any]) -> str:
    what = {"family": "family of architecture", "data": "training data", "objective": "objective of training"}
    fact = what.get(row["fact"], row["fact"])
    if row["reason"]:
        return f"Whether the same {fact} makes models fail together cannot be told here: {row['reason']}."
    clear = "more" if row["low"] > 0 else "less" if row["high"] < 0 else "neither clearly more nor less"
    return (
        f"A surrogate and a target with the same {fact} agree {clear} than others: κ {number(row['same'])} against "
        f"{number(row['different'])}, difference {number(row['estimate'])} ({span(row['low'], row['high'], 2, 1)}) for "
        f"these models; dealing the fact anew to the models gives as much with p = {p_value(row['p'])}."
    )
