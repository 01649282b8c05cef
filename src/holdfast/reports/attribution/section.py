"""Section: where the models look, and how that relates to lost accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.numbers import alike, estimate, number, percent, span
from holdfast.core.schema import ATTRIBUTIONS
from holdfast.core.types import ORIGINAL
from holdfast.reports.attribution.gallery import maps_shown
from holdfast.reports.page import charts
from holdfast.reports.page.charts import SIGNED
from holdfast.reports.page.evidence import with_display_names
from holdfast.reports.page.figures import COLOURS, WIDE, Chart, Figure
from holdfast.reports.page.parts import Front, Heading, Notice, Part, Section, Text, answer, first_figure, proof
from holdfast.reports.page.sections import ReportEvidence, ReportSection
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, plain, ranged, yes_no
from holdfast.reports.page.words import condition_label, listing, page_facts, plural, short_names
from holdfast.reports.page.writer import about_runs, write_page
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.effects import attributions
from holdfast.stats.effects.attributions import ALIKE, FEWEST
from holdfast.store import Parts, Run, as_photos, copies_of

TITLE = "Where the models look"
METHODS = {"gradcam": "Grad-CAM", "integrated_gradients": "integrated gradients", "occlusion": "occlusion"}
MEANING = (
    "An attribution map says which places of an image speak for an answer. The share on the foreground is the part of "
    "the map's sum that is on the mask (the object, or the defect, that it marks); a map without preference has the "
    "share of the area. Everything is measured in the model's own view of the image, after its resizing and cropping."
)
STAGES = ("the last layer", "the last quarter", "the last half", "the last three quarters", "all layers")
"""What is shuffled, in the order of ``explain.DEPTHS``."""

_AREA = "area of the mask"
_OVER = {
    "conditions": "model × condition",
    "classes": "model × class",
    "models": "model",
    "images": "model × image × condition",
}


def method_name(method: str) -> str:
    """Return ``gradcam?layer=layer3`` as ``Grad-CAM (layer=layer3)``."""
    name, _, options = method.partition("?")
    return METHODS.get(name, name) + (f" ({options.replace('&', ', ')})" if options else "")


def read_looks(runs: Sequence[Run]) -> pd.DataFrame | None:
    """Return the maps of all runs with the rows they explain and the run's ``folder``; None if there are none."""
    frames = []
    for run in runs:
        parts = Parts(run.path / "details" / "attributions", ATTRIBUTIONS)
        if parts.paths():
            frame = attributions.looks(as_photos(run.rows(attributions.COLUMNS), copies_of([run])), parts.rows())
            frames.append(
                with_display_names(frame.assign(folder=str(run.path), trained_on=frame["trained_on"].fillna("")))
            )
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    if whole.empty:
        return None
    return whole.drop_duplicates(["row_id", "method", "target"]).reset_index(drop=True)


def looking(frame: pd.DataFrame, *, resamples: int, seed: int) -> Section:
    """Return shares with intervals, their correlation with the drop, the sanity check, and the maps themselves."""
    section = Section("looking", TITLE)
    table = attributions.shares(frame, resamples=resamples, seed=seed)
    table = table[table["n"] > 0].reset_index(drop=True)
    if table.empty:
        section.parts = [Notice("No map could be made of any image, or all of them are zero everywhere.")]
        return section
    first = _first(table).sort_values("share", ascending=False, kind="stable")
    table = table.assign(
        first=table["method"].map(_places(table["method"])), second=table["model"].map(_places(first["model"]))
    )
    table = table.sort_values(["first", "second"], kind="stable").drop(columns=["first", "second"])
    table = table.reset_index(drop=True)
    models = list(dict.fromkeys(table["model"].astype(str)))
    short = short_names(models)
    related = attributions.correlations(frame, resamples=resamples, seed=seed)
    checked = attributions.sanity(frame, resamples=resamples, seed=seed)
    section.lead = [MEANING, *_findings(table, short), *_related(related), *_checked(checked, short)]
    missing = frame[frame["status"] != "ok"]
    reasons = [
        f"{int(count):,} × {error}" for error, count in missing["error"].fillna("").value_counts().head(4).items()
    ]
    nowhere = f"{plural(len(missing), 'map')} of {len(frame):,} count in no share: {'; '.join(reasons)}."
    left_out = [Text([nowhere])] if len(missing) else []
    section.parts = [
        *_share_parts(table, short),
        *_related_parts(frame, table, related, short),
        *_sanity_parts(checked, short),
        *_cascade_parts(attributions.cascades(frame, resamples=resamples, seed=seed), short),
        *left_out,
        *maps_shown(frame, {name: Path(name) for name in frame["folder"].unique()}, short, method_name),
    ]
    return section


def _places(values: pd.Series) -> dict[Any, int]:
    return {value: place for place, value in enumerate(dict.fromkeys(values))}


def _first(table: pd.DataFrame) -> pd.DataFrame:
    wanted = (table["method"] == table["method"].iloc[0]) & (table["target"] == table["target"].iloc[0])
    kept: pd.DataFrame = table.loc[wanted]
    return kept


def _findings(table: pd.DataFrame, short: dict[str, str]) -> list[str]:
    first = _first(table)
    on = first[first["condition"] == ORIGINAL]
    on = (on if len(on) else first).sort_values("share", ascending=False, kind="stable")
    ends = on if len(on) <= 2 else on.iloc[[0, -1]]
    what = "originals" if len(on) and on["condition"].iloc[0] == ORIGINAL else "images"
    shares = [
        f"{short[row['model']]} {estimate(row['share'], row['low'], row['high'])}, {number(row['ratio'])} times the "
        f"{percent(row['area'])} that the mask covers"
        for row in ends.to_dict("records")
    ]
    differ = len(on) > 2 and not alike(on["share"].iloc[0], on["share"].iloc[-1])
    start = f"of {len(on)} models the most and the least: " if differ else ""
    count = int(on["n"].max())
    return [f"By {method_name(str(on['method'].iloc[0]))} on {count:,} {what}: {start}{'; '.join(shares)}."]


def _related(related: pd.DataFrame) -> list[str]:
    known = related[related["rho"].notna()]
    if known.empty:
        return [
            "Whether looking at the object goes with keeping the accuracy cannot be said: that takes originals, "
            f"changed conditions, {FEWEST} or more dots, and some accuracy lost."
        ]
    first = known[known["over"] == known["over"].iloc[0]]
    findings = []
    for row in first.to_dict("records"):
        sure, more = row["low"] > 0 or row["high"] < 0, "less" if row["rho"] < 0 else "more"
        end = f"the more on the foreground, the {more} is lost" if sure else "not settled"
        numbers = f"{number(row['rho'])} ({span(row['low'], row['high'], 2, 1)})"
        findings.append(f"{numbers} by {method_name(str(row['method']))}, {end}")
    dots = f"{int(first['n'].iloc[0])} dots, one per {_OVER[str(first['over'].iloc[0])]}"
    return [f"Rank correlation of the share with the accuracy lost over {dots}: {'; '.join(findings)}."]


def _checked(checked: pd.DataFrame, short: dict[str, str]) -> list[str]:
    if checked.empty:
        return ["Whether the maps depend on what the models learned was not checked; explain --randomise does."]
    same = checked[~checked["changed"].astype(bool)]
    if same.empty:
        return [
            "With shuffled weights the maps change (the largest mean rank correlation of a model's maps with those "
            f"of its shuffled twin is {number(float(checked['rank_correlation'].max()))}), so they depend on what was "
            f"learned.{_mostly_zero(checked, short)}"
        ]
    names = [f"{short[row['model']]} by {method_name(str(row['method']))}" for row in same.to_dict("records")]
    return [
        f"The maps of {listing(names)} hardly change when the weights are shuffled (mean rank correlation "
        f"{number(ALIKE)} or more): they show the image or the architecture rather than what was learned, and their "
        "shares should not be read as what the model looks at."
    ]


def _mostly_zero(checked: pd.DataFrame, short: dict[str, str]) -> str:
    """Return a warning for models whose shuffled network has mostly empty maps: they prove little."""
    zero = checked[2 * checked["zero"] > checked["n"]]
    if zero.empty:
        return ""
    names = [f"{short[row['model']]} by {method_name(str(row['method']))}" for row in zero.to_dict("records")]
    return (
        f" For {listing(names)} most maps of the shuffled twin are zero everywhere, so this says little; explain "
        "--cascade shuffles layer by layer."
    )


def _share_parts(table: pd.DataFrame, short: dict[str, str]) -> list[Part]:
    parts: list[Part] = []
    for place, ((method, target), group) in enumerate(table.groupby(["method", "target"], sort=False)):
        order = sorted(group["condition"].unique(), key=lambda name: name != ORIGINAL)
        tidy = group.assign(
            model=group["model"].map(short), row=group["condition"].map(condition_label), estimate=group["share"]
        )
        area = tidy.groupby("row", as_index=False)["area"].mean()
        area = area.assign(model=_AREA, estimate=area["area"], low=area["area"], high=area["area"])
        columns = ["model", "row", "estimate", "low", "high"]
        drawn = pd.concat([tidy[columns], area[columns]], ignore_index=True)
        names = [*dict.fromkeys(tidy["model"]), _AREA]
        means = tidy.groupby("model", sort=False)["share"].mean()
        finding = "Mean share: " + "; ".join(f"{name} {percent(float(value))}" for name, value in means.items()) + "."
        title = f"Share of the map on the foreground, {method_name(str(method))} of the {_answer(str(target))}"
        note = "With 95 % intervals over images. To the right of the mask's area a map prefers the foreground."
        rows = [condition_label(name) for name in order]
        look: dict[str, Any] = {"models": names, "rows": rows, "axis": "share on the foreground", "note": note}
        parts.append(charts.dot_figure(f"looking_{place + 1}", title, finding, drawn, **look))
    columns_shown = [
        model_column(short),
        CONDITION,
        Column("method", "Method", show=method_name),
        Column("target", "Answer", show=_answer),
        Column("n", "Maps", "integer"),
        Column("share", "Share", "percent", "low", "high", hint="of the map on the foreground"),
        Column("area", "Area", "percent", hint="of the image that the foreground covers"),
        ranged("ratio", "Share / area", "number", digits=2, hint="1 means no preference"),
        ranged("hits", "Maximum on it", hint="pointing game"),
        ranged("change", "Change", "points", hint="of the share against originals"),
        Column("empty", "Empty maps", "integer", hint="zero everywhere: no share"),
    ]
    caption = "Share of attribution on the foreground"
    whole = Table("looking", caption, table, _telling(columns_shown, table), folded=len(table) > 12)
    return [*parts, whole]


def _telling(columns: Sequence[Column], table: pd.DataFrame) -> list[Column]:
    """Return the columns without method and answer if there is only one of them; the CSV has both."""
    return [column for column in columns if column.key not in ("method", "target") or table[column.key].nunique() > 1]


def _answer(target: str) -> str:
    return {"label": "true class", "prediction": "model's answer"}.get(target, target)


def _related_parts(
    frame: pd.DataFrame, table: pd.DataFrame, related: pd.DataFrame, short: dict[str, str]
) -> list[Part]:
    known = related[related["rho"].notna()]
    if known.empty:
        return []
    first = _first(table)
    usable = frame[(frame["method"] == first["method"].iloc[0]) & (frame["target"] == first["target"].iloc[0])]
    drops = attributions.drops_of(usable)
    dots = first.merge(drops, on=["model", "trained_on", "condition"]).assign(
        row=lambda frame: frame["condition"].map(condition_label), model=lambda frame: frame["model"].map(short)
    )
    parts: list[Part] = [Heading("Looking at the object, and keeping the accuracy")]
    if len(dots) >= FEWEST:
        names = list(dict.fromkeys(dots["model"]))
        parts.append(
            Figure(
                "looking_drop",
                "Share on the foreground against the accuracy lost, a dot per model and condition",
                f"{plural(len(dots), 'dot')}; rank correlation {number(float(known['rho'].iloc[0]))}.",
                lambda width: scatter(dots, width, models=names),
                "Shares and drops are of the explained images only, so drops differ from those of the whole run.",
            )
        )
    columns = [
        Column("over", "A dot is a …", show=lambda over: _OVER[over]),
        Column("method", "Method", show=method_name),
        Column("target", "Answer", show=_answer),
        *plain("integer", n="Dots", photos="Images"),
        Column("rho", "Rank correlation", "number", "low", "high", digits=2),
    ]
    note = (
        "Spearman's, with 95 % intervals by resampling images. Negative: the more on the foreground, the less is "
        "lost. A dot of a condition has the share there; the others have the share on originals."
    )
    caption = "Share on the foreground and accuracy lost"
    return [*parts, Table("looking_drop", caption, related, _telling(columns, related), note)]


def scatter(frame: pd.DataFrame, width: int, *, models: Sequence[str]) -> Chart:
    """Return the share (across) against the drop (up), coloured by ``model``; columns ``row``, ``share``, ``drop``."""
    axis: dict[str, Any] = {"domain": False, "ticks": False, "tickCount": 6 if width >= WIDE else 4}
    x = {"field": "share", "type": "quantitative", "title": "share on the foreground", "scale": {"zero": False}}
    y = {"field": "drop", "type": "quantitative", "title": "accuracy lost, points", "scale": {"zero": True}}
    tips: list[Chart] = [{"field": "model"}, {"field": "row", "title": "condition"}]
    tips += [{"field": name, "type": "quantitative", "format": ".1%"} for name in ("share", "drop")]
    look = charts.by_model(models, "color", COLOURS) if len(models) > 1 else {"color": {"value": COLOURS[0]}}
    place = {"x": x | {"axis": axis | {"format": "%"}}, "y": y | {"axis": axis | SIGNED}, "tooltip": tips}
    layers = [charts.rule_at(0, "y"), charts.dot_layer(place | look, 60, opacity=0.85)]
    config = {"legend": {"columns": 3 if width >= WIDE else 1}}
    size = {"width": min(width - 70, 620), "height": 300 if width >= WIDE else 240}
    return charts.chart_of(frame[["model", "row", "share", "drop"]], **size, layer=layers, config=config)


def _sanity_parts(checked: pd.DataFrame, short: dict[str, str]) -> list[Part]:
    if checked.empty:
        return []
    columns = [
        model_column(short),
        Column("method", "Method", show=method_name),
        Column("target", "Answer", show=_answer),
        Column("n", "Maps", "integer"),
        Column("rank_correlation", "Rank correlation", "number", "low", "high", digits=2),
        Column("structural_similarity", "SSIM", "number", digits=2),
        Column("share", "Share", "percent"),
        Column("share_randomised", "Share, shuffled", "percent", hint="what a network that knows nothing would have"),
        Column("zero", "Zero maps", "integer", hint="of the shuffled network: zero everywhere, so like nothing"),
        Column("changed", "Maps change", show=yes_no),
    ]
    note = "Of each map with that of the same network, all weights shuffled (Adebayo and others 2018)."
    caption = "Maps against those of shuffled weights"
    table = Table("looking_sanity", caption, checked, _telling(columns, checked), note)
    return [Heading("Do the maps show what was learned?"), table]


def _cascade_parts(table: pd.DataFrame, short: Mapping[str, str]) -> list[Part]:
    """Return how maps change as weights are shuffled from the last layer down; empty if that was not run."""
    if table.empty:
        return []
    parts: list[Part] = [Heading("From the last layer down")]
    for place, ((method, _), group) in enumerate(table.groupby(["method", "target"], sort=False)):
        tidy = group.assign(
            model=group["model"].map(short),
            row=group["stage"].map(STAGES.__getitem__),
            estimate=group["rank_correlation"],
        )
        names = list(dict.fromkeys(tidy["model"]))
        parts.append(Text([f"By {method_name(str(method))}: {_cascade_finding(tidy, names)}"]))
        title = f"Maps by {method_name(str(method))} as ever more layers are shuffled"
        note = "1 is the same map; near 0 nothing is left of it. With 95 % intervals over images."
        look: dict[str, Any] = {
            "rows": list(STAGES),
            "axis": "rank correlation of the maps",
            "numbers": True,
            "note": note,
        }
        finding = _cascade_finding(tidy, names)
        parts.append(charts.dot_figure(f"looking_cascade_{place + 1}", title, finding, tidy, **look))
    columns = [
        Column("model", "Model", show=lambda name: short.get(name, name)),
        Column("method", "Method", show=method_name),
        Column("stage", "Shuffled", show=lambda stage: STAGES[int(stage)]),
        Column("n", "Maps", "integer"),
        Column("rank_correlation", "Rank correlation", "number", "low", "high", digits=2),
        Column("structural_similarity", "SSIM", "number", digits=2),
        Column("zero", "Zero maps", "integer", hint="of the shuffled network: they correlate with nothing"),
    ]
    note = (
        "Of originals. A method that shows what was learned changes with the last layers already; one that stays the "
        "same until the first are shuffled shows what those see, edges above all."
    )
    caption, shown = "Maps by depth of the shuffled layers", _telling(columns, table)
    return [*parts, Table("looking_cascade", caption, table, shown, note, folded=len(table) > 12)]


def _cascade_finding(tidy: pd.DataFrame, names: list[str]) -> str:
    """Return the depth from which on each model's maps change."""
    by_stage: dict[str, list[str]] = {}
    never = []
    for name in names:
        own = tidy[tidy["model"] == name].sort_values("stage")
        below = own[own["rank_correlation"] < ALIKE]
        if below.empty:
            never.append(name)
        else:
            by_stage.setdefault(STAGES[int(below["stage"].iloc[0])], []).append(name)
    changes = [f"with {stage} shuffled for {listing(who, 6)}" for stage, who in by_stage.items()]
    first = f"The mean rank correlation falls below {ALIKE:g} {'; '.join(changes)}." if changes else ""
    last = f" It stays above for {listing(never, 6)}: these maps should not be read." if never else ""
    return (first + last).strip()


def build_looking(run: Run, out: Path, *, resamples: int = RESAMPLES, seed: int = 0) -> Path:
    """Write the section as a page of its own; return its path."""
    frame = read_looks([run])
    if frame is None:
        raise UserError(f"{run.path} has no attribution map; holdfast explain makes them")
    section = looking(frame, resamples=resamples, seed=seed)
    facts = page_facts(
        (frame["model"].nunique(), "model"),
        (frame["source_id"].nunique(), "image"),
        (frame["condition"].nunique(), "condition"),
        (len(frame), "map"),
    )
    limits = (
        "A map shows what an answer depends on by one method's definition, not what a model understands. Intervals are "
        "at the 95 % level and treat images, not maps, as independent."
    )
    sentences = section.lead[1:]  # after what a map is
    front = Front(
        "Do the models look at the object?", answer(sentences[0] if sentences else "No map could be made"),
        facts, limits,
        proof(section.parts, tiles=3), first_figure(section.parts),
    )  # fmt: skip
    return write_page(front, [section], out, **about_runs([run]))


def _looks(report: ReportEvidence) -> pd.DataFrame | None:
    return read_looks(report.runs)


def _looking(report: ReportEvidence) -> list[Section]:
    looks = report.once(_looks)
    return [] if looks is None else [looking(looks, **report.resampling)]


LOOKING = ReportSection(_looking)
