"""Exported votes: one row per vote and question, the questions, and the rule that makes a verdict of the answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.errors import UserError, first_line
from holdfast.core.schema import newer_version

VOTES = pa.schema(
    [
        ("campaign", pa.string()),
        ("kind", pa.string()),  # quality | naturalness | oracle
        ("sample_id", pa.string()),
        ("source_id", pa.string()),  # the prompt or image: images of one are one cluster
        ("label", pa.string()),
        ("asked", pa.string()),  # the class in the question
        ("condition", pa.string()),
        ("nuisance", pa.string()),
        ("generator", pa.string()),  # who made the image, '' if it is not known
        ("model", pa.string()),  # whom it was made against, '' if none
        ("sha256", pa.string()),  # of the file; '' if it could not be read
        ("pixels_sha256", pa.string()),  # of the decoded RGB array, by which an image is known again
        ("role", pa.string()),  # judge | positive | negative | repeat
        ("task", pa.int64()),  # a number in this campaign
        ("task_status", pa.string()),  # finished | discarded | expired | open
        ("task_reason", pa.string()),  # why it was discarded
        ("person", pa.int64()),  # a number in this campaign, no name
        ("vote", pa.int64()),  # a number in this campaign, in order of time; shared by its questions
        ("question", pa.string()),
        ("answer", pa.string()),
        ("expected", pa.string()),  # of a sentinel: answers that pass, apart by |
        ("seconds", pa.float64()),  # from showing the image to the answer, as the browser measured
        ("voted_at", pa.timestamp("us", tz="UTC")),
        ("counts", pa.bool_()),  # whether it enters verdicts
        ("superseded", pa.bool_()),  # the person came back and answered again
    ]
)

FILE = "votes.parquet"
_METADATA = b"holdfast"
_LARGEST = 1 << 31

Decision = Literal["accepted", "rejected", "undecided"]


@dataclass(frozen=True, slots=True)
class VoteQuestion:
    """One question about an image."""

    id: str
    text: str  # may hold ``{category}``
    answers: tuple[str, ...]  # in order
    tolerance: int = 0  # by how many steps two answers of one person to one image may differ
    # of the keyboard, one per answer; they are not stored with the votes
    keys: tuple[str, ...] = field(default=(), compare=False)
    # whether control images have a right answer to it; not stored with the votes either
    graded: bool = field(default=True, compare=False)

    @property
    def is_rating(self) -> bool:
        """Return whether the answers are numbers on a scale."""
        return all(answer.lstrip("-").isdigit() for answer in self.answers)


@dataclass(frozen=True)
class VoteRule:
    """Which answers of one person are a yes: alternatives of conditions, each a question and the answers that meet it.

    Read from ``recognisable|usable``, ``recognisable&usable``, ``natural>=4``; & binds before |. A question by itself
    is met by "yes", and a rating by its middle or more.
    """

    text: str
    alternatives: tuple[tuple[tuple[str, frozenset[str]], ...], ...]

    def says_yes(self, answers: Mapping[str, str]) -> bool:
        """Return one person's verdict from their answers, question → answer."""
        return any(all(answers.get(name) in allowed for name, allowed in each) for each in self.alternatives)


def parse_rule(text: str, questions: Sequence[VoteQuestion]) -> VoteRule:
    """Parse a rule; a UserError for a question that was not asked or an answer it does not have."""
    by_id = {question.id: question for question in questions}

    def condition(term: str) -> tuple[str, frozenset[str]]:
        match = re.fullmatch(r"\s*([\w-]+)\s*(?:>=\s*(\S+)\s*)?", term)
        if not match or match[1] not in by_id:
            raise UserError(
                f"the rule {text!r} should name questions that were asked, joined by | or &: {', '.join(by_id)}"
            )
        answers = by_id[match[1]].answers
        if match[2] is not None and not by_id[match[1]].is_rating:
            raise UserError(f"{match[1]} is answered by {' or '.join(answers)}, so the rule takes no >=; name it alone")
        if match[2] is None:
            return match[1], frozenset({"yes"} if "yes" in answers else answers[len(answers) // 2 :])
        if match[2] not in answers:
            raise UserError(f"{match[1]} has no answer {match[2]!r}; it has {', '.join(answers)}")
        return match[1], frozenset(answers[answers.index(match[2]) :])

    return VoteRule(
        text, tuple(tuple(condition(term) for term in alternative.split("&")) for alternative in text.split("|"))
    )


def decide(yes: int, votes: int, *, at_least: int, of: int) -> Decision:
    """Return the verdict on an image from the number of its votes and of the yes among them."""
    # Accepted from ``at_least`` yes on, of ``of`` people; rejected when those who have not voted could not bring it
    # there any more; undecided until then. If more people voted than were wanted, the same share of them has to say
    # yes.
    needed = at_least if votes <= of else -(-at_least * votes // of)
    if yes >= needed:
        return "accepted"
    return "undecided" if yes + max(of - votes, 0) >= needed else "rejected"


@dataclass(frozen=True, slots=True)
class Tally:
    """What people said of one image and class."""

    sample_id: str
    asked: str
    sha256: str
    pixels_sha256: str
    votes: int
    yes: int
    decision: Decision

    @property
    def share(self) -> float:
        """Return the share of yes among the votes; 0 if no one voted."""
        return self.yes / self.votes if self.votes else 0.0


@dataclass(frozen=True)
class Votes:
    """The votes of one campaign."""

    table: pa.Table  # columns of ``VOTES``
    campaign: str
    kind: str  # quality, naturalness or oracle
    questions: tuple[VoteQuestion, ...]  # in order
    rule: str  # which answers are a yes
    at_least: int  # how many people must say yes,
    of: int  # so many wanted an image
    facts: Mapping[str, Any] = field(default_factory=dict)  # what else the export recorded

    def with_rule(self, rule: str = "", at_least: int = 0) -> Votes:
        """Return the same votes under another rule or threshold; '' and 0 keep the export's."""
        rule, at_least = rule or self.rule, at_least or self.at_least
        parse_rule(rule, self.questions)
        if not 1 <= at_least <= self.of:
            raise UserError(f"at_least must be 1 to {self.of} (the people an image was shown to), not {at_least}")
        return replace(self, rule=rule, at_least=at_least)

    def ballots(self) -> list[dict[str, Any]]:
        """Return a row per vote that counts: sample_id, asked, hashes, person, ``answers`` by question, ``yes``."""
        rule = parse_rule(self.rule, self.questions)
        columns = ["sample_id", "asked", "sha256", "pixels_sha256", "person", "vote", "question", "answer"]
        rows = self.table.filter(self.table["counts"]).select(columns).to_pylist()
        ballots: dict[int, dict[str, Any]] = {}
        for row in rows:
            question, answer = row.pop("question"), row.pop("answer")
            ballots.setdefault(row["vote"], row | {"answers": {}})["answers"][question] = answer
        return [row | {"yes": rule.says_yes(row["answers"])} for row in ballots.values()]

    def tallies(self) -> list[Tally]:
        """Return the verdict on every image and class that someone judged, in the order of the first vote."""
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self.ballots():
            groups.setdefault((row["sample_id"], row["asked"]), []).append(row)
        tallies = []
        for (sample_id, asked), rows in groups.items():
            votes, yes, decision = self.count(row["yes"] for row in rows)
            hashes = rows[0]["sha256"], rows[0]["pixels_sha256"]
            tallies.append(Tally(sample_id, asked, *hashes, votes, yes, decision))
        return tallies

    def count(self, yes: Any) -> tuple[int, int, Decision]:
        """Return the number of votes, how many of them are a yes, and the decision."""
        given = [bool(answer) for answer in yes]
        return len(given), sum(given), decide(sum(given), len(given), at_least=self.at_least, of=self.of)

    def to_arrow(self) -> pa.Table:
        """Return the table with everything else in its metadata, as it is written to Parquet."""
        said = {name: getattr(self, name) for name in ("campaign", "kind", "rule", "at_least", "of")}
        fields = ("id", "text", "answers", "tolerance")
        questions = [{name: getattr(question, name) for name in fields} for question in self.questions]
        said |= {"questions": questions, "facts": dict(self.facts)}
        return self.table.cast(VOTES).replace_schema_metadata({_METADATA: json.dumps(said, ensure_ascii=False)})


def from_arrow(table: pa.Table) -> Votes:
    """Return the votes of a table that ``to_arrow`` made; a ValueError if it is something else."""
    said = json.loads((table.schema.metadata or {}).get(_METADATA, b"null"))
    if not isinstance(said, dict) or "questions" not in said:
        raise ValueError("it does not say which questions were asked")
    try:
        questions = tuple(
            VoteQuestion(
                str(known["id"]), str(known["text"]), tuple(map(str, known["answers"])), int(known["tolerance"])
            )
            for known in said["questions"]
        )
        votes = Votes(
            table.select(VOTES.names).cast(VOTES), str(said["campaign"]), str(said["kind"]), questions,
            str(said["rule"]), int(said["at_least"]), int(said["of"]), dict(said.get("facts", {})),
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise ValueError(f"it lacks {error}") from error
    return votes.with_rule()


def read_votes(path: Path | str) -> Votes:
    """Read the votes that ``holdfast people review --export`` wrote: its folder, or votes.parquet in it."""
    file = Path(path)
    file = file / FILE if file.is_dir() else file
    if not file.is_file():
        raise UserError(f"there are no votes at {path}; holdfast people review --export writes them ({FILE})")
    if file.suffix.lower() == ".csv":
        raise UserError(f"{path} lacks the questions and the rule; name the {FILE} next to it")
    if file.stat().st_size > _LARGEST:
        raise UserError(f"{path} is too large for a file of votes")
    try:
        table = pq.read_table(file, partitioning=None)
        if newer := newer_version(table.schema.metadata):
            raise UserError(f"{file} {newer}")
        return from_arrow(table)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UserError(
            f"{path} is not a file of votes of holdfast people review --export: {first_line(error)}"
        ) from error
