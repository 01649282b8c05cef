"""``holdfast ask``: ask every model every question about every image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.core import schema
from holdfast.core.errors import HoldfastError, SampleError
from holdfast.core.fingerprint import array_sha256, fingerprint, generator
from holdfast.core.protocols import Refusal, VisionLanguageModel
from holdfast.core.schema import ANSWERS, PREDICTIONS
from holdfast.core.tasks import QUESTION
from holdfast.core.types import Collection, Image, Sample
from holdfast.engine import core_count
from holdfast.models import is_vlm, load_vlm
from holdfast.pipeline.ask.wording import (
    FULL_LIST,
    AskSpec,
    Distractors,
    Question,
    Synonyms,
    as_evaluation,
    best_of_class,
    check,
    check_apart,
    is_refusal,
    protocols,
    question,
    read_answer,
    read_synonyms,
)
from holdfast.pipeline.classifiers import Tested, check_names, load_models
from holdfast.pipeline.jobs.execute import execute
from holdfast.pipeline.jobs.plan import Job, Scope, plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import Row, answer_each, answered, outcome_rows, sample_key
from holdfast.pipeline.samples import Prepared, begin_run, prepare, read
from holdfast.stats.effects.sequential import RunningInterval
from holdfast.stats.hard.questions import COLUMNS, guessing
from holdfast.stats.hard.questions import answered as answered_questions
from holdfast.store import Parts, Run, writing

LONGEST = 2000  # characters of an answer that are kept and read
Part = tuple[str, int]  # A protocol, and the position of a model in the command's list
AskJob = Job[Sample, Part]


@dataclass(frozen=True)
class Asked:
    """A model that is asked: one that answers in words, or a classifier that is scored on the same options."""

    name: str
    fingerprint: str
    vlm: VisionLanguageModel | None = None
    classifier: Tested | None = None


def details(run: Path) -> Parts:
    """Return the table of answers of a run, keyed by the row ids of the one table."""
    return Parts(run / "details" / QUESTION.details, ANSWERS)


@dataclass(frozen=True)
class AskJobs:
    """Every sample with its protocols × models."""

    spec: AskSpec
    samples: Sequence[Sample]
    models: Sequence[str]

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[AskJob]:
        for sample in self.samples:
            yield Job(sample, list(product(protocols(self.spec, sample), range(len(self.models)))))

    def scope(self) -> Scope:
        """Return the stored rows that the command answers for."""
        rows = (pc.field("task") == QUESTION.name) & pc.field("model").isin(list(self.models))
        asked = {(sample.sample_id, name) for sample in self.samples for name in protocols(self.spec, sample)}
        return Scope(rows, ("sample_id", "protocol"), lambda row: (row["sample_id"], row["protocol"]) in asked)


def row_key(spec: AskSpec, dataset: str, sample: Sample, protocol: str, model: str) -> dict[str, Any]:
    """Return the key columns of one row."""
    return sample_key(
        sample, task=QUESTION.name, dataset=dataset, condition=sample.condition, variant="as_stored",
        parameters=spec.parameters(protocol), seed=spec.seed, model=model, protocol=protocol,
    )  # fmt: skip


def ask_ids(
    spec: AskSpec, prepared: Prepared, models: Sequence[Asked], distractors: Distractors
) -> Callable[[AskJob], list[str]]:
    """Return a function from a job to its row ids. Synonyms are no part of them: they change only the reading."""
    dataset, classes = prepared.collection.name, list(prepared.collection.classes)

    def ids(job: AskJob) -> list[str]:
        sample, row_ids = job.item, []
        for protocol, position in job.parts:
            distractor = "" if protocol == FULL_LIST else distractors.fingerprint(sample)
            image = fingerprint([prepared.images[sample.sample_id], sample.label, classes, distractor])
            model = models[position]
            key = row_key(spec, dataset, sample, protocol, model.name)
            row_ids.append(schema.row_id(key, image=image, mask="", model=model.fingerprint))
        return row_ids

    return ids


class AnswerReader:
    """Turns answers into outcome columns and details."""

    def __init__(self, spec: AskSpec, collection: Collection, synonyms: Synonyms) -> None:
        self._letters, self._classes, self._synonyms = spec.letters, collection.classes, synonyms

    def in_words(self, asked: Question, answer: str) -> Row:
        """Return the outcome of an answer in words, with its details."""
        kept = Refusal(answer[:LONGEST]) if isinstance(answer, Refusal) else answer[:LONGEST]
        outcome, detail = self._read(kept, asked.options, asked.place)
        return outcome | {"status": "ok", "raw_text": str(kept), QUESTION.details: [detail | _question(asked)]}

    def scored(self, asked: Question, scores: NDArray[np.float32], model: Tested, label: str) -> Row:
        """Return the outcome of a classifier, with its details; ``scores``: its probabilities, (1, outputs)."""
        (outcome,) = outcome_rows(scores, model.labels, [label])
        if outcome["status"] != "ok":
            return outcome
        if asked.protocol != FULL_LIST:
            outcome |= _of_two(scores, model, asked, label)
        # The best of all outputs may be none of the options: that is the strict reading of a classifier's answer.
        detail = {
            "strict": outcome["correct"],
            "lenient": outcome["correct_restricted"],
            "matched": outcome["prediction_restricted"],
            "refusal": False,
            "unmatched": outcome["prediction_restricted"] is None,
        }
        return outcome | {QUESTION.details: [detail | _question(asked)]}

    def read_again(self, run: Run, scope: Scope) -> int:
        """Read stored answers once more where synonyms have changed since; return how many now mean something else."""
        wanted = scope.rows & (pc.field("status") == "ok") & pc.field("raw_text").is_valid()
        answers = details(run.path)
        before_by_id = {detail["row_id"]: detail for detail in answers.rows().to_pylist()}
        changed, changed_details = [], []
        for row in filter(scope.covers, run.predictions.dataset().to_table(filter=wanted).to_pylist()):
            before = before_by_id.get(row["row_id"])
            if before is None:
                continue
            marked = before["refusal"] and not is_refusal(row["raw_text"])
            text = Refusal(row["raw_text"]) if marked else row["raw_text"]
            outcome, detail = self._read(text, before["options"], before["truth_place"])
            if before | detail != before:
                changed.append(row | outcome)
                changed_details.append(before | detail)
        if changed:
            ids = {row["row_id"] for row in changed}
            run.predictions.drop_ids(ids)
            answers.drop_ids(ids)
            answers.write(pa.Table.from_pylist(changed_details, schema=ANSWERS))
            run.predictions.write(pa.Table.from_pylist(changed, schema=PREDICTIONS))
        return len(changed)

    def _read(self, answer: str, options: Sequence[str], place: int) -> tuple[Row, Row]:
        """Return outcome columns (strict as the full, lenient as the restricted answer) and details."""
        reading = read_answer(answer, options, self._synonyms, classes=self._classes, letters=self._letters)
        truth = options[place - 1]
        strict, lenient = reading.strict == truth, reading.lenient == truth
        outcome = {"prediction": reading.strict, "correct": strict}
        outcome |= {"prediction_restricted": reading.lenient, "correct_restricted": lenient}
        detail = {"strict": strict, "lenient": lenient, "matched": reading.lenient}
        return outcome, detail | {"refusal": reading.refusal, "unmatched": reading.unmatched}


def _question(asked: Question) -> Row:
    return {"options": list(asked.options), "truth_place": asked.place, "distractor": asked.distractor}


def _of_two(scores: NDArray[np.float32], model: Tested, asked: Question, label: str) -> Row:
    """Return the outcome columns among the two options; a tie goes to the class that comes first in the dataset."""
    classes = model.labels.classes
    best = best_of_class(scores, model.labels)[0]
    pair = sorted((classes.index(option) for option in asked.options), key=lambda place: (-best[place], place))
    sums = {classes[place]: float(scores[0, list(model.labels.members[place])].sum()) for place in pair}
    total = sum(sums.values())
    chosen = classes[pair[0]] if best[pair[0]] > 0 else None
    share = sums[chosen] / total if chosen else 0.0
    return {
        "prediction": chosen,
        "correct": chosen == label,
        "prediction_restricted": chosen,
        "correct_restricted": chosen == label,
        "confidence": share,
        "confidence_restricted": share,
        "probability_of_label": sums[label] / total if total else 0.0,
    }


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


_Owed = tuple[_Pictured, Question, str]  # an image, a question about it, and the id of the row that the answer makes


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


ROUND = 24
"""Photos of a round of ``--stop when-decided``."""

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
        names = [model.name for model in loaded.models]
        whole = AskJobs(spec, collection.samples, names).scope()
        rounds = _rounds(collection, spec.seed) if spec.stop != "never" else [list(collection.samples)]
        asked: list[list[str]] = []
        before: dict[tuple[str, str], RunningInterval] = {}
        for samples in rounds:
            if spec.stop != "never":
                asked.append(sorted({sample.source_id for sample in samples}))
                recorded |= {"rounds": asked}
            begin_run(run, recorded, prepared, summary, same=_SAME)
            owed = plan(
                run.predictions, jobs := AskJobs(spec, samples, names),
                ask_ids(spec, prepared, loaded.models, loaded.distractors), scope=jobs.scope(), retry=spec.retry_errors,
                details={QUESTION.details: details(out)}, progress=progress,
            )  # fmt: skip
            if samples is rounds[0] and (changed := reader.read_again(run, whole)):
                summary.add("synonyms", "answers from before are read otherwise now", changed)
            # Small shards, since answers in words are slow; large enough to keep every server busy.
            most = max([getattr(model.vlm, "concurrency", 1) for model in loaded.models], default=1)
            size = max(spec.batch_size, 2 * most, owed.count // 500)
            summary.merge(execute(owed, worker, step="ask", size=size, known=loaded, progress=progress))
            if asked:
                here = pc.field("source_id").isin([name for names in asked for name in names])
                rows = run.predictions.dataset().to_table(columns=COLUMNS, filter=here)
                decided, lines = guessing(answered_questions(rows, details(out).rows()), before)
                if decided or samples is rounds[-1]:
                    summary.notes += lines
                    break
    return run, summary


def _rounds(collection: Collection, seed: int) -> list[list[Sample]]:
    """Return the samples in rounds of photos (or prompts) in random order; what is of one photo stays together."""
    by_source: dict[str, list[Sample]] = {}
    for sample in collection.samples:
        by_source.setdefault(sample.source_id, []).append(sample)
    names = sorted(by_source)
    order = [names[place] for place in generator(seed, "questions in rounds").permutation(len(names))]
    return [
        [sample for name in order[start : start + ROUND] for sample in by_source[name]]
        for start in range(0, len(order), ROUND)
    ]
