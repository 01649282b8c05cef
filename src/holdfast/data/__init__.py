"""Read and write image collections; label spaces; splits."""

from __future__ import annotations

from holdfast.data.collection import load_collection
from holdfast.data.images import decode_image
from holdfast.data.masks import decode_mask

__all__ = ["decode_image", "decode_mask", "load_collection"]
