"""What a run will take, from a short trial of it."""

from holdfast.forecast.fit import CostForecast
from holdfast.forecast.planning import RunForecast, plan

__all__ = ["CostForecast", "RunForecast", "plan"]
