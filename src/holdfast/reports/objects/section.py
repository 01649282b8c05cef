"""Sections on detectors: the verdict, the numbers, the same image with its boxes, lost objects, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import alike, number, points, span
from holdfast.core.types import ORIGINAL
from holdfast.reports.objects import drawing
from holdfast.reports.objects.evidence import DETECTED, DetectorEvidence, read_boxes
from holdfast.reports.page import charts
from holdfast.reports.page import parts as page
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.sections import ReportEvidence, ReportSection, of_task
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, plain, ranged
from holdfast.reports.page.words import class_words, compare_step, condition_label, listing, plural
from holdfast.reports.page.writer import templates
from holdfast.stats.effects.verdict import RANDOM, SAME
from holdfast.stats.effects.verdict_words import SIGNS
from holdfast.stats.objects.answers import DETECT
from holdfast.stats.objects.effects import score_reliability
from holdfast.store import Run

Steps = Sequence[tuple[str, str]]
_NOTHING = "No detector has a prediction for any image"

FRONT_ROWS = 5  # The original and the worst conditions of the first chart

LARGE_PICTURE = 320  # pixels of the longer side
FULL_SIZE = 100_000  # Longer side that is asked for: boxes are measured in the image as the detector saw it


def detector_sections(evidence: DetectorEvidence, pictures: page.RunPictures | None) -> list[page.Section]:
    """Return the sections."""
    if evidence.answers.pictures.empty:
        return [page.Section("objects", "Images without a prediction", parts=_errors(evidence))]
    picked = drawing.picked_photos(evidence)
    lost = drawing.lost_objects(evidence)
    wanted = {*picked, *lost["source_id"].head(drawing.LOST)}
    images = page.pictures_of(pictures, evidence.runs, wanted, size=FULL_SIZE)
    return [
        _numbers(evidence),
        drawing.photo_gallery(evidence, images, picked),
        drawing.lost_filmstrip(evidence, images, lost),
        _scores(evidence),
    ]


def detector_summary(runs: Sequence[Run]) -> str:
    """Return the verdicts and the numbers as HTML for a notebook."""
    evidence = DetectorEvidence(runs, read_boxes(runs), resamples=1000)
    template = templates().get_template("summary.html.j2")
    if evidence.answers.pictures.empty:
        return str(template.render(verdicts=[], table=None, facts=evidence.facts()))
    table = next(part for part in _numbers(evidence).parts if isinstance(part, Table))
    return str(template.render(verdicts=_verdicts(evidence), table=table, facts=evidence.facts()))


def _verdicts(evidence: DetectorEvidence) -> list[page.ModelVerdict]:
    return [
        page.ModelVerdict(
            evidence.short[row["model"]], row["headline"], SIGNS[row["verdict"]], row["rests_on"], row["small_print"]
        )
        for row in _records(evidence)
    ]


def _records(evidence: DetectorEvidence) -> list[dict[Any, Any]]:
    return list(evidence.holds.set_index("model").loc[evidence.models].reset_index().to_dict("records"))


def detector_front(evidence: DetectorEvidence, pictures: page.RunPictures | None, steps: Steps = ()) -> page.Front:
    """Return the first screen; ``steps`` are things to do first, each with a command or nothing."""
    several = len(evidence.answers.models) != 1
    title = "Do the detectors rely on the background?" if several else "Does the detector rely on the background?"
    front = page.Front(title, page.answer(_NOTHING, "See the errors."), evidence.facts(), evidence.limits())
    if evidence.answers.pictures.empty:
        return replace(front, steps=steps)
    records, images = _records(evidence), None
    picked = drawing.turning_photo(evidence) or drawing.picked_photos(evidence)
    if picked:
        shown = [name for name in (ORIGINAL, SAME, RANDOM) if name in evidence.conditions]
        shown = shown if len(shown) > 1 else evidence.conditions[:3]
        jpegs = page.pictures_of(pictures, evidence.runs, {picked[0]}, size=FULL_SIZE)
        tiles = drawing.photo_tiles(evidence, jpegs, picked[0], shown, LARGE_PICTURE)
        images = page.proof([page.Gallery([page.Photo("", "", f"The same image. {drawing.KEY}", tiles)])])
    return replace(
        front,
        verdicts=_verdicts(evidence),
        images=images,
        chart=_chart(evidence, FRONT_ROWS),
        steps=[*steps, *detector_steps(evidence)],
        warnings=[f"{evidence.short[row['model']]}: {text}" for row in records for text in row["warnings"]],
    )


def detector_steps(evidence: DetectorEvidence) -> list[tuple[str, str]]:
    """Return what to do next, each with a command or nothing: the terminal's and the page's."""
    records = _records(evidence)
    steps: list[tuple[str, str]] = []
    if any("open" in (row["leans"], row["sees"]) for row in records):
        steps.append(("More images, with more backgrounds, narrow the interval of an inconclusive verdict.", ""))
    label = _most_lost_class(evidence)
    if label:
        steps.append((label, ""))
    if any(row["leans"] == "yes" for row in records):
        steps.append(("Train on images whose backgrounds do not give the class away: the same objects, pasted.", ""))
    run = str(evidence.runs[0].path) if evidence.runs else "RUN"
    return [*steps, compare_step(run, [str(row["model"]) for row in records])]


def _most_lost_class(evidence: DetectorEvidence) -> str:
    """Return a sentence on the class that loses most recall; empty if none does."""
    counted = evidence.answers.counted
    hits = counted.assign(hit=counted["found"].astype(float), changed=counted["condition"] != ORIGINAL)
    table = hits.groupby(["label", "changed"])["hit"].mean().unstack()
    if True not in table or False not in table:
        return ""
    drop = (table[False] - table[True]).dropna()
    if drop.empty or drop.max() <= 0:
        return ""
    order = ", the most of all classes" if drop.max() > drop.min() else ""
    return (
        f"Look at {class_words(str(drop.idxmax()))}: over all conditions its recall is {points(drop.max(), 0)} lower "
        f"than on the originals{order}."
    )


def _chart(evidence: DetectorEvidence, most: int = 0) -> Figure:
    """Return recall by condition; with ``most``, what the verdict rests on and the worst others."""
    frame = evidence.table[evidence.table["recall"].notna()]
    shown = [name for name in evidence.conditions if name in set(frame["condition"])]
    if most:
        shown = [name for name in shown if name in {ORIGINAL, SAME, RANDOM, *shown[:most]}]
    where = "on other backgrounds and in the worst conditions" if most else "under each condition"
    return charts.model_figure(
        "answer" if most else "recall", f"Objects found {where}, with 95\N{NO-BREAK SPACE}% intervals",
        "Recall of each detector by condition.", frame[frame["condition"].isin(shown)], "recall", short=evidence.short,
        rows=[condition_label(name) for name in shown], axis="objects found (recall)", domain=(0, 1),
    )  # fmt: skip


def _numbers(evidence: DetectorEvidence) -> page.Section:
    frame = evidence.table.assign(
        order=evidence.table["condition"].map({name: at for at, name in enumerate(evidence.conditions)}),
        hides=evidence.table["ap_hides"].map({True: "AP hides it", False: ""}),
        place=evidence.table["model"].map({name: at for at, name in enumerate(evidence.models)}),
    ).sort_values(["place", "order"], kind="stable")
    section = page.Section("objects", "What each condition does to the detectors")
    section.lead = [_finding(evidence), *_hidden(evidence)]
    names = model_column(evidence.short)
    section.parts = [
        _chart(evidence),
        Table(
            "detector_numbers", "Recall, wrong classes, false alarms and predictions", frame,
            [
                names, CONDITION, ranged("recall", "Recall"),
                ranged("recall_drop", "Lost recall", "points", hint="recall on the same objects' originals minus this"),
                Column("lost", "Objects lost", "integer", hint="found in the original, not here"),
                Column("gained", "gained", "integer"),
                ranged("wrong_class", "Wrong class", hint="objects in whose place another class was seen"),
                ranged("false_alarms", "False alarms per image", "number", 2),
                ranged("false_alarms_change", "change", "number", 2, "against the same images' originals"),
                ranged("predictions", "Predictions per image", "number", 2),
                Column("predictions_ratio", "of the originals'", "percent", digits=0),
                Column("objects", "Objects", "integer"),
            ],
            "Each change is on the same objects or images as in the original. † No object is in the image.",
        ),
        Table(
            "average_precision", "Average precision, as pycocotools computes it", frame,
            [
                names, CONDITION, ranged("ap", "AP"),
                Column("ap_change", "change", "points", "ap_change_low", "ap_change_high", beside="hides"),
                ranged("ap50", "AP50"), ranged("ap75", "AP75"),
                Column("ap_small", "AP small", "percent"), Column("ap_medium", "AP medium", "percent"),
                Column("ap_large", "AP large", "percent"),
            ],
            "AP ranks predictions of all scores, so it cannot see that objects fall below the threshold in use. "
            "“AP hides it”: the interval of AP's change holds zero, that of recall's does not.",
        ),
    ]  # fmt: skip
    if frame["mask_iou"].notna().any():
        fit = [names, CONDITION, *plain("percent", iou="IoU of boxes", mask_iou="IoU of masks")]
        section.parts.append(Table("outlines", "How well found objects are outlined, on average", frame, fit))
    gone = frame[frame["removed"] > 0]
    if len(gone):
        columns = [names, CONDITION, ranged("still_seen", "Still seen"), Column("removed", "Objects", "integer")]
        section.parts.append(Table("still_seen", "Objects that were taken out of the image", gone, columns))
    section.parts += _errors(evidence)
    return section


def _finding(evidence: DetectorEvidence) -> str:
    changed = evidence.table.dropna(subset=["recall_drop"])
    if changed.empty:
        return "No condition has the same objects as the originals, so nothing can be compared."
    row = changed.sort_values("recall_drop", ascending=False, kind="stable").iloc[0]
    if row["recall_drop"] <= 0 or alike(row["recall_drop"], 0):
        return "No condition lowers the recall of any detector."
    tied = sum(alike(value, row["recall_drop"]) for value in changed["recall_drop"])
    most = "Under" if tied == len(changed) else "The most is lost under"
    return (
        f"{most} {condition_label(row['condition'])}: {evidence.short[row['model']]} loses "
        f"{points(row['recall_drop'])} of recall ({span(row['recall_drop_low'], row['recall_drop_high'])}), "
        f"{plural(int(row['lost']), 'object')} of {int(row['compared']):,}, and gains {int(row['gained'])}."
    )


def _hidden(evidence: DetectorEvidence) -> list[str]:
    rows = evidence.table[evidence.table["ap_hides"]].to_dict("records")
    if not rows:
        return []
    texts = [
        f"{evidence.short[row['model']]} under {condition_label(row['condition'])} (AP {_signed(row['ap_change'])}, "
        f"recall {_signed(-row['recall_drop'])} points)"
        for row in rows
    ]
    return [f"AP does not show the loss {plural(len(rows), 'time')}: {listing(texts, 6)}."]


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{number(100 * value, 1)}"


def _scores(evidence: DetectorEvidence) -> page.Section:
    """Return whether scores can be trusted: how often predictions are right, by their score."""
    section = page.Section("calibration", "Can the scores be trusted?")
    frame = evidence.table[evidence.table["scored"] > 0]
    if frame.empty:
        section.parts = [page.Notice("No prediction reached the threshold.")]
        return section
    section.lead = [
        "A score of 0.8 should be right 8 times of 10. The calibration error is how far scores are from that, on "
        "average, over the predictions at the threshold; right means an object of that class, overlapped by half or "
        "more."
    ]
    curves = []
    for model in evidence.models:
        bins = score_reliability(evidence.answers, model, ORIGINAL)
        curves.append(
            bins.assign(model=evidence.short[model], estimate=bins["right"], row=bins["score"].map("{:.2f}".format))
        )
    curve = pd.concat(curves, ignore_index=True)
    rows = sorted(set(curve["row"]))
    columns = [
        model_column(evidence.short), CONDITION, ranged("ece", "Calibration error", "points"),
        Column("scored", "Predictions", "integer"),
    ]  # fmt: skip
    section.parts = [
        *([charts.dot_figure(
            "reliability", "Right predictions by their score, on the originals",
            "The share of right predictions by their score.",
            curve, models=[evidence.short[name] for name in evidence.models], rows=rows,
            axis="right predictions; as many as the score says is best", domain=(0, 1),
        )] if len(curve) else []),
        Table("score_calibration", "Calibration error of the scores", frame, columns),
    ]  # fmt: skip
    return section


def _errors(evidence: DetectorEvidence) -> list[page.Part]:
    """Return images without an answer and objects that could not be asked about, by reason."""
    failed = evidence.answers.failed
    objects = evidence.answers.objects
    odd = objects[~objects["status"].isin(["ok", "removed"])].assign(condition="")
    odd = odd.drop_duplicates(["model", "sample_id", "object_id"])
    parts = [failed.assign(what="picture"), odd.assign(what="object")]
    joined = pd.concat([part[["what", "model", "condition", "status", "error", "sample_id"]] for part in parts])
    if joined.empty:
        return []
    keys = ["what", "model", "condition", "status", "error"]
    counted = joined.fillna("").groupby(keys, sort=False)["sample_id"].agg(["size", "first"]).reset_index()
    columns = [
        Column("what", "What"), model_column(evidence.short if not evidence.answers.pictures.empty else {}), CONDITION,
        Column("status", "Status"), Column("error", "Reason"), Column("size", "Number", "integer"),
        Column("first", "For example"),
    ]  # fmt: skip
    counted = counted.sort_values("size", ascending=False, kind="stable")
    text = "These count in no number above; objects of classes that a model does not have are its missing outputs."
    return [page.Text([text]), Table("detector_errors", "Images and objects without an answer", counted, columns)]


def detected(report: ReportEvidence) -> DetectorEvidence:
    """Return the predictions of detectors in a report."""
    runs = report.rows.runs_with(DETECTED)
    return DetectorEvidence(runs, read_boxes(runs), **report.resampling)


DETECTORS = ReportSection(
    lambda report: detector_sections(report.once(detected), report.pictures), of_task(DETECT),
    lambda report: detector_front(report.once(detected), report.pictures, report.steps), measures=("objects",),
)  # fmt: skip
