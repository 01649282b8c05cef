"""Accuracy on questions: strict and lenient, without chance, by the place of the truth, with refusals counted.

Every answer counts: one that names no option, or refuses, is wrong. Only rows without any answer (status not ok) are
left out, and counted in ``errors``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.files import stored_object
from holdfast.core.fingerprint import canonical_json
from holdfast.core.lazy import pd
from holdfast.core.names import condition_names
from holdfast.core.numbers import percent, span
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import CHANGE, NO_ESTIMATE, RESAMPLES, Estimate, codes, drawn_weights, estimated
from holdfast.stats.core.cells import design_effect, newcombe, stratified, wilson
from holdfast.stats.effects.sequential import ALPHA, RoundPlan, RunningInterval, running_interval
from holdfast.stats.effects.verdict import MARGIN
from holdfast.stats.objects.effects import object_effect

QUESTION = "question"
COLUMNS = [
    "task", "condition", "variant", "model", "protocol", "parameters", "label", "sample_id", "source_id", "donor_id",
    "status", "error", "raw_text", "row_id",
]  # fmt: skip
"""What ``answered`` reads of the one table."""

FIRST, SECOND = "first", "second"
SHARES = ("strict", "lenient", "refusal", "unmatched")


def answered(rows: pa.Table, answers: pa.Table) -> pd.DataFrame:
    """Return a row per question that was answered or failed: ``COLUMNS``, those of ``ANSWERS``, and five more.

    ``condition`` is the condition's name, ``rendered``: whether ``ask`` made the image (``--scenarios``).
    ``kind``: two_way or full_list; ``choices``: the number of options; ``place``: whether the truth was in the first
    or in the second half of the options; ``says_first``: whether the answer names the first option, missing if it
    names none.
    """
    frame = rows.select(COLUMNS).filter(pc.field("task") == QUESTION).to_pandas()
    details = answers.to_pandas().drop_duplicates("row_id")  # several runs may hold the same row
    for part in (frame, details):
        for column in part.columns:
            if isinstance(part[column].dtype, pd.CategoricalDtype):
                part[column] = part[column].astype(object)
    met: pd.DataFrame = frame.merge(details, on="row_id", how="left", validate="one_to_one")
    stated = {text: stored_object(text, "parameters") for text in met["parameters"].unique()}
    scenario = {text: words.pop("scenario", None) for text, words in stated.items()}
    shown = {text: "" if settings is None else canonical_json(settings) for text, settings in scenario.items()}
    keys = list(zip(met["condition"], met["variant"].fillna(""), met["parameters"].map(shown), strict=True))
    names = condition_names(keys)
    met = met.assign(condition=[names[key] for key in keys], rendered=met["parameters"].map(shown) != "")
    words = met["parameters"].map({text: canonical_json(rest) for text, rest in stated.items()})
    if (words.groupby(met["protocol"].str.split(":").str[0]).nunique() > 1).any():
        raise UserError(
            "these rows were asked in different words or with different distractors: look at each run alone"
        )
    met["kind"] = met["protocol"].str.split(":").str[0]
    good = met["status"] == "ok"
    if met.loc[good, "options"].isna().any():
        raise UserError("some answered questions have no entry in details/answers; the run directory is not complete")
    options = met["options"].where(good, None)
    met["choices"] = [len(part) if part is not None else np.nan for part in options]
    met["place"] = [
        None if part is None else FIRST if 2 * place <= len(part) else SECOND
        for part, place in zip(options, met["truth_place"], strict=True)
    ]
    met["says_first"] = [
        None if part is None or not isinstance(said, str) else said == part[0]
        for part, said in zip(options, met["matched"], strict=True)
    ]
    return met


def questions(
    frame: pd.DataFrame, *, by: Sequence[str] = (), level: float = 0.95, rounds: Mapping[str, RoundPlan] | None = None
) -> pd.DataFrame:
    """Return the results, a row per model × kind of question × further columns (``by``); every figure has an interval.

    ``strict``, ``lenient``: accuracy, of two-way questions the mean of those with the truth in the first and in the
    second place, so that who always says the first has exactly 1/2; ``…_corrected``: (a − c) / (1 − c) with chance c =
    1 / choices. ``first_place``, ``second_place``: lenient accuracy by where the truth was, ``position_bias`` their
    difference. ``says_first``: the share of answers that name the first option. ``refusal``, ``unmatched``: shares of
    all answers. Intervals are Wilson's on the effective number of answers, clustered on ``source_id``; of differences
    Newcombe's. Models that were asked in ``rounds`` (model → the images of each round) have intervals of the mean over
    images that hold whenever one stops (95 %, betting), and these figures are means over images.
    """
    keys = ["model", "kind", *by]
    frame = frame if "condition" in by else _as_they_are(frame)
    rows = []
    for values, group in frame.groupby(keys, sort=True):
        key = {name: str(value) for name, value in zip(keys, values, strict=True)}
        rows.append(key | _measured(group, key["kind"], level, (rounds or {}).get(key["model"])))
    return pd.DataFrame(rows)


def _as_they_are(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the questions about images as the dataset has them; all, if there are no others."""
    return frame if frame["rendered"].all() else frame[~frame["rendered"]]


def question_drops(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what each condition costs: a row per model × kind × condition, every figure with its 95 % interval.

    ``drop``: lenient accuracy on the image as it is less that under the condition, the same questions about the same
    images; ``both``: the share of questions that are answered rightly about both images.
    """
    good, rows = frame[frame["status"] == "ok"], []
    good = good.assign(object_id=good["protocol"], lenient=good["lenient"].astype(float))
    for (model, kind), group in good.groupby(["model", "kind"], sort=True):
        before = group[group["condition"] == ORIGINAL]
        for condition, after in group[group["condition"] != ORIGINAL].groupby("condition", sort=True):
            both = before.merge(after, on=["sample_id", "protocol"], suffixes=("", "_after"))
            if both.empty:
                continue
            effect = object_effect(before, after, "lenient")
            right = both["lenient"].astype(bool) & both["lenient_after"].astype(bool)
            share = _share(both.assign(donor_id=both["donor_id_after"]), right, 0.95, balanced=kind == "two_way")
            rows.append(
                {"model": model, "kind": kind, "condition": condition, "n": len(both), "lenient": effect.second}
                | effect.estimate.row("drop") | share.row("both")
            )  # fmt: skip
    return pd.DataFrame(rows)


def image_pairs(group: pd.DataFrame) -> dict[str, float]:
    """Return ``pairs_right``, its 95 % interval and ``pairs``: NaturalBench's credit for both images of a pair.

    A pair is two images of different classes whose questions offer the same options. Who says the same about both is
    right about one at most and gets nothing; a coin gets 1 / options². The interval resamples images.
    """
    if group["label"].nunique() < 2:
        return NO_ESTIMATE.row("pairs_right") | {"pairs": 0.0}
    place, photos = codes(group["source_id"].to_numpy(object))
    weights = drawn_weights(photos, RESAMPLES).astype(np.float64)
    weights = np.concatenate([np.ones((photos, 1)), weights], axis=1)[place]
    right, asked = np.zeros(weights.shape[1]), np.zeros(weights.shape[1])
    offered = np.array(["\0".join(sorted(options)) for options in group["options"]], object)
    for options in np.unique(offered):
        own = offered == options
        number, labels = codes(group["label"].to_numpy(object)[own])
        of_class = np.eye(labels)[number].T
        hits = of_class @ (weights[own] * group["lenient"].to_numpy(np.float64)[own, None])
        for total, sums in ((right, hits), (asked, of_class @ weights[own])):
            total += sums.sum(axis=0) ** 2 - (sums**2).sum(axis=0)
    with np.errstate(invalid="ignore"):
        shares = right / asked
    return estimated(shares[0], shares[1:]).row("pairs_right") | {"pairs": asked[0] / 2}


def questions_of_rows(rows: pa.Table, answers: pa.Table, **options: Any) -> pd.DataFrame:
    """Return ``questions`` of a table's rows; a UserError if it has none."""
    frame = answered(rows, answers)
    if frame.empty:
        raise UserError("there is no question in these rows; holdfast ask makes them")
    return questions(frame, **options)


def guessing(frame: pd.DataFrame, before: dict[tuple[str, str], RunningInterval]) -> tuple[bool, list[str]]:
    """Return whether it is known of every model if it answers better than guessing by more than the margin, and lines.

    ``before``: the running interval of each model and kind of question, which is brought up to this look.
    """
    decided, lines, frame = True, [], _as_they_are(frame)
    for (model, kind), group in frame[frame["status"] == "ok"].groupby(["model", "kind"], sort=True):
        key = (str(model), str(kind))
        shares = group.groupby("source_id")["lenient"].mean()
        now = before[key] = running_interval(shares, least=0, before=before.get(key))
        border = 1 / float(group["choices"].iloc[0]) + MARGIN
        known = "better" if now.low > border else "not better" if now.high < border else ""
        decided &= bool(known) or border >= 1
        said = f"is {known} than guessing" if known else "is perhaps better than guessing"
        lines.append(
            f"{model}, {key[1].replace('_', '-')}: {said}; {percent(now.mean, 0)} right "
            f"({span(now.low, now.high, 0)}, whenever one stops) after {now.n} images"
        )
    return decided, lines


def _measured(group: pd.DataFrame, kind: str, level: float, rounds: RoundPlan | None) -> dict[str, Any]:
    good = group[group["status"] == "ok"]
    choices = float(good["choices"].iloc[0]) if len(good) else float("nan")
    measured: dict[str, Any] = {
        "n": len(good),
        "photos": int(good["source_id"].nunique()),
        "errors": int(len(group) - len(good)),
        "choices": choices,
    }
    balanced = kind == "two_way"
    for name in SHARES:
        measured |= _share(good, good[name], level, balanced=balanced, rounds=rounds).row(name)
    for name in ("strict", "lenient"):
        chance = 1 / choices if choices > 1 else float("nan")
        values = ((measured[f"{name}{end}"] - chance) / (1 - chance) for end in ("", "_low", "_high"))
        measured |= Estimate(*values).row(f"{name}_corrected")
    ends = {}
    for place in (FIRST, SECOND):
        some = good[good["place"] == place]
        ends[place] = _share(some, some["lenient"], level, rounds=rounds)
        measured |= ends[place].row(f"{place}_place")
    measured |= _difference(ends[FIRST], ends[SECOND], whole=rounds is not None).row("position_bias")
    if rounds is None and len(good):
        measured |= image_pairs(good)
        if measured["pairs_right_low"] == measured["pairs_right_high"]:  # all resamples agree: the accuracy's interval
            measured["pairs_right_low"] = min(measured["pairs_right"], measured["lenient_low"] ** 2)
            measured["pairs_right_high"] = max(measured["pairs_right"], measured["lenient_high"] ** 2)
    named = good[good["says_first"].notna()]
    return measured | _share(named, named["says_first"], level, balanced=balanced, rounds=rounds).row("says_first")


def _share(
    rows: pd.DataFrame, values: pd.Series, level: float, *, balanced: bool = False, rounds: RoundPlan | None = None
) -> Estimate:
    """Return a share with its interval; ``balanced``: the mean of the shares of both places.

    If one of the places does not occur, no one knows its share: the interval then holds whatever it may be.
    """
    if rows.empty:
        return NO_ESTIMATE
    if rounds is not None:
        return _running(values.astype(float).groupby(rows["source_id"].to_numpy()).mean(), rounds)
    right_or_not = values.astype(bool).astype(int)
    label = rows["place"] if balanced else ""
    frame = rows[["source_id", "donor_id"]].assign(label=label, n=1, right=right_or_not).reset_index(drop=True)
    effect = design_effect(frame, "right", by_class=True, donors=bool(frame["donor_id"].notna().any()))
    sums = frame.groupby("label")[["n", "right"]].sum() / effect
    right, n = sums["right"].to_numpy(float), sums["n"].to_numpy(float)
    if len(sums) == 1:
        low, high = (float(end) for end in wilson(right[0], n[0], level))
        return Estimate(float(right[0] / n[0]), *((low / 2, (high + 1) / 2) if balanced else (low, high)))
    return Estimate(float(np.mean(right / n)), *stratified(right, n, level))


def _running(shares: pd.Series, rounds: RoundPlan) -> Estimate:
    """Return the mean over images and its interval after the last look, cut with those of all looks before."""
    now, photos = None, []
    for names in rounds:
        photos += [name for name in names if name in shares.index]
        now = running_interval(shares[photos], least=0, alpha=ALPHA, before=now)
    if now is None or not now.n:
        return NO_ESTIMATE
    return Estimate(now.mean, *((now.low, now.high) if now.low <= now.high else (0.0, 1.0)))


def _difference(first: Estimate, second: Estimate, *, whole: bool = False) -> Estimate:
    """Return Newcombe's hybrid score interval of the difference of two shares (1998, method 10).

    It takes them as independent. If every question is asked both ways round they are not: images that are easy are
    easy in both, which makes it a little wide. ``whole``: from the worst ends of both, if one may stop at any time.
    """
    if whole:
        return Estimate(first.value - second.value, first.low - second.high, first.high - second.low)
    return Estimate(*map(float, newcombe(first, second))).within(CHANGE)


def examples(frame: pd.DataFrame, column: str, count: int) -> pd.DataFrame:
    """Return the most common answers that are refusals or unmatched (``column``): model, answer, n, one image."""
    some = frame[(frame["status"] == "ok") & frame[column].astype("boolean").fillna(False) & frame["raw_text"].notna()]
    grouped = some.groupby(["model", "kind", "raw_text"], sort=False)
    common = grouped.agg(n=("row_id", "size"), example=("sample_id", "min"), label=("label", "first")).reset_index()
    return common.sort_values(["n", "model", "raw_text"], ascending=[False, True, True]).head(count)
