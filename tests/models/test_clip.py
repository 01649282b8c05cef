"""Zero-shot classifiers of both libraries, with tiny models made here; the libraries' own calls are the reference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from holdfast.core.errors import UserError
from holdfast.core.names import parse_name
from holdfast.models import load_classifier
from holdfast.models.clip import image_embeddings, load_clip, text_embeddings
from holdfast.testing.classifier import check_classifier

CLASSES = ("fox", "ice cream", "car wheel")


@pytest.fixture(scope="module")
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_hf_clip(tmp_path_factory.mktemp("clips") / "tiny")


@pytest.fixture(scope="module")
def open_clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_open_clip(tmp_path_factory.mktemp("clips") / "tiny_open")


def save_hf_clip(folder: Path) -> Path:
    """A CLIPModel of random weights with a word-level tokenizer, in transformers' format."""
    import tokenizers
    import transformers
    from tokenizers import models, pre_tokenizers, processors

    words = [
        "[pad]",
        "[unk]",
        "[begin]",
        "[end]",
        *["a", "an", "image", "photo", "of", "the", "fox", "ice", "cream", "car", "wheel"],
    ]
    inner = tokenizers.Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[unk]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[begin] $A [end]", special_tokens=[("[begin]", 2), ("[end]", 3)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[pad]", unk_token="[unk]", bos_token="[begin]", eos_token="[end]",
        model_max_length=12,
    )  # fmt: skip
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = transformers.CLIPTextConfig(
        vocab_size=len(words), max_position_embeddings=12, bos_token_id=2, eos_token_id=3, pad_token_id=0, **sizes
    )
    vision = transformers.CLIPVisionConfig(image_size=32, patch_size=8, **sizes)
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8)
    transformers.CLIPModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(
        folder
    )
    return folder


def save_open_clip(folder: Path) -> Path:
    """A model of open_clip's own architecture with random weights, in its folder format."""
    import open_clip
    from safetensors.torch import save_file

    model_cfg = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 8},
        "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 1},
    }
    torch.manual_seed(1)
    model = open_clip.CLIP(**model_cfg)
    folder.mkdir()
    preprocess = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4], "interpolation": "bilinear", "size": 32}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_cfg, "preprocess_cfg": preprocess}))
    save_file(
        {key: value.contiguous() for key, value in model.state_dict().items()}, folder / "open_clip_model.safetensors"
    )
    return folder


def test_hf_matches_the_library(hf_folder: Path, photo: np.ndarray) -> None:
    import transformers

    ours = load_classifier(f"clip:hf/{hf_folder}?template=an image of a {{class}}", device="cpu", classes=CLASSES)
    model = transformers.CLIPModel.from_pretrained(hf_folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(hf_folder)(
        [f"an image of a {name}" for name in CLASSES], padding=True, return_tensors="pt"
    )
    pixels = transformers.AutoImageProcessor.from_pretrained(hf_folder)(
        images=PIL.Image.fromarray(photo), return_tensors="pt"
    )
    with torch.inference_mode():
        expected = model(**tokens, **pixels).logits_per_image.softmax(1).numpy()
    np.testing.assert_allclose(ours.predict([photo]), expected, atol=1e-5)
    assert ours.labels.names == CLASSES
    assert ours.name == "clip:tiny?template=an image of a {class}"


def test_open_clip_matches_the_library(open_clip_folder: Path, photo: np.ndarray) -> None:
    import open_clip

    place = f"local-dir:{open_clip_folder}"
    ours = load_classifier(f"clip:{place}", device="cpu", classes=CLASSES)
    model, _, transform = open_clip.create_model_and_transforms(place)
    model.eval()
    with torch.inference_mode():
        image = model.encode_image(transform(PIL.Image.fromarray(photo))[None], normalize=True)
        words = open_clip.get_tokenizer(place)([f"a photo of a {name}" for name in CLASSES])
        expected = (model.logit_scale.exp() * image @ model.encode_text(words, normalize=True).T).softmax(1).numpy()
    np.testing.assert_allclose(ours.predict([photo]), expected, atol=1e-5)


def test_a_repository_cannot_ask_to_run_its_code(open_clip_folder: Path, tmp_path: Path) -> None:
    """open_clip hands these options to transformers as they are."""
    hostile = tmp_path / "hostile"
    shutil.copytree(open_clip_folder, hostile)
    config = json.loads((hostile / "open_clip_config.json").read_text())
    config["model_cfg"]["text_cfg"] |= {
        "hf_tokenizer_name": "somebody/model", "tokenizer_kwargs": {"trust_remote_code": True}
    }  # fmt: skip
    (hostile / "open_clip_config.json").write_text(json.dumps(config))
    trap = "from transformers import PreTrainedTokenizer as Trap\nopen('sprung', 'w')\n".replace(
        "sprung", str(tmp_path / "sprung")
    )
    (hostile / "trap.py").write_text(trap)
    (hostile / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["trap.Trap", None]}}))
    with pytest.raises(UserError, match="run code that is next to its weights"):
        load_classifier(f"clip:local-dir:{hostile}", device="cpu", classes=CLASSES)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("library", ["hf", "open_clip"])
def test_contract(library: str, hf_folder: Path, open_clip_folder: Path, tmp_path: Path) -> None:
    labels = tmp_path / "names.txt"
    labels.write_text("\n".join(CLASSES))
    place = f"hf/{hf_folder}" if library == "hf" else f"local-dir:{open_clip_folder}"
    check_classifier(f"clip:{place}?labels={labels}")


def test_several_templates_average_unit_vectors(hf_folder: Path, photo: np.ndarray) -> None:
    templates = ["a {class}", "an image of the {class}"]
    ours = load_classifier(f"clip:hf/{hf_folder}?template={'|'.join(templates)}", device="cpu", classes=CLASSES)
    clip = load_clip(parse_name(f"clip:hf/{hf_folder}"), device="cpu")
    image = image_embeddings(clip, [photo])
    both = [text_embeddings(clip, [one.replace("{class}", name) for name in CLASSES]) for one in templates]
    mean = (both[0] + both[1]) / 2
    cosines = image @ (mean / np.linalg.norm(mean, axis=1, keepdims=True)).T
    scores = np.exp(clip.scale * cosines)
    np.testing.assert_allclose(ours.predict([photo]), scores / scores.sum(), atol=1e-5)


def test_ensembles_of_templates(hf_folder: Path, tmp_path: Path, photo: np.ndarray) -> None:
    import open_clip

    lines = tmp_path / "templates.txt"
    lines.write_text("a {class}\n\nan image, of the {class}\n")
    name = f"clip:hf/{hf_folder}"
    ours = load_classifier(f"{name}?ensemble={lines}", device="cpu", classes=CLASSES)
    same = load_classifier(f"{name}?template=a {{class}}|an image, of the {{class}}", device="cpu", classes=CLASSES)
    np.testing.assert_array_equal(ours.predict([photo]), same.predict([photo]))
    assert ours.fingerprint == same.fingerprint
    simple = load_classifier(f"{name}?ensemble=simple", device="cpu", classes=CLASSES)
    spelled = "|".join(template("{class}") for template in open_clip.SIMPLE_IMAGENET_TEMPLATES)
    assert (
        simple.fingerprint == load_classifier(f"{name}?template={spelled}", device="cpu", classes=CLASSES).fingerprint
    )
    assert load_classifier(f"{name}?ensemble=openai", device="cpu", classes=CLASSES).fingerprint != simple.fingerprint
    for options, sentence in (
        ("ensemble=none", "neither openai nor simple"),
        ("ensemble=simple&template=a", "not both"),
    ):
        with pytest.raises(UserError, match=sentence):
            load_classifier(f"{name}?{options}", device="cpu", classes=CLASSES)


def test_embeddings_are_unit_vectors_in_order(hf_folder: Path, photo: np.ndarray) -> None:
    clip = load_clip(parse_name(f"clip:hf/{hf_folder}"), device="cpu")
    images = [photo, photo[::-1].copy(), photo[:100, :100].copy()]
    together = image_embeddings(clip, images)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(together[1], image_embeddings(clip, images[1:2])[0], atol=1e-5)
    texts = text_embeddings(clip, ["a fox", "a car wheel"])
    np.testing.assert_allclose(texts[1], text_embeddings(clip, ["a car wheel"])[0], atol=1e-5)
    assert image_embeddings(clip, []).shape == text_embeddings(clip, []).shape == (0, texts.shape[1])


def test_fingerprint_follows_prompts_classes_and_weights(hf_folder: Path, tmp_path: Path) -> None:
    def of(name: str, classes: tuple[str, ...] = CLASSES) -> str:
        return load_classifier(name, device="cpu", classes=classes).fingerprint

    base = f"clip:hf/{hf_folder}"
    other = save_hf_clip(tmp_path / "tiny")
    assert of(base) == of(f"clip:hf/{other}")
    import transformers

    changed = transformers.CLIPModel.from_pretrained(other)
    with torch.no_grad():
        changed.logit_scale += 0.1
    changed.save_pretrained(other)
    prints = [of(base), of(f"{base}?template=a {{class}}"), of(base, CLASSES[:2]), of(f"clip:hf/{other}")]
    assert len(set(prints)) == 4


def test_mistakes_are_one_sentence(hf_folder: Path, tmp_path: Path) -> None:
    for name, classes, sentence in [
        (f"clip:hf/{hf_folder}", None, "labels=FILE"),
        (f"clip:hf/{hf_folder}?template=a fox", CLASSES, "every template needs"),
        (f"clip:hf/{tmp_path}", CLASSES, "it has no config.json"),
        ("clip:ViT-B-33@openai", CLASSES, "did you mean.*ViT-B-32"),
        ("clip:ViT-B-32@openia", CLASSES, "did you mean openai"),
        ("clip:ViT-B-32", CLASSES, "which weights"),
        (f"clip:local-dir:{tmp_path}", CLASSES, "cannot be loaded"),
    ]:
        with pytest.raises(UserError, match=sentence):
            load_classifier(name, device="cpu", classes=classes)


def test_pickled_weights_are_refused(hf_folder: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file

    folder = Path(shutil.copytree(hf_folder, tmp_path / "pickled"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be loaded"):
        load_classifier(f"clip:hf/{folder}", device="cpu", classes=CLASSES)


def test_pickled_objects_of_open_clip_are_refused_in_one_sentence(tmp_path: Path) -> None:
    torch.save({"state_dict": {"visual": Path("x")}}, tmp_path / "w.pt")
    with pytest.raises(UserError) as refused:
        load_classifier(f"clip:RN50@{tmp_path / 'w.pt'}", device="cpu", classes=CLASSES)
    assert str(refused.value).startswith("clip:RN50@w.pt holds Python objects other than tensors")
    assert "weights_only" not in str(refused.value)


FOLDERS = {
    "model_index.json": "but a pipeline of diffusers",
    "open_clip_config.json": "but a model of open_clip; name it clip:local-dir:FOLDER",
    "adapter_config.json": "but an adapter",
    "model.safetensors": "it has no config.json",
}


@pytest.mark.parametrize("file", FOLDERS)
def test_a_folder_of_another_kind_is_named(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("{}")
    for scheme in ("hf:", "clip:hf/"):
        with pytest.raises(UserError, match=f"is not a model of transformers(, |: ){FOLDERS[file]}"):
            load_classifier(f"{scheme}{tmp_path}", device="cpu", classes=CLASSES)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"architecture": "resnet18", "num_classes": 3}, "is a model of timm; name it local-dir:"),
        ({"model_type": "vit", "image_size": "many"}, "is not an image classifier that can be loaded"),
        ({"model_type": ["x"]}, "is not an image classifier that can be loaded"),
        ({"model_type": "mpnet"}, "is not an image classifier that can be loaded: Unrecognized configuration class"),
    ],
)
def test_a_configuration_of_another_kind_is_one_sentence(tmp_path: Path, config: dict[str, object], words: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "ViTImageProcessor"}')
    with pytest.raises(UserError, match=words):
        load_classifier(f"hf:{tmp_path}", device="cpu", classes=CLASSES)


def test_a_classifier_without_text_tower_is_refused(tmp_path: Path, hf_folder: Path) -> None:
    import shutil

    import transformers

    folder = Path(shutil.copytree(hf_folder, tmp_path / "vit"))
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    transformers.ViTModel(config).save_pretrained(folder)
    with pytest.raises(UserError, match="ViTModel, not an image and a text tower"):
        load_classifier(f"clip:hf/{folder}", device="cpu", classes=CLASSES)
