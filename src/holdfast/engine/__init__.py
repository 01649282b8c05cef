"""Where work runs."""

from holdfast.engine.local import LocalExecutor, core_count

__all__ = ["LocalExecutor", "core_count"]
