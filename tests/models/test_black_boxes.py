"""hf:, onnx: and python: models."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from test_model_contract import save_onnx, save_vit

from holdfast.core.errors import UserError
from holdfast.core.types import LabelSpace
from holdfast.models import load_classifier
from holdfast.models.label_spaces import probabilities
from holdfast.models.runtimes.onnx import external_files


def test_hf_predicts_as_transformers_does(photo: np.ndarray, tmp_path: Path) -> None:
    import transformers

    folder = save_vit(tmp_path / "tiny")
    classifier = load_classifier(f"hf:{folder}", device="cpu")
    assert classifier.labels == LabelSpace(("cat", "dog", "fox"))
    assert classifier.name == "hf:tiny"
    resized = np.asarray(PIL.Image.fromarray(photo).resize((32, 32), PIL.Image.Resampling.BILINEAR), dtype=np.float32)
    by_hand = torch.from_numpy((resized / 255 - 0.5) / 0.5).permute(2, 0, 1)[None]
    model = transformers.ViTForImageClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        expected = model(pixel_values=by_hand).logits.softmax(1).numpy()
    np.testing.assert_allclose(classifier.predict([photo]), expected, atol=1e-3)


def test_hf_crops_like_its_processor(photo: np.ndarray, tmp_path: Path) -> None:
    import transformers

    folder = save_vit(tmp_path / "clip")
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32})
    processor.save_pretrained(folder)
    classifier = load_classifier(f"hf:{folder}", device="cpu")
    assert classifier.preprocessing.crops_centre
    assert classifier.preprocessing.size == (32, 32)
    assert classifier.prepare(photo).shape == (3, 32, 32)


def test_hf_mistakes_are_sentences(tmp_path: Path) -> None:
    import transformers

    folder = save_vit(tmp_path / "headless")
    transformers.ViTModel.from_pretrained(folder, add_pooling_layer=False).save_pretrained(folder)
    with pytest.raises(UserError, match="no trained classifier: classifier"):
        load_classifier(f"hf:{folder}", device="cpu")
    pickled = save_vit(tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"hf:pickled cannot be loaded.*safetensors"):
        load_classifier(f"hf:{pickled}", device="cpu")
    text = tmp_path / "text"
    tiny = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(**tiny, vocab_size=30)).save_pretrained(text)
    transformers.ViTImageProcessor().save_pretrained(text)
    with pytest.raises(UserError, match="not an image classifier"):
        load_classifier(f"hf:{text}", device="cpu")


def test_hf_code_in_a_folder_is_not_run(tmp_path: Path) -> None:
    folder = save_vit(tmp_path / "coded")
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.Evil", "AutoModelForImageClassification": "evil.E"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n")
    with pytest.raises(UserError):
        load_classifier(f"hf:{folder}", device="cpu")
    assert not (tmp_path / "ran").exists()


def onnx_by_hand(photo: np.ndarray, side: int, *, mean: float, std: float) -> np.ndarray:
    resize = int(side / 0.875)
    scaled = PIL.Image.fromarray(photo).resize((int(resize * 500 / 375), resize), PIL.Image.Resampling.BILINEAR)
    left, top = round((scaled.width - side) / 2), round((resize - side) / 2)
    pixels = np.asarray(scaled.crop((left, top, left + side, top + side)), dtype=np.float64) / 255
    return (pixels - mean) / std


def softmax(scores: np.ndarray) -> np.ndarray:
    exponential = np.exp(scores - scores.max())
    return exponential / exponential.sum()


@pytest.mark.parametrize(
    ("shape", "kind", "softmaxed"),
    [(("n", 3, 8, 8), 1, False), ((1, 3, 8, 8), 1, True), (("n", 8, 8, 3), 1, False), (("n", 3, 8, 8), 2, False)],
)
def test_onnx_layouts(shape: tuple, kind: int, softmaxed: bool, photo: np.ndarray, tmp_path: Path) -> None:
    file = save_onnx(tmp_path / "net.onnx", shape=shape, kind=kind, softmax=softmaxed)
    stated = "" if kind == 2 else "?mean=0.5&std=0.25"  # bytes are plain pixels
    classifier = load_classifier(f"onnx:{file}{stated}", device="cpu")
    pixels = onnx_by_hand(photo, 8, mean=0.5, std=0.25)
    if kind == 2:
        pixels = np.rint(onnx_by_hand(photo, 8, mean=0, std=1) * 255)
    flat = (pixels if shape[3] == 3 else pixels.transpose(2, 0, 1)).reshape(-1)
    weights = np.random.default_rng(0).normal(0, 0.1, (192, 4)).astype(np.float32)
    np.testing.assert_allclose(classifier.predict([photo, photo]), [softmax(flat @ weights)] * 2, atol=1e-4)
    assert classifier.name == f"onnx:net.onnx{stated}"


def test_onnx_labels_and_fingerprint(tmp_path: Path, labels_file: Path) -> None:
    import onnx

    file = save_onnx(tmp_path / "net.onnx")
    plain = load_classifier(f"onnx:{file}", device="cpu")
    assert plain.labels.names == tuple("0123")
    named = load_classifier(f"onnx:{file}?labels={labels_file}", device="cpu")
    assert named.labels.names == ("cat", "dog", "fox", "red panda")
    other = load_classifier(f"onnx:{file}?mean=0", device="cpu")
    assert len({plain.fingerprint, named.fingerprint, other.fingerprint}) == 3
    model = onnx.load(file)
    onnx.helper.set_model_props(model, {"classes": '["w", "x", "y", "z"]'})
    onnx.save(model, file)
    assert load_classifier(f"onnx:{file}", device="cpu").labels.names == tuple("wxyz")


def test_onnx_exported_from_torch(photo: np.ndarray, tmp_path: Path) -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).eval()
    file = tmp_path / "exported.onnx"
    save_exported(module, file)
    classifier = load_classifier(f"onnx:{file}", device="cpu")
    with torch.inference_mode():
        expected = module(torch.from_numpy(classifier.prepare(photo))[None]).softmax(1).numpy()
    np.testing.assert_allclose(classifier.predict([photo]), expected, atol=1e-5)


def save_exported(module: torch.nn.Module, file: Path) -> None:
    shapes = {"input": {0: torch.export.Dim("n")}}
    program = torch.onnx.export(module, (torch.zeros(2, 3, 24, 24),), dynamic_shapes=shapes, verbose=False, dynamo=True)
    program.save(file)


def test_onnx_external_weights_stay_in_the_folder(tmp_path: Path) -> None:
    import onnx

    folder = tmp_path / "inside"
    folder.mkdir()
    model = onnx.load(save_onnx(folder / "net.onnx"))
    onnx.save(model, folder / "net.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    first = load_classifier(f"onnx:{folder / 'net.onnx'}", device="cpu")
    weights = bytearray((folder / "weights.bin").read_bytes())
    weights[2] ^= 1
    (folder / "weights.bin").write_bytes(weights)
    assert load_classifier(f"onnx:{folder / 'net.onnx'}", device="cpu").fingerprint != first.fingerprint
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    with pytest.raises(UserError, match=r"needs the file weights\.bin next to it"):
        load_classifier(f"onnx:{folder / 'net.onnx'}", device="cpu")
    long = "a" * 150 + "/../"
    for location in ("../weights.bin", str(tmp_path / "weights.bin"), f"{long}../weights.bin"):
        outside = onnx.load(folder / "net.onnx", load_external_data=False)
        for entry in outside.graph.initializer[0].external_data:
            entry.value = location if entry.key == "location" else entry.value
        (folder / "outside.onnx").write_bytes(outside.SerializeToString())
        with pytest.raises(UserError, match="outside its own folder"):
            load_classifier(f"onnx:{folder / 'outside.onnx'}", device="cpu")


def test_onnx_external_weights_count_in_any_order_of_fields(tmp_path: Path) -> None:
    import onnx

    file, weights = tmp_path / "net.onnx", tmp_path / "weights.bin"
    onnx.save(onnx.load(save_onnx(file)), file, save_as_external_data=True, location=weights.name, size_threshold=0)
    key, value = b"\x0a\x08location", b"\x12\x0bweights.bin"
    content = file.read_bytes()
    assert content.count(key + value) == 1
    file.write_bytes(content.replace(key + value, value + key))  # protobuf leaves the order to the writer
    assert external_files(file) == [weights]
    fingerprints = set()
    for byte in (0, 1):
        weights.write_bytes(bytes([byte]) + weights.read_bytes()[1:])
        fingerprints.add(load_classifier(f"onnx:{file}", device="cpu").fingerprint)
    assert len(fingerprints) == 2


def test_onnx_external_weights_are_found_wherever_a_model_has_tensors(tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    def tensor(location: str, *, external: bool = True) -> onnx.TensorProto:
        (tmp_path / location).write_bytes(b"1234")
        made = onnx.TensorProto(name=location, data_type=1, dims=[1])
        for key, value in (("offset", "0"), ("location", "replaced"), ("location", location)):
            made.external_data.add(key=key, value=value)
        made.data_location = onnx.TensorProto.EXTERNAL if external else onnx.TensorProto.DEFAULT
        return made

    branch = helper.make_graph([], "branch", [], [], [tensor("in_branch")])
    nodes = [
        helper.make_node("If", ["x"], ["y"], then_branch=branch),
        helper.make_node("Constant", [], ["z"], value=tensor("in_attribute")),
    ]
    graph = helper.make_graph(nodes, "main", [], [], [tensor("in_graph"), tensor("unused", external=False)])
    graph.sparse_initializer.add(values=tensor("in_sparse_values"), indices=tensor("in_sparse_indices"))
    model = helper.make_model(graph)
    model.functions.add(name="f").node.append(helper.make_node("Constant", [], ["z"], value=tensor("in_function")))
    model.training_info.add(algorithm=helper.make_graph([], "step", [], [], [tensor("in_training")]))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    names = {path.name for path in external_files(tmp_path / "net.onnx")}
    assert names == {f"in_{place}" for place in (
        "branch", "attribute", "graph", "sparse_values", "sparse_indices", "function", "training"
    )}  # fmt: skip


@pytest.mark.parametrize("content", [b"\xff" * 40, b"\x3a\x10ab", b"\x0b\x0c", (b"\x3a\x7e" * 64)[:128], b"\x08"])
def test_onnx_bytes_that_are_no_protobuf_are_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(UserError, match=r"net\.onnx is not an ONNX model"):
        load_classifier(f"onnx:{tmp_path / 'net.onnx'}", device="cpu")


@pytest.mark.parametrize(
    ("make", "options", "sentence"),
    [
        (lambda file: file.write_text("hello"), "", "not an ONNX model"),
        (lambda file: None, "", "no ONNX file"),
        (lambda file: save_onnx(file, shape=("n", 1, 8, 8)), "", "1 channels"),
        (lambda file: save_onnx(file, shape=("n", 3)), "", "one batch of images"),
        (save_onnx, "?size=16", "takes images of 8/8"),
        (save_onnx, "?outputs=logit", "did you mean logits"),
        (save_onnx, "?labels=imagenet", "another ImageNet; it has 4"),
    ],
)
def test_onnx_mistakes_are_sentences(make, options: str, sentence: str, tmp_path: Path) -> None:
    make(tmp_path / "net.onnx")
    with pytest.raises(UserError, match=sentence):
        load_classifier(f"onnx:{tmp_path / 'net.onnx'}{options}", device="cpu")


BOXES = """
import numpy as np

def brightness(images):
    light = np.array([image.mean() / 255 for image in images])
    return np.stack([light, 1 - light], 1)

brightness.labels = ["light", "dark"]

def names(images):
    return ["Light" if image.mean() > 128 else None if image.mean() < 10 else "no idea" for image in images]

class Service:
    labels = ("light", "dark")
    fingerprint = "weights of May"

    def predict(self, images):
        for image in images:
            assert image.dtype == np.uint8 and image.flags.writeable
            image[...] = 7
        return brightness(images)

def unlabelled(images):
    return np.zeros((len(images), 2))

def shapeless(images):
    return np.zeros(len(images))

def poisoned(images):
    return np.array([[np.nan, 1.0] if image.mean() > 128 else [2.0, 1.0] for image in images])

def short(images):
    return ["light"]

shapeless.labels = poisoned.labels = short.labels = ["light", "dark"]
number = 3
"""


@pytest.fixture
def boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"boxes_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(BOXES))
    return name


LIGHT, GREY, BLACK = (np.full((6, 4, 3), value, np.uint8) for value in (255, 51, 0))


def test_python_function(boxes: str) -> None:
    classifier = load_classifier(f"python:{boxes}:brightness")
    np.testing.assert_allclose(classifier.predict([LIGHT, GREY]), [[1, 0], [0.2, 0.8]], atol=1e-6)
    assert classifier.labels.names == ("light", "dark")
    logits = load_classifier(f"python:{boxes}:brightness?outputs=logits").predict([GREY])
    np.testing.assert_allclose(logits, [softmax(np.array([0.2, 0.8]))], atol=1e-6)


def test_python_class_gets_copies_and_its_own_fingerprint(boxes: str, tmp_path: Path) -> None:
    classifier = load_classifier(f"python:{boxes}:Service")
    image = LIGHT.copy()
    classifier.predict([image])
    assert (image == 255).all()
    first = load_classifier(f"python:{boxes}:brightness").fingerprint
    source = tmp_path / f"{boxes}.py"
    source.write_text(source.read_text() + "\n# another weight\n")
    assert load_classifier(f"python:{boxes}:brightness").fingerprint != first
    assert load_classifier(f"python:{boxes}:Service").fingerprint == classifier.fingerprint


def test_python_names_become_ones(boxes: str) -> None:
    classifier = load_classifier(f"python:{boxes}:names", classes=["dark", "light"])
    assert classifier.predict([LIGHT, GREY, BLACK]).tolist() == [[0, 1], [0, 0], [0, 0]]


def test_python_working_directory_is_importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    (tmp_path / "lonely_box.py").write_text("def box(images):\n    return ['a'] * len(images)\n")
    assert load_classifier("python:lonely_box:box", classes=["a", "b"]).predict([LIGHT]).tolist() == [[1, 0]]


def test_python_nan_is_one_images_trouble(boxes: str) -> None:
    rows = load_classifier(f"python:{boxes}:poisoned").predict([LIGHT, GREY])
    assert np.isnan(rows[0]).all()
    np.testing.assert_allclose(rows[1], softmax(np.array([2.0, 1.0])), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("python:{boxes}", "python:MODULE:ATTRIBUTE"),
        ("python:no_such_module_here:box", "no module 'no_such_module_here'"),
        ("python:{boxes}:brightnes", "did you mean brightness"),
        ("python:{boxes}:number", "neither callable"),
        ("python:{boxes}:unlabelled", "labels attribute or"),
        ("python:{boxes}:shapeless", r"shape \(1,\), expected \(1, 2\)"),
        ("python:{boxes}:brightness?labels={labels}", r"shape \(1, 2\), expected \(1, 4\)"),
    ],
)
def test_python_mistakes_are_sentences(name: str, sentence: str, boxes: str, labels_file: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        load_classifier(name.format(boxes=boxes, labels=labels_file)).predict([LIGHT])


def test_a_module_that_cannot_be_imported_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half_a_module.py").write_text("x = (")
    with pytest.raises(UserError, match="importing half_a_module fails: SyntaxError"):
        load_classifier("python:half_a_module:x")


def test_python_more_mistakes(boxes: str) -> None:
    with pytest.raises(UserError, match="1 names for 2 images"):
        load_classifier(f"python:{boxes}:short").predict([LIGHT, GREY])
    with pytest.raises(UserError, match="needs a labels attribute"):
        load_classifier(f"python:{boxes}:unlabelled", classes=["a", "b"]).predict([LIGHT])


def test_scores_are_judged_row_by_row() -> None:
    answer = [[0.25, 0.75], [1.0, 3.0], [-np.inf, 0.0], [np.inf, 0.0], [0.0, 0.0]]
    rows = probabilities(answer, images=5, labels=2, outputs="auto", name="box")
    np.testing.assert_allclose(rows[:3], [[0.25, 0.75], softmax(np.array([1.0, 3.0])), [0, 1]], atol=1e-6)
    assert np.isnan(rows[3]).all()
    np.testing.assert_allclose(rows[4], 0.5)
    stated = probabilities([[1.0, 3.0], [-1.0, 2.0]], images=2, labels=2, outputs="probabilities", name="box")
    np.testing.assert_allclose(stated[0], [0.25, 0.75])
    assert np.isnan(stated[1]).all()
    with pytest.raises(UserError, match="array of numbers"):
        probabilities([["a", 1]], images=1, labels=2, outputs="auto", name="box")
