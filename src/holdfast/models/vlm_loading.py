"""From the name of a vision-language model to the model."""

from __future__ import annotations

import dataclasses
from typing import cast

from holdfast import registry
from holdfast.core.names import parse_name
from holdfast.core.protocols import VisionLanguageModel


def is_vlm(text: str) -> bool:
    """Whether a name is, or wants to be, that of a vision-language model; any other is a classifier's."""
    scheme = parse_name(text, tagged=False).scheme
    return scheme.startswith("vlm") or scheme in registry.vlms


def load_vlm(text: str, *, device: str = "auto") -> VisionLanguageModel:
    """The model of a name such as ``vlm:FOLDER`` or ``vlm+http://localhost:8000/v1#llava``.

    Every scheme knows the option ``name=``, which is what the results call the model.
    """
    # An address may hold an @, which is no tag there.
    name = parse_name(text, tagged=not parse_name(text, tagged=False).scheme.startswith("vlm+http"))
    options = dict(name.options)
    called = str(options.pop("name", ""))
    load = registry.vlms.get(name.scheme)
    model = cast(VisionLanguageModel, load(dataclasses.replace(name, options=options), device=device))
    if called:
        model.name = called
    return model
