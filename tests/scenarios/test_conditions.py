"""What a user may write after --scenarios."""

import dataclasses
import json
import pickle

import pytest

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.scenarios import Condition, Parameter, find_scenario, make_condition, parse_conditions


def names(text, **options):
    return [condition.name for condition in parse_conditions(text, **options)]


def test_groups():
    assert len(names("static")) == 13 and names("static")[0] == "original"
    assert len(names("diagnostic")) == 5
    assert names("all") == names("static,diagnostic") and len(names("all")) == 18


def test_the_grammar():
    parsed = parse_conditions("blur_background@released, blur_background@3,random_background@moved,blur_object?sigma=5")
    assert [(c.scenario, c.variant) for c in parsed] == [
        ("blur_background", "released"),
        ("blur_background", "severity_3"),
        ("random_background", "moved"),
        ("blur_object", "paper"),
    ]
    assert parsed[0].parameters == {"sigma": 3.0, "radius": 7, "feather": 0.0}
    assert parsed[2].parameters["placement"] == "moved"
    assert parsed[3].parameters["sigma"] == 5.0 and isinstance(parsed[3].parameters["sigma"], float)
    assert parsed[3].parameters_json == '{"feather":0.0,"radius":0,"sigma":5.0}'
    assert names("blur_object@severity_3") == names("blur_object@3")


def test_the_worst_of_several_backgrounds_is_as_many_draws_of_two_kinds():
    assert len(names("worst_background")) == 40
    few = names("worst_background?count=2")
    assert few == [f"{name}@draw_{draw}" for name in ("background_sweep", "same_class_sweep") for draw in (1, 2)]
    assert parse_conditions("background_sweep@draw_2")[0] == parse_conditions("worst_background?count=2")[1]
    assert not {"background_sweep", "same_class_sweep"} & set(names("all"))
    with pytest.raises(UserError, match="count is a whole number from 1 to 100, not 0"):
        parse_conditions("worst_background?count=0")
    with pytest.raises(UserError, match="count is a whole number from 1 to 100, not many"):
        parse_conditions("worst_background?count=many")
    with pytest.raises(UserError, match="draw of background_sweep is at most 100, not 101"):
        parse_conditions("background_sweep@draw_101")
    with pytest.raises(UserError, match="sets parameters for a group"):
        parse_conditions("worst_background?feather=2")


def test_options_win_over_the_variant_and_over_feather():
    condition = parse_conditions("blur_background@released?sigma=9&feather=1", feather=4)[0]
    assert condition.parameters == {"sigma": 9.0, "radius": 7, "feather": 1.0}


def test_feather_goes_to_every_scenario_that_composites():
    for condition in parse_conditions("all", feather=3):
        expected = None if condition.scenario in ("original", "only_background") else 3.0
        assert condition.parameters.get("feather") == expected


def test_duplicates_count_once_and_order_stays():
    assert names("grey,red,grey,image_grey,static")[:3] == ["grey", "red", "original"]
    assert len(names("static,all,static")) == 18
    assert len(parse_conditions("blur_object,blur_object?sigma=3,blur_object?sigma=5")) == 2


def test_a_group_with_a_tag_is_what_has_it():
    assert set(names("static@3")) == {
        f"{name}@severity_3"
        for name in ("blur_background", "blur_object", "rainbow", "bright_background", "bright_object")
    }
    released = {"blur_background", "blur_object", "red", "green", "blue", "rainbow", "bright_background"}
    released |= {"segmented", "transparent", "random_background"}
    assert {condition.scenario for condition in parse_conditions("all@released")} == released
    with pytest.raises(UserError, match="diagnostic has variant or severity 'released'"):
        parse_conditions("diagnostic@released")


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("image_r", "red"),
        ("image_g", "green"),
        ("image_b", "blue"),
        ("image_grey", "grey"),
        ("image_rainbow", "rainbow"),
        ("segmented_image", "segmented"),
        ("segmented_image_transparent", "transparent"),
        ("transparent_img", "transparent"),
        ("combine", "random_background"),
        ("image", "original"),
        ("Blur Background", "blur_background"),
        ("blur-object", "blur_object"),
        ("Random_Background", "random_background"),
    ],
)
def test_folder_names_and_printed_names_are_aliases(alias, name):
    assert names(alias) == [name]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("blur_backgroud", "did you mean .*blur_background"),
        ("diagnostics", "did you mean .*diagnostic"),
        ("", "no scenario is named"),
        (" , ", "no scenario is named"),
        ("grey@released", "no variant 'released'; it has paper and no severities"),
        ("blur_object@9", "it has paper, released, released_alternative and severities 1 to 5"),
        ("blur_object@0", "no variant '0'"),
        ("grey@3", "no severities"),
        ("blur_object?sigm=3", "no parameter 'sigm'; it has: sigma, radius, feather"),
        ("original?feather=2", "no parameter 'feather'; it has: none"),
        ("blur_object?sigma=wide", "sigma of blur_object is a number, not 'wide'"),
        ("blur_object?sigma=nan", "is a number, not 'nan'"),
        ("blur_object?sigma=inf", "is a number, not inf"),
        ("blur_object?sigma=true", "is a number, not True"),
        ("blur_object?sigma=0", "at least 0.1, not 0"),
        ("blur_object?radius=2.5", "radius of blur_object is a whole number, not 2.5"),
        ("blur_object?radius=9999", "at most 500"),
        ("transparent?hidden=1", "true or false, not 1"),
        ("random_background?placement=left", "is one of kept, moved, summed, not 'left'"),
        ("rainbow?wrap=200", "is one of 180, 256"),
        ("static?feather=2", "sets parameters for a group"),
        ("scheme:grey", "name@variant"),
        ("grey?feather", "option=value"),
    ],
)
def test_mistakes_get_one_sentence(text, sentence):
    with pytest.raises(UserError, match=sentence):
        parse_conditions(text)


@pytest.mark.parametrize("feather", [-1, 1e6, float("nan")])
def test_a_bad_feather_is_refused_even_where_nothing_uses_it(feather):
    with pytest.raises(UserError, match="feather"):
        parse_conditions("original", feather=feather)


def test_conditions_travel_between_processes_and_sit_in_sets():
    conditions = parse_conditions("all,static@released,static@5")
    assert pickle.loads(pickle.dumps(conditions)) == conditions
    assert len(set(conditions)) == len(conditions)
    assert all(json.loads(condition.parameters_json) == condition.parameters for condition in conditions)


def test_a_new_version_gives_other_parameters_json():

    newer = dataclasses.replace(find_scenario("grey"), id="newer", version=2, aliases=())
    registry.scenarios.register("newer", newer, summary="s")
    try:
        assert make_condition(newer).parameters_json == '{"feather":0.0,"version":2}'
    finally:
        registry.scenarios.remove("newer")


def test_what_is_registered_without_the_decorator_is_refused():
    registry.scenarios.register("bare", lambda image, mask, **_: image, summary="s")
    try:
        with pytest.raises(UserError, match="@scenario"):
            Condition("bare").definition  # noqa: B018
    finally:
        registry.scenarios.remove("bare")


def test_a_parameter_of_words_keeps_what_was_typed():
    folder = Parameter("folder", "textures", "where its textures are")
    grey = find_scenario("grey")
    typed = dataclasses.replace(grey, id="typed", aliases=(), parameters=(*grey.parameters, folder))
    registry.scenarios.register("typed", typed, summary="for this test")
    try:
        for text in ("0001", "2024_01", "1e3", "true", "textures"):
            (condition,) = parse_conditions(f"typed?folder={text}")
            assert condition.parameters["folder"] == text
    finally:
        registry.scenarios.remove("typed")
