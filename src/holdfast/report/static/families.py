"""Section: what each family of scenarios costs, per model and for groups of models."""

from __future__ import annotations

from holdfast.core.types import ORIGINAL
from holdfast.report.page import charts
from holdfast.report.page.evidence import Evidence
from holdfast.report.page.parts import Heading, Notice, Section, Text
from holdfast.report.page.tables import Column, Table, model_column
from holdfast.report.page.words import listing, p_value, plural, points, span
from holdfast.stats.effects.families import EVERY, FamilyDrops, family_drops


def families(evidence: Evidence) -> list[Section]:
    """Return the section, or none where fewer than two families of scenarios were run."""
    known = evidence.analysis.scenario_families(evidence.counts) if evidence.analysis.scenario_families else {}
    if ORIGINAL not in evidence.conditions or len({known[name] for name in known if name in evidence.conditions}) < 2:
        return []
    lost = family_drops(evidence.counts, known, groups=evidence.analysis.model_groups, **evidence.settings)
    section = Section("families", "Families of scenarios")
    if lost.reason:
        section.parts = [Notice(lost.reason)]
        return [section]
    section.lead = [_sentence(evidence, lost)]
    kinds = list(dict.fromkeys(lost.models["family"]))
    frame = lost.models
    section.parts = [
        charts.model_figure(
            "family_drops",
            "Points of accuracy lost under each family of scenarios, with 95 % intervals",
            section.lead[0],
            frame.assign(solid=frame["p_holm"] < 0.05),
            "drop",
            short=evidence.short,
            by="family",
            words=str,
            rows=kinds,
            axis="points lost (to the right) or gained",
            zero=True,
            note="Filled marks stand after Holm's correction over models and families.",
        ),
        Table("family_drops", "Accuracy lost per family and model", frame, _columns(evidence), folded=True),
        *_groups(lost),
    ]
    return [section]


def _columns(evidence: Evidence) -> list[Column]:
    return [
        Column("family", "Family"),
        model_column(evidence.short),
        Column("group", "Group"),
        Column("drop", "Lost", "points", "low", "high"),
        Column("p_holm", "p (Holm)", "p"),
        Column("conditions", "Scenarios", "integer"),
        Column("n", "Photos", "integer"),
    ]


def _sentence(evidence: Evidence, lost: FamilyDrops) -> str:
    single = lost.models[lost.models["family"] != EVERY]
    means = single.groupby("family", sort=False)["drop"].mean().sort_values(ascending=False)
    worst = single.sort_values("drop").iloc[-1]
    return (
        f"A family's drop is the mean over its scenarios. {means.index[0].capitalize()} costs most "
        f"({points(means.iloc[0])} over the models), {means.index[-1]} least ({points(means.iloc[-1])}). The largest: "
        f"{evidence.name(worst['model'])} loses {points(worst['drop'])} ({span(worst['low'], worst['high'])}) under "
        f"{worst['family']}."
    )


def _groups(lost: FamilyDrops) -> list[Heading | Text | Table]:
    if lost.groups.empty:
        return []
    texts = []
    for row in lost.contrasts[lost.contrasts["family"] == EVERY].to_dict("records"):
        ends = {
            group: lost.groups[(lost.groups["group"] == group) & (lost.groups["family"] == EVERY)].iloc[0]
            for group in (row["first"], row["second"])
        }
        said = [f"{plural(end['models'], f'{group} model')} lose {points(end['drop'])}" for group, end in ends.items()]
        p = p_value(row["p"])
        texts.append(
            f"On average {said[0]} and {said[1]}: a difference of {points(row['difference'])} "
            f"({span(row['low'], row['high'])} with other photos, p {p if p.startswith('<') else '= ' + p}"
            + (
                f"; {span(row['models_low'], row['models_high'])} with other models of the groups, too)."
                if row["models_low"] == row["models_low"]
                else "; one model stands for a group, so other models may say otherwise)."
            )
        )
    if lost.unknown:
        texts.append(
            f"{plural(len(lost.unknown), 'model')} in no group: {listing(lost.unknown, 6)}. Groups come from the "
            "names; --model-groups sets them."
        )
    grouped = [
        Column("family", "Family"),
        Column("group", "Group"),
        Column("drop", "Lost", "points", "low", "high", hint="with other photos"),
        Column("models_low", "Other models: from", "points"),
        Column("models_high", "to", "points"),
        Column("models", "Models", "integer"),
    ]
    contrasts = [
        Column("family", "Family"),
        Column("first", "First"),
        Column("second", "Second"),
        Column("difference", "First − second", "points", "low", "high"),
        Column("p_holm", "p (Holm)", "p"),
        Column("models_low", "Other models: from", "points"),
        Column("models_high", "to", "points"),
    ]
    parts: list[Heading | Text | Table] = [
        Heading("Groups of models"),
        Text(texts or ["There is one group only, so nothing to compare it with."]),
        Table("family_groups", "Accuracy lost per family and group of models", lost.groups, grouped),
    ]
    if len(lost.contrasts):
        parts.append(Table("family_contrasts", "Which group loses more", lost.contrasts, contrasts, folded=True))
    return parts
