"""Train the embedded VQGAN: drawn scenes of 64 px to 16 × 16 codes and back, or of 128 px to 32 × 32 codes.

    python recipes/vqgan.py --oracle DIR/oracle --out DIR [--side 128 --start DIR/vqgan] [--minutes 8] [--quick]

First an autoencoder without codes; then the codebook starts from k-means of its latents and follows them as a running
mean (codes no one uses move to latents that need one); at last a small critic of patches joins, so that textures stay
crisp. What the oracle sees is kept as well as what pixels say.
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
import torch
import torch.nn.functional as functional
from captioned_scenes import HELD_OUT, SIDE, TRAIN, CaptionedScenes
from cards import write_card, write_packed
from command import add_side, one_model, say_epoch

from holdfast.generators.embedded import network
from holdfast.training import TrainingOptions, fit, one_cycle
from oracle import at_its_size, image_features, text_features

CODES, CHANNELS = 16384, 4
CODES_FROM, CRITIC_FROM, REVIVE_UNTIL = 0.12, 0.9, 0.7
"""Shares of the training at which the codebook and the critic join and the codebook stops moving codes about."""
KEEP = 0.99
"""Of the running means of codes."""
VIEWED = 64
"""Images of a batch that the oracle looks at: it costs more than the VQGAN itself."""


def build(side: int, *, quick: bool) -> Any:
    """Return the VQModel of diffusers, four pixels a code."""
    from diffusers import VQModel

    return VQModel(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(16, 16, 32) if quick else (32, 64, 96),
        layers_per_block=1,
        latent_channels=CHANNELS,
        sample_size=side,
        num_vq_embeddings=256 if quick else CODES,
        norm_num_groups=16,
        scaling_factor=1.0,
    )


def critic() -> torch.nn.Module:
    """Says of every patch of 18 pixels how real it looks."""
    layers: list[torch.nn.Module] = []
    for before, after, stride in ((3, 32, 2), (32, 64, 2), (64, 96, 1)):
        layers += [torch.nn.Conv2d(before, after, 4, stride, 1), torch.nn.GroupNorm(8, after), torch.nn.LeakyReLU(0.2)]
    return torch.nn.Sequential(*layers, torch.nn.Conv2d(96, 1, 3, 1, 1))


class Trained(torch.nn.Module):
    """Generator and critic as one module, so that one loop trains and saves both."""

    def __init__(self, vqgan: Any, *, started: bool) -> None:
        super().__init__()
        self.vqgan = vqgan
        self.critic = critic()
        self.vqgan.quantize.embedding.weight.requires_grad_(False)  # follows the latents instead
        self.started = started
        self.register_buffer("uses", torch.ones(self.vqgan.quantize.n_e))
        self.register_buffer("sums", self.vqgan.quantize.embedding.weight.detach().clone())


@torch.no_grad()
def start_codes(model: Trained, latents: torch.Tensor) -> None:
    """k-means of (n, channels) latents: a few rounds from random ones."""
    codes = model.vqgan.quantize.embedding.weight
    codes.copy_(latents[torch.randint(len(latents), (len(codes),), device=latents.device)])
    codes.add_(1e-3 * latents.std() * torch.randn_like(codes))
    for _ in range(8):
        nearest = torch.cat([torch.cdist(part, codes).argmin(1) for part in latents.split(16384)])
        uses = torch.bincount(nearest, minlength=len(codes)).float()
        sums = torch.zeros_like(codes).index_add_(0, nearest, latents)
        means = sums / uses.clamp(min=1)[:, None]
        spare = latents[torch.randint(len(latents), (len(codes),), device=latents.device)]
        codes.copy_(torch.where(uses[:, None] > 0, means, spare))
    model.uses.fill_(1)
    model.sums.copy_(codes)


@torch.no_grad()
def follow(model: Trained, latents: torch.Tensor, nearest: torch.Tensor, *, revive: bool) -> None:
    """Move every code to the running mean of its latents; one that is hardly used, to a latent of this batch."""
    codes = model.vqgan.quantize.embedding.weight
    uses = torch.bincount(nearest, minlength=len(codes)).float()
    model.uses.mul_(KEEP).add_(uses, alpha=1 - KEEP)
    model.sums.mul_(KEEP).add_(torch.zeros_like(model.sums).index_add_(0, nearest, latents), alpha=1 - KEEP)
    codes.copy_(model.sums / model.uses.clamp(min=1e-3)[:, None])
    if revive:
        idle = (model.uses < 0.05 * len(latents) / len(codes))[:, None]
        spare = latents[torch.randint(len(latents), (len(codes),), device=latents.device)]
        codes.copy_(torch.where(idle, spare, codes))
        model.sums.copy_(torch.where(idle, spare, model.sums))
        model.uses.copy_(torch.where(idle[:, 0], torch.ones_like(model.uses), model.uses))


def quantised(model: Trained, latents: torch.Tensor, done: float, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents with their codes in their place (gradients pass through) and how far the two are apart."""
    flat = latents.detach().float().permute(0, 2, 3, 1).reshape(-1, CHANNELS)
    codes = model.vqgan.quantize.embedding.weight
    if not model.started:  # a resumed training has its codes already
        if float(codes.std()) < 0.01:
            start_codes(model, flat)
        model.started = True
    with torch.no_grad():
        nearest = torch.cat([torch.cdist(part, codes).argmin(1) for part in flat.split(32768)])
        chosen = codes[nearest].view(*latents.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2)
    if model.training:
        follow(model, flat, nearest, revive=step % 50 == 0 and done < REVIVE_UNTIL)
    apart = functional.mse_loss(latents.float(), chosen)
    return latents + (chosen - latents).detach(), apart


def oracle_view(oracle: Any, batch: torch.Tensor) -> list[torch.Tensor]:
    """Feature maps of every stage, channels of unit length, and the embedding, for RGB NCHW in 0..1."""
    output = oracle.vision_model(pixel_values=at_its_size(batch) * 2 - 1, output_hidden_states=True)
    maps = [functional.normalize(one.float(), dim=1) for one in output.hidden_states[1:]]
    return [*maps, functional.normalize(oracle.visual_projection(output.pooler_output).float(), dim=-1)]


def losses(model: Trained, oracle: Any, images: torch.Tensor, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Pixels, what the oracle sees, codes and, late, the critic."""
    done = batch["done"]
    real = images[batch["rows"]].permute(0, 3, 1, 2).float() / 127.5 - 1
    real = torch.where(torch.rand(len(real), 1, 1, 1, device=real.device) < 0.5, real.flip(3), real)
    latents = model.vqgan.encode(real).latents
    apart = torch.zeros((), device=real.device)
    if model.started or done >= CODES_FROM:
        latents, apart = quantised(model, latents, done, batch["step"])
    made = model.vqgan.decode(latents, force_not_quantize=True).sample.float()
    pixels = 8 * functional.mse_loss(made, real) + 0.5 * functional.l1_loss(made, real)
    with torch.no_grad():
        wanted = oracle_view(oracle, real[:VIEWED] / 2 + 0.5)
    seen = oracle_view(oracle, made[:VIEWED].clamp(-1.1, 1.1) / 2 + 0.5)
    view = sum((one - other).square().sum(1).mean() for one, other in zip(seen, wanted, strict=True))
    parts = {"pixels": pixels, "view": view, "apart": apart}
    total = pixels + 0.06 * view + 0.25 * apart
    if done >= CRITIC_FROM:
        frozen = {name: weight.detach() for name, weight in model.critic.named_parameters()}
        fooled = -torch.func.functional_call(model.critic, frozen, (made,)).float().mean()
        told_real, told_made = model.critic(real).float(), model.critic(made.detach()).float()
        telling = functional.relu(1 - told_real).mean() + functional.relu(1 + told_made).mean()
        strength = 0.001 * min(1.0, (done - CRITIC_FROM) / 0.1)
        # The critic's own loss reaches nothing but the critic; it is small so that clipping gradients does not heed it.
        total = total + strength * fooled + 0.05 * telling
        parts |= {"telling": telling}
    return {"loss": total, **parts}


def measure(folder: Path, oracle: Any, words: Any, scenes: CaptionedScenes, device: str) -> dict[str, float]:
    """Of the saved VQGAN on scenes without camera noise: mean PSNR, the oracle's steadiness, codes in use."""
    model = network("VQModel", folder).float().eval().to(device)
    asked = captions.prompts("class", captions.WORDINGS["class"][0])
    ratios, same, codes = [], [], []
    with torch.inference_mode():
        told = text_features(oracle, torch.from_numpy(captions.token_ids(words, asked)).to(device))
        for start in range(0, len(scenes), 128):
            part = torch.from_numpy(scenes.images[start : start + 128]).to(device).permute(0, 3, 1, 2).float() / 255
            latents = model.encode(part * 2 - 1).latents
            made = (model.decode(latents).sample / 2 + 0.5).clamp(0, 1)
            made = (made * 255).round() / 255
            ratios.append(-10 * torch.log10((made - part).square().mean((1, 2, 3))))
            before, after = (image_features(oracle, one) @ told.T for one in (part, made))
            same.append(before.argmax(1) == after.argmax(1))
            codes.append(model.quantize(latents)[2][2].flatten())
    return {
        "PSNR, dB": float(torch.cat(ratios).mean()),
        "PSNR, lowest tenth, dB": float(torch.cat(ratios).quantile(0.1)),
        "oracle's class unchanged": float(torch.cat(same).float().mean()),
        "codes in use": len(torch.cat(codes).unique()),
    }


def train(arguments: argparse.Namespace, oracle: Any, scenes: CaptionedScenes, device: str) -> tuple[Any, float]:
    """Return the VQGAN and seconds."""
    torch.manual_seed(0)
    vqgan = build(arguments.side, quick=arguments.quick)
    if arguments.start:
        vqgan = type(vqgan).from_pretrained(arguments.start, use_safetensors=True).float()
    model = Trained(vqgan, started=bool(arguments.start)).to(device, memory_format=torch.channels_last)
    images = torch.from_numpy(scenes.images).to(device)
    size = 32 if arguments.quick else 256 if arguments.side == SIDE else 128
    options = TrainingOptions(
        epochs=2 if arguments.quick else 40,
        steps_per_epoch=len(scenes) // size,
        precision="float32" if device == "cpu" else "bfloat16",
        average=0.9 if arguments.quick else 0.998,
        checkpoints=arguments.out / f"{name_of(arguments.side)}-checkpoints",
        time_limit=60 * arguments.minutes,
        finish_in_time=True,
    )
    began = time.monotonic()

    def batches(epoch: int) -> Iterator[dict[str, Any]]:
        order = torch.randperm(len(scenes))
        for step in range(options.steps_per_epoch):
            by_steps = (epoch + step / options.steps_per_epoch) / options.epochs
            done = max(by_steps, (time.monotonic() - began) / (60 * arguments.minutes))
            yield {"rows": order[step * size : (step + 1) * size], "done": done, "step": step}

    learned = [one for one in model.parameters() if one.requires_grad]
    fitted = fit(
        model,
        batches,
        lambda module, batch: losses(module, oracle, images, batch),
        torch.optim.AdamW(learned, lr=8e-4 if arguments.side == SIDE else 5e-4, betas=(0.9, 0.95), weight_decay=1e-4),
        options,
        schedule=lambda done: one_cycle(done, warmup=0.05),
        on_epoch=say_epoch,
    )
    return fitted.model.vqgan, fitted.seconds


def name_of(side: int) -> str:
    """Return the folder of the VQGAN for images of this size."""
    return "vqgan" if side == SIDE else f"vqgan{side}"


def main() -> None:
    """Render, train, save, measure, write the card."""
    from transformers import AutoModel, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="a VQGAN of this recipe whose weights to continue from")
    add_side(parser)
    arguments = one_model(parser, minutes=8.0)
    device, side = arguments.device, arguments.side
    clean = {"cache": arguments.cache, "camera_noise": False, "side": side}
    scenes = captioned_scenes.rendered(arguments.scenes, seed=TRAIN, **clean)
    held_out = captioned_scenes.rendered(arguments.scenes // 40, seed=HELD_OUT, **clean)
    oracle = AutoModel.from_pretrained(arguments.oracle, use_safetensors=True)
    oracle = oracle.float().eval().requires_grad_(False).to(device)
    words = AutoTokenizer.from_pretrained(arguments.oracle)
    model, seconds = train(arguments, oracle, scenes, device)
    folder = arguments.out / name_of(side)
    parameters = sum(one.numel() for one in model.parameters())
    model.cpu().half().to(memory_format=torch.contiguous_format).save_pretrained(folder)
    metrics = measure(folder, oracle, words, held_out, device)
    if side != SIDE:
        print(f"in half precision: {json.dumps(metrics)}", flush=True)
        write_packed(folder, model)
        metrics = measure(folder, oracle, words, held_out, device)
    print(json.dumps(metrics, indent=1), flush=True)
    more = f" --side {side} --start DIR/vqgan" if arguments.start else ""
    stored = (
        ""
        if side == SIDE
        else "\n- Weights are stored as int8 with a scale per row; the figures are those of the stored ones."
    )
    text = f"""
# VQGAN

A VQGAN (diffusers' VQModel, {parameters:,} parameters) for scenes of Diorama-12 at {side} px: {side // 4} × {side // 4}
codes out of {model.quantize.n_e:,}.

- Data: {len(scenes):,} scenes with every factor drawn on its own.
- Recipe: `python recipes/vqgan.py{more} --oracle DIR/oracle --out DIR`, seed 0; squared and absolute error, the
  oracle's feature maps and embedding, a codebook of running means, a light critic of patches in the last
  {1 - CRITIC_FROM:.0%}.
- Time: {seconds / 60:.1f} minutes of training on {torch.cuda.get_device_name() if device == "cuda" else "a CPU"}.
- Measured on {len(held_out):,} other scenes without camera noise.{stored}
"""
    write_card(folder, text, {"parameters": parameters, "metrics": metrics})


if __name__ == "__main__":
    main()
