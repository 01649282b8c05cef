"""Load image makers, latent generators and their parts by name; what all of them need of torch.

Parts of diffusers are loaded complete and from safetensors; code in a repository is never run.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from holdfast import registry
from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import json_object
from holdfast.core.lazy import diffusers, torch
from holdfast.core.names import Name, checked, parse_name
from holdfast.core.networks import check_complete, hub_errors, quiet
from holdfast.core.protocols import LatentGenerator, TextToImage
from holdfast.core.types import Image, Mask
from holdfast.core.weights import read_weights
from holdfast.registry import Registry

INSTEAD = "give a local folder or use embedded:"  # if the hub cannot be reached


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
    options.pop("name", "")
    called = name.text("name")
    loaded = known.get(name.scheme)(dataclasses.replace(name, options=options), device=device)
    if called:
        loaded.name = called
    return loaded


def checked_numbers(name: Name, kinds: Mapping[str, type], *, positive: Container[str] = ()) -> dict[str, Any]:
    """Return the options of a name, each of its type; raise UserError for a negative number or a ``positive`` 0."""
    options = checked(name, kinds)
    for option, value in options.items():
        if kinds[option] in (int, float) and not 0 <= value < math.inf:
            wrong = "be negative" if value < 0 else "be anything but a number"
            raise UserError(f"{name.scheme}: option {option}={value} should not {wrong}")
        if value == 0 and option in positive:
            raise UserError(f"{name.scheme}: option {option}={value} should be 1 or more")
    return options


def place(name: Name) -> tuple[str, str, bool]:
    """Return where a name's weights are: path or hub name, revision, whether it is a path."""
    whole = name.whole
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


def fetch(kind: str, name: Name, *, subfolder: str = "") -> Any:
    """Load the model ``diffusers.KIND`` of a name; every weight must exist, code in the repository is never run."""
    where, revision, local = place(name)
    return _load_part(kind, where, f"{name.scheme}:", revision=revision, local=local, subfolder=subfolder)


def of_folder(kind: str, folder: Path) -> Any:
    """Load the model ``diffusers.KIND`` of a folder that exists."""
    return _load_part(kind, str(folder), "", revision="main", local=True, subfolder="")


def has(kind: str, name: Name, subfolder: str) -> bool:
    """Return whether a name's folder has this part, or a hub's repository its configuration."""
    where, revision, local = place(name)
    if local:
        return (Path(where) / subfolder / "config.json").is_file()
    try:
        with quiet("diffusers", "transformers"):
            getattr(diffusers, kind).load_config(where, revision=revision, subfolder=subfolder)
    except OSError:
        return False
    return True


def _load_part(kind: str, where: str, scheme: str, *, revision: str, local: bool, subfolder: str) -> Any:
    shown = f"{scheme}{Path(where).name if local else where}"
    _check_kind(kind, Path(where) / subfolder, shown)
    inside = {"subfolder": subfolder} if subfolder else {}
    wrong = f"is no {kind} that can be loaded"
    with hub_errors(shown, local=local, instead=INSTEAD, wrong=wrong, libraries=("diffusers", "transformers")):
        model, report = getattr(diffusers, kind).from_pretrained(
            where, revision=revision, use_safetensors=True, output_loading_info=True, **inside
        )
    check_complete(report, shown)
    return model


def _check_kind(kind: str, folder: Path, shown: str) -> None:
    """Raise UserError for a folder of another kind, from which the library would build a mostly random model."""
    held = json_object(folder / "config.json").get("_class_name", kind)  # of no file, the library says it better
    if held != kind:
        raise UserError(f"{shown} holds a model of class {held}, not {kind}; choose the scheme of its class")


def read_tensors(file: Path) -> dict[str, torch.Tensor]:
    """Return a network's tensors (averaged ones if there) by name, in single precision; nothing else is unpickled."""
    state, _ = read_weights(file, averaged=True)
    return {
        name.removeprefix("module."): tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in state.items()
    }


def check_batch(batch: torch.Tensor, name: str, *, factor: int = 1, size: int | None = None) -> None:
    """Raise UserError unless this is an RGB batch NCHW whose sides the generator of this name can work on."""
    right = batch.ndim == 4 and batch.shape[1] == 3 and not any(side % factor for side in batch.shape[-2:])
    if size is not None:
        right = right and tuple(batch.shape[-2:]) == (size, size)
    if not right or 0 in batch.shape[-2:]:
        sides = f"of {size} × {size} pixels" if size is not None else f"with sides divisible by {factor}"
        raise UserError(f"{name} takes RGB batches (n, 3, height, width) {sides}, not {tuple(batch.shape)}")


def to_unit(image: torch.Tensor) -> torch.Tensor:
    """Map -1..1, the range of most decoders, to 0..1."""
    return (image / 2 + 0.5).clamp(0, 1)


def noise(seeds: Sequence[int], shape: Sequence[int]) -> torch.Tensor:
    """Draw standard normal noise, (seeds, *shape), on the CPU: each row follows from its own seed on every machine."""
    rows = [torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack(rows) if rows else torch.empty((0, *shape))


def to_images(batch: torch.Tensor) -> list[Image]:
    """Return the images of an RGB batch NCHW in 0..1."""
    rounded = (batch.detach().float().clamp(0, 1) * 255).round().to("cpu").numpy().astype(np.uint8)
    return [np.ascontiguousarray(image) for image in rounded.transpose(0, 2, 3, 1)]


def keep_foreground(image: Image, mask: Mask, painted: Image) -> Image:
    """Return ``painted`` with the exact foreground of ``image`` put back."""
    return np.where(mask[..., None], image, painted)


def check_requests(prompts: Sequence[str], seeds: Sequence[int]) -> None:
    """Raise UserError if prompts and seeds do not pair up."""
    if len(prompts) != len(seeds):
        raise UserError(f"every prompt has its seed: {len(prompts)} prompts and {len(seeds)} seeds do not pair up")


def check_inpainting(
    prompts: Sequence[str], seeds: Sequence[int], images: Sequence[Image], masks: Sequence[Mask]
) -> None:
    """Raise UserError if the lists do not pair up, SampleError if an image and its mask do not."""
    check_requests(prompts, seeds)
    if not len(images) == len(masks) == len(prompts):
        raise UserError(
            f"expected equally many prompts, images, masks, not {len(prompts)}, {len(images)} and {len(masks)}"
        )
    for image, mask in zip(images, masks, strict=True):
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise SampleError(f"inpainting takes RGB images of uint8, not {image.shape} of {image.dtype}")
        if mask.shape != image.shape[:2] or mask.dtype != np.bool_:
            raise SampleError(f"the mask is {mask.shape} of {mask.dtype}, the image {image.shape[:2]}; give bool")


def cut_words(tokenizer: Any, limit: int, prompt: str) -> str:
    """Return the words of a prompt that are beyond the limit in tokens or unknown to it; '' without any."""

    def tokens(words: Sequence[str]) -> int:
        return len(tokenizer(" ".join(words), truncation=False, verbose=False)["input_ids"])

    words = prompt.split()
    strange = [word for word in words if _is_unknown(tokenizer, word)]
    if tokens(words) <= limit:
        return " ".join(strange)
    read = bisect.bisect_right(range(len(words) + 1), limit, key=lambda count: tokens(words[:count])) - 1
    first = max(read, 0)
    return " ".join([word for word in words[:first] if word in strange] + words[first:])


def _is_unknown(tokenizer: Any, word: str) -> bool:
    """Return whether a tokenizer with a closed vocabulary has no token for a word."""
    token = getattr(tokenizer, "unk_token", None)
    return token is not None and token != tokenizer.eos_token and token in tokenizer.tokenize(word)
