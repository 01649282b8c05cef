"""Remove from a run's texts what they say of the machine: paths, users, servers.

What was ``/home/ann/photos/cat/1.jpg`` reads ``photos/cat/1.jpg``. Two paths that end in the same name stay apart, so
that two models do not become one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.core.places import SCHEMES, address

Clean = Callable[[str], str]

_SCHEMES = re.compile(r"^(?:[A-Za-z][\w.+-]+:)+(?!//)")
_ABSOLUTE = re.compile(r"^(?:/|~|\.\.(?:/|$)|[A-Za-z]:[\\/]|\\\\)")
_EMBEDDED = re.compile(r"(?<![\w/.~<-])(?:~|[A-Za-z]:|\.\.)?(?:[\\/][^\s\\/,;:?&'\"<>|()\[\]{}]+){2,}[\\/]?")
_SERVER = re.compile(r"(?<=vlm\+http://)[^/\s#?\"']+|(?<=vlm\+https://)[^/\s#?\"']+")
_STORE = re.compile(rf"\b(?:{'|'.join(SCHEMES)}):/{{1,2}}[^\s,;?&'\"<>]+")
_SECRETS = re.compile(r"(?<=//)[^/\s@\"']+@")
_BETWEEN = re.compile(r"[?&=,#@+]")
_HOMES = ("home", "Users")


def cleaner(texts: Iterable[str], folders: Iterable[str] = ()) -> Clean:
    """Return the function that cleans texts for others.

    Paths are looked for in ``texts``, and each gets a short name of its own; ``folders`` are known to occur.
    """
    secrets: set[str] = {str(folder).rstrip("/") for folder in folders}
    servers: set[str] = set()
    for text in texts:
        secrets |= {path.rstrip("/\\") for path in _paths(text)}
        servers |= {address.rpartition("@")[2] for address in _SERVER.findall(text)}
    taken: set[str] = set()  # if several paths end alike, they get numbers
    short = {path: free_name(_last(path), taken, joint="-") for path in sorted(secrets - {""})}
    paths = _any_of(short, before=r"(?<![\w/])")
    aliases = {server: f"server-{number}" for number, server in enumerate(sorted(servers), start=1)}
    addresses = _any_of(aliases, before=r"(?<![\w.])")

    def clean(text: str) -> str:
        text = _STORE.sub(lambda match: _in_store(match.group()), _SECRETS.sub("", text))
        if addresses is not None:
            text = addresses.sub(lambda match: aliases[match.group()], text)
        if "/" not in text and "\\" not in text and "~" not in text:
            return text
        if paths is not None:
            text = paths.sub(lambda match: short[match.group()], text)
        return _EMBEDDED.sub(lambda match: _last(match.group()), text)

    return clean


def _any_of(names: Iterable[str], *, before: str) -> re.Pattern[str] | None:
    """Return a pattern of any of these texts, the longest first, that does not match the beginning of a longer one."""
    known = sorted(names, key=lambda name: (-len(name), name))
    return re.compile(rf"{before}(?:{'|'.join(map(re.escape, known))})(?!\w|\.\w|-)") if known else None


def clean_values(value: Any, clean: Clean) -> Any:
    """Return a JSON value with every text in it cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {str(name): clean_values(inner, clean) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_values(inner, clean) for inner in value]
    return value


def clean_command(command: str, clean: Clean) -> str:
    """Return a command line, cleaned word by word, because a path may hold spaces."""
    try:
        return shlex.join(clean(word) for word in shlex.split(command))
    except ValueError:
        return clean(command)


def texts_in(value: Any) -> list[str]:
    """Return all texts of a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for inner in value.values() for text in texts_in(inner)]
    if isinstance(value, (list, tuple)):
        return [text for inner in value for text in texts_in(inner)]
    return []


def words_of(command: str) -> list[str]:
    """Return the words of a command line."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _paths(text: str) -> list[str]:
    """Return the paths in ``scheme:PATH@tag?option=PATH``, in a list of such names, or in a sentence."""
    parts = [_SCHEMES.sub("", part) for part in _BETWEEN.split(text)]
    return [part for part in parts if _ABSOLUTE.match(part)] + _EMBEDDED.findall(text)


def _last(path: str) -> str:
    parts = PurePosixPath(path.replace("\\", "/").rstrip("/")).parts
    if not parts or parts[-1] in ("/", "~", ".."):
        return "folder"
    if Path(path).expanduser() == Path.home() or (len(parts) == 3 and parts[1] in _HOMES):
        return "home"
    return parts[-1]


def _in_store(url: str) -> str:
    """Return the last part of an address, without its bucket."""
    _, *folders = address(url).partition("://")[2].split("/")
    return folders[-1] if folders else "bucket"


def free_name(base: str, taken: set[str], *, joint: str = "_", ignore_case: bool = False) -> str:
    """Return a name that is not taken, with a number if it has to, and take it; some disks ignore case."""
    name, number = base, 2
    while (name.lower() if ignore_case else name) in taken:
        name, number = f"{base}{joint}{number}", number + 1
    taken.add(name.lower() if ignore_case else name)
    return name
