"""Secrets that this process was given: none of them is stored, logged or shown."""

from __future__ import annotations

import os

HIDDEN = "[key]"
VARIABLES = (
    "HOLDFAST_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
    "WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN",
)  # fmt: skip
"""Environment variables whose values are secrets."""

_SHORTEST = 8  # characters: a shorter value, such as "EMPTY", is a word rather than a secret
_kept: set[str] = set()


def keep_secret(value: str) -> None:
    """Let ``redacted`` remove this value, too."""
    _kept.add(value)


def redacted(text: str) -> str:
    """Return the text without the secrets of this process."""
    values = _kept | {os.environ.get(variable, "").strip() for variable in VARIABLES}
    for value in sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text
