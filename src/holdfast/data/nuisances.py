"""Parts of prompts: categories, nuisances by kind, templates; also Broden's and ObjectNet's lists."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.files import read_toml
from holdfast.core.names import unknown
from holdfast.core.types import ClassKeys
from holdfast.data.labels import read_label_file

KINDS = ("background", "texture", "material")
PHOTO_TEMPLATES: Mapping[str, str] = {
    "background": "a photo of a {category} in a {nuisance}",
    "texture": "a photo of a {category} with a {nuisance} texture",
    "material": "a photo of a {category} made of {nuisance}",
}
"""Our own templates; those of ImageNet-D are not published."""

_BRODEN = {"scene": "background", "texture": "texture", "material": "material"}
_PLACEHOLDERS = ("category", "nuisance")
_ARTICLE = re.compile(r"\b([Aa])n? (?=\{(category|nuisance)\})")
_VOWEL_SOUND = re.compile(r"(?!eu|one\b)[aeio]|u(?!n[iu]|t[ei]|k|s[eu]|ri)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Category:
    """The class that an image should show, and the model outputs that mean it, if known."""

    name: str
    keys: ClassKeys = field(default_factory=ClassKeys)


@dataclass(frozen=True, slots=True)
class Nuisance:
    """A background, texture or material, its kind, and the words for it in a prompt."""

    kind: str
    name: str
    words: str


def read_categories(place: str | Path) -> list[Category]:
    """Return the categories of a file or folder, in order.

    Text has one a line (``#`` begins a comment). CSV is a label file (see ``read_label_file``): a class and its
    aliases. A folder, or a JSON file in one, is ObjectNet's ``mappings``.
    """
    path = _there(place, "list of categories")
    if path.is_dir() or path.suffix.lower() == ".json":
        return _objectnet(path if path.is_dir() else path.parent)
    if path.suffix.lower() == ".csv":
        categories = [Category(name, keys) for name, keys in read_label_file(path).items()]
        check_mapped(categories, path.name)
    else:
        categories = [Category(line) for line in _lines(path)]
    if not categories:
        raise UserError(f"the list of categories {path.name} is empty")
    return categories


def with_labels(categories: Iterable[Category], file: str | Path) -> list[Category]:
    """Return the categories with the keys of a label file, which must have all of them."""
    keys = read_label_file(file)
    chosen = [Category(category.name, keys.get(category.name, ClassKeys())) for category in categories]
    check_mapped(chosen, Path(file).name)
    return chosen


def check_mapped(categories: Iterable[Category], file_name: str) -> None:
    """Raise UserError if a category has no key."""
    lost = [category.name for category in categories if category.keys == ClassKeys()]
    if lost:
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        raise UserError(
            f"no label mapping for {', '.join(map(repr, lost[:5]))}{more}: {file_name} should give an imagenet_index, "
            "wnid or label for every category"
        )


def read_nuisances(place: str | Path) -> list[Nuisance]:
    """Return the nuisances of a file or folder, in order.

    TOML has a table or list a kind (``[background]``, ``beach = "on a beach"``, or ``background = ["beach"]``); CSV the
    columns kind, name and, if a prompt should say it differently, words; text ``kind: name`` a line. A folder is
    Broden's: ``c_scene.csv`` (backgrounds), ``c_texture.csv`` and ``c_material.csv``, or ``label.csv`` alone.
    """
    path = _there(place, "list of nuisances")
    if path.is_dir():
        nuisances = _broden(path)
    elif path.suffix.lower() == ".toml":
        nuisances = list(_of_toml(path))
    elif path.suffix.lower() in (".csv", ".tsv"):
        nuisances = _of_csv(path)
    else:
        pairs = [line.partition(":") for line in _lines(path)]
        nuisances = [_nuisance(kind.strip(), name, "", path.name) for kind, _, name in pairs]
    if not nuisances:
        raise UserError(f"the list of nuisances {path.name} is empty")
    return nuisances


def read_templates(place: str | Path) -> dict[str, str]:
    """Return checked templates by kind from TOML: ``background = "a photo of a {category} in a {nuisance}"``."""
    path = _there(place, "file of templates")
    templates = read_toml(path, "--templates")
    for kind, template in templates.items():
        if kind not in KINDS:
            raise unknown("kind of nuisance", kind, KINDS)
        if not isinstance(template, str):
            raise UserError(f"the template {kind} of {path.name} should be a text")
        check_template(kind, template)
    return templates


def check_template(kind: str, template: str) -> None:
    """Raise UserError unless a template has both placeholders and no other."""
    said = re.findall(r"\{([^{}]*)\}", template)
    strange = [name for name in said if name not in _PLACEHOLDERS]
    if strange or re.search(r"[{}]", re.sub(r"\{[^{}]*\}", "", template)):
        what = f"the placeholder {{{strange[0]}}}" if strange else "a brace without its partner"
        raise UserError(f"the template {kind} has {what}; it may have {{category}} and {{nuisance}}: {template!r}")
    missing = [name for name in _PLACEHOLDERS if name not in said]
    if missing:
        raise UserError(f"the template {kind} lacks its placeholder {{{missing[0]}}}: {template!r}")


def fill(template: str, category: str, nuisance: str) -> str:
    """Return the prompt of a checked template; an article before a placeholder fits the word: a car, an airship."""
    words = {"category": category, "nuisance": nuisance}

    def followed(match: re.Match[str]) -> str:
        return f"{match[1]}{article(words[match[2]])[1:]} "

    with_articles = _ARTICLE.sub(followed, template)
    return re.sub(r"\{(category|nuisance)\}", lambda match: words[match[1]], with_articles)


def article(name: str) -> str:
    """Return ``a`` or ``an`` by the sound of a name: an airship, a unicycle."""
    return "an" if _VOWEL_SOUND.match(name) else "a"


def _there(place: str | Path, what: str) -> Path:
    path = Path(place).expanduser()
    if not path.exists():
        raise UserError(f"there is no {what} {str(place)!r}")
    return path


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} cannot be read: {error}") from error


def _lines(path: Path) -> list[str]:
    stripped = (line.partition("#")[0].strip() for line in _text(path).splitlines())
    return [line for line in stripped if line]


def _rows(path: Path) -> list[dict[str, str]]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        rows = list(csv.DictReader(_text(path).splitlines(), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise UserError(f"{path.name} cannot be read: {error}") from error
    return [{(key or "").strip(): (value or "").strip() for key, value in row.items() if key} for row in rows]


def _nuisance(kind: str, name: object, words: object, file_name: str) -> Nuisance:
    if kind not in KINDS:
        raise UserError(f"{file_name}: {kind!r} is not a kind of nuisance; kinds are {', '.join(KINDS)}")
    if not isinstance(name, str) or not isinstance(words, str) or not name.strip():
        raise UserError(f"{file_name}: a {kind} is a text that is not empty, not {name!r}")
    return Nuisance(kind, name.strip(), words.strip() or name.strip())


def _of_toml(path: Path) -> Iterable[Nuisance]:
    for kind, values in read_toml(path, "--nuisances").items():
        if isinstance(values, dict):
            yield from (_nuisance(kind, name, words, path.name) for name, words in values.items())
        elif isinstance(values, list):
            yield from (_nuisance(kind, name, "", path.name) for name in values)
        else:
            raise UserError(f"{path.name}: {kind} should be a list of names, or a table of names and words")


def _of_csv(path: Path) -> list[Nuisance]:
    rows = _rows(path)
    if rows and {"kind", "name"} <= set(rows[0]):
        return [_nuisance(row["kind"], row["name"], row.get("words", ""), path.name) for row in rows]
    kind = _BRODEN.get(path.stem.removeprefix("c_"))
    if rows and kind and {"code", "name"} <= set(rows[0]):
        return [_broden_name(kind, row, path.name) for row in rows]
    if rows and {"number", "name", "category"} <= set(rows[0]):
        return _broden_labels(rows, path.name)
    raise UserError(f"{path.name} needs the columns kind and name (and, if you like, words), or Broden's")


def _broden(folder: Path) -> list[Nuisance]:
    files = [folder / f"c_{category}.csv" for category in _BRODEN]
    if all(file.is_file() for file in files):
        return [nuisance for file in files for nuisance in _of_csv(file)]
    if (folder / "label.csv").is_file():
        return _of_csv(folder / "label.csv")
    raise UserError(
        f"{folder.name} is not Broden's folder: it has neither label.csv nor all of "
        f"{', '.join(file.name for file in files)}"
    )


def _broden_labels(rows: Iterable[Mapping[str, str]], file_name: str) -> list[Nuisance]:
    """Return what each label occurs as, and how often, from cells like ``material(36);object(3)``."""
    by_kind: dict[str, list[Nuisance]] = {kind: [] for kind in _BRODEN.values()}
    for row in rows:
        for category in re.findall(r"(\w+)(?:\(\d+\))?", row["category"]):
            if category in _BRODEN:
                kind = _BRODEN[category]
                by_kind[kind].append(_broden_name(kind, row, file_name))
    return [nuisance for kind in by_kind.values() for nuisance in kind]


def _broden_name(kind: str, row: Mapping[str, str], file_name: str) -> Nuisance:
    """Return a scene's name without Broden's ending ``-s``, which marks scenes."""
    name = row["name"].removesuffix("-s") if kind == "background" else row["name"]
    return _nuisance(kind, re.sub(r"[_-]+", " ", name), "", file_name)


def _objectnet(folder: Path) -> list[Category]:
    """Return the classes that ObjectNet shares with ImageNet, from its ``mappings`` folder.

    ``objectnet_to_imagenet_1k.json`` has the names of ImageNet classes, joined by ";". Which outputs these are, the
    files ``imagenet_to_label_2012_v2`` and ``pytorch_to_imagenet_2012_id.json`` say, if they are there.
    """
    place = folder / "mappings" if (folder / "mappings").is_dir() else folder
    file = place / "objectnet_to_imagenet_1k.json"
    if not file.is_file():
        raise UserError(f"{folder.name} is not ObjectNet's folder of mappings: it has no {file.name}")
    index_of = _imagenet_indices(place)
    nuisances = []
    for label, names in _json_texts(file).items():
        wanted = [name.strip() for name in names.split(";") if name.strip()]
        lost = [name for name in wanted if index_of and name not in index_of]
        if not wanted or lost:
            missing = f"{lost[0]!r} is not in imagenet_to_label_2012_v2" if lost else "it names no class"
            raise UserError(f"no label mapping for {label!r} in {file.name}: {missing}")
        keys = (
            ClassKeys(imagenet_indices=tuple(sorted({index_of[name] for name in wanted})))
            if index_of
            else ClassKeys(labels=tuple(wanted))
        )
        nuisances.append(Category(label.strip().lower(), keys))
    listed = place / "folder_to_objectnet_label.json"
    if listed.is_file():
        known = {label.strip().lower() for label in _json_texts(listed).values()}
        strange = [nuisance.name for nuisance in nuisances if nuisance.name not in known]
        if strange:
            raise UserError(f"{file.name} has {strange[0]!r}, which {listed.name} does not know")
    return nuisances


def objectnet_folders(folder: Path) -> dict[str, str]:
    """Return the category of each image folder of ObjectNet, from its ``mappings`` folder."""
    file = folder / "mappings" / "folder_to_objectnet_label.json"
    if not file.is_file():
        raise UserError(f"{folder.name}/mappings has no {file.name}, so nothing says which class a folder is")
    return {name: label.strip().lower() for name, label in _json_texts(file).items()}


def _imagenet_indices(folder: Path) -> dict[str, int]:
    """Return the output of each ImageNet class name; empty if the files are missing."""
    names, numbers = folder / "imagenet_to_label_2012_v2", folder / "pytorch_to_imagenet_2012_id.json"
    if not names.is_file() or not numbers.is_file():
        return {}
    line_of_output = _json_of(numbers, lambda value: isinstance(value, int) and not isinstance(value, bool))
    lines = [line.strip() for line in _text(names).splitlines()]
    first = min(line_of_output.values(), default=0)  # lines are counted from 0 in some copies and from 1 in others
    try:
        return {lines[line - first]: int(output) for output, line in line_of_output.items()}
    except (IndexError, ValueError) as error:
        raise UserError(f"{numbers.name} does not fit {names.name}: {error}") from error


def _json_texts(path: Path) -> dict[str, str]:
    return _json_of(path, lambda value: isinstance(value, str))


def _json_of(path: Path, fits: Callable[[Any], bool]) -> dict[str, Any]:
    try:
        value = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict) or not all(map(fits, value.values())):
        raise UserError(f"{path.name} is not one of ObjectNet's mappings")
    return value
