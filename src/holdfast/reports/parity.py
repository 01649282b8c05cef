"""Pages about two models: ``holdfast compare --parity`` (flips, their images, speed and size), and a release gate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.lazy import pd
from holdfast.core.names import without_object
from holdfast.core.numbers import percent
from holdfast.reports.page import charts
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import (
    TILES,
    Front,
    Gallery,
    Notice,
    Part,
    Photo,
    RunPictures,
    Section,
    answer,
    judged,
    proof,
    tile,
)
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, plain, ranged
from holdfast.reports.page.words import class_words, compare_step, condition_label, page_facts, plural, short_names
from holdfast.reports.page.writer import about_runs, write_page
from holdfast.stats.models.gate import Gate
from holdfast.stats.models.parity import Parity
from holdfast.store import Run

TITLE = "Is it still the same model?"
LIMITS = (
    "A flip is an image that the two models answer differently. Flips have 95 % intervals, images that share a "
    "background count for what they add. Two models are equivalent under a condition if two one-sided tests, paired "
    "by image, both exclude a difference of accuracy as large as the margin; 90 % intervals show what they see. "
    "Times are of single images on this machine, one model after the other."
)
GATE_SIGNS = {"passed": "✓", "failed": "✗", "undecided": "◌"}
CONDITIONS = 6
"""Conditions whose images are shown, those with most flips first."""


def build(
    result: Parity, run: Run, out: Path, *, models: tuple[str, str], costs: pd.DataFrame, notes: Sequence[str],
    outcome: str = "full", pictures: RunPictures | None = None,
) -> Path:  # fmt: skip
    """Write the page with its tables and figures, and return its path."""
    short = short_names(list(models))
    section = Section("parity", "Flips by condition", lead=[result.sentence, *(f"{note}." for note in notes)])
    section.parts = [_figure(result), _table(result, short, models)]
    price = Section("costs", "Speed and size", parts=[_costs(costs, short)])
    shown = Section("flips", "Images that flip", parts=_flips(result.flips, run, short, models, outcome, pictures))
    facts = [
        *page_facts((int(result.conditions["n"].max()), "image"), (len(result.conditions), "condition")),
        (f"{len(result.flips):,}", f"of {int(result.conditions['n'].sum()):,} answers flip"),
    ]
    front = Front(
        TITLE, answer(result.sentence), facts, LIMITS, proof(shown.parts), _figure(result),
        [compare_step(str(run.path), list(models))],
    )  # fmt: skip
    return write_page(front, [section, shown, price], out, **about_runs([run]))


def _figure(result: Parity) -> Figure:
    table = result.conditions.sort_values("flips", ascending=False)
    worst = table.iloc[0]
    return charts.model_figure(
        "flips", "Share of images that the two models answer differently, with 95 % intervals",
        f"Most flips: {percent(worst['flips'])} under {condition_label(worst['condition'])}."
        if worst["flips"] > 0
        else "No prediction flips under any condition.",
        table.assign(model="", solid=table["verdict"] == "equivalent"), "flips", short={"": ""}, axis="flipped answers",
        note=f"Filled: accuracies are equivalent within {100 * result.margin:g} points. Hollow: undecided, different, "
        "or without the object (†).",
    )  # fmt: skip


def _table(result: Parity, short: dict[str, str], models: tuple[str, str]) -> Table:
    columns = [
        CONDITION,
        Column("verdict", "Verdict", show=lambda text: text or "not tested", hint="of the two one-sided tests"),
        ranged("flips", "Flips"),
        Column("flipped", "Flipped", "integer", hint="images with two answers"),
        Column("n", "of", "integer", hint="images that both answered"),
        Column("old", short[models[0]], "percent", hint="accuracy"),
        Column("new", short[models[1]], "percent", hint="accuracy"),
        Column("difference", "Difference", "points", "low", "high", hint="90 % interval"),
        Column("lost", "Lost", "integer", hint="images that only the first model answers rightly"),
        Column("gained", "Gained", "integer", hint="images that only the second model answers rightly"),
    ]
    if result.conditions["more_photos"].notna().any():
        columns.append(Column("more_photos", "More images", "integer", hint="that would decide"))
    return Table("parity", "Flips, accuracies and verdicts", result.conditions, columns)


def _costs(costs: pd.DataFrame, short: dict[str, str]) -> Table:
    first = costs.iloc[0]
    table = costs.assign(
        megabytes=costs["bytes"] / 1e6, times=costs["milliseconds"] / first["milliseconds"],
        size=costs["bytes"] / first["bytes"],
    )  # fmt: skip
    columns = [
        model_column(short),
        Column("milliseconds", "ms per image", "number", "fast", "slow", digits=2, hint="median of repeats, quartiles"),
        Column("times", "Times the first", "number", digits=2),
        Column("megabytes", "MB of weights", "number", digits=2),
        Column("size", "Share of the first", "percent", digits=0),
    ]
    if costs["reason"].any():
        columns.append(Column("reason", "Not known", show=lambda text: text or ""))
    return Table("costs", "Speed and size", table, columns)


def _flips(
    flips: pd.DataFrame, run: Run, short: dict[str, str], models: tuple[str, str], outcome: str,
    pictures: RunPictures | None,
) -> list[Part]:  # fmt: skip
    if flips.empty:
        return [Notice("No image flips, so there is none to show.")]
    suffix = "" if outcome == "full" else "_restricted"
    often = flips["name"].value_counts().index
    most = sorted(often, key=without_object)[:CONDITIONS]  # last those without the object
    picked = flips[flips["name"].isin(most)].groupby("name").head(TILES)
    jpegs = pictures(run, set(picked["source_id"])) if pictures is not None else {}
    photos = []
    for name in most:
        own, tiles = picked[picked["name"] == name], []
        for row in own.to_dict("records"):
            said = [
                judged(
                    short[model],
                    class_words(str(row[f"prediction{suffix}{end}"] or "no answer")),
                    bool(row[f"correct{suffix}{end}"]),
                )
                for model, end in zip(models, ("_old", ""), strict=True)
            ]
            caption = f"{class_words(str(row['label']))}: {row['sample_id']}"
            tiles.append(tile(caption, jpegs.get((str(row["sample_id"]), str(name)), b""), said))
        photos.append(
            Photo(
                condition_label(str(name)),
                f"{len(tiles)} of {plural(int((flips['name'] == name).sum()), 'flip')}",
                "",
                tiles,
                of="–",
            )
        )
    missing = [] if jpegs else [Notice("The images: the images are not at hand.")]
    return [*missing, Gallery(photos)]


def build_gate(
    gate: Gate, run: Run, out: Path, *, flips: pd.DataFrame | None = None, pictures: RunPictures | None = None
) -> Path:
    """Write what ``holdfast compare`` prints as a page, and return its path.

    ``flips``: the images whose predictions changed, as ``stats.models.parity`` returns them, of a run with both models.
    """
    table = gate.conditions.assign(verdict=gate.conditions["verdict"].str.capitalize())
    columns = [
        CONDITION, Column("verdict", "Verdict"), Column("old", "Old", "percent"), Column("new", "New", "percent"),
        Column("difference", "Change", "points", "low", "high", hint="one-sided 95 % bounds"),
        *plain("integer", better="Better", worse="Worse", n="Images"),
    ]  # fmt: skip
    lead = [gate.heading, *gate.footnotes(), *gate.notes]
    same = gate.conditions[(gate.conditions["better"] == 0) & (gate.conditions["worse"] == 0)]
    if (same["verdict"] == "undecided").any():
        lead.append("Undecided without any change: so few images do not exclude a loss that is not tolerated.")
    command = "The same on a command line: holdfast compare OLD_RUN NEW_RUN; its exit code is the verdict."
    section = Section(
        "gate", "Every condition", lead=lead, parts=[Table("gate", "Every condition", table, columns, command)]
    )
    facts = [(str(len(table)), "conditions"), (f"{int(table['n'].max()):,}", "images")]
    short = short_names(list(gate.models))
    old, new = (short[model] for model in gate.models)
    known = gate.conditions[gate.conditions["n"] > 0].assign(model="")
    chart = charts.model_figure(
        "gate", "Change of accuracy with one-sided 95 % bounds; filled: passed or failed", gate.sentence,
        known.assign(solid=known["verdict"] != "undecided"), "difference", short={"": ""},
        axis="points gained", note=f"A loss of {100 * gate.margin:g} points is not tolerated.",
    )  # fmt: skip
    compared = None if flips is None else flips[flips["name"].isin(gate.conditions["condition"])]
    changed = [] if compared is None else _flips(compared, run, short, gate.models, "full", pictures)
    front = Front(
        f"May {new} replace {old}?", answer(gate.sentence, sign=GATE_SIGNS[gate.verdict]), facts,
        "Both models have predictions for the same images.", proof(changed), chart,
        [(text, "") for text in gate.advice()],
    )  # fmt: skip
    sections = [section, *([Section("changed", "Images whose prediction changed", parts=changed)] if changed else [])]
    return write_page(front, sections, out, **about_runs([run]))
