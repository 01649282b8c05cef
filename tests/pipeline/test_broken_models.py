"""A detector, segmenter or model of several labels that gets nothing right is called broken, as classifiers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import holdfast
from holdfast import registry
from holdfast.core.types import LabelSpace
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.segment.segment import segment
from holdfast.pipeline.specs import SegmentSpec
from holdfast.stats.effects.sanity import too_few
from shapes import CLASSES, make_photos

SCENES = "diorama:test?n=12&objects=1..3&size=64"
DETECTORS = """
from holdfast.diorama import CLASSES

class Silent:
    labels, fingerprint = CLASSES, "1"
    def detect(self, images):
        return [([], [], []) for image in images]

class Elsewhere(Silent):
    fingerprint = "2"
    def detect(self, images):
        return [([[0, 0, 3, 3]], [0.9], [0]) for image in images]
"""


def test_a_detector_that_finds_nothing_is_called_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_boxes.py").write_text(DETECTORS)
    monkeypatch.chdir(tmp_path)
    names = ("python:broken_boxes:Silent", "python:broken_boxes:Elsewhere", "known:perfect")
    spec = EvaluateSpec(
        SCENES, models=names, scenarios="original,same_class_background,random_background", device="cpu"
    )
    run, summary = evaluate(spec, tmp_path / "run")
    broken = [note for note in summary.notes if "probably wrong" in note]
    assert [note.split(": finds none of ")[0] for note in broken] == ["python:broken_boxes:Elsewhere", names[0]]
    assert all("objects in unchanged images" in note and "docs/my-model.md" in note for note in broken)
    verdicts = holdfast.Results(run).verdicts().set_index("model")
    for name in names[:2]:
        assert verdicts.loc[name, "headline"].startswith("No verdict: finds none of "), verdicts.loc[name, "headline"]
        assert "labels or its preprocessing" in verdicts.loc[name, "small_print"]
    assert not verdicts.loc["known:perfect", "headline"].startswith("No verdict")


class _Labels:
    labels = ("disc", "sea")

    def __init__(self, how: float | None) -> None:
        self.how, self.fingerprint = how, str(how)

    def predict(self, images: list[Any]) -> Any:
        if self.how is not None:
            return [[self.how] * 2 for _ in images]
        return [[float(image[20, 20, 0] > 200), float(image[0, 0, 2] > 150)] for image in images]


def test_a_model_of_several_labels_that_tells_nothing_apart_is_called_broken(tmp_path: Path) -> None:
    lines = ["path,label"]
    for number in range(48):
        disc, sea = number % 2 == 0, number % 4 < 2
        picture = np.full((40, 40, 3), (200, 40, 40) if sea else (90, 90, 90), np.uint8)  # BGR
        cv2.circle(picture, (20, 20), 8, (0, 0, 250) if disc else (0, 250, 0), -1)
        cv2.imwrite(str(tmp_path / f"{number}.png"), picture)
        lines.append(f"{number}.png,{'; '.join(name for name, there in (('disc', disc), ('sea', sea)) if there)}")
    (tmp_path / "list.csv").write_text("\n".join(line for line in lines if not line.endswith(",")))
    models = {"never": _Labels(0.1), "always": _Labels(0.9), "fine": _Labels(None)}
    names = [holdfast.models.live.keep(model, name) for name, model in models.items()]
    spec = EvaluateSpec(f"manifest:{tmp_path / 'list.csv'}?separator=;", models=tuple(names), scenarios="original")
    _, summary = evaluate(spec, tmp_path / "run")
    broken = {note.partition(":")[0]: note for note in summary.notes if "probably wrong" in note}
    assert set(broken) == {"never", "always"}
    assert "finds none of 48 labels that unchanged images have" in broken["never"]
    assert "no better than guessing" in broken["always"]


class _Blank:
    name, fingerprint, labels = "blank", "1", LabelSpace(("background", *CLASSES))

    def segment(self, images: list[np.ndarray]) -> list[np.ndarray]:
        return [np.zeros(image.shape[:2], np.uint8) for image in images]


def test_a_segmenter_that_marks_nothing_is_called_broken(tmp_path: Path) -> None:
    if "blank" not in registry.segmenters:
        registry.segmenters.register("blank", lambda name, *, device: _Blank(), summary="for this test")
    photos = make_photos(tmp_path / "photos")
    _, summary = segment(
        SegmentSpec(str(photos), models=("blank:x",), scenarios="original", device="cpu"), tmp_path / "run"
    )
    (note,) = [note for note in summary.notes if "probably wrong" in note]
    assert note.startswith("blank: marks a pixel of none of 12 objects in unchanged images; ")


def test_few_or_some_right_answers_are_no_reason() -> None:
    def said(right: int, count: int) -> str:
        return too_few(right, count, finds="finds", what="objects")

    assert not said(0, 11) and said(0, 12) == "finds none of 12 objects"
    assert not said(1, 50) and not said(5, 200) and said(3, 500) == "finds 3 of 500 objects"
    rng = np.random.default_rng(0)  # a detector that finds a tenth is called broken in fewer than 1 of 1,000 runs
    assert sum(bool(said(int(found), 100)) for found in rng.binomial(100, 0.1, 4000)) < 4
