"""How the recipes say what a scene shows: prompts for one factor, captions for several, and their tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.diorama.vocabulary import BACKGROUNDS, CLASSES, MATERIALS, TEXTURES, UNSEEN_BACKGROUNDS, caption

PLACES: dict[str, str] = BACKGROUNDS | UNSEEN_BACKGROUNDS
FACTORS: dict[str, tuple[str, ...]] = {
    "class": tuple(CLASSES),
    "background": tuple(PLACES),
    "texture": tuple(TEXTURES),
    "material": tuple(MATERIALS),
}
"""Factor → its values; scenes are rows of places in these, in this order."""

WORDINGS: dict[str, tuple[str, ...]] = {
    "class": (
        "an image of a {value}",
        "an image of an {value}",
        "a photo of a {value}",
        "a picture of a {value}",
        "a drawing of a {value}",
        "a scene with a {value}",
        "a {value}",
        "an {value}",
        "the {value}",
        "{value}",
        "this is a {value}",
        "the object is a {value}",
    ),
    "background": (
        "an image of an object {phrase}",
        "an image of something {phrase}",
        "a photo of something {phrase}",
        "a picture of a thing {phrase}",
        "an object {phrase}",
        "a scene {phrase}",
        "{phrase}",
        "a picture with a {value} background",
        "an image with {value} in the background",
        "{value} background",
        "the background is {value}",
        "{value}",
    ),
    "texture": (
        "an image of a {phrase} object",
        "a photo of a {phrase} thing",
        "a picture of something {phrase}",
        "a {phrase} object",
        "something {phrase}",
        "an object with a {value} texture",
        "an image of an object with {value}",
        "{value} texture",
        "the texture is {value}",
        "{phrase}",
    ),
    "material": (
        "an image of an object {phrase}",
        "a photo of something {phrase}",
        "a picture of a thing {phrase}",
        "an object {phrase}",
        "something {phrase}",
        "{phrase}",
        "an object of {value} material",
        "{value} material",
        "the material is {value}",
        "a {value} object",
    ),
}
"""Ways to ask for one factor: ``value`` is its name, ``phrase`` how captions say it."""

PREFIXES = ("", "", "an image of", "a photo of", "a picture of", "a drawing of", "a scene with")
NOUNS = ("object", "thing")
LENGTH = 20
PAD, UNKNOWN, BEGIN, END = "[pad]", "[unk]", "[begin]", "[end]"


def phrase(factor: str, value: str) -> str:
    """How a caption says a value; the unmarked ones, which captions leave out, have a word of their own too."""
    said = {
        "class": value,
        "background": PLACES.get(value, ""),
        "texture": TEXTURES.get(value) or value,
        "material": MATERIALS.get(value) or f"made of {value} material",
    }
    return said[factor]


def prompts(factor: str, wording: str) -> list[str]:
    """One prompt a value."""
    return [wording.format(value=value, phrase=phrase(factor, value)) for value in FACTORS[factor]]


def draw_caption(rng: np.random.Generator, row: Sequence[int], *, usual_unsaid: bool = False) -> tuple[str, list[bool]]:
    """Return a caption for a scene and which factors it speaks of; what it leaves out fits any value.

    With ``usual_unsaid`` a texture or material that is left out is the usual one, as in ``caption``.
    """
    label, place, texture, material = (values[at] for values, at in zip(FACTORS.values(), row, strict=True))
    if rng.random() < 0.3:
        said = [True, True, bool(TEXTURES[texture]), bool(MATERIALS[material])]
        return caption(label, texture, material, place), said
    said = [bool(u < share) for u, share in zip(rng.random(4), (0.85, 0.5, 0.5, 0.5), strict=True)]
    if usual_unsaid:
        said[2:] = [bool(TEXTURES[texture]), bool(MATERIALS[material])]
    noun = label if said[0] else NOUNS[int(rng.integers(len(NOUNS)))]
    adjective = phrase("texture", texture) if said[2] else ""
    first = adjective or noun
    article = ("an" if first[0] in "aeiou" else "a") if rng.random() < 0.9 else "the"
    words = (
        PREFIXES[int(rng.integers(len(PREFIXES)))],
        article,
        adjective,
        noun,
        phrase("material", material) if said[3] else "",
        PLACES[place] if said[1] else "",
    )
    return " ".join(word for word in words if word), said


def vocabulary() -> list[str]:
    """Every word the prompts and captions above can use."""
    texts = [
        prompt for factor, wordings in WORDINGS.items() for wording in wordings for prompt in prompts(factor, wording)
    ]
    texts += [*PREFIXES, *NOUNS, "a an the"]
    return sorted({word for text in texts for word in text.replace("-", " ").split()})


def filler_words() -> set[str]:
    """Words that name no value of any factor: training sometimes hides them, so that unknown ones do no harm."""
    named = {word for factor, values in FACTORS.items() for value in values for word in phrase(factor, value).split()}
    names = {word for values in FACTORS.values() for value in values for word in value.replace("-", " ").split()}
    small = {"a", "an", "the", "in", "on", "at", "by", "made", "of", "material"}
    return set(vocabulary()) - ((named | names) - small) - {"tone", "two"}


def tokenizer() -> Any:
    """Return a word-level tokenizer in transformers' format, with begin and end marks."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = [PAD, UNKNOWN, BEGIN, END, *vocabulary()]
    inner = tokenizers.Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token=UNKNOWN))
    inner.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(behavior="removed")]
    )
    inner.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}", special_tokens=[(BEGIN, words.index(BEGIN)), (END, words.index(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=PAD,
        unk_token=UNKNOWN,
        bos_token=BEGIN,
        eos_token=END,
        model_max_length=LENGTH,
    )


def token_ids(words: Any, texts: Sequence[str]) -> np.ndarray:
    """(texts, LENGTH) int64, padded; what is not padding is read off the ids."""
    encoded = words(list(texts), padding="max_length", truncation=True, max_length=LENGTH)["input_ids"]
    return np.asarray(encoded, np.int64)
