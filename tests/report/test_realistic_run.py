"""Every method and every chart of a run of realistic shape: 120 images, 18 conditions, two models, several parts."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from made_runs import make_run

from holdfast.core.errors import UserError
from holdfast.reports.plots import PLOTS
from holdfast.results import Results, open_run
from holdfast.scenarios import parse_conditions

CLASSES = tuple(f"class {number}" for number in range(12))
MODELS = ("timm:first", "timm:second")
ROOT = Path(__file__).parents[2]

NEEDED = {"measure": ("accuracy",), "parity": MODELS, "plot": ("accuracy",)}
"""What a method must be given."""
OF_OTHER_RUNS = {
    "between": "datasets",
    "boxes": "detectors",
    "concepts": "does not say which data",
    "embedding": "no run of encoders",
    "fmr": "walk",
    "objects": "detectors",
    "questions": "question",
}
"""What a run of classifiers does not have, and a word of the sentence that says so."""
METHODS = [
    name
    for name, _ in inspect.getmembers(Results)
    if not name.startswith("_") and name not in ("fmr_corrected", "report")
]
"""All but the one that needs people's votes about walks, and the report, which the test of the charts writes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("realistic") / "runs" / "first"
    conditions = [condition.name for condition in parse_conditions("all")]
    assert len(conditions) == 18
    make_run(path, models=MODELS, classes=CLASSES, photos=10, conditions=conditions, parts=5)
    return path


@pytest.fixture(scope="module")
def run(folder: Path) -> Results:
    return open_run(folder)


def test_the_parts_have_different_words_in_different_places(run: Results) -> None:
    chunks = [run.run.predictions.dataset().to_table(columns=["condition"])["condition"].chunk(part) for part in (0, 1)]
    assert chunks[0].dictionary.to_pylist() != chunks[1].dictionary.to_pylist()


def test_the_rows_of_a_run_can_be_grouped_and_joined(run: Results) -> None:
    frame = run.rows()
    groups = frame.groupby(["model", "condition"], observed=True)
    assert groups.ngroups == 36 and set(groups["correct"].count()) == {120} and set(groups["label"].nunique()) == {12}
    short = pd.DataFrame({"condition": frame["condition"].unique(), "short": range(18)})
    assert len(frame.merge(short)) == len(frame) == 4320


def test_the_stored_rows_of_a_run_can_be_grouped_and_joined(run: Results) -> None:
    rows = run.run.rows()
    counted = rows.group_by(["model", "condition"]).aggregate([("correct", "count"), ("label", "count_distinct")])
    assert counted.num_rows == 36
    assert set(counted["correct_count"].to_pylist()) == {120}
    assert set(counted["label_count_distinct"].to_pylist()) == {12}
    words = pa.table({"condition": rows["condition"].unique(), "short": range(18)})
    assert rows.select(["row_id", "condition"]).join(words, "condition").num_rows == len(rows) == 4320


@pytest.mark.parametrize("name", METHODS)
def test_every_public_method_answers(name: str, run: Results) -> None:
    def ask() -> object:
        value = getattr(run, name)
        return value(*NEEDED.get(name, ())) if inspect.isroutine(value) else value

    if name in OF_OTHER_RUNS:
        with pytest.raises(UserError, match=OF_OTHER_RUNS[name]):
            ask()
        return
    answer = ask()
    assert answer is not None and repr(answer)


def test_every_chart_is_drawn(run: Results, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        run.plot("no such chart", resamples=20)
    known = str(refused.value).partition("This run has ")[2].split(", ")
    run.report(tmp_path / "page", resamples=20)
    drawn = {path.stem for path in (tmp_path / "page" / "figures").glob("*.svg")}
    assert {"ranks", "coefficients", "interaction", "confidence"} <= drawn and drawn | set(PLOTS) == set(known)
    for name in PLOTS:
        assert run.plot(name, resamples=20)["datasets"], name


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/report.md"])
def test_the_block_of_a_page_runs_as_it_is(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / page).read_text(encoding="utf8")
    (block,) = [one for one in re.findall(r"```python\n(.*?)```", text, re.S) if 'open_run("runs/first")' in one]
    monkeypatch.chdir(folder.parents[1])
    exec(compile(block, page, "exec"), {})
    printed = capsys.readouterr().out
    if page == "README.md":
        assert "4,320 rows" in printed and "and 14 more" in printed
        assert Path("accuracy.png").read_bytes().startswith(b"\x89PNG")
