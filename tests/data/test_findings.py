"""What is wrong with data: each check on a planted case, and a clean collection without any finding."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

import holdfast
from commands import run
from holdfast.core.types import Collection, Sample
from holdfast.data import load_collection
from holdfast.data.findings import CHECKS
from holdfast.data.inventory import Inventory, take_inventory

SIDES = (48, 64)


def _photo(seed: int) -> np.ndarray:
    """Draw noise with a bright disc left of the middle, above it."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 60, (*SIDES, 3), np.uint8)
    cv2.circle(pixels, (22, 17), 12, (230, 220, 40 + seed), -1)
    return pixels


def _mask() -> np.ndarray:
    mask = np.zeros(SIDES, np.uint8)
    cv2.circle(mask, (22, 17), 12, (255,), -1)
    return mask


def _save(path: Path, pixels: np.ndarray, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """Two classes of three images each, with masks: nothing is wrong with them."""
    root = tmp_path / "set"
    for number, label in enumerate(("cat", "dog")):
        for photo in range(3):
            _save(root / "images" / label / f"{photo}.png", _photo(10 * number + photo))
            _save(root / "masks" / label / f"{photo}.png", _mask())
    return root


def _inventory(root: Path, options: str = "") -> Inventory:
    return take_inventory(load_collection(f"{root}{options}"))


def test_a_clean_collection_has_no_finding_and_a_whole_inventory(clean: Path) -> None:
    held = _inventory(clean)
    assert held.findings == ()
    assert held.name == "set" and (held.images, held.photos) == (6, 6)
    assert held.classes == {"cat": 3, "dog": 3} == held.masked
    assert held.formats == {"PNG": 6} and held.sizes == {"64 × 48": 6}
    share = float((_mask() > 0).mean())
    assert held.covered == pytest.approx((share, share, share))
    assert held.bytes == sum(path.stat().st_size for path in (clean / "images").rglob("*.png"))


def _two_classes(root: Path) -> None:
    shutil.copyfile(root / "images/cat/0.png", root / "images/dog/0.png")


def _alike_classes(root: Path) -> None:
    for photo in range(2):
        _save(root / f"images/Cat/{photo}.png", _photo(50 + photo))
        _save(root / f"masks/Cat/{photo}.png", _mask())


def _turned_by_a_quarter(root: Path) -> None:
    """Store an image lying on its side, and a mask drawn on the stored pixels."""
    _turned(root, 6)


def _turned_by_half(root: Path) -> None:
    """Store an image upside down: the sizes agree, the edges do not."""
    _turned(root, 3)


def _turned(root: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    _save(root / "images/cat/0.jpg", _photo(0), exif=exif, quality=95)
    (root / "images/cat/0.png").unlink()


def _void_ring(root: Path) -> None:
    mask = (_mask() > 0).astype(np.uint8)
    ring = cv2.dilate(mask, np.ones((3, 3), np.uint8)) - mask
    _save(root / "masks/cat/0.png", mask + 255 * ring)


def _other_size(root: Path) -> None:
    _save(root / "masks/cat/0.png", _mask()[:-1])


def _empty_mask(root: Path) -> None:
    _save(root / "masks/cat/0.png", np.zeros(SIDES, np.uint8))


def _whole_mask(root: Path) -> None:
    _save(root / "masks/cat/0.png", np.full(SIDES, 255, np.uint8))


def _shared_mask(root: Path) -> None:
    _save(root / "images/cat/0.jpg", _photo(77))


def _twelve_bits(root: Path) -> None:
    grey = cv2.cvtColor(_photo(0), cv2.COLOR_RGB2GRAY).astype(np.uint16) * 16
    grey[0, 0] = 4095  # the brightest that 12 bits hold
    _save(root / "images/cat/0.png", grey)


def _twelve_bits_colour(root: Path) -> None:
    assert cv2.imwrite(str(root / "images/cat/0.png"), _photo(0).astype(np.uint16) * 16)


def _fourteen_bits(root: Path) -> None:
    grey = cv2.cvtColor(_photo(0), cv2.COLOR_RGB2GRAY).astype(np.uint16) * 64
    grey[0, 0] = 16383
    _save(root / "images/cat/0.png", grey)


def _cut_short(root: Path) -> None:
    file = root / "images/cat/0.png"
    file.write_bytes(file.read_bytes()[:200])


def _two_splits(root: Path) -> None:
    for split in ("train", "test"):
        shutil.copytree(root / "images", root / split)
        for number, path in enumerate(sorted((root / split).rglob("*.png"))):
            if number and split == "test":
                _save(path, _photo(60 + number))
    shutil.rmtree(root / "images")
    shutil.rmtree(root / "masks")


def _link_to_a_sibling(root: Path) -> None:
    (root / "images/cat/9.png").symlink_to("0.png")
    shutil.copyfile(root / "masks/cat/0.png", root / "masks/cat/9.png")


def _re_encoded(root: Path) -> None:
    _save(root / "images/dog/9.jpg", np.asarray(Image.open(root / "images/dog/0.png")), quality=92)
    shutil.copyfile(root / "masks/dog/0.png", root / "masks/dog/9.png")


def _re_encoded_under_another_class(root: Path) -> None:
    _save(root / "images/dog/9.jpg", np.asarray(Image.open(root / "images/cat/0.png")), quality=92)
    shutil.copyfile(root / "masks/cat/0.png", root / "masks/dog/9.png")


def _broken_link(root: Path) -> None:
    (root / "images/cat/9.png").symlink_to("gone.png")


def _linked_folder(root: Path) -> None:
    (root / "images/cat/more").symlink_to(root / "images/dog")


def _mask_of_no_image(root: Path) -> None:
    _save(root / "masks/cat/9.png", _mask())


def _missing_mask(root: Path) -> None:
    (root / "masks/cat/0.png").unlink()


def _single_photo(root: Path) -> None:
    _save(root / "images/fox/0.png", _photo(90))
    _save(root / "masks/fox/0.png", _mask())


PLANTED = [
    (_two_classes, "two-classes", "cat/0 (cat) = dog/0 (dog)"), (_alike_classes, "alike-classes", "'Cat' and 'cat'"),
    (_turned_by_a_quarter, "turned-masks", "cat/0"), (_turned_by_half, "turned-masks", "cat/0"),
    (_void_ring, "void-ring", "cat/0"), (_other_size, "bad-masks", "cat/0: the mask is 64 × 47"),
    (_empty_mask, "empty-masks", "cat/0"), (_whole_mask, "whole-masks", "cat/0"),
    (_shared_mask, "shared-masks", "cat/0.jpg and cat/0.png"), (_twelve_bits, "dark", "cat/0"),
    (_twelve_bits_colour, "dark", "cat/0"), (_fourteen_bits, "dark", "cat/0"),
    (_cut_short, "unreadable", "cat/0: the image is cut short"),
    (_two_splits, "two-splits", "test/cat/0 (test) = train/cat/0 (train)"),
    (_link_to_a_sibling, "twice", "cat/0 = cat/9 (a link)"), (_broken_link, "passed-over", "cat/9.png"),
    (_re_encoded, "copies", "dog/0 = dog/9"), (_re_encoded_under_another_class, "copies", "cat/0 (cat) = dog/9 (dog)"),
    (_linked_folder, "passed-over", "cat/more"), (_mask_of_no_image, "passed-over", "masks/cat/9"),
    (_missing_mask, "no-mask", "cat/0"), (_single_photo, "single-photos", "fox"),
]  # fmt: skip


@pytest.mark.parametrize(("plant", "kind", "example"), PLANTED, ids=[case[0].__name__[1:] for case in PLANTED])
def test_a_planted_fault_is_the_one_finding(
    plant: Callable[[Path], None], kind: str, example: str, clean: Path
) -> None:
    plant(clean)
    (finding,) = _inventory(clean).findings
    assert finding.kind == kind and finding.count == 1
    assert finding.examples[0].startswith(example)
    assert finding.sentence.endswith(".") and finding.advice.endswith(".")
    assert "{" not in finding.sentence + finding.advice


def test_every_check_is_planted() -> None:
    assert {check.kind for check in CHECKS} == {kind for _, kind, _ in PLANTED} | {"label-rows"}


def test_masks_that_fit_turned_photos_are_no_finding(clean: Path) -> None:
    for orientation, turn in ((6, -1), (3, 2), (8, 1)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        _save(clean / f"images/cat/{orientation}.jpg", _photo(30 + orientation), exif=exif, quality=95)
        _save(clean / f"masks/cat/{orientation}.png", np.rot90(_mask(), turn).copy())
    held = _inventory(clean)
    assert held.findings == () and held.turned == 3


def test_void_read_as_void_is_no_finding(clean: Path) -> None:
    _void_ring(clean)
    for path in sorted((clean / "masks").rglob("*.png")):
        path.write_bytes((clean / "masks/cat/0.png").read_bytes())
    assert _inventory(clean, "?void=255").findings == ()


def test_soft_masks_and_dark_photos_are_no_finding(clean: Path) -> None:
    _save(clean / "masks/cat/0.png", cv2.GaussianBlur(_mask(), (5, 5), 0))
    _save(clean / "images/cat/1.png", _photo(1) // 18)  # a night shot of 8 bits
    assert _inventory(clean).findings == ()


def test_renderings_of_one_photo_may_have_the_same_bytes(clean: Path) -> None:
    image = load_collection(str(clean)).samples[0].image
    samples = tuple(
        Sample(f"{name}/{label}", label, image, source_id=label, condition=name)
        for name, label in (("original", "a"), ("grey", "a"))
    )
    assert [finding.kind for finding in take_inventory(Collection("x", ("a",), samples)).findings] == ["single-photos"]


def test_several_findings_come_gravest_first(clean: Path) -> None:
    for plant in (_single_photo, _link_to_a_sibling, _missing_mask, _two_classes):
        plant(clean)
    order = [check.kind for check in CHECKS]
    kinds = [finding.kind for finding in _inventory(clean).findings]
    assert kinds == sorted(kinds, key=order.index) == ["two-classes", "twice", "no-mask", "single-photos"]


def test_the_command_prints_the_inventory_and_what_to_do(clean: Path, tmp_path: Path) -> None:
    said = run("data", "check", clean).stdout  # a note on what verdicts need is not a finding
    assert "nothing found\nThe smallest class has 3 images" in said
    _two_classes(clean)
    assert run("data", "check", clean, "--exit-zero").stdout == run("data", "check", clean, code=1).stdout
    assert (
        run("data", "check", clean, "--json", "--exit-zero").stdout
        == run("data", "check", clean, "--json", code=1).stdout
    )
    labels = tmp_path / "labels.csv"
    labels.write_text("class,label\nCat,cat\ndog,dog\n")
    said = run("data", "check", clean, "--labels", labels, code=1).stdout
    assert "6 images of 6 sources, 2 classes" in said and "cat: 3, 3 with masks" in said
    assert said.index("1. 1 row of the label file has no class") < said.index("2. 1 image has two labels")
    assert "did you mean cat?" in said and "Keep each image under its right class" in said


def test_the_command_and_python_agree(clean: Path) -> None:
    _missing_mask(clean)
    told = json.loads(run("data", "check", clean, "--json", code=1).stdout)
    held = holdfast.data_check(clean)
    assert told["findings"][0]["kind"] == held.findings[0].kind == "no-mask"
    assert told["classes"] == held.classes and told["sizes"] == held.sizes


def test_eval_says_that_a_picture_has_two_labels(photos: Path, toy_models: str, tmp_path: Path) -> None:
    words = ["--models", f"{toy_models}:colour", "--scenarios", "original", "--out", tmp_path / "run"]
    assert "two classes" not in run("eval", photos, *words).stdout
    first = sorted((photos / "images" / "disc").iterdir())[0]
    shutil.copyfile(first, photos / "images" / "cross" / first.name)
    said = run("eval", photos, *words).stdout
    assert "the same image is under two classes 1 time(s), first cross/" in said


def test_plan_counts_missing_masks(photos: Path) -> None:
    from holdfast.forecast.workload import workload

    options = {"data": str(photos), "models": "x", "scenarios": "original,segmented,blur_background"}
    assert workload("eval", options).notes == ()
    for path in sorted((photos / "masks" / "disc").iterdir()):
        path.unlink()
    (note,) = workload("eval", options).notes
    assert note.startswith("4 of 12 images have no mask: 8 rows will be skipped")
