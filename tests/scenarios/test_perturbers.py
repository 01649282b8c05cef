"""NRTK's perturbers as conditions, against the package itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.scenarios import parse_conditions, render

perturb_image = pytest.importorskip("nrtk.impls.perturb_image", reason="the extra nrtk is not installed")

IMAGE = np.random.default_rng(4).integers(0, 256, (48, 64, 3), dtype=np.uint8)
MASK = np.zeros((48, 64), bool)
MASK[10:30, 20:40] = True


def picture(name: str, seed: int = 7, image: Any = IMAGE) -> Any:
    (condition,) = parse_conditions(name)
    return render(condition, image, MASK, rng=np.random.default_rng(seed), context=None)  # type: ignore[arg-type]


def test_pictures_are_those_of_nrtk() -> None:
    optics, noise = perturb_image.optical, perturb_image.photometric.noise
    seed = int(np.random.default_rng(7).integers(2**31))
    for name, perturber in {
        "nrtk:haze?factor=0.5": perturb_image.environment.HazePerturber(factor=0.5),
        "nrtk:gaussian_blur@1": perturb_image.photometric.blur.GaussianBlurPerturber(ksize=3),
        "nrtk:SaltNoisePerturber?amount=0.2": noise.SaltNoisePerturber(amount=0.2, seed=seed),
        "nrtk:radial_distortion?k=0.2;0;0&color_fill=9;9;9": optics.RadialDistortionPerturber(
            k=[0.2, 0, 0], color_fill=[9, 9, 9]
        ),
    }.items():
        assert np.array_equal(picture(name).image, perturber(image=IMAGE)[0]), name
    assert np.array_equal(picture("nrtk:gaussian_noise").image, picture("nrtk:gaussian_noise").image)
    assert not np.array_equal(picture("nrtk:gaussian_noise").image, picture("nrtk:gaussian_noise", seed=8).image)


@pytest.mark.parametrize(
    "name",
    ["nrtk:random_translation?color_fill=90;90;90", "nrtk:random_crop?crop_size=30;32", "nrtk:radial_distortion@4"],
)
def test_the_mask_moves_with_the_pixels(name: str) -> None:
    painted = np.where(MASK[..., None], np.uint8(255), np.uint8(10)).repeat(3, axis=2)
    for seed in range(5):
        result = picture(name, seed, painted)
        assert result.mask is not None and result.mask.shape == result.image.shape[:2]
        assert np.array_equal(result.mask, result.image[..., 0] == 255)


def test_every_perturber_has_severities_that_do_something() -> None:
    parse_conditions("nrtk:haze")
    names = [name for name in registry.scenarios if name.startswith("nrtk:")]
    assert len(names) == 16
    for name in names:
        definition = registry.scenarios.get(name)
        if definition.severities:
            away = [np.abs(picture(f"{name}@{level}").image.astype(int) - IMAGE).mean() for level in (1, 5)]
            assert 0 < away[0] < away[1], name
        else:
            assert name in ("nrtk:random_crop", "nrtk:random_translation")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nrtk:gaussian_blur?ksize=4", "NRTK refuses the parameters of nrtk:gaussian_blur"),
        ("nrtk:radial_distortion?k=0.1;x", "NRTK refuses the parameters"),
        ("nrtk:haze?strength=2", "has no parameter 'strength'; it has: factor"),
        ("nrtk:hase", "did you mean nrtk:haze"),
    ],
)
def test_bad_names_are_refused(name: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_conditions(name)


def test_eval_makes_rows_of_perturbers_and_resumes(tmp_path: Path) -> None:
    photos = "diorama:test?n=12"
    options: dict[str, Any] = {"models": "embedded:resnet_rho0", "scenarios": "nrtk:haze@3,nrtk:gaussian_noise?var=0.1"}
    run = holdfast.evaluate(photos, out=tmp_path / "run", **options)
    rows = run.rows().to_pandas()
    assert set(rows["condition"]) == {"nrtk:haze@3", "nrtk:gaussian_noise"}
    assert (rows["status"] == "ok").all() and '"version":10100' in rows["parameters"].iloc[-1].replace(" ", "")
    again = holdfast.evaluate(photos, out=tmp_path / "again", **options)
    assert set(again.run.rows()["row_id"].to_pylist()) == set(rows["row_id"])
