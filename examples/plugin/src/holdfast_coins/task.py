"""The task ``count``: how many coins are in an image?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.names import parse_name
from holdfast.core.tasks import Shown, Task
from holdfast.core.types import Collection, Image

TOLERANCE = 1
SMALLEST = {"any": 1, "large": 60}  # pixels of the smallest bright spot that a counter counts


class Counter:
    def __init__(self, name: str) -> None:
        self.name, self.smallest, self.fingerprint = name, SMALLEST[name], f"1 {SMALLEST[name]}"

    def count(self, image: Image) -> int:
        stats = cv2.connectedComponentsWithStats((image.mean(-1) > 140).astype(np.uint8))[2]
        return int((stats[1:, cv2.CC_STAT_AREA] >= self.smallest).sum())


class Count(Task):
    """How many coins are in an image? The models are ``counter:any`` and ``counter:large``."""

    name, title, protocol, success = "count", "the number of coins", "within 1", "off by one at most"

    def recognises(self, collection: Collection, models: Sequence[str]) -> bool:
        return all(parse_name(name).scheme == "counter" for name in models)

    def load(self, name: str, *, device: str, collection: Collection) -> Counter:
        if parse_name(name).name not in SMALLEST:
            raise UserError(f"{name}: expected counter:any or counter:large")
        return Counter(parse_name(name).name)

    def ask(self, model: Any, images: Sequence[Image]) -> list[int]:
        return [model.model.count(image) for image in images]

    def rows(self, model: Any, shown: Sequence[Shown], answers: Sequence[int]) -> list[dict[str, Any]]:
        return [
            {"prediction": str(answer), "correct": abs(answer - int(each.sample.label)) <= TOLERANCE}
            for each, answer in zip(shown, answers, strict=True)
        ]

    def chance(self, units: pa.Table) -> float:
        labels = np.array(units["label"].to_pylist(), int)
        return max(float((abs(labels - guess) <= TOLERANCE).mean()) for guess in labels)


COUNT = Count()
