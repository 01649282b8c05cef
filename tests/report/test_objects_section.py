"""The page of a run of detectors: verdict, numbers, boxes."""

from __future__ import annotations

import io
import re
from collections.abc import Collection
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from holdfast.reports import build
from holdfast.reports.objects import drawing
from holdfast.reports.objects.drawing import STYLES, DrawnBox, boxes_of, with_boxes
from holdfast.reports.objects.evidence import detector_tables
from holdfast.stats.objects.answers import detector_answers
from holdfast.store import Run
from made_detections import Planted, detector_run, made_detections

TRUTHS = {
    "original": Planted(0.95, 0.2),
    "same_class_background": Planted(0.9, 0.3, donors=30),
    "random_background": Planted(0.5, 1.0, wrong=0.3, donors=30),
    "only_background": Planted(0.0, 1.0),
    "grey": Planted(0.85, 0.2, faint=True),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    tables = [
        made_detections(TRUTHS, photos=40, model="made:leaning"),
        made_detections(TRUTHS | {"random_background": Planted(0.93, 0.3, donors=30)}, photos=40, model="made:steady"),
    ]
    return detector_run(tmp_path_factory.mktemp("runs") / "hall", *tables)


def drawn_pictures(run: Run, source_ids: Collection[str], /, *, size: int = 160) -> dict[tuple[str, str], bytes]:
    """Draw what the boxes say, on grounds that differ by condition."""
    objects = detector_tables([run])[0].to_pandas()
    pictures = {}
    grounds = {name: tuple(np.random.default_rng(at).integers(90, 220, 3)) for at, name in enumerate(TRUTHS)}
    for (sample, condition), rows in objects[objects["source_id"].isin(source_ids)].groupby(
        ["sample_id", "condition"], observed=True
    ):
        image = Image.new("RGB", (640, 480), tuple(int(value) for value in grounds[condition]))
        canvas = ImageDraw.Draw(image)
        for row in rows[rows["model"] == rows["model"].iloc[0]].to_dict("records"):
            if condition != "only_background":
                canvas.ellipse([row["x1"], row["y1"], row["x2"], row["y2"]], fill=(60, 110, 60))
        out = io.BytesIO()
        image.save(out, "JPEG")
        pictures[sample, condition] = out.getvalue()
    return pictures


def test_the_page_says_what_was_planted(run: Run, tmp_path: Path) -> None:
    page = build([run], tmp_path / "report", pictures=drawn_pictures, resamples=200)
    text = unescape(re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf8").split("<script")[0]))
    assert "Do the detectors rely on the background?" in text and "Relies on the background" in text
    assert "random background" in text and "Lost objects, the worst first" in text
    assert "✗ and a dashed line: lost" in text and "as pycocotools computes it" in text
    numbers = (tmp_path / "report" / "tables" / "detector_numbers.csv").read_text(encoding="utf8")
    assert numbers.count("\n") == 1 + 2 * len(TRUTHS)
    assert (tmp_path / "report" / "figures" / "recall.svg").is_file()
    assert page.stat().st_size < 8_000_000


def test_a_tile_is_lost_only_where_an_object_is() -> None:
    box = {kind: DrawnBox(kind, (0, 0, 9, 9)) for kind in STYLES}
    found, lost, alarm, wrong = (box[kind] for kind in ("found", "lost", "false alarm", "wrong class"))
    for boxes, sign, kind in (
        ([found], "✓", "right"), ([found, alarm], "!", "none"), ([found, lost], "✗", "wrong"),
        ([wrong], "≠", "wrong"), ([], "✓", "right"),
    ):  # fmt: skip
        answer = drawing._said("m", boxes, "grey")
        assert (answer.sign, answer.kind) == (sign, kind), boxes
    assert drawing._said("m", [found, alarm], "grey").said == "1 of 1 found, 1 false alarm"
    assert drawing._said("m", [], "only_background").sign == "○"


def test_without_pictures_the_numbers_stand_alone(run: Run, tmp_path: Path) -> None:
    page = build([run], tmp_path / "report", resamples=50).read_text(encoding="utf8")
    assert "the images are not at hand" in page and "data:image/jpeg" not in page


def test_boxes_tell_what_happened(run: Run) -> None:
    answers = detector_answers(*detector_tables([run]))
    for picture in range(0, len(answers.pictures), 7):
        boxes = boxes_of(answers, picture)
        kinds = [box.outcome for box in boxes]
        row = answers.pictures.iloc[picture]
        assert len(kinds) - kinds.count("false alarm") == row["n_objects"]
        # a wrong class is a false alarm in the table, and one box with another sign in the image
        assert kinds.count("false alarm") + kinds.count("wrong class") == row["false_alarms"]


def test_line_and_sign_differ_without_colour() -> None:
    """In grey, the four outcomes are four unlike images."""
    out = io.BytesIO()
    Image.new("RGB", (200, 150), "#888").save(out, "JPEG")
    drawn = {
        kind: with_boxes(out.getvalue(), [DrawnBox(kind, (30, 30, 160, 120))], 200)
        for kind in ("found", "lost", "false alarm", "wrong class")
    }
    grey = {
        kind: np.asarray(Image.open(io.BytesIO(jpeg)).convert("L"), float)[100:, :] > 130
        for kind, jpeg in drawn.items()
    }
    kinds = list(grey)
    for place, first in enumerate(kinds):
        for second in kinds[place + 1 :]:
            assert (grey[first] != grey[second]).sum() > 40, (first, second)


def test_bytes_that_are_no_picture_and_boxes_outside_it() -> None:
    assert with_boxes(b"", [], 100) == b"" and with_boxes(b"no jpeg", [], 100) == b""
    out = io.BytesIO()
    Image.new("RGB", (50, 40)).save(out, "JPEG")
    outside = DrawnBox("lost", (200, 200, 300, 300))
    assert with_boxes(out.getvalue(), [outside], 100, around=outside.corners)
