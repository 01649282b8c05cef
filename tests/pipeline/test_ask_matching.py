"""What answers in words mean, read strictly and leniently."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.core.protocols import Refusal
from holdfast.pipeline.ask.wording import read_answer, read_synonyms, singular

TWO = ("green lizard", "lizard")
LIST = ("dog", "ice_cream", "car wheel", "anemone fish", "fox", "knife")
SYNONYMS = {"dog": ("puppy", "german shepherd"), "car wheel": ("rim",)}


@pytest.mark.parametrize(
    ("answer", "strict", "lenient"),
    [
        ("dog", "dog", "dog"),
        ("Dog.", "dog", "dog"),
        (' "ICE-CREAM"! ', "ice_cream", "ice_cream"),
        ("**car  wheel**", "car wheel", "car wheel"),
        ("The main object is a dog.", None, "dog"),
        ("a dog", None, "dog"),
        ("Two dogs", None, "dog"),
        ("It's the dog's face", None, "dog"),
        ("Knives", None, "knife"),
        ("foxes", None, "fox"),
        ("ice creams", None, "ice_cream"),
        ("A puppy, lying down", None, "dog"),
        ("German Shepherds", None, "dog"),
        ("hot dog stand", None, "dog"),  # whole words are all that lenient matching sees
        ("dogma", None, None),
        ("dog or fox", None, None),
        ("dog, not a fox", None, "dog"),
        ("This is not a dog", None, None),
        ("not a dog but a fox", None, "fox"),
        ("It doesn't look like a dog", None, None),
        ("There aren't any dogs, but a fox", None, "fox"),
        ("This cannot be a dog.", None, None),
        ("a non-dog", None, None),
        ("Not sure; it looks like a dog", None, "dog"),
        ("cream", None, None),
        ("", None, None),
        ("   ", None, None),
        ("cat", None, None),
        ("ＤＯＧ", "dog", "dog"),
        ("A", None, None),
    ],
)
def test_readings(answer: str, strict: str | None, lenient: str | None) -> None:
    reading = read_answer(answer, LIST, SYNONYMS)
    assert (reading.strict, reading.lenient) == (strict, lenient)
    assert not reading.refusal
    assert reading.unmatched == (lenient is None)


def test_a_longer_name_hides_a_shorter_one_inside_it() -> None:
    assert read_answer("a green lizard", TWO, {}).lenient == "green lizard"
    assert read_answer("a lizard", TWO, {}).lenient == "lizard"
    assert read_answer("a lizard, a green lizard", TWO, {}).lenient is None
    # Whether or not the longer one is offered: who says another class has not named this one.
    assert read_answer("a green lizard", ("lizard", "fox"), {}, classes=(*TWO, "fox")).lenient is None
    assert read_answer("a lizard", ("lizard", "fox"), {}, classes=(*TWO, "fox")).lenient == "lizard"


@pytest.mark.parametrize(
    ("answer", "strict"),
    [("B", 1), ("(b)", 1), ("B.", 1), ("a)", 0), ("B. lizard", 1), ("B) Lizard.", 1), ("B. green lizard", None),
     ("C", None), ("lizard", 1), ("A lizard", None)],
)  # fmt: skip
def test_letters(answer: str, strict: int | None) -> None:
    wanted = None if strict is None else TWO[strict]
    assert read_answer(answer, TWO, {}, letters=True).strict == wanted


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, I cannot identify this.",
        "As an AI language model I have no eyes.",
        "I am unable to determine what this is.",
        "I cannot tell whether it is a dog or a fox.",
        Refusal("It shows a dog, which I may not say."),
        Refusal(""),
    ],
)
def test_refusals(answer: str) -> None:
    reading = read_answer(answer, LIST, SYNONYMS)
    assert reading.refusal and reading.lenient is None and not reading.unmatched


def test_an_apology_with_an_answer_is_an_answer() -> None:
    reading = read_answer("Sorry for the wait: it is a fox.", LIST, SYNONYMS)
    assert reading.lenient == "fox" and not reading.refusal


words = st.text(st.characters(categories=["Ll"], max_codepoint=122), min_size=3, max_size=12)


@given(words)
def test_stems(word: str) -> None:
    stem = singular(word)
    assert singular(stem) == stem
    if not word.endswith(("s", "x", "z", "ch", "sh", "y")):
        assert singular(word + "s") == stem


@pytest.mark.parametrize(
    ("one", "several"),
    [("bus", "buses"), ("octopus", "octopuses"), ("glass", "glasses"), ("lens", "lenses"), ("gas", "gases"),
     ("box", "boxes"), ("church", "churches"), ("dish", "dishes"), ("berry", "berries"), ("cookie", "cookies"),
     ("tomato", "tomatoes"), ("shoe", "shoes"), ("wolf", "wolves"), ("glove", "gloves"), ("knife", "knives"),
     ("house", "houses"), ("emu", "emus"), ("key", "keys"), ("quiz", "quizzes")],
)  # fmt: skip
def test_plurals(one: str, several: str) -> None:
    assert (singular(one) == singular(several)) == (one != "quiz")  # doubled letters are beyond it


@given(st.text(max_size=60), st.permutations(LIST))
def test_any_text_reads_the_same_in_any_order(answer: str, options: list[str]) -> None:
    assert read_answer(answer, LIST, SYNONYMS) == read_answer(answer, options, SYNONYMS)


@given(st.sampled_from(LIST), st.sampled_from(["{}", "a {}", "It is a {}.", "{}!", "The {}, I think"]))
def test_every_option_is_found_by_its_name(option: str, frame: str) -> None:
    assert read_answer(frame.format(option.replace("_", " ")), LIST, {}).lenient == option


def test_synonyms_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text('dog = ["puppy"]\n"Ice Cream" = ["gelato", "sundae"]\n')
    assert read_synonyms(file, LIST) == {"dog": ("puppy",), "ice_cream": ("gelato", "sundae")}
    assert read_synonyms(None, LIST) == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dog = [", "not TOML"),
        ("dgo = ['puppy']", "did you mean dog"),
        ("dog = 'puppy'", "should be a list"),
        ("dog = [3]", "should be a list"),
        ("dog = ['...']", "should be a list"),
        ("dog = ['pup']\nfox = ['Pups']", "gives 'Pups' to 'fox', but it means 'dog'"),
        ("dog = ['foxes']", "gives 'foxes' to 'dog', but it means 'fox'"),
    ],
)
def test_mistakes_in_synonyms(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "words.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=sentence):
        read_synonyms(file, LIST)
    with pytest.raises(UserError, match="is not a file"):
        read_synonyms(tmp_path / "none.toml", LIST)
