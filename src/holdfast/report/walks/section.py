"""Section: latent walks, and how much accuracy is left on images that the oracle still accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.report.page import charts
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import Heading, Notice, Part, Section, Text
from holdfast.report.page.tables import Column, Table, model_column
from holdfast.report.page.words import estimate, listing, percent, plural
from holdfast.report.walks import charts as walk_charts
from holdfast.report.walks.evidence import COUNTS, FAMILY, VARIANTS, ReportWalks, first_columns, share, wide
from holdfast.report.walks.settings import how, setting_sentences, settings_compared, spaces, warnings
from holdfast.stats.walks.fmr import NO_IMAGES, NONE_RIGHT, NONE_VALIDATED
from holdfast.stats.walks.fmr_ranking import fmr_ranking

if TYPE_CHECKING:
    import pandas as pd

TITLE = "As far as the oracle still agrees"
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


def dynamic_section(walks: ReportWalks, *, resamples: int, seed: int) -> Section:
    """Return SA, PA, VR and FMR with all variants, baselines, ranks, and how the walks were made."""
    section = Section("dynamic", TITLE)
    frame = wide(walks, walks.family[walks.family["label"] == ""])
    section.lead = [MEANING, *setting_sentences(walks), *_findings(walks, frame)]
    section.parts = [
        *_missing(walks, frame),
        *warnings(walks),
        *_fmr_parts(walks, frame),
        *_baselines(walks, frame),
        *_ranks(walks, resamples, seed),
        *settings_compared(walks, frame),
        *_by_class(walks),
        *spaces(walks),
        *how(walks),
    ]
    return section


def _findings(walks: ReportWalks, frame: pd.DataFrame) -> list[str]:
    known = frame[frame["reason"] == ""].sort_values("fmr", ascending=False, kind="stable")
    if known.empty:
        return []
    shown = known if len(known) <= 2 else known.iloc[[0, -1]]
    findings = [
        f"{walks.row(row['model'], row['walk'])} keeps {estimate(row['fmr'], row['fmr_from'], row['fmr_to'])} of its "
        f"accuracy: {percent(row['standard_accuracy'])} of {row['n']:,} originals, "
        f"{percent(row['perturbed_accuracy'])} of the {row['validated']:,} accepted images"
        for row in shown.to_dict("records")
    ]
    kinds = "walks" if walks.several else "models"
    start = "" if len(known) <= 2 else f"Of {len(known)} {kinds}, the most and the least: "
    return [
        f"{start}{'; '.join(findings)}. Rejected images leave PA, so a strict oracle moves FMR: read it beside VR and "
        "the bounds."
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
        lambda width: walk_charts.fmr(tidy, width, rows=rows),
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


def _baselines(walks: ReportWalks, frame: pd.DataFrame) -> list[Part]:
    import pandas as pd

    stages = [(key, title) for key, title in STAGES if key in frame]
    rows = [walks.row(model, walk) for model, walk in walks.order]
    tidy = pd.DataFrame(
        [
            {
                "model": walks.row(row["model"], row["walk"]),
                "row": title,
                "estimate": row[key],
                "low": row[f"{key}_from"],
                "high": row[f"{key}_to"],
            }
            for row in frame.to_dict("records")
            for key, title in stages
        ]
    )
    means = ", ".join(f"{title} {percent(float(frame[key].mean()))}" for key, title in stages)
    start = "Accuracy" if len(frame) == 1 else f"Mean accuracy over the {'walks' if walks.several else 'models'}"
    finding = f"{start}: {means}."
    what = "A loss that the reconstruction or a random walk already brings is the generator's, not the model's."
    figure = charts.dot_figure(
        "dynamic_stages",
        "Accuracy on the way: original, plain reconstruction, random walk, walk against the model",
        finding,
        tidy,
        models=rows,
        rows=[title for _, title in stages],
        axis="accuracy",
        domain=(0.0, 1.0),
        note="Originals and reconstructions count all images; walks, random ones too, count where the oracle accepted "
        "them. A random walk has as many steps as the walk, or fewer where the oracle rejects one.",
    )
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
    parts: list[Part] = [Heading("Which models can be told apart")]
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
            else f"{names} share the first rank: {images} do not tell them apart."
        )
        columns = [
            model_column(walks.short),
            Column("rank", "Rank"),
            Column("fmr", "FMR", "percent", "low", "high"),
            Column("n", "Images", "integer"),
        ]
        caption = f"{where}Ranks by FMR; models that cannot be told apart share theirs"
        name = "fmr_ranks" if not walks.several else f"fmr_ranks_{walk}"
        note = "Paired on the photo: max-t over all pairs in resamples of photos, on the images that every model has."
        parts += [Text([where + text]), Table(name, caption, ranking.table, columns, note, folded=True)]
    return parts


def _by_class(walks: ReportWalks) -> list[Part]:
    frame = wide(walks, walks.family[walks.family["label"] != ""])
    known = frame[frame["reason"] == ""].sort_values("fmr", kind="stable")
    sentence = "No class has an FMR."
    if len(known):
        low, high = known.iloc[0], known.iloc[-1]
        sentence = (
            f"FMR is lowest for {low['label']} ({walks.row(low['model'], low['walk'])}: {percent(low['fmr'])} with "
            f"{low['validated']:,} of {low['n']:,} images accepted) and highest for {high['label']} "
            f"({walks.row(high['model'], high['walk'])}: {percent(high['fmr'])}, {high['validated']:,} of "
            f"{high['n']:,})."
        )
    columns = [*first_columns(walks, label=True), *COUNTS, *FAMILY, *VARIANTS]
    extra = [share(key, title) for key, title in STAGES[1:3] if key in frame]
    table = Table("fmr_by_class", "FMR by class", frame, [*columns, *extra], folded=True)
    return [Heading("By class"), Text([sentence]), table]
