"""Holdfast as on other systems than Linux: without what only Unix has, and with the names of Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import numpy as np
import pyarrow.parquet as pq
import pytest

from holdfast.core.files import safe_part, write_atomic
from holdfast.core.system import lock_file

ROOT = Path(__file__).parents[2]
PRELUDE = """
# A process as on Windows, as far as Holdfast's own modules see it; Python's and other packages' keep what they have.
import fcntl, os, sys, types

_flock, _nonblocking = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB
msvcrt = types.ModuleType("msvcrt")
msvcrt.LK_NBLCK = 2
def locking(descriptor, mode, count):
    assert (mode, count) == (2, 1)
    try:
        _flock(descriptor, _nonblocking)
    except BlockingIOError as error:
        raise PermissionError(13, "Permission denied") from error
msvcrt.locking = locking

ABSENT = {"fcntl", "resource", "pwd", "grp", "termios"}
GONE = {
    "fork", "getuid", "geteuid", "sched_getaffinity", "sysconf", "O_CLOEXEC", "statvfs", "killpg", "getloadavg",
    "wait4", "waitid", "getpgid", "setsid", "mkfifo", "uname", "fchmod", "chown", "sync", "posix_fadvise", "pread",
}

class WindowsOs(types.ModuleType):
    name = "nt"

    def open(self, path, flags, mode=0o777, **more):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return os.open(path, flags, mode, **more)

    def __getattr__(self, name):
        if name in GONE:
            raise AttributeError(f"module 'os' has no attribute {name!r}")
        return getattr(os, name)

windows_os = WindowsOs("os")
imported = __import__

def on_windows(name, globals=None, locals=None, fromlist=(), level=0):
    if ((globals or {}).get("__name__") or "").startswith("holdfast"):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name == "os":
            return windows_os
        if name == "msvcrt":
            return msvcrt
    return imported(name, globals, locals, fromlist, level)

import builtins
builtins.__import__ = on_windows
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """Variables for processes that begin with the prelude, and so do those that they spawn."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(PRELUDE)
    paths = [str(tmp_path / "first"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def test_a_run_without_what_only_unix_has(elsewhere: dict[str, str], tmp_path: Path) -> None:
    options = ["--models", "embedded:resnet_rho0", "--scenarios", "grey", "--workers", "2", "--out", tmp_path / "run"]
    command = [sys.executable, "-m", "holdfast", "eval", "diorama:test?n=8", *options]
    for _ in range(2):  # the second finds everything there
        done = subprocess.run(command, env=elsewhere, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "run" / "predictions")
    assert rows.num_rows == 8
    report = [sys.executable, "-m", "holdfast", "report", tmp_path / "run", "--out", tmp_path / "page"]
    done = subprocess.run(report, env=elsewhere, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_module_is_imported_without_what_only_unix_has(elsewhere: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import importlib, pkgutil\n"
        "import holdfast, holdfast_evidence, holdfast_exchange, holdfast_people, holdfast_studies\n"
        "for package in (holdfast, holdfast_evidence, holdfast_exchange, holdfast_people, holdfast_studies):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if '__main__' not in module.name and '.migrations.' not in module.name:\n"
        "            importlib.import_module(module.name)\n"
        "            print(module.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 500


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["train", "diorama:test?n=48", "--architectures", "timm:test_resnet", "--scenarios", "grey", "--folds", "1",
          "--epochs", "1", "--size", "32", "--out", "trained"], ""),
        (["eval", "diorama:test?n=6", "--models", "embedded:resnet_rho0", "--scenarios", "grey", "--fast", "--workers",
          "2", "--out", "fast"], ""),
        (["doctor"], ""),
        (["plan", "synth", "diorama:test?n=4", "--scenarios", "grey", "--out", "planned"], "use WSL 2"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)  # fmt: skip
def test_commands_without_what_only_unix_has(
    words: list[str], refused: str, elsewhere: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "holdfast", *words]
    done = subprocess.run(command, env=elsewhere, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, refused in done.stderr) == (2 if refused else 0, True), done.stderr


def test_a_folder_in_use_is_refused_there_too(elsewhere: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from holdfast.store import writing\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "with writing(folder):\n"
        "    (folder / 'spec.json').write_text('{}')\n"
        "    print('in', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(command, env=elsewhere, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "in\n"
        second = subprocess.run(command, env=elsewhere, input="", capture_output=True, text=True, check=False)
        assert "another process is writing to" in second.stderr
        holder.communicate("")
    assert subprocess.run(command, env=elsewhere, input="", capture_output=True, check=False).returncode == 0


def test_a_lock_is_held_until_the_file_is_closed(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as first, (tmp_path / "lock").open("w") as second:
        assert lock_file(first, wait=False) and not lock_file(second, wait=False)
        first.close()
        assert lock_file(second, wait=True)


@pytest.mark.parametrize("name", ["CON", "nul", "Com1", "aux", "a:b", "a\\b", "a/b", "x.", "x ", "*?", "Auxiliary"])
def test_names_are_names_on_windows(name: str) -> None:
    part = safe_part(name)
    assert PureWindowsPath(part).parts == (part,) and not PureWindowsPath(part).is_reserved()
    assert part == part.rstrip(". ") and not set(part) & set('<>:"/\\|?*')
    assert safe_part("Auxiliary") == "Auxiliary"


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    data = np.arange(256, dtype=np.uint8).tobytes() + b"\r\n\n\x1a"
    write_atomic(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == data


def test_no_process_is_forked() -> None:
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "packages").glob("*/src/**/*.py")]:
        text = path.read_text(encoding="utf8")
        assert "os.fork(" not in text and 'get_context("fork' not in text, path
        if "ProcessPoolExecutor(" in text or "multiprocessing.Process(" in text:
            assert "spawn" in text, path
