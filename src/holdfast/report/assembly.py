"""A report of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.core.votes import Votes
from holdfast.report.attribution.section import looking, read_looks
from holdfast.report.page import writer as page
from holdfast.report.page.parts import Notice, Section
from holdfast.report.page.words import listing, plural
from holdfast.report.people.fmr import corrected
from holdfast.report.questions.questions import ASKED, Asked, asked, question_section
from holdfast.report.static.accuracy import maps, scenarios
from holdfast.report.static.comparison import comparison
from holdfast.report.static.confidence import confidence
from holdfast.report.static.corruptions import corruptions
from holdfast.report.static.evidence import RESAMPLES, Evidence, ScoreConditions
from holdfast.report.static.gallery import Pictures, gallery, most_harmed, worst
from holdfast.report.static.provenance import trouble, what_was_run
from holdfast.report.static.regression import fit
from holdfast.report.static.rows import Rows, join
from holdfast.report.static.verdicts import score_frame, score_table, scores, verdict, verdict_items
from holdfast.report.study import about_world
from holdfast.report.trained.detection import build_detection, is_detection
from holdfast.report.trained.segmentation import segmentation
from holdfast.report.trained.segmented import SEGMENTED, Segmented, found_in
from holdfast.report.trained.training import on_originals, trained, training
from holdfast.report.walks.evidence import walked
from holdfast.report.walks.filmstrip import filmstrips
from holdfast.report.walks.section import TITLE as DYNAMIC_TITLE
from holdfast.report.walks.section import dynamic
from holdfast.report.walks.stopped import stopped
from holdfast.stats.core.cells import Average
from holdfast.stats.core.reduce import Counts, Outcome, reduce
from holdfast.stats.walks.walk_rows import DYNAMIC, RANDOM_WALK
from holdfast.store import Run

TITLE = "What the models hold on to"
_ONE_MODEL = "What the model holds on to"

_WALKED = ds.field("kind") == DYNAMIC
_NO_FAILURE = _WALKED & (
    (ds.field("status") == "rejected") | ((ds.field("condition") == RANDOM_WALK) & (ds.field("status") == "skipped"))
)
"""Walks that the oracle ended at once, and the baselines they have none of: outcomes, not trouble."""


def build(
    runs: Sequence[Run],
    out: Path,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    pictures: Pictures | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    score_conditions: ScoreConditions | None = None,
    background_conditions: ScoreConditions | None = None,
    note: str = "",
    votes: Votes | None = None,
) -> Path:
    """Write ``index.html``, ``figures/`` and ``tables/`` into a folder, and return the page's path.

    Args:
        runs: one or several, of one dataset.
        out: the folder; files of an earlier report are replaced.
        outcome: right over all outputs of a model, or among the dataset's classes only.
        average: every class counts the same, or every photo does.
        pictures: makes JPEG thumbnails of some photos of a run, by (sample_id, condition name).
        resamples: of every bootstrap.
        seed: of every bootstrap.
        note: what a reader must know first, at the top of the page; drawn scenes bring their own.
        votes: of people who were shown accepted images of walks, by which FMR is corrected.
        score_conditions: which conditions the robustness score is over; by default all that keep the object.
        background_conditions: which of them leave the object as it is, for the score over those; by default none.
    """
    if is_detection(runs):  # kinds of pictures are no classes that a model holds on to
        return build_detection(runs, out, note=note)
    settings: dict[str, Any] = {"outcome": outcome, "average": average, "resamples": resamples, "seed": seed}
    read = _read(runs, settings, score_conditions, background_conditions)
    if votes is not None and not read.walks:
        raise UserError("--votes corrects FMR, and there is no latent walk here; holdfast perturb makes them")
    with ThreadPoolExecutor(1) as aside:
        # The chart library is bundled while the statistics are computed: that takes a second and no Python.
        library = aside.submit(page.chart_library)
        sections = _sections(read, settings, pictures, votes)
        library.result()
    alone, told = read.alone, read.told
    try:
        return page.write(
            sections,
            out,
            title=alone.title if alone else TITLE if len(told.models) != 1 else _ONE_MODEL,
            subject=_subject(runs),
            facts=alone.facts() if alone else _facts(told),
            limits=alone.limits() if alone else _limits(read.whole, walks=read.walks),
            note=note or _world(runs),
            run_names=listing([run.run_id for run in runs], 6),
        )
    except OSError as error:
        raise UserError(f"cannot write the report to {out}: {error.strerror}") from error


@dataclass(frozen=True)
class _Read:
    """What the rows of a report hold.

    Attributes:
        runs: as given.
        rows: of all of them.
        still: those without latent walks.
        counts: of the answers under static conditions.
        evidence: of models trained on originals or not here, under static conditions.
        whole: of everything that was answered.
        questions: what was asked of models that talk, if anything was.
        segmented: what was segmented, if anything was.
        alone: the one of the two that a run holds and nothing else; it then tells its own title and facts.
    """

    runs: Sequence[Run]
    rows: Rows
    still: Rows
    counts: Counts
    evidence: Evidence
    whole: Evidence
    questions: Asked | None
    segmented: Segmented | None
    alone: Asked | Segmented | None

    @property
    def walks(self) -> bool:
        """Whether there are latent walks."""
        return self.still is not self.rows

    @property
    def told(self) -> Evidence:
        """Whose models the page is about."""
        return self.evidence if self.evidence.every is not None and self.evidence.models else self.whole


def _read(runs: Sequence[Run], settings: dict[str, Any], *conditions: ScoreConditions | None) -> _Read:
    rows = join(runs)
    still = _without_walks(rows)
    counts = reduce(still.dataset)
    whole = Evidence(counts, **settings)
    if still is not rows:
        whole = Evidence(reduce(rows.dataset.filter(~_NO_FAILURE)), settings["outcome"], settings["average"])
    questions = asked(rows)
    segmented = found_in(rows, resamples=settings["resamples"], seed=settings["seed"])
    # A run of questions or segments only has no rows that conditions, scores and errors of classification are about.
    alone = None if rows.dataset.count_rows(filter=~ASKED & ~SEGMENTED) else questions or segmented
    evidence = _evidence(counts, *settings.values(), *conditions)
    return _Read(runs, rows, still, counts, evidence, whole, questions, segmented, alone)


def _sections(read: _Read, settings: dict[str, Any], pictures: Pictures | None, votes: Votes | None) -> list[Section]:
    """Everything the rows tell, in the order of the page."""
    evidence, runs = read.evidence, read.runs
    drawn = {"resamples": settings["resamples"], "seed": settings["seed"]}
    # A run of models that were only trained and tested within scenarios has nothing else to tell.
    only_within = bool(trained(runs)) and not evidence.models and len(read.counts.cells) > 0
    sections = []
    if read.still.runs and read.alone is None and not only_within:
        sections = _static_sections(evidence, _on_originals(read.still) if evidence.every else read.still, pictures)
    if trained(runs):
        sections.insert(2 if len(sections) > 2 else 0, training(trained(runs), Evidence(read.counts, **settings)))
    looks = read_looks(runs)
    sections += [] if looks is None else [looking(looks, **drawn)]
    sections += [] if read.questions is None else [question_section(read.questions, pictures)]
    sections += [] if read.segmented is None else [segmentation(read.segmented)]
    sections += _walk_sections(read.rows, drawn, votes) if read.walks else []
    errors = trouble(read.whole, runs, ended=read.rows.dataset.count_rows(filter=_NO_FAILURE))
    if read.alone is not None:
        errors.lead = errors.lead[1:]  # of classified rows; questions tell their own
    sections += [errors] if errors.lead else []
    return [*sections, what_was_run(read.whole, runs, settings)]


def _evidence(counts: Counts, *settings: Any) -> Evidence:
    """The evidence of models trained on originals or not here; those trained on other conditions enter the score."""
    if not len(counts.cells) or counts.cells["trained_on"].astype(str).isin(["", ORIGINAL]).all():
        return Evidence(counts, *settings)
    return replace(Evidence(on_originals(counts), *settings), every=counts)


def _on_originals(rows: Rows) -> Rows:
    """The answers of models trained on originals or not here."""
    known = (ds.field("trained_on") == ORIGINAL) | (ds.field("trained_on") == "")
    return Rows(rows.runs, rows.dataset.filter(known))


def _without_walks(rows: Rows) -> Rows:
    """The rows of static conditions. In latent walks each image moves its own way, so they share no average."""
    if not rows.dataset.count_rows(filter=_WALKED):
        return rows
    runs = [run for run in rows.runs if run.predictions.dataset().count_rows(filter=~_WALKED)]
    return Rows(runs, rows.dataset.filter(~_WALKED))


def _walk_sections(rows: Rows, drawn: dict[str, Any], votes: Votes | None) -> list[Section]:
    walks = walked(rows)
    if walks is None:
        notice = Notice("No walk of any image ended; the reasons are below.")
        return [Section("dynamic", DYNAMIC_TITLE, parts=[notice])]
    people = [] if votes is None else [corrected(walks, votes, **drawn)]
    return [dynamic(walks, **drawn), *people, stopped(walks), filmstrips(walks)]


def _static_sections(evidence: Evidence, rows: Rows, pictures: Pictures | None) -> list[Section]:
    """What static conditions show."""
    if not evidence.models:
        notice = Notice("No model answered for any photo; the reasons are below.")
        return [Section("verdict", "Verdict", parts=[notice])]
    harmed = most_harmed(evidence)
    return [
        verdict(evidence),
        scores(evidence),
        scenarios(evidence),
        maps(evidence),
        *corruptions(evidence),
        comparison(evidence),
        fit(evidence),
        confidence(evidence),
        gallery(evidence, rows, harmed, pictures),
        worst(evidence, rows, harmed),
    ]


def html_summary(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    resamples: int = 1000,
    seed: int = 0,
    score_conditions: ScoreConditions | None = None,
    background_conditions: ScoreConditions | None = None,
) -> str:
    """The verdicts and the table of scores as a piece of HTML for a notebook; options as of ``build``."""
    evidence = _evidence(counts, outcome, average, resamples, seed, score_conditions, background_conditions)
    template = page.templates().get_template("summary.html.j2")
    if not evidence.models:
        return str(template.render(verdicts=[], table=None, facts=_facts(evidence)))
    table = score_table(evidence, score_frame(evidence))
    return str(template.render(verdicts=verdict_items(evidence), table=table, facts=_facts(evidence)))


def _subject(runs: Sequence[Run]) -> str:
    names = dict.fromkeys(str(run.spec().get("dataset") or run.run_id) for run in runs)
    return listing(list(names))


def _facts(evidence: Evidence) -> list[tuple[str, str]]:
    counts = evidence.counts
    photos = counts.cells["source_id"].nunique() if len(counts.cells) else 0
    numbers = (
        (len(evidence.models), "model", "models"),
        (photos, "photo", "photos"),
        (len(counts.classes), "class", "classes"),
        (len(counts.conditions), "condition", "conditions"),
        (int(counts.cells["n"].sum()) if len(counts.cells) else 0, "answer", "answers"),
    )
    return [(f"{count:,}", one if count == 1 else many) for count, one, many in numbers]


def _world(runs: Sequence[Run]) -> str:
    """Every page that shows the embedded world says so."""
    return max(about_world(str(run.spec().get("data", ""))) for run in runs)


def _unanswered(evidence: Evidence) -> str:
    """Rows that no statistic counts, said where nobody can miss it."""
    trouble = evidence.counts.trouble
    trouble = trouble[trouble["status"] != "rejected"]  # by a stated filter: an outcome, told with the errors
    missing = int(trouble["n"].sum()) if len(trouble) else 0
    if not missing:
        return ""
    total = missing + (int(evidence.counts.cells["n"].sum()) if len(evidence.counts.cells) else 0)
    text = f" {missing:,} of {total:,} rows have no answer and count in no statistic: see errors and skipped images."
    silent = sorted(set(trouble["model"].astype(str)) - set(evidence.counts.cells["model"].astype(str)))
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
    if walks:
        text += " Latent walks state their own label space, and every image counts the same in them."
    if len(counts.cells):
        photos = counts.cells["source_id"].nunique()
        text += f" What {plural(photos, 'photo')} cannot show, this report does not claim."
    text += _unanswered(evidence)
    if ORIGINAL not in counts.conditions:
        text += " The originals were not among the conditions, so drops and verdicts are missing."
    return text
