"""Masks made worse, and what that does to scores and verdicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from holdfast.core.errors import UserError
from holdfast.core.types import Mask, Sample
from holdfast.data import load_collection
from holdfast.data.images import ArrayImage
from holdfast.data.masks import ArrayMask
from holdfast.data.writers import encode_image, encode_mask
from holdfast.pipeline.evaluate.background_truth import RERENDERED
from holdfast.pipeline.samples import DataSpec
from holdfast.results import open_run
from holdfast_studies import masks
from holdfast_studies.degraded import box_of, degraded, grown, kinds_of
from holdfast_studies.masks import overlaps
from holdfast_studies.study import StudyOptions, chosen, run_study

SMALL = arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=12))


def grown_by_hand(mask: Mask, reach: float) -> Mask:
    """Every pixel within ``reach`` of the mask, by looking at all pairs."""
    there = np.argwhere(mask)
    every = np.argwhere(np.ones_like(mask))
    near = np.sqrt(np.square(every[:, None] - there[None]).sum(axis=2)).min(axis=1) <= reach
    return np.asarray(near.reshape(mask.shape))


@given(SMALL, st.floats(0.05, 0.9))
@settings(max_examples=60, deadline=None)
def test_growing_is_by_a_disc_in_units_of_the_object(mask: Mask, share: float) -> None:
    if not mask.any() or mask.all():
        assert (grown(mask, share) == mask).all()
        return
    reach = share * np.sqrt(mask.sum())
    distance = np.sqrt(np.square(np.argwhere(mask)[:, None] - np.argwhere(~mask)[None]).sum(axis=2))
    if np.isclose(distance, reach, atol=1e-3).any():  # OpenCV's distances are of single precision
        return
    assert (grown(mask, share) == grown_by_hand(mask, reach)).all()
    smaller = grown(mask, -share)
    assert smaller.any()
    assert not (smaller & ~mask).any()
    left = mask & ~grown_by_hand(~mask, reach)
    if left.any():
        assert (smaller == left).all()


def test_an_eroded_object_never_vanishes() -> None:
    mask = np.zeros((9, 9), np.bool_)
    mask[2:5, 2:5] = True
    expected = np.zeros_like(mask)
    expected[3, 3] = True
    assert (grown(mask, -1.0) == expected).all()


def test_a_box_holds_the_object_and_nothing_else() -> None:
    mask = np.zeros((8, 10), np.bool_)
    mask[2, 3] = mask[5, 7] = True
    kind = kinds_of(["box"])[0][0]
    boxed = degraded(kind, np.zeros((8, 10, 3), np.uint8), mask)
    assert box_of(mask) == (3, 2, 8, 6)
    assert boxed.sum() == 4 * 5
    assert boxed[2:6, 3:8].all()


def test_grabcut_is_started_from_the_true_box() -> None:
    image = np.full((64, 64, 3), (40, 160, 60), np.uint8)
    image[8:20, 10:30] = (200, 30, 30)
    image[40:60, 40:60] = (200, 30, 30)  # alike, but outside the box
    mask = np.zeros((64, 64), np.bool_)
    mask[8:20, 10:30] = True
    found = degraded(kinds_of(["grabcut-box"])[0][0], image, mask)
    assert not found[40:60, 40:60].any()
    assert (found & mask).sum() / (found | mask).sum() > 0.8


def test_overlap_is_counted_in_pixels() -> None:
    exact, other = np.zeros((4, 4), np.bool_), np.zeros((4, 4), np.bool_)
    exact[:2, :2], other[:2, 1:4] = True, True
    picture = ArrayImage(np.zeros((4, 4, 3), np.uint8))
    sample = Sample("a", "dog", picture, mask=ArrayMask(exact))
    made = {
        "moved": {"a": Sample("a", "dog", picture, mask=ArrayMask(other))},
        "whole": {"a": Sample("a", "dog", picture, mask=ArrayMask(np.ones((4, 4), np.bool_)))},
        "none": {},
    }
    frame = overlaps([sample], made, 100).set_index("kind")
    assert frame.loc["moved", ["iou", "lost", "added", "usable"]].tolist() == [2 / 8, 0.5, 1.0, True]
    assert frame.loc["whole", ["iou", "lost", "added", "usable"]].tolist() == [4 / 16, 0.0, 3.0, False]
    assert frame.loc["none", ["iou", "lost", "added", "usable"]].tolist() == [0.0, 1.0, 0.0, False]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (["kinds=erode-2"], "0 to 1"),
        (["kinds=exact"], "name one kind"),
        (["kinds=grabcat"], "did you mean grabcut"),
        (["conditions=original,segmented"], "random_background and same_class_background"),
        (["accuracy=most"], "full or restricted"),
        (["scenes=3"], "12 or more"),
        (["masks=somewhere"], "of their own"),
    ],
)
def test_settings_that_make_no_sense(said: list[str], answer: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=answer):
        run_study("masks", tmp_path, assignments=said, quick=True, device="cpu")
    assert not (tmp_path / "runs").exists()


def test_a_maker_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.annotate.u2netp.MEMBER", "no/such/file")
    kinds, absent = kinds_of(["u2netp", "box"])
    assert [kind.name for kind in kinds] == ["box"]
    assert absent == ["u2netp"]


def test_drawn_scenes_take_other_masks_for_what_is_drawn(tmp_path: Path) -> None:
    name = "diorama-rerendered:test?n=12&context=0.5"
    before = load_collection(name).samples
    blank = np.zeros((64, 64), np.bool_)
    blank[3, 4] = True
    for sample in before[:12]:
        path = tmp_path / f"{sample.sample_id}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_mask(blank))
    after = load_collection(name, masks=tmp_path).samples
    assert [one.sample_id for one in after] == [one.sample_id for one in before]
    for old, new in zip(before, after, strict=True):
        assert old.mask is not None
        assert new.mask is not None
        expected = old.mask.load(64, 64) if new.condition == RERENDERED else blank
        assert (new.mask.load(64, 64) == expected).all()


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("masks")
    said = ["kinds=erode-0.1,box"]
    assert run_study("masks", out, assignments=said, quick=True, device="cpu") == out / "report" / "index.html"
    return out


def test_changes_are_differences_of_what_each_run_says(rehearsed: Path) -> None:
    effects = pd.read_parquet(rehearsed / "results" / "background-effect-of-every-model.parquet")
    runs = {name: open_run(rehearsed / "runs" / name) for name in ("exact", "erode-0.1", "box")}
    assert set(effects["kind"]) == set(runs)
    verdicts = {name: run.verdicts().set_index("model") for name, run in runs.items()}
    scores = {name: run.scores(resamples=200).set_index("model")["score"] for name, run in runs.items()}
    right = runs["exact"].accuracy().set_index(["model", "condition"])["accuracy"]
    for row in effects.to_dict("records"):
        kind, model = row["kind"], row["model"]
        own, exact = (verdicts[name].loc[model, "background_effect"] for name in (kind, "exact"))
        assert row["effect"] == pytest.approx(own)
        assert row["verdict"] == verdicts[kind].loc[model, "verdict"]
        assert row["score"] == pytest.approx(scores[kind][model])
        truth = right[model, "original"] - right[model, RERENDERED]
        assert row["bias"] == pytest.approx(own - truth)
        if kind != "exact":
            assert row["change"] == pytest.approx(own - exact)
            assert row["score_change"] == pytest.approx(scores[kind][model] - scores["exact"][model])
            assert row["change_low"] < row["change"] < row["change_high"]
            assert row["score_change_low"] <= row["score_change"] <= row["score_change_high"]


def test_the_page_says_how_good_the_masks_are(rehearsed: Path) -> None:
    frame = pd.read_parquet(rehearsed / "results" / "how-good-the-masks-are.parquet").set_index("kind")
    assert frame.loc["exact", "iou"] == 1
    assert (frame.drop("exact")["iou"] < 0.9).all()
    assert frame.loc["box", "lost"] == 0
    assert frame.loc["box", "added"] > 0.1
    assert frame.loc["erode-0.1", "added"] == 0
    assert frame.loc["erode-0.1", "lost"] > 0.1
    assert np.isclose(1 - frame.loc["erode-0.1", "lost"], frame.loc["erode-0.1", "iou"])
    text = (rehearsed / "report" / "index.html").read_text(encoding="utf8")
    assert "Drawn scenes: the truth is known there, and photographs may differ." in text
    assert text.count('<img src="data:image/png;base64,') == 7  # images and three kinds of masks; three at the front


def test_what_is_written_stays(tmp_path: Path) -> None:
    spec = DataSpec("diorama:test?n=12")
    samples, (kind,) = masks.samples_of(spec), kinds_of(["dilate-0.1"])[0]
    told: list[int] = []
    for _ in range(2):
        masks.write_masks(kind, samples, spec, tmp_path, lambda _stage, done, _total: told.append(done))
    assert told == list(range(12))
    assert len(list(tmp_path.rglob("*.png"))) == 12


def test_own_pictures(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for sample in load_collection("diorama:test?n=24&context=0.9").samples:
        image, mask = sample.image.load(), sample.mask.load(64, 64)  # type: ignore[union-attr]
        name = f"{sample.label}/{sample.sample_id.rpartition('/')[2]}.png"
        for folder, content in (("images", encode_image(image)), ("masks", encode_mask(mask))):
            (data / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (data / folder / name).write_bytes(content)
    said = [f"data={data}", "models=embedded:resnet_rho0", "kinds=threshold"]
    said.append("conditions=original,random_background,same_class_background")
    settings = chosen("masks", masks.STUDY.settings, said, quick=True)
    result = masks.run(StudyOptions(tmp_path / "out", settings, device="cpu"))
    assert result.note == ""
    assert "bias" not in result.findings[1].table  # type: ignore[operator]
    assert result.facts["images"] == 24


def test_pictures_without_masks(tmp_path: Path) -> None:
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "a.png").write_bytes(encode_image(np.zeros((8, 8, 3), np.uint8)))
    with pytest.raises(UserError, match="has no masks"):
        masks.samples_of(DataSpec(str(tmp_path)))
