"""How much of ``eval`` is not the model, and what fused layers save of the model on a CPU."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from common import Row, photographs

from holdfast.core.types import Collection, LabelSpace, Sample
from holdfast.data.images import FileImage
from holdfast.data.labels import map_labels
from holdfast.engine.local import keep_memory
from holdfast.pipeline.classifiers import Tested
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.evaluation_rows import EvaluationIds, Portion
from holdfast.pipeline.fast.rows import Chunk, Finished, TableMaker
from holdfast.pipeline.samples import Prepared
from holdfast.scenarios import parse_conditions
from holdfast.store import Run

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
        classifier.fuse_layers()  # type: ignore[attr-defined]  # as evaluate does
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
        yield Row("eval --fast: rows named, made and written", fast_rows(folder / "rows", classifier.labels), "rows/s",
                  at_least=15_000)  # fmt: skip
    for name, goal in FUSED.items():
        yield Row(f"{name}: fused layers, share of the time without", fused_share(name), at_most=goal)


FUSED = {"timm:resnet50?pretrained=false": 0.9, "packaged:mobilenet_v2": 0.7, "packaged:efficientnet_lite0": 0.7}


def fused_share(name: str) -> float:
    """Processor time of a network with fused layers against the same without, in one thread."""
    import torch

    from holdfast.models import load_classifier

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    keep_memory()  # as eval does
    both: list[Any] = [load_classifier(name, device="cpu") for _ in range(2)]
    assert both[1].fuse_layers()
    pictures = [both[0].prepare(np.full((375, 500, 3), value, np.uint8)) for value in range(8)]
    times = [float("inf")] * 2
    for _ in range(5):
        for place, classifier in enumerate(both):
            start = time.process_time()
            classifier.predict_prepared(pictures)
            times[place] = min(times[place], time.process_time() - start)
    torch.set_num_threads(threads)
    return times[1] / times[0]


def fast_rows(out: Path, labels: LabelSpace) -> float:
    """Rows a second of processor time, of a plan whose answers are there at once, with one model."""
    label_map = map_labels(labels.names, {}, labels)
    samples = tuple(Sample(f"{one}.jpg", labels.names[one % 2], FileImage("")) for one in range(1000))
    hashes = {sample.sample_id: "0" * 64 for sample in samples}
    prepared: Any = Prepared(Collection("photos", labels.names, samples), hashes, hashes, {}, DonorPool([]), "")
    tested: Any = [Tested(SimpleNamespace(name="instant", labels=labels, fingerprint="0"), label_map, "1", "2")]
    spec, conditions, run = EvaluateSpec("photos", fast=True), tuple(parse_conditions("static")), Run(out)
    start = time.process_time()
    portion = Portion(conditions, (0,), conditions)
    plan = EvaluationIds(spec, prepared, tested).plan(run.predictions, portion)
    chunks = [Chunk(jobs, conditions, (0,)) for jobs in plan.shards(32)]
    for chunk in chunks:
        chunk.answer(np.arange(chunk.left), np.ones_like(chunk.packed))
    maker = TableMaker(spec, prepared, (0,), tested, conditions, run.path)
    maker([Finished.of(chunk, prepared) for chunk in chunks])
    return plan.owed / (time.process_time() - start)
