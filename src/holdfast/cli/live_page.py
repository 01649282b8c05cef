"""``holdfast eval --open``: the report's page on this machine, made again while rows arrive."""

from __future__ import annotations

import mimetypes
import threading
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote, urlsplit

from holdfast.core.errors import HoldfastError

REFRESH = 10  # seconds after which a browser asks again
SHARE = 5  # the next page is begun after so many times as long as the last one took: the run needs the processor, too
WAITING = "<!doctype html><html lang=en><title>Holdfast</title><p>The first rows are on their way."
HEADERS = {
    "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
}  # fmt: skip


class LivePage:
    """Serves a folder with a page on 127.0.0.1 and makes the page again while the block runs, and once at its end.

    ``make`` writes the page; as long as it raises a HoldfastError, for want of rows, a line says so instead. The page
    on the disk is the one that is served, without the refresh that a served one has until the end.
    """

    def __init__(self, folder: Path, make: Callable[[], object], *, browse: bool = True) -> None:
        self.folder, self.make, self.browse = folder, make, browse
        self.over, self.done = threading.Event(), False
        self.last_shown = threading.Event()  # a browser has the last page
        self.asked = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_PageHandler, self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._maker = threading.Thread(target=self._remake, daemon=True)

    @property
    def hosts(self) -> tuple[str, str]:
        """The values of the header Host that are answered: a page of another name cannot read this one."""
        port = self._server.server_port
        return f"127.0.0.1:{port}", f"localhost:{port}"

    def __enter__(self) -> LivePage:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._maker.start()
        if self.browse:
            webbrowser.open(self.url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._maker.join()
        try:
            if kind is None:
                with suppress(HoldfastError):  # without one answer there is no page, as the command says
                    self.make()
                self.done = True
                if self.asked:
                    self.last_shown.wait(2 * REFRESH)
        finally:
            self._server.shutdown()
            self._server.server_close()

    def _remake(self) -> None:
        pause = float(REFRESH)
        while not self.over.wait(pause):
            began = time.monotonic()
            with suppress(HoldfastError, OSError):  # too few rows so far; the last page is made without this
                self.make()
            pause = max(float(REFRESH), SHARE * (time.monotonic() - began))


class _PageHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of files in the page's folder."""

    def __init__(self, page: LivePage, *args: object) -> None:
        self.page = page
        super().__init__(*args)  # type: ignore[arg-type]  # socketserver's

    def do_GET(self) -> None:
        """Answer with a file, or with an error."""
        if self.headers.get("Host") not in self.page.hosts:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, b"", "text/plain")
            return
        name = unquote(urlsplit(self.path).path).lstrip("/") or "index.html"
        root = self.page.folder.resolve()
        last = self.page.done
        try:
            file = (root / name).resolve()
            content = file.read_bytes() if file.is_relative_to(root) and file.is_file() else None
        except (OSError, ValueError):
            content = None
        if name == "index.html":
            self.page.asked = True
            self._answer(HTTPStatus.OK, content or WAITING.encode(), "text/html; charset=utf-8", refresh=not last)
            if last and content:
                self.page.last_shown.set()
        elif content is None:
            self._answer(HTTPStatus.NOT_FOUND, b"", "text/plain")
        else:
            self._answer(HTTPStatus.OK, content, mimetypes.guess_type(name)[0] or "application/octet-stream")

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _answer(self, status: HTTPStatus, content: bytes, kind: str, *, refresh: bool = False) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if refresh:
            self.send_header("Refresh", str(REFRESH))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the progress is in the terminal."""
