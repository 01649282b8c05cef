"""Measures of segmentation against torchmetrics, against loops over pixels, and against what was built in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t
from torchmetrics.classification import MulticlassAccuracy, MulticlassJaccardIndex

from holdfast.core.schema import PREDICTIONS, SEGMENTS
from holdfast.pipeline.segment.testing import boundary, count, tolerance
from holdfast.stats.effects import segments
from holdfast.stats.regression.fit import fit

NAMES = ("background", "cat", "dog", "fox", "owl")


def blobs(rng: np.random.Generator, classes: int, size: int = 24) -> np.ndarray:
    """A class map of rectangles over background."""
    made = np.zeros((size, size), np.uint8)
    for _ in range(rng.integers(0, 4)):
        top, left, height, width = rng.integers(0, size, 4)
        made[top : top + height, left : left + width] = rng.integers(0, classes)
    return made


def table_of(pairs: list[tuple[np.ndarray, np.ndarray]], **about: object) -> tuple[pa.Table, pa.Table]:
    """Rows of the one table and their details, for truths and answers."""
    rows, details = [], []
    known = {"task": "segment", "model": "m", "trained_on": "", "condition": "original", "variant": "paper"}
    for place, (truth, answer) in enumerate(pairs):
        own = {key: value[place] if isinstance(value, list) else value for key, value in about.items()}
        key = known | {"parameters": "{}", "source_id": f"s{place}", "label": "cat", "status": "ok"} | own
        key |= {"row_id": f"r{place}-{key['condition']}-{key['model']}-{key['trained_on']}", "sample_id": f"s{place}"}
        rows.append(key)
        details += [{"row_id": key["row_id"], "class": NAMES[at]} | one for at, one in count(truth, answer).items()]
    return pa.Table.from_pylist(rows, schema=PREDICTIONS), pa.Table.from_pylist(details, schema=SEGMENTS)


def frame_of(pairs: list[tuple[np.ndarray, np.ndarray]], **about: object) -> pd.DataFrame:
    return segments.measured(*table_of(pairs, **about))


@pytest.mark.parametrize("seed", range(12))
def test_iou_and_accuracy_are_those_of_torchmetrics(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 6))
    pairs = [(blobs(rng, classes), blobs(rng, classes)) for _ in range(int(rng.integers(1, 8)))]
    jaccard, each = MulticlassJaccardIndex(classes), MulticlassJaccardIndex(classes, average="none")
    accuracy, recall = MulticlassAccuracy(classes, average="micro"), MulticlassAccuracy(classes, average="none")
    for truth, answer in pairs:
        for metric in (jaccard, each, accuracy, recall):
            metric.update(torch.from_numpy(answer).long()[None], torch.from_numpy(truth).long()[None])
    frame = frame_of(pairs)
    (row,) = segments.segments(frame, resamples=10).to_dict("records")
    assert row["n"] == len(pairs)
    assert row["miou"] == pytest.approx(float(jaccard.compute()), abs=1e-6)
    assert row["pixel_accuracy"] == pytest.approx(float(accuracy.compute()), abs=1e-6)
    shown = segments.by_class(frame, resamples=10).set_index("class")
    for place, (iou, found) in enumerate(zip(each.compute().tolist(), recall.compute().tolist(), strict=True)):
        if NAMES[place] in shown.index:
            assert shown.loc[NAMES[place], "iou"] == pytest.approx(iou, abs=1e-6)
            if shown.loc[NAMES[place], "n"]:
                assert shown.loc[NAMES[place], "pixel_accuracy"] == pytest.approx(found, abs=1e-6)


def outline(mask: np.ndarray) -> list[tuple[int, int]]:
    """The boundary by its definition, pixel by pixel."""
    height, width = mask.shape
    found = []
    for y in range(height):
        for x in range(width):
            near = [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
            if mask[y, x] and any(0 <= v < height and 0 <= u < width and not mask[v, u] for v, u in near):
                found.append((y, x))
    return found


def met(these: list[tuple[int, int]], those: list[tuple[int, int]], far: float) -> int:
    return sum(any((y - v) ** 2 + (x - u) ** 2 <= far**2 for v, u in those) for y, x in these)


@given(st.integers(0, 2**32), st.sampled_from([(9, 13), (24, 24), (1, 7), (30, 11)]))
@settings(max_examples=25, deadline=None)
def test_boundaries_are_those_of_a_loop_over_pixels(seed: int, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    truth, answer = (blobs(rng, 3, 32)[: shape[0], : shape[1]] for _ in range(2))
    counted = count(truth, answer)
    far = tolerance(*shape)
    assert set(counted) == set(np.unique(truth)) | set(np.unique(answer))
    for place, one in counted.items():
        real, said = outline(truth == place), outline(answer == place)
        assert [tuple(pixel) for pixel in np.argwhere(boundary(truth == place))] == real
        assert one["truth_boundary"] == len(real) and one["predicted_boundary"] == len(said)
        assert one["truth_boundary_met"] == met(real, said, far)
        assert one["predicted_boundary_met"] == met(said, real, far)


def test_tolerance_grows_with_the_picture() -> None:
    assert [tolerance(side, side) for side in (16, 64, 256, 1024)] == [1, 1, 3, 11]


def test_boundary_f_of_shifted_squares() -> None:
    """One pixel apart is met, five are not; two sides of a square stay where they are."""
    truth = np.zeros((40, 40), np.uint8)
    truth[10:20, 10:20] = 1
    scores = []
    for shift in (0, 1, 5):
        answer = np.roll(truth, shift, axis=1)
        shown = segments.by_class(frame_of([(truth, answer)]), resamples=5).set_index("class")
        scores.append(shown.loc["cat", "boundary_f"])
    assert scores[0] == scores[1] == 1 > scores[2] > 0


def test_a_missed_object_has_a_boundary_score_of_nothing() -> None:
    truth = np.zeros((20, 20), np.uint8)
    truth[5:9, 5:9] = 1
    shown = segments.by_class(frame_of([(truth, np.zeros_like(truth))]), resamples=5).set_index("class")
    assert shown.loc["cat", ["iou", "boundary_f", "boundary_recall"]].tolist() == [0, 0, 0]


def _sums(values: np.ndarray, photo: np.ndarray, label: np.ndarray, donor: np.ndarray) -> segments._Cells:
    return segments._Cells(np.c_[values, np.ones(len(values))], photo, label, donor, np.zeros(len(values), int))


def _mean(rows: np.ndarray) -> np.ndarray:
    return rows[:, 0] / rows[:, 1]


def test_intervals_have_the_right_width() -> None:
    """The standard error of a mean, known in advance, with four images in each of three classes."""
    rng = np.random.default_rng(1)
    labels, places, none = np.repeat(np.arange(3), 4), np.arange(12), np.full(12, -1)
    values = rng.normal(0.5, 0.01, 12)
    found = _sums(values, places, labels, none).estimate(_mean, (0, 1), segments.DrawOptions(20_000))
    error = np.sqrt(sum(4 * values[labels == label].var(ddof=1) for label in range(3))) / 12
    assert found.value == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * t.ppf(0.975, 9) * error * np.sqrt(12 / 11), rel=0.02)


def test_images_with_one_donor_count_as_one_cluster() -> None:
    """Four donors that are all there is to know: the interval of a mean over four, whatever the number of images."""
    donor = np.repeat(np.arange(4), 25)
    values = np.array([0.3, 0.4, 0.6, 0.7])[donor]
    found = _sums(values, np.arange(100), np.zeros(100, int), donor).estimate(
        _mean, (0, 1), segments.DrawOptions(20_000)
    )
    error = np.std([0.3, 0.4, 0.6, 0.7], ddof=1) / 2
    # the jackknife's factor of a quarter of the images, 4 / 3, is that of the variance of four
    assert found.high - found.low == pytest.approx(2 * t.ppf(0.975, 3) * error * np.sqrt(4 / 3), rel=0.25)
    apart = _sums(values, np.arange(100), np.zeros(100, int), np.full(100, -1)).estimate(
        _mean, (0, 1), segments.DrawOptions(2_000)
    )
    assert apart.high - apart.low < 0.2 * (found.high - found.low)


def test_no_interval_is_without_width() -> None:
    """Answers without a fault, and classes of one image each, say something about other images, but not everything."""
    perfect = segments.segments(frame_of([(disk(), disk())] * 8), resamples=50).iloc[0]
    assert perfect["miou"] == 1 == perfect["miou_high"] and 0.5 < perfect["miou_low"] < 0.9
    rng = np.random.default_rng(3)
    singles = [(np.where(disk() > 0, place, 0), blobs(rng, 5, 20)) for place in range(1, 5)]
    shown = segments.segments(frame_of(singles, label=list(NAMES[1:])), resamples=50).iloc[0]
    assert shown["miou_low"] < shown["miou"] < shown["miou_high"]


def disk(size: int = 20) -> np.ndarray:
    truth = np.zeros((size, size), np.uint8)
    truth[4:12, 4:12] = 1
    return truth


def test_drops_are_paired_by_photo() -> None:
    """Every image loses nearly as much: the interval is narrow although images differ."""
    rng = np.random.default_rng(0)
    frames = []
    truths = [np.roll(disk(), int(rng.integers(0, 8)), axis=0) for _ in range(12)]
    for condition, moved in (("original", (0, 0)), ("grey", (2, 3))):
        answers = [np.roll(truth, moved[place % 2], axis=1) for place, truth in enumerate(truths)]
        frames.append(frame_of(list(zip(truths, answers, strict=True)), condition=condition))
    found = segments.segments(pd.concat(frames), resamples=200).set_index("condition")
    lost = found.loc["original", "miou"] - found.loc["grey", "miou"]
    assert found.loc["grey", "drop"] == pytest.approx(lost)
    assert found.loc["grey", "drop_high"] - found.loc["grey", "drop_low"] < 0.07
    assert np.isnan(found.loc["original", "drop"])


def test_ways_of_training_have_names_of_their_own() -> None:
    truth = [(disk(), disk())]
    frames = [
        frame_of(truth, model=model, trained_on=trained, condition=condition)
        for model, trained, condition in (
            ("a", "original", "original"), ("a", "original", "grey"), ("a", "grey", "grey"),
            ("b", "original", "original"), ("b", "grey", "grey"), ("c", "", "grey"), ("a", "grey", "blur"),
        )
    ]  # fmt: skip
    found = segments.experiments(pd.concat(frames))
    named = set(zip(found["model"], found["condition"], strict=True))
    assert named == {
        ("a", "original"), ("a", "grey"), ("a, trained within", "original"), ("a, trained within", "grey"),
        ("b", "original"), ("b", "grey"), ("c", "grey"), ("a trained on grey", "blur"),
    }  # fmt: skip


def test_the_regression_finds_what_a_scenario_costs() -> None:
    """Two models, two scenarios, two classes; answers cut so that IoU falls by a known amount."""
    frames = []
    for model, base in (("a", 8), ("b", 6)):
        for condition, less in (("original", 0), ("grey", 2)):
            pairs = []
            for place, extra in ((1, 0), (2, 1)):
                truth, answer = np.zeros((10, 10), np.uint8), np.zeros((10, 10), np.uint8)
                truth[:, :] = place
                answer[: base - less + extra] = place  # rows of ten: an IoU of so many tenths
                pairs.append((truth, answer))
            frames.append(frame_of(pairs, model=model, condition=condition, label=["cat", "dog"]))
    cells = segments.cells_from_segments(pd.concat(frames))
    assert set(cells["label"]) == {"cat", "dog"} and len(cells) == 8
    estimates = fit(cells).coefficients.set_index("term")["estimate"]
    assert estimates["scenario[grey]"] == pytest.approx(-0.2)
    assert estimates["model[b]"] == pytest.approx(-0.2)
    assert estimates["class[dog]"] == pytest.approx(0.1)


def test_only_segmented_rows_with_an_answer_count() -> None:
    rows, details = table_of(
        [(disk(), disk())] * 3, status=["ok", "error", "ok"], task=["segment", "segment", "classify"]
    )
    assert segments.measured(rows, details)["sample_id"].unique().tolist() == ["s0"]
    assert len(segments.segmented(rows)) == 2
    assert segments.segments(segments.measured(rows.slice(1, 1), details)).empty


def test_measures_of_a_group_are_those_of_its_photos_alone() -> None:
    rng = np.random.default_rng(5)
    frame = frame_of([(blobs(rng, 3), blobs(rng, 3)) for _ in range(12)])
    values = {f"s{place}": "night" if place % 3 else "day" for place in range(11)}  # the last has none
    table = segments.segments_by_group(frame, values, resamples=200).set_index("value")
    assert table["miou"].is_monotonic_increasing and set(table.index) == {"day", "night", segments.UNKNOWN}
    for value in ("day", "night"):
        own = frame[frame["source_id"].map(values) == value]
        alone = segments.segments(own, resamples=2400, level=1 - 0.05 / 3).iloc[0]
        shown = ["n", "miou", "miou_low", "miou_high"]
        assert table.loc[value, shown].tolist() == alone[shown].tolist()
        plain = segments.segments(own, resamples=2400).iloc[0]
        assert alone["miou_low"] <= plain["miou_low"] and alone["miou_high"] >= plain["miou_high"]
