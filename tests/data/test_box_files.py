"""Boxes from COCO, YOLO, Pascal VOC and CSV files, and annotations that cannot be used."""

import json

import cv2
import numpy as np
import pytest

from holdfast.core.errors import SampleError, UserError
from holdfast.data import load_collection
from holdfast.data.boxes import CORNERS, SHARES, SIZED, checked_box
from holdfast.data.collection import box_data


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("a", "b", "c"):
        cv2.imwrite(str(folder / f"{name}.jpg"), np.full((40, 60, 3), 90, np.uint8))
    return folder


def boxes_of(collection, sample_id, size=(40, 60)):
    sample = next(each for each in (*collection.samples, *collection.empty) if each.sample_id == sample_id)
    return sample.objects.load(*size)


def coco(path, annotations, images=("a", "b", "c"), **more):
    entries = [{"id": n, "file_name": f"{name}.jpg", "height": 40, "width": 60} for n, name in enumerate(images)]
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    path.write_text(json.dumps({"images": entries, "annotations": annotations, "categories": categories} | more))
    return path


def test_coco_keeps_every_instance_and_images_without_any(images, tmp_path):
    square = [[5, 5, 15, 5, 15, 15, 5, 15]]
    file = coco(
        tmp_path / "instances.json",
        [
            {"id": 7, "image_id": 0, "category_id": 1, "bbox": [0, 0, 30, 20], "segmentation": [], "area": 600},
            {"id": 8, "image_id": 0, "category_id": 2, "bbox": [5, 5, 10, 10], "segmentation": square, "area": 100},
            {"id": 9, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "iscrowd": 1},
        ],
    )
    collection = load_collection(f"coco:{file}?images={images}")
    assert [sample.label for sample in collection.samples] == ["cat", "cat"]
    assert collection.object_classes == ("cat", "dog")
    first, second = boxes_of(collection, "a")
    assert (first.object_id, first.label, first.box, first.area) == ("7", "cat", (0, 0, 30, 20), 600)
    assert second.mask.load(40, 60).sum() == 100
    assert boxes_of(collection, "b")[0].crowd
    assert [sample.sample_id for sample in collection.empty] == ["c"] and boxes_of(collection, "c") == ()


def test_annotations_that_cannot_be_used_say_why(images, tmp_path):
    bad = [
        [70, 0, 5, 5], [0, 0, 0, 5], [0, 0, -5, 5], [0, 0, float("nan"), 5], ["0", "0", "5", "5"], [0, 0, 5], "box",
        [0, 0, float("inf"), 5], None, [True, 0, 5, 5],
    ]  # fmt: skip
    annotations = [{"id": n, "image_id": 0, "category_id": 1, "bbox": box} for n, box in enumerate(bad)]
    annotations += [
        {"id": 50, "image_id": 0, "category_id": 1, "bbox": [0, 0, 9, 9]},
        {"id": 50, "image_id": 0, "category_id": 1, "bbox": [0, 0, 9, 9]},
        {"id": 51, "image_id": 0, "category_id": 99, "bbox": [0, 0, 9, 9]},
        {"id": 52, "image_id": 0, "category_id": 2, "bbox": [-5, -5, 20, 20]},
    ]
    collection = load_collection(f"coco:{coco(tmp_path / 'i.json', annotations)}?images={images}")
    objects = boxes_of(collection, "a")
    assert all(each.problem for each in objects[: len(bad)])
    good, twice, foreign, cut = objects[len(bad) :]
    assert not good.problem and "used 2 times" in twice.problem and twice.object_id == "50#2"
    assert "not in the file's list" in foreign.problem
    assert cut.box == (0, 0, 15, 15) and not cut.problem
    assert len({each.object_id for each in objects}) == len(objects)
    collection.samples[0].objects.fingerprint()


def test_ten_thousand_boxes_are_quick_and_more_are_an_error(images, tmp_path):
    def many(count):
        annotations = [{"id": n, "image_id": 0, "category_id": 1, "bbox": [0, 0, 9, 9]} for n in range(count)]
        return load_collection(f"coco:{coco(tmp_path / f'{count}.json', annotations)}?images={images}")

    assert len(boxes_of(many(10_000), "a")) == 10_000
    with pytest.raises(SampleError, match="more than 10,000"):
        boxes_of(many(10_001), "a")


def test_run_lengths_that_unfold_to_gigabytes_are_refused(images, tmp_path):
    bomb = {"size": [10**6, 10**6], "counts": [10**12]}
    annotation = {"id": 1, "image_id": 0, "category_id": 1, "bbox": [0, 0, 9, 9], "segmentation": bomb}
    collection = load_collection(f"coco:{coco(tmp_path / 'i.json', [annotation])}?images={images}")
    with pytest.raises(SampleError, match="run lengths are for size"):
        boxes_of(collection, "a")[0].mask.load(40, 60)


def test_a_csv_of_boxes(images, tmp_path):
    file = tmp_path / "boxes.csv"
    file.write_text(
        "image,label,xmin,ymin,xmax,ymax,crowd\na.jpg,cat,1,2,30,20,\na.jpg,dog,x,2,30,20,\n"
        "b.jpg,dog,0,0,5,5,1\nb.jpg,dog,10,10,20,20,0\nc.jpg,,,,,,\nmissing.jpg,cat,1,1,5,5,\n"
    )
    collection = load_collection(f"boxes:{file}?images={images}")
    good, text = boxes_of(collection, "a")
    assert good.box == (1, 2, 30, 20) and "four numbers" in text.problem
    assert [each.crowd for each in boxes_of(collection, "b")] == [True, False]
    assert [sample.sample_id for sample in collection.empty] == ["c"]
    assert [problem.sample_id for problem in collection.problems] == ["missing"]
    for header in ("image,label\na.jpg,cat\n", "label,x1,y1,x2,y2\ncat,1,1,2,2\n", ""):
        file.write_text(header)
        with pytest.raises(UserError, match="column"):
            load_collection(f"boxes:{file}?images={images}")


def test_yolo_files_with_boxes_and_polygons(images, tmp_path):
    labels = tmp_path / "labels"
    labels.mkdir()
    (labels / "a.txt").write_text("0 0.5 0.5 0.5 0.5\n1 0.1 0.1 0.5 0.1 0.5 0.5 0.1 0.5\n7 0.5 0.5 0.1 0.1\n")
    (labels / "b.txt").write_text("0 0.5 0.5 nan 0.5\n1 2.5 0.5 0.2 0.2\n0 0.2 0.2 0.2 0.2 0.93\n")
    with pytest.raises(UserError, match="names no classes"):
        load_collection(f"yolo:{tmp_path}")
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    collection = load_collection(f"yolo:{tmp_path}")
    box, polygon, foreign = boxes_of(collection, "a")
    assert box.box == (15, 10, 45, 30) and box.label == "cat"
    assert polygon.label == "dog" and 300 < polygon.mask.load(40, 60).sum() < 450
    assert "not in the list" in foreign.problem
    finite, outside, scored = boxes_of(collection, "b")
    assert finite.problem and outside.problem and not scored.problem
    assert [sample.sample_id for sample in collection.empty] == ["c"]
    (tmp_path / "data.yaml").write_text("names:\n  0: kitten\n  1: puppy\n")
    assert load_collection(f"yolo:{tmp_path}").object_classes == ("kitten", "puppy")
    for written in (
        "path: .\nnames: ['kitten', \"puppy\"]\nnc: 2\n",
        "nc: 2\nnames:  # two\n- kitten\n- puppy\ntrain: x\n",
        "names: {0: kitten, 1: 'puppy'}\nnc: 2\n",
        "names: {1: puppy,\n  0: kitten}\n",
    ):
        (tmp_path / "data.yaml").write_text(written)
        assert load_collection(f"yolo:{tmp_path}").object_classes == ("kitten", "puppy")
    (tmp_path / "data.yaml").write_text("nc: 2\n")
    with pytest.raises(UserError, match="no list of names"):
        load_collection(f"yolo:{tmp_path}")


VOC = """<annotation><filename>a.jpg</filename>
<object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>30</xmax><ymax>20</ymax></bndbox></object>
<object><name>dog</name><difficult>1</difficult><bndbox><xmin>5</xmin><ymin>5</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>
</object><object><name>dog</name></object></annotation>"""


def test_pascal_voc_counts_from_one_and_refuses_entities(images, tmp_path):
    folder = tmp_path / "Annotations"
    folder.mkdir()
    (folder / "a.xml").write_text(VOC)
    (folder / "b.xml").write_text('<!DOCTYPE x [<!ENTITY a "aaaa">]><annotation>&a;</annotation>')
    collection = load_collection(f"voc:{tmp_path}?images={images}")
    good, hard, without = boxes_of(collection, "a")
    assert good.box == (0, 0, 30, 20) and hard.crowd and without.problem
    assert any("entities" in problem.message for problem in collection.problems)


def test_boxes_of_a_photo_that_was_resized_are_refused(images, tmp_path):
    instance = {"id": 7, "image_id": 0, "category_id": 1, "bbox": [0, 0, 30, 20]}
    file = coco(tmp_path / "instances.json", [instance])
    (tmp_path / "Annotations").mkdir()
    size = "<size><width>60</width><height>40</height><depth>3</depth></size>"
    (tmp_path / "Annotations" / "a.xml").write_text(VOC.replace("<object>", f"{size}<object>", 1))
    for name in (f"coco:{file}?images={images}", f"voc:{tmp_path}?images={images}"):
        collection = load_collection(name)
        assert boxes_of(collection, "a")[0].box == (0, 0, 30, 20)
        with pytest.raises(SampleError, match="for an image of 60 × 40 pixels, this one has 30 × 20"):
            boxes_of(collection, "a", (20, 30))


def test_the_kind_of_boxes_is_seen_from_the_path(tmp_path):
    (tmp_path / "b.csv").write_text("")
    (tmp_path / "b.doc").write_text("")
    assert box_data(str(tmp_path / "b.csv"), "photos") == f"boxes:{tmp_path / 'b.csv'}?images=photos"
    assert box_data(str(tmp_path), "photos").startswith("yolo:")
    with pytest.raises(UserError, match="boxes must be"):
        box_data(str(tmp_path / "b.doc"), "photos")


def test_boxes_in_every_form_mean_the_same_pixels():
    forms = ((10, 10, 30, 20), CORNERS), ((10, 10, 20, 10), SIZED), ((0.2, 0.3, 0.2, 0.2), SHARES)
    assert [checked_box(values, form, 50, 100) for values, form in forms] == [((10, 10, 30, 20), "")] * 3
