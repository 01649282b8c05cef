"""Turn the answers of black boxes into probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import UserError

OUTPUTS = ("auto", "logits", "probabilities")


def probabilities(answer: ArrayLike, *, images: int, labels: int, outputs: str, name: str) -> NDArray[np.float32]:
    """Return scores, (n, labels), as probabilities.

    Each row is judged on its own, so that the batch does not matter. ``auto`` takes a row that is non-negative and
    sums to 1 (within 1e-3) as it is and softmaxes any other. Rows with NaN stay NaN: they are that image's trouble.

    Raises:
        UserError: the shape does not fit, which no other image would change.
    """
    try:
        scores = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{name} should answer with an array of numbers, one row per image") from error
    if scores.ndim > 2 and scores.size == images * labels:
        scores = scores.reshape(images, labels)
    if scores.shape != (images, labels):
        raise UserError(f"{name} answered with shape {scores.shape} where {(images, labels)} was expected")
    # A logit of −inf rules an output out; +inf leaves nothing to compare and is reported as NaN is.
    scores = np.where((scores < np.inf).all(axis=1, keepdims=True), scores, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = scores.sum(axis=1, keepdims=True)
        exponential = np.exp(scores - scores.max(axis=1, keepdims=True))
        softmax = exponential / exponential.sum(axis=1, keepdims=True)
        positive = scores.min(axis=1, keepdims=True) >= 0
        if outputs == "probabilities":
            rows = np.where(positive, scores / total, np.nan)
        elif outputs == "logits":
            rows = softmax
        else:
            rows = np.where(positive & (np.abs(total - 1) < 1e-3), scores / total, softmax)
    return np.asarray(rows, np.float32)
