"""``make storm-faults``: plant a fault in a copy of the source, and see that ten minutes of storm find it.

``python tests/storm/storm_faults.py`` plants each in turn and prints which were caught; ``--only "row twice"`` plants
one. All storms share one world, which the sound source has made; their undisturbed results are those of the copy.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

STORM = Path(__file__).with_name("storm.py")
SOURCE = Path(__file__).parents[2] / "src"


Change = tuple[str, str, str]
"""A file below src/holdfast, a text in it, and the text that takes its place."""

_UNCOUNTED: Change = ("pipeline/jobs/execute.py", "        if missing > 0:\n", "        if False:\n")

FAULTS: dict[str, tuple[Change, ...]] = {
    "rows written twice": (
        ("store/parts.py", "    write_table(path, rows)\n", "    write_table(path, pa.concat_tables([rows, rows]))\n"),
    ),
    "a row lost on resume": (
        _UNCOUNTED,
        (
            "pipeline/jobs/plan.py",
            "list(compress(parts, (~stored).tolist())) if stored.any() else parts\n",
            "list(compress(parts, (~stored).tolist()))[1:] if stored.any() else parts\n",
        ),
    ),
    "the last image lost on resume": (
        _UNCOUNTED,
        (
            "pipeline/jobs/plan.py",
            "            if parts:\n                yield job",
            "            if parts and not (self.stored is not None and place >= len(self.stored)):\n"
            "                yield job",
        ),
    ),
    "an image twice on resume": (
        ("pipeline/jobs/plan.py", "else Job(job.item, parts)\n", "else Job(job.item, [*parts, parts[0]])\n"),
    ),
    "files written in place": (
        (
            "core/files.py",
            '    temporary = Path(f"{unfinished(path)}{uuid.uuid4().hex}")\n    path.parent.mkdir',
            "    temporary = path\n    path.parent.mkdir",
        ),
        ("core/files.py", "        temporary.replace(path)\n        if sync:", "        if sync:"),
    ),
    "checksums not compared": (
        ("store/checksums.py", "same = _digest(file, end, seal[_SEAL:]) == ", "same = True or seal == "),
    ),
    "a full disk stored as rows": (
        ("core/errors.py", "            return MachineError(sentence)\n", "            return None\n"),
    ),
    "no fsync": (("core/files.py", "        os.fsync(descriptor)\n", "        pass\n"),),
    "a superseded row kept": (
        ("pipeline/jobs/plan.py", "if scope is not None and not flags.all():", "if scope is not None and False:"),
    ),
    "an error swallowed": (
        (
            "core/files.py",
            "        with suppress(OSError):  # the folder itself may be what is wrong\n"
            "            os.unlink(temporary)\n        raise\n",
            "        with suppress(OSError):  # the folder itself may be what is wrong\n"
            "            os.unlink(temporary)\n",
        ),
    ),
    "a secret stored": (("core/secrets.py", "text = text.replace(value, HIDDEN)", "text = text.strip()"),),
    "a deadline ignored": (
        ("core/remote.py", "with move_on_after(self._patience.timeout) as", "with move_on_after(None) as"),
    ),
}  # fmt: skip
"""What is planted."""


def plant(name: str, source: Path) -> None:
    """Plant a fault in a copy of src; a ValueError if a text is not there exactly once."""
    for file, old, new in FAULTS[name]:
        path = source / "holdfast" / file
        text = path.read_text("utf8")
        if text.count(old) != 1:
            raise ValueError(f"{name}: {file} has {text.count(old)} times, expected once: {old!r}")
        path.write_text(text.replace(old, new), "utf8")


def make_world(folder: Path) -> None:
    """Make the world of all storms in ``folder``/storm, with the sound source; runs know it by its path."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(STORM), "--minutes", "0", "--seed", "0", "--folder", str(folder / "storm")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def storm_with(name: str, folder: Path, *, minutes: float, seed: int) -> str:
    """Plant a fault in a copy of the source, or none, and let a storm look for it; what it found, or ""."""
    source, result = folder / "src", folder / "storm.json"
    shutil.rmtree(source, ignore_errors=True)
    result.unlink(missing_ok=True)
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    if name:
        plant(name, source)
    options = {"minutes": minutes, "seed": seed, "folder": folder / "storm", "json": result}
    words = [str(word) for option, value in options.items() for word in (f"--{option}", value)]
    done = subprocess.run(
        [sys.executable, str(STORM), "--first", *words], env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True, text=True,
    )  # fmt: skip
    if not result.is_file():
        raise RuntimeError(f"the storm itself failed: {(done.stdout + done.stderr)[-2000:]}")
    findings = json.loads(result.read_text())["findings"]
    return "; ".join(f"episode {one['episode']}, {one['verb']}, {one['trouble']}: {one['what']}" for one in findings)


def main() -> None:
    """Plant the faults, one after the other; exit code 1 if one is not caught, or if the sound source is accused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["", *FAULTS], action="append", default=[], help="'' plants none")
    parser.add_argument("--minutes", type=float, default=10.0, help="of storm for each fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="works here, and uses the world that is there again")
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="holdfast-faults-") as name:
        folder = (asked.folder or Path(name)).resolve()
        make_world(folder)
        for fault in asked.only or ["", *FAULTS]:
            began = time.monotonic()
            found = storm_with(fault, folder, minutes=asked.minutes, seed=asked.seed)
            wrong += bool(found) != bool(fault)
            how = ("caught" if found else "NOT CAUGHT") if fault else ("ACCUSED" if found else "held")
            print(f"{how}, {time.monotonic() - began:.0f} s: {fault or 'the sound source'}: {found}", flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
