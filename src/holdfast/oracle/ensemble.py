"""``ensemble:A+B+C?rule=majority|unanimous``: several oracles vote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name, write_options
from holdfast.core.protocols import Oracle, TensorOracle, Verdict
from holdfast.core.types import Image
from holdfast.oracle.classifier import places_of
from holdfast.oracle.loading import Resources, load_member
from holdfast.registry import unknown

if TYPE_CHECKING:
    import torch

RULES = ("majority", "unanimous")


class Ensemble:
    """Accepts an image when more than half of the members accept it, or all.

    ``score`` and ``margin`` are the members' means; what it ``saw`` is what most of them saw, in a tie what the first
    of these did. ``reason`` names who disagreed, also of an image that was accepted.
    """

    def __init__(self, name: str, members: Sequence[Oracle], rule: str) -> None:
        self.name = name
        self.members = tuple(members)
        self.rule = rule
        self.classes = self.members[0].classes
        self.fingerprint = fingerprint([rule, [member.fingerprint for member in members]])
        self.needed = len(members) if rule == "unanimous" else len(members) // 2 + 1
        seen = [answer for member in members for answer in getattr(member, "answers", member.classes)]
        self.answers = tuple(dict.fromkeys([*self.classes, *seen]))

    def judge(self, images: Sequence[Image], labels: Sequence[str]) -> list[Verdict]:
        """Return a verdict per RGB image of any size, from the members' verdicts."""
        places_of(labels, self.classes)
        by_member = [member.judge(images, labels) for member in self.members]
        return [self._joined(given) for given in zip(*by_member, strict=True)]

    def _joined(self, given: Sequence[Verdict]) -> Verdict:
        votes = sum(verdict.accepted for verdict in given)
        seen = [verdict.saw for verdict in given]
        saw = max(seen, key=seen.count)  # the first of the most frequent
        differ = [
            f"{member.name} {verdict.reason}"
            for member, verdict in zip(self.members, given, strict=True)
            if not verdict.accepted
        ]
        count = len(given)
        return Verdict(
            accepted=votes >= self.needed,
            score=sum(verdict.score for verdict in given) / count,
            margin=sum(verdict.margin for verdict in given) / count,
            saw=saw,
            reason=f"{votes} of {count} accept: {'; '.join(differ)}" if differ else "",
        )


class TensorEnsemble(Ensemble):
    """An ensemble whose members all judge batches on their device; ``judge`` gives the same verdicts."""

    members: tuple[TensorOracle, ...]

    def __init__(self, name: str, members: Sequence[TensorOracle], rule: str) -> None:
        super().__init__(name, members, rule)
        place = {answer: position for position, answer in enumerate(self.answers)}
        self._places = [[place[answer] for answer in getattr(member, "answers", member.classes)] for member in members]
        self._moved: dict[Any, list[torch.Tensor]] = {}

    def judge_batch(
        self, batch: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """RGB tensor NCHW in 0..1, places in ``classes`` → accepted, score, margin, place in ``answers``."""
        import torch

        if labels.device not in self._moved:
            self._moved[labels.device] = [torch.tensor(indices, device=labels.device) for indices in self._places]
        given = [member.judge_batch(batch, labels) for member in self.members]
        accepted, score, margin = (torch.stack([judged[column] for judged in given]) for column in range(3))
        seen = torch.stack(
            [places[judged[3]] for places, judged in zip(self._moved[labels.device], given, strict=True)]
        )  # (members, images)
        agreeing = (seen[:, None] == seen[None]).sum(1)
        # The first of the most frequent: argmax does not promise which of several equals it takes, so none are equal.
        first = len(self.members) * agreeing - torch.arange(len(self.members), device=labels.device)[:, None]
        saw = seen.gather(0, first.argmax(0)[None])[0]
        return accepted.sum(0) >= self.needed, score.mean(0), margin.mean(0), saw


def load(name: Name, resources: Resources) -> Ensemble:
    """Load members separated by ``+``. Options except ``rule`` go to every member that is no ensemble itself."""
    options = dict(name.options)
    rule = str(options.pop("rule", RULES[0]))
    if rule not in RULES:
        raise unknown("rule of an ensemble", rule, RULES)
    # Only before a scheme, so that a + in a file's name stays there.
    texts = re.split(r"\+(?=[A-Za-z][\w-]+:)", name.name)
    if len(texts) < 2:
        example = "ensemble:clip:embedded+classifier:embedded:resnet_rho0"
        raise UserError(f"an ensemble has two members or more, as in {example}, not {name.name!r}")
    members = [load_member(f"{text}{write_options(options)}", resources) for text in texts]
    if len({member.fingerprint for member in members}) < len(members):
        raise UserError(f"ensemble:{name.name} has one member twice, whose vote would count double")
    shown = f"ensemble:{'+'.join(member.name for member in members)}" + (f"?rule={rule}" if rule != RULES[0] else "")
    tensors = [member for member in members if isinstance(member, TensorOracle)]
    if len(tensors) == len(members):
        return TensorEnsemble(shown, tensors, rule)
    return Ensemble(shown, members, rule)
