"""How a study is asked for, and the page it leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from holdfast import registry
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.reports.study import Finding, StudyResult, about_world, columns_of
from holdfast_studies.study import Setting, Study, StudyOptions, chosen, run_study, written

HOSTILE = "<script>alert(1)</script>"
SETTINGS = (
    Setting("count", 3, "how many", 1),
    Setting("rate", 0.5, "how fast"),
    Setting("names", ("a", "b"), "which"),
    Setting("doses", (0.0, 1.0), "how much"),
    Setting("deep", False, "whether to look closely"),
    Setting("label", "x", "a word"),
)


def examine(options: StudyOptions) -> StudyResult:
    if options.settings["count"] < 0:
        raise UserError("count must be 0 or more")
    frame = pd.DataFrame(
        {"name": [HOSTILE, "=1+1"], "value": [0.25, np.nan], "value_low": [0.1, np.nan], "value_high": [0.4, np.nan]}
    )

    def chart(width: int) -> dict:
        marks = {"x": {"field": "name", "type": "nominal"}, "y": {"field": "value", "type": "quantitative"}}
        rows = [{"name": HOSTILE, "value": 0.25}]
        return {"data": {"name": "rows"}, "datasets": {"rows": rows}, "width": width, "mark": "bar", "encoding": marks}

    pictures = {f"an image {HOSTILE}": np.zeros((8, 12, 3), np.uint8)}
    findings = [
        Finding("What came out", [f"Seen with {options.settings['count']}."], frame, chart=chart),
        Finding("Images", ["One."], images=pictures),
    ]
    return StudyResult("A test", "Does it work?", findings, facts={"rows": 2}, note="Only a test.")


@pytest.fixture
def study() -> Iterator[str]:
    registry.studies.register("examine", Study(examine, SETTINGS), summary="a study made in a test")
    yield "examine"
    registry.studies.remove("examine")


def test_settings_have_the_type_of_their_default() -> None:
    said = ["count=7", "rate=2", "names=c, d", "doses=0,0.5,1", "deep=true", "label=a=b"]
    values = chosen("examine", SETTINGS, said, quick=False)
    assert values == {
        "count": 7, "rate": 2.0, "names": ("c", "d"), "doses": (0.0, 0.5, 1.0), "deep": True, "label": "a=b",
    }  # fmt: skip
    assert isinstance(values["rate"], float)


def test_a_rehearsal_has_defaults_of_its_own() -> None:
    assert chosen("examine", SETTINGS, [], quick=False)["count"] == 3
    assert chosen("examine", SETTINGS, [], quick=True)["count"] == 1
    assert chosen("examine", SETTINGS, ["count=2"], quick=True)["count"] == 2


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("cuont=2", "did you mean count"),
        ("count", "must have the form key=value"),
        ("count=two", "a whole number: how many"),
        ("count=2.5", "a whole number"),
        ("rate=fast", "a number"),
        ("deep=yes", "true or false"),
        ("doses=0,x", "a list of numbers"),
        ("names=,", "a list of names"),
    ],
)
def test_mistyped_settings(said: str, answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        chosen("examine", SETTINGS, [said], quick=False)


def test_values_are_written_as_they_are_read() -> None:
    for setting in SETTINGS:
        said = f"{setting.name}={written(setting.default)}"
        assert chosen("examine", SETTINGS, [said], quick=True)[setting.name] == setting.default


def test_the_page_and_its_files(study: str, tmp_path: Path) -> None:
    page = run_study(study, tmp_path / "out", assignments=["count=5"])
    text = page.read_text(encoding="utf8")
    assert page == tmp_path / "out" / "report" / "index.html"
    assert "Seen with 5." in text
    assert "Does it work?" in text
    assert "Only a test." in text
    assert "Content-Security-Policy" in text
    assert HOSTILE not in text
    assert len(re.findall(r'<img src="data:image/png;base64,', text)) == 2  # the front shows it, too
    assert (page.parent / "figures" / "what-came-out.svg").is_file()
    table = pd.read_parquet(tmp_path / "out" / "results" / "what-came-out.parquet")
    assert list(table["name"]) == [HOSTILE, "=1+1"]
    # A spreadsheet must not run what it reads.
    assert "'=1+1" in (tmp_path / "out" / "results" / "what-came-out.csv").read_text()
    assert json.loads((tmp_path / "out" / "study.json").read_text())["settings"]["count"] == 5


def test_a_folder_holds_one_study(study: str, tmp_path: Path) -> None:
    run_study(study, tmp_path)
    run_study(study, tmp_path)
    with pytest.raises(UserError, match="other settings"):
        run_study(study, tmp_path, assignments=["count=4"])
    with pytest.raises(UserError, match="other settings"):
        run_study(study, tmp_path, seed=1)


def test_a_refused_setting_leaves_the_folder_free(study: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="0 or more"):
        run_study(study, tmp_path, assignments=["count=-1"])
    assert run_study(study, tmp_path, assignments=["count=1"]).is_file()


def test_a_broken_study_file_is_named(study: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("[")
    with pytest.raises(UserError, match=r"study\.json"):
        run_study(study, tmp_path)


@pytest.mark.parametrize(
    ("data", "drawn"),
    [("diorama:test?n=24", True), ("diorama-rerendered:test?n=24", True), ("photos/", False), ("diorama/", False)],
)
def test_drawn_scenes_are_called_that(data: str, drawn: bool) -> None:
    assert about_world(data) == ("Drawn scenes: the truth is known there, and photographs may differ." if drawn else "")


def test_columns_follow_the_types() -> None:
    frame = pd.DataFrame({"a": ["x"], "n": [1], "v": [0.5], "v_low": [0.4], "v_high": [0.6], "x_low": [1.0]})
    found = {column.key: (column.kind, column.low) for column in columns_of(frame)}
    assert found == {"a": ("text", ""), "n": ("integer", ""), "v": ("number", "v_low"), "x_low": ("number", "")}


def test_the_command_line(study: str, tmp_path: Path) -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["study", study, "--settings"])
    assert listed.exit_code == 0
    assert re.search(r"names\s+a,b\s+a list of names", listed.output)
    assert "a study made in a test" in runner.invoke(app, ["ls", "studies"]).output
    done = runner.invoke(app, ["study", study, "--out", str(tmp_path), "--set", "count=9", "--set", "rate=1", "-q"])
    assert done.exit_code == 0, done.output
    assert done.output.strip() == str(tmp_path / "report" / "index.html")
    assert "Seen with 9." in (tmp_path / "report" / "index.html").read_text(encoding="utf8")
    lacking = runner.invoke(app, ["study", study])
    assert isinstance(lacking.exception, UserError)
    unknown = runner.invoke(app, ["study", "exmaine", "--out", str(tmp_path)])
    assert "did you mean examine" in str(unknown.exception)


def test_every_registered_study_has_settings_with_words() -> None:
    for name in registry.studies:
        one = registry.studies.get(name)
        assert isinstance(one, Study)
        for setting in one.settings:
            assert setting.meaning
            assert setting.quick is None or type(setting.quick) is type(setting.default)
