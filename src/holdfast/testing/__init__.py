"""Contract suites that plugin authors run too."""

from holdfast.testing.classifier import check_classifier, check_detector, check_oracle
from holdfast.testing.generator import check_generator
from holdfast.testing.measure import check_measure
from holdfast.testing.scenario import MemoryContext, check_scenario
from holdfast.testing.section import check_section
from holdfast.testing.task import check_hook, check_task
from holdfast.testing.verb import check_verb, option_surface

__all__ = [
    "MemoryContext", "check_classifier", "check_detector", "check_generator", "check_hook", "check_measure",
    "check_oracle", "check_scenario", "check_section", "check_task", "check_verb", "option_surface",
]  # fmt: skip
