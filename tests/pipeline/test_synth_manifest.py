"""The manifest of a large synth is written a condition at a time: it must be the one that is written at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from holdfast.pipeline import synth_files
from holdfast.pipeline.synth import make_spec, synth


def test_a_condition_at_a_time_is_the_same(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec(data=str(photos), scenarios="grey,blur_background@2,original,blur_background", workers=1)
    synth(spec, tmp_path / "at once")
    monkeypatch.setattr(synth_files, "AT_ONCE", 1)
    synth(spec, tmp_path / "by condition")
    one, other = (pq.read_table(tmp_path / name / "manifest.parquet") for name in ("at once", "by condition"))
    assert one.equals(other) and one.num_rows == 48
    documents = sorted(path.name for path in (tmp_path / "at once" / "coco").iterdir())
    assert len(documents) == 4
    for name in ("manifest.csv", *(f"coco/{document}" for document in documents)):
        assert (tmp_path / "at once" / name).read_bytes() == (tmp_path / "by condition" / name).read_bytes(), name
