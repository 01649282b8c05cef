"""Segmenters by ``onnx:`` and ``python:``: the layouts of MMSegmentation's and Keras' exports, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import holdfast
from holdfast.core.errors import UserError
from holdfast.core.protocols import Segmenter
from holdfast.models import load_segmenter
from shapes import CLASSES, make_photos

NAMES = ("background", "disc", "square", "cross")
WEIGHTS = np.float32([[-0.1, -0.1, -0.1], [1, -0.7, -0.7], [-0.7, 1, -0.7], [-0.7, -0.7, 1]])
"""Rows: background and the classes of the drawn shapes, which are red, green and blue."""


def save_segmenter(file: Path, how: str, *, kind: int = 1, side: int | str = 32, names: bool = True) -> Path:
    """A 1 × 1 convolution: ``first`` as PyTorch exports it, ``last`` as Keras does, ``maps`` as MMSegmentation does."""
    pixels = [1 if how == "maps" else "n", 3, side, side]
    nodes = [helper.make_node("Cast", ["pixels"], ["numbers"], to=1)]
    entry = "numbers"
    if how == "last":
        pixels = ["n", side, side, 3]
        nodes.append(helper.make_node("Transpose", ["numbers"], ["turned"], perm=[0, 3, 1, 2]))
        entry = "turned"
    nodes.append(helper.make_node("Conv", [entry, "weights"], ["planes"]))
    if how == "last":
        nodes.append(helper.make_node("Transpose", ["planes"], ["scores"], perm=[0, 2, 3, 1]))
    elif how == "maps":
        nodes.append(helper.make_node("ArgMax", ["planes"], ["scores"], axis=1, keepdims=1))
    else:
        nodes.append(helper.make_node("Identity", ["planes"], ["scores"]))
    output = helper.make_tensor_value_info("scores", 7 if how == "maps" else 1, [None] * 4)
    weights = numpy_helper.from_array(WEIGHTS[:, :, None, None], "weights")
    graph = helper.make_graph(
        nodes, "tiny", [helper.make_tensor_value_info("pixels", kind, pixels)], [output], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if names:
        helper.set_model_props(model, {"classes": json.dumps(NAMES)})
    onnx.save(model, file)
    return file


def picture(height: int = 32, width: int = 32) -> np.ndarray:
    image = np.full((height, width, 3), 15, np.uint8)
    image[8:20, 4:16] = (220, 30, 30)
    image[20:30, 20:30] = (30, 30, 220)
    return image


@pytest.mark.parametrize(("how", "kind"), [("first", 1), ("last", 1), ("maps", 1), ("last", 2)])
def test_exports_of_three_libraries_answer_alike(how: str, kind: int, tmp_path: Path) -> None:
    file = save_segmenter(tmp_path / "net.onnx", how, kind=kind)
    options = "" if kind == 2 else "?mean=0&std=1"
    segmenter = load_segmenter(f"onnx:{file}{options}", device="cpu")
    assert isinstance(segmenter, Segmenter) and segmenter.labels.names == NAMES
    scores = picture().astype(np.float32) @ WEIGHTS.T
    (answer, again) = segmenter.segment([picture(), picture()])
    assert np.array_equal(answer, scores.argmax(-1)) and np.array_equal(answer, again)
    assert answer[10, 10] == 1 and answer[25, 25] == 3 and answer[0, 0] == 0
    assert segmenter.segment([picture(40, 64)])[0].shape == (40, 64)
    assert segmenter.fingerprint != load_segmenter(f"onnx:{file}?mean=0.5&std=1", device="cpu").fingerprint or kind == 2


def test_names_of_classes_come_from_a_file(tmp_path: Path) -> None:
    file = save_segmenter(tmp_path / "net.onnx", "maps", names=False)
    with pytest.raises(UserError, match="labels=FILE"):
        load_segmenter(f"onnx:{file}", device="cpu")
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    assert load_segmenter(f"onnx:{file}?labels={tmp_path / 'names.txt'}", device="cpu").labels.names == NAMES
    (tmp_path / "few.txt").write_text("background\ndisc")
    few = load_segmenter(f"onnx:{file}?labels={tmp_path / 'few.txt'}&mean=0&std=1", device="cpu")
    with pytest.raises(UserError, match="has 2 labels"):
        few.segment([picture()])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [("?size=48", "cannot be met"), ("?answers=words", "kind of answers"), ("?answers=classes", "not class maps")],
)
def test_mistakes_of_a_name(options: str, sentence: str, tmp_path: Path) -> None:
    file = save_segmenter(tmp_path / "net.onnx", "first")
    with pytest.raises(UserError, match=sentence):
        load_segmenter(f"onnx:{file}{options}", device="cpu")


CODE = """
import numpy as np
WEIGHTS = np.float32({weights})
labels = {names}
class Maps:
    labels = {names}
    def segment(self, images):
        return [(np.float32(image) @ WEIGHTS.T).argmax(-1) for image in images]
class Scores(Maps):
    def segment(self, images):
        return [np.moveaxis(np.float32(image) @ WEIGHTS.T, -1, 0) for image in images]
class Nameless:
    def segment(self, images):
        return []
class Short(Maps):
    def segment(self, images):
        return []
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mysegmenters.py").write_text(CODE.format(weights=WEIGHTS.tolist(), names=list(NAMES)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "python:mysegmenters"


def test_a_callable_may_answer_with_maps_or_scores(module: str) -> None:
    for name in ("Maps", "Scores"):
        (answer,) = load_segmenter(f"{module}:{name}", device="cpu").segment([picture()])
        assert answer.dtype == np.uint8 and answer[10, 10] == 1 and answer[0, 0] == 0
    with pytest.raises(UserError, match="needs a labels attribute"):
        load_segmenter(f"{module}:Nameless", device="cpu")
    with pytest.raises(UserError, match="0 maps for 1 images"):
        load_segmenter(f"{module}:Short", device="cpu").segment([picture()])


def test_the_verb_takes_both(module: str, tmp_path: Path) -> None:
    data = make_photos(tmp_path / "photos", 2)
    file = save_segmenter(tmp_path / "net.onnx", "first", side=64)
    run = holdfast.segment(
        data, models=[f"{module}:Maps", f"onnx:{file}?mean=0&std=1"], scenarios="original,grey", out=tmp_path / "run",
        size=64, device="cpu",
    )  # fmt: skip
    table = run.segments()
    assert len(table) == 4 and set(table["condition"]) == {"original", "grey"}
    grey = table[table["condition"] == "grey"]["miou"]  # behind it, colour alone tells the objects
    assert (grey > 0.9).all() and set(CLASSES) <= set(NAMES)
