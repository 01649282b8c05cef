"""Is a run what ``holdfast plan`` said it would be? In processor time, which other programs hardly touch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from common import Row, photographs

from holdfast.forecast import plan
from holdfast.forecast.trial import run, words_of

SECONDS = 60.0
OFF = 25.0


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "photos", 600)
        for verb, options in (
            ("synth", {"data": folder / "photos", "format": "jpeg", "workers": 1, "out": folder / "made"}),
            ("eval", {"data": "diorama:test?n=1500", "models": "embedded:resnet_rho0", "scenarios": "static",
                      "out": folder / "run"}),
        ):  # fmt: skip
            said = plan(verb, seconds=SECONDS, **options)
            done = run(words_of(verb, {**options, "quiet": True}), folder / str(options["out"]), size=0, work={})
            for what, planned, real in (
                ("processor time", said.processor.value, done.processor),
                ("bytes", sum(said.bytes.values()), sum(done.bytes.values())),
                ("peak memory", said.memory.value, done.memory),
            ):
                yield Row(f"plan {verb}: {what} off by", 100 * abs(planned / real - 1), "%", at_most=OFF)
            yield Row(f"plan {verb}: time off by", 100 * abs(said.seconds.value / done.wall - 1), "%")
            yield Row(f"plan {verb}: rows of the run not foreseen", abs(said.rows - done.rows), "rows", at_most=0)
