"""Find the option that an answer in words names, read strictly and leniently, or that it refuses."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.files import read_toml
from holdfast.core.protocols import Refusal
from holdfast.data.labels import normalised
from holdfast.registry import unknown

LETTERS = string.ascii_uppercase

Synonyms = Mapping[str, Sequence[str]]
"""Class → other words for it."""

_REFUSALS = re.compile(
    r"\b(sorry|apologi[sz]e|as an ai|(ca ?n[o']?t|can ?not|could(n't| not)|am (un|not )able to|unable to|won't|will not"
    r"|not able to) (\w+ ){0,2}(help|assist|answer|identify|determine|see|view|tell|say|provide|process|analy[sz]e"
    r"|recogni[sz]e|comply|do|choose)|no image|against (my|our) (policy|policies|guidelines))\b"
)
_NEGATIONS = ("not", "no", "non", "neither", "nor", "never", "cannot", "isnt")  # and words that end in n't
_BETWEEN = ("a", "an", "the", "any", "look", "like", "appear", "seem", "to", "be", "see", "show", "contain", "depict")
"""Words that may stand between a negation and what it is about; singular, as ``_words`` has them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer says: ``strict`` and ``lenient`` are the option that it names, None for none or several."""

    strict: str | None
    lenient: str | None
    refusal: bool

    @property
    def unmatched(self) -> bool:
        """Whether the answer is neither an option nor a refusal."""
        return self.lenient is None and not self.refusal


def read_answer(
    answer: str, options: Sequence[str], synonyms: Synonyms, *, classes: Sequence[str] = (), letters: bool = False
) -> Reading:
    """Return which option an answer names.

    Strict: the whole answer is one option, as far as case, hyphens, underscores, spaces, quotation marks and a full
    stop do not matter; or, where the options had letters, its letter, alone or before the option. Lenient: exactly one
    option, or a synonym of one, occurs in the answer as whole words; articles and regular plurals do not matter, a
    longer name, of an option or of another of the ``classes``, hides a shorter one inside it ("green lizard" is no
    "lizard"), and what is negated ("not a fox", "doesn't look like a fox") is not named.
    An answer that names nothing and speaks like a refusal is one; a ``Refusal`` always is.
    """
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
