"""The report of one or several runs: it reads the rows, and puts the sections in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.core.votes import Votes
from holdfast.report.attribution.section import looking, read_looks
from holdfast.report.objects.evidence import read_detectors
from holdfast.report.objects.section import detector_sections
from holdfast.report.page.evidence import Analysis, Evidence, ReportRows, ScoreConditions, join_runs, recorded_rounds
from holdfast.report.page.parts import Notice, RunPictures, Section
from holdfast.report.page.provenance import trouble, what_was_run
from holdfast.report.page.words import listing, page_facts, plural
from holdfast.report.page.writer import about_runs, chart_library, templates, write_page
from holdfast.report.questions import question_section, read_questions
from holdfast.report.static.accuracy import label_section, maps, read_labels, scenarios
from holdfast.report.static.comparison import comparison, fit
from holdfast.report.static.confidence import confidence
from holdfast.report.static.corruptions import corruptions, failure_point_section
from holdfast.report.static.families import families, groups, shape_and_texture
from holdfast.report.static.front import early_words, front, verdict_items
from holdfast.report.static.gallery import gallery, most_harmed, worst
from holdfast.report.static.painted import painted_images
from holdfast.report.static.picture_grid import grid
from holdfast.report.static.verdicts import early_numbers, score_frame, score_table, scores, verdict_table
from holdfast.report.trained.detection import build_detection, is_telltale
from holdfast.report.trained.segmentation import read_segments, segmentation
from holdfast.report.trained.training import on_originals, trained, training
from holdfast.report.walks.evidence import read_walks
from holdfast.report.walks.filmstrips import ends_of_walks, filmstrips, stopped
from holdfast.report.walks.people import corrected_by_people
from holdfast.report.walks.section import TITLE as DYNAMIC_TITLE
from holdfast.report.walks.section import dynamic_section
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.cells import Average
from holdfast.stats.core.reduce import Counts, Outcome, reduce
from holdfast.stats.effects.sequential import RoundPlan
from holdfast.stats.walks.walk_rows import DYNAMIC, RANDOM_WALK
from holdfast.store import Run

TITLE = "What the models hold on to"
_ONE_MODEL = "What the model holds on to"

_WALKED = ds.field("kind") == DYNAMIC
_NO_FAILURE = _WALKED & (
    (ds.field("status") == "rejected") | ((ds.field("condition") == RANDOM_WALK) & (ds.field("status") == "skipped"))
)  # Walks that the oracle rejected at once, and the random walks that these lack: outcomes, not errors


def build(
    runs: Sequence[Run],
    out: Path,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    pictures: RunPictures | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    score_conditions: ScoreConditions | None = None,
    background_conditions: ScoreConditions | None = None,
    analysis: Analysis | None = None,
    note: str = "",
    votes: Votes | None = None,
    steps: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write ``index.html``, ``figures/`` and ``tables/`` into a folder, and return the page's path.

    ``pictures``: makes JPEG thumbnails of some photos of a run. ``note``: what a reader must know first; drawn scenes
    have their own note. ``steps``: what to do first, each with a command or nothing. ``votes``: of people on accepted
    images of walks, which correct FMR. ``score_conditions``: returns the conditions of the robustness score; by default
    all that keep the object. ``background_conditions``: those that leave the object as it is, for the score over these.
    """
    if is_telltale(runs):  # its classes are kinds of pictures, so verdicts and scores mean nothing there
        return build_detection(runs, out, note=note)
    settings: dict[str, Any] = {"outcome": outcome, "average": average, "resamples": resamples, "seed": seed}
    read = read_report(runs, settings, score_conditions, background_conditions, analysis)
    if votes is not None and not read.walks:
        raise UserError("--votes corrects FMR, but these runs have no latent walks; holdfast perturb makes them")
    with ThreadPoolExecutor(1) as thread:
        # Bundling the chart library takes a second outside Python, so it runs while the statistics are computed.
        library = thread.submit(chart_library)
        sections = report_sections(read, settings, pictures, votes, steps)
        library.result()
    alone, shown = read.alone, read.about_models
    return write_page(
        sections,
        out,
        title=alone.title if alone else TITLE if len(shown.models) != 1 else _ONE_MODEL,
        facts=alone.facts() if alone else _facts(shown),
        limits=alone.limits() if alone else _limits(read.whole, walks=read.walks),
        **about_runs(runs, note),
    )


@dataclass(frozen=True)
class ReadReport:
    """What the rows of a report hold."""

    runs: Sequence[Run]
    rows: ReportRows  # all their rows
    static: ReportRows  # the rows without latent walks
    counts: Counts  # counts of the answers under static conditions
    evidence: Evidence  # the same for models that were not trained here, or on originals
    whole: Evidence  # evidence of all answers
    others: dict[str, Any]  # a task of ``TASK_SECTIONS`` that the rows have → what was read of it
    alone: Any | None  # the answers of one of them, where the rows hold nothing else: the page has their title

    @property
    def walks(self) -> bool:
        """Whether there are latent walks."""
        return self.static is not self.rows

    @property
    def about_models(self) -> Evidence:
        """The evidence on the models that the page is about."""
        return self.evidence if self.evidence.every is not None and self.evidence.models else self.whole


TASK_SECTIONS: dict[str, tuple[Callable[..., Any], Callable[..., list[Section]]]] = {
    "question": (read_questions, lambda asked, pictures, _: [question_section(asked, pictures)]),
    "segment": (read_segments, lambda segmented, *_: [segmentation(segmented)]),
    "detect": (read_detectors, detector_sections),
    "multilabel": (read_labels, lambda labelled, *_: [label_section(labelled)]),
}  # a task other than classify → what reads its answers (None without any), and what shows them, in the page's order


def read_report(
    runs: Sequence[Run],
    settings: dict[str, Any],
    score_conditions: ScoreConditions | None = None,
    background_conditions: ScoreConditions | None = None,
    analysis: Analysis | None = None,
) -> ReadReport:
    """Read the rows of the runs; ``settings`` are outcome, average, resamples and seed, in this order."""
    analysis = analysis or Analysis()
    rows = join_runs(runs)
    static = _without_walks(rows)
    counts = static.counts()
    whole = Evidence(counts, **settings)
    if static is not rows:
        whole = Evidence(rows.counts(~_NO_FAILURE), settings["outcome"], settings["average"])
    resampling = {"resamples": settings["resamples"], "seed": settings["seed"]}
    others = {task: read(rows, analysis, **resampling) for task, (read, _) in TASK_SECTIONS.items()}
    others = {task: answers for task, answers in others.items() if answers is not None}
    # A run with only questions, segments or boxes has no rows that verdicts and errors of classification are about.
    classified = rows.dataset.count_rows(filter=~ds.field("task").isin(list(TASK_SECTIONS)))
    alone = None if classified else next(iter(others.values()), None)
    evidence = _evidence(counts, *settings.values(), score_conditions, background_conditions, analysis)
    evidence, whole = (replace(each, rounds=recorded_rounds(runs)) for each in (evidence, whole))
    return ReadReport(runs, rows, static, counts, evidence, whole, others, alone)


def report_sections(
    read: ReadReport,
    settings: dict[str, Any],
    pictures: RunPictures | None = None,
    votes: Votes | None = None,
    steps: Sequence[tuple[str, str]] = (),
) -> list[Section]:
    """Return all sections in the order of the page."""
    evidence, runs = read.evidence, read.runs
    resampling = {"resamples": settings["resamples"], "seed": settings["seed"]}
    # Models that were only trained and tested within scenarios have no other section.
    only_within = bool(trained(runs)) and not evidence.models and len(read.counts.cells) > 0
    sections = []
    if read.static.runs and read.alone is None and not only_within:
        rows = _on_originals(read.static) if evidence.every else read.static
        sections = _static_sections(evidence, rows, pictures, steps)
    if trained(runs):
        sections.insert(2 if len(sections) > 2 else 0, training(trained(runs), Evidence(read.counts, **settings)))
    looks = read_looks(runs)
    sections += [] if looks is None else [looking(looks, **resampling)]
    for task, answers in read.others.items():
        sections += TASK_SECTIONS[task][1](answers, pictures, steps)
        if task == "detect" and evidence.analysis.attributes and len(answers.answers.counted):
            objects = reduce(answers.answers.as_classified())
            sections += groups(Evidence(objects, average="micro", **resampling, analysis=evidence.analysis), "object")
    sections += painted_images(runs, pictures)
    sections += _walk_sections(read.rows, resampling, votes, evidence.analysis.attributes) if read.walks else []
    errors = trouble(read.whole, runs, ended=read.rows.dataset.count_rows(filter=_NO_FAILURE))
    if read.alone is not None:
        errors.lead = errors.lead[1:]  # it is about classified rows; questions have their own
    sections += [errors] if errors.lead else []
    sections.append(what_was_run(read.whole, runs, settings))
    return [sections[0], *(replace(section, folded=True) for section in sections[1:])]


def _evidence(counts: Counts, *settings: Any) -> Evidence:
    """Return the evidence on models not trained on other conditions; those only enter the score."""
    if not len(counts.cells) or counts.cells["trained_on"].astype(str).isin(["", ORIGINAL]).all():
        return Evidence(counts, *settings)
    return replace(Evidence(on_originals(counts), *settings), every=counts)


def _on_originals(rows: ReportRows) -> ReportRows:
    """Return the answers of models that were not trained here, or on originals."""
    known = (ds.field("trained_on") == ORIGINAL) | (ds.field("trained_on") == "")
    return ReportRows(rows.runs, rows.dataset.filter(known))


def _without_walks(rows: ReportRows) -> ReportRows:
    """Return the rows of static conditions; latent walks differ per image, so they share no average."""
    if not rows.dataset.count_rows(filter=_WALKED):
        return rows
    return ReportRows(rows.runs_with(~_WALKED), rows.dataset.filter(~_WALKED))


def _walk_sections(
    rows: ReportRows, resampling: dict[str, Any], votes: Votes | None, attributes: Mapping[str, Mapping[str, str]]
) -> list[Section]:
    walks = read_walks(rows)
    if walks is None:
        notice = Notice("No walk of any image ended; the reasons are below.")
        return [Section("dynamic", DYNAMIC_TITLE, parts=[notice])]
    people = [] if votes is None else [corrected_by_people(walks, votes, **resampling)]
    main = dynamic_section(walks, **resampling, attributes=attributes)
    return [main, *people, ends_of_walks(walks), stopped(walks), filmstrips(walks)]


def _static_sections(
    evidence: Evidence, rows: ReportRows, pictures: RunPictures | None, steps: Sequence[tuple[str, str]] = ()
) -> list[Section]:
    if not evidence.models:
        notice = Notice("No model answered for any photo; the reasons are below.")
        return [Section("verdict", "Verdict", parts=[notice])]
    harmed = most_harmed(evidence)
    if evidence.all_early:  # the other sections have intervals that an early stop makes too narrow
        pictured = [gallery(evidence, rows, harmed, pictures), worst(evidence, rows, harmed, pictures)]
        return [front(evidence, rows, pictures, steps), early_numbers(evidence), *pictured]
    return [
        front(evidence, rows, pictures, steps),
        scores(evidence),
        scenarios(evidence),
        maps(evidence),
        *families(evidence),
        *groups(evidence),
        *shape_and_texture(evidence),
        *corruptions(evidence),
        *failure_point_section(evidence, rows, pictures),
        comparison(evidence),
        fit(evidence),
        confidence(evidence),
        *grid(evidence, rows, pictures),
        gallery(evidence, rows, harmed, pictures),
        worst(evidence, rows, harmed, pictures),
    ]


def html_summary(
    counts: Counts,
    *,
    resamples: int = 1000,
    score_conditions: ScoreConditions | None = None,
    background_conditions: ScoreConditions | None = None,
    rounds: Mapping[str, RoundPlan] | None = None,
) -> str:
    """Return the verdicts and the table of scores as HTML for a notebook; options as in ``build`` and ``Evidence``."""
    evidence = _evidence(counts, "full", "macro", resamples, 0, score_conditions, background_conditions)
    evidence = replace(evidence, rounds=rounds or {})
    template = templates().get_template("summary.html.j2")
    if not evidence.models:
        return str(template.render(verdicts=[], table=None, facts=_facts(evidence)))
    table = verdict_table(evidence) if evidence.all_early else score_table(evidence, score_frame(evidence))
    return str(template.render(verdicts=verdict_items(evidence), table=table, facts=_facts(evidence)))


def _facts(evidence: Evidence) -> list[tuple[str, str]]:
    counts = evidence.counts
    photos = counts.cells["source_id"].nunique() if len(counts.cells) else 0
    return page_facts(
        (len(evidence.models), "model"),
        (photos, "photo"),
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


def _limits(evidence: Evidence, *, walks: bool) -> str:
    counts = evidence.counts
    outcome = "over all outputs of a model" if evidence.outcome == "full" else "among the dataset's classes only"
    average = (
        "every class counts the same (macro)" if evidence.average == "macro" else "every photo counts the same (micro)"
    )
    text = (
        f"Right means right {outcome}; in averages, {average}. Intervals are at the 95 % level and treat photos, not "
        "answers, as independent."
    )
    if evidence.rounds:
        text += " " + early_words(evidence)
    if walks:
        text += " Latent walks state their own label space, and every image counts the same in them."
    if len(counts.cells):
        photos = counts.cells["source_id"].nunique()
        text += f" What {plural(photos, 'photo')} cannot show, this report does not claim."
    text += _unanswered(evidence)
    if ORIGINAL not in counts.conditions:
        text += " The originals were not among the conditions, so drops and verdicts are missing."
    return text
