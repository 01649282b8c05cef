"""What a run will take, from a short trial of it."""

from holdfast.forecast.planning import CostForecast, RunForecast, plan

__all__ = ["CostForecast", "RunForecast", "plan"]
