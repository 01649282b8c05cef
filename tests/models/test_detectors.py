"""Adapters of detectors: names, preprocessing, decoders, batches, memory."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from holdfast.core.errors import MachineError, SampleError, UserError
from holdfast.core.types import LabelSpace
from holdfast.data.images import FileImage
from holdfast.models import is_detector, load_detector
from holdfast.models.detectors import onnx_detectors
from holdfast.models.detectors.batched import BatchedDetector, PlacedImage, checked_answer, letterboxed, without_doubles
from holdfast.testing import check_detector
from tiny_detectors import save_rt_detr

SHARED = Path(__file__).parents[3] / "shared"
YOLOX = SHARED / "weights" / "yolox_nano" / "yolox_nano.onnx"
PETS = SHARED / "photos" / "pets12" / "images"
CATS = ("egyptian_mau", "persian", "siamese")
RNG = np.random.default_rng(0)
PICTURES = [RNG.integers(0, 255, shape, np.uint8) for shape in ((64, 96, 3), (64, 96, 3), (80, 48, 3))]


def same(first, second):
    assert len(first) == len(second)
    for one_answer, other in zip(first, second, strict=True):
        assert np.array_equal(one_answer.labels, other.labels)
        assert np.allclose(one_answer.boxes, other.boxes, atol=1e-2)
        assert np.allclose(one_answer.scores, other.scores, atol=1e-4)


@pytest.mark.skipif(not YOLOX.is_file(), reason="the weights and images of ../shared are not here")
def test_a_real_detector_finds_the_right_species():
    detector = load_detector(f"onnx:{YOLOX}?decode=yolox", device="cpu")
    files = sorted(PETS.glob("*/*"))[::8]
    right = 0
    for file in files:
        answer = detector.detect([FileImage(file).load()])[0]
        names = [detector.labels.names[label] for label in answer.labels]
        animals = [name for name in names if name in ("cat", "dog")]
        right += animals[:1] == ["cat" if file.parent.name in CATS else "dog"]
    assert right >= 0.8 * len(files)


def test_torchvision_s_detectors_answer_alike_in_any_batch(tmp_path):
    import torch
    from safetensors.torch import save_file

    from holdfast.models.detectors.torchvision_detectors import build

    torch.manual_seed(0)
    save_file(build("ssdlite320_mobilenet_v3_large", 3).state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    name = f"torchvision:ssdlite320_mobilenet_v3_large@{tmp_path / 'w.safetensors'}?labels={tmp_path / 'names.txt'}"
    assert is_detector(name) and not is_detector("torchvision:resnet18")
    detector = load_detector(name, device="cpu")
    assert detector.labels.names == ("__background__", "cat", "dog")
    same(detector.detect(PICTURES), [detector.detect([picture])[0] for picture in PICTURES])
    with pytest.raises(UserError, match="labels"):
        load_detector(name.partition("?")[0])
    with pytest.raises(UserError, match="fasterrcnn"):
        load_detector("torchvision:fasterrcn_resnet50_fpn")


def test_transformers_detectors_are_recognised_and_answer_alike_in_any_batch(tmp_path):
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.YolosConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=[64, 64],
        patch_size=16, num_detection_tokens=6, num_labels=2, use_mid_position_embeddings=False,
    )  # fmt: skip
    config.id2label = {0: "cat", 1: "dog"}
    transformers.YolosForObjectDetection(config).save_pretrained(tmp_path / "yolos")
    transformers.YolosImageProcessor(size={"height": 64, "width": 64}).save_pretrained(tmp_path / "yolos")
    name = f"hf:{tmp_path / 'yolos'}"
    assert is_detector(name)
    detector = load_detector(name, device="cpu")
    assert detector.labels.names == ("cat", "dog")
    answers = detector.detect(PICTURES)
    same(answers, [detector.detect([picture])[0] for picture in PICTURES])
    assert all(len(answer) for answer in answers)
    assert all((answer.boxes <= [96, 80, 96, 80]).all() for answer in answers)
    assert detector.name == "hf:yolos"


def test_rt_detr_answers_as_its_own_library_does(tmp_path):
    import torch

    network, processor = save_rt_detr(tmp_path / "rtdetr", ["cat", "dog"])
    detector = load_detector(f"hf:{tmp_path / 'rtdetr'}", device="cpu")
    answers = detector.detect(PICTURES)
    same(answers, [detector.detect([picture])[0] for picture in PICTURES])
    for picture, answer in zip(PICTURES, answers, strict=True):
        with torch.inference_mode():
            raw = network(**processor(picture, return_tensors="pt"))
        (own,) = processor.post_process_object_detection(raw, threshold=0.0, target_sizes=[picture.shape[:2]])
        best = int(own["scores"].argmax())
        nearest = int(answer.scores.argmax())
        assert abs(float(answer.scores[nearest]) - float(own["scores"][best])) < 1e-3
        height, width = picture.shape[:2]
        expected = own["boxes"][best].numpy().clip(0, [width, height, width, height])
        assert np.abs(answer.boxes[nearest] - expected).max() < 0.5


def test_decoders_read_boxes_in_pixels_of_the_input():
    raw = np.zeros((1, 4 + 2, 3))
    raw[0, :4, 1], raw[0, 5, 1] = (50, 40, 20, 10), 0.7
    boxes, scores, labels = onnx_detectors.DECODERS["yolov8"].read([raw], (64, 64), 2)[0]
    assert boxes.tolist() == [[40, 35, 60, 45]] and labels.tolist() == [1] and scores.tolist() == [0.7]
    logits, shares = np.full((1, 2, 3), -9.0), np.array([[[0.5, 0.5, 0.5, 1.0], [0, 0, 0, 0]]])
    logits[0, 0, 1], logits[0, 1, 2] = 9, 9
    boxes, scores, labels = onnx_detectors.DECODERS["detr"].read([logits, shares], (100, 200), 2)[0]
    assert boxes.tolist() == [[50, 0, 150, 100]] and labels.tolist() == [1] and scores[0] > 0.99
    parts = [np.array([1]), np.array([0.4], np.float32), np.array([[1, 2, 3, 4]], np.float32)]
    boxes, scores, labels = onnx_detectors.DECODERS["boxes-scores-labels"].read(parts, (9, 9), 2)[0]
    assert boxes.tolist() == [[1, 2, 3, 4]] and labels.tolist() == [1]
    heads = np.full((1, 64 + 16 + 4, 5 + 2), 0.0)
    heads[0, 64 + 5, :] = (0.5, 0.5, np.log(2), np.log(2), 1, 0, 0.9)  # second row, second column at stride 16
    boxes, scores, labels = onnx_detectors.DECODERS["yolox"].read([heads], (64, 64), 2)[0]
    assert np.allclose(boxes, [[8, 8, 40, 40]]) and labels.tolist() == [1]
    with pytest.raises(UserError, match="cells"):
        onnx_detectors.DECODERS["yolox"].read([heads], (96, 96), 2)


class Middle:
    """Boxes the middle of every image."""

    labels = ("fox", "dog")

    def detect(self, images):
        sizes = [image.shape[:2] for image in images]
        return [([[w / 4, h / 4, w / 2, h / 2]], [0.8], ["dog"]) for h, w in sizes]


def test_detectors_keep_the_contract(tmp_path, monkeypatch):
    check_detector("embedded:boxes_rho0")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    check_detector(f"python:{Path(__file__).stem}:Middle")

    class Restless:
        name, labels, fingerprint = "restless", LabelSpace(("cat",)), "1"

        def detect(self, images):
            return [checked_answer(([[0, 0, 5, 5]] * len(images), [0.5] * len(images), [0] * len(images)),
                                   PlacedImage(*image.shape[:2]), self.labels) for image in images]  # fmt: skip

    with pytest.raises(AssertionError, match="alone"):
        check_detector(Restless())


def test_a_decoder_must_be_named_and_known(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"")
    assert not is_detector(f"onnx:{tmp_path / 'm.onnx'}")
    with pytest.raises(UserError, match="yolox"):
        load_detector(f"onnx:{tmp_path / 'm.onnx'}?decode=yolo")


def save_constant_detector(file, outputs, **metadata):
    """An ONNX file that answers every image of 32 × 32 alike."""
    import onnx
    from onnx import helper, numpy_helper

    nodes = [helper.make_node("Identity", [f"{name}_is"], [name]) for name in outputs]
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in outputs.items()}
    graph = helper.make_graph(
        nodes, "constant", [helper.make_tensor_value_info("images", 1, [1, 3, 32, 32])],
        [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in outputs.items()],
        [numpy_helper.from_array(value, f"{name}_is") for name, value in outputs.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, metadata)
    onnx.save(model, file)
    return f"onnx:{file}?decode="


def test_onnx_detectors_have_the_classes_that_their_numbers_mean(tmp_path):
    parts = {"boxes": np.float32([[1, 2, 9, 9]]), "scores": np.float32([0.9]), "labels": np.int64([17])}
    name = save_constant_detector(tmp_path / "parts.onnx", parts) + "boxes-scores-labels&labels="
    with pytest.raises(UserError, match=r"labels=coco91 .* \?labels=FILE"):
        load_detector(f"{name}coco", device="cpu")
    detector = load_detector(f"{name}coco91", device="cpu")
    (answer,) = detector.detect([np.zeros((32, 32, 3), np.uint8)])
    assert [detector.labels.names[place] for place in answer.labels] == ["cat"]  # 17 is COCO's id of cats
    heads = {"output0": np.zeros((1, 4 + 80, 21), np.float32)}
    turned = str({place: f"kind {place}" for place in reversed(range(80))})
    detector = load_detector(save_constant_detector(tmp_path / "own.onnx", heads, names=turned) + "yolov8")
    assert detector.labels.names[:2] == ("kind 0", "kind 1")
    assert load_detector(save_constant_detector(tmp_path / "plain.onnx", heads) + "yolov8").labels.names[0] == "person"
    for bad in ("{1: 'fox'}", "__import__('os').getcwd()", "[" * 5000, str(dict.fromkeys(range(80), "x" * 5000))):
        name = save_constant_detector(tmp_path / "bad.onnx", heads, names=bad)
        with pytest.raises(UserError, match="does not number its classes"):
            load_detector(f"{name}yolov8", device="cpu")
    with pytest.raises(UserError, match="has 80 classes, labels=coco91 has 91"):
        load_detector(f"{name}yolov8&labels=coco91", device="cpu")
    queries = {"logits": np.zeros((1, 5, 92), np.float32), "boxes": np.zeros((1, 5, 4), np.float32)}
    name = save_constant_detector(tmp_path / "detr.onnx", queries) + "detr&labels="
    with pytest.raises(UserError, match="92 scores a box, which do not fit 80 classes"):
        load_detector(f"{name}coco", device="cpu")
    assert len(load_detector(f"{name}coco91", device="cpu").labels) == 91


def test_boxes_come_back_from_a_letterbox_where_they_were():
    image = np.zeros((50, 100, 3), np.uint8)
    cv2.rectangle(image, (20, 10), (59, 29), (255, 255, 255), -1)
    for centred in (False, True):
        placed, frame = letterboxed(image, (64, 64), centred=centred)
        rows, columns = np.nonzero((placed > 200).all(2))
        box = [[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]]
        assert np.allclose(frame.in_image(np.array(box, float)), [[20, 10, 60, 30]], atol=2)


def test_the_better_of_two_boxes_of_one_class_stays():
    boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 10], [40, 40, 50, 50]]
    kept = without_doubles((boxes, [0.5, 0.9, 0.6, 0.001], [0, 0, 1, 0]))
    assert kept[1].tolist() == [0.9, 0.6] and kept[2].tolist() == [0, 1]


def test_answers_are_sorted_cut_and_limited():
    space = LabelSpace(("cat",))
    many = checked_answer(
        (np.tile([0, 0, 5, 5], (900, 1)), np.linspace(0, 1, 900), np.zeros(900, int)), PlacedImage(9, 9), space
    )
    assert len(many) == 300 and many.scores[0] == 1 and (np.diff(many.scores) <= 0).all()
    with pytest.raises(SampleError, match="finite"):
        checked_answer(([[0, 0, np.inf, 1]], [0.5], [0]), PlacedImage(9, 9), space)


def test_a_batch_is_halved_where_memory_runs_out():
    class Small(BatchedDetector):
        name, labels, fingerprint, batch_size, sizes = "small", LabelSpace(("cat",)), "1", 8, []

        def prepare(self, image):
            return image, PlacedImage(*image.shape[:2])

        def ask(self, batch):
            if len(batch) > self.most:
                raise RuntimeError("CUDA out of memory")
            self.sizes.append(len(batch))
            return [([[0, 0, 4, 4]], [0.5], [0])] * len(batch)

    detector = Small()
    detector.most = 2
    assert len(detector.detect([PICTURES[0]] * 9)) == 9
    assert max(detector.sizes) == 2 and detector.batch_size == 2
    detector.most = 0
    with pytest.raises(MachineError, match="memory"):
        detector.detect(PICTURES[:1])


def write_owl(folder):
    """Write a tiny OWLv2 with a tokenizer of single letters, untrained."""
    import torch
    import transformers

    torch.manual_seed(0)
    letters = [*"abcdefghijklmnopqrstuvwxyz ", *(f"{letter}</w>" for letter in "abcdefghijklmnopqrstuvwxyz")]
    words = {token: place for place, token in enumerate([*letters, "<|startoftext|>", "<|endoftext|>"])}
    tokenizer = transformers.CLIPTokenizer(vocab=words, merges=[], model_max_length=40)
    text = {"vocab_size": len(words), "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "max_position_embeddings": 40, "pad_token_id": len(words) - 1,
            "bos_token_id": len(words) - 2, "eos_token_id": len(words) - 1}  # fmt: skip
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 64, "patch_size": 16}  # fmt: skip
    config = transformers.Owlv2Config(text_config=text, vision_config=vision, projection_dim=16)
    transformers.Owlv2ForObjectDetection(config).save_pretrained(folder)
    images = transformers.Owlv2ImageProcessor(size={"height": 64, "width": 64})
    transformers.Owlv2Processor(images, tokenizer).save_pretrained(folder)


def test_a_zero_shot_detector_is_asked_for_the_dataset_s_classes_in_words(tmp_path):
    from holdfast.data import load_collection

    write_owl(tmp_path / "owl")
    scenes = load_collection("diorama:test?n=2&objects=1")
    detector = load_detector(f"owl:{tmp_path / 'owl'}", device="cpu", collection=scenes)
    assert detector.labels.names == scenes.classes
    answers = detector.detect(PICTURES)
    same(answers, [detector.detect([picture])[0] for picture in PICTURES])
    assert all(len(answer) for answer in answers)
    assert all((answer.boxes <= [96, 80, 96, 80]).all() for answer in answers)
    (tmp_path / "names.txt").write_text("cat\n")
    other = load_detector(f"owl:{tmp_path / 'owl'}?labels={tmp_path / 'names.txt'}&prompt=one {{}}", device="cpu")
    assert other.labels.names == ("cat",) and other.fingerprint != detector.fingerprint
    for wrong, word in ((f"owl:{tmp_path / 'owl'}?prompt=cat", "has none"), (f"owl:{tmp_path / 'owl'}", "by name")):
        with pytest.raises(UserError, match=word):
            load_detector(wrong, device="cpu")


def test_masks_of_mask_r_cnn_come_with_its_boxes(tmp_path):
    import torch
    from safetensors.torch import save_file

    from holdfast.models.detectors.torchvision_detectors import TorchvisionDetector

    torch.manual_seed(0)
    module = tiny_mask_r_cnn()
    detector = TorchvisionDetector("masks", module, LabelSpace(("__background__", "cat")), "tiny", "cpu")
    answers = detector.detect(PICTURES)
    same(answers, [detector.detect([picture])[0] for picture in PICTURES])
    assert all(len(answer.masks) == len(answer) > 0 for answer in answers)
    assert all(mask.shape == picture.shape[:2] for answer, picture in zip(answers, PICTURES, strict=True)
               for mask in answer.masks)  # fmt: skip
    save_file(module.state_dict(), tmp_path / "w.safetensors")


def tiny_mask_r_cnn():
    """Return a Mask R-CNN on a backbone of one convolution, untrained."""
    import torch
    from torchvision.models.detection import MaskRCNN
    from torchvision.models.detection.rpn import AnchorGenerator

    backbone = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 16, 1))
    backbone.out_channels = 8
    return MaskRCNN(
        backbone, num_classes=2, min_size=64, max_size=96, box_score_thresh=0.01, box_detections_per_img=5,
        rpn_anchor_generator=AnchorGenerator(((16, 32),), ((1.0,),)),
    )  # fmt: skip


class DocumentedYolo:
    """What ultralytics documents of its YOLO objects and their results: boxes.xyxy, .conf and .cls are tensors."""

    names = {0: "cat", 1: "dog"}  # noqa: RUF012  (as it is there)

    def __init__(self):
        import torch

        self.model = torch.nn.Linear(2, 2)

    def predict(self, source, *, conf, verbose):
        from types import SimpleNamespace

        import torch

        height, width = source.shape[:2]
        blue_first = float(source[..., 0].mean() > source[..., 2].mean())
        boxes = {"xyxy": [[0, 0, width / 2, height / 2]], "conf": [0.7], "cls": [blue_first]}
        return [SimpleNamespace(boxes=SimpleNamespace(**{key: torch.tensor(value) for key, value in boxes.items()}))]


yolo = DocumentedYolo()


def test_a_model_of_ultralytics_gets_blue_first_and_answers_in_pixels(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    name = f"ultralytics:{Path(__file__).stem}:yolo"
    assert is_detector(name)
    detector = load_detector(name)
    blue = np.zeros((40, 60, 3), np.uint8)
    blue[..., 2] = 200
    (answer,) = detector.detect([blue])
    assert detector.labels.names == ("cat", "dog") and answer.labels.tolist() == [1]
    assert answer.boxes.tolist() == [[0, 0, 30, 20]]
    with pytest.raises(UserError, match="not a model of ultralytics"):
        load_detector(f"ultralytics:{Path(__file__).stem}:Middle")


def test_torchvisions_detectors_are_known_without_its_import() -> None:
    from torchvision.models import detection, list_models

    known = {name for name in list_models() if is_detector(f"torchvision:{name}")}
    assert known == set(list_models(module=detection))
