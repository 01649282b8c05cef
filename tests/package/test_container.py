"""The container's files: linted, and what they rely on tried without an engine, which CI may lack."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"


def test_hadolint_has_nothing_to_say() -> None:
    lint = Path(sys.executable).with_name("hadolint")
    ended = subprocess.run([lint, DOCKER / "Dockerfile"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")


def test_compose_has_the_format_of_compose() -> None:
    lint = Path(sys.executable).with_name("check-jsonschema")
    command = [lint, "--builtin-schema", "vendor.compose-spec", DOCKER / "compose.yaml"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


def test_the_final_image_runs_as_a_user_without_rights_and_checks_its_health() -> None:
    final = (DOCKER / "Dockerfile").read_text().rpartition("\nFROM ")[2].splitlines()
    assert "USER 10001:10001" in final and any(line.startswith("HEALTHCHECK ") for line in final)
    after_user = final[final.index("USER 10001:10001") :]
    assert not any(line.startswith(("RUN", "COPY", "ADD", "USER 0")) for line in after_user)


def test_compose_gives_the_server_a_database_and_nothing_to_write_but_its_state() -> None:
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    server = services["serve"]
    assert server["read_only"] and server["cap_drop"] == ["ALL"] and server["ports"] == ["127.0.0.1:8420:8420"]
    assert server["depends_on"]["database"]["condition"] == "service_healthy" and "healthcheck" in services["database"]
    assert "password" not in " ".join(server["command"]).lower()
    entry = server["entrypoint"][2]
    assert "$$@" in entry and "$" not in entry.replace("$$", ""), "a single $ is a variable of compose"


@pytest.fixture
def read_only() -> list[str]:
    """The words before a command that make every file system but /tmp read-only for it."""
    script = (
        "mount --make-rprivate / && mount -t tmpfs tmpfs /tmp && mkdir -p /tmp/data && "
        'mount -o remount,bind,ro / && ! touch /read-only 2>/dev/null && exec "$@"'
    )
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script, "bash"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no name spaces here: {tried.stderr.strip()}")
    return words


@pytest.mark.parametrize("option", ["--port {}", "--port={}"])
def test_the_server_runs_on_a_read_only_file_system_and_is_healthy(
    option: str, read_only: list[str], tmp_path: Path
) -> None:
    # The server is process 1 of its name space, as in the container.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log, holdfast = tmp_path / "log", Path(sys.executable).with_name("holdfast")
    command = [
        holdfast,
        "people",
        "serve",
        "--state",
        "/tmp/data/state",
        "--host",
        "0.0.0.0",
        *option.format(port).split(),
    ]
    environment = os.environ | {"HOME": "/tmp/data", "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("w") as file:
        server = subprocess.Popen([*read_only, *command], stdout=file, stderr=file, env=environment)
    try:
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        end = time.monotonic() + 120
        while (health_check := _checked(children)) != 0 and server.poll() is None and time.monotonic() < end:
            time.sleep(0.5)
        assert health_check == 0, log.read_text()
    finally:
        server.kill()
        server.wait()


def _checked(children: Path) -> int | None:
    """Run the health check inside the server's name spaces; None while there is no server."""
    pids = children.read_text().split()
    if not pids:
        return None
    words = ["nsenter", "--target", pids[0], "--mount", "--pid", sys.executable, DOCKER / "health.py"]
    return subprocess.run(words, capture_output=True).returncode
