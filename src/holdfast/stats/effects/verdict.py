"""What a model relies on: the object, the background, or both.

Pasted scenes are a design with two factors: the object's class and the background's class. The background effect
changes the background and keeps the object; the object effect changes the object and keeps the background. Both sides
of each are pasted, so that what pasting itself does cancels. docs/statistics/verdict.md has the rule and its reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_special
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import Answers, from_counts
from holdfast.stats.core.bootstrap import NO_ESTIMATE, RESAMPLES, Estimate, Floats, sums
from holdfast.stats.core.cells import Average, design_effects, pooled_accuracy, wilson
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.drops import NO_EFFECT, Effect, effect_of, pair

Verdict = Literal["foreground", "background", "both", "undecided"]

SAME, RANDOM, ONLY, SILHOUETTE = "same_class_background", "random_background", "only_background", "silhouette"
NEEDED = (ORIGINAL, SAME, RANDOM)  # Without these there is no verdict; without the others there is a warning

MARGIN = 0.05


Cells = NDArray[np.bool_]  # which cells of the answers
Hits = tuple[Floats, Floats] | None
Step = Literal["yes", "no", "open"]
Reason = Literal[
    "", "wrong", "constant", "uneven", "missing", "guessing", "perhaps guessing", "pasting", "perhaps pasting",
    "interval", "classless", "unpaired",
]  # fmt: skip
LEAST_WRONG = 12  # Originals, none of them answered rightly, from which on labels or preprocessing are suspected
LEAST_SAME = 6  # Originals from which on one answer to all of them is called constant
UNEVEN = 2  # Times as many originals as the smallest class the largest has, above which classes are called uneven
MOSTLY = 0.9  # Share of the originals that get one answer, from which on it is called constant if it is a guess

AMONG_CLASSES = (
    "object_effect", "capture", "captured", "original_excess", "same_class_excess", "foreground_evidence",
    "only_background_excess", "silhouette_excess", ONLY, SILHOUETTE, "permuted", "only_background",
)  # fmt: skip
"""The numbers of a verdict that are about answers among the dataset's classes, whatever the outcome."""


@dataclass(frozen=True)
class VerdictSteps:
    """The two answers of a verdict; ``why_leans`` and ``why_sees`` say why an answer is open."""

    leans: Step
    sees: Step
    why_leans: Reason
    why_sees: Reason

    @property
    def verdict(self) -> Verdict:
        """Return both answers in one word; relying on the background needs only the first."""
        if self.leans == "yes":
            return "both" if self.sees == "yes" else "background"
        return "foreground" if (self.leans, self.sees) == ("no", "yes") else "undecided"


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

    @property
    def estimate(self) -> Estimate:
        """Return the excess with its interval."""
        return Estimate(self.value, self.low, self.high)


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
    wrong: int = 0  # how many originals there are, if not one of ``LEAST_WRONG`` or more is answered rightly
    constant: tuple[str, int, int] | None = None  # the class that is (nearly) every answer, to how many of how many
    uneven: tuple[int, int] | None = None  # originals of the largest and the smallest class, if these are too few
    balanced: Estimate = NO_ESTIMATE  # balanced accuracy on originals of uneven classes, above one in so many classes


def what_it_holds(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    margin: float = MARGIN,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row per model × trained_on: numbers, ``verdict``, its words and ``warnings`` (a list).

    ``leans`` and ``sees``: whether it relies on the background and sees the object (yes, no, open); ``headline`` says
    what is known, ``rests_on`` the numbers, ``small_print`` what is open and why. Each with ``…_low`` and ``…_high``:
    ``background_effect`` = accuracy(same_class_background) − accuracy(random_background), same images;
    ``object_effect`` = how often the answer is the background's class when the object agrees − when it does not;
    ``paste_effect`` = accuracy(original) − accuracy(same_class_background); ``capture`` = rate of answers with the
    donor's class − that of the originals; ``…_excess`` and ``foreground_evidence``: accuracy − label-permuted rate.
    Effects follow ``outcome`` and ``average``; the others are about the dataset's classes, and excesses count every
    image the same. ``margin``: a difference up to this is nothing to speak of.
    """
    if not 0 <= margin < 1:
        raise UserError(f"the margin must be a difference of accuracies from 0 to 1, not {margin}")
    rows = []
    for model in counts.models:
        answers = from_counts(counts, model, outcome=outcome)
        for trained_on in answers.trained:
            evidence = evidence_of(
                answers, trained_on, classes=counts.classes, average=average, resamples=resamples, seed=seed
            )
            rows.append(verdict_row(model, trained_on, evidence, margin))
    return with_copies(pd.DataFrame(rows), counts.copies)


def with_copies(verdicts: pd.DataFrame, copies: int) -> pd.DataFrame:
    """Return verdicts with a warning of images that the dataset has several times."""
    if not copies or verdicts.empty:
        return verdicts
    subject = f"{copies} images are copies of others" if copies > 1 else "1 image is a copy of another"
    text = f"{subject}, byte for byte: copies count as one image. Remove them; holdfast data check lists them."
    return verdicts.assign(warnings=verdicts["warnings"].map(lambda own: [*own, text]))


def verdict_row(model: str, trained_on: str, evidence: VerdictEvidence, margin: float = MARGIN) -> dict[str, object]:
    """Return the verdict on one model with its numbers and words: a row of ``what_it_holds``."""
    from holdfast.stats.effects.verdict_words import in_words

    words = in_words(evidence, margin)
    named = {"model": model, "trained_on": trained_on, "verdict": words.steps.verdict, "n": evidence.background.n}
    return named | _numbers(evidence, margin) | words.columns()


def decide(evidence: VerdictEvidence, margin: float = MARGIN) -> VerdictSteps:
    """Answer the two questions of a verdict, each from its own interval.

    1. Does it rely on the background? *Yes* when the interval of the background effect lies above the margin. *No* when
       it lies below, and the model recognises the originals and the pasted objects by more than the margin.
    2. Does it see the object? The same of the object effect. Backgrounds from elsewhere have no class that an answer
       could be: then *yes* is accuracy on them above the permuted rate by more than the margin.
    """
    blind: Reason = ""  # why an effect of nothing would say nothing
    original = evidence.original
    guesses = original.n > 0 and not original.low > margin and not evidence.balanced.low > margin
    if evidence.wrong or (guesses and evidence.constant):
        blind = "wrong" if evidence.wrong else "constant"
        return VerdictSteps("open", "open", blind, blind)
    if guesses and (not evidence.missing or (original.value <= margin and original.n >= LEAST_WRONG)):
        blind = "uneven" if evidence.uneven else "perhaps guessing" if original.high > margin else "guessing"
    elif evidence.missing:
        blind = "missing"
    elif not evidence.pasted.low > margin:
        blind = "perhaps pasting" if evidence.pasted.high > margin else "pasting"
    leans, why_leans = _step(evidence.background, blind, margin)
    if evidence.object.n:
        sees, why_sees = _step(evidence.object, blind, margin)
    else:
        sees, why_sees = _step(evidence.replaced, blind, margin)
        if sees == "no":
            sees, why_sees = "open", "classless"
    return VerdictSteps(leans, sees, why_leans, why_sees)


def _step(effect: Effect | Excess, blind: Reason, margin: float) -> tuple[Step, Reason]:
    if effect.n and effect.low > margin:
        return "yes", ""
    if blind:
        return "open", blind
    if not effect.n:
        return "open", "unpaired"
    return ("no", "") if effect.high < margin else ("open", "interval")


def permuted_excess(known: Floats, given: Floats, right: float, effect: float = 1.0) -> Excess:
    """Return the accuracy among the dataset's classes against the label-permuted rate Σ_k R_k C_k / n².

    R_k images of class k (``known``), C_k answers k (``given``). Under permutation the number of matches has the
    variance ((Σ RC)² + n² Σ RC − n Σ RC(R + C)) / (n²(n − 1)). Interval: Wilson's for the accuracy, on the effective
    number of images (n / ``effect``), moved by the permuted rate.
    """
    n = float(known.sum())
    if n == 0:
        return NO_EXCESS
    products = known * given
    matches = float(products.sum())
    permuted = matches / n**2
    low, high = (float(bound) - permuted for bound in wilson(right / effect, n / effect))
    variance = (matches**2 + n**2 * matches - n * float((products * (known + given)).sum())) / (n**2 * max(n - 1, 1))
    p = 1.0  # every permutation scores the same: a constant answer
    if variance * effect > 1e-12:
        p = float(2 * scipy_special.ndtr(-abs(right - n * permuted) / np.sqrt(variance * effect)))
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

    ``answers``: of the model, of the outcome asked for. ``classes``: of the dataset: a background of no class of it can
    capture nothing. ``background``: the effect of the background, if it is known already.
    """
    answers = answers.part(answers.on(trained_on))
    place = answers.trained.index(trained_on) if trained_on in answers.trained else 0

    def effect(name: str, first: Cells, second: Cells, hits: Hits = None) -> Effect:
        if name == "background" and background is not None:
            return background
        return effect_of(pair(answers, first, second, hits), average=average, resamples=resamples, seed=seed)

    excess = _excesses(answers, place).__getitem__
    return gathered(answers, classes, effect, excess, place, balanced_excess(answers))


def gathered(
    answers: Answers,
    classes: Collection[str],
    effect: Callable[..., Effect],  # of a name, the cells of two sides, and what is counted on them (right answers)
    excess: Callable[[str], Excess],  # of a condition
    trained: int = 0,
    balanced: Estimate = NO_ESTIMATE,
) -> VerdictEvidence:
    """Return the evidence of a verdict: which effects and excesses it rests on; the two functions measure them."""
    under = {name: answers.under(name) for name in NEEDED}
    known = np.array([*(name in classes for name in answers.donor_labels), False])
    classed = under[RANDOM] & known[answers.donor_label]
    return VerdictEvidence(
        missing=tuple(name for name in NEEDED if not under[name].any()),
        background=effect("background", under[SAME], under[RANDOM]),
        object=effect("object", under[SAME], classed, (answers.captured, answers.captured)),
        paste=effect("paste", under[ORIGINAL], under[SAME]),
        capture=effect("capture", classed, classed, (answers.captured, answers.captured_before)),
        original=excess(ORIGINAL),
        pasted=excess(SAME),
        replaced=excess(RANDOM),
        only_background=excess(ONLY),
        silhouette=excess(SILHOUETTE),
        wrong=all_wrong(answers),
        constant=constant_answer(answers, trained),
        uneven=uneven_classes(answers),
        balanced=balanced,
    )


def original_evidence(answers: Answers) -> VerdictEvidence:
    """Return the part of the evidence that unchanged images give."""
    original = _excesses(answers, 0)[ORIGINAL]
    excesses = (original, *(NO_EXCESS,) * 4)
    constant = constant_answer(answers)
    return VerdictEvidence(
        (), *(NO_EFFECT,) * 4, *excesses, wrong=all_wrong(answers), constant=constant,
        uneven=uneven_classes(answers), balanced=balanced_excess(answers),
    )  # fmt: skip


def _originals(answers: Answers) -> Floats:
    """Return how many originals each class has, classes without any left out."""
    asked = answers.under(ORIGINAL)
    counts = sums(answers.label[asked], answers.n[asked], len(answers.labels))
    return np.asarray(counts[counts > 0])


def uneven_classes(answers: Answers, margin: float = MARGIN) -> tuple[int, int] | None:
    """Return the sizes of the largest and the smallest class if even a perfect model would seem to guess.

    None if its excess would lie clearly above the margin.
    """
    counts = _originals(answers)
    if len(counts) < 2 or permuted_excess(counts, counts, float(counts.sum())).low > margin:
        return None
    return (int(counts.max()), int(counts.min())) if counts.max() > UNEVEN * counts.min() else None


def balanced_excess(answers: Answers) -> Estimate:
    """Return the balanced accuracy on originals above 1 / classes with its interval, if classes are uneven.

    Accuracy itself is near its label-permuted rate there, whatever a model sees. Counted among the dataset's classes.
    """
    counts = _originals(answers)
    if len(counts) < 2 or counts.max() <= UNEVEN * counts.min():
        return NO_ESTIMATE
    own = answers.part(answers.under(ORIGINAL)).restricted()
    mean, chance = pooled_accuracy(own), 1 / len(counts)
    return Estimate(mean.value - chance, mean.low - chance, mean.high - chance)


def constant_answer(answers: Answers, trained: int = 0) -> tuple[str, int, int] | None:
    """Return the class that ``MOSTLY`` all originals get and not so many are of, with how many of how many, or None."""
    if ORIGINAL not in answers.conditions or len(answers.labels) < 2:
        return None
    given = answers.given[trained][answers.conditions.index(ORIGINAL)]
    place, count, of = int(given.argmax()), int(given.max()), int(given.sum())
    own = answers.n[answers.under(ORIGINAL) & (answers.label == place)].sum()
    constant = of >= (LEAST_SAME if count == of else LEAST_WRONG) and count >= MOSTLY * of > own
    return (answers.labels[place], count, of) if constant else None


def all_wrong(answers: Answers) -> int:
    """Return the number of originals if not one of ``LEAST_WRONG`` or more is answered rightly, else 0."""
    asked = answers.under(ORIGINAL)
    count = int(answers.n[asked].sum())
    return count if count >= LEAST_WRONG and not answers.right[asked].any() else 0


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
        numbers |= effect.estimate.row(name)
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
