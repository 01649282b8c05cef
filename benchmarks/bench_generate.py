"""``generate`` against calling the image maker by hand in a batch loop, with the embedded model on the CPU."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from common import Row, best_of

from holdfast.generators import load_image_maker
from holdfast.pipeline.generate.generate import GenerateSpec, generate
from holdfast.pipeline.generate.plan import plan_prompts

BATCH = 8


def rows() -> Iterator[Row]:
    maker = load_image_maker("embedded:", device="cpu")
    spec = GenerateSpec("embedded:", limit=3 * BATCH, batch_size=BATCH, device="cpu")
    requests = plan_prompts(spec).requests

    def by_hand() -> None:
        for start in range(0, len(requests), BATCH):
            part = requests[start : start + BATCH]
            maker.generate([one.prompt for one in part], [one.seed() for one in part])

    with tempfile.TemporaryDirectory() as name:
        pool = Path(name) / "pool"
        ours, hand = best_of(
            lambda: generate(spec, pool, maker=maker), by_hand, before=lambda: shutil.rmtree(pool, ignore_errors=True)
        )
    threads = torch.get_num_threads()
    yield Row(f"generate, embedded model, 64 px ({threads} threads)", len(requests) / ours, "images/s")
    yield Row("generate: against the image maker in a batch loop by hand", hand / ours, at_least=0.85)
