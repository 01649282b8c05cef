"""``eval`` with detectors: rows per object and per image, thresholds, resuming, answers that are none."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest
from PIL import Image

import holdfast
from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import Rendered, Sample
from holdfast.data.boxes import ListedObject, ListedObjects
from holdfast.data.images import ArrayImage
from holdfast.pipeline.evaluate.detection import settle
from holdfast.pipeline.evaluate.matching import UnionMask, best_threshold, judged, shown_objects
from holdfast.pipeline.samples import Rendering
from holdfast.pipeline.tasks import DETECTION
from holdfast.scenarios import parse_conditions, render
from holdfast.store import Run
from holdfast.testing.scenario import MemoryContext

SCENES = "diorama:test?n=10&objects=0..3&size=64"


def tables(run):
    return {name: Run(run).details(name).rows().to_pandas() for name in DETECTION.tables}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    out = tmp_path_factory.mktemp("known") / "run"
    names = ["known:perfect", "known:texture", "known:shift?pixels=40", "known:scene"]
    holdfast.evaluate(
        SCENES, models=names, scenarios="original,blur_background,only_background,random_background", out=out
    )
    return out


def recall(objects, model, condition, status="ok"):
    wanted = (objects.model == model) & (objects.condition == condition) & (objects.status == status) & ~objects.crowd
    return objects[wanted].found.astype(float).mean()


def test_detectors_whose_answers_are_known_score_as_they_must(known):
    objects, images = (tables(known)[name] for name in ("objects", "images"))
    for condition in ("original", "blur_background", "random_background"):
        assert recall(objects, "known:perfect", condition) == 1
        assert recall(objects, "known:shift?pixels=40", condition) == 0
    assert recall(objects, "known:perfect", "only_background", "removed") == 0
    assert recall(objects, "known:texture", "original") == 1
    assert recall(objects, "known:texture", "random_background") == 0
    assert recall(objects, "known:texture", "only_background", "removed") == 1, "it sees what is gone"
    assert recall(objects, "known:scene", "original") == 1
    assert recall(objects, "known:scene", "blur_background") == 0
    wrong = objects[(objects.model == "known:scene") & (objects.condition == "blur_background") & ~objects.crowd]
    assert (wrong[wrong.status == "ok"].predicted.astype(str) != "").all()
    alarms = images[images.status == "ok"].groupby(["model", "condition"], observed=True).false_alarms.sum()
    assert alarms["known:perfect"].sum() == 0
    assert alarms["known:texture", "only_background"] > 0


def test_every_picture_has_a_row_and_empty_ones_count_for_false_alarms(known):
    run, images = Run(known), tables(known)["images"]
    rows = run.rows().to_pandas()
    assert set(rows.task) == {"detect"}
    assert set(rows.row_id) == set(images.row_id)
    empty = images[(images.condition == "original") & (images.n_objects == 0)]
    assert len(empty) and (empty.false_alarms == 0).all()
    assert set(rows[rows.status == "skipped"].condition) <= {"blur_background", "only_background", "random_background"}


def test_a_command_given_again_makes_nothing_and_lost_rows_are_made_again(known, tmp_path):
    spec = {"models": ["known:perfect"], "scenarios": "original,blur_background", "out": tmp_path / "run"}
    holdfast.evaluate(SCENES, **spec)
    run = Run(tmp_path / "run")
    before = run.rows().to_pandas().set_index("row_id").sort_index()
    frozen = json.loads((run.path / "spec.json").read_text())["thresholds"]
    run.predictions.drop(pc.field("condition") == "blur_background")
    holdfast.evaluate(SCENES, **spec)
    assert run.rows().to_pandas().set_index("row_id").sort_index().equals(before)
    assert len(tables(run.path)["images"]) == len(before)
    assert json.loads((run.path / "spec.json").read_text())["thresholds"] == frozen
    with pytest.raises(UserError, match="frozen"):
        holdfast.evaluate(SCENES, threshold=0.9, **spec)


def test_a_run_of_detectors_takes_no_answers_of_classifiers(tmp_path):
    given = {"scenarios": "original", "out": tmp_path / "run"}
    holdfast.evaluate(SCENES, models=["known:perfect"], **given)
    recorded = (tmp_path / "run" / "spec.json").read_text()
    with pytest.raises(UserError, match="task is 'detect', not 'classify'"):
        holdfast.evaluate(SCENES, models=["embedded:resnet_rho95"], **given)
    assert (tmp_path / "run" / "spec.json").read_text() == recorded
    assert len(holdfast.evaluate(SCENES, models=["known:perfect"], **given).objects()) == 1


def test_answers_from_before_the_threshold_are_judged_when_it_is_known(tmp_path, monkeypatch):
    from holdfast.pipeline.evaluate import detection

    monkeypatch.setattr(detection, "settle", lambda *given: 0)  # a process that is killed there
    out = tmp_path / "run"
    holdfast.evaluate(SCENES, models=["known:perfect"], scenarios="original", out=out)
    assert tables(out)["objects"].found.isna().all()
    monkeypatch.undo()
    assert settle(Run(out), {"known:perfect": 0.5}) == 10
    objects = tables(out)["objects"]
    assert objects[~objects.crowd & (objects.status == "ok")].found.all()
    assert Run(out).rows().to_pandas().correct.all()
    assert settle(Run(out), {"known:perfect": 0.5}) == 0


BAD = """
import numpy as np
from holdfast.diorama import CLASSES

class Broken:
    labels = CLASSES
    def __init__(self, how): self.how, self.fingerprint = how, how
    def detect(self, images):
        return [getattr(self, self.how)(image) for image in images]
    def nan(self, image): return [[0, 0, np.nan, 9]], [0.5], [0]
    def range(self, image): return [[0, 0, 9, 9]], [0.5], [99]
    def logits(self, image): return [[0, 0, 9, 9]], [7.5], [0]
    def counts(self, image): return [[0, 0, 9, 9]], [0.5, 0.4], [0]
    def shape(self, image): return "nothing"
    def unsorted(self, image):
        return {"boxes": [[0, 0, 9, 9], [5, 5, 30, 30]], "scores": [0.2, 0.8], "labels": ["fox", "fox"]}
    def outside(self, image): return [[-50, -50, -10, -10], [0, 0, 500, 500]], [0.9, 0.8], [0, 1]
    def none(self, image): return [], [], []

nan, range_, logits, counts, shape, unsorted, outside, none = map(
    Broken, ("nan", "range", "logits", "counts", "shape", "unsorted", "outside", "none"))
"""


def test_answers_that_are_none_become_rows_with_a_status(tmp_path, monkeypatch):
    (tmp_path / "bad_boxes.py").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    names = [f"python:bad_boxes:{how}" for how in ("nan", "range_", "logits", "counts", "shape")]
    with pytest.raises(UserError, match="no answer at all"):
        holdfast.evaluate(SCENES, models=names, scenarios="original", out=tmp_path / "run")
    rows = Run(tmp_path / "run").rows().to_pandas()
    assert set(rows.status) == {"error"}
    assert rows.groupby("model", observed=True).error.nunique().eq(1).all()
    assert set(tables(tmp_path / "run")["objects"].status) <= {"error", "invalid"}


def test_odd_answers_are_tidied_and_cut_at_the_edges(tmp_path, monkeypatch):
    (tmp_path / "bad_boxes.py").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    names = [f"python:bad_boxes:{how}" for how in ("unsorted", "outside", "none")]
    holdfast.evaluate(SCENES, models=names, scenarios="original", out=tmp_path / "run", threshold=0.1)
    detections = tables(tmp_path / "run")["detections"]
    assert (detections[detections.model == names[0]].score.values.reshape(-1, 2) == np.float32([0.8, 0.2])).all()
    kept = detections[detections.model == names[1]]
    assert len(kept) == 10 and (kept.x2 == 64).all(), "a box outside is not a box"
    assert not (detections.model == names[2]).any()


def test_detectors_and_classifiers_do_not_mix_and_need_boxes(tmp_path):
    with pytest.raises(UserError, match="two commands"):
        holdfast.evaluate(SCENES, models=["known:perfect", "embedded:resnet_rho0"], out=tmp_path / "a")
    for label in ("fox", "owl"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        Image.new("RGB", (20, 20)).save(tmp_path / "photos" / label / "a.png")
    with pytest.raises(UserError, match="no boxes and no masks"):
        holdfast.evaluate(tmp_path / "photos", models=["known:perfect"], out=tmp_path / "b")
    for more, word in ({"expect_accuracy": 0.5}, "expect"), ({"scenarios": "fgsm"}, "attack"):
        with pytest.raises(UserError, match=word):
            holdfast.evaluate(SCENES, models=["known:perfect"], out=tmp_path / "c", **more)


def truth(label, box, **more):
    x1, y1, x2, y2 = box
    return {"label": label, "x1": x1, "y1": y1, "x2": x2, "y2": y2, "crowd": False, "status": "ok"} | more


def guess(label, box, score):
    return truth(label, box) | {"score": score}


def test_each_object_is_found_once_and_the_rest_are_false_alarms():
    objects = [truth("cat", (0, 0, 10, 10)), truth("dog", (20, 0, 30, 10)), truth("cat", (50, 0, 90, 40), crowd=True)]
    predictions = [
        guess("cat", (0, 0, 10, 9), 0.9), guess("cat", (0, 0, 10, 10), 0.8), guess("cat", (20, 0, 30, 10), 0.7),
        guess("cat", (55, 5, 65, 15), 0.6), guess("dog", (20, 0, 30, 10), 0.2),
    ]  # fmt: skip
    answered, columns = judged(objects, predictions, 0.5)
    assert [row.get("found") for row in answered] == [True, False, False]
    assert answered[0]["iou"] == pytest.approx(0.9) and answered[1]["predicted"] == "cat"
    assert columns == {"n_objects": 2, "threshold": 0.5, "n_predictions": 4, "false_alarms": 2}
    answered, columns = judged(objects, predictions, 0.1)
    assert answered[1]["found"] and columns["false_alarms"] == 2


def test_the_threshold_has_the_best_f1_and_ties_stand_or_fall_together():
    objects = [truth("cat", (0, 0, 10, 10)), truth("cat", (20, 0, 30, 10))]
    predictions = [
        guess("cat", (0, 0, 10, 10), 0.8), guess("cat", (20, 0, 30, 10), 0.6), guess("cat", (70, 0, 80, 9), 0.3),
        guess("cat", (71, 50, 80, 59), 0.3),
    ]  # fmt: skip
    assert best_threshold([(objects, predictions)]) == (0.45, 1.0)
    assert best_threshold([(objects, [])]) == (0.5, 0.0)


def test_conditions_about_one_object_leave_the_others_as_they_are(tmp_path):
    out, scenes = tmp_path / "run", "diorama:test?n=8&objects=3&size=96"
    names = ["known:perfect", "known:texture"]
    holdfast.evaluate(scenes, models=names, scenarios="original,object_surroundings,object_removed", out=out)
    objects = tables(out)["objects"]
    perfect = objects[(objects.model == "known:perfect") & (objects.status != "invalid") & ~objects.crowd]
    for condition in ("object_surroundings", "object_removed"):
        shown = perfect[(perfect.condition == condition) & perfect.status.isin(["ok", "removed"])]
        assert shown.groupby("sample_id").target.sum().eq(1).all(), "one object of each image is chosen"
        assert shown[~shown.target].found.all()
        assert shown[shown.target].found.eq(condition == "object_surroundings").all()
    removed = perfect[(perfect.condition == "object_removed") & perfect.target]
    assert set(removed.status) == {"removed"}
    chosen = perfect[perfect.target].groupby("sample_id").object_id.nunique()
    assert chosen.eq(1).all(), "both conditions are about the same object"


def test_without_a_word_about_scenarios_all_of_them_are_asked(tmp_path):
    holdfast.evaluate("diorama:test?n=2&objects=2&size=48", models=["known:perfect"], out=tmp_path / "run")
    conditions = set(Run(tmp_path / "run").rows().to_pandas().condition)
    assert {"original", "only_background", "random_background", "object_removed", "object_surroundings"} <= conditions


def test_boxes_without_masks_get_some_and_are_marked(tmp_path):
    import cv2

    folder = tmp_path / "photos"
    folder.mkdir()
    for name, colour in (("a", (40, 40, 200)), ("b", (200, 60, 40))):
        picture = np.random.default_rng(3).integers(110, 140, (60, 80, 3)).astype(np.uint8)
        cv2.circle(picture, (40, 30), 15, colour, -1)
        cv2.imwrite(str(folder / f"{name}.png"), picture)
    rows = ["image,label,x1,y1,x2,y2", "a.png,red,22,12,58,48", "b.png,blue,22,12,58,48", "b.png,red,5,5,5,9"]
    (tmp_path / "boxes.csv").write_text("\n".join(rows))
    holdfast.evaluate(
        str(folder), boxes=str(tmp_path / "boxes.csv"), models=["known:perfect"],
        scenarios="original,foreground_on_grey", out=tmp_path / "run",
    )  # fmt: skip
    objects = tables(tmp_path / "run")["objects"]
    usable = objects[objects.status == "ok"]
    assert usable.mask_made.all() and usable.found.all() and len(usable) == 4
    assert set(objects[objects.status == "invalid"].error) == {"the box is empty"}
    classes = json.loads((tmp_path / "run" / "spec.json").read_text())["classes"]
    assert classes == ["blue", "red"]


def test_processes_make_the_same_rows(tmp_path):
    spec = {"models": ["embedded:boxes_rho0"], "scenarios": "original,random_background"}
    one_process = holdfast.evaluate(SCENES, out=tmp_path / "one", **spec)
    several = holdfast.evaluate(SCENES, out=tmp_path / "two", workers=2, **spec)
    for name in ("images", "objects", "detections"):
        first, second = (tables(run.path)[name] for run in (one_process, several))
        columns = [
            "row_id",
            *(["object_id"] if name == "objects" else ["x1", "y1", "score"] if name != "images" else []),
        ]
        assert first.sort_values(columns, ignore_index=True).equals(second.sort_values(columns, ignore_index=True))


def test_the_embedded_detectors_stand_in_the_order_of_their_tie(tmp_path):
    names = ["embedded:boxes_rho0", "embedded:boxes_rho95"]
    out = tmp_path / "run"
    holdfast.evaluate(
        "diorama:test?n=40&objects=1..4&context=0.95", models=names, scenarios="original,random_background", out=out
    )
    objects = tables(out)["objects"]
    drops = [recall(objects, name, "original") - recall(objects, name, "random_background") for name in names]
    assert recall(objects, names[0], "original") > 0.9 and recall(objects, names[1], "original") > 0.9
    assert drops[1] > drops[0] + 0.02


def test_a_check_of_a_detector_says_what_it_holds_on_to(tmp_path):
    answer = holdfast.check("known:scene", "diorama:test?n=14&objects=2&size=64", out=tmp_path / "check")
    assert answer.page.is_file() and answer.lines[0].startswith("known:scene on diorama")
    assert answer.verdict["recall_elsewhere"] == 0
    with pytest.raises(UserError, match="detectors"):
        holdfast.check("embedded:resnet_rho0", "diorama:test?n=24", boxes="x.csv", out=tmp_path / "other")
    with pytest.raises(UserError, match="asks everything"):
        holdfast.check("known:scene", SCENES, budget="10", out=tmp_path / "third")


def test_kill_9_and_run_again(tmp_path):
    import signal
    import subprocess
    import time

    from commands import HOLDFAST

    scenes, conditions = "diorama:test?n=40&objects=0..4&size=96", "original,blur_background,random_background"
    spec = {"models": ["embedded:boxes_rho0"], "scenarios": conditions}
    holdfast.evaluate(scenes, out=tmp_path / "whole", **spec)
    out = tmp_path / "killed"
    command = [
        *HOLDFAST,
        "eval",
        scenes,
        "--models",
        *spec["models"],
        "--scenarios",
        conditions,
        "--out",
        str(out),
        "-q",
    ]
    with subprocess.Popen(command, text=True) as process:
        while not list((out / "predictions").glob("part-*")):
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    holdfast.evaluate(scenes, out=out, **spec)
    for name, keys in (
        ("images", ["row_id"]),
        ("objects", ["row_id", "object_id"]),
        ("detections", ["row_id", "score", "x1"]),
    ):
        first, second = (tables(run)[name].sort_values(keys, ignore_index=True) for run in (tmp_path / "whole", out))
        assert first.astype(str).equals(second.astype(str)), name
    rows = [Run(run).rows().to_pandas().drop(columns="run_id") for run in (tmp_path / "whole", out)]
    assert rows[0].sort_values("row_id", ignore_index=True).equals(rows[1].sort_values("row_id", ignore_index=True))


RED = """
import numpy as np

class Red:
    labels = ("red",)
    def __init__(self, how): self.how, self.fingerprint = how, how
    def detect(self, images):
        return [self.one(image) for image in images]
    def one(self, image):
        mask = (image[..., 0] > 200) & (image[..., 1] < 60)
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        box = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
        answer = {"boxes": [box], "scores": [0.9], "labels": [0]}
        if self.how == "half": mask[: rows[len(rows) // 2]] = False
        if self.how == "wrong": mask = mask[1:]
        return answer if self.how == "none" else answer | {"masks": [mask]}

whole, half, none, wrong = map(Red, ("whole", "half", "none", "wrong"))
"""


def test_masks_of_predictions_are_compared_with_those_of_objects(tmp_path, monkeypatch):
    """The whole mask has an IoU of 1, its lower half one of a half; without masks there is none."""
    import cv2

    (tmp_path / "red_masks.py").write_text(RED)
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    images, objects = [], []
    for number in range(2):
        picture, mask = np.full((60, 80, 3), 120, np.uint8), np.zeros((60, 80), np.uint8)
        cv2.rectangle(picture, (20 + number, 10), (59, 49), (0, 0, 255), -1)
        cv2.rectangle(mask, (20 + number, 10), (59, 49), 1, -1)
        cv2.imwrite(f"photos/{number}.png", picture)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.T.reshape(-1), [0]])))
        runs = np.diff(np.concatenate([[0], edges, [mask.size]])).tolist()
        images.append({"id": number, "file_name": f"{number}.png", "height": 60, "width": 80})
        objects.append({"id": number, "image_id": number, "category_id": 1, "bbox": [20 + number, 10, 40 - number, 40],
                        "area": int(mask.sum()), "segmentation": {"size": [60, 80], "counts": runs}})  # fmt: skip
    Path("boxes.json").write_text(
        json.dumps({"images": images, "annotations": objects, "categories": [{"id": 1, "name": "red"}]})
    )
    names = [f"python:red_masks:{how}" for how in ("whole", "half", "none", "wrong")]
    spec = {"images": "photos", "models": names, "scenarios": "original,grey", "out": "run"}
    with pytest.raises(UserError, match="gave masks of shape"):
        holdfast.evaluate("coco:boxes.json", **spec)
    objects = tables("run")["objects"]
    fit = objects[objects.status == "ok"].groupby("model", observed=True).mask_iou.mean()
    assert objects[objects.status == "ok"].found.all()
    assert fit[names[0]] == 1 and fit[names[1]] == pytest.approx(0.5) and np.isnan(fit[names[2]])
    table = holdfast.open_run("run").objects(resamples=50).set_index(["model", "condition"])
    assert table.mask_iou[names[1], "grey"] == pytest.approx(0.5) and table.iou[names[1], "grey"] == 1


def test_boxes_become_masks_by_a_segmenter_that_takes_boxes(tmp_path):
    """A tiny SAM makes the masks, which are marked and stay inside their boxes."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "annotate"))
    import cv2
    from tiny_sam import write_sam

    write_sam(tmp_path / "sam")
    (tmp_path / "photos").mkdir()
    for name in "ab":
        picture = np.random.default_rng(ord(name)).integers(0, 255, (60, 80, 3), np.uint8)
        cv2.imwrite(str(tmp_path / "photos" / f"{name}.png"), picture)
    lines = ["image,label,x1,y1,x2,y2", "a.png,red,20,10,60,50", "b.png,blue,20,10,60,50"]
    (tmp_path / "boxes.csv").write_text("\n".join(lines))
    holdfast.evaluate(
        str(tmp_path / "photos"), boxes=str(tmp_path / "boxes.csv"), box_masks=f"sam:{tmp_path / 'sam'}",
        models=["known:perfect"], scenarios="original,segmented", out=tmp_path / "run",
    )  # fmt: skip
    objects = tables(tmp_path / "run")["objects"]
    assert objects.mask_made.all() and objects.found.all() and set(objects.status) == {"ok"}


def test_classes_that_a_detector_does_not_know_do_not_count_for_it(tmp_path, monkeypatch):
    (tmp_path / "only_fox.py").write_text("""
class Fox:
    labels, fingerprint = ("fox",), "1"
    def detect(self, images):
        return [([], [], []) for _ in images]
model = Fox()
""")
    monkeypatch.chdir(tmp_path)
    holdfast.evaluate("diorama:test?n=12&objects=1&size=48", models=["python:only_fox:model"], scenarios="original",
                      out="run", threshold=0.5)  # fmt: skip
    objects = tables("run")["objects"]
    others = objects[(objects.label != "fox") & ~objects.crowd & (objects.status != "invalid")]
    assert len(others) and set(others.status) == {"unknown_class"} and others.found.isna().all()
    assert set(objects[(objects.label == "fox") & ~objects.crowd].status) <= {"ok", "invalid"}
    assert (
        tables("run")["images"].n_objects.sum()
        == (objects.status == "ok").sum() - objects.crowd[objects.status == "ok"].sum()
    )


def test_boxes_that_are_shifted_overlap_by_as_much_as_geometry_says(tmp_path):
    shift, name = 5, "known:shift?pixels=5"
    holdfast.evaluate("diorama:test?n=8&objects=1&size=96", models=[name], scenarios="original", out=tmp_path / "run",
                      threshold=0.1)  # fmt: skip
    objects = tables(tmp_path / "run")["objects"]
    found = objects[(objects.status == "ok") & ~objects.crowd & (objects.found == True)]  # noqa: E712  (null is neither)
    width = found.x2 - found.x1
    assert len(found) > 3 and np.allclose(found.iou, (width - shift) / (width + shift), atol=1e-4)


def test_what_a_mask_covers_is_the_object_of_a_classified_photo(tmp_path):
    rng = np.random.default_rng(0)
    boxes = {}
    for number, label in enumerate(("beagle", "pug", "siamese") * 2):
        left, top, right, bottom = boxes[f"{label}{number}"] = (5 + number, 8, 40, 30 + number)
        mask = np.zeros((60, 64), np.uint8)
        mask[top:bottom, left:right] = 255
        for kind, pixels in (("images", rng.integers(0, 255, (60, 64, 3), np.uint8)), ("masks", mask)):
            (tmp_path / kind / label).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / kind / label / f"{label}{number}.png")
    (tmp_path / "labels.csv").write_text("class,label\nbeagle,dog\npug,dog\nsiamese,cat\n")
    run = holdfast.evaluate(
        tmp_path / "images", masks=tmp_path / "masks", labels=tmp_path / "labels.csv", models="known:perfect",
        scenarios="original,blur_background", out=tmp_path / "run",
    )  # fmt: skip
    objects = tables(tmp_path / "run")["objects"]
    assert objects.found.all() and set(objects.label) == {"cat", "dog"}, "several classes may mean one output"
    for row in objects.to_dict("records"):
        assert (row["x1"], row["y1"], row["x2"], row["y2"]) == boxes[Path(row["sample_id"]).stem]
    assert set(run.objects(resamples=20).recall) == {1.0}
    (tmp_path / "attributes.csv").write_text("id,camera\n" + "".join(f"{name},B\n" for name in set(objects.sample_id)))
    page = holdfast.report([run], by=["camera"], attributes=tmp_path / "attributes.csv", out=tmp_path / "page")
    assert "Objects not found by camera" in Path(page).read_text(encoding="utf8")
    table = pd.read_csv(tmp_path / "page" / "tables" / "groups_camera.csv")
    assert table[["value", "n", "error"]].to_numpy().tolist() == [["B", 6, 0.0]]


def test_a_picture_with_too_many_boxes_is_a_row_with_a_status_and_the_others_are_asked(tmp_path):
    for name in "ab":
        Image.new("RGB", (40, 40), "green").save(tmp_path / f"{name}.png")
    many = [{"id": n, "image_id": 0, "category_id": 1, "bbox": [1, 1, 20, 20]} for n in range(10_001)]
    file = {
        "images": [{"id": n, "file_name": f"{name}.png", "width": 40, "height": 40} for n, name in enumerate("ab")],
        "annotations": [*many, {"id": -1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 20, 20]}],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / "boxes.json").write_text(json.dumps(file))
    data = f"coco:{tmp_path}/boxes.json?images={tmp_path}"
    run = holdfast.evaluate(data, models="known:perfect", scenarios="original", out=tmp_path / "run", threshold=0.5)
    rows = run.rows().to_pandas().set_index("sample_id")
    assert rows.status.to_dict() == {"a": "error", "b": "ok"} and "more than 10,000" in rows.error["a"]
    assert tables(tmp_path / "run")["objects"].found.tolist() == [True]


@pytest.mark.parametrize(
    ("moves", "second"),
    [
        ((-9, 0), (31, 10, 51, 34)),
        ((-15, -4), (25, 6, 45, 30)),
        ((12, 0), (52, 10, 60, 34)),
        ((0, 3), (40, 13, 60, 37)),
    ],
)
def test_true_boxes_are_cut_where_objects_leave_the_picture(moves, second):
    """A shift across an edge is not a scale: the boxes are those of what is left, or the image is refused."""
    boxes = {"a": (5, 10, 25, 34), "b": (40, 10, 60, 34)}
    objects = ListedObjects(tuple(ListedObject(name, "cat", box) for name, box in boxes.items()))
    image = np.zeros((40, 60, 3), np.uint8)
    sample, mask = Sample("s", "cat", ArrayImage(image), objects=objects), UnionMask(objects).load(40, 60)

    def shown(x, y):
        moved = np.zeros_like(mask)
        for x1, y1, x2, y2 in boxes.values():
            moved[max(0, y1 + y) : max(0, y2 + y), max(0, x1 + x) : max(0, x2 + x)] = True
        rendering = Rendering(parse_conditions("shift_object")[0], Rendered(image, moved, {}), moved=True)
        return [tuple(row[corner] for corner in ("x1", "y1", "x2", "y2")) for row in
                shown_objects(sample, rendering, (40, 60), mask)]  # fmt: skip

    x, y = moves
    assert shown(x, y) == [(max(0, 5 + x), 10 + y, 25 + x, 34 + y), second]
    with pytest.raises(SampleError, match="moves all objects out of the image"):
        shown(-60, 0)
    with pytest.raises(SampleError, match="moves object a out of the image"):
        shown(-27, 0)


def test_an_enlarged_object_s_box_ends_at_the_picture_s_edge():
    objects = ListedObjects(tuple(ListedObject(str(x), "cat", (x, 12, x + 8, 28)) for x in (4, 16)))
    image = np.zeros((40, 60, 3), np.uint8)
    mask = UnionMask(objects).load(40, 60)
    condition = parse_conditions("scale_object?factor=2")[0]
    rendered = render(condition, image, mask, rng=np.random.default_rng(0), context=MemoryContext("cat"))
    rendering = Rendering(condition, rendered, moved=True)
    rows = shown_objects(Sample("s", "cat", ArrayImage(image), objects=objects), rendering, (40, 60), mask)
    corners = [[row[corner] for corner in ("x1", "y1", "x2", "y2")] for row in rows]
    assert corners == [[0, 4, 10, 36], [18, 4, 34, 36]]
