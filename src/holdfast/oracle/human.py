"""``human:VOTES?rule=recognisable|usable&at_least=6``: people who judged these very images, from exported votes.

``human:FOLDER?every=10`` asks people inside a walk, about every tenth step; FOLDER holds the votes of all rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import array_sha256, fingerprint
from holdfast.core.names import Name
from holdfast.core.protocols import Verdict
from holdfast.core.types import Image
from holdfast.core.votes import FILE, Decision, Votes, read_votes
from holdfast.oracle.classifier import places_of
from holdfast.oracle.loading import Resources

NOBODY = "no one judged this image"
UNDECIDED = "undecided"  # what people in rounds see in an image about which they have not decided


class Human:
    """Accepts what at least so many people accept. It knows images by their exact pixels.

    ``score`` is the share of people who say yes, ``margin`` that less the share who say no; an image that no one judged
    is rejected with 0 and -1, one that too few judged with the share so far. What people saw instead is not asked.
    """

    def __init__(self, name: str, votes: Votes, classes: Sequence[str]) -> None:
        self.name = name
        self.votes = votes
        self.classes = tuple(classes)
        groups: dict[tuple[str, str], list[bool]] = {}
        for row in votes.ballots():
            if row["pixels_sha256"]:  # equal images under two names are one image
                groups.setdefault((row["pixels_sha256"], row["asked"]), []).append(row["yes"])
        self._counts: dict[tuple[str, str], tuple[int, int, Decision]] = {
            key: votes.count(yes) for key, yes in groups.items()
        }
        self._asked = dict(self._counts.keys())
        counted = sorted([*key, *counts] for key, counts in self._counts.items())
        self.fingerprint = fingerprint(["human", votes.rule, votes.at_least, votes.of, counted, self.classes])

    def knows(self, images: Sequence[Image], labels: Sequence[str]) -> list[bool]:
        """Return, for each image and class, whether people have decided."""
        return [
            self._counts.get((array_sha256(image), label), (0, 0, "undecided"))[2] != "undecided"
            for image, label in zip(images, labels, strict=True)
        ]

    def judge(self, images: Sequence[Image], labels: Sequence[str]) -> list[Verdict]:
        """Return a verdict per RGB image of any size."""
        places_of(labels, self.classes)
        return [self._verdict(array_sha256(image), label) for image, label in zip(images, labels, strict=True)]

    def _verdict(self, pixels: str, label: str) -> Verdict:
        counts = self._counts.get((pixels, label))
        if counts is None:
            other = self._asked.get(pixels)
            reason = f"people were asked whether it is a {other}, not a {label}" if other else NOBODY
            return Verdict(False, 0.0, -1.0, "", reason)
        votes, yes, decision = counts
        share = yes / votes
        if decision == "accepted":
            return Verdict(True, share, 2 * share - 1, label)
        needed = f"{self.votes.at_least} of {self.votes.of}"
        reason = f"{yes} of {votes} people accept it"
        reason += f", {needed} have to" if decision == "rejected" else f" so far, {needed} have to: undecided"
        return Verdict(False, share, 2 * share - 1, "", reason)


class PeopleInRounds:
    """People asked about every so many steps of a walk; a verdict stays, so the fingerprint does not follow votes."""

    def __init__(self, name: str, rounds: Sequence[Votes], classes: Sequence[str], *, every: int, rule: str) -> None:
        self.name, self.every, self.classes = name, every, tuple(classes)
        self._rounds = [Human(name, votes, classes) for votes in rounds]
        self.fingerprint = fingerprint(["human in rounds", every, rule, self.classes])

    def knows(self, images: Sequence[Image], labels: Sequence[str]) -> list[bool]:
        """Return, for each image and class, whether people have decided."""
        known = [people.knows(images, labels) for people in self._rounds]
        return [any(answers) for answers in zip(*known, strict=True)] if known else [False] * len(images)

    def judge(self, images: Sequence[Image], labels: Sequence[str]) -> list[Verdict]:
        """Return a verdict per RGB image of any size; of one that no one decided, a rejection that says so."""
        places_of(labels, self.classes)
        verdicts = []
        for image, label in zip(images, labels, strict=True):
            people = next((people for people in self._rounds if people.knows([image], [label])[0]), None)
            waiting = Verdict(False, 0.0, -1.0, UNDECIDED, "people have not decided yet")
            verdicts.append(people.judge([image], [label])[0] if people else waiting)
        return verdicts


def load(name: Name, resources: Resources) -> Human | PeopleInRounds:
    """Load exported votes.

    Options: ``rule`` and ``at_least``, if they differ from the campaign's; ``every``, the steps between two
    questions to people inside a walk.
    """
    options: dict[str, Any] = dict(name.options)
    rule, at_least, every = str(options.pop("rule", "")), options.pop("at_least", 0), options.pop("every", 0)
    if options:
        raise UserError(f"human: knows the options rule, at_least and every, not {', '.join(options)}")
    for option, value in (("at_least", at_least), ("every", every)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UserError(f"{option} of human: is a whole number, not {value}")
    if every:
        folder = Path(name.name)
        files = sorted([*folder.glob(FILE), *folder.glob(f"*/{FILE}")])
        if folder.exists() and not folder.is_dir():
            raise UserError(f"human:…?every= takes a folder for the votes of all rounds, which {name.name!r} is not")
        rounds = [read_votes(file).with_rule(rule, at_least) for file in files]
        given = {"every": every, "rule": rule, "at_least": at_least}
        called = f"human:{folder.name}?" + "&".join(f"{key}={value}" for key, value in given.items() if value)
        asked = f"{rule} {at_least}"
        return PeopleInRounds(called, rounds, resources.classes, every=every, rule=asked)
    votes = read_votes(name.name).with_rule(rule, at_least)
    shown = [f"{key}={value}" for key, value in (("rule", rule), ("at_least", at_least)) if value]
    return Human(f"human:{name.name}" + ("?" + "&".join(shown) if shown else ""), votes, resources.classes)
