"""The nineteen common corruptions of ImageNet-C at five severities; see ``declaring`` for sizes other than theirs."""

from holdfast.scenarios.corruptions import blurs, digital, weather

__all__ = ["blurs", "digital", "weather"]
