"""What a detector relies on, in words: the two questions of every verdict, asked of recall.

A detector that finds an object in its place on a background from elsewhere cannot have guessed it: so recall there is
the answer to whether it sees the object, and needs no rate of guessing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.core.lazy import pd
from holdfast.core.names import condition_words
from holdfast.core.numbers import percent
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.effects import sanity
from holdfast.stats.effects.drops import NO_EFFECT, Effect
from holdfast.stats.effects.verdict import (
    MARGIN,
    NEEDED,
    NO_EXCESS,
    ONLY,
    RANDOM,
    SAME,
    Excess,
    Reason,
    VerdictEvidence,
    decide,
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
from holdfast.stats.objects.answers import DetectorAnswers
from holdfast.stats.objects.effects import object_effect, objects_under_conditions


def what_detectors_hold(
    answers: DetectorAnswers,
    table: pd.DataFrame | None = None,
    *,
    margin: float = MARGIN,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return a row per model: ``verdict``, ``headline``, ``rests_on``, ``small_print``, ``warnings`` and the numbers.

    ``background_effect`` = recall(same_class_background) − recall(random_background), same objects; ``paste_effect`` =
    recall(original) − recall(same_class_background); ``recall_elsewhere``: recall on random backgrounds.
    """
    if table is None:
        table = objects_under_conditions(answers, resamples=resamples, seed=seed)
    rows = []
    for model in answers.models:
        numbers = {str(row["condition"]): row for row in table[table["model"] == model].to_dict("records")}
        evidence = _evidence(answers, model, numbers, resamples, seed)
        steps = decide(evidence, margin)
        row: dict[str, Any] = {"model": model, "verdict": steps.verdict, "leans": steps.leans, "sees": steps.sees}
        row["n"] = evidence.background.n
        if steps.why_leans == "wrong":
            row["unjudged"] = _broken(answers, model)
            row |= {"headline": f"{NOT_JUDGED}{row['unjudged']}", "rests_on": "", "small_print": WRONG, "warnings": []}
        else:
            row["unjudged"] = ""
            row |= {"headline": HEADLINES[steps.leans, steps.sees], "rests_on": _rests_on(evidence, numbers)}
            row |= {"small_print": small_print(evidence, steps, margin, _reason)}
            row["warnings"] = _warnings(evidence, numbers, margin)
        row["sentence"] = f"{row['headline']}: {row['rests_on']} {row['small_print']}".strip().replace(":  ", ": ")
        for name, effect in (
            ("background_effect", evidence.background),
            ("paste_effect", evidence.paste),
            ("recall_elsewhere", evidence.object),
        ):
            row |= effect.estimate.row(name)
        rows.append(row)
    return pd.DataFrame(rows)


def _evidence(
    answers: DetectorAnswers, model: str, numbers: Mapping[str, Mapping[Any, Any]], resamples: int, seed: int
) -> VerdictEvidence:
    own = answers.counted[answers.counted["model"] == model]
    under = {name: own[own["condition"] == name] for name in NEEDED}

    def effect(first: str, second: str) -> Effect:
        if under[first].empty or under[second].empty:
            return NO_EFFECT
        return object_effect(under[first], under[second], "found", resamples=resamples, seed=seed)

    def recall(name: str) -> Excess:
        row = numbers.get(name)
        if row is None or not row["objects"]:
            return NO_EXCESS
        value, low, high = (row[key] for key in ("recall", "recall_low", "recall_high"))
        return Excess(int(row["objects"]), value, 0.0, value, low, high, float("nan"))

    elsewhere = recall(RANDOM)
    seen = NO_EFFECT
    if elsewhere.n:
        seen = Effect(elsewhere.n, elsewhere.value, 0.0, *elsewhere.estimate, 0, 0, float("nan"))
    return VerdictEvidence(
        missing=tuple(name for name in NEEDED if under[name].empty), background=effect(SAME, RANDOM), object=seen,
        paste=effect(ORIGINAL, SAME), capture=NO_EFFECT, original=recall(ORIGINAL), pasted=recall(SAME),
        replaced=elsewhere, only_background=NO_EXCESS, silhouette=NO_EXCESS,
        wrong=recall(ORIGINAL).n if _broken(answers, model) else 0,
    )  # fmt: skip


def _broken(answers: DetectorAnswers, model: str) -> str:
    """Return what is wrong with a detector's answers to unchanged images, if no verdict can rest on them."""
    own = answers.counted[(answers.counted["model"] == model) & (answers.counted["condition"] == ORIGINAL)]
    return sanity.too_few(int(own["found"].sum()), len(own), finds="finds", what="objects in unchanged images")


def _rests_on(evidence: VerdictEvidence, numbers: Mapping[str, Mapping[Any, Any]]) -> str:
    texts = []
    if evidence.background.n:
        texts.append(background_words("recall", evidence.background))
    if evidence.object.n:
        texts.append(f"On backgrounds from elsewhere it finds {of_hundred(evidence.object, 'objects')}.")
    after = numbers.get(RANDOM)
    if after and np.isfinite(after["false_alarms_change"]):
        before = after["false_alarms"] - after["false_alarms_change"]
        texts.append(f"False alarms per image go from {before:.2f} to {after['false_alarms']:.2f} there.")
    return " ".join(texts)


def _reason(why: Reason, evidence: VerdictEvidence, effect: Effect, margin: float) -> str:
    match why:
        case "missing":
            return f"there are no answers under {' and '.join(condition_words(name) for name in evidence.missing)}"
        case "guessing" | "perhaps guessing":
            return f"on the originals it finds {_percent(evidence.original)} of the objects, too few to lose any"
        case "pasting" | "perhaps pasting":
            return f"of the pasted objects it finds {_percent(evidence.pasted)}, too few to lose any"
        case "unpaired":
            return "no object was shown on both kinds of background"
    return includes_margin("object", effect, margin)


def _warnings(evidence: VerdictEvidence, numbers: Mapping[str, Mapping[Any, Any]], margin: float) -> list[str]:
    """Return what a reader should know before believing the verdict."""
    warnings = []
    if evidence.paste.n and evidence.paste.low > margin:
        warnings.append(
            f"Paste artefact: it loses {in_points(evidence.paste)} of recall when objects are only pasted "
            "onto a background of their own class, so part of any drop on pasted scenes is the pasting."
        )
    alone = numbers.get(ONLY)
    if alone and alone["predictions_low"] > 0.1:
        warnings.append(f"On backgrounds with nothing on them it reports {alone['predictions']:.2f} objects per image.")
    hidden = [condition_words(name) for name, row in numbers.items() if row.get("ap_hides")]
    if hidden:
        warnings.append(
            f"AP hides it under {', '.join(hidden)}: the interval of AP's change holds zero, that of recall's does not."
        )
    return warnings


def _percent(excess: Excess) -> str:
    return percent(excess.accuracy, 0) if excess.n else "none"
