"""Trials of what is said about several models: the gate, pairs, ranks, interaction, choice, sample sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, norm

from holdfast.stats.core.bootstrap import resampled_sums
from holdfast.stats.core.grid import averages, grid, judged
from holdfast.stats.core.reduce import Counts
from holdfast.stats.effects.drops import Pairs, effect_of
from holdfast.stats.effects.interaction import interaction_of
from holdfast.stats.models.between import pairs, rank_agreement, ranking
from holdfast.stats.models.choice import Weight, choose
from holdfast.stats.models.datasets import dataset_drops
from holdfast.stats.models.gate import gate, more_photos
from holdfast.stats.models.noninferiority import Differences, bounds, exact_p_values, of_photos, p_values
from holdfast.stats.models.power import photos_needed, photos_to_settle
from holdfast.stats.regression.fit import fit
from promises.promise import Counted, tally
from promises.worlds import clustered, counts_of, grid_of, pasted_models, two_counts, two_models

_exact = lru_cache(maxsize=None)(exact_p_values)


def gate_at_margin(rng: np.random.Generator, draws: int, *, margin: float = 0.05, **world: Any) -> Counted:
    """A new model that is worse by exactly the margin: the gate's test of one condition."""
    p = [p_values(_compared(rng, margin, world), -margin) for _ in range(draws)]
    return tally([{"passes": above <= 0.05, "fails": below <= 0.05} for above, below in p])


def gate_bounds(rng: np.random.Generator, draws: int, *, loss: float, **world: Any) -> Counted:
    """A new model that is worse by ``loss``: does it lie beyond each of the bounds?"""
    ends = [bounds(_compared(rng, loss, world)) for _ in range(draws)]
    return tally([{"low_holds": low <= -loss, "high_holds": high >= -loss} for low, high in ends])


MARGINS = (0.01, 0.02, 0.05, 0.1, 0.3)


def bounds_of_margins(rng: np.random.Generator, draws: int, *, loss: float, **world: Any) -> Counted:
    """The whole gate of the same answers at several margins: are its bounds the same, and do they hold?"""
    rows = []
    for _ in range(draws):
        old, new = two_counts(rng, loss=loss, **world)
        tables = [gate(old, new, margin=margin).conditions for margin in MARGINS]
        ends = {(float(table["low"].iloc[0]), float(table["high"].iloc[0])) for table in tables}
        rows.append(
            {
                "same": len(ends) == 1,
                "low_holds": max(low for low, _ in ends) <= -loss,
                "high_holds": min(high for _, high in ends) >= -loss,
            }
        )
    return tally(rows)


def _compared(rng: np.random.Generator, loss: float, world: dict[str, Any]) -> Differences:
    photo, donor, (old, new) = two_models(rng, loss=loss, **world)
    value = (new - old) / (len(photo) / (photo.max() + 1))
    return Differences(np.bincount(photo, value), photo, donor, value, np.bincount(photo)[photo] ** -1.0)


def whole_gate(rng: np.random.Generator, draws: int, *, margin: float = 0.05, **world: Any) -> Counted:
    """The same through all of the gate, from counts to the verdict."""
    verdicts = [gate(*two_counts(rng, loss=margin, **world), margin=margin).verdict for _ in range(draws)]
    return tally([{"passes": verdict == "passed", "fails": verdict == "failed"} for verdict in verdicts])


def gate_single_answers(rng: np.random.Generator, draws: int, *, n: int, margin: float, changed: float) -> Counted:
    """Images answered once: a share ``changed`` of them changes, so that the loss is exactly the margin."""
    gain, loss = (changed - margin) / 2, (changed + margin) / 2
    outcomes = rng.multinomial(n, [gain, loss, 1 - gain - loss], draws)
    p = np.array([_exact(int(better), int(worse), n, -margin) for better, worse, _ in outcomes])
    return {name: [int((p[:, at] <= 0.05).sum()), draws] for at, name in enumerate(("passes", "fails"))}


def gate_conditions(rng: np.random.Generator, draws: int, *, photos: int, conditions: int, margin: float) -> Counted:
    """Every condition exactly at the margin: a union of failures, an intersection of passes."""
    logit = np.log(0.8 / 0.2), np.log((0.8 - margin) / (0.2 + margin))
    rows = []
    for _ in range(draws):
        right = clustered(np.repeat(np.array(logit)[:, None], conditions, axis=1), photos, 1.0, rng)
        verdict = gate(counts_of(right[:, :1]), counts_of(right[:, 1:]), margin=margin).verdict
        rows.append({"passes": verdict == "passed", "fails": verdict == "failed"})
    return tally(rows)


def gate_more_photos(
    rng: np.random.Generator, draws: int, *, n: int, better: int, worse: int, margin: float
) -> Counted:
    """Runs with the least and with the most images that ``more_photos`` asks for, with the shares kept: decided?"""
    shares = [better / n, worse / n, 1 - (better + worse) / n]
    counted: Counted = {}
    for name, more in zip(("least", "most"), more_photos(_drawn(n, better, worse), margin=margin), strict=True):
        outcomes = rng.multinomial(n + math.ceil(more), shares, draws)
        p = [min(_exact(int(up), int(down), int(up + down + same), -margin)) for up, down, same in outcomes]
        counted[name] = [int((np.array(p) <= 0.05).sum()), draws]
    return counted


def _drawn(n: int, better: int, worse: int) -> Differences:
    return of_photos(np.array([1.0] * better + [-1.0] * worse + [0.0] * (n - better - worse)))


def paired_models(
    rng: np.random.Generator,
    draws: int,
    *,
    average: str,
    photos: int = 0,
    sizes: Sequence[int] = (),
    alike: float = 0.5,
) -> Counted:
    """Two models of equal accuracy, all data sets at once, a column each; ``alike``: correlation of their answers.

    Six classes of even size, or those of ``sizes``.
    """
    number = np.repeat(np.arange(len(sizes)), sizes) if sizes else np.arange(photos) % 6
    photos, classes = len(number), int(number.max()) + 1
    ease = np.linspace(-1, 1, classes)[number][:, None]
    shared = np.sqrt(alike) * rng.normal(size=(photos, draws))
    scale = np.sqrt(1 - alike)
    answers = [
        (shared + scale * rng.normal(size=(photos, draws)) < (0.8 + ease) / np.sqrt(2)).astype(float) for _ in range(2)
    ]
    difference, parts = averages(answers[0] - answers[1], number, average)
    moved = resampled_sums(parts, np.arange(photos), resamples=1000, seed=int(rng.integers(1 << 30)))
    low, high, p = judged(difference, moved, photos)
    return {
        "covers": [int(((low <= 1e-12) & (high >= -1e-12)).sum()), draws],
        "told_apart": [int((p < 0.05).sum()), draws],
    }


def equal_models(rng: np.random.Generator, draws: int, *, models: int, photos: int, **lent: Any) -> Counted:
    """Models of equal accuracy, ranked; with donors over originals and two pasted conditions."""
    rows, truth = [], 1 / (1 + np.exp(-0.5))
    for _ in range(draws):
        counts = _equal_counts(rng, np.full((models, 3 if lent else 1), 0.5), photos, **lent)
        table = ranking(counts, average="micro", resamples=1000, seed=int(rng.integers(1 << 30))).table
        together = bool(((table["low"] <= truth) & (truth <= table["high"])).all())
        rows.append({"told_apart": set(table["rank"]) != {f"1–{models}"}, "covers": together})
    return tally(rows)


def orders(
    rng: np.random.Generator, draws: int, *, first: Sequence[float], second: Sequence[float], photos: int, **lent: Any
) -> Counted:
    """Kendall's τ between the models' order on originals and under a condition; their logits are the truth."""
    truth = kendalltau(first, second).statistic
    rows = []
    for _ in range(draws):
        counts = _equal_counts(rng, np.array([first, second]).T, photos, **lent)
        found = rank_agreement(counts, ["original"], ["c1"], resamples=500, seed=int(rng.integers(1 << 30)))
        if not found["reason"]:
            rows.append({"covers": float(found["low"]) <= truth <= float(found["high"])})
    return tally(rows)


def _equal_counts(rng: np.random.Generator, logits: np.ndarray, photos: int, **lent: Any) -> Counts:
    """Return counts of images with images of their own, or of some pasted on donors."""
    if not lent:
        return counts_of(clustered(logits, photos, 1.0, rng))
    right, donor = pasted_models(rng, logits, photos, **lent)
    return counts_of(right, donor=donor)


def lent_pairs(
    rng: np.random.Generator, draws: int, *, photos: int = 0, sizes: Sequence[int] = (), **lent: Any
) -> Counted:
    """Two models of equal accuracy over originals and two pasted conditions, and under one of them by itself.

    ``sizes``: of classes, whose accuracies are averaged; else images are.
    """
    rows, logits, number = [], np.array([[1.4, 0.6, 0.6]] * 2), np.repeat(np.arange(len(sizes)), sizes)
    for _ in range(draws):
        counts = _equal_counts(rng, logits, photos or len(number), **lent)
        if sizes:
            counts.cells["label"] = number[counts.cells["source_id"].str.removeprefix("photo").astype(int)].astype(str)
        options = {"average": "macro" if sizes else "micro", "resamples": 1000, "seed": int(rng.integers(1 << 30))}
        row, single = (pairs(counts, **options, by_condition=by).table.iloc[-1] for by in (False, True))
        covered = {"covers": row["low"] <= 0 <= row["high"], "covers_condition": single["low"] <= 0 <= single["high"]}
        rows.append(covered | {"told_apart": row["p"] < 0.05, "told_apart_condition": single["p"] < 0.05})
    return tally(rows)


ADDITIVE = np.array([1.2, 0.6])[:, None] + np.array([0.0, -0.5, -1.5])[None, :]
"""Log odds of two models under three conditions: each model loses the same."""
MANY = np.array([1.0, 0.5, 0.0])[:, None] + np.linspace(0, -1.5, 6)[None, :]
SEPARATED = np.stack([np.full(3, 60.0), np.full(3, 0.4), np.full(3, -0.3)], axis=1)
FEW = np.array([0.6, 0.3, 0.0, -0.3])[:, None] + np.linspace(0.3, -0.3, 5)[None, :]
LOGITS = {"additive": ADDITIVE, "many": MANY, "separated": SEPARATED, "few": FEW}


def no_interaction(rng: np.random.Generator, draws: int, *, logits: str, photos: int, **lent: Any) -> Counted:
    """Models that all lose the same under every condition, in log odds (in points where originals are all right)."""
    table, rows = LOGITS[logits], []
    chance = 1 / (1 + np.exp(-table))
    truth = (chance[-2, 0] - chance[-2, -1]) - (chance[-1, 0] - chance[-1, -1])
    for _ in range(draws):
        laid = grid(_equal_counts(rng, table, photos, **lent)) if lent else grid_of(clustered(table, photos, 1.0, rng))
        found = interaction_of(laid, reference_condition="original", resamples=400, seed=int(rng.integers(1 << 30)))
        last = found.pairs.iloc[-1]
        rows.append({"rejects": found.p < 0.05, "covers": last["low"] <= truth <= last["high"]})
    return tally(rows)


def choices(rng: np.random.Generator, draws: int, *, models: int, photos: int, **lent: Any) -> Counted:
    """Equal models weighed by two conditions."""
    weights = [Weight("original", 1.0, ("original",)), Weight("c1", 3.0, ("c1",))]
    logits = np.log(np.array([[0.8, 0.6]] * models) / np.array([[0.2, 0.4]] * models))
    rows = []
    for _ in range(draws):
        counts = _equal_counts(rng, logits, photos, **lent)
        found = choose(counts, weights, resamples=1000, seed=int(rng.integers(1 << 30)))
        first = found.models[found.models["model"] == "m00"].iloc[0]
        rows.append({"covers": first["low"] <= 0.65 <= first["high"], "told_apart": len(found.together) < models})
    return tally(rows)


def two_datasets(rng: np.random.Generator, draws: int, *, photos: int, others: int, classes: int = 4) -> Counted:
    """Accuracies of 85 % and 40 % on two datasets of different images."""
    rows = []
    for _ in range(draws):
        sets = {
            name: counts_of((rng.random((n, 1, 1)) < chance).astype(float), classes=classes)
            for name, n, chance in (("a", photos, 0.85), ("b", others, 0.4))
        }
        row = dataset_drops(sets).drops.iloc[0]
        rows.append({"covers": row["low"] <= 0.45 <= row["high"]})
    return tally(rows)


def power(rng: np.random.Generator, draws: int, *, difference: float, changed: float, wanted: float) -> Counted:
    """McNemar's test at the number of images that was asked for."""
    n = photos_needed(difference, discordant_share=changed, power=wanted)
    up, down = (changed + difference) / 2, (changed - difference) / 2
    lost, gained, _ = rng.multinomial(n, [up, down, 1 - changed], draws).T
    z = (lost - gained) / np.sqrt(np.maximum(lost + gained, 1))
    return {"finds": [int((np.abs(z) > norm.ppf(0.975)).sum()), draws]}


def power_with_donors(
    rng: np.random.Generator, draws: int, *, difference: float, changed: float, donors: int, donor_share: float = 0.1
) -> Counted:
    """Drops of images that share donors, at the number of images asked for: does the interval leave out zero?"""
    n = photos_needed(difference, discordant_share=changed, donors=donors, donor_share=donor_share)
    spread = np.sqrt(3 * donor_share * (changed - difference**2))  # uniform within ± spread
    rows, photo = [], np.arange(n)
    for _ in range(draws):
        donor = rng.permutation(n) % donors
        shift = rng.uniform(-spread, spread, donors)[donor] / 2
        drawn = rng.random(n)
        fell = drawn < (changed + difference) / 2 + shift
        rose = drawn > 1 - (changed - difference) / 2 + shift
        hits = np.concatenate([fell | ~rose, ~fell]).astype(float)
        cells = Pairs(
            side=np.repeat([0, 1], n), source=np.tile(photo, 2), fold=np.full(2 * n, -1), label=np.zeros(2 * n, int),
            donor=np.concatenate([np.full(n, -1), donor]), n=np.ones(2 * n), hits=hits,
        )  # fmt: skip
        effect = effect_of(cells, average="micro", resamples=1000, seed=int(rng.integers(1 << 30)))
        rows.append({"finds": effect.low > 0})
    return tally(rows)


def settled(rng: np.random.Generator, draws: int, *, value: float, n: int = 60, margin: float = 0.05) -> Counted:
    """An interval at the number of images that is said to bring it to one side of a margin."""
    spread = 0.3
    half = norm.ppf(0.975) * spread / np.sqrt(n)
    needed = photos_to_settle(n, value=value, low=value - half, high=value + half, margin=margin)
    estimates = rng.normal(value, spread / np.sqrt(needed), draws)
    reach = norm.ppf(0.975) * spread / np.sqrt(needed)
    clear = estimates - reach > margin if value > margin else estimates + reach < margin
    return {"clear": [int(clear.sum()), draws]}


def regression(rng: np.random.Generator, draws: int) -> Counted:
    """Cells of three models, three scenarios and four classes that scatter independently."""
    cells = [(m, c, k) for m in "abc" for c in ("original", "x", "y") for k in "pqrs"]
    frame = pd.DataFrame(cells, columns=["model", "condition", "label"]).assign(n=50)
    mean = 0.7 - 0.2 * (frame["condition"] == "x").to_numpy()
    rows = []
    for _ in range(draws):
        found = fit(frame.assign(accuracy=mean + rng.normal(0, 0.05, len(frame)))).coefficients.set_index("term")
        row = found.loc["scenario[x]"]
        rows.append({"covers": row["low"] <= -0.2 <= row["high"]})
    return tally(rows)


def regression_of_photos(rng: np.random.Generator, draws: int, *, donors: int = 0, each: int = 10) -> Counted:
    """Two models on ten images of each of four equal classes; images are easy or hard for both under all conditions."""
    key = [
        (m, c, k, f"{k}{s}") for k in "abcd" for s in range(each) for c in ("original", "grey", "pasted") for m in "mn"
    ]
    frame = pd.DataFrame(key, columns=["model", "condition", "label", "source_id"]).assign(n=1.0)
    photo, pasted = pd.factorize(frame["source_id"])[0], (frame["condition"] == "pasted").to_numpy()
    rows = []
    for _ in range(draws):
        score = rng.normal(0.4, 1.0, photo.max() + 1)[photo] + rng.normal(0, 0.4, len(frame))
        lender = np.where(pasted, rng.integers(0, max(donors, 1), photo.max() + 1)[photo], -1) if donors else None
        if lender is not None:
            score -= np.where(pasted, rng.normal(0, 0.8, donors)[lender], 0.0)
        names = "" if lender is None else [f"d{at}" if at >= 0 else "" for at in lender]
        photos = frame.assign(right=(score > 0).astype(float), donor_id=names)
        summed = photos.groupby(["model", "condition", "label"], sort=False)[["n", "right"]].sum().reset_index()
        found = fit(summed.assign(accuracy=summed["right"] / summed["n"]), photos=photos).coefficients.set_index("term")
        row = found.loc["class[b]"]
        ends = {
            name: row[f"{kind}low"] <= 0 <= row[f"{kind}high"]
            for name, kind in (("covers", ""), ("published", "published_"))
        }
        rows.append(ends)
    return tally(rows)
