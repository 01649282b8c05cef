"""``holdfast study generators``: a rehearsal of the whole, and its numbers against the pools themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast import api
from holdfast.core.errors import UserError
from holdfast_studies.study import run_study


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generators")
    run_study("generators", out, quick=True, device="cpu")
    return out


def table(out: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(out / "results" / f"{name}.parquet")


def answers(out: Path, side: str) -> pd.DataFrame:
    rows = api.open_run(out / "runs" / side / "run").run.rows(["sample_id", "model", "correct"]).to_pandas()
    rows["model"] = rows["model"].astype(str)
    return rows.pivot(index="sample_id", columns="model", values="correct").astype(bool)


def test_the_shares_are_those_of_the_runs(rehearsal: Path) -> None:
    found = table(rehearsal, "what-the-second-generator-changes").set_index("measure")
    for column, side in (("before", "first"), ("after", "second")):
        right = answers(rehearsal, side)
        hard = (~right[["embedded:resnet_rho95", "embedded:mobilenet_rho95"]]).all(axis=1)
        assert found.loc["hard", column] == pytest.approx(hard.mean())
        target = right["embedded:resnet_rho95_strong"].mean()
        assert found.loc["right: resnet_rho95_strong", column] == pytest.approx(target)
    assert (found["n"].drop(found.filter(like="both are valid", axis=0).index) == 18).all()
    assert ((found["low"] <= found["estimate"]) & (found["estimate"] <= found["high"])).all()
    assert (found["estimate"] - (found["after"] - found["before"])).abs().max() < 1e-9


def test_both_generators_got_the_same_prompts_and_seeds(rehearsal: Path) -> None:
    first, second = (pd.read_parquet(rehearsal / "work" / side / "manifest.parquet") for side in ("first", "second"))
    keys = ["sample_id", "prompt", "prompt_id", "seed", "label", "condition"]
    pd.testing.assert_frame_equal(first[keys], second[keys])
    assert set(first["condition"]) == {"background", "texture", "material"}
    assert (first["published_sha256"] != second["published_sha256"]).all()
    by_kind = table(rehearsal, "by-kind-of-nuisance")
    assert by_kind[by_kind["measure"] == "hard"]["n"].sum() == len(first)


def test_the_page_says_what_two_generations_mean_here(rehearsal: Path) -> None:
    page = " ".join((rehearsal / "report" / "index.html").read_text(encoding="utf8").split())
    assert "one set of weights with fewer or more steps" in page and "Drawn scenes: the truth is known" in page
    assert page.count("data:image/png") >= 8
    stay = table(rehearsal, "do-the-same-prompts-stay-hard")
    assert stay[stay["given"] == "first"]["n"].sum() == 18
    assert np.isfinite(table(rehearsal, "the-same-prompts-painted-twice")["seconds"]).all()


def test_a_finished_study_paints_nothing_again(rehearsal: Path) -> None:
    stamps = {path: path.stat().st_mtime_ns for path in (rehearsal / "work").rglob("*.png")}
    run_study("generators", rehearsal, quick=True, device="cpu")
    assert {path: path.stat().st_mtime_ns for path in (rehearsal / "work").rglob("*.png")} == stamps


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("per_pair=0", "per_pair must be 1"),
        ("at_least=5", "only 2 surrogates"),
        ("first=embedded:?steps=2", "the same generator"),
        ("kinds=weather", "no kind of nuisance is called 'weather'"),
        ("targets=embedded:resnet_rho95", "is a surrogate and a target"),
        ("oracle=classifier:embedded:resnet_rho95", "the oracle .* is the model"),
    ],
)
def test_wrong_settings(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        run_study("generators", tmp_path, assignments=[setting], quick=True, device="cpu")
