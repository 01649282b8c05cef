"""How the cost of each verb grows: processor time and peak memory over size, and where the time goes.

    python benchmarks/growth.py --jobs 2               # all curves, about ten minutes of processor time
    python benchmarks/growth.py --quick                # the two smaller sizes of each, and no profiles
    python benchmarks/growth.py eval synth             # those whose name begins so
    python benchmarks/growth.py --chart growth.json    # draw what was measured before

Every point is a fresh process on drawn scenes of 64 pixels with embedded models. Processor time is what is compared,
since it hardly depends on what else the machine does. The largest size runs under py-spy. Writes growth.json, and
with --charts FOLDER two images, whenever a curve is done.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import growth_charts
import growth_made as made
import numpy as np
from growth_profile import profiled

import holdfast
from holdfast.forecast.trial import measured

POOL = Path(str(holdfast.__file__)).parent / "assets" / "pool" / "pool.zip"
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
NOISE = 0.05
"""Of processor time from one run to the next, on cores that are shared."""
FLAT = 0.045
"""Peaks that differ by less of the largest one say nothing: those of equal runs differ by half of it."""
START = ("imports", "the interpreter itself")
"""Of a profile: what every command pays before it works."""


@dataclass(frozen=True)
class Series:
    """A curve: a command for each size of something, in a folder that ``before`` has filled."""

    name: str
    axis: str
    sizes: tuple[int, ...]
    command: Callable[[int, Path], list[str]]
    before: Callable[[int, Path], object] = lambda size, folder: None


@dataclass
class Point:
    size: int
    processor: float
    wall: float
    memory: float


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
    three = ("--surrogates", ",".join(MODELS[1:3]), "--targets", MODELS[3], "--oracle", "clip:embedded")
    walk = ("--generator", "embedded:vqgan", "--oracle", "clip:embedded", "--steps", 3, "--batch-size", 8)
    small = ("--architectures", "timm:test_resnet", "--size", 64, "--epochs", 1, "-q")
    return [
        Series("eval: images", "images", (128, 512, 2048), lambda n, out: verb(
            "eval", drawn(n), "--models", MODELS[0], "--scenarios", FEW, "--out", out / "run", "-q")),
        Series("eval: conditions", "conditions", (1, 4, 16), lambda n, out: verb(
            "eval", drawn(256), "--models", MODELS[0], "--scenarios", ",".join(SCENARIOS[:n]), "--out", out / "run",
            "-q")),
        Series("eval: models", "models", (1, 3, 8), lambda n, out: verb(
            "eval", drawn(256), "--models", ",".join(MODELS[:n]), "--scenarios", FEW, "--out", out / "run", "-q")),
        Series("synth", "images", (256, 1024, 4096), lambda n, out: verb(
            "synth", drawn(n), "--scenarios", FEW, "--workers", 1, "--out", out / "made", "-q")),
        Series("reduce", "rows", (64_000, 256_000, 1_024_000, 2_048_000), lambda n, out: [
            sys.executable, "-c", made.REDUCE, str(out / "shards")], made.shards),
        Series("report", "rows", (5_000, 40_000, 160_000), lambda n, out: verb(
            "report", out / "run", "--out", out / "report"), made.run),
        Series("folders: images", "images", (1_000, 8_000, 64_000), lambda n, out: verb(
            "split", out / "tree", "--out", out / "split.csv"), lambda n, out: made.tree(out, n, 10)),
        Series("folders: classes", "classes", (10, 300, 8_000), lambda n, out: verb(
            "split", out / "tree", "--out", out / "split.csv"), lambda n, out: made.tree(out, 16_000, n)),
        Series("train", "images", (120, 480, 1920), lambda n, out: verb(
            "train", drawn(n), *small, "--scenarios", "original", "--folds", 1, "--out", out / "run")),
        Series("segment", "images", (128, 384, 1152), lambda n, out: verb(
            "segment", drawn(n), "--models", "embedded:unet", "--scenarios", "original,grey", "--size", 64,
            "--out", out / "run", "-q")),
        Series("perturb", "images", (8, 16, 48), lambda n, out: verb(
            "perturb", drawn(n), "--models", MODELS[0], *walk, "--out", out / "run", "-q")),
        Series("generate", "images", (4, 8, 24), lambda n, out: verb(
            "generate", "--generator", "embedded:", "--limit", n, "--batch-size", 8, "--out", out / "pool", "-q")),
        Series("mine", "prompts", (111, 222, 444), lambda n, out: verb(
            "mine", out / "pool", *three, "--again", 0, "--limit", n, "--out", out / "hard", "-q"), _pool),
        Series("ask", "images", (64, 256, 768), lambda n, out: verb(
            "ask", drawn(n), "--models", f"{MODELS[0]},clip:embedded", "--distractor", MODELS[2], "--out", out / "run",
            "-q")),
        Series("explain", "images", (16, 64, 192), lambda n, out: verb(
            "explain", out / "run", "--limit", n, "-q"), _evaluated),
        Series("mask", "images", (64, 512, 2048), lambda n, out: verb(
            "mask", drawn(n), "--with", "threshold", "--workers", 1, "--out", out / "masks", "-q")),
        Series("check", "photos", (24, 72, 192), lambda n, out: verb(
            "check", MODELS[0], drawn(n), "--out", out / "check", "-q")),
        Series("detect", "images", (60, 120, 240), lambda n, out: verb(
            "study", "telltale", drawn(n), "--generator", "embedded:?steps=2", *small, "--folds", 2,
            "--out", out / "run")),
        Series("board build", "entries", (64, 192, 512), lambda n, out: verb(
            "board", "build", out / "board", "--out", out / "site"), made.board),
    ]  # fmt: skip


def _pool(size: int, folder: Path) -> None:
    with zipfile.ZipFile(POOL) as packed:
        packed.extractall(folder / "pool")


def _evaluated(size: int, folder: Path) -> None:
    measured(verb("eval", drawn(size), "--models", MODELS[0], "--scenarios", FEW, "--out", folder / "run", "-q"))


def measure(one: Series, *, quick: bool) -> Curve:
    """Every size in a fresh folder and process, the largest under the profiler."""
    curve, sizes = Curve(one.name, one.axis), one.sizes[:2] if quick else one.sizes
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=ROOM) as name:
            one.before(size, Path(name))
            command = one.command(size, Path(name))
            cost, found = profiled(command) if size == one.sizes[-1] else (measured(command), [])
        curve.points.append(Point(size, cost.processor, cost.wall, cost.memory))
        curve.hot = found[:12]
    return settled(curve)


def settled(curve: Curve) -> Curve:
    """With what follows from its points."""
    curve.exponent, curve.fixed = exponent([(p.size, p.processor) for p in curve.points])
    curve.memory_each = memory_each(curve.points)
    return curve


def exponent(points: list[tuple[float, float]], *, step: float = 0.01) -> tuple[float, float]:
    """p and the fixed part of cost = fixed + price × size^p, by least relative squares, no part below zero."""
    from scipy.optimize import nnls

    if len(points) < 3:
        return float("nan"), 0.0
    sizes, costs = np.array(points, float).T
    best = (float("inf"), float("nan"), 0.0)
    for power in np.arange(0.0, 2.5 + step / 2, step):
        columns = np.stack([np.ones_like(sizes), (sizes / sizes[-1]) ** power], 1) / costs[:, None]
        found, error = nnls(columns, np.ones_like(costs))
        best = min(best, (error, float(power), float(found[0])))
    return best[1], best[2]


def spread(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Between what the exponent is in nine of ten cases, if every cost is uncertain by ``NOISE`` of itself."""
    rng = np.random.default_rng(0)
    drawn = [
        exponent([(size, cost * (1 + NOISE * rng.standard_normal())) for size, cost in points], step=0.05)[0]
        for _ in range(100)
    ]
    low, high = np.quantile(drawn, [0.05, 0.95])
    return float(low), float(high)


def memory_each(points: list[Point]) -> float:
    """Bytes that one more unit takes, over the larger half of the sizes."""
    larger = [(p.size, p.memory) for p in points[-(len(points) // 2 + 1) :]]
    if len(larger) < 2:
        return float("nan")
    return float(np.polyfit(*zip(*larger, strict=True), 1)[0])


def lines(curves: list[Curve]) -> Iterator[str]:
    """Yield the lines of the table of growth, in Markdown."""
    yield "| | sizes | processor time, s | exponent | peak memory, MB | bytes a unit more | start | where the rest is |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in curves:
        sizes = f"{one.points[0].size:,} to {one.points[-1].size:,} {one.axis}"
        seconds = f"{one.points[0].processor:.1f} to {one.points[-1].processor:.1f}"
        memory = " to ".join(f"{point.memory / 1e6:.0f}" for point in (one.points[0], one.points[-1]))
        peaks = [point.memory for point in one.points]
        each = f"{one.memory_each:,.0f}" if max(peaks) - min(peaks) > FLAT * max(peaks) else "flat"
        start = sum(share for name, share in one.hot if name in START)
        own = [(name, share) for name, share in one.hot if name not in START]
        where = ", ".join(f"`{called(name)}` {share:.0%}" for name, share in own[:3])
        cells = [one.name.partition(":")[0], sizes, seconds, power(one), memory, each, f"{start:.0%}", where]
        yield f"| {' | '.join(cells)} |"


def called(name: str) -> str:
    """A function's name as a reader knows it."""
    name = re.sub(r"\.<locals>\.<?\w+>?", "", name)
    for inner, known in (("Module._wrapped_call_impl", "the model"), ("can_return_tuple", "the model"),
                         ("_closed_as_relation", "DuckDB")):  # fmt: skip
        if inner in name:
            return f"{name.partition(' → ')[0]} → {known}"
    return name


def power(curve: Curve) -> str:
    """The exponent and its range, if there is enough growth beyond what is fixed to tell one."""
    points = [(float(point.size), point.processor) for point in curve.points]
    beyond = points[-1][1] - points[0][1]
    if beyond < 0.3 * points[0][1] or curve.exponent != curve.exponent:
        return "–"
    low, high = spread(points)
    if high - low > 1.5:
        return "–"
    return f"{curve.exponent:.2f} ({low:.1f} to {high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="curves whose name begins so; all without")
    parser.add_argument("--quick", action="store_true", help="the two smaller sizes, no profiles")
    parser.add_argument("--jobs", type=int, default=1, help="curves at a time")
    parser.add_argument(
        "--out", type=Path, default=Path("growth.json"), help="what was measured; added to if it is there"
    )
    parser.add_argument("--charts", type=Path, help="a folder for time.svg and memory.svg")
    parser.add_argument("--chart", type=Path, help="measure nothing: read this file")
    given = parser.parse_args()
    there = json.loads((given.chart or given.out).read_text()) if (given.chart or given.out).exists() else []
    curves = {one["name"]: _curve(one) for one in there}
    wanted = [one for one in series() if not given.names or any(one.name.startswith(word) for word in given.names)]
    with ThreadPoolExecutor(given.jobs) as threads:
        longest = [] if given.chart else reversed(wanted)  # which are at the end: no one waits for them alone
        begun = {threads.submit(measure, one, quick=given.quick): one.name for one in longest}
        for done in as_completed(begun):
            if error := done.exception():  # the other curves are worth having
                print(f"{begun[done]}: {error}", flush=True)
                continue
            curves[begun[done]] = done.result()
            print(list(lines([done.result()]))[-1], flush=True)
            given.out.write_text(json.dumps([asdict(one) for one in in_order(curves)], indent=1) + "\n")
            show(curves, given.charts)
    print("\n".join(lines(in_order(curves))))
    show(curves, given.charts)


def in_order(curves: dict[str, Curve]) -> list[Curve]:
    return [curves[one.name] for one in series() if one.name in curves]


def show(curves: dict[str, Curve], folder: Path | None) -> None:
    if folder:
        growth_charts.draw([asdict(curve) | {"shown": power(curve)} for curve in in_order(curves)], folder)


def _curve(stored: dict[str, Any]) -> Curve:
    known = {**stored, "points": [Point(**one) for one in stored["points"]]}
    return settled(Curve(**{**known, "hot": [(name, share) for name, share in stored["hot"]]}))


if __name__ == "__main__":
    main()
