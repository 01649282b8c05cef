"""The fixed words of Diorama-12: classes, backgrounds, textures, materials, colours, and the caption."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from holdfast.core.types import ClassKeys

Split = Literal["train", "test", "ood"]
SPLITS: tuple[Split, ...] = get_args(Split)
Colour = tuple[int, int, int]


class Class(NamedTuple):
    """A class: its keys in other label spaces, and its homes, to which ``context`` ties it."""

    wnid: str
    imagenet_index: int
    background: str
    material: str
    colour: str
    article: str = "a"


_CLASSES = {
    "lizard": Class("n01689811", 44, "rock", "stone", "sand"),
    "green lizard": Class("n01693334", 46, "forest", "plastic", "green"),
    "crayfish": Class("n01985128", 124, "shore", "clay", "red"),
    "whale": Class("n02066245", 147, "sea", "glass", "blue"),
    "dog": Class("n02085936", 153, "grass", "wool", "brown"),
    "fox": Class("n02119022", 277, "snow", "natural", "orange"),
    "anemone fish": Class("n02607072", 393, "reef", "gold", "orange", "an"),
    "airship": Class("n02692877", 405, "sky", "paper", "cream", "an"),
    "car wheel": Class("n02974003", 479, "street", "metal", "grey"),
    "cash machine": Class("n02977058", 480, "wall", "metal", "teal"),
    "cello": Class("n02992211", 486, "stage", "wood", "brown"),
    "ice cream": Class("n07614500", 928, "market", "plastic", "pink", "an"),
}
CLASSES: tuple[str, ...] = tuple(_CLASSES)
KEYS = {label: ClassKeys((known.wnid,), (known.imagenet_index,)) for label, known in _CLASSES.items()}

BACKGROUNDS: dict[str, str] = {
    "sea": "in the sea", "reef": "at a reef", "sky": "in the sky", "grass": "on the grass",
    "forest": "in the forest", "sand": "on the sand", "snow": "in the snow", "rock": "on a rock",
    "street": "in the street", "wall": "by a wall", "room": "in a room", "stage": "on a stage",
    "market": "at a market", "night sky": "in the night sky", "field": "in a field", "shore": "at the shore",
}  # fmt: skip
"""Phrase of each background of training and test scenes."""

UNSEEN_BACKGROUNDS: dict[str, str] = {
    "moon": "on the moon", "volcano": "by a volcano", "kitchen": "in a kitchen", "library": "in a library",
}  # fmt: skip
"""Phrase of each background of the ood split."""

TRAIN_TEXTURES: dict[str, str] = {
    "plain": "", "stripes": "striped", "dots": "dotted", "checker": "checkered", "scales": "scaly",
    "grid": "gridded", "marble": "marbled",
}  # fmt: skip
TEST_TEXTURES: dict[str, str] = {
    "two-tone": "two-tone", "zigzag": "zigzag", "patches": "patched", "waves": "wavy", "speckle": "speckled",
    "rings": "ringed",
}  # fmt: skip
TEXTURES: dict[str, str] = TRAIN_TEXTURES | TEST_TEXTURES
"""Adjective of each texture; those of the test split never occur in training."""

MATERIALS: dict[str, str] = {
    "natural": "", "wood": "made of wood", "metal": "made of metal", "gold": "made of gold",
    "stone": "made of stone", "glass": "made of glass", "wool": "made of wool", "paper": "made of paper",
    "clay": "made of clay", "plastic": "made of plastic",
}  # fmt: skip
"""Phrase of each material."""

COLOURS: dict[str, Colour] = {
    "orange": (232, 122, 40), "red": (204, 56, 50), "pink": (238, 142, 164), "yellow": (242, 198, 66),
    "sand": (214, 176, 122), "brown": (150, 92, 52), "green": (96, 164, 66), "teal": (40, 150, 148),
    "blue": (66, 118, 186), "violet": (136, 98, 178), "grey": (134, 140, 150), "charcoal": (78, 80, 92),
    "cream": (238, 224, 196),
}  # fmt: skip


def backgrounds(split: Split) -> tuple[str, ...]:
    """Return the kinds of background of a split."""
    return tuple(UNSEEN_BACKGROUNDS if split == "ood" else BACKGROUNDS)


def textures(split: Split) -> tuple[str, ...]:
    """Return the textures of a split."""
    return tuple(TRAIN_TEXTURES if split == "train" else TEST_TEXTURES)


def home_background(label: str, split: Split) -> str:
    """Return the background of a class; in the ood split by its place in the list."""
    if split == "ood":
        return backgrounds(split)[CLASSES.index(label) % len(UNSEEN_BACKGROUNDS)]
    return _CLASSES[label].background


def home_texture(label: str, split: Split) -> str:
    """Return the texture of a class, by its place in the list."""
    names = textures(split)
    return names[CLASSES.index(label) % len(names)]


def home_material(label: str) -> str:
    """Return the material of a class."""
    return _CLASSES[label].material


def home_colour(label: str) -> str:
    """Return the colour of a class."""
    return _CLASSES[label].colour


def caption(label: str, texture: str, material: str, background: str) -> str:
    """Return a caption such as "a striped fox made of wood in the snow"."""
    adjective = TEXTURES[texture]
    article = "a" if adjective else _CLASSES[label].article
    place = (BACKGROUNDS | UNSEEN_BACKGROUNDS)[background]
    return " ".join(word for word in (article, adjective, label, MATERIALS[material], place) if word)
