"""The object before a background that a generator made from a prompt."""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import RejectedError
from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask, Rendered
from holdfast.scenarios.base.compositing import composite
from holdfast.scenarios.base.definition import Parameter, scenario


@scenario(
    id="generated_background",
    summary="background painted anew by --generator, after a prompt a class",
    family="background",
    aliases=("generated", "generated_bg"),
    leaves="foreground",
    paints=True,
    parameters=(
        Parameter(
            "min_share", 0.02, "rejected where the object is a smaller share of the picture", minimum=0, maximum=1
        ),
        Parameter(
            "max_border",
            0.0,
            "rejected where the object takes up a larger share of the picture's border",
            minimum=0,
            maximum=1,
        ),
    ),
)
def generated_background(
    image: Image,
    mask: Mask,
    *,
    rng: np.random.Generator,
    context: Context,
    min_share: float,
    max_border: float,
    feather: float,
) -> Rendered:
    """Let the context's generator paint around the object, and put the object back bit for bit.

    The paper sorted out by hand what was too small or incomplete; here both are measured on the mask, before anything
    is painted. Whether an oracle still recognises the object is asked by the pipeline, which has one.
    """
    rejection = why_not(mask, min_share=min_share, max_border=max_border)
    if rejection:
        raise RejectedError(rejection)
    painted = context.paint(image, mask)
    over = composite(image, painted.image, mask, feather=feather, context=context)
    return Rendered(over, mask, painted.details)


def why_not(mask: Mask, *, min_share: float, max_border: float) -> str:
    """Return why an object cannot be painted around, or ''."""
    if mask.mean() < min_share:
        return f"too small: the object is less than {100 * min_share:g} % of the picture"
    if border_share(mask) > max_border:
        more = f" on more than {100 * max_border:g} % of its length" if max_border else ""
        return f"incomplete: the object touches the picture's border{more}"
    return ""


def border_share(mask: Mask) -> float:
    """Return the share of the outermost pixels that is foreground, 0..1."""
    inner = mask[1:-1, 1:-1]
    return float((mask.sum() - inner.sum()) / (mask.size - inner.size))
