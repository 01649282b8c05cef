"""Latent walks of a study: run them, and measure SA, VR, PA and FMR of a group of walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.core.numbers import points, span
from holdfast.reports.page.charts import by_model, dot_layer, layer, records, room, tooltip
from holdfast.reports.page.figures import COLOURS, WIDE, Chart
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.stats.core.bootstrap import NO_ESTIMATE, Estimate, Floats, ratio, resampled_sums
from holdfast.stats.walks.fmr import influences, measures
from holdfast.stats.walks.walk_rows import COLUMNS, paired
from holdfast_studies import study
from holdfast_studies.study import Setting, StudyOptions

MEASURES = {
    "standard_accuracy": "SA",
    "reconstruction": "Accuracy before the first step",
    "validation_rate": "VR",
    "perturbed_accuracy": "PA",
    "fmr": "FMR",
}
"""Measures of a group of walks; all are fractions."""
FAMILY = ("standard_accuracy", "validation_rate", "perturbed_accuracy", "fmr")
ENDS = {"": "estimate", "_low": "low", "_high": "high"}
COUNTS = [*plain("integer", validated="Validated", survived="of those right")]
BOUNDS = [*plain("percent", fmr_least="FMR, rejected wrong", fmr_most="FMR, rejected right")]


def walk_settings(
    models: tuple[str, ...], scenes: int, *, steps: int = 10, step_size: float | None = None, **subject_options: Any
) -> tuple[Setting, ...]:
    """Return the settings of a study of walks; ``subject_options`` go to ``study.subject``."""
    size = () if step_size is None else (Setting("step_size", step_size, STEP_SIZE),)
    return *study.subject(models, scenes, **subject_options), Setting("steps", steps, "of a walk, at most", 2), *size


STEP_SIZE = "of a walk, in units of the generator's latent"


def columns(*names: str, kind: Any = "percent") -> list[Column]:
    """Return the columns of some measures with their intervals."""
    return [ranged(name, MEASURES[name], kind) for name in names or FAMILY]


def walk(
    options: StudyOptions,  # of the study
    models: Sequence[str],  # under test
    # name of a way → the options of ``api.perturb`` that it changes; None: one way that changes nothing.
    ways: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    count: str = "scenes",  # the setting that says how many images there are
    **common: Any,  # options of ``api.perturb`` that all ways share
) -> tuple[api.Results, pd.DataFrame]:
    """Walk images against models in some ways, all in one run; return it, and a row per model × way × image."""
    ways = ways or {"": {}}
    settings = options.settings
    shared = {name: settings[name] for name in ("generator", "oracle", "steps", "step_size") if name in settings}
    way_of: dict[str, str] = {}
    for place, (name, way) in enumerate(ways.items()):
        part = options if len(ways) == 1 else replace(options, progress=_numbered(options, place + 1, len(ways)))
        results = api.perturb(
            models=models,
            random_walk=False,
            **study.images_of(options, count),
            **part.run_options("walks"),
            **(shared | common | dict(way)),
        )
        # The run says which parameters mark the rows of this way.
        way_of[canonical_json(results.run.spec()["parameters"])] = name
    walks = walk_rows(results)
    walks = walks[walks["parameters"].isin(way_of)]  # the run may hold walks of another version of a generator
    walks = walks.assign(way=walks["parameters"].map(way_of))
    order = {name: place for place, name in enumerate([*ways, *study.result_names(options, models)])}
    keys = walks.assign(first=walks["way"].map(order), second=walks["model"].map(order))
    return results, walks.loc[keys.sort_values(["first", "second", "sample_id"]).index].reset_index(drop=True)


def _numbered(options: StudyOptions, place: int, count: int) -> Any:
    return lambda step, done, total: options.progress(f"{step} {place} of {count}", done, total)


def walk_rows(results: api.Results) -> pd.DataFrame:
    """Return a row per model × walk setting × image."""
    return paired(results.run.rows(COLUMNS))


def family(walks: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return every measure with its interval, counts, and FMR if all rejected images were wrong or right, per group."""
    table = []
    for key, group in walks.groupby(list(by), sort=False):
        rows = {row["measure"]: row for row in measures(group.drop(columns="right_random_walk"))}
        row: dict[str, Any] = dict(zip(by, key, strict=True))
        for name in MEASURES:
            row |= {f"{name}{suffix}": rows[name][end] for suffix, end in ENDS.items()}
        row |= {"fmr_least": rows["fmr_low"]["estimate"], "fmr_most": rows["fmr_high"]["estimate"]}
        perturbed = rows["perturbed_accuracy"]
        row |= {"n": perturbed["n"], "validated": perturbed["denominator"], "survived": perturbed["numerator"]}
        table.append(row)
    return pd.DataFrame(table)


def shared_images(groups: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the groups with only the images that all of them have, in one order."""
    common = set.intersection(*(set(group["sample_id"]) for group in groups))
    if len(common) < 2:
        raise UserError("fewer than two images were walked in every way; look at the errors of the run")
    return [group[group["sample_id"].isin(common)].sort_values("sample_id") for group in groups]


def difference(first: pd.DataFrame, second: pd.DataFrame, measure: str) -> Estimate:
    """Return a measure of the second group less that of the first, paired by image, with a 95 % interval.

    Variance estimates recovery (Newcombe 1998; Zou and Donner 2008): the two own intervals are joined with the
    correlation of the estimates, so the interval keeps a width if all images agree. NaN if a group has no value.
    """
    groups = shared_images([first, second])
    rows = [family(group.assign(all=0), ["all"]).iloc[0] for group in groups]
    (before, low_1, high_1), (after, low_2, high_2) = (
        tuple(float(row[name]) for name in (measure, f"{measure}_low", f"{measure}_high")) for row in rows
    )
    if np.isnan(before) or np.isnan(after):
        return NO_ESTIMATE
    parts = [_influence(group, measure) for group in groups]
    scale = float(np.sqrt((parts[0] ** 2).sum() * (parts[1] ** 2).sum()))
    correlation = float((parts[0] * parts[1]).sum()) / scale if scale > 0 else 0.0

    def reach(first_side: float, second_side: float) -> float:
        square = first_side**2 + second_side**2 - 2 * correlation * first_side * second_side
        return float(np.sqrt(max(square, 0.0)))

    change = after - before
    below, above = reach(high_1 - before, after - low_2), reach(before - low_1, high_2 - after)
    return Estimate(change, change - below, change + above)


def differences(first: pd.DataFrame, second: pd.DataFrame, measures: Sequence[str]) -> dict[str, float]:
    """Return ``difference`` of some measures as the columns of a row."""
    row: dict[str, float] = {}
    for measure in measures:
        row |= difference(first, second, measure).row(measure)
    return row


def counts_of(walks: pd.DataFrame) -> Floats:
    """Return (images, 4): 1, right, validated, validated and right. Their sums over images give every measure."""
    validated = walks["validated"].to_numpy(np.float64)
    survived = validated * walks["right_perturbed"].astype("float64").fillna(0).to_numpy()
    return np.column_stack([np.ones(len(walks)), walks["right_original"].to_numpy(np.float64), validated, survived])


def measured(sums: Floats, measure: str) -> Floats:
    """Return a measure from sums of ``counts_of`` along the last axis; NaN if it would divide by zero."""
    n, right, validated, survived = np.moveaxis(sums, -1, 0)
    standard, perturbed = ratio(right, n), ratio(survived, validated)
    values = {"standard_accuracy": standard, "validation_rate": ratio(validated, n), "perturbed_accuracy": perturbed}
    return values[measure] if measure in values else ratio(perturbed, standard)


def _influence(walks: pd.DataFrame, measure: str) -> Floats:
    """Return how much each image adds to the deviation of a measure from its mean."""
    if measure != "reconstruction":
        return influences(walks)[measure]
    known = walks["right_reconstruction"].astype("float64").fillna(0).to_numpy()
    return np.asarray((known - known.mean()) / len(known))


def resampled(groups: Sequence[pd.DataFrame], measure: str, *, seed: int) -> tuple[Floats, Floats]:
    """Return a measure of each group, (groups,), and of resamples of their common images, (resamples, groups)."""
    tables = np.stack([counts_of(group) for group in shared_images(groups)], axis=1)
    sums = resampled_sums(tables.reshape(len(tables), -1), np.arange(len(tables)), seed=seed)
    return measured(tables.sum(axis=0), measure), measured(sums.reshape(len(sums), *tables.shape[1:]), measure)


def change_of(row: Mapping[Any, Any] | pd.Series, measure: str) -> Estimate:
    """Return a measure of a row with its interval."""
    return Estimate(*(float(row[f"{measure}{end}"]) for end in ENDS))


def in_points(change: Estimate) -> str:
    """Return a difference of fractions as ``+3.1 points (−1.0 to 7.2)``."""
    if np.isnan(change.value):
        return "an unknown number of points (one of the two has no value)"
    sign = "+" if change.value > 0 else ""
    return f"{sign}{points(change.value)} ({span(change.low, change.high)})"


def curves(
    frame: pd.DataFrame,  # a measure m of ``panels`` is in m, m_low and m_high
    width: int,  # of the figure
    *,
    line: str,  # column that names the lines
    x: str,  # column of the horizontal axis
    panels: Mapping[str, tuple[str, bool]],  # measure → title, and whether it is a fraction that is shown in per cent
    across: str,  # title of the horizontal axis
    few: bool = False,  # few values on a logarithmic axis, each with a dot and a bar; else a band
) -> Chart:
    """Return curves with intervals, a panel per measure."""
    tidy = study.long_form(frame.assign(model=frame[line], x=frame[x]), {name: name for name in panels}, "model", "x")
    lines = list(dict.fromkeys(frame[line]))
    beside = min(len(panels), 3) if width >= WIDE else 1
    axis: Chart = {"field": "x", "type": "quantitative", "title": across, "scale": {"nice": False}}
    axis["axis"] = {"grid": False, "tickCount": 6, "format": "~g"}
    if few:
        axis["scale"] = {"type": "log", "nice": False, "padding": 12}
        axis["axis"] |= {"values": sorted(set(tidy["x"].tolist())), "labelOverlap": True}
    else:
        axis["axis"] |= {"tickMinStep": 1}
    drawn = [
        _curve_panel(name, title, fraction, width // beside - 70, axis, lines, few)
        for name, (title, fraction) in panels.items()
    ]
    data: Chart = {"datasets": {"curves": records(tidy, 6)}, "data": {"name": "curves"}}
    fit = max(1, width // (room(lines, width) + 54))  # one legend above all panels
    layout: Chart = {"columns": beside, "bounds": "flush", "spacing": {"column": 62, "row": 70}}
    return data | layout | {"concat": drawn, "config": {"legend": {"columnPadding": 24, "columns": fit}}}


def _curve_panel(name: str, title: str, fraction: bool, inner: int, x: Chart, lines: Sequence[str], few: bool) -> Chart:
    axis: Chart = {"domain": False, "ticks": False, "tickCount": 5, **({"format": "%"} if fraction else {})}
    y: Chart = {"type": "quantitative", "title": None, "axis": axis, "scale": {"zero": True, "nice": True}}
    colour: Chart = {"color": {"value": COLOURS[0]}}
    if len(lines) > 1:
        colour = by_model(lines, "color", COLOURS)
        colour["color"]["legend"] |= {"symbolOpacity": 1}  # that of the lines, not of the bands
    tip = tooltip({"model": "of", "x": "at"}, study.ENDS, ".1%" if fraction else ".3f")
    ends = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, **colour}
    middle = {"x": x, "y": y | {"field": "value"}, **colour}
    band = layer("rule", ends, strokeWidth=1.7) if few else layer("area", ends, opacity=0.18)
    dots = dot_layer(middle | {"tooltip": tip}, 56 if few else 12)
    return study.panel(name, title, inner, [band, layer("line", middle, strokeWidth=1.6), dots])
