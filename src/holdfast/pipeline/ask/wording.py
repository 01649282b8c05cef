"""The questions about an image, where their wrong options come from, and which option an answer names."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import json_object, read_toml
from holdfast.core.fingerprint import fingerprint, generator, seed_from
from holdfast.core.names import parse_name, unknown
from holdfast.core.protocols import Refusal
from holdfast.core.types import Collection, Image, Sample
from holdfast.data.labels import LabelMap, normalised
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, load_models
from holdfast.pipeline.jobs.rows import answer_each
from holdfast.pipeline.specs import AskSpec as AskSpec
from holdfast.pipeline.specs.images import FULL_LIST as FULL_LIST
from holdfast.pipeline.specs.images import QUESTIONS, TEMPLATE, TWO_WAY

LETTERS = string.ascii_uppercase

Synonyms = Mapping[str, Sequence[str]]  # class → other words for it

_REFUSALS = re.compile(
    r"\b(sorry|apologi[sz]e|as an ai|(ca ?n[o']?t|can ?not|could(n't| not)|am (un|not )able to|unable to|won't|will not"
    r"|not able to) (\w+ ){0,2}(help|assist|answer|identify|determine|see|view|tell|say|provide|process|analy[sz]e"
    r"|recogni[sz]e|comply|do|choose)|no image|against (my|our) (policy|policies|guidelines))\b"
)
_NEGATIONS = ("not", "no", "non", "neither", "nor", "never", "cannot", "isnt")  # and words that end in n't
_BETWEEN = ("a", "an", "the", "any", "look", "like", "appear", "seem", "to", "be", "see", "show", "contain", "depict")
"""Words that may be between a negation and what it is about; singular, as ``_words`` has them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer says: ``strict`` and ``lenient`` are the option that it names, None for none or several."""

    strict: str | None
    lenient: str | None
    refusal: bool

    @property
    def unmatched(self) -> bool:
        """Return whether the answer is neither an option nor a refusal."""
        return self.lenient is None and not self.refusal


def read_answer(
    answer: str, options: Sequence[str], synonyms: Synonyms, *, classes: Sequence[str] = (), letters: bool = False
) -> Reading:
    """Return which option an answer names."""
    # Strict: the whole answer is one option, as far as case, hyphens, underscores, spaces, quotation marks and a full
    # stop do not matter; or, if the options had letters, its letter, alone or before the option. Lenient: exactly
    # one option, or a synonym of one, occurs in the answer as whole words; articles and regular plurals do not matter,
    # a longer name, of an option or of another of the ``classes``, hides a shorter one inside it ("green lizard" is no
    # "lizard"), and what is negated ("not a fox", "doesn't look like a fox") is not named. An answer that names nothing
    # and speaks like a refusal is one; a ``Refusal`` always is.
    if isinstance(answer, Refusal):
        return Reading(None, None, refusal=True)
    strict = _strict(answer, options, letters=letters)
    lenient = strict or _lenient(answer, options, synonyms, classes)
    return Reading(strict, lenient, refusal=lenient is None and is_refusal(answer))


def is_refusal(answer: str) -> bool:
    """Return whether an answer sounds like a refusal."""
    plain = unicodedata.normalize("NFKC", answer).replace("’", "'").casefold()
    return bool(_REFUSALS.search(plain))


def shown(option: str) -> str:
    """Return a class as a question spells it."""
    return " ".join(option.replace("_", " ").split())


def read_synonyms(path: str | Path | None, classes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return class → synonyms from a TOML file of lines ``class = ["word", "other words"]``."""
    if path is None:
        return {}
    file = Path(path)
    listed = read_toml(file, "--synonyms")
    known = {normalised(name): name for name in classes}
    owner = {_folded(name): name for name in classes}
    synonyms: dict[str, tuple[str, ...]] = {}
    for key, words in listed.items():
        if not isinstance(words, list) or not all(isinstance(word, str) and _words(word) for word in words):
            raise UserError(f'the synonyms of {key!r} in {file.name} should be a list, as in {key} = ["one", "two"]')
        name = known.get(normalised(key))
        if name is None:
            raise unknown("class of the dataset", key, classes)
        for word in words:
            if owner.setdefault(_folded(word), name) != name:
                raise UserError(f"{file.name} gives {word!r} to {name!r}, but it means {owner[_folded(word)]!r}")
        synonyms[name] = tuple(words)
    return synonyms


def _strict(answer: str, options: Sequence[str], *, letters: bool) -> str | None:
    plain = _plain(answer)
    by_name = {_plain(option): option for option in options}
    if plain in by_name:
        return by_name[plain]
    lettered = re.fullmatch(r"\(?([a-z])\)?(?:[.:)]?\s+(.*)|[.:)])?", plain) if letters else None
    if lettered is None:
        return None
    place = LETTERS.index(lettered.group(1).upper())
    if place >= len(options):
        return None
    rest = lettered.group(2)
    return options[place] if not rest or _plain(rest) == _plain(options[place]) else None


def _plain(text: str) -> str:
    """Return one spelling, without the marks around it."""
    return normalised(unicodedata.normalize("NFKC", text)).strip(" \t\n\"'`*“”‘’«».!,;")


def _lenient(answer: str, options: Sequence[str], synonyms: Synonyms, classes: Sequence[str]) -> str | None:
    words = _words(answer)
    spans: list[tuple[int, int, str]] = []
    for option in dict.fromkeys((*options, *classes)):
        for name in (option, *synonyms.get(option, ())):
            sought = _words(name)
            spans += [
                (start, start + len(sought), option)
                for start in range(len(words) - len(sought) + 1)
                if sought and words[start : start + len(sought)] == sought
            ]
    outer = [
        (start, end, option)
        for start, end, option in spans
        if not any(s <= start and end <= e and e - s > end - start and other != option for s, e, other in spans)
    ]
    named = {option for start, _, option in outer if option in options and not _negated(words, start)}
    return named.pop() if len(named) == 1 else None


def _negated(words: Sequence[str], start: int) -> bool:
    before = next((word for word in reversed(words[:start]) if word not in _BETWEEN), "")
    return before in _NEGATIONS or before.endswith("n't")


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).replace("’", "'").casefold()
    return [singular(word) for word in re.findall(r"[^\W_]+(?:'[^\W_]+)?", plain)]


def _folded(text: str) -> str:
    return " ".join(_words(text))


def singular(word: str) -> str:
    """Return a stem that a word and its regular plural share (``knif`` for ``knives`` and ``knife``)."""
    while True:
        stem = word.removesuffix("'s")
        if len(stem) > 3 and stem.endswith("s") and not stem.endswith("ss"):
            stem = stem[:-1]
        if len(stem) > 3:
            for ending, other in (("ie", "y"), ("ve", "f"), ("fe", "f"), ("oe", "o")):
                stem = stem.removesuffix(ending) + other if stem.endswith(ending) else stem
            if stem.endswith(("se", "xe", "ze", "che", "she")):
                stem = stem[:-1]
        if stem == word:
            return word
        word = stem


TRUTH_FIRST, TRUTH_SECOND = "two_way:truth_first", "two_way:truth_second"
STORED = "questions"  # the distractor that ImageNet-D's own question files name


@dataclass(frozen=True, slots=True)
class Question:
    """One question; ``place`` is the true class's place among the options, from 1."""

    protocol: str
    options: tuple[str, ...]
    place: int
    text: str
    distractor: str | None = None


def check(spec: AskSpec, classes: Sequence[str]) -> None:
    """Raise a UserError if the options of the questions contradict each other or the dataset."""
    if not spec.models:
        raise UserError("no model was named; --models a,b lists them (holdfast ls models)")
    if not spec.questions:
        raise UserError(f"no kind of question was named; --questions takes {', '.join(QUESTIONS)}")
    if spec.words.count("{options}") != 1:
        raise UserError(f"a question says once where the options go, as in {TEMPLATE!r}; {spec.words!r} does not")
    if len(classes) < 2:
        raise UserError("there is nothing to choose from: the dataset has one class only")
    if spec.letters and FULL_LIST in spec.questions and len(classes) > len(LETTERS):
        raise UserError(f"letters are enough for {len(LETTERS)} options only, and a full list here has {len(classes)}")
    if TWO_WAY in spec.questions and not spec.distractor:
        raise UserError(
            "two-way questions need --distractor: a model that is not tested here and did not help to choose the "
            f"images, or {STORED} for what an ImageNet-D folder's question files say"
        )


def protocols(spec: AskSpec, sample: Sample) -> list[str]:
    """Return the protocols of the questions about a sample; seed and sample decide the order of two options."""
    asked = []
    if TWO_WAY in spec.questions:
        first = bool(seed_from(spec.seed, sample.sample_id, "truth first") % 2)
        asked += [TRUTH_FIRST] if first or spec.both_orders else []
        asked += [TRUTH_SECOND] if not first or spec.both_orders else []
    return asked + ([FULL_LIST] if FULL_LIST in spec.questions else [])


def question(
    spec: AskSpec, sample: Sample, classes: Sequence[str], protocol: str, distractor: str | None = None
) -> Question:
    """Return the question of a protocol about a sample; seed and sample decide the order of a full list."""
    if protocol == FULL_LIST:
        order = generator(spec.seed, sample.sample_id, "order of the list").permutation(len(classes))
        options = tuple(classes[place] for place in order)
    else:
        assert distractor is not None
        options = (sample.label, distractor) if protocol == TRUTH_FIRST else (distractor, sample.label)
    names = [shown(option) for option in options]
    if spec.letters:
        names = [f"{letter}. {name}" for letter, name in zip(LETTERS, names, strict=False)]
    text = spec.words.replace("{options}", ", ".join(names))
    return Question(protocol, options, options.index(sample.label) + 1, text, distractor)


class Distractors:
    """Chooses the wrong option of a two-way question: with a model, or from question files."""

    def __init__(self, spec: AskSpec, collection: Collection) -> None:
        self.spec = spec
        self.classes = collection.classes
        self.model: Tested | None = None
        self._known = {normalised(name): name for name in collection.classes}
        if TWO_WAY not in spec.questions:
            return
        if spec.distractor == STORED:
            if not any(_listed(sample) for sample in collection.samples):
                raise UserError(
                    f"{spec.data} has no questions/*.csv that name wrong classes; name a model with --distractor"
                )
            return
        _check_mined(spec)
        self.model = load_models(as_evaluation(spec, (spec.distractor,)), collection)[0]

    def fingerprint(self, sample: Sample) -> str:
        """Return a hash that changes whenever the choice for a sample could."""
        return fingerprint(_listed(sample)) if self.model is None else self.model.fingerprint

    def choose(self, samples: Sequence[Sample], images: Sequence[Image]) -> list[str | SampleError]:
        """Return a wrong class per sample, or why there is none."""
        if self.model is None:
            return [self._stored(sample) for sample in samples]
        model = self.model
        ask = lambda some: list(best_of_class(model.classifier.predict(some), model.labels))  # noqa: E731
        answers = answer_each(ask, images)
        return [self._best_wrong(sample, scores) for sample, scores in zip(samples, answers, strict=True)]

    def _best_wrong(self, sample: Sample, scores: NDArray[np.float32] | SampleError) -> str | SampleError:
        if isinstance(scores, SampleError):
            return SampleError(f"the distractor's model fails: {scores}"[:500])
        if not np.isfinite(scores).all():
            return SampleError("the distractor's model answers with numbers that are not finite")
        others = [place for place, name in enumerate(self.classes) if name != sample.label]
        return self.classes[max(others, key=lambda place: (scores[place], -place))]

    def _stored(self, sample: Sample) -> str | SampleError:
        for listed in _listed(sample):
            name = self._known.get(normalised(listed))
            if name is not None and name != sample.label:
                return name
        return SampleError("the question files name no wrong class of the dataset for this image")


def best_of_class(probabilities: NDArray[np.float32], labels: LabelMap) -> NDArray[np.float32]:
    """Return (n, classes): a class scores as its best output does, so that many aliases are no advantage."""
    return np.stack([probabilities[:, list(own)].max(axis=1) for own in labels.members], axis=1)


def as_evaluation(spec: AskSpec, models: tuple[str, ...]) -> EvaluateSpec:
    """Return the settings with which classifiers are loaded."""
    return EvaluateSpec(spec.data, models=models, labels=spec.labels, batch_size=spec.batch_size, device=spec.device)


def check_apart(distractors: Distractors, names: Mapping[str, str]) -> None:
    """Raise a UserError if the distractor's model is tested, too; ``names``: model → fingerprint of its weights."""
    if distractors.model is None:
        return
    own = distractors.model.classifier
    for name, weights in names.items():
        if _without_options(name) == _without_options(distractors.spec.distractor) or weights == own.fingerprint:
            raise UserError(
                f"{distractors.spec.distractor} names the wrong options and is tested on them: it would be wrong on "
                "all that it finds hard; take another --distractor"
            )


def _check_mined(spec: AskSpec) -> None:
    """Raise a UserError if the distractor's model helped to mine the hard set that is asked about."""
    root = Path(parse_name(spec.data, tagged=False).name)
    record = (root if root.is_dir() else root.parent) / "mining" / "run" / "spec.json"
    mined = json_object(record).get("models", [])  # none: not a mined set, or not one of ours
    if any(_without_options(str(name)) == _without_options(spec.distractor) for name in mined):
        raise UserError(
            f"{spec.distractor} took part in choosing these images, so its best wrong class is not a neutral one; take "
            "another --distractor"
        )


def _without_options(name: str) -> str:
    return name.partition("?")[0]


def _listed(sample: Sample) -> list[str]:
    attributes = sample.attributes
    return [str(attributes[name]) for name in ("top1_pred_cate", "top2_pred_cate") if attributes.get(name)]
