"""Conditions: what a user writes after ``--scenarios``, with every parameter settled."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.core.names import Name, condition_name, parse_name, split_list, unknown
from holdfast.core.types import Families
from holdfast.scenarios.base.definition import DRAW, FEATHER, PAPER, Scenario, Value

FAMILIES = ("blur", "colour", "light", "cutout", "background", "generated")
"""Families of scenarios: the first five group static scenarios, ``generated`` has one scenario."""

XIMAGENET12_FAMILIES = {
    "blur": "blur", "colour": "colour and brightness", "light": "colour and brightness",
    "background": "random background", "generated": "generated background",
}  # fmt: skip
"""Our family → that of XIMAGENET-12's six; the other two, segmented and transparent, are scenarios of ``cutout``."""

GROUPS = (
    "static",
    "diagnostic",
    "all",
    "industrial",
    "corruptions",
    "attacks",
    "objects",
    "worst_background",
    *FAMILIES[:5],
)
"""Groups of scenarios. ``all`` means the first two; the next five answer other questions or take long."""


@dataclass(frozen=True)
class Condition:
    """A scenario with its parameters: one value of the column ``condition``.

    ``variant`` is ``paper``, ``released``, ``moved``, … or ``severity_1`` to ``severity_5``; ``parameters`` holds
    every parameter's value, defaults among them.
    """

    scenario: str
    variant: str = PAPER
    parameters: Mapping[str, Value] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """Return the name on the command line, without options."""
        return condition_name(self.scenario, self.variant)

    @cached_property
    def definition(self) -> Scenario:
        """Return the registered scenario."""
        return find_scenario(self.scenario)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "definition"}  # functions do not travel

    @cached_property
    def parameters_json(self) -> str:
        """Return the parameters as canonical JSON; with the version from 2 on, so that old rows are redone."""
        known = self.definition
        more: dict[str, Value] = {"version": known.version} if known.version > 1 else {}
        if known.source:
            more["source"] = known.source
        return canonical_json({**self.parameters, **more})


def find_scenario(name: str) -> Scenario:
    """Return the scenario of an id or alias in any spelling; UserError with the nearest names if there is none."""
    if name.partition(":")[0] == "nrtk":
        _perturbers().register_perturbers()
    if name.startswith("python:") and name not in registry.scenarios:
        return _own().register_own(name.partition(":")[2])  # type: ignore[no-any-return]
    definition = registry.scenarios.get(name if name in registry.scenarios else _plain(name))
    if not isinstance(definition, Scenario):
        raise UserError(f"{name!r} is registered as a scenario but was not made with @scenario")
    return definition


def make_condition(
    definition: Scenario, tag: str = "", options: Mapping[str, Any] | None = None, *, feather: float = 0.0
) -> Condition:
    """Settle a scenario's parameters.

    The ``tag`` is a variant, a severity (``3`` or ``severity_3``) or nothing for the paper's way; ``options`` win over
    the variant's parameters. Scenarios that do not composite ignore ``feather``.
    """
    variant, overrides = _variant(definition, tag)
    known = {parameter.name: parameter for parameter in definition.parameters}
    for name in options or {}:
        if name not in known:
            names = ", ".join(known) or "none"
            raise UserError(f"scenario {definition.id} has no parameter {name!r}; it has: {names}")
    soft: dict[str, Any] = {FEATHER.name: feather} if FEATHER.name in known else {}
    settled = {**definition.defaults, **soft, **overrides, **(options or {})}
    return Condition(
        definition.id, variant, {name: known[name].checked(value, of=definition.id) for name, value in settled.items()}
    )


MOST_COUNTED = 100  # conditions that ``?count=`` makes
DRAWS = 20  # without it, backgrounds of ``worst_background``


def parse_conditions(text: str, *, feather: float = 0.0) -> list[Condition]:
    """Read ``static,blur_background@released,blur_background@3,random_background@moved,blur_background?sigma=5``.

    Groups are ``static`` (original and the twelve), ``diagnostic``, ``all`` of these, ``industrial``, ``corruptions``,
    ``attacks``, ``objects``, ``worst_background`` (which takes ``?count=20``), and the families of static scenarios
    (``blur``, ``colour`` …); with a tag, a group means those of its scenarios that have that variant or severity. What
    is named twice counts once; the order is the reader's.

    Args:
        text: Groups and scenarios, separated by commas.
        feather: Width of soft edges, for every scenario that joins two images.

    Returns:
        The conditions, in the order of the text.

    Raises:
        UserError: A name, variant or parameter is unknown, or there is none.

    Examples:
        >>> [condition.name for condition in holdfast.parse_conditions("original,grey")]
        ['original', 'grey']
    """
    FEATHER.checked(feather, of="the scenarios")
    conditions: list[Condition] = []
    for part in split_list(text):
        for condition in _parse_one(part, feather):
            if condition not in conditions:
                conditions.append(condition)
    if not conditions:
        raise UserError(
            f"no scenario is named; try {', '.join(GROUPS)}, a name from holdfast ls scenarios, "
            "or python:MODULE:FUNCTION"
        )
    return conditions


def _parse_one(text: str, feather: float) -> list[Condition]:
    parsed = parse_name(text)
    if parsed.scheme == "nrtk":
        condition = make_condition(find_scenario(f"nrtk:{parsed.name}"), parsed.tag, parsed.options)
        _perturbers().check_parameters(condition.scenario, dict(condition.parameters))
        return [condition]
    if parsed.scheme == "python":
        scenario = _own().register_own(parsed.name)
        return [make_condition(scenario, parsed.tag, _typed(parsed, scenario), feather=feather)]
    if parsed.scheme:
        raise UserError(f"scenarios read name@variant?parameter=value, which {text!r} does not")
    group = {"color": "colour"}.get(_plain(parsed.name), _plain(parsed.name))
    if group in GROUPS:
        options = dict(parsed.options)
        count = _count(text, options) if group == "worst_background" else 0
        if options:
            raise UserError(f"{text!r} sets parameters for a group; set them for a scenario by its name")
        # Scenarios behind entry points are not loaded yet, and belong to no group until they are named.
        loaded = [entry.target for entry in registry.scenarios.entries() if isinstance(entry.target, Scenario)]
        members = [scenario for scenario in loaded if _belongs(scenario, group)]
        if tag := parsed.tag:
            members = [each for each in members if tag in each.variants or _severity(tag) in each.severities]
        if not members:
            raise UserError(f"no scenario of {group} has variant or severity {parsed.tag!r}; see holdfast ls scenarios")
        tags = [f"draw_{draw}" for draw in range(1, count + 1)] or [parsed.tag]
        return [make_condition(scenario, tag, feather=feather) for scenario in members for tag in tags]
    if parsed.name not in registry.scenarios and group not in registry.scenarios:
        known = [*registry.scenarios, *registry.scenarios.aliases(), *GROUPS]
        raise unknown(registry.scenarios.kind, parsed.name, known)
    scenario = find_scenario(parsed.name)
    options = _typed(parsed, scenario)
    if not scenario.counts or "count" not in options:
        return [make_condition(scenario, parsed.tag, options, feather=feather)]
    count = _count(text, options)
    numbered = ({scenario.counts: number} for number in range(1, count + 1))
    return [make_condition(scenario, parsed.tag, options | each, feather=feather) for each in numbered]


def _count(text: str, options: dict[str, Any]) -> int:
    """Take ``count`` out of the options of a name and return it."""
    count = options.pop("count", DRAWS)
    if type(count) is not int or not 1 <= count <= MOST_COUNTED:
        raise UserError(f"{text}: count is a whole number from 1 to {MOST_COUNTED}, not {count}")
    return count


def _typed(parsed: Name, scenario: Scenario) -> dict[str, Any]:
    """Return the options of a name; those whose parameter is a word as they were typed."""
    words = {parameter.name for parameter in scenario.parameters if isinstance(parameter.default, str)}
    return {key: parsed.text(key) if key in words else value for key, value in parsed.options.items()}


def family_of(name: str, families: Families = "holdfast") -> str:
    """Return the family of a static scenario or a generated background, '' for any other scenario.

    ``families``: our six, or those of XIMAGENET-12 (``colour and brightness``, ``blur``, ``segmented``, …).
    """
    if families == "ximagenet12":
        own = family_of(name)
        return XIMAGENET12_FAMILIES.get(own, name if own else "")
    if name not in registry.scenarios:
        return ""
    definition = find_scenario(name)
    if definition.paints:
        return "generated"
    return definition.family if definition.group == "static" and definition.family in FAMILIES else ""


def scored_scenarios(*, background_only: bool = False) -> frozenset[str]:
    """Return the scenarios of the robustness score: the static ones with the original, and generated backgrounds.

    ``background_only``: of these, the ones that leave the object unchanged.
    """
    known = {condition.scenario: condition.definition for condition in parse_conditions("static")}
    known |= {entry.name: entry.target for entry in registry.scenarios.entries()
              if isinstance(entry.target, Scenario) and entry.target.paints}  # fmt: skip
    return frozenset(
        name for name, definition in known.items() if not background_only or definition.leaves == "foreground"
    )


def _belongs(definition: Scenario, group: str) -> bool:
    if group in FAMILIES:
        return definition.group == "static" and definition.family == group
    return definition.group in (("static", "diagnostic") if group == "all" else (group,))


def _perturbers() -> Any:
    """Return the module of NRTK's perturbers, which imports this one."""
    return importlib.import_module("holdfast.scenarios.perturbers")


def _own() -> Any:
    """Return the module of the user's own scenarios, which few commands need."""
    return importlib.import_module("holdfast.scenarios.own")


def _plain(name: str) -> str:
    """Return ``blur_background`` for ``Blur Background`` and ``blur-background``."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _severity(tag: str) -> int | None:
    digits = tag.removeprefix("severity_")
    return int(digits) if re.fullmatch(r"[0-9]{1,3}", digits) else None


def _variant(definition: Scenario, tag: str) -> tuple[str, Mapping[str, Value]]:
    """Return a tag's name in the table and the parameters that it sets."""
    name = tag or PAPER
    if name in definition.variants:
        return name, definition.variants[name]
    severity = _severity(name)
    if severity is not None and severity in definition.severities:
        return f"severity_{severity}", definition.severities[severity]
    if DRAW in definition.parameters and (drawn := re.fullmatch(r"(?:draw_)?([0-9]{1,3})", name)):
        return f"draw_{int(drawn[1])}", {DRAW.name: int(drawn[1])}
    known = ", ".join(definition.variants)
    strengths = "severities 1 to 5" if definition.severities else "no severities"
    raise UserError(f"scenario {definition.id} has no variant {name!r}; it has {known} and {strengths}")
