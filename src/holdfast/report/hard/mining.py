"""The page of a mined set: how hard it is for models that did not make it, and how far that can be believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.report.hard import failure_modes
from holdfast.report.hard.gallery import gallery
from holdfast.report.hard.sections import luck, overlap_of_failures, surrogates_added, where
from holdfast.report.page import writer as page
from holdfast.report.page.charts import dots
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import Code, Heading, Listing, Section, ShownFigure, ShownTable, Text, Verdict, Verdicts
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import estimate, listing, percent, plural, points, short_names, span
from holdfast.report.study import DRAWN_WORLD
from holdfast.store import read_table

if TYPE_CHECKING:
    import pandas as pd

    from holdfast.stats.hard.failure_modes import Modes

SETS = {"pool": "unmined pool", "control": "matched control", "hard": "hard set"}
MATCHED = "hard with a control"
SUBSETS = {"valid": "accepted by the oracle", "all": "all images"}
_SHOWN_ABOVE = ("environment", "oracle_card", "warnings")


@dataclass(frozen=True)
class Evidence:
    """What ``holdfast mine`` wrote: facts, tables, and names that fit beside a chart."""

    facts: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    short: dict[str, str]

    def at(self, name: str, **wanted: str) -> pd.DataFrame:
        """The rows of a table that have these values."""
        frame = self.tables[name]
        for column, value in wanted.items():
            frame = frame[frame[column] == value]
        return frame


def build(
    folder: Path,
    *,
    pictures: Callable[[Container[str]], dict[str, bytes]] | None = None,
    modes: Modes | None = None,
) -> Path:
    """Write ``mining/report`` of a hard set and return the path of its page.

    Args:
        folder: the hard set.
        pictures: makes JPEG thumbnails of some images of the pool, by sample_id.
        modes: what explains the wrong answers to its valid images.
    """
    mining = folder / "mining"
    try:
        facts = json.loads((mining / "summary.json").read_text(encoding="utf8"))
        tables = {file.stem: read_table(file).to_pandas() for file in (mining / "results").glob("*.parquet")}
        answers = read_table(mining / "answers.parquet").to_pandas().set_index("sample_id")
        selection = read_table(mining / "selection.parquet").to_pandas().set_index("sample_id")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is not a hard set that holdfast mine finished: {error}") from error
    evidence = Evidence(facts, tables, short_names([*facts["surrogates"], *facts["targets"]]))
    chosen = answers.join(selection[["surrogates_failed", "shared", "set"]])
    sections = [
        verdict(evidence),
        honesty(evidence),
        luck(evidence),
        where(evidence),
        surrogates_added(evidence),
        overlap_of_failures(evidence),
        *([] if modes is None else [failure_modes.section(modes, pictures)]),
        gallery(evidence, chosen, pictures),
        _run(evidence),
    ]
    drawn = all(one.startswith("embedded:") for one in facts["generators"]) and facts["generators"]
    try:
        return page.write(
            sections,
            mining / "report",
            title="The images that many models fail together",
            subject=folder.name,
            facts=_facts(facts),
            limits=_limits(facts),
            note=DRAWN_WORLD if drawn else "",
            run_names=f"{folder.name}/mining",
        )
    except OSError as error:
        raise UserError(f"cannot write the report to {mining / 'report'}: {error.strerror}") from error


def _facts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (f"{facts['images']:,}", "images in the pool"),
        (f"{facts['prompts']:,}", "prompts"),
        (f"{facts['hard']:,}", "hard images"),
        (f"{facts['hard_valid']:,}", "of them valid"),
        (f"{len(facts['used'])}", "surrogates used"),
        (f"{len(facts['targets'])}", "held-out targets"),
    ]


def _limits(facts: dict[str, Any]) -> str:
    text = (
        "Results are about the half of the prompts on which nothing was chosen, and about images that the oracle "
        "accepts, unless a table says otherwise. Intervals are at the 95 % level and treat prompts, not images, as "
        "independent."
    )
    if facts["unanswered"]:
        text += (
            f" {plural(facts['unanswered'], 'image')} had no answer from some model or the oracle and count nowhere."
        )
    return text


def verdict(evidence: Evidence) -> Section:
    """How accurate each held-out target is on the pool, the control and the hard set."""
    facts, short = evidence.facts, evidence.short
    accuracy = evidence.at("accuracy", half="report", subset="valid")
    lost = evidence.at("drops", half="report", subset="valid")
    items, findings = [], []
    for model in facts["targets"]:
        cells = {row["set"]: row for row in accuracy[accuracy["model"] == model].to_dict("records")}
        drops = {row["against"]: row for row in lost[lost["model"] == model].to_dict("records")}
        items.append(_judged(short[model], cells, drops))
        findings.append(f"{short[model]} {percent(cells['pool']['estimate'])} → {percent(cells['hard']['estimate'])}")
    section = Section("verdict", "Verdict")
    hard = accuracy[(accuracy["set"] == "hard") & (accuracy["model"] == facts["targets"][0])].iloc[0]
    section.lead = [
        f"On {plural(int(hard['n']), 'valid image')} of {plural(int(hard['prompts']), 'prompt')} that "
        f"{facts['choice']['words']} surrogates get wrong, against the unmined pool, "
        f"models that took no part in choosing them are right on (pool → hard set): {'; '.join(findings)}.",
    ]
    frame = accuracy[accuracy["role"] == "target"].assign(
        model=lambda one: one["model"].map(short), row=lambda one: one["set"].replace(SETS)
    )
    models = [short[model] for model in facts["targets"]]
    figure = Figure(
        "verdict",
        "Accuracy of the held-out targets on valid images",
        "; ".join(findings) + ".",
        lambda width: dots(
            frame[["model", "row", "estimate", "low", "high"]],
            width,
            models=models,
            rows=[*SETS.values(), *([MATCHED] if MATCHED in set(frame["set"]) else [])],
            title="accuracy",
            domain=(0, 1),
        ),
        "The control has the category and the kind of nuisance of each hard image, but too few surrogates fail it.",
    )
    section.parts = [Verdicts(items), ShownFigure(figure), *_tables(evidence)]
    if facts["warnings"]:
        section.parts.append(Listing("Warnings", facts["warnings"], open=True))
    return section


def _judged(name: str, cells: dict[str, Any], drops: dict[str, Any]) -> Verdict:
    """A word that the intervals bear, and the numbers."""
    hard = cells["hard"]
    told = []
    for key, what in (("pool", "than on the unmined pool"), ("control", "than on the matched control")):
        row = drops.get(key)
        if row and row["estimate"] == row["estimate"]:
            told.append(f"{points(row['estimate'])} lower ({span(row['low'], row['high'])}) {what}")
            if key == "control" and MATCHED in cells:
                told[-1] += f" (on the {cells[MATCHED]['n']:,} that have one)"
    harder = [bool(drops.get(key, {}).get("low", 0) > 0) for key in ("pool", "control")]
    word, sign = (
        ("harder than the pool and the control", "▼") if all(harder)
        else ("harder than the pool", "▽") if harder[0]
        else ("not shown to be harder", "○")
    )  # fmt: skip
    sentence = f"Right on {estimate(hard['estimate'], hard['low'], hard['high'])} of {hard['n']:,} hard images"
    return Verdict(name, word, sign, sentence + (": " + ", and ".join(told) if told else "") + ".")


def _tables(evidence: Evidence) -> list[Any]:
    short = evidence.short
    parts = []
    for name, caption, kind in (
        ("accuracy", "Accuracy by set", "percent"),
        ("drops", "Points lost on the hard set", "points"),
    ):
        frame = evidence.at(name, half="report").assign(
            model=lambda one: one["model"].map(short), subset=lambda one: one["subset"].map(SUBSETS)
        )
        key = "set" if name == "accuracy" else "against"
        columns = [
            Column("model", "Model"),
            Column("role", "Role"),
            Column(key, "Set" if key == "set" else "Against", show=lambda value: SETS.get(value, value)),
            Column("subset", "Images"),
            Column("estimate", "Accuracy" if key == "set" else "Lost", kind, "low", "high"),  # type: ignore[arg-type]
        ]
        columns += [Column("n", "n", "integer"), Column("prompts", "Prompts", "integer")] if key == "set" else []
        frame = frame.sort_values(["role", "model", "subset"], ascending=[False, True, True], kind="stable")
        note = "Surrogates are wrong on the hard set because it was chosen so; their rows measure nothing."
        parts.append(ShownTable(Table(name, caption, frame, columns, note, folded=True)))
    return parts


def honesty(evidence: Evidence) -> Section:
    """How the set was chosen, and how many of its labels hold."""
    facts = evidence.facts
    section = Section("selection", "How far the selection can be believed")
    validity = evidence.tables["validity"]
    by_set = {row["set"]: row for row in validity.to_dict("records")}
    pool, hard, control = (by_set[name] for name in ("pool", "shared failures", "control"))
    section.lead = [
        f"The oracle ({facts['oracle']}) accepts {_share(pool)} of the pool, {_share(control)} of the controls and "
        f"{_share(hard)} of the shared failures"
        + (
            ": mining gathers images whose label does not hold, so everything above is about accepted ones."
            if hard["high"] < pool["low"]
            else "; everything above is about accepted ones."
        )
    ]
    rows = [name for name in validity["set"] if by_set[name]["n"]]
    frame = validity[validity["n"] > 0].assign(model="accepted by the oracle", row=validity["set"])
    section.parts = [
        ShownFigure(
            Figure(
                "validity",
                "Share of images that the oracle accepts, by set and by how many surrogates fail",
                "; ".join(f"{name} {percent(by_set[name]['estimate'])}" for name in rows),
                lambda width: dots(
                    frame[["model", "row", "estimate", "low", "high"]],
                    width,
                    models=["accepted by the oracle"],
                    rows=rows,
                    title="accepted",
                    domain=(0, 1),
                ),
            )
        ),
        ShownTable(
            Table("validity", "Label validity", validity, _share_columns("Set", "set", "Accepted"), folded=True)
        ),
        Heading("How k and m were chosen"),
        Text(
            [
                "Prompts fall into two halves by their hash; all images of a prompt are in one half. On one half k and "
                "m were chosen, the other is what results are about.",
                *facts["choice"]["rule"],
            ]
        ),
        *_choice_tables(evidence),
        Heading("The matched control"),
        Text([_control_text(evidence)]),
    ]
    return section


def _share(row: dict[Any, Any]) -> str:
    return (
        f"{estimate(row['estimate'], row['low'], row['high'])} of {plural(row['n'], 'image')}" if row["n"] else "none"
    )


def _share_columns(title: str, key: str, what: str) -> list[Column]:
    return [
        Column(key, title),
        Column("n", "Images", "integer"),
        Column("prompts", "Prompts", "integer"),
        Column("estimate", what, "percent", "low", "high"),
    ]


def _choice_tables(evidence: Evidence) -> list[Any]:
    chosen = [
        Column("k", "k", "integer"),
        Column("estimate", "Accuracy of a left-out surrogate", "percent"),
        Column("fitted", "Fitted", "percent"),
        Column("images", "Valid images left, mean", "number"),
    ]
    counted = [
        Column("m", "m", "integer"),
        Column("images", "Images", "integer"),
        Column("valid", "Valid", "integer"),
    ]
    by_m = evidence.tables["by_m"].assign(model=lambda one: one["model"].map(evidence.short))
    told = [Column("m", "m", "integer"), Column("model", "Target"), *_share_columns("", "", "Accuracy")[1:]]
    return [
        ShownTable(
            Table("choice_k", "On the choosing half, by number of surrogates", evidence.tables["choice_k"], chosen)
        ),
        ShownTable(Table("choice_m", "On the choosing half, by m", evidence.tables["choice_m"], counted)),
        ShownTable(Table("by_m", "Valid images of the reporting half, had m been another", by_m, told, folded=True)),
    ]


def _control_text(evidence: Evidence) -> str:
    frame = evidence.tables["control"]
    hard = {"valid": evidence.facts["hard_valid"], "all": evidence.facts["hard"]}
    texts = []
    for subset in ("valid", "all"):
        part = frame[frame["subset"] == subset]
        total = int(part["images"].sum())
        one = int(part.loc[part["why"] == "one surrogate fails", "images"].sum())
        same = int(part.loc[part["same_nuisance"], "images"].sum())
        texts.append(
            f"of {plural(hard[subset], 'hard image')} ({SUBSETS[subset]}), {total:,} have a control; exactly one "
            f"surrogate fails {one:,} of these, more than one but too few the others; {same:,} have the same nuisance "
            "as their hard image, the others one of the same kind"
        )
    return (
        "A control has the category, the kind of nuisance and the half of its hard image, is used once, and is failed "
        f"by at least one surrogate: {'; '.join(texts)}."
    )


def _run(evidence: Evidence) -> Section:
    facts = evidence.facts
    models = evidence.tables["models"]
    columns = [
        Column("model", "Model"),
        Column("role", "Role"),
        Column("used", "Used", show=lambda value: "yes" if value else "no"),
        Column("pool_accuracy", "Accuracy on the pool", "percent"),
        Column("family", "Family"),
        Column("data", "Trained on"),
        Column("objective", "By"),
    ]
    section = Section("run", "What was run")
    section.lead = [
        f"The pool {facts['pool']}; wrong means wrong "
        + ("over all outputs of a model." if facts["outcome"] == "full" else "among the categories."),
        f"Oracle: {listing([f'{heading}: {text}' for heading, text in facts['oracle_card']], 8)}",
    ]
    section.parts = [
        ShownTable(Table("models", "Models", models, columns)),
        Code("Command", str(facts["environment"].get("command", ""))),
        Code(
            "Summary",
            json.dumps({k: v for k, v in facts.items() if k not in _SHOWN_ABOVE}, indent=1, ensure_ascii=False),
        ),
    ]
    return section
