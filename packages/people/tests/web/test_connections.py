"""A server that someone floods with connections still answers the others, and its log stays short."""

from __future__ import annotations

import selectors
import socket
import stat
import threading
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from holdfast.store.run import table_csv
from holdfast_people.web.serve import ConnectionCaps
from holdfast_people.web.services.server_state import Limiter
from web_server import Serving, server_process, serving


def half_open(host: str, port: int, count: int) -> list[socket.socket]:
    """Connections on which half a request was sent."""
    connections = []
    for _ in range(count):
        connection = socket.create_connection((host, port), timeout=60)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        connections.append(connection)
    return connections


def open_after_closing(connections: list[socket.socket], expected: int) -> int:
    """How many of them the server has not closed; waits until they are as few as expected, a minute at most."""
    selector = selectors.DefaultSelector()
    for connection in connections:
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
    held = set(connections)
    while len(held) > expected and (ready := selector.select(timeout=60)):
        for key, _ in ready:
            selector.unregister(key.fileobj)
            held.discard(key.fileobj)  # type: ignore[arg-type]
    selector.close()
    return len(held)


def test_a_flood_from_one_address_leaves_room_for_others(tmp_path: Path) -> None:
    with server_process(tmp_path / "state", open_files=600) as server:
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.extend(server.process.stdout or ()), daemon=True)
        reader.start()
        port = int(server.url.rpartition(":")[2])
        connections = half_open("127.0.0.1", port, 900)
        try:
            expected = (600 - 256) // 4
            assert open_after_closing(connections, expected) == expected
            other = httpx.HTTPTransport(local_address="127.0.0.2")  # another address of this machine
            with httpx.Client(transport=other, timeout=60, trust_env=False) as client:
                for _ in range(20):
                    assert client.get(f"{server.url}/api/health").status_code == 200
        finally:
            for connection in connections:
                connection.close()
    reader.join(60)
    assert sum("too many connections" in line for line in said) == 1
    assert len("".join(said)) < 10_000
    assert "Traceback" not in "".join(said)


def test_caps_count_what_is_open() -> None:
    caps = ConnectionCaps(total=3, per_address=2)
    assert [caps.enter("a"), caps.enter("a"), caps.enter("a")] == [True, True, False]
    assert [caps.enter("b"), caps.enter("c")] == [True, False]
    caps.leave("a")
    assert [caps.enter("c"), caps.enter("b")] == [True, False]
    for address in ("a", "b", "c"):
        caps.leave(address)
    assert not caps.open_connections


@pytest.fixture
def server(tmp_path: Path) -> Serving:
    with serving(tmp_path / "state") as running:
        yield running


def test_two_lengths_in_one_request_are_refused(server: Serving) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(
            f"POST /join/nothing HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 6\r\n"
            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode()
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_the_database_is_its_owners_alone(tmp_path: Path) -> None:
    state = tmp_path / "shared"
    state.mkdir(mode=0o755)
    with serving(state) as running:
        running.session()
        for file in state.glob("people.sqlite*"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    (state / "people.sqlite").chmod(0o644)  # as versions before this one left it
    with serving(state):
        assert stat.S_IMODE((state / "people.sqlite").stat().st_mode) == 0o600


def test_a_log_does_not_get_the_administrators_link(tmp_path: Path) -> None:
    with server_process(tmp_path / "state") as server:
        kept = tmp_path / "state" / "administrator-link"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        token = server.link.rpartition("/")[2]
        server.process.terminate()
        server.process.wait(30)
        assert server.process.stdout is not None
        assert token not in server.said + server.process.stdout.read()


def test_a_restart_does_not_forgive_wrong_tokens(tmp_path: Path) -> None:
    file = tmp_path / "wrong.log"
    first = Limiter(most=3, seconds=600, file=file, now=0.0)
    for moment in (1.0, 2.0, 3.0):
        first.fail("192.0.2.1", moment)
    again = Limiter(most=3, seconds=600, file=file, now=4.0)
    assert again.wait("192.0.2.1", 5.0) > 0
    assert again.wait("192.0.2.2", 5.0) == 0
    later = Limiter(most=3, seconds=600, file=file, now=700.0)
    assert later.wait("192.0.2.1", 701.0) == 0
    assert file.read_text() == ""  # nothing that no longer counts is kept


def test_votes_are_no_formulas() -> None:
    table = pa.table({"comment": ["=1+1", "@x", "-2", "fine", None], "n": [1, -2, 3, 4, 5]})
    lines = table_csv(table).decode().splitlines()
    assert [line.partition(",")[0] for line in lines[1:]] == ['"\'=1+1"', '"\'@x"', '"\'-2"', '"fine"', ""]
    assert lines[2].endswith(",-2")  # numbers stay numbers
