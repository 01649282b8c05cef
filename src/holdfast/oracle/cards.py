"""Oracle cards: what an oracle is, what it was trained on, and its known mistakes."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.protocols import Oracle
from holdfast.core.votes import Votes
from holdfast.oracle.lineage import DRAWN, IMAGENET, Lineage, lineages

UNKNOWN = "not known"

_CLIP = (
    "Reads text: a word written in the picture can outweigh the object (typographic attacks).",
    "The wording of the prompt moves its scores; two templates are two oracles.",
    "Weak at counting, fine-grained kinds, and rare classes; backgrounds that usually go with a class raise its score.",
)
_EMBEDDED = (
    "A stand-in for a foundation model within the drawn world; says nothing about photos.",
    "Knows the words of that world only.",
)
_IMAGENET = (
    "Leans on texture more than on shape, and on backgrounds that go with a class.",
    "Knows a thousand classes, many of them breeds: with space=dataset it must choose among the dataset's, whatever "
    "the picture shows.",
)
_DRAWN = ("Trained on drawn scenes only; where its card says ρ > 0 it leans on the background that goes with a class.",)
_HUMAN = (
    "Knows only the images that people were shown, bit for bit, and nothing of any other.",
    "Who the people were, how they were paid and how long they looked decides as well; the export has every vote.",
)
_ANY = ("Its own mistakes become verdicts: what it never saw, it rejects.",)
_ENSEMBLE = ("Members that were trained on the same data err together, so a majority is less than it seems.",)


@dataclass(frozen=True, slots=True)
class Card:
    """The description of an oracle in a report.

    Attributes:
        name: of the oracle.
        what: in a sentence.
        training_data: as far as it is known.
        biases: known weaknesses, a sentence each.
        space: who competes for the verdict.
        fingerprint: of weights, prompts, label map and thresholds.
    """

    name: str
    what: str
    training_data: str
    biases: tuple[str, ...]
    space: str
    fingerprint: str

    def rows(self) -> list[tuple[str, str]]:
        """Return heading and text, for a table of two columns."""
        return [
            ("Oracle", self.name),
            ("What it is", self.what),
            ("Training data", self.training_data),
            ("Known biases", " ".join(self.biases)),
            ("Label space", self.space),
            ("Fingerprint", self.fingerprint[:16]),
        ]


def card(oracle: Oracle) -> Card:
    """Return the card of an oracle, by its kind and the names of the models behind it."""
    members: tuple[Oracle, ...] = getattr(oracle, "members", ())
    if members:
        cards = [card(member) for member in members]
        quorum = "all have" if getattr(oracle, "rule", "") == "unanimous" else "more than half have"
        return Card(
            oracle.name,
            f"{len(members)} oracles that vote; {quorum} to accept.",
            "; ".join(f"{member.name}: {member.training_data}" for member in cards),
            tuple(dict.fromkeys([*_ENSEMBLE, *(bias for member in cards for bias in member.biases)])),
            "; ".join(dict.fromkeys(member.space for member in cards)),
            oracle.fingerprint,
        )
    votes = getattr(oracle, "votes", None)
    if isinstance(votes, Votes):
        return Card(
            oracle.name,
            f"People of the campaign “{votes.campaign}”; {votes.at_least} of {votes.of} have to accept ({votes.rule}).",
            "none: people looked",
            _HUMAN,
            "each image was asked about one class",
            oracle.fingerprint,
        )
    origin = getattr(getattr(oracle, "classifier", None), "name", oracle.name)
    behind = lineages(origin)[0]
    rule = getattr(oracle, "rule", None)
    every = getattr(rule, "space", "dataset") == "all"
    return Card(
        oracle.name,
        _what(behind),
        ", ".join(sorted(behind.data)) or UNKNOWN,
        _biases(behind),
        "all outputs of the oracle compete" if every else "the dataset's classes compete",
        oracle.fingerprint,
    )


def _what(behind: Lineage) -> str:
    family = f" of the {behind.family} family" if behind.family else ""
    if behind.model == "clip:embedded":
        return f"A small image and text model{family} that Holdfast carries for its drawn world, asked zero-shot."
    if behind.model.startswith("clip:"):
        return f"An image and text model{family}, asked zero-shot with a prompt a class."
    return f"A classifier{family}, its outputs mapped to the dataset's classes."


def _biases(behind: Lineage) -> tuple[str, ...]:
    if behind.model == "clip:embedded":
        return (*_EMBEDDED, *_ANY)
    if behind.model.startswith("clip:"):
        return (*_CLIP, *_ANY)
    known = (*(_IMAGENET if IMAGENET in behind.data else ()), *(_DRAWN if DRAWN in behind.data else ()))
    return (*known, *_ANY)
