"""JSON files that commands leave for themselves: one that is damaged is named in a sentence, and may be deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from holdfast.core.errors import UserError
from holdfast.pipeline import painted
from holdfast.pipeline.hard import publish, remedy
from holdfast.pipeline.train import fitting
from holdfast.pipeline.train.train import write_jobs
from holdfast.results import Results
from holdfast.store import Run
from holdfast_people import export
from holdfast_studies.drawn import small_models
from holdfast_studies.walking import transfer

READERS: dict[str, Callable[[Path], Any]] = {
    "jobs/net/original/fold-0/job.json": lambda root: write_jobs(Run(root)),
    "model/config.json": lambda root: fitting.trained_as(root / "model", "identity"),
    "remedied/config.json": lambda root: remedy.trained_as(root / "remedied", {}),
    "small/config.json": lambda root: small_models.facts_of(root / "small"),
    "rejected.json": lambda root: painted._rejection(root / "rejected.json"),
    "begun.json": lambda root: export._remove_stale(root, set()),
    "mining/begun.json": lambda root: publish._remove_stale(root, set()),
}


@pytest.mark.parametrize("text", ['{"job": "a"', "", "[1]", "[" * 100_000, "\0" * 40, '{"job": "\xff'])
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_record_is_named(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "README.md").write_text("a model")
    file.write_bytes(text.encode("latin1"))
    with pytest.raises(UserError, match=rf"{file.name} is damaged .* delete it"):
        READERS[name](tmp_path)
    file.unlink()
    if not name.startswith("small"):  # others do without it
        READERS[name](tmp_path)


def test_a_damaged_list_of_perturbed_copies_is_named(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "manifest.parquet").write_bytes(b"PAR1" + bytes(40))
    with pytest.raises(UserError, match=r"manifest\.parquet is damaged"):
        transfer.side_by_side(SimpleNamespace(), Results(Run(tmp_path)), pd.DataFrame(), {})  # type: ignore[arg-type]


def test_a_record_with_values_of_another_kind_is_named(tmp_path: Path) -> None:
    file = tmp_path / "jobs" / "net" / "job.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"job": "net", "epochs": "many"}')
    with pytest.raises(UserError, match=r"job\.json is damaged"):
        write_jobs(Run(tmp_path))
