"""Results of a run: its table, its statistics and its report."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow.compute as pc

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.names import (
    condition_names,
    nearest,
    scenario_of,
    speaks_python,
    split_list,
    typed_name,
    unknown,
)
from holdfast.core.schema import CLASSIFY, DETECT, EMBED
from holdfast.core.tasks import Task
from holdfast.core.types import ORIGINAL, Families
from holdfast.core.votes import Votes, read_votes
from holdfast.scenarios import family_of, parse_conditions, scored_scenarios
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.outcomes import outcome_counts
from holdfast.stats.core.reduce import Counts, Outcome, reduce
from holdfast.store import Run, as_photos, copies_of, delivered, in_store

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.reports.plots import Plot, RowFrame
    from holdfast.stats.core.cells import Average
    from holdfast.stats.effects.failure_point import FailurePoints
    from holdfast.stats.effects.score_spread import Components
    from holdfast.stats.models.datasets import DatasetDrops
    from holdfast.stats.models.parity import Parity
    from holdfast.stats.objects.answers import DetectorAnswers
    from holdfast.stats.regression.fit import Family, Regression


class Results:
    """Read a run and compute its statistics, all of them from the one table.

    Its methods return tables: ``rows``, ``accuracy``, ``drops``, ``verdicts`` and more.

    Args:
        run: The opened run; ``holdfast.open_run(path)`` makes both.

    Raises:
        UserError: By a method that the run's task does not support.

    Examples:
        >>> run = holdfast.open_run("run")
        >>> list(run.accuracy()["condition"])
        ['original', 'grey']
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.path

    def rows(self, columns: list[str] | None = None) -> RowFrame:
        """Return every prediction: the one table, or some of its columns, as a frame that prints itself.

        ``condition`` is the name as it is typed, with variant or severity (``fog@3``), so that grouping by it never
        pools two conditions. ``run.run.rows()`` returns the stored table.
        """
        from holdfast.reports.plots import row_frame

        setting = ["condition", "variant", "parameters"]
        named = columns is None or "condition" in columns
        asked = list(dict.fromkeys([*columns, *setting])) if columns and named else columns
        frame = self.run.rows(asked).to_pandas()
        if named and len(frame):
            given = frame.groupby(setting, observed=True, dropna=False, sort=False)
            kinds = frame.loc[~frame.duplicated(setting), setting].astype(object).fillna("")
            keys = list(kinds.itertuples(index=False, name=None))
            known = condition_names(keys)
            names = np.array([typed_name(known[key]) for key in keys], object)
            frame["condition"] = pd.Categorical(names[given.ngroup()])
        return row_frame(frame if columns is None else frame[columns])

    @cached_property
    def counts(self) -> Counts:
        """Counts per model × condition × class × source of the task's successes, from which statistics start."""
        order = [condition.name for condition in parse_conditions("all")]
        if self.task.name != CLASSIFY:
            rows, details = self.run.rows(), lambda name: self.run.details(name).rows()
            return outcome_counts(self.task, rows, details, order=order, copies=self._copies)
        return reduce(self.run.predictions.dataset(), order=order, copies=self._copies)

    @cached_property
    def task(self) -> Task:
        """What the models were asked: classification if some rows are of it, else the first task that has rows."""
        names = [name for name in self.run.tasks() if name in registry.tasks]
        return registry.tasks.get(names[0] if names and not self._classified else CLASSIFY)

    def broken(self) -> Mapping[str, str]:
        """Return model → why its answers to unchanged images look like those of a broken model."""
        original = pc.field("condition") == ORIGINAL
        return self.task.broken(
            lambda: self.run.predictions.dataset().filter(original),
            lambda name: self.run.details(name).dataset().to_table(filter=original),
        )

    @cached_property
    def _copies(self) -> dict[str, str]:
        return copies_of([self.run])

    def _photos(self, columns: list[str]) -> pa.Table:
        """Return columns of the one table in which copies of an image are that image."""
        return as_photos(self.run.rows(columns), self._copies)

    def accuracy(self, *, outcome: Outcome = "full", **options: Any) -> pd.DataFrame:
        """Return accuracy per model × condition with intervals; options of ``stats.core.cells.summary``."""
        from holdfast.reports.plots import result_frame
        from holdfast.stats.core.cells import summary

        options.setdefault("average", self.task.average)
        return result_frame(summary(self.counts, outcome=outcome, **options), "accuracy")

    def drops(self, *, outcome: Outcome = "full", **options: Any) -> pd.DataFrame:
        """Return what each condition costs each model, paired by image; options of ``stats.effects.drops.drops``.

        Accuracy is the mean success of the run's task (``Task.outcome``): right answers, objects found.
        """
        from holdfast.reports.plots import result_frame
        from holdfast.stats.effects.drops import drops

        options.setdefault("average", self.task.average)
        return result_frame(drops(self.counts, outcome=outcome, **options), "drops")

    def scores(
        self, *, outcome: Outcome = "full", over: str | Sequence[str] = "static", **options: Any
    ) -> pd.DataFrame:
        """Return the robustness score per model; options of ``stats.effects.score.scores``.

        ``over``: the conditions of the score, as ``scored_conditions`` reads them. ``static``, the default, are all
        static conditions, as published, and generated backgrounds; ``background`` only those that leave the object
        unchanged. A model that reads the background gains from blurred or lit objects, so only the second score shows
        how far it does.
        """
        from holdfast.reports.plots import result_frame
        from holdfast.stats.effects.score import scores

        options.setdefault("conditions", scored_conditions(self.counts, over))
        return result_frame(scores(self.counts, outcome=outcome, **options), "scores")

    def verdicts(self, *, outcome: Outcome = "full", **options: Any) -> pd.DataFrame:
        """Return each model's verdict in words and numbers; options of ``stats.effects.verdict.what_it_holds``.

        All numbers are about one label space, named in ``space``: with ``outcome="full"`` about all outputs of the
        model; ``outcome="restricted"`` has more columns, as those need answers among the dataset's classes.
        Those of a check that stopped early rest on intervals that hold whenever one stops. A run of detectors has
        those of ``stats.objects.verdict.what_detectors_hold``.
        """
        from holdfast.reports.plots import result_frame
        from holdfast.stats.effects.outcome_verdict import what_outcomes_rely_on
        from holdfast.stats.effects.sequential import sequential_verdicts
        from holdfast.stats.effects.verdict import what_it_holds, with_copies
        from holdfast.stats.objects.verdict import what_detectors_hold

        if self.is_detection:
            return with_copies(what_detectors_hold(self.boxes, **options), len(self._copies))
        if self.rounds:
            return result_frame(
                _of_space(sequential_verdicts(self.counts, self.rounds, outcome=outcome), outcome), "verdicts"
            )
        if self.task.name != CLASSIFY:
            options = {"average": self.task.average, "unit": self.task.unit, "success": self.task.success} | options
            return result_frame(what_outcomes_rely_on(self.counts, **options), "verdicts")
        return result_frame(_of_space(what_it_holds(self.counts, outcome=outcome, **options), outcome), "verdicts")

    @property
    def rounds(self) -> dict[str, list[list[str]]]:
        """Model → the images of each round, of a check that stopped as soon as it was sure; else nothing."""
        from holdfast.reports.page.evidence import recorded_rounds

        return recorded_rounds([self.run])

    def failure_points(self, *, outcome: Outcome = "full", **options: Any) -> FailurePoints:
        """Return the severities at which models first fail; options of ``stats.effects.failure_point``."""
        from holdfast.stats.effects.failure_point import failure_points

        return failure_points(self.counts, outcome=outcome, **options)

    def shape_share(self) -> pd.DataFrame:
        """Return how often models name the shape, not the texture, of stylised images, with intervals."""
        from holdfast.stats.effects.families import shape_share

        return shape_share(self.counts)

    def regression(self, *, outcome: Outcome = "full", **options: Any) -> Regression:
        """Fit accuracy ~ model + scenario + class; options of ``stats.regression.fit.fit``.

        Errors are clustered by image and donor; ``photos=None`` gives the published ones.
        """
        from holdfast.stats.regression.clusters import photo_rows
        from holdfast.stats.regression.fit import cells_from_counts, fit

        options.setdefault("photos", photo_rows(self.counts, outcome=outcome))
        return fit(cells_from_counts(self.counts, outcome=outcome), **options)

    def measure(self, name: str) -> pd.DataFrame:
        """Return the table of a registered measure (``holdfast ls measures``), also of one of another package.

        Args:
            name: the measure's name, such as ``drops``.

        Returns:
            A row per group, with the columns that the measure declares.

        Raises:
            UserError: no measure has this name, or the run has no row of its tasks.
        """
        from holdfast import registry
        from holdfast.reports.page.evidence import rows_of_tasks

        measure = registry.measures.get(name)
        if set(measure.tasks).isdisjoint(self.run.tasks()):
            raise UserError(f"{name} measures {', '.join(measure.tasks)}, and this run has no such row\n{self!r}")
        rows = self.run.predictions.dataset().to_table(list(measure.reads), filter=rows_of_tasks(measure.tasks))
        return measure.of(as_photos(rows, self._copies).to_pandas())

    def fmr(self, *, space: str | None = None, measures: bool = False) -> pd.DataFrame:
        """Return SA, PA, VR and FMR of a ``perturb`` run with intervals, a row per model and class ('': all classes).

        ``measures``: a row per measure instead, with bounds, baselines and counts. Rows of several settings differ in
        the columns before ``n``; ``space`` overrides the label space of right answers.
        """
        from holdfast.reports.plots import result_frame
        from holdfast.stats.walks.walk_rows import COLUMNS, fmr_of_rows, side_by_side

        table = fmr_of_rows(self._photos(COLUMNS), space=space)
        return table if measures else result_frame(side_by_side(table), "fmr")

    def fmr_corrected(self, votes: Votes | str | Path, **options: Any) -> pd.DataFrame:
        """Return FMR in which accepted images that people do not confirm count as not validated.

        ``votes``: the export of a review of the run's accepted images; options of ``stats.walks.fmr_people``.
        """
        from holdfast.stats.walks.fmr_people import COLUMNS, fmr_corrected, judged_walks

        given = votes if isinstance(votes, Votes) else read_votes(votes)
        return fmr_corrected(judged_walks(self._photos(COLUMNS), given), **options)

    def questions(self, *, drops: bool = False, **options: Any) -> pd.DataFrame:
        """Return the scores of an ``ask`` run per model and kind of question; options of ``stats.hard.questions``.

        ``drops``: what each condition of ``--scenarios`` costs instead (``question_drops``).
        """
        from holdfast.stats.hard.questions import COLUMNS, answered, question_drops, questions_of_rows

        tables = self._photos(COLUMNS), self.run.details("answers").rows()
        if drops:
            return question_drops(answered(*tables))
        return questions_of_rows(*tables, **{"rounds": self.rounds} | options)

    def labels(self, **options: Any) -> pd.DataFrame:
        """Return what every condition costs each label of images that have several; options of ``label_drops``."""
        from holdfast.reports.static.accuracy import LABELLED
        from holdfast.stats.effects.drops import LABEL_COLUMNS, label_drops

        rows = self.run.predictions.dataset().to_table(columns=LABEL_COLUMNS, filter=LABELLED)
        return label_drops(as_photos(rows, self._copies), **options)

    def concepts(self, *, by: Sequence[str] = (), **options: Any) -> pd.DataFrame:
        """Return what each kind of background costs each model; ``by``: attributes of the donors, besides their pixels.

        Options of ``stats.effects.concepts.background_concepts``, which lists the columns.
        """
        from holdfast.pipeline.concepts import concepts_of
        from holdfast.pipeline.metadata import groups_of
        from holdfast.stats.effects.concepts import COLUMNS, background_concepts

        known = concepts_of([self.run], groups_of([self.run], by, None))
        return background_concepts(self._photos(COLUMNS).to_pandas(), known, **options)

    def embedding(self, **options: Any) -> pd.DataFrame:
        """Return what embeddings follow, a row per encoder; options of ``stats.effects.embedding.embeddings``."""
        from holdfast.stats.effects.embedding import COLUMNS, embeddings

        if EMBED not in self.run.tasks():
            raise UserError(f"{self.path} is no run of encoders: eval makes one from models named features:MODEL")
        rows = self.run.predictions.dataset().to_table(columns=COLUMNS, filter=pc.field("task") == EMBED)
        return embeddings(as_photos(rows, self._copies), self.run.details("embeddings").rows(), **options)

    def segments(self, *, classes: bool = False, **options: Any) -> pd.DataFrame:
        """Return mean IoU, pixel accuracy and boundary F of a ``segment`` run per model and condition, with intervals.

        ``classes``: the same per class; options of ``stats.effects.segments``.
        """
        from holdfast.stats.effects.segments import by_class, segments

        return by_class(self._measured, **options) if classes else segments(self._measured, **options)

    @property
    def _measured(self) -> pd.DataFrame:
        from holdfast.stats.effects.segments import COLUMNS, measured

        return measured(self._photos(COLUMNS), self.run.details("segments").rows())

    @cached_property
    def is_detection(self) -> bool:
        """Whether the run is one of object detectors."""
        return DETECT in self.run.tasks()

    @property
    def _classified(self) -> bool:
        return not {CLASSIFY, "walks"}.isdisjoint(self.run.tasks() or [CLASSIFY])

    @cached_property
    def boxes(self) -> DetectorAnswers:
        """Images, objects and predictions of a run of detectors, from which its statistics start."""
        from holdfast.reports.objects.evidence import read_boxes

        if not self.is_detection:
            raise UserError(
                f"{self.path} is not a run of detectors: eval makes one from data with boxes and a detector"
            )
        return read_boxes([self.run])

    def objects(self, **options: Any) -> pd.DataFrame:
        """Return recall, false alarms, average precision and more of a run of detectors, per model and condition.

        Options of ``stats.objects.effects.objects_under_conditions``, which lists the columns. A ``segment`` run has
        the recall of its objects (``regions_found``).
        """
        from holdfast.stats.objects.effects import objects_under_conditions, regions_found

        if self.run.details("segments").folder.is_dir():
            return regions_found(self._measured, **options)
        return objects_under_conditions(self.boxes, **options)

    def segment_regression(self, **options: Any) -> Regression:
        """Fit IoU ~ model + scenario + class of a ``segment`` run; options of ``stats.regression.fit.fit``."""
        from holdfast.stats.effects.segments import cells_from_segments
        from holdfast.stats.regression.fit import fit

        return fit(cells_from_segments(self._measured), **options)

    def between(self, *others: Results | str | Path, **options: Any) -> DatasetDrops:
        """Return what models lose from this run's dataset to those of other runs; options of ``dataset_drops``."""
        from holdfast.reports.between import counts_by_dataset, prompts_by_dataset
        from holdfast.stats.models.datasets import dataset_drops

        runs = [self.run, *_opened(others)]
        return dataset_drops(counts_by_dataset(runs), clusters=prompts_by_dataset(runs), **options)

    def parity(self, old: str, new: str, *, margin: float = 0.02, outcome: Outcome = "full") -> Parity:
        """Return whether two models of this run answer alike; see ``stats.models.parity``."""
        from holdfast.stats.models.parity import parity

        return parity(self.run.rows(), self.counts, old, new, margin=margin, outcome=outcome)

    def report(self, out: str | Path | None = None, **options: Any) -> Path:
        """Write the report, by default into the run directory, and return the path of its page."""
        return report([self], self.path / "report" if out is None else out, **options)

    def plot(
        self,
        name: str = "verdict",
        *,
        width: int = 940,
        outcome: Outcome = "full",
        average: Average = "macro",
        resamples: int = RESAMPLES,
        seed: int = 0,
        **analysis: Any,
    ) -> Plot:
        """Return a chart of the report: a Vega-Lite specification that notebooks draw and ``save("chart.png")`` writes.

        Args:
            name: ``verdict``, ``effects``, ``accuracy``, ``drops``, ``classes``, or any file's name in the report's
                ``figures/`` (``ranks``, ``pairs``, ``reliability`` …); a name that no chart has gets a list of those
                that there are.
            width: in pixels; less than 940 gives the form for phones.
            outcome: as in ``accuracy``.
            average: as in ``accuracy``.
            resamples: number of resamples of every bootstrap.
            seed: seed of every bootstrap.
            analysis: of ``report.page.evidence.Analysis``: groups of models, reference levels, kind of regression.
        """
        from holdfast.reports.page.evidence import Analysis
        from holdfast.reports.plots import plot

        settings = {"outcome": outcome, "average": average, "resamples": resamples, "seed": seed}
        chosen = Analysis(**{"scenario_families": scenario_families} | analysis)
        return plot([self.run], name, width=width, settings=settings, analysis=chosen, **SCORED)

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # a property that failed: its own error counts
            return object.__getattribute__(self, name)
        close = nearest(name, [known for known in dir(type(self)) if not known.startswith("_")], count=1)
        raise AttributeError(f"Results has no {name!r}" + "".join(f"; did you mean {known!r}?" for known in close))

    def __repr__(self) -> str:
        rows = self.run.rows(["model", "condition", "variant", "parameters"])
        lines = [f"Results of {self.path}: {rows.num_rows:,} rows, one per image, condition and model"]
        settings = rows.group_by(["condition", "variant", "parameters"]).aggregate([]).to_pylist()
        conditions = map(typed_name, condition_names(tuple(setting.values()) for setting in settings).values())
        for column, words in (("model", map(str, rows["model"].unique().to_pylist())), ("condition", conditions)):
            names = sorted(words, key=lambda name: (name != ORIGINAL, name))
            rest = f" and {len(names) - 4} more" if len(names) > 5 else ""
            lines.append(f"  {column}s: {', '.join(names[:4] if rest else names)}{rest}")
        tasks = self.run.tasks() or [CLASSIFY]
        calls = [call for task in tasks for call in ([".fmr()"] if task == WALKS else registry.tasks.get(task).calls)]
        return "\n".join([*lines, f"  next: {', '.join(calls)}, .report(); .rows() has every prediction"])

    def _repr_html_(self) -> str:
        from holdfast.reports import html_summary
        from holdfast.reports.objects.section import detector_summary

        if self.is_detection:
            return detector_summary([self.run])
        if not self._classified:
            return f"<pre>{html.escape(repr(self))}</pre>"
        return html_summary(self.counts, rounds=self.rounds, **SCORED)


for _name, _method in list(vars(Results).items()):
    if inspect.isfunction(_method) and not _name.startswith("_"):
        setattr(Results, _name, speaks_python(_method))


def _of_space(verdicts: pd.DataFrame, outcome: Outcome) -> pd.DataFrame:
    """Return verdicts with the column ``space`` and, of their numbers, those about this label space."""
    from holdfast.stats.effects.verdict import AMONG_CLASSES

    if verdicts.empty:
        return verdicts
    other = [name for name in map(str, verdicts) if re.sub("_(low|high|p)$", "", name) in AMONG_CLASSES]
    table = verdicts if outcome == "restricted" else verdicts.drop(columns=other)
    table.insert(2, "space", outcome)
    return table


def scored_conditions(counts: Counts, over: str | Sequence[str]) -> list[str]:
    """Return the conditions of a run that ``over`` asks for.

    ``over``: ``static``, ``background``, or names of conditions, scenarios, families and groups, as a list or separated
    by commas. UserError for a name of which the run has no condition.
    """
    from holdfast.pipeline.choosing import members_of

    known = {name: [name] for name in counts.conditions if name != ORIGINAL} | members_of(counts)
    whole = {"static": static_conditions, "background": background_conditions}
    known |= {name: [each for each in select(counts) if each != ORIGINAL] for name, select in whole.items()}
    names = split_list(over) if isinstance(over, str) else list(over)
    if not names:
        raise UserError("no condition is given for the robustness score; expected static, background or conditions")
    for name in names:
        if name not in known:
            offered = known if nearest(name, known) else {*counts.conditions, *whole} - {ORIGINAL}  # without 60 aliases
            raise unknown("condition of this run", name, offered)
    kept = {condition for name in names for condition in known[name]}
    return [name for name in counts.conditions if name in kept]


def conditions_of_score(runs: Sequence[Results | str | Path], over: str | Sequence[str]) -> list[str]:
    """Return the conditions of several runs of one dataset that ``over`` asks for, as ``scored_conditions`` does."""
    from holdfast.reports.page.evidence import join_runs

    return scored_conditions(join_runs(_opened(runs)).counts(), over)


def static_conditions(counts: Counts) -> list[str]:
    """Return the conditions of a run that the score includes by default: static ones and generated backgrounds."""
    names = scored_scenarios()
    return [name for name in counts.conditions if scenario_of(name) in names]


def background_conditions(counts: Counts) -> list[str]:
    """Return those of the score that leave the object unchanged: only there a low score means the background."""
    names = scored_scenarios(background_only=True)
    return [name for name in counts.conditions if scenario_of(name) in names]


def scenario_families(counts: Counts, families: Families = "holdfast") -> dict[str, str]:
    """Return condition → its family of scenarios, for conditions that belong to one; ``families``: whose six."""
    if families not in get_args(Families):
        raise UserError(f"--families {families}: expected {' or '.join(get_args(Families))}")
    known = {name: family_of(scenario_of(name), families) for name in counts.conditions if name != ORIGINAL}
    return {name: family for name, family in known.items() if family}


SCORED: dict[str, Any] = {"score_conditions": static_conditions, "background_conditions": background_conditions}
WALKS = "walks"  # latent walks are rows of classification, and have a table of their own


def result_tables(task: str) -> Mapping[str, Callable[[Results], pd.DataFrame]]:
    """Return the tables that a bundle holds of a task's rows; ``walks``: of latent walks."""
    return {"fmr": Results.fmr} if task == WALKS else registry.tasks.get(task).results


@speaks_python
def report(
    runs: Sequence[Results | str | Path],
    out: str | Path,
    *,
    between: bool = False,
    references: Mapping[str, str] | None = None,
    regression: Family = "ols",
    confidence: float = 0.95,
    digits: int | None = None,
    families: Families = "holdfast",
    score: Components = "cross_inner",
    score_over: str | Sequence[str] = "",
    ddof: int = 0,
    losses_only: bool = False,
    model_groups: Mapping[str, Sequence[str]] | None = None,
    speed: str = "none",
    device: str = "auto",
    by: Sequence[str] = (),
    attributes: str | Path | None = None,
    concepts: bool = False,
    **options: Any,
) -> Path:
    """Write one report of one or several runs.

    Args:
        runs: run directories of one dataset.
        out: the folder of the page.
        between: the page is about the accuracy lost from the first run's dataset to those of the others; options of
            ``report.between.build_between``.
        references: reference level of the regressions by factor: ``model``, ``condition``, ``label``.
        regression: ``ols``, or ``poisson`` for ratios of accuracies.
        confidence: level of the regressions' intervals, such as 0.9; all other intervals are at the 95 % level.
        digits: of the numbers in the regressions' tables after the decimal point; None: as each number needs.
        families: families of scenarios whose drops are shown, ``holdfast`` or the six of ``ximagenet12``.
        score: ``scenario_class`` for the paper's earlier S = 1 − (σi + σe), over scenarios and classes, with standard
            deviations; ``scenario_class_variance`` with variances.
        score_over: conditions of the robustness score, as ``scored_conditions`` reads them; by default ``static``.
        ddof: what the score's variances divide by: 0 for the number of conditions, 1 for one less.
        losses_only: whether a gain over the originals leaves the score as it is; as published, it lowers it.
        model_groups: group → names or patterns of models; by default CNNs and transformers, known from names.
        speed: ``measure`` loads the models and times them here, a CSV file has their times, ``none`` shows none.
        device: where speed is measured.
        by: attributes of the samples whose groups' numbers are shown.
        attributes: a CSV with further attributes, by path or id.
        concepts: show on which kinds of background models fail, by the pixels of the donors and the attributes ``by``.
        options: of ``report.build``.

    Returns:
        The path of the page.

    Raises:
        UserError: The runs have different datasets, or an option has an invalid value.

    Examples:
        >>> holdfast.report(["run"], "page").name
        'index.html'
    """
    from holdfast.pipeline.choosing import recorded_costs
    from holdfast.pipeline.concepts import concepts_of
    from holdfast.pipeline.metadata import groups_of
    from holdfast.pipeline.specs import ChooseSpec
    from holdfast.pipeline.thumbnails import thumbnails
    from holdfast.reports import build
    from holdfast.reports.between import build_between
    from holdfast.reports.page.evidence import Analysis, join_runs

    opened = _opened(runs)
    if between:
        with delivered(out) as folder:
            page = build_between(opened, folder, **options)
        return in_store(out, folder, page)
    asked = ChooseSpec(speed=speed, device=device)
    costs, timing = recorded_costs(opened, asked, lambda: join_runs(opened).counts())
    groups = groups_of(opened, by, attributes)
    analysis = Analysis(
        scenario_families, model_groups, references, regression, score, costs, timing,
        groups, families=families, confidence=confidence, digits=digits, ddof=ddof, losses_only=losses_only,
        concepts=concepts_of(opened, groups) if concepts else None,
    )  # fmt: skip
    chosen = {"score_conditions": partial(scored_conditions, over=score_over)} if score_over else {}
    with delivered(out) as folder:
        page = build(opened, folder, pictures=thumbnails, analysis=analysis, **SCORED | chosen | options)
    return in_store(out, folder, page)


def _opened(runs: Sequence[Results | str | Path]) -> list[Run]:
    return [run.run if isinstance(run, Results) else Run.open(run) for run in runs]


def open_run(path: str | Path) -> Results:
    """Open a run directory for reading.

    Args:
        path: The directory that ``evaluate``, ``train`` or another verb wrote.

    Returns:
        The run and its statistics.

    Raises:
        UserError: There is no run in it.

    Examples:
        >>> holdfast.open_run("run").rows().num_rows
        24
    """
    return Results(Run.open(path))
