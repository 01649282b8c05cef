from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from holdfast.core.errors import HoldfastError
from holdfast.engine import LocalExecutor, ahead, core_count, share_of


class Square:
    def __call__(self, value: int) -> tuple[int, int]:
        return value * value, os.getpid()


class Dies:
    def __call__(self, value: int) -> int:
        if value == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return value


class Raises:
    def __call__(self, value: int) -> int:
        raise ValueError(f"no {value}")


@pytest.mark.parametrize("workers", [1, 2])
def test_every_shard_is_done_once(workers: int) -> None:
    results = list(LocalExecutor(workers).map(Square(), range(20)))
    assert sorted(value for value, _ in results) == [n * n for n in range(20)]
    processes = {process for _, process in results}
    assert processes == {os.getpid()} if workers == 1 else os.getpid() not in processes


def test_a_worker_has_its_share_of_the_machine() -> None:
    assert share_of(1000) == 1000
    assert sorted(LocalExecutor(2).map(share_of, [1000, 1, 5])) == [1, 2, 500]


def gpu_of_this(folder: str) -> tuple[str, int]:
    (Path(folder) / str(os.getpid())).touch()
    while len(list(Path(folder).iterdir())) < 2:  # so that neither process does all shards
        time.sleep(0.01)
    return os.environ["CUDA_VISIBLE_DEVICES"], core_count()


def test_every_process_sees_a_gpu_of_its_own_and_its_share_of_the_cores(tmp_path: Path) -> None:
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    shown = set(LocalExecutor(2, ("3", "GPU-5f")).map(gpu_of_this, [str(tmp_path)] * 4))
    assert shown == {(gpu, max(1, core_count() // 2)) for gpu in ("3", "GPU-5f")}
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


def threads_of_matrices(_: int) -> set[int]:
    assert np.__version__  # this module has loaded it when the worker hears what it is to do
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_a_worker_multiplies_matrices_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    assert list(LocalExecutor(2).map(threads_of_matrices, [0])) == [{1}]


def test_a_killed_worker_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HoldfastError, match="worker process was killed"):
        list(LocalExecutor(2).map(Dies(), range(6)))


PARENT = """
import os, time
from pathlib import Path
from holdfast.engine import LocalExecutor

class Waits:
    def __call__(self, folder):
        Path(folder, str(os.getpid())).touch()
        time.sleep(60)

if __name__ == "__main__":
    list(LocalExecutor(2).map(Waits(), [os.environ["FOLDER"]] * 2))
"""


BARE = """
from holdfast.engine import LocalExecutor

print("the script runs")
before = __file__, __spec__
print(list(LocalExecutor(2, scriptless=True).map(abs, [-1])), (__file__, __spec__) == before)
"""


def test_a_script_that_expects_no_processes_is_not_run_by_them(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(BARE)
    done = subprocess.run([sys.executable, str(tmp_path / "bare.py")], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("the script runs\n[1] True\n", "")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    (tmp_path / "seen").mkdir()
    environment = {**os.environ, "FOLDER": str(tmp_path / "seen")}
    with subprocess.Popen([sys.executable, str(tmp_path / "parent.py")], env=environment) as process:
        while len(workers := [int(path.name) for path in (tmp_path / "seen").iterdir()]) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(how)
    deadline = time.monotonic() + 20
    while any(_alive(worker) for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.02)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_an_error_in_the_work_reaches_the_caller() -> None:
    with pytest.raises(ValueError, match=r"no \d"):
        list(LocalExecutor(2).map(Raises(), range(2)))


def test_shards_are_taken_as_they_are_needed() -> None:
    taken = []

    def shards():
        for value in range(1000):
            taken.append(value)
            yield value

    results = LocalExecutor(2).map(Square(), shards())
    next(results)
    assert len(taken) < 50
    results.close()


def test_there_is_a_core() -> None:
    assert core_count() >= 1


def test_threads_work_ahead_in_order_and_no_further_than_asked() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        time.sleep(0.01 * (number % 3))
        return number * number

    with ThreadPoolExecutor(4) as threads:
        results = ahead(threads, work, iter(range(100)), 5)
        assert [next(results) for _ in range(10)] == [number * number for number in range(10)]
        results.close()  # type: ignore[attr-defined]
    assert max(begun) <= 15


def test_an_error_ahead_comes_in_its_turn() -> None:
    with ThreadPoolExecutor(2) as threads:
        results = ahead(threads, lambda number: 12 // (number - 3), range(6), 4)
        assert [next(results) for _ in range(3)] == [-4, -6, -12]
        with pytest.raises(ZeroDivisionError):
            next(results)


MALLOC = """
import ctypes, sys
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype, libc.malloc.restype = Info, ctypes.c_void_p
import holdfast
from holdfast.core.memory import keep_memory
from holdfast.engine import LocalExecutor
assert list(LocalExecutor(1).map(str, [1])) == ["1"]
if sys.argv[1] == "tuned":
    keep_memory()
before = libc.mallinfo2().hblks
libc.malloc(ctypes.c_size_t(30 << 20))
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc is meant")
@pytest.mark.parametrize(("how", "mapped"), [("host", "1"), ("tuned", "0")])
def test_a_program_that_imports_holdfast_keeps_its_malloc(how: str, mapped: str) -> None:
    done = subprocess.run([sys.executable, "-c", MALLOC, how], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [mapped]
