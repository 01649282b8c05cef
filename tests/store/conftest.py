"""A server of S3 with six images in it, for the tests of this room."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import s3fs

from object_store import s3_server, upload
from shapes import make_photos


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("local") / "photos", 2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Iterator[s3fs.S3FileSystem]:
    with s3_server(tmp_path_factory.mktemp("server")) as files:
        upload(files, pictures, "bucket/photos")
        yield files


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Makes this machine one that has never seen a run."""

    def move() -> None:
        monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / f"cache-{time.monotonic_ns()}"))

    return move
