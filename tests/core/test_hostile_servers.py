"""Servers that never finish, ask for endless pauses, repeat secrets, or send text that no file can hold."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

from commands import run
from holdfast.core.errors import HoldfastError, SampleError, UserError
from holdfast.data.labels import map_labels
from holdfast.generators import load_image_maker
from holdfast.models import load_classifier, load_vlm
from holdfast.oracle import load_oracle

KEY = "sk-very-secret-0123456789"
GREY = np.full((8, 8, 3), 128, np.uint8)
PAUSE = 0.1  # seconds between two pieces of an endless answer: each comes before a socket's own timeout
Send = Callable[[bytes], None]


def drip(send: Send, beginning: bytes, piece: bytes) -> None:
    send(beginning)
    stop = threading.Event()
    while not stop.wait(PAUSE):
        send(piece)


def flood(send: Send) -> None:
    while True:
        send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


def busy(send: Send, wish: bytes) -> None:
    send(b"HTTP/1.1 429 Busy\r\nRetry-After: " + wish + b"\r\nContent-Length: 0\r\n\r\n")


BEHAVIOURS: dict[str, Callable[[Send], None]] = {
    "silence": lambda send: threading.Event().wait(60) and None,
    "status line": lambda send: drip(send, b"HTTP/1.1 200 ", b"O"),
    "headers": lambda send: drip(send, b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n"),
    "100 Continue": lambda send: drip(send, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "many 100 Continue": flood,
    "body": lambda send: drip(send, b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", b" "),
    "body without a length": lambda send: drip(send, b"HTTP/1.1 200 OK\r\n\r\n{}", b" "),
    "chunks": lambda send: drip(send, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "body of an error": lambda send: drip(send, b"HTTP/1.1 500 No\r\nContent-Length: 9999\r\n\r\n", b" "),
    "seconds": lambda send: busy(send, b"1e9"),
    "a date": lambda send: busy(send, b"Fri, 01 Jan 2999 00:00:00 GMT"),
    "for ever": lambda send: busy(send, b"inf"),
}


@contextlib.contextmanager
def serving(behave: Callable[[Send], None]) -> Iterator[int]:
    """Serve on a port of this machine; every connection gets the same."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):  # the client has hung up
                self.request.settimeout(60)
                head = b""
                while b"\r\n\r\n" not in head and (more := self.request.recv(1 << 16)):
                    head += more
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                body = head.partition(b"\r\n\r\n")[2]
                while len(body) < length and (more := self.request.recv(1 << 16)):
                    body += more
                behave(self.request.sendall)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, block_on_close = True, False

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def replying(answer: object, status: str = "200 OK") -> Callable[[Send], None]:
    body = json.dumps(answer).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return lambda send: send(head + body)


def ask_vlm(port: int, cache: Path, options: str) -> object:
    return load_vlm(f"vlm+http://127.0.0.1:{port}#m?{options}").answer([GREY], ["What is it? cat, dog."])


def ask_oracle(port: int, cache: Path, options: str) -> object:
    text = f"http://127.0.0.1:{port}#m?{options}&cache={cache}"
    oracle = load_oracle(text, classes=("cat", "dog"), load_classifier=load_classifier, map_labels=map_labels)
    return oracle.judge([GREY], ["cat"])


def ask_for_image(port: int, cache: Path, options: str) -> object:
    name = f"images+http://127.0.0.1:{port}#m?{options}&size=8&cache={cache}"
    return load_image_maker(name, device="cpu").generate(["a cat"], [0])


CLIENTS = {"vlm": ask_vlm, "oracle": ask_oracle, "images": ask_for_image}
PAUSES = ("seconds", "a date", "for ever")


@pytest.mark.timeout(120)  # without a deadline these never end
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("client", CLIENTS)
def test_no_server_holds_a_client(client: str, behaviour: str, tmp_path: Path) -> None:
    with serving(BEHAVIOURS[behaviour]) as port, pytest.raises(HoldfastError) as ended:
        CLIENTS[client](port, tmp_path, "timeout=0.4&retries=1&backoff=0")
    reason = "asks for a pause of" if behaviour in PAUSES else "status 500" if "error" in behaviour else "no answer in"
    assert reason in str(ended.value), ended.value
    assert ("pauses end after 0.4 s" in str(ended.value)) == (behaviour in PAUSES)


@pytest.mark.timeout(120)
def test_a_server_that_reads_nothing_holds_no_client(tmp_path: Path) -> None:
    class Deaf(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            threading.Event().wait(60)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, block_on_close = True, False

    large = np.random.default_rng(0).integers(0, 256, (2000, 2000, 3), np.uint8)  # more than the kernel's buffers hold
    with Server(("127.0.0.1", 0), Deaf) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        model = load_vlm(f"vlm+http://127.0.0.1:{server.server_address[1]}#m?timeout=0.4&retries=0")
        with pytest.raises(SampleError, match=r"no answer in 0\.4 s"):
            model.answer([large], ["What is it?"])
        server.shutdown()


def everything_below(folder: Path) -> bytes:
    return b"".join(path.name.encode() + path.read_bytes() for path in folder.rglob("*") if path.is_file())


def picture() -> str:
    return base64.b64encode(cv2.imencode(".png", GREY)[1].tobytes()).decode()


ECHOES = {
    "vlm": {"choices": [{"message": {"content": f"a cat, Bearer {KEY}"}}]},
    "oracle": {"accepted": False, "saw": KEY, "reason": f"{'x' * 190}{KEY}"},
    "images": {"created": KEY, KEY: [KEY], "data": [{"b64_json": picture(), "revised_prompt": f"a cat {KEY}"}]},
}


@pytest.mark.parametrize("variable", ["HOLDFAST_API_KEY", "OWN_KEY"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_that_a_server_repeats_is_stored_nowhere(
    client: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, KEY)
    options = f"retries=0&key_env={variable}"
    with serving(replying(ECHOES[client])) as port:
        answer = CLIENTS[client](port, tmp_path / "cache", options)
    for status in ("400 Bad", "401 No", "429 Busy", "500 Oops", "307 There"):
        for text in (KEY, f"{'y' * 190} {KEY}", {"error": {"message": f"is {KEY} wrong?"}}):
            with serving(replying(text, status)) as port, pytest.raises(HoldfastError) as ended:
                CLIENTS[client](port, tmp_path / "errors", options)
            assert KEY[:12] not in str(ended.value)
    stored = everything_below(tmp_path)
    assert KEY[:12] not in repr(answer) and KEY[:12].encode() not in stored
    assert client == "vlm" or b"[key]" in stored  # the answer itself was stored


HALF = "a cat \ud800"
HALVES = {
    "vlm": {"choices": [{"message": {"content": HALF}}]},
    "oracle": {"accepted": False, "reason": HALF},
    "images": {"data": [{"b64_json": picture(), "revised_prompt": HALF}]},
}


@pytest.mark.parametrize("client", CLIENTS)
def test_half_a_character_is_an_error_of_one_sentence(client: str, tmp_path: Path) -> None:
    with serving(replying(HALVES[client])) as port, pytest.raises((SampleError, UserError), match=r"\\ud800"):
        CLIENTS[client](port, tmp_path, "retries=0")
    with serving(replying({"error": {"message": HALF}}, "400 Bad")) as port, pytest.raises(HoldfastError) as ended:
        CLIENTS[client](port, tmp_path, "retries=0")
    str(ended.value).encode()


def test_a_run_with_a_hostile_server_stores_no_key_and_has_a_row_for_each_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, label in itertools.product(range(3), ("cat", "dog")):
        path = tmp_path / "photos" / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), np.full((16, 16, 3), 40 * number, np.uint8))
    answers = itertools.cycle([HALVES["vlm"], ECHOES["vlm"], {"choices": [{"message": {"content": "cat"}}]}])
    lock = threading.Lock()

    def behave(send: Send) -> None:
        with lock:
            answer = next(answers)
        replying(answer)(send)

    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    out = tmp_path / "run"
    with serving(behave) as port:
        model = f"vlm+http://127.0.0.1:{port}#m?retries=0&concurrency=1"
        words = ["ask", tmp_path / "photos", "--models", model, "--questions", "full_list", "--out", out]
        ended = run(*words)
    assert "should not have happened" not in ended.stderr
    rows = pq.read_table(out / "predictions").to_pylist()
    assert sorted(row["status"] for row in rows) == ["error"] * 2 + ["ok"] * 4
    assert all("\\ud800" in row["error"] for row in rows if row["status"] == "error")
    ended_report = run("report", out, "--out", tmp_path / "report")
    shown = (ended.stdout + ended.stderr + ended_report.stdout).encode()
    assert KEY[:12].encode() not in shown + everything_below(tmp_path)
