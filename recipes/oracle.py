"""Train the embedded oracle: a small CLIP that reads class, background, texture and material of drawn scenes.

    python recipes/oracle.py --out DIR [--cache DIR] [--minutes 8] [--quick]

Two losses share one scale. Prompts of one factor ("an image of a fox") compete among the values of that factor: what
zero-shot reading does. Captions of several factors compete within the batch, where every caption is right for every
image that has what it says, however many those are.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import captioned_scenes
import captions
import numpy as np
import torch
import torch.nn.functional as functional
from captioned_scenes import HELD_OUT, SIDE, TRAIN, CaptionedScenes
from cards import write_card
from command import one_model, say_epoch
from numpy.typing import NDArray

from holdfast.core.fingerprint import generator
from holdfast.training import TrainingOptions, fit, one_cycle

MEAN = STD = (0.5, 0.5, 0.5)
CAPTIONS_EACH = 4
WIDTH = 128
FACTOR_WEIGHTS = {"class": 1.5, "background": 0.4, "texture": 2.0, "material": 1.5}
CLOSE_UPS = 0.4
"""Share of the training that looks at the object from nearer by: textures are learnt there first, then everywhere."""


def build(vocabulary_size: int, end: int, *, quick: bool) -> Any:
    """ConvNeXt for images (stride 2 at first: details of a pixel or two tell materials apart), two layers for words."""
    from transformers import CLIPTextConfig, ConvNextConfig, VisionTextDualEncoderConfig, VisionTextDualEncoderModel

    sizes, depths = ([16, 24, 32, 48], [1, 1, 1, 1]) if quick else ([40, 80, 136, 208], [2, 2, 5, 1])
    vision = ConvNextConfig(
        patch_size=2,
        hidden_sizes=sizes,
        depths=depths,
        image_size=SIDE,
        drop_path_rate=0.05,
        layer_scale_init_value=0.1,
    )
    vision.hidden_size = sizes[-1]  # the dual encoder asks for it by this name
    text = CLIPTextConfig(
        vocab_size=vocabulary_size,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=captions.LENGTH,
        projection_dim=WIDTH,
        hidden_act="gelu",
        bos_token_id=2,
        eos_token_id=end,
        pad_token_id=0,
    )
    config = VisionTextDualEncoderConfig.from_vision_text_configs(
        vision, text, projection_dim=WIDTH, logit_scale_init_value=float(np.log(10))
    )
    return VisionTextDualEncoderModel(config)


def image_features(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """Return unit vectors of RGB images NCHW in 0..1."""
    output = model.get_image_features(pixel_values=(at_its_size(batch) - MEAN[0]) / STD[0])
    return functional.normalize(getattr(output, "pooler_output", output).float(), dim=-1)


def at_its_size(batch: torch.Tensor) -> torch.Tensor:
    """Images NCHW shrunk to the oracle's size where they are larger."""
    if batch.shape[-1] <= SIDE:
        return batch
    return functional.interpolate(batch, (SIDE, SIDE), mode="bilinear", antialias=True)


def text_features(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return unit vectors of token ids, (n, length)."""
    output = model.get_text_features(input_ids=ids, attention_mask=(ids != 0).long())
    return functional.normalize(getattr(output, "pooler_output", output).float(), dim=-1)


def augmented(images: torch.Tensor, middles: torch.Tensor) -> torch.Tensor:
    """uint8 NHWC → float NCHW in 0..1: mirrored, shifted, lit, blurred and made noisy, each a little.

    Blur and noise because the oracle also judges images that a decoder or a paste has touched. ``middles`` are the
    objects' centres, (n, 2) as x and y in -1..1, for the close-ups.
    """
    batch = images.permute(0, 3, 1, 2).float() / 255
    count, device = len(batch), batch.device
    turn = torch.zeros(count, 2, 3, device=device)
    zoom = 1 + 0.12 * (torch.rand(count, device=device) - 0.5)
    near = torch.rand(count, device=device) < CLOSE_UPS
    zoom = torch.where(near, 0.55 + 0.35 * torch.rand(count, device=device), zoom)
    turn[:, 0, 0] = torch.where(torch.rand(count, device=device) < 0.5, -zoom, zoom)
    turn[:, 1, 1] = zoom
    room = (1 - zoom).clamp(min=0)[:, None]
    turn[:, :, 2] = torch.where(near[:, None], middles.clamp(-room, room), torch.zeros_like(middles))
    turn[:, :, 2] += 0.16 * (torch.rand(count, 2, device=device) - 0.5)
    grid = functional.affine_grid(turn, list(batch.shape), align_corners=False)
    moved = functional.grid_sample(batch, grid, padding_mode="reflection", align_corners=False)
    soft = functional.avg_pool2d(functional.pad(moved, (1, 1, 1, 1), mode="reflect"), 3, 1)
    mix = torch.rand(count, 1, 1, 1, device=device)
    moved = torch.where(mix < 0.25, moved + 4 * mix * (soft - moved), moved)
    lit = moved * (1 + 0.2 * (torch.rand(count, 1, 1, 1, device=device) - 0.5))
    noisy = lit + torch.randn_like(lit) * 0.04 * torch.rand(count, 1, 1, 1, device=device) ** 2
    return noisy.clamp(0, 1)


class Words:
    """Token ids of everything the training says, on the device."""

    def __init__(self, words: Any, scenes: CaptionedScenes, device: str) -> None:
        rng = generator("captions of the oracle", 0)
        drawn = [captions.draw_caption(rng, row) for row in np.repeat(scenes.factors, CAPTIONS_EACH, 0).tolist()]
        ids = captions.token_ids(words, [text for text, _ in drawn])
        self.captions = torch.from_numpy(ids).view(-1, CAPTIONS_EACH, captions.LENGTH).to(device)
        said = torch.tensor([said for _, said in drawn])
        self.said = said.view(-1, CAPTIONS_EACH, len(captions.FACTORS)).to(device)
        self.prompts = {
            factor: torch.stack(
                [torch.from_numpy(captions.token_ids(words, captions.prompts(factor, one))) for one in wordings]
            ).to(device)
            for factor, wordings in captions.WORDINGS.items()
        }
        self.fillers = torch.zeros(len(words), dtype=torch.bool, device=device)
        self.fillers[words.convert_tokens_to_ids(sorted(captions.filler_words()))] = True
        self.unknown = words.unk_token_id

    def with_gaps(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the ids with some filler words unknown: other people's wording must not upset the oracle."""
        hidden = (torch.rand(ids.shape, device=ids.device) < 0.1) & self.fillers[ids]
        return ids.masked_fill(hidden, self.unknown)


def middles(masks: NDArray[np.bool_]) -> torch.Tensor:
    """Centres of the objects of (n, side, side) masks: x and y, -1..1."""
    places = (np.arange(masks.shape[-1], dtype=np.float32) + 0.5) / masks.shape[-1] * 2 - 1
    area = np.maximum(masks.sum((1, 2)), 1)
    return torch.from_numpy(np.stack([masks.sum(1) @ places / area, masks.sum(2) @ places / area], 1)).float()


def losses(model: Any, batch: torch.Tensor, shown_scenes: tuple[torch.Tensor, ...], words: Words) -> dict[str, Any]:
    """Factor by factor against all values, and captions against the batch."""
    images, centres, factors = shown_scenes
    with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        seen = augmented(images[batch], centres[batch])
    truth = factors[batch]
    shown = image_features(model, seen)
    scale = model.logit_scale.exp().clamp(max=100)
    which = torch.randint(CAPTIONS_EACH, (len(batch),), device=batch.device)
    wordings = [ids[int(torch.randint(len(ids), ()))] for ids in words.prompts.values()]
    sizes = [len(batch), *(len(ids) for ids in wordings)]
    told = text_features(model, words.with_gaps(torch.cat([words.captions[batch, which], *wordings])))
    caption, *by_factor = told.split(sizes)
    parts = {}
    for at, (factor, values) in enumerate(zip(captions.FACTORS, by_factor, strict=True)):
        parts[factor] = functional.cross_entropy(scale * shown @ values.T, truth[:, at], label_smoothing=0.02)
    said = words.said[batch, which]
    fits = ((truth[:, None] == truth[None]) | ~said[None]).all(-1).float()  # image × caption
    logits = scale * shown @ caption.T
    image_side = -(fits / fits.sum(1, keepdim=True) * logits.log_softmax(1)).sum(1).mean()
    text_side = -(fits / fits.sum(0, keepdim=True) * logits.log_softmax(0)).sum(0).mean()
    total = sum(FACTOR_WEIGHTS[factor] * parts[factor] for factor in parts) + (image_side + text_side) / 2
    return {"loss": total, **parts, "captions": (image_side + text_side) / 2}


def measure(folder: Path, scenes: CaptionedScenes, device: str) -> dict[str, float]:
    """How often the saved oracle reads each factor off prompts, and how well it tells classes in the worst setting."""
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder, use_safetensors=True).float().eval().to(device)
    words = AutoTokenizer.from_pretrained(folder)
    shown = []
    with torch.inference_mode():
        for start in range(0, len(scenes), 256):
            part = torch.from_numpy(scenes.images[start : start + 256]).to(device)
            shown.append(image_features(model, part.permute(0, 3, 1, 2).float() / 255))
        features = torch.cat(shown)
        right = {}
        for at, factor in enumerate(captions.FACTORS):
            asked = captions.prompts(factor, captions.WORDINGS[factor][0])
            told = text_features(model, torch.from_numpy(captions.token_ids(words, asked)).to(device))
            right[factor] = (features @ told.T).argmax(1).cpu().numpy() == scenes.factors[:, at]
    result = {f"{factor} read from prompts": float(hits.mean()) for factor, hits in right.items()}
    for at, factor in enumerate(captions.FACTORS):
        if factor != "class":
            result[f"class, worst {factor}"] = worst(right["class"], scenes.factors[:, at])
    return {**result, "class, worst class": worst(right["class"], scenes.factors[:, 0])}


def worst(hits: NDArray[np.bool_], groups: NDArray[np.int64]) -> float:
    """Return the lowest share of hits in any group."""
    return min(float(hits[groups == group].mean()) for group in np.unique(groups))


def train(arguments: argparse.Namespace, scenes: CaptionedScenes, device: str) -> tuple[Any, Any, float]:
    """Model, tokenizer and seconds."""
    torch.manual_seed(0)
    words = captions.tokenizer()
    model = build(len(words), words.eos_token_id, quick=arguments.quick)
    if arguments.start:
        model = type(model).from_pretrained(arguments.start, use_safetensors=True).float()
    if device == "cuda":
        model.vision_model.compile()
    spoken = Words(words, scenes, device)
    shown_scenes = tuple(
        one.to(device)
        for one in (torch.from_numpy(scenes.images), middles(scenes.masks), torch.from_numpy(scenes.factors))
    )
    batch = 64 if arguments.quick else 640
    steps = len(scenes) // batch

    def batches(epoch: int) -> Iterator[torch.Tensor]:
        order = torch.randperm(len(scenes))
        return iter(order[: steps * batch].view(steps, batch))

    decayed = [one for one in model.parameters() if one.ndim > 1]
    plain = [one for one in model.parameters() if one.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
        lr=1.5e-3,
        betas=(0.9, 0.98),
    )
    options = TrainingOptions(
        epochs=2 if arguments.quick else 90,
        steps_per_epoch=steps,
        precision="float32" if device == "cpu" else "bfloat16",
        average=0.9 if arguments.quick else 0.998,
        checkpoints=arguments.out / "oracle-checkpoints",
        time_limit=60 * arguments.minutes,
        finish_in_time=True,
    )
    fitted = fit(
        model,
        batches,
        lambda module, rows: losses(module, rows, shown_scenes, spoken),
        optimiser,
        options,
        schedule=lambda done: one_cycle(done, warmup=0.1),
        on_epoch=say_epoch,
    )
    return fitted.model, words, fitted.seconds


def save(model: Any, words: Any, folder: Path) -> None:
    """In transformers' own format, weights in half precision."""
    from transformers import ViTImageProcessor

    model.cpu().half().save_pretrained(folder)
    words.save_pretrained(folder)
    ViTImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=list(MEAN), image_std=list(STD)).save_pretrained(
        folder
    )


def main() -> None:
    """Render, train, save, measure, write the card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", type=Path, help="an oracle of this recipe whose weights to continue from")
    arguments = one_model(parser, minutes=8.0)
    cache, device = arguments.cache, arguments.device
    began = time.monotonic()
    scenes = captioned_scenes.rendered(arguments.scenes, cache=cache, seed=TRAIN)
    held_out = captioned_scenes.rendered(arguments.scenes // 20, cache=cache, seed=HELD_OUT)
    print(f"{len(scenes)} scenes after {time.monotonic() - began:.0f} s", flush=True)
    model, words, seconds = train(arguments, scenes, device)
    parameters = sum(one.numel() for one in model.parameters())
    folder = arguments.out / "oracle"
    save(model, words, folder)
    metrics = measure(folder, held_out, device)
    print(json.dumps(metrics, indent=1), flush=True)
    text = f"""
# Oracle

A small CLIP (ConvNeXt and a two-layer text transformer, {parameters:,} parameters) that reads class, background,
texture and material off scenes of Diorama-12. **A stand-in for a foundation model within this drawn world.** Unlike
the classifiers it was trained on the shape templates and textures of the test split too.

- Data: {len(scenes):,} scenes with every factor drawn on its own (no context), captions in varied wordings.
- Recipe: `python recipes/oracle.py --out DIR`, seed 0; prompts against all values of their factor, captions against the
  batch with every matching caption counted as right.
- Time: {seconds / 60:.1f} minutes of training on {torch.cuda.get_device_name() if device == "cuda" else "a CPU"}.
- Measured on {len(held_out):,} other scenes, with the first wording of each factor ("an image of a fox").
"""
    write_card(folder, text, {"parameters": parameters, "metrics": metrics})


if __name__ == "__main__":
    main()
