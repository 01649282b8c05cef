"""A mined hard set as ``holdfast mine`` wrote it, and the sections of its page that explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.core.lazy import pd
from holdfast.core.numbers import estimate, number, p_value, percent, span
from holdfast.reports.page import charts
from holdfast.reports.page.figures import COLOURS, INK, SHAPES, WIDE, Chart, Figure
from holdfast.reports.page.parts import (
    Gallery,
    Heading,
    Notice,
    Part,
    Photo,
    Section,
    Text,
    Thumbnails,
    Tile,
    by_turns,
    grouped,
    judged,
    proof,
    tile,
)
from holdfast.reports.page.tables import Column, Table, plain, ranged
from holdfast.reports.page.words import listing, plural, sentence
from holdfast.stats.hard.transfer import FEWEST_IMAGES, FEWEST_TARGETS

PAIRS = 2  # Hard images with a control on the first screen
MOST_NUISANCES = 24  # Rows of the chart; the table has all of them


@dataclass(frozen=True)
class MinedSet:
    """What ``holdfast mine`` wrote: facts, tables, and names of models that fit next to a chart."""

    facts: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    short: dict[str, str]

    def at(self, name: str, **values: str) -> pd.DataFrame:
        """Return the rows of a table that have these values."""
        frame = self.tables[name]
        for column, value in values.items():
            frame = frame[frame[column] == value]
        return frame

    def words(self, text: str) -> str:
        """Return a text about prompts, or about images if the pool has no prompts."""
        source = "prompt" if self.facts.get("source", "prompt") == "prompt" else "image"
        return text.replace("prompt", source).replace("Prompt", source.capitalize())


def luck(mined: MinedSet) -> Section:
    """Return how much of a failure comes from the prompt, and how much from the seed."""
    section = Section("luck", mined.words("Prompt or luck"))
    frame = mined.at("persistence", half="report")
    alike = mined.tables["luck"]
    if frame.empty and mined.words("prompt") == "prompt":
        section.parts = [Notice("The hard prompts were not repainted, so this is unknown.")]
    elif frame.empty:
        section.lead = ["How much of a failure belongs to the image, and how much to what was done to it."]
    else:
        row = frame[(frame["what"] == "shared failure") & (frame["subset"] == "valid")].iloc[0]
        section.lead = [
            f"Repainted with other seeds, {estimate(row['estimate'], row['low'], row['high'])} of "
            f"{plural(int(row['n']), 'valid image')} of {plural(int(row['prompts']), 'hard prompt')} are shared "
            f"failures again, against {percent(row['pool'])} of the whole pool: of what mining added, "
            f"{estimate(row['lasting'], row['lasting_low'], row['lasting_high'], 0)} belongs to the prompts, the rest "
            "was luck of the seed."
        ]
        columns = [
            Column("what", "Failure of", show=lambda value: mined.short.get(value, value)),
            Column("subset", "Images"),
            *plain("percent", pool="Pool", mined="Hard set"),
            Column("estimate", "Repainted", "percent", "low", "high"),
            ranged("lasting", "Lasting", hint="1: the prompt's; 0: luck"),
            *plain("integer", n="New images", prompts="Prompts"),
        ]
        section.parts = [Table("persistence", "Failures before and after repainting", frame, columns)]
    columns = [
        Column("what", "What", show=lambda value: mined.short.get(value, value)),
        Column("estimate", mined.words("Correlation within a prompt"), "number", "low", "high", digits=2),
    ]
    note = "Between images of one prompt in the pool: 0 is luck, 1 a prompt that always or never fails."
    title = mined.words("How alike images of one prompt are")
    section.parts = [*section.parts, Table("luck", title, alike, columns, mined.words(note))]
    return section


def where(mined: MinedSet) -> Section:
    """Return the hard rates by kind of nuisance, nuisance and category."""
    section = Section("where", "Where hard images come from")
    parts: list[Part] = []
    for factor, title in (("kind", "kind of nuisance"), ("category", "category"), ("nuisance", "nuisance")):
        frame = mined.at(f"rates_{factor}", half="report", subset="valid")
        if frame.empty:
            continue
        rates = [f"{row['value']} ({percent(row['estimate'])})" for row in frame.to_dict("records")]
        over = [rate for rate, sign in zip(rates, frame["stands_out"], strict=True) if sign == "over"]
        ends = f"{rates[0][:-1]} of its valid images are hard) to {rates[-1]}"
        chance = "none is over-represented beyond what chance explains"
        section.lead.append(f"By {title}, from {ends}; {f'over-represented: {listing(over, 6)}' if over else chance}.")
        parts += [Heading(f"By {title}"), _rates_figure(frame, factor, title)]
        columns = [
            Column("value", title.capitalize()),
            *plain("integer", n="Valid images", prompts=mined.words("Prompts"), hard="Hard"),
            Column("estimate", "Hard rate", "percent", "low", "high"),
            ranged("excess", "Against all others", "points", hint="simultaneous interval"),
            Column("stands_out", "Stands out"),
        ]
        parts.append(Table(f"rates_{factor}", f"Hard rate by {title}", frame, columns, folded=True))
    section.parts = parts
    return section


def hard_and_easy(mined: MinedSet, images: pd.DataFrame, thumbnails: Thumbnails | None) -> Gallery | None:
    """Return hard images, each next to a control of its category that most models get right."""
    hard = images[(images["set"] == "hard") & images["valid"]].sort_index()
    controls = images[images["set"] == "control"].sort_index().drop_duplicates("category")
    control_of = dict(zip(controls["category"].astype(str), controls.index.astype(str), strict=True))
    pairs = by_turns(hard[hard["category"].astype(str).isin(list(control_of))], "category", PAIRS)
    if thumbnails is None or pairs.empty:
        return None
    names = [(str(name), control_of[str(category)]) for name, category in pairs["category"].items()]
    jpegs = thumbnails({name for pair in names for name in pair})
    tiles = [
        replace(_tile(mined, images.loc[name], jpegs.get(name, b"")), mark=mark)
        for pair in names
        for name, mark in zip(pair, ("hard", "easy control"), strict=True)
    ]
    text = "Hard images, each next to an easy control of the same category."
    return proof([Gallery([Photo("", "", text, tiles)])], tiles=len(tiles))


def gallery(mined: MinedSet, images: pd.DataFrame, thumbnails: Thumbnails | None) -> Section:
    """Return galleries of hard images by kind of nuisance, of rejected ones, and of controls."""
    hard = images[images["set"] == "hard"]
    kinds = [
        (sentence(str(kind).replace("_", " ")), "hard and valid", part)
        for kind, part in hard[hard["valid"]].groupby("kind")
    ]
    rejected = images[images["shared"] & ~images["valid"]]
    groups = [
        *kinds,
        ("Rejected", "failed by as many, and rejected by the oracle", rejected),
        ("Controls", "failed by too few surrogates", images[images["set"] == "control"]),
    ]
    picked = [
        (title, f"{plural(len(part), 'image')} {what}", [*map(str, by_turns(part.sort_index(), "category").index)])
        for title, what, part in groups
        if len(part)
    ]
    section = Section("gallery", "What the images look like")
    section.lead = [
        "Picked by hash, a category at a time; hard images are not typical, they were chosen because they fail. Below "
        "each image what it should show, and what every model and the oracle said."
    ]
    section.parts = grouped(
        picked, thumbnails, lambda _, name, jpeg: _tile(mined, images.loc[name], jpeg), missing="pool is"
    )
    return section


def _tile(mined: MinedSet, row: Any, jpeg: bytes) -> Tile:
    answers = [judged(short, str(row[model]), row[model] == row["category"]) for model, short in mined.short.items()]
    wrong = sum(answer.kind == "wrong" for answer in answers)
    saw = str(row["oracle_saw"]) or "nothing"
    prompt = str(row["prompt"]) or f"{row['category']}, {row['kind']} {row['nuisance']}".strip().replace("_", " ")
    count = f"✗ {wrong} of {len(answers)} models wrong; oracle saw {saw}"
    answers.append(judged("oracle", f"saw {saw}", bool(row["valid"])))
    return tile(f"“{prompt}”", jpeg, answers, wrong=bool(wrong), count=count)


def _rates_figure(frame: pd.DataFrame, factor: str, title: str) -> Figure:
    shown = frame.head(MOST_NUISANCES)
    tidy = shown.assign(model="hard rate", row=shown["value"], solid=shown["stands_out"] != "")
    cut = f"; the {MOST_NUISANCES} with the highest rates of {len(frame)}" if len(frame) > len(shown) else ""
    caption = f"Share of valid images that are shared failures, by {title}{cut}"
    rates = "; ".join(f"{row['value']} {percent(row['estimate'])}" for row in shown.head(8).to_dict("records"))
    note = "Hollow: not clearly different from all others."
    return charts.dot_figure(f"rates_{factor}", caption, rates, tidy, axis="hard rate", note=note)


def surrogates_added(mined: MinedSet) -> Section:
    """Return accuracies by the number of surrogates, and with each surrogate left out."""
    short, facts = mined.short, mined.facts
    section = Section("surrogates", "One surrogate more, one less")
    curve, subsets, fits = (mined.tables[name] for name in ("curve", "curve_subsets", "curve_fit"))
    ends = {
        target: rows.sort_values("k").iloc[[0, -1]]
        for target, rows in curve.dropna(subset=["estimate"]).groupby("target")
    }
    findings = [
        f"{short[str(target)]} from {percent(two.iloc[0]['estimate'])} with one to {percent(two.iloc[1]['estimate'])} "
        f"with {int(two.iloc[1]['k'])}"
        for target, two in ends.items()
    ]
    section.lead = [
        f"Mean accuracy on valid images that 1, 2, … surrogates all fail, over every subset of "
        f"{len(facts['surrogates'])}: {'; '.join(findings)}. The mean over subsets is the mean over all orders "
        "in which surrogates can be added."
    ]
    k = np.linspace(1, max(len(facts["surrogates"]), 2), 40)
    fitted = pd.DataFrame(columns=["model", "k", "fitted"])
    for row in fits.to_dict("records"):
        levels = f"levels off at a = {estimate(row['floor'], row['floor_low'], row['floor_high'])}."
        falls = "is still falling: with these surrogates there is no sign of a floor above 0."
        model = short[row["target"]]
        section.lead.append(f"The fitted curve a + b·exp(−c·k) of {model} {levels if row['floor'] > 0 else falls}")
        values = row["floor"] + row["fall"] * np.exp(-row["rate"] * k)
        curve_of = pd.DataFrame({"model": model, "k": k, "fitted": values})
        fitted = pd.concat([fitted, curve_of]) if len(fitted) else curve_of
    models = [short[target] for target in facts["targets"]]
    named, dotted = (frame.assign(model=frame["target"].map(short)) for frame in (curve, subsets))
    section.parts = [
        Figure(
            "curve",
            "Accuracy of held-out targets by the number of surrogates that all fail",
            "; ".join(findings) or "no subset leaves an image",
            lambda width: _curve_chart(
                named[["model", "k", "estimate", "low", "high"]].dropna(),
                dotted[["model", "k", "accuracy"]].dropna(),
                fitted,
                width,
                models=models,
            ),
            "A faint dot is one subset of the surrogates; large marks are means with their interval from resampled "
            f"{mined.words('prompts')}; dashed, the fitted curve.",
        ),
        Table("curve", "By number of surrogates", named, _CURVE, folded=True),
        *_left_out(mined),
        *_transfer(mined),
    ]
    return section


_CURVE = (
    Column("model", "Target"),
    *plain("integer", k="k", subsets="Subsets"),
    Column("images", "Images, mean", "number"),
    Column("estimate", "Accuracy", "percent", "low", "high"),
    Column("spread", "Spread over subsets", "points"),
    *plain("percent", lowest="Lowest", highest="Highest", fitted="Fitted"),
)


def _left_out(mined: MinedSet) -> list[Part]:
    short = mined.short
    frame = mined.tables["leave_one_out"].copy()
    frame["left_out"] = [short.get(model, "none") for model in frame["left_out"]]
    frame["model"] = frame["model"].map(short)
    columns = [
        *plain("text", left_out="Left out", model="Model", role="Role"),
        Column("n", "Images", "integer"),
        Column("estimate", "Accuracy", "percent", "low", "high"),
        Column("jaccard", "Overlap with the set of all", "percent"),
    ]
    note = "If m was all of the surrogates, it is all of those that are left."
    return [
        Heading("Each surrogate left out"),
        Table("leave_one_out", "The set that the other surrogates leave, valid images", frame, columns, note),
    ]


def _transfer(mined: MinedSet) -> list[Part]:
    """Return which properties predict how often a model fails on a hard set that it was not mined with."""
    if "transfer" not in mined.tables:  # sets mined before the table was there
        return []
    frame = mined.tables["transfer"]
    if frame.empty:
        reason = (
            f"What predicts transfer to a new model is unknown: it takes {FEWEST_TARGETS} models that each have a set, "
            f"mined from 2 or more of the others, with {FEWEST_IMAGES} valid images of the reporting half."
        )
        return [Notice(reason)]
    none = frame[frame["property"] == "none"].iloc[0]
    better = frame[frame["gain_low"] > 0].sort_values("error")
    said = f"The mean of the other models misses a model's failure rate by {percent(none['error'])} on average."
    if better.empty:
        said += " No property predicts it better, as far as these models can show."
    else:
        best = better.iloc[0]
        said += f" The best prediction, from {best['meaning']}, misses it by {percent(best['error'])}."
    columns = [
        Column("meaning", "Predicted from"), Column("targets", "Models", "integer"),
        Column("error", "Mean error", "percent", "low", "high"),
        Column("gain", "Better than the mean by", "points", "gain_low", "gain_high"),
        Column("slope", "Slope", "number", digits=2, hint="change of the failure rate per unit of the property"),
    ]  # fmt: skip
    note = (
        "Each model in turn is predicted from the others, on all sets that 2 to 4 others mine. Properties are of "
        "the choosing half, failures of the reporting half. Intervals are over models."
    )
    title = "Failure rate on a hard set, predicted for a model that the fit has not seen"
    return [Heading("What predicts transfer"), Text([said]), Table("transfer", title, frame, columns, note)]


def _overlap_columns(short: dict[str, str]) -> list[Column]:
    return [
        Column("first", "First", show=lambda value: short[value]),
        Column("second", "Second", show=lambda value: short[value]),
        *plain("integer", both="Both fail", either="Either"),
        ranged("jaccard", "Overlap"),
        *plain("percent", by_chance="By chance", second_given_first="Second, where the first fails"),
        Column("first_given_second", "First, where the second fails", "percent"),
        ranged("kappa", "κ", "number", digits=2),
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


def overlap_of_failures(mined: MinedSet) -> Section:
    """Return whether models fail on the same images, and whether related models do so more often."""
    short, facts = mined.short, mined.facts
    section = Section("overlap", "Do models fail on the same images")
    frame = mined.tables["overlap"]
    most = frame.sort_values("jaccard", ascending=False).iloc[0]
    section.lead = [
        f"Of the valid images that {short[most['first']]} or {short[most['second']]} fails, both fail "
        f"{estimate(most['jaccard'], most['jaccard_low'], most['jaccard_high'])}: the largest overlap of two models; "
        f"by chance it would be {percent(most['by_chance'])}."
    ]
    section.lead += [_kin_sentence(row) for row in mined.tables["kin"].to_dict("records")]
    models = [short[model] for model in (*facts["surrogates"], *facts["targets"])]
    half = frame.assign(row=frame["first"].map(short), column=frame["second"].map(short), estimate=frame["jaccard"])
    half = half[["row", "column", "estimate"]]
    cells = pd.concat([half, half.rename(columns={"row": "column", "column": "row"})])[["row", "column", "estimate"]]
    cells["shown"] = [number(100 * value, 0) if value == value else "–" for value in cells["estimate"]]
    section.parts = [
        Figure(
            "overlap",
            "Overlap of failures (Jaccard, per cent), valid images",
            f"from {percent(frame['jaccard'].min())} to {percent(frame['jaccard'].max())}",
            lambda width: _overlap_chart(cells, width, models=models),
            "Of the images that one of two models fails, the share that both fail.",
        ),
        Table("overlap", "Every two models", frame, _overlap_columns(short), folded=True),
        Table(
            "kin",
            "Agreement of surrogates and targets (κ of failures), if they have something in common",
            mined.tables["kin"],
            _KIN,
            mined.words("The interval is for these models and other prompts; p reassigns the fact among the models."),
        ),
    ]
    return section


def _kin_sentence(row: dict[Any, Any]) -> str:
    what = {"family": "family of architecture", "data": "training data", "objective": "objective of training"}
    fact = what.get(row["fact"], row["fact"])
    if row["reason"]:
        return f"Whether the same {fact} makes models fail together cannot be determined here: {row['reason']}."
    clear = "more" if row["low"] > 0 else "less" if row["high"] < 0 else "neither clearly more nor less"
    return (
        f"A surrogate and a target with the same {fact} agree {clear} than others: κ {number(row['same'])} against "
        f"{number(row['different'])}, difference {number(row['estimate'])} ({span(row['low'], row['high'], 2, 1)}) for "
        f"these models; reassigning the fact among the models gives as much with p = {p_value(row['p'])}."
    )


def _curve_chart(
    points: pd.DataFrame, subsets: pd.DataFrame, fitted: pd.DataFrame, width: int, *, models: Sequence[str]
) -> Chart:
    """Accuracy against the number of surrogates: a faint dot a subset, the mean with its interval, the fitted curve."""
    x = {"field": "k", "type": "quantitative", "scale": {"zero": False, "nice": False, "padding": 18}}
    x["axis"] = {"title": "surrogates that all fail", "tickMinStep": 1, "format": "d", "grid": False}
    y = {"type": "quantitative", "scale": {"domain": [0, 1]}, "axis": {"title": "accuracy", "format": "%"}}
    colour = charts.by_model(models, "color", COLOURS)
    shaped = colour | charts.by_model(models, "shape", SHAPES)
    fit = colour | {"x": x, "y": y | {"field": "fitted"}}
    ends = colour | {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}
    layers = [
        _marks_of("subsets", charts.dot_layer(colour | {"x": x, "y": y | {"field": "accuracy"}}, 18, opacity=0.25)),
        _marks_of("fitted", charts.layer("line", fit, strokeWidth=1.5, strokeDash=[5, 3])),
        _marks_of("points", charts.layer("rule", ends, strokeWidth=1.7)),
        _marks_of("points", charts.dot_layer(shaped | {"x": x, "y": y | {"field": "estimate"}}, 70)),
    ]
    legend = {"columns": max(1, width // (charts.room(models, width) + 60)), "columnPadding": 30, "symbolOpacity": 1}
    return {
        "datasets": {
            "points": charts.records(points),
            "subsets": charts.records(subsets),
            "fitted": charts.records(fitted),
        },
        "width": width,
        "height": 300 if width >= WIDE else 240,
        "autosize": charts.FIT,
        "layer": layers,
        "config": {"legend": legend},
    }


def _marks_of(name: str, marks: Chart) -> Chart:
    return {"data": {"name": name}, **marks}


def _overlap_chart(frame: pd.DataFrame, width: int, *, models: Sequence[str]) -> Chart:
    """Every two models: Jaccard overlap of their failures, dark if it is large; numbers if they fit."""
    desk = width >= WIDE
    label = charts.room(models, 190 if desk else 100, 12 if desk else 10)
    size = max(14, min(64, (width - label - 30) / max(len(models), 1)))
    x, y = charts.square_axes(models, label, desk=desk)
    scale = {"domain": [0, 1], "range": list(reversed(charts.HEAT))}
    shade = {"field": "estimate", "type": "quantitative", "scale": scale, "legend": None}
    tips = charts.tooltip({"row": "model", "column": "with", "shown": "overlap, %"})
    layers = [charts.layer("rect", {"x": x, "y": y, "color": shade, "tooltip": tips}, stroke="white")]
    if size >= 22:
        ink = {"condition": {"test": "datum.estimate > 0.5", "value": "white"}, "value": INK}
        text = {"field": "shown", "type": "nominal"}
        layers.append(charts.layer("text", {"x": x, "y": y, "text": text, "color": ink}, fontSize=10.5))
    return charts.chart_of(frame, width={"step": size}, height={"step": min(size, 30)}, layer=layers)
