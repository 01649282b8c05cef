from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.core.types import Image, Sample
from holdfast.data.collection import stratified_folds, stratified_split


class Nowhere:
    def fingerprint(self) -> str:
        return ""

    def load(self, *, max_pixels: int = 0) -> Image:
        raise AssertionError("splitting reads no image")


def samples(counts: dict[str, int], renderings: int = 1) -> list[Sample]:
    return [
        Sample(f"{label}/{number}/{version}", label, Nowhere(), source_id=f"{label}/{number}")
        for label, count in counts.items()
        for number in range(count)
        for version in range(renderings)
    ]


COUNTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(1, 30), min_size=1, max_size=5)


def by_source(found: tuple[Sample, ...], attribute: str) -> dict[str, set[object]]:
    values: defaultdict[str, set[object]] = defaultdict(set)
    for sample in found:
        values[sample.source_id].add(getattr(sample, attribute))
    return values


@given(COUNTS, st.integers(1, 3), st.integers(1, 99), st.integers(0, 5), st.randoms())
def test_split(counts: dict[str, int], renderings: int, percent: int, seed: int, random) -> None:
    given_samples = samples(counts, renderings)
    found = stratified_split(given_samples, test_fraction=percent / 100, seed=seed)
    assert [s.sample_id for s in found] == [s.sample_id for s in given_samples]
    sides = by_source(found, "split")
    assert all(len(side) == 1 for side in sides.values())
    for label, count in counts.items():
        tested = sum(sides[f"{label}/{number}"] == {"test"} for number in range(count))
        expected = (2 * count * percent + 100) // 200  # the nearest whole number, halves up, in integers
        assert tested == (0 if count == 1 else min(max(expected, 1), count - 1))
    shuffled = random.sample(given_samples, len(given_samples))
    again = stratified_split(shuffled, test_fraction=percent / 100, seed=seed)
    assert {s.sample_id: s.split for s in again} == {s.sample_id: s.split for s in found}


@given(COUNTS, st.integers(2, 6), st.integers(1, 3), st.integers(0, 5), st.randoms())
def test_folds(extra: dict[str, int], folds: int, renderings: int, seed: int, random) -> None:
    counts = {label: folds + more - 1 for label, more in extra.items()}
    given_samples = samples(counts, renderings)
    found = stratified_folds(given_samples, folds=folds, seed=seed)
    places = by_source(found, "fold")
    assert all(len(place) == 1 for place in places.values())
    for label in [*counts, None]:
        chosen = [next(iter(p)) for source, p in places.items() if label is None or source.split("/")[0] == label]
        sizes = Counter(chosen)
        assert set(sizes) == set(range(folds))
        assert max(sizes.values()) - min(sizes.values()) <= 1
    shuffled = random.sample(given_samples, len(given_samples))
    again = stratified_folds(shuffled, folds=folds, seed=seed)
    assert {s.sample_id: s.fold for s in again} == {s.sample_id: s.fold for s in found}


def test_the_default_is_80_to_20_and_the_seed_matters() -> None:
    many = samples({"cat": 50, "dog": 100})
    first, second = stratified_split(many), stratified_split(many, seed=1)
    assert Counter((s.label, s.split) for s in first) == {
        ("cat", "test"): 10,
        ("cat", "train"): 40,
        ("dog", "test"): 20,
        ("dog", "train"): 80,
    }
    assert first != second
    assert stratified_folds(many, folds=5) != stratified_folds(many, folds=5, seed=1)


def test_one_image_a_class_is_for_training() -> None:
    assert {s.split for s in stratified_split(samples({"cat": 1, "dog": 1}))} == {"train"}


def test_a_source_with_two_labels_stays_together() -> None:
    two = [
        Sample("a1", "cat", Nowhere(), source_id="a"),
        Sample("a2", "dog", Nowhere(), source_id="a"),
        Sample("a3", "dog", Nowhere(), source_id="a"),
        *samples({"cat": 2, "dog": 1}),
    ]
    found = stratified_folds(two, folds=2)
    assert len({s.fold for s in found[:3]}) == 1
    dogs = {s.source_id: s.fold for s in found if s.source_id in ("a", "dog/0")}
    assert sorted(dogs.values()) == [0, 1]  # "a" counts as a dog


def test_too_few_for_the_folds_names_the_class() -> None:
    with pytest.raises(UserError, match=r"5 folds .* dog \(3\)$"):
        stratified_folds(samples({"cat": 5, "dog": 3}), folds=5)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, float("nan")])
def test_fractions_lie_between_0_and_1(fraction: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        stratified_split(samples({"cat": 5}), test_fraction=fraction)


def test_one_fold_is_none() -> None:
    with pytest.raises(UserError, match="at least 2"):
        stratified_folds(samples({"cat": 5}), folds=1)


def test_nothing_stays_nothing() -> None:
    assert stratified_split([]) == ()
    assert stratified_folds([], folds=3) == ()
