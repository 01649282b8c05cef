"""Every reader on a store: the same collection as from the disk."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from holdfast.core.errors import MachineError, SampleError, UserError
from holdfast.core.places import address
from holdfast.core.types import Collection
from holdfast.data import load_collection
from holdfast.data.labels import read_label_file
from holdfast.data.writers import mask_rle, write_tar_shard
from holdfast.pipeline.donors import make_pool
from shapes import make_photos


@pytest.fixture
def store() -> Iterator[Callable[[Path], str]]:
    """Copies a folder into a store that lives in memory; returns its address."""
    files = fsspec.filesystem("memory")

    def put(folder: Path) -> str:
        for path in folder.rglob("*"):
            if path.is_file():
                files.pipe_file(f"/bucket/{folder.name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"memory://bucket/{folder.name}"

    yield put
    if files.exists("/bucket"):
        files.rm("/bucket", recursive=True)


def facts(collection: Collection) -> list[object]:
    """All that rows are made of; pickled once, as on the way to a worker."""
    samples = pickle.loads(pickle.dumps(collection.samples))
    return [
        collection.name,
        collection.classes,
        dict(collection.keys),
        sorted((one.sample_id, one.message) for one in collection.problems),
        [
            (
                one.sample_id, one.label, one.source_id, one.split, one.condition, dict(one.attributes),
                one.image.fingerprint(), one.mask and one.mask.fingerprint(),
            )
            for one in samples
        ],
    ]  # fmt: skip


def same(local: str, remote: str, **options: str) -> Collection:
    on_disk = load_collection(local, **{key: value.partition("|")[0] for key, value in options.items()})
    in_store = load_collection(remote, **{key: value.partition("|")[2] for key, value in options.items()})
    assert facts(in_store) == facts(on_disk)
    assert all(address(one.image.path) for one in in_store.samples)
    return in_store


def test_folders_with_masks_and_oddities(tmp_path: Path, store: Callable[[Path], str]) -> None:
    photos = make_photos(tmp_path / "photos", 2)
    (photos / "images" / "disc" / ".hidden.png").write_bytes(b"x")
    (photos / "images" / "disc" / "raw.heic").write_bytes(b"x")
    (photos / "images" / "lost.png").write_bytes(b"x")
    url = store(photos)
    found = same(str(photos), url)
    assert len(found.samples) == 6 and all(one.mask for one in found.samples)
    assert len(found.problems) == 2
    same(str(photos / "images"), f"{url}/images")
    same(f"folder:{photos}?mask_format=grey", f"folder:{url}?mask_format=grey", masks=f"{photos}/masks|{url}/masks")
    # What pathlib made of an address is still one.
    assert len(load_collection(url, masks=Path(f"{url}/masks")).samples) == 6


def test_splits_of_a_tree(tmp_path: Path, store: Callable[[Path], str]) -> None:
    photos = make_photos(tmp_path / "made", 2)
    for split in ("train", "val"):
        shutil.copytree(photos / "images", tmp_path / "tree" / split)
    found = same(str(tmp_path / "tree"), store(tmp_path / "tree"))
    assert {one.split for one in found.samples} == {"train", "val"}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_manifests(tmp_path: Path, store: Callable[[Path], str], kind: str) -> None:
    photos = make_photos(tmp_path / "photos", 2)
    rows = [
        {"path": f"images/{label}/{n}.png", "mask": f"masks/{label}/{n}.png", "label": label, "split": "test"}
        for label in ("cross", "disc")
        for n in (0, 1, 2)  # there is no 2
    ]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), photos / "list.parquet")
    else:
        lines = ["path,mask,label,split", *(",".join(row.values()) for row in rows)]
        (photos / "list.csv").write_text("\n".join(lines))
    url = store(photos)
    found = same(f"{photos}/list.{kind}", f"{url}/list.{kind}")
    assert len(found.samples) == 4 and len(found.problems) == 2
    same(f"manifest:{photos}/list.{kind}?root={photos}", f"manifest:{url}/list.{kind}?root={url}")


def test_the_ximagenet12_layout(tmp_path: Path, store: Callable[[Path], str]) -> None:
    photos = make_photos(tmp_path / "made", 2)
    root = tmp_path / "ximagenet12"
    for folder in ("image", "image_g"):
        shutil.copytree(photos / "images" / "disc", root / folder / "n02085936")
    shutil.copytree(photos / "masks" / "disc", root / "standard_masks" / "n02085936")
    found = same(str(root), store(root))
    assert {one.condition for one in found.samples} == {"original", "green"}


def test_coco(tmp_path: Path, store: Callable[[Path], str]) -> None:
    photos = make_photos(tmp_path / "photos", 2)
    sample = load_collection(str(photos)).samples[0]
    counts = mask_rle(sample.mask.load(48, 64))
    document = {
        "images": [{"id": 1, "file_name": "cross/0.png", "height": 48, "width": 64}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "segmentation": {"size": [48, 64], "counts": counts}, "area": 9}
        ],
        "categories": [{"id": 1, "name": "cross"}],
    }
    (photos / "instances.json").write_text(json.dumps(document))
    url = store(photos)
    found = same(f"{photos}/instances.json", f"{url}/instances.json")
    assert len(found.samples) == 1 and found.samples[0].mask
    same(f"coco:{photos}/instances.json?images={photos}/images", f"coco:{url}/instances.json?images={url}/images")


def test_webdataset_shards(tmp_path: Path, store: Callable[[Path], str]) -> None:
    photos = make_photos(tmp_path / "made", 2)
    shards = tmp_path / "shards"
    for number, label in enumerate(("cross", "disc")):
        files = []
        for n in (0, 1):
            told = {"sample_id": f"{label}/{n}", "label": label, "path": f"{n}.png"}
            image, mask = ((photos / tree / label / f"{n}.png").read_bytes() for tree in ("images", "masks"))
            files.append((told, image, mask))
        write_tar_shard(shards / f"part-{number}.tar", files)
    url = store(shards)
    assert len(same(str(shards), url).samples) == 4
    same(f"{shards}/part-{{0..1}}.tar", f"{url}/part-{{0..1}}.tar")
    same(f"{shards}/part-0.tar", f"{url}/part-0.tar")


def test_a_list_cannot_lead_elsewhere(tmp_path: Path, store: Callable[[Path], str]) -> None:
    photos = make_photos(tmp_path / "photos", 1)
    secret = tmp_path / "secret.png"
    shutil.copy(photos / "images" / "disc" / "0.png", secret)
    url = store(photos)
    fsspec.filesystem("memory").pipe_file("/bucket/other/secret.png", secret.read_bytes())
    paths = [
        "../other/secret.png", "memory://bucket/other/secret.png", "s3://other/secret.png", str(secret),
        f"file://{secret}", "images/../../other/secret.png", "a::memory://bucket/other/secret.png",
        "..\\other/secret.png",
    ]  # fmt: skip
    lines = ["path,label,mask", "images/disc/0.png,disc,", *(f"{path},disc," for path in paths)]
    lines.append("images/cross/0.png,disc,../other/secret.png")
    fsspec.filesystem("memory").pipe_file("/bucket/photos/list.csv", "\n".join(lines).encode())
    found = load_collection(f"{url}/list.csv")
    assert [one.sample_id for one in found.samples] == ["images/disc/0"]
    assert len(found.problems) == len(paths) + 1


def test_a_local_list_cannot_lead_into_a_store(tmp_path: Path, store: Callable[[Path], str]) -> None:
    photos = make_photos(tmp_path / "photos", 1)
    url = store(photos)
    (photos / "list.csv").write_text(f"path,label\nimages/disc/0.png,disc\n{url}/images/disc/0.png,disc\n")
    found = load_collection(str(photos / "list.csv"))
    assert len(found.samples) == len(found.problems) == 1


def test_backgrounds_and_labels(tmp_path: Path, store: Callable[[Path], str]) -> None:
    photos = make_photos(tmp_path / "photos", 2)
    (photos / "labels.csv").write_text("class,label\ndisc,plate\n")
    url = store(photos)
    assert read_label_file(Path(f"{url}/labels.csv")) == read_label_file(photos / "labels.csv")
    samples = load_collection(str(photos)).samples
    lent = [make_pool(samples, str(place), max_pixels=10_000).samples for place in (photos, url)]
    assert [one.sample_id for one in lent[0]] == [one.sample_id for one in lent[1]]
    assert [one.image.fingerprint() for one in lent[0]] == [one.image.fingerprint() for one in lent[1]]
    with pytest.raises(UserError, match="not a folder"):
        make_pool(samples, f"{url}/nothing", max_pixels=10_000)


def test_mistakes_are_sentences(tmp_path: Path, store: Callable[[Path], str]) -> None:
    url = store(make_photos(tmp_path / "photos", 1))
    with pytest.raises(UserError, match="'memory://bucket/photo' does not exist"):
        load_collection("memory://bucket/photo")
    with pytest.raises(UserError, match="credentials belong in the environment") as raised:
        load_collection("s3://key:secret@bucket/photos")
    assert "secret@" not in str(raised.value)
    with pytest.raises(UserError, match="pip install"):
        load_collection("abfs://container/photos")
    sample = load_collection(url).samples[0]
    fsspec.filesystem("memory").rm(f"/bucket/photos/images/{sample.sample_id}.png")
    with pytest.raises(SampleError, match=r"0\.png cannot be read: no such object"):
        sample.image.load()


@pytest.mark.parametrize("error", [ConnectionRefusedError("refused"), PermissionError("403"), TimeoutError("late")])
def test_a_store_that_is_away_stops_the_command(
    error: Exception, tmp_path: Path, store: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> bytes:
        raise error

    url = store(make_photos(tmp_path / "photos", 2))
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "cat_file", away)
    with pytest.raises(MachineError, match=r"\.png cannot be read: .*; run the same command again later"):
        holdfast.synth(url, scenarios="grey", out=tmp_path / "out", workers=1)
    assert not list((tmp_path / "out").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("s3://bucket/a//b/", "s3://bucket/a/b"),
        ("s3:/bucket/a", "s3://bucket/a"),
        ("s3://bucket", "s3://bucket"),
        ("photos/s3://bucket", ""),
        ("https://localhost/a", ""),
        ("timm:resnet50", ""),
        ("s3:bucket", ""),
        ("s3://", ""),
        ("hdfs://host:9000/a@2x", "hdfs://host:9000/a@2x"),
        ("abfs://container@account/a:b", "abfs://container@account/a:b"),
        ("s3://bucket/12:30@noon/...", "s3://bucket/12:30@noon/..."),
        ("s3://arn:aws:s3:eu:1:accesspoint/name/a@2x", "s3://arn:aws:s3:eu:1:accesspoint/name/a@2x"),
    ],
)
def test_what_is_an_address(typed: str, meant: str) -> None:
    assert address(typed) == address(Path(typed)) == meant


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("s3://key:secret@bucket/a", "password"),
        ("s3://key:sec/ret@bucket/a", "password"),
        ("s3:/key:sec/r:et@bucket", "password"),
        ("s3://..", "without"),
        ("s3://bucket/..", "without"),
        ("s3://bucket/a/../../b", "without"),
        ("s3://bucket/a/.", "without"),
    ],
)
def test_addresses_that_are_refused(typed: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as raised:
        address(typed)
    assert "ret@" not in str(raised.value)
