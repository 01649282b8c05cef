"""Verbs whose data and out are in S3, against a real server process: the same rows as on the disk."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import s3fs

import holdfast
from commands import run
from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.places import folders_and_files, shown
from holdfast.data import load_collection
from holdfast.engine import LocalExecutor
from holdfast.pipeline.synth.synth import make_spec, synth
from holdfast.store import Run, delivered, fetched, in_store, remote, workplace
from object_store import SECRET, objects, upload
from shapes import CLASSES

Table = Callable[..., list[dict[str, object]]]


def test_eval_from_s3_to_s3_is_eval_on_the_disk(
    server: s3fs.S3FileSystem,
    pictures: Path,
    toy_models: str,
    tmp_path: Path,
    table_of: Table,
    elsewhere: Callable[[], None],
) -> None:
    model, scenarios = f"{toy_models}:colour", "original,grey,random_background"
    local = holdfast.evaluate(pictures, models=model, scenarios=scenarios, out=tmp_path / "run")
    words = ["eval", "s3://bucket/photos", "--masks", "s3://bucket/photos/masks", "--models", model, "-q"]
    told = run(*words, "--scenarios", "original,grey", "--out", "s3://bucket/run").stdout
    assert "12 made, 0 there already; s3://bucket/run" in told
    elsewhere()  # and another machine continues
    told = run(*words, "--scenarios", scenarios, "--out", "s3://bucket/run").stdout
    assert "6 made, 12 there already; s3://bucket/run" in told
    elsewhere()
    there = Run.open("s3://bucket/run")
    assert table_of(there) == table_of(local)
    assert local.rows().to_pylist() == local.run.rows().to_pylist()  # plain values, lists too
    assert {row["run_id"] for row in there.rows().to_pylist()} == {"run"}
    assert there.spec()["data"] == "s3://bucket/photos" and there.spec()["masks"] == "s3://bucket/photos/masks"
    assert not any(SECRET in path.read_text(errors="replace") for path in there.path.rglob("*.json"))
    names = objects(server, "bucket/run")
    assert not [name for name in names if ".lock" in name or "unfinished" in name or "writer" in name]
    assert not Path("s3:").exists()


@pytest.mark.parametrize("workers", ["1", "2"])  # rows are written in a thread, or by a process of their own
def test_one_pass_leaves_its_rows_in_s3(
    workers: str, server: s3fs.S3FileSystem, tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(CLASSES))
    model = f"timm:test_resnet?pretrained=false&num_classes=3&seed=1&size=32&labels={tmp_path}/labels.txt"
    words = ["eval", "s3://bucket/photos", "--models", model, "--scenarios", "original", "--fast", "--device", "cpu"]
    out = f"s3://bucket/fast-{workers}"
    assert "6 made" in run(*words, "--workers", workers, "--out", out, "-q").stdout
    elsewhere()
    assert Run.open(out).rows().num_rows == 6


def test_pages_go_into_the_store(server: s3fs.S3FileSystem) -> None:
    for where in ("s3://bucket/pages/report", remote.local_folder("s3://bucket/pages", "read") / "choice"):
        server.pipe_file("bucket/pages/spec.json", b"{}")
        fetched("s3://bucket/pages")  # from here on its copy means the run in the store
        with delivered(where) as folder:
            write_atomic(folder / "index.html", b"grey")
        page = shown(in_store(where, folder, folder / "index.html"))
        assert page == f"s3://bucket/pages/{folder.name}/index.html" and server.cat_file(page) == b"grey"
    # What is fetched again is only what has changed: the same folder, read again, has the pages in it.
    assert (fetched("s3://bucket/pages") / "choice" / "index.html").is_file()


@pytest.mark.slow
def test_a_run_in_s3_is_bundled_and_reported(
    server: s3fs.S3FileSystem, pictures: Path, toy_models: str, tmp_path: Path
) -> None:
    words = ["--models", f"{toy_models}:colour", "--scenarios", "original,grey", "--out", "s3://bucket/told", "-q"]
    run("eval", "s3://bucket/photos", *words)
    run("share", "bundle", "s3://bucket/told", "--out", tmp_path / "run.zip", "--no-report", "-q")
    with zipfile.ZipFile(tmp_path / "run.zip") as bundle:
        assert not [name for name in bundle.namelist() if b"s3:/" in bundle.read(name)]  # no private names
    page = run("report", "s3://bucket/told", "--resamples", "100").stdout.strip()
    assert page.startswith("s3://bucket/told/report/")
    assert b"grey" in server.cat_file(page)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_synth_from_s3_to_s3(
    server: s3fs.S3FileSystem, pictures: Path, tmp_path: Path, elsewhere: Callable[[], None], workers: int
) -> None:
    scenarios, out = "original,grey,random_background", f"s3://bucket/made-{workers}"
    synth(make_spec(data=str(pictures), scenarios=scenarios, workers=1), tmp_path / "made")
    run("synth", "s3://bucket/photos", "--scenarios", scenarios, "--out", out, "--workers", str(workers), "-q")
    kept = remote.local_folder(out, "write")
    assert {path.stat().st_size for path in kept.rglob("*.png")} == {0}  # names only
    local, there = load_collection(str(tmp_path / "made")), load_collection(out)
    assert [one.sample_id for one in there.samples] == [one.sample_id for one in local.samples]
    assert len(local.samples) == 18
    for one, other in zip(there.samples, local.samples, strict=True):
        assert one.image.fingerprint() == other.image.fingerprint()
        assert one.mask and other.mask and one.mask.fingerprint() == other.mask.fingerprint()
    again = workplace(out, LocalExecutor(1))
    with pytest.raises(UserError, match=f"are in {out} themselves"), again as (folder, executor):
        synth(make_spec(data=f"{out}/manifest.parquet"), folder, executor=executor)
    elsewhere()
    server.pipe_file(f"{out}/grey/disc/0.png", b"broken")
    words = ["synth", "s3://bucket/photos", "--scenarios", scenarios, "--out", out, "-q"]
    assert "0 made, 18 there already" in run(*words, "--workers", "1").stdout
    assert "1 made, 17 there already" in run(*words, "--workers", "1", "--verify").stdout
    assert server.cat_file(f"{out}/grey/disc/0.png") == (tmp_path / "made/grey/disc/0.png").read_bytes()


def test_shards_that_are_replaced_go_from_the_store_too(
    server: s3fs.S3FileSystem, elsewhere: Callable[[], None]
) -> None:
    words = ["synth", "s3://bucket/photos", "--scenarios", "grey", "--format", "webdataset", "--workers", "1", "-q"]
    words += ["--out", "s3://bucket/shards"]
    run(*words)
    assert [name for name in objects(server, "bucket/shards") if name.endswith(".tar")] == ["shard-000000.tar"]
    server.pipe_file("bucket/shards/shard-000007.tar", b"left by a killed run")
    elsewhere()
    run(*words, "--seed", "5")
    tars = [name for name in objects(server, "bucket/shards") if name.endswith(".tar")]
    assert len(tars) == 1 and tars != ["shard-000007.tar"]
    assert len(load_collection("s3://bucket/shards").samples) == 6


def test_masks_made_in_s3_serve_there(server: s3fs.S3FileSystem, elsewhere: Callable[[], None]) -> None:
    words = ["mask", "s3://bucket/photos", "--with", "threshold", "--out", "s3://bucket/auto", "--workers", "1", "-q"]
    assert "6 made, 0 there already; s3://bucket/auto/masks.csv" in run(*words).stdout
    elsewhere()
    assert "0 made, 6 there already" in run(*words).stdout
    samples = load_collection("s3://bucket/photos/images", masks="s3://bucket/auto").samples
    assert [str(one.mask.path).partition("auto/")[2] for one in samples] == [f"{one.sample_id}.png" for one in samples]


def test_one_unreadable_object_is_a_row(server: s3fs.S3FileSystem, pictures: Path, toy_models: str) -> None:
    upload(server, pictures / "images", "bucket/damaged")
    server.pipe_file("bucket/damaged/disc/0.png", b"no image")
    words = ["--models", f"{toy_models}:colour", "--scenarios", "original", "--out", "s3://bucket/odd"]
    run("eval", "s3://bucket/damaged", *words, "-q")
    rows = {row["sample_id"]: row["status"] for row in Run.open("s3://bucket/odd").rows().to_pylist()}
    assert rows.pop("disc/0") == "error" and set(rows.values()) == {"ok"}


def test_a_whole_bucket_is_a_folder(server: s3fs.S3FileSystem, pictures: Path) -> None:
    server.mkdir("everything")
    upload(server, pictures, "everything")
    local = load_collection(str(pictures))
    there = load_collection("s3://everything")
    assert there.name == "everything"
    assert [one.image.fingerprint() for one in there.samples] == [one.image.fingerprint() for one in local.samples]
    assert all(one.mask for one in there.samples)


def test_mistakes_are_one_sentence(
    server: s3fs.S3FileSystem, pictures: Path, toy_models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--models", f"{toy_models}:colour", "--scenarios", "original", "-q"]
    for data, out in ((pictures, "s3://no-such-bucket/run"), ("s3://no-such-bucket/photos", "s3://bucket/none")):
        told = run("eval", data, *words, "--out", out, code=2).stderr
        assert "no-such-bucket" in told and told.count("\n") == 1, told
    assert "there is no bucket s3://no-such-bucket" in run("report", "s3://no-such-bucket/run", code=2).stderr
    with pytest.raises(UserError, match=r"s3://bucket/nothing: no such object"):  # its name has "bucket" in it, too
        folders_and_files("s3://bucket/nothing")
    for place in ("nothing", "photos"):
        assert f"s3://bucket/{place} is not a run directory" in run("report", f"s3://bucket/{place}", code=2).stderr
    assert not remote.local_folder("s3://bucket/photos", "read").exists()  # found out without fetching it
    told = run("data", "split", "s3://bucket/photos", "--out", "s3://bucket/split.csv", code=2).stderr
    assert "writes to a folder of the disk, not to s3://bucket/split.csv" in told
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3fs.S3FileSystem.clear_instance_cache()
    told = run("eval", "s3://bucket/photos", *words, "--out", "s3://bucket/none", code=2).stderr
    assert "there are no credentials for s3://bucket" in told and SECRET not in told
    s3fs.S3FileSystem.clear_instance_cache()


def test_names_that_lead_elsewhere_are_not_written(server: s3fs.S3FileSystem, elsewhere: Callable[[], None]) -> None:
    for key in ("run/../../outside.json", "run//absolute.json", "run/fine.json"):
        server.call_s3("put_object", Bucket="bucket", Key=f"hostile/{key}", Body=b"{}")
    elsewhere()
    folder = fetched("s3://bucket/hostile/run")
    assert [path.name for path in Path(os.environ["HOLDFAST_CACHE"]).rglob("*.json")] == ["fine.json"]
    assert [path.name for path in folder.iterdir()] == ["fine.json"]


@pytest.mark.parametrize("key", ["a/b.json", "n" * 256])
def test_a_run_that_no_disk_can_hold_is_one_sentence(server: s3fs.S3FileSystem, key: str) -> None:
    for name in ("spec.json", "a", key):
        server.call_s3("put_object", Bucket="bucket", Key=f"odd-{len(key)}/{name}", Body=b"{}")
    with pytest.raises(UserError, match=f"s3://bucket/odd-{len(key)}: this machine's disk cannot hold its copy: "):
        Run.open(f"s3://bucket/odd-{len(key)}")


def test_what_appears_and_goes_in_the_folder_does_so_in_the_store(server: s3fs.S3FileSystem) -> None:
    with workplace("s3://bucket/job") as (folder, _):
        write_atomic(folder / "models" / "weights.bin", b"one")
        (folder / "log.txt").write_text("written in another way")
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints" / "epoch-1").write_bytes(b"1")
    assert set(objects(server, "bucket/job")) == {"models/weights.bin", "log.txt", "checkpoints/epoch-1"}
    with workplace("s3://bucket/job") as (folder, _):
        assert (folder / "checkpoints" / "epoch-1").read_bytes() == b"1"
        (folder / "checkpoints" / "epoch-1").unlink()
        write_atomic(folder / "models" / "weights.bin", b"two")
        with (folder / "log.txt").open("a") as log:
            log.write(", and on")
    assert set(objects(server, "bucket/job")) == {"models/weights.bin", "log.txt"}
    assert server.cat_file("bucket/job/models/weights.bin") == b"two"
    assert server.cat_file("bucket/job/log.txt") == b"written in another way, and on"


def test_what_was_not_sent_is_not_there_after_a_kill(server: s3fs.S3FileSystem) -> None:
    folder = remote.local_folder("s3://bucket/killed", "write")
    (folder / "predictions").mkdir(parents=True)
    (folder / "predictions" / "part-half.parquet").write_bytes(b"never sent")
    with workplace("s3://bucket/killed", LocalExecutor(1)) as (again, _):
        assert again == folder and not list(again.rglob("part-*"))


class AnotherMachine:
    """Does work as a worker elsewhere would: a copy of it, on a disk that does not have the folder."""

    width, shares_memory, remote = 2, False, True

    def __init__(self, folder: Path, found: dict[str, bytes] | None = None) -> None:
        self.folder, self.found = folder.parent, found or {}

    def map(self, work: Callable[[int], int], shards: Iterable[int]) -> Iterator[int]:
        ours = self.folder.with_name("ours")
        for shard in shards:
            self.folder.rename(ours)
            for name, content in self.found.items():
                write_atomic(self.folder / name, content)
            yield pickle.loads(pickle.dumps(work))(shard)
            shutil.rmtree(self.folder)
            ours.rename(self.folder)

    def close(self) -> None:
        """Nothing to give back."""


@dataclass
class Doubling:
    """Reads what the planning process wrote, leaves an image and a table."""

    folder: Path
    reads: bool

    def __call__(self, shard: int) -> int:
        number = int((self.folder / "plan.txt").read_text()) if self.reads else 21
        write_atomic(self.folder / "images" / f"{shard}.png", b"a picture")
        write_atomic(self.folder / "predictions" / f"part-{shard}.parquet", b"a table")
        return 2 * number


@pytest.mark.parametrize("whole", [True, False])
def test_workers_on_other_disks(server: s3fs.S3FileSystem, whole: bool) -> None:
    url = f"s3://bucket/many-disks-{whole}"
    folder = remote.local_folder(url, "write")
    # What a run that was killed had left on the worker's disk must not come into this one.
    executor = AnotherMachine(folder, {f"{folder.name}/predictions/part-old.parquet": b"of a killed run"})
    with workplace(url, executor, whole=whole) as (folder, sending):
        write_atomic(folder / "plan.txt", b"21")
        assert (sending.width, sending.shares_memory, sending.remote) == (2, False, True)
        assert list(sending.map(Doubling(folder, reads=whole), [0, 1])) == [42, 42]
        tables = sorted(path.name for path in (folder / "predictions").iterdir())
        assert tables == ["part-0.parquet", "part-1.parquet"]
        assert (folder / "predictions" / "part-1.parquet").read_bytes() == b"a table"
        assert (folder / "images" / "1.png").read_bytes() == (b"a picture" if whole else b"")
    names = {"plan.txt", *(f"images/{n}.png" for n in (0, 1)), *(f"predictions/part-{n}.parquet" for n in (0, 1))}
    assert set(objects(server, url.removeprefix("s3://"))) == names
    assert server.cat_file(f"{url}/images/1.png") == b"a picture"


def test_one_writer_at_a_time(server: s3fs.S3FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BEAT", 0.05)
    monkeypatch.setattr(remote, "SILENCE", 2.0)
    with workplace("s3://bucket/shared") as (folder, _):
        refused = rf"another process \({os.getpid()} on .* is writing to s3://bucket/shared"
        with pytest.raises(UserError, match=refused), workplace("s3://bucket/shared"):
            raise AssertionError("two writers")
        (folder / "done.txt").write_text("done")
    assert set(objects(server, "bucket/shared")) == {"done.txt"}
    # One that was killed far away gives no sign of life; one that was killed here is known to be gone.
    monkeypatch.setattr(remote, "SILENCE", 0.2)
    for home in ("another machine", remote._home()):
        server.pipe_file(
            "bucket/shared/.holdfast-writer", f'{{"token": "t", "pid": 999999999, "home": "{home}"}}'.encode()
        )
        with workplace("s3://bucket/shared") as (folder, _):
            assert (folder / "done.txt").is_file()
    assert set(objects(server, "bucket/shared")) == {"done.txt"}


def test_of_two_that_find_a_writer_dead_one_goes_on(server: s3fs.S3FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BEAT", 0.2)
    monkeypatch.setattr(remote, "SILENCE", 2.0)
    dead = f'{{"token": "t", "pid": 999999999, "home": "{remote._home()}"}}'
    server.pipe_file("bucket/contested/.holdfast-writer", dead.encode())
    together, told = threading.Barrier(2), []

    def write() -> None:
        together.wait()
        try:
            with workplace("s3://bucket/contested"):
                time.sleep(0.6)
                told.append("written")
        except UserError as error:
            told.append(str(error))

    threads = [threading.Thread(target=write) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(told)[1] == "written" and "is writing to s3://bucket/contested" in sorted(told)[0]


def test_a_writer_that_ends_meanwhile_is_no_hindrance(
    server: s3fs.S3FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "BEAT", 0.05)
    monkeypatch.setattr(remote, "SILENCE", 30.0)
    name = "bucket/ended/.holdfast-writer"
    server.pipe_file(name, b'{"token": "t", "home": "another machine"}')
    gone = threading.Timer(0.3, lambda: server.rm_file(name))
    gone.start()
    with workplace("s3://bucket/ended") as (folder, _):
        (folder / "mine.txt").write_text("mine")
    gone.join()
    assert set(objects(server, "bucket/ended")) == {"mine.txt"}
