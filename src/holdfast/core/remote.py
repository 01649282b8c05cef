"""Requests to a server by HTTP: deadlines, retries, rate, keys that are never shown, and sentences for errors."""

from __future__ import annotations

import contextlib
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
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from holdfast.core.errors import SampleError, UserError, check_unicode
from holdfast.core.names import Name
from holdfast.core.secrets import keep_secret, redacted

KEY_VARIABLE = "HOLDFAST_API_KEY"
AGAIN = "run the same command again"
LONGEST_MESSAGE = 200  # characters of what a server says about an error
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

    timeout: float = 60.0  # seconds for one attempt, from the connection to the last byte; also of a pause it asks for
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


class _Deadline:
    """The end of one attempt: when it comes, the connection is cut, whatever a thread is waiting for."""

    # The timeout of a socket starts again with every byte, so a server that sends one now and then is never late.

    def __init__(self, seconds: float) -> None:
        self._end, self._lock = time.monotonic() + seconds, threading.Lock()
        self._connection: socket.socket | None = None  # its own handle of the connection, which TLS does not replace
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @property
    def left(self) -> float:
        """Seconds until the end; 0 or less when it is over."""
        return self._end - time.monotonic()

    def connect(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Return a connection to the first of a host's addresses that accepts one, in the time that is left."""
        trouble: OSError = OSError("the host has no address")
        for answer in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            if self.left <= 0:
                raise TimeoutError
            try:
                connection = socket.create_connection(cast("tuple[str, int]", answer[4][:2]), timeout=self.left)
            except OSError as error:
                trouble = error
                continue
            with self._lock:
                self._connection = connection.dup()
            if self.left <= 0:  # the timer may have come before there was anything to cut
                self._cut()
            return connection
        raise trouble

    def _cut(self) -> None:
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)


class _Attempt(Request):
    """A request with its deadline."""

    def __init__(self, url: str, body: bytes, headers: dict[str, str], deadline: _Deadline) -> None:
        super().__init__(url, data=body, headers=headers, method="POST")
        self.deadline = deadline


class _Connections(HTTPHandler, HTTPSHandler):
    """Open connections that end with the deadline of their request."""

    def http_open(self, request: Any) -> Any:
        return self.do_open(self._opening(HTTPConnection, request.deadline), request)

    def https_open(self, request: Any) -> Any:
        return self.do_open(self._opening(HTTPSConnection, request.deadline), request)

    def _opening(self, kind: type[HTTPConnection], deadline: _Deadline) -> Any:
        def opening(host: str, **options: Any) -> HTTPConnection:
            connection = kind(host, **options)
            connection._create_connection = deadline.connect  # type: ignore[attr-defined]
            return connection

        return opening


class RemoteServer:
    """A server that answers POST requests; threads may ask at once."""

    # ``url``: of the endpoint. ``key``: sent as a bearer token to this server only; '' for none. ``patience``: timeout,
    # retries and rate. ``hint``: what a user should do once the server runs again.

    def __init__(self, url: str, key: str, patience: Patience, *, hint: str = AGAIN) -> None:
        self.url, self._key, self._patience, self._hint = url, key, patience, hint
        keep_secret(key)
        self._opener: OpenerDirector = build_opener(_NoRedirects(), _Connections())
        self._lock = threading.Lock()
        self._next = 0.0  # no request before this time
        self._unreached = 0

    def post(
        self, body: bytes, read: Callable[[Any], Response], *, content_type: str = "application/json", path: str = ""
    ) -> Response:
        """Return what ``read`` makes of the response, parsed as JSON and without the key.

        ``read`` raises ``TryAgainError`` for a response that may be passing trouble. One attempt takes at most
        ``timeout`` seconds, and so does a pause that the server asks for. A request that is refused for what it asks is
        a SampleError; a server that refuses the key, is unknown or stays silent for ``UNREACHED`` requests in a row is
        a UserError.
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

    def _attempt(self, body: bytes, read: Callable[[Any], Response], content_type: str, path: str) -> Response:
        headers = {"Content-Type": content_type, "Accept": "application/json", "User-Agent": "holdfast"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        late = TryAgainError(f"no answer in {self._patience.timeout:g} s", reached=False)
        with _Deadline(self._patience.timeout) as deadline:
            request = _Attempt(self.url + path, body, headers, deadline)
            try:
                with self._opener.open(request, timeout=self._patience.timeout) as response:
                    answer = _body(response, self._patience)
            except HTTPError as error:
                with error:
                    raise self._trouble(error) from None
            except TimeoutError:
                raise late from None
            except (OSError, HTTPException) as error:  # a connection that is refused, or breaks in the middle
                if deadline.left <= 0 or isinstance(getattr(error, "reason", None), TimeoutError):
                    raise late from None
                if isinstance(error, URLError):
                    raise TryAgainError(f"no connection, {error.reason}", reached=False) from None
                raise TryAgainError(f"the connection broke ({type(error).__name__})", reached=False) from None
            if deadline.left <= 0:  # a body that was cut looks whole where no length was declared
                raise late
        return read(_json(answer))

    def _trouble(self, error: HTTPError) -> Exception:
        """Return the error for a status that is no success; its message is taken from the body if it is short."""
        message = redacted(_message(error))[:LONGEST_MESSAGE]
        said = f"status {error.code}{': ' + message if message else ''}"
        if error.code in _RETRIED or error.code >= 500:
            asked, most = retry_after(error.headers.get("Retry-After")), self._patience.timeout
            if asked > most:
                said += f"; it asks for a pause of {asked:,.0f} s, and pauses end after {most:g} s"
            return TryAgainError(said, min(asked, most))
        if 300 <= error.code < 400:
            target = redacted(place_of(error.headers.get("Location") or ""))
            return UserError(
                f"the server at {place_of(self.url)} redirects to {target}, and redirects are not followed: "
                "name that address itself"
            )
        if error.code in _MISTAKES:
            hint = f"; the key comes from the variable {KEY_VARIABLE} or ?key_env=NAME" if error.code < 404 else ""
            return UserError(f"the server at {place_of(self.url)} {_MISTAKES[error.code]} ({said}){hint}")
        return SampleError(f"the server refuses the request with {said}")


def server_key(variable: str = KEY_VARIABLE) -> str:
    """Return the key in an environment variable, '' if the usual one is not set."""
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
    """Return the body; a SampleError if it is larger than an answer may be."""
    parts, size = [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > patience.largest:
            raise SampleError(f"the server's response is larger than {patience.largest >> 20} MB")
    return b"".join(parts)


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


def _message(error: HTTPError) -> str:
    """Return what an error's body says, on one line and not shortened: half of a key would not be recognised as one."""
    try:
        body = error.read(4096)
    except (OSError, HTTPException):
        return ""
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
