"""Pages about two models: ``holdfast compare --parity`` (flips, their pictures, speed and size), and a release gate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.lazy import pd
from holdfast.core.numbers import percent
from holdfast.reports.page import charts
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import TILES, Gallery, Notice, Part, Photo, RunPictures, Section, judged, tile
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, plain, ranged
from holdfast.reports.page.words import class_words, condition_label, page_facts, plural, short_names
from holdfast.reports.page.writer import about_runs, write_page
from holdfast.stats.models.gate import Gate
from holdfast.stats.models.parity import Parity
from holdfast.store import Run

TITLE = "Is it still the same model?"
LIMITS = (
    "A flip is a picture that the two models answer differently. Flips have 95 % intervals, photos that share a "
    "background count as what they tell. Two models are equivalent under a condition where two one-sided tests, paired "
    "by photo, both exclude a difference of accuracy as large as the margin; 90 % intervals show what they see. "
    "Times are of single pictures on this machine, one model after the other."
)
CONDITIONS = 6
"""Conditions whose pictures are shown, those with most flips first."""


def build(
    result: Parity, run: Run, out: Path, *, models: tuple[str, str], costs: pd.DataFrame, notes: Sequence[str],
    outcome: str = "full", pictures: RunPictures | None = None,
) -> Path:  # fmt: skip
    """Write the page with its tables and figures, and return its path."""
    short = short_names(list(models))
    section = Section("parity", "Flips by condition", lead=[result.sentence, *(f"{note}." for note in notes)])
    section.parts = [_figure(result), _table(result, short, models)]
    price = Section("costs", "Speed and size", parts=[_costs(costs, short)])
    shown = Section("flips", "Pictures that flip", parts=_flips(result.flips, run, short, models, outcome, pictures))
    facts = [
        *page_facts((int(result.conditions["n"].max()), "photo"), (len(result.conditions), "condition")),
        (f"{len(result.flips):,}", f"of {int(result.conditions['n'].sum()):,} answers flip"),
    ]
    return write_page([section, shown, price], out, title=TITLE, facts=facts, limits=LIMITS, **about_runs([run]))


def _figure(result: Parity) -> Figure:
    table = result.conditions.sort_values("flips", ascending=False)
    worst = table.iloc[0]
    return charts.model_figure(
        "flips", "Share of pictures that the two models answer differently, with 95 % intervals",
        f"Most flips: {percent(worst['flips'])} under {condition_label(worst['condition'])}.",
        table.assign(model="", solid=table["verdict"] == "equivalent"), "flips", short={"": ""}, axis="flipped answers",
        note=f"Filled: accuracies are equivalent within {100 * result.margin:g} points. Hollow: undecided, different, "
        "or without the object (†).",
    )  # fmt: skip


def _table(result: Parity, short: dict[str, str], models: tuple[str, str]) -> Table:
    columns = [
        CONDITION,
        Column("verdict", "Verdict", show=lambda text: text or "not tested", hint="of the two one-sided tests"),
        ranged("flips", "Flips"),
        Column("flipped", "Flipped", "integer", hint="pictures with two answers"),
        Column("n", "of", "integer", hint="pictures that both answered"),
        Column("old", short[models[0]], "percent", hint="accuracy"),
        Column("new", short[models[1]], "percent", hint="accuracy"),
        Column("difference", "Difference", "points", "low", "high", hint="90 % interval"),
        Column("lost", "Lost", "integer", hint="photos that only the first model answers rightly"),
        Column("gained", "Gained", "integer", hint="photos that only the second model answers rightly"),
    ]
    if result.conditions["more_photos"].notna().any():
        columns.append(Column("more_photos", "More photos", "integer", hint="that would decide"))
    return Table("parity", "Flips, accuracies and verdicts", result.conditions, columns)


def _costs(costs: pd.DataFrame, short: dict[str, str]) -> Table:
    first = costs.iloc[0]
    table = costs.assign(
        megabytes=costs["bytes"] / 1e6, times=costs["milliseconds"] / first["milliseconds"],
        size=costs["bytes"] / first["bytes"],
    )  # fmt: skip
    columns = [
        model_column(short),
        Column(
            "milliseconds", "ms per picture", "number", "fast", "slow", digits=2, hint="median of repeats, quartiles"
        ),
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
        return [Notice("No picture flips, so there is none to show.")]
    suffix = "" if outcome == "full" else "_restricted"
    most = list(flips["name"].value_counts().index[:CONDITIONS])
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
    missing = [] if jpegs else [Notice("The pictures: the photos are not at hand.")]
    return [*missing, Gallery(photos)]


def build_gate(gate: Gate, run: Run, out: Path) -> Path:
    """Write what ``holdfast compare`` prints as a page, and return its path."""
    table = gate.conditions.assign(verdict=gate.conditions["verdict"].str.capitalize())
    columns = [
        CONDITION, Column("verdict", "Verdict"), Column("old", "Old", "percent"), Column("new", "New", "percent"),
        Column("difference", "Change", "points", "low", "high", hint="one-sided 95 % bounds"),
        *plain("integer", better="Better", worse="Worse", n="Photos"),
    ]  # fmt: skip
    lead = [gate.sentence, gate.heading, *gate.advice()[:1], *gate.footnotes(), *gate.notes]
    same = gate.conditions[(gate.conditions["better"] == 0) & (gate.conditions["worse"] == 0)]
    if (same["verdict"] == "undecided").any():
        lead.append("Undecided without any change: so few photos do not exclude a loss that is not tolerated.")
    command = "The same on a command line: holdfast compare OLD_RUN NEW_RUN; its exit code is the answer."
    section = Section(
        "gate", "Release gate", lead=lead, parts=[Table("gate", "Every condition", table, columns, command)]
    )
    facts = [(str(len(table)), "conditions"), (f"{int(table['n'].max()):,}", "photos")]
    old, new = (model.partition(":")[2] for model in gate.models)
    may = {"passed": f"{new} may replace {old}", "failed": f"{new} may not replace {old}"}
    title = f"{gate.verdict.capitalize()}: {may.get(gate.verdict, f'whether {new} may replace {old} is open')}"
    about = about_runs([run])
    return write_page([section], out, title=title, facts=facts, limits="Both models answered the same photos.", **about)
