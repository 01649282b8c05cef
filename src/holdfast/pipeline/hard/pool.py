"""A pool as mining sees it: every model's answers, an oracle's verdicts, and who is related to whom."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import pd
from holdfast.core.protocols import Oracle
from holdfast.core.schema import plain_schema
from holdfast.core.types import Collection, Image, Sample
from holdfast.engine import Executor, ahead, thread_pool
from holdfast.models.local_dir import folder_of
from holdfast.oracle.lineage import Shared, in_common, lineages
from holdfast.pipeline.classifiers import load_judge, parameter_count
from holdfast.pipeline.evaluate.evaluate import evaluate
from holdfast.pipeline.jobs.execute import Made, Worker, choose_executor, elsewhere, execute, shard_size
from holdfast.pipeline.jobs.plan import Job, plan
from holdfast.pipeline.jobs.progress import Progress, Summary
from holdfast.pipeline.samples import DataSpec, read
from holdfast.pipeline.specs import MineSpec as MineSpec
from holdfast.pipeline.specs.images import OUTCOME_COLUMNS
from holdfast.stats.hard.mining import half_of
from holdfast.store import Parts, Run

JUDGED = plain_schema("row_id text, sample_id text, oracle text, accepted flag, score float, saw text, reason text")
"""``row_id``: of image, label and oracle."""
_JUDGED_AT_ONCE, _BATCH = 256, 64  # images that are read together, and asked together: of which shards are made


def check(spec: MineSpec) -> list[str]:
    """Raise a UserError if the roles of models and oracle do not fit; return a sentence per kinship between them."""
    if len(spec.surrogates) < 2:
        raise UserError("a shared failure takes two surrogates at least; name them: --surrogates a,b,c,d")
    if not spec.targets:
        raise UserError("a hard set is tried on models that did not make it; name one or more: --targets e,f")
    if not spec.oracle:
        raise UserError(
            "shared failures are wrong labels more often than other images, so an oracle has to judge them; name one "
            "that is neither a surrogate nor a target: --oracle O (holdfast ls oracles)"
        )
    plain = {name: name.partition("?")[0] for name in (*spec.surrogates, *spec.targets)}
    twice = sorted(set(spec.surrogates) & set(spec.targets)) or sorted(
        {plain[model] for model in spec.surrogates} & {plain[model] for model in spec.targets}
    )
    if twice:
        raise UserError(f"{twice[0]} is a surrogate and a target; a set says nothing about models that made it")
    if len(set(spec.surrogates)) < len(spec.surrogates) or len(set(spec.targets)) < len(spec.targets):
        raise UserError("a model is named twice; it would count as two")
    judges = {lineage.model for lineage in lineages(spec.oracle)}
    judged = next((name for name, model in plain.items() if model in judges), None)
    if judged is not None:
        raise UserError(
            f"the oracle {spec.oracle} is the model {judged}; choose one that is neither a surrogate nor a target"
        )
    most = spec.use or len(spec.surrogates)
    if spec.use and not 2 <= spec.use <= len(spec.surrogates):
        raise UserError(f"--use {spec.use}: {len(spec.surrogates)} surrogates are named, 2 at least are used")
    if spec.at_least and not 2 <= spec.at_least <= most:
        raise UserError(f"--at-least {spec.at_least} of {most} surrogates cannot be; it is 2 to {most}")
    shared: dict[Shared, list[str]] = {}
    for model in (*spec.surrogates, *spec.targets):
        for each in in_common(model, spec.oracle):
            shared.setdefault(each, []).append(model)
    words = {"family": "are of one family,", "data": "were all trained on", "weights": "are the same weights,"}
    return [
        f"{', '.join(models)} and the oracle {each.judge} {words[each.kind]} {each.name}: where it errs as they do, a "
        "mislabelled image passes as valid"
        for each, models in shared.items()
    ]


@dataclass(frozen=True)
class MeasuredPool:
    """A classified and judged pool."""

    collection: Collection  # as it was read
    run: Run  # the one table over it
    surrogates: tuple[str, ...]  # names as the table has them, in the order given
    targets: tuple[str, ...]  # likewise
    # index sample_id; prompt_id, category, kind, nuisance, prompt, repeat, half, valid, oracle_saw, …
    images: pd.DataFrame
    failed: pd.DataFrame  # same index, a column a model
    said: pd.DataFrame  # same index, each model's answer
    unanswered: int  # images that a model or the oracle could not answer for; they are in no table

    @property
    def models(self) -> tuple[str, ...]:
        """Return surrogates, then targets."""
        return (*self.surrogates, *self.targets)


def measure(
    spec: MineSpec,
    data: str,
    folder: Path,
    progress: Progress,
    *,
    oracle: Oracle | None = None,
    limit: int = 0,
    executor: Executor | None = None,
) -> tuple[MeasuredPool, Oracle]:
    """Classify a pool into ``folder/run`` and judge it into ``folder/oracle``; what is there already is kept."""
    run, _ = evaluate(spec.evaluation(data, limit=limit), folder / "run", progress=progress, executor=executor)
    collection = read(DataSpec(data, limit=limit))
    if oracle is None:
        # If others judge, this process only has to know it.
        device = "cpu" if elsewhere(executor) else spec.device
        oracle = load_judge(spec.oracle, collection, labels=spec.labels, device=device)
    contents = {row["sample_id"]: row["image_fingerprint"] for row in run.samples().to_pylist()}
    ids = {
        sample.sample_id: fingerprint([contents[sample.sample_id], sample.label, oracle.fingerprint])[:32]
        for sample in collection.samples
        if contents.get(sample.sample_id)
    }
    # Equal images with one label are judged once.
    by_id = {ids[sample.sample_id]: sample for sample in collection.samples if sample.sample_id in ids}
    jobs: list[Job[Sample, None]] = [Job(sample, (None,)) for sample in by_id.values()]
    parts = Parts((folder / "oracle").absolute(), JUDGED)
    todo = plan(parts, jobs, lambda job: [ids[job.item.sample_id]])
    worker, judge = JudgeWorker(spec, collection), spec.oracle.removeprefix("classifier:")
    executor = choose_executor(
        todo, worker, executor, spec.device, [judge], batch=_JUDGED_AT_ONCE,
        parameters=parameter_count(getattr(oracle, "classifier", None)),
    )  # fmt: skip
    most = shard_size(todo.owed, executor, _JUDGED_AT_ONCE)
    size = min(_JUDGED_AT_ONCE, most - most % _BATCH or most) if elsewhere(executor) else 64 * _JUDGED_AT_ONCE
    execute(
        todo, worker, executor, step="judge", size=size, known=oracle, samples=collection.samples, progress=progress
    )
    verdicts = {row["row_id"]: row for row in parts.rows().to_pylist()}
    judged = {name: verdicts[row_id] for name, row_id in ids.items() if row_id in verdicts}
    return _measured(spec, collection, run, judged), oracle


class JudgeWorker(Worker[Oracle]):
    """Judges images of a pool with the oracle."""

    def __init__(self, spec: MineSpec, collection: Collection) -> None:
        self.name = spec.oracle
        self.spec = spec
        self._bare = replace(collection, samples=())

    def load(self) -> Oracle:
        """Load the oracle."""
        return load_judge(self.name, self._bare, labels=self.spec.labels, device=self.spec.device)

    def run(self, oracle: Oracle, jobs: Sequence[Job[Sample, None]]) -> Iterator[Made]:
        """Yield a row per image that can be read and that the oracle knows."""

        def load(job: Job[Sample, None]) -> tuple[Job[Sample, None], Image | None]:
            try:
                return job, job.item.image.load(max_pixels=self.spec.max_pixels)
            except SampleError:
                return job, None  # the models' rows say why

        with thread_pool() as threads:
            loaded = ahead(threads, load, jobs, _JUDGED_AT_ONCE)
            while some := list(islice(loaded, _JUDGED_AT_ONCE)):
                rows = self._judged(oracle, [(job, job.item.label, image) for job, image in some if image is not None])
                yield from rows
                yield Summary(unmade=len(some) - len(rows))  # images without a verdict have no row

    def _judged(self, oracle: Oracle, good: list[tuple[Job[Sample, None], str, Image]]) -> list[dict[str, Any]]:
        """Return a row per image that the oracle knows."""
        if hasattr(oracle, "knows"):  # people have judged only some images; of the others nothing is known
            known = oracle.knows([image for *_, image in good], [label for _, label, _ in good])
            good = [item for item, is_known in zip(good, known, strict=True) if is_known]
        verdicts = oracle.judge([image for *_, image in good], [label for _, label, _ in good])
        return [
            {name: getattr(verdict, name) for name in ("accepted", "score", "saw", "reason")}
            | {"row_id": job.ids[0], "sample_id": job.item.sample_id, "oracle": oracle.name}
            for (job, *_), verdict in zip(good, verdicts, strict=True)
        ]


def _measured(spec: MineSpec, collection: Collection, run: Run, judged: Mapping[str, dict[str, Any]]) -> MeasuredPool:
    """Return the images that every model and the oracle have answered for."""
    ids = [sample.sample_id for sample in collection.samples]
    right, said = (frame.reindex(ids) for frame in answer_frames(run, spec.outcome))
    answered, names = right.notna().all(axis=1), list(right.columns)
    kept = [image_id for image_id in ids if answered[image_id] and image_id in judged]
    if not kept:
        raise UserError(f"no image of {spec.pool} was answered for by every model and by the oracle; see {run.path}")
    samples = {sample.sample_id: sample for sample in collection.samples}
    images = pd.DataFrame(
        [_facts(samples[image_id], judged[image_id], spec.seed) for image_id in kept], index=pd.Index(kept)
    )
    surrogates, targets = tuple(names[: len(spec.surrogates)]), tuple(names[len(spec.surrogates) :])
    failed, said = ~right.loc[kept].astype(bool), said.loc[kept].fillna("no answer")
    return MeasuredPool(collection, run, surrogates, targets, images, failed, said, len(ids) - len(kept))


def answer_frames(run: Run, outcome: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return whether each model of a run is right, and what it says: a row per sample, a column per model as named."""
    names, columns = list(run.spec()["model_names"]), OUTCOME_COLUMNS[outcome]
    here = pc.field("model").isin(names) & (pc.field("status") == "ok")
    rows = run.predictions.dataset().to_table(["sample_id", "model", *columns], here).to_pandas()
    rows = rows.astype({"model": object, columns[1]: object})
    right, said = (rows.pivot(index="sample_id", columns="model", values=each) for each in columns)
    return right.reindex(columns=names), said.reindex(columns=names)


def without_answer(run: Run) -> list[str]:
    """Return a sentence if images of a run have no answer from one of its models: results are about the others."""
    lost = (pc.field("status") == "error") & pc.field("model").isin(list(run.spec()["model_names"]))
    rows = run.predictions.dataset().to_table(["sample_id", "error"], lost).sort_by("sample_id").to_pylist()
    if not rows:
        return []
    count = len({row["sample_id"] for row in rows})
    images = "1 image has no answer and counts" if count == 1 else f"{count} images have no answer and count"
    return [f"{images} nowhere; the first is {rows[0]['sample_id']}: {rows[0]['error']}"]


def _facts(sample: Sample, verdict: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return what mining needs to know about an image; without a recorded prompt, it is its own prompt."""
    attributes = sample.attributes
    prompt_id = str(attributes.get("prompt_id") or sample.source_id)
    return {
        "prompt_id": prompt_id,
        "category": sample.label,
        "kind": sample.condition,
        "nuisance": str(attributes.get("nuisance", "")),
        "prompt": str(attributes.get("prompt", "")),
        "repeat": int(attributes.get("repeat") or 0),
        "half": half_of(prompt_id, seed=seed),
        "valid": bool(verdict["accepted"]),
        "oracle_saw": str(verdict["saw"]),
        "oracle_score": float(verdict["score"]),
    }


def model_facts(names: Sequence[str], texts: Sequence[str]) -> pd.DataFrame:
    """Return family, training data and objective of each model as its name or card says; '' if unknown."""
    rows = []
    for text in texts:
        (known,) = lineages(text)[:1]
        card = embedded_facts(text)
        data = f"drawn scenes, ρ = {card['rho']:g}" if "rho" in card else ", ".join(sorted(known.data))
        objective = str(card.get("augmentation", "")).partition(":")[0]
        objective = f"labels, {objective} augmentation" if objective else _objective(text)
        rows.append({"family": known.family, "data": data, "objective": objective})
    return pd.DataFrame(rows, index=pd.Index(list(names)))


_OBJECTIVES = (
    ("image–text contrast", r"^clip:|clip|siglip"),
    ("masked images", r"mae|beit|mim|ijepa"),
    ("self-distillation", r"dino|ibot"),
    ("distillation", r"dist"),
    ("weak or pseudo labels", r"ssl|swsl|ns_jft|noisy"),
)


def _objective(text: str) -> str:
    """Return how a model's weights were first trained, as its name spells it; labels if it says nothing."""
    if text.startswith(("python:", "onnx:", "torch:", "local-dir:")):
        return ""  # the user's own: only the user knows
    return next((what for what, pattern in _OBJECTIVES if re.search(pattern, text.lower())), "labels")


def embedded_facts(text: str) -> dict[str, Any]:
    """Return Holdfast's own facts about an embedded model; {} for others."""
    scheme, _, name = text.partition("?")[0].partition(":")
    folder = folder_of("classifiers", name) if scheme == "embedded" else None
    if folder is None:
        return {}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return dict(config.get("holdfast", {}))
