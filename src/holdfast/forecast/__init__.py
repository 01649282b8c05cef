"""What a run will take, from a short trial of it."""

from holdfast.forecast.fit import Estimate
from holdfast.forecast.planning import Plan, plan

__all__ = ["Estimate", "Plan", "plan"]
