"""Check a stranger's bundle: members of the ZIP archive are plain files that its ``manifest.json`` lists.

What the archive says of itself is checked first; what comes out of a member is counted while it comes.
"""

from __future__ import annotations

import hashlib
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from holdfast.core.errors import UserError, first_line
from holdfast.core.schema import SCHEMA_VERSION
from holdfast.store.foreign import parse_foreign_json

MAX_MEMBERS = 100_000
MAX_TOTAL = 8_600_000_000  # bytes unpacked, unless a user allows more
MAX_RATIO, _SMALL = 100, 1 << 20  # a member may unpack to so many times its size, if it is not small
_MAX_NAME, _MAX_PART, _MAX_DEPTH = 400, 200, 8
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_FLAGS = 0x080E
"""Of a member: UTF-8 names, sizes behind the data, how hard it was compressed. All else is refused, encryption too."""

_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f-\x9f\\:*?"<>|\u2028\u2029\u202a-\u202e\u2066-\u2069]')
_DEVICES = re.compile(r"^(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3]) *(\..*)?$", re.IGNORECASE)
_END, _END_64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"


@contextmanager
def opened(path: Path, *, most: int = MAX_TOTAL) -> Iterator[zipfile.ZipFile]:
    """Yield an archive whose members are plain files with safe names, each once; a UserError if they are not."""
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    try:
        with path.open("rb") as file:
            _check_directory(file, path.stat().st_size, path.name)
        with zipfile.ZipFile(path) as archive:
            _check_members(archive.infolist(), path, most)
            _check_places(archive.infolist(), archive.start_dir, path.name)
            yield archive
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} is not a ZIP archive that can be read: {first_line(error)}") from None


def read_member(archive: zipfile.ZipFile, name: str, *, size: int, digest: str) -> bytes:
    """Return a member as bytes, of exactly this size and hash."""
    return b"".join(chunks(archive, name, size=size, digest=digest))


def chunks(archive: zipfile.ZipFile, name: str, *, size: int, digest: str = "") -> Iterator[bytes]:
    """Yield a member piece by piece; a UserError if it is larger than stated or has another hash."""
    seen, hashed = 0, hashlib.sha256()
    try:
        with archive.open(name) as member:
            while chunk := member.read(1 << 20):
                seen += len(chunk)
                if seen > size:
                    raise UserError(f"{name} unpacks to more than the {size} bytes that its header states")
                hashed.update(chunk)
                yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise UserError(f"{name} cannot be unpacked: {first_line(error)}") from None
    if seen != size:
        raise UserError(f"{name} unpacks to {seen} bytes, not to the {size} that its header states")
    if digest and hashed.hexdigest() != digest:
        raise UserError(f"{name} is not what the manifest says: its hash is another")


def _check_directory(file: BinaryIO, length: int, name: str) -> None:
    """Check the end of the file: one directory, nothing in front, behind or between, not too many members.

    Python's reader would list a directory of any size before we could count it.
    """
    broken = UserError(f"{name} is not a ZIP archive, or something is in front of it, behind it or missing")
    if length < 22:
        raise broken
    file.seek(length - 22)
    signature, disk, first, here, members, size, offset, comment = struct.unpack("<4s4H2LH", file.read(22))
    end = length - 22
    if signature != _END or comment:
        raise broken
    file.seek(max(0, length - 42))
    locator, _, place, _ = struct.unpack("<4sLQL", file.read(20))
    is_large = members == 0xFFFF or size == 0xFFFFFFFF or offset == 0xFFFFFFFF
    if is_large != (locator == _LOCATOR):  # Python follows a locator wherever there is one, even in a comment
        raise broken
    if is_large:
        end = length - 98
        if end < 0 or place != end:
            raise broken
        file.seek(end)
        signature, _, _, _, disk, first, here, members, size, offset = struct.unpack("<4sQ2H2L4Q", file.read(56))
        if signature != _END_64:
            raise broken
    if disk or first or here != members or offset + size != end:
        raise broken
    if members > MAX_MEMBERS or size > MAX_MEMBERS * (46 + _MAX_NAME):
        raise UserError(f"{name} has more members than the {MAX_MEMBERS} that a bundle may have")
    file.seek(offset)
    directory, place, counted = file.read(size), 0, 0
    while place < len(directory):
        if directory[place : place + 4] != b"PK\x01\x02":
            raise broken
        lengths = struct.unpack_from("<3H", directory, place + 28)
        place, counted = place + 46 + sum(lengths), counted + 1
    if place != size or counted != members:
        raise broken


def _check_members(members: list[zipfile.ZipInfo], path: Path, most: int) -> None:
    total = 0
    seen: dict[str, str] = {}
    for member in members:
        check_name(member.filename)
        if member.orig_filename != member.filename:
            raise UserError(f"{path.name} has a member whose name has a hidden end: {member.filename!r}")
        same = _folded(member.filename)
        if same in seen:
            raise UserError(f"{path.name} has two members that some computers cannot distinguish: {member.filename!r}")
        seen[same] = member.filename
        _check_kind(member, path.name)
        total += member.file_size
        if member.file_size > max(_SMALL, MAX_RATIO * member.compress_size):
            raise UserError(
                f"{member.filename} unpacks to more than {MAX_RATIO} times its size, which no file of a bundle does"
            )
    if total > most:
        raise UserError(
            f"{path.name} unpacks to {total / 1e9:.1f} GB; --max-gigabytes allows more than {most / 1e9:.1f}"
        )
    for folded, name in seen.items():
        folders = folded.split("/")
        if any("/".join(folders[:depth]) in seen for depth in range(1, len(folders))):
            raise UserError(f"{path.name} has a member that is a file and a folder at once: {name!r}")


def _check_places(members: list[zipfile.ZipInfo], end: int, archive: str) -> None:
    """Check that members follow one another, from the first byte of the file to its directory."""
    ordered = sorted(members, key=lambda member: member.header_offset)
    if not ordered:
        raise UserError(f"{archive} is an empty archive; holdfast share bundle makes one of a run")
    if ordered[0].header_offset:
        raise UserError(f"{archive} is not a ZIP archive from its first byte: something is in front of it")
    nexts = [*(member.header_offset for member in ordered[1:]), end]
    for member, behind in zip(ordered, nexts, strict=True):
        if member.header_offset + 30 + member.compress_size > behind:  # 30: a local header without its name
            raise UserError(f"{archive} has members that overlap, as in a bomb: {member.filename!r}")


def _check_kind(member: zipfile.ZipInfo, archive: str) -> None:
    if member.flag_bits & 0x41:
        raise UserError(f"{archive} has an encrypted member: {member.filename!r}")
    if member.flag_bits & ~_FLAGS or member.volume:
        raise UserError(f"{archive} has a member that is not a plain file: {member.filename!r}")
    if member.compress_type not in _METHODS:
        raise UserError(f"{archive} has a member that is neither stored nor deflated: {member.filename!r}")
    mode = stat.S_IFMT(member.external_attr >> 16)
    if stat.S_ISLNK(mode):
        raise UserError(f"{archive} has a link among its members: {member.filename!r}")
    if (mode and not stat.S_ISREG(mode)) or member.external_attr & 0x10 or member.is_dir():
        raise UserError(f"{archive} has a member that is not a plain file: {member.filename!r}")


def check_name(name: str) -> None:
    """Raise a UserError unless a name is a relative path of plain parts that every file system takes."""
    shown = f"{name[:80]!r}"
    parts = name.split("/")
    if name.startswith(("/", "\\")) or re.match(r"^[A-Za-z]:", name):
        raise UserError(f"Refusing bundle: the name of member {shown} is an absolute path")
    if ".." in parts:
        raise UserError(f"Refusing bundle: member {shown} points outside the archive")
    if _FORBIDDEN.search(name):
        raise UserError(f"Refusing bundle: the name of member {shown} has backslashes, colons or control characters")
    if len(name.encode(errors="surrogatepass")) > _MAX_NAME or len(parts) > _MAX_DEPTH:
        raise UserError(f"Refusing bundle: the name of member {shown} is too long or too deep")
    for part in parts:
        if not part or part == "." or part != part.strip() or part.endswith(".") or _DEVICES.match(part):
            raise UserError(f"Refusing bundle: some computers cannot write a file named {shown}")
        if part.startswith(".") or len(part.encode(errors="surrogatepass")) > _MAX_PART:
            raise UserError(f"Refusing bundle: the name of member {shown} is hidden or too long")


def _folded(name: str) -> str:
    """Return a name as file systems see it that ignore case and the spelling of accents."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


BUNDLE_VERSION = 1
MANIFEST = "manifest.json"
FORMAT = "holdfast-bundle"
MAX_MANIFEST = 64 << 20

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


class _ManifestPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Member(_ManifestPart):
    """What the manifest says of a file."""

    bytes: Count
    sha256: Digest


class Manifest(_ManifestPart):
    """``manifest.json``."""

    format: Literal["holdfast-bundle"]
    version: Annotated[int, Field(ge=1)]
    schema_version: Annotated[int, Field(ge=1)]
    holdfast: Annotated[str, StringConstraints(max_length=100)]
    run: Annotated[str, StringConstraints(max_length=300)]
    counts: dict[str, Count]
    files: dict[str, Member]


def read_manifest(archive: zipfile.ZipFile, name: str) -> Manifest:
    """Read the manifest; a UserError for an unknown version, or if it does not list exactly the members."""
    members = {member.filename: member.file_size for member in archive.infolist()}
    if MANIFEST not in members:
        raise UserError(f"{name} has no {MANIFEST}: it is not a bundle of Holdfast's")
    if members[MANIFEST] > MAX_MANIFEST:
        raise UserError(f"the {MANIFEST} of {name} is larger than {MAX_MANIFEST >> 20} MB")
    text = b"".join(chunks(archive, MANIFEST, size=members[MANIFEST]))
    value = parse_foreign_json(text, MANIFEST)
    _check_versions(value, name)
    try:
        manifest = Manifest.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])[:200]
        raise UserError(f"the {MANIFEST} of {name} is wrong at {place!r}: {first['msg']}") from None
    del members[MANIFEST]
    if odd := sorted(set(members) ^ set(manifest.files)):
        where = "is not in its manifest" if odd[0] in members else "is missing"
        raise UserError(f"{odd[0]!r} of {name} {where}")
    for member, size in members.items():
        stated = manifest.files[member].bytes
        if stated != size:
            raise UserError(f"{member!r} of {name} has {size} bytes, and the manifest says {stated}")
    return manifest


def _check_versions(value: Any, name: str) -> None:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UserError(f"{name} is not a bundle of Holdfast's: its {MANIFEST} says nothing of the kind")
    for what, known in (("version", BUNDLE_VERSION), ("schema_version", SCHEMA_VERSION)):
        given = value.get(what)
        if isinstance(given, int) and given > known:
            raise UserError(
                f"{name} was made by a newer Holdfast ({what.replace('_', ' ')} {given}; this one reads up to "
                f"{known}): update Holdfast to open it"
            )
