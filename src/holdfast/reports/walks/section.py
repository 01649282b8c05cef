"""Section: latent walks, and how much accuracy is left on images that the oracle still accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import alike, estimate, percent
from holdfast.reports.page import charts
from holdfast.reports.page.charts import FIT, INTERVAL, chart_of, dot_layer, layer, row_axis, rule_at, tooltip
from holdfast.reports.page.figures import COLOURS, Chart, Figure
from holdfast.reports.page.parts import (
    Front,
    Heading,
    Listing,
    ModelVerdict,
    Notice,
    Part,
    Section,
    Text,
    answer,
    first_figure,
)
from holdfast.reports.page.sections import ReportEvidence, ReportSection, of_task
from holdfast.reports.page.tables import Column, Table, model_column
from holdfast.reports.page.words import listing, page_facts, plural
from holdfast.reports.walks.evidence import (
    COUNTS,
    FAMILY,
    SPACES,
    VARIANTS,
    ReportWalks,
    both_spaces,
    first_columns,
    share,
    walks_of,
    wide,
)
from holdfast.reports.walks.filmstrips import shown_walk
from holdfast.reports.walks.groups import by_attributes
from holdfast.reports.walks.settings import how, setting_sentences, settings_compared, time
from holdfast.reports.walks.steps import step_parts
from holdfast.stats.walks.fmr import NO_IMAGES, NONE_RIGHT, NONE_VALIDATED, fmr_ranking

TITLE = "Accuracy after latent walks"
QUESTION = "Do predictions survive changes that keep the object?"
MEANING = (
    "Each image is pushed through a generator's latent space against the model under test, as far as an oracle still "
    "sees the class. FMR = PA / SA is the share of the accuracy on originals (SA) that is left on the images which the "
    "oracle accepted (PA); VR is the share of images it accepted."
)
STAGES = (
    ("standard_accuracy", "original"),
    ("reconstruction", "reconstruction"),
    ("random_walk", "random walk"),
    ("perturbed_accuracy", "perturbed"),
)


def dynamic_section(
    walks: ReportWalks, *, resamples: int, seed: int, attributes: Mapping[str, Mapping[str, str]] | None = None
) -> Section:
    """Return SA, PA, VR and FMR with all variants, baselines, ranks, and how the walks were made."""
    section = Section("dynamic", TITLE)
    frame = wide(walks, walks.family[walks.family["label"] == ""])
    section.lead = [MEANING, *setting_sentences(walks), *_findings(walks, frame)]
    section.parts = [
        *_missing(walks, frame),
        *_warnings(walks),
        *_fmr_parts(walks, frame),
        *_baselines(walks, frame),
        *_ranks(walks, resamples, seed),
        *settings_compared(walks, frame),
        *_by_class(walks),
        *by_attributes(walks, attributes or {}),
        *_spaces(walks),
        *time(walks),
        *step_parts(walks),
        *how(walks),
    ]
    return section


def _findings(walks: ReportWalks, frame: pd.DataFrame) -> list[str]:
    known = frame[frame["reason"] == ""].sort_values("fmr", ascending=False, kind="stable")
    if known.empty:
        return []
    differ = not alike(known["fmr"].iloc[0], known["fmr"].iloc[-1])
    shown = known if len(known) <= 2 else known.iloc[[0, -1]]
    findings = [
        f"{walks.row(row['model'], row['walk'])} keeps {estimate(row['fmr'], row['fmr_from'], row['fmr_to'])} of its "
        f"accuracy: {percent(row['standard_accuracy'])} of {row['n']:,} originals, "
        f"{percent(row['perturbed_accuracy'])} of the {row['validated']:,} accepted images"
        for row in shown.to_dict("records")
    ]
    kinds = "walks" if walks.several else "models"
    start = f"Of {len(known)} {kinds}, the most and the least: " if differ else f"Two of {len(known)} equal {kinds}: "
    start = "" if len(known) <= 2 else start
    return [
        f"{start}{'; '.join(findings)}. Rejected images leave PA, so a strict oracle moves FMR: read it together with "
        "VR and the bounds."
    ]


def _missing(walks: ReportWalks, frame: pd.DataFrame) -> list[Part]:
    texts = {
        NONE_VALIDATED: "the oracle accepted none of its {n} images (VR is 0), so there is no PA to divide",
        NONE_RIGHT: "it answered none of {n} originals rightly (SA is 0), so there is nothing that could be kept",
        NO_IMAGES: "there are no images",
    }
    parts: list[Part] = []
    for row in frame[frame["reason"] != ""].to_dict("records"):
        why = texts.get(row["reason"], str(row["reason"])).format(n=f"{row['n']:,}")
        parts.append(Notice(f"The FMR of {walks.row(row['model'], row['walk'])}: {why}."))
    return parts


def _fmr_parts(walks: ReportWalks, frame: pd.DataFrame) -> list[Part]:
    rows = [walks.row(model, walk) for model, walk in walks.order]
    tidy = frame.assign(
        row=[walks.row(row["model"], row["walk"]) for row in frame.to_dict("records")],
        estimate=frame["fmr"],
        low=frame["fmr_from"],
        high=frame["fmr_to"].replace(float("inf"), float("nan")),
        bound_low=frame["fmr_low"],
        bound_high=frame["fmr_high"],
    )[["row", "estimate", "low", "high", "bound_low", "bound_high"]]
    finding = "; ".join(f"{row['row']} {percent(row['estimate'])}" for row in tidy.head(8).to_dict("records"))
    figure = Figure(
        "fmr",
        "FMR with its 95 % interval, and how far rejected images could move it",
        f"FMR: {finding}.",
        lambda width: _fmr_chart(tidy, width, rows=rows),
        "The pale band runs from FMR_low (every rejected image wrong) to FMR_high (every one right); the dashed line "
        "is an accuracy fully kept.",
    )
    first = first_columns(walks)
    main = Table("fmr", "Accuracies, validated share and FMR", frame, [*first, *COUNTS, *FAMILY])
    note = (
        "FMR_algorithm1 is the published listing read literally; it raises FMR. FMR_matched compares the accepted "
        "images with their own originals."
    )
    variants = Table("fmr_variants", "The variants of FMR", frame, [*first, FAMILY[3], *VARIANTS], note)
    return [figure, main, variants]


def _fmr_chart(frame: pd.DataFrame, width: int, *, rows: Sequence[str]) -> Chart:
    """Return FMR with its interval, on the band in which rejected images could move it."""
    y, _ = row_axis(rows, width)
    axis = {"title": "FMR = PA / SA", "format": "%", "domain": False, "ticks": False, "tickCount": 5}
    x = {"type": "quantitative", "scale": {"domainMin": 0, "nice": True}, "axis": axis}
    bounds = {"bound_low": "bounds from", "bound_high": "to "}
    tip = tooltip({"row": "model"}, INTERVAL | {"estimate": "FMR"} | bounds)
    band = {"y": y, "x": x | {"field": "bound_low"}, "x2": {"field": "bound_high"}, "tooltip": tip}
    ends = {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}}
    layers = [
        rule_at(1),
        layer("bar", band, height=13, color="#c3d3e0"),
        layer("rule", ends, strokeWidth=1.7, color=COLOURS[0]),
        dot_layer({"y": y, "x": x | {"field": "estimate"}, "tooltip": tip}, 64, color=COLOURS[0]),
    ]
    return chart_of(frame, width=width, height=26 * len(rows), autosize=FIT, layer=layers)


def _baselines(walks: ReportWalks, frame: pd.DataFrame) -> list[Part]:
    stages = [(key, title) for key, title in STAGES if key in frame]
    rows = [walks.row(model, walk) for model, walk in walks.order]
    tidy = pd.DataFrame(
        [
            (walks.row(row["model"], row["walk"]), title, row[key], row[f"{key}_from"], row[f"{key}_to"])
            for row in frame.to_dict("records")
            for key, title in stages
        ],
        columns=["model", "row", "estimate", "low", "high"],
    )
    known = frame.dropna(subset=[key for key, _ in stages])  # a mean of other walks for each stage compares nothing
    means = ", ".join(f"{title} {percent(float(known[key].mean()))}" for key, title in stages)
    start = f"Mean accuracy over {plural(len(known), 'walk' if walks.several else 'model')}"
    start = "Accuracy" if len(frame) == 1 else start if len(known) == len(frame) else f"{start} with all of these"
    finding = f"{start}: {means}." if len(known) else "No walk has all of these accuracies."
    what = "A loss that the reconstruction or a random walk already brings is the generator's, not the model's."
    title = "Accuracy on the way: original, plain reconstruction, random walk, walk against the model"
    note = (
        "Originals and reconstructions count all images; walks, random ones too, count if the oracle accepted "
        "them. A random walk has as many steps as the walk, or fewer if the oracle rejects one."
    )
    look: dict[str, Any] = {"models": rows, "axis": "accuracy", "domain": (0.0, 1.0), "note": note}
    figure = charts.dot_figure("dynamic_stages", title, finding, tidy, **look)
    parts: list[Part] = [Heading("Baselines"), Text([f"{finding} {what}"]), figure]
    columns = [*first_columns(walks), FAMILY[0]]
    for key, title in (("reconstruction", "Reconstruction"), ("random_walk", "Random walk")):
        if key in frame:
            columns += [share(key, title), share(f"{key}_ratio", "over SA")]
        else:
            why = "it was not run, or no walk was accepted whose length it could have"
            parts.append(Notice(f"The baseline “{title.lower()}”: {why}."))
    caption = "Accuracy after encoding and decoding without a step, and after a random walk"
    if len(columns) > 2:
        parts.append(Table("fmr_baselines", caption, frame, [*columns, FAMILY[2]]))
    return parts


def _ranks(walks: ReportWalks, resamples: int, seed: int) -> list[Part]:
    if len(walks.models) < 2:
        return []
    parts: list[Part] = [Heading("Which models can be distinguished")]
    for walk in range(1, len(walks.settings) + 1):
        ranking = fmr_ranking(walks.images[walks.images["walk"] == walk], resamples=resamples, seed=seed)
        where = f"Walk {walk}: " if walks.several else ""
        if ranking.reason:
            parts.append(Notice(f"Ranks. {where}{ranking.reason}"))
            continue
        first = ranking.table[ranking.table["rank_low"] == 1]
        names = listing([walks.short[name] for name in first["model"]], 6)
        images = plural(int(ranking.table["n"].iloc[0]), "image")
        text = (
            f"{names} is first, clearly ahead of the other{'s' if len(ranking.table) > 2 else ''} on {images}."
            if len(first) == 1
            else f"{names} share the first rank: {images} are too few to separate them."
        )
        columns = [
            model_column(walks.short),
            Column("rank", "Rank"),
            Column("fmr", "FMR", "percent", "low", "high"),
            Column("n", "Images", "integer"),
        ]
        caption = f"{where}Ranks by FMR; models that cannot be distinguished share one"
        name = "fmr_ranks" if not walks.several else f"fmr_ranks_{walk}"
        note = "Paired on the image: max-t over all pairs in resamples of images, on the images that every model has."
        parts += [Text([where + text]), Table(name, caption, ranking.table, columns, note, folded=True)]
    return parts


def _by_class(walks: ReportWalks) -> list[Part]:
    frame = wide(walks, walks.family[walks.family["label"] != ""])
    known = frame[frame["reason"] == ""].sort_values("fmr", kind="stable")
    sentence = "No class has an FMR."
    if len(known):
        low, high = known.iloc[0], known.iloc[-1]
        sentence = f"Every class has an FMR of {percent(low['fmr'])}."
    if len(known) and not alike(low["fmr"], high["fmr"]):
        sentence = (
            f"FMR is lowest for {low['label']} ({walks.row(low['model'], low['walk'])}: {percent(low['fmr'])} with "
            f"{low['validated']:,} of {plural(int(low['n']), 'image')} accepted) and highest for {high['label']} "
            f"({walks.row(high['model'], high['walk'])}: {percent(high['fmr'])}, {high['validated']:,} of "
            f"{high['n']:,})."
        )
    columns = [*first_columns(walks, label=True), *COUNTS, *FAMILY, *VARIANTS]
    extra = [share(key, title) for key, title in STAGES[1:3] if key in frame]
    table = Table("fmr_by_class", "FMR by class", frame, [*columns, *extra], folded=True)
    return [Heading("By class"), Text([sentence]), table]


def _warnings(walks: ReportWalks) -> list[Part]:
    """Return warnings about related models, oracles and generators, and about label spaces that differ."""
    said: list[str] = []
    for run in walks.runs:
        given = run.spec().get("kinship")
        said += [str(text) for text in given] if isinstance(given, list) else []
    for number_, setting in enumerate(walks.settings, 1):
        spaces = _space_names(setting)
        if len(set(spaces)) > 1:
            name = f"Walk {number_}: the" if walks.several else "The"
            said.append(f"{name} label spaces of loss, oracle and accuracy differ ({', '.join(spaces)}).")
    unique = list(dict.fromkeys(said))
    return [Listing(f"What to bear in mind ({len(unique)})", unique, open=len(unique) <= 6)] if unique else []


def _space_names(setting: dict[str, Any]) -> tuple[str, str, str]:
    """Return the label spaces of the loss, the oracle and the reported accuracy."""
    own = str(setting.get("space", ""))
    return str(setting.get("loss_space", own)), str(setting.get("oracle_space", own)), own


def _spaces(walks: ReportWalks) -> list[Part]:
    """Return the same walks counted in both label spaces, if that makes a difference."""
    both = both_spaces(walks)
    pooled = both[both["label"] == ""]
    frames = [wide(walks, pooled[pooled["counted"] == space]).assign(counted=SPACES[space]) for space in SPACES]
    own = sorted({SPACES.get(str(setting.get("space")), "a space that was not stated") for setting in walks.settings})
    stated = f"Right and wrong on this page's walks are counted over {listing(own)}, as the walks were made."
    lines = []
    for number_, setting in enumerate(walks.settings, 1):
        loss, oracle, right = (SPACES.get(name, name or "not stated") for name in _space_names(setting))
        start = f"Walk {number_}: the" if walks.several else "The"
        lines.append(f"{start} loss competes over {loss}, the oracle over {oracle}, right answers over {right}.")
    parts: list[Part] = [Heading("Label spaces"), Text([stated, *lines])]
    same = frames[0][["fmr", "standard_accuracy"]].round(12).equals(frames[1][["fmr", "standard_accuracy"]].round(12))
    if same:
        parts.append(Text(["Counted in the other label space, every figure would be the same."]))
        return parts
    columns = [*first_columns(walks), Column("counted", "Right among"), *FAMILY]
    caption = "The same walks, with right answers counted in either label space"
    parts.append(Table("fmr_label_spaces", caption, pd.concat(frames, ignore_index=True), columns))
    return parts


def _dynamic(report: ReportEvidence) -> Section:
    walks = report.once(walks_of)
    if walks is None:
        return Section("dynamic", TITLE, parts=[Notice("No walk of any image ended; the reasons are below.")])
    return dynamic_section(walks, **report.resampling, attributes=report.analysis.attributes)


def _front(report: ReportEvidence) -> Front:
    walks = report.once(walks_of)
    none = answer("No walk of any image ended", "See the errors.")
    front = Front(QUESTION, none, facts_of_walks(report, walks), _LIMITS)
    if walks is None:
        return front
    frame = wide(walks, walks.family[walks.family["label"] == ""])
    steps = [("Have people check the accepted images: an oracle errs, too, and their votes correct FMR.", "")]
    figure = first_figure(_fmr_parts(walks, frame))
    verdicts = [_verdict(walks, row) for row in frame.to_dict("records")]
    return replace(front, verdicts=verdicts, images=shown_walk(walks), chart=figure, steps=[*report.steps, *steps])


def _verdict(walks: ReportWalks, row: dict[Any, Any]) -> ModelVerdict:
    name = walks.row(row["model"], row["walk"])
    if row["reason"]:
        return ModelVerdict(name, "No verdict", "◌", f"{row['validated']:,} of {row['n']:,} images were accepted.")
    kept = estimate(row["fmr"], row["fmr_from"], row["fmr_to"])
    return ModelVerdict(
        name,
        f"Keeps {percent(row['fmr'], 0)} of its accuracy",
        "",
        f"Right on {percent(row['standard_accuracy'])} of {row['n']:,} originals and on "
        f"{percent(row['perturbed_accuracy'])} of the {row['validated']:,} walked images that the oracle accepts; "
        f"their ratio, FMR, is {kept}.",
    )


def facts_of_walks(report: ReportEvidence, walks: ReportWalks | None) -> list[tuple[str, str]]:
    """Return the numbers at the top of a page that is about walks only."""
    if walks is None:
        return page_facts((len(report.runs), "run"))
    images = walks.images
    return page_facts(
        (len(walks.models), "model"),
        (images["source_id"].nunique(), "image"),
        (len(images), "walk"),
        (images["label"].nunique(), "class", "classes"),
    )


_LIMITS = (
    "Every image counts the same; each walk states its own label space. Intervals are at the 95 % level and treat "
    "images as independent. Images that the oracle rejects leave PA, so a strict oracle moves FMR."
)
DYNAMIC_SECTION = ReportSection(_dynamic, of_task("walks"), _front, measures=("fmr",))
