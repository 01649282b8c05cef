"""``--fast`` by workers that share nothing with who plans: the same rows, however often a piece is done."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sharded_world import Carried, StoppedError, assert_same, rows_of

from holdfast.core.errors import UserError
from holdfast.models import load_classifier
from holdfast.pipeline import classifiers as evaluation
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.fast import run as elsewhere
from holdfast.pipeline.fast.rows import Writer
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
    assert pieces == 2 * elsewhere.PIECES - 1 and len(ordinary) == 2  # 13 images: three each, one left
    # Every other piece was done twice, by two workers.
    assert len(there.predictions.paths()) == pieces + sum(ordinary)
    assert carried.heaviest < 100_000, "neither networks nor hashes travel with the work"


@pytest.mark.slow  # two processes import torch and their model
def test_two_gpus_share_the_photos(spec: EvaluateSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(spec, models=spec.models[1:], scenarios="original,grey")
    here, _ = evaluate(spec, tmp_path / "here")
    monkeypatch.setattr(elsewhere, "several_gpus", lambda _: ("0", "1"))  # of which the CPU takes no notice
    there, _ = evaluate(spec, tmp_path / "there")
    assert_same(rows_of(here), rows_of(there))
    assert len(there.predictions.paths()) == 2 * elsewhere.PIECES - 1  # not one: pieces went to both processes


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


class Failing(Carried):
    """The first piece of the pass ends with an error on its worker, which continues with the next."""

    def map(self, work: Any, shards: Any) -> Iterator[Any]:
        work, first = pickle.loads(pickle.dumps(work)), True
        for shard in shards:
            if first and isinstance(shard, elsewhere.Piece):
                with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
                    patch.setattr(Writer, "_send", lambda _: 1 // 0)  # when its answers are there
                    work(shard)
            first = False
            yield work(shard)


@pytest.mark.parametrize("processes", [0, 1])
def test_a_piece_that_failed_leaves_nothing_to_the_next(processes: int, spec: EvaluateSpec, tmp_path: Path) -> None:
    here, _ = evaluate(spec, tmp_path / "here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.pipeline.fast.device_pass.decoding_processes", lambda *_: processes)
        there, summary = evaluate(spec, tmp_path / "there", executor=Failing())
    assert summary.rows == there.rows().num_rows
    assert_same(rows_of(here), rows_of(there))


def test_who_plans_keeps_no_model_and_sends_no_names(
    spec: EvaluateSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[weakref.ref[Any]] = []

    def remembered(*words: Any, **options: Any) -> Any:
        classifier = load_classifier(*words, **options)
        loaded.append(weakref.ref(classifier))
        return classifier

    class Looking(Carried):
        def map(self, work: Any, shards: Any) -> Iterator[Any]:
            gc.collect()
            assert loaded and not [one for one in loaded if one() is not None]
            work = pickle.loads(pickle.dumps(work))
            for shard in shards:
                if isinstance(shard, elsewhere.Piece):
                    assert not any(job.ids for job in shard.jobs)
                yield work(shard)

    monkeypatch.setattr(evaluation, "load_classifier", remembered)
    run, summary = evaluate(spec, tmp_path / "run", executor=Looking())
    run.predictions.drop_ids(run.rows(["row_id"])["row_id"].to_pylist()[::5])  # names tell which are left
    _, again = evaluate(spec, tmp_path / "run", executor=Looking())
    assert 0 < again.rows < summary.rows and again.already + again.rows == summary.rows


def test_decoding_and_writing_in_processes_of_the_worker(spec: EvaluateSpec, tmp_path: Path) -> None:
    """As on a GPU: the memory that images are in, and the processes, serve one piece after the other."""
    here, _ = evaluate(spec, tmp_path / "here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.pipeline.fast.device_pass.decoding_processes", lambda *_: 1)
        patch.setattr("holdfast.pipeline.fast.decoding.SPARE", 0)  # two pieces of memory for five of work
        patch.setattr("holdfast.pipeline.fast.device_pass.unit_size", lambda _: 1)
        there, _ = evaluate(spec, tmp_path / "there", executor=Carried())
    assert_same(rows_of(here), rows_of(there))


def test_a_worker_with_other_weights_refuses(spec: EvaluateSpec, tmp_path: Path) -> None:
    class Other(Carried):
        def map(self, work, shards):  # type: ignore[no-untyped-def]
            work = pickle.loads(pickle.dumps(work))
            for shard in shards:
                if isinstance(shard, elsewhere.Piece):
                    worker, model = work._work._worker, spec.models[1].replace("seed=1", "seed=2")
                    worker._spec = replace(worker._spec, models=(spec.models[0], model))
                yield work(shard)

    with pytest.raises(UserError, match="is not the same on a worker"):
        evaluate(spec, tmp_path / "run", executor=Other())
