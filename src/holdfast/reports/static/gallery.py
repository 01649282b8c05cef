"""Sections: the same image under every condition, and the worst classes and images."""

from __future__ import annotations

from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.names import without_object
from holdfast.core.numbers import alike, percent
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import parts as page
from holdfast.reports.page.evidence import Evidence, ReportRows, answers, with_display_names
from holdfast.reports.page.sections import ReportEvidence, ReportSection, answered
from holdfast.reports.page.tables import CLASS, Column, Table
from holdfast.reports.page.words import class_words, condition_label, listing, plural
from holdfast.stats.core.reduce import right_column

NO_ANSWER = "no answer"

PHOTOS = 4
LARGE = 3  # Images that are shown large next to each other
WORST = 25

_NO_OBJECT = "No condition of these keeps the object in the image, so there is nothing to get right."


def most_harmed(evidence: Evidence) -> pd.DataFrame:
    """Return a row per image, the most lost first.

    ``answers`` counts the answers under conditions that keep the object, ``wrong`` the wrong ones among them, ``lost``
    those that are wrong although the original was answered rightly; ``original`` is the share of models right on it.
    """
    cells = evidence.with_object(with_display_names(evidence.counts.cells))
    right = right_column(evidence.outcome)
    rate = cells[right] / cells["n"]
    table = cells.assign(rate=rate).pivot_table(
        index=["source_id", "label", "model"], columns="condition", values="rate", aggfunc="mean", observed=True
    )
    before = table.reindex(columns=[ORIGINAL])[ORIGINAL]
    after = table.drop(columns=ORIGINAL, errors="ignore")
    frame = table[[]].assign(
        answers=table.notna().sum(axis=1),
        wrong=(1 - table).sum(axis=1),
        lost=(1 - after).sum(axis=1).where(before == 1, 0.0),
        original=before,
    )
    photos = frame.groupby(level=["source_id", "label"], observed=True).agg(
        {"answers": "sum", "wrong": "sum", "lost": "sum", "original": "mean"}
    )
    photos = photos.reset_index().sort_values(["lost", "wrong", "source_id"], ascending=[False, False, True])
    photos["wrong_share"] = photos["wrong"] / photos["answers"]
    return photos.reset_index(drop=True)


def gallery(
    evidence: Evidence, rows: ReportRows, harmed: pd.DataFrame, pictures: page.RunPictures | None
) -> page.Section:
    """Return some images under every condition with each model's answer."""
    section = page.Section("gallery", "The same image under every condition")
    if harmed.empty:
        section.parts = [page.Notice(_NO_OBJECT)]
        return section
    picked = _one_per_class(harmed[harmed["lost"] > 0], PHOTOS)
    if picked.empty:
        section.lead = ["No image that was answered rightly as an original was lost under any condition."]
        picked = _one_per_class(harmed, min(2, PHOTOS))
    else:
        first = picked.iloc[0]
        section.lead = [
            f"{plural(len(picked), 'image')} that a model answers rightly as they are, those lost most often when "
            f"something is changed; {first['source_id']} was lost {first['lost']:.0f} times. They were picked because "
            "they fail, so they are not typical. The original comes first, then the most harmful condition; a dashed "
            "frame and ✗ mark a wrong answer."
        ]
    said = answers(rows, list(picked["source_id"]), evidence.counts.conditions)
    images = page.pictures_of(pictures, rows.runs, set(picked["source_id"]))
    if not images:
        section.parts.append(
            page.Notice("The images are missing or have changed since the run, so only predictions are shown.")
        )
    groups = dict(tuple(with_display_names(said).groupby("source_id")))
    shown_photos = [
        _photo(evidence, record, groups[record["source_id"]], images)
        for record in picked.to_dict("records")
        if record["source_id"] in groups
    ]
    section.parts.append(page.Gallery(shown_photos))
    return section


def _one_per_class(photos: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the first image of each class, then others, at most ``most``."""
    first = photos.drop_duplicates("label").head(most)
    rest = photos.drop(first.index).head(most - len(first))
    return first if len(first) == most or first.empty else photos.loc[[*first.index, *rest.index]]


def _photo(
    evidence: Evidence, record: dict[Any, Any], said: pd.DataFrame, images: dict[tuple[str, str], bytes]
) -> page.Photo:
    tiles = []
    source = str(record["source_id"])
    for condition in evidence.conditions:
        own = said[said["name"] == condition]
        if own.empty:
            continue
        sample = own["sample_id"].min()  # several images may share a source, for example those of one prompt
        by_model = {str(row["model"]): row for row in own[own["sample_id"] == sample].to_dict("records")}
        given = [model_answer(evidence, name, by_model.get(name), condition) for name in evidence.models]
        wrong = sum(answer.kind == "wrong" for answer in given)
        known = sum(row["status"] == "ok" for row in by_model.values())
        count = f"✗ {wrong} of {known} wrong" if wrong else f"✓ {known} of {known} right"
        if without_object(condition):
            right = sum(_is_right(evidence, by_model.get(name)) for name in evidence.models)
            count = f"○ {right} of {known} right"
        jpeg = images.get((str(sample), condition), b"")
        tiles.append(page.tile(condition_label(condition), jpeg, given, count=count))
    lost = [shown.caption for shown in tiles if shown.wrong and shown.caption != condition_label(ORIGINAL)]
    summary = (
        f"Wrong answers under {listing(lost, 6)}."
        if lost
        else "No wrong answer under any condition that keeps the object."
    )
    return page.Photo(source, class_words(str(record["label"])), summary, tiles)


def _is_right(evidence: Evidence, row: dict[Any, Any] | None) -> bool:
    column = "correct" if evidence.outcome == "full" else "correct_restricted"
    return row is not None and row["status"] == "ok" and bool(row[column])


def model_answer(evidence: Evidence, model: str, row: dict[Any, Any] | None, condition: str) -> page.Answer:
    """Return what a model said about an image, with the sign of right or wrong if the object is in it."""
    name = evidence.short[model]
    if row is None or row["status"] != "ok":
        return page.Answer(name, NO_ANSWER, "–", "none")
    full, right = evidence.outcome == "full", _is_right(evidence, row)
    prediction = class_words(str(row["prediction" if full else "prediction_restricted"]))
    sure = row["confidence"] if row["confidence"] == row["confidence"] else None
    if without_object(condition):  # without the object, right and wrong mean little, so they are not marked
        return page.Answer(name, f"{'right' if right else 'other'}: {prediction}", "○", "none", sure)
    return page.judged(name, f"{'right' if right else 'wrong'}: {prediction}", right, sure)


def wrong_as_they_are(
    evidence: Evidence,
    rows: ReportRows,
    harmed: pd.DataFrame,
    pictures: page.RunPictures | None,
    *,
    most: int = page.TILES,
) -> page.Gallery | None:
    """Return originals that no model answers rightly, of as many classes as can be; None without their images."""
    picked = _one_per_class(harmed[harmed["original"] == 0], most)
    if picked.empty:
        return None
    images = page.pictures_of(pictures, rows.runs, set(picked["source_id"]), size=240, only=[ORIGINAL])
    said = with_display_names(answers(rows, list(picked["source_id"]), [ORIGINAL])) if images else pd.DataFrame()
    tiles = []
    for record in picked.to_dict("records") if images else ():
        own = said[(said["source_id"] == record["source_id"]) & (said["name"] == ORIGINAL)]
        by_model = {str(row["model"]): row for row in own.to_dict("records")}
        given = [model_answer(evidence, name, by_model.get(name), ORIGINAL) for name in evidence.models]
        jpeg = images.get((str(own["sample_id"].min()), ORIGINAL), b"")
        count = f"✗ {len(given)} of {len(given)} wrong"
        tiles.append(page.tile(class_words(str(record["label"])), jpeg, given, count=count))
    if not any(shown.picture for shown in tiles):
        return None
    text = "Unchanged images under their labels, with the answers: is the label wrong, or the model?"
    return page.Gallery([page.Photo("", "", text, tiles)], large=len(tiles) <= LARGE)


def worst(
    evidence: Evidence, rows: ReportRows, harmed: pd.DataFrame, pictures: page.RunPictures | None = None
) -> page.Section:
    """Return the tables of the worst classes and images, and the images that are wrong even when unchanged."""
    section = page.Section("worst", "The worst classes and images")
    if harmed.empty:
        section.parts = [page.Notice(_NO_OBJECT)]
        return section
    classes = _worst_classes(evidence)
    photos = harmed.sort_values(["wrong_share", "source_id"], ascending=[False, True]).reset_index(drop=True)
    never = photos[photos["original"] == 0]
    first = classes.iloc[0]
    over = "Over all models and conditions that keep the object,"
    differ = not alike(first["accuracy"], classes["accuracy"].max())
    section.lead = [
        f"{over} {class_words(first['label'])} is answered rightly least often ({percent(first['accuracy'])} of "
        f"{first['n']:,} answers)."
        if differ
        else f"{over} {percent(first['accuracy'])} of the answers to every class are right.",
        f"{plural(len(never), 'image is', 'images are')} answered wrongly by every model even without any change"
        + (": look at their labels first." if len(never) else ", so no label stands out as doubtful."),
    ]
    top = photos.head(WORST)
    common = _common_mistakes(evidence, answers(rows, list(top["source_id"]), evidence.counts.conditions))
    photos = photos.assign(mistake=photos["source_id"].map(common).astype(object).fillna(""))
    section.parts = [
        *([] if (wrong := wrong_as_they_are(evidence, rows, harmed, pictures)) is None else [wrong]),
        Table(
            "worst_classes",
            "Classes, the worst first",
            classes,
            [
                CLASS,
                Column("n", "Answers", "integer"),
                Column("accuracy", "Accuracy", "percent", hint="over models and conditions that keep the object"),
                Column("original", "on originals", "percent"),
                Column("lowest", "Lowest condition", show=condition_label),
                Column("lowest_accuracy", "its accuracy", "percent"),
            ],
            shown=WORST,
        ),
        Table(
            "worst_images",
            "Images, the worst first",
            photos,
            [
                Column("source_id", "Image"),
                CLASS,
                Column("wrong_share", "Wrong answers", "percent", hint="under conditions that keep the object"),
                Column("answers", "Answers", "integer"),
                Column("original", "Models right on the original", "percent", digits=0),
                Column("mistake", "Most common mistake"),
            ],
            shown=WORST,
        ),
    ]
    return section


def _worst_classes(evidence: Evidence) -> pd.DataFrame:
    cells = evidence.with_object(evidence.classes)
    grouped = cells.groupby(["label", "condition"])[["right", "n"]].sum()
    rate = (grouped["right"] / grouped["n"]).rename("rate").reset_index()
    lowest = rate.loc[rate.groupby("label")["rate"].idxmin()].set_index("label")
    total = cells.groupby("label")[["right", "n"]].sum()
    original = rate[rate["condition"] == ORIGINAL].set_index("label")["rate"]
    frame = total.assign(
        accuracy=total["right"] / total["n"],
        original=original.reindex(total.index),
        lowest=lowest["condition"].where(lowest["rate"] < 1),  # of a class that is always right there is none
        lowest_accuracy=lowest["rate"].where(lowest["rate"] < 1),
    )
    frame = frame.reset_index().sort_values(["accuracy", "label"]).reset_index(drop=True)
    return frame[["label", "n", "right", "accuracy", "original", "lowest", "lowest_accuracy"]]


def _common_mistakes(evidence: Evidence, said: pd.DataFrame) -> dict[str, str]:
    full = evidence.outcome == "full"
    correct = said["correct" if full else "correct_restricted"]
    wrong = said[(said["status"] == "ok") & (correct == False) & ~said["name"].map(without_object)]  # noqa: E712 - nulls are neither
    column = "prediction" if full else "prediction_restricted"
    counted = wrong.groupby(["source_id", column]).size().rename("times").reset_index()
    counted = counted.sort_values(["times", column], ascending=[False, True]).drop_duplicates("source_id")
    return {
        str(source): f"{class_words(answer)} ({times}×)" for source, answer, times in counted.itertuples(index=False)
    }


def _harmed(report: ReportEvidence) -> pd.DataFrame:
    return most_harmed(report.classified)


GALLERY = ReportSection(
    lambda report: gallery(report.classified, report.static_rows, report.once(_harmed), report.pictures), answered
)
WORST_IMAGES = ReportSection(
    lambda report: worst(report.classified, report.static_rows, report.once(_harmed), report.pictures), answered
)
