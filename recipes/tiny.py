"""Train the embedded tiny autoencoder: drawn scenes of 64 px to an 8 × 8 grid and back, by plain convolutions.

    python recipes/tiny.py --out DIR [--cache DIR] [--minutes 4] [--quick]

Pixels and their differences are to be right. The latent has unit spread and bears a little noise, so that near it are
images near to this one: what a walk needs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import captioned_scenes
import torch
import torch.nn.functional as functional
from captioned_scenes import HELD_OUT, SIDE, TRAIN, CaptionedScenes
from cards import write_card
from command import one_model, say_epoch

from holdfast.generators.autoencoders import Tiny
from holdfast.training import TrainingOptions, fit, one_cycle

CHANNELS, NOISE = 32, 0.05
"""Of the latent: how many, and the standard deviation of the noise it learns to bear."""


def build(*, quick: bool) -> Any:
    """Return the AutoencoderTiny of diffusers, eight pixels a cell."""
    from diffusers import AutoencoderTiny

    width = 16 if quick else 48
    return AutoencoderTiny(
        encoder_block_out_channels=(width,) * 4,
        decoder_block_out_channels=(width,) * 4,
        num_encoder_blocks=(1, 1, 1, 1) if quick else (1, 1, 2, 2),
        num_decoder_blocks=(1, 1, 1, 1) if quick else (2, 2, 1, 1),
        latent_channels=CHANNELS,
    )


def losses(model: Any, images: torch.Tensor, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Pixels, differences of neighbours, and a latent of unit spread."""
    real = images[batch["rows"]].permute(0, 3, 1, 2).float() / 127.5 - 1
    real = torch.where(torch.rand(len(real), 1, 1, 1, device=real.device) < 0.5, real.flip(3), real)
    latents = model.encode(real).latents.float()
    made = model.decode(latents + NOISE * torch.randn_like(latents)).sample.float()
    pixels = 8 * functional.mse_loss(made, real) + 0.5 * functional.l1_loss(made, real)
    missed = made - real
    edges = functional.l1_loss(missed[..., 1:, :], missed[..., :-1, :]) + functional.l1_loss(
        missed[..., 1:], missed[..., :-1]
    )
    spread = (latents.square().mean((0, 2, 3)) - 1).square().mean()
    return {"loss": pixels + 0.25 * edges + 0.01 * spread, "pixels": pixels, "edges": edges, "spread": spread}


def measure(folder: Path, scenes: CaptionedScenes, device: str) -> dict[str, float]:
    """Of the saved autoencoder on scenes without camera noise: PSNR, and the spread of its latents."""
    from diffusers import AutoencoderTiny

    generator = Tiny("embedded:tiny", AutoencoderTiny.from_pretrained(folder, use_safetensors=True), device=device)
    ratios, latents = [], []
    with torch.inference_mode():
        for start in range(0, len(scenes), 128):
            part = torch.from_numpy(scenes.images[start : start + 128]).to(device).permute(0, 3, 1, 2).float() / 255
            latents.append(generator.encode(part))
            made = (generator.decode(latents[-1]) * 255).round() / 255
            ratios.append(-10 * torch.log10((made - part).square().mean((1, 2, 3))))
    return {
        "PSNR, dB": float(torch.cat(ratios).mean()),
        "PSNR, lowest tenth, dB": float(torch.cat(ratios).quantile(0.1)),
        "spread of the latents": float(torch.cat(latents).std()),
    }


def train(arguments: argparse.Namespace, scenes: CaptionedScenes, device: str) -> tuple[Any, float]:
    """Return the autoencoder and seconds."""
    torch.manual_seed(0)
    model = build(quick=arguments.quick).to(device, memory_format=torch.channels_last)
    images = torch.from_numpy(scenes.images).to(device)
    size = 32 if arguments.quick else 256
    options = TrainingOptions(
        epochs=2 if arguments.quick else 60,
        steps_per_epoch=len(scenes) // size,
        precision="float32" if device == "cpu" else "bfloat16",
        average=0.9 if arguments.quick else 0.998,
        checkpoints=arguments.out / "tiny-checkpoints",
        time_limit=60 * arguments.minutes,
        finish_in_time=True,
    )

    def batches(epoch: int) -> Iterator[dict[str, Any]]:
        order = torch.randperm(len(scenes))
        for step in range(options.steps_per_epoch):
            yield {"rows": order[step * size : (step + 1) * size]}

    fitted = fit(
        model,
        batches,
        lambda module, batch: losses(module, images, batch),
        torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=1e-4),
        options,
        schedule=lambda done: one_cycle(done, warmup=0.05),
        on_epoch=say_epoch,
    )
    return fitted.model, fitted.seconds


def main() -> None:
    """Render, train, save, measure, write the card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments = one_model(parser, minutes=4.0)
    cache, device = arguments.cache, arguments.device
    scenes = captioned_scenes.rendered(arguments.scenes, cache=cache, seed=TRAIN)
    held_out = captioned_scenes.rendered(arguments.scenes // 40, cache=cache, seed=HELD_OUT, camera_noise=False)
    model, seconds = train(arguments, scenes, device)
    folder = arguments.out / "tiny"
    parameters = sum(one.numel() for one in model.parameters())
    model.cpu().half().to(memory_format=torch.contiguous_format).save_pretrained(folder)
    metrics = measure(folder, held_out, device)
    print(json.dumps(metrics, indent=1), flush=True)
    text = f"""
# Tiny autoencoder

diffusers' AutoencoderTiny ({parameters:,} parameters) for scenes of Diorama-12 at {SIDE} px: {SIDE // 8} × {SIDE // 8}
cells of {CHANNELS} channels, no codes, no sampling.

- Data: {len(scenes):,} scenes with every factor drawn on its own.
- Recipe: `python recipes/tiny.py --out DIR`, seed 0; squared and absolute error of pixels, absolute error of the
  differences of neighbours, latents of unit spread that bear noise of {NOISE}.
- Time: {seconds / 60:.1f} minutes of training on {torch.cuda.get_device_name() if device == "cuda" else "a CPU"}.
- Measured on {len(held_out):,} other scenes without camera noise.
"""
    write_card(folder, text, {"parameters": parameters, "metrics": metrics})


if __name__ == "__main__":
    main()
