"""timm, torchvision and what they share, against references written out by hand."""

from __future__ import annotations

import os

import numpy as np
import PIL.Image
import pytest
import timm
import torch
import torchvision

from holdfast.core.errors import MachineError, SampleError, UserError
from holdfast.core.networks import resolve_device
from holdfast.core.types import LabelSpace
from holdfast.data.labels import map_labels
from holdfast.models import label_spaces, load_classifier
from holdfast.models.torch_classifier import Preprocessing, TorchClassifier, exact, picture
from holdfast.oracle import load_oracle

TINY = "timm:test_resnet?pretrained=false&num_classes=7"


def by_hand(image: np.ndarray, *, resize: int, crop: int, filter: int, mean: tuple, std: tuple) -> np.ndarray:
    """The textbook evaluation pipeline: short side to ``resize``, centre crop, normalise."""
    height, width = image.shape[:2]
    scale = resize / min(height, width)
    size = (resize if width <= height else int(width * scale), resize if height <= width else int(height * scale))
    resized = PIL.Image.fromarray(image).resize(size, filter)
    left, top = round((resized.width - crop) / 2), round((resized.height - crop) / 2)
    pixels = np.asarray(resized.crop((left, top, left + crop, top + crop)), dtype=np.float64) / 255
    return ((pixels - np.array(mean)) / np.array(std)).transpose(2, 0, 1)


def test_timm_prepares_as_written_out(photo: np.ndarray) -> None:
    classifier = load_classifier("timm:resnet18?pretrained=false&num_classes=2", device="cpu")
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    # The default weights of timm's resnet18 (a1_in1k) are tested at 288 px with a crop of 0.95 / 224 px.
    config = classifier.preprocessing.description
    side = config["input_size"][1]
    resize = int(np.floor(side / config["crop_pct"]))
    expected = by_hand(photo, resize=resize, crop=side, filter=PIL.Image.Resampling.BICUBIC, mean=mean, std=std)
    assert config["interpolation"] == "bicubic"
    np.testing.assert_allclose(classifier.prepare(photo).numpy(), expected, atol=1e-5)


def test_timm_takes_preprocessing_options(photo: np.ndarray) -> None:
    options = "size=96&mean=0.5&std=0.1/0.2/0.3&crop=0.75&interpolation=bilinear"
    prepared = (
        load_classifier(f"timm:test_resnet?pretrained=false&num_classes=2&{options}", device="cpu")
        .prepare(photo)
        .numpy()
    )
    expected = by_hand(
        photo, resize=128, crop=96, filter=PIL.Image.Resampling.BILINEAR, mean=(0.5,) * 3, std=(0.1, 0.2, 0.3)
    )
    np.testing.assert_allclose(prepared, expected, atol=1e-5)


@pytest.mark.parametrize(("tag", "resize"), [("IMAGENET1K_V1", 256), ("IMAGENET1K_V2", 232)])
def test_torchvision_prepares_as_its_weights_ask(photo: np.ndarray, tag: str, resize: int) -> None:
    classifier = load_classifier(f"torchvision:resnet50@{tag}?weights=none&num_classes=2", device="cpu")
    expected = by_hand(
        photo,
        resize=resize,
        crop=224,
        filter=PIL.Image.Resampling.BILINEAR,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    )
    np.testing.assert_allclose(classifier.prepare(photo).numpy(), expected, atol=1e-5)


def test_torchvision_predicts_as_torchvision_does(photo: np.ndarray) -> None:
    import torchvision

    classifier = load_classifier("torchvision:squeezenet1_1?weights=none&seed=4&num_classes=9", device="cpu")
    torch.manual_seed(4)
    reference = torchvision.models.squeezenet1_1(weights=None, num_classes=9).eval()
    transform = torchvision.models.SqueezeNet1_1_Weights.DEFAULT.transforms()
    with torch.inference_mode():
        expected = reference(transform(PIL.Image.fromarray(photo))[None]).softmax(1).numpy()
    np.testing.assert_allclose(classifier.predict([photo]), expected, atol=1e-6)


def test_random_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = load_classifier(TINY + "&seed=5", device="cpu")
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    assert load_classifier(TINY + "&seed=5", device="cpu").fingerprint == first.fingerprint
    assert load_classifier(TINY + "&seed=6", device="cpu").fingerprint != first.fingerprint


def test_fingerprint_sees_preprocessing_and_labels(tmp_path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("\n".join("abcdefg"))
    prints = {load_classifier(TINY + extra, device="cpu").fingerprint for extra in ("", "&mean=0.4", f"&labels={file}")}
    assert len(prints) == 3


def test_name_option_renames_and_keeps_the_fingerprint() -> None:
    renamed = load_classifier(TINY + "&name=mine", device="cpu")
    assert renamed.name == "mine"
    assert renamed.fingerprint == load_classifier(TINY, device="cpu").fingerprint
    assert load_classifier(TINY, device="cpu").name == "timm:test_resnet?num_classes=7&pretrained=false"


def test_logits_agree_with_predict_and_have_gradients(photo: np.ndarray) -> None:
    classifier = load_classifier(TINY, device="cpu")
    side = classifier.preprocessing.size[0]
    mean, std = (
        torch.tensor(value).view(3, 1, 1) for value in (classifier.preprocessing.mean, classifier.preprocessing.std)
    )
    pixels = (classifier.prepare(photo) * std + mean)[None].requires_grad_()
    assert pixels.shape[-1] == side
    logits = classifier.logits(pixels)
    np.testing.assert_allclose(logits.softmax(1).detach().numpy(), classifier.predict([photo]), atol=1e-5)
    logits[0, 0].backward()
    step = 1e-2 * pixels.grad / pixels.grad.norm()
    with torch.no_grad():
        rise = (classifier.logits(pixels + step) - classifier.logits(pixels - step))[0, 0] / 2
    assert rise.item() == pytest.approx(1e-2 * pixels.grad.norm().item(), rel=0.05)


@pytest.mark.parametrize("scheme", ["timm:test_resnet?pretrained=false", "torchvision:squeezenet1_1?weights=none"])
def test_models_of_blue_first_see_the_picture_turned_round(scheme: str, photo: np.ndarray) -> None:
    turned = "mean=0.1/0.2/0.3&std=0.4/0.5/0.6&size=64&crop=1"
    stated = "channels=bgr&range=255&mean=76.5/51/25.5&std=153/127.5/102&size=64&crop=1"
    usual, blue = (load_classifier(f"{scheme}&num_classes=5&{how}", device="cpu") for how in (turned, stated))
    np.testing.assert_allclose(blue.prepare(photo), usual.prepare(photo), atol=1e-5)  # RGB, as walks and --fast take it
    assert np.abs(blue.predict([photo]) - usual.predict([photo])).max() > 1e-4
    first = next(layer for layer in usual.module.modules() if isinstance(layer, torch.nn.Conv2d))
    first.weight.data = first.weight.data.flip(1)
    np.testing.assert_allclose(blue.predict([photo]), usual.predict([photo]), atol=1e-5)
    pixels = torch.rand(2, 3, 64, 64)
    np.testing.assert_allclose(blue.logits(pixels), usual.logits(pixels), atol=1e-4)
    assert blue.fingerprint != load_classifier(f"{scheme}&num_classes=5&{turned}", device="cpu").fingerprint


class Hungry(torch.nn.Module):
    """Runs out of memory above a batch of ``limit``."""

    def __init__(self, limit: int, error: type[Exception]) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.limit, self.error, self.batches = limit, error, []

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.batches.append(len(batch))
        if len(batch) > self.limit:
            raise self.error("CUDA out of memory. Tried to allocate 2.00 GiB")
        return batch.mean((2, 3)) * self.scale


def hungry(limit: int, error: type[Exception] = RuntimeError) -> tuple[TorchClassifier, Hungry]:
    def transform(image: PIL.Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.asarray(image.resize((4, 4))).astype(np.float32) / 255).permute(2, 0, 1)

    module = Hungry(limit, error)
    preparation = Preprocessing(transform, (4, 4), (0.0,) * 3, (1.0,) * 3, False, {})
    labels = LabelSpace(("r", "g", "b"))
    return TorchClassifier("hungry", module, labels, preparation, architecture="x", device="cpu"), module


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, torch.OutOfMemoryError])
def test_out_of_memory_halves_the_batch_and_remembers(error: type[Exception]) -> None:
    images = [np.full((5, 5, 3), value, np.uint8) for value in range(0, 250, 5)]
    plenty, _ = hungry(1000)
    tight, module = hungry(7, error)
    np.testing.assert_allclose(tight.predict(images), plenty.predict(images), atol=1e-6)
    assert module.batches[:5] == [50, 25, 12, 6, 6]
    module.batches.clear()
    tight.predict(images)
    assert set(module.batches) <= {6, 2}


def test_out_of_memory_with_one_image_is_a_sentence() -> None:
    with pytest.raises(MachineError, match="single image"):
        hungry(0)[0].predict([np.zeros((4, 4, 3), np.uint8)] * 3)


def test_other_errors_of_the_model_are_not_swallowed() -> None:
    classifier, module = hungry(0)
    module.forward = lambda batch: (_ for _ in ()).throw(RuntimeError("shapes differ"))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="shapes differ"):
        classifier.predict([np.zeros((4, 4, 3), np.uint8)])


def test_extreme_aspects_cost_little_and_keep_the_middle() -> None:
    image = np.zeros((2, 20_001, 3), np.uint8)
    image[:, 10_000] = 255
    cut = np.asarray(picture(image, crops_centre=True))
    assert cut.shape == (2, 32, 3)
    assert cut[:, 16].min() == 255
    assert picture(image, crops_centre=False).size == (20_001, 2)
    assert picture(image[:, :32], crops_centre=True).size == (32, 2)
    assert np.asarray(picture(image.transpose(1, 0, 2), crops_centre=True)).shape == (32, 2, 3)


@pytest.mark.parametrize(
    "image",
    [np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)],
)
def test_other_than_rgb_is_refused(image: np.ndarray) -> None:
    with pytest.raises(SampleError, match="RGB"):
        load_classifier(TINY, device="cpu").prepare(image)


@pytest.mark.parametrize("outputs", [1000, 11221, 11821, 21841, 21842, 21843])
def test_imagenet_spaces(outputs: int) -> None:
    space = label_spaces.imagenet(outputs)
    assert space is not None
    assert len(space.names) == len(space.wnids) == outputs
    assert space.wnids.index("n01440764") >= 0
    assert "tench" in space.names[space.wnids.index("n01440764")]


def test_imagenet_names_of_other_libraries_get_wnids() -> None:
    import torchvision

    names = torchvision.models.ResNet50_Weights.IMAGENET1K_V2.meta["categories"]
    assert label_spaces.named(names).wnids == label_spaces.imagenet().wnids
    assert label_spaces.named(names[::-1]).wnids == ()
    assert label_spaces.named([f"LABEL_{index}" for index in range(1000)]).wnids == ()


def test_unnamed_outputs_are_numbered_and_files_name_them(labels_file) -> None:
    assert load_classifier(TINY, device="cpu").labels.names == tuple("0123456")
    four = f"timm:test_resnet?pretrained=false&num_classes=4&labels={labels_file}"
    assert load_classifier(four, device="cpu").labels.names == ("cat", "dog", "fox", "red panda")
    with pytest.raises(UserError, match=r"7 outputs, but the label file .* names 4"):
        load_classifier(f"{TINY}&labels={labels_file}", device="cpu")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("resnet50", "scheme:name, for example timm:resnet50"),
        ("net.onnx", "onnx:net.onnx"),
        ("tim:resnet50", "did you mean timm"),
        ("timm:resnet5O", "did you mean .*resnet50"),
        ("timm:resnet50@a1_in2k", "did you mean .*resnet50.a1_in1k"),
        ("timm:resnet50?pretraind=false", "did you mean pretrained"),
        ("timm:resnet50?pretrained=no", "not a bool"),
        ("timm:resnet50?num_classes=3", "pretrained=false"),
        ("timm:resnet18?pretrained=false&size=0", "between 1 and 4096"),
        ("timm:resnet18?pretrained=false&mean=1/2", "1 or 3 number"),
        ("timm:resnet18?pretrained=false&std=0", "above 0"),
        ("timm:resnet18?pretrained=false&crop=2", "at most 1"),
        ("timm:resnet18?pretrained=false&channels=gbr", "did you mean .*bgr"),
        ("timm:resnet18?pretrained=false&range=100&mean=1&std=1", "1 or 255"),
        ("timm:resnet18?pretrained=false&range=255&mean=128", "the scale of mean and std: give both"),
        ("timm:resnet18?pretrained=false&interpolation=cubic", "did you mean bicubic"),
        ("timm:resnet18?pretrained=false&labels=missing.txt", "no label file"),
        ("timm:vit_base_patch16_224@dino?pretrained=false", "only features"),
        ("torchvision:resnet5O", "did you mean"),
        ("torchvision:resnet50@IMAGENET1K_V3", "IMAGENET1K_V"),
        ("torchvision:resnet50?weights=best", "behind an @"),
        ("torchvision:resnet50?weights=none&size=10/20", "squares"),
        ("packaged:mobilenet_v3", "did you mean mobilenet_v2"),
        ("packaged:mobilenet_v2?size=3", "no option of packaged:"),
    ],
)
def test_mistakes_in_names_are_sentences(name: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        load_classifier(name, device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["timm:resnet18@a1_in1k", "hf:nobody/nothing"])
def test_unreachable_hub_names_the_ways_out(name: str, tmp_path, monkeypatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"hub cannot be reached .* packaged: .* torch:"):
        load_classifier(name, device="cpu")


def test_an_oracle_that_the_hub_does_not_give_names_others(tmp_path, monkeypatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"cannot be reached .*needs no hub: classifier:packaged:"):
        load_oracle(
            "classifier:timm:resnet18@a1_in1k", classes=["cat", "dog"], load_classifier=load_classifier,
            map_labels=map_labels,
        )  # fmt: skip


def test_unreachable_torchvision_names_the_ways_out(tmp_path, monkeypatch) -> None:
    import urllib.error
    import urllib.request

    def refuse(*args, **kwargs):
        assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "1"
        raise urllib.error.URLError("no route")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "urlopen", refuse)
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)
    with pytest.raises(UserError, match=r"hub cannot be reached .* packaged: .* torch:"):
        load_classifier("torchvision:squeezenet1_1", device="cpu")
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_torchvision_weights_that_hold_code_are_not_run(tmp_path, monkeypatch) -> None:
    marker = tmp_path / "ran"
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)

    class Code:
        def __reduce__(self):
            return (os.mkdir, (str(marker),))

    torch.save({"weight": Code()}, folder / "squeezenet1_1-b8a52dc0.pth")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(UserError, match="delete them"):
        load_classifier("torchvision:squeezenet1_1", device="cpu")
    assert not marker.exists()


def test_devices() -> None:
    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") in ("cpu", "cuda", "mps")
    with pytest.raises(UserError, match="no device called"):
        resolve_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no cuda device"):
            resolve_device("cuda:0")


def test_switches_stay_exact_until_the_last_thread_has_gone() -> None:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = True
    try:
        first, second = exact(), exact()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert not torch.backends.cudnn.allow_tf32 and torch.backends.cudnn.deterministic
        second.__exit__(None, None, None)
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _classifier(network: torch.nn.Module, outputs: int) -> TorchClassifier:
    labels = LabelSpace(tuple(map(str, range(outputs))))
    seen = Preprocessing(to_tensor, (64, 64), (0.5,) * 3, (0.2,) * 3, False, {})
    return TorchClassifier("own", network, labels, seen, architecture="own", device="cpu")


def to_tensor(picture: PIL.Image.Image) -> torch.Tensor:
    return (torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255 - 0.5) / 0.2


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "efficientnet_b0", "tf_efficientnet_lite0"])
def test_on_a_cpu_layers_are_fused_and_answers_stay(name: str) -> None:
    torch.manual_seed(0)
    if hasattr(torchvision.models, name):
        network = getattr(torchvision.models, name)(weights=None, num_classes=5)
    else:
        network = timm.create_model(name, num_classes=5)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):  # as after training: no norm that does nothing
            layer.running_mean.normal_(0, 0.2)
            layer.running_var.uniform_(0.5, 2)
            layer.weight.data.uniform_(0.5, 2)
    plain, fused = _classifier(network, 5), _classifier(network, 5)
    assert fused.fuse_layers() and plain.fingerprint == fused.fingerprint
    left = [layer for layer in fused._answering.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    assert len(left) < len([layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)]) / 4
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (64, 64, 3), np.uint8) for _ in range(7)]
    for some in (images, images[:1]):
        np.testing.assert_allclose(fused.predict(some), plain.predict(some), atol=1e-5)
        assert (fused.predict(some).argmax(1) == plain.predict(some).argmax(1)).all()
    with torch.inference_mode():  # of another shape than the first images
        expected, answers = (model(torch.full((3, 3, 97, 131), 0.3)) for model in (plain.module, fused._answering))
        assert (answers - expected).abs().max() < 1e-5 * expected.abs().max()
    batch = torch.rand(2, 3, 64, 64, requires_grad=True)
    fused.logits(batch).sum().backward()  # gradients go through the network itself
    assert batch.grad is not None and batch.grad.abs().max() > 0


@pytest.mark.parametrize("counts", [True, False])
def test_a_network_that_cannot_be_traced_rightly_stays_as_it_is(counts: bool) -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
            self.calls = 0

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            answer = self.layers(batch).mean((2, 3))
            if counts:  # a trace would repeat its own number
                return answer * self.calls
            return answer if answer.sum() > 0 else -answer  # cannot be traced at all

    assert not _classifier(Own(), 4).fuse_layers()


def test_the_thousand_labels_are_timms() -> None:
    from timm.data import ImageNetInfo

    info = ImageNetInfo("imagenet-1k")
    expected = LabelSpace(tuple(info.label_descriptions()), tuple(info.label_names()))
    assert label_spaces._thousand() == expected == label_spaces.imagenet()
