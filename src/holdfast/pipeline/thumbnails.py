"""Small images of what the models saw, made again from the data of a run."""

from __future__ import annotations

from collections.abc import Collection as Container
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from holdfast.core.errors import HoldfastError, UserError
from holdfast.core.names import condition_name
from holdfast.core.schema import DETECT
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.data.writers import encode_image
from holdfast.pipeline.donors import AssignedDonors, DonorPool, make_pool
from holdfast.pipeline.evaluate.matching import as_detectors_see, for_detectors
from holdfast.pipeline.generate.tools import load_tools
from holdfast.pipeline.samples import applicable, over_matte, read, render_conditions, stored_conditions, stored_variant
from holdfast.pipeline.small_copies import THUMBNAIL, painted_id, small, thumbnail_path
from holdfast.pipeline.specs import EvaluateSpec
from holdfast.scenarios import parse_conditions
from holdfast.store import Run


def thumbnails(
    run: Run, source_ids: Container[str], *, size: int = THUMBNAIL, only: Container[str] = (), data: str = ""
) -> dict[tuple[str, str], bytes]:
    """Return JPEGs of what shows these sources, by (sample_id, condition name as in stats.reduce).

    ``only``: the conditions, if not all. ``data``: the same images from elsewhere, such as scenes drawn larger.
    """
    # Empty if the data is gone. An image that changed since the run is left out: its thumbnail would not be what the
    # models saw.
    if "data" not in run.spec():  # a table that was not made by evaluate
        return {}
    spec = replace(spec_of(run), data=data) if data else spec_of(run)
    try:
        collection = read(spec)
        conditions = parse_conditions(spec.scenarios, feather=spec.feather)
        if run.spec().get("task") == DETECT:
            collection, conditions = as_detectors_see(spec, collection), for_detectors(spec, conditions)
        asked = [(condition, condition.definition) for condition in conditions]
        # An attack's image differs from model to model, and remaking it would take the models.
        painted = [condition for condition, known in asked if known.paints and not known.attack]
        conditions = [condition for condition, known in asked if not known.paints and not known.attack]
        conditions = [condition for condition in conditions if condition.name in only] or conditions
    except HoldfastError:
        return {}
    pool = _pool(run, collection, spec)
    recorded = {row["sample_id"]: row["image_fingerprint"] for row in run.samples().to_pylist()}
    stored = stored_conditions(collection.samples)
    files = {}
    for sample in collection.samples:
        if sample.source_id in source_ids and (data or _unchanged(sample, recorded)):
            # Painted again they would take the generator, and another machine paints another last bit.
            for condition in painted:
                kept = thumbnail_path(run.path, sample.sample_id, condition)
                if kept.is_file():  # rows of evaluate name the source, those of trainings the painted image
                    painted_as = painted_id(sample)
                    name = painted_as if painted_as in recorded else sample.sample_id
                    files[name, condition.name] = kept.read_bytes()
            for rendering in render_conditions(
                sample, applicable(sample, conditions, stored), pool, seed=spec.seed, max_pixels=spec.max_pixels
            ):
                if rendering.rendered is not None:
                    condition = rendering.condition
                    name = (
                        condition_name(
                            condition.scenario,
                            condition.variant,
                            condition.parameters_json if condition.definition.counts else "",
                        )
                        if sample.condition == ORIGINAL
                        else condition_name(sample.condition, stored_variant(sample))
                    )
                    image = over_matte(rendering.rendered.image, spec.matte, sample)
                    files[sample.sample_id, name] = encode_image(small(image, size), format="jpeg", quality=80)
    return files


def _pool(run: Run, collection: Collection, spec: EvaluateSpec) -> DonorPool:
    """Return who lent backgrounds: those that a draw names, or in a run of rounds the donors that its rows name."""
    if "rounds" not in run.spec():
        pool = make_pool(collection.samples, spec.backgrounds, max_pixels=spec.max_pixels)
        with suppress(HoldfastError):  # networks that are no longer there: their images are left out
            pool.tools = load_tools(spec)
        return pool
    samples = {sample.sample_id: sample for sample in collection.samples}
    rows = run.rows(["sample_id", "donor_id", "label", "donor_label"]).to_pylist()
    lenders = {
        (row["sample_id"], row["label"] == row["donor_label"]): samples[row["donor_id"]]
        for row in rows
        if row["donor_id"] in samples
    }
    return AssignedDonors(list(collection.samples), lenders, max_pixels=spec.max_pixels)


def spec_of(run: Run) -> EvaluateSpec:
    """Return the specification that a run recorded; a UserError that names its file if it holds none."""
    names = {field.name for field in fields(EvaluateSpec)}
    recorded = {name: value for name, value in run.spec().items() if name in names}
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in recorded.items()
    }
    if not values.get("batch_size", 1):  # a training that takes the batch of its recipe
        del values["batch_size"]
    if "data" not in values:
        raise UserError(
            f"{run.path / 'spec.json'} does not say which data the run was made of, so its images are not known"
        )
    return EvaluateSpec(**values)


def _unchanged(sample: Sample, recorded: dict[str, str]) -> bool:
    try:
        return sample.image.fingerprint() == recorded.get(sample.sample_id)
    except HoldfastError:
        return False
