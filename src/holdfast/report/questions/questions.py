"""Section: what models answer when they are asked, read strictly and leniently, by the place of the truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from holdfast.core.conditions import condition_words
from holdfast.core.schema import ANSWERS
from holdfast.report.page import charts
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import Heading, Notice, Part, Section, ShownFigure, ShownTable, Text
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import estimate, listing, percent, plural, points, short_names
from holdfast.report.questions.gallery import gallery
from holdfast.report.static.gallery import Pictures
from holdfast.report.static.rows import Rows
from holdfast.stats.hard.questions import COLUMNS, QUESTION, answered, examples, questions
from holdfast.store import Parts, Run

if TYPE_CHECKING:
    import pandas as pd

TITLE = "What the models answer"
ASKED = ds.field("task") == QUESTION
KINDS = {"two_way": "two-way", "full_list": "full list"}
PLACES = {"first_place": "truth in the first half", "second_place": "truth in the second half"}
SAID = 15
"""Rows of the table of refusals and unmatched answers on the page."""


@dataclass(frozen=True)
class Asked:
    """The questions of a report: ``frame`` has the columns of stats.questions.answered."""

    runs: Sequence[Run]
    frame: pd.DataFrame
    title: str = TITLE

    @cached_property
    def table(self) -> pd.DataFrame:
        """What came out, per model and kind, the best first."""
        found = questions(self.frame)
        order = {kind: place for place, kind in enumerate(KINDS)}
        found = found.assign(_order=found["kind"].map(order))
        return found.sort_values(["_order", "strict", "lenient"], ascending=[True, False, False]).drop(columns="_order")

    @cached_property
    def short(self) -> dict[str, str]:
        """Model → a name that fits beside a chart."""
        return short_names([str(name) for name in dict.fromkeys(self.table["model"])])

    def facts(self) -> list[tuple[str, str]]:
        """The numbers at the top of a page that is about questions only."""
        good = self.frame[self.frame["status"] == "ok"]
        numbers = (
            (self.frame["model"].nunique(), "model", "models"),
            (good["source_id"].nunique(), "photo", "photos"),
            (self.frame["label"].nunique(), "class", "classes"),
            (self.frame["kind"].nunique(), "kind of question", "kinds of question"),
            (len(good), "answer", "answers"),
        )
        return [(f"{count:,}", one if count == 1 else many) for count, one, many in numbers]

    def limits(self) -> str:
        """What right means on such a page."""
        return (
            "Right means that the answer names the true class and no other option; what names none, or refuses, is "
            "wrong. Intervals are at the 95 % level and treat photos, not answers, as independent. "
            f"What {plural(self.frame['source_id'].nunique(), 'photo')} cannot show, this report does not claim."
        )


def asked(rows: Rows) -> Asked | None:
    """The questions among the rows, None where there are none."""
    if not rows.dataset.count_rows(filter=ASKED):
        return None
    runs = [run for run in rows.runs if run.predictions.dataset().count_rows(filter=ASKED)]
    told = pa.concat_tables([Parts(run.path / "details" / "answers", ANSWERS).rows() for run in runs])
    frame = answered(rows.dataset.to_table(columns=COLUMNS, filter=ASKED), told)
    return Asked(runs, frame)


def question_section(found: Asked, pictures: Pictures | None) -> Section:
    """Accuracies, position bias, refusals, and some questions with everybody's answers."""
    section = Section("questions", "Questions")
    if not (found.frame["status"] == "ok").any():
        section.parts = [Notice("No question was answered; the reasons are below."), *_errors(found)]
        return section
    section.lead = [*_findings(found), _how(found)]
    section.parts = [
        ShownFigure(_accuracy_chart(found)),
        ShownTable(_accuracy_table(found)),
        *_by_condition(found),
        *_positions(found),
        *_unread(found),
        *gallery(found.frame, found.runs, found.short, pictures),
        *_errors(found),
    ]
    return section


def _findings(found: Asked) -> list[str]:
    texts = []
    for kind, words in KINDS.items():
        table = found.table[(found.table["kind"] == kind) & (found.table["n"] > 0)]
        if table.empty:
            continue
        shown = table if len(table) <= 4 else table.iloc[[0, 1, -1]]
        said = [
            f"{found.short[row['model']]} {estimate(row['strict'], row['strict_low'], row['strict_high'])}"
            for row in shown.to_dict("records")
        ]
        more = f" (the first two and the last of {len(table)})" if len(table) > len(shown) else ""
        chance = percent(1 / float(table["choices"].iloc[0]))
        texts.append(f"Right on {words} questions, read strictly: {listing(said)}{more}. A guess is right in {chance}.")
    pulled = found.table[(found.table["position_bias_low"] > 0) | (found.table["position_bias_high"] < 0)]
    return texts + [
        f"{found.short[row['model']]} leans on the place of an option ({KINDS[row['kind']]}): it is right in "
        f"{percent(row['first_place'])} where the truth stands in the first half and in "
        f"{percent(row['second_place'])} where it stands in the second."
        for row in pulled.to_dict("records")[:3]
    ]


def _how(found: Asked) -> str:
    first = found.frame.sort_values("kind", ascending=False).iloc[
        0
    ]  # a two-way one: it says where the wrong class is from
    told = json.loads(str(first["parameters"]))
    distractor = told.get("distractor")
    text = f"The question reads “{told.get('template', '')}”"
    if "two_way" in set(found.frame["kind"]):
        who = "ImageNet-D's question files" if distractor == "questions" else distractor
        pairs = found.frame[found.frame["kind"] == "two_way"]
        both = pairs.groupby(["model", "sample_id"])["protocol"].nunique().min() == 2
        order = "each is asked both ways round" if both else "which of them comes first is drawn by seed"
        text += f" Two-way questions offer the truth and one wrong class, chosen by {who}; {order}."
    if "full_list" in set(found.frame["kind"]):
        text += " Full-list questions offer every class, in an order drawn by seed."
    return text + " Every answer counts: refusals and answers that name no option are wrong."


def _accuracy_chart(found: Asked) -> Figure:
    import pandas as pd

    rows, tidy = [], []
    for kind, words in KINDS.items():
        if kind not in set(found.table["kind"]):
            continue
        for name in ("strict", "lenient"):
            rows.append(f"{words}, {name}")
            tidy += [
                {"model": found.short[row["model"]], "row": rows[-1], "estimate": row[name]}
                | {"low": row[f"{name}_low"], "high": row[f"{name}_high"]}
                for row in found.table[found.table["kind"] == kind].to_dict("records")
            ]
    frame, models = pd.DataFrame(tidy), list(found.short.values())
    best = found.table.iloc[0]
    return Figure(
        "question_accuracy",
        "Accuracy on questions, read strictly and leniently, with 95 % intervals",
        f"The highest is {found.short[best['model']]} with {percent(best['strict'])} ({KINDS[best['kind']]}, strict).",
        lambda width: charts.dots(frame, width, models=models, rows=rows, title="accuracy", domain=(0, 1)),
    )


def _accuracy_table(found: Asked) -> Table:
    columns = [
        Column("model", "Model", show=lambda name: found.short.get(name, name)),
        Column("kind", "Question", show=lambda kind: KINDS.get(kind, kind)),
        Column("n", "Answers", "integer"),
        Column("strict", "Strict", "percent", "strict_low", "strict_high"),
        Column("lenient", "Lenient", "percent", "lenient_low", "lenient_high"),
        Column(
            "strict_corrected", "Strict beyond chance", "percent", "strict_corrected_low", "strict_corrected_high",
            hint="(accuracy − chance) / (1 − chance): 0 for a guess, 100 for always right",
        ),
        Column("refusal", "Refused", "percent", "refusal_low", "refusal_high"),
        Column("unmatched", "Unmatched", "percent", "unmatched_low", "unmatched_high"),
        *([Column("errors", "No answer", "integer")] if found.table["errors"].any() else []),
    ]  # fmt: skip
    note = (
        "Strict: the answer is one of the options and nothing else. Lenient: exactly one of them, or a synonym, occurs "
        "in it. A classifier is scored on the same options: of a full list, strict means its best output of all, "
        "lenient its best among the options. Questions without any answer (an error) are counted apart."
    )
    return Table("questions", "What came out, by model and kind of question", found.table, columns, note)


def _by_condition(found: Asked) -> list[Part]:
    if found.frame["condition"].nunique() < 2:
        return []
    table = questions(found.frame, by=["condition"])
    columns = [
        Column("condition", "Condition", show=condition_words),
        Column("model", "Model", show=lambda name: found.short.get(name, name)),
        Column("kind", "Question", show=lambda kind: KINDS.get(kind, kind)),
        Column("n", "Answers", "integer"),
        Column("strict", "Strict", "percent", "strict_low", "strict_high"),
        Column("lenient", "Lenient", "percent", "lenient_low", "lenient_high"),
    ]
    return [ShownTable(Table("questions_by_condition", "The same by condition", table, columns, folded=True))]


def _positions(found: Asked) -> list[Part]:
    import pandas as pd

    # One kind of question a chart; the table has both.
    kind = next(one for one in KINDS if one in set(found.table["kind"]))
    drawn = found.table[(found.table["n"] > 0) & (found.table["kind"] == kind)].to_dict("records")
    rows = [found.short[row["model"]] for row in drawn]
    tidy = [
        {"model": words, "row": found.short[row["model"]], "estimate": row[name]}
        | {"low": row[f"{name}_low"], "high": row[f"{name}_high"]}
        for row in drawn
        for name, words in PLACES.items()
    ]
    frame = pd.DataFrame(tidy)
    finding = "No model was asked with the truth in both halves."
    known = found.table[found.table["position_bias"].notna()].sort_values("position_bias", key=abs, ascending=False)
    if len(known):
        most = known.iloc[0]
        difference = points(most["position_bias"])
        finding = (
            f"The largest difference is that of {found.short[most['model']]} ({KINDS[most['kind']]}): {difference}."
        )
    figure = Figure(
        "question_positions",
        f"Accuracy (lenient) on {KINDS[kind]} questions by the place of the truth among the options",
        finding,
        lambda width: charts.dots(
            frame, width, models=list(PLACES.values()), rows=rows, title="accuracy", domain=(0, 1)
        ),
        "Two marks far apart: the place of an option moves the answer. Of two options, the first is the first half.",
    )
    columns = [
        Column("model", "Model", show=lambda name: found.short.get(name, name)),
        Column("kind", "Question", show=lambda kind: KINDS.get(kind, kind)),
        Column("first_place", "Truth in first half", "percent", "first_place_low", "first_place_high"),
        Column("second_place", "in second half", "percent", "second_place_low", "second_place_high"),
        Column("position_bias", "Position bias", "points", "position_bias_low", "position_bias_high",
               hint="the difference: 100 for who always says the first of two"),
        Column("says_first", "Names the first option", "percent", "says_first_low", "says_first_high",
               hint="of the answers that name an option"),
    ]  # fmt: skip
    table = Table("question_positions", "Position bias", found.table, columns, "Classifiers see no order.")
    return [Heading("Does the place of an option matter?"), Text([finding]), ShownFigure(figure), ShownTable(table)]


def _unread(found: Asked) -> list[Part]:
    import pandas as pd

    said = [
        examples(found.frame, column, 200).assign(what=words)
        for column, words in (("refusal", "refusal"), ("unmatched", "names no option, or several"))
    ]
    frame = pd.concat(said, ignore_index=True)
    parts: list[Part] = [Heading("Refusals and answers that name no option")]
    if frame.empty:
        return [*parts, Text(["There are none."])]
    frame["raw_text"] = [text if text.strip() else "(nothing)" for text in frame["raw_text"]]
    frame = frame.sort_values(["n", "model"], ascending=[False, True])
    first = frame.iloc[0]
    text = (
        f"{plural(int(frame['n'].sum()), 'answer')} in words count as wrong because they name no option, or several. "
        f"The most common, {first['n']:,} times: “{_cut(first['raw_text'], 120)}” ({found.short[first['model']]})."
    )
    columns = [
        Column("raw_text", "Answer", show=lambda words: _cut(words, 240)),
        Column("what", "Read as"),
        Column("model", "Model", show=lambda name: found.short.get(name, name)),
        Column("kind", "Question", show=lambda kind: KINDS.get(kind, kind)),
        Column("n", "Times", "integer"),
        Column("example", "For example"),
    ]
    table = Table("unmatched_answers", "The most common of them", frame, columns, shown=SAID)
    return [*parts, Text([text]), ShownTable(table)]


def _errors(found: Asked) -> list[Part]:
    failed = found.frame[found.frame["status"] != "ok"]
    if failed.empty:
        return []
    grouped = failed.assign(error=failed["error"].fillna("")).groupby(["error", "model", "kind"], sort=False)
    frame = (
        grouped.agg(n=("row_id", "size"), example=("sample_id", "min")).reset_index().sort_values("n", ascending=False)
    )
    columns = [
        Column("error", "Reason"),
        Column("model", "Model"),
        Column("kind", "Question", show=lambda kind: KINDS.get(kind, kind)),
        Column("n", "Questions", "integer"),
        Column("example", "For example"),
    ]
    text = (
        f"{len(failed):,} of {len(found.frame):,} questions have no answer; they count in no statistic. holdfast ask "
        "with --retry-errors asks them again."
    )
    return [
        Heading("Questions without an answer"),
        Text([text]),
        ShownTable(Table("question_errors", "By reason", frame, columns)),
    ]


def _cut(text: Any, length: int) -> str:
    plain = " ".join(str(text).split())
    return plain if len(plain) <= length else f"{plain[: length - 1]}…"
