"""The first screen of a report: the verdict, three images, one chart, what to do next, and what it rests on."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.names import condition_words, without_object
from holdfast.core.numbers import alike, points
from holdfast.core.types import NEEDS_MASK, ORIGINAL
from holdfast.data.reading import doubtful_masks
from holdfast.reports.page import charts
from holdfast.reports.page import parts as page
from holdfast.reports.page.evidence import Evidence, ReportRows, answers, with_display_names
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.sections import ReportEvidence, ReportSection
from holdfast.reports.page.words import (
    class_words,
    compare_step,
    condition_label,
    listing,
    page_facts,
    plural,
    sentence,
)
from holdfast.reports.static.gallery import model_answer, most_harmed, wrong_as_they_are
from holdfast.stats.core.reduce import Counts, right_column
from holdfast.stats.effects.sequential import sequential_looks
from holdfast.stats.effects.verdict import ONLY, RANDOM, SAME
from holdfast.stats.effects.verdict_words import SIGNS, open_numbers, photo_advice
from holdfast.store import Run

TITLE = "Do the models rely on the background?"
_ONE_MODEL = "Does the model rely on the background?"

LOOKS = 8  # Rounds that the first chart of an early check shows
CARDS = 4  # Models that get a card of their own; if there are more, those with one headline share a line

LARGE_PICTURE = 320
CHARTED = (ORIGINAL, SAME, RANDOM, ONLY)  # Conditions of the first chart
FEWEST = 5  # Images of a class below which its drop is no advice
FEW = 30  # Images of a class below which its drop, picked as the largest, may well be chance


def classified_front(report: ReportEvidence) -> page.Front:
    """Return the first screen of a report on classifiers."""
    evidence, rows = report.classified, report.static_rows
    shown = evidence if evidence.every is not None and evidence.models else report.whole
    front = page.Front(
        TITLE if len(shown.models) != 1 else _ONE_MODEL, [], facts_of(shown),
        limits_of(report.whole, walks="walks" in report.tasks),
    )  # fmt: skip
    if not evidence.models:
        none = page.ModelVerdict("", "No model has a prediction for any image", SIGNS["undecided"], "See the errors.")
        return replace(front, verdicts=[none], steps=report.steps)
    by_model = {row["model"]: row for row in evidence.holds.to_dict("records")}
    records = [(name, by_model[name]) for name in evidence.models if name in by_model]
    doubtful = {name for run in rows.runs for name in doubtful_masks(run.spec().get("masks"))}
    flip, images = pick_flip(evidence, doubtful), None
    if all(row["unjudged"] for _, row in records):
        images = wrong_as_they_are(evidence, rows, most_harmed(evidence), report.pictures, most=3)
    elif flip is not None:
        images = _three_images(evidence, rows, flip, report.pictures)
    run, lost = rows.runs[0] if rows.runs else None, most_lost(evidence.classes)
    next_steps = step_list(evidence.holds.to_dict("records"), run, evidence.counts, lost, early=evidence.all_early)
    warnings = [f"{evidence.name(name)}: {text}" for name, row in records for text in row["warnings"]]
    mixed = [early_words(evidence)] if evidence.rounds and not evidence.all_early else []
    return replace(
        front,
        verdicts=_items(evidence, records),
        images=images,
        chart=narrowing_figure(evidence) if evidence.all_early else answer_figure(evidence),
        steps=[*report.steps, *next_steps],
        warnings=[*mixed, *warnings],
    )


def verdict_items(evidence: Evidence) -> list[page.ModelVerdict]:
    """Return a verdict per model, in the order of the report."""
    by_model = {row["model"]: row for row in evidence.holds.to_dict("records")}
    return [_item(str(name), by_model[name]) for name in evidence.models if name in by_model]


def _items(evidence: Evidence, records: Sequence[tuple[str, Mapping[Any, Any]]]) -> list[page.ModelVerdict]:
    if len(records) <= CARDS:
        return [_item(name, row) for name, row in records]
    heads: dict[tuple[str, str], list[str]] = {}
    for name, row in records:
        heads.setdefault((row["headline"], row["verdict"]), []).append(evidence.name(name))
    return [
        page.ModelVerdict(plural(len(names), "model"), head, SIGNS[kind], f"{listing(names, 12)}.")
        for (head, kind), names in heads.items()
    ]


def _item(model: str, row: Mapping[Any, Any]) -> page.ModelVerdict:
    return page.ModelVerdict(model, row["headline"], SIGNS[row["verdict"]], row["rests_on"], row["small_print"])


@dataclass(frozen=True)
class Flip:
    """An image and a model, with the conditions to show, the original first; whether the last one turns the answer."""

    source: str
    model: str
    conditions: tuple[str, ...]
    turned: bool


def pick_flip(evidence: Evidence, doubtful: Collection[str] = ()) -> Flip | None:
    """Return an image that the model most given to the background answers rightly until its background changes.

    The best example is right on a background of its own class and wrong on one of another class, with that class as the
    answer. If no answer turns, it is any image that is answered rightly. Images with a ``doubtful`` mask are taken
    only if there are no others.
    """
    judged = evidence.holds[evidence.holds["unjudged"] == ""]
    effects = judged.set_index("model")["background_effect"].reindex(evidence.models)
    model = str(effects.idxmax()) if effects.notna().any() else evidence.models[0]
    cells = with_display_names(evidence.counts.cells)
    cells = cells[cells["model"] == model]
    right = cells.assign(rate=cells[right_column(evidence.outcome)] / cells["n"]).pivot_table(
        index="source_id", columns="condition", values="rate", aggfunc="mean", observed=True
    )
    named = evidence.background_conditions(evidence.counts) if evidence.background_conditions else []
    changed = dict.fromkeys(name for name in (RANDOM, SAME, *evidence.conditions) if name in {RANDOM, SAME, *named})
    shown = [name for name in changed if name in right and not without_object(name)]
    if ORIGINAL not in right or not shown:
        return None
    right = right[right[ORIGINAL] == 1]
    right = right[~right.index.isin(list(doubtful))] if not right.index.isin(list(doubtful)).all() else right
    captured = cells[cells["condition"] == RANDOM].groupby("source_id", observed=True)["captured"].max()
    for wrong in shown:
        for kept in [name for name in (SAME, *shown) if name in shown and name != wrong]:
            flipped = right[(right[wrong] == 0) & (right[kept] == 1)]
            if len(flipped):
                best = captured.reindex(flipped.index).fillna(0).sort_values(ascending=False, kind="stable").index[0]
                return Flip(str(best), model, (ORIGINAL, kept, wrong), True)
        if len(lost := right[right[wrong] == 0]):
            return Flip(str(lost.index[0]), model, (ORIGINAL, wrong), True)
    if right.empty:
        return None
    return Flip(str(right[shown].notna().sum(axis=1).idxmax()), model, (ORIGINAL, *shown[:2]), False)


def _three_images(
    evidence: Evidence, rows: ReportRows, flip: Flip, pictures: page.RunPictures | None
) -> page.Gallery | None:
    images = page.pictures_of(pictures, rows.runs, {flip.source}, size=LARGE_PICTURE, only=flip.conditions)
    said = with_display_names(answers(rows, [flip.source], evidence.counts.conditions))
    said = said[said["model"] == flip.model]
    tiles = []
    for condition in flip.conditions:
        own = said[said["name"] == condition]
        if own.empty:
            continue
        row = own.sort_values("sample_id").iloc[0].to_dict()
        given = model_answer(evidence, flip.model, row, condition)
        tiles.append(
            page.tile(condition_words(condition), images.get((str(row["sample_id"]), condition), b""), [given])
        )
    if not any(shown.picture for shown in tiles):
        return None
    label = class_words(str(said["label"].iloc[0]))
    return page.Gallery([page.Photo("", label, _flips(evidence, flip, label), tiles)], large=True)


def _flips(evidence: Evidence, flip: Flip, label: str) -> str:
    """Return how often an answer turns as in the images."""
    last = flip.conditions[-1]
    drops = evidence.drops[(evidence.drops["model"] == flip.model) & (evidence.drops["condition"] == last)]
    where = f"under {condition_label(last)}"
    text = f"The same image ({label}): the prediction {'changes' if flip.turned else 'stays'}."
    if {SAME, RANDOM} & set(flip.conditions):
        text += " The new background is another image's; where its object was, the surroundings are mirrored in."
    if drops.empty:
        return text
    row = drops.iloc[0]
    lost, gained, n = (int(row[name]) for name in ("lost", "gained", "n"))
    if not lost and not gained:
        return f"{text} {evidence.name(flip.model)} is right or wrong on the same {plural(n, 'image')} {where}."
    picked = " This one was picked because it does." if flip.turned else ""
    changes = f"on {lost:,} of {n:,} images and gains one on {gained:,}"
    return f"{text} {evidence.name(flip.model)} loses its right prediction {where} {changes}.{picked}"


def answer_figure(evidence: Evidence) -> Figure:
    """Return accuracy on the images and on other backgrounds; of many models, what the background costs each."""
    if len(evidence.models) > CARDS:
        frame = evidence.holds.assign(row=evidence.holds["model"].map(evidence.short), model="")
        frame = frame.rename(columns={f"background_effect{end}": name for end, name in _ENDS.items()})
        rows = list(frame.sort_values("estimate", ascending=False, kind="stable")["row"])
        return charts.dot_figure(
            "answer", "Points of accuracy lost when only the background changes, with 95 % intervals",
            "Points of accuracy that each model loses when only the background changes.",
            frame, models=[""], rows=rows, axis="points lost; 0 is best", zero=True,
        )  # fmt: skip
    frame = evidence.summary
    chosen = [name for name in CHARTED if name in set(frame["condition"])]
    if len(chosen) < 2:
        chosen = [name for name in evidence.conditions if not without_object(name)][:5]
    kind = "mean of the classes" if evidence.average == "macro" else "all images"
    return charts.model_figure(
        "answer", f"Right answers ({kind}), with 95\N{NO-BREAK SPACE}% intervals",
        "Accuracy on the images, on other backgrounds, and on the background alone.",
        frame[frame["condition"].isin(chosen)], "accuracy", short=evidence.short,
        rows=list(map(condition_label, chosen)), axis="right answers", domain=(0, 1),
        note="† Without the object a right answer comes from the background." if ONLY in chosen else "",
    )  # fmt: skip


def early_words(evidence: Evidence) -> str:
    """Return what a reader of a page on models that were asked in rounds must know of its intervals."""
    if evidence.all_early:
        return "Asked in rounds: all intervals of this page hold whenever one stops (95 % each, betting)."
    names = listing([evidence.name(name) for name in evidence.rounds], 6)
    return (
        f"Two kinds of intervals: {names} stopped early, and the verdict's intervals hold whenever one stops. All "
        f"others are for a number of images that was fixed beforehand, and too narrow if they are about {names}."
    )


def narrowing_figure(evidence: Evidence) -> Figure:
    """Return how the intervals of the verdict narrowed from round to round."""
    rows, names = [], []
    for model, rounds in evidence.rounds.items():
        looks = sequential_looks(evidence.counts, model, rounds, outcome=evidence.outcome)
        for place in sorted({*range(0, len(looks), -(-len(looks) // LOOKS)), len(looks) - 1}):
            names.append(f"after {sum(map(len, rounds[: place + 1])):,} images")
            for kind, effect in (("background", looks[place].background), ("object", looks[place].object)):
                what = f"{kind} effect" + (f", {evidence.name(model)}" if len(evidence.rounds) > 1 else "")
                rows.append((what, names[-1], effect.value, effect.low, effect.high))
    frame = pd.DataFrame(rows, columns=["model", "row", "estimate", "low", "high"])
    return charts.dot_figure(
        "narrowing", "The verdict, round by round, with intervals that hold whenever one stops",
        "Background effect and object effect after each round.", frame, models=list(dict.fromkeys(frame["model"])),
        rows=list(dict.fromkeys(names)), axis="points", zero=True,
        note="0 is best for the background and 100 for the object.",
    )  # fmt: skip


_MEND = (
    "holdfast mask TRAINING_PHOTOS --out training-masks; "
    "holdfast synth TRAINING_PHOTOS --masks training-masks --scenarios random_background --out training-images"
)
_ENDS = {"": "estimate", "_low": "low", "_high": "high"}


def step_list(
    records: Sequence[Mapping[Any, Any]], run: Run | None, counts: Counts | None = None, lost: str = "",
    *, early: bool = False,
) -> list[tuple[str, str]]:  # fmt: skip
    """Return the steps that follow from verdicts and from what is missing.

    ``lost``: a sentence on the class that loses most; ``early``: asked in rounds.
    """
    steps: list[tuple[str, str]] = []
    wrong = [row for row in records if row["unjudged"]]
    for row in wrong[:CARDS]:
        who = f" ({row['model']})" if len(records) > 1 else ""
        text = sentence(row["unjudged"])
        advice = "check the names of its outputs and its preprocessing (docs/my-model.md)."
        if row["why_leans"] == "uneven":
            advice = "add images of the small classes."
        steps.append((f"{text}{who}: {advice}", ""))
    if wrong and len(wrong) == len(records):
        return steps
    records = [row for row in records if not row["unjudged"]]
    open_rows = [row for row in records if "open" in (row["leans"], row["sees"])]
    place, data = (shlex.quote(str(text)) for text in ((run.path, run.spec().get("data")) if run else ("RUN", "DATA")))
    missing = [row for row in open_rows if row["why_leans"] == "missing"]
    if missing and counts is not None and (unmasked := without_mask(counts)):
        steps.append((
            f"Make masks: {plural(unmasked, 'image')} have none, and no background changes without them; then "
            "holdfast eval with --masks masks.",
            f"holdfast mask {data} --out masks",
        ))  # fmt: skip
    elif missing:
        steps.append((f"Ask {listing([str(row['model']) for row in missing])} under both conditions that "
                      f"this verdict needs: {condition_words(SAME)} and {condition_words(RANDOM)}.", ""))  # fmt: skip
    asking = [row for row in open_rows if open_numbers(row)]
    if asking:
        whose = f"{asking[0]['model']}: " if len(records) > 1 else ""
        advice = "Add some and give the same command again: it continues." if early else photo_advice(asking[0])
        steps.append((f"More images. {whose}{advice}", ""))
    leaning = [row for row in records if row["leans"] == "yes"]
    if leaning:
        name = str(leaning[0]["model"]) if len(records) > 1 else "it"
        steps.append((f"See where {name} looks.", f"holdfast explain {place}"))
        steps.append((f"Train {name} on new images whose backgrounds do not give the class away.", _MEND))
    steps += [(lost, "")] if lost else []
    return [*steps, compare_step(str(run.path) if run else "RUN", [str(row["model"]) for row in records], early)]


def without_mask(counts: Counts) -> int:
    """Return how many images were skipped because they have no mask."""
    skipped = counts.trouble[counts.trouble["error"].astype(str).str.contains(NEEDS_MASK, regex=False)]
    return int(skipped.groupby(["model", "condition"], observed=True)["n"].sum().max()) if len(skipped) else 0


def most_lost(frame: pd.DataFrame) -> str:
    """Return a sentence on the class that loses most when only the background changes; empty if none does."""
    table = frame[frame["condition"].isin([SAME, RANDOM])].pivot_table(
        index="label", columns="condition", values="accuracy", aggfunc="mean", observed=True
    )
    if SAME not in table or RANDOM not in table:
        return ""
    lost = (table[SAME] - table[RANDOM]).dropna()
    if lost.empty or lost.max() <= 0:
        return ""
    label = str(lost.idxmax())
    order = f", the most of {len(lost)} classes" if sum(alike(value, lost.max()) for value in lost) < len(lost) else ""
    n = int(frame[(frame["label"] == label) & (frame["condition"] == RANDOM)]["n"].max())
    if n < FEWEST:
        return ""
    return (
        f"Look at {class_words(label)}: accuracy falls by {points(lost.max(), 0)} when only the background "
        f"changes{order} ({plural(n, 'image')}{', so it may be chance' if n < FEW else ''})."
    )


def facts_of(evidence: Evidence) -> list[tuple[str, str]]:
    """Return the numbers at the top of a page on classifiers."""
    counts = evidence.counts
    photos = counts.cells["source_id"].nunique() if len(counts.cells) else 0
    return page_facts(
        (len(evidence.models), "model"),
        (photos, "image"),
        (len(counts.classes), "class", "classes"),
        (len(counts.conditions), "condition"),
        (int(counts.cells["n"].sum()) if len(counts.cells) else 0, "answer"),
    )


def _unanswered(evidence: Evidence) -> str:
    """Return a sentence on rows without an answer, for the top of the page."""
    rows = evidence.counts.trouble
    rows = rows[rows["status"] != "rejected"]  # a filter rejected them: an outcome that the section on errors has
    missing = int(rows["n"].sum()) if len(rows) else 0
    if not missing:
        return ""
    total = missing + (int(evidence.counts.cells["n"].sum()) if len(evidence.counts.cells) else 0)
    text = f" {missing:,} of {total:,} rows have no answer and count in no statistic: see errors and skipped images."
    silent = sorted(set(rows["model"].astype(str)) - set(evidence.counts.cells["model"].astype(str)))
    return text + (f" No answer at all came from {listing(silent, 6)}." if silent else "")


def limits_of(evidence: Evidence, *, walks: bool) -> str:
    """Return what the numbers of a page on classifiers mean."""
    counts = evidence.counts
    outcome = "over all outputs of a model" if evidence.outcome == "full" else "among the dataset's classes only"
    average = (
        "every class counts the same (macro)" if evidence.average == "macro" else "every image counts the same (micro)"
    )
    text = (
        f"Right means right {outcome}; in averages, {average}. Intervals are at the 95 % level and treat images, not "
        "answers, as independent."
    )
    if evidence.rounds:
        text += " " + early_words(evidence)
    if walks:
        text += " Latent walks state their own label space, and every image counts the same in them."
    if len(counts.cells):
        photos = counts.cells["source_id"].nunique()
        text += f" What {plural(photos, 'image')} cannot show, this report does not claim."
    text += _unanswered(evidence)
    if ORIGINAL not in counts.conditions:
        text += " The originals were not among the conditions, so drops and verdicts are missing."
    return text


def _front(report: ReportEvidence) -> page.Front | None:
    return classified_front(report) if len(report.trained) < len(report.runs) else None  # training has its own


VERDICT = ReportSection(lambda _: [], lambda report: report.is_static, _front, measures=("verdicts",))
