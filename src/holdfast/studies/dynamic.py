"""What the studies of latent walks share: how they ask for walks, and how they read what came of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.models import available, load_classifier
from holdfast.pipeline.jobs.progress import Progress
from holdfast.report.page.charts import by_model, records, room
from holdfast.report.page.figures import COLOURS, WIDE, Chart
from holdfast.report.page.tables import Column
from holdfast.report.page.words import number, span
from holdfast.report.study import DRAWN_WORLD
from holdfast.stats.core.bootstrap import Floats, resampled_sums
from holdfast.stats.walks.fmr import fmr
from holdfast.stats.walks.walk_rows import COLUMNS, paired
from holdfast.studies.seeds import Estimate
from holdfast.studies.study import Setting, StudyOptions

if TYPE_CHECKING:
    import pandas as pd

EMBEDDED = "embedded"
MEASURES = {
    "standard_accuracy": "SA",
    "reconstruction": "Accuracy before the first step",
    "validation_rate": "VR",
    "perturbed_accuracy": "PA",
    "fmr": "FMR",
}
"""What a study says of a group of walks; all are fractions."""

_COUNTS = ("n", "right", "validated", "survived")


def walk_settings(
    *, models: tuple[str, ...], scenes: int, steps: int, step_size: float | None = None, leave: Sequence[str] = ()
) -> tuple[Setting, ...]:
    """The settings that every study of walks has, but those it leaves out."""
    made = [
        Setting("models", models, "models under test; embedded stands for all that come with Holdfast", models[:2]),
        Setting("scenes", scenes, "test scenes, a multiple of 12 for equally many of each class", 12),
        Setting("context", 0.95, "how strongly class and background go together in the test scenes, 0 to 1"),
        Setting("steps", steps, "of a walk, at most", 2),
        Setting("generator", "embedded:vqgan", "what makes images of latents", "pixel:"),
        Setting("oracle", "clip:embedded", "who says whether an image still shows its class"),
    ]
    if step_size is not None:
        made.insert(4, Setting("step_size", step_size, "of a walk, in units of the generator's latent"))
    return tuple(one for one in made if one.name not in leave)


def models_of(settings: Mapping[str, Any], *, least: int = 1) -> list[str]:
    """The models that were named, none twice."""
    named = [name for one in settings["models"] for name in (available(one) if one == EMBEDDED else [one])]
    models = list(dict.fromkeys(named))
    if len(models) < least:
        raise UserError(f"this study compares models: name {least} or more with --set models=A,B")
    return models


def scenes_of(options: StudyOptions) -> str:
    """The test scenes as data; the settings are checked first."""
    settings = options.settings
    if settings["scenes"] < 12 or not 0 <= settings["context"] <= 1:
        raise UserError("scenes must be 12 or more, and context a number from 0 to 1")
    return f"diorama:test?n={settings['scenes']}&context={settings['context']:g}&seed={options.seed}"


def note(options: StudyOptions) -> str:
    """What a reader of the page must know first."""
    return DRAWN_WORLD + (" A rehearsal, with too few scenes and steps to say anything." if options.quick else "")


def called(models: Sequence[str]) -> list[str]:
    """What results call these models, in the same order."""
    return [load_classifier(name, device="cpu").name for name in models]


def walk_all(
    options: StudyOptions, ways: Sequence[Mapping[str, Any]], models: Sequence[str], **common: Any
) -> api.Results:
    """Walk the scenes against the models in each of several ways, all in one run, which resumes.

    Args:
        options: of the study.
        ways: options of ``api.perturb`` by which the walks differ.
        models: under test.
        common: options of ``api.perturb`` that all ways share.
    """
    settings = options.settings
    shared = {name: settings[name] for name in ("generator", "oracle", "steps", "step_size") if name in settings}
    for place, way in enumerate(ways):
        results = api.perturb(
            scenes_of(options),
            models=models,
            out=options.out / "runs" / "walks",
            seed=options.seed,
            device=options.device,
            random_walk=False,
            progress=_part(options.progress, place, len(ways)),
            **(shared | common | dict(way)),
        )
    return results


def images_of(results: api.Results) -> pd.DataFrame:
    """A row per model × setting × image, as ``stats.walks.walk_rows.paired`` has it."""
    return paired(results.rows(COLUMNS))


def walk_ways(
    options: StudyOptions, ways: Mapping[str, Mapping[str, Any]], models: Sequence[str], **common: Any
) -> tuple[api.Results, pd.DataFrame]:
    """``walk_all`` for ways that have names.

    Returns:
        The run, and the rows of ``images_of`` with the column ``way``; ways and models are in the order that was asked
        for, models under the names that results have for them.
    """
    told = {}
    for place, (name, way) in enumerate(ways.items()):
        part = replace(options, progress=_part(options.progress, place, len(ways)))
        results = walk_all(part, [way], models, **common)
        # The run says how the rows of this way are marked: by what generators and oracles call themselves.
        told[canonical_json(results.run.spec()["parameters"])] = name
    walks = images_of(results)
    # A run may hold walks of before, of another version of a generator, say.
    walks = walks[walks["parameters"].isin(told)]
    walks = walks.assign(way=walks["parameters"].map(told))
    places = {name: place for place, name in enumerate([*ways, *called(models)])}
    order = walks.assign(first=walks["way"].map(places), second=walks["model"].map(places))
    return results, walks.loc[order.sort_values(["first", "second", "sample_id"]).index].reset_index(drop=True)


def _part(progress: Progress, place: int, count: int) -> Progress:
    """Of several runs alike one, which says which it is."""
    if count == 1:
        return progress
    return lambda step, done, total: progress(f"{step} {place + 1} of {count}", done, total)


def family(walks: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """SA, VR, PA, FMR and the accuracy before the first step, each with ``_low`` and ``_high``, a row per group.

    Also ``n``, ``validated`` and ``survived`` (validated and right), and ``fmr_least`` and ``fmr_most``: all rejected
    images wrong, or all right.
    """
    import pandas as pd

    made = []
    for key, group in walks.groupby(list(by), sort=False):
        table = fmr(group.assign(model="", label="").drop(columns="right_random_walk"))
        rows = table[table["label"] == ""].drop_duplicates("measure").set_index("measure")
        row: dict[str, Any] = dict(zip(by, key, strict=True))
        for name in MEASURES:
            row |= {name: rows.at[name, "estimate"], f"{name}_low": rows.at[name, "low"]}
            row[f"{name}_high"] = rows.at[name, "high"]
        row |= {"fmr_least": rows.at["fmr_low", "estimate"], "fmr_most": rows.at["fmr_high", "estimate"]}
        perturbed = rows.loc["perturbed_accuracy"]
        row |= {"n": perturbed["n"], "validated": perturbed["denominator"], "survived": perturbed["numerator"]}
        made.append(row)
    return pd.DataFrame(made)


def columns(*names: str) -> list[Column]:
    """How measures of ``family`` are shown."""
    return [Column(name, MEASURES[name], "percent", f"{name}_low", f"{name}_high") for name in names]


COUNTS = [Column("validated", "Validated", "integer"), Column("survived", "of those right", "integer")]
BOUNDS = [
    Column("fmr_least", "FMR, rejected wrong", "percent"),
    Column("fmr_most", "FMR, rejected right", "percent"),
]


def shared_images(groups: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """The groups less what not all have, in one order: a row per image in each."""
    common = set.intersection(*(set(group["sample_id"]) for group in groups))
    if len(common) < 2:
        raise UserError("fewer than two scenes were walked in every way; look at the errors of the run")
    return [group[group["sample_id"].isin(common)].sort_values("sample_id") for group in groups]


def difference(first: pd.DataFrame, second: pd.DataFrame, measure: str) -> Estimate:
    """By how much a measure is larger for the second group than for the first, paired by scene, with a 95 % interval.

    Variance estimates recovery (Newcombe 1998; Zou and Donner 2008): the two own intervals, joined with the correlation
    of the estimates, so that it stays honest where all images agree. NaN where either has no value.
    """
    groups = shared_images([first, second])
    rows = [family(group.assign(all=0), ["all"]).iloc[0] for group in groups]
    (one, low_1, high_1), (two, low_2, high_2) = (
        tuple(float(row[name]) for name in (measure, f"{measure}_low", f"{measure}_high")) for row in rows
    )
    if np.isnan(one) or np.isnan(two):
        return Estimate(np.nan, np.nan, np.nan)
    parts = [_influence(group, measure) for group in groups]
    scale = float(np.sqrt((parts[0] ** 2).sum() * (parts[1] ** 2).sum()))
    correlation = float((parts[0] * parts[1]).sum()) / scale if scale > 0 else 0.0

    def reach(first_side: float, second_side: float) -> float:
        square = first_side**2 + second_side**2 - 2 * correlation * first_side * second_side
        return float(np.sqrt(max(square, 0.0)))

    change = two - one
    return Estimate(change, change - reach(high_1 - one, two - low_2), change + reach(one - low_1, high_2 - two))


def counts_of(walks: pd.DataFrame) -> Floats:
    """(images, 4) 1, right, validated, validated and right: sums over images make every measure."""
    validated = walks["validated"].to_numpy(np.float64)
    survived = validated * walks["right_perturbed"].astype("float64").fillna(0).to_numpy()
    return np.column_stack([np.ones(len(walks)), walks["right_original"].to_numpy(np.float64), validated, survived])


def measured(sums: Floats, measure: str) -> Floats:
    """A measure from sums of ``counts_of`` along the last axis; NaN where it would divide by zero."""
    n, right, validated, survived = np.moveaxis(sums, -1, 0)
    standard, perturbed = _over(right, n), _over(survived, validated)
    values = {"standard_accuracy": standard, "validation_rate": _over(validated, n), "perturbed_accuracy": perturbed}
    return values[measure] if measure in values else _over(perturbed, standard)


def _over(part: Floats, whole: Floats) -> Floats:
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=np.asarray(whole) > 0))


def _influence(walks: pd.DataFrame, measure: str) -> Floats:
    """(images,) what each adds to the deviation of a measure from the truth."""
    one, right, validated, survived = counts_of(walks).T
    standard, rate = right.mean(), validated.mean()
    perturbed = survived.sum() / max(validated.sum(), 1)
    parts = {
        "standard_accuracy": (right - standard * one) / len(one),
        "validation_rate": (validated - rate * one) / len(one),
        "perturbed_accuracy": (survived - perturbed * validated) / max(validated.sum(), 1),
    }
    if measure == "reconstruction":
        known = walks["right_reconstruction"].astype("float64").fillna(0).to_numpy()
        return np.asarray((known - known.mean()) / len(known))
    if measure in parts:
        return np.asarray(parts[measure])
    upper, lower = parts["perturbed_accuracy"], parts["standard_accuracy"]
    return np.asarray((upper - perturbed / standard * lower) / standard)


def resampled(groups: Sequence[pd.DataFrame], measure: str, *, seed: int) -> Floats:
    """(resamples, groups) a measure of each group in resamples of the scenes that all groups have."""
    tables = [counts_of(group) for group in shared_images(groups)]
    sums = resampled_sums(np.concatenate(tables, axis=1), np.arange(len(tables[0])), seed=seed)
    return measured(sums.reshape(len(sums), len(tables), len(_COUNTS)), measure)


def in_points(found: Estimate) -> str:
    """A difference of fractions as ``+3.1 points (−1.0 to 7.2)``."""
    if np.isnan(found.value):
        return "an unknown number of points (one of the two has no value)"
    sign = "+" if found.value > 0 else ""
    return f"{sign}{number(100 * found.value, 1)} points ({span(found.low, found.high)})"


def curves(
    frame: pd.DataFrame,
    width: int,
    *,
    lines: Sequence[str],
    panels: Mapping[str, tuple[str, bool]],
    across: str,
    logarithmic: bool = False,
    marks: bool = False,
) -> Chart:
    """Curves with bands, a panel a measure.

    Args:
        frame: model (names the line), measure, x, value, low, high.
        width: of the figure.
        lines: in order.
        panels: measure → title, and whether it is a fraction that is shown in per cent.
        across: title of the horizontal axis.
        logarithmic: the horizontal axis.
        marks: a dot and a bar for each value, for few values; else a band.
    """
    beside = min(len(panels), 3) if width >= WIDE else 1
    inner = width // beside - 70
    x: Chart = {"field": "x", "type": "quantitative", "title": across, "scale": {"nice": False}}
    x["axis"] = {"grid": False, "tickCount": 6, "format": "~g"}
    if logarithmic:
        x["scale"] = {"type": "log", "nice": False, "padding": 12}
        x["axis"] |= {"values": sorted(set(frame["x"].tolist())), "labelOverlap": True}
    else:
        x["axis"] |= {"tickMinStep": 1}
    made = [_curve_panel(name, title, fraction, inner, x, lines, marks) for name, (title, fraction) in panels.items()]
    data: Chart = {"datasets": {"curves": records(frame, 6)}, "data": {"name": "curves"}}
    fit = max(1, width // (room(lines, width) + 54))  # one legend above all panels
    layout: Chart = {"columns": beside, "bounds": "flush", "spacing": {"column": 62, "row": 70}}
    return data | layout | {"concat": made, "config": {"legend": {"columnPadding": 24, "columns": fit}}}


def _curve_panel(
    name: str, title: str, fraction: bool, inner: int, x: Chart, lines: Sequence[str], marks: bool
) -> Chart:
    axis: Chart = {"domain": False, "ticks": False, "tickCount": 5, **({"format": "%"} if fraction else {})}
    scale: Chart = {"zero": True, "nice": True}
    y: Chart = {"type": "quantitative", "title": None, "axis": axis, "scale": scale}
    colour: Chart = {"color": {"value": COLOURS[0]}}
    if len(lines) > 1:
        colour = by_model(lines, "color", COLOURS)
        colour["color"]["legend"] |= {"symbolOpacity": 1}  # that of the lines, not of the bands
    shown = ".1%" if fraction else ".3f"
    tip: list[Chart] = [{"field": "model", "title": "of"}, {"field": "x", "type": "quantitative", "title": "at"}]
    tip += [
        {"field": field, "type": "quantitative", "title": text, "format": shown}
        for field, text in (("value", "value"), ("low", "95 % from"), ("high", "to"))
    ]
    ends = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, **colour}
    middle = {"x": x, "y": y | {"field": "value"}, **colour}
    band: Chart = {"mark": {"type": "rule", "strokeWidth": 1.7} if marks else {"type": "area", "opacity": 0.18}}
    dot: Chart = {"mark": {"type": "point", "filled": True, "size": 56 if marks else 12, "opacity": 1}}
    return {
        "title": {"text": title, "fontSize": 12},
        "width": inner,
        "height": 210,
        "transform": [{"filter": {"field": "measure", "equal": name}}],
        "layer": [
            band | {"encoding": ends},
            {"mark": {"type": "line", "strokeWidth": 1.6}, "encoding": middle},
            dot | {"encoding": middle | {"tooltip": tip}},
        ],
    }


def tidy(frame: pd.DataFrame, *, line: str, x: str, measures: Sequence[str]) -> pd.DataFrame:
    """A frame with ``m``, ``m_low`` and ``m_high`` for every measure m → what ``curves`` draws."""
    import pandas as pd

    return pd.concat(
        pd.DataFrame(
            {"model": frame[line], "measure": name, "x": frame[x], "value": frame[name]}
            | {end: frame[f"{name}_{end}"] for end in ("low", "high")}
        )
        for name in measures
    )


def compared(frame: pd.DataFrame, *, models: str, row: str, measure: str) -> pd.DataFrame:
    """A frame of ``family`` → what ``report.page.charts.dots`` draws."""
    import pandas as pd

    columns = {"estimate": measure, "low": f"{measure}_low", "high": f"{measure}_high"}
    return pd.DataFrame({"model": frame[models], "row": frame[row]} | {to: frame[of] for to, of in columns.items()})
