"""Findings of ``holdfast study masks`` in words, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from holdfast.core.names import condition_words
from holdfast.core.numbers import number, points, span
from holdfast.core.types import Image
from holdfast.reports.page.charts import chart_of, dot_layer, facet_of, layer, placed, rule_at, tooltip
from holdfast.reports.page.figures import COLOURS, INK, MUTED, SHAPES, WIDE, Chart
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.reports.page.words import listing, short_names
from holdfast.reports.study import Finding
from holdfast_studies.degraded import EXACT, FAMILIES
from holdfast_studies.mask_measures import SCORES, MaskMeasures
from holdfast_studies.study import ENDS, dots_of, farthest, is_clear, long_form, panel

UNDECIDED = "undecided"
KIND, IOU = Column("kind", "Masks"), Column("iou", "Mean IoU", "number", digits=3)


def findings(measures: MaskMeasures, pictures: Mapping[str, Image]) -> list[Finding]:
    """Return the findings in the order of the page."""
    sections = (_moved, _by_model, _flips, _verdicts, _ranks, _costs)
    return [_quality(measures, pictures), *(section(measures) for section in sections)]


def _quality(measures: MaskMeasures, pictures: Mapping[str, Image]) -> Finding:
    frame = measures.masks
    best, worst = _at(frame, 1), _at(frame, -1)
    bad = frame[frame["unusable"] > 0]
    sentences = [
        f"Mean IoU with the exact masks goes from {number(best['iou'])} ({best['kind']}) to {number(worst['iou'])} "
        f"({worst['kind']}). Eroded masks lose parts of the object, dilated ones and boxes take its surroundings along."
    ]
    if len(bad):
        counts = listing([f"{row['kind']} {row['unusable']}" for row in bad.to_dict("records")], 12)
        sentences.append(
            f"Masks that are empty or cover the whole image cannot be used: {counts} of {frame['n'].iloc[0]}."
            " Such an image is left out where that kind of mask is compared."
        )
    columns = [
        KIND,
        ranged("iou", "Mean IoU", "number", 3),
        Column("median", "Median", "number", digits=3),
        Column("lost", "Object left out", "percent"),
        Column("added", "Background taken in", "percent", hint="as a share of the object's area"),
        Column("unusable", "Unusable", "integer", hint="empty, or the whole image"),
    ]
    ordered = {kind: pictures[kind] for kind in ("photos", EXACT, *frame["kind"]) if kind in pictures}
    return Finding("How good the masks are", sentences, frame, columns, images=ordered,
                   caption="Kinds of masks, by their overlap with the exact ones")  # fmt: skip


def _moved(measures: MaskMeasures) -> Finding:

    frame = measures.means
    others = frame[frame["kind"] != EXACT]
    off = others[is_clear(others, "change")]
    worst = farthest(others, "change")
    effect, best_off = frame.iloc[0]["effect"], ""
    if len(off):
        best = _at(off, off["iou"].argmax())
        best_off = f"; the best of those masks are {best['kind']} (IoU {number(best['iou'])})"
    sentences = [
        f"With exact masks the background effect is {points(effect)}, mean over {len(measures.models)} models. It "
        f"moves most with {worst['kind']} masks (IoU {number(worst['iou'])}): by {_plus(worst['change'])} points "
        f"({span(worst['change_low'], worst['change_high'])}). For {len(off)} of {len(others)} kinds the interval of "
        f"the change leaves out zero{best_off}."
    ]
    if measures.truths:
        small, large = _at(frame, frame["bias"].argmin()), _at(frame, frame["bias"].argmax())
        own = _at(frame, 0)
        sentences.append(
            f"The true effect is known here. Against it exact masks are off by {_plus(own['bias'])} points "
            f"({span(own['bias_low'], own['bias_high'])}); the others lie between {_plus(small['bias'])} "
            f"({small['kind']}) and {_plus(large['bias'])} ({large['kind']})."
        )
    if len(others) > 3:
        sentences.append(_with_iou(others, measures.masks))
    wanted = {"change": "effect", "score_change": "score", "cross_background_change": "cross_background"}
    drawn = long_form(others, wanted, "kind", "family", "iou")
    panels = {"effect": "Change of background effect, points"}
    panels |= {name: f"Change of {title[0].lower()}{title[1:]}" for name, title in SCORES.items()}
    families = [name for name in measures.families if name != EXACT]
    columns = [KIND, IOU, *_effect_columns(measures)]
    for name, title in SCORES.items():
        against = ranged(f"{name}_change", "Against exact masks", "number", 4)
        columns += [Column(name, title, "number", digits=4), against]
    sentences.append(
        "The robustness score is over the static conditions that were run, one less their cross part; the other cross "
        "part is that of the conditions that leave the object as it is, which grows as a score falls."
    )
    return Finding(
        "Scores over IoU",
        sentences,
        frame,
        columns,
        chart=lambda width: change_chart(drawn, width, panels=panels, families=families),
        caption="What each kind of mask changes, mean over models",
    )


def _effect_columns(measures: MaskMeasures) -> list[Column]:
    columns = [ranged("effect", "Background effect", "points"), ranged("change", "Against exact masks", "points")]
    return columns + ([ranged("bias", "Against the truth", "points")] if measures.truths else [])


def _at(frame: pd.DataFrame, place: int | np.intp) -> dict[str, Any]:
    """Return a row of a frame."""
    return {str(key): value for key, value in frame.iloc[int(place)].items()}


def _with_iou(others: pd.DataFrame, masks: pd.DataFrame) -> str:
    """Say how the change goes with IoU, and with the way in which the masks err."""
    from scipy.stats import spearmanr

    frame = others.merge(masks[["kind", "lost", "added"]], on="kind")
    if frame["change"].abs().nunique() < 2 or frame["iou"].nunique() < 2:
        return "The change does not differ between kinds."
    rho = float(spearmanr(frame["iou"], frame["change"].abs()).statistic)
    sentence = f"Spearman's ρ of IoU with the size of the change is {number(rho)} over {len(frame)} kinds of masks."
    lossy = frame["lost"] > frame["added"]
    ways = [
        f"{word} change it by {_plus(part['change'].min())} to {_plus(part['change'].max())} points"
        for word, part in (("lose more of the object than they take in around it", frame[lossy]),
                           ("take in more than they lose", frame[~lossy]))
        if len(part)
    ]  # fmt: skip
    return f"Masks that {', those that '.join(ways)}. {sentence}"


def _plus(value: float) -> str:
    text = number(100 * value, 1)
    return text if value < 0 or float(text) == 0 else f"+{text}"


def _by_model(measures: MaskMeasures) -> Finding:
    frame = measures.effects
    short = short_names(measures.models)
    drawn = long_form(
        frame.assign(model=frame["model"].map(short)), {"effect": "effect"}, "model", "kind", "family", "iou"
    )
    true = [{"model": short[model], "truth": effect.value} for model, effect in measures.truths.items()]
    others = frame[frame["kind"] != EXACT]
    worst = farthest(others, "change")
    off = others[is_clear(others, "change")]
    sentences = [
        f"In {len(off)} of {len(others)} pairs of model and kind of mask the change against exact masks has an "
        f"interval without zero; the largest is {_plus(worst['change'])} points "
        f"({span(worst['change_low'], worst['change_high'])}) for {worst['model']} with {worst['kind']} masks."
        + (" The dashed line is the true effect." if measures.truths else "")
    ]
    columns = [
        KIND,
        Column("model", "Model", show=short.__getitem__),
        IOU,
        *_effect_columns(measures),
        Column("verdict", "Verdict"),
        *(Column(name, title, "number", digits=4) for name, title in SCORES.items()),
        Column("n", "Images", "integer"),
    ]
    return Finding(
        "Background effect of every model",
        sentences,
        frame,
        columns,
        chart=lambda width: model_chart(
            drawn, pd.DataFrame(true), width, models=list(short.values()), families=measures.families
        ),
        caption="Background effect (same class's background less another class's) over the masks' IoU",
    )


def _flips(measures: MaskMeasures) -> Finding:
    short = short_names(measures.models)
    exact = measures.effects[measures.effects["kind"] == EXACT].set_index("model")["verdict"]
    every = measures.effects.assign(before=measures.effects["model"].map(exact))
    flipped = every[every["verdict"] != every["before"]].sort_values("iou", ascending=False, kind="stable")
    # those that other masks turn into another decided verdict
    decided = flipped[(flipped["verdict"] != UNDECIDED) & (flipped["before"] != UNDECIDED)]
    best = flipped.drop_duplicates("model").set_index("model")[["iou", "kind", "verdict"]]
    frame = pd.DataFrame({"model": measures.models, "verdict": exact.reindex(measures.models).to_list()})
    for column, some in (("flips", flipped), ("contradicts", decided)):
        frame[column] = frame["model"].map(some.groupby("model").size()).fillna(0).astype(int)
    frame = frame.join(best.rename(columns={"verdict": "becomes"}), on="model").fillna({"kind": "", "becomes": ""})
    pairs = len(measures.models) * len(measures.kinds)
    if len(flipped):
        top = _at(frame, frame["iou"].argmax())
        sentence = (
            f"Of {pairs} verdicts {len(flipped)} are not those of the exact masks, {len(decided)} of them another "
            "decided verdict and the rest to or from undecided. The best masks that change one have IoU "
            f"{number(top['iou'])} ({top['kind']}: {top['model']} from {top['verdict']} to {top['becomes']}); above "
            "that, none changes."
        )
        if len(decided):
            most = _at(decided, decided["iou"].argmax())
            sentence += (
                f" The best that turn one decided verdict into another have IoU {number(most['iou'])} "
                f"({most['kind']}: {most['model']} from {most['before']} to {most['verdict']})."
            )
    else:
        sentence = f"None of the {pairs} verdicts is another than with exact masks."
    columns = [
        Column("model", "Model", show=short.__getitem__),
        Column("verdict", "With exact masks"),
        *plain("integer", flips="Kinds of masks that change it", contradicts="… to another decided one"),
        Column("iou", "From IoU", "number", digits=3, hint="the best masks that change it"),
        Column("kind", "With"),
        Column("becomes", "It becomes"),
    ]
    return Finding("From which IoU on a verdict flips", [sentence], frame, columns)


def _verdicts(measures: MaskMeasures) -> Finding:
    short = short_names(measures.models)
    wide = measures.effects.pivot(index="kind", columns="model", values="verdict")
    frame = measures.masks[["kind", "iou"]].merge(wide.reset_index(), on="kind").rename(columns=short)
    columns = [KIND, IOU]
    columns += [Column(name, name) for name in short.values()]
    sentence = "A verdict is decided by a margin of 5 points; exact masks are first."
    return Finding("Verdicts", [sentence], frame, columns, caption="What each model relies on, by kind of mask")


def _ranks(measures: MaskMeasures) -> Finding:
    titles = {"effect": "By background effect", "cross_background": "By cross part, background changed"}
    titles |= {"truth": "Effect against the true one"} if measures.truths else {}
    ends = {"tau": "", "low": "_low", "high": "_high"}
    frame = pd.DataFrame(
        {"kind": kind, "iou": iou}
        | {f"{name}{end}": measures.scores[kind].tau[name][key] for name in titles for key, end in ends.items()}
        for kind, iou in zip(measures.masks["kind"], measures.masks["iou"], strict=True)
    )
    columns = [KIND, IOU]
    columns += [ranged(name, title, "number", 2) for name, title in titles.items()]
    others = frame[frame["kind"] != EXACT]
    known = others.dropna(subset=["effect"])
    if len(measures.models) < 3 or known.empty:
        sentence = f"With {len(measures.models)} models there is hardly an order that could change."
    else:
        least = _at(known, known["effect"].argmin())
        kept = int((known["effect"] > 0.999).sum())
        sentence = (
            f"{kept} of {len(known)} kinds of masks order the {len(measures.models)} models by background effect "
            f"exactly as exact masks do; the least like it is {least['kind']} (Kendall's τ-b "
            f"{number(least['effect'])}, {span(least['effect_low'], least['effect_high'], 2, 1)})."
        )
        if measures.truths:
            own = frame.iloc[0]["truth"]
            sentence += (
                f" Against the true order τ is {number(own)} with exact masks and {number(others['truth'].min())} to "
                f"{number(others['truth'].max())} with the others."
            )
    return Finding("Do the models keep their order", [sentence], frame, columns,
                   caption="Kendall's τ-b between the models' order with these masks and with exact ones")  # fmt: skip


def _costs(measures: MaskMeasures) -> Finding:
    frame = measures.conditions
    others = frame[frame["kind"] != EXACT]
    size = others.assign(size=others["change"].abs()).groupby("condition")["size"].mean()
    most, least = str(size.idxmax()), str(size.idxmin())
    sentences = [
        f"The masks matter most for {condition_words(most)} ({points(size[most])} on average over the "
        f"kinds) and least for {condition_words(least)} ({number(100 * size[least], 1)}). The images as they are do "
        "not depend on masks, so a gain in accuracy is a cost understated by as much."
    ]
    columns = [
        KIND,
        Column("condition", "Condition", show=condition_words),
        ranged("cost", "Cost against the original", "points"),
        ranged("change", "Accuracy against exact masks", "points"),
    ]
    return Finding(
        "What each condition costs",
        sentences,
        frame,
        columns,
        chart=dots_of(
            others.assign(row=others["condition"].map(condition_words)), "change", line="kind", row="row",
            title="accuracy less that with exact masks, points", zero=True,
        ),
        caption="Accuracy with these masks less that with exact ones, mean over models",
    )  # fmt: skip


def _x(values: pd.Series[float]) -> Chart:
    low = max(0.0, float(values.min()) - 0.05)
    scale = {"domain": [low, 1.02], "nice": False}
    axis = {"grid": False, "tickCount": 5, "format": ".1f"}
    title = "mean IoU with the exact masks"
    return {"field": "iou", "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _family(families: Sequence[str]) -> Chart:
    """Return colour and shape of the families, the same in every figure."""
    places = [FAMILIES.index(name) for name in families]
    legend = {"orient": "top", "direction": "horizontal", "title": None, "offset": 6}
    channels: Chart = {}
    for channel, values in (("color", (INK, *COLOURS)), ("shape", SHAPES)):
        scale = {"domain": list(families), "range": [values[place] for place in places]}
        channels[channel] = {"field": "family", "type": "nominal", "scale": scale, "legend": legend}
    return channels


def _marks(x: Chart, y: Chart, families: Sequence[str], number: str, size: int) -> list[Chart]:
    marked = _family(families)
    tip = tooltip({"kind": "masks"}, ENDS, number)
    tip.insert(1, {"field": "iou", "title": "mean IoU", "format": ".2f"})
    ends = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": marked["color"]}
    dots = {"x": x, "y": y | {"field": "value"}, **marked, "tooltip": tip}
    return [layer("rule", ends, strokeWidth=1.6), dot_layer(dots, size)]


def change_chart(frame: pd.DataFrame, width: int, *, panels: Mapping[str, str], families: Sequence[str]) -> Chart:
    """Return a panel per measure: how far it moves from its value under exact masks, over the masks' IoU."""
    columns = len(panels) if width >= WIDE else 1
    inner = width // columns - 72
    charts = []
    for name, title in panels.items():
        shown = "100 * datum.value" if name == "effect" else "datum.value"
        axis: Chart = {"domain": False, "ticks": False, "tickCount": 5, "labelExpr": f"format({shown}, '~g')"}
        y: Chart = {"type": "quantitative", "title": None, "axis": axis, "scale": {"zero": True, "nice": True}}
        marks = _marks(_x(frame["iou"]), y, families, "+.1%" if name == "effect" else "+.4f", 62)
        charts.append(panel(name, title, inner, [rule_at(0, "y"), *marks], 230))
    fit = {"legend": {"columns": len(families) if width >= WIDE else 2, "columnPadding": 24}}
    spacing = {"column": 46, "row": 30}
    return chart_of(frame, 6, columns=columns, spacing=spacing, concat=charts, config=fit)


def model_chart(
    frame: pd.DataFrame, truth: pd.DataFrame, width: int, *, models: Sequence[str], families: Sequence[str]
) -> Chart:
    """Return a panel per model: its background effect over the masks' IoU, and a dashed line at the true effect."""
    columns = min(4, len(models)) if width >= WIDE else 1
    inner = (width - 60) // columns - 24 if columns > 1 else width - 70
    axis: Chart = {"domain": False, "ticks": False, "tickCount": 5, "labelExpr": "format(100 * datum.value, '~g')"}
    y: Chart = {"type": "quantitative", "title": "points", "axis": axis, "scale": {"zero": True, "nice": True}}
    layers = _marks(_x(frame["iou"]), y, families, "+.1%", 40)
    if len(truth):
        frame = frame.merge(truth, on="model")
        true = {"y": y | {"field": "truth", "aggregate": "mean"}}
        layers.insert(0, layer("rule", true, color=MUTED, strokeDash=[3, 3]))
    spec = {"width": inner, "height": 150, "layer": layers}
    fit = {"legend": {"columns": len(families) if width >= WIDE else 2, "columnPadding": 24}}
    panels = {"facet": facet_of("model", inner), "columns": columns, "spacing": {"row": 18, "column": 18}}
    return chart_of(placed(frame, models), 6, **panels, spec=spec, config=fit)
