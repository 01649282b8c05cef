"""Scenarios: plain functions that make an image from an image and its mask, one family per file.

Importing this package registers them all, in the order of the published table: that order is the order of the groups.
"""

from holdfast.scenarios.base.condition import (
    Condition,
    family_of,
    find_scenario,
    make_condition,
    parse_conditions,
    scored_scenarios,
)
from holdfast.scenarios.base.definition import PAPER, Parameter, Scenario, scenario
from holdfast.scenarios.base.rendering import render

# isort: off
from holdfast.scenarios import blur, colour, background, attack, industrial  # noqa: F401
from holdfast.scenarios import corruptions, one_object, stylised, sweep  # noqa: F401
# isort: on

__all__ = [
    "PAPER",
    "Condition",
    "Parameter",
    "Scenario",
    "family_of",
    "find_scenario",
    "make_condition",
    "parse_conditions",
    "render",
    "scenario",
    "scored_scenarios",
]
