"""Readers of published test sets, on tiny trees in the published layouts."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from PIL import Image

from holdfast import registry
from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import parse_name
from holdfast.core.types import ClassKeys, LabelSpace
from holdfast.data import load_collection
from holdfast.data.labels import map_labels
from holdfast.data.published.imagenet_sets import PUBLISHED
from holdfast.data.published.masked_sets import NumpyMask

FISH, SHARK, DOG = "n01443537", "n01484850", "n02085936"


def by_id(collection):
    return {sample.sample_id: sample for sample in collection.samples}


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


# --- ImageNet-C -------------------------------------------------------------------------------------------------------


@pytest.fixture
def imagenet_c(tmp_path, write_image):
    root = tmp_path / "imagenet-c"
    for corruption in ("fog", "gaussian_noise", "elastic_transform"):
        for severity in range(1, 6):
            for wnid in (FISH, DOG):
                write_image(root / corruption / str(severity) / wnid / "ILSVRC2012_val_00000001.png")
    return root


def test_a_corruption_is_a_condition_and_a_severity_its_variant(imagenet_c):
    collection = load_collection(f"imagenet-c:{imagenet_c}")
    assert len(collection) == 3 * 5 * 2 and collection.classes == (FISH, DOG)
    sample = by_id(collection)[f"fog/3/{FISH}/ILSVRC2012_val_00000001"]
    assert (sample.condition, sample.attributes["variant"]) == ("fog", "severity_3")
    assert sample.source_id == f"{FISH}/ILSVRC2012_val_00000001" and sample.label == FISH
    assert {one.condition for one in collection.samples} <= set(registry.scenarios)
    assert collection.keys[FISH] == ClassKeys((FISH,))
    assert len({one.source_id for one in collection.samples}) == 2


def test_corruptions_and_severities_can_be_chosen_and_archives_kept_as_folders(imagenet_c, write_image):
    (imagenet_c / "blur").mkdir()
    write_image(imagenet_c / "blur/zoom_blur/2" / FISH / "a.jpg")
    assert load_collection(str(imagenet_c)).name == "imagenet-c"  # recognised without a scheme
    chosen = load_collection(f"imagenet-c:{imagenet_c}?corruptions=zoom_blur,fog&severities=2,5")
    found = [(one.condition, one.attributes["variant"]) for one in chosen.samples]
    assert found == [("zoom_blur", "severity_2"), *[("fog", "severity_2")] * 2, *[("fog", "severity_5")] * 2]
    assert [problem.sample_id for problem in chosen.problems] == ["zoom_blur/5"]


def test_masks_of_the_photos_go_to_corruptions_that_leave_the_object_in_place(imagenet_c, write_mask, tmp_path):
    write_mask(tmp_path / "masks" / FISH / "ILSVRC2012_val_00000001.png")
    collection = load_collection(f"imagenet-c:{imagenet_c}?severities=1", masks=tmp_path / "masks")
    masked = {one.sample_id for one in collection.samples if one.mask is not None}
    assert masked == {f"{name}/1/{FISH}/ILSVRC2012_val_00000001" for name in ("fog", "gaussian_noise")}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("corruptions=foggy", "no corruption .* 'foggy'; did you mean fog"),
        ("severities=0", "numbers from 1 to 5"),
        ("severities=1,six", "numbers from 1 to 5"),
        ("severity=1", "no imagenet-c option is called 'severity'; did you mean severities"),
    ],
)
def test_a_wrong_option_of_imagenet_c_is_a_sentence(imagenet_c, options, sentence):
    with pytest.raises(UserError, match=sentence):
        load_collection(f"imagenet-c:{imagenet_c}?{options}")


def test_strange_folders_of_imagenet_c_are_problems(imagenet_c, write_image):
    write_image(imagenet_c / "fog/1/goldfish/a.png")
    collection = load_collection(f"imagenet-c:{imagenet_c}?corruptions=fog&severities=1")
    assert [(p.sample_id, p.message) for p in collection.problems] == [
        ("fog/1/goldfish", "the folder's name is not a WordNet id")
    ]
    assert len(PUBLISHED) == len(set(PUBLISHED)) == 19


# --- ImageNet-R, -A, -Sketch, -V2 -------------------------------------------------------------------------------------


def test_wordnet_folders_are_the_classes_and_renditions_are_told_by_name(tmp_path, write_image):
    write_image(tmp_path / "imagenet-r" / FISH / "art_0.jpg")
    write_image(tmp_path / "imagenet-r" / FISH / "cartoon_12.jpg")
    write_image(tmp_path / "imagenet-r" / SHARK / "3.jpg")
    (tmp_path / "imagenet-r/README.txt").write_text("not an image")
    (tmp_path / "imagenet-r/extra").mkdir()
    collection = load_collection(f"imagenet-r:{tmp_path / 'imagenet-r'}")
    assert collection.classes == (FISH, SHARK) and collection.name == "imagenet-r"
    assert [one.attributes for one in collection.samples] == [{"rendition": "art"}, {"rendition": "cartoon"}, {}]
    assert [problem.sample_id for problem in collection.problems] == ["extra"]
    assert all(one.condition == "original" for one in collection.samples)
    # Restricted to the classes whose folders are there, though the model has others.
    space = LabelSpace(("goldfish", "white shark", "tabby"), (FISH, SHARK, "n02123045"))
    assert map_labels(collection.classes, collection.keys, space).members == ((0,), (1,))


@pytest.mark.parametrize(("scheme", "below"), [("imagenet-a", "imagenet-a"), ("imagenet-sketch", "sketch")])
def test_one_folder_above_the_classes_will_do(tmp_path, write_image, scheme, below):
    write_image(tmp_path / below / FISH / "0.000116_digital clock _ digital clock_0.865662.jpg")
    collection = load_collection(f"{scheme}:{tmp_path}")
    assert collection.classes == (FISH,) and collection.name == below
    write_image(tmp_path / "another" / FISH / "a.jpg")
    with pytest.raises(UserError, match=f"several test sets; name one of them: another, {below}"):
        load_collection(f"{scheme}:{tmp_path}")


def test_folders_of_imagenet_v2_count_by_number_not_as_text(tmp_path, write_image):
    from timm.data import ImageNetInfo

    wnids = ImageNetInfo("imagenet-1k").label_names()
    root = tmp_path / "imagenetv2-matched-frequency-format-val"
    for index in (0, 1, 2, 10, 100, 999):
        write_image(root / str(index) / "0af3f1b55de791c4144e2fb6d7dfe96dfc22d3fc.jpeg")
    (root / "1000").mkdir()
    collection = load_collection(f"imagenet-v2:{tmp_path}")
    assert collection.classes == tuple(wnids[index] for index in (0, 1, 2, 10, 100, 999))
    assert collection.classes[1] == FISH
    for index in (2, 10, 100):
        sample = by_id(collection)[f"{index}/0af3f1b55de791c4144e2fb6d7dfe96dfc22d3fc"]
        assert sample.label == wnids[index]
        assert collection.keys[sample.label] == ClassKeys((wnids[index],), (index,))
    assert [problem.sample_id for problem in collection.problems] == ["1000"]
    mapped = map_labels(collection.classes, collection.keys, LabelSpace(tuple(map(str, range(1000))), tuple(wnids)))
    assert mapped.members == ((0,), (1,), (2,), (10,), (100,), (999,))
    write_image(root / "002" / "b.jpeg")
    with pytest.raises(UserError, match="two folders for class 2"):
        load_collection(f"imagenet-v2:{root}")


# --- ImageNet-9 -------------------------------------------------------------------------------------------------------


@pytest.fixture
def imagenet_9(tmp_path, write_image):
    root = tmp_path / "bg_challenge"
    photo, other = "n02085936_10130", "n01443537_22563"
    for variant in ("original", "only_fg", "no_fg", "only_bg_b", "only_bg_t"):
        write_image(root / variant / "val/00_dog" / f"{photo}.JPEG")
    for variant in ("mixed_same", "mixed_rand", "mixed_next"):
        write_image(root / variant / "val/00_dog" / f"fg_{photo}_bg_{other}.JPEG")
    write_image(root / "original/val/02_wheeled vehicle/n02701002_3.JPEG")
    mask = np.zeros((6, 8), np.bool_)
    mask[:2] = True
    (root / "fg_mask/val/00_dog").mkdir(parents=True)
    np.save(root / "fg_mask/val/00_dog" / f"{photo}.npy", mask)
    return root


def test_variants_of_imagenet_9_are_conditions_of_the_photo_of_their_foreground(imagenet_9):
    write_json(imagenet_9 / "in_to_in9.json", {"0": -1, "151": 0, "153": 0, "407": 2, "817": 2})
    collection = load_collection(f"imagenet-9:{imagenet_9}")
    assert collection.classes == ("dog", "wheeled vehicle")
    assert collection.keys["dog"] == ClassKeys(imagenet_indices=(151, 153))
    dogs = [one for one in collection.samples if one.label == "dog"]
    assert {one.attributes["published_as"]: one.condition for one in dogs} == {
        "original": "original",
        "mixed_same": "same_class_background",
        "mixed_rand": "random_background",
        "mixed_next": "mixed_next",
        "only_fg": "segmented",
        "no_fg": "no_fg",
        "only_bg_t": "only_background",
        "only_bg_b": "only_bg_b",
    }
    assert {one.source_id for one in dogs} == {"00_dog/n02085936_10130"}
    mixed = by_id(collection)["mixed_rand/00_dog/fg_n02085936_10130_bg_n01443537_22563"]
    assert mixed.attributes["donor_id"] == "n01443537_22563"
    assert "donor_label" not in mixed.attributes  # no image says which class n01443537 is
    masked = {one.attributes["published_as"] for one in dogs if one.mask is not None}
    assert masked == {"original", "mixed_same", "mixed_rand", "mixed_next", "only_fg"}
    assert mixed.mask.load(6, 8).sum() == 16 and mixed.mask.fingerprint()
    assert load_collection(str(imagenet_9)).samples == collection.samples  # recognised


def test_the_class_of_a_background_of_imagenet_9_is_that_of_the_photos_of_its_wordnet_id(imagenet_9, write_image):
    write_image(imagenet_9 / "original/val/08_fish/n01443537_7.JPEG")
    mixed = by_id(load_collection(f"imagenet-9:{imagenet_9}"))
    name = "00_dog/fg_n02085936_10130_bg_n01443537_22563"
    assert all(mixed[f"{one}/{name}"].attributes["donor_label"] == "fish" for one in ("mixed_rand", "mixed_next"))
    assert "donor_label" not in mixed["00_dog/n02085936_10130"].attributes


def test_without_the_mapping_only_models_of_nine_outputs_can_be_tested(imagenet_9, tmp_path):
    collection = load_collection(f"imagenet-9:{tmp_path}?variants=original,mixed_rand")  # one folder above
    assert len(collection) == 3 and not collection.keys
    assert any("nine outputs" in problem.message for problem in collection.problems)
    write_json(tmp_path / "map/in9.json", {"5": 8})
    assert load_collection(f"imagenet-9:{imagenet_9}?mapping={tmp_path}/map/in9.json").keys.keys() == {
        "dog",
        "wheeled vehicle",
    }


@pytest.mark.parametrize("mapping", ["[1, 2]", "{", '{"0": 9}', '{"1000": 1}', '{"x": 1}', '{"1": "0"}'])
def test_a_wrong_mapping_is_a_sentence(imagenet_9, mapping):
    (imagenet_9 / "in_to_in9.json").write_text(mapping)
    with pytest.raises(UserError, match="not ImageNet-9's mapping"):
        load_collection(f"imagenet-9:{imagenet_9}")


def test_a_hostile_numpy_mask_is_refused(tmp_path):
    good = np.ones((4, 5), np.uint8)
    for name, content in (
        ("objects", np.array([[object()]])),
        ("flat", np.ones(20)),
        ("words", np.array([["a"] * 5] * 4)),
    ):
        np.save(tmp_path / f"{name}.npy", content, allow_pickle=True)
        with pytest.raises(SampleError):
            NumpyMask(tmp_path / f"{name}.npy").load(4, 5)
    (tmp_path / "pickle.npy").write_bytes(pickle.dumps(good))
    (tmp_path / "short.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', ")
    np.save(tmp_path / "cut.npy", good)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-3])
    for name in ("pickle", "short", "cut", "missing"):
        with pytest.raises(SampleError):
            NumpyMask(tmp_path / f"{name}.npy").load(4, 5)
    np.save(tmp_path / "good.npy", good)
    assert NumpyMask(tmp_path / "good.npy").load(4, 5).all()
    with pytest.raises(SampleError, match="shape"):
        NumpyMask(tmp_path / "good.npy").load(5, 4)


# --- ObjectNet --------------------------------------------------------------------------------------------------------


@pytest.fixture
def objectnet(tmp_path):
    root = tmp_path / "objectnet-1.0"
    bordered = np.full((10, 12, 3), (255, 0, 0), np.uint8)
    bordered[1:-1, 1:-1] = (10, 20, 30)
    for folder in ("alarm_clock", "air_freshener"):
        (root / "images" / folder).mkdir(parents=True)
        Image.fromarray(bordered).save(root / "images" / folder / "0a1b.png")
    mappings = root / "mappings"
    write_json(
        mappings / "folder_to_objectnet_label.json", {"alarm_clock": "Alarm clock", "air_freshener": "Air freshener"}
    )
    write_json(mappings / "objectnet_to_imagenet_1k.json", {"Alarm clock": "analog clock; digital clock"})
    (mappings / "imagenet_to_label_2012_v2").write_text("tench\nanalog clock\ndigital clock\n")
    write_json(mappings / "pytorch_to_imagenet_2012_id.json", {"409": 1, "530": 2, "0": 0})
    return root


def test_objectnet_has_the_classes_of_imagenet_without_the_border(objectnet):
    collection = load_collection(f"objectnet:{objectnet}")
    assert collection.classes == ("alarm clock",)
    assert collection.keys["alarm clock"] == ClassKeys(imagenet_indices=(409, 530))
    (sample,) = collection.samples
    assert sample.sample_id == "alarm_clock/0a1b" and "red border" in sample.licence
    image = sample.image.load()
    assert image.shape == (8, 10, 3) and (image == (10, 20, 30)).all() and image.flags.c_contiguous
    assert [problem.message for problem in collection.problems] == [
        "1 class(es) that ImageNet does not have were passed over"
    ]
    kept = load_collection(f"objectnet:{objectnet}?border=0").samples[0]
    assert kept.image.load().shape == (10, 12, 3) and kept.image.fingerprint() != sample.image.fingerprint()
    assert load_collection(str(objectnet)).name == "objectnet-1.0"  # recognised
    with pytest.raises(SampleError, match="nothing is left"):
        load_collection(f"objectnet:{objectnet}?border=5").samples[0].image.load()


def test_faults_of_objectnet_are_sentences(objectnet, tmp_path):
    for border in ("-1", "red", "1.5", "65"):
        with pytest.raises(UserError, match="border of objectnet"):
            load_collection(f"objectnet:{objectnet}?border={border}")
    (objectnet / "images/unheard").mkdir()
    assert load_collection(f"objectnet:{objectnet}").problems[0].sample_id == "images/unheard"
    (objectnet / "mappings/folder_to_objectnet_label.json").unlink()
    with pytest.raises(UserError, match="nothing says which class"):
        load_collection(f"objectnet:{objectnet}")
    with pytest.raises(UserError, match="images and mappings"):
        load_collection(f"objectnet:{tmp_path}")


# --- MVTec AD ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def mvtec(tmp_path, write_image, write_mask):
    root = tmp_path / "mvtec"
    for category, defects in (("bottle", ("broken_large", "contamination")), ("screw", ("scratch",))):
        for number in ("000", "001"):
            write_image(root / category / "train/good" / f"{number}.png")
            write_image(root / category / "test/good" / f"{number}.png")
            for defect in defects:
                write_image(root / category / "test" / defect / f"{number}.png")
                write_mask(root / category / "ground_truth" / defect / f"{number}_mask.png")
    return root


def test_defects_of_mvtec_have_masks_and_good_parts_none(mvtec):
    collection = load_collection(f"mvtec:{mvtec / 'bottle'}")
    assert collection.classes == ("broken_large", "contamination", "good") and collection.name == "bottle"
    samples = by_id(collection)
    broken = samples["bottle/test/broken_large/001"]
    assert broken.mask.load(6, 8).sum() == 24 and broken.split == "test"
    assert broken.attributes == {"category": "bottle", "defect": "broken_large"}
    assert {one.sample_id for one in collection.samples if one.split == "train"} == {
        "bottle/train/good/000",
        "bottle/train/good/001",
    }
    assert all((one.mask is None) == (one.attributes["defect"] == "good") for one in collection.samples)


def test_the_whole_of_mvtec_can_be_labelled_in_three_ways(mvtec):
    assert load_collection(str(mvtec)).classes == (
        "bottle broken_large",
        "bottle contamination",
        "bottle good",
        "screw good",
        "screw scratch",
    )
    assert load_collection(f"mvtec:{mvtec}?labels=state").classes == ("defective", "good")
    assert load_collection(f"mvtec:{mvtec}?labels=category").classes == ("bottle", "screw")
    assert load_collection(f"mvtec:{mvtec}?categories=screw").classes == ("good", "scratch")


def test_faults_of_mvtec_are_sentences_or_problems(mvtec, tmp_path):
    with pytest.raises(UserError, match="did you mean state"):
        load_collection(f"mvtec:{mvtec}?labels=states")
    with pytest.raises(UserError, match="did you mean bottle"):
        load_collection(f"mvtec:{mvtec}?categories=botle")
    with pytest.raises(UserError, match="MVTec AD layout"):
        load_collection(f"mvtec:{tmp_path / 'mvtec/bottle/test'}")
    (mvtec / "screw/ground_truth/scratch/001_mask.png").unlink()
    collection = load_collection(f"mvtec:{mvtec}?categories=screw")
    assert by_id(collection)["screw/test/scratch/001"].mask is None
    assert [problem.sample_id for problem in collection.problems] == ["screw/test/scratch/001"]


# --- all of them ------------------------------------------------------------------------------------------------------

SCHEMES = (
    "imagenet-c",
    "imagenet-r",
    "imagenet-a",
    "imagenet-sketch",
    "imagenet-v2",
    "imagenet-9",
    "objectnet",
    "mvtec",
)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_folder_in_another_layout_is_one_sentence(tmp_path, write_image, scheme):
    write_image(tmp_path / "cats/a.png")
    with pytest.raises(UserError, match=r"layout.*: (it|neither)") as caught:
        load_collection(f"{scheme}:{tmp_path}")
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="does not exist"):
        load_collection(f"{scheme}:{tmp_path / 'nowhere'}")
    with pytest.raises(UserError, match=f"no {scheme} option"):
        load_collection(f"{scheme}:{tmp_path}?wrong=1")
    assert callable(registry.data.get(parse_name(f"{scheme}:x").scheme))


def test_a_class_folder_is_still_read_as_one(tmp_path, write_image):
    for label in ("test", "ground", "fog"):
        write_image(tmp_path / label / "a.png")
    assert load_collection(str(tmp_path)).classes == ("fog", "ground", "test")
