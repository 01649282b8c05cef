"""``synth`` against a plain script and against the codecs alone.

All of them read and write in memory (/dev/shm) if there is such a place: some disks take longer to create a file
than a core to encode it, and that is not ours to measure.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from common import Row, best_of, photographs

from holdfast.core.types import Image
from holdfast.data import load_collection
from holdfast.data.writers import encode_image
from holdfast.engine.local import keep_memory
from holdfast.pipeline import donors
from holdfast.pipeline.samples import DataSpec, prepare, read, render_conditions
from holdfast.pipeline.synth.synth import SynthSpec, synth
from holdfast.scenarios import parse_conditions

SCENARIOS = ",".join(c.scenario for c in parse_conditions("static") if c.scenario != "original")


def rows() -> Iterator[Row]:
    cv2.setNumThreads(1)
    keep_memory()  # for the codecs as for synth
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        photographs(folder / "data")
        yield from _one_core(folder)
        photographs(folder / "data", 240)
        yield from _two_workers(folder)


def _one_core(folder: Path) -> Iterator[Row]:
    outputs = _outputs(folder / "data")
    count = len(outputs) * 12
    ours, limit, plain, forgetful = best_of(
        lambda: _synth(folder, "jpeg", 1),
        lambda: _codecs(outputs, "jpeg"),
        lambda: _plain_script(folder),
        lambda: _forgetful_synth(folder),
        repeats=5,
        before=lambda: _clear(folder),
    )
    yield Row("synth, JPEG, one core", count / ours, "images/s")
    yield Row("synth, JPEG: against a plain OpenCV script", plain / ours, at_least=3.5)
    yield Row("synth, JPEG: share of the codec limit", limit / ours, at_least=0.75)
    yield Row("synth, JPEG: the same, every donor decoded again", limit / forgetful)
    ours, limit = best_of(
        lambda: _synth(folder, "png", 1), lambda: _codecs(outputs, "png"), before=lambda: _clear(folder)
    )
    yield Row("synth, PNG, one core", count / ours, "images/s")
    yield Row("synth, PNG: share of the codec limit", limit / ours, at_least=0.75)


def _clear(folder: Path) -> None:
    for name in ("out", "plain"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _forgetful_synth(folder: Path) -> None:
    """As in a collection so large that a donor is never one of the images that were decoded lately."""
    kept, donors.CACHE_BYTES = donors.CACHE_BYTES, 0
    try:
        _synth(folder, "jpeg", 1)
    finally:
        donors.CACHE_BYTES = kept


def _synth(folder: Path, format: str, workers: int) -> None:
    spec = SynthSpec(str(folder / "data"), scenarios=SCENARIOS, format=format, workers=workers)  # type: ignore[arg-type]
    summary = synth(spec, folder / "out")
    assert not summary.trouble, summary.trouble


def _outputs(data: Path) -> list[tuple[bytes, list[Image]]]:
    """Each source file with the twelve images that synth makes of it."""
    spec = DataSpec(str(data))
    prepared = prepare(spec, read(spec), lambda *_: None)
    made = []
    for sample in load_collection(str(data)).samples:
        renderings = render_conditions(
            sample, parse_conditions(SCENARIOS), prepared.pool, seed=0, max_pixels=spec.max_pixels
        )
        images = [rendering.rendered.image for rendering in renderings if rendering.rendered is not None]
        made.append((Path(sample.image.path).read_bytes(), images))  # type: ignore[attr-defined]
    return made


def _codecs(outputs: list[tuple[bytes, list[Image]]], format: str) -> None:
    """Decode once, encode all outputs, nothing else."""
    for source, images in outputs:
        cv2.imdecode(np.frombuffer(source, np.uint8), cv2.IMREAD_COLOR)
        for image in images:
            encode_image(image, format="jpeg" if format == "jpeg" and image.shape[2] == 3 else "png", quality=95)


def _plain_script(folder: Path) -> None:
    """What one writes in an afternoon: read image and mask for every scenario, composite with np.where, write."""
    target = folder / "plain"
    paths = sorted((folder / "data" / "images").rglob("*.jpg"))
    for index, name in enumerate(SCENARIOS.split(",")):
        (target / name).mkdir(parents=True)
        for path in paths:
            image = cv2.imread(str(path))
            mask = cv2.imread(str(path).replace("/images/", "/masks/").replace(".jpg", ".png"), 0)
            inside = (mask > 127)[..., None]
            changed, where = _plain_change(name, image, mask, inside, paths[(index * 7 + 3) % len(paths)])
            result = np.where(where, changed, image)
            if name == "transparent":
                result = np.dstack([np.where(inside, image, 0), mask])
                cv2.imwrite(str(target / name / f"{path.stem}.png"), result)
            else:
                cv2.imwrite(str(target / name / f"{path.stem}.jpg"), result, [cv2.IMWRITE_JPEG_QUALITY, 95])


def _plain_change(name: str, image: Image, mask: Image, inside: np.ndarray, donor: Path) -> tuple[Image, np.ndarray]:
    outside = ~inside
    if name in ("blur_background", "blur_object"):
        return cv2.GaussianBlur(image, (15, 15), 3), outside if name == "blur_background" else inside
    if name in ("bright_background", "bright_object"):
        bright = cv2.addWeighted(image, 1.5, cv2.GaussianBlur(image, (9, 9), 0), 0.9, 1.9)
        return bright, outside if name == "bright_background" else inside
    if name in ("red", "green", "blue"):
        single = np.zeros_like(image)
        channel = ("blue", "green", "red").index(name)
        single[..., channel] = image[..., channel]
        return single, outside
    if name == "grey":
        return cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR), outside
    if name == "rainbow":
        hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
        hsv[..., 0] = (hsv[..., 0].astype(int) + 45) % 180
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR), outside
    if name == "random_background":
        return cv2.resize(cv2.imread(str(donor)), image.shape[1::-1]), outside
    return np.zeros_like(image), outside


def _two_workers(folder: Path) -> Iterator[Row]:
    """Two workers on enough images that starting them does not count, against two codec loops side by side."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, _load, (folder / "data",)) as pool:
        pool.map(_loop, [0, 0])  # both processes are up and have their images
        (codecs,) = best_of(lambda: pool.map(_loop, [1, 1], chunksize=1), repeats=5)
    ours, started = best_of(
        lambda: _synth(folder, "jpeg", 2), lambda: _start_two(folder), before=lambda: _clear(folder)
    )
    rate, limit = 240 * 12 / (ours - started), 2 * 40 * 12 / codecs
    yield Row("synth, two workers (without starting them)", rate, "images/s")
    yield Row("synth, two workers: share of two codec loops", rate / limit, at_least=0.9)


_images: list[tuple[bytes, list[Image]]] = []


def _load(data: Path) -> None:
    cv2.setNumThreads(1)
    keep_memory()
    _images.extend(_outputs(data)[:40])


def _loop(times: int) -> None:
    for _ in range(times):
        _codecs(_images, "jpeg")


def _start_two(folder: Path) -> None:
    """The same command on two images: what starting costs."""
    synth(SynthSpec(str(folder / "data"), scenarios="red", format="jpeg", workers=2, limit=2), folder / "out")
