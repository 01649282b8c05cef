"""Error rates by the user's own attributes: numbers, the section, the command, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from made_runs import make_run
from statsmodels.stats.proportion import confint_proportions_2indep

import holdfast
from commands import run
from holdfast.core.schema import SAMPLES
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.families import UNKNOWN, attribute_errors


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("groups") / "run"
    opened = make_run(folder, models=("timm:first", "timm:second"), conditions=("original", "grey"), photos=12)
    sources = sorted(set(opened.rows(["source_id"])["source_id"].to_pylist()))
    rows = [
        {"sample_id": name, "source_id": name, "attributes": json.dumps({"light": "dark" if at % 3 else "bright"})}
        for at, name in enumerate(sources)
    ]
    columns = [
        pa.array([row.get(field.name) for row in rows]).cast(field.type)
        if field.name in rows[0]
        else pa.nulls(len(rows), field.type)
        for field in SAMPLES
    ]
    opened.write_samples(pa.Table.from_arrays(columns, schema=SAMPLES))
    return folder


def test_a_gap_is_newcombes_difference_to_the_other_photos(made: Path) -> None:
    rows = holdfast.open_run(made).rows()
    frame = rows.to_pandas()
    frame = frame[(frame["condition"].astype(str) == "original") & (frame["model"].astype(str) == "timm:first")]
    dark = dict.fromkeys(sorted(set(frame["source_id"]))[::2], "dark")
    table = attribute_errors(reduce(rows), dark, average="micro").set_index(["model", "value"])
    own = frame["source_id"].isin(list(dark))
    wrong = [int((~frame["correct"][side].astype(bool)).sum()) for side in (own, ~own)]
    sizes = [int(own.sum()), int((~own).sum())]
    row = table.loc[("timm:first", "dark")]
    assert row["error"] == pytest.approx(wrong[0] / sizes[0]) and row["n"] == sizes[0]
    theirs = confint_proportions_2indep(wrong[0], sizes[0], wrong[1], sizes[1], method="newcomb")
    assert (row["low"], row["high"]) == pytest.approx(theirs)
    assert row["gap"] == pytest.approx(-table.loc[("timm:first", UNKNOWN), "gap"])
    assert np.isfinite(table["rest"]).all()


def test_the_report_has_a_section_per_attribute(made: Path, tmp_path: Path) -> None:
    run("report", made, "--by", "light", "--out", tmp_path / "page", "--resamples", "100")
    table = pd.read_csv(tmp_path / "page" / "tables" / "groups_light.csv")
    assert set(table["value"]) == {"dark", "bright"} and len(table) == 4
    assert "Errors by light" in (tmp_path / "page" / "index.html").read_text()
    refused = run("report", made, "--by", "weather", "--out", tmp_path / "no", code=2)
    assert "no attribute" in refused.stderr or "'weather'; there is light" in " ".join(refused.stderr.split())
