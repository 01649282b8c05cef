"""A promise: a sentence of docs/statistics/promises.md, the simulation that measures it, and the range of the rate."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Counted = dict[str, list[int]]
"""Outcome → [how often it came, out of how many]."""

Trial = Callable[..., Counted]
"""(random numbers, draws, **settings) → counts."""

BLOCKS = 40  # a simulation is done in so many blocks at most, each with its own seed


@dataclass(frozen=True)
class Simulation:
    """A generator with its settings, and how often it is drawn.

    Attributes:
        name: of the file of counts.
        trial: draws data sets and counts outcomes.
        draws: in a whole run.
        settings: of the trial.
        least: draws in a block, at least.
    """

    name: str
    trial: Trial
    draws: int
    settings: dict[str, Any] = field(default_factory=dict)
    least: int = 20

    def blocks(self, draws: int | None = None) -> list[int]:
        """Return the draws of each block; fewer draws take the first blocks of the same ones."""
        size = max(self.least, math.ceil(self.draws / BLOCKS))
        wanted = self.draws if draws is None else min(draws, self.draws)
        return [min(size, wanted - start) for start in range(0, wanted, size)]

    def block(self, number: int, draws: int) -> Counted:
        """Return the counts of one block; they depend on its number and on nothing before it."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), number])
        return self.trial(rng, draws, **self.settings)

    def key(self) -> str:
        """Return a digest of what is simulated, so that counts of other settings are not mixed with these."""
        text = f"{self.name} {self.trial.__module__}.{self.trial.__name__} {sorted(self.settings.items())} {self.draws}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Promise:
    """One row of the register.

    Attributes:
        page: of docs/statistics, which links to its measured rates.
        statement: what is promised.
        setting: the data that it is tried on, in words.
        simulation: how.
        outcome: which of the simulation's outcomes.
        low: the least rate that keeps the promise.
        high: the largest.
    """

    page: str
    statement: str
    setting: str
    simulation: Simulation
    outcome: str
    low: float
    high: float

    @property
    def name(self) -> str:
        """Return the simulation's name with the outcome."""
        return f"{self.simulation.name}.{self.outcome}"


@dataclass(frozen=True)
class Measured:
    """A rate with its binomial error."""

    hits: int
    tries: int

    @property
    def rate(self) -> float:
        """Return the share of hits."""
        return self.hits / self.tries

    @property
    def error(self) -> float:
        """Return half the width of its 95 % interval (Wilson's, which has a width at 0 and 1)."""
        z, n = 1.96, self.tries
        return float(z * math.sqrt(self.rate * (1 - self.rate) / n + z**2 / (4 * n**2)) / (1 + z**2 / n))

    def keeps(self, promise: Promise, errors: float = 1.0) -> bool:
        """Return whether the rate is in the promised range, but for so many of its binomial errors."""
        return promise.low - errors * self.error <= self.rate <= promise.high + errors * self.error


def add(total: Counted, more: Counted) -> Counted:
    """Return the sums of two counts."""
    names = {*total, *more}
    return {
        name: [a + b for a, b in zip(total.get(name, (0, 0)), more.get(name, (0, 0)), strict=True)]
        for name in sorted(names)
    }


def tally(rows: list[dict[str, Any]]) -> Counted:
    """Return counts of data sets that say yes or no to each outcome."""
    names = sorted({name for row in rows for name in row})
    return {
        name: [sum(bool(row[name]) for row in rows if name in row), sum(name in row for row in rows)] for name in names
    }
