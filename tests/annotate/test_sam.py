from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage
from safetensors.numpy import load_file, save_file
from tiny_sam import SIDE, write_sam, write_sam2

from holdfast.annotate import load_annotator, load_guided
from holdfast.annotate.sam import Sam
from holdfast.core.errors import SampleError, UserError
from holdfast.core.protocols import GuidedAnnotator
from holdfast.core.types import Image
from holdfast.pipeline.mask import MaskSpec, make_masks
from holdfast.registry import annotators
from web_server import serving

SIZES = ((64, 64), (50, 90), (90, 50), (33, 200), (300, 41), (7, 5), (1, 1), (640, 480))
KINDS = ("sam", "sam2", "sam2_video")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from transformers.utils import logging

    logging.disable_progress_bar()
    root = tmp_path_factory.mktemp("sams")
    return {
        "sam": write_sam(root / "sam"),
        "sam2": write_sam2(root / "sam2"),
        "sam2_video": write_sam2(root / "sam2_video", video=True),
    }


@pytest.fixture(params=KINDS)
def sam(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Iterator[Sam]:

    loaded = load_guided(f"sam:{folders[request.param]}?device=cpu")
    assert isinstance(loaded, Sam)
    yield loaded


def picture(height: int = 50, width: int = 90, seed: int = 0) -> Image:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def reference(sam: Sam, image: Image, box: Any, inside: Any, outside: Any) -> tuple[np.ndarray, float]:
    """The same by transformers' own processor, on the image and the prompts together."""
    import torch

    points, labels = [*inside, *outside], [1] * len(inside) + [0] * len(outside)
    prompts: dict[str, Any] = {}
    deep = type(sam.model).__name__ == "Sam2Model"  # its processor wants one more level for several objects
    if points:
        prompts["input_points"] = [[[list(one) for one in points]]] if deep else [[list(one) for one in points]]
        prompts["input_labels"] = [[labels]] if deep else [labels]
    if box is not None:
        prompts["input_boxes"] = [[list(box)]]
    inputs = sam.processor(images=PillowImage.fromarray(image), return_tensors="pt", **prompts)
    sizes = {key: inputs.pop(key) for key in ("original_sizes", "reshaped_input_sizes") if key in inputs}
    with torch.no_grad():
        answer = sam.model(**inputs)
    best = int(answer.iou_scores[0, 0].argmax())
    masks = sam.processor.post_process_masks(answer.pred_masks, **sizes)
    return masks[0][0, best].numpy(), float(answer.iou_scores[0, 0, best])


@pytest.mark.parametrize("size", SIZES)
def test_masks_are_those_of_transformers(sam: Sam, size: tuple[int, int]) -> None:
    height, width = size
    image = picture(height, width)
    embedding = sam.embed(image)
    rng = np.random.default_rng(1)
    box = (0, 0, width - 1, height - 1)
    for count in range(4):
        inside = [(int(rng.integers(width)), int(rng.integers(height))) for _ in range(count)]
        outside = [(x, height - 1 - y) for x, y in inside if y != height - 1 - y]
        outside = [one for one in outside if one not in inside]
        for drawn in (box, None) if inside else (box,):
            found = sam.guided(embedding, box=drawn, inside=inside, outside=outside)
            mask, overlap = reference(sam, image, drawn, inside, outside)
            assert found.mask.shape == size
            assert (found.mask == mask).all()
            if min(size) > 1:
                assert 0.02 < mask.mean() < 0.98  # neither nothing nor everything, which would be easily equal
                assert found.confidence == pytest.approx(min(max(overlap, 0), 1), abs=1e-5)


def test_the_encoder_runs_once_an_image(sam: Sam) -> None:
    calls = []
    handle = sam.model.vision_encoder.register_forward_hook(lambda *_: calls.append(1))
    try:
        embedding = sam.embed(picture())
        first = sam.guided(embedding, box=(5, 5, 60, 40))
        second = sam.guided(embedding, box=(5, 5, 60, 40), inside=[(20, 20)])
        third = sam.guided(embedding, inside=[(80, 10)], outside=[(20, 20)])
    finally:
        handle.remove()
    assert len(calls) == 1
    assert (first.mask != second.mask).mean() > 0.01
    assert (second.mask != third.mask).mean() > 0.01


def test_points_and_labels_reach_the_model(sam: Sam) -> None:
    embedding = sam.embed(picture())
    plain = sam.guided(embedding, inside=[(20, 20), (70, 30)])
    moved = sam.guided(embedding, inside=[(20, 20), (30, 30)])
    other = sam.guided(embedding, inside=[(20, 20)], outside=[(70, 30)])
    assert len({plain.confidence, moved.confidence, other.confidence}) == 3


def test_it_is_a_mask_maker_without_guidance(sam: Sam) -> None:
    image = picture()
    before = image.copy()
    found = sam.propose(image)
    assert found.mask.shape == image.shape[:2]
    assert found.mask.dtype == np.bool_
    assert 0 <= found.confidence <= 1
    assert found.mask.any() or found.confidence == 0
    assert (image == before).all()
    again = pickle.loads(pickle.dumps(sam)).propose(image)
    assert (again.mask == found.mask).all()
    flat = sam.propose(np.full((30, 40, 3), 128, np.uint8))
    assert not flat.mask.any()
    assert flat.confidence == 0


def test_the_best_of_the_grid_wins(folders: dict[str, Path]) -> None:
    # Weights are random, so all candidates are made up: logits are set by hand, each point its own square.
    import torch

    sam = load_annotator(f"sam:{folders['sam2']}?device=cpu&points=3")
    assert isinstance(sam, Sam)
    logits, overlaps = torch.full((9, 3, 16, 16), -9.0), torch.full((9, 3), 0.9)
    logits[:, :, 4:12, 4:12] = 9.0  # whole, of a plausible size
    logits[5, 1, 4:12, 4:12] = 0.5  # unstable
    overlaps[5, 1] = 1.0
    logits[6, 0] = 9.0  # all of the image
    overlaps[6, 0] = 1.0
    overlaps[7, 2] = 0.95  # the best of the good ones, and somewhere else
    logits[7, 2] = -9.0
    logits[7, 2, 2:10, 2:10] = 9.0
    seen = {}

    def decode(embedding: Any, points: Any, labels: Any, boxes: Any) -> Any:
        seen.update(points=points, labels=labels, boxes=boxes)
        return logits, overlaps

    sam._decode = decode  # type: ignore[method-assign]
    found = sam.propose(picture(160, 160))
    expected = np.zeros((160, 160), np.bool_)
    expected[20:100, 20:100] = True
    assert (found.mask != expected).mean() < 0.02
    assert found.confidence == pytest.approx(0.95)
    assert seen["boxes"] is None
    assert [point for (point,) in seen["points"]][:3] == [(15.9, 15.9), (79.5, 15.9), (143.1, 15.9)]


def test_padding_is_no_part_of_the_picture(folders: dict[str, Path]) -> None:
    # SAM sees 160 × 40 as 64 × 16 pixels of 64 × 64: what its masks say below means nothing.
    import torch

    sam = load_annotator(f"sam:{folders['sam']}?device=cpu&points=1")
    assert isinstance(sam, Sam)
    logits = torch.full((1, 3, SIDE // 2, SIDE // 2), -9.0)
    logits[0, 0, 8:] = 9.0  # the padding only
    logits[0, 1, 2:6, 8:24] = 9.0
    sam._decode = lambda *_: (logits, torch.tensor([[1.0, 0.8, 0.5]]))  # type: ignore[method-assign]
    found = sam.propose(picture(40, 160))
    expected = np.zeros((40, 160), np.bool_)
    expected[10:30, 40:120] = True
    assert (found.mask != expected).mean() < 0.05
    assert found.confidence == pytest.approx(0.8)


def test_images_too_narrow_are_a_matter_of_that_image(folders: dict[str, Path]) -> None:
    with pytest.raises(SampleError, match="too narrow"):
        load_annotator(f"sam:{folders['sam']}").propose(picture(1, 3000))
    assert load_annotator(f"sam:{folders['sam2']}").propose(picture(1, 3000)).mask.shape == (1, 3000)


def test_guidance_is_checked(sam: Sam) -> None:
    embedding = sam.embed(picture())
    with pytest.raises(UserError, match="draw a box"):
        sam.guided(embedding)
    with pytest.raises(UserError, match="the point 200, 3 must be in the image of 90 × 50 pixels"):
        sam.guided(embedding, inside=[(200, 3)])


def test_fingerprints_follow_weights_and_options_not_folders(folders: dict[str, Path], tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(folders["sam"], moved)
    plain, copy = load_annotator(f"sam:{folders['sam']}"), load_annotator(f"sam:{moved}")
    assert plain.name == "sam:sam"
    assert copy.name == "sam:moved"
    assert plain.fingerprint == copy.fingerprint
    assert load_annotator(f"sam:{moved}?points=4").name == "sam:moved?points=4"
    assert load_annotator(f"sam:{moved}?points=4").fingerprint != plain.fingerprint
    weights = load_file(moved / "model.safetensors")
    weights["mask_decoder.iou_token.weight"] = weights["mask_decoder.iou_token.weight"] + 0.1
    save_file(weights, moved / "model.safetensors", metadata={"format": "pt"})
    assert load_annotator(f"sam:{moved}").fingerprint != plain.fingerprint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sam", "sam:NAME-OR-FOLDER"),
        ("sam:", "sam:NAME-OR-FOLDER"),
        ("sam:{sam}?points=0", "from 1 to 32"),
        ("sam:{sam}?points=two", "from 1 to 32"),
        ("sam:{sam}?point=4", "did you mean points"),
        ("sam:{sam}?device=abacus", "no device called 'abacus'"),
        ("sam:{empty}", "is not a SAM that can be loaded"),
        ("sam:{other}", "takes SAM and SAM 2"),
        ("sam:{pickled}", "cannot be loaded"),
        ("sam:{cut}", "lacks weights"),
    ],
)
def test_mistakes_say_what_to_do(folders: dict[str, Path], tmp_path: Path, text: str, says: str) -> None:
    for name in ("empty", "other", "pickled", "cut"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"model_type": "vit"}))
    for name in ("pickled", "cut"):
        for file in ("config.json", "processor_config.json"):
            shutil.copy(folders["sam"] / file, tmp_path / name)
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"code")
    weights = load_file(folders["sam"] / "model.safetensors")
    del weights["mask_decoder.iou_token.weight"]
    save_file(weights, tmp_path / "cut" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=says):
        load_annotator(text.format(sam=folders["sam"], **{path.name: path for path in tmp_path.iterdir()}))


def test_a_hub_out_of_reach_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="give a local folder"):
        load_annotator("sam:nobody/no-such-sam@v1")


def test_holdfast_mask_takes_it(folders: dict[str, Path], photos: Path, tmp_path: Path) -> None:
    spec = MaskSpec(data=str(photos / "images"), annotator=f"sam:{folders['sam2']}?device=cpu", workers=1)
    summary, rows = make_masks(spec, tmp_path / "masks")
    assert summary.rows == 12
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["annotator"] for row in rows} == {"sam:sam2"}
    assert (tmp_path / "masks" / rows[0]["path"]).is_file()


def test_every_mask_maker_keeps_the_contract(folders: dict[str, Path]) -> None:
    makers = {entry.name: entry.name for entry in annotators.entries()} | {"sam": f"sam:{folders['sam2']}?device=cpu"}
    assert {"grabcut", "sam", "threshold", "u2netp"} <= set(makers)
    image = picture(40, 30)
    for text in makers.values():
        maker = load_annotator(text)
        assert maker.name and len(maker.fingerprint) == 64
        found = maker.propose(image)
        assert found.mask.shape == (40, 30) and found.mask.dtype == np.bool_ and 0 <= found.confidence <= 1
        if isinstance(maker, GuidedAnnotator):
            led = maker.guided(maker.embed(image), box=(5, 5, 25, 30), inside=[(15, 15)], outside=[(2, 2)])
            assert led.mask.shape == (40, 30) and led.mask.dtype == np.bool_ and 0 <= led.confidence <= 1


def test_pages_find_a_folder_of_weights_from_elsewhere(
    folders: dict[str, Path], photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast_people.web.services.mask_editing import take_in

    (tmp_path / "weights").symlink_to(folders["sam"])
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path / "state") as server:
        data, masks = str(photos / "images"), tmp_path / "masks"
        take_in(server.state, data, masks=masks, guide="sam:weights", progress=lambda *_: None)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        client = server.client()
        rough = client.post("/api/annotate/masks/1/rough", json={"inside": [[20, 20]]})
        assert rough.status_code == 200, rough.text
        mask = {key: rough.json()[key] for key in ("height", "width", "counts")}
        newest = client.get("/api/annotate/masks/1").json()["version"]
        client.put("/api/annotate/masks/1", json={"base": newest, "guided": True, **mask}).raise_for_status()
        # Where on the server it is is not for everybody.
        assert client.get("/api/annotate/sets/1").json()["guide"] == "sam:weights"
        assert client.get("/api/annotate/masks/1/versions").json()[0]["how"] == "drawn with sam:weights"
