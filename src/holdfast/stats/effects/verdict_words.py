"""A verdict in words: what is known first, its numbers with the good direction, and what is inconclusive and why.

Terminal, report, board, check and Python all print these words and make none of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.names import condition_words
from holdfast.core.numbers import alike, number, percent, points
from holdfast.core.numbers import span as interval
from holdfast.stats.core.answers import from_counts
from holdfast.stats.core.reduce import Counts
from holdfast.stats.effects.drops import Effect
from holdfast.stats.effects.verdict import (
    LEAST_WRONG,
    MARGIN,
    Excess,
    Reason,
    Step,
    VerdictEvidence,
    VerdictSteps,
    decide,
    original_evidence,
)  # fmt: skip
from holdfast.stats.models.power import photo_range

WRONG = "Its labels or its preprocessing are probably wrong; fix them first, whatever the numbers say."
NOT_JUDGED = "No verdict: "
SIGNS = {"foreground": "●", "background": "○", "both": "◐", "undecided": "◌"}
HEADLINES: dict[tuple[Step, Step], str] = {
    ("yes", "yes"): "Relies on the background, and sees the object too",
    ("yes", "no"): "Relies on the background, and does not see the object",
    ("yes", "open"): "Relies on the background",
    ("no", "yes"): "Sees the object, and does not rely on the background",
    ("no", "no"): "Neither the object nor the background changes its predictions",
    ("no", "open"): "Does not rely on the background",
    ("open", "yes"): "Sees the object; whether it relies on the background is inconclusive",
    ("open", "no"): "Does not see the object; whether it relies on the background is inconclusive",
    ("open", "open"): "Inconclusive",
}  # (relies on the background, sees the object) → what is known


@dataclass(frozen=True)
class VerdictWords:
    """The words of a verdict."""

    steps: VerdictSteps  # the two answers
    headline: str  # what is known
    rests_on: str  # the numbers, each with the direction that is good
    small_print: str  # what is inconclusive, and why; empty if nothing is
    warnings: list[str]  # what a reader should know before believing it
    unjudged: str = ""  # why there is no verdict; empty if there is one

    @property
    def sentence(self) -> str:
        """Return headline, numbers and small print in one line."""
        lower = self.rests_on[:1].lower() + self.rests_on[1:]
        numbers = f"{self.headline}: {lower}" if self.rests_on else f"{self.headline}."
        return f"{numbers} {self.small_print}".strip()

    def columns(self) -> dict[str, Any]:
        """Return the words as columns of a row of ``what_it_holds``."""
        return {
            "leans": self.steps.leans, "sees": self.steps.sees, "why_leans": self.steps.why_leans,
            "why_sees": self.steps.why_sees, "headline": self.headline, "rests_on": self.rests_on,
            "small_print": self.small_print, "sentence": self.sentence, "warnings": self.warnings,
            "unjudged": self.unjudged,
        }  # fmt: skip


def in_words(evidence: VerdictEvidence, margin: float = MARGIN) -> VerdictWords:
    """Return a verdict and everything that is said about it."""
    steps = decide(evidence, margin)
    headline = HEADLINES[steps.leans, steps.sees]
    if steps.why_leans == steps.why_sees and (reason := _not_judged(evidence, steps.why_leans, margin)):
        sure = steps.why_leans in ("wrong", "constant")
        small = WRONG if sure else small_print(evidence, steps, margin)
        return VerdictWords(steps, f"{NOT_JUDGED}{reason}", "", small, [], reason)
    return VerdictWords(
        steps, headline, _rests_on(evidence, margin), small_print(evidence, steps, margin),
        _warnings(evidence, steps, margin),
    )  # fmt: skip


def not_judged(counts: Counts) -> dict[str, str]:
    """Return model → what is wrong with its answers to unchanged images, for models that no verdict can rest on."""
    reasons = {}
    for model in counts.models:
        evidence = original_evidence(from_counts(counts, model))
        why = decide(evidence).why_leans
        if why != "uneven" and (reason := _not_judged(evidence, why, MARGIN)):
            reasons[model] = reason
    return reasons


def _not_judged(evidence: VerdictEvidence, why: Reason, margin: float) -> str:
    """Return what is wrong with answers to unchanged images, if no verdict can rest on them; '' if nothing is."""
    excess = evidence.original
    match why:
        case "wrong":
            return f"right on none of {evidence.wrong} unchanged images"
        case "constant" if evidence.constant:
            name, count, of = evidence.constant
            return f"answers {name.replace('_', ' ')} to {count} of {of} unchanged images"
        case "uneven" if evidence.uneven:
            return f"the classes are too uneven for a verdict ({_uneven(evidence)})"
        case "guessing" | "perhaps guessing" if excess.value <= margin and excess.n >= LEAST_WRONG:
            clearly = "no" if why == "guessing" else "not clearly"
            return f"{clearly} better than guessing on {excess.n} unchanged images"
    return ""


def more_photos(row: Mapping[str, Any], *, margin: float = MARGIN) -> tuple[int, int] | None:
    """Return between how many and how many images more would answer what is open; None if that cannot be said.

    The range is that of the estimate's own middle half (``stats.models.power.photo_range``), 8 times of 10 each.
    """
    ranges = []
    for name in open_numbers(row):
        low, high, n = row[f"{name}_low"], row[f"{name}_high"], int(row["n"])
        needed = photo_range(n, value=row[name], low=low, high=high, margin=margin)
        if needed is None:
            return None
        ranges.append(needed)
    if not ranges:
        return None
    fewest, most = (max(ends) - int(row["n"]) for ends in zip(*ranges, strict=True))
    return max(1, fewest), max(1, most)


def photo_advice(row: Mapping[str, Any]) -> str:
    """Return what more images would do for the verdict of a row of ``what_it_holds``, in a sentence."""
    needed, names = more_photos(row), open_numbers(row)
    if row["leans"] != "open" and row["sees"] != "open":
        return f"None needed: both intervals lie clear of the margin of {points(MARGIN, 0)}."
    if not names:
        return "They would not help: the verdict is inconclusive for another reason than the number of images."
    if needed:
        fewest, most = map(two_digits, needed)
        return f"About {fewest:,} to {most:,} more like these would probably decide (a rough range)."
    width = 100 * (row[f"{names[0]}_high"] - row[f"{names[0]}_low"])
    return (
        f"How many would decide cannot be estimated from these {int(row['n'])}. Four times as many would halve "
        f"the interval, which is {width:.1f} points wide."
    )


def score_weakness(leans: str) -> str:
    """Return what a robustness score hides, for the cell that it is in."""
    if leans == "yes":
        return "hides that it relies on the background"
    return "a constant answer scores 1, too" if leans == "no" else "cannot show whether it relies on the background"


def two_digits(count: float) -> int:
    """Return a count with its first two digits, which is all that an estimate of an estimate has."""
    return int(round(count, 1 - math.floor(math.log10(count)))) if count > 0 else 0


def open_numbers(row: Mapping[str, Any]) -> list[str]:
    """Return the numbers of a row whose intervals more images would narrow, those of the first question first."""
    object_ = "foreground_evidence" if math.isnan(row["object_effect"]) else "object_effect"
    about: dict[str, Mapping[str, str]] = {
        "why_leans": {"interval": "background_effect"},
        "why_sees": {"interval": object_},
    }
    recognised = {"perhaps guessing": "original_excess", "perhaps pasting": "same_class_excess"}
    names = [({**recognised, **about[why]}).get(row[why]) for why in about]
    return list(dict.fromkeys(name for name in names if name)) if row["n"] else []


def _rests_on(evidence: VerdictEvidence, margin: float) -> str:
    texts = []
    if evidence.background.n:
        texts.append(background_words("accuracy", evidence.background))
    if evidence.object.n:
        texts.append(f"When only the object changes, {of_hundred(evidence.object, 'answers follow it')}.")
    if evidence.capture.n:
        texts.append(f"It answers with the background's class {percent(evidence.capture.first, 0)} of the time.")
    if evidence.paste.n and evidence.paste.low > margin:
        texts.append(f"Pasting alone costs {in_points(evidence.paste)}.")
    return " ".join(texts)


def background_words(measure: str, effect: Effect) -> str:
    """Return a sentence on how accuracy or recall changes on backgrounds of another class."""
    if alike(effect.value, 0):
        other = "and" if alike(effect.first, effect.second) else f"and {percent(effect.second)}"
        return (
            f"Its {measure} does not change ({span(effect)} points lost; 0 is best) when only the background changes: "
            f"{percent(effect.first)} on a same class background {other} on a random background, of another class."
        )
    falls = "rises" if effect.value < 0 else "falls"
    size = f"{points(abs(effect.value))} ({span(effect)} lost; 0 is best)"
    return (
        f"Its {measure} {falls} by {size} when only the background changes: {percent(effect.first)} on a same "
        f"class background, {percent(effect.second)} on a random background, of another class."
    )


def of_hundred(effect: Effect, what: str) -> str:
    """Return a share as ``98.9 of 100 objects (95.7 to 100.0; 100 is best)``."""
    return f"{number(100 * effect.value, 1)} of 100 {what} ({span(effect)}; 100 is best)"


def in_points(effect: Effect) -> str:
    """Return an effect as ``89.6 points (87.6 to 91.7)``."""
    return f"{points(effect.value)} ({span(effect)})"


def small_print(
    evidence: VerdictEvidence, steps: VerdictSteps, margin: float, reason: Callable[..., str] | None = None
) -> str:
    """Return what is inconclusive, and why; ``reason``: returns a clause of why, evidence, effect and margin."""
    reason = reason or _reason
    measured: Effect | Excess = evidence.object if evidence.object.n else evidence.replaced
    questions: list[tuple[str, Reason, Effect | Excess]] = [
        ("whether it relies on the background", steps.why_leans, evidence.background),
        ("whether it sees the object", steps.why_sees, measured),
    ]
    if steps.why_leans == steps.why_sees and steps.why_leans not in ("", "interval"):
        return f"Neither question can be answered: {reason(steps.why_leans, evidence, measured, margin)}."
    texts = [f"{text} ({reason(why, evidence, effect, margin)})" for text, why, effect in questions if why]
    if len(texts) == len(questions):  # the headline already says that it is inconclusive
        return f"It is unclear {', and '.join(texts)}."
    return f"Inconclusive: {texts[0]}." if texts else ""


def _reason(why: Reason, evidence: VerdictEvidence, effect: Effect | Excess, margin: float) -> str:
    """Return a clause that is true of the evidence."""
    border = f"includes the {number(100 * margin, 0)}-point margin"
    match why:
        case "wrong":
            return "it is right on none of the unchanged images"
        case "constant":
            return "it gives one answer to nearly every unchanged image"
        case "uneven":
            return f"the classes are too uneven to distinguish seeing from guessing: {_uneven(evidence)}"
        case "missing":
            return f"there are no answers under {' and '.join(condition_words(name) for name in evidence.missing)}"
        case "guessing" | "perhaps guessing":
            what, excess = "on the originals", evidence.original
        case "pasting" | "perhaps pasting":
            what, excess = "on pasted scenes", evidence.pasted
        case "classless":
            return "the new backgrounds have no class of the dataset, and on them it is no better than guessing"
        case "unpaired":
            return "no image was answered on both kinds of background"
        case _:
            return includes_margin("image", effect, margin)
    if why == "pasting" and evidence.paste.n and evidence.paste.low > margin:
        return (
            f"pasting alone costs {in_points(evidence.paste)} and leaves it no better than guessing, so its "
            "answers on pasted scenes say nothing"
        )
    if why in ("guessing", "pasting"):
        return f"{what} it is no better than guessing, so what it relies on cannot be measured"
    reach = f"and among the dataset's classes the 95 % interval ({span(excess)} points above guessing) {border}"
    return f"it may be guessing {what}: {excess.n} images, {reach}"


def includes_margin(unit: str, effect: Effect | Excess, margin: float) -> str:
    """Return that an interval includes the margin, which makes an answer inconclusive."""
    return (
        f"{effect.n} {unit}{'' if effect.n == 1 else 's'}: the 95 % interval, {span(effect)} points, includes the "
        f"{number(100 * margin, 0)}-point margin"
    )


def _uneven(evidence: VerdictEvidence) -> str:
    """Return how uneven the classes are, and the accuracy that does not depend on it."""
    assert evidence.uneven is not None
    sizes = "{} images of the largest, {} of the smallest".format(*evidence.uneven)
    above = evidence.balanced
    if math.isnan(above.value):
        return sizes
    reach = interval(above.low, above.high)
    return f"{sizes}; its balanced accuracy is {points(above.value)} above chance, {reach}"


def _warnings(evidence: VerdictEvidence, steps: VerdictSteps, margin: float) -> list[str]:
    """Return what a reader should know before believing the verdict."""
    warnings = []
    if evidence.paste.n and evidence.paste.low > margin:
        warnings.append(
            f"Paste artefact: it loses {in_points(evidence.paste)} when the object is only pasted onto a "
            "background of its own class, so part of any drop on pasted scenes is the pasting."
        )
    only = evidence.only_background
    if only.n == 0 and not evidence.missing:
        warnings.append("only background was not run: whether the backgrounds alone give the class away is unknown.")
    elif steps.verdict == "foreground" and only.low > margin:
        warnings.append(
            f"The backgrounds alone give {percent(only.accuracy, 0)} right answers ({percent(only.permuted, 0)} with "
            "shuffled labels): it can read them if there is no object."
        )
    elif steps.verdict == "background" and only.high < margin:
        warnings.append(
            f"The empty backgrounds give only {percent(only.accuracy, 0)} right answers ({percent(only.permuted, 0)} "
            "with shuffled labels), though it relies on the background: look at the pasted scenes."
        )
    shape = evidence.silhouette
    if shape.n == 0 and not evidence.missing:
        warnings.append("silhouette was not run: whether the outline alone gives the class away is unknown.")
    elif shape.low > margin:
        warnings.append(
            f"The outline alone gives {percent(shape.accuracy, 0)} right answers ({percent(shape.permuted, 0)} with "
            "shuffled labels): conditions that keep the outline leak the class."
        )
    if evidence.capture.n == 0 and not evidence.missing:
        warnings.append("The random backgrounds have no class of the dataset: capture cannot be measured.")
    return warnings


def span(effect: Effect | Excess) -> str:
    """Return an interval in points, as tables print it."""
    return interval(effect.low, effect.high)
