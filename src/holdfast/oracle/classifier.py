"""``classifier:MODEL``, ``clip:…``, ``ensemble:A+B+C?rule=majority|unanimous``: classifiers as oracles, and votes.

A class scores as its best output does, so that having many names is no advantage; scores are shares among those that
compete: the dataset's classes, or all outputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import torch
from holdfast.core.names import Name, unknown, write_options
from holdfast.core.protocols import Classifier, DifferentiableClassifier, Oracle, TensorOracle, Verdict
from holdfast.core.types import ClassKeys, Image
from holdfast.oracle.loading import AcceptanceRule, LabelMapping, Resources, load_member, take_rule

PAPER_TEMPLATE = "an image of {class}"
EMBEDDED_TEMPLATE = "an image of a {class}"  # as the embedded oracle was trained
EMBEDDED = Path(__file__).parents[1] / "assets" / "oracle"
_BATCH = 64


class ClassifierOracle:
    """An oracle that asks a classifier; ``answers`` are the classes and, with space ``all``, its other outputs."""

    def __init__(
        self, classifier: Classifier, labels: LabelMapping, classes: Sequence[str], rule: AcceptanceRule
    ) -> None:
        self.classifier = classifier
        self.rule = rule
        self.classes = tuple(classes)
        own_name = classifier.name if classifier.name.startswith("clip:") else f"classifier:{classifier.name}"
        self.name = rule.shown(own_name)
        self.fingerprint = fingerprint([classifier.fingerprint, labels.fingerprint, rule])
        claimed = {output for own in labels.members for output in own}
        others = [output for output in range(len(labels.outputs)) if output not in claimed and rule.space == "all"]
        self.answers = (*self.classes, *(labels.outputs[output] for output in others))
        widest = max(len(own) for own in labels.members)
        # Every class as wide as the widest, its first output repeated, which changes no maximum.
        self._best_of = [[*own, *[own[0]] * (widest - len(own))] for own in labels.members]
        self._others = others

    def judge(self, images: Sequence[Image], labels: Sequence[str]) -> list[Verdict]:
        """Return a verdict per RGB image of any size."""
        places = places_of(labels, self.classes)
        if not len(places):
            return []
        probabilities = self.classifier.predict(images).astype(np.float64)
        best = probabilities[:, self._best_of].max(2)
        competing = np.concatenate([best, probabilities[:, self._others]], axis=1)
        total = competing.sum(1, keepdims=True)
        # If nothing that competes has any probability, nothing is seen: no number, so no acceptance.
        shares = np.divide(competing, total, out=np.full_like(competing, np.nan), where=total > 0)
        columns = decided(torch.from_numpy(shares), torch.from_numpy(places), self.rule)
        return verdicts(self.rule, self.answers, labels, *(column.numpy() for column in columns))


class TensorClassifierOracle(ClassifierOracle):
    """An oracle that asks a classifier's network on its device; ``judge`` resizes as a walk does, without cropping."""

    classifier: DifferentiableClassifier

    def __init__(
        self, classifier: DifferentiableClassifier, labels: LabelMapping, classes: Sequence[str], rule: AcceptanceRule
    ) -> None:
        super().__init__(classifier, labels, classes, rule)
        self.device = classifier.device
        self._best = torch.tensor(self._best_of, device=self.device)
        self._rest = torch.tensor(self._others, dtype=torch.long, device=self.device)

    def judge_batch(
        self, batch: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return accepted, score, margin, place in ``answers`` for RGB NCHW in 0..1 and places of classes."""
        with torch.no_grad():
            logits = self.classifier.logits(batch).float()
            competing = torch.cat([logits[:, self._best].amax(2), logits[:, self._rest]], dim=1)
            return decided(competing.softmax(1), labels, self.rule)

    def judge(self, images: Sequence[Image], labels: Sequence[str]) -> list[Verdict]:
        """Return a verdict per RGB image of any size, by ``judge_batch``."""
        places = places_of(labels, self.classes)
        columns = judge_images(self.judge_batch, images, places, self.device)
        return verdicts(self.rule, self.answers, labels, *columns)


def decided(
    shares: torch.Tensor, places: torch.Tensor, rule: AcceptanceRule
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return accepted, score, margin and the best answer of each row of shares, for the places of the true classes."""
    score = shares.gather(1, places[:, None])[:, 0]
    others = shares.scatter(1, places[:, None], 0.0 if shares.shape[1] == 1 else -torch.inf)
    margin, saw = score - others.amax(1), shares.argmax(1)
    return (saw == places) & (score >= rule.min_score) & (margin >= rule.min_margin), score, margin, saw


def places_of(labels: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the index of each label; raise UserError for one that is not a class."""
    place = {name: position for position, name in enumerate(classes)}
    strange = next((label for label in labels if label not in place), None)
    if strange is not None:
        raise unknown("class of the oracle", strange, classes)
    return np.array([place[label] for label in labels], np.int64)


def judge_images(
    judge_batch: Any, images: Sequence[Image], places: NDArray[np.int64], device: str
) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Call ``judge_batch`` for uint8 images, those of one size together; return accepted, score, margin and answer."""
    accepted, saw = np.zeros(len(images), bool), np.zeros(len(images), np.int64)
    score, margin = np.zeros(len(images)), np.zeros(len(images))
    shapes: dict[tuple[int, ...], list[int]] = {}
    for position, image in enumerate(images):
        shapes.setdefault(image.shape, []).append(position)
    # TF32 convolutions are off: they would make verdicts depend on the batch.
    exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    batches = [alike[start : start + _BATCH] for alike in shapes.values() for start in range(0, len(alike), _BATCH)]
    with exact:
        for chosen in batches:
            batch = torch.from_numpy(np.stack([images[position] for position in chosen])).to(device)
            truth = torch.from_numpy(places[chosen]).to(device)
            columns = judge_batch(batch.permute(0, 3, 1, 2).float() / 255, truth)
            for all_of, some in zip((accepted, score, margin, saw), columns, strict=True):
                all_of[chosen] = some.cpu().numpy()
    return accepted, score, margin, saw


def verdicts(rule: AcceptanceRule, answers: Sequence[str], labels: Sequence[str], *columns: Any) -> list[Verdict]:
    """Make verdicts of the columns accepted, score, margin and answer; each rejection has its reason."""
    results = []
    for label, yes, own, lead, place in zip(labels, *columns, strict=True):
        seen = answers[int(place)]
        if yes:
            reason = ""
        elif not np.isfinite(own):
            reason, seen = "no answer", ""
        elif seen != label:
            reason = f"saw {seen}"
        elif own < rule.min_score:
            reason = f"score {own:.3f} is below {rule.min_score:g}"
        else:
            reason = f"margin {lead:.3f} is below {rule.min_margin:g}"
        results.append(Verdict(bool(yes), float(own), float(lead), seen, reason))
    return results


def load(name: Name, resources: Resources) -> Oracle:
    """Load ``classifier:MODEL?options``; options that are not the rule's go to the model."""
    rule, options = take_rule(name)
    if not name.name:
        raise UserError("classifier: names a model, as in classifier:packaged:efficientnet_lite0")
    model = f"{name.name}{write_options(options, name.texts)}"
    classifier = resources.load_classifier(model, device=resources.device, classes=resources.classes)
    return _made(classifier, resources, resources.keys, rule)


def load_clip(name: Name, resources: Resources) -> Oracle:
    """Load ``clip:ARCHITECTURE@WEIGHTS?template=an image of {class}``; ``clip:embedded`` for drawn scenes.

    Prompts take a class's first other name if the dataset gives one, else its own, underscores as spaces.
    """
    rule, options = take_rule(name)
    embedded = name.name == "embedded"
    template = str(options.pop("template", EMBEDDED_TEMPLATE if embedded else PAPER_TEMPLATE)).replace("{}", "{class}")
    if options:
        raise unknown("option of clip:", next(iter(options)), ["template", "min_score", "min_margin", "space", "name"])
    names = [_spoken(label, resources.keys.get(label)) for label in resources.classes]
    if embedded:
        _check_words(resources.classes, names)
    model = f"clip:{name.name}?template={quote(template)}"
    classifier = resources.load_classifier(model, device=resources.device, classes=tuple(names))
    # The prompts are the dataset's classes in other words: each is found again by the word it was given.
    keys = {own: ClassKeys(labels=(word,)) for own, word in zip(resources.classes, names, strict=True)}
    return _made(classifier, resources, keys, rule)


def _made(classifier: Classifier, resources: Resources, keys: Any, rule: AcceptanceRule) -> ClassifierOracle:
    labels = resources.map_labels(resources.classes, keys, classifier.labels)
    if isinstance(classifier, DifferentiableClassifier):
        return TensorClassifierOracle(classifier, labels, resources.classes, rule)
    return ClassifierOracle(classifier, labels, resources.classes, rule)


def _spoken(name: str, keys: ClassKeys | None) -> str:
    """Return a class as prompts say it; raise UserError for a number or a WordNet id, which text towers do not know."""
    spoken = keys.labels[0].partition(",")[0] if keys and keys.labels else name
    if re.fullmatch(r"n\d{8}|[\d\W_]*", spoken):
        raise UserError(f"an oracle that reads has no name for class {name!r}; give it one in a --labels file (label)")
    return re.sub(r"[\s_]+", " ", spoken).strip()


def _check_words(classes: Sequence[str], names: Sequence[str]) -> None:
    """Raise UserError for classes whose words the embedded oracle does not know."""
    file = EMBEDDED / "tokenizer.json"
    if not file.is_file():
        return  # the classifier's loader says that it is not installed
    words = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    for own, spoken in zip(classes, names, strict=True):
        strange = [word for word in spoken.lower().split() if word not in words]
        if strange:
            raise UserError(
                f"the embedded oracle has no name for class {own!r}: it never read {strange[0]!r}; it knows drawn "
                "scenes only"
            )


ENSEMBLE_RULES = ("majority", "unanimous")


class Ensemble:
    """Accepts an image when more than half of the members do, or all; scores are means, ``saw`` the most frequent."""

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


def load_ensemble(name: Name, resources: Resources) -> Ensemble:
    """Load members separated by ``+``. Options except ``rule`` go to every member that is not an ensemble itself."""
    options = dict(name.options)
    rule = str(options.pop("rule", ENSEMBLE_RULES[0]))
    if rule not in ENSEMBLE_RULES:
        raise unknown("rule of an ensemble", rule, ENSEMBLE_RULES)
    # Only before a scheme, so that a + in a file's name stays there.
    texts = re.split(r"\+(?=[A-Za-z][\w-]+:)", name.name)
    if len(texts) < 2:
        example = "ensemble:clip:embedded+classifier:embedded:resnet_rho0"
        raise UserError(f"an ensemble has two members or more, as in {example}, not {name.name!r}")
    members = [load_member(f"{text}{write_options(options, name.texts)}", resources) for text in texts]
    if len({member.fingerprint for member in members}) < len(members):
        raise UserError(f"ensemble:{name.name} has one member twice, whose vote would count double")
    shown = f"ensemble:{'+'.join(member.name for member in members)}" + (
        f"?rule={rule}" if rule != ENSEMBLE_RULES[0] else ""
    )
    tensors = [member for member in members if isinstance(member, TensorOracle)]
    if len(tensors) == len(members):
        return TensorEnsemble(shown, tensors, rule)
    return Ensemble(shown, members, rule)
