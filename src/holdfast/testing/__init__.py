"""Contract suites that plugin authors run too."""

from holdfast.testing.classifier import check_classifier
from holdfast.testing.scenario import MemoryContext, check_scenario

__all__ = ["MemoryContext", "check_classifier", "check_scenario"]
