"""``make storm``: commands under kills, full disks, damaged files, jumping clocks, slow stores and hostile files.

The first episodes visit every trouble once (``OPENING``); every other draws a verb and a trouble from the storm's seed
and its own number. Four things are checked afterwards: what was made (after the command was given again) equals what an
undisturbed command makes, or a sentence says why not; it keeps the laws of ``storm_laws``; nothing outside the output
folder changed; there was no traceback, and no exit code 0 without a whole result. ``storm_faults.py`` plants faults
that a storm has to find.

``python tests/storm/storm.py --minutes 60 --seed 7 --json storm.json`` runs one, ``--seed 7 --episode 12`` repeats an
episode of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path.insert(0, str(Path(__file__).parent))

import storm_laws
from storm_contents import contents, difference, volatile_names
from storm_people import ask_people
from storm_process import Ended, aside, command, import_everything
from storm_troubles import OPENING, TROUBLES, damaging
from storm_verbs import INFO, TABLE, VERBS, WORLD

ALONE = ("hostile input", "bad server", "dying model", "foreign page", "full scratch")
"""Troubles that bring commands of their own."""
CORPUS = Path(__file__).parent / "corpus"
LARGEST_KEPT = 20_000


class UndisturbedError(Exception):
    """A command failed although nothing was done to it."""


class Storm:
    """A world of drawn scenes, the undisturbed results of every verb, and what was found."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder, self.number = seed, folder, 0
        self.world, self.out, self._spare = folder / "world", folder / "out", folder / "spare"
        self.counts: Counter[str] = Counter()
        self.findings: list[dict[str, Any]] = []
        self._references: dict[str, tuple[Path, dict[str, str], set[str], str, float]] = {}
        self._seen_world: dict[str, tuple[int, int]] | None = None
        self._store: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._server_port = 0

    def count(self, what: str, happened: bool = True) -> None:
        """Count something that a page tells."""
        self.counts[what] += bool(happened)

    # The world and the folder that commands write to

    def make_world(self) -> None:
        """Make what commands read, if it is not there yet."""
        if self._spare.exists():
            self._restore_world()
            return
        self.world.mkdir(parents=True)
        for part, words in WORLD.items():
            ended = command([word.format(world=self.world) for word in words.split()], self.folder)
            if ended.code:
                raise RuntimeError(f"{part}: {ended.complained or ended.said}")
            print(f"{part} ({ended.seconds:.1f} s)", flush=True)
            if part == "scenes":
                self._choose_photos()
        (self.world / "table.csv").write_text(TABLE)
        (self.world / "Linf").mkdir()
        (self.world / "Linf" / "paper.json").write_text(INFO)
        aside(lambda: ask_people(self.world), self.folder)
        self._first_files()
        shutil.copytree(self.world, self._spare, symlinks=True)

    def _choose_photos(self) -> None:
        """Take two scenes of each of three classes."""
        scenes = self.world / "scenes"
        for label in [one for one in sorted((scenes / "original").iterdir()) if len(list(one.rglob("*.png"))) > 1][:3]:
            for picture in sorted(label.rglob("*.png"))[:2]:
                for source, tree in ((scenes / "original", "images"), (scenes / "masks" / "original", "masks")):
                    place = self.world / "photos" / tree / label.name / picture.name
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source / picture.relative_to(scenes / "original"), place)

    def _first_files(self) -> None:
        """Begin the corpus: a sound file of every kind, from the world; the committed ones are kept next to them."""
        import_from = {
            "image": sorted((self.world / "photos" / "images").rglob("*.png"))[0],
            "spec": self.world / "run" / "spec.json", "samples": self.world / "run" / "samples.parquet",
            "part": next((self.world / "run" / "predictions").glob("*.parquet")), "bundle": self.world / "run.zip",
            "entry": next((self.world / "board").glob("*.json")), "pool": self.world / "pool" / "manifest.csv",
            "entry table": next((self.world / "board").glob("*.parquet")), "table": self.world / "table.csv",
            "coco": self.world / "scenes" / "coco" / "original.json",
            "manifest": self.world / "scenes" / "manifest.csv",
        }  # fmt: skip
        for kind, path in import_from.items():
            place = self.folder / "corpus" / kind / f"sound{path.suffix}"
            place.parent.mkdir(parents=True)
            shutil.copy(path, place)
        mask = self.folder / "corpus" / "mask" / "sound.mask"
        mask.parent.mkdir()
        shutil.copy(sorted((self.world / "photos" / "masks").rglob("*.png"))[0], mask)

    def corpus(self, kind: str) -> list[Path]:
        """Return the files of a kind: sound ones, and those that were once found to break something."""
        return [path for root in (self.folder / "corpus", CORPUS) for path in sorted((root / kind).glob("*"))]

    def keep(self, kind: str, data: bytes, suffix: str) -> str:
        """Add a file that broke something to the corpus, if it is small; its name."""
        import hashlib

        name = f"{hashlib.sha256(data).hexdigest()[:10]}{suffix}"
        if len(data) <= LARGEST_KEPT:
            (CORPUS / kind).mkdir(parents=True, exist_ok=True)
            (CORPUS / kind / name).write_bytes(data)
        return name

    def clear_out(self) -> None:
        """Empty the output folder."""
        if os.path.ismount(self.out):
            subprocess.run(["umount", "-l", str(self.out)], check=True)
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()

    def fill_out(self, verb: str) -> None:
        """Put there what a verb expects to find."""
        for begin in VERBS[verb].begins_with.split():
            shutil.copytree(self.world / begin, self.out / begin)

    def new_out(self, verb: str) -> None:
        """Empty the output folder and put there what a verb expects to find."""
        self.clear_out()
        self.fill_out(verb)

    def words(self, verb: str, *, workers: bool = False, out: str = "") -> list[str]:
        """Return the command, and make its output folder again."""
        self.new_out(verb)
        words = [word.format(world=self.world, out=out or self.out) for word in VERBS[verb].words.split()]
        return [*words, "--workers", "2"] if workers and VERBS[verb].workers else words

    # Undisturbed results

    def _contents(self) -> dict[str, str]:
        return json.loads(aside(lambda: print(json.dumps(contents(self.out))), self.folder))

    def _undisturbed(self, verb: str) -> tuple[Path, dict[str, str], set[str], str, float]:
        if verb not in self._references:
            kept = self.folder / "references" / verb.replace(" ", "_")
            seen, said = [], []
            for _ in range(2):
                words = self.words(verb)
                words += ["--workers", "1"] if VERBS[verb].workers else []  # other processes log no renames
                before = {path.relative_to(self.out).as_posix() for path in self.out.rglob("*") if path.is_file()}
                ended = command(words, self.folder)
                if ended.code != VERBS[verb].code:
                    raise UndisturbedError(f"without any trouble: {ended.code} {ended.complained or ended.said}")
                broken = self.broken_law() or storm_laws.of_names(self.out.resolve(), before, ended.named)
                if broken:
                    raise UndisturbedError(f"without any trouble: {broken}")
                seen.append(self._contents())
                said.append(ended.said)
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(self.out, kept)
            volatile = volatile_names(*seen)
            same = said[1] if said[0] == said[1] and "{out}" not in VERBS[verb].words else ""
            self._references[verb] = (kept, seen[1], volatile, same, ended.seconds)
            self._look_outside()
        return self._references[verb]

    def reference(self, verb: str) -> Path:
        """Return the folder of the undisturbed result."""
        return self._undisturbed(verb)[0]

    def seconds(self, verb: str) -> float:
        """Return how long a verb takes undisturbed."""
        return self._undisturbed(verb)[4]

    def size(self, verb: str) -> int:
        """Return the bytes that a verb writes, in blocks as a disk counts them."""
        folder = self.reference(verb)
        return sum((path.stat().st_size + 4095) // 4096 * 4096 for path in folder.rglob("*") if path.is_file())

    def compare(self, verb: str, ended: Ended, *, said: bool = True) -> str:
        """Return in what the output folder differs from the undisturbed one, or ""."""
        _, wanted, volatile, words, _ = self._undisturbed_without_running(verb)
        if said and words and ended.said != words:
            return f"it says something else: {ended.said.strip()[-200:]!r}"
        return difference(self._contents(), wanted, volatile) or self.broken_law()

    def broken_law(self) -> str:
        """Return which law the output folder breaks, or ""."""
        return aside(lambda: print(storm_laws.of_tables(self.out)), self.folder).strip()

    def holder_of_secret(self) -> str:
        """Return the first file of this storm that holds the secret, or ""."""
        places = ("out", "cwd", "home", "cache", "tmp", "stdout", "stderr")
        return storm_laws.holders_of_secret([self.folder / name for name in places])

    def like(self, verb: str, other: dict[str, str]) -> str:
        """Return in what the tables of the output folder differ from contents that were looked at before, or ""."""
        _, _, volatile, _, _ = self._references[verb]
        here, there = ({name: hashed for name, hashed in each.items() if "/*:" in name or name.endswith(".csv")}
                       for each in (self._contents(), other))  # fmt: skip
        return difference(here, there, volatile)

    def contents(self) -> dict[str, str]:
        """Return what the output folder holds."""
        return self._contents()

    def _undisturbed_without_running(self, verb: str) -> tuple[Path, dict[str, str], set[str], str, float]:
        return self._references[verb]

    # What may not change

    def forget_world(self) -> None:
        """Take the world as it is now for what may not change: the storm itself has just damaged it."""
        self._seen_world = self._files()

    def _files(self) -> dict[str, tuple[int, int]]:
        roots = [self.world, self.folder / "home", self.folder / "cwd", self.folder / "hostile"]
        return {
            str(path.relative_to(self.folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
            for root in roots for path in root.rglob("*") if path.is_file() or path.is_symlink()
        }  # fmt: skip

    def _look_outside(self) -> str:
        """Return what changed outside the output folder since the last look, or ""."""
        before, after = self._seen_world, self._files()
        self._seen_world = after
        if before is None:
            return ""
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return ", ".join(changed[:4])

    def _restore_world(self) -> None:
        """Make the world as it was; its files keep their times, so that nothing seems to have changed."""
        shutil.rmtree(self.world, ignore_errors=True)
        shutil.copytree(self._spare, self.world, symlinks=True)
        shutil.rmtree(self.folder / "hostile", ignore_errors=True)
        self._seen_world = self._files()

    # The slow store

    def store(self) -> tuple[str, dict[str, str]]:
        """Start the slow store, once; the address of its bucket, and the environment that leads to it."""
        if self._store is None:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._port = probe.getsockname()[1]
            program = [sys.executable, str(Path(__file__).parent / "slow_store.py"), str(self._port), str(self.seed)]
            self._store = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self._with_store("files.mkdir('bucket')")
        return "s3://bucket", self._store_settings()

    def _store_settings(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}", "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": storm_laws.SECRET, "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOLDFAST_CACHE": str(self.folder / "cache"),
        }  # fmt: skip

    def download(self, address: str) -> None:
        """Copy what is in the store into the output folder."""
        self.clear_out()
        self._with_store(f"files.get({address + '/'!r}, {str(self.out) + '/'!r}, recursive=True)")
        shutil.rmtree(self.folder / "cache", ignore_errors=True)

    def _with_store(self, code: str) -> None:
        program = (
            "import time, s3fs\nfor turn in range(60):\n    try:\n        s3fs.S3FileSystem.clear_instance_cache()\n"
            f"        files = s3fs.S3FileSystem()\n        {code}\n        break\n"
            "    except Exception:\n        time.sleep(0.5)\nelse:\n    raise SystemExit(1)\n"
        )
        subprocess.run([sys.executable, "-c", program], env=os.environ | self._store_settings(), check=True)

    def server(self) -> str:
        """Start the server that treats its clients badly, once; its address."""
        if self._server is None:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._server_port = probe.getsockname()[1]
            program = [sys.executable, str(Path(__file__).parent / "storm_server.py"), str(self._server_port)]
            self._server = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", self._server_port)) == 0:
                        break
                time.sleep(0.05)
        return f"http://127.0.0.1:{self._server_port}"

    def close(self) -> None:
        """End the servers and give the disk back."""
        for process in (self._store, self._server):
            if process is not None:
                process.kill()
                process.wait()
        if os.path.ismount(self.out):
            subprocess.run(["umount", "-l", str(self.out)], check=False)

    # Episodes

    def episode(self, number: int, *, verb: str = "", trouble: str = "") -> None:
        """Draw a verb and a trouble, and see what comes of it."""
        draw = random.Random(f"{self.seed}/{number}")
        self.number = number
        weights = [weight for _, weight, _ in TROUBLES.values()]
        drawn = draw.choices(list(TROUBLES), weights)[0]
        drawn_verb = draw.choice([name for name in VERBS if TROUBLES[trouble or drawn][2](name)])
        if number < len(OPENING) and not trouble and not verb:
            drawn, drawn_verb = OPENING[number]
        trouble, verb = trouble or drawn, verb or drawn_verb
        work, _, _ = TROUBLES[trouble]
        began = time.monotonic()
        try:
            if trouble not in ALONE:
                self._undisturbed(verb)
            self.clear_out()
            self._seen_world = self._files()
            what = work(self, verb, draw)
        except UndisturbedError as error:
            what = str(error)
        if not what and (changed := self._look_outside()):
            what = f"changed outside the output folder: {changed}"
        if not what and (holder := self.holder_of_secret()):
            what = f"a secret is in {holder}"
        self.count("episodes")
        self.count(f"trouble: {trouble}")
        self.count(f"verb: {verb if trouble not in ALONE else trouble}")
        if what:
            again = f".venv/bin/python tests/storm/storm.py --seed {self.seed} --episode {number}"
            self.findings.append({"episode": number, "verb": verb, "trouble": trouble, "what": what, "again": again})
            print(f"\nFINDING {verb}, {trouble}: {what}\n  {again}", flush=True)
        else:
            print(f"{number} {verb}, {trouble}: held ({time.monotonic() - began:.1f} s)", flush=True)
        if trouble in damaging or what:
            self._restore_world()
        self.clear_out()

    def result(self, seconds: float) -> dict[str, Any]:
        """Return what a page tells."""
        return {
            "seed": self.seed, "seconds": round(seconds), "counts": dict(sorted(self.counts.items())),
            "findings": self.findings,
        }  # fmt: skip


def run(
    seed: int, minutes: float, folder: Path, *, episodes: list[int], verb: str = "", trouble: str = "",
    first: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Run a storm, or some of its episodes, in a folder; a world that is there already is used again.

    ``first``: the first finding ends it.
    """
    storm = Storm(seed, folder.resolve())
    began = time.monotonic()
    try:
        storm.make_world()
        print(f"seed {seed}: the world is ready after {time.monotonic() - began:.0f} s", flush=True)
        for number in episodes or range(10**9):
            if not episodes and time.monotonic() - began > 60 * minutes:
                break
            storm.episode(number, verb=verb, trouble=trouble)
            if first and storm.findings:
                break
    finally:
        storm.close()
    return storm.result(time.monotonic() - began)


def main() -> None:
    """Run what was asked for; exit code 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--episode", type=int, action="append", default=[])
    parser.add_argument("--verb", choices=list(VERBS), default="", help="this one in all episodes")
    parser.add_argument("--trouble", choices=list(TROUBLES), default="", help="this one in all episodes")
    parser.add_argument("--first", action="store_true", help="end at the first finding")
    parser.add_argument("--folder", type=Path, help="works here, and uses the world of an earlier storm again")
    parser.add_argument("--json", type=Path, help="where the result goes")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    import_everything()
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    with tempfile.TemporaryDirectory(prefix="holdfast-storm-") as own:
        result = run(
            seed, asked.minutes, asked.folder or Path(own), episodes=asked.episode, verb=asked.verb,
            trouble=asked.trouble, first=asked.first,
        )  # fmt: skip
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"seed {seed}: {result['counts'].get('episodes', 0)} episodes, {len(result['findings'])} findings")
    sys.exit(bool(result["findings"]))


if __name__ == "__main__":
    main()
