"""``vlm+http://HOST:PORT[/v1]#MODEL``: any server that speaks the chat-completions dialect with images.

vLLM, llama.cpp, Ollama and many hosted services do. The image travels inside the request as a data URL.
"""

from __future__ import annotations

import base64
import json
import os
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

import cv2

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.protocols import Refusal
from holdfast.core.types import Image
from holdfast.models.options import checked, display_name
from holdfast.registry import unknown

KEY_VARIABLE = "HOLDFAST_API_KEY"
LARGEST_ANSWER = 4 << 20
"""Bytes of a response; an answer is a few hundred."""

LONGEST_MESSAGE = 200
"""Characters of what a server says about an error."""

LONGEST_PAUSE = 120.0
"""Seconds: the most that a server's wish to be left alone is granted."""

UNREACHED = 3
"""Questions in a row that may be given up for want of any answer before the run is stopped."""

_RETRIED = (408, 425, 429)  # and every 5xx
_MISTAKES = {401: "refuses the key", 403: "refuses access", 404: "does not know this address or model"}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How a server is asked; only ``model``, ``max_tokens`` and ``image`` can change an answer.

    Attributes:
        url: of the endpoint.
        model: as the server calls it.
        max_tokens: of an answer.
        image: png (the very pixels) or jpeg (quality 95, smaller).
        timeout: seconds for one attempt.
        retries: further attempts after the first.
        backoff: seconds before the second attempt; doubled each time, and shortened at random.
        per_minute: requests a minute at most, 0 for no limit.
        concurrency: requests at a time.
    """

    url: str
    model: str
    max_tokens: int = 32
    image: str = "png"
    timeout: float = 60.0
    retries: int = 4
    backoff: float = 1.0
    per_minute: float = 0.0
    concurrency: int = 4


class _AgainError(Exception):
    """A failed request that is worth repeating; ``after``: the seconds that the server asks us to wait."""

    def __init__(self, reason: str, after: float = 0.0, *, reached: bool = True) -> None:
        super().__init__(reason)
        self.after, self.reached = after, reached


class _NoRedirects(HTTPRedirectHandler):
    """Follow no redirect: it could carry the key and the pictures to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class HttpVlm:
    """A ``VisionLanguageModel`` behind an address; ``concurrency`` threads may ask at once.

    Nobody but the server knows its weights, so the fingerprint can hold only the model's name and the options that
    change answers; not the address, so that a server may move. Where a server's weights change under the same name,
    give it another with ``?name=``.
    """

    def __init__(self, name: str, settings: ServerSettings, key: str = "") -> None:
        self.name = name
        self.concurrency = settings.concurrency
        answering = {"model": settings.model, "max_tokens": settings.max_tokens, "image": settings.image}
        self.fingerprint = fingerprint({"dialect": "chat completions", **answering})
        self._settings = settings
        self._key = key
        self._opener: OpenerDirector = build_opener(_NoRedirects())
        self._lock = threading.Lock()
        self._next = 0.0  # no request before this time
        self._unreached = 0

    def answer(self, images: Sequence[Image], questions: Sequence[str]) -> list[str]:
        """Return one answer per question, several asked at a time; see ``VisionLanguageModel``."""
        if len(images) == 1:
            return [self._ask(images[0], questions[0])]
        with ThreadPoolExecutor(self.concurrency) as threads:
            return list(threads.map(self._ask, images, questions))

    def _ask(self, image: Image, question: str) -> str:
        body = json.dumps(_request(self._settings, image, question)).encode()
        for attempt in range(self._settings.retries + 1):
            self._wait_for_turn()
            try:
                text = self._attempt(body)
            except _AgainError as trouble:
                last = trouble
                self._note(reached=trouble.reached)
                if attempt < self._settings.retries:
                    self._pause(attempt, trouble.after)
                continue
            self._note(reached=True)
            return text
        return self._give_up(last)

    def _give_up(self, last: _AgainError) -> str:
        with self._lock:
            self._unreached = 0 if last.reached else self._unreached + 1
            silent = self._unreached >= UNREACHED
        attempts = self._settings.retries + 1
        if silent:
            raise UserError(
                f"nothing answers at {_place(self._settings.url)} ({last}): see that the server runs, then run the "
                "same command again with --retry-errors"
            )
        raise SampleError(f"the server did not answer in {attempts} attempt{'s' if attempts > 1 else ''}: {last}")

    def _note(self, *, reached: bool) -> None:
        if reached:
            with self._lock:
                self._unreached = 0

    def _wait_for_turn(self) -> None:
        """Sleep until the rate and what a server asked of any thread allow another request."""
        gap = 60 / self._settings.per_minute if self._settings.per_minute else 0.0
        while True:
            with self._lock:
                now = time.monotonic()
                if now >= self._next:
                    self._next = now + gap
                    return
                pause = self._next - now
            time.sleep(pause)

    def _pause(self, attempt: int, after: float) -> None:
        if after:
            with self._lock:
                # Every thread waits: the server's limit is for all of them.
                self._next = max(self._next, time.monotonic() + after)
            return
        # At random, so that threads which failed together do not come back together.
        time.sleep(self._settings.backoff * 2**attempt * random.uniform(0.5, 1.0))

    def _attempt(self, body: bytes) -> str:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "holdfast"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = Request(self._settings.url, data=body, headers=headers, method="POST")  # noqa: S310 - http(s) only
        try:
            with self._opener.open(request, timeout=self._settings.timeout) as response:
                return self._without_key(_answer(_read(response, self._settings.timeout)))
        except HTTPError as error:
            with error:
                raise self._trouble(error) from None
        except TimeoutError:
            raise _AgainError(f"no answer in {self._settings.timeout:g} s", reached=False) from None
        except URLError as error:
            slow = isinstance(error.reason, TimeoutError)
            reason = f"no answer in {self._settings.timeout:g} s" if slow else f"no connection, {error.reason}"
            raise _AgainError(reason, reached=False) from None
        except (OSError, HTTPException) as error:  # a connection that breaks in the middle
            raise _AgainError(f"the connection broke ({type(error).__name__})", reached=False) from None

    def _trouble(self, error: HTTPError) -> Exception:
        """Return the error for a status that is no success; its message is taken from the body if it is short."""
        message = self._without_key(_message(error))[:LONGEST_MESSAGE]
        said = f"status {error.code}{': ' + message if message else ''}"
        if error.code in _RETRIED or error.code >= 500:
            return _AgainError(said, _retry_after(error.headers.get("Retry-After")))
        if 300 <= error.code < 400:
            target = _place(error.headers.get("Location") or "")
            return UserError(
                f"the server at {_place(self._settings.url)} redirects to {target}, and redirects are not followed: "
                "name that address itself"
            )
        if error.code in _MISTAKES:
            hint = f"; the key comes from the variable {KEY_VARIABLE} or ?key_env=NAME" if error.code < 404 else ""
            return UserError(f"the server at {_place(self._settings.url)} {_MISTAKES[error.code]} ({said}){hint}")
        return SampleError(f"the server refuses the question with {said}")

    def _without_key(self, text: str) -> str:
        """Remove the key from a server's message, which may quote it."""
        clean = text.replace(self._key, "[key]") if self._key else text
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
    variable = options.pop("key_env", KEY_VARIABLE)
    key = os.environ.get(variable, "").strip()
    if not key and variable != KEY_VARIABLE:
        raise UserError(f"the environment variable {variable}, which key_env names, is empty or not set")
    if not all(32 < ord(letter) < 127 for letter in key):
        raise UserError(f"the environment variable {variable} holds characters that no key has")
    url, model = _address(name)
    settings = ServerSettings(url, model, **options)
    _check(settings)
    answering = {option: value for option, value in name.options.items() if option in ("max_tokens", "image")}
    shown = display_name(Name("vlm+http", model, options=answering), model)
    return HttpVlm(shown, settings, key)


def _address(name: Name) -> tuple[str, str]:
    """Return the endpoint's URL and the model's name; a password in the address is refused and not repeated."""
    scheme = name.scheme.removeprefix("vlm+")
    place, _, model = name.name.partition("#")
    form = f"{name.scheme}://HOST:PORT/v1#MODEL"
    try:
        parts = urlsplit(f"{scheme}:{place}")
        port = parts.port
    except ValueError as error:
        raise UserError(f"the address of a server reads {form}: {error}") from None
    if "@" in parts.netloc:
        raise UserError(f"a server's address holds no password; put the key into the variable {KEY_VARIABLE}")
    if not parts.hostname or not model or any(letter.isspace() for letter in place):
        raise UserError(f"a server's model is named {form}, which {name.scheme}:{name.name!r} is not")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path.rstrip("/") or "/v1"
    path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
    return f"{scheme}://{host}{f':{port}' if port else ''}{path}", model


def _check(settings: ServerSettings) -> None:
    if settings.image not in ("png", "jpeg"):
        raise unknown("image format", settings.image, ("png", "jpeg"))
    limits = {
        "max_tokens": (1, 4096), "timeout": (0.01, 3600), "retries": (0, 20), "backoff": (0, 60),
        "per_minute": (0, 1e6), "concurrency": (1, 256),
    }  # fmt: skip
    for option, (low, high) in limits.items():
        value = getattr(settings, option)
        if not low <= value <= high:
            raise UserError(f"vlm+http: option {option}={value:g} should be between {low:g} and {high:g}")


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


def _read(response: Any, seconds: float) -> bytes:
    """Read the body, up to the size and the time that an answer may take."""
    started, parts, size = time.monotonic(), [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > LARGEST_ANSWER:
            raise SampleError(f"the server's response is larger than {LARGEST_ANSWER >> 20} MB")
        if time.monotonic() - started > seconds:
            raise TimeoutError
    return b"".join(parts)


def _answer(body: bytes) -> str:
    """Return the text of a response; anything else may be passing trouble of the server."""
    try:
        choice = json.loads(body)["choices"][0]
        message = choice["message"]
        content, refusal = message.get("content"), message.get("refusal")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise _AgainError("a response that is not a chat completion") from None
    if isinstance(content, list):  # some servers answer in parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if isinstance(refusal, str) and refusal:
        return Refusal(refusal)
    if choice.get("finish_reason") == "content_filter":
        return Refusal(content if isinstance(content, str) else "")
    if content is not None and not isinstance(content, str):
        raise _AgainError("a response that is not a chat completion")
    return (content or "").strip()


def _message(error: HTTPError) -> str:
    """Return what an error's body says, on one line and not shortened: half of a key would not be recognised as one."""
    try:
        body = error.read(4096)
    except OSError:
        return ""
    try:
        said = json.loads(body)
        said = said.get("error", said) if isinstance(said, dict) else said
        text = said.get("message", "") if isinstance(said, dict) else said
    except ValueError:
        text = body.decode(errors="replace")
    return " ".join(str(text).split())


def _retry_after(text: str | None) -> float:
    """Return the seconds of a number or a date, 0 if there is none, at most the longest pause."""
    if not text:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), LONGEST_PAUSE) if seconds == seconds else 0.0


def _place(url: str) -> str:
    """Return host and port of an address, for messages."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "an address without a host"
    except ValueError:
        return "an address that cannot be read"
