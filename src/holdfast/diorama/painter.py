"""The renderer as an image maker: paints exactly what a prompt of the drawn world says, at any size.

Every image shows its prompt, so that what mining accepts can be compared with the truth; ``wrong`` plants a share of
images that show another class.
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
from holdfast.diorama.vocabulary import CLASSES
from holdfast.diorama.words import CATEGORY, CHANGES, WORDS, named, unread


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
            kind = named(prompt, WORDS["background"]) or draw_scene(seed, split="test").background
            height, width = mask.shape
            painted = cv2.resize(
                paint_background(kind, seed % 2**31, 2 * self.size), (width, height), interpolation=cv2.INTER_AREA
            )
            results.append(np.where(mask[..., None], image, painted).astype(np.uint8))
        return results

    def scene(self, prompt: str, seed: int) -> Scene:
        """Return the scene of a prompt: what the prompt names, and the rest drawn from the seed."""
        label = named(prompt, WORDS[CATEGORY])
        if label is None:
            raise UserError(f"{self.name} draws {', '.join(CLASSES)}; the prompt {prompt!r} names none of them")
        if not self.shows_prompt(seed):
            others = [name for name in CLASSES if name != label]
            label = others[int(generator("wrong class", seed).integers(len(others)))]
        factors = {
            factor: kind
            for factor in ("background", "texture", "material")
            if (kind := named(prompt, WORDS[factor])) is not None
        }
        changes: dict[str, object] = {}
        for phrase, values in CHANGES.items():
            changes |= values if phrase in prompt else {}
        return dataclasses.replace(draw_scene(seed, split="test", label=label), **factors, **changes)  # type: ignore[arg-type]

    def shows(self, prompt: str, seed: int) -> dict[str, str]:
        """Return what the image of a prompt and a seed shows, by kind; a planted class is left out."""
        scene = self.scene(prompt, seed)
        painted = {"background": scene.background, "texture": scene.texture, "material": scene.material}
        return painted | ({CATEGORY: scene.label} if self.shows_prompt(seed) else {})

    def cut_words(self, prompts: Sequence[str]) -> list[str]:
        """Return the words of each prompt that change nothing in its image."""
        return [unread(prompt) for prompt in prompts]

    def shows_prompt(self, seed: int) -> bool:
        """Return whether the image of a seed shows the class of its prompt, or was planted as a wrong one."""
        return bool(generator("shows its prompt", seed).random() >= self.wrong)


def load(name: Name, *, device: str) -> DrawnImageMaker:
    """Load ``diorama:``. Options: ``size`` (224), ``wrong`` (share of images of another class, 0)."""
    for option in name.options:
        if option not in ("size", "wrong"):
            raise unknown("option of diorama:", option, ["size", "wrong", "name"])
    size, wrong = name.options.get("size", 224), name.options.get("wrong", 0.0)
    if isinstance(size, bool) or not isinstance(size, int) or isinstance(wrong, bool | str):
        raise UserError(f"diorama: size={size} and wrong={wrong} must be numbers, such as size=224 and wrong=0.05")
    values = "&".join(f"{option}={value}" for option, value in sorted(name.options.items()))
    return DrawnImageMaker("diorama:" + (f"?{values}" if values else ""), size=size, wrong=float(wrong))
