"""The verdict on one model's rows, in milliseconds: ``stats.effects.verdict`` on arrays; see ``stats.core.quick``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import Codes
from holdfast.stats.core.cells import wilson_at
from holdfast.stats.core.quick import Estimate, Rows, Z, clustering, codes_of
from holdfast.stats.core.quick_score import paired_difference, photos_of
from holdfast.stats.effects.drops import NO_EFFECT, Effect
from holdfast.stats.effects.verdict import NEEDED, NO_EXCESS, ONLY, RANDOM, SAME, SILHOUETTE, Evidence, Excess

_BEFORE = "answers before"


def evidence_of(table: pa.Table, rows: Rows, background: Estimate | None = None) -> Evidence:
    """What the verdict rests on, as ``holds.what_it_holds`` with macro averages has it.

    Of effects and excesses only what verdict and sentence need: no counts of photos that fell or rose, no p-values.

    Args:
        table: answered rows (status ok, classified) of one model, trained on originals or not here.
        rows: the same, as ``rows_of`` has them.
        background: the difference between same_class_background and random_background, where it is known already.
    """
    said, answers = codes_of(table, "prediction_restricted")
    lent, lenders = codes_of(table, "donor_label")
    names = sorted({*rows.labels, *answers, *lenders})
    said, lent, label = (_into(names, *one) for one in ((said, answers), (lent, lenders), (rows.label, rows.labels)))
    among = replace(rows, right=(said == label).astype(np.float64))
    captured = replace(rows, right=((said == lent) & (lent >= 0)).astype(np.float64))
    classed = np.append(np.bincount(label, minlength=len(names)) > 0, False)[lent]  # −1 is none
    excess = _excesses(among, said, label, (*NEEDED, ONLY, SILHOUETTE))
    own = _rows(rows, RANDOM) & classed
    objects = captured.part(_rows(rows, SAME) | own)
    return Evidence(
        missing=tuple(name for name in NEEDED if not _rows(rows, name).any()),
        background=_effect(rows, SAME, RANDOM, background),
        object=_effect(objects, SAME, RANDOM),
        paste=_effect(rows, ORIGINAL, SAME),
        capture=_effect(_before_and_after(captured, said, lent, own), RANDOM, _BEFORE),
        original=excess[ORIGINAL],
        pasted=excess[SAME],
        replaced=excess[RANDOM],
        only_background=excess[ONLY],
        silhouette=excess[SILHOUETTE],
    )


def _into(names: list[str], numbers: Codes, own: list[str]) -> Codes:
    """Codes into other names; −1 stays."""
    place = np.array([*(names.index(name) for name in own), -1], np.intp)
    return np.asarray(place[numbers])


def _rows(rows: Rows, condition: str) -> NDArray[np.bool_]:
    at = rows.conditions.index(condition) if condition in rows.conditions else -2
    return np.asarray(rows.condition == at)


def _effect(rows: Rows, first: str, second: str, known: Estimate | None = None) -> Effect:
    found = paired_difference(rows, first, second) if known is None else known
    if found is None:
        return NO_EFFECT
    share = _share(rows, np.flatnonzero(_rows(rows, first)))
    return replace(
        NO_EFFECT, n=found.n, first=share, second=share - found.value, value=found.value, low=found.low, high=found.high
    )


def _share(rows: Rows, here: Codes) -> float:
    """The mean over classes of the mean over photos, of some rows."""
    photo, count = photos_of(rows, here)
    share = np.bincount(photo, rows.right[here]) / np.bincount(photo)
    label = np.zeros(count, np.intp)
    label[photo] = rows.label[here]
    size = np.bincount(label)
    return float((np.bincount(label, share)[size > 0] / size[size > 0]).mean())


def _before_and_after(captured: Rows, said: Codes, lent: Codes, own: NDArray[np.bool_]) -> Rows:
    """Scenes with a classed background, and the same scenes with what was said of their photos' originals."""
    originals = _rows(captured, ORIGINAL)
    photo = captured.source * np.intp(2**31) + captured.fold
    known, first = np.unique(photo[originals], return_index=True)
    at = np.searchsorted(known, photo[own])
    at = np.minimum(at, max(len(known) - 1, 0))
    same = (known[at] == photo[own]) if len(known) else np.zeros(int(own.sum()), bool)
    before = np.full(int(own.sum()), -2)
    before[same] = said[originals][first][at[same]]
    after = captured.part(own)
    twice: dict[str, Any] = {
        name: np.concatenate([getattr(after, name)] * 2)
        for name in ("trained_on", "label", "source", "donor", "fold", "right_restricted")
    }
    places = np.repeat([0, 1], len(after.right))
    right = np.concatenate([after.right, (before == lent[own]).astype(np.float64)])
    return replace(after, conditions=[RANDOM, _BEFORE], condition=places, right=right, **twice)


def _excesses(rows: Rows, said: Codes, label: Codes, conditions: Sequence[str]) -> dict[str, Excess]:
    """As ``holds.permuted_excess``, without its test, under each condition."""
    size = np.bincount(rows.condition, minlength=len(rows.conditions))
    wanted = [at for at, name in enumerate(rows.conditions) if name in conditions and size[at]]
    place = np.full(len(rows.conditions), -1)
    place[wanted] = np.arange(len(wanted))
    group = place[rows.condition]
    here = group >= 0
    part, group, said, label = rows.part(here), group[here], said[here], label[here]
    n, width = np.bincount(group, minlength=len(wanted)), int(max(said.max(initial=0), label.max(initial=0))) + 1
    answered = said >= 0
    given, known = (
        np.bincount(one, minlength=len(wanted) * width).reshape(len(wanted), width)
        for one in (group[answered] * np.intp(width) + said[answered], group * np.intp(width) + label)
    )
    permuted = (known * given).sum(axis=1).astype(np.float64) / n**2
    right = np.bincount(group, part.right, len(wanted))
    effect = clustering(part, group, len(wanted))
    low, high = wilson_at(right / effect, n / effect, Z)
    found = dict.fromkeys(conditions, NO_EXCESS)
    for at, number in enumerate(wanted):
        rate, chance = float(right[at] / n[at]), float(permuted[at])
        found[rows.conditions[number]] = replace(
            NO_EXCESS, n=int(n[at]), accuracy=rate, permuted=chance, value=rate - chance,
            low=float(low[at]) - chance, high=float(high[at]) - chance,
        )  # fmt: skip
    return found
