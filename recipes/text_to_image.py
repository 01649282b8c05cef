"""Train the embedded text-to-image model: a flow from noise to VQGAN latents that also paints around what stays.

    python recipes/text_to_image.py --oracle DIR/oracle --vqgan DIR/vqgan --out DIR [--minutes 7] [--quick]
    python recipes/text_to_image.py --side 128 --oracle DIR/oracle --vqgan DIR/vqgan128 --judge DIR/judge --out DIR

The UNet is told the caption word by word and as a whole by the oracle's text tower, and sees where to paint and what
stays. In a third of the training the object stays; else nothing does. One in ten combinations of class, background and
material is never shown: those are what it is measured on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import captioned_scenes
import captions
import numpy as np
import torch
import torch.nn.functional as functional
from captioned_scenes import HELD_OUT, SIDE, TRAIN, CaptionedScenes
from cards import write_card, write_packed
from command import add_side, one_model, say_epoch
from judge import frechet, load_judge
from numpy.typing import NDArray
from safetensors.torch import load_file

from holdfast.core.fingerprint import generator
from holdfast.core.networks import unpacked
from holdfast.diorama.vocabulary import caption
from holdfast.generators.embedded import (
    INT8,
    SETTINGS,
    EmbeddedImageMaker,
    EmbeddedParts,
    TextConditions,
    given_channels,
    load_parts,
    load_vqgan,
    predict,
)
from holdfast.training import TrainingOptions, fit, one_cycle
from oracle import image_features, text_features

CAPTIONS_EACH = 4
SILENT_SHARE = 0.12
STEPS = 20


@dataclass(frozen=True)
class Shape:
    """What differs with the size of the images."""

    name: str
    widths: tuple[int, int]
    looks_closely: bool  # attention at the finest resolution too
    inpaint_share: float  # of the training, in which the object stays
    batch: int
    guidances: tuple[float, ...]  # that are tried
    usual_unsaid: bool  # captions leave out usual textures and materials, and no others


SHAPES = {
    64: Shape("text_to_image", (80, 96), True, 0.35, 1024, (2.0, 3.0, 4.5), False),
    128: Shape("text_to_image128", (64, 96), False, 0.2, 512, (3.0, 4.5, 6.0, 8.0), True),
}


def build(channels: int, width: int, side: int, *, quick: bool) -> Any:
    """Return a UNet of diffusers on the VQGAN's latents; conditioned by attention and by the whole caption."""
    from diffusers import UNet2DConditionModel

    finest = "CrossAttn" if SHAPES[side].looks_closely else ""
    return UNet2DConditionModel(
        sample_size=side // 4,
        in_channels=2 * channels + 1,
        out_channels=channels,
        block_out_channels=(16, 32) if quick else SHAPES[side].widths,
        layers_per_block=1,
        down_block_types=(f"{finest}DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", f"{finest}UpBlock2D"),
        cross_attention_dim=width,
        attention_head_dim=8,
        norm_num_groups=16,
        class_embed_type="projection",
        projection_class_embeddings_input_dim=width,
    )


def held_back(factors: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the combinations of class, background and material that training never shows: one in ten."""
    held: NDArray[np.bool_] = (7 * factors[:, 0] + 3 * factors[:, 1] + factors[:, 3]) % 10 == 0
    return held


class Latents:
    """Latents of the scenes, as they are and mirrored, whole and with only the object kept, in half precision."""

    def __init__(self, parts: EmbeddedParts, scenes: CaptionedScenes, device: str) -> None:
        self.whole, self.kept = [], []
        for mirrored in (False, True):
            whole, kept = [], []
            for start in range(0, len(scenes), 512):
                batch = (
                    torch.from_numpy(scenes.images[start : start + 512]).to(device).permute(0, 3, 1, 2).float() / 255
                )
                mask = torch.from_numpy(scenes.masks[start : start + 512]).to(device)[:, None]
                if mirrored:
                    batch, mask = batch.flip(3), mask.flip(3)
                with torch.inference_mode():
                    whole.append(parts.latents(batch).half())
                    kept.append(given_channels(parts, batch, mask).half())
            self.whole.append(torch.cat(whole))
            self.kept.append(torch.cat(kept))
        self.whole, self.kept = torch.stack(self.whole), torch.stack(self.kept)
        with torch.inference_mode():
            grey = torch.zeros(1, 3, *scenes.masks.shape[1:], device=device)
            self.nothing = given_channels(parts, grey, torch.zeros_like(grey[:, :1], dtype=torch.bool))
        self.nothing = self.nothing.clone()


def spread(vqgan: Any, scenes: CaptionedScenes, device: str) -> dict[str, list[float]]:
    """Mean and standard deviation of every channel of the VQGAN's latents."""
    with torch.inference_mode():
        batch = torch.from_numpy(scenes.images[:2048]).to(device).permute(0, 3, 1, 2).float() / 255
        latents = torch.cat([vqgan.encode(part) for part in batch.split(256)])
    return {
        "latent_mean": [round(float(one), 5) for one in latents.mean((0, 2, 3))],
        "latent_spread": [round(float(one), 5) for one in latents.std((0, 2, 3))],
    }


def losses(
    unet: Any, text: TextConditions, latents: Latents, ids: torch.Tensor, rows: torch.Tensor, inpaint_share: float
) -> dict[str, Any]:
    """Squared error of the velocity at a random place between latent and noise."""
    device, count = rows.device, len(rows)
    mirrored = torch.randint(2, (count,), device=device)
    target = latents.whole[mirrored, rows].float()
    inpaint = (torch.rand(count, device=device) < inpaint_share)[:, None, None, None]
    given = torch.where(inpaint, latents.kept[mirrored, rows].float(), latents.nothing)
    spoken = ids[rows, torch.randint(CAPTIONS_EACH, (count,), device=device)]
    silent = (torch.rand(count, device=device) < SILENT_SHARE)[:, None]
    conditions = text.of_tokens(torch.where(silent, ids[-1, :1], spoken))
    sigma = torch.randn(count, device=device).sigmoid()[:, None, None, None]
    noise = torch.randn_like(target)
    mixed = (1 - sigma) * target + sigma * noise
    velocity = predict(unet, torch.cat([mixed, given], 1), 1000 * sigma.flatten(), conditions)
    return {"loss": functional.mse_loss(velocity.float(), noise - target)}


def token_table(words: Any, scenes: CaptionedScenes, device: str, *, usual_unsaid: bool) -> torch.Tensor:
    """(scenes + 1, CAPTIONS_EACH, length): captions of every scene; the last row says nothing."""
    rng = generator("captions of the text-to-image model", 0)
    rows = np.repeat(scenes.factors, CAPTIONS_EACH, 0).tolist()
    drawn = [captions.draw_caption(rng, row, usual_unsaid=usual_unsaid)[0] for row in rows]
    ids = captions.token_ids(words, drawn + [""] * CAPTIONS_EACH)
    return torch.from_numpy(ids).view(-1, CAPTIONS_EACH, captions.LENGTH).to(device)


class Judge:
    """What the oracle says of images."""

    def __init__(self, folder: Path, device: str) -> None:
        from transformers import AutoModel, AutoTokenizer

        self.device = device
        self.model = AutoModel.from_pretrained(folder, use_safetensors=True).float().eval().to(device)
        words = AutoTokenizer.from_pretrained(folder)
        with torch.inference_mode():
            self.told = {
                factor: text_features(
                    self.model,
                    torch.from_numpy(captions.token_ids(words, captions.prompts(factor, wordings[0]))).to(device),
                )
                for factor, wordings in captions.WORDINGS.items()
            }

    def seen(self, images: list[NDArray[np.uint8]]) -> torch.Tensor:
        """Return unit features."""
        with torch.inference_mode():
            batch = torch.from_numpy(np.stack(images)).to(self.device).permute(0, 3, 1, 2).float() / 255
            return torch.cat([image_features(self.model, part) for part in batch.split(256)])

    def shares(self, images: list[NDArray[np.uint8]], factors: NDArray[np.int64]) -> dict[str, float]:
        """How often each factor is read as it was asked for."""
        shown = self.seen(images)
        return {
            factor: float(((shown @ told.T).argmax(1).cpu().numpy() == factors[:, at]).mean())
            for at, (factor, told) in enumerate(self.told.items())
        }

    def distance(self, images: list[NDArray[np.uint8]], others: list[NDArray[np.uint8]]) -> float:
        """Fréchet distance of two sets in the oracle's features, whose lengths are 1."""
        return frechet(self.seen(images), self.seen(others))


def asked(factors: NDArray[np.int64]) -> list[str]:
    """Return the captions of the drawn world for rows of factors."""
    named = [
        [values[at] for values, at in zip(captions.FACTORS.values(), row, strict=True)] for row in factors.tolist()
    ]
    return [caption(label, texture, material, place) for label, place, texture, material in named]


def new_combinations(count: int, seed: int) -> NDArray[np.int64]:
    """Rows of factors, every combination of class, background and material one that training never showed."""
    rng = generator("prompts to measure", seed)
    rows = np.stack([rng.integers(len(values), size=40 * count) for values in captions.FACTORS.values()], 1)
    return rows[held_back(rows)][:count]


def drawn_alike(factors: NDArray[np.int64], side: int, seed: int) -> list[NDArray[np.uint8]]:
    """Scenes that the renderer draws for the same prompts."""
    rng = generator("drawn alike", seed)
    return [captioned_scenes.draw(rng, row, side=side, camera_noise=False).image for row in factors]


def measure(
    parts: EmbeddedParts, judges: list[Any], scenes: CaptionedScenes, count: int, guidances: tuple[float, ...]
) -> tuple[float, dict[str, Any]]:
    """Return the best guidance on some prompts, and with it the shares the judges recognise on others.

    The first judge is the oracle; a second one was trained on drawn scenes alone.
    """
    judge, *others = judges

    def painted(factors: NDArray[np.int64], guidance: float) -> list[NDArray[np.uint8]]:
        maker = EmbeddedImageMaker("measured", parts, guidance=guidance)
        return maker.generate(asked(factors), range(len(factors)))

    trial, final = new_combinations(count // 3, 0), new_combinations(count, 1)
    scores = {}
    for guidance in guidances:
        scores[guidance] = judge.shares(painted(trial, guidance), trial)
        print(f"guidance {guidance}: {json.dumps(scores[guidance])}", flush=True)
    counted = list(captions.FACTORS) if parts.settings["size"] != SIDE else ["class", "background"]
    best = max(scores, key=lambda guidance: sum(scores[guidance][factor] for factor in counted))
    images = painted(final, best)
    result = {f"prompted {factor} recognised": share for factor, share in judge.shares(images, final).items()}
    for other in others:
        size = parts.settings["size"]
        drawn, again = drawn_alike(final, size, 0), drawn_alike(final, size, 1)
        by_classifier = other.shares(images, final), other.shares(drawn, final)
        for factor, share in judge.shares(drawn, final).items():
            result[f"prompted {factor} recognised by a classifier of drawn scenes"] = by_classifier[0][factor]
            result[f"drawn {factor} recognised"] = share
            result[f"drawn {factor} recognised by a classifier of drawn scenes"] = by_classifier[1][factor]
        for who, reader in (("oracle", judge), ("classifier", other)):
            result[f"Fréchet distance to drawn scenes, features of the {who}"] = reader.distance(images, drawn)
            result[f"the same between drawn scenes, features of the {who}"] = reader.distance(again, drawn)
    kept = scenes.factors[:count].copy()
    kept[:, 1] = np.roll(kept[:, 1], 1)
    maker = EmbeddedImageMaker("measured", parts, guidance=best)
    around = maker.inpaint(asked(kept), range(len(kept)), list(scenes.images[:count]), list(scenes.masks[:count]))
    before = zip(around, scenes.images[:count], scenes.masks[:count], strict=True)
    same = [np.array_equal(new[mask], old[mask]) for new, old, mask in before]
    shares = judge.shares(around, kept)
    result |= {
        "inpainted, class recognised": shares["class"],
        "inpainted, new background recognised": shares["background"],
    }
    result["inpainted, foreground untouched"] = float(np.mean(same))
    return best, {what: round(value, 4) for what, value in result.items()}


def train(
    arguments: argparse.Namespace, parts: EmbeddedParts, scenes: CaptionedScenes, device: str
) -> tuple[Any, float]:
    """UNet and seconds."""
    began, shape = time.monotonic(), SHAPES[arguments.side]
    latents = Latents(parts, scenes, device)
    ids = token_table(parts.text.tokenizer, scenes, device, usual_unsaid=shape.usual_unsaid)
    allowed = torch.from_numpy(np.flatnonzero(~held_back(scenes.factors)))
    print(f"latents and captions after {time.monotonic() - began:.0f} s", flush=True)
    size = 64 if arguments.quick else shape.batch
    options = TrainingOptions(
        epochs=2 if arguments.quick else 40 if arguments.side == SIDE else 100,
        steps_per_epoch=8 if arguments.quick else 300,
        precision="float32" if device == "cpu" else "bfloat16",
        average=0.9 if arguments.quick else 0.999,
        checkpoints=arguments.out / f"{shape.name}-checkpoints",
        time_limit=60 * arguments.minutes,
        finish_in_time=True,
        compile=arguments.compile,
    )

    def batches(epoch: int) -> Iterator[torch.Tensor]:
        for _ in range(options.steps_per_epoch):
            yield allowed[torch.randint(len(allowed), (size,))]

    fitted = fit(
        parts.unet,
        batches,
        lambda module, rows: losses(module, parts.text, latents, ids, rows, shape.inpaint_share),
        torch.optim.AdamW(parts.unet.parameters(), lr=arguments.rate, betas=(0.9, 0.99), weight_decay=0.01),
        options,
        schedule=lambda done: one_cycle(done, warmup=0.05),
        on_epoch=say_epoch,
    )
    return fitted.model, fitted.seconds


def main() -> None:
    """Render, train, save, measure, write the card."""
    from diffusers import FlowMatchEulerDiscreteScheduler

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--vqgan", type=Path, required=True)
    parser.add_argument("--judge", type=Path, help="a classifier of recipes/judge.py that says what it sees, too")
    parser.add_argument("--compile", action="store_true", help="compile the UNet: pays after some minutes on a GPU")
    parser.add_argument("--start", type=Path, help="the folder of a UNet of 128 px whose weights to continue from")
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate (0.001)")
    add_side(parser)
    arguments = one_model(parser, minutes=7.0)
    device, side, shape = arguments.device, arguments.side, SHAPES[arguments.side]
    clean = {"cache": arguments.cache, "camera_noise": False, "side": side}
    began = time.monotonic()
    scenes = captioned_scenes.rendered(arguments.scenes, seed=TRAIN, **clean)
    held_out = captioned_scenes.rendered(arguments.scenes // 40, seed=HELD_OUT, **clean)
    print(f"{len(scenes)} scenes after {time.monotonic() - began:.0f} s", flush=True)
    torch.manual_seed(0)
    vqgan, text = load_vqgan(arguments.vqgan, device=device), TextConditions(arguments.oracle, device=device)
    settings = {"size": side, "steps": STEPS, "guidance": shape.guidances[1], **spread(vqgan, scenes, device)}
    unet = build(len(settings["latent_mean"]), text.projection.out_features, side, quick=arguments.quick)
    if arguments.start:
        unet.load_state_dict(unpacked(load_file(arguments.start / INT8)))
    unet = unet.to(device, memory_format=torch.channels_last)
    scheduler = FlowMatchEulerDiscreteScheduler()
    model, seconds = train(arguments, EmbeddedParts(unet, scheduler, text, vqgan, settings, device), scenes, device)
    folder = arguments.out / shape.name
    parameters = sum(one.numel() for one in model.parameters())
    model.cpu().half().to(memory_format=torch.contiguous_format).save_pretrained(folder / "unet")
    scheduler.save_pretrained(folder / "scheduler")
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    judges: list[Any] = [Judge(arguments.oracle, device)]
    if arguments.judge:
        judges.append(load_judge(arguments.judge, device))
    count = 12 if arguments.quick else 900

    def measured(guidances: tuple[float, ...], judges: list[Any]) -> tuple[float, dict[str, Any]]:
        parts = load_parts(folder, arguments.vqgan, arguments.oracle, device=device)
        return measure(parts, judges, held_out, count, guidances)

    best, metrics = measured(shape.guidances, judges if side == SIDE else judges[:1])
    if side != SIDE:
        print(f"in half precision: {json.dumps(metrics)}", flush=True)
        write_packed(folder / "unet", model)
        best, metrics = measured((best,), judges)
    print(json.dumps({"guidance": best, **metrics}, indent=1), flush=True)
    settings["guidance"] = best
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    more = f" --side {side} --judge DIR/judge" if side != SIDE else ""
    stored = "\n- The UNet's weights are stored as int8 with a scale per row; the figures are those of the stored ones."
    stored = stored if side != SIDE else ""
    text = f"""
# Text to image

A text-to-image and inpainting model for scenes of Diorama-12 at {side} px: diffusers' UNet2DConditionModel
({parameters:,} parameters) as a rectified flow in the latents of the embedded {arguments.vqgan.name},
told what to paint by the text tower of the embedded oracle; {STEPS} Euler steps, guidance {best}.

- Data: {len(scenes):,} scenes with every factor drawn on its own, without one in ten combinations of class, background
  and material (`held_back` in the recipe).
- Recipe, with seed 0:
  `python recipes/text_to_image.py{more} --oracle DIR/oracle --vqgan DIR/{arguments.vqgan.name} --out DIR`.
- Time: {seconds / 60:.1f} minutes of training on {torch.cuda.get_device_name() if device == "cuda" else "a CPU"}.
- Measured on prompts of the combinations that training never showed; guidance was chosen on others of them.
  Inpainting: on held-out scenes with another scene's background asked for.{stored}
"""
    write_card(folder, text, {"parameters": parameters, "metrics": metrics})


if __name__ == "__main__":
    main()
