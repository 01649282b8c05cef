"""``eval --fast`` with detectors makes the rows of the standard evaluator, within a stated tolerance."""

import json
from dataclasses import replace

import cv2
import numpy as np
import pytest

import holdfast
from holdfast.models import load_detector
from holdfast.models.detectors.batched import letterboxed, letterboxed_tensors
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.tasks import DETECTION
from holdfast.store import Run

PIXELS, SCORE = 0.5, 0.02
"""How far boxes and scores of the two ways may be apart (docs/detectors.md)."""


def tables(run):
    return {name: Run(run).details(name).rows().to_pandas() for name in DETECTION.tables}


def both_ways(data, models, folder, scenarios="static", **more):
    for fast in (False, True):
        out = folder / ("fast" if fast else "exact")
        holdfast.evaluate(data, models=models, scenarios=scenarios, out=out, fast=fast, device="cpu", **more)
    keys = ["model", "sample_id", "condition"]
    frames = [Run(folder / name).rows().to_pandas() for name in ("exact", "fast")]
    frames = [frame.astype(dict.fromkeys(keys, str)).set_index(keys).sort_index() for frame in frames]
    assert frames[0].index.equals(frames[1].index)
    for column in ("status", "error", "donor_id", "label", "variant", "parameters"):
        assert frames[0][column].astype(str).equals(frames[1][column].astype(str)), column
    return [tables(folder / name) for name in ("exact", "fast")], frames


def sure_boxes(detections, score):
    """Return the boxes above a score by row, sorted: two ways may order equal scores differently."""
    keys = ["model", "sample_id", "condition"]
    sure = detections[detections.score >= score].sort_values([*keys, "score", "x1"], ascending=False)
    return dict(list(sure.groupby(keys, observed=True)))


def test_the_embedded_detectors_answer_alike_and_a_second_command_makes_nothing(tmp_path):
    data, models = "diorama:test?n=6&objects=0..3&size=96", ["embedded:boxes_rho0", "embedded:boxes_rho95"]
    scenarios = "static,only_background,object_removed"
    (exact, fast), frames = both_ways(data, models, tmp_path, scenarios, threshold=0.3)
    by_device = ~frames[0].index.get_level_values(2).isin(["only_background", "object_removed"])
    assert not set(frames[0].row_id[by_device]) & set(frames[1].row_id), "they are never taken for each other"
    assert set(frames[0].row_id[~by_device]) <= set(frames[1].row_id)
    keys = ["model", "sample_id", "condition", "object_id"]
    truth = [each["objects"].astype(dict.fromkeys(keys, str)).set_index(keys).sort_index() for each in (exact, fast)]
    assert truth[0].index.equals(truth[1].index) and truth[0].status.astype(str).equals(truth[1].status.astype(str))
    asked = truth[0].found.notna()
    assert (truth[0].found[asked] == truth[1].found[asked]).mean() > 0.99
    found = asked & (truth[0].found == True) & (truth[1].found == True)  # noqa: E712  (null is neither)
    assert (truth[0].iou[found] - truth[1].iou[found]).abs().max() < 0.1
    assert (truth[0].score[found] - truth[1].score[found]).abs().quantile(0.98) < SCORE
    before = len(Run(tmp_path / "fast").rows())
    holdfast.evaluate(
        data, models=models, scenarios=scenarios, out=tmp_path / "fast", fast=True, device="cpu", threshold=0.3
    )
    assert len(Run(tmp_path / "fast").rows()) == before
    assert json.loads((tmp_path / "fast" / "spec.json").read_text())["fast"] is True


@pytest.fixture
def two_tiny_detectors(tmp_path):
    """Return the names of a Faster R-CNN on a small backbone's weights and of a tiny YOLOS, both untrained."""
    import torch
    import transformers
    from safetensors.torch import save_file

    from holdfast.models.detectors.torchvision_detectors import build

    torch.manual_seed(0)
    save_file(build("fasterrcnn_mobilenet_v3_large_320_fpn", 3).state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "names.txt").write_text("red\nblue\n")
    config = transformers.YolosConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=[64, 64],
        patch_size=16, num_detection_tokens=6, num_labels=2, use_mid_position_embeddings=False,
    )  # fmt: skip
    config.id2label = {0: "red", 1: "blue"}
    transformers.YolosForObjectDetection(config).save_pretrained(tmp_path / "yolos")
    transformers.YolosImageProcessor(size={"height": 64, "width": 64}).save_pretrained(tmp_path / "yolos")
    weights = f"fasterrcnn_mobilenet_v3_large_320_fpn@{tmp_path / 'w.safetensors'}"
    return [f"torchvision:{weights}?labels={tmp_path / 'names.txt'}", f"hf:{tmp_path / 'yolos'}"]


def test_photos_of_several_sizes_and_broken_ones(tmp_path, two_tiny_detectors):
    folder, rng = tmp_path / "photos", np.random.default_rng(1)
    folder.mkdir()
    lines = ["image,label,x1,y1,x2,y2"]
    for number, (height, width) in enumerate([(60, 80), (60, 80), (90, 64), (60, 80)]):
        cv2.imwrite(str(folder / f"{number}.png"), rng.integers(0, 255, (height, width, 3), np.uint8))
        lines.append(f"{number}.png,{'red' if number % 2 else 'blue'},10,12,40,44")
    (folder / "broken.png").write_bytes(b"nothing")
    (tmp_path / "boxes.csv").write_text("\n".join([*lines, "broken.png,red,1,1,9,9", "3.png,red,50,50,50,60"]))
    (exact, fast), frames = both_ways(
        str(folder), two_tiny_detectors, tmp_path, "original,grey,blur_background,random_background",
        boxes=str(tmp_path / "boxes.csv"), threshold=0.1, box_masks="grabcut:",
    )  # fmt: skip
    assert (frames[1].status == "error").any() and (frames[1].status == "ok").any()
    for name in ("objects", "images"):
        assert set(exact[name].status) == set(fast[name].status)
    first, second = (sure_boxes(each["detections"], 0.05) for each in (exact, fast))
    assert len(first) > 10 and set(first) == set(second)
    same_bytes = [key for key in first if key[2] in ("original", "grey")]
    for key in same_bytes:
        boxes = [each[key][["x1", "y1", "x2", "y2"]].to_numpy() for each in (first, second)]
        assert len(boxes[0]) == len(boxes[1]) and np.abs(boxes[0] - boxes[1]).max() < PIXELS
        assert np.abs(first[key].score.to_numpy() - second[key].score.to_numpy()).max() < SCORE


def test_what_cannot_take_tensors_uses_the_standard_evaluator(tmp_path):
    spec = EvaluateSpec("diorama:test?n=3&objects=2&size=48", models=("known:perfect",), scenarios="original,grey")
    _, summary = evaluate(replace(spec, fast=True), tmp_path / "run")
    assert "known:perfect cannot use --fast; used the standard evaluator" in summary.notes
    objects = tables(tmp_path / "run")["objects"]
    assert objects[~objects.crowd & (objects.status == "ok")].found.all()


@pytest.mark.parametrize("shape", [(50, 100), (200, 128), (64, 64), (300, 512)])
def test_letterboxes_of_both_ways_hold_the_same_pixels(shape):
    import torch

    image = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 255, (*shape, 3), np.uint8), (0, 0), 3)
    placed, frame = letterboxed(image, (128, 128), centred=True)
    tensors, same_frame = letterboxed_tensors(torch.from_numpy(image).permute(2, 0, 1)[None], (128, 128), centred=True)
    apart = np.abs(placed.astype(int) - tensors[0].permute(1, 2, 0).numpy().astype(int))
    assert frame == same_frame and apart.max() <= 2


def test_memory_that_runs_out_halves_a_batch_of_tensors():
    import torch

    detector = load_detector("embedded:boxes_rho0", device="cpu")
    ask, sizes = detector.ask_tensors, []

    def small_memory(pictures):
        if len(pictures) > 3:
            raise RuntimeError("CUDA out of memory")
        sizes.append(len(pictures))
        return ask(pictures)

    detector.ask_tensors = small_memory
    assert len(detector.detect_tensors(torch.zeros((9, 3, 64, 64), dtype=torch.uint8))) == 9
    assert max(sizes) <= 3
