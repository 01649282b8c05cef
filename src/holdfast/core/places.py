"""Folders and files in an object store, next to those of the disk: ``s3://bucket/folder``.

A user who types a path may type such an address. Credentials come from the environment of the process that reads, as
its library finds them; they are in no address, no specification and no file of a run.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from holdfast.core.distribution import pip_install
from holdfast.core.errors import HoldfastError, MachineError, SampleError, UserError, first_line

SCHEMES = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "oss": "ossfs",
    "hdfs": "a Hadoop client",
    "memory": "fsspec",
}
"""Stores, and what reads them. No http or ssh: an address may be in a file of someone else's run."""

_ADDRESS = re.compile(rf"({'|'.join(SCHEMES)}):/+([^/].*)", re.DOTALL)
_PASSWORD = re.compile(r"(?!arn:|[^/:@]+:\d+(/|$))[^/:]*:.*@", re.DOTALL)  # one may have slashes in it; ports are none
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST}


def address(path: str | os.PathLike[str] | Any) -> str:
    """Return ``scheme://bucket/folder`` without needless slashes if a path means a store, else ""."""
    # pathlib makes one slash of the two, so one is enough.
    match = _ADDRESS.fullmatch(str(path))
    if match is None:
        return ""
    scheme, rest = match.groups()
    if _PASSWORD.match(rest):
        raise UserError("an address must not hold a password; credentials belong in the environment")
    parts = [part for part in rest.split("/") if part]
    if {".", ".."} & set(parts):  # stores have no such folders, but the disk's copy would be elsewhere
        raise UserError(f"{scheme}://{'/'.join(parts)}: write the address without dots for folders")
    return f"{scheme}://{'/'.join(parts)}"


def shown(path: str | Path) -> str:
    """Return a path as its user would type it."""
    return address(path) or str(path)


_staged: dict[Path, str] = {}


def stage(folder: Path, url: str) -> None:
    """Remember that a local folder holds what belongs at an address."""
    _staged[folder] = url


def stands_for(folder: Path) -> str:
    """Return the address that a local folder stands for, or ""."""
    return next((f"{url}/{folder.relative_to(staged).as_posix()}".removesuffix("/.") for staged, url in _staged.items()
                 if folder.is_relative_to(staged)), "")  # fmt: skip


def place(path: str | Path) -> Path:
    """Return a local path, or a UPath for an address."""
    url = address(path)
    if not url:
        return Path(path).expanduser()
    with reaching(url):
        from upath import UPath

        store(url)  # says now what is not installed
        return cast(Path, UPath(url))


def is_file(path: str | Path) -> bool:
    """Return whether a file exists, on the disk or in a store; a UserError if the store does not answer."""
    url = address(path)
    if not url:
        return Path(path).expanduser().is_file()
    forget_listings(url)
    with reaching(url):
        system, inside = store(url)
        try:
            return bool(system.info(inside)["type"] == "file")
        except FileNotFoundError as error:
            if _is_bucket(error):
                raise
            return False


def resolved(path: Path) -> Path:
    """Return the path with links followed; addresses have none."""
    return path if address(path) else Path(os.path.realpath(path))


def last_name(path: Path) -> str:
    """Return the last part of a path; for a whole bucket, the bucket's name."""
    url = address(path)
    return url.rpartition("/")[2] if url else resolved(path).name


def store(url: str) -> tuple[Any, str]:
    """Return the file system of an address, and the address's path in it."""
    # Not by fsspec's own parsing of addresses: ``::`` in the name of a file would lead it to another store.
    import fsspec

    scheme, _, _ = url.partition("://")
    system = fsspec.filesystem(scheme)
    return system, system._strip_protocol(url)


def forget_listings(url: str) -> None:
    """Ask the store again for its contents next time; its library caches listings."""
    with reaching(url):
        store(url)[0].invalidate_cache()


def read_object(path: str, start: int | None = None, end: int | None = None) -> bytes:
    """Return an object's bytes, or a range of them; a SampleError if it cannot be read."""
    url = address(path)
    try:
        system, inside = store(url)
        return cast(bytes, system.cat_file(inside, start=start, end=end))
    except Exception as error:  # every store's library has errors of its own
        sentence = _sentence(error, url)
        if _is_setup(error):
            raise UserError(sentence) from error
        if isinstance(error, FileNotFoundError):
            raise SampleError(f"{Path(url).name} cannot be read: {_reason(error)}") from error
        # The store is away, or refuses: that is not this image's fault.
        raise MachineError(f"{url} cannot be read: {_reason(error)}; run the same command again later") from error


def folders_and_files(folder: str | Path) -> tuple[list[str], list[str]]:
    """Return the sorted names of folders and files in a folder of a store."""
    url = address(folder)
    with reaching(url):
        system, inside = store(url)
        folders: list[str] = []
        files: list[str] = []
        for entry in system.ls(inside, detail=True):
            name = str(entry["name"]).rstrip("/").rpartition("/")[2]
            if str(entry["name"]).rstrip("/") != inside.rstrip("/"):  # consoles mark empty folders by an object
                (folders if entry["type"] == "directory" else files).append(name)
        return sorted(folders), sorted(files)


def walk(folder: str | Path) -> Iterator[str]:
    """Yield the files below a folder of a store, relative to it, without hidden ones."""
    for relative in listing(address(folder)):
        if not any(part.startswith(".") for part in relative.split("/")):
            yield relative


def listing(url: str) -> dict[str, dict[str, Any]]:
    """Return relative name → what the store says of an object (``size`` and more), for all objects below an address."""
    # Names that would lead elsewhere as paths are left out. Empty if there is nothing; a UserError if there is no
    # such bucket.
    with reaching(url):
        system, inside = store(url)
        root = inside.rstrip("/") + "/"
        objects = system.find(inside, detail=True)
    names = {name.removeprefix(root): info for name, info in objects.items() if name.startswith(root)}
    return {
        name: info
        for name, info in names.items()
        if (bool(name) and "\0" not in name and not {"", ".", ".."} & set(name.split("/")))
    }


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turn every error of a store's library in the block into a UserError of one sentence."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise UserError(_sentence(error, url)) from error


def _is_setup(error: Exception) -> bool:
    return isinstance(error, ImportError) or "Credential" in type(error).__name__


def _is_bucket(error: FileNotFoundError) -> bool:
    return "bucket does not exist" in str(error)  # in S3's words and Google's; a name may have "bucket" in it


def _sentence(error: Exception, url: str) -> str:
    scheme, _, rest = url.partition("://")
    bucket = f"{scheme}://{rest.partition('/')[0]}"
    if isinstance(error, ImportError):
        needed = pip_install("s3") if scheme == "s3" else f"pip install {SCHEMES.get(scheme, scheme)}"
        return f"{scheme}:// needs a library that is not installed: {needed} universal_pathlib".removesuffix(
            " universal_pathlib" if scheme == "s3" else ""
        )
    if _is_setup(error):
        hint = "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE" if scheme == "s3" else ""
        return f"there are no credentials for {bucket} in the environment{hint}"
    if isinstance(error, FileNotFoundError) and _is_bucket(error):
        return f"there is no bucket {bucket}; make it first, or check the name and AWS_ENDPOINT_URL"
    return f"{url}: {_reason(error)}"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
        return f"this machine's disk cannot hold its copy: {os.strerror(error.errno)}"
    if isinstance(error, FileNotFoundError):
        return "no such object"
    if isinstance(error, PermissionError):
        return "no permission"
    return f"the store does not answer as it should ({type(error).__name__}: {first_line(error)})"
