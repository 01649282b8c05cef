"""Troubles whose outcome does not depend on the moment: halves of tables, changed inputs, bad servers, dying models."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storm_process import FAILING, Ended, aside, command
from storm_verbs import DATA, MODEL, VERBS, WALK

if TYPE_CHECKING:
    from storm import Storm

ANSWER_S = 90.0
"""Seconds for a few requests that may take one second each; a client without a deadline waits for ever."""


def tables_in(folder: Path) -> list[Path]:
    """Return the part files below a folder."""
    return sorted(folder.rglob("part-*.parquet"))


def thin(folder: Path, draw: random.Random, *, details: bool = False) -> None:
    """Leave a random part of the rows of every table, or of ``details`` only, as a kill between two part files does."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from holdfast.store.parts import write_table

    tables = {path: pq.read_table(path, partitioning=None) for path in tables_in(folder)
              if not details or path.parent.name != "predictions"}  # fmt: skip
    owners = [table for path, table in tables.items() if path.parent.name == "predictions"] or list(tables.values())
    ids = sorted({name for table in owners if "row_id" in table.column_names for name in table["row_id"].to_pylist()})
    kept = draw.sample(ids, draw.randint(1, max(1, len(ids) - 2))) if ids else []
    for path, table in tables.items():
        if "row_id" in table.column_names:
            rest = table.filter(pc.is_in(table["row_id"], value_set=_texts(kept)))
            path.unlink()
            if len(rest):
                write_table(path, rest)


def _texts(values: list[str]) -> object:
    import pyarrow as pa

    return pa.array(values, pa.string())


def falsify(path: Path, draw: random.Random) -> bool:
    """Change bits of a Parquet file so that it can still be read, with other values; whether that was possible."""
    import pyarrow.parquet as pq

    sound, before = path.read_bytes(), pq.read_table(path, partitioning=None)
    for _ in range(400):
        data = bytearray(sound)
        data[draw.randrange(4, len(data) - 200)] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        try:
            if not pq.read_table(path, partitioning=None).equals(before):
                return True
        except Exception:
            continue
    path.write_bytes(sound)
    return False


def interrupted(storm: Storm, verb: str, draw: random.Random) -> str:
    """Take some rows away from a complete result, and give the command again."""
    from storm_troubles import continued, killed

    words = storm.words(verb)
    shutil.copytree(storm.reference(verb), storm.out, dirs_exist_ok=True)
    if not tables_in(storm.out):
        return killed(storm, verb, draw)
    aside(lambda: thin(storm.out, draw, details=verb == "explain"), storm.folder)  # eval makes explain's rows
    return continued(storm, verb, words)


def failed_rename(storm: Storm, verb: str, draw: random.Random) -> str:
    """Let one rename fail as a broken disk does: it is not a success, or nothing is missing."""
    from storm_troubles import continued, last_words, misbehaviour

    words = storm.words(verb)
    words += ["--workers", "1"] if VERBS[verb].workers else []
    files = [path for path in storm.reference(verb).rglob("*") if path.is_file()]
    number = draw.randrange(max(1, len(files)))
    ended = command(words, storm.folder, environment={FAILING: str(number)})
    if trouble := misbehaviour(ended, verb):
        return f"rename {number} failed: {trouble}"
    if broken := storm.broken_law():
        return f"rename {number} failed: {broken}"
    if ended.code == VERBS[verb].code and (unlike := storm.compare(verb, ended, said=False)):
        return f"rename {number} failed, it ends with {ended.code} ({last_words(ended)}), and {unlike}"
    return continued(storm, verb, words)


def falsified(storm: Storm, verb: str, draw: random.Random) -> str:
    """Change values of a stored table without making it unreadable: the command says that the table is damaged."""
    from storm_troubles import killed, last_words, misbehaviour

    words = storm.words(verb)
    if VERBS[verb].reads == "run":
        folder = storm.out / "run" if VERBS[verb].begins_with else storm.world / "run"
    else:
        shutil.copytree(storm.reference(verb), storm.out, dirs_exist_ok=True)
        folder = storm.out
    tables = [path for path in tables_in(folder) if path.parent.name == "predictions"]
    if not tables:
        return killed(storm, verb, draw)
    victim = draw.choice(tables)
    done = aside(lambda: print("yes" if falsify(victim, draw) else ""), storm.folder).strip()
    storm.forget_world()
    if not done:
        return ""
    storm.count("tables that were falsified")
    ended = command(words, storm.folder)
    if trouble := misbehaviour(ended, verb):
        return trouble
    if "damaged" not in ended.said + ended.complained:
        return f"{victim.name} has other values than were written, and the command says nothing: {last_words(ended)}"
    return storm.compare(verb, ended, said=False) if ended.code == VERBS[verb].code else ""


def changed_input(storm: Storm, verb: str, draw: random.Random) -> str:
    """Change an image or a mask after a run and give the command again: it ends as a run of the new data alone."""
    from storm_troubles import last_words, misbehaviour

    words = storm.words(verb)
    shutil.copytree(storm.reference(verb), storm.out, dirs_exist_ok=True)
    tree = draw.choice(("images", "masks"))
    victim = draw.choice(sorted((storm.world / "photos" / tree).rglob("*.png")))
    aside(lambda: _repaint(victim), storm.folder)
    storm.forget_world()
    for fresh in (False, True):
        if fresh:
            storm.new_out(verb)
        ended = command(words, storm.folder)
        if trouble := misbehaviour(ended, verb):
            return trouble
        if ended.code != VERBS[verb].code:
            return f"after a change of {tree} it ends with {ended.code}: {last_words(ended)}"
        if broken := storm.broken_law():
            return broken
        if not fresh:
            resumed = storm.contents()
    return storm.like(verb, resumed)


def _repaint(path: Path) -> None:
    import cv2

    image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    image[: len(image) // 3] = 255 - image[: len(image) // 3]
    cv2.imwrite(str(path), image)


def unreadable(storm: Storm, verb: str, draw: random.Random) -> str:
    """Make every image unreadable: nothing that was made is not a success."""
    from storm_troubles import misbehaviour

    words = storm.words(verb)
    for path in (storm.world / "photos" / "images").rglob("*.png"):
        path.write_bytes(b"no image")
    storm.forget_world()
    ended = command(words, storm.folder)
    if trouble := misbehaviour(ended, verb):
        return trouble
    return "no image can be read, and the command ends with 0" if ended.code == 0 else ""


def removed_folder(storm: Storm, verb: str, draw: random.Random) -> str:
    """Remove the output folder while a command writes to it: it is not a success, and a new command makes all."""
    from storm_troubles import continued, misbehaviour

    words = storm.words(verb)
    moment = draw.random() * storm.seconds(verb)
    remove = (moment, lambda: shutil.rmtree(storm.out, ignore_errors=True))
    ended = command(words, storm.folder, meanwhile=remove)
    if trouble := misbehaviour(ended, verb):
        return trouble
    if ended.code == VERBS[verb].code and ended.seconds > moment and (unlike := storm.compare(verb, ended)):
        return f"its folder was removed, it ends with {ended.code}, and {unlike}"
    storm.out.mkdir(exist_ok=True)
    return continued(storm, verb, words)


ASKING = {
    "vlm": f"ask {DATA} --models vlm+{{server}}#m?{{patience}}&concurrency=2 --questions full_list --out {{out}} -q",
    "oracle": f"perturb {DATA} --models {MODEL} {WALK.partition('--oracle')[0]} --oracle {{server}}#m?{{patience}}"
    "&cache={out}/cache --steps 2 --step-size 0.004 --limit 3 --out {out}/run -q",
    "images": "generate --generator images+{server}#m?{patience}&size=32&cache={out}/cache --categories diorama "
    "--nuisances diorama --limit 3 --out {out}/run -q",
}


def bad_server(storm: Storm, verb: str, draw: random.Random) -> str:
    """Ask a server that repeats the key, is slow without end or sends half a character; two kinds of it in turn."""
    from storm_server import BEHAVIOURS
    from storm_troubles import last_words, misbehaviour

    client, slow = draw.choice(sorted(ASKING)), [each for each in BEHAVIOURS if each not in ("echo", "refuse", "half")]
    for how in (draw.choice(("echo", "refuse")), draw.choice(slow), "half"):
        storm.clear_out()
        values = {"world": storm.world, "out": storm.out, "server": f"{storm.server()}/{how}"}
        patience = "timeout=1&retries=1&backoff=0"
        words = [word.format(**values, patience=patience) for word in ASKING[client].split()]
        ended = command(words, storm.folder, limit=ANSWER_S)
        storm.count("bad servers that were asked")
        if trouble := misbehaviour(ended):
            return f"{client} of a server that does this: {how}: {trouble}"
        if how == "echo" and ended.code:  # else nothing was asked at all
            return f"{client} of a server that answers ends with {ended.code}: {last_words(ended)}"
        if holder := storm.holder_of_secret():
            return f"{client} of a server that does this: {how}: a secret is in {holder}"
    return ""


DEATHS = {
    "exits": "os._exit(0)", "stops": "raise SystemExit(0)", "generator": "raise GeneratorExit",
    "wordless": "raise Wordless", "recursion": "return self.predict(images)",
}  # fmt: skip


def python_model(storm: Storm, name: str, body: str) -> dict[str, Any]:
    """Write the module ``storm_NAME`` with a model whose predict is ``body``; what ``command`` needs to import it."""
    modules, classes = storm.folder / "modules", sorted(p.name for p in (storm.world / "photos" / "images").iterdir())
    modules.mkdir(exist_ok=True)
    (modules / f"storm_{name}.py").write_text(
        "import os\nimport numpy as np\n"
        "class Wordless(Exception):\n    def __str__(self): raise RuntimeError\n"
        f"class Model:\n    labels = {tuple(classes)!r}; name = fingerprint = {name!r}\n"
        f"    def predict(self, images):\n        {body}\nmodel = Model()\n"
    )
    places = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH", ""))))
    return {"environment": {"PYTHONPATH": places}, "own_interpreter": True}


def dying_model(storm: Storm, verb: str, draw: random.Random) -> str:
    """Measure a model that ends its process or raises what cannot be printed: no success, no traceback."""
    from storm_troubles import misbehaviour

    death = draw.choice(sorted(DEATHS))
    settings = python_model(storm, death, DEATHS[death])
    words = f"eval {DATA} --models python:storm_{death}:model --scenarios original --out {{out}} -q"
    if draw.random() < 0.5:
        words += " --workers 2"
    ended = command([word.format(world=storm.world, out=storm.out) for word in words.split()], storm.folder, **settings)
    if trouble := misbehaviour(ended):
        return f"a model that {death}: {trouble}"
    return f"a model that {death} leaves exit code 0: {ended.said[-200:]!r}" if _is_success(storm, ended) else ""


_SCRATCH = "open(os.environ['SCRATCH'], 'wb', 0).write(b'x'); return np.full((len(images), len(self.labels)), 1 / 3)"


def full_scratch(storm: Storm, verb: str, draw: random.Random) -> str:
    """Fill the disk that a model, or the store of paid images, writes to, although {out} has room; then give it room.

    The command ends at once and stores no such row, and given again it ends well.
    """
    words = f"eval {DATA} --models python:storm_scratch:model --scenarios original --batch-size 2 --out {{out}} -q"
    settings = python_model(storm, "scratch", _SCRATCH)
    for place, wanted in (("/dev/full", 1), (os.devnull, 0)):
        settings["environment"]["SCRATCH"] = place
        if trouble := _ends(storm, words, wanted, settings):
            return f"a model whose own file is {place}: {trouble}"
    if os.geteuid():  # only root may mount
        return ""
    storm.clear_out()
    cache = storm.out / "cache"
    cache.mkdir()
    words = ASKING["images"].replace("{patience}", "retries=0").replace("{server}", f"{storm.server()}/good")
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(cache)]  # room for the ledger, not for an image
    subprocess.run(mount, check=True)
    try:
        for size, wanted in (("4k", 1), ("1m", 0)):
            subprocess.run(["mount", "-o", f"remount,size={size}", str(cache)], check=True)
            if trouble := _ends(storm, words, wanted, {}):
                return f"paid images on a disk of {size}: {trouble}"
    finally:
        subprocess.run(["umount", "-l", str(cache)], check=True)
    return ""


def _ends(storm: Storm, words: str, code: int, settings: dict[str, Any]) -> str:
    """Return in what a command does not end with this code and whole tables, or ""."""
    from storm_troubles import last_words, misbehaviour

    ended = command([word.format(world=storm.world, out=storm.out) for word in words.split()], storm.folder, **settings)
    unlike = "" if ended.code == code else f"ends with {ended.code}, not {code}: {last_words(ended)}"
    return misbehaviour(ended) or storm.broken_law() or unlike


def _is_success(storm: Storm, ended: Ended) -> bool:
    """Whether a command ended well without a row for each of the images."""
    rows = aside(lambda: print(_row_count(storm.out)), storm.folder)
    return ended.code == 0 and int(rows) < len(list((storm.world / "photos" / "images").rglob("*.png")))


def _row_count(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in tables_in(folder))


MARK = b"<script>written by a stranger</script>"


def foreign_page(storm: Storm, verb: str, draw: random.Random) -> str:
    """Open a bundle with a page that its sender wrote: it is refused, or the page is not among those of the run."""
    from storm_troubles import misbehaviour

    bundle = storm.folder / "hostile" / "run.zip"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(storm.world / "run.zip", bundle)
    with zipfile.ZipFile(bundle, "a") as archive:
        archive.writestr(draw.choice(("report/x.html", "run/report/x.html", "attributions/x.html")), MARK)
    storm.forget_world()
    ended = command(["share", "open", str(bundle), "--out", str(storm.out / "run")], storm.folder)
    if trouble := misbehaviour(ended):
        return trouble
    found = [path for path in storm.out.rglob("*") if path.is_file() and MARK in path.read_bytes()]
    return f"a stranger's page was unpacked: {found[0].relative_to(storm.out)}" if found else ""
