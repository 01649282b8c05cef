"""The page of ``holdfast audit watch``: what changed since the first run, and new images against tested ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import number, percent, span
from holdfast.reports.page import charts
from holdfast.reports.page.parts import Front, Notice, Section, answer, first_figure
from holdfast.reports.page.tables import CONDITION, Column, Table
from holdfast.reports.page.words import condition_label, page_facts, plural
from holdfast.reports.page.writer import write_page

SHOWN = 6  # runs in the chart, the latest ones
LIMITS = (
    "Every run is compared with the first one. The n-th comparison may err with a chance of 5 % · 6/(π n)², "
    "shared by the conditions, and all of these add up to 5 %: the chance of any false “worse” is at most 5 % "
    "however long the series gets; all upper ends hold together in 95 %, and so do all lower ones. Images without "
    "labels cannot show that a model is wrong: “within” says that its features, its confidence and its answers under "
    "mild changes are on average like those on tested images, “outside” that one of them is not."
)
MEASURES = {
    "distance": "how often a new image is farther from tested images than a tested one is",
    "confidence": "mean confidence of the answers",
    "turned": "share of answers that turn under mild noise, blur, light and contrast",
}


def write_series_page(entries: Sequence[Mapping[str, Any]], folder: Path, missing: Sequence[int]) -> Path:
    """Write ``index.html`` with its tables and figures into the folder; return its path."""
    runs, checks = ([entry for entry in entries if entry["kind"] == kind] for kind in ("run", "photos"))
    listed_rows = [
        {"number": f"{entry['number']}", "time": entry["time"][:16].replace("T", " ") + " UTC", "says": sentence(entry),
         "notes": "; ".join(entry["notes"])}
        for entry in reversed(entries)
    ]  # fmt: skip
    columns = [Column("number", "Entry"), Column("time", "Added"), Column("says", "Says"), Column("notes", "Notes")]
    listed = Section(
        "entries", "The series", parts=[Table("entries", "All entries", pd.DataFrame(listed_rows), columns)]
    )
    sections = [_runs(runs, missing), *([_checks(checks)] if checks else []), listed]
    facts = page_facts((len(runs), "run"), (len(checks), "check of new images", "checks of new images"))
    said = answer(sentence(runs[-1]), sentence(checks[-1]) if checks else "")
    front = Front("What changed over time?", said, facts, LIMITS, chart=first_figure(sections[0].parts))
    names = ", ".join(Path(entry["run"]).name for entry in runs[-SHOWN:])
    return write_page(front, sections, folder, subject=f"{runs[0]['model']} and its successors", run_names=names)


def sentence(entry: Mapping[str, Any]) -> str:
    """Return what an entry says, in one sentence or two."""
    if entry["kind"] == "photos":
        return _place_sentence(entry)
    name = f"Run {entry['number']} ({entry['model']} on {entry['photos']} images of {entry['dataset']})"
    if not entry["changes"]:
        return f"{name} is the first of the series: later runs are compared with it."
    parts = [_listed(word, [r for r in entry["changes"] if r["change"] == word]) for word in ("worse", "better")]
    nothing = f"no change shown under {plural(sum(row['n'] > 0 for row in entry['changes']), 'condition')}"
    how = "the same images" if entry["paired"] else "other images"
    return f"{name}, {how}: {'; '.join(part for part in parts if part) or nothing}."


def _listed(word: str, rows: Sequence[Mapping[str, Any]]) -> str:
    ordered = sorted(rows, key=lambda row: -abs(row["difference"]))
    named = [f"{condition_label(row['condition'])} {_points(row['difference'], row['low'], row['high'])}"
             for row in ordered[:4]]  # fmt: skip
    more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
    return f"{word} under {', '.join(named)}{more}" if rows else ""


def _points(value: float, low: float, high: float) -> str:
    return f"by {number(100 * value, 1, sign=True)} points ({span(low, high, sign=True)})"


def _place_sentence(entry: Mapping[str, Any]) -> str:
    start, what = f"{entry['photos']} images of {entry['data']}", f"what run {entry['against']} tested"
    if entry["answer"] == "within":
        return f"{start} lie within {what}."
    if not entry["drifts"]:
        return f"{start}: cannot say whether they lie within {what}."
    far = max(entry["drifts"], key=lambda drift: drift["by"] if drift["measure"] == "distance" else abs(drift["by"]))
    tested = f"{percent(far['tested'], 0)} of tested ones" if far["measure"] != "distance" else "50 % if they are alike"
    much = f"Farthest off: {MEASURES[far['measure']]}, {percent(far['new'], 0)} against {tested}"
    verdict = f"lie outside {what}" if entry["answer"] == "outside" else f"may lie within {what} or not: cannot say"
    return f"{start} {verdict}. {much}, {_points(far['by'], far['low'], far['high'])}."


def _runs(runs: Sequence[Mapping[str, Any]], missing: Sequence[int]) -> Section:
    section = Section("runs", "Runs against the first", lead=[sentence(runs[-1])])
    section.parts += [
        Notice(f"The folder of run {number} is gone; its results stay on this page.") for number in missing
    ]
    frame = pd.DataFrame([{"run": f"{entry['number']}", **row} for entry in runs for row in entry["changes"]])
    if frame.empty:
        columns = [CONDITION, Column("accuracy", "Accuracy", "percent", "low", "high"), Column("n", "Rows", "integer")]
        section.parts.append(Table("first", "Accuracy of the first run", pd.DataFrame(runs[0]["accuracy"]), columns))
        return section
    shown = list(dict.fromkeys(frame["run"]))[-SHOWN:]
    tidy = frame[frame["run"].isin(shown) & (frame["n"] > 0)].astype({"difference": float, "low": float, "high": float})
    tidy = tidy.assign(
        model="run " + tidy["run"], row=tidy["condition"].map(condition_label), estimate=tidy["difference"],
        solid=tidy["change"] != "no change shown",
    )  # fmt: skip
    columns = [
        Column("run", "Run"), CONDITION, Column("change", "Change"),
        Column("difference", "Difference", "points", "low", "high"), Column("old", "First run", "percent"),
        Column("new", "This run", "percent"), Column("n", "Images", "integer"),
    ]  # fmt: skip
    section.parts += [
        charts.dot_figure(
            "changes", "Accuracy gained or lost since the first run, with intervals that hold over the whole series",
            sentence(runs[-1]), tidy, axis="points since the first run", zero=True,
            note=f"Filled: a change is shown. Hollow: it may be chance. The latest {plural(len(shown), 'run')}.",
        ),
        Table("changes", "Every comparison", frame.iloc[::-1], columns, folded=True),
    ]  # fmt: skip
    return section


def _checks(checks: Sequence[Mapping[str, Any]]) -> Section:
    section = Section("photos", "New images without labels", lead=[sentence(checks[-1])])
    rows = [
        drift | {"check": f"{entry['number']}", "data": entry["data"], "answer": entry["answer"],
                 "measure": MEASURES[drift["measure"]]}
        for entry in reversed(checks) for drift in entry["drifts"]
    ]  # fmt: skip
    columns = [
        Column("check", "Entry"), Column("data", "Images"), Column("answer", "Answer"), Column("measure", "Measure"),
        Column("tested", "Tested", "percent"), Column("new", "New", "percent"),
        Column("by", "By", "points", "low", "high", hint="one-sided bounds of 3 % each"),
    ]  # fmt: skip
    if rows:
        section.parts.append(Table("photos", "How far new images are from tested ones", pd.DataFrame(rows), columns))
    return section
