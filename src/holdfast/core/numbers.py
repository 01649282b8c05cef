"""Numbers as people read them: rounded half away from zero, the same in every table, sentence and chart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

MINUS = "−"
MISSING = "–"


def number(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """Return a number with a true minus sign and no negative zero; ``sign``: with a plus if it is positive.

    Halves go away from zero, after the noise of binary fractions (below 1e-9) is gone: 93.75 is 93.8, −6.25 is −6.3.
    """
    if _missing(value):
        return MISSING
    rounded = Decimal(f"{value:.9f}").quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    text = f"{abs(rounded):,.{digits}f}"
    return f"{MINUS if rounded < 0 else '+' if sign else ''}{text}"


def percent(value: float, digits: int = 1) -> str:
    """Return a fraction as ``92.5 %``."""
    return MISSING if _missing(value) else f"{number(100 * value, digits)} %"


def points(value: float, digits: int = 1) -> str:
    """Return a difference of fractions as ``3.1 points``."""
    text = number(100 * value, digits)
    return MISSING if _missing(value) else f"{text} point{'' if text.lstrip(MINUS) == '1' else 's'}"


def span(low: float, high: float, digits: int = 1, scale: float = 100, *, sign: bool = False) -> str:
    """Return an interval as ``86.3 to 96.0``."""
    if _missing(low) or _missing(high):
        return MISSING
    return f"{number(scale * low, digits, sign=sign)} to {number(scale * high, digits, sign=sign)}"


def estimate(value: float, low: float, high: float, digits: int = 1) -> str:
    """Return a fraction with its interval, if it has one, as ``92.5 % (86.3 to 96.0)``."""
    return percent(value, digits) + ("" if _missing(low) else f" ({span(low, high, digits)})")


def duration(seconds: float) -> str:
    """Return seconds in the unit that people would use."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.2g} min" if seconds < 9.95 * 60 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.3g} hours" if seconds < 99.5 * 3600 else f"{seconds / 3600:,.0f} hours"


def alike(first: float, second: float) -> bool:
    """Return whether two fractions read the same in per cent, so that a sentence can put them in no order.

    Examples:
        >>> alike(0.9999, 1.0), alike(0.5, 0.6)
        (True, False)
    """
    return percent(first) == percent(second)


def p_value(value: float) -> str:
    """Return a p-value as ``.012``, and very small ones as ``< .0001``."""
    if _missing(value):
        return MISSING
    return "< .0001" if value < 0.0001 else number(value, 4 if value < 0.001 else 3).removeprefix("0")


def p_words(value: float) -> str:
    """Return ``p = .012`` or ``p < .0001``.

    >>> p_words(0.00000001)
    'p < .0001'
    """
    return f"p {p_value(value)}" if value < 0.0001 else f"p = {p_value(value)}"


def _missing(value: float) -> bool:
    return value is None or math.isnan(value) or math.isinf(value)


@dataclass(frozen=True)
class Quantity:
    """How the values of a quantity and their changes are printed."""

    scale: float
    digits: int
    unit: str  # of a value
    change: str  # unit of a change

    def value(self, value: float) -> str:
        """Return a value with its unit, as ``92.5 %`` or ``0.04``."""
        return MISSING if _missing(value) else f"{number(self.scale * value, self.digits)}{self.unit}"

    def bare(self, change: float) -> str:
        """Return a change without its unit, as ``−7.6`` or ``+0.04``."""
        return number(self.scale * change, self.digits, sign=True)

    def changed(self, change: float) -> str:
        """Return a change with its unit, as ``−7.6 points`` or ``+0.04 per image``."""
        return MISSING if _missing(change) else f"{self.bare(change)}{self.change}"

    def allowed(self, margin: float) -> str:
        """Return a margin with its unit, as ``2 points``."""
        return f"{self.scale * margin:g}{self.change}"


SHARE = Quantity(100, 1, " %", " points")
PER_IMAGE = Quantity(1, 2, "", " per image")
QUANTITIES = {"accuracy": SHARE, "recall": SHARE, "ap": SHARE, "false alarms": PER_IMAGE, "predictions": PER_IMAGE}
"""The unit of each quantity that is compared or printed in a line of text."""
