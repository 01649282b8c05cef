"""``holdfast train``: two networks, two folds, three scenarios, one epoch; what is left of it, and that it resumes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from killed import kill_in_training, weight_hashes
from typer.testing import CliRunner

import holdfast
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.pipeline.jobs.progress import version
from holdfast.pipeline.train.plan import TrainSpec
from holdfast.pipeline.train.train import train
from holdfast.store import Run
from shapes import CLASSES, make_photos

NETWORKS = ("timm:test_resnet", "timm:test_vit")
SCENARIOS = ("original", "grey", "random_background")
SMALL = {"size": 32, "batch_size": 8, "device": "cpu"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("shapes") / "photos", 8)


@pytest.fixture(scope="module")
def results(data: Path, tmp_path_factory: pytest.TempPathFactory) -> holdfast.Results:
    out = tmp_path_factory.mktemp("trained") / "run"
    scenarios = ",".join(SCENARIOS)
    return holdfast.train(data, architectures=NETWORKS, scenarios=scenarios, folds=2, epochs=1, out=out, **SMALL)


@pytest.fixture(scope="module")
def rows(results: holdfast.Results) -> pd.DataFrame:
    frame = results.rows().to_pandas()
    text = ["model", "trained_on", "condition", "label", "status"]
    return frame.astype(dict.fromkeys(text, str))


def test_every_photo_is_tested_once_by_models_that_never_saw_it(rows: pd.DataFrame, results) -> None:
    assert (rows["status"] == "ok").all()
    pairs = set(zip(rows["trained_on"], rows["condition"], strict=True))
    assert pairs == {("original", name) for name in SCENARIOS} | {(name, name) for name in SCENARIOS}
    groups = rows.groupby(["model", "trained_on", "condition"])["source_id"]
    assert set(rows["model"]) == set(NETWORKS) and len(groups) == 2 * 5
    assert (groups.size() == 24).all() and (groups.nunique() == 24).all()
    assert rows["row_id"].is_unique
    samples = pd.DataFrame(results.run.samples().to_pylist()).set_index("sample_id")
    assert (rows["fold"].to_numpy() == samples.loc[rows["sample_id"], "fold"].to_numpy()).all()
    per_class = samples.groupby(["label", "fold"], observed=True).size()
    assert (per_class == 4).all() and len(per_class) == 6


def test_pictures_are_those_of_eval(data: Path, rows: pd.DataFrame, tmp_path: Path, toy_models: str) -> None:
    run = holdfast.evaluate(data, models=f"{toy_models}:colour", scenarios=",".join(SCENARIOS), out=tmp_path / "eval")
    seen = run.rows().to_pandas().astype({"condition": str}).set_index(["sample_id", "condition"])
    own = rows.set_index(["sample_id", "condition"])
    assert (own["image_sha256"] == seen.loc[own.index, "image_sha256"]).all()
    assert (own["donor_id"].fillna("") == seen.loc[own.index, "donor_id"].fillna("")).all()


def test_a_model_is_a_name_at_once_and_answers_as_in_its_test(data: Path, results, rows, tmp_path: Path) -> None:
    folder = results.path / "models" / "timm-test_resnet" / "original" / "fold-1"
    names = [f"torch:test_resnet@{folder / 'model.safetensors'}", f"local-dir:{folder}?name=by folder"]
    run = holdfast.evaluate(data, models=names, scenarios=",".join(SCENARIOS), out=tmp_path / "eval", device="cpu")
    answers = run.rows().to_pandas().astype({"condition": str, "model": str})
    tested = rows[(rows["model"] == NETWORKS[0]) & (rows["trained_on"] == "original") & (rows["fold"] == 1)]
    tested = tested.set_index(["sample_id", "condition"])
    assert len(tested) == 36
    for _, one in answers.groupby("model"):
        one = one.set_index(["sample_id", "condition"]).loc[tested.index]
        assert (one["prediction"].astype(str) == tested["prediction"].astype(str)).all()
        np.testing.assert_allclose(one["probability_of_label"], tested["probability_of_label"], atol=1e-6)
    with pytest.raises(
        UserError, match=r"not a checkpoint of timm/test_vit: the config.json next to it says timm/test_"
    ):
        holdfast.load_classifier(names[0].replace("test_resnet@", "test_vit@"), device="cpu")
    card = (folder / "README.md").read_text()
    assert "trained on original, fold 1" in card and "- seed: 0" in card and f"torch: {version('torch')}" in card
    facts = json.loads((folder / "config.json").read_text())["holdfast"]
    assert facts["class_balance"] == dict.fromkeys(CLASSES, 3) and facts["validation_images"] == 3
    assert facts["recipe"]["epochs"] == 1 and facts["recipe"]["recipe"] == "fast"


def test_curves_tables_and_event_files_say_the_same(results) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    jobs = pq.read_table(results.path / "jobs.parquet").to_pandas()
    assert len(jobs) == 2 * 3 * 2 and (jobs["status"] == "ok").all() and (jobs["epochs"] == 1).all()
    curves = pd.concat([pq.read_table(path).to_pandas() for path in (results.path / "curves").iterdir()])
    assert len(curves) == 12 * 2 and set(curves["split"]) == {"train", "validation"}
    merged = curves[curves["split"] == "validation"].set_index("job")["accuracy"]
    assert (merged.loc[jobs["job"]].to_numpy() == jobs["validation"].to_numpy()).all()
    folder = results.path / "tensorboard" / "timm-test_vit" / "grey" / "fold-0"
    events = EventAccumulator(str(folder))
    events.Reload()
    own = curves[curves["job"] == "timm-test_vit--grey--fold-0"].set_index("split")
    for split in ("train", "validation"):
        for measure in ("loss", "accuracy"):
            (event,) = events.Scalars(f"{measure}/{split}")
            assert event.step == 1 and event.value == pytest.approx(own.loc[split, measure])
    kinds = {path.suffix for path in results.path.rglob("*") if path.is_file()}
    assert not kinds & {".png", ".jpg", ".npy", ".pt", ".npz"}, "no copy of the dataset, no checkpoints left"


def test_the_full_score_comes_out_of_the_report(results, rows: pd.DataFrame, tmp_path: Path) -> None:
    page = results.report(tmp_path / "page", resamples=100)
    text = page.read_text()
    assert 'id="training"' in text and text.index('id="scores"') < text.index('id="training"')
    score = pd.read_csv(tmp_path / "page" / "tables" / "robustness_score.csv").set_index("model")
    folds = rows.groupby(["model", "trained_on", "condition", "fold"])["correct"].mean()
    accuracy = folds.groupby(["model", "trained_on", "condition"]).mean()
    for model in NETWORKS:
        original = accuracy[model, "original", "original"]
        inner = [(accuracy[model, name, name] - original) ** 2 for name in SCENARIOS[1:]]
        cross = [(accuracy[model, "original", name] - original) ** 2 for name in SCENARIOS[1:]]
        assert score.loc[model, "variance_inner"] == pytest.approx(np.mean(inner))
        assert score.loc[model, "variance_cross"] == pytest.approx(np.mean(cross))
        assert score.loc[model, "score"] == pytest.approx(1 - np.mean(inner) - np.mean(cross))
        assert score.loc[model, "parts"] == "cross+inner"
    parts = pd.read_csv(tmp_path / "page" / "tables" / "score_parts.csv").set_index("model")
    each = pd.read_csv(tmp_path / "page" / "tables" / "score_scenarios.csv").set_index(["model", "condition"])
    for model in NETWORKS:
        network = holdfast.load_classifier(
            f"local-dir:{results.path / 'models' / model.replace(':', '-') / 'original' / 'fold-0'}", device="cpu"
        )
        count = sum(parameter.numel() for parameter in network.module.parameters())
        assert parts.loc[model, "parameters"] == pytest.approx(count / 1e6)
        gap = accuracy[model, "grey", "grey"] - accuracy[model, "original", "original"]
        assert each.loc[(model, "grey"), "inner"] == pytest.approx(gap**2)
    shown = pd.read_csv(tmp_path / "page" / "tables" / "scores.csv")
    assert set(shown["model"]) == set(NETWORKS), "models trained on scenarios are not models of their own"
    within = pd.read_csv(tmp_path / "page" / "tables" / "trained_within.csv").set_index(["model", "condition"])
    assert within.loc[(NETWORKS[0], "grey"), "within"] == pytest.approx(accuracy[NETWORKS[0], "grey", "grey"])
    assert (tmp_path / "page" / "figures" / "curves_accuracy.svg").is_file()
    assert results.scores(resamples=100)["parts"].tolist() == ["cross+inner"] * 2


def test_more_scenarios_train_only_what_is_new(data: Path, tmp_path: Path) -> None:
    settings = {"architectures": NETWORKS[:1], "folds": 2, "epochs": 1, "out": tmp_path / "run", **SMALL}
    holdfast.train(data, scenarios="original,grey", **settings)
    before = weight_hashes(tmp_path / "run")
    spec = TrainSpec(str(data), architectures=NETWORKS[:1], folds=2, epochs=1, scenarios="original,grey,red", **SMALL)
    run, summary = train(spec, tmp_path / "run")
    assert (summary.rows, summary.already) == (48, 72), "red within, and originals on red"
    after = weight_hashes(tmp_path / "run")
    assert {name: after[name] for name in before} == before and len(after) == len(before) + 2
    assert run.rows().num_rows == 120
    with pytest.raises(UserError, match=r"whose trained_by is \{'epochs': 1\}, not \{'epochs': 2\};"):
        holdfast.train(data, scenarios="original,grey", **settings | {"epochs": 2})


def test_train_on_original_tests_on_every_scenario(data: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app,
        ["train", str(data), "--architectures", NETWORKS[0], "--scenarios", "grey,red", "--train-on", "original",
         "--folds", "1", "--epochs", "1", "--size", "32", "--batch-size", "8", "--device", "cpu",
         "--out", str(tmp_path / "run")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "18 rows made, 0 there already" in done.output and "original" in done.output
    rows = Run.open(tmp_path / "run").rows().to_pandas()
    assert set(rows["trained_on"]) == {"original"} and set(rows["condition"]) == {"original", "grey", "red"}
    assert (rows["fold"] == 0).all() and rows["source_id"].nunique() == 6, "one split: a fifth of each class, rounded"


def test_images_that_show_a_scenario_already_are_taken_as_they_are(data: Path, tmp_path: Path) -> None:
    holdfast.synth(data, out=tmp_path / "synth", scenarios="original,grey", workers=1)
    run = holdfast.train(
        tmp_path / "synth", architectures=NETWORKS[0], scenarios="original,grey", folds=2, epochs=1,
        out=tmp_path / "run", **SMALL,
    )  # fmt: skip
    rows = run.rows().to_pandas().astype({"trained_on": str, "condition": str, "variant": str})
    counted = rows.groupby(["trained_on", "condition", "variant"]).size()
    assert counted.to_dict() == {
        ("original", "original", "paper"): 24,
        ("original", "grey", "as_stored"): 24,
        ("grey", "grey", "as_stored"): 24,
    }
    assert (rows.groupby("source_id")["fold"].nunique() == 1).all(), "all renderings of an image are in one fold"


def test_pictures_that_do_not_fit_are_rendered_in_every_epoch(data: Path, tmp_path: Path) -> None:
    found = []
    for name, memory in (("held", 0.0), ("rendered", 1e-9)):
        holdfast.train(
            data, architectures=NETWORKS[0], scenarios="random_background", folds=1, epochs=2, memory=memory,
            out=tmp_path / name, **SMALL,
        )  # fmt: skip
        found.append(weight_hashes(tmp_path / name))
    assert found[0] == found[1] and len(found[0]) == 1


def test_kill_9_and_rerun_end_in_the_same_metrics(data: Path, tmp_path: Path, table_of) -> None:
    out = tmp_path / "killed"
    command = [
        "train", str(data), "--architectures", NETWORKS[0], "--scenarios", "original,grey", "--folds", "1",
        "--epochs", "14", "--size", "32", "--batch-size", "8", "--device", "cpu", "--out", str(out), "-q",
    ]  # fmt: skip
    checkpoints = out / "jobs" / "timm-test_resnet" / "grey" / "fold-0" / "checkpoints"
    kept = kill_in_training(command, checkpoints, 4)
    assert Run.open(out).rows().num_rows == 12, "the first job is done"
    assert 4 <= int(kept.name[-5:]) < 14
    began = kept.stat().st_mtime_ns
    settings = {"architectures": NETWORKS[0], "scenarios": "original,grey", "folds": 1, "epochs": 14}
    killed, whole = (holdfast.train(data, out=tmp_path / name, **settings, **SMALL) for name in ("killed", "whole"))
    assert table_of(killed) == table_of(whole) and killed.rows().num_rows == 18
    assert weight_hashes(killed.path) == weight_hashes(whole.path)
    columns = ["job", "epoch", "split", "loss", "accuracy"]
    for part in sorted((whole.path / "curves").iterdir()):
        assert pq.read_table(killed.path / "curves" / part.name, columns=columns) == pq.read_table(
            part, columns=columns
        )
    first = {path.stat().st_mtime_ns for path in (out / "models").rglob("original/fold-0/model.safetensors")}
    assert max(first) < began, "what was done is not done again"


@pytest.mark.slow
def test_jobs_side_by_side_end_in_the_same_table(data: Path, tmp_path: Path, table_of) -> None:
    settings = {"architectures": NETWORKS, "scenarios": "original,grey", "folds": 2, "epochs": 1, **SMALL}
    found = [holdfast.train(data, workers=count, out=tmp_path / str(count), **settings) for count in (1, 2)]
    assert table_of(found[0]) == table_of(found[1])
