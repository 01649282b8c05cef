"""Prompts from TOML: what they say, and every mistake in a table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from holdfast.core.errors import UserError
from holdfast.core.types import ClassKeys, Sample
from holdfast.data.published.masked_sets import TWELVE_CLASSES as XIMAGENET12
from holdfast.diorama import vocabulary
from holdfast.pipeline.generate.prompts import (
    Prompts,
    drawn_prompts,
    drawn_strategies,
    prompts_for,
    read_prompts,
    spoken,
    strategies_of,
    write_prompts,
)

TWELVE = tuple(label for label, _ in XIMAGENET12.values())


def sample(label: str, **attributes: str) -> Sample:
    return Sample("s", label, image=None, attributes=attributes)  # type: ignore[arg-type]


def prompt(prompts: Prompts, label: str, seed: int = 0, **attributes: str) -> str:
    return prompts.of(sample(label, **attributes), spoken(label, None), np.random.default_rng(seed))[0]


def test_each_of_the_twelve_has_a_prompt_of_its_own_that_a_text_tower_can_hold() -> None:
    prompts = prompts_for("diffusers:any", None, TWELVE)
    said = [prompt(prompts, label) for label in TWELVE]
    assert set(prompts.classes) == set(TWELVE) and len(set(said)) == 12
    for label, text in zip(TWELVE, said, strict=True):
        assert label in text and "{" not in text
        assert len(text.replace(",", " ,").split()) <= 40  # 77 tokens are about 60 plain words
    habits = ["magazine", "sea water", "blue sky with clouds", "green grass", "lawn", "left as it is", "consistent"]
    assert all(any(habit in text for text in said) for habit in habits)
    assert "an airship" in prompt(prompts, "airship")


def test_other_classes_get_the_default_in_plain_words() -> None:
    prompts = prompts_for("diffusers:any", None, ("egyptian_mau", "dog"))
    assert "an egyptian mau in fitting surroundings" in prompt(prompts, "egyptian_mau")
    assert set(prompts.classes) == {"dog"}
    assert spoken("n02085936", ClassKeys(labels=("Maltese dog, Maltese",))) == "Maltese dog"


def test_drawn_scenes_are_asked_elsewhere_in_words_that_the_oracle_knows() -> None:
    prompts = prompts_for("embedded:", None, vocabulary.CLASSES)
    assert prompts == drawn_prompts()
    words = json.loads(
        (Path(vocabulary.__file__).parents[1] / "assets" / "oracle" / "tokenizer.json").read_text(encoding="utf8")
    )["model"]["vocab"]
    kinds = set()
    for seed in range(300):
        text, kind = prompts.of(sample("fox", background="snow"), "fox", np.random.default_rng(seed))
        assert kind != "snow" and text == vocabulary.caption("fox", "plain", "natural", kind)
        assert set(text.split()) <= set(words)
        kinds.add(kind)
    assert kinds == set(vocabulary.BACKGROUNDS) - {"snow"}
    for label in vocabulary.CLASSES:  # the article is the vocabulary's own
        assert prompt(prompts, label).startswith(vocabulary.caption(label, "plain", "natural", "sea")[:4])
    same = drawn_strategies()["same"]
    assert prompt(same, "fox", background="reef") == "a fox at a reef"
    with pytest.raises(UserError, match="not known"):
        prompt(same, "fox")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default = ", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        ('default = "a photo"', "lacks its placeholder"),
        ('default = "a {klass}"', "lacks its placeholder"),
        ('default = "a {class} {bakground}"', "did you mean background"),
        ('default = "a {class} {"', "unmatched brace"),
        ('default = "a {class} {background}"', r"no table \[backgrounds\]"),
        ("default = 3", "must be a prompt, not int"),
        ('[classes]\nfox = "a fox"', "no prompt for class 'dog' and no default"),
        ('default = "{class}"\n[classes]\nfix = "a fox"', "did you mean fox"),
        ('default = "{class}"\n[classes]\nfox = 3', "is a text, not int"),
        ('default = "{class}"\n[classes]\nfox = " "', "is empty"),
        ('default = "{class}"\nclasses = "fox"', "must be a table of texts"),
        ('default = "{class}"\nclases = {}', "did you mean classes"),
        ('default = "{class}"\nbackground = "none"', "other or same"),
    ],
)
def test_a_mistake_in_a_table_is_a_sentence(tmp_path: Path, text: str | bytes, said: str) -> None:
    file = tmp_path / "prompts.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=said):
        read_prompts(file, ("fox", "dog"))


def test_a_file_that_is_none_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a file"):
        read_prompts(tmp_path, ("fox",))
    (tmp_path / "large.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(UserError, match="larger than"):
        read_prompts(tmp_path / "large.toml", ("fox",))


def test_articles_follow_the_sound_and_a_byte_order_mark_is_no_word(tmp_path: Path) -> None:
    file = tmp_path / "prompts.toml"
    file.write_bytes(b'\xef\xbb\xbfdefault = "{a class} here"')  # as some editors save it
    for name, said in [("unicycle", "a unicycle here"), ("umbrella", "an umbrella here"), ("ox", "an ox here")]:
        sample = Sample(sample_id=name, source_id=name, label=name, image=None)  # type: ignore[arg-type]
        assert read_prompts(file, (name,)).of(sample, name, np.random.default_rng(0))[0] == said


def test_what_a_strategy_writes_is_what_it_reads(tmp_path: Path) -> None:
    odd = Prompts('{class} "\\ <b>\n\x7f é', {"fox": "{a class} {background}"}, {"a b": "in \t it"}, "same")
    assert read_prompts(write_prompts(odd, tmp_path / "odd.toml"), ("fox",)) == odd
    for prompts in [*strategies_of("", ["all"], TWELVE, drawn=False).values(), *drawn_strategies().values()]:
        assert read_prompts(write_prompts(prompts, tmp_path / "one.toml"), TWELVE) == prompts


def test_strategies_by_name_and_from_a_file(tmp_path: Path) -> None:
    assert list(strategies_of("", ["other", "plain"], TWELVE, drawn=True)) == ["other", "plain"]
    with pytest.raises(UserError, match="did you mean magazine"):
        strategies_of("", ["magazin"], TWELVE, drawn=False)
    file = tmp_path / "own.toml"
    file.write_text('[mine]\ndefault = "{class}!"\n')
    assert strategies_of(str(file), ["all"], TWELVE, drawn=True) == {"mine": Prompts("{class}!")}
    file.write_text('mine = "{class}!"\n')
    with pytest.raises(UserError, match="a table per strategy"):
        strategies_of(str(file), ["all"], TWELVE, drawn=True)
