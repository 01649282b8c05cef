"""``human:VOTES?rule=recognisable|usable&at_least=6``: people who judged these very images, from exported votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import array_sha256, fingerprint
from holdfast.core.names import Name
from holdfast.core.protocols import Verdict
from holdfast.core.types import Image
from holdfast.core.votes import Decision, Votes, read_votes
from holdfast.oracle.classifier import places_of
from holdfast.oracle.loading import Resources

NOBODY = "nobody judged this image"


class Human:
    """Accepts what at least so many people accept. It knows images by their exact pixels.

    ``score`` is the share of people who say yes, ``margin`` that less the share who say no; an image that nobody judged
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


def load(name: Name, resources: Resources) -> Human:
    """Load exported votes. Options: ``rule`` and ``at_least``, where they differ from the campaign's."""
    options: dict[str, Any] = dict(name.options)
    rule, at_least = str(options.pop("rule", "")), options.pop("at_least", 0)
    if options:
        raise UserError(f"human: knows the options rule and at_least, not {', '.join(options)}")
    if isinstance(at_least, bool) or not isinstance(at_least, int):
        raise UserError(f"at_least of human: is a whole number, not {at_least}")
    votes = read_votes(name.name).with_rule(rule, at_least)
    shown = [f"{key}={value}" for key, value in (("rule", rule), ("at_least", at_least)) if value]
    return Human(f"human:{name.name}" + ("?" + "&".join(shown) if shown else ""), votes, resources.classes)
