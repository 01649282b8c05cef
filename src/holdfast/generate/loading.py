"""Load image makers and latent generators by name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, cast

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.names import Name, parse_name
from holdfast.core.protocols import LatentGenerator, TextToImage
from holdfast.registry import Registry, unknown

OFFLINE = (
    "the model hub cannot be reached or does not have {name!r}, and no downloaded copy is here; give a local folder "
    "or use embedded: ({reason})"
)


def load_generator(text: str, *, device: str = "auto") -> LatentGenerator:
    """Load a latent generator by a name such as ``vqgan:FOLDER`` or ``embedded:vqgan``."""
    return cast(LatentGenerator, _load(registry.generators, text, device))


def load_image_maker(text: str, *, device: str = "auto") -> TextToImage:
    """Load an image maker by a name such as ``diffusers:FOLDER?steps=30``; most are an ``Inpainter`` as well."""
    return cast(TextToImage, _load(registry.image_makers, text, device))


def _load(known: Registry[Any], text: str, device: str) -> Any:
    name = parse_name(text, tagged="+http" not in text.partition("://")[0])  # an address may hold an @
    if not name.scheme:
        schemes = ", ".join(f"{entry.name}:" for entry in known.entries())
        raise UserError(f"a {known.kind} is named scheme:name, which {text!r} is not; schemes: {schemes}")
    options = dict(name.options)
    called = str(options.pop("name", ""))
    loaded = known.get(name.scheme)(dataclasses.replace(name, options=options), device=device)
    if called:
        loaded.name = called
    return loaded


def checked(name: Name, kinds: Mapping[str, type], *, positive: Container[str] = ()) -> dict[str, Any]:
    """Return the options of a name, each of its type; raise UserError for an unknown one or a ``positive`` 0."""
    options: dict[str, Any] = {}
    for option, value in name.options.items():
        if option not in kinds:
            raise unknown(f"option of {name.scheme}:", option, [*kinds, "name"])
        kind = kinds[option]
        fits = isinstance(value, kind) or (kind is float and isinstance(value, int)) or kind is str
        if not fits or isinstance(value, bool):
            raise UserError(f"{name.scheme}: option {option}={value} is not a {kind.__name__}")
        if kind in (int, float) and not 0 <= value < math.inf:
            wrong = "be negative" if value < 0 else "be anything but a number"
            raise UserError(f"{name.scheme}: option {option}={value} should not {wrong}")
        if value == 0 and option in positive:
            raise UserError(f"{name.scheme}: option {option}={value} should be 1 or more")
        options[option] = kind(value)
    return options


def place(name: Name) -> tuple[str, str, bool]:
    """Return where a name's weights lie: path or hub name, revision, whether it is a path."""
    whole = f"{name.name}@{name.tag}" if name.tag else name.name
    if whole and Path(whole).exists():
        return whole, "main", True
    return name.name, name.tag or "main", False


def shown(name: Name) -> str:
    """Return the name that results use: with options, without folders."""
    where, revision, local = place(name)
    body = Path(where).resolve().name if local else where + (f"@{revision}" if name.tag else "")
    values = {
        option: str(value).lower() if isinstance(value, bool) else value for option, value in name.options.items()
    }
    options = "&".join(f"{option}={value}" for option, value in sorted(values.items()))
    return f"{name.scheme}:{body}" + (f"?{options}" if options else "")
