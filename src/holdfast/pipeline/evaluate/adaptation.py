"""Images of the tested dataset that networks with ``adapt=batchnorm`` are fitted to, condition by condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.errors import SampleError
from holdfast.core.fingerprint import fingerprint, seed_from
from holdfast.core.names import condition_name
from holdfast.core.types import ORIGINAL, Image, Sample
from holdfast.models.adaptation import AdaptedClassifier
from holdfast.pipeline.classifiers import EvaluateSpec, Tested
from holdfast.pipeline.generate.backgrounds import Painter
from holdfast.pipeline.samples import Prepared, over_matte, render_conditions, stored_variant
from holdfast.scenarios import Condition

_SPARE = 2  # times as many images as are wanted, for those that a condition cannot be made from


@dataclass(frozen=True)
class AdaptationImages:
    """Images of a dataset that networks are fitted to, in a seeded order."""

    samples: tuple[Sample, ...]  # the originals, and those of each condition that the dataset holds as images
    fingerprint: str  # of their names and contents and of everything they are rendered with

    def identified(self, model: Tested) -> Tested:
        """Return a model whose fingerprint names these images, if it is fitted to them."""
        if not getattr(model.classifier, "adapt_images", 0):
            return model
        return replace(model, fingerprint=fingerprint([model.fingerprint, self.fingerprint]))

    def fit(
        self,
        model: AdaptedClassifier,
        sample: Sample,
        condition: Condition,
        spec: EvaluateSpec,
        prepared: Prepared,
        painter: Painter | None,
    ) -> None:
        """Make a network ready for images like this sample under this condition; fit it if it never saw any."""
        key = f"{_held(sample)} {condition.name} {condition.parameters_json}"
        if not model.is_fitted(key):
            images = self._images(_held(sample), condition, spec, prepared, painter)
            inputs = [model.prepare(image) for image, _ in zip(images, range(model.adapt_images), strict=False)]
            if len(inputs) < 2:
                raise SampleError(f"adapt=batchnorm: fewer than 2 images can be shown under {condition.name}")
            model.fit(key, inputs)
        model.use(key)

    def _images(
        self, held: str, condition: Condition, spec: EvaluateSpec, prepared: Prepared, painter: Painter | None
    ) -> Iterator[Image]:
        for sample in self.samples:
            if _held(sample) != held:
                continue
            (rendering,) = render_conditions(
                sample, [condition], prepared.pool, seed=spec.seed, max_pixels=spec.max_pixels, painter=painter
            )
            if rendering.rendered is not None and rendering.status == "ok":
                yield over_matte(rendering.rendered.image, spec.matte, sample)


def adaptation_images(spec: EvaluateSpec, prepared: Prepared, tested: Sequence[Tested]) -> AdaptationImages | None:
    """Return the images that the models among these are fitted to; None if none of them asks for it."""
    wanted = max((getattr(model.classifier, "adapt_images", 0) for model in tested), default=0)
    if not wanted:
        return None
    groups: dict[str, list[Sample]] = {}
    for sample in prepared.collection.samples:
        groups.setdefault(_held(sample), []).append(sample)
    chosen: list[Sample] = []
    for group in groups.values():
        group.sort(key=lambda sample: seed_from(spec.seed, "adapt", sample.sample_id))
        chosen += group[: _SPARE * wanted]
    contents: list[Any] = [
        [sample.sample_id, prepared.images[sample.sample_id], prepared.masks[sample.sample_id]] for sample in chosen
    ]
    identity = fingerprint([contents, prepared.pool_fingerprint, spec.matte, spec.seed, spec.feather])
    return AdaptationImages(tuple(chosen), identity)


def _held(sample: Sample) -> str:
    """Return the condition that a sample's own image shows."""
    return ORIGINAL if sample.condition == ORIGINAL else condition_name(sample.condition, stored_variant(sample))
