"""The renderer as an image maker: paints exactly what a prompt of the drawn world says, at any size.

Every picture shows its prompt, so that what mining accepts can be compared with the truth; ``wrong`` plants a share of
pictures that show another class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import cv2
import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint, generator
from holdfast.core.names import Name, unknown
from holdfast.core.types import Image, Mask
from holdfast.diorama.backgrounds import paint_background
from holdfast.diorama.render import MAX_SIZE, MIN_SIZE, render
from holdfast.diorama.scene import Scene, draw_scene
from holdfast.diorama.vocabulary import BACKGROUNDS, CLASSES, MATERIALS, TEXTURES, UNSEEN_BACKGROUNDS

CHANGES: dict[str, dict[str, object]] = {
    "tiny": {"scale": 0.35}, "huge": {"scale": 1.0},
    "in dim light": {"brightness": 0.5}, "in bright light": {"brightness": 1.35},
    "tilted": {"rotation": 40.0}, "partly hidden": {"occluder": "leaves", "occlusion": 0.25},
}  # fmt: skip
"""Phrases about size, light, pose and occlusion, and the factors of a scene that they set."""


class DrawnImageMaker:
    """A ``TextToImage`` and ``Inpainter`` that draws scenes; prompts use the words of the drawn world."""

    def __init__(self, name: str = "diorama:", *, size: int = 224, wrong: float = 0.0) -> None:
        if not MIN_SIZE <= size <= MAX_SIZE:
            raise UserError(f"{name}: size is {MIN_SIZE} to {MAX_SIZE} pixels, not {size}")
        if not 0 <= wrong <= 1:
            raise UserError(f"{name}: wrong is a share from 0 to 1, not {wrong}")
        self.name, self.size, self.wrong = name, size, wrong
        self.fingerprint = fingerprint({"diorama": 1, "size": size, "wrong": wrong})

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Image]:
        """Return a drawn scene per prompt, ``size`` pixels per side."""
        pairs = zip(prompts, seeds, strict=True)
        return [render(self.scene(prompt, seed), self.size).image for prompt, seed in pairs]

    def masks(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Mask]:
        """Return where the objects of ``generate`` are, exactly."""
        return [render(self.scene(prompt, seed), self.size).mask for prompt, seed in zip(prompts, seeds, strict=True)]

    def inpaint(
        self, prompts: Sequence[str], seeds: Sequence[int], images: Sequence[Image], masks: Sequence[Mask]
    ) -> list[Image]:
        """Return the images with the background that each prompt names; pixels in the mask stay."""
        results = []
        for prompt, seed, image, mask in zip(prompts, seeds, images, masks, strict=True):
            kind = named(prompt, BACKGROUNDS | UNSEEN_BACKGROUNDS) or draw_scene(seed, split="test").background
            height, width = mask.shape
            painted = cv2.resize(
                paint_background(kind, seed % 2**31, 2 * self.size), (width, height), interpolation=cv2.INTER_AREA
            )
            results.append(np.where(mask[..., None], image, painted).astype(np.uint8))
        return results

    def scene(self, prompt: str, seed: int) -> Scene:
        """Return the scene of a prompt: what the prompt names, and the rest drawn from the seed."""
        label = named(prompt, {name: name for name in CLASSES})
        if label is None:
            raise UserError(f"{self.name} draws {', '.join(CLASSES)}; the prompt {prompt!r} names none of them")
        if not self.shows_prompt(seed):
            others = [name for name in CLASSES if name != label]
            label = others[int(generator("wrong class", seed).integers(len(others)))]
        factors = {
            factor: kind
            for factor, kinds in (
                ("background", BACKGROUNDS | UNSEEN_BACKGROUNDS), ("texture", TEXTURES), ("material", MATERIALS)
            )
            if (kind := named(prompt, kinds)) is not None
        }  # fmt: skip
        changes: dict[str, object] = {}
        for phrase, values in CHANGES.items():
            changes |= values if phrase in prompt else {}
        return dataclasses.replace(draw_scene(seed, split="test", label=label), **factors, **changes)  # type: ignore[arg-type]

    def shows_prompt(self, seed: int) -> bool:
        """Return whether the picture of a seed shows the class of its prompt, or was planted as a wrong one."""
        return bool(generator("shows its prompt", seed).random() >= self.wrong)


def named(prompt: str, kinds: dict[str, str]) -> str | None:
    """Return the kind whose phrase stands in a prompt as whole words, the longest if several do; None without one."""
    text = f" {' '.join(prompt.lower().replace(',', ' ').replace('.', ' ').split())} "
    present = [name for name, phrase in kinds.items() if phrase and f" {phrase} " in text]
    return max(present, key=lambda name: len(kinds[name]), default=None)


def load(name: Name, *, device: str) -> DrawnImageMaker:
    """Load ``diorama:``. Options: ``size`` (224), ``wrong`` (share of pictures of another class, 0)."""
    for option in name.options:
        if option not in ("size", "wrong"):
            raise unknown("option of diorama:", option, ["size", "wrong", "name"])
    size, wrong = name.options.get("size", 224), name.options.get("wrong", 0.0)
    if isinstance(size, bool) or not isinstance(size, int) or isinstance(wrong, bool | str):
        raise UserError(f"diorama: size={size} and wrong={wrong} are numbers, such as size=224 and wrong=0.05")
    values = "&".join(f"{option}={value}" for option, value in sorted(name.options.items()))
    return DrawnImageMaker("diorama:" + (f"?{values}" if values else ""), size=size, wrong=float(wrong))
