"""``images+http://HOST:PORT[/v1]#MODEL``: a server that makes images in the dialect of OpenAI's images API.

Hosted services and local servers speak it. Images cost money and cannot be repeated, so every one is kept in a folder
with its request and answer, is asked for once, and counts against a budget.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from holdfast.core.errors import SampleError, UserError, raise_machine_trouble
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import canonical_json, fingerprint
from holdfast.core.names import Name
from holdfast.core.remote import SERVER_OPTIONS, PaidCalls, RemoteServer, TryAgainError, open_server, place_of
from holdfast.core.types import Image, Mask
from holdfast.generators.loading import check_inpainting, check_requests, checked_numbers, keep_foreground

CACHE = Path("hosted-images")
BUDGET = 100
LARGEST = 64 << 20  # bytes of a response: an image of 2,048 pixels in base64 is some 16 MB

_OPTIONS = {
    "size": int, "quality": str, "style": str, "send_seed": int, "budget": int, "cache": str, **SERVER_OPTIONS,
}  # fmt: skip


def load(name: Name, *, device: str) -> HostedImageMaker:
    """Load a model of a server.

    Options: ``size=1024`` (pixels), ``quality``, ``style`` (sent as they are, if given), ``send_seed=1`` (send the
    seed, for servers that take one), ``budget=100`` (images in all, over every run that shares the cache),
    ``cache=hosted-images`` (the folder), ``timeout=120``, ``retries=4``, ``backoff=1``, ``per_minute=0`` (no limit),
    ``key_env=HOLDFAST_API_KEY`` (the environment variable that holds the key; the key is never written anywhere).
    """
    del device  # the server's own business
    options = checked_numbers(name, _OPTIONS, positive=("size",))
    server, model = open_server(name, options, kind="images", timeout=120.0, largest=LARGEST)
    ledger = PictureLedger(Path(options.pop("cache", str(CACHE))), options.pop("budget", BUDGET))
    return HostedImageMaker(model, options, server, ledger)


class PictureLedger(PaidCalls):
    """The images that were paid for: files in a folder, a line each in ``ledger.jsonl``, and the budget over them."""

    file, unit, kept = "ledger.jsonl", "images", "made"

    def find(self, request: str) -> Image | None:
        """Return the image of a request, None if it was never made."""
        file = self.folder / f"{request}.png"
        if not file.is_file():
            return None
        picture = cv2.imread(str(file), cv2.IMREAD_COLOR)
        if picture is None:
            raise UserError(f"{file} is not an image any more; remove it, and it is ordered again")
        return np.ascontiguousarray(picture[..., ::-1])

    def keep(self, request: str, picture: Image, record: dict[str, Any]) -> None:
        """Write the image, and what was asked and answered next to it."""
        fine, data = cv2.imencode(".png", picture[..., ::-1])
        assert fine
        write_atomic(self.folder / f"{request}.json", json.dumps(record, indent=1, ensure_ascii=False).encode())
        write_atomic(self.folder / f"{request}.png", data.tobytes())


class HostedImageMaker:
    """A ``TextToImage`` and ``Inpainter`` behind an address; images are kept, since none can be made again."""

    def __init__(self, model: str, options: dict[str, Any], server: RemoteServer, ledger: PictureLedger) -> None:
        shown = "&".join(f"{option}={value}" for option, value in sorted(options.items()))
        self.name = f"images+http:{model}" + (f"?{shown}" if shown else "")
        self.fingerprint = fingerprint({"dialect": "images", "model": model, "options": options})
        self._model, self._options, self._server, self._ledger = model, options, server, ledger

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Image]:
        """Return an RGB image per prompt."""
        check_requests(prompts, seeds)
        return [self._picture(self._asked(prompt), seed) for prompt, seed in zip(prompts, seeds, strict=True)]

    def inpaint(
        self, prompts: Sequence[str], seeds: Sequence[int], images: Sequence[Image], masks: Sequence[Mask]
    ) -> list[Image]:
        """Paint everything outside the masks again: pixels in the mask are the input's, bit for bit."""
        check_inpainting(prompts, seeds, images, masks)
        pictures = []
        for prompt, seed, image, mask in zip(prompts, seeds, images, masks, strict=True):
            side = int(self._options.get("size", 1024))
            files = {"image": _png(_square(image, side)), "mask": _png(_see_through(image, mask, side))}
            painted = self._picture(self._asked(prompt), seed, files)
            height, width = image.shape[:2]
            top, _, left, _ = _margins(height, width)
            square = cv2.resize(painted, (max(height, width),) * 2, interpolation=cv2.INTER_AREA)
            inner = np.asarray(square[top : top + height, left : left + width], np.uint8)
            pictures.append(keep_foreground(image, mask, inner))
        return pictures

    def _asked(self, prompt: str) -> dict[str, Any]:
        side = self._options.get("size", 1024)
        extras = {option: value for option, value in self._options.items() if option in ("quality", "style")}
        return {"model": self._model, "prompt": prompt, "n": 1, "size": f"{side}x{side}", **extras}

    def _picture(self, asked: dict[str, Any], seed: int, files: dict[str, bytes] | None = None) -> Image:
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in (files or {}).items()}
        request = fingerprint([self.fingerprint, asked, seed, hashes])[:32]
        kept = self._ledger.find(request)
        if kept is not None:
            return kept
        if self._options.get("send_seed"):
            asked = asked | {"seed": seed}
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        place = place_of(self._server.url)
        self._ledger.charge({"request": request, "time": started, "server": place, "model": self._model})
        if files:
            parts = {name: (f"{name}.png", data, "image/png") for name, data in files.items()}
            picture, answer = self._server.post(_read_picture, path="/images/edits", data=asked, files=parts)
        else:
            asked = asked | {"response_format": "b64_json"}
            picture, answer = self._server.post(
                _read_picture, path="/images/generations", content=canonical_json(asked)
            )
        record = {"server": place, "time": started, "asked": asked, "seed": seed, "files": hashes, "answer": answer}
        try:
            self._ledger.keep(request, picture, record)
        except OSError as error:
            raise_machine_trouble(error)
            raise
        return picture


def _read_picture(answer: Any) -> tuple[Image, dict[str, Any]]:
    """Return the image of a response and the rest of the response; anything else may be passing trouble."""
    try:
        first = answer["data"][0]
        encoded = first.pop("b64_json")
        data = base64.b64decode(encoded, validate=True)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise TryAgainError("a response without an image in b64_json") from None
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if picture is None:
        raise TryAgainError("a response whose image cannot be decoded")
    return np.ascontiguousarray(picture[..., ::-1]), answer


def _square(image: Image, side: int) -> Image:
    """Return the image in the middle of a square, its border repeated, at ``side`` pixels."""
    whole = cv2.copyMakeBorder(image, *_margins(*image.shape[:2]), cv2.BORDER_REPLICATE)
    return np.asarray(cv2.resize(whole, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def _see_through(image: Image, mask: Mask, side: int) -> Image:
    """Return the image with alpha 0 if the server should paint."""
    opaque = 255 * mask.astype(np.uint8)
    alpha = cv2.copyMakeBorder(opaque, *_margins(*mask.shape), cv2.BORDER_CONSTANT, value=(0,))
    return np.dstack([_square(image, side), cv2.resize(alpha, (side, side), interpolation=cv2.INTER_NEAREST)])


def _margins(height: int, width: int) -> tuple[int, int, int, int]:
    """Return what an image lacks to be square: above, below, left and right."""
    longer = max(height, width)
    top, left = (longer - height) // 2, (longer - width) // 2
    return top, longer - height - top, left, longer - width - left


def _png(image: Image) -> bytes:
    order = [2, 1, 0, 3][: image.shape[2]]
    fine, data = cv2.imencode(".png", image[..., order])
    if not fine:
        raise SampleError("the image cannot be written as PNG")
    return bytes(data.tobytes())
