"""``holdfast eval --fast`` on a GPU: the figures of docs/performance.md.

    python benchmarks/gpu_eval.py --parts scenarios,agreement          # an H200: about a minute each
    python benchmarks/gpu_eval.py --parts usual,resnet50 --profile     # about two minutes
    python benchmarks/gpu_eval.py --parts eight                        # about four
    python benchmarks/gpu_eval.py --sizes 500,3000,15423               # runs of several sizes, then agreement: two
    python benchmarks/gpu_eval.py --quick --device cpu                 # a rehearsal: all parts, tiny

- scenarios: the twelve scenarios made on the device against OpenCV's, pixel by pixel; and how fast they are.
- agreement: answers of the embedded models, fast on the device against the ordinary way in float32.
- usual: folders of scenario images, torchvision's ImageFolder with a DataLoader, float32, one run a scenario.
- resnet50: 13 conditions of ``--images`` JPEGs of 500 × 375 with PNG masks, files to part files with rows.
- eight: the same with eight networks, compilation included, which finds nothing cached.

Images are drawn scenes with noise, each another one, written to memory (``--data``) by one process a core. Results
are also written to ``$OUT/gpu_eval.json`` where OUT is set. With ``--sizes`` each run has a process of its own, so that
it pays for imports and the GPU's start as a command does, and one that fails stops no other.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from common import Sampler, Stacks, in_own_process
from eval_pictures import HEIGHT, WIDTH, in_processes, pictures, write_scenarios

NETWORKS = (
    "torchvision:resnet50?weights=none",
    "torchvision:vit_b_16?weights=none",
    "torchvision:swin_b?weights=none",
    "torchvision:vgg16?weights=none",
    "torchvision:densenet121?weights=none",
    "torchvision:efficientnet_b3?weights=none&size=224",
    "torchvision:mobilenet_v2?weights=none",
    "torchvision:efficientnet_b0?weights=none",
)
SMALL = tuple(f"timm:{name}?pretrained=false&num_classes=1000" for name in ("test_resnet", "test_vit"))
EMBEDDED = ("resnet_rho0", "resnet_rho95", "vit_rho95", "convnext_rho95", "densenet_rho95", "mobilenet_rho95")


# --- measuring ----------------------------------------------------------------------------------------------------


@contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Prints the kernels that take longest, and how much of the time none ran."""
    import torch

    if not wanted or not torch.cuda.is_available():
        yield
        return
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        yield
    print(profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=20, max_name_column_width=70))
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if "CUDA" in str(event.device_type)
    )
    busy = reached = 0.0
    for first, last in spans:
        busy += max(0.0, last - max(first, reached))
        reached = max(reached, last)
    if spans:
        whole = reached - spans[0][0]
        print(f"profiled: {whole / 1e6:.1f} s from first to last kernel, the GPU idle {100 - 100 * busy / whole:.1f} %")


def evaluated(folder: Path, models: tuple[str, ...], options: argparse.Namespace, what: str) -> dict[str, Any]:
    """One fast run: seconds of its parts, rows, and the rates."""
    import torch

    from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate

    cuda = options.device.startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    steps: dict[str, tuple[float, float]] = {}
    stacks = Stacks()
    stacks.start()
    start = time.perf_counter()

    def watch(step: str, done: int, total: int) -> None:
        now = time.perf_counter() - start
        steps[step] = (steps.get(step, (now, now))[0], now)
        if step == "eval":
            stacks.over.set()

    spec = EvaluateSpec(
        str(folder), models=models, scenarios="static", device=options.device, fast=True, workers=options.workers,
        batch_size=options.batch, compile=options.compile,
    )  # fmt: skip
    sampler = Sampler()
    if cuda:
        sampler.start()
    with tempfile.TemporaryDirectory(dir=options.data) as out, profiled(options.profile):
        run, summary = evaluate(spec, Path(out) / "run", progress=watch)
        total = time.perf_counter() - start
        parts = len(run.predictions.paths())
    sampler.over.set()
    pictures = summary.rows // len(models)
    ready, passing = summary.times["ready"], summary.times["pass"]
    found = {
        "rows": summary.rows, "part_files": parts, "seconds": total, "seconds_ready": ready, "seconds_pass": passing,
        "seconds_before": total - ready - passing, "images_per_second": pictures / passing,
        "rows_per_second": summary.rows / passing, "images_per_second_with_everything": pictures / total,
        "trouble": dict(summary.trouble), "notes": summary.notes, "times": summary.times,
        "steps": steps, "gpu_utilisation": sampler.values, "before": stacks.most(),
    }  # fmt: skip
    ended = start + steps["eval"][1]
    found["busy"] = sampler.busy(ended - passing, ended)
    if cuda:
        found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    print(
        f"{what}: {summary.rows} rows in {total:.1f} s (read, load, hash {total - ready - passing:.1f}; compile "
        f"{ready:.1f}; pass {passing:.1f}): {pictures / passing:.0f} scenario-images/s, {len(models)} network(s), "
        f"{summary.rows / passing:.0f} rows/s, {pictures / total:.0f}/s with everything; {parts} part files, "
        f"peak {found.get('peak_gib', 0):.1f} GiB, GPU busy {found['busy'] or 0:.0f} % of the pass",
        flush=True,
    )
    told = ", ".join(f"{what} {seconds:.1f}" for what, seconds in summary.times.items())
    print(f"  seconds of the host: {told}", flush=True)
    print("  steps: " + ", ".join(f"{name} {a:.1f} to {b:.1f}" for name, (a, b) in steps.items()), flush=True)
    for note in [*summary.notes, *(f"{number} rows: {why}" for why, number in summary.trouble.items())]:
        print(f"  {note}", flush=True)
    return found


# --- the parts ----------------------------------------------------------------------------------------------------


def part_scenarios(options: argparse.Namespace) -> dict[str, Any]:
    """Pixels of the device against OpenCV's, and rates of rendering and of preparing for a network."""
    import torch

    from holdfast.core.fingerprint import generator
    from holdfast.core.types import Sample
    from holdfast.data.images import ArrayImage
    from holdfast.data.masks import ArrayMask
    from holdfast.models.torch_classifier import Geometry
    from holdfast.pipeline.donors import DonorPool, SampleContext, load_sample
    from holdfast.pipeline.fast.networks import see
    from holdfast.pipeline.samples import over_matte
    from holdfast.scenarios import parse_conditions, render
    from holdfast.scenarios.tensors import plain, proved_for, render_batch

    folder, conditions = pictures(options.data, options.images), parse_conditions("static")
    count = 4 if options.quick else 64
    start = time.perf_counter()
    shape = (count, 3, HEIGHT, WIDTH)
    cuda = options.device.startswith("cuda")
    quick, reason = proved_for(render_batch, conditions, shape, options.device) if cuda else (plain, "")
    print(f"kernels proved in {time.perf_counter() - start:.1f} s {reason}", flush=True)
    ways = {"plain": plain} | ({"kernels": quick} if quick is not plain else {})
    files = sorted((folder / "images").rglob("*.jpg"))[:: max(1, options.images // count)][:count]
    found: dict[str, Any] = {}
    for title, shape in (("equal sizes", (HEIGHT, WIDTH)), ("donors of another size", (480, 640))):
        images, masks, donors, expected = [], [], [], {condition: [] for condition in conditions}
        for place, file in enumerate(files):
            image = cv2.cvtColor(cv2.imread(str(file)), cv2.COLOR_BGR2RGB)
            mask = cv2.imread(str(folder / "masks" / file.parent.name / f"{file.stem}.png"), 0) > 0
            lent = cv2.resize(cv2.cvtColor(cv2.imread(str(files[place - 1])), cv2.COLOR_BGR2RGB), shape[::-1])
            pool = DonorPool([Sample("donor", "other", ArrayImage(lent), ArrayMask(np.zeros(shape, bool)))])
            context = SampleContext(Sample(str(place), "this", ArrayImage(image)), pool)
            for condition in conditions:
                rng = generator(0, str(place), condition.scenario, condition.variant, condition.parameters_json)
                made = render(condition, image, mask, rng=rng, context=context)
                expected[condition].append(over_matte(made.image, (255, 255, 255)))
            images.append(image), masks.append(mask), donors.append(load_sample(pool.samples[0], 10**9)[0])
        batch, lent_batch = (
            torch.from_numpy(np.stack(one)).permute(0, 3, 1, 2).contiguous().to(options.device)
            for one in (images, donors)
        )
        where = torch.from_numpy(np.stack(masks)).to(options.device)
        ids = [str(place) for place in range(count)]
        for way, how in ways.items():
            with torch.no_grad():
                made = render_batch(conditions, batch, where, sample_ids=ids, donors=lent_batch, call=how)
            print(f"{title}, {way}: share of values identical, within 1, largest difference ({count} images)")
            for condition in conditions:
                there = made[condition].permute(0, 2, 3, 1).cpu().numpy().astype(int)
                apart = np.abs(there - np.stack(expected[condition]))
                values = {
                    "identical": float((apart == 0).mean()),
                    "within_one": float((apart <= 1).mean()),
                    "most": int(apart.max()),
                }
                found[f"{title}/{way}/{condition.name}"] = values
                print(
                    f"  {condition.name:20} {values['identical']:.6f} {values['within_one']:.6f} {values['most']}",
                    flush=True,
                )
    geometry = Geometry(232, (224, 224), "bilinear")

    def work(how: Any, seen: bool) -> None:
        made = render_batch(conditions, batch, where, sample_ids=ids, donors=batch, call=how)
        if seen:
            for one in made.values():
                see(one, geometry, crops_centre=True, kernels=how is not plain)

    for (way, how), seen in itertools.product(ways.items(), (False, True)):
        times = []
        with torch.no_grad():
            for _ in range(6 if not options.quick else 2):
                start = time.perf_counter()
                work(how, seen)
                if options.device.startswith("cuda"):
                    torch.cuda.synchronize()
                times.append(time.perf_counter() - start)
        name = f"render{' and prepare' if seen else ''}, {way}"
        found[name] = count * len(conditions) / float(np.median(times[1:]))
        print(f"{name}: {found[name]:.0f} scenario-images/s", flush=True)
    return found


def part_agreement(options: argparse.Namespace) -> dict[str, Any]:
    """The same rows both ways, by models that were trained."""
    from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate

    models = tuple(f"embedded:{name}" for name in (EMBEDDED[:2] if options.quick else EMBEDDED))
    data = f"diorama:test?n={24 if options.quick else options.scenes}"
    columns = ["model", "sample_id", "condition", "prediction", "correct", "probability_of_label", "donor_id", "status"]
    tables: list[dict[tuple[str, ...], dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as out:
        for fast in (False, True):
            start = time.perf_counter()
            spec = EvaluateSpec(
                data, models=models, scenarios="static", device=options.device, fast=fast,
                workers=options.workers if fast else 1, compile=options.compile if fast else None,
            )  # fmt: skip
            run, summary = evaluate(spec, Path(out) / str(fast))
            rows = run.rows(columns).to_pylist()
            tables.append({tuple(row[name] for name in columns[:3]): row for row in rows})
            took = time.perf_counter() - start
            print(f"  {'fast' if fast else 'ordinary'}: {len(rows)} rows in {took:.1f} s {summary.notes}", flush=True)
    exact, quick = tables
    assert exact.keys() == quick.keys()
    pairs = [(exact[key], quick[key]) for key in exact]
    assert all(one[name] == two[name] for one, two in pairs for name in ("status", "donor_id"))
    apart = np.abs([one["probability_of_label"] - two["probability_of_label"] for one, two in pairs])
    same = {
        model: [one["prediction"] == two["prediction"] for one, two in pairs if one["model"] == model]
        for model in models
    }
    found = {
        "rows": len(pairs), "same_answer": float(np.mean([equal for some in same.values() for equal in some])),
        "by_model": {model: float(np.mean(equal)) for model, equal in same.items()},
        "accuracy_exact": float(np.mean([one["correct"] for one, _ in pairs])),
        "accuracy_fast": float(np.mean([two["correct"] for _, two in pairs])),
        "probability_apart_mean": float(apart.mean()), "probability_apart_most": float(apart.max()),
    }  # fmt: skip
    print(f"agreement: {found}", flush=True)
    return found


def part_usual(options: argparse.Namespace) -> dict[str, Any]:
    """ImageFolder, DataLoader, float32, one run a scenario, from before the workers start to the last answer.

    Six scenarios stand for thirteen: JPEGs as they came, four that were written again, and PNGs.
    """
    import torch
    import torchvision
    from torch.utils.data import DataLoader

    folder = pictures(options.data, options.images)
    count = 16 if options.quick else min(options.usual or options.images, options.images)
    names = [str(path.relative_to(folder / "images")) for path in sorted((folder / "images").rglob("*.jpg"))[:count]]
    network = torchvision.models.get_model("resnet18" if options.quick else "resnet50", weights=None)
    network = network.eval().to(options.device)
    steps = torchvision.transforms
    transform = steps.Compose(
        [
            steps.Resize(232),
            steps.CenterCrop(224),
            steps.ToTensor(),
            steps.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    rates = {}
    with tempfile.TemporaryDirectory(dir=options.data) as made:
        scenarios = "original,blur_background,rainbow,segmented,transparent,random_background"
        each = max(1, -(-count // (os.cpu_count() or 1)))
        in_processes(
            write_scenarios, [(str(folder), made, names[at : at + each], scenarios) for at in range(0, count, each)]
        )
        for scenario in scenarios.split(","):
            data = torchvision.datasets.ImageFolder(str(Path(made) / scenario), transform)
            batch = min(256, count // 4)
            pinned = options.device.startswith("cuda")
            loader = DataLoader(data, batch_size=batch, num_workers=os.cpu_count() or 1, pin_memory=pinned)
            right, first, start = 0, 0.0, time.perf_counter()
            with torch.no_grad():
                for images, labels in loader:
                    first = first or time.perf_counter() - start
                    answer = network(images.to(options.device, non_blocking=True)).argmax(1).cpu()
                    right += int((answer == labels).sum())
            rates[scenario] = count / (time.perf_counter() - start)
            print(
                f"usual way, {scenario}: {rates[scenario]:.0f} images/s ({count}, the first batch after {first:.1f} s)",
                flush=True,
            )
    return {"images_per_second": float(np.mean(list(rates.values()))), "by_scenario": rates}


def part_resnet50(options: argparse.Namespace) -> dict[str, Any]:
    models = SMALL[:1] if options.quick or options.small else NETWORKS[:1]
    return evaluated(pictures(options.data, options.images), models, options, "one pass, ResNet-50")


def part_eight(options: argparse.Namespace) -> dict[str, Any]:
    models = SMALL if options.quick else NETWORKS
    return evaluated(pictures(options.data, options.images), models, options, "one pass, eight networks")


PARTS = {
    "scenarios": part_scenarios,
    "agreement": part_agreement,
    "usual": part_usual,
    "resnet50": part_resnet50,
    "eight": part_eight,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--images", type=int, default=15_423)
    parser.add_argument("--sizes", default="", help="numbers of images, each run in a process of its own")
    parser.add_argument("--scenes", type=int, default=240, help="drawn scenes that agreement is measured on")
    parser.add_argument("--seconds", type=float, default=140, help="with --sizes: end everything after so many")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--usual", type=int, default=8192, help="images a scenario, the usual way; 0: all")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--cached", action="store_true", help="let torch find kernels that earlier runs compiled")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--small", action="store_true", help="a network of no weight, to rehearse with")
    parser.add_argument("--data", default="", help="where images go and stay; without it, they go with the run")
    options = parser.parse_args()
    if options.quick:
        options.images, options.batch, options.workers = 48, 16, 1
    memory = Path("/dev/shm")
    made = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
    options.data = options.data or made.name
    if not options.cached:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(made.name) / "kernels")
    if options.sizes:
        _in_sizes(options)
        made.cleanup()
        return
    found: dict[str, Any] = {"images": options.images, "device": options.device}
    for part in options.parts.split(","):
        print(f"== {part}", flush=True)
        start = time.perf_counter()
        found[part] = PARTS[part](options)
        found[part]["part_seconds"] = time.perf_counter() - start
        if os.environ.get("OUT"):
            (Path(os.environ["OUT"]) / "gpu_eval.json").write_text(json.dumps(found, indent=2))
    _judge(found)
    made.cleanup()


def _in_sizes(options: argparse.Namespace) -> None:
    """One network on as many images as each size says, the smallest first, then agreement; JSON of a line each."""
    began, sizes = time.perf_counter(), sorted(set(map(int, options.sizes.split(","))))
    whole, rows = pictures(options.data, sizes[-1]), []
    files = sorted(whole.glob("*/*/*.*"), key=lambda file: file.stem)
    for size in sizes[:-1]:
        for file in files[: 2 * size]:  # an image and its mask
            target = whole.parent / str(size) / file.relative_to(whole)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, target)
        (whole.parent / str(size) / "done").touch()
    shared = ["gpu_eval.py", "--device", options.device, "--data", options.data, "--batch", str(options.batch)]
    shared += ["--workers", str(options.workers), *(["--small"] if options.small else [])]
    runs = [("resnet50", size, [*shared, "--parts", "resnet50", "--images", str(size)]) for size in sizes]
    runs.append(("agreement", options.scenes, [*shared, "--parts", "agreement", "--scenes", str(options.scenes)]))
    for part, size, arguments in runs:
        left = options.seconds - (time.perf_counter() - began)
        found = in_own_process(arguments, left) if left > 5 else {"exit": "no time left"}
        row = {"part": part, "size": size} | {
            name: found[name] for name in ("exit", "process_seconds") if name in found
        }
        row |= {name: value for name, value in found.get(part, {}).items() if name not in ("gpu_utilisation", "notes")}
        rows.append({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
        if os.environ.get("OUT"):
            (Path(os.environ["OUT"]) / "gpu_eval_sizes.json").write_text(json.dumps(rows, indent=1))
    print("\n".join(json.dumps(row) for row in rows), flush=True)


def _judge(found: dict[str, Any]) -> None:
    """The goals, if they were measured."""
    rate = found.get("resnet50", {}).get("images_per_second")
    if rate:
        print(f"ResNet-50, 13 conditions: {rate:.0f} scenario-images/s (goal 15,000)")
        if "usual" in found:
            print(f"against the usual way: {rate / found['usual']['images_per_second']:.1f} × (goal 10 ×)")
    if "eight" in found:
        print(f"eight networks with compilation: {found['eight']['seconds']:.0f} s (goal 300)")
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{name}, torch {torch.__version__}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
