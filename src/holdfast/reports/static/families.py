"""Sections: what each family of scenarios costs, shape against texture, errors by attributes of the user's samples."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.numbers import alike, estimate, p_words, percent, points, span
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import charts
from holdfast.reports.page.evidence import Evidence, with_display_names
from holdfast.reports.page.parts import Heading, Notice, Section, Text
from holdfast.reports.page.sections import ReportSection, usual
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, plain, ranged, with_intervals
from holdfast.reports.page.words import condition_label, listing, plural
from holdfast.stats.effects.families import (
    EVERY,
    FOLD,
    FamilyDrops,
    attribute_drops,
    attribute_errors,
    family_drops,
    group_verdicts,
    shape_share,
)
from holdfast.stats.effects.folds import EACH, fold_accuracy


def families(evidence: Evidence) -> list[Section]:
    """Return the section, or none if fewer than two families of scenarios were run."""
    chosen = evidence.analysis
    known = chosen.scenario_families(evidence.counts, chosen.families) if chosen.scenario_families else {}
    if ORIGINAL not in evidence.conditions or len({known[name] for name in known if name in evidence.conditions}) < 2:
        return []
    lost = family_drops(evidence.counts, known, groups=evidence.analysis.model_groups, **evidence.settings)
    whose = " of XIMAGENET-12" if chosen.families == "ximagenet12" else ""
    section = Section("families", f"Families of scenarios{whose}")
    if lost.reason:
        section.parts = [Notice(lost.reason)]
        return [section]
    section.lead = [_sentence(evidence, lost)]
    kinds = list(dict.fromkeys(lost.models["family"]))
    frame = lost.models
    solid = frame.assign(solid=frame["p_holm"] < 0.05)
    title = "Points of accuracy lost under each family of scenarios, with 95 % intervals"
    note = "Filled marks remain significant after Holm's correction over models and families."
    figure = charts.model_figure(
        "family_drops", title, section.lead[0], solid, "drop", short=evidence.short, by="family", words=str, rows=kinds,
        zero=True, note=note, axis="points lost (to the right) or gained",
    )  # fmt: skip
    section.parts = [
        figure,
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
        *plain("integer", conditions="Scenarios", n="Images"),
    ]


def _sentence(evidence: Evidence, lost: FamilyDrops) -> str:
    single = lost.models[lost.models["family"] != EVERY]
    means = single.groupby("family", sort=False)["drop"].mean().sort_values(ascending=False)
    worst = single.sort_values("drop").iloc[-1]
    text = "A family's drop is the mean over its scenarios."
    if worst["drop"] <= 0 or alike(worst["drop"], 0):
        return f"{text} No family costs any model accuracy."
    if len(means) > 1 and alike(means.iloc[0], means.iloc[-1]):
        text += f" All {len(means)} families cost {points(means.iloc[0])} over the models."
    elif len(means) > 1:
        text += (
            f" {means.index[0].capitalize()} costs most ({points(means.iloc[0])} over the models), {means.index[-1]} "
            f"least ({points(means.iloc[-1])})."
        )
    largest = "The largest: " if len(single) > 1 and not alike(worst["drop"], single["drop"].min()) else ""
    return (
        f"{text} {largest}{evidence.name(worst['model'])} loses {points(worst['drop'])} "
        f"({span(worst['low'], worst['high'])}) under {worst['family']}."
    )


def _groups(lost: FamilyDrops) -> list[Heading | Text | Table]:
    if lost.groups.empty or (lost.contrasts.empty and lost.groups["models"].max() < 2):
        return []
    texts = []
    for row in lost.contrasts[lost.contrasts["family"] == EVERY].to_dict("records"):
        ends = {
            group: lost.groups[(lost.groups["group"] == group) & (lost.groups["family"] == EVERY)].iloc[0]
            for group in (row["first"], row["second"])
        }
        said = [f"{plural(end['models'], f'{group} model')} lose {points(end['drop'])}" for group, end in ends.items()]
        texts.append(
            f"On average {said[0]} and {said[1]}: a difference of {points(row['difference'])} "
            f"({span(row['low'], row['high'])} with other images, {p_words(row['p'])}"
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
        *plain("text", family="Family", group="Group"),
        Column("drop", "Lost", "points", "low", "high", hint="with other images"),
        *plain("points", models_low="Other models: from", models_high="to"),
        Column("models", "Models", "integer"),
    ]
    contrasts = [
        *plain("text", family="Family", first="First", second="Second"),
        Column("difference", "First − second", "points", "low", "high"),
        Column("p_holm", "p (Holm)", "p"),
        *plain("points", models_low="Other models: from", models_high="to"),
    ]
    parts: list[Heading | Text | Table] = [
        Heading("Groups of models"),
        Text(texts),
        Table("family_groups", "Accuracy lost per family and group of models", lost.groups, grouped),
    ]
    if len(lost.contrasts):
        parts.append(Table("family_contrasts", "Which group loses more", lost.contrasts, contrasts, folded=True))
    return parts


def groups(evidence: Evidence, thing: str = "image") -> list[Section]:
    """Return a section per attribute that was asked for; ``thing``: object if detectors were asked."""
    return [_attribute_section(evidence, name, f"{thing}s") for name in evidence.analysis.attributes]


def _attribute_section(evidence: Evidence, name: str, things: str) -> Section:
    wrong = "Objects not found" if things == "objects" else "Wrong answers"
    grouped = evidence.analysis.attributes[name]
    frame = attribute_errors(evidence.counts, grouped, outcome=evidence.outcome, average=evidence.average)
    key = "".join(letter if letter.isalnum() else "_" for letter in name)
    section = Section(f"groups_{key}", f"{wrong if things == 'objects' else 'Errors'} by {name}")
    known = frame[frame["n"] >= 5].dropna(subset=["gap"])
    if len(known) and (known["gap"].max() <= 0 or alike(known["gap"].max(), 0)):
        section.lead.append(f"In no group is the error larger than on other {things} of the same classes.")
    elif len(known):
        worst = known.sort_values("gap").iloc[-1]
        errs = "does not find" if things == "objects" else "errs on"
        section.lead.append(
            f"The widest gap: {evidence.name(worst['model'])} {errs} {percent(worst['error'])} of the {things} with "
            f"{name} {worst['value']}, {points(worst['gap'])} more than on the others of the same classes "
            f"({span(worst['low'], worst['high'])})."
        )
    section.lead.append(
        "Groups are what the samples' attribute says. Intervals hold for all groups of a model together, so the widest "
        "gap may be read like any other. A gap may come from the group or from what else its images share: look again "
        "with other images."
    )
    values = list(dict.fromkeys(frame.sort_values("error", ascending=False)["value"]))
    title = f"{wrong} by {name}, with 95 % intervals for all groups together"
    solid = frame.assign(solid=(frame["low"] > 0) | (frame["high"] < 0))
    note = "Filled marks differ from the other images of the same classes; hollow ones may be chance."
    figure = charts.model_figure(
        f"groups_{key}", title, section.lead[0], solid, "error", short=evidence.short, by="value", words=str,
        rows=values, domain=(0, 1), note=note, axis=wrong.lower(),
    )  # fmt: skip
    section.parts = [
        figure,
        Table(
            f"groups_{key}",
            f"{wrong} by {name}",
            frame,
            [
                Column("value", name),
                model_column(evidence.short),
                ranged("error", wrong),
                Column("rest", "Others", "percent", hint=f"{things} of the same classes without this value"),
                Column("gap", "Gap", "points", "low", "high"),
                *plain("integer", n=things.capitalize(), classes="Classes"),
            ],
        ),
    ]
    lost = attribute_drops(evidence.counts, grouped, **evidence.settings)
    lost = lost[lost["trained_on"].isin(["", ORIGINAL])]
    title = f"What conditions cost, by {name}; intervals hold for all groups of a condition together"
    title += "; each image counts the same" if things == "objects" else ""
    columns = [
        Column("value", name),
        CONDITION,
        model_column(evidence.short),
        Column("drop", "Drop", "points", "low", "high"),
        *plain("percent", original="Original", accuracy="Recall" if things == "objects" else "Accuracy"),
        Column("n", "Images", "integer"),
    ]
    section.parts += [Table(f"group_drops_{key}", title, lost, columns)] if len(lost) else []
    section.parts += _group_verdicts(evidence, name, key)
    if name == FOLD:
        _add_folds(evidence, section, grouped)
    return section


def _add_folds(evidence: Evidence, section: Section, folds: Mapping[str, str]) -> None:
    """Put accuracy per fold, its mean and its spread at the top of a section."""
    frame = fold_accuracy(evidence.counts, folds, outcome=evidence.outcome, average=evidence.average)
    frame = with_display_names(frame)
    if frame.empty:
        return
    each = [column for column in map(str, frame) if column.startswith(EACH.format(""))]
    columns = [
        CONDITION, model_column(evidence.short),
        Column("mean", "Mean over folds", "percent", "low", "high", hint="with the 95 % t interval over folds"),
        Column("sd", "SD", "points", hint="standard deviation over folds, with n − 1"),
        *plain("percent", least="Least", most="Most"), Column("folds", "Folds", "integer"),
        *(Column(column, f"Fold {column.removeprefix(EACH.format(''))}", "percent") for column in each),
    ]  # fmt: skip
    original = frame[frame["condition"] == ORIGINAL]
    said = [
        f"{evidence.name(row['model'])} {percent(row['mean'])} ± {points(row['sd'])} over {row['folds']} folds"
        for row in original.to_dict("records")[:6]
    ]
    if said:
        section.lead.insert(0, f"Accuracy on originals, mean ± standard deviation: {'; '.join(said)}.")
    section.parts.insert(0, Table("folds", "Accuracy by fold, its mean and its spread", frame, columns))


def _group_verdicts(evidence: Evidence, name: str, key: str) -> list[Table]:
    """Return the verdict on each model in each group; nothing if no group has the conditions that it takes."""
    frame = group_verdicts(evidence.counts, evidence.analysis.attributes[name], **evidence.settings)
    if frame["background_effect"].isna().all():
        return []
    columns = [
        Column("value", name), model_column(evidence.short), Column("headline", "Verdict"),
        *with_intervals("points", background_effect="Background effect", object_effect="Object effect"),
        *plain("integer", n="Images"),
    ]  # fmt: skip
    note = "Each verdict is that of its group alone, at the 95 % level: of many groups one may stand out by chance."
    title = f"Verdicts by {name}, the largest background effect first"
    return [Table(f"group_verdicts_{key}", title, frame, columns, note)]


def shape_and_texture(evidence: Evidence) -> list[Section]:
    """Return the section on shape against texture, or none if no object had the texture of another class."""
    frame = with_display_names(shape_share(evidence.counts))
    if frame.empty:
        return []
    section = Section("shape", "Shape against texture")
    known = frame.dropna(subset=["share"]).sort_values("share", kind="stable")
    if len(known):
        ends = [known.iloc[place] for place in ((-1, 0) if len(known) > 1 else (0,))]
        said = [
            f"{evidence.name(row['model'])} names the shape in {estimate(row['share'], row['low'], row['high'])} of "
            f"{plural(row['shape'] + row['texture'], 'decision')} under {condition_label(row['condition'])}"
            for row in ends
        ]
        section.lead.append(f"Of the answers that name the image's class or the texture's: {'; '.join(said)}.")
    section.lead.append(
        "The texture is that of an object of another class, as in the cue conflicts of Geirhos et al. (2019), where "
        "people named the shape in 96 % and ResNet-50 in 22 %. Images count whose original the model names rightly. "
        "Answers with neither class are left out of the share: if they are many, the image was hard to read."
    )
    columns = [
        CONDITION, model_column(evidence.short), Column("share", "Shape share", "percent", "low", "high"),
        *plain("integer", shape="Shape", texture="Texture", neither="Neither", n="Images"),
    ]  # fmt: skip
    shown = frame.dropna(subset=["share"]).assign(solid=lambda each: (each["low"] > 0.5) | (each["high"] < 0.5))
    figure = charts.model_figure(
        "shape_share", "Share of answers by shape, with 95 % intervals", section.lead[0], shown, "share",
        short=evidence.short, rows=list(dict.fromkeys(map(condition_label, frame["condition"]))), domain=(0, 1),
        axis="answers by shape", note="Filled marks: the interval does not include one half.",
    )  # fmt: skip
    table = Table("shape_share", "Answers by shape and by texture", frame, columns)
    section.parts = [figure, table] if len(shown) else [table]
    return [section]


FAMILIES = ReportSection(lambda report: families(report.classified), usual)
GROUPS = ReportSection(lambda report: groups(report.classified), usual)
SHAPE = ReportSection(lambda report: shape_and_texture(report.classified), usual)
