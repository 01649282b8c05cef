"""How many answers a check in rounds saves, and how often it is wrong: ``python benchmarks/early_stop.py``.

Simulated effects of the background only: no model is asked. ``--runs`` simulated models per line.
"""

from __future__ import annotations

import argparse

import numpy as np

from holdfast.stats.effects.sequential import ALPHA, STAKES

MARGIN, ROUND = 0.05, 24
POWER = (1.959964 + 0.841621) ** 2  # of a two-sided 5 % test with 80 % power
VALUES = np.array([1.0, -1.0, 0.0])


def simulate(effect: float, changed: float, runs: int, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Return the shares that end with yes and no, the mean number of photos, and that of the fixed design."""
    fixed = POWER * (changed - effect**2) / MARGIN**2
    rounds = max(2, int(1.1 * fixed) // ROUND)
    shares = [(changed + effect) / 2, (changed - effect) / 2, 1 - changed]
    seen = rng.multinomial(ROUND, shares, (runs, rounds)).cumsum(axis=1)
    reached = {}
    for name, payoff in (("yes", (VALUES + 1) / (MARGIN + 1)), ("no", (1 - VALUES) / (1 - MARGIN))):
        logs = seen @ np.log(1 - STAKES + STAKES * payoff[:, None])
        capital = np.log(np.exp(logs - logs.max(axis=-1, keepdims=True)).mean(axis=-1)) + logs.max(axis=-1)
        over = capital >= -np.log(ALPHA)
        reached[name] = np.where(over.any(axis=1), over.argmax(axis=1), rounds)
    yes, no = reached["yes"] < reached["no"], reached["no"] < reached["yes"]
    photos = ROUND * np.minimum(np.minimum(reached["yes"], reached["no"]) + 1, rounds)
    return float(yes.mean()), float(no.mean()), float(photos.mean()), fixed


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    rng = np.random.default_rng(20261116)
    print("| true effect, points | photos that change | yes | no | open | photos, early | photos, fixed | share |")
    print("|---|---|---|---|---|---|---|---|")
    for effect, changed in (
        (0.05, 0.3), (0.05, 0.08), (0.10, 0.3), (0.15, 0.3), (0.20, 0.3), (0.35, 0.4), (0.0, 0.1), (-0.05, 0.2),
    ):  # fmt: skip
        yes, no, early, fixed = simulate(effect, changed, runs, rng)
        away = abs(effect - MARGIN) / MARGIN
        place = "at the margin" if away < 1e-9 else f"{away:.0f} margin{'s' * (away > 1.5)} away"
        print(
            f"| {100 * effect:.0f} ({place}) | {changed:.0%} | {yes:.1%} | {no:.1%} | {1 - yes - no:.1%} | "
            f"{early:.0f} | {fixed:.0f} | {early / fixed:.0%} |"
        )


if __name__ == "__main__":
    main()
