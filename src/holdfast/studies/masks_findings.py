"""What the masks study found, in words, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.conditions import condition_words
from holdfast.core.types import Image
from holdfast.report.page.charts import dots
from holdfast.report.page.tables import Column
from holdfast.report.page.words import listing, number, points, short_names, span
from holdfast.report.study import Finding
from holdfast.studies import masks_chart
from holdfast.studies.mask_kinds import EXACT
from holdfast.studies.masks_facts import SCORES, Facts

if TYPE_CHECKING:
    import pandas as pd

UNDECIDED = "undecided"


def findings(facts: Facts, pictures: Mapping[str, Image]) -> list[Finding]:
    """In the order of the page."""
    return [
        _quality(facts, pictures),
        _moved(facts),
        _by_model(facts),
        _flips(facts),
        _verdicts(facts),
        _ranks(facts),
        _costs(facts),
    ]


def _quality(facts: Facts, pictures: Mapping[str, Image]) -> Finding:
    frame = facts.masks
    best, worst = _at(frame, 1), _at(frame, -1)
    bad = frame[frame["unusable"] > 0]
    sentences = [
        f"Mean IoU with the exact masks goes from {number(best['iou'])} ({best['kind']}) to {number(worst['iou'])} "
        f"({worst['kind']}). Eroded masks lose parts of the object, dilated ones and boxes take its surroundings along."
    ]
    if len(bad):
        told = listing([f"{row['kind']} {row['unusable']}" for row in bad.to_dict("records")], 12)
        sentences.append(
            f"Masks that are empty or cover the whole picture cannot be used: {told} of {frame['n'].iloc[0]}."
            " Such a picture is left out where that kind of mask is compared."
        )
    columns = [
        Column("kind", "Masks"),
        Column("iou", "Mean IoU", "number", "iou_low", "iou_high", digits=3),
        Column("median", "Median", "number", digits=3),
        Column("lost", "Object left out", "percent"),
        Column("added", "Background taken in", "percent", hint="as a share of the object's area"),
        Column("unusable", "Unusable", "integer", hint="empty, or the whole picture"),
    ]
    ordered = {kind: pictures[kind] for kind in frame["kind"] if kind in pictures}
    return Finding("How good the masks are", sentences, frame, columns, images=ordered,
                   caption="Kinds of masks, by their overlap with the exact ones")  # fmt: skip


def _moved(facts: Facts) -> Finding:
    import pandas as pd

    frame = facts.means
    others = frame[frame["kind"] != EXACT]
    off = _clear(others)
    worst = _at(others, others["change"].abs().argmax())
    effect = frame.iloc[0]["effect"]
    sentences = [
        f"With exact masks the background effect is {points(effect)}, mean over {len(facts.models)} models. It moves "
        f"most with {worst['kind']} masks (IoU {number(worst['iou'])}): by {_plus(worst['change'])} points "
        f"({span(worst['change_low'], worst['change_high'])}). For {len(off)} of {len(others)} kinds the interval of "
        f"the change leaves out zero{_from(off)}."
    ]
    if facts.truths:
        small, large = _at(frame, frame["bias"].argmin()), _at(frame, frame["bias"].argmax())
        own = _at(frame, 0)
        sentences.append(
            f"The true effect is known here. Against it exact masks are off by {_plus(own['bias'])} points "
            f"({span(own['bias_low'], own['bias_high'])}); the others lie between {_plus(small['bias'])} "
            f"({small['kind']}) and {_plus(large['bias'])} ({large['kind']})."
        )
    if len(others) > 3:
        sentences.append(_with_iou(others, facts.masks))
    wanted = {"effect": "change", "score": "score_change", "cross_background": "cross_background_change"}
    drawn = pd.concat(
        others[["kind", "family", "iou", name, f"{name}_low", f"{name}_high"]]
        .set_axis(["kind", "family", "iou", "value", "low", "high"], axis=1)
        .assign(measure=measure)
        for measure, name in wanted.items()
    )  # fmt: skip
    panels = {"effect": "Change of background effect, points"}
    panels |= {name: f"Change of {title[0].lower()}{title[1:]}" for name, title in SCORES.items()}
    families = [name for name in facts.families if name != EXACT]
    columns = [
        Column("kind", "Masks"),
        Column("iou", "Mean IoU", "number", digits=3),
        Column("effect", "Background effect", "points", "effect_low", "effect_high"),
        Column("change", "Against exact masks", "points", "change_low", "change_high"),
        *([Column("bias", "Against the truth", "points", "bias_low", "bias_high")] if facts.truths else []),
        *(
            column
            for name, title in SCORES.items()
            for column in (
                Column(name, title, "number", digits=4),
                Column(f"{name}_change", "Against exact masks", "number", f"{name}_change_low", f"{name}_change_high",
                       digits=4),
            )
        ),
    ]  # fmt: skip
    return Finding(
        "Scores over IoU",
        [
            *sentences,
            "The robustness score is over the static conditions that were run, one less their cross part; the other "
            "cross part is that of the conditions that leave the object as it is, which grows where a score falls.",
        ],
        frame,
        columns,
        chart=lambda width: masks_chart.changes(drawn, width, panels=panels, families=families),
        caption="What each kind of mask changes, mean over models",
    )


def _clear(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows in which the interval of the change leaves out zero."""
    return frame[(frame["change_low"] > 0) | (frame["change_high"] < 0)]


def _at(frame: pd.DataFrame, place: int | np.intp) -> dict[str, Any]:
    """A row."""
    return {str(key): value for key, value in frame.iloc[int(place)].items()}


def _from(off: pd.DataFrame) -> str:
    if off.empty:
        return ""
    best = _at(off, off["iou"].argmax())
    return f"; the best of those masks are {best['kind']} (IoU {number(best['iou'])})"


def _with_iou(others: pd.DataFrame, masks: pd.DataFrame) -> str:
    """Whether IoU tells the change, or which way the masks err."""
    from scipy.stats import spearmanr

    frame = others.merge(masks[["kind", "lost", "added"]], on="kind")
    if frame["change"].abs().nunique() < 2 or frame["iou"].nunique() < 2:
        return "The change does not differ between kinds."
    found = float(spearmanr(frame["iou"], frame["change"].abs()).statistic)
    sentence = f"Spearman's ρ of IoU with the size of the change is {number(found)} over {len(frame)} kinds of masks."
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


def _by_model(facts: Facts) -> Finding:
    import pandas as pd

    frame = facts.effects
    short = short_names(facts.models)
    drawn = frame.assign(model=frame["model"].map(short)).rename(
        columns={"effect": "value", "effect_low": "low", "effect_high": "high"}
    )[["model", "kind", "family", "iou", "value", "low", "high"]]
    true = [{"model": short[model], "truth": one.value} for model, one in facts.truths.items()]
    others = frame[frame["kind"] != EXACT]
    worst = _at(others, others["change"].abs().argmax())
    off = _clear(others)
    sentences = [
        f"In {len(off)} of {len(others)} pairs of model and kind of mask the change against exact masks has an "
        f"interval without zero; the largest is {_plus(worst['change'])} points "
        f"({span(worst['change_low'], worst['change_high'])}) for {worst['model']} with {worst['kind']} masks."
        + (" The dashed line is the true effect." if facts.truths else "")
    ]
    columns = [
        Column("kind", "Masks"),
        Column("model", "Model", show=short.__getitem__),
        Column("iou", "Mean IoU", "number", digits=3),
        Column("effect", "Background effect", "points", "effect_low", "effect_high"),
        Column("change", "Against exact masks", "points", "change_low", "change_high"),
        *([Column("bias", "Against the truth", "points", "bias_low", "bias_high")] if facts.truths else []),
        Column("verdict", "Verdict"),
        *(Column(name, title, "number", digits=4) for name, title in SCORES.items()),
        Column("n", "Pictures", "integer"),
    ]
    return Finding(
        "Background effect of every model",
        sentences,
        frame,
        columns,
        chart=lambda width: masks_chart.by_model(
            drawn, pd.DataFrame(true), width, models=list(short.values()), families=facts.families
        ),
        caption="Background effect (same class's background less another class's) over the masks' IoU",
    )


def _flips(facts: Facts) -> Finding:
    import pandas as pd

    rows = []
    short = short_names(facts.models)
    decided = _contradictions(facts)
    contradicted = decided.groupby("model").size()
    for model in facts.models:
        own = facts.effects[facts.effects["model"] == model]
        before = own.loc[own["kind"] == EXACT, "verdict"].iloc[0]
        flipped = own[own["verdict"] != before].sort_values("iou", ascending=False, kind="stable")
        first = _at(flipped, 0) if len(flipped) else None
        rows.append(
            {"model": model, "verdict": before, "flips": len(flipped), "contradicts": contradicted.get(model, 0)}
            | {"iou": np.nan if first is None else float(first["iou"]), "kind": "" if first is None else first["kind"]}
            | {"becomes": "" if first is None else first["verdict"]}
        )
    frame = pd.DataFrame(rows)
    pairs = len(facts.models) * len(facts.kinds)
    total = int(frame["flips"].sum())
    if total:
        top = _at(frame, frame["iou"].argmax())
        sentence = (
            f"Of {pairs} verdicts {total} are not those of the exact masks, {len(decided)} of them another decided "
            f"verdict and the rest to or from undecided. The best masks that change one have IoU {number(top['iou'])} "
            f"({top['kind']}: {top['model']} from {top['verdict']} to {top['becomes']}); above that, none changes."
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
        Column("flips", "Kinds of masks that change it", "integer"),
        Column("contradicts", "… to another decided one", "integer"),
        Column("iou", "From IoU", "number", digits=3, hint="the best masks that change it"),
        Column("kind", "With"),
        Column("becomes", "It becomes"),
    ]
    return Finding("From which IoU on a verdict flips", [sentence], frame, columns)


def _contradictions(facts: Facts) -> pd.DataFrame:
    """The verdicts that are decided with exact masks and decided otherwise with others; ``before`` is the first."""
    exact = facts.effects[facts.effects["kind"] == EXACT]
    told = dict(zip(exact["model"], exact["verdict"], strict=True))
    frame = facts.effects.assign(before=facts.effects["model"].map(told))
    both = (frame["verdict"] != UNDECIDED) & (frame["before"] != UNDECIDED)
    return frame[both & (frame["verdict"] != frame["before"])]


def _verdicts(facts: Facts) -> Finding:
    short = short_names(facts.models)
    wide = facts.effects.pivot(index="kind", columns="model", values="verdict")
    frame = facts.masks[["kind", "iou"]].merge(wide.reset_index(), on="kind").rename(columns=short)
    columns = [Column("kind", "Masks"), Column("iou", "Mean IoU", "number", digits=3)]
    columns += [Column(name, name) for name in short.values()]
    sentence = "A verdict is decided by a margin of 5 points; exact masks stand first."
    return Finding("Verdicts", [sentence], frame, columns, caption="What each model holds on to, by kind of mask")


def _ranks(facts: Facts) -> Finding:
    import pandas as pd

    titles = {"effect": "By background effect", "cross_background": "By cross part, background changed"}
    titles |= {"truth": "Effect against the true one"} if facts.truths else {}
    rows = []
    for kind in facts.masks.to_dict("records"):
        taus = facts.orders[kind["kind"]].tau
        row = {"kind": kind["kind"], "iou": kind["iou"]}
        for name in titles:
            row |= {name: taus[name]["tau"], f"{name}_low": taus[name]["low"], f"{name}_high": taus[name]["high"]}
        rows.append(row)
    frame = pd.DataFrame(rows)
    columns = [Column("kind", "Masks"), Column("iou", "Mean IoU", "number", digits=3)]
    columns += [
        Column(name, title, "number", f"{name}_low", f"{name}_high", digits=2) for name, title in titles.items()
    ]
    others = frame[frame["kind"] != EXACT]
    known = others.dropna(subset=["effect"])
    if len(facts.models) < 3 or known.empty:
        sentence = f"With {len(facts.models)} models there is hardly an order that could change."
    else:
        least = _at(known, known["effect"].argmin())
        kept = int((known["effect"] > 0.999).sum())
        sentence = (
            f"{kept} of {len(known)} kinds of masks order the {len(facts.models)} models by background effect exactly "
            f"as exact masks do; the least like it is {least['kind']} (Kendall's τ-b {number(least['effect'])}, "
            f"{span(least['effect_low'], least['effect_high'], 2, 1)})."
        )
        if facts.truths:
            own = frame.iloc[0]["truth"]
            sentence += (
                f" Against the true order τ is {number(own)} with exact masks and {number(others['truth'].min())} to "
                f"{number(others['truth'].max())} with the others."
            )
    return Finding("Do the models keep their order", [sentence], frame, columns,
                   caption="Kendall's τ-b between the models' order with these masks and with exact ones")  # fmt: skip


def _costs(facts: Facts) -> Finding:
    frame = facts.conditions
    others = frame[frame["kind"] != EXACT]
    named = list(dict.fromkeys(frame["condition"]))
    drawn = others.assign(model=others["kind"], row=others["condition"].map(condition_words), solid=True).rename(
        columns={"change": "estimate", "change_low": "low", "change_high": "high"}
    )
    size = others.assign(size=others["change"].abs()).groupby("condition")["size"].mean()
    most, least = str(size.idxmax()), str(size.idxmin())
    sentences = [
        f"The masks matter most for {condition_words(most)} ({number(100 * size[most], 1)} points on average over the "
        f"kinds) and least for {condition_words(least)} ({number(100 * size[least], 1)}). The pictures as they are do "
        "not depend on masks, so a gain in accuracy is a cost understated by as much."
    ]
    columns = [
        Column("kind", "Masks"),
        Column("condition", "Condition", show=condition_words),
        Column("cost", "Cost against the original", "points", "cost_low", "cost_high"),
        Column("change", "Accuracy against exact masks", "points", "change_low", "change_high"),
    ]
    return Finding(
        "What each condition costs",
        sentences,
        frame,
        columns,
        chart=lambda width: dots(
            drawn, width, models=facts.kinds, rows=[condition_words(name) for name in named],
            title="accuracy less that with exact masks, points", zero=True,
        ),
        caption="Accuracy with these masks less that with exact ones, mean over models",
    )  # fmt: skip
