"""Whether a model looks broken: what it gets right on unchanged images, for tasks without a rate of guessing.

``verdict_words.not_judged`` says the same of classifiers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.lazy import pd
from holdfast.core.types import ORIGINAL
from holdfast.stats.effects.segments import BACKGROUND
from holdfast.stats.effects.verdict import LEAST_WRONG, MARGIN

ADVICE = (
    "the names of its outputs (--labels) or its preprocessing are probably wrong, and docs/my-model.md says how to "
    "state them"
)


def sentences(reasons: Mapping[str, str]) -> list[str]:
    """Return what to do about each model that looks broken."""
    return [f"{model}: {reason}; {ADVICE}" for model, reason in reasons.items()]


def too_few(right: int, count: int, *, finds: str, what: str) -> str:
    """Return what is wrong with so few right answers (``finds`` 0 of 30 ``what``), or "" if nothing can be said."""
    from scipy.stats import binomtest

    if count < LEAST_WRONG or (right and binomtest(right, count).proportion_ci(method="exact").high > MARGIN):
        return ""
    return f"{finds} {right or 'none'} of {count} {what}"


def broken_detectors(objects: pa.Table) -> dict[str, str]:
    """Return model → what is wrong, from rows of ``core.schema.OBJECTS``."""
    asked = (pc.field("condition") == ORIGINAL) & (pc.field("status") == "ok") & ~pc.field("crowd")
    rows = objects.filter(asked & pc.field("found").is_valid()).select(["model", "found"]).to_pandas()
    return _reasons(rows.groupby(rows["model"].astype(str))["found"], finds="finds", what="objects in unchanged images")


def broken_segmenters(frame: pd.DataFrame) -> dict[str, str]:
    """Return model → what is wrong, from rows of ``segments.measured``."""
    rows = frame[(frame["condition"] == ORIGINAL) & (frame["class"] != BACKGROUND) & (frame["truth"] > 0)]
    met = (rows["intersection"] > 0).groupby(rows["model"].astype(str))
    return _reasons(met, finds="marks a pixel of", what="objects in unchanged images")


def broken_labels(table: pa.Table) -> dict[str, str]:
    """Return model → what is wrong, from rows of images with several labels (``sample_id`` ends in ``#label``)."""
    fine = (pc.field("condition") == ORIGINAL) & (pc.field("status") == "ok")
    rows = table.filter(fine).select(["model", "sample_id", "label", "correct"]).to_pandas().astype({"model": str})
    has_label = rows["label"].astype(str) == rows["sample_id"].astype(str).str.rpartition("#")[2]
    reasons = _reasons(
        rows[has_label].groupby("model")["correct"], finds="finds", what="labels that unchanged images have"
    )
    for model, own in rows.groupby("model"):
        yes, no = (own[has_label[own.index] == kind]["correct"].astype(float) for kind in (True, False))
        if model in reasons or min(len(yes), len(no)) < LEAST_WRONG:
            continue
        excess = yes.mean() + no.mean() - 1
        error = math.sqrt(yes.var(ddof=0) / len(yes) + no.var(ddof=0) / len(no))
        if excess + 1.96 * error <= MARGIN:
            reasons[str(model)] = f"no better than guessing on {len(own)} labels of unchanged images"
    return reasons


def _reasons(right: Iterable[tuple[object, pd.Series]], *, finds: str, what: str) -> dict[str, str]:
    counted = {str(model): too_few(int(own.sum()), len(own), finds=finds, what=what) for model, own in right}
    return {model: reason for model, reason in counted.items() if reason}
