"""The server as strangers, other sites and curious members meet it; a real one, over HTTP."""

from __future__ import annotations

import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from holdfast_people import identity
from holdfast_people.tables import invitations, sessions
from holdfast_people.web.services.pages import local_path
from holdfast_people.web.services.security import BODY_LIMIT
from holdfast_people.web.services.server_state import Limiter
from web_server import Serving, server_process, serving

HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("state") / "state") as found:
        yield found


def invite(server: Serving, **more: object) -> tuple[int, str]:
    with server.state.database.writing() as connection:
        return identity.invite(connection, note="a test", now=server.state.now(), **more)  # type: ignore[arg-type]


def test_every_answer_has_the_headers(server: Serving) -> None:
    admin = server.browser_client("admin")
    for path in ("/", "/login", "/join/nothing", "/api", "/api/me", "/api/nothing", "/nothing", "/static/api.js"):
        answer = admin.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy
        assert "unsafe" not in policy and "http:" not in policy and "*" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "server" not in answer.headers
    assert admin.get("/admin/people").headers["cache-control"] == "no-store"


def test_pages_load_nothing_from_elsewhere_and_hold_no_inline_code(server: Serving) -> None:
    admin = server.client("admin")
    for path in ("/", "/login", "/admin", "/admin/people", "/admin/audit", "/api", "/nothing"):
        text = admin.get(path).text
        assert not re.findall(r"""(?:src|href|action)=["'](?:https?:)?//""", text), path
        assert not re.findall(r"\son\w+=|\sstyle=|<style|<script(?![^>]*\ssrc=)", text), path
    assert admin.get("/docs").status_code == 404 and admin.get("/redoc").status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80", "[::1"])
def test_other_host_names_are_refused(server: Serving, host: str) -> None:
    answer = server.stranger(host=host).get("/login")
    assert answer.status_code == 400
    assert "host name" in answer.text or not host  # the protocol itself refuses an empty one


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_names_of_this_machine_are_accepted(server: Serving, host: str) -> None:
    port = server.url.rpartition(":")[2]
    assert server.stranger(host=f"{host}:{port}").get("/login").status_code == 200


def test_public_url_names_the_host_and_makes_cookies_secure(tmp_path: Path) -> None:
    with serving(tmp_path, public_url="https://people.example") as server:
        assert server.link.startswith("https://people.example/join/")
        public = {"host": "people.example", "origin": "https://people.example"}
        with server.stranger(**public) as client:
            path = server.link.removeprefix("https://people.example")
            answer = client.post(path, data={"name": "Ada"})
            assert answer.status_code == 303
            assert "; Secure" in answer.headers["set-cookie"]
            assert "strict-transport-security" in answer.headers
        assert server.stranger(host="people.example.evil.example").get("/login").status_code == 400


def test_the_cookie_is_kept_from_scripts_and_other_sites(server: Serving) -> None:
    _, token = invite(server)
    answer = server.stranger(origin=server.url).post(f"/join/{token}", data={"name": "Ada"})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/" in cookie and "Domain" not in cookie
    assert "Secure" not in cookie  # plain http on this machine: a browser would drop it


def test_side_effects_need_our_origin_and_the_token(server: Serving) -> None:
    client = server.browser_client("admin")
    good = dict(client.headers)
    new = {"note": "somebody"}

    def status(**changed: str | bytes | None) -> int:
        headers = {key: value for key, value in (good | changed).items() if value is not None}
        again = server.stranger(**headers)  # type: ignore[arg-type]
        again.cookies = client.cookies
        return again.post("/api/invitations", json=new).status_code

    assert status() == 201
    assert status(**{"x-csrf-token": None}) == 403
    assert status(**{"x-csrf-token": good["x-csrf-token"][:-1] + "x"}) == 403
    assert status(**{"x-csrf-token": "é".encode()}) == 403
    assert status(origin=None) == 403
    for other in ("https://evil.example", "null", "http://127.0.0.1", f"{server.url}.evil.example", "http://[", ""):
        assert status(origin=other) == 403, other


def test_one_persons_token_is_not_anothers(server: Serving) -> None:
    one, other = server.browser_client("admin"), server.browser_client("admin")
    one.headers["x-csrf-token"] = other.headers["x-csrf-token"]
    assert one.post("/api/invitations", json={"note": "x"}).status_code == 403


def test_forms_carry_the_token_in_a_field(server: Serving) -> None:
    client = server.browser_client()
    token = client.headers.pop("x-csrf-token")
    assert client.post("/logout", data={"csrf": "wrong"}).status_code == 403
    assert client.get("/api/me").status_code == 200
    assert client.post("/logout", data={"csrf": token}).status_code == 303
    assert client.get("/api/me").status_code == 401


def test_a_form_of_another_site_cannot_log_anybody_in(server: Serving) -> None:
    _, token = invite(server)
    answer = server.stranger(origin="https://evil.example").post(f"/join/{token}", data={"name": "Ada"})
    assert answer.status_code == 403 and "set-cookie" not in answer.headers


def test_strangers_and_members_get_no_further(server: Serving) -> None:
    nobody, member = server.stranger(), server.client("member")
    for path in ("/", "/admin", "/admin/people", "/admin/audit", "/review", "/annotate"):
        answer = nobody.get(path)
        assert answer.status_code == 303 and answer.headers["location"].startswith("/login"), path
    for path in ("/api/me", "/api/invitations", "/api/audit", "/api/campaigns", "/media/images/1", "/media/places/x"):
        assert nobody.get(path).status_code == 401, path
        assert nobody.get(path).json() == {"detail": "log in first"}
    for path in ("/admin", "/admin/people", "/admin/audit", "/admin/campaigns/1", "/api/invitations", "/api/audit",
                 "/api/campaigns", "/api/sources", "/api/campaigns/1/progress"):  # fmt: skip
        assert member.get(path).status_code == 403, path
    assert member.post("/api/invitations", json={"note": "me", "role": "admin"}).status_code == 403
    assert member.delete("/api/invitations/1").status_code == 403
    assert member.put("/api/campaigns/1/status", json={"status": "closed"}).status_code == 403
    assert server.client("admin").get("/admin").status_code == 200


def test_a_withdrawn_invitation_ends_its_sessions_at_once(server: Serving) -> None:
    admin = server.client("admin")
    made = admin.post("/api/invitations", json={"note": "Mallory"}).json()
    path = made["link"].removeprefix(server.url)
    with server.stranger(origin=server.url) as browser:
        assert browser.post(path, data={"name": "Mallory"}).status_code == 303
        assert browser.get("/api/me").json()["name"] == "Mallory"
        assert admin.delete(f"/api/invitations/{made['id']}").status_code == 204
        assert browser.get("/api/me").status_code == 401
    assert server.stranger().get(path).status_code == 404
    actions = [(line["action"], line["subject"]) for line in admin.get("/api/audit").json()]
    assert ("revoke", f"invitation {made['id']}") in actions and ("invite", f"invitation {made['id']}") in actions


def test_invitations_and_sessions_expire(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    with serving(tmp_path, clock=lambda: now[0]) as server:
        client = server.client()
        _, token = invite(server, days=1.0)
        assert server.stranger().get(f"/join/{token}").status_code == 200
        now[0] += 1.01 * 86_400
        assert server.stranger().get(f"/join/{token}").status_code == 404
        assert client.get("/api/me").status_code == 200
        now[0] += 60 * 86_400
        assert client.get("/api/me").status_code == 401


def test_tokens_are_stored_as_hashes_and_nowhere_else(server: Serving) -> None:
    invitation = invite(server)[1]
    session = server.session()
    with server.state.database.reading() as connection:
        stored = [
            *connection.scalars(select(invitations.c.token_sha256)),
            *connection.scalars(select(sessions.c.token_sha256)),
        ]
    assert stored and all(re.fullmatch(r"[0-9a-f]{64}", one) for one in stored)
    files = [path for path in server.state.folder.rglob("*") if path.is_file()]
    for secret in (invitation, session):
        assert not any(secret.encode() in path.read_bytes() for path in files)
    for name in ("secret", "administrator-token"):
        assert stat.S_IMODE((server.state.folder / name).stat().st_mode) == 0o600


def test_wrong_tokens_are_counted_by_address(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    with serving(tmp_path, clock=lambda: now[0]) as server:
        good = server.link.removeprefix(server.url)
        with server.stranger(origin=server.url) as client:
            statuses = [client.get(f"/join/wrong{i}").status_code for i in range(10)]
            statuses += [client.post("/login", data={"link": f"wrong{i}"}).status_code for i in range(10)]
            assert statuses == [404] * 20
            for answer in (client.get(good), client.post("/login", data={"link": good}), client.post(good)):
                assert answer.status_code == 429 and 0 < int(answer.headers["retry-after"]) <= 601
                assert "too many" in answer.text.lower()
            now[0] += 601
            assert client.get(good).status_code == 200


def test_right_tokens_are_not_counted(server: Serving) -> None:
    with server.stranger(origin=server.url) as client:
        for _ in range(30):
            _, token = invite(server)
            assert client.post(f"/join/{token}", data={"name": "one of a class"}).status_code == 303
            client.cookies.clear()


def test_limiter_takes_an_ipv6_network_for_one_address() -> None:
    limiter = Limiter(most=2, seconds=10)
    limiter.fail("2001:db8::1", 0.0)
    limiter.fail("2001:db8::2", 1.0)
    assert limiter.wait("2001:db8::3", 2.0) == 8.0
    assert limiter.wait("2001:db8:0:1::1", 2.0) == 0.0
    assert limiter.wait("2001:db8::3", 10.5) == 0.0


def raw(server: Serving, *parts: bytes) -> bytes:
    """What the server answers to bytes; it may close before all are sent."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except (ConnectionResetError, BrokenPipeError):
            pass
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
                if b"\r\n\r\n" in answer:
                    break
        except ConnectionResetError:
            pass
    return answer


def test_large_bodies_are_refused_with_and_without_a_length(server: Serving) -> None:
    token = server.session("admin").encode()
    head = b"POST /api/invitations HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + token
    head += b"\r\nContent-Type: application/json\r\n"
    stated = raw(server, head + b"Content-Length: %d\r\n\r\n" % (BODY_LIMIT + 1))
    assert stated.startswith(b"HTTP/1.1 413")
    huge = raw(server, head + b"Content-Length: " + b"9" * 60 + b"\r\n\r\n")
    assert huge.startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))
    chunk = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
    chunked = raw(server, head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * (BODY_LIMIT // 65536 + 2))
    assert chunked.startswith(b"HTTP/1.1 413")
    fits = raw(server, head + b"Transfer-Encoding: chunked\r\n\r\n", chunk * 3, b"0\r\n\r\n")
    assert fits.startswith(b"HTTP/1.1 422")


@pytest.mark.parametrize(
    "path",
    ["/static/../security.py", "/static/%2e%2e/security.py", "/static/..%2fapp.py", "/static//etc/passwd",
     "/static/%00", "/media/images/..%2f..%2fsecret", "/media/places/..%2f..%2fsecret", "/media/images/1%00",
     "/media/training/%2fetc%2fpasswd", "/join/..%2f..%2fsecret"],
)  # fmt: skip
def test_no_path_reaches_the_file_system(server: Serving, path: str) -> None:
    token = server.session("admin").encode()
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode() + b"Authorization: Bearer " + token + b"\r\n\r\n"
    answer = raw(server, request)
    assert re.match(rb"HTTP/1.1 4(04|05|22|00|29)", answer), answer[:100]
    assert b"root:" not in answer and b"import" not in answer and server.state.secret not in answer


@pytest.mark.parametrize(
    "next", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "/\t/evil.example",
             "///evil.example", "\\\\evil.example", "evil.example", "/%0d%0aset-cookie:x=1\r\nset-cookie: x=1", ""]
)  # fmt: skip
def test_next_stays_here(server: Serving, next: str) -> None:
    _, token = invite(server)
    answer = server.stranger(origin=server.url).post(f"/join/{token}", data={"name": "Ada", "next": next})
    assert answer.status_code == 303 and answer.headers["location"] == "/"


def test_next_leads_to_the_page_that_was_asked_for(server: Serving) -> None:
    asked = server.stranger().get("/review/3?x=1&y=2")
    assert asked.headers["location"] == "/login?next=/review/3%3Fx%3D1%26y%3D2"
    assert "/review/3?x=1&amp;y=2" in server.stranger().get(asked.headers["location"]).text
    _, token = invite(server)
    page = server.stranger().get(f"/join/{token}?next=/review/3")
    assert 'name="next" value="/review/3"' in page.text
    answer = server.stranger(origin=server.url).post(f"/join/{token}", data={"name": "A", "next": "/review/3?x=1"})
    assert answer.headers["location"] == "/review/3?x=1"


@given(
    st.text(max_size=40)
    | st.builds(lambda a, b: f"/{a}{b}", st.sampled_from(["", "/", "\\", "@"]), st.text(max_size=20))
)
@settings(max_examples=200, deadline=None)
def test_local_paths_are_local(text: str) -> None:
    joined = httpx.URL("http://here.example/").join(local_path(text))
    assert joined.host == "here.example" and joined.scheme == "http"


def test_names_are_escaped_everywhere(server: Serving) -> None:
    admin = server.client("admin", HOSTILE)
    admin.post("/api/invitations", json={"note": HOSTILE})
    _, token = invite(server)
    server.stranger(origin=server.url).post(f"/join/{token}", data={"name": HOSTILE})
    pages = [admin.get(path).text for path in ("/", "/admin", "/admin/people", "/admin/audit", f"/{HOSTILE}")]
    pages.append(server.stranger().get(f"/join/{token}", params={"next": f"/{HOSTILE}"}).text)
    pages.append(server.stranger().get("/login", params={"next": f"/{HOSTILE}"}).text)
    assert not any("<script>alert" in page for page in pages)
    assert sum("&lt;script&gt;alert" in page for page in pages) >= 5


def test_names_lose_control_characters(server: Serving) -> None:
    _, token = invite(server)
    with server.stranger(origin=server.url) as client:
        assert client.post(f"/join/{token}", data={"name": "  A\x00d\u202ea\n "}).status_code == 303
        assert client.get("/api/me").json()["name"] == "A d a"
    _, token = invite(server)
    nameless = server.stranger(origin=server.url).post(f"/join/{token}", data={"name": " \n "})
    assert "say your name" in nameless.text and "set-cookie" not in nameless.headers


def test_opening_a_link_changes_nothing_yet(server: Serving) -> None:
    id, token = invite(server)
    for _ in range(3):
        answer = server.stranger().get(f"/join/{token}")
        assert answer.status_code == 200 and "set-cookie" not in answer.headers
    with server.state.database.reading() as connection:
        opened = connection.scalar(select(invitations.c.opened_at).where(invitations.c.id == id))
    assert opened is None


def test_a_pasted_link_or_token_logs_in(server: Serving) -> None:
    _, token = invite(server)
    for pasted in (f"{server.url}/join/{token}", f" {token} ", f"{server.url}/join/{token}/?next=/review"):
        assert (
            f'action="/join/{token}"' in server.stranger(origin=server.url).post("/login", data={"link": pasted}).text
        )


def test_logins_are_recorded_and_tokens_are_not(server: Serving) -> None:
    _, token = invite(server)
    with server.stranger(origin=server.url) as client:
        client.post(f"/join/{token}", data={"name": "Recorded"})
        session = client.cookies[server.state.cookie]
    lines = server.client("admin").get("/api/audit", params={"limit": 1000}).text
    assert '"Recorded"' in lines and '"login"' in lines and "127.0.0.1" in lines
    assert token not in lines and session not in lines


def test_the_servers_output_shows_no_token(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        token = server.link.rpartition("/")[2]
        with httpx.Client(base_url=server.url, headers={"origin": server.url}, trust_env=False) as client:
            client.get("/join/not-a-token-but-secret")
            client.get(f"/join/{token}")
            client.post(f"/join/{token}", data={"name": "Ada"})
            assert client.get("/api/me").json()["role"] == "admin"
        server.process.terminate()
        said = server.process.communicate(timeout=30)[0]
    assert token not in said and "secret" not in said and "GET" not in said


def test_the_administrators_link_stays_the_same_until_it_is_withdrawn(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        link = first.link.rpartition("/")[2]
    with serving(tmp_path) as second:
        assert second.link.rpartition("/")[2] == link
        second.client("admin").delete("/api/invitations/1")
    with serving(tmp_path) as third:
        assert third.link.rpartition("/")[2] != link
        assert third.stranger().get(third.link).status_code == 200
