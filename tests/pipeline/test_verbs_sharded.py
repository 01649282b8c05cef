"""perturb, generate, mine, train and segment in shards: the same as in one process, also where shards come twice."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mine_world
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from generate_world import Toy
from killed import weight_hashes
from mine_world import SURROGATES, TARGETS, CodedMaker, make_pool
from sharded_world import Carried, StoppedError, assert_same, in_order, pictures, rows_of

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.engine import LocalExecutor
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.generate.generate import GenerateSpec, generate
from holdfast.pipeline.generate.plan import plan_prompts
from holdfast.pipeline.hard.mine import mine
from holdfast.pipeline.hard.pool import MineSpec
from holdfast.pipeline.jobs.execute import shard_size
from holdfast.pipeline.mask import MaskSpec, make_masks
from holdfast.pipeline.segment.segment import SegmentSpec, segment
from holdfast.pipeline.specs import PerturbSpec, WalkOptions
from holdfast.pipeline.synth.synth import SynthSpec, synth
from holdfast.pipeline.train.plan import TrainSpec
from holdfast.pipeline.train.train import train
from holdfast.pipeline.walk.perturb import perturb
from shapes import CLASSES, make_photos

SMALL = 200_000
"""Bytes that no work needs to travel, and that every model has more of."""


def test_shards_are_a_few_batches_or_enough_for_every_worker() -> None:
    four = LocalExecutor(4)
    assert shard_size(100_000, four, 32) == 128
    assert shard_size(120, four, 32) == 10 and shard_size(3, four, 32) == 1 and shard_size(0, four, 32) == 1


def test_walks_in_shards_are_those_of_one_process(tmp_path: Path) -> None:
    spec = PerturbSpec(
        "diorama:test?n=3", models=("embedded:resnet_rho0", "embedded:mobilenet_rho95"), generator="pixel:",
        oracle="classifier:embedded:resnet_rho95", keep_images=True, keep_latents=True, frames=2, device="cpu",
        walk=WalkOptions(steps=2, step_size=0.02, batch_size=2, deterministic=True),
    )  # fmt: skip
    one, summary = perturb(spec, tmp_path / "one")
    elsewhere = Carried()
    told: list[tuple[str, int, int]] = []
    other, carried = perturb(spec, tmp_path / "other", executor=elsewhere, progress=lambda *words: told.append(words))
    assert elsewhere.heaviest < SMALL and elsewhere.done[0] > 4
    assert_same(rows_of(one), rows_of(other))
    for ours, theirs in ((one.details(name), other.details(name)) for name in ("walks", "frames", "latents")):
        assert_same(in_order(ours.rows()), in_order(theirs.rows()))
    framed = {row["row_id"] for row in in_order(other.details("frames").rows())}
    assert len(framed) == 2 * 2  # the first samples of each model, not of each shard
    assert pictures(one.path) == pictures(other.path) and pictures(one.path)
    assert (carried.rows, carried.trouble) == (summary.rows, summary.trouble)
    assert pq.read_table(one.path / "images" / "manifest.parquet") == pq.read_table(
        other.path / "images" / "manifest.parquet"
    )
    assert ("walk", 18, 18) in told and told[-1][1] == told[-1][2]


def test_walks_that_were_left_in_the_middle_go_on(tmp_path: Path) -> None:
    spec = PerturbSpec(
        "diorama:test?n=6", models=("embedded:resnet_rho0",), generator="pixel:",
        oracle="classifier:embedded:resnet_rho95", device="cpu",
        walk=WalkOptions(steps=1, step_size=0.02, batch_size=1, deterministic=True),
    )  # fmt: skip
    with pytest.raises(StoppedError):
        perturb(spec, tmp_path / "run", executor=Carried(answers=3))
    run, summary = perturb(spec, tmp_path / "run", executor=Carried())
    rows = rows_of(run)
    assert len({row["row_id"] for row in rows}) == len(rows) == 4 * 6 and summary.already >= 3 * 3
    assert_same(rows, rows_of(perturb(spec, tmp_path / "whole")[0]))


class InCompany(Toy):
    """Every image depends on all others of its batch, more than any real generator's do."""

    name = "company:"
    black: frozenset[int] = frozenset()

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[np.ndarray]:
        together = [f"{prompt} among {list(prompts)}" for prompt in prompts]
        self.black_seeds = set(InCompany.black)
        return super().generate(together, seeds)


@pytest.fixture
def company() -> Iterator[str]:
    registry.image_makers.register("company", lambda name, device: InCompany(), summary="for this test")
    yield "company:"
    registry.image_makers.remove("company")
    InCompany.black = frozenset()


def pool_rows(pool: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(pool / "manifest.parquet").to_pylist()
    return [{key: value for key, value in row.items() if key not in ("seconds", "made_at")} for row in rows]


def test_images_in_shards_are_the_same_to_the_last_bit(company: str, tmp_path: Path) -> None:
    spec = GenerateSpec(company, categories="diorama", nuisances="diorama", limit=75, batch_size=4)
    InCompany.black = frozenset({plan_prompts(spec).requests[9].seed()})
    summary = generate(spec, tmp_path / "one")
    elsewhere = Carried()
    carried = generate(spec, tmp_path / "other", executor=elsewhere)
    assert elsewhere.done[1] > 3 and elsewhere.heaviest < SMALL
    assert pictures(tmp_path / "one") == pictures(tmp_path / "other") and len(pictures(tmp_path / "one")) == 75
    assert pool_rows(tmp_path / "one") == pool_rows(tmp_path / "other")
    assert (summary.rows, summary.trouble) == (carried.rows, carried.trouble) and len(carried.trouble) == 1
    assert (tmp_path / "other" / "failed.csv").is_file()
    specs = [(tmp_path / out / "spec.json").read_text() for out in ("one", "other")]
    assert specs[0] == specs[1]  # who did the work is not part of what was asked for


def test_images_are_the_same_where_shards_are_missing_in_the_middle(company: str, tmp_path: Path) -> None:
    spec = GenerateSpec(company, categories="diorama", nuisances="diorama", limit=75, batch_size=4)
    generate(spec, tmp_path / "one")
    with pytest.raises(StoppedError):
        generate(spec, tmp_path / "other", executor=Carried(answers=3))
    assert 0 < len(pictures(tmp_path / "other")) < 75
    assert generate(spec, tmp_path / "other").already
    assert pictures(tmp_path / "one") == pictures(tmp_path / "other")
    assert pool_rows(tmp_path / "one") == pool_rows(tmp_path / "other")


def test_a_worker_with_other_weights_is_told(company: str, tmp_path: Path) -> None:
    loaded: list[InCompany] = []

    def load(name: object, device: str) -> InCompany:
        loaded.append(InCompany(weights=str(len(loaded))))
        return loaded[-1]

    registry.image_makers.register("changing", load, summary="for this test")
    spec = GenerateSpec("changing:", categories="diorama", nuisances="diorama", limit=9, batch_size=4)
    try:
        with pytest.raises(UserError, match="changing: is not the same on a worker"):
            generate(spec, tmp_path / "pool", executor=Carried())
    finally:
        registry.image_makers.remove("changing")


@pytest.fixture
def coded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = mine_world.write_models(tmp_path / "modules")
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("coded", None)
    registry.image_makers.register("coded", lambda name, device: CodedMaker(), summary="the test world's")
    yield
    registry.image_makers.remove("coded")


def test_mining_in_shards_finds_the_same(coded: None, tmp_path: Path) -> None:
    pool = make_pool(tmp_path / "pool")
    surrogates, targets = (tuple(f"python:coded:{name}" for name in names) for names in (SURROGATES, TARGETS))
    spec = MineSpec(
        str(pool), surrogates, targets, "classifier:python:coded:judge", at_least=3, use=4, again=2, batch_size=4,
        device="cpu",
    )  # fmt: skip
    one = mine(spec, tmp_path / "one")
    elsewhere = Carried()
    other = mine(spec, tmp_path / "other", executor=elsewhere)
    classified, judged, known, *later = elsewhere.done  # later: painted, classified, judged
    assert known == 1 and len(later) == 3 and min(classified, judged, *later) >= 2
    for name in ("manifest.parquet", "mining/selection.parquet", "mining/answers.parquet"):
        pd.testing.assert_frame_equal(*(pd.read_parquet(tmp_path / out / name) for out in ("one", "other")))
    assert pictures(tmp_path / "one") == pictures(tmp_path / "other")
    for name, table in one.tables.items():
        pd.testing.assert_frame_equal(table, other.tables[name])
    assert {**one.facts, "environment": 0} == {**other.facts, "environment": 0} and one.facts["again"]
    verdicts = pq.read_table(tmp_path / "other" / "mining" / "oracle")["row_id"].to_pylist()
    assert len(verdicts) == len(set(verdicts))


def test_jobs_of_a_training_elsewhere_end_in_the_same_weights(tmp_path: Path) -> None:
    spec = TrainSpec(
        str(make_photos(tmp_path / "photos")), architectures=("timm:test_resnet",), scenarios="original,grey", folds=2,
        epochs=1, size=32, batch_size=4, device="cpu",
    )  # fmt: skip
    one, summary = train(spec, tmp_path / "one")
    elsewhere = Carried()
    other, carried = train(spec, tmp_path / "other", executor=elsewhere)
    assert elsewhere.done == [4] and elsewhere.heaviest < SMALL
    assert weight_hashes(one.path / "models") == weight_hashes(other.path / "models")
    assert_same(rows_of(one), rows_of(other))
    assert carried.rows == summary.rows == 3 * 12
    jobs = [
        pq.read_table(run.path / "jobs.parquet").drop_columns(["seconds"]).sort_by("job").to_pylist()
        for run in (one, other)
    ]
    assert jobs[0] == jobs[1] and len(jobs[0]) == 4
    curves = [pq.read_table(run.path / "curves").drop_columns(["seconds"]).num_rows for run in (one, other)]
    assert curves[0] == curves[1] == 4 * 2


def test_segmenters_in_shards_answer_the_same(tmp_path: Path) -> None:
    spec = SegmentSpec("diorama:test?n=24", models=("embedded:unet",), scenarios="original,grey", size=64, device="cpu")
    one, summary = segment(spec, tmp_path / "one")
    elsewhere = Carried()
    other, carried = segment(spec, tmp_path / "other", executor=elsewhere)
    assert elsewhere.done == [6] and elsewhere.heaviest < SMALL
    assert_same(rows_of(one), rows_of(other))
    assert_same(in_order(one.details("segments").rows()), in_order(other.details("segments").rows()))
    assert pictures(one.path) == pictures(other.path) and pictures(one.path)
    assert carried.rows == summary.rows == 48


class Blind(Carried):
    """Workers of a machine without the disk on which the images are."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def map(self, work: Any, shards: Any) -> Iterator[Any]:
        self.folder.rename(self.folder.with_name("elsewhere"))
        yield from super().map(work, shards)


def verbs(data: str, model: str) -> dict[str, Any]:
    """Everything that workers read images for."""
    fit = {"folds": 2, "epochs": 1, "size": 32, "device": "cpu"}
    walks = PerturbSpec(
        data, models=(model,), generator="pixel:", oracle=f"classifier:{model}", device="cpu",
        walk=WalkOptions(steps=1, step_size=0.02),
    )  # fmt: skip
    return {
        "eval": partial(evaluate, EvaluateSpec(data, models=(model,), device="cpu")),
        "eval --fast": partial(evaluate, EvaluateSpec(data, models=(model,), device="cpu", fast=True)),
        "synth": partial(synth, SynthSpec(data)),
        "mask": partial(make_masks, MaskSpec(data, annotator="threshold")),
        "perturb": partial(perturb, walks),
        "train": partial(train, TrainSpec(data, architectures=("timm:test_resnet",), **fit)),  # type: ignore[arg-type]
        "segment": partial(segment, SegmentSpec(data, architectures=("smp:Unet@resnet18",), **fit)),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("verb", verbs("", ""))
def test_a_machine_without_the_images_is_told_so(verb: str, tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos")
    (tmp_path / "labels.txt").write_text("\n".join(CLASSES))
    model = f"timm:test_resnet?pretrained=false&num_classes=3&seed=1&size=32&labels={tmp_path}/labels.txt"
    with pytest.raises(UserError, match=r"the worker on .* does not see .*photos.*same path on every machine"):
        verbs(str(photos), model)[verb](tmp_path / "out", executor=Blind(photos))


@pytest.mark.parametrize("verb", ["eval", "eval --fast", "synth", "train", "segment"])
def test_so_is_one_without_the_backgrounds(verb: str, tmp_path: Path) -> None:
    photos, lenders = make_photos(tmp_path / "photos"), make_photos(tmp_path / "lenders")
    (tmp_path / "labels.txt").write_text("\n".join(CLASSES))
    model = f"timm:test_resnet?pretrained=false&num_classes=3&seed=1&size=32&labels={tmp_path}/labels.txt"
    made = verbs(str(photos), model)[verb]
    spec = replace(made.args[0], backgrounds=str(lenders))
    with pytest.raises(UserError, match=r"does not see .*lenders.*same path on every machine"):
        made.func(spec, tmp_path / "out", executor=Blind(lenders))


def test_so_is_one_without_the_masks(tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos")
    with pytest.raises(UserError, match=r"does not see .*masks.*same path on every machine"):
        synth(SynthSpec(str(photos)), tmp_path / "out", executor=Blind(photos / "masks"))
