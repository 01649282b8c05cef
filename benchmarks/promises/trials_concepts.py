"""Simulations of attributes of backgrounds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import norm

from holdfast.stats.effects.concepts import CONDITION, background_concepts
from promises.promise import Counted, tally


def concept_effects(
    rng: np.random.Generator, draws: int, *, images: int, donors: int, share: float, drop: float, concepts: int = 8
) -> Counted:
    """One attribute costs ``drop``, the others nothing; donors differ beyond their attributes, and so do images."""
    rows = []
    base, spread = 0.85, 0.5
    for _ in range(draws):
        values = (rng.random((donors, concepts)) < share).astype(float)
        names = [f"d{number:03}" for number in range(donors)]
        donor, label = rng.integers(0, donors, images), np.arange(images) % 12
        chance = base - drop * values[donor, 0]
        own = spread * rng.standard_normal(donors)[donor] + np.sqrt(1 - spread**2) * rng.standard_normal(images)
        table = pd.DataFrame({
            "model": "m", "condition": CONDITION, "status": "ok", "source_id": [f"s{each}" for each in range(images)],
            "donor_id": np.array(names)[donor], "label": np.array([f"c{each:02}" for each in label]),
            "correct": own < norm.ppf(chance),
        })  # fmt: skip
        known = pd.DataFrame(values, index=names, columns=[f"k{each}" for each in range(concepts)])
        result = background_concepts(table, known, seed=0).set_index("concept")
        if "k0" not in result.index:
            continue
        first, others = result.loc["k0"], result.drop(index="k0")
        rows.append({
            "covers": first["low"] <= -drop <= first["high"], "alarms": bool(others["stands_out"].any()),
            "finds": bool(first["stands_out"]),
        })  # fmt: skip
    return tally(rows)
