"""Models whose answers are exact on every machine: they look at a coarse mean colour and at nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CLASSES = (
    "airship", "anemone fish", "car wheel", "cash machine", "cello", "crayfish", "dog", "fox", "green lizard",
    "ice cream", "lizard", "whale",
)  # fmt: skip


def coarse(image: np.ndarray) -> int:
    """Return the mean colour in steps of 32, so that a pixel that is off by one hardly ever changes it."""
    red, green, blue = (image.reshape(-1, 3).mean(0) // 32).astype(int)
    return int(red * 64 + green * 8 + blue)


class Tint:
    """Answers with a class that follows from the mean colour; fails on some colours where it is told to."""

    labels = CLASSES

    def __init__(self, name: str, step: int, fails_on: int = -1) -> None:
        self.name, self.fingerprint = name, f"tint {name} {step}"
        self.step, self.fails_on = step, fails_on

    def predict(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Return 0.75 for the chosen class and the rest in equal parts."""
        scores = np.full((len(images), len(CLASSES)), 0.25 / 11, np.float32)
        for row, image in zip(scores, images, strict=True):
            if coarse(image) % 7 == self.fails_on:
                raise ValueError("this colour is too much for me")
            row[coarse(image) * self.step % len(CLASSES)] = 0.75
        return scores


steady = Tint("steady", 1)
other = Tint("other", 5)
third = Tint("third", 7)
faulty = Tint("faulty", 1, fails_on=3)


def talker(images: Sequence[np.ndarray], questions: Sequence[str]) -> list[str]:
    """Name the first option of each question."""
    return [question.split("list")[-1].partition(":")[2].split(",")[0].strip(" .") for question in questions]


class Painter:
    """Makes an image of one colour that follows from prompt and seed."""

    name = "frozen:"
    fingerprint = "frozen painter 1"

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[np.ndarray]:
        """Return an image of 8 × 12 pixels per prompt."""
        colours = [(sum(map(ord, prompt)) + seed) % 250 for prompt, seed in zip(prompts, seeds, strict=True)]
        return [np.full((8, 12, 3), (colour, 255 - colour, colour // 2), np.uint8) for colour in colours]
