"""Section: the objects of detectors by attributes of their images."""

from __future__ import annotations

from holdfast.reports.objects.section import detected
from holdfast.reports.page.evidence import Evidence
from holdfast.reports.page.parts import Section
from holdfast.reports.page.sections import ReportEvidence, ReportSection
from holdfast.reports.static.families import groups
from holdfast.stats.core.reduce import reduce
from holdfast.stats.objects.answers import DETECT


def _groups(report: ReportEvidence) -> list[Section]:
    answers = report.once(detected).answers
    if not len(answers.counted):
        return []
    objects = reduce(answers.as_classified())
    return groups(
        Evidence(objects, average="micro", resamples=report.resamples, seed=report.seed, analysis=report.analysis),
        "object",
    )


OBJECT_GROUPS = ReportSection(
    _groups, lambda report: DETECT in report.tasks and bool(report.analysis.attributes), after="detectors"
)
