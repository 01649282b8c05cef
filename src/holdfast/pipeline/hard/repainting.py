"""The hard prompts painted anew: is failing the prompt's, or was it luck of the seed?"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import HoldfastError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.protocols import Oracle, TextToImage
from holdfast.data.writers import encode_image
from holdfast.engine import Executor, LocalExecutor
from holdfast.pipeline.files import safe_part
from holdfast.pipeline.generate.generate import (
    GenerateWorker,
    ImageRequest,
    KnownMaker,
    image_row,
    known_elsewhere,
    known_of,
    load_text_to_image,
    make_images,
)
from holdfast.pipeline.generate.plan import POOL_ROWS
from holdfast.pipeline.hard.pool import MeasuredPool, MineSpec, measure
from holdfast.pipeline.hard.results import Selection
from holdfast.pipeline.jobs.execute import batched_shard_size, elsewhere, execute
from holdfast.pipeline.jobs.plan import Job, plan
from holdfast.pipeline.jobs.progress import Progress
from holdfast.store import Parts, write_table

FIRST_REPEAT = 1_000_000
"""Of new images: no pool has so many of one prompt, so their seeds are new however it grows."""

_STAND_IN = "stand-in"
"""What is in the folder only to name a category."""

_COLUMNS = (
    "path", "label", "sample_id", "source_id", "kind", "condition", "nuisance", "prompt", "prompt_id", "repeat", "seed",
    "generator", "generator_fingerprint", "published_sha256",
)  # fmt: skip
_OF_POOL = [POOL_ROWS.field(name) for name in _COLUMNS]
PAINTED = pa.schema(
    [("row_id", pa.string())]  # prompt, repeat and generator
    + [field.with_type(pa.int64()) if field.name == "repeat" else field for field in _OF_POOL]
)


def paint_again(
    spec: MineSpec,
    pool: MeasuredPool,
    selection: Selection,
    oracle: Oracle,
    folder: Path,
    progress: Progress,
    executor: Executor | None = None,
) -> tuple[MeasuredPool | None, list[str]]:
    """Paint hard prompts anew, classify and judge in ``folder/again``; return warnings where that cannot be.

    What was painted before is kept, also for prompts that are no longer hard.
    """
    if not spec.again:
        return None, ["hard prompts were not painted anew (--again 0), so luck of the seed is not told from the prompt"]
    if hasattr(oracle, "knows"):
        return None, ["people cannot have judged images that are not made yet, so hard prompts were not painted anew"]
    hard = pool.images[selection.hard].drop_duplicates("prompt_id")
    if (hard["prompt"] == "").any():
        return None, ["the pool does not record its prompts, so they cannot be painted anew"]
    text, known, maker = _maker(spec, pool, executor)
    wanted = {
        ImageRequest(row["prompt"], row["category"], row["kind"], row["nuisance"], repeat): str(row["prompt_id"])
        for row in hard.to_dict("records")
        for repeat in range(FIRST_REPEAT, FIRST_REPEAT + spec.again)
    }
    place = folder / "again"
    parts = Parts(place / "manifest", PAINTED)
    worker = RepaintWorker(text, spec, place.absolute(), known)
    lost = _paint(worker, known, maker, wanted, parts, progress, executor or LocalExecutor(1))
    stored = {row["row_id"]: row for row in parts.rows().to_pylist()}
    rows = [row for row in stored.values() if row["generator_fingerprint"] == known.fingerprint]
    rows = sorted(rows, key=lambda row: str(row["sample_id"])) + _stand_ins(pool, {row["label"] for row in rows}, place)
    write_table(place / "manifest.parquet", pa.Table.from_pylist(rows, schema=PAINTED).drop(["row_id"]))
    again, _ = measure(spec, str(place / "manifest.parquet"), place, progress, oracle=oracle, executor=executor)
    painted = again.images["kind"] != _STAND_IN
    again = replace(again, images=again.images[painted], failed=again.failed[painted], said=again.said[painted])
    return again, [f"{lost} of {len(wanted)} new images of hard prompts could not be made"] if lost else []


def _stand_ins(pool: MeasuredPool, present: Container[str], place: Path) -> list[dict[str, Any]]:
    """Return a pool image per category that no painted image has, so that models choose among all of them."""
    rows = []
    for category in pool.collection.classes:
        if category not in present:
            sample = next(candidate for candidate in pool.collection.samples if candidate.label == category)
            data = encode_image(sample.image.load())
            path = f"{_STAND_IN}/{safe_part(category)}.png"
            write_atomic(place / path, data)
            facts = {"label": category, "sample_id": f"{_STAND_IN}/{category}", "condition": _STAND_IN}
            rows.append(facts | {"path": path, "kind": "generated", "published_sha256": bytes_sha256(data)})
    return rows


def _maker(spec: MineSpec, pool: MeasuredPool, executor: Executor | None) -> tuple[str, KnownMaker, TextToImage | None]:
    """Return the generator's name (the pool's own, or the one named), what is known of it, and itself if loaded."""
    makers = {
        (str(sample.attributes.get("generator", "")), str(sample.attributes.get("generator_fingerprint", "")))
        for sample in pool.collection.samples
    }
    hint = "name what paints the hard prompts anew (--generator), or leave that out (--again 0)"
    if len(makers) != 1 and not spec.generator:
        raise UserError(f"the pool has images of several generators; {hint}")
    name, identity = next(iter(makers))
    text = spec.generator or name
    if not text:
        raise UserError(f"the pool does not say what made it; {hint}")
    maker = None
    try:
        if elsewhere(executor):
            known = known_elsewhere(text, spec.device, (), executor)
        else:
            maker = load_text_to_image(text, spec.device)
            known = known_of(maker, ())
    except HoldfastError as error:
        raise UserError(f"the generator of the pool cannot be loaded: {error}; {hint}") from error
    if identity and known.fingerprint != identity:
        raise UserError(
            f"{text} is not what made the pool, its weights or settings are others; name the pool's own generator "
            "(--generator), or leave painting out (--again 0)"
        )
    return text, known, maker


Repaint = Job[tuple[ImageRequest, str], None]
"""A job: what is to be painted, and the name that the pool gave its prompt."""


class RepaintWorker(GenerateWorker):
    """Paints prompts in batches and writes the images."""

    def run(self, maker: TextToImage, jobs: Sequence[Repaint]) -> Iterator[dict[str, Any]]:
        """Yield a row per image that could be made."""
        names = dict(job.item for job in jobs)
        for image in make_images(maker, names, seed=self.spec.seed, batch_size=self.spec.batch_size):
            if image.image is not None:
                row = image_row(image, names[image.request], self._known, self._out)
                yield row | {"row_id": _row_id(image.request, self._known)}


def _paint(
    worker: RepaintWorker,
    known: KnownMaker,
    maker: TextToImage | None,
    wanted: dict[ImageRequest, str],
    parts: Parts,
    progress: Progress,
    executor: Executor,
) -> int:
    """Paint what is not stored yet; return how many images could not be made."""
    jobs: list[Repaint] = [Job(item, (None,)) for item in wanted.items()]
    todo = plan(parts, jobs, lambda job: [_row_id(job.item[0], known)])
    size = batched_shard_size(todo.owed, executor, worker.spec.batch_size)
    return todo.owed - execute(todo, worker, executor, step="paint", size=size, known=maker, progress=progress).rows


def _row_id(request: ImageRequest, known: KnownMaker) -> str:
    return f"{request.prompt_id}-{request.repeat}-{known.fingerprint[:16]}"
