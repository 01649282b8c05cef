"""The answers of detectors in a report, and the statistics of them, each computed when it is first used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.dataset as ds

from holdfast.core.lazy import pd
from holdfast.core.schema import DETECTIONS, IMAGES, OBJECTS
from holdfast.core.types import ORIGINAL
from holdfast.reports.page.evidence import details
from holdfast.reports.page.words import page_facts, plural, short_names
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.effects.verdict import with_copies
from holdfast.stats.objects.answers import DETECT, DetectorAnswers, detector_answers
from holdfast.stats.objects.effects import objects_under_conditions
from holdfast.stats.objects.verdict import what_detectors_hold
from holdfast.store import Run, as_photos, copies_of

DETECTED = ds.field("task") == DETECT


@dataclass(frozen=True)
class DetectorEvidence:
    """The answers of detectors."""

    runs: Sequence[Run]  # the runs that have some
    answers: DetectorAnswers  # images, objects and predictions
    resamples: int = RESAMPLES
    seed: int = 0

    @cached_property
    def table(self) -> pd.DataFrame:
        """All numbers per model and condition."""
        return objects_under_conditions(self.answers, resamples=self.resamples, seed=self.seed)

    @cached_property
    def holds(self) -> pd.DataFrame:
        """A verdict per model."""
        verdicts = what_detectors_hold(self.answers, self.table, resamples=self.resamples, seed=self.seed)
        return with_copies(verdicts, len(copies_of(self.runs)))

    @cached_property
    def models(self) -> list[str]:
        """Models, the highest mean recall first."""
        means = self.table.groupby("model")["recall"].mean()
        return sorted(means.index, key=lambda name: (-means[name], name))

    @cached_property
    def conditions(self) -> list[str]:
        """Conditions: the original first, then by recall, the lowest first; those without objects last."""
        means = self.table.groupby("condition")["recall"].mean()
        return sorted(means.index, key=lambda name: (name != ORIGINAL, means[name] != means[name], means[name], name))

    @cached_property
    def short(self) -> dict[str, str]:
        """Names that fit next to a chart."""
        return short_names(self.models)

    @cached_property
    def worst_model(self) -> str:
        """The model that loses most recall over all conditions, which the images are about."""
        drops = self.table.groupby("model")["recall_drop"].mean().fillna(0)
        return str(drops.sort_values(ascending=False, kind="stable").index[0])

    def facts(self) -> list[tuple[str, str]]:
        """Return the numbers at the top of a page that is about detectors only."""
        pictures, objects = self.answers.pictures, self.answers.objects
        return page_facts(
            (len(self.answers.models), "model"),
            (len(self.answers.sources), "image"),
            (len(objects[["sample_id", "object_id"]].drop_duplicates()), "object"),
            (len(self.answers.labels), "class", "classes"),
            (len(self.answers.conditions), "condition"),
            (len(pictures), "image answered", "images answered"),
        )

    def limits(self) -> str:
        """Return what the numbers mean."""
        text = (
            "An object is found when a prediction of its class at the threshold overlaps it by half or more (IoU). "
            "Thresholds were set on the originals and then kept. Every object counts the same; intervals are at the "
            "95 % level and treat images, not objects, as independent. What "
            f"{plural(len(self.answers.sources), 'image')} cannot show, this report does not claim."
        )
        missing = len(self.answers.failed)
        total = missing + len(self.answers.pictures)
        return text + (f" {missing:,} of {total:,} images have no answer and count nowhere." if missing else "")


def read_boxes(runs: Sequence[Run]) -> DetectorAnswers:
    """Return images, objects and predictions of runs of detectors, each row once."""
    row_ids = {
        name
        for run in runs
        for name in run.predictions.dataset().to_table(columns=["row_id"], filter=DETECTED)["row_id"].to_pylist()
    }
    objects, images, detections = detector_tables(runs)
    copies = copies_of(runs)
    return detector_answers(as_photos(objects, copies), as_photos(images, copies), detections, row_ids=row_ids)


def detector_tables(runs: Sequence[Run]) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return objects, images and detections of all runs."""
    return details(runs, "objects", OBJECTS), details(runs, "images", IMAGES), details(runs, "detections", DETECTIONS)
