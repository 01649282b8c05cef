"""Plugin for pytest: ``def test_release(holdfast_gate): holdfast_gate("runs/old", "runs/new", margin=0.02)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.stats.models.gate import Gate


@pytest.fixture
def holdfast_gate() -> Callable[..., Gate]:
    """Return a function (old, new, allow_undecided=False, options of holdfast.compare) that fails the test by the gate.

    ``old`` and ``new`` are run directories or ``Results``. What is undecided fails, too, unless it is allowed.
    """

    def check(old: Any, new: Any, *, allow_undecided: bool = False, **options: Any) -> Gate:
        """Compare, and fail the test with the gate's sentences."""
        # Imported here: every pytest of this environment loads the plugin.
        from holdfast.api import compare
        from holdfast.exchange.gate_files import cases

        gate = compare(old, new, **options)
        if gate.verdict == "failed" or (gate.verdict == "undecided" and not allow_undecided):
            lines = [case.sentence for case in cases(gate) if case.verdict != "passed"]
            pytest.fail("\n  ".join([gate.sentence, *lines]), pytrace=False)
        return gate

    return check
