"""``holdfast explain`` on small runs: rows, resuming, what is refused, the page."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import holdfast
from holdfast import api
from holdfast.attribution import DEPTHS, parse_methods
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.data.labels import map_labels
from holdfast.models import load_classifier, load_segmenter
from holdfast.pipeline.explain.explain import ExplainSpec, explain
from holdfast.pipeline.explain.maps import Item, MapMaker, classifier_subject, segmenter_subject
from holdfast.reports.attribution.section import STAGES
from holdfast.store import Run

MODELS = ["embedded:resnet_rho0", "embedded:vit_rho95"]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("drawn") / "run"
    scenes, conditions = "diorama:test?n=24&context=0.95", "original,random_background,only_background"
    holdfast.evaluate(scenes, models=MODELS, out=out, scenarios=conditions, device="cpu")
    return out


def rows(run: Path) -> pd.DataFrame:
    frame = Run(run).details("attributions").rows().to_pandas()
    kinds = frame.select_dtypes("category").columns
    frame[kinds] = frame[kinds].astype(object)  # the order of part files is no one's business
    return frame.sort_values(["row_id", "method", "target"]).reset_index(drop=True)


def test_pictures_made_ahead_and_maps_measured_in_threads_are_the_same(drawn: Path, tmp_path: Path) -> None:
    found = []
    for name, device in (("turns", "cpu"), ("ahead", "cpu:0")):  # any other device than cpu works asynchronously
        run = Path(shutil.copytree(drawn, tmp_path / name))
        shutil.rmtree(run / "details", ignore_errors=True)
        explain(run, ExplainSpec(limit=6, device=device, randomise=True, batch_size=4))
        found.append(rows(run))
    assert len(found[0]) == 24 and (found[0]["status"].astype(str) == "ok").all()
    pd.testing.assert_frame_equal(*found)


def test_maps_of_a_run_and_resuming(drawn: Path) -> None:
    found = api.explain(drawn, methods="gradcam", limit=6, device="cpu", pictures=1)
    assert (found.summary.rows, found.summary.already, dict(found.summary.trouble)) == (24, 0, {})
    first = rows(drawn)
    table = holdfast.open_run(drawn).run.rows(["row_id", "condition", "label"]).to_pandas()
    joined = first.merge(table, on="row_id")
    assert set(joined["condition"]) == {"original", "random_background"}  # without the object there is no foreground
    assert (joined["target_class"].astype(str) == joined["label"].astype(str)).all()
    fine = first[first["status"] == "ok"]
    np.testing.assert_allclose(fine["ratio"], fine["share"] / fine["area"], rtol=1e-4)
    assert fine["share"].between(0, 1).all() and (first["layer"].astype(str) != "").all()
    kept = [drawn / name for name in first["picture"] if name]
    assert pq.read_table(drawn / "details" / "attributions").num_rows == len(first)  # as other programs read it
    assert len(kept) == 4 and all(cv2.imread(str(one)).shape == (176, 176, 3) for one in kept)
    assert set(found.shares["condition"]) == {"original", "random_background"} and len(found.shares) == 4
    assert (drawn / "results" / "attributions.parquet").is_file() and (drawn / "explain" / "index.html").is_file()

    spec = ExplainSpec(limit=6, device="cpu", pictures=1)
    again = explain(drawn, spec)
    assert (again.summary.rows, again.summary.already) == (0, 24)
    pd.testing.assert_frame_equal(rows(drawn), first)
    part = Run(drawn).details("attributions").paths()[0]
    part.unlink()  # what a kill may cost
    mended = explain(drawn, replace(spec, batch_size=5))
    assert mended.summary.rows == len(first) - mended.summary.already > 0
    pd.testing.assert_frame_equal(rows(drawn), first, atol=1e-4)

    other = explain(drawn, replace(spec, target="prediction", conditions="original"))
    assert other.summary.rows == 12
    twin = explain(drawn, replace(spec, randomise=True, conditions="original"))
    assert twin.summary.rows == 12  # the same maps, and those of shuffled weights
    assert len(twin.sanity) == 2 and twin.sanity["changed"].all()
    now = rows(drawn)
    assert len(now) == 36 and now["share_randomised"].notna().sum() >= 10

    assert now["cascade"].isna().all()
    deeper = explain(drawn, replace(spec, cascade=True))
    assert deeper.summary.rows == 24  # originals by depth, and the others' shuffled twins
    assert len(deeper.cascade) == 2 * len(STAGES) == 2 * len(DEPTHS)
    final = deeper.cascade[deeper.cascade["stage"] == len(DEPTHS) - 1].set_index("model")["rank_correlation"]
    assert (final < 0.5).all()
    made = rows(drawn).merge(table, on="row_id")
    assert set(made.loc[made["cascade"].notna(), "condition"].astype(str)) == {"original"}
    assert explain(drawn, replace(spec, cascade=True)).summary.rows == 0

    page = api.report([drawn], drawn / "report", resamples=100).read_text()
    assert "With shuffled weights the maps change" in page and "Where the models look" in page
    assert "From the last layer down" in page and "the last three quarters" in page
    assert "as resnet_rho0 looks at it" in page and "\N{NO-BREAK SPACE}% of the area" in page


def test_the_mask_is_taken_as_the_picture_is() -> None:
    """A model that resizes the short side and crops the centre sees the middle of the mask as well."""
    classifier = load_classifier("timm:resnet18?pretrained=false&num_classes=12&size=64", device="cpu")
    labels = map_labels(classifier.labels.names, {}, classifier.labels)
    subject = classifier_subject(classifier, labels)
    mask = np.zeros((100, 200), bool)
    mask[20:80, 60:110] = True
    marked = np.zeros((100, 200, 3), np.uint8)
    marked[mask] = 255
    seen, view = subject.see(marked), subject.see_mask(mask)
    assert seen.shape == (64, 64, 3) and view.shape == (64, 64)
    assert ((seen[..., 0] > 127) == view).all()
    left = np.zeros((100, 200), bool)
    left[:, :20] = True
    assert not subject.see_mask(left).any()  # cropped away
    options = ExplainSpec()
    looking = MapMaker(subject, options, parse_methods("occlusion?window=32&stride=32"), Path())
    made = looking.rows([Item("1", classifier.labels.names[0], seen, subject.see_mask(left), False)])
    assert made[0]["status"] == "skipped" and "nothing of the mask" in made[0]["error"]


def test_segmenters_are_explained_inside_a_mask() -> None:
    segmenter, collection = load_segmenter("embedded:unet", device="cpu"), holdfast.load_collection("diorama:test?n=12")
    subject = segmenter_subject(segmenter, map_labels(collection.classes, {}, segmenter.labels))
    sample = collection.samples[3]
    image = sample.image.load()
    mask = sample.mask.load(*image.shape[:2])
    item = Item("1", sample.label, subject.see(image), subject.see_mask(mask), False)
    for target in ("label", "prediction"):
        options = ExplainSpec(target=target, randomise=True)
        made = MapMaker(subject, options, parse_methods("gradcam,integrated_gradients?steps=4"), Path()).rows([item])
        assert [row["status"] for row in made] == ["ok", "ok"], made
        assert made[1]["share"] > 1.5 * made[1]["area"]  # it reads the object
        assert made[0]["layer"].startswith("encoder") and made[1]["rank_correlation"] < 0.5


@pytest.fixture
def toy(photos: Path, toy_models: str, tmp_path: Path) -> Path:
    out = tmp_path / "run"
    masks = str(photos / "masks")
    holdfast.evaluate(
        photos / "images", models=[f"{toy_models}:colour"], out=out, scenarios="original,grey", masks=masks
    )
    return out


OCCLUSION = "occlusion?window=12&stride=12"


def test_a_black_box_that_reads_the_object(toy: Path) -> None:
    found = api.explain(toy, methods=OCCLUSION, conditions="original")
    (row,) = found.shares.to_dict("records")
    assert row["n"] == 12 and row["ratio"] > 1.2
    assert found.sanity.empty
    answer = CliRunner().invoke(app, ["explain", str(toy), "--method", OCCLUSION, "--conditions", "original", "-q"])
    assert answer.exit_code == 0 and "0 made, 12 there already" in answer.output
    with pytest.raises(UserError, match="needs gradients, and python:toy_models:colour has none; occlusion"):
        api.explain(toy, methods="gradcam")


def change_spec(run: Path, **changes: object) -> None:
    file = run / "spec.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_what_is_refused(toy: Path, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run directory"):
        api.explain(tmp_path)
    with pytest.raises(UserError, match="target"):
        api.explain(toy, target="lable")
    with pytest.raises(UserError, match="blur_object is not among"):
        api.explain(toy, methods=OCCLUSION, conditions="blur_object")
    change_spec(toy, models=["python:toy_models:gone"])
    with pytest.raises(UserError, match="toy_models"):
        api.explain(toy, methods=OCCLUSION)
    change_spec(toy, models=["python:toy_models:second"])  # other weights under the old name
    with pytest.raises(UserError, match="changed since the run"):
        api.explain(toy, methods=OCCLUSION)
    change_spec(
        toy, models=["python:toy_models:colour"], masks=None, data=str(next((photos / "images").parent.glob("images")))
    )
    (photos / "masks").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="holdfast mask"):
        api.explain(toy, methods=OCCLUSION)
    for verb in ("ask", "perturb"):
        change_spec(toy, verb=verb)
        with pytest.raises(UserError, match=f"a run of holdfast {verb}; explain needs one of holdfast eval"):
            api.explain(toy, methods=OCCLUSION)


def test_changed_images_are_left_out(toy: Path, photos: Path) -> None:
    files = sorted((photos / "images").rglob("*.png"))
    cv2.imwrite(str(files[0]), cv2.imread(str(files[0])) // 2)
    found = api.explain(toy, methods=OCCLUSION, conditions="original")
    assert found.summary.rows == 11
    assert found.summary.trouble["skipped: the image or its mask changed since the run"] == 1
    for file in files[1:]:
        cv2.imwrite(str(file), cv2.imread(str(file)) // 2)
    with pytest.raises(UserError, match="every image or mask changed"):
        api.explain(toy, methods=OCCLUSION, conditions="original")
    table = pq.read_table(toy / "results" / "attributions.parquet").to_pandas()
    assert table["n"].tolist() == [11]


def test_runs_of_segment_and_train(tmp_path: Path) -> None:
    common = {"scenarios": "original,random_background", "device": "cpu"}
    cut = api.segment("diorama:test?n=12", models=["embedded:unet"], out=tmp_path / "cut", **common).path
    found = explain(cut, ExplainSpec("integrated_gradients?steps=4", limit=4, device="cpu", pictures=0))
    assert (found.summary.rows, dict(found.summary.trouble)) == (8, {})
    assert (found.shares["ratio"] > 1.5).all()
    options = {"folds": 2, "epochs": 1, "size": 32, "validation": 0.0} | common
    run = api.train("diorama:test?n=24", architectures=["timm:resnet10t"], out=tmp_path / "own", **options).path
    found = explain(run, ExplainSpec("occlusion?window=16&stride=16", limit=6, device="cpu", pictures=0))
    assert found.summary.rows == 18  # originals on both, and those trained on the other condition on that
    assert set(found.shares["trained_on"]) == {"original", "random_background"}
    (model,) = (run / "models").iterdir()
    model.rename(run / "gone")
    with pytest.raises(UserError, match=r"the run has no model of timm:resnet10t trained on"):
        explain(run, ExplainSpec("gradcam", limit=6, device="cpu"))


def test_segmenters_are_asked_by_the_outputs_that_segment_found(photos: Path, tmp_path: Path) -> None:
    """Classes of another name than the output, as ``--labels`` or WordNet ids map them."""
    classes = sorted(one.name for one in (photos / "images").iterdir())
    outputs = holdfast.load_collection("diorama:test?n=12").classes
    lines = [f"{name},{output}" for name, output in zip(classes, outputs, strict=False)]
    (tmp_path / "labels.csv").write_text("\n".join(["class,label", *lines]) + "\n")
    options = {"scenarios": "original", "device": "cpu", "masks": str(photos / "masks")}
    run = api.segment(
        photos / "images", models=["embedded:unet"], labels=tmp_path / "labels.csv", out=tmp_path / "cut", **options
    ).path
    found = explain(run, ExplainSpec("gradcam", limit=3, device="cpu", pictures=0))
    assert found.summary.rows == 3 and not any("error" in text for text in found.summary.trouble)
    assert set(rows(run)["target_class"]) <= set(classes)


SPOTS = '''
import numpy as np
class Spots:
    """Sees red spots, and nothing else."""
    labels = ("good", "spot")
    fingerprint = "1"
    def predict(self, images):
        red = np.array([((i[..., 0] > 200) & (i[..., 1] < 60)).mean() for i in images], np.float32)
        share = np.minimum(50 * red, 1)
        return np.stack([1 - share, share], 1)
'''


def test_the_share_on_defects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MVTec AD: masks mark defects, and flawless parts have none."""
    (tmp_path / "spots.py").write_text(SPOTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    rng = np.random.default_rng(0)
    for part in ("train/good", "test/good", "test/spot", "ground_truth/spot"):
        (tmp_path / "screw" / part).mkdir(parents=True)
    for number in range(6):
        plain = rng.integers(60, 120, (48, 48, 3), np.uint8)
        cv2.imwrite(str(tmp_path / f"screw/train/good/{number:03}.png"), plain)
        cv2.imwrite(str(tmp_path / f"screw/test/good/{number:03}.png"), plain)
        top, left = rng.integers(4, 36, 2)
        mask = np.zeros((48, 48), np.uint8)
        mask[top : top + 8, left : left + 8] = 255
        plain[mask > 0] = (20, 20, 240)
        cv2.imwrite(str(tmp_path / f"screw/test/spot/{number:03}.png"), plain)
        cv2.imwrite(str(tmp_path / f"screw/ground_truth/spot/{number:03}_mask.png"), mask)
    run = tmp_path / "run"
    data = f"mvtec:{tmp_path / 'screw'}"
    holdfast.evaluate(data, models=["python:spots:Spots"], out=run, scenarios="original,grey", split="test")
    found = explain(run, ExplainSpec("occlusion?window=8&stride=4", conditions="original", pictures=0))
    (row,) = found.shares.to_dict("records")
    assert row["n"] == 6 and row["area"] == pytest.approx(64 / 48**2, abs=1e-6)
    assert row["ratio"] > 8 and row["hits"] == 1
