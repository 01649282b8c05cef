"""Error rates by the user's own attributes: numbers, the section, the command, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from made_runs import make_run
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep

import holdfast
from commands import run
from holdfast.core.errors import UserError
from holdfast.core.schema import SAMPLES
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.drops import drops
from holdfast.stats.effects.families import UNKNOWN, attribute_drops, attribute_errors, group_verdicts, grouped
from holdfast.stats.effects.verdict import what_it_holds
from holdfast.store import Run


def write_light(opened: Run, values: dict[str, str]) -> None:
    """Write the run's samples with their attribute ``light``."""
    rows = [
        {"sample_id": name, "source_id": name, "attributes": json.dumps({"light": value})}
        for name, value in values.items()
    ]
    columns = [
        pa.array([row.get(field.name) for row in rows]).cast(field.type)
        if field.name in rows[0]
        else pa.nulls(len(rows), field.type)
        for field in SAMPLES
    ]
    opened.write_samples(pa.Table.from_arrays(columns, schema=SAMPLES))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("groups") / "run"
    opened = make_run(folder, models=("timm:first", "timm:second"), conditions=("original", "grey"), photos=12)
    sources = sorted(set(opened.rows(["source_id"])["source_id"].to_pylist()))
    write_light(opened, {name: "dark" if at % 3 else "bright" for at, name in enumerate(sources)})
    return folder


def test_folds_of_a_split_have_mean_and_spread_without_any_training(tmp_path: Path) -> None:
    run("synth", "diorama:test?n=72", "--scenarios", "original", "--out", tmp_path / "photos")
    run("data", "split", tmp_path / "photos", "--folds", "3", "--out", tmp_path / "folds.csv")
    models, scenarios = "embedded:resnet_rho0,embedded:vit_rho95", "original,grey"
    words = ("--models", models, "--scenarios", scenarios, "--device", "cpu")
    run("eval", tmp_path / "folds.csv", *words, "--out", tmp_path / "run")
    run("report", tmp_path / "run", "--by", "fold", "--out", tmp_path / "page", "--resamples", "100")
    table = pd.read_csv(tmp_path / "page" / "tables" / "folds.csv").set_index(["model", "condition"])
    assert len(table) == 4 and (table["folds"] == 3).all()
    manifest = pd.read_csv(tmp_path / "folds.csv").set_index("sample_id")["fold"]
    rows = holdfast.open_run(tmp_path / "run").run.rows().to_pandas()
    rows["fold"] = rows["sample_id"].map(manifest)
    rows = rows.astype(dict.fromkeys(("model", "condition", "label"), str))
    for (model, condition), own in rows.groupby(["model", "condition"]):
        folds = own.astype({"correct": float}).groupby(["fold", "label"])["correct"].mean().groupby("fold").mean()
        row = table.loc[(model, condition)]
        assert row[[f"accuracy_in_{fold}" for fold in folds.index]].to_numpy() == pytest.approx(folds.to_numpy())
        half = stats.t(2).ppf(0.975) * folds.std() / np.sqrt(3)
        assert row[["mean", "sd", "least", "most"]].tolist() == pytest.approx(
            [folds.mean(), folds.std(), folds.min(), folds.max()]
        )
        assert row["high"] - row["mean"] == pytest.approx(half)
    text = (tmp_path / "page" / "index.html").read_text()
    assert "Errors by fold" in text and "mean ± standard deviation" in text and "over 3 folds" in text


def test_a_gap_is_newcombes_difference_to_the_other_photos(made: Path) -> None:
    rows = holdfast.open_run(made).run.rows()
    frame = rows.to_pandas()
    frame = frame[(frame["condition"].astype(str) == "original") & (frame["model"].astype(str) == "timm:first")]
    dark = dict.fromkeys(sorted(set(frame["source_id"]))[::2], "dark")
    table = attribute_errors(reduce(rows), dark, average="micro").set_index(["model", "value"])
    own = frame["source_id"].isin(list(dark))
    wrong = [int((~frame["correct"][side].astype(bool)).sum()) for side in (own, ~own)]
    sizes = [int(own.sum()), int((~own).sum())]
    row = table.loc[("timm:first", "dark")]
    assert row["error"] == pytest.approx(wrong[0] / sizes[0]) and row["n"] == sizes[0]
    theirs = confint_proportions_2indep(wrong[0], sizes[0], wrong[1], sizes[1], method="newcomb", alpha=0.05 / 2)
    assert (row["low"], row["high"]) == pytest.approx(theirs)
    assert row["gap"] == pytest.approx(-table.loc[("timm:first", UNKNOWN), "gap"])
    assert np.isfinite(table["rest"]).all()


def test_drops_of_a_group_are_those_of_its_photos_alone(made: Path) -> None:
    counts = holdfast.open_run(made).counts
    dark = dict.fromkeys(sorted(set(counts.cells["source_id"].astype(str)))[::2], "dark")
    table = attribute_drops(counts, dark, average="micro", resamples=200)
    assert list(table["drop"]) == sorted(table["drop"], reverse=True)
    cells = counts.cells[
        counts.cells["source_id"].astype(str).isin(list(dark)) & (counts.cells["model"] == "timm:first")
    ]
    shares = cells.groupby("condition", observed=True)[["right", "n"]].sum()
    row = table[(table["model"] == "timm:first") & (table["value"] == "dark")].iloc[0]
    assert row["drop"] == pytest.approx(
        shares["right"]["original"] / shares["n"]["original"] - shares["right"]["grey"] / shares["n"]["grey"]
    )
    alone = drops(counts, average="micro", resamples=200).set_index("model").loc["timm:first"]
    assert row["high"] - row["low"] > alone["high"] - alone["low"]


def test_numbers_are_cut_into_quarters_and_texts_stay() -> None:
    numbers = grouped({str(at): at for at in range(100)})
    assert sorted(pd.Series(numbers).value_counts()) == [25] * 4 and numbers["0"].startswith("1: ")
    assert grouped({"a": "B", "b": 2}) == {"a": "B", "b": "2"}


def test_attributes_come_from_a_table_and_choose_takes_a_slice(made: Path, tmp_path: Path) -> None:
    sources = sorted(set(holdfast.open_run(made).run.rows(["source_id"])["source_id"].to_pylist()))
    table = tmp_path / "cameras.csv"
    table.write_text("path,camera\n" + "".join(f"{name}.jpg,{'AB'[at % 2]}\n" for at, name in enumerate(sources)))
    run("report", made, "--by", "camera", "--attributes", table, "--out", tmp_path / "page", "--resamples", "100")
    page = tmp_path / "page" / "tables"
    assert set(pd.read_csv(page / "groups_camera.csv")["value"]) == {"A", "B"}
    assert set(pd.read_csv(page / "group_drops_camera.csv")["condition"]) == {"grey"}
    chosen = holdfast.choose(
        made, slice="camera=B", attributes=str(table), speed="none", resamples=100, out=tmp_path / "c"
    )
    assert chosen.choice.photos == len(sources) // 2 and chosen.settings["slice"] == "camera=B"
    for wrong, said in (("camera=C", "no image has camera=C"), ("camera", "must have the form attribute=value")):
        with pytest.raises(UserError, match=said):
            holdfast.choose(made, slice=wrong, attributes=str(table), speed="none", out=tmp_path / "no")
    table.write_text("camera\nA\n")
    with pytest.raises(UserError, match="needs a column that names the image"):
        holdfast.report([made], tmp_path / "no", by=["camera"], attributes=table)


def test_the_report_has_a_section_per_attribute(made: Path, tmp_path: Path) -> None:
    run("report", made, "--by", "light", "--out", tmp_path / "page", "--resamples", "100")
    table = pd.read_csv(tmp_path / "page" / "tables" / "groups_light.csv")
    assert set(table["value"]) == {"dark", "bright"} and len(table) == 4
    assert "Errors by light" in (tmp_path / "page" / "index.html").read_text()
    refused = run("report", made, "--by", "weather", "--out", tmp_path / "no", code=2)
    assert "no attribute" in refused.stderr or "'weather'; there is light" in " ".join(refused.stderr.split())


def test_every_group_has_the_verdict_of_its_photos_alone(tmp_path: Path) -> None:
    conditions = ("original", "same_class_background", "random_background")
    opened = make_run(tmp_path / "run", models=("timm:first",), conditions=conditions, photos=16)
    rows = opened.rows()
    sources = sorted(set(rows["source_id"].to_pylist()))
    values = {name: "dark" if at % 2 else "bright" for at, name in enumerate(sources)}
    table = group_verdicts(reduce(rows), values).set_index("value")
    for value in ("dark", "bright"):
        own = pa.array([values[name] == value for name in rows["source_id"].to_pylist()])
        (alone,) = what_it_holds(reduce(rows.filter(own))).to_dict("records")
        for column in ("verdict", "headline", "n", "background_effect", "background_effect_low"):
            assert table.loc[value, column] == alone[column], column
    write_light(opened, values)
    page = holdfast.open_run(tmp_path / "run").report(by=["light"]).read_text()
    assert "Verdicts by light, the largest background effect first" in page
