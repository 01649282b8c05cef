"""COCO files and manifests: lists of images that may say anything."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pycocotools import mask as coco

from holdfast.core.errors import SampleError, UserError
from holdfast.data import load_collection

SQUARE = [0, 0, 4, 0, 4, 3, 0, 3]


@pytest.fixture
def write_coco(tmp_path, write_image):
    def write(annotations, *, images=None, file="instances.json", **rest):
        for number in (1, 2):
            write_image(tmp_path / f"images/{number}.png")
        content = {
            "images": images
            or [{"id": n, "file_name": f"{n}.png", "height": 6, "width": 8, "license": 3} for n in (1, 2)],
            "annotations": annotations,
            "categories": [{"id": 9, "name": "cat"}, {"id": 10, "name": "dog"}, {"id": 2, "name": "ant"}],
            "licenses": [{"id": 3, "name": "CC0"}],
            **rest,
        }
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
        return str(path)

    return write


def instance(image, category, area, segmentation=(), **rest):
    return {"image_id": image, "category_id": category, "area": area, "segmentation": list(segmentation), **rest}


def problems(collection):
    return {one.sample_id: one.message for one in collection.problems}


def test_coco_label_mask_and_licence(write_coco, tmp_path):
    right = np.zeros((6, 8), np.uint8)
    right[:, 6:] = 1
    runs = coco.encode(np.asfortranarray(right))
    crowd = {"size": [6, 8], "counts": [42, 6]}
    path = write_coco(
        [
            instance(1, 10, 12, [SQUARE]),
            instance(1, 9, 11, [[5, 5, 6, 5, 6, 6]]),
            {**instance(1, 10, 99), "segmentation": crowd, "iscrowd": 1},
            {**instance(2, 9, 12), "segmentation": {"size": [6, 8], "counts": runs["counts"].decode()}},
        ]
    )
    collection = load_collection(path)
    assert collection.name == tmp_path.name
    assert collection.classes == ("cat", "dog")
    assert problems(collection) == {"ant": "the class 'ant' has no image"}
    dog, cat = collection.samples
    assert (dog.sample_id, dog.label, dog.licence, cat.label) == ("1", "dog", "CC0", "cat")
    expected = np.zeros((6, 8), bool)
    expected[:3, :4] = True
    expected[:, 7] = True
    np.testing.assert_array_equal(dog.mask.load(6, 8), expected)
    np.testing.assert_array_equal(cat.mask.load(6, 8), right.astype(bool))
    assert dog.image.load().shape == (6, 8, 3)


def test_crowds_decide_only_where_there_is_nothing_else(write_coco):
    crowd = {"segmentation": {"size": [6, 8], "counts": [42, 6]}, "iscrowd": 1}
    collection = load_collection(
        write_coco([instance(1, 10, 5, [SQUARE]), {**instance(1, 9, 500), **crowd}, {**instance(2, 9, 500), **crowd}])
    )
    assert [sample.label for sample in collection.samples] == ["dog", "cat"]


def test_coco_areas_may_be_missing_or_absurd(write_coco):
    huge = {**instance(1, 9, 10**400, [SQUARE]), "bbox": [0, 0, 2, 2]}
    boxed = {**instance(1, 10, 0, [SQUARE]), "bbox": [0, 0, 3, 3], "area": None}
    collection = load_collection(write_coco([huge, boxed, {"image_id": 2, "category_id": 10}]))
    assert [sample.label for sample in collection.samples] == ["dog", "dog"]
    assert collection.samples[1].mask is None


def test_coco_problems_are_named(write_coco, tmp_path, write_image):
    write_image(tmp_path / "outside.png")
    images = [
        {"id": 1, "file_name": "1.png", "height": 6, "width": 8},
        {"id": 2, "file_name": "2.png", "height": 6},
        {"id": 3, "file_name": "none.png"},
        {"id": 4, "file_name": "../outside.png"},
        {"id": 5, "file_name": "1.png", "height": 6, "width": 8},
        {"id": 6},
    ]
    annotations = [instance(n, 9, 5, [SQUARE]) for n in (1, 2, 3, 4, 5)] + [instance([7], {}, 5)]
    collection = load_collection(write_coco(annotations, images=images))
    assert [sample.sample_id for sample in collection.samples] == ["1.png"]
    found = problems(collection)
    assert "no height and width" in found["2"]
    assert "no file 'none.png'" in found["none"]
    assert "outside the dataset" in found["../outside"]
    assert "taken already" in found["1.png#2"]
    assert "path is empty" in found["image 6"]


def test_coco_finds_its_images(write_coco, tmp_path, write_image):
    path = write_coco([instance(1, 9, 5), instance(2, 9, 5)], file="annotations/instances_val2017.json")
    assert len(load_collection(path)) == 2  # ../images
    (tmp_path / "images").rename(tmp_path / "val2017")
    assert len(load_collection(path)) == 2
    (tmp_path / "val2017").rename(tmp_path / "photos")
    with pytest.raises(UserError, match=r"no usable image .*no file '1.png'"):
        load_collection(path)
    assert len(load_collection(f"coco:{path}?images={tmp_path}/photos")) == 2
    with pytest.raises(UserError, match=r"did you mean .*photos"):
        load_collection(f"coco:{path}?images={tmp_path}/photo")


def test_coco_masks_given_by_hand_win(write_coco, tmp_path, write_mask):
    write_mask(tmp_path / "m/1.png")
    collection = load_collection(write_coco([instance(1, 9, 5, [SQUARE]), instance(2, 9, 5)]), masks=tmp_path / "m")
    assert collection.samples[0].mask.load(6, 8).sum() == 24


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", "{", '{"images": 3}', '{"images": [1], "annotations": [], "categories": []}']
)
def test_what_is_no_coco_file_says_so(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=r"not readable JSON|not a COCO instances file"):
        load_collection(str(tmp_path / "a.json"))


def test_deeply_nested_json_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("[" * 200_000)
    with pytest.raises(UserError, match="not readable JSON"):
        load_collection(str(tmp_path / "a.json"))


@pytest.fixture
def photos(tmp_path, write_image, write_mask):
    folder = tmp_path / "set"
    for name in ("dog/a.png", "dog/a.jpg", "cat/b.png"):
        write_image(folder / name)
    write_mask(folder / "m/b.png")
    write_image(tmp_path / "secret.png")
    return folder


def test_manifest_reads_every_column(photos):
    (photos / "list.csv").write_text(
        "\ufeffpath,label,mask,sample_id,source_id,split,fold,kind,condition,licence,camera\n"
        "cat/b.png,cat,m/b.png,one,photo7,train,3,generated,red,CC0,Leica\n"
        "dog/a.png,dog,,,,,,,,,\n",
        encoding="utf-8",
    )
    collection = load_collection(str(photos / "list.csv"))
    assert (collection.name, collection.classes, collection.problems) == ("list", ("cat", "dog"), ())
    cat, dog = collection.samples
    assert (cat.sample_id, cat.source_id, cat.split, cat.fold) == ("one", "photo7", "train", 3)
    assert (cat.kind, cat.condition, cat.licence, cat.attributes) == ("generated", "red", "CC0", {"camera": "Leica"})
    assert cat.mask.load(6, 8).sum() == 24
    assert (dog.sample_id, dog.source_id, dog.fold, dog.kind, dog.condition) == (
        "dog/a",
        "dog/a",
        -1,
        "static",
        "original",
    )
    assert dog.mask is None and dog.attributes == {}


def test_manifest_as_synth_writes_it(photos):
    rows = [
        {
            "path": "cat/b.png",
            "mask_path": "m/b.png",
            "sample_id": "red/cat/b",
            "source_id": "cat/b",
            "label": "cat",
            "scenario": "red",
            "variant": "paper",
            "parameters": "{}",
            "donor_id": None,
            "seed": 12,
            "sha256": "ab",
            "licence": None,
            "fold": -1,
            "status": "ok",
            "error": None,
        },
        {"sample_id": "red/cat/c", "label": "cat", "scenario": "red", "status": "error", "error": "the mask is empty"},
    ]
    pq.write_table(pa.Table.from_pylist(rows), photos / "manifest.parquet")
    collection = load_collection(str(photos))
    assert collection.name == "set"
    assert problems(collection) == {"red/cat/c": "error: the mask is empty"}
    (sample,) = collection.samples
    assert (sample.sample_id, sample.source_id, sample.condition) == ("red/cat/b", "cat/b", "red")
    assert sample.attributes == {"variant": "paper", "parameters": "{}", "seed": 12, "sha256": "ab", "status": "ok"}
    assert sample.mask.load(6, 8).sum() == 24


def test_parquet_values_become_plain_ones(photos):
    table = pa.table({"path": ["cat/b.png"], "label": [7], "depth": [float("nan")], "blob": [b"x"], "nested": [[1]]})
    pq.write_table(table, photos / "m.parquet")
    (sample,) = load_collection(str(photos / "m.parquet")).samples
    assert sample.label == "7" and sample.attributes == {}


def test_manifest_paths_may_not_leave_the_folder(photos, tmp_path):
    (photos / "link.png").symlink_to(tmp_path / "secret.png")
    (photos / "inner.png").symlink_to(photos / "cat/b.png")
    (photos / "up").symlink_to(tmp_path)
    paths = ["../secret.png", str(tmp_path / "secret.png"), "link.png", "up/secret.png", "cat/../../secret.png"]
    paths += ["..\\secret.png", "C:\\secret.png", "cat", "none.png", "inner.png", "cat/b.png"]
    (photos / "list.csv").write_text("path,label\n" + "".join(f"{path},x\n" for path in paths))
    collection = load_collection(str(photos / "list.csv"))
    assert [sample.sample_id for sample in collection.samples] == ["inner", "cat/b"]
    messages = [one.message for one in collection.problems]
    assert len(messages) == 9
    assert sum("outside the dataset" in message for message in messages) == 7
    assert sum("there is no file" in message for message in messages) == 2
    (photos / "list.csv").write_text("path,label,mask\ncat/b.png,x,../secret.png\ndog/a.png,x,\n")
    assert "outside the dataset" in problems(load_collection(str(photos / "list.csv")))["cat/b"]


def test_manifest_root_can_be_set(photos, tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/l.tsv").write_text("path\tlabel\ncat/b.png\tcat\n")
    assert len(load_collection(f"manifest:{tmp_path}/lists/l.tsv?root={photos}")) == 1
    with pytest.raises(UserError, match="no usable image"):
        load_collection(f"manifest:{tmp_path}/lists/l.tsv")


def test_manifest_rows_that_make_no_sense_are_problems(photos):
    (photos / "l.csv").write_text(
        "path,label,sample_id,fold\ncat/b.png,cat,x,\ndog/a.png,dog,x,\ndog/a.jpg,,y,\n,dog,,\ndog/a.jpg,dog,z,two\n"
    )
    collection = load_collection(str(photos / "l.csv"))
    assert [sample.sample_id for sample in collection.samples] == ["x"]
    found = problems(collection)
    assert "taken already" in found["x#2"]
    assert found["y"] == "row 3: there is no label"
    assert found["row 4"] == "row 4: there is no path"
    assert "not a whole number" in found["z"]


def test_equal_stems_keep_their_suffix(photos):
    (photos / "l.csv").write_text("path,label\ndog/a.png,dog\ndog/a.jpg,dog\n")
    assert [sample.sample_id for sample in load_collection(str(photos / "l.csv")).samples] == ["dog/a.png", "dog/a.jpg"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"file,class\na.png,x\n", "has no column 'path' or 'label'; its columns are file, class"),
        (b"path\na.png\n", "has no column 'label'"),
        (b"", "its columns are none"),
        (b"path,label\n\xff\xfe,x\n", "cannot be read"),
        (b'path,label\n"a,x\n', "cannot be read"),
        (b"path,label\n", "no usable image"),
    ],
)
def test_unusable_manifests_are_mistakes(tmp_path, content, sentence):
    (tmp_path / "l.csv").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        load_collection(str(tmp_path / "l.csv"))


def test_a_parquet_that_is_none(tmp_path):
    (tmp_path / "l.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UserError, match="cannot be read"):
        load_collection(str(tmp_path / "l.parquet"))


def test_a_file_deleted_after_loading_is_a_sample_error(photos):
    (photos / "l.csv").write_text("path,label\ncat/b.png,cat\n")
    (sample,) = load_collection(str(photos / "l.csv")).samples
    (photos / "cat/b.png").unlink()
    with pytest.raises(SampleError, match=r"b.png cannot be read"):
        sample.image.fingerprint()
