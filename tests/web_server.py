"""A real server for tests of the web pages: a thread in this process, or a process of its own that may be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from holdfast_people import identity
from holdfast_people.campaigns import Settings
from holdfast_people.making import CampaignSpec, make_campaign
from holdfast_people.web.serve import administrator_link, listen
from holdfast_people.web.serve import http_server as make_server
from holdfast_people.web.services.pages import csrf_token
from holdfast_people.web.services.server_state import ServeOptions, ServerState, open_server
from shapes import make_photos


@dataclass
class Serving:
    """A server that runs, and the state it serves: tests look into its database and move its clock."""

    url: str
    state: ServerState
    link: str  # lets the administrator in
    _clients: list[httpx.Client] = field(default_factory=list)

    def session(self, role: str = "member", name: str = "") -> str:
        """The session token of a new person."""
        return new_session(self.state, role, name)

    def stranger(self, **headers: str) -> httpx.Client:
        """A client that is not logged in; closed with the server, as all are."""
        client = httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False)
        self._clients.append(client)
        return client

    def client(self, role: str = "member", name: str = "") -> httpx.Client:
        """A program that is logged in as a new person (``Authorization: Bearer``)."""
        return self.stranger(authorization=f"Bearer {self.session(role, name)}")

    def browser_client(self, role: str = "member", name: str = "") -> httpx.Client:
        """The same as a browser would do it: cookie, Origin and CSRF token."""
        token = self.session(role, name)
        client = self.stranger(**{"origin": self.url, "x-csrf-token": csrf_token(self.state.secret, token)})
        client.cookies[self.state.cookie] = token
        return client

    def log_in(self, context: Any, role: str = "member", name: str = "") -> None:
        """Log a Playwright browser context in as a new person."""
        token = self.session(role, name)
        context.add_cookies([{"name": self.state.cookie, "value": token, "url": self.url, "httpOnly": True}])


def new_session(state: ServerState, role: str = "member", name: str = "") -> str:
    """Invite a person and let them in; the session's token."""
    with state.database.writing() as connection:
        _, token = identity.invite(connection, note=name or role, role=role, name=name or f"a {role}", now=state.now())
        return identity.open_invitation(connection, token, name=name, now=state.now())


def open_campaign(state: ServerState, folder: Path, *, pictures: int = 4, **rules: Any) -> int:
    """A campaign over drawn shapes (three classes, ``pictures`` of each) with controls; its id."""
    pool, sure = make_photos(folder / "pool", pictures), make_photos(folder / "sure", pictures + 6)
    settings = Settings(**{"people_per_image": 3, "at_least": 2, "images_per_task": 8} | rules)
    spec = CampaignSpec(str(pool / "images"), sentinels=str(sure / "images"), name="shapes", settings=settings)
    return make_campaign(state.database, spec, state.folder, now=state.now()).campaign_id


@contextmanager
def serving(
    folder: Path, *, port: int = 0, clock: Callable[[], float] = time.time, **options: Any
) -> Iterator[Serving]:
    """A server in a thread of this process, on a free port of 127.0.0.1 unless told otherwise.

    Args:
        folder: its folder; serving the same folder again finds what was there.
        port: for a server that comes back where it was.
        clock: what time it is.
        options: of ``ServeOptions``.
    """
    state = open_server(ServeOptions(state=folder, port=port, **options), clock=clock)
    listener = listen("127.0.0.1", port)
    port = listener.getsockname()[1]
    server = make_server(state)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    found = Serving(f"http://127.0.0.1:{port}", state, administrator_link(state, port))
    try:
        deadline = time.monotonic() + 30
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.started
        yield found
    finally:
        for client in found._clients:
            client.close()
        server.should_exit = True
        thread.join(30)
        listener.close()
        state.close()


@dataclass
class ServerProcess:
    """``holdfast people serve`` as a user starts it."""

    process: subprocess.Popen[str]
    url: str
    link: str
    said: str = ""

    def kill(self) -> None:
        """As a power cut would: kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)


@contextmanager
def server_process(state: Path, *arguments: str, port: int = 0, open_files: int = 0) -> Iterator[ServerProcess]:
    """``holdfast people serve --state STATE`` in a process of its own, which may open at most so many files."""
    command = [sys.executable, "-m", "holdfast.cli.main", "people", "serve", "--state", str(state), "--port", str(port)]
    if open_files:
        command = ["bash", "-c", f'ulimit -n {open_files}; exec "$@"', "limited", *command]
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if kept := re.search(r"link is in (.+)$", line):
                link = re.search(r"(http://[^/\s]+)/join/\S+", Path(kept[1].strip()).read_text())
                assert link is not None
                break
        else:
            raise RuntimeError(f"the server did not start: {said}")
        for _ in range(300):
            try:
                httpx.get(f"{link[1]}/api/health", timeout=5, trust_env=False).raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield ServerProcess(process, link[1], link[0], said)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
