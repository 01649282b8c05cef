"""What a run of a million images holds in memory is small, and says the same as the plain way."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.fingerprint import fingerprint
from holdfast.core.types import Collection, Sample
from holdfast.data.images import FileImage
from holdfast.data.masks import FileMask
from holdfast.pipeline import samples
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.jobs import execute
from holdfast.pipeline.jobs.progress import silent, with_progress
from holdfast.pipeline.samples import Hashes, Prepared, prepare, read
from holdfast.pipeline.synth import files as synth_files
from holdfast.pipeline.synth.files import MANIFEST
from holdfast.pipeline.synth.synth import SynthSpec, make_spec, rendering_ids, synth
from holdfast.scenarios import parse_conditions
from holdfast.store import Parts, Run

ROOT = "a folder/whose name/is about as long/as those of people are"


def many(count: int) -> list[Sample]:
    """Of three classes, in no order."""
    order = np.random.default_rng(1).permutation(count).tolist()
    return [
        Sample(f"{'abc'[n % 3]}/ü{n}", "abc"[n % 3], FileImage(f"{ROOT}/{n}.png"), FileMask(f"{ROOT}/masks/{n}.png"))
        for n in order
    ]


@settings(max_examples=30)
@given(st.dictionaries(st.text(max_size=3), st.sampled_from(["", "12", "f" * 64, "F" * 64, "0" * 64, "ab" * 32, "ü"])))
def test_hashes_say_what_was_put_in(contents: dict[str, str]) -> None:
    hashes = Hashes({name: place for place, name in enumerate([*contents, "another name"])})
    for name, value in contents.items():
        hashes.put(name, "cd" * 32)
        hashes.put(name, value)
    assert dict(hashes) == contents | {"another name": ""}


def test_a_pool_is_named_by_all_that_is_in_it() -> None:
    pool = many(50)
    images, masks = ({one.sample_id: fingerprint([one.sample_id, kind]) for one in pool} for kind in "im")
    del masks["a/ü0"]
    own = sorted((s.sample_id, s.source_id, s.label, images[s.sample_id], masks.get(s.sample_id, "")) for s in pool)
    made = DonorPool(pool).fingerprint(images, masks)
    assert made == fingerprint([own, ""])
    assert DonorPool([], kin=DonorPool(pool)).fingerprint(images, masks) == fingerprint([[], made])


def test_a_large_pool_lends_the_same_in_another_process() -> None:
    pool = DonorPool(many(1200))
    assert isinstance(pickle.loads(pickle.dumps(DonorPool(many(90)))).samples, list)
    sent = pickle.dumps(pool)
    assert len(sent) < 0.7 * len(pickle.dumps(pool.samples))
    other: DonorPool = pickle.loads(sent)
    assert list(other.samples) == pool.samples and len(other.samples) == 1200
    assert [sample.sample_id for sample in pickle.loads(pickle.dumps(other)).samples] == [
        sample.sample_id for sample in pool.samples
    ]
    codes = np.array(["abc".index(sample.label) for sample in pool.samples])
    for seed in range(20):
        for borrower in (pool.samples[seed], replace(pool.samples[seed], label="of no class of the pool")):
            for same in (True, False):
                mine, theirs = (
                    [one.sample_id for one in each.candidates(borrower, np.random.default_rng(seed), same_class=same)]
                    for each in (pool, other)
                )
                assert mine == theirs and bool(mine) == (borrower.label in "abc" or not same)
            code = "abc".find(borrower.label)
            expected = np.random.default_rng(seed).permutation(np.flatnonzero(codes == code)).tolist()
            drawn = other.candidates(borrower, np.random.default_rng(seed), same_class=True)
            own = [pool.samples[one].sample_id for one in expected if pool.samples[one] is not pool.samples[seed]]
            assert [one.sample_id for one in drawn] == own


def test_names_of_renderings_are_hashes_of_canonical_json() -> None:
    collection = Collection("data", ("a", "b", "c"), tuple(many(3)))
    hashes = {one.sample_id: fingerprint(one.sample_id) for one in collection.samples}
    prepared = Prepared(collection, hashes, {**hashes, "a/ü0": ""}, {}, DonorPool(collection.samples), "the pool")
    conditions = parse_conditions("original,random_background,rainbow@4,blur_background?sigma=3")
    for sample in collection.samples:
        for format, quality in (("png", 0), ("jpeg", 90)):
            spec = SynthSpec("data", seed=3, format=format, quality=quality)
            made = rendering_ids(prepared, sample, conditions, None, spec)
            expected = [
                fingerprint({
                    "sample": [sample.sample_id, sample.source_id, sample.label, sample.split, -1, ""],
                    "image": hashes[sample.sample_id],
                    "mask": prepared.masks[sample.sample_id],
                    "pool": "the pool" if one.scenario == "random_background" else "",
                    "condition": [one.scenario, one.variant, one.parameters_json],
                    "seed": 3,
                    "encoding": [format, quality],
                })[:32]
                for one in conditions
            ]  # fmt: skip
            assert list(made) == expected


@pytest.mark.parametrize("sorted_by_id", [True, False])
def test_rows_come_in_order_whatever_parts_they_are_in(
    tmp_path: Path, sorted_by_id: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synth_files, "AT_ONCE", 40)
    rng = np.random.default_rng(0)
    numbers = np.arange(120) if sorted_by_id else rng.permutation(120)
    rows = [
        {"row_id": f"{scenario}{n}", "sample_id": f"{scenario}/{n:03d}", "scenario": scenario, "variant": variant}
        for n in numbers.tolist()
        for scenario, variant in (("red", "paper"), ("fog", "severity_2"), ("fog", "severity_10"))[: 3 if n % 5 else 1]
    ]
    parts = Parts(tmp_path / "manifest", MANIFEST)
    for start in range(0, len(rows), 21):
        parts.write(pa.Table.from_pylist(rows[start : start + 21], schema=MANIFEST))
    sizes, found = [], []
    for tables in synth_files.in_order(parts, tmp_path):
        for columns in (["sample_id"], ["variant", "sample_id", "scenario"]):
            some = list(tables(columns))
            assert all(table.column_names == columns for table in some)
            assert all(field.type == MANIFEST.field(field.name).type for table in some for field in table.schema)
        sizes += [len(table) for table in some]
        found += [row for table in some for row in table.to_pylist()]
    wanted = sorted(rows, key=lambda row: (row["scenario"], row["variant"], row["sample_id"]))
    assert found == [{name: row[name] for name in columns} for row in wanted]
    assert len(sizes) > 8 and max(sizes) <= 40
    assert [path.name for path in tmp_path.iterdir()] == ["manifest"]


def test_what_is_broken_is_found_part_by_part(photos: Path, tmp_path: Path) -> None:
    spec = make_spec(data=str(photos), scenarios="grey,red", workers=1)
    synth(spec, tmp_path / "out")
    broken, lost = (tmp_path / "out" / "grey" / "disc" / f"{number}.png" for number in (0, 1))
    before = broken.read_bytes()
    broken.write_bytes(b"other")
    lost.unlink()
    steps: list[tuple[str, int, int]] = []
    summary = synth(replace(spec, verify=True), tmp_path / "out", progress=lambda *step: steps.append(step))
    assert (summary.rows, summary.already, sum(summary.trouble.values())) == (2, 22, 2)
    assert broken.read_bytes() == before and lost.is_file()
    assert ("verify", 24, 24) in steps and ("compare", 12, 12) in steps and ("manifest", 24, 24) in steps


def test_rows_of_a_shard_are_the_same_some_at_a_time(
    photos: Path, tmp_path: Path, toy_models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[Any] = []
    spec = EvaluateSpec(str(photos), models=(f"{toy_models}:colour",), scenarios="grey,red", device="cpu")
    for together in (2000, 5):
        monkeypatch.setattr(execute, "_BATCH_ROWS", together)
        monkeypatch.setattr(samples, "_TABLE_ROWS", together)
        run, _ = evaluate(spec, tmp_path / str(together) / "run")
        tables.append([(path.name, pq.read_table(path)) for path in run.predictions.paths()])
        tables[-1].append(("samples", Run(run.path).samples()))
    assert [name for name, _ in tables[0]] == [name for name, _ in tables[1]]
    for (name, one), (_, other) in zip(*tables, strict=True):
        assert one.equals(other), name


def test_a_step_ends_at_its_total_whatever_asks_for_nothing() -> None:
    said: list[tuple[str, int, int]] = []
    assert list(with_progress("ab", lambda *step: said.append(step), "plan", 3)) == ["a", "b"]
    assert said == [("plan", 0, 3), ("plan", 1, 3), ("plan", 2, 3), ("plan", 3, 3)]


def test_hashing_stops_when_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Sample] = []
    gate = Event()

    def slow(sample: Sample) -> tuple[str, str, str]:
        begun.append(sample)
        if len(begun) > 1:
            gate.wait(10)
        return "", "", ""

    monkeypatch.setattr(samples, "hash_sample", slow)
    with ThreadPoolExecutor(1) as threads:
        hashed = samples._hashed(threads, many(200), together=1)
        next(hashed)
        hashed.close()
        gate.set()
    assert len(begun) <= 2


def test_backgrounds_are_hashed_besides(photos: Path) -> None:
    spec = EvaluateSpec(str(photos), backgrounds=str(photos / "images" / "disc"))
    made = prepare(spec, read(spec), silent)
    own = {sample.sample_id: sample for sample in made.collection.samples}
    assert set(made.masks) == set(own) and set(made.images) > set(own)
    assert made.images["backgrounds/0.png"] == made.images["disc/0"] == own["disc/0"].image.fingerprint()
