"""Trials of what is said about one model: accuracies, drops, scores, verdicts, confidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu, norm

from holdfast.stats.core.cells import accuracies, exact, stratified_rows, wilson
from holdfast.stats.effects.confidence import auroc_interval
from holdfast.stats.effects.drops import Pairs, corrected_resampled_interval, effect_of, mcnemar, pair
from holdfast.stats.effects.score_spread import Spread, design_of, score_influence
from holdfast.stats.effects.sequential import ALPHA, log_capital, simulated_decisions
from holdfast.stats.effects.verdict import permuted_excess
from holdfast.stats.effects.worst_background import OTHER, SAME
from holdfast.stats.effects.worst_background import worst_background as worst_background_curve
from holdfast.stats.models.ranks import rank_ranges
from promises.promise import Counted, tally
from promises.worlds import answers_world


def _covers(low: Any, high: Any, truth: float) -> Any:
    return (low - 1e-12 <= truth) & (truth <= high + 1e-12)


def _hits(outcomes: np.ndarray) -> list[int]:
    return [int(np.count_nonzero(outcomes)), int(outcomes.size)]


def class_counts(rng: np.random.Generator, draws: int, *, truth: list[float], n: list[int]) -> Counted:
    """Independent answers of classes with known accuracies: the macro interval, and the worst class's."""
    chance, size = np.asarray(truth), np.asarray(n)
    right = rng.binomial(size, chance, (draws, len(size))).astype(float)
    total = np.broadcast_to(size.astype(float), right.shape)
    low, high = stratified_rows(right, total)
    worst = np.lexsort((-total, right / total), axis=1)[:, 0]
    rows = np.arange(draws)
    ends = exact(right[rows, worst], total[rows, worst], 1 - 0.05 / len(size))
    held = (ends[0] <= chance[worst]) & (chance[worst] <= ends[1])
    return {"covers": _hits(_covers(low, high, float(chance.mean()))), "worst": _hits(held)}


def share(rng: np.random.Generator, draws: int, *, truth: float, n: int) -> Counted:
    """One share of independent answers: Wilson's interval."""
    low, high = wilson(rng.binomial(n, truth, draws), n)
    return {"covers": _hits(_covers(low, high, truth))}


def accuracy(rng: np.random.Generator, draws: int, *, average: str = "macro", **world: Any) -> Counted:
    """The accuracy under the last condition (the pasted one, if there are donors)."""
    rows = []
    for _ in range(draws):
        made = answers_world(rng, **world)
        name = made.answers.conditions[-2]
        got = accuracies(made.answers, average=average)["", name]
        drop = (made.macro if average == "macro" else made.micro)[-1]
        base = made.base[0 if average == "macro" else 1]
        rows.append({"covers": _covers(got.low, got.high, base - drop)})
    return tally(rows)


def drop(
    rng: np.random.Generator,
    draws: int,
    *,
    average: str = "macro",
    blind: bool = False,
    resamples: int = 1000,
    **world: Any,
) -> Counted:
    """The last condition's drop; ``blind``: also without knowing donors."""
    rows = []
    for _ in range(draws):
        made = answers_world(rng, **world)
        answers = made.answers
        cells = pair(answers, answers.under("original"), answers.under(answers.conditions[-2]))
        truth = float((made.macro if average == "macro" else made.micro)[-1])
        options = {"average": average, "resamples": resamples, "seed": int(rng.integers(1 << 30))}
        effect = effect_of(cells, **options)
        row = {
            "covers": _covers(effect.low, effect.high, truth),
            "too_high": effect.low > truth,
            "too_low": effect.high < truth,
        }
        if blind:
            alone = Pairs(
                cells.side, cells.source, cells.fold, cells.label, np.full_like(cells.donor, -1), cells.n, cells.hits
            )
            without = effect_of(alone, **options)
            row["blind_covers"] = _covers(without.low, without.high, truth)
        rows.append(row)
    return tally(rows)


def background_effect(
    rng: np.random.Generator, draws: int, *, effect: float, photos: int = 240, donors: int = 60, margin: float = 0.05
) -> Counted:
    """Same images on two kinds of backgrounds that differ by ``effect``; donors of both are of unlike difficulty."""
    rows = []
    label, source = np.arange(photos) % 12, np.arange(photos)
    both = {"side": np.repeat([0, 1], photos), "source": np.tile(source, 2), "label": np.tile(label, 2)}
    for _ in range(draws):
        lender, right = [], []
        for kind, base in enumerate((0.85, 0.85 - effect)):
            own = rng.integers(0, donors, photos)
            hard = rng.uniform(-0.1, 0.1, donors)[own]
            lender.append(own + kind * donors)
            right.append((rng.random(photos) < base + hard).astype(float))
        cells = Pairs(
            fold=np.full(2 * photos, -1), donor=np.concatenate(lender), n=np.ones(2 * photos),
            hits=np.concatenate(right), **both,
        )  # fmt: skip
        found = effect_of(cells, resamples=1000, seed=int(rng.integers(1 << 30)))
        covered = _covers(found.low, found.high, effect)
        rows.append({"there": found.low > margin, "absent": found.high < margin, "covers": covered})
    return tally(rows)


def permuted(rng: np.random.Generator, draws: int, *, photos: int = 150) -> Counted:
    """Answers unrelated to labels, held against the label-permuted rate."""
    rejected = []
    for _ in range(draws):
        labels, said = rng.integers(0, 6, photos), rng.choice(6, photos, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1])
        known, given = (np.bincount(codes, minlength=6).astype(float) for codes in (labels, said))
        rejected.append({"rejects": permuted_excess(known, given, float((labels == said).sum())).p < 0.05})
    return tally(rejected)


def sign_test(rng: np.random.Generator, draws: int, *, photos: int, changed: float) -> Counted:
    """Images that change, as many for the better as for the worse: exact McNemar."""
    count = rng.binomial(photos, changed, draws)
    fell = rng.binomial(count, 0.5)
    return {"rejects": _hits(mcnemar(fell, count - fell) < 0.05)}


def trainings(rng: np.random.Generator, draws: int, *, runs: int, share: float) -> Counted:
    """Training runs correlated as Nadeau and Bengio assume."""
    values = rng.normal(size=(draws, 1)) * np.sqrt(share) + rng.normal(size=(draws, runs)) * np.sqrt(1 - share)
    ends = np.array([corrected_resampled_interval(row, test_share=share) for row in values])
    return {"covers": _hits(_covers(ends[:, 0], ends[:, 1], 0.0))}


def score(rng: np.random.Generator, draws: int, *, average: str = "macro", **world: Any) -> Counted:
    """The interval of the robustness score; a floor at the true score that it passes or fails wrongly."""
    rows = []
    for _ in range(draws):
        made = answers_world(rng, **world)
        design = design_of(made.answers, made.answers.conditions, average=average)
        truth = float(np.square(made.macro if average == "macro" else made.micro).mean())
        got = Spread(design).estimate(seed=int(rng.integers(1 << 30)))
        rows.append(
            {
                "covers": _covers(got.low, got.high, truth),
                "floor_passed": got.high < truth - 1e-12,
                "floor_failed": got.low > truth + 1e-12,
                "no_width": got.high - got.low <= 1e-9,
            }
        )
    return tally(rows)


def board_ranks(rng: np.random.Generator, draws: int, *, entries: int = 3, **world: Any) -> Counted:
    """Entries of a board whose true scores are equal, each with its own trouble with some donors."""
    rows = []
    for _ in range(draws):
        estimates, influence = [], []
        for _ in range(entries):
            made = answers_world(rng, **world)
            design = design_of(made.answers, made.answers.conditions)
            spread = Spread(design).estimate(1000, seed=int(rng.integers(1 << 30)))
            estimates.append((1 - spread.value, 1 - spread.high, 1 - spread.low))
            influence.append(score_influence(design)["robustness_score"])
        value, low, high = np.array(estimates).T
        first, last = rank_ranges(value, low, high, np.stack(influence, axis=1), resamples=1000)
        rows.append({"told_apart": bool((first > 1).any() or (last < entries).any())})
    return tally(rows)


def rounds(
    rng: np.random.Generator, draws: int, *, effect: float, changed: float, photos: int = 24, most: int = 20
) -> Counted:
    """A check that looks after each of up to 20 rounds: does any of its intervals leave out the truth, or err?"""
    fell, rose = (changed + effect) / 2, (changed - effect) / 2
    rows = []
    for _ in range(draws):
        values = rng.choice([1.0, -1.0, 0.0], most * photos, p=[fell, rose, 1 - fell - rose])
        too_high, too_low = (
            any(
                float(log_capital(values[:end], effect, least=-1, most=1, above=above)) >= -np.log(ALPHA)
                for end in range(photos, len(values) + 1, photos)
            )
            for above in (True, False)
        )
        rows.append({"covers": not (too_high or too_low), "too_high": too_high, "too_low": too_low})
    return tally(rows)


def rings(rng: np.random.Generator, draws: int, *, ring: int, most: int = 20, photos: int = 24) -> Counted:
    """Images that lend backgrounds in rings: right if the lights of object and background differ by less than 0.5.

    The same for a gate: the new model is right if they differ by less than 0.4, so that it loses the margin exactly.
    """
    rows = []
    for _ in range(draws):
        light = rng.random((most * photos // ring, ring))
        gap = np.abs(light - np.roll(light, 1, axis=1)).reshape(-1)
        old, new = (gap < 0.5).astype(float), (gap < 0.4).astype(float)
        looks = range(photos, most * photos + 1, photos)
        out = _ever(old, 0.75, looks, 0, True, ALPHA) or _ever(old, 0.75, looks, 0, False, ALPHA)
        passed, failed = (_ever(new - old, 0.64 - 0.75, looks, -1, above, 0.05) for above in (True, False))
        rows.append({"covers": not out, "passed": passed, "failed": failed})
    return tally(rows)


def gate_looks(rng: np.random.Generator, draws: int, *, changed: float) -> Counted:
    """A sequential gate looked at after each of 20 batches: a new model that loses exactly the margin of 2 points."""
    rows = []
    for _ in range(draws):
        values = rng.choice([1.0, -1.0, 0.0], 480, p=[(changed - 0.02) / 2, (changed + 0.02) / 2, 1 - changed])
        passed, failed = (_ever(values, -0.02, range(24, 481, 24), -1, above, 0.05) for above in (True, False))
        rows.append({"passed": passed, "failed": failed})
    return tally(rows)


def _ever(values: Any, mean: float, looks: range, least: float, above: bool, alpha: float) -> bool:
    """Return whether a gambler ever reaches 1 / alpha."""
    return any(
        float(log_capital(values[:end], mean, least=least, most=1, above=above)) >= -np.log(alpha) for end in looks
    )


def early(rng: np.random.Generator, draws: int, *, effect: float, changed: float) -> Counted:
    """Images of checks in rounds, as a share of those of the fixed design that finds one margin 8 times of 10."""
    fixed = 7.849 * (changed - effect**2) / 0.05**2
    sizes = [24] * max(2, int(1.1 * fixed) // 24)
    yes, no, photos = simulated_decisions(effect, changed, sizes, runs=draws, seed=int(rng.integers(1 << 30)))
    wrong = no if effect > 0.05 else yes
    counts = {"share": photos / fixed, "wrong": wrong, "beyond": float(sum(sizes) > 1.1 * fixed)}
    return {name: (round(rate * draws), draws) for name, rate in counts.items()}


def auroc(rng: np.random.Generator, draws: int, *, truth: float, n: int, others: int) -> Counted:
    """Confidences of originals and of backgrounds, both normal."""
    ours = rng.normal(np.sqrt(2) * norm.ppf(truth), 1, (draws, n))
    theirs = rng.normal(0, 1, (draws, others))
    areas = mannwhitneyu(ours, theirs, axis=1).statistic / (n * others)
    ends = np.array([auroc_interval(float(area), n, others) for area in areas])
    return {"covers": _hits(_covers(ends[:, 0], ends[:, 1], truth))}


def worst_background(
    rng: np.random.Generator,
    draws: int,
    *,
    backgrounds: int,
    loss: float = 0.0,
    unlike: float = 0.0,
    fooling: float = 0.0,
    photos: int = 120,
    classes: int = 12,
) -> Counted:
    """Each object on backgrounds that others share, right on 96 % of its class's, on ``loss`` less of the others.

    ``unlike``: backgrounds of both kinds are harder or easier by up to so much; ``fooling``: so many of both fool half
    of the objects. A tenth of the objects are never right.
    """
    label = np.arange(photos) % classes
    rows = []
    for _ in range(draws):
        never = rng.random(photos) < 0.1
        frames = []
        for side, base in zip((OTHER, SAME), (0.96 - loss, 0.96), strict=True):
            shared = backgrounds + -(-backgrounds // (classes - 1))  # classes take turns; an object skips its own
            turns = [[d for d in range(shared) if d % classes != own][:backgrounds] for own in range(classes)]
            donor = np.array(turns if side == OTHER else np.arange(classes * backgrounds).reshape(classes, -1))[label]
            hard = rng.uniform(-unlike, unlike, classes * backgrounds + shared)
            hard = np.where(rng.random(len(hard)) < fooling, base / 2, hard)[donor]
            right = (rng.random(donor.shape) < base - hard) & ~never[:, None]
            image = np.repeat(np.arange(photos), backgrounds)
            frames.append(pd.DataFrame({
                "condition": side, "sample_id": image, "donor_id": donor.ravel(), "correct": right.ravel(),
            }))  # fmt: skip
        table = pd.concat(frames).assign(model="m", fold=-1, donor_label="", status="ok")
        table = table.assign(source_id=table["sample_id"], label=label[table["sample_id"]])
        found = worst_background_curve(table, resamples=1000).set_index("backgrounds")
        row = {}
        for name, k in (("covers", backgrounds), ("half_covers", max(1, backgrounds // 2))):
            truth = 0.9 * (0.96**k - (0.96 - loss) ** k) * (1 - fooling / 2) ** k
            row[name] = _covers(*found.loc[k, ["effect_low", "effect_high"]], truth)
        rows.append(row | {"alarm": float(found["effect_low"].iloc[-1]) > 0})
    return tally(rows)
