"""The contract suite over the whole registry, and proof that it catches what it should."""

import sys
import types

import numpy as np
import pytest

from holdfast import registry
from holdfast.core.errors import PromiseError, SampleError, UserError
from holdfast.core.types import Donor, Rendered
from holdfast.scenarios import Parameter, Scenario, find_scenario, make_condition, parse_conditions, render, scenario
from holdfast.scenarios.background import cover, donor_background
from holdfast.testing.scenario import MemoryContext, check_scenario, conditions_of

STATIC = [
    *("original", "blur_background", "blur_object", "grey", "red", "green", "blue", "rainbow"),
    *("bright_background", "bright_object", "segmented", "transparent", "random_background"),
]
DIAGNOSTIC = ["same_class_background", "only_background", "mean_background", "foreground_on_grey", "silhouette"]


@pytest.mark.parametrize("name", [entry.name for entry in registry.scenarios.entries()])
def test_every_registered_scenario_keeps_the_contract(name):
    check_scenario(name)


def test_the_registry_holds_the_table_in_its_order():
    groups = {group: [n for n in registry.scenarios if find_scenario(n).group == group] for group in ("static", "")}
    assert groups["static"] == STATIC
    assert [n for n in registry.scenarios if find_scenario(n).group == "diagnostic"] == DIAGNOSTIC


@pytest.mark.parametrize("name", STATIC + DIAGNOSTIC)
def test_declarations_are_documented(name):
    definition = find_scenario(name)
    assert definition.summary and definition.family and definition.function.__doc__
    assert all(parameter.help for parameter in definition.parameters)
    assert definition.variants["paper"] == {}


def _definition(function, **declared) -> Scenario:
    return Scenario(**{"id": "tried", "function": function, "summary": "s", "family": "f", **declared})


BROKEN = {
    "promises to leave the foreground": ({"leaves": "foreground"}, lambda image, mask, **_: 255 - image),
    "promises to leave the background": (
        {"leaves": "background"},
        lambda image, mask, **_: np.where(mask[..., None], image, 255 - image),
    ),
    "promises to leave the everything": ({"leaves": "everything"}, lambda image, mask, **_: image ^ 1),
    "transparent": (
        {"leaves": "foreground"},
        lambda image, mask, **_: np.dstack([image, np.where(mask, 254, 0).astype(np.uint8)]),
    ),
    "uint8 image": ({}, lambda image, mask, **_: image.astype(np.float32)),
    "contiguous": ({}, lambda image, mask, **_: image.copy()[:, ::-1]),
    "without a mask that says so": ({}, lambda image, mask, **_: np.zeros((7, 7, 3), np.uint8)),
    "must return a mask that fits": ({}, lambda image, mask, **_: Rendered(image.copy(), np.zeros((3, 2), bool))),
    "two images": ({}, lambda image, mask, **_: np.random.default_rng().integers(0, 255, image.shape, np.uint8)),
    "random or borrows": ({"donor": "other_class"}, lambda image, mask, **_: image.copy()),
    "one image from eight seeds": ({}, lambda image, mask, *, rng, **_: image.copy() ^ (rng.integers(9) > 99)),
    "JSON": ({}, lambda image, mask, **_: Rendered(image.copy(), mask, {"a": (1, 2)})),
}


def _writes(image, mask, **_):
    image[0, 0] = 0
    return image


def _needs_it_after_all(image, mask, **_):
    if mask is None:
        raise SampleError("no mask")
    return image


def _asks(question):
    """Return a scenario that asks its context, and shows and names the donor if that is the answer."""

    def asking(image, mask, *, context, **_):
        answer = question(context, image, mask)
        if isinstance(answer, Donor):
            return Rendered(image ^ answer.image[0, 0], mask, {"donor_id": answer.sample_id})
        return image.copy()

    return asking


def _clears_its_donor(image, mask, *, context, **_):
    background, details = donor_background(context.donor(same_class=False), context.fill)
    return Rendered(cover(background, *image.shape[:2]), mask, details)


OTHER = {"donor": "other_class"}
BROKEN["declare donor='other_class', not ''"] = ({}, _asks(lambda context, *_: context.donor(same_class=False)))
BROKEN["donor='same_class', not 'other"] = (
    OTHER,
    _asks(lambda context, *_: context.donor(same_class=True)),
)
BROKEN["declare tool='fill', not ''"] = ({}, _asks(lambda context, *pair: context.fill(*pair)))
BROKEN["tool='fill'"] = (OTHER, _clears_its_donor)  # asks only if a donor has a mask
BROKEN["tool='style'"] = ({}, _asks(lambda context, image, _: context.stylise(image, image, 1)))
BROKEN["paints=True"] = ({}, _asks(lambda context, *pair: context.paint(*pair)))
BROKEN["fails on uint16 of 3 bands"] = ({"native": "rgb"}, lambda image, mask, **_: image.astype(np.uint8))
BROKEN["fails on uint8 of 5 bands"] = ({"native": "bands"}, lambda image, mask, **_: image[..., :3].copy())
BROKEN["fails on uint16 of 7 bands: .*foreground"] = (
    {"native": "bands", "leaves": "foreground"},
    lambda image, mask, **_: image // 2 if image.shape[2] == 7 else image.copy(),
)
BROKEN["writes into its input"] = ({}, _writes)
BROKEN["says it needs no mask"] = ({"needs_mask": False}, _needs_it_after_all)


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_scenario_fails_with_a_sentence(sentence):
    declared, function = BROKEN[sentence]
    with pytest.raises(AssertionError, match=sentence):
        check_scenario(_definition(function, **declared))


def test_the_run_time_check_raises_promise_error():
    @scenario(id="liar", summary="s", family="f", leaves="foreground")
    def liar(image, mask, *, feather, **_):
        """Changes everything."""
        return 255 - image

    try:
        image, mask = np.zeros((9, 9, 3), np.uint8), np.eye(9, dtype=bool)
        with pytest.raises(PromiseError, match="liar promises to leave the foreground"):
            render(make_condition(liar), image, mask, rng=np.random.default_rng(0), context=MemoryContext())
        soft = make_condition(liar, feather=1)
        made = render(soft, image, mask, rng=np.random.default_rng(0), context=MemoryContext())
        assert (made.image == 255).all()  # with soft edges nothing is promised
    finally:
        registry.scenarios.remove("liar")


def test_a_large_image_is_checked_on_rows_and_a_changed_foreground_is_seen():
    image, mask = np.zeros((2000, 1500, 3), np.uint8), np.zeros((2000, 1500), bool)
    mask[500:1500, 500:1000] = True
    definition = _definition(lambda image, mask, **_: np.full_like(image, 1), leaves="foreground")
    registry.scenarios.register("tried", definition, summary="s")
    try:
        with pytest.raises(PromiseError):
            render(make_condition(definition), image, mask, rng=np.random.default_rng(0), context=MemoryContext())
    finally:
        registry.scenarios.remove("tried")


def test_conditions_of_covers_variants_severities_and_soft_edges():
    names = [condition.name for condition in conditions_of(find_scenario("blur_object"))]
    severities = [f"blur_object@severity_{n}" for n in range(1, 6)]
    variants = ["blur_object", "blur_object@released", "blur_object@released_alternative"]
    assert names == [*variants, *severities, "blur_object"]


def test_memory_context_draws_by_class_and_keeps_what_is_memoised():
    image = np.zeros((2, 2, 3), np.uint8)
    context = MemoryContext("cat", [Donor("1", "cat", image, None), Donor("2", "dog", image, None)])
    assert context.donor(same_class=True).sample_id == "1"
    assert context.donor(same_class=False).sample_id == "2"
    with pytest.raises(SampleError, match="another class"):
        MemoryContext("cat").donor(same_class=False)
    made = []
    assert [context.memo("k", lambda: made.append(1) or 7) for _ in range(2)] == [7, 7]
    assert made == [1]


@pytest.mark.parametrize(
    "declared",
    [
        {"variants": {"odd": {"nothing": 1}}},
        {"parameters": (Parameter("version", 1, "h"),)},
        {"parameters": (Parameter("a", 1, "h"), Parameter("a", 2, "h"))},
        {"parameters": (Parameter("a", 9, "h", maximum=5),)},
        {"severities": {1: {}}},
        {"leaves": "foreground", "needs_mask": False},
        {"id": "blur_background"},
        {"aliases": ("combine",)},
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(declared):
    with pytest.raises(UserError):
        scenario(**{"id": "contrary", "summary": "s", "family": "f", **declared})(lambda image, mask, **_: image)
    assert "contrary" not in registry.scenarios


def test_a_scenario_behind_an_entry_point_takes_its_own_place():
    registry.scenarios.register("plugged", "plugin_for_test:plugged", summary="from elsewhere")
    module = types.ModuleType("plugin_for_test")
    source = (
        "from holdfast.scenarios import scenario\n"
        "@scenario(id='plugged', summary='mine', family='f', aliases=('plug',), composites=False)\n"
        "def plugged(image, mask, **_):\n"
        "    return 255 - image\n"
    )

    class Finder:
        def find_spec(self, name, path=None, target=None):
            from importlib.machinery import ModuleSpec

            return ModuleSpec(name, self) if name == "plugin_for_test" else None

        def create_module(self, spec):
            return module

        def exec_module(self, made):
            exec(source, made.__dict__)

    finder = Finder()
    sys.meta_path.insert(0, finder)
    try:
        assert parse_conditions("plugged")[0].scenario == "plugged"
        assert find_scenario("plug").summary == "mine"
        assert "plugged" not in [condition.scenario for condition in parse_conditions("all")]
        check_scenario("plugged")
    finally:
        sys.meta_path.remove(finder)
        sys.modules.pop("plugin_for_test", None)
        registry.scenarios.remove("plugged")
