"""The functions of ``import holdfast``: made from the same specs as the commands."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core.errors import UserError
from holdfast.core.options import make, options_of
from holdfast.pipeline import specs

VERBS = {
    "ask": specs.AskSpec, "choose": specs.ChooseSpec,
    "data_check": specs.InventorySpec, "study_telltale": specs.TelltaleSpec, "evaluate": specs.EvaluateSpec,
    "explain": specs.ExplainSpec, "generate": specs.GenerateSpec, "mask": specs.MaskSpec, "mine": specs.MineSpec,
    "mine_modes": specs.ModesSpec, "perturb": specs.PerturbSpec, "mine_remedy": specs.RemedySpec,
    "segment": specs.SegmentSpec, "synth": specs.SynthSpec, "train": specs.TrainSpec,
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_options_are_keyword_arguments_with_types_and_help(verb: str) -> None:
    function = getattr(holdfast, verb)
    parameters = inspect.signature(function).parameters
    assert "spec" not in parameters and not any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for name, declared in options_of(VERBS[verb]).items():
        assert parameters[name].annotation is not inspect.Parameter.empty
        assert f"    {name}: {declared.option.help}" in function.__doc__
        assert declared.option.help[-1] == "." and declared.option.help[0] == declared.option.help[0].strip()


@pytest.mark.parametrize("verb", [*VERBS, "share_bundle", "check", "share_export", "share_verify"])
def test_a_wrong_keyword_gets_the_nearest_one(verb: str) -> None:
    name = verb.removeprefix("share_")
    known = next(reversed(inspect.signature(getattr(holdfast, verb)).parameters))
    with pytest.raises(UserError, match=f"no option of {name} is called '{known}x'; did you mean .*{known}"):
        getattr(holdfast, verb)("photos", **{f"{known}x": 1})


@pytest.mark.parametrize(
    ("values", "field", "expected"),
    [
        ({"models": "a,b"}, "models", ("a", "b")),
        ({"models": ["a,b.onnx", "c"]}, "models", ("a,b.onnx", "c")),
        ({"scenarios": ["grey", "red"]}, "scenarios", "grey,red"),
        ({"masks": Path("masks")}, "masks", "masks"),
        ({"masks": None}, "masks", None),
        ({"matte": "grey"}, "matte", (128, 128, 128)),
        ({"matte": (1, 2, 3)}, "matte", (1, 2, 3)),
    ],
)
def test_values_are_taken_as_people_write_them(values: dict[str, Any], field: str, expected: object) -> None:
    asked = make(specs.EvaluateSpec, {"data": "photos", "models": "a"} | values, verb="evaluate")
    assert getattr(asked, field) == expected


def test_options_of_walks_stand_among_those_of_perturb() -> None:
    asked = make(specs.PerturbSpec, {"data": "photos", "steps": 3, "frames": 2}, verb="perturb")
    assert (asked.walk.steps, asked.frames, asked.walk.loss) == (3, 2, "cross_entropy")


@pytest.mark.parametrize(
    ("spec", "values", "sentence"),
    [
        (specs.SynthSpec, {"format": "jpg"}, "no choice of --format is called 'jpg'; did you mean jpeg"),
        (specs.EvaluateSpec, {"limit": -1}, "--limit is 0 or more, not -1"),
        (specs.EvaluateSpec, {"expect_accuracy": 90.0}, "--expect-accuracy is a number from 0 to 1, not 90"),
        (specs.AskSpec, {"questions": "two_way,three_way"}, "no choice of --questions is called 'three_way'"),
        (specs.PerturbSpec, {"gradient": "sgin"}, "did you mean sign"),
    ],
)
def test_a_value_that_is_not_allowed_is_a_sentence(spec: type, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        make(spec, {"data": "photos"} | ({"models": "a"} if "models" in options_of(spec) else {}) | values, verb="any")


def test_a_missing_value_is_a_sentence() -> None:
    with pytest.raises(UserError, match="eval needs --models: Names of models"):
        make(specs.EvaluateSpec, {"data": "photos"}, verb="eval")
    with pytest.raises(UserError, match="mine needs POOL"):
        make(specs.MineSpec, {}, verb="mine")
