"""Small pictures of what the models saw, made again from the data of a run."""

from __future__ import annotations

from collections.abc import Collection as Container
from dataclasses import fields
from typing import Any

from holdfast.core.conditions import condition_name
from holdfast.core.errors import HoldfastError
from holdfast.core.types import ORIGINAL, Sample
from holdfast.data.writers import encode_image
from holdfast.pipeline.donors import make_pool
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec
from holdfast.pipeline.generate.backgrounds import THUMBNAIL, thumbnail_path
from holdfast.pipeline.generate.backgrounds import small as small
from holdfast.pipeline.samples import applicable, over_matte, read, render_conditions, stored_conditions, stored_variant
from holdfast.scenarios import Condition, parse_conditions
from holdfast.store import Run


def thumbnails(run: Run, source_ids: Container[str], *, size: int = THUMBNAIL) -> dict[tuple[str, str], bytes]:
    """Return JPEGs of what shows these sources, by (sample_id, condition name as in stats.reduce).

    Empty where the data is no longer there; a photo that changed since the run is left out, because its picture would
    not be what the models saw.
    """
    if "data" not in run.spec():  # a table that was not made by evaluate
        return {}
    spec = spec_of(run)
    try:
        collection = read(spec)
        conditions = parse_conditions(spec.scenarios, feather=spec.feather)
        # An attack's picture differs from model to model, and remaking it would take the models.
        conditions = [condition for condition in conditions if not condition.definition.attack]
        painted = [condition for condition in conditions if condition.definition.paints]
        conditions = [condition for condition in conditions if not condition.definition.paints]
    except HoldfastError:
        return {}
    pool = make_pool(collection.samples, spec.backgrounds, max_pixels=spec.max_pixels)
    recorded = {row["sample_id"]: row["image_fingerprint"] for row in run.samples().to_pylist()}
    stored = stored_conditions(collection.samples)
    files = {}
    for sample in collection.samples:
        if sample.source_id in source_ids and _unchanged(sample, recorded):
            # Painted again they would take the generator, and another machine paints another last bit.
            for condition in painted:
                kept = thumbnail_path(run.path, sample.sample_id, condition)
                if kept.is_file():
                    files[sample.sample_id, condition.name] = kept.read_bytes()
            for rendering in render_conditions(
                sample, applicable(sample, conditions, stored), pool, seed=spec.seed, max_pixels=spec.max_pixels
            ):
                if rendering.rendered is not None:
                    name = _name(rendering.condition, sample)
                    image = over_matte(rendering.rendered.image, spec.matte)
                    files[sample.sample_id, name] = encode_image(small(image, size), format="jpeg", quality=80)
    return files


def spec_of(run: Run) -> EvaluateSpec:
    """Return the specification that a run recorded."""
    recorded = run.spec()
    names = {field.name for field in fields(EvaluateSpec)}
    values: dict[str, Any] = {}
    for name, value in recorded.items():
        if name in names:
            values[name] = tuple(value) if isinstance(value, list) else value
    if not values.get("batch_size", 1):  # a training that takes the batch of its recipe
        del values["batch_size"]
    return EvaluateSpec(**values)


def _unchanged(sample: Sample, recorded: dict[str, str]) -> bool:
    try:
        return sample.image.fingerprint() == recorded.get(sample.sample_id)
    except HoldfastError:
        return False


def _name(condition: Condition, sample: Sample) -> str:
    """Return the condition's name as in the one table."""
    return condition.name if sample.condition == ORIGINAL else condition_name(sample.condition, stored_variant(sample))
