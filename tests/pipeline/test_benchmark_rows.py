"""Images of published test sets in the one table, next to conditions made here."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from holdfast.core.errors import UserError
from holdfast.core.names import parse_name
from holdfast.data import load_collection
from holdfast.data.labels import imagenet_space
from holdfast.models import load_classifier
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.synth.synth import SynthSpec, synth
from holdfast.pipeline.thumbnails import thumbnails
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.verdict import what_it_holds
from shapes import CLASSES, draw, make_photos

WNIDS = {"cross": "n00000001", "disc": "n00000002", "square": "n00000003"}
MODEL = """
import toy_models
from toy_models import Colour

class Wnids(Colour):
    labels = ("n00000001", "n00000002", "n00000003")

class Nine(Colour):
    labels = ("dog", "bird", "wheeled vehicle")

model = Wnids("colour", "1")
nine = Nine("nine", "1")
"""


@pytest.fixture
def models(toy_models: str, tmp_path: Path) -> str:
    (tmp_path / "modules" / "wnid_models.py").write_text(MODEL)
    return "python:wnid_models"


def write(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), image)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Contrast at severities 1 and 5 in ImageNet-C's layout, an image a class."""
    for label, wnid in WNIDS.items():
        for severity in (1, 5):
            write(tmp_path / "c" / "contrast" / str(severity) / wnid / "a.png", draw(label, 0)[0])
    return tmp_path / "c"


def test_stored_corruptions_bear_the_names_of_those_made_here(models: str, stored: Path, tmp_path: Path) -> None:
    for label, wnid in WNIDS.items():
        write(tmp_path / "photos" / wnid / "a.png", draw(label, 0)[0])
    model = (f"{models}:model",)
    there, _ = evaluate(EvaluateSpec(f"imagenet-c:{stored}", models=model, scenarios="original"), tmp_path / "1")
    scenarios = "original,contrast@1,contrast@5,industrial"
    here, _ = evaluate(EvaluateSpec(str(tmp_path / "photos"), models=model, scenarios=scenarios), tmp_path / "2")
    names = ["contrast@severity_1", "contrast@severity_5"]
    assert sorted(reduce(there.rows()).conditions) == names
    assert set(names) < set(reduce(here.rows()).conditions)
    rows = there.rows().to_pylist()
    assert {row["source_id"] for row in rows} == {f"{wnid}/a" for wnid in WNIDS.values()}
    assert all(row["correct"] for row in rows)  # wnids found their outputs
    made = here.rows().to_pylist()
    by_condition = {name: [row for row in made if row["condition"] == name] for name in ("contrast", "shift_object")}
    assert {row["status"] for row in by_condition["contrast"]} == {"ok"}  # without any mask
    assert {row["status"] for row in by_condition["shift_object"]} == {"skipped"}
    # the gallery asks for images by the names of the table
    shown = thumbnails(there, {"n00000001/a"})
    assert {name for _, name in shown} == set(names)


def test_a_severity_that_is_named_is_the_only_one_taken(models: str, stored: Path, tmp_path: Path) -> None:
    spec = EvaluateSpec(f"imagenet-c:{stored}", models=(f"{models}:model",), scenarios="contrast@5")
    run, _ = evaluate(spec, tmp_path / "five")
    assert reduce(run.rows()).conditions == ["contrast@severity_5"] and run.rows().num_rows == 3
    write(stored / "contrast/5/n00000001/a.png", draw("disc", 1)[0])  # another image: its row is replaced, not joined
    run, _ = evaluate(spec, tmp_path / "five")
    assert run.rows().num_rows == 3
    every, _ = evaluate(
        EvaluateSpec(f"imagenet-c:{stored}", models=spec.models, scenarios="contrast"), tmp_path / "all"
    )
    assert every.rows().num_rows == 6
    wrong = EvaluateSpec(f"imagenet-c:{stored}", models=spec.models, scenarios="contrast@3,fog")
    with pytest.raises(UserError, match=r"none of them under contrast@severity_3, fog; they are contrast@severity_1"):
        evaluate(wrong, tmp_path / "none")


def test_stored_scenes_say_whose_background_they_have(models: str, tmp_path: Path) -> None:
    """ImageNet-9 by its files' names, our own scenes by their manifest: capture and the object's effect need it."""
    folders = dict(zip(CLASSES, ("00_dog", "01_bird", "02_wheeled vehicle"), strict=True))
    photo = {label: f"n0000000{number}_1" for number, label in enumerate(CLASSES)}
    root = tmp_path / "bg_challenge"
    for number, (label, folder) in enumerate(folders.items()):
        other = CLASSES[(number + 1) % 3]
        write(root / "original/val" / folder / f"{photo[label]}.png", draw(label, 0)[0])
        write(root / "mixed_same/val" / folder / f"fg_{photo[label]}_bg_{photo[label]}.png", draw(label, 1)[0])
        write(root / "mixed_rand/val" / folder / f"fg_{photo[label]}_bg_{photo[other]}.png", draw(other, 2)[0])
    spec = EvaluateSpec(f"imagenet-9:{root}", models=(f"{models}:nine",), scenarios="original")
    run, _ = evaluate(spec, tmp_path / "nine")
    rows = {row["sample_id"]: row for row in run.rows().to_pylist()}
    captured = rows["mixed_rand/00_dog/fg_n00000000_1_bg_n00000001_1"]
    assert (captured["donor_id"], captured["donor_label"], captured["prediction"]) == ("n00000001_1", "bird", "bird")
    assert rows["00_dog/n00000000_1"]["donor_label"] is None
    held = what_it_holds(reduce(run.rows()), resamples=50).iloc[0]
    # a model that always says what the background is: changing the object changes nothing
    assert (held["captured"], held["object_effect"], held["background_effect"]) == (1, 0, 1)

    data = make_photos(tmp_path / "photos", count=2)
    synth(SynthSpec(str(data), scenarios="original,random_background", workers=1), tmp_path / "made")
    toy = EvaluateSpec(str(tmp_path / "made"), models=("python:toy_models:colour",), scenarios="original")
    again, _ = evaluate(toy, tmp_path / "again")
    pasted = [row for row in again.rows().to_pylist() if row["condition"] == "random_background"]
    assert len(pasted) == 6 and all(row["donor_label"] not in (None, row["label"]) for row in pasted)
    assert {row["donor_unmasked"] for row in pasted} == {False}


def layouts(root: Path) -> dict[str, dict[str, tuple[int, ...]]]:
    """Every published layout below a folder, two classes each: what to load → class → the outputs that mean it."""
    wnids = imagenet_space().wnids
    fish, clock, vase = 1, 530, 883
    found: dict[str, dict[str, tuple[int, ...]]] = {}

    def photos(folder: str) -> None:
        for index in range(2):
            write(root / folder / f"{index}.png", draw(CLASSES[index], index)[0])

    for scheme in ("imagenet-r", "imagenet-a", "imagenet-sketch"):
        for output in (fish, vase):
            photos(f"{scheme}/{wnids[output]}")
        found[f"{scheme}:{root / scheme}"] = {wnids[output]: (output,) for output in (fish, vase)}
    for output in (fish, vase):
        photos(f"v2/{output}")
        photos(f"c/fog/3/{wnids[output]}")
    found[f"imagenet-v2:{root / 'v2'}"] = found[f"imagenet-c:{root / 'c'}"] = found[f"imagenet-r:{root / 'imagenet-r'}"]
    for folder in ("00_dog", "08_fish"):
        photos(f"nine/original/val/{folder}")
    mapping = {str(output): 0 for output in range(151, 269)} | {"0": 8, "1": 8, "999": -1}
    (root / "nine/in_to_in9.json").write_text(json.dumps(mapping))
    found[f"imagenet-9:{root / 'nine'}"] = {"dog": tuple(range(151, 269)), "fish": (0, 1)}
    for folder in ("alarm_clock", "vase", "air_freshener"):
        photos(f"objectnet/images/{folder}")
    for name, value in (
        ("folder_to_objectnet_label.json", {one: one.replace("_", " ") for one in ("alarm_clock", "vase")}),
        ("objectnet_to_imagenet_1k.json", {"alarm clock": "analog clock; digital clock", "vase": "vase"}),
        ("pytorch_to_imagenet_2012_id.json", {"409": 1, str(clock): 2, str(vase): 3}),
    ):
        (root / "objectnet/mappings").mkdir(exist_ok=True)
        (root / "objectnet/mappings" / name).write_text(json.dumps(value))
    (root / "objectnet/mappings/imagenet_to_label_2012_v2").write_text("analog clock\ndigital clock\nvase\n")
    found[f"objectnet:{root / 'objectnet'}"] = {"alarm clock": (409, clock), "vase": (vase,)}
    return found


def test_every_label_space_meets_a_model_of_imagenets_thousand_outputs(tmp_path: Path) -> None:
    """Rows against the model's own outputs, read by hand."""
    name = "timm:test_vit?pretrained=false&size=64"
    classifier = load_classifier(name, device="cpu")
    assert len(classifier.labels) == 1000
    for number, (data, outputs) in enumerate(layouts(tmp_path / "sets").items()):
        scheme = parse_name(data).scheme
        run, _ = evaluate(EvaluateSpec(data, models=(name,), scenarios="original"), tmp_path / f"run{number}")
        rows = {row["sample_id"]: row for row in run.rows().to_pylist()}
        samples = load_collection(data).samples
        assert len(rows) == len(samples) == 4 and {row["label"] for row in rows.values()} == set(outputs), scheme
        for sample, scores in zip(samples, classifier.predict([one.image.load() for one in samples]), strict=True):
            row = rows[sample.sample_id]
            best = {label: max(scores[list(own)]) for label, own in outputs.items()}
            expected = max(best, key=lambda label: best[label])
            assert row["status"] == "ok" and row["prediction_restricted"] == expected, scheme
            assert row["correct_restricted"] == (expected == sample.label)
            assert row["correct"] == (int(scores.argmax()) in outputs[sample.label])
            assert row["probability_of_label"] == pytest.approx(scores[list(outputs[sample.label])].sum(), rel=1e-3)
