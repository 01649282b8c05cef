"""Executors: where work runs."""

from holdfast.engine.local import (
    ENGINES,
    Executor,
    LocalExecutor,
    Processes,
    ahead,
    core_count,
    end_with_parent,
    few_threads,
    open_executor,
    share_of,
    thread_pool,
)

__all__ = [
    "ENGINES",
    "Executor",
    "LocalExecutor",
    "Processes",
    "ahead",
    "core_count",
    "end_with_parent",
    "few_threads",
    "open_executor",
    "share_of",
    "thread_pool",
]
