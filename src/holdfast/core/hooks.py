"""What accompanies a run from outside: trackers, declarations, notifications."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, PluginWarning, first_line
from holdfast.core.tasks import Task


@dataclass(frozen=True)
class BegunRun:
    """A run of ``eval`` that has begun: what a hook may look at.

    Attributes:
        path: the run directory.
        task: what the models are asked.
        spec: the options of the command.
        models: name → fingerprint of each model.
        data: the data with its hashes, a ``holdfast.pipeline.samples.Prepared``.
        notes: sentences that the command prints at its end; a hook may add some.
    """

    path: Path
    task: Task
    spec: Any
    models: Mapping[str, str]
    data: Any
    notes: list[str] = field(default_factory=list)


class Hook:
    """What is called while a run is made; a subclass defines what it needs.

    A ``UserError`` stops the command. Any other error is a warning: a run never ends because of its hooks.
    ``holdfast.testing.check_hook`` checks a hook.
    """

    def on_run_begin(self, run: BegunRun) -> None:
        """Run once models and data are known, before the first row is made."""

    def on_rows(self, run: BegunRun, rows: Any) -> None:
        """Run after each step that made rows; ``rows``: an Arrow dataset of the files that were written."""

    def on_run_end(self, run: BegunRun) -> None:
        """Run after the last row, unless the command stops with an error."""


def call_hooks(hooks: Iterable[Hook], method: str, *arguments: Any) -> None:
    """Call a method of every hook."""
    for hook in hooks:
        try:
            getattr(hook, method)(*arguments)
        except HoldfastError:
            raise
        except Exception as error:  # of another package, whose mistake must not cost a run
            name = type(hook).__name__
            warnings.warn(f"hook {name}.{method} failed: {first_line(error)}", PluginWarning, stacklevel=2)
