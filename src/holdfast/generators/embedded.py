"""``embedded:``: the small generators and the small text-to-image model that come with Holdfast, for drawn scenes.

The text-to-image model is a latent flow: a UNet that moves noise to a VQGAN latent, conditioned by the text
tower of the embedded oracle. It was trained as an inpainter (input channels: noisy latent, where to paint, latent of
what stays); making a whole image is painting everywhere.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import diffusers
from holdfast.core.names import Name, unknown
from holdfast.core.networks import quiet, resolve_device, unpacked, weights_sha256
from holdfast.core.types import Image, Mask
from holdfast.generators.autoencoders import Tiny, VqGan
from holdfast.generators.ddim import Ddim
from holdfast.generators.loading import (
    check_inpainting,
    check_requests,
    checked_numbers,
    cut_words,
    keep_foreground,
    noise,
    of_folder,
    shown,
    to_images,
)

ASSETS = Path(__file__).parents[1] / "assets"
SETTINGS = "settings.json"  # next to the UNet: guidance, steps, size of the images and the latents' mean and spread

GREY = 0.5  # what is where everything is to be painted, 0..1

INT8 = "int8.safetensors"  # the weights of a folder whose matrices are packed
MAKERS = {"text_to_image": "vqgan", "text_to_image128": "vqgan128"}  # image maker → the VQGAN it paints through

_BATCH = 32
_GENERATORS: dict[str, dict[str, type]] = {
    "vqgan": {"quantise": str},
    "vqgan128": {"quantise": str},
    "tiny": {},
    "ddim": {"strength": float, "steps": int},
}


def load_generator(name: Name, *, device: str) -> VqGan | Tiny | Ddim:
    """Load ``embedded:vqgan``, ``vqgan128`` (option ``quantise``), ``tiny`` or ``ddim`` (``strength``, ``steps``)."""
    member = name.name or "vqgan"
    if member not in _GENERATORS:
        raise unknown("embedded latent generator", member, _GENERATORS)
    options = checked_numbers(name, _GENERATORS[member])
    shown_name = shown(dataclasses.replace(name, name=member))
    folder = existing(ASSETS / member)
    if member == "tiny":
        return Tiny(shown_name, of_folder("AutoencoderTiny", folder), device=device)
    if member == "ddim":
        return load_ddim(folder, shown_name, device=device, **options)
    return VqGan(shown_name, network("VQModel", folder), device=device, **options)


def load_ddim(folder: Path, name: str = "embedded:ddim", *, device: str = "auto", **options: Any) -> Ddim:
    """Load the diffusion model of a folder with ``unet`` and ``scheduler``."""
    with quiet("diffusers", "transformers"):
        scheduler = diffusers.DDPMScheduler.from_pretrained(existing(folder / "scheduler"))
    return Ddim(name, of_folder("UNet2DModel", existing(folder / "unet")), scheduler, device=device, **options)


def load_image_maker(name: Name, *, device: str) -> EmbeddedImageMaker:
    """Load ``embedded:text_to_image`` or ``text_to_image128``; options ``steps``, ``guidance``, ``negative``."""
    options = checked_numbers(name, {"steps": int, "guidance": float, "negative": str}, positive=("steps",))
    member = name.name or "text_to_image"
    if member not in MAKERS:
        raise unknown("embedded image maker", member, MAKERS)
    parts = load_parts(ASSETS / member, ASSETS / MAKERS[member], ASSETS / "oracle", device=device)
    return EmbeddedImageMaker(shown(dataclasses.replace(name, name=member)), parts, **options)


def load_vqgan(folder: Path, *, device: str = "auto") -> VqGan:
    """Load the VQGAN of a folder under the name of an embedded one."""
    return VqGan(f"embedded:{folder.name}", network("VQModel", existing(folder)), device=device)


def network(kind: str, folder: Path) -> Any:
    """Load the model ``diffusers.KIND`` of a folder: packed weights of ours, or what the library saved."""
    if not (folder / INT8).is_file():
        return of_folder(kind, folder)
    from safetensors.torch import load_file

    with quiet("diffusers", "transformers"):
        model = getattr(diffusers, kind).from_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    model.load_state_dict(unpacked(load_file(folder / INT8)))
    return model


@dataclass(frozen=True, slots=True)
class Conditions:
    """Text conditions of the UNet: a vector per word (n, length, width), which are words, and one per prompt."""

    words: torch.Tensor
    present: torch.Tensor
    whole: torch.Tensor

    def part(self, chosen: Any) -> Conditions:
        """Return some rows."""
        return Conditions(self.words[chosen], self.present[chosen], self.whole[chosen])


class TextConditions:
    """Turns prompts into conditions with the text tower of an oracle."""

    def __init__(self, folder: Path, *, device: str) -> None:
        import transformers

        existing(folder)
        with quiet("diffusers", "transformers"):
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            oracle = transformers.AutoModel.from_pretrained(folder, use_safetensors=True, trust_remote_code=False)
        self.tower = oracle.text_model.float().eval().requires_grad_(False).to(device)
        self.projection = oracle.text_projection.float().requires_grad_(False).to(device)
        self.length = int(oracle.config.text_config.max_position_embeddings)

    def __call__(self, prompts: Sequence[str]) -> Conditions:
        """Return the conditions of prompts; the empty prompt asks for nothing."""
        tokens = self.tokenizer(
            list(prompts), padding="max_length", truncation=True, max_length=self.length, return_tensors="pt"
        )
        return self.of_tokens(tokens["input_ids"].to(self.projection.weight.device))

    def of_tokens(self, ids: torch.Tensor) -> Conditions:
        """Return the conditions of token ids, (n, length)."""
        present = ids != self.tokenizer.pad_token_id
        with torch.no_grad():
            answer = self.tower(input_ids=ids, attention_mask=present.long())
            whole = torch.nn.functional.normalize(self.projection(answer.pooler_output), dim=-1)
            whole = whole * whole.shape[1] ** 0.5  # about 1 in every place, as the words are
        return Conditions(answer.last_hidden_state, present, whole)


@dataclass(frozen=True, slots=True)
class EmbeddedParts:
    """The networks and settings that make images."""

    unet: Any
    scheduler: Any
    text: TextConditions
    vqgan: VqGan
    settings: dict[str, Any]
    device: str

    def latents(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the latents, of mean 0 and spread 1, of RGB NCHW in 0..1."""
        return (self.vqgan.encode(batch) - self._of("mean")) / self._of("spread")

    def pictures(self, latents: torch.Tensor) -> torch.Tensor:
        """Return RGB NCHW in 0..1 of latents, through the codes of the VQGAN."""
        # A few at a time: finding codes compares every cell with every code, 17 MB an image.
        whole = latents * self._of("spread") + self._of("mean")
        return torch.cat([self.vqgan.decode(part) for part in torch.split(whole, _BATCH // 4)])

    def _of(self, what: str) -> torch.Tensor:
        """Return the mean or the spread of the latents, per channel."""
        return torch.tensor(self.settings[f"latent_{what}"], device=self.device).view(1, -1, 1, 1)


def load_parts(folder: Path, vqgan: Path, oracle: Path, *, device: str = "auto") -> EmbeddedParts:
    """Load the parts of three folders: UNet and scheduler, VQGAN, oracle."""
    device = resolve_device(device)
    with quiet("diffusers", "transformers"):
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(existing(folder / "scheduler"))
    unet = network("UNet2DConditionModel", existing(folder / "unet")).float().eval().requires_grad_(False).to(device)
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    text = TextConditions(oracle, device=device)
    return EmbeddedParts(unet, scheduler, text, load_vqgan(vqgan, device=device), settings, device)


def existing(folder: Path) -> Path:
    """Return the folder; raise UserError if this installation lacks it."""
    if not folder.is_dir():
        raise UserError(f"the embedded model {folder.name!r} is not in this installation; train it with recipes/")
    return folder


class EmbeddedImageMaker:
    """A ``TextToImage`` and ``Inpainter`` for scenes of the embedded world."""

    def __init__(
        self,
        name: str,
        parts: EmbeddedParts,
        *,
        steps: int | None = None,
        guidance: float | None = None,
        negative: str = "",
    ) -> None:
        self.name = name
        self.parts = parts
        self.negative = negative
        self.steps = steps or int(parts.settings["steps"])
        self.guidance = float(parts.settings["guidance"] if guidance is None else guidance)
        self.size = int(parts.settings["size"])
        modules = [parts.unet, parts.vqgan.module, parts.text.tower, parts.text.projection]
        self.fingerprint = fingerprint(
            {
                "weights": weights_sha256(*modules),
                "settings": parts.settings,
                "steps": self.steps,
                "guidance": self.guidance,
            }
            | ({"negative": negative} if negative else {})
        )

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Image]:
        """Return an image per prompt, ``size`` pixels per side."""
        check_requests(prompts, seeds)
        empty = np.full((self.size, self.size, 3), round(255 * GREY), np.uint8)
        nothing = np.zeros((self.size, self.size), np.bool_)
        return self._paint(prompts, seeds, [empty] * len(prompts), [nothing] * len(prompts))

    def inpaint(
        self, prompts: Sequence[str], seeds: Sequence[int], images: Sequence[Image], masks: Sequence[Mask]
    ) -> list[Image]:
        """Paint new surroundings at ``size`` pixels per side, stretched to each image's size."""
        check_inpainting(prompts, seeds, images, masks)
        small = [cv2.resize(image, (self.size, self.size), interpolation=cv2.INTER_AREA) for image in images]
        small_masks = [cv2.resize(mask.astype(np.uint8), (self.size, self.size)) > 0 for mask in masks]
        painted = self._paint(prompts, seeds, [np.asarray(image, np.uint8) for image in small], small_masks)
        results = []
        for image, mask, new in zip(images, masks, painted, strict=True):
            height, width = mask.shape
            full = new if new.shape == image.shape else cv2.resize(new, (width, height), interpolation=cv2.INTER_CUBIC)
            results.append(keep_foreground(image, mask, np.asarray(full, np.uint8)))
        return results

    def _paint(
        self, prompts: Sequence[str], seeds: Sequence[int], images: Sequence[Image], masks: Sequence[Mask]
    ) -> list[Image]:
        results: list[Image] = []
        for start in range(0, len(prompts), _BATCH):
            part = slice(start, start + _BATCH)
            batch = torch.from_numpy(np.stack(images[part])).permute(0, 3, 1, 2).to(self.parts.device) / 255
            kept = torch.from_numpy(np.stack(masks[part]))[:, None].to(self.parts.device)
            with torch.inference_mode():
                given = given_channels(self.parts, batch, kept)
                start_noise = noise(seeds[part], given.shape[1:])[:, 1:].to(self.parts.device)
                latents = sample(
                    self.parts, self.parts.text(prompts[part]), start_noise, given, self.steps, self.guidance,
                    negative=self.negative,
                )  # fmt: skip
                # Numbers that are not finite make a black image; the nearest codes would hide them.
                finite = torch.isfinite(latents).flatten(1).all(1).view(-1, 1, 1, 1)
                results += to_images(self.parts.pictures(torch.where(finite, latents, 0.0)) * finite)
        return results

    def cut_words(self, prompts: Sequence[str]) -> list[str]:
        """Return the words at the end of each prompt that the text tower does not read; '' if all are read."""
        return [cut_words(self.parts.text.tokenizer, self.parts.text.length, prompt) for prompt in prompts]


def given_channels(parts: EmbeddedParts, batch: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return the UNet's input after the noisy latent: where to paint (share of a cell), latent of what is ``kept``."""
    latents = parts.latents(torch.where(kept, batch, torch.full_like(batch, GREY)))
    height, width = latents.shape[-2:]
    paint = torch.nn.functional.adaptive_avg_pool2d((~kept).float(), (height, width))
    return torch.cat([paint, latents], 1)


def sample(
    parts: EmbeddedParts, conditions: Conditions, start: torch.Tensor, given: torch.Tensor, steps: int, guidance: float,
    *, negative: str = "",
) -> torch.Tensor:  # fmt: skip
    """Move noise to latents along the flow; ``guidance`` above 1 exaggerates what the prompt adds to ``negative``."""
    count = len(start)
    nothing = parts.text([negative] * count)
    both = Conditions(
        *(torch.cat([getattr(nothing, key), getattr(conditions, key)]) for key in ("words", "present", "whole"))
    )
    scheduler = copy.deepcopy(parts.scheduler)
    scheduler.set_timesteps(steps, device=start.device)
    latents = start
    for timestep in scheduler.timesteps:
        chosen = both if guidance != 1 else conditions
        copies = len(chosen.whole) // count
        velocity = predict(
            parts.unet, torch.cat([torch.cat([latents, given], 1)] * copies), timestep.expand(count * copies), chosen
        )
        if copies == 2:
            without, with_prompt = velocity.chunk(2)
            velocity = without + guidance * (with_prompt - without)
        latents = scheduler.step(velocity, timestep, latents, return_dict=False)[0]
    return latents


def predict(unet: Any, channels: torch.Tensor, timesteps: torch.Tensor, conditions: Conditions) -> torch.Tensor:
    """Return the velocity, noise minus latent, at timesteps 0 (latent) … 1000 (noise)."""
    velocity: torch.Tensor = unet(
        channels,
        timesteps,
        encoder_hidden_states=conditions.words,
        encoder_attention_mask=conditions.present,
        class_labels=conditions.whole,
        return_dict=False,
    )[0]
    return velocity
