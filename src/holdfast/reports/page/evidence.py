"""The rows of the runs, each row once, and every statistic of a report on classification, computed once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.names import condition_name, without_object
from holdfast.core.types import ORIGINAL, Families
from holdfast.reports.page.words import short_names
from holdfast.stats.core import cells as cell_statistics
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.cells import Average
from holdfast.stats.core.grid import holm
from holdfast.stats.core.reduce import Counts, Outcome, reduce
from holdfast.stats.effects import drops as drop_statistics
from holdfast.stats.effects.score import score_parts, scores
from holdfast.stats.effects.score_spread import Components
from holdfast.stats.effects.sequential import RoundPlan, sequential_verdicts
from holdfast.stats.effects.verdict import what_it_holds
from holdfast.stats.models.between import Between, ranking
from holdfast.stats.models.choice import ModelCost
from holdfast.stats.regression.fit import Family
from holdfast.store import Parts, Run, as_photos, copies_of

_COLUMNS = [
    "source_id", "sample_id", "condition", "variant", "parameters", "model", "trained_on", "label", "prediction",
    "correct", "prediction_restricted", "correct_restricted", "confidence", "status", "error",
]  # fmt: skip


@dataclass(frozen=True)
class ReportRows:
    """All rows, and the runs they come from."""

    runs: Sequence[Run]
    dataset: ds.Dataset

    @cached_property
    def copies(self) -> dict[str, str]:
        """Image → the image that it repeats, byte for byte."""
        return copies_of(self.runs)

    def counts(self, chosen: ds.Expression | None = None, *, order: list[str] | None = None) -> Counts:
        """Return the counts of all rows, or of those chosen."""
        rows = self.dataset if chosen is None else self.dataset.filter(chosen)
        return reduce(rows, order=order, copies=self.copies)

    def photos(self, columns: list[str], chosen: ds.Expression | None = None) -> pa.Table:
        """Return a table of the rows in which copies of an image are that image."""
        return as_photos(self.dataset.to_table(columns=columns, filter=chosen), self.copies)

    def runs_with(self, chosen: ds.Expression) -> list[Run]:
        """Return the runs that have some of the chosen rows."""
        return [run for run in self.runs if run.predictions.dataset().count_rows(filter=chosen)]


def details(runs: Sequence[Run], name: str, schema: pa.Schema) -> pa.Table:
    """Return a table of details of all runs."""
    return pa.concat_tables([Parts(run.path / "details" / name, schema).rows() for run in runs])


def join_runs(runs: Sequence[Run]) -> ReportRows:
    """Return the rows of all runs, each row once.

    Raises UserError if there is no run, if the runs have different datasets (their images cannot be paired),
    and where they hold different rows for the same model, image and condition.
    """
    if not runs:
        raise UserError("a report needs at least one run directory")
    if len(runs) == 1:
        return ReportRows(runs, runs[0].predictions.dataset())
    names = {run.spec().get("dataset") for run in runs}
    if len(names) > 1:
        known = ", ".join(sorted(str(name) for name in names))
        raise UserError(f"these runs have different datasets ({known}): make one report per dataset")
    parts = [run.predictions.dataset() for run in runs]
    ids = pa.chunked_array([chunk for part in parts for chunk in part.to_table(columns=["row_id"])["row_id"].chunks])
    whole = ds.dataset(parts)
    if pc.count_distinct(ids).as_py() < len(ids):
        table = whole.to_table()
        first = pa.table({"row_id": table["row_id"], "at": pa.array(range(len(table)))})
        kept = first.group_by("row_id").aggregate([("at", "min")])["at_min"]
        whole = ds.dataset(table.take(kept))
    _check_keys(whole)
    return ReportRows(runs, whole)


def rows_of_tasks(tasks: Collection[str]) -> ds.Expression:
    """Return the filter of the rows of some tasks; ``walks`` are latent walks, which ``classify`` leaves out."""
    walked = ds.field("kind") == "dynamic"
    plain = ds.field("task").isin([task for task in tasks if task != "walks"]) & ~walked
    return plain | walked if "walks" in tasks else plain


def recorded_rounds(runs: Sequence[Run]) -> dict[str, list[list[str]]]:
    """Return model → the images of each round, of runs that stopped as soon as they were sure."""
    return {
        str(model): spec["rounds"]
        for run, spec in ((run, run.spec()) for run in runs)
        if spec.get("rounds")
        for model in run.rows(["model"])["model"].unique().to_pylist()
    }


def _check_keys(rows: ds.Dataset) -> None:
    import duckdb

    with duckdb.connect() as database:
        database.register("rows", rows)
        twice = database.execute(
            """select model, condition from rows
            group by task, kind, dataset, sample_id, split, fold, condition, variant, parameters, seed, model,
                trained_on, protocol
            having count(*) > 1 limit 1"""
        ).fetchone()
    if twice:
        raise UserError(
            f"two of these runs have different answers of {twice[0]} under {twice[1]} to the same image (other weights "
            "or changed images): make one report per run"
        )


def answers(rows: ReportRows, sources: Collection[str], conditions: Collection[str]) -> pd.DataFrame:
    """Return the rows of some images, with ``name``: the condition's name as in ``stats.core.reduce``."""
    wanted = ds.field("source_id").isin(pa.array(sorted(sources), pa.string())) & (ds.field("task") == "classify")
    frame: pd.DataFrame = rows.dataset.to_table(columns=_COLUMNS, filter=wanted).to_pandas()
    for column in ("condition", "variant", "parameters", "model", "label", "prediction", "prediction_restricted"):
        frame[column] = frame[column].astype(object)
    known = set(conditions)
    rows_of = zip(frame["condition"], frame["variant"], frame["parameters"], strict=True)
    # reduce adds the parameters if the whole table has several of them
    frame["name"] = [name if (name := condition_name(*row[:2])) in known else condition_name(*row) for row in rows_of]
    return frame


ScoreConditions = Callable[[Counts], Sequence[str]]
"""Returns the conditions that the robustness score is about; the default is all that keep the object."""


ScenarioFamilies = Callable[[Counts, Families], Mapping[str, str]]
"""Returns condition → family of scenarios, for the drop per family."""


@dataclass(frozen=True)
class Analysis:
    """How a report groups, fits and scores, if a reader may choose.

    ``scenario_families``: returns the family of each condition; None: no section on families. ``model_groups``: group →
    names or patterns of models; None: CNNs and transformers, known from names. ``references``: reference level of the
    regressions by ``model``, ``condition`` or ``label``. ``score``: components of the robustness score, as of
    ``stats.effects.score.robustness_score``. ``attributes``: name → source_id → value, of attributes
    by which errors are shown.
    """

    scenario_families: ScenarioFamilies | None = None
    model_groups: Mapping[str, Sequence[str]] | None = None
    references: Mapping[str, str] | None = None
    regression: Family = "ols"  # ``ols`` or ``poisson``
    score: Components = "cross_inner"
    costs: Mapping[str, ModelCost] = field(default_factory=dict)  # size and speed of models, by name
    timing: str = ""  # how the speed was measured
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    families: Families = "holdfast"  # whose families of scenarios
    confidence: float = 0.95  # level of the regressions' intervals
    digits: int | None = None  # of numbers in the regressions' tables; None: as each number needs
    ddof: int = 0  # of the robustness score's variances: they divide by the number of conditions less this
    concepts: pd.DataFrame | None = None  # attributes of donors, for the section on backgrounds; None: no section
    losses_only: bool = False  # whether a gain over the originals leaves the robustness score as it is


AS_PUBLISHED = Analysis()  # The choices of the published protocol, without groups


@dataclass(frozen=True)
class Evidence:
    """Counts, and the statistics that follow from them.

    In all frames ``model`` is the display name: with what it was trained on, if that is not the originals.
    """

    counts: Counts
    outcome: Outcome = "full"
    average: Average = "macro"
    resamples: int = RESAMPLES
    seed: int = 0
    score_conditions: ScoreConditions | None = None
    background_conditions: ScoreConditions | None = None
    analysis: Analysis = AS_PUBLISHED
    every: Counts | None = None
    """Counts with models trained on other conditions, which only the score uses; None if there are none."""
    rounds: Mapping[str, RoundPlan] = field(default_factory=dict)
    """Model → the images of each round, if it was asked in rounds: its verdict's intervals hold at any stop."""

    @property
    def resampling(self) -> dict[str, Any]:
        """Number of resamples and seed, as keyword arguments."""
        return {"resamples": self.resamples, "seed": self.seed}

    @property
    def settings(self) -> dict[str, Any]:
        """Outcome, average, resamples and seed, as keyword arguments."""
        return {"outcome": self.outcome, "average": self.average, **self.resampling}

    @cached_property
    def models(self) -> list[str]:
        """Models that have answers, by mean accuracy over conditions that keep the object, best first."""
        if self.summary.empty:
            return []
        means = self.with_object(self.summary).groupby("model")["accuracy"].mean()
        means = means.reindex(sorted(self.summary["model"].unique()))
        return [str(name) for name in means.sort_values(ascending=False, kind="stable").index]

    @cached_property
    def own_names(self) -> dict[str, str]:
        """Display name → the model's own name, without what it was trained on."""
        known = self.counts.cells[["model", "trained_on"]].drop_duplicates()
        return dict(zip(with_display_names(known)["model"].astype(str), known["model"].astype(str), strict=True))

    @cached_property
    def short(self) -> dict[str, str]:
        """Names of models that fit next to a chart."""
        return short_names(self.models)

    def name(self, model: str) -> str:
        """Return the short name of a model."""
        return self.short.get(model, model)

    @cached_property
    def conditions(self) -> list[str]:
        """The original first, then the most harmful, then attacks, at the end those without the object."""
        if self.summary.empty:
            return []
        means = self.summary.groupby("condition")["accuracy"].mean()
        last = dict.fromkeys(self.counts.attacks, 1) | {name: 2 for name in means.index if without_object(name)}
        return sorted(means.index, key=lambda name: (name != ORIGINAL, last.get(name, 0), means[name], name))

    def in_order(self, frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
        """Return rows in the order of ``conditions`` and ``models``; ``columns`` names those to sort by."""
        places = {
            "condition": {name: place for place, name in enumerate(self.conditions)},
            "model": {name: place for place, name in enumerate(self.models)},
        }
        return frame.sort_values(list(columns), key=lambda values: values.map(places[str(values.name)]), kind="stable")

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Accuracy per model × condition."""
        if self.counts.cells.empty:
            return self.counts.cells.assign(accuracy=0.0)
        return with_display_names(cell_statistics.summary(self.counts, outcome=self.outcome, average=self.average))

    @cached_property
    def classes(self) -> pd.DataFrame:
        """Accuracy per model × condition × class."""
        return with_display_names(cell_statistics.accuracy(self.counts, outcome=self.outcome))

    @cached_property
    def drops(self) -> pd.DataFrame:
        """Accuracy that each condition costs each model."""
        frame = with_display_names(drop_statistics.drops(self.counts, **self.settings))
        family = self.with_object(frame).index
        frame["p_holm"] = float("nan")
        frame.loc[family, "p_holm"] = holm(frame.loc[family, "p"].to_numpy())
        return frame

    @cached_property
    def ranking(self) -> Between:
        """Models by mean accuracy over conditions."""
        return ranking(self.counts, **self.settings)

    @cached_property
    def holds(self) -> pd.DataFrame:
        """What each model relies on."""
        early = sequential_verdicts(self.counts, self.rounds, outcome=self.outcome)
        if self.all_early:
            return early
        fixed = what_it_holds(self.counts, **self.settings)
        kept = fixed[~fixed["model"].isin(list(self.rounds))] if self.rounds else fixed
        return with_display_names(pd.concat([kept, early], ignore_index=True) if len(early) else kept)

    @property
    def all_early(self) -> bool:
        """Whether every model was asked in rounds."""
        return bool(self.rounds) and set(self.counts.models) <= set(self.rounds)

    @cached_property
    def scores(self) -> pd.DataFrame | str:
        """The robustness score; a sentence if there is none."""
        return self._scores_over(self.scored)

    @cached_property
    def scored(self) -> list[str]:
        """The conditions of the robustness score; by default all that keep the object, without attacks."""
        if self.score_conditions is not None:
            return [name for name in self.score_conditions(self.counts) if name != ORIGINAL]
        kept = [name for name in self.counts.conditions if not without_object(name) and name != ORIGINAL]
        return [name for name in kept if name not in self.counts.attacks]

    @cached_property
    def score_parts(self) -> pd.DataFrame:
        """What each condition adds to the robustness score."""
        return score_parts(self.counts if self.every is None else self.every, conditions=self.scored, **self.score_rule)

    @property
    def score_rule(self) -> dict[str, Any]:
        """How the robustness score is computed, as keyword arguments."""
        rule = self.analysis
        return {"components": rule.score, "ddof": rule.ddof, "signed": rule.losses_only, **self.settings}

    @cached_property
    def background_scores(self) -> pd.DataFrame | str:
        """The score over conditions that change only the background; a sentence if there is none."""
        if self.background_conditions is None:
            return "No conditions that change only the background are configured."
        return self._scores_over(self.background_conditions(self.counts))

    def _scores_over(self, conditions: Sequence[str]) -> pd.DataFrame | str:
        counts = self.counts if self.every is None else self.every
        try:
            kept = [name for name in conditions if name != ORIGINAL]
            return scores(counts, conditions=kept, **self.score_rule)
        except UserError as error:
            return str(error)

    def with_object(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of conditions that keep the object, without repeated images and attacks."""
        left_out = {*self.counts.same_images, *self.counts.attacks}
        kept = [name for name in self.counts.conditions if not without_object(name) and name not in left_out]
        return frame[frame["condition"].isin(kept)]


def with_display_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the display name as ``model``: it says what a model was trained on, if not originals."""
    if "trained_on" not in frame or frame.empty:
        return frame
    other = ~frame["trained_on"].isin(["", ORIGINAL])
    names = frame["model"].astype(str)
    return frame.assign(model=names.where(~other, names + " trained on " + frame["trained_on"].astype(str)))


def on_originals(counts: Counts) -> Counts:
    """Return the counts without models that were trained on other conditions: those are another experiment."""
    frames = {}
    for name in ("cells", "confidence", "confusion"):
        frame = getattr(counts, name)
        kept = frame[frame["trained_on"].astype(str).isin(["", ORIGINAL])]
        frames[name] = kept.assign(
            **{column: kept[column].cat.remove_unused_categories() for column in ("model", "trained_on", "condition")}
        )
    present = set(frames["cells"]["condition"].astype(str))
    return replace(
        counts,
        **frames,
        models=sorted(frames["cells"]["model"].astype(str).unique()),
        conditions=[name for name in counts.conditions if name in present],
    )


def trained(runs: Sequence[Run]) -> list[Run]:
    """Return the runs in which classifiers were trained; segmenters have their own section."""
    return [run for run in runs if (run.path / "jobs.parquet").is_file() and run.spec().get("verb") != "segment"]
