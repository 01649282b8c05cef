"""What two models of a parity test must share, and what each costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.models import is_detector, load_classifier
from holdfast.pipeline.choosing import measure
from holdfast.pipeline.jobs.progress import Progress, silent

if TYPE_CHECKING:
    import pandas as pd

_SHARED_NAMES = 0.9  # of the outputs: spellings differ between libraries


def check_comparable(old: str, new: str, *, classes: Sequence[str], outcome: str, device: str) -> list[str]:
    """Return sentences on how the two prepare their images differently; a UserError where answers cannot be compared.

    Loads both models, on the processor, one after the other.
    """
    described = []
    for name in (old, new):
        if is_detector(name):
            raise UserError(f"{name} is a detector; parity compares classifiers")
        model = load_classifier(name, device=device, classes=classes)
        about = dict(getattr(getattr(model, "preprocessing", None), "description", {}))
        described.append((model.name, set(model.labels.names), about))
    (first, names, seen), (second, other_names, also_seen) = described
    if first == second:
        raise UserError(f"both models are called {first}; add ?name=… to one of them")
    if outcome == "full" and len(names & other_names) < _SHARED_NAMES * min(len(names), len(other_names)):
        raise UserError(
            f"{first} and {second} call their outputs differently ({min(names - other_names)!r} is no output of the "
            f"second): name them with ?labels= or holdfast sidecar, or use --accuracy restricted"
        )
    return [
        f"{second} prepares images otherwise: {key} is {_shown(also_seen[key])}, not {_shown(seen[key])}"
        for key in seen
        if key in also_seen and _shown(seen[key]) != _shown(also_seen[key])
    ]


def _shown(value: Any) -> str:
    return (
        "/".join(f"{each:g}" if isinstance(each, (int, float)) else str(each) for each in value)
        if isinstance(value, (tuple, list))
        else str(value)
    )


def costs(names: dict[str, str], *, classes: Sequence[str], device: str, progress: Progress = silent) -> pd.DataFrame:
    """Return size and speed of models, a row each; ``names``: of ``speed.sources``."""
    import pandas as pd

    measured = measure(names, classes=classes, device=device, batch_size=1, progress=progress)
    return pd.DataFrame([{"model": name, **asdict(cost)} for name, cost in measured.items()])
