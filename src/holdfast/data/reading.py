"""Shared by the readers: finding files, unique ids, paths inside a root, joining masks, making a collection."""

from __future__ import annotations

import csv
import dataclasses
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import Name, split_list
from holdfast.core.places import address, folders_and_files, place, reaching, walk
from holdfast.core.types import ClassKeys, Collection, Problem, Sample
from holdfast.data.images import IMAGE_SUFFIXES
from holdfast.data.masks import MASK_FORMATS, FileMask
from holdfast.registry import nearest, unknown

MASK_PREFERENCE = (".png", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".pgm", ".pbm", ".ppm", ".jpg", ".jpeg", ".jpe")
"""Order of preference among several masks of one name: lossless ones first."""

_UNREADABLE_IMAGES = frozenset(
    {
        ".heic",
        ".heif",
        ".avif",
        ".jp2",
        ".j2k",
        ".jxl",
        ".tga",
        ".psd",
        ".svg",
        ".ico",
        ".exr",
        ".hdr",
        ".dng",
        ".cr2",
        ".nef",
    }
)
_WNID = re.compile(r"n\d{8}")


def existing(path: str | Path, what: str) -> Path:
    """Return the path if it exists; otherwise a UserError names the nearest names beside it."""
    path = place(path)
    if url := address(path):
        with reaching(url):
            if path.exists():
                return path
        raise UserError(f"{what} {url!r} does not exist")
    if path.exists():
        return path
    missing = path
    while not missing.parent.exists() and missing.parent != missing:
        missing = missing.parent
    try:
        close = nearest(missing.name, [entry.name for entry in missing.parent.iterdir()])
    except OSError:
        close = []
    hint = f"; did you mean {', '.join(str(missing.parent / name) for name in close)}?" if close else ""
    raise UserError(f"{what} {str(path)!r} does not exist{hint}")


def text_options(name: Name, known: Iterable[str]) -> dict[str, str]:
    """Return the options of a name as text; UserError for one that the reader does not know."""
    for option in name.options:
        if option not in known:
            raise unknown(f"{name.scheme or 'data'} option", option, known)
    options = {option: str(value) for option, value in name.options.items()}
    if options.get("mask_format", "auto") not in MASK_FORMATS:
        raise unknown("mask format", options["mask_format"], MASK_FORMATS)
    return options


def chosen(text: str, available: Iterable[str], what: str) -> list[str]:
    """Return the names of a comma list, or all available ones where it is empty; UserError for unknown names."""
    known = list(available)
    names = split_list(text) or known
    for name in names:
        if name not in known:
            raise unknown(what, name, known)
    return names


def walk_images(folder: Path, problems: list[Problem]) -> Iterator[str]:
    """Return image files under a folder, as sorted relative paths with forward slashes; no stat per file.

    Hidden files and folders and files of other kinds are passed over; images in formats that cannot be read are a
    problem per suffix. Links to files are followed, links to folders below ``folder`` are not: they may form rings.
    """
    unreadable: Counter[str] = Counter()
    for relative in sorted(walk(folder) if address(folder) else _walk(os.fspath(folder), "", problems)):
        suffix = os.path.splitext(relative)[1].lower()  # noqa: PTH122  (a Path per file is most of the walk's time)
        if suffix in IMAGE_SUFFIXES:
            yield relative
        elif suffix in _UNREADABLE_IMAGES:
            unreadable[suffix] += 1
    for suffix, count in sorted(unreadable.items()):
        problems.append(
            Problem(
                f"{folder.name}/*{suffix}", f"{count} {suffix} file(s) were passed over; convert them to PNG or JPEG"
            )
        )


def _walk(folder: str, prefix: str, problems: list[Problem]) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(entry.path, f"{prefix}{entry.name}/", problems)
                elif entry.is_file():
                    yield prefix + entry.name
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else "input/output error"
        problems.append(Problem(prefix or Path(folder).name, f"the folder cannot be read: {reason}"))


def visible_folders(folder: Path) -> list[str]:
    """Return names of the folders in a folder, sorted, without hidden ones."""
    if address(folder):
        return [name for name in folders_and_files(folder)[0] if not name.startswith(".")]
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise UserError(f"{str(folder)!r} cannot be read: {error.strerror or error}") from error


def visible_files(folder: Path) -> list[str]:
    """Return names of the files in a folder, sorted, without hidden ones."""
    if address(folder):
        return [name for name in folders_and_files(folder)[1] if not name.startswith(".")]
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_file())


def without_suffix(relative: str) -> str:
    """Return a relative path without its file suffix."""
    return os.path.splitext(relative)[0]  # noqa: PTH122


def unique_ids(short: Sequence[str], full: Sequence[str]) -> list[str]:
    """Return the short id where it is unique, else the full one.

    So ``dog/a.jpg`` is ``dog/a``, unless there is a ``dog/a.png`` too: then both keep their suffix.
    """
    ids = list(short)
    while True:
        counts = Counter(ids)
        clashing = [index for index, sample_id in enumerate(ids) if counts[sample_id] > 1 and sample_id != full[index]]
        if not clashing:
            return ids
        for index in clashing:
            ids[index] = full[index]


class InsideRoot:
    """Resolves relative paths of an untrusted list to files that really lie under a root folder."""

    def __init__(self, root: Path) -> None:
        self._url = address(root)
        self._root = Path(os.path.realpath(root)) if not self._url else root
        self._folders: dict[str, str] = {}
        self._there: dict[str, frozenset[str]] = {}

    def file(self, relative: str) -> str:
        """Return the file's path; SampleError where it leaves the root (``..``, absolute, a link) or is missing."""
        pure = PurePosixPath(relative.replace("\\", "/"))
        if "\0" in relative or not relative.strip():
            raise SampleError("the path is empty")
        if pure.is_absolute() or re.match(r"[A-Za-z]:", relative) or ".." in pure.parts:
            raise SampleError(f"the path {relative!r} leads outside the dataset; set the folder with ?root=DIR")
        parent = pure.parent.as_posix()
        if self._url:
            return self._object(relative, parent, pure.name)
        if parent not in self._folders:
            self._folders[parent] = os.path.realpath(self._root / parent)
        path = f"{self._folders[parent]}/{pure.name}"
        if os.path.islink(path):  # noqa: PTH114
            path = os.path.realpath(path)
        if not Path(path).is_relative_to(self._root):
            raise SampleError(f"the path {relative!r} is a link that leads outside the dataset")
        if not os.path.isfile(path):  # noqa: PTH113
            raise SampleError(f"there is no file {relative!r}")
        return path

    def _object(self, relative: str, parent: str, name: str) -> str:
        """Return the address of an object below the root, if it is listed there."""
        folder = self._url if parent == "." else f"{self._url}/{parent}"
        if folder not in self._there:
            try:
                self._there[folder] = frozenset(folders_and_files(folder)[1])
            except UserError:  # one that is not there
                self._there[folder] = frozenset()
        if name not in self._there[folder]:
            raise SampleError(f"there is no file {relative!r}")
        return f"{folder}/{name}"


def attach_masks(
    samples: Sequence[Sample], folder: Path, *, format: str = "auto", required: bool = True, by_source: bool = False
) -> list[Sample]:
    """Give each sample the mask file that bears its id (or its image's name), with any image suffix.

    What ``holdfast mask`` wrote is found by its list, as ids need not be file names.

    Args:
        samples: samples of any reader.
        folder: a tree of mask files: ``folder/<sample_id>.png``.
        format: how the files are read; see ``decode_mask``.
        required: no match at all is a UserError (a folder somebody named), not a shrug (one that was found).
        by_source: masks bear the ids of the originals, not of their renderings.
    """
    listed = _listed_masks(folder)
    matched: dict[str, tuple[int, str]] = {}
    for relative in walk_images(folder, []):
        stem, suffix = os.path.splitext(relative)  # noqa: PTH122
        rank = MASK_PREFERENCE.index(suffix.lower())
        if stem not in matched or rank < matched[stem][0]:
            matched[stem] = (rank, f"{folder}/{relative}")

    def mask_of(sample: Sample) -> str | None:
        identity = sample.source_id if by_source else sample.sample_id
        if identity in listed:
            return listed[identity]
        if identity not in matched and os.path.splitext(identity)[1].lower() in IMAGE_SUFFIXES:  # noqa: PTH122
            identity = without_suffix(identity)  # an id that keeps its suffix: dog/a.jpg beside dog/a.png
        return matched[identity][1] if identity in matched else None

    paths = [mask_of(sample) for sample in samples]
    if required and samples and not any(paths):
        raise UserError(
            f"no mask in {str(folder)!r} bears the name of an image; "
            f"that of {samples[0].sample_id!r} would be {folder / samples[0].sample_id}.png"
        )
    return [
        sample if path is None else dataclasses.replace(sample, mask=FileMask(path, format))
        for sample, path in zip(samples, paths, strict=True)
    ]


def _listed_masks(folder: Path) -> dict[str, str]:
    """Return the mask file of each sample id from the ``masks.csv`` of ``holdfast mask``; other lists are ignored."""
    masks: dict[str, str] = {}
    inside = InsideRoot(folder)
    try:
        with (folder / "masks.csv").open(encoding="utf-8-sig", newline="") as stream:
            for row in csv.DictReader(stream):
                if row.get("status") == "ok" and row.get("sample_id") and row.get("path"):
                    with suppress(SampleError):  # a file that is gone, or lies elsewhere
                        masks[row["sample_id"]] = inside.file(row["path"])
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}
    return masks


def wordnet_keys(classes: Iterable[str]) -> dict[str, ClassKeys]:
    """Return the keys of classes whose names are WordNet ids, such as n01689811."""
    return {name: ClassKeys(wnids=(name,)) for name in classes if _WNID.fullmatch(name)}


def without_repeats(samples: Iterable[Sample], problems: list[Problem]) -> list[Sample]:
    """Return the first sample of every id; the others become problems."""
    kept: dict[str, Sample] = {}
    repeats: Counter[str] = Counter()
    for sample in samples:
        if sample.sample_id not in kept:
            kept[sample.sample_id] = sample
            continue
        repeats[sample.sample_id] += 1
        problems.append(
            Problem(
                f"{sample.sample_id}#{repeats[sample.sample_id] + 1}", f"the id {sample.sample_id!r} is taken already"
            )
        )
    return list(kept.values())


def finish(
    name: str,
    samples: Sequence[Sample],
    problems: list[Problem],
    *,
    where: str,
    classes: Iterable[str] | None = None,
    keys: Mapping[str, ClassKeys] | None = None,
) -> Collection:
    """Return the collection; UserError where it has no sample.

    ``classes`` gives the order of classes (sorted by name where there is none); those without a sample are left out
    and become problems.
    """
    if not samples:
        first = f"; the first problem: {problems[0].sample_id}: {problems[0].message}" if problems else ""
        raise UserError(f"no usable image in {where}{first}")
    present = {sample.label for sample in samples}
    listed = list(dict.fromkeys(sorted(present) if classes is None else classes))
    problems.extend(Problem(label, f"the class {label!r} has no image") for label in listed if label not in present)
    used = tuple(label for label in listed if label in present)
    return Collection(
        name=name,
        classes=used,
        samples=tuple(samples),
        keys={label: key for label, key in (keys or {}).items() if label in present},
        problems=tuple(problems),
    )
