"""Prompts → a pool of images with where each comes from: planning, making, resuming."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from holdfast.core.errors import HoldfastError, UserError, first_line
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.protocols import TextToImage
from holdfast.core.types import Image
from holdfast.data.writers import encode_image, write_atomic
from holdfast.engine import core_count
from holdfast.generate import load_image_maker
from holdfast.pipeline.environment import environment
from holdfast.pipeline.files import safe_part
from holdfast.pipeline.generated.files import Pool
from holdfast.pipeline.generated.plan import GenerateSpec, Plan, Request, plan
from holdfast.pipeline.progress import Progress, silent
from holdfast.pipeline.summary import Summary
from holdfast.store import Run, writing

__all__ = ["GenerateSpec", "Made", "Request", "generate", "load_maker", "make_images"]

BLACK = "the image is black: the generator's safety checker refused it, or its numbers were not finite"
_GIVE_UP = 8
"""Prompts in a row, whole batches of them, after which it is not the prompts: a GPU that has gone, say."""
_BATCHES_AHEAD = 2  # that may wait for their files while the next one is made
_SECONDS_A_PART = (1.0, 20.0)
"""How long finished images wait to be recorded, at first and at most: what a kill may cost."""


@dataclass(frozen=True, slots=True)
class Made:
    """What came of a request: an image, or why there is none. ``attempt`` 1 is the second, with the next seed."""

    request: Request
    seed: int
    attempt: int
    image: Image | None
    error: str
    seconds: float


def generate(
    spec: GenerateSpec, out: Path, *, maker: TextToImage | None = None, progress: Progress = silent
) -> Summary:
    """Make the images that are not there yet, and write the manifest of all that are.

    Args:
        spec: what to make.
        out: the pool; one that is there is continued, if the generator and the seed are the same.
        maker: the generator of the specification, where it is loaded already.
        progress: told how far it is.
    """
    run, pool = Run(out), Pool(out)
    with writing(out):  # first of all: nobody should wait for a generator to hear that nothing can be written
        planned = plan(spec)
        maker = maker or load_maker(spec)
        run.begin(_recorded(spec, planned, maker), same=("verb", "generator", "generator_fingerprint", "seed"))
        run.write_environment(environment())
        summary = Summary()
        for where, why in planned.problems:
            summary.add(where, why, 0)
        cut = _cut_words(maker, planned.requests, summary)
        done = pool.finished()
        owed = [one for one in planned.requests if (one.prompt_id, one.repeat) not in done]
        summary.already = len(planned.requests) - len(owed)
        with ThreadPoolExecutor(core_count()) as threads:
            writer = _Writer(spec, pool, maker, cut, summary, threads)
            progress("generate", 0, len(owed))
            for number, batch in enumerate(_batches(maker, owed, seed=spec.seed, batch_size=spec.batch_size), start=1):
                writer.add(batch)
                progress("generate", min(number * spec.batch_size, len(owed)), len(owed))
            writer.close()
        pool.finish(planned.categories)
    return summary


def load_maker(spec: GenerateSpec) -> TextToImage:
    """The generator of a specification, its negative prompt and scheduler among the options of its name."""
    asked = {"negative": spec.negative, "scheduler": spec.scheduler}
    options = "&".join(f"{option}={quote(value)}" for option, value in asked.items() if value)
    joint = "" if not options else "&" if "?" in spec.generator else "?"
    maker = load_image_maker(f"{spec.generator}{joint}{options}", device=spec.device)
    if not isinstance(maker, TextToImage):
        raise UserError(f"{spec.generator} makes no images from text; holdfast ls image-makers has those that do")
    return maker


def make_images(
    maker: TextToImage, requests: Iterable[Request], *, seed: int = 0, batch_size: int = 16
) -> Iterator[Made]:
    """An image a request, in batches; what fails is yielded as such and made once more with the next seed.

    Args:
        maker: the generator.
        requests: in the order of the result.
        seed: that everything random follows from, with a request's prompt and repeat.
        batch_size: images at once.
    """
    for batch in _batches(maker, requests, seed=seed, batch_size=batch_size):
        yield from batch


def _batches(maker: TextToImage, requests: Iterable[Request], *, seed: int, batch_size: int) -> Iterator[list[Made]]:
    waiting, broken = iter(requests), 0
    while chosen := list(itertools.islice(waiting, batch_size)):
        made = _attempt(maker, chosen, seed, 0)
        failed = [one.request for one in made if one.image is None]
        again = _attempt(maker, failed, seed, 1) if failed else []
        broken = broken + len(again) if len(again) == len(chosen) and all(one.error != BLACK for one in again) else 0
        if broken >= _GIVE_UP:
            raise UserError(f"the generator fails on every prompt, {broken} in a row: {again[0].error}")
        yield made + again


def _attempt(maker: TextToImage, requests: Sequence[Request], seed: int, attempt: int) -> list[Made]:
    """One try at every request; where the generator fails on a batch, one at a time, to find the prompt it is about."""
    import torch

    seeds = [one.seed(seed) + attempt for one in requests]
    start = time.perf_counter()
    try:
        images = maker.generate([one.prompt for one in requests], seeds)
    except torch.OutOfMemoryError as error:
        raise UserError(f"memory runs out with {len(requests)} images at a time; try a smaller --batch-size") from error
    except HoldfastError:
        raise
    except Exception as error:
        if len(requests) > 1:
            return [made for one in requests for made in _attempt(maker, [one], seed, attempt)]
        return [Made(requests[0], seeds[0], attempt, None, f"{type(error).__name__}: {first_line(error)}", 0.0)]
    each = (time.perf_counter() - start) / len(requests)
    made = []
    for request, one_seed, image in zip(requests, seeds, images, strict=True):
        problem = _problem(image)
        made.append(Made(request, one_seed, attempt, None if problem else image, problem, each))
    return made


def _problem(image: Image) -> str:
    """Why an image cannot be used, or ''."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        return f"the generator answered with {image.dtype} of shape {image.shape} instead of an RGB image"
    return "" if image.any() else BLACK


def _recorded(spec: GenerateSpec, planned: Plan, maker: TextToImage) -> dict[str, Any]:
    return asdict(spec) | {
        "verb": "generate",
        "generator": maker.name,
        "generator_fingerprint": maker.fingerprint,
        "templates": dict(planned.templates),
        "classes": [one.name for one in planned.categories],
        "prompts": len({one.prompt_id for one in planned.requests}),
        "images": len(planned.requests),
    }


def _cut_words(maker: TextToImage, requests: Iterable[Request], summary: Summary) -> dict[str, str]:
    """Prompt → words the generator does not read, where it can tell; each is told once."""
    if not hasattr(maker, "cut_words"):
        return {}
    asked = {one.prompt: one for one in requests}
    cut = {prompt: words for prompt, words in zip(asked, maker.cut_words(list(asked)), strict=True) if words}
    for prompt, words in cut.items():
        message = f"the prompt {prompt!r} is too long for {maker.name}, which does not read: {words}"
        summary.add(asked[prompt].place, message, 0)
    return cut


class _Writer:
    """Encodes and writes images in threads while the next batch is made; records whole batches only.

    So that after a kill the batches are the same as without it, and the images with them to the last bit.
    """

    def __init__(
        self,
        spec: GenerateSpec,
        pool: Pool,
        maker: TextToImage,
        cut: dict[str, str],
        summary: Summary,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._spec, self._pool, self._maker, self._cut, self._summary = spec, pool, maker, cut, summary
        self._threads = threads
        self._on_the_way: deque[list[Future[dict[str, Any]]]] = deque()
        self._rows: list[dict[str, Any]] = []
        self._written, self._pause = time.monotonic(), _SECONDS_A_PART[0]

    def add(self, batch: Sequence[Made]) -> None:
        """Take a batch; waits for an older one when too many are on the way."""
        self._on_the_way.append([self._threads.submit(self._write, one) for one in batch])
        while len(self._on_the_way) > _BATCHES_AHEAD:
            self._collect()
        if self._rows and time.monotonic() - self._written > self._pause:
            self._record()

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
                again = "; made once more with the next seed" if row["attempt"] == 0 else "; the second time, too"
                self._summary.add(row["prompt"], row["error"] + again)

    def _record(self) -> None:
        self._pool.add(self._rows)
        self._rows = []
        self._written, self._pause = time.monotonic(), min(2 * self._pause, _SECONDS_A_PART[1])

    def _write(self, made: Made) -> dict[str, Any]:
        request, image = made.request, made.image
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
            "seed": made.seed,
            "generator": self._maker.name,
            "generator_fingerprint": self._maker.fingerprint,
            "seconds": made.seconds,
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "attempt": made.attempt,
            "cut_words": self._cut.get(request.prompt, ""),
            "licence": self._spec.licence,
            "status": "ok" if image is not None else "error",
            "error": made.error,
            "row_id": fingerprint([request.prompt_id, request.repeat, made.seed, self._maker.fingerprint])[:32],
        }
        if image is not None:
            data = encode_image(image)
            write_atomic(self._pool.folder / path, data)
            height, width = image.shape[:2]
            row |= {"path": path, "height": height, "width": width, "published_sha256": bytes_sha256(data)}
        return row
