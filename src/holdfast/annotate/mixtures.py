"""The colour models that OpenCV's GrabCut leaves behind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Image


def foreground_probability(
    image: Image, background: NDArray[np.float64], foreground: NDArray[np.float64]
) -> NDArray[np.float32]:
    """How much likelier each pixel's colour is under the foreground's model than under the background's, 0..1."""
    colours = image.reshape(-1, 3).astype(np.float64)
    difference = _log_likelihood(background, colours) - _log_likelihood(foreground, colours)
    probability = 1 / (1 + np.exp(np.clip(difference, -50, 50)))
    return probability.reshape(image.shape[:2]).astype(np.float32)


def _log_likelihood(model: NDArray[np.float64], colours: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of colours (n, 3) under OpenCV's Gaussian mixture: 5 weights, 5 means, 5 covariances in one row."""
    weights, means, covariances = model[0, :5], model[0, 5:20].reshape(5, 3), model[0, 20:].reshape(5, 3, 3)
    total = np.full(len(colours), -1e3)  # a floor, so that colours neither model knows count as undecided
    for weight, mean, covariance in zip(weights, means, covariances, strict=True):
        if weight <= 0:
            continue
        regular = covariance + 0.01 * np.eye(3)
        offset = colours - mean
        distance = np.einsum("ni,ij,nj->n", offset, np.linalg.inv(regular), offset, optimize=True)
        total = np.logaddexp(total, np.log(weight) - 0.5 * (distance + np.linalg.slogdet(regular)[1]))
    return total
