"""Is a run what ``holdfast plan`` said it would be? In processor time, which other programs hardly touch.

The clock is held to the same goal if no one else uses the machine, and told without one where someone does.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from common import Row, photographs

from holdfast.forecast import plan
from holdfast.forecast.planning import busy
from holdfast.forecast.trial import run, words_of

SECONDS, FEWER = 30.0, 15.0
LOW, HIGH = 0.75, 1.25
RUNS = 2
"""The cheaper one counts: where files are written, equal runs differed by a quarter in processor time."""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "photos", 800)
        small = {"architectures": "timm:test_resnet", "scenarios": "original", "size": 64, "folds": 3, "epochs": 5}
        for verb, options in (
            ("synth", {"data": folder / "photos", "format": "jpeg", "workers": 1}),
            ("eval", {"data": "diorama:test?n=600", "models": "embedded:resnet_rho0", "scenarios": "static"}),
            ("generate", {"generator": "embedded:?steps=6", "limit": 240, "batch_size": 8}),
            ("train", {"data": "diorama:test?n=720", **small}),
        ):
            yield from _held(verb, {**options, "out": folder / verb})


def others() -> Iterator[Row]:
    """The verbs that are run less often."""
    judges = {"surrogates": "embedded:resnet_rho95,embedded:mobilenet_rho95,embedded:densenet_rho95"}
    judges |= {"targets": "embedded:vit_rho95", "oracle": "clip:embedded"}
    asked = {"models": "embedded:resnet_rho95,clip:embedded", "distractor": "embedded:vit_rho95"}
    walked = {"models": "embedded:resnet_rho95", "generator": "embedded:vqgan", "oracle": "clip:embedded"}
    painted = {"generator": "embedded:text_to_image?steps=4", "architectures": "timm:test_resnet", "size": 64}
    drawn = "original,grey,blur_background"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "photos", 160)
        with zipfile.ZipFile(str(resources.files("holdfast").joinpath("assets/pool/pool.zip"))) as pool:
            pool.extractall(folder / "pool")
        for verb, options in (
            ("mask", {"data": folder / "photos" / "images", "with_": "grabcut", "workers": 1}),
            ("ask", {"data": "diorama:ood?n=2400", **asked}),
            ("segment", {"data": "diorama:test?n=960", "models": "embedded:unet", "scenarios": drawn}),
            ("mine", {"pool": folder / "pool", **judges, "again": 0}),
            ("detect", {"data": "diorama:test?n=96", **painted, "folds": 4, "epochs": 4}),
            ("perturb", {"data": "diorama:test?n=96", **walked, "steps": 3, "step_size": 0.05, "random_walk": False}),
        ):
            yield from _held(verb, {**options, "out": folder / verb}, seconds=FEWER)


def _held(verb: str, options: Mapping[str, Any], *, seconds: float = SECONDS) -> Iterator[Row]:
    """Plan first, then run, and what was said for what came."""
    disturbed = busy()
    said = plan(verb, seconds=seconds, **options)
    places = [Path(f"{options['out']}-{number}") for number in range(RUNS)]
    runs = [run(words_of(verb, {**options, "out": out, "quiet": True}), out, size=0, work={}) for out in places]
    done = min(runs, key=lambda one: one.processor)
    disturbed |= busy()
    for what, planned, real, held in (
        ("rows", said.rows, done.rows, True),
        ("bytes", sum(said.bytes.values()), sum(done.bytes.values()), True),
        ("processor time", said.processor.value, done.processor, True),
        ("time", said.seconds.value, done.wall, not disturbed),
        ("peak memory", said.memory.value, done.memory, False),
    ):
        goal = (LOW, HIGH) if held else (None, None)
        yield Row(f"plan {verb}: {what}, planned / measured", planned / real, at_least=goal[0], at_most=goal[1])
