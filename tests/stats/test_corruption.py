"""Mean corruption error against its definition, written out."""

from dataclasses import replace

import numpy as np
import pytest
from made_grid import clustered, counts_of

from holdfast.core.errors import UserError
from holdfast.core.types import CORRUPTIONS
from holdfast.stats.effects.corruption import ALEXNET, mean_corruption_error

CONDITIONS = [
    "original", "fog@severity_1", "fog@severity_2", "snow", "saturate@severity_5", "blur_background", "pixelate",
]  # fmt: skip
"""Two corruptions at two and one severity, a spare one, another scenario, and one more corruption."""
PHOTOS, CLASSES = 210, 7
LOGITS = np.array([1.4, 0.2, -0.5])[:, None] + np.array([0.6, -0.2, -0.9, -0.4, -1.5, 0.0, 0.3])[None, :]


@pytest.fixture(scope="module")
def right():
    return clustered(LOGITS, PHOTOS, 1.0, np.random.default_rng(3))


def named(right, **options):
    """Counts whose conditions bear these names."""
    counts = counts_of(right, classes=CLASSES, **options)
    names = dict(zip(counts.conditions, CONDITIONS, strict=True))
    cells = counts.cells.assign(condition=counts.cells["condition"].map(names))
    return replace(counts, cells=cells, conditions=CONDITIONS)


def macro(right):
    """Error by model and condition."""
    classes = np.arange(PHOTOS) % CLASSES
    return 1 - np.mean([right[classes == k].mean(axis=0) for k in range(CLASSES)], axis=0)


def test_it_is_the_mean_over_corruptions_of_the_mean_over_severities(right):
    found = mean_corruption_error(named(right), reference="m02", resamples=400)
    errors = macro(right)
    fog, snow, pixelate = errors[:, 1:3].mean(axis=1), errors[:, 3], errors[:, 6]
    table = found.models.set_index("model")
    assert table["error"].to_numpy() == pytest.approx((fog + snow + pixelate) / 3)
    assert table["clean_error"].to_numpy() == pytest.approx(errors[:, 0])
    assert (table[["corruptions", "conditions", "n"]] == [3, 4, PHOTOS]).all(axis=None)
    # summed over severities first, as published: not the mean of four ratios
    ratios = [errors[:, 1:3].sum(axis=1) / errors[2, 1:3].sum(), snow / snow[2], pixelate / pixelate[2]]
    assert table["mce"].to_numpy() == pytest.approx(np.mean(ratios, axis=0))
    added = [one - errors[:, 0] for one in (fog, snow, pixelate)]
    assert table["relative_mce"].to_numpy() == pytest.approx(np.mean([one / one[2] for one in added], axis=0))
    assert table.loc["m02", ["mce", "mce_low", "mce_high", "relative_mce"]].tolist() == [1, 1, 1, 1]
    assert found.sentence.startswith("m00 makes the fewest errors under corruptions")
    detail = found.by_corruption.set_index(["model", "corruption"])
    assert detail.loc[("m01", "fog"), ["error", "severities", "counted"]].tolist() == [fog[1], "1, 2", True]
    assert detail.loc[("m01", "snow"), "severities"] == "default"
    assert not detail.loc[("m01", "saturate"), "counted"]  # shown, and not in the mean
    assert detail.loc[("m00", "snow"), "ratio"] == pytest.approx(snow[0] / snow[2])


def test_intervals_are_those_of_resampled_photos(right):
    found = mean_corruption_error(named(right), reference="m02", average="micro", resamples=2000)
    one = 1 - right[:, 0]
    photos = (one[:, 1:3].mean(axis=1) + one[:, 3] + one[:, 6]) / 3
    row = found.models.iloc[0]
    half = 1.97 * photos.std(ddof=1) / np.sqrt(PHOTOS)
    assert (row["high"] - row["low"]) / 2 == pytest.approx(half, rel=0.05)
    assert found.samples.shape == (2000, 3)
    assert found.samples[:, 0].std() == pytest.approx(photos.std(ddof=1) / np.sqrt(PHOTOS), rel=0.05)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(1000):
        errors = 1 - right[rng.integers(0, PHOTOS, PHOTOS)].mean(axis=0)
        parts = np.stack([errors[:, 1:3].mean(axis=1), errors[:, 3], errors[:, 6]])
        drawn.append((parts[:, 0] / parts[:, 2]).mean())
    assert [row["mce_low"], row["mce_high"]] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.02)


def test_a_published_reference_needs_no_model_and_covers_only_what_it_knows(right):
    assert list(ALEXNET) == list(CORRUPTIONS) and np.mean(list(ALEXNET.values())) == pytest.approx(0.789, abs=1e-3)
    errors = macro(right)
    counts = named(right)
    found = mean_corruption_error(counts, reference=ALEXNET, resamples=50).models
    measured = {"fog": errors[0, 1:3].mean(), "snow": errors[0, 3], "pixelate": errors[0, 6]}
    expected = [error / ALEXNET[name] for name, error in measured.items()]
    assert found["mce"].iloc[0] == pytest.approx(np.mean(expected))
    assert found["relative_mce"].isna().all()
    fog_only = mean_corruption_error(counts, reference={"fog": 0.5}, resamples=50).models
    assert fog_only["mce"].iloc[0] == pytest.approx(errors[0, 1:3].mean() / 0.5)
    alone = mean_corruption_error(counts, resamples=50)
    assert alone.models[["mce", "mce_low", "relative_mce"]].isna().all(axis=None) and "mCE" not in alone.sentence


def test_a_reference_without_errors_divides_nothing(right):
    perfect = right.copy()
    perfect[:, 2, 3] = 1  # never wrong in snow
    found = mean_corruption_error(named(perfect), reference="m02", resamples=50)
    assert np.isfinite(found.models["mce"]).all()
    snow = found.by_corruption.query("corruption == 'snow'")
    assert snow["ratio"].isna().all() and np.isfinite(snow["error"]).all()
    row = snow[snow["model"] == "m02"].iloc[0]
    assert row["low"] == 0 < row["high"] < 0.05  # all images alike: still no certainty


def test_only_photos_that_every_model_answered_count_and_repeats_count_once(right):
    holes = right.copy()
    holes[:100, 1, 1] = np.nan
    counts = named(holes)
    kept = mean_corruption_error(counts, average="micro", resamples=50).by_corruption
    fog = kept.query("model == 'm00' and corruption == 'fog'")["error"].item()
    assert fog == pytest.approx(1 - (right[100:, 0, 1].mean() + right[:, 0, 2].mean()) / 2)
    repeated = replace(named(right), same_images={"fog@severity_2": "fog@severity_1"})
    once = mean_corruption_error(repeated, average="micro", resamples=50).by_corruption
    fog = once.query("model == 'm00' and corruption == 'fog'")["error"].item()
    assert fog == pytest.approx(1 - right[:, 0, 1].mean())
    # so weak that nothing changed: still one of its severities
    weak = replace(named(right), same_images={"fog@severity_1": "original"})
    both = mean_corruption_error(weak, average="micro", resamples=50).by_corruption
    fog = both.query("model == 'm00' and corruption == 'fog'")["error"].item()
    assert fog == pytest.approx(1 - right[:, 0, 1:3].mean())


def test_what_cannot_be_said_is_a_sentence(right):
    counts = named(right)
    with pytest.raises(UserError, match="No model 'alexnet'"):
        mean_corruption_error(counts, reference="alexnet", resamples=50)
    with pytest.raises(UserError, match="No corruption 'frost'"):
        mean_corruption_error(counts, corruptions=["frost"], resamples=50)
    spare = mean_corruption_error(counts, corruptions=["saturate"], resamples=50).models
    assert spare["error"].to_numpy() == pytest.approx(macro(right)[:, 4])
    none = mean_corruption_error(counts_of(right, classes=CLASSES), resamples=50)
    assert "None of the fifteen" in none.reason and none.models.empty and none.samples.shape == (50, 0)
    apart = right.copy()
    apart[:, 0, 1:5] = np.nan
    apart[:, 1, 6] = np.nan
    assert "no image that every model answered" in mean_corruption_error(named(apart), resamples=50).reason
