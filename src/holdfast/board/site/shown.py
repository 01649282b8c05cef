"""Names and formats of measures on the pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from holdfast.board.entry import Score
from holdfast.board.site.measure import Measured
from holdfast.core.conditions import condition_words
from holdfast.report.page.words import MISSING, number, percent, span

Kind = Literal["percent", "points", "number"]

PROTOCOL_TITLES = {"static": "Static", "hard": "Hard set", "dynamic": "Dynamic"}
PROTOCOL_WORDS = {
    "static": "The same photos with their surroundings changed: does the answer stay?",
    "hard": "Generated pictures that other models fail on: how many does this one get right?",
    "dynamic": "Pictures pushed against each model as far as an oracle still sees their class: what survives?",
}
VERDICTS = {"foreground": "the object", "background": "the background", "both": "both", "undecided": "open"}


@dataclass(frozen=True)
class Measure:
    """A column. ``best``: whether high or low values are the better ones."""

    name: str
    title: str
    kind: Kind = "percent"
    best: Literal["high", "low"] = "high"
    hint: str = ""


_KNOWN = (
    Measure("mean_accuracy", "Mean accuracy on changed photos",
            hint="the mean of the accuracies under the static conditions, which change the photos; every class alike"),
    Measure("accuracy", "Accuracy", hint="on the pictures of the set"),
    Measure("robustness_score", "Robustness score, published", "number",
            hint="1 − the spread of the accuracies around that on originals; a constant answer scores 1, too"),
    Measure("robustness_score_background", "Score, background", "number",
            hint="the same over the conditions that leave the object as it is"),
    Measure("background_effect", "Background effect", "points", "low",
            hint="accuracy lost when only the background changes, both pasted"),
    Measure("accuracy_restricted", "Accuracy, among classes", hint="the answer taken among the dataset's classes"),
    Measure("variance_cross", "Variance, across", "number", "low", "of accuracies, trained on originals"),
    Measure("variance_inner", "Variance, within", "number", "low", "of accuracies, trained within each condition"),
    Measure("fmr", "FMR", hint="accuracy on counterfactuals that the oracle accepts, over accuracy on originals"),
    Measure("standard_accuracy", "Accuracy on originals", hint="before anything is changed"),
    Measure("perturbed_accuracy", "Accuracy on pushed pictures", hint="those that the oracle accepts"),
    Measure("validation_rate", "Accepted", hint="share of pushed pictures that the oracle accepts"),
    Measure("fmr_low", "FMR, at least", hint="every rejected picture counted as wrong"),
    Measure("fmr_high", "FMR, at most", hint="every rejected picture counted as right"),
    Measure("fmr_matched", "FMR, matched", hint="both accuracies on the accepted pictures only"),
    Measure("reconstruction", "Reconstructed", hint="accuracy after encoding and decoding without a step"),
    Measure("random_walk", "Random walk", hint="accuracy after as many steps in a random direction"),
    Measure("drop", "Accuracy lost", "points", "low", "against the original dataset, as printed"),
)  # fmt: skip
KNOWN = {measure.name: measure for measure in _KNOWN}

COLUMNS = {
    "static": ("mean_accuracy", "accuracy", "background_effect", "robustness_score_background", "robustness_score"),
    "hard": ("accuracy", "accuracy_restricted"),
    "dynamic": ("fmr", "standard_accuracy", "perturbed_accuracy", "validation_rate", "fmr_low", "fmr_high"),
}
MOST_COLUMNS = 7


@lru_cache(maxsize=1000)
def measure_of(name: str, protocol: str) -> Measure:
    """Return how a score of a protocol is called; ``accuracy:grey`` is the accuracy under grey."""
    if (protocol, name) == ("static", "accuracy"):
        return replace(KNOWN["standard_accuracy"], name=name)
    if name in KNOWN:
        return KNOWN[name]
    what, _, condition = name.partition(":")
    if condition:
        within = " (trained on it)" if what == "accuracy_within" else ""
        return Measure(name, condition_words(condition) + within, hint=f"{what.replace('_', ' ')} under {condition}")
    kind: Kind = "percent" if any(word in name for word in ("accuracy", "rate", "acc", "fmr")) else "number"
    return Measure(name, name.replace("_", " ").capitalize(), kind)


def columns_of(protocol: str, members: Sequence[Measured]) -> list[Measure]:
    """Return the scores of a table: those of its protocol, then others that entries have, conditions last."""
    have = dict.fromkeys(score.name for member in members for score in member.entry.scores)
    wanted = [name for name in COLUMNS[protocol] if name in have]
    others = [name for name in have if name not in wanted and ":" not in name] if len(wanted) < 2 else []
    kinds = [name for name in have if name.startswith("accuracy:")] if protocol == "hard" or not wanted else []
    names = [*wanted, *others, *kinds] or list(have)
    return [measure_of(name, protocol) for name in names[:MOST_COLUMNS]]


def text_of(measure: Measure, value: float | None) -> str:
    """Return a value as people read it."""
    if value is None:
        return MISSING
    if measure.kind == "number":
        return number(value, 3)
    return percent(value) if measure.kind == "percent" else number(100 * value, 1)


def interval_of(measure: Measure, score: Score) -> str:
    """Return its interval, or "" without one."""
    if score.low is None and score.high is None:
        return ""
    scale, digits = (1.0, 3) if measure.kind == "number" else (100.0, 1)
    if score.high is None:
        return f"{number(scale * (score.low or 0.0), digits)} or more"
    if score.low is None:
        return f"{number(scale * score.high, digits)} or less"
    return span(score.low, score.high, digits, scale)


def millions(parameters: int | None) -> str:
    """Return a number of parameters as ``25.6 M``."""
    if parameters is None:
        return MISSING
    if parameters >= 10_000_000:
        return f"{parameters / 1e6:,.0f} M"
    return f"{parameters / 1e6:,.2f} M" if parameters >= 10_000 else f"{parameters:,}"


def speed(images_per_second: float) -> str:
    """Return images per second with three digits."""
    digits = 0 if images_per_second >= 100 else 1 if images_per_second >= 10 else 2
    return f"{number(images_per_second, digits)} images/s"


def rank_text(low: int, high: int) -> str:
    """Return ``3`` or ``1–3``."""
    return f"{low}" if low == high else f"{low}–{high}"
