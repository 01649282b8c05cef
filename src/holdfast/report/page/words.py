"""Numbers and names as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

MINUS = "−"
MISSING = "–"


def percent(value: float, digits: int = 1) -> str:
    """A fraction as ``92.5 %``."""
    return MISSING if _missing(value) else f"{number(100 * value, digits)} %"


def points(value: float, digits: int = 1) -> str:
    """A difference of fractions as ``3.1 points``."""
    text = number(100 * value, digits)
    return MISSING if _missing(value) else f"{text} point{'' if text.lstrip(MINUS) == '1' else 's'}"


def number(value: float, digits: int = 2) -> str:
    """A number with a true minus sign and no negative zero."""
    if _missing(value):
        return MISSING
    text = f"{value:,.{digits}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def span(low: float, high: float, digits: int = 1, scale: float = 100) -> str:
    """An interval as ``86.3 to 96.0``."""
    if _missing(low) or _missing(high):
        return MISSING
    return f"{number(scale * low, digits)} to {number(scale * high, digits)}"


def estimate(value: float, low: float, high: float, digits: int = 1) -> str:
    """A fraction with its interval as ``92.5 % (86.3 to 96.0)``; without it where there is none."""
    return percent(value, digits) + ("" if _missing(low) else f" ({span(low, high, digits)})")


def p_value(value: float) -> str:
    """A p-value as ``.012``; very small ones as ``< .0001``."""
    if _missing(value):
        return MISSING
    if value < 0.0001:
        return "< .0001"
    return f"{value:.4f}".removeprefix("0") if value < 0.001 else f"{value:.3f}".removeprefix("0")


def stars(value: float) -> str:
    """The usual marks of a p-value: ns, *, **, ***, ****."""
    if _missing(value):
        return ""
    return next(
        (mark for limit, mark in ((1e-4, "****"), (1e-3, "***"), (0.01, "**"), (0.05, "*")) if value < limit), "ns"
    )


def listing(items: Sequence[str], most: int = 4) -> str:
    """``a, b and c``; a long list ends in ``and 7 more``."""
    shown = list(items) if len(items) <= most else [*items[: most - 1], f"{len(items) - most + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """``1 photo``, ``1,200 photos``."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def short_names(models: Sequence[str], limit: int = 28) -> dict[str, str]:
    """Names that fit beside a chart: without the scheme where all agree on it, cut in the middle, still distinct."""
    schemes = {model.partition(":")[0] for model in models if ":" in model}
    plain = all(":" in model for model in models) and len(schemes) == 1
    short: dict[str, str] = {}
    for model in models:
        name = model.partition(":")[2] if plain else model
        if len(name) > limit:
            name = f"{name[: limit - 11]}…{name[-10:]}"
        copy, count = name, 2
        while copy in short.values():
            copy, count = f"{name} ({count})", count + 1
        short[model] = copy
    return short


def sentence(text: str) -> str:
    """With a capital letter, unless it begins with a name (embedded:vit_rho95)."""
    return text if ":" in text.split(" ")[0] else text[:1].upper() + text[1:]


def _missing(value: float) -> bool:
    return value is None or math.isnan(value) or math.isinf(value)
