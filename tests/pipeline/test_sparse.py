"""The sparse latent: masks found on latents whose moving part is known, and used by walks."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.numpy import save_file

from holdfast.core.errors import UserError
from holdfast.core.schema import LATENTS
from holdfast.data import load_collection
from holdfast.generators import load_generator
from holdfast.pipeline.specs import PerturbSpec, WalkOptions
from holdfast.pipeline.walk.perturb import perturb
from holdfast.pipeline.walk.sparse import SparseMask, fit_sparse, overlap, read_mask, write_mask
from holdfast.store import Parts, Run

SPEC = PerturbSpec(
    "diorama:test?n=10",
    models=("embedded:resnet_rho0",),
    generator="pixel:",
    oracle="clip:embedded",
    random_walk=False,
    walk=WalkOptions(steps=2, step_size=0.004),
)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return perturb(replace(SPEC, keep_latents=True), tmp_path_factory.mktemp("walked") / "run")[0].path


@pytest.fixture
def run(walked: Path, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(walked, tmp_path / "run"))


def plant(run: Run, *, moved: list[int], rounding: list[int]) -> None:
    """Latents in a run's place: noise in which the walk moved some dimensions, and the quantiser others."""
    parts = Parts(run.path / "details" / "latents", LATENTS)
    ids = sorted(parts.stored_ids())
    parts.drop_ids(ids)
    rng = np.random.default_rng(0)
    rows = []
    for one in ids:
        start = rng.normal(size=40).astype(np.float32) * 0.1
        quantised, end = start.copy(), start.copy()
        quantised[rounding] += 1
        end[rounding] += 1
        end[moved] += 1
        rows.append({"row_id": one, "shape": [4, 10], "start": start, "start_quantised": quantised, "end": end})
    parts.write(pa.Table.from_pylist(rows, schema=LATENTS))


def test_the_mask_holds_what_walks_moved_and_matched_labels_leave_quantisation_out(run: Run) -> None:
    plant(run, moved=[3, 17], rounding=[30])
    paper, matched = (fit_sparse(run, labels=labels, strength=1.0) for labels in ("paper", "matched"))
    assert set(np.flatnonzero(paper.mask)) == {3, 17, 30}
    assert set(np.flatnonzero(matched.mask)) == {3, 17}
    assert matched.mask.shape == (4, 10)
    assert matched.facts["test_score"] == 1.0 and matched.facts["sparsity"] == pytest.approx(0.95)
    assert matched.facts["C"] == 1.0 and matched.facts["generator"] == "pixel:"
    found = overlap(paper, matched)
    assert found["jaccard"] == pytest.approx(2 / 3)
    assert found["by_chance"] == pytest.approx((3 * 2 / 40) / (5 - 3 * 2 / 40))


def test_noise_is_told_apart_no_better_than_by_chance(run: Run) -> None:
    plant(run, moved=[], rounding=[])
    with pytest.raises(UserError, match="smaller --strength"):
        fit_sparse(run)  # nothing moved, so at the published strength nothing is left


def test_latents_of_a_run_are_the_ends_of_its_walks(run: Run) -> None:
    rows = Parts(run.path / "details" / "latents", LATENTS).rows().to_pylist()
    assert len(rows) == 10 and rows[0]["shape"] == [3, 64, 64]
    for row in rows:
        apart = np.abs(np.array(row["end"]) - np.array(row["start"]))
        assert 0.004 <= apart.max() <= 0.008 + 1e-6 and row["start_quantised"] is None


def test_ends_are_stored_as_codes_where_the_generator_has_codes(tmp_path: Path) -> None:
    spec = replace(SPEC, data="diorama:test?n=2", generator="embedded:vqgan", keep_latents=True)
    run, _ = perturb(replace(spec, walk=replace(SPEC.walk, steps=1)), tmp_path / "run")
    generator = load_generator("embedded:vqgan", device="cpu")
    codes = generator.module.quantize.embedding.weight.numpy()  # type: ignore[attr-defined]
    rows = Parts(run.path / "details" / "latents", LATENTS).rows().to_pylist()
    images = [sample.image.load() for sample in load_collection(spec.data).samples]
    encoded = generator.encode(torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255).numpy()
    assert len(rows) == 2
    for row in rows:
        start, quantised, end = (
            np.array(row[name], np.float32).reshape(row["shape"]) for name in ("start", "start_quantised", "end")
        )
        assert min(np.abs(start - one).max() for one in encoded) < 1e-4
        for latent, is_code in ((start, False), (quantised, True), (end, True)):
            cells = latent.reshape(len(latent), -1).T
            nearest = np.linalg.norm(cells[:, None] - codes[None], axis=2).min(1)
            assert (nearest.max() < 1e-4) == is_code


def test_a_walk_moves_only_what_the_mask_allows(run: Run, tmp_path: Path) -> None:
    told = run.spec()["parameters"]
    allowed = np.random.default_rng(0).random((3, 64, 64)) < 0.02
    mask = SparseMask(allowed, {name: told[name] for name in ("generator", "generator_fingerprint")})
    file = tmp_path / "mask.safetensors"
    write_mask(mask, file)
    read = read_mask(file)
    assert (read.mask == mask.mask).all() and read.facts == mask.facts
    sparse, _ = perturb(replace(SPEC, sparse=str(file), keep_latents=True), tmp_path / "sparse")
    rows = Parts(sparse.path / "details" / "latents", LATENTS).rows().to_pylist()
    for row in rows:
        moved = np.array(row["end"]) != np.array(row["start"])
        assert moved.any() and not (moved & ~mask.mask.ravel()).any()
    assert sparse.spec()["parameters"]["sparse"] == mask.fingerprint[:16]
    with pytest.raises(UserError, match="no validated walk without a mask"):
        fit_sparse(sparse)
    # A row of a sparse walk is another row than the dense one's.
    assert sparse.spec()["parameters"] != told


def test_what_is_no_mask_or_another_generators_is_a_sentence(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mask.safetensors"
    facts = {"generator": "vqgan:other", "generator_fingerprint": "0" * 16}
    write_mask(SparseMask(np.ones((3, 64, 64), bool), facts), file)
    with pytest.raises(UserError, match="fitted to vqgan:other"):
        perturb(replace(SPEC, sparse=str(file)), tmp_path / "sparse")
    file.write_bytes(b"no tensors here")
    with pytest.raises(UserError, match="is not a mask of holdfast perturb --find-sparse"):
        read_mask(file)
    save_file({"mask": np.zeros((2, 2), np.uint8)}, file, metadata={"holdfast": json.dumps(facts)})
    with pytest.raises(UserError, match="nothing move"):
        read_mask(file)
    save_file({"weights": np.zeros((2, 2), np.uint8)}, file)
    with pytest.raises(UserError, match="is not a mask of holdfast perturb --find-sparse"):
        read_mask(file)
    with pytest.raises(UserError, match="did you mean matched"):
        fit_sparse(run, labels="mached")
    with pytest.raises(UserError, match="above 0"):
        fit_sparse(run, strength=0)
    with pytest.raises(UserError, match="no validated walk against nobody"):
        fit_sparse(run, model="nobody")
    plain, _ = perturb(replace(SPEC, limit=2), tmp_path / "plain")
    with pytest.raises(UserError, match="--keep-latents"):
        fit_sparse(plain)
    one = SparseMask(np.ones(3, bool), {})
    with pytest.raises(UserError, match="the same latents"):
        overlap(one, SparseMask(np.ones(4, bool), {}))
