from __future__ import annotations

import pytest

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.registry import Registry


@pytest.fixture
def colours() -> Registry[object]:
    colours: Registry[object] = Registry("colour", "holdfast.tests.none")
    colours.register("crimson", 1, summary="a red", aliases=["red"])
    colours.register("lazy", "math:pi", summary="imported when asked for")
    return colours


def test_names_and_aliases_lead_to_objects(colours: Registry[object]) -> None:
    assert colours.get("crimson") == colours.get("red") == 1
    assert colours.get("lazy") == pytest.approx(3.14159, abs=1e-5)
    assert list(colours) == ["crimson", "lazy"]
    assert "red" in colours


def test_a_taken_name_is_an_error(colours: Registry[object]) -> None:
    for name, aliases in (("crimson", []), ("red", []), ("new", ["red"])):
        with pytest.raises(UserError, match="registered already"):
            colours.register(name, 2, summary="", aliases=aliases)
    assert "new" not in colours


def test_a_mistyped_name_answers_with_the_nearest(colours: Registry[object]) -> None:
    with pytest.raises(UserError, match="did you mean crimson"):
        colours.get("Crimsn")
    with pytest.raises(UserError, match="known: crimson, lazy, red"):
        colours.get("zzzzzz")


def test_removing_frees_the_name_and_its_aliases(colours: Registry[object]) -> None:
    colours.remove("crimson")
    colours.register("red", 3, summary="")
    assert colours.get("red") == 3


def test_a_missing_package_is_named(colours: Registry[object]) -> None:
    colours.register("gone", "no_such_package_at_all:load", summary="")
    with pytest.raises(UserError, match="no_such_package_at_all"):
        colours.get("gone")


@pytest.mark.parametrize("room", [registry.models, registry.data, registry.annotators])
def test_every_lazy_entry_exists(room: Registry[object]) -> None:
    for name in room:
        assert callable(room.get(name)), name
        assert room.entry(name).summary
