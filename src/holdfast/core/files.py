"""Write files so that a reader sees either the whole file or none; read TOML files that a user wrote."""

from __future__ import annotations

# pathlib would cost as much as creating a file does, and synth writes a thousand a second:
# ruff: noqa: PTH103, PTH105, PTH108, PTH118, PTH120, PTH208
import itertools
import json
import os
import re
import shutil
import tomllib
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.places import address, place

UNFINISHED = ".unfinished-"
"""How the name of a file begins until it is complete; what a killed process leaves is recognised by it."""

_OWN, _COUNTER = uuid.uuid4().hex, itertools.count()  # of this process; a forked one has another number

_LONGEST = 120  # bytes, of the 255 that file systems allow: endings come behind it


_listeners: list[Callable[[str], None]] = []


@contextmanager
def no_empty_folders(folder: Path, *, own: str = "") -> Iterator[None]:
    """Remove a folder, and those above it, that the block makes, if it fails and leaves at most the file ``own``."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # what is not empty stays
            if own and missing and [entry.name for entry in folder.iterdir()] == [own]:
                (folder / own).unlink()
            for each in missing:
                each.rmdir()
        raise


def check_own(folder: Path, *marks: str) -> None:
    """Raise a UserError if a folder has files, and none of ``marks`` (patterns) by which a command knows its own."""
    if not folder.is_dir() or all(entry.name.startswith(".") for entry in folder.iterdir()):
        return
    if not any(next(folder.glob(mark), None) for mark in marks):
        raise UserError(f"{folder} is not empty and was not written by this command; choose another --out")


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Yield a new folder next to ``out`` that becomes it when the block ends well and is deleted otherwise."""
    if out.is_symlink():
        raise UserError(f"{out} is a link; choose another --out")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already; choose another --out")
    clear_leftovers(out.absolute())
    temporary = Path(f"{unfinished(out.absolute())}{uuid.uuid4().hex}")
    with no_empty_folders(temporary.parent):
        try:
            temporary.mkdir(parents=True)
        except OSError as error:
            above = next(folder for folder in temporary.parents if folder.exists())
            reason = error.strerror if above.is_dir() else f"{above} is a file"
            raise UserError(f"cannot write to {out}: {reason}") from error
        try:
            yield temporary
            temporary.replace(out)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


@contextmanager
def hearing(tell: Callable[[str], None]) -> Iterator[None]:
    """Call ``tell`` with the path of every file that this process finishes, in any thread, while the block runs."""
    _listeners.append(tell)
    try:
        yield
    finally:
        _listeners.remove(tell)


def completed(path: str | Path) -> None:
    """Report a finished file to the listeners; also used for files that another process finished for this one."""
    for tell in _listeners:
        tell(str(path))


def unfinished(path: str | os.PathLike[str]) -> str:
    """Return how the temporary names of a file or folder begin, with its folder."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{UNFINISHED}{zlib.crc32(os.fsencode(name)):08x}-")


def clear_leftovers(path: str | os.PathLike[str]) -> None:
    """Delete what killed processes left of one file or folder; for places that ``store.writing`` does not hold."""
    folder, mark = os.path.split(unfinished(path))
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(folder or "."):
            if name.startswith(mark):
                _remove(os.path.join(folder, name))


@contextmanager
def whole_file(path: Path, *, sync: bool = False, alone: bool = False) -> Iterator[Path]:
    """Yield a new name next to ``path``: it becomes ``path`` when the block ends well and is deleted otherwise."""
    # Makes the folders above it. ``path``: the file to write. ``sync``: force the data to the disk before the file gets
    # its name, so that a power cut leaves no empty file. It costs more than encoding an image: tables are synced,
    # images are not. ``alone``: first delete what killed processes left of it.
    _check_local(path)
    if alone:
        clear_leftovers(path)
    temporary = Path(f"{unfinished(path)}{uuid.uuid4().hex}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield temporary
        if sync:
            _sync(temporary)
        temporary.replace(path)
        if sync:
            with suppress(OSError):  # some network file systems cannot sync a folder
                _sync(path.parent)
        completed(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows syncs what it may write
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: str | Path, data: bytes) -> None:
    """Write bytes as ``whole_file`` would, in half the time: folders are made only if one is missing."""
    folder = os.path.dirname(path)
    temporary = f"{unfinished(path)}{_OWN}-{os.getpid()}-{next(_COUNTER)}"  # a UUID takes 10 µs
    try:
        try:
            _write(temporary, data)
        except FileNotFoundError:
            _check_local(path)
            os.makedirs(folder, exist_ok=True)
            _write(temporary, data)
        os.replace(temporary, path)
        completed(path)
    except BaseException:
        with suppress(OSError):  # the folder itself may be what is wrong
            os.unlink(temporary)
        raise


def _check_local(path: str | Path) -> None:
    if url := address(path):  # else a folder called "s3:" would be made here
        raise UserError(f"this command writes to a folder of the disk, not to {url}; copy it there afterwards")


def _write(path: str, data: bytes) -> None:
    file = os.open(path, _WRITE, 0o666)
    try:
        written = os.write(file, data)
        while written < len(data):  # a call may write a part only: 2 GiB, or what the disk still holds
            written += os.write(file, memoryview(data)[written:])
    finally:
        os.close(file)


def clear_unfinished(folder: Path, *, ending: str = "") -> list[str]:
    """Delete the files and folders that killed processes left unfinished below a folder."""
    # Return the paths of the finished files whose names have this ending; none without one.
    finished = []
    for parent, folders, files in os.walk(folder):  # not pathlib: there may be millions of files
        for name in [name for name in folders if name.startswith(UNFINISHED)]:
            folders.remove(name)
            _remove(os.path.join(parent, name))
        for name in files:
            if name.startswith(UNFINISHED):
                _remove(os.path.join(parent, name))
            elif ending and name.endswith(ending):
                finished.append(os.path.join(parent, name))
    return finished


def _remove(leftover: str) -> None:
    """Delete a file, a link or a folder that may be gone already."""
    with suppress(FileNotFoundError):
        try:
            os.unlink(leftover)
        except (IsADirectoryError, PermissionError):  # what it is called depends on the system
            shutil.rmtree(leftover, ignore_errors=True)


_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{digit}" for port in ("COM", "LPT") for digit in "123456789")}
"""Names that no file has on Windows."""


def safe_part(part: str) -> str:
    """Return one part of a path made of safe characters; different names stay different."""
    clean = re.sub(r"[^\w ()+,=-]", "_", part).strip() or "_"
    # Two names that differ only in what was replaced must not meet in one file.
    if clean == part and len(part.encode()) <= _LONGEST and part.strip().upper() not in _RESERVED:
        return clean
    return f"{clean.encode()[: _LONGEST - 20].decode(errors='ignore')}-{fingerprint(part)[:8]}"


MAX_BYTES = 1 << 20
_DEEPEST = 32
_KEY_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_DEEP_KEY = re.compile(rf"(?:{_KEY_PART}[ \t]*\.[ \t]*){{{_DEEPEST}}}")
"""A key of this many parts: the parser's time and memory grow with the square of their number."""


def plain_file_name(text: str) -> str:
    """Return the text if it is a file name; else without odd characters, and with a hash."""
    plain = text.replace(":", "-")
    if re.fullmatch(r"\w[\w.-]{0,80}", plain):
        return plain
    scheme, _, path = plain.partition("?")[0].rpartition("/")[0].partition("-")
    short = f"{scheme}-{Path(plain.partition('?')[0]).stem}" if path else plain  # of a file its own name is enough
    clean = re.sub(r"[^\w-]+", "_", short).strip("_")
    return f"{clean[:60]}-{fingerprint(text)[:8]}"


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """Return the table of a file; a UserError, which calls it ``what``, if it is missing, too large or no TOML."""
    file = place(path)
    if not file.is_file():
        raise UserError(f"{what} {str(path)!r} is not a file")
    if file.stat().st_size > MAX_BYTES:
        raise UserError(f"{what} {str(path)!r} is larger than {MAX_BYTES} bytes: that is not a table of words")
    try:
        text = file.read_text(encoding="utf-8-sig")
        if _DEEP_KEY.search(text):
            raise UserError(f"{what} {str(path)!r} has a key of more than {_DEEPEST} dotted parts")
        return tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{what} {str(path)!r} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{what} {str(path)!r} is not TOML: {error}") from error


def stored_object(text: str, column: str) -> dict[str, Any]:
    """Return the JSON object that a cell of a table holds; a UserError that names the column if it holds none."""
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UserError(
            f"a row of the run has {str(text)[:40]!r} as {column}, expected a JSON object: a table of the run is "
            "damaged. Run the command that made it again into a new folder"
        )
    return value


def json_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if there is none, or none that can be read."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
