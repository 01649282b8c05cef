"""Which errors end a command, and which become rows."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from holdfast.core.errors import (
    HoldfastError,
    MachineError,
    SampleError,
    UserError,
    cannot_write,
    half_may_work,
    machine_trouble,
    no_exit,
    stop_or_sentence,
)
from holdfast.core.files import write_atomic
from holdfast.data.images import read_file


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "full"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], capture_output=True)
    if done.returncode:
        pytest.skip("a full disk needs the right to mount one")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def _with_torch(folder: Path) -> None:
    torch.save({"a": torch.zeros(100_000)}, folder / "a.pt")


def _with_safetensors(folder: Path) -> None:
    save_file({"a": torch.zeros(100_000)}, folder / "a.safetensors")


def _with_pyarrow(folder: Path) -> None:
    values = np.random.default_rng(0).random(100_000)
    pq.write_table(pa.table({"a": values}), folder / "a.parquet")


def _with_our_own(folder: Path) -> None:
    write_atomic(folder / "a", bytes(200_000))


@pytest.mark.parametrize("write", [_with_torch, _with_safetensors, _with_pyarrow, _with_our_own])
def test_a_full_disk_is_known_whoever_writes(full_disk: Path, write: Callable[[Path], None]) -> None:
    with pytest.raises(Exception) as caught:
        write(full_disk)
    assert "disk is full" in str(machine_trouble(caught.value))
    assert not half_may_work(caught.value)


def test_what_cannot_be_written_is_the_fault_of_a_full_disk_or_of_the_path(full_disk: Path) -> None:
    with pytest.raises(OSError) as full:
        write_atomic(full_disk / "page", bytes(1 << 20))
    assert isinstance(cannot_write("the page", full.value), MachineError)
    refused = cannot_write("the page", NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    assert isinstance(refused, UserError) and str(refused) == "cannot write the page: Not a directory"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError(errno.EROFS, "Read-only file system"),
        OSError(errno.EMFILE, "Too many open files"),
        PermissionError(errno.EACCES, "Permission denied", "/data/a.png"),
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 40 bytes"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        MachineError("the store is away"),
    ],
    ids=lambda error: str(error)[:20],
)
def test_trouble_of_the_machine_is_never_a_row(error: Exception) -> None:
    with pytest.raises(MachineError):
        stop_or_sentence(error)
    try:
        raise RuntimeError("the model could not keep its cache") from error
    except RuntimeError as wrapped:
        with pytest.raises(MachineError):
            stop_or_sentence(wrapped)


def test_memory_that_runs_out_is_worth_a_smaller_batch_and_a_full_disk_is_not() -> None:
    assert half_may_work(torch.OutOfMemoryError("CUDA out of memory"))
    assert half_may_work(ValueError("not this image"))
    assert not half_may_work(OSError(errno.ENOSPC, "No space left on device"))
    assert not half_may_work(UserError("wrong labels"))


def test_what_is_about_one_picture_is_a_sentence() -> None:
    assert stop_or_sentence(ValueError("no such eye")) == "ValueError: no such eye"
    assert stop_or_sentence(SampleError("the mask is empty")) == "the mask is empty"
    with pytest.raises(UserError):
        stop_or_sentence(UserError("no labels"))
    try:
        raise SampleError("gone") from FileNotFoundError(errno.ENOENT, "No such file")
    except SampleError as error:
        assert stop_or_sentence(error) == "gone"


def test_an_image_that_may_not_be_read_stops_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system's answer is given here."""
    path = tmp_path / "a.png"
    path.write_bytes(b"x")
    for number, kind in ((errno.EACCES, MachineError), (errno.EIO, MachineError), (errno.ENOENT, SampleError)):

        def refuse(*_: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr("builtins.open", refuse)
            with pytest.raises(HoldfastError) as caught:
                read_file(path)
        assert type(caught.value) is kind


def test_sys_exit_in_a_plug_in_is_an_error() -> None:
    with pytest.raises(HoldfastError, match=r"called sys.exit\(\): no licence"), no_exit():
        raise SystemExit("no licence")
    with pytest.raises(KeyboardInterrupt), no_exit():
        raise KeyboardInterrupt
