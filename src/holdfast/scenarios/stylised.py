"""The texture of another image on the object, on its background or on all: shape against texture.

As Stylized-ImageNet asked it (Geirhos et al. 2019). Without ``--styles``, the texture is that of an object of another
class, so that shape and texture name two classes: a cue conflict.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.protocols import Context
from holdfast.core.types import Donor, Image, Mask, Rendered
from holdfast.scenarios.background import cover
from holdfast.scenarios.base.compositing import bounding_box, largest_free_rectangle
from holdfast.scenarios.base.definition import Parameter, scenario, severities

SIDE = 256  # pixels of the image that a style is read from
_SMALL = 16  # pixels: a rectangle inside an object with a shorter side shows too little of its texture
_DECLARED: dict[str, Any] = {
    "family": "style",
    "donor": "other_class",
    "tool": "style",
    "parameters": (
        Parameter("strength", 1.0, "0 is the network's own copy of the image, 1 the whole style", minimum=0, maximum=1),
    ),
    "variants": {"copy": {"strength": 0.0}},
    "severities": severities("strength", [step / 5 for step in range(1, 6)]),
}


@scenario(id="stylised", summary="the whole image in another's texture", needs_mask=False, composites=False,
          **_DECLARED)  # fmt: skip
def stylised(image: Image, mask: Mask, *, context: Context, strength: float, **_: Any) -> Rendered:
    """Give the whole image the texture of a style."""
    restyled, details = _restyled(image, mask, context=context, strength=strength)
    return Rendered(restyled.copy(), mask, details)


def _restyled(image: Image, mask: Mask, *, context: Context, strength: float, **_: Any) -> tuple[Image, dict[str, Any]]:
    """Return the whole image in the style, which the three conditions share, and whose texture it is."""

    def make() -> tuple[Image, dict[str, Any]]:
        donor = context.style()
        texture, whole = texture_of(donor)
        details = {"donor_id": donor.sample_id, "donor_label": donor.label, "donor_unmasked": whole}
        return context.stylise(image, cover(texture, SIDE, SIDE), strength), details

    restyled: tuple[Image, dict[str, Any]] = context.memo(("stylised", strength), make)
    return restyled[0], dict(restyled[1])


for _part in ("object", "background"):
    scenario(
        id=f"stylised_{_part}", summary=f"the {_part} in another's texture", changes=_part, shared=True, **_DECLARED
    )(_restyled)


def texture_of(donor: Donor) -> tuple[Image, bool]:
    """Return the largest rectangle inside the donor's object, or its box if that is small; and whether neither.

    A donor without a mask is taken whole.
    """
    if donor.mask is None or not donor.mask.any():
        return donor.image, True
    inside = largest_free_rectangle(~donor.mask)
    if inside is None or min(inside[2] - inside[0], inside[3] - inside[1]) < _SMALL:
        inside = bounding_box(donor.mask)
    left, top, right, bottom = inside
    return donor.image[top:bottom, left:right], False
