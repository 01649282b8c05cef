"""The release gate of detectors: does the new one find as many objects, and raise no more false alarms?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.names import without_object
from holdfast.core.numbers import SHARE
from holdfast.stats.core.answers import numbered_column
from holdfast.stats.core.bootstrap import codes, sums
from holdfast.stats.models.gate import COLUMNS, Gate, named_model, non_inferiority, quantity_of, with_verdicts
from holdfast.stats.models.noninferiority import LEAST_DONORS, Differences
from holdfast.stats.objects.answers import DetectorAnswers

ALARMS_MARGIN = 0.1
RECALL, ALARMS = "recall", "false alarms"


def object_gate(
    old: DetectorAnswers,
    new: DetectorAnswers,
    *,
    margin: float = 0.02,
    alarms_margin: float = ALARMS_MARGIN,
    old_model: str | None = None,
    new_model: str | None = None,
    conditions: Sequence[str] | None = None,
    level: float = 0.95,
) -> Gate:
    """Test per condition whether a new detector is no worse than an old one: on recall, and on false alarms.

    The rule is that of ``stats.models.gate``: all have to pass, one failure (Holm-corrected) is enough. Every object
    weighs the same in recall, every image in false alarms; images are independent, and donors count if they are
    shared. Objects of images on which only the new detector failed with an error count as lost.
    """
    if not 0 <= margin < 1:
        raise UserError(f"The margin must be a share of recall from 0 to 1, not {margin}.")
    if not (math.isfinite(alarms_margin) and alarms_margin >= 0):
        raise UserError(f"The margin of false alarms must be a number per image of 0 or more, not {alarms_margin}.")
    ours, theirs = only_model(old, old_model, "old"), only_model(new, new_model, "new")
    known = [name for name in old.conditions if (old.pictures["condition"] == name).any()]
    for name in conditions or ():
        if name not in known:
            raise UserError(f"No condition {name!r} in the old run; it has {', '.join(known)}.")
    names = [name for name in known if conditions is None or name in conditions]
    if not set(old.sources) & {*new.sources, *new.failed["source_id"]}:
        raise UserError("The two runs have no image in common: compare runs on the same data.")
    tests: list[tuple[str, str, pd.DataFrame, int]] = []
    for name in names:
        if not without_object(name):
            pairs, lost = _recall_pairs(old, new, ours, theirs, name)
            tests.append((RECALL, name, pairs, lost))
        tests.append((ALARMS, name, _alarm_pairs(old, new, ours, theirs, name), 0))
    family = sum(len(pairs) > 0 for _, _, pairs, _ in tests)
    ways = {RECALL: (1, margin), ALARMS: (-1, alarms_margin)}
    table = with_verdicts(
        [_row(measure, name, pairs, *ways[measure], level, family, lost) for measure, name, pairs, lost in tests], level
    )
    margins = {RECALL: margin, ALARMS: alarms_margin}
    table["sentence"] = [_sentence(row, margins[row["measure"]]) for row in table.to_dict("records")]
    return replace(_overall(table, margins), models=(ours, theirs))


def only_model(answers: DetectorAnswers, model: str | None, which: str) -> str:
    """Return the model of a run that is meant, the only one by default."""
    return named_model(sorted({*answers.models, *answers.failed["model"]}), model, which)


def _recall_pairs(
    old: DetectorAnswers, new: DetectorAnswers, ours: str, theirs: str, condition: str
) -> tuple[pd.DataFrame, int]:
    """Return objects that both were asked about with ``old`` and ``new``, and how many images count as lost."""
    keys = ["sample_id", "object_id"]
    before, after = (
        answers.counted[(answers.counted["model"] == model) & (answers.counted["condition"] == condition)]
        for answers, model in ((old, ours), (new, theirs))
    )
    joined = (
        before.assign(old=before["found"].astype(float))
        .groupby(keys).agg(source_id=("source_id", "first"), donor_id=("donor_id", "first"), old=("old", "mean"))
    )  # fmt: skip
    joined["new"] = after.assign(new=after["found"].astype(float)).groupby(keys)["new"].mean()
    trouble = new.failed
    errors = (trouble["model"] == theirs) & (trouble["condition"] == condition) & (trouble["status"] == "error")
    failed = set(trouble.loc[errors, "sample_id"]) - set(after["sample_id"])
    silent = joined["new"].isna() & joined.index.get_level_values("sample_id").isin(failed)
    joined.loc[silent, "new"] = 0.0
    return joined.dropna(subset=["new"]).reset_index(), len(failed & set(joined.index.get_level_values("sample_id")))


def _alarm_pairs(old: DetectorAnswers, new: DetectorAnswers, ours: str, theirs: str, condition: str) -> pd.DataFrame:
    before, after = (
        answers.pictures[(answers.pictures["model"] == model) & (answers.pictures["condition"] == condition)]
        for answers, model in ((old, ours), (new, theirs))
    )
    joined = before.groupby("sample_id").agg(
        source_id=("source_id", "first"), donor_id=("donor_id", "first"), old=("false_alarms", "mean")
    )
    joined["new"] = after.groupby("sample_id")["false_alarms"].mean()
    return joined.dropna(subset=["new"]).reset_index()


def _row(
    measure: str, condition: str, pairs: pd.DataFrame, sign: int, margin: float, level: float, family: int, lost: int
) -> dict[str, Any]:
    """Return the row of a condition; ``sign`` −1: less is better."""
    nan = float("nan")
    row: dict[str, Any] = dict.fromkeys(COLUMNS, nan) | {"measure": measure, "condition": condition, "unanswered": lost}
    if pairs.empty:
        return row | dict.fromkeys(("n", "better", "worse", "donors"), 0)
    gain = sign * (pairs["new"] - pairs["old"]).to_numpy(np.float64)
    differences = _differences(gain, pairs, counted=measure == ALARMS)
    return row | non_inferiority(differences, margin, level, family, less_is_better=sign < 0) | {
        "old": float(pairs["old"].mean()), "new": float(pairs["new"].mean()),
        "difference": sign * float(gain.mean()) + 0.0,  # no negative zero
        "n": len(differences.photos), "donors": differences.donors,
        "better": differences.better, "worse": differences.worse,
    }  # fmt: skip


def _differences(gain: np.ndarray, pairs: pd.DataFrame, *, counted: bool) -> Differences:
    """Return what source images gain, scaled so that their mean is the mean over objects or over images."""
    photo, count = codes(pairs["source_id"].to_numpy(object))
    scaled = gain * count / len(gain)
    donor, rows = numbered_column(pairs, "donor_id")[0], np.full(len(gain), count / len(gain))
    return replace(Differences.of(sums(photo, scaled, count), photo, donor, scaled, rows), counted=counted)


def _sentence(row: Mapping[Any, Any], margin: float) -> str:
    name = f"{row['measure']} under {row['condition']}"
    if not row["n"]:
        return f"{name}: no image was answered by both, so nothing can be said."
    quantity = quantity_of(row)
    change = f"{quantity.changed(row['difference'])} on {row['n']} images"
    reach = f"at least {quantity.bare(row['low'])} and at most {quantity.bare(row['high'])}"
    lost = f"; {row['unanswered']} images only the new model failed on count as lost" if row["unanswered"] else ""
    ends = {
        "passed": f"no worse than {quantity.allowed(margin)}",
        "failed": f"worse than the {quantity.allowed(margin)} allowed",
        "undecided": "undecided",
    }
    end = ends[row["verdict"]]
    if row["kept_by_holm"]:
        end += "; alone it would have failed, but Holm's correction over all tests asks for more"
    if 0 < row["donors"] < LEAST_DONORS:
        end += f"; {row['donors']} donors cannot carry a gate, give at least {LEAST_DONORS}"
    elif row["verdict"] == "undecided" and math.isfinite(row["more_photos"]):
        end += f"; {row['more_photos']:.0f} to {row['most_photos']:.0f} more images would decide"
    return f"{name}: {change} ({reach}){lost}: {end}."


def _overall(table: pd.DataFrame, margins: Mapping[str, float]) -> Gate:
    open_ones = table[table["verdict"] == "undecided"]
    more = float(open_ones["more_photos"].max()) if len(open_ones) else float("nan")
    recall, alarms = f"{SHARE.allowed(margins[RECALL])} of recall", f"{margins[ALARMS]:g} false alarms per image"
    if (table["verdict"] == "failed").any():
        bad = table[table["verdict"] == "failed"]
        texts = [
            f"more than {allowed} {verb} under {', '.join(names)}"
            for measure, allowed, verb in ((RECALL, recall, "lost"), (ALARMS, alarms, "added"))
            if len(names := list(bad.loc[bad["measure"] == measure, "condition"]))
        ]
        return Gate("failed", table, margins[RECALL], more, f"Failed: {'; '.join(texts)}.")
    if len(table) and open_ones.empty:
        sentence = f"Passed: no more than {recall} lost and no more than {alarms} added under any condition."
        return Gate("passed", table, margins[RECALL], more, sentence)
    still = ", ".join(open_ones["measure"] + " under " + open_ones["condition"]) or "no condition both runs have"
    return Gate("undecided", table, margins[RECALL], more, f"Undecided: {still}.")
