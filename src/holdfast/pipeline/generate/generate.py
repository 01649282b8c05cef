"""Prompts → a pool of images with where each comes from: planning, making, resuming."""

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

from holdfast.core.errors import HoldfastError, UserError, first_line, raise_machine_trouble
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.protocols import TextToImage
from holdfast.core.types import Image
from holdfast.data.writers import encode_image, write_atomic
from holdfast.engine import Executor, core_count
from holdfast.generate import load_image_maker
from holdfast.pipeline.files import safe_part
from holdfast.pipeline.generate.files import GeneratedPool
from holdfast.pipeline.generate.plan import GenerateSpec, GenerationPlan, ImageRequest, plan
from holdfast.pipeline.jobs.environment import environment
from holdfast.pipeline.jobs.execute import check_same, elsewhere, shard_size
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.summary import Summary
from holdfast.store import Run, writing

__all__ = ["GenerateSpec", "ImageRequest", "MadeImage", "generate", "load_maker", "make_images"]

BLACK = "the image is black: the generator's safety checker refused it, or its numbers were not finite"
_GIVE_UP = 8
"""Prompts in a row, whole batches of them, after which it is not the prompts: a GPU that has gone, say."""
_BATCHES_AHEAD = 2  # that may wait for their files while the next one is made
_SECONDS_A_PART = (1.0, 20.0)
"""How long finished images wait to be recorded, at first and at most: what a kill may cost."""


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
    maker: TextToImage | None = None,
    progress: Progress = silent,
    executor: Executor | None = None,
) -> Summary:
    """Make the images that are not there yet, and write the manifest of all that are.

    Args:
        spec: what to make.
        out: the pool; one that is there is continued, if the generator and the seed are the same.
        maker: the generator of the specification, where it is loaded already.
        progress: told how far it is.
        executor: who makes them; None: this process.
    """
    run, pool = Run(out), GeneratedPool(out)
    with writing(out):  # first of all: nobody should wait for a generator to hear that nothing can be written
        planned = plan(spec)
        prompts = list(dict.fromkeys(request.prompt for request in planned.requests))
        if maker is None and elsewhere(executor):
            known = known_elsewhere(_maker_name(spec), spec.device, prompts, executor)
        else:
            maker = maker or load_maker(spec)
            known = known_of(maker, prompts)
        run.begin(_recorded(spec, planned, known), same=("verb", "generator", "generator_fingerprint", "seed"))
        run.write_environment(environment())
        summary = Summary()
        for where, why in planned.problems:
            summary.add(where, why, 0)
        _tell_cut(known, planned.requests, summary)
        done = pool.finished()
        owed = [request for request in planned.requests if (request.prompt_id, request.repeat) not in done]
        summary.already = len(planned.requests) - len(owed)
        work = GenerateWorker(spec, out, known, maker)
        finished = 0
        progress("generate", 0, len(owed))
        for count, part in _made(work, owed, executor):
            summary.merge(part)
            finished += count
            progress("generate", finished, len(owed))
        pool.finish(planned.categories)
    return summary


def load_maker(spec: GenerateSpec) -> TextToImage:
    """Load the generator of a specification; negative prompt and scheduler are options of its name."""
    return load_text_to_image(_maker_name(spec), spec.device)


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
class Known:
    """What has to be known of a generator before it is used; ``cut``: by prompt, the words that it does not read."""

    name: str
    fingerprint: str
    cut: Mapping[str, str]


def known_of(maker: TextToImage, prompts: Sequence[str]) -> Known:
    """Return what is known of a generator that is loaded here."""
    read = getattr(maker, "cut_words", None)
    cut = dict(zip(prompts, read(list(prompts)), strict=True)) if read else {}
    return Known(maker.name, maker.fingerprint, {prompt: words for prompt, words in cut.items() if words})


def known_elsewhere(name: str, device: str, prompts: Sequence[str], executor: Executor) -> Known:
    """Return what a worker knows of its generator: this machine may lack the memory or the GPU for it."""
    (known,) = executor.map(_known, [(name, device, tuple(prompts))])
    return known


def _known(asked: tuple[str, str, tuple[str, ...]]) -> Known:
    name, device, prompts = asked
    return known_of(load_text_to_image(name, device), prompts)


def make_images(
    maker: TextToImage, requests: Iterable[ImageRequest], *, seed: int = 0, batch_size: int = 16
) -> Iterator[MadeImage]:
    """Yield an image per request, in batches; one that fails is yielded, and tried again with the next seed.

    Args:
        maker: the generator.
        requests: in the order of the result.
        seed: that everything random follows from, with a request's prompt and repeat.
        batch_size: images at once.
    """
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
    """Try every request once; where a batch fails, try one at a time to find the prompt that fails."""
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
    made_images = []
    for request, one_seed, image in zip(requests, seeds, images, strict=True):
        problem = _problem(image)
        made_images.append(MadeImage(request, one_seed, attempt, None if problem else image, problem, each))
    return made_images


def _problem(image: Image) -> str:
    """Return why an image cannot be used, or ''."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        return f"the generator answered with {image.dtype} of shape {image.shape} instead of an RGB image"
    return "" if image.any() else BLACK


def _recorded(spec: GenerateSpec, planned: GenerationPlan, known: Known) -> dict[str, Any]:
    return asdict(spec) | {
        "verb": "generate",
        "generator": known.name,
        "generator_fingerprint": known.fingerprint,
        "templates": dict(planned.templates),
        "classes": [category.name for category in planned.categories],
        "prompts": len({request.prompt_id for request in planned.requests}),
        "images": len(planned.requests),
    }


def _tell_cut(known: Known, requests: Iterable[ImageRequest], summary: Summary) -> None:
    """Report the words of each prompt that the generator does not read."""
    asked = {request.prompt: request for request in requests}
    for prompt, words in known.cut.items():
        message = f"the prompt {prompt!r} is too long for {known.name}, which does not read: {words}"
        summary.add(asked[prompt].place, message, 0)


def _made(
    work: GenerateWorker, owed: Sequence[ImageRequest], executor: Executor | None
) -> Iterator[tuple[int, Summary]]:
    """Make them here, batch by batch, or elsewhere in shards of whole batches: the same ones, wherever they are made.

    A shard has enough prompts to find out that the generator fails on all.
    """
    if not elsewhere(executor):
        yield from work.batches(owed)
        return
    batch = work.spec.batch_size
    size = batch * max(shard_size(len(owed), executor, batch) // batch, -(-_GIVE_UP // batch))
    yield from executor.map(work, [owed[start : start + size] for start in range(0, len(owed), size)])


class GenerateWorker:
    """The work of a shard: make its images, write them, and record them.

    Travels to other processes without its generator, which is loaded there on first use.
    """

    def __init__(self, spec: GenerateSpec, out: Path, known: Known, maker: TextToImage | None) -> None:
        self.spec = spec
        self._out, self._known = out.absolute(), known
        self._maker = maker

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maker": None}

    def __call__(self, requests: Sequence[ImageRequest]) -> tuple[int, Summary]:
        """Make these and record them in one part; returns how many requests, and what came of them."""
        summary = Summary()
        for _, part in self.batches(requests, whole=True):
            summary.merge(part)
        return len(requests), summary

    @property
    def maker(self) -> TextToImage:
        """Return the generator; load it if needed."""
        if self._maker is None:
            maker = load_maker(self.spec)
            check_same(self.spec.generator, self._known.fingerprint, maker.fingerprint)
            self._maker = maker
        return self._maker

    def batches(self, requests: Sequence[ImageRequest], *, whole: bool = False) -> Iterator[tuple[int, Summary]]:
        """Make these batch by batch, recorded now and then, or all at the end."""
        size = self.spec.batch_size
        with ThreadPoolExecutor(core_count()) as threads:
            writer = _Writer(self.spec, GeneratedPool(self._out), self._known, threads, whole=whole)
            submitted = 0
            for batch in _batches(self.maker, requests, seed=self.spec.seed, batch_size=size):
                writer.add(batch)
                count = min(size, len(requests) - submitted)
                submitted += count
                yield count, writer.summary()
            writer.close()
            yield 0, writer.summary()


class _Writer:
    """Encodes and writes images in threads while the next batch is made; records whole batches only.

    So that after a kill the batches are the same as without it, and the images with them to the last bit.
    """

    def __init__(
        self,
        spec: GenerateSpec,
        pool: GeneratedPool,
        known: Known,
        threads: ThreadPoolExecutor,
        *,
        whole: bool,
    ) -> None:
        self._spec, self._pool, self._known = spec, pool, known
        self._threads, self._whole = threads, whole
        self._summary = Summary()
        self._on_the_way: deque[list[Future[dict[str, Any]]]] = deque()
        self._rows: list[dict[str, Any]] = []
        self._written, self._pause = time.monotonic(), _SECONDS_A_PART[0]

    def add(self, batch: Sequence[MadeImage]) -> None:
        """Take a batch; waits for an older one when too many are on the way."""
        self._on_the_way.append([self._threads.submit(self._write, image) for image in batch])
        while len(self._on_the_way) > _BATCHES_AHEAD:
            self._collect()
        if self._rows and not self._whole and time.monotonic() - self._written > self._pause:
            self._record()

    def summary(self) -> Summary:
        """Return the summary of what was written since the last call."""
        summary, self._summary = self._summary, Summary()
        return summary

    def close(self) -> None:
        """Wait for what is on the way and record it."""
        while self._on_the_way:
            self._collect()
        self._record()

    def _collect(self) -> None:
        rows = [future.result() for future in self._on_the_way.popleft()]
        self._rows += rows
        for row in rows:
            if row["status"] == "ok":
                self._summary.rows += 1
            else:
                self._summary.errors += row["attempt"] > 0  # the first failure is tried again
                again = "; made once more with the next seed" if row["attempt"] == 0 else "; the second time, too"
                self._summary.add(row["prompt"], row["error"] + again)

    def _record(self) -> None:
        self._pool.add(self._rows)
        self._rows = []
        self._written, self._pause = time.monotonic(), min(2 * self._pause, _SECONDS_A_PART[1])

    def _write(self, made_image: MadeImage) -> dict[str, Any]:
        request, image = made_image.request, made_image.image
        name = f"{request.prompt_id}-{request.repeat}"
        path = f"{request.nuisance_kind}/{safe_part(request.category)}/{name}.png"
        row = {
            "label": request.category,
            "sample_id": f"{request.nuisance_kind}/{request.category}/{name}",
            "source_id": request.prompt_id,
            "kind": "generated",
            "condition": request.nuisance_kind,
            "nuisance": request.nuisance,
            "prompt": request.prompt,
            "prompt_id": request.prompt_id,
            "repeat": request.repeat,
            "seed": made_image.seed,
            "generator": self._known.name,
            "generator_fingerprint": self._known.fingerprint,
            "seconds": made_image.seconds,
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "attempt": made_image.attempt,
            "cut_words": self._known.cut.get(request.prompt, ""),
            "licence": self._spec.licence,
            "status": "ok" if image is not None else "error",
            "error": made_image.error,
            "row_id": fingerprint([request.prompt_id, request.repeat, made_image.seed, self._known.fingerprint])[:32],
        }
        if image is not None:
            data = encode_image(image)
            write_atomic(self._pool.folder / path, data)
            height, width = image.shape[:2]
            row |= {"path": path, "height": height, "width": width, "published_sha256": bytes_sha256(data)}
        return row
