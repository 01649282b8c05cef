"""The release gate: is the new model no worse than the old one, condition by condition, image by image?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.names import condition_words
from holdfast.core.numbers import QUANTITIES, SHARE, Quantity
from holdfast.stats.core.answers import numbered_column
from holdfast.stats.core.bootstrap import codes, mcnemar, sums, t_quantile
from holdfast.stats.core.grid import chosen, holm, own_cells
from holdfast.stats.core.reduce import Counts, Outcome, right_column
from holdfast.stats.models.noninferiority import LEAST_DONORS, Differences, bounds, p_values, statistic, two_way
from holdfast.stats.models.power import range_of

Verdict = Literal["passed", "failed", "undecided"]

POWER = 0.8
"""How sure the decision is to come with the number of images that is asked for, if the difference stays as observed."""

COLUMNS = [
    "condition", "old", "new", "difference", "low", "high", "n", "donors", "better", "worse", "unanswered", "p_pass",
    "p_fail", "kept_by_holm", "verdict", "more_photos", "most_photos", "sentence",
]  # fmt: skip


@dataclass(frozen=True)
class Gate:
    """The verdict.

    ``conditions``: a row per condition: accuracies ``old`` and ``new`` on the ``n`` paired images, their
    ``difference``, ``low`` and ``high`` (one-sided 95 % bounds each), the ``donors`` that images share, images that
    became ``better`` and ``worse``, images the new model alone left ``unanswered`` (counted as wrong), ``p_pass``,
    ``p_fail`` (Holm over conditions), ``verdict``, ``more_photos`` to ``most_photos`` that would decide it, and a
    ``sentence``.
    """

    verdict: Verdict  # passed if every condition passed, failed if one failed, else undecided
    conditions: pd.DataFrame
    margin: float  # the loss that is tolerated, 0..1
    more_photos: float  # the largest ``more_photos`` of an undecided condition, NaN if there is none
    sentence: str  # all of it in one
    models: tuple[str, str] = ("", "")  # names of the old and of the new one
    notes: tuple[str, ...] = ()  # what a reader should know of the images before believing it

    def __repr__(self) -> str:
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([self.heading, *lines, *self.footnotes(), self.sentence, *self.notes, *self.advice()])

    @property
    def heading(self) -> str:
        """Return what was compared, and which loss is tolerated."""
        old, new = self.models
        return (
            f"New: {new}. Old: {old}. The verdict tests a loss of {100 * self.margin:g} points. Bounds hold "
            "with 95 % each, whatever loss is tolerated."
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table as people read it, its titles first: per cent, and points with one-sided 95 % bounds."""
        table = self.conditions[self.conditions["n"] > 0] if self.conditions["n"].any() else self.conditions
        titles = ("condition", "old", "new", "change (at least, at most)", "images", "verdict", "more images to decide")
        rows = [titles, *map(self._row, table.to_dict("records"))]
        return rows if any(row[-1] for row in rows[1:]) else [row[:-1] for row in rows]

    def _row(self, row: Mapping[Any, Any]) -> tuple[str, ...]:
        quantity = quantity_of(row)
        name = " ".join(text for text in (str(row.get("measure", "")), condition_words(row["condition"])) if text)
        if not row["n"]:
            return name, "", "", "", "0", str(row["verdict"]), ""
        old, new = (quantity.value(row[key]) for key in ("old", "new"))
        change, low, high = (quantity.bare(row[key]) for key in ("difference", "low", "high"))
        more = row["more_photos"]
        needed = "" if math.isnan(more) else f"{more:,.0f} to {row['most_photos']:,.0f}"
        verdict = f"{row['verdict']}{' *' if self._kept(row) else ''}"
        return name, old, new, f"{change} ({low}, {high})", f"{row['n']:,}", verdict, needed

    def _kept(self, row: Mapping[Any, Any]) -> bool:
        """Return whether a condition fails by itself, and is undecided among all that were tested."""
        return bool(row["n"] and row["verdict"] == "undecided" and row["kept_by_holm"])

    def footnotes(self) -> list[str]:
        """Return what the stars of the table mean."""
        rows = [row for row in self.conditions.to_dict("records") if row["n"]]
        if not any(map(self._kept, rows)):
            return []
        tested = f"{len(rows)} {'tests are made' if 'measure' in self.conditions else 'conditions are tested'} at once"
        return [
            f"* By itself it would have failed. {tested}, so that one of them looks this bad by chance more often; "
            "Holm's correction for that asks for more images."
        ]

    def advice(self) -> list[str]:
        """Return which model is better on what, and what to do next."""
        table = self.conditions[self.conditions["n"] > 0]
        if "measure" in table or not len(table) or not all(self.models) or self.models[0] == self.models[1]:
            return []
        clear = holm(mcnemar(table["worse"], table["better"])) <= 0.05  # not only one of many conditions that looks so
        better, worse = clear & (table["low"] > 0), clear & (table["high"] < 0)
        alike = ~better & ~worse & (table["low"] >= -self.margin) & (table["high"] <= self.margin)
        sides = (("better", better), ("worse", worse), ("as good within the margin", alike))
        words = [
            f"{word} under {_few(list(map(condition_words, table.loc[rows, 'condition'])))}"
            for word, rows in sides if rows.any()
        ]  # fmt: skip
        known = f"{self.models[1]} is {', '.join(words)}" if words else ""
        if not (better | worse | alike).all():
            known = (
                f"{known}; elsewhere which is better is inconclusive"
                if known
                else "Which of the two is better is inconclusive"
            )
        lines = [f"{known} ({int(table['n'].max())} images)."]
        if self.verdict == "failed":
            lines.append(
                "Next: keep the old model, or look at the images that were lost: holdfast report of both runs."
            )
        if self.verdict == "undecided":
            how = "" if self.more_photos == self.more_photos else ", but how many cannot be estimated from these"
            lines.append(f"Next: more images in both runs would decide{how}; or state a larger --margin beforehand.")
        return lines


def check_floor(estimate: float, low: float, high: float, floor: float) -> Verdict:
    """Return whether a number holds a floor: passed if its whole interval does, failed if none of it does.

    The point itself never decides: an estimate above the floor whose interval reaches below is undecided. So is one
    without an interval.
    """
    if any(math.isnan(value) for value in (estimate, low, high)):
        return "undecided"
    if low >= floor:
        return "passed"
    return "failed" if high < floor else "undecided"


def gate(
    old: Counts,
    new: Counts,
    *,
    margin: float = 0.02,
    old_model: str | None = None,
    new_model: str | None = None,
    outcome: Outcome = "full",
    conditions: Sequence[str] | None = None,
    level: float = 0.95,
) -> Gate:
    """Test paired non-inferiority of new against old, per condition.

    A condition passes if the one-sided lower bound of new − old lies above −margin, fails if the upper bound is
    below, and is undecided between. All have to pass (an intersection–union test, without correction); one failure is
    enough to fail (a union, Holm-corrected). p-values are exact, or those of a t-test if an image has several rows;
    if images share donors, a two-way test has to agree, and fewer than ``LEAST_DONORS`` leave a condition undecided
    (docs/statistics/release-gate.md). ``old_model``, ``new_model``: may be left out where there is one. ``conditions``:
    by default all of the old run that leave the object in.
    """
    pairs = paired_conditions(old, new, margin, old_model, new_model, outcome, conditions)
    family = sum(pair is not None for pair in pairs.values())
    table = with_verdicts([_row(name, pair, margin, level, family) for name, pair in pairs.items()], level)
    table["sentence"] = [_sentence(row, margin) for row in table.to_dict("records")]
    models = (named_model(_models(old), old_model, "old"), named_model(_models(new), new_model, "new"))
    return replace(_overall(table, margin, level), models=models)


def with_verdicts(rows: Sequence[Mapping[str, object]], level: float) -> pd.DataFrame:
    """Return rows as a table, with p-values of failing corrected over those that were compared, and verdicts."""
    table = pd.DataFrame([*rows], columns=[*(["measure"] if rows and "measure" in rows[0] else []), *COLUMNS])
    alone = table["p_fail"].to_numpy(np.float64)
    table["p_fail"] = holm(alone)
    table["kept_by_holm"] = (alone <= 1 - level) & (table["p_fail"] > 1 - level)
    fails = np.where(table["p_fail"] <= 1 - level, "failed", "undecided")
    table["verdict"] = np.where(table["p_pass"] <= 1 - level, "passed", fails).astype(object)
    table.loc[table["verdict"] != "undecided", ["more_photos", "most_photos"]] = np.nan
    return table


def quantity_of(row: Mapping[Any, Any]) -> Quantity:
    """Return the quantity that a row of a gate compares."""
    return QUANTITIES[str(row.get("measure", "accuracy"))]


def paired_conditions(
    old: Counts,
    new: Counts,
    margin: float,
    old_model: str | None,
    new_model: str | None,
    outcome: Outcome,
    conditions: Sequence[str] | None,
) -> dict[str, PairedPhotos | None]:
    """Return condition → the images that both models answered, None if there is none; arguments are checked."""
    if not 0 <= margin < 1:
        raise UserError(f"The margin must be a share of accuracy from 0 to 1, not {margin}.")
    before = own_cells(old, conditions)
    present = set(before["condition"].astype(str))
    names = [name for name in chosen(old, conditions) if name in present]
    after = own_cells(new, [name for name in names if name in new.conditions])
    ours, theirs = named_model(_models(old), old_model, "old"), named_model(_models(new), new_model, "new")
    if len(after) and not set(before["source_id"]) & set(after["source_id"]):
        raise UserError("The two runs have no image in common: compare runs on the same data.")
    pairs = {}
    for name in names:
        sides = _rows(before, ours, name, outcome), _rows(after, theirs, name, outcome)
        trouble = new.trouble[(new.trouble["model"] == theirs) & (new.trouble["condition"] == name)]
        errors = int(trouble.loc[trouble["status"] == "error", "n"].sum())
        pairs[name] = _paired(*sides, errors, {**(old.clusters or {}), **(new.clusters or {})})
    return pairs


def _models(counts: Counts) -> list[str]:
    """Return all models; one that failed on every image has no answers but may be meant all the same."""
    return sorted({*counts.cells["model"].astype(str), *counts.trouble["model"].astype(str)})


def named_model(models: Sequence[str], model: str | None, which: str) -> str:
    """Return the model that is meant, the only one by default; ``mobilenet_v2`` is enough for its scheme, too."""
    meant = [name for name in models if model is None or name == model]
    meant = meant or [name for name in models if name.partition(":")[2].partition("?")[0] == model]
    if len(meant) == 1:
        return str(meant[0])
    if not models:
        raise UserError(f"The {which} run has no answers that can be compared: evaluate first.")
    wanted = f"has no model {model!r}" if model is not None else f"has several models: name one with --{which}-model"
    raise UserError(f"The {which} run {wanted} ({', '.join(models)}).")


@dataclass(frozen=True)
class PairedPhotos:
    """The images of one condition: accuracies, differences, and how many only the new model failed on."""

    differences: Differences
    old: float
    new: float
    unanswered: int

    def numbers(self) -> dict[str, Any]:
        """Return what a gate's row says of these images, whatever the test."""
        return {
            "old": self.old, "new": self.new, "difference": self.differences.mean, "n": len(self.differences.photos),
            "donors": self.differences.donors, "better": self.differences.better, "worse": self.differences.worse,
            "unanswered": self.unanswered,
        }  # fmt: skip


def _rows(cells: pd.DataFrame, model: str, condition: str, outcome: Outcome) -> pd.DataFrame:
    """Return image, donor, rows and right answers of a model under a condition."""
    own = cells[(cells["model"] == model) & (cells["condition"] == condition)]
    donors = own["donor_id"].astype(object) if "donor_id" in own else None
    return own.assign(source_id=own["source_id"].astype(str), donor_id=donors, right=own[right_column(outcome)])[
        ["source_id", "donor_id", "n", "right"]
    ]


def _paired(before: pd.DataFrame, after: pd.DataFrame, errors: int, clusters: Mapping[str, str]) -> PairedPhotos | None:
    """Return the images that both answered, and those that only the new model failed on; None if there is none.

    ``clusters``: source → its image, if sources are parts of images: every source weighs the same.

    Rows that the old model has and the new one has not count as wrong, at most as many as the new model has errors:
    crashing is no way through the gate. (Others were not run. If only some of the missing rows are errors, they
    are taken to be those that the old model got right.)
    """
    both = pd.concat([before, after], ignore_index=True)
    (photo, sources), (donor, _) = numbered_column(both, "source_id"), numbered_column(both, "donor_id")
    is_new = np.arange(len(both)) >= len(before)
    rows, hits = (both[name].to_numpy(np.float64) for name in ("n", "right"))
    count = len(sources)
    (old_n, old_right), (n, right) = (
        (sums(photo[side], rows[side], count), sums(photo[side], hits[side], count)) for side in (~is_new, is_new)
    )
    old = np.divide(old_right, old_n, out=np.zeros_like(old_n), where=old_n > 0)
    missing = np.maximum(old_n - n, 0.0)
    order = np.lexsort((n > 0, -old))
    lost = np.zeros_like(n)
    lost[order] = np.clip(errors - (np.cumsum(missing[order]) - missing[order]), 0, missing[order])
    kept = (old_n > 0) & (n + lost > 0)
    if not kept.any():
        return None
    new = np.divide(right, n + lost, out=np.zeros_like(n), where=kept)
    total = np.where(is_new, (n + lost)[photo], -old_n[photo])
    share, mine = rows / sums(photo, rows, count)[photo], kept[photo]
    owner, owners = codes(np.array([clusters.get(name, name) for name in sources], object)[kept])
    weight = owners / len(owner)
    differences = Differences.of(
        sums(owner, (new - old)[kept] * weight, owners), owner[codes(photo[mine])[0]], donor[mine],
        (hits / total)[mine] * weight, share[mine] * weight,
    )  # fmt: skip
    return PairedPhotos(differences, float(old[kept].mean()), float(new[kept].mean()), int((lost > 0).sum()))


def _row(condition: str, pairs: PairedPhotos | None, margin: float, level: float, family: int) -> dict[str, object]:
    nan = float("nan")
    if pairs is None:
        nothing = dict.fromkeys(("n", "better", "worse", "unanswered", "donors"), 0)
        return dict.fromkeys(COLUMNS, nan) | nothing | {"condition": condition}
    return {"condition": condition, **pairs.numbers(), **non_inferiority(pairs.differences, margin, level, family)}


def non_inferiority(
    differences: Differences, margin: float, level: float, family: int, *, less_is_better: bool = False
) -> dict[str, float]:
    """Return bounds, p-values and how many images would decide, as columns of a gate's row.

    ``differences``: what images gain, positive if the new model is better; ``less_is_better``: the quantity falls then.
    """
    few = 0 < differences.donors < LEAST_DONORS
    p_pass, p_fail = (1.0, 1.0) if few else p_values(differences, -margin, tail=1 - level)
    low, high = bounds(differences.turned() if less_is_better else differences, tail=1 - level)
    nothing = (float("nan"), float("nan"))
    more = nothing if few else more_photos(differences, margin=margin, level=level, family=family)
    return {
        "low": low, "high": high, "p_pass": p_pass, "p_fail": p_fail, "more_photos": more[0], "most_photos": more[1]
    }  # fmt: skip


def more_photos(
    differences: Differences, *, margin: float, level: float = 0.95, family: int = 1
) -> tuple[float, float]:
    """Return between how many and how many images more would decide, in 8 of 10 cases.

    The statistic grows with the root of the number of images (and of donors, if images share them), so
    n' = n ((t_level + z_0.8) / statistic)², for the middle half of what the statistic may be (``power.range_of``).
    Failing has to hold out over a ``family`` of conditions. NaN if these images are too few.
    """
    n = len(differences.photos)
    z = statistic(differences, -margin)
    if differences.donors:
        mean, error, _ = two_way(differences)
        z = min(z, (mean + margin) / error, key=abs)
    if not math.isfinite(z):
        return 1.0, 1.0
    alpha = (1 - level) / (family if z < 0 else 1)
    wanted = t_quantile(max(n - 1, 1), 1 - alpha) + t_quantile(math.inf, POWER)
    needed = range_of(n, abs(z), wanted)
    return (max(1.0, needed[0] - n), max(1.0, needed[1] - n)) if needed else (float("nan"), float("nan"))


def _sentence(row: Mapping[Any, Any], margin: float) -> str:
    name, n = row["condition"], row["n"]
    if not n:
        return f"{name}: no image was answered by both, so nothing can be said."
    if row["unanswered"] == n:
        return f"{name}: the new model failed with an error on all {n} images, which count as wrong."
    donors = f" with {_donors(row['donors'])}" if row["donors"] else ""
    images = "1 image" if n == 1 else f"{n} images"
    change = f"{SHARE.changed(row['difference'])} on {images}{donors}"
    reach = f"at least {SHARE.bare(row['low'])} and at most {SHARE.bare(row['high'])}"
    lost = f"; {row['unanswered']} images only the new model failed on count as wrong" if row["unanswered"] else ""
    more = float(row["more_photos"])
    if 0 < row["donors"] < LEAST_DONORS:
        end = f"undecided; {_donors(row['donors'])} cannot carry a gate, give at least {LEAST_DONORS}"
    elif row["verdict"] == "passed":
        end = f"no worse than {100 * margin:g} points"
    elif row["verdict"] == "failed":
        end = f"worse than the {100 * margin:g} points allowed"
    else:
        known = f"{more:.0f} to {row['most_photos']:.0f} more images would decide"
        unknown = f"how many more would decide cannot be estimated from {images}"
        end = f"undecided; {unknown if math.isnan(more) else known}"
        if not row["better"] and not row["worse"]:
            end += f", since {images} without any change cannot exclude a loss of {100 * margin:g} points"
        if row["kept_by_holm"]:
            end += "; alone it would have failed, but Holm's correction over all conditions asks for more"
    return f"{name}: {change} ({reach}){lost}: {end}."


def _overall(table: pd.DataFrame, margin: float, level: float) -> Gate:
    verdicts = list(table["verdict"])
    open_ones = table[table["verdict"] == "undecided"]
    more = float(open_ones["more_photos"].max()) if len(open_ones) else float("nan")
    allowed, lent = f"{100 * margin:g} points", table.loc[table["donors"] >= LEAST_DONORS, "donors"]
    errs = f"errs in at most {100 * (1 - level):.2g} %"
    shared = "Images that got the same new background count together; the test"
    known = f" {shared} {errs}." if len(lent) else ""
    if "failed" in verdicts:
        names = _few(list(table.loc[table["verdict"] == "failed", "condition"]))
        silent = table["n"].sum() and (table["unanswered"] == table["n"]).all()
        advice = " Every row of the new model is an error: fix it and evaluate it with --retry-errors."
        reason = advice if silent else ""
        text = f"Failed: more than {allowed} lost under {names}.{reason}{_only_one(table)}{known}"
        return Gate("failed", table, margin, more, text)
    if verdicts and not len(open_ones):
        return Gate("passed", table, margin, more, f"Passed: no more than {allowed} lost under any condition.{known}")
    most = float(open_ones["most_photos"].max()) if len(open_ones) else float("nan")
    has_range = len(open_ones) and open_ones["more_photos"].notna().all()
    ask = f"; {more:.0f} to {most:.0f} more images would decide" if has_range else ""
    few = (open_ones["donors"] > 0) & (open_ones["donors"] < LEAST_DONORS)
    reasons = [
        f" ({_donors(n)} cannot carry a gate)" if small else ""
        for n, small in zip(open_ones["donors"], few, strict=True)
    ]
    shown = open_ones["condition"] + reasons
    names = _few(list(shown[open_ones["n"] > 0]))
    under = f" under {names}" if names else ": what both runs have passed" if "passed" in verdicts else ""
    text = f"Undecided{under}{ask}.{_without_change(open_ones, margin)}{_only_one(table)}{known}"
    return Gate("undecided", table, margin, more, text)


def _donors(count: int) -> str:
    return "1 donor" if count == 1 else f"{count} donors"


def _without_change(open_ones: pd.DataFrame, margin: float) -> str:
    """Return why equal answers do not pass, if every open condition has only such."""
    compared = open_ones[open_ones["n"] > 0]
    if compared.empty or compared[["better", "worse"]].to_numpy().any():
        return ""
    n = int(compared["n"].min())
    return (
        f" No answer differs there, but {'1 image' if n == 1 else f'{n} images'} without any change cannot exclude a "
        f"loss of {100 * margin:g} points: that takes more images, or a wider --margin."
    )


def _only_one(table: pd.DataFrame) -> str:
    """Return a sentence on conditions that only one of the runs has."""
    names = list(table.loc[table["n"] == 0, "condition"])
    if not names:
        return ""
    return f" Not compared, because no image was answered by both models there: {_few(names)}."


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
