"""The page of a mined set: how hard it is for models that did not choose it, and how far that can be believed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.numbers import estimate, percent, points, span
from holdfast.reports.hard.failure_modes import failure_section
from holdfast.reports.hard.mined_set import (
    MinedSet,
    gallery,
    hard_and_easy,
    luck,
    overlap_of_failures,
    surrogates_added,
    where,
)
from holdfast.reports.page.charts import dot_figure
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import Code, Front, Heading, ModelVerdict, Section, Text, Thumbnails
from holdfast.reports.page.tables import Column, Table, plain, yes_no
from holdfast.reports.page.words import listing, plural, short_names
from holdfast.reports.page.writer import DRAWN_WORLD, write_page
from holdfast.stats.hard.failure_modes import Modes
from holdfast.store import read_table

SETS = {"pool": "unmined pool", "control": "matched control", "hard": "hard set"}
MATCHED = "hard with a control"
SUBSETS = {"valid": "accepted by the oracle", "all": "all images"}
_SHOWN_ABOVE = ("environment", "oracle_card", "warnings")


def build(folder: Path, *, pictures: Thumbnails | None = None, modes: Modes | None = None) -> Path:
    """Write ``mining/report`` of a hard set and return the path of its page."""
    mining = folder / "mining"
    try:
        facts = json.loads((mining / "summary.json").read_text(encoding="utf8"))
        tables = {file.stem: read_table(file).to_pandas() for file in (mining / "results").glob("*.parquet")}
        answers = read_table(mining / "answers.parquet").to_pandas().set_index("sample_id")
        selection = read_table(mining / "selection.parquet").to_pandas().set_index("sample_id")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is not a hard set that holdfast mine finished: {error}") from error
    mined = MinedSet(facts, tables, short_names([*facts["surrogates"], *facts["targets"]]))
    chosen = answers.join(selection[["surrogates_failed", "shared", "set"]])
    items, figure = _targets(mined)
    sections = [
        verdict(mined),
        honesty(mined),
        luck(mined),
        where(mined),
        surrogates_added(mined),
        overlap_of_failures(mined),
        *([] if modes is None else [failure_section(modes, pictures)]),
        gallery(mined, chosen, pictures),
        _run(mined),
    ]
    images = plural(facts["unanswered"], "image")
    unanswered = f" {images} had no answer from some model or the oracle and count nowhere."
    drawn = facts["generators"] and all(name.startswith("embedded:") for name in facts["generators"])
    front = Front(
        TITLE,
        items,
        [
            (f"{facts['images']:,}", "images in the pool"),
            (f"{facts['prompts']:,}", mined.words("prompts")),
            (f"{facts['hard']:,}", "hard images"),
            (f"{facts['hard_valid']:,}", "of them valid"),
            (f"{len(facts['used'])}", "surrogates used"),
            (f"{len(facts['targets'])}", "held-out targets"),
        ],
        mined.words(_LIMITS) + (unanswered if facts["unanswered"] else ""),
        hard_and_easy(mined, chosen, pictures),
        figure,
        [
            ("See what explains the wrong predictions.", f"holdfast mine modes {shlex.quote(str(folder))}"),
            ("Train on easy images of the same prompts and measure again.", "holdfast mine remedy --help"),
        ],
        facts["warnings"],
    )
    note = DRAWN_WORLD if drawn else ""
    run_names = f"{folder.name}/mining"
    return write_page(front, sections, mining / "report", subject=folder.name, run_names=run_names, note=note)


TITLE = "Which images do many models get wrong together?"
_LIMITS = (
    "Results are about the half of the prompts on which nothing was chosen, and about images that the oracle accepts, "
    "unless a table says otherwise. Intervals are at the 95 % level and treat prompts, not images, as independent."
)


def _targets(mined: MinedSet) -> tuple[list[ModelVerdict], Figure]:
    """Return a verdict on each held-out target, and the chart of their accuracies."""
    facts, short = mined.facts, mined.short
    accuracy = mined.at("accuracy", half="report", subset="valid")
    lost = mined.at("drops", half="report", subset="valid")
    items, findings = [], []
    for model in facts["targets"]:
        cells = {row["set"]: row for row in accuracy[accuracy["model"] == model].to_dict("records")}
        drops = {row["against"]: row for row in lost[lost["model"] == model].to_dict("records")}
        items.append(_judged(short[model], cells, drops))
        findings.append(f"{short[model]} {percent(cells['pool']['estimate'])} → {percent(cells['hard']['estimate'])}")
    frame = accuracy[accuracy["role"] == "target"].assign(
        model=lambda frame: frame["model"].map(short), row=lambda frame: frame["set"].replace(SETS)
    )
    figure = dot_figure(
        "verdict",
        "Accuracy of the held-out targets on valid images",
        "; ".join(findings) + ".",
        frame,
        models=[short[model] for model in facts["targets"]],
        rows=[*SETS.values(), *([MATCHED] if MATCHED in set(frame["set"]) else [])],
        axis="accuracy",
        domain=(0, 1),
        note="The control has the category and the kind of nuisance of each hard image, but too few surrogates fail "
        "it.",
    )
    return items, figure


def verdict(mined: MinedSet) -> Section:
    """Return the accuracy of each held-out target on the pool, the control and the hard set."""
    facts = mined.facts
    accuracy = mined.at("accuracy", half="report", subset="valid")
    section = Section("accuracies", "How hard the hard set is")
    hard = accuracy[(accuracy["set"] == "hard") & (accuracy["model"] == facts["targets"][0])].iloc[0]
    section.lead = [
        f"On {plural(int(hard['n']), 'valid image')} of {plural(int(hard['prompts']), mined.words('prompt'))} that "
        f"{facts['choice']['words']} surrogates get wrong, against the unmined pool. The targets took no part in "
        "choosing them."
    ]
    section.parts = _tables(mined)
    return section


def _judged(name: str, cells: dict[str, Any], drops: dict[str, Any]) -> ModelVerdict:
    """Return the verdict on a model that its intervals support, with the numbers."""
    hard = cells["hard"]
    losses = []
    for key, what in (("pool", "than on the unmined pool"), ("control", "than on the matched control")):
        row = drops.get(key)
        if row and row["estimate"] == row["estimate"]:
            losses.append(f"{points(row['estimate'])} lower ({span(row['low'], row['high'])}) {what}")
            if key == "control" and MATCHED in cells:
                losses[-1] += f" (on the {cells[MATCHED]['n']:,} that have one)"
    harder = [bool(drops.get(key, {}).get("low", 0) > 0) for key in ("pool", "control")]
    word, sign = (
        ("Harder than the pool and the control", "▼") if all(harder)
        else ("Harder than the pool", "▽") if harder[0]
        else ("Not shown to be harder", "○")
    )  # fmt: skip
    sentence = f"Right on {estimate(hard['estimate'], hard['low'], hard['high'])} of {hard['n']:,} hard images"
    return ModelVerdict(name, word, sign, sentence + (": " + ", and ".join(losses) if losses else "") + ".")


def _tables(mined: MinedSet) -> list[Any]:
    short = mined.short
    parts = []
    for name, caption, kind in (
        ("accuracy", "Accuracy by set", "percent"),
        ("drops", "Points lost on the hard set", "points"),
    ):
        frame = mined.at(name, half="report").assign(
            model=lambda frame: frame["model"].map(short), subset=lambda frame: frame["subset"].map(SUBSETS)
        )
        key = "set" if name == "accuracy" else "against"
        columns = [
            *plain("text", model="Model", role="Role"),
            Column(key, "Set" if key == "set" else "Against", show=lambda value: SETS.get(value, value)),
            Column("subset", "Images"),
            Column("estimate", "Accuracy" if key == "set" else "Lost", kind, "low", "high"),  # type: ignore[arg-type]
        ]
        columns += [*plain("integer", n="n", prompts=mined.words("Prompts"))] if key == "set" else []
        frame = frame.sort_values(["role", "model", "subset"], ascending=[False, True, True], kind="stable")
        note = "Surrogates are wrong on the hard set because it was chosen so; their rows measure nothing."
        parts.append(Table(name, caption, frame, columns, note, folded=True))
    return parts


_HALVES = (
    "Prompts fall into two halves by their hash; all images of a prompt are in one half. On one half k and m were "
    "chosen, the other is what results are about."
)


def honesty(mined: MinedSet) -> Section:
    """Return how the set was chosen, and how many of its labels are right."""
    facts = mined.facts
    section = Section("selection", "How far the selection can be believed")
    validity = mined.tables["validity"]
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
    title = "Share of images that the oracle accepts, by set and by how many surrogates fail"
    shares = [f"{name} {percent(by_set[name]['estimate'])}" for name in validity["set"] if by_set[name]["n"]]
    frame = validity[validity["n"] > 0].assign(model="accepted by the oracle", row=validity["set"])
    section.parts = [
        dot_figure("validity", title, "; ".join(shares), frame, axis="accepted", domain=(0, 1)),
        Table("validity", "Label validity", validity, _share_columns(mined, "Set", "set", "Accepted"), folded=True),
        Heading("How k and m were chosen"),
        Text([mined.words(_HALVES), *facts["choice"]["rule"]]),
        *_choice_tables(mined),
        Heading("The matched control"),
        Text([_control_text(mined)]),
    ]
    return section


def _share(row: dict[Any, Any]) -> str:
    share = f"{estimate(row['estimate'], row['low'], row['high'])} of {plural(row['n'], 'image')}"
    return share if row["n"] else "none"


def _share_columns(mined: MinedSet, title: str, key: str, what: str) -> list[Column]:
    return [
        Column(key, title),
        *plain("integer", n="Images", prompts=mined.words("Prompts")),
        Column("estimate", what, "percent", "low", "high"),
    ]


def _choice_tables(mined: MinedSet) -> list[Any]:
    chosen = [
        Column("k", "k", "integer"),
        *plain("percent", estimate="Accuracy of a left-out surrogate", fitted="Fitted"),
        Column("images", "Valid images left, mean", "number"),
    ]
    counted = [*plain("integer", m="m", images="Images", valid="Valid")]
    by_m = mined.tables["by_m"].assign(model=lambda frame: frame["model"].map(mined.short))
    by_target = [Column("m", "m", "integer"), Column("model", "Target"), *_share_columns(mined, "", "", "Accuracy")[1:]]
    return [
        Table("choice_k", "On the choosing half, by number of surrogates", mined.tables["choice_k"], chosen),
        Table("choice_m", "On the choosing half, by m", mined.tables["choice_m"], counted),
        Table("by_m", "Valid images of the reporting half, had m been another", by_m, by_target, folded=True),
    ]


def _control_text(mined: MinedSet) -> str:
    frame = mined.tables["control"]
    hard = {"valid": mined.facts["hard_valid"], "all": mined.facts["hard"]}
    texts = []
    for subset in ("valid", "all"):
        part = frame[frame["subset"] == subset]
        total = int(part["images"].sum())
        by_one = int(part.loc[part["why"] == "one surrogate fails", "images"].sum())
        same = int(part.loc[part["same_nuisance"], "images"].sum())
        texts.append(
            f"{total:,} of {plural(hard[subset], 'hard image')} ({SUBSETS[subset]}) have a control. One surrogate "
            f"fails on {by_one:,} of the controls, several on the others; {same:,} have the nuisance of their hard "
            "image, the others one of the same kind"
        )
    return (
        "A control has the category, the kind of nuisance and the half of its hard image, is used once, and is failed "
        f"by at least one surrogate: {'; '.join(texts)}."
    )


def _run(mined: MinedSet) -> Section:
    facts = mined.facts
    models = mined.tables["models"]
    columns = [
        *plain("text", model="Model", role="Role"),
        Column("used", "Used", show=yes_no),
        Column("pool_accuracy", "Accuracy on the pool", "percent"),
        *plain("text", family="Family", data="Trained on", objective="By"),
    ]
    section = Section("run", "What was run")
    section.lead = [
        f"The pool {facts['pool']}; wrong means wrong "
        + ("over all outputs of a model." if facts["outcome"] == "full" else "among the categories."),
        f"Oracle: {listing([f'{heading}: {text}' for heading, text in facts['oracle_card']], 8)}",
    ]
    rest = {key: value for key, value in facts.items() if key not in _SHOWN_ABOVE}
    section.parts = [
        Table("models", "Models", models, columns),
        Code("Command", str(facts["environment"].get("command", ""))),
        Code("Summary", json.dumps(rest, indent=1, ensure_ascii=False)),
    ]
    return section
