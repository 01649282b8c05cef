"""A classifier that exactly two backgrounds fool: the curve, the control and the two backgrounds are recovered."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import holdfast
from holdfast.core.errors import UserError
from holdfast.stats.effects.worst_background import fooling_backgrounds, worst_background

CLASSES, EACH, DRAWS = ("a", "b", "c"), 8, 7
FOOLERS = ("a/0", "b/1")

MODEL = """
import numpy as np

class Fooled:
    # the square's red says the class, the corner's green the background; two of these turn every prediction
    labels = ("a", "b", "c")
    fingerprint = "fooled {codes}"

    def predict(self, images):
        said = [int(image[16, 16, 0]) // 80 for image in images]
        return np.eye(3)[[(one + (image[0, 0, 1] in {codes})) % 3 for one, image in zip(said, images)]]

model = Fooled()
"""


def world(folder: Path) -> str:
    """Squares of three classes, each image on a green of its own."""
    for number, name in enumerate(f"{label}/{place}" for label in CLASSES for place in range(EACH)):
        pixels = np.zeros((32, 32, 3), np.uint8)
        pixels[..., 1] = 10 * number
        mask = np.zeros((32, 32), np.uint8)
        mask[10:22, 10:22] = 255
        pixels[10:22, 10:22] = (80 * CLASSES.index(name[0]) + 5, 0, 0)
        for root, array in (("images", pixels), ("masks", mask)):
            (folder / root / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(folder / root / f"{name}.png")
    codes = [10 * (CLASSES.index(name[0]) * EACH + int(name[2:])) for name in FOOLERS]
    (folder / "fooled_by_two.py").write_text(MODEL.format(codes=codes))
    return str(folder / "images")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> holdfast.Results:
    folder = tmp_path_factory.mktemp("two")
    data = world(folder)
    sys.path.insert(0, str(folder))
    try:
        return holdfast.evaluate(
            data, masks=str(folder / "masks"), models=["python:fooled_by_two:model"],
            scenarios="original,worst_background", out=folder / "run",
        )  # fmt: skip
    finally:
        sys.path.remove(str(folder))


def sets_without(lent: int, bad: int, k: int) -> float:
    """The share of sets of k of the lent backgrounds that have none of the bad ones."""
    return math.comb(lent - bad, k) / math.comb(lent, k)


def test_fewer_backgrounds_than_asked_for_are_used_because_a_class_has_eight_images(results) -> None:
    rows = results.run.rows().to_pandas()
    assert set(rows["status"]) == {"ok"}
    assert rows.groupby("condition").size().to_dict() == {
        "original": 24, "background_sweep": 24 * DRAWS, "same_class_sweep": 24 * DRAWS,
    }  # fmt: skip


def test_a_class_of_two_images_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs 3 or more images of each class, and a tenth of the images have only 1"):
        holdfast.evaluate(
            "diorama:test?n=24&size=32", models=["embedded:resnet_rho0"], scenarios="worst_background", out=tmp_path
        )


def test_the_curve_is_what_the_two_backgrounds_leave(results) -> None:
    rows = results.run.rows().to_pandas()
    lent = rows[rows["condition"] == "background_sweep"].groupby("sample_id")["donor_id"].agg(set)
    curve = results.measure("worst-background").set_index("backgrounds")
    own = {name: name in FOOLERS for name in lent.index}  # such an image is wrong only on its own background
    assert len({donor for donors in lent for donor in donors}) <= DRAWS + 4  # nearly the same for all objects
    for k in range(1, DRAWS + 1):
        other = [sets_without(DRAWS, len(donors & set(FOOLERS)), k) for donors in lent]
        bad = [sum(each[0] == name[0] for each in FOOLERS) - own[name] for name in lent.index]
        same = [sets_without(DRAWS, count, k) for count in bad]
        row = curve.loc[k]
        assert row["other"] == pytest.approx(np.mean(other)) and row["same"] == pytest.approx(np.mean(same))
        assert row["effect"] == pytest.approx(np.mean(same) - np.mean(other))
        assert row["effect_low"] <= row["effect"] <= row["effect_high"]
    assert curve["original"].iloc[0] == pytest.approx(22 / 24)


def test_the_two_backgrounds_are_found_and_no_others(results) -> None:
    table = results.measure("fooling-backgrounds")
    two = table["donor_id"].isin(FOOLERS)
    assert two.sum() == 2 and set(table[table["excess_low"] > 0]["donor_id"]) == set(FOOLERS)
    assert (table[two]["fooled"] == 1).all() and (table[~two]["fooled"] == 0).all()


def test_the_page_has_curve_control_backgrounds_and_images(results) -> None:
    page = results.report().read_text(encoding="utf8")
    section = page[page.index('id="worst_background"') :].partition("</section>")[0]
    for words in (
        "Own class (control)",
        "The five backgrounds that fool most objects",
        *FOOLERS[:1],
        "data:image/jpeg",
    ):
        assert words in section, words
    assert "draw_3" not in page.replace(section, ""), "sweeps have a section of their own and no rows elsewhere"


def test_of_originals_that_were_not_evaluated_nothing_is_said(results) -> None:
    rows = results.run.rows().to_pandas()
    rows = rows[rows["condition"] != "original"]
    assert worst_background(rows)["original"].isna().all() and len(worst_background(rows))
    assert fooling_backgrounds(rows).empty  # it is not known which objects are right as they are


def test_images_that_were_on_no_background_do_not_hide_the_others(results) -> None:
    rows = results.run.rows().to_pandas()
    left_out = set(sorted(set(rows["sample_id"]))[::5])  # a fifth, as if they had no mask
    some = rows[(rows["condition"] == "original") | ~rows["sample_id"].isin(left_out)]
    table = worst_background(some)
    assert set(table["n"]) == {len(set(rows["sample_id"]) - left_out)}
