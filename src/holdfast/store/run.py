"""A run directory: what was asked for, on which samples, and every finished row.

``spec.json``, ``environment.json``, ``samples.parquet``, ``predictions/part-*.parquet``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.places import is_file, shown
from holdfast.core.schema import PREDICTIONS, SAMPLES
from holdfast.store.parts import Parts, read_table, write_json, write_table
from holdfast.store.remote import fetched


class Run:
    """A run directory. Reading needs no lock; a writer holds ``writing(run.path)``."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.predictions = Parts(self.path / "predictions", PREDICTIONS)

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """Return the run at a path; a UserError if it is none."""
        if not is_file(f"{shown(path)}/spec.json"):  # looked for first: a store's folder of images is long to fetch
            raise UserError(f"{shown(path)} is not a run directory (it has no spec.json)")
        return cls(fetched(path))

    def begin(self, spec: Mapping[str, Any], *, same: tuple[str, ...] = ()) -> None:
        """Record what is asked for. An existing run must agree in the entries of ``same``, or rows would mix."""
        if (self.path / "spec.json").exists():
            old = self.spec()
            for name in same:
                before, now = old.get(name), spec.get(name)
                if before != now:
                    if isinstance(before, Mapping) and isinstance(now, Mapping):  # a recipe: what of it differs
                        before, now = (
                            {key: recipe.get(key) for key in now if before.get(key) != now.get(key)}
                            for recipe in (before, now)
                        )
                    raise UserError(
                        f"{self.path} holds a run whose {name} is {_short(before)}, not {_short(now)}; choose another "
                        "--out"
                    )
        write_json(self.path / "spec.json", spec)

    @property
    def run_id(self) -> str:
        """Return the directory's name."""
        return self.path.resolve().name

    def spec(self) -> dict[str, Any]:
        """Return what was asked for."""
        try:
            return dict(json.loads((self.path / "spec.json").read_text(encoding="utf8")))
        except (ValueError, TypeError, RecursionError) as error:
            raise UserError(f"{self.path / 'spec.json'} is not JSON of a specification: {error}") from error

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """Record the machine and the library versions."""
        write_json(self.path / "environment.json", environment)

    def write_samples(self, samples: pa.Table | pa.RecordBatchReader) -> None:
        """Record the samples and their fingerprints."""
        write_table(self.path / "samples.parquet", samples.cast(SAMPLES) if isinstance(samples, pa.Table) else samples)

    def samples(self) -> pa.Table:
        """Return the samples of this run; empty before the first plan."""
        path = self.path / "samples.parquet"
        return (
            read_table(path, SAMPLES, key=("sample_id",)).unify_dictionaries()
            if path.exists()
            else SAMPLES.empty_table()
        )

    def rows(self, columns: list[str] | None = None) -> pa.Table:
        """Return the one table, or some of its columns."""
        return self.predictions.rows(columns)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
