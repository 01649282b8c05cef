"""What a storm does to commands: each function is one kind of trouble, and returns what went wrong, or ""."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from storm_inputs import HOSTILE, damaged, mutated
from storm_process import Ended, command
from storm_resuming import (
    bad_server,
    changed_input,
    dying_model,
    failed_rename,
    falsified,
    foreign_page,
    full_scratch,
    interrupted,
    removed_folder,
    unreadable,
)
from storm_verbs import VERBS

if TYPE_CHECKING:
    from storm import Storm

BAD_SIGNS = ("Traceback (most recent call last)", "this should not have happened", "Fatal Python error", "core dumped")
FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
MAY_MOUNT = os.geteuid() == 0


def misbehaviour(ended: Ended, verb: str = "", *, ours: bool = False) -> str:
    """Return what no command may do, whatever happens to it; ``ours``: it was sent a signal."""
    expected = VERBS[verb].code if verb else 0
    text = ended.said + ended.complained
    for sign in BAD_SIGNS:
        if sign in text:
            return f"{sign}: {last_words(ended)}"
    if ended.left:
        return f"left processes running: {ended.left[0]}"
    if ended.code == 124:
        return "did not end"
    if ended.code < 0 and not ours:
        return f"died of {signal.Signals(-ended.code).name}: {last_words(ended)}"
    if ended.code > 0 and ended.code != expected and not explained(ended):
        return f"ended with {ended.code} without a sentence: {last_words(ended)}"
    return ""


def explained(ended: Ended) -> bool:
    """Whether the command says in a sentence what is wrong."""
    return "holdfast: " in ended.complained or "Error" in ended.complained or bool(ended.code == 1 and ended.said)


def last_words(ended: Ended) -> str:
    """Return the last line that the command said."""
    lines = (ended.complained.strip() or ended.said.strip()).splitlines()
    return lines[-1][:300] if lines else "(nothing was said)"


def continued(storm: Storm, verb: str, words: list[str]) -> str:
    """Give the command again and compare its folder with the undisturbed one."""
    known = VERBS[verb]
    again = command(words, storm.folder)
    if trouble := misbehaviour(again, verb):
        return f"when given again: {trouble}"
    if again.code != known.code:
        if not known.goes_on:  # it refuses a folder that is there; a new one must do
            storm.new_out(verb)
            again = command(words, storm.folder)
        if again.code != known.code:
            return f"given again it ends with {again.code}: {last_words(again)}"
    return storm.compare(verb, again)


def killed(storm: Storm, verb: str, draw: random.Random) -> str:
    """Kill a command (SIGKILL, SIGTERM or SIGINT) at any moment, up to three times, and let it continue."""
    words = storm.words(verb, workers=draw.random() < 0.2)
    for _ in range(draw.randint(1, 3)):
        number = draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        ended = command(words, storm.folder, kill=(number, draw.random() * storm.seconds(verb) * 1.1))
        storm.count("kills that hit", ended.hit and ended.code not in (0, VERBS[verb].code))
        if trouble := misbehaviour(ended, verb, ours=ended.hit):
            return trouble
        ends = {signal.SIGTERM: (143, -15), signal.SIGINT: (130, -2)}.get(number, (ended.code,))
        if ended.hit and ended.code not in (*ends, VERBS[verb].code):
            return f"{number.name}: ended with {ended.code}: {last_words(ended)}"
        if ended.code == VERBS[verb].code and (unlike := storm.compare(verb, ended)):
            return f"ended with {ended.code}, but {unlike}"
        if not VERBS[verb].goes_on:  # it refuses a folder that is there, as the killed command may have left it
            storm.new_out(verb)
    return continued(storm, verb, words)


def full_disk(storm: Storm, verb: str, draw: random.Random) -> str:
    """Give a command too small a disk (or, for users other than root, too small a largest file), then enough."""
    words, size = storm.words(verb), storm.size(verb)
    if not size:
        return killed(storm, verb, draw)
    room = max(4096, int(size * draw.uniform(0.02, 1.0)))
    if MAY_MOUNT:
        storm.clear_out()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={room // 4096 * 4}k", "tmpfs", str(storm.out)]
        subprocess.run(mount, check=True, capture_output=True)
        try:
            storm.fill_out(verb)
        except OSError:
            return ""  # not even what must be there before has room
        ended = command(words, storm.folder)
    else:
        ended = command(words, storm.folder, largest_file=room // 4)
    storm.count("disks that were full", ended.code != VERBS[verb].code)
    if trouble := misbehaviour(ended, verb) or storm.broken_law():
        return trouble
    if ended.code == VERBS[verb].code:
        unlike = storm.compare(verb, ended)
        return f"ended with {ended.code} on a disk of {room} bytes, but {unlike}" if unlike else ""
    if MAY_MOUNT:
        subprocess.run(["mount", "-o", "remount,size=1g", str(storm.out)], check=True, capture_output=True)
    return continued(storm, verb, words)


def damaged_output(storm: Storm, verb: str, draw: random.Random) -> str:
    """Damage files of a folder that is complete, and give the command again."""
    words = storm.words(verb)
    shutil.copytree(storm.reference(verb), storm.out, dirs_exist_ok=True)
    tables = [path for path in storm.out.rglob("*") if path.is_file() and path.suffix in (".parquet", ".json", ".csv")]
    if not tables:
        return killed(storm, verb, draw)
    names = [damaged(path, draw) for path in draw.sample(sorted(tables), min(len(tables), draw.randint(1, 2)))]
    again = command(words, storm.folder)
    if trouble := misbehaviour(again, verb):
        return f"{', '.join(names)}: {trouble}"
    unlike = storm.compare(verb, again) if again.code == VERBS[verb].code else ""
    return f"{', '.join(names)}: ended with {again.code}, but {unlike}" if unlike and not explained(again) else ""


def damaged_input(storm: Storm, verb: str, draw: random.Random) -> str:
    """Damage what a command reads: its result stays, or a sentence says what is wrong."""
    words = storm.words(verb)
    begin = VERBS[verb].begins_with
    part = storm.out / begin.split()[0] if begin else storm.world / VERBS[verb].reads
    files = [part] if part.is_file() else sorted(path for path in part.rglob("*") if path.is_file())
    files = [path for path in files if path.name != ".lock" and path.suffix != ".md"]
    (victim,) = draw.sample(files, 1)
    names = [damaged(victim, draw)]
    storm.forget_world()
    ended = command(words, storm.folder)
    if trouble := misbehaviour(ended, verb):
        return f"{', '.join(names)}: {trouble}"
    unlike = storm.compare(verb, ended) if ended.code == VERBS[verb].code else ""
    named = explained(ended) or victim.stem in ended.said + ended.complained
    return f"{', '.join(names)}: ended with {ended.code}, but {unlike}" if unlike and not named else ""


def moved_clock(storm: Storm, verb: str, draw: random.Random) -> str:
    """Let the clock jump, forwards or back, while a command runs; without libfaketime only the times of files."""
    words = storm.words(verb)
    moments = [draw.choice((-1, 1)) * draw.choice((2, 3600, 86_400, 400 * 86_400)) for _ in range(2)]
    if FAKETIME is None or draw.random() < 0.3:
        storm.count("jumps of file times")
        ended = command(words, storm.folder, kill=(signal.SIGKILL, draw.random() * storm.seconds(verb)))
        for path in [storm.out, *storm.out.rglob("*")]:
            moved = path.lstat().st_mtime + draw.choice(moments)
            os.utime(path, (moved, moved), follow_symlinks=False)
        return misbehaviour(ended, verb, ours=True) or continued(storm, verb, words)
    storm.count("jumps of the clock")
    clock = storm.folder / "clock"
    clock.write_text(f"{moments[0]:+d}\n")
    settings = {
        "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DISABLE_SHM": "1",
    }  # fmt: skip
    jump = (draw.uniform(2.0, 6.0), lambda: clock.write_text(f"{moments[1]:+d}\n") and None)
    ended = command(words, storm.folder, environment=settings, own_interpreter=True, meanwhile=jump)
    if trouble := misbehaviour(ended, verb):
        return trouble
    if ended.code != VERBS[verb].code:
        return f"ended with {ended.code}: {last_words(ended)}"
    return storm.compare(verb, ended)


def slow_store(storm: Storm, verb: str, draw: random.Random) -> str:
    """Write to a store that answers late and sometimes not at all, kill the command perhaps, and let it continue."""
    address, settings = storm.store()
    words = storm.words(verb, out=f"{address}/{storm.number}-{draw.randrange(10**6)}")
    kill = (signal.SIGKILL, draw.random() * storm.seconds(verb) * 3) if draw.random() < 0.5 else None
    ended = command(words, storm.folder, environment=settings, kill=kill)
    for _ in range(4):  # a store that does not answer ends a command with a sentence
        if trouble := misbehaviour(ended, verb, ours=ended.hit):
            return trouble
        if ended.code == VERBS[verb].code:
            break
        ended = command(words, storm.folder, environment=settings)
    else:
        return f"given four times it ends with {ended.code}: {last_words(ended)}"
    storm.download(words[words.index("--out") + 1])
    return storm.compare(verb, ended, said=False)


def hostile_input(storm: Storm, verb: str, draw: random.Random) -> str:
    """Give a command a file that was mutated from the corpus: no traceback, no result outside its folder."""
    kind = draw.choice(sorted(HOSTILE))
    source = draw.choice(storm.corpus(kind))
    data = source.read_bytes()
    if draw.random() < 0.95:
        data = mutated(data, draw)
    place, words = HOSTILE[kind](storm, source, draw)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    storm.forget_world()
    ended = command([word.format(out=storm.out) for word in words], storm.folder)
    storm.count(f"hostile: {kind}")
    if "{out}" not in " ".join(words):  # it continues with the run whose file was exchanged
        storm.forget_world()
    storm.count("hostile files that were refused", ended.code != 0)
    if trouble := misbehaviour(ended):
        kept = storm.keep(kind, data, source.suffix)
        return f"{kind} ({kept}) to {' '.join(words[:2])}: {trouble}"
    return ""


Trouble = Callable[["Storm", str, random.Random], str]
TROUBLES: dict[str, tuple[Trouble, float, Callable[[str], bool]]] = {
    "kill": (killed, 4, lambda _: True),
    "full disk": (full_disk, 2, lambda verb: "{out}" in VERBS[verb].words),
    "damaged output": (damaged_output, 2, lambda verb: "{out}" in VERBS[verb].words and VERBS[verb].goes_on),
    "damaged input": (damaged_input, 2, lambda verb: bool(VERBS[verb].reads)),
    "clock": (moved_clock, 1, lambda verb: True),
    "slow store": (slow_store, 1, lambda verb: VERBS[verb].stored),
    "hostile input": (hostile_input, 4, lambda _: True),
    "interrupted": (interrupted, 3, lambda verb: VERBS[verb].resumes),
    "falsified table": (falsified, 2, lambda verb: VERBS[verb].resumes or VERBS[verb].reads == "run"),
    "changed input": (changed_input, 2, lambda verb: verb in ("eval", "eval --fast", "segment", "ask", "perturb")),
    "full scratch": (full_scratch, 0.5, lambda _: True),
    "failed rename": (failed_rename, 2, lambda verb: "{out}" in VERBS[verb].words),
    "unreadable images": (unreadable, 1, lambda verb: verb in ("synth", "mask", "eval", "segment", "ask", "perturb")),
    "removed folder": (removed_folder, 1, lambda verb: verb in ("synth", "mask", "eval", "generate", "perturb")),
    "bad server": (bad_server, 1, lambda _: True),
    "dying model": (dying_model, 1, lambda _: True),
    "foreign page": (foreign_page, 0.3, lambda _: True),
}
"""Each trouble with its weight in the drawing, and the verbs that it may meet."""

damaging = ("damaged input", "hostile input", "falsified table", "changed input", "unreadable images", "foreign page")
"""Troubles after which the world is made again."""

OPENING = (
    ("interrupted", "eval"), ("falsified table", "eval"), ("changed input", "eval"), ("bad server", "ask"),
    ("full scratch", "eval"), ("full disk", "synth"), ("failed rename", "synth"),
    ("failed rename", "explain"), ("full disk", "eval"), ("interrupted", "eval --fast"), ("removed folder", "synth"),
    ("dying model", "eval"), ("bad server", "perturb"), ("foreign page", "open"), ("unreadable images", "mask"),
    ("kill", "train"), ("interrupted", "segment"), ("interrupted", "perturb"), ("kill", "watch"),
    ("full disk", "mask"), ("interrupted", "ask"), ("damaged output", "synth"), ("falsified table", "report"),
    ("kill", "board add"), ("changed input", "segment"), ("full disk", "explain"), ("interrupted", "explain"),
)  # fmt: skip
"""The first episodes of every storm: each trouble with the verb that it hurts most."""
