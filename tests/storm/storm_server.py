"""A server that treats its clients badly; the path of a request says how (``BEHAVIOURS``), or ``good``.

``python storm_server.py PORT``
"""

from __future__ import annotations

import base64
import contextlib
import json
import socketserver
import struct
import sys
import threading
import time
import zlib

BEHAVIOURS = ("echo", "refuse", "drip", "headers", "endless", "pause", "half", "silent")
LATE_S = 0.1


def _png() -> str:
    """Return a grey image of 8 × 8 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x80" * 24 for _ in range(8))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    return base64.b64encode(
        b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    ).decode()


def _answer(text: str) -> dict[str, object]:
    """Return what an oracle, a vision-language model and an image maker read, each with the text."""
    return {
        "choices": [{"message": {"content": text}}], "accepted": False, "saw": text, "reason": text, text: text,
        "data": [{"b64_json": _png(), "revised_prompt": text}],
    }  # fmt: skip


class Handler(socketserver.BaseRequestHandler):
    """Reads one request and behaves as its path says."""

    def handle(self) -> None:
        with contextlib.suppress(OSError, IndexError, ValueError):
            self.request.settimeout(300)
            head = b""
            while b"\r\n\r\n" not in head and (more := self.request.recv(1 << 16)):
                head += more
            lines = head.partition(b"\r\n\r\n")[0].decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            left = int(headers.get("content-length", 0)) - len(head.partition(b"\r\n\r\n")[2])
            while left > 0 and (more := self.request.recv(1 << 16)):
                left -= len(more)
            how = lines[0].split()[1].strip("/").split("/")[0]
            self._behave(how, headers.get("authorization", "").removeprefix("Bearer "))

    def _behave(self, how: str, key: str) -> None:
        if how == "good":
            self._reply("200 OK", _answer("cat"))
        elif how == "echo":
            self._reply("200 OK", _answer(f"cat {key}"))
        elif how == "half":
            self._reply("200 OK", _answer("cat \ud800"))
        elif how == "refuse":
            self._reply("400 Bad", {"error": {"message": f"is {key} wrong?"}})
        elif how == "pause":
            self.request.sendall(b"HTTP/1.1 429 Busy\r\nRetry-After: 1e9\r\nContent-Length: 0\r\n\r\n")
        elif how == "silent":
            threading.Event().wait(300)
        else:
            beginning, piece = {
                "drip": (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", b" "),
                "headers": (b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n"),
                "endless": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
            }[how]
            self.request.sendall(beginning)
            while True:
                time.sleep(LATE_S)
                self.request.sendall(piece)

    def _reply(self, status: str, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.request.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


class Server(socketserver.ThreadingTCPServer):
    """Threads end with the process."""

    daemon_threads, block_on_close, allow_reuse_address = True, False, True


if __name__ == "__main__":
    with Server(("127.0.0.1", int(sys.argv[1])), Handler) as server:
        server.serve_forever()
