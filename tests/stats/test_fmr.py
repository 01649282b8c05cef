"""FMR: the published tables to the image, the bounds, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.proportion import proportion_confint

from holdfast.core.errors import UserError
from holdfast.stats.walks.fmr import NONE_RIGHT, NONE_VALIDATED, NOT_MEASURED, fmr, from_counts, recover_counts

# Class: SA, VR, FMR as printed; 150 images a class.
TABLE_13 = {
    "Dog": ("93.33", "95.33", "17.98"),
    "Cat": ("96.67", "94.00", "31.55"),
    "Frog": ("85.33", "80.67", "20.34"),
    "Turtle": ("84.67", "78.67", "29.03"),
    "Bird": ("91.33", "96.00", "28.13"),
    "Primate": ("96.00", "48.00", "62.21"),
    "Fish": ("94.00", "76.67", "45.33"),
    "Crab": ("96.00", "87.33", "19.87"),
    "Insect": ("93.33", "78.00", "33.88"),
}
# Model: SA, PA, FMR.
TABLE_1 = {
    "LeNet": (99.09, 27.78, 28.04),
    "CIFAR ResNet18": (95.38, 52.34, 54.88),
    "9-class ResNet18": (92.30, 27.95, 30.28),
    "ResNet50": (76.26, 33.15, 43.47),
    "ViT": (82.40, 41.65, 50.55),
    "DeiT": (78.57, 43.25, 55.05),
    "Twins": (80.53, 48.52, 60.25),
    "Visformer": (79.88, 47.82, 59.87),
    "Swin": (81.67, 56.95, 69.73),
    "ConvNeXt": (82.05, 47.68, 58.11),
}
# Model: PA, FMR for five generators; they share the model's one SA.
TABLE_3 = {
    "ResNet50": ((33.43, 43.84), (32.51, 42.63), (31.37, 41.14), (32.74, 42.93), (33.15, 43.47)),
    "ANT": ((32.95, 43.21), (33.62, 44.08), (32.33, 42.39), (33.01, 43.29), (32.73, 42.92)),
    "SIN": ((33.23, 43.58), (33.11, 43.43), (32.26, 42.32), (32.46, 42.58), (32.71, 42.90)),
    "ANT+SIN": ((33.49, 43.92), (34.52, 45.26), (33.71, 44.20), (33.99, 44.57), (33.19, 43.52)),
    "DeepAug": ((34.35, 45.04), (35.44, 46.47), (34.89, 45.75), (35.51, 46.57), (35.33, 46.33)),
    "Augmix": ((40.49, 52.77), (41.20, 53.69), (40.99, 53.42), (40.34, 52.57), (40.94, 53.36)),
    "DeepAug+AM": ((44.46, 57.98), (44.21, 57.65), (42.35, 55.23), (42.66, 55.64), (44.62, 58.19)),
}


def images(counts: dict[str, tuple[int, int, int, int]]) -> pd.DataFrame:
    """A row per image from label → (n, right, validated, right of those)."""
    made = [
        (label, f"{label}/{number}", number < right, number < validated, number < survived)
        for label, (n, right, validated, survived) in counts.items()
        for number in range(n)
    ]
    frame = pd.DataFrame(made, columns=["label", "source_id", "right_original", "validated", "right_perturbed"])
    return frame.assign(model="m")


def pick(result: pd.DataFrame, measure: str, label: str = "") -> pd.Series:
    return result[(result["measure"] == measure) & (result["label"] == label)].iloc[0]


def test_table_13_is_whole_counts_and_its_total_is_pooled() -> None:
    counts = {}
    for name, (sa, vr, ratio) in TABLE_13.items():
        found = recover_counts(150, standard_accuracy=sa, validation_rate=vr, fmr=ratio)
        assert len(found) == 1, name
        counts[name] = (150, found[0].right, found[0].validated, found[0].right_validated)
    assert counts["Dog"] == (150, 140, 143, 24)
    assert tuple(np.sum(list(counts.values()), axis=0)) == (1350, 1246, 1102, 308)
    result = fmr(images(counts))
    printed = {"standard_accuracy": 92.30, "validation_rate": 81.63, "perturbed_accuracy": 27.95, "fmr": 30.28}
    for measure, value in printed.items():
        assert round(100 * pick(result, measure)["estimate"], 2) == value
    assert round(100 * pick(result, "fmr_low")["estimate"], 1) == 24.7
    assert round(100 * pick(result, "fmr_high")["estimate"], 1) == 44.6
    for name, (sa, vr, ratio) in TABLE_13.items():
        assert f"{100 * pick(result, 'standard_accuracy', name)['estimate']:.2f}" == sa
        assert f"{100 * pick(result, 'validation_rate', name)['estimate']:.2f}" == vr
        # Crab was divided from rounded figures: 19.08 / 96.00, not 25 / 131 over 144 / 150 = 19.88.
        assert 100 * pick(result, "fmr", name)["estimate"] == pytest.approx(float(ratio), abs=0.0101)


@pytest.mark.parametrize("model", TABLE_1)
def test_table_1_is_pa_over_sa_within_input_rounding(model: str) -> None:
    sa, pa, ratio = TABLE_1[model]
    low, high = 100 * (pa - 0.005) / (sa + 0.005), 100 * (pa + 0.005) / (sa - 0.005)
    assert low <= ratio + 0.005 and ratio - 0.005 <= high
    if model == "Visformer":  # only so: the division of the printed figures gives 59.86
        assert round(100 * pa / sa, 2) == 59.86 != ratio


@pytest.mark.parametrize("model", TABLE_3)
def test_table_3_has_one_standard_accuracy_a_model(model: str) -> None:
    low = max(100 * (pa - 0.005) / (ratio + 0.005) for pa, ratio in TABLE_3[model])
    high = min(100 * (pa + 0.005) / (ratio - 0.005) for pa, ratio in TABLE_3[model])
    assert low <= high
    if model == "ResNet50":
        assert low <= 76.26 + 0.005 and high >= 76.26 - 0.005  # table 1's


def test_family_by_hand() -> None:
    # Ten images: 8 right; 6 validated (5 of them right before), 3 of those right after; 4 rejected, 3 of them right.
    frame = pd.DataFrame(
        {
            "model": "m",
            "label": "cat",
            "source_id": [str(number) for number in range(10)],
            "right_original": [1, 1, 1, 1, 1, 0, 1, 1, 1, 0],
            "validated": [True] * 6 + [False] * 4,
            "right_perturbed": [1, 1, 1, 0, 0, 0, 1, 1, 1, 1],  # of rejected images: ignored
            "right_reconstruction": [1, 1, 1, 1, 0, 0, 1, 1, 0, 0],
            "right_random_walk": [1, 1, None, 1, 0, 0, 1, 0, 0, 0],
        }
    )
    result = fmr(frame)
    expected = {
        "standard_accuracy": 0.8,
        "perturbed_accuracy": 0.5,
        "validation_rate": 0.6,
        "fmr": 0.5 / 0.8,
        "fmr_low": 3 / 8,
        "fmr_high": 7 / 8,
        "fmr_algorithm1": 6 / 8,
        "fmr_matched": 3 / 5,
        "reconstruction": 0.6,
        "reconstruction_ratio": 0.6 / 0.8,
        "random_walk": 4 / 9,
        "random_walk_ratio": 4 / 9 / 0.8,
    }
    for label in ("", "cat"):
        for measure, value in expected.items():
            row = pick(result, measure, label)
            assert row["estimate"] == pytest.approx(value), measure
            assert row["low"] < value < row["high"]
            assert row["reason"] == ""
    assert len(result) == 2 * len(expected)
    algorithm = pick(result, "fmr_algorithm1")["estimate"]
    assert algorithm > pick(result, "fmr")["estimate"]  # the literal listing is not the conservative one


def test_nothing_validated_and_nothing_right() -> None:
    result = fmr(images({"none_validated": (20, 15, 0, 0), "none_right": (20, 0, 10, 5)}))
    assert pick(result, "fmr", "none_validated")["reason"] == NONE_VALIDATED
    assert np.isnan(pick(result, "fmr", "none_validated")["estimate"])
    assert pick(result, "validation_rate", "none_validated")["estimate"] == 0
    assert pick(result, "fmr_low", "none_validated")["estimate"] == 0  # bounds do not need a validated image
    assert pick(result, "fmr", "none_right")["reason"] == NONE_RIGHT
    assert pick(result, "perturbed_accuracy", "none_right")["estimate"] == 0.5
    assert pick(result, "fmr")["reason"] == ""
    unmeasured = fmr(images({"cat": (20, 15, 10, 5)}).assign(right_reconstruction=np.nan))
    assert pick(unmeasured, "reconstruction_ratio")["reason"] == NOT_MEASURED
    assert (from_counts(20, 15, 0, 0).fmr, from_counts(20, 15, 0, 0).reason) == (None, NONE_VALIDATED)
    assert (from_counts(20, 0, 10, 5).fmr_high, from_counts(20, 0, 10, 5).reason) == (None, NONE_RIGHT)
    assert from_counts(0, 0, 0, 0).standard_accuracy is None


def test_from_counts_is_table_13_total() -> None:
    one = from_counts(1350, 1246, 1102, 308)
    assert one.fmr is not None and one.fmr_low is not None and one.fmr_high is not None
    got = [round(100 * value, 2) for value in (one.fmr, one.fmr_low, one.fmr_high)]
    assert got == [30.28, 24.72, 44.62]
    with pytest.raises(UserError, match="larger than its whole"):
        from_counts(10, 11, 5, 5)


def test_impossible_rows_have_no_counts() -> None:
    assert recover_counts(150, standard_accuracy="93.50", validation_rate="95.33", fmr="17.98") == []


def test_missing_columns() -> None:
    with pytest.raises(UserError, match="missing: validated"):
        fmr(images({"cat": (5, 4, 3, 2)}).drop(columns="validated"))


def test_share_intervals_are_wilson() -> None:
    result = fmr(images({"cat": (150, 140, 143, 24)}))
    for measure, counts in (("standard_accuracy", (140, 150)), ("perturbed_accuracy", (24, 143))):
        row = pick(result, measure)
        assert (row["low"], row["high"]) == pytest.approx(proportion_confint(*counts, method="wilson"))


def test_no_survivor_still_has_an_upper_limit() -> None:
    row = pick(fmr(images({"cat": (50, 45, 40, 0)})), "fmr")
    assert row["estimate"] == row["low"] == 0
    assert 0.05 < row["high"] < 0.15


def test_repeated_photos_widen_the_interval() -> None:
    once = images({"cat": (60, 50, 45, 15)})
    thrice = pd.concat([once] * 3, ignore_index=True)
    narrow, wide = pick(fmr(once), "fmr"), pick(fmr(thrice), "fmr")
    assert (wide["low"], wide["high"]) == pytest.approx((narrow["low"], narrow["high"]), rel=0.02)


@pytest.mark.parametrize(("photos", "chances"), [(150, (0.93, 0.8, 0.25)), (60, (0.8, 0.5, 0.6))])
def test_intervals_cover(photos: int, chances: tuple[float, float, float]) -> None:
    """SA, VR and survival known; survivors come from those right before, so that the two accuracies correlate."""
    sa, vr, kept = chances
    repetitions, rng = 1200, np.random.default_rng(7)
    right = rng.random((repetitions, photos)) < sa
    validated = rng.random((repetitions, photos)) < np.where(right, vr, vr / 2)
    survived = right & (rng.random((repetitions, photos)) < kept)
    share = sa * vr + (1 - sa) * vr / 2
    pa = sa * vr * kept / share
    truth = {"fmr": pa / sa, "fmr_low": sa * vr * kept / sa, "fmr_matched": kept, "perturbed_accuracy": pa}
    truth["fmr_high"] = (sa * vr * kept + 1 - share) / sa
    truth["fmr_algorithm1"] = (sa * vr * kept + sa * (1 - vr)) / sa
    frame = pd.DataFrame(
        {
            "model": np.repeat([f"{number:04}" for number in range(repetitions)], photos),
            "label": "cat",
            "source_id": np.tile([str(number) for number in range(photos)], repetitions),
            "right_original": right.reshape(-1),
            "validated": validated.reshape(-1),
            "right_perturbed": survived.reshape(-1),
        }
    )
    result = fmr(frame)
    result = result[result["label"] == ""]
    for measure, value in truth.items():
        rows = result[result["measure"] == measure]
        covered = ((rows["low"] <= value) & (value <= rows["high"])).mean()
        assert 0.93 <= covered <= 0.97, (measure, covered)
