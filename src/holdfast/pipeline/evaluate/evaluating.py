"""How ``eval`` makes the rows of a task: load the models, hash the data, record the run, plan, execute."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from holdfast.core.errors import UserError
from holdfast.core.hooks import BegunRun, Hook, call_hooks
from holdfast.core.numbers import percent
from holdfast.core.schema import PREDICTIONS
from holdfast.core.tasks import Task
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.engine import Executor, LocalExecutor
from holdfast.pipeline.classifiers import EvaluateSpec
from holdfast.pipeline.evaluate.asked import fewer_draws
from holdfast.pipeline.evaluate.worker import Evaluation, Loaded, load_tested
from holdfast.pipeline.evaluation_rows import EvaluationIds, Part, Portion
from holdfast.pipeline.generate.backgrounds import Painter, load_painter
from holdfast.pipeline.jobs.execute import execute
from holdfast.pipeline.jobs.plan import Plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.samples import Prepared, begin_run, prepare, recorded_spec
from holdfast.scenarios import Condition, parse_conditions
from holdfast.store import Run

SAME_RUN = ("verb", "task", "dataset", "classes", "seed")  # what a continued run must share with the command before


class Evaluating:
    """One command on one task. A task whose rows need more than its ``ask`` and ``rows`` has a subclass.

    Args:
        task: what the models are asked.
        spec: the options.
        collection: the data.
        conditions: what the images are shown under.
        run: where rows are written.
        executor: where work runs; by default this process.
        progress: called with the name of a step, how much of it is done, and its total.
        hooks: what accompanies the run.
        summary: counts what is made, with that of earlier commands; by default, a new one.
    """

    same: tuple[str, ...] = SAME_RUN

    def __init__(
        self,
        task: Task,
        spec: EvaluateSpec,
        collection: Collection,
        conditions: Sequence[Condition],
        run: Run,
        *,
        executor: Executor | None = None,
        progress: Progress = silent,
        hooks: Sequence[Hook] = (),
        summary: Summary | None = None,
    ) -> None:
        self.task, self.spec, self.collection, self.conditions = task, spec, collection, list(conditions)
        self.run, self.executor, self.progress, self.hooks = run, executor or LocalExecutor(1), progress, hooks
        self.summary = Summary() if summary is None else summary
        self.painter: Painter | None = None

    @cached_property
    def tested(self) -> Sequence[Any]:
        """The models, each a ``TestedModel``."""
        return self.load()

    @cached_property
    def prepared(self) -> Prepared:
        """The data with its hashes."""
        return prepare(self.spec, self.collection, self.progress)

    def load(self) -> Sequence[Any]:
        """Return the models."""
        return load_tested(self.task, self.spec, self.collection)

    def begin(self) -> None:
        """Load what is asked and what paints, hash the data, record the run, and call the hooks."""
        names = [each.model.name for each in self.tested]
        self.painter = load_painter(self.spec, self.collection, self.conditions)
        facts = {"painter": self.painter.record()} if self.painter else {}
        parameters = {each.model.name: each.parameters for each in self.tested if each.parameters}
        before = self.before.get("model_parameters", {})
        prepared = self.prepared
        self.conditions, note = fewer_draws(self.conditions, prepared, self.spec.seed)
        self.summary.notes += [note] if note else []
        recorded = recorded_spec(
            self.spec, "evaluate", prepared.collection, task=self.task.name, model_names=names,
            model_parameters=before | parameters, **facts, **self.facts(),
        )  # fmt: skip
        begin_run(self.run, recorded, self.recorded_data(), self.summary, same=self.same)
        call_hooks(self.hooks, "on_run_begin", self.begun)

    @cached_property
    def begun(self) -> BegunRun:
        """The run as hooks see it."""
        identities = {each.model.name: each.fingerprint for each in self.tested}
        return BegunRun(self.run.path, self.task, self.spec, identities, self.prepared, self.summary.notes)

    @cached_property
    def before(self) -> dict[str, Any]:
        """What ``spec.json`` says of an earlier command with this ``--out``."""
        return self.run.spec() if (self.run.path / "spec.json").is_file() else {}

    def facts(self) -> dict[str, Any]:
        """Return further entries of ``spec.json``."""
        return {}

    def recorded_data(self) -> Prepared:
        """Return the data as ``samples.parquet`` lists it."""
        return self.prepared

    def close(self) -> None:
        """Release what the run held; called whatever happened."""

    def make_rows(self) -> None:
        """Make all missing rows: originals first if something is decided on them, generated backgrounds last."""
        plain = [condition for condition in self.conditions if not condition.definition.paints]
        asked, rest = tuple(plain), plain
        if self.decides_on_originals():
            clean = [condition for condition in plain if condition.scenario == ORIGINAL]
            self.make(clean or parse_conditions(ORIGINAL), step="originals", asked=asked, renderings=False)
            rest = [condition for condition in plain if condition.scenario != ORIGINAL]
        self.originals_made()
        stored = any(sample.condition != ORIGINAL for sample in self.prepared.collection.samples)
        if rest or (plain and stored):
            self.make(rest, step="eval", asked=asked)
        if self.painter is not None:
            self.painter.unread(self.prepared.collection.samples, self.summary)
            self.make([each for each in self.conditions if each.definition.paints], step="paint", painter=self.painter)

    def decides_on_originals(self) -> bool:
        """Return whether the originals are answered first."""
        return self.spec.expect_accuracy is not None

    def originals_made(self) -> None:
        """Decide on the originals, if they were answered first."""
        if self.spec.expect_accuracy is not None:
            check_accuracy(self.run, self.spec.expect_accuracy, [each.model.name for each in self.tested])

    def make(
        self,
        conditions: Sequence[Condition],
        *,
        step: str,
        asked: tuple[Condition, ...] | None = None,  # decide about stored renderings; by default ``conditions``
        renderings: bool = True,
        positions: Sequence[int] | None = None,  # of the models that are asked; by default all
        samples: Sequence[Sample] | None = None,  # by default all
        painter: Painter | None = None,
    ) -> None:
        """Make the missing rows of some conditions, models and samples."""
        own = tuple(conditions)
        everyone = tuple(range(len(self.tested)))
        places = everyone if positions is None else tuple(positions)
        whole = Portion(own, places, own if asked is None else asked, renderings)
        prepared = self.prepared
        if samples is not None:
            prepared = replace(prepared, collection=replace(prepared.collection, samples=tuple(samples)))
        watching = [hook for hook in self.hooks if type(hook).on_rows is not Hook.on_rows]
        before = set(self.run.predictions.folder.glob("part-*.parquet")) if watching else set()
        for portion in self.portions(whole, prepared, step) if painter is None else [whole]:
            self.execute(self.plan(portion, prepared, painter), portion, prepared, step=step, painter=painter)
        written = [str(path) for path in self.run.predictions.paths() if path not in before] if watching else []
        if written:
            call_hooks(watching, "on_rows", self.begun, ds.dataset(written, schema=PREDICTIONS, format="parquet"))

    def portions(self, whole: Portion, prepared: Prepared, step: str) -> Sequence[Portion]:
        """Return the portions that the worker makes; a subclass may make some in another way, and leave them out."""
        return [whole]

    def plan(self, portion: Portion, prepared: Prepared, painter: Painter | None) -> Plan[Sample, Part]:
        """Return which rows of a portion are missing."""
        ids = EvaluationIds(self.spec, prepared, self.tested, painter, self.task)
        return ids.plan(
            self.run.predictions, portion, details={name: self.run.details(name) for name in self.task.tables},
            retry=self.spec.retry_errors, progress=self.progress,
        )  # fmt: skip

    def worker(self, portion: Portion, prepared: Prepared) -> Evaluation:
        """Return what turns jobs into rows."""
        return Evaluation(self.spec, prepared, self.run.path, self.task)

    def placed(self, plan: Plan[Sample, Part], worker: Evaluation, portion: Portion) -> tuple[Executor, int]:
        """Return where a plan is executed, and how many images share a part file."""
        return self.executor, 0

    def execute(
        self, plan: Plan[Sample, Part], portion: Portion, prepared: Prepared, *, step: str, painter: Painter | None
    ) -> None:
        """Make the rows that a plan misses."""
        worker = self.worker(portion, prepared)
        where, size = self.placed(plan, worker, portion)
        # Few enough that a kill costs little, hundreds of files in a big run, and some batches of each model.
        size = size or max(8, plan.count // 500, 4 * self.spec.batch_size // max(1, len(portion.conditions)))
        # A generator is too large to be loaded once per worker.
        where = LocalExecutor(1) if painter is not None else where
        summary = execute(
            plan, worker, where, step=step, size=size, known=Loaded(self.tested, painter),
            samples=prepared.collection.samples, donors=prepared.pool.samples, progress=self.progress,
        )  # fmt: skip
        self.summary.merge(summary)


def check_accuracy(run: Run, expected: float, models: Sequence[str]) -> None:
    """Raise a UserError if clean accuracy is off by more than sampling explains: something is set up wrongly."""
    from scipy.stats import binomtest

    table = run.rows(["model", "condition", "status", "correct"])
    clean = table.filter(pc.field("condition") == ORIGINAL).filter(pc.field("status") == "ok")
    for model in models:
        right = clean.filter(pc.field("model") == model)["correct"].to_pylist()
        if not right:
            raise UserError(f"{model} answered for no original image, so --expect-accuracy cannot be checked")
        if binomtest(sum(right), len(right), expected).pvalue < 0.01:
            raise UserError(
                f"{model} is right on {sum(right)} of {len(right)} originals ({percent(sum(right) / len(right))}), "
                f"which sampling does not explain if {percent(expected)} is expected: check its preprocessing "
                "and --labels"
            )


def missing_masks(spec: EvaluateSpec, collection: Collection, conditions: Sequence[Condition]) -> list[str]:
    """Return a note on how many images lack a mask that some condition needs, what that costs and what to do."""
    masked = sum(condition.definition.needs_mask for condition in conditions)
    count = sum(sample.mask is None and sample.condition == ORIGINAL for sample in collection.samples)
    if not masked or not count:
        return []
    are = "is" if masked == 1 else "are"
    return [
        f"{count} of {len(collection.samples)} images have no mask, so {masked} of {len(conditions)} conditions {are} "
        f"skipped for them: make masks first (holdfast mask {shlex.quote(spec.data)} --out masks), then give this "
        "command again with --masks masks"
    ]
