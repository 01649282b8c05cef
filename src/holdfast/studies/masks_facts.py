"""What was measured with each kind of mask, gathered into tables."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.types import ORIGINAL
from holdfast.pipeline.evaluate.background_truth import RERENDERED
from holdfast.stats.effects.verdict import RANDOM, SAME
from holdfast.stats.models.trainings import Estimate
from holdfast.studies import mask_measures
from holdfast.studies.mask_kinds import EXACT, FAMILIES, Kind
from holdfast.studies.mask_measures import NOTHING, Orders, Run

if TYPE_CHECKING:
    import pandas as pd

SCORES = {"score": "Robustness score", "cross_background": "Cross part, background changed"}
"""The published one, one less its cross part over the static conditions; and of that part what leaves the object as
it is."""


@dataclass(frozen=True)
class Facts:
    """Everything the findings are made of; kinds are in order of their IoU, exact masks first.

    Attributes:
        masks: a row per kind: kind, family, iou with ends, lost, added, unusable.
        effects: a row per kind × model: the verdict's numbers, change, bias, cross parts.
        means: a row per kind: the same, mean over models.
        conditions: a row per kind × condition: accuracy and change, mean over models.
        truths: model → the background effect that is true, where it is known.
        orders: kind → rankings and scores against exact masks.
        models: in the order of the runs.
    """

    masks: pd.DataFrame
    effects: pd.DataFrame
    means: pd.DataFrame
    conditions: pd.DataFrame
    truths: dict[str, Estimate]
    orders: dict[str, Orders]
    models: list[str]

    @property
    def kinds(self) -> list[str]:
        """All but the exact one, best first."""
        return [name for name in self.masks["kind"] if name != EXACT]

    @property
    def families(self) -> list[str]:
        """Those there are."""
        return [name for name in FAMILIES if name in set(self.masks["family"])]


def gather(kinds: Sequence[Kind], overlaps: pd.DataFrame, runs: Mapping[str, Run], *, known: bool) -> Facts:
    """Measure every run against that of the exact masks."""
    import pandas as pd

    exact = runs[EXACT]
    models = list(exact.counts.models)
    masks = _masks(kinds, overlaps)
    places = {name: place for place, name in enumerate(masks["kind"])}
    ordered = {name: runs[name] for name in sorted(runs, key=places.__getitem__)}
    orders = {name: mask_measures.orders(run, exact) for name, run in ordered.items()}
    effects: list[dict[str, Any]] = []
    means: list[dict[str, Any]] = []
    conditions: list[dict[str, Any]] = []
    for name, run in ordered.items():
        verdicts = run.results.verdicts(outcome=run.outcome)  # as a report of the run would say
        told = {row["model"]: row for row in verdicts.to_dict("records")}
        effects += [
            {"kind": name, "model": model} | _numbers(told[model], run, exact, orders[name], known) for model in models
        ]
        means.append({"kind": name} | _means(run, exact, orders[name], known))
        conditions += [{"kind": name, **row} for row in _conditions(run, exact)]

    def described(rows: list[dict[str, Any]]) -> pd.DataFrame:
        return pd.DataFrame(rows).merge(masks[["kind", "family", "iou"]], on="kind", how="left")

    return Facts(
        masks,
        effects=described(effects),
        means=described(means),
        conditions=described(conditions),
        truths={model: mask_measures.true_effect(exact, model) for model in models} if known else {},
        orders=orders,
        models=models,
    )


def _masks(kinds: Sequence[Kind], overlaps: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    rows = [{"kind": EXACT, "family": EXACT, "iou": 1.0, "iou_low": np.nan, "iou_high": np.nan, "median": 1.0}
            | {"lost": 0.0, "added": 0.0, "unusable": 0, "n": overlaps["source_id"].nunique()}]  # fmt: skip
    for kind in kinds:
        own = overlaps[overlaps["kind"] == kind.name]
        half = 1.96 * float(own["iou"].std(ddof=1)) / np.sqrt(max(len(own), 1))
        mean = float(own["iou"].mean())
        rows.append(
            {"kind": kind.name, "family": kind.family, "iou": mean, "iou_low": mean - half, "iou_high": mean + half}
            | {"median": float(own["iou"].median()), "lost": float(own["lost"].mean())}
            | {"added": float(own["added"].mean()), "unusable": int((~own["usable"]).sum()), "n": len(own)}
        )
    return pd.DataFrame(rows).sort_values("iou", ascending=False, kind="stable", ignore_index=True)


def _ends(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _numbers(row: Mapping[Hashable, Any], run: Run, exact: Run, order: Orders, known: bool) -> dict[str, Any]:
    """Of one kind and the model of the row."""
    model = row["model"]
    effect = Estimate(*(row[f"background_effect{end}"] for end in ("", "_low", "_high")))
    made = {"n": row["n"], "verdict": row["verdict"]} | _ends("effect", effect)
    made |= _ends("change", NOTHING if run is exact else mask_measures.effect_change(run, exact, model))
    if known:
        made |= _ends("bias", mask_measures.effect_bias(run, model))
    for name in SCORES:
        moved = NOTHING if run is exact else order.by_model[name][model]
        made |= {name: order.values[name][model]} | _ends(f"{name}_change", moved)
    return made


def _means(run: Run, exact: Run, order: Orders, known: bool) -> dict[str, Any]:
    """Of one kind, mean over models."""
    same, random = (run.cells(name) for name in (SAME, RANDOM))
    made: dict[str, Any] = _ends("effect", mask_measures.difference(same, random, run))
    made |= _ends("change", NOTHING if run is exact else mask_measures.effect_change(run, exact))
    if known:
        made |= _ends("bias", mask_measures.effect_bias(run))
    for name in SCORES:
        made |= {name: float(np.mean(list(order.values[name].values())))}
        made |= _ends(f"{name}_change", NOTHING if run is exact else order.change[name])
    return made


def _conditions(run: Run, exact: Run) -> list[dict[str, Any]]:
    shown = [name for name in run.counts.conditions if name not in (ORIGINAL, RERENDERED)]
    originals = run.cells(ORIGINAL)
    rows = []
    for name in shown:
        cost = mask_measures.difference(originals, run.cells(name), run)
        change = NOTHING if run is exact else mask_measures.accuracy_change(run, exact, name)
        rows.append({"condition": name, **_ends("cost", cost), **_ends("change", change)})
    return rows
