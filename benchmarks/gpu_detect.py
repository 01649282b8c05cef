"""``holdfast eval --fast`` with a detector on a GPU, against the usual way: the figures of docs/performance.md.

    python benchmarks/gpu_detect.py                          # an H200: about three minutes
    python benchmarks/gpu_detect.py --quick --device cpu     # a rehearsal with a small network

Faster R-CNN R50-FPN, images of 500 × 375 resized to 800 px by the network, 13 conditions. Weights are random; the
bias of "no object" is set so that an image has about as many boxes as a trained network gives it (``--boxes``).

- usual: scenario images are written (a process a core), then torchvision's evaluation loop goes over each folder:
  DataLoader, one image a batch as in torchvision's references, float32; and with eight a batch.
- fast: files to part files with rows, ``--threads`` batches at a time; the GPU's busy share by nvidia-smi.
- profile: the same with few images under torch's profiler, which counts the time in which any kernel ran.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from common import Sampler
from eval_pictures import in_processes, pictures, write_scenarios
from gpu_eval import profiled

CLASSES = 90
SCENARIOS = "static"


def annotated(folder: Path, count: int) -> Path:
    """Return a COCO file of so many images, with the box and the exact mask of each object."""
    files = sorted((folder / "images").rglob("*.jpg"))[:count]
    images, objects = [], []
    for number, file in enumerate(files):
        mask = cv2.imread(str(folder / "masks" / file.parent.name / f"{file.stem}.png"), 0) > 0
        columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
        flat = mask.T.reshape(-1)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], flat, [False]]).astype(np.int8)))
        runs = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
        box = [columns[0], rows[0], columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0]]
        name = str(file.relative_to(folder / "images"))
        images.append({"id": number, "file_name": name, "height": mask.shape[0], "width": mask.shape[1]})
        objects.append(
            {
                "id": number, "image_id": number, "category_id": number % CLASSES + 1, "bbox": [int(x) for x in box],
                "area": int(mask.sum()), "iscrowd": 0, "segmentation": {"size": list(mask.shape), "counts": runs},
            }
        )  # fmt: skip
    names = [{"id": number + 1, "name": f"class {number}"} for number in range(CLASSES)]
    file = folder / f"boxes-{count}.json"
    file.write_text(json.dumps({"images": images, "annotations": objects, "categories": names}))
    return file


def network(options: argparse.Namespace, folder: Path) -> tuple[Any, str]:
    """Return the module with random weights and its name in Holdfast; its file is next to the images."""
    import torch
    from safetensors.torch import save_file

    from holdfast.models.detectors.torchvision_detectors import build

    architecture = "fasterrcnn_mobilenet_v3_large_320_fpn" if options.quick else "fasterrcnn_resnet50_fpn"
    torch.manual_seed(0)
    module = build(architecture, CLASSES + 1).eval().to(options.device)
    head = module.roi_heads.box_predictor.cls_score
    head.weight.data *= 20
    seen: list[Any] = []
    hook = head.register_forward_hook(lambda _, __, logits: seen.append(logits))
    files = sorted((folder / "images").rglob("*.jpg"))[:2]
    with torch.inference_mode():
        for file in files:
            image = torch.from_numpy(cv2.imread(str(file))[..., ::-1].copy()).permute(2, 0, 1).float() / 255
            module([image.to(options.device)])
    hook.remove()
    logits = torch.cat(seen).float()
    low, high = -50.0, 50.0
    for _ in range(40):  # fewer boxes of a score worth keeping, the larger the bias
        middle = (low + high) / 2
        shifted = logits.clone()
        shifted[:, 0] += middle
        many = int((shifted.softmax(1)[:, 1:] >= 0.01).sum()) / len(files) > options.boxes
        low, high = (middle, high) if many else (low, middle)
    head.bias.data[0] += high
    save_file(module.state_dict(), folder / "weights.safetensors")
    (folder / "names.txt").write_text("\n".join(f"class {number}" for number in range(CLASSES)))
    return module, f"torchvision:{architecture}@{folder / 'weights.safetensors'}?labels={folder / 'names.txt'}"


class Folder:
    """Images of one folder as tensors, as torchvision's references read them."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(path for path in folder.rglob("*") if path.is_file())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> Any:
        from PIL import Image
        from torchvision.transforms.functional import to_tensor

        return to_tensor(Image.open(self.files[place]).convert("RGB"))


def part_usual(options: argparse.Namespace, folder: Path, module: Any, name: str) -> dict[str, Any]:
    """Scenario images written, then one loop over each folder."""
    import torch
    from torch.utils.data import DataLoader

    from holdfast.scenarios import parse_conditions

    count = options.usual
    names = [str(path.relative_to(folder / "images")) for path in sorted((folder / "images").rglob("*.jpg"))[:count]]
    cores = os.cpu_count() or 1
    conditions = [condition.name for condition in parse_conditions(SCENARIOS)]
    figures: dict[str, Any] = {"pictures": count}
    with tempfile.TemporaryDirectory(dir=options.data) as made:
        start, each = time.perf_counter(), max(1, -(-count // cores))
        in_processes(
            write_scenarios, [(str(folder), made, names[at : at + each], SCENARIOS) for at in range(0, count, each)]
        )
        figures["seconds_written"] = time.perf_counter() - start
        for batch, some in ((1, conditions), (8, conditions[:3])):
            start, boxes = time.perf_counter(), 0
            for condition in some:
                loader: Any = DataLoader(
                    Folder(Path(made) / condition), batch_size=batch, num_workers=min(8, cores), collate_fn=list
                )
                with torch.inference_mode():
                    for images in loader:
                        answers = module([image.to(options.device) for image in images])
                        answers = [{key: value.cpu() for key, value in answer.items()} for answer in answers]
                        boxes += sum(len(answer["scores"]) for answer in answers)
            took = time.perf_counter() - start
            figures[f"batch_{batch}"] = count * len(some) / took
            print(
                f"usual way, batches of {batch}: {figures[f'batch_{batch}']:.1f} images/s ({boxes} boxes)", flush=True
            )
    loop = count * len(conditions) / figures["batch_1"]
    figures["images_per_second"] = count * len(conditions) / (loop + figures["seconds_written"])
    print(f"with writing ({figures['seconds_written']:.1f} s): {figures['images_per_second']:.1f} images/s", flush=True)
    return figures


def fast_run(options: argparse.Namespace, folder: Path, name: str, count: int, threads: int) -> dict[str, Any]:
    """One fast run: rate of the pass, of everything, and the GPU's utilisation meanwhile."""
    from holdfast.pipeline.evaluate import detection, detector_worker
    from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate

    detector_worker.THREADS, detection._ON_ONE_GPU = threads, options.processes
    file = annotated(folder, count)
    spec = EvaluateSpec(
        f"coco:{file}", images=str(folder / "images"), models=(name,), scenarios=SCENARIOS, device=options.device,
        fast=True, workers=options.workers, batch_size=options.batch, threshold=0.3,
    )  # fmt: skip
    times: dict[str, list[float]] = {}
    sampler = Sampler()
    marks: dict[str, int] = {}

    def watch(step: str, done: int, total: int) -> None:
        times.setdefault(step, []).append(time.perf_counter())
        marks.setdefault(step, len(sampler.values))

    if options.device.startswith("cuda"):
        sampler.start()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=options.data) as out:
        _, summary = evaluate(spec, Path(out) / "run", progress=watch)
    total = time.perf_counter() - start
    sampler.over.set()
    passing = times["eval"][-1] - times["eval"][0]
    busy = sampler.values[marks["eval"] :]
    figures = {
        "rows": summary.rows, "trouble": dict(summary.trouble), "notes": summary.notes, "seconds": total,
        "seconds_pass": passing, "images_per_second": summary.rows / passing, "gpu_utilisation": busy,
        "images_per_second_with_everything": summary.rows / total,
    }  # fmt: skip
    print(
        f"fast, {threads} thread(s): {summary.rows} rows, {figures['images_per_second']:.1f} images/s in the pass "
        f"({passing:.1f} s), {figures['images_per_second_with_everything']:.1f} with everything; GPU busy "
        f"{np.mean(busy) if busy else 0:.0f} % (nvidia-smi); {dict(summary.trouble)} {summary.notes}",
        flush=True,
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default="usual,fast,profile")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--images", type=int, default=480)
    parser.add_argument("--usual", type=int, default=96, help="images a scenario, the usual way")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", default="2", help="numbers of threads to try")
    parser.add_argument("--boxes", type=int, default=300, help="boxes of a score worth keeping, before suppression")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--processes", type=int, default=4, help="processes that share the GPU")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.images, options.usual, options.batch, options.workers = 6, 2, 8, 1
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as data:
        options.data = data
        folder = pictures(data, options.images)
        module, name = network(options, folder)
        results: dict[str, Any] = {}
        if "usual" in options.parts:
            results["usual"] = part_usual(options, folder, module, name)
        del module
        if "fast" in options.parts:
            for threads in map(int, options.threads.split(",")):
                results[f"fast_{threads}"] = fast_run(options, folder, name, options.images, threads)
        if "profile" in options.parts:
            with profiled(True):
                results["profile"] = fast_run(
                    options, folder, name, min(64, options.images), int(options.threads.split(",")[0])
                )
    if os.environ.get("OUT"):
        (Path(os.environ["OUT"]) / "gpu_detect.json").write_text(json.dumps(results, indent=2))
    rates = [figures["images_per_second"] for key, figures in results.items() if key.startswith("fast")]
    if "usual" in results and rates:
        usual = results["usual"]
        print(
            f"{max(rates):.0f} images/s; {max(rates) / usual['images_per_second']:.1f} × the usual way with writing, "
            f"{max(rates) / usual['batch_1']:.1f} × its loop, {max(rates) / usual['batch_8']:.1f} × with batches of 8"
        )


if __name__ == "__main__":
    main()
