"""Files that are damaged, and hostile files: mutations of a corpus that grows with each finding."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from storm_verbs import MODEL, WALK

if TYPE_CHECKING:
    from storm import Storm

TOKENS = (
    b"\0", b"\xff" * 8, b"-1", b"1e999", b"NaN", b"null", b"[" * 2000, b'{"a":' * 2000, b"../../etc/passwd", b"\x1b[2J",
    b"99999999999999999999", b'"', b",", b"\n", b"=1+1", "\u202e\u200b".encode(), b"\xed\xa0\x80",
    b"\xff\xff\xff\x7f", b"%s%n",
)  # fmt: skip


def damaged(path: Path, draw: random.Random) -> str:
    """Damage a file as disks do (a flipped bit, a cut, zeros, nothing left), and say how."""
    data = bytearray(path.read_bytes())
    how = draw.choice(("bit", "bit", "bit", "cut", "zeros", "empty")) if data else "empty"
    at = draw.randrange(len(data)) if data else 0
    if how == "bit":
        data[at] ^= 1 << draw.randrange(8)
    elif how == "cut":
        del data[at:]
    elif how == "zeros":
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    else:
        data.clear()
    path.write_bytes(data)
    return f"{path.name} ({how} at {at})"


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return data with one to four changes that programs do not expect."""
    for _ in range(draw.randint(1, 4)):
        at, other = (draw.randrange(len(data) + 1) for _ in range(2))
        first, last = sorted((at, other))
        change = draw.choice(("flip", "token", "token", "delete", "repeat", "cut", "swap"))
        if change == "flip" and data:
            place = min(at, len(data) - 1)
            data = data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]
        elif change == "token":
            token = draw.choice(TOKENS)
            data = data[:at] + token + data[at + draw.choice((0, len(token))) :]
        elif change == "delete":
            data = data[:first] + data[min(last, first + 64) :]
        elif change == "repeat":
            data = data[:first] + data[first : first + 256] * draw.randint(2, 40) + data[first:]
        elif change == "cut":
            data = data[:at]
        else:
            data = data[first:last] + data[:first] + data[last:]
    return data


Recipe = Callable[["Storm", Path, random.Random], tuple[Path, list[str]]]


def _copy(storm: Storm, part: str) -> Path:
    """Return a copy of a part of the world that may be spoilt."""
    place = storm.folder / "hostile" / part
    source = storm.world / part
    shutil.rmtree(storm.folder / "hostile", ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, place)
    else:
        place.parent.mkdir(parents=True)
        shutil.copy(source, place)
    return place


def _image(storm: Storm, source: Path, draw: random.Random) -> tuple[Path, list[str]]:
    photos = _copy(storm, "photos")
    folder = sorted((photos / "images").iterdir())[0]
    data = str(photos)
    commands = (
        f"eval DATA --models {MODEL} --scenarios original,blur_background --out {{out}} -q",
        f"eval DATA --models {MODEL} --scenarios original --fast --out {{out}} -q",
        "synth DATA --scenarios static --out {out} -q",
        "segment DATA --models embedded:unet --scenarios original --out {out} -q",
        f"check {MODEL} DATA --out {{out}} -q", f"perturb DATA --models {MODEL} {WALK} --out {{out}} -q",
        "share export DATA --to huggingface --out {out} -q", "mask DATA/images --out {out} -q",
        "data duplicates DATA/images DATA/images", "data split DATA/images --out {out}/split.csv",
    )  # fmt: skip
    if source.suffix == ".mask":
        place = sorted((photos / "masks").rglob("*.png"))[0]
        commands = commands[:7]
    else:
        place = folder / f"hostile{source.suffix}" if draw.random() < 0.5 else sorted(folder.iterdir())[0]
    return place, [word.replace("DATA", data) for word in draw.choice(commands).split()]


def _in_copy(part: str, pattern: str, *commands: str) -> Recipe:
    """A file in a copy of a part of the world is replaced; PART is that copy, FILE the file."""

    def recipe(storm: Storm, source: Path, draw: random.Random) -> tuple[Path, list[str]]:
        copy = _copy(storm, part)
        place = copy if copy.is_file() else sorted(copy.glob(pattern))[0] if "*" in pattern else copy / pattern
        words = draw.choice(commands).replace("WORLD", str(storm.world))
        return place, [word.replace("PART", str(copy)).replace("FILE", str(place)) for word in words.split()]

    return recipe


def _beside(name: str, *commands: str) -> Recipe:
    """A file of its own; FILE is it, WORLD the world."""

    def recipe(storm: Storm, source: Path, draw: random.Random) -> tuple[Path, list[str]]:
        place = storm.folder / "hostile" / name.replace(".*", source.suffix)
        words = draw.choice(commands).replace("WORLD", str(storm.world))
        return place, [word.replace("FILE", str(place)) for word in words.split()]

    return recipe


_READERS = (
    "report PART --resamples 100 --out {out}", "share bundle PART --out {out}/run.zip -q", "board add PART --out {out}",
    "report PART --choose --speed none --resamples 100 --out {out} -q",
    "share export PART --to huggingface --out {out} -q",
    f"eval WORLD/photos --models {MODEL} --scenarios original,grey --out PART -q",
)  # fmt: skip
_EVAL = f"eval WORLD/photos --models {MODEL} --scenarios original"
HOSTILE: dict[str, Recipe] = {
    "image": _image,
    "mask": _image,
    "spec": _in_copy("run", "spec.json", *_READERS),
    "samples": _in_copy("run", "samples.parquet", *_READERS),
    "part": _in_copy("run", "predictions/*.parquet", *_READERS),
    "bundle": _beside("run.zip", "share open FILE --out {out}"),
    "entry": _in_copy("board", "*.json", "board check PART", "board build PART --workers 1 --out {out}"),
    "entry table": _in_copy("board", "*.parquet", "board check PART", "board build PART --workers 1 --out {out}"),
    "pool": _in_copy("pool", "manifest.csv", f"eval PART --models {MODEL} --scenarios original --out {{out}} -q"),
    "labels": _beside("labels.*", f"{_EVAL} --labels FILE --out {{out}} -q"),
    "manifest": _beside("manifest.csv", f"eval FILE --models {MODEL} --scenarios original --out {{out}} -q",
                        "data split FILE --out {out}/split.csv"),
    "coco": _beside("coco.json", *(f"eval FILE?images=WORLD/scenes --models {model} --scenarios original --limit 3 "
                                   "--out {out} -q" for model in (MODEL, "embedded:boxes_rho95"))),
    "weights": _beside("model.*", "eval WORLD/photos --models torch:test_resnet@FILE --scenarios original --out {out}"),
    "network": _beside("model.*", "eval WORLD/photos --models onnx:FILE --scenarios original --out {out} -q"),
    "meta": _beside("meta.toml", "board add WORLD/run --meta FILE --out {out}"),
    "table": _beside("table.csv", "audit table FILE"),
    "words": _beside("words.*",
                     f"ask WORLD/photos --models {MODEL} --questions full_list --synonyms FILE --out {{out}} -q",
                     "generate --generator embedded: --limit 2 --templates FILE --out {out} -q",
                     "mine modes WORLD/hard --words FILE --oracle clip:embedded --out {out}"),
}  # fmt: skip
"""Kinds of hostile files: where one is put, and the commands that read it there."""
