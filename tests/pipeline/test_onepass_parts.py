"""The parts of a one-pass run against what they stand for."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.schema import row_id
from holdfast.core.types import ClassKeys, Collection, LabelSpace, Sample
from holdfast.data.images import ArrayImage, FileImage
from holdfast.data.labels import map_labels, outcomes
from holdfast.models import timm, torchvision
from holdfast.models.torch_classifier import picture
from holdfast.pipeline.classifiers import EvaluateSpec
from holdfast.pipeline.classifiers import Tested as Model
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.evaluation_rows import EvaluationIds, Portion, row_key
from holdfast.pipeline.fast import answers, networks
from holdfast.pipeline.fast import decoding as arrival
from holdfast.pipeline.fast.decoding import Arrival, Crew, Decoder, Order, Unit
from holdfast.pipeline.fast.networks import blank, by_matrices, see
from holdfast.pipeline.fast.rows import Chunk, Finished, TableMaker
from holdfast.pipeline.jobs.plan import Job
from holdfast.pipeline.samples import Prepared
from holdfast.scenarios import Condition, parse_conditions
from holdfast.store import Parts, Run, write_table
from holdfast.store.ids import compare

SPACE = LabelSpace(tuple(f"output {number}" for number in range(9)))
KEYS = {
    "a": ClassKeys(labels=("output 1", "output 4")),
    "b": ClassKeys(labels=("output 7",)),
    "c": ClassKeys(labels=("output 0",)),
}


NUMBERS = ("confidence", "confidence_restricted", "probability_of_label")


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([1, 2, 5, 1_000_000]))
@settings(max_examples=40, deadline=None)
def test_answers_are_those_of_the_ordinary_way(seed: int, aliases: bool, levels: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels + 1, (12, 9)).astype(np.float32)  # few levels: many ties
    scores[1] = 0
    total = scores.sum(1, keepdims=True)
    scores = np.divide(scores, total, out=np.zeros_like(scores), where=total > 0)
    scores[2, 3] = np.nan
    keys = KEYS if aliases else {**KEYS, "a": ClassKeys(labels=("output 4",))}
    labels = map_labels(("a", "b", "c"), keys, SPACE)
    truth = rng.integers(0, 3, 12)
    expected = outcomes(scores, labels, [labels.classes[place] for place in truth])
    packed = answers.pack(torch.from_numpy(scores), answers.Groups.of(labels, "cpu"), torch.from_numpy(truth))
    made = {name: column.to_pylist() for name, column in answers.columns(packed.numpy(), labels, truth).items()}
    assert made.keys() == expected.keys() - {"label"}
    for name, values in made.items():
        for value, other in zip(values, expected[name], strict=True):
            if name in NUMBERS and value is not None:
                assert value == pytest.approx(other, abs=1e-6)
            else:
                assert value == other


def prepared_by(kind: str) -> Any:
    if kind == "torchvision":
        return torchvision.preprocessing(torchvision.find_weights("resnet50"), {})
    size, interpolation, share, mode = kind.split()
    config = {
        "input_size": (3, int(size), int(size)), "interpolation": interpolation, "crop_pct": float(share),
        "crop_mode": mode, "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.25, 0.3),
    }  # fmt: skip
    return timm.from_config(config)


@pytest.mark.parametrize(
    "kind",
    [
        "torchvision",
        "64 bicubic 0.9 center",
        "64 bilinear 1.0 squash",
        "48 lanczos 0.8 center",
        "40 nearest 0.9 center",
    ],
)
@pytest.mark.parametrize("size", [(375, 500), (90, 60), (30, 31), (20, 900), (333, 50), (64, 64)])
def test_models_see_what_pillow_makes(kind: str, size: tuple[int, int]) -> None:
    image = np.random.default_rng(5).integers(0, 256, (*size, 3), np.uint8)
    preprocessing = prepared_by(kind)
    tensor = preprocessing.transform(picture(image, crops_centre=preprocessing.crops_centre))
    mean, std = (torch.tensor(one).view(3, 1, 1) for one in (preprocessing.mean, preprocessing.std))
    expected = ((tensor * std + mean) * 255).round()
    batch = torch.from_numpy(image).permute(2, 0, 1)[None]
    geometry = preprocessing.geometry
    assert geometry is not None
    seen = see(batch, geometry, crops_centre=preprocessing.crops_centre)[0]
    assert seen.dtype == torch.uint8 and torch.equal(seen.float(), expected)
    out = blank(1, geometry, "cpu")
    by_products = by_matrices(batch, geometry, preprocessing.crops_centre, out, torch.float64)[0]
    assert torch.equal(by_products.float(), expected)


def test_other_transforms_have_no_geometry() -> None:
    assert prepared_by("64 bilinear 0.9 border").geometry is None


texts = st.text(max_size=8)


@given(
    texts,
    texts,
    texts,
    st.integers(-1, 5),
    st.sampled_from(["static", "generated"]),
    st.lists(texts, min_size=1, max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_names_are_those_of_row_id(
    sample_id: str, source: str, split: str, fold: int, kind: str, models: list[str]
) -> None:
    sample = Sample(sample_id, "a", FileImage("x"), source_id=source, split=split, fold=fold, kind=kind)
    collection = Collection('the "data" %s', ("a",), (sample,))
    prepared: Any = Prepared(collection, {sample_id: "11"}, {sample_id: "22"}, {}, SimpleNamespace(tools=None), "33")  # type: ignore[arg-type]
    labels = map_labels(("a",), {"a": ClassKeys(labels=("output 1",))}, SPACE)
    tested: Any = [Model(SimpleNamespace(name=name), labels, f"4{name}", f"5{name}") for name in models]  # type: ignore[arg-type]
    spec = EvaluateSpec("data", fast=True, matte=(1, 2, 3), seed=7)
    names = EvaluationIds(spec, prepared, tested)
    for condition in parse_conditions("original,grey,random_background,same_class_background"):
        definition = condition.definition
        image = fingerprint(["11", "a", "33" if definition.donor else "", (1, 2, 3)])
        expected = [
            row_id(
                row_key(spec, collection.name, sample, condition, model.classifier.name),
                image=image,
                mask="22" if definition.needs_mask else "",
                model=model.fingerprint if condition.scenario == "same_class_background" else model.fast,
            )
            for model in tested
        ]
        assert names.of(sample, condition, range(len(tested))) == expected


def stored(folder: Path, ids: Sequence[str], statuses: Sequence[str] = ()) -> Parts:
    """Make a table of these ids, in part files of three."""
    table = Parts(folder, pa.schema([("row_id", pa.string()), ("status", pa.string())]))
    for start in range(0, len(ids), 3):
        own = {"row_id": ids[start : start + 3], "status": (statuses or ["ok"] * len(ids))[start : start + 3]}
        write_table(folder / f"part-{start:03d}.parquet", pa.table(own, schema=table.schema))
    return table


@pytest.mark.parametrize("piece", [1 << 21, 4])
@given(
    st.lists(st.integers(0, 2**128 - 1), max_size=30), st.lists(st.integers(0, 2**128 - 1), max_size=10), st.booleans()
)
@settings(max_examples=40, deadline=None)
def test_stored_ids_are_told_from_others_in_one_piece_and_in_many(
    piece: int, known: list[int], others: list[int], alike: bool
) -> None:
    cut = (1 << 66) - 1 if alike else (1 << 128) - 1  # with equal first halves but for two bits
    ids = [f"{number & cut:032x}" for number in known]  # some maybe twice
    asked = [*ids[::2], *(f"{number & cut:032x}" for number in others), *ids[:2]]
    failed = set(ids[::3])
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.store.ids._PIECE", piece)
        patch.setattr("holdfast.store.ids._RUN", piece)
        patch.setattr("holdfast.store.ids._IN_MEMORY", 100 * piece)
        table = stored(Path(name), ids, ["error" if own in failed else "ok" for own in ids])
        wanted, present = compare(table, [asked[:5], asked[5:]], failed=["error"])
    assert wanted.span(0, len(wanted)).tolist() == [own in asked for own in ids]
    assert present.span(0, len(present)).tolist() == [own in ids and own not in failed for own in asked]


def test_ids_that_row_id_did_not_make_are_found_too_and_do_not_change_their_neighbours(tmp_path: Path) -> None:
    made = [f"{number:032x}" for number in (1, 2**127, 77)]
    strange = ["first", "second", "", "F" * 32, "f" * 31 + " ", "é" * 16, "f" * 33]
    table = stored(tmp_path, [made[0], *strange, made[1]])
    asked = ["second", "third", *made, *strange, "f" * 32, " "]
    _, present = compare(table, [asked])
    assert present.span(0, len(asked)).tolist() == [True, False, True, True, False, *[True] * 7, False, False]


def test_a_plan_takes_no_memory_for_what_is_still_to_be_done(tmp_path: Path) -> None:
    samples = tuple(Sample(f"{number}", "a", FileImage("x")) for number in range(600))
    names = {sample.sample_id: "0" * 64 for sample in samples}
    prepared: Any = Prepared(Collection("data", ("a",), samples), names, names, {}, SimpleNamespace(tools=None), "")  # type: ignore[arg-type]
    labels = map_labels(("a",), {"a": ClassKeys(labels=("output 1",))}, SPACE)
    tested: Any = [Model(SimpleNamespace(name=f"{one}"), labels, f"{one}") for one in range(12)]  # type: ignore[arg-type]
    conditions = tuple(parse_conditions("static"))
    run = Run(tmp_path)
    tracemalloc.start()
    try:
        portion = Portion(conditions, tuple(range(12)), conditions)
        ids = EvaluationIds(EvaluateSpec("data"), prepared, tested)
        plan = ids.plan(run.predictions, portion)
        rows = sum(len(job.ids) for shard in plan.shards(8) for job in shard)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == plan.owed == 600 * 13 * 12
    assert peak < 2_000_000  # the ids alone of all rows would be eight million


def test_a_row_without_a_picture_names_no_donor_though_another_condition_of_the_photo_borrowed(tmp_path: Path) -> None:
    conditions = parse_conditions("original,random_background,stylised")  # the last needs no mask
    samples = tuple(Sample(name, "a", FileImage("x")) for name in ("masked", "unmasked"))
    names = {sample.sample_id: "0" * 64 for sample in samples}
    prepared = Prepared(Collection("data", ("a",), samples), names, names, {}, DonorPool([]), "")
    labels = map_labels(("a",), {"a": ClassKeys(labels=("output 1",))}, SPACE)
    model: Any = SimpleNamespace(name="m", labels=SPACE, fingerprint="1")
    maker = TableMaker(EvaluateSpec("data", fast=True), prepared, [0], [Model(model, labels, "1", "2")], conditions,
                       tmp_path)  # fmt: skip
    parts = [(condition, 0) for condition in conditions]
    chunk = Chunk([Job(sample, parts) for sample in samples], conditions, [0])
    facts = {"donor_label": "b", "donor_unmasked": False}
    chunk.donors.update({0: {"donor_id": "first", **facts}, 1: {"donor_id": "second", **facts}})
    chunk.fail(1, 1, "skipped", "there is no mask")
    chunk.fail_rows(chunk.slots[0, 2], "error", "the network failed")  # of an image that there was
    rows = maker.table([Finished.of(chunk, prepared)], "run").to_pylist()
    assert {(row["sample_id"], row["condition"]): row["donor_id"] for row in rows} == {
        ("masked", "original"): None, ("masked", "random_background"): "first", ("masked", "stylised"): "first",
        ("unmasked", "original"): None, ("unmasked", "random_background"): None, ("unmasked", "stylised"): "second",
    }  # fmt: skip


def unit(*sizes: tuple[int, int]) -> Unit:
    """A flat image of each size, no two of them alike."""
    pictures = [np.full((*size, 3), place + 1, np.uint8) for place, size in enumerate(sizes)]
    return Unit(0, [Order(Sample(f"{one}", "a", ArrayImage(picture)), (0,)) for one, picture in enumerate(pictures)])


def test_memory_for_pictures_has_no_name_that_a_killed_process_could_leave() -> None:
    decoder = Decoder([Condition("original")], 1000)
    crew = Crew(decoder, processes=1, piece=4096, gpu=False)
    try:
        assert os.fstat(crew.pieces.file.fileno()).st_nlink == 0
        for _ in range(2):  # as for two pieces of work
            arrived = Arrival([unit((10, 10), (20, 20), (20, 20)), unit((5, 5))], decoder, crew)  # too large, it fits
            seen = []
            for _, groups, release in arrived:
                seen += [int(one.max()) for group in groups for one in group.images]
                release()
            assert seen == [1, 2, 3, 1]
            assert len(crew.pieces.free) == arrival.AHEAD + arrival.SPARE
    finally:
        crew.close()


def test_a_decoder_that_was_killed_between_two_pieces_of_work_is_told() -> None:
    decoder = Decoder([Condition("original")], 1000)
    crew = Crew(decoder, processes=1, piece=4096, gpu=False)
    try:
        assert len(list(Arrival([unit((5, 5))], decoder, crew))) == 1
        (process,) = crew.processes._pool._processes.values()
        process.kill()
        process.join()
        with pytest.raises(HoldfastError, match="a process that decodes images was killed"):
            list(Arrival([unit((5, 5))], decoder, crew))
    finally:
        crew.close()


def test_fused_layers_answer_as_the_layers_they_replace() -> None:
    from torchvision.models import resnet18

    torch.manual_seed(0)
    network = resnet18(weights=None).eval()
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):  # as after training: no norm that does nothing
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            layer.weight.data.uniform_(0.5, 2)
    fused, pictures = networks.fuse(copy.deepcopy(network)), torch.randn(2, 3, 64, 64)
    kinds = [type(layer).__name__ for layer in fused.modules()]
    assert kinds.count("Fused") == 17 and kinds.count("ReLU") == 0
    with torch.no_grad():
        expected = network(pictures)
        assert (fused(pictures) - expected).abs().max() < 1e-4 * expected.abs().max()
    assert kinds.count("BatchNorm2d") == 0  # those beside a sum have their bias in the other convolution


KERNELS = """
import copy
import numpy as np
import torch
from torchvision.models import resnet18
from holdfast.core import networks
from holdfast.scenarios.tensors import kernels
from holdfast.models.torch_classifier import Geometry
from holdfast.pipeline.fast import networks as fast

torch.manual_seed(0)
network = resnet18(weights=None).eval()
for layer in network.modules():
    if isinstance(layer, torch.nn.BatchNorm2d):
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2)
fused, images = networks.fuse(copy.deepcopy(network), kernels=kernels), torch.randn(1, 3, 32, 30)
kinds = [type(layer).__name__ for layer in fused.modules()]
assert kinds.count("Stem") == 1 and kinds.count("Pool") == 1 and "MaxPool2d" not in kinds
images = images.contiguous(memory_format=torch.channels_last)
with torch.no_grad():
    expected = network(images)
    assert (fused(images) - expected).abs().max() < 1e-4 * expected.abs().max()
for size, padding, height, width in ((7, 3, 33, 40), (3, 1, 32, 31), (3, 0, 21, 22), (4, 1, 20, 20), (6, 2, 19, 23)):
    layer, images = torch.nn.Conv2d(3, 8, size, 2, padding), torch.randn(1, 3, height, width)
    with torch.no_grad():
        apart = (networks._stem_layer(layer, kernels)(images) - layer(images).relu()).abs().max()
    assert apart < 1e-5, (size, padding, float(apart))
values = torch.randint(0, 256, (1, 3, 9, 11), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
mean, std = torch.tensor([90.0, 120.0, 7.0]), torch.tensor([60.0, 50.0, 3.0])
plain = (values.float() - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)
assert torch.equal(kernels.normalised(values, mean, std, torch.float32), plain)
image, device = torch.randint(0, 256, (1, 3, 47, 61), dtype=torch.uint8), torch.device("cpu")
for geometry in (
    Geometry(32, (24, 20), "bilinear"), Geometry((20, 24), (20, 24), "bicubic"), Geometry(12, (16, 16), "lanczos"),
    Geometry(60, (40, 40), "bicubic"), Geometry(9, (9, 9), "nearest"),
):
    taps = fast._taps(47, 61, geometry, True, device)
    if taps is None:
        assert geometry.interpolation in ("bicubic", "lanczos")  # whose filters are wide
        continue
    mine = fast.by_taps(image, taps, fast.blank(1, geometry, device))
    assert torch.equal(mine, fast.see(image, geometry, crops_centre=True)), geometry  # what Pillow makes
"""


def test_kernels_compute_what_layers_and_pillow_do() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    ended = subprocess.run([sys.executable, "-c", KERNELS], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_tracing_a_network_leaves_those_of_other_threads_alone() -> None:
    other, told = torch.nn.Linear(2, 2), []

    class Waiting(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            thread = threading.Thread(target=lambda: told.append(other(torch.ones(1, 2)).shape))
            thread.start()  # while torch.fx has replaced the call of every module
            thread.join()
            return images + 1

    assert networks.fuse(Waiting())(torch.zeros(1)).item() == 1
    assert told == [(1, 2)]
