"""How busy training keeps a GPU: ResNet-50 at 224², 500 × 375 JPEGs under a scenario that is made on the fly.

    python benchmarks/gpu_train.py                     # an H200; about 4 minutes
    python benchmarks/gpu_train.py --compile           # the steps compiled, which takes about a minute more
    python benchmarks/gpu_train.py --quick --device cpu
    python benchmarks/gpu_train.py --pictures --images 2048 --renderers 16    # makes them, trains nothing: no GPU

Prints how fast images are made, and how much processor time this process, which collects them, takes for each: no
number of processes makes more of them than that allows. Then, for images held in memory and for images rendered
again in every epoch: images/s, the share of the same steps on tensors that are on the device already (nothing but the
network), the share of the time that is in steps and not between epochs (checkpoints), and nvidia-smi's utilisation,
sampled five times a second from the second epoch on. With a GPU the images are made there; ``--on-cpu`` has them made
by processes.

Nothing here imports torch at the top: every process that renders imports this file, and sixteen that import torch take
half a minute to start.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import cv2
from common import Sampler

from holdfast.data import load_collection
from holdfast.diorama import CLASSES, draw_scene, render
from holdfast.engine import core_count
from holdfast.pipeline.donors import make_pool
from holdfast.pipeline.train import architectures
from holdfast.pipeline.train.fitting import Fit
from holdfast.pipeline.train.pictures import InMemory, RenderedSource, Renderer, Source, Team, showing, tensors_of
from holdfast.pipeline.train.plan import Places, TrainingJob, TrainSpec
from holdfast.scenarios import parse_conditions


def trained(source: Source, images: int, options: argparse.Namespace, folder: Path) -> tuple[float, float, list[float]]:
    """Images a second, by the clock, and the share of it in steps, from the second epoch on (the first finds the
    fastest kernels), and utilisation."""
    spec = TrainSpec(
        "photos", recipe="fast", epochs=options.epochs, size=options.size, batch_size=options.batch,
        compile=options.compile,
    )  # fmt: skip
    network = architectures.resolve(options.network, size=options.size)
    (condition,) = parse_conditions(options.scenario)
    job = TrainingJob(network, condition, condition.name, 0, "bench", ())
    sampler = Sampler()
    ended: list[float] = []

    def watch(done: int, total: int) -> None:
        if done:
            ended.append(time.perf_counter())
        if done == 1:
            sampler.start()
        if done == total:  # what comes after is saving the model
            sampler.over.set()

    fitting = Fit(spec, job, ("day", "night"), source, Places(list(range(images)), []), folder, options.device, watch)
    fitting.train()
    seconds = ended[-1] - ended[0]
    rate = (len(fitting.rows) - 1) * (images // options.batch) * options.batch / seconds
    return rate, sum(row["seconds"] for row in fitting.rows[1:]) / seconds, sampler.values


def pictures(folder: Path, count: int) -> None:
    """JPEGs with PNG masks in two classes, some drawn scenes again and again."""
    files = []
    for seed in range(24):
        one = render(draw_scene(seed, split="train", label=CLASSES[seed % 12]), size=512)
        image, mask = (
            cv2.resize(picture, (500, 375), interpolation=cv2.INTER_NEAREST)
            for picture in (cv2.cvtColor(one.image, cv2.COLOR_RGB2BGR), one.mask.astype("uint8") * 255)
        )
        jpeg = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()
        files.append((("images", "jpg", jpeg), ("masks", "png", cv2.imencode(".png", mask)[1].tobytes())))
    for index in range(count):
        for tree, suffix, data in files[index % len(files)]:
            target = folder / tree / ("day", "night")[index % 2] / f"{index:05d}.{suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--network", default="timm:resnet50")
    parser.add_argument("--scenario", default="random_background")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--renderers", type=int, default=0, help="processes that make images; 0: one a core")
    parser.add_argument("--on-cpu", action="store_true", help="images are made by processes, not on the device")
    parser.add_argument("--pictures", action="store_true", help="make the images and train nothing")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--keep", type=float, default=0.3, help="share of the images that memory has room for")
    parser.add_argument("--skip", default="", help="kinds of images left out, by the beginning of their name")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    import torch  # here, so that its import is not part of what is timed

    if options.quick:
        options.network, options.size, options.batch, options.images, options.epochs = "timm:test_resnet", 64, 8, 64, 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pictures(folder / "data", options.images)
        samples = load_collection(str(folder / "data")).samples
        (condition,) = parse_conditions(options.scenario)
        pool = make_pool(samples, None, max_pixels=10**8)
        team = Team(options.renderers or core_count())
        renderer, shown = Renderer(pool, options.size, team=team), showing(samples, condition)
        if not options.on_cpu:
            from holdfast.pipeline.train.on_device import DeviceTeam

            workers = 0 if options.quick else options.renderers or core_count()
            renderer = replace(renderer, device=DeviceTeam(options.device, shown, 10**8, workers))
        start, own = time.perf_counter(), time.process_time()
        held = tensors_of(renderer, shown, ("day", "night"))
        rate, own = len(held) / (time.perf_counter() - start), (time.process_time() - own) / len(held)
        print(
            f"rendering: {rate:.0f} images/s, once for all epochs, folds and networks; collected in "
            f"{1000 * own:.2f} ms of processor time each", flush=True,
        )  # fmt: skip
        if options.pictures:
            return
        sources: dict[str, Source] = {
            "nothing but the network": InMemory(held.images[: options.batch].to(options.device).repeat(
                len(held) // options.batch, 1, 1, 1), held.labels.to(options.device)),
            "held in memory": InMemory(held.images, held.labels).on(options.device),
            "rendered again": RenderedSource(renderer, shown, held.labels),
            f"rendered again but for {options.keep:.0%} that are kept": RenderedSource(
                renderer, shown, held.labels, memory=int(options.keep * held.images.nbytes)
            ),
        }  # fmt: skip
        best = 0.0
        for what, source in sources.items():
            if options.skip and what.startswith(options.skip):
                continue
            rate, stepping, busy = trained(source, len(held), options, folder / what)
            best = best or rate
            told = f", GPU busy {sum(busy) / len(busy):.0f} %" if busy else ""
            print(
                f"{what}: {rate:.0f} images/s, {rate / best:.2f} of the network alone, {stepping:.0%} of the time in "
                f"steps{told}", flush=True,
            )  # fmt: skip
        if options.device.startswith("cuda"):
            print(torch.cuda.get_device_name(), torch.__version__)


if __name__ == "__main__":
    main()
