"""Where work runs."""

from holdfast.engine.local import LocalExecutor, Processes, core_count

__all__ = ["LocalExecutor", "Processes", "core_count"]
