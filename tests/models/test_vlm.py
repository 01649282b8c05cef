"""Models that answer in words, tiny ones made here; the library's own greedy call is the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
import transformers
from tiny_vlms import save_llava, save_qwen

from holdfast.core.errors import UserError
from holdfast.core.protocols import VisionLanguageModel
from holdfast.models import load_classifier, load_vlm

QUESTIONS = [
    "What is the main object in this image? Choose from the following list: fox, whale.",
    "fox, whale?",
    "What is this?",
    "image",
    "Choose: disc, cello, ice cream",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("vlms")
    return {"llava": save_llava(root / "llava"), "qwen": save_qwen(root / "qwen")}


def pictures() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = ((40, 60), (64, 64), (33, 90), (120, 20), (50, 50))
    return [rng.integers(0, 256, (height, width, 3), np.uint8) for height, width in sizes]


@pytest.mark.parametrize("kind", ["llava", "qwen"])
def test_answers_are_the_librarys_greedy_ones(folders: dict[str, Path], kind: str) -> None:
    ours = load_vlm(f"vlm:{folders[kind]}?max_new_tokens=5", device="cpu")
    assert isinstance(ours, VisionLanguageModel)
    assert ours.name == f"vlm:{kind}?max_new_tokens=5"
    processor = transformers.AutoProcessor.from_pretrained(folders[kind])
    model = transformers.AutoModelForImageTextToText.from_pretrained(folders[kind]).eval()
    for image, question in zip(pictures()[:3], QUESTIONS, strict=False):
        turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}
        prompt = processor.apply_chat_template([turn], add_generation_prompt=True, tokenize=False)
        tokens = processor(text=[prompt], images=[PIL.Image.fromarray(image)], return_tensors="pt")
        start = tokens["input_ids"].shape[1]
        for _ in range(5):  # the likeliest next token, by hand
            with torch.inference_mode():
                following = model(**tokens).logits[:, -1].argmax(-1, keepdim=True)
            if following.item() == 3:
                break
            tokens["input_ids"] = torch.cat([tokens["input_ids"], following], 1)
            tokens["attention_mask"] = torch.cat([tokens["attention_mask"], torch.ones_like(following)], 1)
            if "mm_token_type_ids" in tokens:
                tokens["mm_token_type_ids"] = torch.cat([tokens["mm_token_type_ids"], torch.zeros_like(following)], 1)
        expected = processor.tokenizer.decode(tokens["input_ids"][0, start:], skip_special_tokens=True).strip()
        assert ours.answer([image], [question]) == [expected]


@pytest.mark.parametrize("kind", ["llava", "qwen"])
def test_answers_do_not_depend_on_the_batch(folders: dict[str, Path], kind: str) -> None:
    model = load_vlm(f"vlm:{folders[kind]}?max_new_tokens=6", device="cpu")
    images = pictures()
    before = [image.copy() for image in images]
    together = model.answer(images, QUESTIONS)
    assert len(set(together)) > 2  # else this would prove little
    alone = [model.answer([image], [question])[0] for image, question in zip(images, QUESTIONS, strict=True)]
    assert together == alone
    assert model.answer(images[::-1], QUESTIONS[::-1]) == together[::-1]
    assert model.answer([], []) == []
    assert all((one == other).all() for one, other in zip(images, before, strict=True))
    # the image and the question both matter
    assert model.answer([images[1]] * 5, QUESTIONS) != together or model.answer(images, QUESTIONS[:1] * 5) != together


def test_the_fingerprint_changes_with_weights_words_and_options(folders: dict[str, Path], tmp_path: Path) -> None:
    one = load_vlm(f"vlm:{folders['llava']}", device="cpu")
    moved = save_llava(tmp_path / "moved")
    assert load_vlm(f"vlm:{moved}", device="cpu").fingerprint == one.fingerprint
    other = load_vlm(f"vlm:{save_llava(tmp_path / 'other', seed=5)}", device="cpu")
    shorter = load_vlm(f"vlm:{folders['llava']}?max_new_tokens=3", device="cpu")
    half = load_vlm(f"vlm:{folders['llava']}?dtype=bfloat16", device="cpu")
    template = (moved / "chat_template.jinja").read_text()
    (moved / "chat_template.jinja").write_text(f"[begin] {template}")
    asked_otherwise = load_vlm(f"vlm:{moved}", device="cpu")
    prints = [model.fingerprint for model in (one, other, shorter, half, asked_otherwise)]
    assert len(set(prints)) == 5
    assert len(half.answer(pictures()[:2], QUESTIONS[:2])) == 2


def test_what_cannot_be_loaded(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no chat template"):
        load_vlm(f"vlm:{save_llava(tmp_path / 'mute', template=None)}", device="cpu")
    with pytest.raises(UserError, match="hub cannot be reached"):
        load_vlm("vlm:nobody/nothing", device="cpu")
    with pytest.raises(UserError, match="max_new_tokens=0 should be"):
        load_vlm(f"vlm:{folders['llava']}?max_new_tokens=0", device="cpu")
    with pytest.raises(UserError, match="did you mean bfloat16, float16"):
        load_vlm(f"vlm:{folders['llava']}?dtype=bfloat17", device="cpu")
    with pytest.raises(UserError, match="use it with holdfast ask"):
        load_classifier(f"vlm:{folders['llava']}", device="cpu")


def test_weights_that_are_pickled_or_missing_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = save_llava(tmp_path / "llava")
    weights = load_file(folder / "model.safetensors")
    some = {key: value for key, value in weights.items() if "language_model" not in key or "layers.1" not in key}
    save_file(some, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="lacks weights"):
        load_vlm(f"vlm:{folder}", device="cpu")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_vlm(f"vlm:{folder}", device="cpu")


def test_any_callable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "talker.py").write_text(
        "def says(images, questions):\n"
        "    images[0][:] = 0\n"
        "    return [f'{i.shape[0]} {q}' for i, q in zip(images, questions)]\n"
        "def mute(images, questions):\n    return [None]\n"
    )
    monkeypatch.chdir(tmp_path)
    image = np.full((4, 5, 3), 9, np.uint8)
    model = load_vlm("vlm+python:talker:says")
    assert model.answer([image], ["why?"]) == ["4 why?"]
    assert image.min() == 9 and model.name == "vlm+python:talker:says"
    with pytest.raises(UserError, match="one text for each of 1 questions"):
        load_vlm("vlm+python:talker:mute").answer([image], ["why?"])
