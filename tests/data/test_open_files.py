"""A machine that has no more files to open: no image is to blame, so no row, no missing shard, no "damaged" file."""

from __future__ import annotations

import io
import resource
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.core.errors import MachineError
from holdfast.data.readers import huggingface, listed
from holdfast.data.writers import tar_images
from holdfast.pipeline.synth.files import _shard_holds, shard_path


@contextmanager
def no_more_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _tar(path: Path) -> Path:
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("a.png")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"PNG"))
    return path


def _parquet(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"sample_id": ["a"], "image": [{"bytes": b"PNG"}]}), path)
    return path


READERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Any]]] = {
    "huggingface": (
        lambda root: _parquet(root / "a.parquet"),
        lambda file: huggingface._cell(str(file), 0, 0, "image"),
    ),
    "webdataset": (lambda root: _tar(root / "a.tar"), lambda file: list(listed._index(file, []))),
    "synth --format webdataset": (lambda root: _tar(root / "a.tar"), tar_images),
    "synth --format parquet": (
        lambda root: _parquet(shard_path(root, "parquet", 0)),
        lambda file: _shard_holds(file.parent, "parquet")({"sample_id": "a", "shard": 0, "sha256": ""}),
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_too_many_open_files_end_the_command(reader: str, tmp_path: Path) -> None:
    make, read = READERS[reader]
    (tmp_path / "first").mkdir()
    read(make(tmp_path / "first"))  # imports what it needs
    (tmp_path / "second").mkdir()
    file = make(tmp_path / "second")
    with no_more_files(), pytest.raises(MachineError, match="too many open files"):
        read(file)
