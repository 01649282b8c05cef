"""The nouns: images, masks, samples and collections of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from holdfast.core.protocols import ObjectsSource

DEFAULT_MAX_PIXELS = 100_000_000
"""Larger images are refused before they are decoded."""

RESAMPLES = 2_000
"""Resamples of every bootstrap. The end of a 95 % interval is then off by chance by 0.06 standard errors."""


Families = Literal["holdfast", "ximagenet12"]
"""Whose six families of scenarios: ours, or those of XIMAGENET-12."""

Image = NDArray[np.uint8]
"""HWC, RGB, 0..255. A scenario may return RGBA; models then see it over a matte."""

Mask = NDArray[np.bool_]
"""HW, true on the foreground."""

ORIGINAL = "original"
"""The condition of an untouched image."""

NEEDS_MASK = "needs a mask and this image has none"
"""Why a row is skipped, after the name of its scenario."""

CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
"""The conditions that mean corruption error is about: ImageNet-C's fifteen, in the published order."""

SPARE_CORRUPTIONS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""Its four further ones, meant for validation."""


class ImageSource(Protocol):
    """The source of one image: small, picklable, nothing decoded yet."""

    def fingerprint(self) -> str:
        """Return a hash of the content as stored, without decoding. Raises SampleError if it cannot be read."""

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        """Decode to HWC uint8 RGB. Raises SampleError with the reason when that is impossible."""


class MaskSource(Protocol):
    """The source of one mask."""

    def fingerprint(self) -> str:
        """Return a hash of the content as stored, without decoding."""

    def load(self, height: int, width: int) -> Mask:
        """Decode to HW bool of exactly this size. Raises SampleError for any other size or an unreadable mask."""


@dataclass(frozen=True, slots=True)
class ClassKeys:
    """What a dataset knows about a class other than its name; each field may hold several aliases."""

    wnids: tuple[str, ...] = ()
    imagenet_indices: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    required: bool = field(default=False, compare=False)  # a person wrote them: each label must be an output


_NOTHING: Mapping[str, Any] = {}  # one for all, no one writes into it: a million empty ones are 80 MB


@dataclass(frozen=True, slots=True)
class Sample:
    """One image with its label and, if it has one, its mask.

    ``sample_id`` is unique in its collection and survives moving the folder; ``source_id`` names the original
    image, so that several renderings of one image share it: the cluster of every paired statistic. ``objects`` are
    known if the dataset has boxes.
    """

    sample_id: str
    label: str
    image: ImageSource
    mask: MaskSource | None = None
    source_id: str = ""
    split: str = ""
    fold: int = -1
    kind: str = "static"
    condition: str = ORIGINAL
    licence: str = ""
    attributes: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    objects: ObjectsSource | None = None

    def __post_init__(self) -> None:
        if not self.source_id:
            object.__setattr__(self, "source_id", self.sample_id)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a reader could not use, and why."""

    sample_id: str
    message: str


@dataclass(frozen=True, slots=True)
class Collection:
    """A dataset: an ordered list of samples and the classes they can have.

    ``empty`` are images without any object: they have no label, and only detectors are asked about them.
    ``object_classes`` are the classes of all objects, if these are more than the images' labels.
    """

    name: str
    classes: tuple[str, ...]
    samples: tuple[Sample, ...]
    keys: Mapping[str, ClassKeys] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    empty: tuple[Sample, ...] = ()
    object_classes: tuple[str, ...] = ()
    separator: str = ""  # between the labels of an image, if images have several

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        return f"Collection({self.name!r}, {len(self.samples):,} samples, {len(self.classes):,} classes)"


@dataclass(frozen=True, slots=True)
class LabelSpace:
    """A model's outputs in order: names (several may be joined by ", ") and WordNet ids if they are known."""

    names: tuple[str, ...]
    wnids: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.names[:3])) + (" …" if len(self.names) > 3 else "")
        return f"LabelSpace({len(self.names):,} outputs: {shown})"


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a scenario made: the image, where the foreground now is, and facts worth recording (JSON)."""

    image: Image
    mask: Mask | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Donor:
    """Another image that lends its background."""

    sample_id: str
    label: str
    image: Image
    mask: Mask | None
