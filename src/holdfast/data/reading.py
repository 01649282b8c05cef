"""Shared by the readers: finding files, unique ids, paths inside a root, joining masks, making a collection."""

from __future__ import annotations

import csv
import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import Name, nearest, split_list, unknown, visible
from holdfast.core.places import address, folders_and_files, last_name, place, reaching, resolved, walk
from holdfast.core.types import ClassKeys, Collection, Problem, Sample
from holdfast.data.images import IMAGE_SUFFIXES
from holdfast.data.masks import MASK_FORMATS, VOID, FileMask

MASK_PREFERENCE = (".png", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".pgm", ".pbm", ".ppm", ".jpg", ".jpeg", ".jpe")
"""Order of preference among several masks of one name: lossless ones first."""

_UNREADABLE_IMAGES = frozenset(
    {".heic", ".heif", ".avif", ".jp2", ".j2k", ".jxl", ".tga", ".psd", ".svg", ".ico", ".exr", ".hdr", ".dng"}
    | {".cr2", ".nef"}
)
IMAGE_FOLDERS = ("images", "image")
"""Folders whose own name says nothing: the one above names the dataset."""

_WNID = re.compile(r"n\d{8}")


def existing(path: str | Path, what: str) -> Path:
    """Return the path if it exists; otherwise a UserError names the nearest names next to it."""
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
        # A script is not a dataset: next to folders only files of the same kind, or with the same stem, are meant.
        beside = [
            entry.name for entry in missing.parent.iterdir()
            if entry.is_dir() or entry.suffix == missing.suffix or entry.stem == missing.name
        ]  # fmt: skip
    except OSError:
        beside = []
    names = sorted(name for name in beside if not name.startswith("."))
    some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    hint = f"; {missing.parent.resolve()} has {some or 'no folder'}"
    if close := nearest(missing.name, beside)[:1]:
        hint = f"; did you mean {missing.parent / close[0]}?"
    raise UserError(f"{what} {str(path)!r} does not exist{hint}")


def text_options(name: Name, known: Iterable[str]) -> dict[str, str]:
    """Return the options of a name as text; UserError for one that the reader does not know.

    Every reader knows ``mask_format``, and ``void=N``: the value of mask files that is neither object nor background.
    """
    known = (*known, "mask_format", "void")
    for option in name.options:
        if option not in known:
            raise unknown(f"{name.scheme or 'data'} option", option, known)
    options = {"mask_format": "auto"} | {option: name.text(option) for option in name.options}
    if options["mask_format"] not in MASK_FORMATS:
        raise unknown("mask format", options["mask_format"], MASK_FORMATS)
    if "void" in options:
        void = options.pop("void")
        if not (void.isdecimal() and 0 < int(void) < 256) or options["mask_format"] not in ("auto", "index"):
            raise UserError(
                f"void is a value from 1 to 255 of masks that hold indices, not {void!r}; say void=255 alone"
            )
        options["mask_format"] = "index" if int(void) == VOID else f"void={void}"
    return options


def chosen(text: str, available: Iterable[str], what: str) -> list[str]:
    """Return the names of a comma list, or all available ones if it is empty; UserError for unknown names."""
    known = list(available)
    names = split_list(text) or known
    for name in names:
        if name not in known:
            raise unknown(what, name, known)
    return names


def walk_images(folder: Path, problems: list[Problem]) -> Iterator[str]:
    """Return image files under a folder, as sorted relative paths with forward slashes; no stat per file.

    Hidden files and folders and files of other kinds are passed over; images in formats that cannot be read are a
    problem per suffix. Links to files are followed; links to folders below ``folder`` are not, since they may form
    rings: they are problems.
    """
    unreadable: Counter[str] = Counter()
    for relative in sorted(walk(folder) if address(folder) else _walk(os.fspath(folder), "", problems)):
        suffix = os.path.splitext(relative)[1].lower()  # noqa: PTH122  (a Path per file is most of the walk's time)
        if suffix in IMAGE_SUFFIXES:
            yield relative
        elif suffix in _UNREADABLE_IMAGES:
            unreadable[suffix] += 1
    for suffix, count in sorted(unreadable.items()):
        message = f"{count} {suffix} file(s) were passed over; convert them to PNG or JPEG"
        problems.append(Problem(f"{folder.name}/*{suffix}", message))


def _walk(folder: str, prefix: str, problems: list[Problem]) -> Iterator[str]:
    try:
        for name, is_folder, is_link in _entries(folder, problems, f"{Path(folder).name}/"):
            if is_folder and is_link:
                message = "the link to a folder is not followed; put the folder itself there"
                problems.append(Problem(f"{Path(folder).name}/{name}", message))
            elif is_folder:
                yield from _walk(f"{folder}/{name}", f"{prefix}{name}/", problems)
            else:
                yield prefix + name
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else "input/output error"
        problems.append(Problem(prefix or Path(folder).name, f"the folder cannot be read: {reason}"))


def _entries(folder: str | Path, problems: list[Problem], prefix: str = "") -> Iterator[tuple[str, bool, bool]]:
    """Yield the name of each visible file and folder of a folder, whether it is a folder, and whether it is a link.

    What has a name that is not UTF-8 and what is a link to nothing becomes a problem.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if any("\ud800" <= letter <= "\udfff" for letter in entry.name):  # bytes that are not text
                problems.append(Problem(prefix + visible(entry.name), "the name is not UTF-8; rename it"))
                continue
            is_link = entry.is_symlink()
            try:
                is_folder = entry.is_dir()
                is_file = not is_folder and entry.is_file()
            except OSError:  # a link to itself, or through itself
                is_folder = is_file = False
            if is_folder or is_file:
                yield entry.name, is_folder, is_link
            elif is_link:
                problems.append(Problem(prefix + entry.name, "the link leads nowhere; fix or remove it"))


def visible_folders(folder: Path, problems: list[Problem] | None = None) -> list[str]:
    """Return names of the folders in a folder, sorted, without hidden ones."""
    return _visible(folder, problems)[0]


def visible_files(folder: Path, problems: list[Problem] | None = None) -> list[str]:
    """Return names of the files in a folder, sorted, without hidden ones."""
    return _visible(folder, problems)[1]


def _visible(folder: Path, problems: list[Problem] | None) -> tuple[list[str], list[str]]:
    if address(folder):
        folders, files = folders_and_files(folder)
        return [name for name in folders if name[0] != "."], [name for name in files if name[0] != "."]
    try:
        entries = sorted(_entries(folder, [] if problems is None else problems))
    except OSError as error:
        raise UserError(f"{str(folder)!r} cannot be read: {error.strerror or error}") from error
    return [name for name, is_folder, _ in entries if is_folder], [
        name for name, is_folder, _ in entries if not is_folder
    ]


def collection_name(root: Path) -> str:
    """Return a collection's name: the folder's own name, which survives moving it."""
    folder = resolved(root)
    return last_name(folder.parent if last_name(folder) in IMAGE_FOLDERS else folder) or "images"


def images_below(root: Path, folder: str, problems: list[Problem]) -> list[tuple[str, str]]:
    """Return id and path of the images below a folder of a root; an id is ``folder/stem``, see ``unique_ids``."""
    files = [f"{folder}/{relative}" for relative in walk_images(root / folder, problems)]
    ids = unique_ids(list(map(without_suffix, files)), files)
    return [(sample_id, f"{root}/{file}") for sample_id, file in zip(ids, files, strict=True)]


def without_suffix(relative: str) -> str:
    """Return a relative path without its file suffix."""
    return os.path.splitext(relative)[0]  # noqa: PTH122


def unique_ids(short: Sequence[str], full: Sequence[str]) -> list[str]:
    """Return the short id if it is unique, else the full one.

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
    """Resolves relative paths of an untrusted list to files that really are under a root folder.

    ``option`` is the option of the list's reader that names another root, for errors.
    """

    def __init__(self, root: Path, option: str = "root") -> None:
        self._option = option
        self._url = address(root)
        self._root = Path(os.path.realpath(root)) if not self._url else root
        self._folders: dict[str, str] = {}
        self._there: dict[str, frozenset[str]] = {}

    def file(self, relative: str) -> str:
        """Return the file's path; SampleError if it leaves the root (``..``, absolute, a link) or is missing."""
        pure = PurePosixPath(relative.replace("\\", "/"))
        if "\0" in relative or not relative.strip():
            raise SampleError("the path is empty")
        if pure.is_absolute() or re.match(r"[A-Za-z]:", relative) or ".." in pure.parts:
            raise SampleError(
                f"the path {relative!r} leads outside the dataset; set the folder with ?{self._option}=DIR"
            )
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
    samples: Sequence[Sample],  # samples of any reader
    folder: Path,  # a tree of mask files: ``folder/<sample_id>.png``
    *,
    format: str = "auto",  # how the files are read; see ``decode_mask``
    required: bool = True,  # no match at all is a UserError (a folder someone named), not a shrug (one that was found)
    by_source: bool = False,  # masks bear the ids of the originals, not of their renderings
    fits: Callable[[Sample], bool] | None = None,  # says which samples can have such a mask; None: all
    problems: list[Problem] | None = None,  # masks of no image are added to these, as one problem
) -> list[Sample]:
    """Give each sample the mask file that bears its id (or its image's name), with any image suffix.

    What ``holdfast mask`` wrote is found by its list, as ids need not be file names.
    """
    listed: dict[str, str] = {}  # by the list of ``holdfast mask``; other lists are ignored
    inside = InsideRoot(folder)
    for row in _mask_rows(folder):
        with suppress(SampleError):  # a file that is gone, or is elsewhere
            listed[row["sample_id"]] = inside.file(row["path"])
    matched: dict[str, tuple[int, str]] = {}
    for relative in walk_images(folder, [] if problems is None else problems):
        stem, suffix = os.path.splitext(relative)  # noqa: PTH122
        rank = MASK_PREFERENCE.index(suffix.lower())
        if stem not in matched or rank < matched[stem][0]:
            matched[stem] = (rank, f"{folder}/{relative}")
    used: set[str] = set()

    def mask_of(sample: Sample) -> str | None:
        identity = sample.source_id if by_source else sample.sample_id
        if identity in listed and (fits is None or fits(sample)):
            return listed[identity]
        if identity not in matched and os.path.splitext(identity)[1].lower() in IMAGE_SUFFIXES:  # noqa: PTH122
            identity = without_suffix(identity)  # an id that keeps its suffix: dog/a.jpg next to dog/a.png
        used.add(identity)
        return matched[identity][1] if identity in matched and (fits is None or fits(sample)) else None

    paths = [mask_of(sample) for sample in samples]
    if required and samples and not any(paths):
        raise UserError(
            f"no mask in {str(folder)!r} bears the name of an image; "
            f"that of {samples[0].sample_id!r} would be {folder / samples[0].sample_id}.png"
        )
    unused = [] if listed else sorted(matched.keys() - used)
    if problems is not None and unused:
        message = f"{len(unused)} mask(s) bear the name of no image; rename them as their images are called"
        problems.append(Problem(f"{last_name(folder)}/{unused[0]}", message))
    return [
        sample if path is None else dataclasses.replace(sample, mask=FileMask(path, format))
        for sample, path in zip(samples, paths, strict=True)
    ]


def _mask_rows(folder: Path) -> list[dict[str, str]]:
    """Return the rows of good masks in the ``masks.csv`` of ``holdfast mask``; none if there is no such list."""
    try:
        with (folder / "masks.csv").open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error):
        return []
    return [row for row in rows if row.get("status") == "ok" and row.get("sample_id") and row.get("path")]


KEPT = "the dataset's own"  # stands for the mask maker if there was none
DOUBTFUL = 0.5
"""Automatic masks with a lower confidence are doubtful."""


def doubtful_masks(folder: str | Path | None) -> frozenset[str]:
    """Return the sample ids whose mask ``holdfast mask`` doubts; nothing if the folder has no list of it."""
    rows = made_masks(Path(folder)) if folder else []
    return frozenset(row["sample_id"] for row in rows if row["confidence"] < DOUBTFUL)


def made_masks(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the masks that ``holdfast mask`` made in a folder, with the confidence as a number."""
    rows = [row for row in _mask_rows(folder) if row.get("annotator") != KEPT]
    known = [row for row in rows if re.fullmatch(r"[\d.e+-]+", row.get("confidence") or "")]
    return [{**row, "confidence": float(row["confidence"])} for row in known]


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
    masks: Path | None = None,
    empty: Iterable[Sample] = (),
    object_classes: Iterable[str] = (),
    separator: str = "",
    **joining: Any,
) -> Collection:
    """Return the collection, with the masks of a folder where one is given; UserError if it has no sample.

    ``classes`` gives the order of classes (sorted by name if there is none); those without a sample are left out
    and become problems. ``empty``, ``object_classes`` and ``separator`` are those of ``Collection``; ``joining`` holds
    further arguments of ``attach_masks``.
    """
    if not samples:
        first = f"; the first problem: {problems[0].sample_id}: {problems[0].message}" if problems else ""
        raise UserError(f"no usable image in {where}{first}")
    if masks is not None:
        samples = attach_masks(samples, masks, problems=problems, **joining)
    present = {sample.label for sample in samples}
    listed = list(dict.fromkeys(sorted(present) if classes is None else classes))
    problems.extend(Problem(label, f"the class {label!r} has no image") for label in listed if label not in present)
    return Collection(
        name=name,
        classes=tuple(label for label in listed if label in present),
        samples=tuple(samples),
        keys={label: key for label, key in (keys or {}).items() if label in present},
        problems=tuple(problems),
        empty=tuple(empty),
        object_classes=tuple(object_classes),
        separator=separator,
    )


def finish_folder(root: Path, samples: Sequence[Sample], problems: list[Problem], **details: Any) -> Collection:
    """Return the collection of a folder, which names it; ``details`` are further arguments of ``finish``."""
    return finish(collection_name(root), samples, problems, where=repr(str(root)), **details)
