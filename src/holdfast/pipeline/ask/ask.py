"""Images × questions × models → the one table: planning, resuming, asking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.compute as pc

from holdfast.core.errors import HoldfastError, MachineError, SampleError, UserError, half_may_work, machine_trouble
from holdfast.core.fingerprint import array_sha256
from holdfast.core.types import Collection, Image, Sample
from holdfast.engine import core_count
from holdfast.models.vlm_loading import is_vlm, load_vlm
from holdfast.pipeline.ask.matching import read_synonyms
from holdfast.pipeline.ask.rows import TASK, Asked, Recorder
from holdfast.pipeline.ask.wording import (
    AskSpec,
    Distractors,
    Question,
    as_evaluation,
    check,
    check_apart,
    protocols,
    question,
)
from holdfast.pipeline.evaluate.worker import load_models
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.retry import drop_errors
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import begin_run, prepare, read
from holdfast.store import Run, writing

__all__ = ["AskSpec", "ask"]

Item = TypeVar("Item")
Made = TypeVar("Made")

_SAME = ("verb", "dataset", "classes", "seed", "template", "letters", "distractor")


@dataclass
class _Job:
    """One sample and what it still owes: protocol → places of models."""

    sample: Sample
    owed: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class _Pictured:
    """A job with its image and its questions; ``failed``: protocol → why it cannot be asked."""

    job: _Job
    image: Image | None = None
    sha256: str = ""
    questions: dict[str, Question] = field(default_factory=dict)
    failed: dict[str, Exception] = field(default_factory=dict)


def ask(spec: AskSpec, out: Path, *, progress: Progress = silent) -> tuple[Run, Summary]:
    """Ask every model every question about every image, and write the rows that are not there yet."""
    # What the pipeline records of a command must not differ by how a list was spelled.
    spec = replace(spec, models=tuple(spec.models), questions=tuple(dict.fromkeys(spec.questions)))
    run, summary = Run(out), Summary()
    with writing(out):  # first of all: nobody should wait for models to hear that nothing can be written
        collection = read(spec)
        check(spec, collection.classes)
        synonyms = read_synonyms(spec.synonyms, collection.classes)
        models, distractors = _load(spec, collection)
        prepared = prepare(spec, collection, progress)
        recorded = {
            **asdict(spec),
            "verb": "ask",
            "dataset": collection.name,
            "template": spec.words,
            "scenarios": "original",
        }
        recorded |= {
            "classes": list(collection.classes),
            "models": list(spec.models),
            "questions": list(spec.questions),
        }
        begin_run(run, recorded, prepared, summary, same=_SAME)
        recorder = Recorder(spec, prepared, run, distractors, synonyms)
        if spec.retry_errors:
            drop_errors(run.predictions, _planned(spec, recorder, collection.samples, models))
        jobs, owed, there = _plan(spec, recorder, collection.samples, models)
        recorder.clear()
        summary.already = len(there)
        changed = recorder.read_again(there)
        if changed:
            summary.add("synonyms", "answers from before are read otherwise now", changed)
        _ask_all(spec, recorder, models, jobs, owed, summary, progress)
    return run, summary


def _load(spec: AskSpec, collection: Collection) -> tuple[list[Asked], Distractors]:
    """The models in the order of their names, and who names wrong options."""
    in_words = {name: load_vlm(name, device=spec.device) for name in spec.models if is_vlm(name)}
    others = tuple(name for name in spec.models if name not in in_words)
    tested = dict(zip(others, load_models(as_evaluation(spec, others), collection), strict=True))
    distractors = Distractors(spec, collection)
    check_apart(distractors, {name: one.classifier.fingerprint for name, one in tested.items()})
    models = [
        Asked(in_words[name].name, in_words[name].fingerprint, vlm=in_words[name])
        if name in in_words
        else Asked(tested[name].classifier.name, tested[name].fingerprint, classifier=tested[name])
        for name in spec.models
    ]
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise UserError(f"two of the models have one name: {', '.join(names)}; ?name= gives one another")
    return models, distractors


def _planned(spec: AskSpec, recorder: Recorder, samples: Sequence[Sample], models: Sequence[Asked]) -> Iterator[str]:
    """Yield the row ids of this command, stored or not."""
    for sample in samples:
        for protocol in protocols(spec, sample):
            for model in models:
                yield recorder.row_id(sample, protocol, model)


def _plan(
    spec: AskSpec, recorder: Recorder, samples: Sequence[Sample], models: Sequence[Asked]
) -> tuple[list[_Job], int, set[str]]:
    """The jobs, how many rows they owe, and the planned ids that are stored; drops the rows that planned ones replace.

    A row of the same sample, model and protocol under another id was measured before the image, the label, the
    distractor or the weights changed: kept beside the new one, it would count twice.
    """
    stored = recorder.run.predictions.stored_ids()
    jobs, owed = [], 0
    there: set[str] = set()
    planned: dict[tuple[str, str, str], str] = {}
    for sample in samples:
        job = _Job(sample)
        for protocol in protocols(spec, sample):
            for place, model in enumerate(models):
                one = planned[sample.sample_id, protocol, model.name] = recorder.row_id(sample, protocol, model)
                if one in stored:
                    there.add(one)
                else:
                    job.owed.setdefault(protocol, []).append(place)
                    owed += 1
        if job.owed:
            jobs.append(job)
    columns = ["row_id", "sample_id", "protocol", "model"]
    rows = recorder.run.predictions.dataset().to_table(columns, pc.field("task") == TASK).to_pylist()
    keyed = ((row["row_id"], planned.get((row["sample_id"], row["protocol"], row["model"]))) for row in rows)
    recorder.run.predictions.drop_ids([old for old, new in keyed if new is not None and new != old])
    return jobs, owed, there


def _ask_all(
    spec: AskSpec,
    recorder: Recorder,
    models: Sequence[Asked],
    jobs: Sequence[_Job],
    owed: int,
    summary: Summary,
    progress: Progress,
) -> None:
    progress("ask", 0, owed)
    # Small shards, because a kill costs the one under way and answers in words are slow; large enough for every server.
    most = max([getattr(model.vlm, "concurrency", 1) for model in models], default=1)
    size = max(spec.batch_size, 2 * most, len(jobs) // 500)
    with ThreadPoolExecutor(core_count()) as threads:
        for start in range(0, len(jobs), size):
            shard = list(threads.map(lambda job: _decode(job, spec.max_pixels), jobs[start : start + size]))
            _set_questions(spec, recorder, shard)
            for place, model in enumerate(models):
                rows, trouble = _turn(spec, recorder, model, place, shard)
                summary.count(rows)
                if trouble is not None:
                    raise trouble
                progress("ask", summary.rows, owed)


def _decode(job: _Job, max_pixels: int) -> _Pictured:
    try:
        image = job.sample.image.load(max_pixels=max_pixels)
    except SampleError as error:
        return _Pictured(job, failed=dict.fromkeys(job.owed, error))
    return _Pictured(job, image, array_sha256(image))


def _set_questions(spec: AskSpec, recorder: Recorder, shard: Sequence[_Pictured]) -> None:
    """The questions of a shard; two-way ones need a wrong class first."""
    classes = recorder.collection.classes
    paired = [(one, one.image) for one in shard if one.image is not None and any(":" in name for name in one.job.owed)]
    chosen = recorder.distractors.choose([one.job.sample for one, _ in paired], [image for _, image in paired])
    wrong = {id(one): name for (one, _), name in zip(paired, chosen, strict=True)}
    for one in shard:
        for protocol in one.job.owed if one.image is not None else ():
            other = wrong[id(one)] if ":" in protocol else None
            if isinstance(other, SampleError):
                one.failed[protocol] = other
            else:
                one.questions[protocol] = question(spec, one.job.sample, classes, protocol, other)


def _turn(
    spec: AskSpec, recorder: Recorder, model: Asked, place: int, shard: Sequence[_Pictured]
) -> tuple[list[dict[str, Any]], HoldfastError | None]:
    """One model's rows of a shard, written; and what should stop the run after that."""
    rows, answers = [], []
    for one in shard:
        failed = [name for name in one.failed if place in one.job.owed[name]]
        rows += [recorder.failed(one.job.sample, name, model, one.failed[name]) for name in failed]
    mine = [(one, asked) for one in shard for name, asked in one.questions.items() if place in one.job.owed[name]]
    made = _scores(model, mine) if model.classifier is not None else _texts(spec, model, mine)
    for (one, asked), said in zip(mine, made, strict=True):
        if isinstance(said, (UserError, MachineError)):
            continue
        if isinstance(said, Exception):
            rows.append(recorder.failed(one.job.sample, asked.protocol, model, _words(said)))
            continue
        record: Callable[..., Any] = recorder.scored if model.classifier is not None else recorder.answered
        row, detail = record(one.job.sample, asked, model, said, one.sha256)
        rows.append(row)
        answers += [detail] if detail is not None else []
    recorder.write(rows, answers)
    return rows, next((said for said in made if isinstance(said, (UserError, MachineError))), None)


def _scores(model: Asked, mine: Sequence[tuple[_Pictured, Question]]) -> list[Any]:
    """Probabilities, (1, outputs), a question: one look at an image answers all questions about it."""
    assert model.classifier is not None
    predict = model.classifier.classifier.predict
    images = {id(one): one.image for one, _ in mine if one.image is not None}
    seen = dict(zip(images, _in_halves(lambda some: list(predict(some)), list(images.values())), strict=True))
    made = [seen[id(one)] for one, _ in mine]
    return [one if isinstance(one, Exception) else one[None] for one in made]


def _texts(spec: AskSpec, model: Asked, mine: Sequence[tuple[_Pictured, Question]]) -> list[str | Exception]:
    """An answer in words a question, or what went wrong."""
    assert model.vlm is not None
    answer = model.vlm.answer
    pairs = [(one.image, asked.text) for one, asked in mine]

    def some(part: Sequence[Any]) -> list[str]:
        return _checked(answer([image for image, _ in part], [text for _, text in part]), len(part))

    at_once = int(getattr(model.vlm, "concurrency", 0))
    if at_once:
        threads = ThreadPoolExecutor(at_once)
        try:
            return [one[0] for one in threads.map(lambda pair: _in_halves(some, [pair]), pairs)]
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for a server that hangs
    size = spec.batch_size
    return [one for start in range(0, len(pairs), size) for one in _in_halves(some, pairs[start : start + size])]


def _checked(answers: Sequence[Any], count: int) -> list[str]:
    if len(answers) != count or not all(isinstance(one, str) for one in answers):
        raise SampleError(f"the model gave {len(answers)} answers to {count} questions, or some that are no text")
    return list(answers)


def _in_halves(work: Callable[[Sequence[Item]], list[Made]], items: Sequence[Item]) -> list[Made | Exception]:
    """``work`` of the items; where it fails, of halves of them, down to the items that it fails on.

    A UserError or MachineError is returned for every item that it leaves unanswered.
    """
    if not items:
        return []
    try:
        return list(work(items))
    except Exception as error:
        if len(items) == 1 or not half_may_work(error):
            return [machine_trouble(error) or error] * len(items)
    half = len(items) // 2
    return _in_halves(work, items[:half]) + _in_halves(work, items[half:])


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
