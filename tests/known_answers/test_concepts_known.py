"""A classifier that fails exactly on green backgrounds: the section names green, and nothing else."""

from __future__ import annotations

import zlib
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import holdfast
from commands import run
from holdfast.core.errors import UserError
from holdfast.data import load_collection
from holdfast.pipeline.concepts import pixel_concepts
from holdfast.pipeline.metadata import background_pixels
from holdfast.stats.effects.concepts import background_concepts, regressed

IMAGES, CLASSES = 96, 4
GROUNDS = {"green": (40, 160, 50), "blue": (40, 70, 180), "brown": (150, 100, 50), "grey": (120, 120, 120)}


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Squares whose brightness is the class, on grounds of four colours, half of them striped; ``site`` is metadata."""
    folder, rng = tmp_path_factory.mktemp("grounds"), np.random.default_rng(0)
    lines = ["path,label,mask,site"]
    for number in range(IMAGES):
        name = list(GROUNDS)[rng.integers(4)]
        image = np.tile(np.array(GROUNDS[name], np.uint8), (48, 48, 1))
        if rng.random() < 0.5:
            image[::4] -= 30
        image[16:32, 16:32] = 60 * (number % CLASSES) + 10
        mask = np.zeros((48, 48), np.uint8)
        mask[16:32, 16:32] = 255
        cv2.imwrite(str(folder / f"{number}.png"), image[:, :, ::-1])
        cv2.imwrite(str(folder / f"m{number}.png"), mask)
        lines.append(
            f"{number}.png,c{number % CLASSES},m{number}.png,{'north' if name in ('green', 'blue') else 'south'}"
        )
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    return folder / "list.csv"


class AfraidOfGreen:
    """Names the class by the square's brightness, and the next class if the corner is green; sometimes errs."""

    labels = tuple(f"c{number}" for number in range(CLASSES))
    fingerprint = "afraid of green"

    def predict(self, images: list[NDArray[np.uint8]]) -> NDArray[np.float64]:
        rows = np.zeros((len(images), CLASSES))
        for row, image in zip(rows, images, strict=True):
            red, green, blue = (int(value) for value in image[1, 1])
            slip = zlib.crc32(image.tobytes()) % 12 == 0
            row[((int(image[24, 24, 0]) - 10) // 60 + (green > red + 40 and green > blue + 40) + slip) % CLASSES] = 1
        return rows


def test_green_stands_out_and_nothing_that_has_nothing_to_do_with_it(squares: Path, tmp_path: Path) -> None:
    results = holdfast.evaluate(
        f"manifest:{squares}", {"afraid": AfraidOfGreen()}, scenarios="original,random_background",
        out=tmp_path / "run", quiet=True,
    )  # fmt: skip
    table = results.concepts(by=["site"]).set_index("concept")
    first = table.iloc[0]
    assert first.name == "green" and first["stands_out"] and first["accuracy"] <= 0.1 and first["others"] > 0.8
    assert first["low"] <= -(first["others"] - first["accuracy"]) <= first["high"] and first["high"] < -0.6
    together = ["green", "site: north", "grass"]  # half of the green images have texture, half of the north is green
    assert not table.loc[table["difference"] < 0, "stands_out"].drop(together, errors="ignore").any()
    assert (table["chance"] < 0.6).all() and table.loc["site: north", "difference"] < 0

    run("report", tmp_path / "run", "--concepts", "--out", tmp_path / "page", "--resamples", "100")
    page = (tmp_path / "page" / "index.html").read_text()
    assert "Which backgrounds cost accuracy?" in page and "fails more often on green (−" in page
    written = pd.read_csv(tmp_path / "page" / "tables" / "concepts.csv").set_index("concept")
    assert written.loc["green", "difference"] == pytest.approx(first["difference"])
    assert "Which backgrounds" not in results.report().read_text()


def test_the_difference_is_the_coefficient_of_least_squares_with_classes() -> None:
    import statsmodels.formula.api as smf

    rng = np.random.default_rng(1)
    label, has = rng.integers(0, 5, 300), (rng.random(300) < 0.3).astype(float)
    right = (rng.random(300) < 0.8 - 0.2 * has - 0.05 * label).astype(float)
    each = np.arange(300)
    effect = regressed(right, has, label, each, each)
    fit = smf.ols("y ~ x + C(c)", pd.DataFrame({"y": right, "x": has, "c": label})).fit(cov_type="HC3")
    assert effect["difference"] == pytest.approx(fit.params["x"])
    assert (effect["high"] - effect["low"]) / 2 / 1.97 == pytest.approx(fit.bse["x"], rel=0.03)
    lent = rng.integers(0, 30, 300)  # shared donors that are hard or easy: wider than independent images
    hard = (rng.random(300) < 0.5 + 0.4 * np.sin(lent)).astype(float)
    has = (lent % 3 == 0).astype(float)
    alone, shared = (regressed(hard, has, label, each, donor) for donor in (each, lent))
    assert shared["high"] - shared["low"] > 1.3 * (alone["high"] - alone["low"])


def test_pixels_of_drawn_backgrounds_are_named_as_they_are_drawn() -> None:
    found: dict[str, list[dict[str, float]]] = {}
    for sample in load_collection("diorama:test?n=120&size=64").samples:
        image = sample.image.load()
        seen = pixel_concepts(*background_pixels(image, sample.mask.load(*image.shape[:2])))
        found.setdefault(sample.attributes["background"], []).append(seen)
    share = pd.DataFrame({name: pd.DataFrame(rows).mean() for name, rows in found.items()})
    drawn = {
        "grass": ["grass", "forest"],
        "water": ["sea", "reef"],
        "sand": ["sand", "shore"],
        "grey": ["street", "snow"],
    }
    for concept, names in drawn.items():
        assert share.loc[concept, names].min() >= 0.75 and share.loc[concept].drop(names).median() <= 0.2, concept
    flat = np.full((32, 32, 3), (90, 160, 230), np.uint8)
    seen = pixel_concepts(flat, np.ones((32, 32), np.bool_))
    assert seen["sky"] and seen["blue"] and seen["smooth"] and not (seen["grass"] or seen["grey"] or seen["sand"])


def test_few_donors_and_runs_without_random_backgrounds(tmp_path: Path) -> None:
    rows = pd.DataFrame({"model": "m", "condition": "random_background", "source_id": list("abcdef"), "label": "x",
                         "donor_id": list("ghijkl"), "correct": True, "status": "ok"})  # fmt: skip
    known = pd.DataFrame({"green": [1.0, 1, 0, 0, 0, 0]}, index=list("ghijkl"))
    assert background_concepts(rows, known).empty
    results = holdfast.evaluate(
        "diorama:test?n=6", "embedded:resnet_rho0", scenarios="original", out=tmp_path, quiet=True
    )
    with pytest.raises(UserError, match="concepts= needs answers under random_background: run eval with"):
        results.concepts()
