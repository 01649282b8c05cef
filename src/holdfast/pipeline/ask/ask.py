"""``holdfast ask``: ask every model every question about every image."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from holdfast.core.tasks import QUESTION
from holdfast.pipeline.ask.matching import read_synonyms
from holdfast.pipeline.ask.rows import AnswerReader, AskIds, AskJobs, details
from holdfast.pipeline.ask.wording import AskSpec, check
from holdfast.pipeline.ask.worker import Questioning
from holdfast.pipeline.jobs.execute import execute
from holdfast.pipeline.jobs.plan import plan
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import begin_run, prepare, read
from holdfast.store import Run, writing

__all__ = ["AskSpec", "ask"]

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
        ids = AskIds(spec, prepared, loaded.models, loaded.distractors)
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
