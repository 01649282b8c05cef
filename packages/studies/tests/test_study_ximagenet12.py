"""``holdfast study ximagenet12``, rehearsed: its page against plain counts, runs made before, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.schema import ATTRIBUTIONS
from holdfast.reports.page.parts import Section
from holdfast.reports.page.tables import Table
from holdfast.store import Parts, Run
from holdfast_studies.study import StudyOptions, chosen, run_study
from holdfast_studies.ximagenet12 import PAINTED, STUDY
from holdfast_studies.ximagenet12_page import ORDER, cost, in_order, unfinished

SMALL = ("scenarios=original,grey", "scenes=24", "maps=4", "parts=classify,look")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "out"
    run_study("ximagenet12", out, assignments=SMALL, quick=True, device="cpu")
    return out


def rows_of(made: Path) -> pd.DataFrame:
    rows = api.open_run(made / "runs" / "trained").run.rows().to_pandas()
    return rows.astype(dict.fromkeys(("model", "trained_on", "condition", "label"), str))


def plain(rows: pd.DataFrame, model: str, trained_on: str, condition: str) -> float:
    """Mean over folds of the mean over classes."""
    own = rows[(rows["model"] == model) & (rows["trained_on"] == trained_on) & (rows["condition"] == condition)]
    return float(own.groupby(["fold", "label"])["correct"].mean().groupby("fold").mean().mean())


def test_accuracies_and_scores_are_those_of_the_rows(made: Path) -> None:
    rows = rows_of(made)
    models = sorted(rows["model"].unique())
    table = pd.read_csv(made / "results" / "accuracies.csv").set_index("condition")
    parts = pd.read_csv(made / "results" / "score_parts.csv").set_index("model")
    assert list(table.index) == ["original", "grey"] and len(models) == 2
    for place, model in enumerate(models):
        mu, across, within = (
            plain(rows, model, *pair) for pair in (("original", "original"), ("original", "grey"), ("grey", "grey"))
        )
        assert table.loc["original", f"EX1_{place}"] == table.loc["original", f"EX2_{place}"]
        assert table[f"EX1_{place}"].to_numpy() == pytest.approx([mu, across])
        assert table.loc["grey", f"EX2_{place}"] == pytest.approx(within)
        for name in (f"EX1_{place}", f"EX2_{place}"):
            assert (table[f"{name}_low"] <= table[name]).all() and (table[name] <= table[f"{name}_high"]).all()
        assert parts.loc[model, "cross"] == pytest.approx((across - mu) ** 2)
        assert parts.loc[model, "inner"] == pytest.approx((within - mu) ** 2)
        assert parts.loc[model, "score"] == pytest.approx(1 - parts.loc[model, ["cross", "inner"]].sum())


def test_the_page_has_the_counterparts(made: Path) -> None:
    page = (made / "report" / "index.html").read_text(encoding="utf8")
    assert "Drawn scenes: the truth is known there, and photographs may differ. A rehearsal" in page
    for text in ("Table 1", "Table 2", "saliency maps", "Figure 9", "density maps", "validation curves"):
        assert len(re.findall(rf"Counterpart of the paper(&#39;|')s [^.]*{text}", page)) >= 1, text
    names = [name for name in re.findall(r'<section[^>]* id="([a-z-]+)"', page) if name in ORDER]
    assert names == ["accuracies", "scores", "looking", "regression", "classes", "curves"]
    for name in ("accuracies", "score_parts", "coefficients", "looking", "accuracy_by_class", "what-it-took"):
        assert len(pd.read_parquet(made / "results" / f"{name}.parquet")) > 0, name


def test_maps_are_of_scenes_that_were_not_trained_on(made: Path) -> None:
    run = Run.open(made / "runs" / "looked")
    maps = Parts(run.path / "details" / "attributions", ATTRIBUTIONS).rows(["row_id"])["row_id"].to_pylist()
    rows = run.rows(["row_id", "sample_id", "trained_on", "fold"]).to_pandas().set_index("row_id").loc[maps]
    assert rows["sample_id"].nunique() == 4  # all that were asked for, though half of the scenes were trained on
    assert set(rows["fold"]) == {0} and set(rows["trained_on"].astype(str)) == {"original"}


def test_runs_made_beforehand_are_read_and_left_alone(made: Path, tmp_path: Path) -> None:
    given = made / "runs" / "trained"
    before = {file: file.stat().st_mtime_ns for file in given.rglob("*")}
    asked = chosen("ximagenet12", STUDY.settings, ["parts=classify", f"trained={given}"], quick=True)
    result = STUDY.run(StudyOptions(tmp_path / "again", asked, quick=True, device="cpu"))
    assert {file: file.stat().st_mtime_ns for file in given.rglob("*")} == before
    assert not (tmp_path / "again").exists() and result.runs == ["trained"]
    first = next(one for one in result.findings if one.name == "accuracies")
    assert isinstance(first, Section)
    tables = [part.frame for part in first.parts if isinstance(part, Table)]
    pd.testing.assert_frame_equal(tables[0], pd.read_parquet(made / "results" / "accuracies.parquet"))


def test_generated_backgrounds_have_a_row_in_every_experiment(tmp_path: Path) -> None:
    every = f"{PAINTED}?min_share=0&max_border=1"  # of a few scenes no class may lose all that it has
    words = (f"scenarios=original,{every}", "scenes=48", "parts=classify,segment", "architectures=timm:test_resnet")
    page = run_study("ximagenet12", tmp_path, assignments=words, quick=True, device="cpu").read_text("utf8")
    for name in ("accuracies", "segmentation_miou"):
        table = pd.read_csv(tmp_path / "results" / f"{name}.csv").set_index("condition")
        assert table.loc[PAINTED].notna().all() and {"EX1_0", "EX2_0"} <= set(table.columns), name
    curves = pd.concat(pd.read_parquet(file) for file in (tmp_path / "runs" / "trained" / "curves").iterdir())
    assert PAINTED in set(curves["trained_on"].astype(str)) and page.count("generated background") > 4
    assert PAINTED in chosen("ximagenet12", STUDY.settings, [], quick=False)["scenarios"]


def test_what_is_refused(made: Path, tmp_path: Path) -> None:
    given = made / "runs" / "trained"
    for assignment, sentence in (
        (f"detected={given}", "is a run of holdfast train; detected takes one of holdfast study telltale"),
        (f"segmented={tmp_path}", "is not a run directory"),
        ("parts=classify,clasify", "did you mean classify"),
        ("scenarios=grey,red", "must have original and another one"),
        ("folds=1", "folds must be 2 or more"),
        ("context=2", "from 0 to 1"),
        ("data=photos", "generator embedded:.* paints drawn scenes only"),
    ):
        parts = () if assignment.startswith("parts") else (f"parts={_part(assignment)}",)
        with pytest.raises(UserError, match=sentence):
            run_study("ximagenet12", tmp_path / "out", assignments=[*parts, assignment], quick=True, device="cpu")


def _part(assignment: str) -> str:
    return {"segmented": "segment", "detected": "detect"}.get(assignment.partition("=")[0], "classify")


def test_an_unfinished_run_is_told(made: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    shutil.copytree(made / "runs" / "trained", begun, ignore=shutil.ignore_patterns("models", "tensorboard"))
    assert unfinished(api.open_run(begun)) == []
    spec = json.loads((begun / "spec.json").read_text())
    (begun / "spec.json").write_text(json.dumps(spec | {"folds": 3}))
    assert "8 of 12 trainings" in unfinished(api.open_run(begun))[0]


def test_twelve_folds_cost_more_than_three_times_as_much(made: Path) -> None:
    row = cost({"classify": api.open_run(made / "runs" / "trained")}).table.iloc[0]
    # From 2 folds to 12: six times as many trainings, each on 11/12 instead of 1/2 of the scenes.
    assert row["twelve"] / row["hours"] == pytest.approx(6 * (11 / 12) / (1 / 2))
    assert row["trainings"] == 8 and row["failed"] == 0


def test_sections_stand_in_the_order_of_the_page() -> None:
    shuffled = [Section(name, name) for name in np.random.default_rng(0).permutation(ORDER)]
    assert [one.name for one in in_order(shuffled)] == list(ORDER)


@pytest.mark.slow
def test_the_whole_rehearsal(tmp_path: Path) -> None:
    page = run_study("ximagenet12", tmp_path / "out", quick=True, device="cpu").read_text(encoding="utf8")
    names = [name for name in re.findall(r'<section[^>]* id="([a-z-]+)"', page) if name in ORDER]
    assert names == list(ORDER[:-1])
    segmented, detected = (
        api.open_run(tmp_path / "out" / "runs" / name).run.rows().to_pandas() for name in ("segmented", "detected")
    )
    assert set(segmented["status"]) == {"ok"}
    # Of 72 scenes some are the only one of their class in their part of a fold: no one lends those a background.
    alone = detected[detected["status"] != "ok"]
    assert set(alone["condition"]) <= {"same_class_background"} and len(alone) < 6
    assert alone["error"].str.contains("no other image of this class").all()
