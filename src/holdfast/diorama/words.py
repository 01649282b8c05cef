"""What generators of the drawn world can be asked for: each kind of word, its names, and their phrases in a prompt."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.errors import UserError
from holdfast.diorama.vocabulary import BACKGROUNDS, CLASSES, MATERIALS, TEXTURES, UNSEEN_BACKGROUNDS

DRAWN = ("embedded", "diorama")
"""Schemes of the generators that know the words of the drawn world, and no others."""

CATEGORY = "category"
WORDS: Mapping[str, Mapping[str, str]] = {
    CATEGORY: {name: name for name in CLASSES},
    "background": BACKGROUNDS | UNSEEN_BACKGROUNDS,
    "texture": {name: phrase for name, phrase in TEXTURES.items() if phrase},
    "material": {name: phrase for name, phrase in MATERIALS.items() if phrase},
}
"""Kind → name → phrase; the plain texture and the natural material are what captions leave out."""

CHANGES: dict[str, dict[str, object]] = {
    "tiny": {"scale": 0.35}, "huge": {"scale": 1.0},
    "in dim light": {"brightness": 0.5}, "in bright light": {"brightness": 1.35},
    "tilted": {"rotation": 40.0}, "partly hidden": {"occluder": "leaves", "occlusion": 0.25},
}  # fmt: skip
"""Phrases about size, light, pose and occlusion, and the factors of a scene that the renderer sets for them."""

_EMPTY = frozenset(
    ("a", "an", "the", "photo", "photograph", "picture", "image", "drawing", "scene", "of", "with", "and", "texture")
)


def named(prompt: str, phrases: Mapping[str, str]) -> str | None:
    """Return the name whose phrase is in a prompt as whole words, the longest of several; None without one."""
    text = _spaced(prompt)
    present = [name for name, phrase in phrases.items() if phrase and f" {phrase} " in text]
    return max(present, key=lambda name: len(phrases[name]), default=None)


def unread(prompt: str) -> str:
    """Return the words of a prompt that change nothing in what the renderer draws."""
    text = _spaced(prompt)
    phrases = [*CHANGES, *(phrase for kinds in WORDS.values() for phrase in kinds.values())]
    for phrase in sorted(phrases, key=len, reverse=True):
        text = text.replace(f" {phrase} ", " ")
    return " ".join(word for word in text.split() if word not in _EMPTY)


def paintable(generator: str, kind: str, name: str, words: str = "") -> tuple[str, str]:
    """Return name and phrase of what a user calls ``name`` and says in ``words``.

    A UserError lists what can be painted, or says that the words mean something else than the name.
    """
    phrases = WORDS[kind]
    known = name if name in phrases else None
    phrase = named(words, phrases)
    said = phrase or (words if words in phrases else None)
    chosen = known or said or named(name, phrases)
    if chosen is None:
        raise UserError(
            f"{generator} cannot paint the {kind} {name!r}. It paints {', '.join(phrases)} "
            f"(holdfast ls {'categories' if kind == CATEGORY else 'nuisances'} --generator {generator})"
        )
    if known and said and known != said:
        raise UserError(f"the {kind} {name!r} is asked for as {words!r}, for which {generator} paints {said!r}")
    return chosen, words if phrase else phrases[chosen]


def check_phrase(generator: str, kind: str, name: str, phrase: str) -> None:
    """Raise a UserError unless a generator can paint a phrase, and paints what its name says."""
    if named(phrase, WORDS[kind]) is None:
        paintable(generator, kind, phrase)
    paintable(generator, kind, name, phrase)


def check_said(generator: str, prompt: str, wanted: Mapping[str, str]) -> None:
    """Raise a UserError unless a generator reads from a prompt what is wanted of each kind."""
    for kind, name in wanted.items():
        read = named(prompt, WORDS[kind])
        if read != name:
            painted = f"the {kind} {read!r}" if read else f"any {kind}"
            raise UserError(
                f"{generator} would paint {painted} for the prompt {prompt!r}, which should show {name!r}; "
                f"the template has to say {WORDS[kind][name]!r}"
            )


def _spaced(prompt: str) -> str:
    return f" {' '.join(prompt.lower().replace(',', ' ').replace('.', ' ').split())} "
