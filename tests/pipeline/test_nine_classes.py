"""``--labels nine``: ImageNet in nine super-classes, for models of 1,000 outputs and for a LeNet of nine."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.data.labels import imagenet_space, map_labels
from holdfast.data.nine_classes import RANGES, in_nine_classes
from holdfast_studies.study import StudyOptions, collection_of

CODE = '''
import numpy as np
from torch import nn

class ByColour:
    """A thousand outputs: 0.4 on the output that the picture's blue channel says, 0.2 on each of three dogs."""
    def __call__(self, images):
        answer = np.zeros((len(images), 1000), np.float32)
        for row, image in enumerate(images):
            answer[row, int(image[..., 2].mean().round()) * 4] += 0.4
            answer[row, [151, 152, 153]] += 0.2
        return answer

by_colour = ByColour()

def LeNet(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 6 * 6, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_classes))
'''


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images of each super-class, in a folder of a WordNet id in its range; and one class of none."""
    folder = tmp_path_factory.mktemp("nine") / "photos"
    rng = np.random.default_rng(0)
    wnids = imagenet_space().wnids
    for place, (first, last) in enumerate(RANGES.values()):
        output = -(-first // 4) * 4
        assert first <= output <= last
        for index in range(12):
            image = np.full((32, 32, 3), (output // 4, 0, 28 * place), np.uint8)  # BGR
            image[..., 1] = rng.integers(0, 256, (32, 32))
            write(folder / wnids[output] / f"{index}.png", image)
    write(folder / wnids[0] / "0.png", np.zeros((32, 32, 3), np.uint8))
    return folder


def write(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), image)


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nine_networks.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_model_of_a_thousand_outputs_answers_in_nine(photos: Path, networks: None, tmp_path: Path) -> None:
    model = "python:nine_networks:by_colour?labels=imagenet"
    result = CliRunner().invoke(
        app, ["eval", str(photos), "--models", model, "--labels", "nine", "--scenarios", "original",
              "--out", str(tmp_path / "run")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = holdfast.open_run(tmp_path / "run").run.rows().to_pandas()
    assert sorted(set(rows["label"])) == sorted(RANGES) and len(rows) == 9 * 12
    # The best output decides: three dogs of 0.2 are more than one fish of 0.4 together, but none of them is better.
    assert rows["correct"].all() and rows["correct_restricted"].all()
    # Probabilities add up: 0.6 for the dogs that are always there, 0.4 for the output of the image.
    dogs = (rows["label"] == "dog").to_numpy()
    np.testing.assert_allclose(rows.loc[dogs, "probability_of_label"], 1.0, atol=1e-6)
    np.testing.assert_allclose(rows.loc[~dogs, "probability_of_label"], 0.4, atol=1e-6)


def test_a_lenet_learns_the_nine(photos: Path, networks: None, tmp_path: Path) -> None:
    results = holdfast.train(
        photos, architectures=("python:nine_networks:LeNet",), labels="nine", scenarios="original", folds=1, size=32,
        epochs=12, batch_size=16, rate=2e-3, train_on="original", device="cpu", out=tmp_path / "run",
    )  # fmt: skip
    rows = results.rows().to_pandas()
    assert set(rows["label"]) == set(RANGES)
    assert rows["correct"].mean() > 3 / 9, "three times what guessing gives"
    with pytest.raises(UserError, match="train labels= takes nine"):
        holdfast.train(photos, architectures=("timm:test_resnet",), labels="other.csv", out=tmp_path / "other")


def test_keys_are_the_published_ranges() -> None:
    collection = holdfast.load_collection("diorama:test?n=12")
    grouped = in_nine_classes(collection, "nine")
    assert {sample.label for sample in grouped.samples} == {"dog", "fish"}, "its dog and its anemone fish"
    assert any("10 images of 10 classes" in problem.message for problem in grouped.problems)
    labels = map_labels(grouped.classes, grouped.keys, imagenet_space())
    assert [len(own) for own in labels.members] == [118, 5, 3, 5, 21, 18, 9, 4, 20]
    assert in_nine_classes(collection, None) is collection


def test_names_of_classes_and_a_file_beside_them(tmp_path: Path) -> None:
    picture = np.zeros((8, 8, 3), np.uint8)
    for name in ("tabby", "African_grey", "Dungeness crab", "my dogs", "vase"):
        write(tmp_path / "photos" / name / "0.png", picture)
    names = holdfast.load_collection(str(tmp_path / "photos"))
    assert sorted(sample.label for sample in in_nine_classes(names, "nine").samples) == ["bird", "cat", "crab"]
    (tmp_path / "keys.csv").write_text("class,imagenet_index\nmy dogs,207\n")
    grouped = in_nine_classes(names, f"nine:{tmp_path / 'keys.csv'}")
    assert sorted(sample.label for sample in grouped.samples) == ["bird", "cat", "crab", "dog"]
    (tmp_path / "keys.csv").write_text("class,imagenet_index\nmy cats,207\n")
    with pytest.raises(UserError, match="my cats"):
        in_nine_classes(names, f"nine:{tmp_path / 'keys.csv'}")
    options = StudyOptions(tmp_path / "study", {"data": str(tmp_path / "photos"), "labels": "nine", "scenes": 12,
                                                "context": 0.5})  # fmt: skip
    assert collection_of(options).classes == tuple(RANGES)


def test_none_of_the_nine(tmp_path: Path) -> None:
    write(tmp_path / "photos" / "vase" / "0.png", np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(UserError, match=r"\(such as vase\) belongs to the nine"):
        in_nine_classes(holdfast.load_collection(str(tmp_path / "photos")), "nine")
