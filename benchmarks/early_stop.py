"""How many answers a check in rounds saves, and how often it is wrong: ``python benchmarks/early_stop.py``.

Simulated effects of the background only: no model is asked. ``--runs`` simulated models per line.
"""

from __future__ import annotations

import argparse

from holdfast.stats.effects.sequential import simulated_decisions
from holdfast.stats.effects.verdict import MARGIN

ROUND = 24
POWER = (1.959964 + 0.841621) ** 2  # of a two-sided 5 % test with 80 % power


def fixed_photos(effect: float, changed: float) -> float:
    """Return the images of the fixed design: those that decide about a model one margin away, 8 times of 10."""
    return POWER * (changed - effect**2) / MARGIN**2


def rounds_of(fixed: float) -> list[int]:
    """Return the rounds of an early design that takes at most 110 % of the fixed design's images."""
    return [ROUND] * max(2, int(1.1 * fixed) // ROUND)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    print("| true effect, points | images that change | yes | no | open | images, early | images, fixed | share |")
    print("|---|---|---|---|---|---|---|---|")
    for effect, changed in (
        (0.05, 0.3), (0.05, 0.08), (0.10, 0.3), (0.15, 0.3), (0.20, 0.3), (0.35, 0.4), (0.0, 0.1), (-0.05, 0.2),
    ):  # fmt: skip
        fixed = fixed_photos(effect, changed)
        yes, no, early = simulated_decisions(effect, changed, rounds_of(fixed), runs=runs, seed=20261116)
        away = abs(effect - MARGIN) / MARGIN
        place = "at the margin" if away < 1e-9 else f"{away:.0f} margin{'s' * (away > 1.5)} away"
        print(
            f"| {100 * effect:.0f} ({place}) | {changed:.0%} | {yes:.1%} | {no:.1%} | {1 - yes - no:.1%} | "
            f"{early:.0f} | {fixed:.0f} | {early / fixed:.0%} |"
        )


if __name__ == "__main__":
    main()
