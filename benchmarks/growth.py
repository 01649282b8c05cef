"""How the cost of each verb grows: processor time and peak memory over size, and where the time goes.

    python benchmarks/growth.py                        # all curves, about 20 minutes on one core
    python benchmarks/growth.py --quick                # three sizes each, two minutes
    python benchmarks/growth.py eval synth             # those whose name begins so
    python benchmarks/growth.py --chart growth.json    # draw what was measured before

Every point is a fresh process on drawn scenes of 64 pixels with embedded models. Processor time is what is compared,
since it hardly depends on what else the machine does. Writes growth.json, and with --charts FOLDER two pictures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import growth_charts
import growth_made as made
import numpy as np
from growth_profile import hot

from holdfast.demo import POOL
from holdfast.forecast.trial import measured

HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
MODELS = [
    f"embedded:{name}"
    for name in ("resnet_rho0", "mobilenet_rho95", "vit_rho95", "resnet_rho80", "densenet_rho95", "convnext_rho95",
                 "resnet_rho95", "resnet_rho95_strong")
]  # fmt: skip
SCENARIOS = [
    "original", "grey", "random_background", "blur_background", "red", "green", "blue", "rainbow", "blur_object",
    "bright_background", "bright_object", "segmented", "transparent", "same_class_background", "only_background",
    "silhouette",
]  # fmt: skip
FEW = "original,grey,random_background"
ROOM = Path(tempfile.gettempdir())


@dataclass(frozen=True)
class Series:
    """A curve: a command for each size of something, in a folder that ``before`` has filled."""

    name: str
    axis: str
    sizes: tuple[int, ...]
    command: Callable[[int, Path], list[str]]
    before: Callable[[int, Path], object] = lambda size, folder: None
    quick: tuple[int, ...] = ()

    def at(self, *, quick: bool) -> tuple[int, ...]:
        return (self.quick or self.sizes[:3]) if quick else self.sizes


@dataclass
class Point:
    size: int
    processor: float
    wall: float
    memory: float | None  # None where it is not known


@dataclass
class Curve:
    """What was measured, and what follows: ``exponent`` of size^p beyond what is fixed, bytes of memory a unit."""

    name: str
    axis: str
    points: list[Point] = field(default_factory=list)
    exponent: float = float("nan")
    fixed: float = 0.0
    memory_each: float = 0.0
    hot: list[tuple[str, float]] = field(default_factory=list)


def verb(*words: Any) -> list[str]:
    return [*HOLDFAST, *map(str, words)]


def drawn(size: int) -> str:
    return f"diorama:test?n={size}"


def series() -> list[Series]:
    """In the order in which they matter."""
    five = ("--surrogates", ",".join(MODELS[1:4]), "--targets", ",".join(MODELS[4:6]), "--oracle", "clip:embedded")
    walk = ("--generator", "embedded:vqgan", "--oracle", "clip:embedded", "--steps", 3, "--batch-size", 8)
    small = ("--architectures", "timm:test_resnet", "--size", 64, "--epochs", 1, "-q")
    return [
        Series("eval: images", "images", (128, 512, 1024, 2048), lambda n, out: verb(
            "eval", drawn(n), "--models", MODELS[0], "--scenarios", FEW, "--out", out / "run", "-q"),
            quick=(64, 128, 256)),
        Series("eval: conditions", "conditions", (1, 4, 8, 16), lambda n, out: verb(
            "eval", drawn(256), "--models", MODELS[0], "--scenarios", ",".join(SCENARIOS[:n]), "--out", out / "run",
            "-q")),
        Series("eval: models", "models", (1, 2, 4, 8), lambda n, out: verb(
            "eval", drawn(256), "--models", ",".join(MODELS[:n]), "--scenarios", FEW, "--out", out / "run", "-q")),
        Series("synth", "images", (128, 512, 2048, 4096), lambda n, out: verb(
            "synth", drawn(n), "--scenarios", FEW, "--workers", 1, "--out", out / "made", "-q"), quick=(64, 128, 256)),
        Series("reduce", "rows", (16_000, 64_000, 256_000, 1_024_000, 2_048_000), lambda n, out: [
            sys.executable, "-c", made.REDUCE, str(out / "shards")], made.shards),
        Series("report", "rows", (5_000, 20_000, 80_000, 320_000), lambda n, out: verb(
            "report", out / "run", "--out", out / "report"), made.run, quick=(2_000, 8_000, 20_000)),
        Series("folders: images", "images", (1_000, 4_000, 16_000, 64_000), lambda n, out: verb(
            "split", out / "tree", "--out", out / "split.csv"), lambda n, out: made.tree(out, n, 10)),
        Series("folders: classes", "classes", (10, 100, 1_000, 8_000), lambda n, out: verb(
            "split", out / "tree", "--out", out / "split.csv"), lambda n, out: made.tree(out, 16_000, n)),
        Series("train", "images", (120, 480, 1920), lambda n, out: verb(
            "train", drawn(n), *small, "--scenarios", "original", "--folds", 1, "--out", out / "run"),
            quick=(60, 120, 240)),
        Series("segment", "images", (32, 128, 512), lambda n, out: verb(
            "segment", drawn(n), "--models", "embedded:unet", "--scenarios", "original,grey", "--size", 64,
            "--out", out / "run", "-q"), quick=(16, 32, 64)),
        Series("perturb", "images", (8, 16, 32, 64), lambda n, out: verb(
            "perturb", drawn(n), "--models", MODELS[0], *walk, "--out", out / "run", "-q"), quick=(8, 16, 24)),
        Series("generate", "images", (8, 16, 32), lambda n, out: verb(
            "generate", "--generator", "embedded:", "--limit", n, "--batch-size", 8, "--out", out / "pool", "-q"),
            quick=(4, 8)),
        Series("mine", "prompts", (111, 222, 444), lambda n, out: verb(
            "mine", out / "pool", *five, "--again", 0, "--limit", n, "--out", out / "hard", "-q"), _pool,
            quick=(111, 222)),
        Series("ask", "images", (64, 256, 1024), lambda n, out: verb(
            "ask", drawn(n), "--models", f"{MODELS[0]},clip:embedded", "--distractor", MODELS[2], "--out", out / "run",
            "-q"), quick=(64, 128)),
        Series("explain", "images", (16, 64, 256), lambda n, out: verb(
            "explain", out / "run", "--limit", n, "-q"), _evaluated, quick=(8, 16)),
        Series("mask", "images", (64, 512, 4096), lambda n, out: verb(
            "mask", drawn(n), "--with", "threshold", "--workers", 1, "--out", out / "masks", "-q"), quick=(64, 128)),
        Series("check", "photos", (48, 96, 192), lambda n, out: verb(
            "check", MODELS[0], drawn(n), "--out", out / "check", "-q"), quick=(24, 48)),
        Series("detect", "images", (12, 24, 48), lambda n, out: verb(
            "detect", drawn(n), "--generator", "embedded:text_to_image", *small, "--folds", 2, "--out", out / "run"),
            quick=(12,)),
        Series("board build", "entries", (32, 128, 512), lambda n, out: verb(
            "board", "build", out / "board", "--out", out / "site"), made.board, quick=(8, 16, 32)),
    ]  # fmt: skip


def _pool(size: int, folder: Path) -> None:
    with zipfile.ZipFile(POOL) as packed:
        packed.extractall(folder / "pool")


def _evaluated(size: int, folder: Path) -> None:
    measured(verb("eval", drawn(size), "--models", MODELS[0], "--scenarios", FEW, "--out", folder / "run", "-q"))


def measure(one: Series, *, quick: bool, profile: bool) -> Curve:
    """Every size in a fresh folder and process; the size before the last once more, under the profiler."""
    curve, sizes = Curve(one.name, one.axis), one.at(quick=quick)
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=ROOM) as name:
            one.before(size, Path(name))
            cost = measured(one.command(size, Path(name)))
        curve.points.append(Point(size, cost.processor, cost.wall, cost.memory))
    curve.exponent, curve.fixed = exponent([(p.size, p.processor) for p in curve.points])
    curve.memory_each = memory_each(curve.points)
    if profile:
        size = sizes[-2:][0]
        with tempfile.TemporaryDirectory(dir=ROOM) as name:
            one.before(size, Path(name))
            curve.hot = hot(one.command(size, Path(name)))[:8]
    return curve


def exponent(points: list[tuple[float, float]]) -> tuple[float, float]:
    """p and the fixed part of cost = fixed + price × size^p, by least relative squares, no part below zero."""
    from scipy.optimize import nnls

    if len(points) < 3:
        return float("nan"), 0.0
    sizes, costs = np.array(points, float).T
    best = (float("inf"), float("nan"), 0.0)
    for power in np.arange(0.0, 2.51, 0.01):
        columns = np.stack([np.ones_like(sizes), (sizes / sizes[-1]) ** power], 1) / costs[:, None]
        found, error = nnls(columns, np.ones_like(costs))
        best = min(best, (error, float(power), float(found[0])))
    return best[1], best[2]


def memory_each(points: list[Point]) -> float:
    """Bytes that one more unit takes, over the larger half of the sizes."""
    known = [(p.size, p.memory) for p in points if p.memory is not None]
    larger = known[len(known) // 2 - (len(known) <= 3) :]
    if len(larger) < 2:
        return float("nan")
    return float(np.polyfit(*zip(*larger, strict=True), 1)[0])


def lines(curves: list[Curve]) -> Iterator[str]:
    """The table of docs/performance.md."""
    yield "| | sizes | processor time, s | exponent | peak memory, MB | bytes a unit more | where the time goes |"
    yield "|---|---|---|---|---|---|---|"
    for one in curves:
        sizes = f"{one.points[0].size:,} to {one.points[-1].size:,} {one.axis}"
        seconds = f"{one.points[0].processor:.1f} to {one.points[-1].processor:.1f}"
        known = [point for point in one.points if point.memory is not None]
        memory = " to ".join(f"{point.memory / 1e6:.0f}" for point in (known[0], known[-1]))
        memory += "" if known[-1] is one.points[-1] else f" (at {known[-1].size:,})"
        where = ", ".join(f"`{name}` {share:.0%}" for name, share in one.hot[:3])
        each = "–" if one.memory_each != one.memory_each else f"{max(0.0, one.memory_each):,.0f}"
        yield f"| {one.name.partition(':')[0]} | {sizes} | {seconds} | {power(one)} | {memory} | {each} | {where} |"


def power(curve: Curve) -> str:
    """The exponent, where there is enough growth beyond what is fixed to tell one."""
    beyond = curve.points[-1].processor - curve.points[0].processor
    if beyond < 0.3 * curve.points[0].processor or curve.exponent != curve.exponent:
        return "–"
    return f"{curve.exponent:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="curves whose name begins so; all without")
    parser.add_argument("--quick", action="store_true", help="three small sizes, no profiles")
    parser.add_argument(
        "--out", type=Path, default=Path("growth.json"), help="what was measured; added to if it is there"
    )
    parser.add_argument("--charts", type=Path, help="a folder for time.svg and memory.svg")
    parser.add_argument("--chart", type=Path, help="measure nothing: read this file")
    given = parser.parse_args()
    there = json.loads((given.chart or given.out).read_text()) if (given.chart or given.out).exists() else []
    curves = {one["name"]: _curve(one) for one in there}
    for one in [] if given.chart else series():
        if given.names and not any(one.name.startswith(word) for word in given.names):
            continue
        start = time.perf_counter()
        try:
            curves[one.name] = measure(one, quick=given.quick, profile=not given.quick)
        except Exception as error:  # the other curves are worth having
            print(f"{one.name}: {error}", flush=True)
            continue
        print(f"{list(lines([curves[one.name]]))[-1]}  ({time.perf_counter() - start:.0f} s)", flush=True)
        given.out.write_text(json.dumps([asdict(curve) for curve in curves.values()], indent=1))
    order = {one.name: place for place, one in enumerate(series())}
    ordered = sorted(curves.values(), key=lambda curve: order.get(curve.name, len(order)))
    print("\n".join(lines(ordered)))
    if given.charts:
        growth_charts.draw([asdict(curve) | {"shown": power(curve)} for curve in ordered], given.charts)


def _curve(stored: dict[str, Any]) -> Curve:
    known = {**stored, "points": [Point(**one) for one in stored["points"]]}
    return Curve(**{**known, "hot": [(name, share) for name, share in stored["hot"]]})


if __name__ == "__main__":
    main()
