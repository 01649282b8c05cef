"""The task ``embed``: what an encoder's embeddings follow when objects and backgrounds are crossed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.protocols import StagedClassifier
from holdfast.core.schema import EMBED, EMBEDDINGS
from holdfast.core.tasks import Task
from holdfast.core.types import Collection
from holdfast.models.encoders import is_encoder, load_encoder
from holdfast.pipeline.classifiers import EvaluateSpec
from holdfast.pipeline.evaluate.evaluating import Evaluating
from holdfast.scenarios import Condition, parse_conditions

CROSSED = "shared_background"
DEFAULT = f"{CROSSED}?count=12"


class EncoderTask(Task):
    """What does the embedding follow? ``details/embeddings`` has the vectors; there is no right or wrong."""

    name, title, protocol = EMBED, "embeddings without labels", "embedding"
    hub = "image-feature-extraction"
    tables = MappingProxyType({"embeddings": EMBEDDINGS})
    required = "embeddings"
    supports = frozenset()
    sections = ("embedding",)
    calls = (".embedding()",)
    results = MappingProxyType({"embedding": lambda run: run.embedding()})
    tracked = MappingProxyType({"embedding": {"background": ("background_low", "background_high")}})
    evaluation = "holdfast.pipeline.evaluate.embedding:EncoderEvaluating"

    def recognises(self, collection: Collection, models: Sequence[str]) -> bool:
        """Return whether the models are encoders; a UserError if they are mixed."""
        encoders = [name for name in models if is_encoder(name)]
        if encoders and len(encoders) < len(models):
            others = ", ".join(name for name in models if name not in encoders)
            raise UserError(f"{', '.join(encoders)} return embeddings and {others} do not; use two commands")
        return bool(encoders)

    def load(self, name: str, *, device: str, collection: Collection) -> Any:
        """Return an encoder."""
        return load_encoder(name, device=device)

    def ask(self, model: Any, images: Sequence[Any]) -> Any:
        """Return the embeddings, (images, width)."""
        encoder = model.model
        return encoder.predict_prepared(images) if isinstance(encoder, StagedClassifier) else encoder.predict(images)

    def rows(self, model: Any, shown: Sequence[Any], answers: Any) -> list[dict[str, Any]]:
        """Return the embedding of each image; a SampleError if one is not finite."""
        if not np.isfinite(answers).all():
            raise SampleError("the embedding has values that are not finite")
        return [{"embeddings": [{"values": values}]} for values in answers]

    def outcome(self, units: pa.Table) -> NDArray[np.float64]:
        """Raise a UserError: embeddings are neither right nor wrong."""
        raise UserError("embeddings are neither right nor wrong, so they have no accuracy: use Results.embedding()")


EMBEDDING = EncoderTask()


class EncoderEvaluating(Evaluating):
    """Shows every object on the same backgrounds; by default on twelve."""

    def __init__(
        self, task: Task, spec: EvaluateSpec, collection: Collection, conditions: Sequence[Condition], *args: Any,
        **given: Any,
    ) -> None:  # fmt: skip
        if spec.scenarios == EvaluateSpec.scenarios:
            spec, conditions = replace(spec, scenarios=DEFAULT), parse_conditions(DEFAULT, feather=spec.feather)
        if len(conditions) < 2 or any(each.scenario != CROSSED for each in conditions):
            raise UserError(
                f"--scenarios {spec.scenarios}: encoders need the same backgrounds under every object, two or more; "
                f"expected holdfast eval with {CROSSED}?count=N, such as {DEFAULT}"
            )
        super().__init__(task, spec, collection, conditions, *args, **given)
