"""Accidents and small attacks on the server: slow clients, odd cookies, mistyped options, half-written files."""

from __future__ import annotations

import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import psycopg
import pytest
from sqlalchemy.engine import make_url

from holdfast.core.errors import UserError
from holdfast_people import identity
from holdfast_people.database import open_database
from holdfast_people.web import serve
from holdfast_people.web.services.security import BODY_LIMIT
from holdfast_people.web.services.server_state import ServeOptions, open_server, write_once
from web_server import Serving, open_campaign, serving


def connect(server: Serving) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def is_closed_within(connection: socket.socket, seconds: float, drip: bytes = b"") -> bool:
    """Whether the other side hangs up; ``drip`` is sent again and again meanwhile."""
    connection.settimeout(0.05)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if drip:
                connection.sendall(drip)
            if not connection.recv(65536):
                return True
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return True
    return False


def test_connections_without_a_request_are_closed(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "HEAD_S", 0.3)
    head = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    with connect(server) as silent:
        assert is_closed_within(silent, 10)
    with connect(server) as slow:
        slow.sendall(head)
        assert is_closed_within(slow, 10, drip=b"X-More: 1\r\n")
    with connect(server) as again:
        again.sendall(head + b"\r\n")
        assert again.recv(65536).startswith(b"HTTP/1.1 200")
        assert not is_closed_within(again, 0.8)  # between requests there is no hurry
        again.sendall(head)
        assert is_closed_within(again, 10, drip=b"X-More: 1\r\n")
    with connect(server) as endless:
        endless.sendall(b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n")
        assert is_closed_within(endless, 10, drip=b"x" * 10)  # it was refused, and continues


def test_strangers_may_send_little_where_members_send_masks(server: Serving) -> None:
    body = b" " * (BODY_LIMIT + 1)
    headers = {"content-type": "application/json"}
    assert server.stranger(**headers).put("/api/annotate/masks/1", content=body).status_code == 413
    forged = server.stranger(**headers, authorization="Bearer " + "x" * 43)
    assert forged.put("/api/annotate/masks/1", content=body).status_code == 413
    assert server.client().put("/api/annotate/masks/1", content=body, headers=headers).status_code == 422


def test_cookies_of_other_programs_log_nobody_out(server: Serving) -> None:
    session = server.session(name="Ada")
    odd = f'settings={{"zoom": [1, 2]}}; {server.state.cookie}={session}; zone=Europe/Berlin; "; a b=c'
    assert server.stranger(cookie=odd).get("/api/me").json()["name"] == "Ada"
    assert server.stranger(cookie=odd).post("/logout").status_code == 403  # still a browser's: it needs the token


@pytest.mark.parametrize("url", ["https://People.Example", "https://people.example:443/", "https://PEOPLE.example/"])
def test_public_urls_are_compared_as_browsers_send_them(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, public_url=url) as server:
        assert server.link.startswith("https://people.example/join/")
        client = server.stranger(host="people.example", origin="https://people.example")
        answer = client.post(server.link.removeprefix("https://people.example"), data={"name": "Ada"})
        assert answer.status_code == 303 and "; Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "url", ["people.example", "https://a:b", "https://me:secret@a", "https://a/b", "ftp://a", "http://["]
)
def test_public_urls_that_are_none_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError, match="--public-url"):
        open_server(ServeOptions(state=tmp_path, public_url=url))


@pytest.mark.parametrize(
    "url", ["postgresql//u:hunter2@h/db", "postgresql://u:a@b:hunter2@h/db", "postgresql://u:hunter2@h:x/db"]
)
def test_a_mistyped_database_url_is_no_file_and_shows_no_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError) as trouble:
        open_server(ServeOptions(state=tmp_path / "state", database=url))
    assert "nter2" not in str(trouble.value) and "URL" in str(trouble.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_database_that_is_gone_is_not_described_to_strangers(
    tmp_path: Path, postgres_url: str, postgres_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = make_url(postgres_url).database
    with serving(tmp_path, database=postgres_url) as server:
        assert server.stranger().get("/api/health").status_code == 200
        with psycopg.connect(postgres_server, autocommit=True) as other:
            other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        answer = server.stranger().get("/api/health")
        page = server.stranger().get("/join/x")
        with psycopg.connect(postgres_server, autocommit=True) as other:
            other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        assert answer.status_code == page.status_code == 503
        assert answer.json()["detail"].startswith("the database does not answer; nothing was saved")
        assert str(name) not in answer.text + page.text
        assert "not currently accepting" in caplog.text  # for anyone who runs the server
        assert server.stranger().get("/api/health").status_code == 200


def test_open_database_says_what_the_driver_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="refused") as trouble:
        open_database("postgresql://u:hunter2@127.0.0.1:1/db")
    assert "hunter2" not in str(trouble.value)


def test_a_secret_is_whole_and_the_same_for_all(tmp_path: Path) -> None:
    start = Barrier(8)

    def one(number: int) -> str:
        start.wait()
        return write_once(tmp_path / "secret", f"{number}" * 5000)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(one, range(8)))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_an_empty_secret_is_none(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()  # what a full disk left
    state = open_server(ServeOptions(state=tmp_path))
    state.close()
    assert len(state.secret) == 64 and (tmp_path / "secret").read_text().strip().encode() == state.secret


def test_the_state_folder_is_its_owners(tmp_path: Path) -> None:
    open_server(ServeOptions(state=tmp_path / "new")).close()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_old_links_are_not_taken_for_guesses(server: Serving) -> None:
    with server.state.database.writing() as connection:
        number, token = identity.invite(connection, note="a class", now=server.state.now())
        identity.revoke(connection, number, now=server.state.now())
    client = server.stranger(origin=server.url)
    asked = [client.get(f"/join/{token}") for _ in range(15)] + [client.post(f"/join/{token}") for _ in range(15)]
    assert {answer.status_code for answer in asked} == {404} and "withdrawn" in asked[0].text
    assert client.get(server.link).status_code == 200


def test_addresses_that_are_none_are_pages_that_are_not_there(server: Serving) -> None:
    admin = server.client("admin")
    for path in (
        "/admin/campaigns/abc",
        "/review/-1",
        "/annotate/99999999999999999999",
        "/admin/campaigns/1.5/results",
    ):
        answer = admin.get(path)
        assert answer.status_code == 404 and "integer" not in answer.text, path
    assert admin.get("/admin/audit?before=x").status_code == 400


@pytest.mark.parametrize("wrong", [{"source": True}, {"source": "1"}, {"limit": False}, {"minutes": "30"}])
def test_numbers_are_numbers(server: Serving, tmp_path: Path, wrong: dict[str, object]) -> None:
    open_campaign(server.state, tmp_path)
    rules = {"people_per_image": 2, "at_least": 1, "images_per_task": 8}
    new = {"name": "again", "source": 1, "controls": 2, **rules}
    admin = server.client("admin")
    assert admin.post("/api/campaigns", json=new | wrong).status_code == 422
    assert [one["name"] for one in admin.get("/api/campaigns").json()] == ["shapes"]
    assert admin.post("/api/campaigns", json=new).status_code == 201


def test_blank_names_are_none(server: Serving, tmp_path: Path) -> None:
    open_campaign(server.state, tmp_path)
    admin = server.client("admin")
    rules = {"people_per_image": 2, "at_least": 1, "images_per_task": 8}
    for name in (" ", "\u00a0", "\u202e"):
        new = {"name": name, "source": 1, "controls": 2, **rules}
        assert admin.post("/api/campaigns", json=new).status_code == 400, repr(name)
        assert admin.post("/api/invitations", json={"note": name}).status_code == 400, repr(name)
    assert len(admin.get("/api/campaigns").json()) == 1
