"""``manifest.json`` of a bundle: versions, counts, and the size and hash of every file."""

from __future__ import annotations

import zipfile
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from holdfast.core.errors import UserError
from holdfast.core.schema import SCHEMA_VERSION
from holdfast.exchange import archive as archives
from holdfast.store.foreign import parse_foreign_json

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
        raise UserError(f"{name} has no {MANIFEST}: it is no bundle of Holdfast's")
    if members[MANIFEST] > MAX_MANIFEST:
        raise UserError(f"the {MANIFEST} of {name} is larger than {MAX_MANIFEST >> 20} MB")
    text = b"".join(archives.chunks(archive, MANIFEST, size=members[MANIFEST]))
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
        raise UserError(f"{name} is no bundle of Holdfast's: its {MANIFEST} says nothing of the kind")
    for what, known in (("version", BUNDLE_VERSION), ("schema_version", SCHEMA_VERSION)):
        given = value.get(what)
        if isinstance(given, int) and given > known:
            raise UserError(
                f"{name} was made by a newer Holdfast ({what.replace('_', ' ')} {given}; this one reads up to "
                f"{known}): update Holdfast to open it"
            )
