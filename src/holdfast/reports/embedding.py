"""Section on encoders: what their embeddings follow, the object or the background."""

from __future__ import annotations

from typing import Any

import pyarrow.dataset as ds

from holdfast.core.lazy import pd
from holdfast.core.numbers import estimate, percent
from holdfast.core.schema import EMBED, EMBEDDINGS
from holdfast.reports.page import charts
from holdfast.reports.page.evidence import details
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import Front, Gallery, ModelVerdict, Notice, Photo, Section, pictures_of, tile
from holdfast.reports.page.sections import ReportEvidence, ReportSection, of_task
from holdfast.reports.page.tables import Column, Table, model_column, plain, ranged
from holdfast.reports.page.words import page_facts, short_names
from holdfast.stats.effects.embedding import COLUMNS, embeddings
from holdfast.stats.effects.verdict_words import SIGNS

TITLE = "Do the embeddings follow the object or the background?"
OBJECTS, GROUNDS = 3, 4  # of the gallery
LIMITS = (
    "Every object is pasted in place on every background. The variance of the embeddings (unit length) is divided into "
    "what objects, backgrounds and neither alone explain; object means its class, appearance, size and place. 95 % "
    "intervals are for other objects and backgrounds of the same kinds. By chance: with backgrounds shuffled within "
    "each object (95 % quantile), or objects within each background."
)


def _table(report: ReportEvidence) -> pd.DataFrame:
    rows = report.rows.photos(COLUMNS, ds.field("task") == EMBED)
    runs = report.rows.runs_with(ds.field("task") == EMBED)
    return embeddings(rows, details(runs, "embeddings", EMBEDDINGS), seed=report.seed)


def _short(table: pd.DataFrame) -> dict[str, str]:
    bare = short_names([name.removeprefix("features:") for name in table["model"]])
    return dict(zip(table["model"], bare.values(), strict=True))


def sentence(row: Any) -> tuple[str, str, str]:
    """Return the verdict on a model in a few words, its sign, and the sentence with the numbers."""
    if row["reason"]:
        return "No estimate", SIGNS["undecided"], f"There is no estimate: {row['reason']}."
    shares = {name: estimate(row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in ("object", "background")}
    text = f"Objects explain {shares['object']} of the variance, backgrounds {shares['background']};"
    text += f" of what the two explain, {estimate(row['part'], row['part_low'], row['part_high'])} is the background's."
    near = estimate(row["nearest_background"], row["nearest_background_low"], row["nearest_background_high"])
    text += f" The nearest other image shares the background for {near} of the images"
    text += f" (by chance {percent(row['nearest_background_chance'])})."
    if row["part_low"] > 0.5:
        return "Follows the background more than the object", SIGNS["background"], text
    if row["part_high"] < 0.5:
        moved = row["background_low"] > row["background_chance"]
        also = ", and the background as well" if moved else ""
        return f"Follows the object{also}", SIGNS["both" if moved else "foreground"], text
    return "Inconclusive: object and background may explain equally much", SIGNS["undecided"], text


def _build(report: ReportEvidence) -> Section:
    table = report.once(_table)
    section = Section("embedding", "Embeddings")
    if table.empty:
        section.parts = [Notice("No image has an embedding; the reasons are below.")]
        return section
    short = _short(table)
    section.lead = [f"{short[row['model']]}: {sentence(row)[0].lower()}." for row in table.to_dict("records")]
    hint = "Largest share after shuffling, 95 % quantile."
    shares = [
        model_column(short), ranged("object", "Object"),
        Column("object_chance", "By chance", "percent", hint=hint), ranged("background", "Background"),
        Column("background_chance", "By chance", "percent", hint=hint), ranged("residual", "Neither alone"),
        *plain("integer", objects="Objects", backgrounds="Backgrounds", width="Dimensions"), *plain("text", reason=""),
    ]  # fmt: skip
    near = [
        model_column(short), ranged("nearest_background", "Shares the background"),
        *plain("percent", nearest_background_chance="By chance"), ranged("nearest_object", "Shares the object"),
        *plain("percent", nearest_object_chance="By chance"),
    ]  # fmt: skip
    section.parts = [
        Table("embedding_variance", "Shares of the variance of the embeddings.", table, shares),
        *([] if table["reason"].all() else [
            Table("embedding_neighbours", "What the nearest other image shares, by cosine.", table, near)
        ]), *_gallery(report),
    ]  # fmt: skip
    return section


def _gallery(report: ReportEvidence) -> list[Gallery]:
    """Return some objects, each on the same backgrounds."""
    rows = report.rows.dataset.to_table(columns=["source_id", "label"], filter=ds.field("task") == EMBED).to_pandas()
    shown = rows.drop_duplicates("label").head(OBJECTS) if rows["label"].nunique() >= OBJECTS else rows.head(OBJECTS)
    images = pictures_of(report.pictures, report.rows.runs_with(ds.field("task") == EMBED), set(shown["source_id"]))
    photos = []
    for source, label in zip(shown["source_id"], shown["label"].astype(str), strict=True):
        own = {name: image for (sample, name), image in images.items() if sample == source and "shared" in name}
        tiles = [tile("", image, []) for image in list(own.values())[:GROUNDS]]
        photos += [Photo(source, label, "", tiles)] if tiles else []
    return [Gallery(photos)] if photos else []


def _front(report: ReportEvidence) -> Front:
    table = report.once(_table)
    short, rows = _short(table), list(table.to_dict("records"))
    verdicts = [ModelVerdict(short[row["model"]], *sentence(row)) for row in rows]
    most = {name: int(table[name].max()) if len(table) else 0 for name in ("objects", "backgrounds")}
    facts = page_facts((len(rows), "model"), (most["objects"], "object"), (most["backgrounds"], "background"))
    return Front(TITLE, verdicts, facts, LIMITS, chart=_chart(table, short))


def _chart(table: pd.DataFrame, short: dict[str, str]) -> Figure | None:
    known = table[table["reason"] == ""] if len(table) else table
    if known.empty:
        return None
    words = {"object": "object", "background": "background", "residual": "neither alone"}
    tidy = pd.concat([
        known[["model"]].assign(part=name, share=known[name], low=known[f"{name}_low"], high=known[f"{name}_high"])
        for name in words
    ])  # fmt: skip
    return charts.model_figure(
        "answer", "Share of the embeddings' variance, with 95\N{NO-BREAK SPACE}% intervals",
        "Shares of the variance by what explains them.", tidy, "share", short=short, by="part", words=words.__getitem__,
        rows=list(words.values()), axis="share of the variance", domain=(0, 1),
    )  # fmt: skip


EMBEDDINGS_SECTION = ReportSection(_build, of_task(EMBED), _front)
