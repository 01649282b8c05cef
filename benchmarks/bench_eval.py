"""How much of ``eval`` is not the model."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import Row, photographs

from holdfast.pipeline.evaluate import EvaluateSpec, evaluate

MODEL = "timm:resnet50?pretrained=false&seed=0&num_classes=2&labels={labels}"


def rows() -> Iterator[Row]:
    import torch

    from holdfast.models import load_classifier

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "data", 24)
        (folder / "labels.txt").write_text("day\nnight\n")
        model = MODEL.format(labels=folder / "labels.txt")
        spec = EvaluateSpec(str(folder / "data"), models=(model,), scenarios="static")
        classifier = load_classifier(model)
        batch = [classifier.prepare(np.zeros((375, 500, 3), np.uint8))] * spec.batch_size  # type: ignore[attr-defined]
        classifier.predict_prepared(batch)  # type: ignore[attr-defined]
        start = time.perf_counter()
        _, summary = evaluate(spec, folder / "run")
        total = time.perf_counter() - start
        # The same number of images through the bare model, with nothing else running.
        start = time.perf_counter()
        for first in range(0, summary.rows, spec.batch_size):
            classifier.predict_prepared(batch[: summary.rows - first])  # type: ignore[attr-defined]
        forward = time.perf_counter() - start
        yield Row(f"eval, ResNet-50 on the CPU ({torch.get_num_threads()} threads)", summary.rows / total, "images/s")
        yield Row("eval: time outside the forward pass", 100 * (total - forward) / total, "%", at_most=10)
