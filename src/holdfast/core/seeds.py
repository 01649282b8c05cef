"""Randomness from keys, so that order, workers and engines cannot change a result."""

from __future__ import annotations

import hashlib

import numpy as np

from holdfast.core.fingerprint import canonical_json


def seed_from(*parts: object) -> int:
    """A 64-bit seed that depends on nothing but its parts."""
    return int.from_bytes(hashlib.sha256(canonical_json(list(parts)).encode()).digest()[:8], "big")


def generator(*parts: object) -> np.random.Generator:
    """A NumPy generator seeded from its parts."""
    return np.random.Generator(np.random.PCG64(seed_from(*parts)))
