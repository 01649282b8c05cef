"""``explain``, ``mine`` and ``ask`` on a GPU: rows a second, how busy the GPU is, and the share of the bare network.

    python benchmarks/gpu_rows.py                          # an H200: about 100 s, in one process: too few rows for more
    python benchmarks/gpu_rows.py --images 6000 --seconds 300          # several processes share the GPU
    python benchmarks/gpu_rows.py --parts mine --images 500
    python benchmarks/gpu_rows.py --quick --device cpu     # a rehearsal: all parts, tiny

- explain: ``eval`` and Grad-CAM of ResNet-50 on originals and blurred backgrounds; shuffled: Grad-CAM with shuffled
  weights, too, and integrated gradients of 125 images; bare: the same maps of images that are on the GPU already.
- mine: four networks answer for a pool and a fifth judges it.
- ask: ResNet-50 and a LLaVA of 1.3 billion parameters (CLIP ViT-L/14 at 336 pixels, a Llama of TinyLlama's size) answer
  one question an image in 8 tokens; bare: the model's own ``generate`` on inputs that are on the GPU already.

Images are JPEGs of 500 × 375 with masks, weights are random. Every part has a process of its own, so one that fails
stops no other. ``per_second`` and ``busy`` count from the first fifth of a step's rows to its last: before that,
processes start, and the first shards of all of them arrive at once. ``seconds``, ``per_second_in_all`` and
``busy_in_all`` count all but hashing. Prints a line of JSON for each step; with OUT set also ``$OUT/gpu_rows.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Sampler, in_own_process
from eval_pictures import pictures

RESNET = "torchvision:resnet50?weights=none"
POOL = (
    RESNET,
    "torchvision:resnet34?weights=none",
    "torchvision:densenet121?weights=none",
    "torchvision:regnet_y_3_2gf?weights=none",
)
JUDGE = "classifier:torchvision:vit_b_16?weights=none"
SMALL = tuple(f"timm:{name}?pretrained=false&num_classes=1000" for name in ("test_resnet", "test_vit"))
WORDS = "what is the main object in this image ? choose from following list : , . or a".split()  # noqa: SIM905


class Steps:
    """What was done of each step of a verb and when, and how busy the GPU was meanwhile."""

    def __init__(self) -> None:
        self.done: dict[str, list[tuple[float, int]]] = {}
        self.sampler = Sampler()
        self.sampler.start()

    def __call__(self, step: str, done: int, total: int) -> None:
        self.done.setdefault(step, []).append((time.perf_counter(), done))

    def row(self, what: str, step: str, **more: Any) -> dict[str, Any]:
        """Rows a second of a step after its first fifth, and the GPU's utilisation meanwhile; the same of the whole."""
        reports = self.done[step]
        start, (ended, rows) = reports[0][0], reports[-1]
        began, before = next((report for report in reports if rows <= 5 * report[1] < 5 * rows), reports[0])
        measured, seconds = rows - before, ended - start
        return {"what": what, "rows": rows, "seconds": seconds, "measured_rows": measured,
                "per_second": measured / max(ended - began, 1e-9), "busy": self.sampler.busy(began, ended),
                "per_second_in_all": rows / max(seconds, 1e-9), "busy_in_all": self.sampler.busy(start, ended),
                "peak_gib": self.sampler.peak(start, ended)} | more  # fmt: skip


def clock() -> float:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


# --- the parts ----------------------------------------------------------------------------------------------------


def part_explain(options: argparse.Namespace, show: Callable[[dict[str, Any]], None]) -> None:
    explained(options, show, [("gradcam", 0, {})])


def part_shuffled(options: argparse.Namespace, show: Callable[[dict[str, Any]], None]) -> None:
    few = min(125, max(8, options.images // 8))
    explained(options, show, [("gradcam", 0, {"randomise": True}), ("integrated_gradients", few, {})])


def explained(
    options: argparse.Namespace,
    show: Callable[[dict[str, Any]], None],
    works: list[tuple[str, int, dict[str, Any]]],  # method, images (0: all) and further options
) -> None:
    from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
    from holdfast.pipeline.explain.explain import ExplainSpec, explain

    folder, run = pictures(options.data, options.images), Path(options.data) / "explained"
    model = SMALL[0] if options.quick else RESNET
    steps = Steps()
    spec = EvaluateSpec(
        str(folder), models=(model,), scenarios="original,blur_background", device=options.device, batch_size=64
    )
    _, summary = evaluate(spec, run, progress=steps)
    if summary.rows:
        show(steps.row("eval, the standard way, two conditions", "eval"))
    for method, limit, more in works:
        steps = Steps()
        shutil.rmtree(run / "details", ignore_errors=True)
        asked = ExplainSpec(methods=method, limit=limit, device=options.device, batch_size=64, **more)
        explain(run, asked, progress=steps)
        bare = bare_maps(options, method, model, bool(more))
        row = steps.row(f"explain, {method}{', shuffled too' if more else ''}", "explain")
        show(row | {"share_of_bare": row["per_second"] / bare, "bare_per_second": bare})


def bare_maps(options: argparse.Namespace, method: str, name: str, twice: bool) -> float:
    """Maps a second of images that are on the device: one question for the target, then the map."""
    import torch

    from holdfast.attribution import of_classifier, parse_methods
    from holdfast.models import load_classifier

    classifier = load_classifier(name, device=options.device)
    network, (made,) = of_classifier(classifier), parse_methods(method)
    count = 2 if options.quick else 64
    batch = torch.rand(count, 3, *classifier.preprocessing.size, device=classifier.device)
    targets = [torch.zeros(count, dtype=torch.long, device=classifier.device)]

    def work() -> None:
        with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            classifier.logits(batch)
        with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            for _ in range(1 + twice):
                made(network, batch, targets)

    return count * rate_of(work)


def rate_of(work: Callable[[], object], seconds: float = 2.0) -> float:
    """How often work can be done in a second, after once to warm up."""
    work()
    start, times = clock(), 0
    while clock() - start < seconds:
        work()
        times += 1
    return times / (clock() - start)


def part_mine(options: argparse.Namespace, show: Callable[[dict[str, Any]], None]) -> None:
    import torch

    from holdfast.models import load_classifier
    from holdfast.models.torch_classifier import exact
    from holdfast.pipeline.hard.pool import measure
    from holdfast.pipeline.specs import MineSpec

    folder = pictures(options.data, options.images)
    models = (*SMALL, SMALL[0] + "&name=third") if options.quick else POOL
    judge = f"classifier:{SMALL[1]}&name=judge" if options.quick else JUDGE
    alone, of_judge = 0.0, 0.0
    for name in (*models, judge.partition(":")[2]):
        classifier = load_classifier(name, device=options.device)
        batch = torch.rand(32, 3, *classifier.preprocessing.size, device=classifier.device)
        with torch.inference_mode(), exact():
            of_judge = 1 / (32 * rate_of(lambda classifier=classifier, batch=batch: classifier.module(batch), 1.0))
        alone += of_judge
    alone -= of_judge
    spec = MineSpec(str(folder), surrogates=models[:-1], targets=models[-1:], oracle=judge, device=options.device)
    steps = Steps()
    measure(spec, str(folder), Path(options.data) / "mined", steps)
    row = steps.row(f"mine: {len(models)} networks", "eval")
    show(row | {"share_of_bare": row["per_second"] * alone / len(models)})
    row = steps.row("mine: judge", "judge")
    show(row | {"share_of_bare": row["per_second"] * of_judge})


def part_ask(options: argparse.Namespace, show: Callable[[dict[str, Any]], None]) -> None:
    from holdfast.pipeline.ask.ask import AskSpec, ask

    folder = pictures(options.data, options.images)
    vlm = f"vlm:{saved_llava(Path(options.data) / 'llava', quick=options.quick)}?max_new_tokens=8"
    for model, images in ((SMALL[0] if options.quick else RESNET, options.images), (vlm, options.asked)):
        steps = Steps()
        spec = AskSpec(
            str(folder), models=(model,), questions=("full_list",), limit=images, device=options.device,
            batch_size=options.batch,
        )  # fmt: skip
        ask(spec, Path(options.data) / f"asked-{model[:3]}", progress=steps)
        bare = bare_answers(model, options, folder)
        row = steps.row(f"ask, {model.partition(':')[0]}, batches of {options.batch}", "ask")
        show(row | {"share_of_bare": row["per_second"] / bare, "bare_per_second": bare})


def bare_answers(name: str, options: argparse.Namespace, folder: Path) -> float:
    """Answers a second where nothing but the model works."""
    import cv2
    import torch

    from holdfast.models import load_classifier, load_vlm
    from holdfast.models.torch_classifier import exact

    count = options.batch
    if not name.startswith("vlm:"):
        classifier: Any = load_classifier(name, device=options.device)
        batch = torch.rand(count, 3, *classifier.preprocessing.size, device=classifier.device)
        with torch.inference_mode(), exact():
            return count * rate_of(lambda: classifier.module(batch))
    model: Any = load_vlm(name, device=options.device)
    files = sorted((folder / "images").rglob("*.jpg"))[:count]
    images = [cv2.imread(str(file))[..., ::-1] for file in files]
    kept: list[Any] = []
    generate = model._model.generate

    def keeping(**inputs: Any) -> Any:
        kept.append(inputs)
        return generate(**inputs)

    model._model.generate = keeping
    model.answer(images, ["what is the main object in this image ?"] * len(images))
    with torch.inference_mode(), exact():
        return len(images) * rate_of(lambda: generate(**kept[0]), 4.0)


def saved_llava(folder: Path, *, quick: bool) -> Path:
    """A LLaVA of random weights as transformers saves it."""
    import tokenizers
    import torch
    import transformers
    from tokenizers import models, pre_tokenizers

    words = ["[pad]", "[unk]", "[begin]", "[end]", "<image>", "[answer]", *dict.fromkeys(WORDS)]
    inner = tokenizers.Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[unk]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[pad]", unk_token="[unk]", bos_token="[begin]", eos_token="[end]",
        additional_special_tokens=["<image>", "[answer]"],
    )  # fmt: skip
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    side, patch = (32, 8) if quick else (336, 14)
    tower = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
    llama = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32}
    llama |= {"num_key_value_heads": 4}
    vision = transformers.CLIPVisionConfig(
        image_size=side, patch_size=patch, projection_dim=16, **(small if quick else tower)
    )
    text = transformers.LlamaConfig(
        vocab_size=32000, max_position_embeddings=1024, bos_token_id=2, eos_token_id=31999, pad_token_id=0,
        **(small if quick else llama),
    )  # fmt: skip
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=4, image_seq_length=(side // patch) ** 2
    )
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = transformers.LlavaForConditionalGeneration(config)
    model.to(torch.bfloat16).save_pretrained(folder)
    resized = {"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}
    transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(**resized), tokenizer=tokenizer, patch_size=patch,
        vision_feature_select_strategy="default", num_additional_image_tokens=1, image_token="<image>",
        chat_template="{% for turn in messages %}{% for part in turn['content'] %}{% if part['type'] == 'image' %}"
        "<image> {% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %} [answer]",
    ).save_pretrained(folder)  # fmt: skip
    print(f"{sum(each.numel() for each in model.parameters()) / 1e9:.2f} billion parameters", flush=True)
    return folder


PARTS = {"explain": part_explain, "shuffled": part_shuffled, "mine": part_mine, "ask": part_ask}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default="mine,ask,explain,shuffled")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--asked", type=int, default=512, help="images that the vision-language model is asked about")
    parser.add_argument("--batch", type=int, default=32, help="questions at a time")
    parser.add_argument("--seconds", type=float, default=95, help="end everything after so many")
    parser.add_argument("--data", default="", help="where images go and stay; without it, they go with the run")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", default="", help="a part, in this process")
    options = parser.parse_args()
    if options.quick:
        options.images, options.asked, options.batch = 48, 8, 4
    shared = Path("/dev/shm")
    began = time.perf_counter()
    out, rows = os.environ.get("OUT"), []
    if options.one:

        def show(row: dict[str, Any]) -> None:
            rows.append({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
            if out:
                (Path(out) / "rows.json").write_text(json.dumps({"rows": rows}))

        PARTS[options.one](options, show)
        return
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as place:
        data = options.data or place
        pictures(data, options.images)
        for part in options.parts.split(","):
            left = options.seconds - (time.perf_counter() - began)
            arguments = ["gpu_rows.py", "--one", part, "--device", options.device, "--images", str(options.images)]
            arguments += ["--asked", str(options.asked), "--batch", str(options.batch), "--data", data]
            found = in_own_process([*arguments, *(["--quick"] if options.quick else [])], max(left, 1))
            ended = {"part": part, "exit": found["exit"], "process_seconds": round(found["process_seconds"], 1)}
            rows += [ended, *found.get("rows", [])]
            print("\n".join(map(json.dumps, [ended, *found.get("rows", [])])), flush=True)
            if out:
                (Path(out) / "gpu_rows.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
