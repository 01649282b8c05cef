"""Section on questions to models: accuracy read strictly and leniently, position bias, refusals, examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow.dataset as ds

from holdfast.core.files import stored_object
from holdfast.core.lazy import pd
from holdfast.core.names import condition_words
from holdfast.core.numbers import alike, estimate, percent, points
from holdfast.core.schema import ANSWERS
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import charts
from holdfast.reports.page import parts as page
from holdfast.reports.page.evidence import AS_PUBLISHED, Analysis, ReportRows, details, recorded_rounds
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.sections import ReportEvidence, ReportSection, of_task
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, plain, ranged, with_intervals
from holdfast.reports.page.words import listing, page_facts, plural, short_names
from holdfast.stats.effects.families import UNKNOWN, simultaneous
from holdfast.stats.hard.questions import COLUMNS, QUESTION, answered, examples, question_drops, questions
from holdfast.store import Run

TITLE = "How often do the models answer right?"
ASKED = ds.field("task") == QUESTION
KINDS = {"two_way": "two-way", "full_list": "full list"}
PLACES = {"first_place": "truth in the first half", "second_place": "truth in the second half"}
FEW_UNREAD = 0.05  # Share of answers without an option from which on the first screen says so
SAID = 15  # Rows of the table of refusals and unmatched answers on the page
IMAGES_SHOWN, LONGEST_ANSWER = 6, 90  # Images of the gallery, and characters of an answer in it


_KIND = Column("kind", "Question", show=lambda kind: KINDS.get(kind, kind))


@dataclass(frozen=True)
class Questions:
    """The questions of a report: ``frame`` has the columns of ``stats.hard.questions.answered``."""

    runs: Sequence[Run]
    frame: pd.DataFrame
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # name → source_id → group

    @cached_property
    def table(self) -> pd.DataFrame:
        """Accuracies and rates per model and kind of question, the best model first."""
        table = questions(self.frame, rounds=self.rounds)
        table["order"] = table["kind"].map({kind: place for place, kind in enumerate(KINDS)})
        return table.sort_values(["order", "strict", "lenient"], ascending=[True, False, False]).drop(columns="order")

    @cached_property
    def rounds(self) -> dict[str, list[list[str]]]:
        """The images of each round, by model, if it stopped as soon as it was sure."""
        return recorded_rounds(self.runs)

    @property
    def early(self) -> str:
        """What a reader must know of intervals of models that were asked in rounds; empty if none was."""
        whose = "" if set(self.table["model"]) <= set(self.rounds) else f" of {listing(list(self.rounds), 6)}"
        words = f"Asked in rounds: intervals{whose} hold whenever one stops, and are of means over images. "
        return words if self.rounds else ""

    @cached_property
    def short(self) -> dict[str, str]:
        """Names of models that fit next to a chart."""
        return short_names([str(name) for name in dict.fromkeys(self.table["model"])])

    def facts(self) -> list[tuple[str, str]]:
        """Return the numbers at the top of a page that is about questions only."""
        good = self.frame[self.frame["status"] == "ok"]
        return page_facts(
            (self.frame["model"].nunique(), "model"),
            (good["source_id"].nunique(), "image"),
            (self.frame["label"].nunique(), "class", "classes"),
            (self.frame["kind"].nunique(), "kind of question", "kinds of question"),
            (len(good), "answer"),
        )

    def limits(self) -> str:
        """Return what right means on such a page."""
        return (
            "Right means that the answer names the true class and no other option; what names none, or refuses, is "
            f"wrong. Intervals are at the 95 % level and treat images, not answers, as independent. {self.early}"
            f"What {plural(self.frame['source_id'].nunique(), 'image')} cannot show, this report does not claim."
        )


def read_questions(rows: ReportRows, analysis: Analysis = AS_PUBLISHED) -> Questions:
    """Return the questions among the rows; ``analysis`` has groups to show them by."""
    runs = rows.runs_with(ASKED)
    frame = answered(rows.photos(COLUMNS, ASKED), details(runs, "answers", ANSWERS))
    return Questions(runs, frame, attributes=analysis.attributes)


def question_section(asked: Questions, pictures: page.RunPictures | None) -> page.Section:
    """Return accuracies, position bias, refusals, and some questions with every model's answer."""
    section = page.Section("questions", "Questions")
    if not (asked.frame["status"] == "ok").any():
        section.parts = [page.Notice("No question was answered; the reasons are below."), *_errors(asked)]
        return section
    section.lead = [*_findings(asked), *([asked.early] if asked.early else []), _how(asked)]
    section.parts = [
        _accuracy_chart(asked),
        _accuracy_table(asked),
        *_by_condition(asked),
        *_by_attribute(asked),
        *_positions(asked),
        *_unread(asked),
        *_gallery(asked, pictures),
        *_errors(asked),
    ]
    return section


def _findings(asked: Questions) -> list[str]:
    texts = []
    for kind, words in KINDS.items():
        table = asked.table[(asked.table["kind"] == kind) & (asked.table["n"] > 0)]
        if table.empty:
            continue
        shown = table if len(table) <= 4 else table.iloc[[0, 1, -1]]
        said = [
            f"{asked.short[row['model']]} {estimate(row['strict'], row['strict_low'], row['strict_high'])}"
            for row in shown.to_dict("records")
        ]
        more = f" (the first two and the last of {len(table)})" if len(table) > len(shown) else ""
        chance = percent(1 / float(table["choices"].iloc[0]))
        texts.append(f"Right on {words} questions, read strictly: {listing(said)}{more}. A guess is right in {chance}.")
    pulled = asked.table[(asked.table["position_bias_low"] > 0) | (asked.table["position_bias_high"] < 0)]
    return texts + [
        f"{asked.short[row['model']]} prefers options in one place ({KINDS[row['kind']]}): it is right in "
        f"{percent(row['first_place'])} if the truth is in the first half and in "
        f"{percent(row['second_place'])} where it is in the second."
        for row in pulled.to_dict("records")[:3]
    ]


def _how(asked: Questions) -> str:
    # Two-way questions come first: they say where the wrong class is from.
    first = asked.frame.sort_values("kind", ascending=False).iloc[0]
    parameters = stored_object(str(first["parameters"]), "parameters")
    distractor = parameters.get("distractor")
    text = f"The question reads “{parameters.get('template', '')}”"
    if "two_way" in set(asked.frame["kind"]):
        who = "ImageNet-D's question files" if distractor == "questions" else distractor
        pairs = asked.frame[asked.frame["kind"] == "two_way"]
        both = pairs.groupby(["model", "sample_id"])["protocol"].nunique().min() == 2
        order = "each is asked both ways round" if both else "which of them comes first is drawn by seed"
        text += f" Two-way questions offer the truth and one wrong class, chosen by {who}; {order}."
    if "full_list" in set(asked.frame["kind"]):
        text += " Full-list questions offer every class, in an order drawn by seed."
    return text + " Every answer counts: refusals and answers that name no option are wrong."


def _accuracy_chart(asked: Questions) -> Figure:
    rows, tidy = [], []
    for kind, words in KINDS.items():
        if kind not in set(asked.table["kind"]):
            continue
        for name in ("strict", "lenient"):
            rows.append(f"{words}, {name}")
            tidy += [
                {"model": asked.short[row["model"]], "row": rows[-1], "estimate": row[name]}
                | {"low": row[f"{name}_low"], "high": row[f"{name}_high"]}
                for row in asked.table[asked.table["kind"] == kind].to_dict("records")
            ]
    frame, order = pd.DataFrame(tidy), {"models": list(asked.short.values()), "rows": rows}
    best = asked.table.iloc[0]
    highest = f"{asked.short[best['model']]} with {percent(best['strict'])} ({KINDS[best['kind']]}, strict)"
    title = "Accuracy on questions, read strictly and leniently, with 95 % intervals"
    look: dict[str, Any] = {"axis": "accuracy", "domain": (0, 1), **order}
    return charts.dot_figure("question_accuracy", title, f"The highest is {highest}.", frame, **look)


def _accuracy_table(asked: Questions) -> Table:
    columns = [
        model_column(asked.short),
        _KIND,
        Column("n", "Answers", "integer"),
        *with_intervals("percent", strict="Strict", lenient="Lenient"),
        ranged("strict_corrected", "Strict beyond chance",
               hint="(accuracy − chance) / (1 − chance): 0 for a guess, 100 for always right"),
        *([ranged("pairs_right", "Right on both of a pair",
                  hint="two images of different classes, the same options: who says the same of both gets nothing")]
          if "pairs_right" in asked.table and asked.table["pairs_right"].notna().any() else []),
        *with_intervals("percent", refusal="Refused", unmatched="Unmatched"),
        *([Column("errors", "No answer", "integer")] if asked.table["errors"].any() else []),
    ]  # fmt: skip
    note = (
        "Strict: the answer is one of the options and nothing else. Lenient: exactly one of them, or a synonym, occurs "
        "in it. A classifier is scored on the same options: of a full list, strict means its best output of all, "
        "lenient its best among the options. Questions without any answer (an error) are counted apart."
    )
    return Table("questions", "What came out, by model and kind of question", asked.table, columns, note)


def _by_attribute(asked: Questions) -> list[page.Part]:
    """Return accuracies by each attribute that was asked for, the worst group first."""
    parts: list[page.Part] = []
    for name, values in asked.attributes.items():
        group = asked.frame["source_id"].astype(str).map(values).fillna(UNKNOWN)
        table = questions(asked.frame.assign(value=group), by=["value"], level=simultaneous(group.nunique()))
        columns = [
            Column("value", name), model_column(asked.short), _KIND,
            *with_intervals("percent", strict="Strict", lenient="Lenient"), *plain("integer", n="Answers"),
        ]  # fmt: skip
        key = "".join(letter if letter.isalnum() else "_" for letter in name)
        title = f"Answers by {name}, the worst first; intervals hold for all groups of a model together"
        parts.append(Table(f"questions_by_{key}", title, table.sort_values("strict", kind="stable"), columns))
    return parts


def _by_condition(asked: Questions) -> list[page.Part]:
    if asked.frame["condition"].nunique() < 2:
        return []
    table = questions(asked.frame, by=["condition"], rounds=asked.rounds)
    columns = [
        CONDITION,
        model_column(asked.short),
        _KIND,
        Column("n", "Answers", "integer"),
        *with_intervals("percent", strict="Strict", lenient="Lenient"),
    ]
    costs = question_drops(asked.frame[asked.frame["rendered"] | (asked.frame["condition"] == ORIGINAL)])
    if not asked.frame["rendered"].any() or costs.empty:
        return [Table("questions_by_condition", "The same by condition", table, columns, folded=True)]
    table = table.merge(costs.drop(columns=["n", "lenient"]), on=["model", "kind", "condition"], how="left")
    columns += [
        ranged("drop", "Drop", "points",
               hint="lenient, from the unchanged image to the condition, the same questions about the same images"),
        ranged("both", "Right on both",
               hint="questions answered rightly both about the unchanged image and under the condition"),
    ]  # fmt: skip
    worst = costs.sort_values("drop", ascending=False).iloc[0]
    largest = worst["drop"]
    if largest <= 0 or alike(largest, 0):
        finding = "No condition lowers the accuracy of any model."
    else:
        finding = (
            f"The largest drop is that of {asked.short[worst['model']]} under {condition_words(worst['condition'])} "
            f"({KINDS[worst['kind']]}): {points(worst['drop'])} "
            f"({points(worst['drop_low'])} to {points(worst['drop_high'])})."
        )
    return [
        page.Heading("The same images under conditions"),
        page.Text([finding]),
        Table("questions_by_condition", "Answers by condition", table, columns),
    ]


def _positions(asked: Questions) -> list[page.Part]:
    # The chart shows one kind of question; the table has both.
    kind = next(kind for kind in KINDS if kind in set(asked.table["kind"]))
    drawn = asked.table[(asked.table["n"] > 0) & (asked.table["kind"] == kind)].to_dict("records")
    tidy = [
        {"model": words, "row": asked.short[row["model"]], "estimate": row[name]}
        | {"low": row[f"{name}_low"], "high": row[f"{name}_high"]}
        for row in drawn
        for name, words in PLACES.items()
    ]
    finding = "No model was asked with the truth in both halves."
    known = asked.table[asked.table["position_bias"].notna()].sort_values("position_bias", key=abs, ascending=False)
    if len(known):
        most = known.iloc[0]
        whose = f"{asked.short[most['model']]} ({KINDS[most['kind']]})"
        finding = f"The largest difference is that of {whose}: {points(most['position_bias'])}."
    title = f"Accuracy (lenient) on {KINDS[kind]} questions by the place of the truth among the options"
    note = "Two marks far apart: the place of an option moves the answer. Of two options, the first is the first half."
    look: dict[str, Any] = {"axis": "accuracy", "domain": (0, 1), "note": note}
    figure = charts.dot_figure("question_positions", title, finding, pd.DataFrame(tidy), **look)
    columns = [
        model_column(asked.short),
        _KIND,
        *with_intervals("percent", first_place="Truth in first half", second_place="in second half"),
        ranged(
            "position_bias", "Position bias", "points", hint="the difference: 100 for who always says the first of two"
        ),
        ranged("says_first", "Names the first option", hint="of the answers that name an option"),
    ]
    table = Table("question_positions", "Position bias", asked.table, columns, "Classifiers see no order.")
    return [page.Heading("Does the place of an option matter?"), page.Text([finding]), figure, table]


def _unread(asked: Questions) -> list[page.Part]:
    said = [
        examples(asked.frame, column, 200).assign(what=words)
        for column, words in (("refusal", "refusal"), ("unmatched", "names no option, or several"))
    ]
    frame = pd.concat(said, ignore_index=True)
    parts: list[page.Part] = [page.Heading("Refusals and answers that name no option")]
    if frame.empty:
        return [*parts, page.Text(["There are none."])]
    frame["raw_text"] = [text if text.strip() else "(nothing)" for text in frame["raw_text"]]
    frame = frame.sort_values(["n", "model"], ascending=[False, True])
    first = frame.iloc[0]
    text = (
        f"{plural(int(frame['n'].sum()), 'answer')} in words count as wrong because they name no option, or several. "
        f"The most common, {first['n']:,} times: “{_cut(first['raw_text'], 120)}” ({asked.short[first['model']]})."
    )
    columns = [
        Column("raw_text", "Answer", show=lambda words: _cut(words, 240)),
        Column("what", "Read as"),
        model_column(asked.short),
        _KIND,
        Column("n", "Times", "integer"),
        Column("example", "For example"),
    ]
    table = Table("unmatched_answers", "The most common of them", frame, columns, shown=SAID)
    return [*parts, page.Text([text]), table]


def _errors(asked: Questions) -> list[page.Part]:
    failed = asked.frame[asked.frame["status"] != "ok"]
    if failed.empty:
        return []
    grouped = failed.assign(error=failed["error"].fillna("")).groupby(["error", "model", "kind"], sort=False)
    frame = (
        grouped.agg(n=("row_id", "size"), example=("sample_id", "min")).reset_index().sort_values("n", ascending=False)
    )
    columns = [
        *plain("text", error="Reason", model="Model"),
        _KIND,
        Column("n", "Questions", "integer"),
        Column("example", "For example"),
    ]
    text = (
        f"{len(failed):,} of {len(asked.frame):,} questions have no answer; they count in no statistic. holdfast ask "
        "with --retry-errors asks them again."
    )
    return [
        page.Heading("Questions without an answer"),
        page.Text([text]),
        Table("question_errors", "By reason", frame, columns),
    ]


def _cut(text: Any, length: int) -> str:
    plain = " ".join(str(text).split())
    return plain if len(plain) <= length else f"{plain[: length - 1]}…"


def _gallery(asked: Questions, pictures: page.RunPictures | None) -> list[page.Part]:
    """Return the images that most answers are wrong about, one per class as far as possible."""
    good = asked.frame[asked.frame["status"] == "ok"]
    wrong = good.assign(wrong=~good["lenient"].astype(bool)).groupby(["sample_id", "label"], sort=True)["wrong"].sum()
    ordered = wrong[wrong > 0].reset_index().sort_values(["wrong", "sample_id"], ascending=[False, True])
    if ordered.empty:
        return []
    picked = [*ordered.drop_duplicates("label")["sample_id"], *ordered["sample_id"]]
    chosen = list(dict.fromkeys(picked))[:IMAGES_SHOWN]
    some = good[good["sample_id"].isin(chosen)]
    images = page.pictures_of(pictures, asked.runs, set(some["source_id"]))
    photos = []
    for name in chosen:
        rows = some[some["sample_id"] == name]
        first = rows.iloc[0]
        jpeg = images.get((str(name), str(first["condition"])), b"")
        groups = sorted(rows.groupby("protocol"), key=lambda pair: pair[0] == "full_list")
        tiles = [_tile(group, asked.short, b"" if place else jpeg) for place, (_, group) in enumerate(groups)]
        count = int((~rows["lenient"].astype(bool)).sum())
        summary = f"{count} of {plural(len(rows), 'answer')} {'is' if count == 1 else 'are'} wrong."
        photos.append(page.Photo(str(name), str(first["label"]), summary, tiles))
    text = (
        f"{plural(len(chosen), 'image')} that most answers are wrong about, with the options and every answer. They "
        "were picked because they fail, so they are not typical. ✓ right, ✗ wrong, – names no option."
    )
    return [page.Heading("Questions and answers"), page.Text([text]), page.Gallery(photos)]


def _tile(rows: pd.DataFrame, short: Mapping[str, str], jpeg: bytes) -> page.Tile:
    options = [str(option) for option in rows["options"].iloc[0]]
    title = f"{options[0]} or {options[1]}?" if rows["kind"].iloc[0] == "two_way" else listing(options, 5) + "?"
    answers = [_answer(row, short) for row in rows.sort_values("model").to_dict("records")]
    right = sum(answer.kind == "right" for answer in answers)
    return page.tile(title, jpeg, answers, wrong=right < len(answers), count=f"{right} of {len(answers)} right")


def _answer(row: dict[Any, Any], short: Mapping[str, str]) -> page.Answer:
    text = row["raw_text"] if isinstance(row["raw_text"], str) else row["matched"]
    said = _cut(text or "", LONGEST_ANSWER) or "(nothing)"
    who = short.get(row["model"], row["model"])
    if not row["lenient"] and not isinstance(row["matched"], str):
        return page.Answer(who, said, "–", "none")
    return page.judged(who, said, bool(row["lenient"]))


def _asked(report: ReportEvidence) -> Questions:
    return read_questions(report.rows, report.analysis)


def _front(report: ReportEvidence) -> page.Front:
    asked = report.once(_asked)
    front = page.Front(TITLE, page.answer("No question was answered", "See the errors."), asked.facts(), asked.limits())
    if not (asked.frame["status"] == "ok").any():
        return front
    best = asked.table[asked.table["n"] > 0].drop_duplicates("model")
    verdicts = [
        page.ModelVerdict(
            asked.short[row["model"]],
            f"Right on {percent(row['strict'])} of {KINDS[row['kind']]} questions",
            "",
            f"{estimate(row['strict'], row['strict_low'], row['strict_high'])} of {plural(int(row['n']), 'answer')} "
            f"are right when read strictly, {percent(row['lenient'])} when read leniently; a guess is right in "
            f"{percent(1 / float(row['choices']))}.",
        )
        for row in best.to_dict("records")
    ]
    unread = asked.table[(asked.table["unmatched"] > FEW_UNREAD) | (asked.table["refusal"] > FEW_UNREAD)]
    steps = [("See which answers name no option: the prompt may have to say how to answer.", "")] if len(unread) else []
    steps.append(("Ask about the same images on other backgrounds: ask with --scenarios random_background.", ""))
    return replace(
        front, verdicts=verdicts, images=page.proof(_gallery(asked, report.pictures), tiles=1, rows=3),
        chart=_accuracy_chart(asked), steps=steps,
    )  # fmt: skip


QUESTIONS = ReportSection(
    lambda report: question_section(report.once(_asked), report.pictures), of_task(QUESTION), _front,
    measures=("questions",),
)  # fmt: skip
