"""The hard prompts painted anew: is failing the prompt's, or was it luck of the seed?"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import HoldfastError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.protocols import Oracle, TextToImage
from holdfast.data.writers import encode_image
from holdfast.generate.loading import load_image_maker
from holdfast.pipeline.files import safe_part
from holdfast.pipeline.generated.generate import Made, Request, make_images
from holdfast.pipeline.hard.pool import Measured, MineSpec, measure
from holdfast.pipeline.hard.results import Selection
from holdfast.pipeline.progress import Progress
from holdfast.store import Parts, write_table

FIRST_REPEAT = 1_000_000
"""Of new images: no pool has so many of one prompt, so their seeds are new however it grows."""

_STAND_IN = "stand-in"
"""What is in the folder only to name a category."""

PAINTED = pa.schema(
    [
        ("row_id", pa.string()),  # prompt, repeat and generator
        ("path", pa.string()),
        ("label", pa.string()),
        ("sample_id", pa.string()),
        ("source_id", pa.string()),
        ("kind", pa.string()),
        ("condition", pa.string()),
        ("nuisance", pa.string()),
        ("prompt", pa.string()),
        ("prompt_id", pa.string()),
        ("repeat", pa.int64()),
        ("seed", pa.int64()),
        ("generator", pa.string()),
        ("generator_fingerprint", pa.string()),
        ("published_sha256", pa.string()),
    ]
)


def paint_again(
    spec: MineSpec, pool: Measured, selection: Selection, oracle: Oracle, folder: Path, progress: Progress
) -> tuple[Measured | None, list[str]]:
    """New images of every hard prompt, classified and judged in ``folder/again``; warnings where there can be none.

    What was painted before is kept, also for prompts that are no longer hard.
    """
    if not spec.again:
        return None, ["hard prompts were not painted anew (--again 0), so luck of the seed is not told from the prompt"]
    if hasattr(oracle, "knows"):
        return None, ["people cannot have judged images that are not made yet, so hard prompts were not painted anew"]
    hard = pool.images[selection.hard].drop_duplicates("prompt_id")
    if (hard["prompt"] == "").any():
        return None, ["the pool does not record its prompts, so they cannot be painted anew"]
    maker = _maker(spec, pool)
    wanted = {
        Request(row["prompt"], row["category"], row["kind"], row["nuisance"], repeat): str(row["prompt_id"])
        for row in hard.to_dict("records")
        for repeat in range(FIRST_REPEAT, FIRST_REPEAT + spec.again)
    }
    place = folder / "again"
    parts = Parts(place / "manifest", PAINTED)
    lost = _paint(spec, maker, wanted, parts, place, progress)
    rows = [row for row in parts.rows().to_pylist() if row["generator_fingerprint"] == maker.fingerprint]
    rows = sorted(rows, key=lambda row: str(row["sample_id"])) + _stand_ins(pool, {row["label"] for row in rows}, place)
    write_table(place / "manifest.parquet", pa.Table.from_pylist(rows, schema=PAINTED).drop(["row_id"]))
    again, _ = measure(spec, str(place / "manifest.parquet"), place, progress, oracle=oracle)
    painted = again.images["kind"] != _STAND_IN
    again = replace(again, images=again.images[painted], failed=again.failed[painted], said=again.said[painted])
    return again, [f"{lost} of {len(wanted)} new images of hard prompts could not be made"] if lost else []


def _stand_ins(pool: Measured, there: Container[str], place: Path) -> list[dict[str, Any]]:
    """An image of the pool for every category that no painted image has, so that models choose among all of them."""
    rows = []
    for category in pool.collection.classes:
        if category not in there:
            sample = next(one for one in pool.collection.samples if one.label == category)
            data = encode_image(sample.image.load())
            path = f"{_STAND_IN}/{safe_part(category)}.png"
            write_atomic(place / path, data)
            facts = {"label": category, "sample_id": f"{_STAND_IN}/{category}", "condition": _STAND_IN}
            rows.append(facts | {"path": path, "kind": "generated", "published_sha256": bytes_sha256(data)})
    return rows


def _maker(spec: MineSpec, pool: Measured) -> TextToImage:
    """The pool's own generator, or the one that was named."""
    made = {
        (str(sample.attributes.get("generator", "")), str(sample.attributes.get("generator_fingerprint", "")))
        for sample in pool.collection.samples
    }
    hint = "name what paints the hard prompts anew (--generator), or leave that out (--again 0)"
    if len(made) != 1 and not spec.generator:
        raise UserError(f"the pool has images of several generators; {hint}")
    name, identity = next(iter(made))
    text = spec.generator or name
    if not text:
        raise UserError(f"the pool does not say what made it; {hint}")
    try:
        maker = load_image_maker(text, device=spec.device)
    except HoldfastError as error:
        raise UserError(f"the generator of the pool cannot be loaded: {error}; {hint}") from error
    if identity and maker.fingerprint != identity:
        raise UserError(
            f"{text} is not what made the pool, its weights or settings are others; name the pool's own generator "
            "(--generator), or leave painting out (--again 0)"
        )
    return maker


def _paint(
    spec: MineSpec, maker: TextToImage, wanted: dict[Request, str], parts: Parts, place: Path, progress: Progress
) -> int:
    """Paint what is not there yet, and record it batch by batch; returns how many could not be made."""
    stored = parts.stored_ids()
    missing = [one for one in wanted if _row_id(one, maker) not in stored]
    done = lost = 0
    progress("paint", 0, len(missing))
    for start in range(0, len(missing), spec.batch_size):
        part = missing[start : start + spec.batch_size]
        rows = [
            _row(made, wanted[made.request], maker, place)
            for made in make_images(maker, part, seed=spec.seed, batch_size=spec.batch_size)
            if made.image is not None
        ]
        parts.write(pa.Table.from_pylist(rows, schema=PAINTED))
        lost += len(part) - len(rows)
        done += len(part)
        progress("paint", done, len(missing))
    return lost


def _row_id(request: Request, maker: TextToImage) -> str:
    return f"{request.prompt_id}-{request.repeat}-{maker.fingerprint[:16]}"


def _row(made: Made, prompt_id: str, maker: TextToImage, place: Path) -> dict[str, Any]:
    """Write the image, and say what it is. The prompt keeps the name that the pool gave it."""
    assert made.image is not None
    request = made.request
    data = encode_image(made.image)
    parts = (request.nuisance_kind, request.category, f"{prompt_id}-{request.repeat}")
    path = "/".join(safe_part(part) for part in parts) + ".png"
    write_atomic(place / path, data)
    return {
        "row_id": _row_id(request, maker),
        "path": path,
        "label": request.category,
        "sample_id": "/".join(parts),
        "source_id": prompt_id,
        "kind": "generated",
        "condition": request.nuisance_kind,
        "nuisance": request.nuisance,
        "prompt": request.prompt,
        "prompt_id": prompt_id,
        "repeat": request.repeat,
        "seed": made.seed,
        "generator": maker.name,
        "generator_fingerprint": maker.fingerprint,
        "published_sha256": bytes_sha256(data),
    }
