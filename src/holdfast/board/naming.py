"""Decide whether a stranger's name may be loaded: it must run no code but ours and read no file of this machine.

What is not known to be harmless is not followed. Libraries read one name in several ways (``hf-hub:`` and
``local-dir:`` inside ``timm:`` and ``clip:``, a folder that happens to be called so), and some of these ways run code
that lies beside the weights.
"""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.names import Name, parse_name

MODELS = ("embedded", "timm", "torchvision", "packaged", "clip", "hf")
GENERATORS = ("embedded", "pixel", "noise", "rotate", "vqgan", "kl", "tiny", "ddim")
_FROM_HUB = ("clip", "hf", "vqgan", "kl", "tiny", "ddim")
"""These look for a folder or a file of the name before they ask the hub."""

_WORDS = {"labels": ("imagenet",), "ensemble": ("openai", "simple")}
"""Options that name a file, but for these words."""

_PLAIN = re.compile(r"(?!\.)[\w.+-]+(?:/(?!\.)[\w.+-]+)?")


def harmless_model(text: str) -> bool:
    """Return whether a model's name may be loaded."""
    return _harmless(text, MODELS)


def harmless_generator(text: str) -> bool:
    """Return whether a latent generator's name may be loaded."""
    return _harmless(text, GENERATORS)


def harmless_oracle(text: str) -> bool:
    """Return whether an oracle's name may be loaded: a model's, or those of an ensemble; votes are files."""
    scheme, _, rest = text.partition(":")
    if scheme == "ensemble":
        head, _, query = rest.partition("?")
        members = re.split(r"\+(?=[A-Za-z][\w-]+:)", head)  # as the ensemble does
        return all(harmless_oracle(f"{member}?{query}" if query else member) for member in members)
    return harmless_model(rest if scheme == "classifier" else text) and scheme in ("classifier", "clip")


def _harmless(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        name = parse_name(text)
    except UserError:
        return False
    if name.scheme not in schemes:
        return False
    body = name.name.removeprefix("hf/") if name.scheme == "clip" else name.name
    if (body and not _PLAIN.fullmatch(body)) or (name.tag and not _PLAIN.fullmatch(name.tag)):
        return False
    if name.scheme in _FROM_HUB and any(_is_here(path) for path in (body, name.tag, f"{body}@{name.tag}")):
        return False
    return _harmless_options(name)


def _harmless_options(name: Name) -> bool:
    for option, value in name.options.items():
        if option in _WORDS and value not in _WORDS[option]:
            return False
        if isinstance(value, str) and _is_here(value):
            return False
    return True


def _is_here(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except OSError:  # too long to be the name of anything
        return False
