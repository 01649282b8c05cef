"""``holdfast ask``: ask every model every question about every image."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core import schema
from holdfast.core.errors import HoldfastError, SampleError, UserError, check_unicode
from holdfast.core.fingerprint import array_sha256, fingerprint, generator
from holdfast.core.protocols import VisionLanguageModel
from holdfast.core.schema import QUESTION
from holdfast.core.types import ORIGINAL, Collection, Image, Sample
from holdfast.data.images import ArrayImage
from holdfast.engine import Executor, ahead, thread_pool
from holdfast.models import is_vlm, load_vlm
from holdfast.pipeline.ask.answers import AnswerReader
from holdfast.pipeline.ask.wording import (
    FULL_LIST,
    AskSpec,
    Distractors,
    Question,
    as_evaluation,
    check,
    check_apart,
    protocols,
    question,
    read_synonyms,
)
from holdfast.pipeline.classifiers import Tested, check_names, load_models, parameter_count
from holdfast.pipeline.donors import make_pool
from holdfast.pipeline.evaluation_rows import RENDERED_COLUMNS
from holdfast.pipeline.jobs.execute import batched_shard_size, choose_executor, execute
from holdfast.pipeline.jobs.plan import Job, Scope, plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import Row, answer_each, answered, check_answered, sample_key
from holdfast.pipeline.samples import (
    Prepared,
    applicable,
    begin_run,
    check_applicable,
    prepare,
    read,
    recorded_spec,
    render_conditions,
    stored_conditions,
)
from holdfast.scenarios import Condition, parse_conditions
from holdfast.stats.effects.sequential import RunningInterval
from holdfast.stats.hard.questions import COLUMNS, guessing
from holdfast.stats.hard.questions import answered as answered_questions
from holdfast.store import Run, writing

Part = tuple[str, int, Condition]  # A protocol, the position of a model in the command's list, and what is shown
AskJob = Job[Sample, Part]


@dataclass(frozen=True)
class Asked:
    """A model that is asked: one that answers in words, or a classifier that is scored on the same options."""

    name: str
    fingerprint: str
    vlm: VisionLanguageModel | None = None
    classifier: Tested | None = None


@dataclass(frozen=True)
class AskJobs:
    """Every sample with its protocols × models × conditions."""

    spec: AskSpec
    samples: Sequence[Sample]
    models: Sequence[str]
    conditions: Sequence[Condition]

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[AskJob]:
        stored = stored_conditions(self.samples)
        for sample in self.samples:
            shown = applicable(sample, self.conditions, stored)
            yield Job(sample, list(product(protocols(self.spec, sample), range(len(self.models)), shown)))

    def scope(self) -> Scope:
        """Return the stored rows that the command answers for."""
        rows = (pc.field("task") == QUESTION) & pc.field("model").isin(list(self.models))
        keys = lambda: (  # noqa: E731
            row_key(self.spec, "", job.item, protocol, "", condition)
            for job in self for protocol, _, condition in job.parts
        )  # fmt: skip
        return Scope.of_keys(rows, ("sample_id", "protocol", "condition", "variant", "parameters"), keys)


def row_key(
    spec: AskSpec, dataset: str, sample: Sample, protocol: str, model: str, condition: Condition
) -> dict[str, Any]:
    """Return the key columns of one row."""
    rendered = condition.scenario != ORIGINAL
    return sample_key(
        sample, task=QUESTION, dataset=dataset, condition=condition.scenario if rendered else sample.condition,
        variant=condition.variant if rendered else "as_stored", seed=spec.seed, model=model, protocol=protocol,
        parameters=spec.parameters(protocol, json.loads(condition.parameters_json) if rendered else None),
    )  # fmt: skip


def ask_ids(
    spec: AskSpec, prepared: Prepared, models: Sequence[Asked], distractors: Distractors
) -> Callable[[AskJob], list[str]]:
    """Return a function from a job to its row ids. Synonyms are not part of them: they change only the reading."""
    dataset, classes = prepared.collection.name, list(prepared.collection.classes)

    def ids(job: AskJob) -> list[str]:
        sample, row_ids = job.item, []
        for protocol, position, condition in job.parts:
            distractor = "" if protocol == FULL_LIST else distractors.fingerprint(sample)
            pool = [prepared.pool_fingerprint] if condition.definition.donor else []
            image = fingerprint([prepared.images[sample.sample_id], sample.label, classes, distractor, *pool])
            mask = prepared.masks[sample.sample_id] if condition.definition.needs_mask else ""
            model = models[position]
            key = row_key(spec, dataset, sample, protocol, model.name, condition)
            row_ids.append(schema.row_id(key, image=image, mask=mask, model=model.fingerprint))
        return row_ids

    return ids


@dataclass
class AskResources:
    """The models, in the order of their names, and the source of wrong options."""

    models: list[Asked]
    distractors: Distractors
    threads: ThreadPoolExecutor = field(default_factory=thread_pool)


@dataclass
class _Pictured:
    """A job's image under a condition and its questions; ``failed``: protocol → status of what cannot be asked."""

    job: AskJob
    condition: Condition
    image: Image | None = None
    facts: Row = field(default_factory=dict)  # hash of the image, and whose background it has
    questions: dict[str, Question] = field(default_factory=dict)
    failed: dict[str, Row] = field(default_factory=dict)

    def owed(self, position: int) -> Iterator[tuple[str, str]]:
        """Yield the protocols that a model still has to be asked by, with row ids."""
        for (protocol, model, condition), row_id in zip(self.job.parts, self.job.ids, strict=True):
            if model == position and condition == self.condition:
                yield protocol, row_id


_Owed = tuple[_Pictured, Question, str]  # an image, a question about it, and the id of the row that the answer makes


class Questioning:
    """The worker of ``holdfast ask``."""

    def __init__(self, spec: AskSpec, collection: Collection, reader: AnswerReader) -> None:
        self.name = ", ".join(spec.models)
        self._spec, self._collection, self._reader = spec, collection, reader
        self._pool = make_pool(collection.samples, spec.backgrounds, max_pixels=spec.max_pixels)

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
        count = at_once(self._spec, resources.models)
        shown = ahead(resources.threads, self._decode, jobs, count)
        while some := list(islice(shown, count)):
            yield from self._answers(resources, some)

    def _answers(self, resources: AskResources, shown: Sequence[Sequence[_Pictured]]) -> Iterator[Row]:
        self._set_questions(resources.distractors, shown)
        pictured = [picture for several in shown for picture in several]
        for position, model in enumerate(resources.models):
            owed: list[_Owed] = []
            for picture in pictured:
                for protocol, row_id in picture.owed(position):
                    if protocol in picture.failed:
                        yield self._row(picture, protocol, model, row_id) | picture.failed[protocol]
                    else:
                        owed.append((picture, picture.questions[protocol], row_id))
            yield from self._scored(model, owed) if model.classifier is not None else self._told(model, owed)

    def _decode(self, job: AskJob) -> list[_Pictured]:
        """Return the image as it is, then under each condition that is missing."""
        wanted = list(dict.fromkeys((Condition(ORIGINAL), *(condition for _, _, condition in job.parts))))
        pictured = []
        for each in render_conditions(
            job.item, wanted, self._pool, seed=self._spec.seed, max_pixels=self._spec.max_pixels
        ):
            if each.rendered is None:
                failed: Row = {"status": each.status, "error": each.error[:500]}
                pictured.append(_Pictured(job, each.condition, failed={name: failed for name, _, _ in job.parts}))
                continue
            image = ArrayImage(each.rendered.image).load(max_pixels=self._spec.max_pixels)
            facts = {name: value for name, value in each.rendered.details.items() if name in RENDERED_COLUMNS}
            pictured.append(_Pictured(job, each.condition, image, facts | {"image_sha256": array_sha256(image)}))
        return pictured

    def _set_questions(self, distractors: Distractors, shown: Sequence[Sequence[_Pictured]]) -> None:
        """Word the questions of a shard; two-way ones need a wrong class first, which the image as it is decides."""
        decoded = [(several, image) for several in shown if (image := several[0].image) is not None]
        paired = [(some, image) for some, image in decoded if any(":" in name for name, _, _ in some[0].job.parts)]
        chosen = distractors.choose([some[0].job.item for some, _ in paired], [image for _, image in paired])
        wrong = {id(some): name for (some, _), name in zip(paired, chosen, strict=True)}
        for several, _ in decoded:
            sample = several[0].job.item
            for protocol in dict.fromkeys(name for name, _, _ in several[0].job.parts):
                other = wrong[id(several)] if ":" in protocol else None
                for picture in several:
                    if isinstance(other, SampleError):
                        picture.failed[protocol] = answered(other)
                    else:
                        picture.questions[protocol] = question(
                            self._spec, sample, self._collection.classes, protocol, other
                        )

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
        requests = int(getattr(model.vlm, "concurrency", 0))
        size = 1 if requests else self._spec.batch_size
        batches = [owed[start : start + size] for start in range(0, len(owed), size)]
        threads = ThreadPoolExecutor(requests or getattr(model.vlm, "threads", 1))
        try:
            answers = [threads.submit(self._texts, model, batch) for batch in batches]
            stopped: HoldfastError | None = None
            for batch, future in zip(batches, answers, strict=True):
                texts: list[str | SampleError] = []
                try:
                    texts = [] if future.cancelled() else future.result()
                except HoldfastError as error:  # no other batch begins after that
                    stopped = stopped or error
                    for other in answers:
                        other.cancel()
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
                raise SampleError(f"the model gave {len(texts)} answers to {len(some)} questions, or some are not text")
            return list(texts)

        return [_unicode(answer) for answer in answer_each(ask, batch)]

    def _row(self, picture: _Pictured, protocol: str, model: Asked, row_id: str) -> Row:
        sample = picture.job.item
        key = row_key(self._spec, self._collection.name, sample, protocol, model.name, picture.condition)
        return key | {"label": sample.label, "row_id": row_id}

    def _whole(self, row: Row, picture: _Pictured, outcome: Row) -> Row:
        answers = [detail | {"row_id": row["row_id"]} for detail in outcome.pop("answers", ())]
        return row | picture.facts | outcome | {"answers": answers}


def _unicode(answer: str | SampleError) -> str | SampleError:
    """Return an answer that a table can hold, or the SampleError that its row reports."""
    try:
        return answer if isinstance(answer, SampleError) else check_unicode(answer, "the answer")
    except SampleError as error:
        return error


def at_once(spec: AskSpec, models: Sequence[Asked]) -> int:
    """Return about how many images are asked together: few, since answers in words are slow, but all servers busy."""
    threads = [
        2 * getattr(model.vlm, "concurrency", getattr(model.vlm, "threads", 1) * spec.batch_size) for model in models
    ]
    return max(threads, default=spec.batch_size)


ROUND = 24
"""Images of a round of ``--stop when-decided``."""

_SAME = ("verb", "dataset", "classes", "seed", "template", "letters", "distractor")


def ask(
    spec: AskSpec, out: Path, *, progress: Progress = silent, executor: Executor | None = None
) -> tuple[Run, Summary]:
    """Ask every model every question about every image, and write the rows that are not stored yet."""
    # What the run records of a command must not differ by how a list was spelled.
    spec = replace(spec, models=tuple(spec.models), questions=tuple(dict.fromkeys(spec.questions)))
    run, summary = Run(out), Summary()
    with writing(out):  # first: no one should wait for models to hear that nothing can be written
        collection = read(spec)
        check(spec, collection.classes)
        conditions = parse_conditions(spec.scenarios)
        if others := [each.name for each in conditions if each.definition.attack or each.definition.paints]:
            raise UserError(f"ask does not make {others[0]}: it takes scenarios without a generator and no attacks")
        check_applicable(collection.samples, conditions)
        reader = AnswerReader(spec, collection, read_synonyms(spec.synonyms, collection.classes))
        worker = Questioning(spec, collection, reader)
        loaded = worker.load()
        prepared = prepare(spec, collection, progress)
        recorded = recorded_spec(spec, "ask", collection, template=spec.words)
        names = [model.name for model in loaded.models]
        whole = AskJobs(spec, collection.samples, names, conditions).scope()
        rounds = _rounds(collection, spec.seed) if spec.stop != "never" else [list(collection.samples)]
        asked: list[list[str]] = []
        before: dict[tuple[str, str], RunningInterval] = {}
        for samples in rounds:
            if spec.stop != "never":
                asked.append(sorted({sample.source_id for sample in samples}))
                recorded |= {"rounds": asked}
            begin_run(run, recorded, prepared, summary, same=_SAME)
            owed = plan(
                run.predictions, jobs := AskJobs(spec, samples, names, conditions),
                ask_ids(spec, prepared, loaded.models, loaded.distractors), scope=jobs.scope(), retry=spec.retry_errors,
                details={"answers": run.details("answers")}, progress=progress,
            )  # fmt: skip
            if samples is rounds[0] and (changed := reader.read_again(run, whole)):
                summary.add("synonyms", "answers from before are read otherwise now", changed)
            together, chooser = at_once(spec, loaded.models), [spec.distractor] if loaded.distractors.model else []
            known = [*(each.vlm or each.classifier for each in loaded.models), loaded.distractors.model]
            held = sum(parameter_count(getattr(each, "model", each)) for each in known)
            slow = {"most": 4, "pays": 1000} if any(map(is_vlm, spec.models)) else {}  # one process: 78 a second
            where = choose_executor(
                owed, worker, executor, spec.device, [*spec.models, *chooser], conditions=conditions, batch=together,
                parameters=held, **slow,
            )  # fmt: skip
            size = min(batched_shard_size(owed.count, where, together), max(8 * together, owed.count // 500))
            summary.merge(execute(owed, worker, where, step="ask", size=size, known=loaded, progress=progress))
            if asked:
                here = pc.field("source_id").isin([name for names in asked for name in names])
                rows = run.predictions.dataset().to_table(columns=COLUMNS, filter=here)
                decided, lines = guessing(answered_questions(rows, run.details("answers").rows()), before)
                if decided or samples is rounds[-1]:
                    summary.notes += lines
                    break
    check_answered(run, names)
    return run, summary


def _rounds(collection: Collection, seed: int) -> list[list[Sample]]:
    """Return the samples in rounds of images (or prompts) in random order; what is of one image stays together."""
    by_source: dict[str, list[Sample]] = {}
    for sample in collection.samples:
        by_source.setdefault(sample.source_id, []).append(sample)
    names = sorted(by_source)
    order = [names[place] for place in generator(seed, "questions in rounds").permutation(len(names))]
    return [
        [sample for name in order[start : start + ROUND] for sample in by_source[name]]
        for start in range(0, len(order), ROUND)
    ]
