"""What to take, in sentences: the most accurate model if it stands out, else the cheapest of the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import percent, points, span
from holdfast.stats.models.choice import ModelChoice

MEGA = 1e6


@dataclass(frozen=True)
class Recommendation:
    """The model to take, empty if nothing decides; and why, in sentences."""

    model: str
    sentences: tuple[str, ...]


def recommend(choice: ModelChoice) -> Recommendation:
    """Return what to take: the most accurate if it stands out, else the cheaper of those not distinguished."""
    table = choice.models
    if not choice.best:
        why = "; ".join(f"{row['model']}: {row['why_not']}" for row in table.to_dict("records")[:6])
        return Recommendation("", (f"No model is known to hold the limits ({why}).",))
    rows = {str(row["model"]): row for row in table.to_dict("records")}
    model, first = _first(choice, rows)
    sentences = [first, *_left_out(table), *_sensitive(choice)]
    if choice.dropped:
        sentences.append(
            f"{choice.dropped} images that not every model answered under a weighted condition count for none."
        )
    unknown = [name for name in choice.together if math.isnan(rows[name]["milliseconds"])]
    if unknown and len(choice.together) > 1:
        why = rows[unknown[0]]["reason"] or "no figure"
        sentences.append(f"Speed is not known of {', '.join(unknown[:4])}: {why}.")
    return Recommendation(model, tuple(sentences))


def _first(choice: ModelChoice, rows: Mapping[str, Mapping[Any, Any]]) -> tuple[str, str]:
    best = rows[choice.best]
    reached = f"{percent(best['accuracy'])} weighted accuracy ({span(best['low'], best['high'])})"
    eligible = sum(bool(row["eligible"]) for row in rows.values())
    if len(rows) == 1:
        return choice.best, f"There is one model, {choice.best}, with {reached}: nothing to choose from."
    if eligible == 1:
        return choice.best, f"Take {choice.best}: it is the only one within the limits, with {reached}."
    if choice.decided:
        others = [row for row in rows.values() if row["eligible"] and row["model"] != choice.best]
        next_best = max(others, key=lambda row: float(row["accuracy"]))
        lead = -float(next_best["difference"])
        text = (
            f"Take {choice.best}: {reached}, {points(lead)} ahead of {next_best['model']} "
            f"(at least {points(-float(next_best['difference_high']))}) on {choice.photos} images."
        )
        return choice.best, text
    names = ", ".join(f"{name} ({percent(rows[name]['accuracy'])})" for name in choice.together)
    text = (
        f"The data do not decide between {len(choice.together)} models: {names}. {choice.best} is first in "
        f"{percent(best['best'])} of resamples of the {choice.photos} images."
    )
    if choice.more_photos is not None:
        fewest, most = choice.more_photos
        text += (
            f" {fewest:,} to {most:,} images in all would distinguish the first two, 8 times of 10, if the true "
            "difference lies in the middle half of where it may be."
        )
    model, cost = _cheaper([rows[name] for name in choice.together])
    return model, f"{text} {cost}"


def _cheaper(rows: list[Mapping[Any, Any]]) -> tuple[str, str]:
    """Return who is cheaper among equals, and what follows."""
    fastest, smallest = _fastest(rows), _smallest(rows)
    if fastest and smallest and fastest["model"] != smallest["model"]:
        return "", (
            f"Among them {fastest['model']} is the fastest ({_milliseconds(fastest)}) and {smallest['model']} the "
            f"smallest ({_megabytes(smallest)}): take the one whose cost matters."
        )
    if fastest:
        also = f" and the smallest ({_megabytes(fastest)})" if smallest else ""
        name = str(fastest["model"])
        return name, f"Take {name}, which is the fastest of them ({_milliseconds(fastest)}){also}."
    if smallest:
        name = str(smallest["model"])
        return name, f"Take {name}, which is the smallest of them ({_megabytes(smallest)})."
    if all(math.isnan(row[what]) for row in rows for what in ("milliseconds", "bytes")):
        return "", "Size and speed are not known: measure them, or test on more images."
    return "", "Size and speed do not decide either: take any of them, or test on more images."


def _fastest(rows: list[Mapping[Any, Any]]) -> Mapping[Any, Any] | None:
    """Return the model whose repeats are faster than all others' (quartiles apart); None if that is open."""
    if any(math.isnan(row["milliseconds"]) for row in rows):
        return None
    ordered = sorted(rows, key=lambda row: float(row["milliseconds"]))
    first = ordered[0]
    slow = first["milliseconds"] if math.isnan(first["slow"]) else first["slow"]
    for other in ordered[1:]:
        fast = other["milliseconds"] if math.isnan(other["fast"]) else other["fast"]
        if fast <= slow:
            return None
    return first


def _smallest(rows: list[Mapping[Any, Any]]) -> Mapping[Any, Any] | None:
    if any(math.isnan(row["bytes"]) for row in rows):
        return None
    ordered = sorted(rows, key=lambda row: float(row["bytes"]))
    return ordered[0] if len(ordered) < 2 or ordered[0]["bytes"] < ordered[1]["bytes"] else None


def _left_out(table: pd.DataFrame) -> list[str]:
    out = table[~table["eligible"].astype(bool)]
    if out.empty:
        return []
    said = [f"{row['model']} ({row['why_not']})" for row in out.to_dict("records")]
    more = f" and {len(said) - 4} more" if len(said) > 4 else ""
    return [f"Left out by the limits: {', '.join(said[:4])}{more}."]


def _sensitive(choice: ModelChoice) -> list[str]:
    frame = choice.sensitivity
    if frame.empty:
        return []
    changed = frame[frame["changed"].astype(bool)]
    if changed.empty:
        return [f"{choice.best} stays first when any one weight is doubled or halved."]
    said = [
        f"{row['best']} with {row['name']} {'doubled' if row['factor'] > 1 else 'halved'}"
        for row in changed.to_dict("records")
    ]
    more = f" and {len(said) - 4} other cases" if len(said) > 4 else ""
    return [f"The weights matter: first would be {', '.join(said[:4])}{more}."]


def _milliseconds(row: Mapping[Any, Any]) -> str:
    return f"{row['milliseconds']:.3g} ms an image"


def _megabytes(row: Mapping[Any, Any]) -> str:
    return f"{row['bytes'] / MEGA:.3g} MB"
