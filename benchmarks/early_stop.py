"""How many answers a check in rounds saves, and how often it is wrong: ``python benchmarks/early_stop.py``.

Simulated effects only: no model is asked. ``--runs`` simulated models per line.
"""

from __future__ import annotations

import argparse

import numpy as np

from holdfast.stats.effects.sequential import ALPHA, log_capital

MARGIN, ROUND = 0.05, 24
POWER = (1.959964 + 0.841621) ** 2  # of a two-sided 5 % test with 80 % power


def simulate(effect: float, changed: float, runs: int, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Return the shares that end with yes, no and open, and the mean share of the fixed design's answers."""
    fixed = POWER * (changed - effect**2) / MARGIN**2
    most = max(2 * ROUND, int(1.1 * fixed) // ROUND * ROUND)
    fell, rose = (changed + effect) / 2, (changed - effect) / 2
    endings, used = {"yes": 0, "no": 0, "open": 0}, 0.0
    for _ in range(runs):
        values = rng.choice([1.0, -1.0, 0.0], most, p=[fell, rose, 1 - fell - rose])
        ending, photos = "open", most
        for end in range(ROUND, most + 1, ROUND):
            sides = {
                name: float(log_capital(values[:end], MARGIN, least=-1, most=1, above=above)) >= -np.log(ALPHA)
                for name, above in (("yes", True), ("no", False))
            }
            if any(sides.values()):
                ending, photos = ("yes" if sides["yes"] else "no"), end
                break
        endings[ending] += 1
        used += photos / fixed
    return endings["yes"] / runs, endings["no"] / runs, endings["open"] / runs, used / runs


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    rng = np.random.default_rng(20261116)
    print("| true effect, points | photos that change | yes | no | open | share of the fixed design's answers |")
    print("|---|---|---|---|---|---|")
    for effect, changed in (
        (0.05, 0.3), (0.05, 0.08), (0.10, 0.3), (0.15, 0.3), (0.20, 0.3), (0.35, 0.4), (0.0, 0.1), (-0.05, 0.2),
    ):  # fmt: skip
        yes, no, left, used = simulate(effect, changed, runs, rng)
        away = abs(effect - MARGIN) / MARGIN
        place = "at the margin" if away < 1e-9 else f"{away:.0f} margin{'s' * (away > 1.5)} away"
        print(f"| {100 * effect:.0f} ({place}) | {changed:.0%} | {yes:.1%} | {no:.1%} | {left:.1%} | {used:.0%} |")


if __name__ == "__main__":
    main()
