"""Requests to a server by HTTP: retries, rate, keys that are never shown, and sentences for what goes wrong."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import Name

KEY_VARIABLE = "HOLDFAST_API_KEY"
AGAIN = "run the same command again"
LONGEST_MESSAGE = 200  # characters of what a server says about an error
LONGEST_PAUSE = 120.0  # Seconds: the most that a server's wish to be left alone is granted
UNREACHED = 3  # requests in a row that may be given up for want of any answer before the run is stopped
_RETRIED = (408, 425, 429)  # and every 5xx
_MISTAKES = {401: "refuses the key", 403: "refuses access", 404: "does not know this address or model"}
_LIMITS = {"timeout": (0.01, 3600), "retries": (0, 20), "backoff": (0, 60), "per_minute": (0, 1e6)}
Response = TypeVar("Response")


class TryAgainError(Exception):
    """A failed request that is worth repeating; ``after``: the seconds that the server asks us to wait."""

    def __init__(self, reason: str, after: float = 0.0, *, reached: bool = True) -> None:
        super().__init__(reason)
        self.after, self.reached = after, reached


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often a server is asked."""

    timeout: float = 60.0  # seconds for one attempt
    retries: int = 4  # further attempts after the first
    backoff: float = 1.0  # seconds before the second attempt; doubled each time, and shortened at random
    per_minute: float = 0.0  # requests a minute at most, 0 for no limit
    largest: int = 4 << 20  # bytes of a response


def check_limits(settings: Any, scheme: str, limits: dict[str, tuple[float, float]]) -> None:
    """Raise a UserError where an attribute lies outside its limits."""
    for option, (low, high) in limits.items():
        value = getattr(settings, option)
        if not low <= value <= high:
            raise UserError(f"{scheme}: option {option}={value:g} should be between {low:g} and {high:g}")


class _NoRedirects(HTTPRedirectHandler):
    """Follow no redirect: it could carry the key and the pictures to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class RemoteServer:
    """A server that answers POST requests; threads may ask at once."""

    # ``url``: of the endpoint. ``key``: sent as a bearer token to this server only; '' for none. ``patience``: timeout,
    # retries and rate. ``hint``: what a user should do once the server runs again.

    def __init__(self, url: str, key: str, patience: Patience, *, hint: str = AGAIN) -> None:
        self.url, self._key, self._patience, self._hint = url, key, patience, hint
        self._opener: OpenerDirector = build_opener(_NoRedirects())
        self._lock = threading.Lock()
        self._next = 0.0  # no request before this time
        self._unreached = 0

    def post(
        self, body: bytes, read: Callable[[bytes], Response], *, content_type: str = "application/json", path: str = ""
    ) -> Response:
        """Return what ``read`` makes of the response; it raises ``TryAgainError`` for one that may be passing trouble.

        A request that is refused for what it asks is a SampleError; a server that refuses the key, is unknown or stays
        silent for ``UNREACHED`` requests in a row is a UserError.
        """
        for attempt in range(self._patience.retries + 1):
            self._wait_for_turn()
            try:
                answer = self._attempt(body, read, content_type, path)
            except TryAgainError as trouble:
                last = trouble
                if trouble.reached:
                    self._unreached = 0
                if attempt < self._patience.retries:
                    self._pause(attempt, trouble.after)
                continue
            self._unreached = 0
            return answer
        self._give_up(last)

    def without_key(self, text: str) -> str:
        """Remove the key from a server's message, which may quote it."""
        return text.replace(self._key, "[key]") if self._key else text

    def _give_up(self, last: TryAgainError) -> NoReturn:
        with self._lock:
            self._unreached = 0 if last.reached else self._unreached + 1
            silent = self._unreached >= UNREACHED
        attempts = self._patience.retries + 1
        if silent:
            raise UserError(
                f"nothing answers at {place_of(self.url)} ({last}): see that the server runs, then {self._hint}"
            )
        raise SampleError(f"the server did not answer in {attempts} attempt{'s' if attempts > 1 else ''}: {last}")

    def _wait_for_turn(self) -> None:
        """Sleep until the rate and what a server asked of any thread allow another request."""
        gap = 60 / self._patience.per_minute if self._patience.per_minute else 0.0
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
        time.sleep(self._patience.backoff * 2**attempt * random.uniform(0.5, 1.0))

    def _attempt(self, body: bytes, read: Callable[[bytes], Response], content_type: str, path: str) -> Response:
        headers = {"Content-Type": content_type, "Accept": "application/json", "User-Agent": "holdfast"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = Request(self.url + path, data=body, headers=headers, method="POST")  # noqa: S310 - http(s) only
        try:
            with self._opener.open(request, timeout=self._patience.timeout) as response:
                return read(_body(response, self._patience))
        except HTTPError as error:
            with error:
                raise self._trouble(error) from None
        except TimeoutError:
            raise TryAgainError(f"no answer in {self._patience.timeout:g} s", reached=False) from None
        except URLError as error:
            slow = isinstance(error.reason, TimeoutError)
            reason = f"no answer in {self._patience.timeout:g} s" if slow else f"no connection, {error.reason}"
            raise TryAgainError(reason, reached=False) from None
        except (OSError, HTTPException) as error:  # a connection that breaks in the middle
            raise TryAgainError(f"the connection broke ({type(error).__name__})", reached=False) from None

    def _trouble(self, error: HTTPError) -> Exception:
        """Return the error for a status that is no success; its message is taken from the body if it is short."""
        message = self.without_key(_message(error))[:LONGEST_MESSAGE]
        said = f"status {error.code}{': ' + message if message else ''}"
        if error.code in _RETRIED or error.code >= 500:
            return TryAgainError(said, retry_after(error.headers.get("Retry-After")))
        if 300 <= error.code < 400:
            target = place_of(error.headers.get("Location") or "")
            return UserError(
                f"the server at {place_of(self.url)} redirects to {target}, and redirects are not followed: "
                "name that address itself"
            )
        if error.code in _MISTAKES:
            hint = f"; the key comes from the variable {KEY_VARIABLE} or ?key_env=NAME" if error.code < 404 else ""
            return UserError(f"the server at {place_of(self.url)} {_MISTAKES[error.code]} ({said}){hint}")
        return SampleError(f"the server refuses the request with {said}")


def server_key(variable: str = KEY_VARIABLE) -> str:
    """Return the key in an environment variable, '' where the usual one is not set."""
    key = os.environ.get(variable, "").strip()
    if not key and variable != KEY_VARIABLE:
        raise UserError(f"the environment variable {variable}, which key_env names, is empty or not set")
    if not all(32 < ord(letter) < 127 for letter in key):
        raise UserError(f"the environment variable {variable} holds characters that no key has")
    return key


def server_address(name: Name, *, kind: str, endpoint: str = "") -> tuple[str, str]:
    """Return the URL and the model's name of ``KIND+http://HOST:PORT[/v1]#MODEL``."""
    # A password in the address is refused and not repeated. ``endpoint`` is appended to the path unless it is there.
    scheme = name.scheme.removeprefix(f"{kind}+")
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
    path = path if path.endswith(endpoint) else f"{path}{endpoint}"
    return f"{scheme}://{host}{f':{port}' if port else ''}{path}", model


SERVER_OPTIONS: dict[str, type] = {
    "timeout": float, "retries": int, "backoff": float, "per_minute": float, "key_env": str
}  # fmt: skip
"""Options behind the ``?`` of every server's name."""


def open_server(
    name: Name, options: dict[str, Any], *, kind: str, endpoint: str = "", hint: str = AGAIN, **usual: Any
) -> tuple[RemoteServer, str]:
    """Take ``SERVER_OPTIONS`` out of the options of a name; return the server and the model's name there.

    ``kind`` and ``endpoint``: of ``server_address``; ``usual``: values of ``Patience`` that nobody asked to change.
    """
    key = server_key(options.pop("key_env", KEY_VARIABLE))
    url, model = server_address(name, kind=kind, endpoint=endpoint)
    asked = {option: options.pop(option) for option in SERVER_OPTIONS if option in options}
    patience = Patience(**usual | asked)
    check_limits(patience, name.scheme, _LIMITS)
    return RemoteServer(url, key, patience, hint=hint), model


class PaidCalls:
    """Calls that cost money, a line each in a file of a folder, and the budget of all runs that share the folder."""

    file, unit, kept = "calls.jsonl", "calls", "answered"

    def __init__(self, folder: Path, budget: int) -> None:
        self.folder, self.budget = folder, budget
        self.lock = threading.Lock()

    def charge(self, line: dict[str, Any]) -> None:
        """Write a line before the request goes out, so that a lost answer counts; UserError without budget."""
        with self.lock:
            if len(self.lines(self.file)) >= self.budget:
                raise UserError(
                    f"the budget of {self.budget} {self.unit} is spent ({self.folder / self.file}); what was "
                    f"{self.kept} is kept. Allow more with ?budget={2 * max(self.budget, 1)}, then run the same "
                    "command again"
                )
            self.write(self.file, line)

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file of the folder."""
        file = self.folder / name
        lines = file.read_text(encoding="utf8").splitlines() if file.is_file() else []
        return [line for line in lines if line]

    def write(self, name: str, line: dict[str, Any]) -> None:
        """Add a line to a file of the folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / name).open("a", encoding="utf8") as stream:
                # A newline first: a kill may have cut off the line before.
                stream.write("\n" + json.dumps(line, ensure_ascii=False))
        except OSError as error:
            raise UserError(f"{self.folder / name} cannot be written: {error.strerror}") from error


def place_of(url: str) -> str:
    """Return host and port of an address, for messages."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "an address without a host"
    except ValueError:
        return "an address that cannot be read"


def _body(response: Any, patience: Patience) -> bytes:
    """Read the body, up to the size and the time that an answer may take."""
    started, parts, size = time.monotonic(), [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > patience.largest:
            raise SampleError(f"the server's response is larger than {patience.largest >> 20} MB")
        if time.monotonic() - started > patience.timeout:
            raise TimeoutError
    return b"".join(parts)


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


def retry_after(text: str | None) -> float:
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


SECONDS = 3.0


def mind_the_hub() -> None:
    """Switch the hub's library to offline mode if nothing answers at the hub's address."""
    # Left to itself it tries every file five times, with longer and longer pauses, which is a minute of silence for
    # somebody behind a firewall. A proxy or the user's own ``HF_HUB_OFFLINE`` is left alone.
    from huggingface_hub import constants

    if "HF_HUB_OFFLINE" in os.environ or urllib.request.getproxies():
        return
    address = urllib.parse.urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=SECONDS).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True
    else:
        constants.HF_HUB_OFFLINE = False
