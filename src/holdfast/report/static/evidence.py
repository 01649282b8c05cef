"""Every statistic of the report, computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.core.conditions import condition_words, without_object
from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.report.page.words import short_names
from holdfast.stats.core import cells as cell_statistics
from holdfast.stats.core.cells import Average
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects import drops as drop_statistics
from holdfast.stats.effects.confidence import background_auroc, calibration
from holdfast.stats.effects.interaction import Interaction, interaction
from holdfast.stats.effects.score import scores
from holdfast.stats.effects.verdict import what_it_holds
from holdfast.stats.models import between
from holdfast.stats.models.between import Between
from holdfast.stats.regression.fit import Regression, cells_from_counts, fit

if TYPE_CHECKING:
    import pandas as pd

RESAMPLES = 2000

ScoreConditions = Callable[[Counts], Sequence[str]]
"""Which conditions the robustness score is over; by default all that keep the object."""


@dataclass(frozen=True)
class Evidence:
    """Counts, and what follows from them, each when it is first asked for.

    In all frames ``model`` is the display name: with what it was trained on, where that is not the originals.
    """

    counts: Counts
    outcome: Outcome = "full"
    average: Average = "macro"
    resamples: int = RESAMPLES
    seed: int = 0
    score_conditions: ScoreConditions | None = None
    background_conditions: ScoreConditions | None = None
    every: Counts | None = None
    """With models trained on other conditions, which only the score's inner part is about; None: there are none."""

    @cached_property
    def models(self) -> list[str]:
        """Of the rows that have an answer, by their mean accuracy over conditions that keep the object, best first."""
        if self.summary.empty:
            return []
        means = self.with_object(self.summary).groupby("model")["accuracy"].mean()
        means = means.reindex(sorted(self.summary["model"].unique()))
        return [str(name) for name in means.sort_values(ascending=False, kind="stable").index]

    @cached_property
    def short(self) -> dict[str, str]:
        """Model → a name that fits beside a chart."""
        return short_names(self.models)

    def name(self, model: str) -> str:
        """The short name of a model."""
        return self.short.get(model, model)

    @cached_property
    def conditions(self) -> list[str]:
        """The original first, then the most harmful, then attacks, at the end those that take the object away."""
        if self.summary.empty:
            return []
        means = self.summary.groupby("condition")["accuracy"].mean()
        last = dict.fromkeys(self.counts.attacks, 1) | {name: 2 for name in means.index if without_object(name)}
        return sorted(means.index, key=lambda name: (name != ORIGINAL, last.get(name, 0), means[name], name))

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Accuracy per model × condition."""
        if self.counts.cells.empty:
            return self.counts.cells.assign(accuracy=0.0)
        return named(cell_statistics.summary(self.counts, outcome=self.outcome, average=self.average))

    @cached_property
    def classes(self) -> pd.DataFrame:
        """Accuracy per model × condition × class."""
        return named(cell_statistics.accuracy(self.counts, outcome=self.outcome))

    @cached_property
    def drops(self) -> pd.DataFrame:
        """What each condition costs each model."""
        from holdfast.stats.core.grid import holm

        frame = drop_statistics.drops(
            self.counts, outcome=self.outcome, average=self.average, resamples=self.resamples, seed=self.seed
        )
        frame = named(frame)
        family = self.with_object(frame).index
        frame["p_holm"] = float("nan")
        frame.loc[family, "p_holm"] = holm(frame.loc[family, "p"].to_numpy())
        return frame

    @cached_property
    def ranking(self) -> Between:
        """Models by mean accuracy over conditions."""
        return between.ranking(
            self.counts, outcome=self.outcome, average=self.average, resamples=self.resamples, seed=self.seed
        )

    @cached_property
    def pairs(self) -> Between:
        """Every two models."""
        return between.pairs(
            self.counts, outcome=self.outcome, average=self.average, resamples=self.resamples, seed=self.seed
        )

    @cached_property
    def pairs_by_condition(self) -> Between:
        """Every two models under every condition."""
        return between.pairs(
            self.counts,
            outcome=self.outcome,
            average=self.average,
            by_condition=True,
            resamples=self.resamples,
            seed=self.seed,
        )

    @cached_property
    def regression(self) -> Regression:
        """Accuracy ~ model + scenario + class."""
        return fit(cells_from_counts(self.counts, outcome=self.outcome))

    @cached_property
    def interaction(self) -> Interaction | str:
        """Whether models differ in their drops; a sentence where that cannot be asked."""
        try:
            return interaction(self.counts, outcome=self.outcome, resamples=self.resamples, seed=self.seed)
        except UserError as error:
            return str(error)

    @cached_property
    def holds(self) -> pd.DataFrame:
        """What each model holds on to."""
        return named(
            what_it_holds(
                self.counts, outcome=self.outcome, average=self.average, resamples=self.resamples, seed=self.seed
            )
        )

    @cached_property
    def scores(self) -> pd.DataFrame | str:
        """The robustness score; a sentence where there is none."""
        if self.score_conditions is None:
            wanted = [
                name for name in self.counts.conditions if not without_object(name) and name not in self.counts.attacks
            ]
        else:
            wanted = list(self.score_conditions(self.counts))
        return self._scores_over(wanted)

    @cached_property
    def background_scores(self) -> pd.DataFrame | str:
        """The score over the conditions that change nothing but the background; a sentence where there is none."""
        if self.background_conditions is None:
            return "Nobody said which conditions change nothing but the background."
        return self._scores_over(self.background_conditions(self.counts))

    def _scores_over(self, conditions: Sequence[str]) -> pd.DataFrame | str:
        try:
            return scores(
                self.counts if self.every is None else self.every,
                conditions=[name for name in conditions if name != ORIGINAL],
                outcome=self.outcome,
                average=self.average,
                resamples=self.resamples,
                seed=self.seed,
            )
        except UserError as error:
            return str(error)

    @cached_property
    def calibration(self) -> pd.DataFrame:
        """Confidence per model × condition."""
        return named(calibration(self.counts))

    @cached_property
    def background_auroc(self) -> pd.DataFrame:
        """Originals against empty backgrounds, by confidence."""
        return named(background_auroc(self.counts))

    def with_object(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of conditions that leave the object in, each set of images once, without attacks."""
        left_out = {*self.counts.same_images, *self.counts.attacks}
        kept = [name for name in self.counts.conditions if not without_object(name) and name not in left_out]
        return frame[frame["condition"].isin(kept)]


def shown(condition: str) -> str:
    """Return a condition as words, with a dagger where the object is gone."""
    return condition_words(condition) + (" †" if without_object(condition) else "")


DAGGER = "† The object is not in the picture: a right answer there comes from something else."


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """With the display name as ``model``."""
    if "trained_on" not in frame or frame.empty:
        return frame
    other = ~frame["trained_on"].isin(["", ORIGINAL])
    names = frame["model"].astype(str)
    return frame.assign(model=names.where(~other, names + " trained on " + frame["trained_on"].astype(str)))
