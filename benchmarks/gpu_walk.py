"""The walk at the paper's size on a GPU: VQGAN f16 at 256 pixels, ResNet-50, CLIP ViT-B/32, 50 steps.

    python benchmarks/gpu_walk.py                          # all of it, within four minutes
    python benchmarks/gpu_walk.py --parts batched --batches 48,64,96
    python benchmarks/gpu_walk.py --parts batched,profile,random --batches 64      # within a minute

Weights are random, which costs the same time as trained ones. Prints a JSON line a measurement and a table at the end.
Parts: ``plain`` (what one writes in an afternoon, float32, an image at a time), ``careful`` (our own walk, float32, an
image at a time), ``batched`` (bfloat16, with kernels of our own) and ``agreement`` (decisions in bfloat16
against those in float32 on the latents of the float32 walk, with the embedded trained models), ``sparse`` (walks that
move all or 0.69 % of the latent, and what of a step a sparse latent could leave out), ``profile`` (kernels of a step of
``batched`` by group) and ``random`` (the baseline of ``perturb``: random walks of images that are read from files).
Measured are whole walks, encoding included, after a batch of warm-up. A part that fails stops no other.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from bench_walk import Accepting, drawn_world, plain_walk
from common import Sampler

from holdfast.core.errors import UserError
from holdfast.core.types import LabelSpace
from holdfast.data.labels import map_labels
from holdfast.generators.autoencoders import VqGan
from holdfast.models.torch_classifier import Preprocessing, TorchClassifier
from holdfast.oracle.classifier import TensorClassifierOracle
from holdfast.oracle.loading import AcceptanceRule
from holdfast.pipeline.walk import walk_step
from holdfast.pipeline.walk.walk import UnderTest, WalkInput, WalkOptions, walk, walk_with

CLASSES = tuple(f"class {number}" for number in range(1000))
PEAK = 989e12
"""Dense bfloat16 operations a second of an H100 or H200."""

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
STEPS = 50
STARTED = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default="plain,careful,batched,agreement")
    parser.add_argument("--batches", default="64,32")
    parser.add_argument("--seconds", type=float, default=200, help="begin no measurement after so many")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="small networks, to rehearse with")
    asked = parser.parse_args()
    parts, rows = asked.parts.split(","), []
    if "agreement" in parts:
        rows.append(agreement(asked.device))
    world = None
    if {"plain", "careful", "batched", "sparse", "profile", "random"} & set(parts):
        world = paper_world(asked.device, small=asked.small)
        rows.append(shown({"what": "operations", "gflop_per_image_and_step": operations(*world) / 1e9}))
    works: list[Callable[[], dict[str, Any]]] = [
        lambda part=part: one_at_a_time(part, *world) for part in ("plain", "careful") if part in parts
    ]
    batches = [int(batch) for batch in asked.batches.split(",")]
    works += [lambda: sparse(*world)] if "sparse" in parts else []
    works += [lambda batch=batch: batched(batch, *world) for batch in batches if "batched" in parts]
    works += [lambda: random_walks(batches[0], *world)] if "random" in parts else []
    works += [lambda: profile(batches[0], *world)] if "profile" in parts else []
    for work in works:
        if time.perf_counter() - STARTED < asked.seconds:
            try:
                rows.append(shown(work()))
            except Exception:
                traceback.print_exc()
        if os.environ.get("OUT"):
            (Path(os.environ["OUT"]) / "gpu_walk.json").write_text(json.dumps(rows, indent=1))
    print_table(rows)


def shown(row: dict[str, Any]) -> dict[str, Any]:
    row = {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
    print(json.dumps(row), flush=True)
    return row


def paper_world(device: str, *, small: bool = False) -> tuple[Any, UnderTest, Any]:
    """Generator, model and oracle of the paper's architectures; small ones to rehearse with."""
    import diffusers
    import torchvision
    import transformers

    torch.manual_seed(0)
    down, up = ["DownEncoderBlock2D"] * 4, ["UpDecoderBlock2D"] * 4
    module = diffusers.VQModel(
        down_block_types=(*down, "AttnDownEncoderBlock2D"),
        up_block_types=("AttnUpDecoderBlock2D", *up),
        block_out_channels=(32, 32, 32, 32, 32) if small else (128, 128, 256, 256, 512),
        layers_per_block=1 if small else 2,
        latent_channels=256,
        num_vq_embeddings=64 if small else 16384,
        vq_embed_dim=256,
        norm_num_groups=32,
    )
    generator = VqGan("vqgan:random", module, device=device)
    name = "resnet18" if small else "resnet50"
    resnet = made_classifier(name, torchvision.models.get_model(name, weights=None), device)
    layers = {"num_hidden_layers": 1} if small else {}
    tower = transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig(projection_dim=512, **layers))
    clip = made_classifier("clip", ZeroShot(tower, torch.nn.functional.normalize(torch.randn(1000, 512))), device)
    labels = map_labels(CLASSES, {}, resnet.labels)
    oracle = TensorClassifierOracle(clip, labels, CLASSES, AcceptanceRule())
    return generator, UnderTest(resnet, labels), Accepting(oracle)


class ZeroShot(torch.nn.Module):
    def __init__(self, tower: torch.nn.Module, classes: torch.Tensor) -> None:
        super().__init__()
        self.tower = tower
        self.register_buffer("classes", classes)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        embeddings = self.tower(pixel_values=batch).image_embeds
        return 100 * torch.nn.functional.normalize(embeddings.float(), dim=-1) @ self.classes.T


def made_classifier(name: str, module: torch.nn.Module, device: str) -> TorchClassifier:
    from torchvision import transforms

    preprocessing = Preprocessing(
        transform=transforms.Compose(
            [transforms.Resize((224, 224)), transforms.ToTensor(), transforms.Normalize(*IMAGENET)]
        ),
        size=(224, 224),
        mean=IMAGENET[0],
        std=IMAGENET[1],
        crops_centre=False,
        description={},
    )
    return TorchClassifier(name, module, LabelSpace(CLASSES), preprocessing, architecture=name, device=device)


def made_walkers(count: int, steps: int | None = None) -> list[WalkInput]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 256, 256, 3), np.uint8)
    return [WalkInput(str(number), image, number, 0, steps) for number, image in enumerate(images)]


def operations(generator: Any, model: UnderTest, oracle: Any) -> float:
    """Floating-point operations of one image and step: decode, judge, score, and back to the latent."""
    from torch.utils.flop_counter import FlopCounterMode

    stepper = walk_step.Stepper(generator, model, oracle, WalkOptions())
    (walker,) = made_walkers(1)
    state = stepper.begin([walker.image], [walker.label], [0])
    with FlopCounterMode(display=False) as counter:
        # Not torch.autograd.grad, which the counter's hooks refuse up to torch 2.11.
        stepper.look(state).loss.sum().backward()
    return float(counter.get_total_flops())


def sparse(generator: Any, model: UnderTest, oracle: Any, kept: float = 0.0069, batch: int = 8) -> dict[str, Any]:
    """Walks of 20 steps along all of the latent and along a share of it; what only a part of the latent enters.

    ``entering`` is the share of a step's operations in the two layers that read the latent's channels: all that a
    smaller model for the kept channels could save. ``reach`` is the share of pixel values that change when one of the
    latent's 256 cells does: what a decoder of the touched region would have to make anyway.
    """
    from torch.utils.flop_counter import FlopCounterMode

    walkers = made_walkers(2 * batch)
    latent = generator.encode(torch.zeros(1, 3, 256, 256, device=generator.device))[0]
    mask = np.random.default_rng(0).random(latent.shape) < kept
    seconds: dict[str, list[float]] = {"dense": [], "sparse": []}
    options = WalkOptions(steps=20, batch_size=batch)
    for turn in range(4):
        for name, chosen in (("dense", None), ("sparse", mask)):
            start = clock()
            list(walk(walkers[:batch], generator, model, oracle, options, mask=chosen))
            if turn:  # the first warms up
                seconds[name].append((clock() - start) / batch)
    codes = torch.randn(1, *latent.shape, device=latent.device)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        generator.module.decoder.conv_in(generator.module.post_quant_conv(codes))
    with torch.no_grad():
        moved = codes.clone()
        moved[:, :, 8, 8] += 1
        pictures = [generator.module.decoder(generator.module.post_quant_conv(each)) for each in (codes, moved)]
    return {
        "what": "sparse",
        "batch": batch,
        "dense_seconds": min(seconds["dense"]),
        "sparse_seconds": min(seconds["sparse"]),
        "entering": 3 * counter.get_total_flops() / operations(generator, model, oracle),  # there and back
        "cells_touched": float(mask.any(0).mean()),
        "reach": float((pictures[0] != pictures[1]).float().mean()),
    }


def one_at_a_time(part: str, generator: Any, model: UnderTest, oracle: Any) -> dict[str, Any]:
    """Two walks of 50 steps after a short one."""
    walkers = made_walkers(2)
    if part == "plain":
        plain_walk(walkers[0], generator, model, oracle, WalkOptions(steps=5))
        start = clock()
        for walker in walkers:
            assert plain_walk(walker, generator, model, oracle, WalkOptions(steps=STEPS)) == STEPS
    else:
        list(walk(walkers[:1], generator, model, oracle, WalkOptions(steps=5, batch_size=1)))
        start = clock()
        results = list(walk(walkers, generator, model, oracle, WalkOptions(steps=STEPS, batch_size=1)))
        assert all(one.steps == STEPS for one in results)
    seconds = clock() - start
    return {"what": part, "batch": 1, "images_per_second": len(walkers) / seconds}


def batched(batch: int, generator: Any, model: UnderTest, oracle: Any) -> dict[str, Any]:
    """The second of two batches that walk one after the other in the same places."""
    torch.cuda.empty_cache()
    begun = clock()
    options = WalkOptions(steps=STEPS, precision="bfloat16", batch_size=batch)
    sampler = Sampler()
    try:
        results = walk(made_walkers(2 * batch), generator, model, oracle, options)
        first = [next(results) for _ in range(batch)]
        warm = clock()
        sampler.start()
        torch.cuda.reset_peak_memory_stats()
        second = list(results)
        seconds = clock() - warm
    except UserError:
        return {"what": "batched", "batch": batch, "images_per_second": None, "note": "out of memory"}
    finally:
        sampler.over.set()
    assert all(one.steps == STEPS for one in [*first, *second]), {one.stop for one in [*first, *second]}
    rate = batch / seconds
    return {
        "what": "batched",
        "batch": batch,
        "images_per_second": rate,
        "milliseconds_per_step": 1000 * seconds / (STEPS + 1),
        "busy": float(np.mean(sampler.values or [0])),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
        "reserved_gb": torch.cuda.max_memory_reserved() / 1e9,
        "share_of_peak": rate * STEPS * operations(generator, model, oracle) / PEAK,
        "seconds_before_the_first_step": warm - begun - seconds,
    }


KERNELS = {
    "copies between layouts": r"nchwToNhwc|nhwcToNchw|transpose|permute|copy",
    "convolutions, there and back": r"conv|xmma|cudnn|implicit|dgrad|wgrad|fprop|sm90_|cutlass.*(conv|fprop|dgrad)",
    "norms of our own": r"_sums|_values|_norm|triton|_silu",
    "attention": r"flash|fmha|attention|softmax",
    "matrix products": r"gemm|cublas|cutlass|nvjet",
    "upsampling": r"upsample",
    "norms of torch": r"batch_norm|bn_|layer_norm|group_norm",
    "sums": r"reduce",
    "element by element": r"elementwise|vectorized|pointwise",
}
"""Groups of kernels by what is in their names; the first that fits."""


def profile(batch: int, generator: Any, model: UnderTest, oracle: Any, steps: int = 3) -> dict[str, Any]:
    """Milliseconds of kernels in a step of ``batched`` by group, and the twelve longest."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    cuda = torch.cuda.is_available()
    options = WalkOptions(steps=STEPS, precision="bfloat16", batch_size=batch)
    stepper, walkers = walk_step.Stepper(generator, model, oracle, options), made_walkers(batch)
    state = stepper.begin(*zip(*[(each.image, each.label, each.seed) for each in walkers], strict=True))
    for _ in range(walk_step._RECORDED_AFTER + 1):
        stepper.move(state, stepper.look(state))
    start = clock()
    with profiled(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            stepper.move(state, stepper.look(state))
        seconds = clock() - start
    groups: Counter[str] = Counter()
    longest: Counter[str] = Counter()
    for event in profiler.key_averages():
        took = (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1000 / steps
        own = (name for name, pattern in KERNELS.items() if re.search(pattern, event.key, re.IGNORECASE))
        groups[next(own, "the rest")] += took
        longest[f"{event.key[:90]} ({event.count / steps:.0f})"] += took
    return {
        "what": "profile", "batch": batch, "milliseconds_per_step": 1000 * seconds / steps,
        "kernels": round(sum(groups.values()), 1),
        "groups": {name: round(took, 1) for name, took in groups.most_common()},
        "longest": {name: round(took, 2) for name, took in longest.most_common(12)},
    }  # fmt: skip


def random_walks(batch: int, generator: Any, model: UnderTest, oracle: Any) -> dict[str, Any]:
    """Random walks of images from files, as ``perturb`` makes them for comparison, against steps with nothing between.

    Images are decoded in threads, batches are filled again as walks end, which they do after 10 to 49 steps.
    """
    from eval_pictures import pictures

    from holdfast.data import load_collection
    from holdfast.pipeline.walk.perturb import WalkWorker

    options = WalkOptions(steps=STEPS, precision="bfloat16", batch_size=batch, direction="random")
    with tempfile.TemporaryDirectory() as data:
        samples = load_collection(str(pictures(data, 10 * batch))).samples
        worker: Any = WalkWorker.__new__(WalkWorker)  # only its reading of images is used, which wants no more than:
        worker.spec = SimpleNamespace(walk=options, seed=0, max_pixels=10**8)
        worker.classes = {sample.label: 0 for sample in samples}
        resources = SimpleNamespace(setting=SimpleNamespace(size=256))
        jobs = [
            SimpleNamespace(item=SimpleNamespace(sample=sample, steps=10 + place % 40, baseline=True))
            for place, sample in enumerate(samples)
        ]
        stepper = walk_step.Stepper(generator, model, oracle, options)
        list(walk_with(stepper, made_walkers(batch, steps=3)))  # warms up
        steps, sampler, began = sum(job.item.steps + 1 for job in jobs), Sampler(), clock()
        sampler.start()
        results = list(walk_with(stepper, worker._walkers(resources, jobs, {}, [])))
        ended = clock()
        sampler.over.set()
        state = stepper.begin(*zip(*[(each.image, 0, 0) for each in made_walkers(batch)], strict=True))
        bare = clock()
        for _ in range(10):
            stepper.move(state, stepper.look(state))
        alone = 10 * batch / (clock() - bare)
    assert len(results) == len(jobs)
    rate = steps / (ended - began)
    return {
        "what": "random", "batch": batch, "walks": len(jobs), "seconds": ended - began, "steps_per_second": rate,
        "share_of_bare_steps": rate / alone, "busy": sampler.busy(began, ended),
    }  # fmt: skip


def agreement(device: str, count: int = 48) -> dict[str, Any]:
    """The oracle's and the model's decisions at every point of float32 walks, asked again in bfloat16."""
    walkers, generator, model, oracle = drawn_world(count, device)
    full = walk_step.Stepper(generator, model, oracle, WalkOptions(step_size=0.05))
    half = walk_step.Stepper(generator, model, oracle, WalkOptions(precision="bfloat16"))
    truth = torch.tensor([one.label for one in walkers], device=device)
    state = full.begin([one.image for one in walkers], [one.label for one in walkers], [one.seed for one in walkers])
    same: dict[str, list[float]] = {"oracle": [], "model": []}
    rejected, wrong = 0.0, 0.0
    for _ in range(STEPS + 1):
        look = full.look(state)
        told, asked = look.facts, half.look(dict(state)).facts
        same["oracle"].append(float((told[1] == asked[1]).float().mean()))
        same["model"].append(float(((told[7] == truth) == (asked[7] == truth)).float().mean()))
        rejected, wrong = float((told[1] == 0).float().mean()), float((told[7] != truth).float().mean())
        full.move(state, look)
    return shown(
        {
            "what": "agreement of bfloat16 with float32",
            "images": count,
            "steps": STEPS,
            "oracle": float(np.mean(same["oracle"])),
            "model": float(np.mean(same["model"])),
            "rejected_at_the_end": rejected,
            "wrong_at_the_end": wrong,
        }
    )


def clock() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def print_table(rows: list[dict[str, Any]]) -> None:
    speeds = [row for row in rows if row.get("images_per_second")]
    plain = next((row["images_per_second"] for row in speeds if row["what"] == "plain"), None)
    print(f"\n{'what':10} {'batch':>5} {'images/s':>9} {'x plain':>8} {'peak GB':>8} {'of peak':>8}")
    for row in speeds:
        rate = row["images_per_second"]
        ratio = f"{rate / plain:.1f}" if plain else ""
        memory, share = row.get("peak_gb", ""), row.get("share_of_peak")
        print(
            f"{row['what']:10} {row['batch']:5} {rate:9.2f} {ratio:>8} {memory:>8} "
            f"{f'{100 * share:.0f} %' if share else '':>8}"
        )
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(f"{name}, torch {torch.__version__}, {time.perf_counter() - STARTED:.0f} s in all")


if __name__ == "__main__":
    main()
