"""Import RobustBench's ``model_info`` files as printed entries.

A file says what a paper's model scored; which threat model it is about is only in the folders above it
(``model_info/cifar10/Linf/NAME.json``), so it may be told.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

from holdfast.board.entry import (
    Entry,
    Score,
    entry_id,
    entry_json,
    parse_entry,
    read_text,
)
from holdfast.core.errors import UserError
from holdfast.core.files import whole_file
from holdfast.core.fingerprint import fingerprint
from holdfast.registry import unknown
from holdfast.store.foreign import parse_foreign_json

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
_FAR = 0.01
"""A difference between a paper's own number and RobustBench's that is worth a sentence."""


def import_model_info(files: list[Path], out: Path, *, threat: str = "") -> list[Path]:
    """Write an entry per file, or none if one of the files is wrong; return the JSON files."""
    if threat and threat not in THREATS:
        raise unknown("threat model", threat, THREATS)
    entries = [model_info(path, threat=threat) for path in files]
    names = [entry.id for entry in entries]
    for entry in entries:
        if names.count(entry.id) > 1 or (out / f"{entry.id}.json").exists():
            raise UserError(f"{entry.id} is there already: the same model with the same numbers")
    paths = [out / f"{entry.id}.json" for entry in entries]
    for entry, path in zip(entries, paths, strict=True):
        with whole_file(path) as temporary:
            temporary.write_text(entry_json(entry), encoding="utf8")
    return paths


def model_info(path: Path, *, threat: str = "") -> Entry:
    """Return one file as an entry: ``standard_accuracy`` and ``robust_accuracy``, or accuracies under corruptions."""
    content = _read(path)
    threat = threat or _threat(path, content)
    dataset, classes = _dataset(path, content)
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


def _read(path: Path) -> dict[str, Any]:
    content = parse_foreign_json(read_text(path), path.name)
    if not isinstance(content, dict) or "clean_acc" not in content:
        raise UserError(f"{path.name} is no model_info of RobustBench: it has no clean_acc")
    return content


def _threat(path: Path, content: dict[str, Any]) -> str:
    if any(name in content for name in CORRUPTED):
        return "corruptions"
    if path.resolve().parent.name in THREATS:
        return path.resolve().parent.name
    raise UserError(f"{path.name} does not say its threat model; --threat takes {', '.join(THREATS)}")


def _dataset(path: Path, content: dict[str, Any]) -> tuple[str, int]:
    name = _text(content, "dataset").lower() or path.resolve().parent.parent.name.lower()
    if name not in DATASETS:
        raise UserError(f"{path.name} is about {name[:40]!r}; RobustBench has {', '.join(DATASETS)}")
    return DATASETS[name]


def _scores(content: dict[str, Any], threat: str, name: str) -> list[Score]:
    scores = [Score(name="standard_accuracy", estimate=_share(content, "clean_acc", name))]
    if threat == "corruptions":
        for key, title in CORRUPTED.items():
            # a mean corruption error above 100 % is a model worse than AlexNet
            if _text(content, key) and title not in {score.name for score in scores}:
                scores.append(Score(name=title, estimate=_share(content, key, name, most=1000)))
    else:
        # where a later, stronger attack was tried, RobustBench ranks by it
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
        slips.append(f"The paper reports {100 * reported:.2f} %; RobustBench found {100 * robust:.2f} %.")
    if _text(content, "external") and _text(content, "autoattack_acc") and _text(content, "external") != _text(
        content, "autoattack_acc"
    ):  # fmt: skip
        slips.append(f"AutoAttack alone gives {_text(content, 'autoattack_acc')[:20]} %; a stronger attack is shown.")
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
