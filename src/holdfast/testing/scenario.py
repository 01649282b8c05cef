"""The contract suite of scenarios, for ours and for those of other packages."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.core.errors import PromiseError, SampleError
from holdfast.core.fingerprint import canonical_json
from holdfast.core.types import Donor, Image, Mask, Rendered
from holdfast.scenarios import Condition, Scenario, find_scenario, make_condition, render

SIZES = ((64, 48), (37, 90), (2, 3), (1, 9), (300, 8), (1, 2))  # heights and widths on which every scenario is tried


class MemoryContext:
    """A context with donors from a list in memory, for one source image; ``asked`` is what scenarios must declare."""

    def __init__(self, label: str = "", donors: Sequence[Donor] = (), *, seed: int = 0) -> None:
        self.label = label
        self._seed = seed
        self._donors = tuple(donors)
        self._memo: dict[Hashable, Any] = {}
        self.asked: set[tuple[str, str | bool]] = set()  # fields of ``Scenario``, and the values to declare there

    def donor(self, *, same_class: bool, draw: int = 0) -> Donor:
        """Return one of the donors of the same class or of another, by ``seed`` and ``draw``, or SampleError."""
        self.asked.add(("donor", "same_class" if same_class else "other_class"))
        fitting = [donor for donor in self._donors if (donor.label == self.label) is same_class]
        if not fitting:
            raise SampleError(f"there is no donor of {'the same' if same_class else 'another'} class")
        return fitting[(self._seed + draw) % len(fitting)]

    def shared(self, number: int) -> Donor:
        """Return one of the donors by its number and ``seed``; SampleError if there is none."""
        self.asked.add(("donor", "shared"))
        if not self._donors:
            raise SampleError("there is no donor")
        return self._donors[(number - 1 + self._seed) % len(self._donors)]

    def paint(self, image: Image, mask: Mask) -> Rendered:
        """Return noise by ``seed`` everywhere; the scenario has to put the object back."""
        self.asked.add(("paints", True))
        return Rendered(_rng(self._seed + 1000).integers(0, 256, image.shape, np.uint8), mask, {"prompt": "noise"})

    def style(self) -> Donor:
        """Return a donor of another class."""
        return self.donor(same_class=False)

    def stylise(self, image: Image, style: Image, strength: float) -> Image:
        """Return the image mixed with the style's mean colour, at strength 0 too: no copy is exact."""
        self.asked.add(("tool", "style"))
        share = (1 + strength) / 4
        mixed: Image = (image * (1 - share) + style.mean((0, 1)) * share).astype(np.uint8)
        return mixed

    def fill(self, image: Image, mask: Mask) -> Image | None:
        """Return None: no one gave a network that fills holes."""
        self.asked.add(("tool", "fill"))
        return None

    def target(self, mask: Mask) -> tuple[str, Mask]:
        """Return the whole foreground as one object."""
        return "", mask

    def memo(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return ``make()`` at the first use of a key, and the kept result later."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]


def check_scenario(scenario: str | Scenario) -> None:
    """Run the contract suite on a scenario: every variant and severity, on images of several sizes and aspects.

    It must return an HWC uint8 image of 3 or 4 channels with a mask that fits, leave bit-identical what it promises
    to, leave its input alone, give the same image for the same seed (and, if it is random, another for another
    seed), depend on nothing an earlier condition of the same image left behind, take donors of any size, with or
    without a mask, declare what it asks its context for, and take the depths and bands of its ``native``.

    Raises:
        AssertionError: With a sentence that says what does not hold.
    """
    definition = scenario if isinstance(scenario, Scenario) else find_scenario(scenario)
    for condition in conditions_of(definition):
        for image, mask in _examples():
            _check_one(definition, condition, image, mask)
        _check_random(definition, condition)
    _check_missing_mask(definition)
    _check_native(definition)


def conditions_of(definition: Scenario) -> list[Condition]:
    """Return every variant and severity of a scenario."""
    tags = [*definition.variants, *map(str, definition.severities)]
    conditions = [make_condition(definition, tag) for tag in tags]
    if any(parameter.name == "feather" for parameter in definition.parameters):
        conditions.append(make_condition(definition, feather=2.5))
    return conditions


def _check_one(definition: Scenario, condition: Condition, image: Image, mask: Mask) -> None:
    where = f"scenario {condition.name} with {condition.parameters} on {image.shape[1]}×{image.shape[0]}"
    before, before_mask = image.copy(), mask.copy()
    context = MemoryContext("own", _donors())
    try:
        rendered = _run(definition, condition, image, mask, seed=1, context=context)
    except SampleError as error:
        # A tiny image may lack what a scenario needs; one of ordinary size may not.
        assert min(image.shape[:2]) < 8, f"{where} gave up: {error}"
        return
    assert np.array_equal(image, before) and np.array_equal(mask, before_mask), f"{where} changed its input"
    assert rendered.image.dtype == np.uint8 and rendered.image.ndim == 3 and rendered.image.shape[2] in (3, 4), (
        f"{where} made {rendered.image.dtype} of shape {rendered.image.shape}, not an HWC uint8 image with 3 or 4 "
        "channels"
    )
    assert (
        rendered.mask is not None
        and rendered.mask.dtype == np.bool_
        and rendered.mask.shape == rendered.image.shape[:2]
    ), f"{where} gave no mask that fits its image"
    assert json.loads(canonical_json(rendered.details)) == dict(rendered.details), (
        f"{where} has details that JSON changes"
    )
    _check_promise(definition, condition, image, mask, rendered, where)
    again = _run(definition, condition, image, mask, seed=1, context=context)
    fresh = _run(definition, condition, image, mask, seed=1, context=MemoryContext("own", _donors()))
    assert _same(rendered, again) and _same(rendered, fresh), f"{where} made two images from one seed"


def _check_promise(
    definition: Scenario, condition: Condition, image: Image, mask: Mask, rendered: Rendered, where: str
) -> None:
    """Check every pixel, where the run-time check may look at a grid."""
    promise = definition.promise(condition.parameters)
    if promise == "nothing":
        return
    assert rendered.image.shape[:2] == image.shape[:2], f"{where} promises to leave the {promise} and made another size"
    kept = {"foreground": mask, "background": ~mask, "everything": np.ones_like(mask)}[promise]
    assert np.array_equal(rendered.image[..., :3][kept], image[kept]), (
        f"{where} changed the {promise} it promised to leave"
    )
    if rendered.image.shape[2] == 4 and promise != "background":
        assert (rendered.image[..., 3][kept] == 255).all(), f"{where} must not make part of the {promise} transparent"


def _check_random(definition: Scenario, condition: Condition) -> None:
    """Check that other seeds or donors change the image of a scenario that declares them."""
    image, mask = _example(64, 48, seed=0)
    spy = _rng(1)
    untouched = spy.bit_generator.state
    _run(definition, condition, image, mask, seed=1, context=MemoryContext("own", _donors()), rng=spy)
    if spy.bit_generator.state == untouched and not definition.donor:
        return
    pictures = {
        _run(
            definition, condition, image, mask, seed=seed, context=MemoryContext("own", _donors(), seed=seed)
        ).image.tobytes()
        for seed in range(8)
    }
    fixed = len(pictures) == 1
    assert not fixed or condition.variant.startswith("severity_"), (
        f"scenario {condition.name} is random or borrows, and makes one image from eight seeds"
    )


def _check_missing_mask(definition: Scenario) -> None:
    image, mask = _example(16, 16, seed=0)
    condition = make_condition(definition)
    useless: list[Mask | None] = [None, np.zeros_like(mask), np.ones_like(mask)]
    for bad in useless:
        try:
            _run(definition, condition, image, bad, seed=1, context=MemoryContext("own", _donors()))
        except SampleError:
            assert definition.needs_mask, f"scenario {definition.id} says it needs no mask and fails without one"
        else:
            assert not definition.needs_mask, (
                f"scenario {definition.id} needs a mask, but rendered an image without one"
            )


def _check_native(definition: Scenario) -> None:
    """Check that the paper's variant makes images of the depths and bands that ``native`` declares."""
    image, mask = _example(64, 48, seed=0)
    for depth, bands in {"rgb": [("u2", 3)], "bands": [("u2", 3), ("u1", 5), ("u2", 7)], "": []}[definition.native]:
        own, *lent = (
            np.ascontiguousarray(np.tile(picture, 3)[..., :bands], depth) * (257 if depth == "u2" else 1)
            for picture in (image, *(donor.image for donor in _donors()))
        )
        donors = [replace(donor, image=picture) for donor, picture in zip(_donors(), lent, strict=True)]
        try:
            _run(definition, make_condition(definition), own, mask, seed=1, context=MemoryContext("own", donors))
        except (AssertionError, SampleError) as error:
            where = f"declares native={definition.native!r} and fails on {own.dtype} of {bands} bands"
            raise AssertionError(f"scenario {definition.id} {where}: {error}") from error


def _run(
    definition: Scenario,
    condition: Condition,
    image: Image,
    mask: Mask | None,
    *,
    seed: int,
    context: MemoryContext,
    rng: np.random.Generator | None = None,
) -> Rendered:
    """Return an image, after a check that the scenario declares what it asked the context for."""
    try:
        rendered = render(condition, image, mask, rng=rng or _rng(seed), context=context, definition=definition)
    except PromiseError as error:
        raise AssertionError(str(error)) from error
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise AssertionError(f"scenario {definition.id} writes into its input") from error
    for name, value in sorted(context.asked, key=str):
        declared = getattr(definition, name)
        assert declared == value, f"scenario {definition.id} has to declare {name}={value!r}, not {declared!r}"
        named = name != "donor" or "donor_id" in rendered.details
        assert named, f"scenario {condition.name} does not say which donor it used (donor_id)"
    return rendered


def _rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _same(first: Rendered, other: Rendered) -> bool:
    masks_agree = first.mask is not None and other.mask is not None and np.array_equal(first.mask, other.mask)
    return np.array_equal(first.image, other.image) and masks_agree and first.details == other.details


def _examples() -> Iterator[tuple[Image, Mask]]:
    for seed, (height, width) in enumerate(SIZES):
        yield _example(height, width, seed=seed)
    image, mask = _example(20, 30, seed=9)
    yield np.ascontiguousarray(image[..., :1]).repeat(3, axis=2), mask  # greyscale
    yield np.asfortranarray(image), np.asfortranarray(mask)


def _example(height: int, width: int, *, seed: int) -> tuple[Image, Mask]:
    """Return noise over a slope, with an ellipse and a stray pixel as foreground; never empty or full."""
    rng = _rng(seed)
    rows, columns = np.mgrid[0:height, 0:width]
    slope = 255 * (rows / height + columns / width) / 2
    image = (slope[..., None] * rng.uniform(0.3, 1, 3) + rng.integers(0, 60, (height, width, 3))).clip(0, 255)
    mask = ((rows + 0.5) / height - 0.5) ** 2 + ((columns + 0.5) / width - 0.45) ** 2 < 0.06
    mask[height // 2, width // 2] = True
    mask[0, 0] = False
    return image.astype(np.uint8), mask


def _donors() -> list[Donor]:
    """Return donors of both classes and several sizes, masked, unmasked and filled by their object."""
    donors = []
    for number, (height, width) in enumerate(((40, 60), (200, 31), (5, 7), (1, 1))):
        for label in ("own", "other"):
            image, mask = _example(height, width, seed=100 + number)
            if label == "other":
                image = 255 - image
            shown = (mask, None, np.ones_like(mask), None)[number]
            donors.append(Donor(f"{label}/{number}", label, image, shown))
    return donors
