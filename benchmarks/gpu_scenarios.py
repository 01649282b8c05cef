"""How fast a GPU makes the static scenarios: all 13 conditions of batches that are on the device.

    python benchmarks/gpu_scenarios.py                     # an H200; under a minute
    python benchmarks/gpu_scenarios.py --corruptions       # the 95 of ImageNet-C instead
    python benchmarks/gpu_scenarios.py --quick --device cpu

Prints scenario-images a second of 375 × 500 images, of the same with every result then resized to 224² as a model
wants it, and of images resized to 224² first; each condition's share of the time; and the peak of memory. Donors are
cleared of their objects within the measured time, hues are drawn again for each batch, and a first round that finds
nothing cached is left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import cv2
import numpy as np
import torch
from torch import Tensor

from holdfast.diorama import CLASSES, draw_scene, render
from holdfast.scenarios import Condition, parse_conditions
from holdfast.scenarios.tensors import render_batch


def pictures(count: int, height: int, width: int, device: str) -> tuple[Tensor, Tensor]:
    """Drawn scenes, some of them again and again, and the masks of their objects."""
    drawn = [render(draw_scene(seed, split="train", label=CLASSES[seed % 12]), 256) for seed in range(min(24, count))]
    images = [cv2.resize(one.image, (width, height), interpolation=cv2.INTER_LINEAR) for one in drawn]
    masks = [cv2.resize(one.mask.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST) for one in drawn]
    again = np.arange(count) % len(drawn)
    batch = torch.from_numpy(np.stack(images)[again]).permute(0, 3, 1, 2).contiguous()
    return batch.to(device), torch.from_numpy(np.stack(masks)[again].astype(bool)).to(device)


def resized(images: Tensor, size: int) -> Tensor:
    """Bilinear with antialiasing, as the models' own preparation does it; uint8."""
    small = torch.nn.functional.interpolate(images.float(), (size, size), mode="bilinear", antialias=True)
    return small.round_().clamp_(0, 255).to(torch.uint8)


def seconds(work: Callable[[int], object], repeats: int, device: str) -> float:
    """The median of the repeats, each waited for."""
    times = []
    for repeat in range(repeats + 1):
        start = time.perf_counter()
        work(repeat)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def work_of(
    conditions: Sequence[Condition], images: Tensor, masks: Tensor, then: Callable[[Tensor], object]
) -> Callable[[int], None]:
    """One batch under all conditions; each image's donor is its neighbour, whose mask is on the host."""
    donors, donor_masks = images.roll(1, 0), masks.roll(1, 0).cpu()

    def work(turn: int) -> None:
        ids = [f"{turn}/{index}" for index in range(len(images))]
        made = render_batch(conditions, images, masks, sample_ids=ids, donors=donors, donor_masks=donor_masks)
        for one in made.values():
            then(one)

    return work


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--corruptions", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.batch, options.repeats = 4, 1
    levels = ",".join(f"corruptions@{severity}" for severity in range(1, 6))
    conditions = parse_conditions(levels if options.corruptions else "static")
    images, masks = pictures(options.batch, 375, 500, options.device)
    small, small_masks = pictures(options.batch, options.size, options.size, options.device)
    total = len(conditions) * options.batch
    works = {
        "375 × 500": work_of(conditions, images, masks, lambda made: made),
        f"375 × 500, each then resized to {options.size}²": work_of(
            conditions, images, masks, lambda made: resized(made, options.size)
        ),
        f"resized to {options.size}² before": work_of(conditions, small, small_masks, lambda made: made),
    }
    with torch.inference_mode():
        for what, work in works.items():
            took = seconds(work, options.repeats, options.device)
            print(f"{what}: {total / took:.0f} scenario-images/s, {1000 * took:.1f} ms a batch", flush=True)
        for condition in conditions:
            took = seconds(work_of([condition], images, masks, lambda made: made), options.repeats, options.device)
            print(f"  {condition.name} alone: {1000 * took:.2f} ms", flush=True)
    if options.device.startswith("cuda"):
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"peak {peak:.1f} GiB, {torch.cuda.get_device_name()}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
