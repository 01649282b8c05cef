"""Requests to a server by HTTP: deadlines, retries, rate, keys that are never shown, and sentences for errors."""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import urlsplit

import httpx
import tenacity
from anyio import move_on_after
from anyio.from_thread import start_blocking_portal

from holdfast.core.errors import SampleError, UserError, cannot_write, check_unicode
from holdfast.core.names import Name
from holdfast.core.secrets import keep_secret, redacted

KEY_VARIABLE = "HOLDFAST_API_KEY"
AGAIN = "run the same command again"
LONGEST_MESSAGE = 200  # characters of what a server says about an error
UNREACHED = 3  # requests in a row that may be given up for want of any answer before the run is stopped
_ERROR_BYTES = 4096  # of an error's body that are read
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

    timeout: float = 60.0  # seconds for one attempt, from the connection to the last byte; also of a pause it asks for
    retries: int = 4  # further attempts after the first
    backoff: float = 1.0  # seconds before the second attempt; doubled each time, and shortened at random
    per_minute: float = 0.0  # requests a minute at most, 0 for no limit
    largest: int = 4 << 20  # bytes of a response


def check_limits(settings: Any, scheme: str, limits: dict[str, tuple[float, float]]) -> None:
    """Raise a UserError if an attribute lies outside its limits."""
    for option, (low, high) in limits.items():
        value = getattr(settings, option)
        if not low <= value <= high:
            raise UserError(f"{scheme}: option {option}={value:g} should be between {low:g} and {high:g}")


class RemoteServer:
    """A server that answers POST requests; threads may ask at once."""

    # ``url``: of the endpoint. ``key``: sent as a bearer token to this server only; '' for none. ``patience``: timeout,
    # retries and rate. ``hint``: what a user should do once the server runs again.

    def __init__(self, url: str, key: str, patience: Patience, *, hint: str = AGAIN) -> None:
        self.url, self._key, self._patience, self._hint = url, key, patience, hint
        keep_secret(key)
        self._tls = ssl.create_default_context()
        self._lock = threading.Lock()
        self._next = 0.0  # no request before this time
        self._unreached = 0
        self._backoff = tenacity.wait_random_exponential(patience.backoff)  # threads that failed together part

    def post(self, read: Callable[[Any], Response], *, path: str = "", **request: Any) -> Response:
        """Return what ``read`` makes of the response, parsed as JSON and without the key.

        ``request``: as httpx takes it; ``content`` is JSON. ``read`` raises ``TryAgainError`` for a response that may
        be passing trouble. One attempt takes at most ``timeout`` seconds, and so does a pause that the server asks for.
        A request that is refused for what it asks is a SampleError; a server that refuses the key, is unknown or stays
        silent for ``UNREACHED`` requests in a row is a UserError.
        """
        retrying = tenacity.Retrying(
            before=lambda _: self._wait_for_turn(),
            retry=tenacity.retry_if_exception_type(TryAgainError),
            wait=self._pause,
            stop=tenacity.stop_after_attempt(self._patience.retries + 1),
            reraise=True,
        )
        try:
            answer = retrying(lambda: read(self._attempt(path, request)))
        except TryAgainError as last:
            self._give_up(last)
        self._unreached = 0
        return answer

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

    def _pause(self, state: tenacity.RetryCallState) -> float:
        """Return the seconds to wait after an attempt that failed."""
        trouble = cast(TryAgainError, state.outcome.exception()) if state.outcome else None
        if trouble is None or not trouble.after:
            return self._backoff(state)
        with self._lock:  # every thread waits: the server's limit is for all of them
            self._next = max(self._next, time.monotonic() + trouble.after)
        return 0.0

    def _attempt(self, path: str, request: dict[str, Any]) -> Any:
        try:
            # A loop in a thread of its own, because only a task can be cancelled whatever it is waiting for: a
            # socket's timeout starts again with every byte. Notebooks have a loop of their own in this thread.
            with start_blocking_portal() as portal:
                status, headers, body = portal.call(self._exchange, path, request)
        except (TimeoutError, httpx.TimeoutException):
            raise TryAgainError(f"no answer in {self._patience.timeout:g} s", reached=False) from None
        except httpx.ConnectError as error:
            raise TryAgainError(f"no connection, {error}", reached=False) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TryAgainError(f"the connection broke ({type(error).__name__})", reached=False) from None
        if not 200 <= status < 300:
            raise self._trouble(status, headers, body)
        return _json(body)

    async def _exchange(self, path: str, request: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        """Return status, headers and body of a response."""
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "holdfast"}
        if "content" in request:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        status, received, body = 0, httpx.Headers(), bytearray()
        # No redirect is followed: it could carry the key and the images to another host.
        client = httpx.AsyncClient(verify=self._tls, timeout=self._patience.timeout, follow_redirects=False)
        with move_on_after(self._patience.timeout) as deadline:
            async with client, client.stream("POST", self.url + path, headers=headers, **request) as response:
                status, received = response.status_code, response.headers
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > self._patience.largest:
                        raise SampleError(f"the server's response is larger than {self._patience.largest >> 20} MB")
                    if len(body) > _ERROR_BYTES and not response.is_success:
                        break
        if deadline.cancelled_caught and status < 300:  # of an error, the status is enough
            raise TimeoutError
        return status, received, bytes(body)

    def _trouble(self, status: int, headers: httpx.Headers, body: bytes) -> Exception:
        """Return the error for a status that is not a success; its message is taken from the body if it is short."""
        message = redacted(_message(body))[:LONGEST_MESSAGE]
        said = f"status {status}{': ' + message if message else ''}"
        if status in _RETRIED or status >= 500:
            asked, most = retry_after(headers.get("Retry-After")), self._patience.timeout
            if asked > most:
                said += f"; it asks for a pause of {asked:,.0f} s, and pauses end after {most:g} s"
            return TryAgainError(said, min(asked, most))
        if 300 <= status < 400:
            target = redacted(place_of(headers.get("Location") or ""))
            return UserError(
                f"the server at {place_of(self.url)} redirects to {target}, and redirects are not followed: "
                "name that address itself"
            )
        if status in _MISTAKES:
            hint = f"; the key comes from the variable {KEY_VARIABLE} or ?key_env=NAME" if status < 404 else ""
            return UserError(f"the server at {place_of(self.url)} {_MISTAKES[status]} ({said}){hint}")
        return SampleError(f"the server refuses the request with {said}")


def server_key(variable: str = KEY_VARIABLE) -> str:
    """Return the key in an environment variable, '' if the usual one is not set."""
    key = os.environ.get(variable, "").strip()
    if not key and variable != KEY_VARIABLE:
        raise UserError(f"the environment variable {variable}, which key_env names, is empty or not set")
    if not all(32 < ord(letter) < 127 for letter in key):
        raise UserError(f"the environment variable {variable} has characters that no key has; set it again")
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

    ``kind`` and ``endpoint``: of ``server_address``; ``usual``: values of ``Patience`` that no one asked to change.
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
            raise cannot_write(self.folder / name, error) from error


def place_of(url: str) -> str:
    """Return host and port of an address, for messages."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "an address without a host"
    except ValueError:
        return "an address that cannot be read"


def _json(body: bytes) -> Any:
    """Return a response without secrets; None if it is not JSON, a SampleError if a text in it is not Unicode."""
    try:
        return _clean(json.loads(body))
    except (ValueError, RecursionError):
        return None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return check_unicode(redacted(value), "the server's response")
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return {_clean(name): _clean(each) for name, each in value.items()} if isinstance(value, dict) else value


def _message(body: bytes) -> str:
    """Return what an error's body says, on one line and not shortened: half of a key would not be recognised as one."""
    try:
        said = json.loads(body)
        said = said.get("error", said) if isinstance(said, dict) else said
        text = said.get("message", "") if isinstance(said, dict) else said
    except (ValueError, RecursionError):
        text = body.decode(errors="replace")
    return " ".join(str(text).encode(errors="replace").decode().split())


def retry_after(text: str | None) -> float:
    """Return the seconds that a number or a date asks for, 0 if there is none."""
    if not text:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return max(seconds, 0.0) if seconds == seconds else 0.0
