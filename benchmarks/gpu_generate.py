"""The pool's images a second on a GPU against calling the diffusers pipeline by hand in a batch loop.

    python benchmarks/gpu_generate.py                     # Stable Diffusion 2.1's size, 512 px, 20 steps, batch 16
    python benchmarks/gpu_generate.py --quick --device cpu    # a rehearsal of a minute

The pipeline is built from Stable Diffusion 2.1's configuration with random weights, which cost the same time as
trained ones; its tokenizer from a few words. Three ways, in turn, after a batch of warm-up:

- ``hand``: ``pipeline(prompts, generator=...).images`` in a loop, and nothing is kept;
- ``hand and save``: the same, each image saved as PNG, as a script does;
- ``generate``: the whole of ``holdfast generate`` less loading: prompts, images, PNG files, manifest.

Prints a JSON line a measurement and a table at the end. The goal: generate at 0.85 of ``hand`` or more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from holdfast.generators.diffusers import DiffusersImageMaker
from holdfast.pipeline.generate.generate import GenerateSpec, generate
from holdfast.pipeline.generate.plan import ImageRequest, plan_prompts

GOAL = 0.85
LENGTH = 77
FULL = {
    "unet": {
        "sample_size": 64, "block_out_channels": (320, 640, 1280, 1280), "attention_head_dim": (5, 10, 20, 20),
        "cross_attention_dim": 1024, "use_linear_projection": True,
    },
    "vae": {"block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "sample_size": 768},
    "text": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 23, "num_attention_heads": 16},
}  # fmt: skip
QUICK = {
    "unet": {
        "sample_size": 8, "block_out_channels": (32, 32, 64, 64), "attention_head_dim": (2, 2, 4, 4),
        "cross_attention_dim": 64, "use_linear_projection": True,
    },
    "vae": {"block_out_channels": (16, 16, 32, 32), "layers_per_block": 1, "sample_size": 64, "norm_num_groups": 8},
    "text": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batches", type=int, default=4, help="a measurement")
    parser.add_argument("--repeats", type=int, default=3, help="of each way; the fastest counts")
    parser.add_argument("--quick", action="store_true", help="a tiny pipeline, 64 px, 4 steps")
    asked = parser.parse_args()
    steps = 4 if asked.quick else asked.steps
    pipeline = made_pipeline(QUICK if asked.quick else FULL, asked.device)
    maker = DiffusersImageMaker("diffusers:random", pipeline, {"steps": steps})
    spec = GenerateSpec(
        "diffusers:random", "diorama", "diorama", limit=asked.batch * asked.batches, batch_size=asked.batch
    )
    requests = plan_prompts(spec).requests
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        ways: dict[str, Callable[[], object]] = {
            "hand": lambda: by_hand(pipeline, requests, asked.batch, steps, None),
            "hand and save": lambda: by_hand(pipeline, requests, asked.batch, steps, folder / "hand"),
            "generate": lambda: generate(spec, folder / "pool", maker=maker),
        }
        by_hand(pipeline, requests[: asked.batch], asked.batch, steps, None)  # warm-up
        for repeat in range(asked.repeats):
            for way, work in ways.items():
                shutil.rmtree(folder / "pool", ignore_errors=True)
                seconds = timed(work)
                rows.append({"way": way, "repeat": repeat, "seconds": seconds, "images": len(requests)})
                print(json.dumps(rows[-1] | about(asked.device)), flush=True)
        size = sum(path.stat().st_size for path in (folder / "pool").rglob("*.png")) / len(requests)
    print_table(rows, list(ways), size)


def made_pipeline(sizes: dict[str, Any], device: str) -> Any:
    """Stable Diffusion of these sizes, in the precision ``generate`` takes on this device."""
    import diffusers
    import transformers

    torch.manual_seed(0)
    tokenizer = made_tokenizer()
    down = ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",)
    up = ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3
    text = transformers.CLIPTextConfig(
        **sizes["text"], vocab_size=len(tokenizer), max_position_embeddings=LENGTH, hidden_act="gelu",
        bos_token_id=2, eos_token_id=3, pad_token_id=0,
    )  # fmt: skip
    pipeline = diffusers.StableDiffusionPipeline(
        vae=diffusers.AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, latent_channels=4,
            **sizes["vae"],
        ),
        text_encoder=transformers.CLIPTextModel(text),
        tokenizer=tokenizer,
        unet=diffusers.UNet2DConditionModel(down_block_types=down, up_block_types=up, **sizes["unet"]),
        scheduler=diffusers.DDIMScheduler(
            beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, clip_sample=False,
            prediction_type="v_prediction", set_alpha_to_one=False, steps_offset=1,
        ),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(device, torch.bfloat16 if device.startswith("cuda") else torch.float32)


def made_tokenizer() -> Any:
    """A tokenizer of the words that drawn scenes are described with, made of nothing but them."""
    import tokenizers
    import transformers
    from tokenizers import models, pre_tokenizers, processors

    prompts = [one.prompt for one in plan_prompts(GenerateSpec("embedded:")).requests]
    words = ["[pad]", "[unk]", "[begin]", "[end]", *sorted({word for prompt in prompts for word in prompt.split()})]
    inner = tokenizers.Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[unk]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="[begin] $A [end]", special_tokens=[("[begin]", 2), ("[end]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[pad]", unk_token="[unk]", bos_token="[begin]", eos_token="[end]",
        model_max_length=LENGTH,
    )  # fmt: skip


def by_hand(pipeline: Any, requests: tuple[ImageRequest, ...], batch: int, steps: int, folder: Path | None) -> None:
    """What one writes in five minutes."""
    for start in range(0, len(requests), batch):
        part = requests[start : start + batch]
        generators = [torch.Generator().manual_seed(one.seed()) for one in part]
        images = pipeline([one.prompt for one in part], generator=generators, num_inference_steps=steps).images
        if folder is not None:
            folder.mkdir(exist_ok=True)
            for request, image in zip(part, images, strict=True):
                image.save(folder / f"{request.prompt_id}.png")


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def about(device: str) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name(0) if device.startswith("cuda") else "cpu"
    return {"device": gpu, "torch": torch.__version__}


def print_table(rows: list[dict[str, Any]], ways: list[str], size: float) -> None:
    best = {way: max(row["images"] / row["seconds"] for row in rows if row["way"] == way) for way in ways}
    print(f"{'way':16} {'images/s':>10} {'of hand':>8}")
    for way, rate in best.items():
        print(f"{way:16} {rate:10.3f} {rate / best['hand']:8.3f}")
    share = best["generate"] / best["hand"]
    verdict = "ok" if share >= GOAL else "MISSED"
    print(f"generate against hand: {share:.3f} (goal >= {GOAL}) {verdict}; {size / 1000:.0f} kB a PNG")


if __name__ == "__main__":
    main()
