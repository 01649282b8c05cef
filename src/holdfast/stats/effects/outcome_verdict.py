"""The two questions of every verdict, asked of the success of any task: of objects found, of numbers within tolerance.

Without classes there is no label-permuted rate. A task that knows its rate of guessing says so (``Task.chance``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from holdfast.core.lazy import pd
from holdfast.core.names import condition_words
from holdfast.core.numbers import percent
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import Answers, from_counts
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.cells import cluster_codes, pooled_accuracy
from holdfast.stats.core.reduce import Counts
from holdfast.stats.effects import sanity
from holdfast.stats.effects.drops import NO_EFFECT, Effect, effect_of, pair
from holdfast.stats.effects.verdict import (
    MARGIN,
    NEEDED,
    NO_EXCESS,
    ONLY,
    RANDOM,
    SAME,
    SILHOUETTE,
    Excess,
    Reason,
    VerdictEvidence,
    decide,
    with_copies,
)
from holdfast.stats.effects.verdict_words import (
    HEADLINES,
    NOT_JUDGED,
    WRONG,
    background_words,
    in_points,
    includes_margin,
    of_hundred,
    small_print,
)

Average = Literal["macro", "micro"]


def what_outcomes_rely_on(
    counts: Counts,
    *,
    unit: str = "image",
    success: str = "right",
    average: Average = "micro",
    margin: float = MARGIN,
    resamples: int = RESAMPLES,
    seed: int = 0,
    measure: str = "success",
) -> pd.DataFrame:
    """Return a verdict per model: ``verdict``, its words and the numbers it rests on.

    Args:
        counts: of ``stats.core.outcomes.outcome_counts``.
        unit: what is counted, such as ``image`` or ``object``.
        success: what a success is, such as ``right`` or ``found``.
        average: whether every class or every unit weighs the same.
        margin: a difference up to this is negligible, 0 to 1.
        resamples: number of resamples of every bootstrap.
        seed: seed of every bootstrap.
        measure: name of the mean success in sentences, such as ``recall``.

    Returns:
        ``background_effect`` = success on same-class backgrounds − on random backgrounds, of the same units;
        ``paste_effect`` = success on originals − on same-class backgrounds; ``success_elsewhere``: on random
        backgrounds, above the counts' ``chance``. Each with ``…_low`` and ``…_high`` (95 %).
    """
    rows = []
    for model in counts.models:
        answers = from_counts(counts, model)
        for trained_on in answers.trained:
            own = answers.part(answers.on(trained_on))
            evidence = outcome_evidence(own, counts.clusters, counts.chance, average, resamples, seed)
            row: dict[str, Any] = {"model": model, "trained_on": trained_on}
            row |= outcome_words(evidence, margin, unit=unit, success=success, measure=measure)
            for name, effect in (
                ("background_effect", evidence.background),
                ("paste_effect", evidence.paste),
                ("success_elsewhere", evidence.replaced),
            ):
                row |= effect.estimate.row(name)
            rows.append(row)
    return with_copies(pd.DataFrame(rows), counts.copies)


def outcome_evidence(
    answers: Answers,
    clusters: Mapping[str, str] | None,
    chance: float | None,
    average: Average,
    resamples: int,
    seed: int,
) -> VerdictEvidence:
    """Return what the verdict on a model rests on; ``answers``: of one training, ``clusters``: unit → image."""
    under = {name: answers.under(name) for name in (*NEEDED, ONLY, SILHOUETTE)}
    cluster = None if clusters is None else cluster_codes(answers.sources, clusters)

    def effect(first: str, second: str) -> Effect:
        if not (under[first].any() and under[second].any()):
            return NO_EFFECT
        cells = pair(answers, under[first], under[second])
        return effect_of(cells, average=average, resamples=resamples, seed=seed, cluster=cluster)

    def excess(name: str) -> Excess:
        if not under[name].any():
            return NO_EXCESS
        own = answers.part(under[name])
        mean = pooled_accuracy(own, average=average, cluster=None if cluster is None else cluster[own.source])
        guessed = chance or 0.0
        low, high = mean.low - guessed, mean.high - guessed
        return Excess(mean.n, mean.value, guessed, mean.value - guessed, low, high, float("nan"))

    right, asked = float(answers.right[under[ORIGINAL]].sum()), float(answers.n[under[ORIGINAL]].sum())
    wrong = int(asked) if sanity.too_few(int(np.ceil(right)), int(asked), finds="", what="") else 0
    return VerdictEvidence(
        missing=tuple(name for name in NEEDED if not under[name].any()), background=effect(SAME, RANDOM),
        object=NO_EFFECT, paste=effect(ORIGINAL, SAME), capture=NO_EFFECT, original=excess(ORIGINAL),
        pasted=excess(SAME), replaced=NO_EXCESS if chance is None else excess(RANDOM), only_background=NO_EXCESS,
        silhouette=NO_EXCESS, wrong=wrong,
    )  # fmt: skip


def outcome_words(evidence: VerdictEvidence, margin: float, *, unit: str, success: str, measure: str) -> dict[str, Any]:
    """Return the verdict and its words as columns of a row."""
    steps = decide(evidence, margin)
    row: dict[str, Any] = {"verdict": steps.verdict, "leans": steps.leans, "sees": steps.sees}
    row |= {"why_leans": steps.why_leans, "why_sees": steps.why_sees, "n": evidence.background.n}
    row["unjudged"] = ""
    if steps.why_leans == "wrong":
        row["unjudged"] = f"{success} on almost none of {evidence.wrong} {unit}s of unchanged images"
        row |= {"headline": f"{NOT_JUDGED}{row['unjudged']}", "rests_on": "", "small_print": WRONG, "warnings": []}
    else:
        rests_on = [background_words(measure, evidence.background)] if evidence.background.n else []
        if evidence.replaced.n:
            elsewhere = evidence.replaced
            seen = Effect(elsewhere.n, elsewhere.value, 0.0, *elsewhere.estimate, 0, 0, float("nan"))
            rests_on.append(f"On backgrounds from elsewhere, {of_hundred(seen, f'{unit}s are {success}')}.")
        reason = _reason(unit, success)
        row |= {"headline": HEADLINES[steps.leans, steps.sees], "rests_on": " ".join(rests_on)}
        row |= {"small_print": small_print(evidence, steps, margin, reason), "warnings": _warnings(evidence, margin)}
    row["sentence"] = f"{row['headline']}: {row['rests_on']} {row['small_print']}".strip().replace(":  ", ": ")
    return row


def _warnings(evidence: VerdictEvidence, margin: float) -> list[str]:
    if not (evidence.paste.n and evidence.paste.low > margin):
        return []
    return [
        f"Paste artefact: it loses {in_points(evidence.paste)} when the object is only pasted onto a background of "
        "its own class, so part of any drop on pasted scenes is the pasting."
    ]


def _reason(unit: str, success: str) -> Callable[[Reason, VerdictEvidence, Effect | Excess, float], str]:
    def reason(why: Reason, evidence: VerdictEvidence, effect: Effect | Excess, margin: float) -> str:
        match why:
            case "missing":
                return f"there are no answers under {' and '.join(condition_words(name) for name in evidence.missing)}"
            case "guessing" | "perhaps guessing":
                share = percent(evidence.original.accuracy, 0)
                return f"on the originals {share} of the {unit}s are {success}, too few to lose any"
            case "pasting" | "perhaps pasting":
                share = percent(evidence.pasted.accuracy, 0)
                return f"of the pasted {unit}s {share} are {success}, too few to lose any"
            case "unpaired" if evidence.background.n:
                return "the rate of guessing is unknown for this task"
            case "unpaired":
                return f"no {unit} was shown on both kinds of background"
            case "classless":
                return "on other backgrounds it is no better than guessing"
        return includes_margin(unit, effect, margin)

    return reason
