"""What a generator is asked for: a prompt per class, from a TOML table, and strategies to ask for a background."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.files import read_toml, write_atomic
from holdfast.core.names import parse_name, unknown
from holdfast.core.types import ClassKeys, Sample
from holdfast.data.nuisances import article as article
from holdfast.data.published.masked_sets import TWELVE_CLASSES
from holdfast.diorama import vocabulary
from holdfast.diorama.words import DRAWN, check_phrase

PACKAGED = Path(__file__).with_suffix(".toml")
XIMAGENET12 = "ximagenet12"
"""Names the packaged prompts of the twelve classes of XIMAGENET-12; other classes are a mistake then."""

PLACEHOLDERS = ("class", "a class", "background")

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_ENTRIES = ("default", "background", "classes", "backgrounds")


@dataclass(frozen=True)
class Prompts:
    """Prompts by class."""

    default: str  # for classes that have none of their own
    classes: Mapping[str, str] = field(default_factory=dict)  # class → prompt
    # kind → phrase; if a prompt says ``{background}``, one of these is drawn for each image
    backgrounds: Mapping[str, str] = field(default_factory=dict)
    # ``other``: none that is known to be the image's own already; ``same``: its own, which must be known
    wanted: Literal["other", "same"] = "other"

    def of(self, sample: Sample, name: str, rng: np.random.Generator) -> tuple[str, str]:
        """Return the prompt for a sample whose class is spoken ``name``, and its kind of background, or ''."""
        template = self.classes.get(sample.label, self.default)
        kind = ""
        if "{background}" in template:
            own = str(sample.attributes.get("background", ""))
            if self.wanted == "same":
                if own not in self.backgrounds:
                    raise UserError(f"the prompts need the background of {sample.sample_id}, which is not known")
                kind = own
            else:
                others = [background for background in self.backgrounds if background != own] or list(self.backgrounds)
                kind = others[int(rng.integers(len(others)))]
        said = {"class": name, "a class": f"{article(name)} {name}", "background": self.backgrounds.get(kind, "")}
        return _PLACEHOLDER.sub(lambda match: said[match[1]], template), kind

    def table(self) -> dict[str, Any]:
        """Return the prompts as JSON, for the record."""
        return {
            "default": self.default,
            "classes": dict(self.classes),
            "backgrounds": dict(self.backgrounds),
            "wanted": self.wanted,
        }


def spoken(label: str, keys: ClassKeys | None) -> str:
    """Return a class as a prompt says it: the dataset's first other name, else its own without underscores."""
    said = keys.labels[0].partition(",")[0] if keys and keys.labels else label
    return re.sub(r"[\s_]+", " ", said).strip()


def check_spoken(prompts: Prompts, label: str, keys: ClassKeys | None) -> None:
    """Raise a UserError if a prompt would say a number or a WordNet id, which no text tower has read."""
    template = prompts.classes.get(label, prompts.default)
    if "class}" in template and re.fullmatch(r"n\d{8}|[\d\W_]*", spoken(label, keys)):
        raise UserError(f"a prompt has no name for class {label!r}; give it one in a --labels file (label)")


def drawn_prompts() -> Prompts:
    """Return prompts for the embedded world, whose generator knows captions such as "a fox in the snow"."""
    return Prompts("{a class} {background}", backgrounds=vocabulary.BACKGROUNDS)


def prompts_for(generator: str, file: str | None, classes: Sequence[str]) -> Prompts:
    """Return the prompts of a file, or those that come with Holdfast."""
    # ``generator``: its name; ``embedded:`` and ``diorama:`` have prompts of the drawn world. ``file``: TOML,
    # ``ximagenet12`` (a file of that name is written ./ximagenet12), or None. ``classes``: the dataset's.
    if file == XIMAGENET12:
        return _twelve(classes)
    scheme = parse_name(generator).scheme
    if file is not None:
        prompts = read_prompts(Path(file), classes)
        if scheme in DRAWN:
            for kind, phrase in prompts.backgrounds.items():
                check_phrase(generator, "background", kind, phrase)
        return prompts
    if scheme not in DRAWN:
        return prompts_of_table(read_toml(PACKAGED, "--prompts"), PACKAGED.name, classes, strict=False)
    strange = [name for name in classes if spoken(name, None) not in vocabulary.CLASSES]
    if strange and scheme == "embedded":  # diorama: paints the background whatever the class
        raise UserError(
            f"embedded: paints around the twelve drawn classes, and {strange[0]!r} is none of them; name another "
            "--generator, or say with --prompts what it should paint"
        )
    return drawn_prompts()


def _twelve(classes: Sequence[str]) -> Prompts:
    """Return the twelve prompts for classes given by name or by WordNet id; any other class is a UserError."""
    texts = read_toml(PACKAGED, "--prompts")["classes"]
    name_of = {wnid: name for wnid, (name, _) in TWELVE_CLASSES.items()}
    own = {}
    for label in classes:
        name = name_of.get(label, _plain(label))
        if name not in texts:
            raise unknown(f"class with a prompt of {XIMAGENET12}", label, list(texts))
        # A WordNet id says nothing to a text tower, so the class's name takes its place.
        own[label] = texts[name].replace("{a class}", f"{article(name)} {name}").replace("{class}", name)
    return Prompts("", own)


def read_prompts(file: Path, classes: Sequence[str]) -> Prompts:
    """Read ``default``, ``background``, ``[classes]`` and ``[backgrounds]``; UserError for every mistake in them."""
    return prompts_of_table(read_toml(file, "--prompts"), file.name, classes, strict=True)


def prompts_of_table(table: Mapping[str, Any], where: str, classes: Sequence[str], *, strict: bool) -> Prompts:
    """Return prompts from a table as TOML has it."""
    # ``table``: ``default``, ``background``, ``classes``, ``backgrounds``. ``where``: for messages. ``classes``: the
    # dataset's. ``strict``: whether a class that the dataset does not have is a mistake.
    for key in table:
        if key not in _ENTRIES:
            raise unknown(f"entry of {where}", key, _ENTRIES)
    texts = {name: _texts(table.get(name, {}), f"[{name}] of {where}") for name in ("classes", "backgrounds")}
    known = {_plain(name): name for name in classes}
    own: dict[str, str] = {}
    for name, text in texts["classes"].items():
        if _plain(name) in known:
            own[known[_plain(name)]] = text
        elif strict:
            raise unknown(f"class of the dataset (in {where})", name, classes)
    default = table.get("default", "")
    if not isinstance(default, str):
        raise UserError(f"default of {where} must be a prompt, not {type(default).__name__}")
    missing = [name for name in classes if name not in own]
    if missing and not default:
        raise UserError(f"{where} has no prompt for class {missing[0]!r} and no default")
    if default and not set(PLACEHOLDERS) & set(_PLACEHOLDER.findall(default)):
        raise UserError(f"default of {where} lacks its placeholder: write {{class}} where the class's name belongs")
    wanted = table.get("background", "other")
    if wanted not in ("other", "same"):
        raise UserError(f"background of {where} must be other or same, not {wanted!r}")
    prompts = Prompts(default, own, texts["backgrounds"], wanted)
    for name, text in [("default", default), *own.items()]:
        _check(text, f"the prompt {name!r} of {where}", prompts.backgrounds)
    return prompts


def _texts(table: Any, what: str) -> dict[str, str]:
    if not isinstance(table, dict):
        raise UserError(f"{what} must be a table of texts, not {type(table).__name__}")
    for name, text in table.items():
        if not isinstance(text, str):
            raise UserError(f"{name!r} in {what} is a text, not {type(text).__name__}")
        if not text.strip():
            raise UserError(f"{name!r} in {what} is empty")
    return dict(table)


def _check(text: str, what: str, backgrounds: Mapping[str, str]) -> None:
    for name in _PLACEHOLDER.findall(text):
        if name not in PLACEHOLDERS:
            raise unknown(f"placeholder in {what}", name, PLACEHOLDERS)
        if name == "background" and not backgrounds:
            raise UserError(f"{what} says {{background}}, and there is no table [backgrounds] to take one from")
    if set("{}") & set(_PLACEHOLDER.sub("", text)):
        raise UserError(f"{what} has an unmatched brace; placeholders are written {{name}}")


def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", " ", name).strip().lower()


ALL = "all"
ORIGINALS = "originals"  # the name of the row of untouched images, which no strategy may have
PHOTOGRAPHS = Path(__file__).with_name("strategies.toml")


def drawn_strategies() -> dict[str, Prompts]:
    """Return the strategies for drawn scenes, in the words that the embedded generator was trained on."""
    backgrounds = vocabulary.BACKGROUNDS
    usual = [vocabulary.home_background(label, "test") for label in vocabulary.CLASSES]
    return {
        "plain": Prompts("{a class}"),
        "other": Prompts("{a class} {background}", backgrounds=backgrounds),
        "misleading": Prompts("{a class} {background}", backgrounds={kind: backgrounds[kind] for kind in usual}),
        "same": Prompts("{a class} {background}", backgrounds=backgrounds, wanted="same"),
        "scenery": Prompts("{background}", backgrounds=backgrounds),
        "unseen": Prompts("{a class} {background}", backgrounds=vocabulary.UNSEEN_BACKGROUNDS),
    }


MEANING = {
    "plain": "the class and nothing else",
    "other": "the class somewhere other than where it was",
    "misleading": "the class where another class is usually seen",
    "same": "the class where it was: what repainting costs by itself",
    "scenery": "a place other than where it was, without the class",
    "unseen": "the class in places that no embedded classifier was trained on",
    "magazine": "a picture in a fitting magazine",
    "environment": "a fitting environment",
    "keep_foreground": "the foreground to be left alone",
    "consistent": "foreground and background to agree",
    "elsewhere": "a place that may not fit",
}


def strategies_of(file: str, chosen: Sequence[str], classes: Sequence[str], *, drawn: bool) -> dict[str, Prompts]:
    """Return name → prompts, in order."""
    if file or not drawn:
        path = Path(file) if file else PHOTOGRAPHS
        known = {}
        for name, table in read_toml(path, "--prompts").items():
            if not isinstance(table, dict):
                raise UserError(f"{path} must have a table per strategy, and {name!r} is not a table")
            known[name] = prompts_of_table(table, f"{name} in {path.name}", classes, strict=bool(file))
    else:
        known = drawn_strategies()
    for name in known:
        if name == ORIGINALS or not re.fullmatch(r"\w[\w -]{0,39}", name):
            raise UserError(f"{name!r} cannot be the name of a strategy: a few words of letters and digits can")
    if list(chosen) == [ALL]:
        return known
    for name in chosen:
        if name not in known:
            raise unknown("prompt strategy", name, known)
    return {name: known[name] for name in dict.fromkeys(chosen)}


def write_prompts(prompts: Prompts, file: Path) -> Path:
    """Write prompts as a file for ``--prompts``, and return its path; strings of JSON are strings of TOML."""
    lines = [f"default = {_quoted(prompts.default)}", f"background = {_quoted(prompts.wanted)}"]
    for name, table in (("classes", prompts.classes), ("backgrounds", prompts.backgrounds)):
        lines += ["", f"[{name}]", *(f"{_quoted(key)} = {_quoted(text)}" for key, text in table.items())]
    write_atomic(file, ("\n".join(lines) + "\n").encode())
    return file


def _quoted(text: str) -> str:
    # JSON leaves the character DEL as it is, which TOML refuses.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
