"""Contract suites that plugin authors run too."""

from holdfast.testing.classifier import check_classifier, check_detector, check_oracle
from holdfast.testing.generator import check_generator
from holdfast.testing.scenario import MemoryContext, check_scenario
from holdfast.testing.verb import check_verb, option_surface

__all__ = [
    "MemoryContext", "check_classifier", "check_detector", "check_generator", "check_oracle", "check_scenario",
    "check_verb", "option_surface",
]  # fmt: skip
