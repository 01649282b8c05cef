"""The page of a campaign: what people accept, how far they agree, and how reliable each person is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.numbers import estimate, number, percent, span
from holdfast.core.votes import Votes, read_votes
from holdfast.reports.page import parts as page
from holdfast.reports.page.charts import dot_figure
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.tables import Column, Table, plain, ranged
from holdfast.reports.page.words import listing, page_facts, plural
from holdfast.reports.page.writer import write_page
from holdfast.stats.people.votes import VERDICT, rule_effects
from holdfast.store import read_table
from holdfast_people.report.charts import MOST_ROWS, crowd_figure, divided_figure, grades

TITLE = "Which images do people accept?"
WORDS = {
    "category": "Category",
    "kind": "Kind of nuisance",
    "nuisance": "Nuisance",
    "generator": "Generator",
    "model": "Model they were made against",
    "condition": "Condition",
}

MEASURES = {
    "percent_agreement": "Share of pairs that agree",
    "fleiss_kappa": "Fleiss' kappa",
    "krippendorff_alpha": "Krippendorff's alpha",
    "krippendorff_alpha_ordinal": "Krippendorff's alpha, ordinal",
    "krippendorff_alpha_interval": "Krippendorff's alpha, interval",
}
_SHARE = [
    *plain("integer", images="Images", accepted="accepted", rejected="rejected", undecided="undecided"),
    Column("prompts", "Prompts or images", "integer"),
    Column("estimate", "Accepted of the decided", "percent", "low", "high"),
]


@dataclass(frozen=True)
class CampaignExport:
    """The results of a campaign as ``holdfast people review --export`` wrote them."""

    votes: Votes
    tables: dict[str, pd.DataFrame]
    facts: dict[str, Any]

    @property
    def rule(self) -> str:
        """The rule of acceptance in words."""
        votes, text = self.votes, self.votes.rule
        for question in votes.questions:
            if question.is_rating and text == question.id:
                text += f", {question.answers[len(question.answers) // 2]} or more"
        return f"at least {votes.at_least} of {plural(votes.of, 'person', 'people')} say yes ({text})"


def build(folder: Path, pictures: page.Thumbnails | None = None) -> Path:
    """Write ``report/`` of an export and return the path of its page."""
    votes = read_votes(folder)
    try:
        facts = json.loads((folder / "export.json").read_text(encoding="utf8"))
        tables = {file.stem: read_table(file).to_pandas() for file in (folder / "results").glob("*.parquet")}
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is not an export of holdfast people review: {error}") from error
    campaign = CampaignExport(votes, tables, facts)
    sections = [
        *([_natural(campaign)] if "naturalness" in tables else []),
        _accepted(campaign),
        _agreement(campaign),
        _people(campaign),
        _gallery(tables["images"], votes, pictures),
        _asked(campaign),
    ]
    by_name = {section.name: section for section in sections}
    accepted, shown = by_name["accepted"], by_name["gallery"]
    front = page.Front(
        TITLE,
        page.answer(accepted.lead[0]),
        _numbers(campaign),
        _limits(campaign),
        page.proof(shown.parts, tiles=2, rows=3),
        page.first_figure(accepted.parts),
    )
    return write_page(front, sections, folder / "report", subject=votes.campaign, run_names=folder.name)


def _numbers(campaign: CampaignExport) -> list[tuple[str, str]]:
    table = campaign.votes.table
    counted = table.filter(table["counts"])
    cast = counted.group_by("vote").aggregate([]).num_rows
    people = counted.group_by("person").aggregate([]).num_rows
    tasks = campaign.tables["people"][["finished", "discarded"]].sum()
    return page_facts(
        (campaign.facts.get("images", len(campaign.tables["images"])), "image"),
        (cast, "vote that counts", "votes that count"),
        (people, "person", "people"),
        (int(tasks["finished"]), "task finished", "tasks finished"),
        (int(tasks["discarded"]), "task discarded", "tasks discarded"),
    )


EARLY = (
    "The campaign stopped showing an image once further votes could not change its verdict. What is accepted is the "
    "same as with all votes; shares of yes and agreement are those of the votes that were given, which end with the "
    "deciding one, and other rules may leave images undecided."
)


def _stopped(campaign: CampaignExport) -> bool:
    return dict(campaign.facts.get("settings", {})).get("stop") == "when-decided"


def _limits(campaign: CampaignExport) -> str:
    text = (
        "Intervals are at the 95 % level and treat prompts or source images as independent. Votes of a task with "
        "a failed control image count nowhere but in what is said of its person."
    )
    if _stopped(campaign):
        text += " " + EARLY
    overall = campaign.tables["acceptance"].iloc[0]
    unseen = int(campaign.facts.get("images", 0)) - int(overall["images"])
    if overall["undecided"]:
        text += f" {plural(int(overall['undecided']), 'image')} had too few votes to decide and count in no share."
    if unseen > 0:
        text += f" {plural(unseen, 'image')} {'has' if unseen == 1 else 'have'} not been shown yet."
    return text


def _accepted(campaign: CampaignExport) -> page.Section:
    table = campaign.tables["acceptance"]
    overall = table.iloc[0]
    section = page.Section("accepted", "What people accept")
    section.lead = [
        f"People accept {estimate(overall['estimate'], overall['low'], overall['high'])} of "
        f"{plural(int(overall['n']), 'decided image')}: {campaign.rule}."
        if overall["n"]
        else f"No image is decided yet: {campaign.rule}."
    ]
    images = campaign.tables["images"]
    section.parts = divided_figure(images, campaign.votes)
    for by in [name for name in WORDS if name in set(table["by"])]:
        section.parts += _by(table[table["by"] == by], by)
    return section


def _gallery(images: pd.DataFrame, votes: Votes, thumbnails: page.Thumbnails | None) -> page.Section:
    """Return galleries of accepted, rejected and divided images with their votes."""
    judged_images = images[images["votes"] > 0].astype({"sample_id": str})
    distance = (judged_images["share"] - votes.at_least / votes.of).abs()
    divided = judged_images.assign(distance=distance).sort_values(["distance", "sample_id"]).head(page.TILES)
    groups = []
    for decision in ("accepted", "rejected"):
        part = judged_images[judged_images["decision"] == decision].sort_values("sha256")
        ids = list(page.by_turns(part, "label")["sample_id"])
        groups.append((decision.capitalize(), f"{plural(len(part), 'image')} {decision}", ids))
    groups.append(("Divided", f"{plural(len(judged_images), 'image')} judged", list(divided["sample_id"])))
    rows = {row["sample_id"]: row for row in judged_images.to_dict("records")}
    section = page.Section("gallery", "What the images look like")
    section.lead = [
        "Accepted and rejected ones a category at a time, in no other order; the divided ones are nearest to the "
        "rule's threshold. Below each image the class that people were asked about, and how many said yes."
    ]
    shown = [group for group in groups if group[2]]
    section.parts = page.grouped(
        shown, thumbnails, lambda _, name, jpeg: _tile(rows[name], votes, jpeg), missing="images are"
    )
    return section


def _tile(row: dict[Any, Any], votes: Votes, jpeg: bytes) -> page.Tile:
    answers = []
    for question in votes.questions:
        if question.is_rating:
            said = f"{number(row[f'mean_{question.id}'], 1)} of {question.answers[-1]}"
            answers.append(page.Answer(question.id, said, "•", "none"))
        else:
            share = row[f"share_{question.id}"]
            answers.append(page.judged(question.id, percent(share, 0), share >= 0.5))
    counted = f"{int(row['yes'])} of {int(row['votes'])} say yes"
    sign, kind = {"accepted": ("✓", "right"), "rejected": ("✗", "wrong")}.get(row["decision"], ("?", "none"))
    answers.append(page.Answer("people", counted, sign, kind))
    nuisance = f", {row['condition']} {row['nuisance']}" if row["nuisance"] else ""
    count, wrong = f"{counted}: {row['decision']}", row["decision"] != "accepted"
    return page.tile(f"{row['asked']}{nuisance}", jpeg, answers, wrong=wrong, count=count)


def _by(table: pd.DataFrame, by: str) -> list[page.Part]:
    word = WORDS[by]
    ordered = table.sort_values(["estimate", "value"], kind="stable")
    known = ordered[ordered["n"] > 0]
    parts: list[page.Part] = [page.Heading(f"By {word.lower()}")]
    low, high = (known.iloc[0], known.iloc[-1]) if len(known) > 1 else (None, None)
    if low is not None and high is not None and low["estimate"] < high["estimate"]:
        ends = [
            f"{end['value'] or 'not stated'}, {estimate(end['estimate'], end['low'], end['high'])} of "
            f"{plural(int(end['n']), 'image')}"
            for end in (low, high)
        ]
        parts.append(page.Text([f"Least: {ends[0]}; most: {ends[1]}."]))
    if len(known) > 1:
        drawn = known.head(MOST_ROWS)
        drawn = drawn.assign(model="accepted", row=drawn["value"].replace("", "not stated"))
        more = f", the {MOST_ROWS} least accepted of {len(known)}" if len(known) > MOST_ROWS else ""
        title = f"Share of images that people accept, by {word.lower()}{more}"
        shares = "; ".join(f"{row['row']} {percent(row['estimate'])}" for row in drawn.head(8).to_dict("records"))
        parts.append(dot_figure(f"accepted_{by}", title, shares, drawn, axis="accepted", domain=(0, 1)))
    columns = [Column("value", word, show=lambda value: value or "not stated"), *_SHARE]
    parts.append(Table(f"acceptance_{by}", f"Acceptance by {word.lower()}", ordered, columns, folded=True))
    return parts


def _effects(campaign: CampaignExport) -> list[page.Part]:
    """Return what each question does to the accepted set."""
    table = rule_effects(campaign.votes)
    own = table.iloc[0]
    fewest = table.sort_values("accepted", kind="stable").iloc[0]
    text = (
        f"By the campaign's rule ({own['rule']}) {plural(int(own['accepted']), 'image')} are accepted. The strictest "
        f"of the rules below, {fewest['rule']}, would accept {int(fewest['accepted'])}."
    )
    columns = [
        Column("rule", "Rule"),
        *plain("integer", accepted="Accepted", rejected="Rejected", undecided="Undecided"),
        Column("estimate", "Share accepted", "percent", "low", "high"),
        *plain("integer", lost="Lost against the campaign's rule", won="Won"),
    ]
    caption = "The set under each question alone, and under all of them"
    return [
        page.Heading("What each question does to the set"),
        page.Text([text]),
        Table("rules", caption, table, columns),
    ]


def _agreement(campaign: CampaignExport) -> page.Section:
    table = campaign.tables["agreement"]
    section = page.Section("agreement", "How far people agree")
    said = []
    for question, group in table.groupby("question", sort=False):
        by = {record["measure"]: record for record in group.to_dict("records")}
        pairs = by["percent_agreement"]
        alpha = by.get("krippendorff_alpha_ordinal", by["krippendorff_alpha"])
        if not pairs["reason"]:
            what = "the verdict" if question == VERDICT else f"“{question}”"
            words = f"on {what} two people agree on {estimate(pairs['estimate'], pairs['low'], pairs['high'])}"
            beyond = f"alpha {number(alpha['estimate'])} ({span(alpha['low'], alpha['high'], 2, 1)})"
            said.append(words + (f" of the images they share, {beyond}" if not alpha["reason"] else ""))
    text = "; ".join(said)
    section.lead = [text[:1].upper() + text[1:] + "." if text else "No image was judged by two people yet."]
    section.lead += [EARLY] if _stopped(campaign) else []
    frame = table.assign(measure=table["measure"].map(MEASURES))
    columns = [
        *plain("text", measure="Measure", question="Question"),
        Column("estimate", "Value", "number", "low", "high", digits=3),
        Column("n", "Images", "integer"),
        *([Column("reason", "Why there is none")] if (table["reason"] != "").any() else []),
    ]
    note = "Kappa and alpha are 0 if people agree as often as by chance and 1 if they always do."
    section.parts = [Table("agreement", "Agreement", frame, columns, note)]
    if len(campaign.votes.questions) > 1:
        section.parts += _effects(campaign)
    return section


def _people(campaign: CampaignExport) -> page.Section:
    table = campaign.tables["people"]
    section = page.Section("people", "How reliable each person is")
    doubted = table[table["by_chance"]]
    passed = table["passed"].sum() / table["sentinels"].sum() if table["sentinels"].sum() else float("nan")
    nobody = "No one's answers"
    whose = f"The answers of {listing([f'person {number_}' for number_ in doubted['person']])}"
    section.lead = [
        f"{plural(len(table), 'person', 'people')} passed {percent(passed)} of "
        f"{plural(int(table['sentinels'].sum()), 'control image')}. "
        f"{whose if len(doubted) else nobody} look like chance."
    ]
    section.parts = crowd_figure(table)
    columns = [
        *plain("integer", person="Person", finished="Tasks finished", discarded="discarded", expired="expired"),
        Column("sentinel_rate", "Controls passed", "percent", "sentinel_low", "sentinel_high"),
        Column("repeat_rate", "Repeats alike", "percent", "repeat_low", "repeat_high"),
        Column("compared", "Images compared", "integer"),
        ranged("agreement", "Agreement with the others"),
        Column("chance_p", "By chance", "p", hint="how likely unrelated answers would agree as well"),
        Column("seconds", "Seconds an image", "number", digits=1),
        Column("yes", "Says yes", "percent"),
    ]
    note = "Agreement is with what most of the others said, this person left out."
    section.parts.append(Table("people", "People", table, columns, note))
    return section


def _natural(campaign: CampaignExport) -> page.Section:
    table = campaign.tables["naturalness"]
    overall = table.iloc[0]
    section = page.Section("natural", "How natural the images look")
    question = next(item for item in campaign.votes.questions if item.id == overall["question"])
    ends = (float(question.answers[0]), float(question.answers[-1]))
    section.lead = [
        f"The mean rating is {number(overall['estimate'])} ({span(overall['low'], overall['high'], 2, 1)}) on a scale "
        f"of {question.answers[0]} to {question.answers[-1]}, {plural(int(overall['votes']), 'vote')} on "
        f"{plural(int(overall['images']), 'image')}; intervals allow for other images and other people."
    ]
    for by in [name for name in ("model", "generator", "condition") if name in set(table["by"])]:
        part = table[table["by"] == by].sort_values("estimate", ascending=False, kind="stable")
        drawn = part.head(MOST_ROWS).assign(row=lambda frame: frame["value"].replace("", "not stated"))
        finding = "; ".join(f"{row['row']} {number(row['estimate'])}" for row in drawn.head(8).to_dict("records"))
        draw = partial(grades, drawn[["row", "estimate", "low", "high"]], rows=list(drawn["row"]), steps=ends)
        section.parts.append(Figure(f"natural_{by}", f"Mean rating by {WORDS[by].lower()}", finding, draw))
    columns = [
        Column("value", "Of", show=lambda value: value or "all images"),
        Column("by", "By", show=lambda value: WORDS.get(value, "")),
        Column("estimate", "Mean rating", "number", "low", "high", digits=2),
        *plain("integer", votes="Votes", images="Images", people="People"),
    ]
    section.parts.append(Table("naturalness", "Mean ratings", table, columns))
    return section


def _asked(campaign: CampaignExport) -> page.Section:
    votes, facts = campaign.votes, campaign.facts
    section = page.Section("asked", "What was asked")
    section.lead = [
        *(f"“{item.text.replace('{category}', '…')}” ({', '.join(item.answers)})" for item in votes.questions),
        f"An image is accepted if {campaign.rule}; it is undecided while the missing votes could still decide.",
    ]
    columns = [
        *plain("text", question="Question", answer="Answer"),
        Column("votes", "Votes", "integer"),
        Column("share", "Share", "percent"),
    ]
    settings = [f"{key.replace('_', ' ')}: {value}" for key, value in facts.get("settings", {}).items()]
    section.parts = [
        Table("answers", "Answers that count", campaign.tables["answers"], columns),
        page.Listing("Settings of the campaign", settings),
    ]
    if facts.get("problems"):
        section.parts.append(page.Listing("Images that could not be exported", facts["problems"], open=True))
    if facts.get("status") == "open":
        section.parts.append(page.Text(["The campaign was still open when this was written; later votes are missing."]))
    return section
