"""Images with several labels: known answers, resuming, COCO, and what is refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import holdfast
from commands import run
from holdfast.core.errors import UserError
from holdfast.data import load_collection
from holdfast.exchange.tracking import record_run

PHOTOS = 12


def make_photos(folder: Path) -> Path:
    """Half of the images have a red disc (else a green one), half of them a blue sea as background (else grey)."""
    lines = ["path,label,mask"]
    for number in range(PHOTOS):
        disc, sea = number % 2 == 0, number % 4 < 2
        picture = np.full((40, 40, 3), (200, 40, 40) if sea else (90, 90, 90), np.uint8)  # BGR
        mask = cv2.circle(np.zeros((40, 40), np.uint8), (20, 20), 8 + number % 3, 255, -1)
        picture[mask > 0] = (0, 0, 250) if disc else (0, 250, 0)
        for name, pixels in ((f"{number}.png", picture), (f"{number}_mask.png", mask)):
            folder.mkdir(exist_ok=True)
            cv2.imwrite(str(folder / name), pixels)
        labels = [name for name, there in (("disc", disc), ("sea", sea), ("round", True)) if there]
        lines.append(f"{number}.png,{'; '.join(labels)},{number}_mask.png")
    (folder / "list.csv").write_text("\n".join(lines))
    return folder / "list.csv"


class Looks:
    """Sees the disc at its colour and the sea at the image's corner; counts how many images it was shown."""

    labels, fingerprint = ("disc", "sea", "round"), "1"

    def __init__(self) -> None:
        self.shown = 0

    def predict(self, images: list[Any]) -> Any:
        self.shown += len(images)
        return [[float(image[20, 20, 0] > 200), 0.9 * float(image[0, 0, 2] > 150), 0.5] for image in images]


def test_every_label_has_the_known_drop_and_a_picture_is_shown_once(tmp_path: Path) -> None:
    data, model = f"manifest:{make_photos(tmp_path / 'photos')}?separator=;", Looks()
    options: dict[str, Any] = {"scenarios": "original,foreground_on_grey,bright_object?image_weight=0&blur_weight=0"}
    results = holdfast.evaluate(data, models={"looks": model}, out=tmp_path / "run", **options)
    assert model.shown == 3 * PHOTOS  # once for all labels
    rows = results.rows().to_pandas()
    assert len(rows) == 3 * 3 * PHOTOS and set(rows["task"]) == {"multilabel"}
    assert set(rows["protocol"]) == {"score of 0.5"} and rows["row_id"].is_unique
    table = results.labels().set_index(["label", "condition"])
    grey, dark = "foreground_on_grey", next(name for name in table.index.levels[1] if name.startswith("bright"))
    assert table["original"].eq(1).all()
    assert table.loc[("disc", grey), ["drop", "recall", "alarms"]].tolist() == [0, 1, 0]
    assert table.loc[("sea", grey), ["drop", "recall", "alarms"]].tolist() == [0.5, 0, 0]
    assert table.loc[("disc", dark), ["drop", "recall", "alarms"]].tolist() == [0.5, 0, 0]
    assert (
        table.loc[("sea", dark), "drop"] == 0 and table.loc[("round", grey), "recall"] == 1
    )  # a score of 0.5 is a yes
    assert table.loc[("sea", grey), "low"] > 0 > table.loc[("disc", grey), "low"]
    again = holdfast.evaluate(data, models={"looks": model}, out=tmp_path / "run", **options)
    assert model.shown == 3 * PHOTOS and len(again.rows()) == len(rows)
    page = results.report().read_text()
    assert "sea loses 50.0 points" in page and "disc" in page


def test_a_run_of_labels_is_not_taken_for_one_of_classifiers(tmp_path: Path) -> None:
    data = f"manifest:{make_photos(tmp_path / 'photos')}?separator=;"
    results = holdfast.evaluate(
        data, models={"looks": Looks()}, out=tmp_path / "run", scenarios="original,foreground_on_grey"
    )
    shown = results._repr_html_()
    assert ".labels()" in shown and "No model answered" not in shown
    assert (results.verdicts()["verdict"] == "undecided").all()  # no condition of a verdict was run
    with pytest.raises(UserError, match=r"runs of eval of classifiers; report shows .*run"):
        holdfast.audit_dossier([results.path], tmp_path / "dossier")
    assert not (tmp_path / "dossier").exists()
    with zipfile.ZipFile(holdfast.share_bundle(results.path, tmp_path / "run.zip", report=False).path) as archive:
        (table,) = [name for name in archive.namelist() if name.endswith(".csv")]
        assert table.endswith("tables/labels.csv") and b"sea" in archive.read(table)
    assert record_run(results).numbers["looks/foreground_on_grey/sea/drop"] == 0.5


def test_the_command_prints_labels_and_freezes_the_threshold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"manifest:{make_photos(tmp_path / 'photos')}?separator=;"
    monkeypatch.chdir(tmp_path)
    Path("several_looks.py").write_text(
        "class Looks:\n    labels, fingerprint = ('disc', 'sea', 'round'), '1'\n    def predict(self, images):\n"
        "        return [[i[20, 20, 0] / 255, i[0, 0, 2] / 300, 0.4] for i in images]\nlooks = Looks()\n"
    )
    command = ["eval", data, "--models", "python:several_looks:looks", "--out", "run"]
    done = run(*command, "--scenarios", "original,segmented", "--threshold", "0.4")
    assert "sea" in done.stdout and "50.0 (" in done.stdout
    other = run(*command, "--scenarios", "original", "--threshold", "0.6", code=2)
    assert "threshold is 0.4, not 0.6" in other.stderr
    fast = run(*command[:-1], "new", "--scenarios", "original", "--fast", code=2)
    assert "--fast: the fast pass is not supported for images with several labels" in fast.stderr


def test_networks_answer_with_independent_scores(tmp_path: Path) -> None:
    import torch

    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 3))
    with torch.no_grad():
        network[2].weight.zero_()
        network[2].bias.copy_(torch.tensor([2.0, 1.0, -1.0]))  # a softmax would say yes to the first alone
    data = f"manifest:{make_photos(tmp_path / 'photos')}?separator=;"
    made = holdfast.evaluate(
        data, models={"net": network}, class_names=["disc", "sea", "round"], scenarios="original", out=tmp_path / "run",
        transform=lambda image: torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float(),
    )  # fmt: skip
    said = made.rows().to_pandas().groupby("prediction").size()
    assert said.to_dict() == {"disc": PHOTOS, "sea": PHOTOS, "no round": PHOTOS}


def test_logits_of_several_labels_are_logits_in_every_row(tmp_path: Path) -> None:
    """The logit 0.4 is a yes; it lies within 0..1 as all logits of half of the images do."""

    class Logits(Looks):
        outputs = "logits"

        def predict(self, images: list[Any]) -> Any:
            return [[0.4, 0.4, 0.4 if image[0, 0, 2] > 150 else -3.0] for image in images]

    data, model = f"manifest:{make_photos(tmp_path / 'photos')}?separator=;", Logits()
    options: dict[str, Any] = {"models": {"logits": model}, "scenarios": "original"}
    rows = holdfast.evaluate(data, out=tmp_path / "run", **options).rows().to_pandas()
    assert rows.groupby("prediction").size().to_dict() == {"disc": 12, "sea": 12, "round": 6, "no round": 6}
    model.outputs = "auto"
    with pytest.raises(UserError, match=r"outside 0\.\.1: say what they are, \?outputs=logits"):
        holdfast.evaluate(data, out=tmp_path / "other", **options)


def test_coco_gives_all_categories_and_the_mask_of_all_instances(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((20, 20, 3), np.uint8))
    boxes = [(1, [1, 1, 1, 5, 5, 5, 5, 1]), (2, [10, 10, 10, 15, 15, 15, 15, 10])]
    document = {
        "images": [{"id": 1, "file_name": "a.png", "height": 20, "width": 20}],
        "annotations": [
            {"id": number, "image_id": 1, "category_id": number, "segmentation": [points], "area": 16}
            for number, points in boxes
        ],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}],
    }
    (tmp_path / "boxes.json").write_text(json.dumps(document))
    (sample,) = load_collection(f"coco:{tmp_path / 'boxes.json'}?separator=;").samples
    assert sample.label == "cat;dog" and sample.mask is not None
    mask = sample.mask.load(20, 20)
    assert mask[3, 3] and mask[12, 12] and not mask[7, 7]


def test_what_takes_one_class_a_photo_says_so(tmp_path: Path) -> None:
    data = f"manifest:{make_photos(tmp_path / 'photos')}?separator=;"
    with pytest.raises(UserError, match="several labels are for holdfast eval"):
        holdfast.check(Looks(), data, out=tmp_path / "check")
    with pytest.raises(UserError, match="a declared protocol is not supported for images with several labels"):
        holdfast.evaluate(data, models={"looks": Looks()}, protocol=tmp_path / "d.json", out=tmp_path / "declared")
    with pytest.raises(UserError, match="has a #"):
        (tmp_path / "photos" / "odd.csv").write_text("path,label\n0.png,a#1;b\n")
        holdfast.evaluate(f"manifest:{tmp_path / 'photos' / 'odd.csv'}?separator=;", models={"looks": Looks()},
                          scenarios="original", out=tmp_path / "odd")  # fmt: skip
