"""The page of a remedy: what fine-tuning on easy images gained on the hard set, and what it cost elsewhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.report.hard.failure_modes import picture_size
from holdfast.report.page import writer as page
from holdfast.report.page.charts import dots
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import (
    Answer,
    Code,
    Gallery,
    Listing,
    Notice,
    Part,
    Photo,
    Section,
    ShownFigure,
    ShownTable,
    Tile,
)
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import listing, percent, plural, points, sentence, span
from holdfast.report.study import DRAWN_WORLD
from holdfast.stats.hard.mining import share
from holdfast.store import read_table

if TYPE_CHECKING:
    import pandas as pd

Pictures = Callable[[Container[str]], dict[str, bytes]]

TILES = 8
_GROUPS = (
    ("Gained", "wrong before, right after", False, True),
    ("Lost", "right before, wrong after", True, False),
    ("Still wrong", "wrong before and after", False, False),
)


def build(folder: Path, *, pictures: Pictures | None = None) -> Path:
    """Write ``report`` of a run of remedy and return the path of its page.

    Args:
        folder: the run.
        pictures: makes JPEGs of images of the pool, by sample_id.
    """
    try:
        facts = json.loads((folder / "summary.json").read_text(encoding="utf8"))
        table = read_table(folder / "results" / "remedy.parquet").to_pandas()
        answers = read_table(folder / "results" / "answers.parquet").to_pandas()
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is not a run that holdfast remedy finished: {error}") from error
    try:
        return page.write(
            [_verdict(table, answers, facts), _gallery(answers, str(table["set"].iloc[0]), pictures), _run(facts)],
            folder / "report",
            title="What training on easy images mends",
            subject=facts["model"],
            facts=[
                (f"{facts['images']:,}", "easy images trained on"),
                (f"{facts['prompts']:,}", "prompts of theirs"),
                (f"{int(table['n'].iloc[0]):,}", "hard images"),
                (f"{facts['how']['epochs']}", "epochs"),
            ],
            limits="No prompt that was trained on is in any of these sets. Intervals are at the 95 % level, pair every "
            "image with itself, and treat prompts, not images, as independent.",
            note=DRAWN_WORLD if facts["drawn"] else "",
            run_names=folder.name,
        )
    except OSError as error:
        raise UserError(f"cannot write the report to {folder / 'report'}: {error.strerror}") from error


def told(row: dict[Any, Any]) -> str:
    """One set's change in words."""
    return (
        f"{percent(row['before'])} → {percent(row['after'])}, "
        f"{'+' if row['estimate'] > 0 else ''}{points(row['estimate'])} ({span(row['low'], row['high'])})"
    )


def _verdict(table: pd.DataFrame, answers: pd.DataFrame, facts: dict[str, Any]) -> Section:
    rows = table.to_dict("records")
    hard = rows[0]
    word = "mends a part of" if hard["low"] > 0 else "makes it worse on" if hard["high"] < 0 else "is not shown to mend"
    worse = [str(row["set"]) for row in rows[1:] if row["high"] < 0]
    described = "; ".join(f"{row['set']}: {told(row)}" for row in rows)
    section = Section("verdict", "Verdict")
    section.lead = [
        f"Training on images that the surrogates get right {word} the hard set: {told(hard)}, on "
        f"{plural(hard['n'], 'valid image')} of {plural(hard['prompts'], 'prompt')}.",
        f"Accuracy falls on {listing(worse)}." if worse else "On no other set is it shown to fall.",
    ]
    section.parts = _shown(table, answers, described)
    if facts["warnings"]:
        section.parts.append(Listing("Warnings", [sentence(one) + "." for one in facts["warnings"]], open=True))
    return section


def _shown(table: pd.DataFrame, answers: pd.DataFrame, described: str) -> list[Part]:
    """Figures and the table."""
    import pandas as pd

    tidy = pd.DataFrame(
        [
            {"model": when, "row": name} | share(part[when], part["prompt_id"].astype(str))
            for name, part in answers.groupby("set", sort=False)
            for when in ("before", "after")
        ]
    )
    order = list(table["set"])
    change = table.assign(model="change", row=table["set"])
    return [
        ShownFigure(
            Figure(
                "change",
                "What fine-tuning changes, after less before",
                described,
                lambda width: dots(
                    change[["model", "row", "estimate", "low", "high"]],
                    width,
                    models=["change"],
                    rows=order,
                    title="points",
                    zero=True,
                ),
            )
        ),
        ShownFigure(
            Figure(
                "accuracy",
                "Accuracy before and after",
                described,
                lambda width: dots(
                    tidy[["model", "row", "estimate", "low", "high"]],
                    width,
                    models=["before", "after"],
                    rows=order,
                    title="accuracy",
                    domain=(0, 1),
                ),
            )
        ),
        ShownTable(
            Table(
                "remedy",
                "Before and after",
                table,
                [
                    Column("set", "Images", show=sentence),
                    Column("n", "n", "integer"),
                    Column("prompts", "Prompts", "integer", hint="Or photos: what counts as independent."),
                    Column("before", "Before", "percent"),
                    Column("after", "After", "percent"),
                    Column("estimate", "Change", "points", "low", "high"),
                    Column("gained", "Gained", "integer"),
                    Column("lost", "Lost", "integer"),
                ],
                "Generated images are valid ones of the half of the prompts on which nothing was chosen or trained.",
            )
        ),
    ]


def _gallery(answers: pd.DataFrame, hard: str, pictures: Pictures | None) -> Section:
    own = answers[answers["set"] == hard]
    groups = []
    for title, what, before, after in _GROUPS:
        part = own[(own["before"] == before) & (own["after"] == after)]
        turn = part.assign(turn=part.groupby("category").cumcount()).sort_values(["turn", "category"])
        if len(part):
            groups.append((title, what, len(part), turn.head(TILES)))
    wanted = {str(one) for *_, part in groups for one in part["sample_id"]}
    jpegs = pictures(wanted) if pictures is not None else {}
    section = Section("gallery", "Which hard images it mends")
    section.lead = ["Picked in the order of their names, which are hashes, a category at a time."]
    if not jpegs:
        section.parts.append(Notice("The pictures: the pool is not at hand."))
    section.parts.append(
        Gallery(
            [
                Photo(
                    title,
                    f"{plural(count, 'hard image')}: {what}",
                    "",
                    [_tile(row, jpegs) for row in part.to_dict("records")],
                    of=f"{len(part)} of",
                )
                for title, what, count, part in groups
            ]
        )
    )
    return section


def _tile(row: dict[Any, Any], jpegs: dict[str, bytes]) -> Tile:
    jpeg = jpegs.get(str(row["sample_id"]), b"")
    width, height = picture_size(jpeg)
    given = [
        Answer(when, str(row[f"said_{when}"]), "✓" if row[when] else "✗", "right" if row[when] else "wrong")
        for when in ("before", "after")
    ]
    wrong = sum(not row[when] for when in ("before", "after"))
    said = " → ".join(str(row[f"said_{when}"]) for when in ("before", "after"))
    picture = base64.b64encode(jpeg).decode() if width else ""
    return Tile(str(row["category"]), picture, width, height, given, wrong, said)


def _run(facts: dict[str, Any]) -> Section:
    how = facts["how"]
    section = Section("run", "What was run")
    section.lead = [
        f"{facts['model']} was trained with {how['optimiser']} at {how['rate']:g} for {plural(how['epochs'], 'epoch')} "
        f"in batches of {how['batch_size']} (recipe {facts['recipe']}) on {plural(facts['images'], 'image')} that "
        f"{listing(facts['surrogates'])} all get right and the oracle accepts, of prompts of the choosing half; batch "
        "norms stay as they are.",
        "The model is ready for use by this name:",
    ]
    section.parts = [
        Code("Model", facts["remedied"]),
        Code("Command", str(facts["environment"].get("command", ""))),
        Code("Summary", json.dumps({k: v for k, v in facts.items() if k != "environment"}, indent=1)),
    ]
    return section
