"""The server behind nginx with TLS, configured as packages/people/docs/serving.md says."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
from annotate_world import HEIGHT, WIDTH, open_set, stored
from sqlalchemy import select

from holdfast.data.writers import mask_rle
from holdfast_people import identity
from holdfast_people.tables import audit, people, votes
from web_server import Serving, open_campaign, serving

GUIDE = Path(__file__).parents[2] / "docs" / "serving.md"
FRAME = """
{user}
daemon off;
pid {folder}/pid;
error_log {folder}/errors.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {server}
}}
"""


@dataclass
class Proxied:
    """A server, and nginx in front of it."""

    server: Serving
    url: str  # of nginx
    trust: ssl.SSLContext  # knows nginx's certificate

    def visitor(self, address: str = "127.0.0.2", **headers: str) -> httpx.Client:
        """A browser at an address of its own."""
        transport = httpx.HTTPTransport(verify=self.trust, local_address=address)
        headers = {"origin": self.url} | headers
        client = httpx.Client(base_url=self.url, transport=transport, headers=headers, timeout=60, trust_env=False)
        self.server._clients.append(client)
        return client

    def join(self, role: str = "member", name: str = "Ada", address: str = "127.0.0.2") -> httpx.Client:
        """Someone who has opened an invitation through nginx; their requests carry the token of our pages."""
        state = self.server.state
        with state.database.writing() as connection:
            _, token = identity.invite(connection, note=name, role=role, name=name, now=state.now())
        client = self.visitor(address)
        assert client.post(f"/join/{token}", data={"name": name}).status_code == 303
        page = client.get("/").text
        csrf = re.search(r'name="csrf[^"]*" (?:content|value)="([^"]+)"', page)
        assert csrf is not None, page
        client.headers["x-csrf-token"] = csrf[1]
        return client


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    openssl = shutil.which("openssl")
    if nginx is None or openssl is None:
        pytest.skip("nginx or openssl is not installed; `make system` installs them as root")
    folder = tmp_path_factory.mktemp("nginx")
    certificate, key, port = folder / "certificate.pem", folder / "key.pem", free_port()
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    url = f"https://localhost:{port}"
    with serving(folder / "state", public_url=url) as server:
        block = re.search(r"```nginx[^\n]*\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        assert block is not None
        described = block[1]
        for written, real in {
            "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
            "people.example.org;": "localhost;",
            "/etc/ssl/people.example.org.pem": str(certificate),
            "/etc/ssl/people.example.org.key": str(key),
            "http://127.0.0.1:8420": server.url,
        }.items():
            assert written in described
            described = described.replace(written, real)
        user = "user root;" if os.geteuid() == 0 else ""
        settings = folder / "nginx.conf"
        settings.write_text(FRAME.format(folder=folder, user=user, server=described))
        with subprocess.Popen([nginx, "-p", folder, "-c", settings], stderr=subprocess.PIPE) as process:
            try:
                _wait(port, process)
                yield Proxied(server, url, ssl.create_default_context(cafile=str(certificate)))
            finally:
                process.terminate()


@pytest.fixture(scope="module")
def campaign(proxied: Proxied, tmp_path_factory: pytest.TempPathFactory) -> int:
    return open_campaign(proxied.server.state, tmp_path_factory.mktemp("campaign"))


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    while True:
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return


def addresses(server: Serving, name: str) -> list[str]:
    """Where the logins of a person came from, as the server recorded it."""
    with server.state.database.reading() as connection:
        query = select(audit.c.address).join(people, people.c.id == audit.c.person_id)
        return list(connection.scalars(query.where(people.c.name == name, audit.c.action == "login")))


def test_people_log_in_with_a_secure_cookie(proxied: Proxied) -> None:
    with proxied.server.state.database.writing() as connection:
        _, token = identity.invite(connection, note="x", role="member", name="Bea", now=proxied.server.state.now())
    answer = proxied.visitor().post(f"/join/{token}", data={"name": "Bea"})
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 303 and "; Secure" in cookie and "HttpOnly" in cookie and "SameSite=lax" in cookie
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    client = proxied.join(name="Cy")
    assert client.get("/api/me").json()["name"] == "Cy"
    assert proxied.visitor(host="evil.example").get("/login").status_code == 400


def test_votes_and_progress_pass_through(proxied: Proxied, campaign: int) -> None:
    voter, admin = proxied.join(name="Di"), proxied.join("admin", name="Eve")
    before = admin.get(f"/api/campaigns/{campaign}/progress").json()
    pictures = voter.post(f"/api/review/campaigns/{campaign}/task").json()["task"]["pictures"]
    keys = []
    for picture in pictures:
        shown = voter.get(f"/media/places/{picture['token']}")
        assert shown.status_code == 200 and shown.content.startswith(b"\xff\xd8")
        keys.append(str(uuid.uuid4()))
        answers = {"recognisable": "yes", "usable": "yes"}
        body = {"place": picture["token"], "key": keys[-1], "answers": answers, "seconds": 1.0}
        assert voter.post("/api/review/votes", json=body).status_code == 200
    with proxied.server.state.database.reading() as connection:
        assert set(keys) <= set(connection.scalars(select(votes.c.key)))
    assert admin.get(f"/api/campaigns/{campaign}/progress").json() != before
    without = voter.headers.pop("x-csrf-token")
    assert voter.post("/api/review/votes", json=body).status_code == 403
    voter.headers["x-csrf-token"] = without


def test_a_mask_is_saved_through_it_and_a_large_one_arrives_whole(proxied: Proxied, tmp_path: Path) -> None:
    open_set(proxied.server.state, tmp_path)
    client = proxied.join(name="Fay")
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[40:80, 50:110] = True
    base = client.get("/api/annotate/masks/1").json()["version"]
    body = {"base": base, "height": HEIGHT, "width": WIDTH, "counts": mask_rle(mask), "editor": "test"}
    assert client.put("/api/annotate/masks/1", json=body).status_code == 200
    assert (stored(tmp_path) == mask).all()
    # 20 MB pass nginx and are refused by the server with a sentence about the mask; 33 MB are refused by nginx.
    too_long = client.put("/api/annotate/masks/1", json=body | {"counts": "1" * (20 << 20)})
    assert too_long.status_code in (400, 422) and too_long.headers["content-type"] == "application/json"
    assert client.put("/api/annotate/masks/1", content=b"1" * (33 << 20)).status_code == 413


def test_only_the_proxy_is_believed_about_addresses(proxied: Proxied) -> None:
    proxied.join(name="Gus", address="127.0.0.5")
    assert addresses(proxied.server, "Gus") == ["127.0.0.5"]
    liar = proxied.visitor("127.0.0.6", **{"x-forwarded-for": "198.51.100.7"})
    with proxied.server.state.database.writing() as connection:
        _, token = identity.invite(connection, note="x", role="member", name="Hal", now=proxied.server.state.now())
    assert liar.post(f"/join/{token}", data={"name": "Hal"}).status_code == 303
    assert addresses(proxied.server, "Hal") == ["127.0.0.6"]
    # Not through nginx, from an address that is not nginx's.
    transport = httpx.HTTPTransport(local_address="127.0.0.7")
    with httpx.Client(base_url=proxied.server.url, transport=transport, trust_env=False) as direct:
        with proxied.server.state.database.writing() as connection:
            _, token = identity.invite(connection, note="x", role="member", name="Ida", now=proxied.server.state.now())
        lie = {"x-forwarded-for": "198.51.100.7", "origin": proxied.server.url}
        assert direct.post(f"/join/{token}", data={"name": "Ida"}, headers=lie).status_code == 303
    assert addresses(proxied.server, "Ida") == ["127.0.0.7"]


def test_wrong_links_lock_one_address_out_and_no_other(proxied: Proxied) -> None:
    guesser = proxied.visitor("127.0.0.8")
    answers = [guesser.get(f"/join/{'x' * 40}{turn}").status_code for turn in range(21)]
    assert answers[-1] == 429 and 429 not in answers[:20]
    assert proxied.visitor("127.0.0.9").get(f"/join/{'x' * 43}").status_code != 429


def slow_reader(place: tuple[str, int], host: str, context: ssl.SSLContext | None) -> socket.socket:
    """Someone who asks for a long answer and reads one byte of it."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    plain.settimeout(60)
    plain.connect(place)
    reader = plain if context is None else context.wrap_socket(plain, server_hostname="localhost")
    reader.sendall(f"GET /api/openapi.json HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert reader.recv(1) == b"H"
    return reader


@pytest.mark.parametrize("behind_nginx", [True, False])
def test_slow_readers_hold_nobody_up(proxied: Proxied, campaign: int, behind_nginx: bool) -> None:
    host = httpx.URL(proxied.url if behind_nginx else proxied.server.url)
    assert len(proxied.visitor().get("/api/openapi.json").content) > 30_000
    context = proxied.trust if behind_nginx else None
    readers = [slow_reader(("127.0.0.1", host.port or 0), host.netloc.decode(), context) for _ in range(150)]
    try:
        voter = proxied.join(name=f"Jo {behind_nginx}")
        places = voter.post(f"/api/review/campaigns/{campaign}/task").json()["task"]["pictures"]
        for turn, picture in enumerate(places):
            for reader in readers:
                assert len(reader.recv(1)) == 1, "a byte now and then"
            answers = {"recognisable": "yes", "usable": "yes"}
            body = {"place": picture["token"], "key": str(uuid.uuid4()), "answers": answers, "seconds": 1.0}
            assert voter.post("/api/review/votes", json=body).status_code == 200, turn
    finally:
        for reader in readers:
            reader.close()
