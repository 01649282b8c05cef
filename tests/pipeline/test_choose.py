"""``holdfast report --choose``: what models cost, what names stand for, and the page with its files."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import holdfast
from holdfast import api
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.pipeline import choosing
from holdfast.pipeline.choosing import members_of, read_weights
from holdfast.reports.choice import pareto
from holdfast.stats.models.choice import ModelCost

SCENARIOS = "original,blur_background,blur_object,grey,random_background,only_background"


@pytest.fixture
def run(photos: Path, toy_models: str, tmp_path: Path) -> holdfast.Results:
    models = [f"{toy_models}:colour?name=colour", f"{toy_models}:broken?name=guess"]
    return holdfast.evaluate(photos, models=models, scenarios=SCENARIOS, out=tmp_path / "run")


def test_families_groups_and_aliases(run: holdfast.Results) -> None:
    members = members_of(run.counts)
    assert members["blur"] == ["blur_background", "blur_object"] and members["combine"] == ["random_background"]
    assert set(members["static"]) == {"blur_background", "blur_object", "grey", "random_background"}
    assert "original" not in {name for names in members.values() for name in names}
    assert "only_background" not in {name for names in members.values() for name in names}  # the object is gone


def test_choosing_by_the_command_line(run: holdfast.Results, tmp_path: Path) -> None:
    out = tmp_path / "choice"
    asked = [
        "report",
        str(run.path),
        "--choose",
        "--weights",
        "blur=2,random_background=3",
        "--out",
        str(out),
        "-q",
        "--batch-size",
        "2",
    ]
    done = CliRunner().invoke(app, [*asked, "--device", "cpu", "--resamples", "400"])
    assert done.exit_code == 0, done.output
    said = json.loads((out / "choice.json").read_text())
    assert said["settings"]["weights"] == {"original": 1, "blur": 2, "random_background": 3}
    rows = {row["model"]: row for row in said["models"]}
    assert said["best"] == "colour" and rows["colour"]["accuracy"] > rows["guess"]["accuracy"]
    counted = run.rows(["model", "condition", "label", "source_id", "correct", "status"]).to_pandas()
    good = counted[counted["status"] == "ok"]
    shared = good[good["model"] == "guess"].groupby("condition", observed=True)["source_id"].agg(set)
    expected = 0.0
    for condition, weight in (("original", 1), ("blur_background", 1), ("blur_object", 1), ("random_background", 3)):
        own = good[(good["model"] == "colour") & (good["condition"] == condition)]
        own = own[own["source_id"].isin(shared[condition])]
        expected += weight / 6 * own.groupby("label", observed=True)["correct"].mean().mean()
    assert rows["colour"]["accuracy"] == pytest.approx(expected)
    assert rows["colour"]["milliseconds"] > 0 and rows["colour"]["bytes"] is None
    assert "2 images of 256 × 256" in said["settings"]["timing"]
    assert said["sentences"][0] in (out / "index.html").read_text().replace("&#39;", "'")
    with (out / "tables" / "models.csv").open() as file:
        assert next(row["model"] for row in csv.DictReader(file)) == "colour"
    assert {file.stem for file in (out / "figures").glob("*.svg")} == {"weighted_accuracy", "pareto_time"}
    for weights, message in (("blur", "name=number"), ("fog=1", "is called 'fog'; known: background, blur")):
        failed = CliRunner().invoke(app, ["report", str(run.path), "--choose", "--weights", weights, "--speed", "none"])
        assert isinstance(failed.exception, UserError) and message in str(failed.exception)


def test_several_runs_speeds_from_a_file_and_limits(
    run: holdfast.Results, photos: Path, toy_models: str, tmp_path: Path
) -> None:
    second = holdfast.evaluate(
        photos, models=f"{toy_models}:second?name=second", scenarios=SCENARIOS, out=tmp_path / "second"
    )
    speeds = tmp_path / "speeds.csv"
    speeds.write_text("model,milliseconds,parameters,bytes\ncolour,9,100,400000\nsecond,2,50,200000\n")
    found = api.choose([run, second.path], speed=speeds, resamples=200, weights={"grey": 1}, out=tmp_path / "out")
    table = found.choice.models.set_index("model")
    assert set(found.choice.together) == {"colour", "second"} and found.recommendation.model == "second"
    assert table.loc["second", "front_time"] and not table.loc["colour", "front_time"]  # as accurate, and slower
    assert np.isnan(table.loc["guess", "milliseconds"])
    limited = api.choose([run, second], speed=speeds, resamples=200, limit_size=0.3, out=tmp_path / "limited")
    assert limited.choice.best == "second" and not limited.choice.models.set_index("model").loc["guess", "eligible"]
    assert "the only one within the limits" in limited.recommendation.sentences[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,seconds\na,1\n", "no column milliseconds"),
        ("model,milliseconds\na,quick\n", "milliseconds must be a number of 0 or more"),
        ("model,milliseconds\na,-1\n", "milliseconds must be a number of 0 or more"),
        ("model,milliseconds\na,1\na,2\n", "twice"),
        ("model,milliseconds\n,2\n", "no model"),
    ],
)
def test_speeds_that_make_no_sense(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "speeds.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        choosing.read_speeds(tmp_path / "speeds.csv")


def test_speeds_of_other_models_or_no_file(run: holdfast.Results, tmp_path: Path) -> None:
    (tmp_path / "speeds.csv").write_text("model,milliseconds\nunheard,1\n")
    with pytest.raises(UserError, match="names unheard and no model of these runs"):
        api.choose(run, speed=tmp_path / "speeds.csv")
    with pytest.raises(UserError, match="measure, none or a CSV"):
        api.choose(run, speed="fast.csv")


def test_size_and_speed_of_an_embedded_model_and_a_reason_for_one_that_is_gone(tmp_path: Path) -> None:
    from safetensors import safe_open

    names = {"ours": "embedded:resnet_rho95", "gone": f"torch:resnet18@{tmp_path}/gone.pth"}
    found = choosing.measure(names, device="cpu", batch_size=1)
    folder = Path(holdfast.__file__).parent / "assets" / "classifiers" / "resnet_rho95"
    with safe_open(next(folder.glob("*.safetensors")), "np") as file:
        shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118 - no mapping
    buffers = ("running_mean", "running_var", "num_batches_tracked")
    learned = sum(int(np.prod(shape)) for key, shape in shapes.items() if not key.endswith(buffers))
    assert found["ours"].parameters == learned and not found["ours"].reason
    assert found["ours"].fast <= found["ours"].milliseconds <= found["ours"].slow
    assert found["gone"] == ModelCost(reason=found["gone"].reason) and "gone.pth" in found["gone"].reason
    untimed = choosing.measure({"ours": "embedded:resnet_rho95"}, device="cpu", timed=False)["ours"]
    assert untimed.milliseconds is None and untimed.parameters == learned and untimed.reason


def test_a_model_trained_in_a_run_is_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "timm-tiny" / "original" / "fold-0"
    folder.mkdir(parents=True)
    (tmp_path / "models" / "timm-tiny" / "grey" / "fold-0").mkdir(parents=True)
    (tmp_path / "spec.json").write_text(json.dumps({"models": ["timm:tiny", "timm:other"]}))
    found = choosing.sources([holdfast.open_run(tmp_path).run])
    assert found == {"timm:tiny": f"local-dir:{folder}", "timm:other": "timm:other"}
    # Of a run of train, the architecture's own weights are not those that were trained.
    (tmp_path / "spec.json").write_text(json.dumps({"verb": "train", "models": ["timm:tiny", "timm:other"]}))
    found = choosing.sources([holdfast.open_run(tmp_path).run])
    assert found == {"timm:tiny": f"local-dir:{folder}", "timm:other": ""}
    assert "not in the run any more" in choosing.measure({"timm:other": ""})["timm:other"].reason


def test_weights_as_they_are_written() -> None:
    assert read_weights('blur=2, a {"b":1}=0.5') == {"blur": 2.0, 'a {"b":1}': 0.5} and read_weights("") == {}
    for text in ("blur", "=2", "blur=two", "blur=1,blur=2"):
        with pytest.raises(UserError, match="--weights"):
            read_weights(text)


def test_weights_from_python_and_names_that_are_nearly_right(run: holdfast.Results) -> None:
    by_text = holdfast.choose(run, weights="blur=2,grey=1", speed="none", resamples=100)
    by_name = holdfast.choose(run, weights={"blur": 2, "grey": 1}, speed="none", resamples=100)
    assert by_text.choice.weights.equals(by_name.choice.weights)
    with pytest.raises(UserError, match="'blurr'; did you mean blur"):
        holdfast.choose(run, weights="blurr=2", speed="none")


@pytest.mark.parametrize("width", [340, 940])
def test_names_of_the_pareto_chart_stay_inside_and_apart(width: int) -> None:
    names = ["vit_base_patch16_224.augreg_in21k", "resnet50.a1", "densenet121", "mobilenetv3_small", "swin_tiny_patch4"]
    frame = pd.DataFrame({"row": names, "cost": [40, 9, 9.2, 2, 39], "estimate": [0.84, 0.76, 0.757, 0.66, 0.83]})
    frame = frame.assign(low=frame["estimate"] - 0.02, high=frame["estimate"] + 0.02, front=True, share=0.5)
    frame = frame.assign(cost_low=frame["cost"], cost_high=frame["cost"])
    chart = pareto(frame, width, title="milliseconds an image")
    marks = chart["datasets"]["rows"]
    placed = {one["row"]: (one["align"], one["dy"]) for one in marks}
    assert placed[names[0]][0] == placed[names[4]][0] == "right"  # at the right edge names go to the left
    assert placed["mobilenetv3_small"][0] == "left"
    assert placed["resnet50.a1"] != placed["densenet121"]
    import vl_convert

    svg = vl_convert.vegalite_to_svg(chart)
    drawn = float(re.search(r'width="([0-9.]+)"', svg)[1])
    assert drawn <= width
