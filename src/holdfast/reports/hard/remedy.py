"""The page of a remedy: what fine-tuning on easy images gains on the hard set, and what it costs elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.numbers import percent, points, span
from holdfast.reports.page.charts import dot_figure
from holdfast.reports.page.parts import (
    Code,
    Front,
    Part,
    Section,
    Thumbnails,
    Tile,
    answer,
    by_turns,
    first_figure,
    grouped,
    judged,
    proof,
    tile,
)
from holdfast.reports.page.tables import Column, Table, plain
from holdfast.reports.page.words import listing, plural, sentence
from holdfast.reports.page.writer import DRAWN_WORLD, write_page
from holdfast.stats.hard.mining import share
from holdfast.store import read_table

_GROUPS = (
    ("Gained", "wrong before, right after", False, True),
    ("Lost", "right before, wrong after", True, False),
    ("Still wrong", "wrong before and after", False, False),
)


def build(folder: Path, *, pictures: Thumbnails | None = None) -> Path:
    """Write ``report`` of a run of remedy and return the path of its page."""
    try:
        facts = json.loads((folder / "summary.json").read_text(encoding="utf8"))
        table = read_table(folder / "results" / "remedy.parquet").to_pandas()
        answers = read_table(folder / "results" / "answers.parquet").to_pandas()
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is not a run that holdfast mine remedy finished: {error}") from error
    hard, shown = str(table["set"].iloc[0]), _verdict(table, answers, facts)
    examples = _gallery(answers, hard, pictures)
    front = Front(
        "Does training on easy images repair the predictions on hard ones?",
        answer(shown.lead[0], shown.lead[1]),
        [
            (f"{facts['images']:,}", "easy images trained on"),
            (f"{facts['prompts']:,}", "prompts of theirs"),
            (f"{int(table['n'].iloc[0]):,}", "hard images"),
            (f"{facts['how']['epochs']}", "epochs"),
        ],
        "No prompt that was trained on is in any of these sets. Intervals are at the 95 % level, pair every image with "
        "itself, and treat prompts, not images, as independent.",
        proof(examples.parts),
        first_figure(shown.parts),
        warnings=[sentence(warning) + "." for warning in facts["warnings"]],
    )
    note, out = DRAWN_WORLD if facts["drawn"] else "", folder / "report"
    sections = [shown, examples, _run(facts)]
    return write_page(front, sections, out, subject=facts["model"], note=note, run_names=folder.name)


def _change(row: dict[Any, Any]) -> str:
    return (
        f"{percent(row['before'])} → {percent(row['after'])}, "
        f"{'+' if row['estimate'] > 0 else ''}{points(row['estimate'])} ({span(row['low'], row['high'])})"
    )


def _verdict(table: pd.DataFrame, answers: pd.DataFrame, facts: dict[str, Any]) -> Section:
    rows = table.to_dict("records")
    hard = rows[0]
    word = (
        "repairs a part of"
        if hard["low"] > 0
        else "makes it worse on"
        if hard["high"] < 0
        else "is not shown to repair"
    )
    worse = [str(row["set"]) for row in rows[1:] if row["high"] < 0]
    described = "; ".join(f"{row['set']}: {_change(row)}" for row in rows)
    section = Section("change", "Before and after")
    section.lead = [
        f"Training on images that the surrogates get right {word} the hard set: {_change(hard)}, on "
        f"{plural(hard['n'], 'valid image')} of {plural(hard['prompts'], 'prompt')}.",
        f"Accuracy falls on {listing(worse)}." if worse else "On no other set is it shown to fall.",
    ]
    section.parts = _shown(table, answers, described)
    return section


def _shown(table: pd.DataFrame, answers: pd.DataFrame, described: str) -> list[Part]:
    tidy = pd.DataFrame(
        [
            {"model": when, "row": name} | share(part[when], part["prompt_id"].astype(str))
            for name, part in answers.groupby("set", sort=False)
            for when in ("before", "after")
        ]
    )
    order = list(table["set"])
    change = table.assign(model="change", row=table["set"])
    title = "What fine-tuning changes, after less before"
    return [
        dot_figure("change", title, described, change, axis="points", zero=True),
        dot_figure(
            "accuracy", "Accuracy before and after", described, tidy, axis="accuracy", domain=(0, 1), rows=order
        ),
        Table(
            "remedy",
            "Before and after",
            table,
            [
                Column("set", "Images", show=sentence),
                Column("n", "n", "integer"),
                Column("prompts", "Prompts", "integer", hint="Or images: what counts as independent."),
                *plain("percent", before="Before", after="After"),
                Column("estimate", "Change", "points", "low", "high"),
                *plain("integer", gained="Gained", lost="Lost"),
            ],
            "Generated images are valid ones of the half of the prompts on which nothing was chosen or trained.",
        ),
    ]


def _gallery(answers: pd.DataFrame, hard: str, thumbnails: Thumbnails | None) -> Section:
    own = answers[answers["set"] == hard].astype({"sample_id": str}).set_index("sample_id")
    groups = []
    for title, what, before, after in _GROUPS:
        part = own[(own["before"] == before) & (own["after"] == after)]
        if len(part):
            groups.append((title, f"{plural(len(part), 'hard image')}: {what}", list(by_turns(part, "category").index)))
    section = Section("gallery", "Which hard images it repairs")
    section.lead = ["Picked in the order of their names, which are hashes, a category at a time."]

    def shown(_: str, name: str, jpeg: bytes) -> Tile:
        row: Any = own.loc[name]
        said = {when: str(row[f"said_{when}"]) for when in ("before", "after")}
        answers = [judged(when, text, bool(row[when])) for when, text in said.items()]
        return tile(str(row["category"]), jpeg, answers, count=" → ".join(said.values()))

    section.parts = grouped(groups, thumbnails, shown, missing="pool is")
    return section


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
