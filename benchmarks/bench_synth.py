"""``synth`` against a plain script and against the codecs alone."""

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
from holdfast.pipeline.samples import DataSpec, prepare, read, render_conditions
from holdfast.pipeline.synth import SynthSpec, synth
from holdfast.scenarios import parse_conditions

SCENARIOS = ",".join(c.scenario for c in parse_conditions("static") if c.scenario != "original")


def rows() -> Iterator[Row]:
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "data")
        outputs = _outputs(folder / "data")
        ours = {format: best_of(lambda format=format: _synth(folder, format, 1)) for format in ("jpeg", "png")}
        limit = {format: best_of(lambda format=format: _codecs(outputs, format)) for format in ("jpeg", "png")}
        plain = best_of(lambda: _plain_script(folder))
        count = len(outputs) * 12
        yield Row("synth, JPEG, one core", count / ours["jpeg"], "images/s")
        yield Row("synth, JPEG: against a plain OpenCV script", plain / ours["jpeg"], at_least=3.5)
        yield Row("synth, JPEG: share of the codec limit", limit["jpeg"] / ours["jpeg"], at_least=0.75)
        yield Row("synth, PNG, one core", count / ours["png"], "images/s")
        yield Row("synth, PNG: share of the codec limit", limit["png"] / ours["png"], at_least=0.75)
        yield from _two_workers(folder)


def _synth(folder: Path, format: str, workers: int) -> None:
    shutil.rmtree(folder / "out", ignore_errors=True)
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
    shutil.rmtree(target, ignore_errors=True)
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
    photographs(folder / "data", 240)
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, _load, (folder / "data",)) as pool:
        pool.map(_loop, [0, 0])  # both processes are up and have their images
        codecs = best_of(lambda: pool.map(_loop, [1, 1], chunksize=1))
    ours = best_of(lambda: _synth(folder, "jpeg", 2))
    started = best_of(lambda: _start_two(folder), 2)
    rate, limit = 240 * 12 / (ours - started), 2 * 40 * 12 / codecs
    yield Row("synth, two workers (without starting them)", rate, "images/s")
    yield Row("synth, two workers: share of two codec loops", rate / limit, at_least=0.9)


_images: list[tuple[bytes, list[Image]]] = []


def _load(data: Path) -> None:
    cv2.setNumThreads(1)
    _images.extend(_outputs(data)[:40])


def _loop(times: int) -> None:
    for _ in range(times):
        _codecs(_images, "jpeg")


def _start_two(folder: Path) -> None:
    """The same command on two images: what starting costs."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    synth(SynthSpec(str(folder / "data"), scenarios="red", format="jpeg", workers=2, limit=2), folder / "out")
