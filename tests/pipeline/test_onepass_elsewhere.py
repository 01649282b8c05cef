"""``--fast`` by workers that share nothing with who plans: the same rows, however often a piece is done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sharded_world import Carried, StoppedError, assert_same, rows_of

from holdfast.core.errors import UserError
from holdfast.pipeline.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.onepass import elsewhere
from shapes import CLASSES


@pytest.fixture
def spec(photos: Path, toy_models: str, tmp_path: Path) -> EvaluateSpec:
    (tmp_path / "labels.txt").write_text("\n".join(CLASSES))
    (photos / "images/disc/broken.png").write_bytes(b"this is no picture")
    network = f"timm:test_resnet?pretrained=false&num_classes=3&seed=1&size=32&labels={tmp_path}/labels.txt"
    return EvaluateSpec(
        str(photos), models=(f"{toy_models}:colour", network), scenarios="all", device="cpu", batch_size=7, fast=True
    )


def test_rows_are_those_of_this_machine_and_each_piece_is_one_part(spec: EvaluateSpec, tmp_path: Path) -> None:
    here, summary = evaluate(spec, tmp_path / "here")
    carried = Carried()
    there, other = evaluate(replace(spec, workers=2), tmp_path / "there", executor=carried)
    assert_same(rows_of(here), rows_of(there))
    assert (summary.rows, summary.trouble, summary.notes) == (other.rows, other.trouble, other.notes)
    pieces, *ordinary = carried.done  # the pass, then the conditions and the model that cannot go through it
    assert pieces == 2 * elsewhere.PIECES - 1 and len(ordinary) == 2  # 13 photos: three each, one left
    # Every other piece was done twice, by two workers.
    assert len(there.predictions.paths()) == pieces + sum(ordinary)
    assert carried.heaviest < 100_000, "neither networks nor hashes travel with the work"


def test_what_is_cut_short_goes_on(spec: EvaluateSpec, tmp_path: Path) -> None:
    whole, _ = evaluate(spec, tmp_path / "whole")
    with pytest.raises(StoppedError):
        evaluate(spec, tmp_path / "run", executor=Carried(answers=3))
    stored = sum(pq.read_metadata(path).num_rows for path in (tmp_path / "run/predictions").glob("part-*.parquet"))
    run, summary = evaluate(spec, tmp_path / "run", executor=Carried())
    assert 0 < stored == summary.already
    assert_same(rows_of(whole), rows_of(run))
    # Single rows are lost: those, and no others, are made again.
    lost = run.rows(["row_id"])["row_id"].to_pylist()[::5]
    run.predictions.drop_ids(lost)
    _, summary = evaluate(spec, tmp_path / "run", executor=Carried())
    assert summary.rows == len(lost)
    assert_same(rows_of(whole), rows_of(run))


def test_decoding_and_writing_in_processes_of_the_worker(spec: EvaluateSpec, tmp_path: Path) -> None:
    """As on a GPU: the memory that pictures lie in, and the processes, serve one piece after the other."""
    here, _ = evaluate(spec, tmp_path / "here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.pipeline.onepass.passing._processes", lambda *_: 1)
        patch.setattr("holdfast.pipeline.onepass.arrival.SPARE", 0)  # two pieces of memory for five of work
        patch.setattr("holdfast.pipeline.onepass.passing._unit_size", lambda _: 1)
        there, _ = evaluate(spec, tmp_path / "there", executor=Carried())
    assert_same(rows_of(here), rows_of(there))


def test_a_worker_with_other_weights_refuses(spec: EvaluateSpec, tmp_path: Path) -> None:
    class Other(Carried):
        def map(self, work, shards):  # type: ignore[no-untyped-def]
            for shard in shards:
                if isinstance(shard, elsewhere.Piece):
                    model = spec.models[1].replace("seed=1", "seed=2")
                    work._work._spec = replace(work._work._spec, models=(spec.models[0], model))
                yield work(shard)

    with pytest.raises(UserError, match="is not the same on a worker"):
        evaluate(spec, tmp_path / "run", executor=Other())
