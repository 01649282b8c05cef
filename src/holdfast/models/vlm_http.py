"""``vlm+http://HOST:PORT[/v1]#MODEL``: any server that speaks the chat-completions dialect with images.

vLLM, llama.cpp, Ollama and many hosted services do. The image travels inside the request as a data URL.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import cv2

from holdfast.core.errors import SampleError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.protocols import Refusal
from holdfast.core.remote import (
    KEY_VARIABLE,
    Patience,
    RemoteServer,
    TryAgainError,
    check_limits,
    server_address,
    server_key,
)
from holdfast.core.types import Image
from holdfast.models.options import checked, display_name
from holdfast.registry import unknown

_PATIENT = ("timeout", "retries", "backoff", "per_minute")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a server is asked for; only ``model``, ``max_tokens`` and ``image`` can change an answer.

    Attributes:
        model: as the server calls it.
        max_tokens: of an answer.
        image: png (the very pixels) or jpeg (quality 95, smaller).
        concurrency: requests at a time.
    """

    model: str
    max_tokens: int = 32
    image: str = "png"
    concurrency: int = 4


class HttpVlm:
    """A ``VisionLanguageModel`` behind an address; ``concurrency`` threads may ask at once.

    Nobody but the server knows its weights, so the fingerprint can hold only the model's name and the options that
    change answers; not the address, so that a server may move. Where a server's weights change under the same name,
    give it another with ``?name=``.
    """

    def __init__(self, name: str, settings: ServerSettings, server: RemoteServer) -> None:
        self.name = name
        self.concurrency = settings.concurrency
        answering = {"model": settings.model, "max_tokens": settings.max_tokens, "image": settings.image}
        self.fingerprint = fingerprint({"dialect": "chat completions", **answering})
        self._settings = settings
        self._server = server

    def answer(self, images: Sequence[Image], questions: Sequence[str]) -> list[str]:
        """Return one answer per question, several asked at a time; see ``VisionLanguageModel``."""
        if len(images) == 1:
            return [self._ask(images[0], questions[0])]
        with ThreadPoolExecutor(self.concurrency) as threads:
            return list(threads.map(self._ask, images, questions))

    def _ask(self, image: Image, question: str) -> str:
        text = self._server.post(json.dumps(_request(self._settings, image, question)).encode(), _answer)
        clean = self._server.without_key(text)
        return Refusal(clean) if isinstance(text, Refusal) else clean


def load(name: Name, *, device: str) -> HttpVlm:
    """Load a model of a server.

    Options: ``max_tokens=32``, ``image=png|jpeg``, ``timeout=60`` (seconds), ``retries=4``, ``backoff=1`` (seconds),
    ``per_minute=0`` (no limit), ``concurrency=4``, ``key_env=HOLDFAST_API_KEY`` (the environment variable that holds
    the key, which is sent to this server only and never written anywhere).
    """
    del device  # the server's own business
    kinds = {"max_tokens": int, "image": str, "timeout": float, "retries": int, "backoff": float}
    options = checked(name, kinds | {"per_minute": float, "concurrency": int, "key_env": str})
    key = server_key(options.pop("key_env", KEY_VARIABLE))
    url, model = server_address(name, kind="vlm", endpoint="/chat/completions")
    waiting = {option: options.pop(option) for option in _PATIENT if option in options}
    patience, settings = Patience(**waiting), ServerSettings(model, **options)
    if settings.image not in ("png", "jpeg"):
        raise unknown("image format", settings.image, ("png", "jpeg"))
    patience.check("vlm+http")
    check_limits(settings, "vlm+http", {"max_tokens": (1, 4096), "concurrency": (1, 256)})
    answering = {option: value for option, value in name.options.items() if option in ("max_tokens", "image")}
    shown = display_name(Name("vlm+http", model, options=answering), model)
    hint = "run the same command again with --retry-errors"
    return HttpVlm(shown, settings, RemoteServer(url, key, patience, hint=hint))


def _request(settings: ServerSettings, image: Image, question: str) -> dict[str, Any]:
    options = [cv2.IMWRITE_JPEG_QUALITY, 95] if settings.image == "jpeg" else []
    fine, data = cv2.imencode(".jpg" if settings.image == "jpeg" else ".png", image[..., ::-1], options)
    if not fine:
        raise SampleError(f"the image cannot be written as {settings.image}")
    url = f"data:image/{settings.image};base64,{base64.b64encode(data.tobytes()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    return {
        "model": settings.model,
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": settings.max_tokens,
        "stream": False,
    }


def _answer(body: bytes) -> str:
    """Return the text of a response; anything else may be passing trouble of the server."""
    try:
        choice = json.loads(body)["choices"][0]
        message = choice["message"]
        content, refusal = message.get("content"), message.get("refusal")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise TryAgainError("a response that is not a chat completion") from None
    if isinstance(content, list):  # some servers answer in parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if isinstance(refusal, str) and refusal:
        return Refusal(refusal)
    if choice.get("finish_reason") == "content_filter":
        return Refusal(content if isinstance(content, str) else "")
    if content is not None and not isinstance(content, str):
        raise TryAgainError("a response that is not a chat completion")
    return (content or "").strip()
