"""``--track``: what is sent to an experiment tracker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from holdfast.core.errors import MachineError

if TYPE_CHECKING:
    from holdfast.exchange.tracking import TrackedRecord


def tell(tracker: str | None, record: Callable[[], TrackedRecord]) -> None:
    """Report to the tracker that ``--track`` names, and print where it is shown; an unreachable one is not an error."""
    if not tracker:
        return
    from holdfast.exchange.tracking import track

    try:
        typer.echo(f"{tracker}: {track(tracker, record())}")
    except MachineError as error:
        typer.echo(f"holdfast: {error}", err=True)
