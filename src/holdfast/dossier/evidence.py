"""The runs of a dossier and what its chapters share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.lazy import pd
from holdfast.pipeline.declaration import attached, deviations, row_deviations
from holdfast.results import Results


@dataclass(frozen=True)
class Fact:
    """What was measured, in a few words, and the chapter that shows it."""

    text: str
    chapter: int


@dataclass(frozen=True)
class DossierEvidence:
    """All runs of a dossier, their declarations, and how they deviate from these."""

    runs: Sequence[Results]
    folder: Path
    bundles: dict[str, str]
    votes: str | Path | None
    pictures: bool

    @cached_property
    def specs(self) -> list[dict[str, Any]]:
        """Return what each run was asked for."""
        return [results.run.spec() for results in self.runs]

    @cached_property
    def dataset(self) -> str:
        """Return the name of the data."""
        return ", ".join(dict.fromkeys(str(spec.get("dataset", "data")) for spec in self.specs))

    @cached_property
    def models(self) -> list[str]:
        """Return the names of all models."""
        return list(dict.fromkeys(name for results in self.runs for name in results.counts.models))

    @cached_property
    def conditions(self) -> list[str]:
        """Return the names of all conditions."""
        return list(dict.fromkeys(name for results in self.runs for name in results.counts.conditions))

    @cached_property
    def records(self) -> list[dict[str, Any] | None]:
        """Return each run's declaration with what was measured under it, or None."""
        return [attached(results.run) for results in self.runs]

    @cached_property
    def faults(self) -> list[list[str]]:
        """Return how each run and its rows differ from its declaration; empty where it has none."""
        return [
            deviations(record) + row_deviations(results.run, record) if record else []
            for results, record in zip(self.runs, self.records, strict=True)
        ]

    def protocol(self, number: int) -> dict[str, Any]:
        """Return the protocol of a run; empty where none was declared."""
        record = self.records[number]
        return dict(record["declaration"].get("protocol", {})) if record else {}

    def outcome(self, results: Results) -> Any:
        """Return which answers count as right in a run: as its protocol says, else among all outputs of a model."""
        return self.protocol(list(self.runs).index(results)).get("outcome", "full")

    def frames(self, make: Callable[[Results], pd.DataFrame]) -> pd.DataFrame:
        """Return a table of all runs; runs that do not allow it are left out."""
        frames = []
        for results in self.runs:
            try:
                frames.append(make(results))
            except HoldfastError:
                continue
        return pd.concat([pd.DataFrame(frame) for frame in frames], ignore_index=True) if frames else pd.DataFrame()
