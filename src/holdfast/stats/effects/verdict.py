"""What a model holds on to: the object, the background, or both.

Pasted scenes are a design with two factors: the object's class and the background's class. The background effect
changes the background and keeps the object; the object effect changes the object and keeps the background. Both sides
of each are pasted, so that what pasting itself does cancels. docs/statistics/holds.md has the rule and its reasons.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import Answers, from_counts
from holdfast.stats.core.bootstrap import RESAMPLES, Floats, sums
from holdfast.stats.core.cells import Average, design_effects, wilson
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.drops import Effect, effect_of, pair

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["foreground", "background", "both", "undecided"]

SAME, RANDOM, ONLY, SILHOUETTE = "same_class_background", "random_background", "only_background", "silhouette"
NEEDED = (ORIGINAL, SAME, RANDOM)
"""Without these there is no verdict; without the others there is a warning."""

MARGIN = 0.05


@dataclass(frozen=True)
class Excess:
    """Accuracy above the label-permuted rate: what the same answers would score if the labels were shuffled.

    ``value`` = accuracy − permuted, with the interval of the accuracy moved by as much; ``p``: two-sided permutation
    test (normal, with the exact variance of the number of matches).
    """

    n: int
    accuracy: float
    permuted: float
    value: float
    low: float
    high: float
    p: float


_NOTHING = float("nan")
NO_EXCESS = Excess(0, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING)


@dataclass(frozen=True)
class VerdictEvidence:
    """Everything the verdict on one model rests on."""

    missing: tuple[str, ...]
    background: Effect
    object: Effect
    paste: Effect
    capture: Effect
    original: Excess
    pasted: Excess
    replaced: Excess
    only_background: Excess
    silhouette: Excess


def what_it_holds(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    margin: float = MARGIN,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row per model × trained_on: numbers, ``verdict``, a ``sentence`` and ``warnings`` (a list).

    Columns, each followed by ``…_low`` and ``…_high`` (95 %):
    ``background_effect`` = accuracy(same_class_background) − accuracy(random_background), same photos;
    ``object_effect`` = how often the answer is the background's class when the object agrees (same_class_background)
    − when it does not (random_background);
    ``paste_effect`` = accuracy(original) − accuracy(same_class_background);
    ``capture`` = rate of answers with the donor's class under random_background − the rate on the same photos'
    originals;
    ``original_excess``, ``same_class_excess``, ``foreground_evidence`` (random_background),
    ``only_background_excess`` and ``silhouette_excess``: accuracy − label-permuted rate.
    Plain columns: ``n`` photos with both pastes; ``original``, ``same_class_background``, ``random_background``,
    ``only_background``, ``silhouette``: accuracies; ``captured``: the rate of donor-class answers; ``permuted``: the
    permuted rate of only_background and ``only_background_p`` its test; ``paste_artefact``: pasting alone costs more
    than the margin. Effects follow ``outcome`` and ``average``; capture, object effect and excesses are about the
    dataset's classes, whatever the outcome, and excesses count every photo the same.

    Args:
        counts: from ``reduce``.
        outcome: which answers count as right in the effects.
        average: macro or micro, for the effects.
        margin: a difference up to this is nothing to speak of, 0..1.
        resamples: bootstrap resamples.
        seed: of the bootstrap.
    """
    import pandas as pd

    if not 0 <= margin < 1:
        raise UserError(f"the margin is a difference of accuracies, 0..1, which {margin} is not")
    rows = []
    for model in counts.models:
        answers = from_counts(counts, model, outcome=outcome)
        for trained_on in answers.trained:
            evidence = evidence_of(
                answers, trained_on, classes=counts.classes, average=average, resamples=resamples, seed=seed
            )
            verdict, sentence, warnings = in_words(evidence, margin)
            rows.append(
                {"model": model, "trained_on": trained_on, "verdict": verdict, "n": evidence.background.n}
                | _numbers(evidence, margin)
                | {"sentence": sentence, "warnings": warnings}
            )
    return pd.DataFrame(rows)


def in_words(evidence: VerdictEvidence, margin: float = MARGIN) -> tuple[Verdict, str, list[str]]:
    """Return the verdict, its sentence, and what a reader should bear in mind."""
    verdict, reason = decide(evidence, margin)
    return verdict, _sentence(evidence, verdict, reason, margin), _warnings(evidence, verdict, margin)


def decide(evidence: VerdictEvidence, margin: float = MARGIN) -> tuple[Verdict, str]:
    """Return the verdict, and why where it is undecided.

    1. A needed condition is missing, or the originals (or, pasted on their own kind of background, the objects) are
       not recognised above the permuted rate by more than the margin → undecided.
    2. An effect is *there* when its interval lies above the margin, *absent* when below, else *open*.
    3. Background there, object there → both; background there, object absent → background; background absent,
       object there → foreground; anything open, or both absent → undecided.
    """
    if evidence.missing:
        return "undecided", f"not run: {', '.join(evidence.missing)}"
    if not evidence.original.low > margin:
        return "undecided", "not clearly better than guessing on the originals, so there is nothing to hold on to"
    if not evidence.pasted.low > margin:
        return "undecided", "pasting alone leaves little of its accuracy, so its answers on pasted scenes say nothing"
    background = _state(evidence.background, margin)
    # backgrounds from elsewhere have no class that an answer could be: being right in spite of them must do
    object_ = _state(evidence.object if evidence.object.n else evidence.replaced, margin)
    if not evidence.object.n and object_ != "there":
        return "undecided", "the backgrounds have no class of the dataset, and the object alone is not recognised"
    if not evidence.object.n and background != "absent":
        return "undecided", "the backgrounds have no class of the dataset, so background and both cannot be told apart"
    if background == "open":
        return "undecided", "too few photos to tell whether the background matters"
    if object_ == "open":
        return "undecided", "too few photos to tell whether the object matters"
    table: dict[tuple[str, str], Verdict] = {
        ("there", "there"): "both",
        ("there", "absent"): "background",
        ("absent", "there"): "foreground",
    }
    verdict = table.get((background, object_), "undecided")
    return verdict, "" if verdict != "undecided" else "neither the object nor the background moves its answers"


def permuted_excess(known: Floats, given: Floats, right: float, effect: float = 1.0) -> Excess:
    """Return the accuracy among the dataset's classes against the label-permuted rate.

    permuted = Σ_k R_k C_k / n², R_k photos of class k, C_k answers k. Under permutation the number of matches has the
    variance ((Σ RC)² + n² Σ RC − n Σ RC(R + C)) / (n²(n − 1)). Interval: Wilson's for the accuracy, on the effective
    number of photos, moved by the permuted rate.

    Args:
        known: (classes,) photos of each class.
        given: (classes,) answers with each class.
        right: right answers.
        effect: how many times larger the variance is than that of independent rows.
    """
    n = float(known.sum())
    if n == 0:
        return NO_EXCESS
    products = known * given
    matches = float(products.sum())
    permuted = matches / n**2
    low, high = (float(bound) - permuted for bound in wilson(right / effect, n / effect))
    variance = (matches**2 + n**2 * matches - n * float((products * (known + given)).sum())) / (n**2 * max(n - 1, 1))
    p = _two_sided(right - n * permuted, variance * effect)
    return Excess(int(n), right / n, permuted, right / n - permuted, low, high, p)


def evidence_of(
    answers: Answers,
    trained_on: str,
    *,
    classes: Collection[str],
    average: Average = "macro",
    resamples: int = RESAMPLES,
    seed: int = 0,
    background: Effect | None = None,
) -> VerdictEvidence:
    """Return what the verdict on a model rests on.

    Args:
        answers: of the model, of the outcome asked for.
        trained_on: which of its trainings.
        classes: of the dataset: a background of no class of it can capture nothing.
        average: macro or micro, for the effects.
        resamples: bootstrap resamples.
        seed: of the bootstrap.
        background: the effect of the background, where it is known already.
    """
    answers = answers.part(answers.on(trained_on))
    under = {name: answers.under(name) for name in (*NEEDED, ONLY, SILHOUETTE)}
    effect = partial(effect_of, average=average, resamples=resamples, seed=seed)
    known = np.array([*(name in classes for name in answers.donor_labels), False])
    classed = under[RANDOM] & known[answers.donor_label]
    captured = (answers.captured, answers.captured)
    place = answers.trained.index(trained_on) if trained_on in answers.trained else 0
    excess = _excesses(answers, place)
    return VerdictEvidence(
        missing=tuple(name for name in NEEDED if not under[name].any()),
        background=background or effect(pair(answers, under[SAME], under[RANDOM])),
        object=effect(pair(answers, under[SAME], classed, captured)),
        paste=effect(pair(answers, under[ORIGINAL], under[SAME])),
        capture=effect(pair(answers, classed, classed, (answers.captured, answers.captured_before))),
        original=excess[ORIGINAL],
        pasted=excess[SAME],
        replaced=excess[RANDOM],
        only_background=excess[ONLY],
        silhouette=excess[SILHOUETTE],
    )


def _excesses(answers: Answers, trained: int) -> dict[str, Excess]:
    """Return the excess under each condition that the verdict looks at."""
    count, classes = len(answers.conditions), len(answers.labels)
    known = sums(answers.condition * np.intp(classes) + answers.label, answers.n, count * classes)
    right = sums(answers.condition, answers.right_restricted, count)
    effect = design_effects(
        answers.right_restricted, answers.n, answers.condition, count, source=answers.source, donor=answers.donor
    )
    rows = zip(known.reshape(count, classes), answers.given[trained], right.tolist(), effect.tolist(), strict=True)
    places = dict(zip(answers.conditions, rows, strict=True))
    wanted = (*NEEDED, ONLY, SILHOUETTE)
    return {name: permuted_excess(*places[name]) if name in places else NO_EXCESS for name in wanted}


def _state(effect: Effect | Excess, margin: float) -> Literal["there", "absent", "open"]:
    if effect.low > margin:
        return "there"
    return "absent" if effect.high < margin else "open"


def _numbers(evidence: VerdictEvidence, margin: float) -> dict[str, object]:
    named: dict[str, Effect | Excess] = {
        "background_effect": evidence.background,
        "object_effect": evidence.object,
        "paste_effect": evidence.paste,
        "capture": evidence.capture,
        "original_excess": evidence.original,
        "same_class_excess": evidence.pasted,
        "foreground_evidence": evidence.replaced,
        "only_background_excess": evidence.only_background,
        "silhouette_excess": evidence.silhouette,
    }
    numbers: dict[str, object] = {}
    for name, effect in named.items():
        numbers |= {name: effect.value, f"{name}_low": effect.low, f"{name}_high": effect.high}
    return numbers | {
        ORIGINAL: evidence.paste.first,
        SAME: evidence.background.first,
        RANDOM: evidence.background.second,
        ONLY: evidence.only_background.accuracy,
        SILHOUETTE: evidence.silhouette.accuracy,
        "captured": evidence.capture.first,
        "permuted": evidence.only_background.permuted,
        "only_background_p": evidence.only_background.p,
        "paste_artefact": bool(evidence.paste.low > margin),
    }


def _sentence(evidence: VerdictEvidence, verdict: Verdict, reason: str, margin: float) -> str:
    """Return the verdict in one plain sentence with its numbers."""
    parts = []
    if evidence.background.n:
        parts.append(f"{_change(evidence.background)} when only the background changes")
    if evidence.object.n:
        parts.append(f"{_change(evidence.object)} when only the object changes")
    if evidence.capture.n:
        parts.append(f"answers with the background's class {_percent(evidence.capture.first)} of the time")
    if evidence.paste.n and evidence.paste.low > margin:
        parts.append(f"{_change(evidence.paste)} by pasting alone")
    numbers = "; ".join(parts)
    start = verdict.capitalize() + (f" ({reason})" if reason else "")
    return f"{start}: {numbers}." if numbers else f"{start}."


def _warnings(evidence: VerdictEvidence, verdict: Verdict, margin: float) -> list[str]:
    """Return what a reader should know before believing the verdict."""
    warnings = []
    if evidence.paste.n and evidence.paste.low > margin:
        warnings.append(
            f"Paste artefact: it {_change(evidence.paste)} when the object is only pasted onto a background of its own "
            "class, so part of any drop on pasted scenes is the pasting."
        )
    only = evidence.only_background
    if only.n == 0:
        warnings.append("only_background was not run: whether the backgrounds alone give the class away is unknown.")
    elif verdict == "foreground" and only.low > margin:
        warnings.append(
            f"The backgrounds alone give {_percent(only.accuracy)} right answers ({_percent(only.permuted)} with "
            "shuffled labels): it can read them where there is no object."
        )
    elif verdict == "background" and only.high < margin:
        warnings.append(
            f"The empty backgrounds give only {_percent(only.accuracy)} right answers ({_percent(only.permuted)} with "
            "shuffled labels), though the verdict is background: look at the pasted scenes."
        )
    shape = evidence.silhouette
    if shape.n == 0:
        warnings.append("silhouette was not run: whether the outline alone gives the class away is unknown.")
    elif shape.low > margin:
        warnings.append(
            f"The outline alone gives {_percent(shape.accuracy)} right answers ({_percent(shape.permuted)} with "
            "shuffled labels): conditions that keep the outline leak the class."
        )
    if evidence.capture.n == 0 and not evidence.missing:
        warnings.append("The random backgrounds have no class of the dataset: capture cannot be measured.")
    return warnings


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _change(effect: Effect) -> str:
    verb = "gains" if effect.value < 0 else "loses"
    return f"{verb} {_plus_minus(effect)} points"


def _plus_minus(effect: Effect) -> str:
    return f"{100 * abs(effect.value):.0f} ± {50 * (effect.high - effect.low):.0f}"


def _two_sided(deviation: float, variance: float) -> float:
    from scipy.special import ndtr

    if variance <= 1e-12:
        return 1.0  # every permutation scores the same: a constant answer
    return float(2 * ndtr(-abs(deviation) / np.sqrt(variance)))
