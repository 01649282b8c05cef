"""``holdfast generate``: make a pool of images from prompts, and record where each comes from."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from holdfast.core.errors import HoldfastError, UserError, first_line, raise_machine_trouble
from holdfast.core.files import safe_part, write_atomic
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.protocols import TextToImage
from holdfast.core.types import Image
from holdfast.data.writers import encode_image
from holdfast.engine import Executor, LocalExecutor, core_count
from holdfast.generators import load_image_maker
from holdfast.pipeline.generate.plan import POOL_ROWS, GeneratedPool, GenerateSpec, ImageRequest, plan_prompts
from holdfast.pipeline.jobs.execute import Made, Worker, batched_shard_size, check_same, elsewhere, execute
from holdfast.pipeline.jobs.plan import Job, plan
from holdfast.pipeline.jobs.progress import Progress, Summary, environment, silent
from holdfast.pipeline.jobs.rows import only_trouble
from holdfast.store import Run, writing

BLACK = "the image is black: the generator's safety checker refused it, or its numbers were not finite"
_GIVE_UP = 8  # prompts in a row, whole batches of them, after which it is not the prompts: a GPU that has gone, say
_BATCHES_AHEAD = 2  # that may wait for their files while the next one is made


@dataclass(frozen=True, slots=True)
class MadeImage:
    """What came of a request: an image, or why there is none. ``attempt`` 1 is the second, with the next seed."""

    request: ImageRequest
    seed: int
    attempt: int
    image: Image | None
    error: str
    seconds: float


def generate(
    spec: GenerateSpec,
    out: Path,
    *,
    maker: TextToImage | None = None,  # the generator of the specification, if it is loaded already
    progress: Progress = silent,
    executor: Executor | None = None,
) -> Summary:
    """Make the images that are not there yet, and write the manifest of all that are."""
    run, pool, summary = Run(out), GeneratedPool(out), Summary()
    executor = executor or LocalExecutor(1)
    with writing(out):  # first of all: no one should wait for a generator to hear that nothing can be written
        planned = plan_prompts(spec)
        prompts = list(dict.fromkeys(request.prompt for request in planned.requests))
        known, maker = know_maker(_maker_name(spec), spec.device, prompts, executor, maker)
        recorded = asdict(spec) | {
            "verb": "generate",
            "generator": known.name,
            "generator_fingerprint": known.fingerprint,
            "templates": dict(planned.templates),
            "classes": [category.name for category in planned.categories],
            "prompts": len({request.prompt_id for request in planned.requests}),
            "images": len(planned.requests),
        }
        run.begin(recorded, same=("verb", "generator", "generator_fingerprint", "seed"))
        run.write_environment(environment())
        for where, why in planned.problems:
            summary.add(where, why, 0)
        asked = {request.prompt: request for request in planned.requests}
        for prompt, words in known.cut.items():
            message = f"of the prompt {prompt!r}, {known.name} does not read: {words}"
            summary.add(asked[prompt].place, message, 0)
        pool.drop_lost()
        jobs = [Job(request, (0,)) for request in planned.requests]
        todo = plan(pool.parts, jobs, lambda job: [_row_id(job.item, job.item.seed(spec.seed), known)])
        # A shard has enough prompts to find out that the generator fails on all.
        size = batched_shard_size(todo.count, executor, spec.batch_size, _GIVE_UP)
        finished = execute(
            todo, GenerateWorker(_maker_name(spec), spec, out.absolute(), known), executor, step="generate", size=size,
            known=maker, count=_count_images, progress=progress,
        )  # fmt: skip
        summary.merge(finished)
        pool.finish(planned.categories)
        if trouble := only_trouble(pool.parts.dataset()):
            raise UserError(f"no image could be made: {trouble}; {out / 'failed.csv'} lists all of them")
    return summary


def _maker_name(spec: GenerateSpec) -> str:
    asked = {"negative": spec.negative, "scheduler": spec.scheduler}
    options = "&".join(f"{option}={quote(value)}" for option, value in asked.items() if value)
    joint = "" if not options else "&" if "?" in spec.generator else "?"
    return f"{spec.generator}{joint}{options}"


def load_text_to_image(name: str, device: str) -> TextToImage:
    """Load an image maker by name; raise a UserError if it makes no images from text."""
    maker = load_image_maker(name, device=device)
    if not isinstance(maker, TextToImage):
        raise UserError(f"{name} makes no images from text; holdfast ls image-makers has those that do")
    return maker


@dataclass(frozen=True)
class KnownMaker:
    """What has to be known of a generator before it is used; ``cut``: by prompt, the words that it does not read."""

    name: str
    fingerprint: str
    cut: Mapping[str, str]


def known_of(maker: TextToImage, prompts: Sequence[str]) -> KnownMaker:
    """Return what is known of a generator that is loaded here."""
    read = getattr(maker, "cut_words", None)
    cut = dict(zip(prompts, read(list(prompts)), strict=True)) if read else {}
    return KnownMaker(maker.name, maker.fingerprint, {prompt: words for prompt, words in cut.items() if words})


def know_maker(
    name: str, device: str, prompts: Sequence[str], executor: Executor | None, maker: TextToImage | None = None
) -> tuple[KnownMaker, TextToImage | None]:
    """Return what is known of a generator, and itself if this process uses it; else a worker is asked."""
    if maker is None and elsewhere(executor):  # this machine may lack the memory or the GPU for it
        (known,) = executor.map(_known, [(name, device, tuple(prompts))])
        return known, None
    maker = maker or load_text_to_image(name, device)
    return known_of(maker, prompts), maker


def _known(asked: tuple[str, str, tuple[str, ...]]) -> KnownMaker:
    name, device, prompts = asked
    return known_of(load_text_to_image(name, device), prompts)


def make_images(
    maker: TextToImage, requests: Iterable[ImageRequest], *, seed: int = 0, batch_size: int = 16
) -> Iterator[MadeImage]:
    """Yield an image per request, in batches; one that fails is yielded, and tried again with the next seed."""
    for batch in _batches(maker, requests, seed=seed, batch_size=batch_size):
        yield from batch


def _batches(
    maker: TextToImage, requests: Iterable[ImageRequest], *, seed: int, batch_size: int
) -> Iterator[list[MadeImage]]:
    waiting, broken = iter(requests), 0
    while chosen := list(itertools.islice(waiting, batch_size)):
        images = _attempt(maker, chosen, seed, 0)
        failed = [image.request for image in images if image.image is None]
        again = _attempt(maker, failed, seed, 1) if failed else []
        broken = (
            broken + len(again) if len(again) == len(chosen) and all(image.error != BLACK for image in again) else 0
        )
        if broken >= _GIVE_UP:
            raise UserError(f"the generator fails on every prompt, {broken} in a row: {again[0].error}")
        yield images + again


def _attempt(maker: TextToImage, requests: Sequence[ImageRequest], seed: int, attempt: int) -> list[MadeImage]:
    """Try every request once; if a batch fails, try one at a time to find the prompt that fails."""
    seeds = [request.seed(seed) + attempt for request in requests]
    start = time.perf_counter()
    try:
        images = maker.generate([request.prompt for request in requests], seeds)
    except HoldfastError:
        raise
    except Exception as error:
        raise_machine_trouble(error)
        if len(requests) > 1:
            return [image for request in requests for image in _attempt(maker, [request], seed, attempt)]
        return [MadeImage(requests[0], seeds[0], attempt, None, f"{type(error).__name__}: {first_line(error)}", 0.0)]
    each = (time.perf_counter() - start) / len(requests)
    triples = [
        (*pair, _problem(pair[2]) or _other_than_asked(maker, *pair[:2]))
        for pair in zip(requests, seeds, images, strict=True)
    ]
    return [
        MadeImage(request, own_seed, attempt, None if problem else image, problem, each)
        for request, own_seed, image, problem in triples
    ]


def _problem(image: Image) -> str:
    """Return why an image cannot be used, or ''."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        return f"the generator answered with {image.dtype} of shape {image.shape} instead of an RGB image"
    return "" if image.any() else BLACK


def _other_than_asked(maker: TextToImage, request: ImageRequest, seed: int) -> str:
    """Return what an image shows instead of what its row would say, if the generator knows; else ''."""
    shows = getattr(maker, "shows", None)
    painted: Mapping[str, str] = shows(request.prompt, seed) if shows else {}
    for kind, name in (("category", request.category), (request.nuisance_kind, request.nuisance)):
        if painted.get(kind, name) != name:
            return f"the generator painted the {kind} {painted[kind]!r} instead of {name!r}"
    return ""


class GenerateWorker(Worker[TextToImage]):
    """Makes images, and writes them in threads while the next batch is made."""

    def __init__(self, name: str, spec: Any, out: Path, known: KnownMaker) -> None:
        self.name, self.spec, self._out, self._known = name, spec, out, known

    def load(self) -> TextToImage:
        """Load the generator."""
        maker = load_text_to_image(self.name, self.spec.device)
        check_same(self.name, self._known.fingerprint, maker.fingerprint)
        return maker

    def run(self, maker: TextToImage, jobs: Sequence[Job[Any, Any]]) -> Iterator[Made]:
        """Yield a table per batch: a row per request, and one more per request that was tried a second time."""
        # Whole batches, so that after a kill the batches are the same as without it, and the images to the last bit.
        on_the_way: deque[list[Future[dict[str, Any]]]] = deque()
        requests = [job.item for job in jobs]
        with ThreadPoolExecutor(core_count()) as threads:
            for batch in _batches(maker, requests, seed=self.spec.seed, batch_size=self.spec.batch_size):
                on_the_way.append([threads.submit(self._write, image) for image in batch])
                if len(on_the_way) > _BATCHES_AHEAD:
                    yield _recorded_rows(on_the_way.popleft())
            while on_the_way:
                yield _recorded_rows(on_the_way.popleft())

    def _write(self, made_image: MadeImage) -> dict[str, Any]:
        request = made_image.request
        row = image_row(made_image, request.prompt_id, self._known, self._out) | {
            "row_id": _row_id(request, made_image.seed, self._known),
            "seconds": made_image.seconds,
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "attempt": made_image.attempt,
            "cut_words": self._known.cut.get(request.prompt, ""),
            "licence": self.spec.licence,
            "status": "ok" if made_image.image is not None else "error",
            "error": made_image.error,
        }
        if made_image.image is not None:
            row["height"], row["width"] = made_image.image.shape[:2]
        return row


def _recorded_rows(batch: Sequence[Future[dict[str, Any]]]) -> pa.Table:
    return pa.Table.from_pylist([future.result() for future in batch], schema=POOL_ROWS)


def _row_id(request: ImageRequest, seed: int, known: KnownMaker) -> str:
    return fingerprint([request.prompt_id, request.repeat, seed, known.fingerprint])[:32]


def _count_images(summary: Summary, rows: pa.Table) -> None:
    """Count images as rows, and requests without one as errors."""
    for row in rows.select(["prompt", "attempt", "status", "error"]).to_pylist():
        if row["status"] == "ok":
            summary.rows += 1
        else:
            summary.errors += row["attempt"] > 0  # the first failure is tried again
            again = "; made once more with the next seed" if row["attempt"] == 0 else "; the second time, too"
            summary.add(row["prompt"], row["error"] + again)


def image_row(made_image: MadeImage, prompt_id: str, known: KnownMaker, folder: Path) -> dict[str, Any]:
    """Write an image below a folder, if there is one; return what it shows and where it comes from."""
    request = made_image.request
    names = (request.nuisance_kind, request.category, f"{prompt_id}-{request.repeat}")
    row = {
        "label": request.category,
        "sample_id": "/".join(names),
        "source_id": prompt_id,
        "kind": "generated",
        "condition": request.nuisance_kind,
        "nuisance": request.nuisance,
        "prompt": request.prompt,
        "prompt_id": prompt_id,
        "repeat": request.repeat,
        "seed": made_image.seed,
        "generator": known.name,
        "generator_fingerprint": known.fingerprint,
    }
    if made_image.image is not None:
        data, path = encode_image(made_image.image), "/".join(map(safe_part, names)) + ".png"
        write_atomic(folder / path, data)
        row |= {"path": path, "published_sha256": bytes_sha256(data)}
    return row
