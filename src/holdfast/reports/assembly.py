"""The report of one or several runs: it asks every registered section whether it applies, and writes the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.votes import Votes
from holdfast.reports.measured import measure_sections
from holdfast.reports.page.evidence import Analysis, ScoreConditions
from holdfast.reports.page.parts import Front, RunPictures, Section
from holdfast.reports.page.sections import LAST, ReportEvidence, classified_evidence, in_order
from holdfast.reports.page.writer import about_runs, chart_library, templates, write_page
from holdfast.reports.static.front import classified_front, facts_of, verdict_items
from holdfast.reports.static.verdicts import score_frame, score_table, verdict_table
from holdfast.reports.trained.detection import build_detection, is_telltale
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.cells import Average
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.sequential import RoundPlan
from holdfast.store import Run


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

    ``pictures``: makes JPEG thumbnails of some images of a run. ``note``: what a reader must know first; drawn scenes
    have their own note. ``steps``: what to do first, each with a command or nothing. ``votes``: of people on accepted
    images of walks, which correct FMR. ``score_conditions``: returns the conditions of the robustness score; by default
    all that keep the object. ``background_conditions``: those that leave the object as it is, for the score over these.
    """
    if is_telltale(runs):  # its classes are kinds of images, so verdicts and scores mean nothing there
        return build_detection(runs, out, note=note)
    report = ReportEvidence(
        runs, outcome, average, resamples, seed, score_conditions, background_conditions, analysis or Analysis(),
        pictures, votes, steps,
    )  # fmt: skip
    if votes is not None and "walks" not in report.tasks:
        raise UserError("--votes corrects FMR, but these runs have no latent walks; holdfast perturb makes them")
    with ThreadPoolExecutor(1) as thread:
        # Bundling the chart library takes a second outside Python, so it runs while the statistics are computed.
        library = thread.submit(chart_library)
        sections, front = report_sections(report), page_front(report)
        library.result()
    return write_page(front, sections, out, **about_runs(runs, note))


def page_front(report: ReportEvidence) -> Front:
    """Return the first screen: of the first section that has one, else that of classifiers."""
    for section in in_order().values():
        if section.front is not None and section.applies(report) and (front := section.front(report)) is not None:
            return front
    return classified_front(report)


def report_sections(report: ReportEvidence) -> list[Section]:
    """Return all sections in the order of the page."""
    known = in_order()
    by_name = {name: section.sections(report) for name, section in known.items()}
    own = [each for name in known if name not in LAST for each in by_name[name]]
    last = [each for name in LAST for each in by_name[name]]
    shown = {name for each in known.values() for name in each.measures}
    return [*own, *measure_sections(report, shown), *last]


def html_summary(
    counts: Counts,
    *,
    resamples: int = 1000,
    score_conditions: ScoreConditions | None = None,
    background_conditions: ScoreConditions | None = None,
    rounds: Mapping[str, RoundPlan] | None = None,
) -> str:
    """Return the verdicts and the table of scores as HTML for a notebook; options as in ``build`` and ``Evidence``."""
    evidence = classified_evidence(
        counts,
        resamples=resamples,
        score_conditions=score_conditions,
        background_conditions=background_conditions,
        rounds=rounds or {},
    )
    template = templates().get_template("summary.html.j2")
    if not evidence.models:
        return str(template.render(verdicts=[], table=None, facts=facts_of(evidence)))
    table = verdict_table(evidence) if evidence.all_early else score_table(evidence, score_frame(evidence))
    return str(template.render(verdicts=verdict_items(evidence), table=table, facts=facts_of(evidence)))
