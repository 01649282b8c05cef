"""A private PostgreSQL for tests: one cluster a test process, reached by a socket only, and a new database a test."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=300", "shared_buffers=64MB")
_numbers = count(1)


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    kept = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return kept[-1].parent if kept else None


def _unprivileged() -> list[str]:
    # PostgreSQL refuses to run as root; Debian's package brings a user for it.
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


@contextmanager
def postgres_cluster(settings: tuple[str, ...] = FAST) -> Iterator[str]:
    """Start a cluster in a folder of its own and stop it in the end; gives the URL of its database ``postgres``.

    Args:
        settings: of the server, ``name=value``; the tests' own do not wait for the disk.
    """
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
    prefix, cluster = _unprivileged(), folder / "data"

    def call(*command: str) -> None:
        done = subprocess.run([*prefix, *command], cwd=folder, capture_output=True, text=True, timeout=120)
        if done.returncode:
            log = folder / "log"
            raise RuntimeError(done.stdout + done.stderr + (log.read_text() if log.exists() else ""))

    try:
        make = ("-A", "trust", "-U", "postgres", "--no-sync", "--no-locale", "-E", "UTF8")
        call(str(programs / "initdb"), "-D", str(cluster), *make)
        options = " ".join(["-c listen_addresses=", f"-k {folder}", *(f"-c {setting}" for setting in settings)])
        control = (str(programs / "pg_ctl"), "-D", str(cluster), "-w")
        call(*control, "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            call(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of the test process's cluster."""
    with postgres_cluster() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a new, empty database."""
    import psycopg

    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres_server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
