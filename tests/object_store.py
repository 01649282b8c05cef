"""A real S3 server as a process of this machine, for tests of any room."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import s3fs

SECRET = "not-to-be-printed"


@contextmanager
def s3_server(cache: Path) -> Iterator[s3fs.S3FileSystem]:
    """moto's server with an empty bucket ``bucket``; the environment tells this process and its children of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = shutil.which("moto_server", path=str(Path(sys.executable).parent)) or "moto_server"
    quiet = subprocess.DEVNULL
    with (
        subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=quiet, stderr=quiet) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        try:
            for name, value in {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "somebody",
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_SHARED_CREDENTIALS_FILE": str(cache / "no-credentials"),
                "AWS_CONFIG_FILE": str(cache / "no-config"),
                "HOLDFAST_CACHE": str(cache / "cache"),
            }.items():
                patch.setenv(name, value)
            _wait(port, server)
            s3fs.S3FileSystem.clear_instance_cache()  # one of another server, perhaps
            files = s3fs.S3FileSystem()
            files.mkdir("bucket")
            yield files
        finally:
            s3fs.S3FileSystem.clear_instance_cache()
            server.kill()


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    while True:
        assert server.poll() is None, "the server did not start"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return


def upload(files: s3fs.S3FileSystem, folder: Path, where: str) -> None:
    """Copy a folder into a bucket, object by object."""
    for path in folder.rglob("*"):
        if path.is_file():
            files.pipe_file(f"{where}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def objects(files: s3fs.S3FileSystem, where: str) -> dict[str, int]:
    """What is below a place in a bucket, with sizes."""
    files.invalidate_cache()
    return {name.removeprefix(f"{where}/"): info["size"] for name, info in files.find(where, detail=True).items()}
