"""Networks trained and tested on generated backgrounds: painted once per run, the same that ``eval`` makes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import holdfast
from holdfast.core.errors import UserError

DATA = "diorama:train?n=48&context=0.8"
PAINTED = "generated_background"
GENERATOR = "embedded:text_to_image?steps=2"
SMALL = {"scenarios": f"original,grey,{PAINTED}", "generator": GENERATOR, "folds": 2, "epochs": 1, "size": 32,
         "batch_size": 8, "device": "cpu", "seed": 3}  # fmt: skip
SEGMENTER = "smp:FPN@tu-resnet18?channels=8/8/16/16&layers=1/1/1/1&decoder_segmentation_channels=32"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> holdfast.Results:
    out = tmp_path_factory.mktemp("trained") / "run"
    return holdfast.train(DATA, architectures=("timm:test_resnet",), out=out, **SMALL)


def frame_of(results: holdfast.Results) -> pd.DataFrame:
    rows = results.rows().to_pandas()
    return rows.astype(dict.fromkeys(("condition", "trained_on", "label", "status"), str))


def test_generated_backgrounds_are_trained_on_and_tested_on(trained: holdfast.Results) -> None:
    rows = frame_of(trained)
    own = rows[rows["condition"] == PAINTED]
    assert (rows["status"] == "ok").all() and set(own["trained_on"]) == {"original", PAINTED}
    folds = rows[rows["condition"] == "original"].groupby("source_id")["fold"].first()
    found = own.groupby("source_id")["fold"].first()
    assert found.to_dict() == folds.loc[found.index].to_dict()
    assert (own.groupby(["trained_on", "source_id"]).size() == 1).all() and own["source_id"].nunique() > 24
    jobs = pq.read_table(trained.path / "jobs.parquet").to_pandas()
    assert len(jobs[jobs["trained_on"] == PAINTED]) == 2 and (jobs["status"] == "ok").all()
    assert trained.run.spec()["painter"]["generator"].startswith("embedded:text_to_image")
    assert trained.scores(resamples=100)["n_conditions"].tolist() == [2]
    left_out = [text for text in trained.run.samples()["problem"].to_pylist() if text]
    assert len(left_out) + own["source_id"].nunique() == 48


def test_pictures_are_those_of_eval(trained: holdfast.Results, tmp_path: Path) -> None:
    run = holdfast.evaluate(
        DATA, models="embedded:resnet_rho0", scenarios=PAINTED, generator=GENERATOR, out=tmp_path / "eval",
        device="cpu", seed=3,
    )  # fmt: skip
    seen = run.rows().to_pandas()
    seen = seen[seen["status"].astype(str) == "ok"].set_index("source_id")["image_sha256"]
    own = frame_of(trained)
    own = own[own["condition"] == PAINTED].drop_duplicates("source_id").set_index("source_id")["image_sha256"]
    assert own.to_dict() == seen.to_dict()


def test_a_second_run_paints_and_trains_nothing(trained: holdfast.Results) -> None:
    before = {file: file.stat().st_mtime_ns for file in (trained.path / "painted").iterdir()}
    again = holdfast.train(DATA, architectures=("timm:test_resnet",), out=trained.path, **SMALL)
    assert again.rows().num_rows == trained.rows().num_rows
    assert {file: file.stat().st_mtime_ns for file in (trained.path / "painted").iterdir()} == before


def test_the_report_has_their_curves_and_a_gallery_with_prompts(trained: holdfast.Results, tmp_path: Path) -> None:
    text = trained.report(tmp_path / "page", resamples=100).read_text()
    tables = tmp_path / "page" / "tables"
    within = pd.read_csv(tables / "trained_within.csv")
    assert within[within["condition"] == PAINTED]["within"].notna().all()
    assert PAINTED in set(pd.read_csv(tables / "score_scenarios.csv")["condition"])
    curves = (tmp_path / "page" / "figures" / "curves_accuracy.svg").read_text()
    assert "generated background" in curves
    prompts = pd.read_csv(tables / "prompts.csv")
    painted = frame_of(trained).query("condition == @PAINTED")["source_id"].nunique()
    assert prompts["n"].sum() == painted and prompts["label"].nunique() > 6
    gallery = text[text.index('id="painted"') :]
    gallery = gallery[: gallery.index("</section>")]
    assert gallery.count("<img") == min(24, painted) and prompts["prompt"].iloc[0] in gallery


def test_segmenters_are_trained_and_tested_on_them(tmp_path: Path) -> None:
    few = SMALL | {"scenarios": f"original,{PAINTED}", "size": 64}
    run = holdfast.segment(DATA, architectures=(SEGMENTER,), out=tmp_path / "trained", **few)
    rows = frame_of(run)
    assert set(rows[rows["condition"] == PAINTED]["trained_on"]) == {"original", PAINTED}
    text = run.report(tmp_path / "page", resamples=100).read_text()
    assert 'id="painted"' in text
    given = {"scenarios": few["scenarios"], "generator": GENERATOR, "device": "cpu", "seed": 3}
    tested = frame_of(holdfast.segment(DATA, models=("embedded:unet",), out=tmp_path / "given", **given))
    assert (tested["condition"] == PAINTED).sum() == rows[rows["condition"] == PAINTED]["source_id"].nunique()


def test_without_a_generator_it_is_said_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"generator.* names what paints it, or holdfast synth"):
        holdfast.train(DATA, architectures=("timm:test_resnet",), out=tmp_path, **SMALL | {"generator": ""})
    with pytest.raises(UserError, match="is for generated_background"):
        holdfast.train(
            DATA, architectures=("timm:test_resnet",), out=tmp_path, **SMALL | {"scenarios": "original,grey"}
        )
