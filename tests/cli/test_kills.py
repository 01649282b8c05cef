"""Commands that are killed between two files: the same command, given again, ends as if nothing had happened."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from killing import KILLED, Commands

FIRST, SECOND = "embedded:resnet_rho0", "embedded:mobilenet_rho95"
RUN = "diorama:test?n=24 --scenarios original,grey,random_background -q"
PAIR = f"{{world}}/run {{world}}/run --old-model {FIRST} --new-model {SECOND}"
VERBS = {
    "report": "report {world}/run --resamples 100 --out {out}/page",
    "choose": "report {world}/run --choose --speed none --resamples 100 --out {out}/choice -q",
    "bundle": "share bundle {world}/run --no-report --out {out}/run.zip -q",
    "board add": "board add {world}/run --out {out}/board",
    "watch": "audit watch {out}/series {out}/other -q",
    "compare": f"compare {PAIR} --junit {{out}}/gate.xml --markdown {{out}}/gate.md",
    "explain": "explain {out}/run --limit 2 -q",
    "export": "share export {world}/run --to model-index --out {out}/cards -q",
    "dossier": "audit dossier {world}/other --no-pictures --out {out}/dossier",
}
BEGINS = {"watch": ("run", "other", "series"), "explain": ("run",)}
UNLIKE = (".lock", "dossier.pdf", "seal.json")  # a PDF holds its time compressed, and the seal its hash
TIME = re.compile(rb'\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\+00:00| UTC)?|"(fingerprint|before)": "\w+"')


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    started = Commands(tmp_path_factory.mktemp("commands") / "said")
    yield started
    started.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> Path:
    folder = tmp_path_factory.mktemp("world")
    for words in (
        f"eval {RUN} --models {FIRST},{SECOND} --out {folder}/run",
        f"eval {RUN} --models {SECOND} --out {folder}/other",
        f"audit watch {folder}/series {folder}/run --model {FIRST} -q",
    ):
        ended = commands(*words.split(), out=folder)
        assert ended.code == 0, ended.err
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file without the times that it names."""
    return {
        path.relative_to(folder).as_posix(): b"" if path.name in UNLIKE else TIME.sub(b"", path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def points(renamed: int) -> list[int]:
    """Some kills: instead of a middle rename; of the last one, too, where that takes no second page."""
    return [renamed // 2] if renamed > 10 else sorted({renamed // 2, renamed - 1})


@pytest.mark.parametrize("verb", VERBS)
def test_the_same_command_finishes_what_a_kill_has_interrupted(
    commands: Commands, world: Path, tmp_path: Path, verb: str
) -> None:
    def begun(name: str) -> Path:
        folder = tmp_path / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for part in BEGINS.get(verb, ()):
            shutil.copytree(world / part, folder / part)
        return folder

    def run(folder: Path, kill: int | None = None):
        return commands(*VERBS[verb].format(world=world, out=folder).split(), out=folder, kill=kill)

    undisturbed = run(begun("out"))
    assert undisturbed.code in (0, 1, 3) and undisturbed.renamed, undisturbed.err
    whole = contents(tmp_path / "out")
    for kill in points(undisturbed.renamed):
        out = begun("out")
        killed = run(out, kill)
        assert killed.code == KILLED, (kill, undisturbed.renamed, killed.renamed, killed.err)
        again = run(out)
        assert again.code == undisturbed.code, (kill, again.err)
        assert contents(out) == whole, kill
