"""What a large synth plans and writes down: the same as a small one, and never all of it in memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from holdfast.core.types import Collection, Sample
from holdfast.data.images import FileImage
from holdfast.pipeline.jobs.plan import plan
from holdfast.pipeline.samples import Prepared
from holdfast.pipeline.synth import files as synth_files
from holdfast.pipeline.synth.files import MANIFEST
from holdfast.pipeline.synth.synth import WantedRenderings, make_spec, synth
from holdfast.scenarios import parse_conditions
from holdfast.store import Parts


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


def test_a_plan_takes_no_memory_for_what_is_still_to_be_made(tmp_path: Path) -> None:
    samples = tuple(Sample(f"{number}", "a", FileImage("x")) for number in range(600))
    hashes = {sample.sample_id: "0" * 64 for sample in samples}
    prepared = Prepared(Collection("data", ("a",), samples), hashes, hashes, {}, SimpleNamespace(tools=None), "")  # type: ignore[arg-type]
    spec = make_spec(data="data")
    tracemalloc.start()
    try:
        wanted = WantedRenderings(spec, prepared, parse_conditions("static"), None)
        todo = plan(Parts(tmp_path, MANIFEST), wanted, wanted.row_ids)
        sizes = [[len(job.ids) for job in jobs] for jobs in todo.shards(32)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (todo.owed, todo.already) == (600 * 13, 0)
    assert len(sizes) == 19 and {len(size) for size in sizes[:-1]} == {32} and sum(map(sum, sizes)) == todo.owed
    assert peak < 600_000  # the ids alone of all renderings are 0.8 million bytes long


@pytest.mark.parametrize("format", ["png", "webdataset"])
def test_what_changed_is_made_again_and_nothing_else(photos: Path, tmp_path: Path, format: str) -> None:
    spec = make_spec(data=str(photos), scenarios="grey,red", workers=1, format=format)
    synth(replace(spec, scenarios="grey,red,blue"), tmp_path / "out")
    image, other = photos / "images" / "disc" / "0.png", photos / "images" / "disc" / "1.png"
    image.write_bytes(other.read_bytes())
    summary = synth(spec, tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "manifest.parquet").to_pylist()
    assert len(rows) == len({row["sample_id"] for row in rows})
    changed = [row for row in rows if row["source_id"] == "disc/0"]
    if format == "png":  # what was not asked for this time stays as it is
        assert (summary.rows, summary.already, len(rows), len(changed)) == (2, 22, 36, 3)
    else:  # the shard goes as a whole, and what was asked for comes back
        assert (summary.rows, summary.already, len(rows), len(changed)) == (24, 0, 24, 2)
        assert [path.name for path in (tmp_path / "out").glob("*.tar")] == ["shard-000000.tar"]
