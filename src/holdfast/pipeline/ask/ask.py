"""``holdfast ask``: ask every model every question about every image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, SampleError
from holdfast.core.fingerprint import array_sha256
from holdfast.core.tasks import QUESTION
from holdfast.core.types import Collection, Image
from holdfast.engine import core_count
from holdfast.models import is_vlm, load_vlm
from holdfast.pipeline.ask.rows import AnswerReader, Asked, AskJob, AskJobs, ask_ids, details, row_key
from holdfast.pipeline.ask.wording import (
    AskSpec,
    Distractors,
    Question,
    as_evaluation,
    check,
    check_apart,
    question,
    read_synonyms,
)
from holdfast.pipeline.classifiers import check_names, load_models
from holdfast.pipeline.jobs.execute import Row, execute
from holdfast.pipeline.jobs.plan import plan
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.rows import answer_each, answered
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import begin_run, prepare, read
from holdfast.store import Run, writing


@dataclass
class AskResources:
    """The models, in the order of their names, and the source of wrong options."""

    models: list[Asked]
    distractors: Distractors
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(core_count()))


@dataclass
class _Pictured:
    """A job with its image and its questions; ``failed``: protocol → why it cannot be asked."""

    job: AskJob
    image: Image | None = None
    sha256: str = ""
    questions: dict[str, Question] = field(default_factory=dict)
    failed: dict[str, SampleError] = field(default_factory=dict)

    def owed(self, position: int) -> Iterator[tuple[str, str]]:
        """Yield the protocols that a model still has to be asked by, with row ids."""
        for (protocol, model), row_id in zip(self.job.parts, self.job.ids, strict=True):
            if model == position:
                yield protocol, row_id


_Owed = tuple[_Pictured, Question, str]
"""An image, a question about it, and the id of the row that the answer makes."""


class Questioning:
    """The worker of ``holdfast ask``."""

    def __init__(self, spec: AskSpec, collection: Collection, reader: AnswerReader) -> None:
        self.name = ", ".join(spec.models)
        self._spec, self._collection, self._reader = spec, collection, reader

    def load(self) -> AskResources:
        """Load the models."""
        spec, collection = self._spec, self._collection
        in_words = {name: load_vlm(name, device=spec.device) for name in spec.models if is_vlm(name)}
        others = tuple(name for name in spec.models if name not in in_words)
        tested = dict(zip(others, load_models(as_evaluation(spec, others), collection), strict=True))
        distractors = Distractors(spec, collection)
        check_apart(distractors, {name: model.classifier.fingerprint for name, model in tested.items()})
        models = [
            Asked(in_words[name].name, in_words[name].fingerprint, vlm=in_words[name])
            if name in in_words
            else Asked(tested[name].classifier.name, tested[name].fingerprint, classifier=tested[name])
            for name in spec.models
        ]
        check_names([model.name for model in models])
        return AskResources(models, distractors)

    def fingerprints(self, resources: AskResources) -> list[str]:
        """Return the fingerprints of the models."""
        return [model.fingerprint for model in resources.models]

    def run(self, resources: AskResources, jobs: Sequence[AskJob]) -> Iterator[Row]:
        """Yield the rows of these jobs, model by model."""
        pictured = list(resources.threads.map(self._decode, jobs))
        self._set_questions(resources.distractors, pictured)
        for position, model in enumerate(resources.models):
            owed: list[_Owed] = []
            for picture in pictured:
                for protocol, row_id in picture.owed(position):
                    if protocol in picture.failed:
                        yield self._row(picture, protocol, model, row_id) | answered(picture.failed[protocol])
                    else:
                        owed.append((picture, picture.questions[protocol], row_id))
            yield from self._scored(model, owed) if model.classifier is not None else self._told(model, owed)

    def _decode(self, job: AskJob) -> _Pictured:
        try:
            image = job.item.image.load(max_pixels=self._spec.max_pixels)
        except SampleError as error:
            return _Pictured(job, failed={protocol: error for protocol, _ in job.parts})
        return _Pictured(job, image, array_sha256(image))

    def _set_questions(self, distractors: Distractors, pictured: Sequence[_Pictured]) -> None:
        """Word the questions of a shard; two-way ones need a wrong class first."""
        decoded = [(picture, picture.image) for picture in pictured if picture.image is not None]
        paired = [(picture, image) for picture, image in decoded if any(":" in name for name, _ in picture.job.parts)]
        chosen = distractors.choose([picture.job.item for picture, _ in paired], [image for _, image in paired])
        wrong = {id(picture): name for (picture, _), name in zip(paired, chosen, strict=True)}
        for picture, _ in decoded:
            for protocol in dict.fromkeys(name for name, _ in picture.job.parts):
                other = wrong[id(picture)] if ":" in protocol else None
                if isinstance(other, SampleError):
                    picture.failed[protocol] = other
                else:
                    sample, classes = picture.job.item, self._collection.classes
                    picture.questions[protocol] = question(self._spec, sample, classes, protocol, other)

    def _scored(self, model: Asked, owed: Sequence[_Owed]) -> Iterator[Row]:
        """Yield the rows of a classifier: it sees an image once for all questions about it."""
        assert model.classifier is not None
        tested = model.classifier
        pictures = list({id(picture): picture for picture, _, _ in owed}.values())
        ask = lambda some: list(tested.classifier.predict([picture.image for picture in some]))  # noqa: E731
        answers = dict(zip(map(id, pictures), answer_each(ask, pictures), strict=True))
        for picture, asked, row_id in owed:
            row, scores = self._row(picture, asked.protocol, model, row_id), answers[id(picture)]
            if isinstance(scores, SampleError):
                yield row | answered(scores)
                continue
            outcome = self._reader.scored(asked, scores[None], tested, picture.job.item.label)
            yield self._whole(row, picture, outcome)

    def _told(self, model: Asked, owed: Sequence[_Owed]) -> Iterator[Row]:
        """Yield the rows of a model that answers in words; then raise an error that stops the run, if there was one."""
        assert model.vlm is not None
        at_once = int(getattr(model.vlm, "concurrency", 0))
        size = 1 if at_once else self._spec.batch_size
        batches = [owed[start : start + size] for start in range(0, len(owed), size)]
        threads = ThreadPoolExecutor(max(1, at_once))
        try:
            answers = [threads.submit(self._texts, model, batch) for batch in batches]
            stopped: HoldfastError | None = None
            for batch, future in zip(batches, answers, strict=True):
                texts, stopped = _result(future, answers, stopped)
                for (picture, asked, row_id), text in zip(batch, texts, strict=bool(texts)):
                    row = self._row(picture, asked.protocol, model, row_id)
                    if isinstance(text, SampleError):
                        yield row | answered(text)
                    else:
                        yield self._whole(row, picture, self._reader.in_words(asked, text))
            if stopped is not None:
                raise stopped
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for a server that hangs

    def _texts(self, model: Asked, batch: Sequence[_Owed]) -> list[str | SampleError]:
        assert model.vlm is not None
        answer = model.vlm.answer

        def ask(some: Sequence[_Owed]) -> list[str]:
            images = [picture.image for picture, _, _ in some if picture.image is not None]
            texts = answer(images, [asked.text for _, asked, _ in some])
            if len(texts) != len(some) or not all(isinstance(text, str) for text in texts):
                raise SampleError(f"the model gave {len(texts)} answers to {len(some)} questions, or some are no text")
            return list(texts)

        return answer_each(ask, batch)

    def _row(self, picture: _Pictured, protocol: str, model: Asked, row_id: str) -> Row:
        sample = picture.job.item
        key = row_key(self._spec, self._collection.name, sample, protocol, model.name)
        return key | {"label": sample.label, "row_id": row_id}

    def _whole(self, row: Row, picture: _Pictured, outcome: Row) -> Row:
        answers = [detail | {"row_id": row["row_id"]} for detail in outcome.pop(QUESTION.details, ())]
        return row | {"image_sha256": picture.sha256} | outcome | {QUESTION.details: answers}


def _result(
    future: Future[list[str | SampleError]], others: Sequence[Future[Any]], stopped: HoldfastError | None
) -> tuple[list[str | SampleError], HoldfastError | None]:
    """Return the answers of a batch, or none and the error that stops the run; no other batch begins after that."""
    if future.cancelled():
        return [], stopped
    try:
        return future.result(), stopped
    except HoldfastError as error:
        for other in others:
            other.cancel()
        return [], stopped or error


_SAME = ("verb", "dataset", "classes", "seed", "template", "letters", "distractor")


def ask(spec: AskSpec, out: Path, *, progress: Progress = silent) -> tuple[Run, Summary]:
    """Ask every model every question about every image, and write the rows that are not stored yet."""
    # What the run records of a command must not differ by how a list was spelled.
    spec = replace(spec, models=tuple(spec.models), questions=tuple(dict.fromkeys(spec.questions)))
    run, summary = Run(out), Summary()
    with writing(out):  # first: nobody should wait for models to hear that nothing can be written
        collection = read(spec)
        check(spec, collection.classes)
        reader = AnswerReader(spec, collection, read_synonyms(spec.synonyms, collection.classes))
        worker = Questioning(spec, collection, reader)
        loaded = worker.load()
        prepared = prepare(spec, collection, progress)
        recorded = asdict(spec) | {"verb": "ask", "dataset": collection.name, "classes": list(collection.classes)}
        recorded |= {"template": spec.words, "scenarios": "original"}
        recorded |= {"models": list(spec.models), "questions": list(spec.questions)}
        begin_run(run, recorded, prepared, summary, same=_SAME)
        jobs = AskJobs(spec, collection.samples, len(loaded.models))
        scope = jobs.scope([model.name for model in loaded.models])
        ids = ask_ids(spec, prepared, loaded.models, loaded.distractors)
        owed = plan(
            run.predictions, jobs, ids, scope=scope, retry=spec.retry_errors,
            details={QUESTION.details: details(out)}, progress=progress,
        )  # fmt: skip
        changed = reader.read_again(run, scope)
        if changed:
            summary.add("synonyms", "answers from before are read otherwise now", changed)
        # Small shards, since answers in words are slow; large enough to keep every server busy.
        most = max([getattr(model.vlm, "concurrency", 1) for model in loaded.models], default=1)
        size = max(spec.batch_size, 2 * most, owed.count // 500)
        summary.merge(execute(owed, worker, step="ask", size=size, known=loaded, progress=progress))
    return run, summary
