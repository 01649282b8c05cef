"""Diorama-12: drawn scenes of twelve classes with exact masks and known factors."""

from __future__ import annotations

from holdfast.diorama.render import RENDERER_VERSION, RenderedScene, render
from holdfast.diorama.scene import Contexts, Scene, draw_scene
from holdfast.diorama.vocabulary import (
    BACKGROUNDS,
    CLASSES,
    COLOURS,
    MATERIALS,
    SPLITS,
    TEST_TEXTURES,
    TEXTURES,
    TRAIN_TEXTURES,
    UNSEEN_BACKGROUNDS,
    Split,
)

__all__ = [
    "BACKGROUNDS", "CLASSES", "COLOURS", "MATERIALS", "RENDERER_VERSION", "SPLITS", "TEST_TEXTURES", "TEXTURES",
    "TRAIN_TEXTURES", "UNSEEN_BACKGROUNDS", "Contexts", "RenderedScene", "Scene", "Split", "draw_scene", "render",
]  # fmt: skip
