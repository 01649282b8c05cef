"""The scores of an entry, computed from its rows. Every number that the board shows comes from here.

The same table gives the same digits: nothing here is drawn from anything but fixed seeds.
"""

from __future__ import annotations

import weakref
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from holdfast.core.errors import UserError
from holdfast.core.names import scenario_of
from holdfast.core.types import ORIGINAL
from holdfast.scenarios import parse_conditions, scored_scenarios
from holdfast.stats.core.answers import Answers, CountedEstimate, from_table
from holdfast.stats.core.cells import accuracies, pooled_accuracy
from holdfast.stats.effects.drops import Effect, effect_of, pair
from holdfast.stats.effects.score_spread import Design, Spread, design_of, mean_accuracy
from holdfast.stats.walks.fmr import measures
from holdfast.stats.walks.walk_rows import setting_of, walks_of
from holdfast_evidence.board import objects
from holdfast_evidence.board.entry import PROTOCOLS, Score, in_words
from holdfast_evidence.board.table import pictures_of, read_table

__all__ = ["answers_of", "numbers", "ordered", "read_table", "scored", "settings"]

DIGITS = 12
_KEPT = 200_000  # answers of a table up to which its answers are kept: 20 MB
SAME, RANDOM = "same_class_background", "random_background"
WALK_MEASURES = (
    "fmr", "standard_accuracy", "perturbed_accuracy", "validation_rate", "fmr_low", "fmr_high", "fmr_matched",
    "reconstruction", "random_walk",
)  # fmt: skip


def numbers(table: pa.Table, protocol: str) -> list[Score]:
    """Return the scores of one model's rows, the most telling first, with 95 % intervals clustered on the image.

    - static: ``robustness_score`` over the static conditions and ``robustness_score_background`` over those that leave
      the object alone; ``variance_cross`` and ``variance_inner`` if models were trained within conditions, too;
      ``accuracy`` on originals (``accuracy_restricted``: among the dataset's classes); ``mean_accuracy`` over the
      static conditions, ``corrupted_accuracy`` over ImageNet-C's corruptions if there are any (SA* in FMR);
      ``background_effect`` = accuracy under same_class_background − under random_background;
      ``accuracy:CONDITION`` and ``accuracy_within:CONDITION``.
    - hard: ``accuracy``, ``accuracy_restricted``, and ``accuracy:KIND`` of each kind of nuisance.
    - dynamic: ``fmr``, ``standard_accuracy``, ``perturbed_accuracy``, ``validation_rate``, the bounds ``fmr_low`` and
      ``fmr_high``, ``fmr_matched``, and the baselines that were run.
    - objects: ``mean_recall`` over the conditions that leave the objects and change what is around, ``recall`` on
      originals, ``mean_false_alarms`` and ``false_alarms`` per image, likewise; ``ap``, ``ap50``;
      ``background_effect`` of recall; ``recall:CONDITION``, ``false_alarms:CONDITION``, ``ap:CONDITION``. Every object
      weighs the same.

    Accuracies give every class the same weight; FMR pools images, as published.
    """
    if protocol not in PROTOCOLS:
        raise UserError(f"the protocol must be one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    if protocol == "dynamic":
        return _dynamic(table)
    if protocol == "objects":
        if "what" not in table.column_names:
            raise UserError("the numbers of detectors need the tables next to the rows")
        return [_score(*score) for score in objects.numbers(table)]
    rows = answers_of(table)
    if not len(rows.right):
        raise UserError("there is no answered row in this table")
    if protocol == "static":
        return _static(rows)
    scores = [("accuracy", pooled_accuracy(rows)), ("accuracy_restricted", pooled_accuracy(rows.restricted()))]
    each = accuracies(rows)
    scores += [(f"accuracy:{name}", each[trained_on, name]) for trained_on, name in sorted(each)]
    return [_score(*score) for score in scores]


def settings(table: pa.Table, protocol: str) -> dict[str, Any]:
    """Return the settings of a protocol that the rows show; entries are compared only if all of them are equal."""
    if protocol == "dynamic":
        setting = setting_of(table)
        plain = {name: value for name, value in setting.items() if isinstance(value, (str, int, float, bool))}
        return dict(sorted(plain.items())) | _seed(table)
    if protocol == "objects":
        conditions = ordered(objects.judged_rows(table)[0].answers.conditions)
        return {"conditions": conditions} | objects.settings(table) | _seed(pictures_of(table))
    rows = answers_of(table)
    stated: dict[str, Any] = {"conditions": ordered(rows.conditions), "average": "macro"} | _seed(table)
    within = ordered([name for name in rows.trained if name])
    # A score leaves repeated images out: anyone who claims repeats that others do not have is not compared with them.
    repeated = ordered(list(rows.same_images))
    return stated | ({"trained_on": within} if within else {}) | ({"repeated": repeated} if repeated else {})


_last: list[tuple[weakref.ref[pa.Table], Answers, dict[str, Design | None], dict[str, Effect]]] = []


def answers_of(table: pa.Table) -> Answers:
    """Return the answers of a table. The last table's are kept, because scores, settings and pages ask for them."""
    if _last and _last[0][0]() is table:
        return _last[0][1]
    rows = from_table(table, order=_order())
    _last[:] = [(weakref.ref(table), rows, {}, {})] if len(table) < _KEPT else []
    return rows


def scored(rows: Answers, which: str) -> Design | None:
    """Return the conditions of a score: ``static``, ``corruptions``, or ``background``: those that leave the object.

    Those of the last answers are kept with them.
    """
    kept = _last[0][2] if _last and _last[0][1] is rows else {}
    if which not in kept:
        names = _names(which)
        kept[which] = design_of(rows, frozenset(name for name in rows.conditions if scenario_of(name) in names))
    return kept[which]


def _seed(table: pa.Table) -> dict[str, Any]:
    seeds = sorted({int(seed) for seed in np.unique(table["seed"].drop_null().to_numpy())})
    return {"seed": seeds[0] if len(seeds) == 1 else ", ".join(str(seed) for seed in seeds[:20])} if seeds else {}


def _static(rows: Answers) -> list[Score]:
    scores: list[Score] = []
    design = scored(rows, "static")
    if design is None:
        raise UserError("a static entry needs the originals and at least one static condition")
    scores.append(_complement("robustness_score", Spread(design).estimate()))
    kept = scored(rows, "background")
    if kept is not None:
        scores.append(_complement("robustness_score_background", Spread(kept).estimate()))
    each = accuracies(rows)
    base = rows.base()
    scores.append(_score("accuracy", each[base, ORIGINAL]))
    scores.append(_score("mean_accuracy", mean_accuracy(design)))
    if (corrupted := scored(rows, "corruptions")) is not None:
        scores.append(_score("corrupted_accuracy", mean_accuracy(corrupted)))
    if (effect := background_effect(rows)).n:
        scores.append(_score("background_effect", CountedEstimate(effect.value, effect.low, effect.high, effect.n)))
    originals = rows.part(rows.under(ORIGINAL) & rows.on(base))
    scores.append(_score("accuracy_restricted", pooled_accuracy(originals.restricted())))
    if design.inner:
        scores.append(_score("variance_cross", Spread(design, parts=["cross"]).estimate()))
        scores.append(_score("variance_inner", Spread(design, parts=["inner"]).estimate()))
    changed = [name for name in ordered(rows.conditions) if name != ORIGINAL]
    scores += [_score(f"accuracy:{name}", each[base, name]) for name in changed if (base, name) in each]
    scores += [_score(f"accuracy_within:{name}", each[name, name]) for name in changed if (name, name) in each]
    return scores


def background_effect(rows: Answers) -> Effect:
    """Return accuracy under same_class_background − under random_background; kept with the last answers."""
    kept = _last[0][3] if _last and _last[0][1] is rows else {}
    if "background" not in kept:
        base = rows.on(rows.base())
        kept["background"] = effect_of(pair(rows, rows.under(SAME) & base, rows.under(RANDOM) & base))
    return kept["background"]


def _dynamic(table: pa.Table) -> list[Score]:
    measured = {row["measure"]: row for row in measures(walks_of(table))}
    rows = [(name, measured[name]) for name in WALK_MEASURES if name in measured]
    return [
        _score(name, CountedEstimate(row["estimate"], row["low"], row["high"], row["n"])) for name, row in rows if
        np.isfinite(row["estimate"])
    ]  # fmt: skip


def _score(name: str, estimate: CountedEstimate) -> Score:
    """Return an estimate as a score: an infinite bound is left open, digits that differ by machine are cut."""
    low, high = (round(float(bound), DIGITS) if np.isfinite(bound) else None for bound in (estimate.low, estimate.high))
    try:
        return Score(name=name, estimate=round(float(estimate.value), DIGITS), low=low, high=high, n=int(estimate.n))
    except ValidationError as error:
        raise UserError(f"{name[:60]!r} cannot be a score: {in_words(error)}") from None


def _complement(name: str, estimate: CountedEstimate) -> Score:
    return _score(name, CountedEstimate(1 - estimate.value, 1 - estimate.high, 1 - estimate.low, estimate.n))


@cache
def _names(which: str) -> frozenset[str]:
    """Return the scenarios of the score; ``background``: those that leave the object as it is."""
    if which == "corruptions":
        return frozenset(scenario_of(condition.name) for condition in parse_conditions(which))
    return scored_scenarios(background_only=which == "background")


@cache
def _order() -> tuple[str, ...]:
    return tuple(condition.name for condition in parse_conditions("all"))


def ordered(names: list[str]) -> list[str]:
    """Return names of conditions as people list them: the original, then those of the registry, then others."""
    known = {name: place for place, name in enumerate(_order())}
    return sorted(names, key=lambda name: (name != ORIGINAL, known.get(name, len(known)), name))
