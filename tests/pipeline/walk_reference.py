"""The published walk, one image at a time, gradients written out by hand, in float64: what ``walk`` is held to."""

from __future__ import annotations

from typing import Any

import numpy as np
from walk_world import PIXELS, LinearClassifier, LinearGenerator, LinearOracle

from holdfast.pipeline.walk.walk import WalkInput, WalkOptions


def softmax(values: np.ndarray) -> np.ndarray:
    raised = np.exp(values - values.max())
    return raised / raised.sum()


def as_vector(image: np.ndarray) -> np.ndarray:
    return image.transpose(2, 0, 1).reshape(-1).astype(np.float64)


def as_image(levels: np.ndarray) -> np.ndarray:
    return levels.reshape(3, 2, 2).transpose(1, 2, 0).astype(np.uint8)


class Walk:
    def __init__(
        self, generator: LinearGenerator, model: LinearClassifier, oracle: LinearOracle, options: WalkOptions
    ) -> None:
        self.mixing, self.oracle, self.options = generator.mixing.astype(np.float64), oracle, options
        self.weights = model.weights.astype(np.float64)

    def pixel_gradient(self, pixels: np.ndarray, label: int) -> np.ndarray:
        scores = self.weights @ (pixels - 0.5)
        if self.options.loss == "cross_entropy":
            return self.weights.T @ (softmax(scores) - np.eye(len(scores))[label])
        others = np.where(np.arange(len(scores)) == label, -np.inf, scores)
        return self.weights[others.argmax()] - self.weights[label]

    def decode(self, latent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels 0..1, and where the clamp lets gradients pass."""
        mixed = 0.5 + self.mixing @ (latent - 0.5)
        return np.clip(mixed, 0, 1), (mixed >= 0) & (mixed <= 1)

    def step(self, gradient: np.ndarray, memory: dict[str, Any]) -> np.ndarray:
        form = self.options.gradient
        if form == "sign":
            return np.sign(gradient)
        if form == "normalised":
            length = np.sqrt(np.mean(gradient**2))
            return gradient / length if length else gradient
        if form == "adam":
            memory["t"] = memory.get("t", 0) + 1
            memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * gradient
            memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * gradient**2
            return (memory["m"] / (1 - 0.9 ** memory["t"])) / (np.sqrt(memory["v"] / (1 - 0.999 ** memory["t"])) + 1e-8)
        return gradient

    def accepts(self, levels: np.ndarray, label: int) -> bool:
        return softmax(self.oracle.weights.astype(np.float64) @ (levels / 255 - 0.5))[label] >= self.oracle.least

    def __call__(self, walker: WalkInput) -> dict[str, Any]:
        options, label = self.options, walker.label
        budget = options.steps if walker.steps is None else walker.steps
        pixels = as_vector(walker.image) / 255
        if options.start == "fgsm":
            moved = pixels + options.fgsm_epsilon * np.sign(self.pixel_gradient(pixels, label))
            pixels = np.clip(moved, 0, 1)
        latent = np.round(pixels * 255) / 256
        start, memory = latent, {}
        kept: tuple[int, np.ndarray, np.ndarray] | None = None
        pixels, passes = self.decode(latent)
        reconstruction = np.round(pixels * 255)
        stop, step = "", 0
        while not stop:
            levels = np.round(pixels * 255)
            if step or options.first == "reconstruction":
                if not self.accepts(levels, label):
                    stop = "rejected" if kept else "first_rejected"
                    break
                kept = (step, levels, latent)
                wrong = (self.weights @ (pixels - 0.5)).argmax() != label
                if wrong and options.stop_when_fooled:
                    stop = "fooled"
                    break
            if step == budget:
                stop = "budget"
                break
            gradient = self.mixing.T @ (self.pixel_gradient(pixels, label) * passes)
            latent = latent + options.step_size * self.step(gradient, memory)
            pixels, passes = self.decode(latent)
            step += 1
        end = kept[2] if kept else start
        return {
            "validated": kept is not None,
            "steps": kept[0] if kept else 0,
            "stop": stop,
            "image": as_image(kept[1]) if kept else walker.image,
            "reconstruction": as_image(reconstruction),
            "reconstruction_accepted": self.accepts(reconstruction, label),
            "latent_distance": np.sqrt(((end - start) ** 2).sum() / PIXELS),
        }
