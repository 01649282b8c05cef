"""Adapters: one file a family of models."""

from holdfast.models.loading import available, load_classifier, load_segmenter

__all__ = ["available", "load_classifier", "load_segmenter"]
