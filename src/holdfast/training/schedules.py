"""How the learning rate changes: functions from the share of training done, 0..1, to a factor of the full rate."""

from __future__ import annotations

import math


def constant(done: float) -> float:
    """The full rate throughout."""
    return 1.0


def one_cycle(done: float, *, warmup: float = 0.15, start: float = 0.04) -> float:
    """Up from ``start`` to the full rate during ``warmup``, then down to nothing, both along a cosine."""
    if done < warmup:
        return start + (1 - start) * (1 - math.cos(math.pi * done / warmup)) / 2
    return (1 + math.cos(math.pi * min(1.0, (done - warmup) / (1 - warmup)))) / 2
