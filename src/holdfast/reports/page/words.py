"""Names, lists and counts as people read them; numbers are in ``core/numbers.py``."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from holdfast.core.names import condition_words, without_object


def listing(items: Sequence[str], most: int = 4) -> str:
    """Return ``a, b and c``; a long list ends in ``and 7 more``."""
    shown = list(items) if len(items) <= most else [*items[: most - 1], f"{len(items) - most + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """Return ``1 image`` or ``1,200 images``."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def unbroken(text: str) -> str:
    """Return text that no line break takes apart."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def page_facts(*counts: tuple[int, str] | tuple[int, str, str]) -> list[tuple[str, str]]:
    """Return (number, noun) pairs for the top of a page, from (count, singular, plural if it is irregular)."""
    return [(f"{count:,}", noun if count == 1 else (*nouns, f"{noun}s")[0]) for count, noun, *nouns in counts]


DAGGER = "† The object is not in the image: a right answer there comes from something else."


def condition_label(name: str) -> str:
    """Return a condition as words, with a dagger if the object is gone."""
    return condition_words(name) + (" †" if without_object(name) else "")


_ENDING = re.compile(r"\.(onnx|pt2?|pth|safetensors|xml|tflite|engine)$")


def short_names(models: Sequence[str], limit: int = 28) -> dict[str, str]:
    """Return distinct names that fit next to a chart: without a shared scheme, long ones cut in the middle.

    Options and the ending of a file's name are left out where the names stay distinct: ``yolox_nano``.
    """
    schemes = {model.partition(":")[0] for model in models if ":" in model}
    plain = all(":" in model for model in models) and len(schemes) == 1
    short: dict[str, str] = {}
    bare = {model: _ENDING.sub("", model.partition("?")[0]) for model in models}
    if len(set(bare.values())) < len(bare):
        bare = {model: model for model in models}
    for model in models:
        name = bare[model].partition(":")[2] if plain else bare[model]
        if len(name) > limit:
            name = f"{name[: limit - 11]}…{name[-10:]}"
        copy, count = name, 2
        while copy in short.values():
            copy, count = f"{name} ({count})", count + 1
        short[model] = copy
    return short


_SYNSETS = ("imagenet_synsets.txt", "imagenet_synset_to_lemma.txt")


@cache
def _imagenet() -> dict[str, str]:
    """Return WordNet id, ``imagenet 305`` and all names in a row → the first name of a class, as timm ships them."""
    spec = importlib.util.find_spec("timm")
    folder = Path(spec.origin if spec and spec.origin else "").parent / "data" / "_info"
    if not all((folder / name).is_file() for name in _SYNSETS):
        return {}
    ids, lines = ((folder / name).read_text(encoding="utf8").splitlines() for name in _SYNSETS)
    names = dict(line.split("\t", 1) for line in lines if "\t" in line)
    first = {key: names[key].split(",")[0] for key in ids if key in names}
    rows = {names[key]: first[key] for key in first}
    return first | rows | {f"imagenet {place}": first[key] for place, key in enumerate(ids) if key in first}


def class_words(name: str) -> str:
    """Return a class as words: ``n02110958`` and ``imagenet 254`` as ``pug``, ``pug, pug-dog`` too, without ``_``."""
    if ", " in name or re.fullmatch(r"n\d{8}|imagenet[ _]\d{1,3}", name):
        name = _imagenet().get(name.replace("_", " "), name)
    return name.replace("_", " ").strip() or name


def class_names(names: Iterable[str]) -> dict[str, str]:
    """Return class → its words; the names themselves if two classes would get the same words."""
    words = {str(name): class_words(str(name)) for name in names}
    return words if len(set(words.values())) == len(words) else {name: name for name in words}


def compare_step(run: str, models: Sequence[str], early: bool = False) -> tuple[str, str]:
    """Return the release gate as a thing to do, with its command: of a run with several models one is named."""
    old = " --sequential" if early else ""
    if len(models) > 1:
        place, names = shlex.quote(run), [shlex.quote(name) for name in models[:2]]
        command = f"holdfast compare {place} {place} --old-model {names[0]} --new-model {names[1]}{old}"
        return f"May {models[1]} replace {models[0]}, image by image?", command
    return (
        "Before a new version goes out, compare it with this one.",
        f"holdfast compare {shlex.quote(run)} NEW_RUN{old}",
    )


def sentence(text: str) -> str:
    """Return the text with a capital letter, unless it begins with a model's name (embedded:vit_rho95)."""
    return text if ":" in text.split(" ")[0] else text[:1].upper() + text[1:]
