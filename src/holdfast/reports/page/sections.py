"""What a report is made of: its evidence, read when it is first asked for, and sections that say whether they apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.dataset as ds

from holdfast import registry
from holdfast.core.lazy import pd
from holdfast.core.names import SWEEPS
from holdfast.core.types import ORIGINAL
from holdfast.reports.page.evidence import (
    Analysis,
    Evidence,
    ReportRows,
    ScoreConditions,
    join_runs,
    on_originals,
    recorded_rounds,
    rows_of_tasks,
    trained,
)
from holdfast.reports.page.parts import Front, RunPictures, Section
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.cells import Average
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.walks.walk_rows import DYNAMIC, RANDOM_WALK
from holdfast.store import Run

if TYPE_CHECKING:
    from holdfast.core.votes import Votes

T = TypeVar("T")

LAST = ("errors", "run")  # the sections at the end of every report

_WALKED = ds.field("kind") == DYNAMIC
_SWEPT = ds.field("condition").isin(list(SWEEPS)) & (ds.field("task") == "classify")
NO_FAILURE = _WALKED & (
    (ds.field("status") == "rejected") | ((ds.field("condition") == RANDOM_WALK) & (ds.field("status") == "skipped"))
)  # Walks that the oracle rejected at once, and the random walks that these lack: outcomes, not errors


@dataclass(frozen=True)
class ReportEvidence:
    """The rows of the runs of a report, and what follows from them.

    Args:
        runs: the runs, of one dataset.
        outcome: right over all outputs of a model (``full``) or among the dataset's classes (``restricted``).
        average: ``macro`` or ``micro``.
        resamples: number of resamples of every bootstrap.
        seed: seed of every bootstrap.
        score_conditions: returns the conditions of the robustness score.
        background_conditions: returns the conditions that leave the object unchanged.
        analysis: groups, reference levels and attributes.
        pictures: makes JPEG thumbnails of some images of a run; None if there are none.
        votes: of people on accepted images of walks.
        steps: what to do first, each with a command or nothing.
    """

    runs: Sequence[Run]
    outcome: Outcome = "full"
    average: Average = "macro"
    resamples: int = RESAMPLES
    seed: int = 0
    score_conditions: ScoreConditions | None = None
    background_conditions: ScoreConditions | None = None
    analysis: Analysis = field(default_factory=Analysis)
    pictures: RunPictures | None = None
    votes: Votes | None = None
    steps: Sequence[tuple[str, str]] = ()
    _read: dict[Any, Any] = field(default_factory=dict, repr=False)

    def once(self, reader: Callable[[ReportEvidence], T]) -> T:
        """Return what a function reads from this evidence; sections that share a reader read once."""
        if reader not in self._read:
            self._read[reader] = reader(self)
        return self._read[reader]  # type: ignore[no-any-return]

    @property
    def resampling(self) -> dict[str, int]:
        """Number of resamples and seed, as keyword arguments."""
        return {"resamples": self.resamples, "seed": self.seed}

    @property
    def settings(self) -> dict[str, Any]:
        """Outcome, average, resamples and seed, as keyword arguments."""
        return {"outcome": self.outcome, "average": self.average, **self.resampling}

    @cached_property
    def rows(self) -> ReportRows:
        """All rows, each once."""
        return join_runs(self.runs)

    @cached_property
    def static(self) -> ReportRows:
        """The rows without latent walks and sweeps: those share no average with others, these have their section."""
        if "walks" not in self.tasks and not self.rows.dataset.count_rows(filter=_SWEPT):
            return self.rows
        chosen = ~(_WALKED | _SWEPT)
        return ReportRows(self.rows.runs_with(chosen), self.rows.dataset.filter(chosen))

    def measure(self, name: str) -> pd.DataFrame:
        """Return the table of a registered measure; UserError if it cannot be computed."""
        measure = registry.measures.get(name)
        return measure.of(self.rows.photos(list(measure.reads), rows_of_tasks(measure.tasks)).to_pandas())

    @cached_property
    def counts(self) -> Counts:
        """Counts of the predictions of classifiers under static conditions."""
        return self.static.counts()

    @cached_property
    def classified(self) -> Evidence:
        """The evidence on classifiers that were not trained in these runs, or on originals; others enter the score."""
        asked = self.settings | {
            "score_conditions": self.score_conditions,
            "background_conditions": self.background_conditions,
            "analysis": self.analysis,
            "rounds": recorded_rounds(self.runs),
        }
        return classified_evidence(self.counts, **asked)

    @cached_property
    def whole(self) -> Evidence:
        """The evidence on all predictions of classifiers, those on walked images included."""
        rounds = recorded_rounds(self.runs)
        if "walks" in self.tasks:
            return Evidence(self.rows.counts(~NO_FAILURE), self.outcome, self.average, rounds=rounds)
        return Evidence(self.counts, **self.settings, rounds=rounds)

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks of the rows; ``walks`` if images were walked."""
        return list(dict.fromkeys(task for run in self.runs for task in run.tasks()))

    @property
    def has_classified(self) -> bool:
        """Whether a row is of a classifier: only then verdicts and errors of classification mean something."""
        return not {"classify", "walks"}.isdisjoint(self.tasks) or not self.tasks

    @cached_property
    def trained(self) -> list[Run]:
        """The runs in which classifiers were trained."""
        return trained(self.runs)

    @cached_property
    def is_static(self) -> bool:
        """Whether static conditions have classifiers other than those that were trained within them."""
        only_within = bool(self.trained) and not self.classified.models and len(self.counts.cells) > 0
        return bool(self.static.runs) and self.has_classified and not only_within

    @cached_property
    def static_rows(self) -> ReportRows:
        """The rows behind ``classified``."""
        if self.classified.every is None:
            return self.static
        known = (ds.field("trained_on") == ORIGINAL) | (ds.field("trained_on") == "")
        return ReportRows(self.runs, self.static.dataset.filter(known))


def classified_evidence(counts: Counts, **settings: Any) -> Evidence:
    """Return the evidence on models not trained on other conditions; those only enter the score."""
    if not len(counts.cells) or counts.cells["trained_on"].astype(str).isin(["", ORIGINAL]).all():
        return Evidence(counts, **settings)
    return replace(Evidence(on_originals(counts), **settings), every=counts)


def always(_: ReportEvidence) -> bool:
    """Return True: the section applies to every report."""
    return True


def answered(report: ReportEvidence) -> bool:
    """Return whether classifiers have predictions, also those that were asked in rounds and stopped early."""
    return report.is_static and bool(report.classified.models)


def usual(report: ReportEvidence) -> bool:
    """Return whether classifiers have predictions on a number of images that was fixed beforehand."""
    return answered(report) and not report.classified.all_early


def of_task(name: str) -> Callable[[ReportEvidence], bool]:
    """Return the rule of a section that applies if some rows are of a task."""
    return lambda report: name in report.tasks


@dataclass(frozen=True)
class ReportSection:
    """A section of reports, as ``holdfast.registry.sections`` holds it.

    Args:
        build: makes the section from the evidence, or several, or none (an empty list).
        applies: says whether the section belongs into the report of this evidence.
        front: makes the first screen of reports that have nothing more general; returns None if it has none.
        template: Jinja source of what is below the heading; it knows ``section`` (what ``build`` returned, with
            its ``data``) and ``parts`` (the macros of tables, figures, galleries …). Empty: lead, then parts.
        after: name of the section that it follows; by default it comes before errors and provenance.
        measures: names of measures that it shows; they get no table of their own.
    """

    build: Callable[[ReportEvidence], Section | Sequence[Section]]
    applies: Callable[[ReportEvidence], bool] = always
    front: Callable[[ReportEvidence], Front | None] | None = None
    template: str = ""
    after: str = ""
    measures: tuple[str, ...] = ()

    def sections(self, evidence: ReportEvidence) -> list[Section]:
        """Return what it adds to a report: nothing if it does not apply."""
        if not self.applies(evidence):
            return []
        built = self.build(evidence)
        given = [built] if isinstance(built, Section) else list(built)
        return [replace(each, template=self.template) for each in given] if self.template else given


def in_order() -> dict[str, ReportSection]:
    """Return all registered sections by name, in the order of the page."""
    known = {name: registry.sections.get(name) for name in registry.sections}
    first = [name for name in known if name not in LAST and known[name].after not in known]
    order = [*first, *LAST]
    for name in known:
        if name not in order:
            after = known[name].after
            order.insert(order.index(after) + 1 if after in order else len(first), name)
    return {name: known[name] for name in order if name in known}
