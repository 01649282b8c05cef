"""Published tables as entries, which entries may be compared, and RobustBench's ``model_info`` files as entries.

``printed/*.json`` has the tables of the three papers: each number with where it is, and what is wrong with it.
"""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.files import whole_file
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import unknown
from holdfast.core.numbers import percent
from holdfast.store.foreign import parse_foreign_json
from holdfast_evidence.board.entry import Entry, Score, entry_id, entry_json, parse_entry, read_text


@cache
def printed_entries() -> tuple[Entry, ...]:
    """Return the published tables that come with Holdfast, paper by paper."""
    # The folder of this module's name has no module of its own.
    folder = files("holdfast_evidence.board") / "printed"
    entries: list[Entry] = []
    for file in sorted(folder.iterdir(), key=lambda path: path.name):
        if file.name.endswith(".json"):
            parts = json.loads(file.read_text(encoding="utf8"))
            entries += [parse_entry(json.dumps(part), f"{file.name}, {part['id']}") for part in parts]
    return tuple(entries)


def comparable(entry: Entry, other: Entry) -> tuple[bool, str]:
    """Return whether two entries may be in one table; if not, why, in one sentence.

    Two measured entries need the same images (by hash) and the same settings throughout. A printed one has no hash
    and states little: it needs the same dataset by name, and every setting that it states has to be the other's, too.
    """
    if entry.protocol.name != other.protocol.name:
        ways = _WAYS[entry.protocol.name], _WAYS[other.protocol.name]
        return False, f"They answer different questions: one is measured on {ways[0]}, the other on {ways[1]}."
    if _plain(entry.dataset.name) != _plain(other.dataset.name):
        return False, f"They are about different images: {entry.dataset.name} and {other.dataset.name}."
    hashes = entry.dataset.sha256, other.dataset.sha256
    if all(hashes) and hashes[0] != hashes[1]:
        return False, f"Both datasets are called {entry.dataset.name}, but their images, masks or labels differ."
    if entry.protocol.version != other.protocol.version:
        versions = f"{entry.protocol.version} and {other.protocol.version}"
        return False, f"They follow versions {versions} of the protocol, which count differently."
    if reason := _settings(entry, other):
        return False, reason
    if not {score.name for score in entry.scores} & {score.name for score in other.scores}:
        return False, f"They have no number in common: {entry.scores[0].name} here, {other.scores[0].name} there."
    return True, ""


_WAYS = {
    "static": "images whose surroundings are changed",
    "hard": "generated images that other models fail on",
    "dynamic": "images that are pushed against each model",
}


def _settings(entry: Entry, other: Entry) -> str:
    first, second = entry.protocol.settings, other.protocol.settings
    loose = "printed" in (entry.kind, other.kind)
    stated = set(first if entry.kind == "printed" else ()) | set(second if other.kind == "printed" else ())
    for name in sorted(stated if loose else set(first) | set(second)):
        given = first.get(name), second.get(name)
        if not (_alike(name, *given) if loose else given[0] == given[1]):
            return _difference(name, entry, other)
    return ""


def _difference(name: str, entry: Entry, other: Entry) -> str:
    first, second = entry.protocol.settings.get(name), other.protocol.settings.get(name)
    if isinstance(first, list) and isinstance(second, list):
        only = [name for name in first if name not in second], [name for name in second if name not in first]
        sides = [
            f"only {title} has {', '.join(more[:4])}" + (f" and {len(more) - 4} more" if len(more) > 4 else "")
            for title, more in zip((entry.model.title, other.model.title), only, strict=True)
            if more
        ]
        what = _WORDS.get(name, f"They differ in {name}")
        return f"{what}: {' and '.join(sides) or 'in another order'}."
    if name == "trained_on":
        trained, given = (entry, other) if first is not None else (other, entry)
        return f"{trained.model.title} was trained for the comparison, and {given.model.title} is as it was delivered."
    values = ["not stated" if value is None else _short(value) for value in (first, second)]
    titles = entry.model.title, other.model.title
    return f"They differ in {name.replace('_', ' ')}: {values[0]} for {titles[0]}, {values[1]} for {titles[1]}."


_WORDS = {
    "conditions": "They are measured under different conditions",
    "trained_on": "They are trained under different conditions",
}


def _short(value: Any) -> str:
    text = ", ".join(value) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _alike(name: str, first: Any, second: Any) -> bool:
    """Return whether two names of generators or oracles are alike: some are paths, some words, one within the other."""
    if name in ("generator", "oracle") and isinstance(first, str) and isinstance(second, str):
        left, two = _plain(first), _plain(second)
        return bool(left and two) and (left in two or two in left)
    if isinstance(first, list) and isinstance(second, list):
        return set(first) == set(second)
    return bool(first == second)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


THREATS = ("Linf", "L2", "corruptions")
DATASETS = {"cifar10": ("CIFAR10", 10), "cifar100": ("CIFAR100", 100), "imagenet": ("ImageNet", 1000)}
CORRUPTED = {
    "corruptions_acc": "corrupted_accuracy",
    "corruptions_acc_2d": "corrupted_accuracy",
    "corruptions_acc_3d": "corrupted_accuracy_3d",
    "corruptions_mce": "mean_corruption_error",
    "corruptions_mce_2d": "mean_corruption_error",
    "corruptions_mce_3d": "mean_corruption_error_3d",
}
_FAR = 0.01  # a difference between a paper's own number and RobustBench's that is worth a sentence


def import_model_info(files: list[Path], out: Path, *, threat: str = "") -> list[Path]:
    """Write an entry per file, or none if one of the files is wrong; return the JSON files."""
    if threat and threat not in THREATS:
        raise unknown("threat model", threat, THREATS)
    entries = [model_info(path, threat=threat) for path in files]
    names = [entry.id for entry in entries]
    paths = [out / f"{entry.id}.json" for entry in entries]
    for entry, path in zip(entries, paths, strict=True):
        # The same entry is what a command that was killed has written already.
        if names.count(entry.id) > 1 or (path.exists() and path.read_text("utf8") != entry_json(entry)):
            raise UserError(f"{entry.id} is there already: the same model with the same numbers")
    for entry, path in zip(entries, paths, strict=True):
        with whole_file(path, alone=True) as temporary:
            temporary.write_text(entry_json(entry), encoding="utf8")
    return paths


def model_info(path: Path, *, threat: str = "") -> Entry:
    """Return one file as an entry: ``standard_accuracy`` and ``robust_accuracy``, or accuracies under corruptions."""
    content = parse_foreign_json(read_text(path), path.name)
    if not isinstance(content, dict) or "clean_acc" not in content:
        raise UserError(f"{path.name} is not a model_info of RobustBench: it has no clean_acc")
    if not threat:
        folder = path.resolve().parent.name
        threat = "corruptions" if any(name in content for name in CORRUPTED) else folder
        if threat not in THREATS:
            raise UserError(f"{path.name} does not say its threat model; --threat takes {', '.join(THREATS)}")
    known = _text(content, "dataset").lower() or path.resolve().parent.parent.name.lower()
    if known not in DATASETS:
        raise UserError(f"{path.name} is about {known[:40]!r}; RobustBench has {', '.join(DATASETS)}")
    dataset, classes = DATASETS[known]
    scores = _scores(content, threat, path.name)
    attack = {"attack": "corruptions"} if threat == "corruptions" else {"attack": "AutoAttack", "norm": threat}
    settings: dict[str, Any] = {**attack, "epsilon": _epsilon(content, path.name) if threat != "corruptions" else None}
    settings = {name: value for name, value in settings.items() if value is not None}
    protocol = "static" if threat == "corruptions" else "dynamic"
    title = f"{_text(content, 'architecture') or path.stem} ({path.stem})"
    digest = fingerprint([settings, [score.model_dump() for score in scores], path.stem])
    extra = "trained with additional data" if content.get("additional_data") is True else ""
    note = "; ".join(filter(None, (*(_text(content, key) for key in ("name", "authors", "venue")), extra)))[:2000]
    entry = {
        "kind": "printed",
        "id": entry_id(path.stem, dataset, protocol, digest),
        "model": {"name": path.stem, "title": title[:200], "paper": _link(content), "note": note},
        "dataset": {"name": dataset, "classes": classes},
        "protocol": {"name": protocol, "settings": settings},
        "scores": [score.model_dump() for score in scores],
        "source": {"title": "RobustBench", "where": f"model_info, {threat}, {path.name}"[:200]},
        "slips": _slips(content, scores),
    }
    return parse_entry(json.dumps(entry), path.name)


def _scores(content: dict[str, Any], threat: str, name: str) -> list[Score]:
    scores = [Score(name="standard_accuracy", estimate=_share(content, "clean_acc", name))]
    if threat == "corruptions":
        for key, title in CORRUPTED.items():
            # a mean corruption error above 100 % is a model worse than AlexNet
            if _text(content, key) and title not in {score.name for score in scores}:
                scores.append(Score(name=title, estimate=_share(content, key, name, most=1000)))
    else:
        # if a later, stronger attack was tried, RobustBench ranks by it
        key = "external" if _text(content, "external") else "autoattack_acc"
        scores.insert(0, Score(name="robust_accuracy", estimate=_share(content, key, name)))
    if _text(content, "reported"):
        scores.append(Score(name="reported_accuracy", estimate=_share(content, "reported", name)))
    if len(scores) < 2:
        raise UserError(f"{name} has no robust accuracy")
    return scores


def _share(content: dict[str, Any], key: str, name: str, *, most: float = 100) -> float:
    try:
        value = float(_text(content, key).rstrip("%"))
    except ValueError:
        raise UserError(f"{name}: {key} is not a percentage") from None
    if not (math.isfinite(value) and 0 <= value <= most):
        raise UserError(f"{name}: {key} is not a percentage")
    return round(value / 100, 8)


def _epsilon(content: dict[str, Any], name: str) -> str | None:
    text = _text(content, "eps")
    if not text:
        return None
    try:
        fine = len(text) <= 20 and 0 < Fraction(text) <= 1000
    except (ValueError, ZeroDivisionError):
        fine = False
    if not fine:
        raise UserError(f"{name}: eps is not a number such as 8/255")
    return text


def _slips(content: dict[str, Any], scores: list[Score]) -> list[str]:
    by_name = {score.name: score.estimate for score in scores}
    slips = []
    robust, reported = by_name.get("robust_accuracy"), by_name.get("reported_accuracy")
    if robust is not None and reported is not None and reported - robust > _FAR:
        slips.append(f"The paper reports {percent(reported, 2)}; RobustBench found {percent(robust, 2)}.")
    external, auto = _text(content, "external"), _text(content, "autoattack_acc")
    if external and auto and external != auto:
        slips.append(f"AutoAttack alone gives {auto[:20]} %; a stronger attack is shown.")
    if content.get("unreliable") is True:
        slips.append("RobustBench marks this evaluation as unreliable.")
    if footnote := _text(content, "footnote"):
        slips.append(f"Footnote: {footnote}")
    return slips


def _text(content: dict[str, Any], key: str) -> str:
    value = content.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value.strip()[:1000] if isinstance(value, str) else ""


def _link(content: dict[str, Any]) -> str:
    link = _text(content, "link").replace("http://", "https://")
    return link if link.startswith("https://") and len(link) <= 500 and not any(c in link for c in "\"'<> \n\t") else ""
