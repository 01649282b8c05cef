"""Each object on the same many backgrounds: of other classes, and, as the control, of its own class."""

from __future__ import annotations

from typing import Any, Literal

from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask
from holdfast.scenarios.background import cover, donor_background, like
from holdfast.scenarios.base.definition import DRAW, Scenario, scenario


def _sweep(id: str, donor: Literal["other_class", "same_class"], summary: str) -> Scenario:
    @scenario(
        id=id,
        summary=summary,
        family="background",
        group="worst_background",
        changes="background",
        donor=donor,
        tool="fill",
        native="bands",
        parameters=(DRAW,),
    )
    def sweep(image: Image, mask: Mask, *, context: Context, draw: int, **_: Any) -> tuple[Image, dict[str, Any]]:
        """Put the object before a background that all objects share."""
        lent = like(image, context.donor(same_class=donor == "same_class", draw=draw))
        background, details = donor_background(lent, context.fill)
        return cover(background, *mask.shape), details

    return sweep


_sweep("background_sweep", "other_class", "backgrounds of other classes, the same for all objects")
_sweep("same_class_sweep", "same_class", "backgrounds of the object's class, the same for all objects of it")
