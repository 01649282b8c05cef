"""Tar shards are indexed in place, grouped by key, never extracted."""

from __future__ import annotations

import io
import json
import pickle
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import SampleError, UserError
from holdfast.data import load_collection
from holdfast.data.readers.listed import expand_braces

PICTURE = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)


@pytest.fixture
def write_shard(tmp_path, encode):
    image = encode(PICTURE)
    half = encode((np.arange(48).reshape(6, 8) < 24) * np.uint8(255))

    def write(name, members, **options):
        path = tmp_path / name
        with tarfile.open(path, options.pop("mode", "w"), **options) as archive:
            for member, content in members:
                content = {"image": image, "mask": half}.get(content, content)
                content = content.encode() if isinstance(content, str) else content
                info = tarfile.TarInfo(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return path

    return write


def problems(collection):
    return {one.sample_id: one.message for one in collection.problems}


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_images_labels_and_masks(write_shard, tmp_path, format):
    long = "d" * 120 + "/x"
    write_shard(
        "s-000.tar",
        [
            ("a.png", "image"),
            ("a.cls", "3"),
            ("a.mask.png", "mask"),
            ("./dog/b.PNG", "image"),
            ("./dog/b.txt", "dog\n"),
            ("./dog/b.seg.png", "mask"),
        ],
        format=format,
    )
    facts = {"label": "cat", "source_id": "a", "scenario": "red", "fold": 2, "camera": "Leica", "x": float("inf")}
    write_shard("s-001.tar", [(f"{long}.png", "image"), (f"{long}.json", json.dumps(facts))], format=format)
    collection = load_collection(f"{tmp_path}/s-{{000..001}}.tar")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert (collection.name, collection.classes, collection.problems) == ("s", ("3", "cat", "dog"), ())
    assert [sample.sample_id for sample in collection.samples] == ["a", "dog/b", long]
    for sample in pickle.loads(pickle.dumps(collection)).samples:
        np.testing.assert_array_equal(sample.image.load(), PICTURE)
    a, b, c = collection.samples
    assert a.mask.load(6, 8).sum() == b.mask.load(6, 8).sum() == 24 and c.mask is None
    assert (c.label, c.source_id, c.condition, c.fold, c.attributes) == ("cat", "a", "red", 2, {"camera": "Leica"})
    assert sorted(path.name for path in tmp_path.iterdir()) == before == ["s-000.tar", "s-001.tar"]


def test_integer_labels_get_their_names(write_shard, tmp_path):
    path = write_shard("s.tar", [("a.png", "image"), ("a.cls", "1"), ("b.png", "image"), ("b.cls", "7")])
    (tmp_path / "names.txt").write_text("tench, Tinca tinca\ndog\n")
    collection = load_collection(f"webdataset:{path}?classes={tmp_path}/names.txt")
    assert [(sample.sample_id, sample.label) for sample in collection.samples] == [("a", "dog")]
    assert collection.classes == ("dog",)
    found = problems(collection)
    assert "beyond the 2 names" in found["b"] and "has no image" in found["tench, Tinca tinca"]
    (tmp_path / "names.txt").write_text("dog\ndog\n")
    with pytest.raises(UserError, match="twice"):
        load_collection(f"webdataset:{path}?classes={tmp_path}/names.txt")
    with pytest.raises(UserError, match=r"the classes file .* does not exist; did you mean"):
        load_collection(f"webdataset:{path}?classes={tmp_path}/name.txt")


def test_numbers_sort_as_numbers(write_shard):
    members = [(f"{n}.{kind}", "image" if kind == "png" else str(n)) for n in (10, 9, 2) for kind in ("png", "cls")]
    assert load_collection(str(write_shard("s.tar", members))).classes == ("2", "9", "10")


def test_keys_used_in_several_shards_carry_their_shard(write_shard, tmp_path):
    for shard in "ab":
        write_shard(
            f"{shard}.tar", [("0.png", "image"), ("0.cls", "x"), (f"{shard}1.png", "image"), (f"{shard}1.cls", "y")]
        )
    collection = load_collection(f"{tmp_path}/{{a,b}}.tar")
    assert [sample.sample_id for sample in collection.samples] == ["a/0", "a1", "b/0", "b1"]
    assert len(load_collection(str(tmp_path))) == 4  # a folder of shards


def test_ids_that_synth_wrote_win_over_keys(write_shard):
    facts = json.dumps(
        {"sample_id": "red/cat/b", "source_id": "cat/b", "label": "cat", "path": "/etc/passwd", "mask": "x"}
    )
    (sample,) = load_collection(str(write_shard("s.tar", [("000.png", "image"), ("000.json", facts)]))).samples
    assert (sample.sample_id, sample.source_id, sample.attributes) == ("red/cat/b", "cat/b", {})


def test_members_that_make_no_sense_are_problems(write_shard):
    members = [
        ("good.png", "image"),
        ("good.cls", "x"),
        ("nolabel.png", "image"),
        ("noimage.cls", "x"),
        ("badjson.png", "image"),
        ("badjson.json", "{"),
        ("list.png", "image"),
        ("list.json", "[1]"),
        ("binary.png", "image"),
        ("binary.cls", b"\xff\xfe"),
        ("long.png", "image"),
        ("long.txt", "x" * (1 << 20) + "y"),
        ("many.png", "image"),
        ("many.cls", "9" * 5000),
        ("good.png", "image"),
        ("good.cls", "x"),
        ("../../etc/cron.png", "image"),
        ("../../etc/cron.cls", "x"),
    ]
    collection = load_collection(str(write_shard("s.tar", members)))
    assert [sample.sample_id for sample in collection.samples] == ["s/good", "many", "../../etc/cron"]
    found = problems(collection)
    assert "no label" in found["nolabel"] and "no label" in found["list"]
    assert "no image" in found["noimage"]
    assert "not JSON" in found["badjson"]
    assert "not text" in found["binary"]
    assert "is not a label" in found["long"]
    assert "taken already" in found["s/good#2"]


def test_links_and_devices_are_passed_over(tmp_path, write_shard):
    path = write_shard("s.tar", [("a.png", "image"), ("a.cls", "x")])
    with tarfile.open(path, "a") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("b.png")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    collection = load_collection(str(path))
    assert len(collection) == 1 and collection.problems == ()


def test_broken_shards_give_what_they_can(write_shard, tmp_path):
    members = [(f"{n}.{kind}", "image" if kind == "png" else "x") for n in range(9) for kind in ("cls", "png")]
    whole = write_shard("a.tar", members)
    data = whole.read_bytes()
    (tmp_path / "b.tar").write_bytes(data[: 512 * 4 * 5 + 700])  # ends inside a member
    (tmp_path / "c.tar").write_bytes(b"no tar at all" * 100)
    write_shard("d.tar", members, mode="w:gz")
    collection = load_collection(f"{tmp_path}/{{a,b,c,d}}.tar")
    assert sum(sample.image.path == whole for sample in collection.samples) == 9
    found = problems(collection)
    assert all("damaged or not an uncompressed tar" in found[shard] for shard in ("b.tar", "c.tar", "d.tar"))
    broken = [sample for sample in collection.samples if sample.image.path == tmp_path / "b.tar"]
    assert len(broken) >= 4
    whole.write_bytes(data[:3000])
    with pytest.raises(SampleError, match="cut short"):
        collection.samples[8].image.load()
    with pytest.raises(UserError, match=r"no usable image .*c\.tar"):
        load_collection(str(tmp_path / "c.tar"))


def test_masks_by_hand(write_shard, tmp_path, write_mask):
    write_mask(tmp_path / "m/a.png")
    path = write_shard("s.tar", [("a.png", "image"), ("a.cls", "x")])
    assert load_collection(str(path), masks=tmp_path / "m").samples[0].mask.load(6, 8).sum() == 24


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 5))
def test_brace_ranges(first, extra, width):
    expected = [f"x-{number:0{width}d}.tar" for number in range(first, first + extra + 1)]
    assert expand_braces(f"x-{{{first:0{width}d}..{first + extra:0{width}d}}}.tar") == expected


def test_brace_lists_products_and_limits():
    assert expand_braces("{a,b}-{8..10}") == ["a-8", "a-9", "a-10", "b-8", "b-9", "b-10"]
    assert expand_braces("plain.tar") == ["plain.tar"]
    with pytest.raises(UserError, match="backwards"):
        expand_braces("{3..1}")
    for pattern in ("{0..99999999}", "{0..999}{0..999}"):
        with pytest.raises(UserError, match="more than 100,000"):
            expand_braces(pattern)


def test_a_folder_without_shards(tmp_path):
    with pytest.raises(UserError, match=r"no .tar file"):
        load_collection(f"webdataset:{tmp_path}")


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_agrees_with_the_webdataset_library(write_shard):  # which leaves its files open
    import webdataset

    members = [(f"k{n}.{kind}", "image" if kind == "png" else str(n)) for n in range(4) for kind in ("png", "cls")]
    path = write_shard("s.tar", members)
    reference = [
        (one["__key__"], one["cls"].decode(), one["png"])
        for one in webdataset.WebDataset(str(path), shardshuffle=False)
    ]
    ours = [(one.sample_id, one.label, one.image.read()) for one in load_collection(str(path)).samples]
    assert ours == reference
