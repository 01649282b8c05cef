"""Models and datasets that people hold in Python, given to verbs in place of names."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pytest
import timm
import torch
import torchvision

import holdfast
from holdfast.api.live import model_names, write_data
from holdfast.core.errors import UserError
from holdfast.core.protocols import DifferentiableClassifier
from holdfast.data import load_collection
from holdfast.data.native import NativeImage
from holdfast.models.python import weights_of
from shapes import draw

CLASSES = ("cross", "disc", "square")


def _drawn(count: int = 4) -> list[tuple[np.ndarray, str, np.ndarray]]:
    return [(*draw(label, number)[:1], label, draw(label, number)[1]) for label in CLASSES for number in range(count)]


class _Set(torch.utils.data.Dataset[Any]):
    classes = CLASSES

    def __init__(self, change: bool = False, offset: int = 0) -> None:
        self.items, self.change, self.offset = _drawn(), change, offset

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        picture, label, mask = self.items[number]
        if self.change:
            picture = np.random.default_rng().integers(0, 255, picture.shape, np.uint8)
        return PIL.Image.fromarray(picture), CLASSES.index(label) + self.offset, mask


class _Brightness(torch.nn.Module):
    """Answers by the mean of the first channel."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(scale))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        means = batch.mean((2, 3)) * self.scale
        return means if means.shape[1] == 3 else means.repeat(1, 3)


TRANSFORM = torchvision.transforms.Compose(
    [torchvision.transforms.Resize((16, 16)), torchvision.transforms.ToTensor(),
     torchvision.transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))]
)  # fmt: skip


def _expected(picture: np.ndarray) -> str:
    logits = _Brightness()(TRANSFORM(PIL.Image.fromarray(picture))[None])
    return CLASSES[int(logits.argmax())]


def test_a_network_and_a_dataset_give_the_answers_that_the_network_gives_itself(tmp_path: Path) -> None:
    network = _Brightness().train().half()
    run = holdfast.evaluate(_Set(), models={"mine": network}, transform=TRANSFORM, scenarios="original,grey",
                            out=tmp_path / "run")  # fmt: skip
    rows = [row for row in run.rows().to_pylist() if row["condition"] == "original"]
    assert {row["model"] for row in rows} == {"mine"} and len(rows) == 12
    drawn = _drawn()
    for row in rows:
        picture, label, _ = drawn[int(row["sample_id"].rsplit("/", 1)[1])]
        assert (row["label"], row["prediction"]) == (label, _expected(picture))
    assert network.training and network.scale.dtype == torch.half and network.scale.requires_grad
    again = holdfast.evaluate(_Set(), models={"mine": network}, transform=TRANSFORM, scenarios="original,grey",
                              out=tmp_path / "run")  # fmt: skip
    assert again.rows().num_rows == 24  # nothing was asked twice


def test_other_weights_are_another_model(tmp_path: Path) -> None:
    answers = []
    for scale in (1.0, -1.0):
        run = holdfast.evaluate(_Set(), models={"mine": _Brightness(scale)}, transform=TRANSFORM, scenarios="original",
                                out=tmp_path / "run")  # fmt: skip
        answers.append({row["sample_id"]: row["prediction"] for row in run.rows().to_pylist()})
    assert len(answers[0]) == len(answers[1]) == 12 and answers[0] != answers[1]


@pytest.mark.parametrize("kind", ["dict", "pandas", "list", "datasets"])
def test_datasets_of_every_kind_are_read_alike(kind: str, tmp_path: Path) -> None:
    images, labels, masks = (list(column) for column in zip(*_drawn(), strict=True))
    data: Any = {"images": images, "labels": labels, "masks": masks, "camera": ["A", "B"] * 6}
    if kind == "list":
        data = list(zip(images, labels, masks, strict=True))
    elif kind == "pandas":
        for number, picture in enumerate(images):
            PIL.Image.fromarray(picture).save(tmp_path / f"{number}.png")
        data = pd.DataFrame({"path": [tmp_path / f"{n}.png" for n in range(12)], "label": labels, "camera": "A"})
    elif kind == "datasets":
        datasets = pytest.importorskip("datasets", reason="datasets is not installed")
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})
        data = datasets.Dataset.from_dict({"image": images, "label": labels}, features=features)
    run = holdfast.evaluate(data, models=_Brightness(), transform=TRANSFORM, class_names=CLASSES, scenarios="original",
                            out=tmp_path / "run")  # fmt: skip
    rows = run.rows().to_pylist()
    assert sorted((row["label"], row["prediction"]) for row in rows) == sorted(
        (label, _expected(picture)) for picture, label in zip(images, labels, strict=True)
    )


def test_a_network_of_timm_brings_its_own_transform_and_a_callable_its_names(tmp_path: Path) -> None:
    network = timm.create_model("resnet18", num_classes=3).eval()

    def brightest(images: list[np.ndarray]) -> list[str]:
        return ["disc" if image.mean() > 100 else "cross" for image in images]

    with pytest.warns(UserWarning, match="shows no weights"):
        run = holdfast.evaluate(_Set(), models=[network, brightest], scenarios="original", out=tmp_path / "run")
    assert set(run.run.rows(["model"])["model"].to_pylist()) == {"ResNet", "brightest"}


class _Thousand(_Brightness):
    """Answers tench (0), goldfish (1) or great white shark (2) of ImageNet."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(super().forward(batch), (0, 997), value=-9.0)


@pytest.mark.parametrize("class_names", [None, "imagenet"])
def test_the_classes_of_a_dataset_are_not_the_outputs_of_a_model(class_names: str | None, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("class,imagenet_index\n" + "".join(f"{name},{at}\n" for at, name in enumerate(CLASSES)))
    options: dict[str, Any] = {"transform": TRANSFORM, "labels": labels, "scenarios": "original"}
    run = holdfast.evaluate(_Set(), models={"m": _Thousand()}, class_names=class_names, out=tmp_path / "run", **options)
    rows = run.rows().to_pylist()
    drawn = _drawn()
    assert len(rows) == len(drawn)
    for row in rows:
        assert row["prediction"] == _expected(drawn[int(row["sample_id"].rsplit("/", 1)[1])][0])
    with pytest.raises(UserError, match=r"class_names='imagnet': expected a list of the outputs' names in order, or"):
        holdfast.evaluate(_Set(), models={"m": _Thousand()}, class_names="imagnet", out=tmp_path / "other", **options)


def test_a_model_that_holdfast_loaded_is_an_object_as_well(tmp_path: Path) -> None:
    scenes = holdfast.load_collection("diorama:test?n=6&size=64")
    data = {"images": [each.image.load() for each in scenes.samples], "labels": [each.label for each in scenes.samples]}
    run = holdfast.evaluate(
        data, models={"own": holdfast.load_classifier("embedded:resnet_rho0")}, scenarios="original", out=tmp_path
    )
    named = holdfast.evaluate(
        "diorama:test?n=6&size=64", models="embedded:resnet_rho0", scenarios="original", out=tmp_path / "named"
    )
    (ours,), (theirs,) = (each.accuracy()["accuracy"] for each in (run, named))
    assert ours == theirs > 0.5


def test_a_pipeline_of_transformers_answers_as_it_does_itself(tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor, pipeline

    config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32,
                       patch_size=8, id2label=dict(enumerate(CLASSES)))  # fmt: skip
    network = ViTForImageClassification(config).eval()
    network.classifier.weight.data.normal_(std=3)
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    classify = pipeline("image-classification", model=network, image_processor=processor, device="cpu")
    run = holdfast.evaluate(_Set(), models={"vit": classify}, scenarios="original", out=tmp_path / "run")
    drawn = _drawn()
    for row in run.rows().to_pylist():
        picture = drawn[int(row["sample_id"].rsplit("/", 1)[1])][0]
        assert row["prediction"] == classify(PIL.Image.fromarray(picture))[0]["label"]


def _program() -> Any:
    batch = torch.export.Dim("batch", min=1, max=64)
    example = (torch.zeros(2, 3, 16, 16),)
    return torch.export.export(_Brightness().eval(), example, dynamic_shapes={"batch": {0: batch}})


def _script() -> Any:
    with pytest.warns(FutureWarning, match="torch.jit"):
        return torch.jit.script(_Brightness())


def _package() -> Any:
    file = torch._inductor.aoti_compile_and_package(_program())
    return torch._inductor.aoti_load_package(file)


@pytest.mark.parametrize("make", [_program, _script, pytest.param(_package, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:compiled shows no weights", "ignore::DeprecationWarning")
def test_an_exported_network_answers_as_itself(make: Any, tmp_path: Path) -> None:
    run = holdfast.evaluate(_Set(), models={"compiled": make()}, transform=TRANSFORM, scenarios="original",
                            out=tmp_path / "run")  # fmt: skip
    drawn = _drawn()
    for row in run.rows().to_pylist():
        assert row["prediction"] == _expected(drawn[int(row["sample_id"].rsplit("/", 1)[1])][0])


def test_a_run_without_out_is_temporary_and_says_where(capsys: pytest.CaptureFixture[str], monkeypatch: Any,
                                                       tmp_path: Path) -> None:  # fmt: skip
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = holdfast.evaluate(_Set(), models=_Brightness(), transform=TRANSFORM, scenarios="original")
    assert run.path.parent == tmp_path and str(run.path) in capsys.readouterr().out


def test_a_script_hears_how_far_it_is_and_how_outputs_are_read_unless_it_asks_for_quiet(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time, torch, holdfast\nfrom torchvision.transforms import Compose, Resize, ToTensor\n"
        "class Slow(torch.nn.Module):\n"
        "    def forward(self, batch):\n"
        "        time.sleep(0.05)\n"
        "        return batch.mean((2, 3))\n"
        "run = holdfast.evaluate(sys.argv[1], Slow(), transform=Compose([Resize((8, 8)), ToTensor()]), batch_size=1,\n"
        "                        scenarios='original,contrast@3,fog@3', quiet=sys.argv[2] == 'quiet')\n"
        "print(run)\n"
    )
    photos = tmp_path / "photos"
    for picture, label, _ in _drawn(3):
        (photos / label).mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(picture).save(photos / label / f"{len(list((photos / label).iterdir()))}.png")
    loud, hushed = (
        subprocess.run([sys.executable, script, photos, word], capture_output=True, text=True, check=True)
        for word in ("loud", "quiet")
    )
    assert re.search(r"^eval: 27/27, [\d.]+/s$", loud.stderr, re.M), loud.stderr
    assert loud.stderr.count("in alphabetical order: 0 to 2 are cross, disc, square") == 1
    assert "eval:" not in hushed.stderr and "alphabetical" not in hushed.stderr
    assert "temporary" in loud.stdout and "temporary" not in hushed.stdout
    for line in (
        "27 rows",
        "models: Slow",
        "conditions: original, contrast@3, fog@3",
        "next: .verdicts(), .accuracy()",
    ):
        assert line in hushed.stdout


def test_a_check_takes_objects(tmp_path: Path) -> None:
    answer = holdfast.check(_Brightness(), _Set(), transform=TRANSFORM, out=tmp_path / "check")
    assert answer.verdict["model"] == "Brightness" and answer.page.is_file() and answer.masks is None


def _broken() -> torch.nn.Module:
    network = _Brightness()
    network.scale.data.fill_(float("nan"))
    return network


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        (lambda: _Set(change=True), {"models": _Brightness()}, "changes between two readings"),
        (lambda: _Set(offset=2), {"models": _Brightness()}, "the label 3; with 3 classes, expected 0 to 2"),
        (lambda: 7, {"models": _Brightness()}, "data is a folder or a name .* not int"),
        (lambda: {"images": [], "labels": []}, {"models": _Brightness()}, "at least one item"),
        (lambda: {"images": [1]}, {"models": _Brightness()}, "needs labels"),
        (lambda: {"images": [np.zeros((4, 4, 3)) - 1.0], "labels": ["a"]}, {"models": _Brightness()}, "normalising"),
        (
            lambda: {"images": [np.zeros((5, 9, 9), np.uint8)], "labels": ["a"]},
            {"models": _Brightness()},
            "bands first",
        ),
        (lambda: {"images": [PIL.Image.new("I", (4, 4), -7)], "labels": ["a"]}, {"models": _Brightness()}, "from -7"),
        (lambda: {"images": [PIL.Image.new("F", (4, 4), 99)], "labels": ["a"]}, {"models": _Brightness()}, "from 99"),
        (lambda: [(np.zeros((4, 4, 3), np.uint8), 1.7)], {"models": _Brightness()}, "label 1.7; a name or a whole"),
        (lambda: [(np.zeros((4, 4, 3), np.uint8), None)], {"models": _Brightness()}, "label None; a name"),
        (lambda: [(np.zeros((4, 4, 3), np.uint8), np.nan)], {"models": _Brightness()}, "label nan; a name"),
        (_Set, {"models": _broken()}, "weights of the model are not finite: scale"),
        (_Set, {"models": _Brightness().to("meta")}, "on the device meta, which holds no values"),
        (_Set, {"models": 3}, "not int"),
        (_Set, {"models": [_Brightness(), _Brightness()]}, "share the name live:Brightness"),
        (_Set, {"models": _Brightness(), "transform": None}, "how does Brightness want its images"),
        (_Set, {"models": _Brightness(), "transform": lambda picture: 1 / 0}, "transform of Brightness fails"),
        (
            _Set,
            {"models": _Brightness(), "transform": np.asarray},
            r"transform= of Brightness returns an ndarray of shape \(240, 320, 3\); wanted is one torch tensor",
        ),
        (
            _Set,
            {"models": _Brightness(), "transform": lambda picture: torch.from_numpy(np.array(picture))},
            r"returns a Tensor of shape \(240, 320, 3\); wanted",
        ),
        (lambda: torch.utils.data.DataLoader(_Set()), {"models": _Brightness()}, "give loader.dataset"),
        (_Set, {"models": _Brightness(), "workers": 2}, "stay in this process"),
        (_Set, {"models": "live:gone"}, "live"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(data: Any, options: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        holdfast.evaluate(data(), out=tmp_path / "run", scenarios="original", **{"transform": TRANSFORM} | options)


def test_columns_named_as_ours_stay_the_users_own(tmp_path: Path) -> None:
    names = ("condition", "scenario", "status", "fold", "kind", "licence", "license", "mask_path", "published_sha256")
    images, labels, _ = (list(column) for column in zip(*_drawn(2), strict=True))
    own = {name: ["sunny", "rain"] * 3 for name in names} | {"sample_id": ["one"] * 6, "split": ["test"] * 6}
    collection = load_collection(write_data({"images": images, "labels": labels, **own}, tmp_path)[0])
    assert len(collection.samples) == 6 and not collection.problems
    for number, sample in enumerate(collection.samples):
        assert (sample.condition, sample.split, sample.mask, sample.fold) == ("original", "test", None, -1)
        weather = ("sunny", "rain")[number % 2]
        assert sample.attributes == {f"own_{name}": weather for name in names} | {"own_sample_id": "one"}


def test_synth_and_mask_take_data_in_memory_below_their_own_folder(tmp_path: Path) -> None:
    images, labels, masks = (list(column) for column in zip(*_drawn(2), strict=True))
    data = {"images": images, "labels": labels, "masks": masks}
    for made in (6, 0):  # the second call finds its files
        summary = holdfast.synth(data, out=tmp_path / "new", scenarios="grey", quiet=True)
        assert (summary.rows, summary.already) == (made, 6 - made)
    stored = load_collection(f"manifest:{tmp_path}/new/data/manifest.parquet?root=/").samples
    assert all(np.array_equal(sample.image.load(), image) for sample, image in zip(stored, images, strict=True))
    assert len(holdfast.mask(data, out=tmp_path / "masks", annotator="threshold", workers=1, quiet=True)) == 6


def test_a_folder_of_the_users_called_data_is_no_place_for_results(tmp_path: Path) -> None:
    for label in CLASSES:
        (tmp_path / "own" / "data" / label).mkdir(parents=True)
        PIL.Image.fromarray(draw(label, 0)[0]).save(tmp_path / "own" / "data" / label / "a.png")
    with pytest.raises(UserError, match=r"are in .*own themselves; choose another out="):
        holdfast.synth(tmp_path / "own" / "data", out=tmp_path / "own", scenarios="original", quiet=True)


def test_pictures_and_masks_keep_what_they_show(tmp_path: Path) -> None:
    deep = np.linspace(0, 65535, 80).reshape(8, 10)
    clear = PIL.Image.new("RGBA", (10, 8), (0, 0, 0, 0))
    images = [PIL.Image.fromarray(deep.astype(np.int32)), PIL.Image.fromarray((deep / 65535).astype(np.float32)),
              clear, np.repeat(deep[..., None], 3, 2).astype(">u2")]  # fmt: skip
    PIL.Image.fromarray(np.eye(8, 10, dtype=np.uint8) * 255).save(tmp_path / "mask.png")
    masks = [tmp_path / "mask.png", str(tmp_path / "mask.png"), float("nan"), pd.NA]
    table = pd.DataFrame({"image": images, "label": "a", "mask": masks})
    samples = load_collection(write_data(table, tmp_path / "run")[0]).samples
    whole = deep.astype(np.uint16)
    for sample, wanted in zip(samples, (whole, np.rint(deep / 257), np.full((8, 10), 255), whole), strict=True):
        assert np.array_equal(NativeImage(sample.image).load()[..., 0], wanted)
    assert [sample.mask is None or bool((sample.mask.load(8, 10) == np.eye(8, 10)).all()) for sample in samples] == [
        True] * 4  # fmt: skip
    assert [sample.mask is None for sample in samples] == [False, False, True, True]


def test_weights_are_seen_through_objects_and_functions() -> None:
    class Holder:
        def __init__(self, value: float) -> None:
            self.inner = {"array": np.full(3, value)}

    first, second = Holder(1), Holder(2)
    assert weights_of(first) and weights_of(first) != weights_of(second)
    assert weights_of(lambda images: first) != weights_of(lambda images: second)
    assert weights_of(len) == ""


def test_numbers_are_places_in_class_names_where_a_dataset_has_no_classes(tmp_path: Path) -> None:
    pairs = [(picture, CLASSES.index(label)) for picture, label, _ in _drawn()]
    run = holdfast.evaluate(
        pairs, _Brightness(), transform=TRANSFORM, class_names=CLASSES, scenarios="original", out=tmp_path / "run"
    )
    assert set(run.rows().to_pandas()["label"]) == set(CLASSES)


def test_names_of_outputs_for_a_model_given_by_name_and_labels_as_a_dict_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"class_names= is for networks given as objects.*labels=names.txt"):
        holdfast.check("onnx:own.onnx", "photos/", class_names=["a", "b"])
    with pytest.raises(UserError, match=r"labels are a CSV file .*not a dict"):
        holdfast.evaluate(
            "diorama:test?n=6&size=64",
            models="embedded:vit_rho95",
            labels={"beagle": 162},
            out=tmp_path / "run",
            quiet=True,
        )


def test_two_objects_of_one_class_are_compared(tmp_path: Path) -> None:
    answer = holdfast.parity(
        _Brightness(), _Brightness(2.0), _Set(), transform=TRANSFORM, class_names=CLASSES, scenarios="original",
        device="cpu", out=tmp_path / "run",
    )  # fmt: skip
    assert answer.results.run.spec()["model_names"] == ["Brightness-old", "Brightness-new"]
    rows = answer.results.rows().to_pandas()
    assert set(rows["model"].astype(str)) == {"Brightness-old", "Brightness-new"}
    assert (
        rows.groupby("model", observed=True)["probability_of_label"].mean().nunique() == 2
    )  # two models, not one twice
    named = holdfast.parity(
        {"a": _Brightness()}, {"b": _Brightness(2.0)}, _Set(), transform=TRANSFORM, class_names=CLASSES,
        scenarios="original", device="cpu", out=tmp_path / "named",
    )  # fmt: skip
    assert named.results.run.spec()["model_names"] == ["a", "b"]


def test_segment_takes_names_and_says_so(tmp_path: Path) -> None:
    assert not {"transform", "class_names"} & set(inspect.signature(holdfast.segment).parameters)
    with pytest.raises(UserError, match="segment takes models by name, not a Conv2d: write python:MODULE:ATTRIBUTE"):
        holdfast.segment("diorama:test?n=2", models=torch.nn.Conv2d(3, 2, 1), out=tmp_path / "run")
    with pytest.raises(UserError, match="no option of segment is called 'transform'"):
        holdfast.segment("diorama:test?n=2", models=["embedded:unet"], transform=TRANSFORM, out=tmp_path / "run")


def test_names_that_people_give_are_quoted(tmp_path: Path) -> None:
    names = {"a&b=1": "embedded:resnet_rho0", "0001": "embedded:resnet_rho0"}
    run = holdfast.evaluate("diorama:test?n=2", models=names, scenarios="original", device="cpu", out=tmp_path / "run")
    assert run.run.spec()["model_names"] == ["a&b=1", "0001"]


def test_a_loaded_classifier_is_a_live_model_with_gradients() -> None:
    loaded = holdfast.load_classifier("embedded:resnet_rho95")
    (name,) = model_names([loaded])
    again = holdfast.load_classifier(name)
    assert isinstance(again, DifferentiableClassifier) and again.fingerprint == loaded.fingerprint
    assert again.labels == loaded.labels and loaded.name == "embedded:resnet_rho95"
    with pytest.raises(UserError, match="leave out transform="):
        holdfast.load_classifier(model_names([loaded], transform=np.asarray)[0])
